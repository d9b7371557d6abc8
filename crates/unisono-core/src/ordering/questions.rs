//! The questions that other parts ask about the order, and their answers.
//!
//! In a group with a sequencer all answers follow from two facts: the member that the log names, and whether this
//! member acts, which is true once the log names it and it holds everything through the event that does. A ring answers
//! them in the same way. The questions are kept apart because there the role passes to the next member after almost every batch,
//! so an answer that has to last needs another question than one about this moment.

use super::Order;
use crate::group::Group;
use crate::identity::{Seqno, Uid};
use crate::peers::Standing;

impl Order {
    /// True if this member may assign the next seqno now.
    ///
    /// It is asked before anything that needs the end of the log: numbering, and statements that no further seqno
    /// exists. In a ring it is true only between two passes, so a duty that lasts longer has to follow from another
    /// question there.
    pub(crate) fn may_assign(&self) -> bool {
        self.acting.is_some()
    }

    /// Returns the member to which this one reports what it holds; `None` if this member counts for itself which members
    /// hold what. `named` is the member that the log names. If that is this member and it may not act, because it has
    /// promised a ballot, it neither counts nor reports, and the answer is its own uid.
    ///
    /// It decides acknowledgements, acceptance, stability and farewells. In a ring passes also show every member what others
    /// hold; a member without the token still reports to the named one at changes, as room runs out, and when a heartbeat asks.
    pub(crate) fn report_to(&self, named: Uid) -> Option<Uid> {
        (!self.may_assign()).then_some(named)
    }

    /// Returns the member that processes outside of the group, members that lack entries, and users are directed to.
    ///
    /// It decides which member answers a joiner and admits it. The answer has to last longer than a round trip. In a
    /// ring it may name any member, and a member that is asked to admit a joiner keeps the role when it comes.
    pub(crate) fn contact(&self, named: Uid) -> Uid {
        named
    }

    /// Returns the member to which this one sends messages that ask for a seqno; `None` if it numbers them itself.
    ///
    /// It decides how own messages leave, and which member owes a number for them. In a ring members send them to the
    /// group, since each soon has the role; the answer matters where the group is reached only by copies.
    pub(crate) fn submit_to(&self, named: Uid) -> Option<Uid> {
        (!self.may_assign()).then_some(named)
    }

    /// True if this member watches the peer `uid` for silence; `accepted` is the seqno through which this member has
    /// accepted. The sequencer watches all members, and leavers until their leave is accepted. The others watch the
    /// sequencer.
    ///
    /// In a ring, too, the others watch the member that the log names.
    pub(crate) fn watched(&self, named: Uid, uid: Uid, standing: &Standing, accepted: Seqno) -> bool {
        match standing {
            Standing::Member if self.may_assign() => true,
            Standing::Leaver { seqno, .. } if self.may_assign() => accepted < *seqno,
            Standing::Member | Standing::Leaver { .. } | Standing::Observer { .. } => uid == named,
        }
    }
}

impl Group {
    /// See [`Order::may_assign`].
    pub(crate) fn may_assign(&self) -> bool {
        self.order.may_assign()
    }

    /// See [`Order::report_to`].
    pub(crate) fn report_to(&self) -> Option<Uid> {
        self.order.report_to(self.named())
    }

    /// See [`Order::contact`].
    pub(crate) fn contact(&self) -> Uid {
        self.order.contact(self.named())
    }

    /// See [`Order::submit_to`].
    pub(crate) fn submit_to(&self) -> Option<Uid> {
        self.order.submit_to(self.named())
    }

    /// See [`Order::watched`].
    pub(crate) fn watched(&self, uid: Uid, standing: &Standing) -> bool {
        self.order.watched(self.named(), uid, standing, self.log.accepted())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Time;
    use bytes::Bytes;

    const A: Uid = Uid(1);
    const B: Uid = Uid(2);

    /// The part of a member that has the role since the event at this seqno, or has not.
    fn order(acting: Option<Seqno>) -> Order {
        Order { acting, ..Order::default() }
    }

    fn leaver(seqno: Seqno) -> Standing {
        Standing::Leaver { seqno, since: Time::ZERO }
    }

    #[test]
    fn the_sequencer_assigns_counts_and_numbers_its_own_messages() {
        let order = order(Some(7));
        assert!(order.may_assign());
        assert_eq!((order.report_to(A), order.submit_to(A)), (None, None));
        assert_eq!(order.contact(A), A);
    }

    #[test]
    fn any_other_member_reports_and_submits_to_the_member_that_the_log_names() {
        let order = order(None);
        assert!(!order.may_assign());
        assert_eq!((order.report_to(A), order.submit_to(A), order.contact(A)), (Some(A), Some(A), A));
    }

    #[test]
    fn a_member_that_promised_a_ballot_stays_the_contact_and_does_not_assign() {
        let mut order = order(Some(7));
        order.stop();
        assert!(!order.may_assign());
        assert_eq!(order.contact(A), A);
        assert_eq!(order.report_to(A), Some(A), "it does not count any more");
    }

    #[test]
    fn the_sequencer_watches_all_members_and_leavers_until_their_leave_is_accepted() {
        let order = order(Some(7));
        let observer = Standing::Observer { since: Time::ZERO, hello: Bytes::new() };
        assert!(order.watched(A, B, &Standing::Member, 8));
        assert!(order.watched(A, B, &leaver(9), 8));
        assert!(!order.watched(A, B, &leaver(9), 9));
        assert!(!order.watched(A, B, &observer, 8));
    }

    #[test]
    fn other_members_watch_only_the_sequencer_even_if_it_leaves() {
        let order = order(None);
        assert!(order.watched(A, A, &Standing::Member, 8));
        assert!(order.watched(A, A, &leaver(9), 9));
        assert!(!order.watched(A, B, &Standing::Member, 8));
        assert!(!order.watched(A, B, &leaver(9), 8));
    }
}

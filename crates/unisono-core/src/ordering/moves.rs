//! Moves of the sequencer's role: what follows from them, each consequence with its reason.
//!
//! `role` decides when the role moves, and repeats the event until the successor is heard. A move has four moments, and
//! each is a function here:
//!
//! | moment | member | function |
//! |---|---|---|
//! | the log names the next sequencer | every member; also at each leave of another member | [`Group::note_named`] |
//! | the predecessor gives the role up | the member that numbered the event | [`Group::resign`] |
//! | the successor takes the role | the member that the event names | [`Group::enter_role`] |
//! | the successor is heard | all others | [`Group::hear_sequencer`], [`Group::follow_the_role`] |
//!
//! Applications get the event itself, as any other entry. A reset names a sequencer too, but begins an epoch in which
//! everything begins anew: only the third and fourth moment follow.
//!
//! In a ring the role passes to the next member after almost every batch. A pass has none of these consequences:
//! [`Group::pass_token`] gives the token on, and [`Group::take_token`] takes it.

use super::Order;
use crate::event::JoinFailure;
use crate::group::{Group, Phase};
use crate::identity::{Seqno, Uid};
use crate::planted::{Planted, Probe};
use crate::time::Time;

impl Order {
    /// True if the event at `event`, which names this member, was not followed yet: the role is taken once per event.
    pub(super) fn may_take(&self, event: Seqno) -> bool {
        self.taken.is_none_or(|taken| taken < event)
    }

    /// Begins this member's term by the event at `event`. It holds everything through `received`.
    fn begin_term(&mut self, event: Seqno, received: Seqno) {
        debug_assert!(event <= received);
        (self.acting, self.taken) = (Some(event), Some(event));
        self.heard = self.heard.max(Some(event));
        // Its predecessors have announced what they numbered, and heartbeats show how far that goes. After a switch of the
        // order the predecessor is this member.
        if self.numbered < received {
            self.announced = self.announced.max(received);
        }
        (self.numbered_from, self.numbered) = (received, received);
    }

    /// Ends this member's term by the event at `event`, which it has numbered. A planted bug lets it go on.
    pub(super) fn end_term(&mut self, event: Seqno, goes_on: bool) {
        self.numbered = event;
        if !goes_on {
            self.acting = None;
        }
        // `role` sends other heartbeats until the successor is heard.
        self.heartbeat_at = None;
        // The next sequencer sees for itself which member is in the way; in another term the time begins anew.
        self.shut_since = None;
    }

    /// Notes that the sequencer of this term was heard, and whether it sees that all members hear the multicast. Returns
    /// `None` if a later sequencer was heard before, otherwise whether it was news.
    fn hear(&mut self, term: Seqno, multicast: bool) -> Option<bool> {
        if Some(term) < self.heard {
            return None;
        }
        let known = (self.heard, self.multicast);
        (self.heard, self.multicast) = (Some(term), multicast);
        Some(known != (self.heard, self.multicast))
    }
}

impl Group {
    /// Notes that this member's log names the next sequencer, by a role event or a leave. A leave of a member that was
    /// not the sequencer is followed in the same way.
    #[cold]
    pub(crate) fn note_named(&mut self, now: Time) {
        // The successor does not know what this member holds, and the event is accepted only when enough members are
        // known to hold it.
        if self.report_to().is_some() {
            self.acknowledging.report_now();
        }
        // The predecessor drops the messages that it has not numbered, so they are sent to the successor.
        self.outbox.restart();
        // Until the successor is heard, the predecessor decides which members are sent copies.
        self.order.note_role_change();
        self.order.probe_multicast_soon(now);
        // This member watches the successor now.
        self.detector.look_soon(now);
    }

    /// Gives up the role, which another member has from the event just numbered on.
    pub(super) fn resign(&mut self, now: Time) {
        let goes_on = self.broken(Planted::OldSequencerGoesOn);
        self.order.end_term(self.log.received(), goes_on);
        // Senders repeat these messages to the successor. If this member becomes sequencer again, it must not number
        // them behind later ones.
        self.log.drop_waiting();
        self.forget_early();
        // Observers ask the next sequencer.
        self.forget_observers(now, |_, _| true);
        // It no longer counts which members hear the multicast, once the successor is heard.
        self.order.note_role_change();
    }

    /// Takes the role, to which the event at `event` entitles this member.
    #[cold]
    pub(super) fn enter_role(&mut self, now: Time, event: Seqno) {
        if event > self.epoch_start {
            self.probe(Probe::RoleTaken);
        }
        // Seqnos beyond the event would be assigned by another member. There are none, since this member is named.
        let received = self.log.received();
        self.log.cut(received);
        self.order.begin_term(event, received);
        if self.is_ring() {
            return self.take_token(now);
        }
        self.peers.forget_deafness();
        // Members report to it whether they hear its multicasts, which may take another way than its predecessor's.
        self.order.multicast_probe_at = now;
        // Load is measured within one term.
        self.order.load.begin_term(now);
        // From now on it counts itself which members hear the multicast.
        self.order.note_role_change();
        // Members are judged by this sequencer anew.
        self.forget_awaited();
        // It numbers its own messages, whatever it has sent of them to its predecessor.
        self.outbox.restart();
        // It shows at once that it acts. The members answer with both watermarks, so that it can accept what its
        // predecessors have numbered.
        self.beat_soon(now);
        self.order.beat_now(true);
    }

    /// Takes the token. A pass has none of the consequences of other moves: what this member and others have sent lies in
    /// its buffer, and all members know the ring.
    fn take_token(&mut self, now: Time) {
        if self.broken(Planted::WaitingDroppedAtPass) {
            self.log.drop_waiting();
        }
        self.note_pass_taken(now);
        self.peers.judge_term(now);
        self.order.ring.take(now, self.log.delivered());
        self.forget_awaited();
        self.beat_soon(now);
        self.want_of_all(now);
    }

    /// Gives the token on by the event just numbered. With the pass go the giver's watermarks, to all.
    pub(super) fn pass_token(&mut self, now: Time) {
        let stable = self.stable();
        self.note_stable(stable);
        self.counters.passes += 1;
        if !self.order.ring.has_numbered() {
            self.counters.null_passes += 1;
        }
        let after = self.order.ring.pass(now);
        if self.outbox.is_to_try_multicast(now) {
            self.order.note_role_change();
        }
        let goes_on = self.broken(Planted::OldSequencerGoesOn);
        self.order.end_term(self.log.received(), goes_on);
        self.order.beat_now(false);
        // The pass is repeated after that time.
        (self.order.heartbeat_after, self.order.heartbeat_at) = (after, Some(now + after));
        self.order.tells_of = self.log.received();
        self.acknowledging.note_pass(now);
    }

    /// Notes a heartbeat of the sequencer of this term. `stamp` is its sender and stamp if it went to all members.
    pub(super) fn hear_sequencer(
        &mut self,
        now: Time,
        term: Seqno,
        multicast: bool,
        stamp: Option<(Uid, u32)>,
    ) {
        let Some(is_news) = self.order.hear(term, multicast) else { return };
        // Reports return the stamp to the sequencer that gave it, as proof that this member hears it.
        if let Some((from, stamp)) = stamp {
            self.acknowledging.note_stamp(from, term, stamp);
        }
        // The sequencer says by which way the group is reached; a predecessor's duty to count ends.
        if is_news {
            self.order.note_role_change();
        }
        if self.is_ring() {
            self.note_rest_elsewhere(now, term);
        }
    }

    /// Fails the join when the role has moved and the new sequencer is heard: only the sequencer that welcomed this
    /// joiner knows it as an observer. Unless its JOIN has a seqno already, another life must ask again.
    pub(crate) fn follow_the_role(&mut self) {
        let Some(joining) = &self.joining else { return };
        if self.phase != Phase::Joining || self.is_member() {
            return;
        }
        let contact = self.contact();
        if joining.welcomer().is_some_and(|welcomer| welcomer != contact)
            && self.order.is_heard_in(self.term())
        {
            self.join_failed(JoinFailure::TimedOut);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    /// The part of a member that entered an epoch that began with seqno 10.
    fn order() -> Order {
        let mut order = Order::default();
        order.begin(10);
        order
    }

    fn at(milliseconds: u64) -> Time {
        Time::ZERO + Duration::from_millis(milliseconds)
    }

    #[test]
    fn the_role_is_taken_once_for_each_event() {
        let mut order = order();
        assert!(order.may_take(10));
        order.begin_term(10, 10);
        order.stop();
        assert!(!order.may_take(10), "it does not act again after a promise");
        assert!(order.may_take(11));
    }

    #[test]
    fn a_successor_numbers_and_announces_from_the_end_of_its_log() {
        let mut order = order();
        order.begin_term(12, 14);
        assert!(order.may_assign() && order.is_heard_in(12));
        assert_eq!((order.announced, order.numbered), (14, 14));
        let numbered = order.numbered_by_us();
        assert_eq!((numbered.term, numbered.after, numbered.through), (12, 14, 14));
    }

    #[test]
    fn a_predecessor_numbers_nothing_after_the_event_and_remembers_its_term() {
        let mut order = order();
        order.begin_term(10, 10);
        order.heartbeat_at = Some(at(10));
        order.shut_since = Some((at(1), crate::identity::Uid(2)));
        order.end_term(15, false);
        assert!(!order.may_assign());
        assert_eq!((order.heartbeat_at, order.shut_since), (None, None));
        let numbered = order.numbered_by_us();
        assert_eq!((numbered.term, numbered.after, numbered.through), (10, 10, 15));
    }

    #[test]
    fn a_role_that_comes_back_begins_another_term() {
        let mut order = order();
        order.begin_term(10, 10);
        order.end_term(15, false);
        order.begin_term(20, 20);
        assert!(order.may_assign());
        assert_eq!(order.numbered_by_us().after, 20);
        assert_eq!(order.announced, 20);
    }

    #[test]
    fn a_sequencer_of_an_earlier_term_is_not_heard() {
        let mut order = order();
        assert_eq!(order.hear(12, false), Some(true));
        assert_eq!(order.hear(12, false), Some(false));
        assert_eq!(order.hear(12, true), Some(true));
        assert_eq!(order.hear(10, false), None);
        assert!(order.multicast_heard(), "what an earlier sequencer saw does not count");
        assert!(order.is_heard_in(12));
    }
}

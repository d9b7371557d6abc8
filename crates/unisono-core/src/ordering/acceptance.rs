//! Acceptance: which entries of the log are accepted, as a pure function of the log, of what its peers hold, and of the
//! group's rule.
//!
//! A message is accepted when as many members of the view below it hold it, and everything below it, as its quality
//! asks: at resilience r at least r + 1. A role event needs r + 1, and its successor must be one of the holders. A join
//! or leave is accepted when a quorum of the view before it and a quorum of the view after it hold it, and the joiner
//! too. Any member that can infer acceptance does so: a member that holds a message knows two holders, itself and the
//! sequencer, so at r ≤ 1 it waits for no other. At a higher r it learns the acceptance by a hint: the sequencer's
//! heartbeat, or the watermarks of any member. With the quorum *at least n* messages and changes need more
//! ([`Acceptance::through`] calls the rules).
//!
//! Two other places accept by the word of others, without counting: a leaver that is told farewell, and a reset's
//! decision.

use crate::config::Quorum;
use crate::identity::{Member, Seqno, Uid};
use crate::log::{Entry, Log, Members};
use crate::membership::is_quorum;
use crate::peers::Peers;
use crate::planted::Planted;
use crate::quality::Quality;
use crate::wire::Change;

/// The group's rule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule<'a> {
    /// Number of crashes that every message survives.
    pub(crate) resilience: u8,
    pub(crate) quorum: &'a Quorum,
    /// Rule that the simulator breaks on purpose.
    pub(crate) planted: Option<Planted>,
}

impl Rule<'_> {
    /// Returns the number of members of a view of `members` that must hold a message before it is accepted.
    fn holders_needed(&self, members: usize, quality: Quality) -> usize {
        let needed = quality.holders(self.resilience, members);
        match quality {
            _ if self.broken(Planted::AcceptWithOneAckLess) => needed.saturating_sub(1),
            _ if self.broken(Planted::AcceptedBySequencerAlone) && self.is_by_list() => 1,
            _ if self.broken(Planted::OneAcceptedByMajority) && self.resilience == u8::MAX => members / 2 + 1,
            Quality::MAJORITY if self.broken(Planted::MajorityIsHalf) => members.div_ceil(2),
            Quality::TOTAL if self.broken(Planted::TotalCountsMajority) => {
                Quality::MAJORITY.holders(self.resilience, members)
            }
            _ if self.broken(Planted::ResilientOffByOne) && quality.exceeds(self.resilience) => {
                if quality.is_by_quorum() { needed } else { needed.saturating_sub(1) }
            }
            _ => needed,
        }
    }

    /// True if more than half of a view need not meet each quorum: members that are not listed count in the view only.
    fn is_by_list(&self) -> bool {
        matches!(self.quorum, Quorum::MajorityOf(_) | Quorum::MajorityOfNamed(_))
    }

    /// Returns the number of members of a view of `members` that a message needs to show that they hold it: as many as it
    /// asks for, which may be more than there are.
    pub(super) fn holders_to_show(&self, quality: Quality, members: usize) -> usize {
        match quality {
            Quality::MAJORITY if self.is_by_list() => members.max(usize::from(self.resilience) + 1),
            _ => quality.asks_for(self.resilience, members),
        }
    }

    fn broken(&self, bug: Planted) -> bool {
        cfg!(feature = "planted") && self.planted == Some(bug)
    }
}

/// What acceptance follows from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acceptance<'a> {
    pub(crate) log: &'a Log,
    pub(crate) peers: &'a Peers,
    /// This member, which holds what its log holds.
    pub(crate) me: Uid,
    pub(crate) epoch_start: Seqno,
    pub(crate) rule: Rule<'a>,
}

impl Acceptance<'_> {
    /// Returns how far entries beyond `accepted` through `last` can be accepted, and whether one of them has to be
    /// announced to other members. All of them were numbered in one view; only `last` itself may change it. Everything
    /// through `hint` is accepted by the word of another member.
    #[inline]
    pub(crate) fn through(&self, accepted: Seqno, last: Seqno, hint: Seqno) -> (Seqno, bool) {
        let mine = self.log.received();
        let view = self.log.history().view_at(accepted);
        let mut cached: Option<(usize, Seqno)> = None;
        let (mut concerns_others, mut is_to_be_told) = (false, false);
        let mut accepted = accepted.max(hint.min(mine.min(last)));
        while accepted < mine.min(last) {
            let seqno = accepted + 1;
            let Some(entry) = self.log.history().get(seqno) else { break };
            let acceptable = match entry {
                Entry::Message(message) => {
                    let is_above = self.rule.broken(Planted::MajorityOfViewAbove)
                        && message.quality == Quality::MAJORITY;
                    let view = if is_above { self.log.history().view() } else { view };
                    let needed = self.rule.holders_needed(view.len(), message.quality);
                    let by_list = message.quality == Quality::MAJORITY && self.rule.is_by_list();
                    concerns_others |= needed > 2 || by_list;
                    let through = match cached {
                        Some((known, through)) if known == needed && !is_above => through,
                        _ => self.held_by(view, needed),
                    };
                    cached = Some((needed, through));
                    (through >= seqno
                        && (!by_list || self.quorum_holds(view, seqno))
                        && self.changes_are_held_below(seqno, message.quality))
                        || (self.rule.broken(Planted::SenderCountsAsHolder)
                            && self.holders(view, seqno, Some(message.sender)) >= needed)
                }
                Entry::Change(change) => {
                    concerns_others = true;
                    self.change_is_held(view, seqno, change)
                }
                Entry::Role(sequencer) => {
                    concerns_others = true;
                    self.role_event_is_held(view, seqno, *sequencer)
                }
                Entry::Reset(_) => true,
            };
            if !acceptable {
                break;
            }
            is_to_be_told |= concerns_others;
            accepted = seqno;
        }
        debug_assert!(accepted <= mine, "an entry is accepted that this member does not hold");
        (accepted, is_to_be_told)
    }

    /// True if `uid` is known to hold everything through `seqno`.
    pub(crate) fn holds(&self, uid: Uid, seqno: Seqno) -> bool {
        if uid == self.me {
            self.log.received() >= seqno
        } else {
            self.peers.get(uid).is_some_and(|peer| peer.received() >= seqno)
        }
    }

    /// Returns the seqno through which `holders` of `view` are known to hold everything.
    fn held_by(&self, view: &Members, holders: usize) -> Seqno {
        self.peers.held_by(view, holders, self.me, self.log.received())
    }

    fn holders(&self, view: &Members, seqno: Seqno, also: Option<Uid>) -> usize {
        view.iter().filter(|member| Some(member.uid) == also || self.holds(member.uid, seqno)).count()
    }

    /// True if a quorum of the view holds everything through `seqno`.
    #[cold]
    fn quorum_holds(&self, view: &Members, seqno: Seqno) -> bool {
        is_quorum(self.rule.quorum, view, |member| self.holds(member.uid, seqno))
    }

    /// True if the changes of the view below a message that asks for more than the group's resilience have as many
    /// holders as the message needs. With `AtLeast`, quorums need not intersect: a member that lacks a join counts the
    /// missing members by the view before it, and would not know the joiner as a holder of the message.
    fn changes_are_held_below(&self, seqno: Seqno, quality: Quality) -> bool {
        if !quality.exceeds(self.rule.resilience) || !matches!(self.rule.quorum, Quorum::AtLeast(_)) {
            return true;
        }
        self.log.history().view_changes(self.epoch_start, seqno).all(|(before, change)| {
            let needed = self.rule.holders_needed(before.len(), quality);
            self.held_by(before, needed) >= change
        })
    }

    /// True if enough members hold a role event and everything below it: the holders of a message, and the successor.
    fn role_event_is_held(&self, view: &Members, seqno: Seqno, sequencer: Uid) -> bool {
        let needed = self.rule.holders_needed(view.len(), Quality::ORDERED);
        self.holds(sequencer, seqno) && self.held_by(view, needed) >= seqno
    }

    /// True if enough members hold a join or leave and everything below it: a quorum of the view before it, one of the
    /// view after it, and the joiner. With `AtLeast`, quorums need not intersect, so a join or leave needs the holders
    /// of a message too: members that go on without others, fewer of them missing than the resilience covers, must know
    /// which ones are missing.
    #[cold]
    fn change_is_held(&self, before: &Members, seqno: Seqno, change: &Change) -> bool {
        if self.rule.broken(Planted::ChangeAcceptedAlone) {
            return true;
        }
        let held = |member: &Member| self.holds(member.uid, seqno);
        let after = self.log.history().view_at(seqno);
        let joiner_holds = match change {
            Change::Join { member, .. } => self.holds(member.uid, seqno),
            _ => true,
        };
        let needed = match self.rule.quorum {
            Quorum::AtLeast(_) => self.rule.holders_needed(before.len(), Quality::ORDERED),
            _ => 0,
        };
        joiner_holds
            && before.iter().filter(|member| held(member)).count() >= needed
            && is_quorum(self.rule.quorum, before, held)
            && (after.is_empty() || is_quorum(self.rule.quorum, after, held))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Name;
    use crate::log::{Message, Slice};
    use crate::peers::{Peer, Standing};
    use crate::time::Time;
    use crate::wire::LogBase;
    use alloc::vec::Vec;
    use bytes::Bytes;
    use core::net::{Ipv4Addr, SocketAddr};

    fn member(uid: u64) -> Member {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, uid as u16));
        Member { uid: Uid(uid), name: Name::default(), address, floor: Default::default(), hops: 1 }
    }

    /// A log after seqno 0 with a view of the members 0, 1, … (this one is 0).
    fn log(members: u64) -> Log {
        let members: Vec<Member> = (0..members).map(member).collect();
        Log::after(&LogBase {
            seqno: 0,
            members,
            term: (0, Uid(1)),
            order: (0, crate::config::Order::default()),
            last_numbers: Vec::new(),
        })
    }

    fn append_message(log: &mut Log, quality: Quality) {
        let message =
            Message { sender: Uid(1), number: log.received() + 1, quality, broadcast: false, data: None };
        log.append_message(message, Slice::alone(false, &Bytes::from_static(b"data")));
    }

    fn append_change(log: &mut Log, change: Change) {
        log.append(Entry::of_change(change));
    }

    fn join(uid: u64) -> Change {
        Change::Join { member: member(uid), hello: Bytes::new() }
    }

    /// Returns how far entries are accepted if the peers 1, 2, … hold through these marks.
    fn accepted(log: &Log, resilience: u8, quorum: &Quorum, marks: &[Seqno]) -> (Seqno, bool) {
        hinted(log, resilience, quorum, marks, 0)
    }

    fn hinted(log: &Log, resilience: u8, quorum: &Quorum, marks: &[Seqno], hint: Seqno) -> (Seqno, bool) {
        let mut peers = Peers::default();
        for (uid, &mark) in (1..).zip(marks) {
            peers.insert(Peer::new(Time::ZERO, member(uid), Standing::Member, mark));
        }
        let rule = Rule { resilience, quorum, planted: None };
        let acceptance = Acceptance { log, peers: &peers, me: Uid(0), epoch_start: 0, rule };
        let (mut through, mut told) = (0, false);
        loop {
            let last = log.history().next_change_after(through).unwrap_or(Seqno::MAX);
            let (further, is_to_be_told) = acceptance.through(through, last, hint);
            (through, told) = (further, told || is_to_be_told);
            if through < last {
                return (through, told);
            }
        }
    }

    const MAJORITY: Quorum = Quorum::MajorityOfView;

    #[test]
    fn a_message_needs_one_holder_more_than_its_resilience() {
        let mut log = log(4);
        (0..3).for_each(|_| append_message(&mut log, Quality::ORDERED));
        assert_eq!(accepted(&log, 0, &MAJORITY, &[0, 0, 0]), (3, false), "this member is the holder");
        assert_eq!(accepted(&log, 1, &MAJORITY, &[2, 0, 1]), (2, false));
        assert_eq!(accepted(&log, 2, &MAJORITY, &[2, 0, 1]), (1, true), "others cannot count three holders");
        assert_eq!(accepted(&log, 3, &MAJORITY, &[2, 0, 1]).0, 0);
        assert_eq!(accepted(&log, 9, &MAJORITY, &[3, 3, 3]).0, 3, "all of a smaller view");
    }

    #[test]
    fn a_message_that_asks_for_more_keeps_those_after_it_waiting() {
        let mut log = log(3);
        for quality in [Quality::ORDERED, Quality::resilient(2), Quality::ORDERED] {
            append_message(&mut log, quality);
        }
        assert_eq!(accepted(&log, 0, &MAJORITY, &[3, 1]).0, 1);
        assert_eq!(accepted(&log, 0, &MAJORITY, &[3, 2]).0, 3);
    }

    #[test]
    fn a_message_needs_the_holders_that_its_quality_asks_for() {
        let accepted_with = |quality, marks: &[Seqno]| {
            let mut log = log(4);
            append_message(&mut log, quality);
            accepted(&log, 0, &MAJORITY, marks).0 == 1
        };
        assert!(!accepted_with(Quality::MAJORITY, &[1, 0, 0]), "half of the view");
        assert!(accepted_with(Quality::MAJORITY, &[1, 0, 1]));
        assert!(!accepted_with(Quality::TOTAL, &[1, 0, 1]));
        assert!(accepted_with(Quality::TOTAL, &[1, 1, 1]));
    }

    #[test]
    fn only_members_of_the_view_count_as_holders() {
        let mut log = log(2);
        append_message(&mut log, Quality::ORDERED);
        assert_eq!(accepted(&log, 1, &MAJORITY, &[0, 1]).0, 0, "member 2 is a peer outside of the view");
        assert_eq!(accepted(&log, 1, &MAJORITY, &[1, 0]).0, 1);
    }

    #[test]
    fn a_role_event_needs_its_successor_among_the_holders() {
        let mut log = log(4);
        append_change(&mut log, Change::Role { sequencer: Uid(3) });
        assert_eq!(accepted(&log, 1, &MAJORITY, &[1, 1, 0]).0, 0);
        assert_eq!(accepted(&log, 1, &MAJORITY, &[0, 0, 1]), (1, true));
        assert_eq!(accepted(&log, 2, &MAJORITY, &[0, 0, 1]).0, 0, "and as many holders as a message");
    }

    #[test]
    fn a_join_needs_the_joiner_and_a_quorum_of_each_view() {
        let mut log = log(3);
        append_change(&mut log, join(3));
        append_message(&mut log, Quality::ORDERED);
        assert_eq!(accepted(&log, 0, &MAJORITY, &[1, 1, 0]).0, 0, "the joiner lacks it");
        assert_eq!(accepted(&log, 0, &MAJORITY, &[0, 0, 1]).0, 0, "one of three");
        assert_eq!(accepted(&log, 0, &MAJORITY, &[1, 0, 1]).0, 2);
    }

    #[test]
    fn a_leave_needs_a_quorum_of_those_who_stay() {
        let mut log = log(3);
        append_change(&mut log, Change::Leave { uid: Uid(1), sequencer: Uid(0), goodbye: Bytes::new() });
        assert_eq!(accepted(&log, 0, &Quorum::All, &[1, 0]).0, 0);
        assert_eq!(accepted(&log, 0, &Quorum::All, &[1, 1]).0, 1);
        // Quorums of one member need not intersect: as many hold the leave as hold a message.
        assert_eq!(accepted(&log, 1, &Quorum::AtLeast(1), &[0, 0]).0, 0);
        assert_eq!(accepted(&log, 1, &Quorum::AtLeast(1), &[1, 0]).0, 1);
    }

    #[test]
    fn with_quorums_that_need_not_intersect_a_message_waits_for_the_changes_below_it() {
        let mut log = log(3);
        append_change(&mut log, join(3));
        append_message(&mut log, Quality::resilient(2));
        // Three of the view after the join hold both; of the view before it only two hold the join.
        assert_eq!(accepted(&log, 0, &Quorum::AtLeast(1), &[2, 0, 2]).0, 1);
        assert_eq!(accepted(&log, 0, &MAJORITY, &[2, 0, 2]).0, 2);
        assert_eq!(accepted(&log, 0, &Quorum::AtLeast(1), &[2, 1, 2]).0, 2);
    }

    #[test]
    fn a_hint_is_followed_as_far_as_the_log_goes() {
        let mut log = log(4);
        (0..3).for_each(|_| append_message(&mut log, Quality::ORDERED));
        assert_eq!(hinted(&log, 3, &MAJORITY, &[0, 0, 0], 2), (2, false));
        assert_eq!(hinted(&log, 3, &MAJORITY, &[0, 0, 0], 9), (3, false));
    }
}

//! The token: in a ring the right to assign seqnos goes to the next member after almost every batch (WMK94 §4.1).
//!
//! A ring is the same engine as a sequencer whose role moves often. The member with the token numbers what it holds,
//! names the next member in rank order by a role event, the *pass*, and numbers no more. Passes are no events for
//! applications, and nothing follows from them but that the role moves. Only messages call for passes: the token goes on
//! if its holder numbered a message, and else only to show who holds what. Otherwise it *rests*. A token at rest is a
//! sequencer, and so is one while members come, go or are suspected.

use super::heartbeat::{HEARTBEAT_FIRST, HEARTBEAT_IDLE, NO_STAMP};
use crate::config::Order as Discipline;
use crate::group::Group;
use crate::identity::{Seqno, Uid};
use crate::log::Entry;
use crate::planted::Planted;
use crate::round_trip::RoundTrip;
use crate::time::Time;
use crate::wire::{Frame, Heartbeat};
use alloc::vec::Vec;
use core::time::Duration;

/// A member that was asked to admit a joiner keeps the token if it comes within this time.
const ASKED_LASTS: Duration = Duration::from_secs(1);
/// Time for which it does: the joiner, if it is still there, asks three times meanwhile. Late copies of its questions keep the
/// token for no longer either.
const TOKEN_KEPT_FOR: Duration = Duration::from_millis(150);

/// A member gives the token on when its application has taken nothing for this time, and messages wait for that.
const STUCK_AFTER: Duration = Duration::from_millis(10);

/// What a member of a ring knows of the token.
#[derive(Clone, Debug, Default)]
pub(super) struct Ring {
    /// The last message whose holders the log may not show yet, and how many members must hold it.
    unshown: Option<(Seqno, usize)>,
    /// When this member last took the token, and what its application had then.
    taken: (Time, Seqno),
    /// True if this member has numbered a message since it last took the token.
    has_numbered: bool,
    /// True if own messages wait since this member last took the token, because the path carries no more.
    path_is_full: bool,
    /// True if the token has rested since this member took it.
    has_rested: bool,
    /// True if the token rests and this member has asked the others what they hold.
    has_asked: bool,
    /// When a process last asked this member to be admitted, while another one had the token.
    asked_at: Option<Time>,
    /// How this member's last pass was said so far, and when it was given.
    said: Said,
    passed_at: Time,
    /// How long after a pass of this member another one is seen to have the token.
    takes: RoundTrip,
    /// The member to which this one has sent messages by name that have no seqno yet.
    submitted_to: Option<Uid>,
}

/// How a pass was said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Said {
    /// Another member has taken the token since.
    #[default]
    Nothing,
    /// To all members, once.
    ToAll,
    /// To all members, once more.
    Again,
    /// By name to the member that it names, too: perhaps no member hears this member's multicasts.
    ByName,
}

impl Ring {
    /// Notes that a message has this seqno and must be held by `needed` members.
    pub(super) fn note_message(&mut self, seqno: Seqno, needed: usize) {
        let known = self.unshown.map_or(0, |(_, needed)| needed);
        self.unshown = Some((seqno, needed.max(known)));
    }

    /// Forgets the last message if it is no later than this.
    fn forget_through(&mut self, seqno: Seqno) {
        self.unshown = self.unshown.filter(|(last, _)| *last > seqno);
    }

    /// Notes that this member numbered a message.
    pub(super) fn note_numbered(&mut self) {
        self.has_numbered = true;
    }

    /// True if this member has numbered a message since it last took the token.
    pub(super) fn has_numbered(&self) -> bool {
        self.has_numbered
    }

    /// Notes that own messages get no seqno here, because the path carries no more.
    pub(super) fn note_path_full(&mut self) {
        self.path_is_full = true;
    }

    /// Notes that the token rests. Returns true the first time since this member took it.
    fn rest(&mut self) -> bool {
        !core::mem::replace(&mut self.has_rested, true)
    }

    /// Notes that this member takes the token.
    pub(super) fn take(&mut self, now: Time, delivered: Seqno) {
        let Ring { unshown, asked_at, submitted_to, takes, .. } = *self;
        *self = Ring { unshown, asked_at, submitted_to, takes, taken: (now, delivered), ..Ring::default() };
    }

    /// Notes that this member has passed the token on. Returns the time after which it repeats the pass: on a slow path it
    /// may wait in a queue.
    pub(super) fn pass(&mut self, now: Time) -> Duration {
        (self.said, self.passed_at) = (Said::ToAll, now);
        self.takes.most().map_or(HEARTBEAT_FIRST, |most| most.clamp(HEARTBEAT_FIRST, HEARTBEAT_IDLE))
    }

    /// Notes that the last pass is said again. Returns true if it is to go by name: it was repeated to all in vain.
    fn repeat(&mut self) -> bool {
        self.said = if self.said == Said::ToAll { Said::Again } else { Said::ByName };
        self.said == Said::ByName
    }

    /// Notes that a later member acts, and returns how the pass was said until then.
    fn take_said(&mut self) -> Said {
        core::mem::take(&mut self.said)
    }

    /// Notes that the last pass was taken after no longer than the path needs.
    fn note_taken(&mut self, now: Time) {
        self.takes.note(now.since(self.passed_at));
    }

    /// Notes that this member asks the others what they hold, since the token may not go on.
    pub(super) fn note_question(&mut self) {
        self.has_asked = true;
    }

    /// True if it has asked since it took the token.
    pub(super) fn has_asked(&self) -> bool {
        self.has_asked
    }

    /// Notes that a process asks to be admitted.
    pub(super) fn note_asked(&mut self, now: Time) {
        self.asked_at = Some(now);
    }

    fn is_asked(&self, now: Time) -> bool {
        let lasts =
            |at: Time| now.since(at) < ASKED_LASTS && now.since(at.max(self.taken.0)) < TOKEN_KEPT_FOR;
        self.asked_at.is_some_and(lasts)
    }
}

impl Group {
    /// True if the token goes round in this group.
    pub(crate) fn is_ring(&self) -> bool {
        self.log.history().order() == Discipline::Token
    }

    /// True if the token goes round after the entry at `seqno`.
    pub(super) fn is_ring_at(&self, seqno: Seqno) -> bool {
        let history = self.log.history();
        let order = if self.broken(Planted::SwitchByEnd) { history.order() } else { history.order_at(seqno) };
        order == Discipline::Token
    }

    /// True if the entry at `seqno` is a pass.
    pub(crate) fn is_pass(&self, seqno: Seqno) -> bool {
        self.is_ring_at(seqno) && matches!(self.log.history().get(seqno), Some(Entry::Role(_)))
    }

    /// Notes that a process asks to be admitted while this member has no token: it keeps it when it comes.
    pub(crate) fn keep_the_token_for_a_joiner(&mut self, now: Time) {
        if self.is_ring() && !self.broken(Planted::JoinerForgottenAtPass) {
            self.order.ring.note_asked(now);
        }
    }

    /// Returns the member to which the token goes now; `None` if it rests. The caller has seen that the last join or
    /// leave is accepted.
    pub(super) fn next_site(&mut self, now: Time) -> Option<Uid> {
        if !self.is_ring() {
            return None;
        }
        let ring = self.ring_from_here();
        let next = *ring.first()?;
        let to = self.site_called_for(now, &ring, next);
        if to.is_none() && self.order.ring.rest() {
            self.counters.rests += 1;
        }
        to
    }

    /// Returns the member to which the token must go: one that must show what it holds, or `next`.
    fn site_called_for(&mut self, now: Time, ring: &[Uid], next: Uid) -> Option<Uid> {
        let is_full = self.order.shut_since.is_some();
        if !self.ring_is_settled(now) || (is_full && self.broken(Planted::RestsOnFullWindow)) {
            return None;
        }
        if let Some(to) = self.site_to_show(ring, next) {
            return Some(to);
        }
        let calls = self.order.ring.has_numbered
            || self.order.ring.path_is_full
            || self.application_is_stuck(now)
            || self.broken(Planted::NullPassCalls);
        let next = if self.broken(Planted::PassSkipsNext) { *ring.get(1)? } else { next };
        let next = if self.broken(Planted::PassGoesBack) { *ring.last()? } else { next };
        calls.then_some(next)
    }

    /// True if messages wait because this member's own application has taken nothing since the token came, for a while.
    fn application_is_stuck(&self, now: Time) -> bool {
        let (taken_at, delivered) = self.order.ring.taken;
        !self.broken(Planted::StuckSiteKeepsToken)
            && self.shuts_the_window()
            // Where all are as far, a pass would only take the last room.
            && self.peers.iter().any(|peer| peer.is_member() && peer.delivered() > self.log.delivered())
            && delivered == self.log.delivered()
            && now.since(taken_at) >= STUCK_AFTER
    }

    /// Notes a message of the log of a ring: how many members must show that they hold it, and its bytes under way.
    #[inline(never)]
    pub(super) fn note_message_in_ring(
        &mut self,
        now: Time,
        seqno: Seqno,
        (needed, bytes): (usize, usize),
        room: u64,
    ) {
        self.forget_shown(needed);
        self.order.note_in_ring(now, seqno, (needed, bytes), room);
    }

    /// Forgets what an earlier message needed, if that is more than `needed` and the log shows it by now: each pass behind
    /// the next message would show it again.
    pub(super) fn forget_shown(&mut self, needed: usize) {
        let Some((earlier, more)) = self.order.ring.unshown.filter(|(_, more)| *more > needed) else {
            return;
        };
        let (members, is_freed) = (self.log.history().view().len(), earlier <= self.log.base());
        if is_freed || self.log.history().numberers_from(earlier).len() >= more.min(members) {
            self.order.ring.unshown = None;
        }
    }

    /// Returns the member that has to show that it holds the last message, if one has to: `next`, if only this member
    /// has not shown it. Where messages wait for room all have to.
    fn site_to_show(&mut self, ring: &[Uid], next: Uid) -> Option<Uid> {
        // What is freed is held by all. What was ordered before a switch is accepted by reports, as with a sequencer.
        self.order.ring.forget_through(self.log.base().max(self.log.history().order_since()));
        let (seqno, needed) = self.order.ring.unshown?;
        let members = ring.len() + 1;
        let needed = if self.order.shut_since.is_some() { members } else { needed.min(members) };
        let shown = self.log.history().numberers_from(seqno);
        let counts = |uid: &Uid| shown.contains(uid);
        let me_shown = counts(&self.me.uid) || self.broken(Planted::OwnHoldingCounted);
        if ring.iter().filter(|uid| counts(uid)).count() + usize::from(me_shown) >= needed {
            if self.order.shut_since.is_none() {
                self.order.ring.unshown = None;
            }
            return None;
        }
        ring.iter().find(|uid| !counts(uid)).copied().or((!me_shown).then_some(next))
    }

    /// Repeats the pass of this member, whose successor is not heard: first to all, then to the member that it names. A
    /// member hears the group's multicasts, yet no other may hear its own (docs/protocol/deviations.md, H97).
    pub(super) fn repeat_pass(&mut self, now: Time, to: Uid) {
        if self.order.ring.repeat() {
            let heartbeat = Heartbeat { stamp: NO_STAMP, ..self.say_heartbeat(now) };
            self.post(to, Frame::Heartbeat(heartbeat));
        } else {
            self.order.beat_now(true);
        }
    }

    /// Notes that own messages went to this member by name.
    pub(crate) fn note_submitted(&mut self, to: Uid) {
        self.order.ring.submitted_to = Some(to);
    }

    /// Notes that the token of the term that began at `term` rests at another member. What this member has sent by name
    /// to one that had the token before lies there until the token comes round, which only a message calls for. So the
    /// oldest goes to the member at which the token rests, too: once it has a seqno, the token goes on to the others.
    pub(super) fn note_rest_elsewhere(&mut self, now: Time, term: Seqno) {
        let site = self.named();
        if term == self.term() && self.order.ring.submitted_to.is_some_and(|to| to != site) {
            self.order.ring.submitted_to = None;
            self.outbox.repeat_oldest(now);
        }
    }

    /// Notes that the member to which this one has passed the token acts, or one after it.
    pub(super) fn note_pass_taken(&mut self, now: Time) {
        let said = self.order.ring.take_said();
        // A multicast that no member hears says nothing about the path.
        if said != Said::Nothing && (said != Said::ByName || !self.audience().multicast) {
            self.order.ring.note_taken(now);
        }
        let changed = match said {
            Said::Nothing => false,
            Said::ToAll | Said::Again => self.outbox.note_pass_heard(now),
            Said::ByName => self.outbox.note_pass_unheard(now),
        };
        if changed {
            self.order.note_role_change();
        }
    }

    /// Returns the other members of the view in the order in which the token comes to them.
    fn ring_from_here(&self) -> Vec<Uid> {
        let view = self.log.history().view();
        let here = view.iter().position(|member| member.uid == self.me.uid).map_or(0, |place| place + 1);
        let others = view.iter().cycle().skip(here).take(view.len()).map(|member| member.uid);
        others.filter(|uid| *uid != self.me.uid).collect()
    }

    /// Returns since when the token rests here, and the members that keep it: they join, leave, listen or are suspected.
    pub(crate) fn rests_for(&self) -> Option<(Time, Vec<Uid>)> {
        let rests = self.is_ring() && self.may_assign() && self.peers.iter().next().is_some();
        let keeps =
            self.peers.iter().filter(|peer| !peer.is_member() || peer.is_suspected()).map(|peer| peer.uid());
        rests.then(|| {
            (self.order.ring.taken.0, keeps.chain(self.leaving.is_some().then_some(self.me.uid)).collect())
        })
    }

    /// True if no member joins, leaves, listens or is suspected: otherwise the token rests.
    fn ring_is_settled(&self, now: Time) -> bool {
        if self.broken(Planted::PassedWhileUnsettled) {
            return true;
        }
        self.leaving.is_none()
            && !self.has_leave_requests()
            && !self.order.ring.is_asked(now)
            && !self.order.switch.is_wanted(now)
            && self.peers.iter().all(|peer| peer.is_member() && !peer.is_suspected())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::{Member, Name};
    use crate::log::{Log, Manner, Slice};
    use crate::ordering::Order;
    use crate::quality::Quality;
    use crate::wire::{Change, LogBase};
    use bytes::Bytes;
    use core::net::{Ipv4Addr, SocketAddr};

    const A: Uid = Uid(1);
    const B: Uid = Uid(2);
    const C: Uid = Uid(3);

    fn at(milliseconds: u64) -> Time {
        Time::ZERO + Duration::from_millis(milliseconds)
    }

    /// The log of a ring of A, B and C that begins with A's term. Each letter is a message, or a pass to this member.
    fn log(entries: &[Option<Uid>]) -> Log {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        let members = [A, B, C]
            .map(|uid| Member { uid, name: Name::default(), address, floor: Default::default(), hops: 1 })
            .to_vec();
        let mut log = Log::after(&LogBase {
            seqno: 0,
            members,
            term: (0, A),
            order: (0, Discipline::Token),
            last_numbers: Vec::new(),
        });
        for (number, entry) in (1..).zip(entries) {
            let manner = Manner { quality: Quality::ORDERED, broadcast: true, patient: false };
            match entry {
                Some(uid) => log.append(Entry::Role(*uid)),
                None => log.append_message(manner.numbered(C, number), Slice::alone(false, &Bytes::new())),
            };
        }
        log
    }

    const MESSAGE: Option<Uid> = None;

    #[test]
    fn a_member_has_shown_a_message_if_it_numbered_anything_there_or_above() {
        let shown = |entries: &[Option<Uid>], seqno| log(entries).history().numberers_from(seqno);
        assert_eq!(shown(&[MESSAGE], 1), [A]);
        // The pass at 2 is A's, and B has numbered nothing in its term.
        assert_eq!(shown(&[MESSAGE, Some(B)], 1), [A]);
        assert_eq!(shown(&[MESSAGE, Some(B), Some(C)], 1), [B, A]);
        assert_eq!(shown(&[MESSAGE, Some(B), Some(C)], 2), [B, A], "the pass itself shows its giver");
        assert_eq!(shown(&[MESSAGE, Some(B), Some(C)], 3), [B]);
        assert_eq!(shown(&[MESSAGE, Some(B), Some(C), MESSAGE], 4), [C]);
        assert_eq!(shown(&[MESSAGE, Some(B), Some(C), MESSAGE], 5), []);
    }

    #[test]
    fn a_member_that_numbered_in_several_terms_counts_once() {
        let round = [MESSAGE, Some(B), Some(C), Some(A), Some(B), MESSAGE];
        assert_eq!(log(&round).history().numberers_from(1), [B, A, C]);
        assert_eq!(log(&round).history().numberers_from(4), [B, A, C]);
        assert_eq!(log(&round).history().numberers_from(5), [B, A]);
    }

    #[test]
    fn a_switch_that_is_cut_off_was_never_in_force() {
        let mut log = log(&[MESSAGE, MESSAGE]);
        let order = Discipline::Sequencer(crate::config::Migration::Never);
        let switch = Change::Order { order, sequencer: A };
        assert_eq!(log.append(Entry::Change(switch.into())), 3);
        assert_eq!((log.history().order(), log.history().order_since()), (order, 3));
        log.cut(2);
        assert_eq!((log.history().order(), log.history().order_since()), (Discipline::Token, 0));
    }

    #[test]
    fn the_last_message_is_to_be_shown_to_as_many_as_any_before_it_needs() {
        let mut ring = Ring::default();
        for (seqno, needed) in [(1, 2), (2, 4), (3, 1)] {
            ring.note_message(seqno, needed);
        }
        assert_eq!(ring.unshown, Some((3, 4)));
        ring.forget_through(2);
        assert_eq!(ring.unshown, Some((3, 4)));
        ring.forget_through(3);
        assert_eq!(ring.unshown, None);
    }

    #[test]
    fn a_term_begins_without_numbers_and_questions() {
        let mut ring = Ring::default();
        ring.note_message(1, 2);
        ring.note_numbered();
        ring.note_question();
        assert!(ring.has_numbered && ring.has_asked());
        ring.take(Time::ZERO, 0);
        assert!(!ring.has_numbered && !ring.has_asked());
        assert_eq!(ring.unshown, Some((1, 2)), "what others numbered is still to be shown");
    }

    #[test]
    fn a_pass_is_repeated_to_all_once_and_then_by_name() {
        let mut ring = Ring::default();
        ring.pass(at(0));
        assert_eq!([ring.repeat(), ring.repeat(), ring.repeat()], [false, true, true]);
        assert_eq!((ring.take_said(), ring.take_said()), (Said::ByName, Said::Nothing));
        ring.pass(at(1));
        assert_eq!(
            (ring.repeat(), ring.take_said()),
            (false, Said::Again),
            "the next pass goes to all again"
        );
    }

    #[test]
    fn a_joiner_keeps_a_token_that_comes_within_a_second_for_a_moment() {
        let mut ring = Ring::default();
        assert!(!ring.is_asked(at(0)));
        ring.note_asked(at(500));
        assert!(ring.is_asked(at(500)) && ring.is_asked(at(649)) && !ring.is_asked(at(650)));
        ring.take(at(1_400), 0);
        assert!(ring.is_asked(at(1_499)), "the token came after the question");
        assert!(!ring.is_asked(at(1_500)));
        ring.note_asked(at(2_000));
        ring.take(at(2_500), 0);
        assert!(ring.is_asked(at(2_649)) && !ring.is_asked(at(2_650)));
    }

    // The bytes that any member numbers go through the same sockets (hazard H95).
    #[test]
    fn the_bytes_that_others_numbered_take_room_and_the_own_ones_once() {
        let mut order = Order { numbered: 10, ..Order::default() };
        order.note_in_ring(at(0), 11, (2, 1000), 16_000);
        assert_eq!(order.under_way.bytes(), 1000);
        order.numbered = 12;
        order.note_in_ring(at(0), 12, (2, 1000), 16_000);
        assert_eq!(order.under_way.bytes(), 1000, "an own message was counted when it was numbered");
        assert_eq!(order.ring.unshown, Some((12, 2)), "it is to be shown all the same");
    }
}

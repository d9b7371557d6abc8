//! Confirming: a member learns that no other members went on without it, and how far its log must go.
//!
//! A member that was cut off does not know that the others have excluded it. Before it answers a question about its
//! state, it asks the members of its view (`Confirm`); each answers (`Confirmed`) if it takes part in this epoch and has
//! promised no reset, and names the end of its log. The result is the largest of these ends and of the asker's own. It
//! counts once the asker holds everything through it, and those that answered, with the asker, are a quorum of the view
//! there, and also of the view before that view's last change if the asker does not know the change accepted.
//!
//! This suffices: a reset is decided by quorums of the same views, whose members have promised it, and each further
//! change of the view is held by a quorum of the view before it. So a reset or change that was decided before the
//! question would have a member among those that answered, and that member would have been silent or have named a later
//! end. As many members as the group needs to order anything must answer (`members_min`): a lone survivor may be the first of
//! its view, and so a quorum of it, while the others restarted and formed another group. With *at least n*, quorums need not intersect, and another half may have gone on.
//!
//! One round answers all calls that came before it began; calls during a round share the next one. A round takes no
//! seqno and waits for no member that a quorum does not need. After a reset it begins anew in the next epoch.

use crate::error::ConfirmError;
use crate::group::{Group, Phase};
use crate::identity::{ConfirmNumber, EpochTag, Member, Seqno, Uid};
use crate::log::Members;
use crate::planted::{Planted, Probe};
use crate::time::Time;
use crate::wire::Frame;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

/// Members that have not answered are asked again after 5 ms, about twice the round trip of a busy LAN. The interval
/// doubles up to `CONFIRM_AGAIN_MAX`.
const CONFIRM_AGAIN_FIRST: Duration = Duration::from_millis(5);
const CONFIRM_AGAIN_MAX: Duration = Duration::from_millis(40);

/// The confirmations of this member that are under way.
#[derive(Clone, Debug)]
pub(crate) struct Confirming {
    round: Option<Box<Round>>,
    /// True if calls wait for the round after the present one.
    next_is_asked: bool,
    /// Number of the last round that began.
    begun: ConfirmNumber,
    /// Nonce of the last question. It counts from this member's uid: a recorded answer to another member's question
    /// is none to one of this member.
    nonce: u64,
    /// Seqno of the last entry that was delivered as an event: no pass, and nothing that was delivered early.
    event: Seqno,
    /// True once the application got no event for a message, which it had received early.
    skipped: bool,
    /// Results that the application has not taken yet.
    done: VecDeque<(ConfirmNumber, Seqno)>,
}

/// The round under way.
#[derive(Clone, Debug)]
struct Round {
    number: ConfirmNumber,
    epoch: EpochTag,
    nonce: u64,
    /// The largest end of a log that is known so far.
    end: Seqno,
    answered: Vec<Uid>,
    ask_at: Time,
    ask_again: Duration,
}

impl Confirming {
    pub(crate) fn new(me: Uid) -> Confirming {
        Confirming {
            round: None,
            next_is_asked: false,
            begun: 0,
            nonce: me.0,
            event: 0,
            skipped: false,
            done: VecDeque::new(),
        }
    }

    /// True if a call waits for its result.
    #[inline]
    pub(crate) fn is_asked(&self) -> bool {
        self.round.is_some() || self.next_is_asked
    }

    /// Notes a call, and returns the number of the round that will answer it.
    fn ask(&mut self) -> ConfirmNumber {
        self.next_is_asked = true;
        self.begun + 1
    }

    /// Notes that an entry was delivered that is no pass.
    #[inline]
    pub(crate) fn note_event(&mut self, seqno: Seqno) {
        self.event = seqno;
    }

    /// Notes that the seqno of a message has passed that was delivered early.
    pub(crate) fn note_skipped(&mut self) {
        self.skipped = true;
    }

    /// Ends all calls without a result.
    pub(crate) fn give_up(&mut self) {
        (self.round, self.next_is_asked) = (None, false);
    }

    /// Begins the round that calls wait for, or begins the present one anew in another epoch. Returns true if the
    /// latter.
    fn begin(&mut self, now: Time, epoch: EpochTag, end: Seqno) -> bool {
        let again = self.round.as_ref().filter(|round| round.epoch != epoch).map(|round| round.number);
        let number = match again {
            Some(number) => number,
            None if self.round.is_none() && self.next_is_asked => {
                (self.begun, self.next_is_asked) = (self.begun + 1, false);
                self.begun
            }
            None => return false,
        };
        self.nonce = self.nonce.wrapping_add(1);
        self.round = Some(Box::new(Round {
            number,
            epoch,
            nonce: self.nonce,
            end,
            answered: Vec::new(),
            ask_at: now,
            ask_again: CONFIRM_AGAIN_FIRST,
        }));
        again.is_some()
    }

    fn has_answer_of(&self, uid: Uid) -> bool {
        self.round.as_ref().is_some_and(|round| round.answered.contains(&uid))
    }
}

impl Group {
    /// Asks a quorum of the members whether the group went on without this member. Returns the number under which
    /// [`Group::poll_confirmed`] reports the result; calls that share a round have the same number.
    ///
    /// The result is a seqno. A member that has applied everything through it has seen all that had been accepted
    /// anywhere when this call was made, provided that any quorum of the view has a member in common with the
    /// *resilience* + 1 holders of each message: with the quorum *majority of the view*, if the resilience is at least
    /// half of the number of members, rounded down. With a lower resilience it covers what the members of the quorum
    /// held; with the quorum *at least n* another half of the group may have gone on. It does not cover messages that may be
    /// delivered early ([`Quality::UNORDERED`](crate::Quality::UNORDERED), [`Quality::SOURCE_ORDERED`](crate::Quality::SOURCE_ORDERED)).
    ///
    /// The call takes no seqno. During a reset it waits, and goes on in the next epoch. It also waits while fewer members
    /// answer than the group needs to order anything (`members_min`). It ends without a result only when this member leaves, ends or is excluded.
    ///
    /// # Errors
    /// See [`ConfirmError`]: nothing was done.
    pub fn confirm(&mut self, now: Time) -> Result<ConfirmNumber, ConfirmError> {
        match self.phase {
            Phase::Locating | Phase::Joining => return Err(ConfirmError::NotMember),
            Phase::Leaving | Phase::Excluded | Phase::Gone => return Err(ConfirmError::Left),
            Phase::Member | Phase::Resetting if self.leaving.is_some() => return Err(ConfirmError::Left),
            Phase::Member | Phase::Resetting => {}
        }
        let number = self.confirming.ask();
        self.settle(now);
        Ok(number)
    }

    /// Returns the next result of [`Group::confirm`]: its number, and the seqno through which the caller has to apply
    /// events before it reads. Results come in the order of their numbers.
    #[inline]
    pub fn poll_confirmed(&mut self) -> Option<(ConfirmNumber, Seqno)> {
        self.confirming.done.pop_front()
    }

    /// Returns when members are asked again; never during a reset, after which the round begins anew.
    pub(crate) fn confirm_at(&self) -> Option<Time> {
        let round = self.confirming.round.as_ref()?;
        (!self.recovery.has_promised()).then_some(round.ask_at)
    }

    /// Does what is due for the calls that wait.
    #[inline(never)]
    pub(crate) fn go_on_confirming(&mut self, now: Time) {
        if !matches!(self.phase, Phase::Member | Phase::Resetting) {
            self.confirming.give_up();
            return;
        }
        if self.recovery.has_promised() {
            return;
        }
        loop {
            if self.confirming.begin(now, self.epoch_tag, self.log.received()) {
                self.probe(Probe::ConfirmMetReset);
            }
            let Some((number, through)) = self.confirmed() else { break };
            let result = (number, self.last_event_through(through));
            self.confirming.done.push_back(result);
            self.confirming.round = None;
        }
        self.ask_to_confirm(now);
    }

    /// Returns the result of the present round, if a quorum has answered.
    fn confirmed(&mut self) -> Option<(ConfirmNumber, Seqno)> {
        let round = self.confirming.round.as_ref()?;
        // The view is known from the history's base on. A quorum of a later view names only what it holds there, so the
        // result must not lie before that view.
        let (number, through) = (round.number, round.end.max(self.log.base()));
        if self.log.received() < through {
            self.probe(Probe::ConfirmWaitedForEntries);
            return None;
        }
        let (before, after) = self.sides_at(through);
        let answers =
            |member: &Member| member.uid == self.me.uid || self.confirming.has_answer_of(member.uid);
        let missing = after.iter().find(|member| !answers(member)).map(|member| member.uid);
        let spared = missing.filter(|_| self.broken(Planted::ConfirmedEarly));
        let counts = |member: &Member| answers(member) || Some(member.uid) == spared;
        // Below the group's minimum the others may have formed another group, of which no member of this one knows.
        let is_enough = after.iter().filter(|member| counts(member) && self.counts(member)).count()
            >= usize::from(self.config.members_min);
        (is_enough && self.is_quorum(&before, counts) && self.is_quorum(&after, counts))
            .then_some((number, through))
    }

    /// Returns the last seqno through this one that is an event, or will be one. Passes of a token are none, nor are messages
    /// that were delivered early, and a caller that counts events would wait for them (docs/protocol/deviations.md, H92).
    fn last_event_through(&self, through: Seqno) -> Seqno {
        if self.broken(Planted::ConfirmNamesPass) {
            return through;
        }
        let mut last = through;
        while last > self.log.delivered() && (self.is_pass(last) || self.is_early_at(last)) {
            last -= 1;
        }
        let has_gaps = self.is_ring() || self.confirming.skipped;
        if has_gaps && last <= self.log.delivered() { last.min(self.confirming.event) } else { last }
    }

    /// Returns the view at `seqno`, and the view before its last change if that change is not known to be accepted;
    /// otherwise the same view twice.
    fn sides_at(&self, seqno: Seqno) -> (Members, Members) {
        let after = self.log.history().view_at(seqno).clone();
        match self.log.history().last_change_within(self.log.accepted(), seqno) {
            Some(change) => (self.log.history().view_at(change - 1).clone(), after),
            None => (after.clone(), after),
        }
    }

    /// Asks the members that have not answered, if it is time.
    fn ask_to_confirm(&mut self, now: Time) {
        let (before, after) = self.sides_at(self.log.received());
        let Some(round) = self.confirming.round.as_mut().filter(|round| round.ask_at <= now) else { return };
        let (nonce, repeats) = (round.nonce, round.ask_again > CONFIRM_AGAIN_FIRST);
        round.ask_at = now + round.ask_again;
        round.ask_again = (round.ask_again * 2).min(CONFIRM_AGAIN_MAX);
        let uids = |view: &Members| view.iter().map(|member| member.uid).collect::<Vec<Uid>>();
        let mut others = self.others_of(&uids(&before), &uids(&after));
        others.retain(|&uid| !self.confirming.has_answer_of(uid));
        if repeats {
            self.probe(Probe::ConfirmRepeated);
        }
        for uid in others {
            self.post(uid, Frame::Confirm { nonce });
        }
    }

    /// Answers a member that confirms. A member that has promised a reset may have decided it, and a leaver may be
    /// without part in a later view: they are silent.
    pub(crate) fn handle_confirm(&mut self, from: Uid, nonce: u64) {
        let takes_part =
            matches!(self.phase, Phase::Member | Phase::Leaving) && !self.recovery.has_promised();
        let is_careless = self.phase == Phase::Resetting && self.broken(Planted::ConfirmedByPromised);
        if self.is_member() && (takes_part || is_careless) {
            self.post(from, Frame::Confirmed { nonce, end: self.log.received() });
            // What the asker is to wait for may depend on it.
            self.tell_waiting_note(from);
        }
    }

    pub(crate) fn handle_confirmed(&mut self, from: Uid, nonce: u64, end: Seqno) {
        let end = if self.broken(Planted::ConfirmIgnoresEnds) { 0 } else { end };
        let Some(round) = self.confirming.round.as_mut().filter(|round| round.nonce == nonce) else { return };
        if round.answered.contains(&from) {
            return;
        }
        round.answered.push(from);
        round.end = round.end.max(end);
        if !self.recovery.has_promised() {
            self.repair.note_end(end, from);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EPOCH: EpochTag = EpochTag(1);

    #[test]
    fn calls_during_a_round_share_the_next_one_and_each_round_has_its_own_nonce() {
        let mut confirming = Confirming::new(Uid(100));
        assert!(!confirming.begin(Time::ZERO, EPOCH, 5) && confirming.round.is_none(), "no call waits");
        assert_eq!((confirming.ask(), confirming.ask()), (1, 1));
        confirming.begin(Time::ZERO, EPOCH, 5);
        assert_eq!(confirming.ask(), 2);
        confirming.begin(Time::ZERO, EPOCH, 9);
        let round = confirming.round.take().unwrap();
        assert_eq!((round.number, round.nonce, round.end), (1, 101, 5), "the round goes on");
        confirming.begin(Time::ZERO, EPOCH, 9);
        let round = confirming.round.as_ref().unwrap();
        assert_eq!((round.number, round.nonce, round.end), (2, 102, 9));
    }

    #[test]
    fn a_round_begins_anew_in_another_epoch() {
        let mut confirming = Confirming::new(Uid(100));
        confirming.ask();
        confirming.begin(Time::ZERO, EPOCH, 5);
        confirming.round.as_mut().unwrap().answered.push(Uid(2));
        assert!(confirming.has_answer_of(Uid(2)));
        assert!(confirming.begin(Time::ZERO, EpochTag(2), 7));
        let round = confirming.round.as_ref().unwrap();
        assert_eq!((round.number, round.nonce, round.end), (1, 102, 7));
        assert!(!confirming.has_answer_of(Uid(2)), "its answer was about the epoch before");
    }
}

//! Reports that the group stands still because the reset under way finds no quorum, or fewer members than one of them asks
//! for, and that it goes on.
//!
//! Only a member that has promised a ballot is halted: it numbers, stores and acknowledges nothing. A coordinator
//! counts the votes at the end of its ballot. A voter, which hears the coordinator alone, counts the members that it
//! heard lately, with each promise and before it takes over: if its patience has grown, the others always outbid it
//! before a ballot of its own has ended. The coordinator may know more than the voter: a longer log with more members, or
//! that no voter has the state. So after 3 s the voter is halted in any case. The application gets [`Event::Halted`] and [`Event::Resumed`] by turns; an episode that begins and
//! ends while the application takes no events is not reported.

use crate::config::Quorum;
use crate::error::ResetError;
use crate::event::Event;
use crate::group::{Group, Phase, Standing};
use crate::identity::Member;
use crate::log::Members;
use crate::planted::{Planted, Probe};
use crate::time::Time;
use alloc::vec::Vec;
use core::time::Duration;

/// A voter counts the members that it heard within 1 s: members of a halted group hear each other more often.
pub(super) const HEARD_WITHIN: Duration = Duration::from_millis(1000);

/// A voter that hears enough members waits 3 s for the end of the reset, three times `HEARD_WITHIN`.
const RESET_OVERDUE: Duration = Duration::from_secs(3);

/// Whether the group stands still, and what the application knows of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Halt {
    /// Members that a quorum lacks; `None` while the group is not halted.
    missing: Option<Vec<Member>>,
    /// The members that answer are a quorum as far as this member knows, and wait for another one all the same: for one
    /// that has the state, or that only the coordinator knows.
    awaits_another: bool,
    /// The application's last event of the two was [`Event::Halted`].
    is_told: bool,
}

impl Halt {
    pub(crate) fn is_halted(&self) -> bool {
        self.missing.is_some()
    }

    /// True if the application has to learn that the group halted or goes on.
    #[inline]
    pub(crate) fn has_event(&self) -> bool {
        self.missing.is_some() != self.is_told
    }

    /// The group goes on, with the next epoch.
    pub(super) fn end(&mut self) {
        (self.missing, self.awaits_another) = (None, false);
    }
}

impl Group {
    /// Returns this member's part in the group, as of its last input.
    pub fn standing(&self) -> Standing {
        let is_suspicious = || self.peers.iter().any(|peer| peer.is_suspected());
        match self.phase {
            Phase::Locating | Phase::Joining | Phase::Excluded | Phase::Gone => Standing::Out,
            _ if self.halt.is_halted() => Standing::Halted,
            _ if self.recovery.has_promised() || is_suspicious() => Standing::Resetting,
            _ if self.is_below_minimum() => Standing::Halted,
            _ => Standing::Primary,
        }
    }

    /// Returns the members that a quorum lacks while the group is halted, and otherwise none.
    pub fn missing(&self) -> &[Member] {
        self.halt.missing.as_deref().unwrap_or_default()
    }

    /// Returns the next of the two events, if one is due. `Halted` follows the event with which the member entered, and
    /// `Resumed` that of the reset.
    #[cold]
    pub(crate) fn halt_event(&mut self) -> Option<Event> {
        match &self.halt.missing {
            Some(missing) if !self.halt.is_told && self.log.delivered() >= self.entered_at => {
                self.halt.is_told = true;
                Some(Event::Halted { missing: missing.clone() })
            }
            None if self.halt.is_told && self.log.delivered() >= self.epoch_start => {
                self.halt.is_told = false;
                Some(Event::Resumed)
            }
            _ => None,
        }
    }

    /// Refuses a reset to at least `min` members that cannot end at present: without the suspected and the missing
    /// members there is no quorum, or fewer than `min`.
    pub(super) fn check_quorum_for(&self, min: usize) -> Result<(), ResetError> {
        let (before, after) = self.sides(self.log.accepted());
        let is_suspected = |uid| self.peers.get(uid).is_some_and(|peer| peer.is_suspected());
        let is_missing = |uid| self.missing().iter().any(|member| member.uid == uid);
        let is_present = |member: &Member| !is_suspected(member.uid) && !is_missing(member.uid);
        if !self.halt.awaits_another && self.is_enough(&before, &after, min, is_present) {
            return Ok(());
        }
        let missing = after.iter().filter(|member| !is_present(member)).count();
        Err(ResetError::Halted { missing })
    }

    /// Counts the answers in this member's ballot, which is over.
    pub(super) fn halt_without_answers(&mut self, now: Time) {
        let Some((before, after)) = self.sides_of_ballot() else { return };
        let has_answer = |group: &Group, member: &Member| {
            let own = group.recovery.coordination.as_ref();
            own.is_some_and(|own| own.has_answer_of(member.uid))
        };
        // A proposal that was not decided lacks members, whatever the votes were.
        let has_proposed = self.recovery.coordination.as_ref().is_some_and(|own| own.has_proposed());
        let floor = self.recovery.floor().max(1);
        let is_enough =
            !has_proposed && self.is_enough(&before, &after, floor, |member| has_answer(self, member));
        self.halt.awaits_another = is_enough && self.ballot_lacks_state(&after);
        if !is_enough || self.halt.awaits_another {
            self.halt_without(now, &before, &after, has_answer);
        }
    }

    /// Counts the members that this voter heard lately.
    pub(super) fn halt_without_contact(&mut self, now: Time) {
        let (before, after) = self.sides(self.log.accepted());
        let is_heard = |group: &Group, member: &Member| {
            let peer = group.peers.get(member.uid);
            member.uid == group.me.uid || peer.is_some_and(|peer| now.since(peer.last_heard()) < HEARD_WITHIN)
        };
        let floor = self.recovery.floor().max(1);
        let is_enough = self.is_enough(&before, &after, floor, |member| is_heard(self, member));
        let is_overdue = self.recovery.since().is_some_and(|since| now.since(since) >= RESET_OVERDUE);
        if !is_enough || is_overdue {
            self.halt_without(now, &before, &after, is_heard);
            self.halt.awaits_another = is_enough && self.halt.is_halted();
        }
    }

    /// True if the members that are present are quorums of both views, at least `floor`, as many as each member asks for,
    /// and can complete the proposal that this member prepared last.
    fn is_enough(
        &self,
        before: &Members,
        after: &Members,
        floor: usize,
        is_present: impl Fn(&Member) -> bool,
    ) -> bool {
        let present = after.iter().filter(|member| is_present(member)).count();
        present >= floor
            && self.meets_floor(after, &is_present)
            && self.is_quorum(before, &is_present)
            && self.is_quorum(after, &is_present)
            && self.can_complete_prepared(before, after, &is_present)
    }

    /// Under *at least n* every later ballot adopts the proposal that this member prepared last, and all members that
    /// it names must prepare it again. If one of them is dead, the group stands still for ever.
    fn can_complete_prepared(
        &self,
        before: &Members,
        after: &Members,
        is_present: impl Fn(&Member) -> bool,
    ) -> bool {
        let prepared = self.recovery.prepared_members();
        let is_needed = |member: &&Member| prepared.contains(&member.uid);
        !matches!(self.config.quorum, Quorum::AtLeast(_))
            || before.iter().chain(after.iter()).filter(is_needed).all(is_present)
    }

    /// Halts for want of the members that are not present, if the reset has lasted for the failure detector's time. A
    /// group that is halted already lacks what was counted last: a slow member may have answered since.
    fn halt_without(
        &mut self,
        now: Time,
        before: &Members,
        after: &Members,
        is_present: impl Fn(&Group, &Member) -> bool,
    ) {
        let takes_part = matches!(self.phase, Phase::Resetting | Phase::Leaving) && !self.left;
        let time = self.silence() + self.patience(now);
        let lasts = self.recovery.since().is_some_and(|since| now.since(since) >= time);
        if !takes_part || !(lasts || self.halt.is_halted()) {
            return;
        }
        let present = |member: &Member| is_present(self, member);
        let lost = |member: &&Member| !present(member);
        let joined = |member: &&Member| before.iter().all(|known| known.uid != member.uid);
        let missing =
            before.iter().chain(after.iter().filter(joined)).filter(lost).cloned().collect::<Vec<_>>();
        if missing.is_empty() {
            return;
        }
        self.probe(Probe::Halted);
        if !self.broken(Planted::HaltedNotTold) {
            self.halt.missing = Some(missing);
        }
    }
}

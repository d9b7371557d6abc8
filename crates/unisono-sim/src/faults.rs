//! What faults do to a group when they strike, beyond the [havoc](crate::havoc) that strikes anybody. Which of them
//! there are, and how often, the [plan](crate::plan) says.
//!
//! Victims are chosen by what they do more often than by chance: the sequencer above all, for there most of the
//! protocol's rules meet. As long as a plan is not reckless, crashes leave a quorum alive, so that the group has
//! something to recover with.

use crate::director::Director;
use crate::draw::Draw;
use crate::havoc::Targets;
use crate::plan::FaultKind;
use crate::process::ScheduledCrash;
use crate::trap::{FaultAction, Trap};
use unisono_core::wire::FrameKind;
use unisono_core::{EntryMode, Quorum};

/// Where a group is worth striking.
pub(crate) const TARGETS: Targets = Targets {
    steps: STEPS,
    may_drop: |kind| !kind.is_of_calls() && !matches!(kind, FrameKind::Ask | FrameKind::Tell),
};

const STEPS: &[(u32, (FrameKind, u64))] = &[
    (3, (FrameKind::Ordered, 60)),
    (2, (FrameKind::Numbers, 20)),
    (4, (FrameKind::Change, 8)),
    (2, (FrameKind::Heartbeat, 60)),
    (2, (FrameKind::Watermarks, 60)),
    (2, (FrameKind::Data, 60)),
    (1, (FrameKind::Nack, 6)),
    (1, (FrameKind::Welcome, 2)),
    (1, (FrameKind::JoinRequest, 2)),
    (1, (FrameKind::LeaveRequest, 1)),
    (1, (FrameKind::Farewell, 1)),
    (4, (FrameKind::Invite, 8)),
    (4, (FrameKind::Vote, 6)),
    (2, (FrameKind::Pull, 2)),
    (2, (FrameKind::Level, 2)),
    (4, (FrameKind::Prepare, 6)),
    (4, (FrameKind::Prepared, 6)),
    (4, (FrameKind::Decided, 6)),
];

/// What resets are made of.
const RESET_FRAMES: &[FrameKind] = &[
    FrameKind::Invite,
    FrameKind::Vote,
    FrameKind::Vote,
    FrameKind::Outbid,
    FrameKind::Pull,
    FrameKind::Level,
    FrameKind::Prepare,
    FrameKind::Prepare,
    FrameKind::Prepared,
    FrameKind::Prepared,
    FrameKind::Decided,
    FrameKind::Decided,
];

impl Director {
    pub(super) fn let_chaos_begin(&mut self) {
        self.havoc.begin(&mut self.world);
        if !(0..self.plan.places).any(|place| self.is_member(place)) {
            // A formation that came to nothing.
            self.give_life(0, EntryMode::Found(self.plan.config.clone()));
        }
        self.havoc.await_faults(&mut self.world);
    }

    /// A fault strikes, or one that is under way goes on.
    pub(super) fn fault(&mut self, code: u32) {
        if let Some(kind) = self.havoc.due(&mut self.world, code) {
            self.strike(kind);
            self.havoc.await_fault(&mut self.world, code);
        }
    }

    fn strike(&mut self, kind: FaultKind) {
        match kind {
            FaultKind::Crash => self.crash_somebody(),
            FaultKind::CrashAtStep if !self.can_lose_anybody() => {}
            FaultKind::FastRestart => {
                if let Some(victim) = self.victim().filter(|victim| self.can_lose(*victim)) {
                    self.world.crash(victim);
                    self.give_life(victim, EntryMode::Join);
                }
            }
            FaultKind::Duel => self.begin_duel(),
            FaultKind::NeedlessReset => {
                if let Some(process) = self.victim() {
                    self.world.reset(process, 1);
                }
            }
            kind => {
                let victim = if kind.has_victim() { self.victim() } else { None };
                self.havoc.strike(&mut self.world, kind, victim);
            }
        }
    }

    /// Several ask for a reset at once, while votes, proposals and decisions get lost.
    fn begin_duel(&mut self) {
        for _ in 0..self.havoc.fates.below(4) {
            let frame = self.havoc.fates.pick(RESET_FRAMES);
            let (skip, times) = (self.havoc.fates.below(6) as u32, self.havoc.fates.spread(1, 12) as u32);
            let from = self
                .havoc
                .fates
                .chance(0.3)
                .then(|| self.havoc.fates.below(self.plan.places as u64) as usize);
            let to = self
                .havoc
                .fates
                .chance(0.3)
                .then(|| self.havoc.fates.below(self.plan.places as u64) as usize);
            self.world.traps.set(Trap { frame, from, to, skip, times, action: FaultAction::Drop });
        }
        let places: Vec<usize> = (0..self.plan.places).filter(|place| self.is_member(*place)).collect();
        if places.is_empty() {
            return;
        }
        let duellists: Vec<usize> =
            (0..self.havoc.fates.between(1, 3)).map(|_| self.havoc.fates.pick(&places)).collect();
        if self.havoc.fates.chance(0.5) && duellists.len() > 1 && duellists[0] != duellists[1] {
            // The first two do not hear each other, and everybody else hears both.
            let (one, other) = (duellists[0], duellists[1]);
            self.havoc.part(&mut self.world, &[(one, other), (other, one)], 500);
        }
        duellists.into_iter().for_each(|process| self.world.reset(process, 1));
    }

    // --- processes ---

    /// Somebody alive: the sequencer, or anybody.
    fn victim(&mut self) -> Option<usize> {
        let by_role = self.havoc.fates.chance(0.4);
        let sequencer = self.latest_view().and_then(|info| self.place_of(info.sequencer));
        let anybody = self.havoc.fates.below(self.plan.places as u64) as usize;
        let victim = sequencer.filter(|_| by_role).unwrap_or(anybody);
        self.world.resident(victim).is_some_and(|resident| !resident.is_over).then_some(victim)
    }

    /// The group can lose this one and go on.
    fn can_lose(&self, victim: usize) -> bool {
        self.plan.is_reckless || self.is_enough_without(Some(victim))
    }

    /// The group can lose anybody and go on.
    fn can_lose_anybody(&self) -> bool {
        self.plan.is_reckless
            || (self.world.traps.is_empty()
                && (0..self.plan.places).all(|victim| self.is_enough_without(Some(victim))))
    }

    fn is_enough_without(&self, victim: Option<usize>) -> bool {
        let Some(info) = self.latest_view() else { return false };
        let lives = |place: usize| Some(place) != victim && self.is_in(place, &info);
        let living = (0..self.plan.places).filter(|place| lives(*place)).count();
        match &self.plan.config.quorum {
            Quorum::MajorityOf(names) => 2 * living > names.len(),
            _ => 2 * living > info.members.len(),
        }
    }

    fn crash_somebody(&mut self) {
        let Some(victim) = self.victim().filter(|victim| self.can_lose(*victim)) else { return };
        if self.havoc.fates.chance(0.5) {
            self.world.crash(victim);
            self.start_later(victim);
        } else {
            let scheduled_crash = ScheduledCrash::draw(&mut self.havoc.fates);
            self.world.scheduled_crash(victim, Some(scheduled_crash));
        }
    }
}

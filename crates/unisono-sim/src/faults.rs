//! Faults of groups, in addition to the faults of the [injector](crate::injector) that strike processes of any kind.
//! The [plan](crate::plan) determines which faults there are and how often they strike.
//!
//! Victims are mostly chosen by role: the sequencer above all, because most rules of the protocol meet there. Unless
//! the plan is reckless, crashes leave a quorum alive, so that the group can recover.

use crate::director::Director;
use crate::draw::Draw;
use crate::frame_faults::{FaultAction, FrameFault};
use crate::injector::Targets;
use crate::plan::FaultKind;
use crate::process::ScheduledCrash;
use unisono_core::wire::FrameKind;
use unisono_core::{EntryMode, Quorum, Uid};

/// The frames at which faults of a group are aimed.
pub(crate) const TARGETS: Targets = Targets {
    steps: STEPS,
    may_drop: |kind| {
        use FrameKind::{Ask, Confirm, Confirmed, Force, Forcing, Switch, Switching, Tell};
        let is_from_outside = matches!(kind, Ask | Tell | Force | Forcing | Switch | Switching);
        !kind.is_of_calls() && !is_from_outside && !matches!(kind, Confirm | Confirmed)
    },
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

/// The frames of resets; a duplicate makes the frame twice as likely.
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
    pub(super) fn begin_chaos(&mut self) {
        self.injector.begin(&mut self.world);
        if !(0..self.plan.places).any(|place| self.is_member(place)) {
            // The formation failed: process 0 founds the group instead.
            self.give_life(0, EntryMode::Found(self.plan.config.clone()));
        }
        self.injector.schedule_faults(&mut self.world);
    }

    /// Lets a fault of the plan strike, or continues an ongoing one.
    pub(super) fn fault(&mut self, code: u32) {
        if let Some(kind) = self.injector.due(&mut self.world, code) {
            self.strike(kind);
            self.injector.schedule_fault(&mut self.world, code);
        }
    }

    fn strike(&mut self, kind: FaultKind) {
        match kind {
            FaultKind::Crash => self.crash_victim(),
            FaultKind::CrashAtStep if !self.can_lose_any() => {}
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
                self.injector.strike(&mut self.world, kind, victim);
            }
        }
    }

    /// Makes one to three reset requests at once, while frames of the resets get lost.
    fn begin_duel(&mut self) {
        for _ in 0..self.injector.random.below(4) {
            let frame = self.injector.random.pick(RESET_FRAMES);
            let (skip, times) =
                (self.injector.random.below(6) as u32, self.injector.random.spread(1, 12) as u32);
            let from = self
                .injector
                .random
                .chance(0.3)
                .then(|| self.injector.random.below(self.plan.places as u64) as usize);
            let to = self
                .injector
                .random
                .chance(0.3)
                .then(|| self.injector.random.below(self.plan.places as u64) as usize);
            self.world.frame_faults.set(FrameFault {
                frame,
                from,
                to,
                skip,
                times,
                action: FaultAction::Drop,
            });
        }
        let places: Vec<usize> = (0..self.plan.places).filter(|place| self.is_member(*place)).collect();
        if places.is_empty() {
            return;
        }
        let duellists: Vec<usize> =
            (0..self.injector.random.between(1, 3)).map(|_| self.injector.random.pick(&places)).collect();
        if self.injector.random.chance(0.5) && duellists.len() > 1 && duellists[0] != duellists[1] {
            // The first two do not receive each other's datagrams; all others receive both.
            let (one, other) = (duellists[0], duellists[1]);
            self.injector.cut_links(&mut self.world, &[(one, other), (other, one)], 500);
        }
        duellists.into_iter().for_each(|process| self.world.reset(process, 1));
    }

    // --- processes ---

    /// Returns a living process: the sequencer's with a probability of at least 40 %, otherwise a random one.
    fn victim(&mut self) -> Option<usize> {
        let by_role = self.injector.random.chance(0.4);
        let sequencer = self.latest_view().and_then(|info| self.place_of(info.sequencer));
        let any = self.injector.random.below(self.plan.places as u64) as usize;
        let victim = sequencer.filter(|_| by_role).unwrap_or(any);
        self.world.resident(victim).is_some_and(|resident| !resident.is_over).then_some(victim)
    }

    /// True if the group keeps a quorum without this process, or if the plan is reckless.
    pub(super) fn can_lose(&self, victim: usize) -> bool {
        self.plan.is_reckless || self.is_enough_without(Some(victim))
    }

    /// True if no frame fault is set and the group keeps a quorum whichever process it loses, or if the plan is
    /// reckless.
    fn can_lose_any(&self) -> bool {
        self.plan.is_reckless
            || (self.world.frame_faults.is_empty()
                && (0..self.plan.places).all(|victim| self.is_enough_without(Some(victim))))
    }

    fn is_enough_without(&self, victim: Option<usize>) -> bool {
        let Some(info) = self.latest_view() else { return false };
        let lives = |place: usize| Some(place) != victim && self.is_in(place, &info);
        let living = (0..self.plan.places).filter(|place| lives(*place)).count();
        let view: Vec<Uid> = info.members.iter().map(|member| member.uid).collect();
        if living < self.floors.of_view(&view) {
            return false;
        }
        match &self.plan.config.quorum {
            Quorum::MajorityOf(names) => 2 * living > names.len(),
            _ => 2 * living > info.members.len(),
        }
    }

    /// Where members crash, lets one in five crash when it sends the next change: a switch may be lost with the member that
    /// numbered it.
    pub(super) fn crash_at_switch(&mut self) {
        let crashes = self.plan.faults.iter().any(|fault| fault.kind == FaultKind::CrashAtStep);
        if !(self.injector.is_on && crashes && self.can_lose_any() && self.injector.random.chance(0.2)) {
            return;
        }
        self.world.frame_faults.set(FrameFault {
            frame: FrameKind::Change,
            from: None,
            to: None,
            skip: 0,
            times: 1,
            action: FaultAction::CrashBefore,
        });
    }

    fn crash_victim(&mut self) {
        let Some(victim) = self.victim().filter(|victim| self.can_lose(*victim)) else { return };
        if self.injector.random.chance(0.5) {
            self.world.crash(victim);
            self.start_later(victim);
        } else {
            let scheduled_crash = ScheduledCrash::draw(&mut self.injector.random);
            self.world.schedule_crash(victim, Some(scheduled_crash));
        }
    }
}

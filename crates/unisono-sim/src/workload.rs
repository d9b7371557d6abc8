//! What the applications do: send, now one message and now many, small ones and large ones; make speeches; leave and come back; hand
//! the role of sequencer on; and answer what they are told.

use crate::director::Director;
use crate::draw::{Draw, MILLISECOND};
use crate::network::exponential;
use crate::plan::Beginning;
use crate::record::Life;
use crate::world::{Notice, Trigger};
use unisono_core::Phase;

impl Director {
    /// An application does something.
    pub(super) fn act(&mut self, process: usize, life: Life) {
        if !self.is_current(process, life) || !self.is_busy {
            return;
        }
        let workload = &self.plan.workload;
        if let Some(speech) = workload.speech
            && let Some(rest) = self.speeches[process].checked_sub(1)
        {
            self.speeches[process] = rest;
            self.send(process);
            let pause = exponential(&mut self.whims, speech.every);
            self.world.trigger(pause, Trigger::Act { process: process as u16, life });
            return;
        }
        let pause = exponential(&mut self.whims, workload.every);
        let draw = self.whims.fraction();
        // With members dead for good, who leaves the core may leave it without a quorum.
        let may_leave = self.is_open && (self.havoc.is_on || !self.plan.heals_core_only);
        if draw < workload.leaves && may_leave {
            // Last words are under way when it goes.
            (0..self.whims.below(5)).for_each(|_| self.send(process));
            // A leave that is refused now (the group is being reset, say) comes at another time.
            if self.world.leave(process).is_ok() {
                return;
            }
        } else if draw < workload.leaves + workload.hand_overs {
            self.hand_over();
        } else if let Some(speech) = workload.speech
            && self.whims.chance(speech.part)
        {
            self.speeches[process] = self.whims.between(70, speech.messages_max);
        } else if self.whims.chance(workload.bursts) {
            let messages = self.whims.between(2, self.plan.workload.burst_max);
            (0..messages).for_each(|_| self.send(process));
        } else {
            self.send(process);
        }
        self.world.trigger(pause, Trigger::Act { process: process as u16, life });
    }

    fn send(&mut self, process: usize) {
        let workload = &self.plan.workload;
        let bytes = if self.whims.chance(workload.large) {
            self.whims.between(1_000, workload.large_bytes_max)
        } else {
            self.whims.below(workload.bytes_max + 1)
        };
        let resilience = self
            .whims
            .chance(workload.more_resilient)
            .then(|| self.whims.between(0, self.plan.members as u64) as u8);
        // Refused while the window is shut or the group is being reset: the application gives up on it.
        self.world.send(process, bytes as usize, resilience);
    }

    /// Whoever orders hands the role to any member.
    fn hand_over(&mut self) {
        let Some(info) = self.latest_view() else { return };
        let Some(sequencer) = self.place_of(info.sequencer) else { return };
        let successor = info.members[self.whims.below(info.members.len() as u64) as usize].uid;
        self.world.hand_over(sequencer, successor);
    }

    /// An application answers what it was told.
    pub(super) fn told(&mut self, process: usize, life: Life, notice: Notice) {
        if !self.is_current(process, life) {
            return;
        }
        let process_trigger = process as u16;
        match notice {
            Notice::Entered => {
                let mut pause = exponential(&mut self.whims, self.plan.workload.every);
                if self.plan.beginning == Beginning::Together {
                    // A founder that has sent something cannot give way to another any more.
                    pause += self.plan.parts.chaos.saturating_sub(self.world.now);
                }
                self.world.trigger(pause, Trigger::Act { process: process_trigger, life });
            }
            Notice::Suspected => {
                let pause = self.whims.millis(1, 200);
                self.world.trigger(pause, Trigger::ResetAgain { process: process_trigger, life });
            }
            Notice::GivesWay => self.give_way(process, life),
            Notice::Over => self.start_later(process),
        }
    }

    /// Two groups are one too many for these applications: those of the one that is to give way leave it.
    fn give_way(&mut self, process: usize, life: Life) {
        let is_in = |phase| matches!(phase, Phase::Member | Phase::Resetting);
        let phase = self.world.resident(process).map(|resident| resident.side.group.phase());
        if phase.is_some_and(is_in) && (self.world.is_paused(process) || self.world.leave(process).is_err()) {
            let trigger = Trigger::Told { process: process as u16, life, notice: Notice::GivesWay };
            self.world.trigger(100 * MILLISECOND, trigger);
        }
    }

    /// Manual policy: an application asks for a reset, and asks again until there was one.
    pub(super) fn reset_again(&mut self, process: usize, life: Life) {
        let is_waiting = |phase| matches!(phase, Phase::Member | Phase::Resetting);
        if !self.is_current(process, life)
            || !self.world.resident(process).is_some_and(|resident| is_waiting(resident.side.group.phase()))
        {
            return;
        }
        self.world.reset(process, 1);
        // A process that stands still asks when it goes on.
        let is_paused = self.world.is_paused(process);
        if is_paused
            || self
                .world
                .resident(process)
                .is_some_and(|resident| resident.side.group.phase() == Phase::Resetting)
        {
            self.world.trigger(500 * MILLISECOND, Trigger::ResetAgain { process: process as u16, life });
        }
    }

    fn is_current(&self, process: usize, life: Life) -> bool {
        self.world.resident(process).is_some_and(|resident| resident.life == life)
    }

    /// Where this life is.
    pub(super) fn place_of(&self, uid: unisono_core::Uid) -> Option<usize> {
        (0..self.plan.places)
            .find(|place| self.world.resident(*place).is_some_and(|resident| resident.uid == uid))
    }
}

//! The actions of applications in a group: they send single messages, bursts and streaks, small and large; they leave
//! and rejoin; they hand over the sequencer's role; and they react to events.

use crate::director::Director;
use crate::draw::{Draw, MILLISECOND};
use crate::network::exponential;
use crate::plan::Beginning;
use crate::record::Life;
use crate::world::{Notice, Trigger};
use unisono_core::{Migration, Order, Phase, Quality, Standing};

impl Director {
    /// Performs the next action of an application and schedules the one after it.
    pub(super) fn act(&mut self, process: usize, life: Life) {
        if !self.is_current(process, life) || !self.is_busy {
            return;
        }
        if self.end_at_times(process) {
            return;
        }
        self.confirm_at_times(process);
        self.send_unreliable_at_times(process);
        let workload = &self.plan.workload;
        if let Some(streak) = workload.streak
            && let Some(rest) = self.streak_left[process].checked_sub(1)
        {
            self.streak_left[process] = rest;
            self.send(process);
            let pause = exponential(&mut self.app_random, streak.every);
            self.world.trigger(pause, Trigger::Act { process: process as u16, life });
            return;
        }
        let mut pause = exponential(&mut self.app_random, workload.every);
        if let Some(rush) = workload.rush {
            if (rush.from..rush.until).contains(&self.world.now) {
                self.send(process);
                let pause = exponential(&mut self.app_random, rush.every);
                self.world.trigger(pause, Trigger::Act { process: process as u16, life });
                return;
            }
            if self.world.now < rush.from {
                pause = pause.min(rush.from - self.world.now);
            }
        }
        let draw = self.app_random.fraction();
        // If only a core is healed, a member that leaves the core may leave it without a quorum.
        let may_leave = self.is_open && (self.injector.is_on || !self.plan.heals_core_only);
        if draw < workload.leaves && may_leave {
            // Up to four messages are still under way when the member leaves.
            (0..self.app_random.below(5)).for_each(|_| self.send(process));
            // A leave that is refused (during a reset, for example) is tried again later.
            if self.world.leave(process).is_ok() {
                return;
            }
        } else if draw < workload.leaves + workload.hand_overs {
            self.hand_over();
        } else if draw < workload.leaves + workload.hand_overs + workload.switches {
            self.switch(process);
        } else if let Some(streak) = workload.streak
            && self.app_random.chance(streak.part)
        {
            self.streak_left[process] = self.app_random.between(70, streak.messages_max);
        } else if self.app_random.chance(workload.bursts) {
            let messages = self.app_random.between(2, self.plan.workload.burst_max);
            (0..messages).for_each(|_| self.send(process));
        } else {
            self.send(process);
        }
        self.world.trigger(pause, Trigger::Act { process: process as u16, life });
    }

    fn send(&mut self, process: usize) {
        let workload = &self.plan.workload;
        let bytes = if self.app_random.chance(workload.large) {
            self.app_random.between(1_000, workload.large_bytes_max)
        } else {
            self.app_random.below(workload.bytes_max + 1)
        };
        let quality = match self.app_random.chance(workload.better) {
            true => match self.app_random.between(0, self.plan.members as u64 + 4) as usize {
                more if more <= self.plan.members => Quality::resilient(more as u8),
                more if more - self.plan.members <= 2 => Quality::MAJORITY,
                _ => Quality::TOTAL,
            },
            false => Quality::ORDERED,
        };
        let quality = self.weak.of(quality);
        // The send is refused while the window is full or a reset is running. The application does not repeat it.
        self.world.send(process, bytes as usize, quality);
    }

    /// The sequencer hands its role to a random member.
    fn hand_over(&mut self) {
        let Some(info) = self.latest_view() else { return };
        let Some(sequencer) = self.place_of(info.sequencer) else { return };
        let successor = info.members[self.app_random.below(info.members.len() as u64) as usize].uid;
        self.world.hand_over(sequencer, successor);
    }

    /// An application asks for the other order.
    fn switch(&mut self, process: usize) {
        let by_sequencer = match self.plan.config.order {
            Order::Token => Order::Sequencer(Migration::OnRequest),
            order => order,
        };
        self.crash_at_switch();
        self.world.switch(process, by_sequencer);
    }

    /// Lets an application react to an event.
    pub(super) fn handle_notice(&mut self, process: usize, life: Life, notice: Notice) {
        if !self.is_current(process, life) {
            return;
        }
        let process_trigger = process as u16;
        match notice {
            Notice::Entered => {
                let mut pause = exponential(&mut self.app_random, self.plan.workload.every);
                if self.plan.beginning == Beginning::Together {
                    // A founder that has sent a message can no longer give way to another group.
                    pause += self.plan.parts.chaos.saturating_sub(self.world.now);
                }
                self.world.trigger(pause, Trigger::Act { process: process_trigger, life });
            }
            Notice::Suspected => {
                let pause = self.app_random.millis(1, 200);
                self.world.trigger(pause, Trigger::ResetAgain { process: process_trigger, life });
            }
            Notice::GivesWay => self.give_way(process, life),
            Notice::Over => self.start_later(process),
        }
    }

    /// Lets an application whose group is to give way to another leave it. Tries again later if the leave is refused.
    fn give_way(&mut self, process: usize, life: Life) {
        let is_in = |phase| matches!(phase, Phase::Member | Phase::Resetting);
        let phase = self.world.resident(process).map(|resident| resident.side.group.phase());
        if phase.is_some_and(is_in) && (self.world.is_paused(process) || self.world.leave(process).is_err()) {
            let trigger = Trigger::Notice { process: process as u16, life, notice: Notice::GivesWay };
            self.world.trigger(100 * MILLISECOND, trigger);
        }
    }

    /// Manual policy: an application requests a reset, and repeats the request until a reset has taken place.
    pub(super) fn reset_again(&mut self, process: usize, life: Life) {
        if !self.is_current(process, life) || !self.takes_part(process) {
            return;
        }
        self.world.reset(process, 1);
        // A paused process repeats the request after the pause.
        if self.world.is_paused(process) || self.is_resetting(process) {
            self.world.trigger(500 * MILLISECOND, Trigger::ResetAgain { process: process as u16, life });
        }
    }

    /// True if the life on the process may reset its group. One that leaves may too: it may be the only one to suspect the
    /// member that it gave the token to.
    fn takes_part(&self, process: usize) -> bool {
        let phase = self.world.resident(process).map(|resident| resident.side.group.phase());
        matches!(phase, Some(Phase::Member | Phase::Resetting | Phase::Leaving))
    }

    /// True if a reset that the life on the process asked for has not taken place.
    fn is_resetting(&self, process: usize) -> bool {
        self.world.resident(process).is_some_and(|resident| match resident.side.group.phase() {
            Phase::Resetting => true,
            Phase::Leaving => resident.side.group.standing() != Standing::Primary,
            _ => false,
        })
    }

    fn is_current(&self, process: usize, life: Life) -> bool {
        self.world.resident(process).is_some_and(|resident| resident.life == life)
    }

    /// Returns the process in which this life is running.
    pub(super) fn place_of(&self, uid: unisono_core::Uid) -> Option<usize> {
        (0..self.plan.places)
            .find(|place| self.world.resident(*place).is_some_and(|resident| resident.uid == uid))
    }
}

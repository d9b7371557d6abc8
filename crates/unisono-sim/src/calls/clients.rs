//! The clients: they make single calls and bursts, with small and large requests. Some deadlines are long and some very
//! short, and some calls are cancelled.

use super::director::Director;
use super::plan::limit;
use crate::draw::{Draw, MILLISECOND};
use crate::network::exponential;
use crate::properties::ENOUGH;
use crate::record::Life;
use crate::world::Trigger;
use std::time::Duration;

/// A queue of at least this many requests takes all that come when no fault strikes.
const QUEUE_ENOUGH: u16 = 8;
/// Minimum pause between two actions of a client without faults, in nanoseconds: no server is overloaded.
const CALM_PAUSE: u64 = 50 * MILLISECOND;

impl Director {
    pub(super) fn schedule_act(&mut self, process: usize, life: Life) {
        if self.plan.clients.contains(&process) {
            let mut pause = exponential(&mut self.app_random, self.plan.client_load.every);
            if self.is_calm {
                pause = pause.max(CALM_PAUSE);
            }
            self.world.trigger(pause, Trigger::Act { process: process as u16, life });
        }
    }

    /// Performs the next action of an application and schedules the one after it.
    pub(super) fn act(&mut self, process: usize, life: Life) {
        if !self.is_current(process, life) || !self.is_busy {
            return;
        }
        let client_load = &self.plan.client_load;
        let calls = if self.app_random.chance(client_load.bursts) && !self.is_calm {
            self.app_random.between(2, client_load.burst_max)
        } else {
            1
        };
        (0..calls).for_each(|_| self.call(process, life));
        self.schedule_act(process, life);
    }

    fn call(&mut self, process: usize, life: Life) {
        let client_load = &self.plan.client_load;
        let bytes = if self.app_random.chance(client_load.large) {
            self.app_random.between(1_000, client_load.large_bytes_max)
        } else {
            self.app_random.below(client_load.bytes_max + 1)
        };
        let cancels = self.app_random.chance(client_load.cancels);
        let limit = limit(&mut self.app_random, client_load.hasty);
        // Calls that begin under faults end before calls must succeed, and all calls end before the run does.
        let most = if self.is_calm {
            ENOUGH + ENOUGH / 2
        } else {
            Duration::from_nanos(self.plan.parts.healed - self.world.now)
        };
        let mut limit = limit.min(most);
        let service = self.app_random.below(self.plan.services.len() as u64) as u16;
        if self.is_calm && self.plan.services[usize::from(service)].queue_max < QUEUE_ENOUGH {
            // Such a service pushes back, and is not required to answer every call.
            limit = limit.min(ENOUGH / 2);
        }
        let Some(call) = self.world.call(process, service, bytes as usize, limit) else { return };
        if cancels {
            let delay = self.app_random.spread(MILLISECOND, (limit.as_nanos() as u64).max(2 * MILLISECOND));
            let index = self.to_cancel.len() as u32;
            self.to_cancel.push(call);
            self.world.trigger(delay, Trigger::Cancel { process: process as u16, life, index });
        }
    }

    /// Cancels a call.
    pub(super) fn cancel(&mut self, process: usize, life: Life, index: usize) {
        if self.is_current(process, life) {
            self.world.cancel(process, self.to_cancel[index]);
        }
    }
}

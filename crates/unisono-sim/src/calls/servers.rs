//! What those do who serve: they answer at once or after a while, refuse, pass on, call somebody else first, or never
//! answer. A service that recognises repeats does the same with a call wherever it comes.

use super::director::Director;
use crate::draw::{Draw, MILLISECOND};
use crate::network::Network;
use crate::record::Life;
use crate::world::{Job, Verdict};
use std::net::SocketAddr;
use std::time::Duration;

/// When all is well, nothing takes longer than this.
const CALM_MS: u64 = 5;
/// How long a server waits for another.
const NESTED: (u64, u64) = (10, 1_000);

impl Director {
    /// Something is to be done about a request that an application was handed.
    pub(super) fn work(&mut self, process: usize, life: Life, index: u32) {
        if !self.is_current(process, life) {
            return;
        }
        let Some(job) = self.world.resident(process).and_then(|resident| resident.side.jobs.get(&index))
        else {
            return;
        };
        let job = job.clone();
        if self.world.is_paused(process) {
            // It goes on when it does.
            self.world.trigger_job(10 * MILLISECOND, process, life, index);
        } else if let Some(verdict) = &job.verdict {
            self.world.answer(process, &job, verdict);
            self.world.finish(process, index);
        } else {
            self.consider(process, life, index, job);
        }
    }

    /// An application looks at a request for the first time.
    fn consider(&mut self, process: usize, life: Life, index: u32, mut job: Job) {
        let known = self.world.common.verdicts.get(&job.name()).cloned();
        let manners = &self.plan.manners;
        let draw = self.whims.fraction();
        let is_calm = self.is_calm;
        if let Some(verdict) = known {
            job.verdict = Some(verdict);
        } else if draw < manners.forwards && !is_calm {
            let to = self.draw_target(process, job.service);
            if self.world.pass_on(process, &job, to) {
                self.world.finish(process, index);
                return;
            }
        } else if draw < manners.forwards + manners.refusals {
            job.verdict = Some(Verdict::Refusal(self.reply()));
        } else if draw < manners.forwards + manners.refusals + manners.neglect && !is_calm {
            self.world.finish(process, index);
            self.neglected.push((process, life, job));
            return;
        }
        let is_repeat = job.verdict.is_some() && self.world.common.verdicts.contains_key(&job.name());
        if job.verdict.is_none() {
            self.world.execute(process, &job);
            job.verdict = Some(Verdict::Reply(self.reply()));
        }
        if let Some(verdict) = &job.verdict
            && self.plan.services[job.service as usize].repeats
        {
            self.world.common.verdicts.insert(job.name(), verdict.clone());
        }
        if !is_repeat && !is_calm && self.whims.chance(self.plan.manners.nested) {
            let service = self.whims.below(self.plan.services.len() as u64) as u16;
            let limit = Duration::from_nanos(self.whims.millis(NESTED.0, NESTED.1));
            job.awaits = self.world.call(process, service, 10, limit);
        }
        let (waits, delay) = (job.awaits.is_some(), self.draw_delay());
        if self.world.keep_job(process, index, job) && !waits {
            self.world.trigger_job(delay, process, life, index);
        }
    }

    /// Whatever applications have let lie is refused.
    pub(super) fn clear_up(&mut self) {
        for (process, life, job) in std::mem::take(&mut self.neglected) {
            if self.is_current(process, life) {
                let refusal = Verdict::Refusal(self.reply());
                self.world.answer(process, &job, &refusal);
            }
        }
    }

    fn reply(&mut self) -> bytes::Bytes {
        let manners = &self.plan.manners;
        let bytes = if self.whims.chance(manners.large) {
            self.whims.between(1_000, manners.large_bytes_max)
        } else {
            self.whims.below(manners.bytes_max + 1)
        };
        self.world.fill(bytes as usize)
    }

    /// How long an application works, in nanoseconds.
    fn draw_delay(&mut self) -> u64 {
        let manners = &self.plan.manners;
        if !self.whims.chance(manners.slow) {
            return 0;
        }
        let most = if self.is_calm { CALM_MS } else { manners.slow_max_ms };
        self.whims.millis(1, most)
    }

    /// To whom a request is passed on: mostly to somebody who serves the port.
    fn draw_target(&mut self, process: usize, service: u16) -> SocketAddr {
        let serves = |place: &usize| *place != process && self.plan.roles[*place].contains(&service);
        let others: Vec<usize> = (0..self.plan.places).filter(serves).collect();
        let place = match self.whims.below(10) {
            0..7 if !others.is_empty() => self.whims.pick(&others),
            7 => process,
            8 => self.plan.places + 1,
            _ => self.whims.below(self.plan.places as u64) as usize,
        };
        // Beyond the last place is nobody.
        Network::address(place)
    }
}

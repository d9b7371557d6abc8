//! The servers: they answer at once or after a delay, refuse, forward, make a call of their own first, or never answer.
//! A service that recognises repeats responds to a call in the same way at all its servers.

use super::director::Director;
use crate::draw::{Draw, MILLISECOND};
use crate::network::Network;
use crate::record::Life;
use crate::world::{Job, Response};
use std::net::SocketAddr;
use std::time::Duration;

/// Longest work on a request without faults, in milliseconds.
const CALM_MS: u64 = 5;
/// Range of the deadlines of nested calls, in milliseconds.
const NESTED: (u64, u64) = (10, 1_000);

impl Director {
    /// Performs the next step of a request that an application received.
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
            // It continues when the process has resumed.
            self.world.trigger_job(10 * MILLISECOND, process, life, index);
        } else if let Some(response) = &job.response {
            self.world.answer(process, &job, response);
            self.world.finish(process, index);
        } else {
            self.handle_request(process, life, index, job);
        }
    }

    /// Lets an application decide on its response to a request.
    fn handle_request(&mut self, process: usize, life: Life, index: u32, mut job: Job) {
        let known = self.world.common.responses.get(&job.name()).cloned();
        let server_behaviour = &self.plan.server_behaviour;
        let draw = self.app_random.fraction();
        let is_calm = self.is_calm;
        if let Some(response) = known {
            job.response = Some(response);
        } else if draw < server_behaviour.forwards && !is_calm {
            let to = self.draw_target(process, job.service);
            if self.world.pass_on(process, &job, to) {
                self.world.finish(process, index);
                return;
            }
        } else if draw < server_behaviour.forwards + server_behaviour.refusals {
            job.response = Some(Response::Refusal(self.reply()));
        } else if draw
            < server_behaviour.forwards + server_behaviour.refusals + server_behaviour.never_answered
            && !is_calm
        {
            self.world.finish(process, index);
            self.unanswered.push((process, life, job));
            return;
        }
        let is_repeat = job.response.is_some() && self.world.common.responses.contains_key(&job.name());
        if job.response.is_none() {
            self.world.execute(process, &job);
            job.response = Some(Response::Reply(self.reply()));
        }
        if let Some(response) = &job.response
            && self.plan.services[job.service as usize].repeats
        {
            self.world.common.responses.insert(job.name(), response.clone());
        }
        if !is_repeat && !is_calm && self.app_random.chance(self.plan.server_behaviour.nested) {
            let service = self.app_random.below(self.plan.services.len() as u64) as u16;
            let limit = Duration::from_nanos(self.app_random.millis(NESTED.0, NESTED.1));
            job.awaits = self.world.call(process, service, 10, limit);
        }
        let (waits, delay) = (job.awaits.is_some(), self.draw_delay());
        if self.world.keep_job(process, index, job) && !waits {
            self.world.trigger_job(delay, process, life, index);
        }
    }

    /// Refuses all requests that applications left unanswered.
    pub(super) fn refuse_unanswered(&mut self) {
        for (process, life, job) in std::mem::take(&mut self.unanswered) {
            if self.is_current(process, life) {
                let refusal = Response::Refusal(self.reply());
                self.world.answer(process, &job, &refusal);
            }
        }
    }

    fn reply(&mut self) -> bytes::Bytes {
        let server_behaviour = &self.plan.server_behaviour;
        let bytes = if self.app_random.chance(server_behaviour.large) {
            self.app_random.between(1_000, server_behaviour.large_bytes_max)
        } else {
            self.app_random.below(server_behaviour.bytes_max + 1)
        };
        self.world.fill(bytes as usize)
    }

    /// Draws the time that an application works on a request, in nanoseconds.
    fn draw_delay(&mut self) -> u64 {
        let server_behaviour = &self.plan.server_behaviour;
        if !self.app_random.chance(server_behaviour.slow) {
            return 0;
        }
        let most = if self.is_calm { CALM_MS } else { server_behaviour.slow_max_ms };
        self.app_random.millis(1, most)
    }

    /// Draws the target of a forwarded request: usually another server of the port.
    fn draw_target(&mut self, process: usize, service: u16) -> SocketAddr {
        let serves = |place: &usize| *place != process && self.plan.roles[*place].contains(&service);
        let others: Vec<usize> = (0..self.plan.places).filter(serves).collect();
        let place = match self.app_random.below(10) {
            0..7 if !others.is_empty() => self.app_random.pick(&others),
            7 => process,
            8 => self.plan.places + 1,
            _ => self.app_random.below(self.plan.places as u64) as usize,
        };
        // There is no process at an address beyond the last one.
        Network::address(place)
    }
}

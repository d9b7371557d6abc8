//! Controls the servers and clients whose calls are measured, from the measuring process.

use super::worker::{Answer, Assignment, Instruction, Loaded, Part};
use crate::bench::latency::member::Usage;
use crate::bench::side::UNTIMED;
use crate::location::Location;
use crate::output::rounded;
use crate::problem::Problem;
use crate::processes::Crew;
use crate::settings::Settings;
use crate::trial::lot;
use crate::worker;
use hdrhistogram::Histogram;
use std::time::{Duration, Instant};

/// Time that a block may take beyond its planned duration: 30 s.
const PATIENCE: Duration = Duration::from_secs(30);

/// The processes of one side: servers first, then clients.
pub(in crate::bench) struct Calling {
    crew: Crew<Instruction, Answer>,
    servers: usize,
}

impl Calling {
    /// Starts servers at the first locations, and a client at each other one.
    pub(in crate::bench) fn start(
        locations: &[Location],
        servers: usize,
        bytes: usize,
        settings: &Settings,
    ) -> Result<Calling, Problem> {
        let part = |index: usize| if index < servers { Part::Server } else { Part::Client };
        let parts = locations.iter().enumerate().map(|(index, location)| (part(index), location));
        Calling::start_parts(parts, servers, bytes, settings)
    }

    /// Starts a group of two members, one at each location, and beside the second, which is open, a process that sends to
    /// the group from outside: its calls are messages.
    pub(super) fn start_outside(
        locations: &[Location; 2],
        bytes: usize,
        settings: &Settings,
    ) -> Result<Calling, Problem> {
        let [first, second] = locations;
        let parts = [(Part::Founder, first), (Part::Relay, second), (Part::Outsider, second)];
        Calling::start_parts(parts.into_iter(), 2, bytes, settings)
    }

    fn start_parts<'a>(
        parts: impl Iterator<Item = (Part, &'a Location)>,
        servers: usize,
        bytes: usize,
        settings: &Settings,
    ) -> Result<Calling, Problem> {
        let service = format!("bench-{:08x}", lot(1 << 32)?);
        let mut calling = Calling { crew: Crew::new(), servers };
        for (part, location) in parts {
            let assignment = Assignment {
                service: service.clone(),
                part,
                bytes,
                location: location.clone(),
                settings: settings.clone(),
            };
            calling.crew.start(&worker::Assignment::Rpc(assignment))?;
            calling.answer("a process to be ready", PATIENCE)?;
        }
        Ok(calling)
    }

    /// Makes the first client call, one call at a time. Returns the time of each timed call, in nanoseconds.
    pub(in crate::bench) fn call(&mut self, timed: usize) -> Result<Vec<u64>, Problem> {
        self.crew.instruct(self.servers, &Instruction::Call { untimed: UNTIMED, timed })?;
        match self.answer("calls to be answered", PATIENCE)? {
            Answer::Took(took) => Ok(took),
            other => Err(strange(&other)),
        }
    }

    /// Makes all clients call at once.
    pub(in crate::bench) fn load(
        &mut self,
        in_flight: usize,
        untimed: Duration,
        timed: Duration,
    ) -> Result<Vec<Loaded>, Problem> {
        let [untimed_ms, timed_ms] = [untimed, timed].map(|time| time.as_millis() as u64);
        for client in self.servers..self.crew.len() {
            self.crew.instruct(client, &Instruction::Load { in_flight, untimed_ms, timed_ms })?;
        }
        let mut loaded = Vec::new();
        for _ in self.servers..self.crew.len() {
            match self.answer("calls to be answered", PATIENCE + untimed + timed)? {
                Answer::Loaded(load) => loaded.push(load),
                other => return Err(strange(&other)),
            }
        }
        Ok(loaded)
    }

    /// Returns what all processes have used so far.
    pub(in crate::bench) fn usage(&mut self) -> Result<Usage, Problem> {
        let mut sum = Usage::default();
        for usage in self.usages()? {
            sum.processor_ns += usage.processor_ns;
            sum.datagrams += usage.datagrams;
        }
        Ok(sum)
    }

    fn usages(&mut self) -> Result<Vec<super::worker::Usage>, Problem> {
        let mut usages = Vec::new();
        for index in 0..self.crew.len() {
            self.crew.instruct(index, &Instruction::Usage)?;
            match self.answer("a process's counters", PATIENCE)? {
                Answer::Usage(usage) => usages.push(usage),
                other => return Err(strange(&other)),
            }
        }
        Ok(usages)
    }

    /// Returns the fraction of all requests that each server received.
    pub(super) fn shares(&mut self) -> Result<Vec<f64>, Problem> {
        let servers = self.servers;
        let served: Vec<u64> = self.usages()?[..servers].iter().map(|usage| usage.served).collect();
        let all = served.iter().sum::<u64>().max(1) as f64;
        Ok(served.iter().map(|served| rounded(*served as f64 / all)).collect())
    }

    fn answer(&mut self, what: &str, patience: Duration) -> Result<Answer, Problem> {
        match self.crew.answer(Instant::now() + patience, &[], what)? {
            (index, Answer::Trouble(trouble)) => Err(Problem::failed(format!("process {index}: {trouble}"))),
            (_, answer) => Ok(answer),
        }
    }
}

fn strange(answer: &Answer) -> Problem {
    Problem::failed(format!("a process answered {answer:?}"))
}

/// What was counted under load in all rounds.
pub(super) struct Load {
    timed: Duration,
    in_flight: usize,
    /// Calls per second of each round.
    pub(super) rounds: Vec<f64>,
    took: Histogram<u64>,
    used: Usage,
}

impl Load {
    /// Starts counting, for rounds of this duration.
    pub(super) fn new(timed: Duration, in_flight: usize) -> Result<Load, Problem> {
        let took = Histogram::new_with_bounds(1, 60_000_000_000, 3).map_err(Problem::failed)?;
        Ok(Load { timed, in_flight, rounds: Vec::new(), took, used: Usage::default() })
    }

    pub(super) fn round(&mut self, calling: &mut Calling, untimed: Duration) -> Result<(), Problem> {
        let before = calling.usage()?;
        let begun = Instant::now();
        let loaded = calling.load(self.in_flight, untimed, self.timed)?;
        // Leaves out, in proportion, what was used in the untimed part.
        let counted = self.timed.as_secs_f64() / begun.elapsed().as_secs_f64().max(self.timed.as_secs_f64());
        let after = calling.usage()?;
        let part = |used: u64| (used as f64 * counted) as u64;
        self.used.processor_ns += part(after.processor_ns - before.processor_ns);
        self.used.datagrams += part(after.datagrams - before.datagrams);
        let answered: u64 = loaded.iter().map(|loaded| loaded.answered).sum();
        self.rounds.push(answered as f64 / self.timed.as_secs_f64());
        for (ns, count) in loaded.into_iter().flat_map(|loaded| loaded.took) {
            self.took.saturating_record_n(ns, count);
        }
        Ok(())
    }

    /// Returns the microseconds within which this fraction of the calls was answered.
    pub(super) fn us(&self, part: f64) -> f64 {
        rounded(self.took.value_at_quantile(part) as f64 / 1000.0)
    }

    /// Returns the microseconds of processor time per call, all processes together.
    pub(super) fn processor_us(&self) -> f64 {
        rounded(self.used.processor_ns as f64 / 1000.0 / self.took.len().max(1) as f64)
    }

    pub(super) fn datagrams(&self) -> f64 {
        rounded(self.used.datagrams as f64 / self.took.len().max(1) as f64)
    }
}

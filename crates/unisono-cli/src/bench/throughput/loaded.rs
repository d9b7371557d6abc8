//! Controls a group under load, and sums up what its members count.

use super::member::{self, Answer, Instruction, Tally};
use crate::bench::Protocol;
use crate::bench::reset::WasReset;
use crate::location::Location;
use crate::output::rounded;
use crate::passes::Passes;
use crate::problem::Problem;
use crate::processes::{Crew, monotonic_ns};
use crate::settings::Settings;
use crate::trial::lot;
use crate::worker;
use hdrhistogram::Histogram;
use std::time::{Duration, Instant};

/// Time limit for a join, and for the end of a block: 30 s.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time from the instruction to the beginning of a block, 20 ms, in which the instruction reaches every member.
const LEAD: Duration = Duration::from_millis(20);

/// The load of a group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) senders: usize,
    pub(crate) bytes: usize,
    /// Maximum number of messages of a sender under way.
    pub(crate) window: u32,
    pub(crate) protocol: Protocol,
}

/// A group under load.
pub(crate) struct Loaded {
    crew: Crew<Instruction, Answer>,
}

impl Loaded {
    /// Starts a member at each of the locations. The last ones send.
    pub(crate) fn start(load: &Load, locations: &[Location], settings: &Settings) -> Result<Loaded, Problem> {
        let group = format!("bench-{:08x}", lot(1 << 32)?);
        let mut loaded = Loaded { crew: Crew::new() };
        for (index, location) in locations.iter().enumerate() {
            let assignment = member::Assignment {
                group: group.clone(),
                founder: index == 0,
                // The sequencer sends only if all members do: a group's main work is to order the messages of others.
                sender: locations.len() - index <= load.senders,
                senders: load.senders,
                protocol: load.protocol,
                window: load.window,
                bytes: load.bytes,
                location: location.clone(),
                settings: settings.clone(),
            };
            loaded.crew.start(&worker::Assignment::Throughput(assignment))?;
            loaded.answer("a member to join")?;
        }
        Ok(loaded)
    }

    /// Runs one block, whose first part is not measured. Returns what each member counted.
    pub(crate) fn load(&mut self, untimed: Duration, timed: Duration) -> Result<Vec<Tally>, Problem> {
        Ok(Loaded::load_all(std::slice::from_mut(self), untimed, timed)?.swap_remove(0))
    }

    /// Runs one block of several groups at once. Returns what each member of each group counted.
    pub(crate) fn load_all(
        groups: &mut [Loaded],
        untimed: Duration,
        timed: Duration,
    ) -> Result<Vec<Vec<Tally>>, Problem> {
        let nanoseconds = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let from_ns = monotonic_ns() + nanoseconds(LEAD + untimed);
        let to_ns = from_ns + nanoseconds(timed);
        for group in &mut *groups {
            for index in 0..group.crew.len() {
                group.crew.instruct(index, &Instruction::Load { from_ns, to_ns })?;
            }
        }
        groups.iter_mut().map(Loaded::tallies).collect()
    }

    fn tallies(&mut self) -> Result<Vec<Tally>, Problem> {
        let mut tallies = Vec::new();
        while tallies.len() < self.crew.len() {
            match self.answer("a block to end")? {
                Answer::Tally(tally) => tallies.push(tally),
                other => return Err(Problem::failed(format!("a member answered {other:?}"))),
            }
        }
        Ok(tallies)
    }

    /// True if the sequencer reaches the others by multicast.
    pub(crate) fn by_multicast(&mut self) -> Result<bool, Problem> {
        self.crew.instruct(0, &Instruction::Transport)?;
        match self.answer("the transport")? {
            Answer::ByMulticast(is_so) => Ok(is_so),
            other => Err(Problem::failed(format!("a member answered {other:?}"))),
        }
    }

    fn answer(&mut self, what: &str) -> Result<Answer, Problem> {
        match self.crew.answer(Instant::now() + PATIENCE, &[], what)? {
            (_, Answer::WasReset) => Err(anyhow::Error::new(WasReset).into()),
            (index, Answer::Trouble(trouble)) => Err(Problem::failed(format!("member {index}: {trouble}"))),
            (_, answer) => Ok(answer),
        }
    }
}

/// What the members counted in all rounds.
pub(crate) struct Counted {
    timed: Duration,
    /// Messages per second of each round: the sum over the groups of what the slowest member delivered.
    pub(crate) rounds: Vec<f64>,
    delivered: u64,
    processor_ns: u64,
    datagrams: u64,
    /// Passes of the token in all groups.
    pub(crate) passes: Passes,
    took: Histogram<u64>,
    /// Whether all members of a group delivered the same messages, in the same order if they have one.
    pub(crate) alike: bool,
    /// Hand-overs of the sequencer's role in all groups, from their beginning.
    pub(crate) hand_overs: u64,
}

impl Counted {
    /// Starts counting, for rounds of this duration.
    pub(crate) fn new(timed: Duration) -> Result<Counted, Problem> {
        let took = Histogram::new_with_bounds(1, 60_000_000_000, 3).map_err(Problem::failed)?;
        Ok(Counted {
            timed,
            rounds: Vec::new(),
            delivered: 0,
            processor_ns: 0,
            datagrams: 0,
            passes: Passes::default(),
            took,
            alike: true,
            hand_overs: 0,
        })
    }

    /// Adds one round of one or several groups.
    pub(crate) fn round(&mut self, groups: &[Vec<Tally>]) {
        let mut delivered = 0;
        self.hand_overs =
            groups.iter().filter_map(|tallies| tallies.iter().map(|tally| tally.hand_overs).max()).sum();
        for tallies in groups {
            delivered += tallies.iter().map(|tally| tally.delivered).min().unwrap_or(0);
            for tally in tallies {
                self.processor_ns += tally.processor_ns;
                self.datagrams += tally.datagrams;
                self.passes.add(tally.passes);
                for &(ns, count) in &tally.took {
                    self.took.saturating_record_n(ns, count);
                }
                self.alike &= (tally.entries, tally.hash) == (tallies[0].entries, tallies[0].hash);
            }
        }
        self.delivered += delivered;
        self.rounds.push(delivered as f64 / self.timed.as_secs_f64());
    }

    fn seconds(&self) -> f64 {
        self.timed.as_secs_f64() * self.rounds.len().max(1) as f64
    }

    pub(crate) fn ordered_per_s(&self) -> f64 {
        (self.delivered as f64 / self.seconds()).round()
    }

    /// Returns the microseconds from submission to own delivery within which this fraction of the messages was.
    pub(crate) fn us(&self, part: f64) -> f64 {
        rounded(self.took.value_at_quantile(part) as f64 / 1000.0)
    }

    pub(crate) fn datagrams(&self) -> f64 {
        rounded(self.datagrams as f64 / self.delivered.max(1) as f64)
    }

    /// Returns the microseconds of processor time per message, all members together.
    pub(crate) fn processor_us(&self) -> f64 {
        rounded(self.processor_ns as f64 / 1000.0 / self.delivered.max(1) as f64)
    }

    /// Returns the number of processors that the members kept busy.
    pub(crate) fn processors(&self) -> f64 {
        rounded(self.processor_ns as f64 / 1e9 / self.seconds())
    }
}

//! A group under load, and what its members counted.

use super::member::{self, Answer, Instruction, Tally};
use crate::bench::Protocol;
use crate::bench::reset::WasReset;
use crate::location::Location;
use crate::output::rounded;
use crate::problem::Problem;
use crate::processes::{Crew, monotonic_ns};
use crate::settings::Settings;
use crate::trial::lot;
use crate::worker;
use hdrhistogram::Histogram;
use std::time::{Duration, Instant};

/// How long a join, or the end of a block, may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// From the order to the block's beginning: time for it to reach every member.
const LEAD: Duration = Duration::from_millis(20);

/// What a group is loaded with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) senders: usize,
    pub(crate) bytes: usize,
    /// Messages of a sender that may be under way.
    pub(crate) window: u32,
    pub(crate) protocol: Protocol,
}

/// A group under load.
pub(crate) struct Loaded {
    crew: Crew<Instruction, Answer>,
}

impl Loaded {
    /// Starts a member at each of the locations; the last of them send.
    pub(crate) fn start(load: &Load, locations: &[Location], settings: &Settings) -> Result<Loaded, Problem> {
        let group = format!("bench-{:08x}", lot(1 << 32)?);
        let mut loaded = Loaded { crew: Crew::new() };
        for (index, location) in locations.iter().enumerate() {
            let assignment = member::Assignment {
                group: group.clone(),
                founder: index == 0,
                // The sequencer is the last to send: a group's work is to order what others send.
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

    /// One block, of which the first part is not measured: what each member counted.
    pub(crate) fn load(&mut self, untimed: Duration, timed: Duration) -> Result<Vec<Tally>, Problem> {
        Ok(Loaded::load_all(std::slice::from_mut(self), untimed, timed)?.swap_remove(0))
    }

    /// One block of several groups at once: what each member of each counted.
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

    /// Whether the sequencer reaches the others by multicast.
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

/// What the members counted, all rounds together.
pub(crate) struct Counted {
    timed: Duration,
    /// Messages a second, by round: of each group what its slowest member delivered.
    pub(crate) rounds: Vec<f64>,
    delivered: u64,
    processor_ns: u64,
    datagrams: u64,
    took: Histogram<u64>,
    pub(crate) order_identical: bool,
    /// Hand-overs of the sequencer's role, of all groups since they began.
    pub(crate) hand_overs: u64,
}

impl Counted {
    /// Nothing yet, of rounds that last so long.
    pub(crate) fn new(timed: Duration) -> Result<Counted, Problem> {
        let took = Histogram::new_with_bounds(1, 60_000_000_000, 3).map_err(Problem::failed)?;
        Ok(Counted {
            timed,
            rounds: Vec::new(),
            delivered: 0,
            processor_ns: 0,
            datagrams: 0,
            took,
            order_identical: true,
            hand_overs: 0,
        })
    }

    /// One round of one group or of several.
    pub(crate) fn round(&mut self, groups: &[Vec<Tally>]) {
        let mut delivered = 0;
        self.hand_overs =
            groups.iter().filter_map(|tallies| tallies.iter().map(|tally| tally.hand_overs).max()).sum();
        for tallies in groups {
            delivered += tallies.iter().map(|tally| tally.delivered).min().unwrap_or(0);
            for tally in tallies {
                self.processor_ns += tally.processor_ns;
                self.datagrams += tally.datagrams;
                for &(ns, count) in &tally.took {
                    self.took.saturating_record_n(ns, count);
                }
                self.order_identical &= (tally.places, tally.hash) == (tallies[0].places, tallies[0].hash);
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

    /// Microseconds from submission to own delivery, for this part of the messages.
    pub(crate) fn us(&self, part: f64) -> f64 {
        rounded(self.took.value_at_quantile(part) as f64 / 1000.0)
    }

    pub(crate) fn datagrams(&self) -> f64 {
        rounded(self.datagrams as f64 / self.delivered.max(1) as f64)
    }

    /// Microseconds of processor time for each message, at all members together.
    pub(crate) fn processor_us(&self) -> f64 {
        rounded(self.processor_ns as f64 / 1000.0 / self.delivered.max(1) as f64)
    }

    /// How many processors the members kept busy.
    pub(crate) fn processors(&self) -> f64 {
        rounded(self.processor_ns as f64 / 1e9 / self.seconds())
    }
}

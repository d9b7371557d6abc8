//! Measurements of one side of a comparison, taken in blocks that alternate with those of the other sides.

use super::floor::Floor;
use super::latency::member::Usage;
use super::statistics::quantile;
use crate::output::rounded;
use crate::problem::Problem;

/// Messages of a block, unless that makes too few rounds.
const BLOCK_MESSAGES: usize = 250;
/// Minimum number of rounds for a ratio.
const ROUNDS_MIN: usize = 5;
/// Messages at the beginning of each block that are not timed: they fill the caches, which the other side has used.
pub(super) const UNTIMED: usize = 20;

/// Returns the number of rounds and the messages of each, for this number of messages in all.
pub(super) fn blocks(messages: u64) -> (usize, usize) {
    let timed = usize::try_from(messages).unwrap_or(usize::MAX);
    let rounds = (timed / BLOCK_MESSAGES).max(ROUNDS_MIN);
    (rounds, timed.div_ceil(rounds))
}

/// The measurements of one side.
#[derive(Default)]
pub(super) struct Side {
    /// Time of each message in nanoseconds.
    pub(super) took: Vec<u64>,
    /// Median of each round in nanoseconds.
    pub(super) rounds: Vec<f64>,
    /// Resources used in all rounds, for the untimed messages too.
    pub(super) used: Usage,
}

impl Side {
    /// Measures one round of this side.
    pub(super) fn turn<T>(
        &mut self,
        subject: &mut T,
        usage: impl Fn(&mut T) -> Result<Usage, Problem>,
        measure: impl Fn(&mut T) -> Result<Vec<u64>, Problem>,
    ) -> Result<(), Problem> {
        let before = usage(subject)?;
        let mut took = measure(subject)?;
        let after = usage(subject)?;
        self.used.processor_ns += after.processor_ns - before.processor_ns;
        self.used.datagrams += after.datagrams - before.datagrams;
        self.used.passes.add(after.passes.since(before.passes));
        // Hand-overs before the first round count too.
        self.used.hand_overs = after.hand_overs;
        self.rounds.push(quantile(&mut took, 0.5) as f64);
        self.took.append(&mut took);
        Ok(())
    }

    /// Returns the time in microseconds within which this fraction of the messages was delivered.
    pub(super) fn us(&mut self, part: f64) -> f64 {
        rounded(quantile(&mut self.took, part) as f64 / 1000.0)
    }

    fn per_message(&self, sum: u64) -> f64 {
        sum as f64 / (self.took.len() + self.rounds.len() * UNTIMED).max(1) as f64
    }

    pub(super) fn datagrams(&self) -> f64 {
        rounded(self.per_message(self.used.datagrams))
    }

    pub(super) fn processor_us(&self) -> f64 {
        rounded(self.per_message(self.used.processor_ns) / 1000.0)
    }
}

impl Usage {
    /// Returns what the floor has used so far.
    pub(super) fn of(floor: &mut Floor) -> Result<Usage, Problem> {
        Ok(Usage { processor_ns: floor.processor_ns()?, ..Usage::default() })
    }
}

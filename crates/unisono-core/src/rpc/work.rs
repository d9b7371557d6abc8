//! A limit on cryptographic work: the signatures that are made, or checked, per second.
//!
//! A question for a port is outside of any epoch, where nothing detects recordings. A process that sends one again and again,
//! or invents new ones, must not occupy the thread that also serves the groups of this process. Work beyond the budget
//! is not done; the processes that wait for it ask again. One source address cannot spend all of it: the other ones have a
//! reserve of the same size, of which each has a share.

use crate::shares::{Bound, Source};
use crate::time::Time;
use alloc::collections::BTreeMap;
use core::ops::Bound::{Excluded, Unbounded};
use core::time::Duration;

/// Interval in which the budget grows by one signature: 1,000 per second. Each takes 30 to 100 µs of a processor.
const EVERY: Duration = Duration::from_millis(1);
/// Number of signatures that may come at once: half of them from one source address, which has then to be content with what grows.
const SIGNATURES_AT_ONCE: u32 = 128;
const AT_ONCE: Bound = Bound { most: SIGNATURES_AT_ONCE as usize, part: 4 };

/// A budget of signatures.
#[derive(Clone, Debug)]
pub(super) struct WorkBudget {
    left: u32,
    /// When the last signature was added.
    grown_at: Time,
    /// What was spent for each source and has not grown again, up to `SIGNATURES_AT_ONCE` for all.
    of_sources: BTreeMap<Source, u32>,
    /// The source that got the last one that grew.
    turn: Option<Source>,
}

impl WorkBudget {
    pub(super) fn new(now: Time) -> WorkBudget {
        WorkBudget { left: SIGNATURES_AT_ONCE, grown_at: now, of_sources: BTreeMap::new(), turn: None }
    }

    /// Spends one signature for a source and returns true; returns false if none is left, or if the source has its share.
    pub(super) fn spend(&mut self, now: Time, source: Source) -> bool {
        let grown = now.since(self.grown_at).as_nanos() / EVERY.as_nanos();
        let missing = SIGNATURES_AT_ONCE - self.left;
        match u32::try_from(grown).ok().filter(|grown| *grown < missing) {
            Some(grown) => {
                self.left += grown;
                self.grown_at = self.grown_at + EVERY * grown;
                self.give_back(grown);
            }
            None => {
                (self.left, self.grown_at) = (SIGNATURES_AT_ONCE, now);
                self.of_sources.clear();
            }
        }
        let own = self.of_sources.get(&source).copied().unwrap_or(0);
        let spent = SIGNATURES_AT_ONCE - self.left;
        let is_admitted = AT_ONCE.admits(spent as usize, own as usize, 1);
        if is_admitted {
            self.left -= 1;
            self.of_sources.insert(source, own + 1);
        }
        is_admitted
    }

    /// Gives what has grown to those that spent, in turn: one that spends less than an equal part has its share again.
    fn give_back(&mut self, grown: u32) {
        for _ in 0..grown {
            let after = self.turn.map_or(Unbounded, Excluded);
            let next = self.of_sources.range((after, Unbounded)).next().or(self.of_sources.first_key_value());
            let Some(source) = next.map(|(source, _)| *source) else { return };
            self.turn = Some(source);
            if let Some(spent) = self.of_sources.get_mut(&source) {
                *spent -= 1;
                if *spent == 0 {
                    self.of_sources.remove(&source);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Time {
        Time::from_nanos(1_000_000_000 + micros * 1000)
    }

    #[test]
    fn a_burst_is_followed_by_one_signature_each_millisecond() {
        let (mut budget, source) = (WorkBudget::new(at(0)), Source::of_host(1));
        assert_eq!((0..1000).filter(|_| budget.spend(at(0), source)).count(), 64);
        // However often it is asked, also between two milliseconds.
        let asks = (0..1_000_000).step_by(10);
        assert_eq!(asks.filter(|micros| budget.spend(at(*micros), source)).count(), 999);
        assert_eq!(
            (0..1000).filter(|_| budget.spend(at(30_999_999), source)).count(),
            64,
            "it does not grow further"
        );
    }

    #[test]
    fn one_that_asks_for_all_leaves_a_share_to_each_other() {
        let (mut budget, greedy) = (WorkBudget::new(at(0)), Source::of_host(9));
        let (mut done, mut missed) = (0, 0);
        for micros in (0..1_000_000).step_by(10) {
            done += u32::from(budget.spend(at(micros), greedy));
            // Twenty others, each every 100 ms.
            if micros % 5000 == 0 {
                missed +=
                    u32::from(!budget.spend(at(micros), Source::of_host((micros / 5000 % 20) as u8 + 10)));
            }
        }
        assert_eq!(missed, 0);
        assert!((800..=1064).contains(&done), "{done}");
        // However many there are, the bound holds for all.
        let mut budget = WorkBudget::new(at(0));
        let all = (0..10_000).filter(|index| budget.spend(at(0), Source::of_host((index % 250) as u8)));
        assert_eq!(all.count(), 128);
    }
}

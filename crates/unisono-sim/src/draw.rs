//! Draws values of various kinds from a [`Random`]. Uses only integers and the four basic operations, so that every
//! machine draws the same values.

use std::time::Duration;
use unisono_core::Random;

/// Draws of plans, applications and faults.
pub(crate) trait Draw {
    /// Returns a number from `low` to `high`, both included, all equally likely.
    fn between(&mut self, low: u64, high: u64) -> u64;

    /// Returns a number from `low` to `high`. Each octave (doubling) is equally likely: for quantities whose order of
    /// magnitude matters.
    fn spread(&mut self, low: u64, high: u64) -> u64;

    /// Returns a number from 0 to `high`.
    fn part(&mut self, high: f64) -> f64;

    /// Returns one of `choices`, all equally likely.
    fn pick<T: Copy>(&mut self, choices: &[T]) -> T;

    /// Returns one of `choices`, each with the probability that its weight gives.
    fn weigh<T: Copy>(&mut self, choices: &[(u32, T)]) -> T;

    /// Returns nanoseconds for `low` to `high` milliseconds, drawn as by [`Draw::spread`].
    fn millis(&mut self, low: u64, high: u64) -> u64 {
        self.spread(low * MILLISECOND, high * MILLISECOND)
    }

    /// Returns the same as a [`Duration`].
    fn duration(&mut self, low: u64, high: u64) -> Duration {
        Duration::from_nanos(self.millis(low, high))
    }
}

/// Nanoseconds in a millisecond.
pub(crate) const MILLISECOND: u64 = 1_000_000;
/// Nanoseconds in a second.
pub(crate) const SECOND: u64 = 1_000 * MILLISECOND;

impl Draw for Random {
    fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    fn spread(&mut self, low: u64, high: u64) -> u64 {
        let octaves = (high / low.max(1)).checked_ilog2().unwrap_or(0);
        let from = low << self.below(u64::from(octaves) + 1);
        self.between(from, (2 * from).min(high).max(from))
    }

    fn part(&mut self, high: f64) -> f64 {
        self.fraction() * high
    }

    fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    fn weigh<T: Copy>(&mut self, choices: &[(u32, T)]) -> T {
        let total: u32 = choices.iter().map(|(weight, _)| weight).sum();
        let mut left = self.below(total.into()) as u32;
        for (weight, choice) in choices {
            if left < *weight {
                return *choice;
            }
            left -= weight;
        }
        choices[choices.len() - 1].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_stay_in_range_and_reach_its_ends() {
        let mut random = Random::from_u64(1);
        let drawn: Vec<u64> = (0..2_000).map(|_| random.between(3, 7)).collect();
        assert_eq!((drawn.iter().min(), drawn.iter().max()), (Some(&3), Some(&7)));
        let spread: Vec<u64> = (0..2_000).map(|_| random.spread(1, 1000)).collect();
        assert!(spread.iter().all(|value| (1..=1000).contains(value)));
        assert!(
            spread.iter().filter(|value| **value < 32).count() > 800,
            "small values are as likely as large ones"
        );
        assert!(spread.iter().any(|value| *value > 900));
    }

    #[test]
    fn weights_count() {
        let mut random = Random::from_u64(2);
        let heavy = (0..1_000).filter(|_| random.weigh(&[(9, true), (1, false)])).count();
        assert!((850..950).contains(&heavy), "{heavy}");
        assert!(!(0..100).any(|_| random.weigh(&[(0, true), (1, false)])));
    }
}

//! A limit on cryptographic work: the signatures that are made, or checked, per second.
//!
//! A question for a port is outside of any epoch, where nothing detects recordings. A process that sends one again and again,
//! or invents new ones, must not occupy the thread that also serves the groups of this process. Work beyond the budget
//! is not done; the processes that wait for it ask again.

use crate::time::Time;
use core::time::Duration;

/// Interval in which the budget grows by one signature: 1,000 per second. Each takes 30 to 100 µs of a processor.
const EVERY: Duration = Duration::from_millis(1);
/// Number of signatures that may come at once.
const SIGNATURES_AT_ONCE: u32 = 64;

/// A budget of signatures.
#[derive(Clone, Copy, Debug)]
pub(super) struct WorkBudget {
    left: u32,
    /// When the last signature was added.
    grown_at: Time,
}

impl WorkBudget {
    pub(super) fn new(now: Time) -> WorkBudget {
        WorkBudget { left: SIGNATURES_AT_ONCE, grown_at: now }
    }

    /// Spends one signature and returns true; returns false if none is left.
    pub(super) fn spend(&mut self, now: Time) -> bool {
        let grown = now.since(self.grown_at).as_nanos() / EVERY.as_nanos();
        let missing = SIGNATURES_AT_ONCE - self.left;
        match u32::try_from(grown).ok().filter(|grown| *grown < missing) {
            Some(grown) => {
                self.left += grown;
                self.grown_at = self.grown_at + EVERY * grown;
            }
            None => (self.left, self.grown_at) = (SIGNATURES_AT_ONCE, now),
        }
        let is_left = self.left > 0;
        self.left -= u32::from(is_left);
        is_left
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
        let mut budget = WorkBudget::new(at(0));
        assert_eq!((0..1000).filter(|_| budget.spend(at(0))).count(), 64);
        // However often it is asked, also between two milliseconds.
        assert_eq!((0..1_000_000).step_by(10).filter(|micros| budget.spend(at(*micros))).count(), 999);
        assert_eq!(
            (0..1000).filter(|_| budget.spend(at(30_999_999))).count(),
            64,
            "it does not grow further"
        );
    }
}

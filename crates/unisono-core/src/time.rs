//! Time, as the core sees it: a number that the caller passes.
//!
//! The core never reads a clock. The caller passes the time with every input, from any origin, and it never goes back.
//! So a simulated hour takes milliseconds, and a run can be repeated to the last bit.

use core::ops::{Add, Sub};
use core::time::Duration;

/// A moment, in nanoseconds since an origin of the caller's choice.
///
/// ```
/// use core::time::Duration;
/// use unisono_core::Time;
/// let start = Time::from_nanos(5_000_000);
/// assert_eq!((start + Duration::from_millis(2)) - start, Duration::from_millis(2));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    /// The origin.
    pub const ZERO: Time = Time(0);
    /// Later than anything that happens.
    pub const NEVER: Time = Time(u64::MAX);

    /// Returns the moment `nanos` nanoseconds after the origin.
    pub const fn from_nanos(nanos: u64) -> Time {
        Time(nanos)
    }

    /// Returns the nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the time since `earlier`; zero if that lies ahead.
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Limits how often something is done.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace(Option<Time>);

impl Pace {
    /// True if it was not done within `every`.
    pub(crate) fn is_due(self, now: Time, every: Duration) -> bool {
        self.0.is_none_or(|last| now.since(last) >= every)
    }

    /// Notes that it is done now.
    pub(crate) fn note(&mut self, now: Time) {
        self.0 = Some(now);
    }

    /// Returns true if it is due, and then notes that it is done.
    pub(crate) fn take(&mut self, now: Time, every: Duration) -> bool {
        let due = self.is_due(now, every);
        if due {
            self.note(now);
        }
        due
    }
}

/// Returns the earlier of two deadlines, either of which may not be set.
pub(crate) fn earlier(a: Option<Time>, b: Option<Time>) -> Option<Time> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

impl Add<Duration> for Time {
    type Output = Time;
    fn add(self, later: Duration) -> Time {
        Time(self.0.saturating_add(u64::try_from(later.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub for Time {
    type Output = Duration;
    fn sub(self, earlier: Time) -> Duration {
        self.since(earlier)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_is_kept_from_the_first_time_on_whenever_the_clock_began() {
        let every = Duration::from_millis(5);
        let mut pace = Pace::default();
        assert!(pace.take(Time::ZERO, every));
        assert!(!pace.take(Time::from_nanos(4_999_999), every));
        assert!(pace.take(Time::from_nanos(5_000_000), every));
        assert!(
            !pace.take(Time::from_nanos(9_999_999), every),
            "counted from the last time that it was done"
        );
    }
}

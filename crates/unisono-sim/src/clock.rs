//! The clock of one life: it starts at a random time, and runs a little too fast or too slow.
//!
//! Members never compare times with each other, and nothing may depend on equal clock rates. So each life has its own
//! origin and drift, and the world converts. Lives that follow each other in one process share the clock of the process.

use unisono_core::Time;

/// Converts between the world's nanoseconds and the time that one life reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    born: u64,
    origin: u64,
    /// Nanoseconds gained per 2^20 nanoseconds; negative if the clock is slow.
    gain: i64,
}

/// Drift is counted per 2^20 nanoseconds, which is about a millisecond.
const PART_BITS: u32 = 20;

/// Most nanoseconds (36 years) until a deadline that is ever due; no run is that long.
const DEADLINE_MAX: u64 = 1 << 60;

impl Clock {
    /// Returns a clock that shows `origin` at the world's time `born` and gains `gain` nanoseconds (or loses, if
    /// negative) per 2^20. A gain of 10,486 is one percent.
    pub(crate) fn new(born: u64, origin: u64, gain: i64) -> Clock {
        Clock { born, origin, gain }
    }

    /// Returns the time that it shows at the world's time `now`.
    pub(crate) fn read(&self, now: u64) -> Time {
        let elapsed = now.saturating_sub(self.born);
        let gained = (elapsed as i64).saturating_mul(self.gain) >> PART_BITS;
        Time::from_nanos(self.origin.saturating_add_signed(elapsed as i64 + gained))
    }

    /// Returns the first world time at which it shows `time` or more; `u64::MAX` if that is never.
    pub(crate) fn moment(&self, time: Time) -> u64 {
        let wanted = time.as_nanos().saturating_sub(self.origin);
        if wanted > DEADLINE_MAX {
            return u64::MAX;
        }
        let mut moment = self.born.saturating_add(wanted);
        if self.gain > 0 {
            moment -= (wanted.saturating_mul(self.gain as u64) >> PART_BITS).min(wanted);
        }
        // Each iteration reduces the difference to at most a hundredth.
        loop {
            let shown = self.read(moment);
            if shown >= time {
                return moment;
            }
            moment += (time - shown).as_nanos() as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_core::Random;

    #[test]
    fn a_deadline_is_never_met_early_and_hardly_late() {
        let mut random = Random::from_u64(5);
        for _ in 0..10_000 {
            let gain = random.below(20_972) as i64 - 10_486;
            let clock = Clock::new(random.below(1 << 40), random.below(1 << 50), gain);
            let now = clock.born + random.below(1 << 36);
            let wanted = Time::from_nanos(clock.read(now).as_nanos() + random.below(1 << 34));
            let late = clock.read(clock.moment(wanted)) - wanted;
            assert!(late.as_nanos() < 100_000, "{late:?} late, gain {gain}");
        }
    }

    #[test]
    fn time_never_goes_back() {
        let clock = Clock::new(0, 17, -10_486);
        let shown: Vec<Time> = (0..4_000_000).step_by(997).map(|now| clock.read(now)).collect();
        assert!(shown.is_sorted());
    }
}

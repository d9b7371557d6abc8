//! Work: whatever arrives, an endpoint makes and checks a bounded number of signatures per second, so that questions and
//! answers that are sent again and again do not occupy the thread that also serves groups.

use crate::properties::{Facts, Property, Violation, broken};
use crate::record::{Kind, Record, What};
use std::collections::VecDeque;
use std::time::Duration;
use unisono_core::Time;

/// Maximum number of signatures in one second, made or checked: 1,000, a burst of 64, and what clocks that run one
/// percent too fast add.
const SECOND_MAX: u64 = 1_000 + 64 + 11;

/// The checker of `work`.
#[derive(Debug, Default)]
pub(super) struct Work {
    /// For each life: when, and how many signatures it had made and checked by then; the last second.
    lives: Vec<VecDeque<(Time, [u64; 2])>>,
    checked: u64,
}

impl Property for Work {
    fn name(&self) -> &'static str {
        "work"
    }

    fn interests(&self) -> u64 {
        Kind::Worked.bit()
    }

    fn observe(&mut self, record: &Record, _: &Facts) -> Result<(), Violation> {
        let What::Worked { made, checked } = record.what else { return Ok(()) };
        let index = record.life.index();
        if self.lives.len() <= index {
            self.lives.resize(index + 1, VecDeque::new());
        }
        let life = &mut self.lives[index];
        life.push_back((record.at, [made, checked]));
        // The last record that is a second old or more, or else the beginning of the life.
        while let Some((at, _)) = life.get(1)
            && record.at.since(*at) >= Duration::from_secs(1)
        {
            life.pop_front();
        }
        self.checked += 1;
        let is_old = |(at, _): &&(Time, [u64; 2])| record.at.since(*at) >= Duration::from_secs(1);
        let before = life.front().filter(is_old).map_or([0; 2], |(_, done)| *done);
        if made - before[0] > SECOND_MAX || checked - before[1] > SECOND_MAX {
            return broken(self, record, || {
                format!("more than {SECOND_MAX} signatures were made or checked in a second")
            });
        }
        Ok(())
    }

    fn checked(&self) -> u64 {
        self.checked
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Fixture, SERVER};
    use super::*;

    /// Records this many signatures per millisecond for a second and a half.
    fn worked(per_millisecond: u64, what: impl Fn(u64) -> What) -> Fixture {
        let mut fixture = Fixture::default();
        for millisecond in 1..=1_500 {
            fixture.wait(Duration::from_micros(999));
            fixture.record(SERVER, what(millisecond * per_millisecond));
        }
        fixture
    }

    #[test]
    fn accepts_a_signature_each_millisecond_and_not_two() {
        worked(1, |done| What::Worked { made: done, checked: done }).good(Work::default());
        worked(2, |done| What::Worked { made: done, checked: 0 }).bad(Work::default());
        worked(2, |done| What::Worked { made: 0, checked: done }).bad(Work::default());
    }
}

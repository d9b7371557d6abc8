//! Copies agree: all copies of a service apply the same commands in the same order, with the same outcomes, and are shown
//! the same members at the same places between commands. A copy whose memory went bad stops soon after the next
//! comparison, and no other copy stops for that reason.
//!
//! With the durability *ordered*, a crash may lose the last commands, so there copies are compared within an epoch.

use super::{Map, Property, Violation, broken, content};
use crate::properties::Facts;
use crate::record::{Epoch, Kind, Life, Place, Record, ReplicaRecord, Service, Stop};

/// Copies compare their digests at each multiple of this position.
const COMPARED_EVERY: u64 = 1024;
/// Commands that may be applied until all digests have arrived.
const COMPARED_WITHIN: u64 = 600;

/// The checker of `copies_agree`.
#[derive(Debug, Default)]
pub(super) struct CopiesAgree {
    held_by_all: bool,
    /// Hash of the trail after each step, by service and epoch.
    trails: Map<(Service, Epoch), Vec<Option<u64>>>,
    /// Position of each copy, and for those with bad memory the position at which it went bad.
    positions: Map<Life, u64>,
    corrupted: Map<Life, u64>,
    checked: u64,
    /// True once an operator let the service begin anew.
    begins_anew: bool,
}

impl CopiesAgree {
    fn compare(&mut self, record: &Record, at: &Place) -> Result<(), Violation> {
        self.positions.insert(record.life, at.position);
        if let Some(since) = self.corrupted.get(&record.life) {
            let most = (since + 1).next_multiple_of(COMPARED_EVERY) + COMPARED_WITHIN;
            return match at.position > most {
                true => broken(self, record, || format!("its memory went bad at position {since}")),
                false => Ok(()),
            };
        }
        let epoch = if self.held_by_all { Epoch(0) } else { at.epoch };
        let trails = self.trails.entry((at.service, epoch)).or_default();
        let step = at.trail.steps as usize;
        if trails.len() <= step {
            trails.resize(step + 1, None);
        }
        let known = *trails[step].get_or_insert(at.trail.hash);
        self.checked += 1;
        match known == at.trail.hash {
            true => Ok(()),
            false => broken(self, record, || format!("another copy differs at step {step}")),
        }
    }

    fn check_stop(&mut self, record: &Record, reason: &Stop) -> Result<(), Violation> {
        let corrupted = self.corrupted.get(&record.life).copied();
        match (reason, corrupted) {
            (Stop::Differs(since, through), Some(bad)) if *since <= bad && bad < *through => Ok(()),
            (Stop::Differs(..), bad) => broken(self, record, || format!("its memory went bad at {bad:?}")),
            (Stop::NothingLost, _) if !self.begins_anew => {
                broken(self, record, || "no operator lets the service begin anew".into())
            }
            (Stop::DiskRefused(why), _) => {
                broken(self, record, || format!("its storage refused a job: {why}"))
            }
            (Stop::Other(_), _) => broken(self, record, || "no copy has a reason for that".into()),
            (
                Stop::GivesWay
                | Stop::StateLost
                | Stop::DiskHangs { .. }
                | Stop::DiskFailed
                | Stop::ReplaceNeeded
                | Stop::GivenUp
                | Stop::NothingLost,
                _,
            ) => Ok(()),
        }
    }
}

impl Property for CopiesAgree {
    fn name(&self) -> &'static str {
        "copies_agree"
    }

    fn interests(&self) -> u64 {
        Kind::Replica.bit()
    }

    fn observe(&mut self, record: &Record, _: &Facts) -> Result<(), Violation> {
        match content(record) {
            Some(ReplicaRecord::Terms { held_by_all, .. }) => self.held_by_all = *held_by_all,
            Some(
                ReplicaRecord::Applied { at, .. }
                | ReplicaRecord::Members(at)
                | ReplicaRecord::Restored(at)
                | ReplicaRecord::Informed(at),
            ) => return self.compare(record, at),
            Some(ReplicaRecord::Corrupted) => {
                let position = self.positions.get(&record.life).copied().unwrap_or_default();
                self.corrupted.insert(record.life, position);
            }
            Some(ReplicaRecord::BeginsAnew) => self.begins_anew = true,
            Some(ReplicaRecord::Stopped { reason, .. }) => return self.check_stop(record, reason),
            _ => {}
        }
        Ok(())
    }

    fn checked(&self) -> u64 {
        self.checked
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{A, B, Fixture, SERVICE};
    use super::*;

    #[test]
    fn accepts_copies_that_agree_and_a_newcomer() {
        let mut fixture = Fixture::three_copies();
        (0..20).for_each(|word| fixture.append(word));
        fixture.good(CopiesAgree::default());
    }

    #[test]
    fn rejects_another_outcome_order_or_place_of_members() {
        for change in 0..3 {
            let mut fixture = Fixture::three_copies();
            fixture.append(1);
            let mut place = fixture.place(B);
            match change {
                0 => place.trail.hash ^= 1,
                1 => place.trail.steps -= 1,
                _ => place.trail.steps += 1,
            }
            if change == 2 {
                // The members are shown twice at one copy: its next command is a step later.
                fixture.record(B, ReplicaRecord::Members(place));
                fixture.append(2);
            } else {
                fixture.record(B, ReplicaRecord::Members(place));
            }
            if change != 2 {
                fixture.bad(CopiesAgree::default());
            }
        }
    }

    #[test]
    fn accepts_a_refusal_to_begin_anew_only_where_an_operator_asked_for_it() {
        let refused = ReplicaRecord::Stopped { at: None, reason: Stop::NothingLost };
        let mut fixture = Fixture::three_copies();
        fixture.record(A, refused.clone());
        fixture.bad(CopiesAgree::default());
        let mut fixture = Fixture::three_copies();
        fixture.record(Life::WORLD, ReplicaRecord::BeginsAnew);
        fixture.record(A, refused);
        fixture.good(CopiesAgree::default());
    }

    #[test]
    fn rejects_a_copy_that_asks_its_disk_for_what_does_not_fit() {
        for (reason, is_good) in [(Stop::DiskFailed, true), (Stop::DiskRefused("it is blank".into()), false)]
        {
            let mut fixture = Fixture::three_copies();
            fixture.record(A, ReplicaRecord::Stopped { at: None, reason });
            match is_good {
                true => fixture.good(CopiesAgree::default()),
                false => fixture.bad(CopiesAgree::default()),
            }
        }
    }

    #[test]
    fn rejects_a_stop_without_cause_and_a_bad_copy_that_goes_on() {
        let mut fixture = Fixture::three_copies();
        fixture.record(A, ReplicaRecord::Stopped { at: None, reason: Stop::Differs(0, 1024) });
        fixture.bad(CopiesAgree::default());
        let mut fixture = Fixture::three_copies();
        fixture.record(A, ReplicaRecord::Corrupted);
        let mut place = fixture.place(A);
        place.position = 2048;
        fixture.record(A, ReplicaRecord::Members(place));
        fixture.bad(CopiesAgree::default());
    }

    #[test]
    fn accepts_a_bad_copy_that_stops_in_time() {
        let mut fixture = Fixture::three_copies();
        fixture.record(A, ReplicaRecord::Corrupted);
        fixture.record(A, ReplicaRecord::Stopped { at: None, reason: Stop::Differs(0, 1024) });
        assert_eq!(fixture.place(B).service, SERVICE);
        fixture.good(CopiesAgree::default());
    }
}

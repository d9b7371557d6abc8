//! G5, total order: whoever receives anything at a place of an epoch receives the same there: the same message of
//! the same sender, or the same join, leave, hand-over or reset.

use super::streams::{PLACED, placed};
use super::tables::{Places, Table};
use super::{Facts, Property, Violation, broken};
use crate::record::Record;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct TotalOrder {
    /// By epoch and place, a hash of what is there; zero for nothing yet.
    places: Table<Places<u64>>,
    checked: u64,
}

impl Property for TotalOrder {
    fn name(&self) -> &'static str {
        "total_order"
    }

    fn interests(&self) -> u64 {
        PLACED
    }

    #[inline(always)]
    fn observe(&mut self, record: &Record, facts: &Facts) -> Result<(), Violation> {
        if let Some((epoch, seqno, value)) = placed(record, facts.stream(record.life)) {
            self.checked += 1;
            match self.places.at(epoch).at(seqno) {
                Some(known) if *known == 0 => *known = value,
                Some(known) if *known == value => {}
                Some(_) => return broken(self, record, || "others received something else there".into()),
                None => return broken(self, record, || "a place beyond all reason".into()),
            }
        }
        Ok(())
    }

    fn checked(&self) -> u64 {
        self.checked
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::properties::fixture::{Fixture, change_reset, delivery, reset_of};
    use crate::record::{Life, What};

    #[test]
    fn takes_one_order() {
        Fixture::of_a_place_given_out_twice().good(TotalOrder::default());
    }

    #[test]
    fn rejects_two_messages_at_one_place() {
        let mut fixture = Fixture::of_a_place_given_out_twice();
        let first = fixture.records.iter().position(delivery(Life(1))).unwrap();
        let second = fixture.position(delivery(Life(1)));
        fixture.records[first].what = fixture.records[second].what.clone();
        if let What::Delivered { seqno, .. } = &mut fixture.records[first].what {
            *seqno = 3;
        }
        fixture.bad(TotalOrder::default());
    }

    #[test]
    fn rejects_a_join_that_others_see_elsewhere() {
        let mut fixture = Fixture::of_a_place_given_out_twice();
        let joined = |record: &Record| record.life == Life(0) && matches!(record.what, What::Joined { .. });
        if let What::Joined { seqno, .. } = &mut fixture.last(joined).what {
            *seqno += 1;
        }
        fixture.bad(TotalOrder::default());
    }

    #[test]
    fn rejects_two_tellings_of_one_reset() {
        let mut fixture = Fixture::of_a_place_given_out_twice();
        change_reset(fixture.last(reset_of(Life(2))), |reset| reset.degraded = true);
        fixture.bad(TotalOrder::default());
    }

    #[test]
    fn rejects_a_place_beyond_reason() {
        let mut fixture = Fixture::of_a_place_given_out_twice();
        if let What::Delivered { seqno, .. } = &mut fixture.last(delivery(Life(1))).what {
            *seqno = u64::MAX;
        }
        fixture.bad(TotalOrder::default());
    }
}

//! G5, total order: all members that deliver an event at a seqno of an epoch deliver the same event there: the same
//! message of the same sender, or the same join, leave, hand-over or reset.

use super::streams::{SEQUENCED, sequenced};
use super::tables::{NumberTable, Table};
use super::{Facts, Property, Violation, broken};
use crate::record::Record;

/// The checker of `total_order`.
#[derive(Debug, Default)]
pub(super) struct TotalOrder {
    /// By epoch and seqno, a hash of the event there; 0 for none yet.
    events: Table<NumberTable<u64>>,
    checked: u64,
}

impl Property for TotalOrder {
    fn name(&self) -> &'static str {
        "total_order"
    }

    fn interests(&self) -> u64 {
        SEQUENCED
    }

    #[inline(always)]
    fn observe(&mut self, record: &Record, facts: &Facts) -> Result<(), Violation> {
        if let Some((epoch, seqno, value)) = sequenced(record, facts) {
            self.checked += 1;
            match self.events.at(epoch).at(seqno) {
                Some(known) if *known == 0 => *known = value,
                Some(known) if *known == value => {}
                Some(_) => {
                    return broken(self, record, || {
                        "another member received another event at this seqno".into()
                    });
                }
                None => return broken(self, record, || "the seqno is out of range".into()),
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
    fn accepts_one_order() {
        Fixture::of_a_reassigned_seqno().good(TotalOrder::default());
    }

    #[test]
    fn rejects_two_messages_at_one_seqno() {
        let mut fixture = Fixture::of_a_reassigned_seqno();
        let first = fixture.records.iter().position(delivery(Life(1))).unwrap();
        let second = fixture.position(delivery(Life(1)));
        fixture.records[first].what = fixture.records[second].what.clone();
        if let What::Delivered { seqno, .. } = &mut fixture.records[first].what {
            *seqno = 3;
        }
        fixture.bad(TotalOrder::default());
    }

    #[test]
    fn rejects_a_join_with_another_seqno_at_one_member() {
        let mut fixture = Fixture::of_a_reassigned_seqno();
        let joined = |record: &Record| record.life == Life(0) && matches!(record.what, What::Joined { .. });
        if let What::Joined { seqno, .. } = &mut fixture.last(joined).what {
            *seqno += 1;
        }
        fixture.bad(TotalOrder::default());
    }

    #[test]
    fn rejects_two_versions_of_one_reset() {
        let mut fixture = Fixture::of_a_reassigned_seqno();
        change_reset(fixture.last(reset_of(Life(2))), |reset| reset.degraded = true);
        fixture.bad(TotalOrder::default());
    }

    #[test]
    fn rejects_a_seqno_out_of_range() {
        let mut fixture = Fixture::of_a_reassigned_seqno();
        if let What::Delivered { seqno, .. } = &mut fixture.last(delivery(Life(1))).what {
            *seqno = u64::MAX;
        }
        fixture.bad(TotalOrder::default());
    }
}

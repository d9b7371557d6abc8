//! G7, same prefix: where the streams of two members overlap, they are equal. The check goes event by event: members
//! that deliver the same event at a seqno delivered the same event just before it, across resets too. By induction,
//! everything before is the same, back to where the later of the two streams began.

use super::streams::{SEQUENCED, sequenced};
use super::tables::{NumberTable, Table};
use super::{Facts, Property, Violation, broken};
use crate::record::{Record, What, mix};

/// The checker of `same_prefix`.
#[derive(Debug, Default)]
pub(super) struct SamePrefix {
    /// By epoch and seqno, a hash of the event before it; 0 for none known.
    links: Table<NumberTable<u64>>,
    /// By life, a hash of its last event.
    last: Table<u64>,
    checked: u64,
}

impl Property for SamePrefix {
    fn name(&self) -> &'static str {
        "same_prefix"
    }

    fn interests(&self) -> u64 {
        SEQUENCED
    }

    #[inline(always)]
    fn observe(&mut self, record: &Record, facts: &Facts) -> Result<(), Violation> {
        let here = sequenced(record, facts);
        let last = self.last.at(record.life);
        let Some((epoch, seqno, value)) = here else {
            // A founder's stream begins at seqno 0, before any event that other members receive.
            *last = 1;
            return Ok(());
        };
        let before = std::mem::replace(last, mix(mix(value, seqno), u64::from(epoch.0)) | 1);
        if matches!(record.what, What::Entered { .. }) {
            return Ok(());
        }
        self.checked += 1;
        match self.links.at(epoch).at(seqno) {
            Some(known) if *known == 0 => *known = before,
            Some(known) if *known != before => {
                return broken(self, record, || "another member received another event just before".into());
            }
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
    use super::*;
    use crate::properties::fixture::{Fixture, delivery};
    use crate::record::Life;

    fn good() -> Fixture {
        let mut fixture = Fixture::of(3, 1);
        fixture.message(Life(1));
        fixture.message(Life(2));
        fixture.join();
        fixture.message(Life(0));
        fixture.crash(Life(0));
        fixture.reset(&[Life(1), Life(2), Life(3)]);
        fixture.message(Life(3));
        fixture
    }

    #[test]
    fn accepts_streams_that_overlap() {
        good().good(SamePrefix::default());
    }

    #[test]
    fn rejects_a_seqno_left_out_by_one_member() {
        let mut fixture = good();
        let first = fixture.records.iter().position(delivery(Life(2))).unwrap();
        fixture.records.remove(first);
        fixture.bad(SamePrefix::default());
    }

    #[test]
    fn rejects_a_last_delivery_left_out_before_a_reset() {
        let mut fixture = Fixture::of(3, 1);
        fixture.message(Life(1));
        let end = fixture.position(delivery(Life(2)));
        fixture.crash(Life(0));
        fixture.reset(&[Life(1), Life(2)]);
        fixture.records.remove(end);
        fixture.bad(SamePrefix::default());
    }

    #[test]
    fn rejects_two_events_exchanged() {
        let mut fixture = good();
        let first = fixture.records.iter().position(delivery(Life(2))).unwrap();
        let rest = fixture.records[first + 1..].iter().position(delivery(Life(2))).unwrap();
        fixture.records.swap(first, first + 1 + rest);
        fixture.bad(SamePrefix::default());
    }
}

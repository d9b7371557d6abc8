//! G16, virtual synchrony: all members that go from one epoch into the same next one delivered the same events in the
//! first, through the same last seqno. They delivered none of its events from the seqno on at which the next epoch
//! begins.

use super::{Facts, Property, Violation, broken};
use crate::record::{Epoch, Kind, Record, What};
use unisono_core::Seqno;

/// The checker of `virtual_synchrony`.
#[derive(Debug, Default)]
pub(super) struct VirtualSynchrony {
    /// For each passage from an epoch to the next, the last seqno received in the first.
    passages: Vec<(Epoch, Epoch, Seqno)>,
    checked: u64,
}

impl Property for VirtualSynchrony {
    fn name(&self) -> &'static str {
        "virtual_synchrony"
    }

    fn interests(&self) -> u64 {
        Kind::Reset.bit()
    }

    #[inline(always)]
    fn observe(&mut self, record: &Record, facts: &Facts) -> Result<(), Violation> {
        if let What::Reset(reset) = &record.what {
            let stream = facts.before();
            if let Some(epoch) = stream.epoch {
                let (next, last) = (reset.view.epoch, stream.last);
                self.checked += 1;
                if last >= reset.seqno {
                    return broken(self, record, || {
                        format!("it received seqno {last}, and the next epoch begins at {}", reset.seqno)
                    });
                }
                let known = self.passages.iter().rfind(|(from, to, _)| (*from, *to) == (epoch, next));
                match known {
                    Some((.., other)) if *other != last => {
                        let other = *other;
                        return broken(self, record, || {
                            format!("its last seqno was {last}, and another member's {other}")
                        });
                    }
                    Some(_) => {}
                    None => self.passages.push((epoch, next, last)),
                }
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
    use crate::record::Life;

    #[test]
    fn accepts_passing_together() {
        Fixture::of_a_reassigned_seqno().good(VirtualSynchrony::default());
    }

    #[test]
    fn rejects_a_member_that_received_less() {
        let mut fixture = Fixture::of_a_reassigned_seqno();
        let first = fixture.records.iter().position(delivery(Life(2))).unwrap();
        fixture.records.remove(first);
        fixture.bad(VirtualSynchrony::default());
    }

    #[test]
    fn rejects_a_member_that_received_more() {
        // Life 0 delivered seqno 4, which the next epoch drops, and enters that epoch nevertheless.
        let mut fixture = Fixture::of_a_reassigned_seqno();
        let record = Record { life: Life(0), ..fixture.last(reset_of(Life(1))).clone() };
        fixture.records.push(record);
        fixture.bad(VirtualSynchrony::default());
    }

    #[test]
    fn rejects_an_epoch_that_begins_too_early() {
        let mut fixture = Fixture::of_a_reassigned_seqno();
        change_reset(fixture.last(reset_of(Life(2))), |reset| reset.seqno = 2);
        fixture.bad(VirtualSynchrony::default());
    }
}

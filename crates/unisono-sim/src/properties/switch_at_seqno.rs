//! Switches: a group is ordered otherwise from the seqno of an ordered event on, at all members alike, and a switch that
//! a reset cuts off was never in force. Each member knows by the order in force whether an event that names a sequencer
//! is a hand-over, which applications receive, or a pass of the token, which they do not.

use super::tables::Table;
use super::{Facts, GroupTerms, Property, Violation, result};
use crate::record::{Entry, Epoch, Kind, Life, Record, What};
use unisono_core::{Order, Seqno};

/// The checker of `switch_at_seqno`.
#[derive(Debug)]
pub(super) struct SwitchAtSeqno {
    founded_as_ring: bool,
    /// By epoch, the seqnos from which the token goes round, or no longer does, ascending; the first is its beginning.
    orders: Table<Vec<(Seqno, bool)>>,
    checked: u64,
}

impl SwitchAtSeqno {
    pub(super) fn new(terms: &GroupTerms) -> SwitchAtSeqno {
        let founded_as_ring = terms.config.order == Order::Token;
        SwitchAtSeqno { founded_as_ring, orders: Table::default(), checked: 0 }
    }

    /// True if the token goes round after the entry at this seqno.
    fn is_ring_at(&self, epoch: Epoch, seqno: Seqno) -> bool {
        let orders = self.orders.get(epoch).map_or(&[][..], Vec::as_slice);
        orders.iter().rev().find(|(from, _)| *from <= seqno).map_or(self.founded_as_ring, |(_, order)| *order)
    }

    /// Notes what a life stored. Returns a fault if another order is in force there.
    fn stored(
        &mut self,
        life: Life,
        epoch: Epoch,
        seqno: Seqno,
        entry: &Entry,
        facts: &Facts,
    ) -> Option<String> {
        match entry {
            Entry::Reset(_) if self.orders.at(epoch).is_empty() => {
                let before = facts.entries.epoch_before(life)?;
                let first = facts.entries.lineage.first(epoch).unwrap_or(seqno);
                let kept = self.is_ring_at(before, first - 1);
                self.orders.at(epoch).push((seqno, kept));
            }
            Entry::Order { is_ring, .. } => {
                self.checked += 1;
                let orders = self.orders.at(epoch);
                match orders.iter().find(|(from, _)| *from == seqno) {
                    Some((_, known)) if known != is_ring => {
                        return Some("it was another order elsewhere".into());
                    }
                    Some(_) => {}
                    None => orders.push((seqno, *is_ring)),
                }
            }
            Entry::Role(_) | Entry::Pass(_) => {
                self.checked += 1;
                let is_pass = matches!(entry, Entry::Pass(_));
                if self.is_ring_at(epoch, seqno - 1) != is_pass {
                    return Some(format!("a pass {is_pass}, and the token goes round {}", !is_pass));
                }
            }
            _ => {}
        }
        None
    }
}

impl Property for SwitchAtSeqno {
    fn name(&self) -> &'static str {
        "switch_at_seqno"
    }

    fn interests(&self) -> u64 {
        Kind::Stored.bit()
    }

    #[inline(always)]
    fn observe(&mut self, record: &Record, facts: &Facts) -> Result<(), Violation> {
        let What::Stored { epoch, through, entry } = &record.what else { return Ok(()) };
        if matches!(entry, Entry::Message { .. }) {
            return Ok(());
        }
        let fault = self.stored(record.life, *epoch, *through, entry, facts);
        result(self, record, fault)
    }

    fn checked(&self) -> u64 {
        self.checked
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::properties::fixture::Fixture;

    fn stored(fixture: &mut Fixture, seqno: Seqno, entry: Entry) {
        let epoch = fixture.epoch;
        fixture.record(Life(0), What::Stored { epoch, through: seqno, entry });
    }

    fn property(fixture: &Fixture) -> SwitchAtSeqno {
        SwitchAtSeqno::new(&fixture.terms)
    }

    #[test]
    fn a_hand_over_becomes_a_pass_at_the_switch_and_not_before() {
        let mut fixture = Fixture::of(3, 1);
        let end = fixture.end();
        stored(&mut fixture, end + 1, Entry::Role(Life(1)));
        stored(&mut fixture, end + 2, Entry::Order { is_ring: true, sequencer: Life(1) });
        stored(&mut fixture, end + 3, Entry::Pass(Life(2)));
        fixture.good(property(&fixture));
        stored(&mut fixture, end + 4, Entry::Role(Life(0)));
        fixture.bad(property(&fixture));
    }

    #[test]
    fn two_members_may_not_know_two_orders_at_one_seqno() {
        let mut fixture = Fixture::of(3, 1);
        let seqno = fixture.end() + 1;
        for is_ring in [true, false] {
            stored(&mut fixture, seqno, Entry::Order { is_ring, sequencer: Life(0) });
        }
        fixture.bad(property(&fixture));
    }
}

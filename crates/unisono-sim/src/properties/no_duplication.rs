//! G2, no duplication: a message has one seqno, the same at all members for ever, and each member delivers it at most
//! once. A reset that drops the seqno of a message may give it another one, if a member that goes on had delivered the message
//! early.

use super::streams::{Messages, VIEW_CHANGES, seqno_of};
use super::tables::Table;
use super::{Facts, Property, Violation, broken};
use crate::record::{Epoch, Kind, Life, Record, What};
use std::collections::{BTreeMap, BTreeSet};
use unisono_core::{MessageNumber, Seqno};

/// The checker of `no_duplication`.
#[derive(Debug, Default)]
pub(super) struct NoDuplication {
    /// Epoch and seqno at which each message was first delivered.
    delivered_at: Messages<Option<(Epoch, Seqno)>>,
    /// Messages that a reset put before its event.
    tails: BTreeSet<(Life, MessageNumber)>,
    /// The further places of those of them that have several.
    further: BTreeMap<(Life, MessageNumber), Vec<(Epoch, Seqno)>>,
    /// Seqno of each life's last event.
    last: Table<Seqno>,
    checked: u64,
}

impl NoDuplication {
    /// Notes a further place of a message that has the place `first`. Returns one of its places that is in a log with this
    /// one.
    #[cold]
    fn same_line(
        &mut self,
        message: (Life, MessageNumber),
        first: (Epoch, Seqno),
        place: (Epoch, Seqno),
        facts: &Facts,
    ) -> Option<(Epoch, Seqno)> {
        let lineage = &facts.entries.lineage;
        let (epoch, seqno) = place;
        let further = self.further.entry(message).or_default();
        let clash = core::iter::once(first).chain(further.iter().copied()).find(|&(of, at)| {
            (of, at) != place
                && (of == epoch || lineage.keeps(epoch, of, at) || lineage.keeps(of, epoch, seqno))
        });
        if !further.contains(&place) {
            further.push(place);
        }
        clash
    }
}

impl Property for NoDuplication {
    fn name(&self) -> &'static str {
        "no_duplication"
    }

    fn interests(&self) -> u64 {
        Kind::Delivered.bit() | Kind::Tail.bit() | VIEW_CHANGES
    }

    #[inline(always)]
    fn observe(&mut self, record: &Record, facts: &Facts) -> Result<(), Violation> {
        if let What::Tail { sender, number, .. } = record.what {
            self.tails.insert((sender, number));
        }
        let Some(seqno) = seqno_of(&record.what) else { return Ok(()) };
        let last = std::mem::replace(self.last.at(record.life), seqno);
        let What::Delivered { sender, number, .. } = record.what else { return Ok(()) };
        self.checked += 1;
        let Some(epoch) = facts.place(record.life, seqno) else { return Ok(()) };
        // Each message has one seqno, and a stream has each seqno once; so each message is delivered once.
        let again = seqno <= last;
        let Some(delivered_at) = self.delivered_at.at(sender, number) else {
            return broken(self, record, || "the message number is out of range".into());
        };
        let first = *delivered_at.get_or_insert((epoch, seqno));
        if first != (epoch, seqno) {
            let other = match self.tails.contains(&(sender, number)) {
                true => self.same_line((sender, number), first, (epoch, seqno), facts),
                false => Some(first),
            };
            if let Some(other) = other {
                return broken(self, record, || format!("it was also delivered at {other:?}"));
            }
        }
        if again { broken(self, record, || "it was delivered here before".into()) } else { Ok(()) }
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
        let mut fixture = Fixture::of_two_messages();
        fixture.reset(&[Life(0), Life(1)]);
        fixture.message(Life(1));
        fixture
    }

    #[test]
    fn accepts_each_message_once() {
        good().good(NoDuplication::default());
    }

    #[test]
    fn rejects_a_second_delivery() {
        let mut fixture = good();
        let again = fixture.last(delivery(Life(1))).clone();
        fixture.records.push(again);
        fixture.bad(NoDuplication::default());
    }

    #[test]
    fn rejects_a_second_seqno_even_at_another_member() {
        let mut fixture = good();
        if let What::Delivered { seqno, .. } = &mut fixture.last(delivery(Life(1))).what {
            *seqno += 1;
        }
        fixture.bad(NoDuplication::default());
    }

    #[test]
    fn rejects_a_message_numbered_again_after_a_reset() {
        let mut fixture = Fixture::of(3, 1);
        let number = fixture.send(Life(1));
        fixture.order(Life(1), number);
        fixture.deliver_all();
        fixture.reset(&[Life(0), Life(1)]);
        fixture.order_piece(Life(1), number, number);
        fixture.deliver_all();
        fixture.bad(NoDuplication::default());
    }
}

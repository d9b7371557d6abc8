//! G2, no duplication: a message has one place in the order, the same for everybody for ever, and nobody receives
//! it twice.

use super::streams::{Messages, VIEW_CHANGES, placed_at};
use super::tables::Table;
use super::{Facts, Property, Violation, broken};
use crate::record::{Epoch, Kind, Record, What};
use unisono_core::Seqno;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct NoDuplication {
    /// Where each message was first delivered.
    homes: Messages<Option<(Epoch, Seqno)>>,
    /// The place of each life's last event.
    last: Table<Seqno>,
    checked: u64,
}

impl Property for NoDuplication {
    fn name(&self) -> &'static str {
        "no_duplication"
    }

    fn interests(&self) -> u64 {
        Kind::Delivered.bit() | VIEW_CHANGES
    }

    #[inline(always)]
    fn observe(&mut self, record: &Record, facts: &Facts) -> Result<(), Violation> {
        let Some(seqno) = placed_at(&record.what) else { return Ok(()) };
        let last = std::mem::replace(self.last.at(record.life), seqno);
        let What::Delivered { sender, number, .. } = record.what else { return Ok(()) };
        self.checked += 1;
        let Some(epoch) = facts.stream(record.life).epoch else { return Ok(()) };
        // One place for each message, and each place once: so each message once.
        let again = seqno <= last;
        let Some(home) = self.homes.at(sender, number) else {
            return broken(self, record, || "a number beyond all reason".into());
        };
        match *home.get_or_insert((epoch, seqno)) {
            known if known != (epoch, seqno) => {
                broken(self, record, || format!("it has another place too: {known:?}"))
            }
            _ if again => broken(self, record, || "it was delivered here before".into()),
            _ => Ok(()),
        }
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
    fn takes_each_message_once() {
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
    fn rejects_a_second_place_even_at_another_member() {
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
        fixture.everyone();
        fixture.reset(&[Life(0), Life(1)]);
        fixture.order_piece(Life(1), number, number);
        fixture.everyone();
        fixture.bad(NoDuplication::default());
    }
}

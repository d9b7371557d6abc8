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
    use crate::properties::story::{Story, delivery};
    use crate::record::Life;

    fn good() -> Story {
        let mut story = Story::of_two_messages();
        story.reset(&[Life(0), Life(1)]);
        story.message(Life(1));
        story
    }

    #[test]
    fn takes_each_message_once() {
        good().good(NoDuplication::default());
    }

    #[test]
    fn rejects_a_second_delivery() {
        let mut story = good();
        let again = story.last(delivery(Life(1))).clone();
        story.records.push(again);
        story.bad(NoDuplication::default());
    }

    #[test]
    fn rejects_a_second_place_even_at_another_member() {
        let mut story = good();
        if let What::Delivered { seqno, .. } = &mut story.last(delivery(Life(1))).what {
            *seqno += 1;
        }
        story.bad(NoDuplication::default());
    }

    #[test]
    fn rejects_a_message_numbered_again_after_a_reset() {
        let mut story = Story::of(3, 1);
        let number = story.send(Life(1));
        story.order(Life(1), number);
        story.everyone();
        story.reset(&[Life(0), Life(1)]);
        story.order_piece(Life(1), number, number);
        story.everyone();
        story.bad(NoDuplication::default());
    }
}

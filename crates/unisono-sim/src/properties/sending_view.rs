//! G17, sending view: a message is delivered in the epoch in which it was sent, or not at all. The epoch of sending
//! is that of the sender's watermarks, since its application may still be in an earlier one.

use super::streams::Messages;
use super::{Facts, Property, Violation, broken};
use crate::record::{Epoch, Kind, Record, What};

/// The checker of `sending_view`.
#[derive(Debug, Default)]
pub(super) struct SendingView {
    sent: Messages<Option<Epoch>>,
    checked: u64,
}

impl Property for SendingView {
    fn name(&self) -> &'static str {
        "sending_view"
    }

    fn interests(&self) -> u64 {
        Kind::Sent.bit() | Kind::Delivered.bit()
    }

    #[inline(always)]
    fn observe(&mut self, record: &Record, facts: &Facts) -> Result<(), Violation> {
        match record.what {
            What::Sent { number, .. } => {
                if let Some(sent) = self.sent.at(record.life, number) {
                    *sent = facts.epoch(record.life);
                }
            }
            What::Delivered { sender, number, .. } => {
                self.checked += 1;
                let here = facts.stream(record.life).epoch;
                let sent = self.sent.get(sender, number).copied().flatten();
                if sent.is_some() && sent != here {
                    return broken(self, record, || format!("sent in {sent:?}, delivered in {here:?}"));
                }
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
        let lost = fixture.send(Life(1));
        fixture.crash(Life(0));
        fixture.reset(&[Life(1), Life(2)]);
        assert_eq!(lost, 2);
        fixture.message(Life(1));
        fixture
    }

    #[test]
    fn accepts_deliveries_in_the_epoch_of_sending() {
        good().good(SendingView::default());
    }

    #[test]
    fn rejects_a_message_numbered_after_the_reset_in_which_it_failed() {
        let mut fixture = good();
        fixture.order_piece(Life(1), 2, 2);
        fixture.deliver_all();
        fixture.bad(SendingView::default());
    }

    #[test]
    fn rejects_a_delivery_after_the_reset() {
        let mut fixture = good();
        let first = fixture.records.iter().position(delivery(Life(2))).unwrap();
        let late = fixture.records.remove(first);
        fixture.records.push(late);
        fixture.bad(SendingView::default());
    }
}

//! G1, integrity: a delivered message was sent before, by the sender it names, with these bytes. Its sender is in the
//! view at that seqno. A sender never gives one number to two messages.

use super::streams::Messages;
use super::{Facts, Property, Violation, broken};
use crate::record::{Kind, Record, What};

/// The checker of `integrity`.
#[derive(Debug, Default)]
pub(super) struct Integrity {
    /// Hash of each message sent; 0 for none.
    sent: Messages<u64>,
    checked: u64,
}

impl Property for Integrity {
    fn name(&self) -> &'static str {
        "integrity"
    }

    fn interests(&self) -> u64 {
        Kind::Sent.bit() | Kind::Delivered.bit()
    }

    #[inline(always)]
    fn observe(&mut self, record: &Record, facts: &Facts) -> Result<(), Violation> {
        match record.what {
            What::Sent { number, hash, .. } => match self.sent.at(record.life, number) {
                Some(known) if *known == 0 => {
                    *known = hash.max(1);
                    Ok(())
                }
                _ => {
                    broken(self, record, || format!("{:?} gave number {number} to two messages", record.life))
                }
            },
            What::Delivered { sender, number, hash, .. } => {
                self.checked += 1;
                match self.sent.get(sender, number) {
                    Some(sent) if *sent == hash.max(1) => {}
                    None | Some(0) => return broken(self, record, || "no member sent this message".into()),
                    Some(_) => {
                        return broken(self, record, || "the payload is not the one that was sent".into());
                    }
                }
                if !facts.stream(record.life).members.contains(sender) {
                    return broken(self, record, || "its sender is not in the view at this seqno".into());
                }
                Ok(())
            }
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

    #[test]
    fn accepts_what_was_sent() {
        Fixture::of_two_messages().good(Integrity::default());
    }

    #[test]
    fn rejects_another_payload() {
        let mut fixture = Fixture::of_two_messages();
        if let What::Delivered { hash, .. } = &mut fixture.last(delivery(Life(1))).what {
            *hash += 1;
        }
        fixture.bad(Integrity::default());
    }

    #[test]
    fn rejects_a_message_that_was_never_sent() {
        let mut fixture = Fixture::of_two_messages();
        if let What::Delivered { number, .. } = &mut fixture.last(delivery(Life(1))).what {
            *number += 1;
        }
        fixture.bad(Integrity::default());
    }

    #[test]
    fn rejects_a_delivery_before_the_send() {
        let mut fixture = Fixture::of_two_messages();
        fixture.send_late();
        fixture.bad(Integrity::default());
    }

    #[test]
    fn rejects_a_sender_outside_the_view() {
        let mut fixture = Fixture::of(3, 1);
        let number = fixture.send(Life(2));
        fixture.leave(Life(2));
        fixture.order(Life(2), number);
        fixture.deliver_all();
        fixture.bad(Integrity::default());
    }

    #[test]
    fn rejects_a_number_given_twice() {
        let mut fixture = Fixture::of_two_messages();
        let again = fixture.last(|record| matches!(record.what, What::Sent { .. })).clone();
        fixture.records.push(again);
        fixture.bad(Integrity::default());
    }
}

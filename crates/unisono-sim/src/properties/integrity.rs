//! G1, integrity: what is delivered was sent before, by whom it is said to come from, as it was sent, and its
//! sender is a member of the view at that place.

use super::streams::Messages;
use super::{Facts, Property, Violation, broken};
use crate::record::{Kind, Record, What};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Integrity {
    /// The hash of each message; zero for none.
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
                _ => broken(self, record, || format!("{:?} took number {number} twice", record.life)),
            },
            What::Delivered { sender, number, hash, .. } => {
                self.checked += 1;
                match self.sent.get(sender, number) {
                    Some(sent) if *sent == hash.max(1) => {}
                    None | Some(0) => return broken(self, record, || "nobody sent this".into()),
                    Some(_) => return broken(self, record, || "this is not what was sent".into()),
                }
                if !facts.stream(record.life).members.contains(sender) {
                    return broken(self, record, || "its sender is no member there".into());
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
    fn takes_what_was_sent() {
        Fixture::of_two_messages().good(Integrity::default());
    }

    #[test]
    fn rejects_other_words() {
        let mut fixture = Fixture::of_two_messages();
        if let What::Delivered { hash, .. } = &mut fixture.last(delivery(Life(1))).what {
            *hash += 1;
        }
        fixture.bad(Integrity::default());
    }

    #[test]
    fn rejects_what_nobody_sent() {
        let mut fixture = Fixture::of_two_messages();
        if let What::Delivered { number, .. } = &mut fixture.last(delivery(Life(1))).what {
            *number += 1;
        }
        fixture.bad(Integrity::default());
    }

    #[test]
    fn rejects_what_is_sent_only_later() {
        let mut fixture = Fixture::of_two_messages();
        fixture.send_late();
        fixture.bad(Integrity::default());
    }

    #[test]
    fn rejects_senders_from_outside() {
        let mut fixture = Fixture::of(3, 1);
        let number = fixture.send(Life(2));
        fixture.leave(Life(2));
        fixture.order(Life(2), number);
        fixture.everyone();
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

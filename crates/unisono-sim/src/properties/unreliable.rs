//! Unreliable messages: each was sent by the member it names, with these bytes, and is received at most once, in the epoch
//! in which it was sent, while its sender and its receiver are in the receiver's view. It never gets a seqno.

use super::{Facts, Property, Violation, broken};
use crate::record::{Epoch, Kind, Life, Record, What};
use std::collections::BTreeMap;
use unisono_core::Quality;

/// The checker of `unreliable`.
#[derive(Debug, Default)]
pub(super) struct Unreliable {
    /// By sender and hash, the epoch in which each such message was sent: that of the sender's watermarks.
    sent: BTreeMap<(Life, u64), Vec<Option<Epoch>>>,
    /// By receiver, sender and hash, how often it was received.
    received: BTreeMap<(Life, Life, u64), usize>,
    checked: u64,
}

impl Unreliable {
    fn receive(&mut self, record: &Record, sender: Life, hash: u64, facts: &Facts) -> Result<(), Violation> {
        self.checked += 1;
        let Some(sent) = self.sent.get(&(sender, hash)) else {
            return broken(self, record, || "it was not sent".into());
        };
        let stream = facts.stream(record.life);
        if !sent.contains(&stream.epoch) {
            return broken(self, record, || format!("sent in {sent:?}, received in {:?}", stream.epoch));
        }
        if !stream.members.contains(sender) || !stream.members.contains(record.life) {
            return broken(self, record, || format!("the view is {:?}", stream.view));
        }
        let times = self.received.entry((record.life, sender, hash)).or_default();
        *times += 1;
        match (*times, sent.len()) {
            (times, sent) if times > sent => {
                broken(self, record, || format!("sent {sent} times, received {times} times"))
            }
            _ => Ok(()),
        }
    }
}

impl Property for Unreliable {
    fn name(&self) -> &'static str {
        "unreliable"
    }

    fn interests(&self) -> u64 {
        Kind::SentUnreliable.bit() | Kind::Early.bit() | Kind::Delivered.bit()
    }

    fn observe(&mut self, record: &Record, facts: &Facts) -> Result<(), Violation> {
        match record.what {
            What::SentUnreliable { hash } => {
                self.sent.entry((record.life, hash)).or_default().push(facts.epoch(record.life));
                Ok(())
            }
            What::Early { sender, quality: Quality::UNRELIABLE, hash, .. } => {
                self.receive(record, sender, hash, facts)
            }
            What::Delivered { sender, hash, .. } if self.sent.contains_key(&(sender, hash)) => {
                broken(self, record, || "it was sent as unreliable".into())
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
    use crate::properties::fixture::Fixture;

    const HASH: u64 = 77;

    fn early(sender: u32) -> What {
        What::Early { sender: Life(sender), number: 0, quality: Quality::UNRELIABLE, hash: HASH }
    }

    /// Life 1 of three sends an unreliable message, which lives 0 and 1 receive, between messages that have seqnos.
    fn good() -> Fixture {
        let mut fixture = Fixture::of(3, 1);
        fixture.message(Life(1));
        fixture.record(Life(1), What::SentUnreliable { hash: HASH });
        fixture.record(Life(1), early(1));
        fixture.record(Life(0), early(1));
        fixture.message(Life(1));
        fixture
    }

    #[test]
    fn accepts_a_message_received_once_by_some() {
        good().good(Unreliable::default());
    }

    #[test]
    fn rejects_a_second_delivery() {
        let mut fixture = good();
        fixture.record(Life(0), early(1));
        fixture.bad(Unreliable::default());
    }

    #[test]
    fn accepts_as_many_equal_messages_as_were_sent() {
        let mut fixture = good();
        fixture.record(Life(1), What::SentUnreliable { hash: HASH });
        fixture.record(Life(0), early(1));
        fixture.good(Unreliable::default());
    }

    #[test]
    fn rejects_a_message_that_its_sender_did_not_send() {
        let mut fixture = good();
        fixture.record(Life(2), early(0));
        fixture.bad(Unreliable::default());
    }

    #[test]
    fn rejects_a_message_of_the_epoch_before() {
        let mut fixture = good();
        fixture.reset(&[Life(0), Life(1), Life(2)]);
        fixture.record(Life(2), early(1));
        fixture.bad(Unreliable::default());
    }

    #[test]
    fn rejects_a_message_after_its_sender_has_left() {
        let mut fixture = good();
        fixture.leave(Life(1));
        fixture.deliver_all();
        fixture.record(Life(2), early(1));
        fixture.bad(Unreliable::default());
    }

    #[test]
    fn rejects_an_unreliable_message_with_a_seqno() {
        let mut fixture = good();
        let delivered = What::Delivered { seqno: fixture.end() + 1, sender: Life(1), number: 3, hash: HASH };
        fixture.record(Life(0), delivered);
        fixture.bad(Unreliable::default());
    }
}

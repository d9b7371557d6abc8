//! Early delivery is kept: a message that a member delivered before its seqno was known was sent by the member it names, comes
//! once, and has one place: in this epoch, or before the event of the reset that ends it. So what a member delivered early is
//! in each epoch to which it goes on, and is never undone.

use super::{Facts, Property, Violation, broken};
use crate::record::{Epoch, Kind, Life, Record, What};
use std::collections::{BTreeMap, BTreeSet};
use unisono_core::{MessageNumber, Quality, Seqno};

/// Messages that look the same: by sender and hash of the payload.
type Name = (Life, u64);

/// What one life received of the messages of one name.
#[derive(Clone, Copy, Debug, Default)]
struct Received {
    /// Deliveries, early or at a seqno.
    times: u64,
    /// Early deliveries whose places have not come yet.
    without_place: u64,
}

/// The checker of `early_kept`.
#[derive(Debug, Default)]
pub(super) struct EarlyKept {
    /// How many messages of each name were sent that may be early.
    sent: BTreeMap<Name, u64>,
    /// The same messages by sender and number: others may have the same bytes.
    may_be_early: BTreeSet<(Life, MessageNumber)>,
    received: BTreeMap<(Life, Name), Received>,
    /// By epoch and seqno, what the reset that begins the epoch put before its event: each member has the same there.
    tails: BTreeMap<(Epoch, Seqno), (Life, MessageNumber)>,
    /// The name of the message that a life passes at its place with its next record.
    passing: BTreeMap<Life, Name>,
    checked: u64,
}

impl EarlyKept {
    fn receive(&mut self, record: &Record, name: Name, early: bool) -> Result<(), Violation> {
        let sent = self.sent.get(&name).copied().unwrap_or_default();
        let received = self.received.entry((record.life, name)).or_default();
        received.times += 1;
        received.without_place += u64::from(early);
        let times = received.times;
        self.checked += 1;
        match times <= sent {
            true => Ok(()),
            false => broken(self, record, || format!("sent {sent} times, received {times} times")),
        }
    }
}

impl Property for EarlyKept {
    fn name(&self) -> &'static str {
        "early_kept"
    }

    fn interests(&self) -> u64 {
        Kind::Sent.bit()
            | Kind::Early.bit()
            | Kind::Passed.bit()
            | Kind::Delivered.bit()
            | Kind::Tail.bit()
            | Kind::Reset.bit()
    }

    fn observe(&mut self, record: &Record, _: &Facts) -> Result<(), Violation> {
        match &record.what {
            What::Sent { number, quality, hash, .. } if quality.may_be_early() => {
                self.may_be_early.insert((record.life, *number));
                *self.sent.entry((record.life, *hash)).or_default() += 1;
                Ok(())
            }
            What::Tail { epoch, seqno, sender, number } => {
                let message = (*sender, *number);
                let first = *self.tails.entry((*epoch, *seqno)).or_insert(message);
                let is_weak = self.may_be_early.contains(&message);
                match first == message && is_weak {
                    true => Ok(()),
                    false => broken(self, record, || format!("{first:?} is there, or it may not be early")),
                }
            }
            What::Early { quality, .. } if *quality == Quality::UNRELIABLE => Ok(()),
            What::Early { sender, hash, .. } => self.receive(record, (*sender, *hash), true),
            What::Passed { sender, hash } => {
                let name = (*sender, *hash);
                self.passing.insert(record.life, name);
                match self.received.get_mut(&(record.life, name)).filter(|known| known.without_place > 0) {
                    Some(known) => {
                        known.without_place -= 1;
                        Ok(())
                    }
                    None => broken(self, record, || "it was not delivered early".into()),
                }
            }
            What::Delivered { sender, number, hash, .. } => {
                let name = (*sender, *hash);
                match self.passing.remove(&record.life) {
                    Some(passed) if passed == name => Ok(()),
                    _ if !self.may_be_early.contains(&(*sender, *number)) => Ok(()),
                    _ => self.receive(record, name, false),
                }
            }
            What::Reset(_) => {
                let all = (record.life, (Life(0), 0))..=(record.life, (Life(u32::MAX), u64::MAX));
                let lost = self.received.range(all).find(|(_, known)| known.without_place > 0);
                match lost.map(|((_, name), _)| *name) {
                    Some(name) => {
                        broken(self, record, || format!("{name:?} was delivered early and has no place"))
                    }
                    None => Ok(()),
                }
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

    /// Life 1 of three sends an unordered message. Lives 0 and 1 deliver it early; then it gets its place.
    fn good() -> Fixture {
        let mut fixture = Fixture::of(3, 1);
        let number = fixture.send_with(Life(1), Quality::UNORDERED);
        let hash = hash_of(&fixture);
        for life in [0, 1] {
            fixture.record(Life(life), What::Early { sender: Life(1), quality: Quality::UNORDERED, hash });
        }
        fixture.order(Life(1), number);
        fixture.deliver_all();
        for life in [0, 1] {
            let place = fixture.position(delivery(Life(life)));
            let mut passed = fixture.records[place].clone();
            passed.what = What::Passed { sender: Life(1), hash };
            fixture.records.insert(place, passed);
        }
        fixture
    }

    fn hash_of(fixture: &Fixture) -> u64 {
        let sent = fixture.records.iter().rev().find_map(|record| match record.what {
            What::Sent { hash, .. } => Some(hash),
            _ => None,
        });
        sent.unwrap_or_default()
    }

    #[test]
    fn accepts_a_message_that_comes_early_and_is_passed_at_its_place() {
        good().good(EarlyKept::default());
    }

    #[test]
    fn rejects_a_second_delivery_at_the_place() {
        let mut fixture = good();
        fixture.records.retain(|record| !matches!(record.what, What::Passed { .. }));
        fixture.bad(EarlyKept::default());
    }

    #[test]
    fn rejects_an_early_message_that_nobody_sent() {
        let mut fixture = good();
        fixture.record(Life(2), What::Early { sender: Life(0), quality: Quality::UNORDERED, hash: 5 });
        fixture.bad(EarlyKept::default());
    }

    #[test]
    fn rejects_a_reset_that_loses_an_early_message() {
        let mut fixture = Fixture::of(3, 1);
        fixture.send_with(Life(1), Quality::UNORDERED);
        let hash = hash_of(&fixture);
        fixture.record(Life(0), What::Early { sender: Life(1), quality: Quality::UNORDERED, hash });
        fixture.reset(&[Life(0), Life(2)]);
        fixture.bad(EarlyKept::default());
    }
}

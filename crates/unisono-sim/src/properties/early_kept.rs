//! Early delivery is kept: a message that a member delivered before its seqno was known was sent by the member it names, comes
//! once, and has one place: in this epoch, or before the event of the reset that ends it. So what a member delivered early is
//! in each epoch to which it goes on, and is never undone. At the end of a run each has its place at the members that no
//! fault affects.

use super::healing::Healing;
use super::{Facts, Property, Violation, broken, final_result};
use crate::record::{End, Epoch, Kind, Life, Record, Standing, What};
use std::collections::{BTreeMap, BTreeSet};
use unisono_core::{MessageNumber, Quality, Seqno};

/// A message: its sender and number.
type Name = (Life, MessageNumber);

/// The checker of `early_kept`.
#[derive(Debug, Default)]
pub(super) struct EarlyKept {
    /// The messages that were sent and may be early, with their quality and the hash of their payload.
    sent: BTreeMap<Name, (Quality, u64)>,
    /// What each life has received of them, early or at a seqno.
    received: BTreeSet<(Life, Name)>,
    /// Those that it received early, and whose places have not come yet.
    without_place: BTreeSet<(Life, Name)>,
    /// By epoch and seqno, what the reset that begins the epoch put before its event: each member has the same there.
    tails: BTreeMap<(Epoch, Seqno), Name>,
    /// The lives that pass a message at its place with their next record.
    passing: BTreeSet<Life>,
    healing: Healing,
    checked: u64,
}

impl EarlyKept {
    fn receive(&mut self, record: &Record, name: Name) -> Result<(), Violation> {
        self.checked += 1;
        match self.received.insert((record.life, name)) {
            true => Ok(()),
            false => broken(self, record, || format!("{name:?} was delivered before")),
        }
    }

    /// Returns a message that this life received early, and whose place has not come.
    fn without_place(&self, life: Life) -> Option<Name> {
        let of_life = self.without_place.range((life, (Life(0), 0))..).next();
        of_life.filter(|(receiver, _)| *receiver == life).map(|(_, name)| *name)
    }

    /// Returns what is wrong with a member at the end of the run.
    fn fault_of(&self, standing: &Standing) -> Option<String> {
        let is_through = standing.events == 0 && standing.marks.delivered == standing.marks.received;
        let name = self.without_place(standing.life).filter(|_| is_through)?;
        Some(format!("{:?} received {name:?} early, and its place has not come", standing.life))
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
            | Kind::Healed.bit()
    }

    fn observe(&mut self, record: &Record, _: &Facts) -> Result<(), Violation> {
        match &record.what {
            What::Sent { number, quality, hash, .. } if quality.may_be_early() => {
                self.sent.insert((record.life, *number), (*quality, *hash));
                Ok(())
            }
            What::Tail { epoch, seqno, sender, number } => {
                let message = (*sender, *number);
                let first = *self.tails.entry((*epoch, *seqno)).or_insert(message);
                let is_weak = self.sent.contains_key(&message);
                match first == message && is_weak {
                    true => Ok(()),
                    false => broken(self, record, || format!("{first:?} is there, or it may not be early")),
                }
            }
            What::Early { quality, .. } if *quality == Quality::UNRELIABLE => Ok(()),
            What::Early { sender, number, quality, hash } => {
                let name = (*sender, *number);
                if self.sent.get(&name) != Some(&(*quality, *hash)) {
                    return broken(self, record, || "it was not sent".into());
                }
                self.without_place.insert((record.life, name));
                self.receive(record, name)
            }
            What::Passed { .. } => {
                self.passing.insert(record.life);
                Ok(())
            }
            What::Delivered { sender, number, .. } => {
                let name = (*sender, *number);
                if self.passing.remove(&record.life) {
                    return match self.without_place.remove(&(record.life, name)) {
                        true => Ok(()),
                        false => broken(self, record, || "it was not delivered early".into()),
                    };
                }
                if self.sent.contains_key(&name) { self.receive(record, name) } else { Ok(()) }
            }
            What::Reset(_) => match self.without_place(record.life) {
                Some(name) => {
                    broken(self, record, || format!("{name:?} was delivered early and has no place"))
                }
                None => Ok(()),
            },
            What::Healed { .. } => {
                self.healing.follow(record);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn finish(&mut self, end: &End, _: &Facts) -> Result<(), Violation> {
        let fault = self.healing.members(end).find_map(|standing| self.fault_of(standing));
        final_result(self, end, fault)
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
            fixture.record(
                Life(life),
                What::Early { sender: Life(1), number, quality: Quality::UNORDERED, hash },
            );
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
        fixture.record(
            Life(2),
            What::Early { sender: Life(0), number: 1, quality: Quality::UNORDERED, hash: 5 },
        );
        fixture.bad(EarlyKept::default());
    }

    #[test]
    fn rejects_an_early_message_at_another_quality() {
        let mut fixture = good();
        for record in &mut fixture.records {
            if let What::Early { quality, .. } = &mut record.what {
                *quality = Quality::SOURCE_ORDERED;
            }
        }
        fixture.bad(EarlyKept::default());
    }

    #[test]
    fn rejects_an_early_message_whose_place_never_comes() {
        let mut fixture = Fixture::of(3, 1);
        fixture.heal();
        let number = fixture.send_with(Life(1), Quality::UNORDERED);
        let hash = hash_of(&fixture);
        fixture.record(Life(0), What::Early { sender: Life(1), number, quality: Quality::UNORDERED, hash });
        fixture.bad(EarlyKept::default());
    }

    #[test]
    fn rejects_a_reset_that_loses_an_early_message() {
        let mut fixture = Fixture::of(3, 1);
        let number = fixture.send_with(Life(1), Quality::UNORDERED);
        let hash = hash_of(&fixture);
        fixture.record(Life(0), What::Early { sender: Life(1), number, quality: Quality::UNORDERED, hash });
        fixture.reset(&[Life(0), Life(2)]);
        fixture.bad(EarlyKept::default());
    }
}

//! Messages from outside, the other half of `one_answer`: each takes effect at most once, in its client's order, and what its
//! client learns agrees with what members delivered.

use super::{Facts, Property, Violation, broken};
use crate::record::{Beside, Epoch, Kind, Life, Record, What};
use std::collections::{BTreeMap, BTreeSet};
use unisono_core::outside::Fate;
use unisono_core::{MessageNumber, Outcome, Quality};

/// The checker of `one_answer` for messages from outside.
#[derive(Debug, Default)]
pub(super) struct FromOutside {
    /// The messages by the hashes of their payloads.
    messages: BTreeMap<u64, Message>,
    /// Which message each client has given with each index.
    hashes: BTreeMap<(u32, u64), u64>,
    /// Those that members sent for clients and whose outcome is open.
    under_way: BTreeMap<(Life, MessageNumber), u64>,
    /// What each member has delivered of each client.
    delivered: BTreeMap<(Life, u32), Delivered>,
    /// Members of which the next delivery is that of a message delivered early.
    passed: BTreeSet<Life>,
    checked: u64,
}

#[derive(Debug)]
struct Message {
    client: u32,
    index: u64,
    quality: Quality,
    is_confirmed: bool,
    /// It has its place, or a member delivered it.
    has_place: bool,
    /// Its client knows that it is not sent.
    is_given_up: bool,
}

#[derive(Debug, Default)]
struct Delivered {
    indices: BTreeSet<u64>,
    /// The one that came first, early perhaps. The member knows of none before it whether it came before.
    first: Option<u64>,
    /// The last one that its client wanted in order.
    last_in_order: Option<u64>,
}

impl FromOutside {
    fn note(&mut self, beside: &Beside) -> Result<(), String> {
        match *beside {
            Beside::FromOutside { client, index, quality, is_confirmed, hash } => {
                self.hashes.insert((client, index), hash);
                let (has_place, is_given_up) = (false, false);
                let message = Message { client, index, quality, is_confirmed, has_place, is_given_up };
                self.messages.insert(hash, message);
            }
            Beside::ToldOutside { client, index, fate, taken_over } => {
                return self.told(client, index, fate, taken_over);
            }
            Beside::GaveUpOutside { was_refused: true, .. } => {
                return Err("a client whose numbers go on is refused".into());
            }
            _ => {}
        }
        Ok(())
    }

    fn told(
        &mut self,
        client: u32,
        index: u64,
        fate: Fate,
        taken_over: Option<(Life, u64)>,
    ) -> Result<(), String> {
        self.checked += 1;
        let hash = self.hashes.get(&(client, index));
        let Some(message) = hash.and_then(|hash| self.messages.get_mut(hash)) else {
            return Err("the client has given no such message".into());
        };
        let earlier = taken_over.and_then(|(member, first)| {
            let delivered = self.delivered.get(&(member, client))?;
            delivered.first.filter(|index| *index < first)
        });
        match (fate, earlier) {
            (Fate::Accepted, _) if !message.has_place && message.is_confirmed => {
                Err("it counts as accepted, and has no place".into())
            }
            (Fate::NotSent, _) if message.has_place => Err("it counts as not sent, and has its place".into()),
            (Fate::NotSent, _) => {
                message.is_given_up = true;
                Ok(())
            }
            (Fate::Unknown, Some(earlier)) => {
                Err(format!("it is unknown to a member that has delivered the client's message {earlier}"))
            }
            _ => Ok(()),
        }
    }

    fn deliver(&mut self, life: Life, hash: u64, facts: &Facts) -> Result<(), String> {
        let Some(message) = self.messages.get_mut(&hash) else { return Ok(()) };
        self.checked += 1;
        let Message { client, index, quality, is_given_up, .. } = *message;
        let delivered = self.delivered.entry((life, client)).or_default();
        // The others may have gone on without what an excluded member delivers before it learns that.
        if !is_left_behind(life, facts) {
            message.has_place = true;
            if is_given_up {
                return Err(format!("message {index} of client {client} counts as not sent"));
            }
        }
        delivered.first.get_or_insert(index);
        if !delivered.indices.insert(index) {
            return Err(format!("message {index} of client {client} comes twice"));
        }
        if quality != Quality::UNORDERED {
            let before = delivered.last_in_order.replace(index);
            if let Some(before) = before.filter(|before| *before > index) {
                return Err(format!("message {index} of client {client} comes after message {before}"));
            }
        }
        Ok(())
    }
}

/// True if members have begun a later epoch than that of this one, whose first view is without it.
fn is_left_behind(life: Life, facts: &Facts) -> bool {
    let lineage = &facts.entries.lineage;
    let is_without = |later: Epoch| {
        let first = lineage.start(later).and_then(|start| facts.entries.views.at(later, start));
        first.is_some_and(|view| !view.contains(&life) && !facts.entries.begun(later).is_empty())
    };
    let epoch = facts.entries.epoch(life);
    epoch.is_some_and(|epoch| lineage.later(epoch).into_iter().any(is_without))
}

impl Property for FromOutside {
    fn name(&self) -> &'static str {
        "one_answer"
    }

    fn interests(&self) -> u64 {
        let of_messages = Kind::Sent.bit()
            | Kind::SendResult.bit()
            | Kind::Delivered.bit()
            | Kind::Early.bit()
            | Kind::Passed.bit();
        // Most runs have no clients outside.
        Kind::Beside.bit() | if self.messages.is_empty() { 0 } else { of_messages }
    }

    fn observe(&mut self, record: &Record, facts: &Facts) -> Result<(), Violation> {
        let life = record.life;
        let kept = match &record.what {
            What::Beside(beside) => self.note(beside),
            What::Sent { number, hash, .. } => {
                if self.messages.contains_key(hash) {
                    self.under_way.insert((life, *number), *hash);
                }
                Ok(())
            }
            What::SendResult { number, outcome } => {
                let hash = self.under_way.remove(&(life, *number));
                let message = hash.and_then(|hash| self.messages.get_mut(&hash));
                match (message, outcome) {
                    (Some(message), Outcome::Ok { .. }) => message.has_place = true,
                    // If a member has delivered it, that one was excluded, and the others go on without the message.
                    (Some(message), Outcome::Failed) => message.has_place = false,
                    _ => {}
                }
                Ok(())
            }
            What::Passed { .. } => {
                self.passed.insert(life);
                Ok(())
            }
            What::Delivered { hash, .. } if self.passed.remove(&life) => {
                if let Some(message) = self.messages.get_mut(hash) {
                    message.has_place = true;
                }
                Ok(())
            }
            What::Delivered { hash, .. } | What::Early { hash, .. } => self.deliver(life, *hash, facts),
            _ => Ok(()),
        };
        kept.or_else(|fault| broken(self, record, || fault))
    }

    fn checked(&self) -> u64 {
        self.checked
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::properties::fixture::Fixture;

    const MEMBER: Life = Life(0);
    const OTHER: Life = Life(1);

    /// A client has three messages to send, of which it does not confirm the last; that with the index i has the hash i.
    fn fixture(quality: Quality) -> Fixture {
        let mut fixture = Fixture::of(2, 1);
        for index in 0..3 {
            let (client, is_confirmed) = (7, index < 2);
            let given = Beside::FromOutside { client, index, quality, is_confirmed, hash: index };
            beside(&mut fixture, given);
        }
        fixture
    }

    fn beside(fixture: &mut Fixture, beside: Beside) {
        fixture.record(Life::WORLD, What::Beside(beside.into()));
    }

    fn deliver(fixture: &mut Fixture, life: Life, hash: u64) {
        fixture.record(life, What::Delivered { seqno: hash + 1, sender: MEMBER, number: hash + 1, hash });
    }

    fn told(fixture: &mut Fixture, index: u64, fate: Fate, taken_over: Option<(Life, u64)>) {
        beside(fixture, Beside::ToldOutside { client: 7, index, fate, taken_over });
    }

    #[test]
    fn accepts_each_message_once_in_order_and_told_truly() {
        let mut fixture = fixture(Quality::ORDERED);
        for life in [MEMBER, OTHER] {
            deliver(&mut fixture, life, 0);
            deliver(&mut fixture, life, 2);
        }
        told(&mut fixture, 0, Fate::Accepted, None);
        told(&mut fixture, 1, Fate::NotSent, None);
        told(&mut fixture, 2, Fate::Unknown, None);
        assert_eq!(fixture.check(FromOutside::default()).unwrap(), 7);
    }

    #[test]
    fn an_early_message_gets_its_place_without_coming_twice() {
        let mut fixture = fixture(Quality::SOURCE_ORDERED);
        let early = What::Early { sender: MEMBER, number: 1, quality: Quality::SOURCE_ORDERED, hash: 0 };
        fixture.record(OTHER, early);
        fixture.record(OTHER, What::Passed { sender: MEMBER, hash: 0 });
        deliver(&mut fixture, OTHER, 0);
        fixture.good(FromOutside::default());
        deliver(&mut fixture, OTHER, 0);
        fixture.bad(FromOutside::default());
    }

    #[test]
    fn rejects_what_is_out_of_order_but_for_unordered_messages() {
        for (quality, is_good) in [(Quality::ORDERED, false), (Quality::UNORDERED, true)] {
            let mut fixture = fixture(quality);
            deliver(&mut fixture, OTHER, 1);
            deliver(&mut fixture, OTHER, 0);
            assert_eq!(fixture.check(FromOutside::default()).is_ok(), is_good);
        }
    }

    #[test]
    fn rejects_what_a_client_learns_against_the_log() {
        let mut untold = fixture(Quality::ORDERED);
        told(&mut untold, 0, Fate::Accepted, None);
        untold.bad(FromOutside::default());
        let mut unconfirmed = fixture(Quality::ORDERED);
        told(&mut unconfirmed, 2, Fate::Accepted, None);
        unconfirmed.good(FromOutside::default());
        let mut given_up = fixture(Quality::ORDERED);
        told(&mut given_up, 0, Fate::NotSent, None);
        deliver(&mut given_up, OTHER, 0);
        given_up.bad(FromOutside::default());
        let mut refused = fixture(Quality::ORDERED);
        told(&mut refused, 0, Fate::NotSent, None);
        beside(&mut refused, Beside::GaveUpOutside { client: 7, was_refused: false });
        refused.good(FromOutside::default());
        beside(&mut refused, Beside::GaveUpOutside { client: 7, was_refused: true });
        refused.bad(FromOutside::default());
    }

    #[test]
    fn what_an_excluded_member_delivered_has_no_place_once_its_sender_has_failed() {
        for (outcome, is_good) in [(Outcome::Failed, true), (Outcome::Ok { seqno: 1 }, false)] {
            let mut fixture = fixture(Quality::ORDERED);
            let sent = What::Sent { number: 1, quality: Quality::ORDERED, hash: 0, bytes: 1 };
            fixture.record(MEMBER, sent);
            deliver(&mut fixture, OTHER, 0);
            fixture.record(MEMBER, What::SendResult { number: 1, outcome });
            told(&mut fixture, 0, Fate::NotSent, None);
            assert_eq!(fixture.check(FromOutside::default()).is_ok(), is_good);
        }
    }

    #[test]
    fn what_is_not_sent_may_come_early_to_a_member_that_the_others_have_left_behind() {
        for (member, is_good) in [(Life(2), true), (OTHER, false)] {
            let mut fixture = Fixture::of(3, 1);
            let (quality, hash) = (Quality::SOURCE_ORDERED, 0);
            let given = Beside::FromOutside { client: 7, index: 0, quality, is_confirmed: true, hash };
            beside(&mut fixture, given);
            fixture.reset(&[MEMBER, OTHER]);
            told(&mut fixture, 0, Fate::NotSent, None);
            fixture.record(member, What::Early { sender: MEMBER, number: 1, quality, hash });
            assert_eq!(fixture.check(FromOutside::default()).is_ok(), is_good);
        }
    }

    #[test]
    fn a_member_that_remembers_the_client_knows_what_became_of_messages() {
        let mut fixture = fixture(Quality::ORDERED);
        deliver(&mut fixture, OTHER, 0);
        told(&mut fixture, 0, Fate::Accepted, None);
        told(&mut fixture, 1, Fate::Unknown, Some((MEMBER, 1)));
        fixture.good(FromOutside::default());
        told(&mut fixture, 2, Fate::Unknown, Some((OTHER, 1)));
        fixture.bad(FromOutside::default());
    }

    #[test]
    fn a_member_to_which_a_later_message_came_first_need_not_know_of_earlier_ones() {
        let mut fixture = fixture(Quality::UNORDERED);
        let early = What::Early { sender: MEMBER, number: 3, quality: Quality::UNORDERED, hash: 2 };
        fixture.record(OTHER, early);
        deliver(&mut fixture, OTHER, 0);
        told(&mut fixture, 1, Fate::Unknown, Some((OTHER, 1)));
        fixture.good(FromOutside::default());
    }
}

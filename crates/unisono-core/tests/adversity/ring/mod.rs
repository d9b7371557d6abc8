//! Rings: groups in which the token goes round.
//!
//! `moving` has when the token goes and rests, `losses` passes that are lost, `members` joins, leaves and crashes, `room` what
//! takes room and which member stands in the way, `confirming` what `confirm` returns, `hostile` bad input, and `counters`
//! what a ring says about itself. What they share is here.

#![expect(clippy::disallowed_types, reason = "a filter and its test share what was seen, on one thread")]

mod confirming;
mod counters;
mod hostile;
mod losses;
mod members;
mod moving;
mod room;
mod segment;

use crate::network::*;
use bytes::Bytes;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;
use unisono_core::wire::*;
use unisono_core::*;

/// Returns a ring of `n` members reached by multicast, in which the token rests.
fn ring_with(n: usize, config: GroupConfig) -> Net {
    ring_by(n, config, Settings { transport: Transport::Multicast, ..Settings::default() })
}

fn ring_by(n: usize, config: GroupConfig, settings: Settings) -> Net {
    let mut net = group_with(n, GroupConfig { order: Order::Token, ..config }, settings);
    net.run(3_000 * MS);
    net
}

fn ring(n: usize, resilience: u8) -> Net {
    ring_with(n, GroupConfig { resilience, ..GroupConfig::default() })
}

/// A ring of four members in which the token rests at m0.
fn ring_at_m0() -> Net {
    let mut net = ring(4, 1);
    warm_up(&mut net);
    rest_at(&mut net, 0);
    net
}

/// Lets each member have the token, so that all know from passes that all hear multicasts.
fn warm_up(net: &mut Net) {
    let all: Vec<usize> = (0..net.members.len()).collect();
    talk(net, 400, &all);
    net.run(200 * MS);
    assert!(all.iter().all(|index| net.group(*index).audience().addresses.is_empty()));
}

/// Returns the member that has the token; `None` while it is on its way.
fn holder(net: &Net) -> Option<usize> {
    (0..net.members.len())
        .find(|&index| net.members[index].as_ref().is_some_and(|group| group.marks().acting))
}

/// What went over the network.
#[derive(Default)]
struct Traffic {
    /// Which member announced the message with this seqno first.
    numbered: BTreeMap<Seqno, usize>,
    /// Giver of each pass, time when it first left, and the member that it names.
    passes: BTreeMap<Seqno, (usize, u64, Uid)>,
    /// Datagrams, each counted once, however many members it goes to.
    datagrams: BTreeSet<(usize, u64)>,
}

impl Traffic {
    fn note(&mut self, seen: &Seen) {
        if seen.outside {
            return;
        }
        self.datagrams.insert((seen.from, seen.number));
        for frame in &seen.frames {
            match frame {
                Frame::Numbers(numbers) => self.note_numbered(seen.from, numbers.seqno, numbers.count.into()),
                Frame::Ordered(ordered) => {
                    self.note_numbered(seen.from, ordered.seqno, ordered.pieces.len() as u64);
                }
                Frame::Change { seqno, change: Change::Role { sequencer } } => {
                    self.passes.entry(*seqno).or_insert((seen.from, seen.now, *sequencer));
                }
                _ => {}
            }
        }
    }

    fn note_numbered(&mut self, from: usize, seqno: Seqno, count: u64) {
        for seqno in seqno..seqno + count {
            self.numbered.entry(seqno).or_insert(from);
        }
    }

    /// Returns the number of messages that this member numbered.
    fn numbered_by(&self, index: usize) -> usize {
        self.numbered.values().filter(|from| **from == index).count()
    }
}

/// Watches everything from now on; nothing is lost.
fn watch(net: &mut Net) -> Rc<RefCell<Traffic>> {
    watch_and(net, |_| PROMPT)
}

fn watch_and(net: &mut Net, mut filter: impl FnMut(&Seen) -> Option<u64> + 'static) -> Rc<RefCell<Traffic>> {
    let watched = Rc::new(RefCell::new(Traffic::default()));
    let noted = watched.clone();
    net.filter(move |seen| {
        noted.borrow_mut().note(seen);
        filter(seen)
    });
    watched
}

/// Sends messages, one each 25 µs, from these members by lot. Returns how many were sent.
fn talk(net: &mut Net, messages: usize, senders: &[usize]) -> usize {
    let mut random = Random::from_u64(7);
    let mut sent = 0;
    for _ in 0..messages {
        let sender = senders[random.below(senders.len() as u64) as usize];
        sent += usize::from(net.send(sender, b"x").is_ok());
        net.run(LATENCY / 2);
    }
    sent
}

/// Lets the token come to rest at this member.
fn rest_at(net: &mut Net, index: usize) {
    for round in 0..100 {
        if holder(net) == Some(index) {
            return;
        }
        // Two or three passes by turns.
        let now = Time::from_nanos(net.now);
        net.group_mut(0).send_with(now, Bytes::from_static(b"x"), Quality::resilient(1 + round % 2)).unwrap();
        net.drain(0);
        net.run(200 * MS);
    }
    panic!("the token does not come to m{index}");
}

/// Returns the messages that this member's application has received: their seqnos, senders and numbers.
fn messages(net: &Net, index: usize) -> Vec<(Seqno, Uid, MessageNumber)> {
    let message = |event: &Event| match event {
        Event::Message { seqno, sender, number, .. } => Some((*seqno, *sender, *number)),
        _ => None,
    };
    net.events[index].iter().filter_map(message).collect()
}

fn has_pass(seen: &Seen) -> bool {
    seen.has(|frame| matches!(frame, Frame::Change { change: Change::Role { .. }, .. }))
}

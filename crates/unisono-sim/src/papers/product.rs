//! Our own core as an occupant of the testbed: a [`Group`] on every node, driven by the papers' costs.
//!
//! The core is what it is everywhere else. Its surroundings are fitted to the machines of the time:
//!
//! - Its clock runs at a fiftieth of simulated time, because its timers are for machines that are faster by about as much.
//! - FLIP cuts its datagrams, so they may be large. A datagram counts with 23 bytes more than it has, so that a null message
//!   has the 116 bytes of the papers.
//! - Its members report after each eighth of the history, the papers' after a whole one. So its history is eight times as
//!   long, and members report equally often.
//!
//! An input costs the group work of the papers by what it brings about: g2 for each message that it numbers, g3 for each
//! that becomes deliverable, ga if neither.

use super::costs::Machine;
use super::flip::Audience;
use super::gathering::{Datagram, Life, gather, node_of, take};
use super::group::{Method, Trial};
use super::ledger::Ledger;
use super::testbed::{Desk, Occupant};
use bytes::Bytes;
use std::rc::Rc;
use unisono_core::{Destination, Event, GroupConfig, Marks, Migration, Order, Time};

/// The core's history, in histories of the papers.
pub(super) const HISTORY_FACTOR: u64 = 8;
/// Simulated time over the time of the core's clock.
pub(super) const SLOWER: u64 = 50;
/// Bytes of the datagram of a null message.
const NULL_DATAGRAM_BYTES: u64 = 93;

/// All groups of a testbed: group g has the nodes from g × members on, in the order in which they joined.
pub(super) struct Product {
    trial: Trial,
    members: Vec<Life>,
    /// Time on the core's clock at which the trial begins.
    began: Time,
    pub(super) ledger: Ledger,
}

pub(super) enum Task {
    /// The application begins to send.
    Begin,
    /// The application on the sequencer's node hands its message to the kernel.
    Enter,
    /// The message reaches the core.
    Submit,
    /// The application has worked on a message, its own if true.
    Delivered(bool),
    /// A timer is due.
    Wake,
    /// Work is done that brings about nothing more.
    Rest,
}

impl Product {
    /// Returns groups that have come together and in which no member has sent.
    pub(super) fn new(trial: &Trial, goal: u64) -> Product {
        let mut began = Time::ZERO;
        let mut members = Vec::new();
        for group in 0..trial.groups {
            let (lives, now) = gather(group * trial.members, trial.members, config(trial));
            members.extend(lives);
            began = Time::from_nanos(began.as_nanos().max(now.as_nanos()));
        }
        let ledger = Ledger::new(members.len(), goal);
        Product { trial: trial.clone(), members, began, ledger }
    }

    fn clock(&self, now: u64) -> Time {
        Time::from_nanos(self.began.as_nanos() + now / SLOWER)
    }

    fn head(&self, node: usize) -> usize {
        node - node % self.trial.members
    }

    fn payload(&self) -> Bytes {
        // The core sends a message without bytes by PB; one byte more is not seen in the times.
        let bytes = if self.trial.method == Method::Bb { self.trial.bytes.max(1) } else { self.trial.bytes };
        vec![b'.'; bytes as usize].into()
    }

    fn submit(&mut self, desk: &mut Desk<Product>) {
        let (now, payload) = (self.clock(desk.now), self.payload());
        let before = self.members[desk.node].group.marks();
        // A member whose window is full tries again when it has delivered something; with one message under way none is.
        let sent = self.members[desk.node].group.send(now, payload);
        debug_assert!(sent.is_ok(), "{sent:?}");
        self.after_input(before, false, desk);
    }

    /// Charges for what an input brought about, sends what follows, and wakes the application.
    fn after_input(&mut self, before: Marks, is_datagram: bool, desk: &mut Desk<Product>) {
        let life = &mut self.members[desk.node];
        let after = life.group.marks();
        let machine = desk.machine;
        let numbered =
            after.numbered.through.saturating_sub(before.numbered.through.max(after.numbered.after));
        let accepted = after.accepted - before.accepted;
        let us = match (numbered, accepted) {
            (0, 0) => machine.ga,
            (0, _) if !after.acting => machine.g3 * accepted as f64,
            (0, _) => machine.ga,
            (numbered, _) => machine.g2 * numbered as f64,
        };
        if is_datagram || numbered > 0 {
            desk.work(us, Task::Rest);
        }
        self.deliver(desk);
        self.transmit(desk);
        self.set_timer(desk);
    }

    /// Lets the application take the next message, if it is free. An application that is busy slows the group down.
    fn deliver(&mut self, desk: &mut Desk<Product>) {
        let head = self.head(desk.node);
        let life = &mut self.members[desk.node];
        if life.busy {
            return;
        }
        while let Some(event) = life.group.poll_event() {
            let Event::Message { sender, payload, .. } = event else { continue };
            let is_own = sender == life.me.uid;
            let own = if is_own { desk.machine.us } else { 0.0 };
            let local = if desk.node == head { desk.machine.gl } else { 0.0 };
            let copy = desk.machine.copy * payload.len() as f64;
            desk.thread(desk.machine.us + own + local + copy, Task::Delivered(is_own));
            life.busy = true;
            return;
        }
    }

    fn transmit(&mut self, desk: &mut Desk<Product>) {
        let (now, head, size) = (self.clock(desk.now), self.head(desk.node), self.trial.members);
        let life = &mut self.members[desk.node];
        while life.group.poll_sent().is_some() {}
        let mut bytes = Vec::new();
        while let Some(destination) = life.group.poll_transmit(now, &mut bytes) {
            let everyone = Audience::All(head..head + size);
            let (multicast, addresses) = match destination {
                Destination::Address(address) => (false, vec![address]),
                Destination::Everyone => {
                    let audience = life.group.audience();
                    (audience.multicast, audience.addresses.clone())
                }
                Destination::Multicast => (true, Vec::new()),
                // A search for other groups of the name: there are none.
                Destination::Rendezvous => continue,
            };
            let length = message_bytes(bytes.len() as u64, desk.machine);
            let datagram =
                |multicast| Datagram { from: life.me.address, multicast, bytes: Rc::new(bytes.clone()) };
            if multicast {
                desk.send(everyone, length, datagram(true));
            }
            for address in addresses {
                desk.send(Audience::One(node_of(address)), length, datagram(false));
            }
        }
    }

    fn set_timer(&mut self, desk: &mut Desk<Product>) {
        let now = self.clock(desk.now);
        let life = &mut self.members[desk.node];
        if let Some(at) = life.next_wake(now) {
            desk.after(at.since(now).as_nanos() as u64 * SLOWER, Task::Wake);
        }
    }

    fn wake(&mut self, desk: &mut Desk<Product>) {
        let now = self.clock(desk.now);
        let life = &mut self.members[desk.node];
        if life.group.poll_timeout().is_some_and(|(at, _)| at <= now) {
            let before = life.group.marks();
            life.group.handle_timeout(now);
            return self.after_input(before, false, desk);
        }
        self.set_timer(desk);
    }

    fn delivered(&mut self, is_own: bool, desk: &mut Desk<Product>) {
        self.members[desk.node].busy = false;
        if is_own {
            self.ledger.end(desk.node, desk.now);
            self.begin(desk);
        }
        let before = self.members[desk.node].group.marks();
        self.after_input(before, false, desk);
    }

    fn begin(&mut self, desk: &mut Desk<Product>) {
        self.ledger.begin(desk.node, desk.now);
        let us = desk.machine.u1 + desk.machine.g1;
        desk.work(us, if desk.node == self.head(desk.node) { Task::Enter } else { Task::Submit });
    }
}

impl Occupant for Product {
    type Message = Datagram;
    type Task = Task;

    fn arrived(&mut self, datagram: Datagram, desk: &mut Desk<Product>) {
        let now = self.clock(desk.now);
        let group = &mut self.members[desk.node].group;
        let before = group.marks();
        take(group, now, &datagram);
        self.after_input(before, true, desk);
    }

    fn perform(&mut self, task: Task, desk: &mut Desk<Product>) {
        match task {
            Task::Begin => self.begin(desk),
            // As in the papers' protocol: what it numbers must not be overtaken.
            Task::Enter => desk.interrupt(0.0, Task::Submit),
            Task::Submit => self.submit(desk),
            Task::Delivered(is_own) => self.delivered(is_own, desk),
            Task::Wake => self.wake(desk),
            Task::Rest => {}
        }
    }

    fn is_over(&self) -> bool {
        self.ledger.is_over()
    }
}

fn config(trial: &Trial) -> GroupConfig {
    let default = GroupConfig::default();
    GroupConfig {
        resilience: trial.resilience as u8,
        members_max: default.members_max.max(trial.members as u16),
        history_messages: (HISTORY_FACTOR * trial.history).clamp(16, 1 << 20) as u32,
        broadcast_above_bytes: if trial.method == Method::Pb { u32::MAX } else { 0 },
        order: Order::Sequencer(Migration::Never),
        ..default
    }
}

/// Returns the bytes that count for a datagram, without the headers of its packets.
fn message_bytes(datagram_bytes: u64, machine: &Machine) -> u64 {
    (datagram_bytes + machine.message_bytes(0)).saturating_sub(NULL_DATAGRAM_BYTES)
}

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
use super::group::{Method, Trial};
use super::ledger::Ledger;
use super::testbed::{Desk, Occupant};
use bytes::{Bytes, BytesMut};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use unisono_core::wire::Checksum;
use unisono_core::{
    Destination, EntryMode, Event, Group, GroupConfig, Marks, Member, Migration, Name, Order, Port, Random,
    Settings, Time, Transport, Uid,
};

/// The core's history, in histories of the papers.
pub(super) const HISTORY_FACTOR: u64 = 8;
/// Simulated time over the time of the core's clock.
const SLOWER: u64 = 50;
/// Bytes of the datagram of a null message.
const NULL_DATAGRAM_BYTES: u64 = 93;
/// Time on the core's clock within which a group must have come together.
const GATHERING_MAX: Duration = Duration::from_secs(600);
/// Time of a datagram while the group comes together: this part of its life is not measured.
const GATHERING_LATENCY: Duration = Duration::from_micros(10);
const PORT: u16 = 7195;

/// All groups of a testbed: group g has the nodes from g × members on, in the order in which they joined.
pub(super) struct Product {
    trial: Trial,
    members: Vec<Life>,
    /// Time on the core's clock at which the trial begins.
    began: Time,
    pub(super) ledger: Ledger,
}

/// A member and its application.
struct Life {
    group: Group,
    me: Member,
    /// True while the application works on an event.
    busy: bool,
    /// Time on the core's clock of the timer that was set last.
    wake_at: Option<Time>,
}

/// A datagram under way.
#[derive(Clone)]
pub(super) struct Datagram {
    from: SocketAddr,
    multicast: bool,
    bytes: Rc<Vec<u8>>,
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
            let (lives, now) = Gathering::new(trial, group).run();
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
        let Some((at, _)) = life.group.poll_timeout() else { return };
        let at = Time::from_nanos(at.as_nanos().max(now.as_nanos() + 1));
        if life.wake_at.is_none_or(|wake_at| wake_at <= now || at < wake_at) {
            life.wake_at = Some(at);
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

fn take(group: &mut Group, now: Time, datagram: &Datagram) {
    let bytes = BytesMut::from(&datagram.bytes[..]);
    if datagram.multicast {
        group.handle_multicast(now, datagram.from, bytes);
    } else {
        group.handle_datagram(now, datagram.from, bytes);
    }
}

/// Returns the bytes that count for a datagram, without the headers of its packets.
fn message_bytes(datagram_bytes: u64, machine: &Machine) -> u64 {
    (datagram_bytes + machine.message_bytes(0)).saturating_sub(NULL_DATAGRAM_BYTES)
}

fn address_of(node: usize) -> SocketAddr {
    let [.., third, fourth] = (node as u32 + 1).to_be_bytes();
    SocketAddr::from(([10, 0, third, fourth], PORT))
}

fn node_of(address: SocketAddr) -> usize {
    match address {
        SocketAddr::V4(address) => u32::from(*address.ip()).wrapping_sub(0x0a00_0001) as usize,
        SocketAddr::V6(_) => usize::MAX,
    }
}

/// A group that comes together on a perfect network, before its trial.
struct Gathering {
    now: Time,
    trial: Trial,
    /// Node of the first member.
    head: usize,
    members: Vec<Life>,
    flights: std::collections::BTreeMap<(Time, u64), (usize, Datagram)>,
    count: u64,
}

impl Gathering {
    fn new(trial: &Trial, group: usize) -> Gathering {
        Gathering {
            now: Time::from_nanos(1),
            trial: trial.clone(),
            head: group * trial.members,
            members: Vec::new(),
            flights: std::collections::BTreeMap::new(),
            count: 0,
        }
    }

    /// Lets the members join one after another, until every one sends to all by multicast alone. Returns them with the
    /// time.
    fn run(mut self) -> (Vec<Life>, Time) {
        for rank in 0..self.trial.members {
            self.enter(rank);
            self.advance(|members| members.last().is_some_and(|life| life.group.info().rank.is_some()));
        }
        self.advance(|members| {
            members.iter().all(|life| {
                let audience = life.group.audience();
                audience.multicast && audience.addresses.is_empty()
            })
        });
        (self.members, self.now)
    }

    fn enter(&mut self, rank: usize) {
        let node = self.head + rank;
        let name = Name::new(&format!("node {node}")).unwrap_or_default();
        let me = Member {
            uid: Uid(node as u64 + 1),
            name,
            address: address_of(node),
            floor: Default::default(),
            hops: 1,
        };
        let entry = if rank == 0 { EntryMode::Found(self.config()) } else { EntryMode::Join };
        let settings = Settings {
            datagram_bytes_max: 16_000,
            receive_buffer_bytes: 1 << 24,
            transport: Transport::Multicast,
            ..Settings::default()
        };
        let (port, random) =
            (Port::from_name(&format!("group {}", self.head)), Random::from_u64(node as u64));
        let group =
            Group::new(self.now, me.clone(), port, entry, Bytes::new(), settings, Box::new(Checksum), random);
        if let Ok(group) = group {
            self.members.push(Life { group, me, busy: false, wake_at: None });
            self.serve(rank);
        }
    }

    fn config(&self) -> GroupConfig {
        let default = GroupConfig::default();
        let members = self.trial.members as u16;
        GroupConfig {
            resilience: self.trial.resilience as u8,
            members_max: default.members_max.max(members),
            history_messages: (HISTORY_FACTOR * self.trial.history).clamp(16, 1 << 20) as u32,
            broadcast_above_bytes: if self.trial.method == Method::Pb { u32::MAX } else { 0 },
            order: Order::Sequencer(Migration::Never),
            ..default
        }
    }

    fn serve(&mut self, rank: usize) {
        let Gathering { now, members, flights, count, head, .. } = self;
        let others: Vec<SocketAddr> =
            members.iter().map(|life| life.me.address).filter(|a| *a != members[rank].me.address).collect();
        let life = &mut members[rank];
        while life.group.poll_event().is_some() {}
        while life.group.poll_sent().is_some() {}
        let mut bytes = Vec::new();
        while let Some(destination) = life.group.poll_transmit(*now, &mut bytes) {
            let (multicast, mut to) = match destination {
                Destination::Address(address) => (false, vec![address]),
                Destination::Everyone => {
                    let audience = life.group.audience();
                    (audience.multicast, audience.addresses.clone())
                }
                Destination::Multicast => (true, Vec::new()),
                Destination::Rendezvous => (false, others.clone()),
            };
            if multicast {
                to.clone_from(&others);
            }
            for address in to {
                *count += 1;
                let datagram = Datagram { from: life.me.address, multicast, bytes: Rc::new(bytes.clone()) };
                flights.insert((*now + GATHERING_LATENCY, *count), (node_of(address) - *head, datagram));
            }
        }
    }

    /// Lets time pass until this holds.
    fn advance(&mut self, holds: impl Fn(&[Life]) -> bool) {
        let latest = self.now + GATHERING_MAX;
        while !holds(&self.members) && self.now < latest {
            let arrival = self.flights.keys().next().copied();
            let timers = self.members.iter().enumerate();
            let timer = timers.filter_map(|(rank, life)| Some((life.group.poll_timeout()?.0, rank))).min();
            match (arrival, timer) {
                (Some(key), timer) if timer.is_none_or(|(at, _)| key.0 <= at) => {
                    let Some((rank, datagram)) = self.flights.remove(&key) else { return };
                    self.now = self.now.max(key.0);
                    let now = self.now;
                    if let Some(life) = self.members.get_mut(rank) {
                        take(&mut life.group, now, &datagram);
                        self.serve(rank);
                    }
                }
                (_, Some((at, rank))) => {
                    self.now = self.now.max(at);
                    let now = self.now;
                    self.members[rank].group.handle_timeout(now);
                    self.serve(rank);
                }
                _ => return,
            }
        }
    }
}

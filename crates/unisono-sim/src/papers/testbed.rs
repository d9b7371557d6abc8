//! The testbed: computers on one Ethernet, driven by one queue of events in simulated time.
//!
//! Who lives in it is an [`Occupant`]: a protocol with its application, for all nodes together. The testbed does the
//! packets (work to send and receive them, rings, the cable) and calls the occupant when a message has arrived as a whole
//! or a piece of its work is done. The occupant answers through its [`Desk`] with further work and messages. One seed gives
//! one run.

use super::costs::{Machine, nanos};
use super::ethernet::{Ethernet, Fate};
use super::flip::{Audience, Envelope, Packet, cut};
use super::node::{Level, Node, Work};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::rc::Rc;
use unisono_core::Random;

/// A protocol and its application on all nodes of a testbed.
pub(super) trait Occupant: Sized {
    /// What its messages say.
    type Message: Clone;
    /// What its pieces of work are for.
    type Task;

    /// Called when a message has arrived as a whole, at interrupt level, after the work for its last packet.
    fn arrived(&mut self, message: Self::Message, desk: &mut Desk<Self>);

    /// Called when a piece of work is done, or a timer is due.
    fn perform(&mut self, task: Self::Task, desk: &mut Desk<Self>);

    /// Called at the sender when the Ethernet gave up a packet of this message.
    fn given_up(&mut self, _message: Self::Message, _desk: &mut Desk<Self>) {}

    /// True when nothing more is to be measured.
    fn is_over(&self) -> bool;
}

/// Work of a node, as the testbed knows it.
pub(super) enum What<O: Occupant> {
    /// Send a packet.
    Transmit(Packet<O::Message>),
    /// Take a packet from the receive ring.
    Receive(Packet<O::Message>),
    /// The occupant's work.
    Task(O::Task),
}

/// Through which an occupant acts, at one node and one moment.
pub(super) struct Desk<'a, O: Occupant> {
    /// The node.
    pub(super) node: usize,
    /// Simulated time, in nanoseconds.
    pub(super) now: u64,
    /// Costs of the node's machine.
    pub(super) machine: &'a Machine,
    message_number: &'a mut u64,
    follow: Vec<Work<What<O>>>,
    others: Vec<(Level, Work<What<O>>)>,
    timers: Vec<(u64, O::Task)>,
}

impl<O: Occupant> Desk<'_, O> {
    /// Goes on with further work of the same level, in order, before anything else of that level.
    pub(super) fn work(&mut self, us: f64, task: O::Task) {
        self.follow.push(Work { nanos: nanos(us), what: What::Task(task) });
    }

    /// Goes on by sending a message of this size, packet by packet.
    pub(super) fn send(&mut self, to: Audience, bytes: u64, message: O::Message) {
        let sizes = cut(bytes, self.machine);
        *self.message_number += 1;
        let envelope = Rc::new(Envelope { number: *self.message_number, to, packets: sizes.len(), message });
        for bytes in sizes {
            let packet = Packet { bytes, envelope: envelope.clone() };
            self.follow.push(Work { nanos: self.machine.send_nanos(bytes), what: What::Transmit(packet) });
        }
    }

    /// Gives the node's threads work, behind what they have to do.
    pub(super) fn thread(&mut self, us: f64, task: O::Task) {
        self.others.push((Level::Thread, Work { nanos: nanos(us), what: What::Task(task) }));
    }

    /// Gives the node interrupt work, behind what it has of that.
    pub(super) fn interrupt(&mut self, us: f64, task: O::Task) {
        self.others.push((Level::Interrupt, Work { nanos: nanos(us), what: What::Task(task) }));
    }

    /// Sets a timer: the task is performed at interrupt level after these nanoseconds.
    pub(super) fn after(&mut self, nanos: u64, task: O::Task) {
        self.timers.push((self.now + nanos, task));
    }
}

/// Computers on an Ethernet, and their occupant.
pub(super) struct Testbed<O: Occupant> {
    pub(super) now: u64,
    pub(super) occupant: O,
    machine: Machine,
    nodes: Vec<Node<What<O>>>,
    pub(super) ethernet: Ethernet<Packet<O::Message>>,
    queue: BinaryHeap<Reverse<(u64, u64, usize, u64)>>,
    timers: std::collections::BTreeMap<u64, O::Task>,
    events: u64,
    message_number: u64,
}

/// An event's number where it is a timer's and not the end of work.
const NO_TURN: u64 = u64::MAX;

impl<O: Occupant> Testbed<O> {
    /// Returns a testbed with this number of nodes, all idle.
    pub(super) fn new(nodes: usize, machine: Machine, seed: u64, occupant: O) -> Testbed<O> {
        Testbed {
            now: 0,
            occupant,
            nodes: (0..nodes).map(|_| Node::default()).collect(),
            ethernet: Ethernet::new(nodes, machine.mbit_per_s, Random::from_u64(seed)),
            machine,
            queue: BinaryHeap::new(),
            timers: std::collections::BTreeMap::new(),
            events: 0,
            message_number: 0,
        }
    }

    #[cfg(test)]
    fn node(&self, node: usize) -> &Node<What<O>> {
        &self.nodes[node]
    }

    /// Returns all nodes.
    pub(super) fn nodes(&self) -> &[Node<What<O>>] {
        &self.nodes
    }

    /// Gives a node's threads their first work.
    pub(super) fn begin(&mut self, node: usize, us: f64, task: O::Task) {
        self.nodes[node].add(Level::Thread, Work { nanos: nanos(us), what: What::Task(task) });
        self.schedule(node);
    }

    /// Runs until the occupant is over or `until` has come. Returns false if nothing is left to happen before that.
    pub(super) fn run(&mut self, until: u64) -> bool {
        while !self.occupant.is_over() {
            let queued = self.queue.peek().map(|Reverse((at, ..))| *at);
            let heard = self.ethernet.next_at();
            let Some(next) = queued.into_iter().chain(heard).min() else { return false };
            if next > until {
                return true;
            }
            self.now = self.now.max(next);
            if heard == Some(next) {
                self.hear();
            } else if let Some(Reverse((_, number, node, turn))) = self.queue.pop() {
                self.due(number, node, turn);
            }
        }
        true
    }

    fn push(&mut self, at: u64, node: usize, turn: u64) -> u64 {
        self.events += 1;
        self.queue.push(Reverse((at, self.events, node, turn)));
        self.events
    }

    fn schedule(&mut self, node: usize) {
        if let Some(until) = self.nodes[node].schedule(self.now) {
            self.push(until, node, self.nodes[node].turn);
        }
    }

    fn due(&mut self, number: u64, node: usize, turn: u64) {
        if turn == NO_TURN {
            if let Some(task) = self.timers.remove(&number) {
                self.nodes[node].add(Level::Interrupt, Work { nanos: 0, what: What::Task(task) });
            }
        } else if let Some((level, what)) = self.nodes[node].finish(turn) {
            self.done(node, level, what);
        }
        self.schedule(node);
    }

    fn done(&mut self, node: usize, level: Level, what: What<O>) {
        match what {
            What::Task(task) => self.ask(node, level, |occupant, desk| occupant.perform(task, desk)),
            What::Receive(packet) => {
                self.nodes[node].ring -= 1;
                if self.nodes[node].assembly.take(&packet) {
                    let message = packet.envelope.message.clone();
                    self.ask(node, level, |occupant, desk| occupant.arrived(message, desk));
                }
            }
            What::Transmit(packet) if self.ethernet.waiting(node) < self.machine.transmit_ring => {
                self.ethernet.offer(self.now, node, packet.bytes, packet);
            }
            What::Transmit(packet) => {
                self.nodes[node].stalled = Some(level);
                let again = Work { nanos: 0, what: What::Transmit(packet) };
                self.nodes[node].add_first(level, vec![again]);
            }
        }
    }

    /// Lets the occupant act, and does what it asks for.
    fn ask(&mut self, node: usize, level: Level, act: impl FnOnce(&mut O, &mut Desk<O>)) {
        let mut desk = Desk {
            node,
            now: self.now,
            machine: &self.machine,
            message_number: &mut self.message_number,
            follow: Vec::new(),
            others: Vec::new(),
            timers: Vec::new(),
        };
        act(&mut self.occupant, &mut desk);
        let Desk { follow, others, timers, .. } = desk;
        self.nodes[node].add_first(level, follow);
        for (level, work) in others {
            self.nodes[node].add(level, work);
        }
        for (at, task) in timers {
            let number = self.push(at, node, NO_TURN);
            self.timers.insert(number, task);
        }
    }

    fn hear(&mut self) {
        for fate in self.ethernet.advance() {
            let from = match fate {
                Fate::Heard(from, packet) => {
                    self.deliver(from, &packet);
                    from
                }
                Fate::GivenUp(from, packet) => {
                    let message = packet.envelope.message.clone();
                    self.ask(from, Level::Interrupt, |occupant, desk| occupant.given_up(message, desk));
                    from
                }
            };
            if self.nodes[from].stalled.take().is_some() {
                self.schedule(from);
            }
        }
    }

    fn deliver(&mut self, from: usize, packet: &Packet<O::Message>) {
        let nodes = match &packet.envelope.to {
            Audience::One(node) => *node..*node + 1,
            Audience::All(range) => range.clone(),
        };
        for number in nodes.filter(|node| packet.envelope.to.has(*node, from)) {
            let node = &mut self.nodes[number];
            if node.ring >= self.machine.receive_ring {
                node.lost += 1;
                continue;
            }
            node.ring += 1;
            node.interrupts_taken += 1;
            let work =
                Work { nanos: self.machine.receive_nanos(packet.bytes), what: What::Receive(packet.clone()) };
            node.add(Level::Interrupt, work);
            self.schedule(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::costs::{Costs, MachineName};
    use super::*;

    /// Counts what arrives where and when. The message says how long its receiver works at it, in microseconds.
    #[derive(Default)]
    struct Counter {
        arrived: Vec<(usize, u64)>,
        performed: Vec<(usize, u64, &'static str)>,
    }

    impl Occupant for Counter {
        type Message = f64;
        type Task = (&'static str, usize, u64);

        fn arrived(&mut self, us: f64, desk: &mut Desk<Counter>) {
            self.arrived.push((desk.node, desk.now));
            desk.work(us, ("handled", 0, 0));
        }

        fn perform(&mut self, (what, messages, bytes): (&'static str, usize, u64), desk: &mut Desk<Counter>) {
            self.performed.push((desk.node, desk.now, what));
            for _ in 0..messages {
                desk.send(Audience::All(0..3), bytes, if what == "slow" { 1e5 } else { 10.0 });
            }
        }

        fn is_over(&self) -> bool {
            false
        }
    }

    fn bed() -> Testbed<Counter> {
        Testbed::new(3, Costs::default().machine(MachineName::Mc68030), 1, Counter::default())
    }

    #[test]
    fn a_message_takes_its_sender_the_wire_and_its_receivers() {
        let mut bed = bed();
        bed.begin(0, 50.0, ("send", 1, 60));
        assert!(!bed.run(u64::MAX), "all is over");
        let m = bed.machine.clone();
        let sent = 50_000 + m.send_nanos(116);
        let arrived = sent + 102_400 + m.receive_nanos(116);
        assert_eq!(bed.occupant.arrived, [(1, arrived), (2, arrived)]);
        assert_eq!(
            bed.occupant.performed[1..],
            [(1, arrived + 10_000, "handled"), (2, arrived + 10_000, "handled")]
        );
        assert_eq!((bed.ethernet.frames, bed.node(1).interrupts_taken), (1, 1));
    }

    #[test]
    fn a_large_message_arrives_once_with_its_last_packet() {
        let mut bed = bed();
        bed.begin(0, 0.0, ("send", 1, 8060));
        bed.run(u64::MAX);
        assert_eq!(bed.occupant.arrived.len(), 2);
        assert_eq!(bed.ethernet.frames, 6);
    }

    #[test]
    fn a_receiver_that_is_busy_loses_what_its_ring_does_not_hold() {
        let mut bed = bed();
        bed.begin(0, 0.0, ("slow", 1, 60));
        bed.begin(0, 0.0, ("send", 50, 60));
        bed.run(u64::MAX);
        // The first makes them work for 100 ms; meanwhile 32 of the others fit the ring.
        assert_eq!((bed.node(1).lost, bed.node(2).lost), (18, 18));
        assert_eq!(bed.occupant.arrived.len(), 2 * 33);
    }

    #[test]
    fn a_driver_waits_for_room_in_its_transmit_ring() {
        let mut bed = bed();
        // A full packet takes longer on the wire than in the processor if copies cost nothing.
        bed.machine.copy = 0.0;
        bed.begin(0, 0.0, ("send", 40, 1458));
        bed.begin(0, 0.0, ("next", 0, 0));
        bed.run(u64::MAX);
        let next = bed.occupant.performed.iter().find(|done| done.2 == "next").unwrap().1;
        // 40 less the 16 in the ring have left by then.
        assert!((24 * 1_220_800..25 * 1_240_000).contains(&next), "{next}");
    }
}

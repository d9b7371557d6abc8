//! Our own core on WMK94's machines: a group with a rotating token, in RMP's place.
//!
//! As with RMP all runs in user space. A datagram costs a thread as much to send as to receive, whatever is in it, and
//! deliveries cost nothing. A source has as many messages under way as RMP's, and sends as many before it reads what has
//! arrived. A source is always a member here: one that RMP has beside its ring is one member more. It needs no datagram to
//! deliver what it has sent.
//!
//! What the Ethernet gives up is sent again after the same time as for RMP. Our own timers would do it, but a fiftieth as
//! fast; one way of running a transfer shows that.

use super::costs::{Costs, Machine, MachineName};
use super::flip::Audience;
use super::gathering::{Datagram, Life, gather, node_of, take};
use super::product::SLOWER;
use super::rmp::{AGAIN_NANOS, BURST, NANOS_MAX, PAUSE_NANOS, Transfer, Transferred, WINDOW};
use super::testbed::{Desk, Occupant, Testbed};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::rc::Rc;
use unisono_core::{Destination, Event, GroupConfig, Migration, Order, Quality, Time, Uid};

/// Bytes of UDP's header, which our datagrams do not count.
const UDP_BYTES: u64 = 8;

/// How our core orders a transfer's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Manner {
    /// By a token that goes round.
    Ring,
    /// The same, and what the Ethernet gives up is left to the core's own timers.
    OwnTimers,
    /// The same, with messages that are delivered before they are ordered.
    Unordered,
    /// By a sequencer, the first member; the last ones are the sources.
    Sequencer,
}

enum Task {
    /// A source sends what its window allows.
    Send,
    /// A source that paused goes on.
    GoOn,
    /// A datagram has been worked on and leaves.
    Emit(Audience, Datagram),
    /// A datagram has been received.
    Handle(Datagram),
    /// A timer of the core is due, or time to send again what the Ethernet gave up. Both give their work to the thread,
    /// as all other work.
    Wake,
    Timer(Datagram),
    HandleTimeout,
    Again(Datagram),
}

/// A message that is not everywhere yet.
struct Flight {
    began_at: u64,
    delivered: usize,
}

#[derive(Clone, Copy, Default)]
struct Source {
    under_way: u64,
    /// True while it is to go on sending.
    is_sending: bool,
}

struct Ring {
    transfer: Transfer,
    manner: Manner,
    members: Vec<Life>,
    sources: Vec<Source>,
    /// Time on the core's clock at which the testbed begins.
    began: Time,
    flights: BTreeMap<(Uid, u64), Flight>,
    goal: u64,
    done: u64,
    last_at: u64,
    nanos: u64,
    datagrams: u64,
}

fn datagram_us(machine: &Machine, datagram: &Datagram) -> f64 {
    machine.datagram + machine.byte * (datagram.bytes.len() as u64 + UDP_BYTES) as f64
}

impl Ring {
    fn everyone(&self) -> Audience {
        Audience::All(0..self.members.len())
    }

    fn clock(&self, now: u64) -> Time {
        Time::from_nanos(self.began.as_nanos() + now / SLOWER)
    }

    /// Lets a source begin with its next messages, if its window has room.
    fn send(&mut self, desk: &mut Desk<Ring>) {
        self.sources[desk.node].is_sending = false;
        let window = if self.transfer.one_at_a_time { 1 } else { WINDOW };
        let now = self.clock(desk.now);
        let quality = if self.manner == Manner::Unordered { Quality::UNORDERED } else { Quality::ORDERED };
        for _ in 0..BURST {
            if self.sources[desk.node].under_way == window {
                return;
            }
            let life = &mut self.members[desk.node];
            let payload = Bytes::from(vec![b'.'; self.transfer.bytes as usize]);
            let Ok(number) = life.group.send_with(now, payload, quality) else { return };
            self.sources[desk.node].under_way += 1;
            self.flights.insert((life.me.uid, number), Flight { began_at: desk.now, delivered: 0 });
            self.after_input(desk);
            if self.transfer.one_at_a_time {
                return;
            }
        }
        self.go_on(desk);
    }

    /// Lets a source send again, behind what its node has to do already.
    fn go_on(&mut self, desk: &mut Desk<Ring>) {
        let first = self.members.len() - self.transfer.senders;
        let source = &mut self.sources[desk.node];
        if desk.node >= first && !source.is_sending {
            source.is_sending = true;
            desk.thread(0.0, Task::Send);
        }
    }

    fn after_input(&mut self, desk: &mut Desk<Ring>) {
        self.deliver(desk);
        self.transmit(desk);
        let now = self.clock(desk.now);
        if let Some(at) = self.members[desk.node].next_wake(now) {
            desk.after(at.since(now).as_nanos() as u64 * SLOWER, Task::Wake);
        }
    }

    fn deliver(&mut self, desk: &mut Desk<Ring>) {
        while let Some(event) = self.members[desk.node].group.poll_event() {
            match event {
                Event::Message { sender, number, .. } => self.delivered((sender, number), desk),
                // It has no number yet. One source with one message under way is all that is measured so.
                Event::Early { sender, .. } => {
                    let first = self.flights.keys().find(|(uid, _)| *uid == sender).copied();
                    if let Some(name) = first {
                        self.delivered(name, desk);
                    }
                }
                _ => {}
            }
        }
    }

    fn delivered(&mut self, name: (Uid, u64), desk: &mut Desk<Ring>) {
        let nodes = self.members.len();
        // Where messages are not ordered, the others' deliveries are what counts.
        let is_own = name.0 == self.members[desk.node].me.uid;
        let counted = if self.manner == Manner::Unordered { nodes - 1 } else { nodes };
        if let Some(flight) = self.flights.get_mut(&name).filter(|_| counted == nodes || !is_own) {
            flight.delivered += 1;
            if flight.delivered == counted {
                self.nanos += desk.now - flight.began_at;
                self.flights.remove(&name);
                (self.done, self.last_at) = (self.done + 1, desk.now);
            }
        }
        if !is_own {
            return;
        }
        self.sources[desk.node].under_way -= 1;
        if self.transfer.one_at_a_time {
            desk.after(PAUSE_NANOS, Task::GoOn);
        } else {
            self.go_on(desk);
        }
    }

    fn transmit(&mut self, desk: &mut Desk<Ring>) {
        let now = self.clock(desk.now);
        let life = &mut self.members[desk.node];
        while life.group.poll_sent().is_some() {}
        let mut bytes = Vec::new();
        while let Some(destination) = life.group.poll_transmit(now, &mut bytes) {
            let datagram =
                |multicast| Datagram { from: life.me.address, multicast, bytes: Rc::new(bytes.clone()) };
            let audience = life.group.audience();
            let (multicast, addresses) = match destination {
                Destination::Address(address) => (false, vec![address]),
                Destination::Everyone => (audience.multicast, audience.addresses.clone()),
                Destination::Multicast => (true, Vec::new()),
                // A search for other groups of the name: there are none.
                Destination::Rendezvous => continue,
            };
            let mut emit = |to, datagram| {
                desk.work(datagram_us(desk.machine, &datagram), Task::Emit(to, datagram));
            };
            if multicast {
                emit(Audience::All(0..self.sources.len()), datagram(true));
            }
            for address in addresses {
                emit(Audience::One(node_of(address)), datagram(false));
            }
        }
    }
}

impl Occupant for Ring {
    type Message = Datagram;
    type Task = Task;

    fn arrived(&mut self, datagram: Datagram, desk: &mut Desk<Ring>) {
        desk.thread(datagram_us(desk.machine, &datagram), Task::Handle(datagram));
    }

    fn perform(&mut self, task: Task, desk: &mut Desk<Ring>) {
        let now = self.clock(desk.now);
        match task {
            Task::Send => self.send(desk),
            Task::GoOn => self.go_on(desk),
            Task::Emit(to, datagram) => {
                self.datagrams += 1;
                desk.send(to, datagram.bytes.len() as u64 + UDP_BYTES, datagram);
            }
            Task::Handle(datagram) => {
                take(&mut self.members[desk.node].group, now, &datagram);
                self.after_input(desk);
            }
            Task::Wake => desk.thread(0.0, Task::HandleTimeout),
            Task::Timer(datagram) => desk.thread(0.0, Task::Again(datagram)),
            Task::Again(datagram) => {
                desk.send(self.everyone(), datagram.bytes.len() as u64 + UDP_BYTES, datagram);
            }
            Task::HandleTimeout => {
                let group = &mut self.members[desk.node].group;
                if group.poll_timeout().is_some_and(|(at, _)| at <= now) {
                    group.handle_timeout(now);
                }
                self.after_input(desk);
            }
        }
    }

    fn given_up(&mut self, datagram: Datagram, desk: &mut Desk<Ring>) {
        if self.manner != Manner::OwnTimers && datagram.multicast {
            desk.after(AGAIN_NANOS, Task::Timer(datagram));
        }
    }

    fn is_over(&self) -> bool {
        self.done >= self.goal
    }
}

fn config(members: usize, manner: Manner) -> GroupConfig {
    let default = GroupConfig::default();
    let order = match manner {
        Manner::Ring | Manner::OwnTimers | Manner::Unordered => Order::Token,
        Manner::Sequencer => Order::Sequencer(Migration::Never),
    };
    GroupConfig { resilience: 0, members_max: default.members_max.max(members as u16), order, ..default }
}

impl Transfer {
    /// Sends this number of messages with our core, after as many that are not measured.
    pub(super) fn ours(&self, costs: &Costs, manner: Manner, messages: u64) -> Transferred {
        let nodes = self.nodes();
        let (members, began) = gather(0, nodes, config(nodes, manner));
        let ring = Ring {
            transfer: *self,
            manner,
            sources: vec![Source::default(); members.len()],
            members,
            began,
            flights: BTreeMap::new(),
            goal: messages,
            done: 0,
            last_at: 0,
            nanos: 0,
            datagrams: 0,
        };
        let mut bed = Testbed::new(nodes, costs.machine(MachineName::Sparc5), self.seed, ring);
        for node in nodes - self.senders..nodes {
            bed.begin(node, 10.0 * node as f64, Task::GoOn);
        }
        bed.run(NANOS_MAX);
        let ring = &mut bed.occupant;
        let (done, began_at, datagrams) = (ring.done, ring.last_at, ring.datagrams);
        (ring.nanos, ring.goal) = (0, done + messages);
        bed.run(bed.now + NANOS_MAX);
        let ring = &bed.occupant;
        let measured = (ring.done - done) as f64;
        Transferred {
            ordered_ms: ring.nanos as f64 / measured / 1e6,
            received_ms: 0.0,
            kb_per_s: measured * self.bytes as f64 * 1e6 / (ring.last_at - began_at) as f64,
            multicasts: (ring.datagrams - datagrams) as f64 / measured,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Transfer =
        Transfer { members: 3, senders: 1, source_delivers: true, bytes: 0, one_at_a_time: true, seed: 1 };

    fn run(transfer: Transfer, manner: Manner) -> Transferred {
        transfer.ours(&Costs::default(), manner, 300)
    }

    #[test]
    fn a_message_alone_is_data_and_a_pass_unless_its_source_has_the_token() {
        let ring = run(ONE, Manner::Ring);
        // The source has the token for every third message, which then needs no datagram but its own.
        assert!((1.6..2.0).contains(&ring.multicasts), "{ring:?}");
        let sequencer = run(ONE, Manner::Sequencer);
        assert!((sequencer.multicasts - 2.0).abs() < 0.05, "{sequencer:?}");
    }

    #[test]
    fn ordered_messages_take_a_datagram_more_than_unordered_ones() {
        let [ordered, unordered] =
            [Manner::Ring, Manner::Unordered].map(|manner| run(ONE, manner).ordered_ms);
        assert!((1.6..2.2).contains(&(ordered / unordered)), "{ordered} {unordered}");
    }

    #[test]
    fn a_ring_under_load_orders_many_messages_by_one_datagram() {
        let load = Transfer { members: 5, senders: 5, bytes: 1024, one_at_a_time: false, ..ONE };
        let [ring, sequencer] = [Manner::Ring, Manner::Sequencer].map(|manner| run(load, manner));
        assert!(ring.multicasts < 1.3, "{ring:?}");
        assert!(ring.kb_per_s > sequencer.kb_per_s, "{ring:?} {sequencer:?}");
    }

    #[test]
    fn two_runs_of_a_seed_are_one() {
        let load = Transfer { members: 4, senders: 4, bytes: 8192, one_at_a_time: false, ..ONE };
        assert_eq!(run(load, Manner::Ring), run(load, Manner::Ring));
        assert_ne!(run(load, Manner::Ring), run(Transfer { seed: 2, ..load }, Manner::Ring));
    }
}

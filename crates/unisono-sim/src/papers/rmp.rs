//! RMP's data and ACKs on the testbed [WMK94 §4]: the protocol with a rotating token, without losses.
//!
//! A source multicasts its packets. The member that has the token orders what it has received by an ACK, which names the
//! next token site. A site that gets the token and has nothing to order confirms it after a while with a null ACK. All
//! runs in user space: the work for a datagram is a thread's, as much to send it as to receive it, and a source that is a
//! member receives its own.
//!
//! Latency is the time until all have a message and the ACK that orders it, the source included. What the paper does not
//! say is assumed: the constants below that say so.

use super::costs::{Costs, Machine, MachineName};
use super::flip::Audience;
use super::testbed::{Desk, Occupant, Testbed};
use std::collections::BTreeMap;

/// Packets that a source has under way (assumed).
pub(super) const WINDOW: u64 = 24;
/// Packets that a source sends before it reads what has arrived (assumed).
pub(super) const BURST: u64 = 2;
/// Time until a site confirms the token with a null ACK (assumed).
const CONFIRM_NANOS: u64 = 20_000_000;
/// Time until what the Ethernet gave up is sent again: it stands for RMP's timers, which follow its round trips (assumed).
pub(super) const AGAIN_NANOS: u64 = 5_000_000;
/// Pause of a source that sends one message at a time: longer than any null ACK takes.
pub(super) const PAUSE_NANOS: u64 = 60_000_000;
/// Bytes by which an ACK names a packet (assumed).
const NAME_BYTES: u64 = 8;
pub(super) const NANOS_MAX: u64 = 3_600_000_000_000;

/// A ring and what its sources send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Transfer {
    /// Number of members of the ring.
    pub(super) members: usize,
    /// Number of sources. They are members, but for the single source of a transfer to others.
    pub(super) senders: usize,
    /// True if sources are members: they deliver their own packets.
    pub(super) source_delivers: bool,
    /// Bytes of a packet.
    pub(super) bytes: u64,
    /// True if the source waits between its messages until all is quiet.
    pub(super) one_at_a_time: bool,
    pub(super) seed: u64,
}

/// What a transfer measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Transferred {
    /// Mean time until a message is ordered everywhere, in milliseconds.
    pub(super) ordered_ms: f64,
    /// Mean time until all other members have it, in milliseconds.
    pub(super) received_ms: f64,
    /// Bytes a second that each member delivers, in thousands.
    pub(super) kb_per_s: f64,
    /// Multicasts a message.
    pub(super) multicasts: f64,
}

/// Names a packet: its source and a number.
type Name = (usize, u64);

#[derive(Clone)]
enum Said {
    Data(Name),
    /// The packets in their order, and the next token site.
    Ack(Vec<Name>, usize, u64),
}

enum Task {
    /// The source has worked on this packet.
    Emit(Name),
    /// The token site has worked on its ACK.
    Order,
    /// A datagram has been received.
    Handle(Said),
    /// A source that paused goes on.
    GoOn,
    /// Time for a null ACK, if the token of this stamp is still here.
    Confirm(u64),
    /// Time to send again what the Ethernet gave up. The timer gives the work to the thread, as all other work.
    Timer(Said),
    Again(Said),
}

#[derive(Default)]
struct Site {
    unordered: Vec<Name>,
    has_token: bool,
    /// True while it works on an ACK.
    is_ordering: bool,
    /// Stamp of the last ACK that it knows.
    stamp: u64,
    sent: u64,
    under_way: u64,
    /// Number of packets on which it works.
    begun: u64,
}

/// A packet that is not everywhere yet.
struct Flight {
    began_at: u64,
    received: usize,
    ordered: usize,
}

struct RmpRing {
    transfer: Transfer,
    sites: Vec<Site>,
    flights: BTreeMap<Name, Flight>,
    goal: u64,
    done: u64,
    last_at: u64,
    ordered_nanos: u64,
    received_nanos: u64,
    multicasts: u64,
}

impl Transfer {
    pub(super) fn nodes(&self) -> usize {
        self.members + usize::from(!self.source_delivers)
    }

    fn is_member(&self, node: usize) -> bool {
        self.source_delivers || node > 0
    }

    fn successor(&self, node: usize) -> usize {
        let next = (node + 1) % self.nodes();
        if self.is_member(next) { next } else { next + 1 }
    }
}

fn datagram_us(machine: &Machine, bytes: u64) -> f64 {
    machine.datagram + machine.byte * (machine.message_bytes(bytes)) as f64
}

impl RmpRing {
    fn everyone(&self) -> Audience {
        Audience::All(0..self.sites.len())
    }

    fn bytes_of(&self, said: &Said) -> u64 {
        match said {
            Said::Data(_) => self.transfer.bytes,
            Said::Ack(names, ..) => NAME_BYTES * names.len() as u64,
        }
    }

    fn multicast(&mut self, said: Said, desk: &mut Desk<RmpRing>) {
        self.multicasts += 1;
        let bytes = desk.machine.message_bytes(self.bytes_of(&said));
        desk.send(self.everyone(), bytes, said);
    }

    /// Begins with the next packets, if the window has room.
    fn send_more(&mut self, desk: &mut Desk<RmpRing>) {
        let window = if self.transfer.one_at_a_time { 1 } else { WINDOW };
        let us = datagram_us(desk.machine, self.transfer.bytes);
        let is_source = desk.node < self.transfer.senders;
        let site = &mut self.sites[desk.node];
        while is_source && site.under_way < window && site.begun < BURST {
            (site.sent, site.under_way, site.begun) = (site.sent + 1, site.under_way + 1, site.begun + 1);
            let name = (desk.node, site.sent);
            self.flights.insert(name, Flight { began_at: desk.now, received: 0, ordered: 0 });
            desk.thread(us, Task::Emit(name));
        }
    }

    fn emit(&mut self, name: Name, desk: &mut Desk<RmpRing>) {
        self.multicast(Said::Data(name), desk);
        if self.transfer.source_delivers {
            // Its own copy comes back to it.
            desk.thread(datagram_us(desk.machine, self.transfer.bytes), Task::Handle(Said::Data(name)));
        }
        self.sites[desk.node].begun -= 1;
        self.send_more(desk);
    }

    fn received(&mut self, name: Name, desk: &mut Desk<RmpRing>) {
        if !self.transfer.is_member(desk.node) {
            return;
        }
        let others = self.transfer.members - usize::from(self.transfer.source_delivers);
        if name.0 != desk.node
            && let Some(flight) = self.flights.get_mut(&name)
        {
            flight.received += 1;
            if flight.received == others {
                self.received_nanos += desk.now - flight.began_at;
            }
        }
        let site = &mut self.sites[desk.node];
        if self.flights.get(&name).is_some_and(|flight| flight.ordered == 0)
            && !site.unordered.contains(&name)
        {
            site.unordered.push(name);
        }
        self.order_if_possible(desk);
    }

    fn order_if_possible(&mut self, desk: &mut Desk<RmpRing>) {
        let site = &mut self.sites[desk.node];
        if site.has_token && !site.is_ordering && !site.unordered.is_empty() {
            site.is_ordering = true;
            let bytes = NAME_BYTES * site.unordered.len() as u64;
            desk.work(datagram_us(desk.machine, bytes), Task::Order);
        }
    }

    /// Orders all that the token site has, and passes the token.
    fn order(&mut self, desk: &mut Desk<RmpRing>) {
        let next = self.transfer.successor(desk.node);
        let site = &mut self.sites[desk.node];
        (site.is_ordering, site.has_token) = (false, false);
        let stamp = site.stamp + 1;
        let said = Said::Ack(site.unordered.clone(), next, stamp);
        self.multicast(said.clone(), desk);
        self.handle(said, desk);
    }

    fn ordered(&mut self, names: &[Name], desk: &mut Desk<RmpRing>) {
        let nodes = self.sites.len();
        for name in names {
            self.sites[desk.node].unordered.retain(|other| other != name);
            if name.0 == desk.node {
                self.sites[desk.node].under_way -= 1;
            }
            let Some(flight) = self.flights.get_mut(name) else { continue };
            flight.ordered += 1;
            if flight.ordered == nodes {
                self.ordered_nanos += desk.now - flight.began_at;
                self.flights.remove(name);
                (self.done, self.last_at) = (self.done + 1, desk.now);
            }
        }
    }

    fn acknowledged(&mut self, names: &[Name], next: usize, stamp: u64, desk: &mut Desk<RmpRing>) {
        if stamp <= self.sites[desk.node].stamp {
            return;
        }
        self.ordered(names, desk);
        let site = &mut self.sites[desk.node];
        site.stamp = stamp;
        if next == desk.node {
            site.has_token = true;
            if !names.is_empty() {
                desk.after(CONFIRM_NANOS, Task::Confirm(stamp));
            }
            self.order_if_possible(desk);
        }
        if self.transfer.one_at_a_time {
            if names.iter().any(|name| name.0 == desk.node) {
                desk.after(PAUSE_NANOS, Task::GoOn);
            }
        } else {
            self.send_more(desk);
        }
    }

    fn handle(&mut self, said: Said, desk: &mut Desk<RmpRing>) {
        match said {
            Said::Data(name) => self.received(name, desk),
            Said::Ack(names, next, stamp) => self.acknowledged(&names, next, stamp, desk),
        }
    }

    fn confirm(&mut self, stamp: u64, desk: &mut Desk<RmpRing>) {
        let site = &mut self.sites[desk.node];
        if site.has_token && site.stamp == stamp && !site.is_ordering {
            site.is_ordering = true;
            desk.thread(datagram_us(desk.machine, 0), Task::Order);
        }
    }
}

impl Occupant for RmpRing {
    type Message = Said;
    type Task = Task;

    fn arrived(&mut self, said: Said, desk: &mut Desk<RmpRing>) {
        desk.thread(datagram_us(desk.machine, self.bytes_of(&said)), Task::Handle(said));
    }

    fn perform(&mut self, task: Task, desk: &mut Desk<RmpRing>) {
        match task {
            Task::Emit(name) => self.emit(name, desk),
            Task::Order => self.order(desk),
            Task::Handle(said) => self.handle(said, desk),
            Task::GoOn => self.send_more(desk),
            Task::Confirm(stamp) => self.confirm(stamp, desk),
            Task::Timer(said) => desk.thread(0.0, Task::Again(said)),
            Task::Again(said) => self.multicast(said, desk),
        }
    }

    fn given_up(&mut self, said: Said, desk: &mut Desk<RmpRing>) {
        desk.after(AGAIN_NANOS, Task::Timer(said));
    }

    fn is_over(&self) -> bool {
        self.done >= self.goal
    }
}

impl Transfer {
    /// Sends this number of messages and measures them.
    pub(super) fn run(&self, costs: &Costs, messages: u64) -> Transferred {
        let machine = costs.machine(MachineName::Sparc5);
        let nodes = self.nodes();
        let mut ring = RmpRing {
            transfer: *self,
            sites: (0..nodes).map(|_| Site::default()).collect(),
            flights: BTreeMap::new(),
            goal: messages,
            done: 0,
            last_at: 0,
            ordered_nanos: 0,
            received_nanos: 0,
            multicasts: 0,
        };
        ring.sites[nodes - 1].has_token = true;
        let mut bed = Testbed::new(nodes, machine, self.seed, ring);
        for node in 0..self.senders {
            bed.begin(node, 10.0 * node as f64, Task::GoOn);
        }
        bed.run(NANOS_MAX);
        let ring = &bed.occupant;
        let each = |nanos: u64| nanos as f64 / ring.done as f64 / 1e6;
        Transferred {
            ordered_ms: each(ring.ordered_nanos),
            received_ms: each(ring.received_nanos),
            kb_per_s: (ring.done * self.bytes) as f64 * 1e6 / ring.last_at as f64,
            multicasts: ring.multicasts as f64 / ring.done as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(transfer: Transfer, messages: u64) -> Transferred {
        transfer.run(&Costs::default(), messages)
    }

    const ONE: Transfer =
        Transfer { members: 1, senders: 1, source_delivers: false, bytes: 0, one_at_a_time: true, seed: 1 };

    #[test]
    fn a_message_alone_is_data_ack_and_null_ack() {
        let transferred = run(Transfer { members: 3, ..ONE }, 50);
        assert!((transferred.multicasts - 3.0).abs() < 0.05, "{transferred:?}");
        assert!((transferred.ordered_ms / transferred.received_ms - 2.0).abs() < 0.1, "{transferred:?}");
    }

    #[test]
    fn under_load_an_ack_orders_many_messages() {
        let load = Transfer { members: 5, senders: 5, source_delivers: true, bytes: 1024, ..ONE };
        let transferred = run(Transfer { one_at_a_time: false, ..load }, 1000);
        assert!(transferred.multicasts < 1.3, "{transferred:?}");
    }

    #[test]
    fn more_destinations_cost_a_source_nothing() {
        let rate = |members| {
            let transfer = Transfer { members, bytes: 8192, one_at_a_time: false, ..ONE };
            run(transfer, 200).kb_per_s
        };
        assert!((rate(8) / rate(1) - 1.0).abs() < 0.1, "{} {}", rate(1), rate(8));
    }
}

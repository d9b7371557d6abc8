//! Members whose datagrams arrive at once, for measuring the cost of a message. This driver itself costs next to
//! nothing.

use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;
use unisono_core::wire::Checksum;
use unisono_core::*;

/// The member that founds the group and is its sequencer.
const FOUNDER: usize = 0;
/// The member that sends; it is not the sequencer.
const SENDER: usize = 1;
const MEMBERS: usize = 3;
/// Time from one round to the next.
const PACE: Duration = Duration::from_micros(20);
/// Number and length of the time steps before the first round, in which all members come to rest.
const SETTLING_STEPS: u32 = 500;
const SETTLING_STEP: Duration = Duration::from_millis(1);
/// Time limit for all members to join.
const JOINED_BY: Duration = Duration::from_secs(2);

/// A case to be measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) resilience: u8,
    /// The message goes by BB: the data goes to all members, and the sequencer sends its seqno only.
    pub(crate) broadcast: bool,
    /// Number of messages under way at once.
    pub(crate) at_once: usize,
}

pub(crate) const SCENARIOS: [Scenario; 4] = [
    Scenario { name: "pb-r0", resilience: 0, broadcast: false, at_once: 1 },
    Scenario { name: "pb-r1", resilience: 1, broadcast: false, at_once: 1 },
    Scenario { name: "bb-r0", resilience: 0, broadcast: true, at_once: 1 },
    Scenario { name: "pb-r0-by-16", resilience: 0, broadcast: false, at_once: 16 },
];

/// Copies a datagram into the buffer in which it is received.
type Receive = Box<dyn FnMut(&[u8]) -> BytesMut>;

pub(crate) struct Lockstep {
    now: Time,
    members: Vec<Group>,
    flights: VecDeque<(usize, usize, BytesMut)>,
    out: Vec<u8>,
    receive: Receive,
    /// Number of messages that each member's application has received.
    pub(crate) delivered: [u64; MEMBERS],
    at_once: usize,
}

fn address(member: usize) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 1000 + member as u16))
}

impl Lockstep {
    /// Returns three members of one group.
    pub(crate) fn new(scenario: Scenario, receive: impl FnMut(&[u8]) -> BytesMut + 'static) -> Lockstep {
        let mut lockstep = Lockstep {
            now: Time::from_nanos(1),
            members: Vec::with_capacity(MEMBERS),
            flights: VecDeque::with_capacity(64),
            out: Vec::with_capacity(2048),
            receive: Box::new(receive),
            delivered: [0; MEMBERS],
            at_once: scenario.at_once,
        };
        let config = GroupConfig {
            resilience: scenario.resilience,
            broadcast_above_bytes: if scenario.broadcast { 0 } else { 1300 },
            ..GroupConfig::default()
        };
        for member in 0..MEMBERS {
            lockstep.enter(
                member,
                if member == FOUNDER { EntryMode::Found(config.clone()) } else { EntryMode::Join },
            );
            while lockstep.members[member].info().members.len() <= member {
                assert!(lockstep.now < Time::ZERO + JOINED_BY, "member {member} does not join");
                lockstep.pass_time();
            }
        }
        // Until every member knows that all are members.
        (0..SETTLING_STEPS).for_each(|_| lockstep.pass(SETTLING_STEP));
        lockstep
    }

    fn enter(&mut self, member: usize, entry: EntryMode) {
        let me = Member {
            uid: Uid(100 + member as u64),
            name: Name::new(&member.to_string()).unwrap(),
            address: address(member),
            floor: Default::default(),
            hops: 1,
        };
        let (port, random) = (Port::from_name("lockstep"), Random::from_u64(member as u64));
        let (settings, protection) = (Settings::default(), Box::new(Checksum));
        let group = Group::new(self.now, me, port, entry, Bytes::new(), settings, protection, random);
        self.members.push(group.unwrap());
        self.drain(member);
    }

    /// One round: sends, and lets time pass until the next round.
    pub(crate) fn round(&mut self, payload: &Bytes) {
        self.send(payload);
        self.pass_time();
    }

    /// The sender sends as many messages as may be under way at once, and all members receive them.
    pub(crate) fn send(&mut self, payload: &Bytes) {
        for _ in 0..self.at_once {
            self.members[SENDER].send(self.now, payload.clone()).unwrap();
        }
        self.drain(SENDER);
        self.arrive();
    }

    /// Lets the time of one round pass, and fires the timers that are due.
    pub(crate) fn pass_time(&mut self) {
        self.pass(PACE);
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        for member in 0..self.members.len() {
            if self.members[member].poll_timeout().is_some_and(|(at, _)| at <= self.now) {
                self.members[member].handle_timeout(self.now);
                self.drain(member);
            }
        }
        self.arrive();
    }

    /// Delivers everything under way, and everything sent in answer.
    fn arrive(&mut self) {
        while let Some((from, to, datagram)) = self.flights.pop_front() {
            self.members[to].handle_datagram(self.now, address(from), datagram);
            self.drain(to);
        }
    }

    fn drain(&mut self, from: usize) {
        let group = &mut self.members[from];
        while let Some(event) = group.poll_event() {
            self.delivered[from] += u64::from(matches!(event, Event::Message { .. }));
        }
        while group.poll_sent().is_some() {}
        while let Some(destination) = group.poll_transmit(self.now, &mut self.out) {
            let mut send = |to: SocketAddr| {
                self.flights.push_back((from, usize::from(to.port()) - 1000, (self.receive)(&self.out)));
            };
            match destination {
                Destination::Address(to) => send(to),
                Destination::Everyone => group.audience().addresses.iter().copied().for_each(send),
                // As with seed addresses: a process that locates the group asks its founder.
                Destination::Rendezvous if from != FOUNDER => send(address(FOUNDER)),
                Destination::Rendezvous | Destination::Multicast => {}
            }
        }
    }
}

//! Members whose datagrams arrive at once, for seeing what a message costs: this driver itself does next to nothing.

use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;
use unisono_core::wire::Checksum;
use unisono_core::*;

/// Who founded the group, and orders.
const ORDERER: usize = 0;
/// Who sends: not the sequencer.
const SENDER: usize = 1;
const MEMBERS: usize = 3;
/// From one round to the next.
const PACE: Duration = Duration::from_micros(20);
/// So often, and for so long each time, everybody comes to rest before the first round.
const SETTLING_STEPS: u32 = 500;
const SETTLING_STEP: Duration = Duration::from_millis(1);
/// For everybody to join.
const JOINED_BY: Duration = Duration::from_secs(2);

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) resilience: u8,
    /// The data goes to everybody, and only its number comes from the sequencer.
    pub(crate) broadcast: bool,
    /// So many messages are under way at once.
    pub(crate) at_once: usize,
}

pub(crate) const SCENARIOS: [Scenario; 4] = [
    Scenario { name: "pb-r0", resilience: 0, broadcast: false, at_once: 1 },
    Scenario { name: "pb-r1", resilience: 1, broadcast: false, at_once: 1 },
    Scenario { name: "bb-r0", resilience: 0, broadcast: true, at_once: 1 },
    Scenario { name: "pb-r0-by-16", resilience: 0, broadcast: false, at_once: 16 },
];

/// Makes the buffer in which a datagram is received.
type Receive = Box<dyn FnMut(&[u8]) -> BytesMut>;

pub(crate) struct Lockstep {
    now: Time,
    members: Vec<Group>,
    flights: VecDeque<(usize, usize, BytesMut)>,
    out: Vec<u8>,
    receive: Receive,
    /// Messages that each member's application has.
    pub(crate) delivered: [u64; MEMBERS],
    at_once: usize,
}

fn address(member: usize) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 1000 + member as u16))
}

impl Lockstep {
    /// Three members of one group.
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
                if member == ORDERER { EntryMode::Found(config.clone()) } else { EntryMode::Join },
            );
            while lockstep.members[member].info().members.len() <= member {
                assert!(lockstep.now < Time::ZERO + JOINED_BY, "member {member} does not come in");
                lockstep.pass_time();
            }
        }
        // Until everybody knows that everybody is in.
        (0..SETTLING_STEPS).for_each(|_| lockstep.pass(SETTLING_STEP));
        lockstep
    }

    fn enter(&mut self, member: usize, entry: EntryMode) {
        let me = Member {
            uid: Uid(100 + member as u64),
            name: Name::new(&member.to_string()).unwrap(),
            address: address(member),
        };
        let (port, random) = (Port::from_name("lockstep"), Random::from_u64(member as u64));
        let (settings, protection) = (Settings::default(), Box::new(Checksum));
        let group = Group::new(self.now, me, port, entry, Bytes::new(), settings, protection, random);
        self.members.push(group.unwrap());
        self.drain(member);
    }

    /// One round: a sending, and a while until the next.
    pub(crate) fn round(&mut self, payload: &Bytes) {
        self.send(payload);
        self.pass_time();
    }

    /// The sender sends what may be under way at once, and everybody receives it.
    pub(crate) fn send(&mut self, payload: &Bytes) {
        for _ in 0..self.at_once {
            self.members[SENDER].send(self.now, payload.clone()).unwrap();
        }
        self.drain(SENDER);
        self.arrive();
    }

    /// A while passes, with what is due in it.
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

    /// Everything under way arrives, and what follows from it.
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
                // As if by seeds: whoever looks for the group asks its founder.
                Destination::Rendezvous if from != ORDERER => send(address(ORDERER)),
                Destination::Rendezvous | Destination::Multicast => {}
            }
        }
    }
}

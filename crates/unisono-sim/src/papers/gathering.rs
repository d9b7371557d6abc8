//! Groups of our own core that come together before anything is measured, on a network that takes no time and loses nothing.

use bytes::{Bytes, BytesMut};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use unisono_core::wire::Checksum;
use unisono_core::{
    Destination, EntryMode, Group, GroupConfig, Member, Name, Port, Random, Settings, Time, Transport, Uid,
};

/// Time on the core's clock within which a group must have come together.
const GATHERING_MAX: Duration = Duration::from_secs(600);
/// Time of a datagram while the group comes together: this part of its life is not measured.
const GATHERING_LATENCY: Duration = Duration::from_micros(10);
const PORT: u16 = 7195;

/// A member and its application.
pub(super) struct Life {
    pub(super) group: Group,
    pub(super) me: Member,
    /// True while the application works on an event.
    pub(super) busy: bool,
    /// Time on the core's clock of the timer that was set last.
    wake_at: Option<Time>,
}

impl Life {
    /// Returns the time on the core's clock of a timer that has to be set now; none if one is set that is as early.
    pub(super) fn next_wake(&mut self, now: Time) -> Option<Time> {
        let (at, _) = self.group.poll_timeout()?;
        let at = Time::from_nanos(at.as_nanos().max(now.as_nanos() + 1));
        if self.wake_at.is_some_and(|wake_at| wake_at > now && at >= wake_at) {
            return None;
        }
        self.wake_at = Some(at);
        Some(at)
    }
}

/// A datagram under way.
#[derive(Clone)]
pub(super) struct Datagram {
    pub(super) from: SocketAddr,
    pub(super) multicast: bool,
    pub(super) bytes: Rc<Vec<u8>>,
}

/// Gives a group a datagram.
pub(super) fn take(group: &mut Group, now: Time, datagram: &Datagram) {
    let bytes = BytesMut::from(&datagram.bytes[..]);
    if datagram.multicast {
        group.handle_multicast(now, datagram.from, bytes);
    } else {
        group.handle_datagram(now, datagram.from, bytes);
    }
}

fn address_of(node: usize) -> SocketAddr {
    let [.., third, fourth] = (node as u32 + 1).to_be_bytes();
    SocketAddr::from(([10, 0, third, fourth], PORT))
}

/// Returns the node that has an address.
pub(super) fn node_of(address: SocketAddr) -> usize {
    match address {
        SocketAddr::V4(address) => u32::from(*address.ip()).wrapping_sub(0x0a00_0001) as usize,
        SocketAddr::V6(_) => usize::MAX,
    }
}

/// A group that comes together on a perfect network, before its trial.
struct Gathering {
    now: Time,
    size: usize,
    config: GroupConfig,
    /// Node of the first member.
    head: usize,
    members: Vec<Life>,
    flights: BTreeMap<(Time, u64), (usize, Datagram)>,
    count: u64,
}

/// Returns the members of a group whose first member is this node, in the order in which they joined, with the time on the
/// core's clock. Every one sends to all by multicast alone.
pub(super) fn gather(head: usize, size: usize, config: GroupConfig) -> (Vec<Life>, Time) {
    let mut gathering = Gathering {
        now: Time::from_nanos(1),
        size,
        config,
        head,
        members: Vec::new(),
        flights: BTreeMap::new(),
        count: 0,
    };
    gathering.run();
    (gathering.members, gathering.now)
}

impl Gathering {
    fn run(&mut self) {
        for rank in 0..self.size {
            self.enter(rank);
            self.advance(|members| members.last().is_some_and(|life| life.group.info().rank.is_some()));
        }
        self.advance(|members| {
            members.iter().all(|life| {
                let audience = life.group.audience();
                audience.multicast && audience.addresses.is_empty()
            })
        });
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
        let entry = if rank == 0 { EntryMode::Found(self.config.clone()) } else { EntryMode::Join };
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

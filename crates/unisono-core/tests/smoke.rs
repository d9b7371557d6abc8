//! A few members on a perfect network: the plainest way to drive the core.

use bytes::{Bytes, BytesMut};
use core::net::SocketAddr;
use unisono_core::wire::Checksum;
use unisono_core::*;

const LATENCY: u64 = 50_000;

struct Net {
    now: u64,
    members: Vec<Option<Group>>,
    flights: Vec<(u64, u64, usize, SocketAddr, Vec<u8>)>,
    events: Vec<Vec<Event>>,
    outcomes: Vec<Vec<(MessageNumber, Outcome)>>,
    datagrams: usize,
    count: u64,
}

fn address(index: usize) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 1000 + index as u16))
}

impl Net {
    fn new() -> Net {
        Net {
            now: 1,
            members: Vec::new(),
            flights: Vec::new(),
            events: Vec::new(),
            outcomes: Vec::new(),
            datagrams: 0,
            count: 0,
        }
    }

    fn add(&mut self, entry: Entry) -> usize {
        let index = self.members.len();
        let me = Member {
            uid: Uid(100 + index as u64),
            name: Name::new(&format!("m{index}")).unwrap(),
            address: address(index),
        };
        let group = Group::new(
            Time::from_nanos(self.now),
            me,
            Port::from_name("smoke"),
            entry,
            Bytes::new(),
            Settings::default(),
            Box::new(Checksum),
            Random::from_u64(index as u64),
        )
        .unwrap();
        self.members.push(Some(group));
        self.events.push(Vec::new());
        self.outcomes.push(Vec::new());
        self.drain(index);
        index
    }

    fn drain(&mut self, index: usize) {
        let now = Time::from_nanos(self.now);
        let Some(group) = &mut self.members[index] else { return };
        while let Some(event) = group.poll_event() {
            self.events[index].push(event);
        }
        while let Some(sent) = group.poll_sent() {
            self.outcomes[index].push(sent);
        }
        let mut out = Vec::new();
        let mut sends = Vec::new();
        while let Some(destination) = group.poll_transmit(now, &mut out) {
            let to: Vec<SocketAddr> = match destination {
                Destination::Address(address) => vec![address],
                Destination::Everyone => group.audience().addresses.clone(),
                Destination::Rendezvous => (0..10).map(address).filter(|a| *a != address(index)).collect(),
                Destination::Multicast => vec![],
            };
            sends.push((to, out.clone()));
        }
        for (to, bytes) in sends {
            self.datagrams += 1;
            for address in to {
                self.count += 1;
                let target = (address.port() - 1000) as usize;
                let from = SocketAddr::from(([127, 0, 0, 1], 1000 + index as u16));
                self.flights.push((self.now + LATENCY, self.count, target, from, bytes.clone()));
            }
        }
    }

    fn run(&mut self, nanos: u64) {
        let end = self.now + nanos;
        loop {
            let flight = self.flights.iter().map(|f| (f.0, f.1)).min();
            let timer = (0..self.members.len())
                .filter_map(|i| Some((self.members[i].as_ref()?.poll_timeout()?.0.as_nanos(), i)))
                .min();
            let next = flight.map_or(u64::MAX, |f| f.0).min(timer.map_or(u64::MAX, |t| t.0));
            if next > end {
                self.now = end;
                return;
            }
            self.now = self.now.max(next);
            let now = Time::from_nanos(self.now);
            if let Some((at, id)) = flight
                && at <= timer.map_or(u64::MAX, |t| t.0)
            {
                let position = self.flights.iter().position(|f| f.1 == id).unwrap();
                let (_, _, target, from, bytes) = self.flights.swap_remove(position);
                if let Some(Some(group)) = self.members.get_mut(target) {
                    group.handle_datagram(now, from, BytesMut::from(&bytes[..]));
                    self.drain(target);
                }
            } else if let Some((_, index)) = timer {
                self.members[index].as_mut().unwrap().handle_timeout(now);
                self.drain(index);
            }
        }
    }

    fn send(&mut self, index: usize, text: &str) -> MessageNumber {
        let now = Time::from_nanos(self.now);
        let number =
            self.members[index].as_mut().unwrap().send(now, Bytes::copy_from_slice(text.as_bytes())).unwrap();
        self.drain(index);
        number
    }

    fn texts(&self, index: usize) -> Vec<String> {
        self.events[index]
            .iter()
            .filter_map(|event| match event {
                Event::Message { payload, .. } => Some(String::from_utf8_lossy(payload).into_owned()),
                _ => None,
            })
            .collect()
    }
}

const MS: u64 = 1_000_000;

fn group_of(n: usize, resilience: u8) -> Net {
    let mut net = Net::new();
    net.add(Entry::Found(GroupConfig { resilience, ..GroupConfig::default() }));
    for _ in 1..n {
        net.add(Entry::Join);
        net.run(200 * MS);
    }
    for index in 0..n {
        let info = net.members[index].as_ref().unwrap().info();
        assert_eq!((info.phase, info.members.len()), (Phase::Member, n), "member {index}: {info:?}");
    }
    net
}

#[test]
fn members_agree_on_one_order() {
    for resilience in 0..4 {
        let mut net = group_of(4, resilience);
        for round in 0..20 {
            for index in 0..4 {
                net.send(index, &format!("{index}:{round}"));
            }
            net.run(MS / 10);
        }
        net.run(500 * MS);
        let first = net.texts(0);
        assert_eq!(first.len(), 80);
        for index in 1..4 {
            assert_eq!(net.texts(index), first);
        }
        assert!(net.outcomes.iter().all(|o| o.len() == 20), "{:?}", net.outcomes);
    }
}

#[test]
fn the_group_goes_on_without_its_orderer() {
    let mut net = group_of(5, 2);
    for index in 0..5 {
        net.send(index, &format!("before {index}"));
    }
    net.run(20 * MS);
    net.members[0] = None;
    let killed = net.now;
    net.send(3, "after");
    net.run(2000 * MS);
    for index in 1..5 {
        let resets = net.events[index].iter().filter(|event| matches!(event, Event::Reset { .. })).count();
        assert_eq!(resets, 1, "member {index}: {:?}", net.events[index].last());
        assert_eq!(net.texts(index), net.texts(1));
    }
    net.send(4, "later");
    net.run(100 * MS);
    assert_eq!(net.texts(2).last().map(String::as_str), Some("later"));
    let _ = killed;
}

#[test]
fn members_leave_the_orderer_too() {
    let mut net = group_of(3, 1);
    for leaver in [1, 0] {
        let now = Time::from_nanos(net.now);
        net.members[leaver].as_mut().unwrap().leave(now, Bytes::from_static(b"bye")).unwrap();
        net.drain(leaver);
        net.run(500 * MS);
        assert_eq!(net.events[leaver].last(), Some(&Event::Gone), "{:?}", net.events[leaver]);
    }
    net.send(2, "alone");
    net.run(100 * MS);
    assert_eq!(net.texts(2), ["alone"]);
}

#[test]
fn a_large_message_comes_in_one_piece() {
    let mut net = group_of(3, 1);
    let text = "0123456789".repeat(100_000);
    net.send(1, &text);
    net.send(2, "small");
    net.run(3000 * MS);
    for index in 0..3 {
        let mut lengths: Vec<usize> = net.texts(index).iter().map(String::len).collect();
        lengths.sort_unstable();
        assert_eq!(lengths, [5, 1_000_000]);
    }
}

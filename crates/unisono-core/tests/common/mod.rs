//! Members on a simulated network. A datagram may be lost, duplicated or delayed. All members share the network's
//! clock. The same seed gives the same run.

// Each test program uses only a part of this module.
#![allow(dead_code)]

use bytes::{Bytes, BytesMut};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use unisono_core::wire::{Checksum, Decoder, Frame, FrameKind, HEADER_BYTES};
use unisono_core::*;

pub(crate) const MS: u64 = 1_000_000;

/// What the network does to datagrams. Times are in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weather {
    /// The probability that a copy of a datagram is lost.
    pub(crate) loss: f64,
    /// The probability that a datagram arrives twice.
    pub(crate) duplication: f64,
    /// The shortest and the longest delay, in nanoseconds.
    pub(crate) delay: (u64, u64),
}

/// Nothing is lost, and every datagram takes 50 µs.
pub(crate) const FAIR: Weather = Weather { loss: 0.0, duplication: 0.0, delay: (50_000, 50_000) };

/// A life crashes when it sends a frame of this kind for the `times`-th time. Each copy of that last datagram still
/// leaves with probability `leaves`.
pub(crate) struct Fuse {
    pub(crate) place: usize,
    pub(crate) kind: FrameKind,
    pub(crate) times: u32,
    pub(crate) leaves: f64,
}

struct Flight {
    to: usize,
    from: SocketAddr,
    bytes: Vec<u8>,
    multicast: bool,
}

/// The network and its processes. Members are numbered by their lives, in the order in which these began. A place is an
/// address; at most one life is there at a time.
pub(crate) struct Net {
    pub(crate) now: u64,
    pub(crate) weather: Weather,
    /// Pairs of places: datagrams from the first place to the second are lost.
    pub(crate) cuts: Vec<(usize, usize)>,
    /// The places that a place reaches by [`Destination::Rendezvous`]. If `None`, it reaches all places by multicast.
    pub(crate) seeds: Option<Vec<Vec<usize>>>,
    pub(crate) members: Vec<Option<Group>>,
    /// The place of each life.
    pub(crate) places: Vec<usize>,
    pub(crate) events: Vec<Vec<Event>>,
    /// Time of each event.
    pub(crate) times: Vec<Vec<u64>>,
    pub(crate) outcomes: Vec<Vec<(MessageNumber, Outcome)>>,
    /// The epoch in which each life entered.
    pub(crate) entries: Vec<Option<EpochTag>>,
    pub(crate) fuses: Vec<Fuse>,
    /// Names the sent frames that are to be counted.
    pub(crate) notable: fn(&Frame) -> Option<&'static str>,
    pub(crate) counts: BTreeMap<&'static str, usize>,
    random: Random,
    flights: BTreeMap<(u64, u64), Flight>,
    count: u64,
}

pub(crate) fn address(place: usize) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 1000 + place as u16))
}

pub(crate) fn name(place: usize) -> Name {
    Name::new(&format!("m{place}")).unwrap()
}

pub(crate) fn uid(life: usize) -> Uid {
    Uid(100 + life as u64)
}

impl Net {
    pub(crate) fn new() -> Net {
        Net::with_weather(0, FAIR)
    }

    pub(crate) fn with_weather(seed: u64, weather: Weather) -> Net {
        Net {
            now: 1,
            weather,
            cuts: Vec::new(),
            seeds: None,
            members: Vec::new(),
            places: Vec::new(),
            events: Vec::new(),
            times: Vec::new(),
            outcomes: Vec::new(),
            entries: Vec::new(),
            fuses: Vec::new(),
            notable: |_| None,
            counts: BTreeMap::new(),
            random: Random::from_u64(seed),
            flights: BTreeMap::new(),
            count: 0,
        }
    }

    /// Starts a life at a new place.
    pub(crate) fn add(&mut self, entry: EntryMode) -> usize {
        let place = self.places.iter().max().map_or(0, |place| place + 1);
        self.start(place, entry)
    }

    /// Starts a life at this place; the life before it crashes.
    pub(crate) fn start(&mut self, place: usize, entry: EntryMode) -> usize {
        if let Some(former) = self.resident(place) {
            self.members[former] = None;
        }
        let life = self.members.len();
        let me = Member {
            uid: uid(life),
            name: name(place),
            address: address(place),
            floor: Default::default(),
            hops: 1,
        };
        let group = Group::new(
            self.time(),
            me,
            Port::from_name("test"),
            entry,
            Bytes::new(),
            Settings::default(),
            Box::new(Checksum),
            Random::from_u64(self.random.next_u64()),
        )
        .unwrap();
        self.members.push(Some(group));
        self.places.push(place);
        self.events.push(Vec::new());
        self.times.push(Vec::new());
        self.outcomes.push(Vec::new());
        self.entries.push(None);
        self.drain(life);
        life
    }

    pub(crate) fn time(&self) -> Time {
        Time::from_nanos(self.now)
    }

    /// Returns the life that runs at this place.
    pub(crate) fn resident(&self, place: usize) -> Option<usize> {
        (0..self.places.len()).find(|&life| self.places[life] == place && self.members[life].is_some())
    }

    pub(crate) fn group(&mut self, life: usize) -> &mut Group {
        self.members[life].as_mut().unwrap()
    }

    /// Takes everything that a member has for its driver: events, outcomes and datagrams.
    pub(crate) fn drain(&mut self, life: usize) {
        let now = self.time();
        let Some(group) = &mut self.members[life] else { return };
        while let Some(event) = group.poll_event() {
            if matches!(event, Event::Entered { .. }) {
                self.entries[life] = Some(group.marks().epoch);
            }
            self.events[life].push(event);
            self.times[life].push(self.now);
        }
        self.outcomes[life].extend(std::iter::from_fn(|| group.poll_sent()));
        let (mut bytes, mut sends) = (Vec::new(), Vec::new());
        while let Some(destination) = group.poll_transmit(now, &mut bytes) {
            let audience = group.audience().addresses.clone();
            sends.push((destination, audience, bytes.clone()));
        }
        for (destination, audience, bytes) in sends {
            let frames = Decoder::new(Bytes::copy_from_slice(&bytes[HEADER_BYTES..]));
            let frames: Vec<Frame> = frames.flatten().collect();
            for what in frames.iter().filter_map(self.notable) {
                *self.counts.entry(what).or_default() += 1;
            }
            let leaves = self.burn(self.places[life], &frames);
            self.send_datagram(self.places[life], destination, &audience, &bytes, leaves.unwrap_or(1.0));
            if leaves.is_some() {
                self.members[life] = None;
                return;
            }
        }
    }

    /// If a fuse at this place has burnt down, returns the probability with which the datagram sent now leaves.
    fn burn(&mut self, place: usize, frames: &[Frame]) -> Option<f64> {
        let burns = |fuse: &Fuse| fuse.place == place && frames.iter().any(|frame| frame.kind() == fuse.kind);
        let mut leaves = None;
        for fuse in self.fuses.iter_mut().filter(|fuse| burns(fuse)) {
            fuse.times = fuse.times.saturating_sub(1);
            leaves = leaves.or((fuse.times == 0).then_some(fuse.leaves));
        }
        self.fuses.retain(|fuse| fuse.times > 0);
        leaves
    }

    fn send_datagram(
        &mut self,
        from: usize,
        destination: Destination,
        audience: &[SocketAddr],
        bytes: &[u8],
        leaves: f64,
    ) {
        let all = 0..self.places.iter().max().map_or(0, |place| place + 1);
        let place = |address: &SocketAddr| usize::from(address.port()) - 1000;
        let rendezvous = destination == Destination::Rendezvous;
        let to: Vec<usize> = match (destination, &self.seeds) {
            (Destination::Address(address), _) => vec![place(&address)],
            (Destination::Everyone, _) => audience.iter().map(place).collect(),
            (Destination::Rendezvous, None) => all.filter(|&to| to != from).collect(),
            (Destination::Rendezvous, Some(seeds)) => seeds[from].clone(),
            (Destination::Multicast, _) => vec![],
        };
        for to in to {
            if !self.random.chance(leaves) {
                continue;
            }
            let copies = 1 + usize::from(self.random.chance(self.weather.duplication));
            for _ in 0..copies {
                let lost = self.random.chance(self.weather.loss) || self.cuts.contains(&(from, to));
                let (least, most) = self.weather.delay;
                let arrival = self.now + least + self.random.below(most - least + 1);
                if !lost {
                    self.count += 1;
                    let multicast = rendezvous && self.seeds.is_none();
                    let flight = Flight { to, from: address(from), bytes: bytes.to_vec(), multicast };
                    self.flights.insert((arrival, self.count), flight);
                }
            }
        }
    }

    /// Runs for `nanos` nanoseconds.
    pub(crate) fn run(&mut self, nanos: u64) {
        let end = self.now + nanos;
        loop {
            let flight = self.flights.keys().next().map_or(u64::MAX, |key| key.0);
            let timers = self.members.iter().enumerate().filter_map(|(life, member)| {
                let (at, _) = member.as_ref()?.poll_timeout()?;
                Some((at.as_nanos(), life))
            });
            let (timer, life) = timers.min().unwrap_or((u64::MAX, 0));
            if flight.min(timer) > end {
                self.now = end;
                return;
            }
            self.now = self.now.max(flight.min(timer));
            if flight <= timer {
                let (_, flight) = self.flights.pop_first().unwrap();
                self.deliver(flight);
            } else {
                let now = self.time();
                self.group(life).handle_timeout(now);
                self.drain(life);
            }
        }
    }

    fn deliver(&mut self, flight: Flight) {
        let Some(life) = self.resident(flight.to) else { return };
        let (now, datagram) = (self.time(), BytesMut::from(&flight.bytes[..]));
        match flight.multicast {
            true => self.group(life).handle_multicast(now, flight.from, datagram),
            false => self.group(life).handle_datagram(now, flight.from, datagram),
        }
        self.drain(life);
    }

    pub(crate) fn send(&mut self, life: usize, text: &str) -> MessageNumber {
        let now = self.time();
        let number = self.group(life).send(now, Bytes::copy_from_slice(text.as_bytes())).unwrap();
        self.drain(life);
        number
    }

    /// Returns the messages that a life has received.
    pub(crate) fn texts(&self, life: usize) -> Vec<String> {
        self.events[life]
            .iter()
            .filter_map(|event| match event {
                Event::Message { payload, .. } => Some(String::from_utf8_lossy(payload).into_owned()),
                _ => None,
            })
            .collect()
    }
}

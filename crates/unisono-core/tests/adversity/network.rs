//! Members on a network that does as it is told: every copy of a datagram is shown to a filter, which says how long it
//! takes or that it is lost. There is one clock, and nothing is random but what the members draw from fixed seeds.

use bytes::{Bytes, BytesMut};
use std::net::SocketAddr;
use unisono_core::wire::*;
use unisono_core::*;

/// A millisecond, in the network's unit of time.
pub(crate) const MS: u64 = 1_000_000;
/// How long a datagram takes in calm weather, in nanoseconds.
pub(crate) const LATENCY: u64 = 50_000;
/// What a filter says of a datagram that nothing happens to.
pub(crate) const PROMPT: Option<u64> = Some(LATENCY);
/// What a filter says of a datagram that never arrives.
pub(crate) const LOST: Option<u64> = None;
/// What waited in the socket of a process that goes on is read so long after its timers, in nanoseconds.
const SOCKET_DELAY: u64 = 1_000;
/// More datagrams than this in answer to one input are a storm.
const STORM_DATAGRAMS: u32 = 20_000;
/// What is sent to everybody goes to so many places, whether somebody is there or not.
pub(crate) const PLACES: usize = 12;

/// One copy of a datagram, as a filter sees it.
pub(crate) struct Seen {
    pub(crate) now: u64,
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) multicast: bool,
    /// Its length.
    pub(crate) bytes: usize,
    /// Its packet number.
    pub(crate) number: u64,
    /// Whether it belongs to no epoch: locating, and being welcomed.
    pub(crate) outside: bool,
    pub(crate) frames: Vec<Frame>,
}

impl Seen {
    pub(crate) fn has(&self, test: impl Fn(&Frame) -> bool) -> bool {
        self.frames.iter().any(test)
    }

    /// Whether it tells of a place that is a join, a leave or a change of the role.
    pub(crate) fn has_change(&self) -> bool {
        self.has(|frame| matches!(frame, Frame::Change { .. }))
    }

    pub(crate) fn has_join(&self) -> bool {
        self.has(|frame| matches!(frame, Frame::Change { change: Change::Join { .. }, .. }))
    }

    /// Whether this member is at one of its ends.
    pub(crate) fn concerns(&self, index: usize) -> bool {
        self.from == index || self.to == index
    }
}

/// The delay of this copy in nanoseconds, or [`LOST`].
type Filter = Box<dyn FnMut(&Seen) -> Option<u64>>;

struct Flight {
    at: u64,
    id: u64,
    from: usize,
    to: usize,
    multicast: bool,
    bytes: Vec<u8>,
}

/// The network and everybody on it, numbered in the order in which they began.
pub(crate) struct Net {
    pub(crate) now: u64,
    /// Whoever crashed is `None`.
    pub(crate) members: Vec<Option<Group>>,
    /// Whose application receives nothing.
    pub(crate) asleep: Vec<bool>,
    /// From when to when each process does not run. When it goes on, its timers come first, then what waits in its
    /// socket.
    pub(crate) stops: Vec<Vec<(u64, u64)>>,
    pub(crate) events: Vec<Vec<Event>>,
    pub(crate) outcomes: Vec<Vec<(MessageNumber, Outcome)>>,
    /// Whether somebody answered one input with more datagrams than any reason asks for. The network stands still then.
    pub(crate) storm: bool,
    flights: Vec<Flight>,
    count: u64,
    filter: Filter,
}

pub(crate) fn address(index: usize) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 1000 + index as u16))
}

fn index_of(address: &SocketAddr) -> usize {
    usize::from(address.port() - 1000)
}

pub(crate) fn uid(index: usize) -> Uid {
    Uid(100 + index as u64)
}

/// The uid of the life that begins at this one's address after its crash.
pub(crate) fn later_uid(index: usize) -> Uid {
    Uid(200 + index as u64)
}

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn decode(bytes: &[u8]) -> Vec<Frame> {
    Decoder::new(Bytes::copy_from_slice(&bytes[HEADER_BYTES..])).flatten().collect()
}

/// A datagram as this member would have sent it, with whatever frames one likes.
pub(crate) fn forge(group: GroupTag, epoch: EpochTag, sender: Uid, number: u64, frames: &[Frame]) -> Vec<u8> {
    let header = Header { protection: ProtectionKind::Checksum, group, epoch, sender, number };
    let mut datagram = Vec::new();
    header.write(&mut datagram);
    let mut writer = Writer::new(&mut datagram, 70_000);
    for frame in frames {
        writer.frame(frame);
    }
    seal(&mut datagram, &header, &KeyContext { instance: Instance(0), sender }, &mut Checksum);
    datagram
}

impl Net {
    pub(crate) fn new() -> Net {
        Net {
            now: 1,
            members: Vec::new(),
            asleep: Vec::new(),
            stops: Vec::new(),
            events: Vec::new(),
            outcomes: Vec::new(),
            storm: false,
            flights: Vec::new(),
            count: 0,
            filter: Box::new(|_| PROMPT),
        }
    }

    pub(crate) fn add(&mut self, entry: EntryMode, settings: Settings) -> usize {
        let text = format!("m{}", self.members.len());
        self.add_named(entry, settings, &text)
    }

    pub(crate) fn add_named(&mut self, entry: EntryMode, settings: Settings, text: &str) -> usize {
        let index = self.members.len();
        let me = Member { uid: uid(index), name: name(text), address: address(index) };
        self.seat(Some(self.begin(me, entry, settings)));
        self.drain(index);
        index
    }

    /// A new life at the address of one that crashed.
    pub(crate) fn add_at(&mut self, index: usize, entry: EntryMode, settings: Settings) {
        let me = Member { uid: later_uid(index), name: name("another"), address: address(index) };
        self.members[index] = Some(self.begin(me, entry, settings));
        self.drain(index);
    }

    fn begin(&self, me: Member, entry: EntryMode, settings: Settings) -> Group {
        let random = Random::from_u64(me.uid.0 - 100);
        let port = Port::from_name("smoke");
        let now = Time::from_nanos(self.now);
        Group::new(now, me, port, entry, Bytes::new(), settings, Box::new(Checksum), random).unwrap()
    }

    /// A place where nobody lives.
    pub(crate) fn add_nobody(&mut self) {
        self.seat(None);
    }

    fn seat(&mut self, group: Option<Group>) {
        self.members.push(group);
        self.asleep.push(false);
        self.stops.push(Vec::new());
        self.events.push(Vec::new());
        self.outcomes.push(Vec::new());
    }

    pub(crate) fn group(&self, index: usize) -> &Group {
        self.members[index].as_ref().unwrap()
    }

    pub(crate) fn group_mut(&mut self, index: usize) -> &mut Group {
        self.members[index].as_mut().unwrap()
    }

    pub(crate) fn phase(&self, index: usize) -> Phase {
        self.group(index).info().phase
    }

    /// How many resets lie behind this member.
    pub(crate) fn epoch(&self, index: usize) -> u64 {
        self.group(index).info().epoch.counter
    }

    /// How many members this member's view has.
    pub(crate) fn size(&self, index: usize) -> usize {
        self.group(index).info().members.len()
    }

    /// How many messages this member's application has received.
    pub(crate) fn delivered(&self, index: usize) -> usize {
        self.events[index].iter().filter(|event| matches!(event, Event::Message { .. })).count()
    }

    /// Everything that this member has for its driver.
    pub(crate) fn drain(&mut self, index: usize) {
        let now = Time::from_nanos(self.now);
        let Some(group) = &mut self.members[index] else { return };
        if !self.asleep[index] {
            while let Some(event) = group.poll_event() {
                self.events[index].push(event);
            }
        }
        while let Some(sent) = group.poll_sent() {
            self.outcomes[index].push(sent);
        }
        let everybody: Vec<usize> = (0..PLACES).filter(|&other| other != index).collect();
        let mut datagram = Vec::new();
        let mut copies: Vec<(Vec<usize>, bool, Vec<u8>)> = Vec::new();
        let mut datagrams = 0;
        while let Some(destination) = group.poll_transmit(now, &mut datagram) {
            datagrams += 1;
            if datagrams > STORM_DATAGRAMS {
                self.storm = true;
                break;
            }
            match destination {
                Destination::Address(address) => {
                    copies.push((vec![index_of(&address)], false, datagram.clone()));
                }
                Destination::Everyone => {
                    let audience = group.audience();
                    if audience.multicast {
                        copies.push((everybody.clone(), true, datagram.clone()));
                    }
                    let addresses = audience.addresses.iter().map(index_of).collect();
                    copies.push((addresses, false, datagram.clone()));
                }
                Destination::Rendezvous | Destination::Multicast => {
                    copies.push((everybody.clone(), true, datagram.clone()));
                }
            }
        }
        for (places, multicast, bytes) in copies {
            for to in places {
                self.put(index, to, multicast, bytes.clone());
            }
        }
    }

    fn put(&mut self, from: usize, to: usize, multicast: bool, bytes: Vec<u8>) {
        let Header { epoch, number, .. } = Header::parse(&bytes).unwrap();
        let (outside, frames) = (epoch == EpochTag::OUTSIDE, decode(&bytes));
        let seen = Seen { now: self.now, from, to, multicast, bytes: bytes.len(), number, outside, frames };
        if let Some(delay) = (self.filter)(&seen) {
            self.count += 1;
            let (at, id) = (self.runs_from(to, self.now + delay, SOCKET_DELAY), self.count);
            self.flights.push(Flight { at, id, from, to, multicast, bytes });
        }
    }

    /// When a process that something is due for at this time runs: then, or so long after it goes on.
    fn runs_from(&self, index: usize, at: u64, after: u64) -> u64 {
        let stops = self.stops.get(index).into_iter().flatten();
        let stop = stops.into_iter().find(|(from, to)| (*from..*to).contains(&at));
        stop.map_or(at, |(_, to)| to + after)
    }

    /// Lets so many nanoseconds pass.
    pub(crate) fn run(&mut self, nanos: u64) {
        let end = self.now + nanos;
        let mut spins = 0;
        while !self.storm {
            let flight = self.flights.iter().map(|flight| (flight.at, flight.id)).min();
            let timeout = |index: usize| {
                let (at, _) = self.members[index].as_ref()?.poll_timeout()?;
                Some((self.runs_from(index, at.as_nanos(), 0), index))
            };
            let timeout = (0..self.members.len()).filter_map(timeout).min();
            let timeout_at = timeout.map_or(u64::MAX, |(at, _)| at);
            let next = flight.map_or(u64::MAX, |(at, _)| at).min(timeout_at);
            if next > end {
                self.now = end;
                return;
            }
            if next <= self.now {
                spins += 1;
                assert!(spins < 2_000_000, "somebody asks for a time that has passed, again and again");
            }
            self.now = self.now.max(next);
            if let Some((at, id)) = flight
                && at <= timeout_at
            {
                self.arrive(id);
            } else if let Some((_, index)) = timeout {
                let now = Time::from_nanos(self.now);
                self.group_mut(index).handle_timeout(now);
                self.drain(index);
            }
        }
    }

    fn arrive(&mut self, id: u64) {
        let position = self.flights.iter().position(|flight| flight.id == id).unwrap();
        let Flight { from, to, multicast, bytes, .. } = self.flights.swap_remove(position);
        let now = Time::from_nanos(self.now);
        if let Some(Some(group)) = self.members.get_mut(to) {
            let bytes = BytesMut::from(&bytes[..]);
            if multicast {
                group.handle_multicast(now, address(from), bytes);
            } else {
                group.handle_datagram(now, address(from), bytes);
            }
            self.drain(to);
        }
    }

    /// Runs in such steps until this holds or the time is over, both in nanoseconds; says whether it holds.
    pub(crate) fn run_until(&mut self, step: u64, limit: u64, holds: impl Fn(&Net) -> bool) -> bool {
        let end = self.now + limit;
        while !holds(self) && self.now < end {
            self.run(step);
        }
        holds(self)
    }

    /// Hands a datagram to a member, past the filter; nothing is drained.
    pub(crate) fn inject(&mut self, to: usize, from: SocketAddr, datagram: &[u8]) {
        let now = Time::from_nanos(self.now);
        self.group_mut(to).handle_datagram(now, from, BytesMut::from(datagram));
    }

    pub(crate) fn send(&mut self, index: usize, payload: &[u8]) -> Result<MessageNumber, SendError> {
        let now = Time::from_nanos(self.now);
        let number = self.group_mut(index).send(now, Bytes::copy_from_slice(payload));
        self.drain(index);
        number
    }

    pub(crate) fn leave(&mut self, index: usize) {
        let now = Time::from_nanos(self.now);
        self.group_mut(index).leave(now, Bytes::new()).unwrap();
        self.drain(index);
    }

    pub(crate) fn hand_over(&mut self, from: usize, to: usize) {
        let now = Time::from_nanos(self.now);
        self.group_mut(from).hand_over(now, uid(to)).unwrap();
        self.drain(from);
    }

    /// What it has sent still arrives.
    pub(crate) fn crash(&mut self, index: usize) {
        self.members[index] = None;
    }

    /// What this one has sent and has not arrived yet is lost.
    pub(crate) fn drop_flights_from(&mut self, index: usize) {
        self.flights.retain(|flight| flight.from != index);
    }

    pub(crate) fn drop_flights(&mut self) {
        self.flights.clear();
    }

    pub(crate) fn filter(&mut self, filter: impl FnMut(&Seen) -> Option<u64> + 'static) {
        self.filter = Box::new(filter);
    }

    /// From now on all goes well.
    pub(crate) fn calm(&mut self) {
        self.filter(|_| PROMPT);
    }

    /// Nothing reaches this member, and nothing it sends arrives.
    pub(crate) fn cut_off(&mut self, index: usize) {
        self.filter(move |seen| if seen.concerns(index) { LOST } else { PROMPT });
    }

    /// Prints where everybody stands, for whoever reads a failure.
    pub(crate) fn show(&self, what: &str) {
        println!("{what}, at {} ms:", self.now / MS);
        for (index, group) in self.members.iter().enumerate() {
            let Some(group) = group else { continue };
            let (info, marks) = (group.info(), group.marks());
            let members: Vec<u64> = info.members.iter().map(|member| member.uid.0 - 100).collect();
            println!(
                "  m{index} {:?} epoch {} members {members:?} sequencer {:?} received {} accepted {} delivered {} \
                 purged {} promised {}; last {:?}",
                info.phase,
                info.epoch.counter,
                info.sequencer,
                marks.received,
                marks.accepted,
                marks.delivered,
                marks.purged,
                marks.promised.is_some(),
                self.events[index].last(),
            );
        }
    }
}

/// A group of so many, all of them in; m0 founded it.
pub(crate) fn group_with(n: usize, config: GroupConfig, settings: Settings) -> Net {
    let mut net = Net::new();
    net.add(EntryMode::Found(config), settings.clone());
    for _ in 1..n {
        net.add(EntryMode::Join, settings.clone());
        net.run(300 * MS);
    }
    for index in 0..n {
        assert_eq!((net.phase(index), net.size(index)), (Phase::Member, n), "m{index}");
    }
    net
}

/// The same with nothing but a resilience, fifty milliseconds after the last one is in.
pub(crate) fn group_of(n: usize, resilience: u8) -> Net {
    let mut net = group_with(n, GroupConfig { resilience, ..GroupConfig::default() }, unicast());
    net.run(50 * MS);
    net
}

pub(crate) fn unicast() -> Settings {
    Settings { transport: Transport::Unicast, ..Settings::default() }
}

//! Members on a network under the test's control. Every copy of a datagram passes a filter, which returns its delay or
//! loses it. All members share one clock. Nothing is random but what the members draw from fixed seeds.

use bytes::{Bytes, BytesMut};
use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use unisono_core::wire::*;
use unisono_core::*;

/// A millisecond, in nanoseconds, the network's unit of time.
pub(crate) const MS: u64 = 1_000_000;
/// Delay of a datagram that nothing happens to, in nanoseconds.
pub(crate) const LATENCY: u64 = 50_000;
/// A filter's result for a datagram that nothing happens to.
pub(crate) const PROMPT: Option<u64> = Some(LATENCY);
/// A filter's result for a datagram that never arrives.
pub(crate) const LOST: Option<u64> = None;
/// Time after its timers at which a process that was stopped reads what waits in its socket, in nanoseconds.
const SOCKET_DELAY: u64 = 1_000;
/// More datagrams than this in answer to one input are a storm.
const STORM_DATAGRAMS: u32 = 20_000;
/// Number of hosts that a multicast goes to, whether or not a process is there.
pub(crate) const PLACES: usize = 12;

/// One copy of a datagram, as a filter sees it.
pub(crate) struct Seen {
    pub(crate) now: u64,
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) multicast: bool,
    /// Length of the datagram.
    pub(crate) bytes: usize,
    /// Packet number of the datagram.
    pub(crate) number: u64,
    /// The datagram is outside of any epoch: locating, or joining.
    pub(crate) outside: bool,
    pub(crate) frames: Vec<Frame>,
}

impl Seen {
    pub(crate) fn has(&self, test: impl Fn(&Frame) -> bool) -> bool {
        self.frames.iter().any(test)
    }

    /// True if it contains a join, a leave or a role event with its seqno.
    pub(crate) fn has_change(&self) -> bool {
        self.has(|frame| matches!(frame, Frame::Change { .. }))
    }

    pub(crate) fn has_join(&self) -> bool {
        self.has(|frame| matches!(frame, Frame::Change { change: Change::Join { .. }, .. }))
    }

    /// True if this member is its sender or its receiver.
    pub(crate) fn concerns(&self, index: usize) -> bool {
        self.from == index || self.to == index
    }
}

/// Decides about a copy: its delay in nanoseconds, or [`LOST`].
type Filter = Box<dyn FnMut(&Seen) -> Option<u64>>;

struct Flight {
    at: u64,
    id: u64,
    from: usize,
    to: usize,
    multicast: bool,
    bytes: Vec<u8>,
}

/// The network and its processes, numbered in the order in which they began.
pub(crate) struct Net {
    pub(crate) now: u64,
    /// The members; `None` after a crash.
    pub(crate) members: Vec<Option<Group>>,
    /// Members whose applications receive nothing.
    pub(crate) asleep: Vec<bool>,
    /// For each process the intervals in which it does not run. When it goes on, its timers fire first; then it reads
    /// its socket.
    pub(crate) stops: Vec<Vec<(u64, u64)>>,
    pub(crate) events: Vec<Vec<Event>>,
    pub(crate) outcomes: Vec<Vec<(MessageNumber, Outcome)>>,
    /// A member answered one input with more than [`STORM_DATAGRAMS`]. The network has stopped.
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

/// Returns the uid of the life that begins at this member's address after its crash.
pub(crate) fn later_uid(index: usize) -> Uid {
    Uid(200 + index as u64)
}

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn decode(bytes: &[u8]) -> Vec<Frame> {
    Decoder::new(Bytes::copy_from_slice(&bytes[HEADER_BYTES..])).flatten().collect()
}

/// Adds a process outside of the group that asks this member. Returns what sends it a datagram, and returns the last answer
/// that `pick` finds.
pub(crate) fn asks_from_outside<A: Copy + 'static>(
    net: &mut Net,
    member: usize,
    pick: fn(&Frame) -> Option<A>,
) -> impl Fn(&mut Net, &[u8]) -> Option<A> + use<A> {
    let answers = Rc::new(Cell::new(None));
    let told = answers.clone();
    net.add_empty_host();
    let outside = net.members.len() - 1;
    net.filter(move |seen| {
        told.set(seen.frames.iter().find_map(pick).or(told.get()));
        PROMPT
    });
    move |net, datagram| {
        net.inject(member, address(outside), datagram);
        net.drain(member);
        answers.take()
    }
}

/// Returns a datagram with these frames, as this sender would have sealed it.
pub(crate) fn forge(group: GroupTag, epoch: EpochTag, sender: Uid, number: u64, frames: &[Frame]) -> Vec<u8> {
    let header = Header { protection: ProtectionKind::Checksum, group, epoch, sender, number, salt: 0 };
    let mut datagram = Vec::new();
    header.write(&mut datagram);
    let mut writer = Writer::new(&mut datagram, 70_000);
    for frame in frames {
        writer.frame(frame);
    }
    let context = KeyContext { instance: Instance(0), sender, salt: 0 };
    assert!(seal(&mut datagram, &header, &context, &mut Checksum));
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
        let me = Member {
            uid: uid(index),
            name: name(text),
            address: address(index),
            floor: Default::default(),
            hops: 1,
        };
        self.seat(Some(self.begin(me, entry, settings)));
        self.drain(index);
        index
    }

    /// Starts a life at the address of a member that crashed.
    pub(crate) fn add_at(&mut self, index: usize, entry: EntryMode, settings: Settings) {
        let me = Member {
            uid: later_uid(index),
            name: name("another"),
            address: address(index),
            floor: Default::default(),
            hops: 1,
        };
        self.members[index] = Some(self.begin(me, entry, settings));
        self.drain(index);
    }

    fn begin(&self, me: Member, entry: EntryMode, settings: Settings) -> Group {
        let random = Random::from_u64(me.uid.0 - 100);
        let port = Port::from_name("smoke");
        let now = Time::from_nanos(self.now);
        Group::new(now, me, port, entry, Bytes::new(), settings, Box::new(Checksum), random).unwrap()
    }

    /// Adds a host without a process.
    pub(crate) fn add_empty_host(&mut self) {
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

    /// Returns the counter of this member's epoch: the number of resets since the founding.
    pub(crate) fn epoch(&self, index: usize) -> u64 {
        self.group(index).info().epoch.counter
    }

    /// Returns the number of members in this member's view.
    pub(crate) fn size(&self, index: usize) -> usize {
        self.group(index).info().members.len()
    }

    /// Returns the number of messages that this member's application has received.
    pub(crate) fn delivered(&self, index: usize) -> usize {
        self.events[index].iter().filter(|event| matches!(event, Event::Message { .. })).count()
    }

    /// Takes everything that this member has for its driver: events, outcomes and datagrams.
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
        let all: Vec<usize> = (0..PLACES).filter(|&other| other != index).collect();
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
                        copies.push((all.clone(), true, datagram.clone()));
                    }
                    let addresses = audience.addresses.iter().map(index_of).collect();
                    copies.push((addresses, false, datagram.clone()));
                }
                Destination::Rendezvous | Destination::Multicast => {
                    copies.push((all.clone(), true, datagram.clone()));
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

    /// Returns the time at which a process handles what is due at `at`: that time, or `after` nanoseconds after the end
    /// of the stop that `at` falls into.
    fn runs_from(&self, index: usize, at: u64, after: u64) -> u64 {
        let stops = self.stops.get(index).into_iter().flatten();
        let stop = stops.into_iter().find(|(from, to)| (*from..*to).contains(&at));
        stop.map_or(at, |(_, to)| to + after)
    }

    /// Lets `nanos` nanoseconds pass.
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
                assert!(spins < 2_000_000, "a member asks for a time that has passed, again and again");
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

    /// Runs in steps of `step` until `holds` returns true, or until `limit` is over, both in nanoseconds. Returns
    /// whether it holds.
    pub(crate) fn run_until(&mut self, step: u64, limit: u64, holds: impl Fn(&Net) -> bool) -> bool {
        let end = self.now + limit;
        while !holds(self) && self.now < end {
            self.run(step);
        }
        holds(self)
    }

    /// Passes a datagram to a member, past the filter. Takes nothing from the member afterwards.
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

    /// Crashes this member. What it has sent still arrives.
    pub(crate) fn crash(&mut self, index: usize) {
        self.members[index] = None;
    }

    /// Loses everything that this member has sent and that has not arrived yet.
    pub(crate) fn drop_flights_from(&mut self, index: usize) {
        self.flights.retain(|flight| flight.from != index);
    }

    pub(crate) fn drop_flights(&mut self) {
        self.flights.clear();
    }

    pub(crate) fn filter(&mut self, filter: impl FnMut(&Seen) -> Option<u64> + 'static) {
        self.filter = Box::new(filter);
    }

    /// From now on nothing is lost or late.
    pub(crate) fn calm(&mut self) {
        self.filter(|_| PROMPT);
    }

    /// From now on nothing reaches this member, and nothing that it sends arrives.
    pub(crate) fn cut_off(&mut self, index: usize) {
        self.filter(move |seen| if seen.concerns(index) { LOST } else { PROMPT });
    }

    /// Prints the state of all members, for the output of a failed test.
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

/// Returns a group of `n` members, founded by m0.
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

/// Returns a group with this resilience and defaults otherwise, 50 ms after the last member joined.
pub(crate) fn group_of(n: usize, resilience: u8) -> Net {
    let mut net = group_with(n, GroupConfig { resilience, ..GroupConfig::default() }, unicast());
    net.run(50 * MS);
    net
}

pub(crate) fn unicast() -> Settings {
    Settings { transport: Transport::Unicast, ..Settings::default() }
}

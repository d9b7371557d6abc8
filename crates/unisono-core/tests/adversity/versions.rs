//! Joiners and members receive datagrams of processes that use another version of the wire format.

use bytes::{Bytes, BytesMut};
use std::net::SocketAddr;
use std::time::Duration;
use unisono_core::wire::{
    Checksum, HEADER_BYTES, KeyContext, Protection, ProtectionKind, TAG_BYTES, VERSION, parts,
};
use unisono_core::*;

const STEP: Duration = Duration::from_millis(1);
/// Index of the byte of a datagram that contains its version.
const VERSION_AT: usize = 2;

/// A process: its version of the wire format, its core, its events, and the datagrams that it sent.
struct Process {
    version: u8,
    core: Group,
    events: Vec<Event>,
    sent: Vec<Vec<u8>>,
}

/// Processes that all receive each other's datagrams. Every core reads and writes version `VERSION`. A datagram between
/// two processes of the same version arrives unchanged; between others its version byte becomes that of the sender.
struct World {
    now: Time,
    processes: Vec<Process>,
    /// Receiver, sender and bytes.
    flights: Vec<(usize, usize, Vec<u8>)>,
    /// The processes have a key.
    keyed: bool,
}

/// Stands for a key: it fills in a tag that depends on the packet number alone.
struct Keyed;

impl Protection for Keyed {
    fn kind(&self) -> ProtectionKind {
        ProtectionKind::Sealed
    }

    fn salt(&mut self) -> u64 {
        1
    }

    fn seal(&mut self, _: &KeyContext, number: u64, datagram: &mut [u8]) -> bool {
        *parts(datagram).unwrap().tag = [number as u8; TAG_BYTES];
        true
    }

    fn open(&mut self, _: &KeyContext, number: u64, datagram: &mut [u8]) -> bool {
        *parts(datagram).unwrap().tag == [number as u8; TAG_BYTES]
    }
}

fn address(place: usize) -> SocketAddr {
    ([127, 0, 0, 1], 1000 + place as u16).into()
}

impl World {
    fn new() -> World {
        World { now: Time::from_nanos(1), processes: Vec::new(), flights: Vec::new(), keyed: false }
    }

    fn add(&mut self, version: u8, entry: EntryMode) -> usize {
        let place = self.processes.len();
        let number = place as u64 + 1;
        let name = Name::new(&number.to_string()).unwrap();
        let me =
            Member { uid: Uid(number), name, address: address(place), floor: Default::default(), hops: 1 };
        let (port, random) = (Port::from_name("versions"), Random::from_u64(number));
        let settings = Settings { transport: Transport::Unicast, ..Settings::default() };
        let protection: Box<dyn Protection> = if self.keyed { Box::new(Keyed) } else { Box::new(Checksum) };
        let core = Group::new(self.now, me, port, entry, Bytes::new(), settings, protection, random).unwrap();
        self.processes.push(Process { version, core, events: Vec::new(), sent: Vec::new() });
        self.drain(place);
        place
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now = self.now + STEP;
            for (to, from, bytes) in std::mem::take(&mut self.flights) {
                self.deliver(to, from, &bytes);
            }
            for place in 0..self.processes.len() {
                self.processes[place].core.handle_timeout(self.now);
                self.drain(place);
            }
        }
    }

    fn deliver(&mut self, to: usize, from: usize, bytes: &[u8]) {
        let process = &mut self.processes[to];
        process.core.handle_datagram(self.now, address(from), BytesMut::from(bytes));
        self.drain(to);
    }

    fn drain(&mut self, place: usize) {
        let others = self.processes.len();
        let process = &mut self.processes[place];
        process.events.extend(std::iter::from_fn(|| process.core.poll_event()));
        let mut datagram = Vec::new();
        let mut sends = Vec::new();
        while let Some(destination) = process.core.poll_transmit(self.now, &mut datagram) {
            process.sent.push(datagram.clone());
            match destination {
                Destination::Address(to) => sends.push((usize::from(to.port()) - 1000, datagram.clone())),
                Destination::Everyone => {
                    let to = &process.core.audience().addresses;
                    sends.extend(to.iter().map(|to| (usize::from(to.port()) - 1000, datagram.clone())));
                }
                _ => sends.extend((0..others).filter(|to| *to != place).map(|to| (to, datagram.clone()))),
            }
        }
        let version = process.version;
        for (to, mut bytes) in sends {
            if let Some(receiver) = self.processes.get(to) {
                if receiver.version != version {
                    bytes[VERSION_AT] = version;
                }
                self.flights.push((to, place, bytes));
            }
        }
    }

    fn failure(&self, place: usize) -> Option<JoinFailure> {
        self.processes[place].events.iter().find_map(|event| match event {
            Event::JoinFailed { reason } => Some(*reason),
            _ => None,
        })
    }

    fn is_in(&self, place: usize) -> bool {
        self.processes[place].core.phase() == Phase::Member
    }
}

// Two versions in one cluster: each joiner of the other version would found a second group.
#[test]
fn no_second_group_is_founded_beside_one_of_another_version() {
    for entry in [EntryMode::Join, EntryMode::JoinOrFound(GroupConfig::default())] {
        let mut world = World::new();
        let member = world.add(7, EntryMode::Found(GroupConfig::default()));
        world.run(Duration::from_millis(100));
        let joiner = world.add(8, entry);
        world.run(Duration::from_secs(5));
        let expected = JoinFailure::OtherVersion { by: address(member), version: 7 };
        assert_eq!(world.failure(joiner), Some(expected));
        let core = &mut world.processes[member].core;
        let counters = core.counters();
        assert!(counters.other_version > 1 && counters.malformed == 0, "{counters:?}");
        assert_eq!(core.info().other_version, Some((address(joiner), 8)));
        // It is reported as one episode.
        let episodes =
            std::iter::from_fn(|| core.poll_episode()).filter(|it| !matches!(it, Episode::Entered { .. }));
        let expected = Episode::OtherVersion { address: address(joiner), version: 8 };
        assert_eq!(episodes.collect::<Vec<_>>(), [expected]);
        // The member's answers are bare headers of its own version, so none is longer than the datagram it answers.
        let bare = |sent: &&Vec<u8>| sent.len() == HEADER_BYTES;
        let answers: Vec<_> = world.processes[member].sent.iter().filter(bare).collect();
        assert!(!answers.is_empty() && answers.iter().all(|answer| answer[VERSION_AT] == VERSION));
    }
}

// Each of two members would answer the other's answers for ever.
#[test]
fn an_answer_to_another_version_is_not_answered() {
    let mut world = World::new();
    let members = [7, 8].map(|version| world.add(version, EntryMode::Found(GroupConfig::default())));
    // Both members look for other groups meanwhile, so each receives datagrams of the other.
    world.run(Duration::from_secs(10));
    for place in members {
        assert!(world.is_in(place));
        let sent = &world.processes[place].sent;
        let bare = sent.iter().filter(|sent| sent.len() == HEADER_BYTES).count();
        assert!(bare > 0 && bare < sent.len(), "{bare} of {}", sent.len());
    }
}

// Anyone can forge a datagram of another version. This must not keep joiners from their group.
#[test]
fn a_group_that_answers_is_joined_despite_datagrams_of_another_version() {
    let mut world = World::new();
    let member = world.add(7, EntryMode::Found(GroupConfig::default()));
    let joiner = world.add(7, EntryMode::JoinOrFound(GroupConfig::default()));
    let mut forged = world.processes[joiner].sent[0].clone();
    forged[VERSION_AT] = 9;
    for _ in 0..10 {
        world.deliver(joiner, 5, &forged);
        world.run(STEP);
    }
    world.run(Duration::from_secs(2));
    assert!(world.is_in(joiner) && world.processes[joiner].core.info().members.len() == 2);
    assert_eq!(world.processes[joiner].core.info().other_version, None, "not forgotten");
    assert!(world.is_in(member));
}

/// Lets two processes enter while forged datagrams of another version arrive all the time. Returns the world after three
/// searches.
fn world_of_forgeries(keyed: bool, entry: &EntryMode) -> World {
    let mut world = World { keyed, ..World::new() };
    let places = [7, 7].map(|version| world.add(version, entry.clone()));
    let mut forged = world.processes[0].sent[0][..12].to_vec();
    forged[VERSION_AT] = 9;
    let end = world.now + Settings::default().locate * 3 + STEP * 2;
    while world.now < end {
        places.iter().for_each(|place| world.deliver(*place, 5, &forged));
        world.run(STEP * 10);
    }
    world
}

// Without the key everybody can send such datagrams: a founder with a key would wait for ever.
#[test]
fn a_process_with_a_key_founds_after_three_searches_whatever_others_send() {
    let may_found = EntryMode::JoinOrFound(GroupConfig::default());
    let world = world_of_forgeries(true, &may_found);
    let phases = [0, 1].map(|place| world.processes[place].core.phase());
    assert_eq!(phases, [Phase::Member; 2]);
    let views = [0, 1].map(|place| world.processes[place].core.info().members.len());
    assert_eq!(views, [2, 2], "one founds, the other joins");
    let expected = Some(JoinFailure::OtherVersion { by: address(5), version: 9 });
    let world = world_of_forgeries(false, &may_found);
    assert_eq!([world.failure(0), world.failure(1)], [expected, expected]);
    // A process that only joins has nothing better to report.
    let mut world = world_of_forgeries(true, &EntryMode::Join);
    world.run(Settings::default().locate * 10);
    assert_eq!(world.failure(0), expected);
}

// A bit error can change the version byte of one datagram: no answer is sent, and the group is founded.
#[test]
fn one_datagram_alone_is_only_counted() {
    let mut world = World::new();
    let founder = world.add(7, EntryMode::JoinOrFound(GroupConfig::default()));
    let mut damaged = world.processes[founder].sent[0].clone();
    damaged[VERSION_AT] ^= 4;
    world.deliver(founder, 5, &damaged);
    world.run(Duration::from_secs(2));
    assert!(world.is_in(founder));
    world.deliver(founder, 6, &damaged);
    world.run(STEP);
    assert_eq!(world.processes[founder].core.counters().other_version, 2);
    assert!(world.processes[founder].sent.iter().all(|sent| sent.len() > HEADER_BYTES));
    // A datagram for another group is not even counted.
    let mut other = damaged.clone();
    other[4] ^= 1;
    world.deliver(founder, 6, &other);
    assert_eq!(world.processes[founder].core.counters().other_version, 2);
}

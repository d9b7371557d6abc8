//! Scenes of a ring: bugs that break no promise and only cost time or datagrams, so that no checker of a history sees them.
//!
//! A few members run on a network without chance: every datagram arrives one step after it was sent, in the order of sending,
//! but where the scene cuts a way off. So a scene can say how many steps something takes, or which frames are never needed.

use super::{address, member, written};
use crate::seal::Seal;
use bytes::{Bytes, BytesMut};
use std::time::Duration;
use unisono_core::wire::{Decoder, Frame, HEADER_BYTES, Header, Proposal};
use unisono_core::{
    Destination, EntryMode, EpochId, Group, GroupConfig, Migration, Order, Outcome, Phase, Planted, Port,
    Quality, Random, Settings, SlowMember, Time, Transport,
};

/// Time that a datagram takes.
const STEP: Duration = Duration::from_micros(200);

/// How a datagram travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Multicast,
    Copy,
}

/// A datagram under way.
struct Flight {
    from: usize,
    to: usize,
    way: Way,
    bytes: Vec<u8>,
}

/// The members of a ring, and the network between them.
struct Circle {
    now: Time,
    bug: Option<Planted>,
    settings: Settings,
    groups: Vec<Group>,
    flights: Vec<Flight>,
    /// The network carries nothing from the first of these to the second.
    cut: Option<(usize, usize)>,
    /// The second of these hears no multicast of the first.
    deaf: Option<(usize, usize)>,
    /// The only member that processes ask that look for the group, if there is no multicast to find it.
    seed: Option<usize>,
    /// The member whose application takes no events.
    stuck: Option<usize>,
    /// The member that reads nothing; what it is sent is lost.
    frozen: Option<usize>,
    /// Number of datagrams sent so far; a multicast counts once.
    sent: usize,
    /// Number of retransmission requests so far.
    nacks: usize,
    /// Number of messages that each application has received.
    received: Vec<usize>,
    /// Number of own messages that each member knows to be accepted.
    accepted: Vec<usize>,
}

impl Circle {
    /// Returns a ring of this number of members, at rest.
    fn new(members: usize, config: GroupConfig, settings: Settings, bug: Option<Planted>) -> Option<Circle> {
        let mut circle = Circle {
            now: Time::from_nanos(1_000_000_000),
            bug,
            settings,
            groups: Vec::new(),
            flights: Vec::new(),
            cut: None,
            deaf: None,
            seed: None,
            stuck: None,
            frozen: None,
            sent: 0,
            nacks: 0,
            received: Vec::new(),
            accepted: Vec::new(),
        };
        let config = GroupConfig { order: Order::Token, ..config };
        circle.enter(EntryMode::Found(config))?;
        for _ in 1..members {
            circle.enter(EntryMode::Join)?;
            circle.run_until(Duration::from_secs(2), Circle::all_are_members)?;
        }
        circle.run(Duration::from_millis(2500));
        circle.all_are_members().then_some(circle)
    }

    /// Lets one more process enter.
    fn enter(&mut self, entry: EntryMode) -> Option<()> {
        let place = self.groups.len() as u8;
        let (port, random) = (Port::from_name("scene"), Random::from_u64(place.into()));
        let (settings, seal) = (self.settings.clone(), Box::new(Seal));
        let group = Group::new(self.now, member(place), port, entry, Bytes::new(), settings, seal, random);
        let mut group = group.ok()?;
        self.bug.into_iter().for_each(|bug| group.plant(bug));
        self.groups.push(group);
        self.received.push(0);
        self.accepted.push(0);
        Some(())
    }

    fn all_are_members(&self) -> bool {
        self.groups.iter().all(|group| group.phase() == Phase::Member)
    }

    /// Returns the number of members of the view that this member knows.
    fn members(&self, at: usize) -> usize {
        self.groups[at].info().members.len()
    }

    /// Lets this member send a message of this many bytes, if it may.
    fn send(&mut self, from: usize, bytes: usize, quality: Quality) {
        let _is_full = self.groups[from].send_with(self.now, Bytes::from(vec![0; bytes]), quality);
    }

    fn run(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            self.step();
        }
    }

    /// Runs until no datagram has left for 15 steps, so that none leaves soon.
    fn settle(&mut self) -> Option<()> {
        let mut quiet = (self.sent, 0);
        for _ in 0..10_000 {
            self.step();
            quiet = if quiet.0 == self.sent { (quiet.0, quiet.1 + 1) } else { (self.sent, 0) };
            if quiet.1 >= 15 {
                return Some(());
            }
        }
        None
    }

    /// Runs until something is so, for at most `within`. Returns how long it took.
    fn run_until(&mut self, within: Duration, is_so: impl Fn(&Circle) -> bool) -> Option<Duration> {
        let began = self.now;
        while !is_so(self) {
            if self.now.since(began) >= within {
                return None;
            }
            self.step();
        }
        Some(self.now.since(began))
    }

    /// The same while all members send, a message each step.
    fn run_until_loaded(&mut self, within: Duration, is_so: impl Fn(&Circle) -> bool) -> Option<Duration> {
        let began = self.now;
        while !is_so(self) {
            if self.now.since(began) >= within {
                return None;
            }
            load(self, STEP, 1, 100);
        }
        Some(self.now.since(began))
    }

    /// Lets one step of time pass: what was sent in the one before arrives.
    fn step(&mut self) {
        for flight in core::mem::take(&mut self.flights) {
            self.arrive(flight);
        }
        for place in 0..self.groups.len() {
            if self.frozen != Some(place) {
                self.act(place);
            }
        }
        self.now = self.now + STEP;
    }

    fn arrive(&mut self, flight: Flight) {
        let Flight { from, to, way, bytes } = flight;
        if self.frozen == Some(to) {
            return;
        }
        let (group, from) = (&mut self.groups[to], address(from as u8));
        match way {
            Way::Multicast => group.handle_multicast(self.now, from, BytesMut::from(&bytes[..])),
            Way::Copy => group.handle_datagram(self.now, from, BytesMut::from(&bytes[..])),
        }
    }

    /// Lets one process do what is due, and sends what it says.
    fn act(&mut self, place: usize) {
        let group = &mut self.groups[place];
        group.handle_timeout(self.now);
        while self.stuck != Some(place)
            && let Some(event) = group.poll_event()
        {
            self.received[place] += usize::from(matches!(event, unisono_core::Event::Message { .. }));
        }
        while let Some((_, outcome)) = group.poll_sent() {
            self.accepted[place] += usize::from(matches!(outcome, Outcome::Ok { .. }));
        }
        let mut bytes = Vec::new();
        while let Some(to) = self.groups[place].poll_transmit(self.now, &mut bytes) {
            self.look_at(&bytes);
            self.carry(place, to, &bytes);
        }
    }

    fn look_at(&mut self, bytes: &[u8]) {
        for frame in Decoder::new(Bytes::copy_from_slice(&bytes[HEADER_BYTES..])).flatten() {
            self.nacks += usize::from(matches!(frame, Frame::Nack { .. }));
        }
    }

    fn carry(&mut self, from: usize, to: Destination, bytes: &[u8]) {
        let addresses = match to {
            Destination::Address(address) => vec![address],
            Destination::Rendezvous if self.seed.is_some() => {
                self.seed.into_iter().map(|place| address(place as u8)).collect()
            }
            Destination::Everyone => self.groups[from].audience().addresses.to_vec(),
            Destination::Multicast | Destination::Rendezvous => Vec::new(),
        };
        let is_multicast = match to {
            Destination::Everyone => self.groups[from].audience().multicast,
            Destination::Rendezvous => self.seed.is_none(),
            other => other == Destination::Multicast,
        };
        self.sent += usize::from(is_multicast) + addresses.len();
        for place in (0..self.groups.len()).filter(|place| *place != from && self.cut != Some((from, *place)))
        {
            let copies = addresses.iter().filter(|known| **known == address(place as u8)).map(|_| Way::Copy);
            let is_heard = is_multicast && self.deaf != Some((from, place));
            let ways = is_heard.then_some(Way::Multicast).into_iter().chain(copies);
            for way in ways {
                self.flights.push(Flight { from, to: place, way, bytes: bytes.to_vec() });
            }
        }
    }
}

/// Settings with which these few members use multicast.
fn by_multicast() -> Settings {
    Settings { transport: Transport::Multicast, ..Settings::default() }
}

/// All members send, as many messages each step, while this lasts.
fn load(circle: &mut Circle, time: Duration, messages: usize, bytes: usize) {
    let until = circle.now + time;
    while circle.now < until {
        for place in (0..circle.groups.len()).cycle().take(circle.groups.len() * messages) {
            circle.send(place, bytes, Quality::ORDERED);
        }
        circle.step();
    }
}

/// The application of one member stands still. The others exclude it, wherever the token is when the window shuts.
pub(super) fn stuck_site(bug: Option<Planted>) -> Option<&'static str> {
    const PATIENCE: Duration = Duration::from_millis(300);
    let slow_member = SlowMember::ExcludeAfter(PATIENCE);
    for history_messages in 60..72 {
        let config = GroupConfig { slow_member, history_messages, resilience: 2, ..GroupConfig::default() };
        let mut circle = Circle::new(3, config, by_multicast(), bug)?;
        load(&mut circle, STEP * 100, 1, 100);
        circle.stuck = Some(1);
        let took = circle.run_until_loaded(PATIENCE * 4, |circle| circle.members(0) == 2);
        if took.is_none_or(|took| took > PATIENCE * 3 / 2) {
            return Some("slow_members_go");
        }
    }
    None
}

/// Processes join a ring under load.
pub(super) fn joiners(bug: Option<Planted>) -> Option<&'static str> {
    let mut circle = Circle::new(6, GroupConfig::default(), by_multicast(), bug)?;
    for _ in 0..6 {
        load(&mut circle, STEP * 7, 1, 100);
        circle.enter(EntryMode::Join)?;
        load(&mut circle, Duration::from_millis(200), 1, 100);
        let last = circle.groups.len() - 1;
        if circle.groups[last].phase() != Phase::Member {
            return Some("joiners_get_in");
        }
    }
    None
}

/// Processes that know the address of one member join a ring at rest, whichever member has the token.
pub(super) fn joiners_at_rest(bug: Option<Planted>) -> Option<&'static str> {
    for seed in 0..4 {
        let mut circle = Circle::new(4, GroupConfig::default(), by_multicast(), bug)?;
        circle.seed = Some(seed);
        circle.enter(EntryMode::Join)?;
        if circle.run_until(Duration::from_secs(1), Circle::all_are_members).is_none() {
            return Some("joiners_get_in");
        }
    }
    None
}

/// All members send on a network that loses nothing: no message is ever lacking.
pub(super) fn lossless_load(bug: Option<Planted>) -> Option<&'static str> {
    let mut circle = Circle::new(4, GroupConfig::default(), by_multicast(), bug)?;
    let before = circle.nacks;
    load(&mut circle, Duration::from_millis(100), 1, 100);
    (circle.nacks > before).then_some("lossless_needs_no_repair")
}

/// For a while nothing of one member reaches the next in the ring. The others tell it of the pass.
pub(super) fn pass_told_by_others(bug: Option<Planted>) -> Option<&'static str> {
    let mut circle = Circle::new(4, GroupConfig::default(), by_multicast(), bug)?;
    load(&mut circle, Duration::from_millis(20), 1, 100);
    circle.run(Duration::from_millis(10));
    let before = circle.received[0];
    circle.cut = Some((0, 1));
    for _ in 0..10 {
        circle.send(2, 100, Quality::ORDERED);
        circle.run(Duration::from_millis(20));
    }
    let came = circle.received[0] - before;
    (came < 5).then_some("ring_goes_on")
}

/// One member hears the multicasts of all others but one, while all send. It requests what that one numbers a few times, and
/// then gets copies.
pub(super) fn deaf_to_one(bug: Option<Planted>) -> Option<&'static str> {
    let mut circle = Circle::new(4, GroupConfig::default(), by_multicast(), bug)?;
    load(&mut circle, Duration::from_millis(100), 1, 100);
    let before = circle.nacks;
    circle.deaf = Some((0, 2));
    load(&mut circle, Duration::from_millis(500), 1, 100);
    (circle.nacks - before > 20).then_some("the_deaf_get_copies")
}

/// Each member in turn sends a message that all must hold, twice. It costs its datagram, its number and a pass of each
/// member, no question and no answers.
pub(super) fn passes_alone(bug: Option<Planted>) -> Option<&'static str> {
    let mut circle = Circle::new(4, GroupConfig::default(), by_multicast(), bug)?;
    let mut sent = 0;
    for from in (0..4).cycle().take(8) {
        circle.run(Duration::from_millis(150));
        circle.settle()?;
        let before = (circle.sent, circle.accepted[from]);
        circle.send(from, 100, Quality::TOTAL);
        circle.run(STEP * 12);
        sent += circle.sent - before.0;
        if circle.accepted[from] == before.1 {
            return Some("passes_show_holders");
        }
    }
    (sent > 8 * 6).then_some("passes_show_holders")
}

/// One member reads nothing for a moment, while all others send: what is numbered meanwhile fits its socket.
pub(super) fn a_socket_holds_it(bug: Option<Planted>) -> Option<&'static str> {
    let mut circle = Circle::new(5, GroupConfig::default(), by_multicast(), bug)?;
    for _ in 0..8 {
        load(&mut circle, STEP * 101, 9, 1000);
        circle.frozen = Some(4);
        load(&mut circle, STEP * 50, 9, 1000);
        let held = circle.groups[4].info().unstable;
        let numbered = (circle.groups[0].info().unstable - held) * 1000;
        if numbered > circle.settings.receive_buffer_bytes as u64 / 3 {
            return Some("sockets_hold_what_is_numbered");
        }
        circle.frozen = None;
        load(&mut circle, STEP * 500, 9, 1000);
    }
    None
}

/// One of five members holds a switch of the order besides the one that numbered it, and hears of a reset that keeps only what
/// lies before it.
pub(super) fn switch_cut_off(bug: Option<Planted>) -> Option<&'static str> {
    let mut circle = Circle::new(5, GroupConfig::default(), by_multicast(), bug)?;
    let before = circle.groups[1].info();
    circle.groups[0].change_order(circle.now, Order::Sequencer(Migration::OnRequest)).ok()?;
    let (mut said, mut header) = (Vec::new(), None);
    while circle.groups[0].poll_transmit(circle.now, &mut said).is_some() {
        header = Header::parse(&said).ok();
        circle.groups[1].handle_multicast(circle.now, address(0), BytesMut::from(&said[..]));
    }
    let held = circle.groups[1].info();
    if held.order == before.order || held.accepted != before.accepted {
        return None;
    }
    let proposal = Proposal {
        epoch: EpochId { counter: before.epoch.counter + 1, coordinator: member(0).uid, nonce: 5 },
        start: before.accepted + 1,
        members: before.members.iter().map(|member| member.uid).collect(),
        degraded: false,
        forced: false,
        tail: Vec::new(),
    };
    let header = header.map(|header| Header { number: header.number + 1, ..header })?;
    let decided = written(&header, &Frame::Decided { proposal, entered: false })?;
    circle.groups[1].handle_datagram(circle.now, address(0), decided);
    let after = circle.groups[1].info();
    (after.epoch == before.epoch || after.order != before.order).then_some("switches_end_with_their_entry")
}

//! The network between the simulated processes: decides whether, when and in which state each copy of a datagram
//! arrives.
//!
//! A datagram is stored once, however many copies of it travel. Each copy travels on its own link, and its fate is
//! decided there. Links are directed. [`Conditions`] apply to the whole network and change when a fault begins or ends.
//! Cuts and clogs belong to single links, and [`Reach`] belongs to single processes.

use crate::queue::Queue;
use crate::seal::Seal;
use crate::words;
use crate::world::Happening;
use bytes::Bytes;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use unisono_core::wire::{
    Decoder, FRAME_HEAD_BYTES, Frame, FrameKind, HEADER_BYTES, Header, KeyContext, Protection, Unopened,
    Unreadable, Writer,
};
use unisono_core::{Instance, Random, Uid};

/// Delays and error rates that apply to every datagram.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Conditions {
    /// Minimum delay in nanoseconds.
    pub(crate) delay_min: u64,
    /// Mean of the exponentially distributed additional delay, in nanoseconds.
    pub(crate) delay_mean: u64,
    /// True if a datagram may overtake an earlier one on the same link.
    pub(crate) reorders: bool,
    /// Fraction of copies that are lost.
    pub(crate) loss: f64,
    /// Fraction of multicasts that are lost in the sender's interface, for all receivers.
    pub(crate) loss_at_sender: f64,
    /// Fraction of copies that arrive twice.
    pub(crate) duplication: f64,
    /// Fraction of copies that arrive damaged.
    pub(crate) corruption: f64,
    /// Fraction of copies that arrive with a forged source address: see [`Network::forge_from`].
    pub(crate) forgery: f64,
    /// Fraction of copies that are recorded, so that [`Network::replay`] can send them again.
    pub(crate) recording: f64,
    /// Maximum number of copies in flight on one link; further copies are lost.
    pub(crate) in_flight_max: u16,
    /// True if senders receive their own multicasts.
    pub(crate) echo: bool,
}

impl Conditions {
    /// Returns the conditions of an idle local network: no errors, and a delay of at least 50 µs, 60 µs on average.
    pub(crate) fn quiet() -> Conditions {
        Conditions {
            delay_min: 50_000,
            delay_mean: 10_000,
            reorders: false,
            loss: 0.0,
            loss_at_sender: 0.0,
            duplication: 0.0,
            corruption: 0.0,
            forgery: 0.0,
            recording: 0.0,
            in_flight_max: 10_000,
            echo: false,
        }
    }

    /// True if no copy is lost, repeated, damaged, forged or recorded.
    fn is_faultless(&self) -> bool {
        self.loss + self.duplication + self.corruption + self.forgery + self.recording == 0.0
    }
}

/// How a copy is addressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Path {
    /// To one address.
    Unicast,
    /// To the multicast address; one copy for each receiver.
    Multicast,
}

/// Index of a stored datagram.
pub(crate) type DatagramId = u32;

/// What happened to a copy on its link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// In flight.
    Sent,
    /// In flight, but damaged.
    Damaged,
    /// In flight, with a forged source address.
    Forged,
    /// Lost, for this reason.
    Lost(&'static str),
}

struct Datagram {
    bytes: Vec<u8>,
    from: u16,
    holders: u32,
}

/// Reasons for which a link is cut, as bits; several can apply at once.
pub(crate) mod cut {
    /// A partition.
    pub(crate) const PARTITION: u8 = 1;
    /// The process was not chosen for the core, and stays disabled when the faults end.
    pub(crate) const FOR_GOOD: u8 = 2;
    /// The members begin in two halves that do not receive each other's datagrams.
    pub(crate) const APART: u8 = 4;
}

#[derive(Clone, Copy, Default)]
struct Link {
    cut: u8,
    in_flight: u16,
    clogged_until: u64,
    last_arrival: u64,
}

/// Which datagrams one process can send and receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reach {
    /// True if multicasts that it sends leave its host.
    pub(crate) multicast_out: bool,
    /// True if it receives multicasts.
    pub(crate) multicast_in: bool,
    /// True if unicast datagrams that it sends leave its host.
    pub(crate) unicast_out: bool,
    /// True if it receives unicast datagrams.
    pub(crate) unicast_in: bool,
}

impl Reach {
    pub(crate) const FULL: Reach =
        Reach { multicast_out: true, multicast_in: true, unicast_out: true, unicast_in: true };

    /// Returns what both `self` and `limit` allow.
    fn within(self, limit: Reach) -> Reach {
        Reach {
            multicast_out: self.multicast_out && limit.multicast_out,
            multicast_in: self.multicast_in && limit.multicast_in,
            unicast_out: self.unicast_out && limit.unicast_out,
            unicast_in: self.unicast_in && limit.unicast_in,
        }
    }
}

struct Recording {
    bytes: Vec<u8>,
    from: u16,
    to: u16,
    path: Path,
}

const RECORDINGS_MAX: usize = 128;
/// Number of copies in a flood, and the interval between two of them in nanoseconds: twice what an endpoint signs.
const FLOOD_COPIES: u64 = 1_500;
const FLOOD_EVERY: u64 = 400_000;

/// Totals of what was sent so far, damaged or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traffic {
    /// Number of datagrams sent; a multicast counts once.
    pub(crate) datagrams: u64,
    /// Number of bytes in these datagrams.
    pub(crate) bytes: u64,
    /// Number of copies put on links.
    pub(crate) copies: u64,
}

/// All links, and the datagrams in flight.
pub(crate) struct Network {
    pub(crate) conditions: Conditions,
    pub(crate) traffic: Traffic,
    size: usize,
    links: Vec<Link>,
    reach: Vec<Reach>,
    /// The most that [`Network::set_reach`] can give each process.
    limits: Vec<Reach>,
    datagrams: Vec<Datagram>,
    free: Vec<DatagramId>,
    recordings: Vec<Recording>,
    forger: u16,
    random: Random,
}

impl Network {
    /// Returns a network between `size` processes.
    pub(crate) fn new(size: usize, conditions: Conditions, random: Random) -> Network {
        Network {
            conditions,
            traffic: Traffic::default(),
            size,
            links: vec![Link::default(); size * size],
            reach: vec![Reach::FULL; size],
            limits: vec![Reach::FULL; size],
            datagrams: Vec::new(),
            free: Vec::new(),
            recordings: Vec::new(),
            forger: 0,
            random,
        }
    }

    /// Returns the address of a process.
    pub(crate) fn address(process: usize) -> SocketAddr {
        let [_, a, b, c] = (process as u32 + 1).to_be_bytes();
        SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, a, b, c)), 7400)
    }

    /// Returns the process at an address, if there is one.
    pub(crate) fn process_at(&self, address: SocketAddr) -> Option<usize> {
        let IpAddr::V4(ip) = address.ip() else { return None };
        let [ten, a, b, c] = ip.octets();
        let process = (u32::from_be_bytes([0, a, b, c]) as usize).checked_sub(1)?;
        (ten == 10 && process < self.size).then_some(process)
    }

    /// Makes `process` the apparent sender of forged datagrams.
    pub(crate) fn forge_from(&mut self, process: usize) {
        self.forger = process as u16;
    }

    /// Sets the reach of a process, but no higher than its limit.
    pub(crate) fn set_reach(&mut self, process: usize, reach: Reach) {
        self.reach[process] = reach.within(self.limits[process]);
    }

    /// Limits the reach of a process for the rest of the run.
    pub(crate) fn limit_reach(&mut self, process: usize, limit: Reach) {
        self.limits[process] = limit;
        self.set_reach(process, limit);
    }

    /// Cuts the link for one reason, or removes this reason.
    pub(crate) fn set_cut(&mut self, from: usize, to: usize, reason: u8, is_cut: bool) {
        let link = &mut self.links[from * self.size + to];
        link.cut = if is_cut { link.cut | reason } else { link.cut & !reason };
    }

    /// Removes one reason from all links.
    pub(crate) fn clear_cuts(&mut self, reason: u8) {
        self.links.iter_mut().for_each(|link| link.cut &= !reason);
    }

    /// Holds back copies on a link until `until`, when all of them arrive.
    pub(crate) fn clog(&mut self, from: usize, to: usize, until: u64) {
        self.links[from * self.size + to].clogged_until = until;
    }

    /// Ends a clog. Copies already in flight keep their arrival times, and later copies need not wait behind them.
    pub(crate) fn unclog(&mut self, from: usize, to: usize) {
        let link = &mut self.links[from * self.size + to];
        (link.clogged_until, link.last_arrival) = (0, 0);
    }

    /// Stores a datagram and returns its id; `bytes` receives another buffer in exchange. The caller must call
    /// [`Network::release`] when it has posted all copies.
    pub(crate) fn store(&mut self, from: usize, bytes: &mut Vec<u8>) -> DatagramId {
        let id = self.free.pop().unwrap_or_else(|| {
            self.datagrams.push(Datagram { bytes: Vec::new(), from: 0, holders: 0 });
            (self.datagrams.len() - 1) as DatagramId
        });
        let datagram = &mut self.datagrams[id as usize];
        std::mem::swap(&mut datagram.bytes, bytes);
        (datagram.from, datagram.holders) = (from as u16, 1);
        id
    }

    /// Counts a datagram that is sent, to one address or to the multicast address.
    pub(crate) fn count_datagram(&mut self, id: DatagramId) {
        self.traffic.datagrams += 1;
        self.traffic.bytes += self.datagrams[id as usize].bytes.len() as u64;
    }

    /// True if a multicast is lost in its sender's interface.
    pub(crate) fn lost_at_sender(&mut self, from: usize) -> bool {
        !self.reach[from].multicast_out || self.random.chance(self.conditions.loss_at_sender)
    }

    /// Sends one copy of a stored datagram to `to`.
    pub(crate) fn post(
        &mut self,
        queue: &mut Queue<Happening>,
        now: u64,
        id: DatagramId,
        to: usize,
        path: Path,
    ) -> Fate {
        let from = self.datagrams[id as usize].from as usize;
        let (leaves, arrives) = match path {
            Path::Unicast => (self.reach[from].unicast_out, self.reach[to].unicast_in),
            Path::Multicast => (self.reach[from].multicast_out, self.reach[to].multicast_in),
        };
        if !leaves {
            return Fate::Lost("mute");
        }
        if !arrives {
            return Fate::Lost("deaf");
        }
        let link = &self.links[from * self.size + to];
        if link.cut != 0 {
            return Fate::Lost("cut");
        }
        if link.in_flight >= self.conditions.in_flight_max {
            return Fate::Lost("full");
        }
        if self.conditions.is_faultless() {
            self.launch(queue, now, id, from, to, path);
            return Fate::Sent;
        }
        if self.random.chance(self.conditions.loss) {
            return Fate::Lost("lost");
        }
        self.record(id, from, to, path);
        if self.random.chance(self.conditions.corruption) {
            let damaged = self.damage(id);
            self.launch(queue, now, damaged, from, to, path);
            self.release(damaged);
            return Fate::Damaged;
        }
        if self.random.chance(self.conditions.forgery) {
            let (mut bytes, forger) = (self.datagrams[id as usize].bytes.clone(), self.forger as usize);
            // Without a key, a process at another address can state any uid, and say what it likes except to those that
            // have agreed on keys.
            if words::frames(&bytes).contains(FrameKind::Request)
                && let Some(mut refused) = forged_refusal(&bytes, to, self.random.chance(0.5))
            {
                let forged = self.store(forger, &mut refused);
                self.launch(queue, now, forged, forger, from, Path::Unicast);
                self.release(forged);
            }
            let forged = self.store(forger, &mut bytes);
            self.launch(queue, now, forged, forger, to, path);
            self.release(forged);
            return Fate::Forged;
        }
        if self.random.chance(self.conditions.duplication) {
            self.launch(queue, now, id, from, to, path);
        }
        self.launch(queue, now, id, from, to, path);
        Fate::Sent
    }

    fn launch(
        &mut self,
        queue: &mut Queue<Happening>,
        now: u64,
        id: DatagramId,
        from: usize,
        to: usize,
        path: Path,
    ) {
        let conditions = &self.conditions;
        let link = &mut self.links[from * self.size + to];
        let mut arrival = now + conditions.delay_min + exponential(&mut self.random, conditions.delay_mean);
        if link.clogged_until > now {
            arrival = arrival.max(link.clogged_until);
        }
        if !conditions.reorders {
            arrival = arrival.max(link.last_arrival);
        }
        link.last_arrival = link.last_arrival.max(arrival);
        link.in_flight += 1;
        self.traffic.copies += 1;
        self.datagrams[id as usize].holders += 1;
        queue.push(arrival, Happening::Arrival { datagram: id, to: to as u16, path });
    }

    /// Notes that a copy has arrived. The caller must call [`Network::release`] when it has read it.
    pub(crate) fn arrived(&mut self, id: DatagramId, to: usize) {
        let from = self.datagrams[id as usize].from as usize;
        let link = &mut self.links[from * self.size + to];
        link.in_flight = link.in_flight.saturating_sub(1);
    }

    /// Returns the bytes of a datagram and its sender.
    pub(crate) fn read(&self, id: DatagramId) -> (&[u8], usize) {
        let datagram = &self.datagrams[id as usize];
        (&datagram.bytes, datagram.from as usize)
    }

    /// Drops one reference to a stored datagram; the last one frees it.
    pub(crate) fn release(&mut self, id: DatagramId) {
        let datagram = &mut self.datagrams[id as usize];
        datagram.holders -= 1;
        if datagram.holders == 0 {
            self.free.push(id);
        }
    }

    fn record(&mut self, id: DatagramId, from: usize, to: usize, path: Path) {
        if !self.random.chance(self.conditions.recording) {
            return;
        }
        let (bytes, from, to) = (self.datagrams[id as usize].bytes.clone(), from as u16, to as u16);
        let recording = Recording { bytes, from, to, path };
        if self.recordings.len() < RECORDINGS_MAX {
            self.recordings.push(recording);
        } else {
            let place = self.random.below(RECORDINGS_MAX as u64) as usize;
            self.recordings[place] = recording;
        }
    }

    /// Sends a recorded copy again, to its receiver or to a random process. Returns false if nothing was recorded.
    pub(crate) fn replay(&mut self, queue: &mut Queue<Happening>, now: u64) -> bool {
        if self.recordings.is_empty() {
            return false;
        }
        let recording = &self.recordings[self.random.below(self.recordings.len() as u64) as usize];
        let (from, path, mut bytes) = (recording.from as usize, recording.path, recording.bytes.clone());
        let to = if self.random.chance(0.5) {
            recording.to as usize
        } else {
            self.random.below(self.size as u64) as usize
        };
        let id = self.store(from, &mut bytes);
        self.launch(queue, now, id, from, to, path);
        self.release(id);
        true
    }

    /// Sends a recorded question for a port, or a recorded answer to one, again and again to its receiver. With
    /// `is_varied`, the copies differ as those of an attacker do: each question has another nonce, each answer another
    /// proof.
    pub(crate) fn flood(&mut self, queue: &mut Queue<Happening>, now: u64, is_varied: bool) {
        let is_of_ports = |recording: &&Recording| {
            let frames = words::frames(&recording.bytes);
            frames.contains(FrameKind::LocatePort) || frames.contains(FrameKind::PortHere)
        };
        let recordings: Vec<&Recording> = self.recordings.iter().filter(is_of_ports).collect();
        if recordings.is_empty() {
            return;
        }
        let recording = recordings[self.random.below(recordings.len() as u64) as usize];
        let (from, to, path) = (recording.from, recording.to, recording.path);
        let original = recording.bytes.clone();
        let place = match words::frames(&original).contains(FrameKind::LocatePort) {
            true => HEADER_BYTES + FRAME_HEAD_BYTES,
            false => original.len() - 8,
        };
        let same = self.store(from.into(), &mut original.clone());
        for copy in 0..FLOOD_COPIES {
            let datagram = if is_varied {
                let mut bytes = original.clone();
                bytes[place..place + 8].copy_from_slice(&self.random.next_u64().to_be_bytes());
                self.store(from.into(), &mut bytes)
            } else {
                self.datagrams[same as usize].holders += 1;
                same
            };
            self.traffic.copies += 1;
            self.links[usize::from(from) * self.size + usize::from(to)].in_flight += 1;
            queue.push(now + copy * FLOOD_EVERY, Happening::Arrival { datagram, to, path });
        }
        self.release(same);
    }

    /// Stores a damaged copy and returns its id: one bit is flipped, the end is missing, or the end is that of another
    /// datagram. In the last case the result may equal that other datagram, and then it is intact.
    fn damage(&mut self, id: DatagramId) -> DatagramId {
        let from = self.datagrams[id as usize].from as usize;
        let original = &self.datagrams[id as usize].bytes;
        let place = self.random.below(original.len() as u64) as usize;
        let mut bytes = original.clone();
        let mut is_another = false;
        match self.random.below(3) {
            0 => {}
            1 => bytes.truncate(place),
            _ => {
                let other = self.random.below(self.datagrams.len() as u64) as usize;
                let other = &self.datagrams[other].bytes;
                bytes.truncate(place);
                bytes.extend(other.iter().skip(place));
                // Both have the same sender, and the cut is near the beginning.
                is_another = bytes == *other;
            }
        }
        if bytes == *original && !bytes.is_empty() {
            bytes[place] ^= 1 << self.random.below(8);
            is_another = false;
        }
        if !is_another {
            Seal::invalidate(&mut bytes);
        }
        self.store(from, &mut bytes)
    }
}

/// Returns what a process that sees an envelope can answer in the server's place: that the server has no room, or that it
/// is another life.
fn forged_refusal(datagram: &[u8], to: usize, has_room: bool) -> Option<Vec<u8>> {
    let seen = Header::parse(datagram).ok()?;
    let mut frames = Decoder::new(Bytes::copy_from_slice(datagram.get(HEADER_BYTES..)?));
    let Some(Ok(Frame::Envelope(envelope))) = frames.next() else { return None };
    let of = envelope.head.to;
    let (sender, reason) = match has_room {
        true => (Uid(!of.0), Unreadable::OtherLife { age_ms: u64::from(u32::MAX) }),
        false => (of, Unreadable::Busy),
    };
    let header = Header { sender, number: !seen.number, ..seen };
    let mut forged = Vec::new();
    header.write(&mut forged);
    let binding = Unopened::binding(seen.sender, of, Network::address(to));
    let unopened = Unopened { binding, number: seen.number, reason };
    Writer::new(&mut forged, usize::MAX).frame(&Frame::Unopened(unopened));
    let context = KeyContext { instance: Instance::default(), sender, salt: 0 };
    Seal.seal(&context, header.number, &mut forged).then_some(forged)
}

/// Draws from the exponential distribution with this mean. Uses only the four basic operations, so that every machine
/// draws the same numbers.
pub(crate) fn exponential(random: &mut Random, mean: u64) -> u64 {
    if mean == 0 {
        return 0;
    }
    let bits = random.next_u64();
    let zeros = bits.leading_zeros().min(40);
    let rest = f64::from(((bits << (zeros + 1)) >> 44) as u32) / f64::from(1u32 << 20);
    // −log2 of a number in (0, 1] whose leading zeros are `zeros` and whose further bits are `rest`.
    let logarithm = f64::from(zeros) + 1.0 - (rest + 0.3466 * rest * (1.0 - rest));
    // Signed conversions are faster.
    (logarithm * core::f64::consts::LN_2 * mean as i64 as f64) as i64 as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_core::Uid;
    use unisono_core::wire::{KeyContext, Protection};

    fn network(conditions: Conditions) -> (Network, Queue<Happening>) {
        (Network::new(3, conditions, Random::from_u64(1)), Queue::new())
    }

    fn store(network: &mut Network, from: usize, bytes: &[u8]) -> DatagramId {
        network.store(from, &mut bytes.to_vec())
    }

    fn arrivals(queue: &mut Queue<Happening>) -> Vec<(u64, u16)> {
        core::iter::from_fn(|| queue.pop_by(u64::MAX))
            .map(|(time, happening)| match happening {
                Happening::Arrival { to, .. } => (time, to),
                _ => unreachable!("only arrivals were pushed"),
            })
            .collect()
    }

    #[test]
    fn addresses_name_processes() {
        let (network, _) = network(Conditions::quiet());
        assert_eq!(network.process_at(Network::address(2)), Some(2));
        assert_eq!(network.process_at(Network::address(3)), None);
    }

    #[test]
    fn a_cut_link_carries_nothing_one_way() {
        let (mut network, mut queue) = network(Conditions::quiet());
        network.set_cut(0, 1, cut::PARTITION, true);
        let (there, back) = (store(&mut network, 0, b"there"), store(&mut network, 1, b"back"));
        assert_eq!(network.post(&mut queue, 0, there, 1, Path::Unicast), Fate::Lost("cut"));
        assert_eq!(network.post(&mut queue, 0, back, 0, Path::Unicast), Fate::Sent);
        network.clear_cuts(cut::PARTITION);
        assert_eq!(network.post(&mut queue, 0, there, 1, Path::Unicast), Fate::Sent);
    }

    #[test]
    fn no_reach_goes_beyond_its_limit() {
        let (mut network, mut queue) = network(Conditions::quiet());
        network.limit_reach(0, Reach { multicast_out: false, ..Reach::FULL });
        network.limit_reach(2, Reach { multicast_in: false, ..Reach::FULL });
        (0..3).for_each(|process| network.set_reach(process, Reach::FULL));
        let ids = [0, 1].map(|from| store(&mut network, from, b"all"));
        assert_eq!(network.post(&mut queue, 0, ids[0], 1, Path::Multicast), Fate::Lost("mute"));
        assert_eq!(network.post(&mut queue, 0, ids[1], 2, Path::Multicast), Fate::Lost("deaf"));
        assert_eq!(network.post(&mut queue, 0, ids[1], 0, Path::Multicast), Fate::Sent);
        assert_eq!(network.post(&mut queue, 0, ids[0], 2, Path::Unicast), Fate::Sent);
    }

    #[test]
    fn a_link_keeps_order_unless_conditions_reorder() {
        for reorders in [false, true] {
            let (mut network, mut queue) =
                network(Conditions { delay_mean: 1_000_000, reorders, ..Conditions::quiet() });
            let ids: Vec<_> = (0..50u8).map(|i| store(&mut network, 0, &[i])).collect();
            for (i, id) in ids.iter().enumerate() {
                network.post(&mut queue, i as u64, *id, 1, Path::Unicast);
            }
            let mut order = Vec::new();
            while let Some((_, Happening::Arrival { datagram, .. })) = queue.pop_by(u64::MAX) {
                order.push(network.read(datagram).0[0]);
            }
            assert_eq!(order.is_sorted(), !reorders);
        }
    }

    #[test]
    fn a_clogged_link_bursts_when_it_opens() {
        let (mut network, mut queue) = network(Conditions::quiet());
        network.clog(0, 1, 5_000_000);
        let id = store(&mut network, 0, b"x");
        for _ in 0..3 {
            network.post(&mut queue, 0, id, 1, Path::Multicast);
        }
        assert!(arrivals(&mut queue).iter().all(|(time, _)| (5_000_000..5_200_000).contains(time)));
    }

    #[test]
    fn an_unclogged_link_carries_at_once_whatever_still_travels_on_it() {
        let (mut network, mut queue) = network(Conditions::quiet());
        assert!(!network.conditions.reorders);
        network.clog(0, 1, 5_000_000);
        let id = store(&mut network, 0, b"x");
        network.post(&mut queue, 0, id, 1, Path::Unicast);
        network.unclog(0, 1);
        network.post(&mut queue, 0, id, 1, Path::Unicast);
        assert!(arrivals(&mut queue)[0].0 < 1_000_000);
    }

    #[test]
    fn damaged_copies_differ_are_not_opened_and_leave_the_original_alone() {
        let (mut network, mut queue) = network(Conditions { corruption: 1.0, ..Conditions::quiet() });
        let context = KeyContext { instance: Default::default(), sender: Uid(1), salt: 0 };
        let sealed = |number, byte| {
            let mut datagram = vec![byte; 64];
            assert!(Seal.seal(&context, number, &mut datagram));
            datagram
        };
        let (id, _) = (store(&mut network, 0, &sealed(1, 7)), store(&mut network, 1, &sealed(2, 9)));
        for _ in 0..100 {
            assert_eq!(network.post(&mut queue, 0, id, 2, Path::Unicast), Fate::Damaged);
        }
        while let Some((_, Happening::Arrival { datagram, .. })) = queue.pop_by(u64::MAX) {
            let mut damaged = network.read(datagram).0.to_vec();
            assert_ne!(damaged, sealed(1, 7));
            assert!(!Seal.open(&context, 1, &mut damaged));
        }
        assert_eq!(network.read(id).0, sealed(1, 7));
    }

    #[test]
    fn loss_and_duplication_come_at_their_rates() {
        let (mut network, mut queue) =
            network(Conditions { loss: 0.2, duplication: 0.5, ..Conditions::quiet() });
        let id = store(&mut network, 0, b"x");
        let lost = (0..10_000).filter(|_| {
            let fate = network.post(&mut queue, 0, id, 1, Path::Unicast);
            network.links[1].in_flight = 0;
            fate != Fate::Sent
        });
        let lost = lost.count();
        assert!((1_800..2_200).contains(&lost), "{lost}");
        let arrived = arrivals(&mut queue).len();
        assert!((11_500..12_500).contains(&arrived), "{arrived}");
    }

    #[test]
    fn exponential_draws_have_their_mean() {
        let mut random = Random::from_u64(3);
        let mean = (0..100_000).map(|_| exponential(&mut random, 1_000_000)).sum::<u64>() / 100_000;
        assert!((980_000..1_020_000).contains(&mean), "{mean}");
    }

    #[test]
    fn recorded_copies_arrive_again() {
        let (mut network, mut queue) = network(Conditions { recording: 1.0, ..Conditions::quiet() });
        let id = store(&mut network, 0, b"once");
        network.post(&mut queue, 0, id, 1, Path::Unicast);
        network.release(id);
        assert!(network.replay(&mut queue, 60_000_000_000));
        assert_eq!(arrivals(&mut queue).len(), 2);
    }
}

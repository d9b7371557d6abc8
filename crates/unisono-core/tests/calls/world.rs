//! Endpoints on one network, driven by hand: a clock, the datagrams under way, and what the network does to them.

use crate::plain_agreement::{PlainAgreement, PlainPair, key_of};
use bytes::{Bytes, BytesMut};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use unisono_core::rpc::*;
use unisono_core::wire::{
    Checksum, Decoder, Envelope, EnvelopeHead, Frame, HEADER_BYTES, Header, KeyContext, Opening,
    ProtectionKind, TAG_BYTES, Writer, seal,
};
use unisono_core::*;

pub(crate) const MS: Duration = Duration::from_millis(1);
/// Time that a datagram takes.
pub(crate) const WAY: Duration = Duration::from_micros(100);

/// Stands in for cryptography: a process that knows the private port can make the proof. Counts the proofs that are made
/// and checked.
#[derive(Clone, Default)]
pub(crate) struct PlainProof(pub(crate) Arc<AtomicUsize>);

impl PortProof for PlainProof {
    fn prover(&self, private: PrivatePort) -> Box<dyn PortProver> {
        Box::new(PlainProver { private, work: self.0.clone() })
    }

    fn verify(&self, port: Port, claim: &[u8], proof: &Proof) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed);
        *proof == prove(&PrivatePort(port.0 ^ 0xffff), claim)
    }
}

struct PlainProver {
    private: PrivatePort,
    work: Arc<AtomicUsize>,
}

impl PortProver for PlainProver {
    fn port(&self) -> Port {
        public(&self.private)
    }

    fn prove(&self, claim: &[u8]) -> Proof {
        self.work.fetch_add(1, Ordering::Relaxed);
        prove(&self.private, claim)
    }
}

/// Returns the port that belongs to a private port.
pub(crate) fn public(private: &PrivatePort) -> Port {
    Port(private.0 ^ 0xffff)
}

pub(crate) fn prove(private: &PrivatePort, claim: &[u8]) -> Proof {
    let mut proof = [0; 96];
    for (index, byte) in private.0.to_be_bytes().iter().chain(claim).enumerate() {
        proof[index % 96] ^= byte.wrapping_mul(31).wrapping_add(index as u8);
    }
    Proof(proof)
}

/// First host at another IP address than those below.
pub(crate) const ELSEWHERE: u16 = 60_000;

pub(crate) fn address(host: u16) -> SocketAddr {
    let last = if host < ELSEWHERE { 1 } else { 2 };
    SocketAddr::from(([10, 0, 0, last], host))
}

/// What happens to a datagram: a delay beyond [`WAY`] for each copy that arrives.
pub(crate) type Fate = Vec<Duration>;
/// Decides the fate of a datagram by its sender, its receiver, its number and its bytes.
pub(crate) type Decide = Box<dyn FnMut(u16, u16, u64, &[u8]) -> Fate>;
/// A datagram under way: sender, receiver, whether by multicast, bytes.
type Flight = (SocketAddr, u16, bool, Vec<u8>);
type Outcome = Result<Bytes, CallFailure>;

pub(crate) struct Host {
    pub(crate) endpoint: Endpoint,
    /// Number of proofs that it made and checked.
    pub(crate) work: Arc<AtomicUsize>,
    pub(crate) outcomes: BTreeMap<CallNumber, Outcome>,
    /// Requests taken, in their order.
    pub(crate) requests: Vec<Request>,
    /// Computes the reply to each request. If `None`, requests stay in the queue.
    pub(crate) answers: Option<fn(&Request) -> Bytes>,
}

/// The hosts, the datagrams under way, and the clock.
pub(crate) struct World {
    pub(crate) now: Time,
    pub(crate) hosts: BTreeMap<u16, Host>,
    flights: BTreeMap<(Time, u64), Flight>,
    sent: u64,
    lives: u64,
    pub(crate) fate: Decide,
    /// The host whose datagrams are recorded, and those recorded so far.
    pub(crate) recorded: Option<u16>,
    pub(crate) recording: Vec<Vec<u8>>,
    pub(crate) settings: CallSettings,
}

impl World {
    pub(crate) fn new() -> World {
        World {
            now: Time::from_nanos(1_000_000_000),
            hosts: BTreeMap::new(),
            flights: BTreeMap::new(),
            sent: 0,
            lives: 0,
            fate: Box::new(|_, _, _, _| vec![Duration::ZERO]),
            settings: CallSettings::default(),
            recorded: None,
            recording: Vec::new(),
        }
    }

    /// Starts a life at this address, in place of the one that was there.
    pub(crate) fn start(&mut self, host: u16) -> &mut Host {
        self.lives += 1;
        let uid = Uid(1000 * u64::from(host) + self.lives);
        let random = Random::from_u64(self.lives);
        let settings = self.settings.clone();
        let work = Arc::new(AtomicUsize::new(0));
        let proof = Box::new(PlainProof(work.clone()));
        let keys: (Box<dyn PortProof>, Box<dyn KeyAgreement>) = (proof, Box::new(PlainAgreement(uid)));
        let endpoint = Endpoint::new(self.now, address(host), settings, Box::new(Checksum), keys, random);
        let host_of = Host {
            endpoint: endpoint.unwrap(),
            work,
            outcomes: BTreeMap::new(),
            requests: Vec::new(),
            answers: None,
        };
        self.hosts.insert(host, host_of);
        self.host(host)
    }

    /// Gives the life at one address another one.
    pub(crate) fn moves(&mut self, from: u16, to: u16) {
        let mut host = self.hosts.remove(&from).unwrap();
        host.endpoint.move_to(self.now, address(to));
        self.hosts.insert(to, host);
        self.drain(to);
    }

    pub(crate) fn host(&mut self, host: u16) -> &mut Host {
        self.hosts.get_mut(&host).unwrap()
    }

    /// Starts a server that echoes requests.
    pub(crate) fn start_echo(&mut self, host: u16, port: PrivatePort) -> Port {
        let host = self.start(host);
        host.answers = Some(|request| request.payload.clone());
        host.endpoint.serve(port, ServeOptions::default()).unwrap()
    }

    pub(crate) fn call(&mut self, host: u16, port: Port, request: &[u8], within: Duration) -> CallNumber {
        let now = self.now;
        let number =
            self.host(host).endpoint.call(now, port, Bytes::copy_from_slice(request), within).unwrap();
        self.drain(host);
        number
    }

    /// Makes a call and waits for its reply. Afterwards the client knows the server.
    pub(crate) fn answered(&mut self, host: u16, port: Port) {
        let call = self.call(host, port, b"known", Duration::from_secs(10));
        self.wait(host, call).1.unwrap();
    }

    /// From now on every datagram arrives once.
    pub(crate) fn all_arrives(&mut self) {
        self.fate = Box::new(|_, _, _, _| vec![Duration::ZERO]);
    }

    /// From now on no datagram arrives.
    pub(crate) fn nothing_arrives(&mut self) {
        self.fate = Box::new(|_, _, _, _| vec![]);
    }

    /// From now on no datagram of this host arrives.
    pub(crate) fn nothing_arrives_of(&mut self, host: u16) {
        self.fate = Box::new(move |from, _, _, _| if from == host { vec![] } else { vec![Duration::ZERO] });
    }

    pub(crate) fn take(&mut self, host: u16) -> Option<Request> {
        let now = self.now;
        self.host(host).endpoint.poll_request(now)
    }

    pub(crate) fn reply(&mut self, host: u16, id: RequestId, reply: &[u8]) -> Result<(), AnswerError> {
        let now = self.now;
        let done = self.host(host).endpoint.reply(now, id, Bytes::copy_from_slice(reply));
        self.drain(host);
        done
    }

    pub(crate) fn outcome(&mut self, host: u16, call: CallNumber) -> Option<Outcome> {
        self.host(host).outcomes.get(&call).cloned()
    }

    /// Runs until the call has its outcome. Returns how long that took, and the outcome.
    pub(crate) fn wait(&mut self, host: u16, call: CallNumber) -> (Duration, Outcome) {
        let begun = self.now;
        while self.now.since(begun) < Duration::from_secs(100) {
            if let Some(outcome) = self.outcome(host, call) {
                return (self.now.since(begun), outcome);
            }
            assert!(self.step(), "call {call} has no outcome, and no datagram or timer is left");
        }
        panic!("call {call} has no outcome after 100 s");
    }

    pub(crate) fn run(&mut self, time: Duration) {
        let until = self.now + time;
        while self.next_at().is_some_and(|at| at <= until) {
            self.step();
        }
        self.now = until;
    }

    fn next_at(&self) -> Option<Time> {
        let flight = self.flights.keys().next().map(|(at, _)| *at);
        let timeouts = self.hosts.values().filter_map(|host| host.endpoint.poll_timeout());
        timeouts.map(|(at, _)| at.max(self.now)).chain(flight).min()
    }

    /// Runs until the next datagram or timer. False if there is none.
    pub(crate) fn step(&mut self) -> bool {
        let Some(at) = self.next_at() else { return false };
        self.now = self.now.max(at);
        if self.flights.keys().next().is_some_and(|(at, _)| *at <= self.now) {
            let (_, (from, to, multicast, datagram)) = self.flights.pop_first().unwrap();
            let now = self.now;
            if let Some(host) = self.hosts.get_mut(&to) {
                let datagram = BytesMut::from(&datagram[..]);
                match multicast {
                    true => host.endpoint.handle_multicast(now, from, datagram),
                    false => host.endpoint.handle_datagram(now, from, datagram),
                }
                self.drain(to);
            }
            return true;
        }
        let is_due = |host: &Host| host.endpoint.poll_timeout().is_some_and(|(at, _)| at <= self.now);
        let due: Vec<u16> =
            self.hosts.iter().filter(|(_, host)| is_due(host)).map(|(host, _)| *host).collect();
        for host in due {
            let now = self.now;
            self.host(host).endpoint.handle_timeout(now);
            self.drain(host);
        }
        true
    }

    /// Does what the core's contract demands after every input and command: takes requests, outcomes and datagrams.
    pub(crate) fn drain(&mut self, from: u16) {
        let now = self.now;
        let host = self.host(from);
        if let Some(answers) = host.answers {
            while let Some(request) = host.endpoint.poll_request(now) {
                let answer = answers(&request);
                host.requests.push(request.clone());
                let _ = host.endpoint.reply(now, request.id, answer);
            }
        }
        while let Some((number, outcome)) = host.endpoint.poll_outcome() {
            assert!(host.outcomes.insert(number, outcome).is_none(), "call {number} has two outcomes");
        }
        let mut datagram = Vec::new();
        while let Some(to) = self.host(from).endpoint.poll_transmit(now, &mut datagram) {
            assert!(datagram.len() <= self.settings.datagram_bytes_max);
            if self.recorded == Some(from) {
                self.recording.push(datagram.clone());
            }
            match to {
                CallDestination::Address(to) | CallDestination::Unproved(to) => {
                    self.send(from, to.port(), false, &datagram)
                }
                CallDestination::Rendezvous(_) => {
                    let hosts: Vec<u16> = self.hosts.keys().copied().filter(|host| *host != from).collect();
                    hosts.into_iter().for_each(|to| self.send(from, to, true, &datagram));
                }
            }
        }
    }

    fn send(&mut self, from: u16, to: u16, multicast: bool, datagram: &[u8]) {
        self.sent += 1;
        for late in (self.fate)(from, to, self.sent, datagram) {
            self.put(from, to, multicast, datagram.to_vec(), WAY + late);
        }
    }

    /// Puts a datagram under way, past the recording and the fate.
    pub(crate) fn put(&mut self, from: u16, to: u16, multicast: bool, datagram: Vec<u8>, after: Duration) {
        self.sent += 1;
        self.flights.insert((self.now + after, self.sent), (address(from), to, multicast, datagram));
    }

    pub(crate) fn datagrams(&mut self, host: u16) -> u64 {
        self.host(host).endpoint.counters().datagrams_sent
    }
}

/// A frame, and the cookie that its envelope shows.
pub(crate) struct Said {
    pub(crate) frame: Frame,
    pub(crate) cookie: Option<Cookie>,
    /// The life whose key pair seals the envelope, if not the sender's.
    pub(crate) sealed_by: Option<Uid>,
}

impl From<&Frame> for Said {
    fn from(frame: &Frame) -> Said {
        Said { frame: frame.clone(), cookie: None, sealed_by: None }
    }
}

/// Returns the life to which a frame is addressed, and whether a server sends it. `None` if it travels without an envelope.
fn correspondent(frame: &Frame) -> Option<(Uid, bool)> {
    let (attempt, from_server) = match frame {
        Frame::Request(request) => (request.attempt, false),
        Frame::Reply(reply) => (reply.attempt, true),
        Frame::Part(part) => (part.attempt, part.reply),
        Frame::Got(got) => (got.attempt, !got.reply),
        Frame::Reject { attempt, .. } | Frame::Forward { attempt, .. } | Frame::Working { attempt, .. } => {
            (*attempt, true)
        }
        Frame::Cancel { attempt } => (*attempt, false),
        Frame::Done { to, .. } => return Some((*to, false)),
        _ => return None,
    };
    Some((attempt.to, from_server))
}

/// Returns a datagram of this life with one frame, in an envelope if it needs one.
pub(crate) fn sealed_frame(sender: u64, number: u64, said: impl Into<Said>) -> Vec<u8> {
    let Said { frame, cookie, sealed_by } = said.into();
    let sealer = sealed_by.unwrap_or(Uid(sender));
    let mut frames = Vec::new();
    assert!(Writer::new(&mut frames, 1 << 17).frame(&frame), "{frame}");
    let Some((to, from_server)) = correspondent(&frame) else { return sealed_bytes(sender, number, &frames) };
    let opening = cookie.map(|cookie| Opening { cookie, key: key_of(sealer) });
    let head = EnvelopeHead { to, salt: 3, from_server, opening };
    let enclosed = |tag: [u8; TAG_BYTES]| {
        let sealed = [&frames[..], &tag].concat().into();
        let mut out = Vec::new();
        Writer::new(&mut out, 1 << 17).frame(&Frame::Envelope(Envelope { head, sealed }.into()));
        out
    };
    // The tag covers the header and the head of the envelope.
    let mut covered = header(CALLS_TAG, EpochTag::OUTSIDE, sender, number).1;
    covered.extend(enclosed([0; TAG_BYTES]));
    covered.truncate(covered.len() - frames.len() - TAG_BYTES);
    let mut pair = PlainPair { me: sealer, other: to };
    let tag = pair.seal(head.salt, number, &covered, &mut frames.clone()).unwrap();
    sealed_bytes(sender, number, &enclosed(tag))
}

/// Returns a header of this life, and its bytes.
fn header(group: GroupTag, epoch: EpochTag, sender: u64, number: u64) -> (Header, Vec<u8>) {
    let protection = ProtectionKind::Checksum;
    let header = Header { protection, group, epoch, sender: Uid(sender), number, salt: 0 };
    let mut bytes = Vec::new();
    header.write(&mut bytes);
    (header, bytes)
}

/// Returns a datagram of this life with these bytes behind its header.
pub(crate) fn sealed_bytes(sender: u64, number: u64, frames: &[u8]) -> Vec<u8> {
    sealed_under((CALLS_TAG, EpochTag::OUTSIDE), sender, number, frames)
}

/// Returns the same with any tags.
pub(crate) fn sealed_under(
    (group, epoch): (GroupTag, EpochTag),
    sender: u64,
    number: u64,
    frames: &[u8],
) -> Vec<u8> {
    let (header, mut datagram) = header(group, epoch, sender, number);
    datagram.extend_from_slice(frames);
    let context = KeyContext { instance: Instance(0), sender: header.sender, salt: header.salt };
    assert!(seal(&mut datagram, &header, &context, &mut Checksum));
    datagram
}

/// Returns the frames of a datagram, those of an envelope in its place.
pub(crate) fn frames_of(datagram: &[u8]) -> impl Iterator<Item = Frame> + use<> {
    let frames = Decoder::new(Bytes::copy_from_slice(&datagram[HEADER_BYTES..]));
    frames.flat_map(|frame| match frame.unwrap() {
        Frame::Envelope(envelope) => {
            let contents = envelope.sealed.len() - TAG_BYTES;
            Decoder::new(envelope.sealed.slice(..contents)).map(|frame| frame.unwrap()).collect()
        }
        frame => vec![frame],
    })
}

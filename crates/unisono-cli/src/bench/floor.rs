//! The floor of latency: the paths of a group's message over bare UDP, without a protocol.
//!
//! One process stands for each member of the group: a relay for the sequencer, a sender, and receivers. They work as
//! members do: they block in receive calls and have the same placement on processors, and the relay sends to the others
//! by multicast or by a datagram each, as the group's sequencer does. While the group is measured, the floor is blocked
//! in receive calls and uses no processor time, and vice versa.

use crate::location::Location;
use crate::problem::Problem;
use crate::processes::{self, Crew, Instructions};
use crate::trial::lot;
use anyhow::Context;
use serde::{Deserialize, Serialize};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::time::{Duration, Instant};

/// Time limit for an answer of a floor process: 20 s.
const PATIENCE: Duration = Duration::from_secs(20);
/// A datagram without an answer after 200 ms counts as lost.
const LOST_AFTER: Duration = Duration::from_millis(200);
/// Datagrams that may be lost, besides one for each answered one: a lab may lose some on purpose.
const LOST_MAX: usize = 10;
/// The largest datagram, in bytes.
pub(crate) const BYTES_MAX: usize = 65_000;

/// A bare path.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Path {
    /// A request to the relay, and its reply.
    Rpc = 0,
    /// A datagram to the relay, and from there to all processes; timed until the sender's own copy arrives.
    Relay = 1,
}

/// The assignment of a floor process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Assignment {
    pub(crate) location: Location,
    /// Size of a datagram.
    pub(crate) bytes: usize,
}

/// An instruction to a floor process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Instruction {
    /// Forward arriving datagrams to these addresses.
    Relay { to: Vec<SocketAddr> },
    /// Read arriving datagrams, also from this multicast address.
    Receive { multicast: Option<SocketAddrV4> },
    /// Send `untimed` and then `timed` datagrams by this path.
    Send { relay: SocketAddr, multicast: Option<SocketAddrV4>, path: Path, untimed: usize, timed: usize },
    /// Report the processor time used.
    Usage,
}

/// An answer of a floor process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// Its address.
    At(SocketAddr),
    /// It is ready for its task.
    Ready,
    /// Time of each message, in nanoseconds.
    Took(Vec<u64>),
    /// Processor time used, in nanoseconds.
    Used(u64),
}

/// The processes of the floor.
pub(crate) struct Floor {
    crew: Crew<Instruction, Answer>,
    addresses: Vec<SocketAddr>,
    multicast: Option<SocketAddrV4>,
}

const RELAY: usize = 0;
const SENDER: usize = 1;

impl Floor {
    /// Starts a process at each of the `locations` (at least two).
    pub(crate) fn start(
        locations: &[Location],
        bytes: usize,
        multicast: Option<SocketAddrV4>,
    ) -> Result<Floor, Problem> {
        let mut crew = Crew::new();
        for location in locations {
            let assignment =
                crate::worker::Assignment::Floor(Assignment { location: location.clone(), bytes });
            crew.start(&assignment)?;
        }
        let mut floor = Floor { crew, addresses: Vec::new(), multicast };
        let mut addresses = vec![None; locations.len()];
        for _ in locations {
            if let (index, Answer::At(address)) = floor.answer("the floor's processes to start")? {
                addresses[index] = Some(address);
            }
        }
        floor.addresses = addresses.into_iter().flatten().collect();
        let to = match multicast {
            Some(group) => vec![SocketAddr::V4(group)],
            None => floor.addresses[SENDER..].to_vec(),
        };
        floor.crew.instruct(RELAY, &Instruction::Relay { to })?;
        floor.answer("the floor's relay")?;
        // The kernel wakes the receivers of a multicast in an order that depends on when they joined it. So the sender
        // joins first here, as it does among the members.
        floor.measure(Path::Relay, 0, 0)?;
        for receiver in SENDER + 1..floor.crew.len() {
            floor.crew.instruct(receiver, &Instruction::Receive { multicast })?;
            floor.answer("the floor's receivers")?;
        }
        Ok(floor)
    }

    /// Sends by a path. Returns the time of each timed datagram, in nanoseconds.
    pub(crate) fn measure(&mut self, path: Path, untimed: usize, timed: usize) -> Result<Vec<u64>, Problem> {
        let instruction = Instruction::Send {
            relay: self.addresses[RELAY],
            multicast: self.multicast,
            path,
            untimed,
            timed,
        };
        self.crew.instruct(SENDER, &instruction)?;
        match self.answer("the bare path to be measured")? {
            (_, Answer::Took(took)) => Ok(took),
            (_, other) => Err(Problem::failed(format!("the floor answered {other:?}"))),
        }
    }

    /// Returns the processor time used so far by all processes, in nanoseconds.
    pub(crate) fn processor_ns(&mut self) -> Result<u64, Problem> {
        let mut sum = 0;
        for index in 0..self.crew.len() {
            self.crew.instruct(index, &Instruction::Usage)?;
            if let (_, Answer::Used(ns)) = self.answer("the floor's processor time")? {
                sum += ns;
            }
        }
        Ok(sum)
    }

    fn answer(&mut self, what: &str) -> Result<(usize, Answer), Problem> {
        self.crew.answer(Instant::now() + PATIENCE, &[], what)
    }
}

/// Returns a random multicast address and port, which other programs are unlikely to use.
pub(crate) fn multicast_address() -> Result<SocketAddrV4, Problem> {
    let drawn = lot(1 << 32)?.to_be_bytes();
    let port = 20_000 + u16::from_be_bytes([drawn[4], drawn[5]]) % 12_000;
    Ok(SocketAddrV4::new(Ipv4Addr::new(239, 255, drawn[6], drawn[7]), port))
}

/// Runs a floor process.
pub(crate) fn work(assignment: Assignment, mut instructions: Instructions) -> anyhow::Result<()> {
    assignment.location.enter()?;
    let address = assignment.location.address;
    let socket = UdpSocket::bind((address, 0))?;
    processes::answer(&Answer::At(socket.local_addr()?))?;
    let mut sender = None;
    while let Some(instruction) = instructions.next()? {
        match instruction {
            Instruction::Relay { to } => {
                let socket = socket.try_clone()?;
                multicast_by(&socket, address)?;
                std::thread::spawn(move || relay(&socket, &to));
                processes::answer(&Answer::Ready)?;
            }
            Instruction::Receive { multicast } => {
                let socket = receiving_socket(&socket, multicast, address)?;
                std::thread::spawn(move || receive(&socket));
                processes::answer(&Answer::Ready)?;
            }
            Instruction::Send { relay, multicast, path, untimed, timed } => {
                let sender = match &mut sender {
                    Some(sender) => sender,
                    none => none.insert(Sender::new(&socket, relay, multicast, &assignment)?),
                };
                sender.exchange(path, untimed)?;
                processes::answer(&Answer::Took(sender.exchange(path, timed)?))?;
            }
            Instruction::Usage => processes::answer(&Answer::Used(processes::processor_ns()))?,
        }
    }
    Ok(())
}

/// Answers requests, and forwards other datagrams to all processes.
fn relay(socket: &UdpSocket, to: &[SocketAddr]) -> std::io::Result<()> {
    let mut buffer = vec![0; BYTES_MAX];
    loop {
        let (bytes, from) = socket.recv_from(&mut buffer)?;
        if buffer.first() == Some(&(Path::Rpc as u8)) {
            socket.send_to(&buffer[..bytes], from)?;
        } else {
            for address in to {
                socket.send_to(&buffer[..bytes], address)?;
            }
        }
    }
}

fn receive(socket: &UdpSocket) -> std::io::Result<()> {
    let mut buffer = vec![0; BYTES_MAX];
    loop {
        socket.recv(&mut buffer)?;
    }
}

struct Sender {
    /// Sends everything, and receives replies to requests.
    own: UdpSocket,
    /// Receives what the relay forwards.
    forwarded: UdpSocket,
    relay: SocketAddr,
    datagram: Vec<u8>,
    number: u32,
}

impl Sender {
    fn new(
        own: &UdpSocket,
        relay: SocketAddr,
        multicast: Option<SocketAddrV4>,
        assignment: &Assignment,
    ) -> anyhow::Result<Sender> {
        let forwarded = receiving_socket(own, multicast, assignment.location.address)?;
        let own = own.try_clone()?;
        own.set_read_timeout(Some(LOST_AFTER))?;
        forwarded.set_read_timeout(Some(LOST_AFTER))?;
        Ok(Sender {
            own,
            forwarded,
            relay,
            datagram: vec![0; assignment.bytes.clamp(HEADER_BYTES, BYTES_MAX)],
            number: 0,
        })
    }

    /// Sends `count` datagrams, each after the answer to the one before. Returns the time of each, in nanoseconds.
    fn exchange(&mut self, path: Path, count: usize) -> anyhow::Result<Vec<u64>> {
        let mut took = Vec::with_capacity(count);
        let mut buffer = vec![0; BYTES_MAX];
        let mut lost = 0;
        while took.len() < count {
            self.number = self.number.wrapping_add(1);
            self.datagram[0] = path as u8;
            self.datagram[1..HEADER_BYTES].copy_from_slice(&self.number.to_be_bytes());
            let begin = Instant::now();
            self.own.send_to(&self.datagram, self.relay)?;
            let socket = if path == Path::Rpc { &self.own } else { &self.forwarded };
            match answer(socket, &mut buffer, &self.datagram[..HEADER_BYTES]) {
                Ok(()) => took.push(u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX)),
                Err(error) => {
                    lost += 1;
                    anyhow::ensure!(
                        lost < LOST_MAX + took.len(),
                        "bare UDP does not work on this machine: {error}"
                    );
                }
            }
        }
        Ok(took)
    }
}

/// Bytes of the header: the path, and a number.
const HEADER_BYTES: usize = 5;

/// Waits for the datagram with this header. Late answers to lost datagrams may arrive before it.
fn answer(socket: &UdpSocket, buffer: &mut [u8], header: &[u8]) -> std::io::Result<()> {
    loop {
        let bytes = socket.recv(buffer)?;
        if buffer[..bytes].starts_with(header) {
            return Ok(());
        }
    }
}

/// Returns the socket that receives what the relay forwards: the process's own, or one that has joined the multicast
/// group.
fn receiving_socket(
    own: &UdpSocket,
    multicast: Option<SocketAddrV4>,
    interface: Ipv4Addr,
) -> anyhow::Result<UdpSocket> {
    let Some(group) = multicast else {
        return Ok(own.try_clone()?);
    };
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&SocketAddr::V4(group).into())?;
    socket
        .join_multicast_v4(group.ip(), &interface)
        .with_context(|| format!("cannot receive multicast on {interface}"))?;
    Ok(socket.into())
}

fn multicast_by(socket: &UdpSocket, interface: Ipv4Addr) -> anyhow::Result<()> {
    let socket = socket2::SockRef::from(socket);
    socket.set_multicast_if_v4(&interface)?;
    Ok(socket.set_multicast_loop_v4(true)?)
}

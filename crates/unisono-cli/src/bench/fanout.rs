//! What the machine allows under load: one process sends to all, with no protocol.
//!
//! A source packs messages into datagrams and datagrams into runs, as members do, and sends them to as many receiver
//! processes as an orderer has others to reach. All it waits for is that the slowest receiver has read what was sent
//! a while ago: without that it would measure how fast datagrams can be thrown away.

use super::placement;
use crate::problem::Problem;
use crate::processes::{self, Crew, Orders};
use crate::worker;
use serde::{Deserialize, Serialize};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::{Duration, Instant};
use unisono_udp::{Receiver, Socket, wait};

/// The most bytes of a datagram: what members use where they do not know that the path carries more.
const DATAGRAM_BYTES: usize = 1472;
/// Datagrams that leave in one go.
const RUN_DATAGRAMS: u64 = 44;
/// Datagrams that the slowest receiver may be behind: well within a receive buffer.
const BEHIND_MAX: u64 = 1024;
/// A receiver says how far it is after so many datagrams.
const TELL_DATAGRAMS: u64 = 128;
/// After so much silence a receiver that is behind has lost something, and what was lost is written off.
const LOST_AFTER: Duration = Duration::from_millis(50);
const PATIENCE: Duration = Duration::from_secs(20);
const NUMBER_BYTES: usize = 8;

/// The role of a fan-out process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Role {
    /// The processor it stays on; any if not given.
    pub(crate) processor: Option<usize>,
}

/// An order to a fan-out process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Read what comes, by this multicast address if one is given, and tell the source how far you are.
    Receive { source: SocketAddr, multicast: Option<SocketAddrV4> },
    /// Send datagrams of this size to these for so long, and count after a while.
    Send { to: Vec<SocketAddr>, receivers: usize, bytes: usize, untimed_ms: u64, timed_ms: u64 },
}

/// What a fan-out process reports.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Report {
    /// Its address.
    At(SocketAddr),
    /// Ready for what was ordered.
    Ready,
    /// Datagrams a second, as the slowest receiver read them.
    Rate(f64),
}

/// The processes of the fan-out.
pub(crate) struct Fanout {
    crew: Crew<Order, Report>,
    to: Vec<SocketAddr>,
    receivers: usize,
    packing: Packing,
}

const SOURCE: usize = 0;

impl Fanout {
    /// Starts a source, and a receiver for each further one of the `processors`.
    pub(crate) fn start(
        processors: &[Option<usize>],
        message_bytes: usize,
        multicast: Option<SocketAddrV4>,
    ) -> Result<Fanout, Problem> {
        let mut crew = Crew::new();
        let mut addresses = Vec::new();
        for processor in processors {
            crew.start(&worker::Role::Fanout(Role { processor: *processor }))?;
            match crew.report(Instant::now() + PATIENCE, &[], "the fan-out's processes to start")? {
                (_, Report::At(address)) => addresses.push(address),
                (_, other) => return Err(Problem::failed(format!("the fan-out answered {other:?}"))),
            }
        }
        let receivers = addresses.len() - 1;
        for index in 1..addresses.len() {
            crew.order(index, &Order::Receive { source: addresses[SOURCE], multicast })?;
            crew.report(Instant::now() + PATIENCE, &[], "the fan-out's receivers")?;
        }
        let to = multicast.map_or_else(|| addresses[1..].to_vec(), |group| vec![SocketAddr::V4(group)]);
        Ok(Fanout { crew, to, receivers, packing: Packing::of(message_bytes) })
    }

    /// Messages a second that the slowest receiver got.
    pub(crate) fn measure(&mut self, untimed: Duration, timed: Duration) -> Result<f64, Problem> {
        let milliseconds = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let order = Order::Send {
            to: self.to.clone(),
            receivers: self.receivers,
            bytes: self.packing.datagram_bytes,
            untimed_ms: milliseconds(untimed),
            timed_ms: milliseconds(timed),
        };
        self.crew.order(SOURCE, &order)?;
        match self.crew.report(
            Instant::now() + PATIENCE + untimed + timed,
            &[],
            "the fan-out to be measured",
        )? {
            (_, Report::Rate(datagrams)) => Ok(datagrams * self.packing.messages_per_datagram),
            (_, other) => Err(Problem::failed(format!("the fan-out answered {other:?}"))),
        }
    }
}

/// How messages lie in datagrams: as many as fit into one, or one in several.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Packing {
    datagram_bytes: usize,
    messages_per_datagram: f64,
}

impl Packing {
    fn of(message_bytes: usize) -> Packing {
        let message_bytes = message_bytes.max(1);
        if message_bytes <= DATAGRAM_BYTES {
            let messages = DATAGRAM_BYTES / message_bytes;
            let datagram_bytes = (messages * message_bytes).max(NUMBER_BYTES);
            return Packing { datagram_bytes, messages_per_datagram: messages as f64 };
        }
        let pieces = message_bytes.div_ceil(DATAGRAM_BYTES);
        Packing { datagram_bytes: message_bytes.div_ceil(pieces), messages_per_datagram: 1.0 / pieces as f64 }
    }
}

/// The life of a fan-out process.
pub(crate) fn work(role: Role, mut orders: Orders) -> anyhow::Result<()> {
    if let Some(processor) = role.processor {
        placement::stay_on(processor)?;
    }
    let mut socket = Some(Socket::bind((Ipv4Addr::LOCALHOST, 0).into())?);
    if let Some(socket) = &socket {
        processes::report(&Report::At(socket.address()))?;
    }
    let mut source = None;
    while let Some(order) = orders.next()? {
        match (order, socket.take()) {
            (Order::Receive { source, multicast }, Some(own)) => {
                let group =
                    multicast.map(|group| Socket::listen(group, Ipv4Addr::LOCALHOST, None)).transpose()?;
                std::thread::spawn(move || receive(&own, group.as_ref().unwrap_or(&own), source));
                processes::report(&Report::Ready)?;
            }
            (Order::Send { to, receivers, bytes, untimed_ms, timed_ms }, own) => {
                if let Some(own) = own {
                    own.send_multicast_by(Ipv4Addr::LOCALHOST, 1)?;
                    source = Some(Source::new(own));
                }
                let source = source.as_mut().ok_or_else(|| anyhow::anyhow!("a receiver does not send"))?;
                let (untimed, timed) = (Duration::from_millis(untimed_ms), Duration::from_millis(timed_ms));
                processes::report(&Report::Rate(source.run(&to, receivers, bytes, untimed, timed)?))?;
            }
            (Order::Receive { .. }, None) => anyhow::bail!("a receiver has one source"),
        }
    }
    Ok(())
}

/// Reads what comes and tells the source now and then how far it is.
fn receive(own: &Socket, from: &Socket, source: SocketAddr) -> std::io::Result<()> {
    let mut receiver = Receiver::new();
    let (mut highest, mut told) = (0, 0);
    loop {
        wait(&[from], None, None);
        while receiver.receive(from, |_, datagram| highest = number(&datagram).max(highest))? {}
        if highest >= told + TELL_DATAGRAMS {
            told = highest;
            own.send(&highest.to_be_bytes(), NUMBER_BYTES, &[source]);
        }
    }
}

/// The number in front of a datagram; 0 if it is too short for one.
fn number(datagram: &[u8]) -> u64 {
    datagram.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

/// The source's side, over all blocks.
struct Source {
    socket: Socket,
    receiver: Receiver,
    /// The number of the last datagram sent.
    sent: u64,
    /// How far each receiver said that it is.
    read: Vec<(SocketAddr, u64)>,
}

impl Source {
    fn new(socket: Socket) -> Source {
        Source { socket, receiver: Receiver::new(), sent: 0, read: Vec::new() }
    }

    /// Sends for so long; datagrams a second, as the slowest receiver read them while it was timed.
    fn run(
        &mut self,
        to: &[SocketAddr],
        receivers: usize,
        bytes: usize,
        untimed: Duration,
        timed: Duration,
    ) -> anyhow::Result<f64> {
        let mut run = vec![0; bytes * RUN_DATAGRAMS as usize];
        let begin = Instant::now() + untimed;
        let end = begin + timed;
        // Whatever is still on its way from the block before is past.
        let mut written_off = self.sent;
        let mut counted_from = None;
        loop {
            let now = Instant::now();
            if now >= begin && counted_from.is_none() {
                counted_from = Some((now, self.slowest(receivers, written_off)));
            }
            if now >= end {
                break;
            }
            if self.sent - self.slowest(receivers, written_off) < BEHIND_MAX {
                for datagram in run.chunks_mut(bytes) {
                    self.sent += 1;
                    datagram[..NUMBER_BYTES].copy_from_slice(&self.sent.to_be_bytes());
                }
                self.socket.send(&run, bytes, to);
            } else if !wait(&[&self.socket], None, Some(LOST_AFTER)).any() {
                written_off = self.sent;
            }
            self.listen()?;
        }
        let (since, from) = counted_from.unwrap_or((begin, self.sent));
        let read = self.slowest(receivers, written_off).saturating_sub(from);
        Ok(read as f64 / since.elapsed().as_secs_f64())
    }

    /// Takes what receivers have said, without waiting.
    fn listen(&mut self) -> std::io::Result<()> {
        let read = &mut self.read;
        self.receiver.receive(&self.socket, |from, datagram| {
            let number = number(&datagram);
            match read.iter_mut().find(|(address, _)| *address == from) {
                Some((_, read)) => *read = number.max(*read),
                None => read.push((from, number)),
            }
        })?;
        Ok(())
    }

    /// How far the slowest receiver is.
    fn slowest(&self, receivers: usize, written_off: u64) -> u64 {
        let all = self.read.len() >= receivers;
        let slowest = if all { self.read.iter().map(|(_, read)| *read).min().unwrap_or(0) } else { 0 };
        slowest.max(written_off)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_messages_share_a_datagram_and_large_ones_need_several() {
        assert_eq!(Packing::of(64), Packing { datagram_bytes: 1472, messages_per_datagram: 23.0 });
        assert_eq!(Packing::of(1024), Packing { datagram_bytes: 1024, messages_per_datagram: 1.0 });
        assert_eq!(Packing::of(8000), Packing { datagram_bytes: 1334, messages_per_datagram: 1.0 / 6.0 });
        assert_eq!(Packing::of(0).messages_per_datagram, 1472.0);
    }
}

//! The floor of throughput: one process sends to all over bare UDP, without a protocol.
//!
//! A source packs messages into datagrams and datagrams into batches, as members do, and sends them to one receiver
//! process for each member other than the sequencer. The source waits only until the slowest receiver has read earlier
//! datagrams. Without that it would measure how fast the system can drop datagrams.

use crate::lab::quality::Rate;
use crate::location::Location;
use crate::problem::Problem;
use crate::processes::{self, Crew, Instructions};
use crate::worker;
use serde::{Deserialize, Serialize};
use std::net::{SocketAddr, SocketAddrV4};
use std::time::{Duration, Instant};
use unisono_udp::{Receiver, Socket};

/// Maximum size of a datagram: that of members that do not know a larger size to pass.
const DATAGRAM_BYTES: usize = 1472;
const PATIENCE: Duration = Duration::from_secs(20);
const NUMBER_BYTES: usize = 8;

/// The assignment of a fan-out process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Assignment {
    pub(crate) location: Location,
    pub(crate) pace: Pace,
}

/// An instruction to a fan-out process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Instruction {
    /// Read arriving datagrams, by this multicast address if one is given, and report to the source how many were read.
    Receive { source: SocketAddr, multicast: Option<SocketAddrV4> },
    /// Send datagrams of this size to these addresses for both times together, and count in the timed one.
    Send { to: Vec<SocketAddr>, receivers: usize, bytes: usize, untimed_ms: u64, timed_ms: u64 },
}

/// An answer of a fan-out process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// Its address.
    At(SocketAddr),
    /// It is ready for its task.
    Ready,
    /// Datagrams per second that the slowest receiver read.
    Rate(f64),
}

/// The processes of the fan-out.
pub(crate) struct Fanout {
    crew: Crew<Instruction, Answer>,
    to: Vec<SocketAddr>,
    receivers: usize,
    packing: Packing,
}

const SOURCE: usize = 0;

impl Fanout {
    /// Starts a source at the first location and a receiver at each other one. `rate` is that of the path between them.
    pub(crate) fn start(
        locations: &[Location],
        rate: Option<Rate>,
        message_bytes: usize,
        multicast: Option<SocketAddrV4>,
    ) -> Result<Fanout, Problem> {
        let mut crew = Crew::new();
        let mut addresses = Vec::new();
        let pace = rate.map_or(Pace::FREE, Pace::at);
        for location in locations {
            crew.start(&worker::Assignment::Fanout(Assignment { location: location.clone(), pace }))?;
            match crew.answer(Instant::now() + PATIENCE, &[], "the fan-out's processes to start")? {
                (_, Answer::At(address)) => addresses.push(address),
                (_, other) => return Err(Problem::failed(format!("the fan-out answered {other:?}"))),
            }
        }
        let receivers = addresses.len() - 1;
        for index in 1..addresses.len() {
            crew.instruct(index, &Instruction::Receive { source: addresses[SOURCE], multicast })?;
            crew.answer(Instant::now() + PATIENCE, &[], "the fan-out's receivers")?;
        }
        let to = multicast.map_or_else(|| addresses[1..].to_vec(), |group| vec![SocketAddr::V4(group)]);
        Ok(Fanout { crew, to, receivers, packing: Packing::of(message_bytes) })
    }

    /// Returns the messages per second that the slowest receiver read.
    pub(crate) fn measure(&mut self, untimed: Duration, timed: Duration) -> Result<f64, Problem> {
        let milliseconds = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let instruction = Instruction::Send {
            to: self.to.clone(),
            receivers: self.receivers,
            bytes: self.packing.datagram_bytes,
            untimed_ms: milliseconds(untimed),
            timed_ms: milliseconds(timed),
        };
        self.crew.instruct(SOURCE, &instruction)?;
        match self.crew.answer(
            Instant::now() + PATIENCE + untimed + timed,
            &[],
            "the fan-out to be measured",
        )? {
            (_, Answer::Rate(datagrams)) => Ok(datagrams * self.packing.messages_per_datagram),
            (_, other) => Err(Problem::failed(format!("the fan-out answered {other:?}"))),
        }
    }
}

/// How far the source runs ahead of the slowest receiver.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Pace {
    /// Datagrams that the source sends in one batch.
    run_datagrams: u64,
    /// Maximum number of datagrams that the slowest receiver has not read yet.
    behind_max: u64,
    /// Number of datagrams after which a receiver reports.
    report_datagrams: u64,
    /// Time without a report after which unread datagrams count as lost.
    lost_after_ms: u64,
}

impl Pace {
    /// The pace on a path without a rate limit: its datagrams fit well into a receive buffer.
    const FREE: Pace = Pace { run_datagrams: 44, behind_max: 1024, report_datagrams: 128, lost_after_ms: 50 };
    /// Datagrams under way on a slow path, as transmission time: 50 ms.
    const AHEAD_MS: u64 = 50;

    /// Returns the pace on a path of this rate.
    fn at(rate: Rate) -> Pace {
        let datagrams = Pace::AHEAD_MS * rate.bytes_per_ms() / DATAGRAM_BYTES as u64;
        let behind_max = datagrams.clamp(8, Pace::FREE.behind_max);
        let eighth = behind_max / 8;
        Pace {
            run_datagrams: eighth.min(Pace::FREE.run_datagrams),
            behind_max,
            report_datagrams: eighth.min(Pace::FREE.report_datagrams),
            lost_after_ms: 10 * Pace::AHEAD_MS,
        }
    }
}

/// How messages are packed into datagrams: several into one, or one into several.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Packing {
    datagram_bytes: usize,
    messages_per_datagram: f64,
}

impl Packing {
    fn of(message_bytes: usize) -> Packing {
        if message_bytes <= DATAGRAM_BYTES {
            let messages = DATAGRAM_BYTES / message_bytes;
            let datagram_bytes = (messages * message_bytes).max(NUMBER_BYTES);
            return Packing { datagram_bytes, messages_per_datagram: messages as f64 };
        }
        let pieces = message_bytes.div_ceil(DATAGRAM_BYTES);
        Packing { datagram_bytes: message_bytes.div_ceil(pieces), messages_per_datagram: 1.0 / pieces as f64 }
    }
}

/// Runs a fan-out process.
pub(crate) fn work(assignment: Assignment, mut instructions: Instructions) -> anyhow::Result<()> {
    assignment.location.enter()?;
    let (address, pace) = (assignment.location.address, assignment.pace);
    let mut socket = Some(Socket::bind((address, 0).into())?);
    if let Some(socket) = &socket {
        processes::answer(&Answer::At(socket.address()))?;
    }
    let mut source = None;
    while let Some(instruction) = instructions.next()? {
        match (instruction, socket.take()) {
            (Instruction::Receive { source, multicast }, Some(own)) => {
                let group = multicast.map(|group| Socket::listen(group, address, None, None)).transpose()?;
                std::thread::spawn(move || receive(&own, group.as_ref().unwrap_or(&own), source, pace));
                processes::answer(&Answer::Ready)?;
            }
            (Instruction::Send { to, receivers, bytes, untimed_ms, timed_ms }, own) => {
                if let Some(own) = own {
                    own.send_multicast_by(address, 1)?;
                    source = Some(Source::new(own, pace));
                }
                let source = source.as_mut().ok_or_else(|| anyhow::anyhow!("a receiver does not send"))?;
                let (untimed, timed) = (Duration::from_millis(untimed_ms), Duration::from_millis(timed_ms));
                processes::answer(&Answer::Rate(source.run(&to, receivers, bytes, untimed, timed)?))?;
            }
            (Instruction::Receive { .. }, None) => anyhow::bail!("a receiver has one source"),
        }
    }
    Ok(())
}

/// Reads arriving datagrams and reports progress to the source.
fn receive(own: &Socket, from: &Socket, source: SocketAddr, pace: Pace) -> std::io::Result<()> {
    let mut receiver = Receiver::new();
    let (mut highest, mut reported, mut read) = (0, 0, 0);
    loop {
        from.wait(None);
        while receiver.receive(from, |_, datagram| {
            highest = number(&datagram).max(highest);
            read += 1;
        })? {}
        if highest >= reported + pace.report_datagrams {
            reported = highest;
            own.send(&[highest, read].map(u64::to_be_bytes).concat(), 2 * NUMBER_BYTES, &[source]);
        }
    }
}

/// Returns the number at the beginning of a datagram; 0 if it is too short.
fn number(datagram: &[u8]) -> u64 {
    datagram.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

/// The last report of a receiver: the highest number that it read, and how many datagrams it read.
struct Report {
    from: SocketAddr,
    highest: u64,
    read: u64,
}

/// The source, for all blocks.
struct Source {
    socket: Socket,
    pace: Pace,
    receiver: Receiver,
    /// Number of the last datagram sent.
    sent: u64,
    reports: Vec<Report>,
}

impl Source {
    fn new(socket: Socket, pace: Pace) -> Source {
        Source { socket, pace, receiver: Receiver::new(), sent: 0, reports: Vec::new() }
    }

    /// Sends for both times together. Returns the datagrams per second that the slowest receiver read in the timed
    /// part.
    fn run(
        &mut self,
        to: &[SocketAddr],
        receivers: usize,
        bytes: usize,
        untimed: Duration,
        timed: Duration,
    ) -> anyhow::Result<f64> {
        let mut run = vec![0; bytes * self.pace.run_datagrams as usize];
        let begin = Instant::now() + untimed;
        let end = begin + timed;
        // Datagrams of the previous block that are unread count as lost.
        let mut written_off = self.sent;
        let mut counted_from = None;
        loop {
            let now = Instant::now();
            if now >= begin && counted_from.is_none() {
                counted_from = Some((now, self.read(receivers)));
            }
            if now >= end {
                break;
            }
            if self.sent - self.reached(receivers).max(written_off) < self.pace.behind_max {
                for datagram in run.chunks_mut(bytes) {
                    self.sent += 1;
                    datagram[..NUMBER_BYTES].copy_from_slice(&self.sent.to_be_bytes());
                }
                self.socket.send(&run, bytes, to);
            } else if !self.socket.wait(Some(Duration::from_millis(self.pace.lost_after_ms))) {
                written_off = self.sent;
            }
            self.read_reports()?;
        }
        let (since, from) = counted_from.unwrap_or((begin, 0));
        let read = self.read(receivers).saturating_sub(from);
        Ok(read as f64 / since.elapsed().as_secs_f64())
    }

    /// Reads the reports that have arrived, without waiting.
    fn read_reports(&mut self) -> std::io::Result<()> {
        let reports = &mut self.reports;
        self.receiver.receive(&self.socket, |from, datagram| {
            let (highest, read) =
                (number(&datagram), number(datagram.get(NUMBER_BYTES..).unwrap_or_default()));
            match reports.iter_mut().find(|report| report.from == from) {
                Some(report) => {
                    (report.highest, report.read) = (highest.max(report.highest), read.max(report.read))
                }
                None => reports.push(Report { from, highest, read }),
            }
        })?;
        Ok(())
    }

    /// Returns the lowest of the receivers' highest numbers: every receiver has read or lost the datagrams through it.
    fn reached(&self, receivers: usize) -> u64 {
        self.least(receivers, |report| report.highest)
    }

    /// Returns how many datagrams the slowest receiver has read.
    fn read(&self, receivers: usize) -> u64 {
        self.least(receivers, |report| report.read)
    }

    fn least(&self, receivers: usize, of: impl Fn(&Report) -> u64) -> u64 {
        let all = self.reports.len() >= receivers;
        if all { self.reports.iter().map(of).min().unwrap_or(0) } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_a_slow_path_little_is_under_way() {
        let slow = Pace::at("10mbit".parse().unwrap());
        assert_eq!((slow.behind_max, slow.report_datagrams), (42, 5));
        assert_eq!(Pace::at("10gbit".parse().unwrap()).behind_max, Pace::FREE.behind_max);
    }

    #[test]
    fn small_messages_share_a_datagram_and_large_ones_need_several() {
        assert_eq!(Packing::of(64), Packing { datagram_bytes: 1472, messages_per_datagram: 23.0 });
        assert_eq!(Packing::of(1024), Packing { datagram_bytes: 1024, messages_per_datagram: 1.0 });
        assert_eq!(Packing::of(8000), Packing { datagram_bytes: 1334, messages_per_datagram: 1.0 / 6.0 });
        assert_eq!(Packing::of(1).messages_per_datagram, 1472.0);
    }
}

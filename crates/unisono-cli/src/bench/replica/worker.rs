//! The processes of a measured replicated service: servers with a copy each, a caller, and what they are compared with: a
//! plain server, a process that syncs a file, one that reads files.

use super::disks::files;
use crate::connection;
use crate::location::Location;
use crate::processes::{self, Instructions, MayFail};
use crate::settings::Settings;
use anyhow::Context;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use unisono::locks::LockService;
use unisono::replica::{
    Command, DiskDurability, DiskOptions, Durability, Founding, Kind, NotRestored, Outcome, Replica,
    ReplicaOptions, ReplicaState, StateMachine,
};
use unisono::rpc::{Client, Port, PrivatePort, ServeOptions, Server};
use unisono::{Bytes, Options};

/// Deadline of a call and of a command: 20 s.
const CALL_WITHIN: Duration = Duration::from_secs(20);
/// Interval at which a server looks whether it is in the group: 0.5 ms.
const LOOKS_EVERY: Duration = Duration::from_micros(500);
/// Size of the parts of a large state, and of the replies that its transfer is compared with: 1 MiB.
pub(crate) const PAGE_BYTES: usize = 1 << 20;
/// Size of the parts that change between snapshots: 32 KiB.
pub(super) const PART_BYTES: usize = 32 << 10;
/// Entries of a page that a command adds to the state, and the size of each.
pub(crate) const ENTRIES_PER_PAGE: u32 = 10_000;
const ENTRY_BYTES: usize = 100;
/// Name of the lock that is acquired and released.
const LOCK: &str = "bench";
/// Bytes that a command takes in the log beside its payload, about.
const RECORD_BYTES: usize = 128;
/// First byte of a request: a local read, a linearizable read, a command that fills the state, adds a page to it or replaces
/// its parts.
const LOCAL: u8 = b'l';
const LINEARIZABLE: u8 = b'r';
const FILL: u8 = b'f';
const ADD: u8 = b'a';
const CHANGE: u8 = b'c';

/// The part that a process plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Part {
    /// A server that founds the service.
    Founder,
    /// A server that joins it.
    Joiner,
    /// A server with a disk.
    Server,
    /// A process that founds locks, or joins them.
    LockFounder,
    LockJoiner,
    /// A process that calls it.
    Caller,
    /// A plain server whose replies have the size of a page.
    Shelf,
    /// A process that appends to a file and syncs it.
    Disk,
    /// A process that reads the files of a server.
    Reader,
}

/// Which of the servers with disks a process is, and where its files are.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Seat {
    pub(crate) id: u8,
    pub(crate) servers: u8,
    pub(crate) folder: PathBuf,
    /// True if one disk suffices for a command to be answered.
    pub(crate) needs_one: bool,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Assignment {
    pub(crate) service: String,
    pub(crate) part: Part,
    /// Size of a command beside its first byte.
    pub(crate) bytes: usize,
    /// Bytes that it will receive and keep.
    pub(crate) receives: usize,
    /// Present if the servers have disks.
    pub(crate) seat: Option<Seat>,
    pub(crate) location: Location,
    pub(crate) settings: Settings,
}

/// What a caller asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Asks {
    Command,
    LocalRead,
    LinearizableRead,
}

/// An instruction to a process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Instruction {
    /// Give `untimed` and then `timed` commands or calls, one at a time.
    OneByOne { asks: Asks, untimed: usize, timed: usize },
    /// Keep `in_flight` of them under way for both times together.
    Load { asks: Asks, in_flight: usize, untimed_ms: u64, timed_ms: u64 },
    /// Get this number of pages by calls, this many under way at once, and keep them.
    Keep { pages: u32, in_flight: usize },
    /// Fill the state with this number of pages.
    Fill { pages: u32 },
    /// Add this number of pages to the state, each by a command that contains it.
    Write { pages: u32 },
    /// Replace the state by this number of small parts, all of which are others with another version.
    Change { parts: u32, version: u32 },
    /// Give commands of this size, one at a time, that change nothing.
    Give { commands: u32, bytes: usize },
    /// Say what the process has used so far.
    Usage,
    /// Call one by one until told that one of the servers was killed and calls were answered again; report pauses.
    Watch { asks: Asks, for_ms: u64 },
}

/// An answer of a process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// It is ready. A joiner got the state in this number of nanoseconds after it was in the group; a server with a disk
    /// took this long from its start, a reader for its files.
    Ready {
        took_ns: u64,
    },
    /// Time of each, in nanoseconds.
    Took(Vec<u64>),
    /// Time of each that was answered in the timed part, and the number of all.
    Loaded {
        took: Vec<u64>,
        all: u64,
    },
    Used(Used),
    /// The state is filled.
    Filled,
    /// It has begun to watch.
    Watching,
    /// The longest time that a call took, in nanoseconds.
    Paused(u64),
    /// It failed with this error.
    Trouble(String),
}

/// What a process has used so far.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Used {
    /// Datagrams that it sent; a multicast counts once.
    pub(crate) datagrams: u64,
    /// Context switches of its threads.
    pub(crate) switches: u64,
}

impl MayFail for Answer {
    fn trouble(&self) -> Option<&str> {
        match self {
            Answer::Trouble(trouble) => Some(trouble),
            _ => None,
        }
    }
}

/// The measured state: pages of bytes.
#[derive(Default)]
struct Pages(Vec<Bytes>);

impl StateMachine for Pages {
    fn kind(request: &[u8]) -> Kind {
        match request.first() {
            Some(&LOCAL) => Kind::LocalRead,
            Some(&LINEARIZABLE) => Kind::Read,
            _ => Kind::Command,
        }
    }

    fn apply(&mut self, command: &Command<'_>) -> Outcome {
        match command.payload.first() {
            Some(&FILL) => {
                let count = command.payload[1..].try_into().map_or(0, u32::from_be_bytes);
                // Pages that differ, so that each of them travels.
                self.0 = (0..count).map(page).collect();
            }
            Some(&CHANGE) => {
                let number = |at: usize| {
                    let bytes = command.payload.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
                    bytes.map_or(0, u32::from_be_bytes)
                };
                self.0 = (0..number(1)).map(|index| part(index, number(5))).collect();
            }
            Some(&ADD) => self.0.push(command.payload.slice(1..)),
            _ => {}
        }
        Outcome::Reply(Bytes::new())
    }

    fn read(&self, _query: &Bytes) -> Outcome {
        Outcome::Reply(Bytes::new())
    }

    fn snapshot(&self) -> Vec<Bytes> {
        self.0.clone()
    }

    fn restore(&mut self, parts: &[Bytes]) -> Result<(), NotRestored> {
        self.0 = parts.to_vec();
        Ok(())
    }
}

/// Uses this much memory once. A virtual machine gets memory from its host when it is first used, which takes several
/// times as long as later.
fn touch(bytes: usize) {
    std::hint::black_box(vec![1_u8; bytes]);
}

fn page(number: u32) -> Bytes {
    let mut bytes = vec![0; PAGE_BYTES];
    bytes[..4].copy_from_slice(&number.to_be_bytes());
    bytes.into()
}

/// Returns a small part of the state. No two have the same bytes.
fn part(index: u32, version: u32) -> Bytes {
    let mut bytes = vec![0; PART_BYTES];
    bytes[..4].copy_from_slice(&index.to_be_bytes());
    bytes[4..8].copy_from_slice(&version.to_be_bytes());
    bytes.into()
}

/// Returns a command that adds a page of entries to the state. No two entries are the same.
fn entries(page: u32) -> Bytes {
    let mut command = vec![ADD];
    for number in 0..ENTRIES_PER_PAGE {
        let mut entry = [b'e'; ENTRY_BYTES];
        entry[..4].copy_from_slice(&(page * ENTRIES_PER_PAGE + number).to_be_bytes());
        command.extend(entry);
    }
    command.into()
}

fn append(mut file: &File, bytes: usize) -> anyhow::Result<()> {
    file.write_all(&vec![b'x'; bytes])?;
    Ok(file.sync_data()?)
}

/// Reads all files of a folder. Returns the time that took.
fn read_files(folder: &Path) -> anyhow::Result<Duration> {
    let begun = Instant::now();
    for file in files(folder)? {
        std::hint::black_box(fs::read(file)?);
    }
    Ok(begun.elapsed())
}

impl Assignment {
    fn seat(&self) -> anyhow::Result<&Seat> {
        self.seat.as_ref().context("this process has no folder")
    }
}

/// Runs a process of the service.
pub(crate) fn work(assignment: Assignment, mut instructions: Instructions) -> anyhow::Result<()> {
    assignment.location.enter()?;
    let (subject, took) = Subject::new(&assignment)?;
    processes::answer(&Answer::Ready { took_ns: nanoseconds(took) })?;
    while let Some(instruction) = instructions.next()? {
        let answer = subject.follow(instruction);
        processes::answer(&answer.unwrap_or_else(|error| Answer::Trouble(format!("{error:#}"))))?;
    }
    Ok(())
}

/// What a process measures with.
enum Subject {
    Server { replica: Replica<Pages>, bytes: usize },
    Locks(LockService),
    Caller { client: Client, port: Port, bytes: usize },
    Shelf,
    Disk { file: File, bytes: usize },
    Reader,
}

impl Subject {
    /// Returns it when it is ready, and the time that [`Answer::Ready`] reports.
    fn new(assignment: &Assignment) -> anyhow::Result<(Subject, Duration)> {
        let options =
            connection::options(&assignment.settings, None).map_err(|problem| problem.into_error())?;
        let (service, bytes) = (&assignment.service, assignment.bytes);
        let port = PrivatePort::from_name(service);
        let open = |founding| -> anyhow::Result<(Subject, Duration)> {
            let how = ReplicaOptions {
                durability: Durability::HeldByAll,
                open_within: Some(3 * CALL_WITHIN),
                ..ReplicaOptions::default()
            };
            let replica = Replica::begin(service, founding, Pages::default(), how, &options)?;
            while replica.status().state == ReplicaState::Entering {
                std::thread::sleep(LOOKS_EVERY);
            }
            let entered = Instant::now();
            anyhow::ensure!(replica.ready().wait(3 * CALL_WITHIN)?, "the state did not arrive");
            let took = entered.elapsed();
            replica.serve(&port)?;
            Ok((Subject::Server { replica, bytes }, took))
        };
        let at_once = |subject| Ok((subject, Duration::ZERO));
        if matches!(assignment.part, Part::Joiner | Part::Caller) {
            touch(assignment.receives);
        }
        let locks = |founding| -> anyhow::Result<(Subject, Duration)> {
            let how = ReplicaOptions { open_within: Some(3 * CALL_WITHIN), ..ReplicaOptions::default() };
            at_once(Subject::Locks(LockService::open(service, founding, how, &options, |_| ())?))
        };
        match assignment.part {
            Part::LockFounder => locks(Founding::Create),
            Part::LockJoiner => locks(Founding::Join),
            Part::Founder => open(Founding::Create),
            Part::Joiner => open(Founding::Join),
            Part::Server => Subject::with_disk(assignment, &port, &options),
            Part::Caller => {
                at_once(Subject::Caller { client: Client::new(&options)?, port: port.public(), bytes })
            }
            Part::Shelf => {
                let server = Server::new(&port, ServeOptions::default(), &options)?;
                let shelved = page(0);
                crate::threads::start("requests", move || server.serve(1, |_| shelved.clone().into()))?;
                at_once(Subject::Shelf)
            }
            Part::Disk => {
                let folder = &assignment.seat()?.folder;
                fs::create_dir_all(folder)?;
                let file = File::options().create(true).append(true).open(folder.join("syncs"))?;
                at_once(Subject::Disk { file, bytes: RECORD_BYTES + bytes })
            }
            Part::Reader => Ok((Subject::Reader, read_files(&assignment.seat()?.folder)?)),
        }
    }

    fn with_disk(
        assignment: &Assignment,
        port: &PrivatePort,
        options: &Options,
    ) -> anyhow::Result<(Subject, Duration)> {
        let Seat { id, servers, folder, needs_one } = assignment.seat()?;
        let durability = if *needs_one { DiskDurability::One } else { DiskDurability::Majority };
        let disk =
            DiskOptions { id: *id, servers: *servers, durability, ..DiskOptions::of_three(*id, folder) };
        let how = ReplicaOptions { open_within: Some(3 * CALL_WITHIN), ..ReplicaOptions::default() };
        let begun = Instant::now();
        let replica = Replica::open_on_disk(&assignment.service, disk, Pages::default(), how, options)?;
        let took = begun.elapsed();
        replica.serve(port)?;
        Ok((Subject::Server { replica, bytes: assignment.bytes }, took))
    }

    fn follow(&self, instruction: Instruction) -> anyhow::Result<Answer> {
        Ok(match instruction {
            Instruction::OneByOne { asks, untimed, timed } => {
                self.one_by_one(asks, untimed)?;
                Answer::Took(self.one_by_one(asks, timed)?)
            }
            Instruction::Load { asks, in_flight, untimed_ms, timed_ms } => {
                let [untimed, timed] = [untimed_ms, timed_ms].map(Duration::from_millis);
                let (took, all) = self.load(asks, in_flight, untimed, timed)?;
                Answer::Loaded { took, all }
            }
            Instruction::Keep { pages, in_flight } => Answer::Took(vec![self.keep(pages, in_flight)?]),
            Instruction::Fill { pages } => {
                let mut command = vec![FILL];
                command.extend(pages.to_be_bytes());
                self.begin_bytes(command.into())?.wait()?;
                Answer::Filled
            }
            Instruction::Write { pages } => {
                for number in 0..pages {
                    self.begin_bytes(entries(number))?.wait()?;
                }
                Answer::Filled
            }
            Instruction::Change { parts, version } => {
                let command = [&[CHANGE][..], &parts.to_be_bytes(), &version.to_be_bytes()].concat();
                self.begin_bytes(command.into())?.wait()?;
                Answer::Filled
            }
            Instruction::Give { commands, bytes } => {
                let command = Bytes::from(vec![b'x'; bytes]);
                for _ in 0..commands {
                    self.begin_bytes(command.clone())?.wait()?;
                }
                Answer::Filled
            }
            Instruction::Usage => {
                let datagrams = match self {
                    Subject::Server { replica, .. } => replica.datagrams_sent(),
                    Subject::Caller { client, .. } => client.counters().datagrams_sent,
                    _ => 0,
                };
                Answer::Used(Used { datagrams, switches: processes::context_switches() })
            }
            Instruction::Watch { asks, for_ms } => {
                processes::answer(&Answer::Watching)?;
                let until = Instant::now() + Duration::from_millis(for_ms);
                let mut longest = 0;
                while Instant::now() < until {
                    longest = longest.max(self.one_by_one(asks, 1)?[0]);
                }
                Answer::Paused(longest)
            }
        })
    }

    /// Gets pages by calls. Returns the time until it has them all, after some that are not kept.
    fn keep(&self, pages: u32, in_flight: usize) -> anyhow::Result<u64> {
        let Subject::Caller { client, port, .. } = self else { anyhow::bail!("only a caller gets pages") };
        let get = |count: u32| -> anyhow::Result<Vec<Bytes>> {
            let (mut kept, mut pending) = (Vec::new(), VecDeque::with_capacity(in_flight));
            let mut begun = 0;
            while kept.len() < count as usize {
                while pending.len() < in_flight && begun < count {
                    pending.push_back(client.start(*port, Bytes::from_static(&[LOCAL]), CALL_WITHIN)?);
                    begun += 1;
                }
                if let Some(call) = pending.pop_front() {
                    kept.push(call.wait()?);
                }
            }
            Ok(kept)
        };
        drop(get(in_flight as u32)?);
        let begun = Instant::now();
        let kept = get(pages)?;
        let took = begun.elapsed();
        drop(kept);
        Ok(nanoseconds(took))
    }

    fn one_by_one(&self, asks: Asks, count: usize) -> anyhow::Result<Vec<u64>> {
        let mut took = Vec::with_capacity(count);
        for _ in 0..count {
            let begun = Instant::now();
            match self {
                Subject::Disk { file, bytes } => append(file, *bytes)?,
                Subject::Locks(locks) => {
                    let held = locks.acquire(LOCK)?;
                    took.push(nanoseconds(begun.elapsed()));
                    held.release()?;
                    continue;
                }
                _ => self.begin(asks)?.wait()?,
            }
            took.push(nanoseconds(begun.elapsed()));
        }
        Ok(took)
    }

    /// Keeps `in_flight` under way, and waits for them in the order in which they were begun.
    fn load(
        &self,
        asks: Asks,
        in_flight: usize,
        untimed: Duration,
        timed: Duration,
    ) -> anyhow::Result<(Vec<u64>, u64)> {
        let (mut took, mut pending) = (Vec::new(), VecDeque::with_capacity(in_flight));
        let mut all = 0;
        let counts = Instant::now() + untimed;
        let end = counts + timed;
        loop {
            while pending.len() < in_flight {
                pending.push_back((Instant::now(), self.begin(asks)?));
                all += 1;
            }
            if let Some((begun, one)) = pending.pop_front() {
                one.wait()?;
                let now = Instant::now();
                if now >= end {
                    break;
                }
                if now >= counts {
                    took.push(nanoseconds(now - begun));
                }
            }
        }
        pending.into_iter().try_for_each(|(_, one)| one.wait())?;
        Ok((took, all))
    }

    fn begin(&self, asks: Asks) -> anyhow::Result<Begun> {
        let bytes = match self {
            Subject::Server { bytes, .. } | Subject::Caller { bytes, .. } => *bytes,
            Subject::Locks(_) | Subject::Shelf | Subject::Disk { .. } | Subject::Reader => 0,
        };
        self.begin_bytes(match asks {
            Asks::Command if bytes == 0 => Bytes::new(),
            Asks::Command => vec![b'x'; bytes].into(),
            Asks::LocalRead => Bytes::from_static(&[LOCAL]),
            Asks::LinearizableRead => Bytes::from_static(&[LINEARIZABLE]),
        })
    }

    fn begin_bytes(&self, request: Bytes) -> anyhow::Result<Begun> {
        Ok(match self {
            Subject::Server { replica, .. } => Begun::Command(replica.start(request)),
            Subject::Caller { client, port, .. } => Begun::Call(client.start(*port, request, CALL_WITHIN)?),
            _ => anyhow::bail!("this process gives no commands"),
        })
    }
}

/// A command or call under way.
enum Begun {
    Command(unisono::replica::PendingCommand),
    Call(unisono::rpc::Call),
}

impl Begun {
    fn wait(self) -> anyhow::Result<()> {
        match self {
            Begun::Command(command) => drop(command.wait()?),
            Begun::Call(call) => drop(call.wait()?),
        }
        Ok(())
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

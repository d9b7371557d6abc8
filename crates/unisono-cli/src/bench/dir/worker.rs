//! The processes of a measured directory service: servers, clients, and those of the services that it is compared with.

use super::pair::Twin;
use super::steps::Work;
use super::target::{Access, Begun, Slot, Target};
use crate::bench::rpc::worker::Loaded;
use crate::connection;
use crate::location::Location;
use crate::processes::{self, Instructions, MayFail};
use crate::settings::Settings;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use unisono::{Bytes, Options, rpc};
use unisono_dir::{DiskDurability, DiskOptions, Limits, Server, ServerOptions};

/// Time for a server to end.
const END_WITHIN: Duration = Duration::from_secs(3);
/// Size of the commands that fill a log: 1 MiB.
const FILL_BYTES: usize = 1 << 20;

/// The part that a process plays.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Part {
    /// A server of our directory.
    Server(Seat),
    /// A server of the pair.
    Twin(Twin),
    /// A client. The first one makes the measured directory.
    Client { target: Target, number: usize },
}

/// Which server a process is, and where its files are.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Seat {
    pub(crate) id: u8,
    pub(crate) servers: u8,
    pub(crate) data: PathBuf,
    pub(crate) log_dir: Option<PathBuf>,
    /// True if one disk suffices for a change to be answered.
    pub(crate) needs_one: bool,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Assignment {
    pub(crate) service: String,
    pub(crate) part: Part,
    pub(crate) location: Location,
    pub(crate) settings: Settings,
}

/// What a client measures.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Task {
    pub(crate) work: Work,
    /// True if lookups may be answered by a state that is behind.
    pub(crate) is_local: bool,
}

/// An instruction to a process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Instruction {
    /// Do `untimed` and then `timed` operations, one at a time.
    OneByOne { task: Task, untimed: usize, timed: usize },
    /// Keep `in_flight` operations under way for both times together, and count those that end in the timed one.
    Load { task: Task, in_flight: usize, untimed_ms: u64, timed_ms: u64 },
    /// Let the log grow by this number of bytes, by commands that change nothing.
    FillLog { bytes: usize },
    /// Append the rows with these numbers.
    AppendRows { from: u32, count: u32, in_flight: usize },
    /// Report the number of requests that this server was given.
    CountServed,
    /// End this server as at a signal.
    End,
}

/// An answer of a process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// It is ready, this number of nanoseconds after it began.
    Ready { took_ns: u64 },
    /// Time of each operation, in nanoseconds.
    Took(Vec<u64>),
    /// The result of a load.
    Loaded(Loaded),
    /// Number of requests.
    Served(u64),
    /// It is done.
    Done,
    /// It failed with this error.
    Trouble(String),
}

impl MayFail for Answer {
    fn trouble(&self) -> Option<&str> {
        match self {
            Answer::Trouble(trouble) => Some(trouble),
            _ => None,
        }
    }
}

impl Seat {
    /// Returns the options of this server's folder.
    pub(super) fn disk(&self) -> DiskOptions {
        DiskOptions {
            id: self.id,
            servers: self.servers,
            data: self.data.clone(),
            log_dir: self.log_dir.clone(),
            durability: if self.needs_one { DiskDurability::One } else { DiskDurability::Majority },
            replace: false,
            begin_anew: false,
            existing: false,
        }
    }
}

/// Runs a process.
pub(crate) fn work(assignment: Assignment, mut instructions: Instructions) -> anyhow::Result<()> {
    assignment.location.enter()?;
    let begun = Instant::now();
    let subject = Subject::new(&assignment)?;
    processes::answer(&Answer::Ready { took_ns: nanoseconds(begun.elapsed()) })?;
    while let Some(instruction) = instructions.next()? {
        let answer = subject.follow(instruction);
        processes::answer(&answer.unwrap_or_else(|error| Answer::Trouble(format!("{error:#}"))))?;
    }
    Ok(())
}

/// What a process is.
enum Subject {
    Server { server: Server, calls: rpc::Client },
    Twin { calls: rpc::Client },
    Client { access: Access, number: usize },
}

impl Subject {
    /// Returns it when it is ready.
    fn new(assignment: &Assignment) -> anyhow::Result<Subject> {
        let options =
            connection::options(&assignment.settings, None).map_err(|problem| problem.into_error())?;
        let service = &assignment.service;
        Ok(match &assignment.part {
            Part::Server(seat) => Subject::server(service, seat, options)?,
            Part::Twin(twin) => {
                twin.serve(service, &options)?;
                Subject::Twin { calls: rpc::Client::new(&options)? }
            }
            Part::Client { target, number } => {
                Subject::Client { access: target.open(service, *number == 0, &options)?, number: *number }
            }
        })
    }

    fn server(service: &str, seat: &Seat, options: Options) -> anyhow::Result<Subject> {
        let server = Server::begin(ServerOptions {
            service: service.to_owned(),
            disk: seat.disk(),
            servers: options.clone(),
            client_key: None,
            limits: Limits::default(),
        })?;
        server.wait_until_serving()?;
        Ok(Subject::Server { server, calls: rpc::Client::new(&options)? })
    }

    fn follow(&self, instruction: Instruction) -> anyhow::Result<Answer> {
        match (self, instruction) {
            (Subject::Server { calls, .. } | Subject::Twin { calls }, Instruction::CountServed) => {
                Ok(Answer::Served(calls.counters().requests))
            }
            (Subject::Server { server, .. }, Instruction::End) => {
                server.end(END_WITHIN);
                Ok(Answer::Done)
            }
            (Subject::Client { access, number }, instruction) => client(access, *number, instruction),
            (_, instruction) => anyhow::bail!("this process cannot follow {instruction:?}"),
        }
    }
}

fn client(access: &Access, number: usize, instruction: Instruction) -> anyhow::Result<Answer> {
    match instruction {
        Instruction::OneByOne { task, untimed, timed } => {
            let mut slot = access.slot(number, 0)?;
            one_by_one(access, task, &mut slot, untimed)?;
            Ok(Answer::Took(one_by_one(access, task, &mut slot, timed)?))
        }
        Instruction::Load { task, in_flight, untimed_ms, timed_ms } => {
            let [untimed, timed] = [untimed_ms, timed_ms].map(Duration::from_millis);
            Load::begin(access, task, number, in_flight)?.run(untimed, timed).map(Answer::Loaded)
        }
        Instruction::FillLog { bytes } => {
            let content = Bytes::from(vec![b'f'; FILL_BYTES]);
            for _ in 0..bytes.div_ceil(FILL_BYTES) {
                access.log_only(content.clone())?;
            }
            Ok(Answer::Done)
        }
        Instruction::AppendRows { from, count, in_flight } => {
            let mut under_way = VecDeque::with_capacity(in_flight);
            for row in from..from + count {
                if under_way.len() == in_flight
                    && let Some(begun) = under_way.pop_front()
                {
                    Begun::wait(begun)?;
                }
                under_way.push_back(access.begin_row(&format!("many-{row}"))?);
            }
            under_way.into_iter().try_for_each(|begun| begun.wait().map(drop))?;
            Ok(Answer::Done)
        }
        instruction => anyhow::bail!("a client cannot follow {instruction:?}"),
    }
}

/// Does operations one at a time. Returns the time of each, in nanoseconds.
fn one_by_one(access: &Access, task: Task, slot: &mut Slot, count: usize) -> anyhow::Result<Vec<u64>> {
    let steps = task.work.steps(access.kind());
    let mut took = Vec::with_capacity(count);
    while took.len() < count {
        let mut begun = Instant::now();
        for step in steps {
            let answer = access.begin(*step, task.is_local, slot)?.wait()?;
            slot.take(*step, answer)?;
            if task.work.counts_requests() {
                took.push(nanoseconds(begun.elapsed()));
                begun = Instant::now();
            }
        }
        if !task.work.counts_requests() {
            took.push(nanoseconds(begun.elapsed()));
        }
    }
    Ok(took)
}

/// Operations under way, of which the oldest request is waited for.
struct Load<'a> {
    access: &'a Access,
    task: Task,
    slots: Vec<Slot>,
    under_way: VecDeque<OneUnderWay>,
}

/// An operation under way: its slot and present step, when the operation began, and the request.
struct OneUnderWay {
    slot: usize,
    step: usize,
    since: Instant,
    begun: Begun,
}

impl Load<'_> {
    fn begin(access: &Access, task: Task, client: usize, in_flight: usize) -> anyhow::Result<Load<'_>> {
        let slots =
            (0..in_flight).map(|number| access.slot(client, number)).collect::<anyhow::Result<_>>()?;
        let mut load = Load { access, task, slots, under_way: VecDeque::with_capacity(in_flight) };
        for slot in 0..in_flight {
            load.push(slot, 0, Instant::now())?;
        }
        Ok(load)
    }

    fn push(&mut self, slot: usize, step: usize, since: Instant) -> anyhow::Result<()> {
        let what = self.task.work.steps(self.access.kind())[step];
        let begun = self.access.begin(what, self.task.is_local, &mut self.slots[slot])?;
        self.under_way.push_back(OneUnderWay { slot, step, since, begun });
        Ok(())
    }

    fn run(mut self, untimed: Duration, timed: Duration) -> anyhow::Result<Loaded> {
        let steps = self.task.work.steps(self.access.kind());
        let mut took = Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 3)?;
        let counts = Instant::now() + untimed;
        let end = counts + timed;
        let mut is_over = false;
        // At the end each operation goes on to its own end, so that it leaves nothing behind.
        while let Some(OneUnderWay { slot, step, since, begun }) = self.under_way.pop_front() {
            self.slots[slot].take(steps[step], begun.wait()?)?;
            let now = Instant::now();
            let is_last = step + 1 == steps.len();
            let counts_here = is_last || self.task.work.counts_requests();
            is_over |= now >= end;
            if counts_here && now >= counts && now < end {
                took.saturating_record(nanoseconds(now - since));
            }
            match is_last {
                true if is_over => {}
                true => self.push(slot, 0, now)?,
                false => self.push(slot, step + 1, if counts_here { now } else { since })?,
            }
        }
        let recorded = took.iter_recorded().map(|at| (at.value_iterated_to(), at.count_at_value()));
        Ok(Loaded { answered: took.len(), took: recorded.collect() })
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

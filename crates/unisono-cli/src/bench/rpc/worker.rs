//! The processes whose calls are measured: servers that reply with the request, and clients. And those of a group that gets
//! messages from outside: two members, and a process that sends to the second.

use crate::connection;
use crate::location::Location;
use crate::processes::{self, Instructions};
use crate::settings::Settings;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use unisono::rpc::{Client, Port, PrivatePort, ServeOptions, Server};
use unisono::{Bytes, Group, GroupConfig, OutsideOptions, OutsideSender, Quality};

/// Deadline of a call: 20 s.
const DEADLINE: Duration = Duration::from_secs(20);

/// The part that a process plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Part {
    /// A server.
    Server,
    /// A client of the servers.
    Client,
    /// A member that founds the group, and is its sequencer.
    Founder,
    /// A member that joins it, and sends on what comes from outside.
    Relay,
    /// A process that sends to the group from outside.
    Outsider,
}

/// The part of a process, and where it plays it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Assignment {
    /// Name of the service or group.
    pub(crate) service: String,
    pub(crate) part: Part,
    /// Size of a request and of its reply, or of a message.
    pub(crate) bytes: usize,
    pub(crate) location: Location,
    pub(crate) settings: Settings,
}

/// An instruction to a process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Instruction {
    /// Make `untimed` and then `timed` calls, or send as many messages, one at a time.
    Call { untimed: usize, timed: usize },
    /// Keep `in_flight` calls under way for both times together, and count the calls answered in the timed one.
    Load { in_flight: usize, untimed_ms: u64, timed_ms: u64 },
    /// Report what was used and done.
    Usage,
}

/// An answer of a process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// It is ready to serve or to call.
    Ready,
    /// Time of each call, in nanoseconds.
    Took(Vec<u64>),
    /// The result of a load.
    Loaded(Loaded),
    /// What it has used so far.
    Usage(Usage),
    /// It failed with this error.
    Trouble(String),
}

/// The result of calls under load.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Loaded {
    /// Calls answered in the timed part.
    pub(crate) answered: u64,
    /// Nanoseconds that calls took, each with its number of occurrences.
    pub(crate) took: Vec<(u64, u64)>,
}

/// What a process has used and done so far.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Usage {
    /// Processor time in nanoseconds.
    pub(crate) processor_ns: u64,
    /// Datagrams sent.
    pub(crate) datagrams: u64,
    /// Requests that its application received.
    pub(crate) served: u64,
}

/// Runs a measured process.
pub(crate) fn work(assignment: Assignment, mut instructions: Instructions) -> anyhow::Result<()> {
    assignment.location.enter()?;
    let subject = Subject::new(&assignment)?;
    processes::answer(&Answer::Ready)?;
    while let Some(instruction) = instructions.next()? {
        let answer = subject.follow(instruction);
        processes::answer(&answer.unwrap_or_else(|error| Answer::Trouble(format!("{error:#}"))))?;
    }
    Ok(())
}

/// What a process measures with.
enum Subject {
    Caller(Caller),
    Member { _group: Group },
    Outsider { sender: OutsideSender, message: Bytes },
}

impl Subject {
    fn new(assignment: &Assignment) -> anyhow::Result<Subject> {
        let options =
            connection::options(&assignment.settings, None).map_err(|problem| problem.into_error())?;
        let name = &assignment.service;
        let port = PrivatePort::from_name(name);
        let content = Bytes::from(vec![b'x'; assignment.bytes]);
        let caller =
            |client| Subject::Caller(Caller { client, port: port.public(), request: content.clone() });
        Ok(match assignment.part {
            Part::Server => {
                let server = Server::new(&port, ServeOptions::default(), &options)?;
                let client = server.client();
                let serve = move || server.serve(1, |request| request.payload().clone().into());
                crate::threads::start("requests", serve)?;
                caller(client)
            }
            Part::Client => caller(Client::new(&options)?),
            Part::Founder => {
                let group = Group::create(name, GroupConfig::default(), &options)?;
                Subject::member(group)?
            }
            Part::Relay => {
                let group = connection::patiently(|| Group::join(name, "", &options))?;
                group.open_to_outside()?;
                Subject::member(group)?
            }
            Part::Outsider => Subject::Outsider {
                sender: OutsideSender::new(name, OutsideOptions::default(), &options)?,
                message: content,
            },
        })
    }

    fn member(group: Group) -> anyhow::Result<Subject> {
        let receiving = group.clone();
        crate::threads::start("events", move || {
            let mut events = Vec::new();
            while receiving.receive_many(&mut events).is_ok() {
                events.clear();
            }
        })?;
        Ok(Subject::Member { _group: group })
    }

    fn follow(&self, instruction: Instruction) -> anyhow::Result<Answer> {
        Ok(match (self, instruction) {
            (_, Instruction::Call { untimed, timed }) => {
                self.one_by_one(untimed)?;
                Answer::Took(self.one_by_one(timed)?)
            }
            (Subject::Caller(caller), Instruction::Load { in_flight, untimed_ms, timed_ms }) => {
                let [untimed, timed] = [untimed_ms, timed_ms].map(Duration::from_millis);
                Answer::Loaded(caller.load(in_flight, untimed, timed)?)
            }
            (Subject::Caller(caller), Instruction::Usage) => Answer::Usage(caller.usage()),
            (_, instruction) => anyhow::bail!("a process of a group cannot follow {instruction:?}"),
        })
    }

    /// Makes `count` calls or sends `count` messages, one at a time. Returns the time of each, in nanoseconds.
    fn one_by_one(&self, count: usize) -> anyhow::Result<Vec<u64>> {
        let mut took = Vec::with_capacity(count);
        for _ in 0..count {
            let begin = Instant::now();
            match self {
                Subject::Caller(caller) => caller.call()?,
                Subject::Outsider { sender, message } => {
                    sender.send(message.clone(), Quality::ORDERED)?;
                    let tally = sender.flush()?;
                    let lost = tally.unknown + tally.not_sent;
                    anyhow::ensure!(lost == 0, "{lost} messages from outside were lost");
                }
                Subject::Member { .. } => anyhow::bail!("a member calls nothing"),
            }
            took.push(nanoseconds(begin.elapsed()));
        }
        Ok(took)
    }
}

struct Caller {
    client: Client,
    port: Port,
    request: Bytes,
}

impl Caller {
    fn call(&self) -> anyhow::Result<()> {
        self.client.call_within(self.port, self.request.clone(), DEADLINE)?;
        Ok(())
    }

    /// Keeps `in_flight` calls under way, and waits for them in the order in which they were begun.
    fn load(&self, in_flight: usize, untimed: Duration, timed: Duration) -> anyhow::Result<Loaded> {
        let mut took = Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 3)?;
        let mut calls = VecDeque::with_capacity(in_flight);
        let counts = Instant::now() + untimed;
        let end = counts + timed;
        loop {
            while calls.len() < in_flight {
                let call = self.client.start(self.port, self.request.clone(), DEADLINE)?;
                calls.push_back((Instant::now(), call));
            }
            if let Some((begun, call)) = calls.pop_front() {
                call.wait()?;
                let now = Instant::now();
                if now >= end {
                    break;
                }
                if now >= counts {
                    took.saturating_record(nanoseconds(now - begun));
                }
            }
        }
        for (_, call) in calls {
            call.wait()?;
        }
        let recorded = took.iter_recorded().map(|at| (at.value_iterated_to(), at.count_at_value()));
        Ok(Loaded { answered: took.len(), took: recorded.collect() })
    }

    fn usage(&self) -> Usage {
        let counters = self.client.counters();
        Usage {
            processor_ns: processes::processor_ns(),
            datagrams: counters.datagrams_sent,
            served: counters.requests,
        }
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

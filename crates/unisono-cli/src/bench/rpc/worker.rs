//! The processes whose calls are measured: servers that reply with the request, and clients.

use crate::connection;
use crate::location::Location;
use crate::processes::{self, Instructions};
use crate::settings::Settings;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use unisono::Bytes;
use unisono::rpc::{Client, Port, PrivatePort, ServeOptions, Server};

/// Deadline of a call: 20 s.
const DEADLINE: Duration = Duration::from_secs(20);

/// The server or client that a process is.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Assignment {
    /// Name of the service.
    pub(crate) service: String,
    /// True for a server, false for a client.
    pub(crate) serves: bool,
    /// Size of a request and of its reply.
    pub(crate) bytes: usize,
    pub(crate) location: Location,
    pub(crate) settings: Settings,
}

/// An instruction to a process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Instruction {
    /// Make `untimed` and then `timed` calls, one at a time.
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
    let options = connection::options(&assignment.settings, None).map_err(|problem| problem.into_error())?;
    let port = PrivatePort::from_name(&assignment.service);
    let server = match assignment.serves {
        true => Some(Server::new(&port, ServeOptions::default(), &options)?),
        false => None,
    };
    let client = match &server {
        Some(server) => server.client(),
        None => Client::new(&options)?,
    };
    if let Some(server) = server {
        let serve = move || server.serve(1, |request| request.payload().clone().into());
        crate::threads::start("requests", serve)?;
    }
    let caller = Caller { client, port: port.public(), request: vec![b'x'; assignment.bytes].into() };
    processes::answer(&Answer::Ready)?;
    while let Some(instruction) = instructions.next()? {
        let answer = match instruction {
            Instruction::Call { untimed, timed } => {
                caller.call(untimed).and_then(|_| caller.call(timed)).map(Answer::Took)
            }
            Instruction::Load { in_flight, untimed_ms, timed_ms } => {
                let [untimed, timed] = [untimed_ms, timed_ms].map(Duration::from_millis);
                caller.load(in_flight, untimed, timed).map(Answer::Loaded)
            }
            Instruction::Usage => Ok(Answer::Usage(caller.usage())),
        };
        processes::answer(&answer.unwrap_or_else(|error| Answer::Trouble(format!("{error:#}"))))?;
    }
    Ok(())
}

struct Caller {
    client: Client,
    port: Port,
    request: Bytes,
}

impl Caller {
    /// Makes `count` calls, one at a time. Returns the time of each, in nanoseconds.
    fn call(&self, count: usize) -> anyhow::Result<Vec<u64>> {
        let mut took = Vec::with_capacity(count);
        for _ in 0..count {
            let begin = Instant::now();
            self.client.call_within(self.port, self.request.clone(), DEADLINE)?;
            took.push(nanoseconds(begin.elapsed()));
        }
        Ok(took)
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

//! The processes whose calls are measured: servers that answer with what they were asked, and clients.

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

/// How long a call may take.
const DEADLINE: Duration = Duration::from_secs(20);

/// Which process to be.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Assignment {
    /// The service's name.
    pub(crate) service: String,
    /// Serves; the others call.
    pub(crate) serves: bool,
    /// Size of a request and of its reply.
    pub(crate) bytes: usize,
    pub(crate) location: Location,
    pub(crate) settings: Settings,
}

/// An order to a process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Instruction {
    /// Make so many calls, one at a time, the first few untimed.
    Call { untimed: usize, timed: usize },
    /// Keep so many calls under way for so long, and count what is answered after a while.
    Load { in_flight: usize, untimed_ms: u64, timed_ms: u64 },
    /// Say how much was used and done.
    Usage,
}

/// What a process reports.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// It serves, or can call.
    Ready,
    /// How long each call took, in nanoseconds.
    Took(Vec<u64>),
    /// What came of a load.
    Loaded(Loaded),
    /// What it used so far.
    Usage(Usage),
    /// Something is wrong with it.
    Trouble(String),
}

/// Calls under load.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Loaded {
    /// Calls answered in the time that counts.
    pub(crate) answered: u64,
    /// How long they took in nanoseconds, and how many did.
    pub(crate) took: Vec<(u64, u64)>,
}

/// What a process used and did so far.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Usage {
    /// Processor time in nanoseconds.
    pub(crate) processor_ns: u64,
    /// Datagrams sent.
    pub(crate) datagrams: u64,
    /// Requests that its application was given.
    pub(crate) served: u64,
}

/// The life of a measured process.
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
    /// So many calls, one at a time; how long each took.
    fn call(&self, count: usize) -> anyhow::Result<Vec<u64>> {
        let mut took = Vec::with_capacity(count);
        for _ in 0..count {
            let begin = Instant::now();
            self.client.call_within(self.port, self.request.clone(), DEADLINE)?;
            took.push(nanoseconds(begin.elapsed()));
        }
        Ok(took)
    }

    /// Keeps so many under way, and asks for them in the order in which they were begun.
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

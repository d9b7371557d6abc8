//! `unisono bench`: measures a group, and compares it with bare UDP on the same machine.
//!
//! The group and the floor (bare UDP without a protocol) run in the same invocation, in alternating short blocks, with
//! the same placement on processors. A ratio is taken once per round, and its median is reported.

pub(crate) mod dir;
mod failover;
pub(crate) mod fanout;
pub(crate) mod floor;
mod ground;
pub(crate) mod latency;
mod locks;
mod parallel;
mod placement;
mod protocol;
pub(crate) mod replica;
pub(crate) mod report;
mod reset;
pub(crate) mod rpc;
mod side;
mod statistics;
pub(crate) mod throughput;

pub(crate) use protocol::Protocol;

use crate::arguments::Common;
use crate::output::{Output, Tone};
use crate::problem::Problem;
use crate::settings::Settings;
use clap::{Args, Subcommand};
use serde_json::Value;
use unisono::Quality;

/// Measure a group, and compare it with bare UDP on this machine
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  unisono bench latency --members 3 --bytes 0")]
pub(crate) struct Bench {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Latency(latency::Latency),
    Throughput(throughput::Throughput),
    Parallel(parallel::Parallel),
    Failover(failover::Failover),
    Rpc(rpc::Rpc),
    Replica(replica::Replica),
    Locks(locks::Locks),
    Dir(dir::Dir),
}

/// The result of a measurement.
struct Summary {
    /// The lines for people.
    lines: Vec<String>,
    /// The object for scripts and plots.
    object: Value,
    /// Whether all members delivered alike, and what that means; none if that was not checked.
    alike: Option<(bool, &'static Alike)>,
}

/// What all members of a group have in common, as a field and in words.
struct Alike {
    field: &'static str,
    good: &'static str,
    bad: &'static str,
}

const SAME_ORDER: Alike = Alike {
    field: "order_identical",
    good: "  every member delivered the same in the same order",
    bad: "the members delivered different orders",
};

/// Of messages that may be delivered before their seqnos.
const SAME_MESSAGES: Alike = Alike {
    field: "same_messages",
    good: "  every member delivered the same messages",
    bad: "the members delivered different messages",
};

impl Summary {
    fn new(lines: Vec<String>, object: Value) -> Summary {
        Summary { lines, object, alike: None }
    }

    /// Adds whether all members delivered alike: in the same order, unless the messages may come before their seqnos.
    fn of_deliveries(mut self, quality: Quality, is_alike: bool) -> Summary {
        let alike = if quality.may_be_early() { &SAME_MESSAGES } else { &SAME_ORDER };
        self.object[alike.field] = is_alike.into();
        self.alike = Some((is_alike, alike));
        self
    }

    /// Adds the number of resets after which the measurement was repeated.
    fn after_resets(mut self, resets: u32) -> Summary {
        self.object["resets"] = resets.into();
        self
    }

    /// Prints the result. Fails if the members delivered differently.
    fn tell(&self, output: &Output) -> Result<(), Problem> {
        for line in &self.lines {
            output.say(line)?;
        }
        if let Some((true, alike)) = self.alike {
            output.say(output.tone(Tone::Good, alike.good))?;
        }
        output.object(&self.object)?;
        match self.alike {
            Some((false, alike)) => Err(Problem::failed(alike.bad)),
            _ => Ok(()),
        }
    }
}

impl Bench {
    /// Returns the common flags.
    pub(crate) fn common(&self) -> &Common {
        match &self.what {
            What::Latency(command) => &command.common,
            What::Throughput(command) => &command.common,
            What::Parallel(command) => &command.common,
            What::Failover(command) => &command.common,
            What::Rpc(command) => &command.common,
            What::Replica(command) => &command.common,
            What::Locks(command) => &command.common,
            What::Dir(command) => &command.common,
        }
    }
}

pub(crate) fn run(command: Bench, settings: &Settings, output: &Output) -> Result<(), Problem> {
    match command.what {
        What::Latency(command) => latency::run(command, settings, output),
        What::Throughput(command) => throughput::run(command, settings, output),
        What::Parallel(command) => parallel::run(command, settings, output),
        What::Failover(command) => failover::run(command, settings, output),
        What::Rpc(command) => rpc::run(command, settings, output),
        What::Replica(command) => replica::run(&command, settings, output),
        What::Locks(command) => locks::run(&command, settings, output),
        What::Dir(command) => dir::run(&command, settings, output),
    }
}

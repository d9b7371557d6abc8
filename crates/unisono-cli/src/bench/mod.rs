//! `unisono bench`: what a group costs, beside what the machine allows.
//!
//! Our side and the bare floor run in the same invocation, in turns of short blocks, with the same placement on
//! processors; ratios are taken once per round and the median is reported.

mod failover;
pub(crate) mod fanout;
pub(crate) mod floor;
mod ground;
pub(crate) mod latency;
mod placement;
mod statistics;
pub(crate) mod throughput;

use crate::arguments::Common;
use crate::output::Output;
use crate::problem::Problem;
use crate::settings::Settings;
use clap::{Args, Subcommand, ValueEnum};

/// Measure a group beside what the machine allows
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
    Failover(failover::Failover),
}

/// How messages travel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Method {
    /// To the orderer, which sends them to all
    Pb,
    /// To all, and the orderer sends a short accept
    Bb,
    /// By size
    #[default]
    Auto,
}

impl Method {
    /// The size above which messages travel by BB.
    fn broadcast_above_bytes(self) -> Option<u32> {
        match self {
            Method::Pb => Some(u32::MAX),
            Method::Bb => Some(0),
            Method::Auto => None,
        }
    }

    /// Its name on the command line.
    fn name(self) -> &'static str {
        match self {
            Method::Pb => "pb",
            Method::Bb => "bb",
            Method::Auto => "auto",
        }
    }
}

impl Bench {
    /// The flags that all commands have.
    pub(crate) fn common(&self) -> &Common {
        match &self.what {
            What::Latency(command) => &command.common,
            What::Throughput(command) => &command.common,
            What::Failover(command) => &command.common,
        }
    }
}

pub(crate) fn run(command: Bench, settings: &Settings, output: &Output) -> Result<(), Problem> {
    match command.what {
        What::Latency(command) => latency::run(command, settings, output),
        What::Throughput(command) => throughput::run(command, settings, output),
        What::Failover(command) => failover::run(command, settings, output),
    }
}

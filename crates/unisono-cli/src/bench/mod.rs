//! `unisono bench`: what a group costs, beside what the machine allows.
//!
//! Our side and the bare floor run in the same invocation, in turns of short blocks, with the same placement on
//! processors; ratios are taken once per round and the median is reported.

mod failover;
pub(crate) mod floor;
mod latency;
pub(crate) mod member;
mod placement;
mod statistics;

use crate::arguments::Common;
use crate::output::Output;
use crate::problem::Problem;
use crate::settings::Settings;
use clap::{Args, Subcommand};

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
    Failover(failover::Failover),
}

impl Bench {
    /// The flags that all commands have.
    pub(crate) fn common(&self) -> &Common {
        match &self.what {
            What::Latency(command) => &command.common,
            What::Failover(command) => &command.common,
        }
    }
}

pub(crate) fn run(command: Bench, settings: &Settings, output: &Output) -> Result<(), Problem> {
    match command.what {
        What::Latency(command) => latency::run(command, settings, output),
        What::Failover(command) => failover::run(command, settings, output),
    }
}

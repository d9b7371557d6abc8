//! The hidden subcommand that a worker process runs: it receives one assignment and serves its parent until that ends.

use crate::processes::Instructions;
use clap::Args;
use serde::{Deserialize, Serialize};

/// Serve the process that started this one
#[derive(Args, Debug)]
pub(crate) struct Worker {
    /// Its process number
    parent: u32,

    #[command(flatten)]
    pub(crate) log: crate::log::LogOptions,
}

/// What a worker does.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Assignment {
    /// A member of a tested group.
    Trial(crate::trial::member::Assignment),
    /// A member of a group whose latency is measured.
    Latency(crate::bench::latency::member::Assignment),
    /// A member of a group under load.
    Throughput(crate::bench::throughput::member::Assignment),
    /// A process of the bare fan-out that such a group is compared with.
    Fanout(crate::bench::fanout::Assignment),
    /// A process that serves calls or makes them.
    Rpc(crate::bench::rpc::worker::Assignment),
    /// A process of a replicated service that is measured.
    Replica(crate::bench::replica::worker::Assignment),
    /// A process of a directory service that is measured, or of what it is compared with.
    Dir(crate::bench::dir::worker::Assignment),
    /// A process of the bare UDP paths that a group is compared with.
    Floor(crate::bench::floor::Assignment),
}

pub(crate) fn run(command: &Worker) -> anyhow::Result<()> {
    let mut instructions = Instructions::begin(command.parent)?;
    match instructions.next()? {
        Some(Assignment::Trial(assignment)) => crate::trial::member::work(assignment, instructions),
        Some(Assignment::Floor(assignment)) => crate::bench::floor::work(assignment, instructions),
        Some(Assignment::Latency(assignment)) => {
            crate::bench::latency::member::work(assignment, instructions)
        }
        Some(Assignment::Throughput(assignment)) => {
            crate::bench::throughput::member::work(assignment, instructions)
        }
        Some(Assignment::Rpc(assignment)) => crate::bench::rpc::worker::work(assignment, instructions),
        Some(Assignment::Replica(assignment)) => {
            crate::bench::replica::worker::work(assignment, instructions)
        }
        Some(Assignment::Dir(assignment)) => crate::bench::dir::worker::work(assignment, instructions),
        Some(Assignment::Fanout(assignment)) => crate::bench::fanout::work(assignment, instructions),
        None => Ok(()),
    }
}

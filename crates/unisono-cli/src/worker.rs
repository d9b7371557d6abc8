//! What this program does when its own parent started it: one role, until the parent is done with it.

use crate::processes::Orders;
use clap::Args;
use serde::{Deserialize, Serialize};

/// Serve the process that started this one
#[derive(Args, Debug)]
pub(crate) struct Worker {
    /// That process
    parent: u32,

    #[command(flatten)]
    pub(crate) log: crate::log::LogOptions,
}

/// What a worker is to be.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Assignment {
    /// A member of a group put to the test.
    Trial(crate::trial::member::Assignment),
    /// A member of a group whose latency is measured.
    Latency(crate::bench::latency::member::Assignment),
    /// A member of a group under load.
    Throughput(crate::bench::throughput::member::Assignment),
    /// A process of the bare fan-out beside it.
    Fanout(crate::bench::fanout::Assignment),
    /// A process that serves calls or makes them.
    Rpc(crate::bench::rpc::worker::Assignment),
    /// A process of the bare floor beside a measured group.
    Floor(crate::bench::floor::Assignment),
}

pub(crate) fn run(command: &Worker) -> anyhow::Result<()> {
    let mut orders = Orders::begin(command.parent)?;
    match orders.next()? {
        Some(Assignment::Trial(role)) => crate::trial::member::work(role, orders),
        Some(Assignment::Floor(role)) => crate::bench::floor::work(role, orders),
        Some(Assignment::Latency(role)) => crate::bench::latency::member::work(role, orders),
        Some(Assignment::Throughput(role)) => crate::bench::throughput::member::work(role, orders),
        Some(Assignment::Rpc(role)) => crate::bench::rpc::worker::work(role, orders),
        Some(Assignment::Fanout(role)) => crate::bench::fanout::work(role, orders),
        None => Ok(()),
    }
}

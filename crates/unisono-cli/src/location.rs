//! Where a measured process runs: on which processor, and on which host.

use crate::lab::network;
use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;
use std::path::PathBuf;

/// Where a process runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Location {
    /// The processor it stays on; any if not given.
    pub(crate) processor: Option<usize>,
    /// The network namespace of its host; the one of its parent if not given.
    pub(crate) namespace: Option<PathBuf>,
    /// The address at which it is reached.
    pub(crate) address: Ipv4Addr,
}

impl Location {
    /// On this machine's loopback.
    pub(crate) fn here(processor: Option<usize>) -> Location {
        Location { processor, namespace: None, address: Ipv4Addr::LOCALHOST }
    }

    /// Moves this thread there, and those it starts from now on.
    pub(crate) fn enter(&self) -> anyhow::Result<()> {
        if let Some(namespace) = &self.namespace {
            network::enter(namespace)?;
        }
        self.processor.map_or(Ok(()), stay_on)
    }
}

#[cfg(target_os = "linux")]
fn stay_on(processor: usize) -> anyhow::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    set.set(processor);
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

#[cfg(not(target_os = "linux"))]
fn stay_on(_: usize) -> anyhow::Result<()> {
    anyhow::bail!("this system does not let a process choose its processor")
}

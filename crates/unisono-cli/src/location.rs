//! Where a measured process runs: its processor and its host.

use crate::lab::network;
use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;
use std::path::PathBuf;

/// The processor, the host and the address of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Location {
    /// The processor to which the process is pinned; none if the system chooses.
    pub(crate) processor: Option<usize>,
    /// The network namespace of its host; none for that of its parent.
    pub(crate) namespace: Option<PathBuf>,
    /// The address of the process.
    pub(crate) address: Ipv4Addr,
}

impl Location {
    /// A location on this machine's loopback.
    pub(crate) fn here(processor: Option<usize>) -> Location {
        Location { processor, namespace: None, address: Ipv4Addr::LOCALHOST }
    }

    /// Moves this thread to the location, and all threads that it starts from now on.
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

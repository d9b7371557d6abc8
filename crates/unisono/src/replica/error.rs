//! The errors of replicas, and why a replica ended.

use super::disk::DiskError;
use crate::error::OpenError;
use crate::rpc::ServiceError;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use unisono_core::replica::{OnlyLocalReads, StopReason};
use unisono_core::{JoinFailure, debug_as_sentence};

/// Why a replica is not open. Nothing is left in the group.
#[derive(Error)]
#[non_exhaustive]
pub enum ReplicaError {
    /// It ended before it had the state.
    #[error(transparent)]
    Ended(#[from] ReplicaEnd),
    /// It had no state in time ([`ReplicaOptions::open_within`](super::ReplicaOptions::open_within)). Try again.
    #[error("no state within {} ms{}", within.as_millis(), cause(last.as_ref()))]
    TimedOut {
        /// The time.
        within: Duration,
        /// Why the last attempt to enter the group failed, if it is not in the group.
        last: Option<Arc<OpenError>>,
    },
    /// This server with a disk did not come to serve in time ([`ReplicaOptions::open_within`](super::ReplicaOptions)). Start
    /// the servers that it waited for, and try again.
    #[error(
        "this server waited {} s for {} (ReplicaOptions::open_within){}",
        within.as_secs_f64(), servers(waits_for), disk_cause(last.as_ref())
    )]
    ServersMissing {
        /// The time.
        within: Duration,
        /// Ids of the servers that it waited for; none if its state had not arrived.
        waits_for: Vec<u8>,
        /// Why the last attempt to enter the group failed, if it is not in the group.
        last: Option<Arc<OpenError>>,
    },
    /// The folder of this server cannot be used. Nothing in it changed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The operating system gave no thread.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}

debug_as_sentence!(ReplicaError { TimedOut, ServersMissing, Thread; of Ended, Disk });

fn cause(last: Option<&Arc<OpenError>>) -> String {
    match last {
        Some(error) => format!(": {error}"),
        None => ": too few other servers answered to form or enter the service, or its state has not arrived; start \
                 the others, and try again"
            .into(),
    }
}

/// Returns the cause for a server with a disk. That it did not form the group with the others is what the text says before.
fn disk_cause(last: Option<&Arc<OpenError>>) -> String {
    let is_news = |error: &&Arc<OpenError>| !matches!(***error, OpenError::Join(JoinFailure::NotFormed));
    last.filter(is_news).map_or_else(String::new, |error| format!(": {error}"))
}

/// Lists servers by their ids, as in `servers 2, 3`.
fn servers(ids: &[u8]) -> String {
    let listed: Vec<String> = ids.iter().map(u8::to_string).collect();
    match ids {
        [] => "its state".into(),
        [_] => format!("server {}", listed[0]),
        _ => format!("servers {}", listed.join(", ")),
    }
}

/// Why a replica has ended.
#[derive(Clone, Error)]
#[non_exhaustive]
pub enum ReplicaEnd {
    /// This process ended it.
    #[error("this process has ended this replica")]
    Closed,
    /// It stopped by itself. What it had executed is as it was.
    #[error(transparent)]
    Stopped(StopReason),
    /// It could not enter the group.
    #[error("{0}")]
    NotEntered(Arc<OpenError>),
    /// The process forked, and this is the child.
    #[error("this replica belongs to the process that forked: open another one here")]
    Forked,
}

debug_as_sentence!(ReplicaEnd { Closed, Forked, NotEntered; of Stopped });

/// Why a read or a wait of this process failed. Nothing changed.
#[derive(Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ReadFailure {
    /// The service has local reads only.
    #[error(transparent)]
    OnlyLocalReads(#[from] OnlyLocalReads),
    /// No confirmation came in time ([`ReplicaOptions::command_within`](super::ReplicaOptions::command_within)): the
    /// group may be halted, or this member cut off. Try again.
    #[error("no confirmation came in time: the group may be halted, or this member cut off; try again")]
    TimedOut,
    /// This replica has ended.
    #[error("this replica has ended")]
    Ended,
}

debug_as_sentence!(ReadFailure { TimedOut, Ended; of OnlyLocalReads });

/// Why a replica does not serve a port. Nothing changed.
#[derive(Error)]
#[non_exhaustive]
pub enum NotServed {
    /// The port cannot be served. The reason says why.
    #[error(transparent)]
    Service(#[from] ServiceError),
    /// This replica has ended.
    #[error("this replica has ended")]
    Ended,
}

debug_as_sentence!(NotServed { Ended; of Service });

//! What a replica says of itself, to its own program and to other processes.

use super::transfer;
use crate::rpc::{CallFailure, Client};
use std::net::SocketAddr;
use std::time::Duration;
use unisono_core::replica::{CopyStatus, Digest, Position, Progress};
use unisono_core::{Member, Uid};

/// A copy that has known of commands for this time, 2 s, and applied none does not count as serving.
const BEHIND_MIN: Duration = Duration::from_secs(2);

/// Returns for how long a copy that serves applies no commands, as in `not applying for 12 s`, from the time for which it has
/// known of commands and applied none ([`Status::behind`], [`CopyStatus::behind`]). `None` if it keeps up, within 2 s.
pub fn not_applying(behind: Duration) -> Option<String> {
    (behind >= BEHIND_MIN).then(|| format!("not applying for {} s", behind.as_secs()))
}

/// What a replica is doing at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum ReplicaState {
    /// It looks for the group, or forms it.
    Entering,
    /// It is in the group and fetches the state.
    Fetching {
        /// Bytes that have arrived.
        bytes_here: u64,
        /// Bytes of the whole state; 0 while that is not known.
        bytes_total: u64,
    },
    /// It has fetched the state and writes it to its disk. It serves once the disk has all of it.
    Storing,
    /// It has the state, and applies commands.
    Serving,
    /// It has the state, and the group has no quorum: no command gets an outcome at present.
    Halted,
    /// Its last life in the group is over; it looks for the group.
    Reentering,
    /// It has ended.
    Ended,
}

impl ReplicaState {
    pub(super) fn fetching(progress: Progress) -> ReplicaState {
        let Progress { bytes_here, bytes_total } = progress;
        ReplicaState::Fetching { bytes_here, bytes_total }
    }
}

/// The status of a replica, from [`Replica::status`](super::Replica::status).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// What it is doing.
    pub state: ReplicaState,
    /// For how long it has known of commands and applied none; zero if it keeps up.
    pub behind: Duration,
    /// Position of the last command that was applied here.
    pub position: Position,
    /// The members of the group, in rank order; none while it is not in the group.
    pub members: Vec<Member>,
    /// The members that have the state, as far as this one knows.
    pub copies: Vec<Uid>,
    /// Digest of all outcomes through `position`: the same at all copies.
    pub digest: Option<Digest>,
    /// Marks of members, which say what their disks have, that counted for nothing when they came: they could not be read, or
    /// were of no member or of another generation of the service (one that this server has not opened yet counts later).
    /// Counted since this process entered the group.
    pub bad_marks: u64,
}

/// Asks the member with this address of a replicated service for the status of its copy. The caller need not be a
/// member. `name` is the name of the service.
///
/// # Errors
/// No copy answered at this address within `timeout`; [`CallFailure::NotFound`] also if the member has no replica.
pub fn copy_status(
    client: &Client,
    name: &str,
    member: SocketAddr,
    timeout: Duration,
) -> Result<CopyStatus, CallFailure> {
    let port = transfer::port(name).public();
    let reply = client.call_at(port, member, CopyStatus::question(), timeout)?;
    CopyStatus::read(reply).ok_or(CallFailure::NotFound)
}

/// Asks for the status of any copy of a replicated service, also of a server that waits for others and is in no group.
/// The first that answers counts.
///
/// # Errors
/// No copy answered within `timeout`.
pub fn any_copy_status(client: &Client, name: &str, timeout: Duration) -> Result<CopyStatus, CallFailure> {
    let reply = client.call_within(transfer::port(name).public(), CopyStatus::question(), timeout)?;
    CopyStatus::read(reply).ok_or(CallFailure::NotFound)
}

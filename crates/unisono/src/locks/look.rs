//! Looking at locks from outside: a process that is no member asks one.

use super::LockTable;
use crate::replica::Outcome;
use crate::rpc::{CallFailure, Client, PrivatePort};
use bytes::Bytes;
use std::net::SocketAddr;
use std::time::Duration;

/// Size of a table of locks that is shown, at most: 1 MiB, about 30,000 locks.
const SHOWN_BYTES_MAX: usize = 1 << 20;
const QUESTION: &[u8] = b"which locks are held";
const TOO_MANY: &[u8] = b"too many locks are held to show them";

/// Returns the port at which the members of this group answer.
pub(super) fn port(group: &str) -> PrivatePort {
    PrivatePort::from_name(&format!("locks of {group}"))
}

/// Asks the member with this address for the locks of its group, and who waits for them. The caller need not be a member. The
/// member may be behind the others.
///
/// # Errors
/// Nothing answered at this address within `timeout`; [`CallFailure::NotFound`] also if the member keeps no locks.
/// [`CallFailure::Refused`]: there are too many of them.
pub fn locks_at(
    client: &Client,
    group: &str,
    member: SocketAddr,
    timeout: Duration,
) -> Result<LockTable, CallFailure> {
    let reply = client.call_at(port(group).public(), member, Bytes::from_static(QUESTION), timeout)?;
    LockTable::restore(&reply).map_err(|_| CallFailure::NotFound)
}

/// Answers a question from outside.
pub(super) fn answer(table: &LockTable, question: &[u8]) -> Outcome {
    let table = table.snapshot();
    match question == QUESTION {
        true if table.len() <= SHOWN_BYTES_MAX => Outcome::Reply(table),
        true => Outcome::Refuse(TOO_MANY.into()),
        false => Outcome::Refuse(Bytes::from_static(b"not a question to a lock service")),
    }
}

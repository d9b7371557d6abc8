//! What can become of a call, a service and an answer, if not what was wanted.

use super::server::Request;
use crate::error::{Ended, OpenError};
use bytes::Bytes;
use std::fmt;
use std::io;
use thiserror::Error;
use unisono_core::rpc::{self, ForwardError, ServeError};

pub use unisono_core::rpc::CallError as NotSent;

/// Why a call came to nothing, and whether it may have happened.
///
/// | | did it happen? | what to do |
/// |---|---|---|
/// | [`NotSent`](CallFailure::NotSent) | no | make it smaller, or wait for others |
/// | [`NotFound`](CallFailure::NotFound) | no | look for the server |
/// | [`Failed`](CallFailure::Failed) | no | try again |
/// | [`Busy`](CallFailure::Busy) | no | try again later, or with more time |
/// | [`Refused`](CallFailure::Refused) | as the service says | read the reason |
/// | [`Unknown`](CallFailure::Unknown) | perhaps, but once at most | ask the service what became of it, or repeat only what may happen twice |
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CallFailure {
    /// It was not begun: it did not happen.
    #[error(transparent)]
    NotSent(#[from] NotSent),
    /// Nobody was found who serves the port: it did not happen.
    #[error(
        "not found: nobody serves this port: check its name, that a server runs, that both use the same key, and that \
         multicast reaches it or --seeds names it; the call did not happen"
    )]
    NotFound,
    /// Servers were found, and none took it in time: it did not happen, and may be tried again.
    #[error(
        "failed: the servers that were found did not take the call; it did not happen, and may be tried again"
    )]
    Failed,
    /// All servers pushed back until the time was over: it did not happen, and may be tried again later.
    #[error(
        "busy: all servers pushed back until the time was over; the call did not happen, and may be tried again later"
    )]
    Busy,
    /// The service says no, and why.
    #[error("refused: {}", String::from_utf8_lossy(.0))]
    Refused(Bytes),
    /// It was sent, and no answer came: it may have happened, but not more than once.
    #[error(
        "unknown: no answer came; the call may have happened, once at most: ask the service before it is repeated"
    )]
    Unknown,
}

impl CallFailure {
    /// It certainly did not happen, so that it is safe to call again. What a refusal means only the service knows.
    pub fn did_not_happen(&self) -> bool {
        !matches!(self, CallFailure::Refused(_) | CallFailure::Unknown)
    }
}

impl From<rpc::CallFailure> for CallFailure {
    fn from(failure: rpc::CallFailure) -> CallFailure {
        match failure {
            rpc::CallFailure::NotFound => CallFailure::NotFound,
            rpc::CallFailure::Failed => CallFailure::Failed,
            rpc::CallFailure::Busy => CallFailure::Busy,
            rpc::CallFailure::Refused(reason) => CallFailure::Refused(reason),
            rpc::CallFailure::Unknown => CallFailure::Unknown,
        }
    }
}

/// A service was not begun. Nothing changed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServiceError {
    /// There is no way to be reached.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// This process cannot serve the port.
    #[error(transparent)]
    Refused(#[from] ServeError),
}

/// There are no more requests: the service was drained, or its last handle dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("this service takes no more requests")]
pub struct Withdrawn;

/// The time was over before all that was taken had been answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the service was withdrawn, but not everything it had taken was answered in time")]
pub struct NotDrained;

/// A request was not passed on, and is still to be answered.
#[derive(Error)]
#[error("{reason}")]
pub struct NotForwarded {
    /// What is to be answered.
    pub request: Box<Request>,
    /// Why.
    pub reason: ForwardError,
}

impl fmt::Debug for NotForwarded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NotForwarded({:?})", self.reason)
    }
}

/// A member of an open group did not come to serve.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenGroupError {
    /// The group was not entered, or the port cannot be served.
    #[error(transparent)]
    Service(#[from] ServiceError),
    /// The group went on without this member before it had the state: try again.
    #[error("{0}; it had not yet been given the state")]
    Ended(Ended),
    /// There is another group of this name, and this one is to give way: end its members, and open it again.
    #[error(
        "there are two groups of this name, which did not see each other when they were founded, and this one gives way: end its members and start them again"
    )]
    Conflict,
    /// The system gave no thread.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}

impl From<OpenError> for OpenGroupError {
    fn from(error: OpenError) -> OpenGroupError {
        OpenGroupError::Service(error.into())
    }
}

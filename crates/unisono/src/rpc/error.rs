//! The errors of calls and services. Each says whether anything changed, what caused it, and what to do next.

use super::server::Request;
use crate::error::OpenError;
use bytes::Bytes;
use std::fmt;
use thiserror::Error;
use unisono_core::debug_as_sentence;
use unisono_core::rpc::{self, ForwardError, NOTHING_HAPPENED, ServeError};

pub use unisono_core::rpc::CallError as NotSent;

/// Why a call returned no reply, and whether it may have happened.
///
/// | | did it happen? | what to do |
/// |---|---|---|
/// | [`NotSent`](CallFailure::NotSent) | no | make it smaller, or wait for others |
/// | [`NotFound`](CallFailure::NotFound) | no | check the port, the server, the key |
/// | [`Failed`](CallFailure::Failed) | no | try again |
/// | [`OtherInstance`](CallFailure::OtherInstance) | no | find out why the service was founded twice |
/// | [`Busy`](CallFailure::Busy) | no | try again later, or with more time |
/// | [`Refused`](CallFailure::Refused) | as the service says | read the reason |
/// | [`Unknown`](CallFailure::Unknown) | perhaps, once at most | ask the service, or repeat what may happen twice |
#[derive(Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CallFailure {
    /// The call was not begun, so it did not happen. The reason says what to change.
    #[error(transparent)]
    NotSent(#[from] NotSent),
    /// No server of the port was found, so the call did not happen. Check the port, the server, the key and the
    /// network.
    #[error(
        "not found: no server of this port answered: check its name, that a server runs, that both use the same key, \
         and that multicast reaches it or --seeds names it; the call did not happen"
    )]
    NotFound,
    /// Servers were found, and none took the call in time: it did not happen. Try again.
    #[error(
        "failed: none of the servers that were found took the call; it did not happen, and may be tried again"
    )]
    Failed,
    /// The servers that were found belong to another instance of the service than the one that this client has spoken
    /// to, founded apart from it: the call did not happen. What the first instance knows may be missing there. Find out
    /// why there are two. [`Client::forget_instance`](super::Client::forget_instance) accepts the other one.
    #[error(
        "other instance: only servers of another instance of this service answered, which was founded apart from the \
         one that this client has called; the call did not happen: find out why there are two"
    )]
    OtherInstance,
    /// All servers were full until the deadline: the call did not happen. Try again later, or with more time.
    #[error(
        "busy: all servers were full until the deadline; the call did not happen, and may be tried again later"
    )]
    Busy,
    /// The service refused the call, and gives this reason. Only the service knows whether anything changed.
    #[error("refused: {}", String::from_utf8_lossy(.0))]
    Refused(Bytes),
    /// The call was sent, and no answer came: it may have happened, but not more than once. Ask the service before
    /// you repeat it.
    #[error(
        "unknown: no answer came; the call may have happened, once at most: ask the service before you repeat it"
    )]
    Unknown,
}

debug_as_sentence!(CallFailure { NotFound, Failed, OtherInstance, Busy, Refused, Unknown; of NotSent });

impl CallFailure {
    /// True if the call certainly did not happen, so that it is safe to repeat. Only the service knows what a refusal
    /// means, except one that ends with [`NOTHING_HAPPENED`].
    pub fn did_not_happen(&self) -> bool {
        match self {
            CallFailure::Refused(reason) => reason.ends_with(NOTHING_HAPPENED),
            CallFailure::Unknown => false,
            _ => true,
        }
    }
}

impl From<rpc::CallFailure> for CallFailure {
    fn from(failure: rpc::CallFailure) -> CallFailure {
        match failure {
            rpc::CallFailure::NotFound => CallFailure::NotFound,
            rpc::CallFailure::Failed => CallFailure::Failed,
            rpc::CallFailure::OtherInstance => CallFailure::OtherInstance,
            rpc::CallFailure::Busy => CallFailure::Busy,
            rpc::CallFailure::Refused(reason) => CallFailure::Refused(reason),
            rpc::CallFailure::Unknown => CallFailure::Unknown,
        }
    }
}

/// Why a service was not begun. Nothing changed.
#[derive(Error)]
#[non_exhaustive]
pub enum ServiceError {
    /// The service has no address at which clients could reach it.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// This process cannot serve the port. The reason says why.
    #[error(transparent)]
    Refused(#[from] ServeError),
}

debug_as_sentence!(ServiceError {; of Open, Refused });

/// The service takes no more requests: it was drained, or its last handle was dropped.
#[derive(Clone, Copy, PartialEq, Eq, Error)]
#[error("this service takes no more requests")]
pub struct Withdrawn;

debug_as_sentence!(Withdrawn);

/// Some requests that the service had taken were not answered in time. It is withdrawn all the same.
#[derive(Clone, Copy, PartialEq, Eq, Error)]
#[error("the service was withdrawn, but some requests that it had taken were not answered in time")]
pub struct NotDrained;

debug_as_sentence!(NotDrained);

/// Why a request was not passed on. Nothing was sent.
#[derive(Error)]
#[error("{reason}")]
pub struct NotForwarded {
    /// The request. It still has to be answered, unless the reason is [`ForwardError::Over`].
    pub request: Box<Request>,
    /// Why it was not passed on.
    pub reason: ForwardError,
}

impl fmt::Debug for NotForwarded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NotForwarded: {:?}", self.reason)
    }
}

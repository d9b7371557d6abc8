//! The types of an endpoint's contract: settings, requests, outcomes, errors, counters.

use super::transfer::PARTS_WINDOW_MAX;
use crate::config::check_between;
use crate::debug_as_sentence;
use crate::error::ConfigError;
use crate::identity::{GroupTag, Port, Uid};
use crate::shares::Source;
use crate::time::Time;
use crate::wire::{CALL_BYTES_MAX, Wishes};
use alloc::boxed::Box;
use bytes::Bytes;
use core::net::SocketAddr;
use core::time::Duration;
use thiserror::Error;

/// The group tag of all datagrams of calls.
pub const CALLS_TAG: GroupTag = GroupTag(u64::from_be_bytes(*b"un-calls"));

/// Number of a call within one client's life; it stays the same at whichever server the call is executed.
pub type CallNumber = u64;

/// Settings of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, deny_unknown_fields)
)]
pub struct CallSettings {
    /// Maximum length of a datagram in bytes, the headers of the protocol included. 576 to 16,000; 1,472 by default.
    pub datagram_bytes_max: usize,
    /// Maximum length of a request or reply in bytes. At most 16 MiB, which is the default.
    pub message_bytes_max: usize,
    /// How long a server may leave questions unanswered before it is given up. 2 s by default.
    pub silence: Duration,
    /// How long a server of the port is looked for. 2 s by default.
    pub locate: Duration,
}

impl Default for CallSettings {
    fn default() -> CallSettings {
        CallSettings {
            datagram_bytes_max: 1472,
            message_bytes_max: CALL_BYTES_MAX,
            silence: Duration::from_secs(2),
            locate: Duration::from_secs(2),
        }
    }
}

impl CallSettings {
    /// Checks that all settings are in their ranges.
    ///
    /// # Errors
    /// Names the first parameter that is out of its range.
    pub fn check(&self) -> Result<(), ConfigError> {
        let bytes = self.datagram_bytes_max as u64;
        check_between("datagram_bytes_max", bytes, 576, 16_000, "576 to 16,000")?;
        let message = self.message_bytes_max as u64;
        check_between("message_bytes_max", message, 0, CALL_BYTES_MAX as u64, "at most 16,777,216")?;
        for (parameter, value) in [("silence", self.silence), ("locate", self.locate)] {
            let allowed = "5 ms to an hour, in milliseconds";
            check_between(parameter, value.as_millis() as u64, 5, 3_600_000, allowed)?;
        }
        Ok(())
    }
}

/// Options of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, deny_unknown_fields)
)]
pub struct ServeOptions {
    /// Maximum number of requests that wait or are being worked on; push-back beyond. 1 to 65,535; 1,024 by default. A service
    /// with a maximum of 64 or more takes up to as many again, of which each source address has a share.
    pub queue_max: u16,
    /// True if the application recognises a call that was executed before by its client and number, wherever that was,
    /// and answers it again, as a replicated state machine can. When a server falls silent, a client then repeats its
    /// call at another one.
    pub repeats: bool,
    /// Identity of the replicated service: the same at all its servers, and another one at a service of the same port
    /// that was founded apart. A client stays with the first one that it meets, see [`CallFailure::OtherInstance`]. 0,
    /// the default: the service has none.
    pub instance: u64,
    /// Maximum number of parts of a large reply under way, 8 to 256; 256 by default. With fewer, other datagrams of both
    /// processes wait behind fewer parts, and the reply takes longer.
    pub reply_parts_max: u16,
    /// True if the application looks at the beginnings of large requests, so that it can refuse one before the rest has
    /// travelled. They come as requests of their own, see [`Request::whole_bytes`]. False by default.
    pub looks_at_beginnings: bool,
    /// Maximum length of a request in bytes; 16 MiB by default, which no request exceeds. A longer one is refused as soon as it is
    /// announced, unless it fits one datagram. A service whose requests are short says so: they take no room for large ones.
    pub request_bytes_max: u32,
}

/// A service with a queue of this length or more has as many places again for the shares of addresses. A smaller one is for
/// an application that takes few requests at once.
const SHARED_QUEUE_MIN: u16 = 64;

impl ServeOptions {
    /// Returns how many requests wait or are worked on at most, with those in the shares of source addresses.
    pub fn places(&self) -> usize {
        let shares = if self.queue_max < SHARED_QUEUE_MIN { 0 } else { self.queue_max };
        usize::from(self.queue_max) + usize::from(shares)
    }
}

impl Default for ServeOptions {
    fn default() -> ServeOptions {
        ServeOptions {
            queue_max: 1024,
            repeats: false,
            instance: 0,
            reply_parts_max: PARTS_WINDOW_MAX as u16,
            looks_at_beginnings: false,
            request_bytes_max: CALL_BYTES_MAX as u32,
        }
    }
}

/// Names a request that the application has, until it has answered it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId {
    pub(super) index: u32,
    pub(super) generation: u64,
}

impl RequestId {
    /// Returns the identifier by which an application that takes requests of several endpoints tells them apart. It is for
    /// that application alone: no endpoint knows it.
    #[must_use]
    pub fn of_endpoint(self, endpoint: u16) -> RequestId {
        RequestId { generation: self.generation | u64::from(endpoint) << 48, ..self }
    }
}

#[cfg(test)]
impl RequestId {
    pub(crate) fn numbered(index: u32) -> RequestId {
        RequestId { index, generation: 1 }
    }
}

/// A client's request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Request {
    /// Identifier for the answer.
    pub id: RequestId,
    /// Port of the service that is called.
    pub port: Port,
    /// Uid of the client.
    pub client: Uid,
    /// The client's address, as shares count it. Lives of clients are free, addresses are not.
    pub source: Source,
    /// True if no request from that address has lately shown a right: the service has denied all of them, or has not answered any. Also
    /// while no address asks that has.
    pub is_stranger: bool,
    /// Number of the call; the same if the call was passed on, or is repeated after a server's death.
    pub call: CallNumber,
    /// The client knows the outcomes of all its calls with numbers below this, and repeats none of them.
    pub finished_below: CallNumber,
    /// How often the call was passed on.
    pub hops: u8,
    /// True if an earlier attempt at the call may have been executed, or may still be, as the client says.
    pub again: bool,
    /// Time after which the client does not wait for an answer.
    pub deadline: Time,
    /// What the client asks beside the request, if anything.
    pub wishes: Option<Box<Wishes>>,
    /// Bytes of the request, or its first ones.
    pub payload: Bytes,
    /// Length of the whole request, if the payload is only its beginning ([`ServeOptions::looks_at_beginnings`]). To answer
    /// it spares the client the rest; or say [`go_on`](super::Endpoint::go_on), and it comes once more when it is whole. It
    /// comes then even without a word.
    pub whole_bytes: Option<usize>,
}

impl Request {
    /// Returns the handler that the client names, if it names one.
    pub fn handler(&self) -> Option<&str> {
        self.wishes.as_ref()?.handler.as_deref()
    }
}

/// How a refusal ends whose server did nothing with this attempt at the call. If an earlier attempt may have been executed,
/// the client gets [`CallFailure::Unknown`] in the place of such a refusal.
pub const NOTHING_HAPPENED: &[u8] = b"; nothing happened";

/// How a refusal begins that ends with [`NOTHING_HAPPENED`], if the same call may be taken a moment later.
pub const BUSY_NOW: &[u8] = b"busy: ";

/// Why a call failed. Exhaustive: each variant says whether the call may have happened, which no caller can guess.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CallFailure {
    /// No server of the port was found: the call did not happen.
    #[error("no server of the port was found; the call did not happen")]
    NotFound,
    /// Servers were found, and none took the call in time: it did not happen.
    #[error("no server took the call in time; it did not happen")]
    Failed,
    /// Servers were found, and all pushed back until the deadline: the call did not happen.
    #[error("all servers are busy; the call did not happen")]
    Busy,
    /// The servers that were found belong to another instance of the service than the one that this client has spoken
    /// to: the call did not happen. [`Endpoint::forget_instance`](super::Endpoint::forget_instance) accepts the other
    /// one from then on.
    #[error("only servers of another instance of the service were found; the call did not happen")]
    OtherInstance,
    /// The application refuses the call, with this reason. One that ends with [`NOTHING_HAPPENED`] says that no server
    /// executed the call.
    #[error("the server refuses the call")]
    Refused(Bytes),
    /// The call was sent, and no answer came: it may have happened, once.
    #[error("no answer came; the call may have happened")]
    Unknown,
}

/// Why a call was not begun.
#[derive(Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CallError {
    /// The request is larger than the settings allow.
    #[error("the request has {bytes} bytes; the maximum is {max}")]
    TooLarge {
        /// Length of the request.
        bytes: usize,
        /// Maximum length of a request.
        max: usize,
    },
    /// The name of the handler is none.
    #[error("the name of a handler has 1 to 255 bytes and no control characters")]
    BadHandler,
    /// Too many calls are under way: try again after an outcome.
    #[error("too many calls are under way; try again when one has ended")]
    TooMany,
    /// A forked child uses a handle of its parent's, which the library refuses.
    #[error("this handle belongs to the process that forked: open another one here")]
    Forked,
}

debug_as_sentence!(CallError { TooLarge, BadHandler, TooMany, Forked });

/// Why a service was not begun.
#[derive(Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ServeError {
    /// This endpoint serves the port already.
    #[error("the port is served here already")]
    Served,
    /// The endpoint serves its maximum number of ports.
    #[error("an endpoint serves at most {max} ports")]
    TooMany {
        /// Maximum number of ports.
        max: usize,
    },
    /// `queue_max` is 0.
    #[error("a service must be able to take at least one request")]
    NoQueue,
}

debug_as_sentence!(ServeError { Served, TooMany, NoQueue });

/// Why an answer was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AnswerError {
    /// The reply is larger than the settings allow; another answer is still possible.
    #[error("the reply has {bytes} bytes; the maximum is {max}")]
    TooLarge {
        /// Length of the reply.
        bytes: usize,
        /// Maximum length of a reply.
        max: usize,
    },
    /// The request was answered, or its client does not wait for it any longer.
    #[error("the request was answered already, or its client does not wait any more")]
    Over,
}

debug_as_sentence!(AnswerError { TooLarge, Over });

/// Why a request was not passed on.
#[derive(Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ForwardError {
    /// The request was passed on the maximum number of times: answer it.
    #[error("the request was passed on {hops} times; it must be answered here")]
    TooFar {
        /// How often it was passed on.
        hops: u8,
    },
    /// The request was answered, or its client does not wait for it any longer.
    #[error("the request was answered already, or its client does not wait any more")]
    Over,
}

debug_as_sentence!(ForwardError { TooFar, Over });

/// Destination of a datagram. Exhaustive: a driver must be able to send to each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallDestination {
    /// One address.
    Address(SocketAddr),
    /// An address that is told in a datagram and proved by nothing. A driver that lacks room may drop what goes there: the machine
    /// that has the address asks again.
    Unproved(SocketAddr),
    /// All processes that may serve the port: its multicast address, or the seeds.
    Rendezvous(Port),
}

impl CallDestination {
    /// Returns the address, if there is one.
    pub fn address(self) -> Option<SocketAddr> {
        match self {
            CallDestination::Address(address) | CallDestination::Unproved(address) => Some(address),
            CallDestination::Rendezvous(_) => None,
        }
    }
}

/// Reason for a timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallReason {
    /// Calls: a deadline, a request to repeat, a server to look for.
    Client,
    /// Services: a part of a large message, or idle sessions.
    Server,
}

/// Counters of an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
#[non_exhaustive]
pub struct CallCounters {
    /// Datagrams sent, counted once for each destination.
    pub datagrams_sent: u64,
    /// Datagrams accepted.
    pub datagrams_received: u64,
    /// Datagrams that are damaged or break a rule.
    pub malformed: u64,
    /// Datagrams under another key.
    pub foreign: u64,
    /// Frames about something unknown or over.
    pub stale: u64,
    /// Calls begun.
    pub calls: u64,
    /// Requests sent again, or asked about again.
    pub resends: u64,
    /// Parts of large messages sent again.
    pub parts_resent: u64,
    /// `LocatePort` questions sent.
    pub locates: u64,
    /// Calls of this client that a server passed on.
    pub forwards: u64,
    /// Attempts of this client that a server pushed back.
    pub pushed_back: u64,
    /// Servers given up because they were silent or another life has their address.
    pub given_up: u64,
    /// Requests given to the application.
    pub requests: u64,
    /// Requests received again.
    pub duplicates: u64,
    /// Attempts rejected.
    pub rejected: u64,
    /// Replies dropped unacknowledged because too many bytes were kept.
    pub replies_dropped: u64,
    /// Sessions forgotten because they were idle.
    pub sessions_evicted: u64,
}

//! The types of an endpoint's contract.

use crate::config::check_between;
use crate::error::ConfigError;
use crate::identity::{GroupTag, Port, Uid};
use crate::time::Time;
use crate::wire::CALL_BYTES_MAX;
use bytes::Bytes;
use core::net::SocketAddr;
use core::time::Duration;
use thiserror::Error;

/// The tag that all datagrams of calls carry, where those of a group carry the group's.
pub const CALLS_TAG: GroupTag = GroupTag(u64::from_be_bytes(*b"un-calls"));

/// Names a call among those of one client's life, and keeps it whoever answers.
pub type CallNumber = u64;

/// What an endpoint chooses for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallSettings {
    /// The most bytes in a datagram, headers of ours included. 576 to 16,000; 1,472 by default.
    pub datagram_bytes_max: usize,
    /// The largest request or reply, in bytes. At most 16 MiB, and so much by default.
    pub message_bytes_max: usize,
    /// How long a server may leave questions unanswered before it is given up. 2 s by default.
    pub silence: Duration,
    /// How long somebody is looked for who serves a port. 2 s by default.
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
    /// Refuses what no endpoint can work with.
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

/// How a service is offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServeOptions {
    /// Requests that may wait or be worked on; clients are pushed back beyond. 1 to 65,535; 1,024 by default.
    pub queue_max: u16,
    /// The application recognises a call that it has executed before by its client and number, wherever it did, and
    /// answers it again: a replicated state machine does. A client then goes on elsewhere when a server falls silent.
    pub repeats: bool,
}

impl Default for ServeOptions {
    fn default() -> ServeOptions {
        ServeOptions { queue_max: 1024, repeats: false }
    }
}

/// Names a request that the application was given, until it has answered it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId {
    pub(super) index: u32,
    pub(super) generation: u64,
}

/// What a client asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// To answer it by.
    pub id: RequestId,
    /// Which service is asked.
    pub port: Port,
    /// Which client.
    pub client: Uid,
    /// Its call; the same if the call was passed on, or is repeated after a server's death.
    pub call: CallNumber,
    /// Its client knows the outcomes of all its calls with lower numbers, and repeats none of them.
    pub finished_below: CallNumber,
    /// How often the call was passed on.
    pub hops: u8,
    /// Nobody waits for an answer after this.
    pub deadline: Time,
    /// The question.
    pub payload: Bytes,
}

/// Why a call came to nothing.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CallFailure {
    /// Nobody was found who serves the port: it did not happen.
    #[error("nobody serves the port; the call did not happen")]
    NotFound,
    /// Servers were found, and none took it in time: it did not happen.
    #[error("no server took the call in time; it did not happen")]
    Failed,
    /// Servers were found, and all pushed back until the time was over: it did not happen.
    #[error("all servers are busy; the call did not happen")]
    Busy,
    /// The application says no, and why.
    #[error("the server refuses the call")]
    Refused(Bytes),
    /// It was sent, and no answer came: it may have happened, once.
    #[error("no answer came; the call may have happened")]
    Unknown,
}

/// A call was not begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CallError {
    /// Larger than a request may be.
    #[error("the request has {bytes} bytes; at most {max} are taken")]
    TooLarge {
        /// What was given.
        bytes: usize,
        /// What is taken.
        max: usize,
    },
    /// Too many calls are under way: try again after an outcome.
    #[error("too many calls are under way; try again when one has ended")]
    TooMany,
    /// A forked child uses a handle of its parent's, which the library refuses.
    #[error("this handle belongs to the process that forked: open another one here")]
    Forked,
}

/// A service was not begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ServeError {
    /// This endpoint serves the port already.
    #[error("the port is served here already")]
    Served,
    /// As many services as one endpoint may have.
    #[error("an endpoint serves at most {max} ports")]
    TooMany {
        /// How many.
        max: usize,
    },
    /// A queue for nothing.
    #[error("a service must be able to take at least one request")]
    NoQueue,
}

/// An answer was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AnswerError {
    /// Larger than a reply may be: answer otherwise.
    #[error("the reply has {bytes} bytes; at most {max} are taken")]
    TooLarge {
        /// What was given.
        bytes: usize,
        /// What is taken.
        max: usize,
    },
    /// The request was answered, or its client does not wait for it any longer.
    #[error("nobody waits for an answer to this request")]
    Over,
}

/// A request was not passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ForwardError {
    /// It was passed on as often as any: answer it.
    #[error("the request was passed on {hops} times; it must be answered here")]
    TooFar {
        /// How often.
        hops: u8,
    },
    /// The request was answered, or its client does not wait for it any longer.
    #[error("nobody waits for an answer to this request")]
    Over,
}

/// Where a datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallDestination {
    /// To one address.
    Address(SocketAddr),
    /// To whoever may serve the port: its multicast address, or the seeds.
    Rendezvous(Port),
}

/// What a timeout is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallReason {
    /// Calls: a deadline, something to ask again, somebody to look for.
    Client,
    /// Services: a part of a large message, or sessions that nobody uses.
    Server,
}

/// What an endpoint has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallCounters {
    /// Datagrams sent, one for each destination.
    pub datagrams_sent: u64,
    /// Datagrams taken.
    pub datagrams_received: u64,
    /// Damaged datagrams, and such as break a rule.
    pub malformed: u64,
    /// Datagrams under another key.
    pub foreign: u64,
    /// Frames that are about nothing (any more).
    pub stale: u64,
    /// Calls begun.
    pub calls: u64,
    /// Requests sent again, or asked after.
    pub resends: u64,
    /// Parts of large messages sent again.
    pub parts_resent: u64,
    /// Questions for a port.
    pub locates: u64,
    /// Calls that a server passed on, as the client sees it.
    pub forwards: u64,
    /// Attempts that a server pushed back, as the client sees it.
    pub pushed_back: u64,
    /// Servers given up for their silence.
    pub given_up: u64,
    /// Requests given to the application.
    pub requests: u64,
    /// Requests that came again.
    pub duplicates: u64,
    /// Attempts rejected.
    pub rejected: u64,
    /// Replies that were dropped for want of room, unacknowledged.
    pub replies_dropped: u64,
    /// Sessions that were forgotten since nobody used them.
    pub sessions_evicted: u64,
}

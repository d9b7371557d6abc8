//! One call, from its beginning to its outcome.

use super::avoids::Avoids;
use crate::identity::{Port, Uid};
use crate::rpc::server::SESSION_IDLE;
use crate::rpc::transfer::{Incoming, Outgoing};
use crate::rpc::types::{CallFailure, CallNumber};
use crate::time::Time;
use crate::wire::Wishes;
use alloc::boxed::Box;
use bytes::Bytes;
use core::net::SocketAddr;
use core::time::Duration;

#[derive(Debug)]
pub(in crate::rpc) struct Call {
    pub(in crate::rpc) number: CallNumber,
    pub(in crate::rpc) port: Port,
    pub(in crate::rpc) request: Bytes,
    pub(in crate::rpc) wishes: Option<Box<Wishes>>,
    pub(in crate::rpc) deadline: Time,
    /// How long its server may leave it unanswered, if that is less than for all calls.
    pub(in crate::rpc) silence: Option<Duration>,
    pub(in crate::rpc) hops: u8,
    pub(in crate::rpc) stage: Stage,
    /// Since when it waits for a server.
    pub(in crate::rpc) waits_since: Time,
    /// Why it has not been sent, or what became of it: the outcome if its deadline passes now.
    pub(in crate::rpc) so_far: SoFar,
    pub(in crate::rpc) avoids: Avoids,
    /// The only address to which it goes, if the application chose one.
    pub(in crate::rpc) pinned: Option<SocketAddr>,
    /// Instance of the server that may have executed it.
    pub(in crate::rpc) instance: u64,
}

/// Stage of a call.
#[derive(Debug)]
pub(in crate::rpc) enum Stage {
    /// It waits for a server that takes it.
    Waiting,
    /// It was passed on, and the process at this address is asked whether it serves the port.
    Following(SocketAddr),
    /// It is at a server.
    Sent(Sent),
}

/// What is known of a call that has no outcome yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::rpc) enum SoFar {
    /// No server of the port was found.
    NoServerFound,
    /// Servers were found, and none has taken it.
    NotTaken,
    /// Only servers of another instance were found.
    OtherInstance,
    /// Servers were found, and pushed back.
    PushedBack,
    /// A server may have executed it.
    Unclear,
}

impl SoFar {
    pub(in crate::rpc) fn failure(self) -> CallFailure {
        match self {
            SoFar::NoServerFound => CallFailure::NotFound,
            SoFar::NotTaken => CallFailure::Failed,
            SoFar::OtherInstance => CallFailure::OtherInstance,
            SoFar::PushedBack => CallFailure::Busy,
            SoFar::Unclear => CallFailure::Unknown,
        }
    }
}

/// An attempt under way.
#[derive(Debug)]
pub(in crate::rpc) struct Sent {
    pub(in crate::rpc) server: Uid,
    /// True if its service recognises repeated calls.
    pub(in crate::rpc) repeats: bool,
    /// Instance of its service.
    pub(in crate::rpc) instance: u64,
    pub(in crate::rpc) slot: u16,
    pub(in crate::rpc) number: u64,
    /// When it was first sent; `None` before that.
    pub(in crate::rpc) first_at: Option<Time>,
    /// Packet number of the datagram in which it was last sent.
    pub(in crate::rpc) in_packet: u64,
    /// True if it was sent more than once: an answer then says nothing of the round trip.
    pub(in crate::rpc) is_repeated: bool,
    /// True if it was sent again at once because the server asked for a cookie.
    pub(in crate::rpc) has_shown_cookie: bool,
    /// True if the server has all of it.
    pub(in crate::rpc) is_there: bool,
    pub(in crate::rpc) ask_at: Time,
    pub(in crate::rpc) ask_again_after: Duration,
    /// Transfer of a large request.
    pub(in crate::rpc) request: Option<Box<Outgoing>>,
    /// Transfer of a large reply, and whether it is a refusal.
    pub(in crate::rpc) reply: Option<Box<(bool, Incoming)>>,
}

impl Sent {
    /// True if a session that had this attempt may have been forgotten by now.
    pub(in crate::rpc) fn may_be_forgotten(&self, now: Time) -> bool {
        self.is_there || self.first_at.is_some_and(|first| now.since(first) >= SESSION_IDLE / 2)
    }
}

impl Call {
    /// Notes why the call waits. Once the call may have been executed, this does not change any more.
    pub(in crate::rpc) fn note(&mut self, so_far: SoFar) {
        if !self.may_have_happened() {
            self.so_far = so_far;
        }
    }

    /// True if a server that fell silent may have executed it.
    pub(in crate::rpc) fn may_have_happened(&self) -> bool {
        self.so_far == SoFar::Unclear
    }

    pub(in crate::rpc) fn sent_ref(&self) -> Option<&Sent> {
        match &self.stage {
            Stage::Sent(sent) => Some(sent),
            _ => None,
        }
    }

    pub(in crate::rpc) fn sent(&mut self) -> Option<&mut Sent> {
        match &mut self.stage {
            Stage::Sent(sent) => Some(sent),
            _ => None,
        }
    }
}

//! State and helpers that the client and the server side of an endpoint share.

use super::agreement::KeyAgreement;
use super::proof::PortProof;
use super::server::SessionId;
use super::types::{CallCounters, CallDestination, CallSettings};
use super::work::WorkBudget;
use crate::identity::{Port, Uid};
use crate::planted::{Planted, Probe};
use crate::random::Random;
use crate::round_trip::RoundTrip;
use crate::time::Time;
use crate::wire::{
    ENVELOPE_BYTES_MAX, FRAME_HEAD_BYTES, Frame, FrameKind, HEADER_BYTES, Unopened, Unreadable,
};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::net::SocketAddr;
use core::time::Duration;

const PATIENCE_FIRST: Duration = Duration::from_millis(20);
const PATIENCE_MIN: Duration = Duration::from_millis(5);
/// Maximum interval between two repetitions of a question.
pub(super) const PATIENCE_MAX: Duration = Duration::from_millis(250);
/// Maximum number of queued frames that belong to no attempt; only a flood of questions reaches it.
const MAIL_MAX: usize = 4096;
/// Bytes of a datagram besides the request or reply that it carries whole: more than any of the frames needs.
const BESIDE_WHOLE_BYTES: usize = HEADER_BYTES + ENVELOPE_BYTES_MAX + FRAME_HEAD_BYTES + 72;
/// Bytes of a datagram besides its frames, in a session that has begun.
const BESIDE_FRAMES_BYTES: usize = HEADER_BYTES + FRAME_HEAD_BYTES + FrameKind::Envelope.body_bytes_min();

/// Sender of a datagram: uid of its life, and address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sender {
    pub(super) uid: Uid,
    pub(super) address: SocketAddr,
}

/// Destination of a queued frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum To {
    /// Every holder of the group key that receives it may read it.
    Anyone(CallDestination),
    /// The server with this uid alone.
    Server(Uid),
    /// The client of this session alone.
    Client(SessionId),
}

pub(super) struct Common {
    pub(super) me: Uid,
    /// Where the others receive from and send to.
    pub(super) address: SocketAddr,
    pub(super) agreement: Box<dyn KeyAgreement>,
    /// Number of datagrams so far.
    pub(super) packet_number: u64,
    /// Since when this life has had its address.
    pub(super) born: Time,
    pub(super) settings: CallSettings,
    pub(super) proof: Box<dyn PortProof>,
    /// Limits the proofs that are checked.
    pub(super) checks: WorkBudget,
    pub(super) random: Random,
    /// Frames that belong to no attempt that is kept here.
    pub(super) mail: VecDeque<(To, Frame)>,
    pub(super) counters: CallCounters,
    pub(super) planted: Option<Planted>,
    /// True if its client takes what it can get: for the simulator.
    pub(super) is_hostile: bool,
    /// Rare states met.
    pub(super) probes: u128,
}

impl Common {
    /// Queues a frame for the address from which a datagram claims to come.
    pub(super) fn post(&mut self, to: SocketAddr, frame: Frame) {
        self.post_to(To::Anyone(CallDestination::Unproved(to)), frame);
    }

    pub(super) fn post_to(&mut self, to: To, frame: Frame) {
        if self.mail.len() < MAIL_MAX {
            self.mail.push_back((to, frame));
        }
    }

    /// Queues the answer that a datagram for the life `server` was not taken here.
    pub(super) fn say_unopened(&mut self, client: Sender, server: Uid, number: u64, reason: Unreadable) {
        let binding = Unopened::binding(client.uid, server, self.address);
        self.post(client.address, Frame::Unopened(Unopened { binding, number, reason }));
    }

    /// Queues the question which servers serve a port.
    pub(super) fn ask(&mut self, to: CallDestination, nonce: u64, port: Port) {
        self.counters.locates += 1;
        let key = self.agreement.public_key();
        self.post_to(To::Anyone(to), Frame::LocatePort { nonce, port, key });
    }

    /// Returns the maximum length of a request or reply that travels in one datagram.
    pub(super) fn whole_bytes_max(&self) -> usize {
        self.settings.datagram_bytes_max - BESIDE_WHOLE_BYTES
    }

    /// Returns the length of each part of a larger one.
    pub(super) fn part_bytes(&self) -> usize {
        let head = FRAME_HEAD_BYTES + FrameKind::Part.body_bytes_min() - 1;
        self.settings.datagram_bytes_max - BESIDE_FRAMES_BYTES - head
    }

    /// Notes that a rare state was met.
    #[inline]
    pub(super) fn probe(&mut self, probe: Probe) {
        if cfg!(feature = "planted") {
            self.probes |= 1 << (probe as u32);
        }
    }

    /// True if its client takes what it can get.
    #[inline]
    pub(super) fn is_hostile(&self) -> bool {
        cfg!(feature = "planted") && self.is_hostile
    }

    /// Returns what a hostile client says of a request: how often it was forwarded, and whether it is a repeat.
    #[inline]
    pub(super) fn claims(&mut self) -> Option<(u8, bool)> {
        self.is_hostile().then(|| (self.random.below(9) as u8, self.random.below(2) == 0))
    }

    /// True if this planted bug is switched on.
    #[inline]
    pub(super) fn broken(&self, bug: Planted) -> bool {
        cfg!(feature = "planted") && self.planted == Some(bug)
    }
}

/// Returns how long to wait for an answer before asking again.
pub(super) fn patience(round_trip: &RoundTrip) -> Duration {
    round_trip.most().map_or(PATIENCE_FIRST, |most| most.clamp(PATIENCE_MIN, PATIENCE_MAX))
}

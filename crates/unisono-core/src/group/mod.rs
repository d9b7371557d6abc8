//! One member's side of one group.
#![allow(unused_variables, missing_docs, clippy::unimplemented)]

use crate::config::{GroupConfig, Settings};
use crate::error::*;
use crate::event::{Event, Outcome};
use crate::identity::*;
use crate::look::{Counters, Report};
use crate::random::Random;
use crate::time::Time;
use crate::wire::Protection;
use alloc::boxed::Box;
use alloc::vec::Vec;
use bytes::{Bytes, BytesMut};
use core::net::SocketAddr;

/// One member's protocol state for one group: a pure state machine.
///
/// After each input (a `handle_…` call or a command) drain [`Group::poll_transmit`] and, as far as the application
/// takes them, [`Group::poll_event`], then sleep until [`Group::poll_timeout`].
pub struct Group {}

/// How a member comes to be in a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Found a new group, whether or not there is one of this port.
    Found(GroupConfig),
    /// Join the group of this port; fail if there is none.
    Join,
    /// Join the group of this port; found it if nobody answers.
    JoinOrFound(GroupConfig),
}

/// Where a datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// To one address.
    Address(SocketAddr),
    /// To the whole group: as [`Group::audience`] says.
    Everyone,
    /// To the group's multicast address, whoever is seen to hear it: a probe of that path.
    Multicast,
    /// To whoever may know the group: the discovery multicast, or the seed addresses.
    Rendezvous,
}

/// Who hears a datagram for the whole group: one multicast if that is set, and one copy to each of the addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Audience {
    pub multicast: bool,
    pub addresses: Vec<SocketAddr>,
}

/// What a timeout is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    Locate,
    Join,
    Leave,
    Heartbeat,
    Nack,
    Resend,
    Acknowledge,
    Detector,
    Reset,
    Linger,
}

/// What [`Group::info`] tells (GetInfoGroup).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    pub phase: Phase,
    pub epoch: EpochId,
    /// In rank order.
    pub members: Vec<Member>,
    pub me: Uid,
    /// My rank, if I am a member.
    pub rank: Option<usize>,
    pub orderer: Uid,
    /// The next place to be given to the application.
    pub expected: Seqno,
    /// The next place to be acknowledged: one past what is held without a gap.
    pub unstable: Seqno,
    /// Everything through here is accepted.
    pub accepted: Seqno,
    /// Messages in the history.
    pub buffered: usize,
    /// Messages of mine under way.
    pub under_way: usize,
    /// The group's resilience, held to members − 1.
    pub resilience: u8,
    pub resets: u64,
}

/// Where a member stands in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Looking for the group.
    Locating,
    /// Listening, not a member yet.
    Joining,
    /// A member.
    Member,
    /// A member whose group is being reset.
    Resetting,
    /// Asked to leave, or left and still serving.
    Leaving,
    /// Excluded, and still serving its log.
    Excluded,
    /// Gone: nothing more happens.
    Gone,
}

/// Where a member stands (see [`Group::marks`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    pub epoch: EpochTag,
    /// The place of the event that named the orderer under whom this member stands.
    pub term: Seqno,
    /// This member gives out numbers now.
    pub acting: bool,
    /// The highest number known without a gap, data included: what it has, tentative entries too.
    pub received: Seqno,
    pub accepted: Seqno,
    pub delivered: Seqno,
    /// Everything through here has left the history.
    pub purged: Seqno,
    /// Entries in the history.
    pub history: usize,
    pub promised: bool,
}

/// A protocol bug that can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Planted {
    /// An example; the list grows with the rules.
    AcceptWithOneAckLess,
}

impl Planted {
    pub const ALL: &'static [Planted] = &[Planted::AcceptWithOneAckLess];
}

/// A rare state worth reaching.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Probe {
    /// An example; the list grows with the rules.
    TwoCoordinators,
}

impl Probe {
    pub const ALL: &'static [Probe] = &[Probe::TwoCoordinators];
}

impl Group {
    /// A member that is about to found or join the group of `port`. `random` is seeded by the caller.
    pub fn new(
        now: Time,
        me: Member,
        port: Port,
        entry: Entry,
        hello: Bytes,
        settings: Settings,
        protection: Box<dyn Protection>,
        random: Random,
    ) -> Result<Group, ConfigError> {
        unimplemented!()
    }

    // inputs
    pub fn handle_datagram(&mut self, now: Time, from: SocketAddr, datagram: BytesMut) {
        unimplemented!()
    }
    /// `by_multicast`: it came over the group's multicast address.
    pub fn handle_multicast(&mut self, now: Time, from: SocketAddr, datagram: BytesMut) {
        unimplemented!()
    }
    pub fn handle_timeout(&mut self, now: Time) {
        unimplemented!()
    }

    // commands
    pub fn send(&mut self, now: Time, payload: Bytes) -> Result<MessageNumber, SendError> {
        unimplemented!()
    }
    /// Survives `resilience` crashes, if that is more than the group's.
    pub fn send_resilient(
        &mut self,
        now: Time,
        payload: Bytes,
        resilience: u8,
    ) -> Result<MessageNumber, SendError> {
        unimplemented!()
    }
    pub fn leave(&mut self, now: Time, goodbye: Bytes) -> Result<(), LeaveError> {
        unimplemented!()
    }
    pub fn reset(&mut self, now: Time, min_members: usize) -> Result<(), ResetError> {
        unimplemented!()
    }
    pub fn hand_over(&mut self, now: Time, to: Uid) -> Result<(), HandOverError> {
        unimplemented!()
    }

    // outputs
    /// The next datagram to send, written into `out` (which is cleared first).
    pub fn poll_transmit(&mut self, now: Time, out: &mut Vec<u8>) -> Option<Destination> {
        unimplemented!()
    }
    pub fn audience(&self) -> &Audience {
        unimplemented!()
    }
    /// The next event. What is not taken presses back on the senders.
    pub fn poll_event(&mut self) -> Option<Event> {
        unimplemented!()
    }
    /// What became of a message sent from here, in the order of their numbers. Not part of the event stream: a sender
    /// learns it even while its application receives nothing. Drain it after every input.
    pub fn poll_sent(&mut self) -> Option<(MessageNumber, Outcome)> {
        unimplemented!()
    }
    /// When to call [`Group::handle_timeout`], and what for.
    pub fn poll_timeout(&self) -> Option<(Time, Reason)> {
        unimplemented!()
    }

    // looking
    pub fn info(&self) -> Info {
        unimplemented!()
    }
    pub fn report(&self, now: Time) -> Report {
        unimplemented!()
    }
    pub fn counters(&self) -> Counters {
        unimplemented!()
    }
    pub fn phase(&self) -> Phase {
        unimplemented!()
    }
    pub fn tag(&self) -> GroupTag {
        unimplemented!()
    }
    /// Where this member stands, for checkers: cheap enough to read after every input.
    pub fn marks(&self) -> Marks {
        unimplemented!()
    }
    /// Switches a protocol bug on (feature `planted`).
    pub fn plant(&mut self, bug: Planted) {
        unimplemented!()
    }
    /// The rare states met so far: a set of [`Probe`]s.
    pub fn probes(&self) -> u128 {
        unimplemented!()
    }
}

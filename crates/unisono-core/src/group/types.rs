//! The types of a group's contract.

use crate::config::{Formation, GroupConfig};
use crate::identity::{EpochId, Instance, Member, Seqno, Uid};
use crate::look::LastReset;
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::time::Duration;

/// How a member comes to be in a group. Exhaustive: a driver treats each entry in its own way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryMode {
    /// Found a new group, whether or not there is one of this port.
    Found(GroupConfig),
    /// Join the group of this port; fail if there is none.
    Join,
    /// Join the group of this port; found it if nobody answers.
    JoinOrFound(GroupConfig),
    /// Form a new group together with others that give the same names: at least so many of them, within the time
    /// given, or none (atomic group creation). All who enter begin with the same view, without a join of their own:
    /// no hello is delivered. Otherwise [`Event::JoinFailed`](crate::Event::JoinFailed) says that the group was not
    /// formed here; it may be formed elsewhere, to be joined. Participants that restart meanwhile can make a second
    /// group, if too many do: see [`Formation::at_least`].
    Form(Formation, GroupConfig),
}

/// Where a datagram goes. Exhaustive: a driver must know how to send to each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// To one address.
    Address(SocketAddr),
    /// To the whole group: as [`Group::audience`](crate::Group::audience) says.
    Everyone,
    /// To the group's multicast address, whoever is seen to hear it: a probe of that path.
    Multicast,
    /// To whoever may know the group: the discovery multicast, or the seed addresses.
    Rendezvous,
}

/// What a timeout is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// Looking for other groups of the same port.
    Locate,
    /// Looking for the group, or asking to be let in.
    Join,
    /// The next step of forming a group.
    Form,
    /// Asking to leave, or leaving without a farewell.
    Leave,
    /// A heartbeat, or telling a successor of its role.
    Heartbeat,
    /// Asking for what is lacking.
    Nack,
    /// Sending again what got no number.
    Resend,
    /// Looking at who has been silent.
    Detector,
    /// The next step of a reset.
    Reset,
    /// An excluded member asking whether it may go.
    Linger,
}

/// What [`Group::info`](crate::Group::info) tells (GetInfoGroup).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Info {
    /// Where this member stands.
    pub phase: Phase,
    /// Names the founding of the group: another group of its port has another. 0 before one was found.
    pub instance: Instance,
    /// The epoch.
    pub epoch: EpochId,
    /// In rank order.
    pub members: Vec<Member>,
    /// This member.
    pub me: Uid,
    /// My rank, if I am a member.
    pub rank: Option<usize>,
    /// Who orders.
    pub sequencer: Uid,
    /// What this member sends to all goes by multicast, to those who hear it.
    pub by_multicast: bool,
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
    /// How many may be.
    pub window: usize,
    /// The group's resilience, held to members − 1.
    pub resilience: u8,
    /// Resets lived through.
    pub resets: u64,
    /// The last of them, and why it came about.
    pub last_reset: Option<LastReset>,
    /// Who spoke last of a group of this name under another key
    /// ([`Counters::foreign`](crate::look::Counters::foreign)).
    pub foreign: Option<SocketAddr>,
}

/// A member's part in the group at present: what a leader or the holder of a lock goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Standing {
    /// A member of a group that orders, as far as it knows. A member that was cut off learns so only after the failure
    /// detector's time.
    Primary,
    /// A reset is under way, or with the manual policy a member is suspected.
    Resetting,
    /// A reset is under way and finds no quorum.
    Halted,
    /// Not a member: not yet, or no longer.
    Out,
}

/// A member whose application does not receive, so that all members wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldUp {
    /// The member.
    pub member: Uid,
    /// For how long the others have waited.
    pub since: Duration,
}

/// Where a member stands in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Phase {
    /// Looking for the group, or for those to form it with.
    Locating,
    /// Listening, not a member yet.
    Joining,
    /// A member.
    Member,
    /// A member whose group is being reset.
    Resetting,
    /// Asked to leave, or left and still serving.
    Leaving,
    /// Out by a reset, and still serving its log: excluded, or [left](crate::Group::has_left) if that kept its leave.
    Excluded,
    /// Gone: nothing more happens.
    Gone,
}

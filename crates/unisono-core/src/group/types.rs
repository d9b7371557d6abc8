//! The types of a group's contract with its caller.

use crate::config::{Formation, GroupConfig, Order};
use crate::identity::{EpochId, Instance, Member, Seqno, Uid};
use crate::look::LastReset;
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::time::Duration;

/// How a member enters a group. Exhaustive: a driver treats each mode in its own way.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum EntryMode {
    /// Found a new group, whether or not one exists under this port.
    Found(GroupConfig),
    /// Join the group of this port; fail if there is none.
    Join,
    /// Join the group of this port; found it if no member answers.
    JoinOrFound(GroupConfig),
    /// Form a new group together with others that give the same names: at least the given number of them, within the
    /// time given, or none (atomic group creation). All that enter begin with the same view, without a join of their
    /// own: no hello is delivered. Otherwise [`Event::JoinFailed`](crate::Event::JoinFailed) reports that the group was
    /// not formed here; it may be formed elsewhere, to be joined. If too many participants restart meanwhile, they can
    /// make a second group: see [`Formation::at_least`].
    Form(Formation, GroupConfig),
    /// Join the group of this port, or form it together with others that give the same names: the way in for processes
    /// that must not found a second group because they hear none. This process looks for the group as long as it is in
    /// none, and takes part in the formation only after a search ([`Settings::locate`](crate::Settings::locate)) that no
    /// member answered. Once a member answers, it gives its part up and joins. If the others form the group without it,
    /// it joins that. The formation's time bounds all: the failure then says whether a group was heard
    /// ([`JoinFailure::Lost`](crate::JoinFailure::Lost), `Unreachable`, `Halted`) or none was formed (`NotFormed`). A
    /// join delivers the hello, a formation does not.
    JoinOrForm(Formation, GroupConfig),
}

/// Where a datagram goes. Exhaustive: a driver must know how to send to each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// One address.
    Address(SocketAddr),
    /// The whole group, as [`Group::audience`](crate::Group::audience) says.
    Everyone,
    /// The group's multicast address, whether or not members are seen to hear it: a probe of that path.
    Multicast,
    /// Processes that may know the group: the discovery multicast, or the seed addresses.
    Rendezvous,
}

/// Why a timeout is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// Looking for other groups of the same port.
    Locate,
    /// Looking for the group, or asking to join it.
    Join,
    /// The next step of forming a group.
    Form,
    /// Asking to leave, or leaving without a farewell.
    Leave,
    /// A heartbeat, or a report to a successor about its role.
    Heartbeat,
    /// Requesting what is lacking.
    Nack,
    /// Resending messages that got no seqno.
    Resend,
    /// Checking which peers are silent.
    Detector,
    /// The next step of a reset.
    Reset,
    /// Asking members again that have not answered a confirmation.
    Confirm,
    /// Asking the sequencer again for another order.
    Switch,
    /// Sending this member's note, which waited for a datagram that goes anyway.
    Note,
    /// An excluded member asking whether it may go.
    Linger,
}

/// The result of [`Group::info`](crate::Group::info) (GetInfoGroup).
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Info {
    /// Phase of this member's life.
    pub phase: Phase,
    /// Names the founding of the group: another group of its port has another value. 0 before a group was found.
    pub instance: Instance,
    /// The epoch.
    pub epoch: EpochId,
    /// The members in rank order.
    pub members: Vec<Member>,
    /// This member's uid.
    pub me: Uid,
    /// This member's rank, if it is in the view.
    pub rank: Option<usize>,
    /// How the group is ordered.
    pub order: Order,
    /// The sequencer; in a ring, the member that has the token.
    pub sequencer: Uid,
    /// True if datagrams of this member to all go by multicast, to the members that hear it.
    pub by_multicast: bool,
    /// Next seqno to be handed to the application.
    pub expected: Seqno,
    /// Next seqno to be acknowledged: one past everything that is held without a gap.
    pub unstable: Seqno,
    /// Everything through here is accepted.
    pub accepted: Seqno,
    /// Number of entries in the history.
    pub buffered: usize,
    /// Number of this member's messages under way.
    pub under_way: usize,
    /// Maximum number of messages under way.
    pub window: usize,
    /// The group's resilience, at most members − 1.
    pub resilience: u8,
    /// Number of resets that this member went through.
    pub resets: u64,
    /// The last of them, and its reason.
    pub last_reset: Option<LastReset>,
    /// Last address that sent a datagram of a group of this name under another key
    /// ([`Counters::foreign`](crate::look::Counters::foreign)).
    pub foreign: Option<SocketAddr>,
    /// Source and version of the last datagram for a group of this name in another version of the wire format
    /// ([`Counters::other_version`](crate::look::Counters::other_version)).
    pub other_version: Option<(SocketAddr, u8)>,
}

/// A member's part in the group at present. A leader or the holder of a lock acts only while it is `Primary`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Standing {
    /// A member of a group that orders, as far as it knows. A member that was cut off learns so only after the failure
    /// detector's time.
    Primary,
    /// A reset is under way, or with the manual policy a member is suspected.
    Resetting,
    /// The group orders no messages: a reset is under way and finds no quorum, or the group has fewer members than its
    /// minimum ([`GroupConfig::members_min`]).
    Halted,
    /// Not a member: not yet, or no longer.
    Out,
}

/// A member whose application does not receive, so that all members wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct HeldUp {
    /// The member.
    pub member: Uid,
    /// For how long the others have waited.
    pub since: Duration,
}

/// A phase of a member's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Phase {
    /// Looking for the group, or for participants to form it with.
    Locating,
    /// Listening; not a member yet.
    Joining,
    /// A member.
    Member,
    /// A member whose group is being reset.
    Resetting,
    /// Asked to leave, or left and still serving.
    Leaving,
    /// Out by a reset, and still serving its log: excluded, or [left](crate::Group::has_left) if the reset kept its
    /// leave.
    Excluded,
    /// Stopped: nothing more happens.
    Gone,
}

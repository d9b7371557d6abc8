//! What a member reports about its group to a process outside: for `members`, `status`, `why`, `stats`, `links`.

use crate::config::Order;
use crate::event::Suspicion;
use crate::identity::{EpochId, Member, Seqno, Uid};
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

/// A member's report on its group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
#[non_exhaustive]
pub struct Report {
    /// The epoch.
    pub epoch: EpochId,
    /// True if the reporting member is in the one line of views, neither in a reset nor excluded, and the group orders
    /// messages: it has as many members as its minimum.
    pub primary: bool,
    /// The reporting member.
    pub reporter: Uid,
    /// How the group is ordered.
    pub order: Order,
    /// Seqno of the event from which on it is ordered so; 0 if it was founded so.
    pub order_since: Seqno,
    /// The sequencer; in a ring, the member that has the token.
    pub sequencer: Uid,
    /// Seqno of the event that named the sequencer.
    pub term: Seqno,
    /// The group's resilience, at most members − 1.
    pub resilience: u8,
    /// The resilience that the group was founded with.
    pub resilience_founded: u8,
    /// Highest seqno known.
    pub end: Seqno,
    /// Everything through here is accepted.
    pub accepted: Seqno,
    /// Every member holds everything through here, as far as the sequencer knows.
    pub stable: Seqno,
    /// The members in rank order.
    pub members: Vec<MemberReport>,
    /// Number of further members, the last in rank. A reply to a process outside is no longer than the query, which has
    /// room for about twenty members.
    pub members_omitted: usize,
    /// What the reporter waits for.
    pub waiting: Vec<Waiting>,
    /// Number of further waits.
    pub waiting_omitted: usize,
    /// Messages and changes in the reporter's history, kept for members that lack them.
    pub buffered: u32,
    /// Maximum number of a member's own messages under way.
    pub window: u32,
    /// Number of the reporter's messages under way.
    pub under_way: u32,
    /// Time that the reporter has been in this epoch.
    pub in_epoch: Duration,
    /// The last reset that the reporter went through.
    pub last_reset: Option<LastReset>,
    /// What the reporter has counted.
    pub counters: Counters,
}

/// A reset that a member went through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
#[non_exhaustive]
pub struct LastReset {
    /// Seqno of the reset event.
    pub seqno: Seqno,
    /// Number of members that it excluded; 65,535 stands for that number or more.
    pub excluded: u16,
    /// True if these are more than the resilience covers: messages may have been lost.
    pub degraded: bool,
    /// True if an operator forced it: it had no quorum.
    pub forced: bool,
    /// Reason why this member suspected one of them; `None` if only others suspected them.
    pub reason: Option<Suspicion>,
}

impl fmt::Display for LastReset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let members = if self.excluded == 1 { "member" } else { "members" };
        write!(f, "at seqno {}, excluding {} {members}", self.seqno, self.excluded)?;
        f.write_str(match self.reason {
            None => ": suspected by others",
            Some(Suspicion::Silent) => ": silent",
            Some(Suspicion::Deaf) => ": deaf",
            Some(Suspicion::Replaced) => ": replaced by a new process",
            Some(Suspicion::Slow) => ": slow",
        })?;
        f.write_str(if self.forced { "; forced" } else { "" })?;
        f.write_str(if self.degraded { "; messages may have been lost" } else { "" })
    }
}

/// One member as the reporter sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct MemberReport {
    /// Uid, name and address.
    pub member: Member,
    /// It is known to hold everything through here.
    pub received: Seqno,
    /// It is known to have delivered everything through here.
    pub delivered: Seqno,
    /// True if it is suspected at present.
    pub suspected: bool,
    /// True if datagrams for the group reach it by multicast.
    pub multicast: bool,
    /// Time since the reporter last received something from it.
    pub silent: Duration,
}

impl MemberReport {
    /// Returns a report on a member of which only identity and address are known.
    pub fn new(member: Member) -> MemberReport {
        MemberReport {
            member,
            received: 0,
            delivered: 0,
            suspected: false,
            multicast: false,
            silent: Duration::ZERO,
        }
    }
}

/// One thing that a member waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Waiting {
    /// The member that waits.
    pub who: Uid,
    /// What it waits for.
    pub reason: WaitReason,
    /// The member that it waits for, if that is known.
    pub member: Option<Uid>,
    /// Seqno at which it waits.
    pub seqno: Seqno,
    /// Time that it has waited.
    pub since: Duration,
}

impl Waiting {
    /// Returns a wait that begins now, at seqno 0, for no particular member.
    pub fn new(who: Uid, reason: WaitReason) -> Waiting {
        Waiting { who, reason, member: None, seqno: 0, since: Duration::ZERO }
    }
}

/// What a member waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum WaitReason {
    /// An acknowledgement that acceptance needs.
    Ack,
    /// Room: a member that is behind keeps the history full or the window shut.
    Window,
    /// A successor that has not taken the role yet.
    Token,
    /// In a ring: the token rests here while that member joins, leaves, listens or is suspected.
    Rest,
    /// Seqnos that this member lacks.
    Flush,
    /// The end of a reset.
    Reset,
    /// One more member: the group has fewer than its minimum ([`members_min`](crate::GroupConfig::members_min)). There is
    /// one such wait for each member that is missing.
    Minimum,
}

/// What a member has counted since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
#[non_exhaustive]
pub struct Counters {
    /// Datagrams sent. A multicast counts once; otherwise each copy counts. (A query to all seeds counts once.)
    pub datagrams_sent: u64,
    /// Datagrams received and not dropped.
    pub datagrams_received: u64,
    /// Datagrams dropped because they are not ours, damaged, or not decodable.
    pub malformed: u64,
    /// Datagrams dropped because they are of a group of this name under another key. While no member answers a joiner,
    /// it cannot tell its own group's datagrams from these.
    pub foreign: u64,
    /// Datagrams of this group's name dropped because of another version of the wire format. In a report that travels
    /// they count as malformed: version 1 of the wire format has no field for them.
    pub other_version: u64,
    /// Datagrams dropped because they were seen before.
    pub replayed: u64,
    /// Datagrams dropped because they are of another epoch or founding, or from a stranger.
    pub stale: u64,
    /// Messages of this member that are in the order.
    pub messages_sent: u64,
    /// Messages delivered here, unreliable ones not counted.
    pub messages_delivered: u64,
    /// Messages among them that were delivered before their seqno was known.
    pub early: u64,
    /// Unreliable messages delivered here.
    pub unreliable: u64,
    /// NACKs sent.
    pub nacks_sent: u64,
    /// Seqnos sent again because a member requested them.
    pub repairs_sent: u64,
    /// Times that own messages were resent because no seqno came back.
    pub resends: u64,
    /// Resets that the member went through.
    pub resets: u64,
    /// Suspicions that this member raised.
    pub suspicions: u64,
    /// Times that this member passed the token on. This and the next two are 0 in a group that is no ring.
    pub passes: u64,
    /// Of these, passes at the end of a term in which this member numbered no message.
    pub null_passes: u64,
    /// Terms of this member in which the token rested: at least once it could have gone to another member, and nothing
    /// called for a pass.
    pub rests: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn a_last_reset_says_how_many_are_missing_and_why() {
        let one = LastReset {
            seqno: 9,
            excluded: 1,
            degraded: false,
            forced: false,
            reason: Some(Suspicion::Silent),
        };
        assert_eq!(one.to_string(), "at seqno 9, excluding 1 member: silent");
        let two = LastReset { excluded: 2, degraded: true, reason: None, ..one };
        assert_eq!(
            two.to_string(),
            "at seqno 9, excluding 2 members: suspected by others; messages may have been lost"
        );
    }
}

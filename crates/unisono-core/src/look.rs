//! What a member tells whoever looks at the group from outside: `members`, `status`, `why`, `stats`, `links`.

use crate::event::Suspicion;
use crate::identity::{EpochId, Member, Seqno, Uid};
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

/// A member's account of its group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The epoch.
    pub epoch: EpochId,
    /// The reporting member takes part in the one line of views (it is not being reset, nor excluded).
    pub primary: bool,
    /// Who reports.
    pub reporter: Uid,
    /// Who orders.
    pub sequencer: Uid,
    /// The place of the event that named the sequencer.
    pub term: Seqno,
    /// The group's resilience, held to members − 1.
    pub resilience: u8,
    /// The resilience that the group was founded with.
    pub resilience_founded: u8,
    /// The highest number known.
    pub end: Seqno,
    /// Everything through here is accepted.
    pub accepted: Seqno,
    /// Everything through here is held by every member, as far as the sequencer knows.
    pub stable: Seqno,
    /// The members in rank order.
    pub members: Vec<MemberReport>,
    /// How many more members there are, the last in rank: an answer to somebody outside is no longer than the question,
    /// which has room for about twenty.
    pub members_omitted: usize,
    /// What the reporter waits for.
    pub waiting: Vec<Waiting>,
    /// How much more it waits for.
    pub waiting_omitted: usize,
    /// Messages and changes in the reporter's history, kept for whoever lacks them.
    pub buffered: u32,
    /// How many messages of its own a member may have under way.
    pub window: u32,
    /// How many the reporter has.
    pub under_way: u32,
    /// How long the reporter has been in this epoch.
    pub in_epoch: Duration,
    /// The last reset that the reporter lived through.
    pub last_reset: Option<LastReset>,
    /// What the reporter has counted.
    pub counters: Counters,
}

/// A reset that a member lived through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LastReset {
    /// The place of its event.
    pub seqno: Seqno,
    /// How many members it excluded; so many or more, if it is 65,535.
    pub excluded: u16,
    /// More than the resilience covers: messages may have been lost.
    pub degraded: bool,
    /// An operator forced it: it had no quorum.
    pub forced: bool,
    /// What this member held against one of them. Nothing if it took the word of others.
    pub reason: Option<Suspicion>,
}

impl fmt::Display for LastReset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let members = if self.excluded == 1 { "member" } else { "members" };
        write!(f, "at place {}, without {} {members}", self.seqno, self.excluded)?;
        f.write_str(match self.reason {
            None => ": on the word of others",
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
#[non_exhaustive]
pub struct MemberReport {
    /// Who and where.
    pub member: Member,
    /// Known to hold everything through here.
    pub received: Seqno,
    /// Known to have delivered everything through here.
    pub delivered: Seqno,
    /// Suspected at present.
    pub suspected: bool,
    /// Group datagrams reach it by multicast.
    pub multicast: bool,
    /// Time since the reporter heard it.
    pub silent: Duration,
}

impl MemberReport {
    /// A report on a member of which nothing is known but who and where it is.
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

/// Somebody is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waiting {
    /// Who waits.
    pub who: Uid,
    /// What for.
    pub reason: WaitReason,
    /// Whom it waits for, if that is known.
    pub member: Option<Uid>,
    /// The place it waits at.
    pub seqno: Seqno,
    /// How long already.
    pub since: Duration,
}

impl Waiting {
    /// A wait that begins now, at seqno 0, for no member in particular.
    pub fn new(who: Uid, reason: WaitReason) -> Waiting {
        Waiting { who, reason, member: None, seqno: 0, since: Duration::ZERO }
    }
}

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitReason {
    /// An acknowledgement that acceptance needs.
    Ack,
    /// Room: a member that is behind keeps the history full or the window shut.
    Window,
    /// A successor that has not taken the role yet.
    Token,
    /// Places that this member lacks.
    Flush,
    /// The end of a reset.
    Reset,
}

/// What a member has counted since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Datagrams sent: a multicast counts once, and otherwise each copy (a question to all seeds counts once).
    pub datagrams_sent: u64,
    /// Datagrams taken.
    pub datagrams_received: u64,
    /// Datagrams dropped: not ours, not intact, or not decodable.
    pub malformed: u64,
    /// Datagrams dropped: of a group of this name, but under another key. As long as nobody answers it, a joiner cannot
    /// tell those of its own group from them.
    pub foreign: u64,
    /// Datagrams dropped: seen before.
    pub replayed: u64,
    /// Datagrams dropped: of another epoch or another founding, or from a stranger.
    pub stale: u64,
    /// Messages of this member that were ordered.
    pub messages_sent: u64,
    /// Messages delivered here.
    pub messages_delivered: u64,
    /// NACKs sent.
    pub nacks_sent: u64,
    /// Places sent again because somebody asked.
    pub repairs_sent: u64,
    /// Own messages sent again because no place came back.
    pub resends: u64,
    /// Resets lived through.
    pub resets: u64,
    /// Suspicions raised here.
    pub suspicions: u64,
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
        assert_eq!(one.to_string(), "at place 9, without 1 member: silent");
        let two = LastReset { excluded: 2, degraded: true, reason: None, ..one };
        assert_eq!(
            two.to_string(),
            "at place 9, without 2 members: on the word of others; messages may have been lost"
        );
    }
}

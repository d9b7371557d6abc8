//! Episodes: occurrences that an operator wants to find in a log, each reported once, when it begins or ends.
//!
//! The core writes no log. It queues an [`Episode`], and the driver takes it with [`Group::poll_episode`] after each
//! input, whether or not the application receives events. Episodes affect no datagram and no event: a driver that never
//! takes them loses the oldest, and nothing else.

use crate::config::Order;
use crate::event::Suspicion;
use crate::group::{Group, Phase};
use crate::identity::{EpochId, Member, Seqno, Uid};
use crate::log::Entry;
use crate::time::Time;
use crate::wire::Change;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::time::Duration;

/// Maximum number of episodes that wait for the driver: more than one input causes, unless it accepts many joins.
const EPISODES_MAX: usize = 64;
/// Datagrams that cannot be read are reported again only after 60 s without one: an hour of them is one episode.
const QUIET: Duration = Duration::from_secs(60);

/// An occurrence that is worth a line in a log.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Episode {
    /// This member entered the group. It founded the group if `seqno` is 0 and `members` is 1; it formed the group with
    /// others if `seqno` is 0 and `members` is more; otherwise it joined.
    Entered {
        /// Seqno of its join.
        seqno: Seqno,
        /// Number of members, this one included.
        members: usize,
    },
    /// Another member's join is accepted.
    Joined {
        /// Seqno of the join.
        seqno: Seqno,
        /// The member that joined.
        member: Member,
        /// Number of members after the join.
        members: usize,
    },
    /// The leave of a member is accepted; the member may be this one.
    Left {
        /// Seqno of the leave.
        seqno: Seqno,
        /// The member that left.
        member: Member,
        /// Number of members after the leave.
        members: usize,
    },
    /// Another member is the sequencer from now on: by a hand-over, or because the sequencer left.
    HandedOver {
        /// Seqno of the hand-over or the leave.
        seqno: Seqno,
        /// The new sequencer.
        to: Member,
    },
    /// The group is ordered otherwise from now on.
    OrderChanged {
        /// Seqno of the event.
        seqno: Seqno,
        /// The order from here on.
        order: Order,
    },
    /// This member suspects another one. Reported under the automatic policy too, unlike
    /// [`Event::Suspected`](crate::Event::Suspected).
    Suspected {
        /// The suspected member.
        member: Member,
        /// Reason for the suspicion.
        reason: Suspicion,
    },
    /// A reset began at this member. Later ballots of the same reset are not reported.
    ResetBegun {
        /// Coordinator of the first ballot; `None` if this member received only the decision.
        coordinator: Option<Uid>,
    },
    /// The reset is over, and this member is in the new view.
    ResetEnded {
        /// Seqno of the reset.
        seqno: Seqno,
        /// Number of members of the new view.
        members: usize,
        /// Members of the old view that are not in the new one.
        excluded: Vec<Member>,
        /// True if the reset excluded more members than the resilience covers: messages may be lost.
        degraded: bool,
        /// Time since this member's [`Episode::ResetBegun`].
        took: Duration,
    },
    /// The group excluded this member.
    Excluded {
        /// Epoch that began without this member, if it knows it.
        epoch: Option<EpochId>,
    },
    /// Another group of the same name exists. Reported once for each such group.
    Conflict {
        /// Address of a member of the other group.
        address: SocketAddr,
        /// True if this group is the one to give way, if one of the two is to.
        gives_way: bool,
        /// Number of events that the other group had ordered when they met.
        other_ordered: Seqno,
    },
    /// A datagram for a group of this name is protected by another key. Reported again only after a minute without one.
    Foreign {
        /// Source address of the datagram.
        address: SocketAddr,
    },
    /// A datagram for a group of this name has another version of the wire format. Reported again only after a minute
    /// without one.
    OtherVersion {
        /// Source address of the datagram.
        address: SocketAddr,
        /// Its version.
        version: u8,
    },
}

/// Episodes that the driver has not taken yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct Episodes {
    queue: VecDeque<Episode>,
    /// Time of the last datagram under another key.
    foreign_at: Option<Time>,
    /// Time of the last datagram of another version.
    other_version_at: Option<Time>,
}

impl Episodes {
    pub(crate) fn push(&mut self, episode: Episode) {
        if self.queue.len() == EPISODES_MAX {
            self.queue.pop_front();
        }
        self.queue.push_back(episode);
    }

    pub(crate) fn note_foreign(&mut self, now: Time, address: SocketAddr) {
        if is_news(&mut self.foreign_at, now) {
            self.push(Episode::Foreign { address });
        }
    }

    pub(crate) fn note_other_version(&mut self, now: Time, address: SocketAddr, version: u8) {
        if is_news(&mut self.other_version_at, now) {
            self.push(Episode::OtherVersion { address, version });
        }
    }
}

/// True if an occurrence at `now` begins a new episode. `last` is the time of the last such occurrence; becomes `now`.
fn is_news(last: &mut Option<Time>, now: Time) -> bool {
    last.replace(now).is_none_or(|last| now.since(last) >= QUIET)
}

impl Group {
    /// Returns the oldest episode that the driver has not taken; `None` if it has taken all.
    #[inline]
    pub fn poll_episode(&mut self) -> Option<Episode> {
        self.episodes.queue.pop_front()
    }

    /// Queues an episode for each change that was accepted beyond `before`.
    #[inline]
    pub(crate) fn note_changes_accepted(&mut self, before: Seqno) {
        if self.log.history().last_change() > before || (self.term() > before && !self.is_ring()) {
            self.queue_changes(before);
        }
    }

    #[cold]
    fn queue_changes(&mut self, before: Seqno) {
        if matches!(self.phase, Phase::Locating | Phase::Joining) {
            return;
        }
        for seqno in before.max(self.entered_at) + 1..=self.log.accepted() {
            let Some(change) = self.log.history().get(seqno).and_then(Entry::to_change) else { continue };
            let members = self.log.history().view_at(seqno).len();
            let member_at = |seqno, uid| {
                self.log.history().view_at(seqno).iter().find(|member: &&Member| member.uid == uid).cloned()
            };
            let (change, handover) = match change {
                Change::Join { member, .. } => (Some(Episode::Joined { seqno, member, members }), None),
                Change::Leave { uid, .. } => {
                    let left = member_at(seqno - 1, uid);
                    let (term, successor) = self.log.history().term_at(seqno);
                    let successor = if term == seqno { member_at(seqno, successor) } else { None };
                    (left.map(|member| Episode::Left { seqno, member, members }), successor)
                }
                // A pass of a token is none.
                Change::Role { .. } if self.is_pass(seqno) => continue,
                Change::Role { sequencer } => (None, member_at(seqno, sequencer)),
                Change::Order { order, .. } => (Some(Episode::OrderChanged { seqno, order }), None),
            };
            let handover = handover.map(|to| Episode::HandedOver { seqno, to });
            change.into_iter().chain(handover).for_each(|episode| self.episodes.push(episode));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;

    const ADDRESS: SocketAddr = SocketAddr::new(core::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 1);

    #[test]
    fn datagrams_under_another_key_are_reported_again_after_a_minute_without_one() {
        let mut episodes = Episodes::default();
        let mut reported = Vec::new();
        for second in [0, 30, 89, 149, 150, 300] {
            episodes.note_foreign(Time::ZERO + Duration::from_secs(second), ADDRESS);
            reported.extend(episodes.queue.drain(..).map(|_| second));
        }
        assert_eq!(reported, [0, 149, 300]);
    }

    #[test]
    fn a_driver_that_never_polls_loses_the_oldest() {
        let mut episodes = Episodes::default();
        for members in 0..=EPISODES_MAX {
            episodes.push(Episode::Entered { seqno: 0, members });
        }
        assert_eq!(episodes.queue.len(), EPISODES_MAX);
        assert_eq!(episodes.queue.front(), Some(&Episode::Entered { seqno: 0, members: 1 }));
    }
}

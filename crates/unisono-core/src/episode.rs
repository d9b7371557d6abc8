//! Episodes: what an operator wants to find in a log, told once when it begins or ends.
//!
//! The core writes no log. It queues an [`Episode`] where one happens, and its driver takes them with
//! [`Group::poll_episode`] after each input, whether or not the application receives events. Episodes change no datagram
//! and no event: a driver that never asks loses the oldest and nothing else.

use crate::event::Suspicion;
use crate::group::{Group, Phase};
use crate::history::Entry;
use crate::identity::{EpochId, Member, Seqno, Uid};
use crate::time::Time;
use crate::wire::Change;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::time::Duration;

/// Episodes kept for a driver that does not ask: more than one input brings about, except for a crowd of joins.
const EPISODES_MAX: usize = 64;
/// Datagrams that cannot be read are told again only after this much time without one: an hour of them is one episode.
const QUIET: Duration = Duration::from_secs(60);

/// Something worth a line in a log.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Episode {
    /// This member is in. It founded the group if `seqno` is 0 and it is alone, formed it with others if `seqno` is 0
    /// and it is not, and joined it otherwise.
    Entered {
        /// The seqno of its join.
        seqno: Seqno,
        /// Members, itself included.
        members: usize,
    },
    /// Another member's join is accepted.
    Joined {
        /// The seqno of the join.
        seqno: Seqno,
        /// The member.
        member: Member,
        /// Members from here on.
        members: usize,
    },
    /// A member's leave is accepted, perhaps this one's.
    Left {
        /// The seqno of the leave.
        seqno: Seqno,
        /// The member.
        member: Member,
        /// Members from here on.
        members: usize,
    },
    /// Another member assigns sequence numbers from here on: by a hand-over, or because the sequencer left.
    HandedOver {
        /// The seqno of the hand-over or the leave.
        seqno: Seqno,
        /// The new sequencer.
        to: Member,
    },
    /// This member suspects another one, whatever the group's policy is.
    Suspected {
        /// The suspect.
        member: Member,
        /// Why.
        reason: Suspicion,
    },
    /// This member takes part in a reset. Further ballots of the same reset are no episodes of their own.
    ResetBegun {
        /// The coordinator of the first ballot; nothing if this member only heard of the decision.
        coordinator: Option<Uid>,
    },
    /// The reset is over, and this member goes on.
    ResetEnded {
        /// The seqno of the reset.
        seqno: Seqno,
        /// Members from here on.
        members: usize,
        /// Those that do not go on.
        excluded: Vec<Member>,
        /// More members are missing than the resilience covers: messages may be lost.
        degraded: bool,
        /// Time since this member's [`Episode::ResetBegun`].
        took: Duration,
    },
    /// The group went on without this member.
    Excluded {
        /// The epoch that began without it, if it is known.
        epoch: Option<EpochId>,
    },
    /// There is another group of the same name. Told once for each such group.
    Conflict {
        /// The address of one of its members.
        address: SocketAddr,
        /// This group is the one to give way, if one is to.
        gives_way: bool,
    },
    /// A datagram for a group of this name is protected by another key. Told again only after a minute without one.
    Foreign {
        /// The address it came from.
        address: SocketAddr,
    },
    /// A datagram for a group of this name has another version of the wire format. Told again only after a minute without
    /// one.
    OtherVersion {
        /// The address it came from.
        address: SocketAddr,
        /// Its version.
        version: u8,
    },
}

/// Episodes that the driver has not taken yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct Episodes {
    queue: VecDeque<Episode>,
    /// When a datagram under another key came last.
    foreign_at: Option<Time>,
    /// When a datagram of another version came last.
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

/// Whether something that happens now, and happened last at `last`, begins another episode.
fn is_news(last: &mut Option<Time>, now: Time) -> bool {
    last.replace(now).is_none_or(|last| now.since(last) >= QUIET)
}

impl Group {
    /// The next episode for a log; nothing if none happened since the last one was taken.
    #[inline]
    pub fn poll_episode(&mut self) -> Option<Episode> {
        self.episodes.queue.pop_front()
    }

    /// Entries beyond `before` are accepted: tells the changes among them.
    #[inline]
    pub(crate) fn note_changes_accepted(&mut self, before: Seqno) {
        if self.history.last_change() > before || self.history.term().0 > before {
            self.tell_changes(before);
        }
    }

    #[cold]
    fn tell_changes(&mut self, before: Seqno) {
        if matches!(self.phase, Phase::Locating | Phase::Joining) {
            return;
        }
        for seqno in before.max(self.entered_at) + 1..=self.accepted {
            let Some(Entry::Change(change)) = self.history.get(seqno) else { continue };
            let members = self.history.view_at(seqno).len();
            let member_at = |seqno, uid| {
                self.history.view_at(seqno).iter().find(|member: &&Member| member.uid == uid).cloned()
            };
            let (change, handover) = match &**change {
                Change::Join { member, .. } => {
                    (Some(Episode::Joined { seqno, member: member.clone(), members }), None)
                }
                Change::Leave { uid, .. } => {
                    let left = member_at(seqno - 1, *uid);
                    let (term, successor) = self.history.term_at(seqno);
                    let successor = if term == seqno { member_at(seqno, successor) } else { None };
                    (left.map(|member| Episode::Left { seqno, member, members }), successor)
                }
                Change::Role { sequencer } => (None, member_at(seqno, *sequencer)),
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
    fn datagrams_under_another_key_are_told_again_after_a_minute_without_one() {
        let mut episodes = Episodes::default();
        let mut told = Vec::new();
        for second in [0, 30, 89, 149, 150, 300] {
            episodes.note_foreign(Time::ZERO + Duration::from_secs(second), ADDRESS);
            told.extend(episodes.queue.drain(..).map(|_| second));
        }
        assert_eq!(told, [0, 149, 300]);
    }

    #[test]
    fn a_driver_that_never_asks_loses_the_oldest() {
        let mut episodes = Episodes::default();
        for members in 0..=EPISODES_MAX {
            episodes.push(Episode::Entered { seqno: 0, members });
        }
        assert_eq!(episodes.queue.len(), EPISODES_MAX);
        assert_eq!(episodes.queue.front(), Some(&Episode::Entered { seqno: 0, members: 1 }));
    }
}

//! Views and quorums: what counts as a quorum, and what a new view changes about the peers.

use crate::config::{Floor, GroupConfig, Quorum};
use crate::error::ConfigError;
use crate::event::Suspicion;
use crate::group::{Group, Phase};
use crate::identity::{Member, Name, Seqno, Uid};
use crate::log::Members;
use crate::planted::Planted;
use crate::time::Time;
use crate::wire::Change;
use alloc::sync::Arc;

/// True if the members of `view` that satisfy `is_in` are a quorum of it (docs/protocol/recovery.md).
///
/// The tie-breaker of a view of even size is its first member. This is as safe as one uid for a whole epoch; nothing has
/// to be carried from view to view, and no view lacks a tie-breaker because it left.
pub(crate) fn is_quorum(quorum: &Quorum, view: &Members, is_in: impl Fn(&Member) -> bool) -> bool {
    let members = view.iter().filter(|member| is_in(member)).count();
    match quorum {
        Quorum::MajorityOf(names) => {
            let listed = |member: &&Member| names.contains(&member.name);
            let named = view.iter().filter(|member| is_in(member)).filter(listed).count();
            // A view with at most half of the listed names needs all of itself; so a group can grow up to the list.
            let small = view.iter().filter(listed).count() * 2 <= names.len();
            named * 2 > names.len() || (small && members == view.len())
        }
        Quorum::MajorityOfNamed(names) if view.iter().any(|member| names.contains(&member.name)) => {
            let named = || view.iter().filter(|member| names.contains(&member.name));
            let (count, all) = (named().filter(|member| is_in(member)).count(), named().count());
            count * 2 > all || (count * 2 == all && named().next().is_some_and(&is_in))
        }
        // The named ones have left.
        Quorum::MajorityOfNamed(_) => members == view.len(),
        Quorum::MajorityOfView => {
            members * 2 > view.len() || (members * 2 == view.len() && view.first().is_some_and(&is_in))
        }
        Quorum::All => members == view.len(),
        Quorum::AtLeast(least) => members >= (*least as usize).min(view.len()),
    }
}

/// How far the members of a view ask multicasts to go. It is computed once for each view, since it is asked for often.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scope {
    view: Members,
    hops: u8,
}

impl Scope {
    fn of(&mut self, view: &Members, last_alone: bool) -> u8 {
        if self.hops == 0 || !Arc::ptr_eq(view, &self.view) {
            let mut asked = view.iter().map(|member| member.hops);
            let hops = if last_alone { asked.next_back() } else { asked.max() };
            self.hops = hops.unwrap_or(Member::HOPS_DEFAULT);
            self.view = view.clone();
        }
        self.hops
    }
}

/// Refuses a floor that a member of this name cannot ask for in a group with this configuration.
pub(crate) fn check_floor(floor: Floor, name: &Name, config: &GroupConfig) -> Result<(), ConfigError> {
    floor.check(config.members_max, "1 to the maximum number of members")?;
    match &config.quorum {
        Quorum::MajorityOfNamed(names) if floor != Floor::None && !names.contains(name) => {
            let value = floor.of(config.members_max.into()) as u64;
            Err(ConfigError { parameter: "the floor of a member without a vote", value, allowed: "none" })
        }
        _ => Ok(()),
    }
}

impl Group {
    /// Returns the group's rule for quorums.
    pub(crate) fn quorum(&self) -> &Quorum {
        match &self.config.quorum {
            Quorum::MajorityOf(_) if self.broken(Planted::QuorumOfView) => &Quorum::MajorityOfView,
            quorum => quorum,
        }
    }

    /// True if the members of `view` that satisfy `is_in` are a quorum of it.
    pub(crate) fn is_quorum(&self, view: &Members, is_in: impl Fn(&Member) -> bool) -> bool {
        is_quorum(self.quorum(), view, is_in)
    }

    /// True if this member counts towards the group's minimum.
    pub(crate) fn counts(&self, member: &Member) -> bool {
        match &self.config.quorum {
            Quorum::MajorityOfNamed(names) => names.contains(&member.name),
            _ => true,
        }
    }

    /// Returns the number of members of the present view that count towards the group's minimum.
    pub(crate) fn counted(&self) -> usize {
        match &self.config.quorum {
            Quorum::MajorityOfNamed(_) => {
                self.log.history().view().iter().filter(|member| self.counts(member)).count()
            }
            _ => self.log.history().view().len(),
        }
    }

    /// True if those members of `view` that satisfy `is_in` are as many as each of its members asks for. Members without
    /// a vote do not count.
    pub(crate) fn meets_floor(&self, view: &Members, is_in: impl Fn(&Member) -> bool) -> bool {
        let counted = || view.iter().filter(|member| self.counts(member));
        let all = counted().count();
        let asks = |member: &&Member| !self.broken(Planted::FloorOfCoordinator) || member.uid == self.me.uid;
        let floor = view.iter().filter(asks).map(|member| member.floor.of(all)).max();
        counted().filter(|member| is_in(member)).count() >= floor.unwrap_or(0)
    }

    /// True if `view` has a member of this name, which has one vote.
    pub(crate) fn has_voter_named(&self, view: &Members, name: &Name) -> bool {
        let names = match &self.config.quorum {
            Quorum::MajorityOf(names) => names,
            Quorum::MajorityOfNamed(names) if !self.broken(Planted::DoubledNameCounted) => names,
            _ => return false,
        };
        names.contains(name) && view.iter().any(|member| member.name == *name)
    }

    /// Returns how far this member's multicasts go: they pass fewer routers than the largest number that a member of the
    /// accepted view asks for. A process that is no member yet looks for the group as far as it asks itself.
    pub fn hops(&mut self) -> u8 {
        let last_alone = self.broken(Planted::HopsOfLastJoiner);
        let asked = self.scope.of(self.log.history().view_at(self.log.accepted()), last_alone);
        match self.phase {
            Phase::Locating | Phase::Joining => asked.max(self.me.hops),
            _ => asked,
        }
    }

    /// True if all members of `view` together are a quorum, so that a reset could find one.
    pub(crate) fn could_be_quorum(&self, view: &Members) -> bool {
        match &self.config.quorum {
            Quorum::MajorityOf(names) => {
                view.iter().filter(|member| names.contains(&member.name)).count() * 2 > names.len()
            }
            _ => self.is_quorum(view, |_| true),
        }
    }

    /// Updates the peers and their standing after a join or leave at `seqno`.
    #[cold]
    pub(crate) fn note_change(&mut self, now: Time, seqno: Seqno) {
        let Some(crate::log::Entry::Change(change)) = self.log.history().get(seqno) else { return };
        let change = change.clone();
        if let Change::Leave { uid, .. } = &*change
            && self.broken(Planted::FloorKeptAfterLeave)
            && let Some(floor) = self.peers.get(*uid).map(|peer| peer.member().floor)
        {
            self.log.give_floor_to_first(floor);
        }
        self.peers.take_change(now, self.me.uid, seqno, &change);
        match &*change {
            Change::Join { member, .. } if member.uid != self.me.uid => {
                self.admission.note_joined(now, member.uid);
                if self.is_ring() {
                    self.order.forget_multicast_heard();
                }
                self.suspect_former_life(now, member);
            }
            Change::Leave { uid, .. } if *uid != self.me.uid => {
                self.departures.forget_request(*uid);
                self.log.drop_waiting_of(*uid);
                // Its leave names the next sequencer if it was the sequencer. Every leave is followed in the same way.
                self.note_named(now);
            }
            Change::Order { order, .. } => self.note_switched(*order),
            _ => {}
        }
        self.order.probe_multicast_soon(now);
        self.detector.look_soon(now);
    }

    /// Suspects the former member at the address of `joined`: that life is over (docs/protocol/deviations.md, H21).
    fn suspect_former_life(&mut self, now: Time, joined: &Member) {
        let former = self
            .peers
            .iter()
            .find(|peer| peer.address() == joined.address && peer.uid() != joined.uid && peer.is_member());
        if let Some(uid) = former.map(|peer| peer.uid())
            && self.phase == Phase::Member
        {
            self.suspect(now, uid, Suspicion::Replaced);
        }
    }

    /// Returns the members of both views except this one, each once.
    pub(crate) fn others_of(&self, before: &[Uid], after: &[Uid]) -> alloc::vec::Vec<Uid> {
        let mut others: alloc::vec::Vec<Uid> =
            before.iter().chain(after).copied().filter(|&uid| uid != self.me.uid).collect();
        others.sort_unstable();
        others.dedup();
        others
    }
}

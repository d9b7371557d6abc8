//! Views and the quorums in them.

use crate::config::Quorum;
use crate::event::Suspicion;
use crate::group::{Group, Phase};
use crate::history::Members;
use crate::identity::{Member, Seqno, Uid};
use crate::peers::{Peer, Standing};
use crate::time::Time;
use crate::wire::Change;

impl Group {
    /// The members of `view` that satisfy `is_in` are a quorum of it (docs/protocol/recovery.md).
    ///
    /// The tie-breaker of an even view is its first member: as safe as one uid for a whole epoch, nothing to carry,
    /// and no view is without one because it left.
    pub(crate) fn is_quorum(&self, view: &Members, is_in: impl Fn(&Member) -> bool) -> bool {
        let members = view.iter().filter(|member| is_in(member)).count();
        match &self.config.quorum {
            Quorum::MajorityOfView => {
                members * 2 > view.len() || (members * 2 == view.len() && view.first().is_some_and(&is_in))
            }
            Quorum::MajorityOf(names) => {
                let listed = |member: &&Member| names.contains(&member.name);
                let named = view.iter().filter(|member| is_in(member)).filter(listed).count();
                // A view that grows up to the list: too small to have a quorum, it needs all of itself.
                let small = view.iter().filter(listed).count() * 2 <= names.len();
                named * 2 > names.len() || (small && members == view.len())
            }
            Quorum::All => members == view.len(),
            Quorum::AtLeast(least) => members >= (*least as usize).min(view.len()),
        }
    }

    /// The members of `view` could bring a quorum of themselves together, all of them being there.
    pub(crate) fn could_be_quorum(&self, view: &Members) -> bool {
        match &self.config.quorum {
            Quorum::MajorityOf(names) => {
                view.iter().filter(|member| names.contains(&member.name)).count() * 2 > names.len()
            }
            _ => self.is_quorum(view, |_| true),
        }
    }

    /// The log now has a join, a leave or a role event at `seqno`: who is a peer, and of what standing, follows.
    #[cold]
    pub(crate) fn note_change(&mut self, now: Time, seqno: Seqno) {
        let Some(crate::history::Entry::Change(change)) = self.history.get(seqno) else { return };
        let change = change.clone();
        match &*change {
            Change::Join { member, .. } if member.uid != self.me.uid => {
                self.admission.note_joined(now, member.uid);
                match self.peers.get_mut(member.uid) {
                    Some(peer) => {
                        peer.standing = Standing::Member;
                        peer.member = member.clone();
                    }
                    None => {
                        let peer = Peer::new(now, member.clone(), Standing::Member, 0);
                        self.peers.insert(peer);
                    }
                }
                self.suspect_former_life(now, member);
            }
            Change::Leave { uid, .. } if *uid != self.me.uid => {
                if let Some(peer) = self.peers.get_mut(*uid) {
                    peer.standing = Standing::Leaver { seqno, since: now };
                    peer.last_heard = now;
                }
                self.departures.forget_request(*uid);
                self.unordered.forget_sender(*uid);
                self.outbox.restart();
            }
            Change::Role { .. } => self.outbox.restart(),
            _ => {}
        }
        self.audience_is_stale = true;
        self.order.probe_multicast_soon(now);
        self.detector.look_soon(now);
    }

    /// A new process answers where another member lived: the old life is over (docs/protocol/deviations.md, H21).
    fn suspect_former_life(&mut self, now: Time, joined: &Member) {
        let former = self.peers.iter().find(|peer| {
            peer.member.address == joined.address
                && peer.member.uid != joined.uid
                && peer.standing == Standing::Member
        });
        if let Some(uid) = former.map(|peer| peer.member.uid)
            && self.phase == Phase::Member
        {
            self.suspect(now, uid, Suspicion::Replaced);
        }
    }

    /// The peers are exactly the members of this view, with what was known of them.
    pub(crate) fn take_peers(&mut self, now: Time, view: &[Member], base: Seqno) {
        let me = self.me.uid;
        self.peers.retain(|peer| view.iter().any(|member| member.uid == peer.member.uid));
        for member in view.iter().filter(|member| member.uid != me) {
            match self.peers.get_mut(member.uid) {
                Some(peer) => peer.standing = Standing::Member,
                None => {
                    let peer = Peer::new(now, member.clone(), Standing::Member, base);
                    self.peers.insert(peer);
                }
            }
        }
        self.audience_is_stale = true;
    }

    /// Everybody of these members can be spoken to: in a reset a join may be known by what was levelled alone.
    pub(crate) fn take_in(&mut self, now: Time, members: &Members) {
        for member in members.iter().filter(|member| member.uid != self.me.uid) {
            if self.peers.get(member.uid).is_none() {
                self.peers.insert(Peer::new(now, member.clone(), Standing::Member, 0));
                self.audience_is_stale = true;
            }
        }
    }

    /// Everybody of these views but this member, once each.
    pub(crate) fn others_of(&self, before: &[Uid], after: &[Uid]) -> alloc::vec::Vec<Uid> {
        let mut others: alloc::vec::Vec<Uid> =
            before.iter().chain(after).copied().filter(|&uid| uid != self.me.uid).collect();
        others.sort_unstable();
        others.dedup();
        others
    }
}

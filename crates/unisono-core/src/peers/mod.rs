//! The peers of this member, and the one table of what each is known to hold.
//!
//! Acceptance, purging, flow control and the choice of a peer for a retransmission request rely on that table. Facts in
//! it never become false within an epoch: a watermark only rises.
//!
//! `peer` has what is known of one peer, `detector` finds which peers are probed and suspected, and `audience` how a
//! datagram reaches all of them.

mod audience;
mod deafness;
mod detector;
mod peer;

pub use audience::Audience;
pub(crate) use audience::{Addressing, Means};
pub(crate) use detector::{Detector, Finding, Look};

use crate::allowance::Allowance;
use crate::event::Suspicion;
use crate::identity::{Member, MessageNumber, Seqno, Uid};
use crate::log::{Entry, History, Members};
use crate::ordering::Awaited;
use crate::table::Table;
use crate::time::{Pace, Time};
use crate::wire::{Assembler, Change, ReplayWindow, Watermarks};
use alloc::boxed::Box;
use alloc::vec::Vec;
use bytes::Bytes;
use core::net::SocketAddr;
use deafness::Deafness;
use detector::Probing;

/// Why this member deals with a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It is in the view.
    Member,
    /// An observer: it listens since it was first welcomed, and will be numbered in.
    Observer { hello: Bytes, since: Time },
    /// Its leave, at this seqno, is in the log since then. It is served until it may go.
    Leaver { seqno: Seqno, since: Time },
}

/// What is known of one peer.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    // The audience depends on these four; `Peers` counts their changes.
    member: Member,
    standing: Standing,
    hears_multicast: Option<bool>,
    /// Whether it hears this member's own multicasts.
    deafness: Deafness,
    /// It holds everything through here, data included.
    received: Seqno,
    /// It knows everything through here to be accepted.
    accepted: Seqno,
    /// Its application has everything through here.
    delivered: Seqno,
    /// True if it has shown that it entered the present epoch.
    entered: bool,
    last_heard: Time,
    /// Time when it last showed that it receives our datagrams.
    heard_us: Option<Time>,
    probing: Option<Probing>,
    suspected: Option<Suspicion>,
    /// Since when the others wait for it, as the sequencer sees it.
    awaited: Awaited,
    replay: Option<ReplayWindow>,
    parcels: Assembler,
    /// Limits heartbeats to it alone, which show it the seqnos that it missed.
    repeated: Pace,
    /// Limits requests for its messages that are lacking here.
    asked: Pace,
    /// Highest of its messages that was requested because it is lacking here, and the time of the request for all
    /// through there.
    wanted: (MessageNumber, Time),
    /// Limits repeated welcomes of it as an observer.
    welcomed: Pace,
    /// Limits farewells to it.
    dismissed: Pace,
    /// Limits inquiries to it about what became of the epoch.
    inquired: Pace,
    /// Bytes of inquiries that it may be sent when it shows another epoch.
    inquiring: Allowance,
}

/// All peers, without this member. Each is boxed, because the table of a large group moves with each join.
#[derive(Clone, Debug, Default)]
pub(crate) struct Peers {
    table: Table<Box<Peer>>,
    /// Number of changes after which a datagram for all may have to reach them otherwise: a peer comes or goes, another
    /// change of the view is in the log, a peer reports otherwise whether it hears the multicast, or is found to be deaf to this member.
    changes: u64,
}

impl Peers {
    pub(crate) fn get(&self, uid: Uid) -> Option<&Peer> {
        self.table.get(uid).map(Box::as_ref)
    }

    pub(crate) fn get_mut(&mut self, uid: Uid) -> Option<&mut Peer> {
        self.table.get_mut(uid).map(Box::as_mut)
    }

    /// Adds a peer that is not there yet.
    pub(crate) fn insert(&mut self, peer: Peer) {
        debug_assert!(self.get(peer.uid()).is_none(), "what is known of a peer would be lost");
        self.table.insert(peer.uid(), Box::new(peer));
        self.changes += 1;
    }

    /// Forgets the peers for which `keep` is false.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&Peer) -> bool) {
        let before = self.len();
        self.table.retain(|_, peer| keep(peer));
        self.changes += u64::from(self.len() < before);
    }

    /// Forgets all peers.
    pub(crate) fn clear(&mut self) {
        *self = Peers { table: Table::default(), changes: self.changes + 1 };
    }

    /// Makes the peers exactly the members of `view` without `me`, and keeps what was known of them. A peer that was not
    /// known holds everything through `base`.
    pub(crate) fn take_view(&mut self, now: Time, me: Uid, view: &[Member], base: Seqno) {
        self.retain(|peer| view.iter().any(|member| member.uid == peer.uid()));
        for member in view.iter().filter(|member| member.uid != me) {
            match self.get_mut(member.uid) {
                Some(peer) => peer.standing = Standing::Member,
                None => self.insert(Peer::new(now, member.clone(), Standing::Member, base)),
            }
        }
        self.changes += 1;
    }

    /// Adds the members of `view` that are not known yet.
    pub(crate) fn take_in(&mut self, now: Time, me: Uid, view: &[Member]) {
        for member in view.iter().filter(|member| member.uid != me) {
            if self.get(member.uid).is_none() {
                self.insert(Peer::new(now, member.clone(), Standing::Member, 0));
            }
        }
    }

    /// Follows a join or leave at `seqno` of the log.
    pub(crate) fn take_change(&mut self, now: Time, me: Uid, seqno: Seqno, change: &Change) {
        match change {
            Change::Join { member, .. } if member.uid != me => match self.get_mut(member.uid) {
                Some(peer) => {
                    peer.standing = Standing::Member;
                    peer.member = member.clone();
                }
                None => self.insert(Peer::new(now, member.clone(), Standing::Member, 0)),
            },
            Change::Leave { uid, .. } if *uid != me => {
                if let Some(peer) = self.get_mut(*uid) {
                    peer.standing = Standing::Leaver { seqno, since: now };
                    peer.note_heard(now);
                }
            }
            _ => {}
        }
        self.changes += 1;
    }

    /// Notes the watermarks that a peer reported, at most through `end`: no member holds a seqno that was not assigned.
    /// Returns false if there is no such peer.
    pub(crate) fn note_report(&mut self, from: Uid, marks: &Watermarks, end: Seqno) -> bool {
        let Some(peer) = self.table.get_mut(from) else { return false };
        peer.raise_marks(marks.received.min(end), marks.accepted.min(end), marks.delivered.min(end));
        if peer.hears_multicast != Some(marks.hears_multicast) {
            peer.hears_multicast = Some(marks.hears_multicast);
            self.changes += 1;
        }
        true
    }

    /// Notes that a peer requests the whole of this member's last term in a ring.
    pub(crate) fn note_term_requested(&mut self, uid: Uid) {
        if let Some(peer) = self.get_mut(uid) {
            peer.deafness.note_requested();
        }
    }

    /// Judges by this member's last term in a ring which peers hear its multicasts.
    pub(crate) fn judge_term(&mut self, now: Time) {
        for (_, peer) in self.table.iter_mut() {
            self.changes += u64::from(peer.deafness.judge(now));
        }
    }

    /// Forgets which peers were found deaf to this member in a ring: a sequencer is told by all who hears its multicasts.
    pub(crate) fn forget_deafness(&mut self) {
        for (_, peer) in self.table.iter_mut() {
            self.changes += u64::from(core::mem::take(&mut peer.deafness).is_deaf());
        }
    }

    /// Returns the number of changes of what the audience depends on.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// True if every peer reports that it hears the group's multicast; a member that has not reported here counts as `untold`.
    pub(crate) fn all_hear_multicast(&self, untold: bool) -> bool {
        self.len() > 0 && self.iter().all(|peer| peer.is_hearer(untold))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Peer> {
        self.table.iter().map(|(_, peer)| &**peer)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Peer> {
        self.table.iter_mut().map(|(_, peer)| &mut **peer)
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    pub(crate) fn address(&self, uid: Uid) -> Option<SocketAddr> {
        self.get(uid).map(Peer::address)
    }

    /// Notes that `uid` holds everything through `seqno`, data included.
    #[inline]
    pub(crate) fn hold_through(&mut self, uid: Uid, seqno: Seqno) {
        if let Some(peer) = self.get_mut(uid) {
            peer.hold_through(seqno);
        }
    }

    /// Notes what the entries after `from` through `through` of the log show of the members that numbered them. A
    /// sequencer holds everything through each seqno that it assigns, the event included that names the next one.
    #[inline]
    pub(crate) fn note_numberers(&mut self, log: &History, from: Seqno, through: Seqno) {
        let mut last = through;
        while last > from {
            let (event, numberer) = log.term_at(last - 1);
            debug_assert!(!matches!(log.get(last), Some(Entry::Reset(_))), "no member numbered a reset");
            self.hold_through(numberer, last);
            last = event;
        }
    }

    /// Notes that every member of the view holds everything through `seqno`.
    pub(crate) fn all_hold_through(&mut self, seqno: Seqno) {
        self.iter_mut().filter(|peer| peer.is_member()).for_each(|peer| peer.hold_through(seqno));
    }

    /// Begins an epoch that keeps the log through `keep`: no peer is known to hold more, or to have entered it.
    pub(crate) fn begin_epoch(&mut self, now: Time, keep: Seqno) {
        self.iter_mut().for_each(|peer| peer.begin_epoch(now, keep));
    }

    /// Returns the highest seqno, at most `mine`, through which at least `holders` of `view` are known to hold
    /// everything. `me` counts with `mine`.
    pub(crate) fn held_by(&self, view: &Members, holders: usize, me: Uid, mine: Seqno) -> Seqno {
        if holders > view.len() {
            return 0;
        }
        let own = if view.iter().any(|member| member.uid == me) { mine } else { 0 };
        let others = view.iter().filter(|member| member.uid != me);
        let mut others = others.map(|member| self.get(member.uid).map_or(0, Peer::received));
        match holders {
            0 => mine,
            // At r = 0 no other member is needed.
            1 if own == mine => mine,
            2 => {
                let (mut highest, mut second) = (own, 0);
                // Usually the first peer, the sequencer, holds everything.
                while second < mine
                    && let Some(mark) = others.next()
                {
                    second = second.max(mark.min(highest));
                    highest = highest.max(mark);
                }
                second.min(mine)
            }
            _ if holders <= FEW => {
                let mut highest = [0; FEW];
                highest[0] = own;
                others.for_each(|mark| sink(&mut highest[..holders], mark));
                highest[holders - 1].min(mine)
            }
            _ => {
                let mut marks: Vec<Seqno> = others.chain([own]).collect();
                marks.sort_unstable_by(|a, b| b.cmp(a));
                marks[holders - 1].min(mine)
            }
        }
    }
}

/// Up to this number of holders, the highest marks are found without sorting all.
const FEW: usize = 8;

/// Inserts a mark among the highest, which descend; the lowest drops out.
fn sink(highest: &mut [Seqno], mark: Seqno) {
    let mut mark = mark;
    for known in highest {
        if *known < mark {
            core::mem::swap(known, &mut mark);
        }
    }
}

#[cfg(test)]
mod tests;

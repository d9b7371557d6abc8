//! The peers of this member, and the one table of what each is known to hold.
//!
//! Acceptance, purging, flow control and the choice of a peer for a retransmission request rely on that table. Facts in
//! it never become false within an epoch: a watermark only rises.

use crate::allowance::Allowance;
use crate::event::Suspicion;
use crate::history::Members;
use crate::identity::{Member, MessageNumber, Seqno, Uid};
use crate::membership::INQUIRE_BYTES;
use crate::ordering::Awaited;
use crate::table::Table;
use crate::time::{Pace, Time};
use crate::wire::{Assembler, ReplayWindow};
use alloc::boxed::Box;
use alloc::vec::Vec;
use bytes::Bytes;
use core::net::SocketAddr;
use core::time::Duration;

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
    pub(crate) member: Member,
    pub(crate) standing: Standing,
    /// It holds everything through here, data included.
    pub(crate) received: Seqno,
    /// It knows everything through here to be accepted.
    pub(crate) accepted: Seqno,
    /// Its application has everything through here.
    pub(crate) delivered: Seqno,
    /// True if it has shown that it entered the present epoch.
    pub(crate) entered: bool,
    pub(crate) hears_multicast: bool,
    pub(crate) last_heard: Time,
    /// Time when it last showed that it receives our datagrams.
    pub(crate) heard_us: Option<Time>,
    pub(crate) probing: Option<Probing>,
    pub(crate) suspected: Option<Suspicion>,
    /// Since when the others wait for it, as the sequencer sees it.
    pub(crate) awaited: Awaited,
    pub(crate) replay: Option<ReplayWindow>,
    pub(crate) parcels: Assembler,
    /// Limits heartbeats to it alone, which show it the seqnos that it missed.
    pub(crate) repeated: Pace,
    /// Limits requests for its messages that are lacking here.
    pub(crate) asked: Pace,
    /// Highest of its messages that was requested because it is lacking here, and the time of the request for all
    /// through there.
    pub(crate) wanted: (MessageNumber, Time),
    /// Limits repeated welcomes of it as an observer.
    pub(crate) welcomed: Pace,
    /// Limits farewells to it.
    pub(crate) dismissed: Pace,
    /// Limits inquiries to it about what became of the epoch.
    pub(crate) inquired: Pace,
    /// Bytes of inquiries that it may be sent when it shows another epoch.
    pub(crate) inquiring: Allowance,
}

/// Probes that the peer has not answered yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Probing {
    pub(crate) since: Time,
    pub(crate) last: Time,
    pub(crate) nonce: u64,
    /// Term in which they began.
    pub(crate) term: Seqno,
    pub(crate) sent: u32,
    /// Number of times that all its time to answer began anew, because this process had been asleep.
    pub(crate) fresh_starts: u32,
}

impl Probing {
    pub(crate) fn new(now: Time, nonce: u64, term: Seqno) -> Probing {
        Probing { since: now, last: Time::ZERO, nonce, term, sent: 0, fresh_starts: 0 }
    }

    /// True if they were given up because the role moved. A peer that did not answer then may answer now.
    fn are_of_old(&self, now: Time, term: Seqno, patience: Duration) -> bool {
        self.term != term && now.since(self.last) > patience
    }
}

impl Peer {
    pub(crate) fn new(now: Time, member: Member, standing: Standing, received: Seqno) -> Peer {
        Peer {
            member,
            standing,
            received,
            accepted: received,
            delivered: received,
            entered: false,
            hears_multicast: false,
            last_heard: now,
            heard_us: None,
            probing: None,
            suspected: None,
            awaited: Awaited::default(),
            replay: None,
            parcels: Assembler::default(),
            repeated: Pace::default(),
            asked: Pace::default(),
            wanted: (0, Time::ZERO),
            welcomed: Pace::default(),
            dismissed: Pace::default(),
            inquired: Pace::default(),
            inquiring: Allowance::of(INQUIRE_BYTES),
        }
    }

    /// Forgets probes that were given up when the role moved.
    pub(crate) fn forget_old_probes(&mut self, now: Time, term: Seqno, patience: Duration) {
        if self.probing.is_some_and(|probing| probing.are_of_old(now, term, patience)) {
            self.probing = None;
        }
    }

    /// True if it is an observer: it listens and waits to be numbered in.
    pub(crate) fn is_observer(&self) -> bool {
        matches!(self.standing, Standing::Observer { .. })
    }
}

/// All peers, without this member. Each is boxed, because the table of a large group moves with each join.
#[derive(Clone, Debug, Default)]
pub(crate) struct Peers {
    table: Table<Box<Peer>>,
}

impl Peers {
    pub(crate) fn get(&self, uid: Uid) -> Option<&Peer> {
        self.table.get(uid).map(Box::as_ref)
    }

    pub(crate) fn get_mut(&mut self, uid: Uid) -> Option<&mut Peer> {
        self.table.get_mut(uid).map(Box::as_mut)
    }

    pub(crate) fn insert(&mut self, peer: Peer) {
        self.table.insert(peer.member.uid, Box::new(peer));
    }

    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&mut Peer) -> bool) {
        self.table.retain(|_, peer| keep(peer));
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
        self.get(uid).map(|peer| peer.member.address)
    }

    /// Returns the highest seqno, at most `mine`, through which at least `holders` of `view` are known to hold
    /// everything. `me` counts with `mine`.
    pub(crate) fn held_by(&self, view: &Members, holders: usize, me: Uid, mine: Seqno) -> Seqno {
        if holders > view.len() {
            return 0;
        }
        let own = if view.iter().any(|member| member.uid == me) { mine } else { 0 };
        let others = view.iter().filter(|member| member.uid != me);
        let mut others = others.map(|member| self.get(member.uid).map_or(0, |peer| peer.received));
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
mod tests {
    use super::*;
    use crate::identity::Name;
    use alloc::sync::Arc;
    use core::net::Ipv4Addr;

    /// Peers 1, 2, … that hold through these marks, and the view of them and of member 0.
    fn group(marks: &[Seqno]) -> (Peers, Members) {
        let member = |uid| Member {
            uid: Uid(uid),
            name: Name::default(),
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 1)),
        };
        let mut peers = Peers::default();
        for (uid, &mark) in (1..).zip(marks) {
            peers.insert(Peer::new(Time::ZERO, member(uid), Standing::Member, mark));
        }
        (peers, Arc::new((0..=marks.len() as u64).map(member).collect()))
    }

    #[test]
    fn held_by_returns_the_highest_seqno_with_enough_holders() {
        for marks in [&[5, 9, 7, 9][..], &[3; 12], &[9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 11, 10]] {
            let (peers, view) = group(marks);
            let mine = 6;
            for holders in 1..=view.len() {
                let through = peers.held_by(&view, holders, Uid(0), mine);
                let hold = |seqno| marks.iter().chain([&mine]).filter(|&&mark| mark >= seqno).count();
                let is_most = through == mine || hold(through + 1) < holders;
                assert!(through <= mine && hold(through) >= holders && is_most, "{holders} of {marks:?}");
            }
            assert_eq!(peers.held_by(&view, view.len() + 1, Uid(0), mine), 0);
        }
    }
}

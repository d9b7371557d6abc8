//! Everybody this member talks with, and the one table of what each is known to hold.
//!
//! "Known to hold" feeds acceptance, purging, flow control and the choice of whom to ask for repairs. Facts in it
//! never become false within an epoch: a watermark only rises.

use crate::allowance::Allowance;
use crate::event::Suspicion;
use crate::history::Members;
use crate::identity::{Member, MessageNumber, Seqno, Uid};
use crate::membership::INQUIRE_BYTES;
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
    /// In the view.
    Member,
    /// It listens, since it was welcomed first, and will be numbered in.
    Observer { hello: Bytes, since: Time },
    /// Its leave, at this place, is in the log since then; it is served until it may go.
    Leaver { seqno: Seqno, since: Time },
}

/// One peer.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) member: Member,
    pub(crate) standing: Standing,
    /// Holds everything through here, data included.
    pub(crate) received: Seqno,
    /// Knows everything through here to be accepted.
    pub(crate) accepted: Seqno,
    /// Its application has everything through here.
    pub(crate) delivered: Seqno,
    /// In the present epoch it has shown that it entered it.
    pub(crate) entered: bool,
    pub(crate) hears_multicast: bool,
    pub(crate) last_heard: Time,
    /// When it last showed that it hears what this member sends it.
    pub(crate) heard_us: Option<Time>,
    pub(crate) probing: Option<Probing>,
    pub(crate) suspected: Option<Suspicion>,
    pub(crate) replay: Option<ReplayWindow>,
    pub(crate) parcels: Assembler,
    /// How far the numbers go is repeated to it.
    pub(crate) repeated: Pace,
    /// It is asked for messages that are lacking here.
    pub(crate) asked: Pace,
    /// The highest of its messages that it was asked for because it is lacking here, and since when all through there.
    pub(crate) wanted: (MessageNumber, Time),
    /// It is let in again, as an observer.
    pub(crate) welcomed: Pace,
    /// It is told that it may go.
    pub(crate) dismissed: Pace,
    /// It is asked what became of the epoch,
    pub(crate) inquired: Pace,
    /// and what it may be asked for showing another one.
    pub(crate) inquiring: Allowance,
}

/// Probes are out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Probing {
    pub(crate) since: Time,
    pub(crate) last: Time,
    pub(crate) nonce: u64,
    /// The term in which they began.
    pub(crate) term: Seqno,
    pub(crate) sent: u32,
    /// How often it was given all its time again.
    pub(crate) fresh_starts: u32,
}

impl Probing {
    pub(crate) fn new(now: Time, nonce: u64, term: Seqno) -> Probing {
        Probing { since: now, last: Time::ZERO, nonce, term, sent: 0, fresh_starts: 0 }
    }

    /// They were given up: the role went elsewhere, and whoever did not answer then may answer now.
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

    /// Probes that were given up when the role went elsewhere count no more.
    pub(crate) fn forget_old_probes(&mut self, now: Time, term: Seqno, patience: Duration) {
        if self.probing.is_some_and(|probing| probing.are_of_old(now, term, patience)) {
            self.probing = None;
        }
    }

    /// It listens and waits to be numbered in.
    pub(crate) fn is_observer(&self) -> bool {
        matches!(self.standing, Standing::Observer { .. })
    }
}

/// All peers; never this member itself. Each in a place of its own: a large group's table moves with each join.
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

    /// The highest place through `mine` that at least `holders` of `view` are known to hold through, `me` included with
    /// `mine`.
    pub(crate) fn held_by(&self, view: &Members, holders: usize, me: Uid, mine: Seqno) -> Seqno {
        if holders > view.len() {
            return 0;
        }
        let own = if view.iter().any(|member| member.uid == me) { mine } else { 0 };
        let others = view.iter().filter(|member| member.uid != me);
        let mut others = others.map(|member| self.get(member.uid).map_or(0, |peer| peer.received));
        match holders {
            0 => mine,
            // At r = 0 nobody else is asked.
            1 if own == mine => mine,
            2 => {
                let (mut highest, mut second) = (own, 0);
                // Mostly the first one asked, the sequencer, holds all there is.
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

/// So many of the highest marks are found without sorting them all.
const FEW: usize = 8;

/// Lets a mark sink to its place among the highest, which descend; the lowest falls out.
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

    /// Peers 1, 2, ... that hold through these places, and the view of them and of 0.
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
    fn so_many_hold_through_there_and_no_more() {
        for marks in [&[5, 9, 7, 9][..], &[3; 12], &[9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 11, 10]] {
            let (peers, view) = group(marks);
            let mine = 6;
            for holders in 1..=view.len() {
                let through = peers.held_by(&view, holders, Uid(0), mine);
                let hold = |place| marks.iter().chain([&mine]).filter(|&&mark| mark >= place).count();
                let is_most = through == mine || hold(through + 1) < holders;
                assert!(through <= mine && hold(through) >= holders && is_most, "{holders} of {marks:?}");
            }
            assert_eq!(peers.held_by(&view, view.len() + 1, Uid(0), mine), 0);
        }
    }
}

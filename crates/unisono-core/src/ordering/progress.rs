//! Progress: which members keep the others waiting and do not get on.
//!
//! A member that answers probes may still stand still: entries do not reach it, or its application takes nothing. If
//! acceptance, room in the history or the window waits for such a member, the sequencer suspects it as slow after the
//! time that the group's founder chose, and a reset excludes it. Each member is judged by a mark of its own: when the
//! mark rises, its time begins anew. The sequencer looks once per heartbeat.
//!
//! A member that is named sequencer and does not take the role has no sequencer that could judge it. The member that
//! named it does, whenever it repeats the event.
//!
//! No member excludes itself. A sequencer that is in the way gives its role to another member, which judges it as it
//! judges all others: its own application shuts the window, or it knows of a member's messages and does not get them.

use crate::config::{Migration, Order, SlowMember};
use crate::event::Suspicion;
use crate::group::Group;
use crate::identity::{Member, MessageNumber, Seqno, Uid};
use crate::peers::Peer;
use crate::planted::{Planted, Probe};
use crate::time::Time;
use alloc::vec::Vec;
use core::time::Duration;

/// What the others wait for at one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    /// Its application is through here and takes no more of what is accepted, and the window above that is full.
    Delivered(Seqno),
    /// It holds everything through here. The history has no room, because no member holds less.
    Received(Seqno),
    /// It holds everything through the second seqno; the first is the oldest that is not accepted.
    Unaccepted(Seqno, Seqno),
    /// It holds everything through the second seqno; the first is the event that names it, and it does not take the role.
    Untaken(Seqno, Seqno),
}

/// The mark at which a member keeps the others waiting, and since when; `None` if no member waits for it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Awaited(Option<(Mark, Time)>);

impl Awaited {
    /// Notes the present mark. The time goes on only if it is the mark of the last time.
    fn note(&mut self, now: Time, mark: Option<Mark>) {
        self.0 = mark.map(|mark| match self.0 {
            Some((known, since)) if known == mark => (mark, since),
            _ => (mark, now),
        });
    }

    /// Returns for how long the others have waited without progress.
    fn lasts(&self, now: Time) -> Duration {
        self.0.map_or(Duration::ZERO, |(_, since)| now.since(since))
    }
}

/// How the sequencer itself keeps the others waiting, and since when.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct InTheWay(Option<(Hindrance, Time)>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hindrance {
    /// Its own application is through here and takes no more of what is accepted, and the window above that is full.
    Delivered(Seqno),
    /// It has later messages of this member and lacks the one after this number.
    Lacks(Uid, MessageNumber),
}

/// The last seqno that this member delivered, and since when entries beyond it exist; `None` if none do.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Behind(Option<(Seqno, Time)>);

/// What keeps the others waiting at the moment, whichever member it is.
#[derive(Clone, Copy, Debug)]
struct Obstacle {
    /// The oldest entry that is not accepted.
    unaccepted: Option<Seqno>,
    /// Seqno through which entries are accepted. No member can deliver more.
    accepted: Seqno,
    /// True if no message gets a seqno for want of room.
    is_shut: bool,
    /// Seqno through which all members hold everything, if there is no room.
    held_by_all: Seqno,
    end: Seqno,
    history_messages: u64,
}

impl Obstacle {
    /// Returns the mark at which this member keeps the others waiting, if it does.
    fn mark_of(&self, peer: &Peer) -> Option<Mark> {
        if !peer.is_member() || peer.is_suspected() {
            return None;
        }
        let is_full = peer.delivered() + self.history_messages <= self.end;
        if self.is_shut && is_full && peer.delivered() < self.accepted {
            return Some(Mark::Delivered(peer.delivered()));
        }
        if self.is_shut && peer.received() < self.end && peer.received() <= self.held_by_all {
            return Some(Mark::Received(peer.received()));
        }
        let oldest = self.unaccepted.filter(|oldest| peer.received() < *oldest)?;
        Some(Mark::Unaccepted(oldest, peer.received()))
    }
}

impl Group {
    /// Suspects the members that have kept the others waiting without progress for longer than the group allows; a
    /// reset then excludes them. It does not begin if the other members are no quorum: it would exclude none.
    pub(super) fn exclude_if_too_slow(&mut self, now: Time) {
        let SlowMember::ExcludeAfter(patience) = self.config.slow_member else { return };
        self.note_awaited(now);
        self.suspect_slow(now, patience);
    }

    /// Suspects the member that this one has named by the event at `event`, if it has not taken the role for longer than
    /// the group allows and receives nothing meanwhile. As long as it has not, no sequencer judges it.
    pub(super) fn exclude_if_role_is_untaken(&mut self, now: Time, event: Seqno, named: Uid) {
        let SlowMember::ExcludeAfter(patience) = self.config.slow_member else { return };
        for peer in self.peers.iter_mut() {
            // What it noted of other members in its own term is over.
            let mark = (peer.uid() == named).then_some(Mark::Untaken(event, peer.received()));
            let mut awaited = peer.awaited();
            awaited.note(now, mark);
            peer.set_awaited(awaited);
        }
        self.suspect_slow(now, patience);
    }

    /// Suspects the members for which the others have waited for longer than `patience`.
    fn suspect_slow(&mut self, now: Time, patience: Duration) {
        if !self.peers.iter().any(|peer| peer.awaited().lasts(now) > patience) {
            return;
        }
        let slow: Vec<Uid> = self
            .peers
            .iter()
            .filter(|peer| peer.awaited().lasts(now) > patience)
            .map(|peer| peer.uid())
            .collect();
        let view = self.log.history().view();
        let gets_on = |member: &Member| !slow.contains(&member.uid);
        if self.config.automatic && !(self.is_quorum(view, gets_on) && self.meets_floor(view, gets_on)) {
            return;
        }
        self.order.shut_since = None;
        self.forget_awaited();
        for uid in slow {
            self.probe(Probe::SuspectedSlow);
            self.suspect(now, uid, Suspicion::Slow);
        }
    }

    /// Notes for each member whether the others wait for it, and at which mark.
    fn note_awaited(&mut self, now: Time) {
        let end = self.log.received();
        let waits = self.log.accepted() < end && !self.broken(Planted::ProgressNotLookedAt);
        let obstacle = Obstacle {
            unaccepted: waits.then_some(self.log.accepted() + 1),
            accepted: self.log.accepted(),
            is_shut: self.order.shut_since.is_some(),
            held_by_all: if self.order.shut_since.is_some() { self.held_by_members() } else { 0 },
            end,
            history_messages: u64::from(self.config.history_messages),
        };
        for peer in self.peers.iter_mut() {
            let mark = obstacle.mark_of(peer);
            let mut awaited = peer.awaited();
            awaited.note(now, mark);
            peer.set_awaited(awaited);
        }
    }

    /// Notes how this sequencer keeps the others waiting. The time goes on only if it is as it was the last time.
    pub(super) fn note_in_the_way(&mut self, now: Time) {
        let hindrance = self.hindrance();
        self.order.in_the_way.0 = hindrance.map(|hindrance| match self.order.in_the_way.0 {
            Some((known, since)) if known == hindrance => (hindrance, since),
            _ => (hindrance, now),
        });
    }

    /// Returns the member that shall have the role, if this sequencer has been in the way for longer than the group
    /// allows and still is, unless the role never moves: a member that holds everything and for which the others do not
    /// wait. It is asked when the role can move at once, since a hindrance may end while a join or leave is under way.
    pub(super) fn successor_out_of_the_way(&mut self, now: Time) -> Option<Uid> {
        let (hindrance, since) = self.order.in_the_way.0?;
        let SlowMember::ExcludeAfter(patience) = self.config.slow_member else { return None };
        if now.since(since) <= patience || self.log.history().order() == Order::Sequencer(Migration::Never) {
            return None;
        }
        if self.hindrance() != Some(hindrance) {
            return None;
        }
        let end = self.log.received();
        let takes_over = |peer: &Peer| {
            let lacks_the_same = matches!(hindrance, Hindrance::Lacks(sender, _) if sender == peer.uid());
            peer.received() >= end && peer.awaited().0.is_none() && !lacks_the_same
        };
        let is_able = |uid: &Uid| self.is_there(*uid) && self.peers.get(*uid).is_some_and(takes_over);
        let successor = self.others_by_rank().find(is_able);
        if successor.is_some() {
            self.probe(Probe::GaveWay);
        }
        successor
    }

    /// True if messages wait because this member's own application takes nothing.
    pub(super) fn shuts_the_window(&self) -> bool {
        matches!(self.hindrance(), Some(Hindrance::Delivered(_)))
    }

    /// Returns how this sequencer keeps the others waiting, if it does. Of several members whose messages it lacks it
    /// returns the one that it returned last.
    fn hindrance(&self) -> Option<Hindrance> {
        let window = u64::from(self.config.history_messages);
        let is_full = self.log.delivered() + window <= self.log.received();
        if self.order.shut_since.is_some() && is_full && self.log.delivered() < self.log.accepted() {
            return Some(Hindrance::Delivered(self.log.delivered()));
        }
        let lacking = |sender: Uid| {
            let last = self.log.history().sender_mark(sender).number;
            self.log.unordered().next(sender, last).is_none().then_some(Hindrance::Lacks(sender, last))
        };
        let known = self.order.in_the_way.0.map(|(known, _)| known);
        let mut lacks = self.log.unordered().senders().filter_map(lacking);
        let first = lacks.next()?;
        Some(match known {
            Some(known) if known == first || lacks.any(|other| other == known) => known,
            _ => first,
        })
    }

    /// Notes that entries through `end` exist.
    pub(super) fn note_end(&mut self, now: Time, end: Seqno) {
        self.order.behind.0 = match self.order.behind.0 {
            _ if self.log.delivered() >= end => None,
            Some((delivered, since)) if delivered == self.log.delivered() => Some((delivered, since)),
            _ => Some((self.log.delivered(), now)),
        };
    }

    /// Returns for how long entries have existed while this member delivered none of them to its application; zero if it
    /// keeps up. A member that hears of entries and does not get on, or whose application does not, finds out by this.
    pub fn behind_for(&self, now: Time) -> Duration {
        let behind = self.order.behind.0.filter(|(delivered, _)| *delivered == self.log.delivered());
        behind.map_or(Duration::ZERO, |(_, since)| now.since(since))
    }

    /// Takes the time `asleep` of this process off the time for which the others have waited: what a member said
    /// meanwhile may lie unread in the socket.
    pub(crate) fn forgive_waiting(&mut self, now: Time, asleep: Duration) {
        let later = |since: &mut Time| *since = (*since + asleep).min(now);
        for peer in self.peers.iter_mut() {
            let mut awaited = peer.awaited();
            awaited.0.iter_mut().for_each(|(_, since)| later(since));
            peer.set_awaited(awaited);
        }
        self.order.in_the_way.0.iter_mut().for_each(|(_, since)| later(since));
        self.order.behind.0.iter_mut().for_each(|(_, since)| later(since));
    }

    /// Begins a term, in which no member has kept the others waiting yet.
    pub(super) fn forget_awaited(&mut self) {
        self.order.in_the_way = InTheWay::default();
        self.peers.iter_mut().for_each(|peer| peer.set_awaited(Awaited::default()));
    }
}

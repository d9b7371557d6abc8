//! Capacity: whether one more message may get a seqno, and which member is in the way.
//!
//! The history is bounded, and no application may fall further behind than the history reaches. The member that keeps
//! the window shut is remembered, with the time, for status queries.

use super::Order;
use crate::group::{Destination, Group, HeldUp};
use crate::identity::{MessageNumber, Seqno, Uid};
use crate::peers::Peer;
use crate::planted::{Planted, Probe};
use crate::time::Time;
use core::time::Duration;

/// Seqnos are held back for the socket buffer of an observer until it has sent nothing for this time.
const OBSERVER_PATIENCE: Duration = Duration::from_millis(100);

/// Seqnos through which messages may be numbered before members have to be looked at again: all members hold enough
/// through the first, and their applications have taken enough through the second.
#[derive(Debug, Default)]
pub(super) struct Margin {
    history: Seqno,
    applications: Seqno,
}

impl Order {
    /// Notes that there is no room because of this member.
    fn note_shut(&mut self, now: Time, by: Uid) {
        if self.shut_since.is_none_or(|(_, known)| known != by) {
            self.shut_since = Some((now, by));
        }
    }
}

impl Group {
    /// True if the history has room for one more message, and no application is too far behind. A caller that numbers
    /// message after message, while no member reports, passes the `margin` of the last call.
    pub(super) fn has_capacity(&mut self, now: Time, margin: &mut Margin) -> bool {
        if self.broken(Planted::HistoryUnbounded) {
            return true;
        }
        let end = self.log.received();
        if end >= margin.history {
            margin.history = self.history_reach();
        }
        if end >= margin.history || self.log.history().bytes() >= self.config.history_bytes {
            self.probe(Probe::HistoryFull);
            let slowest = self.slowest_received();
            self.note_shut(now, slowest);
            return false;
        }
        if self.fills(now, self.settings.under_way_bytes_max()) {
            self.probe(Probe::BuffersFull);
            let slowest = self.slowest_received();
            self.note_shut(now, slowest);
            return false;
        }
        if end >= margin.applications {
            let (delivered, who) = self.slowest_delivered();
            margin.applications = delivered + self.room();
            if end >= margin.applications {
                self.probe(Probe::WindowShut);
                self.note_shut(now, who);
                return false;
            }
        }
        self.order.shut_since = None;
        true
    }

    /// Returns the seqno through which the history has room for messages.
    fn history_reach(&self) -> Seqno {
        self.log.base() + self.room()
    }

    /// Returns the number of entries, passes among them, that may be numbered above what all hold: members infer from a
    /// seqno that all hold what lies so far below it.
    fn room(&self) -> Seqno {
        let left_out = self.broken(Planted::PassesLeftOutOfRoom) && self.is_ring();
        let passes = if left_out { self.log.history().moves() } else { 0 };
        u64::from(self.config.history_messages) + passes
    }

    /// Notes that there is no room because of this member. What was numbered is announced, because that member can make
    /// no room for entries that it does not know of.
    fn note_shut(&mut self, now: Time, by: Uid) {
        self.order.note_shut(now, by);
        self.order.announce_through = self.log.received();
    }

    /// True if messages without a seqno may get one as soon as the history has room or an application has caught up.
    pub(crate) fn messages_wait_for_room(&self) -> bool {
        self.order.shut_since.is_some()
            || self.log.history().len() as u64 > u64::from(self.config.history_messages)
            || self.peers.iter().any(|peer| !peer.is_member())
    }

    /// True if as much is under way as this member's path carries, and its message `number` was not sent: it waits, and the
    /// token goes on. The path would lose what its queue does not hold, passes included.
    pub(super) fn fills_path(&mut self, now: Time, number: MessageNumber) -> bool {
        if self.outbox.was_sent(number) {
            return false;
        }
        let copies = self.copies(Destination::Everyone).max(1);
        self.fills(now, self.outbox.room() / copies)
    }

    /// True if the bytes under way may fill `room`: the socket buffer of a member, or a path.
    fn fills(&mut self, now: Time, room: u64) -> bool {
        if self.order.under_way.bytes() < room {
            return false;
        }
        let slowest = self.slowest_received();
        let held = self.peers.get(slowest).map_or(self.log.received(), |peer| peer.received());
        self.order.under_way.note_held(now, held.min(self.observers_hold(now)));
        self.order.under_way.bytes() >= room
    }

    /// Returns the seqno through which all observers hold everything that report their watermarks and for which entries
    /// are kept. If their buffers overflowed, they would have to request the rest, and would never catch up with a busy
    /// group.
    fn observers_hold(&self, now: Time) -> Seqno {
        let waits_for =
            |peer: &&Peer| now.since(peer.last_heard()) < OBSERVER_PATIENCE && self.keeps_for(peer);
        let observers = self.peers.iter().filter(|peer| peer.is_observer()).filter(waits_for);
        observers.map(|peer| peer.received()).min().unwrap_or(Seqno::MAX)
    }

    fn slowest_received(&self) -> Uid {
        let view = self.log.history().view();
        let known = |uid: Uid| self.peers.get(uid).map_or(self.log.received(), |peer| peer.received());
        view.iter().map(|member| member.uid).min_by_key(|&uid| known(uid)).unwrap_or(self.me.uid)
    }

    /// Returns how far the slowest application of the view is, and its member.
    fn slowest_delivered(&self) -> (Seqno, Uid) {
        let mut slowest = (self.log.delivered(), self.me.uid);
        for member in self.log.history().view().iter() {
            if let Some(peer) = self.peers.get(member.uid)
                && peer.delivered() < slowest.0
            {
                slowest = (peer.delivered(), member.uid);
            }
        }
        slowest
    }

    /// Returns the member that keeps the window or the history shut, and since when.
    pub(crate) fn window_shut_by(&self) -> Option<(Time, Uid)> {
        self.order.shut_since
    }

    /// Returns the member that keeps the window or the history shut, and since when. Only the sequencer knows it.
    pub fn held_up_by(&self, now: Time) -> Option<HeldUp> {
        let (since, member) = self.window_shut_by()?;
        Some(HeldUp { member, since: now.since(since) })
    }

    /// Returns the seqno through which any member may have freed its history: it was announced as stable, or can be
    /// inferred from the seqnos.
    pub(crate) fn announced_stable(&self) -> Seqno {
        let room = u64::from(self.config.history_messages);
        let announced = self.order.announced_stable.max(self.acknowledging.stable_hint());
        announced.max(self.log.received().saturating_sub(room))
    }
}

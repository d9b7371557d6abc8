//! Room: whether one message more may get a number, and who is in the way.
//!
//! The history has its bounds, and no application is to fall further behind than the history reaches. Whoever keeps the
//! window shut is remembered, with the time, for those who ask and for the rule that excludes who is too slow.

use super::Order;
use crate::config::SlowMember;
use crate::event::Suspicion;
use crate::group::{Group, HeldUp};
use crate::identity::{Seqno, Uid};
use crate::peers::{Peer, Standing};
use crate::planted::{Planted, Probe};
use crate::time::Time;
use core::time::Duration;

/// Numbers are held back for the buffers of an observer until it has said nothing for so long.
const OBSERVER_PATIENCE: Duration = Duration::from_millis(100);

/// How far messages may be numbered at least before somebody has to be looked at: all members hold enough through there,
/// and their applications have taken enough.
#[derive(Debug, Default)]
pub(super) struct Margin {
    history: Seqno,
    applications: Seqno,
}

impl Order {
    /// There is no room, because of this member.
    fn note_shut(&mut self, now: Time, by: Uid) {
        if self.shut_since.is_none_or(|(_, known)| known != by) {
            self.shut_since = Some((now, by));
        }
    }
}

impl Group {
    /// There is room in the history for one message more, and no application is too far behind. Whoever asks for one
    /// after the other, while no member says how far it is, keeps the `margin` that was seen the last time.
    pub(super) fn has_capacity(&mut self, now: Time, margin: &mut Margin) -> bool {
        if self.broken(Planted::HistoryUnbounded) {
            return true;
        }
        let end = self.history.received();
        if end >= margin.history {
            margin.history = self.history_reach();
        }
        if end >= margin.history || self.history.bytes() >= self.config.history_bytes {
            self.probe(Probe::HistoryFull);
            let slowest = self.slowest_received();
            self.note_shut(now, slowest);
            return false;
        }
        if self.fills_buffers(now) {
            self.probe(Probe::BuffersFull);
            let slowest = self.slowest_received();
            self.note_shut(now, slowest);
            return false;
        }
        if end >= margin.applications {
            let (delivered, who) = self.slowest_delivered();
            margin.applications = delivered + u64::from(self.config.history_messages);
            if end >= margin.applications {
                self.probe(Probe::WindowShut);
                self.note_shut(now, who);
                return false;
            }
        }
        self.order.shut_since = None;
        true
    }

    /// The history has room for messages through here.
    fn history_reach(&self) -> Seqno {
        self.history.base() + u64::from(self.config.history_messages)
    }

    /// There is no room, because of this member; which cannot make any as long as it is not told.
    fn note_shut(&mut self, now: Time, by: Uid) {
        self.order.note_shut(now, by);
        self.order.tell_through = self.history.received();
    }

    /// What has no number yet may get one as soon as the history has room, or an application has caught up.
    pub(crate) fn somebody_waits_for_room(&self) -> bool {
        self.order.shut_since.is_some()
            || self.history.len() as u64 > u64::from(self.config.history_messages)
            || self.peers.iter().any(|peer| !matches!(peer.standing, Standing::Member))
    }

    /// As much may lie in the buffer of some member's socket as that holds.
    fn fills_buffers(&mut self, now: Time) -> bool {
        let room = self.settings.under_way_bytes_max();
        if self.order.under_way.bytes() < room {
            return false;
        }
        let slowest = self.slowest_received();
        let held = self.peers.get(slowest).map_or(self.history.received(), |peer| peer.received);
        self.order.under_way.note_held(now, held.min(self.observers_hold(now)));
        self.order.under_way.bytes() >= room
    }

    /// All who are about to join, say how far they are and have what they lack kept for them hold everything through
    /// here. What overran their buffers they would have to ask for again, and would never catch up with a busy group.
    fn observers_hold(&self, now: Time) -> Seqno {
        let waits_for = |peer: &&Peer| now.since(peer.last_heard) < OBSERVER_PATIENCE && self.keeps_for(peer);
        let observers = self.peers.iter().filter(|peer| peer.is_observer()).filter(waits_for);
        observers.map(|peer| peer.received).min().unwrap_or(Seqno::MAX)
    }

    fn slowest_received(&self) -> Uid {
        let view = self.history.view();
        let known = |uid: Uid| self.peers.get(uid).map_or(self.history.received(), |peer| peer.received);
        view.iter().map(|member| member.uid).min_by_key(|&uid| known(uid)).unwrap_or(self.me.uid)
    }

    /// The slowest application of the view, and whose it is.
    fn slowest_delivered(&self) -> (Seqno, Uid) {
        let mut slowest = (self.delivered, self.me.uid);
        for member in self.history.view().iter() {
            if let Some(peer) = self.peers.get(member.uid)
                && peer.delivered < slowest.0
            {
                slowest = (peer.delivered, member.uid);
            }
        }
        slowest
    }

    /// Who keeps the window or the history shut, and since when.
    pub(crate) fn window_shut_by(&self) -> Option<(Time, Uid)> {
        self.order.shut_since
    }

    /// Returns the member that keeps the window or the history shut, and since when. Only the sequencer knows it.
    pub fn held_up_by(&self, now: Time) -> Option<HeldUp> {
        let (since, member) = self.window_shut_by()?;
        Some(HeldUp { member, since: now.since(since) })
    }

    /// Everything through here anybody may have freed: it was told so, or infers it from how far the numbers go.
    pub(crate) fn told_stable(&self) -> Seqno {
        let room = u64::from(self.config.history_messages);
        self.order.told_stable.max(self.history.received().saturating_sub(room))
    }

    /// A member whose application holds everybody up for longer than the group allows is excluded by a reset.
    pub(super) fn exclude_if_too_slow(&mut self, now: Time) {
        if let (SlowMember::ExcludeAfter(patience), Some((since, who))) =
            (self.config.slow_member, self.order.shut_since)
            && who != self.me.uid
            && now.since(since) > patience
        {
            self.order.shut_since = None;
            self.probe(Probe::SuspectedSlow);
            self.suspect(now, who, Suspicion::Slow);
        }
    }
}

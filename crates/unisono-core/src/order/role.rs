//! The role of sequencer: who takes it, and when; how it is handed on, and told (KT93 §3.1; KT96 §5).
//!
//! An event of the log names the sequencer: a role event, the leave of the one before, a reset. Whoever is named takes the
//! role once for each event, as soon as it holds everything through there. Until it is heard, whoever knows of the event
//! tells it.

use super::heartbeat::{HEARTBEAT_FIRST, HEARTBEAT_IDLE};
use crate::group::{Group, Phase};
use crate::identity::{Seqno, Uid};
use crate::planted::{Planted, Probe};
use crate::time::Time;
use crate::wire::{Change, Frame};

impl Group {
    /// Whom the last naming event known names.
    pub(crate) fn named(&self) -> Uid {
        self.history.term().1
    }

    /// The place of the event that named this sequencer.
    pub(crate) fn term(&self) -> Seqno {
        self.history.term().0
    }

    /// Takes the role if the log says so (docs/protocol/sequencer.md: once per event, holding everything through it).
    pub(crate) fn take_role(&mut self, now: Time) {
        let (event, named) = self.history.term();
        let promised = self.recovery.has_promised();
        if named != self.me.uid || promised || self.order.taken.is_some_and(|taken| taken >= event) {
            self.watch_for_successor(now, event, named);
        } else {
            self.enter_role(now, event);
        }
    }

    #[cold]
    fn enter_role(&mut self, now: Time, event: Seqno) {
        if event > self.epoch_start {
            self.probe(Probe::RoleTaken);
        }
        // Places beyond the event would be numbered by somebody else: there are none, or we would not be named.
        let received = self.history.received();
        self.history.cut(received);
        self.order.acting = Some(event);
        self.order.taken = Some(event);
        self.order.heard = self.order.heard.max(Some(event));
        self.order.announced = self.order.announced.max(received);
        (self.order.numbered_from, self.order.numbered) = (received, received);
        self.order.multicast_probe_at = now;
        self.order.load.begin_term(now);
        self.audience_is_stale = true;
        self.outbox.restart();
        self.beat_soon(now);
        self.order.heartbeat_due = true;
    }

    /// Somebody else is named by the log, and shows no sign of it yet.
    pub(crate) fn successor_is_unheard(&self) -> bool {
        let (event, named) = self.history.term();
        named != self.me.uid && Some(event) > self.order.heard && self.history.end() <= event
    }

    /// The event that names somebody else is this member's own doing, and nobody shows that it is known.
    pub(crate) fn is_predecessor(&self) -> bool {
        self.successor_is_unheard() && self.order.numbered == self.term()
    }

    /// Somebody else is named and not heard yet: arms the timer by which it is told.
    fn watch_for_successor(&mut self, now: Time, event: Seqno, named: Uid) {
        let unheard = named != self.me.uid
            && Some(event) > self.order.heard
            && self.history.end() <= event
            && self.phase != Phase::Joining
            && !self.recovery.has_promised();
        if self.order.acting.is_none() {
            if unheard && self.order.heartbeat_at.is_none() {
                let first = if self.order.numbered == event { HEARTBEAT_FIRST } else { HEARTBEAT_IDLE };
                self.order.heartbeat_after = first;
                self.order.heartbeat_at = Some(now + first);
            } else if !unheard {
                self.order.heartbeat_at = None;
            }
        }
    }

    /// Whoever knows a naming event and does not hear its term says how far the numbers go: the predecessor to
    /// everybody, anyone else to the one who is named.
    pub(super) fn tell_successor(&mut self, now: Time) {
        self.order.heartbeat_at = None;
        let (event, named) = self.history.term();
        if Some(event) <= self.order.heard || named == self.me.uid || self.recovery.has_promised() {
            return;
        }
        if self.order.numbered == event {
            self.order.heartbeat_due = true;
        } else {
            let heartbeat = self.say_heartbeat(now);
            self.post(named, Frame::Heartbeat(heartbeat));
        }
        let after = (self.order.heartbeat_after * 2).clamp(HEARTBEAT_FIRST, HEARTBEAT_IDLE);
        self.order.heartbeat_after = after;
        self.order.heartbeat_at = Some(now + after);
    }

    /// Somebody acknowledges to this member and has not received the event that names another: who is named may speak to
    /// all and not be heard there.
    #[cold]
    pub(crate) fn show_successor(&mut self, now: Time, to: Uid, received: Seqno) {
        if received < self.term() && Some(self.term()) <= self.order.heard && !self.recovery.has_promised() {
            self.repeat_to(now, to);
        }
    }

    /// The role goes to whom the application wants to have it, or to who sends.
    pub(super) fn number_role(&mut self, now: Time) {
        let asked = self.order.successor.take();
        let Some(successor) = asked.or_else(|| self.successor_by_load(now)) else { return };
        if successor != self.me.uid && self.is_in_view(successor) {
            self.append_change(Change::Role { sequencer: successor });
            self.resign(now);
        }
    }

    /// The role goes to somebody else with the event just numbered.
    pub(crate) fn resign(&mut self, now: Time) {
        self.order.numbered = self.history.received();
        if !self.broken(Planted::OldSequencerGoesOn) {
            self.order.acting = None;
        }
        self.order.heartbeat_at = None;
        // Who is in the way is for the next sequencer to see; in another term the time begins anew.
        self.order.shut_since = None;
        self.unordered.clear();
        // Whoever listens asks the next.
        self.forget_observers(now, |_, _| true);
        self.audience_is_stale = true;
    }

    /// The application wants somebody else to order.
    pub(crate) fn request_hand_over(&mut self, to: Uid) {
        self.order.successor = Some(to);
    }
}

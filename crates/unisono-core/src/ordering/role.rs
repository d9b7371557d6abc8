//! The role of sequencer: which member takes it and when, how it is handed on, and how members learn of it (KT93 §3.1;
//! KT96 §5). `moves` has what follows from it.
//!
//! An event of the log names the sequencer: a role event, a switch of the order, the leave of the previous one, a reset. The named member
//! takes the role once for each event, as soon as it holds everything through there. Until it is heard, each member
//! that knows the event reports it to the successor.

use super::heartbeat::{HEARTBEAT_FIRST, HEARTBEAT_IDLE, NO_STAMP};
use crate::config::{Migration, Order};
use crate::group::{Group, Phase};
use crate::identity::{Seqno, Uid};
use crate::planted::Planted;
use crate::time::Time;
use crate::wire::{Change, Frame, Heartbeat};

impl Group {
    /// Returns the sequencer that the last known naming event names.
    pub(super) fn named(&self) -> Uid {
        self.log.history().term().1
    }

    /// Returns the seqno of the event that named this sequencer.
    pub(crate) fn term(&self) -> Seqno {
        self.log.history().term().0
    }

    /// Takes the role if the log says so (docs/protocol/sequencer.md: once per event, holding everything through it).
    pub(crate) fn take_role(&mut self, now: Time) {
        let (mut event, mut named) = self.log.history().term();
        if self.is_ring()
            && self.broken(Planted::TokenTakenWithHole)
            && let Some(pass) = self.log.history().last_pass_to(self.me.uid)
        {
            (event, named) = (pass, self.me.uid);
        }
        let promised = self.recovery.has_promised();
        let again = self.broken(Planted::TokenTakenTwice) && self.is_ring();
        if named != self.me.uid || promised || !(self.order.may_take(event) || again) {
            self.watch_for_successor(now, event, named);
        } else {
            self.enter_role(now, event);
        }
    }

    /// True if the log names another member that shows no sign of it yet.
    pub(crate) fn successor_is_unheard(&self) -> bool {
        let (event, named) = self.log.history().term();
        named != self.me.uid && Some(event) > self.order.heard && self.log.end() <= event
    }

    /// True if this member numbered the event that names another one, and no member shows that it knows the event.
    pub(crate) fn is_predecessor(&self) -> bool {
        self.successor_is_unheard() && self.order.numbered == self.term()
    }

    /// Arms the timer for heartbeats to a named successor that is not heard yet.
    fn watch_for_successor(&mut self, now: Time, event: Seqno, named: Uid) {
        let unheard = named != self.me.uid
            && Some(event) > self.order.heard
            && self.log.end() <= event
            && self.phase != Phase::Joining
            && !self.recovery.has_promised();
        if self.is_ring() && (event > self.order.numbered || !unheard) {
            self.note_pass_taken(now);
        }
        if self.order.acting.is_none() {
            if !unheard {
                self.order.heartbeat_at = None;
            } else if self.order.heartbeat_at.is_none() || self.order.tells_of != event {
                // A later event shows that the earlier one is known: in a moving ring there is nothing to tell.
                let first = if self.order.numbered == event { HEARTBEAT_FIRST } else { HEARTBEAT_IDLE };
                self.order.tells_of = event;
                self.order.heartbeat_after = first;
                self.order.heartbeat_at = Some(now + first);
            }
        }
    }

    /// Announces how far the seqnos go while the term of a naming event is not heard: the predecessor to all members,
    /// any other member to the successor.
    pub(super) fn tell_successor(&mut self, now: Time) {
        self.order.heartbeat_at = None;
        let (event, named) = self.log.history().term();
        if Some(event) <= self.order.heard || named == self.me.uid || self.recovery.has_promised() {
            return;
        }
        let told_by_giver_alone = self.broken(Planted::PassToldByGiverAlone) && self.order.numbered != event;
        if self.is_ring() && (self.broken(Planted::PassNotRepeated) || told_by_giver_alone) {
            return;
        }
        if self.order.numbered == event {
            self.exclude_if_role_is_untaken(now, event, named);
            if self.is_ring() {
                self.repeat_pass(now, named);
            } else {
                self.order.beat_now(true);
            }
        } else {
            let heartbeat = Heartbeat { stamp: NO_STAMP, ..self.say_heartbeat(now) };
            self.post(named, Frame::Heartbeat(heartbeat));
        }
        let after = (self.order.heartbeat_after * 2).clamp(HEARTBEAT_FIRST, HEARTBEAT_IDLE);
        self.order.heartbeat_after = after;
        self.order.heartbeat_at = Some(now + after);
    }

    /// Sends a heartbeat to a member that acknowledges to this one because it has not received the event that names
    /// another. The successor may address the group and not be heard by that member.
    #[cold]
    pub(crate) fn show_successor(&mut self, now: Time, to: Uid, received: Seqno) {
        if received < self.term() && Some(self.term()) <= self.order.heard && !self.recovery.has_promised() {
            self.repeat_to(now, to);
        }
    }

    /// Moves the role: to the member that the application has chosen, to one that is not in the way as this one is, in a
    /// ring to the next that is called for, or to the one that sends most.
    pub(super) fn number_role(&mut self, now: Time) {
        // A switch of the order may have come since the application asked.
        let never_moves = self.log.history().order() == Order::Sequencer(Migration::Never);
        let asked = self.order.successor.take();
        let unsettled = asked.filter(|_| !never_moves).or_else(|| self.successor_out_of_the_way(now));
        let successor = unsettled.or_else(|| self.next_site(now)).or_else(|| self.successor_by_load(now));
        let Some(successor) = successor.filter(|uid| *uid != self.me.uid && self.is_in_view(*uid)) else {
            return;
        };
        self.append_change(Change::Role { sequencer: successor });
        if !self.is_ring() {
            return self.resign(now);
        }
        if unsettled.is_some() {
            // Otherwise no process listens.
            self.forget_observers(now, |_, _| true);
        }
        self.pass_token(now);
    }

    /// Notes that the application wants another member to be sequencer.
    pub(crate) fn request_hand_over(&mut self, to: Uid) {
        self.order.successor = Some(to);
    }
}

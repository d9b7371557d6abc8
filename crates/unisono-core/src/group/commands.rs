//! Commands: what the application may do in a group, and what it may read.

use super::{Group, Phase, Reason};
use crate::config::{Migration, Order};
use crate::error::{HandOverError, LeaveError, ResetError, SendError};
use crate::event::Outside;
use crate::flow::Outgoing;
use crate::fragment;
use crate::identity::{GroupTag, Instance, MessageNumber, Uid};
use crate::look::Counters;
use crate::outside;
use crate::planted::{Planted, Probe};
use crate::quality::Quality;
use crate::time::Time;
use crate::wire::{GREETING_BYTES_MAX, piece_bytes_max};
use bytes::Bytes;

impl Group {
    /// Sends a message to the group (SendToGroup). Returns its number, under which [`Group::poll_sent`] reports its
    /// outcome.
    ///
    /// # Errors
    /// See [`SendError`]: nothing was sent.
    pub fn send(&mut self, now: Time, payload: Bytes) -> Result<MessageNumber, SendError> {
        self.send_with(now, payload, Quality::ORDERED)
    }

    /// Sends a message of this quality. Like any other it is delivered in the group's order, and only when as many members
    /// hold it as the quality asks. Messages with later seqnos wait for that too. Those of
    /// [`Quality::UNORDERED`] and [`Quality::SOURCE_ORDERED`] may come before, as [`Event::Early`](crate::Event::Early).
    ///
    /// A message of [`Quality::UNRELIABLE`] has no seqno and no outcome: the number returned is 0, and each member that
    /// receives the message gets [`Event::Early`](crate::Event::Early).
    ///
    /// # Errors
    /// See [`SendError`]: nothing was sent.
    pub fn send_with(
        &mut self,
        now: Time,
        payload: Bytes,
        quality: Quality,
    ) -> Result<MessageNumber, SendError> {
        self.send_payload(now, outside::escape(payload), quality)
    }

    /// Sends a message for a process that is no member: every member receives it with the process and its number. The
    /// caller answers for the process's order, as [`Relay`](outside::Relay) does.
    ///
    /// # Errors
    /// See [`SendError`]: nothing was sent.
    pub fn send_outside(
        &mut self,
        now: Time,
        outside: Outside,
        payload: &[u8],
        quality: Quality,
    ) -> Result<MessageNumber, SendError> {
        self.send_payload(now, outside::mark(outside, payload), quality)
    }

    fn send_payload(
        &mut self,
        now: Time,
        payload: Bytes,
        quality: Quality,
    ) -> Result<MessageNumber, SendError> {
        match self.phase {
            Phase::Locating | Phase::Joining => return Err(SendError::NotMember),
            Phase::Resetting => return Err(SendError::Resetting),
            Phase::Leaving | Phase::Excluded | Phase::Gone => return Err(SendError::Left),
            Phase::Member => {}
        }
        let max = self.config.message_bytes_max as usize;
        if payload.len() > max {
            return Err(SendError::TooLarge { bytes: payload.len(), max });
        }
        if !quality.has_seqno() {
            return self.send_unreliable(payload).map(|()| 0);
        }
        if quality.is_by_quorum()
            && !self.config.quorums_intersect()
            && !self.broken(Planted::MajorityUnderAtLeast)
        {
            return Err(SendError::QuorumsDoNotIntersect);
        }
        if self.outbox.len() >= self.config.window as usize {
            self.probe(Probe::SendRefused);
            return Err(match self.own_events_stop_the_order() {
                true => SendError::NotReceiving,
                false => SendError::WindowFull,
            });
        }
        let piece_bytes_max = self.piece_bytes_max();
        // A message of several pieces is never early.
        let early = quality.may_be_early() && payload.len() <= piece_bytes_max;
        let quality = if quality.may_be_early() && !early { Quality::ORDERED } else { quality };
        let broadcast = early || payload.len() > self.config.broadcast_above_bytes as usize;
        let mut number = 0;
        let whole = if early { payload.clone() } else { Bytes::new() };
        let waits = if self.submit_to().is_none() {
            self.order.announced < self.order.numbered
        } else {
            self.outbox.has_unsent()
        };
        let room = match waits && !early {
            true => self.outbox.room_beside(piece_bytes_max),
            false => piece_bytes_max,
        };
        for (more, bytes) in fragment::cut(payload, piece_bytes_max, room) {
            number = self.outbox.push(
                Outgoing { more, quality, broadcast, went_to_all: false, again_at: Time::ZERO, bytes },
                piece_bytes_max,
            );
        }
        if early {
            self.deliver_own_early(number, quality, whole);
        }
        if self.submit_to().is_none() {
            self.settle(now);
        }
        Ok(number)
    }

    /// True if no message gets a seqno until this member's application takes events: those that wait for it fill the
    /// history.
    pub fn own_events_stop_the_order(&self) -> bool {
        let waiting = self.log.received() - self.log.delivered();
        // Only the sequencer knows the number of bytes, and stops at its limit.
        let fills_bytes = self.may_assign()
            && self.log.base() >= self.log.delivered()
            && self.log.history().bytes() >= self.config.history_bytes;
        self.phase == Phase::Member
            && self.log.delivered() < self.log.accepted()
            && (waiting >= u64::from(self.config.history_messages) || fills_bytes)
    }

    /// Leaves the group (LeaveGroup) by an ordered event, which this member receives too, followed by
    /// [`Event::Gone`](crate::Event::Gone). `goodbye` is delivered with it. Under the manual policy the application goes on
    /// answering [`Event::Suspected`](crate::Event::Suspected) until then: the leave may have to wait for a reset.
    ///
    /// # Errors
    /// See [`LeaveError`]: nothing was done.
    pub fn leave(&mut self, now: Time, goodbye: Bytes) -> Result<(), LeaveError> {
        if goodbye.len() > GREETING_BYTES_MAX {
            return Err(LeaveError::TooLarge { bytes: goodbye.len(), max: GREETING_BYTES_MAX });
        }
        match self.phase {
            Phase::Locating | Phase::Joining => return Err(LeaveError::NotMember),
            Phase::Leaving | Phase::Excluded | Phase::Gone => return Err(LeaveError::Left),
            Phase::Member | Phase::Resetting => {}
        }
        self.begin_leaving(now, goodbye);
        self.settle(now);
        Ok(())
    }

    /// Resets the group after a suspicion (ResetGroup), with at least `min_members`. Under the automatic policy no call
    /// is needed. While no member is suspected no reset begins, and the result is whether the group has `min_members`.
    ///
    /// # Errors
    /// See [`ResetError`]: nothing was begun, except where too few members answer.
    pub fn reset(&mut self, now: Time, min_members: usize) -> Result<(), ResetError> {
        let request = self.request_reset(now, min_members);
        if !matches!(request, Ok(()) | Err(ResetError::Halted { .. })) {
            return request;
        }
        self.recovery_timeout(now);
        self.settle(now);
        request
    }

    /// Hands the role of sequencer to another member, by an ordered event.
    ///
    /// # Errors
    /// See [`HandOverError`]: nothing was done.
    pub fn hand_over(&mut self, now: Time, to: Uid) -> Result<(), HandOverError> {
        if self.log.history().order() == Order::Sequencer(Migration::Never) {
            return Err(HandOverError::Never);
        }
        if self.recovery.has_promised() {
            return Err(HandOverError::Resetting);
        }
        if !self.may_assign() {
            return Err(HandOverError::NotSequencer { sequencer: self.contact() });
        }
        if !self.is_in_view(to) {
            return Err(HandOverError::NoSuchMember(to));
        }
        self.request_hand_over(to);
        self.settle(now);
        Ok(())
    }

    /// Returns the size of the largest piece of a message that fits a datagram.
    pub(crate) fn piece_bytes_max(&self) -> usize {
        piece_bytes_max(self.settings.datagram_bytes_max)
    }

    /// Returns when to call [`Group::handle_timeout`], and why.
    pub fn poll_timeout(&self) -> Option<(Time, Reason)> {
        self.wake
    }

    /// Returns the phase of this member's life.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Returns the instance of its group: another group of the same name has another one. 0 before a group was found.
    pub fn instance(&self) -> Instance {
        self.instance
    }

    /// True if this member's own leave is in the order and accepted. Its application receives the leave as the last
    /// event before [`Event::Gone`](crate::Event::Gone), unless this member never received it and learned afterwards
    /// that it may go.
    pub fn has_left(&self) -> bool {
        self.left
    }

    /// Returns the tag of datagrams for this group.
    pub fn tag(&self) -> GroupTag {
        self.tag
    }

    /// Returns what was counted so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }
}

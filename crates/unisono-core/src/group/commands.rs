//! What the application may ask for, and what it may see.

use super::{Audience, Group, Info, Marks, Phase, Reason};
use crate::config::Migration;
use crate::error::{HandOverError, LeaveError, ResetError, SendError};
use crate::flow::Outgoing;
use crate::fragment;
use crate::identity::{GroupTag, MessageNumber, Uid};
use crate::look::{Counters, MemberReport, Report, WaitReason, Waiting};
use crate::planted::{Planted, Probe};
use crate::time::Time;
use crate::wire::{GREETING_BYTES_MAX, piece_bytes_max};
use alloc::vec::Vec;
use bytes::Bytes;

impl Group {
    /// Sends a message to the group (SendToGroup). Returns its number; its fate comes by
    /// [`Group::poll_sent`] under that number.
    ///
    /// # Errors
    /// See [`SendError`]: nothing was sent.
    pub fn send(&mut self, now: Time, payload: Bytes) -> Result<MessageNumber, SendError> {
        self.send_resilient(now, payload, 0)
    }

    /// Sends a message that survives `resilience` crashes, if that is more than the group's own.
    ///
    /// # Errors
    /// See [`SendError`]: nothing was sent.
    pub fn send_resilient(
        &mut self,
        now: Time,
        payload: Bytes,
        resilience: u8,
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
        if self.outbox.len() >= self.config.window as usize {
            self.probe(Probe::SendRefused);
            return Err(match self.own_events_stop_the_order() {
                true => SendError::NotReceiving,
                false => SendError::WindowFull,
            });
        }
        let broadcast = payload.len() > self.config.broadcast_above_bytes as usize;
        let mut number = 0;
        let piece_bytes_max = self.piece_bytes_max();
        let waits = if self.order.is_acting() {
            self.order.announced < self.order.numbered
        } else {
            self.outbox.has_unsent()
        };
        let room = if waits { self.outbox.room_beside(piece_bytes_max) } else { piece_bytes_max };
        for (more, bytes) in fragment::cut(payload, piece_bytes_max, room) {
            number = self
                .outbox
                .push(Outgoing { more, resilience, broadcast, again_at: Time::ZERO, bytes }, piece_bytes_max);
        }
        if self.order.is_acting() {
            self.settle(now);
        }
        Ok(number)
    }

    /// Nothing gets a place until this member's application takes events: those that wait for it fill the history.
    pub fn own_events_stop_the_order(&self) -> bool {
        let waiting = self.history.received() - self.delivered;
        // Only the orderer knows how many bytes there are, and minds.
        let fills_bytes = self.order.is_acting()
            && self.history.base() >= self.delivered
            && self.history.bytes() >= self.config.history_bytes;
        self.phase == Phase::Member
            && self.delivered < self.accepted
            && (waiting >= u64::from(self.config.history_messages) || fills_bytes)
    }

    /// Leaves the group (LeaveGroup): an ordered event that this member receives too, then
    /// [`Event::Gone`](crate::Event::Gone). `goodbye` is delivered with it.
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

    /// Brings the group back together after a suspicion (ResetGroup), with at least `min_members`. Under the
    /// automatic policy there is no need to call it.
    ///
    /// # Errors
    /// See [`ResetError`]: nothing was begun.
    pub fn reset(&mut self, now: Time, min_members: usize) -> Result<(), ResetError> {
        self.request_reset(now, min_members)?;
        self.recovery_timeout(now);
        self.settle(now);
        Ok(())
    }

    /// Hands the role of orderer to another member, by an ordered event.
    ///
    /// # Errors
    /// See [`HandOverError`]: nothing was done.
    pub fn hand_over(&mut self, now: Time, to: Uid) -> Result<(), HandOverError> {
        if self.config.migration == Migration::Never {
            return Err(HandOverError::Never);
        }
        if self.recovery.has_promised() {
            return Err(HandOverError::Resetting);
        }
        if !self.order.is_acting() {
            return Err(HandOverError::NotOrderer { orderer: self.named() });
        }
        if self.history.view().iter().all(|member| member.uid != to) {
            return Err(HandOverError::NoSuchMember(to));
        }
        self.request_hand_over(to);
        self.settle(now);
        Ok(())
    }

    /// The largest piece of a message that fits a datagram.
    pub(crate) fn piece_bytes_max(&self) -> usize {
        piece_bytes_max(self.settings.datagram_bytes_max)
    }

    /// When to call [`Group::handle_timeout`], and what for.
    pub fn poll_timeout(&self) -> Option<(Time, Reason)> {
        self.wake
    }

    /// Who hears what is sent to [`Destination::Everyone`](crate::Destination::Everyone).
    pub fn audience(&self) -> &Audience {
        &self.audience
    }

    /// Where this member stands in its life.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// What datagrams for this group carry.
    pub fn tag(&self) -> GroupTag {
        self.tag
    }

    /// What was counted so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The state of the group as this member sees it (GetInfoGroup).
    pub fn info(&self) -> Info {
        let members = self.history.view().to_vec();
        Info {
            phase: self.phase,
            epoch: self.epoch,
            me: self.me.uid,
            rank: members.iter().position(|member| member.uid == self.me.uid),
            orderer: self.named(),
            by_multicast: self.audience.multicast,
            expected: self.delivered + 1,
            unstable: self.history.received() + 1,
            accepted: self.accepted,
            buffered: self.history.len(),
            under_way: self.outbox.len(),
            window: self.config.window as usize,
            resilience: self.resilience_in(members.len()),
            resets: self.counters.resets,
            last_reset: self.last_reset,
            foreign: self.foreign,
            members,
        }
    }

    /// Where this member stands, for checkers: cheap enough to read after every input.
    pub fn marks(&self) -> Marks {
        Marks {
            epoch: self.epoch_tag,
            term: self.term(),
            acting: self.order.is_acting(),
            numbered: self.order.numbered_by_us(),
            received: self.history.received(),
            acknowledged: self.acknowledging.acknowledged(),
            accepted: self.accepted,
            delivered: self.delivered,
            purged: self.history.base(),
            history: self.history.len(),
            promised: self.recovery.promised(),
            prepared: self.recovery.prepared(),
        }
    }

    /// Whether [`Group::marks`] may have moved since [`Group::has_moved_from`] was asked last, or [`Group::poll_sent`] has
    /// something. Cheap enough to ask at any time.
    #[inline]
    pub fn has_news(&self) -> bool {
        self.moved || !self.sent.is_empty()
    }

    /// Whether [`Group::marks`] tells something else than when this was asked last, and got `marks`; aside from what was
    /// delivered, and a history that got shorter. Cheap enough to ask after every call.
    #[inline]
    pub fn has_moved_from(&mut self, marks: &Marks) -> bool {
        core::mem::take(&mut self.moved) && !self.stands_at(marks)
    }

    fn stands_at(&self, marks: &Marks) -> bool {
        self.history.received() == marks.received
            && self.accepted == marks.accepted
            && self.history.base() == marks.purged
            && self.history.len() <= marks.history
            && self.acknowledging.acknowledged() == marks.acknowledged
            && self.epoch_tag == marks.epoch
            && self.order.numbered_by_us() == marks.numbered
            && self.order.is_acting() == marks.acting
            && self.term() == marks.term
            && self.recovery.promised() == marks.promised
            && self.recovery.prepared() == marks.prepared
    }

    /// Switches a protocol bug on. Without the feature `planted` this does nothing.
    pub fn plant(&mut self, bug: Planted) {
        self.plant_bug(bug);
    }

    /// The rare states met so far: bit `n` stands for the `n`th of [`Probe::ALL`].
    pub fn probes(&self) -> u128 {
        self.probes_met()
    }

    /// What this member tells whoever looks at the group from outside.
    pub fn report(&self, now: Time) -> Report {
        Report {
            epoch: self.epoch,
            primary: matches!(self.phase, Phase::Member | Phase::Leaving) && !self.recovery.has_promised(),
            reporter: self.me.uid,
            orderer: self.named(),
            term: self.term(),
            resilience: self.resilience_in(self.history.view().len()),
            end: self.history.end(),
            accepted: self.accepted,
            stable: self.stable(),
            members: self.history.view().iter().map(|member| self.report_of(now, member.uid)).collect(),
            members_omitted: 0,
            waiting: self.waits(now),
            waiting_omitted: 0,
            buffered: u32::try_from(self.history.len()).unwrap_or(u32::MAX),
            window: self.config.window,
            under_way: u32::try_from(self.outbox.len()).unwrap_or(u32::MAX),
            in_epoch: now.since(self.epoch_entered_at),
            last_reset: self.last_reset,
            counters: self.counters,
        }
    }

    fn report_of(&self, now: Time, uid: Uid) -> MemberReport {
        match self.peers.get(uid) {
            Some(peer) => MemberReport {
                member: peer.member.clone(),
                received: peer.received,
                delivered: peer.delivered,
                suspected: peer.suspected.is_some(),
                multicast: peer.hears_multicast,
                silent: now.since(peer.last_heard),
            },
            None => MemberReport {
                member: self.me.clone(),
                received: self.history.received(),
                delivered: self.delivered,
                suspected: false,
                multicast: self.hears_multicast(now),
                silent: core::time::Duration::ZERO,
            },
        }
    }

    /// Whom and what this member waits for (`why`).
    fn waits(&self, now: Time) -> Vec<Waiting> {
        let mut waits = Vec::new();
        let mut wait = |reason, member, seqno, since: Time| {
            waits.push(Waiting { who: self.me.uid, reason, member, seqno, since: now.since(since) });
        };
        if let Some(since) = self.recovery.since() {
            wait(WaitReason::Reset, None, self.history.received(), since);
            return waits;
        }
        if let Some((since, who)) = self.window_shut_by() {
            wait(WaitReason::Window, Some(who), self.history.received() + 1, since);
        }
        if self.lacks() {
            wait(WaitReason::Flush, Some(self.named()), self.history.received() + 1, now);
        }
        if self.accepted < self.history.received() {
            let seqno = self.accepted + 1;
            let view = self.history.view_at(self.accepted);
            for member in view.iter().filter(|member| !self.holds(member.uid, seqno)) {
                let since = self.peers.get(member.uid).map_or(now, |peer| peer.last_heard);
                wait(WaitReason::Ack, Some(member.uid), seqno, since);
            }
        }
        let named = self.named();
        if named != self.me.uid && self.successor_is_unheard() {
            wait(WaitReason::Token, Some(named), self.term(), now);
        }
        waits
    }
}

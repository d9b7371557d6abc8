//! Answers to clients: each says what state a slot is in when the datagram is made.
//!
//! Only the slots' numbers are queued, so a datagram always carries the latest state.

use super::Server;
use super::session::{Sending, Slot, State};
use super::sessions::SessionId;
use crate::rpc::common::Common;
use crate::rpc::output::{Correspondent, Letter, Packet};
use crate::rpc::transfer::Outgoing;
use crate::time::Time;
use crate::wire::{Attempt, Frame, Grant, Payload, Reply, Writer};
use alloc::boxed::Box;

impl Server {
    /// Changes an attempt's state and queues the answer to its client.
    pub(super) fn settle(&mut self, id: SessionId, slot: u16, state: State) {
        self.change(id, slot, state);
        self.tell(id, slot);
    }

    /// Queues an answer about this slot.
    pub(super) fn tell(&mut self, id: SessionId, slot: u16) {
        let Some(session) = self.sessions.get_mut(id) else { return };
        let Some(place) = session.slots.get_mut(usize::from(slot)) else { return };
        if !core::mem::replace(&mut place.is_to_tell, true) {
            session.to_tell.push_back(slot);
        }
        if !core::mem::replace(&mut session.is_due, true) {
            self.due.push_back(id);
        }
    }

    pub(in crate::rpc) fn has_nothing_to_say(&self) -> bool {
        self.due.is_empty() && self.parts_due.is_empty()
    }

    /// Writes the answers to one client; returns `None` if there are none.
    pub(in crate::rpc) fn write_news(
        &mut self,
        now: Time,
        common: &mut Common,
        packet: &mut Packet<'_>,
    ) -> Option<Letter> {
        loop {
            let id = *self.due.front()?;
            let Some(session) = self.sessions.get(id) else {
                self.due.pop_front();
                continue;
            };
            let grant = self.grant(session.source, session.in_progress);
            let Some(session) = self.sessions.get_mut(id) else { continue };
            let mut writer = packet.for_client(id.client);
            let mut written = false;
            while let Some(&number) = session.to_tell.front() {
                if let Some(slot) = session.slots.get_mut(usize::from(number)) {
                    let attempt = Attempt { to: id.client, slot: number, number: slot.number };
                    // Whether or not its announcement still fits into this datagram.
                    if starts_transfer(now, common, slot) {
                        self.parts_due.push_back((id, number, attempt.number));
                        let look_at = now + common.settings.silence;
                        self.look_times.insert((look_at, id, number, attempt.number));
                        self.wake = self.wake.min(look_at);
                    }
                    match write_state(&mut writer, attempt, grant, slot) {
                        Some(true) => written = true,
                        Some(false) if written => break,
                        _ => {}
                    }
                    slot.is_to_tell = false;
                }
                session.to_tell.pop_front();
            }
            if session.to_tell.is_empty() {
                session.is_due = false;
                self.due.pop_front();
            } else {
                self.due.rotate_left(1);
            }
            if written {
                let session = self.sessions.get(id)?;
                return Some((session.address, Correspondent::Client(id)));
            }
        }
    }
}

impl Server {
    /// Writes the next part of a large reply, each reply in its turn.
    pub(in crate::rpc) fn write_part(
        &mut self,
        now: Time,
        common: &mut Common,
        packet: &mut Packet<'_>,
    ) -> Option<Letter> {
        while let Some(name) = self.parts_due.pop_front() {
            let (id, slot, number) = name;
            let Some(sending) = self.sending(name) else { continue };
            let attempt = Attempt { to: id.client, slot, number };
            sending.is_queued = false;
            let Some((part, again)) = sending.parts.next(now, attempt, true) else { continue };
            common.counters.parts_resent += u64::from(again);
            packet.for_client(id.client).frame(&Frame::Part(part));
            self.attend(common, name);
            let address = self.sessions.get(id)?.address;
            return Some((address, Correspondent::Client(id)));
        }
        None
    }

    /// Returns a large reply that is being sent.
    pub(super) fn sending(&mut self, (id, slot, number): (SessionId, u16, u64)) -> Option<&mut Sending> {
        match &mut self.sessions.get_mut(id)?.attempt(slot, number)?.state {
            State::Replied(kept) => kept.transfer.as_deref_mut(),
            _ => None,
        }
    }

    /// Queues a large reply if a part of it may be sent, and sees to it that it is looked at no later than it has to be.
    pub(super) fn attend(&mut self, common: &Common, name: (SessionId, u16, u64)) {
        let Some(sending) = self.sending(name) else { return };
        let is_ready = sending.parts.is_ready();
        let queues = is_ready && !sending.is_queued;
        sending.is_queued |= is_ready;
        let (due_at, look_at) = (sending.due_at(common.settings.silence), sending.look_at);
        sending.look_at = look_at.min(due_at);
        let (id, slot, number) = name;
        if due_at < look_at {
            self.look_times.remove(&(look_at, id, slot, number));
            self.look_times.insert((due_at, id, slot, number));
            self.wake_by(due_at);
        }
        if queues {
            self.parts_due.push_back(name);
        }
    }
}

/// Begins to send a reply in parts if it is too large for a datagram and not being sent yet. Returns true if it begins.
fn starts_transfer(now: Time, common: &Common, slot: &mut Slot) -> bool {
    let State::Replied(kept) = &mut slot.state else { return false };
    let is_large = kept.reply.len() > common.whole_bytes_max();
    if !is_large || kept.transfer.is_some() {
        return false;
    }
    let part_bytes = common.part_bytes();
    let parts = Outgoing::new(now, kept.reply.clone(), part_bytes, kept.parts_max.into());
    let look_at = now + common.settings.silence;
    kept.transfer = Some(Box::new(Sending { parts, is_queued: true, look_at }));
    true
}

/// Writes the state of a slot. Returns `None` if there is nothing to say, and false if the frame does not fit.
fn write_state(writer: &mut Writer<'_>, attempt: Attempt, grant: Grant, slot: &mut Slot) -> Option<bool> {
    let frame = match &mut slot.state {
        State::Done => return None,
        State::Receiving(receiving) => Frame::Got(receiving.incoming.got(attempt, false)),
        State::Queued(..) | State::InHand => Frame::Working { attempt, grant },
        State::Replied(kept) => {
            let payload = match &kept.transfer {
                Some(transfer) => transfer.parts.announced(),
                // Lent to the frame: a copy of the handle could cost an allocation.
                None => Payload::Whole(core::mem::take(&mut kept.reply)),
            };
            let frame = Frame::Reply(Reply { attempt, grant, refused: kept.refused, payload });
            let fits = writer.frame(&frame);
            if let Frame::Reply(Reply { payload: Payload::Whole(reply), .. }) = frame {
                kept.reply = reply;
            }
            return Some(fits);
        }
        State::Lost => Frame::Reject { attempt, grant, reason: crate::wire::Rejection::Lost },
        State::Rejected(reason) => Frame::Reject { attempt, grant, reason: *reason },
        State::Forwarded(to) => Frame::Forward { attempt, grant, to: *to },
    };
    Some(writer.frame(&frame))
}

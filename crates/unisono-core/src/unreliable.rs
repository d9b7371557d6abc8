//! Unreliable messages: for what is out of date when it would be sent again, like the position of a cursor.
//!
//! A message of [`Quality::UNRELIABLE`](crate::Quality::UNRELIABLE) has no seqno. It is sent once, in one datagram, and
//! each member delivers it when it receives it. It may come before or after any other message, and a lost one stays lost.
//! Nothing of it enters a log, an acknowledgement or a reset. Its frame has numbers of its own, so that no member waits
//! for one that is lost.
//!
//! A member delivers it at most once, because its frame is in one datagram and no datagram is taken twice. It is delivered
//! in the epoch in which it was sent, while the application's view has its sender: where the join of the sender is still to
//! be delivered, the message waits for that.

use crate::error::SendError;
use crate::event::Event;
use crate::group::{Group, Phase};
use crate::identity::{EpochTag, Uid};
use crate::outside::unmark;
use crate::planted::{Planted, Probe};
use crate::quality::Quality;
use crate::wire::{Decoder, Frame, Writer, unreliable_bytes_max};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use bytes::Bytes;

/// Maximum number of messages that wait to be sent; further ones are lost. The driver empties the queue after each command,
/// unless the network takes nothing.
const WAITING_MAX: usize = 1024;
/// Maximum number of messages that wait until the application knows their senders; further ones are lost.
const HELD_MAX: usize = 64;
/// Maximum number of events that the application has not taken at which one more is kept; beyond, the message is lost.
const EVENTS_MAX: usize = 1024;

/// A message that waits, and the epoch in which it was sent.
#[derive(Clone, Debug)]
struct Waiting {
    epoch: EpochTag,
    /// Its number among the unreliable messages of its sender, in a message of this member.
    number: u64,
    sender: Uid,
    payload: Bytes,
}

/// The unreliable messages that this member has to send or to deliver.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unreliable {
    /// Number of this member's last unreliable message.
    last: u64,
    to_send: VecDeque<Waiting>,
    /// Messages whose sender, or this member's own entry, the application has not been told of.
    held: VecDeque<Waiting>,
}

impl Unreliable {
    /// True if messages wait to be sent.
    #[inline]
    pub(crate) fn has_to_send(&self) -> bool {
        !self.to_send.is_empty()
    }

    /// True if messages wait until the application knows their senders.
    #[inline]
    pub(crate) fn has_held(&self) -> bool {
        !self.held.is_empty()
    }
}

impl Group {
    /// Sends an unreliable message: it is delivered here, and one datagram with it goes to the other members.
    pub(crate) fn send_unreliable(&mut self, payload: Bytes) -> Result<(), SendError> {
        let (bytes, max) = (payload.len(), unreliable_bytes_max(self.settings.datagram_bytes_max));
        if bytes > max {
            return Err(SendError::NotOneDatagram { bytes, max });
        }
        if self.broken(Planted::UnreliableSharesNumbers) {
            self.outbox.skip_number();
        }
        self.unreliable.last += 1;
        let (epoch, number, sender) = (self.epoch_tag, self.unreliable.last, self.me.uid);
        let message = Waiting { epoch, number, sender, payload };
        if self.unreliable.to_send.len() < WAITING_MAX {
            self.unreliable.to_send.push_back(message.clone());
        }
        self.deliver_unreliable(message);
        Ok(())
    }

    /// Takes an unreliable message of a member.
    pub(crate) fn handle_unreliable(&mut self, sender: Uid, number: u64, payload: Bytes) {
        let takes_part = matches!(self.phase, Phase::Member | Phase::Leaving | Phase::Resetting);
        if takes_part && self.is_in_view(sender) {
            self.deliver_unreliable(Waiting { epoch: self.epoch_tag, number, sender, payload });
        }
    }

    /// Planted bug only: delivers the unreliable messages of a datagram that was taken before.
    #[cold]
    pub(crate) fn deliver_again(&mut self, sender: Uid, payload: Bytes) {
        for frame in Decoder::new(payload).flatten() {
            if let Frame::Unreliable { number, payload } = frame {
                self.handle_unreliable(sender, number, payload);
            }
        }
    }

    fn deliver_unreliable(&mut self, message: Waiting) {
        if self.application_knows(message.sender) {
            self.tell_unreliable(message);
        } else if self.unreliable.held.len() < HELD_MAX {
            self.probe(Probe::UnreliableHeld);
            self.unreliable.held.push_back(message);
        }
    }

    fn tell_unreliable(&mut self, message: Waiting) {
        if self.notices.len() < EVENTS_MAX {
            self.counters.unreliable += 1;
            let Waiting { sender, payload, .. } = message;
            let (outside, payload) = unmark(payload);
            let quality = Quality::UNRELIABLE;
            self.notices.push_back(Event::Early { sender, quality, outside, payload });
        }
    }

    /// True if the application has received the beginning of this epoch, and both this member and `sender` are in its view.
    pub(crate) fn application_knows(&self, sender: Uid) -> bool {
        let told = self.log.delivered();
        let view = self.log.history().view_at(told);
        let is_in = |uid| view.iter().any(|member| member.uid == uid);
        told >= self.entered_at.max(self.epoch_start) && is_in(sender) && is_in(self.me.uid)
    }

    /// Delivers what waited for the event that the application takes now.
    #[cold]
    pub(crate) fn deliver_held(&mut self) {
        let held = core::mem::take(&mut self.unreliable.held);
        for message in held {
            if message.epoch == self.epoch_tag {
                self.deliver_unreliable(message);
            }
        }
    }

    /// Packs unreliable messages for all members, as many as fit. Returns false if there are none to send.
    #[inline(never)]
    pub(crate) fn pack_unreliable(&mut self, out: &mut Vec<u8>) -> bool {
        let has_audience = self.peers.len() > 0 && !self.own_leave_is_logged();
        let epoch = self.epoch_tag;
        self.unreliable.to_send.retain(|message| has_audience && message.epoch == epoch);
        if !self.unreliable.has_to_send() {
            return false;
        }
        self.begin_datagram(out);
        let mut writer = Writer::new(out, self.settings.datagram_bytes_max);
        while let Some(Waiting { number, payload, .. }) = self.unreliable.to_send.front()
            && writer.frame(&Frame::Unreliable { number: *number, payload: payload.clone() })
        {
            self.unreliable.to_send.pop_front();
        }
        true
    }
}

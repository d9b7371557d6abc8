//! Intake: messages that ask for a seqno, kept until it is their turn.
//!
//! Every member keeps the messages that it receives, since it may have to number them. Only the sequencer requests
//! lacking messages from a sender, and shows it by a heartbeat that a message has its seqno already.

use super::capacity::Margin;
use crate::group::Group;
use crate::identity::{MessageNumber, Uid};
use crate::log::{Manner, Slice};
use crate::planted::{Planted, Probe};
use crate::time::Time;
use crate::wire::{Data, Frame, Method};
use core::time::Duration;

/// Minimum interval between two searches for gaps in one sender's messages.
const WANT_EVERY: Duration = Duration::from_millis(3);
/// Interval after which the same messages are requested again: answers are late where queues are long.
const WANT_AGAIN: Duration = Duration::from_millis(20);
/// Maximum number of gaps that a sender is asked to fill at once.
const WANTS_MAX: usize = 16;

impl Group {
    /// Handles messages that ask for a seqno.
    pub(crate) fn handle_data(&mut self, now: Time, data: Data) {
        let has_promised = self.recovery.has_promised() && !self.broken(Planted::EarlyAfterPromise);
        if has_promised || !self.is_in_view(data.sender) {
            return;
        }
        let window = self.kept_of_one_sender();
        let broadcast = data.method != Method::Pb;
        let patient = data.method == Method::BbStream;
        let manner = Manner { quality: data.quality, broadcast, patient };
        let careless = self.may_assign()
            && (self.broken(Planted::DuplicateNumbered) || self.broken(Planted::SenderOrderForgotten));
        let sender = data.sender;
        let (first, count) = (data.first, data.pieces.len() as u64);
        let last = if careless { self.log.history().sender_mark(sender).number } else { 0 };
        let fresh = if careless || (broadcast && self.log.history().lacks_data()) {
            let (mut fresh, mut number) = (false, data.first);
            data.pieces.each(|piece| {
                let named = (sender, number);
                number += 1;
                if broadcast && self.log.supply(named.0, named.1, &piece) {
                    self.probe(Probe::NumberBeforeData);
                } else if !careless || !self.number_carelessly(now, named, last, manner, &piece) {
                    fresh |= self.log.keep(named, data.base, window, manner, piece);
                }
            });
            fresh
        } else {
            self.log.keep_run((sender, data.first), data.base, window, manner, data.pieces)
        };
        if fresh && (manner.quality.may_be_early() || !self.early.is_empty()) {
            self.deliver_early(sender, first, count);
        }
        if !fresh && self.may_assign() {
            self.probe(Probe::DuplicateRefused);
            self.repeat_to(now, sender);
        }
        if self.may_assign() {
            self.want(now, sender);
        }
    }

    /// Returns the number of messages of one sender that are kept beyond the last one in this member's log. The
    /// sequencer is never behind. Another member may lack a history of seqnos, while the sender goes on a window beyond
    /// them. If it dropped what it needs next, it would have to request everything, and would never catch up.
    fn kept_of_one_sender(&self) -> u64 {
        let window = u64::from(self.config.window);
        if self.may_assign() { window } else { u64::from(self.config.history_messages) + window }
    }

    /// Planted bugs only: numbers a message that must not be numbered.
    fn number_carelessly(
        &mut self,
        now: Time,
        (sender, number): (Uid, MessageNumber),
        last: MessageNumber,
        manner: Manner,
        data: &Slice<'_>,
    ) -> bool {
        let again = self.broken(Planted::DuplicateNumbered) && number <= last;
        let early = self.broken(Planted::SenderOrderForgotten) && number > last + 1;
        if (!again && !early) || !self.has_capacity(now, &mut Margin::default()) {
            return false;
        }
        let seqno = self.log.append_message(manner.numbered(sender, number), data.clone());
        self.note_numbered(now, seqno, manner.patient, data.len());
        self.order.numbered = self.log.received();
        true
    }

    /// Requests what is lacking of all senders: this member has the token now.
    pub(super) fn want_of_all(&mut self, now: Time) {
        let mut senders = core::mem::take(&mut self.order.turns);
        senders.extend(self.log.unordered().senders());
        senders.iter().for_each(|sender| self.want(now, *sender));
        senders.clear();
        self.order.turns = senders;
    }

    /// Requests messages of a sender that are lacking after its last numbered one and before others that are here.
    fn want(&mut self, now: Time, sender: Uid) {
        let Some(peer) = self.peers.get_mut(sender) else { return };
        if !peer.request_is_due(now, WANT_EVERY) {
            return;
        }
        let (wanted, since) = peer.wanted();
        let again = now.since(since) >= WANT_AGAIN;
        let last = self.log.history().sender_mark(sender).number;
        let gaps = self.log.unordered().gaps(sender, last, WANTS_MAX);
        let Some(&(_, through)) = gaps.last() else { return };
        // The search takes long where many messages are here, so it is not made for each datagram.
        peer.note_request(now);
        if through <= wanted && !again {
            return;
        }
        peer.note_wanted(through, if again { now } else { since });
        for (from, to) in gaps {
            if again || to > wanted {
                self.probe(Probe::SenderAsked);
                self.post(sender, Frame::Want { from, to });
            }
        }
    }
}

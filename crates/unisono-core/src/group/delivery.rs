//! Delivery: the application receives events in their order, and the outcomes of its own messages.
//!
//! Everything accepted becomes an event when the application asks for one, with pieces reassembled. Events that it does
//! not take slow down the senders. Notices that are no entries of the order go first, and the last event comes after
//! everything accepted. What the group has to do after events were taken also follows here.

use super::{Group, Phase};
use crate::event::{Event, Outcome, View};
use crate::identity::{Member, MessageNumber, Seqno, Uid};
use crate::log::{Entry, Members, Message, Reset};
use crate::outside::unmark;
use crate::planted::{Planted, Probe};
use crate::time::Time;
use crate::wire::Change;
use bytes::Bytes;

impl Group {
    /// Returns the next event (ReceiveFromGroup). Events that are not taken slow down the senders.
    pub fn poll_event(&mut self) -> Option<Event> {
        if self.halt.has_event()
            && self.notices.is_empty()
            && let Some(event) = self.halt_event()
        {
            return Some(event);
        }
        if !self.may_have_events() {
            // Nothing has happened. This is fast, because it is called after every input.
            if !matches!(self.phase, Phase::Locating | Phase::Joining) {
                self.note_delivered();
            }
            return None;
        }
        let before = self.log.delivered();
        let event = self.next_event();
        self.took_events |= event.is_some() || self.log.delivered() != before;
        event
    }

    /// False if [`Group::poll_event`] has nothing to return.
    #[inline]
    pub fn may_have_events(&self) -> bool {
        self.log.delivered() < self.log.accepted()
            || !self.notices.is_empty()
            || self.closing.is_some()
            || self.halt.has_event()
            || self.notes.has_untold() && self.may_tell_note()
            || self.broken(Planted::DeliverTentative)
    }

    #[inline(never)]
    fn next_event(&mut self) -> Option<Event> {
        if !self.notices.is_empty() {
            return self.notices.pop_front();
        }
        if self.notes.has_untold()
            && let Some(event) = self.tell_note()
        {
            return Some(event);
        }
        if matches!(self.phase, Phase::Locating | Phase::Joining) {
            return None;
        }
        if matches!(self.closing, Some(Event::JoinFailed { .. })) {
            // It was never a member: its application gets nothing of what it received.
            self.log.skip_through(self.log.accepted());
            return self.last_event();
        }
        let limit =
            if self.broken(Planted::DeliverTentative) { self.log.received() } else { self.log.accepted() };
        while self.log.delivered() < limit {
            let seqno = self.log.delivered() + 1;
            self.log.history().get(seqno)?;
            let was_early = !self.early.is_empty() && self.is_early_at(seqno);
            let event = self.event_at(seqno);
            self.log.deliver_next();
            if self.unreliable.has_held() {
                self.deliver_held();
            }
            if event.is_some() || !(was_early || self.is_pass(seqno)) {
                self.confirming.note_event(seqno);
            } else if was_early {
                self.confirming.note_skipped();
            }
            if event.is_some() && !self.joiner_starts_late(seqno) {
                self.note_delivered();
                return event;
            }
        }
        self.note_delivered();
        self.last_event()
    }

    /// Returns the event for the entry at `seqno`, if the entry has one.
    #[inline]
    pub(crate) fn event_at(&mut self, seqno: Seqno) -> Option<Event> {
        match self.log.history().get(seqno)? {
            Entry::Message(message) => {
                let message = *message;
                self.event_of_message(seqno, message)
            }
            Entry::Change(change) => {
                let change = change.clone();
                self.event_of_change(seqno, *change)
            }
            Entry::Role(_) if self.is_pass(seqno) => None,
            Entry::Role(sequencer) => Some(Event::HandedOver { seqno, sequencer: *sequencer }),
            Entry::Reset(reset) => {
                let reset = reset.clone();
                self.event_of_reset(seqno, *reset)
            }
        }
    }

    /// Returns the last event, if it is time for it.
    #[cold]
    fn last_event(&mut self) -> Option<Event> {
        if self.closing == Some(Event::Gone) && self.phase != Phase::Gone {
            // It has left, and still serves members that need it.
            return None;
        }
        self.closing.take()
    }

    /// True if the message at `seqno` was delivered early.
    pub(crate) fn is_early_at(&self, seqno: Seqno) -> bool {
        match self.log.history().get(seqno) {
            Some(Entry::Message(message)) => self.early.contains(message.sender, message.number),
            _ => false,
        }
    }

    /// Returns the event for a message; `None` for a piece that is not the last, and for what was delivered early.
    fn event_of_message(&mut self, seqno: Seqno, message: Message) -> Option<Event> {
        if self.passes_early(seqno, &message) {
            return None;
        }
        let Message { sender, number, quality, .. } = message;
        let data = self.log.history().data(&message);
        let (more, data) = (message.more(), data.map(|data| data.share()));
        let is_piece = more || self.log.is_put_together(sender);
        // A reset may put one that was delivered early behind pieces of a message that it fails.
        let is_piece = is_piece && !quality.may_be_early();
        let payload = if is_piece { self.put_together(sender, more, data?)? } else { data? };
        self.counters.messages_delivered += 1;
        let (outside, payload) = unmark(payload);
        Some(Event::Message { seqno, sender, number, outside, payload })
    }

    #[inline(never)]
    fn put_together(&mut self, sender: Uid, more: bool, piece: Bytes) -> Option<Bytes> {
        let max = self.config.message_bytes_max as usize;
        let whole = self.log.put_together(sender, more, piece, max)?;
        self.probe(Probe::PiecesDelivered);
        Some(whole)
    }

    #[cold]
    fn event_of_change(&mut self, seqno: Seqno, change: Change) -> Option<Event> {
        let members = self.log.history().view_at(seqno).len();
        match change {
            Change::Join { member, .. } if member.uid == self.me.uid => {
                let sequencer = self.log.history().term_at(seqno).1;
                Some(Event::Entered { seqno, view: self.view_at(seqno, sequencer) })
            }
            Change::Join { member, hello } => Some(Event::Joined { seqno, member, hello, members }),
            Change::Leave { uid, goodbye, .. } => {
                self.log.give_up_pieces(Some(uid));
                let member = find(self.log.history().view_at(seqno - 1), uid)?;
                let (term, sequencer) = self.log.history().term_at(seqno);
                let successor = (term == seqno).then_some(sequencer);
                Some(Event::Left { seqno, member, goodbye, members, successor })
            }
            Change::Order { order, sequencer } => Some(Event::OrderChanged { seqno, order, sequencer }),
            // It is an entry of another kind (`Entry::of_change`).
            Change::Role { .. } => None,
        }
    }

    #[cold]
    fn event_of_reset(&mut self, seqno: Seqno, reset: Reset) -> Option<Event> {
        if !self.broken(Planted::UnfinishedKept) {
            self.log.give_up_pieces(None);
        }
        let sequencer = self.log.history().term_at(seqno).1;
        let mut view = self.view_at(seqno, sequencer);
        view.epoch = reset.epoch;
        let Reset { excluded, degraded, forced, .. } = reset;
        Some(Event::Reset { seqno, view, excluded, degraded, forced })
    }

    /// Returns the view at that seqno, for the application.
    pub(crate) fn view_at(&self, seqno: Seqno, sequencer: Uid) -> View {
        let members = self.log.history().view_at(seqno).to_vec();
        let at_seqno = self.epochs.iter().rev().find(|(start, _)| *start <= seqno);
        let epoch = at_seqno.map_or(self.epoch, |(_, epoch)| *epoch);
        let (resilience, founded) = (self.resilience_in(members.len()), self.config.resilience);
        View { epoch, resilience, members, sequencer, resilience_founded: founded }
    }

    /// Returns the members of the view that the application knows by the events that it has received.
    pub fn delivered_view(&self) -> &[Member] {
        self.log.history().view_at(self.log.delivered())
    }

    /// Returns the next outcome of a message sent from here, in the order of their numbers. Outcomes are not part of
    /// the event stream: a sender learns them even while its application receives nothing.
    #[inline]
    pub fn poll_sent(&mut self) -> Option<(MessageNumber, Outcome)> {
        self.sent.pop_front()
    }

    /// Reports the outcome of the application's messages that were accepted beyond `before`.
    pub(crate) fn resolve_own(&mut self, before: Seqno) {
        if self.outbox.len() == 0 {
            return;
        }
        for seqno in before + 1..=self.log.accepted() {
            if let Some(Entry::Message(message)) = self.log.history().get(seqno)
                && message.sender == self.me.uid
            {
                let number = message.number;
                // A message of several pieces is reported with its last piece.
                let whole = !message.more();
                if self.outbox.resolve_through(number) && whole {
                    self.counters.messages_sent += 1;
                    self.sent.push_back((number, Outcome::Ok { seqno }));
                }
            }
        }
    }

    /// True if consuming events produced output to send. If false, polling again before the next input yields nothing;
    /// entries that may leave the history leave it then.
    #[inline]
    pub fn events_matter(&self) -> bool {
        let somebody_waits = || self.may_assign() && self.messages_wait_for_room();
        self.took_events && (self.acknowledging.is_due() || self.audience_is_stale() || somebody_waits())
    }

    /// Does what follows from the events that the application took: they may leave the history, and if it was full, the
    /// sequencer numbers again.
    pub(crate) fn settle_events(&mut self, now: Time) {
        if self.audience_is_stale() || (self.may_assign() && self.messages_wait_for_room()) {
            self.settle(now);
            return;
        }
        self.took_events = false;
        if matches!(self.phase, Phase::Member | Phase::Leaving | Phase::Joining | Phase::Resetting) {
            let before = self.log.base();
            self.purge();
            self.moved |= self.log.base() != before;
        }
    }
}

fn find(view: &Members, uid: Uid) -> Option<Member> {
    view.iter().find(|member| member.uid == uid).cloned()
}

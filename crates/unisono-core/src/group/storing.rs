//! Storing: entries that have their place, filed in the log.
//!
//! They come with data or, where the data went by BB, as numbers only, and are taken whoever sends them; but not in
//! every phase, and no further ahead than the history has room. What an entry's place shows to be held by all is noted
//! on the way.

use super::{Group, Phase};
use crate::history::{Entry, Filed, Message};
use crate::identity::{Ballot, Seqno};
use crate::planted::{Planted, Probe};
use crate::wire::{Numbers, Ordered};

impl Group {
    pub(super) fn handle_ordered(&mut self, ordered: Ordered, level: Option<Ballot>) {
        let Ordered { seqno, sender, first, resilience, pieces } = ordered;
        let last = seqno + pieces.len() as u64 - 1;
        if last <= self.history.received() || !self.takes(seqno, level) {
            return;
        }
        for (offset, piece) in (0..).zip(pieces) {
            let message = Message {
                sender,
                number: first + offset,
                resilience,
                more: piece.more,
                broadcast: false,
                data: Some(piece.bytes),
            };
            self.file(seqno + offset, Entry::Message(message), level);
        }
    }

    /// An accept without data: what came before by BB is filed under its number.
    pub(super) fn handle_numbers(&mut self, numbers: Numbers, level: Option<Ballot>) {
        let Numbers { seqno, sender, first, resilience, count } = numbers;
        let known = (self.history.received() + 1).saturating_sub(seqno);
        for offset in known..u64::from(count) {
            let (seqno, number) = (seqno + offset, first + offset);
            if !self.takes(seqno, level) {
                // Nor anything beyond.
                return;
            }
            if seqno <= self.history.received() || self.history.held(seqno).is_some() {
                continue;
            }
            let own = (sender == self.me.uid).then(|| self.outbox.get(number)).flatten();
            let found = match own {
                Some(own) => Some((own.more, own.bytes.clone())),
                None => self.hold.take(sender, number).map(|held| (held.more, held.bytes)),
            };
            if found.is_some() {
                self.probe(Probe::DataBeforeNumber);
            }
            let more = found.as_ref().is_some_and(|(more, _)| *more);
            let data = found.map(|(_, bytes)| bytes);
            let message = Message { sender, number, resilience, more, broadcast: true, data };
            self.note_room_below(seqno);
            let reach = self.reach(seqno);
            if self.history.file(seqno, Entry::Message(message), reach) == Filed::TooFar {
                return;
            }
        }
    }

    pub(super) fn file(&mut self, seqno: Seqno, entry: Entry, level: Option<Ballot>) {
        if self.takes(seqno, level) {
            match entry {
                Entry::Message(_) => self.note_room_below(seqno),
                _ => self.note_room_beside(seqno),
            }
            let reach = self.reach(seqno);
            self.history.file(seqno, entry, reach);
        }
    }

    /// Numbered entries are taken whoever sends them, unless a ballot was promised or the own leave is in the log:
    /// then only under the ballot for which they were asked.
    fn takes(&self, seqno: Seqno, level: Option<Ballot>) -> bool {
        if let Some((ballot, through)) = self.taking_level()
            && level == Some(ballot)
        {
            return seqno <= through;
        }
        let frozen = self.recovery.has_promised() && !self.broken(Planted::StoreAfterPromise);
        level.is_none()
            && !frozen
            && !self.own_leave_is_logged()
            && matches!(self.phase, Phase::Member | Phase::Leaving | Phase::Joining | Phase::Resetting)
            && !(self.order.is_acting() && seqno > self.history.received())
    }

    /// How many places beyond what is held may be kept: an orderer numbers no further than the history of the
    /// slowest member, and the few slots beside it, allow. Only an observer that falls behind is told more.
    fn reach(&mut self, seqno: Seqno) -> u64 {
        let slots = u64::from(self.config.history_messages) + self.history.view().len() as u64 + 2;
        if seqno > self.history.base() + slots {
            self.history.advance();
            self.purge();
        }
        (self.history.base() + slots).saturating_sub(self.history.received())
    }
}

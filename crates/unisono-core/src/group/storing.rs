//! Storing: entries that have their place, filed in the log.
//!
//! They come with data or, where the data went by BB, as numbers only, and are taken whoever sends them; but not in
//! every phase, and no further ahead than the history has room. What an entry's place shows to be held by all is noted
//! on the way.

use super::{Group, Phase};
use crate::blocks::Slice;
use crate::history::{Entry, Filed, Message};
use crate::identity::{Ballot, Seqno};
use crate::planted::{Planted, Probe};
use crate::wire::{Change, Numbers, Ordered};
use alloc::boxed::Box;

impl Group {
    pub(super) fn handle_ordered(&mut self, ordered: Ordered, level: Option<Ballot>) {
        let Ordered { seqno, sender, first, resilience, pieces } = ordered;
        let last = seqno + pieces.len() as u64 - 1;
        if last <= self.history.received() || !self.takes(seqno, level) {
            return;
        }
        let last = last.min(self.takes_through(level));
        let limit = last.min(self.reach_in_row(seqno, last));
        let message = Message { sender, number: first, resilience, broadcast: false, data: None };
        self.history.file_run(seqno, message, pieces, limit);
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
            self.note_room_below(seqno);
            let limit = self.reach(seqno);
            let own = (sender == self.me.uid).then(|| self.outbox.get(number)).flatten();
            let data = match own {
                Some(own) => Some(Slice::alone(own.more, &own.bytes)),
                None => self.unordered.take(sender, number).map(|(_, data)| data),
            };
            let data_was_here = data.is_some();
            let message = Message { sender, number, resilience, broadcast: true, data: None };
            let filed = self.history.file(seqno, Entry::Message(message), data, limit);
            if data_was_here {
                self.probe(Probe::DataBeforeNumber);
            }
            if filed == Filed::TooFar {
                return;
            }
        }
    }

    /// A join, a leave or the handing over of the role.
    pub(super) fn handle_change(&mut self, seqno: Seqno, change: Change, level: Option<Ballot>) {
        if self.takes(seqno, level) {
            self.note_room_beside(seqno);
            let limit = self.reach(seqno);
            self.history.file(seqno, Entry::Change(Box::new(change)), None, limit);
        }
    }

    fn takes(&self, seqno: Seqno, level: Option<Ballot>) -> bool {
        // Places begin with 1.
        seqno <= self.takes_through(level)
    }

    /// Numbered entries are taken whoever sends them, unless a ballot was promised or the own leave is in the log:
    /// then only under the ballot for which they were asked. Returns the last place that is taken; 0 if none is.
    fn takes_through(&self, level: Option<Ballot>) -> Seqno {
        if let Some((ballot, through)) = self.taking_level()
            && level == Some(ballot)
        {
            return through;
        }
        let frozen = self.recovery.has_promised() && !self.broken(Planted::StoreAfterPromise);
        let takes = level.is_none()
            && !frozen
            && !self.own_leave_is_logged()
            && matches!(self.phase, Phase::Member | Phase::Leaving | Phase::Joining | Phase::Resetting);
        match takes {
            false => 0,
            true if self.order.is_acting() => self.history.received(),
            true => Seqno::MAX,
        }
    }

    /// The last place that may be kept: a sequencer numbers no further than the history of the slowest member, and the
    /// few slots beside it, allow. Only an observer that falls behind is told more.
    fn reach(&mut self, seqno: Seqno) -> Seqno {
        let slots = u64::from(self.config.history_messages) + self.history.view().len() as u64 + 2;
        if seqno > self.history.base() + slots {
            self.history.advance();
            self.purge();
        }
        self.history.base() + slots
    }

    /// The same for messages in a row: what one place shows to be held by all may make room for those after it.
    fn reach_in_row(&mut self, first: Seqno, last: Seqno) -> Seqno {
        let mut place = first;
        loop {
            self.note_room_below(place);
            let limit = self.reach(place);
            if place == last {
                return limit;
            }
            // Nothing changes before the first that has no room; if this one has none, none after it has.
            place = if limit < place { last } else { last.min(limit + 1) };
        }
    }
}

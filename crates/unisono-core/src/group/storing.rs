//! Storing: entries that have a seqno are filed in the log.
//!
//! They come with data or, where the data went by BB, as seqnos only. They are taken from any sender, but not in every
//! phase, and no further ahead than the history has room. What an entry's seqno shows to be stable is noted on the way.

use super::{Group, Phase};
use crate::identity::{Ballot, Seqno};
use crate::log::{Entry, Filed, Message, Slice};
use crate::planted::{Planted, Probe};
use crate::wire::{Change, Numbers, Ordered};

impl Group {
    pub(super) fn handle_ordered(&mut self, ordered: Ordered, level: Option<Ballot>) {
        let Ordered { seqno, sender, first, quality, pieces } = ordered;
        let last = seqno + pieces.len() as u64 - 1;
        if last <= self.log.received() || !self.takes(seqno, level) {
            return;
        }
        let last = last.min(self.takes_through(level));
        let limit = last.min(self.reach_in_row(seqno, last));
        let message = Message { sender, number: first, quality, broadcast: false, data: None };
        self.log.file_run(seqno, message, pieces, limit);
    }

    /// Files messages that came before by BB under their seqnos, which come now without data.
    pub(super) fn handle_numbers(&mut self, numbers: Numbers, level: Option<Ballot>) {
        let Numbers { seqno, sender, first, quality, count } = numbers;
        let known = (self.log.received() + 1).saturating_sub(seqno);
        for offset in known..u64::from(count) {
            let (seqno, number) = (seqno + offset, first + offset);
            if !self.takes(seqno, level) {
                // Nothing beyond is taken either.
                return;
            }
            if seqno <= self.log.received() || self.log.history().held(seqno).is_some() {
                continue;
            }
            self.note_room_below(seqno);
            let limit = self.reach(seqno);
            let own = (sender == self.me.uid).then(|| self.outbox.get(number)).flatten();
            let message = Message { sender, number, quality, broadcast: true, data: None };
            let (filed, data_was_here) = match own {
                Some(own) => {
                    let data = Some(Slice::alone(own.more, &own.bytes));
                    (self.log.file(seqno, Entry::Message(message), data, limit), true)
                }
                None => self.log.file_waiting(seqno, message, limit),
            };
            if data_was_here {
                self.probe(Probe::DataBeforeNumber);
            }
            if filed == Filed::TooFar {
                return;
            }
        }
    }

    /// Files a join, a leave, a switch of the order or a role event.
    pub(super) fn handle_change(&mut self, seqno: Seqno, change: Change, level: Option<Ballot>) {
        if self.takes(seqno, level) {
            self.note_room_beside(seqno);
            let limit = self.reach(seqno);
            self.log.file(seqno, Entry::of_change(change), None, limit);
        }
    }

    fn takes(&self, seqno: Seqno, level: Option<Ballot>) -> bool {
        // Seqnos begin with 1.
        seqno <= self.takes_through(level)
    }

    /// Returns the last seqno that is taken; 0 if none is. Numbered entries are taken from any sender, unless a ballot
    /// was promised or the own leave is in the log: then only under the ballot for which they were requested.
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
            true if self.may_assign() => self.log.received(),
            true => Seqno::MAX,
        }
    }

    /// Returns the last seqno that may be kept. A sequencer numbers no further than the history of the slowest member,
    /// and the few slots beside it, allow. Only an observer that falls behind receives more.
    fn reach(&mut self, seqno: Seqno) -> Seqno {
        let slots = u64::from(self.config.history_messages) + self.log.history().view().len() as u64 + 2;
        if seqno > self.log.base() + slots {
            self.log.advance();
            self.purge();
        }
        self.log.base() + slots
    }

    /// Returns the same for consecutive messages: what one seqno shows to be stable may make room for those after it.
    fn reach_in_row(&mut self, first: Seqno, last: Seqno) -> Seqno {
        let mut seqno = first;
        loop {
            self.note_room_below(seqno);
            let limit = self.reach(seqno);
            if seqno == last {
                return limit;
            }
            // Nothing changes before the first seqno that has no room; if this one has none, none after it has.
            seqno = if limit < seqno { last } else { last.min(limit + 1) };
        }
    }
}

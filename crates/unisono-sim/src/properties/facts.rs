//! What every checker may know of a run so far: the position and view of each event stream, the watermarks of each
//! life, and all epochs and views. It is followed once for all checkers.
//!
//! Records of the usual kinds ([`USUAL`]) are checked in batches, and become facts after their whole batch has been
//! checked. Until then a stream's last seqno and the watermarks have their values from before the batch. A checker
//! that needs the exact values follows these records itself. Everything else changes only with unusual records. Each
//! of those is checked alone, after it and all earlier records have become facts.

use super::entries::Entries;
use super::streams::{Lineage, MarkTable, SEQUENCED, Stream, VIEW_CHANGES, Views};
use super::tables::Table;
use crate::record::{Entry, Epoch, Kind, Life, Record, What};
use unisono_core::Seqno;

/// Frequent kinds. Their records change no view and no epoch, except where an entry other than a message is stored.
const USUAL: u64 = Kind::Sent.bit()
    | Kind::SendResult.bit()
    | Kind::Delivered.bit()
    | Kind::Stored.bit()
    | Kind::Acknowledged.bit()
    | Kind::Accepted.bit()
    | Kind::Numbered.bit()
    | Kind::Purged.bit()
    | Kind::HistoryUsed.bit()
    | Kind::Called.bit()
    | Kind::CallEnded.bit()
    | Kind::Handed.bit()
    | Kind::Executed.bit()
    | Kind::Replied.bit()
    | Kind::SentUnreliable.bit()
    | Kind::Early.bit();

/// True if this is a usual record: it changes no view and no epoch, and owns nothing that must be dropped.
#[inline(always)]
pub(super) fn is_usual(what: &What) -> bool {
    what.kind().bit() & USUAL != 0
        && !matches!(what, What::Stored { entry, .. } if !matches!(entry, Entry::Message { .. }))
}

/// What is known of a run so far.
#[derive(Debug, Default)]
pub struct Facts {
    streams: Table<Stream>,
    /// Stream of a life without events.
    empty: Stream,
    /// The stream before the last event other than a message.
    before: Stream,
    /// Watermarks of all lives.
    pub(super) marks: MarkTable,
    /// Which epoch follows which.
    pub(super) lineage: Lineage,
    /// Views of each epoch.
    pub(super) views: Views,
    /// The same by what members stored, which applications may receive later or never.
    pub(super) entries: Entries,
}

impl Facts {
    /// Usual kinds that change facts. They are followed one kind after the other, which is possible because none
    /// affects what another changes.
    pub(super) const FOLLOWED: [Kind; 3] = [Kind::Delivered, Kind::Stored, Kind::Accepted];

    /// Returns the position of a life's event stream.
    #[inline]
    pub(super) fn stream(&self, life: Life) -> &Stream {
        self.streams.get(life).unwrap_or(&self.empty)
    }

    /// Returns the stream before the present record, if that is an event other than a message.
    pub(super) fn before(&self) -> &Stream {
        &self.before
    }

    /// Returns the epoch of a life's watermarks. The life's application may still be in an earlier one.
    #[inline]
    pub(super) fn epoch(&self, life: Life) -> Option<Epoch> {
        self.entries.epoch(life)
    }

    /// Returns the epoch in whose log the message is that a life's application receives at this seqno. It is the epoch of the
    /// stream, but for what was delivered early and what the next reset has put before its event.
    #[inline]
    pub(super) fn place(&self, life: Life, seqno: Seqno) -> Option<Epoch> {
        let told = self.stream(life).epoch?;
        match self.epoch(life) {
            Some(now) if now != told => Some(self.place_since(told, now, seqno)),
            _ => Some(told),
        }
    }

    #[cold]
    fn place_since(&self, told: Epoch, now: Epoch, seqno: Seqno) -> Epoch {
        let lineage = &self.entries.lineage;
        let is_there = |epoch: &Epoch| lineage.first(*epoch).is_some_and(|first| first <= seqno);
        lineage.line(now).take_while(|epoch| *epoch != told).find(is_there).unwrap_or(told)
    }

    /// Takes note of a record.
    #[inline(always)]
    pub(super) fn follow(&mut self, record: &Record) {
        match &record.what {
            What::Delivered { seqno, .. } => self.streams.at(record.life).last = *seqno,
            What::Stored { entry, .. } => {
                self.marks.follow(record);
                if !matches!(entry, Entry::Message { .. }) {
                    self.entries.store(record);
                }
            }
            What::Accepted { .. } => self.marks.follow(record),
            What::EpochBegun { epoch } => self.entries.begin(record.life, *epoch),
            What::Tail { epoch, seqno, .. } => {
                self.entries.lineage.note_tail(*epoch, *seqno);
                self.lineage.note_tail(*epoch, *seqno);
            }
            What::Prepared { epoch, preparation } => {
                self.entries.prepare(record.life, *epoch, preparation);
            }
            event if event.kind().bit() & SEQUENCED != 0 => self.change(record.life, event),
            _ => {}
        }
    }

    /// Takes note of an event other than a message.
    #[cold]
    fn change(&mut self, life: Life, event: &What) {
        let stream = self.streams.at(life);
        self.before = stream.clone();
        stream.change(event);
        self.lineage.follow(event, self.before.epoch);
        if event.kind().bit() & VIEW_CHANGES != 0 {
            self.views.follow(stream);
        }
    }
}

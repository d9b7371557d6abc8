//! What all checkers may know of a run so far: where each stream stands and which view it has there, how far marks are,
//! and which epochs and views there were. It is followed once, for all of them.
//!
//! Records of the usual kinds ([`USUAL`]) are checked a pile at a time, and become facts when the whole pile has been checked.
//! Meanwhile the last place of a stream and the marks are what they were before the pile: a checker that needs them there
//! follows them itself. All else changes only with unusual records. Those are checked one by one, when they and all that
//! came before are facts.

use super::streams::{Lineage, MarkTable, PLACED, Stream, VIEW_CHANGES, Views};
use super::tables::Table;
use crate::record::{Epoch, Kind, Life, Record, What};

/// Kinds that change no view and no epoch, and of which there are many.
pub(super) const USUAL: u64 = Kind::Sent.bit()
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
    | Kind::Replied.bit();

/// See the module.
#[derive(Debug, Default)]
pub struct Facts {
    streams: Table<Stream>,
    /// The epochs that the marks of lives are of: applications may be behind.
    epochs: Table<Option<Epoch>>,
    /// Of a life that nothing was told.
    untold: Stream,
    /// Of the last event that was no message.
    before: Stream,
    /// How far the marks of lives are.
    pub(super) marks: MarkTable,
    /// How epochs follow one another.
    pub(super) lineage: Lineage,
    /// The views that epochs have gone through.
    pub(super) views: Views,
}

impl Facts {
    /// The usual kinds that facts follow: of one kind after the other, since none touches what another does.
    pub(super) const FOLLOWED: [Kind; 3] = [Kind::Delivered, Kind::Stored, Kind::Accepted];

    /// Where the event stream of a life stands.
    #[inline]
    pub(super) fn stream(&self, life: Life) -> &Stream {
        self.streams.get(life).unwrap_or(&self.untold)
    }

    /// Where it stood before the present record, which is an event and no message.
    pub(super) fn before(&self) -> &Stream {
        &self.before
    }

    /// The epoch that the marks of a life are of.
    #[inline]
    pub(super) fn epoch(&self, life: Life) -> Option<Epoch> {
        self.epochs.get(life).copied().flatten()
    }

    /// Takes note of a record.
    #[inline(always)]
    pub(super) fn follow(&mut self, record: &Record) {
        match &record.what {
            What::Delivered { seqno, .. } => self.streams.at(record.life).last = *seqno,
            What::Stored { .. } | What::Accepted { .. } => self.marks.follow(record),
            What::EpochBegun { epoch } => *self.epochs.at(record.life) = Some(*epoch),
            event if event.kind().bit() & PLACED != 0 => self.change(record.life, event),
            _ => {}
        }
    }

    /// Takes note of an event that is no message.
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

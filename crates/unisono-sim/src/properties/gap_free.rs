//! G6, no gaps: the seqnos of a stream rise one by one, across resets too. A message of several pieces leaves seqnos
//! out, one for each piece before its last. One that was delivered early counts as delivered at its seqno. A join is never numbered between the pieces of a message, so a
//! joiner receives whole messages only. In a ring the passes of the token are no events and leave seqnos out too.
//!
//! [`super::same_prefix`] checks that all members leave out the same seqnos.

use super::streams::{Messages, SEQUENCED, seqno_of};
use super::tables::Table;
use super::{Facts, Property, Violation, broken};
use crate::record::{Entry, Kind, Record, What};
use unisono_core::{MessageNumber, Seqno};

/// The checker of `gap_free`.
#[derive(Debug, Default)]
pub(super) struct GapFree {
    /// By message, the number of pieces before its last.
    pieces: Messages<u32>,
    /// By sender, its last number, and the maximum of that number of pieces.
    senders: Table<(MessageNumber, i64)>,
    /// Maximum number of pieces that unfinished messages can have, all senders together.
    open_max: i64,
    /// By life, the number of seqnos left out, less the pieces of the messages delivered.
    open: Table<i64>,
    /// Seqno of each life's last event.
    last: Table<Seqno>,
    checked: u64,
}

impl GapFree {
    /// Returns the number of passes between two events of one stream.
    fn passes(&self, record: &Record, facts: &Facts, last: Seqno, seqno: Seqno) -> usize {
        let epoch = match record.what {
            What::Reset(_) => facts.before().epoch,
            _ => facts.stream(record.life).epoch,
        };
        let changes = epoch.map(|epoch| facts.entries.changes(epoch, last, seqno - 1));
        changes.into_iter().flatten().filter(|(_, entry)| matches!(entry, Entry::Pass(_))).count()
    }
}

impl Property for GapFree {
    fn name(&self) -> &'static str {
        "gap_free"
    }

    fn interests(&self) -> u64 {
        SEQUENCED | Kind::Sent.bit()
    }

    #[inline(always)]
    fn observe(&mut self, record: &Record, facts: &Facts) -> Result<(), Violation> {
        if let What::Sent { number, .. } = record.what {
            let (last, most) = self.senders.at(record.life);
            let pieces = number.saturating_sub(*last).saturating_sub(1) as i64;
            *last = number;
            self.open_max += (pieces - *most).max(0);
            *most = (*most).max(pieces);
            if pieces > 0
                && let Some(known) = self.pieces.at(record.life, number)
            {
                *known = pieces as u32;
            }
        }
        let Some(seqno) = seqno_of(&record.what) else { return Ok(()) };
        let last = std::mem::replace(self.last.at(record.life), seqno);
        if matches!(record.what, What::Entered { .. }) {
            return Ok(());
        }
        self.checked += 1;
        if seqno <= last {
            return broken(self, record, || format!("seqno {seqno} after seqno {last}"));
        }
        let passes = if seqno > last + 1 { self.passes(record, facts, last, seqno) } else { 0 };
        let mut open = *self.open.at(record.life) + (seqno - last - 1) as i64 - passes as i64;
        if let What::Delivered { sender, number, .. } = record.what
            && self.open_max > 0
        {
            open -= self.pieces.get(sender, number).map_or(0, |pieces| i64::from(*pieces));
        }
        if !(0..=self.open_max).contains(&open) {
            return broken(self, record, || {
                format!("seqno {seqno} after seqno {last}: no pieces fill the gap")
            });
        }
        // Messages of which only some pieces were numbered end with the epoch.
        let is_reset = matches!(record.what, What::Reset(_));
        *self.open.at(record.life) = if is_reset { 0 } else { open };
        Ok(())
    }

    fn checked(&self) -> u64 {
        self.checked
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::properties::fixture::{Fixture, change_reset, delivery, reset_of};
    use crate::record::Life;

    /// A message of three pieces with another message in between, a joiner, and a message of which a reset left one
    /// piece.
    fn good() -> Fixture {
        let mut fixture = Fixture::of(3, 1);
        fixture.message(Life(1));
        let large = fixture.send_pieces(Life(1), 3);
        let pieces = fixture.numbers(Life(1), large);
        fixture.order_piece(Life(1), large, pieces[0]);
        fixture.message(Life(2));
        fixture.order_piece(Life(1), large, pieces[1]);
        fixture.order_piece(Life(1), large, pieces[2]);
        fixture.deliver_all();
        fixture.join();
        let unfinished = fixture.send_pieces(Life(0), 2);
        fixture.order_piece(Life(0), unfinished, unfinished - 1);
        fixture.deliver_all();
        fixture.crash(Life(0));
        fixture.reset(&[Life(1), Life(2), Life(3)]);
        fixture.message(Life(3));
        fixture
    }

    #[test]
    fn accepts_seqnos_left_out_for_pieces() {
        good().good(GapFree::default());
    }

    #[test]
    fn rejects_a_gap_that_all_members_have() {
        let mut fixture = Fixture::of(3, 1);
        fixture.message(Life(1));
        fixture.message(Life(2));
        fixture.message(Life(1));
        fixture.records.retain(|record| !matches!(record.what, What::Delivered { sender: Life(2), .. }));
        fixture.bad(GapFree::default());
    }

    #[test]
    fn rejects_a_gap_before_a_reset() {
        let mut fixture = good();
        for life in [Life(1), Life(2), Life(3)] {
            change_reset(fixture.last(reset_of(life)), |reset| reset.seqno += 9);
        }
        fixture.bad(GapFree::default());
    }

    #[test]
    fn rejects_a_joiner_that_receives_the_end_of_a_message() {
        let mut fixture = Fixture::of(3, 1);
        let large = fixture.send_pieces(Life(1), 2);
        fixture.order_piece(Life(1), large, large - 1);
        fixture.join();
        fixture.order_piece(Life(1), large, large);
        fixture.deliver_all();
        fixture.bad(GapFree::default());
    }

    #[test]
    fn rejects_going_back() {
        let mut fixture = good();
        if let What::Delivered { seqno, .. } = &mut fixture.last(delivery(Life(1))).what {
            *seqno = 2;
        }
        fixture.bad(GapFree::default());
    }
}

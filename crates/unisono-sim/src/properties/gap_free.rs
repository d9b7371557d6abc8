//! G6, no gaps: the places of a stream go up one by one, through resets too. Only pieces of messages that travel in
//! several leave places out, and there are never more places left out than such pieces. A join falls into no
//! message, so a joiner sees whole messages only.
//!
//! That members leave out the same places is [`super::same_prefix`]'s business.

use super::streams::{Messages, PLACED, placed_at};
use super::tables::Table;
use super::{Facts, Property, Violation, broken};
use crate::record::{Kind, Record, What};
use unisono_core::{MessageNumber, Seqno};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct GapFree {
    /// How many pieces each message has before its last.
    pieces: Messages<u32>,
    /// Each sender's last number, and the most such pieces that a message of its had.
    senders: Table<(MessageNumber, i64)>,
    /// The most pieces of messages that may be open at a time.
    open_max: i64,
    /// The places that each life has left out, less the pieces of the messages that it delivered.
    open: Table<i64>,
    /// The place of each life's last event.
    last: Table<Seqno>,
    checked: u64,
}

impl Property for GapFree {
    fn name(&self) -> &'static str {
        "gap_free"
    }

    fn interests(&self) -> u64 {
        PLACED | Kind::Sent.bit()
    }

    #[inline(always)]
    fn observe(&mut self, record: &Record, _: &Facts) -> Result<(), Violation> {
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
        let Some(seqno) = placed_at(&record.what) else { return Ok(()) };
        let last = std::mem::replace(self.last.at(record.life), seqno);
        if matches!(record.what, What::Entered { .. }) {
            return Ok(());
        }
        self.checked += 1;
        if seqno <= last {
            return broken(self, record, || format!("place {seqno} after place {last}"));
        }
        let mut open = *self.open.at(record.life) + (seqno - last - 1) as i64;
        if let What::Delivered { sender, number, .. } = record.what
            && self.open_max > 0
        {
            open -= self.pieces.get(sender, number).map_or(0, |pieces| i64::from(*pieces));
        }
        if !(0..=self.open_max).contains(&open) {
            return broken(self, record, || {
                format!("place {seqno} after place {last}: no pieces fill the gap")
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

    /// A message in three pieces with another in between, a joiner, and a message of which a reset left one piece.
    fn good() -> Fixture {
        let mut fixture = Fixture::of(3, 1);
        fixture.message(Life(1));
        let large = fixture.send_pieces(Life(1), 3);
        let pieces = fixture.numbers(Life(1), large);
        fixture.order_piece(Life(1), large, pieces[0]);
        fixture.message(Life(2));
        fixture.order_piece(Life(1), large, pieces[1]);
        fixture.order_piece(Life(1), large, pieces[2]);
        fixture.everyone();
        fixture.join();
        let unfinished = fixture.send_pieces(Life(0), 2);
        fixture.order_piece(Life(0), unfinished, unfinished - 1);
        fixture.everyone();
        fixture.crash(Life(0));
        fixture.reset(&[Life(1), Life(2), Life(3)]);
        fixture.message(Life(3));
        fixture
    }

    #[test]
    fn takes_pieces_for_places() {
        good().good(GapFree::default());
    }

    #[test]
    fn rejects_a_gap_that_everybody_has() {
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
    fn rejects_a_joiner_that_sees_the_end_of_a_message() {
        let mut fixture = Fixture::of(3, 1);
        let large = fixture.send_pieces(Life(1), 2);
        fixture.order_piece(Life(1), large, large - 1);
        fixture.join();
        fixture.order_piece(Life(1), large, large);
        fixture.everyone();
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

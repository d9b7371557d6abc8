//! G8, causal order: if a member delivers a message and then sends another, the second gets the higher seqno.
//!
//! A reset may put the second at its end because a member had delivered it early, and drop the first, if its quality does not
//! cover the members that are missing. No log that goes on has both.

use super::streams::{Messages, SEQUENCED, seqno_of};
use super::tables::Table;
use super::{Facts, Property, Violation, broken};
use crate::record::{Kind, Record, What};
use unisono_core::Seqno;

/// The checker of `causal_order`.
#[derive(Debug, Default)]
pub(super) struct CausalOrder {
    /// By message, the last seqno that its sender had received when it sent it, plus one; 0 for none.
    after: Messages<Seqno>,
    /// Seqno of each life's last event.
    last: Table<Seqno>,
    checked: u64,
}

impl Property for CausalOrder {
    fn name(&self) -> &'static str {
        "causal_order"
    }

    fn interests(&self) -> u64 {
        SEQUENCED | Kind::Sent.bit()
    }

    #[inline(always)]
    fn observe(&mut self, record: &Record, facts: &Facts) -> Result<(), Violation> {
        if let What::Sent { number, .. } = record.what {
            let last = *self.last.at(record.life);
            if let Some(after) = self.after.at(record.life, number) {
                *after = last + 1;
            }
            return Ok(());
        }
        if let Some(seqno) = seqno_of(&record.what) {
            *self.last.at(record.life) = seqno;
        }
        if let What::Delivered { seqno, sender, number, .. } = record.what {
            self.checked += 1;
            let after = self.after.get(sender, number).copied().unwrap_or_default();
            if seqno < after && !is_after_cut(record, facts, seqno, after - 1) {
                let seen = after - 1;
                return broken(self, record, || {
                    format!("its sender had received seqno {seen} before it sent this")
                });
            }
        }
        Ok(())
    }

    fn checked(&self) -> u64 {
        self.checked
    }
}

/// True if a reset has put the message there that has this seqno, and has dropped what was at the seqno `seen`.
#[cold]
fn is_after_cut(record: &Record, facts: &Facts, seqno: Seqno, seen: Seqno) -> bool {
    let lineage = &facts.entries.lineage;
    let place = facts.place(record.life, seqno);
    let bounds = place.and_then(|epoch| lineage.first(epoch).zip(lineage.start(epoch)));
    bounds.is_some_and(|(first, start)| (first..start).contains(&seqno) && seen >= first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::properties::fixture::{Fixture, delivery};
    use crate::record::Life;

    #[test]
    fn accepts_answers_after_questions() {
        Fixture::of_two_messages().good(CausalOrder::default());
    }

    #[test]
    fn rejects_an_answer_at_a_lower_seqno() {
        let mut fixture = Fixture::of_two_messages();
        if let What::Delivered { seqno, .. } = &mut fixture.last(delivery(Life(0))).what {
            *seqno = 3;
        }
        fixture.bad(CausalOrder::default());
    }

    #[test]
    fn rejects_what_its_sender_had_delivered_before_it_sent() {
        let mut fixture = Fixture::of_two_messages();
        fixture.send_late();
        let late = fixture.last(delivery(Life(0))).clone();
        fixture.records.push(late);
        fixture.bad(CausalOrder::default());
    }
}

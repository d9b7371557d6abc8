//! G8, causal order: who delivers a message and then sends another sends it to a later place.

use super::streams::{Messages, PLACED, placed_at};
use super::tables::Table;
use super::{Facts, Property, Violation, broken};
use crate::record::{Kind, Record, What};
use unisono_core::Seqno;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct CausalOrder {
    /// The place that its sender had seen when it sent each message, plus one; zero for none.
    after: Messages<Seqno>,
    /// The place of each life's last event.
    last: Table<Seqno>,
    checked: u64,
}

impl Property for CausalOrder {
    fn name(&self) -> &'static str {
        "causal_order"
    }

    fn interests(&self) -> u64 {
        PLACED | Kind::Sent.bit()
    }

    #[inline(always)]
    fn observe(&mut self, record: &Record, _: &Facts) -> Result<(), Violation> {
        if let What::Sent { number, .. } = record.what {
            let last = *self.last.at(record.life);
            if let Some(after) = self.after.at(record.life, number) {
                *after = last + 1;
            }
            return Ok(());
        }
        if let Some(seqno) = placed_at(&record.what) {
            *self.last.at(record.life) = seqno;
        }
        if let What::Delivered { seqno, sender, number, .. } = record.what {
            self.checked += 1;
            let after = self.after.get(sender, number).copied().unwrap_or_default();
            if seqno < after {
                let seen = after - 1;
                return broken(self, record, || format!("its sender had seen place {seen} when it sent it"));
            }
        }
        Ok(())
    }

    fn checked(&self) -> u64 {
        self.checked
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::properties::fixture::{Fixture, delivery};
    use crate::record::Life;

    #[test]
    fn takes_answers_after_questions() {
        Fixture::of_two_messages().good(CausalOrder::default());
    }

    #[test]
    fn rejects_an_answer_at_an_earlier_place() {
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

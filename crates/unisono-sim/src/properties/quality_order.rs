//! Order by quality: of two messages of one sender, a member that delivers the later one early has delivered the earlier one,
//! unless one of the two is unordered. So between two messages the weaker one's guarantee holds; without early delivery
//! `sender_order` says the same.

use super::{Facts, Property, Violation, broken};
use crate::record::{Kind, Life, Record, What};
use std::collections::{BTreeMap, BTreeSet};
use unisono_core::{MessageNumber, Outcome, Quality, Seqno};

/// A message that was sent.
#[derive(Clone, Copy, Debug)]
struct Sent {
    quality: Quality,
    /// It was reported to its sender as not in the order.
    failed: bool,
    /// Its seqno, once its sender knows it or a member has delivered it.
    seqno: Option<Seqno>,
    /// The seqno is the one that its sender was told.
    is_told: bool,
}

/// The checker of `quality_order`.
#[derive(Debug, Default)]
pub(super) struct QualityOrder {
    sent: BTreeMap<(Life, MessageNumber), Sent>,
    /// By receiver and sender, the last message that the receiver has delivered or passed at its seqno.
    placed: BTreeMap<(Life, Life), MessageNumber>,
    /// By receiver, sender and number, what was delivered early.
    early: BTreeSet<(Life, Life, MessageNumber)>,
    checked: u64,
}

impl QualityOrder {
    /// Notes the seqno of a message. What its sender was told counts before what a member has delivered, which may have been
    /// excluded by then.
    fn place(&mut self, sender: Life, number: MessageNumber, seqno: Seqno, is_told: bool) {
        if let Some(sent) = self.sent.get_mut(&(sender, number))
            && (is_told || !sent.is_told)
        {
            (sent.seqno, sent.is_told) = (Some(seqno), is_told);
        }
    }

    fn receive(
        &mut self,
        record: &Record,
        sender: Life,
        number: MessageNumber,
        facts: &Facts,
    ) -> Result<(), Violation> {
        let me = record.life;
        let placed = self.placed.get(&(me, sender)).copied().unwrap_or_default();
        // `early_kept` reports a message that was not sent.
        let Some(quality) = self.sent.get(&(sender, number)).map(|sent| sent.quality) else { return Ok(()) };
        if quality == Quality::SOURCE_ORDERED && placed < number {
            self.checked += 1;
            let entered = facts.stream(me).entered;
            let is_left_out = |(name, sent): &(&(Life, MessageNumber), &Sent)| {
                let before_entry = sent.seqno.is_some_and(|seqno| seqno <= entered);
                sent.quality != Quality::UNORDERED
                    && !sent.failed
                    && !before_entry
                    && !self.early.contains(&(me, sender, name.1))
            };
            let mut behind = self.sent.range((sender, placed + 1)..(sender, number));
            if let Some(((_, earlier), _)) = behind.find(is_left_out) {
                return broken(self, record, || format!("number {earlier} comes before number {number}"));
            }
        }
        self.early.insert((me, sender, number));
        Ok(())
    }
}

impl Property for QualityOrder {
    fn name(&self) -> &'static str {
        "quality_order"
    }

    fn interests(&self) -> u64 {
        Kind::Sent.bit() | Kind::SendResult.bit() | Kind::Early.bit() | Kind::Delivered.bit()
    }

    fn observe(&mut self, record: &Record, facts: &Facts) -> Result<(), Violation> {
        match record.what {
            What::Sent { number, quality, .. } => {
                let sent = Sent { quality, failed: false, seqno: None, is_told: false };
                self.sent.insert((record.life, number), sent);
            }
            What::SendResult { number, outcome: Outcome::Failed } => {
                if let Some(sent) = self.sent.get_mut(&(record.life, number)) {
                    sent.failed = true;
                }
            }
            // A member that joins behind this seqno need not have it, whether or not a member has delivered it by then.
            What::SendResult { number, outcome: Outcome::Ok { seqno, .. } } => {
                self.place(record.life, number, seqno, true);
            }
            What::Delivered { seqno, sender, number, .. } => {
                self.placed.insert((record.life, sender), number);
                self.place(sender, number, seqno, false);
            }
            What::Early { sender, number, quality, .. } if quality.may_be_early() => {
                return self.receive(record, sender, number, facts);
            }
            _ => {}
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
    use crate::properties::fixture::Fixture;
    use unisono_core::Quorum;

    /// Life 1 of three sends messages of these qualities; life 0 delivers the last one early.
    fn check(before: &[Quality], last: Quality) -> Fixture {
        let mut fixture = Fixture::of(3, 1);
        for quality in before.iter().chain([&last]) {
            fixture.send_with(Life(1), *quality);
        }
        let sent = fixture.records.iter().rev().find_map(|record| match record.what {
            What::Sent { number, hash, .. } => Some((number, hash)),
            _ => None,
        });
        let (number, hash) = sent.unwrap_or_default();
        fixture.record(Life(0), What::Early { sender: Life(1), number, quality: last, hash });
        fixture
    }

    #[test]
    fn accepts_a_source_ordered_message_behind_unordered_ones() {
        check(&[Quality::UNORDERED, Quality::UNORDERED], Quality::SOURCE_ORDERED)
            .good(QualityOrder::default());
    }

    #[test]
    fn a_member_that_joins_behind_a_seqno_its_sender_knows_need_not_have_it() {
        let mut fixture = Fixture::found(0, Quorum::MajorityOfView);
        fixture.message(Life(0));
        // The sender's application has not taken it yet.
        fixture.records.retain(|record| !matches!(record.what, What::Delivered { .. }));
        let joiner = fixture.join();
        let number = fixture.send_with(Life(0), Quality::SOURCE_ORDERED);
        let What::Sent { hash, .. } = fixture.records[fixture.records.len() - 1].what else { unreachable!() };
        let quality = Quality::SOURCE_ORDERED;
        fixture.record(joiner, What::Early { sender: Life(0), number, quality, hash });
        fixture.good(QualityOrder::default());
        fixture.records.retain(|record| !matches!(record.what, What::SendResult { .. }));
        fixture.bad(QualityOrder::default());
    }

    #[test]
    fn what_an_excluded_member_delivers_elsewhere_places_no_message() {
        let mut fixture = Fixture::found(0, Quorum::MajorityOfView);
        fixture.message(Life(0));
        let joiner = fixture.join();
        let elsewhere = fixture.records.iter().find_map(|record| match record.what {
            What::Delivered { sender, number, hash, .. } => Some((sender, number, hash)),
            _ => None,
        });
        let (sender, number, hash) = elsewhere.unwrap();
        fixture.record(Life(9), What::Delivered { seqno: 99, sender, number, hash });
        let number = fixture.send_with(Life(0), Quality::SOURCE_ORDERED);
        let What::Sent { hash, .. } = fixture.records[fixture.records.len() - 1].what else { unreachable!() };
        let quality = Quality::SOURCE_ORDERED;
        fixture.record(joiner, What::Early { sender: Life(0), number, quality, hash });
        fixture.good(QualityOrder::default());
    }

    #[test]
    fn rejects_a_source_ordered_message_before_a_better_one() {
        check(&[Quality::ORDERED], Quality::SOURCE_ORDERED).bad(QualityOrder::default());
        check(&[Quality::SOURCE_ORDERED], Quality::SOURCE_ORDERED).bad(QualityOrder::default());
    }
}

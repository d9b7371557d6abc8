//! G3, no creation after failure: a message reported *failed* to its sender is never delivered by a member that goes
//! on with the sender.
//!
//! With r = 0, or if the reset was degraded, a member that was cut off may have delivered the message before. The
//! message's seqno there is in no log that any member goes on with. That is what this checker tests.

use super::streams::{Lineage, Messages};
use super::{Facts, Property, Violation, broken};
use crate::record::{End, Epoch, Kind, Life, Record, What};
use unisono_core::{MessageNumber, Outcome, Seqno};

#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// Epoch and seqno at which it was first delivered.
    delivered_at: Option<(Epoch, Seqno)>,
    /// Epoch of its sender when it was reported *failed*.
    failed: Option<Epoch>,
}

/// The checker of `no_creation_after_failure`.
#[derive(Debug, Default)]
pub(super) struct NoCreationAfterFailure {
    states: Messages<State>,
    failed: Vec<(Life, MessageNumber)>,
    checked: u64,
}

impl State {
    /// True if a failed message was delivered in a log with which its sender goes on.
    fn is_violated(self, lineage: &Lineage) -> bool {
        let (Some((epoch, seqno)), Some(failed)) = (self.delivered_at, self.failed) else { return false };
        lineage.line(epoch).any(|earlier| earlier == failed) || lineage.keeps(failed, epoch, seqno)
    }
}

impl Property for NoCreationAfterFailure {
    fn name(&self) -> &'static str {
        "no_creation_after_failure"
    }

    fn interests(&self) -> u64 {
        Kind::Delivered.bit() | Kind::SendResult.bit()
    }

    #[inline(always)]
    fn observe(&mut self, record: &Record, facts: &Facts) -> Result<(), Violation> {
        match record.what {
            What::Delivered { seqno, sender, number, .. } => {
                self.checked += 1;
                let Some(epoch) = facts.place(record.life, seqno) else { return Ok(()) };
                let Some(state) = self.states.at(sender, number) else { return Ok(()) };
                // Keeps the first seqno: a second one is a duplicate, which `no_duplication` reports.
                state.delivered_at.get_or_insert((epoch, seqno));
                if state.failed.is_some() && state.is_violated(&facts.lineage) {
                    return broken(self, record, || "it was reported failed to its sender".into());
                }
            }
            What::SendResult { number, outcome: Outcome::Failed } => {
                if let Some(state) = self.states.at(record.life, number) {
                    state.failed = facts.epoch(record.life);
                    self.failed.push((record.life, number));
                    if state.is_violated(&facts.lineage) {
                        return broken(self, record, || format!("number {number} was delivered"));
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn finish(&mut self, end: &End, facts: &Facts) -> Result<(), Violation> {
        for (sender, number) in &self.failed {
            let state = self.states.get(*sender, *number).copied().unwrap_or_default();
            if state.is_violated(&facts.lineage) {
                let what = format!(
                    "number {number} of {sender:?} was reported failed and delivered at {:?}",
                    state.delivered_at
                );
                return Err(Violation { property: self.name(), at: end.at, what });
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
    use crate::properties::fixture::Fixture;

    /// Life 2's message fails in a reset: life 0 numbered it and crashed, and no other member held it.
    fn failing(resilience: u8, delivered_by_the_crashed: bool) -> (Fixture, MessageNumber) {
        let mut fixture = Fixture::of(3, resilience);
        fixture.message(Life(1));
        let number = fixture.send(Life(2));
        let seqno = fixture.order(Life(2), number);
        if delivered_by_the_crashed {
            fixture.accept(Life(0), seqno);
        }
        fixture.crash(Life(0));
        fixture.reset(&[Life(1), Life(2)]);
        fixture.message(Life(2));
        (fixture, number)
    }

    #[test]
    fn accepts_failed_messages_that_are_never_delivered() {
        failing(1, false).0.good(NoCreationAfterFailure::default());
    }

    #[test]
    fn accepts_a_delivery_by_a_crashed_member_alone() {
        failing(0, true).0.good(NoCreationAfterFailure::default());
    }

    #[test]
    fn rejects_a_failed_message_delivered_later() {
        let (mut fixture, number) = failing(1, false);
        fixture.order_piece(Life(2), number, number);
        fixture.deliver_all();
        fixture.bad(NoCreationAfterFailure::default());
    }

    #[test]
    fn rejects_failure_of_what_was_kept() {
        let mut fixture = Fixture::of(3, 1);
        fixture.message(Life(1));
        let number = fixture.send(Life(2));
        fixture.order(Life(2), number);
        fixture.deliver_all();
        fixture.crash(Life(0));
        fixture.reset(&[Life(1), Life(2)]);
        fixture.record(Life(2), What::SendResult { number, outcome: Outcome::Failed });
        fixture.bad(NoCreationAfterFailure::default());
    }

    #[test]
    fn rejects_failure_reported_before_others_deliver_what_they_kept() {
        let mut fixture = Fixture::of(3, 1);
        let number = fixture.send(Life(2));
        fixture.order(Life(2), number);
        let end = fixture.end();
        fixture.store(Life(1), end);
        fixture.crash(Life(0));
        fixture.reset(&[Life(1), Life(2)]);
        let ok = fixture.last(|record| matches!(record.what, What::SendResult { .. }));
        ok.what = What::SendResult { number, outcome: Outcome::Failed };
        fixture.bad(NoCreationAfterFailure::default());
    }
}

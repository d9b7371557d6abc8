//! G3, no creation after failure: of a message whose sender was told *failed*, nobody who goes on with the sender
//! ever delivers it, whenever that is.
//!
//! With r = 0, or degraded, a member that does not go on may have delivered it before it was cut off: its place is
//! in no log that anybody goes on with, and that is what counts here.

use super::streams::{Lineage, Messages};
use super::{Facts, Property, Violation, broken};
use crate::record::{End, Epoch, Kind, Life, Record, What};
use unisono_core::{MessageNumber, Outcome, Seqno};

#[derive(Clone, Copy, Debug, Default)]
struct Fate {
    /// Where it was first delivered.
    home: Option<(Epoch, Seqno)>,
    /// The epoch in which its sender stood when it was told *failed*.
    failed: Option<Epoch>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct NoCreationAfterFailure {
    fates: Messages<Fate>,
    failed: Vec<(Life, MessageNumber)>,
    checked: u64,
}

impl Fate {
    /// Whether somebody delivers a failed message where its sender goes on.
    fn is_lie(self, lineage: &Lineage) -> bool {
        let (Some((epoch, seqno)), Some(failed)) = (self.home, self.failed) else { return false };
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
                let Some(epoch) = facts.stream(record.life).epoch else { return Ok(()) };
                let Some(fate) = self.fates.at(sender, number) else { return Ok(()) };
                // At its first place: a second one is a duplicate, and told as such.
                fate.home.get_or_insert((epoch, seqno));
                if fate.failed.is_some() && fate.is_lie(&facts.lineage) {
                    return broken(self, record, || "its sender was told that it failed".into());
                }
            }
            What::SendResult { number, outcome: Outcome::Failed } => {
                if let Some(fate) = self.fates.at(record.life, number) {
                    fate.failed = facts.epoch(record.life);
                    self.failed.push((record.life, number));
                    if fate.is_lie(&facts.lineage) {
                        return broken(self, record, || format!("number {number} is delivered, not failed"));
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn finish(&mut self, end: &End, facts: &Facts) -> Result<(), Violation> {
        for (sender, number) in &self.failed {
            let fate = self.fates.get(*sender, *number).copied().unwrap_or_default();
            if fate.is_lie(&facts.lineage) {
                let what =
                    format!("number {number} of {sender:?} failed, and was delivered at {:?}", fate.home);
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

    /// Life 2's message fails in a reset: it was numbered by life 0, which crashed, and nobody else held it.
    fn failing(resilience: u8, delivered_by_the_dead: bool) -> (Fixture, MessageNumber) {
        let mut fixture = Fixture::of(3, resilience);
        fixture.message(Life(1));
        let number = fixture.send(Life(2));
        let place = fixture.order(Life(2), number);
        if delivered_by_the_dead {
            fixture.accept(Life(0), place);
        }
        fixture.crash(Life(0));
        fixture.reset(&[Life(1), Life(2)]);
        fixture.message(Life(2));
        (fixture, number)
    }

    #[test]
    fn takes_failed_messages_that_are_gone() {
        failing(1, false).0.good(NoCreationAfterFailure::default());
    }

    #[test]
    fn takes_what_only_the_dead_delivered() {
        failing(0, true).0.good(NoCreationAfterFailure::default());
    }

    #[test]
    fn rejects_a_failed_message_delivered_later() {
        let (mut fixture, number) = failing(1, false);
        fixture.order_piece(Life(2), number, number);
        fixture.everyone();
        fixture.bad(NoCreationAfterFailure::default());
    }

    #[test]
    fn rejects_failure_of_what_was_kept() {
        let mut fixture = Fixture::of(3, 1);
        fixture.message(Life(1));
        let number = fixture.send(Life(2));
        fixture.order(Life(2), number);
        fixture.everyone();
        fixture.crash(Life(0));
        fixture.reset(&[Life(1), Life(2)]);
        fixture.tell(Life(2), What::SendResult { number, outcome: Outcome::Failed });
        fixture.bad(NoCreationAfterFailure::default());
    }

    #[test]
    fn rejects_failure_told_before_others_deliver_what_they_kept() {
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

//! L2, termination and delivery: when faults are over, what members send gets its place (or fails with a reset that
//! fell upon it), and what is ordered every member delivers, to the last.

use super::ground::Ground;
use super::streams::Messages;
use super::tables::Table;
use super::{Facts, Property, Violation, found_in_the_end};
use crate::record::{End, Epoch, Kind, Life, Record, What};
use unisono_core::{MessageNumber, Outcome, Seqno};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Termination {
    ground: Ground,
    /// What was sent after the faults were over, and the resets that its sender had seen by then.
    sent: Vec<(Life, MessageNumber, u32)>,
    outcomes: Messages<Option<Outcome>>,
    resets: Table<u32>,
    checked: u64,
}

impl Termination {
    fn fault(&mut self, end: &End, facts: &Facts) -> Option<String> {
        let members: Vec<_> = self.ground.members(end).collect();
        let mut last: Vec<(Option<Epoch>, Life, Seqno)> = Vec::new();
        for member in &members {
            self.checked += 1;
            let life = member.life;
            let here = facts.stream(life).last;
            match last.iter().find(|(epoch, ..)| *epoch == member.epoch) {
                Some((_, other, there)) if *there != here => {
                    return Some(format!("{life:?} has delivered through {here}, {other:?} through {there}"));
                }
                Some(_) => {}
                None => last.push((member.epoch, life, here)),
            }
            let marks = &member.marks;
            if marks.accepted != marks.received || marks.delivered != marks.received {
                return Some(format!(
                    "{life:?} holds through {}, accepted {} and delivered {}",
                    marks.received, marks.accepted, marks.delivered
                ));
            }
        }
        for (life, number, resets) in &self.sent {
            let Some(member) = members.iter().find(|member| member.life == *life) else { continue };
            self.checked += 1;
            let failed_with_reset = self.resets.get(*life).is_some_and(|now| now > resets);
            match self.outcomes.get(*life, *number).copied().flatten() {
                Some(Outcome::Ok { seqno }) => {
                    if seqno > facts.stream(*life).last {
                        return Some(format!("number {number} of {life:?} is at {seqno}, undelivered"));
                    }
                }
                Some(Outcome::Failed) if failed_with_reset => {}
                other => {
                    return Some(format!(
                        "number {number} of {life:?} ended as {other:?}, with {} under way",
                        member.under_way
                    ));
                }
            }
        }
        None
    }
}

impl Property for Termination {
    fn name(&self) -> &'static str {
        "termination"
    }

    fn interests(&self) -> u64 {
        Kind::Reset.bit() | Kind::Healed.bit() | Kind::Sent.bit() | Kind::SendResult.bit()
    }

    #[inline(always)]
    fn observe(&mut self, record: &Record, _: &Facts) -> Result<(), Violation> {
        match record.what {
            What::Healed { .. } => self.ground.follow(record),
            What::Sent { number, .. } if self.ground.has(record.life) => {
                self.sent.push((record.life, number, *self.resets.at(record.life)));
            }
            What::SendResult { number, outcome } => {
                if self.ground.is_healed()
                    && let Some(known) = self.outcomes.at(record.life, number)
                {
                    *known = Some(outcome);
                }
            }
            What::Reset(_) => *self.resets.at(record.life) += 1,
            _ => {}
        }
        Ok(())
    }

    fn finish(&mut self, end: &End, facts: &Facts) -> Result<(), Violation> {
        let fault = self.fault(end, facts);
        found_in_the_end(self, end, fault)
    }

    fn checked(&self) -> u64 {
        self.checked
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::properties::fixture::{Fixture, delivery};

    fn good() -> Fixture {
        let mut fixture = Fixture::of(3, 1);
        fixture.message(Life(1));
        fixture.heal();
        fixture.message(Life(1));
        fixture.send(Life(2));
        fixture.reset(&[Life(0), Life(1), Life(2)]);
        fixture.message(Life(2));
        fixture
    }

    #[test]
    fn takes_sends_that_end_and_deliveries_to_all() {
        good().good(Termination::default());
    }

    #[test]
    fn rejects_a_send_that_does_not_end() {
        let mut fixture = good();
        fixture.send(Life(2));
        fixture.bad(Termination::default());
    }

    #[test]
    fn rejects_failure_without_a_reset() {
        let mut fixture = good();
        let number = fixture.send(Life(2));
        fixture.tell(Life(2), What::SendResult { number, outcome: Outcome::Failed });
        fixture.bad(Termination::default());
    }

    #[test]
    fn rejects_a_member_that_delivers_less() {
        let mut fixture = good();
        let last = fixture.position(delivery(Life(1)));
        fixture.records.remove(last);
        fixture.bad(Termination::default());
    }

    #[test]
    fn rejects_what_is_held_and_not_delivered() {
        let fixture = good();
        let mut end = fixture.ending();
        end.standings.iter_mut().for_each(|standing| standing.marks.received += 1);
        assert!(fixture.check_with_end(Termination::default(), &end).is_err());
    }
}

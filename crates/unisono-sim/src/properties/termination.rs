//! L2, termination: once the faults are over, every message that a member sends gets a seqno, or fails because of a
//! reset. Every member delivers everything through the last seqno. While the group has fewer members than its minimum,
//! messages wait.

use super::healing::Healing;
use super::streams::Messages;
use super::tables::Table;
use super::{Facts, GroupTerms, Property, Violation, final_result};
use crate::record::{End, Epoch, Kind, Life, Record, What};
use unisono_core::{MessageNumber, Outcome, Seqno};

/// The checker of `termination`.
#[derive(Debug, Default)]
pub(super) struct Termination {
    healing: Healing,
    /// Messages sent after the faults were over, with the number of resets that their sender had received by then.
    sent: Vec<(Life, MessageNumber, u32)>,
    outcomes: Messages<Option<Outcome>>,
    resets: Table<u32>,
    /// Minimum number of members with which messages are ordered.
    members_min: usize,
    checked: u64,
}

impl Termination {
    pub(super) fn new(terms: &GroupTerms) -> Termination {
        Termination { members_min: terms.config.members_min.into(), ..Termination::default() }
    }

    fn fault(&mut self, end: &End, facts: &Facts) -> Option<String> {
        let members: Vec<_> = self.healing.members(end).collect();
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
                    "{life:?} holds through {}, accepted through {}, delivered through {}",
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
                        return Some(format!("number {number} of {life:?} is at {seqno}, not delivered"));
                    }
                }
                Some(Outcome::Failed) if failed_with_reset => {}
                // It waits until the group has enough members.
                None if facts.stream(*life).view.len() < self.members_min => {}
                other => {
                    return Some(format!(
                        "number {number} of {life:?} has the outcome {other:?}, with {} under way",
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
            What::Healed { .. } => self.healing.follow(record),
            What::Sent { number, .. } if self.healing.covers(record.life) => {
                self.sent.push((record.life, number, *self.resets.at(record.life)));
            }
            What::SendResult { number, outcome } => {
                if self.healing.is_healed()
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
        final_result(self, end, fault)
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
    fn accepts_sends_with_outcomes_and_deliveries_to_all() {
        good().good(Termination::default());
    }

    #[test]
    fn rejects_a_send_without_an_outcome() {
        let mut fixture = good();
        fixture.send(Life(2));
        fixture.bad(Termination::default());
    }

    #[test]
    fn rejects_failure_without_a_reset() {
        let mut fixture = good();
        let number = fixture.send(Life(2));
        fixture.record(Life(2), What::SendResult { number, outcome: Outcome::Failed });
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

//! What a confirmation promises. When it has its result, no later epoch had begun anywhere when the call was made, and
//! everything that any member knew to be accepted at the call lies at or below the result.
//!
//! The second part needs a holder of each message in every quorum: a resilience of at least half of the largest view,
//! rounded down. Neither part holds where quorums need not intersect (*at least n*), nor where an operator forces a
//! reset.
//!
//! Messages that may be delivered early are not covered: a member that has delivered one has no event at its seqno.

use super::tables::Table;
use super::{Facts, GroupTerms, Property, Violation, result};
use crate::record::{Entry, Epoch, Kind, Life, Record, What};
use std::collections::BTreeSet;
use unisono_core::{MessageNumber, Quorum, Seqno};

/// A call, or the first of several that share an answer.
#[derive(Clone, Debug)]
struct Call {
    life: Life,
    number: u64,
    /// What was known of each epoch at the last of the calls.
    known: Table<Known>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// A member has gone on to a later epoch.
    is_over: bool,
    /// A member knew everything through here to be accepted.
    accepted: Seqno,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Confirmed {
    resilience: usize,
    /// By epoch, the last entry that is no pass.
    events: Table<Seqno>,
    is_exempt: bool,
    members_most: usize,
    known: Table<Known>,
    epochs: Table<Option<Epoch>>,
    calls: Vec<Call>,
    /// Messages that may be early, and the seqnos of those that have one.
    weak: BTreeSet<(Life, MessageNumber)>,
    weak_seqnos: BTreeSet<(Epoch, Seqno)>,
    checked: u64,
}

impl Confirmed {
    pub(super) fn new(terms: &GroupTerms) -> Confirmed {
        Confirmed {
            resilience: terms.config.resilience.into(),
            events: Table::default(),
            is_exempt: matches!(terms.config.quorum, Quorum::AtLeast(_)),
            members_most: 0,
            known: Table::default(),
            epochs: Table::default(),
            calls: Vec::new(),
            weak: BTreeSet::new(),
            weak_seqnos: BTreeSet::new(),
            checked: 0,
        }
    }

    fn note_call(&mut self, life: Life, number: u64) {
        // A result must be as new as the last call that it answers.
        self.calls.retain(|call| (call.life, call.number) != (life, number));
        self.calls.push(Call { life, number, known: self.known.clone() });
    }

    fn fault(&mut self, facts: &Facts, life: Life, number: u64, through: Seqno) -> Option<String> {
        let place = self.calls.iter().position(|call| (call.life, call.number) == (life, number));
        let Some(place) = place else { return Some("there was no such call".into()) };
        let call = self.calls.swap_remove(place);
        let epoch = self.epochs.get(life).copied().flatten()?;
        let known = call.known.get(epoch).copied().unwrap_or_default();
        if self.is_exempt {
            return None;
        }
        self.checked += 1;
        if known.is_over {
            return Some(format!("{epoch:?} was over at the call"));
        }
        let waits = facts.stream(life).last < through;
        if waits && self.events.get(epoch).is_none_or(|last| *last < through) {
            return Some("its caller waits for a pass, which is no event".into());
        }
        let covers = 2 * self.resilience + 1 >= self.members_most;
        // In a ring the passes that follow directly are no events, and need not be waited for.
        let passes = facts.entries.changes(epoch, through, known.accepted).filter(is_pass).count() as u64;
        let weak = match known.accepted > through {
            true => self.weak_seqnos.range((epoch, through + 1)..=(epoch, known.accepted)).count() as u64,
            false => 0,
        };
        (covers && known.accepted > through + passes + weak)
            .then(|| format!("through {} was accepted at the call", known.accepted))
    }
}

fn is_pass(change: &&(Seqno, Entry)) -> bool {
    matches!(change.1, Entry::Pass(_))
}

impl Property for Confirmed {
    fn name(&self) -> &'static str {
        "confirmed"
    }

    fn interests(&self) -> u64 {
        Kind::Stored.bit()
            | Kind::Sent.bit()
            | Kind::Confirming.bit()
            | Kind::Confirmed.bit()
            | Kind::EpochBegun.bit()
            | Kind::Accepted.bit()
            | Kind::Entered.bit()
            | Kind::Joined.bit()
            | Kind::Reset.bit()
            | Kind::ForceAsked.bit()
            | Kind::Crashed.bit()
    }

    #[inline(always)]
    fn observe(&mut self, record: &Record, facts: &Facts) -> Result<(), Violation> {
        let life = record.life;
        match &record.what {
            What::Accepted { epoch, through } => {
                let known = self.known.at(*epoch);
                known.accepted = known.accepted.max(*through);
            }
            What::Sent { number, quality, .. } if quality.may_be_early() => {
                self.weak.insert((life, *number));
            }
            What::Stored { epoch, through, entry } if !matches!(entry, Entry::Pass(_)) => {
                let last = self.events.at(*epoch);
                *last = (*last).max(*through);
                if let Entry::Message { sender, number } = entry
                    && !self.weak.is_empty()
                    && self.weak.contains(&(*sender, *number))
                {
                    self.weak_seqnos.insert((*epoch, *through));
                }
            }
            What::EpochBegun { epoch } => {
                if let Some(before) = self.epochs.at(life).replace(*epoch).filter(|before| before != epoch) {
                    self.known.at(before).is_over = true;
                }
            }
            What::Entered { view, .. } => self.members_most = self.members_most.max(view.members.len()),
            What::Joined { members, .. } => self.members_most = self.members_most.max(*members as usize),
            What::Reset(reset) => self.members_most = self.members_most.max(reset.view.members.len()),
            What::ForceAsked { .. } => self.is_exempt = true,
            What::Crashed => self.calls.retain(|call| call.life != life),
            What::Confirming { number } => self.note_call(life, *number),
            What::Confirmed { number, through } => {
                let fault = self.fault(facts, life, *number, *through);
                return result(self, record, fault);
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
    use unisono_core::GroupConfig;

    const NEXT: Epoch = Epoch(1);

    fn property(resilience: u8, quorum: Quorum) -> Confirmed {
        let config = GroupConfig { resilience, quorum, ..GroupConfig::default() };
        Confirmed::new(&GroupTerms { config, founders_min: 1, may_be_ring: true, is_quiet: false })
    }

    fn confirm(fixture: &mut Fixture, number: u64, through: Seqno) {
        fixture.record(Life(0), What::Confirming { number });
        fixture.record(Life(0), What::Confirmed { number, through });
    }

    #[test]
    fn takes_a_result_that_covers_what_was_accepted() {
        let mut fixture = Fixture::of(3, 2);
        let accepted = fixture.message(Life(1));
        confirm(&mut fixture, 1, accepted);
        fixture.message(Life(1));
        fixture.good(property(2, Quorum::MajorityOfView));
    }

    #[test]
    fn rejects_a_result_below_what_was_accepted_if_the_resilience_covers_it() {
        let mut fixture = Fixture::of(3, 2);
        let accepted = fixture.message(Life(1));
        confirm(&mut fixture, 1, accepted - 1);
        fixture.bad(property(2, Quorum::MajorityOfView));
        fixture.bad(property(1, Quorum::MajorityOfView));
        fixture.good(property(0, Quorum::MajorityOfView));
    }

    #[test]
    fn rejects_a_result_in_an_epoch_that_was_over() {
        let mut fixture = Fixture::of(3, 2);
        let accepted = fixture.message(Life(1));
        fixture.record(Life(1), What::EpochBegun { epoch: NEXT });
        confirm(&mut fixture, 1, accepted);
        fixture.bad(property(1, Quorum::MajorityOfView));
        let mut any = property(1, Quorum::AtLeast(1));
        for record in &fixture.records {
            any.observe(record, &Facts::default()).unwrap();
        }
    }

    #[test]
    fn takes_a_result_of_a_call_before_the_epoch_was_over() {
        let mut fixture = Fixture::of(3, 2);
        let accepted = fixture.message(Life(1));
        fixture.record(Life(0), What::Confirming { number: 1 });
        fixture.record(Life(1), What::EpochBegun { epoch: NEXT });
        fixture.record(Life(0), What::Confirmed { number: 1, through: accepted });
        fixture.good(property(2, Quorum::MajorityOfView));
    }

    #[test]
    fn rejects_a_result_without_a_call() {
        let mut fixture = Fixture::of(3, 2);
        let accepted = fixture.message(Life(1));
        fixture.record(Life(0), What::Confirmed { number: 1, through: accepted });
        fixture.bad(property(2, Quorum::MajorityOfView));
    }
}

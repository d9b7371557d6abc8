//! G21, a single sequencer: each number of an epoch is given out once, in ascending order, by the one life that the last
//! naming event (a founding, a hand-over, a sequencer's leave, a reset) names.
//!
//! Whoever takes the role, numbers and hands it on within one input is not seen to act, so that not every number has
//! a giver here. That no place is left empty is [`super::gap_free`]'s business.

use super::streams::VIEW_CHANGES;
use super::tables::Table;
use super::{Facts, Property, Violation, found};
use crate::record::{End, Epoch, Kind, Life, Record, What};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use unisono_core::Seqno;

#[derive(Clone, Debug, Default)]
struct Numbers {
    /// Given out through here; nothing yet.
    end: Option<Seqno>,
    /// Who gave numbers out in a term, and the last of them, by the place of the event that named it.
    givers: BTreeMap<Seqno, (Life, Seqno)>,
    /// Whom events name, by their places.
    named: BTreeMap<Seqno, Life>,
    /// From where to where each life was told of everything; a joiner is told of nothing before its join.
    told: BTreeMap<Life, RangeInclusive<Seqno>>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct SingleSequencer {
    numbers: Table<Numbers>,
    checked: u64,
}

impl SingleSequencer {
    fn number(
        &mut self,
        record: &Record,
        epoch: Epoch,
        term: Seqno,
        from: Seqno,
        to: Seqno,
    ) -> Option<String> {
        let numbers = self.numbers.at(epoch);
        let next = numbers.end.map_or(term + 1, |end| end + 1);
        numbers.end = Some(to.max(next - 1));
        if from < next {
            return Some(format!("it gave out {from} to {to}, and {next} was the next"));
        }
        let (giver, last) = numbers.givers.entry(term).or_insert((record.life, to));
        *last = to;
        if *giver != record.life {
            return Some(format!("{giver:?} gave out numbers by the event at {term} too"));
        }
        if let Some((place, later)) = numbers.named.range(term + 1..).next().filter(|(place, _)| **place < to)
        {
            return Some(format!("the event at {place} names {later:?} since"));
        }
        let named = numbers.named.get(&term).filter(|named| **named != record.life);
        named.map(|named| format!("the event at {term} names {named:?}"))
    }

    fn name_sequencer(&mut self, epoch: Epoch, place: Seqno, sequencer: Life) -> Option<String> {
        let numbers = self.numbers.at(epoch);
        numbers.named.entry(place).or_insert(sequencer);
        if let Some((giver, _)) = numbers.givers.get(&place).filter(|(giver, _)| *giver != sequencer) {
            return Some(format!("{giver:?} gave out numbers by the event at {place}"));
        }
        let mut before = numbers.givers.range(..place);
        let (term, (giver, last)) = before.find(|(_, (_, last))| *last > place)?;
        Some(format!("by the event at {term} {giver:?} gave out numbers beyond, through {last}"))
    }
}

impl Property for SingleSequencer {
    fn name(&self) -> &'static str {
        "single_sequencer"
    }

    fn interests(&self) -> u64 {
        VIEW_CHANGES | Kind::HandedOver.bit() | Kind::Numbered.bit()
    }

    #[inline(always)]
    fn observe(&mut self, record: &Record, facts: &Facts) -> Result<(), Violation> {
        let fault = if let What::Numbered { epoch, term, from, to } = record.what {
            self.checked += 1;
            self.number(record, epoch, term, from, to)
        } else {
            let (before, stream) = (facts.before().sequencer, facts.stream(record.life));
            let (place, sequencer) = (stream.last, stream.sequencer);
            let Some(epoch) = stream.epoch else { return Ok(()) };
            self.numbers.at(epoch).told.insert(record.life, stream.entered + 1..=place);
            let names = match &record.what {
                What::Entered { seqno, .. } => *seqno == 0,
                What::Left { member, .. } => *member == before,
                What::Joined { .. } => false,
                _ => true,
            };
            if names { self.name_sequencer(epoch, place, sequencer) } else { None }
        };
        found(self, record, fault)
    }

    fn finish(&mut self, end: &End, _: &Facts) -> Result<(), Violation> {
        for numbers in self.numbers.iter() {
            let unnamed = |(place, _): &(&Seqno, &(Life, Seqno))| {
                numbers.told.values().any(|told| told.contains(place)) && !numbers.named.contains_key(place)
            };
            if let Some((place, (life, _))) = numbers.givers.iter().find(unnamed) {
                let what = format!("{life:?} gave out numbers by the event at {place}, which names nobody");
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
    use crate::properties::streams::PLACED;

    #[test]
    fn takes_an_epoch_of_whose_beginning_no_application_was_told() {
        let mut fixture = Fixture::of(3, 1);
        let common = fixture.records.len();
        fixture.crash(Life(0));
        fixture.reset(&[Life(1), Life(2)]);
        fixture.message(Life(1));
        let joiner = fixture.join();
        fixture.hand_over(Life(2));
        fixture.message(Life(1));
        let (before, after) = fixture.records.split_at(common);
        let told = |record: &&Record| record.life != joiner && PLACED & record.what.kind().bit() != 0;
        let after = after.iter().filter(|record| !told(record));
        fixture.records = before.iter().chain(after).cloned().collect();
        fixture.good(SingleSequencer::default());
    }

    fn good() -> Fixture {
        let mut fixture = Fixture::of(3, 1);
        fixture.message(Life(1));
        fixture.hand_over(Life(1));
        fixture.message(Life(2));
        fixture.leave(Life(1));
        fixture.message(Life(2));
        fixture.reset(&[Life(0), Life(2)]);
        fixture.message(Life(2));
        fixture
    }

    fn numbering(record: &Record) -> bool {
        matches!(record.what, What::Numbered { .. })
    }

    #[test]
    fn takes_one_sequencer_after_the_other() {
        good().good(SingleSequencer::default());
    }

    #[test]
    fn rejects_a_number_given_out_twice() {
        let mut fixture = good();
        let again = Record { life: Life(2), ..fixture.last(numbering).clone() };
        fixture.records.push(again);
        fixture.bad(SingleSequencer::default());
    }

    #[test]
    fn rejects_who_goes_on_after_handing_over() {
        let mut fixture = good();
        let number = fixture.send(Life(2));
        let place = fixture.order(Life(2), number);
        fixture.last(numbering).life = Life(1);
        assert!(place > 0);
        fixture.bad(SingleSequencer::default());
    }

    /// Life 0 hands the role to life 1, which never acts, and goes on by the event that named itself.
    fn goes_on_unheard() -> Fixture {
        let mut fixture = Fixture::of(3, 1);
        fixture.hand_over(Life(1));
        fixture.message(Life(2));
        let first = fixture.position(numbering);
        (fixture.records[first].life, fixture.records[first].what) = match fixture.records[first].what {
            What::Numbered { epoch, from, to, .. } => (Life(0), What::Numbered { epoch, term: 0, from, to }),
            _ => unreachable!("it is a numbering"),
        };
        fixture
    }

    #[test]
    fn rejects_who_goes_on_though_its_successor_never_acts() {
        goes_on_unheard().bad(SingleSequencer::default());
    }

    #[test]
    fn rejects_the_same_where_applications_are_told_late() {
        let mut fixture = goes_on_unheard();
        let is_told = |record: &Record| matches!(record.what, What::HandedOver { .. });
        let (told, mut records): (Vec<Record>, Vec<Record>) = fixture.records.drain(..).partition(is_told);
        records.retain(|record| !matches!(record.what, What::Delivered { .. }));
        records.extend(told);
        fixture.records = records;
        fixture.bad(SingleSequencer::default());
    }

    #[test]
    fn takes_a_successor_that_never_acts() {
        let mut fixture = Fixture::of(3, 1);
        fixture.message(Life(2));
        fixture.hand_over(Life(1));
        fixture.reset(&[Life(0), Life(2)]);
        fixture.good(SingleSequencer::default());
    }

    #[test]
    fn rejects_who_was_never_named() {
        let mut fixture = good();
        for record in &mut fixture.records {
            if let What::Numbered { term: 4, .. } = record.what {
                record.life = Life(2);
            }
        }
        fixture.bad(SingleSequencer::default());
    }

    #[test]
    fn rejects_a_term_without_an_event() {
        let mut fixture = good();
        for record in &mut fixture.records {
            if let What::Numbered { term, .. } = &mut record.what
                && *term == 4
            {
                *term = 3;
            }
        }
        fixture.bad(SingleSequencer::default());
    }
}

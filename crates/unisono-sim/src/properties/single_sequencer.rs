//! G21, single sequencer: each seqno of an epoch is assigned once, in ascending order, by the one life that the last
//! naming event names. A naming event is a founding, a hand-over, a switch of the order, a
//! sequencer's leave, or a reset.
//!
//! A member may take the role, number, and hand the role on within one input, so that no record shows it in the role.
//! So this checker does not know the sequencer of every seqno. [`super::gap_free`] checks that no seqno is left out.

use super::streams::VIEW_CHANGES;
use super::tables::Table;
use super::{Facts, Property, Violation, result};
use crate::record::{End, Entry, Epoch, Kind, Life, Record, What};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use unisono_core::Seqno;

#[derive(Clone, Debug, Default)]
struct Numbers {
    /// Last seqno assigned; `None` for none yet.
    end: Option<Seqno>,
    /// By term (the seqno of its naming event), the life that assigned seqnos and the last of them.
    terms: BTreeMap<Seqno, (Life, Seqno)>,
    /// By seqno, the life that the event there names.
    named: BTreeMap<Seqno, Life>,
    /// By life, the first and last seqno of the events that its application received. A joiner receives nothing from
    /// before its join.
    received: BTreeMap<Life, RangeInclusive<Seqno>>,
}

/// The checker of `single_sequencer`.
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
            return Some(format!("it assigned {from} to {to}, and the next seqno was {next}"));
        }
        let (assigner, last) = numbers.terms.entry(term).or_insert((record.life, to));
        *last = to;
        if *assigner != record.life {
            return Some(format!("{assigner:?} also assigned seqnos by the event at {term}"));
        }
        if let Some((seqno, later)) = numbers.named.range(term + 1..).next().filter(|(seqno, _)| **seqno < to)
        {
            return Some(format!("the event at {seqno} has named {later:?} since"));
        }
        let named = numbers.named.get(&term).filter(|named| **named != record.life);
        named.map(|named| format!("the event at {term} names {named:?}"))
    }

    fn name_sequencer(&mut self, epoch: Epoch, seqno: Seqno, sequencer: Life) -> Option<String> {
        let numbers = self.numbers.at(epoch);
        let is_known = numbers.named.contains_key(&seqno);
        numbers.named.entry(seqno).or_insert(sequencer);
        if let Some((assigner, _)) = numbers.terms.get(&seqno).filter(|(assigner, _)| *assigner != sequencer)
        {
            return Some(format!("{assigner:?} assigned seqnos by the event at {seqno}"));
        }
        // What is assigned later is compared when it is assigned.
        if is_known || numbers.end.is_none_or(|end| end <= seqno) {
            return None;
        }
        let mut before = numbers.terms.range(..seqno);
        let (term, (assigner, last)) = before.find(|(_, (_, last))| *last > seqno)?;
        Some(format!("{assigner:?} assigned later seqnos, through {last}, by the event at {term}"))
    }
}

impl Property for SingleSequencer {
    fn name(&self) -> &'static str {
        "single_sequencer"
    }

    fn interests(&self) -> u64 {
        VIEW_CHANGES
            | Kind::HandedOver.bit()
            | Kind::OrderChanged.bit()
            | Kind::Numbered.bit()
            | Kind::Stored.bit()
    }

    #[inline(always)]
    fn observe(&mut self, record: &Record, facts: &Facts) -> Result<(), Violation> {
        let fault = if let What::Numbered { epoch, term, from, to } = record.what {
            self.checked += 1;
            self.number(record, epoch, term, from, to)
        } else if let What::Stored { epoch, through, entry } = &record.what {
            match entry {
                Entry::Pass(to) => self.name_sequencer(*epoch, *through, *to),
                _ => None,
            }
        } else {
            let (before, stream) = (facts.before(), facts.stream(record.life));
            let (seqno, sequencer) = (stream.last, stream.sequencer);
            let Some(epoch) = stream.epoch else { return Ok(()) };
            self.numbers.at(epoch).received.insert(record.life, stream.entered + 1..=seqno);
            let names = match &record.what {
                What::Entered { seqno, .. } => *seqno == 0,
                What::Left { successor: Some(_), .. } => true,
                // An application does not know the sequencer once passes have moved the role.
                What::Left { member, .. } => {
                    let mut changes = facts.entries.changes(epoch, before.named_at, seqno);
                    *member == before.sequencer && !changes.any(|(_, entry)| matches!(entry, Entry::Pass(_)))
                }
                What::Joined { .. } => false,
                _ => true,
            };
            if names { self.name_sequencer(epoch, seqno, sequencer) } else { None }
        };
        result(self, record, fault)
    }

    fn finish(&mut self, end: &End, _: &Facts) -> Result<(), Violation> {
        for numbers in self.numbers.iter() {
            let unnamed = |(seqno, _): &(&Seqno, &(Life, Seqno))| {
                numbers.received.values().any(|received| received.contains(seqno))
                    && !numbers.named.contains_key(seqno)
            };
            if let Some((seqno, (life, _))) = numbers.terms.iter().find(unnamed) {
                let what =
                    format!("{life:?} assigned seqnos by the event at {seqno}, which names no sequencer");
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
    use crate::properties::streams::SEQUENCED;

    #[test]
    fn accepts_an_epoch_whose_beginning_no_application_received() {
        let mut fixture = Fixture::of(3, 1);
        let common = fixture.records.len();
        fixture.crash(Life(0));
        fixture.reset(&[Life(1), Life(2)]);
        fixture.message(Life(1));
        let joiner = fixture.join();
        fixture.hand_over(Life(2));
        fixture.message(Life(1));
        let (before, after) = fixture.records.split_at(common);
        let received = |record: &&Record| record.life != joiner && SEQUENCED & record.what.kind().bit() != 0;
        let after = after.iter().filter(|record| !received(record));
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
    fn accepts_one_sequencer_after_the_other() {
        good().good(SingleSequencer::default());
    }

    #[test]
    fn rejects_a_seqno_assigned_twice() {
        let mut fixture = good();
        let again = Record { life: Life(2), ..fixture.last(numbering).clone() };
        fixture.records.push(again);
        fixture.bad(SingleSequencer::default());
    }

    #[test]
    fn rejects_a_sequencer_that_goes_on_after_handing_over() {
        let mut fixture = good();
        let number = fixture.send(Life(2));
        let seqno = fixture.order(Life(2), number);
        fixture.last(numbering).life = Life(1);
        assert!(seqno > 0);
        fixture.bad(SingleSequencer::default());
    }

    /// Life 0 hands the role to life 1, which never acts. Life 0 goes on in the term of the event that named it.
    fn goes_on_after_hand_over() -> Fixture {
        let mut fixture = Fixture::of(3, 1);
        fixture.hand_over(Life(1));
        fixture.message(Life(2));
        let first = fixture.position(numbering);
        (fixture.records[first].life, fixture.records[first].what) = match fixture.records[first].what {
            What::Numbered { epoch, from, to, .. } => (Life(0), What::Numbered { epoch, term: 0, from, to }),
            _ => unreachable!("the record is of the kind Numbered"),
        };
        fixture
    }

    #[test]
    fn rejects_the_old_sequencer_even_if_its_successor_never_acts() {
        goes_on_after_hand_over().bad(SingleSequencer::default());
    }

    #[test]
    fn rejects_the_old_sequencer_when_applications_learn_it_late() {
        let mut fixture = goes_on_after_hand_over();
        let is_received = |record: &Record| matches!(record.what, What::HandedOver { .. });
        let (received, mut records): (Vec<Record>, Vec<Record>) =
            fixture.records.drain(..).partition(is_received);
        records.retain(|record| !matches!(record.what, What::Delivered { .. }));
        records.extend(received);
        fixture.records = records;
        fixture.bad(SingleSequencer::default());
    }

    #[test]
    fn accepts_a_successor_that_never_acts() {
        let mut fixture = Fixture::of(3, 1);
        fixture.message(Life(2));
        fixture.hand_over(Life(1));
        fixture.reset(&[Life(0), Life(2)]);
        fixture.good(SingleSequencer::default());
    }

    #[test]
    fn rejects_a_sequencer_that_was_never_named() {
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

//! G13, views: a view that a member reports to its application contains that member, contains no member twice, and
//! has one of its members as sequencer. All members that report the view at a seqno report the same one. A joiner has
//! the last rank. Epochs rise at each member, and an epoch has one description.

use super::streams::{Stream, VIEW_CHANGES};
use super::tables::Table;
use super::{Facts, GroupTerms, Property, Violation, result};
use crate::record::{Kind, Life, Record, View, What, mix};
use std::collections::BTreeMap;
use unisono_core::Seqno;

/// The checker of `views`.
#[derive(Debug)]
pub(super) struct Views {
    resilience: u8,
    /// By epoch and seqno, a hash of the members in rank order and of the sequencer.
    known: Table<BTreeMap<Seqno, u64>>,
    /// By epoch, its counter, its coordinator, and the seqno at which it begins.
    epochs: Table<Option<(u64, Life, Seqno)>>,
    counters: Table<u64>,
    checked: u64,
}

impl Views {
    pub(super) fn new(terms: &GroupTerms) -> Views {
        Views {
            resilience: terms.config.resilience,
            known: Table::default(),
            epochs: Table::default(),
            counters: Table::default(),
            checked: 0,
        }
    }

    /// Returns a fault in a view that `life` received, looked at alone.
    fn fault(&self, view: &View, life: Life) -> Option<String> {
        let mut sorted = view.members.clone();
        sorted.sort_unstable();
        sorted.dedup();
        let resilience = usize::from(self.resilience).min(view.members.len().saturating_sub(1));
        if !view.members.contains(&life) {
            Some("it is not in its own view".into())
        } else if sorted.len() != view.members.len() {
            Some(format!("a member is twice in {:?}", view.members))
        } else if !view.members.contains(&view.sequencer) {
            Some(format!("the sequencer {:?} is not in {:?}", view.sequencer, view.members))
        } else if usize::from(view.resilience) != resilience {
            Some(format!("resilience {} with {} members", view.resilience, view.members.len()))
        } else {
            None
        }
    }

    /// Returns the sequencer at a seqno in the epoch of this stream, whose last event lies there or before.
    fn sequencer(&self, facts: &Facts, stream: &Stream, seqno: Seqno) -> Life {
        let named = match stream.epoch {
            Some(epoch) => facts.entries.named_within(epoch, stream.named_at, seqno),
            None => None,
        };
        named.unwrap_or(stream.sequencer)
    }

    /// Returns a fault if the epoch has another description elsewhere.
    fn misnamed(&mut self, view: &View, start: Option<Seqno>) -> Option<String> {
        let here = (view.counter, view.coordinator, start?);
        let known = *self.epochs.at(view.epoch).get_or_insert(here);
        (known != here).then(|| format!("the epoch has two descriptions: {known:?} and {here:?}"))
    }
}

impl Property for Views {
    fn name(&self) -> &'static str {
        "views"
    }

    fn interests(&self) -> u64 {
        VIEW_CHANGES | Kind::HandedOver.bit()
    }

    #[inline(always)]
    fn observe(&mut self, record: &Record, facts: &Facts) -> Result<(), Violation> {
        self.checked += 1;
        let stream = facts.before();
        let (before, mut fault) = (stream.view.len(), None);
        let mut members_reported = None;
        match &record.what {
            What::Entered { seqno, view } => {
                let start = facts.lineage.start(view.epoch);
                fault = self.fault(view, record.life).or_else(|| self.misnamed(view, start));
                *self.counters.at(record.life) = view.counter;
                let start = start.unwrap_or(0);
                if *seqno < start {
                    fault = Some(format!("it entered at {seqno} an epoch that begins at {start}"));
                } else if *seqno > 0 && view.members.last() != Some(&record.life) {
                    fault = Some("the joiner does not have the last rank".into());
                }
            }
            What::Reset(reset) => {
                let last = std::mem::replace(self.counters.at(record.life), reset.view.counter);
                let misnamed = self.misnamed(&reset.view, Some(reset.seqno));
                fault = self.fault(&reset.view, record.life).or(misnamed);
                if reset.view.counter <= last {
                    fault = Some(format!("epoch {} after epoch {last}", reset.view.counter));
                }
            }
            What::Joined { member, members, .. } => {
                members_reported = Some((*members as usize, before + 1));
                if stream.members.contains(*member) {
                    fault = Some(format!("{member:?} joins and is already a member"));
                }
            }
            What::Left { seqno, member, members, successor } => {
                members_reported = Some((*members as usize, before.wrapping_sub(1)));
                let names_one = self.sequencer(facts, stream, seqno - 1) == *member && before > 1;
                let stays = |life: Life| life != *member && stream.members.contains(life);
                if !successor.map_or(!names_one, |life| names_one && stays(life)) {
                    fault = Some(format!("{member:?} leaves, and its successor is {successor:?}"));
                }
                if !stream.members.contains(*member) {
                    fault = Some(format!("{member:?} leaves and is not a member"));
                }
            }
            What::HandedOver { sequencer, .. } | What::OrderChanged { sequencer, .. }
                if !stream.members.contains(*sequencer) =>
            {
                fault = Some(format!("the next sequencer {sequencer:?} is not a member"));
            }
            _ => {}
        }
        if let Some((reported, counted)) = members_reported
            && reported != counted
        {
            fault = Some(format!("the event says {reported} members, and its events so far give {counted}"));
        }
        let stream = facts.stream(record.life);
        if let (None, Some(epoch)) = (&fault, stream.epoch) {
            let sequencer = self.sequencer(facts, stream, stream.last);
            let members = stream.view.iter().fold(u64::from(sequencer.0), |h, m| mix(h, u64::from(m.0)));
            let known = *self.known.at(epoch).entry(stream.last).or_insert(members);
            if known != members {
                fault = Some(format!("another member has another view there than {:?}", stream.view));
            }
        }
        result(self, record, fault)
    }

    fn checked(&self) -> u64 {
        self.checked
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::properties::fixture::{Fixture, change_reset, reset_of};
    use crate::record::Epoch;

    fn good() -> Fixture {
        let mut fixture = Fixture::of(4, 1);
        fixture.hand_over(Life(2));
        fixture.join();
        fixture.leave(Life(2));
        fixture.crash(Life(0));
        fixture.reset(&[Life(1), Life(3), Life(4)]);
        fixture.join();
        fixture
    }

    fn check(fixture: &Fixture) -> Result<u64, Violation> {
        fixture.check(Views::new(&fixture.terms))
    }

    fn entering(life: Life) -> impl Fn(&Record) -> bool {
        move |record| record.life == life && matches!(record.what, What::Entered { .. })
    }

    #[test]
    fn accepts_one_view_for_all() {
        assert!(check(&good()).unwrap() > 0);
    }

    #[test]
    fn rejects_a_view_without_the_member_itself() {
        let mut fixture = good();
        change_reset(fixture.last(reset_of(Life(3))), |reset| reset.view.members[1] = Life(0));
        assert!(check(&fixture).is_err());
    }

    #[test]
    fn rejects_other_ranks_for_a_joiner() {
        let mut fixture = good();
        if let What::Entered { view, .. } = &mut fixture.last(entering(Life(5))).what {
            view.members.swap(0, 1);
        }
        assert!(check(&fixture).is_err());
    }

    #[test]
    fn rejects_another_sequencer_for_a_joiner() {
        let mut fixture = good();
        if let What::Entered { view, .. } = &mut fixture.last(entering(Life(4))).what {
            view.sequencer = Life(0);
        }
        assert!(check(&fixture).is_err());
    }

    #[test]
    fn rejects_a_repeated_epoch() {
        let mut fixture = good();
        let again = fixture.last(reset_of(Life(1))).clone();
        fixture.records.push(again);
        assert!(check(&fixture).is_err());
    }

    #[test]
    fn rejects_an_epoch_that_begins_at_two_seqnos() {
        let mut fixture = good();
        change_reset(fixture.last(reset_of(Life(4))), |reset| reset.seqno += 1);
        assert!(check(&fixture).is_err());
    }

    #[test]
    fn rejects_an_epoch_with_two_sequencers() {
        let mut fixture = good();
        change_reset(fixture.last(reset_of(Life(4))), |reset| reset.view.sequencer = Life(3));
        assert!(check(&fixture).is_err());
    }

    #[test]
    fn rejects_a_successor_that_does_not_stay() {
        for (leaver, heir) in [(Life(0), None), (Life(0), Some(Life(0))), (Life(2), Some(Life(1)))] {
            let mut fixture = Fixture::of(3, 1);
            fixture.leave(leaver);
            assert!(check(&fixture).is_ok());
            if let What::Left { successor, .. } =
                &mut fixture.last(|r| matches!(r.what, What::Left { .. })).what
            {
                *successor = heir;
            }
            assert!(check(&fixture).is_err(), "{leaver:?} leaves, and {heir:?} is named as successor");
        }
    }

    #[test]
    fn rejects_a_wrong_count_of_members() {
        let mut fixture = good();
        if let What::Left { members, .. } = &mut fixture.last(|r| matches!(r.what, What::Left { .. })).what {
            *members += 1;
        }
        assert!(check(&fixture).is_err());
    }

    #[test]
    fn rejects_entering_an_epoch_before_it_begins() {
        let mut fixture = good();
        if let What::Entered { view, .. } = &mut fixture.last(entering(Life(4))).what {
            (view.epoch, view.counter, view.coordinator) = (Epoch(1), 1, Life(1));
        }
        let entered = fixture.position(entering(Life(4)));
        let entered = fixture.records.remove(entered);
        fixture.records.push(entered);
        assert!(check(&fixture).is_err());
    }
}

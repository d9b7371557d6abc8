//! The role of sequencer moves only by the founder's choice ([`Migration`]), and where it follows the load it does not
//! flap: whoever got it keeps it for a tenth of a second at least, unless its application gives it away, or it leaves, or
//! there is a reset.

use super::tables::Table;
use super::{Facts, Property, Terms, Violation, found};
use crate::record::{Epoch, Kind, Life, Record, What};
use std::time::Duration;
use unisono_core::{Migration, Seqno, Time};

/// A tenth of a second, by a clock that runs one percent too fast.
const TENURE_MIN: Duration = Duration::from_millis(99);

/// A sequencer's application wants the role to go to somebody, and it has not.
#[derive(Clone, Copy, Debug)]
struct Wish {
    epoch: Option<Epoch>,
    giver: Life,
    successor: Life,
    at: Time,
}

/// Numbers given out by the event at `term`, and when.
#[derive(Clone, Copy, Debug)]
struct Run {
    from: Seqno,
    to: Seqno,
    term: Seqno,
    giver: Life,
    at: Time,
}

#[derive(Clone, Debug, Default)]
struct Roles {
    runs: Vec<Run>,
    /// Places of role events that somebody was told of.
    places: Vec<Seqno>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct SteadyRole {
    migration: Migration,
    epochs: Table<Roles>,
    asked: Vec<Wish>,
    checked: u64,
}

impl SteadyRole {
    pub(super) fn new(terms: &Terms) -> SteadyRole {
        SteadyRole {
            migration: terms.config.migration,
            epochs: Table::default(),
            asked: Vec::new(),
            checked: 0,
        }
    }

    /// The role moved to `successor` at a place; nobody was told before.
    fn moved(&mut self, epoch: Epoch, seqno: Seqno, successor: Life) -> Option<String> {
        if self.migration == Migration::Never {
            return Some("here it never moves".into());
        }
        let runs = &self.epochs.at(epoch).runs;
        let run_of = |place: Seqno| {
            let run = runs.get(runs.partition_point(|run| run.to < place))?;
            (run.from <= place).then_some(*run)
        };
        let run = run_of(seqno)?;
        // A wish is forgotten with the term in which it was uttered. What was numbered before it was asked for, and is
        // told only now, is no answer either.
        let named_at = run_of(run.term).map_or(Time::ZERO, |run| run.at);
        let is_answer = |wish: &Wish| {
            (wish.epoch, wish.giver, wish.successor) == (Some(epoch), run.giver, successor)
                && (named_at..=run.at).contains(&wish.at)
        };
        // The latest that can be meant: what was asked before is left for an event before, which may be told after this one.
        if let Some(place) = self.asked.iter().rposition(is_answer) {
            self.asked.remove(place);
            return None;
        }
        if self.migration == Migration::OnRequest {
            return Some(format!("{:?} gave it away, and was not asked to", run.giver));
        }
        // By leaves and resets a sequencer gets it too.
        let before = run_of(run.term).filter(|_| self.epochs.at(epoch).places.contains(&run.term))?;
        let kept = run.at.since(before.at);
        (kept < TENURE_MIN).then(|| format!("{:?} kept it for {kept:?} only", run.giver))
    }
}

impl Property for SteadyRole {
    fn name(&self) -> &'static str {
        "steady_role"
    }

    fn interests(&self) -> u64 {
        Kind::HandedOver.bit() | Kind::HandOverAsked.bit() | Kind::Numbered.bit()
    }

    #[inline(always)]
    fn observe(&mut self, record: &Record, facts: &Facts) -> Result<(), Violation> {
        match record.what {
            What::Numbered { epoch, term, from, to } => {
                self.epochs.at(epoch).runs.push(Run { from, to, term, giver: record.life, at: record.at });
            }
            What::HandOverAsked { successor } => {
                let epoch = facts.epoch(record.life);
                self.asked.push(Wish { epoch, giver: record.life, successor, at: record.at });
            }
            _ => {}
        }
        let What::HandedOver { seqno, sequencer } = record.what else { return Ok(()) };
        let Some(epoch) = facts.stream(record.life).epoch else { return Ok(()) };
        if self.epochs.at(epoch).places.contains(&seqno) {
            return Ok(());
        }
        self.checked += 1;
        let fault = self.moved(epoch, seqno, sequencer);
        self.epochs.at(epoch).places.push(seqno);
        found(self, record, fault)
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

    /// The role goes to life 1 as it wishes, and from there to life 2 by itself, so much later.
    fn fixture(migration: Migration, later: Duration) -> Fixture {
        let mut fixture = Fixture::of(3, 1);
        fixture.terms.config = GroupConfig { migration, ..fixture.terms.config.clone() };
        fixture.hand_over(Life(1));
        fixture.wait(later);
        fixture.migrate(Life(2));
        fixture.message(Life(2));
        fixture
    }

    fn check(fixture: &Fixture) -> SteadyRole {
        SteadyRole::new(&fixture.terms)
    }

    #[test]
    fn takes_what_was_asked_for_and_what_came_late_enough() {
        let fixture = fixture(Migration::ByLoad, Duration::from_millis(100));
        fixture.good(check(&fixture));
    }

    #[test]
    fn takes_an_event_told_late_for_no_answer_to_what_was_asked_since() {
        let mut fixture = Fixture::of(3, 1);
        fixture.terms.config.migration = Migration::ByLoad;
        fixture.migrate(Life(1));
        let (place, soon) = (fixture.end(), Duration::from_millis(1));
        for to in [0, 1] {
            fixture.wait(soon);
            fixture.hand_over(Life(to));
        }
        let is_told =
            |record: &Record| matches!(record.what, What::HandedOver { seqno, .. } if seqno == place);
        let is_asked = |record: &Record| matches!(record.what, What::HandOverAsked { .. });
        let late: Vec<Record> = fixture.records.iter().filter(|record| is_told(record)).cloned().collect();
        fixture.records.retain(|record| !is_told(record));
        let last = fixture.records.iter().rposition(is_asked).unwrap();
        for mut record in late {
            record.at = fixture.records[last].at;
            fixture.records.insert(last + 1, record);
        }
        fixture.good(check(&fixture));
    }

    #[test]
    fn takes_two_events_that_answer_the_same_wish_and_are_told_the_other_way_round() {
        let mut fixture = Fixture::of(3, 1);
        fixture.terms.config.migration = Migration::OnRequest;
        fixture.hand_over(Life(1));
        let place = fixture.end();
        for to in [0, 1] {
            fixture.wait(Duration::from_millis(1));
            fixture.hand_over(Life(to));
        }
        let is_told =
            |record: &Record| matches!(record.what, What::HandedOver { seqno, .. } if seqno == place);
        let (late, mut records): (Vec<Record>, Vec<Record>) = fixture.records.drain(..).partition(is_told);
        let at = records.last().map(|record| record.at).unwrap_or_default();
        records.extend(late.into_iter().map(|record| Record { at, ..record }));
        fixture.records = records;
        fixture.good(check(&fixture));
    }

    /// Its sequencer wants life 1 to have the role, and has no time to give it away before a reset.
    fn asked_in_vain() -> Fixture {
        let mut fixture = Fixture::of(3, 1);
        fixture.terms.config.migration = Migration::OnRequest;
        fixture.tell(Life(0), What::HandOverAsked { successor: Life(1) });
        fixture.reset(&[Life(0), Life(1), Life(2)]);
        fixture.message(Life(1));
        fixture
    }

    #[test]
    fn takes_a_wish_that_is_uttered_again_after_a_reset() {
        let mut fixture = asked_in_vain();
        fixture.hand_over(Life(1));
        fixture.good(check(&fixture));
    }

    #[test]
    fn rejects_an_answer_to_a_wish_of_another_epoch() {
        let mut fixture = asked_in_vain();
        fixture.migrate(Life(1));
        fixture.bad(check(&fixture));
    }

    #[test]
    fn rejects_an_answer_to_a_wish_from_before_the_sequencer_got_the_role_again() {
        let mut fixture = Fixture::of(3, 1);
        fixture.terms.config.migration = Migration::OnRequest;
        let soon = Duration::from_millis(1);
        fixture.tell(Life(0), What::HandOverAsked { successor: Life(2) });
        for to in [1, 0] {
            fixture.wait(soon);
            fixture.hand_over(Life(to));
        }
        fixture.good(check(&fixture));
        fixture.wait(soon);
        fixture.migrate(Life(2));
        fixture.bad(check(&fixture));
    }

    #[test]
    fn rejects_a_role_that_moves_too_soon() {
        let fixture = fixture(Migration::ByLoad, Duration::from_millis(98));
        fixture.bad(check(&fixture));
    }

    #[test]
    fn rejects_a_role_that_moves_by_itself_where_it_must_not() {
        let fixture = fixture(Migration::OnRequest, Duration::from_millis(100));
        fixture.bad(check(&fixture));
    }

    #[test]
    fn rejects_a_role_that_moves_where_it_never_moves() {
        let mut fixture = Fixture::of(3, 1);
        fixture.terms.config.migration = Migration::Never;
        fixture.hand_over(Life(1));
        fixture.bad(check(&fixture));
    }
}

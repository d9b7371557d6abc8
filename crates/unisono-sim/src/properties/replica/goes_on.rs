//! It goes on (liveness): once no fault strikes any more and enough members lived through the faults, callers get answers,
//! and at the end all servers have the state, all at the same position.

use super::{Property, Violation, broken, content};
use crate::properties::{Facts, final_result};
use crate::record::{End, Kind, Life, OpOutcome, Place, Record, ReplicaRecord, What};
use std::time::Duration;
use unisono_core::Time;

/// Time in which an operation must end.
const ENDS_WITHIN: Duration = Duration::from_secs(6);

/// The checker of `goes_on`.
#[derive(Debug, Default)]
pub(super) struct GoesOn {
    /// Since when callers must get answers.
    since: Option<Time>,
    /// Operations that began since then: their caller, when they began, and whether they have ended.
    begun: Vec<Option<(Life, Time, bool)>>,
    crashed: Vec<Life>,
    /// Callers to which nothing is promised.
    hostile: Vec<Life>,
    /// Callers that learn of another instance with the operation that ends next. Each life does so once at most without
    /// faults.
    replaced: Vec<(Life, bool)>,
    finals: Vec<(Life, Option<Place>)>,
    checked: u64,
}

impl Property for GoesOn {
    fn name(&self) -> &'static str {
        "goes_on"
    }

    fn interests(&self) -> u64 {
        Kind::Replica.bit() | Kind::Crashed.bit()
    }

    fn observe(&mut self, record: &Record, _: &Facts) -> Result<(), Violation> {
        if record.what == What::Crashed {
            self.crashed.push(record.life);
        }
        match content(record) {
            Some(ReplicaRecord::Calm { serves: true }) => self.since = Some(record.at),
            Some(ReplicaRecord::Begun { .. }) => {
                let since = self.since.filter(|_| !self.hostile.contains(&record.life));
                self.begun.push(since.map(|_| (record.life, record.at, false)));
            }
            Some(ReplicaRecord::Ended { id, outcome }) => {
                if let Some(Some((_, begun, ended))) = self.begun.get_mut(id.index()) {
                    *ended = true;
                    let took = record.at.since(*begun);
                    self.checked += 1;
                    let learns = self.replaced.iter_mut().find(|(life, told)| *life == record.life && !told);
                    let learns = learns.map(|(_, told)| *told = true).is_some();
                    // A server that gets no entries learns the outcome when the others exclude it.
                    if took > ENDS_WITHIN && !learns {
                        return broken(self, record, || format!("an answer took {took:?} without faults"));
                    }
                    if !matches!(outcome, OpOutcome::Replied(_)) && !learns {
                        return broken(self, record, || format!("after {took:?} without faults"));
                    }
                }
            }
            Some(ReplicaRecord::Replaced)
                if self.since.is_some() && self.replaced.iter().all(|(life, _)| *life != record.life) =>
            {
                self.replaced.push((record.life, false));
            }
            Some(ReplicaRecord::Hostile) => self.hostile.push(record.life),
            Some(ReplicaRecord::Final { at }) => self.finals.push((record.life, *at)),
            _ => {}
        }
        Ok(())
    }

    fn finish(&mut self, end: &End, _: &Facts) -> Result<(), Violation> {
        if self.since.is_none() {
            return Ok(());
        }
        let is_open = |(_, begun, ended): &(Life, Time, bool)| !ended && end.at.since(*begun) > ENDS_WITHIN;
        let open = self.begun.iter().flatten().find(|op| is_open(op) && !self.crashed.contains(&op.0));
        let open = open.map(|(life, begun, _)| format!("{life:?} still waits for an answer since {begun:?}"));
        let lacks = self.finals.iter().find(|(_, at)| at.is_none());
        let lacks = lacks.map(|(life, _)| format!("{life:?} has no state at the end"));
        let first = self.finals.first().and_then(|(_, at)| *at);
        let same = |at: &Option<Place>| {
            at.is_some_and(|at| {
                first.is_some_and(|first| {
                    (at.service, at.position, at.trail) == (first.service, first.position, first.trail)
                })
            })
        };
        let differs = self.finals.iter().find(|(_, at)| !same(at));
        let differs = differs.map(|(life, at)| format!("{life:?} is at {at:?}, and another at {first:?}"));
        final_result(self, end, open.or(lacks).or(differs))
    }

    fn checked(&self) -> u64 {
        self.checked
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{A, Fixture, SERVICE};
    use super::*;
    use crate::record::Mode;
    use crate::replica::Op;

    fn calm() -> Fixture {
        let mut fixture = Fixture::three_copies();
        fixture.record(Life::WORLD, ReplicaRecord::Calm { serves: true });
        fixture.append(1);
        fixture
    }

    #[test]
    fn accepts_answers_and_equal_copies() {
        let mut fixture = calm();
        fixture.finals();
        fixture.good(GoesOn::default());
    }

    #[test]
    fn accepts_anything_if_too_few_members_lived() {
        let mut fixture = Fixture::three_copies();
        fixture.record(Life::WORLD, ReplicaRecord::Calm { serves: false });
        let id = fixture.begin(Mode::Read, Op::GetAll);
        fixture.end(id, OpOutcome::Unknown);
        fixture.record(A, ReplicaRecord::Final { at: None });
        fixture.good(GoesOn::default());
    }

    #[test]
    fn rejects_a_call_without_an_answer() {
        for outcome in [Some(OpOutcome::Unknown), Some(OpOutcome::NotHappened), None] {
            let mut fixture = calm();
            let id = fixture.begin(Mode::Read, Op::GetAll);
            if let Some(outcome) = outcome {
                fixture.end(id, outcome);
            }
            fixture.wait(2 * ENDS_WITHIN);
            fixture.bad(GoesOn::default());
        }
    }

    #[test]
    fn rejects_a_late_answer() {
        let mut fixture = calm();
        let id = fixture.begin(Mode::Read, Op::GetAll);
        fixture.wait(ENDS_WITHIN + Duration::from_millis(1));
        fixture.end(id, OpOutcome::NotHappened);
        fixture.bad(GoesOn::default());
        let mut fixture = calm();
        fixture.wait(2 * ENDS_WITHIN);
        fixture.append(2);
        fixture.finals();
        fixture.good(GoesOn::default());
    }

    #[test]
    fn rejects_a_server_without_the_state_or_behind() {
        let mut fixture = calm();
        fixture.finals();
        fixture.record(A, ReplicaRecord::Final { at: None });
        fixture.bad(GoesOn::default());
        let mut fixture = calm();
        fixture.finals();
        let place = fixture.place(A);
        assert_eq!(place.service, SERVICE);
        fixture.record(A, ReplicaRecord::Final { at: Some(Place { position: place.position - 1, ..place }) });
        fixture.bad(GoesOn::default());
    }
}

//! Replay equals: a copy that begins to serve, from its disk or from another copy, has the state that all commands give
//! one after another, and the same outcomes. Nothing is skipped, and nothing counts twice, wherever a snapshot ends and
//! the log begins. Of a state that is no small object, copies at the same position are compared with each other.

use super::{Map, Property, Violation, broken, content};
use crate::properties::Facts;
use crate::record::{Kind, Life, Op, Place, Record, ReplicaRecord, Service};
use crate::replica::Model;
use std::collections::BTreeSet;

/// The checker of `replay_equals`.
#[derive(Debug, Default)]
pub(super) struct ReplayEquals {
    held_by_all: bool,
    /// True if what commands give is known of the copies only.
    compares: bool,
    courses: Map<Service, Course>,
    corrupted: BTreeSet<Life>,
    checked: u64,
}

/// The plain replay of a service.
#[derive(Debug, Default)]
struct Course {
    /// Commands by position, from 1.
    commands: Vec<Option<Op>>,
    model: Model,
    /// Hash of all values after each position through which the commands are known.
    values: Vec<u64>,
    /// Hash of all values at a position, as a copy had it first.
    first: Map<u64, u64>,
    /// Hash of all outcomes, as a copy had it first.
    outcomes: Map<u64, u64>,
}

impl Course {
    fn apply(&mut self, position: u64, op: Op) {
        let index = position.saturating_sub(1) as usize;
        if self.commands.len() <= index {
            self.commands.resize(index + 1, None);
        }
        self.commands[index].get_or_insert(op);
        if self.values.is_empty() {
            self.values.push(self.model.hash());
        }
        while let Some(Some(op)) = self.commands.get(self.values.len() - 1) {
            self.model.apply(*op);
            self.values.push(self.model.hash());
        }
    }

    fn fault(&mut self, at: &Place, values: u64, outcomes: u64, compares: bool) -> Option<&'static str> {
        let known = match at.position {
            position if compares => *self.first.entry(position).or_insert(values),
            0 => Model::default().hash(),
            position => match self.values.get(position as usize) {
                Some(known) => *known,
                None => return Some("no copy applied all commands through this position"),
            },
        };
        if known != values {
            return Some("all commands one after another give other values");
        }
        let known = *self.outcomes.entry(at.position).or_insert(outcomes);
        (known != outcomes).then_some("another copy had other outcomes")
    }
}

impl ReplayEquals {
    /// Returns the checker for states of which this crate has no model here.
    pub(super) fn of_copies() -> ReplayEquals {
        ReplayEquals { compares: true, ..ReplayEquals::default() }
    }
}

impl Property for ReplayEquals {
    fn name(&self) -> &'static str {
        "replay_equals"
    }

    fn interests(&self) -> u64 {
        Kind::Replica.bit()
    }

    fn observe(&mut self, record: &Record, _: &Facts) -> Result<(), Violation> {
        match content(record) {
            Some(ReplicaRecord::Terms { held_by_all, .. }) => self.held_by_all = *held_by_all,
            // What begins anew is another service, and what it begins with is known of the old one only.
            Some(ReplicaRecord::BeginsAnew) => self.held_by_all = false,
            Some(ReplicaRecord::Corrupted) => _ = self.corrupted.insert(record.life),
            Some(ReplicaRecord::Applied { at, op, .. }) if self.held_by_all && !self.compares => {
                self.courses.entry(at.service).or_default().apply(at.position, *op);
            }
            Some(ReplicaRecord::Replayed { at, values, outcomes }) if self.held_by_all => {
                self.checked += 1;
                let course = self.courses.entry(at.service).or_default();
                let fault = course.fault(at, *values, *outcomes, self.compares);
                if let Some(fault) = fault.filter(|_| self.corrupted.is_empty()) {
                    return broken(self, record, || fault.into());
                }
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
    use super::super::fixture::{C, Fixture};
    use super::*;

    fn replayed(change: impl Fn(&mut Place, &mut u64, &mut u64)) -> Fixture {
        let mut fixture = Fixture::three_copies();
        (0..5).for_each(|word| fixture.append(word));
        let (mut at, mut values, mut outcomes) = (fixture.place(C), fixture.values(), 3);
        fixture.record(C, ReplicaRecord::Replayed { at, values, outcomes });
        change(&mut at, &mut values, &mut outcomes);
        fixture.record(C, ReplicaRecord::Replayed { at, values, outcomes });
        fixture
    }

    #[test]
    fn accepts_what_all_commands_give() {
        replayed(|_, _, _| {}).good(ReplayEquals::default());
    }

    #[test]
    fn rejects_a_copy_that_differs_from_another_one_if_there_is_no_model() {
        replayed(|_, _, _| {}).good(ReplayEquals::of_copies());
        replayed(|_, values, _| *values += 1).bad(ReplayEquals::of_copies());
    }

    #[test]
    fn rejects_other_values_other_outcomes_and_what_nobody_applied() {
        replayed(|_, values, _| *values += 1).bad(ReplayEquals::default());
        replayed(|_, _, outcomes| *outcomes += 1).bad(ReplayEquals::default());
        replayed(|at, _, _| at.position += 1).bad(ReplayEquals::default());
        replayed(|at, _, _| at.position -= 1).bad(ReplayEquals::default());
    }
}

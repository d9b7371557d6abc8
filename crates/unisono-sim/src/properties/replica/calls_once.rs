//! Calls take effect once: no command of one client and number is executed at two positions of a service, nor in two
//! services; and a command that was reported as *did not happen* is never executed.
//!
//! With the durability *ordered*, a crash may undo the last commands, which are then executed again at other positions:
//! there each copy is checked for itself.

use super::{Map, Property, Violation, broken, content};
use crate::properties::Facts;
use crate::record::{Kind, Life, Mode, OpOutcome, Record, ReplicaRecord, Service};

type Name = (Life, u64);

/// The checker of `calls_once`.
#[derive(Debug, Default)]
pub(super) struct CallsOnce {
    held_by_all: bool,
    /// Where each command was executed.
    executed: Map<Name, (Service, u64)>,
    /// The same for each copy, with the durability *ordered*.
    at_copies: Map<(Life, Name), u64>,
    /// The names of operations that are commands, by their index.
    commands: Vec<Option<Name>>,
    /// Commands that were reported as not happened.
    not_happened: Map<Name, ()>,
    checked: u64,
}

impl CallsOnce {
    fn execute(
        &mut self,
        record: &Record,
        name: Name,
        (service, position): (Service, u64),
    ) -> Result<(), Violation> {
        self.checked += 1;
        if self.not_happened.contains_key(&name) {
            return broken(self, record, || "its caller was informed that it did not happen".into());
        }
        let known = *self.executed.entry(name).or_insert((service, position));
        let at_copy = match self.held_by_all {
            true => position,
            false => *self.at_copies.entry((record.life, name)).or_insert(position),
        };
        let twice = known.0 != service || self.held_by_all && known.1 != position || at_copy != position;
        match twice {
            true => broken(self, record, || format!("it was executed before, at {known:?}")),
            false => Ok(()),
        }
    }
}

impl Property for CallsOnce {
    fn name(&self) -> &'static str {
        "calls_once"
    }

    fn interests(&self) -> u64 {
        Kind::Replica.bit()
    }

    fn observe(&mut self, record: &Record, _: &Facts) -> Result<(), Violation> {
        match content(record) {
            Some(ReplicaRecord::Terms { held_by_all, .. }) => self.held_by_all = *held_by_all,
            // A disk with which a service begins anew replays its commands, in another service.
            Some(ReplicaRecord::BeginsAnew) => self.executed.clear(),
            Some(ReplicaRecord::Begun { name, mode, .. }) => {
                self.commands.push((*mode == Mode::Command).then_some(*name));
            }
            Some(ReplicaRecord::Ended { id, outcome: OpOutcome::NotHappened }) => {
                if let Some(name) = self.commands.get(id.index()).copied().flatten() {
                    self.not_happened.insert(name, ());
                    if self.executed.contains_key(&name) {
                        return broken(self, record, || "it was executed".into());
                    }
                }
            }
            Some(ReplicaRecord::Applied { at, name, .. }) => {
                return self.execute(record, *name, (at.service, at.position));
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
    use super::super::fixture::{A, Fixture, OTHER_SERVICE};
    use super::*;

    #[test]
    fn accepts_commands_that_take_effect_once() {
        let mut fixture = Fixture::three_copies();
        (0..5).for_each(|word| fixture.append(word));
        let id = fixture.begin(Mode::Command, crate::replica::Op::Append(1));
        fixture.end(id, OpOutcome::NotHappened);
        fixture.good(CallsOnce::default());
    }

    #[test]
    fn rejects_a_command_that_takes_effect_again_here_or_elsewhere() {
        for elsewhere in [false, true] {
            let mut fixture = Fixture::three_copies();
            fixture.append(1);
            let Some(ReplicaRecord::Applied { mut at, name, op, reply }) = fixture.last_applied() else {
                panic!()
            };
            match elsewhere {
                true => at.service = OTHER_SERVICE,
                false => at.position += 1,
            }
            fixture.record(A, ReplicaRecord::Applied { at, name, op, reply });
            fixture.bad(CallsOnce::default());
        }
    }

    #[test]
    fn rejects_a_command_that_happened_although_it_did_not() {
        for late in [false, true] {
            let mut fixture = Fixture::three_copies();
            let id = fixture.begin(Mode::Command, crate::replica::Op::Append(1));
            if late {
                fixture.end(id, OpOutcome::NotHappened);
                fixture.apply(id);
            } else {
                fixture.apply(id);
                fixture.end(id, OpOutcome::NotHappened);
            }
            fixture.bad(CallsOnce::default());
        }
    }
}

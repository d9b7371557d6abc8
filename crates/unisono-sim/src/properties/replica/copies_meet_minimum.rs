//! Copies meet the minimum: a command that a caller got an answer to is held by at least as many copies as the group's
//! minimum, which is a majority of the servers. Members that lack the state do not count, nor does a second process of a
//! name. In memory, with the durability *held by all*.
//!
//! A copy that is lost while the command is under way may have held it, and counts. So does a member that wants to leave,
//! until it has left: it holds what the others wait for.

use super::{Map, Namesakes, Property, Violation, broken, content};
use crate::properties::Facts;
use crate::record::{Kind, Life, Mode, OpOutcome, Record, ReplicaRecord, Service, What};
use std::collections::BTreeSet;

/// The checker of `copies_meet_minimum`.
#[derive(Debug, Default)]
pub(super) struct CopiesMeetMinimum {
    applies: bool,
    minimum: usize,
    namesakes: Namesakes,
    copies: Map<Service, BTreeSet<Life>>,
    /// The lives of each service's latest view, as far as resets and joins tell.
    present: Map<Service, BTreeSet<Life>>,
    /// Members that want to leave. They hold and serve what they have until their leave is over.
    leaving: BTreeSet<Life>,
    /// The copies that were lost, in order.
    lost: Vec<(Service, Life)>,
    gone: BTreeSet<Life>,
    /// Names of the operations.
    names: Vec<(Life, u64)>,
    /// How many copies had been lost when each command began.
    begun: Map<(Life, u64), usize>,
    /// The service that executed each command.
    executed: Map<(Life, u64), Service>,
    checked: u64,
}

impl CopiesMeetMinimum {
    fn add(&mut self, service: Service, life: Life) {
        if !self.gone.contains(&life) {
            self.copies.entry(service).or_default().insert(life);
            self.present.entry(service).or_default().insert(life);
        }
    }

    /// Returns the service of which this life is a copy.
    fn service_of(&self, life: Life) -> Option<Service> {
        self.copies.iter().find(|(_, copies)| copies.contains(&life)).map(|(service, _)| *service)
    }

    /// A life asks to leave, or has no part in its group any more.
    fn out(&mut self, life: Life) {
        let is_present = self.service_of(life).is_some_and(|service| self.present[&service].contains(&life));
        if !is_present || !self.leaving.insert(life) {
            self.lose(life);
        }
    }

    /// A reset has installed a view.
    fn install(&mut self, life: Life, members: &[Life]) {
        let Some(service) = self.service_of(life) else { return };
        self.present.insert(service, members.iter().copied().collect());
        let leaving = self.leaving.intersection(&self.copies[&service]);
        let excluded: Vec<Life> = leaving.filter(|life| !members.contains(life)).copied().collect();
        excluded.into_iter().for_each(|life| self.lose(life));
    }

    fn lose(&mut self, life: Life) {
        self.gone.insert(life);
        for (service, copies) in &mut self.copies {
            if copies.remove(&life) {
                self.lost.push((*service, life));
            }
        }
    }

    fn answer(&mut self, record: &Record, service: Service, name: (Life, u64)) -> Result<(), Violation> {
        let Some(begun) = self.begun.get(&name).copied().filter(|_| self.applies) else { return Ok(()) };
        self.checked += 1;
        let lost = self.lost[begun..].iter().filter(|(of, _)| *of == service).map(|(_, life)| life);
        let copies = self.namesakes.count(self.copies.get(&service).into_iter().flatten().chain(lost));
        if copies < self.minimum {
            let minimum = self.minimum;
            return broken(self, record, || {
                format!("{copies} copies have {name:?}, and the minimum is {minimum}")
            });
        }
        Ok(())
    }
}

impl Property for CopiesMeetMinimum {
    fn name(&self) -> &'static str {
        "copies_meet_minimum"
    }

    fn interests(&self) -> u64 {
        Kind::Replica.bit() | Kind::Crashed.bit() | Kind::Started.bit()
    }

    fn observe(&mut self, record: &Record, _: &Facts) -> Result<(), Violation> {
        self.namesakes.note(record);
        if record.what == What::Crashed {
            self.lose(record.life);
        }
        match content(record) {
            Some(ReplicaRecord::Terms { held_by_all, by_majority, servers, disks }) => {
                self.applies = *held_by_all && !by_majority && disks.is_none();
                self.minimum = servers / 2 + 1;
            }
            Some(ReplicaRecord::Begun { name, mode, .. }) => {
                self.names.push(*name);
                if *mode == Mode::Command {
                    self.begun.insert(*name, self.lost.len());
                }
            }
            Some(ReplicaRecord::Founded { service, members }) => {
                members.iter().for_each(|life| self.add(*service, *life));
            }
            Some(ReplicaRecord::Informed(at)) => self.add(at.service, record.life),
            Some(ReplicaRecord::Out) => self.out(record.life),
            Some(ReplicaRecord::EndedAtOnce | ReplicaRecord::Stopped { .. }) => self.lose(record.life),
            Some(ReplicaRecord::WentOn { members, .. }) => self.install(record.life, members),
            Some(ReplicaRecord::Applied { at, name, .. }) => _ = self.executed.insert(*name, at.service),
            Some(ReplicaRecord::Answered { service, name, confirmed: true }) => {
                return self.answer(record, *service, *name);
            }
            // Commands of the servers' own processes have no other answer.
            Some(ReplicaRecord::Ended { id, outcome: OpOutcome::Replied(_) }) => {
                let name = self.names.get(id.index()).copied();
                if let Some((name, service)) = name.and_then(|name| Some((name, *self.executed.get(&name)?)))
                {
                    return self.answer(record, service, name);
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
    use super::super::fixture::{A, B, C, Fixture, SERVICE};
    use super::*;
    use crate::replica::Op;
    use unisono_core::Name;

    /// The next lives of the servers of B and C.
    const D: Life = Life(5);

    #[test]
    fn accepts_a_majority_of_copies() {
        let mut fixture = Fixture::three_copies();
        fixture.append(1);
        fixture.crash(C);
        fixture.append(2);
        fixture.good(CopiesMeetMinimum::default());
    }

    #[test]
    fn accepts_copies_that_are_lost_while_the_command_is_under_way() {
        let mut fixture = Fixture::three_copies();
        fixture.crash(C);
        let id = fixture.begin(Mode::Command, Op::Append(1));
        fixture.crash(B);
        fixture.apply(id);
        fixture.good(CopiesMeetMinimum::default());
    }

    #[test]
    fn rejects_an_answer_of_the_last_copy_beside_newcomers() {
        let mut fixture = Fixture::three_copies();
        fixture.crash(B);
        fixture.crash(C);
        fixture.record(A, ReplicaRecord::Joined { service: SERVICE, life: D });
        fixture.append(1);
        fixture.bad(CopiesMeetMinimum::default());
    }

    #[test]
    fn a_second_process_of_a_name_is_no_second_copy() {
        for second in ["a", "b"] {
            let mut fixture = Fixture::three_copies();
            for (life, name) in [(A, "a"), (B, "b"), (C, "c"), (D, second)] {
                fixture.note(life, What::Started { name: Name::new(name).unwrap() });
            }
            fixture.record(D, ReplicaRecord::Informed(fixture.place(A)));
            fixture.crash(B);
            fixture.crash(C);
            fixture.append(1);
            match second {
                "a" => fixture.bad(CopiesMeetMinimum::default()),
                _ => fixture.good(CopiesMeetMinimum::default()),
            }
        }
    }
}

//! What was answered is kept: as long as a majority of the servers kept copies all the time, no other service takes the
//! place of the first one, and at the end every copy has applied every command that a caller got an answer to. A copy that
//! outlived the majority of an earlier service is no copy of the one that was kept: it is halted, with an older state.
//! Nor does it hold if two processes of one name run: cut off from each other, both may vote in the founding of a service.
//!
//! With the durability *ordered*, that holds if no copy was lost at all.

use super::{Map, Namesakes, Property, Violation, broken, content};
use crate::properties::{Facts, final_result};
use crate::record::{End, Kind, Life, OpOutcome, Place, Record, ReplicaRecord, Service, What};
use std::collections::BTreeSet;

/// A service.
#[derive(Debug, Default)]
struct Kept {
    copies: BTreeSet<Life>,
    /// True once a majority of the servers had copies.
    is_complete: bool,
    /// True if a majority had none later.
    may_be_lost: bool,
    /// Highest position of a command that a caller got an answer to.
    answered: u64,
    /// The commands with an answer, by position.
    commands: Map<u64, (Life, u64)>,
}

/// The checker of `answered_kept`.
#[derive(Debug, Default)]
pub(super) struct AnsweredKept {
    held_by_all: bool,
    on_disk: bool,
    servers: usize,
    namesakes: Namesakes,
    services: Map<Service, Kept>,
    names: Vec<(Life, u64)>,
    executed: Map<(Life, u64), (Service, u64)>,
    finals: Vec<(Life, Option<Place>)>,
    checked: u64,
}

impl AnsweredKept {
    fn lose(&mut self, life: Life) {
        let (servers, held_by_all) = (self.servers, self.held_by_all);
        if self.on_disk {
            // No disk is lost, so nothing that was answered may be.
            return;
        }
        for kept in self.services.values_mut() {
            if kept.copies.remove(&life) {
                let copies = self.namesakes.count(kept.copies.iter());
                kept.may_be_lost |= kept.is_complete && 2 * copies <= servers || !held_by_all;
            }
        }
    }

    fn found(&mut self, service: Service, founders: &[Life]) {
        let mut is_split = false;
        for (_, kept) in self.services.iter_mut().filter(|(other, _)| **other != service) {
            if self.namesakes.are_doubled(kept.copies.iter(), founders) {
                (kept.may_be_lost, is_split) = (true, true);
            }
        }
        self.services.entry(service).or_default().may_be_lost |= is_split;
    }

    fn inform(&mut self, record: &Record, service: Service) -> Result<(), Violation> {
        let other = self.services.iter().find(|(other, kept)| {
            **other != service && kept.is_complete && kept.answered > 0 && !kept.may_be_lost
        });
        if let Some((other, _)) = other {
            let other = *other;
            return broken(self, record, || format!("a majority of the servers has kept {other:?}"));
        }
        let servers = self.servers;
        let kept = self.services.entry(service).or_default();
        kept.copies.insert(record.life);
        kept.is_complete |= 2 * self.namesakes.count(kept.copies.iter()) > servers;
        Ok(())
    }
}

impl Property for AnsweredKept {
    fn name(&self) -> &'static str {
        "answered_kept"
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
            Some(ReplicaRecord::Terms { held_by_all, servers, disks, .. }) => {
                self.on_disk = disks.is_some();
                (self.held_by_all, self.servers) = (*held_by_all, *servers);
            }
            Some(ReplicaRecord::Begun { name, .. }) => self.names.push(*name),
            Some(ReplicaRecord::Ended { id, outcome: OpOutcome::Replied(_) }) => {
                let executed = self.names.get(id.index()).and_then(|name| self.executed.get(name));
                if let Some((service, position)) = executed {
                    let kept = self.services.entry(*service).or_default();
                    kept.answered = kept.answered.max(*position);
                    kept.commands.insert(*position, self.names[id.index()]);
                }
            }
            Some(ReplicaRecord::Applied { at, name, .. }) => {
                self.executed.insert(*name, (at.service, at.position));
                let kept = self.services.get(&at.service).filter(|_| self.held_by_all);
                let answered = kept.and_then(|kept| kept.commands.get(&at.position)).copied();
                if let Some(answered) = answered.filter(|answered| answered != name) {
                    return broken(self, record, || format!("{answered:?} had this position, and an answer"));
                }
            }
            // Whatever the disk lacks with which it begins anew is lost.
            Some(ReplicaRecord::BeginsAnew) => {
                self.services.values_mut().for_each(|kept| kept.may_be_lost = true);
            }
            Some(ReplicaRecord::Founded { service, members }) => self.found(*service, members),
            Some(ReplicaRecord::Informed(at)) => return self.inform(record, at.service),
            Some(ReplicaRecord::Out | ReplicaRecord::Stopped { .. }) => self.lose(record.life),
            Some(ReplicaRecord::Final { at }) => self.finals.push((record.life, *at)),
            _ => {}
        }
        Ok(())
    }

    fn finish(&mut self, end: &End, _: &Facts) -> Result<(), Violation> {
        let kept =
            self.services.iter().find(|(_, kept)| kept.is_complete && kept.answered > 0 && !kept.may_be_lost);
        let Some((service, kept)) = kept else { return Ok(()) };
        self.checked += 1;
        let copies = self.finals.iter().filter_map(|(life, at)| at.map(|at| (life, at)));
        // A copy that outlived the majority of an earlier service halts with the state of that service.
        let is_lost = |at: &Place| self.services.get(&at.service).is_some_and(|kept| kept.may_be_lost);
        let fault = copies.clone().find(|(_, at)| match at.service == *service {
            true => at.position < kept.answered,
            false => !is_lost(at),
        });
        let fault = fault.map(|(life, at)| {
            format!("{life:?} is at {at:?}, and position {} of {service:?} was answered", kept.answered)
        });
        final_result(self, end, fault)
    }

    fn checked(&self) -> u64 {
        self.checked
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{A, B, C, CLIENT, Fixture, OTHER_SERVICE};
    use super::*;
    use crate::record::Mode;
    use crate::replica::{Op, Reply};
    use unisono_core::Name;

    /// The next lives of the servers of A and B.
    const D: Life = Life(4);
    const E: Life = Life(5);

    fn used() -> Fixture {
        let mut fixture = Fixture::three_copies();
        (0..5).for_each(|word| fixture.append(word));
        fixture
    }

    #[test]
    fn accepts_copies_that_have_everything() {
        let mut fixture = used();
        fixture.crash(C);
        fixture.finals();
        fixture.good(AnsweredKept::default());
    }

    #[test]
    fn accepts_another_service_once_a_majority_is_lost() {
        let mut fixture = used();
        fixture.crash(A);
        fixture.crash(B);
        let place = Place { service: OTHER_SERVICE, position: 0, ..fixture.place(A) };
        fixture.record(A, ReplicaRecord::Informed(place));
        fixture.record(A, ReplicaRecord::Final { at: Some(place) });
        fixture.good(AnsweredKept::default());
    }

    #[test]
    fn accepts_a_copy_that_outlived_the_majority_of_an_earlier_service() {
        let mut fixture = used();
        let earlier = fixture.place(C);
        fixture.crash(A);
        fixture.crash(B);
        let place = Place { service: OTHER_SERVICE, position: 0, ..earlier };
        for life in [D, E] {
            fixture.record(life, ReplicaRecord::Informed(place));
        }
        let id = fixture.begin(Mode::Command, Op::Append(9));
        let reply = Reply(0, 0);
        let at = Place { position: 1, ..place };
        let name = (CLIENT, u64::from(id.0));
        fixture.record(D, ReplicaRecord::Applied { at, name, op: Op::Append(9), reply });
        fixture.end(id, OpOutcome::Replied(reply));
        fixture.record(C, ReplicaRecord::Final { at: Some(earlier) });
        fixture.record(D, ReplicaRecord::Final { at: Some(at) });
        fixture.good(AnsweredKept::default());
    }

    #[test]
    fn rejects_another_service_while_a_majority_lives() {
        let mut fixture = used();
        fixture.crash(A);
        let place = Place { service: OTHER_SERVICE, position: 0, ..fixture.place(A) };
        fixture.record(A, ReplicaRecord::Informed(place));
        fixture.bad(AnsweredKept::default());
    }

    #[test]
    fn accepts_another_service_of_a_second_process_of_a_name_only() {
        for (name, is_accepted) in [("a", true), ("d", false)] {
            let mut fixture = used();
            for (life, name) in [(A, "a"), (B, "b"), (C, "c"), (D, name)] {
                fixture.note(life, What::Started { name: Name::new(name).unwrap() });
            }
            fixture.crash(C);
            let place = Place { service: OTHER_SERVICE, position: 0, ..fixture.place(A) };
            fixture.record(D, ReplicaRecord::Founded { service: OTHER_SERVICE, members: vec![D, E] });
            fixture.record(D, ReplicaRecord::Informed(place));
            match is_accepted {
                true => fixture.good(AnsweredKept::default()),
                false => fixture.bad(AnsweredKept::default()),
            }
        }
    }

    #[test]
    fn rejects_another_command_at_the_position_of_an_answered_one() {
        let mut fixture = used();
        let at = fixture.place(A);
        let (op, reply) = (Op::Append(9), Reply(0, 0));
        fixture.record(A, ReplicaRecord::Applied { at, name: (CLIENT, 99), op, reply });
        fixture.bad(AnsweredKept::default());
    }

    #[test]
    fn rejects_a_copy_that_lacks_an_answered_command() {
        let mut fixture = used();
        let place = fixture.place(A);
        fixture.record(A, ReplicaRecord::Final { at: Some(Place { position: place.position - 1, ..place }) });
        fixture.bad(AnsweredKept::default());
    }
}

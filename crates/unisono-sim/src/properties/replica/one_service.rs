//! One service: of two services of one name, never both answer callers. Once callers got answers of the later one, they
//! get none of the earlier to operations that begin from then on. The earlier one may still answer operations that began
//! before: they take effect before the later one begins, as their callers see it. Local reads do not count: they promise
//! nothing about the present.
//!
//! Servers in memory that restart know nothing of the service in which they were. If a majority of the servers lost their
//! copies, they may found another service, and the first one may come back later. Then a server has to change over: the
//! earlier service answers again only after a life has joined it since the later one answered first.
//!
//! If two processes of one name run and are cut off from each other, both may vote in the founding of a service. Then
//! nothing is promised.
//!
//! With the durability *ordered* the sequencer answers alone. If it stood still while the later service began, it answers for
//! the earlier one until it notices that the others are gone.

use super::{Map, Namesakes, Property, Violation, broken, content};
use crate::properties::Facts;
use crate::record::{Kind, Life, Record, ReplicaRecord, Service, What};
use std::collections::BTreeSet;
use std::time::Duration;
use unisono_core::Time;

/// Time in which a server that stood still notices that the others are gone: the longest patience of the profile, and the
/// reset that follows.
const NOTICES_WITHIN: Duration = Duration::from_secs(2);

/// What is known of a service.
#[derive(Debug, Default)]
struct Known {
    copies: BTreeSet<Life>,
    /// A majority of the servers had copies, and has none any more.
    was_complete: bool,
    has_lost_majority: bool,
    /// Number of changes of the answering service when a life joined last.
    joined: usize,
}

/// The checker of `one_service`.
#[derive(Debug, Default)]
pub(super) struct OneService {
    on_disk: bool,
    held_by_all: bool,
    servers: usize,
    namesakes: Namesakes,
    /// When each life went on last after it stood still.
    awake_since: Map<Life, Time>,
    services: Map<Service, Known>,
    /// A service was founded by a second process of the name of another one's copy.
    is_split: bool,
    /// The services that answered, one after the other.
    answered: Vec<Service>,
    /// How many had answered when each operation began.
    begun: Map<(Life, u64), usize>,
    checked: u64,
}

impl OneService {
    fn inform(&mut self, service: Service, life: Life) {
        let known = self.services.entry(service).or_default();
        known.copies.insert(life);
        known.was_complete |= 2 * self.namesakes.count(known.copies.iter()) > self.servers;
    }

    fn lose(&mut self, life: Life) {
        for known in self.services.values_mut() {
            known.copies.remove(&life);
            let copies = self.namesakes.count(known.copies.iter());
            known.has_lost_majority |= known.was_complete && 2 * copies <= self.servers;
        }
    }

    fn answer(&mut self, record: &Record, service: Service, name: (Life, u64)) -> Result<(), Violation> {
        self.checked += 1;
        let begun = self.begun.get(&name).copied().unwrap_or(usize::MAX);
        match self.answered.iter().rposition(|known| *known == service) {
            // It is the last one, or the operation began before the next one answered.
            Some(index) if index + 1 == self.answered.len() || begun <= index + 1 => return Ok(()),
            _ if self.has_stood_still(record) || self.is_split => {}
            Some(_) if !self.may_come_back(service) => {
                return broken(self, record, || format!("{:?} has answered since", self.answered.last()));
            }
            _ => self.answered.push(service),
        }
        Ok(())
    }

    /// True if a server that answers alone has gone on just now.
    fn has_stood_still(&self, record: &Record) -> bool {
        let since = self.awake_since.get(&record.life).copied();
        !self.held_by_all && since.is_some_and(|since| record.at.since(since) < NOTICES_WITHIN)
    }

    fn may_come_back(&self, service: Service) -> bool {
        let came = |known: &Known| known.has_lost_majority && known.joined == self.answered.len();
        !self.on_disk && self.services.get(&service).is_some_and(came)
    }
}

impl Property for OneService {
    fn name(&self) -> &'static str {
        "one_service"
    }

    fn interests(&self) -> u64 {
        Kind::Replica.bit() | Kind::Crashed.bit() | Kind::Started.bit() | Kind::Resumed.bit()
    }

    fn observe(&mut self, record: &Record, _: &Facts) -> Result<(), Violation> {
        self.namesakes.note(record);
        match record.what {
            What::Crashed => self.lose(record.life),
            What::Resumed => _ = self.awake_since.insert(record.life, record.at),
            _ => {}
        }
        match content(record) {
            Some(ReplicaRecord::Terms { held_by_all, servers, disks, .. }) => {
                (self.held_by_all, self.servers, self.on_disk) = (*held_by_all, *servers, disks.is_some());
            }
            Some(ReplicaRecord::Begun { name, .. }) => {
                self.begun.insert(*name, self.answered.len());
            }
            Some(ReplicaRecord::Joined { service, .. }) => {
                self.services.entry(*service).or_default().joined = self.answered.len();
            }
            Some(ReplicaRecord::Founded { service, members }) => {
                let mut others = self.services.iter().filter(|(other, _)| *other != service);
                self.is_split |=
                    others.any(|(_, known)| self.namesakes.are_doubled(known.copies.iter(), members));
            }
            Some(ReplicaRecord::Informed(at)) => self.inform(at.service, record.life),
            Some(ReplicaRecord::Out | ReplicaRecord::Stopped { .. }) => self.lose(record.life),
            Some(
                ReplicaRecord::Answered { service, name, confirmed: true }
                | ReplicaRecord::Looked { service, name },
            ) => {
                return self.answer(record, *service, *name);
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
    use super::super::fixture::{A, B, C, CLIENT, Fixture, OTHER_SERVICE, SERVICE};
    use super::*;
    use crate::record::{Mode, Place};
    use crate::replica::Op;
    use unisono_core::Name;

    /// The next life of B's server.
    const D: Life = Life(5);

    fn answer(fixture: &mut Fixture, service: Service, name: u64, confirmed: bool) {
        let life = if service == SERVICE { A } else { B };
        fixture.record(life, ReplicaRecord::Answered { service, name: (CLIENT, name), confirmed });
    }

    /// Records answers to operations that begin just before.
    fn answers(fixture: &mut Fixture, services: &[(Service, bool)]) {
        for (service, confirmed) in services {
            let id = fixture.begin(Mode::Command, Op::Append(1));
            answer(fixture, *service, u64::from(id.0), *confirmed);
        }
    }

    #[test]
    fn accepts_a_service_that_follows_another() {
        let mut fixture = Fixture::three_copies();
        answers(&mut fixture, &[(SERVICE, true), (SERVICE, true), (OTHER_SERVICE, true), (SERVICE, false)]);
        fixture.good(OneService::default());
    }

    #[test]
    fn an_earlier_service_answers_only_what_began_before_the_later_one_answered() {
        for begins_before in [true, false] {
            let mut fixture = Fixture::three_copies();
            answers(&mut fixture, &[(SERVICE, true)]);
            let mut id = fixture.begin(Mode::Command, Op::Append(1));
            answers(&mut fixture, &[(OTHER_SERVICE, true)]);
            if !begins_before {
                id = fixture.begin(Mode::Command, Op::Append(1));
            }
            answer(&mut fixture, SERVICE, u64::from(id.0), true);
            match begins_before {
                true => fixture.good(OneService::default()),
                false => fixture.bad(OneService::default()),
            }
        }
    }

    #[test]
    fn a_service_comes_back_only_if_it_lost_its_majority_and_a_life_joined_it_since() {
        for (loses, joins) in [(true, true), (true, false), (false, true)] {
            let mut fixture = Fixture::three_copies();
            answers(&mut fixture, &[(SERVICE, true)]);
            fixture.crash(C);
            if loses {
                fixture.crash(B);
            }
            let place = Place { service: OTHER_SERVICE, position: 0, ..fixture.place(A) };
            fixture.record(D, ReplicaRecord::Informed(place));
            answers(&mut fixture, &[(OTHER_SERVICE, true)]);
            if joins {
                fixture.record(A, ReplicaRecord::Joined { service: SERVICE, life: D });
            }
            answers(&mut fixture, &[(SERVICE, true)]);
            match loses && joins {
                true => fixture.good(OneService::default()),
                false => fixture.bad(OneService::default()),
            }
        }
    }

    #[test]
    fn a_server_that_stood_still_answers_with_the_durability_ordered_until_it_notices() {
        for (held_by_all, stood_still, waits) in
            [(false, true, 1), (true, true, 1), (false, false, 1), (false, true, 3)]
        {
            let mut fixture = Fixture::three_copies();
            fixture.record(
                Life::WORLD,
                ReplicaRecord::Terms { held_by_all, by_majority: false, servers: 3, disks: None },
            );
            answers(&mut fixture, &[(SERVICE, true), (OTHER_SERVICE, true)]);
            if stood_still {
                fixture.note(A, What::Resumed);
            }
            fixture.wait(waits * Duration::from_secs(1));
            answers(&mut fixture, &[(SERVICE, true), (OTHER_SERVICE, true)]);
            match (held_by_all, stood_still, waits) {
                (false, true, 1) => fixture.good(OneService::default()),
                _ => fixture.bad(OneService::default()),
            }
        }
    }

    #[test]
    fn two_processes_of_a_name_may_found_two_services() {
        for (name, is_accepted) in [("a", true), ("d", false)] {
            let mut fixture = Fixture::three_copies();
            for (life, name) in [(A, "a"), (D, name)] {
                fixture.note(life, What::Started { name: Name::new(name).unwrap() });
            }
            fixture.record(D, ReplicaRecord::Founded { service: OTHER_SERVICE, members: vec![D] });
            answers(&mut fixture, &[(SERVICE, true), (OTHER_SERVICE, true), (SERVICE, true)]);
            match is_accepted {
                true => fixture.good(OneService::default()),
                false => fixture.bad(OneService::default()),
            }
        }
    }

    #[test]
    fn rejects_services_that_answer_in_turn() {
        let mut fixture = Fixture::three_copies();
        answers(&mut fixture, &[(SERVICE, true), (OTHER_SERVICE, true), (SERVICE, true)]);
        fixture.bad(OneService::default());
    }
}

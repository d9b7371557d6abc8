//! One service: of two services of one name, never both answer callers. Once callers got answers of the later one, they
//! get none of the earlier to operations that begin from then on. An answer to an earlier operation may have been on its way,
//! or in a copy that was paused. Local reads do not count: they promise nothing about the present.

use super::{Map, Property, Violation, broken, content};
use crate::properties::Facts;
use crate::record::{Kind, Life, Record, ReplicaRecord, Service};

/// The checker of `one_service`.
#[derive(Debug, Default)]
pub(super) struct OneService {
    /// The services that answered, in the order of their first answers.
    answered: Vec<Service>,
    /// How many services had answered when each operation began.
    begun: Map<(Life, u64), usize>,
    checked: u64,
}

impl Property for OneService {
    fn name(&self) -> &'static str {
        "one_service"
    }

    fn interests(&self) -> u64 {
        Kind::Replica.bit()
    }

    fn observe(&mut self, record: &Record, _: &Facts) -> Result<(), Violation> {
        let (service, name) = match content(record) {
            Some(ReplicaRecord::Begun { name, .. }) => {
                self.begun.insert(*name, self.answered.len());
                return Ok(());
            }
            Some(ReplicaRecord::Answered { service, name, confirmed: true }) => (service, name),
            _ => return Ok(()),
        };
        self.checked += 1;
        if self.answered.last() == Some(service) {
            return Ok(());
        }
        if let Some(index) = self.answered.iter().position(|known| known == service) {
            if self.begun.get(name).is_some_and(|services| *services <= index + 1) {
                return Ok(());
            }
            return broken(self, record, || format!("{:?} has answered since", self.answered.last()));
        }
        self.answered.push(*service);
        Ok(())
    }

    fn checked(&self) -> u64 {
        self.checked
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{A, B, CLIENT, Fixture, OTHER_SERVICE, SERVICE};
    use super::*;
    use crate::record::Mode;
    use crate::replica::Op;

    fn answers(services: &[(Service, bool)]) -> Fixture {
        let mut fixture = Fixture::three_copies();
        for (service, confirmed) in services {
            let life = if *service == SERVICE { A } else { B };
            let answered =
                ReplicaRecord::Answered { service: *service, name: (CLIENT, 1), confirmed: *confirmed };
            fixture.record(life, answered);
        }
        fixture
    }

    #[test]
    fn accepts_a_service_that_follows_another() {
        answers(&[(SERVICE, true), (SERVICE, true), (OTHER_SERVICE, true), (SERVICE, false)])
            .good(OneService::default());
    }

    #[test]
    fn an_earlier_service_answers_only_what_began_before_the_later_one_answered() {
        for begins_before in [true, false] {
            let mut fixture = answers(&[(SERVICE, true)]);
            let other =
                ReplicaRecord::Answered { service: OTHER_SERVICE, name: (CLIENT, 9), confirmed: true };
            let begin = |fixture: &mut Fixture| fixture.begin(Mode::Command, Op::Append(1));
            if begins_before {
                begin(&mut fixture);
            }
            fixture.record(B, other);
            if !begins_before {
                begin(&mut fixture);
            }
            let answered = ReplicaRecord::Answered { service: SERVICE, name: (CLIENT, 0), confirmed: true };
            fixture.record(A, answered);
            match begins_before {
                true => fixture.good(OneService::default()),
                false => fixture.bad(OneService::default()),
            }
        }
    }

    #[test]
    fn rejects_services_that_answer_in_turn() {
        answers(&[(SERVICE, true), (OTHER_SERVICE, true), (SERVICE, true)]).bad(OneService::default());
    }
}

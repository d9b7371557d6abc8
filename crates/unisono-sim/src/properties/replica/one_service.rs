//! One service: of two services of one name, never both answer callers. Once callers got answers of the later one, they
//! get none of the earlier. Local reads do not count: they promise nothing about the present.

use super::{Property, Violation, broken, content};
use crate::properties::Facts;
use crate::record::{Kind, Record, ReplicaRecord, Service};

/// The checker of `one_service`.
#[derive(Debug, Default)]
pub(super) struct OneService {
    /// The services that answered, in the order of their first answers.
    answered: Vec<Service>,
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
        let Some(ReplicaRecord::Answered { service, confirmed: true, .. }) = content(record) else {
            return Ok(());
        };
        self.checked += 1;
        if self.answered.last() == Some(service) {
            return Ok(());
        }
        if self.answered.contains(service) {
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
    fn rejects_services_that_answer_in_turn() {
        answers(&[(SERVICE, true), (OTHER_SERVICE, true), (SERVICE, true)]).bad(OneService::default());
    }
}

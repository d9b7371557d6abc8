//! The state goes on: a reset of a group that keeps its state in memory goes on with a member that has it, unless an
//! operator forces it. A member that joined has the state from when it has fetched it, a founder from the beginning.

use super::{Property, Violation, broken, content};
use crate::properties::Facts;
use crate::record::{Kind, Life, Record, ReplicaRecord};
use std::collections::BTreeSet;

/// The checker of `state_goes_on`.
#[derive(Debug, Default)]
pub(super) struct StateGoesOn {
    on_disk: bool,
    /// Lives that joined, and those that had the state at some time.
    joined: BTreeSet<Life>,
    informed: BTreeSet<Life>,
    checked: u64,
}

impl Property for StateGoesOn {
    fn name(&self) -> &'static str {
        "state_goes_on"
    }

    fn interests(&self) -> u64 {
        Kind::Replica.bit()
    }

    fn observe(&mut self, record: &Record, _: &Facts) -> Result<(), Violation> {
        match content(record) {
            Some(ReplicaRecord::Terms { disks, .. }) => self.on_disk = disks.is_some(),
            Some(ReplicaRecord::Joined { life, .. }) => _ = self.joined.insert(*life),
            Some(ReplicaRecord::Informed(_)) => _ = self.informed.insert(record.life),
            Some(ReplicaRecord::WentOn { members, forced: false }) if !self.on_disk => {
                self.checked += 1;
                let lacks_it = |life: &Life| self.joined.contains(life) && !self.informed.contains(life);
                if members.iter().all(lacks_it) {
                    return broken(self, record, || format!("none of {members:?} has the state"));
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
    use super::super::fixture::{A, Fixture, SERVICE};
    use super::*;

    const D: Life = Life(4);
    const E: Life = Life(5);

    fn two_newcomers() -> Fixture {
        let mut fixture = Fixture::three_copies();
        for life in [D, E] {
            fixture.record(A, ReplicaRecord::Joined { service: SERVICE, life });
        }
        fixture
    }

    fn goes_on_with(fixture: &mut Fixture, members: &[Life], forced: bool) {
        fixture.record(D, ReplicaRecord::WentOn { members: members.to_vec(), forced });
    }

    #[test]
    fn accepts_a_view_with_a_founder_or_with_a_newcomer_that_has_the_state() {
        let mut fixture = two_newcomers();
        goes_on_with(&mut fixture, &[A, D], false);
        fixture.record(E, ReplicaRecord::Informed(fixture.place(A)));
        goes_on_with(&mut fixture, &[D, E], false);
        fixture.good(StateGoesOn::default());
    }

    #[test]
    fn accepts_newcomers_alone_only_if_an_operator_forces_it() {
        for forced in [true, false] {
            let mut fixture = two_newcomers();
            goes_on_with(&mut fixture, &[D, E], forced);
            match forced {
                true => fixture.good(StateGoesOn::default()),
                false => fixture.bad(StateGoesOn::default()),
            }
        }
    }
}

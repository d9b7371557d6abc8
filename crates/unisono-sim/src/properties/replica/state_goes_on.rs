//! The state goes on: a reset of a group that keeps its state in memory goes on with a member that has it, unless an
//! operator forces it. A member that joined has the state from when it has fetched it, a founder from the beginning. The state ends
//! with the last member that has it, if that leaves: a joiner of which this member did not know yet is alone then.

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
    /// Members of the latest view that have the state, and did not leave.
    holders: BTreeSet<Life>,
    /// The members that the group last went on with, and those that have said so.
    view: Vec<Life>,
    said_by: BTreeSet<Life>,
    checked: u64,
}

impl StateGoesOn {
    /// True if the last member that had the state left by itself.
    fn has_ended(&self) -> bool {
        !self.informed.is_empty() && self.holders.is_empty()
    }

    /// Notes that the group went on with these. Each member says so once of each reset.
    fn install(&mut self, said_by: Life, members: &[Life]) {
        if self.view != members || self.said_by.contains(&said_by) {
            (self.view, self.said_by) = (members.to_vec(), BTreeSet::new());
            self.holders.retain(|life| members.contains(life));
        }
        self.said_by.insert(said_by);
    }
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
            Some(ReplicaRecord::Left { life }) => _ = self.holders.remove(life),
            Some(ReplicaRecord::Informed(_)) => {
                self.informed.insert(record.life);
                self.holders.insert(record.life);
            }
            Some(ReplicaRecord::WentOn { members, forced }) if !self.on_disk => {
                self.checked += u64::from(!forced);
                let lacks_it = |life: &Life| self.joined.contains(life) && !self.informed.contains(life);
                if !forced && members.iter().all(lacks_it) && !self.has_ended() {
                    return broken(self, record, || format!("none of {members:?} has the state"));
                }
                self.install(record.life, members);
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
    fn accepts_newcomers_alone_after_the_last_member_with_the_state_left() {
        for leavers in [vec![A, B, C], vec![C, A], vec![]] {
            let mut fixture = two_newcomers();
            goes_on_with(&mut fixture, &[A, B, D], false);
            for life in leavers.iter().copied() {
                fixture.record(life, ReplicaRecord::Left { life });
            }
            goes_on_with(&mut fixture, &[D], false);
            match leavers.contains(&A) && leavers.contains(&B) {
                true => fixture.good(StateGoesOn::default()),
                false => fixture.bad(StateGoesOn::default()),
            }
        }
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

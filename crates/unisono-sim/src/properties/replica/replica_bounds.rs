//! Bounds of replicas: what a copy remembers of clients and commands, the bytes of replies that it keeps, the bytes of
//! commands that wait for their outcomes and of events that a newcomer keeps, the outputs that wait for its driver, and the
//! places of a full queue that one address has, have their named maxima.

use super::{Property, Violation, broken, content};
use crate::properties::Facts;
use crate::record::{Kind, Record, ReplicaRecord};

/// The checker of `replica_bounds`.
#[derive(Debug, Default)]
pub(super) struct ReplicaBounds {
    checked: u64,
}

impl Property for ReplicaBounds {
    fn name(&self) -> &'static str {
        "replica_bounds"
    }

    fn interests(&self) -> u64 {
        Kind::Replica.bit()
    }

    fn observe(&mut self, record: &Record, _: &Facts) -> Result<(), Violation> {
        if let Some(ReplicaRecord::Amount { used, max, .. }) = content(record) {
            self.checked += 1;
            if used > max {
                return broken(self, record, || "more than its maximum".into());
            }
        }
        Ok(())
    }

    fn checked(&self) -> u64 {
        self.checked
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{A, Fixture};
    use super::*;

    #[test]
    fn more_than_the_maximum_is_rejected() {
        for (used, is_good) in [(7, true), (8, false)] {
            let mut fixture = Fixture::three_copies();
            fixture.record(A, ReplicaRecord::Amount { what: "clients", used, max: 7 });
            match is_good {
                true => fixture.good(ReplicaBounds::default()),
                false => fixture.bad(ReplicaBounds::default()),
            }
        }
    }
}

//! Waits are bounded: no command is executed whose client may wait for the outcome for longer than the service remembers
//! outcomes. So no client lets the service remember its commands for longer than the service has chosen.

use super::{Property, Violation, broken, content};
use crate::properties::Facts;
use crate::record::{Kind, Life, Record, ReplicaRecord};
use std::collections::BTreeSet;

/// The checker of `waits_bounded`.
#[derive(Debug, Default)]
pub(super) struct WaitsBounded {
    too_long: BTreeSet<(Life, u64)>,
}

impl Property for WaitsBounded {
    fn name(&self) -> &'static str {
        "waits_bounded"
    }

    fn interests(&self) -> u64 {
        Kind::Replica.bit()
    }

    fn observe(&mut self, record: &Record, _: &Facts) -> Result<(), Violation> {
        match content(record) {
            Some(ReplicaRecord::WaitsTooLong { name }) => _ = self.too_long.insert(*name),
            Some(ReplicaRecord::Applied { name, .. }) if self.too_long.contains(name) => {
                return broken(self, record, || "its client waits for too long".into());
            }
            _ => {}
        }
        Ok(())
    }

    fn checked(&self) -> u64 {
        self.too_long.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{CLIENT, Fixture};
    use super::*;
    use crate::record::{Mode, OpOutcome};
    use crate::replica::Op;

    #[test]
    fn rejects_a_command_that_waits_too_long_and_is_executed() {
        for is_executed in [false, true] {
            let mut fixture = Fixture::three_copies();
            fixture.append(1);
            let id = fixture.begin(Mode::Command, Op::Append(2));
            fixture.record(CLIENT, ReplicaRecord::WaitsTooLong { name: (CLIENT, u64::from(id.0)) });
            if is_executed {
                fixture.apply(id);
                fixture.bad(WaitsBounded::default());
            } else {
                fixture.end(id, OpOutcome::NotHappened);
                fixture.good(WaitsBounded::default());
            }
        }
    }
}

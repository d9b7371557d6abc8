//! An ended member is silent: after its program ended its life in the group, the member sends no datagram of the group. So
//! it acknowledges, votes and confirms nothing.

use super::{Property, Violation, broken, content};
use crate::properties::Facts;
use crate::record::{Kind, Record, ReplicaRecord};

/// The checker of `ended_is_silent`.
#[derive(Debug, Default)]
pub(super) struct EndedIsSilent {
    checked: u64,
}

impl Property for EndedIsSilent {
    fn name(&self) -> &'static str {
        "ended_is_silent"
    }

    fn interests(&self) -> u64 {
        Kind::Replica.bit()
    }

    fn observe(&mut self, record: &Record, _: &Facts) -> Result<(), Violation> {
        match content(record) {
            Some(ReplicaRecord::EndedAtOnce) => self.checked += 1,
            Some(ReplicaRecord::SentAfterEnd) => {
                return broken(self, record, || "it sent a datagram of its group".into());
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
    use super::super::fixture::{A, Fixture};
    use super::*;

    #[test]
    fn a_datagram_after_the_end_is_rejected() {
        let mut fixture = Fixture::three_copies();
        fixture.record(A, ReplicaRecord::EndedAtOnce);
        fixture.good(EndedIsSilent::default());
        fixture.record(A, ReplicaRecord::SentAfterEnd);
        fixture.bad(EndedIsSilent::default());
    }
}

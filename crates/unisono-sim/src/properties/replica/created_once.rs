//! Created once: all disks are of one service for ever, whatever crashes while it is created, unless an administrator lets
//! it begin anew.

use super::{Property, Violation, broken, content};
use crate::properties::Facts;
use crate::record::{Kind, Record, ReplicaRecord, Service};

/// The checker of `created_once`.
#[derive(Debug, Default)]
pub(super) struct CreatedOnce {
    services: Vec<Service>,
    /// How often an administrator let it begin anew.
    anew: usize,
    checked: u64,
}

impl Property for CreatedOnce {
    fn name(&self) -> &'static str {
        "created_once"
    }

    fn interests(&self) -> u64 {
        Kind::Replica.bit()
    }

    fn observe(&mut self, record: &Record, _: &Facts) -> Result<(), Violation> {
        match content(record) {
            Some(ReplicaRecord::BeginsAnew) => self.anew += 1,
            Some(ReplicaRecord::Disk(disk)) => {
                let Some(service) = disk.service else { return Ok(()) };
                self.checked += 1;
                if !self.services.contains(&service) {
                    self.services.push(service);
                }
                if self.services.len() > 1 + self.anew {
                    return broken(self, record, || format!("there are {:?}", self.services));
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
    use super::super::fixture::{Fixture, OTHER_SERVICE};
    use super::*;
    use crate::record::{DiskRecord, Life, OnDisk};

    fn two_services(anew: bool) -> Fixture {
        let mut fixture = Fixture::three_disks();
        fixture.on_disk(1, 1, OnDisk::Committed);
        if anew {
            fixture.record(Life::WORLD, ReplicaRecord::BeginsAnew);
        }
        let what = OnDisk::Committed;
        let other = DiskRecord { server: 2, service: Some(OTHER_SERVICE), generation: 1, what };
        fixture.record(Life::WORLD, ReplicaRecord::Disk(other));
        fixture
    }

    #[test]
    fn a_second_service_is_rejected_unless_an_administrator_wants_it() {
        two_services(true).good(CreatedOnce::default());
        two_services(false).bad(CreatedOnce::default());
    }
}

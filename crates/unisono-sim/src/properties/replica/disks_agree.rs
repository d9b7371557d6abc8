//! Disks agree: of two good disks of one generation, the log of one is the beginning of the other's. So whichever of them a
//! service goes on from, it has what the others have, or more.
//!
//! With the durability *one* this is not demanded: a server that was cut off writes what it held and what no caller has an
//! answer to, and such ends may differ.

use super::logs::{Generation, Logs};
use super::{Map, Property, Violation, broken, content};
use crate::properties::Facts;
use crate::record::{DiskRecord, Kind, Record, ReplicaRecord};
use unisono_core::replica::disk::DiskDurability;

/// The checker of `disks_agree`.
#[derive(Debug, Default)]
pub(super) struct DisksAgree {
    is_demanded: bool,
    logs: Logs,
    /// Hashes of the entries of each generation, by place.
    known: Map<Generation, Vec<Option<u64>>>,
    checked: u64,
}

impl DisksAgree {
    /// Returns the first place at which this disk differs from another one of its generation.
    fn differs_at(&mut self, record: &DiskRecord) -> Option<u64> {
        let news = self.logs.follow(record)?;
        let known = self.known.entry(news.generation).or_default();
        for (place, entry) in (news.first..).zip(news.entries) {
            if known.len() <= place as usize {
                known.resize(place as usize + 1, None);
            }
            self.checked += 1;
            if *known[place as usize].get_or_insert(entry.hash) != entry.hash {
                return Some(place);
            }
        }
        None
    }
}

impl Property for DisksAgree {
    fn name(&self) -> &'static str {
        "disks_agree"
    }

    fn interests(&self) -> u64 {
        Kind::Replica.bit()
    }

    fn observe(&mut self, record: &Record, _: &Facts) -> Result<(), Violation> {
        match content(record) {
            Some(ReplicaRecord::Terms { disks, .. }) => {
                self.is_demanded = *disks == Some(DiskDurability::Majority);
            }
            Some(ReplicaRecord::Disk(disk)) if self.is_demanded => {
                if let Some(place) = self.differs_at(disk) {
                    return broken(self, record, || format!("place {place} differs from another disk"));
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
    use super::super::fixture::Fixture;
    use super::*;
    use crate::record::OnDisk;

    #[test]
    fn accepts_logs_of_different_lengths_and_another_end_in_a_later_generation() {
        let mut fixture = Fixture::three_disks();
        fixture.on_disk(1, 1, OnDisk::Appended(1, Fixture::entries(&[5, 6, 7])));
        fixture.on_disk(2, 1, OnDisk::Appended(1, Fixture::entries(&[5])));
        fixture.on_disk(2, 2, OnDisk::Committed);
        fixture.on_disk(2, 2, OnDisk::Appended(2, Fixture::entries(&[8])));
        fixture.on_disk(1, 2, OnDisk::Adopted(0, Fixture::entries(&[5, 8])));
        fixture.on_disk(1, 2, OnDisk::Cut(1));
        fixture.on_disk(1, 2, OnDisk::Found(1, Fixture::entries(&[8])));
        fixture.good(DisksAgree::default());
    }

    #[test]
    fn rejects_logs_that_differ_in_one_generation() {
        let other = [
            OnDisk::Appended(1, Fixture::entries(&[5, 9])),
            OnDisk::Adopted(1, Fixture::entries(&[9])),
            OnDisk::Found(0, Fixture::entries(&[5, 9])),
        ];
        for other in other {
            let mut fixture = Fixture::three_disks();
            fixture.on_disk(1, 1, OnDisk::Appended(1, Fixture::entries(&[5, 6, 7])));
            fixture.on_disk(2, 1, other);
            fixture.bad(DisksAgree::default());
        }
    }

    #[test]
    fn rejects_a_disk_that_takes_a_generation_without_its_state() {
        let mut fixture = Fixture::three_disks();
        fixture.on_disk(1, 1, OnDisk::Appended(1, Fixture::entries(&[5, 6])));
        fixture.on_disk(2, 1, OnDisk::Appended(1, Fixture::entries(&[5])));
        fixture.on_disk(2, 2, OnDisk::Committed);
        fixture.on_disk(2, 2, OnDisk::Appended(2, Fixture::entries(&[8])));
        fixture.on_disk(1, 2, OnDisk::Committed);
        fixture.bad(DisksAgree::default());
    }
}

//! Only what is synced counts: a copy applies a command, and so answers it, only after the disks of a majority of the
//! servers have it in the present generation; with the durability *one*, after one disk has it.

use super::logs::{Generation, Logs};
use super::{Map, Property, Violation, broken, content};
use crate::properties::Facts;
use crate::record::{DiskRecord, Kind, Life, Place, Record, ReplicaRecord};
use unisono_core::replica::disk::DiskDurability;

/// The checker of `only_synced_counts`.
#[derive(Debug, Default)]
pub(super) struct OnlySyncedCounts {
    /// Number of disks that must have a command.
    needed: usize,
    logs: Logs,
    generations: Map<Generation, Synced>,
    checked: u64,
}

/// What disks have had in a generation.
#[derive(Debug, Default)]
struct Synced {
    /// Place through which enough disks have had the log.
    through: u64,
    /// Place of each command.
    places: Map<(Life, u64), u64>,
}

impl OnlySyncedCounts {
    fn follow(&mut self, record: &DiskRecord) {
        let Some(news) = self.logs.follow(record) else { return };
        let generation = news.generation;
        let synced = self.generations.entry(generation).or_default();
        for (place, entry) in (news.first..).zip(news.entries) {
            if let Some(command) = entry.command {
                synced.places.entry(command).or_insert(place);
            }
        }
        let mut ends: Vec<u64> = self.logs.ends_ever(generation).collect();
        ends.sort_unstable_by(|a, b| b.cmp(a));
        let through = ends.get(self.needed - 1).copied().unwrap_or(0);
        synced.through = through.max(synced.through);
    }

    fn is_synced(&self, at: &Place, name: &(Life, u64)) -> bool {
        let synced = self.generations.get(&(at.service, at.generation));
        synced.is_some_and(|synced| synced.places.get(name).is_some_and(|place| *place <= synced.through))
    }
}

impl Property for OnlySyncedCounts {
    fn name(&self) -> &'static str {
        "only_synced_counts"
    }

    fn interests(&self) -> u64 {
        Kind::Replica.bit()
    }

    fn observe(&mut self, record: &Record, _: &Facts) -> Result<(), Violation> {
        match content(record) {
            Some(ReplicaRecord::Terms { disks, servers, .. }) => {
                self.needed = match disks {
                    Some(DiskDurability::Majority) => servers / 2 + 1,
                    Some(DiskDurability::One) => 1,
                    None => 0,
                };
            }
            Some(ReplicaRecord::Disk(disk)) if self.needed > 0 => self.follow(disk),
            Some(ReplicaRecord::Applied { at, name, .. }) if self.needed > 0 => {
                self.checked += 1;
                if !self.is_synced(at, name) {
                    return broken(self, record, || {
                        format!("fewer than {} disks had it in generation {}", self.needed, at.generation)
                    });
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
    use super::super::fixture::{CLIENT, Fixture};
    use super::*;
    use crate::record::{LogEntry, Mode, OnDisk};
    use crate::replica::Op;

    /// Two disks have the entry; a copy applies it after these have it in this generation.
    fn applied(generations: &[u64]) -> Fixture {
        let mut fixture = Fixture::three_disks();
        let id = fixture.begin(Mode::Command, Op::Append(1));
        let entry = LogEntry { hash: 7, command: Some((CLIENT, u64::from(id.0))) };
        for (server, generation) in (1..).zip(generations) {
            fixture.on_disk(server, *generation, OnDisk::Appended(1, vec![entry]));
        }
        fixture.apply(id);
        fixture
    }

    #[test]
    fn a_command_is_applied_after_a_majority_of_disks_has_it() {
        applied(&[1, 1]).good(OnlySyncedCounts::default());
        applied(&[1]).bad(OnlySyncedCounts::default());
        applied(&[]).bad(OnlySyncedCounts::default());
    }

    #[test]
    fn a_disk_of_an_older_generation_does_not_count() {
        applied(&[1, 0]).bad(OnlySyncedCounts::default());
    }

    #[test]
    fn what_was_synced_counts_although_the_disks_go_on_to_another_generation() {
        // A server that was held up applies the command only now.
        let after = |synced: &[u8]| {
            let mut fixture = Fixture::three_disks();
            let id = fixture.begin(Mode::Command, Op::Append(1));
            let entry = LogEntry { hash: 7, command: Some((CLIENT, u64::from(id.0))) };
            for server in synced {
                fixture.on_disk(*server, 1, OnDisk::Appended(1, vec![entry]));
            }
            for server in [1, 2] {
                fixture.on_disk(server, 2, OnDisk::Adopted(0, vec![entry]));
            }
            fixture.on_disk(3, 1, OnDisk::Appended(1, vec![entry]));
            fixture.apply(id);
            fixture
        };
        after(&[1, 2]).good(OnlySyncedCounts::default());
        after(&[1]).good(OnlySyncedCounts::default());
        after(&[]).bad(OnlySyncedCounts::default());
    }

    #[test]
    fn what_was_synced_counts_although_a_disk_is_lost_later() {
        let mut fixture = Fixture::three_disks();
        let id = fixture.begin(Mode::Command, Op::Append(1));
        let entry = LogEntry { hash: 7, command: Some((CLIENT, u64::from(id.0))) };
        for server in [1, 2] {
            fixture.on_disk(server, 1, OnDisk::Appended(1, vec![entry]));
        }
        fixture.on_disk(1, 1, OnDisk::Lost);
        fixture.apply(id);
        fixture.good(OnlySyncedCounts::default());
    }
}

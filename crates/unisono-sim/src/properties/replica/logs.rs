//! What the disks of servers have, as the records tell it: for the checkers of disks.

use super::Map;
use crate::record::{DiskRecord, LogEntry, OnDisk, Service};

/// A service and a generation of its log.
pub(super) type Generation = (Service, u64);

/// The disks of all servers. See the module.
#[derive(Debug, Default)]
pub(super) struct Logs {
    disks: Map<u8, Log>,
}

/// The log on one disk.
#[derive(Debug, Default)]
pub(super) struct Log {
    pub(super) generation: Option<Generation>,
    /// Place as of which the snapshot is.
    snapshot_at: u64,
    entries: Vec<LogEntry>,
    /// What the disk had in earlier generations, and what was lost with an earlier disk of this server: the generation, and the
    /// place of its last entry.
    former: Vec<(Generation, u64)>,
}

impl Log {
    /// Place of the last entry.
    pub(super) fn end(&self) -> u64 {
        self.snapshot_at + self.entries.len() as u64
    }
}

/// Entries that a disk has from now on in a generation; the first of them has this place.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct News<'a> {
    pub(super) generation: Generation,
    pub(super) first: u64,
    pub(super) entries: &'a [LogEntry],
}

impl Logs {
    /// Follows a record. Returns the entries that count in a generation from now on.
    pub(super) fn follow(&mut self, record: &DiskRecord) -> Option<News<'_>> {
        let log = self.disks.entry(record.server).or_default();
        let generation = record.service.map(|service| (service, record.generation));
        let before = std::mem::replace(&mut log.generation, generation);
        let is_new = before != generation;
        let mut from = log.end() + 1;
        let was = before.filter(|_| is_new).map(|generation| (generation, log.end()));
        log.former.extend(was);
        match &record.what {
            OnDisk::Found(snapshot_at, entries) | OnDisk::Adopted(snapshot_at, entries) => {
                (log.snapshot_at, log.entries) = (*snapshot_at, entries.clone());
                from = snapshot_at + 1;
                if matches!(record.what, OnDisk::Adopted(..)) {
                    // It has what the server's former disk had, or does not count for that any more.
                    log.former.retain(|(of, _)| Some(*of) != generation);
                }
            }
            OnDisk::Appended(first, entries) => {
                log.entries.truncate(first.saturating_sub(log.snapshot_at + 1) as usize);
                log.entries.extend(entries);
                from = *first;
            }
            OnDisk::Cut(at) => {
                let cut = at.saturating_sub(log.snapshot_at).min(log.entries.len() as u64);
                log.entries.drain(..cut as usize);
                log.snapshot_at = *at;
            }
            OnDisk::Committed => {}
            OnDisk::Lost => {
                let mut former = std::mem::take(&mut log.former);
                former.extend(before.filter(|_| !is_new).map(|generation| (generation, log.end())));
                *log = Log { former, ..Log::default() };
            }
        }
        if is_new {
            from = log.snapshot_at + 1;
        }
        let entries = log.entries.get(from.saturating_sub(log.snapshot_at + 1) as usize..)?;
        Some(News { generation: log.generation?, first: from, entries })
    }

    /// Returns for each server how far its disk had the log in this generation, at present, or when the disk went on to another
    /// one or was lost: a command that a disk had was synced there, whatever becomes of the disk.
    pub(super) fn ends_ever(&self, generation: Generation) -> impl Iterator<Item = u64> {
        self.disks.values().filter_map(move |log| {
            let former = log.former.iter().filter(|(of, _)| *of == generation).map(|(_, end)| *end);
            let present = log.generation.filter(|of| *of == generation).map(|_| log.end());
            former.chain(present).max()
        })
    }
}

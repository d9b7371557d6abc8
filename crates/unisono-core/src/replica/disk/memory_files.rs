//! A folder in memory that can crash: for tests and for the simulator.
//!
//! It knows for each file what is durable and what is not yet. A crash keeps any part of what is not: each sector of 512
//! bytes that was written since the last sync is kept or lost by itself, and so are the length, the name, a new name and
//! the removal of a file.

use super::files::{FileError, FileErrorKind, Files};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// A crash keeps or loses this many bytes together.
const SECTOR_BYTES: usize = 512;

/// A folder in memory. See the module.
#[derive(Clone, Debug, Default)]
pub struct MemoryFiles {
    files: BTreeMap<String, File>,
    /// What a crash may bring back of removed files: the last durable content.
    removed: BTreeMap<String, Vec<u8>>,
    writes: u64,
    fails_after: Option<u64>,
}

#[derive(Clone, Debug, Default)]
struct File {
    now: Vec<u8>,
    /// Durable content; `None` if the name is not durable.
    synced: Option<Vec<u8>>,
    /// The durable name, if it is another one.
    synced_name: Option<String>,
    /// Sectors that were written since the last sync.
    unsynced: BTreeSet<usize>,
}

impl MemoryFiles {
    /// Returns an empty folder.
    pub fn new() -> MemoryFiles {
        MemoryFiles::default()
    }

    /// Loses power. `keep` is asked for each sector, length, name and removal that is not durable whether the disk has it.
    pub fn crash(&mut self, keep: &mut dyn FnMut() -> bool) {
        let mut after = BTreeMap::new();
        for (name, old) in core::mem::take(&mut self.removed) {
            // Removed, or replaced by a new file of this name.
            if !keep() {
                after.insert(name, old);
            }
        }
        for (name, file) in core::mem::take(&mut self.files) {
            let old_name = file.synced_name.clone().filter(|_| !keep());
            if let Some(content) = file.crashed(keep) {
                after.insert(old_name.unwrap_or(name), content);
            }
        }
        self.files = after.into_iter().map(|(name, content)| (name, File::durable(content))).collect();
    }

    /// Changes one bit of a file; without effect if the file is shorter.
    pub fn flip(&mut self, name: &str, bit: u64) {
        let Some(file) = self.files.get_mut(name) else { return };
        let (byte, mask) = ((bit / 8) as usize, 1 << (bit % 8));
        for content in [Some(&mut file.now), file.synced.as_mut()].into_iter().flatten() {
            if let Some(byte) = content.get_mut(byte) {
                *byte ^= mask;
            }
        }
    }

    /// Lets every write, truncation, sync and removal fail after `count` more of them. A write that fails has written the
    /// first half of its bytes.
    pub fn fail_after(&mut self, count: u64) {
        self.fails_after = Some(self.writes.saturating_add(count));
    }

    /// Lets everything work again.
    pub fn repair(&mut self) {
        self.fails_after = None;
    }

    /// Returns the number of writes, truncations, syncs and removals so far.
    pub fn writes(&self) -> u64 {
        self.writes
    }

    /// Counts an operation. True if it is to fail.
    fn fails(&mut self) -> bool {
        self.writes += 1;
        self.fails_after.is_some_and(|after| self.writes > after)
    }

    fn file(&mut self, name: &str) -> Result<&mut File, FileError> {
        self.files.get_mut(name).ok_or_else(|| not_found(name))
    }
}

impl File {
    fn durable(content: Vec<u8>) -> File {
        File { synced: Some(content.clone()), synced_name: None, now: content, unsynced: BTreeSet::new() }
    }

    /// Returns what is left after a crash; `None` if the file is gone.
    fn crashed(self, keep: &mut dyn FnMut() -> bool) -> Option<Vec<u8>> {
        let is_unchanged = self.unsynced.is_empty() && self.synced.as_ref() == Some(&self.now);
        if is_unchanged {
            return self.synced;
        }
        if self.synced.is_none() && !keep() {
            return None;
        }
        let mut content = self.synced.unwrap_or_default();
        if self.now.len() != content.len() && keep() {
            content.resize(self.now.len(), 0);
        }
        for begin in self.unsynced.into_iter().map(|sector| sector * SECTOR_BYTES) {
            let end = self.now.len().min(begin + SECTOR_BYTES);
            if begin >= end || !keep() {
                continue;
            }
            if content.len() < end {
                content.resize(end, 0);
            }
            content[begin..end].copy_from_slice(&self.now[begin..end]);
        }
        Some(content)
    }
}

impl Files for MemoryFiles {
    fn list(&self) -> Result<Vec<String>, FileError> {
        Ok(self.files.keys().cloned().collect())
    }

    fn read(&self, name: &str) -> Result<Vec<u8>, FileError> {
        self.files.get(name).map(|file| file.now.clone()).ok_or_else(|| not_found(name))
    }

    fn read_first(&self, name: &str, most: u64) -> Result<(Vec<u8>, u64), FileError> {
        let file = &self.files.get(name).ok_or_else(|| not_found(name))?.now;
        let first = usize::try_from(most).unwrap_or(usize::MAX).min(file.len());
        Ok((file[..first].to_vec(), file.len() as u64))
    }

    fn write(&mut self, name: &str, at: u64, bytes: &[u8]) -> Result<(), FileError> {
        let fails = self.fails();
        let bytes = &bytes[..if fails { bytes.len() / 2 } else { bytes.len() }];
        let file = self.files.entry(name.to_string()).or_default();
        let (begin, end) = (at as usize, at as usize + bytes.len());
        let changed = begin.min(file.now.len())..end;
        if file.now.len() < end {
            file.now.resize(end, 0);
        }
        file.now[begin..end].copy_from_slice(bytes);
        file.unsynced.extend(changed.start / SECTOR_BYTES..changed.end.div_ceil(SECTOR_BYTES));
        if fails { Err(failed("write", name)) } else { Ok(()) }
    }

    fn truncate(&mut self, name: &str, length: u64) -> Result<(), FileError> {
        if self.fails() {
            return Err(failed("truncate", name));
        }
        let file = self.file(name)?;
        let sectors = file.now.len().div_ceil(SECTOR_BYTES);
        file.now.resize(length as usize, 0);
        file.unsynced.extend(file.now.len() / SECTOR_BYTES..sectors);
        Ok(())
    }

    fn sync(&mut self, name: &str) -> Result<(), FileError> {
        if self.fails() {
            return Err(failed("sync", name));
        }
        let file = self.file(name)?;
        file.synced = Some(file.now.clone());
        file.synced_name = None;
        file.unsynced.clear();
        self.removed.remove(name);
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<(), FileError> {
        if self.fails() {
            return Err(failed("rename", from));
        }
        let mut file = self.files.remove(from).ok_or_else(|| not_found(from))?;
        if file.synced.is_some() {
            file.synced_name.get_or_insert_with(|| from.to_string());
        }
        self.files.insert(to.to_string(), file);
        Ok(())
    }

    fn remove(&mut self, name: &str) -> Result<(), FileError> {
        if self.fails() {
            return Err(failed("remove", name));
        }
        let file = self.files.remove(name).ok_or_else(|| not_found(name))?;
        if let Some(content) = file.synced {
            self.removed.insert(file.synced_name.unwrap_or_else(|| name.to_string()), content);
        }
        Ok(())
    }
}

fn not_found(name: &str) -> FileError {
    FileError { what: FileErrorKind::NotFound, text: format!("{name} does not exist") }
}

fn failed(operation: &str, name: &str) -> FileError {
    FileError { what: FileErrorKind::Failed, text: format!("cannot {operation} {name}: the disk fails") }
}

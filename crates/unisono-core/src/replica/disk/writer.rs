//! Writes a new file, with a sync for every 8 MiB: no sync takes long, and the number of syncs does not depend on how many
//! pieces are written.

use super::files::{FileError, Files};
use alloc::string::String;

/// Maximum number of bytes that one sync has to bring to the disk, 8 MiB: a disk with 1 MB/s gets on within the time after
/// which it counts as hung.
const SYNC_BYTES_MAX: usize = 8 << 20;

/// A file that is being written. See the module.
pub(super) struct Writer<'a, F> {
    files: &'a mut F,
    name: String,
    length: u64,
    unsynced: usize,
}

impl<'a, F: Files> Writer<'a, F> {
    /// Begins to write the file with this name from its beginning.
    pub(super) fn new(files: &'a mut F, name: String) -> Writer<'a, F> {
        Writer { files, name, length: 0, unsynced: 0 }
    }

    pub(super) fn write(&mut self, mut bytes: &[u8]) -> Result<(), FileError> {
        while !bytes.is_empty() {
            let (fits, rest) = bytes.split_at(bytes.len().min(SYNC_BYTES_MAX - self.unsynced));
            self.files.write(&self.name, self.length, fits)?;
            self.length += fits.len() as u64;
            self.unsynced += fits.len();
            if self.unsynced == SYNC_BYTES_MAX {
                self.sync()?;
            }
            bytes = rest;
        }
        Ok(())
    }

    /// Syncs what is not synced yet.
    pub(super) fn sync(&mut self) -> Result<(), FileError> {
        if self.unsynced > 0 {
            self.files.sync(&self.name)?;
            self.unsynced = 0;
        }
        Ok(())
    }
}

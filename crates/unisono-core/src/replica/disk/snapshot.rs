//! A snapshot on its way to the disk, beside the log.
//!
//! The parts of a state may be many and large, and commands must not wait until the disk has them. So a snapshot takes three
//! steps. [`Store::begin_snapshot`](super::Store::begin_snapshot) begins a new log behind the place of the snapshot, which costs
//! a few syncs; from then on commands go there. A [`SnapshotWriter`], in a thread of its own and with access of its own to the
//! folder, writes the new parts and the manifest and syncs them. Then
//! [`Store::name_snapshot`](super::Store::name_snapshot) has the block name the snapshot, and removes the log before it, which
//! is not read again. A crash in between leaves the snapshot of before and both logs.

use super::super::Watched;
use super::super::machine::Position;
use super::super::types::Digest;
use super::block::SnapshotName;
use super::files::Files;
use super::parts::{Arranged, Manifest, Packs, manifest_name, pack_head, pack_name};
use super::store::StoreError;
use super::writer::Writer;
use crate::planted::Planted;
use alloc::vec::Vec;
use bytes::Bytes;

/// Writes the parts of a snapshot. See the module.
#[derive(Clone, Debug)]
pub struct SnapshotWriter {
    pub(super) position: Position,
    pub(super) parts: Vec<Bytes>,
    /// Number of the log that follows the snapshot.
    pub(super) log: u64,
    /// The packs of the snapshot before.
    pub(super) packs: Packs,
    pub(super) digest: fn(&[u8]) -> Digest,
    pub(super) watched: Watched,
}

/// A snapshot whose parts and manifest are synced, and which nothing names yet.
#[derive(Clone, Debug)]
pub struct SnapshotWritten {
    pub(super) name: SnapshotName,
    pub(super) log: u64,
    pub(super) packs: Packs,
}

impl SnapshotWriter {
    /// Writes and syncs the files: the parts that no pack has into a new one, and the manifest. `files` is the folder of the
    /// store, to which the store may write other files meanwhile.
    ///
    /// # Errors
    /// The disk fails.
    pub fn write(&self, files: &mut impl Files) -> Result<SnapshotWritten, StoreError> {
        let digests = self.parts.iter().map(|part| {
            files.gets_on();
            ((self.digest)(part), part.len() as u64)
        });
        let digests: Vec<_> = digests.collect();
        let Arranged { packs, listed, to_write } = self.packs.arrange(&digests, self.log);
        if !to_write.is_empty() {
            let mut pack = Writer::new(files, pack_name(self.log));
            pack.write(&pack_head())?;
            for index in to_write {
                pack.write(&self.parts[index])?;
            }
            if !self.watched.broken(Planted::PartsUnsynced) {
                pack.sync()?;
            }
        }
        let manifest = Manifest { position: self.position, parts: listed }.write();
        let mut writer = Writer::new(files, manifest_name(self.position, self.log));
        writer.write(&manifest)?;
        writer.sync()?;
        let name = SnapshotName { position: self.position, digest: (self.digest)(&manifest) };
        Ok(SnapshotWritten { name, log: self.log, packs })
    }
}

impl SnapshotWritten {
    /// Returns the place of the last entry that the snapshot contains.
    pub fn position(&self) -> Position {
        self.name.position
    }
}

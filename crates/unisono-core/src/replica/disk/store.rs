//! The store: the order of its writes, and what is read at the start.

use super::super::Watched;
use super::super::machine::Position;
use super::super::types::Digest;
use super::block::{self, BLOCK_FILE, Block, Slot, Slots, SnapshotName};
use super::files::{FileError, FileErrorKind, Files};
use super::log::{self, Head, Log, Record};
use super::parts::{
    Arranged, Manifest, Packs, check_pack, is_name_of_store, manifest_name, pack_head, pack_name,
};
use super::spoiled;
use super::writer::Writer;
use crate::planted::Planted;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use bytes::Bytes;
use thiserror::Error;

/// A new log holds its first entries in records of about this length, each of which is read and checked as a whole.
const FIRST_RECORDS_BYTES: usize = 1 << 20;

/// What was heard of another server's disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// Identity of the disk.
    pub disk: u64,
    /// Its highest generation.
    pub generation: u64,
    /// Its highest number of starts. The upper half counts how often the server's disk was replaced.
    pub starts: u64,
    /// Its highest synced position.
    pub position: Position,
}

/// Bits of the number of starts of one disk.
const STARTS_BITS: u32 = 32;

impl Heard {
    /// Returns the number of starts of an empty disk that replaces this one, in its first start.
    pub(in super::super) fn starts_of_replacement(&self) -> u64 {
        ((self.starts >> STARTS_BITS) + 1) << STARTS_BITS | 1
    }

    /// True if this disk did not come before the one with this number of starts, of the same server.
    pub(in super::super) fn is_not_before(&self, starts: u64) -> bool {
        self.starts >> STARTS_BITS >= starts >> STARTS_BITS
    }
}

/// What a store held when it was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// The block.
    pub block: Block,
    /// Parts of the snapshot; empty if there is none.
    pub parts: Vec<Bytes>,
    /// Position of the snapshot; 0 if there is none.
    pub snapshot_at: Position,
    /// Entries of the log with the positions `snapshot_at + 1` and so on.
    pub entries: Vec<Bytes>,
    /// What was heard of other servers' disks, by id.
    pub heard: BTreeMap<u8, Heard>,
    /// Generation in which the last record of the log was written; 0 if the log is empty.
    pub last_generation: u64,
}

/// Why a store cannot be used, or refuses a call.
#[derive(Clone, PartialEq, Eq, Error)]
pub enum StoreError {
    /// An operation on a file failed.
    #[error(transparent)]
    Files(#[from] FileError),
    /// A newer version of this program has written a file.
    #[error("the file {file} has format {found}; this version knows formats up to {knows}: use a newer one")]
    NewerVersion {
        /// Name of the file.
        file: String,
        /// Version of its format.
        found: u16,
        /// Newest version that is known here.
        knows: u16,
    },
    /// An older version of this program has written a file, in a format that is not known any more.
    #[error(
        "the file {file} has format {found}; this version reads format {knows}: make a backup with the version that \
         wrote it, and restore that with this one"
    )]
    OlderVersion {
        /// Name of the file.
        file: String,
        /// Version of its format.
        found: u16,
        /// The version that is known here.
        knows: u16,
    },
    /// A file is not as it was written: the disk has lost or changed bytes, or a file was changed by hand.
    #[error(
        "the file {file} is spoiled: {what}; name the right --log-dir, or keep this folder aside and start with an empty one and --replace"
    )]
    Spoiled {
        /// Name of the file.
        file: String,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The store has failed before. Nothing is known of what was not synced then, so it is not used any longer.
    #[error("the disk has failed before; it is not used any longer")]
    Unusable,
    /// The store has no block yet. Nothing happened.
    #[error("the disk is blank")]
    Blank,
    /// The position does not fit the log. Nothing happened.
    #[error("position {position} does not fit a log that ends at {end}")]
    Misplaced {
        /// The position.
        position: Position,
        /// Position of the last entry.
        end: Position,
    },
    /// What is to be written is too large. Nothing happened.
    #[error("{what} has {bytes} bytes; at most {max} are possible")]
    TooLarge {
        /// What it is.
        what: &'static str,
        /// Its length.
        bytes: usize,
        /// The maximum.
        max: usize,
    },
}

crate::debug_as_sentence!(StoreError { NewerVersion, OlderVersion, Spoiled, Unusable, Blank, Misplaced, TooLarge; of Files });

/// The storage of one server. See the module.
#[derive(Clone, Debug)]
pub struct Store<F> {
    files: F,
    digest: fn(&[u8]) -> Digest,
    block: Option<Block>,
    /// Sequence number of the slot that was written last.
    sequence: u64,
    /// The log that counts. Without meaning while there is no block.
    log: Head,
    log_bytes: u64,
    end: Position,
    heard: BTreeMap<u8, Heard>,
    /// Where the parts of the snapshot are.
    packs: Packs,
    has_failed: bool,
    watched: Watched,
}

impl<F: Files> Store<F> {
    /// Opens a folder; `None` if it is blank. The torn tail of a log is cut off, and files that do not count are removed.
    ///
    /// # Errors
    /// The folder cannot be read, is spoiled, or has a format of a newer or older version.
    pub fn open(files: F, digest: fn(&[u8]) -> Digest) -> Result<(Store<F>, Option<Loaded>), StoreError> {
        Store::open_planted(files, digest, None)
    }

    /// Like [`Store::open`], with a bug. Without the feature `planted` it is the same.
    ///
    /// # Errors
    /// As [`Store::open`].
    #[doc(hidden)]
    pub fn open_planted(
        files: F,
        digest: fn(&[u8]) -> Digest,
        bug: Option<Planted>,
    ) -> Result<(Store<F>, Option<Loaded>), StoreError> {
        let mut store = Store {
            files,
            digest,
            block: None,
            sequence: 0,
            log: Head::default(),
            log_bytes: 0,
            end: 0,
            heard: BTreeMap::new(),
            packs: Packs::default(),
            has_failed: false,
            watched: Watched::with(bug),
        };
        let loaded = store.load()?;
        Ok((store, loaded))
    }

    fn load(&mut self) -> Result<Option<Loaded>, StoreError> {
        let names = self.files.list()?;
        let has_others = names.iter().any(|name| is_name_of_store(name));
        if !names.iter().any(|name| name == BLOCK_FILE) {
            return match has_others {
                true => Err(spoiled(BLOCK_FILE, "it is missing, although other files exist")),
                false => Ok(None),
            };
        }
        let Slots::Block { counts, is_copied } = block::read(&self.files.read(BLOCK_FILE)?, has_others)?
        else {
            self.remove_what_does_not_count()?;
            return Ok(None);
        };
        let Slot { sequence, block, log_bytes, log_mark } = *counts;
        let (snapshot_at, parts) = self.load_snapshot(&block)?;
        let file = Bytes::from(self.read(&log::name(block.log))?);
        let file_bytes = file.len() as u64;
        let Log { head, entries, heard, generation, bytes } =
            Log::read(block.log, file, log_bytes, self.watched)?;
        if head.mark != log_mark {
            return Err(spoiled(&log::name(block.log), "it is the log of another disk"));
        }
        if head.after != snapshot_at && !self.watched.broken(Planted::ReplayNotSkipped) {
            return Err(spoiled(&log::name(block.log), "it does not follow the snapshot"));
        }
        (self.sequence, self.log, self.log_bytes) = (sequence, head, bytes);
        self.end = snapshot_at + entries.len() as u64;
        self.heard.clone_from(&heard);
        // What is read here may be in the memory of the operating system only: a process that was killed has written it,
        // and not synced it. From now on it is answered for.
        if bytes < file_bytes {
            self.files.truncate(&log::name(block.log), bytes)?;
        }
        self.files.sync(&log::name(block.log))?;
        self.files.sync(BLOCK_FILE)?;
        if !is_copied {
            self.write_slot(&block)?;
        }
        self.block = Some(block.clone());
        self.remove_what_does_not_count()?;
        Ok(Some(Loaded { block, parts, snapshot_at, entries, heard, last_generation: generation }))
    }

    fn load_snapshot(&mut self, block: &Block) -> Result<(Position, Vec<Bytes>), StoreError> {
        let Some(snapshot) = &block.snapshot else { return Ok((0, Vec::new())) };
        let name = manifest_name(snapshot.position, block.log);
        let file = self.read(&name)?;
        let manifest = Manifest::read(&name, &file)?;
        if (self.digest)(&file) != snapshot.digest || manifest.position != snapshot.position {
            return Err(spoiled(&name, "it is not the one that the block names"));
        }
        let mut parts = vec![Bytes::new(); manifest.parts.len()];
        let mut places: Vec<_> = manifest.parts.into_iter().zip(&mut parts).collect();
        places.sort_by_key(|(stored, _)| stored.pack);
        // One pack after the other, so that only one of them is in memory besides the parts.
        for of_pack in places.chunk_by_mut(|(one, _), (next, _)| one.pack == next.pack) {
            let number = of_pack[0].0.pack;
            let name = pack_name(number);
            let pack = self.read(&name)?;
            check_pack(&name, &pack)?;
            self.packs.add_pack(number, pack.len() as u64);
            for (stored, part) in of_pack {
                **part = stored.read(&name, &pack, self.digest)?;
                self.packs.add_part(*stored);
            }
        }
        Ok((snapshot.position, parts))
    }

    /// Reads a file that the block or the manifest names.
    fn read(&self, name: &str) -> Result<Vec<u8>, StoreError> {
        self.files.read(name).map_err(|error| match error.what {
            FileErrorKind::NotFound => spoiled(name, "it is missing"),
            _ => error.into(),
        })
    }

    /// Appends entries, and what was heard, with one sync. `first` is the position of the first entry and must follow the
    /// last one.
    ///
    /// # Errors
    /// The disk fails, is blank, or `first` is another position.
    pub fn append(
        &mut self,
        first: Position,
        entries: &[Bytes],
        heard: &BTreeMap<u8, Heard>,
    ) -> Result<(), StoreError> {
        self.unless_failed(|store| {
            let generation = store.block.as_ref().ok_or(StoreError::Blank)?.generation;
            let (misplaced, end) = (StoreError::Misplaced { position: first, end: store.end }, store.end);
            if !entries.is_empty() && Some(first) != end.checked_add(1) {
                return Err(misplaced);
            }
            let end = end.checked_add(entries.len() as u64).filter(|end| *end < Position::MAX);
            let end = end.ok_or(misplaced)?;
            let news: BTreeMap<u8, Heard> = heard
                .iter()
                .filter(|(id, heard)| store.heard.get(id) != Some(heard))
                .map(|(id, heard)| (*id, *heard))
                .collect();
            if entries.is_empty() && news.is_empty() {
                return Ok(());
            }
            let mut record = Vec::new();
            Record::write(store.log.mark, (store.end + 1, generation), &news, entries, &mut record)?;
            let name = log::name(store.log.number);
            store.files.write(&name, store.log_bytes, &record)?;
            store.files.sync(&name)?;
            (store.end, store.log_bytes) = (end, store.log_bytes + record.len() as u64);
            store.heard.extend(news);
            Ok(())
        })
    }

    /// Writes the block, which counts from one synced write; a second one copies it. Its fields `snapshot` and `log` are
    /// those of the store, whatever they are here.
    ///
    /// # Errors
    /// The disk fails, or the block is too large.
    pub fn commit(&mut self, block: Block) -> Result<(), StoreError> {
        self.unless_failed(|store| {
            let Some(old) = &store.block else {
                return store.install(block, None, (0, &[]), &BTreeMap::new());
            };
            let block = Block { snapshot: old.snapshot, log: old.log, ..block };
            store.write_block(block)
        })
    }

    /// Replaces everything by another state, which counts from one write of the block. `entries` follow the snapshot, or
    /// begin with position 1. The block's fields `snapshot` and `log` are set here.
    ///
    /// # Errors
    /// The disk fails, or the block is too large.
    pub fn adopt(
        &mut self,
        block: Block,
        snapshot: Option<(Position, &[Bytes])>,
        entries: &[Bytes],
        heard: &BTreeMap<u8, Heard>,
    ) -> Result<(), StoreError> {
        let after = snapshot.map_or(0, |(position, _)| position);
        self.unless_failed(|store| store.install(block, snapshot, (after, entries), heard))
    }

    /// Writes a snapshot, which counts from one write of the block, and cuts the log below it.
    ///
    /// # Errors
    /// The disk fails, is blank, or `position` is not in the log.
    pub fn snapshot(&mut self, position: Position, parts: &[Bytes]) -> Result<(), StoreError> {
        self.unless_failed(|store| {
            let block = store.block.clone().ok_or(StoreError::Blank)?;
            if position < store.log.after || position > store.end {
                return Err(StoreError::Misplaced { position, end: store.end });
            }
            let file = store.read(&log::name(block.log))?;
            let log = Log::read(block.log, file.into(), store.log_bytes, store.watched)?;
            let heard = store.heard.clone();
            if store.watched.broken(Planted::LogCutFirst) {
                let name = log::name(block.log);
                store.files.truncate(&name, log::LOG_HEAD_BYTES as u64)?;
                store.files.sync(&name)?;
            }
            if store.watched.broken(Planted::ReplayNotSkipped) {
                return store.install(block, Some((position, parts)), (log.head.after, &log.entries), &heard);
            }
            let below = (position - log.head.after) as usize;
            let entries = log.entries.get(below..).unwrap_or_default();
            store.install(block, Some((position, parts)), (position, entries), &heard)
        })
    }

    /// Writes a state aside, lets it count, and removes what counts no more. The entries follow the position before them.
    fn install(
        &mut self,
        block: Block,
        snapshot: Option<(Position, &[Bytes])>,
        (after, entries): (Position, &[Bytes]),
        heard: &BTreeMap<u8, Heard>,
    ) -> Result<(), StoreError> {
        let number = self.block.as_ref().map_or(0, |old| old.log) + 1;
        let end = after.checked_add(entries.len() as u64).filter(|end| *end < Position::MAX);
        let end = end.ok_or(StoreError::Misplaced { position: after, end: self.end })?;
        let parts = snapshot.map_or(&[][..], |(_, parts)| parts);
        let digests = parts.iter().map(|part| {
            self.files.gets_on();
            ((self.digest)(part), part.len() as u64)
        });
        let digests: Vec<_> = digests.collect();
        let Arranged { packs, listed, to_write } = self.packs.arrange(&digests, number);
        let manifest = snapshot.map(|(position, _)| Manifest { position, parts: listed });
        let manifest_file = manifest.as_ref().map(Manifest::write);
        let name = manifest.as_ref().zip(manifest_file.as_ref()).map(|(manifest, file)| SnapshotName {
            position: manifest.position,
            digest: (self.digest)(file),
        });
        let block = Block { snapshot: name, log: number, ..block };
        let head = Head { number, after, mark: self.mark(&block) };
        let log = first_records(&head, block.generation, entries, heard)?;
        // Nothing is written of a block that is too large.
        Slot { sequence: self.sequence, block: block.clone(), log_bytes: 0, log_mark: 0 }.write()?;

        if self.block.is_none() {
            self.write_synced(BLOCK_FILE.into(), &block::nothing_yet())?;
        }
        if !to_write.is_empty() {
            let mut pack = Writer::new(&mut self.files, pack_name(number));
            pack.write(&pack_head())?;
            for index in to_write {
                pack.write(&parts[index])?;
            }
            pack.sync()?;
        }
        if let (Some(file), Some(manifest)) = (&manifest_file, &manifest) {
            self.write_synced(manifest_name(manifest.position, number), file)?;
        }
        self.write_synced(log::name(number), &log)?;

        (self.log, self.log_bytes, self.end) = (head, log.len() as u64, end);
        (self.heard, self.packs) = (heard.clone(), packs);
        self.write_block(block)?;
        self.remove_what_does_not_count()
    }

    /// Returns what begins each record of a log: no sender of a command knows it.
    fn mark(&self, block: &Block) -> u64 {
        let mut from = block.disk.to_be_bytes().to_vec();
        from.extend(block.service.to_be_bytes());
        from.extend(block.log.to_be_bytes());
        (self.digest)(&from).first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
    }

    /// Writes the block to the slot that does not count, from which moment it counts, then a copy to the other.
    fn write_block(&mut self, block: Block) -> Result<(), StoreError> {
        self.write_slot(&block)?;
        self.write_slot(&block)?;
        self.block = Some(block);
        Ok(())
    }

    fn write_slot(&mut self, block: &Block) -> Result<(), StoreError> {
        let sequence = self.sequence + 1;
        let slot =
            Slot { sequence, block: block.clone(), log_bytes: self.log_bytes, log_mark: self.log.mark }
                .write()?;
        self.files.write(BLOCK_FILE, block::slot_at(sequence), &slot)?;
        self.files.sync(BLOCK_FILE)?;
        self.sequence = sequence;
        Ok(())
    }

    /// Writes a new file.
    fn write_synced(&mut self, name: String, bytes: &[u8]) -> Result<(), StoreError> {
        let mut writer = Writer::new(&mut self.files, name);
        writer.write(bytes)?;
        Ok(writer.sync()?)
    }

    fn remove_what_does_not_count(&mut self) -> Result<(), StoreError> {
        let block = self.block.as_ref();
        let log = block.map(|block| log::name(block.log));
        let snapshot = block.and_then(|block| Some(manifest_name(block.snapshot?.position, block.log)));
        for name in self.files.list()? {
            let counts = self.packs.has_file(&name) || [&log, &snapshot].contains(&&Some(name.clone()));
            if is_name_of_store(&name) && !counts {
                self.files.remove(&name)?;
            }
        }
        Ok(())
    }

    /// Does some work on a disk that has not failed before. If it fails now, nothing is known of what was not synced, and
    /// a second sync may claim success without a reason. So the store is not used again.
    fn unless_failed(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        if self.has_failed {
            return Err(StoreError::Unusable);
        }
        let done = work(self);
        self.has_failed = matches!(
            done,
            Err(StoreError::Files(_)
                | StoreError::Spoiled { .. }
                | StoreError::NewerVersion { .. }
                | StoreError::OlderVersion { .. })
        );
        done
    }

    /// Returns the block; `None` if the disk is blank.
    pub fn block(&self) -> Option<&Block> {
        self.block.as_ref()
    }

    /// Returns the position of the last entry of the log, or that of the snapshot if the log is empty.
    pub fn end(&self) -> Position {
        self.end
    }

    /// Returns the length of the log file in bytes.
    pub fn log_bytes(&self) -> u64 {
        self.log_bytes
    }

    /// Returns the folder.
    pub fn files(&self) -> &F {
        &self.files
    }

    /// Returns the folder, for a driver that wants to know how the store gets on with it.
    pub fn files_mut(&mut self) -> &mut F {
        &mut self.files
    }

    /// Returns the folder, and closes the store.
    pub fn into_files(self) -> F {
        self.files
    }
}

/// Returns a new log file.
fn first_records(
    head: &Head,
    generation: u64,
    entries: &[Bytes],
    heard: &BTreeMap<u8, Heard>,
) -> Result<Vec<u8>, StoreError> {
    let (mut file, none) = (head.write(), BTreeMap::new());
    if !heard.is_empty() {
        Record::write(head.mark, (head.after + 1, generation), heard, &[], &mut file)?;
    }
    let (mut rest, mut first) = (entries, head.after + 1);
    while !rest.is_empty() {
        let mut bytes = 0;
        let fits = rest.iter().take_while(|entry| {
            bytes += entry.len();
            bytes <= FIRST_RECORDS_BYTES
        });
        let (record, later) = rest.split_at(fits.count().max(1));
        Record::write(head.mark, (first, generation), &none, record, &mut file)?;
        (rest, first) = (later, first + record.len() as u64);
    }
    Ok(file)
}

//! The store: the order of its writes, and what is read at the start.

use super::super::Watched;
use super::super::machine::Position;
use super::super::types::Digest;
use super::block::{self, BLOCK_FILE, Block, Sealed, Slot, Slots, SnapshotName};
use super::files::{FileError, FileErrorKind, Files};
use super::log::{self, Head, Log, Record};
use super::parts::{Manifest, Packs, check_pack, is_name_of_store, manifest_name, pack_name};
use super::snapshot::{SnapshotWriter, SnapshotWritten};
use super::spoiled;
use super::writer::Writer;
use crate::planted::Planted;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use bytes::Bytes;
use core::mem;
use thiserror::Error;

/// A new log holds its first entries in records of about this length, each of which is read and checked as a whole.
const FIRST_RECORDS_BYTES: usize = 1 << 20;
/// A store that finds more earlier logs than these when it is opened makes one of all: each is of a snapshot that was
/// interrupted, and a block has no room for many.
pub(super) const EARLIER_LOGS_MAX: usize = 3;
/// The file of a log that counts no more is kept for the next one, unless it is longer than this, 128 MiB.
const SPARE_BYTES_MAX: u64 = 128 << 20;

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
    /// Position after which the last file of the log begins. It is beyond the snapshot if a later one was begun, and a crash kept
    /// it from counting. The next one may not be of an earlier position.
    pub log_after: Position,
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
    pub(super) log: Head,
    /// Length of its records and what precedes them.
    log_bytes: u64,
    /// A place in its file behind all records, which the disk has; 0 if it is not known.
    reach: u64,
    /// Length of its file: what follows the records is zero, or of an earlier log.
    log_file_bytes: u64,
    /// Number of an earlier log that counts no more, and the length of its file, which the next log gets. It was named by a
    /// block: so no mark in it is that of a later log.
    spare: Option<(u64, u64)>,
    /// The logs before it that count.
    pub(super) before: Vec<Sealed>,
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
            reach: 0,
            log_file_bytes: 0,
            spare: None,
            before: Vec::new(),
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
        let slot = *counts;
        let (snapshot_at, parts) = self.load_snapshot(&slot)?;
        let Log { head, entries, heard, generation, bytes, is_old } = self.load_logs(&slot, snapshot_at)?;
        let Slot { sequence, block, before, .. } = slot;
        (self.sequence, self.log, self.log_bytes, self.before) = (sequence, head, bytes, before);
        self.end = snapshot_at + entries.len() as u64;
        self.heard.clone_from(&heard);
        self.files.sync(BLOCK_FILE)?;
        if !is_copied {
            self.write_slot(&block)?;
        }
        self.block = Some(block.clone());
        match self.before.len() > EARLIER_LOGS_MAX || is_old {
            true => {
                let snapshot = block.snapshot.map(|_| (snapshot_at, &parts[..]));
                self.install(block.clone(), snapshot, (snapshot_at, &entries), &heard)?;
            }
            false => self.remove_what_does_not_count()?,
        }
        let block = self.block.clone().unwrap_or(block);
        let log_after = self.log.after;
        Ok(Some(Loaded { block, parts, snapshot_at, entries, log_after, heard, last_generation: generation }))
    }

    /// Reads a log through its reach. Returns also that, if it is known, and the length of the file.
    fn read_log(&self, log: Sealed) -> Result<(Bytes, Option<u64>, u64), StoreError> {
        let name = log::name(log.number);
        let (start, _) = self.read_first(&name, log::RECORDS_AT as u64)?;
        let reach = Head::read_reach(&start, log.number)?.filter(|reach| *reach >= log.bytes);
        let (file, file_bytes) = self.read_first(&name, reach.unwrap_or(u64::MAX))?;
        Ok((file.into(), reach, file_bytes))
    }

    /// Reads the logs that count, one after the other, and cuts off the torn tail of the last one. Returns what they hold
    /// together, with the head and the length of the last one.
    fn load_logs(&mut self, slot: &Slot, snapshot_at: Position) -> Result<Log, StoreError> {
        let last = Sealed { number: slot.block.log, bytes: slot.log_bytes, mark: slot.log_mark };
        let mut all: Option<Log> = None;
        for Sealed { number, bytes, mark } in slot.before.iter().chain([&last]).copied() {
            let name = log::name(number);
            let (file, reach, file_bytes) = self.read_log(Sealed { number, bytes, mark })?;
            let log = Log::read(number, file.clone(), bytes, self.watched)?;
            if log.head.mark != mark {
                return Err(spoiled(&name, "it is the log of another disk"));
            }
            let follows = match &all {
                None => log.head.after == snapshot_at || self.watched.broken(Planted::ReplayNotSkipped),
                Some(before) => {
                    (before.head.after..=snapshot_at + before.entries.len() as u64).contains(&log.head.after)
                }
            };
            if !follows {
                return Err(spoiled(&name, "it does not follow the snapshot or the log before it"));
            }
            // What is read here may be in the memory of the operating system only: a process that was killed has written it,
            // and not synced it. From now on it is answered for.
            if number == last.number {
                // What a crash has torn must not become whole with parts of what is written there next.
                let is_clean = match file.get(log.bytes as usize..log.bytes as usize + log::RECORD_HEAD_BYTES)
                {
                    Some(next) => next.iter().all(|byte| *byte == 0),
                    None => log.bytes == file_bytes,
                };
                if !is_clean {
                    self.files.write(&name, log.bytes, &[0; log::RECORD_HEAD_BYTES])?;
                }
                self.files.sync(&name)?;
                self.reach = reach.unwrap_or(0);
                self.log_file_bytes = file_bytes;
            }
            all = Some(match all {
                None => log,
                Some(before) => before.followed_by(log, snapshot_at),
            });
        }
        all.ok_or_else(|| spoiled(BLOCK_FILE, "it names no log"))
    }

    fn load_snapshot(&mut self, slot: &Slot) -> Result<(Position, Vec<Bytes>), StoreError> {
        let Some(snapshot) = &slot.block.snapshot else { return Ok((0, Vec::new())) };
        let name = manifest_name(snapshot.position, slot.first_log());
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
        self.read_first(name, u64::MAX).map(|(bytes, _)| bytes)
    }

    /// Returns the beginning of such a file, and its length.
    fn read_first(&self, name: &str, most: u64) -> Result<(Vec<u8>, u64), StoreError> {
        self.files.read_first(name, most).map_err(|error| match error.what {
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
            let log_bytes = store.log_bytes + record.len() as u64;
            // A start that does not find the record within the reach finds none that was answered for.
            store.extend_reach(&name, log_bytes.next_multiple_of(log::STEP_BYTES))?;
            store.files.write(&name, store.log_bytes, &record)?;
            store.files.sync(&name)?;
            (store.end, store.log_bytes) = (end, log_bytes);
            store.log_file_bytes = store.log_file_bytes.max(log_bytes);
            store.heard.extend(news);
            Ok(())
        })
    }

    /// Writes the reach of the log, unless it is far enough.
    fn extend_reach(&mut self, name: &str, reach: u64) -> Result<(), StoreError> {
        if reach > self.reach {
            self.files.write(name, log::REACH_AT as u64, &self.log.write_reach(reach))?;
            self.reach = reach;
        }
        Ok(())
    }

    /// True if there is little room left in the file of the log, so that soon an append would change its length.
    pub fn lacks_room(&self) -> bool {
        let room = self.reach.min(self.log_file_bytes).saturating_sub(self.log_bytes);
        self.block.is_some() && !self.has_failed && room < log::STEP_BYTES / 2
    }

    /// Makes room in the file of the log: a step of zeros, unless it has a rest from an earlier log. An append costs less then:
    /// its sync need not write the length of the file. To be called between appends, once [`lacks_room`](Store::lacks_room).
    ///
    /// # Errors
    /// The disk is full or fails, or is blank. What the log holds stays whole.
    pub fn make_room(&mut self) -> Result<(), StoreError> {
        self.unless_failed(|store| {
            store.block.as_ref().ok_or(StoreError::Blank)?;
            let (name, file_bytes) = (log::name(store.log.number), store.log_file_bytes);
            let through = (store.log_bytes + log::STEP_BYTES).next_multiple_of(log::STEP_BYTES);
            if let Some(lacking @ 1..) = through.checked_sub(file_bytes) {
                store.files.write(&name, file_bytes, &vec![0; lacking as usize])?;
            }
            store.extend_reach(&name, through)?;
            store.files.sync(&name)?;
            store.log_file_bytes = file_bytes.max(through);
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

    /// Begins a snapshot that contains the state at `position`: begins a new log, with the entries of the present one after
    /// that place, which are given. What is appended from now on goes there. Returns what writes the parts of the snapshot,
    /// beside this store; it counts from [`Store::name_snapshot`].
    ///
    /// # Errors
    /// The disk fails, is blank, or the entries after `position` are not those at the end of the log.
    pub fn begin_snapshot(
        &mut self,
        position: Position,
        parts: Vec<Bytes>,
        entries: &[Bytes],
    ) -> Result<SnapshotWriter, StoreError> {
        self.unless_failed(|store| {
            let block = store.block.clone().ok_or(StoreError::Blank)?;
            let ends_there = position.checked_add(entries.len() as u64) == Some(store.end);
            if position < store.log.after || !ends_there {
                return Err(StoreError::Misplaced { position, end: store.end });
            }
            let block = Block { log: block.log + 1, ..block };
            let head = Head { number: block.log, after: position, mark: store.mark(&block) };
            let (head, entries) = store.beginning_of_log(head, entries)?;
            let file = first_records(&head, block.generation, &entries, &store.heard)?;
            let sealed = Sealed { number: store.log.number, bytes: store.log_bytes, mark: store.log.mark };
            let mut before = store.before.clone();
            before.push(sealed);
            let spare_bytes = match store.spare.take() {
                Some((number, bytes)) => {
                    store.files.rename(&log::name(number), &log::name(head.number))?;
                    bytes
                }
                None => 0,
            };
            store.write_synced(log::name(head.number), &file)?;
            store.begin_log(head, file.len() as u64, spare_bytes);
            store.before = before;
            store.write_block(block)?;
            if store.watched.broken(Planted::LogCutFirst) {
                let name = log::name(sealed.number);
                store.files.truncate(&name, log::RECORDS_AT as u64)?;
                store.files.sync(&name)?;
            }
            let Store { digest, watched, .. } = *store;
            Ok(SnapshotWriter {
                position,
                parts,
                log: head.number,
                packs: store.packs.clone(),
                digest,
                watched,
            })
        })
    }

    /// Takes over a new log with this length, whose file may be longer.
    fn begin_log(&mut self, head: Head, bytes: u64, file_bytes: u64) {
        (self.log, self.log_bytes) = (head, bytes);
        (self.reach, self.log_file_bytes) = (bytes.next_multiple_of(log::STEP_BYTES), file_bytes.max(bytes));
    }

    /// Returns what a new log begins with: other than it is given with a planted bug only.
    fn beginning_of_log(&self, head: Head, entries: &[Bytes]) -> Result<(Head, Vec<Bytes>), StoreError> {
        if self.watched.broken(Planted::ReplayNotSkipped) {
            let file = self.read(&log::name(self.log.number))?;
            let old = Log::read(self.log.number, file.into(), self.log_bytes, self.watched)?;
            return Ok((Head { after: old.head.after, ..head }, old.entries));
        }
        Ok((head, entries.to_vec()))
    }

    /// Lets a snapshot count whose parts are written, from one write of the block, and removes the logs before it, or keeps the
    /// file of the last one for the next log. The snapshot must be the last one that was begun, and nothing was adopted since.
    ///
    /// # Errors
    /// The disk fails, or it is another snapshot.
    pub fn name_snapshot(&mut self, written: SnapshotWritten) -> Result<(), StoreError> {
        self.unless_failed(|store| {
            let block = store.block.clone().ok_or(StoreError::Blank)?;
            if store.before.is_empty() || written.log != store.log.number {
                return Err(StoreError::Misplaced { position: written.position(), end: store.end });
            }
            store.packs = written.packs;
            let last = store.before.last().map_or(0, |log| log.number);
            store.before.clear();
            store.write_block(Block { snapshot: Some(written.name), ..block })?;
            // Nothing counts any more of what is in it.
            let (_, file_bytes) = store.read_first(&log::name(last), 0)?;
            store.spare = Some((last, file_bytes)).filter(|_| file_bytes <= SPARE_BYTES_MAX);
            store.remove_what_does_not_count()
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
        let block = Block { snapshot: None, log: number, ..block };
        let head = Head { number, after, mark: self.mark(&block) };
        let log = first_records(&head, block.generation, entries, heard)?;
        // Nothing is written of a block that is too large.
        let named = SnapshotName { position: after, digest: Digest::default() };
        let longest = Block { snapshot: snapshot.map(|_| named), ..block.clone() };
        let (sequence, before) = (self.sequence, Vec::new());
        Slot { sequence, block: longest, log_bytes: 0, log_mark: 0, before }.write()?;

        if self.block.is_none() {
            self.write_synced(BLOCK_FILE.into(), &block::nothing_yet())?;
        }
        let (mut packs, mut name) = (Packs::default(), None);
        if let Some((position, parts)) = snapshot {
            let (digest, watched) = (self.digest, self.watched);
            let writer = SnapshotWriter {
                position,
                parts: parts.to_vec(),
                log: number,
                packs: mem::take(&mut self.packs),
                digest,
                watched,
            };
            let written = writer.write(&mut self.files)?;
            (packs, name) = (written.packs, Some(written.name));
        }
        self.write_synced(log::name(number), &log)?;

        let block = Block { snapshot: name, ..block };
        self.begin_log(head, log.len() as u64, 0);
        self.end = end;
        (self.heard, self.packs) = (heard.clone(), packs);
        self.before.clear();
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
        let slot = Slot {
            sequence,
            block: block.clone(),
            log_bytes: self.log_bytes,
            log_mark: self.log.mark,
            before: self.before.clone(),
        }
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
        let mut named: Vec<String> = self.before.iter().map(|log| log::name(log.number)).collect();
        named.extend(self.spare.map(|(number, _)| log::name(number)));
        if let Some(block) = &self.block {
            let first_log = self.before.first().map_or(block.log, |log| log.number);
            named.push(log::name(block.log));
            named.extend(block.snapshot.map(|snapshot| manifest_name(snapshot.position, first_log)));
        }
        for name in self.files.list()? {
            let counts = self.packs.has_file(&name) || named.contains(&name);
            if is_name_of_store(&name) && !counts {
                self.files.remove(&name)?;
            }
        }
        Ok(())
    }

    /// Does some work on a disk that has not failed before. If it fails now, nothing is known of what was not synced, and
    /// a second sync may claim success without a reason. So the store is not used again.
    fn unless_failed<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
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

    /// Returns the length of the log in bytes, without the rest of its file.
    pub fn log_bytes(&self) -> u64 {
        self.log_bytes
    }

    /// True if the next log gets the file of an earlier one.
    #[cfg(test)]
    pub(super) fn has_spare(&self) -> bool {
        self.spare.is_some()
    }

    /// Returns where the first record of the log begins.
    #[doc(hidden)]
    pub fn log_records_at(&self) -> u64 {
        log::RECORDS_AT as u64
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

impl<F> Store<F> {
    /// Returns the same store with another folder: for a simulated crash, after which nothing else knows what it knew.
    #[doc(hidden)]
    pub fn with_files<G>(&self, files: G) -> Store<G> {
        Store {
            files,
            digest: self.digest,
            block: self.block.clone(),
            sequence: self.sequence,
            log: self.log,
            log_bytes: self.log_bytes,
            reach: self.reach,
            log_file_bytes: self.log_file_bytes,
            spare: self.spare,
            before: self.before.clone(),
            end: self.end,
            heard: self.heard.clone(),
            packs: self.packs.clone(),
            has_failed: self.has_failed,
            watched: self.watched,
        }
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
    let reach = head.write_reach((file.len() as u64).next_multiple_of(log::STEP_BYTES));
    file[log::REACH_AT..log::REACH_AT + reach.len()].copy_from_slice(&reach);
    Ok(file)
}

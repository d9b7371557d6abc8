//! The commit block: the few facts that make a disk count.
//!
//! The file has two slots with a checksum and a sequence number each, and the good slot with the higher number counts. A
//! block is written to the slot that does not count, synced, and counts from then on. After that the other slot gets a copy,
//! so that a sector that goes bad later does not bring an older block back.
//!
//! While a snapshot is written beside the log, two logs count, one after the other: the block then also lists the earlier
//! ones. Such a block has version 2 of the format, so that an earlier version of this program, which would look at the last
//! log only, refuses it by name. Any other block has version 1.
//!
//! Before the first block of a disk its first slot gets the sequence number 0 and no fields: nothing counts yet, and what
//! other files there are was written by a first start that a crash has interrupted.

use super::super::machine::Position;
use super::super::types::Digest;
use super::store::StoreError;
use super::{FORMAT_VERSION, check_version, spoiled};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use bytes::{Buf, BufMut};
use core::ops::Range;

/// Name of the file.
pub(super) const BLOCK_FILE: &str = "block";
/// Length of a slot: a page, so that the slots share no sector.
pub(super) const SLOT_BYTES: usize = 4096;

const MAGIC: [u8; 4] = *b"uniB";
/// Version of a block with several logs.
const VERSION_OF_LOGS: u16 = 2;
/// Magic, version, checksum, length, sequence number.
const SLOT_HEAD_BYTES: usize = 4 + 2 + 4 + 2 + 8;
/// Sequence number of the slot that says that nothing counts yet.
const NOTHING_YET: u64 = 0;
/// Maximum value of a counter in a block. No disk gets there by counting; one beyond it was forged, and would overflow.
const COUNTER_MAX: u64 = 1 << 62;

/// A random number of 128 bits: the instance of a service.
pub type Digest16 = u128;

/// Marks an instance that says when it began.
const TIMED: u128 = 0x756e_6973;

/// Returns the instance of a service that begins at this time, in milliseconds since 1970: 48 bits of time, a mark of 32
/// bits, and 48 random ones.
pub fn instance_begun(at_ms: u64, random: u64) -> Digest16 {
    u128::from(at_ms) << 80 | TIMED << 48 | u128::from(random & 0xffff_ffff_ffff)
}

/// Returns when an instance began, in milliseconds since 1970; `None` if it does not say so.
fn begun_at_ms(instance: Digest16) -> Option<u64> {
    let is_timed = instance >> 48 & 0xffff_ffff == TIMED;
    is_timed.then_some((instance >> 80) as u64)
}

/// What makes a disk count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Instance of the service; 0 before its creation.
    pub service: Digest16,
    /// Id of this server, from 1 to 9.
    pub server: u8,
    /// Number of servers of the service.
    pub servers: u8,
    /// How many disks hold a command before it is answered.
    pub durability: DiskDurability,
    /// Identity of this disk: a random number.
    pub disk: u64,
    /// Number of starts of a server with this disk. The upper half counts how often the server's disk was replaced.
    pub starts: u64,
    /// Generation of the log: each recovery of the service gives it a new one.
    pub generation: u64,
    /// Highest generation that this server has promised.
    pub promised: u64,
    /// With [`DiskDurability::One`]: number of the last view in its generation, and the ids of its members.
    pub view: Option<(u64, Vec<u8>)>,
    /// How far the creation of the service is.
    pub created: Created,
    /// The snapshot; the log begins after its position. The store sets it.
    pub snapshot: Option<SnapshotName>,
    /// Number of the log file that counts. The store sets it.
    pub log: u64,
    /// Each time that an administrator let this service begin anew.
    pub anew: Vec<Escape>,
    /// Name of the service.
    pub name: String,
}

impl Block {
    /// Returns when the service was created, in milliseconds since 1970 by the clock of one of its servers; `None` before
    /// that, and if its first instance does not say so.
    pub fn created_at_ms(&self) -> Option<u64> {
        let Created::Done(present) = self.created else { return None };
        begun_at_ms(self.anew.first().map_or(present, |escape| escape.service))
    }
}

/// How many disks hold a command before it is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DiskDurability {
    /// A majority of the disks.
    #[default]
    Majority,
    /// One disk.
    One,
}

impl DiskDurability {
    /// Returns the resilience degree that the group of such a service is founded with. A majority of the servers has to hold
    /// a command before disks are asked for it; with *one* all members have to.
    pub fn resilience(self, servers: u8) -> u8 {
        match self {
            DiskDurability::Majority => servers / 2,
            DiskDurability::One => u8::MAX,
        }
    }
}

/// How far the creation of a service is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Created {
    /// Not begun.
    #[default]
    Blank,
    /// This server has written the new root; no caller was ever answered.
    Half(u128),
    /// All servers have written the new root.
    Done(u128),
}

/// Names a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotName {
    /// Position of the last command that it contains.
    pub position: Position,
    /// Digest of its manifest.
    pub digest: Digest,
}

/// An administrator let the service begin anew from one disk, as another instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Escape {
    /// Id of the server whose disk it was.
    pub server: u8,
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// Position of the last command that was kept.
    pub from: Position,
    /// The old instance.
    pub service: Digest16,
}

/// What a slot says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) sequence: u64,
    pub(super) block: Block,
    /// The log file had at least this length when the block was written, all of it synced.
    pub(super) log_bytes: u64,
    /// Mark of the log that counts.
    pub(super) log_mark: u64,
    /// The logs before that one, the earliest first: none but while a snapshot is written, or after that was interrupted.
    pub(super) before: Vec<Sealed>,
}

/// A log to which nothing is appended any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sealed {
    /// Its number.
    pub(super) number: u64,
    /// Its length, all of it synced.
    pub(super) bytes: u64,
    pub(super) mark: u64,
}

impl Slot {
    /// Returns the number of the earliest log that counts.
    pub(super) fn first_log(&self) -> u64 {
        self.before.first().map_or(self.block.log, |log| log.number)
    }
}

/// What the file says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Slots {
    /// Nothing counts yet.
    Nothing,
    /// A block counts.
    Block {
        counts: Box<Slot>,
        /// True if the other slot holds the same.
        is_copied: bool,
    },
}

/// Returns the content of the slot that says that nothing counts yet.
pub(super) fn nothing_yet() -> Vec<u8> {
    seal(FORMAT_VERSION, NOTHING_YET, &[]).unwrap_or_default()
}

/// Returns the place of the slot that gets the block with this sequence number.
pub(super) fn slot_at(sequence: u64) -> u64 {
    sequence % 2 * SLOT_BYTES as u64
}

/// Reads the file.
pub(super) fn read(file: &[u8], has_others: bool) -> Result<Slots, StoreError> {
    let first = read_slot(file, 0..SLOT_BYTES);
    let second = read_slot(file, SLOT_BYTES..2 * SLOT_BYTES);
    let counts = match (first, second) {
        (Read::Block(first), Read::Block(second)) => {
            let is_copied = first.block == second.block && first.before == second.before;
            let counts = if first.sequence > second.sequence { first } else { second };
            return Ok(Slots::Block { counts, is_copied });
        }
        // One flipped bit makes a version of another one, and a good slot is enough.
        (Read::Block(slot), _) | (_, Read::Block(slot)) => slot,
        (Read::Newer(error), _) | (_, Read::Newer(error)) => return Err(error),
        (Read::Nothing, _) => return Ok(Slots::Nothing),
        // The first write of all was interrupted.
        _ if file.len() <= SLOT_BYTES && !has_others => return Ok(Slots::Nothing),
        _ => return Err(spoiled(BLOCK_FILE, "neither of its two slots is good")),
    };
    Ok(Slots::Block { counts, is_copied: false })
}

enum Read {
    Bad,
    Nothing,
    /// A newer version of this program has written it, as it seems.
    Newer(StoreError),
    Block(Box<Slot>),
}

fn read_slot(file: &[u8], place: Range<usize>) -> Read {
    let slot = file.get(place.start..file.len().min(place.end)).unwrap_or_default();
    let Some((mut head, _)) = slot.split_at_checked(SLOT_HEAD_BYTES) else { return Read::Bad };
    if head[..4] != MAGIC {
        return Read::Bad;
    }
    head.advance(4);
    let version = head.get_u16();
    match check_version(BLOCK_FILE, version, VERSION_OF_LOGS) {
        Err(error @ StoreError::NewerVersion { .. }) => return Read::Newer(error),
        Err(_) if version != FORMAT_VERSION => return Read::Bad,
        _ => {}
    }
    let (checksum, length, sequence) = (head.get_u32(), usize::from(head.get_u16()), head.get_u64());
    let Some(fields) = slot.get(SLOT_HEAD_BYTES..SLOT_HEAD_BYTES + length) else { return Read::Bad };
    if crc32c::crc32c(&slot[CHECKED_FROM..SLOT_HEAD_BYTES + length]) != checksum {
        return Read::Bad;
    }
    if sequence == NOTHING_YET {
        return Read::Nothing;
    }
    Slot::read_fields(fields, sequence, version).map_or(Read::Bad, |slot| Read::Block(slot.into()))
}

/// The checksum covers a slot from here.
const CHECKED_FROM: usize = 4 + 2 + 4;

/// Returns the content of a slot; `None` if the fields do not fit.
fn seal(version: u16, sequence: u64, fields: &[u8]) -> Option<Vec<u8>> {
    let mut slot = Vec::with_capacity(SLOT_BYTES);
    slot.put_slice(&MAGIC);
    slot.put_u16(version);
    slot.put_u32(0);
    slot.put_u16(u16::try_from(fields.len()).ok()?);
    slot.put_u64(sequence);
    slot.put_slice(fields);
    let checksum = crc32c::crc32c(&slot[CHECKED_FROM..]);
    slot[CHECKED_FROM - 4..CHECKED_FROM].copy_from_slice(&checksum.to_be_bytes());
    if slot.len() > SLOT_BYTES {
        return None;
    }
    slot.resize(SLOT_BYTES, 0);
    Some(slot)
}

impl Slot {
    /// Returns the content of the slot.
    pub(super) fn write(&self) -> Result<Vec<u8>, StoreError> {
        let fields = self.write_fields();
        let version = if self.before.is_empty() { FORMAT_VERSION } else { VERSION_OF_LOGS };
        seal(version, self.sequence, &fields).ok_or(StoreError::TooLarge {
            what: "the block",
            bytes: fields.len() + SLOT_HEAD_BYTES,
            max: SLOT_BYTES,
        })
    }

    fn write_fields(&self) -> Vec<u8> {
        let (mut out, block) = (Vec::new(), &self.block);
        out.put_u128(block.service);
        out.put_u8(block.server);
        out.put_u8(block.servers);
        out.put_u8(match block.durability {
            DiskDurability::Majority => 0,
            DiskDurability::One => 1,
        });
        [block.disk, block.starts, block.generation, block.promised]
            .into_iter()
            .for_each(|number| out.put_u64(number));
        match &block.view {
            None => out.put_u8(0),
            Some((number, members)) => {
                out.put_u8(1);
                out.put_u64(*number);
                out.put_u32(members.len() as u32);
                out.put_slice(members);
            }
        }
        match block.created {
            Created::Blank => out.put_u8(0),
            Created::Half(root) => {
                out.put_u8(1);
                out.put_u128(root);
            }
            Created::Done(root) => {
                out.put_u8(2);
                out.put_u128(root);
            }
        }
        match &block.snapshot {
            None => out.put_u8(0),
            Some(snapshot) => {
                out.put_u8(1);
                out.put_u64(snapshot.position);
                out.put_slice(&snapshot.digest);
            }
        }
        out.put_u64(block.log);
        out.put_u64(self.log_bytes);
        out.put_u64(self.log_mark);
        out.put_u32(block.anew.len() as u32);
        for escape in &block.anew {
            out.put_u8(escape.server);
            out.put_u64(escape.at_ms);
            out.put_u64(escape.from);
            out.put_u128(escape.service);
        }
        out.put_u32(block.name.len() as u32);
        out.put_slice(block.name.as_bytes());
        if !self.before.is_empty() {
            out.put_u32(self.before.len() as u32);
            for Sealed { number, bytes, mark } in &self.before {
                [*number, *bytes, *mark].into_iter().for_each(|field| out.put_u64(field));
            }
        }
        out
    }

    fn read_fields(mut from: &[u8], sequence: u64, version: u16) -> Option<Slot> {
        let from = &mut from;
        let service = from.try_get_u128().ok()?;
        let (server, servers) = (from.try_get_u8().ok()?, from.try_get_u8().ok()?);
        let durability = match from.try_get_u8().ok()? {
            0 => DiskDurability::Majority,
            1 => DiskDurability::One,
            _ => return None,
        };
        let (disk, starts) = (from.try_get_u64().ok()?, from.try_get_u64().ok()?);
        let (generation, promised) = (from.try_get_u64().ok()?, from.try_get_u64().ok()?);
        let view = match from.try_get_u8().ok()? {
            0 => None,
            1 => Some((from.try_get_u64().ok()?, take_bytes(from)?)),
            _ => return None,
        };
        let created = match from.try_get_u8().ok()? {
            0 => Created::Blank,
            1 => Created::Half(from.try_get_u128().ok()?),
            2 => Created::Done(from.try_get_u128().ok()?),
            _ => return None,
        };
        let snapshot = match from.try_get_u8().ok()? {
            0 => None,
            1 => {
                let (position, mut digest) = (from.try_get_u64().ok()?, Digest::default());
                from.try_copy_to_slice(&mut digest).ok()?;
                Some(SnapshotName { position, digest })
            }
            _ => return None,
        };
        let (log, log_bytes) = (from.try_get_u64().ok()?, from.try_get_u64().ok()?);
        let log_mark = from.try_get_u64().ok()?;
        let mut anew = vec![];
        for _ in 0..from.try_get_u32().ok()? {
            let (server, at_ms) = (from.try_get_u8().ok()?, from.try_get_u64().ok()?);
            let (from, service) = (from.try_get_u64().ok()?, from.try_get_u128().ok()?);
            anew.push(Escape { server, at_ms, from, service });
        }
        let name = String::from_utf8(take_bytes(from)?).ok()?;
        let mut before = vec![];
        if version == VERSION_OF_LOGS {
            for _ in 0..from.try_get_u32().ok()? {
                let mut field = || from.try_get_u64().ok();
                before.push(Sealed { number: field()?, bytes: field()?, mark: field()? });
            }
        }
        let block = Block {
            service,
            server,
            servers,
            durability,
            disk,
            starts,
            generation,
            promised,
            view,
            created,
            snapshot,
            log,
            anew,
            name,
        };
        let counters = [sequence, starts, generation, promised, log, log_bytes]
            .into_iter()
            .chain(block.view.as_ref().map(|(number, _)| *number))
            .chain(block.snapshot.as_ref().map(|snapshot| snapshot.position))
            .chain(block.anew.iter().map(|escape| escape.from))
            .chain(before.iter().flat_map(|log| [log.number, log.bytes]));
        let is_counted = counters.into_iter().all(|counter| counter <= COUNTER_MAX);
        (from.is_empty() && is_counted).then_some(Slot { sequence, block, log_bytes, log_mark, before })
    }
}

/// Takes a length and as many bytes.
fn take_bytes(from: &mut &[u8]) -> Option<Vec<u8>> {
    let length = from.try_get_u32().ok()? as usize;
    from.split_off(..length).map(<[u8]>::to_vec)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns a block for tests.
    pub(in super::super) fn sample() -> Block {
        Block {
            service: 7 << 100,
            server: 2,
            servers: 3,
            durability: DiskDurability::One,
            disk: 0xD15C,
            starts: 4,
            generation: 5,
            promised: 6,
            view: Some((8, vec![1, 2, 3])),
            created: Created::Done(9 << 90),
            snapshot: None,
            log: 1,
            anew: vec![Escape { server: 3, at_ms: 1, from: 2, service: 3 }; 2],
            name: "kitchen".into(),
        }
    }

    fn slot(sequence: u64) -> Slot {
        let snapshot = SnapshotName { position: 3, digest: [4; 32] };
        Slot {
            sequence,
            block: Block { snapshot: Some(snapshot), ..sample() },
            log_bytes: 11,
            log_mark: 12,
            before: vec![],
        }
    }

    #[test]
    fn a_service_says_when_it_was_created_however_often_it_began_anew() {
        let first = instance_begun(1_700_000_000_000, u64::MAX);
        let mut block = Block { created: Created::Done(first), anew: vec![], ..sample() };
        assert_eq!(block.created_at_ms(), Some(1_700_000_000_000));
        block.anew = vec![Escape { server: 3, at_ms: 1, from: 2, service: first }];
        block.created = Created::Done(instance_begun(1_800_000_000_000, 7));
        assert_eq!(block.created_at_ms(), Some(1_700_000_000_000));
        for created in [Created::Done(9 << 90), Created::Half(first), Created::Blank] {
            assert_eq!(Block { created, anew: vec![], ..sample() }.created_at_ms(), None);
        }
    }

    #[test]
    fn a_block_is_read_as_it_was_written_and_nothing_shorter_is() {
        let log = Sealed { number: 8, bytes: 9, mark: 10 };
        for created in [Created::Blank, Created::Half(1), Created::Done(2)] {
            for (view, before) in [(None, vec![]), (Some((1, vec![])), vec![]), (None, vec![log; 3])] {
                let block = Block { created, view, snapshot: None, ..sample() };
                let version = if before.is_empty() { 1 } else { 2 };
                let slot = Slot { sequence: 3, block, log_bytes: 0, log_mark: 0, before };
                let fields = slot.write_fields();
                for length in 0..fields.len() {
                    assert_eq!(Slot::read_fields(&fields[..length], 3, version), None);
                }
                assert_eq!(Slot::read_fields(&fields, 3, 3 - version), None);
                assert_eq!(Slot::read_fields(&fields, 3, version), Some(slot));
            }
        }
        let long = Slot { block: Block { name: "x".repeat(SLOT_BYTES), ..sample() }, ..slot(1) };
        assert!(matches!(long.write(), Err(StoreError::TooLarge { .. })));
        let longer = Slot { block: Block { name: "x".repeat(1 << 17), ..sample() }, ..slot(1) };
        assert!(matches!(longer.write(), Err(StoreError::TooLarge { .. })));
    }

    #[test]
    fn a_counter_that_would_overflow_is_not_read() {
        let most = COUNTER_MAX;
        let reads = |slot: Slot| {
            let file = slot.write().unwrap();
            matches!(read_slot(&file, 0..SLOT_BYTES), Read::Block(_))
        };
        let spoilt: [fn(&mut Slot, u64); 8] = [
            |slot, count| slot.sequence = count,
            |slot, count| slot.block.starts = count,
            |slot, count| slot.block.promised = count,
            |slot, count| slot.block.view = Some((count, vec![])),
            |slot, count| slot.block.log = count,
            |slot, count| slot.log_bytes = count,
            |slot, count| slot.before = vec![Sealed { number: count, bytes: 1, mark: 1 }],
            |slot, count| slot.before = vec![Sealed { number: 1, bytes: count, mark: 1 }],
        ];
        for spoil in spoilt {
            for (count, is_read) in [(most, true), (most + 1, false), (u64::MAX, false)] {
                let mut slot = slot(2);
                spoil(&mut slot, count);
                assert_eq!(reads(slot), is_read, "{count}");
            }
        }
    }

    #[test]
    fn the_good_slot_with_the_higher_sequence_number_counts() {
        let file = |first: &[u8], second: &[u8]| [first, second].concat();
        let bad = vec![0; SLOT_BYTES];
        let of = |sequence| slot(sequence).write().unwrap();
        let counts = |file: &[u8]| match read(file, true) {
            Ok(Slots::Block { counts, is_copied }) => Some((counts.sequence, is_copied)),
            _ => None,
        };
        assert_eq!(counts(&file(&of(2), &of(1))), Some((2, true)));
        assert_eq!(counts(&file(&of(2), &of(3))), Some((3, true)));
        assert_eq!(counts(&file(&bad, &of(3))), Some((3, false)));
        assert_eq!(counts(&file(&of(2), &bad)), Some((2, false)));
        assert_eq!(counts(&file(&nothing_yet(), &of(1))), Some((1, false)));
        assert_eq!(read(&file(&nothing_yet(), &bad), true), Ok(Slots::Nothing));
        assert_eq!(read(&bad, false), Ok(Slots::Nothing));
        assert_eq!(read(&[], false), Ok(Slots::Nothing));
        assert!(matches!(read(&bad, true), Err(StoreError::Spoiled { .. })));
        assert!(matches!(read(&file(&bad, &bad), false), Err(StoreError::Spoiled { .. })));
    }

    #[test]
    fn a_newer_version_is_refused_before_the_checksum_is_looked_at() {
        let mut file = slot(2).write().unwrap();
        file[5] = 3;
        let error = StoreError::NewerVersion { file: BLOCK_FILE.into(), found: 3, knows: 2 };
        assert_eq!(read(&file, true), Err(error.clone()));
        let nothing = [&file[..], &nothing_yet()].concat();
        assert_eq!(read(&nothing, true), Err(error));
    }

    #[test]
    fn a_flipped_bit_of_a_version_is_harmless_where_the_other_slot_is_good() {
        let good = [slot(2).write().unwrap(), slot(3).write().unwrap()].concat();
        for (at, counts) in [(0, 3), (SLOT_BYTES, 2)] {
            for bit in 0..16 {
                let mut file = good.clone();
                file[at + 4 + bit / 8] ^= 1 << (bit % 8);
                let read = read(&file, true);
                let Ok(Slots::Block { counts: slot, is_copied: false }) = read else { panic!("{read:?}") };
                assert_eq!(slot.sequence, counts);
                // Version 0 is no newer one.
                let alone = &file[at..at + SLOT_BYTES];
                let is_spoiled = matches!(super::read(alone, true), Err(StoreError::Spoiled { .. }));
                assert_eq!(is_spoiled, bit == 8);
            }
        }
    }
}

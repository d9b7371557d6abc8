//! The log: a header, the reach, then one record for each batch of commands, and a rest without meaning.
//!
//! The file is longer than its records, so that an append changes no length. Its rest is zero, or holds records of an earlier
//! log, whose file this one has got. Those have another mark. The **reach** is a place behind all records, and is synced before
//! a record beyond it is answered for: what follows it is not read.
//!
//! Each record begins with the mark of its log, a number that no client knows, then its length and checksum. A record is
//! synced before the next one is begun. So a crash can spoil the last record only, and that one was not answered for: it is
//! cut off: its head is overwritten before anything else is written. A bad record that a good one follows was once good, and
//! cutting there would lose answered commands: that log is spoiled. The same holds for bytes that were synced before the block
//! was last written.

use super::super::Watched;
use super::super::machine::Position;
use super::store::{Heard, StoreError};
use super::{FORMAT_VERSION, check_version, spoiled};
use crate::planted::Planted;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use bytes::{Buf, BufMut, Bytes};
use core::mem;

const MAGIC: [u8; 4] = *b"uniL";
/// Version of the format of logs.
const VERSION: u16 = 2;
/// Magic, version, number, position before the first entry, mark, checksum. In logs of version 1, records follow at once.
pub(super) const LOG_HEAD_BYTES: usize = 4 + 2 + 8 + 8 + 8 + 4;
/// Where the reach is: in a sector of its own, as it is written again and again.
pub(super) const REACH_AT: usize = 512;
/// Mark, reach, checksum.
const REACH_BYTES: usize = 8 + 8 + 4;
/// Where the first record begins.
pub(super) const RECORDS_AT: usize = 1024;
/// The reach and the length of the file grow in steps of this length, 256 KiB: zeroing one holds an append up for a
/// millisecond, and a start reads at most two of them in vain. The logs of the simulator and of tests are short.
pub(super) const STEP_BYTES: u64 = if cfg!(any(test, feature = "planted")) { 2 << 10 } else { 256 << 10 };
/// Mark, length, checksum.
pub(super) const RECORD_HEAD_BYTES: usize = 8 + 4 + 4;
/// Maximum length of a record, so that a length fits its field.
const RECORD_BYTES_MAX: usize = 1 << 31;
/// Kind of the only records that there are so far.
const KIND_ENTRIES: u8 = 1;

/// Returns the name of a log file.
pub(super) fn name(number: u64) -> String {
    format!("log-{number}")
}

/// The log file that counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) number: u64,
    /// The first entry has the next position.
    pub(super) after: Position,
    /// Each record begins with it.
    pub(super) mark: u64,
}

impl Head {
    /// Returns what precedes the records, without the reach.
    pub(super) fn write(&self) -> Vec<u8> {
        let mut out = self.write_as(VERSION);
        out.resize(RECORDS_AT, 0);
        out
    }

    /// Returns the head as a version wrote it.
    pub(super) fn write_as(&self, version: u16) -> Vec<u8> {
        let mut out = Vec::with_capacity(RECORDS_AT);
        out.put_slice(&MAGIC);
        out.put_u16(version);
        [self.number, self.after, self.mark].into_iter().for_each(|number| out.put_u64(number));
        out.put_u32(crc32c::crc32c(&out));
        out
    }

    /// Returns the bytes of a reach.
    pub(super) fn write_reach(&self, reach: u64) -> Vec<u8> {
        let mut out = Vec::with_capacity(REACH_BYTES);
        out.put_u64(self.mark);
        out.put_u64(reach);
        out.put_u32(crc32c::crc32c(&out));
        out
    }

    /// Returns the reach from the bytes before the records; `None` if it is not good, and the whole file is to be read. So it is
    /// with a log of version 1, which has none.
    pub(super) fn read_reach(start: &[u8], number: u64) -> Result<Option<u64>, StoreError> {
        let (head, version) = Head::read(start, number)?;
        let Some(mut fields) = start.get(REACH_AT..REACH_AT + REACH_BYTES).filter(|_| version == VERSION)
        else {
            return Ok(None);
        };
        let checksum = crc32c::crc32c(&fields[..REACH_BYTES - 4]);
        let (mark, reach) = (fields.get_u64(), fields.get_u64());
        Ok((mark == head.mark && fields.get_u32() == checksum).then_some(reach))
    }

    /// Returns the head, and the version of the log's format.
    fn read(file: &[u8], number: u64) -> Result<(Head, u16), StoreError> {
        let name = name(number);
        let bad = |what| spoiled(&name, what);
        if file.len() < 6 || file[..4] != MAGIC {
            return Err(bad("it does not begin like a log"));
        }
        let version = u16::from_be_bytes([file[4], file[5]]);
        if version != FORMAT_VERSION {
            check_version(&name, version, VERSION)?;
        }
        let Some((head, mut checksum)) =
            file.get(..LOG_HEAD_BYTES).map(|head| head.split_at(LOG_HEAD_BYTES - 4))
        else {
            return Err(bad("it is too short"));
        };
        if crc32c::crc32c(head) != checksum.get_u32() {
            return Err(bad("the checksum of its first bytes is wrong"));
        }
        let mut fields = &head[6..];
        let head = Head { number: fields.get_u64(), after: fields.get_u64(), mark: fields.get_u64() };
        match head.number == number {
            true => Ok((head, version)),
            false => Err(bad("it has the number of another log")),
        }
    }
}

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// Position of the first entry.
    pub(super) first: Position,
    /// Generation of the server when it was written.
    pub(super) generation: u64,
    /// What was heard since the last record.
    pub(super) heard: BTreeMap<u8, Heard>,
    pub(super) entries: Vec<Bytes>,
}

impl Record {
    /// Appends the record to `out`.
    pub(super) fn write(
        mark: u64,
        (first, generation): (Position, u64),
        heard: &BTreeMap<u8, Heard>,
        entries: &[Bytes],
        out: &mut Vec<u8>,
    ) -> Result<(), StoreError> {
        let entry_bytes: usize = entries.iter().map(|entry| 4 + entry.len()).sum();
        let length = 1 + 8 + 8 + 1 + 33 * heard.len() + 4 + entry_bytes;
        if length > RECORD_BYTES_MAX || heard.len() > usize::from(u8::MAX) {
            return Err(StoreError::TooLarge {
                what: "a batch of commands",
                bytes: length,
                max: RECORD_BYTES_MAX,
            });
        }
        out.reserve(RECORD_HEAD_BYTES + length);
        out.put_u64(mark);
        let checked_from = out.len();
        out.put_u32(length as u32);
        out.put_u32(0);
        out.put_u8(KIND_ENTRIES);
        out.put_u64(first);
        out.put_u64(generation);
        out.put_u8(heard.len() as u8);
        for (id, heard) in heard {
            out.put_u8(*id);
            [heard.disk, heard.generation, heard.starts, heard.position]
                .into_iter()
                .for_each(|number| out.put_u64(number));
        }
        out.put_u32(entries.len() as u32);
        for entry in entries {
            out.put_u32(entry.len() as u32);
            out.put_slice(entry);
        }
        let checksum = checksum(&out[checked_from..]);
        out[checked_from + 4..checked_from + 8].copy_from_slice(&checksum.to_be_bytes());
        Ok(())
    }

    fn read(mut from: Bytes) -> Option<Record> {
        if from.try_get_u8().ok()? != KIND_ENTRIES {
            return None;
        }
        let (first, generation) = (from.try_get_u64().ok()?, from.try_get_u64().ok()?);
        let mut heard = BTreeMap::new();
        for _ in 0..from.try_get_u8().ok()? {
            let (id, disk) = (from.try_get_u8().ok()?, from.try_get_u64().ok()?);
            let (generation, starts) = (from.try_get_u64().ok()?, from.try_get_u64().ok()?);
            let position = from.try_get_u64().ok()?;
            heard.insert(id, Heard { disk, generation, starts, position });
        }
        let mut entries = Vec::new();
        for _ in 0..from.try_get_u32().ok()? {
            let length = from.try_get_u32().ok()? as usize;
            if length > from.len() {
                return None;
            }
            entries.push(from.split_to(length));
        }
        from.is_empty().then_some(Record { first, generation, heard, entries })
    }
}

/// Returns the checksum over a record from its length on, without the checksum's own field.
fn checksum(length_and_rest: &[u8]) -> u32 {
    let (length, rest) = length_and_rest.split_at(4);
    crc32c::crc32c_append(crc32c::crc32c(length), &rest[4..])
}

/// A log as it was read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Log {
    pub(super) head: Head,
    /// The entries that follow `head.after`.
    pub(super) entries: Vec<Bytes>,
    pub(super) heard: BTreeMap<u8, Heard>,
    /// Generation in which the last record was written.
    pub(super) generation: u64,
    /// Length of the good records and what is before them. A torn record may follow.
    pub(super) bytes: u64,
    /// True if it has the format of an earlier version, to which nothing is appended.
    pub(super) is_old: bool,
}

impl Log {
    /// Reads a log from its file through its reach. `synced_bytes` of it were synced before the block was written.
    pub(super) fn read(
        number: u64,
        file: Bytes,
        synced_bytes: u64,
        watched: Watched,
    ) -> Result<Log, StoreError> {
        let (head, version) = Head::read(&file, number)?;
        let bad = |what| Err(spoiled(&name(number), what));
        let (mut entries, mut heard, mut generation) = (Vec::new(), BTreeMap::new(), 0);
        let is_old = version != VERSION;
        let mut at = if is_old { LOG_HEAD_BYTES } else { RECORDS_AT };
        let mark = Some(head.mark).filter(|_| !watched.broken(Planted::RecycledTaken));
        while let Some(bytes) = good_record(&file, at, mark) {
            let end = at + bytes.len() + RECORD_HEAD_BYTES;
            let Some(record) = Record::read(bytes) else {
                return bad("a record has fields that this version does not know");
            };
            if Some(record.first) != next(&head, &entries) {
                return bad("the positions of two records do not follow each other");
            }
            heard.extend(record.heard);
            generation = record.generation;
            entries.extend(record.entries);
            at = end;
        }
        let log = Log { head, entries, heard, generation, bytes: at as u64, is_old };
        if watched.broken(Planted::MiddleCut) {
            return Ok(log);
        }
        if log.bytes < synced_bytes {
            return bad("a record is damaged or missing that was complete when the block was last written");
        }
        if next(&head, &log.entries).is_none() {
            return bad("its positions are too large");
        }
        if (at + 1..file.len()).any(|later| good_record(&file, later, mark).is_some()) {
            return bad("a record is damaged, and good ones follow");
        }
        if watched.broken(Planted::ZerosTakenForTorn) && file.get(at).is_some_and(|byte| *byte == 0) {
            return bad("a record is damaged");
        }
        Ok(log)
    }
}

impl Log {
    /// Returns this log with what the next one holds: of this one counts what is below the beginning of the next.
    /// `after` is the place before the first entry of this one.
    pub(super) fn followed_by(mut self, mut next: Log, after: Position) -> Log {
        self.entries.truncate(next.head.after.saturating_sub(after) as usize);
        self.entries.extend(mem::take(&mut next.entries));
        self.heard.extend(mem::take(&mut next.heard));
        let generation = if next.generation == 0 { self.generation } else { next.generation };
        Log { entries: self.entries, heard: self.heard, generation, ..next }
    }
}

fn next(head: &Head, entries: &[Bytes]) -> Option<Position> {
    head.after.checked_add(entries.len() as u64)?.checked_add(1)
}

/// Returns what follows the head of the record at this place, if its mark, length and checksum are right. Without a mark, any
/// is right.
fn good_record(file: &Bytes, at: usize, mark: Option<u64>) -> Option<Bytes> {
    let mut head = file.get(at..at.checked_add(RECORD_HEAD_BYTES)?)?;
    let found = head.get_u64();
    if mark.is_some_and(|mark| mark != found) {
        return None;
    }
    let (length, checksum_found) = (head.get_u32() as usize, head.get_u32());
    let end = (at + RECORD_HEAD_BYTES).checked_add(length)?;
    let checked = file.get(at + 8..end)?;
    (checksum(checked) == checksum_found).then(|| file.slice(at + RECORD_HEAD_BYTES..end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    const HEAD: Head = Head { number: 3, after: 10, mark: 0x1234_5678_9ABC_DEF0 };

    /// Returns a log with three records at the positions 11, 12 and 13, and where each of them begins.
    fn three() -> (Vec<u8>, Vec<usize>) {
        let (mut file, mut begins) = (HEAD.write(), vec![]);
        for position in 11..14_u64 {
            begins.push(file.len());
            let heard = BTreeMap::from([(1, Heard { position, ..Heard::default() })]);
            let entry = Bytes::from(vec![position as u8; 40]);
            Record::write(HEAD.mark, (position, 1), &heard, &[entry], &mut file).unwrap();
        }
        (file, begins)
    }

    fn read(file: &[u8], synced: u64) -> Result<Log, StoreError> {
        Log::read(3, Bytes::copy_from_slice(file), synced, Watched::default())
    }

    #[test]
    fn a_log_is_read_as_it_was_written() {
        let (file, _) = three();
        let log = read(&file, file.len() as u64).unwrap();
        assert_eq!((log.head, log.bytes, log.entries.len()), (HEAD, file.len() as u64, 3));
        assert_eq!(log.heard[&1].position, 13);
    }

    #[test]
    fn a_torn_tail_is_cut_at_every_length() {
        let (file, begins) = three();
        for length in begins[2]..file.len() {
            for tail in [0, 100] {
                let torn = [&file[..length], &vec![0; tail]].concat();
                assert_eq!(read(&torn, begins[2] as u64).unwrap().bytes, begins[2] as u64);
            }
        }
    }

    #[test]
    fn a_spoiled_middle_is_never_cut() {
        let (file, begins) = three();
        for bit in 0..file.len() * 8 {
            let mut flipped = file.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            // In the last record it looks like a torn tail, unless that is known to have been complete.
            match read(&flipped, 0) {
                // Nothing is in the first kilobyte behind the head, but the reach, which has a checksum of its own.
                Ok(log) if (LOG_HEAD_BYTES..RECORDS_AT).contains(&(bit / 8)) => {
                    assert_eq!(log.entries.len(), 3)
                }
                Ok(log) => {
                    assert!(bit / 8 >= begins[2]);
                    assert_eq!((log.entries.len(), log.bytes), (2, begins[2] as u64));
                }
                Err(StoreError::Spoiled { .. } | StoreError::NewerVersion { .. }) => {}
                Err(other) => panic!("{other}"),
            }
            let counts = !(LOG_HEAD_BYTES..RECORDS_AT).contains(&(bit / 8));
            assert_eq!(read(&flipped, file.len() as u64).is_err(), counts);
        }
        assert!(read(&file[..begins[2]], file.len() as u64).is_err());
    }

    #[test]
    fn records_whose_positions_do_not_follow_are_spoiled() {
        let (file, begins) = three();
        let without = [&file[..begins[1]], &file[begins[2]..]].concat();
        assert!(matches!(read(&without, 0), Err(StoreError::Spoiled { .. })));
        let far = Head { after: Position::MAX, ..HEAD };
        assert!(matches!(read(&far.write(), 0), Err(StoreError::Spoiled { .. })));
        assert!(matches!(Log::read(4, file.into(), 0, Watched::default()), Err(StoreError::Spoiled { .. })));
    }

    #[test]
    fn a_command_that_looks_like_a_record_is_none() {
        // Its sender does not know the mark of the log.
        let (inner, begins) = three();
        let mut file = HEAD.write();
        let mut entry = inner[begins[0]..].to_vec();
        entry[..8].copy_from_slice(&[7; 8]);
        Record::write(
            HEAD.mark,
            (11, 1),
            &BTreeMap::new(),
            &[entry[..begins[1] - begins[0]].to_vec().into()],
            &mut file,
        )
        .unwrap();
        assert_eq!(read(&file[..file.len() - 1], 0).unwrap().bytes, RECORDS_AT as u64);
    }

    #[test]
    fn a_newer_version_is_refused_by_name() {
        let (mut file, _) = three();
        file[5] = 9;
        let error = StoreError::NewerVersion { file: "log-3".into(), found: 9, knows: 2 };
        assert_eq!(read(&file, 0), Err(error));
        assert!(matches!(read(&file[..3], 0), Err(StoreError::Spoiled { .. })));
        assert!(matches!(read(&three().0[..12], 0), Err(StoreError::Spoiled { .. })));
    }

    /// Returns what follows the records: zeros, or what an earlier log has left there.
    fn rests() -> [Vec<u8>; 3] {
        let mut old = vec![9; 7];
        for position in 11..40_u64 {
            let entry = Bytes::from(vec![position as u8; 30 + position as usize]);
            Record::write(HEAD.mark + 1, (position, 1), &BTreeMap::new(), &[entry], &mut old).unwrap();
        }
        [vec![0; 3000], old[7..].to_vec(), old]
    }

    #[test]
    fn a_rest_of_zeros_or_of_an_earlier_log_is_the_end() {
        let (file, begins) = three();
        for rest in rests() {
            for length in begins[2]..=file.len() {
                let log = read(&[&file[..length], &rest].concat(), begins[2] as u64).unwrap();
                let is_whole = length == file.len();
                assert_eq!(log.entries.len(), if is_whole { 3 } else { 2 });
                assert_eq!(log.bytes, if is_whole { length } else { begins[2] } as u64);
            }
            // What a crash leaves of the last record, in sectors, is over what was there before.
            for kept in 0..32 {
                let mut torn = [&file[..begins[2]], &rest].concat();
                for (index, at) in (begins[2]..file.len()).enumerate() {
                    if kept >> (index / 25) & 1 == 1 {
                        torn[at] = file[at];
                    }
                }
                let whole = usize::from(kept == 31);
                assert_eq!(read(&torn, begins[2] as u64).unwrap().entries.len(), 2 + whole, "{kept}");
            }
        }
    }

    #[test]
    fn a_spoiled_record_before_a_rest_is_never_the_end() {
        let (file, begins) = three();
        for rest in rests() {
            for (begin, end) in [(begins[0], begins[1]), (begins[1], begins[2]), (begins[0], begins[2])] {
                // Lost, or what the file had before.
                for over in rests() {
                    let mut spoiled = [&file[..], &rest].concat();
                    let lost = over.iter().cycle().take(end - begin);
                    spoiled.splice(begin..end, lost.copied());
                    assert!(matches!(read(&spoiled, 0), Err(StoreError::Spoiled { .. })));
                }
            }
        }
    }

    #[test]
    fn what_is_read_is_as_far_as_the_reach_says_or_all() {
        let mut start = HEAD.write();
        let reach = HEAD.write_reach(70_000);
        start[REACH_AT..REACH_AT + reach.len()].copy_from_slice(&reach);
        assert_eq!(Head::read_reach(&start, 3), Ok(Some(70_000)));
        for bit in 0..REACH_BYTES * 8 {
            let mut flipped = start.clone();
            flipped[REACH_AT + bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Head::read_reach(&flipped, 3), Ok(None));
        }
        // That of the log whose file it was.
        let other = Head { mark: 7, ..HEAD }.write_reach(70_000);
        start[REACH_AT..REACH_AT + reach.len()].copy_from_slice(&other);
        assert_eq!(Head::read_reach(&start, 3), Ok(None));
        assert_eq!(Head::read_reach(&HEAD.write_as(FORMAT_VERSION), 3), Ok(None));
        assert!(Head::read_reach(&start[..20], 3).is_err());
    }
}

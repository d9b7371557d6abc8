//! The whole state as parts, for servers that lack it, for disks and for backups.
//!
//! Few parts change from one snapshot to the next, because those that do not need not be sent or written again:
//!
//! | part | what it has | when it changes |
//! |---|---|---|
//! | the first | numbers, limits, how many parts of each kind follow | always |
//! | records | directories, each followed by its rows, and the heads of files, by number and name | with one of its records |
//! | history | a segment of the history | the last one with each change, the others never |
//! | a file | the bytes of one file | never |
//!
//! The records are one sequence, cut in front of records that a hash of their object and name picks, one in 2,048: so a
//! row that is added or deleted changes one part and moves no other. A part ends so only once it has 32 KiB.

use crate::bounds::Limits;
use crate::capability::{Capability, Check, ObjectNumber, Port};
use crate::codec::{Reader, Writer};
use crate::history::History;
use crate::name::Name;
use crate::object::{Body, Directory, Object, StoredRow};
use crate::parts::Key;
use crate::request::{Masks, read_columns, write_columns};
use crate::table::{Amounts, Table};
use crate::touched::Touched;
use alloc::vec::Vec;
use bytes::Bytes;
use core::ops::Bound;
use thiserror::Error;

const MAGIC: u32 = u32::from_be_bytes(*b"uniT");
const FORMAT_VERSION: u16 = 1;
/// One in this many records begins a part, on average.
const RECORDS_PER_PART: u64 = 2048;
/// Minimum size in bytes of a part that a record ends: clients choose names, so each of their rows could begin one. With
/// it the default limits allow some 340,000 parts, of which a snapshot may have 400,000.
const PART_BYTES_MIN: usize = 32 << 10;
/// Size in bytes from which a part ends all the same.
const PART_BYTES_MAX: usize = 1 << 20;

const DIRECTORY: u8 = 1;
const ROW: u8 = 2;
const FILE: u8 = 3;

/// The parts are no snapshot of a table, or one of a later version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("not a snapshot of a directory service: {0}")]
pub struct NotASnapshot(pub &'static str);

impl Table {
    /// Returns the whole state in parts. Those of files and of the history share memory with the state.
    pub fn snapshot(&self) -> Vec<Bytes> {
        let records = self.records();
        let files = self.objects.values().filter_map(Object::file);
        let mut parts = Vec::with_capacity(1 + records.len() + self.history.parts_count());
        parts.push(self.head(records.len()));
        parts.extend(records);
        parts.extend(self.history.parts());
        parts.extend(files.cloned());
        parts
    }

    fn head(&self, records: usize) -> Bytes {
        let mut out = Writer::default();
        out.u32(MAGIC);
        out.u16(FORMAT_VERSION);
        out.u128(self.port.0);
        out.long(&self.service);
        self.limits.write(&mut out);
        out.u64(self.number);
        out.u64(self.changes);
        out.u64(self.next_object);
        out.u64(self.history.kept_from());
        out.u32(records as u32);
        out.u32(self.history.parts_count() as u32);
        out.into_bytes()
    }

    /// Encodes parts of the next snapshot that have changed since the last one, about `bytes` of them. Returns true if none is
    /// left. A snapshot encodes the others: so calls of this one, between commands, make it take little time.
    pub fn prepare_snapshot(&mut self, bytes: usize) -> bool {
        let Some(first) = self.first_key() else {
            self.parts.clear();
            return true;
        };
        let mut encoded = 0;
        while let Some(start) = self.parts.next_to_encode(first.clone()) {
            if encoded >= bytes {
                return false;
            }
            let (part, next) = self.part_from(&start);
            encoded += part.len();
            self.parts.keep(start, part, next);
        }
        true
    }

    fn records(&self) -> Vec<Bytes> {
        let (mut parts, mut start) = (Vec::new(), self.first_key());
        while let Some(from) = start {
            let (part, next) = match self.parts.kept(&from) {
                Some((part, next)) => (part.clone(), next.cloned()),
                None => self.part_from(&from),
            };
            parts.push(part);
            start = next;
        }
        parts
    }

    fn first_key(&self) -> Option<Key> {
        self.objects.first_key_value().map(|(number, _)| (*number, None))
    }

    /// Returns the part that begins with the record at `start`, and where the next one begins.
    fn part_from(&self, start: &Key) -> (Bytes, Option<Key>) {
        let mut out = Writer::default();
        for record in self.records_from(start) {
            if self.cut.is_before(&record, out.len()) {
                return (out.into_bytes(), Some(record.key()));
            }
            record.write(&mut out);
        }
        (out.into_bytes(), None)
    }

    fn records_from(&self, start: &Key) -> impl Iterator<Item = Record<'_>> {
        let (first, name) = start.clone();
        self.objects.range(first..).flat_map(move |(number, object)| {
            let name = name.clone().filter(|_| *number == first);
            let head = name.is_none().then_some(Record::Object(*number, object));
            let from = name.map_or(Bound::Unbounded, Bound::Included);
            let rows = object.directory().map(|directory| directory.rows.range((from, Bound::Unbounded)));
            let rows = rows.into_iter().flatten().map(|(name, row)| Record::Row(*number, name, row));
            head.into_iter().chain(rows)
        })
    }

    /// Returns the number of the last command in a snapshot with this first part; `None` if it is none.
    pub fn number_of_snapshot(first: &Bytes) -> Option<u64> {
        let mut from = Reader::new(first.clone());
        let is_ours = from.u32()? == MAGIC && from.u16()? == FORMAT_VERSION;
        is_ours.then(|| Head::read(&mut from)).flatten().map(|head| head.table.number)
    }

    /// Returns the table with this state.
    ///
    /// # Errors
    /// The parts are none that [`Table::snapshot`] returns.
    pub fn restore(parts: &[Bytes]) -> Result<Table, NotASnapshot> {
        let (first, rest) = parts.split_first().ok_or(NotASnapshot("it has no part"))?;
        let mut from = Reader::new(first.clone());
        let is_ours = from.u32() == Some(MAGIC);
        if !is_ours {
            return Err(NotASnapshot("its first part has another mark"));
        }
        if from.u16() != Some(FORMAT_VERSION) {
            return Err(NotASnapshot("its version is unknown; does this server run an older version?"));
        }
        let head = Head::read(&mut from).ok_or(NotASnapshot("its first part is damaged"))?;
        let (records, rest) = rest.split_at_checked(head.records).ok_or(NotASnapshot("parts are missing"))?;
        let (history, files) =
            rest.split_at_checked(head.history).ok_or(NotASnapshot("parts are missing"))?;
        let mut table = head.table;
        table.history = History::restore(table.limits.history_bytes, head.kept_from, table.number, history)
            .map_err(|_| NotASnapshot("a part of the history is damaged"))?;
        table.touched = Touched::after(table.number);
        table.read_records(records, files)?;
        Ok(table)
    }

    fn read_records(&mut self, records: &[Bytes], files: &[Bytes]) -> Result<(), NotASnapshot> {
        let mut restored = Restored { table: self, files: files.iter(), directory: None };
        for part in records {
            let mut from = Reader::new(part.clone());
            while !from.is_empty() {
                restored.record(&mut from).ok_or(NotASnapshot("a record is damaged"))?;
            }
        }
        restored.close();
        if restored.files.next().is_some() {
            return Err(NotASnapshot("it has a file too many"));
        }
        Ok(())
    }
}

fn write_object(kind: u8, number: ObjectNumber, object: &Object, out: &mut Writer) {
    out.u8(kind);
    out.u64(number.0);
    out.u64(object.created);
    out.u128(object.secret.to_bits());
}

/// A record of the sequence.
enum Record<'a> {
    Object(ObjectNumber, &'a Object),
    Row(ObjectNumber, &'a Name, &'a StoredRow),
}

impl Record<'_> {
    fn key(&self) -> Key {
        match self {
            Record::Object(number, _) => (*number, None),
            Record::Row(number, name, _) => (*number, Some((*name).clone())),
        }
    }

    fn hash(&self) -> u64 {
        match self {
            Record::Object(number, _) => hash(*number, ""),
            Record::Row(number, name, _) => hash(*number, name.as_str()),
        }
    }

    fn write(&self, out: &mut Writer) {
        match self {
            Record::Object(number, object) => match &object.body {
                Body::Directory(directory) => {
                    write_object(DIRECTORY, *number, object, out);
                    write_columns(&directory.columns, out);
                }
                Body::File(content) => {
                    write_object(FILE, *number, object, out);
                    out.u64(content.len() as u64);
                }
            },
            Record::Row(_, name, row) => {
                out.u8(ROW);
                name.write(out);
                row.capability.write(out);
                row.masks.write(out);
            }
        }
    }
}

/// Where the sequence of records is cut. All copies of a table cut it alike.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    one_in: u64,
    bytes_min: usize,
    bytes_max: usize,
}

impl Default for Cut {
    fn default() -> Cut {
        Cut { one_in: RECORDS_PER_PART, bytes_min: PART_BYTES_MIN, bytes_max: PART_BYTES_MAX }
    }
}

impl Cut {
    /// A cut into parts of few records, for tests.
    #[cfg(test)]
    pub(crate) fn small() -> Cut {
        Cut { one_in: 2, bytes_min: 60, bytes_max: 200 }
    }

    /// True if a part of this many bytes ends before this record.
    fn is_before(self, record: &Record<'_>, bytes: usize) -> bool {
        bytes >= self.bytes_max || (bytes >= self.bytes_min && record.hash().is_multiple_of(self.one_in))
    }
}

/// FNV-1a with 64 bits, then a multiplication that mixes the high bits into the low ones.
fn hash(object: ObjectNumber, name: &str) -> u64 {
    let bytes = object.0.to_be_bytes().into_iter().chain(name.bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
}

/// The first part.
struct Head {
    /// Without objects and history.
    table: Table,
    kept_from: u64,
    records: usize,
    history: usize,
}

impl Head {
    fn read(from: &mut Reader) -> Option<Head> {
        let (port, service) = (Port(from.u128()?), from.long()?);
        let mut table = Table::new(Limits::read(from)?);
        (table.port, table.service) = (port, service);
        table.number = from.u64()?;
        table.changes = from.u64()?;
        table.next_object = from.u64()?;
        let kept_from = from.u64()?;
        let (records, history) = (from.u32()?.try_into().ok()?, from.u32()?.try_into().ok()?);
        // Numbers that no service reaches could overflow later.
        let numbers = [table.number, table.changes, table.next_object];
        let fits = table.changes <= table.number && numbers.iter().all(|number| *number < u64::MAX / 2);
        (fits && from.is_empty()).then_some(Head { table, kept_from, records, history })
    }
}

/// Objects as they are read.
struct Restored<'a> {
    table: &'a mut Table,
    files: core::slice::Iter<'a, Bytes>,
    /// The directory whose rows are being read.
    directory: Option<(ObjectNumber, Object)>,
}

impl Restored<'_> {
    /// Reads a record that follows all those before.
    fn record(&mut self, from: &mut Reader) -> Option<()> {
        let kind = from.u8()?;
        if kind == ROW {
            return self.row(from);
        }
        self.close();
        let number = ObjectNumber(from.u64()?);
        let (created, secret) = (from.u64()?, Check::from_bits(from.u128()?));
        let last = self.table.objects.last_key_value().map_or(0, |(last, _)| last.0);
        if number.0 <= last || number.0 >= self.table.next_object || created > self.table.number {
            return None;
        }
        match kind {
            DIRECTORY => {
                let mut directory = Directory::new(read_columns(from)?);
                directory.changed = self.table.number;
                let body = Body::Directory(directory);
                self.directory = Some((number, Object { created, secret, body }));
            }
            FILE => {
                let (size, content) = (from.u64()?, self.files.next()?.clone());
                if size != content.len() as u64 {
                    return None;
                }
                self.keep(number, Object { created, secret, body: Body::File(content) });
            }
            _ => return None,
        }
        Some(())
    }

    fn row(&mut self, from: &mut Reader) -> Option<()> {
        let (_, object) = self.directory.as_mut()?;
        let Body::Directory(directory) = &mut object.body else { return None };
        let name = Name::read(from)?;
        let row = StoredRow { capability: Capability::read(from)?, masks: Masks::read(from)? };
        let follows = directory.rows.last_key_value().is_none_or(|(last, _)| *last < name);
        if !follows || row.masks.as_slice().len() != directory.columns.len() {
            return None;
        }
        directory.rows.insert(name, row);
        Some(())
    }

    /// Ends the directory whose rows were read.
    fn close(&mut self) {
        if let Some((number, directory)) = self.directory.take() {
            self.keep(number, directory);
        }
    }

    fn keep(&mut self, number: ObjectNumber, object: Object) {
        Amounts::add(&mut self.table.amounts, &object);
        self.table.objects.insert(number, object);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Command, Place};
    use alloc::format;

    #[test]
    fn chosen_names_do_not_make_many_parts() {
        let mut table = Table::default();
        let secret = Check::from_bits(1);
        table.execute(Command::Found { port: Port(1), secret, service: Bytes::new() });
        let root = table.root().unwrap();
        let names = (0..)
            .map(|number| format!("{number}"))
            .filter(|name| hash(root.object, name).is_multiple_of(RECORDS_PER_PART));
        for name in names.take(1000) {
            let place = Place { capability: root, path: name.parse().unwrap() };
            table.execute(Command::Append { place, capability: root, masks: None }).result.unwrap();
        }
        let records = table.records();
        assert!((2..=3).contains(&records.len()), "{} parts", records.len());
        let (_, whole) = records.split_last().unwrap();
        assert!(whole.iter().all(|part| part.len() >= PART_BYTES_MIN));
        assert_eq!(Table::restore(&table.snapshot()).unwrap().snapshot(), table.snapshot());
    }
}

//! Requests: commands, which have a number and may change the table, and queries, which change nothing.
//!
//! Encoded, a request is the version, what it is (0 a command, 1 a query of the state that contains everything answered
//! before, 2 a query of the server's own state), the code of the operation, and its fields.

use crate::bounds::{
    COLUMNS_MAX, FILE_BYTES_MAX, READ_BYTES_MAX, SERVICE_BYTES_MAX, SET_BYTES_MAX, SET_NAMES_MAX,
    SET_ROWS_MAX,
};
use crate::capability::{CAPABILITY_BYTES, Capability, Check, ObjectNumber, Port, Rights};
use crate::codec::{Reader, Writer};
use crate::name::{NAME_BYTES_MAX, Name, PATH_BYTES_MAX, Path};
use crate::refusal::Reason;
use alloc::vec::Vec;
use bytes::Bytes;

/// Version of the encoding of requests and replies.
pub const VERSION: u8 = 1;
/// Code of the operation that makes the root directory.
const FOUND: u8 = 1;
/// Code of the operation that creates a directory, the first one that has a capability.
const CREATE_DIRECTORY: u8 = 2;
/// Code of the operation that creates a file.
const CREATE_FILE: u8 = 3;
/// Code of the operation that adds a row.
const APPEND: u8 = 6;
/// Code of the operation that replaces the masks of a row.
const CHMOD: u8 = 7;
/// Code of the operation that deletes a row.
const DELETE_ROW: u8 = 8;
/// Code of a command that replaces a set of rows.
const REPLACE_SET: u8 = 9;
/// Code of the operation that deletes what has no path, the last one.
const DELETE_UNREACHABLE: u8 = 11;

/// Code of the query that lists rows.
const LIST: u8 = 1;
/// Code of the query that looks rows up.
const LOOKUP: u8 = 2;
/// Code of the query that reads a part of a file.
const READ: u8 = 4;
/// Code of the query that lists files.
const FILES: u8 = 6;
/// Code of the query that lists what has no path.
const UNREACHABLE: u8 = 7;
/// Code of the query that lists changes.
const CHANGES: u8 = 8;
/// Code of the query that asks how much the service has.
const INFO: u8 = 9;

/// Number of names in a path that are read in less time than the capability before them is checked.
const FEW_NAMES: usize = 1;
/// Cost of a query that goes through rows, files or changes.
const SEARCH_COST: u32 = 100;
/// Bytes of names that take 10 µs, if each has one letter.
const BYTES_OF_UNIT: usize = 40;
/// Bytes of a file and its place of which the path may have all.
const PATH_BYTES: usize = 600;
/// Maximum length of a place. The length of each name takes the byte of the slash before it.
const PLACE_BYTES_MAX: usize = CAPABILITY_BYTES + 2 + 1 + PATH_BYTES_MAX;
/// Maximum length of a row of a replacement.
const REPLACEMENT_BYTES_MAX: usize = PLACE_BYTES_MAX + 2 * CAPABILITY_BYTES + 1;
/// Maximum length of a request but for a set and the content of a file: that of one which creates a directory, with its columns,
/// masks and secret.
const SHORT_BYTES_MAX: usize =
    3 + PLACE_BYTES_MAX + 1 + COLUMNS_MAX * (1 + NAME_BYTES_MAX) + 2 + COLUMNS_MAX + 16;

/// Where an operation applies: the object at the end of a path that begins at a directory. With an empty path it is the
/// object of the capability, of any kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// A capability for the directory where the path begins.
    pub capability: Capability,
    /// The path.
    pub path: Path,
}

impl Place {
    /// Returns the place of the capability's own object.
    pub fn of(capability: Capability) -> Place {
        Place { capability, path: Path::default() }
    }

    fn write(&self, out: &mut Writer) {
        self.capability.write(out);
        self.path.write(out);
    }

    fn read(from: &mut Reader) -> Option<Place> {
        Some(Place { capability: Capability::read(from)?, path: Path::read(from)? })
    }
}

/// The rights that each column of a row lets through: one to four masks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Masks {
    count: u8,
    masks: [Rights; COLUMNS_MAX],
}

impl Masks {
    /// Returns these masks, one for each column; `None` if there are none or more than four.
    pub fn new(masks: &[Rights]) -> Option<Masks> {
        let count = masks.len();
        if count == 0 || count > COLUMNS_MAX {
            return None;
        }
        let mut all = [Rights::NONE; COLUMNS_MAX];
        all[..count].copy_from_slice(masks);
        Some(Masks { count: count as u8, masks: all })
    }

    /// Returns the masks, one for each column.
    pub fn as_slice(&self) -> &[Rights] {
        &self.masks[..usize::from(self.count)]
    }

    pub(crate) fn write(&self, out: &mut Writer) {
        out.u8(self.count);
        self.as_slice().iter().for_each(|mask| out.u8(mask.0));
    }

    pub(crate) fn read(from: &mut Reader) -> Option<Masks> {
        let count = usize::from(from.u8()?);
        let masks = from.many(count, |from| from.u8().map(Rights))?;
        Masks::new(&masks)
    }
}

/// A row of a replacement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replacement {
    /// The row.
    pub place: Place,
    /// Its new capability. The masks stay.
    pub capability: Capability,
    /// What a lookup at this place has to return at present, if the replacement depends on that.
    pub expected: Option<Capability>,
}

/// A command. It has a number among all commands of the service even if it is refused, and takes effect as a whole or
/// not at all. Checks are drawn by the client, so that all servers keep the same one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Command {
    /// Makes the root directory, with the columns owner, group and other. The first one counts, and others are refused.
    Found {
        /// Port of the service, for its capabilities.
        port: Port,
        /// Secret of the root directory.
        secret: Check,
        /// What the program keeps for itself with the service. No query returns it.
        service: Bytes,
    },
    /// Creates a directory. With a path that is not empty, a row of that name gets its capability with all rights.
    CreateDirectory {
        /// Where to enter it. With an empty path it is not entered.
        place: Place,
        /// Names of its columns, 1 to 4.
        columns: Vec<Name>,
        /// Masks of the row; by default those for directories.
        masks: Option<Masks>,
        /// Secret of the directory, at random.
        secret: Check,
    },
    /// Creates a file, as [`Command::CreateDirectory`] creates a directory.
    CreateFile {
        /// Where to enter it. With an empty path it is not entered.
        place: Place,
        /// Masks of the row; by default those for objects that are no directories.
        masks: Option<Masks>,
        /// Secret of the file, at random.
        secret: Check,
        /// The bytes.
        content: Bytes,
    },
    /// Deletes an empty directory, and the row that led to it.
    DeleteDirectory {
        /// The directory.
        place: Place,
    },
    /// Deletes a file, and the row that led to it.
    DeleteFile {
        /// The file.
        place: Place,
    },
    /// Adds a row.
    Append {
        /// The row.
        place: Place,
        /// Its capability, for any object of any service.
        capability: Capability,
        /// Its masks; by default those for the kind of object.
        masks: Option<Masks>,
    },
    /// Replaces the masks of a row. Each gets only rights that it had, or that the caller's open columns let through.
    Chmod {
        /// The row.
        place: Place,
        /// The new masks.
        masks: Masks,
    },
    /// Deletes a row, but not its object.
    DeleteRow {
        /// The row.
        place: Place,
    },
    /// Replaces the capabilities of rows in any directories: all or none.
    ReplaceSet {
        /// The rows, 1 to 1,024, none twice, with at most 8,192 names in their paths together.
        rows: Vec<Replacement>,
    },
    /// Gives an object a new secret: all capabilities for it are void from then on. If a row led to it, that row gets the
    /// new capability. Other rows keep the void ones.
    Revoke {
        /// The object.
        place: Place,
        /// The new secret, at random.
        secret: Check,
    },
    /// Deletes all objects to which no path leads from the root.
    DeleteUnreachable {
        /// The root's capability, with all rights.
        owner: Capability,
        /// Objects that were created after this number stay: their creator may be about to enter them.
        created_through: u64,
    },
}

/// A question. It has no number and changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Query {
    /// Lists rows of a directory by name.
    List {
        /// The directory.
        place: Place,
        /// The last name of the earlier answer, if there was one.
        after: Option<Name>,
    },
    /// Looks rows up, all at one instant.
    Lookup {
        /// The rows, at most 1,024, with at most 8,192 names in their paths together.
        places: Vec<Place>,
    },
    /// Restricts a capability whose holder cannot.
    Restrict {
        /// The object.
        place: Place,
        /// The rights that are to stay.
        rights: Rights,
    },
    /// Reads a part of a file.
    Read {
        /// The file.
        place: Place,
        /// Where the part begins.
        offset: u64,
        /// Its maximum length in bytes.
        length: u32,
    },
    /// Asks for the length of a file.
    Size {
        /// The file.
        place: Place,
    },
    /// Lists all files of the service by number.
    Files {
        /// The root's capability, with all rights.
        owner: Capability,
        /// The last number of the earlier answer, or 0.
        after: ObjectNumber,
    },
    /// Lists the objects to which no path leads from the root.
    Unreachable {
        /// The root's capability, with all rights.
        owner: Capability,
        /// The last number of the earlier answer, or 0.
        after: ObjectNumber,
    },
    /// Lists changes of the rows of a directory.
    Changes {
        /// The directory.
        place: Place,
        /// The first number of interest.
        from: u64,
    },
    /// Asks how much the service has. Every client may.
    Info,
}

/// A request as a server receives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// To be ordered and applied at every server.
    Command(Command),
    /// To be answered by one server, from a state that contains everything that was answered before.
    Query(Query),
    /// To be answered by one server, from its state, which may be behind.
    LocalQuery(Query),
}

/// Where a file is to be created, the masks of its row, and its length.
pub(crate) type FileHead = (Place, Option<Masks>, usize);

/// What a request is, as its first bytes say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// A command.
    Command,
    /// A query.
    Query,
    /// A query of the server's own state. What cannot be read counts as one: any server refuses it, and it costs the
    /// others nothing.
    LocalQuery,
}

impl Request {
    /// Returns what the request with these bytes is, which costs the same for each length: a command that cannot be read to
    /// its end is refused when it is looked at.
    pub fn kind(bytes: &[u8]) -> RequestKind {
        match bytes {
            [VERSION, 1, ..] => RequestKind::Query,
            [VERSION, 0, ..] => RequestKind::Command,
            _ => RequestKind::LocalQuery,
        }
    }

    /// Returns about how long a server works for the request with these bytes, in units of 10 µs, as far as their number and
    /// the operation tell. A name of a path takes 0.6 µs and two bytes at least; what goes through rows, files or changes
    /// takes a millisecond at most, a part of a file a microsecond for each KiB. The owner's questions for unreachable objects, and the
    /// command that deletes them, go through all objects and take longer.
    pub fn cost(bytes: &[u8]) -> u32 {
        let [_, kind, tag, rest @ ..] = bytes else { return 1 };
        // The length to read comes last.
        let length = || rest.last_chunk().map_or(0, |length| u32::from_be_bytes(*length));
        let of_names = |bytes: usize| 1 + (bytes / BYTES_OF_UNIT) as u32;
        match (*kind, *tag) {
            (1 | 2, LIST | FILES | UNREACHABLE | CHANGES) => SEARCH_COST,
            (1 | 2, READ) => of_names(bytes.len()) + length().min(READ_BYTES_MAX as u32) / (10 << 10),
            (0, CREATE_FILE) => of_names(bytes.len().min(PATH_BYTES)) + (bytes.len() / 4096) as u32,
            _ => of_names(bytes.len()),
        }
    }

    /// Returns the bytes of the request.
    pub fn encode(&self) -> Bytes {
        let mut out = Writer::default();
        out.u8(VERSION);
        match self {
            Request::Command(command) => {
                out.u8(0);
                command.write(&mut out);
            }
            Request::Query(query) => {
                out.u8(1);
                query.write(&mut out);
            }
            Request::LocalQuery(query) => {
                out.u8(2);
                query.write(&mut out);
            }
        }
        out.into_bytes()
    }

    /// Returns how long a request may be that begins with these bytes; 0 if none begins so.
    pub(crate) fn bytes_max(beginning: &[u8]) -> usize {
        let of_set = |rest: &[u8], entry: usize| {
            let count = rest.first_chunk().map_or(0, |count| usize::from(u16::from_be_bytes(*count)));
            let fits = count <= SET_ROWS_MAX;
            if fits { 5 + (count * entry).min(SET_BYTES_MAX) } else { 0 }
        };
        match beginning {
            [VERSION, 0, CREATE_FILE, ..] => SHORT_BYTES_MAX + FILE_BYTES_MAX,
            [VERSION, 0, REPLACE_SET, rest @ ..] => of_set(rest, REPLACEMENT_BYTES_MAX),
            [VERSION, 1 | 2, LOOKUP, rest @ ..] => of_set(rest, PLACE_BYTES_MAX),
            [VERSION, 0, FOUND..=DELETE_UNREACHABLE, ..] | [VERSION, 1 | 2, LIST..=INFO, ..] => {
                SHORT_BYTES_MAX
            }
            _ => 0,
        }
    }

    /// Reads the first bytes of a request of `bytes` bytes: if it creates a file, returns what is known of the file, or an
    /// error if the file does not end where the request does, or is too long.
    pub(crate) fn file_that_begins(beginning: &Bytes, bytes: usize) -> Option<Result<FileHead, Reason>> {
        let mut from = Reader::new(beginning.clone());
        if [from.u8()?, from.u8()?, from.u8()?] != [VERSION, 0, CREATE_FILE] {
            return None;
        }
        let (place, masks) = (Place::read(&mut from)?, from.optional(Masks::read)?);
        from.u128()?;
        let content_bytes = from.u32()? as usize;
        let before = beginning.len() - from.left();
        let fits = content_bytes <= FILE_BYTES_MAX && before + content_bytes == bytes;
        Some(fits.then_some((place, masks, content_bytes)).ok_or(Reason::Unreadable))
    }

    /// Returns the first capability of a command, and the number of names in the path that begins there, without reading them.
    /// The number means nothing for a command that has no path.
    pub(crate) fn first_capability(bytes: &Bytes) -> Option<(Capability, u16)> {
        let mut from = Reader::new(bytes.clone());
        match [from.u8()?, from.u8()?, from.u8()?] {
            [VERSION, 0, REPLACE_SET] if from.u16()? == 0 => return None,
            [VERSION, 0, CREATE_DIRECTORY..=DELETE_UNREACHABLE] => {}
            _ => return None,
        }
        Some((Capability::read(&mut from)?, from.u16()?))
    }

    /// Returns the first capability of any request; `None` if it has none.
    pub(crate) fn capability(bytes: &Bytes) -> Option<Capability> {
        let mut from = Reader::new(bytes.clone());
        match [from.u8()?, from.u8()?, from.u8()?] {
            [VERSION, 0, FOUND] | [VERSION, 1 | 2, INFO] => return None,
            [VERSION, 0, REPLACE_SET] | [VERSION, 1 | 2, LOOKUP] if from.u16()? == 0 => return None,
            [VERSION, 0..=2, _] => {}
            _ => return None,
        }
        Capability::read(&mut from)
    }

    /// True if a request that begins with these bytes replaces a set of rows.
    pub(crate) fn replaces_set(beginning: &[u8]) -> bool {
        beginning.starts_with(&[VERSION, 0, REPLACE_SET])
    }

    /// True if a request that begins with these bytes is a command for a row, which needs a name.
    pub(crate) fn needs_name(beginning: &[u8]) -> bool {
        matches!(beginning, [VERSION, 0, APPEND | CHMOD | DELETE_ROW | REPLACE_SET, ..])
    }

    /// True if the request with these bytes is a question for changes of the server's own state.
    pub(crate) fn asks_for_local_changes(bytes: &[u8]) -> bool {
        bytes.starts_with(&[VERSION, 2, CHANGES])
    }

    /// True if a request that begins with these bytes is a lookup.
    pub(crate) fn is_lookup(beginning: &[u8]) -> bool {
        matches!(beginning, [VERSION, 1 | 2, LOOKUP, ..])
    }

    /// Returns the places of a [lookup](Request::is_lookup) with these bytes; `None` if they cannot be read. Paths of several names
    /// of which the capability is not `proved` are passed over: what is at their end does not matter.
    pub(crate) fn places_of_lookup(
        bytes: &Bytes,
        proved: impl Fn(&Capability) -> bool,
    ) -> Option<Vec<Place>> {
        let mut from = Reader::new(bytes.slice(3.min(bytes.len())..));
        let (mut names_left, count) = (SET_NAMES_MAX, count_of_set(&mut from)?);
        let places = from.many(count, |from| {
            let capability = Capability::read(from)?;
            let names = Path::names_ahead(from)?;
            names_left = names_left.checked_sub(names)?;
            let path = match names > FEW_NAMES && !proved(&capability) {
                true => Path::pass_over(from)?,
                false => Path::read(from)?,
            };
            Some(Place { capability, path })
        });
        places.filter(|_| from.is_empty())
    }

    /// Returns the request with these bytes; `None` if they are none of this version. Bytes of files are not copied.
    pub fn decode(bytes: &Bytes) -> Option<Request> {
        let mut from = Reader::new(bytes.clone());
        if from.u8()? != VERSION {
            return None;
        }
        let request = match from.u8()? {
            0 => Request::Command(Command::read(&mut from)?),
            1 => Request::Query(Query::read(&mut from)?),
            2 => Request::LocalQuery(Query::read(&mut from)?),
            _ => return None,
        };
        from.is_empty().then_some(request)
    }
}

fn write_optional<T>(value: Option<&T>, out: &mut Writer, write: impl FnOnce(&T, &mut Writer)) {
    out.u8(value.is_some().into());
    if let Some(value) = value {
        write(value, out);
    }
}

pub(crate) fn write_columns(columns: &[Name], out: &mut Writer) {
    out.u8(columns.len() as u8);
    columns.iter().for_each(|name| name.write(out));
}

/// Returns the names of columns: 1 to 4, none twice.
pub(crate) fn read_columns(from: &mut Reader) -> Option<Vec<Name>> {
    let count = usize::from(from.u8()?);
    let columns = from.many(count.min(COLUMNS_MAX + 1), Name::read)?;
    let is_repeated = |index: usize| columns[..index].contains(&columns[index]);
    let fits = (1..=COLUMNS_MAX).contains(&columns.len()) && !(0..columns.len()).any(is_repeated);
    fits.then_some(columns)
}

fn write_set<T>(set: &[T], out: &mut Writer, write: impl Fn(&T, &mut Writer)) {
    out.u16(set.len() as u16);
    set.iter().for_each(|entry| write(entry, out));
}

/// Reads the number of entries of a set, whose length is bounded too.
fn count_of_set(from: &mut Reader) -> Option<usize> {
    let count = usize::from(from.u16()?);
    (count <= SET_ROWS_MAX && from.left() <= SET_BYTES_MAX).then_some(count)
}

fn read_set<T>(
    from: &mut Reader,
    read: impl Fn(&mut Reader) -> Option<T>,
    place: impl Fn(&T) -> &Place,
) -> Option<Vec<T>> {
    let (mut names_left, count) = (SET_NAMES_MAX, count_of_set(from)?);
    from.many(count, |from| {
        let entry = read(from)?;
        names_left = names_left.checked_sub(place(&entry).path.names().len())?;
        Some(entry)
    })
}

impl Replacement {
    fn write(&self, out: &mut Writer) {
        self.place.write(out);
        self.capability.write(out);
        write_optional(self.expected.as_ref(), out, Capability::write);
    }

    fn read(from: &mut Reader) -> Option<Replacement> {
        Some(Replacement {
            place: Place::read(from)?,
            capability: Capability::read(from)?,
            expected: from.optional(Capability::read)?,
        })
    }
}

impl Command {
    fn write(&self, out: &mut Writer) {
        match self {
            Command::Found { port, secret, service } => {
                out.u8(FOUND);
                out.u128(port.0);
                out.u128(secret.to_bits());
                out.long(service);
            }
            Command::CreateDirectory { place, columns, masks, secret } => {
                out.u8(CREATE_DIRECTORY);
                place.write(out);
                write_columns(columns, out);
                write_optional(masks.as_ref(), out, Masks::write);
                out.u128(secret.to_bits());
            }
            Command::CreateFile { place, masks, secret, content } => {
                out.u8(CREATE_FILE);
                place.write(out);
                write_optional(masks.as_ref(), out, Masks::write);
                out.u128(secret.to_bits());
                out.long(content);
            }
            Command::DeleteDirectory { place } => {
                out.u8(4);
                place.write(out);
            }
            Command::DeleteFile { place } => {
                out.u8(5);
                place.write(out);
            }
            Command::Append { place, capability, masks } => {
                out.u8(APPEND);
                place.write(out);
                capability.write(out);
                write_optional(masks.as_ref(), out, Masks::write);
            }
            Command::Chmod { place, masks } => {
                out.u8(CHMOD);
                place.write(out);
                masks.write(out);
            }
            Command::DeleteRow { place } => {
                out.u8(DELETE_ROW);
                place.write(out);
            }
            Command::ReplaceSet { rows } => {
                out.u8(REPLACE_SET);
                write_set(rows, out, Replacement::write);
            }
            Command::Revoke { place, secret } => {
                out.u8(10);
                place.write(out);
                out.u128(secret.to_bits());
            }
            Command::DeleteUnreachable { owner, created_through } => {
                out.u8(DELETE_UNREACHABLE);
                owner.write(out);
                out.u64(*created_through);
            }
        }
    }

    fn read(from: &mut Reader) -> Option<Command> {
        let code = from.u8()?;
        let check = |from: &mut Reader| from.u128().map(Check::from_bits);
        Some(match code {
            FOUND => {
                let (port, secret, service) = (Port(from.u128()?), check(from)?, from.long()?);
                let fits = service.len() <= SERVICE_BYTES_MAX;
                fits.then_some(Command::Found { port, secret, service })?
            }
            CREATE_DIRECTORY => Command::CreateDirectory {
                place: Place::read(from)?,
                columns: read_columns(from)?,
                masks: from.optional(Masks::read)?,
                secret: check(from)?,
            },
            CREATE_FILE => {
                let (place, masks) = (Place::read(from)?, from.optional(Masks::read)?);
                let (secret, content) = (check(from)?, from.long()?);
                let fits = content.len() <= FILE_BYTES_MAX;
                fits.then_some(Command::CreateFile { place, masks, secret, content })?
            }
            4 => Command::DeleteDirectory { place: Place::read(from)? },
            5 => Command::DeleteFile { place: Place::read(from)? },
            APPEND => Command::Append {
                place: Place::read(from)?,
                capability: Capability::read(from)?,
                masks: from.optional(Masks::read)?,
            },
            CHMOD => Command::Chmod { place: Place::read(from)?, masks: Masks::read(from)? },
            DELETE_ROW => Command::DeleteRow { place: Place::read(from)? },
            REPLACE_SET => Command::ReplaceSet { rows: read_set(from, Replacement::read, |row| &row.place)? },
            10 => Command::Revoke { place: Place::read(from)?, secret: check(from)? },
            DELETE_UNREACHABLE => {
                Command::DeleteUnreachable { owner: Capability::read(from)?, created_through: from.u64()? }
            }
            _ => return None,
        })
    }
}

impl Query {
    fn write(&self, out: &mut Writer) {
        match self {
            Query::List { place, after } => {
                out.u8(LIST);
                place.write(out);
                write_optional(after.as_ref(), out, Name::write);
            }
            Query::Lookup { places } => {
                out.u8(LOOKUP);
                write_set(places, out, Place::write);
            }
            Query::Restrict { place, rights } => {
                out.u8(3);
                place.write(out);
                out.u8(rights.0);
            }
            Query::Read { place, offset, length } => {
                out.u8(READ);
                place.write(out);
                out.u64(*offset);
                out.u32(*length);
            }
            Query::Size { place } => {
                out.u8(5);
                place.write(out);
            }
            Query::Files { owner, after } => {
                out.u8(FILES);
                owner.write(out);
                out.u64(after.0);
            }
            Query::Unreachable { owner, after } => {
                out.u8(UNREACHABLE);
                owner.write(out);
                out.u64(after.0);
            }
            Query::Changes { place, from } => {
                out.u8(CHANGES);
                place.write(out);
                out.u64(*from);
            }
            Query::Info => out.u8(INFO),
        }
    }

    fn read(from: &mut Reader) -> Option<Query> {
        Some(match from.u8()? {
            LIST => Query::List { place: Place::read(from)?, after: from.optional(Name::read)? },
            LOOKUP => Query::Lookup { places: read_set(from, Place::read, |place| place)? },
            3 => Query::Restrict { place: Place::read(from)?, rights: Rights(from.u8()?) },
            READ => Query::Read { place: Place::read(from)?, offset: from.u64()?, length: from.u32()? },
            5 => Query::Size { place: Place::read(from)? },
            FILES => Query::Files { owner: Capability::read(from)?, after: ObjectNumber(from.u64()?) },
            UNREACHABLE => {
                Query::Unreachable { owner: Capability::read(from)?, after: ObjectNumber(from.u64()?) }
            }
            CHANGES => Query::Changes { place: Place::read(from)?, from: from.u64()? },
            INFO => Query::Info,
            _ => return None,
        })
    }
}

//! Why a request was refused. A refused command changed nothing.

use crate::codec::{Reader, Writer};
use thiserror::Error;

/// Why a request was refused, and which part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{reason}{}", Entry(*entry))]
pub struct Refusal {
    /// The reason.
    pub reason: Reason,
    /// In a set, the index of the first row to which the reason applies.
    pub entry: Option<u16>,
}

struct Entry(Option<u16>);

impl core::fmt::Display for Entry {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.0 {
            Some(index) => write!(f, " (row {} of the set)", u32::from(index) + 1),
            None => Ok(()),
        }
    }
}

impl From<Reason> for Refusal {
    fn from(reason: Reason) -> Refusal {
        Refusal { reason, entry: None }
    }
}

/// What is limited by [`Limits`](crate::Limits).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Bound {
    /// The number of directories.
    Directories,
    /// The number of rows.
    Rows,
    /// The number of files.
    Files,
    /// The length of all files.
    FileBytes,
}

impl Bound {
    const ALL: [Bound; 4] = [Bound::Directories, Bound::Rows, Bound::Files, Bound::FileBytes];

    fn word(self) -> &'static str {
        match self {
            Bound::Directories => "directories",
            Bound::Rows => "rows",
            Bound::Files => "files",
            Bound::FileBytes => "bytes of files",
        }
    }
}

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Reason {
    /// There is no such row or object, or the check of the capability is wrong. Which of these is not said: a stranger
    /// must not learn which objects exist.
    #[error("not found: no such name or object, or the capability is not valid")]
    NotFound,
    /// The capability is good, but lacks a right.
    #[error("denied: the capability lacks the right")]
    Denied,
    /// There is a row of this name.
    #[error("there is a row of this name already")]
    Exists,
    /// The directory has rows.
    #[error("the directory has rows; delete them first")]
    NotEmpty,
    /// The object is no directory of this service.
    #[error("it is not a directory of this service")]
    NotADirectory,
    /// The object is not a file of this service.
    #[error("it is not a file of this service")]
    NotAFile,
    /// A row was to be named, and the path is empty.
    #[error("the path is empty; name a row")]
    NoName,
    /// There are more or fewer masks than the directory has columns.
    #[error("the directory has {columns} columns, and {masks} masks were given; give one for each")]
    Masks {
        /// Number of columns of the directory.
        columns: u8,
        /// Number of masks.
        masks: u8,
    },
    /// The row is not what was expected.
    #[error("the row has another capability than was expected")]
    Differs,
    /// A set names the same row twice.
    #[error("the row is named twice in one set")]
    Twice,
    /// The service is full.
    #[error("the service is full: it has its maximum of {limit} {}", bound.word())]
    Full {
        /// What it has no more room for.
        bound: Bound,
        /// The maximum.
        limit: u64,
    },
    /// The root directory cannot be deleted.
    #[error("the root directory cannot be deleted")]
    Root,
    /// The service has a root directory already.
    #[error("the service exists already")]
    Founded,
    /// A watch begins after the present.
    #[error("number {number} is the last one so far; a watch begins at {} at the latest", number + 1)]
    Future {
        /// Number of the last command.
        number: u64,
    },
    /// A watch begins before the history does.
    #[error("changes are no longer kept from there on: the history begins at {kept_from}")]
    NoLongerKept {
        /// The lowest number from which all changes are kept.
        kept_from: u64,
    },
    /// The request cannot be read: it is damaged, or this server runs an older version than the client.
    #[error("the request cannot be read; does the client run a newer version than the server?")]
    Unreadable,
}

impl Reason {
    /// True if it says that the client lacks a right, names or sends what there is not, or founds a second root. A command that is refused for such
    /// a reason is refused before it is ordered, and has no number.
    pub fn is_of_rights(&self) -> bool {
        match self {
            Reason::NotFound
            | Reason::Denied
            | Reason::NotADirectory
            | Reason::NotAFile
            | Reason::NoName
            | Reason::Founded
            | Reason::Unreadable => true,
            Reason::Exists
            | Reason::NotEmpty
            | Reason::Masks { .. }
            | Reason::Differs
            | Reason::Twice
            | Reason::Full { .. }
            | Reason::Root
            | Reason::Future { .. }
            | Reason::NoLongerKept { .. } => false,
        }
    }

    pub(crate) fn write(&self, out: &mut Writer) {
        match *self {
            Reason::NotFound => out.u8(1),
            Reason::Denied => out.u8(2),
            Reason::Exists => out.u8(3),
            Reason::NotEmpty => out.u8(4),
            Reason::NotADirectory => out.u8(5),
            Reason::NotAFile => out.u8(6),
            Reason::NoName => out.u8(7),
            Reason::Masks { columns, masks } => {
                out.u8(8);
                out.u8(columns);
                out.u8(masks);
            }
            Reason::Differs => out.u8(9),
            Reason::Twice => out.u8(10),
            Reason::Full { bound, limit } => {
                out.u8(11);
                out.u8(bound as u8);
                out.u64(limit);
            }
            Reason::Root => out.u8(12),
            Reason::Founded => out.u8(13),
            Reason::Future { number } => {
                out.u8(14);
                out.u64(number);
            }
            Reason::NoLongerKept { kept_from } => {
                out.u8(15);
                out.u64(kept_from);
            }
            Reason::Unreadable => out.u8(16),
        }
    }

    pub(crate) fn read(from: &mut Reader) -> Option<Reason> {
        Some(match from.u8()? {
            1 => Reason::NotFound,
            2 => Reason::Denied,
            3 => Reason::Exists,
            4 => Reason::NotEmpty,
            5 => Reason::NotADirectory,
            6 => Reason::NotAFile,
            7 => Reason::NoName,
            8 => Reason::Masks { columns: from.u8()?, masks: from.u8()? },
            9 => Reason::Differs,
            10 => Reason::Twice,
            11 => Reason::Full { bound: *Bound::ALL.get(usize::from(from.u8()?))?, limit: from.u64()? },
            12 => Reason::Root,
            13 => Reason::Founded,
            14 => Reason::Future { number: from.u64()? },
            15 => Reason::NoLongerKept { kept_from: from.u64()? },
            16 => Reason::Unreadable,
            _ => return None,
        })
    }
}

impl Refusal {
    pub(crate) fn write(&self, out: &mut Writer) {
        out.u16(self.entry.unwrap_or(u16::MAX));
        self.reason.write(out);
    }

    pub(crate) fn read(from: &mut Reader) -> Option<Refusal> {
        let entry = Some(from.u16()?).filter(|entry| *entry != u16::MAX);
        Some(Refusal { entry, reason: Reason::read(from)? })
    }
}

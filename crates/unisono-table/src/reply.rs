//! Replies: the number, and the answer or the refusal.

use crate::capability::{Capability, ObjectNumber};
use crate::codec::{Reader, Writer};
use crate::name::Name;
use crate::refusal::{Reason, Refusal};
use crate::request::{Masks, VERSION, read_columns, write_columns};
use alloc::vec::Vec;
use bytes::Bytes;

/// The reply to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Number of the command among all commands of the service, from 1; for a query, number of the last command before.
    pub number: u64,
    /// Number of commands so far that changed something.
    pub changes: u64,
    /// The answer, or why there is none.
    pub result: Result<Answer, Refusal>,
}

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Answer {
    /// It is done.
    Done,
    /// It is done, and this is the capability: of what was created, revoked or restricted.
    Capability(Capability),
    /// These many objects were deleted.
    Deleted {
        /// Number of directories.
        directories: u64,
        /// Number of files.
        files: u64,
    },
    /// Rows of a directory.
    Rows {
        /// Names of the columns.
        columns: Vec<Name>,
        /// The rows by name.
        rows: Vec<Row>,
        /// True if there are more rows after these.
        more: bool,
    },
    /// For each place that was looked up what is there.
    Looked(Vec<Result<Looked, Reason>>),
    /// A part of a file.
    Content {
        /// Length of the whole file in bytes.
        size: u64,
        /// The part.
        bytes: Bytes,
    },
    /// Length of a file in bytes.
    Size(u64),
    /// Objects by number.
    Objects {
        /// The objects.
        objects: Vec<Listed>,
        /// True if there are more after these.
        more: bool,
    },
    /// Changes of a directory.
    Changes {
        /// The changes in their order. Several changes by one command have one number.
        changes: Vec<Change>,
        /// The number from which to ask for the next ones.
        next: u64,
    },
    /// How much the service has.
    Info(Info),
}

/// A row of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Name of the row.
    pub name: Name,
    /// Its capability under the masks of the columns that are open; or why there is none.
    pub capability: Result<Capability, Reason>,
    /// Its masks.
    pub masks: Masks,
}

/// What a lookup found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Looked {
    /// The capability under the masks of the columns that are open.
    pub capability: Capability,
    /// True if it is for a directory of this service.
    pub is_directory: bool,
}

/// An object, without its check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its number.
    pub object: ObjectNumber,
    /// Number of the command that created it.
    pub created: u64,
    /// Length in bytes if it is a file; `None` for a directory.
    pub size: Option<u64>,
}

/// What happened to a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// It was added.
    Append,
    /// Its masks were replaced.
    Chmod,
    /// It was deleted.
    Delete,
    /// Its capability was replaced.
    Replace,
}

impl Event {
    const ALL: [Event; 4] = [Event::Append, Event::Chmod, Event::Delete, Event::Replace];

    /// Returns the word for it: `append`, `chmod`, `delete` or `replace`.
    pub fn word(self) -> &'static str {
        match self {
            Event::Append => "append",
            Event::Chmod => "chmod",
            Event::Delete => "delete",
            Event::Replace => "replace",
        }
    }

    pub(crate) fn read(from: &mut Reader) -> Option<Event> {
        Event::ALL.get(usize::from(from.u8()?)).copied()
    }
}

/// A change of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Number of the command.
    pub number: u64,
    /// What happened.
    pub event: Event,
    /// Name of the row.
    pub name: Name,
}

/// How much a service has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Info {
    /// Number of directories, the root among them.
    pub directories: u64,
    /// Number of rows.
    pub rows: u64,
    /// Number of files.
    pub files: u64,
    /// Length of all files in bytes.
    pub file_bytes: u64,
    /// The lowest number from which all changes are kept.
    pub kept_from: u64,
}

impl Reply {
    /// Returns the bytes of the reply.
    pub fn encode(&self) -> Bytes {
        let mut out = Writer::default();
        out.u8(VERSION);
        out.u64(self.number);
        out.u64(self.changes);
        match &self.result {
            Ok(answer) => answer.write(&mut out),
            Err(refusal) => {
                out.u8(0);
                refusal.write(&mut out);
            }
        }
        out.into_bytes()
    }

    /// Returns the reply with these bytes; `None` if they are none of this version.
    pub fn decode(bytes: &Bytes) -> Option<Reply> {
        let mut from = Reader::new(bytes.clone());
        if from.u8()? != VERSION {
            return None;
        }
        let (number, changes) = (from.u64()?, from.u64()?);
        let result = match from.u8()? {
            0 => Err(Refusal::read(&mut from)?),
            code => Ok(Answer::read(code, &mut from)?),
        };
        from.is_empty().then_some(Reply { number, changes, result })
    }
}

fn write_list<T>(list: &[T], out: &mut Writer, write: impl Fn(&T, &mut Writer)) {
    out.u32(list.len() as u32);
    list.iter().for_each(|entry| write(entry, out));
}

fn read_list<T>(from: &mut Reader, read: impl FnMut(&mut Reader) -> Option<T>) -> Option<Vec<T>> {
    let count = from.u32()?.try_into().ok()?;
    from.many(count, read)
}

fn read_bool(from: &mut Reader) -> Option<bool> {
    match from.u8()? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

/// Writes a value behind 1, or a reason behind 0.
fn write_result<T>(result: &Result<T, Reason>, out: &mut Writer, write: impl Fn(&T, &mut Writer)) {
    match result {
        Ok(value) => {
            out.u8(1);
            write(value, out);
        }
        Err(reason) => {
            out.u8(0);
            reason.write(out);
        }
    }
}

fn read_result<T>(
    from: &mut Reader,
    read: impl FnOnce(&mut Reader) -> Option<T>,
) -> Option<Result<T, Reason>> {
    Some(match read_bool(from)? {
        true => Ok(read(from)?),
        false => Err(Reason::read(from)?),
    })
}

impl Answer {
    fn write(&self, out: &mut Writer) {
        match self {
            Answer::Done => out.u8(1),
            Answer::Capability(capability) => {
                out.u8(2);
                capability.write(out);
            }
            Answer::Deleted { directories, files } => {
                out.u8(3);
                out.u64(*directories);
                out.u64(*files);
            }
            Answer::Rows { columns, rows, more } => {
                out.u8(4);
                write_columns(columns, out);
                write_list(rows, out, Row::write);
                out.u8((*more).into());
            }
            Answer::Looked(looked) => {
                out.u8(5);
                write_list(looked, out, |result, out| write_result(result, out, Looked::write));
            }
            Answer::Content { size, bytes } => {
                out.u8(6);
                out.u64(*size);
                out.long(bytes);
            }
            Answer::Size(size) => {
                out.u8(7);
                out.u64(*size);
            }
            Answer::Objects { objects, more } => {
                out.u8(8);
                write_list(objects, out, Listed::write);
                out.u8((*more).into());
            }
            Answer::Changes { changes, next } => {
                out.u8(9);
                write_list(changes, out, Change::write);
                out.u64(*next);
            }
            Answer::Info(info) => {
                out.u8(10);
                info.write(out);
            }
        }
    }

    fn read(code: u8, from: &mut Reader) -> Option<Answer> {
        Some(match code {
            1 => Answer::Done,
            2 => Answer::Capability(Capability::read(from)?),
            3 => Answer::Deleted { directories: from.u64()?, files: from.u64()? },
            4 => Answer::Rows {
                columns: read_columns(from)?,
                rows: read_list(from, Row::read)?,
                more: read_bool(from)?,
            },
            5 => Answer::Looked(read_list(from, |from| read_result(from, Looked::read))?),
            6 => Answer::Content { size: from.u64()?, bytes: from.long()? },
            7 => Answer::Size(from.u64()?),
            8 => Answer::Objects { objects: read_list(from, Listed::read)?, more: read_bool(from)? },
            9 => Answer::Changes { changes: read_list(from, Change::read)?, next: from.u64()? },
            10 => Answer::Info(Info::read(from)?),
            _ => return None,
        })
    }
}

impl Row {
    fn write(&self, out: &mut Writer) {
        self.name.write(out);
        write_result(&self.capability, out, Capability::write);
        self.masks.write(out);
    }

    fn read(from: &mut Reader) -> Option<Row> {
        Some(Row {
            name: Name::read(from)?,
            capability: read_result(from, Capability::read)?,
            masks: Masks::read(from)?,
        })
    }
}

impl Looked {
    fn write(&self, out: &mut Writer) {
        self.capability.write(out);
        out.u8(self.is_directory.into());
    }

    fn read(from: &mut Reader) -> Option<Looked> {
        Some(Looked { capability: Capability::read(from)?, is_directory: read_bool(from)? })
    }
}

impl Listed {
    fn write(&self, out: &mut Writer) {
        out.u64(self.object.0);
        out.u64(self.created);
        out.u64(self.size.unwrap_or(u64::MAX));
    }

    fn read(from: &mut Reader) -> Option<Listed> {
        Some(Listed {
            object: ObjectNumber(from.u64()?),
            created: from.u64()?,
            size: Some(from.u64()?).filter(|size| *size != u64::MAX),
        })
    }
}

impl Change {
    pub(crate) fn write(&self, out: &mut Writer) {
        out.u64(self.number);
        out.u8(self.event as u8);
        self.name.write(out);
    }

    fn read(from: &mut Reader) -> Option<Change> {
        Some(Change { number: from.u64()?, event: Event::read(from)?, name: Name::read(from)? })
    }
}

impl Info {
    fn write(&self, out: &mut Writer) {
        let Info { directories, rows, files, file_bytes, kept_from } = *self;
        for amount in [directories, rows, files, file_bytes, kept_from] {
            out.u64(amount);
        }
    }

    fn read(from: &mut Reader) -> Option<Info> {
        Some(Info {
            directories: from.u64()?,
            rows: from.u64()?,
            files: from.u64()?,
            file_bytes: from.u64()?,
            kept_from: from.u64()?,
        })
    }
}

//! Bounds: how much a table takes, and the longest of everything in a request or a reply.

use crate::codec::{Reader, Writer};

/// Maximum number of columns of a directory: 4.
pub const COLUMNS_MAX: usize = 4;
/// Maximum number of rows in one lookup or replacement: 1,024.
pub const SET_ROWS_MAX: usize = 1024;
/// Maximum number of names in all paths of one lookup or replacement: 8,192. Each is looked up while others wait.
pub const SET_NAMES_MAX: usize = 8192;
/// Maximum length of one lookup or replacement in bytes: 512 KiB.
pub const SET_BYTES_MAX: usize = 512 << 10;
/// Maximum length of a file in bytes: 16 MiB less 16 KiB. The command that creates it has to fit into one message of
/// 16 MiB, with the path and what the layers below add.
pub const FILE_BYTES_MAX: usize = (16 << 20) - (16 << 10);
/// Maximum length of what the program keeps for itself with a service ([`Command::Found`](crate::Command::Found)): 1 KiB.
pub const SERVICE_BYTES_MAX: usize = 1 << 10;
/// Size in bytes at which an answer that lists things ends; the rest comes with the next question. 1 MiB.
pub const LIST_BYTES_MAX: usize = 1 << 20;
/// Maximum length of a part of a file in one answer: 4 MiB.
pub const READ_BYTES_MAX: usize = 4 << 20;

/// How much a table takes. It is part of the state, so it is the same at all servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Maximum number of directories. By default 1,048,576.
    pub directories: u64,
    /// Maximum number of rows in all directories. By default 4,194,304: some 600 MiB of memory.
    pub rows: u64,
    /// Maximum number of files. By default 262,144, since each is a part of a snapshot, of which there are at most 400,000.
    pub files: u64,
    /// Maximum length of all files in bytes. By default 1 GiB: files are kept in memory.
    pub file_bytes: u64,
    /// Maximum length of the history of changes in bytes. By default 64 MiB.
    pub history_bytes: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            directories: 1 << 20,
            rows: 1 << 22,
            files: 1 << 18,
            file_bytes: 1 << 30,
            history_bytes: 64 << 20,
        }
    }
}

impl Limits {
    pub(crate) fn write(&self, out: &mut Writer) {
        let Limits { directories, rows, files, file_bytes, history_bytes } = *self;
        for limit in [directories, rows, files, file_bytes, history_bytes] {
            out.u64(limit);
        }
    }

    pub(crate) fn read(from: &mut Reader) -> Option<Limits> {
        Some(Limits {
            directories: from.u64()?,
            rows: from.u64()?,
            files: from.u64()?,
            file_bytes: from.u64()?,
            history_bytes: from.u64()?,
        })
    }
}

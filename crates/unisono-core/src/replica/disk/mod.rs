//! The storage of a durable replica: what one server keeps on its disk, and how it survives a crash at any moment.
//!
//! A [`Store`] is a folder with a commit block, a log of commands and the parts of a snapshot. The **block** is small and
//! says what counts: which service and server this disk belongs to, the generation of the state, the snapshot and the log
//! file. The **log** grows by one synced record for each batch of commands. A **snapshot** replaces the beginning of the log;
//! its new parts are written to one file together, and those that do not change stay where they are. A new state (a snapshot,
//! or what another server gave) is written aside, synced, and counts from one write of the block. So a crash leaves the old
//! state or the new one, and what a call has returned for is never lost. A snapshot is written beside the log, which goes on
//! in a new file meanwhile; then the block names two logs, of which the first ends where the second begins.
//!
//! The file of a log is longer than the log, so that an append changes no length. One that counts no more is kept for the next.
//!
//! The module does no I/O of its own: it reads and writes through [`Files`]. It knows nothing of generations, views and
//! quorums besides their place in the block; the replica decides what to write.
//!
//! | file | content |
//! |---|---|
//! | `block` | two slots of 4096 bytes; both hold the last block, and at least one of them is good at any moment |
//! | `log-N` | the log with number N. Only those that the block names count: one, or several while a snapshot is written |
//! | `snapshot-P-N` | manifest: the parts of the state after command P, and where they are. N is the number of its log |
//! | `parts-N` | a pack: parts of snapshots, one after the other, the first of which had the log with number N |
//!
//! | module | subject |
//! |---|---|
//! | `files` | what a store asks of a folder |
//! | `block` | the commit block and its two slots |
//! | `log` | records of the log, and how a torn tail differs from a spoiled middle |
//! | `parts` | the files of a snapshot, and which parts are written when |
//! | `writer` | writes a new file, with a sync for every 8 MiB |
//! | `snapshot` | a snapshot that is written while the log goes on |
//! | `store` | the order of writes, and what is read at the start |
//! | `memory_files` | a folder in memory that can crash, for tests and the simulator |

mod block;
mod files;
mod log;
mod memory_files;
mod parts;
mod snapshot;
mod store;
#[cfg(test)]
mod tests;
mod writer;

pub use block::{Block, Created, Digest16, DiskDurability, Escape, SnapshotName, instance_begun};
pub use files::{FileError, FileErrorKind, Files};
#[doc(hidden)]
pub use memory_files::MemoryFiles;
pub use snapshot::{SnapshotWriter, SnapshotWritten};
pub use store::{Heard, Loaded, Store, StoreError};

use alloc::string::ToString;

/// Version of the formats of all files but logs, manifests and blocks that name several logs.
const FORMAT_VERSION: u16 = 1;

/// Refuses a file whose format has another version than the one that is known here.
fn check_version(file: &str, found: u16, knows: u16) -> Result<(), StoreError> {
    let file = || file.to_string();
    match found {
        0 => Err(spoiled(&file(), "no version writes format 0")),
        _ if found > knows => Err(StoreError::NewerVersion { file: file(), found, knows }),
        _ if found < knows => Err(StoreError::OlderVersion { file: file(), found, knows }),
        _ => Ok(()),
    }
}

fn spoiled(file: &str, what: &'static str) -> StoreError {
    StoreError::Spoiled { file: file.to_string(), what }
}

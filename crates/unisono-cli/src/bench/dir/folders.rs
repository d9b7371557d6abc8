//! The folders of one measured service, removed at its end: data where temporary files are kept or on a disk for each server,
//! and logs beside it or in a file system in memory.

use crate::problem::Problem;
use crate::trial::lot;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The file system in memory that Linux machines have.
pub(super) const IN_MEMORY: &str = "/dev/shm";

pub(super) struct Folders {
    /// One for all servers, or one for each.
    data: Vec<Temporary>,
    logs: Option<Temporary>,
}

struct Temporary(PathBuf);

impl Folders {
    /// Makes the folders. `disks` are the folders for the data of each server, if they are not to lie together; `logs` is the
    /// folder for the logs, if they are to lie elsewhere.
    pub(super) fn new(disks: &[PathBuf], logs: Option<&Path>) -> Result<Folders, Problem> {
        let logs = logs.map(Temporary::new).transpose()?;
        let data = match disks {
            [] => vec![Temporary::new(&std::env::temp_dir())?],
            disks => disks.iter().map(|disk| Temporary::new(disk)).collect::<Result<_, _>>()?,
        };
        Ok(Folders { data, logs })
    }

    /// Returns the folder for the data of the server with this index, under this name.
    pub(super) fn data(&self, server: usize, name: &str) -> PathBuf {
        self.data[server % self.data.len()].0.join(name)
    }

    /// Returns the folder of a server's log, if it is elsewhere.
    pub(super) fn log(&self, name: &str) -> Option<PathBuf> {
        self.logs.as_ref().map(|logs| logs.0.join(name))
    }
}

impl Temporary {
    fn new(parent: &Path) -> Result<Temporary, Problem> {
        let folder = parent.join(format!("unisono-bench-{:08x}", lot(1 << 32)?));
        let made = DirBuilder::new().mode(0o700).create(&folder);
        made.map_err(|error| {
            Problem::usage(format!("cannot make the folder {}: {error}", folder.display()))
        })?;
        Ok(Temporary(folder))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // What is left lies among the temporary files of the system.
        let _ = fs::remove_dir_all(&self.0);
    }
}

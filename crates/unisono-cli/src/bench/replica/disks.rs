//! The folders of servers with disks, and what their file system allows: the floor of durable commands.

use super::DurabilityChoice;
use super::crew::Staff;
use super::worker::{Part, Seat};
use crate::bench::latency::member::Usage;
use crate::bench::side::{Side, UNTIMED};
use crate::location::Location;
use crate::problem::Problem;
use crate::settings::Settings;
use crate::trial::lot;
use anyhow::Context;
use rustix::fs::{Advice, fadvise};
use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Time within which a snapshot is written.
const WRITTEN_WITHIN: Duration = Duration::from_secs(60);
/// Interval of looking for it.
const LOOKS_EVERY: Duration = Duration::from_millis(20);

/// A folder for the files of one run, removed at its end.
pub(in crate::bench) struct Disks {
    folder: PathBuf,
    servers: u8,
    durability: DurabilityChoice,
}

impl Disks {
    /// Makes the folder where temporary files are kept (`TMPDIR`).
    pub(super) fn new(servers: u8, durability: DurabilityChoice) -> Result<Disks, Problem> {
        let folder = std::env::temp_dir().join(format!("unisono-bench-{:08x}", lot(1 << 32)?));
        let made = DirBuilder::new().mode(0o700).create(&folder);
        made.with_context(|| format!("cannot make the folder {}", folder.display()))?;
        Ok(Disks { folder, servers, durability })
    }

    /// Returns where the server with this index keeps its files.
    pub(super) fn seat(&self, index: usize) -> Seat {
        let id = index as u8 + 1;
        Seat {
            id,
            servers: self.servers,
            folder: self.folder.join(format!("server-{id}")),
            needs_one: self.durability == DurabilityChoice::One,
        }
    }

    /// Drops the files from the memory of the operating system, so that they are read from the disk.
    pub(super) fn evict(&self) -> anyhow::Result<()> {
        for index in 0..usize::from(self.servers) {
            for file in files(&self.seat(index).folder)? {
                let file = File::open(file)?;
                file.sync_all()?;
                fadvise(&file, 0, None, Advice::DontNeed)?;
            }
        }
        Ok(())
    }

    /// Returns the bytes of all files of all servers.
    pub(super) fn bytes(&self) -> anyhow::Result<u64> {
        let mut bytes = 0;
        for index in 0..usize::from(self.servers) {
            for file in files(&self.seat(index).folder)? {
                bytes += fs::metadata(file)?.len();
            }
        }
        Ok(bytes)
    }
}

impl Drop for Disks {
    fn drop(&mut self) {
        // What is left lies among the temporary files of the system.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Returns the files of a server.
pub(in crate::bench) fn files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    Ok(entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?)
}

/// Returns the highest number of a snapshot in a server's folder, 0 if it has none.
pub(in crate::bench) fn last_snapshot(folder: &Path) -> anyhow::Result<u64> {
    let names = files(folder)?;
    let number = |path: &PathBuf| {
        let name = path.file_name()?.to_str()?.strip_prefix("snapshot-")?;
        name.split_once('-')?.1.parse::<u64>().ok()
    };
    Ok(names.iter().filter_map(number).max().unwrap_or(0))
}

/// Waits until a server's folder has a snapshot with a higher number, and returns that.
pub(in crate::bench) fn next_snapshot(folder: &Path, before: u64) -> anyhow::Result<u64> {
    let until = Instant::now() + WRITTEN_WITHIN;
    loop {
        match last_snapshot(folder)? {
            number if number > before => return Ok(number),
            _ if Instant::now() > until => {
                anyhow::bail!("no snapshot was written in {} within {WRITTEN_WITHIN:?}", folder.display())
            }
            _ => std::thread::sleep(LOOKS_EVERY),
        }
    }
}

/// Processes, each of which appends to a file of its own and syncs it.
pub(in crate::bench) struct Syncs(Staff);

impl Syncs {
    /// Starts a process at each location. What it appends has the size of a command with this many bytes in the log.
    pub(in crate::bench) fn start(
        bytes: usize,
        locations: &[Location],
        settings: &Settings,
    ) -> Result<Syncs, Problem> {
        let disks = Disks::new(locations.len() as u8, DurabilityChoice::Majority)?;
        let mut staff = Staff::new(bytes, Some(Rc::new(disks)), settings)?;
        staff.start_all(Part::Disk, locations)?;
        Ok(Syncs(staff))
    }

    /// Measures a block: all processes at once.
    pub(in crate::bench) fn turn(&mut self, side: &mut Side, block: usize) -> Result<(), Problem> {
        let usage = |_: &mut Staff| Ok(Usage::default());
        side.turn(&mut self.0, usage, |staff| staff.all_one_by_one((UNTIMED, block)))
    }
}

//! What rows and files that came and went leave in the snapshots on disk: nothing, for a snapshot has what is there when it
//! is made.

use super::target::ROWS;
use super::team::Team;
use super::worker::Seat;
use crate::bench::replica::disks::{files, last_snapshot, next_snapshot};
use crate::problem::Problem;
use crate::progress;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use unisono_dir::Table;

/// Bytes of commands after which each server has written a snapshot that was made after the last operation: more than a
/// server logs between two.
const FILL_BYTES: usize = 65 << 20;
/// Time within which a snapshot that is written counts, and interval of looking for it.
const COUNTS_WITHIN: Duration = Duration::from_secs(60);
const LOOKS_EVERY: Duration = Duration::from_millis(50);
/// A pause that is longer than 2 s is announced.
const SHORT: Duration = Duration::from_secs(2);

/// Ends the service after a further snapshot of each server. Returns the number of rows and files in these snapshots that
/// are not of the measured directory itself, of all servers together.
pub(super) fn count(mut team: Team) -> Result<u64, Problem> {
    let telling = progress::tell_if_long(SHORT, || "fills the logs until all servers write snapshots …");
    let last = |seat: &Seat| Ok((seat.data.clone(), last_snapshot(&seat.data)?));
    let before: anyhow::Result<Vec<(PathBuf, u64)>> = team.seats().iter().map(last).collect();
    let before = before.map_err(Problem::failed)?;
    team.fill_logs(FILL_BYTES)?;
    // A server that ends leaves the snapshot that it is writing.
    for (folder, number) in before {
        next_snapshot(&folder, number).map_err(Problem::failed)?;
    }
    for seat in team.seats() {
        wait_until_last_counts(seat).map_err(Problem::failed)?;
    }
    team.end_servers()?;
    team.dismiss();
    drop(telling);
    let mut left = 0;
    for seat in team.seats() {
        let found = left_by(seat).map_err(Problem::failed)?;
        left +=
            found.ok_or_else(|| Problem::failed(format!("server {} has written no snapshot", seat.id)))?;
    }
    Ok(left)
}

/// Returns the number of rows and files in a server's snapshot that are not of the measured directory itself; `None` if it
/// has no snapshot.
fn left_by(seat: &Seat) -> anyhow::Result<Option<u64>> {
    let parts = seat.disk().snapshot()?;
    if parts.is_empty() {
        return Ok(None);
    }
    let info = Table::restore(&parts)?.info();
    // The rows that are always there, and that of their directory.
    Ok(Some(info.rows.saturating_sub(ROWS as u64 + 1) + info.files))
}

/// Waits until the last snapshot of a server is the one that counts: its manifest alone is left, and the block was written
/// behind it.
fn wait_until_last_counts(seat: &Seat) -> anyhow::Result<()> {
    let until = Instant::now() + COUNTS_WITHIN;
    while !last_counts(&seat.data)? {
        if Instant::now() > until {
            anyhow::bail!(
                "the last snapshot in {} does not count after {COUNTS_WITHIN:?}",
                seat.data.display()
            );
        }
        std::thread::sleep(LOOKS_EVERY);
    }
    Ok(())
}

fn last_counts(folder: &Path) -> anyhow::Result<bool> {
    let files = files(folder)?;
    let is_manifest = |path: &&PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("snapshot-"))
    };
    let mut manifests = files.iter().filter(is_manifest);
    let (Some(manifest), None) = (manifests.next(), manifests.next()) else { return Ok(false) };
    let written = |path: &Path| fs::metadata(path).and_then(|metadata| metadata.modified());
    // The manifest may go between two looks.
    Ok(written(manifest).ok().is_some_and(|at| written(&folder.join("block")).is_ok_and(|block| block >= at)))
}

//! What rows and files that came and went leave in the snapshots on disk: nothing, for a snapshot has what is there when it
//! is made.

use super::target::ROWS;
use super::team::Team;
use super::worker::Seat;
use crate::bench::replica::disks::{last_snapshot, next_snapshot};
use crate::problem::Problem;
use crate::progress;
use std::path::PathBuf;
use std::time::Duration;
use unisono_dir::Table;

/// Bytes of commands after which each server has written a snapshot that was made after the last operation: more than a
/// server logs between two.
const FILL_BYTES: usize = 65 << 20;
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
    team.end_servers()?;
    team.dismiss();
    drop(telling);
    let mut left = 0;
    for seat in team.seats() {
        let parts = seat.disk().snapshot().map_err(Problem::failed)?;
        if parts.is_empty() {
            return Err(Problem::failed(format!("server {} has written no snapshot", seat.id)));
        }
        let info = Table::restore(&parts).map_err(Problem::failed)?.info();
        // The rows that are always there, and that of their directory.
        left += info.rows.saturating_sub(ROWS as u64 + 1) + info.files;
    }
    Ok(left)
}

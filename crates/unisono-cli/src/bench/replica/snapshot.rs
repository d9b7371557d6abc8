//! How long updates wait beside a snapshot that all servers write, and without one.

use super::Bench;
use super::disks::next_snapshot;
use super::worker::{Asks, PART_BYTES, Part};
use crate::bench::statistics::quantile;
use crate::output::rounded;
use crate::problem::Problem;
use crate::progress;
use serde_json::{Value, json};
use std::time::Duration;

/// Number of snapshots.
const SNAPSHOTS: usize = 5;
/// Bytes of commands after which servers write a snapshot.
const DUE_AFTER_BYTES: u64 = 64 << 20;
/// Bytes of commands that are left until a snapshot is due when the timed load begins.
const LEFT_BYTES: u64 = 1 << 20;
/// Bytes that a command takes in the log beside its payload, about.
const ENTRY_BYTES: u64 = 60;
/// Size of the commands that make a snapshot fall due.
const FILLING_BYTES: usize = 64 << 10;
/// Time of each load.
const LOADED: Duration = Duration::from_secs(3);
/// Smallest size of a timed command: with it a snapshot falls due early in the load.
const TIMED_BYTES_MIN: u64 = 1 << 10;
/// Commands under way.
const IN_FLIGHT: usize = 16;

impl Bench<'_> {
    /// Measures the slowest update of loads with a snapshot, between each two of which `parts` parts change, and of loads
    /// without one.
    pub(super) fn snapshot(&self, parts: u32) -> Result<(Vec<String>, Value), Problem> {
        let bytes = self.command.bytes.max(TIMED_BYTES_MIN);
        let mut staff = self.staff_with(bytes as usize)?;
        staff.start_all(Part::Server, &self.locations[..self.servers])?;
        let caller = staff.start(Part::Caller, &self.locations[self.servers])?.0;
        let folder = staff.disks().map(|disks| disks.seat(0).folder).unwrap_or_default();
        let (mut beside, mut without) = (Vec::new(), Vec::new());
        let (mut logged, mut shown) = (0, 0);
        let bar = progress::bar(SNAPSHOTS as u64, "snapshots");
        for round in 0..SNAPSHOTS {
            staff.change_parts(caller, parts, round as u32)?;
            let load = |staff: &mut super::Staff| -> Result<Vec<u64>, Problem> {
                staff.load(caller, Asks::Command, IN_FLIGHT, [Duration::ZERO, LOADED])?;
                Ok(staff.loaded(caller, LOADED)?.0)
            };
            let mut took = load(&mut staff)?;
            logged += took.len() as u64 * (bytes + ENTRY_BYTES);
            without.push(quantile(&mut took, 1.0));
            let left = DUE_AFTER_BYTES.saturating_sub(LEFT_BYTES + logged);
            let count = left / (FILLING_BYTES as u64 + ENTRY_BYTES);
            staff.give(caller, count as u32, FILLING_BYTES)?;
            logged += count * (FILLING_BYTES as u64 + ENTRY_BYTES);
            let mut took = load(&mut staff)?;
            logged = (logged + took.len() as u64 * (bytes + ENTRY_BYTES)).saturating_sub(DUE_AFTER_BYTES);
            beside.push(quantile(&mut took, 1.0));
            shown = next_snapshot(&folder, shown).map_err(Problem::failed)?;
            bar.inc(1);
        }
        bar.finish_and_clear();
        let us = |took: &mut Vec<u64>, part| rounded(quantile(took, part) as f64 / 1000.0);
        let [slowest, slowest_without] = [us(&mut beside, 1.0), us(&mut without, 1.0)];
        let [p50, p50_without] = [us(&mut beside, 0.5), us(&mut without, 0.5)];
        let lines = vec![
            format!(
                "{} servers, {bytes} bytes, {IN_FLIGHT} in flight, {}{}",
                self.servers,
                self.command.durability.words(),
                self.command.ground.words()
            ),
            format!("  {SNAPSHOTS} snapshots, {parts} parts of {} KiB change between two", PART_BYTES >> 10),
            format!("  slowest update   beside a snapshot {slowest} us, median of the loads {p50} us"),
            format!(
                "                   without one {slowest_without} us, median of the loads {p50_without} us"
            ),
        ];
        let figures = json!({
            "in_flight": IN_FLIGHT,
            "bytes": bytes,
            "parts": parts,
            "slowest_us": slowest,
            "slowest_without_us": slowest_without,
            "slowest_p50_us": p50,
            "slowest_without_p50_us": p50_without,
        });
        Ok((lines, figures))
    }
}

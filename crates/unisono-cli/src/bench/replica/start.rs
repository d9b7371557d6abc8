//! The start of servers with a large state on disk, beside the time in which their files are read.

use super::Bench;
use super::disks::Disks;
use super::worker::{ENTRIES_PER_PAGE, Part};
use crate::bench::statistics::quantile;
use crate::output::rounded;
use crate::problem::Problem;
use crate::progress;
use serde_json::{Value, json};
use std::time::Duration;

/// Entries of the state, of 100 bytes each.
const ENTRIES: u32 = 1_000_000;
/// Number of starts, and of times that the files are read.
const STARTS: usize = 5;

impl Bench<'_> {
    /// Measures how long all servers take from their start until each serves.
    pub(super) fn start(&self) -> Result<(Vec<String>, Value), Problem> {
        let servers = &self.locations[..self.servers];
        let mut staff = self.staff()?;
        staff.start_all(Part::Server, servers)?;
        staff.write_pages(0, ENTRIES / ENTRIES_PER_PAGE)?;
        let (mut starts, mut reads, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        let bar = progress::bar(STARTS as u64, "starts");
        for _ in 0..STARTS {
            let mut took = |part| -> Result<Duration, Problem> {
                staff.dismiss();
                staff.disks().map(Disks::evict).transpose()?;
                Ok(staff.start_all(part, servers)?.into_iter().max().unwrap_or_default())
            };
            let (read, started) = (took(Part::Reader)?, took(Part::Server)?);
            ratios.push(started.as_secs_f64() / read.as_secs_f64());
            starts.push(started.as_micros() as u64);
            reads.push(read.as_micros() as u64);
            bar.inc(1);
        }
        bar.finish_and_clear();
        ratios.sort_by(f64::total_cmp);
        let [p50, max] = [0.5, 1.0].map(|part| quantile(&mut starts, part));
        let (read, mb) = (quantile(&mut reads, 0.5), staff.disks().map_or(Ok(0), Disks::bytes)? / 1_000_000);
        let ratio = rounded(ratios[STARTS / 2]);
        let lines = vec![
            format!("{}, {ENTRIES} entries of 100 bytes, {STARTS} starts", self.title()),
            format!("  all serve after   p50 {} ms, at most {} ms", p50 / 1000, max / 1000),
            format!("  reading the files {} ms, {mb} MB: a start takes {ratio} times as long", read / 1000),
        ];
        let figures = json!({
            "p50_us": p50,
            "p99_us": max,
            "read_files_us": read,
            "files_mb": mb,
            "ratio_read": ratio,
            "ratio_spread": [rounded(ratios[0]), rounded(ratios[STARTS - 1])],
        });
        Ok((lines, figures))
    }
}

//! A server of a service with many rows is killed and comes back, while clients go on.

use super::Bench;
use super::steps::Kind;
use super::team::Team;
use crate::output::rounded;
use crate::problem::Problem;
use crate::progress;
use serde_json::{Value, json};
use std::time::Duration;

/// Rows unless another number is given.
const ROWS: u32 = 1_000_000;
/// Rows that are appended between two steps of the progress bar, and how many at a time.
const ROWS_PER_STEP: u32 = 10_000;
const APPENDED_AT_ONCE: usize = 512;
/// Time for the others to go on after the kill, 2 s.
const SETTLES: Duration = Duration::from_secs(2);
/// Time for which clients are counted while the server comes back, in steps, at most.
const STEP: Duration = Duration::from_millis(500);

impl Bench<'_> {
    /// Measures how long a server takes from its start until it serves, and what clients get meanwhile.
    pub(super) fn start(&self) -> Result<(Vec<String>, Value), Problem> {
        let rows = self.command.rows.unwrap_or(ROWS);
        let mut team = self.team(Kind::Directory, self.servers)?;
        fill(&mut team, rows)?;
        let counted = Duration::from_secs(self.command.seconds);
        let before = self.rate(&mut team, counted)?;
        let victim = self.servers.len() - 1;
        team.kill(victim)?;
        // Clients notice meanwhile that it is gone.
        self.rate(&mut team, SETTLES)?;
        let without = self.rate(&mut team, counted)?;
        team.start_again(victim, &self.servers[victim])?;
        let mut meanwhile = Vec::new();
        let back = loop {
            meanwhile.push(self.rate(&mut team, STEP)?);
            if let Some(took) = team.is_back(victim)? {
                break took;
            }
        };
        let slowest = meanwhile.iter().copied().fold(f64::INFINITY, f64::min);
        let all = meanwhile.iter().sum::<f64>() / meanwhile.len() as f64;
        let [of_all, of_slowest] = [all, slowest].map(|rate| rounded(rate / without.max(1.0)));
        let seconds = rounded(back.as_secs_f64());
        let lines = vec![
            format!("{}, {rows} rows", self.title()),
            format!("  it serves      {seconds} s after its start"),
            format!("  all servers    {} pairs/s", before.round()),
            format!("  one killed     {} pairs/s", without.round()),
            format!(
                "  it comes back  {} pairs/s: {of_all} of that, in the slowest half second {of_slowest}",
                all.round()
            ),
        ];
        let figures = json!({
            "rows": rows,
            "back_us": back.as_micros() as u64,
            "ops_before_per_s": before.round(),
            "ops_without_per_s": without.round(),
            "ops_meanwhile_per_s": all.round(),
            "ops_per_s": all.round(),
            "ratio_meanwhile": of_all,
            "ratio_meanwhile_slowest": of_slowest,
        });
        Ok((lines, figures))
    }

    /// Returns the operations per second of all clients for this time.
    fn rate(&self, team: &mut Team, counted: Duration) -> Result<f64, Problem> {
        let loaded = team.load(self.task(), self.command.in_flight as usize, [Duration::ZERO, counted])?;
        Ok(loaded.iter().map(|loaded| loaded.answered).sum::<u64>() as f64 / counted.as_secs_f64())
    }
}

fn fill(team: &mut Team, rows: u32) -> Result<(), Problem> {
    let bar = progress::bar(u64::from(rows), "rows");
    let mut from = 0;
    while from < rows {
        let count = ROWS_PER_STEP.min(rows - from);
        team.append_rows(from, count, APPENDED_AT_ONCE)?;
        from += count;
        bar.inc(u64::from(count));
    }
    bar.finish_and_clear();
    Ok(())
}

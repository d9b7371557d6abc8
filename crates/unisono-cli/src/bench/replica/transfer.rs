//! The transfer of a large state to a newcomer, beside large calls and beside updates.

use super::crew::Staff;
use super::worker::{Asks, PAGE_BYTES, Part};
use super::{Bench, UNTIMED_REPLICA_LOAD};
use crate::bench::statistics::quantile;
use crate::output::rounded;
use crate::problem::Problem;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Large replies under way at once.
const PAGES_IN_FLIGHT: usize = 8;
/// Size of the state that is transferred, in pages: 256 MiB.
const STATE_PAGES: u32 = 256;

impl Bench<'_> {
    /// Measures the transfer of a large state to a newcomer, beside as many large replies under way, and what it costs
    /// the commands that are given meanwhile.
    pub(super) fn transfer(&self) -> Result<(Vec<String>, Value), Problem> {
        let second = Duration::from_secs(1);
        // The server of the large calls runs where all members run, one of which is the donor; each newcomer runs where
        // their caller runs.
        let [donor_at, newcomer_at] = [&self.locations[0], &self.locations[self.servers]];
        let receives = STATE_PAGES as usize * PAGE_BYTES;
        let mut shelf = self.staff()?;
        shelf.start(Part::Shelf, donor_at)?;
        shelf.receives = receives;
        let (reader, _) = shelf.start(Part::Caller, newcomer_at)?;
        let by_calls = shelf.keep(reader, STATE_PAGES, PAGES_IN_FLIGHT)?;
        drop(shelf);
        let mut staff = self.staff()?;
        for index in 0..self.servers - 1 {
            staff.start(if index == 0 { Part::Founder } else { Part::Joiner }, donor_at)?;
        }
        staff.fill(0, STATE_PAGES)?;
        staff.receives = receives;
        // A transfer without updates is timed, and another one beside updates.
        let (_, alone) = staff.start(Part::Joiner, newcomer_at)?;
        let updates = |staff: &mut Staff, timed: Duration| -> Result<(), Problem> {
            staff.load(0, Asks::Command, 1, [UNTIMED_REPLICA_LOAD, timed])
        };
        updates(&mut staff, second)?;
        let before_per_s = staff.loaded(0, 2 * second)?.0.len() as f64;
        let (loads_for, begun) = (3 * alone + 3 * second, Instant::now() + UNTIMED_REPLICA_LOAD);
        updates(&mut staff, loads_for)?;
        let (_, beside) = staff.start(Part::Joiner, newcomer_at)?;
        let has_state = Instant::now().saturating_duration_since(begun);
        // One update follows the other, so their times say when each was answered.
        let (mut answered, mut meanwhile) = (Duration::ZERO, Vec::new());
        for took in staff.loaded(0, loads_for)?.0 {
            answered += Duration::from_nanos(took);
            if answered + beside >= has_state && answered <= has_state {
                meanwhile.push(took);
            }
        }
        updates(&mut staff, second)?;
        let after_per_s = staff.loaded(0, 2 * second)?.0.len() as f64;
        let meanwhile_per_s = meanwhile.len() as f64 / beside.as_secs_f64();
        let longest_us = rounded(quantile(&mut meanwhile, 1.0) as f64 / 1000.0);
        let (call_s, alone_s) = (by_calls.as_secs_f64(), alone.as_secs_f64());
        let ratio = rounded(call_s / alone_s);
        let mb_per_s = rounded(f64::from(STATE_PAGES) * PAGE_BYTES as f64 / alone_s / 1e6);
        let lines = vec![
            format!("{}, a state of {STATE_PAGES} MiB", self.title()),
            format!(
                "  transfer       {:.2} s, {mb_per_s} MB/s; beside updates {:.2} s",
                alone_s,
                beside.as_secs_f64()
            ),
            format!("  large calls    the same bytes in {call_s:.2} s: a transfer is {ratio} times as fast"),
            format!(
                "  updates        {before_per_s}/s before, {meanwhile_per_s:.0}/s meanwhile, {after_per_s}/s after; the slowest took \
                 {longest_us} us"
            ),
        ];
        let us = |seconds: f64| (seconds * 1e6).round();
        let figures = json!({
            "p50_us": us(alone_s),
            "p99_us": us(beside.as_secs_f64()),
            "call_p50_us": us(call_s),
            "mb_per_s": mb_per_s,
            "ratio_call": ratio,
            "updates_before_per_s": before_per_s.round(),
            "updates_meanwhile_per_s": meanwhile_per_s.round(),
            "updates_after_per_s": after_per_s.round(),
            "update_max_us": longest_us,
        });
        Ok((lines, figures))
    }
}

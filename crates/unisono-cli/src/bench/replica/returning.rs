//! A server of a service on disk with a large state is killed and comes back, while a caller keeps it under full load.

use super::Bench;
use super::crew::Staff;
use super::worker::{Asks, ENTRIES_PER_PAGE};
use crate::output::rounded;
use crate::problem::Problem;
use crate::progress;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Entries of the state, of 100 bytes each.
const ENTRIES: u32 = 1_000_000;
/// Fewest calls in flight: full load.
const IN_FLIGHT_MIN: u64 = 64;
/// Time for the others to go on after the kill, 2 s.
const SETTLES: Duration = Duration::from_secs(2);
/// Time of each rate that is taken while the server comes back.
const STEP: Duration = Duration::from_millis(500);
/// Time within which the server comes back.
const BACK_WITHIN: Duration = Duration::from_secs(120);

impl Bench<'_> {
    /// Measures the commands per second without one server, and while that server comes back.
    pub(super) fn come_back(&self) -> Result<(Vec<String>, Value), Problem> {
        let in_flight = self.command.in_flight.max(IN_FLIGHT_MIN);
        let mut staff = self.staff()?;
        let caller = staff.start_service(self.servers, &self.locations)?;
        staff.write_pages(0, ENTRIES / ENTRIES_PER_PAGE)?;
        let rate = |staff: &mut Staff, time: Duration| -> Result<f64, Problem> {
            staff.load(caller, Asks::Command, in_flight as usize, [Duration::ZERO, time])?;
            Ok(staff.loaded(caller, time)?.0.len() as f64 / time.as_secs_f64())
        };
        let timed = Duration::from_secs(self.command.seconds);
        let before = rate(&mut staff, timed)?;
        let victim = self.servers - 1;
        staff.kill(victim)?;
        // The caller notices meanwhile that it is gone.
        rate(&mut staff, SETTLES)?;
        let alone = rate(&mut staff, timed)?;
        let (back, until) =
            (staff.start_again(victim, &self.locations[victim])?, Instant::now() + BACK_WITHIN);
        let bar = progress::count("half seconds until the server is back");
        let mut meanwhile = Vec::new();
        let took = loop {
            meanwhile.push(rate(&mut staff, STEP)?);
            bar.inc(1);
            match staff.is_ready(back)? {
                Some(took) => break took,
                None if Instant::now() > until => {
                    return Err(Problem::failed(format!("the server was not back within {BACK_WITHIN:?}")));
                }
                None => {}
            }
        };
        bar.finish_and_clear();
        let slowest = meanwhile.iter().copied().fold(f64::INFINITY, f64::min);
        let beside = meanwhile.iter().sum::<f64>() / meanwhile.len() as f64;
        let [of_all, of_slowest] = [beside, slowest].map(|rate| rounded(rate / alone.max(1.0)));
        let [before, alone, beside, slowest] = [before, alone, beside, slowest].map(f64::round);
        let lines = vec![
            format!(
                "{} servers, {ENTRIES} entries of 100 bytes, {} bytes, {in_flight} in flight, {}{}",
                self.servers,
                self.command.bytes,
                self.command.durability.words(),
                self.command.ground.words()
            ),
            format!("  it serves      {} s after its start", rounded(took.as_secs_f64())),
            format!("  all servers    {before} commands/s"),
            format!("  one killed     {alone} commands/s"),
            format!(
                "  it comes back  {beside} commands/s: {of_all} of that, in the slowest half second {of_slowest}"
            ),
        ];
        let figures = json!({
            "in_flight": in_flight,
            "entries": ENTRIES,
            "back_us": took.as_micros() as u64,
            "before_per_s": before,
            "alone_per_s": alone,
            "beside_per_s": beside,
            "slowest_half_second_per_s": slowest,
        });
        Ok((lines, figures))
    }
}

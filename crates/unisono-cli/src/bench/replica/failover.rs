//! How long a caller waits when a server is killed.

use super::Bench;
use super::worker::Asks;
use crate::bench::side::UNTIMED;
use crate::bench::statistics::quantile;
use crate::problem::Problem;
use crate::progress;
use serde_json::{Value, json};
use std::time::Duration;

/// Trials of a failover, and the time for which each is watched.
const FAILOVERS: usize = 8;
const WATCHED: Duration = Duration::from_secs(2);

impl Bench<'_> {
    /// Measures how long a caller waits when a server is killed: in each trial a new service, whose founder dies.
    pub(super) fn failover(&self) -> Result<(Vec<String>, Value), Problem> {
        let bar = progress::bar(FAILOVERS as u64, "trials");
        let (mut pauses, mut by_victim) = (Vec::new(), [Vec::new(), Vec::new()]);
        for trial in 0..FAILOVERS {
            let mut staff = self.staff()?;
            let caller = staff.start_service(self.servers, &self.locations)?;
            staff.one_by_one(caller, Asks::Command, (UNTIMED, 100))?;
            // Every other time a server that is not the sequencer.
            let victim = trial % 2;
            let pause = staff.kill_while_watched((caller, victim), Asks::Command, WATCHED)?;
            let pause = u64::try_from(pause.as_micros()).unwrap_or(u64::MAX);
            pauses.push(pause);
            by_victim[victim].push(pause);
            bar.inc(1);
        }
        bar.finish_and_clear();
        let [of_sequencer, of_other] = by_victim.map(|mut pauses| quantile(&mut pauses, 0.5));
        let [p50, max] = [0.5, 1.0].map(|part| quantile(&mut pauses, part));
        let lines = vec![
            format!("{}, one server killed, {FAILOVERS} trials", self.title()),
            format!("  a caller waits p50 {} ms, at most {} ms", p50 / 1000, max / 1000),
            format!(
                "  by server      sequencer p50 {} ms, another p50 {} ms",
                of_sequencer / 1000,
                of_other / 1000
            ),
        ];
        Ok((
            lines,
            json!({
                "p50_us": p50, "p99_us": max, "max_us": max, "trials": FAILOVERS,
                "sequencer_p50_us": of_sequencer, "other_p50_us": of_other,
            }),
        ))
    }
}

//! Operations under load: of one service, and of services of growing numbers of servers and clients, which is what Figs. 8
//! and 9 of the paper show.

use super::steps::Kind;
use super::team::Team;
use super::worker::Task;
use super::{Bench, Dir, Op, Prepared};
use crate::bench::Summary;
use crate::bench::rpc::crew::Calling;
use crate::bench::rpc::worker::Loaded;
use crate::bench::statistics::{Ratio, median};
use crate::output::{Output, rounded};
use crate::problem::Problem;
use crate::progress;
use crate::settings::Settings;
use hdrhistogram::Histogram;
use serde_json::json;
use std::time::Duration;

/// Number of rounds under load.
const LOAD_ROUNDS: u32 = 5;
/// Time at the beginning of a load that is not measured, 200 ms, until it is steady.
const UNTIMED_LOAD: Duration = Duration::from_millis(200);

/// The operations under load.
pub(super) struct Load {
    pub(super) per_s: f64,
    pub(super) p50_us: f64,
    /// Null calls per second with as many in flight, to as many plain servers; measured beside lookups.
    pub(super) calls_per_s: Option<f64>,
    pub(super) ratio_calls: Option<Ratio>,
    pub(super) busiest_over_idlest: f64,
    /// Part of the requests that each server was asked.
    pub(super) shares: Vec<f64>,
}

impl Bench<'_> {
    /// Measures operations of all clients at once.
    pub(super) fn load(&self, team: &mut Team, task: Task) -> Result<Load, Problem> {
        let in_flight = self.command.in_flight as usize;
        let times = [UNTIMED_LOAD, Duration::from_secs(self.command.seconds) / LOAD_ROUNDS];
        let mut calling = match self.command.op {
            Op::Lookup => {
                let locations = [self.servers, self.clients].concat();
                Some(Calling::start(&locations, self.servers.len(), 0, &self.ground.settings)?)
            }
            _ => None,
        };
        let (mut rounds, mut calls) = (Vec::new(), Vec::new());
        let mut took = Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 3).map_err(Problem::failed)?;
        let per_s = |loaded: &[Loaded]| {
            loaded.iter().map(|loaded| loaded.answered).sum::<u64>() as f64 / times[1].as_secs_f64()
        };
        let before = team.served()?;
        let bar = progress::bar(u64::from(LOAD_ROUNDS), "rounds under load");
        for _ in 0..LOAD_ROUNDS {
            if let Some(calling) = &mut calling {
                calls.push(per_s(&calling.load(in_flight, times[0], times[1])?));
            }
            let loaded = team.load(task, in_flight, times)?;
            rounds.push(per_s(&loaded));
            for (ns, count) in loaded.into_iter().flat_map(|loaded| loaded.took) {
                took.saturating_record_n(ns, count);
            }
            bar.inc(1);
        }
        bar.finish_and_clear();
        let served: Vec<u64> =
            team.served()?.iter().zip(before).map(|(after, before)| after - before).collect();
        let [busiest, idlest] =
            [served.iter().max(), served.iter().min()].map(|end| *end.unwrap_or(&0) as f64);
        let all: u64 = served.iter().sum();
        let ratio_calls = calling.as_ref().map(|_| Ratio::of(&rounds, &calls));
        Ok(Load {
            per_s: median(&mut rounds).round(),
            p50_us: rounded(took.value_at_quantile(0.5) as f64 / 1000.0),
            calls_per_s: calling.map(|_| median(&mut calls).round()),
            ratio_calls,
            busiest_over_idlest: rounded(busiest / idlest.max(1.0)),
            shares: served.iter().map(|served| rounded(*served as f64 / all.max(1) as f64)).collect(),
        })
    }
}

/// Measures a service for each number of servers and clients, and prints a row for each.
pub(super) fn sweep(command: &Dir, settings: &Settings, output: &Output) -> Result<(), Problem> {
    for servers in 1..=command.servers {
        for clients in doubled(command.clients) {
            let command = Dir { servers, clients, ..command.clone() };
            let prepared = Prepared::new(&command, settings)?;
            let bench = prepared.bench(&command);
            let mut team = bench.team(Kind::Directory, bench.servers)?;
            let load = bench.load(&mut team, bench.task())?;
            let lines = vec![format!(
                "{}: {} {}/s, p50 {} us, busiest server {} times the idlest",
                bench.title(),
                load.per_s,
                command.op.words()[1],
                load.p50_us,
                load.busiest_over_idlest
            )];
            let figures = json!({
                "ops_per_s": load.per_s,
                "p50_us": load.p50_us,
                "calls_per_s": load.calls_per_s,
                "ratio_calls_per_s": load.ratio_calls.as_ref().map(|ratio| ratio.median),
                "busiest_over_idlest": load.busiest_over_idlest,
                "server_shares": load.shares,
            });
            Summary::new(lines, bench.object(&figures)).tell(output)?;
        }
    }
    Ok(())
}

/// Returns 1, 2, 4, … up to this number.
fn doubled(last: u64) -> impl Iterator<Item = u64> {
    std::iter::successors(Some(1), |count| Some(count * 2))
        .take_while(move |count| *count < last)
        .chain([last])
}

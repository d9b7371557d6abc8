//! Runs many seeds on all processors and sums up what came of them.
//!
//! Each seed runs on one thread and depends on nothing but itself, so how many threads there are changes the time and
//! nothing else. One seed in ten runs twice: a run that cannot be repeated would make every failure worthless.

use crate::calls;
use crate::director::{Director, Finding};
use crate::plan::Profile;
use crate::properties::Violation;
use crate::record::mix;
use crate::recorder::Totals;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use unisono_core::{Planted, Probe, Time};

/// What to run.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Which seeds.
    pub seeds: RangeInclusive<u64>,
    /// Which worlds they draw.
    pub profile: Profile,
    /// On so many threads; on as many as there are processors, if nothing is said.
    pub threads: Option<usize>,
    /// No seed begins later than this after the first.
    pub time_max: Option<Duration>,
}

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Seeds done.
    pub done: u64,
    /// Seeds to do in all.
    pub total: u64,
    /// Seeds that failed.
    pub failed: u64,
}

/// What came of a run, as it goes to scripts.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// Always `sim`.
    pub command: &'static str,
    /// Which worlds were drawn.
    pub profile: Profile,
    /// Seeds that ran.
    pub seeds: u64,
    /// Seeds that failed.
    pub failed: Vec<u64>,
    /// Seconds of the simulated worlds, all seeds together.
    pub simulated_s: f64,
    /// Seconds that it took.
    pub wall_s: f64,
    /// Simulated seconds in one second of one thread; seeds that ran twice count twice.
    pub speedup: f64,
    /// On so many threads.
    pub threads: usize,
    /// Messages whose senders learned their place.
    pub messages: u64,
    /// Calls that were answered.
    pub calls: u64,
    /// Epochs that began with a reset.
    pub resets: u64,
    /// Members and joiners that crashed.
    pub crashes: u64,
    /// Times that the network fell apart.
    pub partitions: u64,
    /// Datagrams that members sent; a multicast counts once.
    pub datagrams: u64,
    /// How often each property found its promise kept.
    pub properties: BTreeMap<&'static str, u64>,
    /// Sixteen hexadecimal digits that change with what members did and sent in these seeds, and with nothing else.
    pub fingerprint: String,
    /// Rare states that were met.
    pub probes_hit: usize,
    /// Rare states that there are.
    pub probes: usize,
    /// Those that were not met.
    pub probes_missed: Vec<String>,
    /// What the failed seeds died of.
    pub failures: Vec<Failure>,
}

/// A seed that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// Which.
    pub seed: u64,
    /// The promise that was broken.
    pub property: String,
    /// When, in microseconds of the simulated world.
    pub at_us: u64,
    /// What happened.
    pub reason: String,
    /// The command that shows it again.
    pub replay: String,
}

/// Runs seeds. `progress` is told after each, from whichever thread ran it.
pub fn run(options: &RunOptions, progress: &(dyn Fn(Progress) + Sync)) -> Summary {
    let begin = Instant::now();
    let threads = threads(options.threads);
    let (first, last) = (*options.seeds.start(), *options.seeds.end());
    let total = last.saturating_sub(first).saturating_add(1);
    let begun = AtomicU64::new(0);
    let is_late = || options.time_max.is_some_and(|most| begin.elapsed() >= most);
    let tally = Mutex::new(Tally::default());
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let place = begun.fetch_add(1, Ordering::Relaxed);
                    if place >= total || is_late() {
                        break;
                    }
                    let seed = first + place;
                    let finding = check_seed(seed, options.profile);
                    let mut tally = tally.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                    tally.add(seed, options.profile, finding);
                    progress(Progress { done: tally.seeds, total, failed: tally.failures.len() as u64 });
                }
            });
        }
    });
    let tally = tally.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    tally.sum_up(options.profile, threads, begin.elapsed())
}

/// So many threads, or one for each processor.
pub(crate) fn threads(wanted: Option<usize>) -> usize {
    wanted.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from)).max(1)
}

/// Whether a seed is run twice.
fn is_repeated(seed: u64) -> bool {
    seed.is_multiple_of(10)
}

/// Runs a seed; one in ten a second time, to see that the same happens again.
fn check_seed(seed: u64, profile: Profile) -> Finding {
    let mut finding = run_seed(seed, profile, None);
    if is_repeated(seed) && run_seed(seed, profile, None).fingerprint != finding.fingerprint {
        let at = Time::from_nanos(finding.simulated);
        let what = "the same seed ran differently the second time".to_string();
        finding.violation.get_or_insert(Violation { property: "deterministic", at, what });
    }
    finding
}

/// Runs a seed once. A panic is a broken promise like any other.
pub(crate) fn run_seed(seed: u64, profile: Profile, planted: Option<Planted>) -> Finding {
    catch_unwind(AssertUnwindSafe(|| direct(seed, profile, planted, None))).unwrap_or_else(|panic| {
        let words = panic.downcast_ref::<String>().cloned();
        let what = words.or_else(|| panic.downcast_ref::<&str>().map(|words| words.to_string()));
        Finding {
            violation: Some(Violation {
                property: "no_panic",
                at: Time::ZERO,
                what: what.unwrap_or_default(),
            }),
            totals: Totals::default(),
            checked: Vec::new(),
            probes: 0,
            fingerprint: 0,
            simulated: 0,
        }
    })
}

/// Runs a seed in the kind of world that the profile asks for.
pub(crate) fn direct(
    seed: u64,
    profile: Profile,
    planted: Option<Planted>,
    trace: Option<Box<dyn Write>>,
) -> Finding {
    match profile {
        Profile::Calls => calls::Director::new(seed, profile, planted, trace).run(),
        _ => Director::new(seed, profile, planted, trace).run(),
    }
}

#[derive(Default)]
struct Tally {
    seeds: u64,
    simulated: u64,
    repeated: u64,
    totals: Totals,
    properties: BTreeMap<&'static str, u64>,
    fingerprint: u64,
    probes: u128,
    failures: Vec<Failure>,
}

impl Tally {
    fn add(&mut self, seed: u64, profile: Profile, finding: Finding) {
        self.seeds += 1;
        self.simulated += finding.simulated;
        if is_repeated(seed) {
            self.repeated += finding.simulated;
        }
        self.totals.add(&finding.totals);
        for (name, times) in finding.checked {
            *self.properties.entry(name).or_default() += times;
        }
        // A sum, as seeds end in any order.
        self.fingerprint = self.fingerprint.wrapping_add(mix(finding.fingerprint, seed));
        self.probes |= finding.probes;
        if let Some(violation) = finding.violation {
            self.failures.push(Failure {
                seed,
                property: violation.property.to_string(),
                at_us: violation.at.as_nanos() / 1_000,
                reason: violation.what,
                replay: format!("unisono sim replay {seed} --profile {profile}"),
            });
        }
    }

    fn sum_up(mut self, profile: Profile, threads: usize, wall: Duration) -> Summary {
        self.failures.sort_by_key(|failure| failure.seed);
        // A world of groups has none of the rare states of calls, and the other way round.
        let is_of_calls = profile == Profile::Calls;
        let probes = Probe::ALL.iter().filter(|probe| probe.is_of_calls() == is_of_calls);
        let missed = probes.clone().filter(|probe| self.probes & (1 << **probe as u32) == 0);
        let (probes, probes_missed) = (probes.count(), missed.map(|probe| format!("{probe:?}")));
        let probes_missed: Vec<String> = probes_missed.collect();
        let seconds = |nanos: u64| nanos as f64 / 1e9;
        Summary {
            command: "sim",
            profile,
            seeds: self.seeds,
            failed: self.failures.iter().map(|failure| failure.seed).collect(),
            simulated_s: seconds(self.simulated),
            wall_s: wall.as_secs_f64(),
            speedup: seconds(self.simulated + self.repeated) / (wall.as_secs_f64() * threads as f64),
            threads,
            messages: self.totals.messages,
            calls: self.totals.calls,
            resets: self.totals.resets,
            crashes: self.totals.crashes,
            partitions: self.totals.partitions,
            datagrams: self.totals.datagrams,
            properties: self.properties,
            fingerprint: format!("{:016x}", self.fingerprint),
            probes_hit: probes - probes_missed.len(),
            probes,
            probes_missed,
            failures: self.failures,
        }
    }
}

/// Runs seeds `0..` in order until one satisfies `is_wanted`, on so many threads; at most `seeds_max`. Which one is
/// found does not depend on the threads.
pub(crate) fn find_first<T: Send>(
    seeds_max: u64,
    threads: usize,
    try_seed: impl Fn(u64) -> Option<T> + Sync,
) -> Option<(u64, T)> {
    let next = AtomicU64::new(0);
    let is_found = AtomicBool::new(false);
    let found: Mutex<Option<(u64, T)>> = Mutex::new(None);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                // Seeds begin in order: when one is found, all before it have begun, and will be seen through.
                while !is_found.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds_max {
                        break;
                    }
                    if let Some(value) = try_seed(seed) {
                        is_found.store(true, Ordering::Relaxed);
                        let mut found = found.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                        if found.as_ref().is_none_or(|(earlier, _)| seed < *earlier) {
                            *found = Some((seed, value));
                        }
                    }
                }
            });
        }
    });
    found.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_seed_follows_the_last_there_is() {
        let (profile, threads, time_max) = (Profile::Perf, Some(2), Some(Duration::from_secs(60)));
        let seeds = u64::MAX - 1..=u64::MAX;
        let summary = run(&RunOptions { seeds, profile, threads, time_max }, &|_| {});
        assert_eq!((summary.seeds, summary.failed), (2, Vec::new()));
    }

    #[test]
    fn the_first_seed_is_found_whatever_the_threads_do() {
        for threads in 1..5 {
            assert_eq!(find_first(100, threads, |seed| (seed >= 17).then_some(seed * 2)), Some((17, 34)));
        }
        assert_eq!(find_first(10, 2, |seed| (seed >= 17).then_some(())), None);
    }
}

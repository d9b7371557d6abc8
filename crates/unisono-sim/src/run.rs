//! Runs many seeds on all processors and summarises the results.
//!
//! Each seed runs on one thread and depends on nothing else, so the number of threads changes only the duration. One
//! seed in ten runs twice: a run that cannot be repeated would make every failure worthless.

use crate::bugs::Planted;
use crate::calls;
use crate::director::{Director, Finding};
use crate::plan::Profile;
use crate::properties::Violation;
use crate::record::mix;
use crate::recorder::Totals;
use crate::replica;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use unisono_core::{Probe, Time};

/// What to run.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The seeds to run.
    pub seeds: RangeInclusive<u64>,
    /// The profile from which each seed draws its world.
    pub profile: Profile,
    /// Number of threads; `None` means one for each processor.
    pub threads: Option<usize>,
    /// Time after which no further seed is started.
    pub time_max: Option<Duration>,
}

/// Progress of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Seeds that have been run.
    pub done: u64,
    /// Total number of seeds.
    pub total: u64,
    /// Seeds that failed so far.
    pub failed: u64,
}

/// The results of a run, in the form that is printed as JSON.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// Always `sim`.
    pub command: &'static str,
    /// The profile from which the worlds were drawn.
    pub profile: Profile,
    /// Number of seeds that ran.
    pub seeds: u64,
    /// The seeds that failed.
    pub failed: Vec<u64>,
    /// Simulated seconds, of all seeds together.
    pub simulated_s: f64,
    /// Real seconds that the run took.
    pub wall_s: f64,
    /// Simulated seconds per second of one thread; seeds that ran twice count twice.
    pub speedup: f64,
    /// Number of threads.
    pub threads: usize,
    /// Messages whose senders learned their seqno.
    pub messages: u64,
    /// Messages that applications received before their seqno.
    pub early: u64,
    /// Messages that members put before a reset event because one had delivered them early, each counted at every member.
    pub tails: u64,
    /// Unreliable messages that applications received.
    pub unreliable: u64,
    /// Calls that were answered.
    pub calls: u64,
    /// Epochs that began with a reset.
    pub resets: u64,
    /// Times that groups changed their order.
    pub switches: u64,
    /// Times that members passed the tokens of their groups on.
    pub passes: u64,
    /// Locks that members of replicated services got.
    pub locks: u64,
    /// Members and joiners that crashed.
    pub crashes: u64,
    /// Number of partitions.
    pub partitions: u64,
    /// Datagrams that members sent; a multicast counts once.
    pub datagrams: u64,
    /// How often each checker found its promise kept.
    pub properties: BTreeMap<&'static str, u64>,
    /// Fingerprint of all seeds, 16 hexadecimal digits. Changes with what members did and sent, and with nothing else.
    pub fingerprint: String,
    /// Number of probes (rare states) that were hit.
    pub probes_hit: usize,
    /// Number of probes.
    pub probes: usize,
    /// Names of the probes that were not hit.
    pub probes_missed: Vec<String>,
    /// The violations of the failed seeds.
    pub failures: Vec<Failure>,
}

/// A seed that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// Name of the violated property.
    pub property: String,
    /// Simulated time of the violation in microseconds.
    pub at_us: u64,
    /// What happened.
    pub reason: String,
    /// Command that reproduces the violation.
    pub replay: String,
}

/// Runs seeds and returns the summary. `progress` is called after each seed, on the thread that ran it.
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
                    let index = begun.fetch_add(1, Ordering::Relaxed);
                    if index >= total || is_late() {
                        break;
                    }
                    let seed = first + index;
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

/// Returns the number of threads: `wanted`, or one for each processor.
pub(crate) fn threads(wanted: Option<usize>) -> usize {
    wanted.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from)).max(1)
}

/// True for seeds that are run twice.
fn is_repeated(seed: u64) -> bool {
    seed.is_multiple_of(10)
}

/// Runs a seed. Seeds divisible by ten run a second time, to verify that the result is the same.
fn check_seed(seed: u64, profile: Profile) -> Finding {
    let mut finding = run_seed(seed, profile, None);
    if is_repeated(seed) && run_seed(seed, profile, None).fingerprint != finding.fingerprint {
        let at = Time::from_nanos(finding.simulated);
        let what = "the same seed ran differently the second time".to_string();
        finding.violation.get_or_insert(Violation { property: "deterministic", at, what });
    }
    finding
}

/// Runs a seed once. A panic is reported as a violation.
pub(crate) fn run_seed(seed: u64, profile: Profile, planted: Option<Planted>) -> Finding {
    guarded(|| run_profile(seed, profile, planted, None))
}

/// Runs something that may panic, which is reported as a violation.
pub(crate) fn guarded(run: impl FnOnce() -> Finding) -> Finding {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let message = panic.downcast_ref::<String>().cloned();
        let what = message.or_else(|| panic.downcast_ref::<&str>().map(|message| message.to_string()));
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

/// Runs a seed in a world of the profile's kind: a group, calls, or a replicated service.
pub(crate) fn run_profile(
    seed: u64,
    profile: Profile,
    planted: Option<Planted>,
    trace: Option<Box<dyn Write>>,
) -> Finding {
    match profile {
        Profile::Calls => calls::Director::new(seed, profile, planted, trace).run(),
        Profile::Replica | Profile::Directory => replica::Director::new(seed, profile, planted, trace).run(),
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
        // A sum, because seeds end in any order.
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
        // A run of groups hits no probes of calls, and the reverse.
        let is_of = |probe: &&Probe| match profile {
            Profile::Calls => probe.is_of_calls(),
            Profile::Replica | Profile::Directory => probe.is_of_replicas(),
            _ => !probe.is_of_calls() && !probe.is_of_replicas(),
        };
        let probes = Probe::ALL.iter().filter(is_of);
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
            early: self.totals.early,
            tails: self.totals.tails,
            unreliable: self.totals.unreliable,
            calls: self.totals.calls,
            resets: self.totals.resets,
            switches: self.totals.switches,
            passes: self.totals.passes,
            locks: self.totals.locks,
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

/// Runs seeds `0..seeds_max` on `threads` threads until `try_seed` returns a value for one. Returns the first such seed
/// and its value. The result does not depend on the number of threads.
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
                // Seeds begin in order: when one is found, all earlier seeds have begun and are run to their end.
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
    fn no_seed_follows_the_largest_number() {
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

//! Enumerates histories: every order of at most four crashes and returns of three servers with disks, at every effect of
//! the script that they run, also with marks withheld.
//!
//! An effect is a disk that begins or has done a job, a command that is applied, or a server that begins to serve. The
//! script creates the service and gives it three commands. A *step* is the crash of one server, the crash of all that are
//! up, or the return of one; it comes at an effect, or when nothing happens any more. With durability *majority* a step may
//! also withhold the marks of one server from another one: from the moment at which the first is about to say one until the
//! steps are over. Then, if the same servers stay, they must apply all that they hold within a second. Such a history has at
//! most three steps. When the steps are over, each majority of the servers that contains those that are up comes back first,
//! then all, and callers ask for what the service has. With one or two slow disks this is done again, with at most two steps.
//!
//! Of points that cannot be told from each other (equal disks, memories and callers, whatever the names of the servers:
//! `Moment`), a step is taken at the first one only. Histories grow step by step, so that the first one that fails is
//! among the shortest.

use crate::bugs::Planted;
use crate::properties::Violation;
use crate::replica::{Event, History, SERVERS, Seen, Step, play};
use crate::run::{guarded, threads};
use serde::Serialize;
use std::collections::BTreeSet;
use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;
use unisono_core::replica::disk::DiskDurability;

/// Most steps of a history.
pub const STEPS_MAX: usize = 4;

/// Servers whose disks are slow, and most steps of such a history.
const SLOW: [(&[u8], usize); 4] =
    [(&[], STEPS_MAX), (&[1], SLOW_STEPS), (&[3], SLOW_STEPS), (&[2, 3], SLOW_STEPS)];
const SLOW_STEPS: usize = 2;
/// Most steps of a history that withholds marks, and how often it does that at most.
const WITHHOLDING_STEPS: usize = 3;
const WITHHELD_MAX: usize = 2;

/// What to enumerate.
#[derive(Clone, Debug)]
pub struct EnumerateOptions {
    /// How many disks hold a command before it is answered.
    pub durability: DiskDurability,
    /// Most steps of a history; at most [`STEPS_MAX`].
    pub steps: usize,
    /// Number of threads; `None` means one for each processor.
    pub threads: Option<usize>,
    /// A bug to plant.
    pub planted: Option<Planted>,
}

/// The results, in the form that is printed as JSON.
#[derive(Clone, Debug, Serialize)]
pub struct EnumerateSummary {
    /// Always `enumerate`.
    pub command: &'static str,
    /// `majority` or `one`.
    pub durability: &'static str,
    /// Number of histories that were run.
    pub histories: u64,
    /// Points at which a step was taken, by the number of the step.
    pub points: Vec<u64>,
    /// The histories that failed.
    pub failed: Vec<FailedHistory>,
    /// Real seconds that it took.
    pub wall_s: f64,
}

/// A history that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FailedHistory {
    /// The history.
    pub history: String,
    /// Name of the violated property.
    pub property: String,
    /// What happened.
    pub reason: String,
    /// Command that reproduces the violation.
    pub replay: String,
}

/// Runs one history, and returns the violation if there is one. `trace` receives what happens, line by line.
pub fn replay(
    history: &History,
    planted: Option<Planted>,
    trace: Option<Box<dyn Write>>,
) -> Option<Violation> {
    run(history, planted, trace).0
}

fn run(
    history: &History,
    planted: Option<Planted>,
    trace: Option<Box<dyn Write>>,
) -> (Option<Violation>, Vec<Seen>) {
    let mut seen = Vec::new();
    let finding = guarded(|| {
        let (finding, moments) = play(history, planted, trace);
        seen = moments;
        finding
    });
    (finding.violation, seen)
}

/// Enumerates histories. `progress` is called after each with the number of those that were run.
pub fn enumerate(options: &EnumerateOptions, progress: &(dyn Fn(u64) + Sync)) -> EnumerateSummary {
    let begin = Instant::now();
    let mut search =
        Search { options, progress, known: BTreeSet::new(), run: AtomicU64::new(0), failed: Vec::new() };
    let root =
        |slow: &[u8]| History { durability: options.durability, slow: slow.to_vec(), ..History::default() };
    let mut frontier: Vec<History> = SLOW.iter().map(|(slow, _)| root(slow)).collect();
    let mut points = Vec::new();
    for steps in 0..=options.steps.min(STEPS_MAX) {
        points.push(frontier.len() as u64);
        frontier = search.extend(frontier, |history| steps < options.steps.min(steps_max(history)));
        if frontier.is_empty() {
            break;
        }
    }
    EnumerateSummary {
        command: "enumerate",
        durability: name(options.durability),
        histories: search.run.into_inner(),
        points,
        failed: search.failed,
        wall_s: begin.elapsed().as_secs_f64(),
    }
}

fn steps_max(history: &History) -> usize {
    let steps = SLOW.iter().find(|(slow, _)| *slow == history.slow).map_or(0, |(_, steps)| *steps);
    if history.withheld() > 0 { steps.min(WITHHOLDING_STEPS) } else { steps }
}

/// Failures after which an enumeration ends.
const FAILURES_MAX: usize = 10;

struct Search<'a> {
    options: &'a EnumerateOptions,
    progress: &'a (dyn Fn(u64) + Sync),
    /// The moments after a step that is or was taken.
    known: BTreeSet<u64>,
    run: AtomicU64,
    failed: Vec<FailedHistory>,
}

/// What came of a history: how its ends failed, and what may follow it.
#[derive(Default)]
struct Came {
    failed: Vec<FailedHistory>,
    next: Vec<(Step, u64)>,
}

impl Search<'_> {
    /// Runs all histories, each with all ends, and returns those that have one step more.
    fn extend(&mut self, histories: Vec<History>, goes_on: impl Fn(&History) -> bool + Sync) -> Vec<History> {
        let begun = AtomicUsize::new(0);
        let failures = AtomicUsize::new(self.failed.len());
        let came: Mutex<Vec<(usize, Came)>> = Mutex::default();
        let this = &*self;
        thread::scope(|scope| {
            for _ in 0..threads(self.options.threads) {
                scope.spawn(|| {
                    while failures.load(Ordering::Relaxed) < FAILURES_MAX {
                        let index = begun.fetch_add(1, Ordering::Relaxed);
                        let Some(history) = histories.get(index) else { break };
                        let result = this.try_ends(history, goes_on(history));
                        failures.fetch_add(result.failed.len(), Ordering::Relaxed);
                        let mut came = came.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                        came.push((index, result));
                    }
                });
            }
        });
        let mut came = came.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
        // Histories end in any order.
        came.sort_by_key(|(index, _)| *index);
        let mut longer = Vec::new();
        for (index, came) in came {
            self.failed.extend(came.failed);
            for (step, key) in came.next {
                if self.known.insert(key) {
                    let mut history = histories[index].clone();
                    history.steps.push(step);
                    longer.push(history);
                }
            }
        }
        match self.failed.len() < FAILURES_MAX {
            true => longer,
            false => Vec::new(),
        }
    }

    /// Runs a history with all its ends.
    fn try_ends(&self, history: &History, goes_on: bool) -> Came {
        let mut came = Came::default();
        for (index, last) in ends(&history.up()).into_iter().enumerate() {
            let history = History { last, ..history.clone() };
            let (violation, seen) = run(&history, self.options.planted, None);
            (self.progress)(1 + self.run.fetch_add(1, Ordering::Relaxed));
            came.failed.extend(violation.map(|violation| self.failure(&history, &violation)));
            // What may follow the steps is the same whatever comes at the end.
            if index == 0 && goes_on {
                let may_withhold = self.may_withhold(&history);
                came.next = seen.iter().flat_map(|seen| next(seen, may_withhold)).collect();
            }
        }
        came
    }

    /// True if the next step of a history may withhold marks. Another step must be able to follow it: marks that are only
    /// late are of less interest.
    fn may_withhold(&self, history: &History) -> bool {
        let steps_max = self.options.steps.min(steps_max(history)).min(WITHHOLDING_STEPS);
        let others = history.steps.len() - history.withheld();
        history.withheld() < WITHHELD_MAX && (others + 1 < steps_max || self.options.steps == 1)
    }

    fn failure(&self, history: &History, violation: &Violation) -> FailedHistory {
        FailedHistory {
            history: history.to_string(),
            property: violation.property.to_string(),
            reason: violation.what.clone(),
            replay: replay_command(history, self.options.planted),
        }
    }
}

/// Returns the command that runs a history.
pub fn replay_command(history: &History, planted: Option<Planted>) -> String {
    let durability = name(history.durability);
    let planted = planted.map_or(String::new(), |bug| format!(" --planted {bug:?}"));
    format!("unisono sim enumerate --durability {durability} --history '{history}'{planted}")
}

/// Returns the servers that may come back first: the majorities that contain those that are up; empty stands for all.
fn ends(up: &[u8]) -> Vec<Vec<u8>> {
    let all = SERVERS as u8;
    let pairs = (1..=all).flat_map(|first| (first + 1..=all).map(move |second| vec![first, second]));
    let pairs = pairs.filter(|pair| up.iter().all(|server| pair.contains(server)));
    let everyone = matches!(up.len(), 0 | SERVERS).then(Vec::new);
    everyone.into_iter().chain(pairs).collect()
}

/// Returns the steps that may be taken at a point, and the keys of the moments after them. A server crashes at what it did
/// itself: what others do meanwhile does not change what it has done.
fn next(seen: &Seen, may_withhold: bool) -> Vec<(Step, u64)> {
    let Seen { at, server, says_mark, moment } = seen;
    let servers = || 1..=SERVERS as u8;
    let senders =
        servers().filter(|id| may_withhold && *says_mark && server.is_none_or(|server| server == *id));
    let pairs = senders.flat_map(|from| servers().filter(move |to| *to != from).map(move |to| (from, to)));
    let withholds = pairs.map(|(from, to)| Event::Withhold(from, to));
    let crashes = servers().filter(|id| server.is_none_or(|server| server == *id)).map(Event::Crash);
    let events = crashes.chain([Event::Power]).chain(servers().map(Event::Return)).chain(withholds);
    let allowed = events.filter(|event| moment.allows(*event));
    allowed.map(|event| (Step { event, at: *at }, moment.after(event).key())).collect()
}

/// Name of a durability.
pub fn name(durability: DiskDurability) -> &'static str {
    match durability {
        DiskDurability::Majority => "majority",
        DiskDurability::One => "one",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_majorities_that_contain_what_is_up_come_back() {
        assert_eq!(ends(&[]), [vec![], vec![1, 2], vec![1, 3], vec![2, 3]]);
        assert_eq!(ends(&[2]), [[1, 2], [2, 3]]);
        assert_eq!(ends(&[1, 3]), [[1, 3]]);
        assert_eq!(ends(&[1, 2, 3]), [Vec::<u8>::new()]);
    }

    #[test]
    fn one_step_at_every_effect_holds() {
        for durability in [DiskDurability::Majority, DiskDurability::One] {
            let options = EnumerateOptions { durability, steps: 1, threads: None, planted: None };
            let summary = enumerate(&options, &|_| {});
            assert_eq!(summary.failed, []);
            assert!(summary.histories > 200, "{}", summary.histories);
        }
    }
}

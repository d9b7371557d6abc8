//! Tests the checkers: each bug that can be planted in the core must be caught within [`SEEDS_MAX`] seeds.
//!
//! For each bug, seeds are run with the bug planted until a checker reports a violation. The profiles take turns,
//! because no single profile finds every bug.

use crate::plan::Profile;
use crate::run::{find_first, run_seed, threads};
use serde::Serialize;
use unisono_core::Planted;

/// Most seeds that are tried for one bug, over all profiles together. If none of them shows the bug, it counts as
/// missed.
pub const SEEDS_MAX: u64 = 400;

/// The results for all planted bugs.
#[derive(Clone, Debug, Serialize)]
pub struct MutantSummary {
    /// Number of bugs that were planted.
    pub planted: usize,
    /// Number of bugs that were caught.
    pub caught: usize,
    /// The result for each bug.
    pub mutants: Vec<Mutant>,
}

/// The result for one planted bug.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mutant {
    /// Name of the bug.
    pub name: String,
    /// Number of seeds until the bug was caught; `None` if it was missed.
    pub seeds_to_catch: Option<u64>,
    /// Name of the property that was violated.
    pub by: Option<String>,
    /// Profile of the seed that showed the bug.
    pub profile: Option<Profile>,
    /// Command that reproduces the violation.
    pub replay: Option<String>,
}

const OF_GROUPS: &[Profile] =
    &[Profile::Swarm, Profile::Reset, Profile::Crash, Profile::Partition, Profile::Lossy];
const OF_CALLS: &[Profile] = &[Profile::Calls];
const OF_REPLICAS: &[Profile] = &[Profile::Replica];

/// Returns the profiles that can show a bug.
fn profiles_of(bug: Planted) -> &'static [Profile] {
    match bug {
        // Servers of several instances, and reads that wait for confirmations, exist only there.
        Planted::RepeatsAtOtherInstance => OF_REPLICAS,
        bug if bug.is_of_replicas() => OF_REPLICAS,
        bug if bug.is_of_calls() => OF_CALLS,
        _ => OF_GROUPS,
    }
}

/// Bugs of servers on disk that no seed shows early enough yet: the crashes that they need are too rare. They are not
/// planted by [`mutants`]; `sim replay --planted` takes them.
pub const UNSEEN: [Planted; 6] = [
    Planted::OldImageAccepted,
    Planted::MiddleCut,
    Planted::ViewBeforeLog,
    Planted::MournedUnion,
    Planted::AnySurvivor,
    Planted::SurvivorForgets,
];

/// Returns the bugs that [`mutants`] plants: all but the [unseen](UNSEEN).
pub fn hunted() -> impl Iterator<Item = Planted> {
    Planted::ALL.iter().copied().filter(|bug| !UNSEEN.contains(bug))
}

/// Plants each bug in turn and returns the results. `progress` receives each result as soon as it is known, and the
/// total number of bugs.
pub fn mutants(thread_count: Option<usize>, progress: &mut dyn FnMut(&Mutant, usize)) -> MutantSummary {
    let mut mutants = Vec::new();
    for bug in hunted() {
        let mutant = hunt(bug, threads(thread_count));
        progress(&mutant, Planted::ALL.len() - UNSEEN.len());
        mutants.push(mutant);
    }
    MutantSummary {
        planted: mutants.len(),
        caught: mutants.iter().filter(|mutant| mutant.seeds_to_catch.is_some()).count(),
        mutants,
    }
}

/// Plants one bug and returns the result for the first seed that shows it. Runs on `threads` threads.
pub fn hunt(bug: Planted, threads: usize) -> Mutant {
    let turns = profiles_of(bug);
    let world = |turn: u64| (turns[turn as usize % turns.len()], turn / turns.len() as u64 + 1);
    let found = find_first(SEEDS_MAX, threads, |turn| {
        let (profile, seed) = world(turn);
        let violation = run_seed(seed, profile, Some(bug)).violation?;
        // A seed that also fails without the bug proves nothing.
        run_seed(seed, profile, None).violation.is_none().then_some(violation)
    });
    let name = format!("{bug:?}");
    match found {
        None => Mutant { name, seeds_to_catch: None, by: None, profile: None, replay: None },
        Some((turn, violation)) => {
            let (profile, seed) = world(turn);
            Mutant {
                replay: Some(format!("unisono sim replay {seed} --profile {profile} --planted {name}")),
                name,
                seeds_to_catch: Some(turn + 1),
                by: Some(violation.property.to_string()),
                profile: Some(profile),
            }
        }
    }
}

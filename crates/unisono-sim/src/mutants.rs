//! Are the checkers awake? Each bug that can be planted in the core must be caught, and soon.
//!
//! For each bug, worlds are run with it until a promise is broken. The profiles take turns, because no single kind of
//! world finds everything.

use crate::plan::Profile;
use crate::run::{find_first, run_seed, threads};
use serde::Serialize;
use unisono_core::Planted;

/// Seeds that a bug may survive, over all profiles, before it counts as missed.
pub const SEEDS_MAX: u64 = 400;

/// What came of it.
#[derive(Clone, Debug, Serialize)]
pub struct MutantSummary {
    /// Bugs that were planted.
    pub planted: usize,
    /// Bugs that were caught.
    pub caught: usize,
    /// Each of them.
    pub mutants: Vec<Mutant>,
}

/// One planted bug.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mutant {
    /// Its name.
    pub name: String,
    /// How many seeds it took, if it was caught.
    pub seeds_to_catch: Option<u64>,
    /// The promise that it broke.
    pub by: Option<String>,
    /// The kind of world that showed it.
    pub profile: Option<Profile>,
    /// The command that shows it again.
    pub replay: Option<String>,
}

const OF_GROUPS: &[Profile] =
    &[Profile::Swarm, Profile::Reset, Profile::Crash, Profile::Partition, Profile::Lossy];
const OF_CALLS: &[Profile] = &[Profile::Calls];

/// Plants each bug in turn. `progress` is told of each when its fate is known, and how many there are.
pub fn mutants(thread_count: Option<usize>, progress: &mut dyn FnMut(&Mutant, usize)) -> MutantSummary {
    let mut mutants = Vec::new();
    for bug in Planted::ALL {
        let mutant = hunt(*bug, threads(thread_count));
        progress(&mutant, Planted::ALL.len());
        mutants.push(mutant);
    }
    MutantSummary {
        planted: mutants.len(),
        caught: mutants.iter().filter(|mutant| mutant.seeds_to_catch.is_some()).count(),
        mutants,
    }
}

/// Plants one bug and looks for the first seed that shows it, on so many threads.
pub fn hunt(bug: Planted, threads: usize) -> Mutant {
    let turns = if bug.is_of_calls() { OF_CALLS } else { OF_GROUPS };
    let world = |turn: u64| (turns[turn as usize % turns.len()], turn / turns.len() as u64 + 1);
    let found = find_first(SEEDS_MAX, threads, |turn| {
        let (profile, seed) = world(turn);
        let violation = run_seed(seed, profile, Some(bug)).violation?;
        // A seed that fails without the bug proves nothing.
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

//! Tests the checkers: each bug that can be planted in the core must be caught within [`SEEDS_MAX`] seeds.
//!
//! For each bug, seeds are run with the bug planted until a checker reports a violation. The profiles take turns,
//! because no single profile finds every bug. A few bugs of servers on disk show only after crashes in a certain order,
//! which no early seed has: each of these has a history. A rare one of groups has a late seed, which is tried first. Bugs that
//! only an attacker with recordings can use have a scene: a few datagrams sent by hand.

use crate::bugs::{Planted, ServiceBug};
use crate::enumerate;
use crate::plan::Profile;
use crate::replica::History;
use crate::run::{find_first, run_seed, threads};
use crate::scenes;
use serde::Serialize;
use unisono_core::Planted as CoreBug;
use unisono_core::replica::disk::DiskDurability;

/// Most seeds that are tried for one bug, over all profiles together. If none of them shows the bug, it counts as
/// missed.
pub const SEEDS_MAX: u64 = 1_000;

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
    /// Number of seeds until the bug was caught; `None` if it was missed, or is shown by a history.
    pub seeds_to_catch: Option<u64>,
    /// Name of the property that was violated; `None` if the bug was missed.
    pub by: Option<String>,
    /// Profile of the seed that showed the bug.
    pub profile: Option<Profile>,
    /// Command that reproduces the violation.
    pub replay: Option<String>,
}

const OF_GROUPS: &[Profile] =
    &[Profile::Swarm, Profile::Reset, Profile::Crash, Profile::Partition, Profile::Lossy];
const OF_RINGS: &[Profile] = &[Profile::Token];
const OF_OUTSIDE: &[Profile] = &[Profile::Swarm, Profile::Crash];
const OF_CALLS: &[Profile] = &[Profile::Calls];
const OF_REPLICAS: &[Profile] = &[Profile::Replica];
const OF_DIRECTORY: &[Profile] = &[Profile::Directory];

/// Returns the profiles that can show a bug.
fn profiles_of(bug: Planted) -> &'static [Profile] {
    let bug = match bug {
        Planted::Core(bug) => bug,
        Planted::Service(ServiceBug::ClientKnownByAddress) => return OF_OUTSIDE,
        _ => return OF_DIRECTORY,
    };
    match bug {
        // It costs datagrams, which only runs without faults count.
        CoreBug::AcceptAnswered => &[Profile::Perf],
        // Servers of several instances, and reads that wait for confirmations, exist only there.
        CoreBug::RepeatsAtOtherInstance => OF_REPLICAS,
        // Only there and in profile `directory` a client is hostile.
        CoreBug::InnocentRefusedFirst | CoreBug::ShareOfLifeAlone => OF_REPLICAS,
        // There a member that gets no entries stays so while commands wait for it.
        CoreBug::ProgressNotLookedAt => OF_REPLICAS,
        // Many weak messages of one sender before the order takes one of them: where the token does not come.
        CoreBug::EarlyUnbounded
        | CoreBug::NullPassCalls
        | CoreBug::PassSkipsNext
        | CoreBug::PassGoesBack
        | CoreBug::PassNotRepeated
        | CoreBug::ConfirmNamesPass
        | CoreBug::TokenTakenWithHole
        | CoreBug::TokenTakenTwice
        | CoreBug::PassesLeftOutOfRoom
        | CoreBug::RestsOnFullWindow
        | CoreBug::SwitchByEnd
        | CoreBug::SwitchBeforeAcceptance
        | CoreBug::SwitchNotInBase => OF_RINGS,
        CoreBug::HopsOfLastJoiner | CoreBug::RelayChangedEarly | CoreBug::ClientForgottenByClock => {
            OF_OUTSIDE
        }
        // Only the table looks at commands before they are ordered.
        CoreBug::CapabilityUnlooked | CoreBug::RefusedUnconfirmed | CoreBug::RepeatRefusedEarly => {
            OF_DIRECTORY
        }
        bug if bug.is_of_replicas() => OF_REPLICAS,
        bug if bug.is_of_calls() => OF_CALLS,
        _ => OF_GROUPS,
    }
}

/// Histories that show bugs of servers on disk for which no seed is early enough: the crashes that they need are too rare.
const HISTORIES: [(CoreBug, DiskDurability, &str); 13] = [
    // 2 and 3 create the service without 1, so that 2 cannot go on with 1 later.
    (CoreBug::CreatedByMajority, DiskDurability::Majority, "crash1@1 power@quiet last=1,2"),
    // 3 has come back and answers; neither 1 nor 2 has written the view with it.
    (
        CoreBug::JoinerCountedEarly,
        DiskDurability::One,
        "commands=20 slow=1,2 crash3@applies3 return3@commit2 wait@serves3 crash1@applies3 crash2@0 power@quiet \
         last=1,2",
    ),
    // 3 has come back, writes the view and answers; neither 1 nor 2 has written that view.
    (
        CoreBug::ViewWrittenByOne,
        DiskDurability::One,
        "commands=8 slow=1,2 crash3@applies3 return3@commit2 wait@append3 wait@applies3 power@0 last=1,2",
    ),
    // 1 alone syncs and answers; 2 and 3 write that it is gone before what they hold of it.
    (
        CoreBug::ViewBeforeLog,
        DiskDurability::One,
        "slow=2,3 wait@applies1 crash1@5 wait@commit3 power@0 last=2,3",
    ),
    // 2 mourns 3, and later 1 mourns 2: what 3 alone has synced and answered is not there.
    (
        CoreBug::MournedUnion,
        DiskDurability::One,
        "commands=8 slow=1 crash3@applies3 return3@commit2 crash2@serves3 wait@commit3 wait@applies3 \
         power@applies3 last=1,2",
    ),
    // 1 is cut off and stays up; 3 alone has what it and 2 answered since.
    (
        CoreBug::AnySurvivor,
        DiskDurability::One,
        "commands=6 slow=2 cut1@applies1 wait@commit2 wait@applies3 crash3@0 crash2@0 heal@quiet return2@0 last=1,2",
    ),
    // 2 stays up and holds what 1 alone has synced and answered.
    (
        CoreBug::SurvivorForgets,
        DiskDurability::One,
        "slow=2,3 wait@applies1 cut2@append1 crash1@applies1 crash3@0 heal@quiet return3@0 last=2,3",
    ),
    // 3 is cut off and stays up; 1 and 2 carry over what it lacks, and 2 alone has synced it before they write their view.
    (
        CoreBug::CarriedOverCounted,
        DiskDurability::One,
        "slow=1 cut3@applies3 wait@append2 crash2@applies2 crash1@0 heal@quiet return1@0 last=1,3",
    ),
    // The marks of 1 and 2 are lost on the way to 3, and no command follows.
    (CoreBug::MarkNotRepeated, DiskDurability::Majority, "withhold1-3@append1 withhold2-3@0"),
    // 3 is excluded and joins again while the state of its first join is being written.
    (
        CoreBug::EarlierStateCounts,
        DiskDurability::Majority,
        "commands=12 slow=2,3 crash3@applies3 return3@5 cut3@20 heal@4 power@quiet last=2,3",
    ),
    // 3 has begun the generation and lacks its first entry, which 2 has.
    (CoreBug::LogsByLastEpoch, DiskDurability::Majority, "slow=3 power@append2 last=2,3"),
    // The log of 2 is damaged before its end, and 3 crashed early.
    (
        CoreBug::MiddleCut,
        DiskDurability::Majority,
        "commands=12 crash3@applies3 power@quiet flip2@0 last=2,3",
    ),
    // The disk of 2 is put back as it was before its last start, of which 3 has written.
    (
        CoreBug::OldImageAccepted,
        DiskDurability::Majority,
        "commands=8 slow=3 image2@serves2 crash2@0 return2@append3 wait@serves2 wait@append3 power@append3 \
         putback2@0 last=2,3",
    ),
];

/// Seeds that show bugs for which none of the first [`SEEDS_MAX`] is bad enough. They are tried first. A change of what
/// seeds draw needs others.
const LATE_SEEDS: [(CoreBug, Profile, u64); 5] = [
    // Two groups of one name go on beside each other, and a member of one hears that the other is newer.
    (CoreBug::AnyGroupExcludes, Profile::Swarm, 342),
    // A server comes back with a log that is longer than those of the others, and older.
    (CoreBug::LogsByLength, Profile::Replica, 545),
    // A member has the token, others' messages fill the history, and it keeps the token.
    (CoreBug::RestsOnFullWindow, Profile::Token, 53),
    // A member promises a reset while it confirms what another one holds.
    (CoreBug::ConfirmedByPromised, Profile::Reset, 106),
    // A server that dies loses a promise that it had said before its disk had it.
    (CoreBug::PromiseUnsynced, Profile::Directory, 386),
];

/// Returns the history that shows a bug, if it is not left to the seeds.
fn history_of(bug: Planted) -> Option<History> {
    let (_, durability, words) = HISTORIES.iter().find(|(known, ..)| bug == Planted::Core(*known))?;
    Some(words.parse::<History>().ok()?.with(*durability))
}

/// Plants each bug in turn and returns the results. `progress` receives each result as soon as it is known, and the
/// total number of bugs.
pub fn mutants(thread_count: Option<usize>, progress: &mut dyn FnMut(&Mutant, usize)) -> MutantSummary {
    let mut mutants = Vec::new();
    for bug in Planted::all() {
        let mutant = hunt(bug, threads(thread_count));
        progress(&mutant, Planted::all().count());
        mutants.push(mutant);
    }
    MutantSummary {
        planted: mutants.len(),
        caught: mutants.iter().filter(|mutant| mutant.by.is_some()).count(),
        mutants,
    }
}

/// Plants one bug and runs its history, if it has one.
fn play(bug: Planted, history: &History) -> Mutant {
    let violation = enumerate::replay(history, Some(bug), None);
    // A history that also fails without the bug proves nothing.
    let violation = violation.filter(|_| enumerate::replay(history, None, None).is_none());
    Mutant {
        name: format!("{bug:?}"),
        seeds_to_catch: None,
        by: violation.map(|violation| violation.property.to_string()),
        profile: None,
        replay: Some(enumerate::replay_command(history, Some(bug))),
    }
}

/// Plants one bug and plays the scene that shows it, if there is one.
fn act(bug: Planted) -> Option<Mutant> {
    let core = bug.of_core()?;
    let scene = scenes::of(core)?;
    // A scene that also fails without the bug proves nothing.
    let by = scene(Some(core)).filter(|_| scene(None).is_none());
    let name = format!("{bug:?}");
    Some(Mutant { name, seeds_to_catch: None, by: by.map(str::to_string), profile: None, replay: None })
}

/// Plants one bug and returns the result of its scene or history, or for the first seed that shows it. Runs on `threads` threads.
pub fn hunt(bug: impl Into<Planted>, threads: usize) -> Mutant {
    let bug = bug.into();
    if let Some(mutant) = act(bug) {
        return mutant;
    }
    if let Some(history) = history_of(bug) {
        return play(bug, &history);
    }
    let turns = profiles_of(bug);
    let late = LATE_SEEDS.iter().find(|(known, ..)| bug == Planted::Core(*known));
    let world = |turn: u64| match late {
        Some((_, profile, seed)) if turn == 0 => (*profile, *seed),
        _ => (turns[turn as usize % turns.len()], turn / turns.len() as u64 + 1),
    };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_scene_shows_its_bug_and_holds_without_it() {
        let shown: Vec<_> = Planted::all().filter_map(act).collect();
        assert!(!shown.is_empty());
        shown.iter().for_each(|mutant| assert!(mutant.by.is_some(), "{}", mutant.name));
    }

    /// A server misses the deletion of *foo*, or its disk is put back, and it is among the first to come back.
    const FOO: [&str; 3] = [
        "foo crash3@applies2 power@quiet last=2,3",
        "foo slow=2,3 crash1@applies1 power@quiet last=2,3",
        "foo commands=7 slow=3 image2@serves2 crash2@0 return2@append3 wait@serves2 wait@append3 power@append3 \
         putback2@0 last=2,3",
    ];

    #[test]
    fn foo_does_not_come_back() {
        for words in FOO {
            let history: History = words.parse().unwrap();
            assert_eq!(enumerate::replay(&history, None, None), None, "{words}");
        }
        // The last one shows a server that believes the old disk.
        let history: History = FOO[2].parse().unwrap();
        let bug = CoreBug::OldImageAccepted.into();
        assert!(
            enumerate::replay(&history, Some(bug), None).is_some(),
            "it comes back, and no checker sees it"
        );
    }

    #[test]
    fn each_history_shows_its_bug_and_holds_without_it() {
        for (bug, ..) in HISTORIES {
            let history =
                history_of(bug.into()).unwrap_or_else(|| panic!("the history of {bug:?} cannot be read"));
            let mutant = play(bug.into(), &history);
            let by = mutant.by.unwrap_or_else(|| panic!("{}", mutant.replay.unwrap_or_default()));
            assert_ne!(by, "histories_are_valid", "{bug:?}");
        }
    }
}

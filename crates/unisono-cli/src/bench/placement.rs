//! On which processors the measured processes run, the same for the group and for the floor.

use clap::ValueEnum;

/// On which processors the measured processes run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Placement {
    /// The system chooses
    None,
    /// Each process is pinned to one processor, in turn
    #[default]
    Spread,
    /// All processes are pinned to the same processor
    One,
}

impl Placement {
    /// Returns the processor of each process; none if the system chooses.
    pub(crate) fn of(self, processes: usize) -> Vec<Option<usize>> {
        let allowed = allowed();
        (0..processes)
            .map(|process| match self {
                Placement::None => None,
                Placement::Spread => allowed.get(process % allowed.len().max(1)).copied(),
                Placement::One => allowed.last().copied(),
            })
            .collect()
    }

    /// Returns its name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Placement::None => "none",
            Placement::Spread => "spread",
            Placement::One => "one",
        }
    }
}

#[cfg(target_os = "linux")]
fn allowed() -> Vec<usize> {
    use rustix::thread::{CpuSet, sched_getaffinity};
    let set = sched_getaffinity(None).unwrap_or_default();
    (0..CpuSet::MAX_CPU).filter(|&processor| set.is_set(processor)).collect()
}

#[cfg(not(target_os = "linux"))]
fn allowed() -> Vec<usize> {
    Vec::new()
}

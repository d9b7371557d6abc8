//! Replays one seed and writes a trace: one line per event, with the simulated time in microseconds, the member and
//! what happened. The lines are the same on every run and every machine.

use crate::bugs::Planted;
use crate::plan::Profile;
use crate::properties::Violation;
use crate::run::run_profile;
use std::io::Write;

/// Runs a seed, writes its trace to `out`, and returns the violation if there is one. Errors of `out` do not change the
/// run.
pub fn replay(
    seed: u64,
    profile: Profile,
    planted: Option<Planted>,
    out: Box<dyn Write>,
) -> Option<Violation> {
    run_profile(seed, profile, planted, Some(out)).violation
}

//! One seed, told line by line: simulated microseconds, who, what. The same lines on every run and every machine.

use crate::plan::Profile;
use crate::properties::Violation;
use crate::run::direct;
use std::io::Write;
use unisono_core::Planted;

/// Runs a seed and writes what happens to `out`; what was broken, if a promise was. Errors of `out` change nothing in
/// the run.
pub fn replay(
    seed: u64,
    profile: Profile,
    planted: Option<Planted>,
    out: Box<dyn Write>,
) -> Option<Violation> {
    direct(seed, profile, planted, Some(out)).violation
}

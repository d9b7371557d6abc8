//! A group that is reset while it is measured: the figures are of no use, and it is measured again.

use crate::output::tell;
use crate::problem::Problem;
use thiserror::Error;
use unisono::{Group, Phase};

/// The machine kept a member waiting for so long that the others went on without it.
#[derive(Clone, Copy, Debug, Error)]
#[error(
    "the group was reset while it was measured, as this machine kept a member waiting: give it a longer --patience"
)]
pub(crate) struct WasReset;

/// So often a measurement is begun.
const ATTEMPTS: u32 = 3;

/// Measures, and again from the beginning if a group was reset meanwhile; also says how often that was so.
pub(super) fn undisturbed<T>(mut measure: impl FnMut() -> Result<T, Problem>) -> Result<(T, u32), Problem> {
    let mut resets = 0;
    loop {
        match measure() {
            Err(problem) if problem.is::<WasReset>() && resets + 1 < ATTEMPTS => {
                resets += 1;
                tell(format_args!("{WasReset}; measuring again"));
            }
            measured => return Ok((measured?, resets)),
        }
    }
}

/// This member's group was reset, or went on without it.
pub(super) fn happened_to(group: &Group) -> bool {
    let info = group.info();
    info.last_reset.is_some() || info.phase != Phase::Member
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measurement_is_begun_again_after_a_reset_only_and_not_for_ever() {
        let mut attempts = 0;
        let mut measure = |resets| {
            attempts += 1;
            if attempts <= resets { Err(anyhow::Error::new(WasReset).into()) } else { Ok(attempts) }
        };
        assert!(matches!(undisturbed(|| measure(2)), Ok((3, 2))));
        attempts = 0;
        let mut always = || {
            attempts += 1;
            Err::<(), _>(anyhow::Error::new(WasReset).into())
        };
        assert!(undisturbed(&mut always).is_err_and(|problem| problem.is::<WasReset>()));
        assert_eq!(attempts, ATTEMPTS);
        attempts = 0;
        let failed = undisturbed(|| {
            attempts += 1;
            Err::<(), _>(Problem::failed("something else"))
        });
        assert!(failed.is_err() && attempts == 1);
    }
}

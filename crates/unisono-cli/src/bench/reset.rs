//! Repeats a measurement during which the group was reset: its figures are useless.

use crate::output::tell;
use crate::problem::Problem;
use thiserror::Error;
use unisono::{Group, Phase};

/// The error of such a measurement. On a busy machine a member gets no processor for too long, and the others exclude
/// it.
#[derive(Clone, Copy, Debug, Error)]
#[error(
    "the group was reset during the measurement, because this machine kept a member waiting: try --patience 1s"
)]
pub(crate) struct WasReset;

/// Maximum number of attempts.
const ATTEMPTS: u32 = 3;

/// Measures, and repeats the measurement if a group was reset. Returns the result and the number of resets.
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

/// True if this member's group was reset or excluded this member.
pub(super) fn happened_to(group: &Group) -> bool {
    let info = group.info();
    info.last_reset.is_some() || info.phase != Phase::Member
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measurement_is_repeated_only_after_a_reset_and_not_for_ever() {
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

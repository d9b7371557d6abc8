//! Checks which of the seeds that the user named have addresses.

use crate::output::{tell, visible};
use std::io;
use std::time::Duration;
use unisono::OpenError;

/// Returns what to type about a seed that has no address.
pub(crate) fn advice(seed: &str) -> String {
    let host = seed.rsplit_once(':').map_or(seed, |(host, _)| host);
    format!("type `getent hosts {host}`, and check the spelling")
}

/// Returns the reason why a seed has no address; none if it has one.
fn trouble(seed: &str) -> Option<io::Error> {
    match unisono::seed_addresses(seed) {
        Err(OpenError::Seeds { source, .. }) => Some(source),
        _ => None,
    }
}

/// Warns about the seeds that have no address and will not be asked. Prints nothing if no seed has one: that is an
/// error, which is reported elsewhere.
pub(crate) fn warn_of_unresolved(seeds: &[String]) {
    let without: Vec<(&String, io::Error)> =
        seeds.iter().filter_map(|seed| Some((seed, trouble(seed)?))).collect();
    if without.len() < seeds.len() {
        for (seed, error) in without {
            let (seed, advice) = (visible(seed), advice(seed));
            tell(format_args!("{seed} has no address ({error}) and is not asked: {}", visible(&advice)));
        }
    }
}

/// Prints that a join waits, if none of the seeds has an address yet.
pub(crate) fn tell_of_wait(seeds: &[String], timeout: Duration) {
    let waits = !seeds.is_empty() && !timeout.is_zero() && seeds.iter().all(|seed| trouble(seed).is_some());
    if waits {
        let (names, one) = (seeds.join(", "), seeds.len() == 1);
        let (noun, names) = (if one { "seed" } else { "seeds" }, visible(&names));
        tell(format_args!("waiting for an address of {noun} {names} for {timeout:?} (--seeds-timeout) …"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_looked_up_without_its_port() {
        assert_eq!(
            advice("nowhere.invalid:7"),
            "type `getent hosts nowhere.invalid`, and check the spelling"
        );
    }
}

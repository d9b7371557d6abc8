//! Checks which of the seeds that the user named have addresses.

use crate::connection;
use crate::output::{tell, visible};
use crate::threads;
use std::io;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use unisono::{OpenError, Options};

/// Maximum time that a command waits to warn of seeds without an address: 1 s.
const LOOK_UP: Duration = Duration::from_secs(1);

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

/// Looks the seeds up side by side. Returns those of which something is known in time, each with the reason if it has no
/// address.
fn troubles(seeds: &[String]) -> Vec<(String, Option<io::Error>)> {
    let (looked, looks) = mpsc::channel();
    for seed in seeds.iter().cloned() {
        let looked = looked.clone();
        // Without a thread, nothing is said of the seed.
        let _ = threads::start("seeds", move || {
            let trouble = trouble(&seed);
            let _ = looked.send((seed, trouble));
        });
    }
    drop(looked);
    let begun = Instant::now();
    let next = || looks.recv_timeout(LOOK_UP.saturating_sub(begun.elapsed())).ok();
    let mut troubles: Vec<_> = std::iter::from_fn(next).collect();
    troubles.sort_by_key(|(seed, _)| seeds.iter().position(|given| given == seed));
    troubles
}

/// Warns about the seeds that have no address and will not be asked. Prints nothing if no seed has one: that is an
/// error, which is reported elsewhere.
pub(crate) fn warn_of_unresolved(seeds: &[String]) {
    let troubles = troubles(seeds);
    if troubles.iter().any(|(_, trouble)| trouble.is_none()) {
        for (seed, trouble) in troubles {
            let Some(error) = trouble else { continue };
            let (seed, advice) = (visible(&seed), advice(&seed));
            tell(format_args!("{seed} has no address ({error}) and is not asked: {}", visible(&advice)));
        }
    }
}

/// Prints that a join waits, if none of the seeds has an address yet.
pub(crate) fn tell_of_wait(options: &Options) {
    let (seeds, timeout) = (&options.seeds, options.seeds_timeout);
    let waits = !seeds.is_empty() && !timeout.is_zero();
    if waits && troubles(seeds).iter().all(|(_, trouble)| trouble.is_some()) {
        let (names, one) = (seeds.join(", "), seeds.len() == 1);
        let (noun, names) = (if one { "seed" } else { "seeds" }, visible(&names));
        let at = connection::whereabouts(options)();
        tell(format_args!(
            "waiting for an address of {noun} {names} for {timeout:?} (--seeds-timeout) … {at}"
        ));
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

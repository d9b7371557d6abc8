//! The addresses of names, for all seeds of the process. Names are looked up side by side, each in a thread of its own, since a
//! look-up can take many seconds. The addresses of the last look-up that found any stay known while later ones fail: a
//! name server that is down hides no server.

use crate::error::OpenError;
use crate::seeds::seed_addresses;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Minimum interval between two look-ups of a name: 1 s.
const FRESH: Duration = Duration::from_secs(1);
/// Time to wait for look-ups of other names while an address is known: 500 ms, longer than a name server on the same
/// network takes.
const OTHERS_WAIT: Duration = Duration::from_millis(500);

/// The names of this process. In a forked child, the first are those of its parent.
static NAMES: OnceLock<Box<Names>> = OnceLock::new();

/// The names that were looked up, each with its port. A forked child begins with none: it has none of the threads that look
/// names up, nor the one that may hold the lock at the fork.
struct Names {
    process: u32,
    known: Mutex<BTreeMap<String, Name>>,
    /// A look-up has ended.
    looked: Condvar,
    /// Names of a child of this process.
    child: OnceLock<Box<Names>>,
}

#[derive(Debug, Default)]
struct Name {
    /// What the last look-up found that found anything.
    addresses: Vec<SocketAddr>,
    /// When the last look-up ended.
    at: Option<Instant>,
    is_looking: bool,
    /// Why the last look-up found nothing.
    error: Option<(io::ErrorKind, String)>,
}

/// Returns the known addresses of these names, IPv4 before IPv6.
pub(crate) fn addresses(names: &[String]) -> Vec<SocketAddr> {
    addresses_in(&all().lock(), names)
}

/// Begins to look up those of these names whose last look-up is too old.
pub(crate) fn refresh(names: &[String]) {
    begin(&mut all().lock(), names, FRESH, seed_addresses);
}

/// Looks up these names. Returns when all look-ups have ended; if an address of one of them is known, or `another` is, soon
/// even if some take long. Returns the error of the last name that has no address.
pub(crate) fn look_up(names: &[String], another: bool) -> Option<io::Error> {
    look_up_by(names, another, seed_addresses)
}

fn look_up_by(
    names: &[String],
    another: bool,
    look: impl Fn(&str) -> Result<Vec<SocketAddr>, OpenError> + Clone + Send + 'static,
) -> Option<io::Error> {
    let (begun, all) = (Instant::now(), all());
    let mut known = all.lock();
    begin(&mut known, names, Duration::ZERO, look);
    loop {
        let is_looking = names.iter().any(|name| known.get(name).is_some_and(|name| name.is_looking));
        let left = OTHERS_WAIT.saturating_sub(begun.elapsed());
        let has_some = another || !addresses_in(&known, names).is_empty();
        if !is_looking || has_some && left.is_zero() {
            break;
        }
        known = match has_some {
            true => all.looked.wait_timeout(known, left).unwrap_or_else(PoisonError::into_inner).0,
            false => all.looked.wait(known).unwrap_or_else(PoisonError::into_inner),
        };
    }
    let mut errors = names.iter().rev().filter_map(|name| known.get(name)?.error.clone());
    errors.next().map(|(kind, words)| io::Error::new(kind, words))
}

/// Starts a thread for each of these names whose last look-up is older than `fresh`, unless one is under way.
fn begin(
    known: &mut BTreeMap<String, Name>,
    names: &[String],
    fresh: Duration,
    look: impl Fn(&str) -> Result<Vec<SocketAddr>, OpenError> + Clone + Send + 'static,
) {
    for name in names {
        let entry = known.entry(name.clone()).or_default();
        if entry.is_looking || entry.at.is_some_and(|at| at.elapsed() < fresh) {
            continue;
        }
        let (name, look) = (name.clone(), look.clone());
        let work = move || note(&name, look(&name));
        match thread::Builder::new().name("unisono-names".into()).spawn(work) {
            Ok(_) => entry.is_looking = true,
            Err(error) => entry.error = Some((error.kind(), error.to_string())),
        }
    }
}

/// Notes what a look-up found.
fn note(name: &str, found: Result<Vec<SocketAddr>, OpenError>) {
    let all = all();
    let mut known = all.lock();
    let entry = known.entry(name.to_owned()).or_default();
    (entry.at, entry.is_looking) = (Some(Instant::now()), false);
    entry.error = match found {
        Ok(addresses) if !addresses.is_empty() => {
            entry.addresses = addresses;
            None
        }
        Ok(_) => Some((io::ErrorKind::NotFound, "the name has no address".into())),
        Err(OpenError::Seeds { source, .. }) => Some((source.kind(), source.to_string())),
        Err(other) => Some((io::ErrorKind::Other, other.to_string())),
    };
    all.looked.notify_all();
}

fn addresses_in(known: &BTreeMap<String, Name>, names: &[String]) -> Vec<SocketAddr> {
    let of_names = names.iter().filter_map(|name| known.get(name));
    let mut addresses: Vec<SocketAddr> = of_names.flat_map(|name| name.addresses.iter().copied()).collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

/// Returns the names of this process.
fn all() -> &'static Names {
    let process = std::process::id();
    let own = || {
        let (known, looked, child) = Default::default();
        Box::new(Names { process, known, looked, child })
    };
    let mut all = NAMES.get_or_init(own);
    while all.process != process {
        all = all.child.get_or_init(own);
    }
    all
}

impl Names {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Name>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes these for the addresses of a name.
#[cfg(test)]
pub(crate) fn set(name: &str, addresses: Vec<SocketAddr>) {
    note(name, Ok(addresses));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn unknown(name: &str) -> Result<Vec<SocketAddr>, OpenError> {
        Err(OpenError::Seeds { seeds: name.into(), source: io::Error::other("no name server answers") })
    }

    #[test]
    fn addresses_outlive_the_name_server() {
        let names = ["outlives.test:1".to_owned()];
        assert!(look_up_by(&names, false, unknown).is_some());
        assert_eq!(addresses(&names), []);
        let (first, moved) = (address("192.0.2.1:1"), address("192.0.2.9:1"));
        assert!(look_up_by(&names, false, move |_| Ok(vec![first])).is_none());
        assert!(look_up_by(&names, false, unknown).is_some());
        assert_eq!(addresses(&names), [first]);
        // A server that comes back elsewhere takes the place of its former address.
        assert!(look_up_by(&names, false, move |_| Ok(vec![moved])).is_none());
        assert_eq!(addresses(&names), [moved]);
    }

    // The look-up that hangs ends only after the other's address was returned.
    #[test]
    fn no_name_waits_for_another() {
        let names = ["hangs.test:1".to_owned(), "answers.test:1".to_owned()];
        let (answered, hangs) = mpsc::channel::<()>();
        let hangs = std::sync::Arc::new(Mutex::new(hangs));
        let (two, late) = (address("192.0.2.2:1"), address("192.0.2.1:1"));
        let look = move |name: &str| match name {
            "hangs.test:1" => {
                let _ = hangs.lock().unwrap().recv();
                Ok(vec![late])
            }
            _ => Ok(vec![two]),
        };
        assert!(look_up_by(&names, false, look).is_none());
        assert_eq!(addresses(&names), [two]);
        drop(answered);
        // Its address comes late, and counts.
        let begun = Instant::now();
        while addresses(&names) != [late, two] {
            assert!(begun.elapsed() < Duration::from_secs(60));
            thread::yield_now();
        }
    }
}

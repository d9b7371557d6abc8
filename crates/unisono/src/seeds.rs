//! Seeds: members to ask for a group that multicast does not reach.

use crate::error::OpenError;
use crate::log;
use crate::options::{DEFAULT_PORT, Options};
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Minimum interval between two look-ups of the names: 1 s.
const NAME_FRESH: Duration = Duration::from_secs(1);

/// Fixed addresses and names to ask for a group. While the group is being looked for, the names are looked up again,
/// in a thread of their own because that can take seconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seeds {
    fixed: Vec<SocketAddr>,
    names: Vec<String>,
    found: Arc<Mutex<Found>>,
    /// True if there is neither a key nor the permission to do without: no datagram leaves this machine, and none from
    /// outside is taken.
    home: bool,
}

#[derive(Debug, Default)]
struct Found {
    addresses: Vec<SocketAddr>,
    at: Option<Instant>,
    looking: bool,
}

impl Seeds {
    /// Sorts the given seeds into addresses and names. One socket must be able to ask all the addresses; of a name's
    /// addresses it asks those that it can.
    pub(crate) fn new(options: &Options) -> Result<Seeds, OpenError> {
        let mut seeds = Seeds { home: options.stays_home(), ..Seeds::default() };
        for seed in &options.seeds {
            match host_and_port(seed)? {
                (host, port) if let Ok(address) = host.parse::<IpAddr>() => {
                    seeds.fixed.push((address, port).into());
                }
                _ => seeds.names.push(seed.clone()),
            }
        }
        let asked_from = options.bind.or(seeds.fixed.first().copied());
        let other = |seed: &&SocketAddr| asked_from.is_some_and(|from| from.is_ipv6() != seed.is_ipv6());
        match seeds.fixed.iter().find(other) {
            Some(seed) => Err(OpenError::SeedFamily { seed: *seed }),
            None => Ok(seeds),
        }
    }

    /// True if `other` has the same seeds.
    pub(crate) fn is_like(&self, other: &Seeds) -> bool {
        (&self.fixed, &self.names, self.home) == (&other.fixed, &other.names, other.home)
    }

    /// True if there is no seed: the group is looked for by multicast.
    pub(crate) fn is_empty(&self) -> bool {
        self.fixed.is_empty() && self.names.is_empty()
    }

    /// True if there are names to look up, which may block.
    pub(crate) fn has_names(&self) -> bool {
        !self.names.is_empty()
    }

    /// Looks up all names and returns all known addresses. Blocks. Fails if look-ups failed and no address is known.
    pub(crate) fn resolve(&self) -> Result<Vec<SocketAddr>, OpenError> {
        let (addresses, error) = look_up(&self.names);
        *self.found() = Found { addresses, at: Some(Instant::now()), looking: false };
        let known = self.known();
        match error {
            Some(source) if known.is_empty() => {
                Err(OpenError::Seeds { seeds: self.names.join(", "), source })
            }
            _ => Ok(known),
        }
    }

    /// Calls [`Seeds::resolve`] until it returns addresses, for at most `timeout`. `name` is the group or service, for
    /// the log.
    pub(crate) fn resolve_within(&self, timeout: Duration, name: &str) -> Result<Vec<SocketAddr>, OpenError> {
        let waits = || log::waits_for_seeds(name, &self.names.join(", "), timeout);
        retry(timeout, NAME_FRESH, || self.resolve(), waits)
    }

    /// Returns the known addresses that a socket at `own` can ask, except `own`.
    pub(crate) fn ask(&self, own: SocketAddr) -> impl Iterator<Item = SocketAddr> {
        let known = self.refresh().into_iter();
        known.filter(move |address| {
            *address != own && address.is_ipv6() == own.is_ipv6() && self.may_come_from(*address)
        })
    }

    /// True if datagrams from this address are taken. Without a key and without permission to do without, only those of
    /// this machine are: a route from outside may lead to loopback addresses (`route_localnet`).
    pub(crate) fn may_come_from(&self, address: SocketAddr) -> bool {
        !self.home || address.ip().to_canonical().is_loopback()
    }

    /// True if datagrams may be sent to this address. Multicasts of a process that stays home use the loopback interface.
    pub(crate) fn may_go_to(&self, address: SocketAddr) -> bool {
        self.may_come_from(address) || address.ip().is_multicast()
    }

    /// Returns all known addresses. Looks the names up in the background if the last look-up is too old.
    fn refresh(&self) -> Vec<SocketAddr> {
        let mut found = self.found();
        if !self.names.is_empty() && !found.looking && found.at.is_none_or(|at| at.elapsed() >= NAME_FRESH) {
            let (names, shared) = (self.names.clone(), self.found.clone());
            let look = move || {
                let (addresses, error) = look_up(&names);
                let mut found = shared.lock().unwrap_or_else(PoisonError::into_inner);
                if error.is_none() || !addresses.is_empty() {
                    found.addresses = addresses;
                }
                (found.at, found.looking) = (Some(Instant::now()), false);
            };
            found.looking = thread::Builder::new().name("unisono-names".into()).spawn(look).is_ok();
        }
        drop(found);
        self.known()
    }

    /// Returns the addresses that were given, then those of names, IPv4 before IPv6.
    fn known(&self) -> Vec<SocketAddr> {
        self.fixed.iter().chain(&self.found().addresses).copied().collect()
    }

    fn found(&self) -> std::sync::MutexGuard<'_, Found> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Resolves until there are addresses, `timeout` has passed, or another error occurs. Pauses after each failed attempt,
/// and calls `waits` before the first pause.
fn retry(
    timeout: Duration,
    pause: Duration,
    mut resolve: impl FnMut() -> Result<Vec<SocketAddr>, OpenError>,
    waits: impl FnOnce(),
) -> Result<Vec<SocketAddr>, OpenError> {
    let (begin, mut waits) = (Instant::now(), Some(waits));
    loop {
        let resolved = resolve();
        let left = timeout.saturating_sub(begin.elapsed());
        if left.is_zero() || !matches!(resolved, Err(OpenError::Seeds { .. })) {
            return resolved;
        }
        if let Some(waits) = waits.take() {
            waits();
        }
        thread::sleep(pause.min(left));
    }
}

/// Returns the addresses of a seed: an address or a name, with a port or without ([`DEFAULT_PORT`]). Looks a name up,
/// which may block for seconds.
pub fn seed_addresses(seed: &str) -> Result<Vec<SocketAddr>, OpenError> {
    match host_and_port(seed)?.to_socket_addrs() {
        Ok(found) => Ok(found.collect()),
        Err(source) => Err(OpenError::Seeds { seeds: seed.into(), source }),
    }
}

/// Splits a seed into host and port at its last colon. An IPv6 address alone has colons and no port.
fn host_and_port(seed: &str) -> Result<(&str, u16), OpenError> {
    match seed.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => {
            let port = port.parse().ok().filter(|&port| port != 0);
            let port = port.ok_or_else(|| OpenError::SeedPort { seed: seed.into() })?;
            Ok((host.trim_start_matches('[').trim_end_matches(']'), port))
        }
        _ => Ok((seed, DEFAULT_PORT)),
    }
}

/// Returns all addresses of all names, and the error of the last name that has none.
fn look_up(names: &[String]) -> (Vec<SocketAddr>, Option<io::Error>) {
    let (mut addresses, mut error) = (Vec::new(), None);
    for name in names {
        match seed_addresses(name) {
            Ok(found) => addresses.extend(found),
            Err(OpenError::Seeds { source, .. }) => error = Some(source),
            Err(other) => error = Some(io::Error::other(other)),
        }
    }
    addresses.sort_unstable();
    addresses.dedup();
    (addresses, error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Group, GroupConfig};

    fn seeds(bind: Option<&str>, given: &[&str]) -> Result<Seeds, OpenError> {
        let given = given.iter().map(|seed| String::from(*seed)).collect();
        let bind = bind.map(|address| address.parse().unwrap());
        Seeds::new(&Options { bind, seeds: given, ..Options::default() })
    }

    #[test]
    fn seeds_are_addresses_or_names_with_or_without_a_port() {
        let four = (["127.0.0.1:9", "127.0.0.2", "localhost"], ["127.0.0.1:9", "127.0.0.2:7195"]);
        let six = (["[::1]:9", "::1", "localhost:9"], ["[::1]:9", "[::1]:7195"]);
        for (given, expected) in [four, six] {
            let seeds = seeds(None, &given).unwrap();
            assert_eq!((seeds.fixed.len(), seeds.names.len()), (2, 1));
            let known = seeds.resolve().unwrap();
            assert_eq!(known[..2], expected.map(|address| address.parse().unwrap()));
            assert!(known.len() > 2);
            assert_eq!(seeds.refresh(), known);
            for seed in given {
                assert!(
                    seed_addresses(seed).unwrap().iter().all(|address| known.contains(address)),
                    "{seed}"
                );
            }
        }
    }

    #[test]
    fn addresses_that_one_socket_cannot_ask_are_refused_and_names_are_not() {
        let refused = |bind, given: &[&str]| match seeds(bind, given) {
            Err(OpenError::SeedFamily { seed }) => Some(seed.to_string()),
            other => other.map(|_| None).unwrap(),
        };
        let (four, six) = ("127.0.0.1:9", "[::1]:9");
        assert_eq!(refused(None, &[four, six]).as_deref(), Some(six));
        assert_eq!(refused(None, &["localhost:9", six, four]).as_deref(), Some(four));
        assert_eq!(refused(Some("127.0.0.1:0"), &[six]).as_deref(), Some(six));
        assert_eq!(refused(Some("[::]:0"), &[six, four]).as_deref(), Some(four));
        for bind in ["127.0.0.1:0", "[::1]:0"] {
            assert_eq!(refused(Some(bind), &["localhost:9"]), None);
        }
        assert_eq!(refused(Some("[::1]:0"), &[six, "localhost:9"]), None);
    }

    #[test]
    fn a_seed_with_an_impossible_port_is_refused_before_any_look_up() {
        for seed in
            ["127.0.0.1:99999", "127.0.0.1:0", "localhost:99999", "a:", "a:b", "[::1]:65536", "[::1]:x"]
        {
            let refused = seeds(None, &[seed, "127.0.0.1:9"]);
            assert!(
                matches!(&refused, Err(OpenError::SeedPort { seed: said }) if said == seed),
                "{refused:?}"
            );
            assert!(matches!(seed_addresses(seed), Err(OpenError::SeedPort { .. })), "{seed}");
        }
    }

    #[test]
    fn at_home_a_name_that_gets_another_address_later_is_not_asked_there() {
        let addresses = ["127.0.0.1:9", "192.0.2.1:9", "[::1]:9", "[2001:db8::1]:9"];
        let addresses: Vec<SocketAddr> = addresses.iter().map(|address| address.parse().unwrap()).collect();
        let named = |insecure| {
            let options = Options { insecure, seeds: vec!["nowhere.invalid".into()], ..Options::default() };
            let seeds = Seeds::new(&options).unwrap();
            *seeds.found() = Found { addresses: addresses.clone(), at: Some(Instant::now()), looking: false };
            seeds
        };
        for own in ["127.0.0.1:5", "[::1]:5"] {
            let own: SocketAddr = own.parse().unwrap();
            let asked: Vec<SocketAddr> = named(false).ask(own).collect();
            assert_eq!(asked, [(own.ip(), 9).into()]);
            assert_eq!(named(true).ask(own).count(), 2, "with permission");
        }
        let home = named(false);
        for address in &addresses {
            assert_eq!(home.may_come_from(*address), address.ip().is_loopback(), "{address}");
            assert_eq!(home.may_go_to(*address), address.ip().is_loopback(), "{address}");
            assert!(named(true).may_come_from(*address) && named(true).may_go_to(*address));
        }
        let multicast = "239.195.117.1:7196".parse().unwrap();
        assert!(home.may_go_to(multicast) && !home.may_come_from(multicast));
        assert!(home.may_come_from("[::ffff:127.0.0.1]:9".parse().unwrap()));
    }

    #[test]
    fn names_without_an_address_are_looked_up_again_until_they_have_one() {
        let address: SocketAddr = "127.0.0.1:9".parse().unwrap();
        let none = || Err(OpenError::Seeds { seeds: "a".into(), source: io::Error::other("none yet") });
        // If `after` look-ups fail: the addresses, the number of look-ups, and the number of warnings.
        let looked_up = |timeout, after| {
            let (mut attempts, mut told) = (0, 0);
            let resolve = || {
                attempts += 1;
                if attempts > after { Ok(vec![address]) } else { none() }
            };
            let found = retry(timeout, Duration::ZERO, resolve, || told += 1);
            (found.ok(), attempts, told)
        };
        let long = Duration::from_secs(3600);
        assert_eq!(looked_up(long, 0), (Some(vec![address]), 1, 0));
        assert_eq!(looked_up(long, 3), (Some(vec![address]), 4, 1));
        assert_eq!(looked_up(Duration::ZERO, 1), (None, 1, 0));
        assert_eq!(looked_up(Duration::from_millis(20), usize::MAX).0, None);
        // Any other error is returned at once: waiting does not cure it.
        let refused =
            retry(long, long, || Err(OpenError::SeedFamily { seed: address }), || panic!("it waits"));
        assert!(matches!(refused, Err(OpenError::SeedFamily { .. })));
    }

    #[test]
    fn only_processes_that_have_to_ask_wait_for_addresses() {
        let seeds = vec!["nowhere.invalid".into()];
        let options = |seeds_timeout| Options { seeds: seeds.clone(), seeds_timeout, ..Options::default() };
        let name = format!("seeds-{}", std::process::id());
        let long = options(Duration::from_secs(3600));
        Group::create(&name, GroupConfig::default(), &long).unwrap();
        let begin = Instant::now();
        let timeout = Duration::from_millis(50);
        let refused = Group::join_or_create(&name, GroupConfig::default(), "", &options(timeout));
        assert!(matches!(refused, Err(OpenError::Seeds { .. })), "{refused:?}");
        assert!(begin.elapsed() >= timeout);
    }

    #[test]
    fn names_without_an_address_are_an_error_unless_another_seed_has_one() {
        let nowhere = seeds(None, &["nowhere.invalid"]).unwrap();
        assert!(matches!(nowhere.resolve(), Err(OpenError::Seeds { .. })));
        let partly = seeds(None, &["nowhere.invalid", "127.0.0.1:9"]).unwrap();
        assert_eq!(partly.resolve().unwrap(), ["127.0.0.1:9".parse().unwrap()]);
    }
}

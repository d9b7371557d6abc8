//! Seeds: members to ask for a group that multicast does not reach.

use crate::error::OpenError;
use crate::log;
use crate::names;
use crate::options::{DEFAULT_PORT, Options};
use crate::reach::Wish;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::thread;
use std::time::{Duration, Instant};

/// Pause between two attempts to find an address of any seed: 1 s.
const ATTEMPT_PAUSE: Duration = Duration::from_secs(1);

/// Fixed addresses and names to ask for a group. While the group is being looked for, the names are looked up again, in
/// threads of their own because that can take seconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seeds {
    fixed: Vec<SocketAddr>,
    names: Vec<String>,
    /// Addresses of the members that an earlier life of this member had with it. A group that the names do not lead to any
    /// more, because no name server answers, is found by them.
    former: Vec<SocketAddr>,
    /// True if there is neither a key nor the permission to do without: no datagram leaves this machine, and none from
    /// outside is taken.
    home: bool,
}

impl Seeds {
    /// Sorts the given seeds into addresses and names. Refuses an address that no socket with these options can ask; of a
    /// name's addresses those are asked that can be.
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
        // Without an address of its own a process has one loopback address: that of the first seed's IP version.
        let first = seeds.fixed.first().filter(|_| options.bind.is_none());
        let wish = Wish::of(options);
        let other = |seed: &&SocketAddr| {
            let is_near = seeds.home || seed.ip().is_loopback();
            !wish.asks(**seed) || is_near && first.is_some_and(|first| first.is_ipv6() != seed.is_ipv6())
        };
        match seeds.fixed.iter().find(other) {
            Some(seed) => Err(OpenError::SeedFamily { seed: *seed }),
            None => Ok(seeds),
        }
    }

    /// Adds the addresses of members that an earlier life had with it. Without seeds the group is looked for by multicast
    /// all the same.
    pub(crate) fn with_former(mut self, members: &[SocketAddr]) -> Seeds {
        if !self.is_empty() {
            let is_new = |member: &&SocketAddr| !self.fixed.contains(member);
            self.former = members.iter().filter(is_new).copied().collect();
        }
        self
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

    /// Looks up all names and returns all known addresses. Blocks, but does not wait for a name that takes long if another
    /// seed has an address. Fails if look-ups failed and no address is known.
    pub(crate) fn resolve(&self) -> Result<Vec<SocketAddr>, OpenError> {
        let error = names::look_up(&self.names, !self.fixed.is_empty() || !self.former.is_empty());
        let known = self.known();
        match error {
            Some(source) if known.is_empty() => {
                Err(OpenError::Seeds { seeds: self.names.join(", "), source })
            }
            _ => Ok(known),
        }
    }

    /// Returns the addresses that are known already.
    pub(crate) fn without_look_up(&self) -> Vec<SocketAddr> {
        self.known()
    }

    /// Calls [`Seeds::resolve`] until it returns addresses, for at most `timeout`. `name` is the group or service, for
    /// the log.
    pub(crate) fn resolve_within(&self, timeout: Duration, name: &str) -> Result<Vec<SocketAddr>, OpenError> {
        let waits = || log::waits_for_seeds(name, &self.names.join(", "), timeout);
        retry(timeout, ATTEMPT_PAUSE, || self.resolve(), waits)
    }

    /// Returns the known addresses that a socket at `own` can ask, except `own`. One at `[::]` can ask all. Looks names up
    /// again in the background if the last look-up is too old.
    pub(crate) fn ask(&self, own: SocketAddr) -> impl Iterator<Item = SocketAddr> {
        names::refresh(&self.names);
        let is_everywhere = own.ip() == IpAddr::from(Ipv6Addr::UNSPECIFIED);
        self.known().into_iter().filter(move |address| {
            *address != own
                && (is_everywhere || address.is_ipv6() == own.is_ipv6())
                && self.may_come_from(*address)
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

    /// Returns the addresses that were given, then those of names, IPv4 before IPv6, then those of former members.
    fn known(&self) -> Vec<SocketAddr> {
        let mut known = self.fixed.clone();
        known.extend(names::addresses(&self.names));
        let of_seeds = known.len();
        let is_new = |former: &&SocketAddr| !known[..of_seeds].contains(former);
        let former: Vec<SocketAddr> = self.former.iter().filter(is_new).copied().collect();
        known.extend(former);
        known
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
            assert_eq!(seeds.known(), known);
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
        assert_eq!(refused(Some("0.0.0.0:0"), &[four, six]).as_deref(), Some(six));
        for bind in ["127.0.0.1:0", "[::1]:0"] {
            assert_eq!(refused(Some(bind), &["localhost:9"]), None);
        }
        assert_eq!(refused(Some("[::]:0"), &[six, four]), None);
        let open = |given: [&str; 2]| {
            let seeds = given.map(String::from).into();
            Seeds::new(&Options { insecure: true, seeds, ..Options::default() })
        };
        assert!(matches!(open([four, six]), Err(OpenError::SeedFamily { .. })));
        open(["192.0.2.1:9", "[2001:db8::1]:9"]).unwrap();
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
            let options = Options { insecure, seeds: vec!["later.invalid".into()], ..Options::default() };
            names::set("later.invalid", addresses.clone());
            Seeds::new(&options).unwrap()
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
        let none = || Err(OpenError::Seeds { seeds: "a".into(), source: std::io::Error::other("none yet") });
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
    fn a_socket_at_all_addresses_asks_seeds_of_both_versions_and_another_those_of_its_own() {
        let (four, six): (SocketAddr, SocketAddr) =
            ("192.0.2.1:9".parse().unwrap(), "[2001:db8::1]:9".parse().unwrap());
        names::set("both.invalid", vec![four, six]);
        let options = Options { insecure: true, seeds: vec!["both.invalid".into()], ..Options::default() };
        let seeds = Seeds::new(&options).unwrap();
        for (own, asked) in
            [("[::]:5", vec![four, six]), ("0.0.0.0:5", vec![four]), ("[2001:db8::7]:5", vec![six])]
        {
            assert_eq!(seeds.ask(own.parse().unwrap()).collect::<Vec<_>>(), asked, "{own}");
        }
    }

    #[test]
    fn former_members_are_asked_too_but_not_in_place_of_multicast() {
        let (seed, member): (SocketAddr, SocketAddr) =
            ("192.0.2.1:9".parse().unwrap(), "192.0.2.2:9".parse().unwrap());
        let seeds = |given: &[&str]| {
            let seeds = given.iter().map(ToString::to_string).collect();
            let options = Options { insecure: true, seeds, ..Options::default() };
            Seeds::new(&options).unwrap().with_former(&[seed, member])
        };
        assert_eq!(seeds(&["192.0.2.1:9"]).resolve().unwrap(), [seed, member]);
        // No name server answers.
        assert_eq!(seeds(&["gone.invalid"]).resolve().unwrap(), [seed, member]);
        assert!(seeds(&[]).is_empty() && seeds(&[]).resolve().unwrap().is_empty());
    }

    #[test]
    fn names_without_an_address_are_an_error_unless_another_seed_has_one() {
        let nowhere = seeds(None, &["nowhere.invalid"]).unwrap();
        assert!(matches!(nowhere.resolve(), Err(OpenError::Seeds { .. })));
        let partly = seeds(None, &["nowhere.invalid", "127.0.0.1:9"]).unwrap();
        assert_eq!(partly.resolve().unwrap(), ["127.0.0.1:9".parse().unwrap()]);
    }
}

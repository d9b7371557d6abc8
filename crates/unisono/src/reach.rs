//! The addresses of this machine that a process uses, and the multicast address of a group.

use crate::error::OpenError;
use crate::log;
use crate::options::Options;
use crate::seeds::Seeds;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4};
use std::thread;
use std::time::{Duration, Instant};
use unisono_core::{GroupTag, Port};
use unisono_udp::{address_toward, interfaces};

/// UDP port of all multicasts. Groups differ in their multicast address, or else in the tag in each datagram.
pub const MULTICAST_PORT: u16 = 7196;
/// Number of multicast addresses that all groups share: 239.195.117.1 and the next ones, administratively scoped.
const MULTICAST_ADDRESSES: u64 = 32;
/// An address from a range for documentation, which no machine has: the route to it is the default route.
const FAR_AWAY: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);

/// Interval at which a process without an address looks whether this machine has one.
const LOOKS_FOR_ADDRESS_EVERY: Duration = Duration::from_millis(200);

/// Returns the port of the group of this name.
pub(crate) fn port(name: &str) -> Result<Port, OpenError> {
    match name.is_empty() || name.contains(char::is_control) {
        true => Err(OpenError::GroupName { name: name.into() }),
        false => Ok(Port::from_name(name)),
    }
}

/// Returns the address at which all members of a group listen, and at which a joiner looks for it.
pub(crate) fn multicast_address(tag: GroupTag) -> SocketAddrV4 {
    multicast_address_at((tag.0 % MULTICAST_ADDRESSES) as u8)
}

/// Returns the multicast addresses of all groups.
pub(crate) fn multicast_addresses() -> impl Iterator<Item = SocketAddrV4> {
    (0..MULTICAST_ADDRESSES as u8).map(multicast_address_at)
}

fn multicast_address_at(place: u8) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(239, 195, 117, 1 + place), MULTICAST_PORT)
}

/// Maximum length of a datagram in bytes over IPv6, where routers do not fragment: what every path carries (RFC 8200: an MTU
/// of 1,280 bytes), less 48 bytes of headers.
pub(crate) const IPV6_DATAGRAM_BYTES_MAX: usize = 1232;

/// Returns the maximum length of the datagrams of a process at this address, whose settings name `bytes`.
pub(crate) fn datagram_bytes_max(bytes: usize, address: IpAddr) -> usize {
    if address.is_ipv6() { bytes.min(IPV6_DATAGRAM_BYTES_MAX) } else { bytes }
}

/// What a process is at an address for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Others find it there: a member or a service.
    IsFound,
    /// It asks others, and gets their answers there: a client.
    OnlyAsks,
}

/// What options say about the addresses that a process uses. What follows from it changes with this machine's network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wish {
    bind: Option<SocketAddr>,
    multicast_interface: Option<Ipv4Addr>,
    /// All traffic stays on this machine.
    pub(crate) home: bool,
}

impl Wish {
    pub(crate) fn of(options: &Options) -> Wish {
        let Options { bind, multicast_interface, .. } = *options;
        Wish { bind, multicast_interface, home: options.stays_home() }
    }

    /// True if the options name the UDP port.
    pub(crate) fn names_port(&self) -> bool {
        self.bind.is_some_and(|address| address.port() != 0)
    }

    /// True if the options name neither the address nor loopback, so that it depends on this machine's network.
    pub(crate) fn follows_the_network(&self) -> bool {
        !self.home && self.bind.is_none_or(|address| address.ip().is_unspecified())
    }

    /// True if a process with this wish can ask a seed of this IP version: it has no address yet, or all of both versions, or
    /// one of the same version.
    pub(crate) fn asks(&self, seed: SocketAddr) -> bool {
        self.bind.is_none_or(|bind| {
            bind.is_ipv6() == seed.is_ipv6() || bind.ip() == IpAddr::from(Ipv6Addr::UNSPECIFIED)
        })
    }

    /// Chooses the addresses for a process that will ask `seeds`, as this machine's network is now.
    pub(crate) fn place_for(&self, purpose: Purpose, seeds: &[SocketAddr]) -> Result<Place, OpenError> {
        match purpose {
            Purpose::IsFound => self.place(seeds),
            Purpose::OnlyAsks => self.roam(seeds),
        }
    }

    /// The same for a process that others find: the addresses from which the first seed is reached that this machine has a
    /// route to.
    pub(crate) fn place(&self, seeds: &[SocketAddr]) -> Result<Place, OpenError> {
        self.permit(seeds)?;
        let version_six = match self.bind {
            Some(address) => address.is_ipv6(),
            None => self
                .ways(seeds)
                .first()
                .map_or_else(|| seeds.first().is_some_and(SocketAddr::is_ipv6), IpAddr::is_ipv6),
        };
        match seeds.first() {
            Some(seed) if seeds.iter().all(|seed| seed.is_ipv6() != version_six) => {
                return Err(OpenError::SeedFamily { seed: *seed });
            }
            _ => {}
        }
        match self.bind {
            Some(bind) if !bind.ip().is_unspecified() => self.at(bind, Some(bind.ip())),
            Some(bind) => self.at(bind, outward(seeds, version_six)?),
            None if self.home => self.free_at(version_six, Some(loopback(version_six))),
            None => self.free_at(version_six, outward(seeds, version_six)?),
        }
    }

    /// Chooses the addresses for each life in which a member looks for its group among `seeds`: a member has one address, so
    /// it asks the seeds of another IP version or network in another life. The first is that of [`Wish::place`]; a
    /// member that names its address has no other one.
    pub(crate) fn choices(&self, seeds: &[SocketAddr]) -> Result<Vec<Place>, OpenError> {
        let mut places = vec![self.place(seeds)?.somewhere()?];
        if self.bind.is_none() && !self.home {
            for way in self.ways(seeds) {
                let place = self.free_at(way.is_ipv6(), Some(way))?;
                if !places.contains(&place) {
                    places.push(place);
                }
            }
        }
        Ok(places)
    }

    /// Chooses the addresses for a process that only asks: if no single address reaches all seeds, none of its own. Then it
    /// can ask seeds of both IP versions and in all networks, each from the address that reaches it.
    pub(crate) fn roam(&self, seeds: &[SocketAddr]) -> Result<Place, OpenError> {
        self.permit(seeds)?;
        let roams = self.follows_the_network() && !self.names_port();
        let ways = self.ways(seeds);
        let version_six = self.bind.map_or_else(|| ways.iter().any(IpAddr::is_ipv6), |bind| bind.is_ipv6());
        let is_other = |way: &IpAddr| way.is_ipv6() != version_six;
        if !roams || ways.len() < 2 && !ways.iter().any(is_other) {
            return self.place(seeds);
        }
        let any: IpAddr =
            if version_six { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
        let of_four = ways.iter().find_map(|way| match way {
            IpAddr::V4(way) => Some(*way),
            IpAddr::V6(_) => None,
        });
        let interface = self.multicast_interface.or(of_four);
        Ok(Place { bind: (any, 0).into(), advertised: any, roams: true, is_nowhere: false, interface })
    }

    /// Returns the addresses of this machine from which the seeds on other machines are reached that a process with this wish
    /// can ask, in the order of the seeds.
    fn ways(&self, seeds: &[SocketAddr]) -> Vec<IpAddr> {
        let mut ways = Vec::new();
        for seed in seeds.iter().filter(|seed| self.asks(**seed) && !seed.ip().is_loopback()) {
            match address_toward(*seed) {
                Ok(way) if !way.is_loopback() && !ways.contains(&way) => ways.push(way),
                _ => {}
            }
        }
        ways
    }

    /// Returns the place of a socket that is bound to any port of the address that others are given.
    fn free_at(&self, version_six: bool, advertised: Option<IpAddr>) -> Result<Place, OpenError> {
        self.at((advertised.unwrap_or(loopback(version_six)), 0).into(), advertised)
    }

    /// Returns the place of a socket that is bound to this address. `advertised` is the address that others are given, if this
    /// machine has one.
    fn at(&self, bind: SocketAddr, advertised: Option<IpAddr>) -> Result<Place, OpenError> {
        let is_nowhere = advertised.is_none();
        let advertised = advertised.unwrap_or(loopback(bind.is_ipv6()));
        let own = match advertised {
            IpAddr::V4(address) => Some(address),
            IpAddr::V6(_) => None,
        };
        let interface = self.multicast_interface.or(own).filter(|_| !is_nowhere);
        match interface.filter(|interface| self.home && !interface.is_loopback()) {
            Some(interface) => Err(OpenError::Unprotected { address: (interface, 0).into() }),
            None => Ok(Place { bind, advertised, roams: false, is_nowhere, interface }),
        }
    }

    /// Refuses addresses outside of this machine if all traffic is to stay on it.
    fn permit(&self, seeds: &[SocketAddr]) -> Result<(), OpenError> {
        let outside = || seeds.iter().chain(&self.bind).find(|address| !address.ip().is_loopback());
        match self.home.then(outside).flatten() {
            Some(address) => Err(OpenError::Unprotected { address: *address }),
            None => Ok(()),
        }
    }
}

/// The addresses that a process uses, checked against what its options permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Address to bind.
    pub(crate) bind: SocketAddr,
    /// Address that other processes are given; its port is that of `bind`, so 0 until it is bound.
    pub(crate) advertised: IpAddr,
    /// The process has no address of its own, and `advertised` is unspecified: each process that it asks sees the address
    /// from which that one is reached.
    pub(crate) roams: bool,
    /// This machine has no address yet at which others could reach it. Nothing is sent from here, and the other addresses
    /// only stand in.
    pub(crate) is_nowhere: bool,
    /// Interface for multicast; `None` with IPv6, and nowhere.
    pub(crate) interface: Option<Ipv4Addr>,
}

impl Place {
    /// Returns this place for a process that cannot do anything before this machine has an address.
    pub(crate) fn somewhere(self) -> Result<Place, OpenError> {
        if self.is_nowhere { Err(OpenError::NoAddressYet) } else { Ok(self) }
    }
}

/// Waits until this machine has an address for a member with these options, for at most `timeout`. `name` is the group, for
/// the log.
pub(crate) fn wait_for_address(
    name: &str,
    options: &Options,
    seeds: &[SocketAddr],
    timeout: Duration,
) -> Result<(), OpenError> {
    let (begin, mut told) = (Instant::now(), false);
    // Any other error is found, and reported, when the member begins to enter.
    while Wish::of(options).place(seeds).is_ok_and(|place| place.is_nowhere) {
        let left = timeout.saturating_sub(begin.elapsed());
        if left.is_zero() {
            return Err(OpenError::NoAddressYet);
        }
        if !std::mem::replace(&mut told, true) {
            log::waits_for_address(name);
        }
        thread::sleep(LOOKS_FOR_ADDRESS_EVERY.min(left));
    }
    Ok(())
}

impl Options {
    /// True if there is neither a key nor the permission to do without: all traffic stays on this machine.
    pub(crate) fn stays_home(&self) -> bool {
        self.key.is_none() && !self.insecure
    }

    /// Returns the address at which other processes would reach one with these options: the bound address, or the one
    /// that is chosen if none is named. Looks seeds up, which may block for seconds.
    ///
    /// # Errors
    /// The errors that would keep such a process from entering a group, as far as addresses are concerned. Nothing is
    /// sent.
    pub fn address(&self) -> Result<IpAddr, OpenError> {
        let seeds = Seeds::new(self)?.resolve()?;
        Ok(Wish::of(self).place(&seeds)?.somewhere()?.advertised)
    }

    /// True if this machine has no address yet for a process with these options, which would wait for one. Looks no seeds
    /// up.
    pub fn lacks_address(&self) -> bool {
        let known = Seeds::new(self).map(|seeds| seeds.without_look_up());
        known.is_ok_and(|known| Wish::of(self).place(&known).is_ok_and(|place| place.is_nowhere))
    }
}

/// Returns the address at which members on other machines reach this one: the one from which the first seed on another
/// machine with a route is reached, or else the one that the default route uses. Without a route, it is the only address that
/// leads out of this machine. Returns none if there is no such address, and loopback only if this machine has no other
/// interface that could get one and no seed is on another machine.
fn outward(seeds: &[SocketAddr], version_six: bool) -> Result<Option<IpAddr>, OpenError> {
    let default = match version_six {
        true => (FAR_AWAY, MULTICAST_PORT).into(),
        false => multicast_address(GroupTag(0)).into(),
    };
    let elsewhere = |seed: &SocketAddr| seed.is_ipv6() == version_six && !seed.ip().is_loopback();
    let mut toward = seeds.iter().copied().filter(elsewhere).peekable();
    let is_elsewhere = toward.peek().is_some();
    let mut routed = toward.chain([default]).filter_map(|to| address_toward(to).ok());
    if let Some(address) = routed.find(|address| !address.is_loopback()) {
        return Ok(Some(address));
    }
    let interfaces = interfaces().map_err(|_| OpenError::NoAddress)?;
    let leads_out = |ip: &IpAddr| match ip {
        IpAddr::V4(ip) => !version_six && !ip.is_loopback() && !ip.is_link_local(),
        IpAddr::V6(ip) => version_six && !ip.is_loopback() && !ip.is_unicast_link_local(),
    };
    let mut addresses =
        interfaces.iter().flat_map(|interface| &interface.addresses).filter(|ip| leads_out(ip));
    match (addresses.next(), addresses.next()) {
        (Some(only), None) => Ok(Some(*only)),
        (Some(_), Some(_)) => Err(OpenError::NoAddress),
        (None, _) => {
            let may_get_one =
                interfaces.iter().any(|interface| !interface.is_loopback && interface.multicasts);
            Ok((!may_get_one && !is_elsewhere).then(|| loopback(version_six)))
        }
    }
}

fn loopback(version_six: bool) -> IpAddr {
    if version_six { Ipv6Addr::LOCALHOST.into() } else { Ipv4Addr::LOCALHOST.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Key;

    fn options(bind: Option<&str>) -> Options {
        Options { bind: bind.map(|address| address.parse().unwrap()), ..Options::default() }
    }

    fn choose(options: &Options, seeds: &[SocketAddr]) -> Result<Place, OpenError> {
        Wish::of(options).place(seeds)
    }

    #[test]
    fn without_a_key_nothing_leaves_the_machine() {
        let place = choose(&options(None), &[]).unwrap();
        assert_eq!(place.bind, (Ipv4Addr::LOCALHOST, 0).into());
        assert_eq!(place.interface, Some(Ipv4Addr::LOCALHOST));
        let refused = |options: &Options, seeds: &[SocketAddr]| {
            matches!(choose(options, seeds), Err(OpenError::Unprotected { .. }))
        };
        let abroad: SocketAddr = "192.0.2.7:7195".parse().unwrap();
        assert!(refused(&options(Some("192.0.2.7:0")), &[]));
        assert!(refused(&options(Some("0.0.0.0:0")), &[]));
        assert!(refused(&options(None), &[abroad]));
        let interface = Some(Ipv4Addr::new(192, 0, 2, 7));
        assert!(refused(&Options { multicast_interface: interface, ..options(None) }, &[]));
        assert!(!refused(&Options { insecure: true, ..options(Some("192.0.2.7:0")) }, &[abroad]));
        let key = Some(Key::from_bytes([1; 32]));
        assert!(!refused(&Options { key, ..options(Some("192.0.2.7:0")) }, &[abroad]));
    }

    #[test]
    fn the_address_of_options_is_the_one_that_members_use() {
        let mine = Options { bind: "127.0.0.2:7000".parse().ok(), ..Options::default() };
        assert_eq!(mine.address().unwrap(), Ipv4Addr::new(127, 0, 0, 2));
        let abroad = Options { seeds: vec!["192.0.2.7".into()], ..Options::default() };
        assert!(matches!(abroad.address(), Err(OpenError::Unprotected { .. })));
        let open = Options { insecure: true, ..Options::default() };
        assert_eq!(open.address().ok(), choose(&open, &[]).ok().map(|place| place.advertised));
    }

    #[test]
    fn a_wildcard_is_never_told_to_others() {
        let open = Options { insecure: true, ..options(Some("0.0.0.0:7000")) };
        let place = choose(&open, &["127.0.0.1:1".parse().unwrap()]).unwrap();
        assert!(!place.advertised.is_unspecified());
        assert_eq!(place.bind.port(), 7000);
        let six = Options { insecure: true, ..options(Some("[::]:7000")) };
        let place = choose(&six, &[]).unwrap();
        assert!(place.advertised.is_ipv6() && !place.advertised.is_unspecified(), "{place:?}");
    }

    #[test]
    fn a_seed_on_this_machine_does_not_keep_a_member_from_others() {
        let seed = ["127.0.0.1:1".parse().unwrap()];
        let open = |bind| Options { insecure: true, ..options(bind) };
        let alone = choose(&open(None), &[]).unwrap();
        assert_eq!(choose(&open(None), &seed).unwrap(), alone);
        let everywhere = open(Some("0.0.0.0:0"));
        assert_eq!(choose(&everywhere, &seed).unwrap().advertised, alone.advertised);
        // Still nothing leaves the machine.
        assert_eq!(choose(&options(None), &seed).unwrap().advertised, Ipv4Addr::LOCALHOST);
        let six = choose(&options(None), &["[::1]:1".parse().unwrap()]).unwrap();
        assert_eq!(six.bind.ip(), Ipv6Addr::LOCALHOST);
    }

    #[test]
    fn seeds_of_which_none_can_be_asked_are_refused() {
        let (four, six) = ("127.0.0.1:1".parse().unwrap(), "[::1]:1".parse().unwrap());
        for (bind, other) in [("127.0.0.1:0", six), ("[::1]:0", four)] {
            let refused = choose(&options(Some(bind)), &[other]);
            assert!(matches!(refused, Err(OpenError::SeedFamily { seed }) if seed == other), "{refused:?}");
            // A name may have addresses of both families.
            choose(&options(Some(bind)), &[four, six]).unwrap();
        }
        // The first seed decides: addresses come before names.
        for (first, second) in [(four, six), (six, four)] {
            let place = choose(&options(None), &[first, second]).unwrap();
            assert_eq!(place.bind.ip(), first.ip());
        }
    }

    #[test]
    fn seeds_of_another_version_or_network_are_asked_from_another_address() {
        let open = |bind| Options { insecure: true, ..options(bind) };
        // Loopback has no route to any of these, and every machine to itself.
        let Ok(Some(own)) = outward(&[], false) else { return };
        let others: Vec<SocketAddr> = ["127.0.0.1:1", "[::1]:1"].map(|seed| seed.parse().unwrap()).to_vec();
        assert_eq!(Wish::of(&open(None)).choices(&others).unwrap(), [choose(&open(None), &others).unwrap()]);
        if own.is_loopback() {
            return;
        }
        let mine = [SocketAddr::new(own, 1)];
        let place = Wish::of(&open(None)).roam(&mine).unwrap();
        assert_eq!((place, place.bind.ip()), (choose(&open(None), &mine).unwrap(), own));
        // A socket at all addresses of IPv6 asks those of IPv4 too.
        let place = Wish::of(&open(Some("[::]:0"))).roam(&mine).unwrap();
        assert!(place.roams && place.advertised.is_unspecified());
        assert_eq!(place.bind, "[::]:0".parse().unwrap());
        // One that others must find, or that its program chose, is where it is.
        for bind in ["127.0.0.1:0", "0.0.0.0:7000"] {
            let place = Wish::of(&open(Some(bind))).roam(&mine).unwrap();
            assert_eq!(place, choose(&open(Some(bind)), &mine).unwrap());
        }
        assert!(matches!(Wish::of(&options(None)).roam(&mine), Err(OpenError::Unprotected { .. })));
    }

    #[test]
    fn over_ipv6_no_datagram_is_longer_than_every_path_carries() {
        let (four, six) = (Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into());
        assert_eq!([four, six].map(|own| datagram_bytes_max(1472, own)), [1472, 1232]);
        assert_eq!([four, six].map(|own| datagram_bytes_max(700, own)), [700, 700]);
    }

    #[test]
    fn a_group_has_a_name_that_can_be_read() {
        for good in ["kitchen", "a b", "ünïcode"] {
            port(good).unwrap();
        }
        for bad in ["", "two\nlines", "\u{1b}[31m"] {
            let refused = port(bad);
            assert!(matches!(refused, Err(OpenError::GroupName { .. })), "{refused:?}");
            assert!(!refused.unwrap_err().to_string().contains(char::is_control));
        }
    }

    #[test]
    fn groups_share_a_bounded_set_of_scoped_addresses() {
        for tag in 0..1000 {
            let address = multicast_address(GroupTag(tag));
            assert!(address.ip().is_multicast() && address.ip().octets()[..2] == [239, 195]);
            assert!((1..=32).contains(&address.ip().octets()[3]));
        }
    }
}

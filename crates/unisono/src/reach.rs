//! The addresses of this machine that a process uses, and the multicast address of a group.

use crate::error::OpenError;
use crate::options::Options;
use crate::seeds::Seeds;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4};
use unisono_core::{GroupTag, Port};
use unisono_udp::address_toward;

/// UDP port of all multicasts. Groups differ in their multicast address, or else in the tag in each datagram.
pub const MULTICAST_PORT: u16 = 7196;
/// Number of multicast addresses that all groups share: 239.195.117.1 and the next ones, administratively scoped.
const MULTICAST_ADDRESSES: u64 = 32;
/// An address from a range for documentation, which no machine has: the route to it is the default route.
const FAR_AWAY: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);

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

/// The addresses that a process uses, checked against what its options permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Address to bind.
    pub(crate) bind: SocketAddr,
    /// Address that other processes are given; its port is that of `bind`, so 0 until it is bound.
    pub(crate) advertised: IpAddr,
    /// Interface for multicast; `None` with IPv6.
    pub(crate) interface: Option<Ipv4Addr>,
}

impl Place {
    /// Chooses the addresses for a process that will ask `seeds`, or the seeds of its own IP version.
    pub(crate) fn choose(options: &Options, seeds: &[SocketAddr]) -> Result<Place, OpenError> {
        let home = options.stays_home();
        if home {
            let outside = seeds.iter().chain(&options.bind).find(|address| !address.ip().is_loopback());
            if let Some(address) = outside {
                return Err(OpenError::Unprotected { address: *address });
            }
        }
        let version_six = match options.bind {
            Some(address) => address.is_ipv6(),
            None => seeds.first().is_some_and(SocketAddr::is_ipv6),
        };
        match seeds.first() {
            Some(seed) if seeds.iter().all(|seed| seed.is_ipv6() != version_six) => {
                return Err(OpenError::SeedFamily { seed: *seed });
            }
            _ => {}
        }
        let bind = match options.bind {
            Some(address) => address,
            None if home => (loopback(version_six), 0).into(),
            None => (outward(seeds, version_six)?, 0).into(),
        };
        let advertised = match bind.ip().is_unspecified() {
            true => outward(seeds, version_six)?,
            false => bind.ip(),
        };
        let interface = options.multicast_interface.or(match advertised {
            IpAddr::V4(address) => Some(address),
            IpAddr::V6(_) => None,
        });
        match interface.filter(|interface| home && !interface.is_loopback()) {
            Some(interface) => Err(OpenError::Unprotected { address: (interface, 0).into() }),
            None => Ok(Place { bind, advertised, interface }),
        }
    }
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
        Ok(Place::choose(self, &seeds)?.advertised)
    }
}

/// Returns the address at which members on other machines reach this one: the one from which a seed on another
/// machine is reached, or else the one that the default route uses. Without a route, it is the only address that
/// leads out of this machine. Returns loopback only if there is no such address and no seed is on another machine.
fn outward(seeds: &[SocketAddr], version_six: bool) -> Result<IpAddr, OpenError> {
    let default = match version_six {
        true => (FAR_AWAY, MULTICAST_PORT).into(),
        false => multicast_address(GroupTag(0)).into(),
    };
    let elsewhere = |seed: &&SocketAddr| seed.is_ipv6() == version_six && !seed.ip().is_loopback();
    let toward = seeds.iter().find(elsewhere);
    let routed = toward.copied().into_iter().chain([default]).find_map(|to| address_toward(to).ok());
    if let Some(address) = routed.filter(|address| !address.is_loopback()) {
        return Ok(address);
    }
    let interfaces = if_addrs::get_if_addrs().map_err(|_| OpenError::NoAddress)?;
    let leads_out = |ip: &IpAddr| match ip {
        IpAddr::V4(ip) => !version_six && !ip.is_loopback() && !ip.is_link_local(),
        IpAddr::V6(ip) => version_six && !ip.is_loopback() && !ip.is_unicast_link_local(),
    };
    let mut addresses = interfaces.iter().map(|interface| interface.ip()).filter(leads_out);
    match (addresses.next(), addresses.next()) {
        (Some(only), None) => Ok(only),
        (None, None) if toward.is_none() => Ok(loopback(version_six)),
        _ => Err(OpenError::NoAddress),
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

    #[test]
    fn without_a_key_nothing_leaves_the_machine() {
        let place = Place::choose(&options(None), &[]).unwrap();
        assert_eq!(place.bind, (Ipv4Addr::LOCALHOST, 0).into());
        assert_eq!(place.interface, Some(Ipv4Addr::LOCALHOST));
        let refused = |options: &Options, seeds: &[SocketAddr]| {
            matches!(Place::choose(options, seeds), Err(OpenError::Unprotected { .. }))
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
        assert_eq!(open.address().ok(), Place::choose(&open, &[]).ok().map(|place| place.advertised));
    }

    #[test]
    fn a_wildcard_is_never_told_to_others() {
        let open = Options { insecure: true, ..options(Some("0.0.0.0:7000")) };
        let place = Place::choose(&open, &["127.0.0.1:1".parse().unwrap()]).unwrap();
        assert!(!place.advertised.is_unspecified());
        assert_eq!(place.bind.port(), 7000);
        let six = Options { insecure: true, ..options(Some("[::]:7000")) };
        let place = Place::choose(&six, &[]).unwrap();
        assert!(place.advertised.is_ipv6() && !place.advertised.is_unspecified(), "{place:?}");
    }

    #[test]
    fn a_seed_on_this_machine_does_not_keep_a_member_from_others() {
        let seed = ["127.0.0.1:1".parse().unwrap()];
        let open = |bind| Options { insecure: true, ..options(bind) };
        let alone = Place::choose(&open(None), &[]).unwrap();
        assert_eq!(Place::choose(&open(None), &seed).unwrap(), alone);
        let everywhere = open(Some("0.0.0.0:0"));
        assert_eq!(Place::choose(&everywhere, &seed).unwrap().advertised, alone.advertised);
        // Still nothing leaves the machine.
        assert_eq!(Place::choose(&options(None), &seed).unwrap().advertised, Ipv4Addr::LOCALHOST);
        let six = Place::choose(&options(None), &["[::1]:1".parse().unwrap()]).unwrap();
        assert_eq!(six.bind.ip(), Ipv6Addr::LOCALHOST);
    }

    #[test]
    fn seeds_of_which_none_can_be_asked_are_refused() {
        let (four, six) = ("127.0.0.1:1".parse().unwrap(), "[::1]:1".parse().unwrap());
        for (bind, other) in [("127.0.0.1:0", six), ("[::1]:0", four)] {
            let refused = Place::choose(&options(Some(bind)), &[other]);
            assert!(matches!(refused, Err(OpenError::SeedFamily { seed }) if seed == other), "{refused:?}");
            // A name may have addresses of both families.
            Place::choose(&options(Some(bind)), &[four, six]).unwrap();
        }
        // The first seed decides: addresses come before names.
        for (first, second) in [(four, six), (six, four)] {
            let place = Place::choose(&options(None), &[first, second]).unwrap();
            assert_eq!(place.bind.ip(), first.ip());
        }
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

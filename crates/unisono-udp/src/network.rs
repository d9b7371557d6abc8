//! This machine's interfaces and addresses, and the kernel's reports that they have changed.

use crate::netlink::{bytes_at, messages};
use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::net::if_::{InterfaceFlags, if_nametoindex};
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, SockaddrStorage, bind, recv,
    socket,
};
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// The kernel's multicast groups of reports: links, IPv4 addresses, IPv6 addresses (`RTMGRP_…` in rtnetlink(7)).
const GROUPS: u32 = 0x1 | 0x10 | 0x100;
/// What describes an interface in a report, without attributes: its family in the first byte, and its number at [`INDEX_AT`].
const INTERFACE_BYTES: usize = 16;
const INDEX_AT: usize = 4;

/// An interface of this machine, up or down.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// The kernel's number of it. An interface that is removed and made again usually has another one.
    pub index: u32,
    /// True for the loopback interface.
    pub is_loopback: bool,
    /// True if it carries multicasts.
    pub multicasts: bool,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
}

/// Returns the interfaces of this machine.
pub fn interfaces() -> io::Result<Vec<Interface>> {
    let mut found = BTreeMap::<String, Interface>::new();
    for entry in getifaddrs()? {
        // The name of an IPv4 address may be a label: that of the interface, a colon and more.
        let name = entry.interface_name.split(':').next().unwrap_or_default();
        let interface = found.entry(name.to_owned()).or_default();
        interface.is_loopback |= entry.flags.contains(InterfaceFlags::IFF_LOOPBACK);
        interface.multicasts |= entry.flags.contains(InterfaceFlags::IFF_MULTICAST);
        let Some(address) = entry.address else { continue };
        if let Some(link) = address.as_link_addr() {
            interface.index = u32::try_from(link.ifindex()).unwrap_or_default();
        }
        interface.addresses.extend(ip_of(&address));
    }
    for (name, interface) in found.iter_mut().filter(|(_, interface)| interface.index == 0) {
        // Fails for an interface that was removed meanwhile.
        interface.index = if_nametoindex(name.as_str()).unwrap_or_default();
    }
    Ok(found.into_values().collect())
}

/// The addresses that one interface reaches without a router, by the hardware addresses for which this machine asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// This machine's address there.
    pub own: IpAddr,
    /// A one for each bit that all addresses there have in common.
    pub mask: IpAddr,
}

impl Link {
    /// True if this address is on the link, and not this machine's.
    pub(crate) fn reaches(&self, address: IpAddr) -> bool {
        let is_alike = match (self.own, self.mask, address) {
            (IpAddr::V4(own), IpAddr::V4(mask), IpAddr::V4(address)) => own & mask == address & mask,
            (IpAddr::V6(own), IpAddr::V6(mask), IpAddr::V6(address)) => own & mask == address & mask,
            _ => false,
        };
        is_alike && address != self.own
    }
}

/// Returns the links of this machine.
pub(crate) fn links() -> io::Result<Vec<Link>> {
    // On these no hardware address is asked for.
    let without = InterfaceFlags::IFF_LOOPBACK | InterfaceFlags::IFF_NOARP | InterfaceFlags::IFF_POINTOPOINT;
    let link = |entry: InterfaceAddress| {
        let (own, mask) = (ip_of(&entry.address?)?, ip_of(&entry.netmask?)?);
        (!entry.flags.intersects(without)).then_some(Link { own, mask })
    };
    Ok(getifaddrs()?.filter_map(link).collect())
}

fn ip_of(address: &SockaddrStorage) -> Option<IpAddr> {
    let four = address.as_sockaddr_in().map(|four| IpAddr::V4(four.ip()));
    four.or_else(|| address.as_sockaddr_in6().map(|six| IpAddr::V6(six.ip())))
}

/// The kernel's reports that interfaces or addresses of this machine have changed (netlink).
#[derive(Debug)]
pub struct NetworkChanges {
    socket: OwnedFd,
}

impl NetworkChanges {
    /// Subscribes to the reports. Fails where the system has none or does not permit that.
    pub fn new() -> io::Result<NetworkChanges> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkRoute)?;
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, GROUPS))?;
        Ok(NetworkChanges { socket })
    }

    /// Takes all reports that are there. Returns the numbers of the interfaces that were removed.
    pub fn take(&self) -> Vec<u32> {
        let (mut reports, mut gone) = ([0; 16 << 10], Vec::new());
        loop {
            match recv(self.socket.as_raw_fd(), &mut reports, MsgFlags::MSG_DONTWAIT) {
                Ok(0) | Err(nix::Error::EAGAIN) => return gone,
                Ok(length) => gone.extend(removed(&reports[..length])),
                // The second: the kernel had more reports than room for them, and has dropped some.
                Err(nix::Error::EINTR | nix::Error::ENOBUFS) => {}
                Err(_) => return gone,
            }
        }
    }
}

impl AsFd for NetworkChanges {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Returns the numbers of the interfaces that these reports call removed. Bridges report their ports under another family.
fn removed(reports: &[u8]) -> impl Iterator<Item = u32> {
    let removals = messages(reports).filter(|(kind, body)| {
        let family = body.first().copied().map(i32::from);
        *kind == libc::RTM_DELLINK
            && body.len() >= INTERFACE_BYTES
            && family == Some(AddressFamily::Unspec as i32)
    });
    removals.filter_map(|(_, body)| bytes_at(body, INDEX_AT).map(u32::from_ne_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::message;
    use std::net::Ipv4Addr;

    #[test]
    fn the_loopback_interface_is_found_with_its_address() {
        let found = interfaces().unwrap();
        let loopback = found.iter().find(|interface| interface.is_loopback).unwrap();
        assert!(loopback.index > 0);
        assert!(loopback.addresses.contains(&Ipv4Addr::LOCALHOST.into()), "{found:?}");
        assert!(found.iter().all(|other| other.index > 0), "{found:?}");
    }

    #[test]
    fn a_link_reaches_the_addresses_that_begin_like_its_own() {
        let link = |own: &str, mask: &str| Link { own: own.parse().unwrap(), mask: mask.parse().unwrap() };
        let (four, six) = (link("192.0.2.7", "255.255.255.0"), link("2001:db8::7", "ffff:ffff:ffff:ffff::"));
        let reaches = |link: Link, address: &str| link.reaches(address.parse().unwrap());
        assert_eq!(["192.0.2.9", "192.0.3.9", "192.0.2.7"].map(|to| reaches(four, to)), [true, false, false]);
        assert_eq!(["2001:db8::9", "2001:db8:1::9", "::"].map(|to| reaches(six, to)), [true, false, false]);
        assert!(!reaches(six, "192.0.2.9") && !reaches(four, "2001:db8::9"));
        assert!(links().unwrap().iter().all(|link| !link.own.is_loopback()));
    }

    #[test]
    fn removed_interfaces_are_found_among_other_reports() {
        let report = |kind: u16, family: u8, index: u32, length: usize| {
            let mut body = vec![0; length];
            body[0] = family;
            body[INDEX_AT..INDEX_AT + 4].copy_from_slice(&index.to_ne_bytes());
            message(kind, 0, &body)
        };
        let found = |reports: &[u8]| removed(reports).collect::<Vec<_>>();
        let (other, removed, port) = (
            report(libc::RTM_NEWLINK, 0, 3, 21),
            report(libc::RTM_DELLINK, 0, 4, INTERFACE_BYTES),
            report(libc::RTM_DELLINK, 7, 5, INTERFACE_BYTES),
        );
        assert_eq!(found(&[&other[..], &removed, &port, &removed].concat()), [4, 4]);
        assert!(found(&removed[..removed.len() - 1]).is_empty(), "it is cut short");
        assert!(found(&report(libc::RTM_DELLINK, 0, 4, INTERFACE_BYTES - 1)).is_empty());
    }
}

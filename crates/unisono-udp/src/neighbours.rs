//! Neighbours that do not answer, and the send buffer that they fill.
//!
//! A datagram to an address of the own link waits in the kernel until a machine there tells its hardware address. Linux
//! gives up after about 3 s. Until then the datagram counts in the send buffer of its socket, so datagrams to addresses
//! that no machine has can fill that buffer.

use crate::Socket;
use nix::sys::socket::getsockopt;
use nix::{getsockopt_impl, sockopt_impl};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr};

/// The system's table of neighbours and their hardware addresses, for IPv4.
const TABLE: &str = "/proc/net/arp";

/// What the kernel counts of a socket's memory (`SO_MEMINFO`, Linux 4.12), in bytes: received and not yet taken; the size of
/// the receive buffer; sent and not yet gone; the size of the send buffer. The kernel has more, and gives as much as fits.
type Memory = [u32; 4];

sockopt_impl!(MemoryCounts, GetOnly, libc::SOL_SOCKET, libc::SO_MEMINFO, Memory);

/// How full a send buffer is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendBuffer {
    /// Bytes in use, as the kernel counts: it charges about 800 bytes for a short datagram.
    pub used: usize,
    /// Its size, counted in the same way.
    pub size: usize,
}

impl Socket {
    /// Returns how full the send buffer is. Fails if the kernel does not tell.
    pub fn send_buffer(&self) -> io::Result<SendBuffer> {
        let [.., used, size] = getsockopt(&self.inner, MemoryCounts)?;
        Ok(SendBuffer { used: used as usize, size: size as usize })
    }
}

/// The IPv4 neighbours whose hardware addresses this machine has asked for, without an answer so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SilentNeighbours(BTreeSet<Ipv4Addr>);

impl SilentNeighbours {
    /// Reads them from the system's table. Returns none if there is no such table.
    pub fn read() -> SilentNeighbours {
        SilentNeighbours::of(&fs::read_to_string(TABLE).unwrap_or_default())
    }

    /// Returns those of a table with a row for each address and interface. An address that answers on one interface is none
    /// of them.
    fn of(table: &str) -> SilentNeighbours {
        let mut known = BTreeMap::new();
        for (address, answers) in table.lines().filter_map(row) {
            *known.entry(address).or_insert(false) |= answers;
        }
        known.into_iter().filter(|(_, answers)| !answers).map(|(address, _)| address).collect()
    }

    /// True if this is one of them. An IPv4 address in the form of an IPv6 address counts too.
    pub fn contains(&self, address: IpAddr) -> bool {
        matches!(address.to_canonical(), IpAddr::V4(address) if self.0.contains(&address))
    }
}

impl FromIterator<Ipv4Addr> for SilentNeighbours {
    fn from_iter<I: IntoIterator<Item = Ipv4Addr>>(addresses: I) -> SilentNeighbours {
        SilentNeighbours(addresses.into_iter().collect())
    }
}

/// Returns the address in a row of the table, and whether its hardware address is known. The first row has headings.
fn row(line: &str) -> Option<(Ipv4Addr, bool)> {
    let mut columns = line.split_whitespace();
    let address = columns.next()?.parse().ok()?;
    // The third column has flags: 0x0 while there is no hardware address.
    Some((address, columns.nth(1)? != "0x0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
IP address       HW type     Flags       HW address            Mask     Device
192.0.2.2        0x1         0x2         02:00:00:00:00:02     *        eth0
192.0.2.9        0x1         0x0         00:00:00:00:00:00     *        eth0
192.0.2.10       0x1         0x0         00:00:00:00:00:00     *        eth0
192.0.2.10       0x1         0x6         02:00:00:00:00:0a     *        eth1
192.0.2.11       0x1
192.0.2.12       0x1         0x0         00:00:00:00:00:00     *        eth1
";

    #[test]
    fn neighbours_without_a_hardware_address_on_any_interface_are_silent() {
        let silent = SilentNeighbours::of(TABLE);
        assert_eq!(silent, [9, 12].map(|last| Ipv4Addr::new(192, 0, 2, last)).into_iter().collect());
        let contains = |address: &str| silent.contains(address.parse().unwrap());
        let addresses =
            ["192.0.2.9", "::ffff:192.0.2.9", "192.0.2.2", "192.0.2.10", "192.0.2.99", "2001:db8::9"];
        assert_eq!(addresses.map(contains), [true, true, false, false, false, false]);
        assert_eq!(SilentNeighbours::of(""), SilentNeighbours::default());
    }
}

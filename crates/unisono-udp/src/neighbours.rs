//! Neighbours that do not answer, and the send buffer that they fill.
//!
//! A datagram to an address of the own link waits in the kernel until a machine there tells its hardware address. Linux
//! gives up after about 3 s. Until then the datagram counts in the send buffer of its socket, so datagrams to addresses
//! that no machine has can fill that buffer.

use crate::Socket;
use crate::netlink::{attributes, bytes_at, message, messages};
use crate::network::{Link, links};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, getsockopt, recv, send, socket,
};
use nix::{getsockopt_impl, sockopt_impl};
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsRawFd;

/// Length in bytes of what describes a neighbour, before its attributes: its family in the first byte, and its state in the 2 bytes
/// at [`STATE_AT`].
const NEIGHBOUR_BYTES: usize = 12;
const STATE_AT: usize = 8;
/// States of a neighbour whose hardware address is asked for, or was without an answer.
const SILENT: u16 = libc::NUD_INCOMPLETE | libc::NUD_FAILED;
/// The kernel sends its table in pieces that are no longer: 32 KiB.
const PIECE_BYTES: usize = 32 << 10;

/// Number of neighbours that are read. Linux keeps 1,024 of each family by default.
const ROWS_MAX: usize = 8192;

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

/// What this machine knows of the machine with an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Neighbour {
    /// It is on a link of this machine, and has told its hardware address.
    Answers,
    /// This machine has asked for its hardware address, without an answer so far.
    Silent,
    /// It is on a link of this machine, which has not asked for its hardware address, or has forgotten it.
    Unasked,
    /// It is reached without a hardware address of its own: through a router, or within this machine.
    Elsewhere,
}

/// The machines on the links of this one, as far as it knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Neighbours {
    /// Whether an address for which this machine has asked answers, on any interface.
    asked: BTreeMap<IpAddr, bool>,
    links: Vec<Link>,
}

impl Neighbours {
    /// Asks the kernel for them. All addresses are elsewhere if it does not tell.
    pub fn read() -> Neighbours {
        Neighbours::new(table().unwrap_or_default(), links().unwrap_or_default())
    }

    /// Returns those on these links. `table` has a row for each interface on which an address was asked for its hardware address:
    /// the address, and whether a machine answers there.
    pub fn new(table: impl IntoIterator<Item = (IpAddr, bool)>, links: Vec<Link>) -> Neighbours {
        let mut asked = BTreeMap::new();
        for (address, answers) in table {
            *asked.entry(address).or_insert(false) |= answers;
        }
        Neighbours { asked, links }
    }

    /// Returns what is known of this address. An IPv4 address in the form of an IPv6 address counts as itself.
    pub fn at(&self, address: IpAddr) -> Neighbour {
        let address = address.to_canonical();
        match self.asked.get(&address) {
            Some(true) => Neighbour::Answers,
            Some(false) => Neighbour::Silent,
            None if self.is_own(address) => Neighbour::Elsewhere,
            None if self.links.iter().any(|link| link.reaches(address)) => Neighbour::Unasked,
            None => Neighbour::Elsewhere,
        }
    }

    fn is_own(&self, address: IpAddr) -> bool {
        self.links.iter().any(|link| link.own == address)
    }
}

/// Returns the kernel's table of neighbours, on all interfaces: address, and whether its hardware address is known.
fn table() -> io::Result<Vec<(IpAddr, bool)>> {
    let socket =
        socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkRoute)?;
    send(socket.as_raw_fd(), &question(), MsgFlags::empty())?;
    let (mut piece, mut table) = (vec![0; PIECE_BYTES], Vec::new());
    loop {
        // The next piece is there when the one before is taken.
        let length = recv(socket.as_raw_fd(), &mut piece, MsgFlags::MSG_DONTWAIT)?;
        for (kind, body) in messages(&piece[..length]) {
            match kind {
                libc::RTM_NEWNEIGH if table.len() == ROWS_MAX => return Ok(table),
                libc::RTM_NEWNEIGH => table.extend(neighbour(body)),
                // The end, or an error.
                _ => return Ok(table),
            }
        }
        if length == 0 {
            return Ok(table);
        }
    }
}

/// Returns the question for all neighbours of all families.
fn question() -> Vec<u8> {
    let flags = (libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16;
    message(libc::RTM_GETNEIGH, flags, &[0; NEIGHBOUR_BYTES])
}

/// Returns the address of this neighbour, and whether its hardware address is known.
fn neighbour(body: &[u8]) -> Option<(IpAddr, bool)> {
    let state = u16::from_ne_bytes(bytes_at(body, STATE_AT)?);
    let (_, address) = attributes(body.get(NEIGHBOUR_BYTES..)?).find(|(kind, _)| *kind == libc::NDA_DST)?;
    let address = match address.len() {
        4 => IpAddr::from(bytes_at::<4>(address, 0)?),
        _ => IpAddr::from(bytes_at::<16>(address, 0)?),
    };
    Some((address, state & SILENT == 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::tests::attribute;

    fn row(address: &[u8], state: u16) -> Option<(IpAddr, bool)> {
        let mut neighbour = [0; NEIGHBOUR_BYTES];
        neighbour[STATE_AT..STATE_AT + 2].copy_from_slice(&state.to_ne_bytes());
        let hardware = attribute(libc::NDA_DST + 1, &[2, 0, 0, 0, 0, 9]);
        super::neighbour(&[&neighbour[..], &hardware, &attribute(libc::NDA_DST, address)].concat())
    }

    #[test]
    fn a_neighbour_has_an_address_and_answers_or_not() {
        let (four, six) = ([192, 0, 2, 9], [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9]);
        for (state, answers) in
            [(libc::NUD_INCOMPLETE, false), (libc::NUD_FAILED, false), (2, true), (0x80, true)]
        {
            assert_eq!(row(&four, state), Some((four.into(), answers)));
            assert_eq!(row(&six, state), Some((six.into(), answers)));
        }
        assert_eq!(row(&four[..3], 2), None);
        assert_eq!(neighbour(&[0; NEIGHBOUR_BYTES]), None, "it has no address");
        assert_eq!(neighbour(&[0; NEIGHBOUR_BYTES - 1]), None);
    }

    #[test]
    fn an_address_answers_or_is_silent_or_unasked_or_elsewhere() {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let link = |own, mask| Link { own: address(own), mask: address(mask) };
        let neighbours = Neighbours::new(
            vec![
                (address("192.0.2.2"), true),
                (address("192.0.2.9"), false),
                (address("192.0.2.10"), false),
                (address("192.0.2.10"), true),
                (address("2001:db8::9"), false),
            ],
            vec![
                link("192.0.2.7", "255.255.255.0"),
                link("192.0.2.8", "255.255.255.0"),
                link("2001:db8::7", "ffff:ffff:ffff:ffff::"),
            ],
        );
        let at = |text| neighbours.at(address(text));
        assert_eq!(["192.0.2.2", "192.0.2.10"].map(at), [Neighbour::Answers; 2]);
        assert_eq!(["192.0.2.9", "::ffff:192.0.2.9", "2001:db8::9"].map(at), [Neighbour::Silent; 3]);
        assert_eq!(["192.0.2.99", "2001:db8::8"].map(at), [Neighbour::Unasked; 2]);
        let elsewhere = ["192.0.2.7", "192.0.2.8", "198.51.100.1", "127.0.0.1", "2001:db8:1::9"];
        assert_eq!(elsewhere.map(at), [Neighbour::Elsewhere; 5]);
        assert_eq!(Neighbours::default().at(address("192.0.2.9")), Neighbour::Elsewhere);
    }

    #[test]
    fn the_kernel_tells_its_table() {
        // It may be empty.
        table().unwrap();
    }
}

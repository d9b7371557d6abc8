//! UDP payloads out of a packet capture: the classic pcap format, as `tcpdump -w` writes it.
//!
//! Only what is needed to get from a captured frame to a UDP payload: the link header is skipped, then IPv4 or
//! IPv6, then UDP. Anything else in the capture is passed over; a capture that ends early gives what it has. It is read
//! as it goes, a frame at a time, however long it is.

use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A UDP datagram that was captured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Captured {
    /// Time since 1970 in nanoseconds.
    pub(crate) time_ns: u64,
    pub(crate) source: SocketAddr,
    pub(crate) destination: SocketAddr,
    pub(crate) payload: Vec<u8>,
    /// Fewer bytes were captured than were sent.
    pub(crate) cut_short: bool,
}

/// Why a file is not a capture that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotPcap {
    /// Not of any known kind.
    Unknown,
    /// The newer format.
    Pcapng,
    /// A kind of network whose frames are not known here.
    LinkType(u32),
}

impl std::fmt::Display for NotPcap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NotPcap::Unknown => write!(f, "this is not a packet capture"),
            NotPcap::Pcapng => write!(f, "this is a pcapng capture; convert it: editcap -F pcap IN OUT"),
            NotPcap::LinkType(kind) => {
                write!(
                    f,
                    "captured on a link of type {kind}; known are Ethernet, loopback, raw IP and Linux 'any'"
                )
            }
        }
    }
}

const FILE_HEADER_BYTES: usize = 24;
const RECORD_HEADER_BYTES: usize = 16;
/// No capture has larger frames: tcpdump takes no more of one.
const FRAME_BYTES_MAX: u64 = 256 << 10;
const UDP: u8 = 17;

/// The UDP datagrams of a capture, in the order in which they were captured.
pub(crate) fn datagrams(mut file: impl Read) -> Result<impl Iterator<Item = Captured>, NotPcap> {
    let mut header = [0; FILE_HEADER_BYTES];
    let (magic, rest) = header.split_at_mut(4);
    file.read_exact(magic).map_err(|_| NotPcap::Unknown)?;
    let magic: [u8; 4] = (&*magic).try_into().map_err(|_| NotPcap::Unknown)?;
    let (big_endian, nanoseconds) = match magic {
        [0xa1, 0xb2, 0xc3, 0xd4] => (true, false),
        [0xa1, 0xb2, 0x3c, 0x4d] => (true, true),
        [0xd4, 0xc3, 0xb2, 0xa1] => (false, false),
        [0x4d, 0x3c, 0xb2, 0xa1] => (false, true),
        [0x0a, 0x0d, 0x0d, 0x0a] => return Err(NotPcap::Pcapng),
        _ => return Err(NotPcap::Unknown),
    };
    let word = move |bytes: &[u8]| match bytes.try_into() {
        Ok(bytes) if big_endian => u32::from_be_bytes(bytes),
        Ok(bytes) => u32::from_le_bytes(bytes),
        Err(_) => 0,
    };
    file.read_exact(rest).map_err(|_| NotPcap::Unknown)?;
    let link = word(&header[20..24]) & 0x0fff_ffff;
    if !matches!(link, 0 | 1 | 12 | 101 | 113 | 276) {
        return Err(NotPcap::LinkType(link));
    }
    let mut frame = Vec::new();
    Ok(std::iter::from_fn(move || {
        loop {
            let mut header = [0; RECORD_HEADER_BYTES];
            file.read_exact(&mut header).ok()?;
            let captured = Some(u64::from(word(&header[8..12]))).filter(|bytes| *bytes <= FRAME_BYTES_MAX)?;
            frame.clear();
            let read = file.by_ref().take(captured).read_to_end(&mut frame).ok()?;
            if (read as u64) < captured {
                return None;
            }
            let fraction = u64::from(word(&header[4..8])) * if nanoseconds { 1 } else { 1000 };
            let time_ns = u64::from(word(&header[..4])) * 1_000_000_000 + fraction;
            if let Some((source, destination, payload, cut_short)) = past_link(link, &frame).and_then(past_ip)
            {
                let payload = payload.to_vec();
                return Some(Captured { time_ns, source, destination, payload, cut_short });
            }
        }
    }))
}

/// What lies behind the link header, if that is IP.
fn past_link(link: u32, frame: &[u8]) -> Option<&[u8]> {
    let ethertype = |at: usize| Some(u16::from_be_bytes(frame.get(at..at + 2)?.try_into().ok()?));
    let is_ip = |kind: u16| matches!(kind, 0x0800 | 0x86dd);
    match link {
        0 => frame.get(4..),
        1 => match ethertype(12)? {
            0x8100 if is_ip(ethertype(16)?) => frame.get(18..),
            kind if is_ip(kind) => frame.get(14..),
            _ => None,
        },
        113 if is_ip(ethertype(14)?) => frame.get(16..),
        276 if is_ip(ethertype(0)?) => frame.get(20..),
        12 | 101 => Some(frame),
        _ => None,
    }
}

/// What lies behind IP and UDP; nothing for a piece of a larger packet, which only reassembly could read.
fn past_ip(packet: &[u8]) -> Option<(SocketAddr, SocketAddr, &[u8], bool)> {
    match packet.first()? >> 4 {
        4 => {
            let header = packet.get(..usize::from(packet[0] & 15) * 4)?;
            let address = |at: usize| {
                Some(IpAddr::from(Ipv4Addr::from(<[u8; 4]>::try_from(header.get(at..at + 4)?).ok()?)))
            };
            let fragment = u16::from_be_bytes([*header.get(6)?, *header.get(7)?]) & 0x3fff;
            (*header.get(9)? == UDP && fragment == 0).then_some(())?;
            past_udp(address(12)?, address(16)?, &packet[header.len()..])
        }
        6 => {
            let header = packet.get(..40)?;
            let address = |at: usize| {
                Some(IpAddr::from(Ipv6Addr::from(<[u8; 16]>::try_from(&header[at..at + 16]).ok()?)))
            };
            (header[6] == UDP).then_some(())?;
            past_udp(address(8)?, address(24)?, &packet[40..])
        }
        _ => None,
    }
}

fn past_udp(
    source: IpAddr,
    destination: IpAddr,
    datagram: &[u8],
) -> Option<(SocketAddr, SocketAddr, &[u8], bool)> {
    let (header, payload) = datagram.split_at_checked(8)?;
    let field = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let sent = usize::from(field(4)).checked_sub(8)?;
    let there = &payload[..sent.min(payload.len())];
    Some((
        SocketAddr::new(source, field(0)),
        SocketAddr::new(destination, field(2)),
        there,
        there.len() < sent,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A capture of one Ethernet frame, little-endian as most machines write it.
    fn capture(frame: &[u8]) -> Vec<u8> {
        let mut file =
            vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0];
        for word in [7_u32, 9, frame.len() as u32, frame.len() as u32] {
            file.extend(word.to_le_bytes());
        }
        file.extend(frame);
        file
    }

    fn frame(protocol: u8, fragment: u16, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; 12];
        frame.extend([0x08, 0x00]);
        frame.extend([0x45, 0, 0, 0, 0, 0]);
        frame.extend(fragment.to_be_bytes());
        frame.extend([64, protocol, 0, 0, 192, 0, 2, 1, 239, 1, 2, 3]);
        frame.extend([0x1f, 0x40, 0x23, 0x28]);
        frame.extend((payload.len() as u16 + 8).to_be_bytes());
        frame.extend([0, 0]);
        frame.extend(payload);
        frame
    }

    #[test]
    fn a_datagram_is_found() {
        let file = capture(&frame(UDP, 0, b"hello"));
        let found: Vec<_> = datagrams(&file[..]).unwrap().collect();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].payload, b"hello");
        assert_eq!(found[0].source, "192.0.2.1:8000".parse().unwrap());
        assert_eq!(found[0].destination, "239.1.2.3:9000".parse().unwrap());
        assert_eq!(found[0].time_ns, 7_000_009_000);
        assert!(!found[0].cut_short);
    }

    #[test]
    fn what_is_not_udp_or_not_whole_is_passed_over() {
        for frame in [frame(6, 0, b"tcp"), frame(UDP, 0x2000, b"piece"), vec![0; 20], Vec::new()] {
            assert_eq!(datagrams(&capture(&frame)[..]).unwrap().count(), 0);
        }
    }

    #[test]
    fn a_capture_cut_off_anywhere_is_read_as_far_as_it_goes() {
        let whole = capture(&frame(UDP, 0, b"hello"));
        for length in 0..whole.len() {
            if let Ok(found) = datagrams(&whole[..length]) {
                assert_eq!(found.count(), 0);
            }
        }
        let mut cut = frame(UDP, 0, b"hello");
        cut.truncate(cut.len() - 2);
        let cut = capture(&cut);
        assert!(datagrams(&cut[..]).unwrap().all(|found| found.cut_short && found.payload == b"hel"));
    }

    #[test]
    fn no_byte_of_a_capture_is_trusted() {
        let whole = capture(&frame(UDP, 0, b"hello"));
        for at in 0..whole.len() {
            for byte in 0..=u8::MAX {
                let mut changed = whole.clone();
                changed[at] = byte;
                if let Ok(found) = datagrams(&changed[..]) {
                    assert!(found.count() <= 1);
                }
            }
        }
    }

    #[test]
    fn a_capture_is_read_a_frame_at_a_time_and_no_frame_is_taken_for_larger_than_any_is() {
        let (whole, endless) = (capture(&frame(UDP, 0, b"hello")), std::io::repeat(0xff));
        let found: Vec<_> = datagrams((&whole[..]).chain(endless)).unwrap().collect();
        assert_eq!(found.len(), 1);
    }

    #[test]
    fn other_files_are_refused_with_a_reason() {
        assert_eq!(datagrams(&b"GIF89a"[..]).err(), Some(NotPcap::Unknown));
        assert_eq!(datagrams(&[0x0a, 0x0d, 0x0d, 0x0a, 0, 0][..]).err(), Some(NotPcap::Pcapng));
        let mut strange = capture(b"");
        strange[20] = 105;
        assert_eq!(datagrams(&strange[..]).err(), Some(NotPcap::LinkType(105)));
    }
}

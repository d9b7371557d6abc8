//! Reads UDP payloads from a packet capture: pcap as `tcpdump -w` writes it, and pcapng as Wireshark writes it.
//!
//! pcap-parser reads the files, etherparse the headers of a captured frame. Frames without a whole UDP datagram, such
//! as fragments, are skipped. A truncated capture yields the datagrams before its end. A capture is read block by
//! block, so its length does not matter.

use etherparse::{EtherType, LaxNetSlice, LaxSlicedPacket, TransportSlice};
use pcap_parser::pcapng::{Block, InterfaceDescriptionBlock};
use pcap_parser::traits::{PcapNGPacketBlock, PcapReaderIterator};
use pcap_parser::{IDB_MAGIC, PcapBlockOwned, PcapError, PcapHeader};
use std::io::{Cursor, Read};
use std::net::{IpAddr, SocketAddr};

/// A UDP datagram that was captured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Captured {
    /// Nanoseconds since 1970.
    pub(crate) time_ns: u64,
    pub(crate) source: SocketAddr,
    pub(crate) destination: SocketAddr,
    pub(crate) payload: Vec<u8>,
    /// True if fewer bytes were captured than were sent.
    pub(crate) cut_short: bool,
}

/// Why a file cannot be read as a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotPcap {
    /// It is of no known format.
    Unknown,
    /// It was captured on a kind of network whose frames this module cannot read.
    LinkType(u32),
}

impl std::fmt::Display for NotPcap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NotPcap::Unknown => write!(f, "this is not a packet capture"),
            NotPcap::LinkType(kind) => {
                write!(
                    f,
                    "captured on a link of type {kind}; known are Ethernet, loopback, raw IP and Linux 'any'"
                )
            }
        }
    }
}

/// Initial size of the read buffer: 64 KiB, more than the blocks of nearly all captures have.
const READ_AHEAD_BYTES: usize = 64 << 10;
/// Largest block that is read: 512 KiB, twice the largest frame that tcpdump captures.
const BLOCK_BYTES_MAX: usize = 512 << 10;
/// Maximum number of interfaces in a section. Captures of all interfaces of a machine have some dozens.
const INTERFACES_MAX: usize = 4096;
/// Length of the shortest pcapng block: its type, and its length twice.
const BLOCK_BYTES_MIN: u32 = 12;
const UDP_HEADER_BYTES: usize = 8;
const NANOSECONDS: u128 = 1_000_000_000;

/// An interface on which frames were captured.
#[derive(Clone, Copy, Debug)]
struct Interface {
    /// The kind of network, as tcpdump.org/linktypes.html lists them.
    link: u32,
    /// The resolution of the times of its frames.
    ticks_per_second: u128,
    /// Added to the times of its frames.
    offset_seconds: i64,
}

/// Iterator over the UDP datagrams of a capture, in the order in which they were captured.
pub(crate) struct Datagrams<'a> {
    reader: Box<dyn PcapReaderIterator + Send + 'a>,
    /// The interfaces of the present section; a pcap file has one.
    interfaces: Vec<Interface>,
    is_pcapng: bool,
    big_endian: bool,
    /// The link type of the first interface whose frames cannot be read.
    unknown_link: Option<u32>,
}

/// Begins to read a capture. Fails if it is none, or if a pcap file has an unknown link type.
pub(crate) fn datagrams<'a>(mut file: impl Read + Send + 'a) -> Result<Datagrams<'a>, NotPcap> {
    // pcap-parser needs the whole head in its first read, but a pipe may give a few bytes at a time.
    let mut head = Vec::new();
    let read = file.by_ref().take(READ_AHEAD_BYTES as u64).read_to_end(&mut head);
    read.map_err(|_| NotPcap::Unknown)?;
    let file = Cursor::new(head).chain(file);
    let reader = pcap_parser::create_reader(READ_AHEAD_BYTES, file).map_err(|_| NotPcap::Unknown)?;
    let (interfaces, unknown_link) = (Vec::new(), None);
    let mut datagrams = Datagrams { reader, interfaces, is_pcapng: false, big_endian: false, unknown_link };
    // The file header.
    datagrams.advance();
    match (datagrams.is_pcapng, datagrams.unknown_link) {
        (false, Some(link)) => Err(NotPcap::LinkType(link)),
        _ => Ok(datagrams),
    }
}

impl Datagrams<'_> {
    /// Returns the reason why datagrams may have been skipped, if there is one.
    pub(crate) fn unread(&self) -> Option<NotPcap> {
        self.unknown_link.map(NotPcap::LinkType)
    }

    /// Reads the next block. Returns the datagram in it, if it has one. None at the end of the capture.
    fn advance(&mut self) -> Option<Option<Captured>> {
        if self.is_pcapng && self.has_impossible_block() {
            return None;
        }
        let (buffered, exhausted) = (self.reader.data().len(), self.reader.reader_exhausted());
        match self.reader.next() {
            Ok((bytes, block)) => {
                let found = match block {
                    PcapBlockOwned::LegacyHeader(header) => {
                        self.interfaces = vec![Interface::of_file(&header)];
                        self.unknown_link = self.interfaces[0].unknown_link();
                        None
                    }
                    PcapBlockOwned::Legacy(block) => self.interfaces.first().and_then(|interface| {
                        let seconds = u128::from(block.ts_sec) * interface.ticks_per_second;
                        interface.datagram(seconds + u128::from(block.ts_usec), block.data)
                    }),
                    PcapBlockOwned::NG(Block::SectionHeader(header)) => {
                        (self.is_pcapng, self.big_endian) = (true, header.big_endian());
                        self.interfaces.clear();
                        None
                    }
                    PcapBlockOwned::NG(Block::InterfaceDescription(description)) => {
                        if self.interfaces.len() < INTERFACES_MAX {
                            let interface = Interface::described(&description);
                            self.unknown_link = self.unknown_link.or(interface.unknown_link());
                            self.interfaces.push(interface);
                        }
                        None
                    }
                    PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
                        let ticks = u128::from(packet.ts_high) << 32 | u128::from(packet.ts_low);
                        let interface =
                            usize::try_from(packet.if_id).ok().and_then(|at| self.interfaces.get(at));
                        interface.and_then(|interface| interface.datagram(ticks, packet.packet_data()))
                    }
                    PcapBlockOwned::NG(Block::SimplePacket(packet)) => {
                        // Such a packet has no time, and belongs to the first interface.
                        let interface = self.interfaces.first();
                        interface.and_then(|interface| interface.datagram(0, packet.packet_data()))
                    }
                    PcapBlockOwned::NG(_) => None,
                };
                self.reader.consume(bytes);
                Some(found)
            }
            Err(PcapError::Incomplete(_)) if !exhausted => {
                self.reader.refill().ok()?;
                // If no more bytes came, the block is damaged: reading on would not complete it.
                let more = self.reader.data().len() > buffered || self.reader.reader_exhausted();
                more.then_some(None)
            }
            Err(PcapError::BufferTooSmall) => self.reader.grow(BLOCK_BYTES_MAX).then_some(None),
            Err(_) => None,
        }
    }

    /// True if the length in the next block is below the minimum. For some blocks pcap-parser 0.17 computes with such a
    /// length without checking it.
    fn has_impossible_block(&self) -> bool {
        let Some(length) = self.reader.data().get(4..8).and_then(|bytes| bytes.try_into().ok()) else {
            return false;
        };
        let length = if self.big_endian { u32::from_be_bytes(length) } else { u32::from_le_bytes(length) };
        length < BLOCK_BYTES_MIN
    }
}

impl Iterator for Datagrams<'_> {
    type Item = Captured;

    fn next(&mut self) -> Option<Captured> {
        loop {
            if let Some(found) = self.advance()? {
                return Some(found);
            }
        }
    }
}

impl Interface {
    /// Returns the one interface of a pcap file.
    fn of_file(header: &PcapHeader) -> Interface {
        // The upper four bits hold the length of the frame checksums.
        let link = header.network.0 as u32 & 0x0fff_ffff;
        let ticks_per_second = if header.is_nanosecond_precision() { NANOSECONDS } else { 1_000_000 };
        Interface { link, ticks_per_second, offset_seconds: 0 }
    }

    fn described(description: &InterfaceDescriptionBlock<'_>) -> Interface {
        // The highest bit selects powers of 2 instead of powers of 10.
        let base: u128 = if description.if_tsresol & 0x80 == 0 { 10 } else { 2 };
        let ticks_per_second = base.checked_pow((description.if_tsresol & 0x7f).into());
        // pcap-parser 0.17 reads this number as little-endian in every file.
        let offset = description.if_tsoffset;
        Interface {
            link: description.linktype.0 as u32,
            ticks_per_second: ticks_per_second.unwrap_or(u128::MAX),
            offset_seconds: if description.block_type == IDB_MAGIC { offset } else { offset.swap_bytes() },
        }
    }

    fn unknown_link(&self) -> Option<u32> {
        Some(self.link).filter(|link| !matches!(link, 0 | 1 | 12 | 101 | 113 | 276))
    }

    /// Returns the UDP datagram in a frame that was captured at this time, if there is one.
    fn datagram(&self, ticks: u128, frame: &[u8]) -> Option<Captured> {
        let packet = self.packet(frame)?;
        let Some(TransportSlice::Udp(udp)) = &packet.transport else { return None };
        let (source, destination): (IpAddr, IpAddr) = match &packet.net {
            Some(LaxNetSlice::Ipv4(ip)) => {
                (ip.header().source_addr().into(), ip.header().destination_addr().into())
            }
            Some(LaxNetSlice::Ipv6(ip)) => {
                (ip.header().source_addr().into(), ip.header().destination_addr().into())
            }
            _ => return None,
        };
        let sent = usize::from(udp.length()).checked_sub(UDP_HEADER_BYTES)?;
        let payload = &udp.payload()[..sent.min(udp.payload().len())];
        Some(Captured {
            time_ns: self.time_ns(ticks),
            source: (source, udp.source_port()).into(),
            destination: (destination, udp.destination_port()).into(),
            payload: payload.to_vec(),
            cut_short: payload.len() < sent,
        })
    }

    /// Parses the headers in a frame, as far as they were captured.
    fn packet<'a>(&self, frame: &'a [u8]) -> Option<LaxSlicedPacket<'a>> {
        let kind_at =
            |at: usize| Some(EtherType(u16::from_be_bytes(frame.get(at..at + 2)?.try_into().ok()?)));
        match self.link {
            // BSD loopback: four bytes hold the protocol family, in the byte order of the capturing machine.
            0 => LaxSlicedPacket::from_ip(frame.get(4..)?).ok(),
            1 => LaxSlicedPacket::from_ethernet(frame).ok(),
            12 | 101 => LaxSlicedPacket::from_ip(frame).ok(),
            // Linux "any" device (`tcpdump -i any`): the older and the newer header.
            113 => Some(LaxSlicedPacket::from_ether_type(kind_at(14)?, frame.get(16..)?)),
            276 => Some(LaxSlicedPacket::from_ether_type(kind_at(0)?, frame.get(20..)?)),
            _ => None,
        }
    }

    /// Returns nanoseconds since 1970. Times that do not fit become the first or last that does.
    fn time_ns(&self, ticks: u128) -> u64 {
        let since = ticks * NANOSECONDS / self.ticks_per_second;
        let offset = i128::from(self.offset_seconds) * NANOSECONDS as i128;
        let time = i128::try_from(since).unwrap_or(i128::MAX).saturating_add(offset);
        u64::try_from(time.max(0)).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UDP: u8 = 17;
    const ETHERNET: u16 = 1;
    const MICROSECONDS: &[u8] = &[];

    /// Returns a pcap file of one frame, in little-endian order as most machines write it.
    fn capture_on(link: u16, frame: &[u8]) -> Vec<u8> {
        let mut file = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0];
        file.extend(u32::from(link).to_le_bytes());
        for word in [7_u32, 9, frame.len() as u32, frame.len() as u32] {
            file.extend(word.to_le_bytes());
        }
        file.extend(frame);
        file
    }

    fn capture(frame: &[u8]) -> Vec<u8> {
        capture_on(ETHERNET, frame)
    }

    /// A writer of pcapng files in one byte order.
    struct Pcapng {
        big_endian: bool,
        file: Vec<u8>,
    }

    impl Pcapng {
        /// Begins a file with one interface, whose options are in the file's byte order already.
        fn begin(big_endian: bool, link: u16, options: &[u8]) -> Pcapng {
            let mut capture = Pcapng { big_endian, file: Vec::new() };
            let header =
                [&capture.four(0x1a2b_3c4d)[..], &capture.two(1), &capture.two(0), &[0xff; 8]].concat();
            capture.block(0x0a0d_0d0a, &header);
            capture.interface(link, options);
            capture
        }

        fn two(&self, number: u16) -> [u8; 2] {
            if self.big_endian { number.to_be_bytes() } else { number.to_le_bytes() }
        }

        fn four(&self, number: u32) -> [u8; 4] {
            if self.big_endian { number.to_be_bytes() } else { number.to_le_bytes() }
        }

        fn block(&mut self, kind: u32, body: &[u8]) {
            let padding = vec![0; body.len().next_multiple_of(4) - body.len()];
            let length = self.four((12 + body.len() + padding.len()) as u32);
            let block = [&self.four(kind)[..], &length, body, &padding, &length].concat();
            self.file.extend(block);
        }

        fn interface(&mut self, link: u16, options: &[u8]) {
            let body = [&self.two(link)[..], &[0; 6], options].concat();
            self.block(1, &body);
        }

        fn option(&self, code: u16, value: &[u8]) -> Vec<u8> {
            let padding = vec![0; value.len().next_multiple_of(4) - value.len()];
            [&self.two(code)[..], &self.two(value.len() as u16), value, &padding].concat()
        }

        fn packet(&mut self, interface: u32, ticks: u64, frame: &[u8]) {
            let length = frame.len() as u32;
            let words = [interface, (ticks >> 32) as u32, ticks as u32, length, length];
            let words: Vec<u8> = words.into_iter().flat_map(|word| self.four(word)).collect();
            self.block(6, &[&words, frame].concat());
        }
    }

    /// Returns a pcapng file of one frame.
    fn pcapng(frame: &[u8]) -> Vec<u8> {
        let mut capture = Pcapng::begin(false, ETHERNET, MICROSECONDS);
        capture.packet(0, 7_000_009, frame);
        capture.file
    }

    fn udp(payload: &[u8]) -> Vec<u8> {
        let length = (payload.len() as u16 + 8).to_be_bytes();
        [&[0x1f, 0x40, 0x23, 0x28][..], &length, &[0, 0], payload].concat()
    }

    fn ip(protocol: u8, fragment: u16, payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 0, 0, 0];
        packet.extend(fragment.to_be_bytes());
        packet.extend([64, protocol, 0, 0, 192, 0, 2, 1, 239, 1, 2, 3]);
        packet.extend(udp(payload));
        let length = (packet.len() as u16).to_be_bytes();
        packet[2..4].copy_from_slice(&length);
        packet
    }

    fn frame(protocol: u8, fragment: u16, payload: &[u8]) -> Vec<u8> {
        [&[0; 12][..], &[8, 0], &ip(protocol, fragment, payload)].concat()
    }

    fn all(file: &[u8]) -> Vec<Captured> {
        datagrams(file).unwrap().collect()
    }

    fn hello() -> Captured {
        Captured {
            time_ns: 7_000_009_000,
            source: "192.0.2.1:8000".parse().unwrap(),
            destination: "239.1.2.3:9000".parse().unwrap(),
            payload: b"hello".to_vec(),
            cut_short: false,
        }
    }

    #[test]
    fn a_datagram_is_found_in_either_format() {
        let frame = frame(UDP, 0, b"hello");
        assert_eq!(all(&capture(&frame)), [hello()]);
        assert_eq!(all(&pcapng(&frame)), [hello()]);
    }

    #[test]
    fn a_datagram_is_found_behind_every_known_link_header() {
        let (packet, frame) = (ip(UDP, 0, b"hello"), frame(UDP, 0, b"hello"));
        let tagged = [&frame[..12], &[0x81, 0, 0, 5, 8, 0], &packet].concat();
        let twice = [&frame[..12], &[0x88, 0xa8, 0, 5, 0x81, 0, 0, 5, 8, 0], &packet].concat();
        let any = [&[0; 14][..], &[8, 0], &packet].concat();
        let newer_any = [&[8, 0][..], &[0; 18], &packet].concat();
        let loopback = [&[2, 0, 0, 0][..], &packet].concat();
        for (link, frame) in [
            (1, frame),
            (1, tagged),
            (1, twice),
            (113, any),
            (276, newer_any),
            (0, loopback),
            (12, packet.clone()),
            (101, packet),
        ] {
            assert_eq!(all(&capture_on(link, &frame)), [hello()], "link {link}");
        }
    }

    #[test]
    fn a_datagram_is_found_in_ipv6_with_and_without_extensions() {
        let udp = udp(b"hello");
        let hop_by_hop = [&[UDP, 0, 1, 4, 0, 0, 0, 0][..], &udp].concat();
        for (next, payload) in [(UDP, udp), (0, hop_by_hop)] {
            let mut packet = vec![0x60, 0, 0, 0];
            packet.extend((payload.len() as u16).to_be_bytes());
            packet.extend([next, 64]);
            packet.extend([[0; 15], [0; 15]].concat());
            packet.insert(23, 1);
            packet.push(2);
            packet.extend(payload);
            let found = all(&capture_on(101, &packet));
            assert_eq!(found.len(), 1, "{next}");
            assert_eq!(found[0].payload, b"hello");
            assert_eq!(found[0].source, "[::1]:8000".parse().unwrap());
            assert_eq!(found[0].destination, "[::2]:9000".parse().unwrap());
        }
    }

    #[test]
    fn frames_without_a_whole_udp_datagram_are_skipped() {
        for frame in [
            frame(6, 0, b"tcp"),
            frame(UDP, 0x2000, b"first piece"),
            frame(UDP, 5, b"other piece"),
            vec![0; 20],
            Vec::new(),
        ] {
            assert_eq!(all(&capture(&frame)), []);
            assert_eq!(all(&pcapng(&frame)), []);
        }
    }

    #[test]
    fn sections_interfaces_and_times_of_pcapng_are_distinguished() {
        let (packet, frame) = (ip(UDP, 0, b"hello"), frame(UDP, 0, b"hello"));
        for big_endian in [false, true] {
            // Ticks of 2^-10 seconds, and an offset of 100 seconds.
            let empty = Pcapng { big_endian, file: Vec::new() };
            let offset = 100_i64;
            let offset = if big_endian { offset.to_be_bytes() } else { offset.to_le_bytes() };
            let options =
                [empty.option(9, &[0x8a]), empty.option(14, &offset), empty.option(0, &[])].concat();
            let mut capture = Pcapng::begin(big_endian, ETHERNET, &options);
            capture.interface(101, MICROSECONDS);
            capture.interface(105, MICROSECONDS);
            capture.packet(0, 512, &frame);
            // A block of an unknown kind, and packets of interfaces that are not described or have an unknown link
            // type.
            capture.block(0x7fff_0001, b"unknown");
            capture.packet(3, 0, &frame);
            capture.packet(2, 0, &frame);
            capture.packet(1, 1 << 40, &packet);
            let mut datagrams = datagrams(&capture.file[..]).unwrap();
            let times: Vec<u64> = datagrams.by_ref().map(|found| found.time_ns).collect();
            assert_eq!(times, [100_500_000_000, (1 << 40) * 1000], "big-endian: {big_endian}");
            assert_eq!(datagrams.unread(), Some(NotPcap::LinkType(105)));
            // Another section, in the other byte order, numbers its interfaces anew.
            let mut other = Pcapng::begin(!big_endian, 101, MICROSECONDS);
            other.packet(0, 3, &packet);
            let both = [&capture.file[..], &other.file].concat();
            assert_eq!(all(&both).last().map(|found| found.time_ns), Some(3000));
        }
    }

    #[test]
    fn a_packet_without_a_time_is_read_too() {
        let frame = frame(UDP, 0, b"hello");
        let mut capture = Pcapng::begin(false, ETHERNET, MICROSECONDS);
        capture.block(3, &[&capture.four(frame.len() as u32)[..], &frame].concat());
        assert_eq!(all(&capture.file), [Captured { time_ns: 0, ..hello() }]);
    }

    #[test]
    fn a_capture_cut_off_anywhere_is_read_as_far_as_it_goes() {
        let frame = frame(UDP, 0, b"hello");
        for whole in [capture(&frame), pcapng(&frame)] {
            for length in 0..whole.len() {
                if let Ok(found) = datagrams(&whole[..length]) {
                    assert_eq!(found.count(), 0);
                }
            }
        }
        let cut = &frame[..frame.len() - 2];
        for cut in [capture(cut), pcapng(cut)] {
            assert_eq!(all(&cut), [Captured { payload: b"hel".to_vec(), cut_short: true, ..hello() }]);
        }
    }

    #[test]
    fn no_byte_of_a_capture_is_trusted() {
        let frame = frame(UDP, 0, b"hello");
        for whole in [capture(&frame), pcapng(&frame)] {
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
    }

    #[test]
    fn no_length_of_any_block_is_trusted() {
        let kinds = [1, 2, 3, 4, 5, 6, 9, 10, 0xbad, 0x4000_0bad, 0x8000_0001, 0x0a0d_0d0a, 0x7fff_0001];
        let lengths = [0, 4, 8, 11, 12, 13, 16, 20, 28, 32, 64, 1 << 20, u32::MAX - 3, u32::MAX];
        for (big_endian, kind) in
            [(false, 0), (true, 0)].into_iter().flat_map(|(b, _)| kinds.map(|kind| (b, kind)))
        {
            for length in lengths {
                for word in lengths {
                    let mut capture = Pcapng::begin(big_endian, ETHERNET, MICROSECONDS);
                    let block: Vec<u8> = [kind, length]
                        .into_iter()
                        .chain([word; 14])
                        .flat_map(|word| capture.four(word))
                        .collect();
                    capture.file.extend(block);
                    capture.packet(0, 0, &frame(UDP, 0, b"hello"));
                    assert!(datagrams(&capture.file[..]).unwrap().count() <= 1);
                }
            }
        }
    }

    #[test]
    fn a_capture_is_read_block_by_block_and_too_long_blocks_end_it() {
        let frame = frame(UDP, 0, b"hello");
        for whole in [capture(&frame), pcapng(&frame)] {
            let endless = (&whole[..]).chain(std::io::repeat(0xff));
            assert_eq!(datagrams(endless).unwrap().count(), 1);
        }
        // A frame larger than the initial read buffer.
        let mut long = capture(&vec![0; 200_000]);
        long.extend(&capture(&frame)[24..]);
        assert_eq!(all(&long), [hello()]);
    }

    /// Input that yields one byte per read, as a pipe may do.
    struct Slow<'a>(&'a [u8]);

    impl Read for Slow<'_> {
        fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
            let bytes = into.len().min(1);
            self.0.read(&mut into[..bytes])
        }
    }

    #[test]
    fn a_capture_may_come_a_byte_at_a_time() {
        let frame = frame(UDP, 0, b"hello");
        let many = |whole: &[u8], packets: usize| [whole, &whole[packets..].repeat(2000)].concat();
        let (pcap, ng) = (capture(&frame), pcapng(&frame));
        for (file, headers) in [(many(&pcap, 24), 24), (many(&ng, 48), 48)] {
            assert_eq!(datagrams(Slow(&file)).unwrap().count(), 2001, "{headers}");
        }
    }

    #[test]
    fn other_files_are_refused_with_a_reason() {
        for other in [&b"GIF89a"[..], &[], &[0x0a, 0x0d, 0x0d, 0x0a, 0, 0]] {
            assert_eq!(datagrams(other).err(), Some(NotPcap::Unknown));
        }
        assert_eq!(datagrams(&capture_on(105, b"")[..]).err(), Some(NotPcap::LinkType(105)));
    }
}

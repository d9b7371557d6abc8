//! Drops datagrams to addresses that do not answer, while they crowd the send buffer.
//!
//! A datagram with a forged source address of a server's own link makes the server answer to an address that no machine
//! has. Linux keeps the answer for about 3 s while it asks for the hardware address, and counts it in the send buffer of
//! the server's only socket. Without this filter a few hundred such datagrams a second fill the buffer, and no client
//! gets an answer.

use std::net::SocketAddr;
use std::time::Duration;
use unisono_core::Time;
use unisono_udp::{Neighbour, Neighbours, SendBuffer, Socket};

/// Maximum interval between two looks at the send buffer while datagrams are sent, 5 ms.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// The same while the buffer is crowded, 1 ms.
const LOOK_SOON: Duration = Duration::from_millis(1);
/// The next look comes sooner once datagrams were handed over that may take half of what crowds the buffer: answers to a burst are sent in
/// one turn.
const LOOKS_PER_MUCH: usize = 2;
/// What Linux counts for a short datagram besides its bytes.
const DATAGRAM_OVERHEAD: usize = 768;
/// Nothing is sent to silent addresses for this time after the buffer was crowded last. Linux keeps datagrams to them for about 3 s.
const WARY_FOR: Duration = Duration::from_secs(4);
/// Interval between two reads of the table of neighbours, 100 ms, unless the buffer fills: the table may have 1,000 rows.
const READ_EVERY: Duration = Duration::from_millis(100);
/// The buffer is crowded while more than this part of it, an eighth, is in use, or [`CROWDED_MAX`]: nothing is sent to neighbours that
/// were asked for their hardware addresses and do not answer. It is nearly full at twice as much: nothing is sent to neighbours that were not
/// asked, unless their addresses are proved. A blocking socket takes no more once half of its buffer is in use.
const CROWDED_PART: usize = 8;
/// Maximum number of bytes in use in a buffer that is not crowded. Twice as much holds answers to 470 silent neighbours; by default Linux
/// has room for 1,024 in its table, and forgets others early from 512 on.
const CROWDED_MAX: usize = 192 << 10;

/// How much of the send buffer is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Fill {
    #[default]
    Little,
    Crowded,
    NearlyFull,
}

/// What was seen of the send buffer and of the neighbours.
#[derive(Debug, Default)]
pub(super) struct SilentFilter {
    /// Time of the next look at the send buffer.
    look_at: Time,
    /// Bytes of the buffer that may be handed over until then.
    look_after: usize,
    /// What the last look found.
    fill: Fill,
    /// Until then nothing is sent to silent addresses.
    wary_until: Time,
    neighbours: Neighbours,
    /// Time of the last read of the neighbours, and the bytes of the buffer that were in use then.
    read: Option<(Time, usize)>,
}

impl SilentFilter {
    /// True if the send buffer is crowded, or was a moment ago. The system is asked at most every [`LOOK_SOON`], and once more whenever
    /// half of what crowds the buffer may have been added.
    #[inline]
    pub(super) fn is_wary(&mut self, now: Time, socket: &Socket) -> bool {
        if now >= self.look_at || self.look_after == 0 {
            // A kernel that does not tell how full the buffer is leaves nothing to go by.
            self.note(now, socket.send_buffer().unwrap_or_default(), Neighbours::read);
        }
        now < self.wary_until
    }

    /// Subtracts `datagrams` that the system is given, of `bytes` in all, from what may be sent before the next look.
    #[inline]
    pub(super) fn note_sent(&mut self, bytes: usize, datagrams: usize) {
        self.look_after = self.look_after.saturating_sub(bytes + datagrams * DATAGRAM_OVERHEAD);
    }

    /// Takes a look at the buffer into account. `read` reads the neighbours.
    #[cold]
    fn note(&mut self, now: Time, buffer: SendBuffer, read: impl FnOnce() -> Neighbours) {
        let much = (buffer.size / CROWDED_PART).min(CROWDED_MAX);
        self.fill = match buffer.used {
            used if used > 2 * much => Fill::NearlyFull,
            used if used > much => Fill::Crowded,
            _ => Fill::Little,
        };
        let is_crowded = self.fill >= Fill::Crowded;
        if is_crowded {
            self.wary_until = now + WARY_FOR;
        }
        self.look_at = now + if is_crowded { LOOK_SOON } else { LOOK_EVERY };
        self.look_after = (much / LOOKS_PER_MUCH).max(1);
        let is_due = |(at, used): (Time, usize)| now.since(at) >= READ_EVERY || buffer.used > used + much;
        if now < self.wary_until && self.read.is_none_or(is_due) {
            self.neighbours = read();
            self.read = Some((now, buffer.used));
        }
    }

    /// Removes the addresses that do not answer and, if the buffer is nearly full, those that were not asked, unless they are proved.
    /// Only for a filter that [is wary](SilentFilter::is_wary).
    #[cold]
    pub(super) fn retain_answering(&self, is_proved: bool, addresses: &mut Vec<SocketAddr>) {
        addresses.retain(|address| match self.neighbours.at(address.ip()) {
            Neighbour::Answers | Neighbour::Elsewhere => true,
            Neighbour::Unasked => is_proved || self.fill < Fill::NearlyFull,
            Neighbour::Silent => false,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::net::{IpAddr, Ipv4Addr};
    use unisono_udp::Link;

    const SIZE: usize = 425_984;
    const SILENT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 9));
    const ANSWERING: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));
    const UNASKED: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 3));
    const ELSEWHERE: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1));

    fn at(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    fn neighbours() -> Neighbours {
        let link = Link { own: [192, 0, 2, 7].into(), mask: [255, 255, 255, 0].into() };
        Neighbours::new([(SILENT, false), (ANSWERING, true)], vec![link])
    }

    fn socket() -> Socket {
        Socket::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap()
    }

    fn kept(filter: &SilentFilter) -> Vec<IpAddr> {
        kept_if(false, filter)
    }

    fn kept_if(is_proved: bool, filter: &SilentFilter) -> Vec<IpAddr> {
        let all = [SILENT, UNASKED, ANSWERING, ELSEWHERE];
        let mut addresses = all.map(|address| SocketAddr::from((address, 7))).to_vec();
        filter.retain_answering(is_proved, &mut addresses);
        addresses.iter().map(SocketAddr::ip).collect()
    }

    #[test]
    fn the_fuller_the_buffer_the_surer_an_address_has_to_answer() {
        let mut filter = SilentFilter::default();
        let mut kept_with = |millis, used| {
            filter.note(at(millis), SendBuffer { used, size: SIZE }, neighbours);
            kept(&filter)
        };
        assert_eq!(kept_with(10, SIZE / 8 + 1), [UNASKED, ANSWERING, ELSEWHERE]);
        assert_eq!(kept_with(15, SIZE / 4), [UNASKED, ANSWERING, ELSEWHERE]);
        assert_eq!(kept_with(20, SIZE / 4 + 1), [ANSWERING, ELSEWHERE]);
        assert_eq!(kept_with(25, SIZE), [ANSWERING, ELSEWHERE]);
        assert_eq!(kept_with(30, SIZE / 8), [UNASKED, ANSWERING, ELSEWHERE], "not crowded any more");
        filter.note(at(35), SendBuffer { used: SIZE, size: SIZE }, neighbours);
        assert_eq!(kept_if(true, &filter), [UNASKED, ANSWERING, ELSEWHERE]);
    }

    #[test]
    fn a_large_buffer_is_crowded_before_the_table_of_neighbours_is_full() {
        let (mut filter, size) = (SilentFilter::default(), 8 << 20);
        let mut fill_with = |used| {
            filter.note(at(5), SendBuffer { used, size }, neighbours);
            filter.fill
        };
        let (crowded, answers_to_512_neighbours) = (CROWDED_MAX + 1, 512 * 832);
        assert_eq!([fill_with(CROWDED_MAX), fill_with(crowded)], [Fill::Little, Fill::Crowded]);
        assert_eq!(fill_with(answers_to_512_neighbours), Fill::NearlyFull);
    }

    #[test]
    fn addresses_are_left_out_while_the_buffer_is_crowded_and_for_4_s_more() {
        let (mut filter, socket) = (SilentFilter::default(), socket());
        assert!(!filter.is_wary(at(1), &socket));
        filter.note(at(10), SendBuffer { used: SIZE / 8, size: SIZE }, neighbours);
        assert!(!filter.is_wary(at(10), &socket));
        filter.note(at(15), SendBuffer { used: SIZE / 8 + 1, size: SIZE }, neighbours);
        assert_eq!(
            [15, 20, 4014, 4015, 9000].map(|millis| filter.is_wary(at(millis), &socket)),
            [true, true, true, false, false]
        );
    }

    #[test]
    fn the_neighbours_are_read_every_100_ms_and_when_another_eighth_has_filled() {
        let (mut filter, reads) = (SilentFilter::default(), Cell::new(0));
        let mut reads_after = |millis, used| {
            filter.note(at(millis), SendBuffer { used, size: SIZE }, || {
                reads.set(reads.get() + 1);
                Neighbours::default()
            });
            reads.get()
        };
        assert_eq!(reads_after(0, SIZE / 8), 0, "not crowded");
        let crowded = SIZE / 8 + 1;
        assert_eq!([reads_after(5, crowded), reads_after(10, crowded), reads_after(104, crowded)], [1; 3]);
        assert_eq!([reads_after(105, crowded), reads_after(110, crowded + SIZE / 8)], [2; 2]);
        assert_eq!([reads_after(115, crowded + SIZE / 8 + 1), reads_after(120, crowded)], [3; 2]);
    }

    #[test]
    fn a_neighbour_that_answers_at_last_is_sent_to_again() {
        let (mut filter, crowded) = (SilentFilter::default(), SendBuffer { used: SIZE, size: SIZE });
        filter.note(at(0), crowded, neighbours);
        assert!(!kept(&filter).contains(&SILENT));
        filter.note(at(100), crowded, Neighbours::default);
        assert!(kept(&filter).contains(&SILENT));
    }

    #[test]
    fn the_buffer_is_looked_at_every_5_ms_and_while_it_is_crowded_every_1_ms() {
        let mut filter = SilentFilter::default();
        let mut next_after = |millis, used| {
            filter.note(at(millis), SendBuffer { used, size: SIZE }, Neighbours::default);
            filter.look_at
        };
        assert_eq!([next_after(1, 0), next_after(7, SIZE / 8)], [at(6), at(12)]);
        assert_eq!([next_after(12, SIZE / 8 + 1), next_after(13, SIZE)], [at(13), at(14)]);
        let (mut filter, socket) = (SilentFilter::default(), socket());
        for (millis, next) in [(1, 6), (5, 6), (6, 11)] {
            assert!(!filter.is_wary(at(millis), &socket));
            assert_eq!(filter.look_at, at(next));
        }
    }

    #[test]
    fn the_buffer_is_looked_at_again_once_half_of_what_crowds_it_may_have_been_added() {
        let (mut filter, socket) = (SilentFilter::default(), socket());
        let mut looks_after = |bytes, datagrams| {
            filter.note(at(1), SendBuffer { used: SIZE, size: SIZE }, Neighbours::default);
            filter.note_sent(bytes, datagrams);
            // The socket's buffer is empty, so a look finds that it is not crowded.
            filter.is_wary(at(1), &socket);
            filter.fill == Fill::Little
        };
        let part = SIZE / CROWDED_PART / LOOKS_PER_MUCH;
        assert!(!looks_after(part - 1, 0) && looks_after(part, 0));
        let datagrams = part / DATAGRAM_OVERHEAD;
        assert!(!looks_after(0, datagrams) && looks_after(0, datagrams + 1));
    }
}

//! Drops datagrams to addresses that do not answer, while they crowd the send buffer.
//!
//! A datagram with a forged source address of a server's own link makes the server answer to an address that no machine
//! has. Linux keeps the answer for about 3 s while it asks for the hardware address, and counts it in the send buffer of
//! the server's only socket. Without this filter a few hundred such datagrams a second fill the buffer, and no client
//! gets an answer.

use std::net::SocketAddr;
use std::time::Duration;
use unisono_core::Time;
use unisono_udp::{SendBuffer, SilentNeighbours, Socket};

/// Minimum interval between two looks at the send buffer, 5 ms: within it, 12,000 forged datagrams a second take an eighth
/// of the buffer that Linux grants by default.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Interval between two reads of the table of neighbours, 100 ms, unless the buffer fills: the table may have 1,000 rows.
const READ_EVERY: Duration = Duration::from_millis(100);
/// The buffer is crowded while more than this part of it, an eighth, is in use. A blocking socket takes no more once
/// half of its buffer is.
const CROWDED_PART: usize = 8;

/// What was seen of the send buffer and of the neighbours.
#[derive(Debug, Default)]
pub(super) struct SilentFilter {
    /// Time of the next look at the send buffer.
    look_at: Time,
    /// The buffer was crowded at the last look.
    is_crowded: bool,
    silent: SilentNeighbours,
    /// Time of the last read of the table, and the bytes of the buffer that were in use then.
    read: Option<(Time, usize)>,
}

impl SilentFilter {
    /// Removes the addresses that do not answer, if the send buffer is crowded. The system is asked at most every
    /// [`LOOK_EVERY`].
    pub(super) fn retain_answering(&mut self, now: Time, socket: &Socket, addresses: &mut Vec<SocketAddr>) {
        if now >= self.look_at {
            self.look_at = now + LOOK_EVERY;
            // A kernel that does not tell how full the buffer is leaves nothing to go by.
            self.note(now, socket.send_buffer().unwrap_or_default(), SilentNeighbours::read);
        }
        self.apply(addresses);
    }

    /// Takes a look at the buffer into account. `read` reads the table of neighbours.
    fn note(&mut self, now: Time, buffer: SendBuffer, read: impl FnOnce() -> SilentNeighbours) {
        let eighth = buffer.size / CROWDED_PART;
        self.is_crowded = buffer.used > eighth;
        let is_due = |(at, used): (Time, usize)| now.since(at) >= READ_EVERY || buffer.used > used + eighth;
        if self.is_crowded && self.read.is_none_or(is_due) {
            self.silent = read();
            self.read = Some((now, buffer.used));
        }
    }

    fn apply(&self, addresses: &mut Vec<SocketAddr>) {
        if self.is_crowded {
            addresses.retain(|address| !self.silent.contains(address.ip()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::net::{IpAddr, Ipv4Addr};

    const SIZE: usize = 425_984;
    const SILENT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 9));

    fn at(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    fn kept(filter: &SilentFilter) -> Vec<SocketAddr> {
        let mut addresses = vec![(SILENT, 7).into(), ([192, 0, 2, 2], 7).into()];
        filter.apply(&mut addresses);
        addresses
    }

    #[test]
    fn only_a_crowded_buffer_has_datagrams_dropped_and_only_those_to_silent_addresses() {
        let mut filter = SilentFilter::default();
        let both = kept(&filter);
        let mut kept_with = |millis, used| {
            filter.note(at(millis), SendBuffer { used, size: SIZE }, || [SILENT].into_iter().collect());
            kept(&filter)
        };
        assert_eq!(kept_with(5, SIZE / 8), both, "the buffer is not crowded");
        assert_eq!(kept_with(10, SIZE / 8 + 1), both[1..]);
        assert_eq!(kept_with(15, SIZE / 8), both, "the buffer is not crowded any more");
        assert_eq!(kept_with(20, SIZE), both[1..]);
    }

    #[test]
    fn the_neighbours_are_read_every_100_ms_and_when_another_eighth_has_filled() {
        let (mut filter, reads) = (SilentFilter::default(), Cell::new(0));
        let mut reads_after = |millis, used| {
            filter.note(at(millis), SendBuffer { used, size: SIZE }, || {
                reads.set(reads.get() + 1);
                SilentNeighbours::default()
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
        filter.note(at(0), crowded, || [SILENT].into_iter().collect());
        assert_eq!(kept(&filter).len(), 1);
        filter.note(at(100), crowded, SilentNeighbours::default);
        assert_eq!(kept(&filter).len(), 2);
    }

    #[test]
    fn the_buffer_is_looked_at_every_5_ms() {
        let socket = Socket::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let mut filter = SilentFilter::default();
        let mut next_after = |nanos| {
            filter.retain_answering(Time::from_nanos(nanos), &socket, &mut Vec::new());
            filter.look_at.as_nanos()
        };
        assert_eq!([next_after(1), next_after(5_000_000)], [5_000_001; 2]);
        assert_eq!(next_after(5_000_001), 10_000_001);
    }
}

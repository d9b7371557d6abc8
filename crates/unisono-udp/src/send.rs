//! Sending: as few system calls and as few packets through the stack as possible.

use crate::socket::Socket;
use quinn_udp::{Transmit, UdpSockRef};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, SocketAddrAny, sendmmsg, sendto};
use std::io::{self, IoSlice};
use std::net::SocketAddr;

/// Most datagrams that one call carries.
const CALL_DATAGRAMS_MAX: usize = 64;
/// Most bytes of a run that crosses the stack as one packet.
const SEGMENTED_BYTES_MAX: usize = 65_000;
/// How long a sender waits for room in a full send buffer before the datagram counts as lost.
const ROOM_WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };

impl Socket {
    /// Sends the datagrams in `bytes`, each of `segment_bytes` but for the last, which may be shorter, to
    /// each of `destinations`. Returns how many the system refused: to the protocol above these are losses
    /// like any other.
    pub fn send(&self, bytes: &[u8], segment_bytes: usize, destinations: &[SocketAddr]) -> usize {
        if bytes.is_empty() || segment_bytes == 0 {
            return 0;
        }
        if bytes.len() <= segment_bytes {
            return match destinations {
                [] => 0,
                [one] if self.source.is_none() => self.send_one(bytes, *one),
                many => self.send_each(bytes, segment_bytes, many),
            };
        }
        let per_call = CALL_DATAGRAMS_MAX.min(SEGMENTED_BYTES_MAX / segment_bytes).max(1) * segment_bytes;
        let mut refused = 0;
        for part in bytes.chunks(per_call) {
            for destination in destinations {
                if !self.segments() || !self.send_segmented(part, segment_bytes, *destination) {
                    refused += self.send_each(part, segment_bytes, &[*destination]);
                }
            }
        }
        refused
    }

    fn send_one(&self, bytes: &[u8], destination: SocketAddr) -> usize {
        let sent =
            self.persist(|| sendto(&self.inner, bytes, SendFlags::empty(), &destination).map_err(Into::into));
        usize::from(sent.is_err())
    }

    /// One packet through the stack, split at the very end. False if the system does not do that here.
    fn send_segmented(&self, bytes: &[u8], segment_bytes: usize, destination: SocketAddr) -> bool {
        self.transmit(bytes, Some(segment_bytes), destination)
    }

    fn transmit(&self, bytes: &[u8], segment_size: Option<usize>, destination: SocketAddr) -> bool {
        let transmit =
            Transmit { destination, ecn: None, contents: bytes, segment_size, src_ip: self.source };
        self.persist(|| self.state.try_send(UdpSockRef::from(&self.inner), &transmit)).is_ok()
    }

    /// One call for many datagrams, each a packet of its own; one call for each if they have a chosen source.
    fn send_each(&self, bytes: &[u8], segment_bytes: usize, destinations: &[SocketAddr]) -> usize {
        if self.source.is_some() {
            let datagrams = || bytes.chunks(segment_bytes);
            let each = destinations.iter().flat_map(|to| datagrams().map(move |datagram| (datagram, *to)));
            return each.filter(|(datagram, to)| !self.transmit(datagram, None, *to)).count();
        }
        let addresses: Vec<SocketAddrAny> = destinations.iter().map(|address| (*address).into()).collect();
        let slices: Vec<[IoSlice<'_>; 1]> =
            bytes.chunks(segment_bytes).map(|datagram| [IoSlice::new(datagram)]).collect();
        let mut controls: Vec<SendAncillaryBuffer<'_, '_, '_>> = Vec::new();
        controls.resize_with(addresses.len() * slices.len(), Default::default);
        let mut messages: Vec<MMsgHdr<'_>> = addresses
            .iter()
            .flat_map(|address| slices.iter().map(move |slice| (address, slice)))
            .zip(&mut controls)
            .map(|((address, slice), control)| MMsgHdr::new_with_addr(address, slice, control))
            .collect();
        let mut refused = 0;
        let mut rest = messages.as_mut_slice();
        while !rest.is_empty() {
            let now = rest.len().min(CALL_DATAGRAMS_MAX);
            let sent = self
                .persist(|| sendmmsg(&self.inner, &mut rest[..now], SendFlags::empty()).map_err(Into::into));
            let done = sent.unwrap_or_else(|_| {
                // The first of the rest is the one that was refused.
                refused += 1;
                1
            });
            rest = &mut rest[done..];
        }
        refused
    }

    /// Repeats a call that was interrupted; waits a little, once, for room in the send buffer.
    fn persist<T>(&self, mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        let mut patient = true;
        loop {
            match call() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if patient && lacks_room(&error) => {
                    patient = false;
                    let _ = poll(&mut [PollFd::new(&self.inner, PollFlags::OUT)], Some(&ROOM_WAIT));
                }
                result => return result,
            }
        }
    }
}

fn lacks_room(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock || error.raw_os_error() == Some(Errno::NOBUFS.raw_os_error())
}

#[cfg(test)]
mod tests {
    use crate::{Receiver, Socket, wait};
    use std::net::{Ipv4Addr, SocketAddr};
    use std::time::Duration;

    fn bind() -> Socket {
        Socket::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap()
    }

    fn take(socket: &Socket, count: usize) -> Vec<Vec<u8>> {
        let mut receiver = Receiver::new();
        let mut taken = Vec::new();
        while taken.len() < count && wait(&[socket], None, Some(Duration::from_secs(1))).any() {
            receiver.receive(socket, |_, datagram| taken.push(datagram.to_vec())).unwrap();
        }
        taken
    }

    #[test]
    fn one_datagram_reaches_each_address_once() {
        let (sender, listeners) = (bind(), [bind(), bind(), bind()]);
        let to: Vec<SocketAddr> = listeners.iter().map(Socket::address).collect();
        assert_eq!(sender.send(b"hello", 1472, &to), 0);
        assert_eq!(sender.send(b"again", 1472, &to), 0);
        for listener in &listeners {
            assert_eq!(take(listener, 2), [b"hello", b"again"]);
        }
    }

    #[test]
    fn a_run_longer_than_a_call_keeps_its_borders_and_its_order() {
        let (sender, listener) = (bind(), bind());
        let run: Vec<u8> = (0..150u32).flat_map(|n| [n as u8; 1000]).chain([150; 17]).collect();
        assert_eq!(sender.send(&run, 1000, &[listener.address()]), 0);
        let taken = take(&listener, 151);
        assert_eq!(taken.len(), 151);
        for (n, datagram) in taken[..150].iter().enumerate() {
            assert_eq!(*datagram, [n as u8; 1000]);
        }
        assert_eq!(taken[150], [150; 17]);
    }

    #[test]
    fn without_segmentation_a_run_arrives_all_the_same() {
        let (sender, listener) = (bind(), bind());
        let run: Vec<u8> = (0..70u8).flat_map(|n| [n; 100]).collect();
        assert_eq!(sender.send_each(&run, 100, &[listener.address()]), 0);
        let taken = take(&listener, 70);
        assert_eq!(taken.len(), 70);
        assert!(taken.iter().enumerate().all(|(n, datagram)| *datagram == [n as u8; 100]));
    }

    #[test]
    fn what_cannot_be_sent_is_counted_and_the_rest_goes_on() {
        let (sender, listener) = (bind(), bind());
        // Port 0 is nobody's.
        let nowhere: SocketAddr = (Ipv4Addr::LOCALHOST, 0).into();
        assert_eq!(sender.send(b"x", 1, &[nowhere, listener.address(), nowhere]), 2);
        assert_eq!(take(&listener, 1), [b"x"]);
        assert_eq!(sender.send(b"", 1, &[listener.address()]), 0);
        assert_eq!(sender.send(b"x", 1, &[]), 0);
    }
}

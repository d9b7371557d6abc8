//! Sending: as few system calls and as few packets through the stack as possible.

use crate::socket::Socket;
use crate::wait::timespec;
use quinn_udp::{Transmit, UdpSockRef};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{SendFlags, sendto};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Maximum number of datagrams in one call.
const CALL_DATAGRAMS_MAX: usize = 64;
/// Maximum length in bytes of a run that crosses the stack as one packet.
const SEGMENTED_BYTES_MAX: usize = 65_000;
/// Time for which [`Socket::send`] waits for space in a full send buffer before it counts a part as lost.
const WRITABLE_WAIT: Duration = Duration::from_millis(5);

/// How far a run has been sent, so that sending can continue there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that went to every destination.
    bytes: usize,
    /// Number of destinations to which the part after these bytes went too.
    destinations: usize,
    refused: Refused,
}

/// What the system refused to send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Refused {
    datagrams: usize,
    /// The reason for one of them was the network of this machine.
    by_network: bool,
}

impl Refused {
    fn and(self, more: Refused) -> Refused {
        Refused { datagrams: self.datagrams + more.datagrams, by_network: self.by_network || more.by_network }
    }
}

impl Progress {
    /// Returns how many datagrams the system refused so far, counted for each destination. For the protocol above they
    /// are losses like any other.
    pub fn refused(self) -> usize {
        self.refused.datagrams
    }

    /// True if the system refused a datagram because of this machine's network: the socket's address or the interface is
    /// gone, or no route leads to the destination.
    pub fn is_without_network(self) -> bool {
        self.refused.by_network
    }
}

/// The send buffer is full.
struct Full;

impl Socket {
    /// Sends the datagrams in `bytes`, each of `segment_bytes` except the last, which may be shorter, to each of
    /// `destinations`, from `progress` on. Never waits. Returns false if the send buffer was full before the end: when
    /// there is space again ([`Watch::await_writable`](crate::Watch::await_writable)), call it again with the same
    /// arguments.
    pub fn send_on(
        &self,
        bytes: &[u8],
        segment_bytes: usize,
        destinations: &[SocketAddr],
        progress: &mut Progress,
    ) -> bool {
        loop {
            let part = self.part(bytes, segment_bytes, *progress);
            if part.is_empty() {
                return true;
            }
            while let Some(destination) = destinations.get(progress.destinations) {
                match self.send_part(part, segment_bytes, *destination) {
                    Ok(refused) => progress.refused = progress.refused.and(refused),
                    Err(Full) => return false,
                }
                progress.destinations += 1;
            }
            *progress = Progress { bytes: progress.bytes + part.len(), destinations: 0, ..*progress };
        }
    }

    /// Like [`Socket::send_on`], but waits up to 5 ms for space in the send buffer, once for each part and destination.
    /// Returns how many datagrams, counted for each destination, were lost.
    pub fn send(&self, bytes: &[u8], segment_bytes: usize, destinations: &[SocketAddr]) -> usize {
        let mut progress = Progress::default();
        let mut waited_at = None;
        while !self.send_on(bytes, segment_bytes, destinations, &mut progress) {
            if waited_at == Some(progress) {
                progress.destinations += 1;
                let lost = self.part(bytes, segment_bytes, progress).len().div_ceil(segment_bytes);
                progress.refused.datagrams += lost;
            } else {
                waited_at = Some(progress);
                self.wait_writable(WRITABLE_WAIT);
            }
        }
        progress.refused()
    }

    /// Waits up to `wait` for space in the send buffer. Returns whether there is.
    fn wait_writable(&self, wait: Duration) -> bool {
        let ready = poll(&mut [PollFd::new(&self.inner, PollFlags::OUT)], Some(&timespec(wait)));
        matches!(ready, Ok(1..))
    }

    /// Returns what goes next in one call.
    fn part<'a>(&self, bytes: &'a [u8], segment_bytes: usize, progress: Progress) -> &'a [u8] {
        if segment_bytes == 0 {
            return &[];
        }
        let datagrams = match self.segments() {
            true => CALL_DATAGRAMS_MAX.min(SEGMENTED_BYTES_MAX / segment_bytes).max(1),
            false => 1,
        };
        let rest = &bytes[progress.bytes..];
        &rest[..rest.len().min(datagrams * segment_bytes)]
    }

    /// Sends one part to one destination. Returns what the system refused.
    fn send_part(&self, part: &[u8], segment_bytes: usize, destination: SocketAddr) -> Result<Refused, Full> {
        if part.len() <= segment_bytes {
            return self.send_one(part, destination);
        }
        // One packet through the stack, split at the very end.
        self.runs.fetch_add(1, Ordering::Relaxed);
        match self.transmit(part, Some(segment_bytes), destination) {
            Ok(()) => Ok(Refused::default()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(Full),
            // The system cannot segment here.
            Err(_) => self.send_each(part, segment_bytes, destination),
        }
    }

    /// Sends each datagram in a call of its own. If the buffer gets full in the middle, all of them go again later.
    fn send_each(&self, part: &[u8], segment_bytes: usize, destination: SocketAddr) -> Result<Refused, Full> {
        part.chunks(segment_bytes).try_fold(Refused::default(), |refused, datagram| {
            Ok(refused.and(self.send_one(datagram, destination)?))
        })
    }

    /// Sends one datagram. Returns whether the system refused it.
    fn send_one(&self, datagram: &[u8], destination: SocketAddr) -> Result<Refused, Full> {
        let sent = match self.source_toward(destination) {
            Some(_) => self.transmit(datagram, None, destination),
            None => uninterrupted(|| {
                Ok(sendto(&self.inner, datagram, SendFlags::DONTWAIT, &destination).map(drop)?)
            }),
        };
        match sent {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(Full),
            Err(error) => Ok(Refused { datagrams: 1, by_network: is_of_network(&error) }),
            Ok(()) => Ok(Refused::default()),
        }
    }

    fn transmit(&self, bytes: &[u8], segment_size: Option<usize>, destination: SocketAddr) -> io::Result<()> {
        // This call has no flag against waiting.
        if self.blocking.load(Ordering::Relaxed) && !self.wait_writable(Duration::ZERO) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let src_ip = self.source_toward(destination);
        let transmit = Transmit { destination, ecn: None, contents: bytes, segment_size, src_ip };
        uninterrupted(|| self.state.try_send(UdpSockRef::from(&self.inner), &transmit))
    }
}

/// True if this error of a send says that the address, the interface or the route is not there. Linux reports an address
/// that is gone as an invalid argument.
fn is_of_network(error: &io::Error) -> bool {
    let errors = [Errno::NODEV, Errno::INVAL, Errno::ADDRNOTAVAIL, Errno::NETUNREACH, Errno::NETDOWN];
    Errno::from_io_error(error).is_some_and(|error| errors.contains(&error))
}

fn uninterrupted(mut call: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Progress, Receiver, Socket};
    use std::net::{Ipv4Addr, SocketAddr};
    use std::time::Duration;

    /// Longer than any datagram takes.
    const PATIENCE: Duration = Duration::from_secs(60);

    fn bind() -> Socket {
        Socket::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap()
    }

    fn take(socket: &Socket, count: usize) -> Vec<Vec<u8>> {
        let mut receiver = Receiver::new();
        let mut taken = Vec::new();
        while taken.len() < count && socket.wait(Some(PATIENCE)) {
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
        assert!(
            matches!(sender.send_each(&run, 100, listener.address()), Ok(refused) if refused.datagrams == 0)
        );
        let taken = take(&listener, 70);
        assert_eq!(taken.len(), 70);
        assert!(taken.iter().enumerate().all(|(n, datagram)| *datagram == [n as u8; 100]));
    }

    #[test]
    fn a_send_without_a_route_blames_the_network_and_any_other_does_not() {
        let sender = bind();
        let sent = |length: usize, to: SocketAddr| {
            let mut progress = Progress::default();
            assert!(sender.send_on(&vec![7; length], length, &[to], &mut progress));
            (progress.refused(), progress.is_without_network())
        };
        // From loopback, no route leads to another machine.
        assert_eq!(sent(1, ([192, 0, 2, 7], 9).into()), (1, true));
        assert_eq!(sent(1, bind().address()), (0, false));
        // Longer than any datagram.
        assert_eq!(sent(66_000, bind().address()), (1, false));
    }

    #[test]
    fn what_cannot_be_sent_is_counted_and_the_rest_goes_on() {
        let (sender, listener) = (bind(), bind());
        // No socket can have port 0.
        let nowhere: SocketAddr = (Ipv4Addr::LOCALHOST, 0).into();
        assert_eq!(sender.send(b"x", 1, &[nowhere, listener.address(), nowhere]), 2);
        assert_eq!(take(&listener, 1), [b"x"]);
        assert_eq!(sender.send(b"", 1, &[listener.address()]), 0);
        assert_eq!(sender.send(b"x", 1, &[]), 0);
    }
}

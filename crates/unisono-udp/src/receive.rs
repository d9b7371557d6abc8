//! Receiving: many datagrams in one call, into buffers that are handed on without a copy.

use crate::socket::Socket;
use bytes::BytesMut;
use nix::cmsg_space;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg};
use quinn_udp::{RecvMeta, UdpSockRef};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recvfrom};
use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSliceMut};
use std::net::{SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::AsRawFd;

/// Maximum number of messages that one call receives. Each is one datagram, or coalesced datagrams of one sender.
const SLOTS: usize = 16;
/// Number of consecutive lone datagrams after which one call offers two slots, to see whether they still come alone.
const PROBE_EVERY: u32 = 16;
/// Size of a slot: the maximum length of a message, in bytes.
const SLOT_BYTES: usize = 1 << 16;
/// Up to this length a datagram is copied into memory of its own, so that keeping it does not keep others.
const COPIED_BYTES_MAX: usize = 4096;
/// Up to this length a datagram is copied into a block with others of its kind, so that keeping it keeps at most one
/// block.
const SMALL_BYTES_MAX: usize = 256;
/// Bytes allocated for small datagrams at a time.
const BLOCK_BYTES: usize = 2048;
/// Bytes allocated for received messages at a time. Only the part that is used takes physical memory.
const CHUNK_BYTES: usize = 1 << 18;
/// Maximum number of chunks that are kept until their datagrams are dropped, to be used again.
const RETIRED_MAX: usize = 16;

/// Buffers for received datagrams. They grow with the number of datagrams that are kept.
///
/// Bulk datagrams are slices of a chunk that many share, and keeping one keeps its chunk. A chunk is used again when
/// none of its datagrams is kept any more. A message of up to 4 KiB is copied, as most lone datagrams are. Otherwise a
/// few bytes that are kept for long would keep a whole chunk that any other senders filled. Small datagrams share a
/// block, so that they cost no allocation each.
#[derive(Debug)]
pub struct Receiver {
    slots: [BytesMut; SLOTS],
    meta: [RecvMeta; SLOTS],
    /// Space for the kernel's note of how a singly received message was coalesced.
    control: Vec<u8>,
    /// Number of slots that the next call offers. With one more than there are messages, the call also shows that there
    /// are no more. If all datagrams come alone it is one, which is cheapest and does not show that.
    offered: usize,
    /// Number of consecutive lone datagrams.
    alone: u32,
    retired: VecDeque<BytesMut>,
    /// The free rest of the block for small datagrams.
    block: BytesMut,
}

impl Receiver {
    /// Makes a receiver without memory for datagrams yet.
    pub fn new() -> Receiver {
        Receiver {
            slots: Default::default(),
            meta: Default::default(),
            control: cmsg_space!(i32),
            offered: 2,
            alone: 0,
            retired: VecDeque::new(),
            block: BytesMut::new(),
        }
    }

    /// Takes what has arrived at `socket` in one system call and gives each datagram to `take`. Returns whether to call
    /// again at once. If not, there may still be more; then the next wait returns at once.
    pub fn receive(
        &mut self,
        socket: &Socket,
        mut take: impl FnMut(SocketAddr, BytesMut),
    ) -> io::Result<bool> {
        let offered = self.offered;
        self.prepare_slots(offered);
        let received = match offered {
            1 => self.receive_one(socket, MsgFlags::MSG_DONTWAIT),
            _ => self.receive_many(socket),
        };
        let count = match received {
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Err(error) => return Err(error),
        };
        let coalesced = self.hand_out(count, &mut take);
        self.alone = if count <= 1 && !coalesced { self.alone + 1 } else { 0 };
        let more = if offered == 1 { coalesced } else { count == offered };
        self.offered = match self.alone {
            0 if more => (offered * 2).min(SLOTS),
            0 => count + 1,
            alone if alone.is_multiple_of(PROBE_EVERY) => 2,
            _ => 1,
        };
        Ok(more)
    }

    /// Sleeps until something has arrived at `socket`, which must be [blocking](Socket::set_blocking), and gives it to
    /// `take`, in one system call: this wakes a thread faster than any other wait. Returns the number of datagrams; 0
    /// after [`Socket::WAIT_MAX`] without any, or without a reason.
    pub fn wait_and_receive(
        &mut self,
        socket: &Socket,
        take: impl FnMut(SocketAddr, BytesMut),
    ) -> io::Result<usize> {
        if socket.is_uncoalesced() {
            self.receive_uncoalesced(socket, take)
        } else {
            self.receive_packet(socket, MsgFlags::empty(), take)
        }
    }

    /// Takes one message that has arrived, which is one datagram or a few coalesced ones. Does not wait, even if
    /// `socket` is [blocking](Socket::set_blocking). Returns the number of datagrams.
    pub fn receive_next(
        &mut self,
        socket: &Socket,
        take: impl FnMut(SocketAddr, BytesMut),
    ) -> io::Result<usize> {
        self.receive_packet(socket, MsgFlags::MSG_DONTWAIT, take)
    }

    fn receive_packet(
        &mut self,
        socket: &Socket,
        flags: MsgFlags,
        mut take: impl FnMut(SocketAddr, BytesMut),
    ) -> io::Result<usize> {
        self.prepare_slots(1);
        let mut datagrams = 0;
        let mut count = |from, datagram| {
            datagrams += 1;
            take(from, datagram);
        };
        match self.receive_one(socket, flags) {
            Ok(received) => self.hand_out(received, &mut count),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => false,
            Err(error) => return Err(error),
        };
        Ok(datagrams)
    }

    /// Like `receive_packet`, for a socket that does not coalesce: the kernel only has to report the sender, which
    /// costs less. Waits.
    fn receive_uncoalesced(
        &mut self,
        socket: &Socket,
        mut take: impl FnMut(SocketAddr, BytesMut),
    ) -> io::Result<usize> {
        self.prepare_slots(1);
        let slot = &mut self.slots[0];
        let (bytes, from) = match recvfrom(socket, &mut slot[..], RecvFlags::empty()) {
            Ok((bytes, _, from)) => (bytes, from.and_then(|from| from.try_into().ok())),
            Err(Errno::AGAIN | Errno::INTR) => return Ok(0),
            Err(error) => return Err(error.into()),
        };
        let Some(from) = from else { return Ok(0) };
        take(canonical(from), take_out(slot, bytes, &mut self.block));
        Ok(1)
    }

    /// Gives the first `offered` slots space for a message of any length.
    fn prepare_slots(&mut self, offered: usize) {
        for slot in &mut self.slots[..offered] {
            if slot.len() < SLOT_BYTES {
                if slot.capacity() < SLOT_BYTES {
                    let spent = std::mem::replace(slot, chunk(&mut self.retired));
                    retire(&mut self.retired, spent);
                }
                slot.resize(SLOT_BYTES, 0);
            }
        }
    }

    /// Gives what the first `count` slots have received to `take`. Returns whether any of it was coalesced.
    fn hand_out(&mut self, count: usize, take: &mut impl FnMut(SocketAddr, BytesMut)) -> bool {
        for (slot, meta) in self.slots.iter_mut().zip(&self.meta).take(count) {
            let (from, mut rest) =
                (canonical(meta.addr), take_out(slot, meta.len.min(slot.len()), &mut self.block));
            while meta.stride > 0 && rest.len() > meta.stride {
                take(from, rest.split_to(meta.stride));
            }
            take(from, rest);
        }
        self.meta[..count].iter().any(|meta| meta.stride > 0 && meta.len > meta.stride)
    }

    fn receive_many(&mut self, socket: &Socket) -> io::Result<usize> {
        let mut slices = self.slots.each_mut().map(|slot| IoSliceMut::new(slot));
        let offered = self.offered;
        socket.state.recv(UdpSockRef::from(&socket.inner), &mut slices[..offered], &mut self.meta[..offered])
    }

    fn receive_one(&mut self, socket: &Socket, flags: MsgFlags) -> io::Result<usize> {
        let mut slices = [IoSliceMut::new(&mut self.slots[0])];
        let fd = socket.inner.as_raw_fd();
        let received = recvmsg::<SockaddrStorage>(fd, &mut slices, Some(&mut self.control), flags)?;
        let Some(from) = received.address.as_ref().and_then(address) else { return Ok(0) };
        let stride = received.cmsgs()?.find_map(|told| match told {
            ControlMessageOwned::UdpGroSegments(bytes) => usize::try_from(bytes).ok(),
            _ => None,
        });
        let meta = &mut self.meta[0];
        (meta.addr, meta.len, meta.stride) = (from, received.bytes, stride.unwrap_or(received.bytes));
        Ok(1)
    }
}

impl Default for Receiver {
    fn default() -> Receiver {
        Receiver::new()
    }
}

fn address(of: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = of.as_sockaddr_in().map(|v4| SocketAddr::from(SocketAddrV4::from(*v4)));
    v4.or_else(|| of.as_sockaddr_in6().map(|v6| SocketAddrV6::from(*v6).into()))
}

/// Returns the IPv4 address that a socket of IPv6 reports as an IPv6 address; any other as it is.
fn canonical(from: SocketAddr) -> SocketAddr {
    match from {
        SocketAddr::V6(v6) if let Some(v4) = v6.ip().to_ipv4_mapped() => (v4, v6.port()).into(),
        from => from,
    }
}

/// Takes the first `bytes` bytes out of a slot.
fn take_out(slot: &mut BytesMut, bytes: usize, block: &mut BytesMut) -> BytesMut {
    if bytes <= SMALL_BYTES_MAX {
        copy(block, &slot[..bytes])
    } else if bytes <= COPIED_BYTES_MAX {
        BytesMut::from(&slot[..bytes])
    } else {
        slot.split_to(bytes)
    }
}

/// Copies a small datagram into the free rest of the block, or into a new block.
fn copy(block: &mut BytesMut, datagram: &[u8]) -> BytesMut {
    if block.capacity() < datagram.len() {
        *block = BytesMut::with_capacity(BLOCK_BYTES);
    }
    block.extend_from_slice(datagram);
    block.split()
}

/// Returns a chunk to receive into. It prefers the most recently used of the free chunks, which is probably still in
/// the processor's caches and is cleared as it is used; a new chunk is clear.
fn chunk(retired: &mut VecDeque<BytesMut>) -> BytesMut {
    let free = retired.iter_mut().rposition(|chunk| chunk.try_reclaim(CHUNK_BYTES));
    free.and_then(|index| retired.remove(index)).unwrap_or_else(|| BytesMut::zeroed(CHUNK_BYTES))
}

fn retire(retired: &mut VecDeque<BytesMut>, mut spent: BytesMut) {
    if spent.capacity() == 0 {
        return;
    }
    spent.clear();
    if retired.len() == RETIRED_MAX {
        retired.pop_front();
    }
    retired.push_back(spent);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
    use std::time::Duration;

    /// Longer than any datagram takes.
    const PATIENCE: Duration = Duration::from_secs(60);

    fn pair() -> (Socket, Socket) {
        let here = (Ipv4Addr::LOCALHOST, 0).into();
        (Socket::bind(here).unwrap(), Socket::bind(here).unwrap())
    }

    #[test]
    fn nothing_to_receive_is_no_error() {
        let (socket, _) = pair();
        let more = Receiver::new().receive(&socket, |_, _| panic!("nothing was sent")).unwrap();
        assert!(!more);
    }

    #[test]
    fn an_empty_datagram_is_a_datagram() {
        let (sender, socket) = pair();
        rustix::net::sendto(&sender, &[], rustix::net::SendFlags::empty(), &socket.address()).unwrap();
        assert!(socket.wait(Some(PATIENCE)));
        let mut lengths = Vec::new();
        Receiver::new().receive(&socket, |_, datagram| lengths.push(datagram.len())).unwrap();
        assert_eq!(lengths, [0]);
    }

    #[test]
    fn the_kernel_adds_no_unneeded_ancillary_data() {
        for here in [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
            let Ok(socket) = Socket::bind((here, 0).into()) else { continue };
            socket.send(b"x", 1, &[socket.address()]);
            assert!(socket.wait(Some(PATIENCE)));
            let mut receiver = Receiver::new();
            receiver.receive(&socket, |_, _| {}).unwrap();
            let told = receiver.meta[0];
            assert_eq!((told.timestamp, told.dst_ip, told.interface_index), (None, None, None));
        }
    }

    #[test]
    fn chunks_are_used_again_and_what_is_kept_stays_intact() {
        let (sender, socket) = pair();
        let mut receiver = Receiver::new();
        let mut kept = Vec::new();
        let run: Vec<u8> = (0..46u8).flat_map(|n| [n; 1400]).collect();
        for round in 0..60u8 {
            let mut mine = run.clone();
            mine[0] = round;
            sender.send(&mine, 1400, &[socket.address()]);
            let mut taken = 0;
            while taken < 46 && socket.wait(Some(PATIENCE)) {
                receiver
                    .receive(&socket, |_, datagram| {
                        taken += 1;
                        if datagram[1399] == 0 {
                            kept.push(datagram.freeze());
                        }
                    })
                    .unwrap();
            }
            assert_eq!(taken, 46);
            // As a history does: the oldest is dropped, from the front.
            if kept.len() > 10 {
                let oldest = kept.remove(0);
                assert_eq!(usize::from(oldest[0]), usize::from(round) - 10);
                assert!(oldest[1..].iter().all(|byte| *byte == 0));
            }
        }
        assert!(receiver.retired.len() <= RETIRED_MAX);
        // 60 rounds fill about 20 chunks; a few chunks were used again and again.
        let reused = receiver.retired.iter_mut().any(|chunk| chunk.try_reclaim(CHUNK_BYTES));
        drop(kept);
        assert!(reused || receiver.retired.iter_mut().all(|chunk| chunk.try_reclaim(CHUNK_BYTES)));
    }

    #[test]
    fn small_datagrams_share_blocks_and_stay_apart() {
        let (sender, socket) = pair();
        let mut receiver = Receiver::new();
        let mut kept = Vec::new();
        for n in 0..100u8 {
            sender.send(&[n; 100][..usize::from(n)], 256, &[socket.address()]);
            sender.send(&[n; 300], 300, &[socket.address()]);
            while kept.len() < usize::from(n) * 2 && socket.wait(Some(PATIENCE)) {
                receiver.receive(&socket, |_, datagram| kept.push(datagram)).unwrap();
            }
        }
        let mut blocks: Vec<usize> = Vec::new();
        for (n, datagram) in kept.iter().enumerate() {
            let n = n / 2 + n % 2;
            let expected = if datagram.len() == 300 { vec![n as u8; 300] } else { vec![n as u8; n] };
            assert_eq!(datagram, &expected);
            if datagram.len() < 300
                && blocks.last().is_none_or(|at| datagram.as_ptr() as usize - at > BLOCK_BYTES)
            {
                blocks.push(datagram.as_ptr() as usize);
            }
        }
        // 100 datagrams, 4,950 bytes together.
        assert!((3..=4).contains(&blocks.len()), "{} blocks", blocks.len());
    }

    #[test]
    fn after_many_by_themselves_a_run_keeps_its_borders_and_a_burst_is_seen_soon() {
        for here in [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
            let (Ok(sender), Ok(socket)) = (Socket::bind((here, 0).into()), Socket::bind((here, 0).into()))
            else {
                continue;
            };
            let mut receiver = Receiver::new();
            let take = |receiver: &mut Receiver, taken: &mut Vec<(SocketAddr, usize)>| {
                assert!(socket.wait(Some(PATIENCE)));
                receiver.receive(&socket, |from, datagram| taken.push((from, datagram.len()))).unwrap()
            };
            let mut taken = Vec::new();
            for n in 1..=20 {
                sender.send(&[7; 30][..n], 30, &[socket.address()]);
                assert!(!take(&mut receiver, &mut taken));
                assert_eq!(taken.pop(), Some((sender.address(), n)));
            }
            assert_eq!(receiver.offered, 1);
            // One packet where the kernel can segment, three otherwise. The receiver sees no difference.
            sender.send(&[7; 250], 100, &[socket.address()]);
            while taken.len() < 3 {
                take(&mut receiver, &mut taken);
            }
            assert_eq!(taken, [100, 100, 50].map(|length| (sender.address(), length)));

            (receiver.offered, receiver.alone) = (1, 1);
            for n in 0..200 {
                sender.send(&[7; 300][..n], 300, &[socket.address()]);
            }
            let (mut calls, sent) = (0, 199);
            taken.clear();
            while taken.len() < sent {
                take(&mut receiver, &mut taken);
                calls += 1;
            }
            assert!(calls < 60, "{calls} calls");
        }
    }

    #[test]
    fn a_busy_socket_is_offered_more_slots() {
        // Rarely the kernel is late with some datagrams, and a call finds fewer than were sent.
        let calls = (0..10).map(|_| calls_for_forty()).min();
        assert!(calls <= Some(6), "{calls:?} calls");
    }

    /// Returns how many calls a fresh receiver needs for forty datagrams.
    fn calls_for_forty() -> usize {
        let (sender, socket) = pair();
        for n in 0..40u8 {
            // Datagrams of different sizes are not coalesced.
            sender.send(&vec![n; 10 + usize::from(n)], 100, &[socket.address()]);
        }
        let mut receiver = Receiver::new();
        let (mut calls, mut taken) = (0, 0);
        while taken < 40 && socket.wait(Some(PATIENCE)) {
            calls += 1;
            receiver.receive(&socket, |_, _| taken += 1).unwrap();
        }
        assert_eq!(taken, 40);
        calls
    }
}

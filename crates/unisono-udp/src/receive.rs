//! Receiving: many datagrams in one call, into buffers that are handed on without a copy.

use crate::socket::Socket;
use bytes::BytesMut;
use quinn_udp::{RecvMeta, UdpSockRef};
use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;

/// Most coalesced datagrams that one call brings, each from one sender.
const SLOTS: usize = 16;
/// Fewest slots offered: with one more than what comes, a call says that there is no more.
const SLOTS_MIN: usize = 2;
/// The most bytes that a coalesced datagram can have.
const ROOM_BYTES: usize = 1 << 16;
/// So much or less is copied into memory of its own: who keeps it keeps nothing that came beside it.
const COPIED_BYTES_MAX: usize = 4096;
/// So much or less is copied into a block, beside others of its kind: who keeps it keeps a block at most.
const SMALL_BYTES_MAX: usize = 256;
/// What is allocated for small datagrams at a time.
const BLOCK_BYTES: usize = 2048;
/// What is allocated for calls at a time. Only what is used of it becomes memory of ours.
const CHUNK_BYTES: usize = 1 << 18;
/// Chunks that wait for their datagrams to be dropped, to be used again.
const RETIRED_MAX: usize = 16;

/// Buffers for received datagrams, and as many calls' worth of them as it takes.
///
/// What comes in bulk are slices of chunks that many share; who keeps one keeps its chunk. A chunk none of whose
/// datagrams is kept any more is used again. What comes by itself is copied: else a few bytes that are kept for long
/// would keep a chunk that others, anybody, filled. Small ones share a block, so that they cost no allocation each.
#[derive(Debug, Default)]
pub struct Receiver {
    slots: [BytesMut; SLOTS],
    meta: [RecvMeta; SLOTS],
    /// How many slots the next call offers: few while little comes.
    offered: usize,
    retired: VecDeque<BytesMut>,
    /// The room that is left in the block for small datagrams.
    block: BytesMut,
}

impl Receiver {
    /// Without any memory yet.
    pub fn new() -> Receiver {
        Receiver::default()
    }

    /// Takes what has arrived at `socket` in one system call and gives each datagram to `take`. Returns
    /// whether there may be more.
    pub fn receive(
        &mut self,
        socket: &Socket,
        mut take: impl FnMut(SocketAddr, BytesMut),
    ) -> io::Result<bool> {
        let offered = self.offered.clamp(SLOTS_MIN, SLOTS);
        for slot in &mut self.slots[..offered] {
            if slot.len() < ROOM_BYTES {
                let spent = std::mem::replace(slot, chunk(&mut self.retired));
                retire(&mut self.retired, spent);
            }
        }
        let mut slices = self.slots.each_mut().map(|slot| IoSliceMut::new(slot));
        let received = socket.state.recv(
            UdpSockRef::from(&socket.inner),
            &mut slices[..offered],
            &mut self.meta[..offered],
        );
        let count = match received {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(error) => return Err(error),
        };
        for (slot, meta) in self.slots.iter_mut().zip(&self.meta).take(count) {
            let bytes = meta.len.min(slot.len());
            let mut rest = if bytes <= SMALL_BYTES_MAX {
                copy(&mut self.block, &slot[..bytes])
            } else if bytes <= COPIED_BYTES_MAX {
                BytesMut::from(&slot[..bytes])
            } else {
                slot.split_to(bytes)
            };
            while meta.stride > 0 && rest.len() > meta.stride {
                take(meta.addr, rest.split_to(meta.stride));
            }
            take(meta.addr, rest);
        }
        let more = count == offered;
        self.offered = if more { offered * 2 } else { count + 1 };
        Ok(more)
    }
}

/// A small datagram, in what room is left in the block or in a new one.
fn copy(block: &mut BytesMut, datagram: &[u8]) -> BytesMut {
    if block.capacity() < datagram.len() {
        *block = BytesMut::with_capacity(BLOCK_BYTES);
    }
    block.extend_from_slice(datagram);
    block.split()
}

/// A chunk to receive into: one that nobody needs any more, or a new one.
fn chunk(retired: &mut VecDeque<BytesMut>) -> BytesMut {
    if let Some(oldest) = retired.front_mut()
        && oldest.try_reclaim(CHUNK_BYTES)
        && let Some(mut chunk) = retired.pop_front()
    {
        chunk.resize(CHUNK_BYTES, 0);
        return chunk;
    }
    BytesMut::zeroed(CHUNK_BYTES)
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
    fn the_kernel_tells_nothing_that_nobody_asked_for() {
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
            // As a history does: what is old is dropped, from the front.
            if kept.len() > 10 {
                let oldest = kept.remove(0);
                assert_eq!(usize::from(oldest[0]), usize::from(round) - 10);
                assert!(oldest[1..].iter().all(|byte| *byte == 0));
            }
        }
        assert!(receiver.retired.len() <= RETIRED_MAX);
        // 60 rounds fill about 20 chunks; a few of them served again and again.
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
        // 4,950 bytes.
        assert!((3..=4).contains(&blocks.len()), "{} blocks", blocks.len());
    }

    #[test]
    fn a_busy_socket_is_offered_more_slots() {
        // Rarely, the kernel is late with some of them, and a call finds less than was sent.
        let calls = (0..10).map(|_| calls_for_forty()).min();
        assert!(calls <= Some(6), "{calls:?} calls");
    }

    /// How many calls it takes a fresh receiver to take forty datagrams.
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

//! The seat: whoever has it waits for the sockets and reads them, on behalf of everybody.

use bytes::BytesMut;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use unisono_udp::{Bell, Ready, Receiver, Socket, wait};

/// The unicast socket's index among those of a seat; the others listen to multicast addresses.
const UNICAST: usize = 0;
/// Datagrams after which what was received is handled before more is.
const INBOX_MAX: usize = 1024;

/// A datagram as it came.
pub(crate) struct Received {
    pub(crate) from: SocketAddr,
    pub(crate) by_multicast: bool,
    pub(crate) datagram: BytesMut,
}

/// What it takes to wait for datagrams. It is owned by the thread that waits, so that nothing is locked
/// meanwhile.
pub(crate) struct Seat {
    receiver: Receiver,
    pub(crate) sockets: Arc<[Arc<Socket>]>,
    pub(crate) inbox: Vec<Received>,
}

impl Seat {
    pub(crate) fn new(sockets: Arc<[Arc<Socket>]>) -> Seat {
        Seat { receiver: Receiver::new(), sockets, inbox: Vec::new() }
    }

    /// Waits until datagrams come, the bell rings or `timeout` has passed, and fills the inbox. Looks again
    /// and again for the first `spin` before it sleeps. Returns whether the bell rang.
    pub(crate) fn wait(&mut self, bell: &Bell, timeout: Option<Duration>, spin: Duration) -> bool {
        let sockets = self.sockets.clone();
        let mut borrowed = [&*sockets[UNICAST]; unisono_udp::SOCKETS_MAX];
        let count = sockets.len().min(borrowed.len());
        for (slot, socket) in borrowed.iter_mut().zip(sockets.iter()) {
            *slot = socket;
        }
        let ready = spun(&borrowed[..count], bell, timeout, spin);
        for (index, socket) in borrowed[..count].iter().enumerate() {
            if ready.socket(index) {
                self.read(socket, index != UNICAST);
            }
        }
        ready.bell()
    }

    fn read(&mut self, socket: &Socket, by_multicast: bool) {
        let inbox = &mut self.inbox;
        let mut more = true;
        while more && inbox.len() < INBOX_MAX {
            // An error is one datagram's (the socket lives on), or the want of memory.
            more = self
                .receiver
                .receive(socket, |from, datagram| inbox.push(Received { from, by_multicast, datagram }))
                .unwrap_or(false);
        }
    }
}

fn spun(sockets: &[&Socket], bell: &Bell, timeout: Option<Duration>, spin: Duration) -> Ready {
    if spin.is_zero() {
        return wait(sockets, Some(bell), timeout);
    }
    let begin = Instant::now();
    let limit = timeout.map_or(spin, |timeout| timeout.min(spin));
    loop {
        let ready = wait(sockets, Some(bell), Some(Duration::ZERO));
        let spent = begin.elapsed();
        if ready.any() || timeout.is_some_and(|timeout| spent >= timeout) {
            return ready;
        }
        if spent >= limit {
            return wait(sockets, Some(bell), timeout.map(|timeout| timeout.saturating_sub(spent)));
        }
    }
}

//! The seat: whoever has it waits for the sockets and reads them, on behalf of everybody.

use bytes::BytesMut;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use unisono_udp::{Bell, Ready, Receiver, Socket, Watch};

/// Sockets by the keys under which they are waited for: the unicast socket by its own, listeners by any from
/// [`LISTENERS`] on that none had before.
pub(crate) type Sockets = BTreeMap<u64, Arc<Socket>>;

/// The key of the bell.
const BELL: u64 = 0;
/// The key of the unicast socket; the others listen to multicast addresses.
pub(crate) const UNICAST: u64 = 1;
/// The first key of a listener.
pub(crate) const LISTENERS: u64 = 2;
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
    watch: Watch,
    sockets: Arc<Sockets>,
    pub(crate) inbox: Vec<Received>,
}

impl Seat {
    pub(crate) fn new(bell: &Bell) -> io::Result<Seat> {
        let watch = Watch::new()?;
        watch.add(bell, BELL)?;
        Ok(Seat { receiver: Receiver::new(), watch, sockets: Arc::default(), inbox: Vec::new() })
    }

    /// From now on it waits for these sockets.
    pub(crate) fn attend(&mut self, sockets: &Arc<Sockets>) {
        for (_, gone) in self.sockets.iter().filter(|(key, _)| !sockets.contains_key(key)) {
            self.watch.remove(&**gone);
        }
        for (key, new) in sockets.iter().filter(|(key, _)| !self.sockets.contains_key(key)) {
            // Fails for want of memory, or beyond the system's limit: the socket is deaf then.
            let _ = self.watch.add(&**new, *key);
        }
        self.sockets = sockets.clone();
    }

    /// From now on it waits, or does not, for room to send from the unicast socket.
    pub(crate) fn await_room(&mut self, awaited: bool) {
        if let Some(unicast) = self.sockets.get(&UNICAST) {
            self.watch.await_room(unicast, UNICAST, awaited);
        }
    }

    /// Waits until datagrams come, the bell rings or a moment has come, and fills the inbox. Looks again and again
    /// for the first `spin` before it sleeps. Returns whether the bell rang.
    pub(crate) fn wait(&mut self, until: Option<Instant>, spin: Duration) -> bool {
        let ready = self.spun(until, spin);
        let mut rang = false;
        for key in ready.keys() {
            rang |= *key == BELL;
            if let Some(socket) = self.sockets.get(key) {
                read(&mut self.receiver, socket, *key != UNICAST, &mut self.inbox);
            }
        }
        rang
    }

    fn spun(&mut self, until: Option<Instant>, spin: Duration) -> Ready {
        let begin = if spin.is_zero() { None } else { Some(Instant::now()) };
        while let Some(begin) = begin
            && begin.elapsed() < spin
            && until.is_none_or(|until| Instant::now() < until)
        {
            let ready = self.watch.look();
            if !ready.keys().is_empty() {
                return ready;
            }
        }
        self.watch.wait(until)
    }
}

fn read(receiver: &mut Receiver, socket: &Socket, by_multicast: bool, inbox: &mut Vec<Received>) {
    let mut more = true;
    while more && inbox.len() < INBOX_MAX {
        // An error is one datagram's (the socket lives on), or the want of memory.
        more = receiver
            .receive(socket, |from, datagram| inbox.push(Received { from, by_multicast, datagram }))
            .unwrap_or(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn sockets(keys: std::ops::Range<u64>) -> Sockets {
        let bind = || Arc::new(Socket::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap());
        keys.map(|key| (key, bind())).collect()
    }

    #[test]
    fn hundreds_of_sockets_come_and_go_and_all_are_read() {
        let bell = Bell::new().unwrap();
        let mut seat = Seat::new(&bell).unwrap();
        let mut all = sockets(UNICAST..UNICAST + 300);
        seat.attend(&Arc::new(all.clone()));
        let unicast = all[&UNICAST].clone();
        let gone = all.split_off(&(UNICAST + 200));
        seat.attend(&Arc::new(all.clone()));
        all.extend(sockets(UNICAST + 300..UNICAST + 310));
        seat.attend(&Arc::new(all.clone()));

        let everywhere: Vec<SocketAddr> = all.values().chain(gone.values()).map(|s| s.address()).collect();
        unicast.send(b"x", 1, &everywhere);
        while seat.inbox.len() < all.len() {
            assert!(!seat.wait(None, Duration::ZERO));
        }
        assert_eq!(seat.inbox.iter().filter(|received| !received.by_multicast).count(), 1);
        bell.ring();
        assert!(seat.wait(None, Duration::from_secs(60)));
        assert_eq!(seat.inbox.len(), 210);
    }
}

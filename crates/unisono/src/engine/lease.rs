//! The I/O lease: the thread that holds it waits for the sockets and reads them, for all groups of the engine.

use super::pinned::PinnedSocket;
use bytes::BytesMut;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use unisono_udp::{Ready, Receiver, Socket, Watch};

/// Sockets by the keys under which they are watched: the unicast socket by [`UNICAST`], each listener by a number from
/// [`LISTENERS`] on that no socket had before.
pub(crate) type Sockets = BTreeMap<u64, Arc<Socket>>;

/// Key of the wakeup in the watch over the sockets.
pub(crate) const WAKEUP: u64 = 0;
/// Key of the unicast socket. All other sockets listen to multicast addresses.
pub(crate) const UNICAST: u64 = 1;
/// First key of a listener.
pub(crate) const LISTENERS: u64 = 2;
/// Key of the watch over the sockets in the fallback thread's own watch.
pub(crate) const OTHERS: u64 = 0;
/// Number of received datagrams after which they are processed before more are read.
const INBOX_MAX: usize = 1024;

/// A received datagram.
pub(crate) struct Received {
    pub(crate) from: SocketAddr,
    pub(crate) by_multicast: bool,
    pub(crate) datagram: BytesMut,
}

/// What ended a wait, apart from datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Woken {
    /// The wakeup was signalled.
    pub(crate) signalled: bool,
    /// The watch's alarm went off.
    pub(crate) alarmed: bool,
}

/// All that is needed to wait for datagrams. The thread that waits owns it, so it holds no lock meanwhile.
pub(crate) struct IoLease {
    receiver: Receiver,
    /// Watches the wakeup and the sockets, except the pinned one.
    watch: Arc<Watch>,
    sockets: Arc<Sockets>,
    pinned: PinnedSocket,
    /// Number of runs that the unicast socket had sent when this was last compared.
    runs: u32,
    pub(crate) inbox: Vec<Received>,
}

impl IoLease {
    /// Makes the lease. `watch` must watch the wakeup and nothing else yet.
    pub(crate) fn new(watch: Arc<Watch>) -> IoLease {
        let (receiver, sockets) = (Receiver::new(), Arc::default());
        IoLease { receiver, watch, sockets, pinned: PinnedSocket::new(), runs: 0, inbox: Vec::new() }
    }

    /// Waits for these sockets from now on. Returns whether the unicast socket is another one than before.
    pub(crate) fn set_sockets(&mut self, sockets: &Arc<Sockets>, fallback: &Watch) -> bool {
        let is_in = |key: &u64, socket: &Arc<Socket>, others: &Sockets| {
            others.get(key).is_some_and(|other| Arc::ptr_eq(socket, other))
        };
        let pinned = self.pinned.key().and_then(|on| self.sockets.get_key_value(&on));
        if pinned.is_some_and(|(key, socket)| !is_in(key, socket, sockets)) {
            self.unpin(fallback, false);
        }
        for (_, gone) in self.sockets.iter().filter(|(key, socket)| !is_in(key, socket, sockets)) {
            self.watch.remove(&**gone);
        }
        for (key, new) in sockets.iter().filter(|(key, socket)| !is_in(key, socket, &self.sockets)) {
            // Fails if memory or the system's limit is exhausted. Then nothing is received from this socket.
            let _ = self.watch.add(&**new, *key);
        }
        let unicast = self.sockets.get(&UNICAST);
        let is_other = unicast.is_some_and(|unicast| !is_in(&UNICAST, unicast, sockets));
        self.sockets = sockets.clone();
        is_other
    }

    /// Sets whether a wait also ends when the unicast socket can send again. Not for use while a socket is pinned.
    pub(crate) fn await_writable(&mut self, awaited: bool) {
        if let Some(unicast) = self.sockets.get(&UNICAST) {
            self.watch.await_writable(unicast, UNICAST, awaited);
        }
    }

    /// Returns the key of the pinned socket.
    pub(crate) fn pinned(&self) -> Option<u64> {
        self.pinned.key()
    }

    /// Pins the socket from which all datagrams come, if there is one and `may` is true; unpins a socket for which that
    /// no longer holds. `elsewhere` is the number of datagrams that came from other sockets meanwhile. While a socket
    /// is pinned, `fallback` becomes ready for the other sockets, the wakeup and the alarm.
    pub(crate) fn repin(&mut self, fallback: &Watch, may: bool, elsewhere: usize) {
        self.pinned.note_elsewhere(elsewhere);
        if self.pinned.key().is_some() && (!may || self.pinned.should_unpin()) {
            self.unpin(fallback, may);
        } else if let Some(socket) = self.pinned.candidate().filter(|_| may) {
            self.pin(fallback, socket);
        }
    }

    fn pin(&mut self, fallback: &Watch, key: u64) {
        let Some(socket) = self.sockets.get(&key) else { return };
        // If one of these calls fails, no socket is pinned.
        if fallback.add(&*self.watch, OTHERS).is_err() {
            return;
        }
        if socket.set_blocking(true).is_err() {
            fallback.remove(&*self.watch);
            return;
        }
        self.watch.remove(&**socket);
        self.pinned.pin(key);
    }

    /// Unpins the socket. `wrong`: because not all datagrams came from it.
    fn unpin(&mut self, fallback: &Watch, wrong: bool) {
        let Some((key, socket)) = self.pinned.key().and_then(|on| self.sockets.get_key_value(&on)) else {
            return;
        };
        // Neither call fails for a socket that was watched before.
        let _ = socket.set_blocking(false);
        socket.set_uncoalesced(false);
        let _ = self.watch.add(&**socket, *key);
        fallback.remove(&*self.watch);
        self.pinned.unpin(wrong);
    }

    /// Waits until datagrams come, the wakeup is signalled or the alarm goes off, and fills the inbox. Polls for the
    /// first `spin` before it sleeps. With a pinned socket it waits for that socket's datagrams only, for at most
    /// [`Socket::WAIT_MAX`].
    pub(crate) fn wait(&mut self, spin: Duration) -> Woken {
        if self.pinned.key().is_some() {
            self.wait_pinned();
            Woken::default()
        } else {
            self.wait_for_all(spin)
        }
    }

    fn wait_pinned(&mut self) {
        let IoLease { receiver, sockets, pinned, runs, inbox, .. } = self;
        let Some((key, socket)) = pinned.key().and_then(|on| sockets.get_key_value(&on)) else { return };
        let by_multicast = *key != UNICAST;
        // The process's own multicast runs reach its own listener too. Without coalescing, the kernel would split them
        // up there before the listener's filter drops them.
        let sent = sockets.get(&UNICAST).map_or(0, |unicast| unicast.runs_sent());
        if by_multicast && *runs != sent {
            *runs = sent;
            pinned.note_run();
        }
        if socket.is_uncoalesced() != pinned.wants_uncoalesced() {
            socket.set_uncoalesced(pinned.wants_uncoalesced());
        }
        let mut take = |from, datagram| inbox.push(Received { from, by_multicast, datagram });
        // An error concerns one datagram (the socket lives on), or memory is exhausted.
        let datagrams = receiver.wait_and_receive(socket, &mut take).unwrap_or(0);
        if pinned.note_pinned(datagrams) {
            let more = receiver.receive_next(socket, &mut take).unwrap_or(0);
            pinned.note_look(more);
        }
    }

    fn wait_for_all(&mut self, spin: Duration) -> Woken {
        let ready = self.spin_then_wait(spin);
        for key in ready.keys() {
            if let Some(socket) = self.sockets.get(key) {
                let before = self.inbox.len();
                read(&mut self.receiver, socket, *key, &mut self.inbox);
                self.pinned.note(*key, self.inbox.len() - before);
            }
        }
        Woken { signalled: ready.keys().contains(&WAKEUP), alarmed: ready.alarmed() }
    }

    fn spin_then_wait(&mut self, spin: Duration) -> Ready {
        let begin = if spin.is_zero() { None } else { Some(Instant::now()) };
        while let Some(begin) = begin
            && begin.elapsed() < spin
        {
            let ready = self.watch.look();
            if ready.alarmed() || !ready.keys().is_empty() {
                return ready;
            }
        }
        self.watch.wait()
    }
}

/// Reads, for the fallback thread, the sockets that the holder of a pinned lease does not wait for.
pub(crate) struct FallbackReader {
    receiver: Receiver,
    pub(crate) inbox: Vec<Received>,
}

impl FallbackReader {
    pub(crate) fn new() -> FallbackReader {
        FallbackReader { receiver: Receiver::new(), inbox: Vec::new() }
    }

    /// Fills the inbox with what has arrived at the watched sockets.
    pub(crate) fn read(&mut self, watch: &Watch, sockets: &Sockets) -> Woken {
        let ready = watch.look();
        for key in ready.keys() {
            if let Some(socket) = sockets.get(key) {
                self.drain(socket, *key != UNICAST);
            }
        }
        Woken { signalled: ready.keys().contains(&WAKEUP), alarmed: ready.alarmed() }
    }

    /// The lease may be pinned to this socket meanwhile, so nothing here may wait.
    fn drain(&mut self, socket: &Socket, by_multicast: bool) {
        let mut more = true;
        while more && self.inbox.len() < INBOX_MAX {
            let take = |from, datagram| self.inbox.push(Received { from, by_multicast, datagram });
            more = self.receiver.receive_next(socket, take).is_ok_and(|datagrams| datagrams > 0);
        }
    }
}

fn read(receiver: &mut Receiver, socket: &Socket, key: u64, inbox: &mut Vec<Received>) {
    let (mut more, by_multicast) = (true, key != UNICAST);
    while more && inbox.len() < INBOX_MAX {
        // An error concerns one datagram (the socket lives on), or memory is exhausted.
        more = receiver
            .receive(socket, |from, datagram| inbox.push(Received { from, by_multicast, datagram }))
            .unwrap_or(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use unisono_udp::Wakeup;

    fn sockets(keys: std::ops::Range<u64>) -> Sockets {
        let bind = || Arc::new(Socket::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap());
        keys.map(|key| (key, bind())).collect()
    }

    #[test]
    fn hundreds_of_sockets_come_and_go_and_all_are_read() {
        let (watch, fallback, wakeup) =
            (Arc::new(Watch::new().unwrap()), Watch::new().unwrap(), Wakeup::new().unwrap());
        watch.add(&wakeup, WAKEUP).unwrap();
        let mut lease = IoLease::new(watch);
        let mut all = sockets(UNICAST..UNICAST + 300);
        lease.set_sockets(&Arc::new(all.clone()), &fallback);
        let unicast = all[&UNICAST].clone();
        let gone = all.split_off(&(UNICAST + 200));
        lease.set_sockets(&Arc::new(all.clone()), &fallback);
        all.extend(sockets(UNICAST + 300..UNICAST + 310));
        lease.set_sockets(&Arc::new(all.clone()), &fallback);

        let everywhere: Vec<SocketAddr> = all.values().chain(gone.values()).map(|s| s.address()).collect();
        unicast.send(b"x", 1, &everywhere);
        while lease.inbox.len() < all.len() {
            assert_eq!(lease.wait(Duration::ZERO), Woken::default());
        }
        assert_eq!(lease.inbox.iter().filter(|received| !received.by_multicast).count(), 1);
        wakeup.signal();
        assert!(lease.wait(Duration::from_secs(60)).signalled);
        assert_eq!(lease.inbox.len(), 210);
    }

    #[test]
    fn a_pinned_lease_waits_in_one_socket_and_the_fallback_reader_reads_the_rest() {
        let (watch, fallback, wakeup) =
            (Arc::new(Watch::new().unwrap()), Watch::new().unwrap(), Wakeup::new().unwrap());
        watch.add(&wakeup, WAKEUP).unwrap();
        let mut lease = IoLease::new(watch.clone());
        let sockets = Arc::new(sockets(UNICAST..UNICAST + 3));
        let (own, other) = (&sockets[&UNICAST], &sockets[&LISTENERS]);
        lease.set_sockets(&sockets, &fallback);
        let lone = |lease: &mut IoLease| {
            other.send(b"x", 1, &[own.address()]);
            lease.wait(Duration::ZERO);
            assert_eq!(lease.inbox.drain(..).count(), 1);
        };
        for _ in 0..100 {
            lease.repin(&fallback, false, 0);
            lone(&mut lease);
        }
        assert_eq!(lease.pinned(), None);
        for round in 0..3 {
            lease.repin(&fallback, true, 0);
            assert_eq!(lease.pinned(), Some(UNICAST), "{round}");
            lone(&mut lease);
            own.send(b"elsewhere", 9, &[other.address()]);
            let (mut reader, mut woken) = (FallbackReader::new(), Woken::default());
            while reader.inbox.is_empty() {
                assert_eq!(fallback.wait().keys(), [OTHERS]);
                woken = reader.read(&watch, &sockets);
            }
            assert!(reader.inbox[0].by_multicast && reader.inbox[0].datagram == "elsewhere");
            assert_eq!(woken, Woken::default());
            wakeup.signal();
            assert_eq!(fallback.wait().keys(), [OTHERS]);
            assert!(reader.read(&watch, &sockets).signalled);
            wakeup.clear();
        }
        // Nothing is lost by unpinning, and the fallback thread has nothing left to watch.
        other.send(b"x", 1, &[own.address()]);
        lease.repin(&fallback, false, 0);
        lease.wait(Duration::ZERO);
        assert_eq!((lease.pinned(), lease.inbox.len()), (None, 1));
        wakeup.signal();
        assert!(fallback.look().keys().is_empty());
    }

    #[test]
    fn a_pinned_lease_stops_coalescing_while_datagrams_come_alone_and_loses_none() {
        let fallback = Watch::new().unwrap();
        let mut lease = IoLease::new(Arc::new(Watch::new().unwrap()));
        let sockets = Arc::new(sockets(UNICAST..UNICAST + 2));
        let (own, other) = (&sockets[&UNICAST], &sockets[&LISTENERS]);
        lease.set_sockets(&sockets, &fallback);
        let comes = |lease: &mut IoLease, run: &[u8]| {
            let sent = run.len().div_ceil(100);
            assert_eq!(other.send(run, 100, &[own.address()]), 0);
            while lease.inbox.len() < sent {
                lease.wait(Duration::ZERO);
            }
            assert!(lease.inbox.drain(..).map(|received| received.datagram).eq(run.chunks(100)));
        };
        // What has arrived before the wait may have been coalesced.
        let comes_to_rest = |lease: &mut IoLease| {
            (0..100).for_each(|n| comes(lease, &[n]));
            lease.wait(Duration::ZERO);
            assert!(own.is_uncoalesced());
        };
        for _ in 0..3 {
            while lease.pinned().is_none() {
                comes(&mut lease, &[1]);
                lease.repin(&fallback, true, 0);
            }
            comes_to_rest(&mut lease);
            (0..100).for_each(|n| comes(&mut lease, &[n; 250]));
            comes_to_rest(&mut lease);
            lease.repin(&fallback, false, 0);
            assert!(!own.is_uncoalesced());
        }
    }

    #[test]
    fn a_lease_pinned_to_a_listener_lets_it_coalesce_when_runs_are_sent() {
        let fallback = Watch::new().unwrap();
        let mut lease = IoLease::new(Arc::new(Watch::new().unwrap()));
        let sockets = Arc::new(sockets(UNICAST..UNICAST + 3));
        let (own, listener, other) = (&sockets[&UNICAST], &sockets[&LISTENERS], &sockets[&(LISTENERS + 1)]);
        lease.set_sockets(&sockets, &fallback);
        let come = |lease: &mut IoLease| {
            for _ in 0..100 {
                own.send(b"x", 1, &[listener.address()]);
                lease.repin(&fallback, true, 0);
                lease.wait(Duration::ZERO);
            }
            lease.wait(Duration::ZERO);
            listener.is_uncoalesced()
        };
        assert!(come(&mut lease));
        own.send(b"run", 1, &[other.address()]);
        lease.wait(Duration::ZERO);
        assert_eq!(listener.is_uncoalesced(), !own.segments());
        assert!(come(&mut lease));
    }

    #[test]
    fn a_lease_unpins_when_its_socket_goes_when_nothing_comes_and_when_much_comes_from_elsewhere() {
        let fallback = Watch::new().unwrap();
        let mut lease = IoLease::new(Arc::new(Watch::new().unwrap()));
        let all = sockets(UNICAST..UNICAST + 3);
        let mut fewer = all.clone();
        let gone = fewer.remove(&LISTENERS).unwrap();
        let convince = |lease: &mut IoLease| {
            lease.set_sockets(&Arc::new(all.clone()), &fallback);
            for _ in 0..10_000 {
                lease.repin(&fallback, true, 0);
                if lease.pinned().is_some() {
                    break;
                }
                all[&UNICAST].send(b"x", 1, &[gone.address()]);
                lease.wait(Duration::ZERO);
            }
            assert_eq!(lease.pinned(), Some(LISTENERS));
        };
        convince(&mut lease);
        lease.set_sockets(&Arc::new(fewer.clone()), &fallback);
        assert_eq!(lease.pinned(), None);
        convince(&mut lease);
        lease.wait(Duration::ZERO);
        lease.repin(&fallback, true, 0);
        assert_eq!(lease.pinned(), None);
        convince(&mut lease);
        lease.repin(&fallback, true, 1000);
        assert_eq!(lease.pinned(), None);
    }
}

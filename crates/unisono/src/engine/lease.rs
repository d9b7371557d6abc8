//! The I/O lease: whoever has it waits for the sockets and reads them, on behalf of everybody.

use super::pinned::PinnedSocket;
use bytes::BytesMut;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use unisono_udp::{Ready, Receiver, Socket, Watch};

/// Sockets by the keys under which they are waited for: the unicast socket by its own, listeners by any from
/// [`LISTENERS`] on that none had before.
pub(crate) type Sockets = BTreeMap<u64, Arc<Socket>>;

/// The key of the wakeup, in the watch over the sockets.
pub(crate) const WAKEUP: u64 = 0;
/// The key of the unicast socket; the others listen to multicast addresses.
pub(crate) const UNICAST: u64 = 1;
/// The first key of a listener.
pub(crate) const LISTENERS: u64 = 2;
/// The key of the watch over the sockets, in the background thread's own.
pub(crate) const OTHERS: u64 = 0;
/// Datagrams after which what was received is handled before more is.
const INBOX_MAX: usize = 1024;

/// A datagram as it came.
pub(crate) struct Received {
    pub(crate) from: SocketAddr,
    pub(crate) by_multicast: bool,
    pub(crate) datagram: BytesMut,
}

/// What ended a wait, beside datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Woken {
    /// The wakeup rang.
    pub(crate) rang: bool,
    /// The watch's alarm went off.
    pub(crate) alarmed: bool,
}

/// What it takes to wait for datagrams. It is owned by the thread that waits, so that nothing is locked
/// meanwhile.
pub(crate) struct IoLease {
    receiver: Receiver,
    /// Over the wakeup and the sockets, but the one that the I/O lease is pinned on.
    watch: Arc<Watch>,
    sockets: Arc<Sockets>,
    pinned: PinnedSocket,
    /// Runs that the unicast socket had sent when last looked at.
    runs: u32,
    pub(crate) inbox: Vec<Received>,
}

impl IoLease {
    /// `watch` is to be over the wakeup, and over nothing else yet.
    pub(crate) fn new(watch: Arc<Watch>) -> IoLease {
        let (receiver, sockets) = (Receiver::new(), Arc::default());
        IoLease { receiver, watch, sockets, pinned: PinnedSocket::new(), runs: 0, inbox: Vec::new() }
    }

    /// From now on it waits for these sockets.
    pub(crate) fn attend(&mut self, sockets: &Arc<Sockets>, fallback: &Watch) {
        if self.pinned.on().is_some_and(|on| !sockets.contains_key(&on)) {
            self.widen(fallback, false);
        }
        for (_, gone) in self.sockets.iter().filter(|(key, _)| !sockets.contains_key(key)) {
            self.watch.remove(&**gone);
        }
        for (key, new) in sockets.iter().filter(|(key, _)| !self.sockets.contains_key(key)) {
            // Fails for want of memory, or beyond the system's limit: the socket is deaf then.
            let _ = self.watch.add(&**new, *key);
        }
        self.sockets = sockets.clone();
    }

    /// From now on it waits, or does not, for room to send from the unicast socket. Not while it is pinned.
    pub(crate) fn await_room(&mut self, awaited: bool) {
        if let Some(unicast) = self.sockets.get(&UNICAST) {
            self.watch.await_room(unicast, UNICAST, awaited);
        }
    }

    /// The socket that it is pinned on.
    pub(crate) fn pinned(&self) -> Option<u64> {
        self.pinned.on()
    }

    /// Focuses on one socket if everything comes from there and the I/O lease `may`; or widens, if that is not so any more.
    /// Meanwhile `elsewhere` datagrams came from the others. While it is pinned, `fallback` tells when there is something
    /// in what the I/O lease does not wait for.
    pub(crate) fn repin(&mut self, fallback: &Watch, may: bool, elsewhere: usize) {
        self.pinned.note_elsewhere(elsewhere);
        if self.pinned.on().is_some() && (!may || self.pinned.is_wrong()) {
            self.widen(fallback, may);
        } else if let Some(socket) = self.pinned.candidate().filter(|_| may) {
            self.narrow(fallback, socket);
        }
    }

    fn narrow(&mut self, fallback: &Watch, key: u64) {
        let Some(socket) = self.sockets.get(&key) else { return };
        // Where one of these fails it stays as it was.
        if fallback.add(&*self.watch, OTHERS).is_err() {
            return;
        }
        if socket.set_waiting(true).is_err() {
            fallback.remove(&*self.watch);
            return;
        }
        self.watch.remove(&**socket);
        self.pinned.set(key);
    }

    /// `wrong`: since it was pinned on what is not where everything comes from.
    fn widen(&mut self, fallback: &Watch, wrong: bool) {
        let Some((key, socket)) = self.pinned.on().and_then(|on| self.sockets.get_key_value(&on)) else {
            return;
        };
        // Neither fails for a socket that was attended before.
        let _ = socket.set_waiting(false);
        socket.set_apart(false);
        let _ = self.watch.add(&**socket, *key);
        fallback.remove(&*self.watch);
        self.pinned.clear(wrong);
    }

    /// Waits until datagrams come, the wakeup rings or the alarm goes off, and fills the inbox. Looks again and again for
    /// the first `spin` before it sleeps. Focused, it waits for datagrams only, and for [`Socket::WAIT_MAX`] at most.
    pub(crate) fn wait(&mut self, spin: Duration) -> Woken {
        if self.pinned.on().is_some() {
            self.wait_in_one();
            Woken::default()
        } else {
            self.wait_for_all(spin)
        }
    }

    fn wait_in_one(&mut self) {
        let IoLease { receiver, sockets, pinned, runs, inbox, .. } = self;
        let Some((key, socket)) = pinned.on().and_then(|on| sockets.get_key_value(&on)) else { return };
        let by_multicast = *key != UNICAST;
        // One's own runs by multicast come to one's own listener too, and would be split up there before it drops them.
        let sent = sockets.get(&UNICAST).map_or(0, |unicast| unicast.runs_sent());
        if by_multicast && *runs != sent {
            *runs = sent;
            pinned.note_run();
        }
        if socket.gets_apart() != pinned.is_apart() {
            socket.set_apart(pinned.is_apart());
        }
        let mut take = |from, datagram| inbox.push(Received { from, by_multicast, datagram });
        // An error is one datagram's (the socket lives on), or the want of memory.
        let datagrams = receiver.wait_and_receive(socket, &mut take).unwrap_or(0);
        if pinned.note_pinned(datagrams) {
            let more = receiver.receive_next(socket, &mut take).unwrap_or(0);
            pinned.note_look(more);
        }
    }

    fn wait_for_all(&mut self, spin: Duration) -> Woken {
        let ready = self.spun(spin);
        for key in ready.keys() {
            if let Some(socket) = self.sockets.get(key) {
                let before = self.inbox.len();
                read(&mut self.receiver, socket, *key, &mut self.inbox);
                self.pinned.note(*key, self.inbox.len() - before);
            }
        }
        Woken { rang: ready.keys().contains(&WAKEUP), alarmed: ready.alarmed() }
    }

    fn spun(&mut self, spin: Duration) -> Ready {
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

/// Reads what a pinned lease does not wait for, in its stead.
pub(crate) struct Deputy {
    receiver: Receiver,
    pub(crate) inbox: Vec<Received>,
}

impl Deputy {
    pub(crate) fn new() -> Deputy {
        Deputy { receiver: Receiver::new(), inbox: Vec::new() }
    }

    /// Fills the inbox with what there is in those of the sockets that the watch is over.
    pub(crate) fn read(&mut self, watch: &Watch, sockets: &Sockets) -> Woken {
        let ready = watch.look();
        for key in ready.keys() {
            if let Some(socket) = sockets.get(key) {
                self.empty(socket, *key != UNICAST);
            }
        }
        Woken { rang: ready.keys().contains(&WAKEUP), alarmed: ready.alarmed() }
    }

    /// The I/O lease may pinned on the socket meanwhile: nothing here may wait.
    fn empty(&mut self, socket: &Socket, by_multicast: bool) {
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
        lease.attend(&Arc::new(all.clone()), &fallback);
        let unicast = all[&UNICAST].clone();
        let gone = all.split_off(&(UNICAST + 200));
        lease.attend(&Arc::new(all.clone()), &fallback);
        all.extend(sockets(UNICAST + 300..UNICAST + 310));
        lease.attend(&Arc::new(all.clone()), &fallback);

        let everywhere: Vec<SocketAddr> = all.values().chain(gone.values()).map(|s| s.address()).collect();
        unicast.send(b"x", 1, &everywhere);
        while lease.inbox.len() < all.len() {
            assert_eq!(lease.wait(Duration::ZERO), Woken::default());
        }
        assert_eq!(lease.inbox.iter().filter(|received| !received.by_multicast).count(), 1);
        wakeup.ring();
        assert!(lease.wait(Duration::from_secs(60)).rang);
        assert_eq!(lease.inbox.len(), 210);
    }

    #[test]
    fn a_pinned_lease_waits_in_one_socket_and_a_deputy_reads_the_rest() {
        let (watch, fallback, wakeup) =
            (Arc::new(Watch::new().unwrap()), Watch::new().unwrap(), Wakeup::new().unwrap());
        watch.add(&wakeup, WAKEUP).unwrap();
        let mut lease = IoLease::new(watch.clone());
        let sockets = Arc::new(sockets(UNICAST..UNICAST + 3));
        let (own, other) = (&sockets[&UNICAST], &sockets[&LISTENERS]);
        lease.attend(&sockets, &fallback);
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
            let (mut deputy, mut woken) = (Deputy::new(), Woken::default());
            while deputy.inbox.is_empty() {
                assert_eq!(fallback.wait().keys(), [OTHERS]);
                woken = deputy.read(&watch, &sockets);
            }
            assert!(deputy.inbox[0].by_multicast && deputy.inbox[0].datagram == "elsewhere");
            assert_eq!(woken, Woken::default());
            wakeup.ring();
            assert_eq!(fallback.wait().keys(), [OTHERS]);
            assert!(deputy.read(&watch, &sockets).rang);
            wakeup.silence();
        }
        // Nothing is lost when it widens, and the fallback has nothing to see to any more.
        other.send(b"x", 1, &[own.address()]);
        lease.repin(&fallback, false, 0);
        lease.wait(Duration::ZERO);
        assert_eq!((lease.pinned(), lease.inbox.len()), (None, 1));
        wakeup.ring();
        assert!(fallback.look().keys().is_empty());
    }

    #[test]
    fn a_pinned_lease_gets_datagrams_apart_while_they_come_alone_and_loses_none() {
        let fallback = Watch::new().unwrap();
        let mut lease = IoLease::new(Arc::new(Watch::new().unwrap()));
        let sockets = Arc::new(sockets(UNICAST..UNICAST + 2));
        let (own, other) = (&sockets[&UNICAST], &sockets[&LISTENERS]);
        lease.attend(&sockets, &fallback);
        let comes = |lease: &mut IoLease, run: &[u8]| {
            let sent = run.len().div_ceil(100);
            assert_eq!(other.send(run, 100, &[own.address()]), 0);
            while lease.inbox.len() < sent {
                lease.wait(Duration::ZERO);
            }
            assert!(lease.inbox.drain(..).map(|received| received.datagram).eq(run.chunks(100)));
        };
        // What lies there when it goes to wait may have been coalesced.
        let comes_to_rest = |lease: &mut IoLease| {
            (0..100).for_each(|n| comes(lease, &[n]));
            lease.wait(Duration::ZERO);
            assert!(own.gets_apart());
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
            assert!(!own.gets_apart());
        }
    }

    #[test]
    fn a_lease_pinned_on_a_listener_leaves_it_to_coalesce_when_runs_are_sent() {
        let fallback = Watch::new().unwrap();
        let mut lease = IoLease::new(Arc::new(Watch::new().unwrap()));
        let sockets = Arc::new(sockets(UNICAST..UNICAST + 3));
        let (own, listener, other) = (&sockets[&UNICAST], &sockets[&LISTENERS], &sockets[&(LISTENERS + 1)]);
        lease.attend(&sockets, &fallback);
        let come = |lease: &mut IoLease| {
            for _ in 0..100 {
                own.send(b"x", 1, &[listener.address()]);
                lease.repin(&fallback, true, 0);
                lease.wait(Duration::ZERO);
            }
            lease.wait(Duration::ZERO);
            listener.gets_apart()
        };
        assert!(come(&mut lease));
        own.send(b"run", 1, &[other.address()]);
        lease.wait(Duration::ZERO);
        assert_eq!(listener.gets_apart(), !own.segments());
        assert!(come(&mut lease));
    }

    #[test]
    fn a_lease_widens_when_its_socket_goes_when_nothing_comes_and_when_much_comes_from_elsewhere() {
        let fallback = Watch::new().unwrap();
        let mut lease = IoLease::new(Arc::new(Watch::new().unwrap()));
        let all = sockets(UNICAST..UNICAST + 3);
        let mut fewer = all.clone();
        let gone = fewer.remove(&LISTENERS).unwrap();
        let convince = |lease: &mut IoLease| {
            lease.attend(&Arc::new(all.clone()), &fallback);
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
        lease.attend(&Arc::new(fewer.clone()), &fallback);
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

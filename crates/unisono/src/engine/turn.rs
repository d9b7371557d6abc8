//! The rules by which the I/O lease passes between threads. There is no thread in this module.

use super::lease::{IoLease, Sockets};
use super::park::Parker;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use unisono_core::Time;
use unisono_udp::Watch;

/// Time for which the lease stays free before the fallback thread takes it.
const VACANCY_MAX: Duration = Duration::from_millis(2);
/// Maximum of that time. It doubles each time an application thread took the lease in time: a check costs more than a
/// message.
const VACANCY_USUAL_MAX: Duration = Duration::from_millis(8);
/// Time for which the lease may stay free while threads wait for what only its holder can bring.
const VACANCY_AWAITED_MAX: Duration = Duration::from_micros(200);
/// Usual time for which the lease is free, in nanoseconds, below which waking a thread for it is not worth the cost.
const VACANCY_SHORT_NS: u64 = 50_000;

/// The lease while no thread holds it, and what is known of its holder.
pub(crate) struct Turn {
    /// `None` while a thread holds it.
    lease: Option<Box<IoLease>>,
    /// The sockets that the lease holder waits for.
    sockets: Arc<Sockets>,
    /// The holder also waits until the unicast socket can send again.
    awaits_writable: bool,
    /// The holder while it sleeps.
    sleeper: Option<Sleeper>,
    /// Time for which the alarm of the watch over the sockets is set.
    pub(crate) watch_alarm_at: Time,
    /// Number of datagrams that the fallback thread has read for a pinned lease, until the holder takes note.
    elsewhere: usize,
    held_by_fallback: bool,
    /// Time for which the fallback thread's alarm is set.
    fallback_alarm_at: Option<Time>,
    released_at: Time,
    /// Time for which the lease may stay free now.
    vacancy_max: Duration,
    /// Average time for which the lease is free, in nanoseconds.
    usual_vacancy_ns: u64,
    /// Threads that wait for something and would take the lease.
    claimants: VecDeque<Arc<Parker>>,
    /// Tasks wait. They never take the lease.
    tasks_wait: bool,
}

/// A lease holder that sleeps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sleeper {
    /// The slot in which it waits for something; `None` for the fallback thread.
    pub(crate) slot: Option<usize>,
    /// Another slot in which it waits for something.
    beside: Option<usize>,
    /// Time at which it wants to wake up at the latest.
    pub(crate) until: Time,
    /// Key of the socket in which it waits, if one is pinned.
    pinned: Option<u64>,
    /// There is something for it to see.
    wakeup_requested: bool,
    /// A thread is waking it already.
    wakeup_sent: bool,
}

impl Sleeper {
    pub(crate) fn new(slot: Option<usize>, until: Time) -> Sleeper {
        Sleeper { slot, beside: None, until, pinned: None, wakeup_requested: false, wakeup_sent: false }
    }

    /// Returns the same sleeper, which also waits for something in the slot `beside`.
    pub(crate) fn also_in(self, beside: usize) -> Sleeper {
        Sleeper { beside: Some(beside), ..self }
    }

    /// True if it waits for something in this slot.
    pub(crate) fn waits_in(&self, index: usize) -> bool {
        self.slot == Some(index) || self.beside == Some(index)
    }

    /// True if it waits in a pinned socket.
    #[cfg(test)]
    pub(crate) fn is_pinned(&self) -> bool {
        self.pinned.is_some()
    }
}

/// How to wake a sleeping lease holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WakeupKind {
    /// By the wakeup, which is an eventfd.
    Eventfd,
    /// By a wakeup datagram to the socket with this key.
    Datagram(u64),
}

/// What to do so that a thread takes a free lease.
#[derive(Debug)]
pub(crate) enum Next {
    /// Nothing: a thread holds it, or will take it.
    Nothing,
    /// Wake this thread to take it.
    Wake(Arc<Parker>),
    /// Set the fallback thread's alarm to go off after this time.
    Alarm(Duration),
}

impl Turn {
    pub(crate) fn new(lease: IoLease) -> Turn {
        Turn {
            sockets: Arc::default(),
            awaits_writable: false,
            lease: Some(Box::new(lease)),
            sleeper: None,
            watch_alarm_at: Time::NEVER,
            elsewhere: 0,
            held_by_fallback: false,
            fallback_alarm_at: None,
            released_at: Time::ZERO,
            vacancy_max: VACANCY_MAX,
            usual_vacancy_ns: 0,
            claimants: VecDeque::new(),
            tasks_wait: false,
        }
    }

    /// Takes the lease, if it is free.
    pub(crate) fn take(&mut self, now: Time, by_fallback: bool) -> Option<Box<IoLease>> {
        let lease = self.lease.take()?;
        self.held_by_fallback = by_fallback;
        let vacancy_ns = now.since(self.released_at).min(VACANCY_MAX).as_nanos() as u64;
        self.usual_vacancy_ns = (3 * self.usual_vacancy_ns + vacancy_ns) / 4;
        Some(lease)
    }

    /// Releases the lease. The caller has to act on [`Turn::next`] afterwards.
    pub(crate) fn release(&mut self, now: Time, lease: Box<IoLease>) {
        self.lease = Some(lease);
        self.released_at = now;
        self.held_by_fallback = false;
    }

    /// Notes that the lease holder goes to sleep and waits for these sockets; also until the unicast socket can send
    /// again, if `send_blocked`. If `may_pin`, it may wait in one socket only, and `fallback` becomes ready for the
    /// others.
    pub(crate) fn begin_sleep(
        &mut self,
        lease: &mut IoLease,
        (sockets, send_blocked): (&Arc<Sockets>, bool),
        fallback: &Watch,
        may_pin: bool,
        sleeper: Sleeper,
    ) {
        if !Arc::ptr_eq(&self.sockets, sockets) {
            if lease.set_sockets(sockets, fallback) {
                self.awaits_writable = false;
            }
            self.sockets = sockets.clone();
        }
        lease.repin(fallback, may_pin && !send_blocked, std::mem::take(&mut self.elsewhere));
        if self.awaits_writable != send_blocked {
            lease.await_writable(send_blocked);
            self.awaits_writable = send_blocked;
        }
        self.sleeper = Some(Sleeper { pinned: lease.pinned(), ..sleeper });
    }

    /// Notes that the lease holder is awake again.
    pub(crate) fn end_sleep(&mut self) {
        self.sleeper = None;
    }

    /// Returns the lease holder, if it sleeps.
    pub(crate) fn sleeper(&self) -> Option<&Sleeper> {
        self.sleeper.as_ref()
    }

    /// Notes that there is something for the sleeping holder to see.
    pub(crate) fn request_wakeup(&mut self) {
        if let Some(sleeper) = &mut self.sleeper {
            sleeper.wakeup_requested = true;
        }
    }

    /// Returns how to wake the sleeping holder, if that was requested or its time has come, and no thread is waking it
    /// yet.
    pub(crate) fn next_wakeup(&mut self, now: Time) -> Option<WakeupKind> {
        let sleeper = self.sleeper.as_mut().filter(|sleeper| !sleeper.wakeup_sent)?;
        sleeper.wakeup_sent = sleeper.wakeup_requested || sleeper.until <= now;
        sleeper.wakeup_sent.then(|| sleeper.pinned.map_or(WakeupKind::Eventfd, WakeupKind::Datagram))
    }

    /// Notes that the wakeup was cleared: if another thread did that, the sleeping holder may not have seen the signal.
    pub(crate) fn note_cleared(&mut self) {
        if let Some(sleeper) = &mut self.sleeper {
            sleeper.wakeup_sent = false;
        }
    }

    /// Notes that the fallback thread has read this number of datagrams for a pinned lease.
    pub(crate) fn note_elsewhere(&mut self, datagrams: usize) {
        self.elsewhere += datagrams;
    }

    /// Returns the sockets that the lease holder waits for.
    pub(crate) fn sockets(&self) -> &Arc<Sockets> {
        &self.sockets
    }

    /// True if the lease holder waits for other sockets than these, or does not wait to send although sending is
    /// blocked.
    pub(crate) fn is_stale(&self, sockets: &Arc<Sockets>, send_blocked: bool) -> bool {
        self.lease.is_none()
            && (!Arc::ptr_eq(&self.sockets, sockets) || (send_blocked && !self.awaits_writable))
    }

    /// True if no thread holds the lease.
    pub(crate) fn is_vacant(&self) -> bool {
        self.lease.is_some()
    }

    pub(crate) fn held_by_fallback(&self) -> bool {
        self.held_by_fallback
    }

    /// Notes that a thread waits for something.
    pub(crate) fn claim(&mut self, parker: Arc<Parker>) {
        self.claimants.push_back(parker);
    }

    /// Notes that it waits no longer.
    pub(crate) fn unclaim(&mut self, parker: &Arc<Parker>) {
        self.claimants.retain(|claimant| !Arc::ptr_eq(claimant, parker));
    }

    /// True if a thread waits that has not been woken yet.
    pub(crate) fn claimed(&self) -> bool {
        self.claimants.iter().any(|claimant| !claimant.woken())
    }

    /// Notes that a task waits for something.
    pub(crate) fn await_as_task(&mut self) {
        self.tasks_wait = true;
    }

    /// Notes that all waiting tasks were woken. A task that has to wait on reports again.
    pub(crate) fn tasks_woken(&mut self) {
        self.tasks_wait = false;
    }

    /// Returns what to do so that a thread takes the lease, if it is free. `at_once`: its last holder will not return
    /// soon.
    pub(crate) fn next(&mut self, now: Time, at_once: bool) -> Next {
        if self.lease.is_none() {
            return Next::Nothing;
        }
        if (at_once || self.usual_vacancy_ns >= VACANCY_SHORT_NS)
            && let Some(claimant) = self.claimants.iter().find(|claimant| !claimant.woken())
        {
            return Next::Wake(claimant.clone());
        }
        let due = self.due();
        if self.fallback_alarm_at.is_some_and(|alarm| alarm <= due.max(now)) {
            return Next::Nothing;
        }
        self.fallback_alarm_at = Some(due.max(now));
        Next::Alarm(due.since(now))
    }

    /// Notes that the fallback thread's alarm went off. Returns whether that thread has to take the lease now.
    pub(crate) fn alarmed(&mut self, now: Time) -> bool {
        self.fallback_alarm_at = None;
        let vacant = self.lease.is_some() && self.due() <= now;
        self.vacancy_max = if vacant { VACANCY_MAX } else { VACANCY_USUAL_MAX.min(2 * self.vacancy_max) };
        vacant
    }

    /// Returns when the fallback thread takes the lease if no application thread does.
    fn due(&self) -> Time {
        if self.tasks_wait {
            self.released_at
        } else if self.claimed() {
            self.released_at + VACANCY_AWAITED_MAX
        } else {
            self.released_at + self.vacancy_max
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use std::task::Waker;
    use unisono_udp::Socket;

    fn turn() -> Turn {
        Turn::new(IoLease::new(Arc::new(Watch::new().unwrap())))
    }

    fn at(micros: u64) -> Time {
        Time::from_nanos(micros * 1000)
    }

    /// Takes the lease and releases it.
    fn hold(turn: &mut Turn, from: u64, until: u64) {
        let lease = turn.take(at(from), false).unwrap();
        turn.release(at(until), lease);
    }

    /// A thread that waits, and what wakes it.
    fn claim(turn: &mut Turn) -> (Arc<Parker>, Waker) {
        let (parker, waker) = std::thread::spawn(Parker::mine).join().unwrap();
        turn.claim(parker.clone());
        (parker, waker.as_ref().clone())
    }

    #[test]
    fn leaving_sets_one_alarm_and_coming_back_costs_nothing() {
        let mut turn = turn();
        hold(&mut turn, 1000, 1010);
        assert!(matches!(turn.next(at(1010), false), Next::Alarm(after) if after == VACANCY_MAX));
        for round in 0..50 {
            hold(&mut turn, 1020 + round * 10, 1025 + round * 10);
            assert!(matches!(turn.next(at(1025 + round * 10), false), Next::Nothing));
        }
        // The alarm goes off too early, since the lease was taken meanwhile. It is set for the rest of a longer time.
        assert!(!turn.alarmed(at(3010)));
        assert!(
            matches!(turn.next(at(3010), false), Next::Alarm(after) if after == Duration::from_micros(2505))
        );
        assert!(!turn.alarmed(at(5514)));
        assert!(turn.alarmed(at(9515)));
    }

    #[test]
    fn a_lease_that_is_always_taken_in_time_is_looked_at_less_often_until_it_is_not() {
        let (mut turn, mut now) = (turn(), 1000);
        for expected_ms in [2, 4, 8, 8] {
            hold(&mut turn, now, now);
            assert!(
                matches!(turn.next(at(now), false), Next::Alarm(after) if after.as_millis() == expected_ms)
            );
            let lease = turn.take(at(now + 1), false).unwrap();
            now += 10_000;
            assert!(!turn.alarmed(at(now)));
            turn.release(at(now), lease);
        }
        turn.next(at(now), false);
        assert!(turn.alarmed(at(now + 8000)));
        hold(&mut turn, now + 9000, now + 9000);
        assert!(matches!(turn.next(at(now + 9000), false), Next::Alarm(after) if after == VACANCY_MAX));
    }

    #[test]
    fn an_alarm_finds_the_lease_taken_and_the_next_to_leave_sets_it_again() {
        let mut turn = turn();
        hold(&mut turn, 1000, 1010);
        turn.next(at(1010), false);
        let lease = turn.take(at(3000), false).unwrap();
        assert!(!turn.alarmed(at(3010)));
        assert!(matches!(turn.next(at(3010), false), Next::Nothing));
        turn.release(at(5000), lease);
        assert!(matches!(turn.next(at(5000), false), Next::Alarm(after) if after == 2 * VACANCY_MAX));
    }

    #[test]
    fn a_claimant_is_woken_when_the_lease_is_usually_free_for_long() {
        let mut turn = turn();
        for round in 1..10 {
            hold(&mut turn, round * 1000, round * 1000 + 10);
        }
        let (parker, waker) = claim(&mut turn);
        assert!(matches!(turn.next(at(9010), false), Next::Wake(woken) if Arc::ptr_eq(&woken, &parker)));
        waker.wake();
        // One wake is enough.
        assert!(matches!(turn.next(at(9010), false), Next::Alarm(_)));
        turn.unclaim(&parker);
        assert!(!turn.claimed());
    }

    #[test]
    fn a_claimant_is_left_alone_for_a_moment_when_the_lease_is_usually_taken_soon() {
        let mut turn = turn();
        for round in 100..200 {
            hold(&mut turn, round * 20, round * 20 + 10);
        }
        let (parker, _waker) = claim(&mut turn);
        assert!(matches!(turn.next(at(3990), false), Next::Alarm(after) if after == VACANCY_AWAITED_MAX));
        // The fallback thread, which releases the lease here, will not return.
        assert!(matches!(turn.next(at(3990), true), Next::Wake(woken) if Arc::ptr_eq(&woken, &parker)));
    }

    #[test]
    fn for_tasks_the_fallback_thread_takes_the_lease_at_once() {
        let mut turn = turn();
        hold(&mut turn, 1000, 1010);
        assert!(matches!(turn.next(at(1010), false), Next::Alarm(_)));
        turn.await_as_task();
        assert!(matches!(turn.next(at(1020), false), Next::Alarm(Duration::ZERO)));
        assert!(matches!(turn.next(at(1020), false), Next::Nothing));
        assert!(turn.alarmed(at(1021)));
    }

    #[test]
    fn a_sleeper_is_woken_once_on_request_or_at_its_time() {
        let (mut turn, fallback) = (turn(), Watch::new().unwrap());
        turn.request_wakeup();
        assert_eq!(turn.next_wakeup(at(100)), None, "no thread sleeps");
        let mut lease = turn.take(at(1), false).unwrap();
        let same = turn.sockets.clone();
        for called in [false, true] {
            turn.begin_sleep(&mut lease, (&same, false), &fallback, true, Sleeper::new(Some(3), at(100)));
            assert_eq!(turn.next_wakeup(at(99)), None);
            if called {
                turn.request_wakeup();
            }
            assert_eq!(turn.next_wakeup(at(if called { 99 } else { 100 })), Some(WakeupKind::Eventfd));
            assert_eq!(turn.next_wakeup(at(101)), None);
            turn.end_sleep();
            assert!(turn.sleeper().is_none());
        }
    }

    #[test]
    fn a_sleeper_is_stale_until_it_waits_for_what_the_engine_needs() {
        let (mut turn, fallback) = (turn(), Watch::new().unwrap());
        let mut lease = turn.take(at(1), false).unwrap();
        let (same, other) = (turn.sockets.clone(), Arc::default());
        assert!(!turn.is_stale(&same, false) && turn.is_stale(&other, false) && turn.is_stale(&same, true));
        turn.begin_sleep(&mut lease, (&other, true), &fallback, true, Sleeper::new(None, at(100)));
        assert!(!turn.is_stale(&other, true) && !turn.is_stale(&other, false));
    }

    #[test]
    fn a_pinned_sleeper_is_woken_by_a_datagram_and_a_blocked_one_is_not_pinned() {
        let (mut turn, fallback) = (turn(), Watch::new().unwrap());
        let (socket, sender) = (socket(), socket());
        let sockets = Arc::new(Sockets::from([(1, socket.clone())]));
        let mut lease = turn.take(at(1), false).unwrap();
        let sleep = |turn: &mut Turn, lease: &mut IoLease, send_blocked, may_pin| {
            let sleeper = Sleeper::new(None, at(100));
            turn.begin_sleep(lease, (&sockets, send_blocked), &fallback, may_pin, sleeper);
            turn.request_wakeup();
            (turn.next_wakeup(at(1)), lease.pinned())
        };
        for _ in 0..100 {
            sleep(&mut turn, &mut lease, false, false);
            sender.send(b"x", 1, &[socket.address()]);
            lease.wait(Duration::ZERO);
        }
        assert_eq!(sleep(&mut turn, &mut lease, true, true), (Some(WakeupKind::Eventfd), None));
        assert_eq!(sleep(&mut turn, &mut lease, false, true), (Some(WakeupKind::Datagram(1)), Some(1)));
        // `fallback` becomes ready for what the holder does not wait for.
        turn.watch_alarm_at = at(1);
        assert_eq!(sleep(&mut turn, &mut lease, false, false), (Some(WakeupKind::Eventfd), None));
    }

    fn socket() -> Arc<Socket> {
        Arc::new(Socket::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap())
    }
}

//! Whose turn it is to sit: the rules by which the I/O lease passes between threads, apart from any thread.

use super::lease::{IoLease, Sockets};
use super::park::Parker;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use unisono_core::Time;
use unisono_udp::Watch;

/// How long the I/O lease stays free before the background thread takes it.
const VACANCY_MAX: Duration = Duration::from_millis(2);
/// The same where it was taken in time again and again: to look costs more than a message does.
const VACANCY_USUAL_MAX: Duration = Duration::from_millis(8);
/// The same while threads wait for what only the one who sits can bring.
const VACANCY_AWAITED_MAX: Duration = Duration::from_micros(200);
/// A lease that is usually free for less than this is not worth waking a thread for.
const VACANCY_SHORT_NS: u64 = 50_000;

/// See the module.
pub(crate) struct Turn {
    /// Nothing while somebody sits.
    lease: Option<Box<IoLease>>,
    /// The sockets that whoever sits waits for.
    sockets: Arc<Sockets>,
    /// It waits for room to send too.
    awaits_room: bool,
    /// Who sits, and sleeps.
    sleeper: Option<Sleeper>,
    /// When the alarm of the watch over the sockets goes off.
    pub(crate) rings_at: Time,
    /// Datagrams that the background thread has read for a pinned lease, since it was last told.
    elsewhere: usize,
    background_sits: bool,
    /// When the alarm calls the background thread.
    alarm: Option<Time>,
    left_at: Time,
    /// How long it may stay free now.
    vacancy_max: Duration,
    /// How long the I/O lease is usually free: an average, in nanoseconds.
    usual_vacancy_ns: u64,
    /// Threads that wait for something, and would take the I/O lease.
    claimants: VecDeque<Arc<Parker>>,
    /// Tasks wait, which never sit.
    tasks_wait: bool,
}

/// Who sleeps on the I/O lease.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sleeper {
    /// It waits for something in this slot; the background thread for nothing.
    pub(crate) slot: Option<usize>,
    /// It wants to be up then, if not before.
    pub(crate) until: Time,
    /// It waits in this socket only.
    pinned: Option<u64>,
    /// There is something for it to see.
    called: bool,
    /// Somebody is waking it.
    roused: bool,
}

impl Sleeper {
    pub(crate) fn new(slot: Option<usize>, until: Time) -> Sleeper {
        Sleeper { slot, until, pinned: None, called: false, roused: false }
    }

    /// It waits in one socket only.
    #[cfg(test)]
    pub(crate) fn is_pinned(&self) -> bool {
        self.pinned.is_some()
    }
}

/// How to wake who sleeps on the I/O lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rouse {
    /// By the wakeup.
    Ring,
    /// By a wakeup datagram in this socket.
    Datagram(u64),
}

/// What to do about a free lease.
#[derive(Debug)]
pub(crate) enum Next {
    /// Nothing: somebody sits, or will.
    Nothing,
    /// Wake this one to take it.
    Wake(Arc<Parker>),
    /// Set the alarm, in so long.
    Alarm(Duration),
}

impl Turn {
    pub(crate) fn new(lease: IoLease) -> Turn {
        Turn {
            sockets: Arc::default(),
            awaits_room: false,
            lease: Some(Box::new(lease)),
            sleeper: None,
            rings_at: Time::NEVER,
            elsewhere: 0,
            background_sits: false,
            alarm: None,
            left_at: Time::ZERO,
            vacancy_max: VACANCY_MAX,
            usual_vacancy_ns: 0,
            claimants: VecDeque::new(),
            tasks_wait: false,
        }
    }

    /// Takes the I/O lease, if it is free.
    pub(crate) fn take(&mut self, now: Time, background: bool) -> Option<Box<IoLease>> {
        let lease = self.lease.take()?;
        self.background_sits = background;
        let vacancy_ns = now.since(self.left_at).min(VACANCY_MAX).as_nanos() as u64;
        self.usual_vacancy_ns = (3 * self.usual_vacancy_ns + vacancy_ns) / 4;
        Some(lease)
    }

    /// Leaves it. Somebody has to see to [`Turn::next`] then.
    pub(crate) fn leave(&mut self, now: Time, lease: Box<IoLease>) {
        self.lease = Some(lease);
        self.left_at = now;
        self.background_sits = false;
    }

    /// The one who sits goes to sleep, waiting for these sockets, and for room to send if that is lacking. It may wait in
    /// one of the sockets only, if it `may_pin` and `fallback` is told of the others.
    pub(crate) fn sleep(
        &mut self,
        lease: &mut IoLease,
        (sockets, lacks_room): (&Arc<Sockets>, bool),
        fallback: &Watch,
        may_pin: bool,
        sleeper: Sleeper,
    ) {
        if !Arc::ptr_eq(&self.sockets, sockets) {
            lease.attend(sockets, fallback);
            self.sockets = sockets.clone();
        }
        lease.repin(fallback, may_pin && !lacks_room, std::mem::take(&mut self.elsewhere));
        if self.awaits_room != lacks_room {
            lease.await_room(lacks_room);
            self.awaits_room = lacks_room;
        }
        self.sleeper = Some(Sleeper { pinned: lease.pinned(), ..sleeper });
    }

    /// The one who sits is up again.
    pub(crate) fn rise(&mut self) {
        self.sleeper = None;
    }

    /// Who sits, and sleeps.
    pub(crate) fn sleeper(&self) -> Option<&Sleeper> {
        self.sleeper.as_ref()
    }

    /// There is something for who sleeps to see.
    pub(crate) fn call(&mut self) {
        if let Some(sleeper) = &mut self.sleeper {
            sleeper.called = true;
        }
    }

    /// How to wake the one who sleeps, if it is called, or has slept long enough, and nobody is waking it yet.
    pub(crate) fn rouse(&mut self, now: Time) -> Option<Rouse> {
        let sleeper = self.sleeper.as_mut().filter(|sleeper| !sleeper.roused)?;
        sleeper.roused = sleeper.called || sleeper.until <= now;
        sleeper.roused.then(|| sleeper.pinned.map_or(Rouse::Ring, Rouse::Datagram))
    }

    /// The wakeup is silent again: if another thread silenced it, who sleeps may not have heard it.
    pub(crate) fn note_silence(&mut self) {
        if let Some(sleeper) = &mut self.sleeper {
            sleeper.roused = false;
        }
    }

    /// The background thread has read so many datagrams that a pinned lease does not wait for.
    pub(crate) fn note_elsewhere(&mut self, datagrams: usize) {
        self.elsewhere += datagrams;
    }

    /// The sockets that whoever sits waits for.
    pub(crate) fn sockets(&self) -> &Arc<Sockets> {
        &self.sockets
    }

    /// Somebody sits who waits for other sockets than these, or does not wait for room that is lacking.
    pub(crate) fn lacks(&self, sockets: &Arc<Sockets>, lacks_room: bool) -> bool {
        self.lease.is_none() && (!Arc::ptr_eq(&self.sockets, sockets) || (lacks_room && !self.awaits_room))
    }

    /// Nobody sits.
    pub(crate) fn is_vacant(&self) -> bool {
        self.lease.is_some()
    }

    pub(crate) fn background_sits(&self) -> bool {
        self.background_sits
    }

    /// A thread waits for something.
    pub(crate) fn claim(&mut self, parker: Arc<Parker>) {
        self.claimants.push_back(parker);
    }

    /// It waits no longer.
    pub(crate) fn unclaim(&mut self, parker: &Arc<Parker>) {
        self.claimants.retain(|claimant| !Arc::ptr_eq(claimant, parker));
    }

    /// A thread waits that nobody has woken yet.
    pub(crate) fn claimed(&self) -> bool {
        self.claimants.iter().any(|claimant| !claimant.woken())
    }

    /// A task waits for something.
    pub(crate) fn await_as_task(&mut self) {
        self.tasks_wait = true;
    }

    /// Waiting tasks may have what they waited for; those that do not will say so again.
    pub(crate) fn tasks_woken(&mut self) {
        self.tasks_wait = false;
    }

    /// What to do about the I/O lease if it is free. `at_once`: its last owner will not be back soon.
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
        if self.alarm.is_some_and(|alarm| alarm <= due.max(now)) {
            return Next::Nothing;
        }
        self.alarm = Some(due.max(now));
        Next::Alarm(due.since(now))
    }

    /// The alarm went off. Whether the background thread is to take the I/O lease now.
    pub(crate) fn alarmed(&mut self, now: Time) -> bool {
        self.alarm = None;
        let vacant = self.lease.is_some() && self.due() <= now;
        self.vacancy_max = if vacant { VACANCY_MAX } else { VACANCY_USUAL_MAX.min(2 * self.vacancy_max) };
        vacant
    }

    /// When the background thread is to take the I/O lease if nobody else does.
    fn due(&self) -> Time {
        if self.tasks_wait {
            self.left_at
        } else if self.claimed() {
            self.left_at + VACANCY_AWAITED_MAX
        } else {
            self.left_at + self.vacancy_max
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

    /// Sits down and leaves again.
    fn sit(turn: &mut Turn, from: u64, until: u64) {
        let lease = turn.take(at(from), false).unwrap();
        turn.leave(at(until), lease);
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
        sit(&mut turn, 1000, 1010);
        assert!(matches!(turn.next(at(1010), false), Next::Alarm(after) if after == VACANCY_MAX));
        for round in 0..50 {
            sit(&mut turn, 1020 + round * 10, 1025 + round * 10);
            assert!(matches!(turn.next(at(1025 + round * 10), false), Next::Nothing));
        }
        // It goes off too early, since the I/O lease was taken meanwhile, and is set for the rest, and longer.
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
            sit(&mut turn, now, now);
            assert!(
                matches!(turn.next(at(now), false), Next::Alarm(after) if after.as_millis() == expected_ms)
            );
            let lease = turn.take(at(now + 1), false).unwrap();
            now += 10_000;
            assert!(!turn.alarmed(at(now)));
            turn.leave(at(now), lease);
        }
        turn.next(at(now), false);
        assert!(turn.alarmed(at(now + 8000)));
        sit(&mut turn, now + 9000, now + 9000);
        assert!(matches!(turn.next(at(now + 9000), false), Next::Alarm(after) if after == VACANCY_MAX));
    }

    #[test]
    fn an_alarm_finds_the_lease_taken_and_the_next_to_leave_sets_it_again() {
        let mut turn = turn();
        sit(&mut turn, 1000, 1010);
        turn.next(at(1010), false);
        let lease = turn.take(at(3000), false).unwrap();
        assert!(!turn.alarmed(at(3010)));
        assert!(matches!(turn.next(at(3010), false), Next::Nothing));
        turn.leave(at(5000), lease);
        assert!(matches!(turn.next(at(5000), false), Next::Alarm(after) if after == 2 * VACANCY_MAX));
    }

    #[test]
    fn who_waits_is_woken_when_the_lease_is_usually_free_for_long() {
        let mut turn = turn();
        for round in 1..10 {
            sit(&mut turn, round * 1000, round * 1000 + 10);
        }
        let (parker, waker) = claim(&mut turn);
        assert!(matches!(turn.next(at(9010), false), Next::Wake(woken) if Arc::ptr_eq(&woken, &parker)));
        waker.wake();
        // Woken once is enough.
        assert!(matches!(turn.next(at(9010), false), Next::Alarm(_)));
        turn.unclaim(&parker);
        assert!(!turn.claimed());
    }

    #[test]
    fn who_waits_is_left_alone_for_a_moment_when_the_lease_is_usually_taken_soon() {
        let mut turn = turn();
        for round in 100..200 {
            sit(&mut turn, round * 20, round * 20 + 10);
        }
        let (parker, _waker) = claim(&mut turn);
        assert!(matches!(turn.next(at(3990), false), Next::Alarm(after) if after == VACANCY_AWAITED_MAX));
        // The background thread that gives the I/O lease up will not be back.
        assert!(matches!(turn.next(at(3990), true), Next::Wake(woken) if Arc::ptr_eq(&woken, &parker)));
    }

    #[test]
    fn for_tasks_the_background_thread_sits_at_once() {
        let mut turn = turn();
        sit(&mut turn, 1000, 1010);
        assert!(matches!(turn.next(at(1010), false), Next::Alarm(_)));
        turn.await_as_task();
        assert!(matches!(turn.next(at(1020), false), Next::Alarm(Duration::ZERO)));
        assert!(matches!(turn.next(at(1020), false), Next::Nothing));
        assert!(turn.alarmed(at(1021)));
    }

    #[test]
    fn a_sleeper_is_roused_once_for_what_it_is_to_see_or_at_its_time() {
        let (mut turn, fallback) = (turn(), Watch::new().unwrap());
        turn.call();
        assert_eq!(turn.rouse(at(100)), None, "nobody sleeps");
        let mut lease = turn.take(at(1), false).unwrap();
        let same = turn.sockets.clone();
        for called in [false, true] {
            turn.sleep(&mut lease, (&same, false), &fallback, true, Sleeper::new(Some(3), at(100)));
            assert_eq!(turn.rouse(at(99)), None);
            if called {
                turn.call();
            }
            assert_eq!(turn.rouse(at(if called { 99 } else { 100 })), Some(Rouse::Ring));
            assert_eq!(turn.rouse(at(101)), None);
            turn.rise();
            assert!(turn.sleeper().is_none());
        }
    }

    #[test]
    fn a_sleeper_is_called_for_what_it_does_not_wait_for() {
        let (mut turn, fallback) = (turn(), Watch::new().unwrap());
        let mut lease = turn.take(at(1), false).unwrap();
        let (same, other) = (turn.sockets.clone(), Arc::default());
        assert!(!turn.lacks(&same, false) && turn.lacks(&other, false) && turn.lacks(&same, true));
        turn.sleep(&mut lease, (&other, true), &fallback, true, Sleeper::new(None, at(100)));
        assert!(!turn.lacks(&other, true) && !turn.lacks(&other, false));
    }

    #[test]
    fn a_pinned_sleeper_is_woken_and_what_lacks_room_or_may_not_pins_on_nothing() {
        let (mut turn, fallback) = (turn(), Watch::new().unwrap());
        let (socket, sender) = (socket(), socket());
        let sockets = Arc::new(Sockets::from([(1, socket.clone())]));
        let mut lease = turn.take(at(1), false).unwrap();
        let sleep = |turn: &mut Turn, lease: &mut IoLease, lacks_room, may_pin| {
            let sleeper = Sleeper::new(None, at(100));
            turn.sleep(lease, (&sockets, lacks_room), &fallback, may_pin, sleeper);
            turn.call();
            (turn.rouse(at(1)), lease.pinned())
        };
        for _ in 0..100 {
            sleep(&mut turn, &mut lease, false, false);
            sender.send(b"x", 1, &[socket.address()]);
            lease.wait(Duration::ZERO);
        }
        assert_eq!(sleep(&mut turn, &mut lease, true, true), (Some(Rouse::Ring), None));
        assert_eq!(sleep(&mut turn, &mut lease, false, true), (Some(Rouse::Datagram(1)), Some(1)));
        // The fallback is told of what the I/O lease does not wait for.
        turn.rings_at = at(1);
        assert_eq!(sleep(&mut turn, &mut lease, false, false), (Some(Rouse::Ring), None));
    }

    fn socket() -> Arc<Socket> {
        Arc::new(Socket::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap())
    }
}

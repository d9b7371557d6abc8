//! Sleeping until there is something to do, and waking a thread that sleeps.

use crate::socket::Socket;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::OwnedFd;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// Maximum number of keys that one wait returns. The next wait returns the others.
const READY_MAX: usize = 16;
/// Key of a watch's own alarm.
const ALARM: u64 = u64::MAX;

/// Waits for any number of sockets and wakeups, an alarm, and other watches at once.
///
/// The set is prepared once (epoll), so a wait is one system call however large the set is. Threads may add to it,
/// remove from it, set the alarm and wait at the same time. What is ready wakes one of the threads that wait.
#[derive(Debug)]
pub struct Watch {
    set: OwnedFd,
    alarm: Alarm,
}

impl Watch {
    /// Makes a watch over nothing yet.
    pub fn new() -> io::Result<Watch> {
        let watch = Watch { set: epoll::create(CreateFlags::CLOEXEC)?, alarm: Alarm::new()? };
        watch.add(watch.alarm.wakeup(), ALARM)?;
        Ok(watch)
    }

    /// From now on a wait also ends when `what` has something to receive, is signalled, or has something ready. `key`
    /// names it then, and must be less than `u64::MAX`.
    pub fn add(&self, what: &impl AsFd, key: u64) -> io::Result<()> {
        Ok(epoll::add(&self.set, what, EventData::new_u64(key), EventFlags::IN)?)
    }

    /// Ends what [`Watch::add`] began.
    pub fn remove(&self, what: &impl AsFd) {
        // Fails only for what was never added.
        let _ = epoll::delete(&self.set, what);
    }

    /// Sets whether a wait also ends when this socket, which was added with this key, has space in its send buffer.
    pub fn await_writable(&self, socket: &Socket, key: u64, awaited: bool) {
        let flags = if awaited { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
        // Fails only for what was never added.
        let _ = epoll::modify(&self.set, socket, EventData::new_u64(key), flags);
    }

    /// Makes the alarm go off after this time. It ends one wait. Replaces the time that was set before.
    pub fn set_alarm(&self, after: Duration) {
        self.alarm.set(after);
    }

    /// Returns what is ready now.
    pub fn look(&self) -> Ready {
        self.ready(Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))
    }

    /// Sleeps until something is ready or the alarm goes off. May also return early without a reason.
    pub fn wait(&self) -> Ready {
        self.ready(None)
    }

    fn ready(&self, timeout: Option<&Timespec>) -> Ready {
        let mut room = [const { MaybeUninit::uninit() }; READY_MAX];
        let mut ready = Ready { keys: [0; READY_MAX], count: 0, alarmed: false };
        // The only errors are an interruption, which is a return without a reason, and mistakes of ours.
        let Ok((events, _)) = epoll::wait(&self.set, &mut room, timeout) else { return ready };
        for event in events {
            if event.data.u64() == ALARM {
                ready.alarmed = true;
                self.alarm.wakeup().clear();
                continue;
            }
            ready.keys[ready.count] = event.data.u64();
            ready.count += 1;
        }
        ready
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }
}

/// What was ready when a wait ended.
#[derive(Clone, Copy, Debug)]
pub struct Ready {
    keys: [u64; READY_MAX],
    count: usize,
    alarmed: bool,
}

impl Ready {
    /// Returns the keys of what is ready.
    pub fn keys(&self) -> &[u64] {
        &self.keys[..self.count]
    }

    /// True if the alarm went off. It is cleared already.
    pub fn alarmed(&self) -> bool {
        self.alarmed
    }
}

impl Socket {
    /// Sleeps until there is something to receive, or until `timeout` has passed, if there is one. Returns whether
    /// there is something. May also return early without a reason.
    pub fn wait(&self, timeout: Option<Duration>) -> bool {
        sleep_for(self.as_fd(), timeout)
    }
}

fn sleep_for(what: BorrowedFd<'_>, timeout: Option<Duration>) -> bool {
    let timeout = timeout.map(timespec);
    matches!(poll(&mut [PollFd::from_borrowed_fd(what, PollFlags::IN)], timeout.as_ref()), Ok(1..))
}

pub(crate) fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}

/// Wakes a thread that waits for it, now or at its next wait (an eventfd).
#[derive(Debug)]
pub struct Wakeup(OwnedFd);

impl Wakeup {
    /// Makes a wakeup that is not signalled.
    pub fn new() -> io::Result<Wakeup> {
        Ok(Wakeup(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Wakes the threads that wait for this wakeup, until it is cleared.
    pub fn signal(&self) {
        // Fails only after 2^64 signals.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Ends the signal.
    pub fn clear(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }

    /// Sleeps until the wakeup is signalled, or returns at once if it is. May also return early without a reason.
    pub fn wait(&self) {
        sleep_for(self.as_fd(), None);
    }
}

impl AsFd for Wakeup {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A wakeup that is signalled at a set time (a timerfd). Any thread may set it without waking the thread that waits for
/// it. The time runs on while the machine is suspended.
#[derive(Debug)]
pub struct Alarm(Wakeup);

impl Alarm {
    /// Makes an alarm that is not set.
    pub fn new() -> io::Result<Alarm> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Alarm(Wakeup(timerfd_create(TimerfdClockId::Boottime, flags)?)))
    }

    /// Makes it go off after this time, at once if it is zero. Replaces the time that was set before, and clears the
    /// wakeup.
    pub fn set(&self, after: Duration) {
        self.program(timespec(after.max(Duration::from_nanos(1))));
    }

    /// Returns the wakeup to wait for and to clear.
    pub fn wakeup(&self) -> &Wakeup {
        &self.0
    }

    fn program(&self, it_value: Timespec) {
        let once = Itimerspec { it_interval: timespec(Duration::ZERO), it_value };
        // Fails only for invalid times.
        let _ = timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &once);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use std::sync::Arc;
    use std::time::Instant;

    fn bind() -> Socket {
        Socket::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap()
    }

    #[test]
    fn a_wakeup_signalled_before_the_wait_ends_it_until_cleared() {
        let (watch, wakeup) = (Watch::new().unwrap(), Wakeup::new().unwrap());
        watch.add(&wakeup, 3).unwrap();
        assert!(watch.look().keys().is_empty());
        wakeup.signal();
        wakeup.signal();
        wakeup.wait();
        assert_eq!(watch.wait().keys(), [3]);
        assert_eq!(watch.wait().keys(), [3]);
        wakeup.clear();
        assert!(watch.look().keys().is_empty());
    }

    #[test]
    fn a_wakeup_wakes_another_thread() {
        let (watch, wakeup) = (Watch::new().unwrap(), Arc::new(Wakeup::new().unwrap()));
        watch.add(&*wakeup, 1).unwrap();
        let sleeper = std::thread::spawn(move || watch.wait().keys().to_vec());
        wakeup.signal();
        assert_eq!(sleeper.join().unwrap(), [1]);
    }

    #[test]
    fn only_the_ready_ones_of_hundreds_of_sockets_are_named() {
        let sockets: Vec<Socket> = (0..200).map(|_| bind()).collect();
        let watch = Watch::new().unwrap();
        for (key, socket) in sockets.iter().enumerate() {
            watch.add(socket, key as u64).unwrap();
        }
        sockets[0].send(b"x", 1, &[sockets[150].address()]);
        assert_eq!(watch.wait().keys(), [150]);
        watch.remove(&sockets[150]);
        assert!(watch.look().keys().is_empty());

        // There are more ready sockets than one wait returns: none is forgotten.
        let all: Vec<_> = sockets[..40].iter().map(Socket::address).collect();
        sockets[0].send(b"x", 1, &all);
        let mut named = std::collections::BTreeSet::new();
        while named.len() < 40 {
            named.extend(watch.wait().keys().iter().copied());
        }
        assert!(named.into_iter().eq(0..40));
    }

    #[test]
    fn an_alarm_ends_one_wait_and_can_be_set_anew() {
        let watch = Watch::new().unwrap();
        let begin = Instant::now();
        watch.set_alarm(Duration::from_secs(60));
        watch.set_alarm(Duration::from_millis(2));
        let ready = watch.wait();
        assert!(ready.alarmed() && ready.keys().is_empty());
        assert!((Duration::from_millis(2)..Duration::from_secs(50)).contains(&begin.elapsed()));
        assert!(!watch.look().alarmed());
    }

    #[test]
    fn a_watch_with_something_ready_is_ready_in_another_watch() {
        let (outer, inner, wakeup) = (Watch::new().unwrap(), Watch::new().unwrap(), Wakeup::new().unwrap());
        inner.add(&wakeup, 1).unwrap();
        outer.add(&inner, 2).unwrap();
        assert!(outer.look().keys().is_empty());
        wakeup.signal();
        assert_eq!(outer.wait().keys(), [2]);
        assert_eq!(inner.look().keys(), [1]);
        wakeup.clear();
        assert!(outer.look().keys().is_empty());
        inner.set_alarm(Duration::ZERO);
        assert_eq!(outer.wait().keys(), [2]);
        outer.remove(&inner);
        assert!(outer.look().keys().is_empty() && inner.look().alarmed());
    }

    #[test]
    fn a_watch_waits_for_space_in_the_send_buffer_only_on_request() {
        let (socket, watch) = (bind(), Watch::new().unwrap());
        watch.add(&socket, 0).unwrap();
        assert!(watch.look().keys().is_empty());
        watch.await_writable(&socket, 0, true);
        assert_eq!(watch.wait().keys(), [0]);
        watch.await_writable(&socket, 0, false);
        assert!(watch.look().keys().is_empty());
    }

    #[test]
    fn an_alarm_goes_off_at_its_time() {
        let alarm = Alarm::new().unwrap();
        let begin = Instant::now();
        alarm.set(Duration::from_millis(2));
        alarm.wakeup().wait();
        assert!(begin.elapsed() >= Duration::from_millis(2));
        alarm.wakeup().clear();
        alarm.set(Duration::ZERO);
        alarm.wakeup().wait();
    }

    #[test]
    fn a_thread_can_wait_for_one_socket() {
        let socket = bind();
        assert!(!socket.wait(Some(Duration::from_micros(300))));
        socket.send(b"x", 1, &[socket.address()]);
        assert!(socket.wait(None));
    }
}

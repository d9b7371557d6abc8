//! Sleeping until there is something to do, and waking another thread that sleeps so.

use crate::socket::Socket;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::OwnedFd;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// The most sockets that can be waited for at once.
pub const SOCKETS_MAX: usize = 63;

/// What was there when a wait ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    sockets: u64,
    bell: bool,
}

impl Ready {
    /// Something was, the deadline not counted.
    pub fn any(self) -> bool {
        self.sockets != 0 || self.bell
    }

    /// The socket of this index has something to receive.
    pub fn socket(self, index: usize) -> bool {
        index < SOCKETS_MAX && self.sockets >> index & 1 == 1
    }

    /// The bell was rung, or the alarm went off.
    pub fn bell(self) -> bool {
        self.bell
    }
}

/// Sleeps until one of `sockets` (the first [`SOCKETS_MAX`]) has something to receive, the `bell` is rung or
/// `timeout` has passed; without a timeout, for as long as it takes. May wake without a reason.
pub fn wait(sockets: &[&Socket], bell: Option<&Bell>, timeout: Option<Duration>) -> Ready {
    let Some(filler) = bell.map(AsFd::as_fd).or_else(|| sockets.first().map(|socket| socket.as_fd())) else {
        std::thread::sleep(timeout.unwrap_or(Duration::MAX));
        return Ready::default();
    };
    let sockets = &sockets[..sockets.len().min(SOCKETS_MAX)];
    let mut polled: [PollFd<'_>; SOCKETS_MAX + 1] = std::array::from_fn(|index| {
        let fd = sockets.get(index).map_or(filler, |socket| socket.as_fd());
        PollFd::from_borrowed_fd(fd, PollFlags::IN)
    });
    let count = sockets.len() + usize::from(bell.is_some());
    let timeout = timeout.map(timespec);
    // The only errors are an interruption, which is a wake without a reason, and mistakes of ours.
    if !matches!(poll(&mut polled[..count], timeout.as_ref()), Ok(1..)) {
        return Ready::default();
    }
    let mut ready = Ready::default();
    for (index, fd) in polled[..sockets.len()].iter().enumerate() {
        ready.sockets |= u64::from(!fd.revents().is_empty()) << index;
    }
    ready.bell = bell.is_some() && !polled[sockets.len()].revents().is_empty();
    ready
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}

/// Wakes a thread that waits, now or when it next does.
#[derive(Debug)]
pub struct Bell(OwnedFd);

impl Bell {
    /// A silent bell.
    pub fn new() -> io::Result<Bell> {
        Ok(Bell(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Wakes whoever waits for the bell, until it is silenced.
    pub fn ring(&self) {
        // Fails only when it has been rung 2^64 times.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Silences the bell.
    pub fn silence(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A bell that rings itself after a time, set by any thread without waking the one that waits for it.
#[derive(Debug)]
pub struct Alarm(Bell);

impl Alarm {
    /// An alarm that is not set.
    pub fn new() -> io::Result<Alarm> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Alarm(Bell(timerfd_create(TimerfdClockId::Monotonic, flags)?)))
    }

    /// Rings after this time (at once if it is zero), instead of when it was to ring before. Silences it too.
    pub fn set(&self, after: Duration) {
        self.program(timespec(after.max(Duration::from_nanos(1))));
    }

    /// What to hand to [`wait`], and to silence.
    pub fn bell(&self) -> &Bell {
        &self.0
    }

    fn program(&self, it_value: Timespec) {
        let once = Itimerspec { it_interval: timespec(Duration::ZERO), it_value };
        // Fails only for times that do not exist.
        let _ = timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &once);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::time::Instant;

    #[test]
    fn a_bell_rung_before_the_wait_ends_it_until_silenced() {
        let bell = Bell::new().unwrap();
        assert!(!wait(&[], Some(&bell), Some(Duration::ZERO)).any());
        bell.ring();
        bell.ring();
        assert!(wait(&[], Some(&bell), None).bell());
        assert!(wait(&[], Some(&bell), None).bell());
        bell.silence();
        assert!(!wait(&[], Some(&bell), Some(Duration::ZERO)).any());
    }

    #[test]
    fn a_bell_wakes_another_thread() {
        let bell = Arc::new(Bell::new().unwrap());
        let theirs = bell.clone();
        let sleeper = std::thread::spawn(move || wait(&[], Some(&theirs), Some(Duration::from_secs(60))));
        bell.ring();
        assert!(sleeper.join().unwrap().bell());
    }

    #[test]
    fn the_right_one_of_several_sockets_is_named() {
        let sockets: Vec<Socket> =
            (0..5).map(|_| Socket::bind("127.0.0.1:0".parse().unwrap()).unwrap()).collect();
        let all: Vec<&Socket> = sockets.iter().collect();
        sockets[0].send(b"x", 1, &[sockets[3].address()]);
        let ready = wait(&all, None, Some(Duration::from_secs(1)));
        assert_eq!((0..5).filter(|index| ready.socket(*index)).collect::<Vec<_>>(), [3]);
        assert!(!ready.bell());
    }

    #[test]
    fn a_wait_ends_at_its_deadline_and_an_alarm_rings_at_its_time() {
        let alarm = Alarm::new().unwrap();
        let begin = Instant::now();
        assert!(!wait(&[], Some(alarm.bell()), Some(Duration::from_micros(300))).any());
        assert!(begin.elapsed() >= Duration::from_micros(300));
        alarm.set(Duration::from_millis(2));
        assert!(wait(&[], Some(alarm.bell()), Some(Duration::from_secs(60))).bell());
        assert!(begin.elapsed() >= Duration::from_millis(2));
        alarm.set(Duration::ZERO);
        assert!(wait(&[], Some(alarm.bell()), Some(Duration::from_secs(60))).bell());
        alarm.bell().silence();
        assert!(!wait(&[], Some(alarm.bell()), Some(Duration::ZERO)).any());
    }
}

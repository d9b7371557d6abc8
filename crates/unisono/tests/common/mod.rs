//! Names and timeouts for tests on a machine that may keep any thread waiting for seconds.
//!
//! A member that gets no processor is rightly suspected. Where no member dies none must be suspected, so members are as
//! patient with each other as the tests are.

// Each test program uses its own part of this.
#![allow(dead_code)]

use std::fmt::Debug;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};
use unisono::{Event, Group, GroupConfig, Options, Settings};

/// Longer than any working case takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// Patience of members where one of them dies: longer than machines usually delay a thread. A delay of the suspecting
/// member itself hardly shortens it, since that member probes the silent ones anew.
const PATIENCE_WITH_MEMBERS: Duration = Duration::from_secs(1);

/// Returns a group name that no other test on this machine has.
pub(crate) fn fresh_name(what: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("{what}-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// Options of a member that suspects no other, and that looks for its group for a long time when it joins.
pub(crate) fn options() -> Options {
    // A join gives up after ten times this time.
    let settings = Settings { patience: PATIENCE, locate: PATIENCE / 10, ..Settings::default() };
    Options { settings, ..Options::default() }
}

/// Options of a member that suspects only dead members.
pub(crate) fn watchful() -> Options {
    let patient = options();
    let settings = Settings { patience: PATIENCE_WITH_MEMBERS, ..patient.settings };
    Options { settings, ..patient }
}

/// The same options with another time to look for a group: `locate`, and ten times that for a join.
pub(crate) fn hasty(locate: Duration, options: Options) -> Options {
    let settings = Settings { locate, ..options.settings };
    Options { settings, ..options }
}

/// Opens a group of `count` members, in the order in which they entered.
pub(crate) fn members(name: &str, count: usize) -> Vec<Group> {
    let first = Group::create(name, GroupConfig::default(), &options()).unwrap();
    let rest = (1..count).map(|_| Group::join(name, "", &options()).unwrap());
    std::iter::once(first).chain(rest).collect()
}

/// Receives events until `wanted` finds its own.
pub(crate) fn until<T>(group: &Group, mut wanted: impl FnMut(&Event) -> Option<T>) -> T {
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE {
        if let Some(event) = group.receive_timeout(PATIENCE).unwrap()
            && let Some(found) = wanted(&event)
        {
            return found;
        }
    }
    panic!("the expected event did not come; {:?}", group.info());
}

/// Drops events until `so` is true of the member.
pub(crate) fn until_so(group: &Group, so: impl Fn(&Group) -> bool) {
    let begin = Instant::now();
    while !so(group) {
        group.receive_timeout(Duration::from_millis(5)).unwrap();
        assert!(begin.elapsed() < PATIENCE, "the expected state did not come; {:?}", group.info());
    }
}

/// Repeats an attempt that failed only because no answer came in time.
pub(crate) fn persistently<T: Debug>(mut attempt: impl FnMut() -> T, too_early: impl Fn(&T) -> bool) -> T {
    let begin = Instant::now();
    loop {
        let result = attempt();
        if !too_early(&result) || begin.elapsed() >= PATIENCE {
            return result;
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread: the smallest executor there is.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => {
                let begin = Instant::now();
                thread::park_timeout(PATIENCE);
                assert!(begin.elapsed() < PATIENCE, "this task was not woken");
            }
        }
    }
}

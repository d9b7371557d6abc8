//! Waiting, for threads and for tasks alike: who waits for something leaves a [`Waker`].

use std::cell::OnceCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// Puts one thread to sleep; its waker wakes it.
#[derive(Debug)]
pub(crate) struct Parker {
    thread: Thread,
    woken: AtomicBool,
}

thread_local! {
    static MINE: OnceCell<(Arc<Parker>, Waker)> = const { OnceCell::new() };
}

impl Parker {
    /// The calling thread's own, ready to be parked.
    pub(crate) fn mine() -> (Arc<Parker>, Waker) {
        MINE.with(|mine| {
            let (parker, waker) = mine.get_or_init(|| {
                let parker = Arc::new(Parker { thread: thread::current(), woken: AtomicBool::new(false) });
                (parker.clone(), Waker::from(parker))
            });
            parker.woken.store(false, Ordering::Release);
            (parker.clone(), waker.clone())
        })
    }

    /// Somebody has woken it, or is about to.
    pub(crate) fn woken(&self) -> bool {
        self.woken.load(Ordering::Acquire)
    }

    /// Sleeps until woken or until then. To be called by its own thread.
    pub(crate) fn park(&self, until: Option<Instant>) {
        while !self.woken() {
            match until.map(|until| until.saturating_duration_since(Instant::now())) {
                None => thread::park(),
                Some(Duration::ZERO) => return,
                Some(rest) => thread::park_timeout(rest),
            }
        }
    }
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// Who waits for one thing.
#[derive(Debug, Default)]
pub(crate) struct WaitList(Vec<Waker>);

impl WaitList {
    /// Adds one, unless it waits already.
    pub(crate) fn register(&mut self, waker: &Waker) {
        if !self.0.iter().any(|present| present.will_wake(waker)) {
            self.0.push(waker.clone());
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Moves everybody to `wakes`, to be woken when no lock is held.
    pub(crate) fn wake(&mut self, wakes: &mut Vec<Waker>) {
        wakes.append(&mut self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parked_thread_sleeps_until_woken_and_no_longer_than_told() {
        let (parker, waker) = Parker::mine();
        parker.park(Some(Instant::now() + Duration::from_millis(1)));
        assert!(!parker.woken());
        let other = thread::spawn(move || waker.wake());
        parker.park(None);
        assert!(parker.woken());
        other.join().unwrap();
        assert!(!Parker::mine().0.woken());
    }

    #[test]
    fn nobody_is_listed_twice() {
        let (_, waker) = Parker::mine();
        let mut list = WaitList::default();
        list.register(&waker);
        list.register(&waker.clone());
        let mut wakes = Vec::new();
        list.wake(&mut wakes);
        assert_eq!(wakes.len(), 1);
        assert!(list.is_empty());
    }
}

//! Waiting, for threads and for tasks alike: each leaves a [`Waker`] with what it waits for.

use std::cell::OnceCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
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
    static MINE: OnceCell<(Arc<Parker>, Arc<Waker>)> = const { OnceCell::new() };
}

impl Parker {
    /// Returns the calling thread's own parker, ready to be parked, and its waker.
    pub(crate) fn mine() -> (Arc<Parker>, Arc<Waker>) {
        MINE.with(|mine| {
            let (parker, waker) = mine.get_or_init(|| {
                let parker = Arc::new(Parker { thread: thread::current(), woken: AtomicBool::new(false) });
                (parker.clone(), Arc::new(Waker::from(parker)))
            });
            parker.woken.store(false, Ordering::Release);
            (parker.clone(), waker.clone())
        })
    }

    /// True if its waker was called.
    pub(crate) fn woken(&self) -> bool {
        self.woken.load(Ordering::Acquire)
    }

    /// Sleeps until woken or until `until`. Only its own thread may call this.
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

/// A task's or thread's waker for as long as it may be on lists. A waiter that drops this is removed from the lists.
#[derive(Debug, Default)]
pub(crate) struct Listed(Option<Arc<Waker>>);

impl Listed {
    fn waker(&mut self, waker: &Waker) -> &Arc<Waker> {
        self.0.take_if(|present| !present.will_wake(waker));
        self.0.get_or_insert_with(|| Arc::new(waker.clone()))
    }
}

impl From<Arc<Waker>> for Listed {
    fn from(waker: Arc<Waker>) -> Listed {
        Listed(Some(waker))
    }
}

/// The threads and tasks that wait for one thing.
#[derive(Debug, Default)]
pub(crate) struct WaitList(Vec<Weak<Waker>>);

impl WaitList {
    /// Adds a waker, unless it is listed already.
    pub(crate) fn register(&mut self, waker: &Waker, listed: &mut Listed) {
        let waker = listed.waker(waker);
        self.0.retain(|present| present.strong_count() > 0);
        if !self.0.iter().any(|present| present.as_ptr() == Arc::as_ptr(waker)) {
            self.0.push(Arc::downgrade(waker));
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Moves all wakers to `wakes`, to be called when no lock is held.
    pub(crate) fn wake(&mut self, wakes: &mut Vec<Waker>) {
        wakes.extend(self.0.drain(..).filter_map(|waker| Some(waker.upgrade()?.as_ref().clone())));
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
        let other = thread::spawn(move || waker.wake_by_ref());
        parker.park(None);
        assert!(parker.woken());
        other.join().unwrap();
        assert!(!Parker::mine().0.woken());
    }

    #[test]
    fn no_waker_is_listed_twice() {
        let (_, waker) = Parker::mine();
        let (mut list, mut listed) = (WaitList::default(), Listed::default());
        list.register(&waker, &mut listed);
        list.register(&waker.as_ref().clone(), &mut listed);
        let mut wakes = Vec::new();
        list.wake(&mut wakes);
        assert_eq!(wakes.len(), 1);
        assert!(list.is_empty());
    }

    #[test]
    fn a_waiter_that_is_gone_is_neither_listed_nor_kept() {
        let (mut list, mut listed) = (WaitList::default(), Listed::default());
        let parker = || Arc::new(Parker { thread: thread::current(), woken: AtomicBool::new(false) });
        let (first, last) = (parker(), parker());
        for _ in 0..100 {
            list.register(&Waker::from(first.clone()), &mut Listed::default());
            list.register(&Waker::from(last.clone()), &mut listed);
        }
        assert_eq!((list.0.len(), Arc::strong_count(&first), Arc::strong_count(&last)), (1, 1, 2));
    }
}

//! What threads and tasks of this process wait for: the outcome of a command, a read, the state, the end, a notice.

use crate::engine::Parker;
use std::collections::HashMap;
use std::hash::Hash;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

/// Things that are under way, until their outcomes are taken.
#[derive(Debug)]
pub(super) struct Waits<K, T>(HashMap<K, Wait<T>>);

#[derive(Debug)]
enum Wait<T> {
    UnderWay(Option<Waker>),
    Over(T),
}

impl<K, T> Default for Waits<K, T> {
    fn default() -> Waits<K, T> {
        Waits(HashMap::new())
    }
}

impl<K: Copy + Eq + Hash, T> Waits<K, T> {
    /// Notes that something is under way and its outcome will be asked for.
    pub(super) fn expect(&mut self, key: K) {
        self.0.insert(key, Wait::UnderWay(None));
    }

    /// Notes an outcome. Returns the waker of what waits for it.
    pub(super) fn resolve(&mut self, key: K, outcome: T) -> Option<Waker> {
        let wait = self.0.get_mut(&key)?;
        match std::mem::replace(wait, Wait::Over(outcome)) {
            Wait::UnderWay(waker) => waker,
            Wait::Over(first) => {
                *wait = Wait::Over(first);
                None
            }
        }
    }

    /// Gives all that is under way this outcome.
    pub(super) fn resolve_all(&mut self, outcome: impl Fn() -> T, wakes: &mut Vec<Waker>) {
        for wait in self.0.values_mut() {
            if let Wait::UnderWay(waker) = wait {
                wakes.extend(waker.take());
                *wait = Wait::Over(outcome());
            }
        }
    }

    /// Takes an outcome, or leaves the waker with what is under way. `None` if nothing of this key is expected.
    pub(super) fn poll(&mut self, key: K, context: &mut Context<'_>) -> Poll<Option<T>> {
        match self.0.get_mut(&key) {
            Some(Wait::UnderWay(waker)) => {
                waker.get_or_insert_with(|| context.waker().clone()).clone_from(context.waker());
                Poll::Pending
            }
            Some(Wait::Over(_)) => match self.0.remove(&key) {
                Some(Wait::Over(outcome)) => Poll::Ready(Some(outcome)),
                _ => Poll::Ready(None),
            },
            None => Poll::Ready(None),
        }
    }

    /// Drops what no handle will ask for.
    pub(super) fn forget(&mut self, key: K) {
        self.0.remove(&key);
    }
}

/// Polls on the calling thread until it is ready; `None` if that takes until `until`.
pub(crate) fn block_on<T>(
    until: Option<Instant>,
    mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
) -> Option<T> {
    loop {
        let (parker, waker) = Parker::mine();
        if let Poll::Ready(outcome) = poll(&mut Context::from_waker(&waker)) {
            return Some(outcome);
        }
        if until.is_some_and(|until| until <= Instant::now()) {
            return None;
        }
        parker.park(until);
    }
}

//! Wakes one thread when the state has changed or there is something else to do.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// A signal that one thread waits for and any thread raises. Raising it while no thread waits costs one load.
#[derive(Debug, Default)]
pub(super) struct Signal {
    is_awaited: AtomicBool,
    raised: Mutex<bool>,
    changed: Condvar,
}

impl Signal {
    /// Wakes the thread that waits, now or as soon as it does.
    pub(super) fn raise(&self) {
        if self.is_awaited.load(Ordering::SeqCst) {
            *self.raised.lock().unwrap_or_else(PoisonError::into_inner) = true;
            self.changed.notify_one();
        }
    }

    /// Notes whether the signal counts from now on.
    pub(super) fn set_awaited(&self, is_awaited: bool) {
        self.is_awaited.store(is_awaited, Ordering::SeqCst);
    }

    /// Waits until the signal is raised, or `timeout` is over.
    pub(super) fn wait(&self, timeout: Duration) {
        let raised = self.raised.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(raised, timeout, |raised| !*raised);
        *waited.unwrap_or_else(PoisonError::into_inner).0 = false;
    }
}

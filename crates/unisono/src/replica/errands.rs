//! What has to wait for the network or for time, done by one thread: messages for which the group has no room yet,
//! confirmations, questions to other members, timers.
//!
//! An errand is a future. The thread that begins it polls it once, so that what is to be sent is sent at once; the
//! errands thread goes on with it.

use super::StateMachine;
use super::copy::Copy;
use super::life::Life;
use crate::engine::Listed;
use bytes::Bytes;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;
use unisono_core::replica::FetchNumber;
use unisono_core::rpc::CallFailure;
use unisono_core::{Seqno, Time};

/// Pause before a message is tried again for which only receiving can make room: another thread receives.
const SUBMIT_AGAIN_AFTER: Duration = Duration::from_millis(50);

/// What an errand came to.
#[derive(Debug)]
pub(super) enum Report {
    /// The group's end was confirmed.
    Confirmed(Seqno),
    /// A question to another member has its answer.
    Fetched(FetchNumber, Result<Bytes, CallFailure>),
    /// The life of the errand is over.
    Nothing,
}

pub(super) type Errand = Pin<Box<dyn Future<Output = (Arc<Life>, Report)> + Send>>;

/// The errands under way. See the module.
#[derive(Default)]
pub(super) struct Errands {
    list: Mutex<List>,
    bell: Arc<Bell>,
}

#[derive(Default)]
struct List {
    begun: Vec<Errand>,
    submits: VecDeque<(Arc<Life>, Bytes)>,
}

/// Wakes the errands thread.
#[derive(Default)]
struct Bell {
    rung: AtomicBool,
    thread: OnceLock<Thread>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.rung.swap(true, Ordering::AcqRel)
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
    }
}

impl Errands {
    fn list(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the errands thread look for what is to do.
    pub(super) fn ring(&self) {
        self.bell.wake_by_ref();
    }

    /// Sends a message as soon as there is room. The order does not matter.
    pub(super) fn submit_later(&self, life: &Arc<Life>, message: Bytes) {
        self.list().submits.push_back((life.clone(), message));
        self.ring();
    }

    /// Begins an errand, and returns what it came to if that is known at once.
    pub(super) fn begin(&self, mut errand: Errand) -> Option<Report> {
        let waker = Waker::from(self.bell.clone());
        // Locked until the errand is on the list, where the thread looks for it as soon as its waker is called.
        let mut list = self.list();
        match errand.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready((_, report)) => Some(report),
            Poll::Pending => {
                list.begun.push(errand);
                None
            }
        }
    }
}

/// Runs errands until the replica has ended.
pub(super) fn run<S: StateMachine>(copy: &Copy<S>) {
    let errands = &copy.errands;
    // Nothing else sets it.
    let _ = errands.bell.thread.set(thread::current());
    let waker = Waker::from(errands.bell.clone());
    let context = &mut Context::from_waker(&waker);
    let (mut under_way, mut listed) = (Vec::new(), Listed::default());
    loop {
        errands.bell.rung.store(false, Ordering::Release);
        under_way.append(&mut errands.list().begun);
        let mut index = 0;
        while let Some(errand) = under_way.get_mut(index) {
            match errand.as_mut().poll(context) {
                Poll::Pending => index += 1,
                Poll::Ready((life, report)) => {
                    drop(under_way.swap_remove(index));
                    copy.report(&life, report);
                }
            }
        }
        let mut until = match copy.tick() {
            Some(at) => at,
            None => return,
        };
        if !submit(errands, context, &mut listed) {
            until = until.min(copy.now() + SUBMIT_AGAIN_AFTER);
        }
        while !errands.bell.rung.load(Ordering::Acquire) {
            match until.since(copy.now()) {
                Duration::ZERO => break,
                _ if until == Time::NEVER => thread::park(),
                rest => thread::park_timeout(rest),
            }
        }
    }
}

/// Sends messages that wait for room, as many as there is room for. Returns false if they have to be tried again
/// although nothing wakes this thread.
fn submit(errands: &Errands, context: &mut Context<'_>, listed: &mut Listed) -> bool {
    loop {
        let Some((life, message)) = errands.list().submits.pop_front() else { return true };
        let tries_again = match life.poll_submit(context, listed, &message) {
            Poll::Ready(true) => continue,
            Poll::Ready(false) => true,
            Poll::Pending => false,
        };
        errands.list().submits.push_front((life, message));
        return !tries_again;
    }
}

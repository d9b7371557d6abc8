//! What has to wait for other members or for time, done by one thread: questions to other members, timers.
//!
//! An errand is a future. The thread that begins it polls it once, so that what is to be sent is sent at once; the
//! errands thread goes on with it.

use super::StateMachine;
use super::copy::Copy;
use super::life::Life;
use super::transfer::ToHash;
use bytes::Bytes;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;
use unisono_core::replica::{FetchNumber, Hashed};
use unisono_core::rpc::CallFailure;
use unisono_core::{Seqno, Time};

/// What an errand came to.
#[derive(Debug)]
pub(super) enum Report {
    /// The group's end was confirmed.
    Confirmed(Seqno),
    /// A question to another member has this answer, which is to be hashed.
    Arrived(FetchNumber, Bytes),
    /// The same with the answer hashed, or without one.
    Fetched(FetchNumber, Result<Hashed, CallFailure>),
}

/// An errand, and what there is to report of it in which life.
pub(super) type Errand = Pin<Box<dyn Future<Output = Option<(Arc<Life>, Report)>> + Send>>;

/// The errands under way. See the module.
#[derive(Default)]
pub(super) struct Errands {
    /// Those that the thread has not seen yet.
    begun: Mutex<Vec<Errand>>,
    alarm: Arc<Alarm>,
}

/// Wakes the errands thread.
#[derive(Default)]
struct Alarm {
    called: AtomicBool,
    thread: OnceLock<Thread>,
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.called.swap(true, Ordering::AcqRel)
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
    }
}

impl Errands {
    fn begun(&self) -> MutexGuard<'_, Vec<Errand>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the errands thread look for what is to do.
    pub(super) fn wake(&self) {
        self.alarm.wake_by_ref();
    }

    /// Begins an errand, and returns what it came to if that is known at once.
    pub(super) fn begin(&self, mut errand: Errand) -> Option<Report> {
        let waker = Waker::from(self.alarm.clone());
        // Locked until the errand is on the list, where the thread looks for it as soon as its waker is called.
        let mut begun = self.begun();
        match errand.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(done) => done.map(|(_, report)| report),
            Poll::Pending => {
                begun.push(errand);
                None
            }
        }
    }

    /// Leaves an errand to the errands thread.
    pub(super) fn add(&self, errand: Errand) {
        self.begun().push(errand);
        self.wake();
    }
}

/// Runs errands until the replica has ended. What arrives of a state goes to `hashes`.
pub(super) fn run<S: StateMachine>(copy: &Copy<S>, hashes: &Sender<ToHash>) {
    let errands = &copy.errands;
    // Nothing else sets it.
    let _ = errands.alarm.thread.set(thread::current());
    let waker = Waker::from(errands.alarm.clone());
    let context = &mut Context::from_waker(&waker);
    let mut under_way = Vec::new();
    loop {
        errands.alarm.called.store(false, Ordering::Release);
        under_way.append(&mut errands.begun());
        let mut index = 0;
        while let Some(errand) = under_way.get_mut(index) {
            match errand.as_mut().poll(context) {
                Poll::Pending => index += 1,
                Poll::Ready(done) => {
                    drop(under_way.swap_remove(index));
                    match done {
                        Some((life, Report::Arrived(call, reply))) => {
                            // The thread that hashes ends after this one.
                            let _ = hashes.send(ToHash::Reply { life, call, reply });
                        }
                        Some((life, report)) => copy.report(&life, report),
                        None => {}
                    }
                }
            }
        }
        let Some(until) = copy.tick() else { return };
        while !errands.alarm.called.load(Ordering::Acquire) {
            match until.since(copy.now()) {
                Duration::ZERO => break,
                _ if until == Time::NEVER => thread::park(),
                rest => thread::park_timeout(rest),
            }
        }
    }
}

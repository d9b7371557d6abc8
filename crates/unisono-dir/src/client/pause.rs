//! A pause of an asynchronous program, whatever executor it has.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

/// Returns after this time, or at once if the system gives no thread.
pub(super) async fn for_time(pause: Duration) {
    let state = Arc::new(Mutex::new((false, None::<Waker>)));
    let timer = state.clone();
    let begun = thread::Builder::new().name("directory-pause".into()).spawn(move || {
        thread::sleep(pause);
        let mut state = timer.lock().unwrap_or_else(PoisonError::into_inner);
        state.0 = true;
        if let Some(waker) = state.1.take() {
            waker.wake();
        }
    });
    if begun.is_err() {
        return;
    }
    poll_fn(|context| {
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        match state.0 {
            true => Poll::Ready(()),
            false => {
                state.1 = Some(context.waker().clone());
                Poll::Pending
            }
        }
    })
    .await;
}

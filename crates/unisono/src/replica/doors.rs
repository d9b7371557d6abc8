//! Doors: ports that a replica serves to callers who have another key than its members.
//!
//! A door has an address of its own. One thread opens it in each life that has the state and takes its requests; the copy
//! answers them like those of other callers.

use super::copy::Copy;
use super::life::Life;
use super::waits::block_on;
use super::{NotServed, StateMachine, spawn};
use crate::engine::Listed;
use crate::options::Options;
use crate::rpc::{PrivatePort, Server, ServiceError};
use std::io;
use std::sync::Arc;
use std::task::Poll;
use std::thread;
use std::time::Duration;

/// Maximum number of requests that are taken at once.
const REQUESTS_PER_STEP: usize = 64;
/// Pause before a door is tried again that could not be opened in a later life.
const OPENS_AGAIN_AFTER: Duration = Duration::from_millis(200);

/// Serves the port from now on, or from when this member has the state.
pub(super) fn open<S: StateMachine + Send + 'static>(
    copy: &Arc<Copy<S>>,
    port: &PrivatePort,
    options: &Options,
) -> Result<(), NotServed> {
    let (life, door) = {
        let mut state = copy.lock();
        if state.end.is_some() || state.is_closing {
            return Err(NotServed::Ended);
        }
        state.doors += 1;
        (state.life.clone().filter(|_| state.is_informed()), state.doors)
    };
    let opened = match life {
        Some(life) => Some((life.open_door(port, copy.service(), options)?, life)),
        None => None,
    };
    let (copy, port, options) = (copy.clone(), port.clone(), options.clone());
    spawn("door", move || Door { copy: &copy, port, options, number: door }.serve(opened))
        .map_err(|error| NotServed::Service(no_thread(error)))
}

fn no_thread(error: io::Error) -> ServiceError {
    ServiceError::Open(crate::error::OpenError::Socket { what: "start a thread", cause: error })
}

struct Door<'a, S> {
    copy: &'a Copy<S>,
    port: PrivatePort,
    options: Options,
    number: u16,
}

impl<S: StateMachine> Door<'_, S> {
    /// Takes requests, from life to life, until the replica has ended.
    fn serve(&self, mut opened: Option<(Server, Arc<Life>)>) {
        let mut last = None;
        loop {
            let (server, life) = match opened.take() {
                Some(opened) => opened,
                None => {
                    let Some(life) = self.life_after(last.as_ref()) else { return };
                    match life.open_door(&self.port, self.copy.service(), &self.options) {
                        Ok(server) => (server, life),
                        Err(_) => {
                            thread::sleep(OPENS_AGAIN_AFTER);
                            continue;
                        }
                    }
                }
            };
            while let Ok(requests) = server.get_requests(REQUESTS_PER_STEP) {
                self.copy.step(|state, now| state.take_requests(now, requests, self.number));
            }
            last = Some(life);
        }
    }

    /// Waits for a life that has the state, after the last one. Returns `None` if the replica has ended.
    fn life_after(&self, last: Option<&Arc<Life>>) -> Option<Arc<Life>> {
        let mut listed = Listed::default();
        block_on(None, |context| {
            let mut state = self.copy.lock();
            let is_new = |life: &Arc<Life>| last.is_none_or(|last| !Arc::ptr_eq(last, life));
            let life = state.life.clone().filter(|life| is_new(life) && state.is_informed());
            match life {
                _ if state.end.is_some() => Poll::Ready(None),
                Some(life) => Poll::Ready(Some(life)),
                None => {
                    state.register(context, &mut listed);
                    Poll::Pending
                }
            }
        })?
    }
}

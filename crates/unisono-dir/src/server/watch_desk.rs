//! Holds watches while the server serves. One thread takes them, another one looks at them after each change.

use super::{Shared, spawn};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use unisono::rpc::{PrivatePort, Request, Server};
use unisono_table::{WATCHES_MAX, Watches};

/// Interval at which the desk looks whether this server still serves.
const LOOKS_EVERY: Duration = Duration::from_millis(100);
/// Number of watches that are looked at while the state is locked.
const LOOKED_AT_MAX: usize = 64;
/// Refusal of a watch beyond the maximum of a server or of a client, part of the protocol: the client pauses before it asks
/// again.
pub(crate) const TOO_MANY: &str = "this server holds as many watches as it may, or as it may for this client";
/// Refusal, after which a client asks another server.
const NOT_HERE: &str = "this server does not serve at present";

/// Requests that were taken and not looked at yet.
type Taken = Arc<Mutex<Vec<Request>>>;

/// Holds watches until the server has ended.
pub(super) fn run(shared: &Arc<Shared>, port: &PrivatePort) {
    let (begun, taken) = (Instant::now(), Taken::default());
    let (mut watches, mut open) = (Watches::default(), None::<Server>);
    while !shared.has_ended() {
        match (shared.is_serving(), &open) {
            (true, None) => open = begin(shared, port, &taken),
            (false, Some(server)) => {
                end(server, &taken, &mut watches);
                open = None;
            }
            _ => {}
        }
        let now = begun.elapsed();
        let new = std::mem::take(&mut *taken.lock().unwrap_or_else(PoisonError::into_inner));
        for request in new {
            let question = request.payload().clone();
            match watches.take(now, request.client().0, request, &question) {
                Ok(()) => {}
                Err((request, Some(reply))) => drop(request.reply(reply)),
                Err((request, None)) => drop(request.refuse(TOO_MANY)),
            }
        }
        // Before looking, so that no change is missed.
        shared.signal.set_awaited(true);
        let mut left = watches.len();
        while left > 0 {
            let some = left.min(LOOKED_AT_MAX);
            left -= some;
            let answered = shared.replica.look(|directory| watches.answer(now, directory.table(), some));
            for (request, reply) in answered {
                // If this fails, the client does not wait any longer.
                let _ = request.reply(reply);
            }
        }
        let due = watches.due().map_or(LOOKS_EVERY, |due| due.saturating_sub(begun.elapsed()));
        shared.signal.wait(due.min(LOOKS_EVERY));
    }
    if let Some(server) = open {
        end(&server, &taken, &mut watches);
    }
}

/// Opens the port, and starts the thread that takes watches. If that fails, it is tried again.
fn begin(shared: &Arc<Shared>, port: &PrivatePort, taken: &Taken) -> Option<Server> {
    let server = shared.open(port, WATCHES_MAX as u16).ok()?;
    let (asked, taken, shared) = (server.clone(), taken.clone(), shared.clone());
    let taking = spawn("watchers", move || {
        while let Ok(request) = asked.get_request() {
            taken.lock().unwrap_or_else(PoisonError::into_inner).push(request);
            shared.signal.raise();
        }
    });
    taking.is_ok().then_some(server)
}

/// Closes the port, and sends all clients elsewhere.
fn end(server: &Server, taken: &Taken, watches: &mut Watches<Request>) {
    // Waits for no request: all are refused below.
    let _ = server.drain(Duration::ZERO);
    let new = std::mem::take(&mut *taken.lock().unwrap_or_else(PoisonError::into_inner));
    for request in new.into_iter().chain(watches.give_up()) {
        let _ = request.refuse(NOT_HERE);
    }
}

#[cfg(test)]
mod tests {
    use super::TOO_MANY;

    #[test]
    fn the_page_has_the_refusal_by_which_clients_pause() {
        assert!(include_str!("../../tests/directory-page.txt").contains(TOO_MANY));
    }
}

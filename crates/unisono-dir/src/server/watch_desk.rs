//! Holds watches while the server serves. One thread takes them, another one looks at them after each change.

use super::{Shared, spawn};
use crate::machine::Directory;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use unisono::rpc::{PrivatePort, Request, Server, Source};
use unisono_table::{WATCHES_MAX, Watches};

/// Interval at which the desk looks whether this server still serves.
const LOOKS_EVERY: Duration = Duration::from_millis(100);
/// Number of watches that are looked at while the state is locked.
const LOOKED_AT_MAX: usize = 64;
/// How often watches are looked at so before new ones are taken.
const LOOKS_MAX: usize = 4;
/// Number of watches that are taken while the state is locked; each may have a path to walk.
const TAKEN_MAX: usize = 16;
/// Refusal of a watch beyond the maximum of a server, of a client or of a source address, part of the protocol: the client pauses before it asks
/// again.
pub(crate) const TOO_MANY: &str = "this server holds as many watches as it may, or as it may for this client";
/// Refusal, after which a client asks another server.
const NOT_HERE: &str = "this server does not serve at present";

/// Requests that were taken and not looked at yet.
type Taken = Arc<Mutex<Vec<Request>>>;
type Held = Watches<Request, Source>;

/// Holds watches until the server has ended.
pub(super) fn run(shared: &Arc<Shared>, port: &PrivatePort) {
    let (begun, taken) = (Instant::now(), Taken::default());
    let (mut watches, mut open) = (Held::default(), None::<Server>);
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
        take(shared, &mut watches, now, new);
        // Before looking, so that no change is missed.
        shared.signal.set_awaited(true);
        for _ in 0..LOOKS_MAX {
            if watches.is_empty() {
                break;
            }
            let look = |directory: &Directory| watches.answer(now, directory.table(), LOOKED_AT_MAX);
            for (request, reply) in shared.replica.look(look) {
                // If this fails, the client does not wait any longer.
                let _ = request.reply(reply);
            }
            if !watches.has_due() {
                break;
            }
        }
        if !watches.has_due() {
            let due = watches.wake_at().map_or(LOOKS_EVERY, |due| due.saturating_sub(begun.elapsed()));
            shared.signal.wait(due.min(LOOKS_EVERY));
        }
    }
    if let Some(server) = open {
        end(&server, &taken, &mut watches);
    }
}

/// Holds those watches that may be held, and answers the others.
fn take(shared: &Shared, watches: &mut Held, now: Duration, new: Vec<Request>) {
    let mut new = new.into_iter();
    while new.len() > 0 {
        let some = new.by_ref().take(TAKEN_MAX);
        let not_held: Vec<_> = shared.replica.look(|directory| {
            let table = directory.table();
            let take = |request: Request| {
                let (question, client) = (request.payload().clone(), request.client().0);
                let (request, reply) =
                    watches.take(now, (client, request.source()), request, &question, table).err()?;
                Some((request, reply, table.shows_right(&question)))
            };
            some.filter_map(take).collect()
        });
        for (request, reply, shows_right) in not_held {
            match reply {
                Some(reply) if shows_right => drop(request.reply(reply)),
                Some(reply) => drop(request.deny(reply)),
                None => drop(request.refuse(TOO_MANY)),
            }
        }
    }
}

/// Opens the port, and starts the thread that takes watches. If that fails, it is tried again.
fn begin(shared: &Arc<Shared>, port: &PrivatePort, taken: &Taken) -> Option<Server> {
    let server = shared.open(port, WATCHES_MAX as u16).ok()?;
    let (asked, taken, shared) = (server.clone(), taken.clone(), shared.clone());
    let taking = spawn("watchers", move || {
        while let Ok(Some(request)) = asked.get_request_aside(None) {
            taken.lock().unwrap_or_else(PoisonError::into_inner).push(request);
            shared.signal.raise();
        }
    });
    taking.is_ok().then_some(server)
}

/// Closes the port, and sends all clients elsewhere.
fn end(server: &Server, taken: &Taken, watches: &mut Held) {
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

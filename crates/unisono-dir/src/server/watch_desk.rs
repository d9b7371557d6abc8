//! Holds watches while the server serves. One thread takes them, another one looks at them after each change.

use super::{Shared, give, reply_or_deny, spawn};
use crate::machine::Directory;
use bytes::Bytes;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use unisono::rpc::{Answer, PrivatePort, Request, Server, Source};
use unisono_table::{Table, WATCHES_MAX, Watches};

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
                let (question, client) = (request.payload().clone(), (request.client().0, request.source()));
                hold(watches, now, client, (request, &question), table)
            };
            some.filter_map(take).collect()
        });
        for (request, answer) in not_held {
            give(request, answer);
        }
    }
}

/// Holds a watch, or gives it back with its answer.
fn hold<R, S: Copy + Ord>(
    watches: &mut Watches<R, S>,
    now: Duration,
    client: (u64, S),
    (request, question): (R, &Bytes),
    table: &Table,
) -> Option<(R, Answer)> {
    let (request, reply) = watches.take(now, client, request, question, table).err()?;
    let too_many = || Answer::Refuse(Bytes::from_static(TOO_MANY.as_bytes()));
    Some((request, reply.map_or_else(too_many, |reply| reply_or_deny(table, question, reply))))
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
    use super::*;
    use unisono_table::{Capability, Check, Command, Limits, ObjectNumber, Place, Port, Query, Request};

    #[test]
    fn a_question_for_changes_without_a_right_is_denied() {
        let mut table = Table::new(Limits::default());
        let (port, secret) = (Port(1), Check::from_bits(2));
        table.execute(Command::Found { port, secret, service: Bytes::new() });
        let mut watches = Watches::<(), u8>::default();
        let mut ask = |capability: Capability, path: &str| {
            let place = Place { capability, path: path.parse().unwrap() };
            let question = Request::LocalQuery(Query::Changes { place, from: 2 }).encode();
            hold(&mut watches, Duration::ZERO, (1, 1), ((), &question), &table).map(|(_, answer)| answer)
        };
        let root = table.root().unwrap();
        assert!(ask(root, "").is_none(), "it is held");
        assert!(matches!(ask(root, "nothing"), Some(Answer::Reply(_))));
        let wrong = Capability::of_owner(port, ObjectNumber(1), Check::from_bits(3));
        assert!(matches!(ask(wrong, ""), Some(Answer::Deny(_))));
    }

    #[test]
    fn the_page_has_the_refusal_by_which_clients_pause() {
        assert!(include_str!("../../tests/directory-page.txt").contains(TOO_MANY));
    }
}

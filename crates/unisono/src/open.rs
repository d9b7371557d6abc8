//! Open members: a member of a group that takes messages of processes that are no members.
//!
//! The member serves a port that is made from the group's name. One thread takes the requests of clients and gives them to
//! the member's [`Relay`](unisono_core::outside::Relay), which the engine drives together with the member; the same thread
//! gives the clients their answers.

use crate::engine::{Attempt, CallInterest, Calls, Interest, Membership, Shared};
use crate::error::{Ended, OpenError};
use crate::opening::Handle;
use crate::rpc::{Answer, PrivatePort, Request, ServeOptions, Server, ServiceError, answer_all};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use unisono_core::Time;
use unisono_core::outside;

/// Maximum number of requests that are taken at once.
const REQUESTS_PER_STEP: usize = 64;

/// Returns the port at which the open members of a group take messages. No name of a service begins with this character.
pub(crate) fn port(name: &str) -> PrivatePort {
    PrivatePort::from_name(&format!("\u{1}from outside to {name}"))
}

/// Opens a member. A member that is open already stays so.
pub(crate) fn open(member: &impl Handle) -> Result<(), ServiceError> {
    let shared = member.owner().shared.clone();
    let (name, is_open) = shared.with(|member, _| (member.label.group.to_string(), member.is_open()));
    if is_open {
        return Ok(());
    }
    // A client repeats no request elsewhere by itself.
    let server = Server::beside(member, &port(&name), ServeOptions::default())?;
    let address = server.address();
    shared.with(|member, _| member.open(address));
    let started = thread::Builder::new().name("unisono-open".into()).spawn(move || run(&shared, &server));
    started.map_err(|cause| OpenError::Socket { what: "start a thread for messages from outside", cause })?;
    Ok(())
}

/// What the thread waits for.
enum Input {
    Requests(Vec<Request>),
    Answers(Vec<(outside::Ticket, outside::Answer)>),
}

/// Takes requests and gives answers until the member is one no longer.
fn run(shared: &Arc<Shared>, server: &Server) {
    let (mut waiting, mut last, mut turn) = (BTreeMap::new(), 0, false);
    while let Ok(input) = wait(shared, server, &mut turn) {
        match input {
            Input::Requests(requests) => {
                let mut taken = Vec::new();
                for request in requests {
                    last += 1;
                    taken.push((last, request.client(), request.payload().clone()));
                    waiting.insert(last, request);
                }
                shared.with(|member, _| {
                    for (ticket, client, request) in taken {
                        member.take_from_outside(ticket, client, request);
                    }
                });
            }
            Input::Answers(answers) => {
                let with_request = |(ticket, answer): (outside::Ticket, outside::Answer)| {
                    Some((waiting.remove(&ticket)?, Answer::Reply(answer.write())))
                };
                let mut answers: Vec<(Request, Answer)> =
                    answers.into_iter().filter_map(with_request).collect();
                answer_all(&mut answers);
            }
        }
    }
    server.withdraw();
    // A client whose request is dropped here asks another member what became of it.
    for (_, request) in waiting {
        let _ = request.refuse(Bytes::from_static(b"this member has left the group"));
    }
}

fn wait(shared: &Arc<Shared>, server: &Server, turn: &mut bool) -> Result<Input, Ended> {
    *turn = !*turn;
    let of_member = |member: &mut Membership, _: Time| {
        let answers: Vec<_> = std::iter::from_fn(|| member.answer_outside()).collect();
        match (answers.is_empty(), member.end()) {
            (false, _) => Attempt::Taken(Ok(Input::Answers(answers))),
            (true, Some(ended)) => Attempt::Taken(Err(ended)),
            (true, None) if member.is_abandoned() => Attempt::Taken(Err(Ended::Left)),
            (true, None) => Attempt::Wait(Interest::Progress),
        }
    };
    let port = server.port().0;
    let of_calls = |calls: &mut Calls, now: Time| {
        let requests: Vec<Request> =
            std::iter::from_fn(|| server.try_next(calls, now)).take(REQUESTS_PER_STEP).collect();
        match requests.is_empty() {
            false => Attempt::Taken(Ok(Input::Requests(requests))),
            true => Attempt::Wait(CallInterest::Request(port)),
        }
    };
    let ports = |add: &mut dyn FnMut(unisono_core::Port)| add(port);
    shared.block_beside(server.shared(), *turn, &[Interest::Progress], ports, of_member, of_calls)
}

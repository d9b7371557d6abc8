//! What callers and newcomers ask a server.

use super::context::Context;
use super::server::{Server, Waiting, handler_number};
use crate::bugs::ServiceBug;
use crate::draw::Draw;
use crate::record::DirectoryRecord;
use crate::replica::Copy;
use bytes::Bytes;
use std::time::Duration;
use unisono_core::replica::{Answer, Kind, Outcome, StateMachine};
use unisono_core::rpc::{Endpoint, Request, RequestId};

/// First bytes of a newcomer's question for a piece, and of the reply that has it.
const ASKS_FOR_PIECE: u8 = 2;
const IS_PIECE: u8 = 4;
/// Time after which a planted bug does not wait for a majority any more.
const CONFIRMED_WITHIN: Duration = Duration::from_millis(100);

impl Server {
    pub(super) fn take_request(&mut self, cx: &mut Context<'_>, endpoint: &mut Endpoint, request: Request) {
        if request.port == cx.common.transfer.port {
            let reply = self.answer_newcomer(cx, &request.payload);
            _ = endpoint.reply(cx.local, request.id, reply);
        } else if cx.common.watches.as_ref().is_some_and(|watches| watches.port == request.port) {
            self.hold_watch(cx, endpoint, request);
        } else {
            let kind = Copy::kind(&request.payload);
            let waiting = Waiting {
                client: request.client,
                call: request.call,
                kind,
                handler: request.handler().map(handler_number),
                payload: request.payload.clone(),
                arrived: cx.local,
                moment: cx.common.heard.question(),
            };
            self.requests.insert(request.id, waiting);
            if kind == Kind::Command && cx.common.directory.is_some() {
                let name = (cx.recorder.names.life(request.client), request.call);
                cx.note_of_directory(DirectoryRecord::Taken { name, again: request.again });
            }
            let answers_at_once = cx.planted(ServiceBug::LocalReadGivenAsLinearizable);
            if kind == Kind::Read && answers_at_once && self.answer_read_at_once(cx, endpoint, request.id) {
                return;
            }
            self.replica.handle_request(cx.local, request);
        }
    }

    /// Answers reads that no majority has confirmed for a while, if a planted bug does so.
    pub(super) fn answer_unconfirmed(&mut self, cx: &mut Context<'_>, endpoint: &mut Endpoint) {
        if !cx.planted(ServiceBug::MinorityReads) {
            return;
        }
        let is_late =
            |waiting: &Waiting| waiting.kind == Kind::Read && waiting.arrived + CONFIRMED_WITHIN < cx.local;
        let late: Vec<RequestId> =
            self.requests.iter().filter(|(_, waiting)| is_late(waiting)).map(|(id, _)| *id).collect();
        late.into_iter().for_each(|id| _ = self.answer_read_at_once(cx, endpoint, id));
    }

    /// Answers a linearizable read from the state of this server, as planted bugs do. Returns true if it has.
    fn answer_read_at_once(&mut self, cx: &mut Context<'_>, endpoint: &mut Endpoint, id: RequestId) -> bool {
        let Some(Outcome::Reply(reply)) =
            self.requests.get(&id).and_then(|waiting| Some(self.replica.machine()?.read(&waiting.payload)))
        else {
            return false;
        };
        self.answer(cx, endpoint, id, Answer::Reply(reply));
        true
    }

    fn answer_newcomer(&mut self, cx: &mut Context<'_>, question: &Bytes) -> Bytes {
        if let Some(status) = self.replica.answer_status(question, Duration::ZERO) {
            return status;
        }
        if question.first() == Some(&ASKS_FOR_PIECE) && cx.random.chance(cx.common.stumbles) {
            self.donor.forget();
        }
        let replica = &self.replica;
        self.donor.forget_unused(cx.local);
        let reply = self.donor.answer(cx.local, question, |newcomer| replica.present_for(newcomer));
        if reply.first() == Some(&IS_PIECE) && reply.len() > 1 && cx.random.chance(cx.common.spoils) {
            let mut spoiled = reply.to_vec();
            let place = cx.random.between(1, spoiled.len() as u64 - 1) as usize;
            spoiled[place] ^= 1 << cx.random.below(8);
            return spoiled.into();
        }
        reply
    }
}

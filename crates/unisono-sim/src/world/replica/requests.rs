//! What callers and newcomers ask a server.

use super::context::Context;
use super::server::Server;
use crate::draw::Draw;
use crate::replica::Copy;
use bytes::Bytes;
use unisono_core::replica::StateMachine;
use unisono_core::rpc::{Endpoint, Request};

/// First bytes of a newcomer's question for a piece, and of the reply that has it.
const ASKS_FOR_PIECE: u8 = 2;
const IS_PIECE: u8 = 4;

impl Server {
    pub(super) fn take_request(&mut self, cx: &mut Context<'_>, endpoint: &mut Endpoint, request: Request) {
        if request.port == cx.common.transfer.port {
            let reply = self.answer_newcomer(cx, &request.payload);
            _ = endpoint.reply(cx.local, request.id, reply);
        } else {
            let kind = Copy::kind(&request.payload);
            self.requests.insert(request.id, (request.client, request.call, kind));
            self.replica.handle_request(cx.local, request);
        }
    }

    fn answer_newcomer(&mut self, cx: &mut Context<'_>, question: &Bytes) -> Bytes {
        if let Some(status) = self.replica.answer_status(question) {
            return status;
        }
        if question.first() == Some(&ASKS_FOR_PIECE) && cx.random.chance(cx.common.stumbles) {
            self.donor.forget();
        }
        let replica = &self.replica;
        let reply = self.donor.answer(question, || replica.snapshot());
        if reply.first() == Some(&IS_PIECE) && reply.len() > 1 && cx.random.chance(cx.common.spoils) {
            let mut spoiled = reply.to_vec();
            let place = cx.random.between(1, spoiled.len() as u64 - 1) as usize;
            spoiled[place] ^= 1 << cx.random.below(8);
            return spoiled.into();
        }
        reply
    }
}

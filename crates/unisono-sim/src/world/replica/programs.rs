//! What the programs of processes do: clients call the service, servers give commands and look at their state.

use super::ReplicaSide;
use super::context::{Context, barrier_number};
use super::server::{Server, handler_word};
use crate::directory;
use crate::record::{DirectoryRecord, Mode, OpId, ReplicaRecord, hash};
use crate::replica::Op;
use crate::world::World;
use bytes::Bytes;
use std::time::Duration;
use unisono_core::replica::Kind;
use unisono_core::rpc::Wishes;
use unisono_core::{Quality, Uid};

/// What a caller asks a service.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    op: Op,
    mode: Mode,
    handler: Option<u8>,
    quality: Quality,
    payload: Bytes,
}

impl Question {
    /// Returns a question about an object, with this many bytes more.
    pub(crate) fn of_object(op: Op, mode: Mode, padding: usize) -> Question {
        let kind = match mode {
            Mode::Command => Kind::Command,
            Mode::Read => Kind::Read,
            Mode::LocalRead => Kind::LocalRead,
        };
        Question { op, mode, handler: None, quality: Quality::ORDERED, payload: op.write(kind, padding) }
    }

    /// Returns a request to a directory.
    pub(crate) fn of_directory(request: &Bytes) -> Question {
        let mode = match directory::kind(request) {
            Kind::Read => Mode::Read,
            Kind::LocalRead => Mode::LocalRead,
            _ => Mode::Command,
        };
        let (op, payload) = (Op::Directory(hash(request)), directory::payload(request));
        Question { op, mode, handler: None, quality: Quality::ORDERED, payload }
    }

    /// Returns the same question for the holder of a handler.
    pub(crate) fn for_handler(self, handler: Option<u8>) -> Question {
        Question { handler, ..self }
    }

    /// Returns the same question at this quality.
    pub(crate) fn at_quality(self, quality: Quality) -> Question {
        Question { quality, ..self }
    }

    pub(super) fn payload(&self) -> Bytes {
        self.payload.clone()
    }

    pub(super) fn wishes(&self) -> Wishes {
        Wishes { handler: self.handler.map(|handler| handler_word(handler).into()), quality: self.quality }
    }

    pub(crate) fn mode(&self) -> Mode {
        self.mode
    }
}

impl World<ReplicaSide> {
    /// Lets a side act, if a life runs on the process.
    pub(super) fn with<T>(
        &mut self,
        process: usize,
        act: impl FnOnce(&mut ReplicaSide, &mut Context<'_>) -> T,
    ) -> Option<T> {
        let World { processes, recorder, queue, common, random, now, .. } = self;
        let resident = processes[process].resident.as_mut()?;
        let mut cx = Context {
            now: *now,
            local: resident.clock.read(*now),
            process,
            life: resident.life,
            takes_events: resident.takes_events_from <= *now,
            recorder,
            queue,
            common,
            random,
        };
        let result = act(&mut resident.side, &mut cx);
        if let Some(server) = &resident.side.server {
            resident.is_over = server.over.is_some();
        }
        Some(result)
    }

    pub(super) fn pump(&mut self, process: usize) {
        self.with(process, |side, cx| side.pump(cx));
    }

    pub(super) fn begin_question(cx: &mut Context<'_>, name: (Uid, u64), question: &Question) -> OpId {
        let id = Self::begin_op(cx, name, question.mode, question.op);
        if let Some(request) = directory::request_in(&question.payload) {
            cx.note_of_directory(DirectoryRecord::Asked { id, request });
        }
        id
    }

    fn begin_op(cx: &mut Context<'_>, name: (Uid, u64), mode: Mode, op: Op) -> OpId {
        let id = OpId(cx.common.ops_begun);
        cx.common.ops_begun += 1;
        let name = (cx.recorder.names.life(name.0), name.1);
        cx.note(ReplicaRecord::Begun { id, name, mode, op });
        id
    }

    /// Lets a client call the service.
    pub(crate) fn call_service(
        &mut self,
        process: usize,
        question: &Question,
        limit: Duration,
    ) -> Option<OpId> {
        if self.is_paused(process) {
            return None;
        }
        let id = self.with(process, |side, cx| {
            let port = cx.common.service.port;
            let (payload, wishes) = (question.payload(), question.wishes());
            let call = side.endpoint.call_with(cx.local, port, payload, limit, wishes).ok()?;
            let id = Self::begin_question(cx, (side.endpoint.uid(), call), question);
            side.calls.insert(call, id);
            Some(id)
        });
        self.drain(process);
        id.flatten()
    }

    /// Lets a server's own process give a command.
    pub(crate) fn command(&mut self, process: usize, question: &Question, limit: Duration) -> Option<OpId> {
        self.with_copy(process, |server, cx| {
            let number = server.replica.command(cx.local, question.payload.clone(), cx.local + limit);
            let id = Self::begin_question(cx, (server.client, number), question);
            server.own.commands.insert(number, id);
            id
        })
    }

    /// Lets a server claim a handler, or give it up if it holds it.
    pub(crate) fn change_handler(&mut self, process: usize, handler: u8) {
        self.with_copy(process, |server, cx| {
            let (word, me) = (handler_word(handler), server.group.info().me);
            match server.replica.handler_holder(&word) == Some(me) {
                true => server.replica.give_up_handler(&word),
                false => _ = server.replica.claim_handler(&word),
            }
            server.note_steps(cx);
        });
    }

    /// Lets a server's own process look at its state after a barrier.
    pub(crate) fn barrier(&mut self, process: usize, op: Op) -> Option<OpId> {
        let begun = self.with_copy(process, |server, cx| {
            let number = server.replica.barrier().ok()?;
            let id = Self::begin_op(cx, (server.client, barrier_number(number)), Mode::Read, op);
            server.own.barriers.insert(number, (id, op));
            Some(id)
        });
        begun.flatten()
    }

    pub(super) fn with_copy<T>(
        &mut self,
        process: usize,
        act: impl FnOnce(&mut Server, &mut Context<'_>) -> T,
    ) -> Option<T> {
        if self.is_paused(process) {
            return None;
        }
        let result = self.with(process, |side, cx| {
            let server = side.server.as_deref_mut().filter(|server| server.over.is_none())?;
            Some(act(server, cx))
        });
        self.drain(process);
        result.flatten()
    }
}

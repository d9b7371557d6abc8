//! Watches of directories, as a server holds them and a client asks for them.

use super::ReplicaSide;
use super::context::Context;
use super::server::Server;
use crate::bugs::{Planted, ServiceBug};
use crate::directory::{self, Next, Watcher};
use crate::record::DirectoryRecord;
use crate::world::{Trigger, World};
use bytes::Bytes;
use std::time::Duration;
use unisono_core::rpc::{CallFailure, CallNumber, Endpoint, Request, Source};
use unisono_core::{Time, Uid};
use unisono_table::{Answer, Query, Reason, Reply, Request as TableRequest, Table, Watches};

/// Most watches that are looked at at once.
const LOOKED_AT_MAX: usize = 1_024;
/// Why a server does not hold a watch.
const NOT_HERE: &[u8] = b"this server does not serve at present; nothing happened";
/// Marks the jobs of watches among those of operations.
pub(crate) const WATCH: u32 = 1 << 31;

/// The watches that a server holds.
#[derive(Default)]
pub(super) struct Desk {
    watches: Watches<Held, Source>,
    /// Number of the last command when this server began to serve.
    served_from: u64,
}

/// A watch that waits: the request, and who asks under which number.
struct Held {
    request: unisono_core::rpc::RequestId,
    name: (Uid, CallNumber),
    from: u64,
}

/// What became of a client's watch.
#[derive(Clone, Debug)]
pub(crate) enum Seen {
    /// It took a reply.
    Took(Box<Watcher>, Next),
    /// No server answered.
    Nothing,
    /// The servers are of another service.
    OtherService,
}

fn since_begin(now: Time) -> Duration {
    Duration::from_nanos(now.as_nanos())
}

impl Desk {
    /// Returns when a watch gets an empty answer.
    pub(super) fn due_at(&self) -> Option<Time> {
        self.watches.wake_at().map(|due| Time::from_nanos(due.as_nanos() as u64))
    }
}

impl Server {
    /// Holds a watch until there is an answer to it.
    pub(super) fn hold_watch(&mut self, cx: &mut Context<'_>, endpoint: &mut Endpoint, request: Request) {
        let Some(mut question) = directory::request_in(&request.payload) else { return };
        let mut from = 0;
        if let Some(TableRequest::LocalQuery(Query::Changes { place, from: asked })) =
            TableRequest::decode(&question)
        {
            from = asked;
            if cx.common.planted == Some(Planted::Service(ServiceBug::WatchSkipsAtViewChange)) {
                let from = asked.max(self.desk.served_from + 1);
                question = TableRequest::LocalQuery(Query::Changes { place, from }).encode();
            }
        }
        let held = Held { request: request.id, name: (request.client, request.call), from };
        let holder = (request.client.0, request.source);
        let directory = self.replica.machine().and_then(|machine| machine.directory());
        let Some(directory) = directory else {
            _ = endpoint.refuse(cx.local, request.id, Bytes::from_static(NOT_HERE));
            return;
        };
        let table = directory.table();
        match self.desk.watches.take(since_begin(cx.local), holder, held, &question, table) {
            Ok(()) => {}
            Err((held, Some(reply))) => _ = endpoint.reply(cx.local, held.request, directory::answer(&reply)),
            Err((held, None)) => _ = endpoint.refuse(cx.local, held.request, Bytes::from_static(NOT_HERE)),
        }
    }

    /// Answers the watches that have an answer. Returns true if there were any.
    pub(super) fn answer_watches(&mut self, cx: &mut Context<'_>, endpoint: &mut Endpoint) -> bool {
        if !self.is_copy() {
            return false;
        }
        let service = self.service();
        let Some(directory) = self.replica.machine().and_then(|machine| machine.directory()) else {
            return false;
        };
        let table = directory.table();
        let answered = self.desk.watches.answer(since_begin(cx.local), table, LOOKED_AT_MAX);
        let ends_silently = cx.common.planted == Some(Planted::Service(ServiceBug::WatchEndsSilently));
        let has_answered = !answered.is_empty();
        for (held, reply) in answered {
            let reply = if ends_silently { without_end(table, &reply).unwrap_or(reply) } else { reply };
            if endpoint.reply(cx.local, held.request, directory::answer(&reply)).is_ok() {
                let service = cx.common.service_of(service);
                let name = (cx.recorder.names.life(held.name.0), held.name.1);
                cx.note_of_directory(DirectoryRecord::WatchAnswered { service, name, from: held.from });
            }
        }
        has_answered
    }

    /// Sends all watchers elsewhere.
    pub(super) fn give_watches_up(&mut self, cx: &mut Context<'_>, endpoint: &mut Endpoint) {
        let held: Vec<Held> = self.desk.watches.give_up().collect();
        for held in held {
            _ = endpoint.refuse(cx.local, held.request, Bytes::from_static(NOT_HERE));
        }
    }

    /// Notes with what this server begins to serve.
    pub(super) fn open_desk(&mut self) {
        let directory = self.replica.machine().and_then(|machine| machine.directory());
        self.desk.served_from = directory.map_or(0, |directory| directory.table().number());
    }
}

/// Returns, in the place of an answer that the history ends, one without changes.
fn without_end(table: &Table, reply: &Bytes) -> Option<Bytes> {
    let reply = Reply::decode(reply)?;
    let Err(refusal) = reply.result else { return None };
    matches!(refusal.reason, Reason::NoLongerKept { .. }).then(|| {
        let result = Ok(Answer::Changes { changes: Vec::new(), next: table.number() + 1 });
        Reply { result, ..reply }.encode()
    })
}

impl ReplicaSide {
    /// Takes the outcome of a call if it is one of a watch.
    pub(super) fn take_watched(
        &mut self,
        cx: &mut Context<'_>,
        call: CallNumber,
        result: &Result<Bytes, CallFailure>,
    ) -> bool {
        let Some((watch, watcher)) = self.watching.remove(&call) else { return false };
        let seen = match result {
            Ok(answer) => self.take_reply(cx, (watch, call), watcher, answer),
            Err(CallFailure::OtherInstance) => {
                cx.common.watches.iter().for_each(|port| self.endpoint.forget_instance(cx.local, port.port));
                Seen::OtherService
            }
            Err(_) => Seen::Nothing,
        };
        cx.common.seen.insert(watch, seen);
        let (process, life) = (cx.process as u16, cx.life);
        cx.trigger(Trigger::Work { process, life, job: WATCH | watch });
        true
    }

    /// Lets a watcher take a reply, and notes it if it counts for the watch.
    fn take_reply(
        &self,
        cx: &mut Context<'_>,
        (watch, call): (u32, CallNumber),
        mut watcher: Box<Watcher>,
        answer: &Bytes,
    ) -> Seen {
        let Some(reply) = directory::answer_in(answer) else { return Seen::Nothing };
        let port = cx.common.watches.as_ref().map(|watches| watches.port);
        let instance = port.and_then(|port| self.endpoint.instance_of(port));
        let trusts = cx.common.planted == Some(Planted::Service(ServiceBug::PositionWithoutInstance));
        let request = watcher.request();
        let next = watcher.take(instance, &reply, trusts);
        if next != Next::OtherInstance {
            let name = (cx.recorder.names.life(self.endpoint.uid()), call);
            cx.note_of_directory(DirectoryRecord::Watched { watch, name, request, reply });
        }
        Seen::Took(watcher, next)
    }
}

impl World<ReplicaSide> {
    /// Lets a client watch a directory, at any server.
    pub(crate) fn watch(&mut self, process: usize, watch: u32, watcher: Watcher, limit: Duration) -> bool {
        let request = watcher.request();
        let begun = self.with(process, |side, cx| {
            let port = cx.common.watches.as_ref()?.port;
            let call = side.endpoint.call(cx.local, port, directory::payload(&request), limit).ok()?;
            side.watching.insert(call, (watch, Box::new(watcher)));
            Some(())
        });
        self.drain(process);
        begun.flatten().is_some()
    }
}

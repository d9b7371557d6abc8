//! What a server does for its copy: it carries out the copy's outputs.

use super::EffectKind;
use super::context::{Context, barrier_number, refusal};
use super::server::{Over, Server, Waiting};
use crate::record::{DirectoryRecord, OpOutcome, ReplicaRecord, Stop};
use crate::replica::Reply;
use crate::world::CallService;
use crate::world::disk::DiskInUse;
use bytes::Bytes;
use std::time::Duration;
use unisono_core::Phase;
use unisono_core::replica::{Answer, CommandFailure, Kind, NO_COPY, Output, StopReason, instance_of};
use unisono_core::rpc::{CallFailure, Endpoint, ForwardError, RequestId, ServeOptions};

impl Server {
    pub(super) fn take_outputs(&mut self, cx: &mut Context<'_>, endpoint: &mut Endpoint) -> bool {
        let mut moved = false;
        while let Some(output) = self.replica.poll_output() {
            moved = true;
            match output {
                Output::Submit(message, quality) => self.to_send.push_back((message, quality)),
                Output::Store(number, job) => self.begin_job(cx, number, *job),
                Output::Reenter => {
                    self.leave_service(cx, endpoint);
                    self.end_part(cx, Over::Reenters);
                }
                Output::Answer(id, answer) => self.answer(cx, endpoint, id, answer),
                Output::Confirm => self.wants_confirmation = true,
                Output::Fetch { call, to, request } => {
                    let (port, limit) = (cx.common.transfer.port, cx.common.fetch_limit);
                    match endpoint.call_at(cx.local, port, to, request, limit) {
                        Ok(number) => _ = self.fetches.insert(number, call),
                        Err(_) => self.replica.handle_fetched(cx.local, call, Err(CallFailure::Failed)),
                    }
                }
                Output::Done(number, result) => {
                    if let (Ok(done), Some(id)) = (&result, self.own.commands.get(&number)) {
                        cx.note_answer(*id, &done.reply);
                    }
                    let outcome = match result {
                        Ok(done) => Reply::read(&done.reply).map_or(OpOutcome::Unknown, OpOutcome::Replied),
                        Err(CommandFailure::Refused(reason)) => refusal(&reason),
                        Err(CommandFailure::Unknown) => OpOutcome::Unknown,
                        Err(_) => OpOutcome::NotHappened,
                    };
                    if let Some(id) = self.own.commands.remove(&number) {
                        cx.end_op(id, outcome);
                    }
                }
                Output::Ready(number) if self.own.backups.contains_key(&number) => self.back_up(cx, number),
                Output::Ready(number) => {
                    let machine = self.replica.machine();
                    if let Some((id, op)) = self.own.barriers.remove(&number)
                        && let Some(machine) = machine
                    {
                        let reply = machine.look(op);
                        let service = cx.common.service_of(self.service());
                        let name = (cx.recorder.names.life(self.client), barrier_number(number));
                        cx.note(ReplicaRecord::Looked { service, name });
                        cx.end_op(id, OpOutcome::Replied(reply));
                    }
                }
                Output::Informed => self.serve(cx, endpoint),
                Output::Note { note, at_once } => self.group.set_note(cx.local, note, at_once),
                Output::StateFetched => self.group.note_state(),
                Output::Stop(reason) => self.stop(cx, endpoint, &reason),
                Output::Notice(notice) => {
                    let who = format!("m{}/{}", cx.process, cx.life.0);
                    cx.recorder.trace(cx.now, &who, format_args!("notice {notice:?}"));
                }
                _ => {}
            }
        }
        moved
    }

    fn serve(&mut self, cx: &mut Context<'_>, endpoint: &mut Endpoint) {
        self.note_steps(cx);
        let instance = instance_of(self.service());
        let CallService { private, options, .. } = cx.common.service.clone();
        // A founder that gave way to another group begins to serve anew.
        endpoint.withdraw(cx.common.service.port);
        _ = endpoint.serve(private, ServeOptions { instance, ..options });
        if let Some(CallService { private, port, .. }) = cx.common.watches.clone() {
            endpoint.withdraw(port);
            _ = endpoint.serve(private, ServeOptions { instance, ..ServeOptions::default() });
            self.open_desk();
        }
        self.serves = true;
        cx.note_effect(EffectKind::Serves);
        if let Some(at) = self.place(cx) {
            self.note_replayed(cx, at);
            cx.note(ReplicaRecord::Informed(at));
        }
    }

    fn stop(&mut self, cx: &mut Context<'_>, endpoint: &mut Endpoint, reason: &StopReason) {
        let stop = match reason {
            StopReason::Differs { since, through } => Stop::Differs(*since, *through),
            StopReason::GivesWay { .. } => Stop::GivesWay,
            StopReason::StateLost => Stop::StateLost,
            StopReason::Panicked { .. } => Stop::Other("panicked"),
            StopReason::DiskHangs => {
                let idle = self.disk.as_ref().map_or(Duration::ZERO, |disk| disk.idle(cx.local));
                Stop::DiskHangs { idle }
            }
            StopReason::DiskFailed(reason) => match self.disk.as_ref().is_some_and(DiskInUse::has_refused) {
                true => Stop::DiskRefused(reason.clone()),
                false => Stop::DiskFailed,
            },
            StopReason::ReplaceNeeded => Stop::ReplaceNeeded,
            StopReason::DiskGivenUp => Stop::GivenUp,
            StopReason::NothingLost => Stop::NothingLost,
            StopReason::NotRestored(reason) => Stop::Other(reason.0),
            _ => Stop::Other("for a reason that the simulator does not know"),
        };
        let at = self.place(cx);
        self.stop = Some(stop.clone());
        cx.note(ReplicaRecord::Stopped { at, reason: stop });
        self.leave_service(cx, endpoint);
        self.end_part(cx, Over::Stopped);
    }

    /// Ends the member's life in the group at once, and its service.
    pub(super) fn leave_service(&mut self, cx: &mut Context<'_>, endpoint: &mut Endpoint) {
        if self.group.phase() != Phase::Gone {
            // The others know nothing of the end, so they treat it as a crash.
            cx.recorder.crashed.push(endpoint.uid());
        }
        self.group.end(cx.local);
        cx.note(ReplicaRecord::EndedAtOnce);
        self.give_watches_up(cx, endpoint);
        endpoint.withdraw(cx.common.service.port);
        endpoint.withdraw(cx.common.transfer.port);
        if let Some(port) = cx.common.watches.as_ref().map(|watches| watches.port) {
            endpoint.withdraw(port);
        }
        endpoint.end_calls(cx.local);
        self.fetches.clear();
    }

    pub(super) fn answer(
        &mut self,
        cx: &mut Context<'_>,
        endpoint: &mut Endpoint,
        id: RequestId,
        answer: Answer,
    ) {
        let request = self.requests.remove(&id);
        let is_refused = matches!(answer, Answer::Refuse(_));
        let given = match answer {
            Answer::Reply(reply) => endpoint.reply(cx.local, id, reply).is_ok(),
            Answer::Deny(reply) => endpoint.deny(cx.local, id, reply).is_ok(),
            Answer::Refuse(reason) => {
                let is_reply = Reply::read(&reason).is_some();
                endpoint.refuse(cx.local, id, reason).is_ok() && is_reply
            }
            Answer::NoCopy => {
                _ = endpoint.refuse(cx.local, id, Bytes::from_static(NO_COPY));
                false
            }
            Answer::GoOn { shows_right } => {
                endpoint.go_on(cx.local, id, shows_right);
                false
            }
            Answer::Forward(to) => {
                if let Err(ForwardError::TooFar { .. }) = endpoint.forward(id, to) {
                    _ = endpoint.refuse(cx.local, id, Bytes::from_static(b"passed on too often"));
                }
                false
            }
        };
        if given && let Some(Waiting { client, call, kind, handler, moment, .. }) = request {
            let name = (cx.recorder.names.life(client), call);
            if kind == Kind::Read && cx.common.directory.is_some() {
                let heard = cx.common.heard.count(self.address, moment);
                cx.note_of_directory(DirectoryRecord::Confirmed { name, heard });
            }
            if let Some(handler) = handler.filter(|_| !is_refused) {
                cx.note(ReplicaRecord::AnsweredFor { handler, name });
            }
            let service = cx.common.service_of(self.service());
            cx.note(ReplicaRecord::Answered { service, name, confirmed: kind != Kind::LocalRead });
        }
    }
}

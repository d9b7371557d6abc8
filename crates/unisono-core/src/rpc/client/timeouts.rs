//! Timeouts of a client: calls end, requests are sent again or asked about, servers are given up.
//!
//! `wake` is never later than the first deadline. It may be earlier, because calls that end leave it as it is. When it
//! is reached, all deadlines are checked and `wake` is set anew. So a call costs nothing here in the normal case.

use super::Client;
use super::call::{Call, SoFar, Stage};
use super::locate::Known;
use super::placing::why_it_waits;
use super::remote::{Remote, Standing};
use crate::identity::{Port, Uid};
use crate::planted::Planted;
use crate::rpc::common::{Common, To};
use crate::rpc::types::CallNumber;
use crate::table::Table;
use crate::time::{Time, earlier};
use crate::wire::{DONE_MAX, Frame};
use alloc::vec::Vec;
use core::net::SocketAddr;

/// Action that is due for a call.
enum Due {
    Nothing(Option<Time>),
    End,
    /// Ask the server about the attempt in this slot; the time is when the call is given up at the latest.
    Ask(Uid, u16, Time),
    /// Give the server up for this call and its port.
    GiveUp(Uid, Port),
}

impl Client {
    pub(in crate::rpc) fn handle_timeout(&mut self, now: Time, common: &mut Common) {
        if self.wake.is_none_or(|wake| now < wake) {
            return;
        }
        self.wake = None;
        self.remote_timeouts(now, common);
        self.call_timeouts(now, common);
        let targets: Vec<(Port, SocketAddr)> = self.targets.keys().copied().collect();
        for (port, to) in targets {
            self.target_timeout(now, common, port, to);
        }
        self.port_timeouts(now, common);
    }

    /// Acknowledges answers, and gives up servers that have owed one for too long.
    fn remote_timeouts(&mut self, now: Time, common: &mut Common) {
        let (mut silent, mut quiet) = (Vec::new(), Vec::new());
        let mut next = None;
        let finished_below = self.finished_below();
        for (uid, remote) in self.remotes.iter_mut() {
            if remote.done_at.is_some_and(|at| at <= now) {
                remote.done_at = None;
                loop {
                    let attempts = remote.take_unacknowledged(DONE_MAX);
                    if attempts.is_empty() {
                        break;
                    }
                    common.post_to(To::Server(uid), Frame::Done { to: uid, finished_below, attempts });
                }
            }
            next = earlier(next, remote.done_at);
            match remote.asked_since.map(|since| since + common.settings.silence) {
                Some(until) if until <= now => silent.push(uid),
                until => next = earlier(next, until),
            }
            let looks_at = match remote.standing {
                Standing::Quiet(ask_at) => Some(ask_at),
                _ => remote.quiet_from(now),
            };
            match looks_at {
                Some(at) if at <= now => quiet.push(uid),
                at => next = earlier(next, at),
            }
        }
        if let Some(at) = next {
            self.wake_by(at);
        }
        for uid in silent {
            self.lose_server(now, common, uid, None);
        }
        for uid in quiet {
            self.ask_quiet_server(now, common, uid);
        }
        self.relieve_quiet_servers(now, common);
    }

    fn call_timeouts(&mut self, now: Time, common: &mut Common) {
        let mut due: Vec<(CallNumber, Due)> = Vec::new();
        let mut next = None;
        for call in self.calls.iter_mut() {
            match what_is_due(now, common, call, (&self.ports, &self.remotes)) {
                Due::Nothing(at) => next = earlier(next, at),
                other => due.push((call.number, other)),
            }
        }
        if let Some(at) = next {
            self.wake_by(at);
        }
        for (number, what) in due {
            match what {
                Due::End => {
                    let denies = common.broken(Planted::LateIsFailed);
                    let failure = self.get_mut(number).map(|call| {
                        match call.sent_ref().map(|sent| sent.first_at) {
                            Some(Some(_)) if !denies => call.note(SoFar::Unclear),
                            Some(None) if call.so_far == SoFar::NoServerFound => call.note(SoFar::NotTaken),
                            _ => {}
                        }
                        call.so_far.failure()
                    });
                    if let Some(failure) = failure {
                        self.finish(now, common, number, Err(failure), false);
                    }
                }
                Due::Ask(server, slot, until) => {
                    self.send_slot(server, slot);
                    self.wake_by(until);
                }
                Due::GiveUp(server, port) => {
                    common.counters.given_up += 1;
                    self.forget_service(server, port);
                    self.lose_attempt(now, common, number, true);
                }
                Due::Nothing(_) => {}
            }
        }
    }

    /// Checks calls that wait for a server, and questions for servers.
    fn port_timeouts(&mut self, now: Time, common: &mut Common) {
        let ports: Vec<Port> = self.ports.iter().map(|(port, _)| port).collect();
        for port in ports {
            let Some(known) = self.ports.get_mut(port) else { continue };
            let calls = &self.calls;
            known
                .waiting
                .retain(|number| calls.get(super::index(*number)).is_some_and(|call| call.waits_as(*number)));
            self.place(now, common, port);
            self.question_timeout(now, common, port);
        }
    }
}

fn what_is_due(
    now: Time,
    common: &Common,
    call: &mut Call,
    (ports, remotes): (&Table<Known, Port>, &Table<Remote>),
) -> Due {
    if let Stage::Waiting = call.stage
        && let Some(so_far) = ports.get(call.port).and_then(why_it_waits)
    {
        call.note(so_far);
        if so_far == SoFar::PushedBack {
            call.waits_since = now;
        }
    }
    let (deadline, may_have_happened) = (call.deadline, call.may_have_happened());
    if deadline <= now && !common.broken(Planted::DeadlineForgotten) {
        return Due::End;
    }
    match &mut call.stage {
        Stage::Sent(sent) => {
            // What the server owed before it got this call does not count.
            let silent_at = call.silence.zip(sent.first_at).and_then(|(silence, first)| {
                let remote = remotes.get(sent.server)?;
                Some(remote.silent_from(now, remote.asked_since?.max(first), silence))
            });
            if silent_at.is_some_and(|at| at <= now) {
                return Due::GiveUp(sent.server, call.port);
            }
            if let Some(transfer) = &mut sent.request {
                transfer.handle_timeout(now);
            }
            if sent.ask_at <= now {
                // Set again when the question is sent.
                sent.ask_at = Time::NEVER;
                return Due::Ask(sent.server, sent.slot, silent_at.map_or(deadline, |at| at.min(deadline)));
            }
            let transfer = sent.request.as_ref().and_then(|transfer| transfer.resend_at());
            Due::Nothing(earlier(earlier(transfer, silent_at), Some(deadline.min(sent.ask_at))))
        }
        // A call that may have been executed waits for its outcome until its deadline.
        Stage::Waiting if !may_have_happened => match call.waits_since + common.settings.locate {
            until if until <= now => Due::End,
            until => Due::Nothing(Some(until.min(deadline))),
        },
        Stage::Waiting | Stage::Following(_) => Due::Nothing(Some(deadline)),
    }
}

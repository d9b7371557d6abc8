//! The client's side of an endpoint: calls, and the servers they go to.
//!
//! This file has the application's operations. `locate` finds the servers of a port, `placing` chooses a server for a
//! call, `call`, `remote` and `service` describe calls, servers and their services, `sending` writes requests,
//! `answers` handles replies, `forward` follows calls that were passed on, `losing` handles calls whose server does not
//! take them or is lost, `avoids` has the servers that a call leaves alone for a while, `quiet` handles calls whose server
//! answers late, `timeouts` does what is due with time.

mod answers;
mod avoids;
mod call;
mod forward;
mod locate;
mod losing;
mod placing;
mod quiet;
mod remote;
mod sending;
mod service;
mod timeouts;

use super::agreement::Pair;
use super::common::{Common, To};
use super::slab::Slab;
use super::types::{CallDestination, CallError, CallFailure, CallNumber};
use crate::identity::{Port, Uid};
use crate::table::Table;
use crate::time::Time;
use crate::wire::{Attempt, DONE_MAX, Frame, Wishes};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use avoids::Avoids;
use bytes::Bytes;
use call::{Call, SoFar, Stage};
use core::net::SocketAddr;
use core::time::Duration;
use forward::Target;
use locate::Known;
use remote::Remote;

/// Maximum number of calls of one endpoint that are under way, plus outcomes that were not taken.
pub(super) const CALLS_MAX: usize = 1 << 16;

#[derive(Default)]
pub(super) struct Client {
    pub(super) calls: Slab<Call>,
    /// Number of calls begun.
    begun: u64,
    /// Number of attempts made.
    attempts: u64,
    /// Calls in the order of their numbers: all that are under way, and some that have ended.
    in_order: VecDeque<CallNumber>,
    outcomes: VecDeque<(CallNumber, Result<Bytes, CallFailure>)>,
    ports: Table<Known, Port>,
    pub(super) remotes: Table<Remote>,
    /// Servers with requests to send.
    due: VecDeque<Uid>,
    /// Calls with a large request being sent, and the attempt.
    sending: VecDeque<(CallNumber, u64)>,
    /// Addresses that calls were passed on to, until it is known whether they serve the port.
    targets: BTreeMap<(Port, SocketAddr), Target>,
    /// Bytes of large replies that are incomplete.
    receiving_bytes: usize,
    wake: Option<Time>,
}

impl Client {
    pub(super) fn call(
        &mut self,
        now: Time,
        common: &mut Common,
        (port, pinned): (Port, Option<SocketAddr>),
        (request, wishes): (Bytes, Wishes),
        (within, silence): (Duration, Option<Duration>),
    ) -> Result<CallNumber, CallError> {
        let max = common.settings.message_bytes_max;
        if request.len() > max {
            return Err(CallError::TooLarge { bytes: request.len(), max });
        }
        if wishes.handler.as_ref().is_some_and(|handler| !Wishes::is_handler(handler)) {
            return Err(CallError::BadHandler);
        }
        if self.calls.len() + self.outcomes.len() >= CALLS_MAX || !self.has_capacity_for(port) {
            return Err(CallError::TooMany);
        }
        self.begun += 1;
        common.counters.calls += 1;
        let number = self.begun * CALLS_MAX as u64 + u64::from(self.calls.next_index());
        let deadline = now + within;
        self.calls.insert(Call {
            number,
            port,
            request,
            wishes: Some(wishes).filter(|wishes| *wishes != Wishes::default()).map(Box::new),
            deadline,
            silence,
            hops: 0,
            stage: Stage::Waiting,
            waits_since: now,
            so_far: SoFar::NoServerFound,
            avoids: Avoids::NONE,
            pinned,
            instance: 0,
        });
        self.note_order(number);
        self.wake_by(deadline);
        self.wait_for_server(now, common, number);
        Ok(number)
    }

    pub(super) fn cancel(&mut self, now: Time, common: &mut Common, number: CallNumber) {
        if let Some(port) = self.take_out(now, common, number, false) {
            self.place(now, common, port);
        }
    }

    pub(super) fn poll_outcome(&mut self) -> Option<(CallNumber, Result<Bytes, CallFailure>)> {
        self.outcomes.pop_front()
    }

    /// Returns what this client has agreed on with a server.
    pub(super) fn pair(&mut self, server: Uid) -> Option<&mut (dyn Pair + 'static)> {
        self.remotes.get_mut(server).map(|remote| &mut *remote.pair)
    }

    /// Returns where frames to a server go.
    pub(super) fn address(&self, server: Uid) -> Option<CallDestination> {
        self.remotes.get(server).map(|remote| CallDestination::Address(remote.address))
    }

    /// Returns the call of this number, if it is under way.
    pub(super) fn get_mut(&mut self, number: CallNumber) -> Option<&mut Call> {
        self.calls.get_mut(index(number)).filter(|call| call.number == number)
    }

    fn note_order(&mut self, number: CallNumber) {
        if self.in_order.len() >= 2 * CALLS_MAX {
            // A call that takes long keeps later ones that have ended in this list.
            let calls = &self.calls;
            let is_under_way =
                |number: CallNumber| calls.get(index(number)).is_some_and(|call| call.number == number);
            self.in_order.retain(|number| is_under_way(*number));
        }
        self.in_order.push_back(number);
    }

    /// Returns the lowest number of a call that is under way; above all numbers if there is none.
    fn first_unfinished(&mut self) -> CallNumber {
        while let Some(&number) = self.in_order.front() {
            if self.get_mut(number).is_some() {
                return number;
            }
            self.in_order.pop_front();
        }
        CallNumber::MAX
    }

    /// Returns a number below which this client knows the outcomes of all its calls.
    fn finished_below(&mut self) -> CallNumber {
        self.first_unfinished().min((self.begun + 1) * CALLS_MAX as u64)
    }

    /// Ends all calls, and informs all servers with a session that this life needs no reply any more.
    pub(super) fn end(&mut self, now: Time, common: &mut Common) {
        let under_way: Vec<CallNumber> = self.calls.iter().map(|call| call.number).collect();
        for number in under_way {
            self.take_out(now, common, number, false);
        }
        let finished_below = self.finished_below();
        for (to, remote) in self.remotes.iter_mut().filter(|(_, remote)| remote.is_established) {
            remote.done_at = None;
            loop {
                // Also without an answer to acknowledge, because of the calls that were given up.
                let attempts = remote.take_unacknowledged(DONE_MAX);
                let is_last = attempts.len() < DONE_MAX;
                common.post_to(To::Server(to), Frame::Done { to, finished_below, attempts });
                if is_last {
                    break;
                }
            }
        }
    }

    /// Ends a call with an outcome. If `answered` is true, its server keeps the answer until it is acknowledged.
    pub(super) fn finish(
        &mut self,
        now: Time,
        common: &mut Common,
        number: CallNumber,
        outcome: Result<Bytes, CallFailure>,
        answered: bool,
    ) {
        if let Some(port) = self.take_out(now, common, number, answered) {
            self.outcomes.push_back((number, outcome));
            self.place(now, common, port);
        }
    }

    /// Ends a call at whatever stage and returns its port. A server that may still have it unanswered gets `Cancel`.
    fn take_out(
        &mut self,
        now: Time,
        common: &mut Common,
        number: CallNumber,
        answered: bool,
    ) -> Option<Port> {
        let port = self.get_mut(number)?.port;
        self.leave_server(now, common, number, answered);
        self.calls.remove(index(number));
        Some(port)
    }

    /// Ends the call's attempt, if there is one, and frees its slot. The server gets `Cancel`, unless it has answered.
    fn leave_server(&mut self, now: Time, common: &mut Common, number: CallNumber, answered: bool) {
        let Some(call) = self.get_mut(number) else { return };
        let port = call.port;
        let Stage::Sent(sent) = core::mem::replace(&mut call.stage, Stage::Waiting) else { return };
        if let Some(reply) = &sent.reply {
            self.receiving_bytes -= reply.1.total();
        }
        let Some(remote) = self.remotes.get_mut(sent.server) else { return };
        if !answered && sent.first_at.is_some() {
            let attempt = Attempt { to: sent.server, slot: sent.slot, number: sent.number };
            common.post_to(To::Server(sent.server), Frame::Cancel { attempt });
        }
        remote.free_slot(now, port, sent.slot, answered && !common.is_hostile());
    }

    pub(super) fn receiving_bytes(&self) -> usize {
        self.receiving_bytes
    }

    pub(super) fn wake_at(&self) -> Option<Time> {
        self.wake
    }

    fn wake_by(&mut self, at: Time) {
        self.wake = Some(self.wake.map_or(at, |wake| wake.min(at)));
    }
}

/// Returns the index of a call, which is part of its number.
fn index(number: CallNumber) -> u32 {
    (number % CALLS_MAX as u64) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ended_is_forgotten_though_a_call_before_it_goes_on() {
        let (mut client, first) = (Client::default(), CALLS_MAX as u64);
        client.calls.insert(Call {
            number: first,
            port: Port(1),
            request: Bytes::new(),
            wishes: None,
            deadline: Time::NEVER,
            silence: None,
            hops: 0,
            stage: Stage::Waiting,
            waits_since: Time::ZERO,
            so_far: SoFar::NoServerFound,
            avoids: Avoids::NONE,
            pinned: None,
            instance: 0,
        });
        for number in first..first + 1_000_000 {
            client.note_order(number);
            assert!(client.in_order.len() <= 2 * CALLS_MAX);
        }
        assert_eq!(client.first_unfinished(), first);
    }
}

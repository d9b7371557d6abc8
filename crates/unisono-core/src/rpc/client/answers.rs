//! Answers of servers about attempts.

use super::Client;
use super::call::{Call, SoFar};
use super::remote::Remote;
use crate::identity::Uid;
use crate::planted::{Planted, Probe};
use crate::rpc::common::{Common, Sender, To};
use crate::rpc::transfer::{Incoming, RECEIVING_BYTES_MAX};
use crate::rpc::types::{CallFailure, CallNumber, NOTHING_HAPPENED};
use crate::time::Time;
use crate::wire::{Attempt, Frame, Got, Grant, Part, Payload, Rejection, Reply, Unopened, Unreadable};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use bytes::Bytes;
use core::time::Duration;

impl Client {
    pub(in crate::rpc) fn handle_reply(
        &mut self,
        now: Time,
        common: &mut Common,
        from: Sender,
        reply: Reply,
    ) {
        let Some(number) = self.hear(now, common, from, reply.attempt, Some(reply.grant)) else {
            return self.acknowledge_again(common, from, reply.attempt);
        };
        self.note_taken(now, from.uid, number);
        match reply.payload {
            Payload::Whole(bytes) => {
                self.finish_with(now, common, number, (reply.refused, bytes));
            }
            Payload::Parts { total, part } => {
                let fits = self.receiving_bytes + total as usize <= RECEIVING_BYTES_MAX;
                self.note_there(number);
                let Some(sent) = self.get_mut(number).and_then(Call::sent) else { return };
                // A reply that finds no capacity now is requested again.
                if sent.reply.is_none() && fits {
                    sent.reply = Some(Box::new((reply.refused, Incoming::new(now, total, part))));
                    self.receiving_bytes += total as usize;
                }
            }
            Payload::Omitted => common.counters.malformed += 1,
        }
    }

    pub(in crate::rpc) fn handle_working(
        &mut self,
        now: Time,
        common: &mut Common,
        from: Sender,
        attempt: Attempt,
        grant: Grant,
    ) {
        let Some(number) = self.hear(now, common, from, attempt, Some(grant)) else { return };
        self.note_taken(now, from.uid, number);
        self.note_there(number);
    }

    pub(in crate::rpc) fn handle_reject(
        &mut self,
        now: Time,
        common: &mut Common,
        from: Sender,
        (attempt, grant): (Attempt, Grant),
        reason: Rejection,
    ) {
        let grant = (!matches!(reason, Rejection::ShowCookie(_))).then_some(grant);
        let Some(number) = self.hear(now, common, from, attempt, grant) else {
            return self.acknowledge_again(common, from, attempt);
        };
        match reason {
            Rejection::ShowCookie(cookie) => self.show_cookie(now, common, number, cookie),
            Rejection::Busy => self.go_on_from_busy(now, common, from.uid, number),
            Rejection::NotServed => {
                if let Some(port) = self.get_mut(number).map(|call| call.port) {
                    self.forget_server(from.uid, port);
                }
                self.go_elsewhere(now, common, number, SoFar::NotTaken, None);
            }
            Rejection::Expired | Rejection::Cancelled => {
                let so_far = self.get_mut(number).map(|call| {
                    call.note(SoFar::NotTaken);
                    call.so_far.failure()
                });
                let Some(failure) = so_far else { return };
                self.finish(now, common, number, Err(failure), true);
            }
            Rejection::Lost => self.lose_attempt(now, common, number, false),
        }
    }

    /// Handles a server that has no room for this call.
    fn go_on_from_busy(&mut self, now: Time, common: &mut Common, server: Uid, number: CallNumber) {
        common.counters.pushed_back += 1;
        common.probe(Probe::PushedBack);
        // A large request may be rejected where small calls still fit.
        let Some(call) = self.get_mut(number) else { return };
        let port = call.port;
        let avoids = call.sent().filter(|sent| sent.request.is_some()).map(|_| server);
        if let Some(remote) = self.remotes.get_mut(server)
            && let Some(service) = remote.service_mut(port)
            && avoids.is_none()
        {
            service.note_busy(now);
            if common.is_hostile() {
                service.hurry();
            }
        }
        self.go_elsewhere(now, common, number, SoFar::PushedBack, avoids);
    }

    /// Handles the answer to a datagram that was not taken. It concerns the attempts that were sent in that datagram and
    /// not again since.
    ///
    /// The server answers each copy of the datagram, also one that another process sent from another address. So the
    /// demand for a cookie ends no attempt: if the session is forgotten, the server's silence about the attempt does.
    pub(in crate::rpc) fn handle_unopened(
        &mut self,
        now: Time,
        common: &mut Common,
        from: Sender,
        Unopened { binding, number, reason }: Unopened,
    ) {
        let is_asked = |(uid, remote): &(Uid, &mut Remote)| {
            let is_there = remote.address == from.address || common.broken(Planted::AnswerFromAnywhere);
            is_there && binding == Unopened::binding(common.me, *uid, remote.address)
        };
        let (of, remote) = self.remotes.iter_mut().find(is_asked).unzip();
        let under_way = remote.as_ref().into_iter().flat_map(|remote| &remote.slots);
        let under_way = under_way.filter_map(|slot| slot.call);
        let calls = &self.calls;
        let asks_for_cookie = matches!(reason, Unreadable::ShowCookie(_));
        let is_concerned = |call: &CallNumber| {
            let sent = calls.get(super::index(*call)).and_then(Call::sent_ref);
            sent.is_some_and(|sent| {
                sent.in_packet == number && !(asks_for_cookie && sent.may_be_forgotten(now))
            })
        };
        let concerned: Vec<CallNumber> = under_way.filter(is_concerned).collect();
        // Only another life says that it is one.
        let is_other_life = matches!(reason, Unreadable::OtherLife { .. });
        let (Some(of), Some(remote), false) = (of, remote, concerned.is_empty()) else {
            common.counters.stale += 1;
            return;
        };
        if is_other_life == (from.uid == of) {
            common.counters.stale += 1;
            return;
        }
        if let Unreadable::OtherLife { age_ms } = reason {
            let age = Duration::from_millis(age_ms);
            // A life older than the last answer of the dead one was not at this address all the time: addresses move.
            let dead_for = (age < now.since(remote.heard_at)).then_some(age);
            return self.lose_server(now, common, of, dead_for);
        }
        remote.note_heard(now, remote.grant);
        for call in concerned {
            match reason {
                Unreadable::ShowCookie(cookie) => self.show_cookie(now, common, call, cookie),
                _ => self.go_on_from_busy(now, common, of, call),
            }
        }
    }

    pub(in crate::rpc) fn handle_part(&mut self, now: Time, common: &mut Common, from: Sender, part: &Part) {
        let Some(number) = self.hear(now, common, from, part.attempt, None) else {
            return self.acknowledge_again(common, from, part.attempt);
        };
        let Some(sent) = self.get_mut(number).and_then(Call::sent) else { return };
        // A part that arrives before its announcement is sent again.
        let Some(reply) = &mut sent.reply else { return };
        let Some(tells) = reply.1.take(now, part.index, &part.bytes) else {
            common.counters.malformed += 1;
            return;
        };
        if tells {
            let attempt = Attempt { to: from.uid, ..part.attempt };
            common.post_to(To::Server(from.uid), Frame::Got(reply.1.got(attempt, true)));
        }
        if reply.1.is_whole()
            && let Some(whole) = sent.reply.take()
        {
            let (refused, mut reply) = *whole;
            self.receiving_bytes -= reply.total();
            common.probe(Probe::ReplyPutTogether);
            let bytes = reply.take_bytes();
            self.finish_with(now, common, number, (refused, bytes));
        }
    }

    /// Ends a call with the reply or refusal of a server. A refusal that speaks of its own attempt alone says nothing of an
    /// earlier one that another server may have executed.
    fn finish_with(
        &mut self,
        now: Time,
        common: &mut Common,
        number: CallNumber,
        (refused, bytes): (bool, Bytes),
    ) {
        let is_unclear = self.get_mut(number).is_some_and(|call| call.may_have_happened());
        let outcome = match refused {
            false => Ok(bytes),
            true if is_unclear && bytes.ends_with(NOTHING_HAPPENED) => Err(CallFailure::Unknown),
            true => Err(CallFailure::Refused(bytes)),
        };
        self.finish(now, common, number, outcome, true);
    }

    pub(in crate::rpc) fn handle_got(&mut self, now: Time, common: &mut Common, from: Sender, got: &Got) {
        let Some(number) = self.hear(now, common, from, got.attempt, None) else { return };
        self.note_taken(now, from.uid, number);
        let Some(sent) = self.get_mut(number).and_then(Call::sent) else { return };
        let Some(transfer) = &mut sent.request else { return };
        transfer.note_got(now, got);
        if transfer.is_over() {
            self.note_there(number);
        }
    }

    /// Returns the call under way that this server's frame is about, and notes what it shows of the server. A frame from
    /// another address than the server's is not the server's: without a key, any process can state the server's uid.
    pub(super) fn hear(
        &mut self,
        now: Time,
        common: &mut Common,
        from: Sender,
        attempt: Attempt,
        grant: Option<Grant>,
    ) -> Option<CallNumber> {
        let remote = self.remotes.get_mut(from.uid).filter(|remote| {
            let is_there = remote.address == from.address || common.broken(Planted::AnswerFromAnywhere);
            is_there && attempt.is_to(common.me)
        });
        let number = remote.and_then(|remote| {
            if common.broken(Planted::AnswerToAnyAttempt) {
                return remote.slots.get(usize::from(attempt.slot))?.call;
            }
            remote.hear(now, attempt, grant)
        });
        common.counters.stale += u64::from(number.is_none());
        number
    }

    /// Notes that the server has taken this attempt. If the attempt was sent once, this measures the round trip.
    pub(super) fn note_taken(&mut self, now: Time, from: Uid, number: CallNumber) {
        let Some(call) = self.calls.get(super::index(number)) else { return };
        let news = call.sent_ref().filter(|sent| !sent.is_there);
        let Some(remote) = self.remotes.get_mut(from) else { return };
        remote.is_established = true;
        if let Some(sent) = news {
            if let Some(service) = remote.service_mut(call.port) {
                service.note_taken();
            }
            if let Some(first_at) = sent.first_at.filter(|_| !sent.is_repeated) {
                remote.note_round_trip(now.since(first_at));
            }
        }
    }

    /// Notes that the server has the whole request; from now on the client only asks about it.
    fn note_there(&mut self, number: CallNumber) {
        if let Some(sent) = self.get_mut(number).and_then(Call::sent) {
            sent.is_there = true;
            sent.request = None;
        }
    }

    /// Acknowledges an answer that arrived before, because the server still sends it.
    pub(super) fn acknowledge_again(&mut self, common: &mut Common, from: Sender, attempt: Attempt) {
        if common.is_hostile() {
            return;
        }
        let finished_below = self.finished_below();
        let is_there = |remote: &&Remote| remote.address == from.address && attempt.is_to(common.me);
        let Some(remote) = self.remotes.get(from.uid).filter(is_there) else { return };
        let slot = remote.slots.get(usize::from(attempt.slot));
        if slot.is_some_and(|slot| slot.number == attempt.number && slot.call.is_none()) {
            let attempts = vec![(attempt.slot, attempt.number)];
            common.post_to(To::Server(from.uid), Frame::Done { to: from.uid, finished_below, attempts });
        }
    }
}

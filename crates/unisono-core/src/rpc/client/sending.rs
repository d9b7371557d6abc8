//! Sending to servers: requests, whole or announced, and parts of large ones.

use super::Client;
use super::call::{Call, Stage};
use crate::identity::Uid;
use crate::planted::Probe;
use crate::rpc::common::{Common, PATIENCE_MAX};
use crate::rpc::output::{Correspondent, Letter, Packet};
use crate::rpc::types::CallNumber;
use crate::time::Time;
use crate::wire::{Attempt, Frame, Opening, Payload, Request, Writer};
use core::time::Duration;

/// Maximum interval between two questions about a call at a service that recognises repeats, unless answers take longer.
const REPEATS_PATIENCE_MAX: Duration = Duration::from_millis(100);

impl Client {
    /// Queues the request in this slot to be sent, or sent again.
    pub(super) fn send_slot(&mut self, server: Uid, slot: u16) {
        let Some(remote) = self.remotes.get_mut(server) else { return };
        remote.to_send.push_back(slot);
        if !core::mem::replace(&mut remote.is_due, true) {
            self.due.push_back(server);
        }
    }

    pub(in crate::rpc) fn has_nothing_to_say(&self) -> bool {
        self.due.is_empty() && self.sending.is_empty()
    }

    /// Writes the requests for one server; returns `None` if there are none.
    pub(in crate::rpc) fn write_requests(
        &mut self,
        now: Time,
        common: &mut Common,
        packet: &mut Packet<'_>,
    ) -> Option<Letter> {
        loop {
            let server = *self.due.front()?;
            let unfinished = if common.is_hostile() { 1 } else { self.first_unfinished() };
            let Some(remote) = self.remotes.get_mut(server) else {
                self.due.pop_front();
                continue;
            };
            let key = common.agreement.public_key();
            let is_new = !remote.is_established;
            let calls = &self.calls;
            let call_of = |slot: &u16| calls.get(super::index(remote.slots.get(usize::from(*slot))?.call?));
            let may_open =
                remote.to_send.iter().find_map(call_of).is_some_and(|call| may_open_session(now, call));
            let opening = (is_new && may_open).then_some(Opening { cookie: remote.cookie, key });
            let mut writer = packet.for_server(server, opening);
            let mut written = false;
            let mut wake = Time::NEVER;
            while let Some(&slot) = remote.to_send.front() {
                let number = remote.slots.get(usize::from(slot)).and_then(|slot| slot.call);
                let call = number.and_then(|number| self.calls.get_mut(super::index(number)));
                if let Some(call) = call {
                    let claims = common.claims();
                    if is_new && may_open_session(now, call) != may_open
                        || !write_request(now, &mut writer, call, (unfinished, claims)) && written
                    {
                        break;
                    }
                    written = true;
                    let repeated = note_sent(now, call, common.packet_number);
                    if repeated {
                        common.counters.resends += 1;
                        common.probe(Probe::RequestRepeated);
                    }
                    wake = wake.min(call.sent().map_or(Time::NEVER, |sent| sent.ask_at));
                }
                remote.to_send.pop_front();
            }
            if remote.to_send.is_empty() {
                remote.is_due = false;
                self.due.pop_front();
            } else {
                self.due.rotate_left(1);
            }
            if written {
                let remote = self.remotes.get_mut(server)?;
                remote.asked_since.get_or_insert(now);
                remote.asked_last = now;
                let address = remote.address;
                self.wake_by(wake);
                return Some((address, Correspondent::Server(server)));
            }
        }
    }

    /// Writes the next part of a large request, each request in its turn.
    pub(in crate::rpc) fn write_part(
        &mut self,
        now: Time,
        common: &mut Common,
        packet: &mut Packet<'_>,
    ) -> Option<Letter> {
        for _ in 0..self.sending.len() {
            let (number, sending) = self.sending.pop_front()?;
            let sent = self.get_mut(number).and_then(Call::sent);
            let Some(sent) = sent.filter(|sent| sent.number == sending) else { continue };
            let attempt = Attempt { to: sent.server, slot: sent.slot, number: sent.number };
            let Some(transfer) = &mut sent.request else { continue };
            let part = transfer.next(now, attempt, false);
            let wake = transfer.resend_at();
            self.sending.push_back((number, sending));
            if let Some(at) = wake {
                self.wake_by(at);
            }
            if let Some((part, again)) = part {
                common.counters.parts_resent += u64::from(again);
                let server = attempt.to;
                packet.for_server(server, None).frame(&Frame::Part(part));
                let remote = self.remotes.get(server)?;
                return Some((remote.address, Correspondent::Server(server)));
            }
        }
        None
    }
}

/// True if the request of this call may open a session. If a session that had this attempt may be forgotten, the attempt
/// must open none: it shows no cookie, not even one that the client received for another attempt since.
fn may_open_session(now: Time, call: &Call) -> bool {
    call.sent_ref().is_none_or(|sent| !sent.may_be_forgotten(now))
}

/// Writes the request of a call that is at a server, or a question about it, with what is said falsely of it. Returns false if
/// it does not fit.
fn write_request(
    now: Time,
    writer: &mut Writer<'_>,
    call: &mut Call,
    (unfinished, claims): (CallNumber, Option<(u8, bool)>),
) -> bool {
    let Stage::Sent(sent) = &call.stage else { return true };
    let payload = match &sent.request {
        _ if sent.is_there => Payload::Omitted,
        Some(transfer) => transfer.announced(),
        // Lent to the frame: a copy of the handle could cost an allocation.
        None => Payload::Whole(core::mem::take(&mut call.request)),
    };
    let left = (call.deadline.since(now).as_micros() as u64).div_ceil(1000);
    let (hops, again) = claims.unwrap_or((call.hops, call.may_have_happened()));
    let frame = Frame::Request(Request {
        attempt: Attempt { to: sent.server, slot: sent.slot, number: sent.number },
        call: call.number,
        finished_below: unfinished,
        port: call.port,
        instance: sent.instance,
        hops,
        again,
        left_ms: u32::try_from(left).unwrap_or(u32::MAX),
        wishes: call.wishes.take(),
        payload,
    });
    let fits = writer.frame(&frame);
    if let Frame::Request(Request { payload, wishes, .. }) = frame {
        call.wishes = wishes;
        if let Payload::Whole(request) = payload {
            call.request = request;
        }
    }
    fits
}

/// Notes that the request was sent in this datagram, and when to ask about it. Returns true if it had been sent before.
fn note_sent(now: Time, call: &mut Call, packet_number: u64) -> bool {
    let Some(sent) = call.sent() else { return false };
    let repeated = sent.first_at.is_some();
    sent.first_at.get_or_insert(now);
    sent.in_packet = packet_number;
    sent.is_repeated = repeated;
    sent.ask_at = now + sent.ask_again_after;
    let most = if sent.repeats { sent.ask_again_after.max(REPEATS_PATIENCE_MAX) } else { PATIENCE_MAX };
    sent.ask_again_after = (sent.ask_again_after * 2).min(most);
    repeated
}

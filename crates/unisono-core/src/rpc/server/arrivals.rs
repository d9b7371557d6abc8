//! Frames of clients: questions for a port, requests, parts of requests, reports that an answer has arrived.
//!
//! Only an address that a cookie proves is sent more bytes than came from it. Any other address gets one frame, which
//! is shorter than the frame that it answers. That holds for each server alone; servers do not know of each other.

use super::Server;
use super::answered::Known;
use super::budget::{FIRST_SLOTS, Place, SLOTS_AT_ONCE_MAX};
use super::session::{Asked, Kept, Receiving, Session, Slot, State};
use super::sessions::SessionId;
use super::strangers::Asker;
use crate::identity::{Port, Uid};
use crate::planted::{Planted, Probe};
use crate::rpc::agreement::{Closed, Pair};
use crate::rpc::common::{Common, Sender, To};
use crate::rpc::proof::Claim;
use crate::rpc::transfer::{Incoming, PARTS_WINDOW_MAX};
use crate::rpc::types::{CallNumber, ServeOptions};
use crate::shares::Source;
use crate::time::Time;
use crate::wire::{
    Attempt, Cookie, FRAME_HEAD_BYTES, Frame, FrameKind, Got, HEADER_BYTES, Opening, PADDED_BYTES,
    PADDED_BYTES_MIN, Part, Payload, PortHere, PublicKey, Rejection, Request, Unreadable,
};
use alloc::boxed::Box;
use core::cmp::Ordering;
use core::time::Duration;

// Every answer to an unproved address is shorter than what it answers, heads included.
const _: () = {
    let cookie_bytes = 16;
    assert!(FrameKind::Unopened.body_bytes_min() + cookie_bytes <= FrameKind::Envelope.body_bytes_min());
    assert!(FrameKind::Reject.body_bytes_min() + cookie_bytes < FrameKind::Request.body_bytes_min());
    assert!(FrameKind::PortHere.body_bytes_min() < FrameKind::LocatePort.body_bytes_min());
    assert!(FrameKind::PortNotHere.body_bytes_min() < FrameKind::LocatePort.body_bytes_min());
    // All servers of a port answer a multicast question. Five of them together send no more bytes than a fully padded
    // question has, two no more than one of minimum length.
    let answer = HEADER_BYTES + FRAME_HEAD_BYTES + FrameKind::PortHere.body_bytes_min();
    assert!(5 * answer <= HEADER_BYTES + PADDED_BYTES);
    assert!(2 * answer <= HEADER_BYTES + PADDED_BYTES_MIN);
};

/// An envelope of a client.
pub(in crate::rpc) struct Arrival {
    pub(in crate::rpc) from: Sender,
    /// Packet number of the datagram.
    pub(in crate::rpc) number: u64,
    /// The cookie that it shows.
    pub(in crate::rpc) cookie: Option<Cookie>,
    /// What was agreed on with a client that has no session.
    pub(in crate::rpc) pair: Option<Box<dyn Pair>>,
}

impl Server {
    /// Opens an envelope of a client. To agree on keys costs time, so only clients with a good cookie get so far.
    pub(in crate::rpc) fn open(
        &mut self,
        now: Time,
        common: &mut Common,
        arrival: &mut Arrival,
        opening: Option<Opening>,
        closed: Closed<'_>,
    ) -> bool {
        let from = arrival.from;
        let known = self.sessions.find(from.uid).and_then(|id| self.sessions.get_mut(id));
        if let Some(session) = known {
            // A copy that comes from elsewhere neither moves the session nor gets an answer that could be passed on.
            let is_copy = from.address != session.address && arrival.number <= session.newest;
            if is_copy || !closed.open_with(&mut *session.pair) {
                return false;
            }
            session.newest = session.newest.max(arrival.number);
            return true;
        }
        let is_good = |cookie| {
            self.cookies.is_good(now, from.uid, from.address, cookie)
                || common.broken(Planted::CookieUnchecked)
        };
        let Some(opening) = opening.filter(|opening| is_good(opening.cookie)) else {
            let cookie = self.new_cookie(now, common, arrival);
            self.turn_away(common, arrival, Unreadable::ShowCookie(cookie));
            return false;
        };
        let source = from.address.ip().into();
        if !self.has_session_for(source) {
            self.turn_away(common, arrival, Unreadable::Busy);
            return false;
        }
        if common.agreement.uid_of(&opening.key) != from.uid {
            return false;
        }
        if !self.agreements.spend(now, source, self.is_entitled(source)) {
            common.probe(Probe::ProofBudgetSpent);
            return false;
        }
        let Some(mut pair) = common.agreement.agree(&opening.key) else { return false };
        let is_open = closed.open_with(&mut *pair);
        arrival.pair = Some(pair).filter(|_| is_open);
        is_open
    }

    // --- questions for a port ---

    pub(in crate::rpc) fn handle_locate(
        &mut self,
        now: Time,
        common: &mut Common,
        from: Sender,
        (nonce, port, key): (u64, Port, PublicKey),
        multicast: bool,
    ) {
        let Some(service) = self.services.get(port) else {
            if !multicast {
                common.post(from.address, Frame::PortNotHere { nonce, port, address: common.address });
            }
            return;
        };
        let signs_each = common.broken(Planted::SignsEachCopy);
        match self.answered.find(now, from, (nonce, port, key)) {
            Known::Again(here) if !signs_each => return common.post(from.address, Frame::PortHere(here)),
            Known::JustAnswered if !signs_each => return,
            _ => {}
        }
        let source = from.address.ip().into();
        if !self.proofs.spend(now, source, self.is_entitled(source)) && !signs_each {
            common.probe(Probe::ProofBudgetSpent);
            return;
        }
        let cookie = self.cookies.issue(now, from.uid, from.address);
        let ServeOptions { repeats, instance, .. } = service.options;
        let (mine, address) = (common.agreement.public_key(), common.address);
        let (client, server) = ((from.uid, key), (common.me, mine));
        let claim = Claim { nonce, port, client, server, address, cookie, repeats, instance };
        let proof = service.prover.prove(&claim.bytes());
        let session = self.sessions.find(from.uid).and_then(|id| self.sessions.get(id));
        let in_progress = session.map_or(0, |session| session.in_progress);
        let grant = self.grant(source, in_progress);
        let here = Box::new(PortHere { nonce, port, cookie, grant, repeats, instance, key: mine, proof });
        self.answered.keep(now, from, key, here.clone());
        common.post(from.address, Frame::PortHere(here));
    }

    // --- requests ---

    pub(in crate::rpc) fn handle_request(
        &mut self,
        now: Time,
        common: &mut Common,
        arrival: &mut Arrival,
        request: Request,
    ) {
        let attempt = request.attempt;
        if !attempt.is_to(common.me) {
            common.counters.stale += 1;
            return;
        }
        let Some(id) = self.session_for(now, common, arrival, attempt) else { return };
        let Some(slot) = self.slot_of(now, id, attempt) else {
            return self.reject(common, id, attempt, Rejection::Busy);
        };
        let number = attempt.number;
        match number.cmp(&slot.number) {
            Ordering::Less if !common.broken(Planted::LowerAttemptRuns) => {
                common.counters.stale += 1;
                common.probe(Probe::LowerAttemptDropped);
            }
            Ordering::Equal if !is_forgotten(common, &slot.state) => {
                common.counters.duplicates += 1;
                if matches!(slot.state, State::Replied(_)) {
                    common.probe(Probe::ReplyRepeated);
                }
                self.tell(id, attempt.slot);
            }
            _ => self.take_request(now, common, id, request),
        }
    }

    /// Returns the session that the request belongs to or opens. Otherwise rejects the request with the cookie to show.
    fn session_for(
        &mut self,
        now: Time,
        common: &mut Common,
        arrival: &mut Arrival,
        attempt: Attempt,
    ) -> Option<SessionId> {
        let from = arrival.from;
        let is_good = |cookie| self.cookies.is_good(now, from.uid, from.address, cookie);
        let shows_good = arrival.cookie.map(is_good);
        let known = self.sessions.find(from.uid);
        if let Some(session) = known.and_then(|id| self.sessions.get(id))
            && session.address == from.address
            && session.takes(attempt, shows_good)
        {
            return known;
        }
        if shows_good != Some(true) && !common.broken(Planted::CookieUnchecked) {
            let cookie = self.new_cookie(now, common, arrival);
            match known.filter(|id| self.session_of(common, from) == Some(*id)) {
                Some(id) => self.reject(common, id, attempt, Rejection::ShowCookie(cookie)),
                // The whole datagram came from an address that is not proved.
                None => self.turn_away(common, arrival, Unreadable::ShowCookie(cookie)),
            }
            return None;
        }
        if let Some(id) = known {
            self.sessions.get_mut(id)?.address = from.address;
            return known;
        }
        let pair = arrival.pair.take()?;
        self.expect_sweep(now);
        let numbers = (attempt.number, arrival.number);
        let session = Session::new(now, (from.uid, pair), from.address, numbers);
        self.add_session(session.source);
        Some(self.sessions.open(session))
    }

    /// Returns the cookie that a client is to show.
    fn new_cookie(&self, now: Time, common: &mut Common, arrival: &Arrival) -> Cookie {
        common.probe(Probe::CookieAsked);
        let is_old = |cookie: Cookie| !self.cookies.is_beyond_horizon(Time::from_nanos(cookie.issued));
        if arrival.cookie.is_some_and(is_old) {
            common.probe(Probe::OldCookieShown);
        }
        self.cookies.issue(now, arrival.from.uid, arrival.from.address)
    }

    /// Returns the slot of this attempt, or `None` if there is no capacity for one. A rejected attempt is recorded in
    /// no slot; therefore a new slot takes neither it nor any attempt before it.
    fn slot_of(&mut self, now: Time, id: SessionId, attempt: Attempt) -> Option<&Slot> {
        let session = self.sessions.get_mut(id)?;
        session.heard_at = now;
        let source = session.source;
        let place = usize::from(attempt.slot);
        let last = session.slots.get(place).map_or(0, |slot| slot.number);
        let grows_by = (place + 1).saturating_sub(session.slots.len());
        let rejected_through = session.rejected_through;
        if last == 0 && attempt.number <= rejected_through
            || grows_by > SLOTS_AT_ONCE_MAX
            || grows_by > 0 && place >= FIRST_SLOTS && !self.has_slots_for(source, grows_by)
        {
            let session = self.sessions.get_mut(id)?;
            session.rejected_through = session.rejected_through.max(attempt.number);
            return None;
        }
        if grows_by > 0 {
            self.add_slots(source, grows_by);
        }
        let session = self.sessions.get_mut(id)?;
        session.slots.resize_with(session.slots.len() + grows_by, Slot::default);
        session.slots.get(place)
    }

    /// Rejects an attempt that is recorded in no slot.
    fn reject(&mut self, common: &mut Common, id: SessionId, attempt: Attempt, reason: Rejection) {
        common.counters.rejected += 1;
        let attempt = Attempt { to: id.client, ..attempt };
        let Some(session) = self.sessions.get(id) else { return };
        let grant = self.grant(session.source, session.in_progress);
        common.post_to(To::Client(id), Frame::Reject { attempt, grant, reason });
    }

    /// Says why a datagram is not taken, to an address that need not be proved.
    fn turn_away(&self, common: &mut Common, arrival: &Arrival, reason: Unreadable) {
        common.counters.rejected += 1;
        common.say_unopened(arrival.from, common.me, arrival.number, reason);
    }

    /// Takes a new attempt; it supersedes what was in its slot.
    fn take_request(&mut self, now: Time, common: &mut Common, id: SessionId, request: Request) {
        let Request { attempt, call, finished_below, port, instance, hops, again, left_ms, wishes, payload } =
            request;
        let deadline = now + Duration::from_millis(u64::from(left_ms));
        let Some(session) = self.sessions.get_mut(id) else { return };
        let (source, of_life) = (session.source, usize::from(session.in_progress));
        let slot = &mut session.slots[usize::from(attempt.slot)];
        slot.number = attempt.number;
        if slot.state.is_in_progress() {
            // Its capacity must be free before the limits are checked.
            self.change(id, attempt.slot, State::Done);
        }
        let unbounded = common.broken(Planted::QueueUnbounded);
        // The client may mean a service of another instance that was at this port before.
        let service = self.services.get_mut(port).filter(|service| service.options.instance == instance);
        let Some(service) = service else {
            common.counters.rejected += 1;
            return self.settle(id, attempt.slot, State::Rejected(Rejection::NotServed));
        };
        let asker = service.strangers.ask(now, source);
        let (is_entitled, is_stranger) = (asker == Asker::Entitled, asker == Asker::Stranger);
        let mut place = match is_stranger {
            false => service.place_for(common, source, of_life),
            true => service.place_for_stranger(now, source, matches!(payload, Payload::Whole(_))),
        };
        if place.is_none() && !is_stranger && self.drops_expired(now, common, port, source) {
            place = self.services.get(port).and_then(|service| service.place_for(common, source, of_life));
        }
        let Some(place) = place.or(unbounded.then_some(Place::Any)) else {
            common.counters.rejected += 1;
            return self.settle(id, attempt.slot, State::Rejected(Rejection::Busy));
        };
        let asked = Asked { port, call, finished_below, hops, again, place, is_entitled, deadline, wishes };
        let state = match payload {
            Payload::Whole(bytes) => return self.queue(id, attempt, asked, bytes),
            Payload::Parts { total, .. } if total > self.request_bytes_max(port) => {
                return self.refuse_as_too_long(now, common, (id, attempt), port);
            }
            Payload::Parts { total, part } => {
                let is_welcome = total as usize <= common.settings.message_bytes_max
                    && (self.has_room_for(now, (port, place), source)
                        || self.makes_place(now, common, (port, place), source));
                if is_welcome {
                    let incoming = Incoming::new(now, total, part);
                    let is_let_on = !incoming.is_long() || !self.looks_at_beginnings(port);
                    let receiving = Receiving::new(now, asked, incoming, is_let_on);
                    let look_at = receiving.look_at;
                    self.change(id, attempt.slot, State::Receiving(Box::new(receiving)));
                    return self.wake_by(look_at);
                }
                State::Rejected(Rejection::Busy)
            }
            // The client asks about a request that this session never received.
            Payload::Omitted => State::Lost,
        };
        common.counters.rejected += 1;
        self.settle(id, attempt.slot, state);
    }

    fn request_bytes_max(&self, port: Port) -> u32 {
        self.services.get(port).map_or(0, |service| service.options.request_bytes_max)
    }

    #[cold]
    fn refuse_as_too_long(
        &mut self,
        now: Time,
        common: &mut Common,
        (id, attempt): (SessionId, Attempt),
        port: Port,
    ) {
        let most = self.request_bytes_max(port);
        common.counters.rejected += 1;
        let reason = alloc::format!("a request for this port has at most {most} bytes; nothing happened");
        let kept = Kept {
            refused: true,
            reply: reason.into(),
            since: now,
            parts_max: PARTS_WINDOW_MAX as u16,
            transfer: None,
        };
        self.settle(id, attempt.slot, State::Replied(kept));
        self.keep_reply(common, id, attempt.slot, attempt.number);
    }

    fn queue(&mut self, id: SessionId, attempt: Attempt, asked: Asked, bytes: bytes::Bytes) {
        let (port, is_entitled) = (asked.port, asked.is_entitled);
        self.change(id, attempt.slot, State::Queued(asked, bytes));
        let Some(source) = self.sessions.get(id).map(|session| session.source) else { return };
        let Some(service) = self.services.get_mut(port) else { return };
        if service.queue.len() >= 2 * service.options.places() {
            // At least half of these were superseded or cancelled meanwhile.
            let sessions = &self.sessions;
            let before = service.queue.len();
            service.queue.retain(|(id, slot, number)| {
                let last = sessions.get(*id).and_then(|session| session.slots.get(usize::from(*slot)));
                last.is_some_and(|last| last.number == *number && matches!(last.state, State::Queued(..)))
            });
            self.budget.queued -= before - service.queue.len();
        }
        service.queue.push(source, (id, attempt.slot, attempt.number), is_entitled);
        self.budget.queued += 1;
    }

    // --- parts ---

    pub(in crate::rpc) fn handle_part(&mut self, now: Time, common: &mut Common, from: Sender, part: &Part) {
        let attempt = part.attempt;
        let Some((id, slot)) = self.attempt_of(now, common, from, attempt) else {
            common.counters.stale += 1;
            return;
        };
        let State::Receiving(receiving) = &mut slot.state else {
            // The last answer to it was lost.
            return self.tell(id, attempt.slot);
        };
        let Receiving { asked, incoming, is_let_on, .. } = &mut **receiving;
        // Few parts could take room for many.
        let is_too_far = !*is_let_on && incoming.is_far_ahead(part.index);
        if incoming.is_early(part.index) || is_too_far {
            common.counters.stale += 1;
            return;
        }
        let is_news = !incoming.has(part.index.into());
        let Some(tells) = incoming.take(now, part.index, &part.bytes) else {
            common.counters.malformed += 1;
            return;
        };
        if incoming.is_whole() {
            let (mut asked, request) = (asked.clone(), incoming.take_bytes());
            common.probe(Probe::RequestPutTogether);
            // Its beginning may have shown a right, or another request since.
            let source = self.sessions.get(id).map(|session| session.source);
            asked.is_entitled |= source.is_some_and(|source| self.is_entitled(source));
            self.queue(id, attempt, asked, request);
            self.tell(id, attempt.slot);
        } else {
            let shows_beginning = part.index == 0 && is_news && incoming.is_long();
            let port = asked.port;
            if is_news && !self.count_part(now, common, id, attempt.slot) {
                common.counters.rejected += 1;
                return self.settle(id, attempt.slot, State::Rejected(Rejection::Busy));
            }
            if shows_beginning {
                self.show_beginning(now, port, (id, attempt.slot, attempt.number));
            }
            if tells {
                self.tell(id, attempt.slot);
            }
        }
    }

    pub(super) fn looks_at_beginnings(&self, port: Port) -> bool {
        self.services.get(port).is_some_and(|service| service.options.looks_at_beginnings)
    }

    /// Has the application look at the first part of a large request, if it wants to. A client that begins requests and never
    /// goes on would keep it looking: so it looks at a limited number a second.
    fn show_beginning(&mut self, now: Time, port: Port, attempt: (SessionId, u16, u64)) {
        let Some(source) = self.sessions.get_mut(attempt.0).map(|session| session.source) else { return };
        let is_entitled = self.is_entitled(source);
        let Some(service) = self.services.get_mut(port) else { return };
        let shows = service.options.looks_at_beginnings && service.has_room_for_beginning(source);
        if shows && self.looks.spend(now, source, is_entitled) {
            service.beginnings.push(source, attempt);
            self.budget.queued += 1;
        }
    }

    pub(in crate::rpc) fn handle_got(&mut self, now: Time, common: &mut Common, from: Sender, got: &Got) {
        let attempt = got.attempt;
        if let Some((id, slot)) = self.attempt_of(now, common, from, attempt)
            && let State::Replied(kept) = &mut slot.state
            && let Some(transfer) = &mut kept.transfer
        {
            transfer.parts.note_got(now, got);
            self.attend(common, (id, attempt.slot, attempt.number));
        } else {
            common.counters.stale += 1;
        }
    }

    // --- what is over ---

    pub(in crate::rpc) fn handle_done(
        &mut self,
        now: Time,
        common: &mut Common,
        from: Sender,
        to: Uid,
        (finished_below, attempts): (CallNumber, &[(u16, u64)]),
    ) {
        if to != common.me {
            return;
        }
        let Some(id) = self.session_of(common, from) else { return };
        self.note_finished(id, finished_below);
        for &(slot, number) in attempts {
            let Some(session) = self.sessions.get_mut(id) else { return };
            session.heard_at = now;
            if session.attempt(slot, number).is_some_and(|last| last.state.is_answered()) {
                self.change(id, slot, State::Done);
            }
        }
    }

    pub(in crate::rpc) fn handle_cancel(
        &mut self,
        now: Time,
        common: &mut Common,
        from: Sender,
        attempt: Attempt,
    ) {
        if let Some((id, slot)) = self.attempt_of(now, common, from, attempt)
            && matches!(slot.state, State::Queued(..) | State::Receiving(_))
            && !common.broken(Planted::CancelIgnored)
        {
            common.counters.rejected += 1;
            common.probe(Probe::RequestCancelled);
            self.change(id, attempt.slot, State::Rejected(Rejection::Cancelled));
        }
    }

    /// Returns the attempt that `from` names, if it is the last of its slot in this life. Notes that its session is
    /// alive.
    fn attempt_of(
        &mut self,
        now: Time,
        common: &Common,
        from: Sender,
        attempt: Attempt,
    ) -> Option<(SessionId, &mut Slot)> {
        let id = self.session_of(common, from).filter(|_| attempt.is_to(common.me))?;
        let session = self.sessions.get_mut(id)?;
        session.heard_at = now;
        session.attempt(attempt.slot, attempt.number).map(|slot| (id, slot))
    }

    /// Returns the session with this client, if its frame comes from the address that the client proved.
    fn session_of(&self, common: &Common, from: Sender) -> Option<SessionId> {
        let id = self.sessions.find(from.uid)?;
        let session = self.sessions.get(id)?;
        (session.address == from.address || common.broken(Planted::AnswerFromAnywhere)).then_some(id)
    }

    /// Drops requests past their deadline at the head of a full queue, of this address and of that whose turn it is. Returns
    /// true if one was dropped.
    fn drops_expired(&mut self, now: Time, common: &mut Common, port: Port, source: Source) -> bool {
        let next = self.services.get(port).and_then(|service| service.queue.next_source());
        let mut dropped = self.drops_expired_of(now, common, port, source);
        if let Some(next) = next.filter(|next| *next != source) {
            dropped |= self.drops_expired_of(now, common, port, next);
        }
        dropped
    }

    fn drops_expired_of(&mut self, now: Time, common: &mut Common, port: Port, source: Source) -> bool {
        let mut dropped = false;
        while let Some(service) = self.services.get_mut(port)
            && let Some(&(id, slot, number)) = service.queue.front(source)
        {
            let session = self.sessions.get_mut(id);
            let state = session.and_then(|session| session.attempt(slot, number)).map(|slot| &slot.state);
            let expired = match state {
                Some(State::Queued(asked, _)) if asked.deadline > now => return dropped,
                Some(State::Queued(..)) => true,
                _ => false,
            };
            service.queue.drop_front(source);
            self.budget.queued -= 1;
            if expired {
                dropped = true;
                common.counters.rejected += 1;
                self.settle(id, slot, State::Rejected(Rejection::Expired));
            }
        }
        dropped
    }
}

/// Planted bug: the server forgets what became of a request, and takes a repetition for a new one.
fn is_forgotten(common: &Common, state: &State) -> bool {
    common.broken(Planted::RepeatRunsAgain)
        || (matches!(state, State::Rejected(Rejection::Busy)) && common.broken(Planted::BusyForgotten))
        || (matches!(state, State::Forwarded(_)) && common.broken(Planted::PassedOnForgotten))
}

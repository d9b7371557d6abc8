//! The server's side of an endpoint: services, the requests that wait for them, and the sessions of their clients.
//!
//! This file has the application's operations. `arrivals` handles the frames of clients, `answered` keeps the last answers
//! to questions for a port, `session` and `sessions`
//! remember each client, `cookie` says which client may open a session, `budget` limits what is taken and kept, `sources` what each
//! address has of it, `telling` sends answers, `timeouts` does what is due with time.

mod answered;
mod arrivals;
mod budget;
mod cookie;
mod finished;
mod session;
mod sessions;
mod slow;
mod sources;
mod strangers;
mod telling;
mod timeouts;

pub(super) use arrivals::Arrival;
pub(super) use budget::SLOTS_AT_ONCE_MAX;
pub(super) use sessions::SessionId;
pub(super) use timeouts::SESSION_IDLE;

use super::agreement::Pair;
use super::common::Common;
use super::proof::{PortProver, PrivatePort};
use super::slab::Slab;
use super::types::{
    AnswerError, CallDestination, ForwardError, Request, RequestId, ServeError, ServeOptions,
};
use super::watch::CallAccount;
use super::work::WorkBudget;
use crate::identity::Port;
use crate::lanes::{FavouredFirst, Lanes};
use crate::planted::{Planted, Probe};
use crate::shares::{Counts, Source};
use crate::table::Table;
use crate::time::Time;
use crate::wire::{HOPS_MAX, Rejection};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use answered::Answered;
use budget::{Budget, Place};
use bytes::Bytes;
use cookie::Cookies;
use core::net::SocketAddr;
use finished::Finished;
use session::{Asked, Kept, State};
use sessions::Sessions;
use slow::Slow;
use sources::OfSource;
use strangers::Strangers;

/// Maximum number of services of one endpoint.
const SERVICES_MAX: usize = 256;

pub(super) struct Server {
    services: Table<Service, Port>,
    sessions: Sessions,
    cookies: Cookies,
    answered: Answered,
    /// Limits the proofs that are made.
    proofs: WorkBudget,
    /// Limits the clients with which this life agrees on keys.
    agreements: WorkBudget,
    /// Limits the beginnings of large requests that the application looks at.
    looks: WorkBudget,
    /// Requests that the application has.
    in_hand: Slab<InHand>,
    generation: u64,
    budget: Budget,
    sources: BTreeMap<Source, OfSource>,
    /// Slots with incomplete requests, by the time at which each is looked at.
    incomplete: BTreeSet<(Time, SessionId, u16)>,
    slow: Slow,
    /// Replies that are kept, the oldest first: session, slot and number. Some are not kept any more.
    kept: VecDeque<(SessionId, u16, u64)>,
    /// Service that the last request was taken from; the next one has its turn.
    last_taken: Port,
    /// Sessions with answers to send.
    due: VecDeque<SessionId>,
    /// Large replies of which a part may be sent: session, slot and number.
    parts_due: VecDeque<(SessionId, u16, u64)>,
    /// All large replies that are being sent, by the time at which each is looked at.
    look_times: BTreeSet<(Time, SessionId, u16, u64)>,
    wake: Time,
    sweep_at: Time,
}

/// A port that is served.
struct Service {
    prover: Box<dyn PortProver>,
    options: ServeOptions,
    /// Requests that wait: session, slot and attempt number. Those of addresses that have shown no right wait behind the
    /// others.
    queue: FavouredFirst<(SessionId, u16, u64)>,
    strangers: Strangers,
    /// Large requests whose beginnings wait to be looked at, likewise.
    beginnings: Lanes<(SessionId, u16, u64)>,
    /// True if the application got a beginning last: it gets a whole request next, if one waits.
    gave_beginning: bool,
    /// Number of requests that wait, are incomplete or are being worked on.
    pending: usize,
    /// How many of them are incomplete, and how many of these come from addresses that are entitled.
    incomplete: usize,
    incomplete_of_entitled: usize,
    /// How many of them are in the share of each source address.
    of_sources: Counts<Source>,
    /// What clients have acknowledged and the application does not know yet.
    finished: Finished,
}

/// How the application answers a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Replied,
    /// With a reply too. The request showed no right.
    Denied,
    Refused,
}

/// A request that the application has.
#[derive(Clone, Copy, Debug)]
struct InHand {
    generation: u64,
    session: SessionId,
    slot: u16,
    number: u64,
    port: Port,
    hops: u8,
    source: Source,
    bytes: usize,
    place: Place,
    /// It is only the beginning of a request.
    is_beginning: bool,
}

impl Server {
    pub(super) fn new(now: Time, common: &mut Common) -> Server {
        Server {
            services: Table::default(),
            sessions: Sessions::default(),
            cookies: Cookies::new(&mut common.random),
            answered: Answered::default(),
            proofs: WorkBudget::new(now),
            agreements: WorkBudget::new(now),
            looks: WorkBudget::new(now),
            in_hand: Slab::default(),
            generation: 0,
            budget: Budget::default(),
            sources: BTreeMap::new(),
            incomplete: BTreeSet::new(),
            slow: Slow::default(),
            kept: VecDeque::new(),
            last_taken: Port::default(),
            due: VecDeque::new(),
            parts_due: VecDeque::new(),
            look_times: BTreeSet::new(),
            wake: Time::NEVER,
            sweep_at: Time::NEVER,
        }
    }

    /// Returns what this server has agreed on with the client of a session.
    pub(super) fn pair(&mut self, id: SessionId) -> Option<&mut (dyn Pair + 'static)> {
        self.sessions.get_mut(id).map(|session| &mut *session.pair)
    }

    /// Returns where frames to the client of a session go.
    pub(super) fn address(&self, id: SessionId) -> Option<CallDestination> {
        self.sessions.get(id).map(|session| CallDestination::Address(session.address))
    }

    /// Forgets the answers to questions that it has given, because it has another address from now on.
    pub(super) fn forget_answers(&mut self) {
        self.answered.forget_all();
    }

    // --- services ---

    pub(super) fn serve(
        &mut self,
        common: &mut Common,
        private: PrivatePort,
        options: ServeOptions,
    ) -> Result<Port, ServeError> {
        let prover = common.proof.prover(private);
        let port = prover.port();
        if self.services.contains(port) {
            return Err(ServeError::Served);
        }
        if self.services.len() >= SERVICES_MAX {
            return Err(ServeError::TooMany { max: SERVICES_MAX });
        }
        if options.queue_max == 0 {
            return Err(ServeError::NoQueue);
        }
        self.budget.queues_max += usize::from(options.queue_max);
        // The application may still work on requests from an earlier service of this port.
        let pending = self.requests_in_hand(port);
        let (queue, beginnings, gave_beginning) = (FavouredFirst::default(), Lanes::default(), false);
        let strangers = Strangers::default();
        let (finished, of_sources) = (Finished::default(), Counts::default());
        let (incomplete, incomplete_of_entitled) = (0, 0);
        let service = Service {
            prover,
            options,
            queue,
            strangers,
            beginnings,
            gave_beginning,
            pending,
            incomplete,
            incomplete_of_entitled,
            of_sources,
            finished,
        };
        self.services.insert(port, service);
        Ok(port)
    }

    /// Ends a service. Waiting requests are rejected; the application may still answer the requests that it has.
    pub(super) fn withdraw(&mut self, common: &mut Common, port: Port) {
        if common.broken(Planted::WithdrawalForgotten) {
            return;
        }
        let Some(service) = self.services.remove(port) else { return };
        self.answered.forget(port);
        self.budget.queues_max -= usize::from(service.options.queue_max);
        self.budget.queued -= service.waiting();
        let mut rejected = alloc::vec::Vec::new();
        for (id, session) in self.sessions.iter() {
            let slots = session
                .slots
                .iter()
                .enumerate()
                .filter(|(_, slot)| slot.state.place().is_some_and(|place| place.0 == port));
            rejected.extend(slots.map(|(slot, _)| (id, slot as u16)));
        }
        for (id, slot) in rejected {
            common.probe(Probe::WithdrawnWaiting);
            self.settle(id, slot, State::Rejected(Rejection::NotServed));
        }
    }

    // --- requests ---

    /// Returns the next request, of the services in turn.
    pub(super) fn poll_request(&mut self, now: Time, common: &mut Common) -> Option<Request> {
        if self.budget.queued == 0 {
            return None;
        }
        let has_some = |(_, service): &(Port, &Service)| service.waiting() > 0;
        let (port, _) = self.services.after(self.last_taken).find(has_some)?;
        self.last_taken = port;
        match self.poll_request_for(now, common, port) {
            Some(request) => Some(request),
            // All requests that waited there were past their deadlines.
            None => self.poll_request(now, common),
        }
    }

    /// Returns the next request for this port.
    pub(super) fn poll_request_for(&mut self, now: Time, common: &mut Common, port: Port) -> Option<Request> {
        loop {
            let service = self.services.get_mut(port)?;
            if service.gives_beginning() {
                return self
                    .poll_beginning(common, port)
                    .or_else(|| self.poll_request_for(now, common, port));
            }
            let (id, slot, number) = service.queue.pop()?;
            self.budget.queued -= 1;
            let Some((source, asked, payload)) = self.sessions.get_mut(id).and_then(|session| {
                let source = session.source;
                let (asked, payload) = session.attempt(slot, number)?.state.queued()?;
                Some((source, asked, payload))
            }) else {
                service.queue.take_back_turn();
                continue;
            };
            if asked.deadline <= now && !common.broken(Planted::ExpiredHandedOut) {
                common.counters.rejected += 1;
                common.probe(Probe::RequestExpired);
                self.settle(id, slot, State::Rejected(Rejection::Expired));
                continue;
            }
            let (asked, payload) = (asked.clone(), payload.clone());
            self.change(id, slot, State::InHand);
            common.counters.requests += 1;
            self.hand_over(source, payload.len());
            return Some(self.hand_out((id, slot, number), source, asked, payload, None));
        }
    }

    /// Returns the next beginning of a large request for this port that is not whole yet.
    #[cold]
    fn poll_beginning(&mut self, common: &mut Common, port: Port) -> Option<Request> {
        loop {
            let (id, slot, number) = self.services.get_mut(port)?.beginnings.pop()?;
            self.budget.queued -= 1;
            let Some(session) = self.sessions.get_mut(id) else { continue };
            let source = session.source;
            let attempt = session.attempt(slot, number);
            let Some((asked, incoming)) = attempt.and_then(|attempt| attempt.state.beginning()) else {
                continue;
            };
            let Some(payload) = incoming.beginning() else { continue };
            let (asked, whole) = (asked.clone(), incoming.total());
            common.probe(Probe::BeginningHandedOut);
            return Some(self.hand_out((id, slot, number), source, asked, payload, Some(whole)));
        }
    }

    /// Gives the application a request, or the beginning of one of `whole` bytes.
    #[inline]
    fn hand_out(
        &mut self,
        (session, slot, number): (SessionId, u16, u64),
        source: Source,
        asked: Asked,
        payload: Bytes,
        whole: Option<usize>,
    ) -> Request {
        let bytes = if whole.is_some() { 0 } else { payload.len() };
        self.generation += 1;
        let (generation, is_beginning) = (self.generation, whole.is_some());
        let Asked { port, hops, place, .. } = asked;
        let held =
            InHand { generation, session, slot, number, port, hops, source, bytes, place, is_beginning };
        let index = self.in_hand.insert(held);
        Request {
            id: RequestId { index, generation },
            port,
            client: session.client,
            source,
            is_stranger: !asked.is_entitled,
            call: asked.call,
            finished_below: asked.finished_below,
            hops,
            again: asked.again,
            deadline: asked.deadline,
            wishes: asked.wishes,
            payload,
            whole_bytes: whole,
        }
    }

    // --- how much there is ---

    pub(super) fn requests_waiting(&self, port: Port) -> usize {
        self.services.get(port).map_or(0, Service::waiting)
    }

    pub(super) fn requests_in_hand(&self, port: Port) -> usize {
        self.in_hand.iter().filter(|held| held.port == port && !held.is_beginning).count()
    }

    pub(super) fn replies_kept_since(&self, since: Time) -> usize {
        let slots = self.sessions.iter().flat_map(|(_, session)| &session.slots);
        slots.filter(|slot| matches!(&slot.state, State::Replied(kept) if kept.since >= since)).count()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.budget.pending == 0 && self.in_hand.len() == 0 && self.replies_kept_since(Time::ZERO) == 0
    }

    // --- answers ---

    pub(super) fn reply(
        &mut self,
        now: Time,
        common: &mut Common,
        id: RequestId,
        reply: Bytes,
        verdict: Verdict,
    ) -> Result<(), AnswerError> {
        let max = common.settings.message_bytes_max;
        if reply.len() > max {
            return Err(AnswerError::TooLarge { bytes: reply.len(), max });
        }
        let in_hand = self.take_in_hand(id).ok_or(AnswerError::Over)?;
        let is_large = reply.len() > common.whole_bytes_max();
        let (mut parts_max, mut is_entitled) = (ServeOptions::default().reply_parts_max, false);
        if let Some(service) = self.services.get_mut(in_hand.port) {
            if is_large {
                parts_max = service.options.reply_parts_max;
            }
            if verdict == Verdict::Replied {
                is_entitled = service.strangers.entitle(now, in_hand.source);
            }
        }
        if is_entitled {
            self.set_entitled(in_hand.source, true);
        }
        let has_bytes = !reply.is_empty();
        let refused = verdict == Verdict::Refused;
        let kept = Kept { refused, reply, since: now, parts_max, transfer: None };
        self.settle(in_hand.session, in_hand.slot, State::Replied(kept));
        // To drop a reply without bytes makes no room.
        if has_bytes {
            self.keep_reply(common, in_hand.session, in_hand.slot, in_hand.number);
        }
        Ok(())
    }

    pub(super) fn forward(
        &mut self,
        common: &mut Common,
        id: RequestId,
        to: SocketAddr,
    ) -> Result<(), ForwardError> {
        let hops =
            self.in_hand.get(id.index).filter(|held| held.generation == id.generation).map(|held| held.hops);
        if let Some(hops) = hops
            && hops >= HOPS_MAX
            && !common.broken(Planted::ForwardsWithoutEnd)
        {
            common.probe(Probe::ForwardRefused);
            return Err(ForwardError::TooFar { hops });
        }
        let in_hand = self.take_in_hand(id).ok_or(ForwardError::Over)?;
        self.settle(in_hand.session, in_hand.slot, State::Forwarded(to));
        Ok(())
    }

    /// Lets the rest of a request come whose beginning the application has looked at, and which may have shown a right.
    pub(super) fn go_on(&mut self, now: Time, id: RequestId, shows_right: bool) {
        let is_beginning = self.in_hand.get(id.index).is_some_and(|held| held.is_beginning);
        if is_beginning
            && let Some(held) = self.take_in_hand(id)
            && let Some(session) = self.sessions.get_mut(held.session)
            && let Some(attempt) = session.attempt(held.slot, held.number)
            && let State::Receiving(receiving) = &mut attempt.state
        {
            receiving.is_let_on = shows_right;
            // The rest may take long, and gives way to requests of others until its address is entitled.
            if shows_right {
                self.entitle(now, held.port, held.source);
            }
        }
    }

    pub(super) fn account(&self) -> CallAccount {
        let share_places = self.services.iter().map(|(_, service)| service.of_sources.most());
        CallAccount {
            sessions: self.sessions.len(),
            slots: self.budget.of_all.slots,
            pending: self.budget.pending,
            share_places: share_places.max().unwrap_or(0),
            queued: self.budget.queued,
            in_hand: self.in_hand.len(),
            receiving_bytes: self.budget.receiving_bytes,
            taken_bytes: self.budget.taken_bytes,
            kept_bytes: self.budget.kept_bytes,
            sending: self.parts_due.len(),
            ..CallAccount::default()
        }
    }

    /// Takes a request back from the application. Returns `None` if it is not there, or its client has moved on.
    fn take_in_hand(&mut self, id: RequestId) -> Option<InHand> {
        let held = *self.in_hand.get(id.index).filter(|held| held.generation == id.generation)?;
        self.in_hand.remove(id.index);
        self.take_back(held.source, held.bytes);
        if !held.is_beginning {
            self.release_place((held.port, held.place), held.source);
        }
        let attempt = self.sessions.get_mut(held.session)?.attempt(held.slot, held.number)?;
        let is_there = match held.is_beginning {
            true => matches!(attempt.state, State::Receiving(_)),
            false => matches!(attempt.state, State::InHand),
        };
        is_there.then_some(held)
    }
}

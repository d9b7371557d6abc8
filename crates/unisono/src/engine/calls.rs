//! The calls of an engine's users, in a slot: the core's endpoint, and the threads and tasks that wait for it.
//!
//! What a user gives the core is sent at once, unless the same user will return in a moment with more. That is assumed
//! of a user that begins a call while outcomes of other calls are ready, or that answers a request while other requests
//! wait. Then the datagrams wait up to [`GATHER_MAX`], so that several calls or answers share them.

use super::entering::engines;
use super::park::{Listed, WaitList};
use super::send_queue::{SendQueue, Source};
use super::slot::{Occupant, Slot};
use super::state::State;
use super::whereabouts::Whereabouts;
use super::{Engine, Shared};
use crate::error::OpenError;
use crate::key::Key;
use crate::reach::{Place, Purpose, Wish, multicast_address};
use crate::rpc::ServiceError;
use crate::seeds::Seeds;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, MutexGuard};
use std::task::Waker;
use std::time::Duration;
use unisono_core::rpc::{
    CALLS_TAG, CallDestination, CallError, CallFailure, CallNumber, CallSettings, Endpoint,
    PrivatePort as CorePrivatePort, ServeOptions, Wishes,
};
use unisono_core::{ConfigError, Port, Time};

/// Maximum time for which what was given to the core waits for more.
const GATHER_MAX: Duration = Duration::from_micros(100);
/// Number of calls or answers that are sent together at most.
const GATHERED_MAX: usize = 64;
/// Time for which an endpoint without handles stays, to repeat replies that clients may still request.
const REPLY_LINGER: Duration = Duration::from_secs(2);

/// Something that a thread or a task can wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallInterest {
    /// The outcome of this call.
    Outcome(CallNumber),
    /// A request for this port, or the end of its requests.
    Request(Port),
    /// A change in the requests in hand, or in the replies that are kept for clients.
    Answers,
}

/// The calls of one endpoint.
pub(crate) struct Calls {
    pub(crate) endpoint: Endpoint,
    pub(crate) access: Access,
    calls: BTreeMap<CallNumber, Pending>,
    /// Number of outcomes that were not taken yet.
    untaken: usize,
    served: BTreeMap<Port, Served>,
    answers: WaitList,
    /// Number of calls or answers that wait for more, and the time until which they wait.
    gathered: usize,
    gathered_until: Time,
    handles: usize,
    /// Time at which it ends at the latest, once there are no handles.
    out_by: Time,
    out: bool,
}

/// What the users of one endpoint have in common: they reach the same processes in the same way.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    pub(crate) key: Option<Key>,
    pub(crate) seeds: Seeds,
    pub(crate) settings: CallSettings,
    /// How far the multicasts go that look for servers: the farthest that one of the users asks for.
    pub(crate) hops: u8,
}

impl Access {
    /// True if both reach the same processes in the same way.
    pub(crate) fn is_like(&self, other: &Access) -> bool {
        is_same_key(self.key.as_ref(), other.key.as_ref())
            && self.seeds.is_like(&other.seeds)
            && self.settings == other.settings
    }
}

fn is_same_key(one: Option<&Key>, other: Option<&Key>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one.is_like(other),
        (one, other) => one.is_none() && other.is_none(),
    }
}

/// A call whose outcome may still be asked for.
#[derive(Debug, Default)]
struct Pending {
    outcome: Option<Result<Bytes, CallFailure>>,
    waker: Option<Waker>,
}

/// A port that is served here.
#[derive(Debug)]
struct Served {
    multicast: Option<SocketAddr>,
    /// The threads and tasks that wait for requests.
    waiters: WaitList,
    withdrawn: bool,
}

impl Calls {
    pub(crate) fn new(endpoint: Endpoint, access: Access) -> Calls {
        Calls {
            endpoint,
            access,
            calls: BTreeMap::new(),
            untaken: 0,
            served: BTreeMap::new(),
            answers: WaitList::default(),
            gathered: 0,
            gathered_until: Time::NEVER,
            handles: 0,
            out_by: Time::NEVER,
            out: false,
        }
    }

    /// Begins a call, to any server of the port or to the one at this address. The caller has to ask for its outcome, or to cancel it.
    pub(crate) fn call(
        &mut self,
        now: Time,
        (port, address): (Port, Option<SocketAddr>),
        (request, wishes): (Bytes, Wishes),
        (deadline, silence): (Duration, Option<Duration>),
    ) -> Result<CallNumber, CallError> {
        let number = match (address, silence) {
            (to, Some(silence)) => {
                self.endpoint.call_with_silence(now, (port, to), request, deadline, silence)?
            }
            (None, None) => self.endpoint.call_with(now, port, request, deadline, wishes)?,
            (Some(address), None) => self.endpoint.call_at(now, port, address, request, deadline)?,
        };
        self.calls.insert(number, Pending::default());
        Ok(number)
    }

    /// Takes the outcome of a call, once it is known. It can be taken once.
    pub(crate) fn outcome(&mut self, number: CallNumber) -> Option<Result<Bytes, CallFailure>> {
        let Entry::Occupied(call) = self.calls.entry(number) else { return None };
        call.get().outcome.as_ref()?;
        self.untaken -= 1;
        call.remove().outcome
    }

    /// Cancels a call whose outcome no handle will ask for.
    pub(crate) fn cancel(&mut self, now: Time, number: CallNumber) {
        match self.calls.remove(&number) {
            Some(Pending { outcome: Some(_), .. }) => self.untaken -= 1,
            Some(Pending { outcome: None, .. }) => self.endpoint.cancel(now, number),
            None => {}
        }
    }

    /// Returns whether what was just given may wait for more, because its user `returns_soon`. If so, notes it.
    pub(crate) fn gathers(&mut self, now: Time, returns_soon: bool) -> bool {
        if !returns_soon || self.gathered >= GATHERED_MAX {
            return false;
        }
        if self.gathered == 0 {
            self.gathered_until = now + GATHER_MAX;
        }
        self.gathered += 1;
        true
    }

    /// True if outcomes are ready to be taken.
    pub(crate) fn has_outcomes(&self) -> bool {
        self.untaken > 0
    }

    /// Takes no more requests for the port. Returns the multicast address at which it is not reached any more.
    fn withdraw(&mut self, port: Port) -> Option<SocketAddr> {
        let served = self.served.get_mut(&port).filter(|served| !served.withdrawn)?;
        served.withdrawn = true;
        self.endpoint.withdraw(port);
        served.multicast.take()
    }

    /// True if the port takes no more requests.
    pub(crate) fn is_withdrawn(&self, port: Port) -> bool {
        self.served.get(&port).is_none_or(|served| served.withdrawn)
    }

    /// Sends what there is to send, and collects the wakers of those that need not wait any longer.
    pub(crate) fn serve(&mut self, now: Time, send_queue: &mut SendQueue, wakes: &mut Vec<Waker>) {
        (self.gathered, self.gathered_until) = (0, Time::NEVER);
        send_queue.drain(self, now);
        while let Some((number, outcome)) = self.endpoint.poll_outcome() {
            if let Some(pending) = self.calls.get_mut(&number) {
                pending.outcome = Some(outcome);
                self.untaken += 1;
                wakes.extend(pending.waker.take());
            }
        }
        self.answers.wake(wakes);
        self.out = self.handles == 0 && (self.out_by <= now || self.endpoint.is_idle());
    }

    /// True if there may be something for the lease holder, which is on no list while it waits.
    pub(crate) fn has_news(&self) -> bool {
        let news =
            |(port, served): (&Port, &Served)| served.withdrawn || self.endpoint.requests_waiting(*port) > 0;
        self.untaken > 0 || self.served.iter().any(news)
    }

    /// True if there are requests, or the end of them, and waiters for them.
    pub(crate) fn has_waiters(&self) -> bool {
        self.served.iter().any(|(port, served)| {
            !served.waiters.is_empty() && (served.withdrawn || self.endpoint.requests_waiting(*port) > 0)
        })
    }

    /// True if a thread or task is on the list of those that wait for requests.
    #[cfg(test)]
    pub(super) fn is_awaited(&self) -> bool {
        self.served.values().any(|served| !served.waiters.is_empty())
    }

    /// Wakes the waiters for requests that were not taken meanwhile.
    pub(crate) fn wake_servers(&mut self, wakes: &mut Vec<Waker>) {
        for (port, served) in &mut self.served {
            if served.withdrawn || self.endpoint.requests_waiting(*port) > 0 {
                served.waiters.wake(wakes);
            }
        }
    }

    /// True if something waits for more although its user will not return soon.
    pub(crate) fn is_unserved(&self) -> bool {
        self.gathered > 0 && self.untaken == 0
    }

    /// Returns when it has to be served again.
    pub(crate) fn deadline(&self) -> Time {
        if self.out {
            return Time::NEVER;
        }
        let core = self.endpoint.poll_timeout().map_or(Time::NEVER, |(time, _)| time);
        core.min(self.gathered_until).min(self.out_by)
    }

    /// True if no handle uses it and no client may need it any more.
    pub(crate) fn is_out(&self) -> bool {
        self.out
    }
}

impl Occupant for Calls {
    type Interest = CallInterest;

    fn of(slot: &mut Slot) -> Option<&mut Calls> {
        match slot {
            Slot::Calls(calls) => Some(calls),
            Slot::Membership(_) => None,
        }
    }

    fn register(&mut self, interest: CallInterest, waker: &Waker, listed: &mut Listed) {
        match interest {
            CallInterest::Outcome(number) => {
                if let Some(pending) = self.calls.get_mut(&number) {
                    pending.waker.get_or_insert_with(|| waker.clone()).clone_from(waker);
                }
            }
            CallInterest::Request(port) => {
                if let Some(served) = self.served.get_mut(&port) {
                    served.waiters.register(waker, listed);
                }
            }
            CallInterest::Answers => self.answers.register(waker, listed),
        }
    }

    fn release(&mut self, now: Time) {
        self.handles -= 1;
        if self.handles == 0 {
            self.endpoint.end_calls(now);
            self.out_by = now + REPLY_LINGER;
        }
    }
}

impl Source for Calls {
    type Destination = CallDestination;

    const TO_STRANGERS: bool = true;

    fn is_proved(destination: CallDestination) -> bool {
        !matches!(destination, CallDestination::Unproved(_))
    }

    fn transmit(&mut self, now: Time, datagram: &mut Vec<u8>) -> Option<CallDestination> {
        self.endpoint.poll_transmit(now, datagram)
    }

    fn resolve(&self, destination: CallDestination, own: SocketAddr, addresses: &mut Vec<SocketAddr>) {
        match destination {
            CallDestination::Address(address) | CallDestination::Unproved(address) => addresses.push(address),
            CallDestination::Rendezvous(port) => {
                if self.access.seeds.is_empty() {
                    addresses.push(multicast_address(port.tag()).into());
                } else {
                    addresses.extend(self.access.seeds.ask(own));
                }
                // An endpoint does not receive its own multicasts.
                addresses.extend((!self.is_withdrawn(port)).then_some(own));
            }
        }
        // A process without the key may have told the address.
        addresses.retain(|address| self.access.seeds.may_go_to(*address));
    }
}

/// The endpoint that an engine is to have.
pub(crate) struct Entrance {
    pub(crate) access: Access,
    pub(crate) spin: Duration,
}

impl Entrance {
    /// Returns what one user of an endpoint may ask for and another one not.
    fn asked(&self) -> (Duration, u8) {
        (self.spin, self.access.hops)
    }
}

impl State {
    /// True if calls with this access may be made here: those that are made have it, or else those that will be made
    /// beside a member.
    pub(super) fn takes_calls_like(&mut self, access: &Access) -> bool {
        match self.find(CALLS_TAG) {
            Some(index) => self.occupant::<Calls>(index).access.is_like(access),
            None => self.access.as_ref().is_none_or(|expected| expected.is_like(access)),
        }
    }
}

impl Engine {
    /// Returns an endpoint with this access, which handles share, in an engine of this wish at `place`. `make` makes it if there
    /// is none yet.
    pub(crate) fn call_from(
        (wish, purpose): (Wish, Purpose),
        place: Place,
        entrance: Entrance,
        make: impl FnOnce(Time, SocketAddr) -> Result<Endpoint, ConfigError>,
    ) -> Result<Shared<Calls>, OpenError> {
        let mut engines = engines();
        for engine in engines.of(wish) {
            let mut state = engine.lock();
            if state.closed {
                continue;
            }
            // A member is about to make calls with its own access.
            if !wish.names_port() && !state.takes_calls_like(&entrance.access) {
                continue;
            }
            if !engine.catch_up(&mut state, &place) {
                continue;
            }
            state.whereabouts.note_entry(purpose);
            let Some(index) = state.find(CALLS_TAG) else {
                return engine.admit_calls(state, entrance, make);
            };
            if state.occupant::<Calls>(index).access.is_like(&entrance.access) {
                return Ok(engine.share_calls(state, index, entrance.asked()));
            }
            return Err(OpenError::OtherCalls { address: state.own_address });
        }
        let seeds = entrance.access.seeds.clone();
        let whereabouts = Whereabouts::new((wish, purpose), seeds, place);
        Engine::begin(&mut engines, whereabouts, |engine| engine.admit_calls(engine.lock(), entrance, make))
    }

    fn admit_calls(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, State>,
        entrance: Entrance,
        make: impl FnOnce(Time, SocketAddr) -> Result<Endpoint, ConfigError>,
    ) -> Result<Shared<Calls>, OpenError> {
        let asked = entrance.asked();
        let calls = Calls::new(make(self.now(), state.own_address)?, entrance.access);
        let index = state.insert(CALLS_TAG, Slot::Calls(Box::new(calls)));
        Ok(self.share_calls(state, index, asked))
    }

    fn share_calls(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, State>,
        index: usize,
        (spin, hops): (Duration, u8),
    ) -> Shared<Calls> {
        let calls = state.occupant::<Calls>(index);
        calls.handles += 1;
        calls.out_by = Time::NEVER;
        calls.access.hops = calls.access.hops.max(hops);
        self.finish(state, index, self.now());
        Shared::new(self.clone(), index, spin)
    }
}

impl Shared {
    /// Returns an endpoint beside this member, at its address.
    pub(crate) fn call_beside(
        &self,
        entrance: Entrance,
        make: impl FnOnce(Time, SocketAddr) -> Result<Endpoint, ConfigError>,
    ) -> Result<Shared<Calls>, OpenError> {
        let Some(mut state) = self.engine.lock_at_home() else { return Err(OpenError::Forked) };
        if !state.home.is_current() {
            return Err(OpenError::Forked);
        }
        match state.find(CALLS_TAG) {
            None => self.engine.admit_calls(state, entrance, make),
            Some(index) if state.occupant::<Calls>(index).access.is_like(&entrance.access) => {
                Ok(self.engine.share_calls(state, index, entrance.asked()))
            }
            Some(_) => Err(OpenError::OtherCalls { address: state.own_address }),
        }
    }
}

impl Shared<Calls> {
    /// Accepts any instance of the service at this port from now on.
    pub(crate) fn forget_instance(&self, port: Port) {
        self.end(|calls, now| calls.endpoint.forget_instance(now, port));
    }

    /// Cancels a call whose outcome no handle will ask for.
    pub(crate) fn cancel(&self, number: CallNumber) {
        self.end(|calls, now| calls.cancel(now, number));
    }

    /// Returns another handle to the same endpoint.
    pub(crate) fn another(&self) -> Shared<Calls> {
        self.engine.share_calls(self.engine.lock(), self.index, (self.spin, 0))
    }

    /// Returns the address at which it is reached at present; port 0 if another thread panicked in the engine.
    pub(crate) fn address(&self) -> SocketAddr {
        let nowhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        self.engine.lock_unless_broken().map_or(nowhere, |state| state.own_address)
    }

    /// Serves a port, and listens where clients look for it.
    pub(crate) fn begin_service(
        &self,
        private: CorePrivatePort,
        options: ServeOptions,
    ) -> Result<Port, ServiceError> {
        let engine = &*self.engine;
        let Some(mut state) = engine.lock_at_home() else { return Err(OpenError::Forked.into()) };
        let now = engine.now();
        if !state.home.is_current() {
            return Err(OpenError::Forked.into());
        }
        let calls = state.occupant::<Calls>(self.index);
        let needs_multicast = calls.access.seeds.is_empty();
        let port = calls.endpoint.serve(private, options)?;
        let listens = engine.listen(&mut state, multicast_address(port.tag()), needs_multicast);
        let multicast = match listens {
            Ok(multicast) => multicast,
            Err(refused) => {
                state.occupant::<Calls>(self.index).endpoint.withdraw(port);
                return Err(refused.into());
            }
        };
        let served = Served { multicast, waiters: WaitList::default(), withdrawn: false };
        state.occupant::<Calls>(self.index).served.insert(port, served);
        engine.finish(state, self.index, now);
        Ok(port)
    }

    /// Takes no more requests for the port.
    pub(crate) fn withdraw(&self, port: Port) {
        self.end_listening(port, false);
    }

    /// Ends a service whose last handle was dropped.
    pub(crate) fn end_service(&self, port: Port) {
        self.end_listening(port, true);
    }

    fn end_listening(&self, port: Port, forget: bool) {
        let Some(mut state) = self.engine.lock_unless_broken() else { return };
        let now = self.engine.now();
        if !state.home.is_current() {
            return;
        }
        let calls = state.occupant::<Calls>(self.index);
        let multicast = calls.withdraw(port);
        if forget {
            calls.served.remove(&port);
        }
        state.stop_listening(multicast);
        self.engine.finish(state, self.index, now);
    }
}

//! The engine drives the core's groups over sockets: one unicast socket for all groups of a process that have
//! the same address, and a listener for each multicast address they use.
//!
//! There is one **seat**. Whoever has it waits for the sockets, the timers and the bell, gives the core what
//! comes, and sends what the core has to say, for all groups. It goes to a thread of the application that
//! waits in `receive` or `send` anyway, so that in a receive loop no second thread stands between the wire
//! and the application. When such a thread leaves it wakes nobody: it sets an alarm, and if the seat is still
//! free when that goes off, the engine's **background thread** sits down. A thread that wants the seat from
//! the background thread rings the **bell**; from another thread of the application it does not take it, but
//! waits for what it wants to be brought to it. Tasks of an executor never sit: for them the background
//! thread does.
//!
//! Where all datagrams come from one socket the seat is **focused**: whoever sits waits in the receive of that socket,
//! which is the fastest way to be woken, and the background thread sees to everything else in its stead (the timers,
//! the bell, the other sockets). If that brings something for the one who sits, it is **nudged**, by an empty datagram.
//!
//! | | |
//! |---|---|
//! | `state` | everything behind the lock |
//! | `slot` | what it holds: the core's state, and who waits for what |
//! | `membership` | the member of a group in a slot |
//! | `calls` | the calls in a slot: those under way, and services |
//! | `outcomes` | what becomes of messages under way |
//! | `outbox` | what is sent, in runs |
//! | `seat`, `turn`, `focus` | what is received, by whom, and in which of the sockets it waits |
//! | `park` | waiting, for threads and tasks |
//! | `background` | the thread that sits when nobody else does, and stands in for one who is focused |

mod background;
mod calls;
mod focus;
mod membership;
mod outbox;
mod outcomes;
mod park;
mod seat;
mod slot;
mod state;
mod turn;

pub(crate) use calls::{Access, CallInterest, Calls, Entrance};
pub(crate) use membership::{Interest, Membership};

use crate::error::OpenError;
use crate::reach::{Place, Seeds, multicast_address};
use outbox::Reach;
use park::Parker;
use rustix::time::{ClockId, clock_gettime};
use seat::{BELL, Seat, Woken};
use slot::{Occupant, Slot};
use state::State;
use std::io;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use turn::{Next, Rouse, Sleeper};
use unisono_core::{ConfigError, Group, GroupTag, MessageNumber, Time};
use unisono_udp::{Bell, Nudger, Socket, Watch};

/// See the module.
pub(crate) struct Engine {
    state: Mutex<State>,
    /// Over the bell and the sockets that whoever sits waits for, but the one that it is focused on.
    watch: Arc<Watch>,
    /// Rung to make whoever sits look at the state.
    bell: Bell,
    /// What the background thread waits for while it does not sit: its alarm, and the watch while the seat is focused.
    guard: Watch,
    /// Wakes whoever is focused.
    nudger: Nudger,
    place: Place,
    address: SocketAddr,
    /// When it began, by the system's clock.
    origin_ns: u64,
}

/// When an engine begins, by its own clock.
const BEGINNING: Time = Time::from_nanos(1);

/// The engines of this process.
static ENGINES: Mutex<Vec<Weak<Engine>>> = Mutex::new(Vec::new());

/// What an attempt came to.
pub(crate) enum Attempt<T, I = Interest> {
    /// That is it.
    Done(T),
    /// That is it, and what it gave the core may wait for more to go along.
    Gathered(T),
    /// That is it, and what it gave the core waits for more until the slot's own time.
    Kept(T),
    /// That is it, and the core was given nothing: what follows from having taken it may wait a moment.
    Taken(T),
    /// The core was given something, and it is to be tried again at once.
    Given,
    /// Try again when there is this.
    Wait(I),
}

/// How a group is found.
pub(crate) struct Way {
    pub(crate) tag: GroupTag,
    pub(crate) seeds: Seeds,
    /// There is no other way.
    pub(crate) needs_multicast: bool,
}

/// A slot in an engine, kept as long as anyone may ask for something.
pub(crate) struct Shared<O: Occupant = Membership> {
    engine: Arc<Engine>,
    index: usize,
    spin: Duration,
    occupant: PhantomData<fn() -> O>,
}

impl Engine {
    /// Enters a member into an engine at this place; `make` makes it for the address it is given.
    pub(crate) fn enter(
        place: Place,
        way: Way,
        spin: Duration,
        make: impl FnOnce(Time, SocketAddr, usize) -> Result<Group, ConfigError>,
    ) -> Result<Shared, OpenError> {
        let mut engines = engines();
        for engine in engines.iter().filter_map(Weak::upgrade) {
            if engine.place != place {
                continue;
            }
            let state = engine.lock();
            if state.closed {
                continue;
            }
            if !state.has(way.tag) {
                return engine.admit(state, way, spin, make);
            }
            if place.bind.port() != 0 {
                return Err(OpenError::AlreadyMember { address: engine.address });
            }
        }
        let engine = Arc::new(Engine::new(place)?);
        let shared = engine.admit(engine.lock(), way, spin, make)?;
        background::start(engine.clone()).map_err(|source| socket_error("start a thread", source))?;
        engines.push(Arc::downgrade(&engine));
        Ok(shared)
    }

    fn new(place: Place) -> Result<Engine, OpenError> {
        let mut unicast = Socket::bind(place.bind).map_err(|source| match source.kind() {
            io::ErrorKind::AddrInUse => OpenError::AddressInUse { address: place.bind },
            io::ErrorKind::AddrNotAvailable => OpenError::NotOurAddress { address: place.bind },
            _ => socket_error("open a socket", source),
        })?;
        if place.bind.ip().is_unspecified() {
            // A member has one address, whichever of the machine's somebody asks at.
            unicast.send_as(place.advertised);
        }
        if let Some(interface) = place.interface {
            // Where this fails, listening does too, and says so.
            let _ = unicast.send_multicast_by(interface, 1);
        }
        let nudger = Nudger::new(unicast.address(), place.interface)
            .map_err(|source| socket_error("open a second socket", source))?;
        let bell = Bell::new().map_err(|source| socket_error("make an event counter", source))?;
        let watch = Watch::new()
            .and_then(|watch| watch.add(&bell, BELL).map(|()| Arc::new(watch)))
            .map_err(|source| socket_error("prepare to wait for sockets", source))?;
        Ok(Engine {
            address: unicast.address(),
            state: Mutex::new(State::new(Arc::new(unicast), Seat::new(watch.clone()), nudger.port())),
            watch,
            bell,
            guard: Watch::new().map_err(|source| socket_error("make a timer", source))?,
            nudger,
            place,
            origin_ns: clock_ns(),
        })
    }

    fn admit(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, State>,
        way: Way,
        spin: Duration,
        make: impl FnOnce(Time, SocketAddr, usize) -> Result<Group, ConfigError>,
    ) -> Result<Shared, OpenError> {
        let now = self.now();
        let group = make(now, self.address, state.receive_buffer_bytes())?;
        let address = multicast_address(way.tag);
        let listens = match self.place.interface {
            Some(interface) => state.listen(address, interface),
            None => Err(no_multicast()),
        };
        let multicast = match listens {
            Ok(()) => Some(address.into()),
            Err(source) if way.needs_multicast => {
                return Err(OpenError::NoMulticast { address: self.address, source });
            }
            Err(_) => None,
        };
        let membership = Membership::new(group, Reach { multicast, seeds: way.seeds });
        let index = state.insert(way.tag, Slot::Membership(Box::new(membership)));
        self.settle(&mut state, now);
        self.arrange(&mut state, now, false);
        self.unlock(state);
        Ok(Shared { engine: self.clone(), index, spin, occupant: PhantomData })
    }

    /// Nanoseconds since a little before the engine began.
    fn now(&self) -> Time {
        Time::from_nanos(BEGINNING.as_nanos() + clock_ns().saturating_sub(self.origin_ns))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic in the middle of the protocol leaves nothing that could be relied on.
        self.lock_unless_broken()
            .unwrap_or_else(|| panic!("unisono's engine was stopped by a panic elsewhere"))
    }

    fn lock_unless_broken(&self) -> Option<MutexGuard<'_, State>> {
        self.state.lock().ok()
    }

    /// Releases the lock and wakes who has to be woken.
    fn unlock(&self, mut state: MutexGuard<'_, State>) {
        if !state.has_wakes() {
            return;
        }
        let wakes = state.take_wakes();
        if !wakes.is_empty() {
            state.turn.tasks_woken();
        }
        drop(state);
        wakes.into_iter().for_each(Waker::wake);
    }

    /// Serves everybody who has to be, and sees to it that whoever sits does not sleep through the
    /// consequences.
    fn settle(&self, state: &mut State, now: Time) {
        state.settle(now);
        self.call(state, now);
    }

    /// Wakes whoever sleeps on the seat if there is something for it to see, and lets it sleep no longer than until the
    /// next timer is due.
    fn call(&self, state: &mut State, now: Time) {
        if state.turn.sleeper().is_none() {
            return;
        }
        if state.calls() {
            state.turn.call();
        }
        match state.turn.rouse(now) {
            None => {}
            Some(Rouse::Ring) => self.ring(state),
            Some(Rouse::Nudge(key)) => {
                // Not all sockets: it waits there although its group may have gone.
                state.turn.sockets().get(&key).into_iter().for_each(|socket| self.nudger.nudge(socket));
            }
        }
        self.set_alarm(state, now);
    }

    /// Lets the watch's alarm go off when whoever sleeps, or stands in for it, has to be up.
    fn set_alarm(&self, state: &mut State, now: Time) {
        let due = state.alarm(now);
        if due < state.turn.rings_at {
            self.watch.set_alarm(due.since(self.now()));
            state.turn.rings_at = due;
        }
    }

    fn ring(&self, state: &mut State) {
        if !state.rung {
            state.rung = true;
            self.bell.ring();
        }
    }

    /// Sees to it that somebody sits, now or soon.
    fn arrange(&self, state: &mut State, now: Time, at_once: bool) {
        match state.turn.next(now, at_once) {
            Next::Nothing => {}
            Next::Wake(parker) => state.wakes.push(parker.into()),
            Next::Alarm(after) => self.guard.set_alarm(after),
        }
    }

    /// Sleeps on the seat until something comes, until a timer is due, or until `sleeper` wants to be up; and takes in
    /// what came. Returns when that was, too; nothing if another thread broke the engine meanwhile.
    fn sit<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        seat: &mut Seat,
        now: Time,
        sleeper: Sleeper,
        spin: Duration,
    ) -> Option<(MutexGuard<'a, State>, Time)> {
        // One who spins wants to hear of everything itself, and for the background thread nobody can stand in.
        let may_focus = sleeper.slot.is_some() && spin.is_zero();
        state.sit_down(seat, &self.guard, may_focus, sleeper);
        self.set_alarm(&mut state, now);
        self.unlock(state);
        let woken = seat.wait(spin);
        let mut state = self.lock_unless_broken()?;
        let now = self.now();
        self.note_woken(&mut state, woken);
        state.turn.rise();
        state.take_in(now, &mut seat.inbox);
        Some((state, now))
    }

    fn note_woken(&self, state: &mut State, woken: Woken) {
        if woken.rang {
            self.bell.silence();
            state.rung = false;
            state.turn.note_silence();
        }
        if woken.alarmed {
            state.turn.rings_at = Time::NEVER;
        }
    }

    /// Sleeps until woken or until then, while somebody else sits.
    fn stand<'a, O: Occupant>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        index: usize,
        interest: O::Interest,
        until: Time,
    ) -> Option<(MutexGuard<'a, State>, Time)> {
        let (parker, waker) = Parker::mine();
        state.occupant::<O>(index).register(interest, &waker);
        state.turn.claim(parker.clone());
        if state.turn.background_sits() {
            self.ring(&mut state);
        }
        self.unlock(state);
        parker.park(self.instant(until));
        let mut state = self.lock_unless_broken()?;
        state.turn.unclaim(&parker);
        Some((state, self.now()))
    }

    /// The same time on the clock by which threads sleep.
    fn instant(&self, time: Time) -> Option<Instant> {
        if time == Time::NEVER { None } else { Instant::now().checked_add(time.since(self.now())) }
    }

    /// Tries, after everybody was served who has to be, and again as long as that gives the core something. `leaves`:
    /// the calling thread has the seat, and leaves it when it is done; whoever sits next is soon enough then for what
    /// follows from events that were taken.
    fn attempt<T, O: Occupant>(
        &self,
        state: &mut State,
        index: usize,
        now: Time,
        leaves: bool,
        attempt: &mut impl FnMut(&mut O, Time) -> Attempt<T, O::Interest>,
    ) -> Result<T, O::Interest> {
        loop {
            self.settle(state, now);
            let tried = attempt(state.occupant(index), now);
            match tried {
                Attempt::Wait(interest) => {
                    if !state.touch_if_unserved(index) || state.lacks_room() {
                        return Err(interest);
                    }
                }
                Attempt::Given => state.touch(index),
                Attempt::Kept(done) => {
                    state.arm(index);
                    self.call(state, now);
                    return Ok(done);
                }
                Attempt::Gathered(done) => {
                    state.touch(index);
                    return Ok(done);
                }
                Attempt::Taken(done) => {
                    let soon = (leaves || state.turn.is_vacant()) && !state.turn.claimed();
                    if state.touch_if_it_follows_up(index) && !soon {
                        self.settle(state, now);
                    }
                    return Ok(done);
                }
                Attempt::Done(done) => {
                    state.touch(index);
                    self.settle(state, now);
                    return Ok(done);
                }
            }
        }
    }

    fn finish(&self, mut state: MutexGuard<'_, State>, index: usize, now: Time) {
        state.touch(index);
        self.settle(&mut state, now);
        self.arrange(&mut state, now, false);
        self.unlock(state);
    }
}

impl<O: Occupant> std::fmt::Debug for Shared<O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "number {} at {}", self.index, self.engine.address)
    }
}

impl<O: Occupant> Shared<O> {
    /// Tries until it is done, or until `timeout` has passed. In between the calling thread sits, or waits
    /// for the one who does.
    pub(crate) fn block<T>(
        &self,
        timeout: Option<Duration>,
        mut attempt: impl FnMut(&mut O, Time) -> Attempt<T, O::Interest>,
    ) -> Option<T> {
        let engine = &*self.engine;
        let mut now = engine.now();
        let until = timeout.map_or(Time::NEVER, |timeout| now + timeout);
        let mut state = engine.lock();
        let mut seat = None;
        let result = loop {
            match engine.attempt(&mut state, self.index, now, seat.is_some(), &mut attempt) {
                Ok(done) => break Some(done),
                Err(_) if until <= now => break None,
                Err(interest) => {
                    seat = seat.or_else(|| state.turn.take(now, false));
                    let risen = match &mut seat {
                        Some(seat) => {
                            engine.sit(state, seat, now, Sleeper::new(Some(self.index), until), self.spin)
                        }
                        None => engine.stand::<O>(state, self.index, interest, until),
                    };
                    (state, now) = risen.unwrap_or_else(|| (engine.lock(), engine.now()));
                }
            }
        };
        if let Some(seat) = seat {
            state.turn.leave(now, seat);
        }
        engine.arrange(&mut state, now, false);
        engine.unlock(state);
        result
    }

    /// Tries now; if that is not it, `context` is woken when it may be.
    pub(crate) fn poll<T>(
        &self,
        context: &mut Context<'_>,
        mut attempt: impl FnMut(&mut O, Time) -> Attempt<T, O::Interest>,
    ) -> Poll<T> {
        let engine = &*self.engine;
        let now = engine.now();
        let mut state = engine.lock();
        let polled = match engine.attempt(&mut state, self.index, now, false, &mut attempt) {
            Ok(done) => Poll::Ready(done),
            Err(interest) => {
                state.occupant::<O>(self.index).register(interest, context.waker());
                state.turn.await_as_task();
                Poll::Pending
            }
        };
        engine.arrange(&mut state, now, false);
        engine.unlock(state);
        polled
    }

    /// Does something that needs no waiting.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut O, Time) -> T) -> T {
        let engine = &*self.engine;
        let now = engine.now();
        let mut state = engine.lock();
        let result = act(state.occupant(self.index), now);
        engine.finish(state, self.index, now);
        result
    }

    /// The time by the engine's clock.
    pub(crate) fn now(&self) -> Time {
        self.engine.now()
    }

    fn end(&self, act: impl FnOnce(&mut O, Time)) -> bool {
        let Some(mut state) = self.engine.lock_unless_broken() else { return false };
        let now = self.engine.now();
        act(state.occupant(self.index), now);
        self.engine.finish(state, self.index, now);
        true
    }
}

impl Shared {
    /// No handle is left: the member leaves in the background. False if the engine is broken.
    pub(crate) fn abandon(&self) -> bool {
        self.end(Membership::abandon)
    }

    /// Nobody will ask what became of the messages that end with this number.
    pub(crate) fn forget(&self, number: MessageNumber) {
        if let Some(mut state) = self.engine.lock_unless_broken() {
            state.occupant::<Membership>(self.index).outcomes.forget(number);
        }
    }
}

impl<O: Occupant> Drop for Shared<O> {
    fn drop(&mut self) {
        self.end(O::release);
    }
}

/// A clock that never goes back or stands still, not even while the machine is suspended: others go on meanwhile.
fn clock_ns() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// The engines that there are, for as long as nobody else adds one.
fn engines() -> MutexGuard<'static, Vec<Weak<Engine>>> {
    let mut engines = ENGINES.lock().unwrap_or_else(PoisonError::into_inner);
    engines.retain(|engine| engine.strong_count() > 0);
    engines
}

pub(crate) fn no_multicast() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "multicast is done with IPv4 only")
}

fn socket_error(what: &'static str, source: io::Error) -> OpenError {
    OpenError::Socket { what, source }
}

#[cfg(test)]
mod tests {
    use super::seat::LISTENERS;
    use super::*;
    use crate::{Event, Group, GroupConfig, Options};
    use std::net::Ipv4Addr;
    use std::sync::mpsc;

    const LOOPBACK: Ipv4Addr = Ipv4Addr::LOCALHOST;
    /// Longer than anything takes that works.
    const PATIENCE: Duration = Duration::from_secs(60);
    /// Half of the time after which whoever waits in a receive is up by itself.
    const HALF_A_WAIT: Duration = Duration::from_millis(10);
    const ROUNDS: usize = 10;

    /// A member alone in its group, and its engine.
    fn alone(what: &str) -> (Group, Arc<Engine>) {
        alone_at(what, Options::default())
    }

    fn alone_at(what: &str, options: Options) -> (Group, Arc<Engine>) {
        let name = format!("{what}-{}", std::process::id());
        let group = Group::create(&name, GroupConfig::default(), &options).unwrap();
        let address = group.members()[0].address;
        let engine = engines().iter().filter_map(Weak::upgrade).find(|engine| engine.address == address);
        (group, engine.unwrap())
    }

    /// Returns when a thread sleeps that is focused: what comes, and means nothing, comes from one socket.
    fn focus(engine: &Engine) {
        focus_on(engine, engine.address);
    }

    /// The same with the socket that is bound to this address.
    fn focus_on(engine: &Engine, address: SocketAddr) {
        const A_MOMENT: Duration = Duration::from_millis(1);
        let (socket, begin) = (Socket::bind((LOOPBACK, 0).into()).unwrap(), Instant::now());
        socket.send_multicast_by(LOOPBACK, 1).unwrap();
        let is_focused = || engine.lock().turn.sleeper().is_some_and(Sleeper::is_focused);
        let lasts = |so: bool| {
            let begin = Instant::now();
            while begin.elapsed() < A_MOMENT && is_focused() == so {
                std::thread::yield_now();
            }
            is_focused() == so
        };
        while lasts(false) || !lasts(true) {
            assert!(begin.elapsed() < PATIENCE, "it does not focus");
            socket.send(b"nothing", 7, &[address]);
        }
    }

    /// Returns when a thread of the application sleeps on the seat, and is not focused.
    fn sits(engine: &Engine) -> MutexGuard<'_, State> {
        let begin = Instant::now();
        loop {
            let state = engine.lock();
            if state.turn.sleeper().is_some_and(|sleeper| sleeper.slot.is_some() && !sleeper.is_focused()) {
                return state;
            }
            drop(state);
            assert!(begin.elapsed() < PATIENCE, "nobody sits");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_bell_that_another_thread_silences_is_rung_again() {
        let (group, engine) = alone("bell-silenced");
        std::thread::scope(|scope| {
            let receiver = group.clone();
            scope.spawn(move || while receiver.receive().is_ok() {});
            let mut state = sits(&engine);
            let now = engine.now();
            state.turn.call();
            engine.call(&mut state, now);
            assert!(state.rung);
            // As the background thread does if it looked while somebody else was focused, and is late.
            engine.note_woken(&mut state, Woken { rang: true, alarmed: false });
            assert!(!state.rung);
            engine.call(&mut state, now);
            assert!(state.rung);
            drop(state);
            group.leave("").unwrap();
        });
    }

    /// Another group in the engine of a first one, and the socket that listens for it alone: groups share addresses.
    fn beside(engine: &Arc<Engine>, what: &str, options: &Options) -> Option<(Group, Weak<Socket>)> {
        let listeners =
            || engine.lock().sockets.range(LISTENERS..).next_back().map(|(_, socket)| socket.clone());
        let Some(first) = listeners() else {
            eprintln!("SKIPPED: no multicast on loopback here");
            return None;
        };
        (0..).find_map(|count| {
            let (group, same) = alone_at(&format!("{what}-{count}"), options.clone());
            assert!(Arc::ptr_eq(engine, &same));
            let own = listeners().filter(|socket| !Arc::ptr_eq(socket, &first))?;
            Some((group, Arc::downgrade(&own)))
        })
    }

    #[test]
    fn a_socket_is_closed_when_its_group_has_gone_although_another_thread_waits() {
        // An engine that no other test uses.
        let options = Options { bind: Some("127.0.0.9:0".parse().unwrap()), ..Options::default() };
        let (first, engine) = alone_at("closed-first", options.clone());
        let Some((second, listener)) = beside(&engine, "closed-second", &options) else { return };
        let closed = std::thread::scope(|scope| {
            let begin = Instant::now();
            // The background thread is to have waited for it too.
            while !engine.lock().turn.background_sits() && begin.elapsed() < PATIENCE {
                std::thread::yield_now();
            }
            let receiver = first.clone();
            scope.spawn(move || while receiver.receive().is_ok() {});
            drop(sits(&engine));
            drop(second);
            while listener.strong_count() > 0 && begin.elapsed() < Duration::from_secs(10) {
                std::thread::yield_now();
            }
            let closed = listener.strong_count() == 0;
            first.leave("").unwrap();
            closed
        });
        assert!(closed);
    }

    #[test]
    fn one_that_waits_in_a_socket_is_woken_when_that_goes() {
        // An engine that no other test uses.
        let bind = Some("127.0.0.10:0".parse().unwrap());
        let options = Options { bind, multicast_interface: Some(LOOPBACK), ..Options::default() };
        let (group, engine) = alone_at("gone", options.clone());
        let shortest = std::thread::scope(|scope| {
            let receiver = group.clone();
            scope.spawn(move || while receiver.receive().is_ok() {});
            let waits = (0..ROUNDS).map(|round| {
                let (other, listener) = beside(&engine, &format!("gone-{round}"), &options)?;
                let address = listener.upgrade()?.address();
                focus_on(&engine, address);
                let begin = Instant::now();
                drop(other);
                while engine.lock().turn.sockets().values().any(|socket| socket.address() == address) {
                    if begin.elapsed() > PATIENCE {
                        break;
                    }
                    std::thread::yield_now();
                }
                Some(begin.elapsed())
            });
            let shortest = waits.min();
            group.leave("").unwrap();
            shortest
        });
        assert!(shortest < Some(Some(HALF_A_WAIT)), "{shortest:?}");
    }

    #[test]
    fn what_another_thread_does_is_seen_by_one_that_waits_in_a_socket() {
        let (group, engine) = alone("focus-news");
        let (told, heard) = mpsc::channel();
        let shortest = std::thread::scope(|scope| {
            let receiver = group.clone();
            scope.spawn(move || {
                while let Ok(event) = receiver.receive() {
                    if let Event::Message { .. } = event {
                        let _ = told.send(Instant::now());
                    }
                }
            });
            let waits = (0..ROUNDS).map(|_| {
                focus(&engine);
                let begin = Instant::now();
                drop(group.submit("mine").unwrap());
                heard.recv_timeout(PATIENCE).unwrap().saturating_duration_since(begin)
            });
            let shortest = waits.min();
            group.leave("").unwrap();
            shortest
        });
        assert!(shortest < Some(HALF_A_WAIT), "{shortest:?}");
    }

    #[test]
    fn one_that_waits_in_a_socket_for_a_while_waits_no_longer() {
        let (group, engine) = alone("focus-while");
        group.receive_timeout(PATIENCE).unwrap().unwrap();
        let (told, heard) = mpsc::channel();
        let shortest = std::thread::scope(|scope| {
            let receiver = group.clone();
            scope.spawn(move || {
                let limit = Duration::from_millis(1);
                loop {
                    let begin = Instant::now();
                    match receiver.receive_timeout(limit) {
                        Ok(None) if told.send(begin.elapsed()).is_ok() => {}
                        _ => break,
                    }
                }
            });
            let waits = (0..ROUNDS).map(|_| {
                focus(&engine);
                heard.try_iter().for_each(drop);
                heard.recv_timeout(PATIENCE).unwrap()
            });
            let shortest = waits.min();
            drop(heard);
            shortest
        });
        assert!(shortest < Some(HALF_A_WAIT), "{shortest:?}");
    }
}

//! The handle to what an engine holds: what a thread or a task wants is attempted, again and again, until it is done.

use super::Engine;
use super::fork::OfFork;
use super::membership::{Interest, Membership};
use super::park::Listed;
use super::slot::Occupant;
use super::state::State;
use super::turn::Sleeper;
use std::marker::PhantomData;
use std::sync::{Arc, MutexGuard};
use std::task::{Context, Poll};
use std::time::Duration;
use unisono_core::{MessageNumber, Time};

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

/// A slot in an engine, kept as long as anyone may ask for something.
pub(crate) struct Shared<O: Occupant = Membership> {
    pub(super) engine: Arc<Engine>,
    pub(super) index: usize,
    pub(super) spin: Duration,
    occupant: PhantomData<fn() -> O>,
}

impl<O: Occupant> std::fmt::Debug for Shared<O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "number {} at {}", self.index, self.engine.address)
    }
}

impl<O: Occupant> Shared<O> {
    /// A handle to the slot with this index, which holds an `O`. A thread that waits with it looks for `spin` before it
    /// sleeps.
    pub(super) fn new(engine: Arc<Engine>, index: usize, spin: Duration) -> Shared<O> {
        Shared { engine, index, spin, occupant: PhantomData }
    }

    /// Tries until it is done, or until `timeout` has passed. In between the calling thread sits, or waits
    /// for the one who does.
    pub(crate) fn block<T: OfFork>(
        &self,
        timeout: Option<Duration>,
        attempt: impl FnMut(&mut O, Time) -> Attempt<T, O::Interest>,
    ) -> Option<T> {
        let Some(state) = self.engine.lock_at_home() else { return Some(T::of_fork()) };
        let now = self.engine.now();
        let until = timeout.map_or(Time::NEVER, |timeout| now + timeout);
        self.block_until(until, state, now, None, attempt)
    }

    /// As [`Shared::block`], for as long as it takes, for an attempt that only takes what there is; `lacking` is what it
    /// would wait for, if that can be told without it. Mostly whoever comes back finds all as it was left: it need not try
    /// then, nor know what time it is.
    pub(crate) fn take<T: OfFork>(
        &self,
        lacking: impl FnOnce(&O) -> Option<O::Interest>,
        mut attempt: impl FnMut(&mut O) -> Attempt<T, O::Interest>,
    ) -> Option<T> {
        let Some(mut state) = self.engine.lock_at_home() else { return Some(T::of_fork()) };
        let (now, lacking) = match state.undisturbed_since() {
            Some(since) => (since, lacking(state.occupant(self.index))),
            None => (self.engine.now(), None),
        };
        // One that has to wait asks anyway.
        if lacking.is_none() && state.home.is_left(self.engine.now()) {
            return Some(T::of_fork());
        }
        self.block_until(Time::NEVER, state, now, lacking, |occupant, _| attempt(occupant))
    }

    fn block_until<'a, T: OfFork>(
        &'a self,
        until: Time,
        mut state: MutexGuard<'a, State>,
        mut now: Time,
        mut lacking: Option<O::Interest>,
        mut attempt: impl FnMut(&mut O, Time) -> Attempt<T, O::Interest>,
    ) -> Option<T> {
        let engine = &*self.engine;
        let mut lease = None;
        let result = loop {
            let tried = match lacking.take() {
                None => engine.attempt(&mut state, self.index, now, lease.is_some(), &mut attempt),
                Some(interest) => Err(interest),
            };
            match tried {
                _ if state.home.is_left(now) => return Some(T::of_fork()),
                Ok(done) => break Some(done),
                Err(_) if until <= now => break None,
                Err(_) if engine.home.is_elsewhere() => return Some(T::of_fork()),
                Err(interest) => {
                    lease = lease.or_else(|| state.turn.take(now, false));
                    let risen = match &mut lease {
                        Some(lease) => {
                            engine.sit(state, lease, now, Sleeper::new(Some(self.index), until), self.spin)
                        }
                        None => engine.stand::<O>(state, self.index, interest, until),
                    };
                    (state, now) = risen.unwrap_or_else(|| engine.look());
                }
            }
        };
        if let Some(lease) = lease {
            state.turn.leave(now, lease);
        }
        engine.arrange(&mut state, now, false);
        engine.unlock(state);
        result
    }

    /// Tries now; if that is not it, `context` is woken when it may be, as long as `listed` is there.
    pub(crate) fn poll<T: OfFork>(
        &self,
        context: &mut Context<'_>,
        listed: &mut Listed,
        mut attempt: impl FnMut(&mut O, Time) -> Attempt<T, O::Interest>,
    ) -> Poll<T> {
        let engine = &*self.engine;
        let Some(mut state) = engine.lock_at_home() else { return Poll::Ready(T::of_fork()) };
        let now = engine.now();
        if state.home.is_left(now) {
            return Poll::Ready(T::of_fork());
        }
        let polled = match engine.attempt(&mut state, self.index, now, false, &mut attempt) {
            Ok(done) => Poll::Ready(done),
            Err(interest) => {
                state.occupant::<O>(self.index).register(interest, context.waker(), listed);
                state.turn.await_as_task();
                Poll::Pending
            }
        };
        engine.arrange(&mut state, now, false);
        engine.unlock(state);
        polled
    }

    /// Asks the core for something that needs no waiting, and is refused in a forked child.
    pub(crate) fn command<T: OfFork>(&self, act: impl FnOnce(&mut O, Time) -> T) -> T {
        let engine = &*self.engine;
        let Some(mut state) = engine.lock_at_home() else { return T::of_fork() };
        let now = engine.now();
        if state.home.is_left(now) {
            return T::of_fork();
        }
        let result = act(state.occupant(self.index), now);
        engine.finish(state, self.index, now);
        result
    }

    /// Looks at something, in a forked child as it was when that began.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut O, Time) -> T) -> T {
        let engine = &*self.engine;
        let (mut state, now) = engine.look();
        let result = act(state.occupant(self.index), now);
        engine.finish(state, self.index, now);
        result
    }

    /// The time by the engine's clock.
    pub(crate) fn now(&self) -> Time {
        self.engine.now()
    }

    /// As [`Shared::with`], where the engine may be broken: false if it is.
    pub(super) fn end(&self, act: impl FnOnce(&mut O, Time)) -> bool {
        let Some(mut state) = self.engine.lock_unless_broken() else { return false };
        let now = self.engine.now();
        if state.home.is_left(now) {
            return false;
        }
        act(state.occupant(self.index), now);
        self.engine.finish(state, self.index, now);
        true
    }
}

#[cfg(all(test, feature = "tracing"))]
impl Shared {
    /// Cuts the member off from all others, or ends that.
    pub(crate) fn cut_off(&self, cut: bool) {
        self.engine.cut_off(cut);
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

impl Engine {
    /// Tries, after everybody was served who has to be, and again as long as that gives the core something. `leaves`:
    /// the calling thread has the I/O lease, and leaves it when it is done; whoever sits next is soon enough then for what
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
}

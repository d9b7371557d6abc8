//! The handle to a slot of an engine. What a thread or a task wants is an attempt, which is repeated until it succeeds.

use super::Engine;
use super::calls::{CallInterest, Calls};
use super::fork::OfFork;
use super::membership::{Interest, Membership};
use super::park::Listed;
use super::slot::Occupant;
use super::state::State;
use super::turn::Sleeper;
use std::marker::PhantomData;
use std::sync::{Arc, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use unisono_core::{MessageNumber, Port, Time};

/// What an attempt came to.
pub(crate) enum Attempt<T, I = Interest> {
    /// It succeeded.
    Done(T),
    /// It succeeded, and what it gave the core may wait for more that shares its datagrams.
    Gathered(T),
    /// It succeeded, and what it gave the core waits for more until the slot's own deadline.
    Kept(T),
    /// It succeeded and gave the core nothing. What follows from having taken something may wait a moment.
    Taken(T),
    /// The core was given something. The attempt has to be repeated at once.
    Given,
    /// It has to be repeated when this is there.
    Wait(I),
}

impl<T, I> Attempt<T, I> {
    /// Returns the same with another result of success.
    pub(crate) fn map<U>(self, change: impl FnOnce(T) -> U) -> Attempt<U, I> {
        match self {
            Attempt::Done(done) => Attempt::Done(change(done)),
            Attempt::Gathered(done) => Attempt::Gathered(change(done)),
            Attempt::Kept(done) => Attempt::Kept(change(done)),
            Attempt::Taken(done) => Attempt::Taken(change(done)),
            Attempt::Given => Attempt::Given,
            Attempt::Wait(interest) => Attempt::Wait(interest),
        }
    }
}

/// A handle to a slot. The slot stays as long as there is one.
pub(crate) struct Shared<O: Occupant = Membership> {
    pub(super) engine: Arc<Engine>,
    pub(super) index: usize,
    pub(super) spin: Duration,
    occupant: PhantomData<fn() -> O>,
}

impl<O: Occupant> std::fmt::Debug for Shared<O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.engine.state.try_lock();
        let address = state.map_or_else(|_| String::from("…"), |state| state.own_address.to_string());
        write!(f, "number {} at {address}", self.index)
    }
}

impl<O: Occupant> Shared<O> {
    /// Makes a handle to the slot with this index, which holds an `O`. A thread that waits with it polls for `spin`
    /// before it sleeps.
    pub(super) fn new(engine: Arc<Engine>, index: usize, spin: Duration) -> Shared<O> {
        Shared { engine, index, spin, occupant: PhantomData }
    }

    /// Repeats the attempt until it succeeds, or until `timeout` has passed. In between the calling thread holds the
    /// I/O lease, or waits for the thread that does.
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

    /// Like [`Shared::block`], but the calling thread never holds the I/O lease: it waits until another thread brings what it
    /// waits for, at worst the fallback thread.
    pub(crate) fn block_aside<T: OfFork>(
        &self,
        timeout: Option<Duration>,
        mut attempt: impl FnMut(&mut O, Time) -> Attempt<T, O::Interest>,
    ) -> Option<T> {
        let engine = &*self.engine;
        let Some(mut state) = engine.lock_at_home() else { return Some(T::of_fork()) };
        let mut now = engine.now();
        let until = timeout.map_or(Time::NEVER, |timeout| now + timeout);
        let result = loop {
            let tried = engine.attempt(&mut state, self.index, now, false, &mut attempt);
            match tried {
                _ if !state.home.is_current() => return Some(T::of_fork()),
                Ok(done) => break Some(done),
                Err(_) if until <= now => break None,
                Err(_) if !engine.home.is_current() => return Some(T::of_fork()),
                Err(interest) => {
                    let register = |state: &mut State, waker: &Waker, listed: &mut Listed| {
                        state.occupant::<O>(self.index).register(interest, waker, listed);
                    };
                    engine.pass_lease(&mut state, now, false);
                    (state, now) = engine.wait_aside(state, register, until).unwrap_or_else(|| engine.look());
                }
            }
        };
        engine.pass_lease(&mut state, now, false);
        engine.unlock(state);
        result
    }

    /// Like [`Shared::block`] without a timeout, for an attempt that only takes what is there. `lacking` returns what
    /// the attempt would wait for, if that is known without trying. A thread usually finds the state as it left it:
    /// then it neither tries nor reads the clock.
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
        // An attempt that has to wait checks this in `block_until`.
        if lacking.is_none() && !state.home.is_current() {
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
                _ if !state.home.is_current() => return Some(T::of_fork()),
                Ok(done) => break Some(done),
                Err(_) if until <= now => break None,
                Err(_) if !engine.home.is_current() => return Some(T::of_fork()),
                Err(interest) => {
                    lease = lease.or_else(|| state.turn.take(now, false));
                    let risen = match &mut lease {
                        Some(lease) => {
                            engine.lead(state, lease, now, Sleeper::new(Some(self.index), until), self.spin)
                        }
                        None => {
                            let register = |state: &mut State, waker: &Waker, listed: &mut Listed| {
                                state.occupant::<O>(self.index).register(interest, waker, listed);
                            };
                            engine.follow(state, register, until)
                        }
                    };
                    (state, now) = risen.unwrap_or_else(|| engine.look());
                }
            }
        };
        if let Some(lease) = lease {
            state.turn.release(now, lease);
        }
        engine.pass_lease(&mut state, now, false);
        engine.unlock(state);
        result
    }

    /// Tries once. If the attempt has to wait, `context` is woken when it may succeed, unless `listed` is dropped
    /// before.
    pub(crate) fn poll<T: OfFork>(
        &self,
        context: &mut Context<'_>,
        listed: &mut Listed,
        mut attempt: impl FnMut(&mut O, Time) -> Attempt<T, O::Interest>,
    ) -> Poll<T> {
        let engine = &*self.engine;
        let Some(mut state) = engine.lock_at_home() else { return Poll::Ready(T::of_fork()) };
        let now = engine.now();
        if !state.home.is_current() {
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
        engine.pass_lease(&mut state, now, false);
        engine.unlock(state);
        polled
    }

    /// Executes a command that needs no waiting. In a forked child it returns an error.
    pub(crate) fn command<T: OfFork>(&self, act: impl FnOnce(&mut O, Time) -> T) -> T {
        let engine = &*self.engine;
        let Some(mut state) = engine.lock_at_home() else { return T::of_fork() };
        let now = engine.now();
        if !state.home.is_current() {
            return T::of_fork();
        }
        let result = act(state.occupant(self.index), now);
        engine.finish(state, self.index, now);
        result
    }

    /// Returns what `act` returns for the occupant; in a forked child, for the occupant as it was at the fork.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut O, Time) -> T) -> T {
        let engine = &*self.engine;
        let (mut state, now) = engine.look();
        let result = act(state.occupant(self.index), now);
        engine.finish(state, self.index, now);
        result
    }

    /// True if both are handles to the same slot.
    pub(crate) fn is_same(&self, other: &Shared<O>) -> bool {
        Arc::ptr_eq(&self.engine, &other.engine) && self.index == other.index
    }

    /// Returns the time by the engine's clock.
    pub(crate) fn now(&self) -> Time {
        self.engine.now()
    }

    /// Like [`Shared::with`], but returns false if the engine has panicked.
    pub(super) fn end(&self, act: impl FnOnce(&mut O, Time)) -> bool {
        let Some(mut state) = self.engine.lock_unless_broken() else { return false };
        let now = self.engine.now();
        if !state.home.is_current() {
            return false;
        }
        act(state.occupant(self.index), now);
        self.engine.finish(state, self.index, now);
        true
    }
}

#[cfg(test)]
impl Shared {
    /// Drops all datagrams to and from the members of this engine while `cut` is true.
    pub(crate) fn cut_off(&self, cut: bool) {
        self.engine.cut_off(cut);
    }
}

impl Shared {
    /// Lets the member leave in the background, since no handle is left. Returns false if the engine has panicked.
    pub(crate) fn abandon(&self) -> bool {
        self.end(Membership::abandon)
    }

    /// Ends the member's life: when this returns, no datagram of it is sent any more, not even one that waited for the
    /// socket's send buffer.
    pub(crate) fn end_life(&self) {
        let engine = &*self.engine;
        let Some(mut state) = engine.lock_at_home() else { return };
        let now = engine.now();
        if !state.home.is_current() {
            return;
        }
        let member = state.occupant::<Membership>(self.index);
        member.end_life(now);
        let tag = member.group.tag();
        state.drop_unsent(tag);
        engine.finish(state, self.index, now);
    }

    /// Repeats two attempts until one of them succeeds: one at this member, one at the calls beside it. So one thread
    /// serves both without a hand-over. `calls_first`: the calls' attempt comes first. The interests are what the member's
    /// attempt waits for, the ports those for whose requests the calls' attempt looks.
    pub(crate) fn block_beside<T: OfFork>(
        &self,
        calls: &Shared<Calls>,
        calls_first: bool,
        interests: &[Interest],
        ports: impl Fn(&mut dyn FnMut(Port)),
        mut of_member: impl FnMut(&mut Membership, Time) -> Attempt<T, Interest>,
        mut of_calls: impl FnMut(&mut Calls, Time) -> Attempt<T, CallInterest>,
    ) -> T {
        let engine = &*self.engine;
        let Some(mut state) = engine.lock_at_home() else { return T::of_fork() };
        let (mut now, mut lease) = (engine.now(), None);
        let result = loop {
            let leaves = lease.is_some();
            let mut tried = Err(());
            for at_calls in [calls_first, !calls_first] {
                if tried.is_err() {
                    tried = match at_calls {
                        true => {
                            engine.attempt(&mut state, calls.index, now, leaves, &mut of_calls).map_err(drop)
                        }
                        false => {
                            engine.attempt(&mut state, self.index, now, leaves, &mut of_member).map_err(drop)
                        }
                    };
                }
            }
            match tried {
                _ if !state.home.is_current() => return T::of_fork(),
                Ok(done) => break done,
                // One attempt may have left something for the other.
                Err(()) if !state.is_settled() && !state.send_blocked() => {}
                Err(()) if !engine.home.is_current() => return T::of_fork(),
                Err(()) => {
                    lease = lease.or_else(|| state.turn.take(now, false));
                    let risen = match &mut lease {
                        Some(lease) => {
                            let sleeper = Sleeper::new(Some(self.index), Time::NEVER).also_in(calls.index);
                            engine.lead(state, lease, now, sleeper, self.spin)
                        }
                        None => {
                            let register = |state: &mut State, waker: &Waker, listed: &mut Listed| {
                                for &interest in interests {
                                    state
                                        .occupant::<Membership>(self.index)
                                        .register(interest, waker, listed);
                                }
                                ports(&mut |port| {
                                    let occupant = state.occupant::<Calls>(calls.index);
                                    occupant.register(CallInterest::Request(port), waker, listed);
                                });
                            };
                            engine.follow(state, register, Time::NEVER)
                        }
                    };
                    (state, now) = risen.unwrap_or_else(|| engine.look());
                }
            }
        };
        if let Some(lease) = lease {
            state.turn.release(now, lease);
        }
        engine.pass_lease(&mut state, now, false);
        engine.unlock(state);
        result
    }

    /// Makes the thread that waits for this member and the calls beside it look again.
    pub(crate) fn look_again(&self) {
        self.end(|member, _| member.look_again = true);
    }

    /// Drops the outcome of the messages that end with this number: no handle will ask for it.
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
    /// Repeats the attempt as long as it gives the core something; first serves all slots that have to be served.
    /// `leaves`: the calling thread holds the lease and releases it after this. Then the next holder is soon enough for
    /// what follows from events that were taken.
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
                    if !state.touch_if_unserved(index) || state.send_blocked() {
                        return Err(interest);
                    }
                }
                Attempt::Given => state.touch(index),
                Attempt::Kept(done) => {
                    state.arm(index);
                    self.wake_holder(state, now);
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

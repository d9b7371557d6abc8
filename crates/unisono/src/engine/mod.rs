//! The engine drives the core's groups over sockets: one unicast socket for all groups of a process that have
//! the same address, and a listener for each multicast address they use.
//!
//! There is one **lease**. Whoever has it waits for the sockets, the timers and the wakeup, gives the core what
//! comes, and sends what the core has to say, for all groups. It goes to a thread of the application that
//! waits in `receive` or `send` anyway, so that in a receive loop no second thread stands between the wire
//! and the application. When such a thread leaves it wakes nobody: it sets an alarm, and if the I/O lease is still
//! free when that goes off, the engine's **background thread** sits down. A thread that wants the I/O lease from
//! the background thread rings the **wakeup**; from another thread of the application it does not take it, but
//! waits for what it wants to be brought to it. Tasks of an executor never sit: for them the background
//! thread does.
//!
//! Where all datagrams come from one socket the I/O lease is **pinned**: whoever sits waits in the receive of that socket,
//! which is the fastest way to be woken, and the background thread sees to everything else in its stead (the timers,
//! the wakeup, the other sockets). If that brings something for the one who sits, it is **woken**, by an empty datagram.
//!
//! | | |
//! |---|---|
//! | `shared` | a handle to a slot: what its owner wants is attempted until it is done |
//! | `entering` | how members come to an engine, and engines into being |
//! | `state` | everything behind the lock |
//! | `slot` | what it holds: the core's state, and who waits for what |
//! | `membership` | the member of a group in a slot |
//! | `calls` | the calls in a slot: those under way, and services |
//! | `outcomes` | what becomes of messages under way |
//! | `send_queue` | what is sent, in runs |
//! | `lease`, `turn`, `pinned` | what is received, by whom, and in which of the sockets it waits |
//! | `fork` | what becomes of an engine in a forked child |
//! | `park` | waiting, for threads and tasks |
//! | `background` | the thread that sits when nobody else does, and stands in for one who is pinned |

mod calls;
mod entering;
mod fallback_thread;
mod fork;
mod lease;
mod membership;
mod outcomes;
mod park;
mod pinned;
mod send_queue;
mod shared;
mod slot;
mod state;
mod turn;

pub(crate) use calls::{Access, CallInterest, Calls, Entrance};
pub(crate) use entering::{Way, no_multicast};
pub(crate) use fork::OfFork;
pub(crate) use membership::{Interest, Membership};
pub(crate) use park::Listed;
pub(crate) use shared::{Attempt, Shared};

use crate::reach::Place;
use fork::Home;
use lease::{IoLease, Woken};
use park::Parker;
use rustix::time::{ClockId, clock_gettime};
use slot::Occupant;
use state::{State, is_off};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::task::Waker;
use std::time::{Duration, Instant};
use turn::{Next, Rouse, Sleeper};
use unisono_core::Time;
use unisono_udp::{SocketWaker, Wakeup, Watch};

/// See the module.
pub(crate) struct Engine {
    state: Mutex<State>,
    /// Over the wakeup and the sockets that whoever sits waits for, but the one that it is pinned on.
    watch: Arc<Watch>,
    /// Rung to make whoever sits look at the state.
    wakeup: Wakeup,
    /// What the background thread waits for while it does not sit: its alarm, and the watch while the I/O lease is pinned.
    fallback: Watch,
    /// Wakes whoever is pinned.
    socket_waker: SocketWaker,
    home: Home,
    place: Place,
    address: SocketAddr,
    /// When it began, by the system's clock.
    origin_ns: u64,
}

/// When an engine begins, by its own clock.
const BEGINNING: Time = Time::from_nanos(1);

impl Engine {
    /// Nanoseconds since a little before the engine began.
    fn now(&self) -> Time {
        Time::from_nanos(BEGINNING.as_nanos() + clock_ns().saturating_sub(self.origin_ns))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.lock_at_home().unwrap_or_else(|| panic!("a forked child uses a handle of its parent's"))
    }

    /// Locks. Nothing in a forked child, if a thread of the parent had the lock: that thread is not here to release it.
    fn lock_at_home(&self) -> Option<MutexGuard<'_, State>> {
        let locked = match self.state.try_lock() {
            Err(TryLockError::WouldBlock) if self.home.is_elsewhere() => return None,
            Err(TryLockError::WouldBlock) => self.state.lock(),
            Err(TryLockError::Poisoned(broken)) => Err(broken),
            Ok(state) => Ok(state),
        };
        // A panic in the middle of the protocol leaves nothing that could be relied on.
        Some(locked.unwrap_or_else(|_| panic!("unisono's engine was stopped by a panic elsewhere")))
    }

    /// Locks, and then looks at the clock: for those behind the lock time never goes back.
    fn look(&self) -> (MutexGuard<'_, State>, Time) {
        let state = self.lock();
        (state, self.now())
    }

    /// Nothing, too, in a forked child: it could do no good.
    fn lock_unless_broken(&self) -> Option<MutexGuard<'_, State>> {
        match self.state.try_lock() {
            Err(TryLockError::WouldBlock) if self.home.is_elsewhere() => None,
            Err(TryLockError::WouldBlock) => self.state.lock().ok(),
            locked => locked.ok(),
        }
    }

    /// Releases the lock, wakes those that have to be woken, and writes to the log: a slow log holds up this thread and no
    /// other.
    fn unlock(&self, mut state: MutexGuard<'_, State>) {
        if !state.has_wakes() {
            return;
        }
        let (wakes, log) = (state.take_wakes(), state.take_log());
        if !wakes.is_empty() {
            state.turn.tasks_woken();
        }
        drop(state);
        wakes.into_iter().for_each(Waker::wake);
        log.emit();
    }

    /// Serves everybody who has to be, and sees to it that whoever sits does not sleep through the
    /// consequences.
    fn settle(&self, state: &mut State, now: Time) {
        if state.home.is_left(now) {
            return;
        }
        state.settle(now);
        self.call(state, now);
    }

    /// A slot was given something, without waiting: what follows from that.
    fn finish(&self, mut state: MutexGuard<'_, State>, index: usize, now: Time) {
        if state.home.is_left(now) {
            return;
        }
        state.touch(index);
        self.settle(&mut state, now);
        self.arrange(&mut state, now, false);
        self.unlock(state);
    }

    /// Wakes whoever sleeps on the I/O lease if there is something for it to see, and lets it sleep no longer than until the
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
            Some(Rouse::Datagram(key)) => {
                // Not all sockets: it waits there although its group may have gone.
                state.turn.sockets().get(&key).into_iter().for_each(|socket| self.socket_waker.wake(socket));
            }
        }
        self.set_alarm(state, now);
    }

    /// Lets the watch's alarm go off when whoever sleeps, or stands in for it, has to be up.
    fn set_alarm(&self, state: &mut State, now: Time) {
        let due = state.alarm(now);
        if is_off(state.turn.rings_at, due) {
            self.watch.set_alarm(due.since(self.now()));
            state.turn.rings_at = due;
        }
    }

    fn ring(&self, state: &mut State) {
        if !state.rung {
            state.rung = true;
            self.wakeup.ring();
        }
    }

    /// Sees to it that somebody sits, now or soon.
    fn arrange(&self, state: &mut State, now: Time, at_once: bool) {
        match state.turn.next(now, at_once) {
            Next::Nothing => {}
            Next::Wake(parker) => state.wakes.push(parker.into()),
            Next::Alarm(after) => self.fallback.set_alarm(after),
        }
    }

    /// Sleeps on the I/O lease until something comes, until a timer is due, or until `sleeper` wants to be up; and takes in
    /// what came. Returns when that was, too; nothing if another thread broke the engine meanwhile.
    fn sit<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        lease: &mut IoLease,
        now: Time,
        sleeper: Sleeper,
        spin: Duration,
    ) -> Option<(MutexGuard<'a, State>, Time)> {
        // One who spins wants to hear of everything itself, and for the background thread nobody can stand in.
        let may_pin = sleeper.slot.is_some() && spin.is_zero();
        state.sit_down(lease, &self.fallback, may_pin, sleeper);
        self.set_alarm(&mut state, now);
        self.unlock(state);
        let woken = lease.wait(spin);
        let mut state = self.lock_unless_broken()?;
        let now = self.now();
        self.note_woken(&mut state, woken);
        state.turn.rise();
        state.take_in(now, &mut lease.inbox);
        Some((state, now))
    }

    fn note_woken(&self, state: &mut State, woken: Woken) {
        if woken.rang {
            self.wakeup.silence();
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
        state.occupant::<O>(index).register(interest, &waker, &mut Listed::from(waker.clone()));
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
}

/// A clock that never goes back or stands still, not even while the machine is suspended: others go on meanwhile.
fn clock_ns() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

#[cfg(all(test, feature = "tracing"))]
impl Engine {
    /// Cuts the members of this engine off from all others, or ends that.
    pub(crate) fn cut_off(&self, cut: bool) {
        self.lock().cut_off(cut);
    }
}

#[cfg(test)]
mod tests;

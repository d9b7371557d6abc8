//! The engine drives the core's groups over sockets: one unicast socket for all groups of a process that have the same
//! address, and one listener for each multicast address that they use. A **slot** of the engine holds one state machine
//! of the core: the member of a group, or an endpoint of calls.
//!
//! The threads share the work by the **leader/follower** pattern: one thread at a time waits for input and processes it
//! for all, and the other threads wait for that thread.
//!
//! - The **I/O lease** is held by the leader. The thread that holds it waits for the sockets, the timers and the
//!   wakeup, gives the input to the core, and sends the core's output, for all groups. Usually an application thread
//!   that waits in `receive` or `send` holds it, so no other thread stands between the wire and a receive loop. A
//!   thread that finds the lease held by another application thread does not take it over, but waits until the holder
//!   wakes it.
//! - The **wakeup** is an eventfd that ends the holder's wait. A thread signals it when it has changed something that
//!   the holder must see, or when it wants the lease from the fallback thread.
//! - The **fallback thread** belongs to the engine. It holds the lease while no application thread waits. An
//!   application thread that releases the lease usually wakes no other thread: it sets an alarm, and when the alarm
//!   goes off, the fallback thread takes the lease if it is still free. Tasks of an executor never hold the lease, so
//!   the fallback thread holds it for them.
//! - The **pinned socket**: while all datagrams come from one socket, the holder waits in the receive of that socket,
//!   which wakes a thread fastest. Meanwhile the fallback thread watches the rest: the timers, the wakeup and the other
//!   sockets.
//! - A **wakeup datagram** ends the wait in a pinned socket: an empty datagram to that socket, sent when another thread
//!   has something for the holder.
//!
//! | | |
//! |---|---|
//! | `shared` | a handle to a slot: repeats an attempt until it succeeds |
//! | `entering` | how members enter an engine, and how engines begin |
//! | `whereabouts` | where an engine is on the network: when it moves, and when it makes its sockets anew |
//! | `following` | the thread that looks at this machine's network, and what engines do then |
//! | `state` | everything behind the lock |
//! | `slot` | what a slot holds: the core's state, and the threads and tasks that wait for it |
//! | `membership` | the member of a group in a slot |
//! | `calls` | the calls in a slot: those under way, and services |
//! | `outcomes` | the outcomes of messages under way |
//! | `send_queue` | sends datagrams, in runs |
//! | `silent` | drops datagrams to addresses that do not answer, while they crowd the send buffer |
//! | `lease`, `turn`, `pinned` | receiving: waiting for the sockets; passing the lease on; choosing the pinned socket |
//! | `fork` | the engine in a forked child of its process |
//! | `park` | waiting, for threads and tasks |
//! | `fallback_thread` | the thread that holds the lease when no application thread waits |

mod calls;
mod entering;
mod fallback_thread;
mod following;
mod fork;
mod lease;
mod membership;
mod outcomes;
mod park;
mod pinned;
mod send_queue;
mod shared;
mod silent;
mod slot;
mod state;
mod turn;
mod whereabouts;

pub(crate) use calls::{Access, CallInterest, Calls, Entrance};
pub(crate) use entering::{Way, no_multicast};
pub(crate) use fork::OfFork;
pub(crate) use membership::{Interest, Membership};
pub(crate) use park::{Listed, Parker, WaitList};
pub(crate) use shared::{Attempt, Shared};

use crate::reach::Wish;
use lease::{IoLease, Woken};
use rustix::time::{ClockId, clock_gettime};
use state::{State, is_off};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::task::Waker;
use std::time::{Duration, Instant};
use turn::{Next, Sleeper, WakeupKind};
use unisono_core::Time;
use unisono_fork::Process;
use unisono_udp::{SocketWaker, Wakeup, Watch};

/// One engine. See the module.
pub(crate) struct Engine {
    state: Mutex<State>,
    /// Watches the wakeup and the sockets that the lease holder waits for, except the pinned one.
    watch: Arc<Watch>,
    /// Signalled to make the lease holder look at the state.
    wakeup: Wakeup,
    /// What the fallback thread waits for while it does not hold the lease: its alarm, and `watch` while a socket is
    /// pinned.
    fallback: Watch,
    /// Wakes the lease holder in a pinned socket.
    socket_waker: SocketWaker,
    home: Process,
    /// What its process wants of its address.
    wish: Wish,
    /// Its address depends on this machine's network.
    is_followed: bool,
    /// Time at which the engine began, by the system's clock, in nanoseconds.
    origin_ns: u64,
}

/// Time at which an engine begins, by its own clock.
const BEGINNING: Time = Time::from_nanos(1);

impl Engine {
    /// Returns the engine's time: nanoseconds since a little before it began.
    fn now(&self) -> Time {
        Time::from_nanos(BEGINNING.as_nanos() + clock_ns().saturating_sub(self.origin_ns))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.lock_at_home().unwrap_or_else(|| panic!("this handle belongs to the process that forked"))
    }

    /// Locks. Returns `None` in a forked child if a thread of the parent held the lock at the fork: the child does not
    /// have that thread, so the lock is never released.
    fn lock_at_home(&self) -> Option<MutexGuard<'_, State>> {
        let locked = match self.state.try_lock() {
            Err(TryLockError::WouldBlock) if !self.home.is_current() => return None,
            Err(TryLockError::WouldBlock) => self.state.lock(),
            Err(TryLockError::Poisoned(broken)) => Err(broken),
            Ok(state) => Ok(state),
        };
        // A panic in the middle of the protocol leaves a state that cannot be relied on.
        Some(locked.unwrap_or_else(|_| panic!("unisono's engine stopped: another thread panicked in it")))
    }

    /// Locks the state, then reads the clock: in this order, time never goes back for the threads that hold the lock.
    fn look(&self) -> (MutexGuard<'_, State>, Time) {
        let state = self.lock();
        (state, self.now())
    }

    /// Locks. Returns `None` if a thread panicked in the engine, and where [`Engine::lock_at_home`] does.
    fn lock_unless_broken(&self) -> Option<MutexGuard<'_, State>> {
        match self.state.try_lock() {
            Err(TryLockError::WouldBlock) if !self.home.is_current() => None,
            Err(TryLockError::WouldBlock) => self.state.lock().ok(),
            locked => locked.ok(),
        }
    }

    /// Releases the lock, wakes the threads and tasks that have to wake up, and emits the episodes for the log. A slow log
    /// does not hold the lock, but delays this thread, which may hold the lease: then no thread serves the members.
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

    /// Serves every slot that has to be served, and wakes the lease holder if there is something for it to see.
    fn settle(&self, state: &mut State, now: Time) {
        if !state.home.is_current() {
            return;
        }
        state.settle(now);
        self.wake_holder(state, now);
    }

    /// Ends a change of a slot by a thread that does not wait: serves the slot, and sees to it that a thread takes the
    /// lease.
    fn finish(&self, mut state: MutexGuard<'_, State>, index: usize, now: Time) {
        if !state.home.is_current() {
            return;
        }
        state.touch(index);
        self.settle(&mut state, now);
        self.pass_lease(&mut state, now, false);
        self.unlock(state);
    }

    /// Wakes the sleeping lease holder if there is something for it to see, and sets its alarm for the next timer.
    fn wake_holder(&self, state: &mut State, now: Time) {
        if state.turn.sleeper().is_none() {
            return;
        }
        if state.must_wake_holder() {
            state.turn.request_wakeup();
        }
        match state.turn.next_wakeup(now) {
            None => {}
            Some(WakeupKind::Eventfd) => self.signal(state),
            Some(WakeupKind::Datagram(key)) => {
                // `Turn`'s sockets, not the state's: the holder waits in the socket even if its group is gone.
                state.turn.sockets().get(&key).into_iter().for_each(|socket| self.socket_waker.wake(socket));
            }
        }
        self.set_alarm(state, now);
    }

    /// Sets the watch's alarm for when the sleeping lease holder, or the fallback thread in its place, has to wake up.
    fn set_alarm(&self, state: &mut State, now: Time) {
        let due = state.alarm(now);
        if is_off(state.turn.watch_alarm_at, due) {
            self.watch.set_alarm(due.since(self.now()));
            state.turn.watch_alarm_at = due;
        }
    }

    fn signal(&self, state: &mut State) {
        if !state.signalled {
            state.signalled = true;
            self.wakeup.signal();
        }
    }

    /// Sees to it that a thread takes the lease, now or soon.
    fn pass_lease(&self, state: &mut State, now: Time, at_once: bool) {
        match state.turn.next(now, at_once) {
            Next::Nothing => {}
            Next::Wake(parker) => state.wakes.push(parker.into()),
            Next::Alarm(after) => self.fallback.set_alarm(after),
        }
    }

    /// Sleeps as the lease holder until input comes, a timer is due, or the time that `sleeper` names has come, and
    /// gives the input to the slots. Returns the locked state and the time; `None` if another thread panicked in the
    /// engine meanwhile.
    fn lead<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        lease: &mut IoLease,
        now: Time,
        sleeper: Sleeper,
        spin: Duration,
    ) -> Option<(MutexGuard<'a, State>, Time)> {
        // A spinning thread has to look at all sockets itself. The fallback thread must not pin, because no thread
        // would watch the other sockets for it.
        let may_pin = sleeper.slot.is_some() && spin.is_zero();
        state.begin_sleep(lease, &self.fallback, may_pin, sleeper);
        self.set_alarm(&mut state, now);
        self.unlock(state);
        let woken = lease.wait(spin);
        let mut state = self.lock_unless_broken()?;
        let now = self.now();
        self.note_woken(&mut state, woken);
        state.turn.end_sleep();
        state.dispatch(now, &mut lease.inbox);
        Some((state, now))
    }

    fn note_woken(&self, state: &mut State, woken: Woken) {
        if woken.signalled {
            self.wakeup.clear();
            state.signalled = false;
            state.turn.note_cleared();
        }
        if woken.alarmed {
            state.turn.watch_alarm_at = Time::NEVER;
        }
    }

    /// Sleeps until woken or until `until`, while another thread holds the lease. `register` puts the thread on the
    /// lists of what it waits for.
    fn follow<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        register: impl FnOnce(&mut State, &Waker, &mut Listed),
        until: Time,
    ) -> Option<(MutexGuard<'a, State>, Time)> {
        let (parker, waker) = Parker::mine();
        register(&mut state, &waker, &mut Listed::from(waker.clone()));
        state.turn.claim(parker.clone());
        if state.turn.held_by_fallback() {
            self.signal(&mut state);
        }
        self.unlock(state);
        parker.park(self.instant(until));
        let mut state = self.lock_unless_broken()?;
        state.turn.unclaim(&parker);
        Some((state, self.now()))
    }

    /// Like [`Engine::follow`], for a thread that does not want the lease, whether or not another thread holds it.
    fn wait_aside<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        register: impl FnOnce(&mut State, &Waker, &mut Listed),
        until: Time,
    ) -> Option<(MutexGuard<'a, State>, Time)> {
        let (parker, waker) = Parker::mine();
        let mut listed = Listed::from(waker.clone());
        register(&mut state, &waker, &mut listed);
        self.unlock(state);
        parker.park(self.instant(until));
        let state = self.lock_unless_broken()?;
        Some((state, self.now()))
    }

    /// Returns the same time on the clock by which threads sleep.
    fn instant(&self, time: Time) -> Option<Instant> {
        if time == Time::NEVER { None } else { Instant::now().checked_add(time.since(self.now())) }
    }
}

/// Reads a clock that never goes back, and that also runs while the machine is suspended, because other members run
/// meanwhile.
pub(crate) fn clock_ns() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

#[cfg(test)]
impl Engine {
    /// Drops all datagrams to and from the members of this engine while `cut` is true.
    pub(crate) fn cut_off(&self, cut: bool) {
        self.lock().cut_off(cut);
    }
}

#[cfg(test)]
mod tests;

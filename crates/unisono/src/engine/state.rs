//! What an engine knows, behind its lock: its slots, their timers, and who sits.

use super::fork::Home;
use super::lease::{IoLease, LISTENERS, Received, Sockets, UNICAST};
use super::send_queue::SendQueue;
use super::slot::{Occupant, Slot};
use super::turn::{Sleeper, Turn};
use crate::log::Log;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;
use unisono_core::{GroupTag, Time, wire};
use unisono_udp::{Socket, Watch};

/// How often it is tried at least whether there is room to send again.
const ROOM_LOOK: Duration = Duration::from_millis(5);

/// Setting a timer anew costs a system call, and one that goes off early a wake: it follows a deadline that is so much later.
const EARLY_MAX: Duration = Duration::from_millis(10);

/// A timer that is set for then has to be set anew: what it is for is due earlier, or far later.
pub(crate) fn is_off(set: Time, due: Time) -> bool {
    due < set || due.since(set) >= EARLY_MAX
}

/// See the module.
pub(crate) struct State {
    slots: Vec<Option<Registered>>,
    by_tag: BTreeMap<GroupTag, usize>,
    /// Never later than the deadline of the slot.
    timers: BTreeSet<(Time, usize)>,
    dirty: Vec<usize>,
    /// Slots that have something for whoever comes first.
    asked: Vec<usize>,
    send_queue: SendQueue,
    own_address: SocketAddr,
    /// The port from which listeners are woken.
    waker_port: u16,
    listeners: BTreeMap<Ipv4Addr, Listener>,
    /// Who must be woken once the lock is released.
    pub(crate) wakes: Vec<Waker>,
    /// What is written to the log once the lock is released.
    log: Log,
    /// All sockets; replaced when one comes or goes.
    pub(crate) sockets: Arc<Sockets>,
    /// The key of the next listener.
    next_key: u64,
    /// Who sits.
    pub(crate) turn: Turn,
    /// The wakeup was rung and nobody has silenced it yet.
    pub(crate) rung: bool,
    /// Slots in use.
    occupied: usize,
    /// The process that this belongs to.
    pub(super) home: Home,
    /// The background thread has ended.
    pub(crate) closed: bool,
    /// When everybody was last served.
    settled_at: Time,
}

/// A slot, and what the engine notes of it.
struct Registered {
    slot: Slot,
    tag: GroupTag,
    /// Its core changed since it was last served.
    dirty: bool,
    /// When the engine's timer for it is set.
    armed: Time,
}

struct Listener {
    key: u64,
    users: usize,
}

impl State {
    pub(super) fn new(unicast: Arc<Socket>, lease: IoLease, waker_port: u16, home: Home) -> State {
        State {
            sockets: Arc::new(Sockets::from([(UNICAST, unicast.clone())])),
            next_key: LISTENERS,
            slots: Vec::new(),
            by_tag: BTreeMap::new(),
            timers: BTreeSet::new(),
            dirty: Vec::new(),
            asked: Vec::new(),
            own_address: unicast.address(),
            waker_port,
            send_queue: SendQueue::new(unicast),
            listeners: BTreeMap::new(),
            wakes: Vec::new(),
            log: Log::default(),
            turn: Turn::new(lease),
            rung: false,
            occupied: 0,
            home,
            closed: false,
            settled_at: Time::ZERO,
        }
    }

    /// What the socket that everybody sends to holds until it is read, as the kernel counts.
    pub(crate) fn receive_buffer_bytes(&self) -> usize {
        self.sockets.get(&UNICAST).map_or(0, |socket| socket.receive_buffer_bytes())
    }

    pub(crate) fn has(&self, tag: GroupTag) -> bool {
        self.by_tag.contains_key(&tag)
    }

    /// Where the one is who is told of datagrams with this tag.
    pub(crate) fn find(&self, tag: GroupTag) -> Option<usize> {
        self.by_tag.get(&tag).copied()
    }

    /// Nobody, not even a member on its way out.
    pub(crate) fn is_empty(&self) -> bool {
        self.occupied == 0
    }

    /// Whoever sits has to see this.
    pub(crate) fn calls(&self) -> bool {
        self.is_empty() || self.turn.lacks(&self.sockets, self.lacks_room())
    }

    /// Listens to the address for one user more.
    pub(crate) fn listen(&mut self, address: SocketAddrV4, interface: Ipv4Addr) -> std::io::Result<()> {
        if let Some(listener) = self.listeners.get_mut(address.ip()) {
            listener.users += 1;
            return Ok(());
        }
        let own = match self.own_address {
            SocketAddr::V4(own) => Some(own),
            SocketAddr::V6(_) => None,
        };
        let (socket, key) = (Socket::listen(address, interface, own, Some(self.waker_port))?, self.next_key);
        self.next_key += 1;
        self.listeners.insert(*address.ip(), Listener { key, users: 1 });
        Arc::make_mut(&mut self.sockets).insert(key, Arc::new(socket));
        Ok(())
    }

    /// Listens to the address for one user less.
    pub(crate) fn hush(&mut self, address: Option<SocketAddr>) {
        let Some(SocketAddr::V4(address)) = address else { return };
        let Some(listener) = self.listeners.get_mut(address.ip()) else { return };
        listener.users -= 1;
        if listener.users == 0 {
            Arc::make_mut(&mut self.sockets).remove(&listener.key);
            self.listeners.remove(address.ip());
        }
    }

    /// Takes somebody in who is told of datagrams with this tag; returns the index.
    pub(crate) fn insert(&mut self, tag: GroupTag, slot: Slot) -> usize {
        let index = self.slots.iter().position(Option::is_none).unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.by_tag.insert(tag, index);
        self.slots[index] = Some(Registered { slot, tag, dirty: false, armed: Time::NEVER });
        self.occupied += 1;
        self.touch(index);
        index
    }

    /// Whom a handle is for, which keeps the slot alive.
    pub(crate) fn occupant<O: Occupant>(&mut self, index: usize) -> &mut O {
        let entry = self.slots[index].as_mut();
        entry
            .and_then(|entry| O::of(&mut entry.slot))
            .unwrap_or_else(|| unreachable!("a handle keeps its slot"))
    }

    /// What was taken from the slot may be a reason to serve it. Returns whether it is.
    pub(crate) fn touch_if_it_follows_up(&mut self, index: usize) -> bool {
        self.touch_if(index, Slot::follows_up)
    }

    /// That there was nothing to take from the slot may be a reason to serve it. Returns whether it is.
    pub(crate) fn touch_if_unserved(&mut self, index: usize) -> bool {
        self.touch_if(index, Slot::is_unserved)
    }

    fn touch_if(&mut self, index: usize, so: impl Fn(&Slot) -> bool) -> bool {
        let is_so = self.slots[index].as_ref().is_some_and(|entry| so(&entry.slot));
        if is_so {
            self.touch(index);
        }
        is_so
    }

    /// Its core was given something: it has to be served.
    pub(crate) fn touch(&mut self, index: usize) {
        if let Some(entry) = &mut self.slots[index]
            && !entry.dirty
        {
            entry.dirty = true;
            self.dirty.push(index);
        }
    }

    /// The one who sits goes to sleep.
    pub(crate) fn sit_down(
        &mut self,
        lease: &mut IoLease,
        fallback: &Watch,
        may_pin: bool,
        sleeper: Sleeper,
    ) {
        let lacks_room = self.lacks_room();
        self.turn.sleep(lease, (&self.sockets, lacks_room), fallback, may_pin, sleeper);
    }

    /// When whoever sits, or reads for it, has to be up.
    pub(crate) fn alarm(&self, now: Time) -> Time {
        let deadline = match self.lacks_room() {
            // What could not be sent may leave a timer due all the while.
            true => self.deadline().max(now + ROOM_LOOK),
            false => self.deadline(),
        };
        self.turn.sleeper().map_or(deadline, |sleeper| deadline.min(sleeper.until))
    }

    /// Cuts this engine off from all others, or ends that.
    #[cfg(all(test, feature = "tracing"))]
    pub(crate) fn cut_off(&mut self, cut: bool) {
        self.send_queue.is_cut_off = cut;
    }

    /// Gives each datagram to the slot it is for.
    pub(crate) fn take_in(&mut self, now: Time, inbox: &mut Vec<Received>) {
        #[cfg(test)]
        if self.send_queue.is_cut_off {
            inbox.clear();
        }
        for Received { from, by_multicast, datagram } in inbox.drain(..) {
            let Some(index) = wire::group_tag(&datagram).and_then(|tag| self.by_tag.get(&tag).copied())
            else {
                continue;
            };
            if let Some(entry) = &mut self.slots[index]
                && (from != self.own_address || entry.slot.talks_to_itself())
            {
                entry.slot.handle(now, from, by_multicast, datagram);
                self.touch(index);
            }
        }
    }

    /// When everybody was last served, if nobody sits or wants to since, and nobody has to be served again.
    pub(crate) fn undisturbed_since(&self) -> Option<Time> {
        let undisturbed = self.dirty.is_empty() && self.turn.is_vacant() && !self.turn.claimed();
        undisturbed.then_some(self.settled_at)
    }

    /// Lets due timers run and serves everybody who was touched.
    pub(crate) fn settle(&mut self, now: Time) {
        self.settled_at = now;
        if self.send_queue.is_full() && self.send_queue.send_on() {
            // Whoever it was that could not send.
            (0..self.slots.len()).for_each(|index| self.touch(index));
        }
        while let Some((time, index)) = self.timers.first().copied()
            && time <= now
        {
            self.timers.pop_first();
            if let Some(entry) = &mut self.slots[index] {
                entry.armed = Time::NEVER;
                if entry.slot.deadline() <= now {
                    entry.slot.handle_timeout(now);
                }
            }
            self.touch(index);
        }
        while let Some(index) = self.dirty.pop() {
            if let Some(entry) = &mut self.slots[index] {
                entry.dirty = false;
                entry.slot.serve(now, &mut self.send_queue, &mut self.wakes);
                entry.slot.tell(&mut self.log);
                if entry.slot.is_asked() {
                    self.asked.push(index);
                }
                if self.turn.sleeper().is_some_and(|sleeper| sleeper.slot == Some(index))
                    && entry.slot.has_news()
                {
                    self.turn.call();
                }
            }
            self.arm(index);
            self.retire(index);
        }
    }

    /// There may be a thread or a task to wake, or something to write to the log.
    pub(crate) fn has_wakes(&self) -> bool {
        !self.wakes.is_empty() || !self.asked.is_empty() || !self.log.is_empty()
    }

    /// What is to be written to the log once the lock is released.
    pub(crate) fn take_log(&mut self) -> Log {
        std::mem::take(&mut self.log)
    }

    /// Whom to wake, now that whoever was awake has taken what it wanted.
    pub(crate) fn take_wakes(&mut self) -> Vec<Waker> {
        while let Some(index) = self.asked.pop() {
            if let Some(entry) = &mut self.slots[index] {
                entry.slot.wake_askers(&mut self.wakes);
            }
        }
        std::mem::take(&mut self.wakes)
    }

    /// Sets the slot's timer for when its core has to be called, or a little earlier.
    pub(crate) fn arm(&mut self, index: usize) {
        if let Some(entry) = &mut self.slots[index] {
            let deadline = entry.slot.deadline();
            if is_off(entry.armed, deadline) {
                self.timers.remove(&(entry.armed, index));
                self.timers.insert((deadline, index));
                entry.armed = deadline;
            }
        }
    }

    /// Lets go of somebody who is out, and of the slot when no handle is left.
    fn retire(&mut self, index: usize) {
        let Some(entry) = self.slots[index].as_mut().filter(|entry| entry.slot.is_out()) else { return };
        let finished = entry.slot.is_finished();
        if self.by_tag.get(&entry.tag) == Some(&index) {
            self.by_tag.remove(&entry.tag);
            let address = entry.slot.fall_silent();
            self.hush(address);
        }
        if finished && let Some(entry) = self.slots[index].take() {
            self.timers.remove(&(entry.armed, index));
            self.occupied -= 1;
        }
    }

    /// When the next timer is due.
    pub(crate) fn deadline(&self) -> Time {
        self.timers.first().map_or(Time::NEVER, |(time, _)| *time)
    }

    /// There is no room to send.
    pub(crate) fn lacks_room(&self) -> bool {
        self.send_queue.is_full()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::alone;
    use super::*;

    #[test]
    fn a_timer_follows_a_deadline_that_is_far_later_and_no_other() {
        let (_group, engine) = alone("armed");
        let mut state = engine.lock();
        for (early, follows) in [(Duration::from_millis(1), false), (EARLY_MAX, true)] {
            let entry = state.slots[0].as_mut().unwrap();
            let due = entry.slot.deadline();
            let set = Time::from_nanos(due.as_nanos() - early.as_nanos() as u64);
            entry.armed = set;
            state.timers = BTreeSet::from([(set, 0)]);
            state.arm(0);
            assert_eq!(state.deadline(), if follows { due } else { set });
        }
    }
}

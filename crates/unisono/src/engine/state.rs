//! What an engine protects by its lock: its slots, their timers, and what it knows of the lease holder.

use super::calls::Access;
use super::following::Doubt;
use super::lease::{IoLease, LISTENERS, Received, Sockets, UNICAST};
use super::send_queue::SendQueue;
use super::slot::{Occupant, Slot};
use super::turn::{Sleeper, Turn};
use super::whereabouts::{Network, Step, Whereabouts};
use crate::log::Log;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;
use unisono_core::{GroupTag, Member, Time, wire};
use unisono_fork::Process;
use unisono_udp::{Socket, Watch};

/// Minimum time to the next alarm while the send buffer is full, because what could not be sent may leave a timer due
/// all the time.
const BLOCKED_ALARM_MIN: Duration = Duration::from_millis(5);

/// A deadline that moves later by less than this leaves its timer as it is. Setting a timer costs a system call, and a
/// timer that goes off early costs one wake.
const EARLY_MAX: Duration = Duration::from_millis(10);

/// True if a timer that is set for `set` has to be set again, because it is due earlier or far later.
pub(crate) fn is_off(set: Time, due: Time) -> bool {
    due < set || due.since(set) >= EARLY_MAX
}

/// Everything behind the engine's lock.
pub(crate) struct State {
    slots: Vec<Option<Registered>>,
    by_tag: BTreeMap<GroupTag, usize>,
    /// Timers of the slots. No timer is later than the deadline of its slot.
    timers: BTreeSet<(Time, usize)>,
    dirty: Vec<usize>,
    /// Slots that have something for one of several waiters.
    with_waiters: Vec<usize>,
    send_queue: SendQueue,
    pub(super) own_address: SocketAddr,
    pub(super) whereabouts: Whereabouts,
    /// The port from which wakeup datagrams come.
    waker_port: u16,
    listeners: BTreeMap<Ipv4Addr, Listener>,
    /// The wakers to call once the lock is released.
    pub(crate) wakes: Vec<Waker>,
    /// Episodes to emit once the lock is released.
    log: Log,
    /// All sockets. Replaced when one is added or removed.
    pub(crate) sockets: Arc<Sockets>,
    /// The key of the next listener.
    next_key: u64,
    /// What is known of the lease and its holder.
    pub(crate) turn: Turn,
    /// The wakeup is signalled and was not cleared yet.
    pub(crate) signalled: bool,
    /// How far multicasts of the unicast socket go, which all slots share: the largest number that one of them asks for.
    hops: u8,
    /// Number of slots in use.
    occupied: usize,
    /// The process that this engine belongs to.
    pub(super) home: Process,
    /// The fallback thread has ended.
    pub(crate) closed: bool,
    /// Time at which the slots were last served.
    settled_at: Time,
    /// How the first member's calls reach other processes, whether or not it makes any yet.
    pub(super) access: Option<Access>,
}

/// A slot, and what the engine notes of it.
struct Registered {
    slot: Slot,
    tag: GroupTag,
    /// Its core changed since it was last served.
    dirty: bool,
    /// Time for which the engine's timer for it is set.
    armed: Time,
    /// How far it asks multicasts to go.
    hops: u8,
}

struct Listener {
    address: SocketAddrV4,
    /// `None` while this machine has no interface to listen at.
    key: Option<u64>,
    users: usize,
}

impl State {
    pub(super) fn new(
        unicast: Arc<Socket>,
        lease: IoLease,
        waker_port: u16,
        (home, whereabouts, doubt): (Process, Whereabouts, Arc<Doubt>),
    ) -> State {
        let sends = !whereabouts.place().is_nowhere;
        State {
            sockets: Arc::new(Sockets::from([(UNICAST, unicast.clone())])),
            next_key: LISTENERS,
            slots: Vec::new(),
            by_tag: BTreeMap::new(),
            timers: BTreeSet::new(),
            dirty: Vec::new(),
            with_waiters: Vec::new(),
            own_address: unicast.address(),
            whereabouts,
            waker_port,
            send_queue: SendQueue::new(unicast, sends, doubt),
            listeners: BTreeMap::new(),
            wakes: Vec::new(),
            log: Log::default(),
            turn: Turn::new(lease),
            signalled: false,
            hops: Member::HOPS_DEFAULT,
            occupied: 0,
            home,
            closed: false,
            settled_at: Time::ZERO,
            access: None,
        }
    }

    /// Returns the size of the unicast socket's receive buffer, as the kernel counts.
    pub(crate) fn receive_buffer_bytes(&self) -> usize {
        self.unicast().receive_buffer_bytes()
    }

    /// Returns how far multicasts go: they pass fewer routers than this.
    pub(super) fn hops(&self) -> u8 {
        self.hops
    }

    /// Notes how far a slot asks multicasts to go.
    fn note_hops(&mut self, index: usize) {
        let Some(entry) = &mut self.slots[index] else { return };
        let hops = entry.slot.hops();
        if std::mem::replace(&mut entry.hops, hops) != hops {
            self.set_hops();
        }
    }

    #[cold]
    fn set_hops(&mut self) {
        let asked = self.slots.iter().flatten().map(|entry| entry.hops).max();
        self.hops = asked.unwrap_or(Member::HOPS_DEFAULT);
        if let Some(interface) = self.whereabouts.place().interface {
            // It succeeded for this interface before; if it is gone, listening fails too and is tried again.
            let _ = self.unicast().send_multicast_by(interface, self.hops.into());
        }
    }

    /// Returns the socket that sends, and at which this engine is reached.
    pub(super) fn unicast(&self) -> &Arc<Socket> {
        self.send_queue.socket()
    }

    /// Puts another socket in place of the one that sends; what waited for the old one is dropped.
    pub(super) fn replace_unicast(&mut self, socket: Socket) {
        let socket = Arc::new(socket);
        self.own_address = socket.address();
        Arc::make_mut(&mut self.sockets).insert(UNICAST, socket.clone());
        self.send_queue.replace_socket(socket);
    }

    /// Returns what a look at the network leads to.
    pub(super) fn follow_network(&mut self, now: Time, network: &Network) -> Step {
        let slots = &self.slots;
        self.whereabouts.step(now, network, || peers(slots))
    }

    /// Returns the other members of the views of this engine's members, with the seeds of those members; none if its members
    /// are alone.
    pub(super) fn peers(&self) -> Vec<SocketAddr> {
        peers(&self.slots)
    }

    /// Gives all slots this engine's new address.
    pub(super) fn move_slots(&mut self, now: Time, address: SocketAddr) {
        for index in 0..self.slots.len() {
            if let Some(entry) = &mut self.slots[index] {
                entry.slot.move_to(now, address);
            }
            self.touch(index);
        }
    }

    pub(crate) fn has(&self, tag: GroupTag) -> bool {
        self.by_tag.contains_key(&tag)
    }

    /// True if no handle is left of the member with this tag.
    pub(crate) fn is_abandoned(&self, tag: GroupTag) -> bool {
        let slot = self.find(tag).and_then(|index| self.slots[index].as_ref());
        slot.is_some_and(|entry| entry.slot.is_abandoned())
    }

    /// Returns the index of the slot that receives datagrams with this tag.
    pub(crate) fn find(&self, tag: GroupTag) -> Option<usize> {
        self.by_tag.get(&tag).copied()
    }

    /// True if there is no slot, not even one of a member that is leaving.
    pub(crate) fn is_empty(&self) -> bool {
        self.occupied == 0
    }

    /// True if the lease holder has to wake up: there are no slots, or it does not wait for what it should.
    pub(crate) fn must_wake_holder(&self) -> bool {
        self.is_empty() || self.turn.is_stale(&self.sockets, self.send_blocked())
    }

    /// Listens to the address on this interface for one more user; without an interface, as soon as there is one.
    pub(crate) fn listen(
        &mut self,
        address: SocketAddrV4,
        interface: Option<Ipv4Addr>,
    ) -> std::io::Result<()> {
        if let Some(listener) = self.listeners.get_mut(address.ip()) {
            listener.users += 1;
            return Ok(());
        }
        let key = interface.map(|interface| self.open_listener(address, interface)).transpose()?;
        self.listeners.insert(*address.ip(), Listener { address, key, users: 1 });
        Ok(())
    }

    /// Listens to all addresses anew, on this interface. Returns false if one of them cannot be listened to.
    pub(super) fn listen_anew(&mut self, interface: Ipv4Addr) -> bool {
        let addresses: Vec<SocketAddrV4> = self.listeners.values().map(|listener| listener.address).collect();
        let mut all = true;
        for address in addresses {
            let key = self.open_listener(address, interface).ok();
            all &= key.is_some();
            if let Some(listener) = self.listeners.get_mut(address.ip()) {
                let before = std::mem::replace(&mut listener.key, key);
                before.map(|before| Arc::make_mut(&mut self.sockets).remove(&before));
            }
        }
        all
    }

    /// Opens a socket that listens to the address. Returns its key.
    fn open_listener(&mut self, address: SocketAddrV4, interface: Ipv4Addr) -> std::io::Result<u64> {
        let own = match self.own_address {
            SocketAddr::V4(own) => Some(own),
            SocketAddr::V6(_) => None,
        };
        let (socket, key) = (Socket::listen(address, interface, own, Some(self.waker_port))?, self.next_key);
        self.next_key += 1;
        Arc::make_mut(&mut self.sockets).insert(key, Arc::new(socket));
        Ok(key)
    }

    /// Stops listening to the address for one user.
    pub(crate) fn stop_listening(&mut self, address: Option<SocketAddr>) {
        let Some(SocketAddr::V4(address)) = address else { return };
        let Some(listener) = self.listeners.get_mut(address.ip()) else { return };
        listener.users -= 1;
        if listener.users == 0 {
            listener.key.map(|key| Arc::make_mut(&mut self.sockets).remove(&key));
            self.listeners.remove(address.ip());
        }
    }

    /// Adds a slot that receives datagrams with this tag. Returns its index.
    pub(crate) fn insert(&mut self, tag: GroupTag, slot: Slot) -> usize {
        let index = self.slots.iter().position(Option::is_none).unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.by_tag.insert(tag, index);
        self.slots[index] =
            Some(Registered { slot, tag, dirty: false, armed: Time::NEVER, hops: Member::HOPS_DEFAULT });
        self.occupied += 1;
        self.touch(index);
        index
    }

    /// Returns the occupant of a slot that a handle keeps.
    pub(crate) fn occupant<O: Occupant>(&mut self, index: usize) -> &mut O {
        let entry = self.slots[index].as_mut();
        entry
            .and_then(|entry| O::of(&mut entry.slot))
            .unwrap_or_else(|| unreachable!("a handle keeps its slot"))
    }

    /// Marks the slot to be served if something taken from it is a reason for that. Returns whether it is.
    pub(crate) fn touch_if_it_follows_up(&mut self, index: usize) -> bool {
        self.touch_if(index, Slot::follows_up)
    }

    /// Marks the slot to be served if the lack of anything to take is a reason for that. Returns whether it is.
    pub(crate) fn touch_if_unserved(&mut self, index: usize) -> bool {
        self.touch_if(index, Slot::is_unserved)
    }

    fn touch_if(&mut self, index: usize, condition: impl Fn(&Slot) -> bool) -> bool {
        let holds = self.slots[index].as_ref().is_some_and(|entry| condition(&entry.slot));
        if holds {
            self.touch(index);
        }
        holds
    }

    /// Marks the slot to be served, because its core was given something.
    pub(crate) fn touch(&mut self, index: usize) {
        if let Some(entry) = &mut self.slots[index]
            && !entry.dirty
        {
            entry.dirty = true;
            self.dirty.push(index);
        }
    }

    /// Notes that the lease holder goes to sleep.
    pub(crate) fn begin_sleep(
        &mut self,
        lease: &mut IoLease,
        fallback: &Watch,
        may_pin: bool,
        sleeper: Sleeper,
    ) {
        let send_blocked = self.send_blocked();
        self.turn.begin_sleep(lease, (&self.sockets, send_blocked), fallback, may_pin, sleeper);
    }

    /// Returns when the lease holder, or the fallback thread in its place, has to wake up.
    pub(crate) fn alarm(&self, now: Time) -> Time {
        let deadline = match self.send_blocked() {
            // What could not be sent may leave a timer due all the time.
            true => self.deadline().max(now + BLOCKED_ALARM_MIN),
            false => self.deadline(),
        };
        self.turn.sleeper().map_or(deadline, |sleeper| deadline.min(sleeper.until))
    }

    /// Drops all datagrams that this engine sends and receives while `cut` is true.
    #[cfg(test)]
    pub(crate) fn cut_off(&mut self, cut: bool) {
        self.send_queue.is_cut_off = cut;
    }

    /// Gives each datagram to its slot.
    pub(crate) fn dispatch(&mut self, now: Time, inbox: &mut Vec<Received>) {
        #[cfg(test)]
        if self.send_queue.is_cut_off {
            inbox.clear();
        }
        for Received { from, by_multicast, datagram } in inbox.drain(..) {
            // No datagram can be sent to port 0: the kernel would refuse the answer, and all datagrams of its run.
            if from.port() == 0 {
                continue;
            }
            let Some(index) = wire::group_tag(&datagram).and_then(|tag| self.by_tag.get(&tag).copied())
            else {
                continue;
            };
            if let Some(entry) = &mut self.slots[index]
                && (from != self.own_address || entry.slot.receives_own())
                && entry.slot.may_hear(from)
            {
                entry.slot.handle(now, from, by_multicast, datagram);
                self.touch(index);
            }
        }
    }

    /// True if no slot has to be served.
    pub(crate) fn is_settled(&self) -> bool {
        self.dirty.is_empty()
    }

    /// Returns when the slots were last served, if the lease is free, no thread waits for it, and no slot has to be
    /// served.
    pub(crate) fn undisturbed_since(&self) -> Option<Time> {
        let undisturbed = self.dirty.is_empty() && self.turn.is_vacant() && !self.turn.claimed();
        undisturbed.then_some(self.settled_at)
    }

    /// Runs due timers and serves all slots that are marked.
    pub(crate) fn settle(&mut self, now: Time) {
        self.settled_at = now;
        if self.send_queue.is_full() && self.send_queue.send_on() {
            // Any of the slots may have been unable to send.
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
            self.note_hops(index);
            if let Some(entry) = &mut self.slots[index] {
                entry.dirty = false;
                entry.slot.serve(now, &mut self.send_queue, &mut self.wakes);
                entry.slot.tell(&mut self.log);
                if entry.slot.has_waiters() {
                    self.with_waiters.push(index);
                }
                if self.turn.sleeper().is_some_and(|sleeper| sleeper.waits_in(index)) && entry.slot.has_news()
                {
                    self.turn.request_wakeup();
                }
            }
            self.arm(index);
            self.retire(index);
        }
    }

    /// True if there may be a thread or a task to wake, or an episode to emit.
    pub(crate) fn has_wakes(&self) -> bool {
        !self.wakes.is_empty() || !self.with_waiters.is_empty() || !self.log.is_empty()
    }

    /// Takes the episodes to emit once the lock is released.
    pub(crate) fn take_log(&mut self) -> Log {
        std::mem::take(&mut self.log)
    }

    /// Returns the wakers to call, now that the threads that were awake have taken what they wanted.
    pub(crate) fn take_wakes(&mut self) -> Vec<Waker> {
        while let Some(index) = self.with_waiters.pop() {
            if let Some(entry) = &mut self.slots[index] {
                entry.slot.wake_waiters(&mut self.wakes);
            }
        }
        std::mem::take(&mut self.wakes)
    }

    /// Sets the slot's timer for its deadline, or for a little earlier.
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

    /// Stops listening for a member or endpoint that is out, and frees its slot when no handle is left.
    fn retire(&mut self, index: usize) {
        let Some(entry) = self.slots[index].as_mut().filter(|entry| entry.slot.is_out()) else { return };
        let finished = entry.slot.is_finished();
        if self.by_tag.get(&entry.tag) == Some(&index) {
            self.by_tag.remove(&entry.tag);
            let address = entry.slot.take_multicast();
            self.stop_listening(address);
        }
        if finished && let Some(entry) = self.slots[index].take() {
            self.timers.remove(&(entry.armed, index));
            self.occupied -= 1;
            if entry.hops > Member::HOPS_DEFAULT {
                self.set_hops();
            }
        }
    }

    /// Returns when the next timer is due.
    pub(crate) fn deadline(&self) -> Time {
        self.timers.first().map_or(Time::NEVER, |(time, _)| *time)
    }

    /// Drops the datagrams with this tag that wait for the send buffer.
    pub(super) fn drop_unsent(&mut self, tag: GroupTag) {
        if self.send_queue.drop_unsent(tag) {
            // Any other slot may have been unable to send.
            (0..self.slots.len()).for_each(|index| self.touch(index));
        }
    }

    /// True if the send buffer is full.
    pub(crate) fn send_blocked(&self) -> bool {
        self.send_queue.is_full()
    }
}

/// See [`State::peers`].
fn peers(slots: &[Option<Registered>]) -> Vec<SocketAddr> {
    slots.iter().flatten().flat_map(|entry| entry.slot.peers()).collect()
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

//! A slot of an engine: one core's state, and the threads and tasks that wait for it.

use super::calls::Calls;
use super::membership::Membership;
use super::park::Listed;
use super::send_queue::SendQueue;
use crate::log::Log;
use bytes::BytesMut;
use std::net::SocketAddr;
use std::task::Waker;
use unisono_core::{Member, Time};

/// What an engine holds and serves for this process.
pub(crate) enum Slot {
    /// A member of a group.
    Membership(Box<Membership>),
    /// The calls of this process.
    Calls(Box<Calls>),
}

/// What a slot may hold, for the handles to it.
pub(crate) trait Occupant {
    /// Something that a thread or a task can wait for.
    type Interest: Copy;

    /// Returns the occupant of this slot, if it is of this kind.
    fn of(slot: &mut Slot) -> Option<&mut Self>;

    /// Wakes `waker` when `interest` may be there, unless `listed` is dropped before.
    fn register(&mut self, interest: Self::Interest, waker: &Waker, listed: &mut Listed);

    /// Notes that a handle was dropped.
    fn release(&mut self, now: Time);
}

impl Slot {
    pub(crate) fn handle(&mut self, now: Time, from: SocketAddr, by_multicast: bool, datagram: BytesMut) {
        match (self, by_multicast) {
            (Slot::Membership(member), true) => member.group.handle_multicast(now, from, datagram),
            (Slot::Membership(member), false) => member.group.handle_datagram(now, from, datagram),
            (Slot::Calls(calls), true) => calls.endpoint.handle_multicast(now, from, datagram),
            (Slot::Calls(calls), false) => calls.endpoint.handle_datagram(now, from, datagram),
        }
    }

    /// Gives it the address at which this engine is from now on.
    pub(crate) fn move_to(&mut self, now: Time, address: SocketAddr) {
        match self {
            Slot::Membership(member) => member.move_to(now, address),
            Slot::Calls(calls) => calls.endpoint.move_to(now, address),
        }
    }

    /// Returns the other members of its view and its seeds; none if it is no member, or alone.
    pub(crate) fn peers(&self) -> Vec<SocketAddr> {
        match self {
            Slot::Membership(member) => member.peers(),
            Slot::Calls(_) => Vec::new(),
        }
    }

    /// Returns how far it asks multicasts to go.
    pub(crate) fn hops(&mut self) -> u8 {
        match self {
            Slot::Membership(member) if !member.is_out() => member.group.hops(),
            Slot::Membership(_) => Member::HOPS_DEFAULT,
            Slot::Calls(calls) => calls.access.hops,
        }
    }

    /// True if datagrams from this address may be for it.
    pub(crate) fn may_hear(&self, from: SocketAddr) -> bool {
        match self {
            Slot::Membership(member) => member.reach.seeds.may_come_from(from),
            Slot::Calls(calls) => calls.access.seeds.may_come_from(from),
        }
    }

    pub(crate) fn handle_timeout(&mut self, now: Time) {
        match self {
            Slot::Membership(member) => member.group.handle_timeout(now),
            Slot::Calls(calls) => calls.endpoint.handle_timeout(now),
        }
    }

    /// Sends what there is to send, and collects the wakers of those that need not wait any longer.
    pub(crate) fn serve(&mut self, now: Time, send_queue: &mut SendQueue, wakes: &mut Vec<Waker>) {
        match self {
            Slot::Membership(member) => member.serve(now, send_queue, wakes),
            Slot::Calls(calls) => calls.serve(now, send_queue, wakes),
        }
    }

    /// Moves the slot's episodes into `log`.
    pub(crate) fn tell(&mut self, log: &mut Log) {
        match self {
            Slot::Membership(member) => log.take(&member.label, &mut member.group),
            Slot::Calls(_) => {}
        }
    }

    /// Returns when it has to be served again.
    pub(crate) fn deadline(&self) -> Time {
        match self {
            Slot::Membership(member) => member.deadline(),
            Slot::Calls(calls) => calls.deadline(),
        }
    }

    /// True if it has to be served because something was taken from it.
    pub(crate) fn follows_up(&self) -> bool {
        match self {
            Slot::Membership(member) => member.look_again || member.group.events_matter(),
            Slot::Calls(_) => false,
        }
    }

    /// True if it has to be served because there was nothing to take.
    pub(crate) fn is_unserved(&self) -> bool {
        match self {
            Slot::Membership(member) => member.look_again || member.group.events_matter(),
            Slot::Calls(calls) => calls.is_unserved(),
        }
    }

    /// True if there may be something for the lease holder, which is on no list while it waits for this slot.
    pub(crate) fn has_news(&mut self) -> bool {
        match self {
            Slot::Membership(member) => member.has_news(),
            Slot::Calls(calls) => calls.has_news(),
        }
    }

    /// True if there is something that one of several waiters may take.
    pub(crate) fn has_waiters(&self) -> bool {
        match self {
            Slot::Membership(_) => false,
            Slot::Calls(calls) => calls.has_waiters(),
        }
    }

    /// Wakes the waiters for what is still there.
    pub(crate) fn wake_waiters(&mut self, wakes: &mut Vec<Waker>) {
        match self {
            Slot::Membership(_) => {}
            Slot::Calls(calls) => calls.wake_servers(wakes),
        }
    }

    /// True if it processes datagrams that it sent itself.
    pub(crate) fn receives_own(&self) -> bool {
        matches!(self, Slot::Calls(_))
    }

    /// True if it is a member of which no handle is left.
    pub(crate) fn is_abandoned(&self) -> bool {
        matches!(self, Slot::Membership(member) if member.is_abandoned())
    }

    /// True if no other process needs it any more.
    pub(crate) fn is_out(&self) -> bool {
        match self {
            Slot::Membership(member) => member.is_out(),
            Slot::Calls(calls) => calls.is_out(),
        }
    }

    /// True if no handle needs it either.
    pub(crate) fn is_finished(&self) -> bool {
        match self {
            Slot::Membership(member) => member.is_finished(),
            Slot::Calls(calls) => calls.is_out(),
        }
    }

    /// Returns, once, the multicast address at which it is no longer reached, after [`Slot::is_out`].
    pub(crate) fn take_multicast(&mut self) -> Option<SocketAddr> {
        match self {
            Slot::Membership(member) => member.reach.multicast.take(),
            // Each service stops listening on its own.
            Slot::Calls(_) => None,
        }
    }
}

//! What an engine holds and serves for this process: one core's state, and who waits for what.

use super::calls::Calls;
use super::membership::Membership;
use super::park::Listed;
use super::send_queue::SendQueue;
use crate::log::Log;
use bytes::BytesMut;
use std::net::SocketAddr;
use std::task::Waker;
use unisono_core::Time;

/// See the module.
pub(crate) enum Slot {
    /// A member of a group.
    Membership(Box<Membership>),
    /// The calls of this process.
    Calls(Box<Calls>),
}

/// What a slot may hold, as those see it who have a handle to it.
pub(crate) trait Occupant {
    /// Something a thread or a task can wait for.
    type Interest: Copy;

    /// The occupant of this slot, if it is of this kind.
    fn of(slot: &mut Slot) -> Option<&mut Self>;

    /// Wakes `waker` when what it waits for may be there, unless whoever was `listed` for it is gone by then.
    fn register(&mut self, interest: Self::Interest, waker: &Waker, listed: &mut Listed);

    /// A handle is gone.
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

    pub(crate) fn handle_timeout(&mut self, now: Time) {
        match self {
            Slot::Membership(member) => member.group.handle_timeout(now),
            Slot::Calls(calls) => calls.endpoint.handle_timeout(now),
        }
    }

    /// Sends what there is to send, and finds out who need not wait any longer.
    pub(crate) fn serve(&mut self, now: Time, send_queue: &mut SendQueue, wakes: &mut Vec<Waker>) {
        match self {
            Slot::Membership(member) => member.serve(now, send_queue, wakes),
            Slot::Calls(calls) => calls.serve(now, send_queue, wakes),
        }
    }

    /// Hands over what is worth a line in the log.
    pub(crate) fn tell(&mut self, log: &mut Log) {
        match self {
            Slot::Membership(member) => log.take(&member.label, &mut member.group),
            Slot::Calls(_) => {}
        }
    }

    /// When it has to be looked at again.
    pub(crate) fn deadline(&self) -> Time {
        match self {
            Slot::Membership(member) => member.deadline(),
            Slot::Calls(calls) => calls.deadline(),
        }
    }

    /// What was taken from it is a reason to serve it.
    pub(crate) fn follows_up(&self) -> bool {
        match self {
            Slot::Membership(member) => member.group.events_matter(),
            Slot::Calls(_) => false,
        }
    }

    /// That there was nothing to take is a reason to serve it.
    pub(crate) fn is_unserved(&self) -> bool {
        match self {
            Slot::Membership(member) => member.group.events_matter(),
            Slot::Calls(calls) => calls.is_unserved(),
        }
    }

    /// There may be something for a thread that waits here: it has not left its name, as it sits.
    pub(crate) fn has_news(&mut self) -> bool {
        match self {
            Slot::Membership(member) => member.has_news(),
            Slot::Calls(calls) => calls.has_news(),
        }
    }

    /// There is something that more than one may take, and somebody waits for it.
    pub(crate) fn is_asked(&self) -> bool {
        match self {
            Slot::Membership(_) => false,
            Slot::Calls(calls) => calls.is_asked(),
        }
    }

    /// Wakes those who wait for what is still there.
    pub(crate) fn wake_askers(&mut self, wakes: &mut Vec<Waker>) {
        match self {
            Slot::Membership(_) => {}
            Slot::Calls(calls) => calls.wake_servers(wakes),
        }
    }

    /// It takes datagrams that it sent itself.
    pub(crate) fn talks_to_itself(&self) -> bool {
        matches!(self, Slot::Calls(_))
    }

    /// It has nothing to do with anybody elsewhere any more.
    pub(crate) fn is_out(&self) -> bool {
        match self {
            Slot::Membership(member) => member.is_out(),
            Slot::Calls(calls) => calls.is_out(),
        }
    }

    /// Nobody here needs it either.
    pub(crate) fn is_finished(&self) -> bool {
        match self {
            Slot::Membership(member) => member.is_finished(),
            Slot::Calls(calls) => calls.is_out(),
        }
    }

    /// The multicast address it is no longer reached at, once it is out.
    pub(crate) fn fall_silent(&mut self) -> Option<SocketAddr> {
        match self {
            Slot::Membership(member) => member.reach.multicast.take(),
            // Each service has seen to its own.
            Slot::Calls(_) => None,
        }
    }
}

//! A server's life as a client knows it: where it is, the slots of the session with it, how soon it answers.

use super::service::Service;
use crate::identity::Port;
use crate::round_trip::RoundTrip;
use crate::rpc::types::CallNumber;
use crate::time::Time;
use crate::wire::{Attempt, Cookie, Grant};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::time::Duration;

/// An answer is acknowledged by the next request in its slot, or after so long by itself.
pub(super) const DONE_AFTER: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(in crate::rpc) struct Remote {
    pub(in crate::rpc) address: SocketAddr,
    /// What it serves, as far as it is known here.
    pub(super) services: Vec<Service>,
    /// When it last said that it serves a port, by its own time.
    pub(super) last_answer: Option<u64>,
    /// To be shown until it answers in this session.
    pub(super) cookie: Cookie,
    pub(super) is_established: bool,
    pub(super) grant: Grant,
    pub(super) slots: Vec<Slot>,
    free: Vec<u16>,
    pub(super) under_way: u16,
    pub(super) round_trip: RoundTrip,
    pub(super) heard_at: Time,
    /// Since when it owes an answer: also to calls that did not wait for it, so that who is dead is not asked for ever
    /// by those who wait less than that takes to show.
    pub(super) asked_since: Option<Time>,
    /// Its life is over, or silent: it gets nothing new.
    pub(super) is_lost: bool,
    /// Slots whose request is to be sent (again).
    pub(super) to_send: VecDeque<u16>,
    /// The remote is among those that something is to be sent to.
    pub(super) is_due: bool,
    /// When answers that nothing has acknowledged are acknowledged.
    pub(super) done_at: Option<Time>,
}

/// One call at a time.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::rpc) struct Slot {
    /// The attempt that it was used for last.
    pub(in crate::rpc) number: u64,
    /// The call whose attempt that is, if it is under way.
    pub(in crate::rpc) call: Option<CallNumber>,
    /// The answer has come, and the server does not know.
    unacknowledged: bool,
    /// The call ended without it: nothing has been heard of the attempt since.
    given_up: bool,
}

impl Remote {
    pub(super) fn new(now: Time, address: SocketAddr, cookie: Cookie) -> Remote {
        Remote {
            address,
            services: Vec::new(),
            last_answer: None,
            cookie,
            is_established: false,
            grant: Grant { slots: 1, load: 0 },
            slots: Vec::new(),
            free: Vec::new(),
            under_way: 0,
            round_trip: RoundTrip::default(),
            heard_at: now,
            asked_since: None,
            is_lost: false,
            to_send: VecDeque::new(),
            is_due: false,
            done_at: None,
        }
    }

    /// What is known of a service of it.
    pub(super) fn service(&self, port: Port) -> Option<&Service> {
        self.services.iter().find(|service| service.port == port)
    }

    pub(super) fn service_mut(&mut self, port: Port) -> Option<&mut Service> {
        self.services.iter_mut().find(|service| service.port == port)
    }

    /// It takes another call for this port now.
    pub(super) fn has_capacity(&self, now: Time, port: Port) -> bool {
        let takes = self.service(port).is_none_or(|service| service.has_capacity(now));
        takes && self.under_way < self.grant.slots && !self.is_lost
    }

    /// How much it has to do, as far as is known here.
    pub(super) fn load(&self) -> u32 {
        u32::from(self.under_way) + u32::from(self.grant.load)
    }

    /// It speaks of an attempt. That shows that it lives if it could not have said so before: of an attempt under way, or
    /// for the first time of one that was given up. Anything else may be a recording. Returns the call, if it is under way.
    pub(super) fn hear(&mut self, now: Time, attempt: Attempt, grant: Option<Grant>) -> Option<CallNumber> {
        let slot = self.slots.get_mut(usize::from(attempt.slot))?;
        if slot.number != attempt.number {
            return None;
        }
        let call = slot.call;
        if core::mem::take(&mut slot.given_up) || call.is_some() {
            self.note_heard(now, grant.unwrap_or(self.grant));
        }
        call
    }

    /// Something came from it.
    pub(super) fn note_heard(&mut self, now: Time, grant: Grant) {
        self.heard_at = now;
        self.asked_since = None;
        self.grant = grant;
    }

    /// A slot for this attempt at a call for this port.
    pub(super) fn take_slot(&mut self, now: Time, port: Port, call: CallNumber, number: u64) -> u16 {
        if let Some(service) = self.service_mut(port) {
            service.note_sent(now);
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() as u16 - 1
        });
        self.slots[usize::from(slot)] =
            Slot { number, call: Some(call), unacknowledged: false, given_up: false };
        self.under_way += 1;
        slot
    }

    /// The attempt in this slot is over, at a call for this port; `answered`, and the server keeps its answer until it
    /// knows.
    pub(super) fn free_slot(&mut self, now: Time, port: Port, slot: u16, answered: bool) {
        let Some(place) = self.slots.get_mut(usize::from(slot)) else { return };
        if place.call.take().is_none() {
            return;
        }
        (place.unacknowledged, place.given_up) = (answered, !answered);
        self.free.push(slot);
        self.under_way -= 1;
        if let Some(service) = self.service_mut(port) {
            service.note_gone();
        }
        if answered {
            self.done_at.get_or_insert(now + DONE_AFTER);
        }
    }

    /// Answers to acknowledge now, at most `max` of them: slots and numbers.
    pub(super) fn take_unacknowledged(&mut self, max: usize) -> Vec<(u16, u64)> {
        let slots = self.slots.iter_mut().enumerate().filter(|(_, slot)| slot.unacknowledged);
        let done = slots.take(max).map(|(index, slot)| {
            slot.unacknowledged = false;
            (index as u16, slot.number)
        });
        done.collect()
    }
}

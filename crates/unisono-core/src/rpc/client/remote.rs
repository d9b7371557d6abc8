//! A server's life as a client knows it: its address, the slots of the session with it, its response time.

use super::service::Service;
use crate::identity::Port;
use crate::round_trip::RoundTrip;
use crate::rpc::agreement::Pair;
use crate::rpc::common::patience;
use crate::rpc::server::SLOTS_AT_ONCE_MAX;
use crate::rpc::types::CallNumber;
use crate::time::Time;
use crate::wire::{Attempt, Cookie, Grant, SLOTS_MAX};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::time::Duration;

/// An answer that no later request in its slot has acknowledged is acknowledged by `Done` after 10 ms.
pub(super) const DONE_AFTER: Duration = Duration::from_millis(10);

/// A server of a service that recognises repeats is quiet when it has left questions unanswered for 60 ms, or for twice
/// the time that answers of it take.
const QUIET_AFTER: Duration = Duration::from_millis(60);
/// A server that was quiet, and was heard after all, is given up to twice this time from then on.
const QUIET_FOR_MAX: Duration = Duration::from_millis(500);
/// Interval at which to look again whether a server is quiet, if it was not asked often enough.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(10);

/// Whether a server gets calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Well,
    /// It leaves questions unanswered: it gets calls only if no other server takes them. It is asked at this time whether
    /// it is there.
    Quiet(Time),
    /// Its life is over, or silent: it gets no further calls.
    Lost,
}

#[derive(Debug)]
pub(in crate::rpc) struct Remote {
    pub(in crate::rpc) address: SocketAddr,
    /// Seals what goes to and fro.
    pub(in crate::rpc) pair: Box<dyn Pair>,
    /// Services that it is known to offer.
    pub(super) services: Vec<Service>,
    /// When it last answered that it serves a port, by its own clock.
    pub(super) last_answer: Option<u64>,
    /// Cookie to show until it answers in this session.
    pub(super) cookie: Cookie,
    pub(super) is_established: bool,
    pub(super) grant: Grant,
    pub(super) slots: Vec<Slot>,
    free: Vec<u16>,
    pub(super) under_way: u16,
    pub(super) round_trip: RoundTrip,
    pub(super) heard_at: Time,
    /// Since when it owes an answer. Ended calls count too: otherwise short calls would go to a dead server for ever.
    pub(super) asked_since: Option<Time>,
    /// When it was last asked.
    pub(super) asked_last: Time,
    pub(super) standing: Standing,
    /// How long it was quiet before it was heard again; it is then given more time.
    quiet_for: Duration,
    /// True if a service of it recognises repeats.
    pub(super) repeats: bool,
    /// Slots whose request is to be sent, or sent again.
    pub(super) to_send: VecDeque<u16>,
    /// True if the server is in the queue of servers with requests to send.
    pub(super) is_due: bool,
    /// When to acknowledge answers by `Done`.
    pub(super) done_at: Option<Time>,
}

/// A slot: one call at a time.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::rpc) struct Slot {
    /// Number of its last attempt.
    pub(in crate::rpc) number: u64,
    /// The call of that attempt, if it is under way.
    pub(in crate::rpc) call: Option<CallNumber>,
    /// True if the answer has arrived and is not acknowledged.
    unacknowledged: bool,
    /// True if the call ended without it, and no frame about the attempt has arrived since.
    given_up: bool,
}

impl Remote {
    pub(super) fn new(now: Time, address: SocketAddr, cookie: Cookie, pair: Box<dyn Pair>) -> Remote {
        Remote {
            address,
            pair,
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
            asked_last: Time::ZERO,
            standing: Standing::Well,
            quiet_for: Duration::ZERO,
            repeats: false,
            to_send: VecDeque::new(),
            is_due: false,
            done_at: None,
        }
    }

    /// Returns what is known of this service of the server.
    pub(super) fn service(&self, port: Port) -> Option<&Service> {
        self.services.iter().find(|service| service.port == port)
    }

    pub(super) fn service_mut(&mut self, port: Port) -> Option<&mut Service> {
        self.services.iter_mut().find(|service| service.port == port)
    }

    /// True if it takes another call for this port now.
    pub(super) fn has_capacity(&self, now: Time, port: Port) -> bool {
        let takes = self.service(port).is_none_or(|service| service.has_capacity(now));
        takes && self.under_way < self.grant.slots && self.standing == Standing::Well
    }

    /// True if it would take another call for this port now, were it not quiet.
    pub(super) fn is_quiet_with_capacity(&self, now: Time, port: Port) -> bool {
        let takes = self.service(port).is_none_or(|service| service.has_capacity(now));
        takes && self.under_way < self.grant.slots && matches!(self.standing, Standing::Quiet(_))
    }

    /// Returns its known load: calls under way there, plus requests that it reports as waiting.
    pub(super) fn load(&self) -> u32 {
        u32::from(self.under_way) + u32::from(self.grant.load)
    }

    /// Handles a frame about an attempt, and returns the call if it is under way. The frame shows that the server lives
    /// if it could not have been sent before: it is about an attempt under way, or the first one about an attempt that
    /// was given up. Any other frame may be a recording.
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

    /// Notes that the server lives, and its grant.
    pub(super) fn note_heard(&mut self, now: Time, grant: Grant) {
        if matches!(self.standing, Standing::Quiet(_)) {
            self.quiet_for = self.asked_since.map_or(Duration::ZERO, |since| now.since(since));
            self.standing = Standing::Well;
        }
        self.heard_at = now;
        self.asked_since = None;
        self.grant = grant;
    }

    /// Notes that an attempt that was sent once was answered after this time.
    pub(super) fn note_round_trip(&mut self, sample: Duration) {
        self.round_trip.note(sample);
        self.quiet_for = Duration::ZERO;
    }

    /// Returns when it becomes quiet if it answers nothing until then.
    pub(super) fn quiet_from(&self, now: Time) -> Option<Time> {
        let since = self.asked_since.filter(|_| self.repeats && self.standing == Standing::Well)?;
        let longer = self.quiet_for.min(QUIET_FOR_MAX).max(patience(&self.round_trip));
        Some(self.silent_from(now, since, QUIET_AFTER.max(longer * 2)))
    }

    /// Returns when it has been silent for the time `after` since then. It must have been asked more than once, over half of
    /// this time: the process may itself have been asleep meanwhile.
    pub(super) fn silent_from(&self, now: Time, since: Time, after: Duration) -> Time {
        let was_asked_again = self.asked_last.since(since) >= after / 2;
        if was_asked_again { since + after } else { (since + after).max(now + LOOK_AGAIN_AFTER) }
    }

    /// Takes a slot for this attempt at a call for this port. `from_end` is for a hostile client.
    pub(super) fn take_slot(
        &mut self,
        now: Time,
        port: Port,
        (call, number): (CallNumber, u64),
        from_end: bool,
    ) -> u16 {
        if let Some(service) = self.service_mut(port) {
            service.note_sent(now);
        }
        let end = if from_end { self.slot_at_end() } else { None };
        let slot = end.or_else(|| self.free.pop()).unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() as u16 - 1
        });
        self.slots[usize::from(slot)] =
            Slot { number, call: Some(call), unacknowledged: false, given_up: false };
        self.under_way += 1;
        slot
    }

    /// Takes the last of as many new slots as a server gives at once, as long as it gives any; then the one that was free for
    /// longest.
    #[cold]
    fn slot_at_end(&mut self) -> Option<u16> {
        let slots = self.slots.len();
        if slots == SLOTS_MAX {
            return (!self.free.is_empty()).then(|| self.free.remove(0));
        }
        self.slots.resize((slots + SLOTS_AT_ONCE_MAX).min(SLOTS_MAX), Slot::default());
        let end = self.slots.len() as u16 - 1;
        self.free.splice(0..0, slots as u16..end);
        Some(end)
    }

    /// Frees a slot whose attempt, at a call for this port, is over. If `answered`, the server keeps its answer until
    /// acknowledged.
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

    /// Returns the slots and numbers of up to `max` answers to acknowledge now.
    pub(super) fn take_unacknowledged(&mut self, max: usize) -> Vec<(u16, u64)> {
        let slots = self.slots.iter_mut().enumerate().filter(|(_, slot)| slot.unacknowledged);
        let done = slots.take(max).map(|(index, slot)| {
            slot.unacknowledged = false;
            (index as u16, slot.number)
        });
        done.collect()
    }
}

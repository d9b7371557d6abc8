//! Limits on what a server takes and keeps. Every change of a slot's state is accounted for here, and nowhere else.

use super::session::State;
use super::sessions::SessionId;
use super::sources::Held;
use super::{Server, Service};
use crate::identity::Port;
use crate::planted::Planted;
use crate::rpc::common::Common;
use crate::rpc::transfer::RECEIVING_BYTES_MAX;
use crate::shares::{Bound, Source};
use crate::time::Time;
use crate::wire::{Grant, SLOTS_MAX};
use alloc::collections::VecDeque;

/// Maximum number of bytes of replies kept until their arrival is known; beyond, the oldest are dropped.
pub(in crate::rpc) const KEPT_BYTES_MAX: usize = 64 << 20;
/// Bytes of kept replies beyond which the oldest ones of a client, or of a source address, are dropped if there is no room for
/// all and it gets one more.
const KEPT_SHARE: usize = KEPT_BYTES_MAX / 8;
const KEPT_SOURCE_SHARE: usize = KEPT_BYTES_MAX / 4;
/// Maximum number of slots of all sessions, besides the first ones of each, and share of an address.
pub(in crate::rpc) const SLOTS: Bound = Bound { most: 1 << 18, part: 4 };
/// Maximum number of sessions, and share of an address.
pub(in crate::rpc) const SESSIONS: Bound = Bound { most: 1 << 16, part: 4 };
/// Maximum bytes of large requests that are incomplete, with all requests that wait or are being worked on, and share of an
/// address: once one address has half of the bound, there is room for one of the largest of another.
pub(in crate::rpc) const LARGE: Bound = Bound { most: RECEIVING_BYTES_MAX, part: 2 };
/// Requests of fewer bytes count in no address's share: the queues bound them, and most calls are small.
pub(super) const LARGE_BYTES_MIN: usize = 4096;
/// A session gets at most this many slots at once. A client takes its slots in order, so a datagram that overtakes others is
/// not far ahead of them.
pub(in crate::rpc) const SLOTS_AT_ONCE_MAX: usize = 128;
/// Each session has this many slots whatever the others have: a newcomer can show its right.
pub(super) const FIRST_SLOTS: usize = 2;

/// Number of kept replies that are listed in any case, whether or not they are kept still: of all sessions, and of one.
const KEPT_LISTED_MIN: usize = 1024;
const SESSION_LISTED_MIN: usize = 32;

/// A place in the queue of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Any,
    /// One that is kept for the shares of addresses.
    OfShare,
    /// One of the places for strangers.
    OfStranger,
}

/// Amounts in use.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Budget {
    /// Sum of `queue_max` of all services.
    pub(super) queues_max: usize,
    /// Entries of all queues, those of beginnings included.
    pub(super) queued: usize,
    /// Requests that wait, are incomplete or are being worked on.
    pub(super) pending: usize,
    /// Source addresses of sessions with requests in progress: those that are not entitled, and those that are.
    pub(super) busy_sources: [usize; 2],
    /// What all clients have, and those at addresses that are entitled.
    pub(super) of_all: Held,
    pub(super) of_entitled: Held,
    pub(super) receiving_bytes: usize,
    /// Bytes of requests that wait or are being worked on.
    pub(super) taken_bytes: usize,
    pub(super) kept_bytes: usize,
    /// Number of replies that are kept.
    pub(super) kept: usize,
}

/// Kept replies, the oldest first: session, slot and number. Some are not kept any more.
pub(super) type KeptList = VecDeque<(SessionId, u16, u64)>;

impl Server {
    /// Changes the state of a slot's attempt.
    pub(super) fn change(&mut self, id: SessionId, slot: u16, state: State) {
        let Some(session) = self.sessions.get_mut(id) else { return };
        let Some(place) = session.slots.get_mut(usize::from(slot)) else { return };
        let (left, taken) = (&place.state, &state);
        let source = session.source;
        let bytes_taken = taken.receiving_bytes() + taken.waiting_bytes();
        let bytes_left = left.receiving_bytes() + left.waiting_bytes();
        let budget = &mut self.budget;
        budget.receiving_bytes = budget.receiving_bytes + taken.receiving_bytes() - left.receiving_bytes();
        budget.taken_bytes = budget.taken_bytes + taken.waiting_bytes() - left.waiting_bytes();
        budget.kept_bytes = budget.kept_bytes + taken.kept_bytes() - left.kept_bytes();
        session.kept_bytes = session.kept_bytes + taken.kept_bytes() - left.kept_bytes();
        let is_kept = |state: &State| usize::from(matches!(state, State::Replied(_)));
        budget.kept = budget.kept + is_kept(taken) - is_kept(left);
        if is_kept(taken) + is_kept(left) > 0
            && let Some(of_source) = self.sources.get_mut(&source)
        {
            of_source.kept_bytes = of_source.kept_bytes + taken.kept_bytes() - left.kept_bytes();
            of_source.kept_count = of_source.kept_count + is_kept(taken) - is_kept(left);
        }
        match (left.is_in_progress(), taken.is_in_progress()) {
            (false, true) => {
                if session.in_progress == 0
                    && let Some(of_source) = self.sources.get_mut(&source)
                {
                    budget.busy_sources[usize::from(of_source.is_entitled)] +=
                        usize::from(of_source.busy_sessions == 0);
                    of_source.busy_sessions += 1;
                }
                session.in_progress += 1;
            }
            (true, false) => {
                session.in_progress -= 1;
                if session.in_progress == 0
                    && let Some(of_source) = self.sources.get_mut(&source)
                {
                    of_source.busy_sessions -= 1;
                    budget.busy_sources[usize::from(of_source.is_entitled)] -=
                        usize::from(of_source.busy_sessions == 0);
                }
            }
            _ => {}
        }
        let (was_incomplete, is_incomplete) = (left.incomplete(), taken.incomplete());
        // A request that the application has counts until it is answered, whether or not its client still waits.
        let handed_over = matches!(taken, State::InHand);
        let (left, taken) = (left.place(), taken.place());
        place.state = state;
        self.change_bytes(source, bytes_left, bytes_taken);
        if was_incomplete != is_incomplete {
            let (left, taken) = (was_incomplete.zip(left), is_incomplete.zip(taken));
            self.change_incomplete(source, (id, slot), left, taken);
        }
        if left != taken && !handed_over {
            if let Some(place) = left {
                self.release_place(place, source);
            }
            if let Some(place) = taken {
                self.take_place(place, source);
            }
        }
    }

    fn take_place(&mut self, (port, place): (Port, Place), source: Source) {
        self.budget.pending += 1;
        if let Some(service) = self.services.get_mut(port) {
            service.pending += 1;
            match place {
                Place::Any => {}
                Place::OfShare => service.of_sources.add(source, 1),
                Place::OfStranger => service.strangers.take_place(source),
            }
        }
    }

    /// Notes that a request for this port neither waits nor is worked on any longer.
    pub(super) fn release_place(&mut self, (port, place): (Port, Place), source: Source) {
        self.budget.pending = self.budget.pending.saturating_sub(1);
        if let Some(service) = self.services.get_mut(port) {
            service.pending = service.pending.saturating_sub(1);
            match place {
                Place::Any => {}
                Place::OfShare => service.of_sources.subtract(source, 1),
                Place::OfStranger => service.strangers.release_place(source),
            }
        }
    }

    /// Returns the grant of a client of this address: its requests in progress plus a fair share of what the queues still take,
    /// besides incomplete requests, which have places of their own; and the load. The addresses that have requests in progress share
    /// equally, and so do the lives of each: lives are free. Entitled addresses share as if there were no others, of which there may
    /// be thousands. The share is at least one if there is any place: a client with requests that are held for long would not get on
    /// with none.
    pub(super) fn grant(&self, source: Source, in_progress: u16) -> Grant {
        let whole = self.budget.pending.saturating_sub(self.incomplete.len());
        let left = self.budget.queues_max.saturating_sub(whole);
        let of_source = self.sources.get(&source);
        let lives = of_source.map_or(0, |of_source| of_source.busy_sessions);
        let [others, entitled] = self.budget.busy_sources;
        let is_entitled = of_source.is_some_and(|of_source| of_source.is_entitled);
        let busy = if is_entitled { entitled } else { others + entitled };
        let share = left / busy.max(1) / lives.max(1);
        let share = share.max(left.min(1)) + usize::from(in_progress);
        Grant {
            slots: share.clamp(1, SLOTS_MAX) as u16,
            load: u16::try_from(self.budget.pending).unwrap_or(u16::MAX),
        }
    }

    // --- kept replies ---

    /// Notes the reply that was kept last, and drops older ones while all have too many bytes: first the oldest ones of its
    /// client, if that has more than its share; then those of its source address, likewise; then the oldest of all.
    pub(super) fn keep_reply(&mut self, common: &mut Common, id: SessionId, slot: u16, number: u64) {
        if let Some(session) = self.sessions.get_mut(id) {
            session.kept.push_back((slot, number));
            if session.kept.len() > 2 * session.slots.len() + SESSION_LISTED_MIN {
                let slots = &session.slots;
                session.kept.retain(|(slot, number)| {
                    slots.get(usize::from(*slot)).is_some_and(|last| last.keeps(*number))
                });
            }
        }
        let sessions = &self.sessions;
        let is_kept = |(id, slot, number): &(SessionId, u16, u64)| {
            let last = sessions.get(*id).and_then(|session| session.slots.get(usize::from(*slot)));
            last.is_some_and(|last| last.keeps(*number))
        };
        self.kept.push_back((id, slot, number));
        if self.kept.len() > 2 * self.budget.kept + KEPT_LISTED_MIN {
            self.kept.retain(is_kept);
        }
        let source = sessions.get(id).map(|session| session.source);
        if let Some(of_source) = source.and_then(|source| self.sources.get_mut(&source)) {
            of_source.kept.push_back((id, slot, number));
            if of_source.kept.len() > 2 * of_source.kept_count + SESSION_LISTED_MIN {
                of_source.kept.retain(is_kept);
            }
        }
        while self.budget.kept_bytes > KEPT_BYTES_MAX
            && let Some(session) = self.sessions.get_mut(id)
            && session.kept_bytes > KEPT_SHARE
            && session.kept.len() > 1
            && let Some((slot, number)) = session.kept.pop_front()
        {
            self.drop_reply(common, id, slot, number);
        }
        while self.budget.kept_bytes > KEPT_BYTES_MAX
            && let Some(of_source) = source.and_then(|source| self.sources.get_mut(&source))
            && of_source.kept_bytes > KEPT_SOURCE_SHARE
            && of_source.kept.len() > 1
            && let Some((id, slot, number)) = of_source.kept.pop_front()
        {
            self.drop_reply(common, id, slot, number);
        }
        while self.budget.kept_bytes > KEPT_BYTES_MAX
            && let Some((id, slot, number)) = self.kept.pop_front()
        {
            self.drop_reply(common, id, slot, number);
        }
    }

    fn drop_reply(&mut self, common: &mut Common, id: SessionId, slot: u16, number: u64) {
        let session = self.sessions.get(id);
        let is_kept = session.and_then(|session| session.slots.get(usize::from(slot)));
        if is_kept.is_some_and(|last| last.keeps(number)) {
            common.counters.replies_dropped += 1;
            self.change(id, slot, State::Lost);
        }
    }
}

impl Service {
    /// Returns the number of requests, and of beginnings of requests, that wait to be taken.
    pub(super) fn waiting(&self) -> usize {
        self.queue.len() + self.beginnings.len()
    }

    /// True if the next request that the application gets is to be the beginning of a large one. Beginnings and whole requests take
    /// turns, so neither waits for all of the other kind.
    pub(super) fn gives_beginning(&mut self) -> bool {
        let is_turn = !self.gave_beginning || self.queue.len() == 0;
        self.gave_beginning = is_turn && self.beginnings.len() > 0;
        self.gave_beginning
    }

    /// True if one more beginning from this address may wait.
    pub(super) fn has_room_for_beginning(&self, source: Source) -> bool {
        let bound = Bound { most: usize::from(self.options.queue_max), part: 4 };
        bound.admits(self.beginnings.len(), self.beginnings.len_of(source), 1)
    }

    /// Returns the place that one more request from this address gets, of a life that has `of_life` requests in progress; `None`
    /// if there is none.
    pub(super) fn place_for(&self, common: &Common, source: Source, of_life: usize) -> Option<Place> {
        if self.pending < usize::from(self.options.queue_max) {
            return Some(Place::Any);
        }
        self.place_of_share(common, source, of_life)
    }

    /// The same for a stranger, whose request counts among those that are taken a second.
    #[cold]
    pub(super) fn place_for_stranger(&mut self, now: Time, source: Source, is_whole: bool) -> Option<Place> {
        let places = usize::from(self.options.queue_max);
        // If it is incomplete and lacks room, another may give way.
        let has_place =
            self.pending < self.options.places() && (is_whole || self.has_room_for_stranger(source, 1));
        (has_place && self.strangers.admits(now, source, places)).then_some(Place::OfStranger)
    }

    /// True if one more request of this stranger may be incomplete as soon as `fewer` of other strangers are.
    #[cold]
    pub(super) fn has_room_for_stranger(&self, source: Source, fewer: usize) -> bool {
        self.strangers.has_room_for_incomplete(source, usize::from(self.options.queue_max), fewer)
    }

    /// Beyond the maximum, each address has a share of the other places, so that no client keeps the others out.
    #[cold]
    fn place_of_share(&self, common: &Common, source: Source, of_life: usize) -> Option<Place> {
        let places = Bound { most: self.options.places(), part: 4 };
        let own = match common.broken(Planted::ShareOfLifeAlone) {
            false => self.of_sources.get(&source),
            true => of_life,
        };
        let has_share = match common.broken(Planted::InnocentRefusedFirst) {
            false => places.admits(self.pending, own, 1),
            true => self.pending < places.most && of_life > 0,
        };
        has_share.then_some(Place::OfShare)
    }
}

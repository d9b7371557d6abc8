//! What the clients of each source address have of the bounds that all share, and what they may have more.
//!
//! An address that has shown a right at one of the services is *entitled* for a while. Such an address is judged by what those
//! like it have, so that the others take nothing from it. The others have half of the sessions and of the slots at most, and
//! their large requests of which parts are missing give way.

use super::Server;
use super::budget::{KeptList, LARGE, LARGE_BYTES_MIN, Place, SESSIONS, SLOTS};
use super::session::{Receiving, State};
use super::sessions::SessionId;
use super::slow::{Kind, Wanted};
use crate::identity::Port;
use crate::rpc::common::Common;
use crate::shares::{Bound, Source};
use crate::time::Time;
use alloc::vec::Vec;
use core::ops::{AddAssign, SubAssign};

/// What the clients of one or several addresses have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) sessions: usize,
    pub(super) slots: usize,
    /// Bytes of large requests that are incomplete, wait or are being worked on.
    pub(super) bytes: usize,
}

impl AddAssign for Held {
    fn add_assign(&mut self, more: Held) {
        self.sessions += more.sessions;
        self.slots += more.slots;
        self.bytes += more.bytes;
    }
}

impl SubAssign for Held {
    fn sub_assign(&mut self, fewer: Held) {
        self.sessions -= fewer.sessions;
        self.slots -= fewer.slots;
        self.bytes -= fewer.bytes;
    }
}

/// What the clients of one address have.
#[derive(Debug, Default)]
pub(super) struct OfSource {
    pub(super) is_entitled: bool,
    pub(super) held: Held,
    /// Number of its sessions that have requests in progress.
    pub(super) busy_sessions: usize,
    /// Number of requests that are incomplete.
    incomplete: usize,
    /// When too few requests were found last that could give way to one of this address, and for how much: bytes, and places.
    pub(super) too_few_give_way: [(Time, usize); 2],
    pub(super) kept_bytes: usize,
    /// Number of replies that are kept.
    pub(super) kept_count: usize,
    pub(super) kept: KeptList,
}

impl Server {
    // --- which addresses are entitled ---

    /// Notes that a request of this address for this port showed a right.
    pub(super) fn entitle(&mut self, now: Time, port: Port, source: Source) {
        if let Some(service) = self.services.get_mut(port)
            && service.strangers.entitle(now, source)
        {
            self.set_entitled(source, true);
        }
    }

    /// True if this address has shown a right at one of the services.
    pub(super) fn is_entitled(&self, source: Source) -> bool {
        match self.sources.get(&source) {
            Some(of_source) => of_source.is_entitled,
            None => self.has_shown_right(source),
        }
    }

    fn has_shown_right(&self, source: Source) -> bool {
        self.services.iter().any(|(_, service)| service.strangers.is_entitled(source))
    }

    /// Takes what the others are from the addresses whose last right was shown long ago.
    pub(super) fn forget_entitled(&mut self, now: Time) {
        let noted = self.sources.iter().filter(|(_, of_source)| of_source.is_entitled);
        for source in noted.map(|(source, _)| *source).collect::<Vec<_>>() {
            let is_still = |service: &mut super::Service| service.strangers.is_entitled_still(now, source);
            if !self.services.iter_mut().any(|(_, service)| is_still(service)) {
                self.set_entitled(source, false);
            }
        }
    }

    #[cold]
    pub(super) fn set_entitled(&mut self, source: Source, is_entitled: bool) {
        let Some(of_source) = self.sources.get_mut(&source) else { return };
        if of_source.is_entitled == is_entitled {
            return;
        }
        of_source.is_entitled = is_entitled;
        of_source.too_few_give_way = Default::default();
        if of_source.busy_sessions > 0 {
            self.budget.busy_sources[usize::from(!is_entitled)] -= 1;
            self.budget.busy_sources[usize::from(is_entitled)] += 1;
        }
        match is_entitled {
            true => self.budget.of_entitled += of_source.held,
            false => self.budget.of_entitled -= of_source.held,
        }
        for &(_, id, slot) in &self.incomplete {
            let Some(session) = self.sessions.get(id).filter(|session| session.source == source) else {
                continue;
            };
            let place = session.slots.get(usize::from(slot)).and_then(|slot| slot.state.place());
            if let Some(service) = place.and_then(|(port, _)| self.services.get_mut(port)) {
                match is_entitled {
                    true => service.incomplete_of_entitled += 1,
                    false => service.incomplete_of_entitled -= 1,
                }
            }
        }
    }

    // --- sessions and slots ---

    /// True if one more session may be opened from this address.
    pub(super) fn has_session_for(&self, source: Source) -> bool {
        self.has_for(source, SESSIONS, |held| held.sessions, 1)
    }

    /// True if a session that was opened from this address may have this many more slots.
    pub(super) fn has_slots_for(&self, source: Source, more: usize) -> bool {
        self.has_for(source, SLOTS, |held| held.slots, more)
    }

    /// True if an address may have more of a bound of which one that is not entitled has half at most, with those like it.
    fn has_for(&self, source: Source, bound: Bound, of: fn(&Held) -> usize, more: usize) -> bool {
        let own = self.sources.get(&source).map_or(0, |of_source| of(&of_source.held));
        let (all, entitled) = (of(&self.budget.of_all), of(&self.budget.of_entitled));
        let half = Bound { most: bound.most / 2, ..bound };
        all + more <= bound.most
            && match self.is_entitled(source) {
                true => bound.admits(entitled, own, more),
                false => half.admits(all - entitled, own, more),
            }
    }

    /// Notes a session that was opened from this address.
    pub(super) fn add_session(&mut self, source: Source) {
        self.change_held(source, Held::default(), Held { sessions: 1, ..Held::default() });
    }

    /// Notes slots of a session that was opened from this address.
    pub(super) fn add_slots(&mut self, source: Source, slots: usize) {
        self.change_held(source, Held::default(), Held { slots, ..Held::default() });
    }

    /// Notes that a session with this many slots is forgotten.
    pub(super) fn drop_session(&mut self, source: Source, slots: usize) {
        self.change_held(source, Held { sessions: 1, slots, bytes: 0 }, Held::default());
    }

    #[cold]
    fn change_held(&mut self, source: Source, fewer: Held, more: Held) {
        if !self.sources.contains_key(&source) {
            let is_entitled = self.has_shown_right(source);
            self.sources.insert(source, OfSource { is_entitled, ..OfSource::default() });
        }
        let Some(of_source) = self.sources.get_mut(&source) else { return };
        let totals = [
            Some(&mut self.budget.of_all),
            Some(&mut self.budget.of_entitled).filter(|_| of_source.is_entitled),
        ];
        for held in totals.into_iter().flatten().chain([&mut of_source.held]) {
            *held += more;
            *held -= fewer;
        }
        // Requests that are incomplete have a session.
        if of_source.held == Held::default() {
            self.sources.remove(&source);
        }
    }

    // --- bytes of requests ---

    /// Notes that a request of this address takes `more` bytes now, and `fewer` no longer.
    #[inline]
    pub(super) fn change_bytes(&mut self, source: Source, fewer: usize, more: usize) {
        // Those of small requests count in no share.
        let counted = |bytes: usize| if bytes < LARGE_BYTES_MIN { 0 } else { bytes };
        let held = |bytes| Held { bytes: counted(bytes), ..Held::default() };
        if counted(fewer) != counted(more) {
            self.change_held(source, held(fewer), held(more));
        }
    }

    /// Notes that the application has a request of this many bytes.
    pub(super) fn hand_over(&mut self, source: Source, bytes: usize) {
        self.budget.taken_bytes += bytes;
        self.change_bytes(source, 0, bytes);
    }

    /// Notes that the application has answered it.
    pub(super) fn take_back(&mut self, source: Source, bytes: usize) {
        self.budget.taken_bytes -= bytes;
        self.change_bytes(source, bytes, 0);
    }

    /// Counts what has come of a large request, and all of it as soon as it is wanted: an announcement takes nothing from the
    /// others. Slow ones give way to what is wanted, to the first window, whose beginning may show a right, and to
    /// addresses that have shown one. Returns false if there is no room for it even so.
    pub(super) fn count_part(&mut self, now: Time, common: &mut Common, id: SessionId, slot: u16) -> bool {
        let Some((source, receiving)) = self.receiving(id, slot) else { return true };
        let port = receiving.asked.port;
        let (counted, is_wanted) = (receiving.counted, receiving.is_let_on && receiving.incoming.has(0));
        // The application looks at the beginnings of long ones alone.
        let is_let_on_for_beginning = is_wanted && receiving.incoming.is_long();
        let may_be_wanted = is_wanted || receiving.incoming.has_first_window_alone();
        let counts = match is_wanted {
            true => receiving.incoming.total(),
            false => receiving.incoming.taken_bytes(),
        };
        let more = counts.saturating_sub(counted);
        if is_let_on_for_beginning && self.looks_at_beginnings(port) {
            // That has shown a right, and the rest may take longer than an address is entitled.
            self.entitle(now, port, source);
        }
        let has_room = more == 0
            || self.has_bytes_for(now, source, more)
            || (may_be_wanted || self.is_entitled(source))
                && self.makes_room(now, common, (source, counted), more);
        if has_room && let Some((_, receiving)) = self.receiving(id, slot) {
            receiving.counted = counts;
            self.budget.receiving_bytes += more;
            self.change_bytes(source, counted, counts);
        }
        has_room
    }

    fn receiving(&mut self, id: SessionId, slot: u16) -> Option<(Source, &mut Receiving)> {
        let session = self.sessions.get_mut(id)?;
        match &mut session.slots.get_mut(usize::from(slot))?.state {
            State::Receiving(receiving) => Some((session.source, receiving)),
            _ => None,
        }
    }

    /// True if large requests of this address may take this many more bytes.
    fn has_bytes_for(&self, now: Time, source: Source, more: usize) -> bool {
        let all = self.budget.receiving_bytes + self.budget.taken_bytes;
        all + more <= LARGE.most && self.has_share_of_bytes(now, source, more)
    }

    /// The same, if enough bytes were left.
    fn has_share_of_bytes(&self, now: Time, source: Source, more: usize) -> bool {
        let (own, all) = (self.bytes_of(source), self.budget.receiving_bytes + self.budget.taken_bytes);
        if self.is_entitled(source) {
            return LARGE.admits(self.budget.of_entitled.bytes, own, more);
        }
        // Whole requests do not give way, and those of strangers wait for long. So strangers have half.
        let entitled_ask = self.services.iter().any(|(_, service)| service.strangers.entitled_ask(now));
        let others = self.budget.of_all.bytes - self.budget.of_entitled.bytes;
        LARGE.admits(all, own, more) && (more == 0 || !entitled_ask || others + more <= LARGE.most / 2)
    }

    fn bytes_of(&self, source: Source) -> usize {
        self.sources.get(&source).map_or(0, |of_source| of_source.held.bytes)
    }

    /// Lets requests of other addresses give way until one of this address, for which some bytes count, may take as many more: all
    /// of those that are not entitled to one that is, and otherwise slow ones of addresses that have no less than this one has
    /// besides. Returns false if it may not even then.
    #[cold]
    fn makes_room(
        &mut self,
        now: Time,
        common: &mut Common,
        (source, counted): (Source, usize),
        more: usize,
    ) -> bool {
        let own = self.bytes_of(source).saturating_sub(counted);
        let is_entitled = self.is_entitled(source);
        let gives_way = |server: &Server, kind: &Kind| match (is_entitled, server.is_entitled(kind.source)) {
            (true, false) => server.has_share_of_bytes(now, source, more),
            (false, true) => false,
            _ => kind.is_slow && server.bytes_of(kind.source) >= own,
        };
        let is_enough = |server: &Server| server.has_bytes_for(now, source, more);
        self.lets_give_way(now, common, source, (Wanted::Bytes, more), gives_way, is_enough)
    }

    // --- requests that are incomplete ---

    /// True if a large request may come from this address for this port, with this place, to be incomplete for a while.
    pub(super) fn has_room_for(&self, now: Time, at: (Port, Place), source: Source) -> bool {
        self.has_bytes_for(now, source, 0) && self.has_place_beside(at, source, 0)
    }

    /// True if one more request of this address for this port, with this place, may be incomplete as soon as `fewer` of others are.
    fn has_place_beside(&self, (port, place): (Port, Place), source: Source, fewer: usize) -> bool {
        let Some(service) = self.services.get(port) else { return false };
        let own = self.incomplete_of(source);
        let places = service.places_for_incomplete();
        service.incomplete.saturating_sub(fewer) < places.most
            && (place != Place::OfStranger || service.has_room_for_stranger(source, fewer))
            && places.admits(self.incomplete_like(service, source).saturating_sub(fewer), own, 1)
    }

    /// Returns the number of incomplete requests by which one of this address is judged.
    fn incomplete_like(&self, service: &super::Service, source: Source) -> usize {
        match self.is_entitled(source) {
            true => service.incomplete_of_entitled,
            false => service.incomplete,
        }
    }

    fn incomplete_of(&self, source: Source) -> usize {
        self.sources.get(&source).map_or(0, |of_source| of_source.incomplete)
    }

    /// Lets the slowest incomplete request for this port, of another address with more of them or of one that is not entitled, give
    /// way to a large request of this address, which lacks one beside them. Returns true if it has one now.
    #[cold]
    pub(super) fn makes_place(
        &mut self,
        now: Time,
        common: &mut Common,
        (port, place): (Port, Place),
        source: Source,
    ) -> bool {
        if !self.has_bytes_for(now, source, 0) || !self.has_place_beside((port, place), source, 1) {
            return false;
        }
        let Some(service) = self.services.get(port) else { return false };
        let is_among_strangers = place == Place::OfStranger && !service.has_room_for_stranger(source, 0);
        let is_entitled = self.is_entitled(source);
        let incomplete_of = |server: &Server, source| match server.services.get(port) {
            Some(service) if is_among_strangers => service.strangers.incomplete_of(source),
            _ => server.incomplete_of(source),
        };
        let own = incomplete_of(self, source);
        let has_share = service.places_for_incomplete().admits(
            self.incomplete_like(service, source),
            self.incomplete_of(source),
            1,
        );
        let gives_way = |server: &Server, kind: &Kind| {
            // Of its requests that are not slow, an address gives up to one like it only what it has more than that will have.
            let least = if kind.is_slow || is_entitled { own } else { own + 1 };
            kind.port == port
                && (kind.is_among_strangers || !is_among_strangers)
                && match (is_entitled, server.is_entitled(kind.source)) {
                    (true, false) => has_share,
                    (false, true) => false,
                    _ => incomplete_of(server, kind.source) > least,
                }
        };
        let is_enough = |server: &Server| server.has_room_for(now, (port, place), source);
        self.lets_give_way(now, common, source, (Wanted::Place, 1), gives_way, is_enough)
    }

    /// Notes that a slot of this address has an incomplete request no longer, or has one now: each with the time by which the
    /// next part must come, and the service and the place that it has there.
    #[cold]
    pub(super) fn change_incomplete(
        &mut self,
        source: Source,
        (id, slot): (SessionId, u16),
        left: Option<(Time, (Port, Place))>,
        taken: Option<(Time, (Port, Place))>,
    ) {
        let Some(of_source) = self.sources.get_mut(&source) else { return };
        let of_entitled = usize::from(of_source.is_entitled);
        if let Some((until, (port, place))) = left {
            of_source.incomplete -= 1;
            self.incomplete.remove(&(until, id, slot));
            if let Some(service) = self.services.get_mut(port) {
                service.incomplete -= 1;
                service.incomplete_of_entitled -= of_entitled;
                service.strangers.release_incomplete(source, place);
            }
        }
        if let Some((until, (port, place))) = taken {
            of_source.incomplete += 1;
            self.incomplete.insert((until, id, slot));
            if let Some(service) = self.services.get_mut(port) {
                service.incomplete += 1;
                service.incomplete_of_entitled += of_entitled;
                service.strangers.take_incomplete(source, place);
            }
        }
    }
}

impl super::Service {
    /// The places for requests of which parts are missing: whole ones have the others in any case, and those drain.
    fn places_for_incomplete(&self) -> Bound {
        Bound { most: (self.options.places() / 2).max(1), part: 4 }
    }
}

//! Which addresses a service knows to have shown a right, and how little it takes of the others while those ask: the others are
//! *strangers* then. docs/protocol/rpc.md says why, under *Shares*.

use super::budget::Place;
use crate::rpc::lately::Lately;
use crate::rpc::work::WorkBudget;
use crate::shares::{Bound, Counts, Source};
use crate::time::Time;
use core::time::Duration;

/// An address is entitled for a minute, or up to twice as long, after a request of it showed a right.
const ENTITLED_FOR: Duration = Duration::from_secs(60);
/// For this long after a request of an entitled address all others are strangers.
const ENTITLED_ASK_WITHIN: Duration = Duration::from_secs(1);

/// What a service knows of an address that asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asker {
    /// It has lately shown a right.
    Entitled,
    /// It has not, and none asks that has.
    Newcomer,
    /// It has not, while others ask that have.
    Stranger,
}

#[derive(Debug)]
pub(super) struct Strangers {
    /// Addresses whose requests have lately shown a right: they got a reply, and no denial, or were let on for their beginnings.
    entitled: Lately,
    /// When one of them asked last, or was answered.
    entitled_at: Option<Time>,
    /// Limits the requests of strangers that are taken a second.
    budget: WorkBudget,
    /// Number of requests of strangers that have a place, and of each address.
    pending: usize,
    of_sources: Counts<Source>,
    /// How many of them are incomplete, and of each address.
    incomplete: usize,
    incomplete_of: Counts<Source>,
}

impl Default for Strangers {
    fn default() -> Strangers {
        Strangers {
            entitled: Lately::new(Time::ZERO, ENTITLED_FOR),
            entitled_at: None,
            budget: WorkBudget::new(Time::ZERO),
            pending: 0,
            of_sources: Counts::default(),
            incomplete: 0,
            incomplete_of: Counts::default(),
        }
    }
}

impl Strangers {
    /// Notes that a request of this address has shown a right. Returns true if that may be news.
    #[inline]
    pub(super) fn entitle(&mut self, now: Time, source: Source) -> bool {
        self.entitled_at = Some(now);
        self.entitled.add(now, source)
    }

    /// Returns what is known of this address, which asks now.
    #[inline]
    pub(super) fn ask(&mut self, now: Time, source: Source) -> Asker {
        if self.entitled.has(now, source) {
            self.entitled_at = Some(now);
            return Asker::Entitled;
        }
        if self.entitled_ask(now) { Asker::Stranger } else { Asker::Newcomer }
    }

    /// True if this address has shown a right lately, and not too long ago.
    pub(super) fn is_entitled_still(&mut self, now: Time, source: Source) -> bool {
        self.entitled.has(now, source)
    }

    /// True if this address has lately shown a right.
    pub(super) fn is_entitled(&self, source: Source) -> bool {
        self.entitled.has_noted(source)
    }

    /// True if an address that has shown a right asks now, or asked within a second.
    #[inline]
    pub(super) fn entitled_ask(&self, now: Time) -> bool {
        self.entitled_at.is_some_and(|at| now.since(at) < ENTITLED_ASK_WITHIN)
    }

    /// True if one more request of this stranger may be incomplete as soon as `fewer` of others are, at a service with this many
    /// places: those have half of the strangers' places at most, so that whole ones find some.
    pub(super) fn has_room_for_incomplete(&self, source: Source, places: usize, fewer: usize) -> bool {
        let bound = Bound { most: places.div_ceil(4), part: 4 };
        bound.admits(self.incomplete.saturating_sub(fewer), self.incomplete_of(source), 1)
    }

    /// Returns how many incomplete requests of this address have a place for strangers.
    pub(super) fn incomplete_of(&self, source: Source) -> usize {
        self.incomplete_of.get(&source)
    }

    /// Notes that a request of this address with this place is incomplete.
    pub(super) fn take_incomplete(&mut self, source: Source, place: Place) {
        if place == Place::OfStranger {
            self.incomplete += 1;
            self.incomplete_of.add(source, 1);
        }
    }

    /// Notes that it is no longer.
    pub(super) fn release_incomplete(&mut self, source: Source, place: Place) {
        if place == Place::OfStranger {
            self.incomplete = self.incomplete.saturating_sub(1);
            self.incomplete_of.subtract(source, 1);
        }
    }

    /// True if one more request of this stranger is taken, at a service with this many places for requests of all. Strangers have
    /// half of these at most: while the application stands still, the others find room.
    #[cold]
    pub(super) fn admits(&mut self, now: Time, source: Source, places: usize) -> bool {
        let bound = Bound { most: places.div_ceil(2), part: 4 };
        bound.admits(self.pending, self.of_sources.get(&source), 1) && self.budget.spend(now, source, false)
    }

    #[cold]
    pub(super) fn take_place(&mut self, source: Source) {
        self.pending += 1;
        self.of_sources.add(source, 1);
    }

    #[cold]
    pub(super) fn release_place(&mut self, source: Source) {
        self.pending = self.pending.saturating_sub(1);
        self.of_sources.subtract(source, 1);
    }
}

//! Requests whose outcome belongs to a handler, and whose holder does not answer: they wait for the next one.
//!
//! A client says how often its request was forwarded, so it decides itself whether the request waits here. So a source address has
//! a share of the places, and no request waits for longer than a few seconds.

use super::Outcome;
use super::waiting::Asked;
use crate::identity::Uid;
use crate::rpc::Source;
use crate::shares::{Bound, Counts};
use crate::time::Time;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// How many requests wait at one member, and the share of a source address.
const PARKED: Bound = Bound { most: 1024, part: 4 };

#[derive(Debug, Default)]
pub(super) struct ParkedRequests {
    /// By the time until which they wait, and the order in which they came.
    waiting: BTreeMap<(Time, u64), Parked>,
    taken: u64,
    of_sources: Counts<Source>,
}

#[derive(Debug)]
pub(super) struct Parked {
    pub(super) asked: Asked,
    pub(super) handler: Box<str>,
    pub(super) outcome: Outcome,
    pub(super) held_by: Uid,
}

impl ParkedRequests {
    /// Returns the time until which the first one waits.
    pub(super) fn wake_at(&self) -> Option<Time> {
        self.waiting.first_key_value().map(|((until, _), _)| *until)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn has_room_for(&self, source: Source) -> bool {
        PARKED.admits(self.waiting.len(), self.of_sources.get(&source), 1)
    }

    /// Has a request wait for another holder, for which [there is room](ParkedRequests::has_room_for), until this time at most.
    pub(super) fn add(&mut self, until: Time, parked: Parked) {
        self.taken += 1;
        self.of_sources.add(parked.asked.source, 1);
        self.waiting.insert((until, self.taken), parked);
    }

    /// Takes out one that has waited long enough.
    pub(super) fn take_overdue(&mut self, now: Time) -> Option<Parked> {
        let (_, parked) = self.waiting.first_entry().filter(|first| first.key().0 <= now)?.remove_entry();
        self.of_sources.subtract(parked.asked.source, 1);
        Some(parked)
    }

    /// Takes out those whose handler has another holder now.
    pub(super) fn take_of_others(&mut self, holder: impl Fn(&str) -> Option<Uid>) -> Vec<Parked> {
        let of_others = |parked: &Parked| holder(&parked.handler) != Some(parked.held_by);
        let taken = self.waiting.extract_if(.., |_, parked| of_others(parked));
        let taken: Vec<_> = taken.map(|(_, parked)| parked).collect();
        taken.iter().for_each(|parked| self.of_sources.subtract(parked.asked.source, 1));
        taken
    }

    /// Takes out all.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Parked> + use<> {
        core::mem::take(self).waiting.into_values()
    }
}

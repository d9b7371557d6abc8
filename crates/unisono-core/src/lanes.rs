//! Requests that wait for the application, in a lane for each source address.
//!
//! The lanes take turns, so what one address sends waits behind its own, and an address that sends little waits for at most
//! one request of each other address. Within a lane the first that came goes first.
//!
//! Where some requests cost far more than others, a cheap one goes first ([`CheapFirst`]): it waits for one costly request
//! for every eight cheap ones before it, however many addresses send such.

use crate::shares::Source;
use alloc::collections::{BTreeMap, VecDeque};

/// The lanes. See the module.
#[derive(Debug)]
pub(crate) struct Lanes<T> {
    lanes: BTreeMap<Source, VecDeque<T>>,
    /// The lanes that are not empty, that whose turn is next first.
    turns: VecDeque<Source>,
    len: usize,
}

impl<T> Default for Lanes<T> {
    fn default() -> Lanes<T> {
        Lanes { lanes: BTreeMap::new(), turns: VecDeque::new(), len: 0 }
    }
}

impl<T> Lanes<T> {
    /// Returns the number of requests that wait.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the number of requests of this address.
    pub(crate) fn len_of(&self, source: Source) -> usize {
        self.lanes.get(&source).map_or(0, VecDeque::len)
    }

    pub(crate) fn push(&mut self, source: Source, request: T) {
        let lane = self.lanes.entry(source).or_default();
        if lane.is_empty() {
            self.turns.push_back(source);
        }
        lane.push_back(request);
        self.len += 1;
    }

    /// Removes the first request of the lane whose turn it is.
    pub(crate) fn pop(&mut self) -> Option<T> {
        let source = self.turns.pop_front()?;
        let lane = self.lanes.get_mut(&source)?;
        let request = lane.pop_front();
        self.len -= usize::from(request.is_some());
        if !lane.is_empty() {
            self.turns.push_back(source);
        } else if self.lanes.len() > 1 {
            // The last lane is kept: most servers have the calls of one address, one after the other.
            self.lanes.remove(&source);
        }
        request
    }

    /// Returns the first request of this address.
    pub(crate) fn front(&self, source: Source) -> Option<&T> {
        self.lanes.get(&source)?.front()
    }

    /// Returns the address whose turn it is.
    pub(crate) fn next_source(&self) -> Option<Source> {
        self.turns.front().copied()
    }

    /// Removes the first request of this address.
    pub(crate) fn drop_front(&mut self, source: Source) {
        let Some(lane) = self.lanes.get_mut(&source) else { return };
        self.len -= usize::from(lane.pop_front().is_some());
        if lane.is_empty() {
            self.turns.retain(|known| *known != source);
            self.lanes.remove(&source);
        }
    }

    /// Keeps the requests of which `keeps` is true.
    pub(crate) fn retain(&mut self, mut keeps: impl FnMut(&T) -> bool) {
        self.lanes.retain(|_, lane| {
            lane.retain(&mut keeps);
            !lane.is_empty()
        });
        self.len = self.lanes.values().map(VecDeque::len).sum();
        let lanes = &self.lanes;
        self.turns.retain(|source| lanes.contains_key(source));
    }
}

/// Cost of the costliest request that counts as cheap, a tenth of a millisecond ([`StateMachine::cost`]).
///
/// [`StateMachine::cost`]: crate::replica::StateMachine::cost
const CHEAP_MAX: u32 = 10;
/// Number of turns of cheap requests after which a costly one has its turn.
const CHEAP_IN_A_ROW: u32 = 8;

/// True if a request of this cost waits for its turn while cheap ones come.
pub(crate) fn is_costly(cost: u32) -> bool {
    cost > CHEAP_MAX
}

/// Lanes for cheap requests and lanes for costly ones, which have their turn while no cheap one waits, and every ninth.
#[derive(Debug)]
pub(crate) struct CheapFirst<T> {
    cheap: Lanes<T>,
    costly: Lanes<T>,
    /// Number of turns of cheap requests since the last one of a costly request.
    cheap_in_a_row: u32,
}

impl<T> Default for CheapFirst<T> {
    fn default() -> CheapFirst<T> {
        CheapFirst { cheap: Lanes::default(), costly: Lanes::default(), cheap_in_a_row: 0 }
    }
}

impl<T> CheapFirst<T> {
    /// Returns the number of requests that wait.
    pub(crate) fn len(&self) -> usize {
        self.cheap.len() + self.costly.len()
    }

    /// Adds a request of this cost.
    pub(crate) fn push(&mut self, source: Source, request: T, cost: u32) {
        let lanes = if is_costly(cost) { &mut self.costly } else { &mut self.cheap };
        lanes.push(source, request);
    }

    /// Removes the first request of the lane whose turn it is.
    pub(crate) fn pop(&mut self) -> Option<T> {
        let is_due = self.cheap.len() == 0 || self.cheap_in_a_row >= CHEAP_IN_A_ROW;
        if is_due && let Some(costly) = self.costly.pop() {
            self.cheap_in_a_row = 0;
            return Some(costly);
        }
        let cheap = self.cheap.pop()?;
        self.cheap_in_a_row = self.cheap_in_a_row.saturating_add(1);
        Some(cheap)
    }

    /// Removes the first cheap request of the lane whose turn it is.
    pub(crate) fn pop_cheap(&mut self) -> Option<T> {
        self.cheap.pop()
    }

    /// Keeps the requests of which `keeps` is true.
    pub(crate) fn retain(&mut self, mut keeps: impl FnMut(&T) -> bool) {
        self.cheap.retain(&mut keeps);
        self.costly.retain(keeps);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn lanes(requests: &[(u8, u32)]) -> Lanes<u32> {
        let mut lanes = Lanes::default();
        requests.iter().for_each(|(host, request)| lanes.push(Source::of_host(*host), *request));
        lanes
    }

    fn drained(mut lanes: Lanes<u32>) -> Vec<u32> {
        let requests = core::iter::from_fn(|| lanes.pop()).collect();
        assert_eq!((lanes.len(), lanes.next_source()), (0, None));
        requests
    }

    #[test]
    fn the_addresses_take_turns_and_each_goes_in_its_order() {
        let waiting = lanes(&[(1, 10), (1, 11), (1, 12), (2, 20), (3, 30), (3, 31)]);
        assert_eq!(
            (waiting.len(), waiting.len_of(Source::of_host(1)), waiting.len_of(Source::of_host(9))),
            (6, 3, 0)
        );
        assert_eq!(drained(waiting), [10, 20, 30, 11, 31, 12]);
    }

    #[test]
    fn an_address_that_comes_late_waits_for_one_of_each_other() {
        let mut lanes = lanes(&[(1, 10), (1, 11), (1, 12)]);
        assert_eq!(lanes.pop(), Some(10));
        lanes.push(Source::of_host(2), 20);
        assert_eq!(
            (lanes.pop(), lanes.pop(), lanes.pop(), lanes.pop()),
            (Some(11), Some(20), Some(12), None)
        );
        lanes.push(Source::of_host(2), 21);
        assert_eq!((lanes.pop(), lanes.len()), (Some(21), 0));
    }

    #[test]
    fn what_is_dropped_takes_no_turn() {
        let mut waiting = lanes(&[(1, 10), (2, 20), (2, 21), (3, 30)]);
        waiting.drop_front(Source::of_host(1));
        waiting.drop_front(Source::of_host(2));
        assert_eq!((waiting.front(Source::of_host(1)), waiting.front(Source::of_host(2))), (None, Some(&21)));
        assert_eq!((waiting.len(), waiting.next_source()), (2, Some(Source::of_host(2))));
        assert_eq!(drained(waiting), [21, 30]);
        let mut waiting = lanes(&[(1, 10), (2, 20), (1, 11), (3, 30)]);
        waiting.retain(|request| request % 10 != 0);
        assert_eq!(waiting.len(), 1);
        assert_eq!(drained(waiting), [11]);
    }

    #[test]
    fn a_cheap_request_goes_before_costly_ones_and_starves_none() {
        let mut lanes = CheapFirst::default();
        (1..=200).for_each(|host| lanes.push(Source::of_host(host), u32::from(host), 11));
        assert_eq!(lanes.pop(), Some(1));
        (0..20).for_each(|number| lanes.push(Source::of_host(201), 300 + number, 10));
        let next: Vec<u32> = core::iter::from_fn(|| lanes.pop()).take(20).collect();
        let expected = (300..308).chain([2]).chain(308..316).chain([3]).chain([316, 317]);
        assert_eq!(next, expected.collect::<Vec<u32>>());
        lanes.retain(|request| *request > 198);
        assert_eq!((lanes.len(), lanes.pop()), (4, Some(318)));
    }
}

//! Requests that wait for the application, in a lane for each source address.
//!
//! The lanes take turns, so what one address sends waits behind its own, and an address that sends little waits for at most
//! one request of each other address. Within a lane the first that came goes first.
//!
//! Where some requests cost far more than others, a cheap one goes first, and where some addresses have shown a right, so do their
//! requests ([`FavouredFirst`]): one waits for one of the others for every eight favoured ones before it, however many addresses
//! send such.

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
/// Number of turns of favoured requests after which another one has its turn.
const FAVOURED_IN_A_ROW: u32 = 8;

/// True if a request of this cost waits for its turn while cheap ones come.
pub(crate) fn is_costly(cost: u32) -> bool {
    cost > CHEAP_MAX
}

/// Lanes for favoured requests and lanes for the others, which have their turn while no favoured one waits, and every ninth.
#[derive(Debug)]
pub(crate) struct FavouredFirst<T> {
    favoured: Lanes<T>,
    others: Lanes<T>,
    /// Number of turns of favoured requests since the last one of another, and what it was before the last turn.
    favoured_in_a_row: u32,
    before: u32,
}

impl<T> Default for FavouredFirst<T> {
    fn default() -> FavouredFirst<T> {
        FavouredFirst {
            favoured: Lanes::default(),
            others: Lanes::default(),
            favoured_in_a_row: 0,
            before: 0,
        }
    }
}

impl<T> FavouredFirst<T> {
    /// Returns the number of requests that wait.
    pub(crate) fn len(&self) -> usize {
        self.favoured.len() + self.others.len()
    }

    pub(crate) fn push(&mut self, source: Source, request: T, is_favoured: bool) {
        let lanes = if is_favoured { &mut self.favoured } else { &mut self.others };
        lanes.push(source, request);
    }

    /// Removes the first request of the lane whose turn it is.
    pub(crate) fn pop(&mut self) -> Option<T> {
        let is_due = self.favoured.len() == 0 || self.favoured_in_a_row >= FAVOURED_IN_A_ROW;
        if is_due && let Some(other) = self.others.pop() {
            (self.before, self.favoured_in_a_row) = (self.favoured_in_a_row, 0);
            return Some(other);
        }
        self.pop_favoured()
    }

    /// Removes the first favoured request of the lane whose turn it is.
    pub(crate) fn pop_favoured(&mut self) -> Option<T> {
        let favoured = self.favoured.pop()?;
        self.before = self.favoured_in_a_row;
        self.favoured_in_a_row = self.favoured_in_a_row.saturating_add(1);
        Some(favoured)
    }

    /// Notes that the request that was removed last is over: it had no turn.
    pub(crate) fn take_back_turn(&mut self) {
        self.favoured_in_a_row = self.before;
    }

    /// Returns the first request of this address: a favoured one, if it has one.
    pub(crate) fn front(&self, source: Source) -> Option<&T> {
        self.favoured.front(source).or_else(|| self.others.front(source))
    }

    /// Removes the request that [`FavouredFirst::front`] returns.
    pub(crate) fn drop_front(&mut self, source: Source) {
        let lanes = if self.favoured.front(source).is_some() { &mut self.favoured } else { &mut self.others };
        lanes.drop_front(source);
    }

    /// Returns the address whose turn it is, among those that are not favoured if they have any request.
    pub(crate) fn next_source(&self) -> Option<Source> {
        self.others.next_source().or_else(|| self.favoured.next_source())
    }

    /// Keeps the requests of which `keeps` is true.
    pub(crate) fn retain(&mut self, mut keeps: impl FnMut(&T) -> bool) {
        self.favoured.retain(&mut keeps);
        self.others.retain(keeps);
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
    fn a_favoured_request_goes_before_others_and_starves_none() {
        let mut lanes = FavouredFirst::default();
        (1..=200).for_each(|host| lanes.push(Source::of_host(host), u32::from(host), false));
        assert_eq!(lanes.pop(), Some(1));
        (0..20).for_each(|number| lanes.push(Source::of_host(201), 300 + number, true));
        let next: Vec<u32> = core::iter::from_fn(|| lanes.pop()).take(20).collect();
        let expected = (300..308).chain([2]).chain(308..316).chain([3]).chain([316, 317]);
        assert_eq!(next, expected.collect::<Vec<u32>>());
        // Favoured requests that are taken apart have turns too; one that is over has none.
        let expected: Vec<u32> = (318..320).collect();
        assert_eq!([lanes.pop_favoured(), lanes.pop_favoured()].map(Option::unwrap).as_slice(), expected);
        (0..20).for_each(|number| lanes.push(Source::of_host(201), 320 + number, true));
        assert_eq!([lanes.pop(), lanes.pop(), lanes.pop(), lanes.pop()], [320, 321, 322, 323].map(Some));
        assert_eq!(lanes.pop(), Some(4));
        lanes.take_back_turn();
        assert_eq!((lanes.pop(), lanes.pop()), (Some(5), Some(324)));
        lanes.retain(|request| *request > 198 && *request < 326);
        assert_eq!((lanes.len(), lanes.pop()), (3, Some(325)));
    }

    #[test]
    fn of_an_address_with_both_the_favoured_request_is_the_first() {
        let (mut lanes, one) = (FavouredFirst::default(), Source::of_host(1));
        lanes.push(one, 10, false);
        lanes.push(one, 11, true);
        assert_eq!((lanes.front(one), lanes.next_source()), (Some(&11), Some(one)));
        lanes.drop_front(one);
        assert_eq!((lanes.front(one), lanes.len()), (Some(&10), 1));
        assert_eq!(lanes.pop_favoured(), None);
        lanes.drop_front(one);
        assert_eq!((lanes.len(), lanes.next_source(), lanes.pop()), (0, None, None));
    }
}

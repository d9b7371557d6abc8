//! Slow requests: large ones of which parts are missing and few bytes have come in each second. They give way, the slowest first,
//! to a request of another address for which there is no room. Those of addresses that have shown no right are listed with them,
//! whatever their pace: they give way to addresses that have, and those of one that has many to others.
//!
//! A client may have thousands of them, and each large request of others may ask for room. So they are listed only now and
//! then: in between, requests give way in the order of the list.

use super::Server;
use super::budget::Place;
use super::session::State;
use super::sessions::SessionId;
use crate::identity::Port;
use crate::rpc::common::Common;
use crate::shares::Source;
use crate::time::Time;
use crate::wire::Rejection;
use alloc::collections::{BTreeMap, BinaryHeap};
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::time::Duration;

/// Interval between two listings.
const LIST_SLOW_EVERY: Duration = Duration::from_millis(50);
/// Interval between two searches of an address for a slow request of others that found none.
const LOOK_FOR_SLOW_EVERY: Duration = Duration::from_millis(100);

/// What a slow request gives up to another.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wanted {
    Bytes,
    Place,
}

/// A slow request: bytes per second, session and slot.
type Request = (u64, SessionId, u16);

/// What requests have in common that give way or not together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Kind {
    pub(super) source: Source,
    pub(super) port: Port,
    /// They are slow. Otherwise their address has shown no right.
    pub(super) is_slow: bool,
    /// They have places of strangers, and their address is not entitled since.
    pub(super) is_among_strangers: bool,
}

/// The slow requests of one kind.
#[derive(Debug)]
struct OfKind {
    kind: Kind,
    /// Those of the last listing that have not given way, the slowest last.
    requests: Vec<Request>,
}

/// The slow requests of all clients, by kind.
#[derive(Debug, Default)]
pub(super) struct Slow {
    listed_at: Option<Time>,
    listed: Vec<OfKind>,
}

impl Slow {
    fn of(now: Time, requests: impl Iterator<Item = (Kind, Request)>) -> Slow {
        let mut of_kinds: BTreeMap<Kind, Vec<Request>> = BTreeMap::new();
        for (kind, request) in requests {
            of_kinds.entry(kind).or_default().push(request);
        }
        let with_slowest_last = |(kind, mut requests): (_, Vec<Request>)| {
            requests.sort_unstable_by_key(|request| Reverse(*request));
            OfKind { kind, requests }
        };
        Slow { listed_at: Some(now), listed: of_kinds.into_iter().map(with_slowest_last).collect() }
    }

    /// Returns the order in which the requests of these kinds give way: those of a lower rank first, the slowest first of each.
    fn order(&self, rank: impl Fn(&Kind) -> Option<u8>) -> Order {
        let ranked = self.listed.iter().enumerate();
        let firsts =
            ranked.filter_map(|(index, of)| Some(Reverse((rank(&of.kind)?, *of.requests.last()?, index))));
        Order(firsts.collect())
    }

    /// Takes the next request of this order, if `may_give_way` is true of its kind still.
    fn take(&mut self, order: &mut Order, may_give_way: impl Fn(&Kind) -> bool) -> Option<(Kind, Request)> {
        loop {
            let Reverse((rank, request, index)) = order.0.pop()?;
            let of = self.listed.get_mut(index).filter(|of| may_give_way(&of.kind));
            let Some(of) = of else { continue };
            of.requests.pop();
            order.0.extend(of.requests.last().map(|next| Reverse((rank, *next, index))));
            return Some((of.kind, request));
        }
    }
}

/// The first request of each kind, with the rank and the place of its kind.
struct Order(BinaryHeap<Reverse<(u8, Request, usize)>>);

impl Server {
    /// Lets requests of other addresses give way to one of this address, until there `is_enough`: those of the kinds of which
    /// `may_be` is true, of addresses that are not entitled first, and the slowest first. Returns false if there is not enough
    /// even then.
    pub(super) fn lets_give_way(
        &mut self,
        now: Time,
        common: &mut Common,
        source: Source,
        (wanted, amount): (Wanted, usize),
        may_be: impl Fn(&Server, &Kind) -> bool,
        is_enough: impl Fn(&Server) -> bool,
    ) -> bool {
        let too_few = self.sources.get(&source).map(|own| own.too_few_give_way[wanted as usize]);
        if too_few.is_none_or(|(at, before)| amount >= before && now.since(at) < LOOK_FOR_SLOW_EVERY) {
            return false;
        }
        self.list_slow(now);
        let mut slow = core::mem::take(&mut self.slow);
        let mut order = slow.order(|kind| {
            let may_be = kind.source != source && may_be(self, kind);
            may_be.then(|| u8::from(self.is_entitled(kind.source)))
        });
        while !is_enough(self)
            && let Some((kind, (_, id, slot))) = slow.take(&mut order, |kind| may_be(self, kind))
        {
            if self.is_still(now, &kind, id, slot) {
                common.counters.rejected += 1;
                self.settle(id, slot, State::Rejected(Rejection::Busy));
            }
        }
        self.slow = slow;
        let is_enough = is_enough(self);
        if !is_enough && let Some(of_source) = self.sources.get_mut(&source) {
            of_source.too_few_give_way[wanted as usize] = (now, amount);
        }
        is_enough
    }

    /// True if the request in this slot is of this kind: the slot may have another one since it was listed.
    fn is_still(&self, now: Time, kind: &Kind, id: SessionId, slot: u16) -> bool {
        self.slow_request(now, id, slot).is_some_and(|(_, is)| {
            is.port == kind.port
                && is.is_among_strangers == kind.is_among_strangers
                && (is.is_slow || !kind.is_slow)
        })
    }

    fn list_slow(&mut self, now: Time) {
        if self.slow.listed_at.is_some_and(|at| now.since(at) < LIST_SLOW_EVERY) {
            return;
        }
        let listed = self.incomplete.iter().filter_map(|&(_, id, slot)| {
            let (pace, kind) = self.slow_request(now, id, slot)?;
            Some((kind, (pace, id, slot)))
        });
        self.slow = Slow::of(now, listed);
    }

    /// Returns the pace of the request in this slot, and its kind, if it is slow or its address has shown no right.
    fn slow_request(&self, now: Time, id: SessionId, slot: u16) -> Option<(u64, Kind)> {
        let session = self.sessions.get(id)?;
        let State::Receiving(receiving) = &session.slots.get(usize::from(slot))?.state else { return None };
        let (port, source) = (receiving.asked.port, session.source);
        let strangers = &self.services.get(port)?.strangers;
        let slow_pace = receiving.slow_pace(now);
        let pace = slow_pace.or_else(|| (!strangers.is_entitled(source)).then(|| receiving.pace(now)))?;
        let is_among_strangers = receiving.asked.place == Place::OfStranger && !strangers.is_entitled(source);
        Some((pace, Kind { source, port, is_slow: slow_pace.is_some(), is_among_strangers }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The slow requests of `clients`, each with its host, its port and its pace.
    fn listed(clients: impl IntoIterator<Item = (u8, u128, u64)>) -> Slow {
        let requests = clients.into_iter().enumerate().map(|(client, (host, port, pace))| {
            let (source, port) = (Source::of_host(host), Port(port));
            let kind = Kind { source, port, is_slow: true, is_among_strangers: false };
            (kind, (pace, SessionId::of_client(client as u64), 0))
        });
        Slow::of(Time::ZERO, requests)
    }

    /// Returns the clients whose requests give way if `may_give_way` is true of their kinds, in their order.
    fn give_way(slow: &mut Slow, may_give_way: impl Fn(&Kind) -> bool) -> Vec<u64> {
        let mut order =
            slow.order(|kind| may_give_way(kind).then(|| u8::from(kind.source == Source::of_host(4))));
        core::iter::from_fn(|| slow.take(&mut order, &may_give_way))
            .map(|(_, (_, id, _))| id.client.0)
            .collect()
    }

    #[test]
    fn the_slowest_of_the_lowest_rank_gives_way_first() {
        let mut slow = listed([(1, 7, 30), (2, 7, 10), (4, 7, 1), (1, 7, 20), (2, 7, 40), (3, 7, 5)]);
        let may_give_way = |kind: &Kind| kind.source != Source::of_host(3);
        assert_eq!(give_way(&mut slow, may_give_way), [1, 3, 0, 4, 2]);
        assert_eq!(give_way(&mut slow, |_| true), [5], "the others have given way");
    }

    #[test]
    fn a_kind_of_which_it_is_true_no_longer_gives_no_more_way() {
        let mut slow = listed([(1, 7, 1), (1, 7, 2), (2, 7, 3), (2, 7, 4)]);
        let mut order = slow.order(|_| Some(0));
        let mut next = |not: u8| {
            slow.take(&mut order, |kind| kind.source != Source::of_host(not)).map(|(_, (pace, ..))| pace)
        };
        assert_eq!([next(0), next(1), next(1), next(1)], [Some(1), Some(3), Some(4), None]);
    }

    #[test]
    fn many_requests_that_may_not_give_way_shelter_no_others() {
        let sheltering = (3..250).flat_map(|host| (0..4).map(move |pace| (host, 7, pace)));
        let mut slow = listed(sheltering.chain([(2, 8, 5000), (2, 7, 6000)]));
        let may_give_way = |kind: &Kind| kind.source == Source::of_host(2) && kind.port == Port(7);
        assert_eq!(give_way(&mut slow, may_give_way), [989]);
    }
}

//! Slow requests: large ones of which parts are missing and few bytes have come in each second. They give way, the slowest first,
//! to a request of another address for which there is no room. Those of strangers are listed with them, whatever their pace: they
//! give way to addresses that have shown a right, and those of a stranger that has many to other strangers.
//!
//! A client may have thousands of them, and each large request of others may ask for room. So they are listed only now and
//! then: in between, requests give way in the order of the list.

use super::Server;
use super::budget::Place;
use super::session::State;
use super::sessions::SessionId;
use crate::identity::Port;
use crate::shares::Source;
use crate::time::Time;
use alloc::collections::BTreeMap;
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
    /// They are slow. Otherwise they are of a stranger.
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

    /// Takes the slowest request of the kinds that `may_give_way`, and that `is_still` of its kind.
    fn take(
        &mut self,
        may_give_way: impl Fn(&Kind) -> bool,
        is_still: impl Fn(&Kind, Request) -> bool,
    ) -> Option<(SessionId, u16)> {
        let slowest_of = |of: &mut OfKind| {
            while of.requests.pop_if(|request| !is_still(&of.kind, *request)).is_some() {}
            of.requests.last().copied()
        };
        let those = self.listed.iter_mut().filter(|of| may_give_way(&of.kind));
        let slowest = those.filter_map(|of| Some((slowest_of(of)?, of))).min_by_key(|(slowest, _)| *slowest);
        let (_, id, slot) = slowest?.1.requests.pop()?;
        Some((id, slot))
    }
}

impl Server {
    /// Returns the slowest request of the kinds of other addresses of which `may_be` is true, to give way now.
    pub(super) fn slowest(
        &mut self,
        now: Time,
        source: Source,
        wanted: Wanted,
        may_be: impl Fn(&Server, &Kind) -> bool,
    ) -> Option<(SessionId, u16)> {
        let none_gives_way =
            |server: &Server| Some(server.sources.get(&source)?.none_gives_way[wanted as usize]);
        if now.since(none_gives_way(self)?) < LOOK_FOR_SLOW_EVERY {
            return None;
        }
        self.list_slow(now);
        let mut slow = core::mem::take(&mut self.slow);
        let slowest = slow.take(
            |kind| kind.source != source && may_be(self, kind),
            |kind, (_, id, slot)| {
                // The slot may have another request since it was listed.
                self.slow_request(now, id, slot).is_some_and(|(_, is)| {
                    is.port == kind.port
                        && is.is_among_strangers == kind.is_among_strangers
                        && (is.is_slow || !kind.is_slow)
                })
            },
        );
        self.slow = slow;
        if slowest.is_none()
            && let Some(of_source) = self.sources.get_mut(&source)
        {
            of_source.none_gives_way[wanted as usize] = now;
        }
        slowest
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

    /// Returns the pace of the request in this slot if it is slow or of a stranger, and its kind.
    fn slow_request(&self, now: Time, id: SessionId, slot: u16) -> Option<(u64, Kind)> {
        let session = self.sessions.get(id)?;
        let State::Receiving(receiving) = &session.slots.get(usize::from(slot))?.state else { return None };
        let (port, source) = (receiving.asked.port, session.source);
        let strangers = &self.services.get(port)?.strangers;
        let slow_pace = receiving.slow_pace(now);
        let pace = slow_pace.or_else(|| strangers.would_have(now, source).then(|| receiving.pace(now)))?;
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

    fn client(taken: Option<(SessionId, u16)>) -> Option<u64> {
        taken.map(|(id, _)| id.client.0)
    }

    #[test]
    fn the_slowest_gives_way_first_of_those_that_are_slow_still() {
        let mut slow = listed([(1, 7, 30), (2, 7, 10), (1, 7, 20), (2, 7, 40), (3, 7, 5)]);
        let mut next = |gone: u64| {
            let may_give_way = |kind: &Kind| kind.source != Source::of_host(3);
            client(slow.take(may_give_way, |_, (_, id, _)| id.client.0 != gone))
        };
        assert_eq!([next(9), next(9), next(0), next(0)], [Some(1), Some(2), Some(3), None]);
    }

    #[test]
    fn many_requests_that_may_not_give_way_shelter_no_others() {
        let sheltering = (3..250).flat_map(|host| (0..4).map(move |pace| (host, 7, pace)));
        let mut slow = listed(sheltering.chain([(2, 8, 5000), (2, 7, 6000)]));
        let may_give_way = |kind: &Kind| kind.source == Source::of_host(2) && kind.port == Port(7);
        let taken = slow.take(may_give_way, |_, _| true);
        assert_eq!(client(taken), Some(989));
    }
}

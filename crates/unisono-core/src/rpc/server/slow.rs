//! Slow requests: large ones of which parts are missing and few bytes have come in each second. They give way, the slowest
//! first, to a request of another address for which there is no room.
//!
//! A client may have thousands of them, and each large request of others may ask for room. So they are listed only now and
//! then: in between, requests give way in the order of the list.

use super::Server;
use super::session::{Asked, State};
use super::sessions::SessionId;
use crate::shares::Source;
use crate::time::Time;
use alloc::collections::BTreeSet;
use core::time::Duration;

/// Interval between two listings.
const LIST_SLOW_EVERY: Duration = Duration::from_millis(50);
/// Interval between two searches of an address for a slow request of others that found none.
const LOOK_FOR_SLOW_EVERY: Duration = Duration::from_millis(100);
/// Maximum number of listed requests that one search looks at.
const SLOW_LOOKED_AT_MAX: usize = 128;

/// What a slow request gives up to another.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wanted {
    Bytes,
    Place,
}

/// The slow requests of all clients.
#[derive(Debug, Default)]
pub(super) struct Slow {
    listed_at: Option<Time>,
    /// Those of the last listing that have not given way: bytes per second, session and slot.
    listed: BTreeSet<(u64, SessionId, u16)>,
}

impl Server {
    /// Returns the slowest request of the other addresses of which `may_be` is true, to give way now.
    pub(super) fn slowest(
        &mut self,
        now: Time,
        source: Source,
        wanted: Wanted,
        may_be: impl Fn(&Server, &Asked, Source) -> bool,
    ) -> Option<(SessionId, u16)> {
        let none_gives_way =
            |server: &Server| Some(server.sources.get(&source)?.none_gives_way[wanted as usize]);
        if now.since(none_gives_way(self)?) < LOOK_FOR_SLOW_EVERY {
            return None;
        }
        self.list_slow(now);
        let gives_way = |&&(_, id, slot): &&(u64, SessionId, u16)| {
            self.slow_request(now, id, slot)
                .is_some_and(|(_, asked, other)| other != source && may_be(self, asked, other))
        };
        let slowest = self.slow.listed.iter().take(SLOW_LOOKED_AT_MAX).find(gives_way).copied();
        match slowest {
            Some(listed) => {
                self.slow.listed.remove(&listed);
            }
            None => {
                if let Some(of_source) = self.sources.get_mut(&source) {
                    of_source.none_gives_way[wanted as usize] = now;
                }
            }
        }
        slowest.map(|(_, id, slot)| (id, slot))
    }

    fn list_slow(&mut self, now: Time) {
        if self.slow.listed_at.is_some_and(|at| now.since(at) < LIST_SLOW_EVERY) {
            return;
        }
        let listed = self.incomplete.iter().filter_map(|&(_, id, slot)| {
            let (pace, ..) = self.slow_request(now, id, slot)?;
            Some((pace, id, slot))
        });
        self.slow = Slow { listed: listed.collect(), listed_at: Some(now) };
    }

    /// Returns the pace of the request in this slot if it is slow, its head and its address.
    fn slow_request(&self, now: Time, id: SessionId, slot: u16) -> Option<(u64, &Asked, Source)> {
        let session = self.sessions.get(id)?;
        let State::Receiving(receiving) = &session.slots.get(usize::from(slot))?.state else { return None };
        Some((receiving.slow_pace(now)?, &receiving.asked, session.source))
    }
}

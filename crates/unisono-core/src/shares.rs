//! Shares: how a bound is divided that clients share.
//!
//! Lives of clients are free, and a client may be less trusted than the servers. So a bound that all clients share has a share
//! for each life or for each source address. As long as less than half of the bound is used, a client may have as much as
//! it asks for. From there on, its share is a part of what is left: one that would have more is refused, and the others go on.
//! Many addresses together take all. `docs/protocol/rpc.md` lists the bounds with their shares.

use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;
use core::net::{IpAddr, Ipv4Addr};

/// A source address, as shares count it: an IPv4 address, or the first 64 bits of an IPv6 address, within which a host chooses
/// its addresses freely. The loopback addresses, which any program of this machine has, count as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Source(Network);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Network {
    V4(Ipv4Addr),
    V6(u64),
}

impl From<IpAddr> for Source {
    fn from(address: IpAddr) -> Source {
        Source(match address.to_canonical() {
            IpAddr::V4(address) if address.is_loopback() => Network::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V4(address) => Network::V4(address),
            IpAddr::V6(address) if address.is_loopback() => Network::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(address) => Network::V6((address.to_bits() >> 64) as u64),
        })
    }
}

#[cfg(test)]
impl Source {
    pub(crate) fn of_host(host: u8) -> Source {
        IpAddr::from([192, 0, 2, host]).into()
    }
}

/// A bound that clients share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bound {
    /// The most that all clients may have together.
    pub(crate) most: usize,
    /// The share of one client once half of the bound is used: one in `part` of what is left.
    pub(crate) part: usize,
}

impl Bound {
    /// True if a client that has `own` may have `more`, while all clients together have `all`.
    pub(crate) fn admits(self, all: usize, own: usize, more: usize) -> bool {
        let (after, left) = (all.saturating_add(more), self.most.saturating_sub(all));
        let share = (left / self.part).max(1);
        after <= self.most && (after <= self.most / 2 || own.saturating_add(more) <= share)
    }
}

/// How much of a bound each client has. One that has nothing takes no room.
#[derive(Debug)]
pub(crate) struct Counts<K>(BTreeMap<K, usize>);

impl<K> Default for Counts<K> {
    fn default() -> Counts<K> {
        Counts(BTreeMap::new())
    }
}

impl<K: Ord> Counts<K> {
    pub(crate) fn get(&self, of: &K) -> usize {
        self.0.get(of).copied().unwrap_or(0)
    }

    /// Returns how much the one has that has most.
    pub(crate) fn most(&self) -> usize {
        self.0.values().copied().max().unwrap_or(0)
    }

    pub(crate) fn add(&mut self, of: K, more: usize) {
        *self.0.entry(of).or_default() += more;
    }

    pub(crate) fn subtract(&mut self, of: K, fewer: usize) {
        if let Entry::Occupied(mut count) = self.0.entry(of) {
            *count.get_mut() -= fewer;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_may_have_half_and_beyond_that_only_its_share() {
        let bound = Bound { most: 100, part: 4 };
        assert!(bound.admits(0, 0, 50));
        assert!(!bound.admits(50, 50, 1), "beyond half of the bound, and beyond its share");
        assert!(bound.admits(50, 0, 12), "another client has its share of what is left");
        assert!(!bound.admits(50, 0, 13));
        assert!(bound.admits(60, 9, 1));
        assert!(!bound.admits(60, 10, 1));
        assert!(bound.admits(99, 0, 1), "the last one goes to a client that has none");
        assert!(!bound.admits(99, 1, 1));
        assert!(!bound.admits(100, 0, 1), "the bound holds for all");
        assert!(!bound.admits(usize::MAX, 0, usize::MAX));
    }

    #[test]
    fn no_number_of_addresses_takes_more_than_its_share_of_what_is_left() {
        let bound = Bound { most: 1 << 16, part: 4 };
        let mut all = 0;
        for _ in 0..8 {
            let mut own = 0;
            while bound.admits(all, own, 1) {
                (all, own) = (all + 1, own + 1);
            }
        }
        assert!(bound.most - all > 1000, "{} are left for the next", bound.most - all);
    }

    #[test]
    fn hosts_are_told_apart_and_addresses_of_one_host_are_not() {
        let source = |text: &str| Source::from(text.parse::<IpAddr>().unwrap());
        assert_eq!(source("2001:db8::1"), source("2001:db8::ffff:2"));
        assert_ne!(source("2001:db8::1"), source("2001:db8:0:1::1"));
        assert_eq!(source("::ffff:192.0.2.1"), source("192.0.2.1"));
        assert_ne!(source("192.0.2.1"), source("192.0.2.2"));
        assert_eq!(source("127.0.0.1"), source("127.9.9.9"));
        assert_eq!(source("127.0.0.1"), source("::1"));
    }
}

//! Source addresses of which something was noted lately: that they had a signature, or showed a right.

use crate::shares::Source;
use crate::time::Time;
use alloc::collections::BTreeSet;
use core::time::Duration;

/// Maximum number of addresses of one interval; with more, the earlier ones are forgotten sooner.
const SOURCES_MAX: usize = 1 << 14;

/// The addresses that were noted in this interval, and in the one before.
#[derive(Clone, Debug)]
pub(super) struct Lately {
    interval: Duration,
    since: Time,
    now: BTreeSet<Source>,
    before: BTreeSet<Source>,
    /// The one of this interval that was noted last: often the only one.
    last: Option<Source>,
}

impl Lately {
    /// Remembers each address for this long, or up to twice this long.
    pub(super) fn new(now: Time, interval: Duration) -> Lately {
        Lately { interval, since: now, now: BTreeSet::new(), before: BTreeSet::new(), last: None }
    }

    pub(super) fn has(&mut self, now: Time, source: Source) -> bool {
        self.forget(now);
        self.has_noted(source)
    }

    /// The same, but what is too old by now counts until the next address is noted or asked for.
    pub(super) fn has_noted(&self, source: Source) -> bool {
        self.last == Some(source) || self.now.contains(&source) || self.before.contains(&source)
    }

    /// Returns true if this address was not noted in this interval before.
    pub(super) fn add(&mut self, now: Time, source: Source) -> bool {
        self.forget(now);
        let is_news = self.last != Some(source) && self.now.insert(source);
        self.last = Some(source);
        is_news
    }

    fn forget(&mut self, now: Time) {
        let age = now.since(self.since);
        if age >= self.interval || self.now.len() >= SOURCES_MAX {
            let before = core::mem::take(&mut self.now);
            self.before = if age < 2 * self.interval { before } else { BTreeSet::new() };
            (self.since, self.last) = (now, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_remembered_for_one_or_two_intervals() {
        let at = |seconds| Time::ZERO + Duration::from_secs(seconds);
        let (mut lately, one) = (Lately::new(at(0), Duration::from_secs(60)), Source::of_host(1));
        assert!(lately.add(at(59), one) && !lately.add(at(59), one));
        assert!(lately.has(at(59), one) && lately.has(at(60), one) && lately.has(at(119), one));
        assert!(!lately.has(at(59), Source::of_host(2)) && !lately.has(at(120), one));
        lately.add(at(120), one);
        assert!(!lately.has(at(1000), one), "both intervals are long over");
    }

    #[test]
    fn few_addresses_are_remembered() {
        let mut lately = Lately::new(Time::ZERO, Duration::from_secs(60));
        for index in 0..100_000_u32 {
            lately.add(Time::ZERO, core::net::IpAddr::V4(index.into()).into());
            assert!(lately.now.len() <= SOURCES_MAX && lately.before.len() <= SOURCES_MAX);
        }
    }
}

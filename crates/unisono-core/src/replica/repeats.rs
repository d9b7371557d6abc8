//! Repeats of commands that the state refuses.
//!
//! An earlier attempt at such a command may have taken effect: then the answer is its outcome, which may be remembered here. Or
//! it may take effect yet: then a refusal would be false. So a repeat whose outcome is not remembered cannot be refused as a first
//! attempt can. It is ordered, and stays refused from there on. But only the client says that it is a repeat, and one that may
//! do nothing could say so of each command. A client repeats a command when its server has fallen silent, which is rare; so few
//! of them are ordered in each second.

use crate::identity::Uid;
use crate::rpc::{CALL_BYTES_MAX, CallNumber, Request, Source};
use crate::shares::{Bound, Counts};
use crate::time::Time;
use alloc::collections::BTreeMap;
use core::time::Duration;

const REPEATS_EVERY: Duration = Duration::from_secs(1);
/// Time in which the whole of a command comes after its beginning was let through; later it is counted once more.
const COMES_WITHIN: Duration = Duration::from_secs(60);
/// What is ordered in this time, in blocks of commands, and the share of a source address.
const BLOCKS: Bound = Bound { most: 64, part: 4 };
const BLOCK_BYTES: usize = 4096;
/// How many are ordered in this time that take more than half of these blocks: one of a source address.
const LARGE: Bound = Bound { most: 2, part: 2 };
/// How many bytes those have in a longer time: two of the largest, of two source addresses.
const LARGE_BYTES: Bound = Bound { most: 2 * CALL_BYTES_MAX, part: 1 };
const LARGE_BYTES_EVERY: Duration = Duration::from_secs(16);

/// The repeats of the present second that would be refused and are ordered.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    since: Time,
    blocks: Count,
    large: Count,
    /// Bytes of large ones, and since when.
    large_bytes: Count,
    bytes_since: Time,
    /// Those of which only the beginning has come: when, and the length that was counted.
    begun: BTreeMap<(Uid, CallNumber), (Time, usize)>,
}

/// What is ordered of one kind.
#[derive(Debug, Default)]
struct Count {
    all: usize,
    of_sources: Counts<Source>,
}

impl Repeats {
    /// Returns true if this one may be ordered, and counts it: once, if its beginning comes before the whole of it.
    pub(super) fn take(&mut self, now: Time, request: &Request) -> bool {
        if now.since(self.since) >= REPEATS_EVERY {
            let mut begun = core::mem::take(&mut self.begun);
            begun.retain(|_, (at, _)| now.since(*at) < COMES_WITHIN);
            let (large_bytes, bytes_since) = (core::mem::take(&mut self.large_bytes), self.bytes_since);
            *self = Repeats { since: now, begun, large_bytes, bytes_since, ..Repeats::default() };
        }
        if now.since(self.bytes_since) >= LARGE_BYTES_EVERY {
            (self.large_bytes, self.bytes_since) = (Count::default(), now);
        }
        let name = (request.client, request.call);
        let bytes = request.whole_bytes.unwrap_or(request.payload.len());
        // The client may send something longer than it announced.
        let has_begun = |(_, counted): &mut (Time, usize)| bytes <= *counted;
        if request.whole_bytes.is_none() && self.begun.get_mut(&name).is_some_and(has_begun) {
            self.begun.remove(&name);
            return true;
        }
        let is_taken = match bytes.div_ceil(BLOCK_BYTES).max(1) {
            blocks if blocks > BLOCKS.most / 2 => {
                self.large_bytes.admits(LARGE_BYTES, request.source, bytes)
                    && self.large.take(LARGE, request.source, 1)
                    && self.large_bytes.take(LARGE_BYTES, request.source, bytes)
            }
            blocks => self.blocks.take(BLOCKS, request.source, blocks),
        };
        if is_taken && request.whole_bytes.is_some() {
            self.begun.insert(name, (now, bytes));
        }
        is_taken
    }
}

impl Count {
    fn admits(&self, bound: Bound, source: Source, more: usize) -> bool {
        bound.admits(self.all, self.of_sources.get(&source), more)
    }

    fn take(&mut self, bound: Bound, source: Source, more: usize) -> bool {
        let is_admitted = self.admits(bound, source, more);
        if is_admitted {
            self.all += more;
            self.of_sources.add(source, more);
        }
        is_admitted
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::asked;
    use super::*;

    #[test]
    fn a_repeat_whose_beginning_was_counted_is_not_counted_again() {
        let mut repeats = Repeats::default();
        let beginning = Request { whole_bytes: Some(1 << 20), ..asked(1, 77, 1, true, "") };
        let whole = Request { whole_bytes: None, ..beginning.clone() };
        let second = Time::ZERO + REPEATS_EVERY;
        assert!(repeats.take(second, &beginning));
        assert!(repeats.take(second + REPEATS_EVERY * 5, &whole), "it takes long to come");
        assert!(
            repeats.take(second + REPEATS_EVERY * 5, &beginning)
                && !repeats.take(second + REPEATS_EVERY * 5, &beginning)
        );
        assert!(repeats.take(second + REPEATS_EVERY * 6, &beginning));
        let late = second + REPEATS_EVERY * 6 + COMES_WITHIN;
        assert!(
            repeats.take(late, &beginning) && repeats.begun.len() == 1,
            "one that never came is forgotten"
        );
    }

    #[test]
    fn a_repeat_that_is_longer_than_its_beginning_said_is_counted() {
        let mut repeats = Repeats::default();
        let second = Time::ZERO + REPEATS_EVERY;
        let beginning = Request { whole_bytes: Some(4), ..asked(1, 77, 1, true, "") };
        let whole = Request {
            whole_bytes: None,
            payload: bytes::Bytes::from(alloc::vec![0; 1 << 20]),
            ..beginning.clone()
        };
        assert!(repeats.take(second, &beginning) && repeats.take(second, &whole));
        assert!(!repeats.take(second, &whole), "its address has had its large one");
    }

    #[test]
    fn a_large_repeat_is_ordered_and_a_source_has_one_in_a_second() {
        let mut repeats = Repeats::default();
        let of = |host: u8, bytes: usize| Request {
            source: Source::of_host(host),
            whole_bytes: Some(bytes),
            ..asked(1, 77, 1, true, "")
        };
        let second = Time::ZERO + REPEATS_EVERY;
        assert!(repeats.take(second, &of(1, 16 << 20)));
        assert!(!repeats.take(second, &of(1, 16 << 20)));
        assert!(repeats.take(second, &of(2, 1 << 20)), "another source has a share still");
        assert!(!repeats.take(second, &of(3, 1 << 20)), "the bound holds for all");
        assert!(repeats.take(second, &of(1, 128 << 10)), "just half of the blocks");
        assert!(!repeats.take(second, &of(1, 1)));
        assert!(repeats.take(second, &of(2, 4096)));
        assert!(repeats.take(second + REPEATS_EVERY, &of(3, 1 << 20)));
    }

    #[test]
    fn large_repeats_have_few_bytes_in_a_longer_time() {
        let mut repeats = Repeats::default();
        let of = |host: u8, bytes: usize| Request {
            source: Source::of_host(host),
            whole_bytes: Some(bytes),
            ..asked(1, 77, 1, true, "")
        };
        let mut ordered = [0; 3];
        for second in 100..132 {
            for host in 1..=3 {
                let is_taken = repeats.take(Time::ZERO + second * REPEATS_EVERY, &of(host, 8 << 20));
                ordered[usize::from(host - 1)] += usize::from(is_taken) * 8;
            }
        }
        assert_eq!(ordered, [32, 16, 16], "MiB in 32 s");
        assert!(repeats.take(Time::ZERO + 132 * REPEATS_EVERY, &of(3, 16 << 20)));
        assert!(repeats.take(Time::ZERO + 132 * REPEATS_EVERY, &of(2, 16 << 20)));
    }
}

//! Repeats of commands that the state refuses.
//!
//! An earlier attempt at such a command may have taken effect: then the answer is its outcome, which may be remembered here. Or
//! it may take effect yet: then a refusal would be false. So a repeat whose outcome is not remembered cannot be refused as a first
//! attempt can. It is ordered, and stays refused from there on. But only the client says that it is a repeat, and one that may
//! do nothing could say so of each command. A client repeats a command when its server has fallen silent, which is rare; so few
//! of them are ordered in each second.

use crate::rpc::{Request, Source};
use crate::shares::{Bound, Counts};
use crate::time::Time;
use core::time::Duration;

const EVERY: Duration = Duration::from_secs(1);
/// What is ordered in this time, in blocks of commands, and the share of a source address.
const BLOCKS: Bound = Bound { most: 64, part: 4 };
const BLOCK_BYTES: usize = 4096;
/// How many are ordered in this time that take more than half of these blocks: one of a source address.
const LARGE: Bound = Bound { most: 2, part: 2 };

/// The repeats of the present second that would be refused and are ordered.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    since: Time,
    blocks: Count,
    large: Count,
}

/// What is ordered of one kind.
#[derive(Debug, Default)]
struct Count {
    all: usize,
    of_sources: Counts<Source>,
}

impl Repeats {
    /// Returns true if this one may be ordered, and counts it.
    pub(super) fn take(&mut self, now: Time, request: &Request) -> bool {
        if now.since(self.since) >= EVERY {
            *self = Repeats { since: now, ..Repeats::default() };
        }
        let bytes = request.whole_bytes.unwrap_or(request.payload.len());
        match bytes.div_ceil(BLOCK_BYTES).max(1) {
            blocks if blocks > BLOCKS.most / 2 => self.large.take(LARGE, request.source, 1),
            blocks => self.blocks.take(BLOCKS, request.source, blocks),
        }
    }
}

impl Count {
    fn take(&mut self, bound: Bound, source: Source, more: usize) -> bool {
        let is_admitted = bound.admits(self.all, self.of_sources.get(&source), more);
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
    fn a_large_repeat_is_ordered_and_a_source_has_one_in_a_second() {
        let mut repeats = Repeats::default();
        let of = |host: u8, bytes: usize| Request {
            source: Source::of_host(host),
            whole_bytes: Some(bytes),
            ..asked(1, 77, 1, true, "")
        };
        let second = Time::ZERO + EVERY;
        assert!(repeats.take(second, &of(1, 16 << 20)));
        assert!(!repeats.take(second, &of(1, 16 << 20)));
        assert!(repeats.take(second, &of(2, 1 << 20)), "another source has a share still");
        assert!(!repeats.take(second, &of(3, 1 << 20)), "the bound holds for all");
        assert!(repeats.take(second, &of(1, 128 << 10)), "just half of the blocks");
        assert!(!repeats.take(second, &of(1, 1)));
        assert!(repeats.take(second, &of(2, 4096)));
        assert!(repeats.take(second + EVERY, &of(3, 1 << 20)));
    }
}

//! Repeats of commands that the state refuses.
//!
//! An earlier attempt at such a command may have taken effect: then the answer is its outcome, which may be remembered here. Or
//! it may take effect yet: then a refusal would be false. So a repeat cannot be refused as a first attempt can. It is ordered,
//! and stays refused from there on. But only the client says that it is a repeat, and one that may do nothing could say so of
//! each command. A client repeats a command when its server has fallen silent, which is rare; so few of them are ordered in
//! each second.

use crate::rpc::{Request, Source};
use crate::shares::Bound;
use crate::time::Time;
use alloc::collections::BTreeMap;
use core::time::Duration;

const EVERY: Duration = Duration::from_secs(1);
/// What is ordered in this time, in blocks of commands, and the share of a source address.
const BLOCKS: Bound = Bound { most: 64, part: 4 };
const BLOCK_BYTES: usize = 4096;

/// The repeats of the present second that would be refused and are ordered.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    since: Time,
    blocks: usize,
    of_sources: BTreeMap<Source, usize>,
}

impl Repeats {
    /// Returns true if this one may be ordered, and counts it.
    pub(super) fn take(&mut self, now: Time, request: &Request) -> bool {
        if now.since(self.since) >= EVERY {
            *self = Repeats { since: now, ..Repeats::default() };
        }
        let bytes = request.whole_bytes.unwrap_or(request.payload.len());
        let blocks = 1 + bytes / BLOCK_BYTES;
        let own = self.of_sources.get(&request.source).copied().unwrap_or(0);
        let is_admitted = BLOCKS.admits(self.blocks, own, blocks);
        if is_admitted {
            self.blocks += blocks;
            self.of_sources.insert(request.source, own + blocks);
        }
        is_admitted
    }
}

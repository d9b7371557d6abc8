//! Agreement: digests over all outcomes, and the comparison of copies.
//!
//! Each copy folds every command and its outcome into one digest. At every 1,024th position all copies send theirs in
//! the group's order. A copy whose digest differs from that of a majority of the copies stops. With two copies that
//! differ, the first by rank counts.

use super::machine::{Outcome, Position};
use super::types::Digest;
use crate::identity::Uid;
use crate::rpc::CallNumber;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use bytes::BufMut;

/// Copies are compared at each multiple of this position.
pub(super) const COMPARED_EVERY: Position = 1024;
/// Number of positions for which digests are kept.
const COMPARISONS_KEPT: usize = 4;

/// True if the copies compare their digests at this position.
pub(super) fn is_compared(position: Position) -> bool {
    position.is_multiple_of(COMPARED_EVERY)
}

/// Returns the position of the comparison before this one.
pub(super) fn compared_before(position: Position) -> Position {
    position.saturating_sub(COMPARED_EVERY)
}

/// The digest of all outcomes so far.
#[derive(Clone, Debug)]
pub(super) struct Chain {
    hash: fn(&[u8]) -> Digest,
    pub(super) position: Position,
    pub(super) digest: Digest,
    /// Buffer for what is hashed.
    buffer: Vec<u8>,
}

impl Chain {
    pub(super) fn new(hash: fn(&[u8]) -> Digest, position: Position, digest: Digest) -> Chain {
        Chain { hash, position, digest, buffer: Vec::new() }
    }

    /// Adds a command and its outcome.
    pub(super) fn extend(&mut self, client: Uid, call: CallNumber, outcome: &Outcome) {
        self.position += 1;
        self.buffer.clear();
        self.buffer.put_slice(&self.digest);
        self.buffer.put_u64(client.0);
        self.buffer.put_u64(call);
        self.buffer.put_u8(outcome.code());
        self.buffer.put_slice(outcome.handler().as_bytes());
        self.buffer.put_slice(outcome.bytes());
        self.digest = (self.hash)(&self.buffer);
        // A large reply must not stay in memory.
        self.buffer.shrink_to(4096);
    }
}

/// The digests that copies sent for the last compared positions.
#[derive(Clone, Debug, Default)]
pub(super) struct Agreement {
    own: VecDeque<(Position, Digest)>,
    theirs: BTreeMap<Position, BTreeMap<Uid, Digest>>,
}

impl Agreement {
    /// Notes the digest of this copy.
    pub(super) fn note_own(&mut self, position: Position, digest: Digest) {
        self.own.push_back((position, digest));
        if self.own.len() > COMPARISONS_KEPT {
            self.own.pop_front();
        }
    }

    /// Notes the digest that a copy sent, this one included.
    pub(super) fn note(&mut self, by: Uid, position: Position, digest: Digest) {
        self.theirs.entry(position).or_default().insert(by, digest);
        if self.theirs.len() > COMPARISONS_KEPT {
            self.theirs.pop_first();
        }
    }

    /// Returns a position at which a majority of `copies`, or half of them with the first, has another digest than
    /// this copy. `copies` are in rank order.
    pub(super) fn differs(&self, copies: &[Uid]) -> Option<Position> {
        self.own.iter().find_map(|(position, own)| {
            let theirs = self.theirs.get(position)?;
            let others = copies.iter().filter_map(|copy| theirs.get(copy)).filter(|digest| *digest != own);
            let is_majority = others.clone().any(|digest| {
                let has_it = |copy: &&Uid| theirs.get(copy) == Some(digest);
                let count = copies.iter().filter(has_it).count();
                let has_first = copies.first().is_some_and(|first| has_it(&first));
                2 * count > copies.len() || 2 * count == copies.len() && has_first
            });
            is_majority.then_some(*position)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Uid = Uid(1);
    const B: Uid = Uid(2);
    const C: Uid = Uid(3);
    const OWN: Digest = [1; 32];
    const OTHER: Digest = [2; 32];

    fn noted(digests: &[(Uid, Digest)]) -> Agreement {
        let mut agreement = Agreement::default();
        agreement.note_own(1024, OWN);
        digests.iter().for_each(|(by, digest)| agreement.note(*by, 1024, *digest));
        agreement
    }

    #[test]
    fn a_copy_differs_if_a_majority_has_another_digest() {
        assert_eq!(noted(&[(A, OWN), (B, OTHER)]).differs(&[A, B, C]), None);
        assert_eq!(noted(&[(A, OWN), (B, OTHER), (C, OTHER)]).differs(&[A, B, C]), Some(1024));
        assert_eq!(noted(&[(A, OWN), (B, OWN), (C, OTHER)]).differs(&[A, B, C]), None);
        assert_eq!(noted(&[(A, OTHER), (B, OTHER), (C, [3; 32])]).differs(&[A, B, C]), Some(1024));
    }

    #[test]
    fn of_two_copies_that_differ_the_first_counts() {
        let (first, second) = (noted(&[(A, OWN), (B, OTHER)]), noted(&[(A, OTHER), (B, OWN)]));
        assert_eq!((first.differs(&[A, B]), second.differs(&[A, B])), (None, Some(1024)));
    }

    #[test]
    fn only_the_last_comparisons_are_kept() {
        let mut agreement = noted(&[(A, OWN)]);
        for position in (2..20).map(|number| number * COMPARED_EVERY) {
            agreement.note_own(position, OWN);
            agreement.note(B, position, OWN);
        }
        assert_eq!((agreement.own.len(), agreement.theirs.len()), (COMPARISONS_KEPT, COMPARISONS_KEPT));
    }
}

//! Blocks: reference-counted buffers that hold the data of messages, usually of many messages each.
//!
//! All messages that arrived in one datagram lie in one buffer. A reference for each message would cost an atomic
//! increment and an atomic decrement each, more than all other work for a small message. So a container keeps one
//! reference for all messages of a buffer, and for each message only its position (a [`Part`]).

use crate::wire::Pieces;
use alloc::borrow::Cow;
use alloc::collections::VecDeque;
use bytes::Bytes;
use core::ops::Range;

/// A message, or a piece of one, as a range of its block.
#[derive(Clone, Debug)]
pub(crate) struct Slice<'a> {
    /// True if the sender's next piece continues this message.
    pub(crate) more: bool,
    /// The block: owned if no other piece needs this reference, otherwise borrowed.
    block: Cow<'a, Bytes>,
    start: u32,
    length: u16,
}

impl<'a> Slice<'a> {
    /// Returns the slice `range` of `block`: at most [`PIECE_BYTES_MAX`](crate::wire::PIECE_BYTES_MAX) bytes.
    pub(crate) fn new(more: bool, block: Cow<'a, Bytes>, range: Range<usize>) -> Slice<'a> {
        Slice { more, start: range.start as u32, length: range.len() as u16, block }
    }

    /// Returns a slice that is a block of its own.
    pub(crate) fn alone(more: bool, bytes: &'a Bytes) -> Slice<'a> {
        Slice::new(more, Cow::Borrowed(bytes), 0..bytes.len())
    }

    pub(crate) fn len(&self) -> usize {
        usize::from(self.length)
    }

    fn range(&self) -> Range<usize> {
        let start = self.start as usize;
        start..start + self.len()
    }

    /// Returns the bytes, borrowed.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.block[self.range()]
    }

    /// Returns the bytes with a reference of their own to the block.
    pub(crate) fn share(&self) -> Bytes {
        self.block.slice(self.range())
    }
}

/// Position of a piece in one of the kept blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) more: bool,
    length: u16,
    block: u32,
    start: u32,
}

impl Part {
    fn new(more: bool, block: u32, range: Range<usize>) -> Part {
        Part { more, length: range.len() as u16, block, start: range.start as u32 }
    }

    pub(crate) fn len(self) -> usize {
        usize::from(self.length)
    }
}

/// Blocks that are kept, each until the highest number of its pieces is released.
#[derive(Clone, Debug, Default)]
pub(crate) struct Blocks {
    /// Id of the first kept block. The next blocks have the next ids, which wrap around after `u32::MAX`.
    first: u32,
    kept: VecDeque<Block>,
}

#[derive(Clone, Debug)]
struct Block {
    bytes: Bytes,
    /// Highest number of a piece in this block.
    through: u64,
    /// Number of pieces that were not taken yet.
    parts: u32,
}

impl Blocks {
    /// Keeps a piece under `number` until that number is released. Consecutive pieces of one block share a reference.
    pub(crate) fn keep(&mut self, number: u64, slice: Slice<'_>) -> Part {
        match self.kept.back_mut() {
            Some(last) if is_same(&last.bytes, &slice.block) => {
                last.through = last.through.max(number);
                last.parts += 1;
            }
            _ => {
                let bytes = slice.block.into_owned();
                self.kept.push_back(Block { bytes, through: number, parts: 1 });
            }
        }
        let block = self.next().wrapping_sub(1);
        Part { more: slice.more, length: slice.length, block, start: slice.start }
    }

    /// Returns the pieces of a run with their offsets, at the positions that they have if the run is kept next.
    pub(crate) fn parts<'r>(&self, run: &'r Pieces) -> impl Iterator<Item = (u64, Part)> + use<'r> {
        let block = self.next();
        (0..).zip(run.ranges()).map(move |(offset, (more, range))| (offset, Part::new(more, block, range)))
    }

    /// Keeps a run until `number` is released. `parts` is the number of [parts](Blocks::parts) that the caller took; if
    /// it is 0, nothing is kept.
    pub(crate) fn keep_run(&mut self, number: u64, run: Pieces, parts: u32) {
        if parts > 0 {
            self.kept.push_back(Block { bytes: run.into_block(), through: number, parts });
        }
    }

    /// Returns the id of the next block to be kept.
    fn next(&self) -> u32 {
        self.first.wrapping_add(self.kept.len() as u32)
    }

    /// Returns a piece that was kept and not released yet.
    pub(crate) fn slice(&self, part: Part) -> Option<Slice<'_>> {
        let block = self.kept.get(part.block.wrapping_sub(self.first) as usize)?;
        let Part { more, length, start, .. } = part;
        Some(Slice { more, block: Cow::Borrowed(&block.bytes), start, length })
    }

    /// Takes a piece out; each piece can be taken once. The last piece of a block takes the block along.
    pub(crate) fn take(&mut self, part: Part) -> Option<Slice<'_>> {
        let block = self.kept.get_mut(part.block.wrapping_sub(self.first) as usize)?;
        block.parts -= 1;
        let bytes = match block.parts {
            0 => Cow::Owned(core::mem::take(&mut block.bytes)),
            _ => Cow::Borrowed(&block.bytes),
        };
        let Part { more, length, start, .. } = part;
        Some(Slice { more, block: bytes, start, length })
    }

    /// Releases everything kept under `number` or below. A block is freed after all blocks kept before it.
    pub(crate) fn release_through(&mut self, number: u64) {
        while self.kept.front().is_some_and(|block| block.through <= number) {
            self.kept.pop_front();
            self.first = self.first.wrapping_add(1);
        }
    }

    /// Notes that everything above `number` is no longer needed: its blocks are freed together with `number`.
    pub(crate) fn cut(&mut self, number: u64) {
        for block in &mut self.kept {
            block.through = block.through.min(number);
        }
    }
}

/// True if both are the same buffer. While one of them is held, no other buffer lies at its address.
fn is_same(a: &Bytes, b: &Bytes) -> bool {
    (a.as_ptr(), a.len()) == (b.as_ptr(), b.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Piece;
    use alloc::vec::Vec;

    const TEXT: Bytes = Bytes::from_static(b"onetwothree");

    fn part(blocks: &mut Blocks, number: u64, block: &Bytes, range: Range<usize>) -> Part {
        blocks.keep(number, Slice::new(false, Cow::Borrowed(block), range))
    }

    #[test]
    fn what_lies_together_is_kept_as_one_and_goes_with_the_last() {
        let (mut blocks, other) = (Blocks { first: u32::MAX, ..Blocks::default() }, Bytes::from_static(b"x"));
        let parts = [(7, 0..3), (8, 3..6), (9, 6..11)].map(|(at, range)| part(&mut blocks, at, &TEXT, range));
        let last = part(&mut blocks, 10, &other, 0..1);
        let read = |blocks: &Blocks, part| blocks.slice(part).map(|slice| slice.share());
        assert_eq!(blocks.kept.len(), 2);
        for release in [6, 8] {
            blocks.release_through(release);
            assert_eq!(parts.map(|part| read(&blocks, part).unwrap()), ["one", "two", "three"]);
        }
        blocks.release_through(9);
        assert_eq!((read(&blocks, parts[2]), read(&blocks, last)), (None, Some(other)));
        blocks.cut(9);
        blocks.release_through(9);
        assert!(blocks.kept.is_empty());
    }

    #[test]
    fn the_last_part_taken_takes_the_block_along() {
        let mut blocks = Blocks::default();
        let parts = [0..3, 3..6].map(|range| part(&mut blocks, 1, &TEXT, range));
        let taken = parts.map(|part| matches!(blocks.take(part).unwrap().block, Cow::Owned(_)));
        assert_eq!((taken, blocks.kept[0].bytes.len()), ([false, true], 0));
    }

    #[test]
    fn of_a_run_what_is_wanted_is_kept_and_nothing_if_that_is_nothing() {
        let piece = |text: &'static str| Piece { more: false, bytes: Bytes::from_static(text.as_bytes()) };
        let run = Pieces::from_pieces(&["one", "two", "three"].map(piece));
        let (mut blocks, mut kept) = (Blocks::default(), Vec::new());
        blocks.keep_run(9, run.clone(), 0);
        assert!(blocks.kept.is_empty());
        part(&mut blocks, 6, &TEXT, 0..3);
        kept.extend(blocks.parts(&run).filter(|(offset, _)| *offset > 0).map(|(_, part)| part));
        blocks.keep_run(9, run, 2);
        assert_eq!(blocks.slice(kept[0]).unwrap().as_bytes(), b"two");
        blocks.release_through(8);
        let whole = kept.iter().map(|part| matches!(blocks.take(*part).unwrap().block, Cow::Owned(_)));
        assert_eq!(whole.collect::<Vec<_>>(), [false, true]);
    }
}

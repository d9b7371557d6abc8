//! Blocks: the memory in which messages lie, mostly many in one.
//!
//! What came in one datagram lies in one block. To hold a share in it for each message would take an atomic operation
//! each, up and down, which costs more than everything else that is done for a small one. So whoever keeps messages
//! holds one share for all that lie together, and notes of each only where it lies.

use crate::wire::Pieces;
use alloc::borrow::Cow;
use alloc::collections::VecDeque;
use bytes::Bytes;
use core::ops::Range;

/// A message, or a piece of one, in the block that it lies in.
#[derive(Clone, Debug)]
pub(crate) struct Slice<'a> {
    /// The sender's next piece continues this message.
    pub(crate) more: bool,
    /// Whole, if nobody else needs it.
    block: Cow<'a, Bytes>,
    start: u32,
    length: u16,
}

impl<'a> Slice<'a> {
    /// A piece has at most [`PIECE_BYTES_MAX`](crate::wire::PIECE_BYTES_MAX) bytes.
    pub(crate) fn new(more: bool, block: Cow<'a, Bytes>, range: Range<usize>) -> Slice<'a> {
        Slice { more, start: range.start as u32, length: range.len() as u16, block }
    }

    /// A piece that is a block of its own.
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

    /// What is to be read or written at once.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.block[self.range()]
    }

    /// A share of its own in the block.
    pub(crate) fn share(&self) -> Bytes {
        self.block.slice(self.range())
    }
}

/// Where a piece lies, in one of the blocks that are kept.
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

/// Blocks, by the numbers of what lies in them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Blocks {
    /// What the first one kept is called; the next ones count on, and begin again after the last number there is.
    first: u32,
    kept: VecDeque<Block>,
}

#[derive(Clone, Debug)]
struct Block {
    bytes: Bytes,
    /// The highest number of what lies in it.
    through: u64,
    /// So many parts were not taken.
    parts: u32,
}

impl Blocks {
    /// Keeps what has this number until that is released. Pieces of one block that come in a row share it.
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

    /// The pieces of a run, and how many are before each, as they will lie here if the run is kept next.
    pub(crate) fn parts<'r>(&self, run: &'r Pieces) -> impl Iterator<Item = (u64, Part)> + use<'r> {
        let block = self.next();
        (0..).zip(run.ranges()).map(move |(offset, (more, range))| (offset, Part::new(more, block, range)))
    }

    /// Keeps a run of which so many [parts](Blocks::parts) were taken, if any, until this number is released.
    pub(crate) fn keep_run(&mut self, number: u64, run: Pieces, parts: u32) {
        if parts > 0 {
            self.kept.push_back(Block { bytes: run.into_block(), through: number, parts });
        }
    }

    /// What the next block kept will be called.
    fn next(&self) -> u32 {
        self.first.wrapping_add(self.kept.len() as u32)
    }

    /// What was kept, until it is released.
    pub(crate) fn slice(&self, part: Part) -> Option<Slice<'_>> {
        let block = self.kept.get(part.block.wrapping_sub(self.first) as usize)?;
        let Part { more, length, start, .. } = part;
        Some(Slice { more, block: Cow::Borrowed(&block.bytes), start, length })
    }

    /// Takes a part out, for the first time; the last one of a block takes that along.
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

    /// What has this number or a lower one is not needed any more. A block goes with those that were kept before it.
    pub(crate) fn release_through(&mut self, number: u64) {
        while self.kept.front().is_some_and(|block| block.through <= number) {
            self.kept.pop_front();
            self.first = self.first.wrapping_add(1);
        }
    }

    /// What has a higher number is not needed any more: its blocks go no later than what has this one.
    pub(crate) fn cut(&mut self, number: u64) {
        for block in &mut self.kept {
            block.through = block.through.min(number);
        }
    }
}

/// Nothing else is there as long as one of them is held.
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
    fn whoever_takes_the_last_part_takes_the_block() {
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

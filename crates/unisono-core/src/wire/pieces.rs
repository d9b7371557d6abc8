//! The messages of a run, as they lie in the datagram that brought them.
//!
//! A run of a thousand small messages is one slice of its datagram. It is checked once, and cut up only when it is
//! iterated.

use super::MORE;
use super::frame::{PIECE_BYTES_MAX, Piece, Pieces};
use crate::log::Slice;
use alloc::borrow::Cow;
use alloc::vec::Vec;
use bytes::Bytes;
use core::iter::FusedIterator;
use core::ops::Range;

impl Pieces {
    /// Returns a run of these pieces. For tests and tools: senders write runs with [`super::Writer`], which builds no
    /// `Pieces`.
    ///
    /// # Panics
    ///
    /// If there is no piece, if there are more than 65,535, or if one is longer than [`PIECE_BYTES_MAX`].
    pub fn from_pieces(pieces: &[Piece]) -> Pieces {
        assert!((1..=usize::from(u16::MAX)).contains(&pieces.len()), "a run has 1 to 65,535 pieces");
        let mut bytes = Vec::new();
        for piece in pieces {
            assert!(piece.bytes.len() <= PIECE_BYTES_MAX, "a piece has at most {PIECE_BYTES_MAX} bytes");
            let length = piece.bytes.len() as u16 | if piece.more { MORE } else { 0 };
            bytes.extend_from_slice(&length.to_be_bytes());
            bytes.extend_from_slice(&piece.bytes);
        }
        Pieces { bytes: bytes.into(), count: pieces.len() as u16 }
    }

    /// Returns the number of pieces.
    pub fn len(&self) -> usize {
        usize::from(self.count)
    }

    /// True if there is no piece; never for a decoded run, which has at least one.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Passes each piece to `take`, together with the block that contains it.
    pub(crate) fn each(&self, mut take: impl FnMut(Slice<'_>)) {
        for (more, range) in self.ranges() {
            take(Slice::new(more, Cow::Borrowed(&self.bytes), range));
        }
    }

    /// Returns for each piece whether the next one continues its message, and its range in the block.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = (bool, Range<usize>)> {
        let mut position = 0;
        core::iter::from_fn(move || {
            let (more, range) = piece_at(&self.bytes, position)?;
            position = range.end;
            Some((more, range))
        })
    }

    /// Returns the block that contains the pieces.
    pub(crate) fn into_block(self) -> Bytes {
        self.bytes
    }

    /// Iterates over the pieces, each a slice of the datagram.
    pub fn iter(&self) -> PiecesIter<'_> {
        PiecesIter { pieces: self, position: 0, left: self.count }
    }
}

impl<'a> IntoIterator for &'a Pieces {
    type Item = Piece;
    type IntoIter = PiecesIter<'a>;

    fn into_iter(self) -> PiecesIter<'a> {
        self.iter()
    }
}

/// Iterator over the pieces of a run. See [`Pieces::iter`].
#[derive(Clone, Debug)]
pub struct PiecesIter<'a> {
    pieces: &'a Pieces,
    position: usize,
    left: u16,
}

impl Iterator for PiecesIter<'_> {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        let (more, range) = piece_at(&self.pieces.bytes, self.position)?;
        self.position = range.end;
        self.left -= 1;
        Some(Piece { more, bytes: self.pieces.bytes.slice(range) })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (usize::from(self.left), Some(usize::from(self.left)))
    }
}

impl ExactSizeIterator for PiecesIter<'_> {}
impl FusedIterator for PiecesIter<'_> {}

/// Returns whether the piece at `position` is continued by the next one, and the range of its bytes.
#[inline]
fn piece_at(bytes: &[u8], position: usize) -> Option<(bool, Range<usize>)> {
    let length = u16::from_be_bytes(*bytes.get(position..)?.first_chunk::<2>()?);
    let begin = position + 2;
    Some((length & MORE != 0, begin..begin + usize::from(length & !MORE)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn taken_apart_or_looked_at_they_are_the_same() {
        let piece = |more, text: &'static str| Piece { more, bytes: Bytes::from_static(text.as_bytes()) };
        for pieces in
            [vec![piece(false, "alone")], vec![piece(true, "a"), piece(false, ""), piece(true, "bc")]]
        {
            let run = Pieces::from_pieces(&pieces);
            assert!(run.iter().eq(pieces.iter().cloned()));
            assert_eq!(run.iter().len(), pieces.len());
            let mut taken = Vec::new();
            run.each(|slice| taken.push(Piece { more: slice.more, bytes: slice.share() }));
            assert_eq!(taken, pieces);
        }
    }
}

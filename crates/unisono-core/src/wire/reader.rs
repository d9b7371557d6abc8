//! Reads the fields of a frame. If a field is wrong, the error says what is wrong and at which byte.
//!
//! The reader does not trust its input. It compares every length with what is left before it takes or allocates
//! anything, and every value with its range.

use super::frame::{PIECE_BYTES_MAX, Pieces};
use super::kind::FrameKind;
use super::{MORE, NUMBER_MAX};
use bytes::{Buf, Bytes};
use core::fmt;
use core::ops::RangeInclusive;
use thiserror::Error;

/// Why a frame cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub struct FrameError {
    /// Kind of the frame, if it is known.
    pub kind: Option<FrameKind>,
    /// Offset of the bad field, in bytes from the first frame's first byte.
    pub offset: usize,
    /// What is wrong with the field.
    pub fault: Fault,
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Some(kind) => write!(f, "{kind} frame, byte {}: {}", self.offset, self.fault),
            None => write!(f, "frame, byte {}: {}", self.offset, self.fault),
        }
    }
}

/// What is wrong with a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Fault {
    /// No frame has this number.
    #[error("no frame has the number {0:#04x}")]
    Kind(u8),
    /// The frame ends before the field does.
    #[error("it ends within {0}")]
    Short(&'static str),
    /// Bytes follow the last field.
    #[error("{0} bytes follow its last field")]
    Trailing(usize),
    /// A field's value is outside of its range.
    #[error("{field} is {value}, which is out of range")]
    Range {
        /// Name of the field.
        field: &'static str,
        /// Value of the field.
        value: u64,
    },
    /// A name is not UTF-8, or has control characters.
    #[error("the name is not UTF-8, or has control characters")]
    Text,
    /// A question is shorter than the minimum to which questions are padded.
    #[error("the question is padded to {0} bytes only")]
    Padding(usize),
}

/// Reads fields one after the other, up to the end of a frame.
#[derive(Clone, Debug)]
pub(super) struct Reader {
    /// Empty after the last bytes were returned: they took the buffer itself.
    whole: Bytes,
    length: usize,
    position: usize,
    end: usize,
    kind: Option<FrameKind>,
    /// Offset of the field read last; errors report it.
    field: usize,
}

type Result<T> = core::result::Result<T, FrameError>;

impl Reader {
    /// Returns a reader that begins with the first byte of `whole`.
    pub(super) fn new(whole: Bytes) -> Reader {
        let length = whole.len();
        Reader { whole, length, position: 0, end: length, kind: None, field: 0 }
    }

    /// Begins the next frame. False if nothing is left.
    pub(super) fn begin(&mut self) -> bool {
        (self.end, self.kind, self.field) = (self.length, None, self.position);
        self.position < self.length
    }

    /// Skips everything that is left.
    pub(super) fn give_up(&mut self) {
        self.position = self.length;
    }

    /// Sets the frame's kind, which later errors report.
    pub(super) fn set_kind(&mut self, kind: FrameKind) {
        self.kind = Some(kind);
    }

    /// Ends the frame `bytes` from here.
    pub(super) fn stop_after(&mut self, bytes: usize, what: &'static str) -> Result<()> {
        if bytes > self.left() {
            return Err(self.error(Fault::Short(what)));
        }
        self.end = self.position + bytes;
        Ok(())
    }

    /// Returns the offset of the next field.
    pub(super) fn position(&self) -> usize {
        self.position
    }

    /// Returns the number of bytes up to the frame's end.
    pub(super) fn left(&self) -> usize {
        self.end - self.position
    }

    /// Returns an error about the field read last.
    #[cold]
    pub(super) fn error(&self, fault: Fault) -> FrameError {
        FrameError { kind: self.kind, offset: self.field, fault }
    }

    /// Returns an error about the value of the field read last.
    #[cold]
    pub(super) fn out_of_range(&self, field: &'static str, value: impl TryInto<u64>) -> FrameError {
        self.error(Fault::Range { field, value: value.try_into().unwrap_or(u64::MAX) })
    }

    #[inline]
    fn take(&mut self, bytes: usize, what: &'static str) -> Result<&[u8]> {
        self.field = self.position;
        if bytes > self.left() {
            return Err(self.error(Fault::Short(what)));
        }
        self.position += bytes;
        Ok(&self.whole[self.field..self.position])
    }

    pub(super) fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N, what)?);
        Ok(array)
    }

    #[inline]
    pub(super) fn u8(&mut self, what: &'static str) -> Result<u8> {
        self.array(what).map(u8::from_be_bytes)
    }

    pub(super) fn u16(&mut self, what: &'static str) -> Result<u16> {
        self.array(what).map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self, what: &'static str) -> Result<u32> {
        self.array(what).map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self, what: &'static str) -> Result<u64> {
        self.array(what).map(u64::from_be_bytes)
    }

    pub(super) fn u128(&mut self, what: &'static str) -> Result<u128> {
        self.array(what).map(u128::from_be_bytes)
    }

    /// Reads a truth value: 0 or 1.
    #[inline]
    pub(super) fn flag(&mut self, what: &'static str) -> Result<bool> {
        match self.u8(what)? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(self.out_of_range(what, other)),
        }
    }

    /// Reads a seqno or message number that may be 0, which means "before the first".
    #[inline]
    pub(super) fn mark(&mut self, what: &'static str) -> Result<u64> {
        match self.u64(what)? {
            mark if mark <= NUMBER_MAX => Ok(mark),
            other => Err(self.out_of_range(what, other)),
        }
    }

    /// Reads a seqno or message number, from 1.
    #[inline]
    pub(super) fn number(&mut self, what: &'static str) -> Result<u64> {
        match self.mark(what)? {
            0 => Err(self.out_of_range(what, 0_u64)),
            number => Ok(number),
        }
    }

    /// Reads the number of entries of a list. It must be in `range`, and `bytes_min` for each entry must not exceed
    /// what is left.
    pub(super) fn count(
        &mut self,
        what: &'static str,
        range: RangeInclusive<usize>,
        bytes_min: usize,
    ) -> Result<usize> {
        let count = usize::from(self.u16(what)?);
        if !range.contains(&count) {
            return Err(self.out_of_range(what, count));
        }
        if count * bytes_min > self.left() {
            return Err(self.error(Fault::Short(what)));
        }
        Ok(count)
    }

    /// Returns the next `bytes` bytes, not copied.
    pub(super) fn bytes(&mut self, bytes: usize, what: &'static str) -> Result<Bytes> {
        self.take(bytes, what)?;
        Ok(self.whole.slice(self.field..self.position))
    }

    /// Returns the next `bytes` bytes, borrowed.
    pub(super) fn slice(&mut self, bytes: usize, what: &'static str) -> Result<&[u8]> {
        self.take(bytes, what)
    }

    /// Returns all bytes up to the frame's end, not copied.
    pub(super) fn rest(&mut self) -> Bytes {
        self.field = self.position;
        self.position = self.end;
        self.whole.slice(self.field..self.end)
    }

    /// Skips all bytes up to the frame's end.
    pub(super) fn skip_rest(&mut self) {
        self.field = self.position;
        self.position = self.end;
    }

    /// Returns all bytes up to the frame's end, not copied. Nothing may be read from this frame afterwards.
    pub(super) fn tail(&mut self) -> Bytes {
        let begin = self.position;
        self.skip_rest();
        self.cut_out(begin)
    }

    /// Reads a count, and that number of pieces. They are checked here, so that iterating over them cannot fail.
    /// Nothing may be read from this frame afterwards.
    #[inline]
    pub(super) fn pieces(&mut self) -> Result<Pieces> {
        let count = self.u16("count")?;
        if count == 0 {
            return Err(self.out_of_range("count", 0_u64));
        }
        let begin = self.position;
        for _ in 0..count {
            let length = usize::from(self.u16("piece length")? & !MORE);
            if length > PIECE_BYTES_MAX {
                return Err(self.out_of_range("piece length", length));
            }
            self.take(length, "piece")?;
        }
        Ok(Pieces { bytes: self.cut_out(begin), count })
    }

    /// Returns what was read from `begin` on. If that ends the datagram, it takes the buffer itself: most
    /// datagrams end with a message, and are not read further.
    #[inline]
    fn cut_out(&mut self, begin: usize) -> Bytes {
        if self.position < self.length {
            return self.whole.slice(begin..self.position);
        }
        let mut bytes = core::mem::take(&mut self.whole);
        bytes.advance(begin);
        bytes
    }

    /// Checks that nothing is left in the frame.
    #[inline]
    pub(super) fn finish(&mut self) -> Result<()> {
        self.field = self.position;
        match self.left() {
            0 => Ok(()),
            left => Err(self.error(Fault::Trailing(left))),
        }
    }
}

//! Reads the fields of a frame, and says what is wrong and where when it cannot.
//!
//! Nothing here trusts its input: every length is compared with what is left before anything is taken or allocated,
//! and every value with its range.

use super::frame::{PIECE_BYTES_MAX, Pieces};
use super::kind::FrameKind;
use super::{MORE, PLACE_MAX};
use bytes::{Buf, Bytes};
use core::fmt;
use core::ops::RangeInclusive;
use thiserror::Error;

/// Why a frame cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub struct FrameError {
    /// Which kind of frame, if it is known.
    pub kind: Option<FrameKind>,
    /// Where the bad field begins, in bytes from the first frame's first byte.
    pub offset: usize,
    /// What is wrong with it.
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
    /// It ends before all of it is there.
    #[error("it ends within {0}")]
    Short(&'static str),
    /// It goes on after its last field.
    #[error("{0} bytes follow its last field")]
    Trailing(usize),
    /// A field has a value outside of its range.
    #[error("{field} is {value}, which is out of range")]
    Range {
        /// Which field.
        field: &'static str,
        /// What it says.
        value: u64,
    },
    /// A name is not UTF-8, or has control characters.
    #[error("the name is not text of visible characters")]
    Text,
    /// It is too small for a question that is padded so that its answer is never longer.
    #[error("it is padded to {0} bytes only")]
    Padding(usize),
}

/// Reads fields one after the other, up to an end.
#[derive(Clone, Debug)]
pub(super) struct Reader {
    /// Empty when its last bytes were given away with what was read.
    whole: Bytes,
    length: usize,
    position: usize,
    end: usize,
    kind: Option<FrameKind>,
    /// Where the last field began: what an error points at.
    field: usize,
}

type Result<T> = core::result::Result<T, FrameError>;

impl Reader {
    /// Reads `whole` from its first byte on.
    pub(super) fn new(whole: Bytes) -> Reader {
        let length = whole.len();
        Reader { whole, length, position: 0, end: length, kind: None, field: 0 }
    }

    /// Another frame begins here; false if nothing is left.
    pub(super) fn begin(&mut self) -> bool {
        (self.end, self.kind, self.field) = (self.length, None, self.position);
        self.position < self.length
    }

    /// Reads no further.
    pub(super) fn give_up(&mut self) {
        self.position = self.length;
    }

    /// Whose frame this is: what errors say from here on.
    pub(super) fn set_kind(&mut self, kind: FrameKind) {
        self.kind = Some(kind);
    }

    /// Goes no further than `bytes` from here.
    pub(super) fn stop_after(&mut self, bytes: usize, what: &'static str) -> Result<()> {
        if bytes > self.left() {
            return Err(self.error(Fault::Short(what)));
        }
        self.end = self.position + bytes;
        Ok(())
    }

    /// Where the next field begins.
    pub(super) fn position(&self) -> usize {
        self.position
    }

    /// Bytes to the end.
    pub(super) fn left(&self) -> usize {
        self.end - self.position
    }

    /// An error about the field read last.
    #[cold]
    pub(super) fn error(&self, fault: Fault) -> FrameError {
        FrameError { kind: self.kind, offset: self.field, fault }
    }

    /// An error about the value of the field read last.
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

    /// A truth value: 0 or 1.
    #[inline]
    pub(super) fn flag(&mut self, what: &'static str) -> Result<bool> {
        match self.u8(what)? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(self.out_of_range(what, other)),
        }
    }

    /// A place in the order or a message number that may be 0: before the first.
    #[inline]
    pub(super) fn mark(&mut self, what: &'static str) -> Result<u64> {
        match self.u64(what)? {
            mark if mark <= PLACE_MAX => Ok(mark),
            other => Err(self.out_of_range(what, other)),
        }
    }

    /// A place in the order or a message number, from 1.
    #[inline]
    pub(super) fn place(&mut self, what: &'static str) -> Result<u64> {
        match self.mark(what)? {
            0 => Err(self.out_of_range(what, 0_u64)),
            place => Ok(place),
        }
    }

    /// How many of something follow: a number in `range`, and no more than can be left, if each has at least
    /// `bytes_min` bytes.
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

    /// So many bytes, not copied.
    pub(super) fn bytes(&mut self, bytes: usize, what: &'static str) -> Result<Bytes> {
        self.take(bytes, what)?;
        Ok(self.whole.slice(self.field..self.position))
    }

    /// So many bytes, borrowed.
    pub(super) fn slice(&mut self, bytes: usize, what: &'static str) -> Result<&[u8]> {
        self.take(bytes, what)
    }

    /// All bytes to the end, not copied.
    pub(super) fn rest(&mut self) -> Bytes {
        self.field = self.position;
        self.position = self.end;
        self.whole.slice(self.field..self.end)
    }

    /// Passes over all bytes to the end.
    pub(super) fn skip_rest(&mut self) {
        self.field = self.position;
        self.position = self.end;
    }

    /// All bytes to the end, not copied. Nothing may be read after them.
    pub(super) fn tail(&mut self) -> Bytes {
        let begin = self.position;
        self.skip_rest();
        self.cut_out(begin)
    }

    /// A count, and so many pieces of messages. They are checked here, so that nobody who walks over them meets an
    /// error. Nothing may be read after them.
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

    /// What was read from `begin` on. The last bytes of all take the memory along: most datagrams end with a message,
    /// and are of no further use.
    #[inline]
    fn cut_out(&mut self, begin: usize) -> Bytes {
        if self.position < self.length {
            return self.whole.slice(begin..self.position);
        }
        let mut bytes = core::mem::take(&mut self.whole);
        bytes.advance(begin);
        bytes
    }

    /// Nothing is left.
    #[inline]
    pub(super) fn finish(&mut self) -> Result<()> {
        self.field = self.position;
        match self.left() {
            0 => Ok(()),
            left => Err(self.error(Fault::Trailing(left))),
        }
    }
}

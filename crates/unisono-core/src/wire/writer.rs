//! Packs frames into a datagram, up to a limit.
//!
//! The output holds whole frames at every moment: a frame that does not fit is not begun, and a run of messages grows
//! by one message at a time. So the datagram can be sent whenever its writer is done with it.

use super::MORE;
use super::codec;
use super::frame::{Frame, Method, PIECE_BYTES_MAX};
use super::header::HEADER_BYTES;
use super::kind::FrameKind;
use crate::identity::{MessageNumber, Seqno, Uid};
use crate::quality::Quality;
use alloc::vec::Vec;

/// Bytes before the body of every frame: its kind and the length of its body.
pub const FRAME_HEAD_BYTES: usize = 3;
/// Maximum size of a frame in bytes, head included: its length field limits it.
const FRAME_BYTES_MAX: usize = FRAME_HEAD_BYTES + u16::MAX as usize;
/// Bytes before each piece of a message: its length.
pub const PIECE_HEAD_BYTES: usize = 2;
/// Size to which questions are padded that any process may ask, in bytes of the whole frame.
pub const PADDED_BYTES: usize = 1200;
/// Minimum size of such a question, in bytes of the whole frame; shorter ones are refused. It fits the smallest
/// datagram.
pub const PADDED_BYTES_MIN: usize = 512;

/// Returns the bytes of a datagram besides the message, if it carries one piece in the longest kind of run. They
/// include a [`Frame::Level`], so that everything that was sent once can also be served in a reset.
pub const fn run_overhead() -> usize {
    let level = FRAME_HEAD_BYTES + FrameKind::Level.body_bytes_min();
    let run = FRAME_HEAD_BYTES + FrameKind::Data.body_bytes_min();
    HEADER_BYTES + level + run
}

/// Returns the size in bytes of the largest piece that fits a datagram of `datagram_bytes_max` bytes, all headers
/// included.
pub const fn piece_bytes_max(datagram_bytes_max: usize) -> usize {
    let fits = datagram_bytes_max.saturating_sub(run_overhead());
    if fits < PIECE_BYTES_MAX { fits } else { PIECE_BYTES_MAX }
}

/// Returns the size in bytes of the largest unreliable message that fits a datagram of `datagram_bytes_max` bytes.
pub const fn unreliable_bytes_max(datagram_bytes_max: usize) -> usize {
    let fits = datagram_bytes_max.saturating_sub(HEADER_BYTES);
    let frame = if fits < FRAME_BYTES_MAX { fits } else { FRAME_BYTES_MAX };
    frame.saturating_sub(FRAME_HEAD_BYTES + FrameKind::Unreliable.body_bytes_min())
}

/// The fields that a run of messages has in common: the head of a [`Frame::Ordered`] or [`Frame::Data`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunHead {
    /// Consecutive seqnos, consecutive messages of one sender.
    Ordered {
        /// Seqno of the first message.
        seqno: Seqno,
        /// Uid of the messages' sender.
        sender: Uid,
        /// Number of the first message.
        first: MessageNumber,
        /// What the messages ask for.
        quality: Quality,
    },
    /// Messages that need seqnos.
    Data {
        /// Uid of the messages' sender.
        sender: Uid,
        /// Number of the first message.
        first: MessageNumber,
        /// The sender's first message number of this epoch.
        base: MessageNumber,
        /// How the messages reach the members.
        method: Method,
        /// What the messages ask for.
        quality: Quality,
    },
}

impl RunHead {
    /// Returns the bytes of the run's frame before its first piece.
    const fn bytes(&self) -> usize {
        FRAME_HEAD_BYTES + self.kind().body_bytes_min() - PIECE_HEAD_BYTES
    }

    /// Returns the frame's kind.
    const fn kind(&self) -> FrameKind {
        match self {
            RunHead::Ordered { .. } => FrameKind::Ordered,
            RunHead::Data { .. } => FrameKind::Data,
        }
    }
}

/// A run that is being written.
struct Run {
    head: RunHead,
    /// Offset of the run's frame in the output.
    start: usize,
    /// Number of pieces so far. The head is written with the first one.
    count: u16,
}

/// Appends frames to a datagram.
pub struct Writer<'a> {
    out: &'a mut Vec<u8>,
    limit: usize,
    run: Option<Run>,
}

impl<'a> Writer<'a> {
    /// Returns a writer that appends to `out`, and never lets it grow beyond `limit` bytes.
    pub fn new(out: &'a mut Vec<u8>, limit: usize) -> Writer<'a> {
        Writer { out, limit, run: None }
    }

    /// Returns the number of bytes that can still be appended.
    pub fn room(&self) -> usize {
        self.limit.saturating_sub(self.out.len())
    }

    /// Closes an open run, and appends a frame. False, with nothing written, if the frame does not fit, or if one of
    /// its lists or texts exceeds its maximum.
    pub fn frame(&mut self, frame: &Frame) -> bool {
        self.end();
        let start = self.out.len();
        // The frame's length field limits it too.
        let limit = self.limit.min(start + FRAME_HEAD_BYTES + usize::from(u16::MAX));
        let mut body = Body::new(self.out, limit);
        body.u8(frame.kind() as u8);
        body.u16(0);
        codec::write_body(&mut body, frame);
        if !body.fits() {
            self.out.truncate(start);
            return false;
        }
        let length = self.out.len() - start - FRAME_HEAD_BYTES;
        patch(self.out, start + 1, length as u16);
        true
    }

    /// Closes an open run, and begins another; its messages are passed to [`Writer::piece`]. False, with no run open,
    /// if not even an empty message would fit.
    pub fn begin(&mut self, head: &RunHead) -> bool {
        self.end();
        let fits = head.bytes() + PIECE_HEAD_BYTES <= self.room();
        if fits {
            self.run = Some(Run { head: *head, start: self.out.len(), count: 0 });
        }
        fits
    }

    /// Returns the maximum size in bytes of the next piece. `None` if no run is open, or if no piece fits.
    pub fn piece_room(&self) -> Option<usize> {
        let run = self.run.as_ref()?;
        let begun = if run.count == 0 { run.start + run.head.bytes() } else { self.out.len() };
        let limit = self.limit.min(run.start + FRAME_HEAD_BYTES + usize::from(u16::MAX));
        let room = limit.checked_sub(begun + PIECE_HEAD_BYTES)?;
        (run.count < u16::MAX).then_some(room.min(PIECE_BYTES_MAX))
    }

    /// Appends a message, or a piece of one if the next piece continues it (`more`). False, with the run unchanged, if
    /// it does not fit.
    pub fn piece(&mut self, more: bool, bytes: &[u8]) -> bool {
        if self.piece_room().is_none_or(|room| bytes.len() > room) {
            return false;
        }
        let Some(run) = &mut self.run else { return false };
        if run.count == 0 {
            let mut body = Body::new(self.out, self.limit);
            body.bytes(&[run.head.kind() as u8, 0, 0]);
            codec::write_run_head(&mut body, &run.head);
            body.u16(0);
        }
        run.count += 1;
        let length = bytes.len() as u16 | if more { MORE } else { 0 };
        self.out.extend_from_slice(&length.to_be_bytes());
        self.out.extend_from_slice(bytes);
        let body_length = self.out.len() - run.start - FRAME_HEAD_BYTES;
        patch(self.out, run.start + 1, body_length as u16);
        patch(self.out, run.start + run.head.bytes() - 2, run.count);
        true
    }

    /// Closes the run, and returns the number of its pieces. A run without pieces leaves no bytes in the output.
    pub fn end(&mut self) -> u16 {
        self.run.take().map_or(0, |run| run.count)
    }
}

/// Overwrites the two bytes at `offset`.
fn patch(out: &mut [u8], offset: usize, value: u16) {
    out[offset..offset + 2].copy_from_slice(&value.to_be_bytes());
}

/// Appends fields, and remembers whether one of them did not fit.
pub(super) struct Body<'a> {
    out: &'a mut Vec<u8>,
    limit: usize,
    start: usize,
    full: bool,
}

impl<'a> Body<'a> {
    /// Returns a body that appends to `out` up to `limit` bytes.
    pub(super) fn new(out: &'a mut Vec<u8>, limit: usize) -> Body<'a> {
        let start = out.len();
        Body { out, limit, start, full: false }
    }

    /// True if everything so far has fitted.
    pub(super) fn fits(&self) -> bool {
        !self.full
    }

    /// Returns the number of bytes that can still be appended.
    pub(super) fn room(&self) -> usize {
        self.limit.saturating_sub(self.out.len())
    }

    /// Returns the number of bytes appended so far.
    pub(super) fn written(&self) -> usize {
        self.out.len() - self.start
    }

    /// Rejects the frame as if it did not fit: one of its values may not be written.
    pub(super) fn refuse(&mut self) {
        self.full = true;
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        if self.full || bytes.len() > self.room() {
            self.full = true;
        } else {
            self.out.extend_from_slice(bytes);
        }
    }

    /// Appends `count` zeros.
    pub(super) fn zeros(&mut self, count: usize) {
        if self.full || count > self.room() {
            self.full = true;
        } else {
            self.out.resize(self.out.len() + count, 0);
        }
    }

    pub(super) fn u8(&mut self, value: u8) {
        self.bytes(&[value]);
    }

    pub(super) fn u16(&mut self, value: u16) {
        self.bytes(&value.to_be_bytes());
    }

    pub(super) fn u32(&mut self, value: u32) {
        self.bytes(&value.to_be_bytes());
    }

    pub(super) fn u64(&mut self, value: u64) {
        self.bytes(&value.to_be_bytes());
    }

    /// Appends several numbers at once.
    pub(super) fn u64s<const N: usize>(&mut self, values: [u64; N]) {
        self.bytes(values.map(u64::to_be_bytes).as_flattened());
    }

    pub(super) fn u128(&mut self, value: u128) {
        self.bytes(&value.to_be_bytes());
    }

    pub(super) fn flag(&mut self, value: bool) {
        self.u8(u8::from(value));
    }

    /// Appends the number of entries of a list, at most `max`.
    pub(super) fn count(&mut self, count: usize, max: usize) {
        match u16::try_from(count) {
            Ok(short) if count <= max => self.u16(short),
            _ => self.refuse(),
        }
    }
}

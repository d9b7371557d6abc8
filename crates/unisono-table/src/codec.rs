//! Writing and reading fields: big-endian numbers, and strings behind their length. Reading never panics and allocates
//! nothing that the input does not pay for with bytes of its own.

use alloc::vec::Vec;
use bytes::{Buf, BufMut, Bytes};

/// Collects fields.
#[derive(Default)]
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    pub(crate) fn with_capacity(bytes: usize) -> Writer {
        Writer(Vec::with_capacity(bytes))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn u8(&mut self, value: u8) {
        self.0.put_u8(value);
    }

    pub(crate) fn u16(&mut self, value: u16) {
        self.0.put_u16(value);
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.0.put_u32(value);
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.0.put_u64(value);
    }

    pub(crate) fn u128(&mut self, value: u128) {
        self.0.put_u128(value);
    }

    /// Writes at most 255 bytes behind their number.
    pub(crate) fn short(&mut self, bytes: &[u8]) {
        debug_assert!(bytes.len() <= 255);
        self.u8(bytes.len() as u8);
        self.0.put_slice(bytes);
    }

    /// Writes bytes behind their number.
    pub(crate) fn long(&mut self, bytes: &[u8]) {
        self.u32(bytes.len() as u32);
        self.0.put_slice(bytes);
    }

    pub(crate) fn into_bytes(self) -> Bytes {
        self.0.into()
    }
}

/// Takes fields off the front of bytes. Every method returns `None` if the bytes end before the field does.
pub(crate) struct Reader(Bytes);

impl Reader {
    pub(crate) fn new(bytes: Bytes) -> Reader {
        Reader(bytes)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn left(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.0.try_get_u8().ok()
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.0.try_get_u16().ok()
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.0.try_get_u32().ok()
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.0.try_get_u64().ok()
    }

    pub(crate) fn u128(&mut self) -> Option<u128> {
        self.0.try_get_u128().ok()
    }

    pub(crate) fn short(&mut self) -> Option<Bytes> {
        let length = self.u8()?;
        self.take(length.into())
    }

    /// Returns what [`Reader::u16`] returns next.
    pub(crate) fn u16_ahead(&self) -> Option<u16> {
        self.0.first_chunk().map(|bytes| u16::from_be_bytes(*bytes))
    }

    /// Takes what [`Reader::short`] returns.
    pub(crate) fn pass_over_short(&mut self) -> Option<()> {
        let length = usize::from(self.u8()?);
        (length <= self.0.len()).then(|| self.0.advance(length))
    }

    /// Returns the bytes behind their number, without copying them.
    pub(crate) fn long(&mut self) -> Option<Bytes> {
        let length = self.u32()?;
        self.take(length.try_into().ok()?)
    }

    fn take(&mut self, length: usize) -> Option<Bytes> {
        (length <= self.0.len()).then(|| self.0.split_to(length))
    }

    /// Returns this many values, each of at least one byte.
    pub(crate) fn many<T>(
        &mut self,
        count: usize,
        mut read: impl FnMut(&mut Reader) -> Option<T>,
    ) -> Option<Vec<T>> {
        if count > self.left() {
            return None;
        }
        (0..count).map(|_| read(self)).collect()
    }

    /// Returns a value that may be absent.
    pub(crate) fn optional<T>(&mut self, read: impl FnOnce(&mut Reader) -> Option<T>) -> Option<Option<T>> {
        match self.u8()? {
            0 => Some(None),
            1 => read(self).map(Some),
            _ => None,
        }
    }
}

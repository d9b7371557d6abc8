//! How datagrams are protected: sealed with a key that the caller's implementation holds, or with a checksum only.
//!
//! The core does no cryptography. It is handed a [`Protection`], which seals with an AEAD under a key derived from
//! the group key, the group instance and the sender's uid, with the packet number as nonce. A uid never lives twice
//! and a packet number is never used twice, so a nonce never is.

use crate::identity::{Instance, Uid};

/// Bytes of the tag that ends every datagram header.
pub const TAG_BYTES: usize = 16;

/// Whose key, and for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyContext {
    /// The founding; zero outside of membership.
    pub instance: Instance,
    /// The sender.
    pub sender: Uid,
}

/// Seals and opens datagrams.
pub trait Protection: Send {
    /// The value of the header's protection byte.
    fn kind(&self) -> ProtectionKind;

    /// Encrypts `payload` in place; returns the tag over it and `header` (the header's bytes before the tag).
    /// `number` is never given twice for one context.
    fn seal(
        &mut self,
        context: &KeyContext,
        number: u64,
        header: &[u8],
        payload: &mut [u8],
    ) -> [u8; TAG_BYTES];

    /// Decrypts `payload` in place; false, and `payload` of no use, if the tag does not fit.
    fn open(
        &mut self,
        context: &KeyContext,
        number: u64,
        header: &[u8],
        payload: &mut [u8],
        tag: &[u8; TAG_BYTES],
    ) -> bool;
}

/// What the protection byte of a header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ProtectionKind {
    /// CRC32C: finds accidents, stops nobody.
    Checksum = 0,
    /// An AEAD under the group key.
    Sealed = 1,
}

/// CRC32C over header and payload in the tag's first four bytes, the rest zero. For loopback and first steps: it
/// finds accidents, not attackers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Checksum;

impl Checksum {
    fn tag(header: &[u8], payload: &[u8]) -> [u8; TAG_BYTES] {
        let sum = crc32c::crc32c_append(crc32c::crc32c(header), payload);
        let mut tag = [0; TAG_BYTES];
        tag[..4].copy_from_slice(&sum.to_be_bytes());
        tag
    }
}

impl Protection for Checksum {
    fn kind(&self) -> ProtectionKind {
        ProtectionKind::Checksum
    }

    fn seal(&mut self, _: &KeyContext, _: u64, header: &[u8], payload: &mut [u8]) -> [u8; TAG_BYTES] {
        Checksum::tag(header, payload)
    }

    fn open(
        &mut self,
        _: &KeyContext,
        _: u64,
        header: &[u8],
        payload: &mut [u8],
        tag: &[u8; TAG_BYTES],
    ) -> bool {
        Checksum::tag(header, payload) == *tag
    }
}

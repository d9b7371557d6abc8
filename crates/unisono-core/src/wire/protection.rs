//! How datagrams are protected: sealed with a key that the caller's implementation holds, or with a checksum only.
//!
//! The core does no cryptography. It is handed a [`Protection`], which seals with an AEAD under a key derived from
//! the group key, the group instance and the sender's uid, with the packet number as nonce. A uid never lives twice
//! and a packet number is never used twice, so a nonce never is.

use super::header::parts;
use crate::identity::{Instance, Uid};
use core::mem;

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

    /// Encrypts the payload of a datagram in place, and fills in the tag, which was zero. `number` is never given
    /// twice for one context. [`parts`] says what is where.
    fn seal(&mut self, context: &KeyContext, number: u64, datagram: &mut [u8]);

    /// Decrypts the payload in place; false, and the payload of no use, if the tag does not fit. The tag is of no use
    /// afterwards.
    fn open(&mut self, context: &KeyContext, number: u64, datagram: &mut [u8]) -> bool;
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

/// CRC32C over the datagram with a tag of zeros, in the tag's first four bytes, the rest zero. For loopback and first
/// steps: it finds accidents, not attackers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Checksum;

impl Checksum {
    /// The tag of a datagram whose tag is zero.
    fn tag(datagram: &[u8]) -> [u8; TAG_BYTES] {
        let mut tag = [0; TAG_BYTES];
        tag[..4].copy_from_slice(&crc32c::crc32c(datagram).to_be_bytes());
        tag
    }
}

impl Protection for Checksum {
    fn kind(&self) -> ProtectionKind {
        ProtectionKind::Checksum
    }

    fn seal(&mut self, _: &KeyContext, _: u64, datagram: &mut [u8]) {
        let tag = Checksum::tag(datagram);
        if let Some(parts) = parts(datagram) {
            *parts.tag = tag;
        }
    }

    fn open(&mut self, _: &KeyContext, _: u64, datagram: &mut [u8]) -> bool {
        let Some(parts) = parts(datagram) else { return false };
        let tag = mem::take(parts.tag);
        tag == Checksum::tag(datagram)
    }
}

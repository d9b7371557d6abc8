//! How datagrams are protected: sealed with a key that the caller's implementation holds, or with a checksum only.
//!
//! The core does no cryptography. Its caller passes a [`Protection`], which seals with an AEAD. The key is derived from
//! the group key, the group instance, the sender's uid and a salt; the nonce is the packet number. A uid is never used for a
//! second life, and a packet number never twice, so no nonce is used twice. If the memory of a process is copied, the two
//! copies draw different salts as soon as the system gives them different random numbers.

use super::header::parts;
use crate::identity::{Instance, Uid};
use core::mem;

/// Bytes of the tag that ends every datagram header.
pub const TAG_BYTES: usize = 16;

/// What a datagram's key is derived from, besides the group key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyContext {
    /// The founding; zero outside of an epoch.
    pub instance: Instance,
    /// The uid of the datagram's sender.
    pub sender: Uid,
    /// The salt in the datagram's header.
    pub salt: u64,
}

/// Seals and opens datagrams.
pub trait Protection: Send {
    /// The value of the header's protection byte.
    fn kind(&self) -> ProtectionKind;

    /// Returns the salt for the next datagram: a random number that changes from time to time. 0 if there is no key to
    /// salt.
    fn salt(&mut self) -> u64;

    /// Encrypts the payload of a datagram in place, and fills in the tag, which is zero before. The caller never passes
    /// the same `number` twice for one context. [`parts`] finds the tag and the payload. Returns true if it did so;
    /// otherwise the datagram must not be sent: it may still be readable.
    #[must_use]
    fn seal(&mut self, context: &KeyContext, number: u64, datagram: &mut [u8]) -> bool;

    /// Decrypts the payload in place, and returns true if the tag fits. Otherwise the payload has no meaning
    /// afterwards. The tag has none in either case.
    fn open(&mut self, context: &KeyContext, number: u64, datagram: &mut [u8]) -> bool;
}

/// The value of a header's protection byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ProtectionKind {
    /// CRC32C: detects accidental damage, and stops no attacker.
    Checksum = 0,
    /// An AEAD under the group key.
    Sealed = 1,
}

/// CRC32C over the datagram with a tag of zeros, in the tag's first four bytes; the rest of the tag is zero. For
/// loopback and first steps: it detects accidental damage, and stops no attacker.
#[derive(Clone, Copy, Debug, Default)]
pub struct Checksum;

impl Checksum {
    /// Returns the tag of a datagram whose tag is zero.
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

    fn salt(&mut self) -> u64 {
        0
    }

    fn seal(&mut self, _: &KeyContext, _: u64, datagram: &mut [u8]) -> bool {
        let tag = Checksum::tag(datagram);
        let Some(parts) = parts(datagram) else { return false };
        *parts.tag = tag;
        true
    }

    fn open(&mut self, _: &KeyContext, _: u64, datagram: &mut [u8]) -> bool {
        let Some(parts) = parts(datagram) else { return false };
        let tag = mem::take(parts.tag);
        tag == Checksum::tag(datagram)
    }
}

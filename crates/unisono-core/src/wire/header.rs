//! The header that every datagram begins with, and the protection of the whole datagram.
//!
//! The header is never encrypted. It says which group a datagram is for, and which key opens it. Its last part is the
//! tag, which proves that neither the header nor the frames were changed on the way.

use super::protection::{KeyContext, Protection, ProtectionKind, TAG_BYTES};
use crate::identity::{EpochTag, GroupTag, Uid};
use alloc::vec::Vec;
use bytes::{Buf, Bytes, BytesMut};
use thiserror::Error;

/// The first two bytes of every datagram.
pub const MAGIC: [u8; 2] = *b"UN";
/// The version of the wire format.
pub const VERSION: u8 = 6;
/// Bytes of the header before its tag.
const UNTAGGED_BYTES: usize = 44;
/// Bytes that mean the same in every version: magic, version, protection, group tag.
const COMMON_BYTES: usize = 12;
/// Bytes of the header, tag included.
pub const HEADER_BYTES: usize = UNTAGGED_BYTES + TAG_BYTES;

/// The header of a datagram, without its tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// How the datagram is protected.
    pub protection: ProtectionKind,
    /// The group that the datagram is for.
    pub group: GroupTag,
    /// The epoch that the datagram belongs to.
    pub epoch: EpochTag,
    /// Uid of the sender.
    pub sender: Uid,
    /// Packet number: counts the datagrams of this sender, from 1.
    pub number: u64,
    /// Salt of the sender's key: see [`Protection::salt`].
    pub salt: u64,
}

/// Why a datagram is not in unisono's format, or not in a version that this code can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// The datagram is shorter than a header.
    #[error("shorter than the {HEADER_BYTES} bytes of a header")]
    TooShort,
    /// It does not begin with [`MAGIC`].
    #[error("it does not begin with \"UN\"")]
    Magic,
    /// It has another version of the wire format.
    #[error("it is of version {0} of the wire format; this is version {VERSION}")]
    Version(u8),
    /// Its kind of protection is unknown.
    #[error("its kind of protection, {0}, is unknown")]
    Protection(u8),
}

impl Header {
    /// Reads the header at the beginning of a datagram. This proves nothing: see [`open`].
    pub fn parse(datagram: &[u8]) -> Result<Header, HeaderError> {
        let Some(common) = datagram.first_chunk::<COMMON_BYTES>() else {
            return Err(HeaderError::TooShort);
        };
        if common[..2] != MAGIC {
            return Err(HeaderError::Magic);
        }
        if common[2] != VERSION {
            return Err(HeaderError::Version(common[2]));
        }
        let Some(header) = datagram.first_chunk::<HEADER_BYTES>() else {
            return Err(HeaderError::TooShort);
        };
        let protection = match header[3] {
            0 => ProtectionKind::Checksum,
            1 => ProtectionKind::Sealed,
            other => return Err(HeaderError::Protection(other)),
        };
        Ok(Header {
            protection,
            group: GroupTag(word(header, 4)),
            epoch: EpochTag(word(header, 12)),
            sender: Uid(word(header, 20)),
            number: word(header, 28),
            salt: word(header, 36),
        })
    }

    /// Appends the header to `out`, with a tag of zeros that [`seal`] fills in when the frames are complete.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.bytes());
    }

    /// Returns the header, with a tag of zeros.
    pub(crate) fn bytes(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..2].copy_from_slice(&MAGIC);
        (bytes[2], bytes[3]) = (VERSION, self.protection as u8);
        let words = [self.group.0, self.epoch.0, self.sender.0, self.number, self.salt];
        for (place, word) in bytes[4..].chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_be_bytes());
        }
        bytes
    }
}

/// The parts of a datagram, for a [`Protection`].
#[derive(Debug)]
pub struct Parts<'a> {
    /// The header before its tag. The tag proves it; it is never encrypted.
    pub header: &'a [u8],
    /// Proves the header and the payload.
    pub tag: &'a mut [u8; TAG_BYTES],
    /// The frames.
    pub payload: &'a mut [u8],
}

/// Splits a datagram into its parts. `None` if it is shorter than a header.
pub fn parts(datagram: &mut [u8]) -> Option<Parts<'_>> {
    let (front, payload) = datagram.split_first_chunk_mut::<HEADER_BYTES>()?;
    let (header, tag) = front.split_last_chunk_mut()?;
    Some(Parts { header, tag, payload })
}

/// Returns the group that a datagram of any version claims to be for. A driver needs no more to find the receiver. `None`
/// if the datagram is too short for a group tag or does not begin with [`MAGIC`].
pub fn group_tag(datagram: &[u8]) -> Option<GroupTag> {
    let common = datagram.first_chunk::<COMMON_BYTES>()?;
    (common[..2] == MAGIC).then(|| GroupTag(word(common, 4)))
}

/// Seals a finished datagram in place: encrypts what follows the header, and fills in the tag.
///
/// `datagram` begins with `header` as [`Header::write`] wrote it. `header.protection` is the kind of `protection`. Returns
/// false if it could not be sealed: it must not be sent.
#[must_use]
pub fn seal(
    datagram: &mut [u8],
    header: &Header,
    context: &KeyContext,
    protection: &mut dyn Protection,
) -> bool {
    debug_assert_eq!(Header::parse(datagram).as_ref(), Ok(header));
    debug_assert_eq!(header.protection, protection.kind());
    debug_assert_eq!(datagram[UNTAGGED_BYTES..HEADER_BYTES], [0; TAG_BYTES]);
    protection.seal(context, header.number, datagram)
}

/// Opens a datagram whose `header` was parsed from it. Returns the frames, decrypted in place and not copied. `None` if
/// the tag does not fit, or if the header states another kind of protection than `protection` has.
pub fn open(
    mut datagram: BytesMut,
    header: &Header,
    context: &KeyContext,
    protection: &mut dyn Protection,
) -> Option<Bytes> {
    open_in_place(&mut datagram, header, context, protection).then(|| {
        datagram.advance(HEADER_BYTES);
        datagram.freeze()
    })
}

/// Opens a datagram as [`open`] does, and leaves its header in front of the frames. Returns false if it does not open.
pub(crate) fn open_in_place(
    datagram: &mut [u8],
    header: &Header,
    context: &KeyContext,
    protection: &mut dyn Protection,
) -> bool {
    header.protection == protection.kind() && protection.open(context, header.number, datagram)
}

/// Returns the eight bytes at `offset` of a header.
fn word(header: &[u8], offset: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&header[offset..offset + 8]);
    u64::from_be_bytes(word)
}

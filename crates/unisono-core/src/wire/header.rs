//! The header that every datagram begins with.

use crate::identity::{EpochTag, GroupTag, Uid};
use super::protection::{ProtectionKind, TAG_BYTES};

/// The first two bytes of every datagram.
pub const MAGIC: [u8; 2] = *b"UN";
/// The version of the wire format.
pub const VERSION: u8 = 1;
/// Bytes of the header, tag included.
pub const HEADER_BYTES: usize = 36 + TAG_BYTES;

/// What stands before the frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// How the datagram is protected.
    pub protection: ProtectionKind,
    /// Which group it is for.
    pub group: GroupTag,
    /// Which epoch it belongs to.
    pub epoch: EpochTag,
    /// Who sent it.
    pub sender: Uid,
    /// Its number among those of its sender, from 1.
    pub number: u64,
}

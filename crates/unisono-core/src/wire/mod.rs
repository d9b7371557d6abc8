//! The wire: a datagram is a header and the frames packed into it. Nothing else in the project knows how they lie
//! in bytes.

mod frame;
mod header;
mod protection;

pub use frame::*;
pub use header::{HEADER_BYTES, Header, MAGIC, VERSION};
pub use protection::{Checksum, KeyContext, Protection, ProtectionKind, TAG_BYTES};

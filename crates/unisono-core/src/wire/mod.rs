//! The wire format. A datagram is a header followed by frames; each frame is one statement or question of the protocol,
//! such as a message with its seqno or a request to join. All knowledge of how these lie in bytes is in this module.
//!
//! | | |
//! |---|---|
//! | `frame` | the frames and their fields |
//! | `header`, `protection` | the datagram's header, and the tag that proves it genuine |
//! | `kind` | the frames' numbers |
//! | `codec`, on `parts`, `reader` and `writer` | frames to bytes and back |
//! | `pieces` | the messages of a run, not copied |
//! | `parcel` | frames larger than a datagram |
//! | `report` | the report that a member sends in answer to a status query |
//! | `calls` | the frames of calls |
//! | `replay` | which datagrams were received before |
//! | `explain` | datagrams as text for people |

mod calls;
mod codec;
mod envelope;
mod explain;
mod frame;
mod header;
mod kind;
mod parcel;
mod parts;
mod pieces;
mod protection;
mod reader;
mod replay;
mod report;
mod writer;

pub use calls::*;
pub use codec::Decoder;
pub(crate) use envelope::{ENVELOPE_BYTES_MAX, close, enclose, find, has_envelope};
pub use envelope::{Envelope, EnvelopeHead, Opening};
pub use explain::{Explainer, explain};
pub use frame::*;
pub(crate) use header::open_in_place;
pub use header::{HEADER_BYTES, Header, HeaderError, MAGIC, Parts, VERSION, group_tag, open, parts, seal};
pub use kind::FrameKind;
pub use parcel::{Assembler, cut};
pub use pieces::PiecesIter;
pub use protection::{Checksum, KeyContext, Protection, ProtectionKind, TAG_BYTES};
pub use reader::{Fault, FrameError};
pub use replay::{REPLAY_WINDOW, ReplayWindow};
pub use report::{REPORT_BYTES_MIN, decode_report, encode_report};
pub use writer::{
    FRAME_HEAD_BYTES, PADDED_BYTES, PADDED_BYTES_MIN, PIECE_HEAD_BYTES, RunHead, Writer, piece_bytes_max,
    run_overhead, unreliable_bytes_max,
};

/// The highest seqno, message number or epoch counter on the wire. The sum of two of them does not overflow a `u64`.
pub const NUMBER_MAX: u64 = (1 << 63) - 1;
/// Maximum number of members of a group, and of names in a fixed list.
pub const MEMBERS_MAX: usize = 4096;
/// Maximum number of parcels that one frame is cut into.
pub const PARCELS_MAX: usize = 4096;
/// The bit in the length of a piece that says: the next message number continues this message.
const MORE: u16 = 1 << 15;

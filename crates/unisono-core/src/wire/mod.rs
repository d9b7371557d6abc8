//! The wire: a datagram is a header and the frames packed into it. Nothing else in the project knows how they lie
//! in bytes.
//!
//! | | |
//! |---|---|
//! | `frame` | what there is to say |
//! | `header`, `protection` | what stands before it, and what proves that it is genuine |
//! | `kind` | the frames' numbers |
//! | `codec`, on `parts`, `reader` and `writer` | frames to bytes and back |
//! | `pieces` | the messages of a run, not copied |
//! | `parcel` | frames larger than a datagram |
//! | `report` | what is told to whoever looks from outside |
//! | `calls` | what calls say |
//! | `replay` | which datagrams were seen before |
//! | `explain` | datagrams in words |

mod calls;
mod codec;
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
pub use explain::{Explainer, explain};
pub use frame::*;
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
    run_overhead,
};

/// The highest place, message number or epoch counter on the wire. Two of them can be added without a thought.
pub const PLACE_MAX: u64 = (1 << 63) - 1;
/// Most members of a group, and most names in a fixed list.
pub const MEMBERS_MAX: usize = 4096;
/// Most parcels that one frame is cut into.
pub const PARCELS_MAX: usize = 4096;
/// Set in the length of a piece that the next message number continues.
const MORE: u16 = 1 << 15;

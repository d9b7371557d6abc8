//! The table of frame kinds: the numbers of the frames, and the bytes of their shortest bodies.

use super::frame::Frame;
use super::writer::{FRAME_HEAD_BYTES, PADDED_BYTES_MIN};
use core::fmt;

/// Makes [`FrameKind`] from lines of: name, number, bytes of the shortest body.
macro_rules! kinds {
    ($($name:ident = $number:literal, $bytes_min:expr;)*) => {
        /// The first byte of a frame: it selects one of [`Frame`]'s variants.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum FrameKind {
            $(#[doc = concat!("See [`Frame::", stringify!($name), "`].")] $name = $number,)*
        }

        impl FrameKind {
            /// All kinds, by number.
            pub const ALL: &'static [FrameKind] = &[$(FrameKind::$name),*];

            /// Returns the kind with this number, if there is one.
            pub fn from_number(number: u8) -> Option<FrameKind> {
                match number {
                    $($number => Some(FrameKind::$name),)*
                    _ => None,
                }
            }

            /// True if clients and servers send this frame, rather than members of groups.
            pub fn is_of_calls(self) -> bool {
                self >= FrameKind::LocatePort
            }

            /// Returns the variant's name.
            pub fn name(self) -> &'static str {
                match self {
                    $(FrameKind::$name => stringify!($name),)*
                }
            }

            /// Returns the bytes of the shortest body that a frame of this kind can have.
            pub const fn body_bytes_min(self) -> usize {
                match self {
                    $(FrameKind::$name => $bytes_min,)*
                }
            }
        }

        impl Frame {
            /// Returns the frame's kind.
            pub fn kind(&self) -> FrameKind {
                match self {
                    $(Frame::$name { .. } => FrameKind::$name,)*
                }
            }
        }
    };
}

/// Fewest bytes of the body of a padded frame: see [`PADDED_BYTES_MIN`].
const QUESTION_BYTES_MIN: usize = PADDED_BYTES_MIN - FRAME_HEAD_BYTES;

kinds! {
    // ordering
    Data = 0x01, 30;
    Ordered = 0x02, 29;
    Numbers = 0x03, 27;
    Change = 0x04, 17;
    Heartbeat = 0x05, 40;
    Watermarks = 0x06, 30;
    Nack = 0x07, 18;
    Want = 0x08, 16;
    Gone = 0x09, 8;
    Unreliable = 0x0a, 8;
    // liveness
    Probe = 0x10, 8;
    Alive = 0x11, 8;
    Confirm = 0x12, 8;
    Confirmed = 0x13, 16;
    // notes
    Note = 0x18, 16;
    // finding, joining, leaving
    Locate = 0x20, QUESTION_BYTES_MIN;
    HereIs = 0x21, 58;
    JoinRequest = 0x22, 14;
    Welcome = 0x23, 155;
    Refused = 0x24, 9;
    LeaveRequest = 0x25, 10;
    Farewell = 0x26, 16;
    Met = 0x27, 49;
    SwitchRequest = 0x28, 9;
    // reset
    Invite = 0x30, 14;
    Vote = 0x31, 32;
    Outbid = 0x32, 12;
    Pull = 0x33, 28;
    Level = 0x34, 12;
    Prepare = 0x35, 79;
    Prepared = 0x36, 12;
    Decided = 0x37, 46;
    Inquiry = 0x38, QUESTION_BYTES_MIN;
    Excluded = 0x39, 48;
    // status queries
    Ask = 0x40, QUESTION_BYTES_MIN;
    Tell = 0x41, 8;
    Force = 0x42, QUESTION_BYTES_MIN;
    Forcing = 0x43, 17;
    Switch = 0x44, QUESTION_BYTES_MIN;
    Switching = 0x45, 17;
    // frames larger than a datagram
    Parcel = 0x50, 8;
    // forming a group
    Form = 0x60, QUESTION_BYTES_MIN;
    FormPromise = 0x61, 40;
    FormRefused = 0x62, 40;
    FormPrepare = 0x63, 132;
    FormPrepared = 0x64, 20;
    Formed = 0x65, 124;
    FormEcho = 0x66, 30;
    // calls
    LocatePort = 0x70, QUESTION_BYTES_MIN;
    PortHere = 0x71, 181;
    PortNotHere = 0x72, 31;
    Request = 0x73, 57;
    Reply = 0x74, 24;
    Reject = 0x75, 23;
    Forward = 0x76, 29;
    Working = 0x77, 22;
    Part = 0x78, 22;
    Got = 0x79, 55;
    Done = 0x7a, 18;
    Cancel = 0x7b, 18;
    Envelope = 0x7c, 33;
    Unopened = 0x7d, 17;
}

impl fmt::Display for FrameKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

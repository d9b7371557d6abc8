//! The table of frame kinds: the one place where frames have numbers.

use super::frame::Frame;
use core::fmt;

/// Makes [`FrameKind`] from lines of: name, number, bytes of the body that every frame of this kind has.
macro_rules! kinds {
    ($($name:ident = $number:literal, $fixed:literal;)*) => {
        /// The first byte of a frame: which of [`Frame`]'s variants it is.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum FrameKind {
            $(#[doc = concat!("See [`Frame::", stringify!($name), "`].")] $name = $number,)*
        }

        impl FrameKind {
            /// All kinds, by number.
            pub const ALL: &'static [FrameKind] = &[$(FrameKind::$name),*];

            /// The kind of this number, if there is one.
            pub fn from_number(number: u8) -> Option<FrameKind> {
                match number {
                    $($number => Some(FrameKind::$name),)*
                    _ => None,
                }
            }

            /// The variant's name.
            pub fn name(self) -> &'static str {
                match self {
                    $(FrameKind::$name => stringify!($name),)*
                }
            }

            /// Bytes of those fields of the body that have the same length in every frame of this kind. No body
            /// is shorter.
            pub const fn fixed_bytes(self) -> usize {
                match self {
                    $(FrameKind::$name => $fixed,)*
                }
            }
        }

        impl Frame {
            /// Which kind of frame this is.
            pub fn kind(&self) -> FrameKind {
                match self {
                    $(Frame::$name { .. } => FrameKind::$name,)*
                }
            }
        }
    };
}

kinds! {
    // ordering
    Data = 0x01, 28;
    Ordered = 0x02, 27;
    Numbers = 0x03, 27;
    Change = 0x04, 9;
    Heartbeat = 0x05, 38;
    Watermarks = 0x06, 29;
    Nack = 0x07, 2;
    Want = 0x08, 16;
    Gone = 0x09, 8;
    // liveness
    Probe = 0x10, 8;
    Alive = 0x11, 8;
    // finding, joining, leaving
    Locate = 0x20, 8;
    HereIs = 0x21, 43;
    JoinRequest = 0x22, 11;
    Welcome = 0x23, 116;
    Refused = 0x24, 1;
    LeaveRequest = 0x25, 2;
    Farewell = 0x26, 8;
    // reset
    Invite = 0x30, 12;
    Vote = 0x31, 29;
    Outbid = 0x32, 12;
    Pull = 0x33, 28;
    Level = 0x34, 12;
    Prepare = 0x35, 16;
    Prepared = 0x36, 12;
    Decided = 0x37, 1;
    Inquiry = 0x38, 0;
    Excluded = 0x39, 24;
    // looking from outside
    Ask = 0x40, 8;
    Tell = 0x41, 8;
    // what is too large for one datagram
    Parcel = 0x50, 8;
}

impl fmt::Display for FrameKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

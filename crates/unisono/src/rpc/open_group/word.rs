//! The messages of an open group's members to each other, in the group's order.

use bytes::{Buf, BufMut, Bytes};
use unisono_core::rpc::CallNumber;
use unisono_core::{Seqno, Uid};

/// A message. See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// A client's call.
    Command(Command),
    /// A part of the state that a joiner lacks.
    State(StatePart),
}

/// A call, as the member that received it submits it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Command {
    pub(super) client: Uid,
    pub(super) call: CallNumber,
    pub(super) finished_below: CallNumber,
    /// Time in milliseconds for which the client still waits.
    pub(super) left_ms: u64,
    /// Time in milliseconds at which it was submitted, by the member's own clock.
    pub(super) stamp_ms: u64,
    pub(super) payload: Bytes,
}

/// A part of the state, for a joiner. Parts follow each other in the order, except those that a reset drops.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StatePart {
    /// Uid of the joiner.
    pub(super) to: Uid,
    /// The state includes everything through this seqno. The seqno and the sending member name the parts of one
    /// state.
    pub(super) through: Seqno,
    /// Number of the part, from 0.
    pub(super) index: u32,
    /// True for the last part.
    pub(super) is_last: bool,
    pub(super) bytes: Bytes,
}

const COMMAND: u8 = 1;
const STATE: u8 = 2;

impl Word {
    pub(super) fn write(&self) -> Bytes {
        let mut out = Vec::new();
        match self {
            Word::Command(command) => {
                out.put_u8(COMMAND);
                for number in [
                    command.client.0,
                    command.call,
                    command.finished_below,
                    command.left_ms,
                    command.stamp_ms,
                ] {
                    out.put_u64(number);
                }
                out.put_slice(&command.payload);
            }
            Word::State(part) => {
                out.put_u8(STATE);
                out.put_u64(part.to.0);
                out.put_u64(part.through);
                out.put_u32(part.index);
                out.put_u8(part.is_last.into());
                out.put_slice(&part.bytes);
            }
        }
        out.into()
    }

    /// Returns the message, or `None` if the bytes are not valid.
    pub(super) fn read(mut from: Bytes) -> Option<Word> {
        Some(match from.try_get_u8().ok()? {
            COMMAND => Word::Command(Command {
                client: Uid(from.try_get_u64().ok()?),
                call: from.try_get_u64().ok()?,
                finished_below: from.try_get_u64().ok()?,
                left_ms: from.try_get_u64().ok()?,
                stamp_ms: from.try_get_u64().ok()?,
                payload: from,
            }),
            STATE => Word::State(StatePart {
                to: Uid(from.try_get_u64().ok()?),
                through: from.try_get_u64().ok()?,
                index: from.try_get_u32().ok()?,
                is_last: from.try_get_u8().ok()? != 0,
                bytes: from,
            }),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_they_were_written() {
        let command = Command {
            client: Uid(1),
            call: 2,
            finished_below: 3,
            left_ms: 4,
            stamp_ms: 5,
            payload: "add".into(),
        };
        let part = StatePart { to: Uid(1), through: 2, index: 3, is_last: true, bytes: "".into() };
        for word in [Word::Command(command), Word::State(part)] {
            let bytes = word.write();
            assert_eq!(Word::read(bytes.clone()), Some(word.clone()));
            assert_eq!(Word::read(bytes.slice(..16)), None);
        }
        assert_eq!(Word::read(Bytes::new()), None);
        assert_eq!(Word::read("x".into()), None);
    }
}

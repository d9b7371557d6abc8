//! What members of an open group say to each other, in the group's order.

use bytes::{Buf, BufMut, Bytes};
use unisono_core::rpc::CallNumber;
use unisono_core::{Seqno, Uid};

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// Somebody called.
    Command(Command),
    /// What a newcomer lacks.
    State {
        /// The newcomer.
        to: Uid,
        /// Everything up to this place is in it.
        through: Seqno,
        /// The state.
        bytes: Bytes,
    },
}

/// A call, as the member puts it that received it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Command {
    pub(super) client: Uid,
    pub(super) call: CallNumber,
    pub(super) finished_below: CallNumber,
    /// How long the client still waits.
    pub(super) left_ms: u64,
    /// When it was submitted, by the member's own clock.
    pub(super) stamp_ms: u64,
    pub(super) payload: Bytes,
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
            Word::State { to, through, bytes } => {
                out.put_u8(STATE);
                out.put_u64(to.0);
                out.put_u64(*through);
                out.put_slice(bytes);
            }
        }
        out.into()
    }

    /// Nothing, if it is none.
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
            STATE => Word::State {
                to: Uid(from.try_get_u64().ok()?),
                through: from.try_get_u64().ok()?,
                bytes: from,
            },
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
        let state = Word::State { to: Uid(1), through: 2, bytes: "".into() };
        for word in [Word::Command(command), state] {
            let bytes = word.write();
            assert_eq!(Word::read(bytes.clone()), Some(word.clone()));
            assert_eq!(Word::read(bytes.slice(..16)), None);
        }
        assert_eq!(Word::read(Bytes::new()), None);
        assert_eq!(Word::read("x".into()), None);
    }
}

//! The messages of replicas to each other, in the group's order.

use super::disk::Heard;
use super::durable::{Place, RoundWord};
use super::machine::Position;
use super::types::Digest;
use crate::identity::{Seqno, Uid};
use crate::quality::Quality;
use crate::rpc::CallNumber;
use crate::wire::Wishes;
use alloc::boxed::Box;
use alloc::vec::Vec;
use bytes::{Buf, BufMut, Bytes};

/// A message. See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// A command.
    Command(Ordered),
    /// The sender has the state from here on.
    HasState,
    /// Clients, each of which needs no outcome of its commands with lower numbers.
    Finished(Vec<(Uid, CallNumber)>),
    /// The sender's digest of all outcomes through this position.
    Digest { position: Position, digest: Digest },
    /// The sender's disk has the log through this place, in this generation.
    Synced { generation: u64, place: Place },
    /// With durability *one*: the sender's disk has the view with this number, in this generation.
    ViewWritten { generation: u64, number: u64 },
    /// The sender's disk has the state that it fetched, and counts from here on.
    OnDisk(Heard),
    /// The service is open: a newcomer is to fetch the state.
    IsOpen,
    /// The sender is in the line of this handler from here on.
    Claim(Box<str>),
    /// The sender is not in the line of this handler any longer.
    GiveUp(Box<str>),
    /// Belongs to the recovery that began with the event of this seqno.
    Round { key: Seqno, word: RoundWord },
}

/// A command, as the member that received it submits it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ordered {
    pub(super) client: Uid,
    pub(super) call: CallNumber,
    pub(super) finished_below: CallNumber,
    /// Time in milliseconds for which the client still waits.
    pub(super) left_ms: u64,
    /// Time in milliseconds at which it was submitted, by the member's own clock.
    pub(super) stamp_ms: u64,
    /// Quality that the client asks for. It is that of the message, and not in its bytes.
    pub(super) quality: Quality,
    pub(super) payload: Bytes,
}

/// Bytes of a message beside the payload of its command.
pub(super) const COMMAND_HEAD_BYTES: usize = 41;

const COMMAND: u8 = 1;
const HAS_STATE: u8 = 2;
const FINISHED: u8 = 3;
const DIGEST: u8 = 4;
const SYNCED: u8 = 5;
const ON_DISK: u8 = 6;
const IS_OPEN: u8 = 7;
const ROUND: u8 = 8;
const VIEW_WRITTEN: u8 = 9;
const CLAIM: u8 = 10;
const GIVE_UP: u8 = 11;

impl Word {
    pub(super) fn write(&self) -> Bytes {
        let mut out = Vec::new();
        match self {
            Word::Command(command) => {
                out.reserve(COMMAND_HEAD_BYTES + command.payload.len());
                out.put_u8(COMMAND);
                out.put_u64(command.client.0);
                let numbers = [command.call, command.finished_below, command.left_ms, command.stamp_ms];
                numbers.into_iter().for_each(|number| out.put_u64(number));
                out.put_slice(&command.payload);
            }
            Word::HasState => out.put_u8(HAS_STATE),
            Word::Finished(clients) => {
                out.put_u8(FINISHED);
                out.put_u32(clients.len() as u32);
                for (client, below) in clients {
                    out.put_u64(client.0);
                    out.put_u64(*below);
                }
            }
            Word::Digest { position, digest } => {
                out.put_u8(DIGEST);
                out.put_u64(*position);
                out.put_slice(digest);
            }
            Word::Synced { generation, place } => {
                out.put_u8(SYNCED);
                out.put_u64(*generation);
                out.put_u64(*place);
            }
            Word::ViewWritten { generation, number } => {
                out.put_u8(VIEW_WRITTEN);
                out.put_u64(*generation);
                out.put_u64(*number);
            }
            Word::OnDisk(disk) => {
                out.put_u8(ON_DISK);
                let numbers = [disk.disk, disk.generation, disk.starts, disk.position];
                numbers.into_iter().for_each(|number| out.put_u64(number));
            }
            Word::IsOpen => out.put_u8(IS_OPEN),
            Word::Claim(name) => write_handler(&mut out, CLAIM, name),
            Word::GiveUp(name) => write_handler(&mut out, GIVE_UP, name),
            Word::Round { key, word } => {
                out.put_u8(ROUND);
                out.put_u64(*key);
                word.write(&mut out);
            }
        }
        out.into()
    }

    /// Returns the message, or `None` if the bytes are not valid.
    pub(super) fn read(mut from: Bytes) -> Option<Word> {
        Some(match from.try_get_u8().ok()? {
            COMMAND => Word::Command(Ordered {
                client: Uid(from.try_get_u64().ok()?),
                call: from.try_get_u64().ok()?,
                finished_below: from.try_get_u64().ok()?,
                left_ms: from.try_get_u64().ok()?,
                stamp_ms: from.try_get_u64().ok()?,
                quality: Quality::ORDERED,
                payload: from,
            }),
            HAS_STATE => Word::HasState,
            FINISHED => {
                let mut clients = Vec::new();
                for _ in 0..from.try_get_u32().ok()? {
                    clients.push((Uid(from.try_get_u64().ok()?), from.try_get_u64().ok()?));
                }
                Word::Finished(clients)
            }
            DIGEST => {
                let position = from.try_get_u64().ok()?;
                let mut digest = Digest::default();
                from.try_copy_to_slice(&mut digest).ok()?;
                Word::Digest { position, digest }
            }
            SYNCED => Word::Synced { generation: from.try_get_u64().ok()?, place: from.try_get_u64().ok()? },
            VIEW_WRITTEN => {
                Word::ViewWritten { generation: from.try_get_u64().ok()?, number: from.try_get_u64().ok()? }
            }
            ON_DISK => Word::OnDisk(Heard {
                disk: from.try_get_u64().ok()?,
                generation: from.try_get_u64().ok()?,
                starts: from.try_get_u64().ok()?,
                position: from.try_get_u64().ok()?,
            }),
            IS_OPEN => Word::IsOpen,
            CLAIM => Word::Claim(read_handler(&from)?),
            GIVE_UP => Word::GiveUp(read_handler(&from)?),
            ROUND => Word::Round { key: from.try_get_u64().ok()?, word: RoundWord::read(&mut from)? },
            _ => return None,
        })
    }
}

/// Writes a message about a handler.
fn write_handler(out: &mut Vec<u8>, kind: u8, name: &str) {
    out.put_u8(kind);
    out.put_u8(name.len() as u8);
    out.put_slice(name.as_bytes());
}

fn read_handler(from: &Bytes) -> Option<Box<str>> {
    let (length, name) = from.split_first()?;
    let name = core::str::from_utf8(name).ok().filter(|name| name.len() == usize::from(*length))?;
    Wishes::is_handler(name).then(|| name.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_they_were_written_and_nothing_shorter_is() {
        let command = Ordered {
            client: Uid(1),
            call: 2,
            finished_below: 3,
            left_ms: 4,
            stamp_ms: 5,
            quality: Quality::ORDERED,
            payload: Bytes::new(),
        };
        let words = [
            Word::Command(command),
            Word::HasState,
            Word::Finished([(Uid(7), 9), (Uid(8), 10)].into()),
            Word::Digest { position: 1024, digest: [5; 32] },
            Word::Synced { generation: 3, place: 4 },
            Word::ViewWritten { generation: 3, number: 5 },
            Word::OnDisk(Heard { disk: 1, generation: 2, starts: 3, position: 4 }),
            Word::IsOpen,
            Word::Claim("desk".into()),
            Word::GiveUp("desk".into()),
            Word::Round { key: 6, word: RoundWord::Promised },
        ];
        for word in words {
            let bytes = word.write();
            assert_eq!(Word::read(bytes.clone()), Some(word));
            for end in 0..bytes.len() {
                assert_eq!(Word::read(bytes.slice(..end)), None);
            }
        }
        assert_eq!(Word::read(Bytes::from_static(b"x")), None);
    }
}

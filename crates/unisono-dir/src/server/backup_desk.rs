//! Gives the state to owners of the root, as pieces of a backup. Commands go on meanwhile: what is given shares memory with
//! the state as it was when the backup began.
//!
//! A client begins with the root's capability, and learns the number under which this server keeps the backup. It fetches
//! the bytes from the same server, and shows the capability with each question.

use super::Shared;
use crate::archive::{Backup, number_in};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use unisono::rpc::{PrivatePort, Request, Server};
use unisono_table::{
    CAPABILITY_BYTES, Capability, Check, ObjectNumber, Port, Query, Request as TableRequest, Rights,
};

/// Maximum number of bytes in one answer: 1 MiB.
pub(crate) const PIECE_BYTES_MAX: usize = 1 << 20;
/// Maximum number of backups that a server keeps at the same time.
const BACKUPS_MAX: usize = 2;
/// Time for which a backup is kept after the last question.
const KEPT_FOR: Duration = Duration::from_secs(60);
/// Interval at which the desk looks whether this server still serves, and for backups that no client asks for any more.
const LOOKS_EVERY: Duration = Duration::from_millis(100);
/// Maximum number of questions that wait.
const QUESTIONS_MAX: u16 = 64;
/// Refusals, after which a client begins again, at another server if there is one.
const NOT_HERE: &str = "this server does not serve at present";
const NOT_KEPT: &str = "this server does not keep that backup for you";
const NO_QUESTION: &str = "this port takes the questions of a backup";

/// What a server says when a backup begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Begun {
    /// Where it is kept.
    pub(crate) at: SocketAddr,
    pub(crate) id: u64,
    /// Length in bytes, without the digest.
    pub(crate) bytes: u64,
    /// Number of the last command in it.
    pub(crate) number: u64,
}

/// Why a question has no answer.
enum Refusal {
    /// The reply of the table: its client does not own the root.
    NotOwner(Bytes),
    Reason(&'static str),
}

/// A backup that is being fetched.
struct Kept {
    id: u64,
    pieces: Vec<Bytes>,
    /// Where each piece begins.
    begins: Vec<u64>,
    bytes: u64,
    asked_at: Instant,
}

/// Answers while this server serves, until it has ended.
pub(super) fn run(shared: &Arc<Shared>, port: &PrivatePort) {
    while !shared.has_ended() {
        // Another server of this process may serve the port.
        match shared.is_serving().then(|| shared.open(port, QUESTIONS_MAX)) {
            Some(Ok(server)) => {
                serve(shared, &server);
                // Questions that wait go to another server.
                let _ = server.drain(Duration::ZERO);
            }
            _ => std::thread::sleep(LOOKS_EVERY),
        }
    }
}

/// Answers until this server does not serve any more. The backups that it keeps end with that.
fn serve(shared: &Shared, server: &Server) {
    let mut kept = VecDeque::new();
    while shared.is_serving() {
        let Ok(request) = server.get_request_aside(Some(LOOKS_EVERY)) else { return };
        kept.retain(|backup: &Kept| backup.asked_at.elapsed() < KEPT_FOR);
        // All that wait share one confirmation: anyone with the clients' key may ask.
        let more = std::iter::from_fn(|| server.get_request_aside(Some(Duration::ZERO)).ok().flatten());
        let waiting: Vec<Request> =
            request.into_iter().chain(more.take(usize::from(QUESTIONS_MAX))).collect();
        let (pieces, others): (Vec<_>, Vec<_>) =
            waiting.into_iter().partition(|request| PieceQuestion::decode(request.payload()).is_some());
        for request in pieces {
            if let Some(question) = PieceQuestion::decode(request.payload()) {
                answer(request, give(shared, &mut kept, &question));
            }
        }
        if !others.is_empty() {
            // After this the state has everything that was answered before.
            let is_confirmed = shared.replica.barrier().is_ok();
            for request in others {
                let begun = match is_confirmed {
                    true => begin(shared, &mut kept, request.payload(), server.address()),
                    false => Err(Refusal::Reason(NOT_HERE)),
                };
                answer(request, begun);
            }
        }
    }
}

/// Answers a question. If that fails, the client does not wait any longer.
fn answer(request: Request, answer: Result<Bytes, Refusal>) {
    let _ = match answer {
        Ok(reply) => request.reply(reply),
        Err(Refusal::NotOwner(reply)) => request.deny(reply),
        Err(Refusal::Reason(reason)) => request.refuse(reason),
    };
}

/// Begins a backup for an owner of the root. The question is one for files that owners may ask, with the same refusals.
fn begin(
    shared: &Shared,
    kept: &mut VecDeque<Kept>,
    question: &Bytes,
    at: SocketAddr,
) -> Result<Bytes, Refusal> {
    let owner = match TableRequest::decode(question) {
        Some(TableRequest::Query(Query::Files { owner, .. })) => owner,
        _ => return Err(Refusal::Reason(NO_QUESTION)),
    };
    let refusal = shared.replica.look(|directory| match directory.table().require_owner(&owner) {
        Ok(()) => None,
        Err(_) => Some(directory.table().answer(question)),
    });
    if let Some(refusal) = refusal {
        return Err(Refusal::NotOwner(refusal));
    }
    let not_here = Refusal::Reason(NOT_HERE);
    let Some(state) = shared.replica.disk_state() else { return Err(not_here) };
    let (Some(number), Ok(check)) = (number_in(&state.parts), crate::random_check()) else {
        return Err(not_here);
    };
    let id = check.to_bits() as u64;
    let backup = Kept::new(id, Backup { number, state }.pieces());
    let begun = Begun { at, id, bytes: backup.bytes, number };
    kept.push_back(backup);
    if kept.len() > BACKUPS_MAX {
        kept.pop_front();
    }
    Ok(begun.encode())
}

/// Returns a piece, to an owner of the root: a question does not prove that it comes from the client that began.
fn give(shared: &Shared, kept: &mut VecDeque<Kept>, question: &PieceQuestion) -> Result<Bytes, Refusal> {
    let owns = shared.replica.look(|directory| directory.table().require_owner(&question.owner)).is_ok();
    let backup = kept.iter_mut().find(|backup| owns && backup.id == question.id);
    let backup = backup.ok_or(Refusal::Reason(NOT_KEPT))?;
    backup.asked_at = Instant::now();
    Ok(backup.read(question.offset))
}

impl Kept {
    fn new(id: u64, pieces: Vec<Bytes>) -> Kept {
        let mut bytes = 0;
        let begins = pieces.iter().map(|piece| {
            bytes += piece.len() as u64;
            bytes - piece.len() as u64
        });
        let begins = begins.collect();
        Kept { id, pieces, begins, bytes, asked_at: Instant::now() }
    }

    /// Returns the bytes from here on, at most as many as one answer has.
    fn read(&self, offset: u64) -> Bytes {
        let mut out = BytesMut::new();
        let first = self.begins.partition_point(|begin| *begin <= offset).saturating_sub(1);
        for (piece, begin) in self.pieces.iter().zip(&self.begins).skip(first) {
            let skipped =
                usize::try_from(offset.saturating_sub(*begin)).unwrap_or(usize::MAX).min(piece.len());
            let room = PIECE_BYTES_MAX - out.len();
            out.put_slice(&piece[skipped..piece.len().min(skipped + room)]);
            if out.len() == PIECE_BYTES_MAX {
                break;
            }
        }
        out.freeze()
    }
}

/// Returns the question with which a backup begins.
pub(crate) fn begin_question(owner: Capability) -> Bytes {
    TableRequest::Query(Query::Files { owner, after: Default::default() }).encode()
}

/// A question for the bytes of a backup from an offset on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PieceQuestion {
    /// The root's capability with all rights.
    pub(crate) owner: Capability,
    pub(crate) id: u64,
    pub(crate) offset: u64,
}

impl PieceQuestion {
    /// First byte of the question. Other questions are those of tables.
    const MARK: u8 = 0xb1;

    pub(crate) fn encode(self) -> Bytes {
        let mut out = Vec::with_capacity(1 + CAPABILITY_BYTES + 16);
        out.put_u8(PieceQuestion::MARK);
        out.put_u128(self.owner.port.0);
        out.put_u64(self.owner.object.0);
        out.put_u8(self.owner.rights.0);
        out.put_u128(self.owner.check.to_bits());
        out.put_u64(self.id);
        out.put_u64(self.offset);
        out.into()
    }

    fn decode(mut from: &[u8]) -> Option<PieceQuestion> {
        if from.len() != 1 + CAPABILITY_BYTES + 16 || from.get_u8() != PieceQuestion::MARK {
            return None;
        }
        let (port, object) = (Port(from.get_u128()), ObjectNumber(from.get_u64()));
        let (rights, check) = (Rights(from.get_u8()), Check::from_bits(from.get_u128()));
        let owner = Capability { port, object, rights, check };
        Some(PieceQuestion { owner, id: from.get_u64(), offset: from.get_u64() })
    }
}

impl Begun {
    /// First byte of the answer; that of a table's refusal is its version.
    const MARK: u8 = 0xb0;

    fn encode(self) -> Bytes {
        let mut out = Vec::new();
        out.put_u8(Begun::MARK);
        out.put_u64(self.id);
        out.put_u64(self.bytes);
        out.put_u64(self.number);
        out.put_slice(self.at.to_string().as_bytes());
        out.into()
    }

    pub(crate) fn decode(answer: &[u8]) -> Option<Begun> {
        let mut from = answer;
        if from.len() < 25 || from.get_u8() != Begun::MARK {
            return None;
        }
        let (id, bytes, number) = (from.get_u64(), from.get_u64(), from.get_u64());
        let at = std::str::from_utf8(from).ok()?.parse().ok()?;
        Some(Begun { at, id, bytes, number })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_from_any_offset_on_are_given() {
        let pieces: Vec<Bytes> = [3, PIECE_BYTES_MAX + 7, 0, 5]
            .iter()
            .enumerate()
            .map(|(index, length)| Bytes::from(vec![index as u8; *length]))
            .collect();
        let all = pieces.concat();
        let kept = Kept::new(1, pieces);
        assert_eq!(kept.bytes, all.len() as u64);
        for offset in [0, 1, 2, 3, 4, PIECE_BYTES_MAX, PIECE_BYTES_MAX + 9, all.len() - 1, all.len()] {
            let end = all.len().min(offset + PIECE_BYTES_MAX);
            assert_eq!(kept.read(offset as u64), all[offset..end], "{offset}");
        }
        assert!(kept.read(u64::MAX).is_empty());
    }

    #[test]
    fn what_is_said_is_read() {
        let owner = Capability::of_owner(Port(0xaa), ObjectNumber(1), Check::from_bits(0xbb));
        let question = PieceQuestion { owner, id: 7, offset: 1 << 40 };
        let bytes = question.encode();
        assert_eq!(PieceQuestion::decode(&bytes), Some(question));
        assert_eq!(PieceQuestion::decode(&bytes[..bytes.len() - 1]), None);
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let page = include_str!("../../tests/directory-page.txt");
        assert!(page.contains(&digits), "the page lacks {digits}");
        let begun = Begun { at: "[::1]:9".parse().unwrap(), id: 3, bytes: 99, number: 12 };
        assert_eq!(Begun::decode(&begun.encode()), Some(begun));
        assert_eq!(Begun::decode(&begun.encode()[..24]), None);
    }
}

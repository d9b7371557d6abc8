//! Gives the state to owners of the root, as pieces of a backup. Commands go on meanwhile: what is given shares memory with
//! the state as it was when the backup began.
//!
//! A client begins with the root's capability, and learns the number under which this server keeps the backup. It fetches
//! the bytes from the same server.

use super::Shared;
use crate::archive::Backup;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use unisono::rpc::{PrivatePort, Request};
use unisono_table::{Capability, Query, Request as TableRequest};

/// Maximum number of bytes in one answer: 1 MiB.
pub(crate) const PIECE_BYTES_MAX: usize = 1 << 20;
/// Maximum number of backups that a server keeps at the same time.
const BACKUPS_MAX: usize = 2;
/// Time for which a backup is kept after the last question.
const KEPT_FOR: Duration = Duration::from_secs(60);
/// Interval at which the desk looks for backups that no client asks for any more.
const LOOKS_EVERY: Duration = Duration::from_millis(500);
/// Maximum number of questions that wait.
const QUESTIONS_MAX: u16 = 64;
/// First byte of a question for a piece. Other questions are those of tables.
pub(crate) const PIECE: u8 = 0xb1;

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

/// A backup that is being fetched.
struct Kept {
    id: u64,
    pieces: Vec<Bytes>,
    /// Where each piece begins.
    begins: Vec<u64>,
    bytes: u64,
    asked_at: Instant,
}

/// Answers until the server has ended.
pub(super) fn run(shared: &Arc<Shared>, port: &PrivatePort) {
    let server = loop {
        match shared.open(port, QUESTIONS_MAX) {
            Ok(server) => break server,
            Err(_) if shared.has_ended() => return,
            // Another server of this process may serve it.
            Err(_) => std::thread::sleep(LOOKS_EVERY),
        }
    };
    let (mut kept, mut last_id) = (VecDeque::<Kept>::new(), 0);
    while !shared.has_ended() {
        let request = match server.get_request_timeout(LOOKS_EVERY) {
            Ok(request) => request,
            Err(_) => return,
        };
        kept.retain(|backup| backup.asked_at.elapsed() < KEPT_FOR);
        let Some(request) = request else { continue };
        // If an answer fails, the client does not wait any longer.
        let _ = match read_piece_question(request.payload()) {
            Some((id, offset)) => give(&mut kept, request, id, offset),
            None => {
                last_id += 1;
                match begin(shared, request.payload(), last_id) {
                    Ok((backup, number)) => {
                        let begun = Begun { at: server.address(), id: last_id, bytes: backup.bytes, number };
                        kept.push_back(backup);
                        if kept.len() > BACKUPS_MAX {
                            kept.pop_front();
                        }
                        request.reply(begun.encode())
                    }
                    Err(refusal) => request.reply(refusal),
                }
            }
        };
    }
}

/// Begins a backup for an owner of the root. The question is one for files that owners may ask, with the same refusals.
fn begin(shared: &Shared, question: &Bytes, id: u64) -> Result<(Kept, u64), Bytes> {
    let owner = match TableRequest::decode(question) {
        Some(TableRequest::Query(Query::Files { owner, .. })) => owner,
        _ => return Err(Bytes::new()),
    };
    // After this the state has everything that was answered before.
    shared.replica.barrier().map_err(|_| Bytes::new())?;
    let allowed = shared.replica.look(|directory| match directory.table().require_owner(&owner) {
        Ok(()) => Ok(()),
        Err(_) => Err(directory.table().answer(question)),
    });
    allowed?;
    let state = shared.replica.disk_state().ok_or_else(Bytes::new)?;
    let number = number_in(&state.parts).ok_or_else(Bytes::new)?;
    let pieces = Backup { number, state }.pieces();
    let mut bytes = 0;
    let begins = pieces.iter().map(|piece| {
        bytes += piece.len() as u64;
        bytes - piece.len() as u64
    });
    let begins = begins.collect();
    Ok((Kept { id, pieces, begins, bytes, asked_at: Instant::now() }, number))
}

/// Returns the number of the last command in a state with these parts.
fn number_in(parts: &[Bytes]) -> Option<u64> {
    unisono_table::Table::number_of_snapshot(parts.get(1)?)
}

fn give(
    kept: &mut VecDeque<Kept>,
    request: Request,
    id: u64,
    offset: u64,
) -> Result<(), unisono::rpc::AnswerError> {
    match kept.iter_mut().find(|backup| backup.id == id) {
        Some(backup) => {
            backup.asked_at = Instant::now();
            request.reply(backup.read(offset))
        }
        None => request.refuse("this server does not keep that backup any longer"),
    }
}

impl Kept {
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

/// Returns the question for the bytes from an offset on.
pub(crate) fn piece_question(id: u64, offset: u64) -> Bytes {
    let mut out = Vec::with_capacity(17);
    out.put_u8(PIECE);
    out.put_u64(id);
    out.put_u64(offset);
    out.into()
}

fn read_piece_question(mut from: &[u8]) -> Option<(u64, u64)> {
    if from.len() != 17 || from.get_u8() != PIECE {
        return None;
    }
    Some((from.get_u64(), from.get_u64()))
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
        let begins = vec![0, 3, PIECE_BYTES_MAX as u64 + 10, PIECE_BYTES_MAX as u64 + 10];
        let all = pieces.concat();
        let kept = Kept { id: 1, pieces, begins, bytes: all.len() as u64, asked_at: Instant::now() };
        for offset in [0, 1, 2, 3, 4, PIECE_BYTES_MAX, PIECE_BYTES_MAX + 9, all.len() - 1, all.len()] {
            let end = all.len().min(offset + PIECE_BYTES_MAX);
            assert_eq!(kept.read(offset as u64), all[offset..end], "{offset}");
        }
        assert!(kept.read(u64::MAX).is_empty());
    }

    #[test]
    fn what_is_said_is_read() {
        assert_eq!(read_piece_question(&piece_question(7, 1 << 40)), Some((7, 1 << 40)));
        let begun = Begun { at: "[::1]:9".parse().unwrap(), id: 3, bytes: 99, number: 12 };
        assert_eq!(Begun::decode(&begun.encode()), Some(begun));
        assert_eq!(Begun::decode(&begun.encode()[..24]), None);
    }
}

//! Gives the state to owners of the root, as pieces of a backup. Commands go on meanwhile: what is given shares memory with
//! the state as it was when the backup began.
//!
//! A client begins with the root's capability, and learns the number under which this server keeps the backup. It fetches
//! the bytes from the same server, and shows the capability with each question.

use super::{Shared, give, reply_or_deny};
use crate::archive::{Backup, number_in};
use crate::machine::Directory;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use unisono::replica::{PendingRead, Replica};
use unisono::rpc::{Answer, PrivatePort, Request, Server};
use unisono_table::{
    CAPABILITY_BYTES, Capability, Check, ObjectNumber, Port, Query, Request as TableRequest, Rights, Table,
};

/// Maximum number of bytes in one answer: 1 MiB.
pub(crate) const PIECE_BYTES_MAX: usize = 1 << 20;
/// Maximum number of backups that a server keeps at the same time.
const BACKUPS_MAX: usize = 2;
/// Time for which a backup is kept after the last question.
const KEPT_FOR: Duration = Duration::from_secs(60);
/// Interval at which the desk looks whether this server still serves, and for backups that no client asks for any more.
const LOOKS_EVERY: Duration = Duration::from_millis(100);
/// Interval at which the desk looks whether a confirmation has ended.
const CONFIRMS_EVERY: Duration = Duration::from_millis(5);
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

/// Questions that begin a backup. They wait until the state has everything that was answered before them. Anyone with the clients'
/// key may ask, so all that wait share one confirmation.
#[derive(Default)]
struct Unconfirmed {
    /// The confirmation under way, and those that share it.
    asked: Option<(PendingRead, Vec<Request>)>,
    /// Those that came after it began; they share the next one.
    next: Vec<Request>,
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
    let (mut kept, mut unconfirmed) = (VecDeque::new(), Unconfirmed::default());
    while shared.is_serving() {
        let Ok(request) = server.get_request_aside(Some(unconfirmed.looks_after())) else { break };
        kept.retain(|backup: &Kept| backup.asked_at.elapsed() < KEPT_FOR);
        let more = std::iter::from_fn(|| server.get_request_aside(Some(Duration::ZERO)).ok().flatten());
        for request in request.into_iter().chain(more.take(usize::from(QUESTIONS_MAX))) {
            if let Some(question) = PieceQuestion::decode(request.payload()) {
                give(request, piece(shared, &mut kept, &question));
            } else if owner_in(request.payload()).is_some() {
                unconfirmed.add(request);
            } else {
                give(request, refuse(NO_QUESTION));
            }
        }
        if let Some((requests, is_confirmed)) = unconfirmed.take(&shared.replica) {
            for request in requests {
                let begun = match is_confirmed {
                    true => begin(shared, &mut kept, request.payload(), server.address()),
                    false => refuse(NOT_HERE),
                };
                give(request, begun);
            }
        }
    }
    unconfirmed.give_up().for_each(|request| give(request, refuse(NOT_HERE)));
}

fn refuse(reason: &'static str) -> Answer {
    Answer::Refuse(Bytes::from_static(reason.as_bytes()))
}

impl Unconfirmed {
    fn add(&mut self, request: Request) {
        self.next.push(request);
    }

    /// Returns how long to wait for further questions.
    fn looks_after(&self) -> Duration {
        if self.next.is_empty() && self.asked.is_none() { LOOKS_EVERY } else { CONFIRMS_EVERY }
    }

    /// Returns those whose confirmation has ended, and whether the state has everything that was answered before them. Does
    /// not wait: without a majority that could take as long as a command may.
    fn take(&mut self, replica: &Replica<Directory>) -> Option<(Vec<Request>, bool)> {
        // Each holds a place in the queue.
        let waits = |request: &Request| !request.time_left().is_zero();
        self.next.retain(waits);
        if self.asked.is_none() && !self.next.is_empty() {
            self.asked = Some((replica.barrier_start(), std::mem::take(&mut self.next)));
        }
        let (confirmation, asked) = self.asked.as_mut()?;
        asked.retain(waits);
        match Pin::new(confirmation).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(end) => self.asked.take().map(|(_, asked)| (asked, end.is_ok())),
            Poll::Pending => {
                self.asked.take_if(|(_, asked)| asked.is_empty());
                None
            }
        }
    }

    /// Returns all that wait.
    fn give_up(self) -> impl Iterator<Item = Request> {
        self.asked.into_iter().flat_map(|(_, asked)| asked).chain(self.next)
    }
}

/// Returns the capability of a question with which a backup begins: one for files, which owners may ask.
fn owner_in(question: &Bytes) -> Option<Capability> {
    match TableRequest::decode(question)? {
        TableRequest::Query(Query::Files { owner, .. }) => Some(owner),
        _ => None,
    }
}

/// Returns the refusal of this question for a backup; `None` if an owner of the root asks. It holds only for a state that has
/// everything that was answered before: another may not know a new capability of the root yet.
fn refusal(table: &Table, question: &Bytes) -> Option<Answer> {
    match owner_in(question) {
        Some(owner) if table.require_owner(&owner).is_ok() => None,
        // The table refuses it for the same reason.
        Some(_) => Some(reply_or_deny(table, question, table.answer(question))),
        None => Some(refuse(NO_QUESTION)),
    }
}

/// Begins a backup for an owner of the root.
fn begin(shared: &Shared, kept: &mut VecDeque<Kept>, question: &Bytes, at: SocketAddr) -> Answer {
    let refusal = shared.replica.look(|directory| refusal(directory.table(), question));
    refusal.unwrap_or_else(|| keep(shared, kept, at).map_or(refuse(NOT_HERE), |begun| begun.encode().into()))
}

/// Keeps the state as it is, as a backup.
fn keep(shared: &Shared, kept: &mut VecDeque<Kept>, at: SocketAddr) -> Option<Begun> {
    let state = shared.replica.disk_state()?;
    let number = number_in(&state.parts)?;
    let id = crate::random_check().ok()?.to_bits() as u64;
    let backup = Kept::new(id, Backup { number, state }.pieces());
    let begun = Begun { at, id, bytes: backup.bytes, number };
    kept.push_back(backup);
    if kept.len() > BACKUPS_MAX {
        kept.pop_front();
    }
    Some(begun)
}

/// Returns a piece, to an owner of the root: a question does not prove that it comes from the client that began.
fn piece(shared: &Shared, kept: &mut VecDeque<Kept>, question: &PieceQuestion) -> Answer {
    let owns = shared.replica.look(|directory| directory.table().require_owner(&question.owner)).is_ok();
    let backup = kept.iter_mut().find(|backup| owns && backup.id == question.id);
    let Some(backup) = backup else { return refuse(NOT_KEPT) };
    backup.asked_at = Instant::now();
    backup.read(question.offset).into()
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
    use unisono_table::{Command, Limits};

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
    fn a_question_without_a_right_is_denied() {
        let mut table = Table::new(Limits::default());
        let (port, secret) = (Port(1), Check::from_bits(2));
        table.execute(Command::Found { port, secret, service: Bytes::new() });
        let ask = |owner| refusal(&table, &begin_question(owner));
        let root = table.root().unwrap();
        assert_eq!(ask(root), None);
        let wrong = Capability::of_owner(port, root.object, Check::from_bits(3));
        let expected = table.answer(&begin_question(wrong));
        assert_eq!(ask(wrong), Some(Answer::Deny(expected)));
        // This one is good for something, though not for a backup.
        let restricted = root.restrict(Rights(0xfe)).unwrap();
        assert!(matches!(ask(restricted), Some(Answer::Reply(_))));
        let other = TableRequest::Query(Query::Info).encode();
        assert_eq!(refusal(&table, &other), Some(refuse(NO_QUESTION)));
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

//! A state as pieces named by digest, and what a member that has it answers to one that needs it.
//!
//! A newcomer first asks for the list of pieces, then for each piece that it lacks. All questions are calls to the
//! donor's transfer port, so they hold up no command; the donor applies commands meanwhile, and keeps the pieces of the
//! last two snapshots that it listed. Pieces that two snapshots share travel once, also if the newcomer changes donors.

use super::machine::Position;
use super::types::{Digest, Progress};
use crate::identity::{Seqno, Uid};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use bytes::{Buf, BufMut, Bytes};

/// Maximum bytes of a piece; larger parts travel in several.
pub(super) const STATE_PIECE_BYTES_MAX: usize = 1 << 20;
/// Maximum number of pieces, so that a list of them fits one reply.
const PIECES_MAX: usize = 400_000;
/// Number of snapshots that a donor keeps.
const OFFERS_MAX: usize = 2;

/// A state at a seqno.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// It contains everything through this seqno.
    pub(super) at: Seqno,
    /// The members of the view at that seqno.
    pub(super) members: Vec<Uid>,
    /// The first part holds all but the user's state, the others are the user's.
    pub(super) parts: Vec<Bytes>,
}

/// A piece of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) digest: Digest,
    pub(super) bytes: u32,
    /// True for the last piece of a part.
    pub(super) ends_part: bool,
}

/// The list of a snapshot's pieces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct List {
    pub(super) at: Seqno,
    pub(super) pieces: Vec<Piece>,
}

/// A newcomer's question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Question {
    /// Which pieces make up the state? From this member.
    List(Uid),
    /// The bytes of a piece?
    Piece(Digest),
}

/// A donor's reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// It has no state.
    NoState,
    /// Its state is older than the newcomer's join, or the piece belongs to a snapshot that it has dropped: ask again
    /// for the list.
    AskAgain,
    List(List),
    Piece(Bytes),
    /// The state has more pieces than a list may have.
    TooManyPieces,
}

/// Returns the pieces of some parts, in order.
pub(super) fn cut(parts: &[Bytes]) -> impl Iterator<Item = (Bytes, bool)> {
    parts.iter().flat_map(|part| {
        let count = part.len().div_ceil(STATE_PIECE_BYTES_MAX).max(1);
        (0..count).map(move |index| {
            let begin = index * STATE_PIECE_BYTES_MAX;
            let end = part.len().min(begin + STATE_PIECE_BYTES_MAX);
            (part.slice(begin..end), index + 1 == count)
        })
    })
}

/// What a member that has the state answers to newcomers. It belongs to the thread that serves the transfer port, so
/// that digests are computed while commands are applied.
#[derive(Debug)]
pub struct Donor {
    digest: fn(&[u8]) -> Digest,
    offers: VecDeque<Offer>,
}

/// A snapshot that was listed.
#[derive(Debug)]
struct Offer {
    at: Seqno,
    members: Vec<Uid>,
    list: Bytes,
    pieces: BTreeMap<Digest, Bytes>,
}

impl Donor {
    /// Returns a donor that has listed nothing. `digest` is the hash function of the replica's settings.
    pub fn new(digest: fn(&[u8]) -> Digest) -> Donor {
        Donor { digest, offers: VecDeque::new() }
    }

    /// Answers a question that arrived at the transfer port. `snapshot` returns the present state, if this member has
    /// it; it is called only if no snapshot that was listed before will do.
    pub fn answer(&mut self, question: &Bytes, snapshot: impl FnOnce() -> Option<Snapshot>) -> Bytes {
        match Question::read(question.clone()) {
            Some(Question::List(newcomer)) => self.list_for(newcomer, snapshot),
            Some(Question::Piece(digest)) => {
                let piece = self.offers.iter().find_map(|offer| offer.pieces.get(&digest));
                piece.map_or(Reply::AskAgain, |piece| Reply::Piece(piece.clone())).write()
            }
            None => Reply::AskAgain.write(),
        }
    }

    /// Drops the snapshots that were listed, once no newcomer has asked for a while.
    pub fn forget(&mut self) {
        self.offers.clear();
    }

    fn list_for(&mut self, newcomer: Uid, snapshot: impl FnOnce() -> Option<Snapshot>) -> Bytes {
        let Some(snapshot) = snapshot() else { return Reply::NoState.write() };
        // A state in whose view the newcomer is contains everything that the newcomer has not received.
        if !snapshot.members.contains(&newcomer) {
            return Reply::AskAgain.write();
        }
        if let Some(offer) = self.offers.iter().find(|offer| offer.at == snapshot.at)
            && offer.members.contains(&newcomer)
        {
            return offer.list.clone();
        }
        let offer = self.offer(snapshot);
        let list = offer.list.clone();
        self.offers.push_back(offer);
        if self.offers.len() > OFFERS_MAX {
            self.offers.pop_front();
        }
        list
    }

    fn offer(&self, snapshot: Snapshot) -> Offer {
        let (mut listed, mut pieces) = (Vec::new(), BTreeMap::new());
        for (bytes, ends_part) in cut(&snapshot.parts) {
            let digest = (self.digest)(&bytes);
            listed.push(Piece { digest, bytes: bytes.len() as u32, ends_part });
            pieces.insert(digest, bytes);
        }
        let list = match listed.len() <= PIECES_MAX {
            true => Reply::List(List { at: snapshot.at, pieces: listed }),
            false => Reply::TooManyPieces,
        };
        Offer { at: snapshot.at, members: snapshot.members, list: list.write(), pieces }
    }
}

/// What a copy says of itself to anyone who asks at its transfer port, such as an operator's `status`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CopyStatus {
    /// True if it has the state and serves callers.
    pub has_state: bool,
    /// Position of the last command that it applied.
    pub position: Position,
    /// Digest of all outcomes through that position.
    pub digest: Digest,
    /// How far the transfer of the state is, if it has none.
    pub fetching: Progress,
    /// Id of the server, if the service is on disk; else 0.
    pub server: u8,
    /// Generation of the log on its disk.
    pub generation: u64,
    /// Ids of the servers that it waits for.
    pub waits_for: Vec<u8>,
}

impl CopyStatus {
    /// Returns the question that a copy answers with its status.
    pub fn question() -> Bytes {
        Bytes::from_static(&[QUESTION_STATUS])
    }

    /// True if these bytes are the question for the status.
    pub(super) fn is_asked_by(question: &Bytes) -> bool {
        question[..] == [QUESTION_STATUS]
    }

    pub(super) fn write(&self) -> Bytes {
        let mut out = Vec::new();
        out.put_u8(REPLY_STATUS);
        out.put_u8(self.has_state.into());
        out.put_u64(self.position);
        out.put_slice(&self.digest);
        out.put_u64(self.fetching.bytes_here);
        out.put_u64(self.fetching.bytes_total);
        out.put_u8(self.server);
        out.put_u64(self.generation);
        out.put_u8(self.waits_for.len() as u8);
        out.put_slice(&self.waits_for);
        out.into()
    }

    /// Returns the status, or `None` if these bytes are not the reply to the question.
    pub fn read(mut from: Bytes) -> Option<CopyStatus> {
        let is_status = from.try_get_u8().ok()? == REPLY_STATUS;
        let (has_state, position) = (from.try_get_u8().ok()? != 0, from.try_get_u64().ok()?);
        let mut digest = Digest::default();
        from.try_copy_to_slice(&mut digest).ok()?;
        let fetching =
            Progress { bytes_here: from.try_get_u64().ok()?, bytes_total: from.try_get_u64().ok()? };
        let (server, generation) = (from.try_get_u8().ok()?, from.try_get_u64().ok()?);
        let count = usize::from(from.try_get_u8().ok()?);
        let waits_for = (count == from.len()).then(|| from.to_vec())?;
        is_status.then_some(CopyStatus {
            has_state,
            position,
            digest,
            fetching,
            server,
            generation,
            waits_for,
        })
    }
}

const QUESTION_LIST: u8 = 1;
const QUESTION_PIECE: u8 = 2;
const QUESTION_STATUS: u8 = 3;

impl Question {
    pub(super) fn write(&self) -> Bytes {
        let mut out = Vec::with_capacity(33);
        match self {
            Question::List(newcomer) => {
                out.put_u8(QUESTION_LIST);
                out.put_u64(newcomer.0);
            }
            Question::Piece(digest) => {
                out.put_u8(QUESTION_PIECE);
                out.put_slice(digest);
            }
        }
        out.into()
    }

    fn read(mut from: Bytes) -> Option<Question> {
        Some(match from.try_get_u8().ok()? {
            QUESTION_LIST => Question::List(Uid(from.try_get_u64().ok()?)),
            QUESTION_PIECE => {
                let mut digest = Digest::default();
                from.try_copy_to_slice(&mut digest).ok()?;
                Question::Piece(digest)
            }
            _ => return None,
        })
    }
}

const REPLY_NO_STATE: u8 = 1;
const REPLY_ASK_AGAIN: u8 = 2;
const REPLY_LIST: u8 = 3;
const REPLY_PIECE: u8 = 4;
const REPLY_TOO_MANY: u8 = 5;
const REPLY_STATUS: u8 = 6;

impl Reply {
    pub(super) fn write(&self) -> Bytes {
        let mut out = Vec::new();
        match self {
            Reply::NoState => out.put_u8(REPLY_NO_STATE),
            Reply::AskAgain => out.put_u8(REPLY_ASK_AGAIN),
            Reply::TooManyPieces => out.put_u8(REPLY_TOO_MANY),
            Reply::List(list) => {
                out.reserve(13 + 37 * list.pieces.len());
                out.put_u8(REPLY_LIST);
                out.put_u64(list.at);
                out.put_u32(list.pieces.len() as u32);
                for piece in &list.pieces {
                    out.put_slice(&piece.digest);
                    out.put_u32(piece.bytes);
                    out.put_u8(piece.ends_part.into());
                }
            }
            Reply::Piece(bytes) => {
                out.reserve(1 + bytes.len());
                out.put_u8(REPLY_PIECE);
                out.put_slice(bytes);
            }
        }
        out.into()
    }

    /// Returns the reply, or `None` if the bytes are not valid.
    pub(super) fn read(mut from: Bytes) -> Option<Reply> {
        Some(match from.try_get_u8().ok()? {
            REPLY_NO_STATE => Reply::NoState,
            REPLY_ASK_AGAIN => Reply::AskAgain,
            REPLY_TOO_MANY => Reply::TooManyPieces,
            REPLY_LIST => {
                let (at, count) = (from.try_get_u64().ok()?, from.try_get_u32().ok()? as usize);
                if count > PIECES_MAX {
                    return None;
                }
                let mut pieces = Vec::new();
                for _ in 0..count {
                    let mut digest = Digest::default();
                    from.try_copy_to_slice(&mut digest).ok()?;
                    let bytes = from.try_get_u32().ok()?;
                    pieces.push(Piece { digest, bytes, ends_part: from.try_get_u8().ok()? != 0 });
                }
                Reply::List(List { at, pieces })
            }
            REPLY_PIECE => Reply::Piece(from),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn digest(bytes: &[u8]) -> Digest {
        let mut digest = Digest::default();
        digest[..4].copy_from_slice(&crc32c::crc32c(bytes).to_be_bytes());
        digest
    }

    #[test]
    fn questions_and_replies_are_read_as_they_were_written_and_nothing_shorter_is() {
        for question in [Question::List(Uid(9)), Question::Piece([7; 32])] {
            let bytes = question.write();
            assert_eq!(Question::read(bytes.clone()), Some(question));
            assert_eq!(Question::read(bytes.slice(..bytes.len() - 1)), None);
        }
        let pieces = vec![Piece { digest: [3; 32], bytes: 9, ends_part: true }; 2];
        let list = Reply::List(List { at: 77, pieces });
        for reply in [list, Reply::NoState, Reply::AskAgain, Reply::TooManyPieces, Reply::Piece("x".into())] {
            let bytes = reply.write();
            assert_eq!(Reply::read(bytes.clone()), Some(reply));
            assert_eq!(Reply::read(bytes.slice(..0)), None);
        }
        let fetching = Progress { bytes_here: 1, bytes_total: 2 };
        let waits_for = vec![2, 3];
        let status = CopyStatus {
            has_state: true,
            position: 5,
            digest: [1; 32],
            fetching,
            server: 1,
            generation: 7,
            waits_for,
        };
        assert_eq!(CopyStatus::read(status.write()), Some(status.clone()));
        assert_eq!(CopyStatus::read(status.write().slice(..20)), None);
        assert_eq!(CopyStatus::read(Reply::NoState.write()), None);
        // A list that claims more pieces than it has, or than a list may have, is not valid.
        let claims = |count: u32| {
            let mut bytes = vec![REPLY_LIST, 0, 0, 0, 0, 0, 0, 0, 0];
            bytes.put_u32(count);
            Reply::read(bytes.into())
        };
        assert_eq!((claims(1), claims(u32::MAX)), (None, None));
    }

    #[test]
    fn large_parts_are_cut_and_small_ones_are_not() {
        let parts = [vec![1; STATE_PIECE_BYTES_MAX + 1].into(), Bytes::new(), Bytes::from_static(b"x")];
        let pieces: Vec<_> = cut(&parts).map(|(bytes, ends_part)| (bytes.len(), ends_part)).collect();
        assert_eq!(pieces, [(STATE_PIECE_BYTES_MAX, false), (1, true), (0, true), (1, true)]);
    }

    #[test]
    fn a_donor_keeps_the_last_two_snapshots_that_it_listed() {
        let mut donor = Donor::new(digest);
        let snapshot = |at: Seqno| {
            let parts = vec![Bytes::copy_from_slice(&at.to_be_bytes())];
            Some(Snapshot { at, members: vec![Uid(1), Uid(2)], parts })
        };
        let list = Question::List(Uid(2)).write();
        for at in 1..=3 {
            let reply = donor.answer(&list, || snapshot(at));
            assert!(matches!(Reply::read(reply), Some(Reply::List(list)) if list.at == at));
        }
        let piece = |at: Seqno| Question::Piece(digest(&at.to_be_bytes())).write();
        let replies: Vec<_> =
            (1..=3).map(|at| Reply::read(donor.answer(&piece(at), || None)).unwrap()).collect();
        assert_eq!(replies[0], Reply::AskAgain);
        assert!(matches!((&replies[1], &replies[2]), (Reply::Piece(_), Reply::Piece(_))));
        // One that is not in the view has to wait, and without a state there is nothing to give.
        let reply = donor.answer(&Question::List(Uid(9)).write(), || snapshot(4));
        assert_eq!(Reply::read(reply), Some(Reply::AskAgain));
        assert_eq!(Reply::read(donor.answer(&list, || None)), Some(Reply::NoState));
        assert_eq!(Reply::read(donor.answer(&Bytes::from_static(b"?"), || None)), Some(Reply::AskAgain));
        donor.forget();
        assert_eq!(Reply::read(donor.answer(&piece(3), || None)), Some(Reply::AskAgain));
    }
}

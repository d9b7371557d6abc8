//! A state as pieces named by digest, and what a member that has it answers to one that needs it.
//!
//! A newcomer asks for the list of pieces, and for each piece that it lacks. The list comes in sections, because the
//! donor hashes a piece no earlier than it lists it: the first pieces travel while it hashes others. All questions are
//! calls to the donor's transfer port, so they hold up no command; the donor applies commands meanwhile, and keeps the
//! pieces of the last two snapshots that it listed. Pieces that two snapshots share travel once, also if the newcomer
//! changes donors.

use super::disk::Escape;
use super::durable::Place;
use super::machine::Position;
use super::types::{Digest, Progress};
use crate::identity::{Seqno, Uid};
use crate::time::Time;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use bytes::{Buf, BufMut, Bytes};
use core::time::Duration;

/// Maximum bytes of a piece; larger parts travel in several.
pub(super) const STATE_PIECE_BYTES_MAX: usize = 1 << 20;
/// Maximum number of pieces of a state.
const PIECES_MAX: usize = 400_000;
/// Maximum number of pieces in a section of the list. The simulator's states are small, and are to have sections too.
const SECTION_PIECES_MAX: usize = if cfg!(feature = "planted") { 2 } else { 256 };
/// A section ends with the piece with which the donor has hashed this much for it: a millisecond of work.
const SECTION_BYTES_HASHED: usize = 4 << 20;
/// Number of snapshots that a donor keeps.
const OFFERS_MAX: usize = 2;
/// Time for which they are kept after a newcomer last got something of them.
const OFFERS_KEPT: Duration = Duration::from_secs(30);

/// A state at a seqno.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// It contains everything through this seqno.
    pub(super) at: Seqno,
    /// The first part holds all but the user's state, the others are the user's.
    pub(super) parts: Vec<Bytes>,
}

/// What a member has for a newcomer that asks for the state.
#[derive(Clone, Debug)]
pub enum Present {
    /// No state.
    Nothing,
    /// A state that is older than the newcomer's join, or the newcomer is none.
    TooOld,
    /// A state.
    State(Snapshot),
}

/// A piece of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) digest: Digest,
    pub(super) bytes: u32,
    /// True for the last piece of a part.
    pub(super) ends_part: bool,
}

/// How large a state is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) pieces: u32,
    pub(super) bytes: u64,
}

/// A section of the list of a snapshot's pieces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct List {
    pub(super) at: Seqno,
    /// Extent of the whole state.
    pub(super) of: Extent,
    /// Number of pieces in the sections before.
    pub(super) from: u32,
    pub(super) pieces: Vec<Piece>,
}

/// A newcomer's question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Question {
    /// Which pieces make up the state? From this member.
    List(Uid),
    /// Which pieces follow the first `from` of the state at `at`?
    More { at: Seqno, from: u32 },
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
    /// When something of them was last given.
    given_at: Time,
}

/// A snapshot that was listed.
#[derive(Debug)]
struct Offer {
    at: Seqno,
    cut: Vec<Cut>,
    /// Those that were listed.
    pieces: BTreeMap<Digest, Bytes>,
}

/// A piece of a snapshot that was listed, whether or not the section with it was asked for yet.
#[derive(Debug)]
struct Cut {
    bytes: Bytes,
    ends_part: bool,
    digest: Option<Digest>,
}

impl Donor {
    /// Returns a donor that has listed nothing. `digest` is the hash function of the replica's settings.
    pub fn new(digest: fn(&[u8]) -> Digest) -> Donor {
        Donor { digest, offers: VecDeque::new(), given_at: Time::ZERO }
    }

    /// Answers a question that arrived at the transfer port. `present` returns what this member has for a newcomer
    /// ([`Replica::present_for`](super::Replica::present_for)); it is called only for the beginning of a list.
    pub fn answer(&mut self, now: Time, question: &Bytes, present: impl FnOnce(Uid) -> Present) -> Bytes {
        let reply = match Question::read(question.clone()) {
            Some(Question::List(newcomer)) => self.list_for(present(newcomer)),
            Some(Question::More { at, from }) => self.section(at, from),
            Some(Question::Piece(digest)) => {
                let piece = self.offers.iter().find_map(|offer| offer.pieces.get(&digest));
                piece.map_or(Reply::AskAgain, |piece| Reply::Piece(piece.clone()))
            }
            None => Reply::AskAgain,
        };
        if matches!(reply, Reply::List(_) | Reply::Piece(_)) {
            self.given_at = now;
        }
        reply.write()
    }

    /// Returns the member that asks with this question for the beginning of a list, if it is such a question.
    pub fn newcomer(question: &Bytes) -> Option<Uid> {
        match Question::read(question.clone()) {
            Some(Question::List(newcomer)) => Some(newcomer),
            _ => None,
        }
    }

    /// Drops the snapshots that were listed.
    pub fn forget(&mut self) {
        self.offers.clear();
    }

    /// Drops the snapshots that were listed if no newcomer has got anything of them for a while.
    pub fn forget_unused(&mut self, now: Time) {
        if self.forgets_at().is_some_and(|at| at <= now) {
            self.forget();
        }
    }

    /// Returns when to call [`Donor::forget_unused`].
    pub fn forgets_at(&self) -> Option<Time> {
        (!self.offers.is_empty()).then(|| self.given_at + OFFERS_KEPT)
    }

    fn list_for(&mut self, present: Present) -> Reply {
        let snapshot = match present {
            Present::Nothing => return Reply::NoState,
            Present::TooOld => return Reply::AskAgain,
            Present::State(snapshot) => snapshot,
        };
        let at = snapshot.at;
        if !self.offers.iter().any(|offer| offer.at == at) {
            let offer = self.offer(snapshot);
            self.offers.push_back(offer);
            if self.offers.len() > OFFERS_MAX {
                self.offers.pop_front();
            }
        }
        self.section(at, 0)
    }

    fn offer(&self, snapshot: Snapshot) -> Offer {
        // Memory that an earlier offer keeps has not changed since it was hashed.
        let hashed = self.offers.iter().flat_map(|offer| &offer.cut);
        let known: BTreeMap<_, _> = hashed.map(|cut| (place_of(&cut.bytes), cut.digest)).collect();
        let cut = cut(&snapshot.parts).map(|(bytes, ends_part)| {
            let digest = known.get(&place_of(&bytes)).copied().flatten();
            Cut { bytes, ends_part, digest }
        });
        Offer { at: snapshot.at, cut: cut.collect(), pieces: BTreeMap::new() }
    }

    /// Returns the section of a list that begins after this number of pieces.
    fn section(&mut self, at: Seqno, from: u32) -> Reply {
        let Some(offer) = self.offers.iter_mut().find(|offer| offer.at == at) else {
            return Reply::AskAgain;
        };
        if offer.cut.len() > PIECES_MAX {
            return Reply::TooManyPieces;
        }
        let bytes = offer.cut.iter().map(|cut| cut.bytes.len() as u64).sum();
        let of = Extent { pieces: offer.cut.len() as u32, bytes };
        let (mut pieces, mut hashed) = (Vec::new(), 0);
        for cut in offer.cut.iter_mut().skip(from as usize).take(SECTION_PIECES_MAX) {
            let digest = *cut.digest.get_or_insert_with(|| {
                hashed += cut.bytes.len();
                (self.digest)(&cut.bytes)
            });
            pieces.push(Piece { digest, bytes: cut.bytes.len() as u32, ends_part: cut.ends_part });
            offer.pieces.entry(digest).or_insert_with(|| cut.bytes.clone());
            if hashed >= SECTION_BYTES_HASHED {
                break;
            }
        }
        Reply::List(List { at, of, from, pieces })
    }
}

/// Returns where in memory these bytes are.
fn place_of(bytes: &Bytes) -> (usize, usize) {
    (bytes.as_ptr() as usize, bytes.len())
}

/// A donor's reply with the digest of the piece that it contains, if any: for a driver that hashes without a lock.
#[derive(Clone, Debug)]
pub struct Hashed {
    pub(super) reply: Bytes,
    pub(super) digest: Option<Digest>,
}

impl Hashed {
    /// Hashes a reply. `digest` is the hash function of the replica's settings.
    pub fn new(reply: Bytes, digest: fn(&[u8]) -> Digest) -> Hashed {
        let piece = reply.first().filter(|kind| **kind == REPLY_PIECE).map(|_| &reply[1..]);
        Hashed { digest: piece.map(digest), reply }
    }
}

/// What a copy says of itself to anyone who asks at its transfer port, such as an operator's `status`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CopyStatus {
    /// True if it has the state and serves callers.
    pub has_state: bool,
    /// True if its group orders no commands at present: it lacks its quorum, or has fewer members than its minimum.
    pub is_halted: bool,
    /// For how long it has known of commands and applied none; zero if it keeps up.
    pub behind: Duration,
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
    /// Identity of its disk, a random number; 0 without one.
    pub disk: u64,
    /// Place in the log through which its disk has everything; 0 without one. The log has commands and other entries.
    pub synced: Place,
    /// Number of servers of the service, if it is on disk; else 0.
    pub servers: u8,
    /// Random number of the process.
    pub process: u64,
    /// When the service was created, in milliseconds since 1970; 0 if that is not known.
    pub created_at_ms: u64,
    /// Ids of the servers that it waits for.
    pub waits_for: Vec<u8>,
    /// Each time that an administrator let the service begin anew from one disk, the first one first.
    pub anew: Vec<Escape>,
}

/// Length of an escape in a status.
const ESCAPE_BYTES: usize = 1 + 8 + 8 + 16;

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
        out.put_u8(self.is_halted.into());
        out.put_u64(u64::try_from(self.behind.as_millis()).unwrap_or(u64::MAX));
        out.put_u64(self.position);
        out.put_slice(&self.digest);
        out.put_u64(self.fetching.bytes_here);
        out.put_u64(self.fetching.bytes_total);
        out.put_u8(self.server);
        out.put_u64(self.generation);
        out.put_u64(self.disk);
        out.put_u64(self.synced);
        out.put_u8(self.servers);
        out.put_u64(self.process);
        out.put_u64(self.created_at_ms);
        out.put_u8(self.waits_for.len() as u8);
        out.put_slice(&self.waits_for);
        for Escape { server, at_ms, from, service } in &self.anew {
            out.put_u8(*server);
            out.put_u64(*at_ms);
            out.put_u64(*from);
            out.put_u128(*service);
        }
        out.into()
    }

    /// Returns the status, or `None` if these bytes are not the reply to the question.
    pub fn read(mut from: Bytes) -> Option<CopyStatus> {
        let is_status = from.try_get_u8().ok()? == REPLY_STATUS;
        let (has_state, is_halted) = (from.try_get_u8().ok()? != 0, from.try_get_u8().ok()? != 0);
        let behind = Duration::from_millis(from.try_get_u64().ok()?);
        let position = from.try_get_u64().ok()?;
        let mut digest = Digest::default();
        from.try_copy_to_slice(&mut digest).ok()?;
        let fetching =
            Progress { bytes_here: from.try_get_u64().ok()?, bytes_total: from.try_get_u64().ok()? };
        let (server, generation) = (from.try_get_u8().ok()?, from.try_get_u64().ok()?);
        let (disk, synced) = (from.try_get_u64().ok()?, from.try_get_u64().ok()?);
        let (servers, process) = (from.try_get_u8().ok()?, from.try_get_u64().ok()?);
        let created_at_ms = from.try_get_u64().ok()?;
        let count = usize::from(from.try_get_u8().ok()?);
        let waits_for = (count <= from.len()).then(|| from.split_to(count).to_vec())?;
        if !from.len().is_multiple_of(ESCAPE_BYTES) {
            return None;
        }
        let anew = from.chunks(ESCAPE_BYTES).map(|mut escape| Escape {
            server: escape.get_u8(),
            at_ms: escape.get_u64(),
            from: escape.get_u64(),
            service: escape.get_u128(),
        });
        is_status.then_some(CopyStatus {
            has_state,
            is_halted,
            behind,
            position,
            digest,
            fetching,
            server,
            generation,
            disk,
            synced,
            servers,
            process,
            created_at_ms,
            waits_for,
            anew: anew.collect(),
        })
    }
}

const QUESTION_LIST: u8 = 1;
const QUESTION_PIECE: u8 = 2;
const QUESTION_STATUS: u8 = 3;
const QUESTION_MORE: u8 = 4;

impl Question {
    pub(super) fn write(&self) -> Bytes {
        let mut out = Vec::with_capacity(33);
        match self {
            Question::List(newcomer) => {
                out.put_u8(QUESTION_LIST);
                out.put_u64(newcomer.0);
            }
            Question::More { at, from } => {
                out.put_u8(QUESTION_MORE);
                out.put_u64(*at);
                out.put_u32(*from);
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
            QUESTION_MORE => Question::More { at: from.try_get_u64().ok()?, from: from.try_get_u32().ok()? },
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
                out.reserve(29 + 37 * list.pieces.len());
                out.put_u8(REPLY_LIST);
                out.put_u64(list.at);
                out.put_u32(list.of.pieces);
                out.put_u64(list.of.bytes);
                out.put_u32(list.from);
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
                let at = from.try_get_u64().ok()?;
                let of = Extent { pieces: from.try_get_u32().ok()?, bytes: from.try_get_u64().ok()? };
                let (begins, count) = (from.try_get_u32().ok()?, from.try_get_u32().ok()?);
                let end = u64::from(begins) + u64::from(count);
                // A section that brings the list no further would be asked for again and again.
                if of.pieces as usize > PIECES_MAX
                    || end > of.pieces.into()
                    || (count == 0 && end < of.pieces.into())
                {
                    return None;
                }
                let mut pieces = Vec::new();
                for _ in 0..count {
                    let mut digest = Digest::default();
                    from.try_copy_to_slice(&mut digest).ok()?;
                    let bytes = from.try_get_u32().ok()?;
                    pieces.push(Piece { digest, bytes, ends_part: from.try_get_u8().ok()? != 0 });
                }
                Reply::List(List { at, of, from: begins, pieces })
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
        let more = Question::More { at: 9, from: 3 };
        for question in [Question::List(Uid(9)), more, Question::Piece([7; 32])] {
            let bytes = question.write();
            assert_eq!(Question::read(bytes.clone()), Some(question));
            assert_eq!(Question::read(bytes.slice(..bytes.len() - 1)), None);
        }
        let pieces = vec![Piece { digest: [3; 32], bytes: 9, ends_part: true }; 2];
        let of = Extent { pieces: 5, bytes: 99 };
        let list = Reply::List(List { at: 77, of, from: 3, pieces });
        for reply in [list, Reply::NoState, Reply::AskAgain, Reply::TooManyPieces, Reply::Piece("x".into())] {
            let bytes = reply.write();
            assert_eq!(Reply::read(bytes.clone()), Some(reply));
            assert_eq!(Reply::read(bytes.slice(..0)), None);
        }
        let fetching = Progress { bytes_here: 1, bytes_total: 2 };
        let waits_for = vec![2, 3];
        let status = CopyStatus {
            has_state: true,
            is_halted: true,
            behind: Duration::from_millis(12_345),
            position: 5,
            digest: [1; 32],
            fetching,
            server: 1,
            generation: 7,
            disk: 8,
            synced: 9,
            servers: 3,
            process: 9,
            created_at_ms: 10,
            waits_for,
            anew: vec![
                Escape { server: 2, at_ms: 3, from: 4, service: 5 },
                Escape { server: 1, at_ms: 6, from: 7, service: 8 },
            ],
        };
        assert_eq!(CopyStatus::read(status.write()), Some(status.clone()));
        let bytes = status.write();
        let shorter = (0..bytes.len()).filter(|end| CopyStatus::read(bytes.slice(..*end)).is_some());
        // Whole escapes may be missing at the end, nothing else.
        assert_eq!(shorter.collect::<Vec<_>>(), [bytes.len() - 2 * ESCAPE_BYTES, bytes.len() - ESCAPE_BYTES]);
        assert_eq!(CopyStatus::read(Reply::NoState.write()), None);
        // A section that claims more pieces than it has, or lies outside the list, or brings it no further, is not valid.
        let claims = |of: u32, from: u32, count: u32| {
            let mut bytes = vec![REPLY_LIST, 0, 0, 0, 0, 0, 0, 0, 0];
            bytes.put_u32(of);
            bytes.put_u64(0);
            bytes.put_u32(from);
            bytes.put_u32(count);
            Reply::read(bytes.into())
        };
        assert_eq!(
            (claims(1, 0, 1), claims(u32::MAX, 0, 1), claims(1, u32::MAX, u32::MAX)),
            (None, None, None)
        );
        assert_eq!(claims(1, 0, 0), None);
        assert!(matches!(claims(1, 1, 0), Some(Reply::List(list)) if list.pieces.is_empty()));
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
        let now = Time::ZERO;
        let snapshot = |at: Seqno| {
            let parts = vec![Bytes::copy_from_slice(&at.to_be_bytes())];
            Present::State(Snapshot { at, parts })
        };
        let list = Question::List(Uid(2)).write();
        for at in 1..=3 {
            let reply = donor.answer(now, &list, |_| snapshot(at));
            assert!(matches!(Reply::read(reply), Some(Reply::List(list)) if list.at == at));
        }
        let piece = |at: Seqno| Question::Piece(digest(&at.to_be_bytes())).write();
        let replies: Vec<_> = (1..=3)
            .map(|at| Reply::read(donor.answer(now, &piece(at), |_| Present::Nothing)).unwrap())
            .collect();
        assert_eq!(replies[0], Reply::AskAgain);
        assert!(matches!((&replies[1], &replies[2]), (Reply::Piece(_), Reply::Piece(_))));
        // One that is not in the view has to wait, and without a state there is nothing to give.
        let mut ask =
            |question: &Bytes, has: Present| Reply::read(donor.answer(now, question, |_| has)).unwrap();
        assert_eq!(ask(&list, Present::TooOld), Reply::AskAgain);
        assert_eq!(ask(&list, Present::Nothing), Reply::NoState);
        assert_eq!(ask(&Bytes::from_static(b"?"), Present::Nothing), Reply::AskAgain);
        donor.forget();
        let reply = donor.answer(now, &piece(3), |_| Present::Nothing);
        assert_eq!(Reply::read(reply), Some(Reply::AskAgain));
    }

    #[test]
    fn a_donor_keeps_snapshots_only_while_it_gives_something_of_them() {
        let mut donor = Donor::new(digest);
        assert_eq!(donor.forgets_at(), None);
        let at = |seconds| Time::ZERO + Duration::from_secs(seconds);
        let snapshot = Snapshot { at: 1, parts: vec!["x".into()] };
        let list = Question::List(Uid(2)).write();
        donor.answer(at(1), &list, |_| Present::State(snapshot));
        let piece = Question::Piece(digest(b"x")).write();
        donor.answer(at(20), &piece, |_| Present::Nothing);
        assert_eq!(donor.forgets_at(), Some(at(50)));
        // Other questions keep nothing alive.
        let other = [CopyStatus::question(), "?".into(), Question::Piece([9; 32]).write(), list];
        for question in other {
            donor.answer(at(40), &question, |_| Present::TooOld);
            donor.forget_unused(at(49));
            assert_eq!(donor.forgets_at(), Some(at(50)));
        }
        donor.forget_unused(at(50));
        assert_eq!(donor.forgets_at(), None);
        let reply = donor.answer(at(51), &piece, |_| Present::Nothing);
        assert_eq!(Reply::read(reply), Some(Reply::AskAgain));
    }

    #[test]
    fn a_donor_hashes_what_it_lists_and_no_more() {
        static HASHED: core::sync::atomic::AtomicUsize = core::sync::atomic::AtomicUsize::new(0);
        let counting: fn(&[u8]) -> Digest = |bytes| {
            HASHED.fetch_add(bytes.len(), core::sync::atomic::Ordering::Relaxed);
            digest(bytes)
        };
        let hashed = || HASHED.swap(0, core::sync::atomic::Ordering::Relaxed);
        let mut donor = Donor::new(counting);
        let part: Bytes = vec![7; 2 * SECTION_BYTES_HASHED].into();
        let now = Time::ZERO;
        let snapshot = |at| Present::State(Snapshot { at, parts: vec![part.clone()] });
        let pieces = part.len() / STATE_PIECE_BYTES_MAX;
        let (mut listed, mut sections) = (Vec::new(), 0);
        while listed.len() < pieces {
            let question = match listed.len() {
                0 => Question::List(Uid(2)),
                from => Question::More { at: 1, from: from as u32 },
            };
            let reply = donor.answer(now, &question.write(), |_| snapshot(1));
            let Some(Reply::List(list)) = Reply::read(reply) else { panic!("no list") };
            assert_eq!((list.at, list.from as usize), (1, listed.len()));
            assert_eq!(list.of, Extent { pieces: pieces as u32, bytes: part.len() as u64 });
            assert_eq!(hashed(), list.pieces.len() * STATE_PIECE_BYTES_MAX);
            assert!(list.pieces.len() * STATE_PIECE_BYTES_MAX <= SECTION_BYTES_HASHED);
            listed.extend(list.pieces);
            sections += 1;
        }
        assert!(sections >= 2);
        assert_eq!(listed.iter().filter(|piece| piece.ends_part).count(), 1);
        // A later snapshot that shares the memory is not hashed again.
        let list = donor.answer(now, &Question::List(Uid(2)).write(), |_| snapshot(2));
        assert!(matches!(Reply::read(list), Some(Reply::List(list)) if list.at == 2));
        assert_eq!(hashed(), 0);
        let gone = donor.answer(now, &Question::More { at: 7, from: 1 }.write(), |_| Present::Nothing);
        assert_eq!(Reply::read(gone), Some(Reply::AskAgain));
    }
}

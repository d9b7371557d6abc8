//! How a newcomer gets the state: it asks the other members in turn for the list of pieces, takes the pieces that it
//! lacks from the first that has the state, and changes to another donor when that one dies or cannot go on.
//!
//! Pieces are checked by their digests and kept over a change of donors. If every other member of the view says that it
//! has no state, the state is lost.

use super::Watched;
use super::snapshot::{Extent, Hashed, List, Piece, Question, Reply, cut};
use super::types::{Digest, FetchNumber, Progress};
use crate::event::View;
use crate::identity::{Member, Seqno, Uid};
use crate::planted::{Planted, Probe};
use crate::rpc::CallFailure;
use crate::time::Time;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use bytes::Bytes;
use core::net::SocketAddr;
use core::time::Duration;

/// Number of pieces that are asked for at once: while one is checked, the other travels. Not more, because the datagrams of
/// commands wait behind what is under way.
const PIECES_UNDER_WAY: usize = 8;
/// The next section of the list is asked for while fewer listed pieces than this wait.
const PIECES_LISTED_AHEAD: usize = 2 * PIECES_UNDER_WAY;
/// Pause before the members are asked once more.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// A newcomer's transfer. See the module.
#[derive(Debug, Default)]
pub(super) struct Fetch {
    stage: Stage,
    /// Pieces that are here.
    here: BTreeMap<Digest, Bytes>,
    /// Calls under way to the present donor, and the piece that each asks for; none if it asks for a section of the list.
    calls: BTreeMap<FetchNumber, Option<Digest>>,
    calls_made: FetchNumber,
    to_call: VecDeque<(FetchNumber, SocketAddr, Bytes)>,
    /// Members of the present view that have no state.
    without_state: BTreeSet<Uid>,
    /// Members that could not go on lately.
    failed: BTreeSet<Uid>,
    ask_at: Option<Time>,
    is_lost: bool,
    /// A member that has no state may have it soon: it is asked again.
    insists: bool,
    /// Pieces of the donor before this one: for a planted bug.
    former: Vec<Piece>,
}

#[derive(Debug, Default)]
enum Stage {
    /// There is no donor.
    #[default]
    Seeking,
    /// The donor was asked for its list.
    Asking(Member),
    /// The donor's pieces travel.
    Taking(Taking),
    /// All pieces are here.
    Whole { at: Seqno, pieces: Vec<Piece> },
    /// The donor's state cannot be transferred.
    Impossible,
}

/// A donor's pieces.
#[derive(Debug)]
struct Taking {
    donor: Member,
    at: Seqno,
    of: Extent,
    /// Those of the sections that have arrived.
    pieces: Vec<Piece>,
    listed: BTreeSet<Digest>,
    missing: VecDeque<Digest>,
}

impl Taking {
    fn is_listed(&self) -> bool {
        self.pieces.len() == self.of.pieces as usize
    }
}

impl Fetch {
    pub(super) fn new() -> Fetch {
        Fetch::default()
    }

    /// Returns a transfer that never takes the state for lost. `asked` says when the members were asked before, if they
    /// were: they are asked again after a pause.
    pub(super) fn insisting(asked: Option<Time>) -> Fetch {
        let ask_at = asked.map(|asked| asked + ASK_AGAIN_AFTER);
        Fetch { insists: true, ask_at, ..Fetch::default() }
    }

    /// Keeps the parts of an own, older state: pieces that are the same need not travel.
    pub(super) fn keep(&mut self, digest: fn(&[u8]) -> Digest, parts: &[Bytes]) {
        self.here.extend(cut(parts).map(|(bytes, _)| (digest(&bytes), bytes)));
    }

    /// Finds a donor if there is none, and asks it for what is missing.
    pub(super) fn advance(&mut self, now: Time, me: Uid, view: &View) {
        if self.donor().is_some_and(|donor| !view.contains(donor)) {
            self.leave_donor(false);
        }
        if matches!(self.stage, Stage::Seeking) && self.ask_at.is_none_or(|at| at <= now) {
            self.seek(now, me, view);
        }
        self.ask_for_pieces();
    }

    fn donor(&self) -> Option<Uid> {
        match &self.stage {
            Stage::Asking(donor) | Stage::Taking(Taking { donor, .. }) => Some(donor.uid),
            Stage::Seeking | Stage::Whole { .. } | Stage::Impossible => None,
        }
    }

    /// Asks the next member that may have the state, beginning after this one by rank. The sequencer, which has work with
    /// every command, comes last.
    fn seek(&mut self, now: Time, me: Uid, view: &View) {
        let own = view.members.iter().position(|member| member.uid == me).unwrap_or(0);
        let (before, after) = view.members.split_at(own);
        let others = after.iter().chain(before).filter(|member| member.uid != me);
        if !self.insists && others.clone().all(|member| self.without_state.contains(&member.uid)) {
            self.is_lost = true;
            return;
        }
        let may_have = |member: &&Member| {
            !self.without_state.contains(&member.uid) && !self.failed.contains(&member.uid)
        };
        let mut candidates = others.filter(may_have);
        let sequencer = candidates.clone().find(|member| member.uid == view.sequencer);
        match candidates.find(|member| member.uid != view.sequencer).or(sequencer).cloned() {
            Some(donor) => {
                self.ask_at = None;
                self.call(donor.address, &Question::List(me), None);
                self.stage = Stage::Asking(donor);
            }
            None => {
                self.failed.clear();
                self.ask_at = Some(now + ASK_AGAIN_AFTER);
            }
        }
    }

    fn ask_for_pieces(&mut self) {
        let Stage::Taking(taking) = &mut self.stage else { return };
        let address = taking.donor.address;
        let mut under_way = self.calls.values().flatten().count();
        let mut asks = Vec::new();
        while under_way < PIECES_UNDER_WAY
            && let Some(digest) = taking.missing.pop_front()
        {
            asks.push((Question::Piece(digest), Some(digest)));
            under_way += 1;
        }
        let asks_for_list = self.calls.values().any(Option::is_none);
        if !asks_for_list && !taking.is_listed() && taking.missing.len() < PIECES_LISTED_AHEAD {
            asks.push((Question::More { at: taking.at, from: taking.pieces.len() as u32 }, None));
        }
        for (question, piece) in asks {
            self.call(address, &question, piece);
        }
    }

    fn call(&mut self, to: SocketAddr, question: &Question, piece: Option<Digest>) {
        self.calls_made += 1;
        self.calls.insert(self.calls_made, piece);
        self.to_call.push_back((self.calls_made, to, question.write()));
    }

    pub(super) fn poll_call(&mut self) -> Option<(FetchNumber, SocketAddr, Bytes)> {
        self.to_call.pop_front()
    }

    /// Handles the outcome of a call.
    pub(super) fn handle(
        &mut self,
        call: FetchNumber,
        reply: Result<Hashed, CallFailure>,
        watched: &mut Watched,
    ) {
        // A call to a former donor is of no interest any more.
        let Some(asked) = self.calls.remove(&call) else { return };
        let (reply, is_digest) = match reply {
            Ok(Hashed { reply, digest }) => (Reply::read(reply), digest),
            Err(_) => (None, None),
        };
        match (asked, reply) {
            (None, Some(Reply::NoState)) if self.insists => self.leave_donor(true),
            (None, Some(Reply::NoState)) => {
                self.without_state.extend(self.donor());
                self.leave_donor(false);
            }
            (None, Some(Reply::List(list))) => self.take_list(list, *watched),
            (None, Some(Reply::TooManyPieces)) => self.stage = Stage::Impossible,
            (Some(digest), Some(Reply::Piece(bytes))) => {
                if is_digest != Some(digest) {
                    watched.probe(Probe::PieceSpoiled);
                    if !watched.broken(Planted::PieceUnchecked) {
                        return self.leave_donor(true);
                    }
                }
                self.here.insert(digest, bytes);
                self.conclude();
            }
            (_, _) => {
                if asked.is_some() {
                    watched.probe(Probe::DonorChanged);
                }
                self.leave_donor(true);
            }
        }
    }

    /// Takes a section of the list, which has to follow the one before.
    fn take_list(&mut self, list: List, watched: Watched) {
        let List { at, of, from, mut pieces } = list;
        if let Stage::Asking(donor) = &self.stage {
            let donor = donor.clone();
            let (pieces, listed, missing) = (Vec::new(), BTreeSet::new(), VecDeque::new());
            self.stage = Stage::Taking(Taking { donor, at, of, pieces, listed, missing });
        }
        let Stage::Taking(taking) = &mut self.stage else { return };
        if (taking.at, taking.of, taking.pieces.len()) != (at, of, from as usize) {
            return self.leave_donor(true);
        }
        if watched.broken(Planted::DonorsMixed) {
            for (piece, former) in pieces.iter_mut().zip(self.former.iter().skip(from as usize)) {
                if self.here.contains_key(&former.digest) {
                    *piece = former.clone();
                }
            }
        }
        for piece in pieces {
            if taking.listed.insert(piece.digest) && !self.here.contains_key(&piece.digest) {
                taking.missing.push_back(piece.digest);
            }
            taking.pieces.push(piece);
        }
        if taking.is_listed() {
            self.here.retain(|digest, _| taking.listed.contains(digest));
        }
        self.conclude();
    }

    /// Notes that the state is whole, if it is.
    fn conclude(&mut self) {
        if !self.calls.is_empty() {
            return;
        }
        if let Stage::Taking(taking) = &mut self.stage
            && taking.missing.is_empty()
            && taking.is_listed()
        {
            self.stage = Stage::Whole { at: taking.at, pieces: core::mem::take(&mut taking.pieces) };
        }
    }

    fn leave_donor(&mut self, has_failed: bool) {
        if has_failed {
            self.failed.extend(self.donor());
        }
        if let Stage::Taking(taking) = core::mem::take(&mut self.stage) {
            self.former = taking.pieces;
        }
        self.calls.clear();
        self.to_call.clear();
    }

    /// Drops the list of pieces, which is of no use any more. The pieces stay.
    pub(super) fn begin_anew(&mut self) {
        self.leave_donor(false);
    }

    /// Notes that the members are others: one that had no state may have it now.
    pub(super) fn view_changed(&mut self) {
        self.without_state.clear();
        self.failed.clear();
        self.ask_at = None;
    }

    // --- results ---

    /// Returns the seqno of the state, if all of it is here.
    pub(super) fn whole_at(&self) -> Option<Seqno> {
        match &self.stage {
            Stage::Whole { at, .. } => Some(*at),
            _ => None,
        }
    }

    /// Takes the parts of the whole state.
    pub(super) fn take_whole(&mut self) -> Vec<Bytes> {
        let Stage::Whole { pieces, .. } = core::mem::take(&mut self.stage) else { return Vec::new() };
        let (mut parts, mut part) = (Vec::new(), Vec::new());
        for piece in pieces {
            part.extend(self.here.get(&piece.digest).cloned());
            if piece.ends_part {
                parts.push(match part.len() {
                    1 => part.remove(0),
                    _ => part.concat().into(),
                });
                part.clear();
            }
        }
        self.here.clear();
        parts
    }

    pub(super) fn is_lost(&self) -> bool {
        self.is_lost
    }

    pub(super) fn is_impossible(&self) -> bool {
        matches!(self.stage, Stage::Impossible)
    }

    pub(super) fn wake_at(&self) -> Option<Time> {
        matches!(self.stage, Stage::Seeking).then_some(self.ask_at).flatten()
    }

    pub(super) fn progress(&self) -> Progress {
        let (pieces, bytes_total) = match &self.stage {
            Stage::Taking(taking) => (&taking.pieces[..], taking.of.bytes),
            Stage::Whole { pieces, .. } => {
                (&pieces[..], pieces.iter().map(|piece| u64::from(piece.bytes)).sum())
            }
            _ => (&[][..], 0),
        };
        let here = pieces.iter().filter(|piece| self.here.contains_key(&piece.digest));
        Progress { bytes_here: here.map(|piece| u64::from(piece.bytes)).sum(), bytes_total }
    }
}

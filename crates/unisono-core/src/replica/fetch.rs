//! How a newcomer gets the state: it asks the other members in turn for the list of pieces, takes the pieces that it
//! lacks from the first that has the state, and changes to another donor when that one dies or cannot go on.
//!
//! Pieces are checked by their digests and lengths, and kept over a change of donors. A donor whose state is none that can be
//! restored is not asked again. If every other member of the view says that it has no state, the state is lost.
//!
//! Pieces yield to commands: while commands flow, fewer bytes are under way, and after a piece the newcomer rests for as long as
//! it took. So commands have the processors and the network for themselves for half of the time.

use super::snapshot::{Extent, Hashed, List, Piece, Question, Reply, STATE_PIECE_BYTES_MAX, cut};
use super::types::{Digest, FetchNumber, Progress};
use super::{NotRestored, Watched};
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
/// commands wait behind what is under way. After a piece that did not arrive in time it is half as many, down to one: on a slow
/// path pieces that travel side by side are all late.
const PIECES_UNDER_WAY: usize = 8;
/// Maximum bytes of the pieces under way while commands flow, or one piece.
const BYTES_BESIDE_COMMANDS: usize = 256 << 10;
/// Commands flow until none has come for this time.
const COMMANDS_FLOW_FOR: Duration = Duration::from_millis(20);
/// Maximum rest after a piece while commands flow: on a slow path a piece may take seconds.
const REST_MAX: Duration = Duration::from_millis(10);
/// The next section of the list is asked for while fewer listed pieces than this wait.
const PIECES_LISTED_AHEAD: usize = 2 * PIECES_UNDER_WAY;
/// Pause before the members are asked once more.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// A newcomer's transfer. See the module.
#[derive(Debug)]
pub(super) struct Fetch {
    stage: Stage,
    /// Pieces that are here.
    here: BTreeMap<Digest, Bytes>,
    /// Calls under way to the present donor, and the piece that each asks for; none if it asks for a section of the list.
    calls: BTreeMap<FetchNumber, Option<Digest>>,
    calls_made: FetchNumber,
    /// Maximum number of pieces under way.
    pieces_max: usize,
    /// When the last command came.
    command_at: Option<Time>,
    /// When something was last asked for.
    asked_at: Time,
    /// While commands flow, nothing is asked for before this time.
    rests_until: Option<Time>,
    /// True if what was fetched was too old once: a transfer that yields may never end.
    hurries: bool,
    to_call: VecDeque<(FetchNumber, SocketAddr, Bytes)>,
    /// Members of the present view that have no state.
    without_state: BTreeSet<Uid>,
    /// Members that could not go on lately.
    failed: BTreeSet<Uid>,
    /// Members whose states cannot be restored here.
    useless: BTreeSet<Uid>,
    /// Why that of the last of them cannot.
    reason: Option<NotRestored>,
    ask_at: Option<Time>,
    is_lost: bool,
    is_impossible: bool,
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
    Whole { donor: Uid, at: Seqno, pieces: Vec<Piece> },
}

/// A donor's pieces.
#[derive(Debug)]
struct Taking {
    donor: Member,
    at: Seqno,
    of: Extent,
    /// Those of the sections that have arrived.
    pieces: Vec<Piece>,
    /// Lengths of the pieces.
    listed: BTreeMap<Digest, u32>,
    missing: VecDeque<Digest>,
}

impl Taking {
    fn is_listed(&self) -> bool {
        self.pieces.len() == self.of.pieces as usize
    }

    /// Adds a piece. `here` is its length, if it is here. Returns false if no honest donor lists it.
    fn add(&mut self, piece: Piece, here: Option<usize>) -> bool {
        let length = piece.bytes as usize;
        let known = self.listed.insert(piece.digest, piece.bytes);
        if known.is_none() && here.is_none() {
            self.missing.push_back(piece.digest);
        }
        let is_known_so =
            known.is_none_or(|known| known == piece.bytes) && here.is_none_or(|here| here == length);
        self.pieces.push(piece);
        length <= STATE_PIECE_BYTES_MAX && is_known_so
    }

    /// True if a whole list ends as a state ends: with the last piece of a part.
    fn ends_well(&self) -> bool {
        !self.is_listed() || self.pieces.last().is_some_and(|piece| piece.ends_part)
    }
}

impl Fetch {
    pub(super) fn new() -> Fetch {
        Fetch {
            stage: Stage::Seeking,
            here: BTreeMap::new(),
            calls: BTreeMap::new(),
            calls_made: 0,
            pieces_max: PIECES_UNDER_WAY,
            command_at: None,
            asked_at: Time::ZERO,
            rests_until: None,
            hurries: false,
            to_call: VecDeque::new(),
            without_state: BTreeSet::new(),
            failed: BTreeSet::new(),
            useless: BTreeSet::new(),
            reason: None,
            ask_at: None,
            is_lost: false,
            is_impossible: false,
            insists: false,
            former: Vec::new(),
        }
    }

    /// Returns a transfer that never takes the state for lost. `asked` says when the members were asked before, if they
    /// were: they are asked again after a pause.
    pub(super) fn insisting(asked: Option<Time>) -> Fetch {
        let ask_at = asked.map(|asked| asked + ASK_AGAIN_AFTER);
        Fetch { insists: true, ask_at, ..Fetch::new() }
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
        self.ask_for_pieces(now);
    }

    /// Notes that a command came, to which the pieces yield.
    pub(super) fn note_command(&mut self, now: Time) {
        self.command_at = Some(now);
    }

    /// Notes that what was fetched is too old by now, so that pieces do not yield any more.
    pub(super) fn hurry(&mut self) {
        self.hurries = true;
    }

    fn yields(&self, now: Time) -> bool {
        !self.hurries && self.command_at.is_some_and(|at| now.since(at) < COMMANDS_FLOW_FOR)
    }

    fn donor(&self) -> Option<Uid> {
        match &self.stage {
            Stage::Asking(donor) | Stage::Taking(Taking { donor, .. }) => Some(donor.uid),
            Stage::Seeking | Stage::Whole { .. } => None,
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
        let is_no_donor =
            |member: &Member| self.without_state.contains(&member.uid) || self.useless.contains(&member.uid);
        if self.reason.is_some() && others.clone().all(is_no_donor) {
            self.is_impossible = true;
            return;
        }
        let may_have = |member: &&Member| !is_no_donor(member) && !self.failed.contains(&member.uid);
        let mut candidates = others.filter(may_have);
        let sequencer = candidates.clone().find(|member| member.uid == view.sequencer);
        match candidates.find(|member| member.uid != view.sequencer).or(sequencer).cloned() {
            Some(donor) => {
                self.ask_at = None;
                self.call(now, donor.address, &Question::List(me), None);
                self.stage = Stage::Asking(donor);
            }
            None => {
                self.failed.clear();
                self.ask_at = Some(now + ASK_AGAIN_AFTER);
            }
        }
    }

    fn ask_for_pieces(&mut self, now: Time) {
        let yields = self.yields(now);
        self.rests_until = self.rests_until.filter(|until| yields && now < *until);
        let Stage::Taking(taking) = &mut self.stage else { return };
        if self.rests_until.is_some() {
            return;
        }
        let address = taking.donor.address;
        let length = |digest: &Digest| taking.listed.get(digest).map_or(0, |bytes| *bytes as usize);
        let mut under_way = self.calls.values().flatten().count();
        let mut bytes: usize = self.calls.values().flatten().map(length).sum();
        let mut asks = Vec::new();
        while under_way < self.pieces_max
            && let Some(digest) = taking.missing.front().copied()
            && (!yields || under_way == 0 || bytes + length(&digest) <= BYTES_BESIDE_COMMANDS)
        {
            taking.missing.pop_front();
            asks.push((Question::Piece(digest), Some(digest)));
            under_way += 1;
            bytes += length(&digest);
        }
        let asks_for_list = self.calls.values().any(Option::is_none);
        if !asks_for_list && !taking.is_listed() && taking.missing.len() < PIECES_LISTED_AHEAD {
            asks.push((Question::More { at: taking.at, from: taking.pieces.len() as u32 }, None));
        }
        for (question, piece) in asks {
            self.call(now, address, &question, piece);
        }
    }

    fn call(&mut self, now: Time, to: SocketAddr, question: &Question, piece: Option<Digest>) {
        self.calls_made += 1;
        self.asked_at = now;
        self.calls.insert(self.calls_made, piece);
        self.to_call.push_back((self.calls_made, to, question.write()));
    }

    pub(super) fn poll_call(&mut self) -> Option<(FetchNumber, SocketAddr, Bytes)> {
        self.to_call.pop_front()
    }

    /// Handles the outcome of a call.
    pub(super) fn handle(
        &mut self,
        now: Time,
        call: FetchNumber,
        reply: Result<Hashed, CallFailure>,
        watched: &mut Watched,
    ) {
        // A call to a former donor is of no interest any more.
        let Some(asked) = self.calls.remove(&call) else { return };
        if self.yields(now) {
            self.rests_until = Some(now + now.since(self.asked_at).min(REST_MAX));
        }
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
            (None, Some(Reply::TooManyPieces)) => {
                let donor = self.donor();
                self.leave_donor(false);
                self.give_up(donor, NotRestored("it has more than 400,000 parts"));
            }
            (Some(digest), Some(Reply::Piece(bytes))) => {
                if is_digest != Some(digest) || self.listed_length(&digest) != Some(bytes.len()) {
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
                    self.pieces_max = (self.pieces_max / 2).max(1);
                }
                self.leave_donor(true);
            }
        }
    }

    fn listed_length(&self, piece: &Digest) -> Option<usize> {
        match &self.stage {
            Stage::Taking(taking) => taking.listed.get(piece).map(|bytes| *bytes as usize),
            _ => None,
        }
    }

    /// Takes a section of the list, which has to follow the one before.
    fn take_list(&mut self, list: List, watched: Watched) {
        let List { at, of, from, mut pieces } = list;
        if let Stage::Asking(donor) = &self.stage {
            let donor = donor.clone();
            let (pieces, listed, missing) = (Vec::new(), BTreeMap::new(), VecDeque::new());
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
        let mut is_good = true;
        for piece in pieces {
            let here = self.here.get(&piece.digest).map(Bytes::len);
            is_good &= taking.add(piece, here);
        }
        if !is_good || !taking.ends_well() {
            return self.leave_donor(true);
        }
        if taking.is_listed() {
            self.here.retain(|digest, _| taking.listed.contains_key(digest));
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
            let pieces = core::mem::take(&mut taking.pieces);
            self.stage = Stage::Whole { donor: taking.donor.uid, at: taking.at, pieces };
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

    /// Asks this donor for no state any more, since its state cannot be restored here.
    pub(super) fn give_up(&mut self, donor: Option<Uid>, reason: NotRestored) {
        self.useless.extend(donor);
        self.reason = Some(reason);
    }

    /// Asks another member, since the state that is here is of too early a point. The pieces stay.
    pub(super) fn refuse_whole(&mut self) {
        if let Stage::Whole { donor, .. } = &self.stage {
            self.failed.insert(*donor);
        }
        self.leave_donor(false);
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

    /// Takes the parts of the whole state, and the donor that they are from.
    pub(super) fn take_whole(&mut self) -> (Vec<Bytes>, Option<Uid>) {
        let Stage::Whole { donor, pieces, .. } = core::mem::take(&mut self.stage) else {
            return (Vec::new(), None);
        };
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
        (parts, Some(donor))
    }

    pub(super) fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Returns why no member gives a state that can be restored here, if that is so.
    pub(super) fn is_impossible(&self) -> Option<NotRestored> {
        self.reason.clone().filter(|_| self.is_impossible)
    }

    pub(super) fn wake_at(&self) -> Option<Time> {
        match self.stage {
            Stage::Seeking => self.ask_at,
            Stage::Taking(_) => self.rests_until,
            _ => None,
        }
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

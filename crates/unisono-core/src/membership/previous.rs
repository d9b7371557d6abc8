//! The epoch before this one: those who still show it are told what was decided, and served what they lack.
//!
//! Whoever entered the next epoch answers for the one before, so that a straggler can follow; the sequencer tells those
//! who do not go on unasked. An excluded member serves its log too, for it may hold what nobody else does: it asks
//! whether it may go, and goes after a while in any case.
//!
//! No replay window guards that epoch any more, so whatever comes from it may be a copy of what came before. So every
//! answer is paid from an allowance, which is refilled by what comes in the straggler's name, and by its progress: in
//! the long run it is sent no more than that and twice what it lacks.

use crate::allowance::Allowance;
use crate::group::{Group, Phase};
use crate::identity::{Ballot, EpochTag, Member, Seqno, Uid};
use crate::table::Table;
use crate::time::{Pace, Time};
use crate::wire::{Decoder, Frame, HEADER_BYTES, Header, PADDED_BYTES, Proposal};
use alloc::vec::Vec;
use bytes::Bytes;
use core::net::SocketAddr;
use core::time::Duration;

const PREVIOUS_TELL_EVERY: Duration = Duration::from_millis(15);
/// So many times somebody is told the decision before it has said as much.
const DECISIONS: usize = 32;
/// The most bytes of entries that somebody is served before it asks for later ones; any one entry is less.
const SERVE_BYTES: usize = 64 << 10;
/// For each byte of entries that somebody shows to have got it may be served so many: some are lost.
const SERVED_BYTES_PER_BYTE: usize = 2;
/// The most places that one pull gets.
const PLACES_MAX: u64 = 16;
/// How long an excluded member serves its log if nobody tells it that it may go.
const PREVIOUS_LINGER: Duration = Duration::from_millis(4000);
const PREVIOUS_ASK_EVERY: Duration = Duration::from_millis(60);
const INQUIRE_EVERY: Duration = Duration::from_millis(20);
/// An inquiry is padded, so that whoever is asked may answer.
pub(crate) const INQUIRY_BYTES: usize = HEADER_BYTES + PADDED_BYTES;
/// The most bytes of inquiries that somebody is sent before it has said as much.
pub(crate) const INQUIRE_BYTES: usize = 8 * INQUIRY_BYTES;
/// How often, and for how long, those who do not go on are told so unasked.
const PUSH_EVERY: Duration = Duration::from_millis(500);
const PUSH_FOR: Duration = Duration::from_secs(60);

/// The epoch before this one: what became of it is told to whoever still shows it.
#[derive(Clone, Debug)]
pub(crate) struct PreviousEpoch {
    tag: EpochTag,
    pub(super) proposal: Proposal,
    /// Bytes of a datagram that tells it.
    decision_bytes: usize,
    /// Everybody who may still show the old epoch.
    members: Vec<Member>,
    stragglers: Table<Straggler>,
    /// Until then those who do not go on are told so, though they do not ask.
    push_until: Time,
    push_at: Time,
    /// An excluded member asks whether it may go, until this passes.
    ask_at: Option<Time>,
    go_at: Option<Time>,
}

/// What somebody of that epoch may still be sent.
#[derive(Clone, Copy, Debug)]
struct Straggler {
    told: Pace,
    telling: Allowance,
    serving: Allowance,
    /// The highest place from which on it asked: it has got what lies below.
    asked: Seqno,
}

impl Straggler {
    fn new(decision_bytes: usize) -> Straggler {
        Straggler {
            told: Pace::default(),
            telling: Allowance::of(DECISIONS * decision_bytes),
            serving: Allowance::of(SERVE_BYTES),
            asked: 0,
        }
    }

    /// It sent a datagram of so many bytes: half pays for being told, so that being served never starves.
    fn earn(&mut self, bytes: usize) {
        self.telling.earn(bytes / 2);
        self.serving.earn(bytes / 2);
    }
}

impl PreviousEpoch {
    /// This member goes on, and answers for the epoch that ended.
    pub(crate) fn survived(
        now: Time,
        tag: EpochTag,
        proposal: Proposal,
        members: Vec<Member>,
    ) -> PreviousEpoch {
        let decision = Frame::Decided { proposal: proposal.clone(), entered: true };
        PreviousEpoch {
            tag,
            proposal,
            decision_bytes: decision.datagram_bytes().unwrap_or(0),
            members,
            stragglers: Table::default(),
            push_until: now + PUSH_FOR,
            push_at: now,
            ask_at: None,
            go_at: None,
        }
    }

    /// This member was excluded by the proposal, and lingers.
    pub(crate) fn lingering(
        now: Time,
        tag: EpochTag,
        proposal: Proposal,
        members: Vec<Member>,
    ) -> PreviousEpoch {
        PreviousEpoch {
            push_until: now,
            ask_at: Some(now + PREVIOUS_ASK_EVERY),
            go_at: Some(now + PREVIOUS_LINGER),
            ..PreviousEpoch::survived(now, tag, proposal, members)
        }
    }

    fn address(&self, uid: Uid) -> Option<SocketAddr> {
        self.members.iter().find(|member| member.uid == uid).map(|member| member.address)
    }

    fn straggler(&mut self, uid: Uid) -> Option<&mut Straggler> {
        self.address(uid)?;
        Some(self.stragglers.get_or_insert_with(uid, || Straggler::new(self.decision_bytes)))
    }

    pub(crate) fn wake_at(&self) -> Option<Time> {
        match (self.ask_at, self.go_at) {
            (Some(ask), Some(go)) => Some(ask.min(go)),
            _ => None,
        }
    }
}

impl Group {
    // --- answering ---

    /// A datagram of the epoch before this one: its sender is served and told. False if there is nothing to tell it.
    pub(crate) fn handle_straggler(
        &mut self,
        now: Time,
        from: SocketAddr,
        header: &Header,
        payload: &Bytes,
    ) -> bool {
        let Some(previous) = self.previous.as_mut().filter(|previous| previous.tag == header.epoch) else {
            return false;
        };
        let whom = header.sender;
        let bytes = HEADER_BYTES + payload.len();
        if previous.address(whom).is_none() {
            // It was not there, or is a leaver that was forgotten since: it is told as much as it sent.
            let asks = Decoder::new(payload.clone()).flatten().any(|frame| frame == Frame::Inquiry);
            let is_told = asks && previous.decision_bytes <= bytes;
            if is_told {
                self.tell_decision(from);
            }
            return is_told;
        }
        for frame in Decoder::new(payload.clone()).flatten() {
            if let Frame::Pull { ballot, from, to } = frame {
                self.serve_straggler(whom, ballot, from, to);
            }
        }
        self.tell_straggler(now, whom, bytes);
        true
    }

    /// Serves a straggler as much as it can pay for.
    fn serve_straggler(&mut self, whom: Uid, ballot: Ballot, from: Seqno, to: Seqno) {
        let Some(previous) = &mut self.previous else { return };
        let Some(address) = previous.address(whom) else { return };
        let (tag, kept) = (previous.tag, previous.proposal.start - 1);
        let first = from.max(self.history.base() + 1);
        let last = to.min(kept).min(self.history.received()).min(first.saturating_add(PLACES_MAX - 1));
        let Some(straggler) = previous.straggler(whom) else { return };
        if first > last || from < straggler.asked {
            // Nothing to serve, or a copy: it has got that since.
            return;
        }
        let asked = core::mem::replace(&mut straggler.asked, from);
        let got = (asked.max(self.history.base() + 1)..from).map(|place| self.history.place_bytes(place));
        straggler.serving.earn(got.sum::<usize>() * SERVED_BYTES_PER_BYTE);
        let pays = |place: &Seqno| straggler.serving.pay(self.history.place_bytes(*place));
        if let Some(last) = (first..=last).take_while(pays).last() {
            self.serve(address, tag, Some(ballot), first, last);
        }
    }

    /// Whoever shows the epoch before this one, by a datagram of so many bytes, is told what was decided.
    #[cold]
    pub(crate) fn tell_straggler(&mut self, now: Time, whom: Uid, bytes: usize) {
        let Some(previous) = &mut self.previous else { return };
        let cost = previous.decision_bytes;
        let Some(address) = previous.address(whom) else { return };
        let Some(straggler) = previous.straggler(whom) else { return };
        straggler.earn(bytes);
        if straggler.told.is_due(now, PREVIOUS_TELL_EVERY) && straggler.telling.pay(cost) {
            straggler.told.note(now);
            self.tell_decision(address);
        }
    }

    fn tell_decision(&mut self, address: SocketAddr) {
        let entered = self.quorum_has_entered();
        let Some(previous) = &self.previous else { return };
        let (tag, proposal) = (previous.tag, previous.proposal.clone());
        self.post_under(address, tag, Frame::Decided { proposal, entered });
    }

    /// The sequencer tells those who do not go on, now and then: they may know nobody who does.
    pub(crate) fn push_decision(&mut self, now: Time) {
        let Some(previous) = &mut self.previous else { return };
        if now < previous.push_at || now >= previous.push_until {
            return;
        }
        previous.push_at = now + PUSH_EVERY;
        let out = previous.members.iter().filter(|member| !previous.proposal.members.contains(&member.uid));
        let out: Vec<SocketAddr> = out.map(|member| member.address).collect();
        for address in out {
            self.tell_decision(address);
        }
    }

    /// Somebody that is not known here and shows this epoch may have what a quorum needs in order to follow: a leaver, for
    /// instance, that was silent for so long that it was forgotten.
    pub(crate) fn may_need(&self, epoch: EpochTag) -> bool {
        self.previous.as_ref().is_some_and(|previous| previous.tag == epoch) && !self.quorum_has_entered()
    }

    /// A quorum of the present view is known to have entered the epoch.
    fn quorum_has_entered(&self) -> bool {
        if matches!(self.phase, Phase::Excluded | Phase::Gone) {
            return false;
        }
        let view = self.history.view_at(self.epoch_start);
        self.is_quorum(view, |member| self.has_entered(member.uid))
    }

    // --- asking ---

    /// An excluded member asks whether it may go, and goes after a while in any case.
    pub(crate) fn previous_timeout(&mut self, now: Time) {
        let Some(previous) = &mut self.previous else { return };
        if previous.go_at.is_some_and(|at| at <= now) {
            (previous.ask_at, previous.go_at) = (None, None);
            if self.phase == Phase::Excluded {
                self.phase = Phase::Gone;
            }
            return;
        }
        if previous.ask_at.is_some_and(|at| at <= now) {
            previous.ask_at = Some(now + PREVIOUS_ASK_EVERY);
            let proposal = previous.proposal.clone();
            for &uid in &proposal.members {
                self.post(uid, Frame::Decided { proposal: proposal.clone(), entered: false });
                self.post(uid, Frame::Inquiry);
            }
        }
    }

    /// Asks a peer what became of this epoch: it shows another one, or keeps nothing of ours, by a datagram of so many
    /// bytes.
    pub(crate) fn inquire(&mut self, now: Time, whom: Uid, bytes: usize) {
        let Some(peer) = self.peers.get_mut(whom) else { return };
        peer.inquiring.earn(bytes);
        if peer.inquired.is_due(now, INQUIRE_EVERY) && peer.inquiring.pay(INQUIRY_BYTES) {
            peer.inquired.note(now);
            self.post(whom, Frame::Inquiry);
        }
    }
}

//! The previous epoch: members that still send in it get the decision and the log entries that they lack.
//!
//! Every member that entered the present epoch answers for the previous one, so that a straggler can follow. The
//! sequencer also sends the decision unasked to members that are not in the new view. An excluded member serves its log
//! too, because it may be the only holder of some entries, or the only one that knows the decision. It asks whether it
//! may go. Without an answer it goes once it has heard no member of the new view in the old epoch for 4 s.
//!
//! No replay window guards the previous epoch any more, so each of its datagrams may be a copy of an earlier one.
//! Therefore every answer is paid from an allowance. Bytes that arrive in the straggler's name refill it, and so does
//! the straggler's progress: in the long run it is sent no more than it sent, plus twice what it lacked.

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
/// Decisions that a straggler may be sent before it has sent as many bytes.
const DECISIONS: usize = 32;
/// Maximum bytes of entries that a straggler is sent before it asks for later ones; any single entry is smaller.
const SERVE_BYTES: usize = 64 << 10;
/// Bytes that a straggler may be sent for each byte of entries that it shows to have received: some datagrams are lost.
const SERVED_BYTES_PER_BYTE: usize = 2;
/// Maximum number of seqnos sent for one pull.
const SEQNOS_MAX: u64 = 16;
/// An excluded member that does not learn that it may go serves until it has heard no member of the new view in the old
/// epoch for 4 s: such a member is dead, or knows the decision.
const PREVIOUS_LINGER: Duration = Duration::from_millis(4000);
/// It goes one minute after the decision at the latest.
const PREVIOUS_LINGER_MAX: Duration = Duration::from_secs(60);
const PREVIOUS_ASK_EVERY: Duration = Duration::from_millis(60);
const INQUIRE_EVERY: Duration = Duration::from_millis(20);
/// Length of an inquiry: padded, so that the answer is no longer than the question.
pub(crate) const INQUIRY_BYTES: usize = HEADER_BYTES + PADDED_BYTES;
/// Maximum number of bytes of inquiries that a peer is sent before it has sent as many bytes.
pub(crate) const INQUIRE_BYTES: usize = 8 * INQUIRY_BYTES;
/// Interval and total time of sending the decision unasked to members that are not in the new view.
const PUSH_EVERY: Duration = Duration::from_millis(500);
const PUSH_FOR: Duration = Duration::from_secs(60);

/// The previous epoch, for answering members that still send in it.
#[derive(Clone, Debug)]
pub(crate) struct PreviousEpoch {
    tag: EpochTag,
    pub(super) proposal: Proposal,
    /// Length of a datagram with the decision.
    decision_bytes: usize,
    /// Members that may still be in the previous epoch.
    members: Vec<Member>,
    stragglers: Table<Straggler>,
    /// Until when members outside the new view are sent the decision unasked.
    push_until: Time,
    push_at: Time,
    lingering: Option<Lingering>,
}

/// How long an excluded member still serves.
#[derive(Clone, Copy, Debug)]
struct Lingering {
    /// When it asks next whether it may go.
    ask_at: Time,
    /// When it goes, if it hears no member of the new view in the old epoch before.
    go_at: Time,
    /// When it goes at the latest.
    end: Time,
}

impl Lingering {
    fn since(now: Time) -> Lingering {
        Lingering {
            ask_at: now + PREVIOUS_ASK_EVERY,
            go_at: now + PREVIOUS_LINGER,
            end: now + PREVIOUS_LINGER_MAX,
        }
    }

    /// Notes that a member of the new view is still in the old epoch.
    fn note_needed(&mut self, now: Time) {
        self.go_at = (now + PREVIOUS_LINGER).min(self.end);
    }
}

/// Allowances of a member of the previous epoch.
#[derive(Clone, Copy, Debug)]
struct Straggler {
    told: Pace,
    telling: Allowance,
    serving: Allowance,
    /// Highest seqno from which it has pulled; it holds everything below.
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

    /// Credits a received datagram: half for decisions and half for entries, so that serving never starves.
    fn earn(&mut self, bytes: usize) {
        self.telling.earn(bytes / 2);
        self.serving.earn(bytes / 2);
    }
}

impl PreviousEpoch {
    /// Returns the state of a member that goes on and answers for the epoch that ended.
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
            lingering: None,
        }
    }

    /// Returns the state of a member that the proposal excludes, and that lingers.
    pub(crate) fn lingering(
        now: Time,
        tag: EpochTag,
        proposal: Proposal,
        members: Vec<Member>,
    ) -> PreviousEpoch {
        PreviousEpoch {
            push_until: now,
            lingering: Some(Lingering::since(now)),
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
        self.lingering.map(|lingering| lingering.ask_at.min(lingering.go_at))
    }
}

impl Group {
    // --- answering ---

    /// Handles a datagram of the previous epoch: sends its sender entries and the decision. Returns false if there is
    /// nothing to send.
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
        let target = header.sender;
        let bytes = HEADER_BYTES + payload.len();
        if previous.address(target).is_none() {
            // The sender was never in that epoch, or is a leaver that was forgotten since. It gets the decision if it
            // inquires, and if the answer is no longer than its datagram.
            let asks = Decoder::new(payload.clone()).flatten().any(|frame| frame == Frame::Inquiry);
            let is_told = asks && previous.decision_bytes <= bytes;
            if is_told {
                self.tell_decision(from);
            }
            return is_told;
        }
        for frame in Decoder::new(payload.clone()).flatten() {
            if let Frame::Pull { ballot, from, to } = frame {
                self.serve_straggler(target, ballot, from, to);
            }
        }
        self.tell_straggler(now, target, bytes);
        true
    }

    /// Handles a datagram of the old epoch at an excluded member, which may be the only one left that knows the decision.
    /// `is_there`: its sender is in that epoch, too.
    #[cold]
    pub(crate) fn linger_for(&mut self, now: Time, sender: Uid, is_there: bool, bytes: usize) {
        if let Some(previous) = &mut self.previous
            && is_there
            && previous.proposal.members.contains(&sender)
            && let Some(lingering) = &mut previous.lingering
        {
            lingering.note_needed(now);
        }
        self.tell_straggler(now, sender, bytes);
    }

    /// Serves a straggler as many entries as its allowance pays for.
    fn serve_straggler(&mut self, target: Uid, ballot: Ballot, from: Seqno, to: Seqno) {
        let Some(previous) = &mut self.previous else { return };
        let Some(address) = previous.address(target) else { return };
        let (tag, kept) = (previous.tag, previous.proposal.keep());
        let first = from.max(self.log.base() + 1);
        let last = to.min(kept).min(self.log.received()).min(first.saturating_add(SEQNOS_MAX - 1));
        let Some(straggler) = previous.straggler(target) else { return };
        if first > last || from < straggler.asked {
            // Nothing to serve, or a late copy: the straggler has received this since.
            return;
        }
        let asked = core::mem::replace(&mut straggler.asked, from);
        let got = (asked.max(self.log.base() + 1)..from).map(|seqno| self.log.history().entry_bytes(seqno));
        straggler.serving.earn(got.sum::<usize>() * SERVED_BYTES_PER_BYTE);
        let pays = |seqno: &Seqno| straggler.serving.pay(self.log.history().entry_bytes(*seqno));
        if let Some(last) = (first..=last).take_while(pays).last() {
            self.serve(address, tag, Some(ballot), first, last);
        }
    }

    /// Sends the decision to a member that shows the previous epoch by a datagram of `bytes` bytes.
    #[cold]
    pub(crate) fn tell_straggler(&mut self, now: Time, target: Uid, bytes: usize) {
        let Some(previous) = &mut self.previous else { return };
        let cost = previous.decision_bytes;
        let Some(address) = previous.address(target) else { return };
        let Some(straggler) = previous.straggler(target) else { return };
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

    /// Sends the decision, now and then, to members outside the new view: they may know no member of the new epoch.
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

    /// True if an unknown sender in `epoch` may hold what a quorum needs in order to follow: for instance a leaver that
    /// was forgotten because it was silent.
    pub(crate) fn may_need(&self, epoch: EpochTag) -> bool {
        self.previous.as_ref().is_some_and(|previous| previous.tag == epoch) && !self.quorum_has_entered()
    }

    /// True if a quorum of the present view is known to have entered the epoch.
    fn quorum_has_entered(&self) -> bool {
        if matches!(self.phase, Phase::Excluded | Phase::Gone) {
            return false;
        }
        let view = self.log.history().view_at(self.epoch_start);
        self.is_quorum(view, |member| self.has_entered(member.uid))
    }

    // --- asking ---

    /// Asks whether this excluded member may go, or lets it go when its time is over.
    pub(crate) fn previous_timeout(&mut self, now: Time) {
        let Some(previous) = &mut self.previous else { return };
        let Some(lingering) = &mut previous.lingering else { return };
        if lingering.go_at <= now {
            previous.lingering = None;
            if self.phase == Phase::Excluded {
                self.phase = Phase::Gone;
            }
            return;
        }
        if lingering.ask_at <= now {
            lingering.ask_at = now + PREVIOUS_ASK_EVERY;
            let proposal = previous.proposal.clone();
            for &uid in &proposal.members {
                self.post(uid, Frame::Decided { proposal: proposal.clone(), entered: false });
                self.post(uid, Frame::Inquiry);
            }
        }
    }

    /// Sends an `Inquiry` to a peer whose datagram of `bytes` bytes shows another epoch, or says `Gone`.
    pub(crate) fn inquire(&mut self, now: Time, target: Uid, bytes: usize) {
        let Some(peer) = self.peers.get_mut(target) else { return };
        if peer.take_inquiry(now, INQUIRE_EVERY, bytes, INQUIRY_BYTES) {
            self.post(target, Frame::Inquiry);
        }
    }
}

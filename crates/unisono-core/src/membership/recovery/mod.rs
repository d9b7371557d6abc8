//! Reset: the members of the present epoch decide the first view of the next one, by single-decree consensus.
//!
//! Described in docs/protocol/recovery.md (KT93 §5.3, made safe against any number of coordinators). This file is the
//! voter's part, which every member plays: it promises a ballot, votes, and prepares what is proposed under it. A
//! member that has promised numbers, stores, acknowledges and accepts nothing more in this epoch; it goes on serving
//! its log, in every state. `coordinator` runs a ballot of this member's own, `level` fetches what its log lacks,
//! `outcome` enters the next epoch or ends the membership.

mod coordinator;
mod copies;
mod force;
mod halt;
mod level;
mod outcome;

use crate::config::Floor;
use crate::episode::Episode;
use crate::error::ResetError;
use crate::group::{Group, Phase, Prepared};
use crate::identity::{Ballot, Member, Name, Seqno, Uid};
use crate::peers::{Peer, Standing};
use crate::planted::{Planted, Probe};
use crate::time::{Time, earlier};
use crate::wire::{Frame, HereIs, Prepare, Proposal, Vote};
use alloc::boxed::Box;
use alloc::vec::Vec;
use coordinator::Coordination;
use core::cmp::Ordering;
use core::net::SocketAddr;
use core::time::Duration;
pub(crate) use force::Force;
pub(crate) use halt::Halt;
use level::Pull;

/// A member begins its ballot 4 ms after the member of the rank before it.
const STAGGER: Duration = Duration::from_millis(4);
/// Maximum random delay before a ballot begins, less than `STAGGER`. Members that suspect different members may count
/// the same rank for themselves; the delay keeps them from beginning together.
const BEGIN_JITTER: Duration = Duration::from_millis(2);
const RESET_REPEAT_EVERY: Duration = Duration::from_millis(15);
/// How long after a promise other coordinators' invitations are ignored.
const RESET_HOLD_OFF: Duration = Duration::from_millis(60);
/// If a member has promised and the epoch does not end, the member begins a ballot itself: 80 ms after the time that
/// the coordinator waits for votes, later by `STAGGER` for each rank, and by up to `TAKE_OVER_JITTER` at random.
const RESET_TAKE_OVER: Duration = Duration::from_millis(80);
const TAKE_OVER_JITTER: Duration = Duration::from_millis(90);
/// How many times, for each ballot, this process may put off what it would begin or decide because it was asleep.
const PUT_OFF_MAX: u32 = 3;
/// An inviter must have shown within this time that it hears this member.
const HEARS_US_WITHIN: Duration = Duration::from_millis(1500);
/// With every fourth ballot, a member looks for the group with `Locate`: all members that it knows may have gone.
const BALLOTS_PER_SEARCH: u32 = 4;
/// Highest round that is believed: no correct coordinator begins that many ballots.
const RESET_ROUND_MAX: u32 = 1 << 30;

/// What this member has promised and does in a reset.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recovery {
    promised: Option<Ballot>,
    promised_at: Time,
    prepared: Option<(Ballot, Proposal)>,
    /// Proposal under the promised ballot that this member cannot prepare yet, because it lacks entries below it.
    pending: Option<Prepare>,
    /// Decided proposal that this member cannot follow yet, because it lacks entries below it.
    decided: Option<Proposal>,
    /// Invitation whose sender has not shown yet that it hears this member.
    invitation: Option<(Uid, Invitation)>,
    pull: Option<Pull>,
    coordination: Option<Box<Coordination>>,
    /// Members that left an invitation unanswered and have not voted since.
    unanswered: Vec<Uid>,
    /// When the members in `unanswered` were last invited again.
    invited_again_at: Time,
    /// When this member begins a ballot of its own.
    begin_at: Option<Time>,
    /// How many times this member has put something off since the last promise because it was asleep.
    put_off: u32,
    /// Highest round of a ballot that this member knows.
    round: u32,
    /// Number of ballots that this member has begun in this epoch.
    attempts: u32,
    /// Nonce of the last `Locate` that this member sent to find the group, until it is answered.
    search: Option<u64>,
    /// Minimum number of members that the application asked for.
    floor_asked: Option<usize>,
    /// Minimum number of members that the last promised coordinator asked for; it binds this member if it takes over.
    floor_told: u16,
    /// When this member first promised a ballot in this epoch.
    since: Option<Time>,
}

/// A coordinator's request for a vote.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Invitation {
    pub(crate) ballot: Ballot,
    /// Minimum number of members of the next view.
    pub(crate) members_min: u16,
}

impl Recovery {
    pub(crate) fn has_promised(&self) -> bool {
        self.promised.is_some()
    }

    pub(crate) fn promised(&self) -> Option<Ballot> {
        self.promised
    }

    pub(crate) fn prepared(&self) -> Option<Prepared> {
        let (ballot, proposal) = self.prepared.as_ref()?;
        let Proposal { epoch, start, .. } = *proposal;
        Some(Prepared { ballot: *ballot, epoch, keep: proposal.keep(), start })
    }

    /// Returns the members named by the proposal that was prepared last.
    pub(crate) fn prepared_members(&self) -> &[Uid] {
        self.prepared.as_ref().map_or(&[], |(_, proposal)| &proposal.members)
    }

    /// Returns the minimum number of members of the next view.
    fn floor(&self) -> usize {
        self.floor_asked.unwrap_or(self.floor_told.into())
    }

    fn floor_to_tell(&self) -> u16 {
        u16::try_from(self.floor()).unwrap_or(u16::MAX)
    }

    pub(crate) fn since(&self) -> Option<Time> {
        self.since
    }

    pub(crate) fn wake_at(&self) -> Option<Time> {
        let pull = self.pull.map(|pull| pull.ask_at);
        let coordination = self.coordination.as_deref().map(Coordination::wake_at);
        earlier(earlier(self.begin_at, pull), coordination)
    }

    /// Puts off the next ballot or decision after this process was asleep: decisions and votes may lie unread in its
    /// socket.
    pub(crate) fn notice_sleep(&mut self, now: Time) {
        let is_at_work = self.begin_at.is_some() || self.coordination.is_some();
        if !is_at_work || self.put_off >= PUT_OFF_MAX {
            return;
        }
        self.put_off += 1;
        let at_least = now + RESET_HOLD_OFF / 2;
        if let Some(at) = &mut self.begin_at {
            *at = (*at).max(at_least);
        }
        if let Some(own) = &mut self.coordination {
            own.put_off(at_least);
        }
    }

    pub(crate) fn stop(&mut self) {
        (self.begin_at, self.pull, self.coordination) = (None, None, None);
    }
}

// --- beginning ---

impl Group {
    /// Handles `reset(min)`: begins a reset if a member is suspected.
    pub(crate) fn request_reset(&mut self, now: Time, min: usize) -> Result<(), ResetError> {
        let takes_part = matches!(self.phase, Phase::Member | Phase::Resetting | Phase::Leaving);
        if !takes_part || !self.may_begin() {
            return Err(ResetError::NotMember);
        }
        let suspects = self.peers.iter().any(|peer| peer.is_suspected());
        let members = self.log.history().view().len();
        if !suspects && !self.recovery.has_promised() {
            return if members >= min { Ok(()) } else { Err(ResetError::TooFew { members, min }) };
        }
        self.recovery.floor_asked = Some(min);
        if !self.recovery.has_promised() {
            self.recovery.begin_at = Some(now);
        }
        self.check_quorum_for(min)
    }

    /// Schedules a reset, lower ranks first, so that there is normally one coordinator.
    pub(crate) fn begin_reset_soon(&mut self, now: Time) {
        if self.recovery.has_promised() || self.recovery.begin_at.is_some() || !self.may_begin() {
            return;
        }
        let rank = self.rank_among_unsuspected();
        let jitter = Duration::from_nanos(self.random.below(BEGIN_JITTER.as_nanos() as u64));
        self.recovery.begin_at = Some(now + STAGGER * rank as u32 + jitter);
    }

    fn rank_among_unsuspected(&self) -> usize {
        let view = self.log.history().view();
        let ahead = view.iter().take_while(|member| member.uid != self.me.uid);
        ahead.filter(|member| self.peers.get(member.uid).is_some_and(|peer| !peer.is_suspected())).count()
    }

    /// True if this member may begin a ballot; a leaver that knows its LEAVE accepted may not.
    fn may_begin(&self) -> bool {
        let takes_part =
            matches!(self.phase, Phase::Member | Phase::Resetting | Phase::Leaving | Phase::Joining);
        let leaves = self.own_leave_is_logged() && self.log.accepted() >= self.log.history().last_change();
        takes_part && !leaves && (self.is_member() || self.own_leave_is_logged())
    }

    // --- promising and voting ---

    fn promise(&mut self, now: Time, ballot: Ballot) {
        self.recovery.round = self.recovery.round.max(ballot.round);
        self.recovery.promised = Some(ballot);
        self.recovery.promised_at = now;
        self.forget_numbered_early();
        self.recovery.put_off = 0;
        if self.recovery.since.is_none() {
            self.recovery.since = Some(now);
            if self.phase != Phase::Joining {
                let coordinator = Some(ballot.coordinator).filter(|uid| *uid != Uid(0));
                self.episodes.push(Episode::ResetBegun { coordinator });
            }
        }
        self.recovery.pending = None;
        if let Some(own) = self.recovery.coordination.as_ref().filter(|own| own.ballot < ballot) {
            if own.had_time(now) {
                self.halt_without_answers(now);
            }
            self.recovery.coordination = None;
        }
        if self.recovery.pull.is_some_and(|pull| pull.ballot != ballot) && self.recovery.decided.is_none() {
            self.recovery.pull = None;
        }
        if !self.broken(Planted::NumberAfterPromise) {
            self.order.stop();
        }
        self.detector.stop();
        if self.phase == Phase::Member {
            self.phase = Phase::Resetting;
        }
        let rank = self.rank_among_unsuspected() as u32;
        let jitter = Duration::from_nanos(self.random.below(TAKE_OVER_JITTER.as_nanos() as u64));
        // A ballot that an operator asked for would come too late if this member is more patient than the others.
        let patience = if self.force.is_asked(now) { Duration::ZERO } else { self.patience(now) };
        self.recovery.begin_at = Some(now + patience + RESET_TAKE_OVER + STAGGER * rank + jitter);
        self.halt_without_contact(now);
    }

    /// Adopts the minimum that the promised coordinator asked for. With the automatic policy, an application's minimum
    /// binds only the ballots of its own member.
    fn heed_floor(&mut self, members_min: u16) {
        if !self.config.automatic {
            self.recovery.floor_told = members_min;
        }
    }

    fn own_vote(&self, ballot: Ballot) -> Vote {
        let end = self.log.received();
        Vote {
            ballot,
            end,
            accepted: self.log.accepted(),
            lacks_state: !self.has_state(),
            prepared: self.recovery.prepared.clone(),
            early: self.early_for_vote(),
        }
    }

    /// Handles an invitation from a uid that is not in `peers`, a stranger. There are three cases:
    ///
    /// - The stranger joined after the end of this member's log.
    /// - This member is a joiner. The stranger holds its JOIN, and can serve it.
    /// - The stranger is a leaver that was forgotten, and may still be needed. `leave` is the seqno of its LEAVE. Other
    ///   members may have promised its ballot.
    ///
    /// In the first two cases the members that know more may have no quorum without this vote, and this member alone
    /// has none. So this member takes the stranger for a member; the log will show that it is one.
    pub(crate) fn handle_invitation_of_stranger(
        &mut self,
        now: Time,
        from: SocketAddr,
        uid: Uid,
        leave: Option<Seqno>,
        invitation: Invitation,
    ) {
        let counts = self.is_member() || self.phase == Phase::Joining;
        let its_own = invitation.ballot.coordinator == uid;
        if counts && its_own && self.take_for_member(now, from, uid, leave) {
            self.handle_invite(now, uid, invitation);
        }
    }

    /// Adds a stranger to the peers, as a member, or as a leaver if `leave` is given. Returns false if the peers are
    /// full: at twice `members_max`, because all former members may have gone and all present ones be strangers.
    pub(crate) fn take_for_member(
        &mut self,
        now: Time,
        from: SocketAddr,
        uid: Uid,
        leave: Option<Seqno>,
    ) -> bool {
        let has_capacity = self.peers.len() < 2 * usize::from(self.config.members_max);
        if has_capacity {
            let member = Member {
                uid,
                name: Name::default(),
                address: from,
                floor: Floor::None,
                hops: Member::HOPS_DEFAULT,
            };
            let standing = leave.map_or(Standing::Member, |seqno| Standing::Leaver { seqno, since: now });
            self.peers.insert(Peer::new(now, member, standing, 0));
        }
        has_capacity
    }

    pub(crate) fn handle_invite(&mut self, now: Time, from: Uid, invitation: Invitation) {
        let ballot = invitation.ballot;
        if self.dismiss(from) {
            // The inviter missed that it is no longer needed; the members may have purged what it would pull.
            return;
        }
        // A joiner that does not hold its JOIN may have prepared: the coordinator that asked it to holds it. Others count on it too.
        let votes = self.is_member() || self.own_leave_is_logged() || self.recovery.has_promised();
        if self.phase == Phase::Joining && !votes {
            // This joiner's JOIN may have a seqno already, and its vote may be needed. So it asks for the next seqno.
            self.ask_around();
        }
        if ballot.round > RESET_ROUND_MAX {
            return;
        }
        if !votes || ballot.coordinator != from || matches!(self.phase, Phase::Excluded | Phase::Gone) {
            return;
        }
        self.recovery.round = self.recovery.round.max(ballot.round);
        if let Some(promised) = self.recovery.promised.filter(|_| !self.broken(Planted::PromiseForgotten)) {
            if ballot < promised {
                self.post(from, Frame::Outbid { promised });
                return;
            }
            if ballot > promised && promised.coordinator != from {
                self.probe(Probe::TwoCoordinators);
                if now.since(self.recovery.promised_at) < RESET_HOLD_OFF {
                    return;
                }
            }
        }
        let hears_us = |at: Time| now.since(at) < HEARS_US_WITHIN;
        if !self.peers.get(from).and_then(Peer::heard_us).is_some_and(hears_us) {
            // The vote follows when the inviter answers a probe, one round trip later; until then this member begins no
            // ballot. It does not wait longer than its patience, because the inviter may be deaf.
            self.probe(Probe::InvitationUnheard);
            self.recovery.invitation = Some((from, invitation));
            self.probe_now(now, from);
            let asked_since = self.peers.get(from).and_then(Peer::probed_since);
            let may_answer = asked_since.is_some_and(|since| now.since(since) < self.patience(now));
            if let Some(at) = self.recovery.begin_at.as_mut().filter(|_| may_answer) {
                *at = (*at).max(now + RESET_HOLD_OFF / 2);
            }
            return;
        }
        if self.recovery.promised != Some(ballot) {
            self.promise(now, ballot);
        }
        self.heed_floor(invitation.members_min);
        if self.joining.is_some() || self.entered_at > self.log.accepted() {
            self.probe(Probe::JoinerVoted);
        }
        if self.leaving.is_some() {
            self.probe(Probe::LeaverVoted);
        }
        let vote = self.own_vote(ballot);
        self.post(from, Frame::Vote(Box::new(vote)));
    }

    /// Handles the kept invitation of `from`, which has just shown that it hears this member.
    pub(crate) fn answer_invitation(&mut self, now: Time, from: Uid) {
        if let Some((inviter, invitation)) = self.recovery.invitation
            && inviter == from
        {
            self.recovery.invitation = None;
            self.handle_invite(now, from, invitation);
        }
    }

    // --- preparing ---

    pub(crate) fn handle_prepare(&mut self, now: Time, from: Uid, prepare: Prepare) {
        let me = self.me.uid;
        let asked = prepare.before.contains(&me) || prepare.after.contains(&me);
        let takes_part =
            matches!(self.phase, Phase::Member | Phase::Resetting | Phase::Leaving | Phase::Joining);
        if !asked
            || !takes_part
            || prepare.ballot.round > RESET_ROUND_MAX
            || prepare.ballot.coordinator != from
            || prepare.proposal.members.is_empty()
        {
            return;
        }
        if let Some(promised) = self.recovery.promised
            && prepare.ballot < promised
        {
            self.post(from, Frame::Outbid { promised });
            return;
        }
        if self.recovery.promised != Some(prepare.ballot) {
            self.promise(now, prepare.ballot);
        }
        self.heed_floor(prepare.members_min);
        let holds = self.log.received() >= prepare.proposal.keep();
        if !holds && !self.broken(Planted::PrepareWithoutHolding) {
            self.probe(Probe::MemberPulled);
            let through = prepare.proposal.keep();
            let ballot = prepare.ballot;
            if self.recovery.pull.is_none() {
                self.pull(now, ballot, through, from);
            }
            self.recovery.pending = Some(prepare);
            return;
        }
        self.recovery.pending = None;
        if !self.is_tail_after(prepare.proposal.keep(), &prepare.proposal.tail) {
            // No correct coordinator proposes it.
            self.counters.malformed += 1;
            return;
        }
        let ballot = prepare.ballot;
        let of_another = self.recovery.prepared.as_ref().filter(|(known, _)| known.coordinator != from);
        if of_another.is_some_and(|(_, known)| known.tail != prepare.proposal.tail) {
            self.probe(Probe::TailsDiffer);
        }
        self.file_undecided(prepare.proposal.keep(), &prepare.proposal.tail);
        self.recovery.prepared = Some((ballot, prepare.proposal));
        if from == me {
            self.note_prepared(now, me, ballot);
        } else {
            self.post(from, Frame::Prepared { ballot });
        }
    }

    // --- left behind ---

    /// Looks for the group with `Locate`, because no member of this epoch answers.
    pub(crate) fn search(&mut self) {
        self.probe(Probe::LeftBehind);
        let nonce = self.random.next_u64();
        self.recovery.search = Some(nonce);
        self.post_to_rendezvous(Frame::Locate { nonce });
    }

    /// Handles an answer to `search`. A member that answers from a later epoch gets an `Inquiry`. A joiner or leaver
    /// also inquires in this epoch, of the sequencer that the answer names: all members that it knew may have gone or
    /// handed the role on, and only the sequencer knows what became of its JOIN or LEAVE.
    pub(crate) fn note_found(&mut self, from: SocketAddr, here: &HereIs) {
        if self.recovery.search != Some(here.nonce) || here.instance != self.instance {
            return;
        }
        let is_passing = self.phase == Phase::Joining || self.leaving.is_some();
        let target = match here.epoch_counter.cmp(&self.epoch.counter) {
            Ordering::Greater => from,
            Ordering::Equal if is_passing => here.sequencer,
            _ => return,
        };
        self.recovery.search = None;
        self.post_under(target, self.epoch_tag, Frame::Inquiry);
    }

    pub(crate) fn recovery_timeout(&mut self, now: Time) {
        if self.recovery.begin_at.is_some_and(|at| at <= now) {
            self.begin_ballot(now);
        }
        if self.recovery.coordination.is_some() {
            self.coordinate(now);
        }
        self.repeat_pull(now);
        if self.recovery.has_promised() {
            self.halt_without_contact(now);
        }
    }
}

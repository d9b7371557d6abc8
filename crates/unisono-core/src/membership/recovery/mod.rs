//! Reset: the next epoch's first view, decided by single-decree consensus among the members of the present one.
//!
//! Four rooms, one for each part in it (docs/protocol/recovery.md; KT93 §5.3, made safe against any number of
//! coordinators). Here is the voter's, which every member plays: it promises a ballot, votes, and prepares what is
//! proposed under it. A member that promised numbers, stores, acknowledges and accepts nothing more in this epoch;
//! it goes on serving what it holds, whatever state it is in. `coordinator` runs a ballot of one's own, `level`
//! fetches what one lacks of a longer log, `outcome` enters the next epoch, or not.

mod coordinator;
mod level;
mod outcome;

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
use level::Pull;

/// The members of a rank begin their resets so long after those of the rank before...
const STAGGER: Duration = Duration::from_millis(4);
/// ... and by chance a little later still, by less than lies between two ranks: so that members that see different ones
/// suspected, and take themselves for the same rank, do not begin together.
const BEGIN_JITTER: Duration = Duration::from_millis(2);
const RESET_REPEAT_EVERY: Duration = Duration::from_millis(15);
/// For so long after a promise other coordinators' invitations are ignored.
const RESET_HOLD_OFF: Duration = Duration::from_millis(60);
/// When nothing comes of a promise, the promiser coordinates itself so long after the coordinator's patience with
/// voters must be over, and a little later by rank and by chance.
const RESET_TAKE_OVER: Duration = Duration::from_millis(80);
const TAKE_OVER_JITTER: Duration = Duration::from_millis(90);
/// Sleep of this process puts off what it would begin or decide, but no more often than this for each ballot.
const PUT_OFF_MAX: u32 = 3;
/// An inviter must have shown within this time that it hears us.
const HEARS_US_WITHIN: Duration = Duration::from_millis(1500);
/// So many ballots in vain, and everybody is asked where the group is: those who are known may all be gone.
const BALLOTS_PER_SEARCH: u32 = 4;
/// No honest coordinator tries so often.
const RESET_ROUND_MAX: u32 = 1 << 30;

/// What this member has promised and does in a reset.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recovery {
    promised: Option<Ballot>,
    promised_at: Time,
    prepared: Option<(Ballot, Proposal)>,
    /// Proposed under a promised ballot, but entries below it are lacking.
    pending: Option<Prepare>,
    /// Decided, but entries below it are lacking.
    decided: Option<Proposal>,
    /// An invitation whose sender has not shown yet that it hears us.
    invitation: Option<(Uid, Invitation)>,
    pull: Option<Pull>,
    coordination: Option<Box<Coordination>>,
    /// Who left an invitation of this member's unanswered, and has not voted since.
    unanswered: Vec<Uid>,
    /// When they were invited last.
    invited_again_at: Time,
    /// When this member begins a ballot of its own.
    begin_at: Option<Time>,
    /// How often sleep has put something off since the last promise.
    put_off: u32,
    round: u32,
    attempts: u32,
    /// Under which nonce this member asked where the group is.
    search: Option<u64>,
    /// At least so many members, says the application.
    floor_asked: Option<usize>,
    /// At least so many, said whoever this member promised last: it coordinates in that one's place if need be.
    floor_told: u16,
    since: Option<Time>,
}

/// What a coordinator asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Invitation {
    pub(crate) ballot: Ballot,
    /// At least so many members are to go on.
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
        Some(Prepared { ballot: *ballot, epoch: proposal.epoch, start: proposal.start })
    }

    /// Those whom the proposal that was prepared last names.
    pub(crate) fn prepared_members(&self) -> &[Uid] {
        self.prepared.as_ref().map_or(&[], |(_, proposal)| &proposal.members)
    }

    /// The next view is to have at least so many members.
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

    /// This process was asleep: others may have gone on, and votes may wait to be read, so it does not rush to begin or
    /// to decide.
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
    /// `reset(min)`: the application wants a reset if somebody is suspected.
    pub(crate) fn request_reset(&mut self, now: Time, min: usize) -> Result<(), ResetError> {
        let takes_part = matches!(self.phase, Phase::Member | Phase::Resetting | Phase::Leaving);
        if !takes_part || !self.may_begin() {
            return Err(ResetError::NotMember);
        }
        let suspects = self.peers.iter().any(|peer| peer.suspected.is_some());
        let members = self.history.view().len();
        if !suspects && !self.recovery.has_promised() {
            return if members >= min { Ok(()) } else { Err(ResetError::TooFew { members, min }) };
        }
        self.recovery.floor_asked = Some(min);
        if !self.recovery.has_promised() {
            self.recovery.begin_at = Some(now);
        }
        Ok(())
    }

    /// Begins a reset in a moment, the lower ranks first, so that one coordinator is the rule.
    pub(crate) fn begin_reset_soon(&mut self, now: Time) {
        if self.recovery.has_promised() || self.recovery.begin_at.is_some() || !self.may_begin() {
            return;
        }
        let rank = self.rank_among_unsuspected();
        let jitter = Duration::from_nanos(self.random.below(BEGIN_JITTER.as_nanos() as u64));
        self.recovery.begin_at = Some(now + STAGGER * rank as u32 + jitter);
    }

    fn rank_among_unsuspected(&self) -> usize {
        let view = self.history.view();
        let ahead = view.iter().take_while(|member| member.uid != self.me.uid);
        ahead.filter(|member| self.peers.get(member.uid).is_some_and(|peer| peer.suspected.is_none())).count()
    }

    /// Members begin resets; a leaver that knows its leave accepted does not.
    fn may_begin(&self) -> bool {
        let takes_part =
            matches!(self.phase, Phase::Member | Phase::Resetting | Phase::Leaving | Phase::Joining);
        let leaves = self.own_leave_is_logged() && self.accepted >= self.history.last_change();
        takes_part && !leaves && (self.is_member() || self.own_leave_is_logged())
    }

    // --- promising and voting ---

    fn promise(&mut self, now: Time, ballot: Ballot) {
        self.recovery.round = self.recovery.round.max(ballot.round);
        self.recovery.promised = Some(ballot);
        self.recovery.promised_at = now;
        self.recovery.put_off = 0;
        if self.recovery.since.is_none() {
            self.recovery.since = Some(now);
            if self.phase != Phase::Joining {
                let coordinator = Some(ballot.coordinator).filter(|uid| *uid != Uid(0));
                self.episodes.push(Episode::ResetBegun { coordinator });
            }
        }
        self.recovery.pending = None;
        if self.recovery.coordination.as_ref().is_some_and(|own| own.ballot < ballot) {
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
        self.recovery.begin_at = Some(now + self.patience(now) + RESET_TAKE_OVER + STAGGER * rank + jitter);
    }

    /// Whoever is promised asks for so many members. Where members reset unasked, an application's floor binds the ballots
    /// of its own member only.
    fn heed_floor(&mut self, members_min: u16) {
        if !self.config.automatic {
            self.recovery.floor_told = members_min;
        }
    }

    fn own_vote(&self, ballot: Ballot) -> Vote {
        let end = self.history.received();
        Vote { ballot, end, accepted: self.accepted, prepared: self.recovery.prepared.clone() }
    }

    /// Somebody coordinates who joined after what this member has of the log, or this joiner, whom the stranger counts by a
    /// JOIN that it can ask it for. Without its vote those who know more may have no quorum, and it alone has none: it takes
    /// the stranger for a member, which the log will show. Or somebody who has left and was forgotten, with a `leave` that is not known to be known: others may have promised it.
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

    /// Takes a stranger for a member, or for a leaver with a `leave`, if there is room for one more: all the members whom it
    /// knew may be gone, and all there are now be strangers.
    pub(crate) fn take_for_member(
        &mut self,
        now: Time,
        from: SocketAddr,
        uid: Uid,
        leave: Option<Seqno>,
    ) -> bool {
        let has_capacity = self.peers.len() < 2 * usize::from(self.config.members_max);
        if has_capacity {
            let member = Member { uid, name: Name::default(), address: from };
            let standing = leave.map_or(Standing::Member, |seqno| Standing::Leaver { seqno, since: now });
            self.peers.insert(Peer::new(now, member, standing, 0));
            self.audience_is_stale = true;
        }
        has_capacity
    }

    pub(crate) fn handle_invite(&mut self, now: Time, from: Uid, invitation: Invitation) {
        let ballot = invitation.ballot;
        if self.dismiss(from) {
            // It missed that nobody needs it, and what it would have to bring all others may have purged.
            return;
        }
        let votes = self.is_member() || self.own_leave_is_logged();
        if self.phase == Phase::Joining && !votes {
            // Its JOIN may be in the order already, and its vote be needed.
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
        if !self.peers.get(from).and_then(|peer| peer.heard_us).is_some_and(hears_us) {
            // Evidence is one round trip away: the vote follows it, and no ballot of our own meanwhile. Who invites on and
            // on and is deaf is not waited for.
            self.probe(Probe::InvitationUnheard);
            self.recovery.invitation = Some((from, invitation));
            self.probe_now(now, from);
            let asked_since = self.peers.get(from).and_then(|peer| peer.probing).map(|probing| probing.since);
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
        if self.joining.is_some() || self.entered_at > self.accepted {
            self.probe(Probe::JoinerVoted);
        }
        if self.leaving.is_some() {
            self.probe(Probe::LeaverVoted);
        }
        let vote = self.own_vote(ballot);
        self.post(from, Frame::Vote(vote));
    }

    /// `from` has just shown that it hears us: its invitation, if it waits, is answered.
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
        let holds = self.history.received() + 1 >= prepare.proposal.start;
        if !holds && !self.broken(Planted::PrepareWithoutHolding) {
            self.probe(Probe::MemberPulled);
            let through = prepare.proposal.start - 1;
            let ballot = prepare.ballot;
            if self.recovery.pull.is_none() {
                self.pull(now, ballot, through, from);
            }
            self.recovery.pending = Some(prepare);
            return;
        }
        self.recovery.pending = None;
        let ballot = prepare.ballot;
        self.recovery.prepared = Some((ballot, prepare.proposal));
        if from == me {
            self.note_prepared(now, me, ballot);
        } else {
            self.post(from, Frame::Prepared { ballot });
        }
    }

    // --- left behind ---

    /// Nobody of this epoch answers: asks everybody where the group is.
    pub(crate) fn search(&mut self) {
        self.probe(Probe::LeftBehind);
        let nonce = self.random.next_u64();
        self.recovery.search = Some(nonce);
        self.post_to_rendezvous(Frame::Locate { nonce });
    }

    /// The group was found. If it has gone on without this member, whoever answered says so. All whom a joiner or a leaver
    /// knew may have gone from this very epoch, or order no more: what became of its JOIN or LEAVE only the sequencer can say.
    pub(crate) fn note_found(&mut self, from: SocketAddr, here: &HereIs) {
        if self.recovery.search != Some(here.nonce) || here.instance != self.instance {
            return;
        }
        let is_passing = self.phase == Phase::Joining || self.leaving.is_some();
        let whom = match here.epoch_counter.cmp(&self.epoch.counter) {
            Ordering::Greater => from,
            Ordering::Equal if is_passing => here.sequencer,
            _ => return,
        };
        self.recovery.search = None;
        self.post_under(whom, self.epoch_tag, Frame::Inquiry);
    }

    pub(crate) fn recovery_timeout(&mut self, now: Time) {
        if self.recovery.begin_at.is_some_and(|at| at <= now) {
            self.begin_ballot(now);
        }
        if self.recovery.coordination.is_some() {
            self.coordinate(now);
        }
        self.repeat_pull(now);
    }
}

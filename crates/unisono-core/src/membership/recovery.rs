//! Reset: the next epoch's first view, decided by single-decree consensus among the members of the present one.
//!
//! Invite, vote, pull, choose, prepare, decide, install (docs/protocol/recovery.md; KT93 §5.3, made safe against
//! any number of coordinators). A member that promised a ballot numbers, stores, acknowledges and accepts nothing
//! more in this epoch; it goes on serving what it holds, whatever state it is in. The coordinator first pulls the longest log
//! voted, so that it reads the views off its own log; then it proposes, and when a quorum of both sides of the last
//! unaccepted change has prepared under one ballot, the proposal is decided. Nobody waits for all of the new view:
//! whoever votes later in the new epoch has entered it, so nothing in it can be lost.

use crate::config::Quorum;
use crate::error::ResetError;
use crate::event::{Event, JoinFailure, Outcome, Suspicion};
use crate::group::{Group, Phase, Prepared};
use crate::history::{Members, Reset};
use crate::identity::{Ballot, EpochId, EpochTag, Member, Seqno, Uid};
use crate::planted::{Planted, Probe};
use crate::table::Table;
use crate::time::Time;
use crate::wire::{Frame, Prepare, Proposal, Vote};
use alloc::vec::Vec;
use core::time::Duration;

/// The members of a rank begin their resets so long after those of the rank before.
const STAGGER: Duration = Duration::from_millis(4);
const REPEAT_EVERY: Duration = Duration::from_millis(15);
/// A coordinator waits so long for votes of members it does not suspect.
const GATHER: Duration = Duration::from_millis(90);
/// A stage that does not end within this ends its ballot.
const STAGE_MAX: Duration = Duration::from_millis(250);
/// For so long after a promise other coordinators' invitations are ignored.
const HOLD_OFF: Duration = Duration::from_millis(60);
/// When nothing comes of a promise, the promiser coordinates itself after this and a little more by rank.
const TAKE_OVER: Duration = Duration::from_millis(180);
/// An inviter must have shown within this time that it hears us.
const HEARS_US_WITHIN: Duration = Duration::from_millis(1500);
const TELL_EVERY: Duration = Duration::from_millis(15);
const SERVE_EVERY: Duration = Duration::from_millis(4);
/// How long an excluded member serves its log if nobody tells it that it may go.
const LINGER: Duration = Duration::from_millis(4000);
const ASK_EVERY: Duration = Duration::from_millis(60);
/// How often, and for how long, those who do not go on are told so unasked.
const PUSH_EVERY: Duration = Duration::from_millis(500);
const PUSH_FOR: Duration = Duration::from_secs(60);

/// No honest coordinator tries so often.
const ROUND_MAX: u32 = 1 << 30;

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
    invitation: Option<(Uid, Ballot)>,
    pull: Option<Pull>,
    coordination: Option<Coordination>,
    /// When this member begins a ballot of its own.
    begin_at: Option<Time>,
    round: u32,
    attempts: u32,
    /// At least so many members, says the application.
    floor: usize,
    since: Option<Time>,
}

/// Entries being fetched under a ballot.
#[derive(Clone, Copy, Debug)]
struct Pull {
    ballot: Ballot,
    through: Seqno,
    from: Uid,
    ask_at: Time,
    asked: u32,
}

#[derive(Clone, Debug)]
struct Coordination {
    ballot: Ballot,
    stage: Stage,
    votes: Table<Vote>,
    /// Who was invited.
    invited: Vec<Uid>,
    gather_until: Time,
    stage_until: Time,
    repeat_at: Time,
}

#[derive(Clone, Debug)]
enum Stage {
    Inviting,
    Pulling,
    Preparing { prepare: Prepare, before: Members, after: Members, prepared: Vec<Uid> },
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

    pub(crate) fn since(&self) -> Option<Time> {
        self.since
    }

    pub(crate) fn wake_at(&self) -> Option<Time> {
        let pull = self.pull.map(|pull| pull.ask_at);
        let coordination = self.coordination.as_ref().map(|own| {
            let stage = match own.stage {
                Stage::Inviting if !own.votes_are_overdue() => own.gather_until.min(own.stage_until),
                _ => own.stage_until,
            };
            own.repeat_at.min(stage)
        });
        [self.begin_at, pull, coordination].into_iter().flatten().min()
    }

    /// This process was asleep: others may have gone on, so do not rush to begin.
    pub(crate) fn notice_sleep(&mut self, now: Time, _late: Duration) {
        if let Some(at) = &mut self.begin_at {
            *at = (*at).max(now + HOLD_OFF / 2);
        }
    }

    pub(crate) fn stop(&mut self) {
        (self.begin_at, self.pull, self.coordination) = (None, None, None);
    }
}

impl Coordination {
    fn votes_are_overdue(&self) -> bool {
        self.repeat_at > self.gather_until
    }
}

/// The epoch before this one: what became of it is told to whoever still shows it.
#[derive(Clone, Debug)]
pub(crate) struct Past {
    pub(crate) tag: EpochTag,
    pub(crate) proposal: Proposal,
    /// Everybody who may still show the old epoch.
    pub(crate) members: Vec<Member>,
    told: Table<Time>,
    served: Table<Time>,
    /// Until then those who do not go on are told so, though they do not ask.
    push_until: Time,
    push_at: Time,
    /// An excluded member asks whether it may go, until this passes.
    ask_at: Option<Time>,
    go_at: Option<Time>,
}

impl Past {
    pub(crate) fn wake_at(&self) -> Option<Time> {
        match (self.ask_at, self.go_at) {
            (Some(ask), Some(go)) => Some(ask.min(go)),
            _ => None,
        }
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
        self.recovery.floor = min;
        if self.recovery.coordination.is_none() {
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
        let jitter = Duration::from_nanos(self.random.below(2_000_000));
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

    /// The views whose quorums a reset needs: both sides of the last change that is not known to be accepted.
    fn sides(&self, accepted: Seqno) -> (Members, Members) {
        let after = self.history.view().clone();
        match self.history.change_beyond(accepted) {
            Some(place) => (self.history.view_at(place - 1).clone(), after),
            None => (after.clone(), after),
        }
    }

    fn begin_ballot(&mut self, now: Time) {
        self.recovery.begin_at = None;
        if !self.may_begin() {
            return;
        }
        if self.recovery.promised.is_some_and(|ballot| ballot.coordinator != self.me.uid) {
            self.probe(Probe::CoordinatorReplaced);
        }
        let ballot = Ballot { round: self.recovery.round.saturating_add(1), coordinator: self.me.uid };
        self.promise(now, ballot);
        self.recovery.begin_at = None;
        self.recovery.attempts += 1;
        let (before, after) = self.sides(self.accepted);
        let uids = |view: &Members| view.iter().map(|member| member.uid).collect::<Vec<Uid>>();
        let mut votes = Table::default();
        votes.insert(self.me.uid, self.own_vote(ballot));
        self.recovery.coordination = Some(Coordination {
            ballot,
            stage: Stage::Inviting,
            votes,
            invited: self.others_of(&uids(&before), &uids(&after)),
            gather_until: now + GATHER,
            stage_until: now + STAGE_MAX,
            repeat_at: now,
        });
        self.coordinate(now);
    }

    /// Gives up the present ballot; another one later.
    fn end_ballot(&mut self, now: Time) {
        self.recovery.coordination = None;
        self.recovery.pull = None;
        let backoff = STAGE_MAX.as_nanos() as u64 / 4 * u64::from(self.recovery.attempts.min(6));
        let jitter = Duration::from_nanos(self.random.below(backoff.max(1)));
        self.recovery.begin_at = Some(now + Duration::from_millis(10) + jitter);
    }

    // --- promising and voting ---

    fn promise(&mut self, now: Time, ballot: Ballot) {
        self.recovery.round = self.recovery.round.max(ballot.round);
        self.recovery.promised = Some(ballot);
        self.recovery.promised_at = now;
        self.recovery.since.get_or_insert(now);
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
        let jitter = Duration::from_nanos(self.random.below(TAKE_OVER.as_nanos() as u64 / 2));
        self.recovery.begin_at = Some(now + TAKE_OVER + STAGGER * rank + jitter);
    }

    fn own_vote(&self, ballot: Ballot) -> Vote {
        let end = self.history.received();
        Vote { ballot, end, accepted: self.accepted, prepared: self.recovery.prepared.clone() }
    }

    pub(crate) fn handle_invite(&mut self, now: Time, from: Uid, ballot: Ballot) {
        let votes = self.is_member() || self.own_leave_is_logged();
        if self.phase == Phase::Joining && !votes {
            // Its JOIN may be in the order already, and its vote be needed.
            self.ask_around();
        }
        if ballot.round > ROUND_MAX {
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
                if now.since(self.recovery.promised_at) < HOLD_OFF {
                    return;
                }
            }
        }
        let hears_us = |at: Time| now.since(at) < HEARS_US_WITHIN;
        if !self.peers.get(from).and_then(|peer| peer.heard_us).is_some_and(hears_us) {
            // Evidence is one round trip away: the vote follows it, and no ballot of our own meanwhile.
            self.probe(Probe::InvitationUnheard);
            self.recovery.invitation = Some((from, ballot));
            if let Some(at) = &mut self.recovery.begin_at {
                *at = (*at).max(now + HOLD_OFF / 2);
            }
            self.probe_now(now, from);
            return;
        }
        if self.recovery.promised != Some(ballot) {
            self.promise(now, ballot);
        }
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
        if let Some((inviter, ballot)) = self.recovery.invitation
            && inviter == from
        {
            self.recovery.invitation = None;
            self.handle_invite(now, from, ballot);
        }
    }

    pub(crate) fn handle_outbid(&mut self, now: Time, promised: Ballot) {
        if promised.round > ROUND_MAX {
            return;
        }
        self.recovery.round = self.recovery.round.max(promised.round);
        if self.recovery.coordination.as_ref().is_some_and(|own| own.ballot < promised) {
            self.probe(Probe::Outbid);
            self.end_ballot(now);
        }
    }

    pub(crate) fn handle_vote(&mut self, now: Time, from: Uid, vote: Vote) {
        let Some(own) = &mut self.recovery.coordination else { return };
        if own.ballot == vote.ballot && matches!(own.stage, Stage::Inviting | Stage::Pulling) {
            own.votes.insert(from, vote);
            self.coordinate(now);
        }
    }

    // --- coordinating ---

    pub(crate) fn recovery_timeout(&mut self, now: Time) {
        if self.recovery.begin_at.is_some_and(|at| at <= now) {
            self.begin_ballot(now);
        }
        if self.recovery.coordination.is_some() {
            self.coordinate(now);
        }
        self.repeat_pull(now);
    }

    /// One step of this member's own ballot.
    fn coordinate(&mut self, now: Time) {
        let Some(own) = &self.recovery.coordination else { return };
        match own.stage {
            Stage::Inviting => {
                let all = own.invited.iter().all(|&uid| {
                    own.votes.contains(uid) || self.peers.get(uid).is_none_or(|peer| peer.suspected.is_some())
                });
                if all || now >= own.gather_until {
                    self.pull_longest(now);
                }
            }
            Stage::Pulling => self.choose_if_pulled(now),
            Stage::Preparing { .. } => self.decide_if_prepared(now),
        }
        let Some(own) = &mut self.recovery.coordination else { return };
        if now >= own.stage_until {
            self.end_ballot(now);
            return;
        }
        if now >= own.repeat_at {
            own.repeat_at = now + REPEAT_EVERY;
            self.repeat_stage();
        }
    }

    fn repeat_stage(&mut self) {
        let Some(own) = &self.recovery.coordination else { return };
        let ballot = own.ballot;
        match &own.stage {
            Stage::Inviting | Stage::Pulling => {
                let missing: Vec<Uid> =
                    own.invited.iter().copied().filter(|&uid| !own.votes.contains(uid)).collect();
                let lost = self.recovery.attempts > 1;
                for uid in missing {
                    self.post(uid, Frame::Invite { ballot });
                    if lost {
                        // Perhaps they went on without us.
                        self.post(uid, Frame::Inquiry);
                    }
                }
            }
            Stage::Preparing { prepare, prepared, .. } => {
                let asked = self.others_of(&prepare.before, &prepare.after);
                let missing = asked.into_iter().filter(|uid| !prepared.contains(uid)).collect::<Vec<Uid>>();
                let prepare = prepare.clone();
                for uid in missing {
                    self.post(uid, Frame::Prepare(prepare.clone()));
                }
            }
        }
    }

    /// Votes are in: fetches what the longest log voted has and this one lacks.
    fn pull_longest(&mut self, now: Time) {
        let received = self.history.received();
        let pulls = !self.broken(Planted::OwnLogNotLongest);
        let Some(own) = &mut self.recovery.coordination else { return };
        let longest = own.votes.iter().max_by_key(|(_, vote)| vote.end).map(|(uid, vote)| (uid, vote.end));
        let Some((holder, end)) = longest else { return };
        let ballot = own.ballot;
        if end > received && pulls {
            own.stage = Stage::Pulling;
            self.probe(Probe::CoordinatorPulled);
            self.pull(now, ballot, end, holder);
        } else {
            self.choose(now);
        }
    }

    fn choose_if_pulled(&mut self, now: Time) {
        let Some(own) = &self.recovery.coordination else { return };
        let end = own.votes.iter().map(|(_, vote)| vote.end).max().unwrap_or(0);
        if self.history.received() >= end {
            self.choose(now);
        }
    }

    /// What the next epoch is to be (docs/protocol/recovery.md). Without a quorum, or with somebody found in the
    /// log who was not invited yet, gathering goes on.
    fn choose(&mut self, now: Time) {
        let Some(own) = &self.recovery.coordination else { return };
        let ballot = own.ballot;
        let accepted = own.votes.iter().map(|(_, vote)| vote.accepted).max().unwrap_or(0).max(self.accepted);
        let (before, after) = self.sides(accepted);
        self.take_in(now, &before);
        self.take_in(now, &after);
        let Some(own) = &self.recovery.coordination else { return };
        let uids = |view: &Members| view.iter().map(|member| member.uid).collect::<Vec<Uid>>();
        let everybody = self.others_of(&uids(&before), &uids(&after));
        if everybody.iter().any(|uid| !own.invited.contains(uid)) {
            let own = self.recovery.coordination.as_mut().expect("checked above");
            own.invited = everybody;
            own.stage = Stage::Inviting;
            own.gather_until = now + GATHER;
            own.repeat_at = now;
            return;
        }
        let voted = |member: &Member| own.votes.contains(member.uid);
        let quorum = self.broken(Planted::NextViewWithoutQuorum)
            || (self.is_quorum(&before, voted) && self.is_quorum(&after, voted));
        let adopted = own.votes.iter().filter_map(|(_, vote)| vote.prepared.as_ref()).max_by_key(|(b, _)| *b);
        let adopted = adopted.map(|(_, proposal)| proposal.clone());
        // Who is to be excluded though it votes (it is slow, or another process lives in its place) is left out if
        // the others can do without.
        let wanted = |member: &Member| {
            let suspected = self.peers.get(member.uid).and_then(|peer| peer.suspected);
            voted(member) && !matches!(suspected, Some(Suspicion::Slow | Suspicion::Replaced))
        };
        let without = self.is_quorum(&after, wanted);
        let members: Vec<Uid> = after
            .iter()
            .filter(|member| if without { wanted(member) } else { voted(member) })
            .map(|member| member.uid)
            .collect();
        if !quorum || (adopted.is_none() && members.len() < self.recovery.floor.max(1)) {
            self.probe(Probe::NoQuorum);
            if let Some(own) = &mut self.recovery.coordination {
                own.stage = Stage::Inviting;
            }
            return;
        }
        if before.len() != after.len() {
            self.probe(Probe::BothSidesAsked);
        }
        let proposal = match adopted {
            Some(proposal) if !self.broken(Planted::PreparedIgnored) => {
                self.probe(Probe::PreparedAdopted);
                proposal
            }
            _ => self.propose(&after, members, accepted),
        };
        let prepare = Prepare { ballot, proposal, before: uids(&before), after: uids(&after) };
        if let Some(own) = &mut self.recovery.coordination {
            own.stage_until = now + STAGE_MAX;
            own.repeat_at = now;
            own.stage = Stage::Preparing { prepare: prepare.clone(), before, after, prepared: Vec::new() };
        }
        self.handle_prepare(now, self.me.uid, prepare);
        self.coordinate(now);
    }

    fn propose(&mut self, after: &Members, members: Vec<Uid>, accepted: Seqno) -> Proposal {
        let missing = after.len() - members.len();
        let resilience = self.config.resilience as usize;
        let degraded = resilience > 0 && missing > resilience && !self.broken(Planted::DegradedUnsaid);
        let end = self.history.received();
        if end > accepted {
            self.probe(Probe::TentativeKept);
        }
        let start = if self.broken(Planted::TentativeDropped) { accepted + 1 } else { end + 1 };
        if missing == 0 {
            self.probe(Probe::NobodyMissing);
        }
        let epoch = EpochId {
            counter: self.epoch.counter + 1,
            coordinator: self.me.uid,
            nonce: self.random.next_u64(),
        };
        Proposal { epoch, start, members, degraded }
    }

    // --- preparing and deciding ---

    pub(crate) fn handle_prepare(&mut self, now: Time, from: Uid, prepare: Prepare) {
        let me = self.me.uid;
        let asked = prepare.before.contains(&me) || prepare.after.contains(&me);
        let takes_part =
            matches!(self.phase, Phase::Member | Phase::Resetting | Phase::Leaving | Phase::Joining);
        if !asked
            || !takes_part
            || prepare.ballot.round > ROUND_MAX
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

    /// Somebody prepared what this coordinator proposed.
    pub(crate) fn note_prepared(&mut self, now: Time, from: Uid, ballot: Ballot) {
        let Some(own) = &mut self.recovery.coordination else { return };
        if own.ballot != ballot {
            return;
        }
        if let Stage::Preparing { prepared, .. } = &mut own.stage {
            if !prepared.contains(&from) {
                prepared.push(from);
            }
            self.decide_if_prepared(now);
        }
    }

    fn decide_if_prepared(&mut self, now: Time) {
        let Some(own) = &self.recovery.coordination else { return };
        let Stage::Preparing { prepare, before, after, prepared } = &own.stage else { return };
        let did = |member: &Member| prepared.contains(&member.uid);
        let decided = self.is_quorum(before, did)
            && self.is_quorum(after, did)
            && (!matches!(self.config.quorum, Quorum::AtLeast(_))
                || prepare.proposal.members.iter().all(|uid| prepared.contains(uid)));
        if !decided && !self.broken(Planted::DecidedAtOnce) {
            return;
        }
        let proposal = prepare.proposal.clone();
        for uid in self.others_of(&prepare.before.clone(), &prepare.after.clone()) {
            self.post(uid, Frame::Decided { proposal: proposal.clone(), entered: false });
        }
        self.handle_decided(now, self.me.uid, proposal, false);
    }

    pub(crate) fn handle_decided(&mut self, now: Time, from: Uid, proposal: Proposal, entered: bool) {
        match self.phase {
            Phase::Locating | Phase::Gone => return,
            Phase::Excluded => {
                if entered {
                    self.phase = Phase::Gone;
                }
                return;
            }
            _ => {}
        }
        let prepared = self.recovery.prepared.as_ref().map(|(_, prepared)| prepared.epoch);
        if matches!(self.config.quorum, Quorum::AtLeast(_))
            && prepared.is_some_and(|own| own != proposal.epoch)
        {
            // Quorums need not intersect: a member enters what it prepared last, and nothing else.
            return;
        }
        if from != self.me.uid {
            self.probe(Probe::DecisionTold);
        }
        if !proposal.members.contains(&self.me.uid) {
            self.excluded_by(now, proposal, entered);
        } else if self.history.received() + 1 >= proposal.start {
            self.install(now, proposal);
        } else {
            self.probe(Probe::MemberPulled);
            let ballot = self.recovery.promised.unwrap_or_default();
            let through = proposal.start - 1;
            if self.recovery.promised.is_none() {
                // Nothing more is to be stored or said in this epoch.
                self.promise(now, Ballot { round: 1, coordinator: Uid(0) });
            }
            let from = if from == self.me.uid { self.named() } else { from };
            self.recovery.coordination = None;
            self.recovery.decided = Some(proposal);
            if self.recovery.pull.is_none_or(|pull| pull.through != through) {
                self.pull(now, ballot, through, from);
            }
        }
    }

    // --- levelling ---

    fn pull(&mut self, now: Time, ballot: Ballot, through: Seqno, from: Uid) {
        self.recovery.pull = Some(Pull { ballot, through, from, ask_at: now, asked: 0 });
        self.repeat_pull(now);
    }

    fn repeat_pull(&mut self, now: Time) {
        let Some(mut pull) = self.recovery.pull else { return };
        if pull.ask_at > now {
            return;
        }
        let next = self.history.received() + 1;
        if next > pull.through {
            self.recovery.pull = None;
            return;
        }
        // Ask whoever was named first; when that does not help, anybody.
        let whom = if pull.asked < 3 {
            pull.from
        } else {
            let count = self.peers.len() as u64;
            let index = self.random.below(count.max(1)) as usize;
            self.peers.iter().nth(index).map_or(pull.from, |peer| peer.member.uid)
        };
        pull.asked += 1;
        pull.ask_at = now + REPEAT_EVERY;
        self.recovery.pull = Some(pull);
        self.post(whom, Frame::Pull { ballot: pull.ballot, from: next, to: pull.through });
    }

    /// The ballot under which entries are taken now, and through which place.
    pub(crate) fn taking_level(&self) -> Option<(Ballot, Seqno)> {
        self.recovery.pull.map(|pull| (pull.ballot, pull.through))
    }

    /// Entries came in under the pull: goes on with whatever waited for them.
    pub(crate) fn note_levelled(&mut self, now: Time) {
        let received = self.history.received();
        let Some(pull) = &mut self.recovery.pull else { return };
        if received < pull.through {
            pull.asked = 0;
            // The answer is still coming in; ask for the rest when it stops.
            pull.ask_at = now + REPEAT_EVERY / 3;
            return;
        }
        self.recovery.pull = None;
        let view = self.history.view().clone();
        self.take_in(now, &view);
        if let Some(proposal) = self.recovery.decided.take() {
            self.handle_decided(now, self.me.uid, proposal, false);
            return;
        }
        if let Some(prepare) = self.recovery.pending.take() {
            self.handle_prepare(now, prepare.ballot.coordinator, prepare);
        }
        if self.recovery.coordination.is_some() {
            self.coordinate(now);
        }
    }

    // --- entering the next epoch, or not ---

    fn install(&mut self, now: Time, proposal: Proposal) {
        let keep = proposal.start - 1;
        let old_view = self.history.view_at(keep).clone();
        let members: Vec<Member> = proposal
            .members
            .iter()
            .filter_map(|uid| old_view.iter().find(|member| member.uid == *uid).cloned())
            .collect();
        let follows = proposal.epoch.counter == self.epoch.counter + 1 && proposal.start > self.epoch_start;
        if members.len() != proposal.members.len() || !follows {
            return;
        }
        self.note_reset_probes(&proposal);
        let excluded: Vec<Member> =
            old_view.iter().filter(|member| !proposal.members.contains(&member.uid)).cloned().collect();
        self.history.cut(keep);
        let failed_early = self.broken(Planted::KeptReportedFailed);
        if failed_early {
            self.fail_rest_of_outbox();
        }
        self.settle_log(keep);
        self.fail_rest_of_outbox();
        self.past = Some(Past {
            tag: self.epoch_tag,
            proposal: proposal.clone(),
            members: self.peers.iter().map(|peer| peer.member.clone()).collect(),
            told: Table::default(),
            served: Table::default(),
            push_until: now + PUSH_FOR,
            push_at: now,
            ask_at: None,
            go_at: None,
        });
        let reset = Reset { epoch: proposal.epoch, excluded, degraded: proposal.degraded };
        let start = self.history.append_reset(members.clone(), reset);
        self.enter_epoch(proposal.epoch, start);
        self.accepted = start;
        for peer in self.peers.iter_mut() {
            (peer.received, peer.accepted) = (peer.received.min(keep), peer.accepted.min(keep));
            peer.delivered = peer.delivered.min(keep);
            (peer.entered, peer.suspected, peer.probing) = (false, None, None);
            (peer.last_heard, peer.heard_us) = (now, peer.heard_us.map(|_| now));
        }
        self.take_peers(now, &members, 0);
        if !self.broken(Planted::HoldKept) {
            self.hold.clear();
        }
        self.forget_acknowledgements(start);
        self.recovery = Recovery::default();
        self.counters.resets += 1;
        self.enter_if_joined(now);
        self.phase = if self.leaving.is_some() { Phase::Leaving } else { Phase::Member };
        self.acknowledging.due = true;
        self.detector.look_soon(now);
    }

    /// Everything through `keep` is accepted by decree.
    fn settle_log(&mut self, keep: Seqno) {
        let before = self.accepted;
        if keep > before {
            self.accepted = keep;
            self.resolve_own(before);
        }
    }

    fn fail_rest_of_outbox(&mut self) {
        let failed = self.outbox.fail_rest();
        if !failed.is_empty() {
            self.probe(Probe::SendFailed);
        }
        self.sent.extend(failed.into_iter().map(|number| (number, Outcome::Failed)));
    }

    fn note_reset_probes(&mut self, proposal: &Proposal) {
        if self.history.received() >= proposal.start {
            self.probe(Probe::TentativeCut);
        }
        if proposal.degraded {
            self.probe(Probe::Degraded);
        }
        if self.history.inside_a_message() {
            self.probe(Probe::PiecesGivenUp);
        }
        if self.leaving.is_some() {
            self.probe(Probe::LeaveMetReset);
        }
        if self.joining.is_some() || self.peers.iter().any(|peer| peer.is_observer()) {
            self.probe(Probe::JoinMetReset);
        }
    }

    /// The group went on without this member, in an epoch whose beginning it was told.
    fn excluded_by(&mut self, now: Time, proposal: Proposal, entered: bool) {
        if self.phase == Phase::Joining {
            self.probe(Probe::JoinMetReset);
            self.join_failed(JoinFailure::Reset);
            return;
        }
        self.probe(Probe::Excluded);
        let own_leave = self.own_leave_place().filter(|place| *place < proposal.start);
        let left = own_leave.is_some();
        if let Some(place) = own_leave {
            // Decided to be kept, so accepted; the leaver is to receive it, and nothing beyond.
            self.history.cut(place);
            self.settle_log(place);
        }
        self.end_membership(left, Some(proposal.epoch));
        let (ask_at, go_at) = (Some(now + ASK_EVERY), Some(now + LINGER));
        let members = self.peers.iter().map(|peer| peer.member.clone()).collect();
        self.past = Some(Past {
            tag: self.epoch_tag,
            proposal,
            members,
            told: Table::default(),
            served: Table::default(),
            push_until: now,
            push_at: now,
            ask_at,
            go_at,
        });
        if entered {
            self.phase = Phase::Gone;
        }
    }

    /// Told so by somebody for whom this member's epoch is long gone.
    pub(crate) fn handle_excluded(&mut self, now: Time, epoch: EpochId) {
        if epoch.counter <= self.epoch.counter {
            return;
        }
        match self.phase {
            Phase::Joining => self.join_failed(JoinFailure::Reset),
            Phase::Member | Phase::Resetting | Phase::Leaving => {
                self.probe(Probe::Excluded);
                self.end_membership(false, Some(epoch));
                self.phase = Phase::Gone;
            }
            _ => {}
        }
        let _ = now;
    }

    /// This member's part in the group is over: what it knows to be accepted it still delivers.
    fn end_membership(&mut self, left: bool, epoch: Option<EpochId>) {
        let cut_off = self.outbox.fail_rest();
        self.sent.extend(cut_off.into_iter().map(|number| (number, Outcome::Unknown)));
        self.phase = Phase::Excluded;
        self.closing = Some(if left { Event::Gone } else { Event::Excluded { epoch } });
        self.leaving = None;
        self.joining = None;
        self.order.stop();
        self.detector.stop();
        self.recovery.stop();
        self.repair.clear();
    }

    /// An excluded member asks whether it may go, and goes after a while in any case.
    pub(crate) fn past_timeout(&mut self, now: Time) {
        let Some(past) = &mut self.past else { return };
        if past.go_at.is_some_and(|at| at <= now) {
            (past.ask_at, past.go_at) = (None, None);
            if self.phase == Phase::Excluded {
                self.phase = Phase::Gone;
            }
            return;
        }
        if past.ask_at.is_some_and(|at| at <= now) {
            past.ask_at = Some(now + ASK_EVERY);
            let proposal = past.proposal.clone();
            for &uid in &proposal.members {
                self.post(uid, Frame::Decided { proposal: proposal.clone(), entered: false });
                self.post(uid, Frame::Inquiry);
            }
        }
    }

    // --- those who still show the old epoch ---

    /// Tells a member of the epoch before this one what was decided, not too often. False if it is none.
    pub(crate) fn tell_decision(&mut self, now: Time, to: Uid) -> bool {
        let entered = self.quorum_has_entered();
        let Some(past) = &mut self.past else { return false };
        let Some(address) = past.members.iter().find(|member| member.uid == to).map(|member| member.address)
        else {
            return false;
        };
        if past.told.get(to).is_none_or(|&at| now.since(at) >= TELL_EVERY) {
            past.told.insert(to, now);
            let (tag, proposal) = (past.tag, past.proposal.clone());
            self.post_under(address, tag, Frame::Decided { proposal, entered });
        }
        true
    }

    /// A straggler of the epoch before may be served now; it was not just before.
    pub(crate) fn may_serve_past(&mut self, now: Time, whom: Uid) -> bool {
        let Some(past) = &mut self.past else { return false };
        let known = past.members.iter().any(|member| member.uid == whom);
        let rested = past.served.get(whom).is_none_or(|&at| now.since(at) >= SERVE_EVERY);
        if known && rested {
            past.served.insert(whom, now);
        }
        known && rested
    }

    /// The orderer tells those who do not go on, now and then: they may know nobody who does.
    pub(crate) fn push_decision(&mut self, now: Time) {
        let Some(past) = &mut self.past else { return };
        if now < past.push_at || now >= past.push_until {
            return;
        }
        past.push_at = now + PUSH_EVERY;
        let out = past.members.iter().map(|member| member.uid);
        let out: Vec<Uid> = out.filter(|uid| !past.proposal.members.contains(uid)).collect();
        for uid in out {
            self.tell_decision(now, uid);
        }
    }

    /// A quorum of the present view is known to have entered the epoch.
    fn quorum_has_entered(&self) -> bool {
        if matches!(self.phase, Phase::Excluded | Phase::Gone) {
            return false;
        }
        let view = self.history.view_at(self.epoch_start);
        self.is_quorum(view, |member| {
            member.uid == self.me.uid || self.peers.get(member.uid).is_some_and(|peer| peer.entered)
        })
    }

    /// Asks a peer what became of this epoch: it shows another one, or keeps nothing of ours.
    pub(crate) fn inquire(&mut self, now: Time, whom: Uid) {
        if let Some(peer) = self.peers.get_mut(whom)
            && now.since(peer.told_at) > Duration::from_millis(20)
        {
            peer.told_at = now;
            self.post(whom, Frame::Inquiry);
        }
    }
}

//! The coordinator's side of a reset: invite, gather votes, pull, choose, prepare, decide.
//!
//! The coordinator first pulls the longest log that a vote announced, so that it can read the views from its own log.
//! Then it proposes a new view. The proposal is decided when quorums of two views have prepared it under one ballot:
//! the views before and after the last change that is not known to be accepted. (Under the policy *at least n*, all
//! members of the new view must have prepared it too.) No member waits until all of the new view have entered the new
//! epoch: a member that votes there has entered it, so no entry of the new epoch can be lost.

use super::{BALLOTS_PER_SEARCH, RESET_REPEAT_EVERY, RESET_ROUND_MAX};
use crate::config::Quorum;
use crate::event::Suspicion;
use crate::group::Group;
use crate::identity::{Ballot, EpochId, Member, Seqno, Uid};
use crate::log::Members;
use crate::peers::{Peer, Standing};
use crate::planted::{Planted, Probe};
use crate::table::Table;
use crate::time::Time;
use crate::wire::{EarlyMessage, Frame, Prepare, Proposal, Vote};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

/// A ballot waits 20 ms for votes of members that left an earlier invitation unanswered, and 20 ms more after each vote
/// of such a member: a dead member must not prolong a ballot, and members that were cut off usually come back together.
const GATHER_AGAIN: Duration = Duration::from_millis(20);
/// Members that left an invitation unanswered are invited again after 1/64 of the time for which none of them was
/// heard, because a link may be down for hours.
const SILENCE_PER_REPEAT: u32 = 64;
/// Maximum of that interval: 1 s, because the link may be up again.
const REPEAT_RARELY: Duration = Duration::from_secs(1);
/// A ballot fails if one of its stages lasts 150 ms longer than the coordinator's patience with voters.
const STAGE_MARGIN: Duration = Duration::from_millis(150);
/// Minimum pause after a failed ballot: 10 ms, in which late answers to it arrive.
const RESET_PAUSE: Duration = Duration::from_millis(10);
/// Random back-off after that pause: up to 60 ms per ballot that this member has begun in this reset, six counted at
/// most.
const RESET_BACKOFF: Duration = Duration::from_millis(60);
const BACKOFFS_MAX: u32 = 6;

/// A ballot that this member coordinates.
#[derive(Clone, Debug)]
pub(super) struct Coordination {
    pub(super) ballot: Ballot,
    stage: Stage,
    votes: Table<Vote>,
    /// Members that were invited.
    invited: Vec<Uid>,
    /// Deadline for votes of members that are not suspected.
    gather_until: Time,
    /// The same for members that left an earlier invitation unanswered.
    gather_again_until: Time,
    /// Time at which the ballot fails, if its stage has not ended.
    stage_until: Time,
    /// Time at which the stage's request is repeated.
    repeat_at: Time,
}

/// `Preparing` is the last stage: later votes do not change its proposal.
#[derive(Clone, Debug)]
enum Stage {
    Inviting,
    Pulling,
    Preparing { prepare: Prepare, before: Members, after: Members, prepared: Vec<Uid> },
}

impl Coordination {
    pub(super) fn wake_at(&self) -> Time {
        let votes_are_overdue = self.repeat_at > self.gather_until;
        let stage = match self.stage {
            Stage::Inviting if !votes_are_overdue => self.gather_until.min(self.stage_until),
            _ => self.stage_until,
        };
        self.repeat_at.min(stage)
    }

    /// Returns the vote of this member, if it voted.
    pub(super) fn vote_of(&self, uid: Uid) -> Option<&Vote> {
        self.votes.get(uid)
    }

    /// True if this member did what the present stage asks for: it voted, or prepared the proposal.
    pub(super) fn has_answer_of(&self, uid: Uid) -> bool {
        match &self.stage {
            Stage::Inviting | Stage::Pulling => self.votes.contains(uid),
            Stage::Preparing { prepared, .. } => prepared.contains(&uid),
        }
    }

    /// True if the present stage has lasted for the coordinator's patience: others outbid ballots that come to nothing.
    pub(super) fn had_time(&self, now: Time) -> bool {
        now + STAGE_MARGIN >= self.stage_until
    }

    pub(super) fn has_proposed(&self) -> bool {
        matches!(self.stage, Stage::Preparing { .. })
    }

    /// Postpones the failure of the ballot, and a choice without the missing votes, to `at_least`: the answers
    /// may lie unread.
    pub(super) fn put_off(&mut self, at_least: Time) {
        self.gather_again_until = self.gather_again_until.max(at_least);
        self.stage_until = self.stage_until.max(at_least);
    }
}

impl Group {
    pub(super) fn begin_ballot(&mut self, now: Time) {
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
        self.recovery.attempts = self.recovery.attempts.saturating_add(1);
        if self.recovery.attempts.is_multiple_of(BALLOTS_PER_SEARCH) {
            self.search();
        }
        let (before, after) = self.sides(self.log.accepted());
        let mut votes = Table::default();
        votes.insert(self.me.uid, self.own_vote(ballot));
        self.recovery.coordination = Some(Box::new(Coordination {
            ballot,
            stage: Stage::Inviting,
            votes,
            invited: self.others_of(&uids(&before), &uids(&after)),
            gather_until: now + self.patience(now),
            gather_again_until: now + GATHER_AGAIN,
            stage_until: self.stage_end(now),
            repeat_at: now,
        }));
        self.coordinate(now);
    }

    fn stage_end(&self, now: Time) -> Time {
        now + self.patience(now) + STAGE_MARGIN
    }

    /// Gives up the present ballot and schedules another one.
    fn end_ballot(&mut self, now: Time) {
        self.recovery.coordination = None;
        self.recovery.pull = None;
        let backoff = RESET_BACKOFF * self.recovery.attempts.min(BACKOFFS_MAX);
        let jitter = Duration::from_nanos(self.random.below(backoff.as_nanos().max(1) as u64));
        self.recovery.begin_at = Some(now + RESET_PAUSE + jitter);
    }

    pub(crate) fn handle_vote(&mut self, now: Time, from: Uid, vote: Vote) {
        let Some(own) = &mut self.recovery.coordination else { return };
        if let Some(place) = self.recovery.unanswered.iter().position(|&uid| uid == from) {
            self.recovery.unanswered.swap_remove(place);
            own.gather_again_until = own.gather_again_until.max(now + GATHER_AGAIN);
        }
        if own.ballot == vote.ballot {
            own.votes.insert(from, vote);
            self.coordinate(now);
        }
    }

    pub(crate) fn handle_outbid(&mut self, now: Time, promised: Ballot) {
        if promised.round > RESET_ROUND_MAX {
            return;
        }
        self.recovery.round = self.recovery.round.max(promised.round);
        if self.recovery.coordination.as_ref().is_some_and(|own| own.ballot < promised) {
            self.probe(Probe::Outbid);
            self.end_ballot(now);
        }
    }

    /// Does what is due in this member's own ballot.
    pub(super) fn coordinate(&mut self, now: Time) {
        let Some(own) = &self.recovery.coordination else { return };
        match own.stage {
            Stage::Inviting => {
                let is_over = now >= own.gather_until;
                if is_over {
                    self.note_unanswered();
                }
                if !self.awaits_a_vote(now) {
                    self.pull_longest(now);
                }
            }
            // A vote that arrived meanwhile may announce a longer log.
            Stage::Pulling if self.recovery.pull.is_none() => self.pull_longest(now),
            Stage::Pulling => {}
            Stage::Preparing { .. } => self.decide_if_prepared(now),
        }
        let Some(own) = &mut self.recovery.coordination else { return };
        if now >= own.stage_until {
            self.halt_without_answers(now);
            self.end_ballot(now);
            return;
        }
        if now >= own.repeat_at {
            own.repeat_at = now + RESET_REPEAT_EVERY;
            self.repeat_stage(now);
        }
    }

    /// True if an invited member may still vote that is not suspected and has not been silent for as long as one that is.
    fn awaits_a_vote(&self, now: Time) -> bool {
        let Some(own) = &self.recovery.coordination else { return false };
        own.invited.iter().any(|&uid| {
            let again = self.recovery.unanswered.contains(&uid);
            let until = if again { own.gather_again_until } else { own.gather_until };
            let patience = self.patience(now);
            let is_gone = |peer: &Peer| peer.is_suspected() || peer.has_answered_none(now, patience);
            let is_given_up = self.peers.get(uid).is_none_or(is_gone) || self.force.gives_up(now, uid);
            now < until && !is_given_up && !own.votes.contains(uid)
        })
    }

    /// Notes the members that left the invitation unanswered: later ballots wait only `GATHER_AGAIN` for them.
    fn note_unanswered(&mut self) {
        let Some(own) = &self.recovery.coordination else { return };
        for &uid in own.invited.iter().filter(|uid| !own.votes.contains(**uid)) {
            if !self.recovery.unanswered.contains(&uid) {
                self.recovery.unanswered.push(uid);
            }
        }
    }

    fn repeat_stage(&mut self, now: Time) {
        let invites_again = self.is_time_to_invite_again(now);
        let Some(own) = &self.recovery.coordination else { return };
        let ballot = own.ballot;
        match &own.stage {
            Stage::Inviting | Stage::Pulling => {
                let is_asked = |uid: &Uid| invites_again || !self.recovery.unanswered.contains(uid);
                let is_missing = |uid: &Uid| !own.votes.contains(*uid) && is_asked(uid);
                let missing: Vec<Uid> = own.invited.iter().copied().filter(is_missing).collect();
                if invites_again {
                    self.recovery.invited_again_at = now;
                }
                let lost = self.recovery.attempts > 1;
                let members_min = self.recovery.floor_to_tell();
                for uid in missing {
                    self.post(uid, Frame::Invite { ballot, members_min });
                    if lost {
                        // These members may have excluded this one.
                        self.post(uid, Frame::Inquiry);
                    }
                }
            }
            Stage::Preparing { prepare, prepared, .. } => {
                let asked = self.others_of(&prepare.before, &prepare.after);
                let missing = asked.into_iter().filter(|uid| !prepared.contains(uid)).collect::<Vec<Uid>>();
                let prepare = prepare.clone();
                for uid in missing {
                    self.post(uid, Frame::Prepare(prepare.clone().into()));
                }
            }
        }
    }

    /// True if it is time to invite members again that left an invitation unanswered. The interval grows while all of
    /// them are silent. Once one of them is heard, every repetition invites them.
    fn is_time_to_invite_again(&self, now: Time) -> bool {
        let unanswered = self.recovery.unanswered.iter();
        let heard_at = unanswered.filter_map(|&uid| Some(self.peers.get(uid)?.last_heard())).max();
        let silence = now.since(heard_at.unwrap_or(now));
        now.since(self.recovery.invited_again_at) >= (silence / SILENCE_PER_REPEAT).min(REPEAT_RARELY)
    }

    // --- choosing ---

    /// Pulls the entries of the longest log voted that this log lacks. If it lacks none, chooses.
    fn pull_longest(&mut self, now: Time) {
        let received = self.log.received();
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

    /// Chooses the proposal (docs/protocol/recovery.md). Goes on gathering votes if there is no quorum, or if the log
    /// names members that were not invited yet.
    fn choose(&mut self, now: Time) {
        self.review_force(now);
        let Some(accepted) = self.accepted_of_ballot() else { return };
        let (before, after) = self.sides(accepted);
        if self.invite_newly_found(now, &before, &after) {
            return;
        }
        let Some(own) = &self.recovery.coordination else { return };
        let ballot = own.ballot;
        let voted = |member: &Member| own.votes.contains(member.uid);
        let forced = self.is_forced(now, &before, &after, voted);
        let quorum = self.broken(Planted::NextViewWithoutQuorum)
            || forced
            || (self.is_quorum(&before, voted) && self.is_quorum(&after, voted));
        let adopted = own.votes.iter().filter_map(|(_, vote)| vote.prepared.as_ref()).max_by_key(|(b, _)| *b);
        let adopted = adopted.map(|(_, proposal)| proposal.clone());
        let alone = self.broken(Planted::TailOfCoordinatorOnly);
        let counted = own.votes.iter().filter(|(uid, _)| !alone || *uid == self.me.uid);
        let voted_early = counted.flat_map(|(_, vote)| vote.early.iter().cloned()).collect();
        let members = self.next_view_members(own, &after);
        let floor = if forced { 1 } else { self.recovery.floor().max(1) };
        let leaves_state = !forced && !self.goes_on_with_state(own, &members, &after);
        let is_below_floor = !forced && !self.meets_floor(&after, |member| members.contains(&member.uid));
        let is_too_small = members.len() < floor || is_below_floor;
        if !quorum || (adopted.is_none() && (is_too_small || leaves_state)) {
            self.probe(match quorum {
                true if leaves_state => Probe::StateAwaited,
                true if is_below_floor => Probe::FloorAwaited,
                _ => Probe::NoQuorum,
            });
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
                if !proposal.tail.is_empty() {
                    self.probe(Probe::TailAdopted);
                }
                match self.broken(Planted::TailMadeAnew) {
                    true => self.with_tail_made_anew(proposal, voted_early, &after),
                    false => proposal,
                }
            }
            _ => {
                let tail = self.tail_of(voted_early, &after);
                self.propose(&after, members, accepted, forced, tail)
            }
        };
        self.ask_to_prepare(now, ballot, proposal, before, after);
    }

    /// Planted bug only: gives an adopted proposal the tail of this ballot's votes.
    fn with_tail_made_anew(&self, adopted: Proposal, voted: Vec<EarlyMessage>, view: &Members) -> Proposal {
        let tail = self.tail_of(voted, view);
        Proposal { start: adopted.keep() + tail.len() as u64 + 1, tail, ..adopted }
    }

    /// Returns the seqno through which a voter of this member's ballot knows the log to be accepted.
    fn accepted_of_ballot(&self) -> Option<Seqno> {
        let own = self.recovery.coordination.as_ref()?;
        Some(own.votes.iter().map(|(_, vote)| vote.accepted).max().unwrap_or(0).max(self.log.accepted()))
    }

    /// Returns the views whose quorums this member's ballot needs.
    pub(super) fn sides_of_ballot(&self) -> Option<(Members, Members)> {
        self.accepted_of_ballot().map(|accepted| self.sides(accepted))
    }

    /// Invites the members of these views again if one of them was not invited yet. Returns true if so.
    fn invite_newly_found(&mut self, now: Time, before: &Members, after: &Members) -> bool {
        self.peers.take_in(now, self.me.uid, before);
        self.peers.take_in(now, self.me.uid, after);
        let all = self.others_of(&uids(before), &uids(after));
        let gather_until = now + self.patience(now);
        let Some(own) = &mut self.recovery.coordination else { return false };
        if all.iter().all(|uid| own.invited.contains(uid)) {
            return false;
        }
        (own.invited, own.stage) = (all, Stage::Inviting);
        (own.gather_until, own.gather_again_until) = (gather_until, now + GATHER_AGAIN);
        own.repeat_at = now;
        true
    }

    /// Returns the members of `view` that voted. Members that vote but are suspected as slow or replaced are left out
    /// if the others are a quorum without them, meet its floor and have the state.
    fn next_view_members(&self, own: &Coordination, view: &Members) -> Vec<Uid> {
        let voted = |member: &Member| own.votes.contains(member.uid);
        let wanted = |member: &Member| {
            let suspected = self.peers.get(member.uid).and_then(|peer| peer.suspected());
            voted(member) && !matches!(suspected, Some(Suspicion::Slow | Suspicion::Replaced))
        };
        let voters = |is_in: &dyn Fn(&Member) -> bool| -> Vec<Uid> {
            view.iter().filter(|member| is_in(member)).map(|member| member.uid).collect()
        };
        let without = voters(&wanted);
        let is_enough = self.is_quorum(view, wanted) && self.meets_floor(view, wanted);
        match is_enough && self.goes_on_with_state(own, &without, view) {
            true => without,
            false => voters(&voted),
        }
    }

    fn ask_to_prepare(
        &mut self,
        now: Time,
        ballot: Ballot,
        proposal: Proposal,
        before: Members,
        after: Members,
    ) {
        let members_min = self.recovery.floor_to_tell();
        let prepare = Prepare { ballot, members_min, proposal, before: uids(&before), after: uids(&after) };
        let stage_until = self.stage_end(now);
        if let Some(own) = &mut self.recovery.coordination {
            own.stage_until = stage_until;
            own.repeat_at = now;
            own.stage = Stage::Preparing { prepare: prepare.clone(), before, after, prepared: Vec::new() };
        }
        self.handle_prepare(now, self.me.uid, prepare);
        self.coordinate(now);
    }

    /// Returns the views whose quorums a reset needs: before and after the last change not known to be accepted.
    pub(super) fn sides(&self, accepted: Seqno) -> (Members, Members) {
        let after = self.log.history().view().clone();
        match self.log.history().change_beyond(accepted) {
            Some(seqno) => (self.log.history().view_at(seqno - 1).clone(), after),
            None => (after.clone(), after),
        }
    }

    fn propose(
        &mut self,
        after: &Members,
        members: Vec<Uid>,
        accepted: Seqno,
        forced: bool,
        tail: Vec<EarlyMessage>,
    ) -> Proposal {
        let missing = after.len() - members.len();
        let resilience = self.config.resilience as usize;
        let is_beyond = resilience > 0 && missing > resilience && !self.broken(Planted::DegradedUnsaid);
        let end = self.log.received();
        if end > accepted {
            self.probe(Probe::TentativeKept);
        }
        let start = if self.broken(Planted::TentativeDropped) { accepted + 1 } else { end + 1 };
        let start = start + tail.len() as u64;
        if missing == 0 {
            self.probe(Probe::NoneMissing);
        }
        let epoch = EpochId {
            counter: self.epoch.counter + 1,
            coordinator: self.me.uid,
            nonce: self.random.next_u64(),
        };
        Proposal { epoch, start, members, degraded: is_beyond || forced, forced, tail }
    }

    // --- deciding ---

    /// Notes that a member prepared this coordinator's proposal.
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
        let all_of_next = || prepare.proposal.members.iter().all(|uid| prepared.contains(uid));
        let has_quorum = self.is_quorum(before, did)
            && self.is_quorum(after, did)
            && (!matches!(self.config.quorum, Quorum::AtLeast(_)) || all_of_next());
        let decided = has_quorum || self.is_forced(now, before, after, did);
        if !decided && !self.broken(Planted::DecidedAtOnce) {
            return;
        }
        let proposal = prepare.proposal.clone();
        let mut told = self.others_of(&prepare.before.clone(), &prepare.after.clone());
        // Their joins end with the epoch, and all members of the next one may leave before they ask.
        let is_observer = |peer: &&Peer| matches!(peer.standing(), Standing::Observer { .. });
        told.extend(self.peers.iter().filter(is_observer).map(Peer::uid));
        for uid in told {
            self.post(uid, Frame::Decided { proposal: proposal.clone(), entered: false });
        }
        self.handle_decided(now, self.me.uid, proposal, false);
    }
}

fn uids(view: &Members) -> Vec<Uid> {
    view.iter().map(|member| member.uid).collect()
}

//! The outcome of a decided reset: this member enters the next epoch, or its membership is over.
//!
//! A member that the decision names drops what it holds beyond what the proposal keeps, takes the rest as accepted, appends
//! what was delivered early, and
//! goes on at once. A member that it does not name has left, if its own LEAVE is in the log that is kept; otherwise it
//! is excluded. Both linger and serve (`previous`).

use crate::config::{Floor, Quorum};
use crate::episode::Episode;
use crate::event::{Event, JoinFailure, Outcome};
use crate::group::{Group, Phase};
use crate::identity::{Ballot, EpochId, Instance, Member, MessageNumber, Seqno, Uid};
use crate::log::Reset;
use crate::look::LastReset;
use crate::membership::PreviousEpoch;
use crate::membership::recovery::{Force, Halt, Recovery};
use crate::planted::{Planted, Probe};
use crate::time::Time;
use crate::wire::Proposal;
use alloc::vec::Vec;
use core::time::Duration;

impl Group {
    pub(crate) fn handle_decided(&mut self, now: Time, from: Uid, proposal: Proposal, entered: bool) {
        match self.phase {
            Phase::Locating | Phase::Gone => return,
            Phase::Excluded => {
                let of_others = self
                    .previous
                    .as_ref()
                    .is_some_and(|previous| self.is_of_others(&previous.proposal, &proposal));
                if entered && !of_others {
                    self.phase = Phase::Gone;
                }
                return;
            }
            _ => {}
        }
        if self.waits_for_another(&proposal) {
            return;
        }
        if from != self.me.uid {
            self.probe(Probe::DecisionTold);
        }
        if !proposal.members.contains(&self.me.uid) {
            self.excluded_by(now, proposal, entered);
        } else if self.log.received() >= proposal.keep() {
            self.install(now, proposal);
        } else {
            self.level_for(now, from, proposal);
        }
    }

    /// True if this member must not follow the decision. Where quorums need not intersect, it enters only what it
    /// prepared last, and is not excluded by a decision of another half.
    fn waits_for_another(&self, decided: &Proposal) -> bool {
        let Some((_, prepared)) = &self.recovery.prepared else { return false };
        let names_me = decided.members.contains(&self.me.uid);
        self.is_of_others(prepared, decided) || (names_me && self.is_of_another_line(prepared, decided))
    }

    /// True if the decision is another half's and concerns no member of the proposal known here. If it names one of
    /// them, that member went the other way.
    fn is_of_others(&self, known: &Proposal, decided: &Proposal) -> bool {
        let names_any = known.members.iter().any(|uid| decided.members.contains(uid));
        self.is_of_another_line(known, decided) && !names_any
    }

    /// True if the decision may be another half's. Where quorums intersect there is only one line of views.
    fn is_of_another_line(&self, known: &Proposal, decided: &Proposal) -> bool {
        matches!(self.config.quorum, Quorum::AtLeast(_)) && known.epoch != decided.epoch
    }

    /// Pulls the entries below a decision from the member that sent it.
    fn level_for(&mut self, now: Time, from: Uid, proposal: Proposal) {
        self.probe(Probe::MemberPulled);
        let ballot = self.recovery.promised.unwrap_or_default();
        let through = proposal.keep();
        if self.recovery.promised.is_none() {
            // This member must store and acknowledge nothing more in this epoch.
            self.promise(now, Ballot { round: 1, coordinator: Uid(0) });
        }
        let from = if from == self.me.uid { self.contact() } else { from };
        self.recovery.coordination = None;
        self.recovery.decided = Some(proposal);
        if self.recovery.pull.is_none_or(|pull| pull.through != through) {
            self.pull(now, ballot, through, from);
        }
    }

    fn install(&mut self, now: Time, proposal: Proposal) {
        let keep = proposal.keep();
        let old_view = self.log.history().view_at(keep).clone();
        let mut members: Vec<Member> = proposal
            .members
            .iter()
            .filter_map(|uid| old_view.iter().find(|member| member.uid == *uid).cloned())
            .collect();
        let follows = proposal.epoch.counter == self.epoch.counter + 1
            && proposal.start > self.epoch_start
            && self.log.allows_reset_at(keep + 1)
            && self.is_tail_after(keep, &proposal.tail);
        if members.len() != proposal.members.len() || !follows {
            return;
        }
        self.note_reset_probes(&proposal);
        let was_in = self.phase != Phase::Joining;
        let took = self.recovery.since().map_or(Duration::ZERO, |since| now.since(since));
        let excluded: Vec<Member> =
            old_view.iter().filter(|member| !proposal.members.contains(&member.uid)).cloned().collect();
        if self.broken(Planted::FloorForgotten) {
            members.iter_mut().for_each(|member| member.floor = Floor::None);
        }
        if self.broken(Planted::FloorKeptAfterLeave) {
            let size = old_view.len();
            let kept = excluded.iter().chain(&members[..1]).map(|member| member.floor);
            members[0].floor = kept.max_by_key(|floor| floor.of(size)).unwrap_or_default();
        }
        self.last_reset = Some(self.describe_reset(&proposal, &excluded));
        let order = self.log.history().order();
        self.log.cut(keep);
        if self.broken(Planted::SwitchKeptOverCut) {
            self.log.keep_order(order);
        }
        if self.broken(Planted::KeptReportedFailed) {
            self.fail_rest_of_outbox(&[]);
        }
        self.settle_log(keep);
        let placed = self.append_tail(&proposal.tail);
        self.fail_rest_of_outbox(&placed);
        let peers = self.peers.iter().map(|peer| peer.member().clone()).collect();
        self.previous = Some(PreviousEpoch::survived(now, self.epoch_tag, proposal.clone(), peers).into());
        let (degraded, forced) = (proposal.degraded, proposal.forced);
        let (epoch, kept) = (proposal.epoch, keep);
        let reset = Reset { epoch, kept, excluded: excluded.clone(), degraded, forced };
        let start = self.log.install(members.clone(), reset);
        if was_in {
            let members = members.len();
            self.episodes.push(Episode::ResetEnded { seqno: start, members, excluded, degraded, took });
        }
        self.enter_epoch(now, proposal.epoch, start);
        self.peers.begin_epoch(now, proposal.keep());
        self.peers.take_view(now, self.me.uid, &members, 0);
        if self.is_ring() {
            self.order.forget_multicast_heard();
        }
        if !self.broken(Planted::UnorderedKept) {
            self.log.drop_waiting();
        }
        self.forget_acknowledgements(start);
        self.recovery = Recovery::default();
        self.halt.end();
        if proposal.forced {
            self.force.end();
        }
        self.counters.resets += 1;
        self.enter_if_joined(now);
        if was_in && self.config.keeps_state && (self.entered_at..keep).contains(&self.log.delivered()) {
            self.notices.push_back(Event::ResetAhead { seqno: start });
        }
        self.phase = if self.leaving.is_some() { Phase::Leaving } else { Phase::Member };
        self.acknowledging.report_now();
        self.detector.look_soon(now);
    }

    /// Returns the summary of this reset for later queries; suspicions of excluded members are forgotten with them.
    fn describe_reset(&self, proposal: &Proposal, excluded: &[Member]) -> LastReset {
        LastReset {
            seqno: proposal.start,
            excluded: u16::try_from(excluded.len()).unwrap_or(u16::MAX),
            degraded: proposal.degraded,
            forced: proposal.forced,
            reason: excluded.iter().find_map(|member| self.peers.get(member.uid)?.suspected()),
        }
    }

    /// Takes everything through `keep` as accepted, by the decision of the reset.
    fn settle_log(&mut self, keep: Seqno) {
        let before = self.log.accepted();
        if keep > before {
            self.log.accept_through(keep);
            self.resolve_own(before);
            self.note_changes_accepted(before);
        }
    }

    /// Reports what has no seqno as failed, each message by itself: `placed` are those that have one in a tail.
    pub(crate) fn fail_rest_of_outbox(&mut self, placed: &[(MessageNumber, Seqno)]) {
        let rest = self.outbox.fail_rest();
        if rest.len() > placed.len() {
            self.probe(Probe::SendFailed);
        }
        self.counters.messages_sent += placed.len() as u64;
        let (by_prefix, all_fail) =
            (self.broken(Planted::OutcomesByPrefix), self.broken(Planted::FailedThoughInTail));
        self.sent.extend(rest.into_iter().map(|number| {
            let is_it =
                |(named, _): &&(MessageNumber, Seqno)| *named == number || (by_prefix && *named > number);
            let place = placed.iter().find(is_it).filter(|_| !all_fail);
            (number, place.map_or(Outcome::Failed, |(_, seqno)| Outcome::Ok { seqno: *seqno }))
        }));
    }

    fn note_reset_probes(&mut self, proposal: &Proposal) {
        if self.log.received() > proposal.keep() {
            self.probe(Probe::TentativeCut);
        }
        if proposal.degraded {
            self.probe(Probe::Degraded);
        }
        if self.log.history().inside_a_message() {
            self.probe(Probe::PiecesGivenUp);
        }
        if self.leaving.is_some() {
            self.probe(Probe::LeaveMetReset);
        }
        if self.joining.is_some() || self.peers.iter().any(|peer| peer.is_observer()) {
            self.probe(Probe::JoinMetReset);
        }
    }

    // --- out ---

    /// Ends the membership: the decision, with the beginning of the next epoch, does not name this member.
    fn excluded_by(&mut self, now: Time, proposal: Proposal, entered: bool) {
        if self.phase == Phase::Joining {
            self.probe(Probe::JoinMetReset);
            self.join_failed(JoinFailure::Reset);
            return;
        }
        self.probe(Probe::Excluded);
        let own_leave = self.own_leave_seqno().filter(|seqno| *seqno <= proposal.keep());
        if let Some(seqno) = own_leave {
            // The reset keeps the LEAVE, so it is accepted. The leaver delivers it, and nothing beyond it.
            self.log.cut(seqno);
            self.settle_log(seqno);
            self.left = true;
        }
        self.end_membership(Some(proposal.epoch));
        let peers = self.peers.iter().map(|peer| peer.member().clone()).collect();
        self.previous = Some(PreviousEpoch::lingering(now, self.epoch_tag, proposal, peers).into());
        if entered {
            self.phase = Phase::Gone;
        }
    }

    /// True if this is an epoch of this group that this member has left behind.
    pub(crate) fn is_earlier(&self, instance: Instance, epoch: EpochId) -> bool {
        instance == self.instance && epoch.counter < self.epoch.counter
    }

    /// Handles `Excluded`. Its sender may be in a later epoch, or may never have been in this one: a member of another
    /// group of the port may have come to the address of a former member.
    pub(crate) fn handle_excluded(&mut self, uid: Uid, instance: Instance, epoch: EpochId) {
        let is_of_this_group = instance == self.instance || self.broken(Planted::AnyGroupExcludes);
        if uid != self.me.uid || !is_of_this_group || epoch.counter <= self.epoch.counter {
            return;
        }
        match self.phase {
            Phase::Joining => self.join_failed(JoinFailure::Reset),
            Phase::Member | Phase::Resetting | Phase::Leaving => {
                self.probe(Probe::Excluded);
                self.end_membership(Some(epoch));
                self.phase = Phase::Gone;
            }
            _ => {}
        }
    }

    /// Ends this member's part in the group; it still delivers what it knows to be accepted. If that ends with its own
    /// LEAVE, it has left and gets `Gone` instead of `Excluded`.
    fn end_membership(&mut self, epoch: Option<EpochId>) {
        let cut_off = self.outbox.fail_rest();
        self.sent.extend(cut_off.into_iter().map(|number| (number, Outcome::Unknown)));
        self.phase = Phase::Excluded;
        if !self.left {
            self.episodes.push(Episode::Excluded { epoch });
        }
        self.closing = Some(if self.left { Event::Gone } else { Event::Excluded { epoch } });
        self.leaving = None;
        self.joining = None;
        self.order.stop();
        self.detector.stop();
        self.recovery.stop();
        (self.halt, self.force) = (Halt::default(), Force::default());
        self.repair.clear();
    }
}

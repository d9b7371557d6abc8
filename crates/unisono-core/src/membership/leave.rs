//! Leaving: an ordered event that the leaver receives too.
//!
//! When all its messages have seqnos, a leaver asks the sequencer to number its LEAVE; a leaving sequencer numbers its
//! own. Below the group's minimum a leaver does not wait for its messages. It may lack the JOIN that ends this, so its
//! request says which message has no seqno yet, and the sequencer decides by its own log. The leaver stores nothing above the seqno of its LEAVE. It serves its log until a quorum of the remaining
//! members is known to know the LEAVE accepted; then the sequencer sends it `Farewell`.

use crate::event::{Event, Outcome, Suspicion};
use crate::group::{Group, Phase};
use crate::identity::{MessageNumber, Seqno, Uid};
use crate::log::{Entry, Members};
use crate::peers::{Peer, Standing};
use crate::planted::{Planted, Probe};
use crate::time::{Time, earlier};
use crate::wire::{Change, Frame};
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use bytes::Bytes;
use core::time::Duration;

const FAREWELL_EVERY: Duration = Duration::from_millis(15);
const LEAVE_ASK_EVERY: Duration = Duration::from_millis(40);
/// A member forgets a leaver that has been silent for 400 ms.
const FORGET: Duration = Duration::from_millis(400);
/// Every fourth request to leave goes to a random peer, with an `Inquiry`: the epoch may be over.
const LEAVE_ASKS_PER_INQUIRY: u32 = 4;
/// With every tenth request, a leaver that hears no member meanwhile looks for the group with `Locate`.
const ASKS_PER_SEARCH: u32 = 10;
/// A leaver that gets no farewell, or that hears no remaining member, goes after one minute: no member can still need
/// it. So does a joiner that hears no member.
pub(super) const LEAVE_LINGER: Duration = Duration::from_secs(60);
/// A leaver that knows its LEAVE accepted, and hears none of the remaining members, goes after 2 s and four of the
/// detector's patiences. By then they have died or excluded it. They could need its vote only if all members that know
/// the LEAVE accepted died meanwhile.
const LINGER_UNHEARD: Duration = Duration::from_secs(2);
const LINGER_PATIENCES: u32 = 4;
/// The last member waits at most 2 s for the members that left before it.
const DISMISS_WITHIN: Duration = Duration::from_secs(2);

const LEAVE_REQUESTS_MAX: usize = 64;
const DEPARTED_MAX: usize = 256;

/// State of a member that is leaving.
#[derive(Clone, Debug)]
pub(crate) struct Leaving {
    goodbye: Bytes,
    since: Time,
    ask_at: Option<Time>,
    asked: u32,
    /// When its LEAVE was accepted.
    left_at: Option<Time>,
    /// When it goes at the latest; set together with `left_at`.
    go_at: Option<Time>,
}

impl Leaving {
    pub(crate) fn wake_at(&self) -> Option<Time> {
        earlier(self.ask_at, self.go_at)
    }
}

/// A member's request to leave.
#[derive(Clone, Debug)]
pub(crate) struct LeaveRequest {
    pub(crate) from: Uid,
    /// Number of its last message that had no seqno yet; 0 if all had one.
    pub(crate) unnumbered_through: MessageNumber,
    pub(crate) goodbye: Bytes,
}

/// Requests to leave that the sequencer has not numbered yet, and members that have left.
#[derive(Clone, Debug, Default)]
pub(crate) struct Departures {
    requests: VecDeque<LeaveRequest>,
    /// Leavers that are no peers any more, each with the seqno of its LEAVE.
    departed: VecDeque<(Uid, Seqno)>,
}

impl Departures {
    /// Keeps the first request of each leaver. A later one names no other message: a leaver sends none.
    pub(crate) fn note_request(&mut self, request: LeaveRequest) {
        if !self.has_asked(request.from) && self.requests.len() < LEAVE_REQUESTS_MAX {
            self.requests.push_back(request);
        }
    }

    pub(crate) fn requests(&self) -> impl Iterator<Item = &LeaveRequest> {
        self.requests.iter()
    }

    fn has_asked(&self, uid: Uid) -> bool {
        self.requests.iter().any(|request| request.from == uid)
    }

    pub(crate) fn forget_request(&mut self, uid: Uid) {
        self.requests.retain(|request| request.from != uid);
    }

    /// Forgets all requests at the start of an epoch; leavers repeat theirs.
    pub(crate) fn forget_requests(&mut self) {
        self.requests.clear();
    }

    /// Remembers the LEAVE of a leaver that stops being a peer; the leaver may still ask for its farewell.
    pub(crate) fn note_departed(&mut self, uid: Uid, leave: Seqno) {
        if self.departed.len() == DEPARTED_MAX {
            self.departed.pop_front();
        }
        self.departed.push_back((uid, leave));
    }

    /// Returns the seqno of the LEAVE of `uid`, which is no peer any more.
    pub(crate) fn leave_of(&self, uid: Uid) -> Option<Seqno> {
        self.departed.iter().find(|(departed, _)| *departed == uid).map(|(_, leave)| *leave)
    }
}

impl Group {
    /// Begins to leave, as the application asked.
    pub(crate) fn begin_leaving(&mut self, now: Time, goodbye: Bytes) {
        self.leaving =
            Some(Leaving { goodbye, since: now, ask_at: Some(now), asked: 0, left_at: None, go_at: None });
        if self.phase == Phase::Member {
            self.phase = Phase::Leaving;
        }
        self.leave_timeout(now);
    }

    pub(crate) fn leave_timeout(&mut self, now: Time) {
        let Some(leaving) = &self.leaving else { return };
        if leaving.go_at.is_some_and(|at| at <= now) {
            self.go();
            return;
        }
        if leaving.ask_at.is_none_or(|at| at > now) {
            return;
        }
        let goodbye = leaving.goodbye.clone();
        if leaving.go_at.is_some() {
            match self.is_last_to_leave() {
                true => self.dismiss_all(now),
                false => self.ask_for_farewell(now, goodbye),
            }
            return;
        }
        let (since, silence) = (leaving.since, now.since(self.last_heard().max(leaving.since)));
        let unserved = self.sequencer_heard().map_or(silence, |at| now.since(at.max(since)));
        if unserved >= LEAVE_LINGER {
            self.go_without_leave();
            return;
        }
        let asked = leaving.asked.saturating_add(1);
        if let Some(leaving) = &mut self.leaving {
            (leaving.ask_at, leaving.asked) = (Some(now + LEAVE_ASK_EVERY), asked);
        }
        if self.has_to_reset_first(now) {
            self.begin_reset_soon(now);
        }
        // The epoch may be over, and its sequencer gone.
        let inquires = asked.is_multiple_of(LEAVE_ASKS_PER_INQUIRY);
        if asked.is_multiple_of(ASKS_PER_SEARCH) && silence >= LEAVE_ASK_EVERY * ASKS_PER_SEARCH {
            self.search();
        }
        let Some(target) = (if inquires { self.random_peer() } else { Some(self.contact()) }) else { return };
        let asks = self.phase == Phase::Leaving && !self.own_leave_is_logged();
        let ready = self.nothing_waits_for_a_seqno() || self.broken(Planted::LeaveOvertakesMessages);
        if asks && ready && !self.may_assign() && !self.recovery.has_promised() {
            self.post(target, self.leave_request(goodbye));
        }
        if inquires {
            self.post(target, Frame::Inquiry);
        }
    }

    fn leave_request(&self, goodbye: Bytes) -> Frame {
        let overtakes = self.broken(Planted::LeaveOvertakesMessages);
        let unnumbered_through = if overtakes { 0 } else { self.outbox.unnumbered_through() };
        Frame::LeaveRequest { unnumbered_through, goodbye }
    }

    /// True if this leaver must begin a reset before it can leave, under the manual policy too. Suspected members can
    /// prevent its LEAVE: the rest would be no quorum without them, or they leave no capacity for its last messages.
    /// Its own application no longer decides anything. So it decides itself if it is the sequencer, or if all other
    /// members are suspected or leaving too; the unsuspected members must be a quorum.
    fn has_to_reset_first(&self, now: Time) -> bool {
        let Some(leaving) = &self.leaving else { return false };
        let view = self.log.history().view();
        let is_suspected = |uid: Uid| self.peers.get(uid).is_some_and(|peer| peer.is_suspected());
        let mut others = view.iter().filter(|member| member.uid != self.me.uid);
        let decides_nothing = |uid: Uid| is_suspected(uid) || self.departures.has_asked(uid);
        let decides = self.may_assign() || others.all(|member| decides_nothing(member.uid));
        decides
            && self.phase == Phase::Leaving
            && self.is_member()
            && now.since(leaving.since) >= self.patience(now)
            && view.iter().any(|member| is_suspected(member.uid))
            && self.is_quorum(view, |member| !is_suspected(member.uid))
            && self.meets_floor(view, |member| !is_suspected(member.uid))
    }

    /// Returns when this member last heard the sequencer, which alone can number its LEAVE. `None` for the sequencer
    /// itself and during a reset. Other leavers do not count: they may be heard for ever.
    fn sequencer_heard(&self) -> Option<Time> {
        let sequencer = self.submit_to().filter(|_| !self.recovery.has_promised())?;
        Some(self.peers.get(sequencer).map_or(Time::ZERO, |peer| peer.last_heard()))
    }

    /// Returns when this member last heard a remaining member. Leavers do not count: they hear each other for long.
    pub(super) fn last_heard(&self) -> Time {
        let staying = self.peers.iter().filter(|peer| peer.is_member());
        staying.map(|peer| peer.last_heard()).max().unwrap_or(Time::ZERO)
    }

    /// Asks a random peer for the farewell after the LEAVE is accepted: the sequencer that numbered it may have gone.
    fn ask_for_farewell(&mut self, now: Time, goodbye: Bytes) {
        let left_at = self.leaving.as_ref().and_then(|leaving| leaving.left_at).unwrap_or(now);
        let silence = now.since(self.last_heard().max(left_at));
        if silence >= self.unheard_max(now) && !self.recovery.has_promised() {
            self.go();
            return;
        }
        let peer = self.random_peer();
        let marks = self.watermarks(now);
        if let Some(leaving) = &mut self.leaving {
            leaving.ask_at = Some(now + LEAVE_ASK_EVERY * 4);
            leaving.asked = leaving.asked.saturating_add(1);
            if leaving.asked.is_multiple_of(ASKS_PER_SEARCH) && silence >= LEAVE_ASK_EVERY * ASKS_PER_SEARCH {
                self.search();
            }
        }
        if let Some(uid) = peer {
            self.post(uid, Frame::Watermarks(marks));
            self.post(uid, self.leave_request(goodbye));
            // The epoch may be over.
            self.post(uid, Frame::Inquiry);
        }
    }

    /// True if this member's own LEAVE is in its log; it stores nothing above it.
    pub(crate) fn own_leave_is_logged(&self) -> bool {
        self.leaving.is_some() && self.phase == Phase::Leaving && !self.is_member()
    }

    /// Returns the seqno of this member's own LEAVE, if its log holds it.
    pub(crate) fn own_leave_seqno(&self) -> Option<Seqno> {
        if self.leaving.is_none() || self.is_member() {
            return None;
        }
        let mine = |seqno: &Seqno| match self.log.history().get(*seqno) {
            Some(Entry::Change(change)) => {
                matches!(&**change, Change::Leave { uid, .. } if *uid == self.me.uid)
            }
            _ => false,
        };
        (self.log.base() + 1..=self.log.received()).rev().find(mine)
    }

    /// Begins to serve only: this member's LEAVE is accepted.
    #[cold]
    pub(crate) fn note_own_leave_accepted(&mut self, now: Time) {
        let is_last = self.is_last_to_leave();
        self.left = true;
        if self.config.members_min > 1 {
            // What waited for more members has no seqno below the LEAVE, and gets none above it.
            self.fail_rest_of_outbox(&[]);
        }
        if let Some(leaving) = &mut self.leaving {
            leaving.ask_at = Some(now + LEAVE_ASK_EVERY * 4);
            leaving.left_at.get_or_insert(now);
            leaving.go_at.get_or_insert(now + if is_last { DISMISS_WITHIN } else { LEAVE_LINGER });
        }
        if is_last {
            self.dismiss_all(now);
        }
        if self.broken(Planted::LeaverGoesAtOnce) {
            self.go();
        }
    }

    /// True if no member remains once this one has left.
    fn is_last_to_leave(&self) -> bool {
        self.own_leave_is_logged() && self.log.history().view().is_empty()
    }

    /// Sends `Farewell` to all members that left before this one, the last member, and still serve: the group ends. No
    /// other member can send it any more. It stays until each has announced that it goes, or was silent for 400 ms.
    fn dismiss_all(&mut self, now: Time) {
        if let Some(leaving) = &mut self.leaving {
            leaving.ask_at = Some(now + FAREWELL_EVERY);
        }
        if !self.has_leavers() {
            self.go();
        }
        let told: Vec<(Uid, Seqno)> = self
            .peers
            .iter()
            .filter_map(|peer| match *peer.standing() {
                Standing::Leaver { seqno, .. } => Some((peer.uid(), seqno)),
                _ => None,
            })
            .collect();
        for (uid, seqno) in told {
            self.post(uid, Frame::Farewell { uid, seqno });
        }
    }

    /// Ends this member's life in the group: no member needs it any more.
    pub(crate) fn go(&mut self) {
        self.probe(Probe::LeaverGone);
        self.phase = Phase::Gone;
        self.closing = Some(Event::Gone);
        let untold = self.outbox.fail_rest();
        self.sent.extend(untold.into_iter().map(|number| (number, Outcome::Unknown)));
        self.order.stop();
        self.detector.stop();
        self.leaving = None;
    }

    /// Handles a request to leave. From a member: remembered, because the sequencer numbers the LEAVE and the others
    /// learn that the leaver's application decides nothing any more. From a leaver: a request for its farewell. Any
    /// member that knew the leaver may answer, because the present sequencer may have joined after its LEAVE.
    pub(crate) fn handle_leave_request(&mut self, request: LeaveRequest) {
        match self.peers.get(request.from).map(Peer::standing) {
            Some(Standing::Member) => self.departures.note_request(request),
            Some(Standing::Leaver { .. }) if self.report_to().is_some() => {
                self.dismiss(request.from);
            }
            _ => {}
        }
    }

    /// Sends `Farewell` to the leaver `uid` if its LEAVE is known to be known. Returns true if it was sent.
    pub(crate) fn dismiss(&mut self, uid: Uid) -> bool {
        match self.peers.get(uid).map(Peer::standing) {
            Some(&Standing::Leaver { seqno, .. }) if self.leave_is_known(seqno) => {
                self.post(uid, Frame::Farewell { uid, seqno });
                true
            }
            _ => false,
        }
    }

    /// Returns the LEAVE to be numbered next, if there is one: all messages of the leaver have seqnos, and the
    /// remaining members can go on without it.
    pub(crate) fn next_leave(&mut self) -> Option<Change> {
        if self.leaving.is_some()
            && self.is_member()
            && self.phase == Phase::Leaving
            && self.nothing_waits_for_a_seqno()
            && self.may_go_from_view(self.me.uid)
        {
            let goodbye = self.leaving.as_ref().map(|leaving| leaving.goodbye.clone())?;
            self.probe(Probe::SequencerLeft);
            return Some(Change::Leave { uid: self.me.uid, sequencer: self.heir(), goodbye });
        }
        let may_leave = |request: &&LeaveRequest| {
            let uid = request.from;
            let all_numbered = self.log.history().sender_mark(uid).number >= request.unnumbered_through;
            self.is_in_view(uid) && (all_numbered || self.is_below_minimum()) && self.may_go_from_view(uid)
        };
        let LeaveRequest { from: uid, goodbye, .. } = self.departures.requests().find(may_leave)?.clone();
        self.departures.forget_request(uid);
        Some(Change::Leave { uid, sequencer: self.me.uid, goodbye })
    }

    /// True if this leaver has no message that still gets a seqno. Below the group's minimum no message does.
    fn nothing_waits_for_a_seqno(&self) -> bool {
        self.outbox.all_numbered() || self.is_below_minimum()
    }

    /// True if a leave waits to be numbered.
    pub(crate) fn has_leave_requests(&self) -> bool {
        self.leaving.is_some() || self.departures.requests().next().is_some()
    }

    /// Returns the sequencer after this one's own LEAVE: the next in rank order that is there, or else itself.
    fn heir(&self) -> Uid {
        self.others_by_rank().find(|&uid| self.is_there(uid)).unwrap_or(self.me.uid)
    }

    /// Returns the other members of the view in rank order, from the one after this member on.
    pub(crate) fn others_by_rank(&self) -> impl Iterator<Item = Uid> {
        let view = self.log.history().view();
        let rank = view.iter().position(|member| member.uid == self.me.uid).unwrap_or(0);
        let (before, after) = view.split_at(rank);
        after.iter().skip(1).chain(before).map(|member| member.uid)
    }

    /// True if the member was heard in this epoch and is suspected of nothing but slowness.
    pub(crate) fn is_there(&self, uid: Uid) -> bool {
        let suspected = self.peers.get(uid).and_then(|peer| peer.suspected());
        let is_missed = suspected.is_some_and(|reason| reason != Suspicion::Slow);
        self.has_entered(uid) && !is_missed
    }

    /// True if the group may lose `uid`: the remaining members could be a quorum of themselves, and a quorum of them is
    /// there, or none remain. Without them no reset gets past an open LEAVE.
    fn may_go_from_view(&self, uid: Uid) -> bool {
        let staying: Members =
            Arc::new(self.log.history().view().iter().filter(|member| member.uid != uid).cloned().collect());
        let is_quorum_there = || {
            self.is_quorum(&staying, |member| self.is_there(member.uid))
                || self.broken(Planted::LeaveWithoutQuorum)
        };
        staying.is_empty() || (self.could_be_quorum(&staying) && is_quorum_there())
    }

    pub(crate) fn has_leavers(&self) -> bool {
        self.peers.iter().any(|peer| matches!(peer.standing(), Standing::Leaver { .. }))
    }

    /// Sends `Farewell` to the leavers whose LEAVE a quorum of the remaining members knows accepted.
    pub(crate) fn say_farewells(&mut self, now: Time) {
        if self.report_to().is_some() || !self.has_leavers() {
            return;
        }
        let ready: Vec<(Uid, Seqno)> = self
            .peers
            .iter()
            .filter_map(|peer| match *peer.standing() {
                Standing::Leaver { seqno, .. } if peer.received() >= seqno && self.leave_is_known(seqno) => {
                    Some((peer.uid(), seqno))
                }
                _ => None,
            })
            .collect();
        for (uid, seqno) in ready {
            if self.peers.get_mut(uid).is_some_and(|peer| peer.take_farewell(now, FAREWELL_EVERY)) {
                self.post(uid, Frame::Farewell { uid, seqno });
            }
        }
    }

    /// True if no member needs the leaver any more: a quorum of the remaining members knows its LEAVE accepted, or the
    /// next join or leave is accepted too. The member that numbered the next change knew the LEAVE accepted, and a
    /// quorum of the same view holds that change.
    pub(crate) fn leave_is_known(&self, seqno: Seqno) -> bool {
        if self.log.history().view_changed_within(seqno.max(self.epoch_start), self.log.accepted()) {
            return true;
        }
        let staying = self.log.history().view_at(seqno);
        self.log.accepted() >= seqno
            && self.is_quorum(staying, |member| {
                member.uid == self.me.uid
                    || self.peers.get(member.uid).is_some_and(|peer| peer.accepted() >= seqno)
            })
    }

    /// How long a leaver and the remaining members wait for each other once its LEAVE is accepted.
    fn unheard_max(&self, now: Time) -> Duration {
        LINGER_UNHEARD + self.patience(now) * LINGER_PATIENCES
    }

    /// Forgets leavers with an accepted LEAVE that have been silent for 400 ms, or have not shown for `unheard_max`
    /// that they hear this member. History no longer keeps what they lack.
    pub(crate) fn forget_leavers(&mut self, now: Time) {
        let (accepted, unheard_max) = (self.log.accepted(), self.unheard_max(now));
        let is_out_of_reach = |peer: &Peer, since: Time| {
            let heard_us = peer.heard_us().map_or(since, |at| at.max(since));
            now.since(peer.last_heard()) >= FORGET || now.since(heard_us) >= unheard_max
        };
        let gone: Vec<(Uid, Seqno)> = self
            .peers
            .iter()
            .filter_map(|peer| match *peer.standing() {
                Standing::Leaver { seqno, since }
                    if accepted >= seqno
                        && is_out_of_reach(peer, since)
                        && (self.report_to().is_some() || self.leave_is_known(seqno)) =>
                {
                    Some((peer.uid(), seqno))
                }
                _ => None,
            })
            .collect();
        for (uid, seqno) in gone {
            self.forget_leaver(uid, seqno);
        }
    }

    fn forget_leaver(&mut self, uid: Uid, seqno: Seqno) {
        self.departures.note_departed(uid, seqno);
        self.peers.retain(|peer| peer.uid() != uid);
    }

    /// Handles a leaver's announcement that it goes.
    fn handle_parting(&mut self, now: Time, from: Uid) {
        if let Some(&Standing::Leaver { seqno, .. }) = self.peers.get(from).map(Peer::standing)
            && self.leave_is_known(seqno)
        {
            self.forget_leaver(from, seqno);
            if self.leaving.as_ref().is_some_and(|leaving| leaving.left_at.is_some())
                && self.is_last_to_leave()
            {
                self.dismiss_all(now);
            }
        }
    }

    /// Handles `Farewell`. To a leaver it says that a quorum of the remaining members knows its LEAVE accepted, so no
    /// member needs it; the leaver may have been cut off before it had its own LEAVE. To a joiner it says that its JOIN
    /// will not come. A leaver that goes by it repeats it once to all, so that no member goes on sending it or waiting.
    pub(crate) fn handle_farewell(&mut self, now: Time, from: Uid, uid: Uid, seqno: Seqno) {
        if uid == from {
            self.handle_parting(now, from);
            return;
        }
        if uid != self.me.uid {
            return;
        }
        if self.leaving.is_none() {
            self.handle_unknown_here();
            return;
        }
        self.post_to_everyone(Frame::Farewell { uid, seqno });
        if self.own_leave_is_logged() {
            let before = self.log.accepted();
            self.log.accept_through(seqno.min(self.log.received()).max(before));
            self.resolve_own(before);
            self.left = true;
            self.go();
        } else {
            self.go_without_leave();
            self.left = true;
        }
    }

    /// Ends this member's life without its own LEAVE: the group excluded it, as it had asked, or no longer exists.
    fn go_without_leave(&mut self) {
        self.go();
        if !self.left {
            self.closing = Some(Event::Excluded { epoch: None });
        }
    }
}

//! Leaving: an ordered event that the leaver receives too.
//!
//! A leaver asks the sequencer (or, ordering itself, numbers its own leave) once all it sent has its number. It stores
//! nothing past its leave, and goes on serving its log until a quorum of those who stay is known to know the leave
//! accepted; the sequencer tells it so with a farewell.

use crate::event::{Event, Outcome, Suspicion};
use crate::group::{Group, Phase};
use crate::history::{Entry, Members};
use crate::identity::{Seqno, Uid};
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
/// A leaver that is silent for so long is gone.
const FORGET: Duration = Duration::from_millis(400);
/// So many times it asks for its leave before it asks what became of its epoch as well, each time somebody else.
const LEAVE_ASKS_PER_INQUIRY: u32 = 4;
/// With every so many questions, if it hears nobody meanwhile, it asks everybody where the group is.
const ASKS_PER_SEARCH: u32 = 10;
/// A leaver whose farewell does not come, or that hears none of those who stay, goes by itself after this: everybody who
/// needed it is long gone. So does a joiner that hears nobody.
pub(super) const LEAVE_LINGER: Duration = Duration::from_secs(60);
/// If it knows its leave accepted and hears none of those who stay, after this and some of the detector's patiences: they
/// are gone, or have missed it, and can do without it unless all who know that leave accepted die meanwhile.
const LINGER_UNHEARD: Duration = Duration::from_secs(2);
const LINGER_PATIENCES: u32 = 4;
/// The last one waits no longer for those who left before it.
const DISMISS_WITHIN: Duration = Duration::from_secs(2);

const LEAVE_REQUESTS_MAX: usize = 64;
const DEPARTED_MAX: usize = 256;

/// This member is on its way out.
#[derive(Clone, Debug)]
pub(crate) struct Leaving {
    goodbye: Bytes,
    since: Time,
    ask_at: Option<Time>,
    asked: u32,
    /// When its leave was accepted.
    left_at: Option<Time>,
    /// When it goes whatever happens; set with that.
    go_at: Option<Time>,
}

impl Leaving {
    pub(crate) fn wake_at(&self) -> Option<Time> {
        earlier(self.ask_at, self.go_at)
    }
}

/// Who wants out, which the sequencer numbers, and who went.
#[derive(Clone, Debug, Default)]
pub(crate) struct Departures {
    requests: VecDeque<(Uid, Bytes)>,
    /// Leavers that fell silent, and where they left.
    departed: VecDeque<(Uid, Seqno)>,
}

impl Departures {
    pub(crate) fn note_request(&mut self, from: Uid, goodbye: Bytes) {
        if !self.has_asked(from) && self.requests.len() < LEAVE_REQUESTS_MAX {
            self.requests.push_back((from, goodbye));
        }
    }

    pub(crate) fn requests(&self) -> impl Iterator<Item = (Uid, Bytes)> {
        self.requests.iter().cloned()
    }

    fn has_asked(&self, uid: Uid) -> bool {
        self.requests.iter().any(|(asked, _)| *asked == uid)
    }

    pub(crate) fn forget_request(&mut self, uid: Uid) {
        self.requests.retain(|(asked, _)| *asked != uid);
    }

    /// A new epoch: whoever wants to leave asks again.
    pub(crate) fn forget_requests(&mut self) {
        self.requests.clear();
    }

    /// A leaver is forgotten as a peer; it may yet ask.
    pub(crate) fn note_departed(&mut self, uid: Uid, leave: Seqno) {
        if self.departed.len() == DEPARTED_MAX {
            self.departed.pop_front();
        }
        self.departed.push_back((uid, leave));
    }

    /// The leave of somebody who is no peer any more.
    pub(crate) fn leave_of(&self, uid: Uid) -> Option<Seqno> {
        self.departed.iter().find(|(departed, _)| *departed == uid).map(|(_, leave)| *leave)
    }
}

impl Group {
    /// The application wants to leave.
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
        // The epoch may be long over, and whoever ordered in it gone.
        let inquires = asked.is_multiple_of(LEAVE_ASKS_PER_INQUIRY);
        if asked.is_multiple_of(ASKS_PER_SEARCH) && silence >= LEAVE_ASK_EVERY * ASKS_PER_SEARCH {
            self.search();
        }
        let Some(whom) = (if inquires { self.anybody() } else { Some(self.named()) }) else { return };
        let asks = self.phase == Phase::Leaving && !self.own_leave_is_logged();
        let ready = self.outbox.all_numbered() || self.broken(Planted::LeaveOvertakesMessages);
        if asks && ready && !self.order.is_acting() && !self.recovery.has_promised() {
            self.post(whom, Frame::LeaveRequest { goodbye });
        }
        if inquires {
            self.post(whom, Frame::Inquiry);
        }
    }

    /// The suspected keep this member from leaving: too few would stay without them, or there is no room for what it
    /// sent. It has no application any more that could decide; if nobody else is there who would, as it orders or all others
    /// are suspected or leave too, it decides itself, provided that the rest are a quorum.
    fn has_to_reset_first(&self, now: Time) -> bool {
        let Some(leaving) = &self.leaving else { return false };
        let view = self.history.view();
        let is_suspected = |uid: Uid| self.peers.get(uid).is_some_and(|peer| peer.suspected.is_some());
        let mut others = view.iter().filter(|member| member.uid != self.me.uid);
        let decides_nothing = |uid: Uid| is_suspected(uid) || self.departures.has_asked(uid);
        let decides = self.order.is_acting() || others.all(|member| decides_nothing(member.uid));
        decides
            && self.phase == Phase::Leaving
            && self.is_member()
            && now.since(leaving.since) >= self.patience(now)
            && view.iter().any(|member| is_suspected(member.uid))
            && self.is_quorum(view, |member| !is_suspected(member.uid))
    }

    /// When this member last heard who could number its leave; no time where it could itself, or a reset is under way. Others
    /// who leave, and cannot either, may be heard for ever.
    fn sequencer_heard(&self) -> Option<Time> {
        let another = !self.order.is_acting() && !self.recovery.has_promised();
        another.then(|| self.peers.get(self.named()).map_or(Time::ZERO, |peer| peer.last_heard))
    }

    /// When this member last heard any of those who stay, as far as it knows: leavers hear each other for long.
    pub(super) fn last_heard(&self) -> Time {
        let staying = self.peers.iter().filter(|peer| peer.standing == Standing::Member);
        staying.map(|peer| peer.last_heard).max().unwrap_or(Time::ZERO)
    }

    /// Left, and not told that it may go: whoever numbered its leave may be gone itself, so it asks anybody.
    fn ask_for_farewell(&mut self, now: Time, goodbye: Bytes) {
        let left_at = self.leaving.as_ref().and_then(|leaving| leaving.left_at).unwrap_or(now);
        let silence = now.since(self.last_heard().max(left_at));
        if silence >= self.unheard_max(now) && !self.recovery.has_promised() {
            self.go();
            return;
        }
        let somebody = self.anybody();
        let marks = self.watermarks(now);
        if let Some(leaving) = &mut self.leaving {
            leaving.ask_at = Some(now + LEAVE_ASK_EVERY * 4);
            leaving.asked = leaving.asked.saturating_add(1);
            if leaving.asked.is_multiple_of(ASKS_PER_SEARCH) && silence >= LEAVE_ASK_EVERY * ASKS_PER_SEARCH {
                self.search();
            }
        }
        if let Some(uid) = somebody {
            self.post(uid, Frame::Watermarks(marks));
            self.post(uid, Frame::LeaveRequest { goodbye });
            // The epoch may be long over.
            self.post(uid, Frame::Inquiry);
        }
    }

    /// This member's own leave is in its log: it stores nothing further.
    pub(crate) fn own_leave_is_logged(&self) -> bool {
        self.leaving.is_some() && self.phase == Phase::Leaving && !self.is_member()
    }

    /// Where this member's own leave lies in its log, if it does.
    pub(crate) fn own_leave_place(&self) -> Option<Seqno> {
        if self.leaving.is_none() || self.is_member() {
            return None;
        }
        let mine = |seqno: &Seqno| match self.history.get(*seqno) {
            Some(Entry::Change(change)) => {
                matches!(&**change, Change::Leave { uid, .. } if *uid == self.me.uid)
            }
            _ => false,
        };
        (self.history.base() + 1..=self.history.received()).rev().find(mine)
    }

    /// This member's leave is accepted: what is left is to serve.
    #[cold]
    pub(crate) fn note_own_leave_accepted(&mut self, now: Time) {
        let is_last = self.is_last_to_leave();
        self.left = true;
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

    /// Nobody stays when this member has left.
    fn is_last_to_leave(&self) -> bool {
        self.own_leave_is_logged() && self.history.view().is_empty()
    }

    /// The last one is about to go: the group ends, and nobody needs those any more who left before and still serve. Nobody
    /// else could tell them, so it stays until each has said that it goes, or has been silent for long.
    fn dismiss_all(&mut self, now: Time) {
        if let Some(leaving) = &mut self.leaving {
            leaving.ask_at = Some(now + FAREWELL_EVERY);
        }
        if !self.somebody_leaves() {
            self.go();
        }
        let told: Vec<(Uid, Seqno)> = self
            .peers
            .iter()
            .filter_map(|peer| match peer.standing {
                Standing::Leaver { seqno, .. } => Some((peer.member.uid, seqno)),
                _ => None,
            })
            .collect();
        for (uid, seqno) in told {
            self.post(uid, Frame::Farewell { uid, seqno });
        }
    }

    /// Nobody needs this member any more.
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

    /// A member asks for its leave, which whoever orders numbers, and tells all others that its application decides nothing
    /// any more. Or one that has left asks anybody for its farewell: who orders by now may never have known it, so each who
    /// has may say it.
    pub(crate) fn handle_leave_request(&mut self, from: Uid, goodbye: Bytes) {
        match self.peers.get(from).map(|peer| &peer.standing) {
            Some(Standing::Member) => self.departures.note_request(from, goodbye),
            Some(Standing::Leaver { .. }) if !self.order.is_acting() => {
                self.dismiss(from);
            }
            _ => {}
        }
    }

    /// Tells a leaver that it may go, if that is known here. Returns whether it is.
    pub(crate) fn dismiss(&mut self, uid: Uid) -> bool {
        match self.peers.get(uid).map(|peer| &peer.standing) {
            Some(&Standing::Leaver { seqno, .. }) if self.leave_is_known(seqno) => {
                self.post(uid, Frame::Farewell { uid, seqno });
                true
            }
            _ => false,
        }
    }

    /// The leave to be numbered next, if one may be: all the leaver sent is numbered, and those who stay are there to go
    /// on.
    pub(crate) fn next_leave(&mut self) -> Option<Change> {
        if self.leaving.is_some()
            && self.is_member()
            && self.phase == Phase::Leaving
            && self.outbox.all_numbered()
            && self.may_go_from_view(self.me.uid)
        {
            let goodbye = self.leaving.as_ref().map(|leaving| leaving.goodbye.clone())?;
            self.probe(Probe::SequencerLeft);
            return Some(Change::Leave { uid: self.me.uid, sequencer: self.heir(), goodbye });
        }
        let asked: Vec<(Uid, Bytes)> = self.departures.requests().collect();
        if asked.is_empty() {
            return None;
        }
        for (uid, goodbye) in asked {
            if !self.is_in_view(uid) {
                self.departures.forget_request(uid);
                continue;
            }
            let last = self.history.sender_mark(uid);
            if self.unordered.next(uid, last.number).is_none() && self.may_go_from_view(uid) {
                self.departures.forget_request(uid);
                return Some(Change::Leave { uid, sequencer: self.me.uid, goodbye });
            }
        }
        None
    }

    /// Who is to order when this member, which does, has left: the next in rank that is there. The last one has no heir.
    fn heir(&self) -> Uid {
        let view = self.history.view();
        let rank = view.iter().position(|member| member.uid == self.me.uid).unwrap_or(0);
        let (before, after) = view.split_at(rank);
        let mut others = after.iter().skip(1).chain(before);
        others.find(|member| self.is_there(member.uid)).map_or(self.me.uid, |member| member.uid)
    }

    /// It was heard in this epoch, and is not missed: one that is slow is there.
    fn is_there(&self, uid: Uid) -> bool {
        let suspected = self.peers.get(uid).and_then(|peer| peer.suspected);
        let is_missed = suspected.is_some_and(|reason| reason != Suspicion::Slow);
        self.has_entered(uid) && !is_missed
    }

    /// Those who stay when `uid` leaves could be a quorum of themselves, and a quorum of them is there: no reset gets past
    /// an open leave without them. Nobody staying is fine too.
    fn may_go_from_view(&self, uid: Uid) -> bool {
        let staying: Members =
            Arc::new(self.history.view().iter().filter(|member| member.uid != uid).cloned().collect());
        let is_quorum_there = || {
            self.is_quorum(&staying, |member| self.is_there(member.uid))
                || self.broken(Planted::LeaveWithoutQuorum)
        };
        staying.is_empty() || (self.could_be_quorum(&staying) && is_quorum_there())
    }

    pub(crate) fn somebody_leaves(&self) -> bool {
        self.peers.iter().any(|peer| matches!(peer.standing, Standing::Leaver { .. }))
    }

    /// Tells leavers that they may go, once a quorum of those who stay knows their leave accepted.
    pub(crate) fn say_farewells(&mut self, now: Time) {
        if !self.order.is_acting() || !self.somebody_leaves() {
            return;
        }
        let ready: Vec<(Uid, Seqno)> = self
            .peers
            .iter()
            .filter_map(|peer| match peer.standing {
                Standing::Leaver { seqno, .. } if peer.received >= seqno && self.leave_is_known(seqno) => {
                    Some((peer.member.uid, seqno))
                }
                _ => None,
            })
            .collect();
        for (uid, seqno) in ready {
            if self.peers.get_mut(uid).is_some_and(|peer| peer.dismissed.take(now, FAREWELL_EVERY)) {
                self.post(uid, Frame::Farewell { uid, seqno });
            }
        }
    }

    /// Nobody needs a leaver any more: a quorum of those who stay knows its leave accepted, or the next join or leave
    /// is accepted too. A quorum of the same view holds that, and it was numbered by one who knew.
    pub(crate) fn leave_is_known(&self, seqno: Seqno) -> bool {
        if self.history.view_changed_within(seqno.max(self.epoch_start), self.accepted) {
            return true;
        }
        let staying = self.history.view_at(seqno);
        self.accepted >= seqno
            && self.is_quorum(staying, |member| {
                member.uid == self.me.uid
                    || self.peers.get(member.uid).is_some_and(|peer| peer.accepted >= seqno)
            })
    }

    /// How long a leaver and those who stay wait for each other once its leave is accepted.
    fn unheard_max(&self, now: Time) -> Duration {
        LINGER_UNHEARD + self.patience(now) * LINGER_PATIENCES
    }

    /// Leavers that have been told to go, or have been silent or deaf for long, are forgotten: what they lack is kept no
    /// longer.
    pub(crate) fn forget_leavers(&mut self, now: Time) {
        let (accepted, unheard_max) = (self.accepted, self.unheard_max(now));
        let is_out_of_reach = |peer: &Peer, since: Time| {
            let heard_us = peer.heard_us.map_or(since, |at| at.max(since));
            now.since(peer.last_heard) >= FORGET || now.since(heard_us) >= unheard_max
        };
        let gone: Vec<(Uid, Seqno)> = self
            .peers
            .iter()
            .filter_map(|peer| match peer.standing {
                Standing::Leaver { seqno, since }
                    if accepted >= seqno
                        && is_out_of_reach(peer, since)
                        && (!self.order.is_acting() || self.leave_is_known(seqno)) =>
                {
                    Some((peer.member.uid, seqno))
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
        self.peers.retain(|peer| peer.member.uid != uid);
        self.audience_is_stale = true;
    }

    /// A leaver says that it goes.
    fn handle_parting(&mut self, now: Time, from: Uid) {
        if let Some(&Standing::Leaver { seqno, .. }) = self.peers.get(from).map(|peer| &peer.standing)
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

    /// A quorum of those who stay knows this member's leave accepted: so it is, and nobody needs this member. It may
    /// have been cut off for so long that it lacks its own leave. To a joiner it says that its JOIN will not come. Who goes
    /// by it says it once more, to all, so that nobody goes on saying it, or waits.
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
            let before = self.accepted;
            self.accepted = self.accepted.max(seqno.min(self.history.received()));
            self.resolve_own(before);
            self.left = true;
            self.go();
        } else {
            self.go_without_leave();
            self.left = true;
        }
    }

    /// The group went on without this member, as it wished, or is gone; unless it has its own leave, it never will.
    fn go_without_leave(&mut self) {
        self.go();
        if !self.left {
            self.closing = Some(Event::Excluded { epoch: None });
        }
    }
}

//! Repair: requesting what was lost, and serving such requests.
//!
//! A gap is a seqno that this member knows to exist and does not hold. It requests that seqno after a short random time
//! (the datagram may only be late), then at intervals that double: first from the sequencer, then from any member known
//! to hold it. The first interval is the time that answers have taken so far, and begins anew with each answer that
//! arrives: on a slow path whose queue is full of answers, further requests would only make the queue longer. Every
//! process that holds a seqno answers, whatever state it is in.

use crate::event::JoinFailure;
use crate::group::{Group, Phase};
use crate::identity::{Seqno, Uid};
use crate::membership::INQUIRY_BYTES;
use crate::planted::{Planted, Probe};
use crate::round_trip::RoundTrip;
use crate::time::Time;
use crate::wire::{Frame, NACK_RANGES_MAX};
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::time::Duration;

/// Maximum time before the first NACK for a gap, where answers come fast. At least half of it passes; the rest is jitter.
const ASK_AFTER: Duration = Duration::from_millis(1);
/// Least interval until the second NACK for the same gap. It doubles with each further one, up to `ASK_AGAIN_MAX`.
const ASK_AGAIN_FIRST: Duration = Duration::from_millis(8);
const ASK_AGAIN_MAX: Duration = Duration::from_millis(200);
/// Number of NACKs in vain after which the member that gets the next one also gets an inquiry about what became of the
/// epoch.
const REPAIR_ASKS_PER_INQUIRY: u32 = 8;
/// Maximum number of seqnos served for one NACK.
const SERVE_PLACES_MAX: u64 = 512;
/// Maximum number of answers that wait to be sent.
const SERVES_MAX: usize = 64;

/// What this member lacks, and when it requests it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Repair {
    /// Highest seqno known to exist.
    target: Seqno,
    /// The member that last announced it.
    told_by: Uid,
    ask_at: Option<Time>,
    ask_again: Duration,
    asked: u32,
    /// When the first NACK for the present gap left.
    asked_at: Option<Time>,
    /// How long after its first NACK a gap was filled.
    answers: RoundTrip,
}

impl Repair {
    pub(crate) fn wake_at(&self) -> Option<Time> {
        self.ask_at
    }

    /// Notes that `by` announced seqnos through `end`.
    pub(crate) fn note_end(&mut self, end: Seqno, by: Uid) {
        if end >= self.target {
            (self.target, self.told_by) = (end, by);
        }
    }

    /// Notes that the log has grown: the intervals between NACKs begin anew.
    pub(crate) fn note_progress(&mut self, now: Time, received: Seqno) {
        if let Some(asked_at) = self.asked_at.take() {
            self.answers.note(now.since(asked_at));
            self.ask_at = Some(now + self.patience());
        }
        self.asked = 0;
        self.ask_again = self.patience();
        if received >= self.target {
            self.ask_at = None;
        }
    }

    /// Returns the maximum time before the first NACK for a gap: on a slow path datagrams follow each other slowly.
    fn doubt(&self) -> Duration {
        self.answers.mean().map_or(ASK_AFTER, |mean| mean.clamp(ASK_AFTER, ASK_AGAIN_FIRST))
    }

    /// Returns the interval until the second NACK for a gap.
    fn patience(&self) -> Duration {
        self.answers.most().map_or(ASK_AGAIN_FIRST, |most| most.clamp(ASK_AGAIN_FIRST, ASK_AGAIN_MAX))
    }

    pub(crate) fn clear(&mut self) {
        *self = Repair { answers: self.answers, ..Repair::default() };
    }
}

impl Group {
    /// True if this member knows of something that it does not hold.
    pub(crate) fn lacks(&self) -> bool {
        self.log.received() < self.log.end().max(self.repair.target)
    }

    /// Lets this member request the next seqno, whether or not it exists: nothing is received from the sequencer.
    pub(crate) fn ask_around(&mut self) {
        let next = self.log.received() + 1;
        self.repair.target = self.repair.target.max(next);
    }

    /// Starts the timer for a NACK if there is a gap.
    pub(crate) fn ask_for_gaps(&mut self, now: Time) {
        if !self.lacks() || self.recovery.has_promised() || self.own_leave_is_logged() {
            (self.repair.ask_at, self.repair.asked_at) = (None, None);
        } else if self.repair.ask_at.is_none() && !self.broken(Planted::NoNack) {
            let after = self.repair.doubt();
            let jitter = self.random.below(after.as_nanos() as u64 / 2);
            self.repair.ask_at = Some(now + after / 2 + Duration::from_nanos(jitter));
            self.repair.ask_again = self.repair.patience();
            self.repair.asked = 0;
            self.repair.asked_at = None;
        }
    }

    pub(crate) fn repair_timeout(&mut self, now: Time) {
        if self.repair.ask_at.is_none_or(|at| at > now) {
            return;
        }
        self.repair.ask_at = None;
        if !self.lacks() || self.recovery.has_promised() {
            return;
        }
        let ranges = self.log.history().gaps(self.repair.target, NACK_RANGES_MAX);
        if let Some(peer) = self.peer_to_ask()
            && !ranges.is_empty()
        {
            if self.repair.asked > 0 {
                self.probe(Probe::NackRepeated);
            }
            self.counters.nacks_sent += 1;
            self.repair.asked_at.get_or_insert(now);
            self.post(peer, Frame::Nack { ranges });
            if self.repair.asked % REPAIR_ASKS_PER_INQUIRY == REPAIR_ASKS_PER_INQUIRY - 1 {
                // The epoch may be long over for all members.
                self.post(peer, Frame::Inquiry);
            }
        }
        self.repair.asked += 1;
        let jitter = self.random.below(self.repair.ask_again.as_nanos() as u64 / 4);
        self.repair.ask_at = Some(now + self.repair.ask_again + Duration::from_nanos(jitter));
        self.repair.ask_again = (self.repair.ask_again * 2).min(ASK_AGAIN_MAX);
    }

    /// Returns the peer to send a NACK to: at first the sequencer; then the member that announced the seqnos; then by
    /// turns any peer and one known to hold them. In a ring the very first goes to the member that sent what is lacking to all,
    /// which so learns whether its multicasts are heard here.
    fn peer_to_ask(&mut self) -> Option<Uid> {
        let origin = self.log.history().origin_of_next();
        if self.is_ring() && self.repair.asked == 0 && self.peers.get(origin).is_some() {
            return Some(origin);
        }
        let sequencer = self.contact();
        if self.repair.asked < 2 && self.peers.get(sequencer).is_some() {
            return Some(sequencer);
        }
        if self.repair.asked == 2 && self.peers.get(self.repair.told_by).is_some() {
            return Some(self.repair.told_by);
        }
        let next = self.log.received() + 1;
        let holders: Vec<Uid> =
            self.peers.iter().filter(|peer| peer.received() >= next).map(|peer| peer.uid()).collect();
        let anyone: Vec<Uid> = self.peers.iter().map(|peer| peer.uid()).collect();
        let choice = if holders.is_empty() || self.repair.asked.is_multiple_of(2) { anyone } else { holders };
        choice.get(self.random.below(choice.len() as u64) as usize).copied()
    }

    /// Serves a NACK for these seqnos.
    pub(crate) fn handle_nack(&mut self, from: Uid, ranges: &[(Seqno, Seqno)]) {
        let Some(address) = self.peers.address(from) else { return };
        if self.is_ring() && self.own_term_is_in(ranges) && !self.broken(Planted::DeafMemberUnnoticed) {
            self.peers.note_term_requested(from);
        }
        let base = self.log.base();
        if ranges.first().is_some_and(|range| range.0 <= base) {
            self.probe(Probe::AskedForGone);
            self.post(from, Frame::Gone { through: base });
        }
        let mut left = SERVE_PLACES_MAX;
        for &(first, last) in ranges {
            if left == 0 {
                break;
            }
            let (first, last) =
                (first.max(base + 1), last.min(self.log.end()).min(first.saturating_add(left - 1)));
            if first > last {
                continue;
            }
            left = left.saturating_sub(last - first + 1);
            if !self.may_assign() {
                self.probe(Probe::RepairedByMember);
            }
            self.serve(address, self.epoch_tag, None, first, last);
        }
    }

    /// True if all that this member numbered in its last term is in one of these ranges.
    fn own_term_is_in(&self, ranges: &[(Seqno, Seqno)]) -> bool {
        let own = self.order.numbered_by_us();
        own.after < own.through
            && ranges.iter().any(|range| range.0 <= own.after + 1 && own.through <= range.1)
    }

    /// Queues entries to be sent to one address.
    pub(crate) fn serve(
        &mut self,
        to: SocketAddr,
        under: crate::identity::EpochTag,
        level: Option<crate::identity::Ballot>,
        first: Seqno,
        last: Seqno,
    ) {
        let known = |serve: &crate::group::Serve| {
            serve.to == to && serve.level == level && serve.next <= first && serve.last >= last
        };
        if self.serves.len() < SERVES_MAX && !self.serves.iter().any(known) {
            self.serves.push_back(crate::group::Serve { to, under, level, next: first, last });
        }
    }

    /// Handles the answer that a seqno was freed: all members held it, so this process was not counted among them.
    pub(crate) fn handle_gone(&mut self, now: Time, from: Uid, through: Seqno) {
        if through <= self.log.received() {
            return;
        }
        if self.phase == Phase::Joining && !self.is_member() {
            // Overtaken. The joiner begins again with a new uid, because this one may yet be numbered in.
            self.join_failed(JoinFailure::TimedOut);
        } else {
            self.inquire(now, from, INQUIRY_BYTES);
        }
    }
}

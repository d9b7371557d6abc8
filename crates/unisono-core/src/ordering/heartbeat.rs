//! Heartbeats: they announce how far the seqnos go, what is accepted and what is stable.
//!
//! Members see from them what they lack. Since members answer them, the sequencer sees which members are alive. One
//! goes soon after the last seqno; the intervals to the next ones double up to the idle period. In between, heartbeats
//! show which members hear the multicast.

use crate::group::Group;
use crate::identity::Uid;
use crate::planted::{Planted, Probe};
use crate::time::Time;
use crate::wire::{Frame, Heartbeat};
use core::time::Duration;

/// Time from the last seqno to the first heartbeat. The intervals double up to `HEARTBEAT_IDLE`.
pub(super) const HEARTBEAT_FIRST: Duration = Duration::from_millis(10);
pub(super) const HEARTBEAT_IDLE: Duration = Duration::from_millis(100);
/// Interval of heartbeats that go by multicast, whether or not that is in use, to see which members hear it.
const MULTICAST_PROBE_EVERY: Duration = Duration::from_millis(1000);
/// Minimum interval between two heartbeats to a sender that missed its seqnos.
const ROLE_REPEAT_EVERY: Duration = Duration::from_millis(5);

/// Stamp of a heartbeat to one member alone, and of a member that has received none.
pub(super) const NO_STAMP: u32 = 0;

impl Group {
    pub(crate) fn heartbeat_timeout(&mut self, now: Time) {
        if self.order.heartbeat_at.is_none_or(|at| at > now) {
            return;
        }
        if self.may_assign() {
            self.note_end(now, self.log.received());
            self.exclude_if_too_slow(now);
            self.note_in_the_way(now);
            self.push_decision(now);
            if !self.broken(Planted::NoHeartbeat) {
                self.order.beat_now(true);
            }
            if self.is_ring() && self.log.accepted() < self.log.received() {
                self.order.ring.note_question();
            }
            let keeps_asking = self.waits_for_reports();
            let after = if keeps_asking { HEARTBEAT_FIRST } else { self.order.heartbeat_after };
            self.order.heartbeat_at = Some(now + after);
            self.order.heartbeat_after = (after * 2).min(self.idle_period());
        } else {
            self.tell_successor(now);
        }
    }

    /// Schedules the next heartbeat soon after the last seqno; while seqnos keep coming, one per idle period.
    pub(super) fn beat_soon(&mut self, now: Time) {
        self.order.heartbeat_after = HEARTBEAT_FIRST;
        let at_latest = (self.order.beat_at + self.idle_period()).max(now);
        self.order.heartbeat_at = Some((now + HEARTBEAT_FIRST).min(at_latest));
    }

    /// Asks at once what members hold, if a message that this member numbered waits for them and the token may not go on:
    /// in a ring no member acknowledges unasked.
    pub(super) fn ask_at_rest(&mut self) {
        if self.is_ring() && self.log.accepted() < self.log.received() {
            self.order.ring.note_question();
            self.order.beat_now(true);
        }
    }

    pub(crate) fn idle_period(&self) -> Duration {
        self.stretched(HEARTBEAT_IDLE)
    }

    /// Returns the period lengthened for a large group, so that answers stay few.
    pub(crate) fn stretched(&self, period: Duration) -> Duration {
        period * (1 + self.peers.len() as u32 / 32)
    }

    /// Returns a heartbeat that goes out now.
    pub(crate) fn say_heartbeat(&mut self, now: Time) -> Heartbeat {
        let heartbeat = self.heartbeat(now);
        // Members that see seqnos in it that they do not know request them.
        self.order.announce_through = heartbeat.end;
        self.order.announced_stable = self.order.announced_stable.max(heartbeat.stable);
        // It stays stable when the role moves.
        self.note_stable(heartbeat.stable);
        heartbeat
    }

    /// Returns the heartbeat of this moment.
    fn heartbeat(&self, now: Time) -> Heartbeat {
        Heartbeat {
            term: self.term(),
            acting: self.may_assign(),
            end: self.log.received(),
            accepted: self.log.accepted(),
            stable: self.stable(),
            stamp: self.order.stamp,
            multicast: self.may_assign() && self.peers.all_hear_multicast(self.untold_hear_multicast()),
            asks: self.order.heartbeat_asks,
            late_ms: self.detector.late_ms(now),
        }
    }

    /// True if the sequencer waits for what members report: for room, or for leavers that still need entries.
    pub(crate) fn waits_for_reports(&self) -> bool {
        self.order.shut_since.is_some() || self.has_leavers()
    }

    /// Notes that a heartbeat went out to all members.
    pub(crate) fn note_heartbeat_sent(&mut self, now: Time) {
        self.order.heartbeat_is_done();
        self.order.beat_at = now;
        if self.audience().multicast {
            // It shows which members hear the multicast as well as a probe would.
            self.order.multicast_probe_at = now + self.stretched(MULTICAST_PROBE_EVERY);
        }
    }

    /// True if it is time to see which members hear the multicast.
    pub(crate) fn multicast_probe_is_due(&mut self, now: Time) -> bool {
        let due = self.may_assign()
            && self.settings.transport != crate::config::Transport::Unicast
            && self.peers.len() > 0
            && self.order.multicast_probe_at <= now;
        if due {
            self.order.multicast_probe_at = now + self.stretched(MULTICAST_PROBE_EVERY);
        }
        due
    }

    pub(crate) fn handle_heartbeat(&mut self, now: Time, from: Uid, heartbeat: &Heartbeat) {
        self.detector.note_late(now, heartbeat.late_ms);
        if self.recovery.has_promised() {
            return;
        }
        self.repair.note_end(heartbeat.end, from);
        self.note_end(now, heartbeat.end);
        let is_for_everybody = heartbeat.stamp != NO_STAMP;
        if from == self.named() && is_for_everybody {
            self.acknowledging.note_beat(now);
        }
        if heartbeat.acting {
            self.hear_sequencer(
                now,
                heartbeat.term,
                heartbeat.multicast,
                is_for_everybody.then_some((from, heartbeat.stamp)),
            );
        }
        self.peers.hold_through(from, heartbeat.end);
        self.note_accept_hint(heartbeat.accepted, heartbeat.stable);
        if self.log.received() < heartbeat.end {
            if self.log.end() < heartbeat.end {
                self.probe(Probe::TailRevealed);
            }
            if !heartbeat.acting && self.named() != self.me.uid && self.term() < heartbeat.term {
                self.probe(Probe::RoleToldByWitness);
            }
        }
    }

    /// Sends a heartbeat to a sender that has missed its seqno, to show it what it lacks.
    pub(crate) fn repeat_to(&mut self, now: Time, to: Uid) {
        if self.peers.get_mut(to).is_some_and(|peer| peer.take_heartbeat(now, ROLE_REPEAT_EVERY)) {
            // It shows nothing of the path on which the group is addressed.
            let heartbeat = Heartbeat { stamp: NO_STAMP, asks: true, ..self.say_heartbeat(now) };
            self.post(to, Frame::Heartbeat(heartbeat));
        }
    }
}

//! Reports: what a member reports to the sequencer of what it holds, and when.
//!
//! An acknowledgement is cumulative: a member that acknowledges a seqno holds everything through it, data included. The
//! lowest in rank acknowledge at once, since acceptance waits for them; the others report as room runs out, when they
//! are asked, and now and then to show that they live.

use super::heartbeat::NO_STAMP;
use crate::group::{Group, Hearing, Phase};
use crate::identity::{Seqno, Uid};
use crate::log::{Entry, Message};
use crate::planted::Planted;
use crate::time::Time;
use crate::wire::{Change, Watermarks};
use core::time::Duration;

/// What this member has to report to the sequencer, and what it reported last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Acknowledging {
    /// True if an acknowledgement is to go out now.
    due: bool,
    told: Watermarks,
    told_to: Uid,
    told_at: Time,
    /// Bytes received since the last report.
    untold_bytes: u64,
    /// Stamp of the last heartbeat of a sequencer, and its term: another sequencer has stamps of its own.
    stamp: (Seqno, u32),
    hearing: Hearing,
    /// Time when a multicast of the group was last received.
    multicast_at: Option<Time>,
    /// Time when a heartbeat of the sequencer was last received, or found missing.
    beat_at: Time,
    /// Everything through here was examined for what has to be acknowledged.
    seen: Seqno,
    /// Seqnos through which others have reported everything as accepted, and as stable.
    accepted_hint: Seqno,
    stable_hint: Seqno,
}

impl Acknowledging {
    /// Returns who hears whom as far as this member knows by stamps.
    pub(crate) fn hearing(&self) -> Hearing {
        self.hearing
    }

    /// Returns the seqno through which this member has acknowledged in this epoch.
    pub(crate) fn acknowledged(&self) -> Seqno {
        self.told.received
    }

    /// Reports to the sequencer with the next datagram.
    #[inline]
    pub(crate) fn report_now(&mut self) {
        self.due = true;
    }

    /// True if a report is to go out now.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.due
    }

    /// Notes that this member said with a pass what it holds.
    pub(crate) fn note_pass(&mut self, now: Time) {
        self.told_at = now;
        self.untold_bytes = 0;
    }

    /// Begins the report that was due.
    pub(crate) fn begin_report(&mut self) {
        self.due = false;
    }

    /// Asks to be sent copies: perhaps only the multicast fails.
    pub(crate) fn ask_for_copies(&mut self) {
        self.multicast_at = None;
        self.report_now();
    }

    /// Notes that a multicast of the group was received.
    pub(crate) fn note_multicast(&mut self, now: Time) {
        self.multicast_at = Some(now);
    }

    /// True if a multicast of the group was received within this period.
    pub(crate) fn heard_multicast_within(&self, now: Time, period: Duration) -> bool {
        self.multicast_at.is_some_and(|at| now.since(at) < period)
    }

    /// Notes that a heartbeat of the sequencer was received, or found missing.
    pub(crate) fn note_beat(&mut self, now: Time) {
        self.beat_at = now;
    }

    /// Returns the time when a heartbeat of the sequencer was last received, or found missing.
    pub(crate) fn beat_at(&self) -> Time {
        self.beat_at
    }

    /// Notes the stamp of a heartbeat of `from`, the sequencer of this term, which reports return in this term.
    pub(crate) fn note_stamp(&mut self, from: Uid, term: Seqno, stamp: u32) {
        self.stamp = (term, stamp);
        self.hearing.heard = Some(from);
    }

    /// Returns the stamp for a report in this term. A later sequencer that got another one's stamp back would take a
    /// member for one that hears it.
    fn stamp_in(&self, term: Seqno) -> u32 {
        if self.stamp.0 == term { self.stamp.1 } else { NO_STAMP }
    }

    /// Returns the seqno through which others have reported everything as accepted.
    pub(crate) fn accepted_hint(&self) -> Seqno {
        self.accepted_hint
    }

    /// Returns the seqno through which others have reported everything as stable.
    pub(crate) fn stable_hint(&self) -> Seqno {
        self.stable_hint
    }
}

/// A member that has reported nothing for this time answers the next heartbeat, to show that it is alive.
const SHOW_LIFE_AFTER: Duration = Duration::from_millis(50);
/// Divisor of the bytes that may be under way to a member: the member reports its watermarks after each such part.
const REPORT_PART: u64 = 4;

impl Group {
    /// Examines what is new in the log: entries that must be acknowledged at once, and own messages that have their
    /// seqno now.
    pub(crate) fn note_received(&mut self, now: Time) {
        let received = self.log.received();
        let from = self.acknowledging.seen.max(self.log.base());
        if received > from {
            self.look_at_received(now, from, received);
        }
    }

    #[inline(never)]
    fn look_at_received(&mut self, now: Time, from: Seqno, received: Seqno) {
        self.acknowledging.seen = received;
        self.repair.note_progress(now, received);
        // A joiner is admitted as soon as it is seen to keep up.
        let mut due = self.joining.is_some();
        let mut own = 0;
        // Usually many messages of one sender and one quality follow each other.
        let (mut last, mut asked) = (None, None);
        let mut members = self.log.history().view_at(from).len();
        let (mut is_ring, room) = (self.is_ring_at(from), self.settings.under_way_bytes_max());
        for seqno in from + 1..=received {
            match self.log.history().get(seqno) {
                Some(Entry::Message(Message { sender, number, quality, data, .. })) => {
                    let (sender, number, quality) = (*sender, *number, *quality);
                    let bytes = data.map_or(0, |data| data.len());
                    self.acknowledging.untold_bytes += bytes as u64;
                    let needed = self.rule().holders_to_show(quality, members);
                    let counted = if self.broken(Planted::OwnBytesAloneCounted) { 0 } else { bytes };
                    if is_ring {
                        self.note_message_in_ring(now, seqno, (needed, counted), room);
                    }
                    if asked != Some(needed) {
                        asked = Some(needed);
                        due = due || self.acknowledges_first(needed);
                    }
                    if sender == self.me.uid {
                        own = number;
                    }
                    let before = last.replace((sender, number));
                    if let Some((other, number)) = before.filter(|(known, _)| *known != sender) {
                        self.log.drop_waiting_through(other, number);
                    }
                }
                // A pass is no move that anything follows from.
                Some(Entry::Role(_)) if self.is_pass(seqno) => {}
                Some(Entry::Role(_)) => self.note_named(now),
                Some(Entry::Change(change)) => {
                    due = true;
                    is_ring = self.is_ring_at(seqno);
                    members = self.log.history().view_at(seqno).len();
                    let own_leave = matches!(&**change, Change::Leave { uid, .. } if *uid == self.me.uid);
                    self.note_change(now, seqno);
                    if own_leave && !self.recovery.has_promised() {
                        // Drops entries beyond this member's own leave, which may have arrived before it.
                        self.log.cut(seqno);
                        self.acknowledging.seen = seqno;
                        break;
                    }
                }
                _ => {}
            }
        }
        if let Some((sender, number)) = last {
            self.log.drop_waiting_through(sender, number);
        }
        let received = self.log.received();
        if own > 0 {
            let lateness = self.detector.lateness(now);
            self.outbox.note_numbered(now, own, lateness);
        }
        self.peers.note_numberers(self.log.history(), from, received);
        let unsaid = received.saturating_sub(self.acknowledging.told.received);
        let is_much = unsaid >= self.report_every() || self.acknowledging.untold_bytes >= room / REPORT_PART;
        // While passes come, each says the same.
        let passes_come = is_ring && received == self.term();
        let is_much = is_much && !passes_come;
        // A sequencer acknowledges to no member.
        if (due || is_much) && self.report_to().is_some() {
            self.acknowledging.report_now();
        }
    }

    /// Notes that a message has this seqno. It got the seqno only because the history had room, so all members hold
    /// everything through `history_messages` below it.
    pub(crate) fn note_room_below(&mut self, seqno: Seqno) {
        self.note_shown_stable(seqno.saturating_sub(u64::from(self.config.history_messages)));
    }

    /// Notes that a change has this seqno. A change may be numbered while the history is full, in one of the slots
    /// beside it. This member knows the number of these slots only if the change is its next entry: then the change was
    /// numbered in the view at the end of this log.
    pub(crate) fn note_room_beside(&mut self, seqno: Seqno) {
        if seqno == self.log.received() + 1 {
            let members = self.log.history().view().len() as u64;
            self.note_shown_stable(
                (seqno - 1).saturating_sub(u64::from(self.config.history_messages) + members),
            );
        }
    }

    fn note_shown_stable(&mut self, stable: Seqno) {
        if stable > self.acknowledging.stable_hint && self.report_to().is_some() {
            self.acknowledging.stable_hint = stable;
        }
    }

    /// True if this member is one of those that acknowledge at once a message that `holders` members must hold: the
    /// lowest in rank besides the sequencer.
    fn acknowledges_first(&self, holders: usize) -> bool {
        if self.is_ring() {
            return false;
        }
        let Some(counts) = self.report_to() else { return false };
        let others = self.log.history().view().iter().map(|member| member.uid).filter(|uid| *uid != counts);
        others.take(holders.saturating_sub(1)).any(|uid| uid == self.me.uid)
    }

    /// Returns the number of entries after which a member reports its watermarks unasked.
    fn report_every(&self) -> u64 {
        u64::from(self.config.history_messages / 8).max(1)
    }

    /// Handles the watermarks that a member reports.
    pub(crate) fn handle_watermarks(&mut self, now: Time, from: Uid, marks: &Watermarks) {
        let end = self.log.end();
        let stamp = self.order.stamp;
        self.detector.note_late(now, marks.late_ms);
        if !self.peers.note_report(from, marks, end) {
            return;
        }
        // What one member knows to be accepted is accepted for all. The present sequencer may be unable to count the
        // holders itself: a leaver reports to the sequencer that its log names, not to later ones.
        self.note_accept_hint(marks.accepted, 0);
        // A report with a stamp of this term was made by a member that holds the beginning of the term. An earlier one, made for
        // another sequencer, may come here as a recording (hazard H67).
        let is_of_term = marks.received >= self.term();
        let hears_us = is_of_term && marks.stamp != NO_STAMP && stamp.wrapping_sub(marks.stamp) <= 2;
        if self.report_to().is_some() {
            self.show_successor(now, from, marks.received);
        } else if hears_us {
            self.acknowledging.hearing.hears_us = Some(from);
            self.note_hears_us(now, from);
        }
        self.say_farewells(now);
    }

    /// Notes seqnos through which another member reports everything as accepted and as stable.
    pub(crate) fn note_accept_hint(&mut self, accepted: Seqno, stable: Seqno) {
        let known = &mut self.acknowledging;
        known.accepted_hint = known.accepted_hint.max(accepted);
        if stable > known.stable_hint {
            known.stable_hint = stable;
            self.peers.all_hold_through(stable);
        }
    }

    /// Notes a stable seqno that this member found itself.
    pub(crate) fn note_stable(&mut self, stable: Seqno) {
        self.acknowledging.stable_hint = self.acknowledging.stable_hint.max(stable);
    }

    /// Begins a new epoch or a new life, in which nothing was reported yet.
    pub(crate) fn forget_acknowledgements(&mut self, through: Seqno) {
        let old = core::mem::take(&mut self.acknowledging);
        self.acknowledging.multicast_at = old.multicast_at;
        self.acknowledging.seen = through;
        self.acknowledging.accepted_hint = through;
    }

    /// Returns what this member can report of itself.
    pub(crate) fn watermarks(&self, now: Time) -> Watermarks {
        let received =
            if self.broken(Planted::AckBeforeHolding) { self.log.end() } else { self.log.received() };
        Watermarks {
            received,
            accepted: self.log.accepted(),
            delivered: self.log.delivered(),
            stamp: self.stamp_to_return(),
            hears_multicast: self.hears_multicast(now),
            late_ms: self.detector.late_ms(now),
        }
    }

    fn stamp_to_return(&self) -> u32 {
        if self.broken(Planted::StampOfAnotherTerm) {
            return self.acknowledging.stamp.1;
        }
        self.acknowledging.stamp_in(self.term())
    }

    /// Returns the member that acknowledgements go to, if there is one.
    pub(crate) fn acknowledge_to(&self) -> Option<Uid> {
        let promised = self.recovery.has_promised() && !self.broken(Planted::StoreAfterPromise);
        if promised || !matches!(self.phase, Phase::Member | Phase::Leaving | Phase::Joining) {
            return None;
        }
        self.report_to().filter(|&uid| uid != self.me.uid && self.peers.get(uid).is_some())
    }

    /// Notes that watermarks went out to `to`.
    pub(crate) fn note_told(&mut self, now: Time, to: Uid, told: Watermarks) {
        self.moved = true;
        let known = &mut self.acknowledging;
        (known.due, known.told, known.told_to, known.told_at) = (false, told, to, now);
        known.untold_bytes = 0;
    }

    /// True if this member has to answer a heartbeat of the sequencer. One that asks nothing (an accept), or that rides
    /// with entries, is answered only if the sequencer has received no report from this member for a while.
    pub(crate) fn heartbeat_wants_answer(&self, now: Time, end: Seqno, asks: bool) -> bool {
        let known = &self.acknowledging;
        let (said, is) = (&known.told, self.watermarks(now));
        if !asks && self.report_to() == Some(known.told_to) {
            return now.since(known.told_at) >= SHOW_LIFE_AFTER;
        }
        self.report_to() != Some(known.told_to)
            || said.received < end
            || (said.received, said.accepted, said.delivered, said.hears_multicast)
                != (is.received, is.accepted, is.delivered, is.hears_multicast)
            || now.since(known.told_at) >= SHOW_LIFE_AFTER
    }

    /// Notes that the application took events. The sequencer has to learn that before its window shuts.
    pub(crate) fn note_delivered(&mut self) {
        let untold = self.log.delivered().saturating_sub(self.acknowledging.told.delivered);
        if untold >= self.report_every() && self.report_to().is_some() {
            self.acknowledging.report_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // A later sequencer has stamps of its own, and takes one that comes back for proof that it is heard (hazard H67).
    #[test]
    fn a_stamp_goes_back_only_in_the_term_in_which_it_was_heard() {
        let mut acknowledging = Acknowledging::default();
        assert_eq!(acknowledging.stamp_in(0), NO_STAMP);
        acknowledging.note_stamp(Uid(1), 10, 7);
        assert_eq!((acknowledging.stamp_in(10), acknowledging.stamp_in(12)), (7, NO_STAMP));
        acknowledging.note_stamp(Uid(2), 12, 3);
        assert_eq!((acknowledging.stamp_in(10), acknowledging.stamp_in(12)), (NO_STAMP, 3));
    }
}

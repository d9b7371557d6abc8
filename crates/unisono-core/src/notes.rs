//! Notes: a few bytes of each member that all others are to know, whatever the order is.
//!
//! A program above the group sets its note, and each member that receives it gets [`Event::Note`]. A note has no seqno, no
//! member acknowledges it, and only the latest one of a member counts: an older one that arrives later is dropped. So it
//! suits a fact that only grows, such as how much of a log a server's disk has.
//!
//! A note goes to all members in one datagram, at once or within 1 ms; before that it goes to a member that
//! [confirms](Group::confirm) with the answer, since the asker may have to wait for what it says. To reach members that lost it, it goes
//! again with each report of its member to the sequencer, and with each heartbeat, which contains the latest notes of all
//! members. It is of one epoch: with the next one all notes are forgotten, and the program sets its own again.

use crate::event::Event;
use crate::group::{Group, Phase};
use crate::identity::Uid;
use crate::planted::Planted;
use crate::time::Time;
use crate::wire::{Frame, NOTE_BYTES_MAX, Writer};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use bytes::Bytes;
use core::time::Duration;

/// Maximum time for which a note that need not go at once waits for a datagram that goes anyway.
const NOTE_WAITS: Duration = Duration::from_millis(1);

/// The latest notes of the present epoch. See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notes {
    own: Option<Note>,
    /// When the own note is to go to all members; `None` if it has.
    due_at: Option<Time>,
    /// Those of the other members.
    theirs: BTreeMap<Uid, Note>,
    /// Members whose notes the application has not received.
    untold: Vec<Uid>,
}

/// A note, and its number among those of its member in this epoch.
#[derive(Clone, Debug)]
struct Note {
    number: u64,
    note: Bytes,
}

impl Notes {
    /// True if the own note is to go to all members now.
    #[inline]
    pub(crate) fn is_due(&self, now: Time) -> bool {
        self.due_at.is_some_and(|at| at <= now)
    }

    /// True if the own note waits for a datagram to all members.
    #[inline]
    pub(crate) fn waits(&self) -> bool {
        self.due_at.is_some()
    }

    /// True if there are no notes at all.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.own.is_none() && self.theirs.is_empty()
    }

    /// True if the application has not received some member's latest note.
    #[inline]
    pub(crate) fn has_untold(&self) -> bool {
        !self.untold.is_empty()
    }

    /// Forgets all notes, since another epoch begins.
    pub(crate) fn begin_epoch(&mut self) {
        *self = Notes::default();
    }

    fn set_own(&mut self, note: Bytes, at: Time) {
        let number = self.own.as_ref().map_or(0, |own| own.number) + 1;
        self.own = Some(Note { number, note });
        self.due_at = Some(self.due_at.map_or(at, |due| due.min(at)));
    }

    /// Takes the note of another member. Returns false if a later one is known.
    fn take(&mut self, member: Uid, number: u64, note: Bytes) -> bool {
        if self.theirs.get(&member).is_some_and(|known| known.number >= number) {
            return false;
        }
        self.theirs.insert(member, Note { number, note });
        if !self.untold.contains(&member) {
            self.untold.push(member);
        }
        true
    }
}

impl Group {
    /// Sets this member's note: a few bytes that each other member gets as [`Event::Note`], in no order, and again until the
    /// next epoch begins ([`Event::Reset`]), when all notes are forgotten. It takes the place of the one before. It goes out
    /// with the next datagram to all members, or alone: at once if `at_once`, else after a millisecond.
    ///
    /// Nothing happens if this process is no member, or if the note is longer than
    /// [`NOTE_BYTES_MAX`](crate::wire::NOTE_BYTES_MAX).
    pub fn set_note(&mut self, now: Time, note: Bytes, at_once: bool) {
        let is_in = matches!(self.phase, Phase::Member | Phase::Leaving | Phase::Resetting);
        if !is_in || note.len() > NOTE_BYTES_MAX {
            return;
        }
        self.notes.set_own(note, if at_once { now } else { now + NOTE_WAITS });
        self.schedule();
    }

    /// Returns when this member's note is to go out, if it waits and this member still sends to the others.
    pub(crate) fn note_at(&self) -> Option<Time> {
        let sends = matches!(self.phase, Phase::Member | Phase::Leaving | Phase::Resetting);
        self.notes.due_at.filter(|_| sends)
    }

    /// Handles the note of a member, as it said it itself or as `from` relays it.
    pub(crate) fn handle_note(&mut self, from: Uid, member: Uid, number: u64, note: Bytes) {
        let takes_part = matches!(self.phase, Phase::Member | Phase::Leaving | Phase::Resetting);
        if member == self.me.uid || !takes_part {
            return;
        }
        if !self.is_in_view(member) || !self.is_in_view(from) {
            self.counters.stale += 1;
            return;
        }
        self.notes.take(member, number, note);
    }

    /// True if the application is to receive a note now.
    pub(crate) fn may_tell_note(&self) -> bool {
        self.notes.untold.iter().any(|member| self.application_knows(*member))
    }

    /// Returns the event of a note whose member the application knows.
    #[cold]
    pub(crate) fn tell_note(&mut self) -> Option<Event> {
        let index = self.notes.untold.iter().position(|member| self.application_knows(*member))?;
        let member = self.notes.untold.remove(index);
        let note = self.notes.theirs.get(&member)?.note.clone();
        Some(Event::Note { member, note })
    }

    /// Writes the own note to a datagram for all members, if it waits for one and there is room.
    pub(crate) fn write_waiting_note(&mut self, out: &mut Vec<u8>) {
        if self.notes.waits() && self.write_own_note(out) {
            self.notes.due_at = None;
        }
    }

    /// Writes the own note, if there is one. Returns false if there is no room.
    fn write_own_note(&mut self, out: &mut Vec<u8>) -> bool {
        let Some(Note { number, note }) = &self.notes.own else { return true };
        let frame = Frame::Note { member: self.me.uid, number: *number, note: note.clone() };
        Writer::new(out, self.settings.datagram_bytes_max).frame(&frame)
    }

    /// Tells one member the own note, if that waits for a datagram to all.
    pub(crate) fn tell_waiting_note(&mut self, to: Uid) {
        if self.notes.waits()
            && let Some(Note { number, note }) = &self.notes.own
        {
            let frame = Frame::Note { member: self.me.uid, number: *number, note: note.clone() };
            self.post(to, frame);
        }
    }

    /// Repeats the own note beside a report to one member.
    pub(crate) fn repeat_own_note(&mut self, out: &mut Vec<u8>) {
        if !self.broken(Planted::MarkNotRepeated) {
            self.write_own_note(out);
        }
    }

    /// Repeats the latest notes of all members beside a heartbeat to all, as many as fit: those of a service on disk do.
    pub(crate) fn repeat_notes(&mut self, out: &mut Vec<u8>) {
        if self.broken(Planted::MarkNotRepeated) {
            return;
        }
        if self.write_own_note(out) {
            self.notes.due_at = None;
        }
        let mut theirs = core::mem::take(&mut self.notes.theirs);
        theirs.retain(|member, _| self.is_in_view(*member));
        for (member, Note { number, note }) in &theirs {
            let frame = Frame::Note { member: *member, number: *number, note: note.clone() };
            if !Writer::new(out, self.settings.datagram_bytes_max).frame(&frame) {
                break;
            }
        }
        self.notes.theirs = theirs;
    }

    /// Packs the own note alone, with this member's watermarks. Returns false if there is no member to send it to.
    #[inline(never)]
    pub(crate) fn pack_note(&mut self, now: Time, out: &mut Vec<u8>) -> bool {
        if self.peers.len() == 0 || self.own_leave_is_logged() {
            self.notes.due_at = None;
            return false;
        }
        self.begin_datagram(out);
        if let Some(to) = self.acknowledge_to() {
            // The others count the holders of a message too, and the member that acknowledges first may be slow.
            let marks = self.watermarks(now);
            let limit = self.settings.datagram_bytes_max;
            if Writer::new(out, limit).frame(&Frame::Watermarks(marks)) {
                self.note_told(now, to, marks);
            }
        }
        self.write_own_note(out);
        self.notes.due_at = None;
        self.schedule();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    #[test]
    fn only_the_latest_note_of_a_member_counts() {
        let mut notes = Notes::default();
        assert!(notes.take(Uid(1), 2, note("b")) && notes.take(Uid(2), 1, note("x")));
        assert!(!notes.take(Uid(1), 1, note("a")), "it was overtaken");
        assert!(!notes.take(Uid(1), 2, note("b")), "it came twice");
        assert_eq!(notes.untold, [Uid(1), Uid(2)]);
        assert!(notes.take(Uid(1), 3, note("c")));
        assert_eq!((notes.untold.len(), &notes.theirs[&Uid(1)].note[..]), (2, &b"c"[..]));
        notes.begin_epoch();
        assert!(!notes.has_untold() && notes.take(Uid(1), 1, note("a")));
    }

    #[test]
    fn a_note_that_may_wait_goes_no_later_for_the_next_one() {
        let (mut notes, at) = (Notes::default(), Time::from_nanos(1_000));
        notes.set_own(note("a"), at + NOTE_WAITS);
        notes.set_own(note("b"), at + 2 * NOTE_WAITS);
        assert_eq!(notes.due_at, Some(at + NOTE_WAITS));
        notes.set_own(note("c"), at);
        assert!(notes.is_due(at));
        assert_eq!(notes.own.as_ref().map(|own| own.number), Some(3));
    }
}

//! This member's messages under way, and how fast they are sent.
//!
//! The outbox keeps each message until its outcome is known. Messages without a seqno are sent within a congestion
//! window of bytes, which grows as seqnos come back and shrinks on loss, and within the bytes that the path was seen to
//! carry. If no seqno comes back in time, the oldest messages are resent, at intervals that double.

use crate::identity::MessageNumber;
use crate::multicasts::OwnMulticasts;
use crate::path::{PATH_WINDOW_MIN, Path};
use crate::quality::Quality;
use crate::round_trip::RoundTrip;
use crate::time::Time;
use crate::wire::PIECE_HEAD_BYTES;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use bytes::Bytes;
use core::time::Duration;

/// Time until a resend before a round trip was measured. Afterwards it lies between the two bounds below.
const RESEND_FIRST: Duration = Duration::from_millis(40);
const RESEND_MIN: Duration = Duration::from_millis(15);
const RESEND_MAX: Duration = Duration::from_millis(500);
/// Number of messages that the first timeout resends; doubled with each further one, up to `AGAIN_SPAN_MAX`.
const AGAIN_SPAN_FIRST: u64 = 4;
const AGAIN_SPAN_MAX: u64 = 1024;
/// Maximum number of ranges that wait to be resent. The sequencer requests any others once more.
const AGAIN_RANGES_MAX: usize = 64;
/// Congestion window in bytes before anything is known of the path: no more than a slow path holds.
const CONGESTION_WINDOW_FIRST: u64 = PATH_WINDOW_MIN;
const CONGESTION_WINDOW_MIN: u64 = 8 << 10;
const CONGESTION_WINDOW_MAX: u64 = 4 << 20;

/// Datagrams of a stream by BB for each one whose seqnos are announced at once. An announcement for each datagram would
/// be a short datagram to all members, a tenth of the capacity of a slow network.
const FLOW_ASK_EVERY: u64 = 16;
/// Divisor of the datagrams under way, which also limits that number, so that some of them always ask.
const ASK_PART: u64 = 3;

/// A message (or piece) of this member whose outcome is not known yet.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    pub(crate) more: bool,
    pub(crate) quality: Quality,
    /// True if it goes by BB.
    pub(crate) broadcast: bool,
    /// True once it went to all members, so that in a ring its seqno is enough.
    pub(crate) went_to_all: bool,
    /// Time when it was last queued to be resent; the origin of time if never.
    pub(crate) again_at: Time,
    pub(crate) bytes: Bytes,
}

/// A message whose round trip is timed, and the state when it was sent.
#[derive(Clone, Copy, Debug)]
struct Timed {
    number: MessageNumber,
    left: Time,
    bytes_numbered: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Outbox {
    /// Number of the first message kept.
    first: MessageNumber,
    kept: VecDeque<Outgoing>,
    /// This member's first message number of this epoch.
    base: MessageNumber,
    /// Bytes of the pieces that share a datagram with the last message, and of that one, heads included.
    last_datagram_bytes: usize,
    /// Everything of this epoch through here has a seqno; at least `base` − 1.
    numbered: MessageNumber,
    /// Everything through here was sent at least once to the present sequencer.
    sent: MessageNumber,
    /// Ranges (first, last) to resend before anything else.
    again: VecDeque<(MessageNumber, MessageNumber)>,
    /// Everything through here was sent before the last resend, so its round trip says nothing about the path.
    disturbed: MessageNumber,
    /// Number of messages that the next timeout resends.
    again_span: u64,
    /// Datagrams sent since the last one whose seqnos are announced at once.
    unasked: u64,
    multicasts: OwnMulticasts,
    bytes_in_flight: u64,
    congestion_window: u64,
    slow_start_below: u64,
    resend_at: Option<Time>,
    resend_after: Duration,
    round_trip: RoundTrip,
    /// The message whose round trip is being timed.
    timed: Option<Timed>,
    /// Bytes that have got their seqnos so far.
    bytes_numbered: u64,
    path: Path,
    shrunk_at: Time,
    /// Time since which messages are under way and no seqno has come.
    waits_since: Option<Time>,
}

impl Outbox {
    /// Returns an empty outbox. At most `queued_bytes_max` bytes are to wait in queues before they get a seqno.
    pub(crate) fn new(queued_bytes_max: u64) -> Outbox {
        Outbox {
            first: 1,
            kept: VecDeque::new(),
            base: 1,
            last_datagram_bytes: 0,
            numbered: 0,
            sent: 0,
            again: VecDeque::new(),
            disturbed: 0,
            again_span: AGAIN_SPAN_FIRST,
            unasked: 0,
            multicasts: OwnMulticasts::new(),
            bytes_in_flight: 0,
            congestion_window: CONGESTION_WINDOW_FIRST,
            slow_start_below: CONGESTION_WINDOW_MAX,
            resend_at: None,
            resend_after: RESEND_FIRST,
            round_trip: RoundTrip::default(),
            timed: None,
            bytes_numbered: 0,
            path: Path::new(queued_bytes_max),
            shrunk_at: Time::ZERO,
            waits_since: None,
        }
    }

    /// Returns this member's first message number of this epoch.
    pub(crate) fn base(&self) -> MessageNumber {
        self.base
    }

    /// Returns the number that the next message gets.
    pub(crate) fn next_number(&self) -> MessageNumber {
        self.first + self.kept.len() as u64
    }

    pub(crate) fn len(&self) -> usize {
        self.kept.len()
    }

    /// Planted bug only: takes the number of the next message for one that never asks for a seqno.
    pub(crate) fn skip_number(&mut self) {
        self.first += u64::from(self.kept.is_empty());
    }

    /// True if every message here has a seqno.
    pub(crate) fn all_numbered(&self) -> bool {
        self.numbered + 1 >= self.next_number()
    }

    /// Returns the number of the last message here if it has no seqno, and 0 if every message has one.
    pub(crate) fn unnumbered_through(&self) -> MessageNumber {
        if self.all_numbered() { 0 } else { self.next_number() - 1 }
    }

    pub(crate) fn get(&self, number: MessageNumber) -> Option<&Outgoing> {
        self.kept.get(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    /// Takes a message and returns its number. A datagram has room for one piece of `piece_bytes_max` bytes.
    pub(crate) fn push(&mut self, outgoing: Outgoing, piece_bytes_max: usize) -> MessageNumber {
        let bytes = outgoing.bytes.len() + PIECE_HEAD_BYTES;
        let beside = self.last_datagram_bytes + bytes;
        self.last_datagram_bytes = if beside <= piece_bytes_max + PIECE_HEAD_BYTES { beside } else { bytes };
        self.kept.push_back(outgoing);
        self.next_number() - 1
    }

    /// Returns the maximum size of a piece that shares a datagram with the last message.
    pub(crate) fn room_beside(&self, piece_bytes_max: usize) -> usize {
        piece_bytes_max.saturating_sub(self.last_datagram_bytes)
    }

    /// True if a message here was not sent yet.
    pub(crate) fn has_unsent(&self) -> bool {
        self.sent + 1 < self.next_number()
    }

    /// True if the seqnos of the next datagram, of `datagram_bytes`, may be announced with those of a later one: more
    /// is to follow, and enough of the datagrams under way have their seqnos announced at once to keep seqnos coming.
    pub(crate) fn may_wait(&self, datagram_bytes: usize) -> bool {
        let datagram = datagram_bytes as u64;
        self.again.is_empty()
            && self.multicasts.are_heard()
            && self.unasked + 1 < FLOW_ASK_EVERY.min(self.bytes_in_flight / (ASK_PART * datagram))
            && self.has_beyond(2 * datagram)
    }

    /// Notes that a datagram went out; `asks` if its seqnos are to be announced at once.
    pub(crate) fn note_datagram(&mut self, asks: bool) {
        self.unasked = if asks { 0 } else { self.unasked + 1 };
    }

    /// True if messages by BB may be multicast: the multicasts are heard, or a trial is due.
    pub(crate) fn may_multicast(&self, now: Time) -> bool {
        self.multicasts.may_be_used(now)
    }

    /// True if what goes to all members may be multicast: the multicasts are heard, as far as that is known, or it is
    /// time to try.
    pub(crate) fn multicasts_are_usable(&self, now: Time) -> bool {
        !self.multicasts.pauses(now)
    }

    /// True if multicasts were not heard, and it is time to try them again.
    pub(crate) fn is_to_try_multicast(&self, now: Time) -> bool {
        !self.multicasts.are_heard() && !self.multicasts.pauses(now)
    }

    /// Notes that a pass by multicast was heard. Returns true if that is news.
    pub(crate) fn note_pass_heard(&mut self, now: Time) -> bool {
        self.multicasts.note_pass_heard(now)
    }

    /// Notes that a pass was not heard by multicast. Returns true if multicasts may have been used until then.
    pub(crate) fn note_pass_unheard(&mut self, now: Time) -> bool {
        self.multicasts.note_pass_unheard(now)
    }

    /// Notes that these messages went to all members.
    pub(crate) fn note_to_all(&mut self, first: MessageNumber, last: MessageNumber) {
        for number in first..=last {
            let index = number.checked_sub(self.first).and_then(|index| usize::try_from(index).ok());
            if let Some(outgoing) = index.and_then(|index| self.kept.get_mut(index)) {
                outgoing.went_to_all = true;
            }
        }
    }

    /// Notes that these messages went out in one multicast.
    pub(crate) fn note_multicast(&mut self, first: MessageNumber, last: MessageNumber) {
        self.multicasts.note_used(first, last);
    }

    /// True if more than `bytes` were not sent yet.
    fn has_beyond(&self, bytes: u64) -> bool {
        let mut left = bytes;
        (self.sent + 1..self.next_number()).any(|number| {
            let cost = self.get(number).map_or(0, |outgoing| cost(&outgoing.bytes));
            let beyond = cost > left;
            left = left.saturating_sub(cost);
            beyond
        })
    }

    /// Returns the bytes that were sent and have no seqno yet, framing included.
    pub(crate) fn bytes_in_flight(&self) -> u64 {
        self.bytes_in_flight
    }

    /// Returns the first message without a seqno.
    pub(crate) fn first_unnumbered(&self) -> Option<(MessageNumber, &Outgoing)> {
        let number = self.numbered + 1;
        self.get(number).map(|outgoing| (number, outgoing))
    }

    /// Returns the next message to send: one that is queued to be resent, or else the next new one, within the
    /// congestion window and the `window` of messages that other members keep for one sender.
    pub(crate) fn next_to_send(&self, window: u64) -> Option<(MessageNumber, &Outgoing)> {
        if let Some(&(from, _)) = self.again.front() {
            return self.get(from).map(|outgoing| (from, outgoing));
        }
        let number = self.sent + 1;
        let outgoing = self.get(number)?;
        let fits = self.bytes_in_flight == 0 || self.bytes_in_flight + cost(&outgoing.bytes) <= self.room();
        (fits && number - self.numbered <= window).then_some((number, outgoing))
    }

    /// Returns the maximum number of bytes under way.
    pub(crate) fn room(&self) -> u64 {
        self.congestion_window.min(self.path.window())
    }

    /// True if this message was sent to the present sequencer.
    pub(crate) fn was_sent(&self, number: MessageNumber) -> bool {
        number <= self.sent
    }

    /// Notes that `number` (from [`Outbox::next_to_send`]) was sent.
    pub(crate) fn note_sent(&mut self, now: Time, number: MessageNumber) {
        match self.again.front_mut() {
            Some((from, to)) if *from == number => {
                *from += 1;
                if *from > *to {
                    self.again.pop_front();
                }
            }
            _ => {
                self.bytes_in_flight += self.get(number).map_or(0, |outgoing| cost(&outgoing.bytes));
                self.sent = number;
                if self.timed.is_none() && self.numbered >= self.disturbed {
                    self.timed = Some(Timed { number, left: now, bytes_numbered: self.bytes_numbered });
                }
            }
        }
        self.resend_at.get_or_insert(now + self.resend_after);
        self.waits_since.get_or_insert(now);
    }

    /// Notes that everything through `number` has a seqno. Processes were late by `lateness`.
    pub(crate) fn note_numbered(&mut self, now: Time, number: MessageNumber, lateness: Duration) {
        if number <= self.numbered {
            return;
        }
        let mut freed = 0;
        for done in (self.numbered + 1).max(self.first)..=number.min(self.sent) {
            freed += self.get(done).map_or(0, |outgoing| cost(&outgoing.bytes));
        }
        self.bytes_in_flight = self.bytes_in_flight.saturating_sub(freed);
        self.bytes_numbered += freed;
        if self.congestion_window <= self.path.window() {
            let growth = if self.congestion_window < self.slow_start_below { freed } else { freed / 16 };
            self.congestion_window = (self.congestion_window + growth).min(CONGESTION_WINDOW_MAX);
        }
        if let Some(timed) = self.timed
            && timed.number <= number
        {
            self.timed = None;
            self.again_span = AGAIN_SPAN_FIRST;
            let took = now.since(timed.left);
            self.round_trip.note(took);
            let is_full = self.has_unsent();
            self.path.note(took, self.bytes_numbered - timed.bytes_numbered, is_full, lateness);
        }
        // Seqnos come again: the longer intervals after losses are forgotten.
        self.resend_after =
            self.round_trip.most().map_or(RESEND_FIRST, |most| most.clamp(RESEND_MIN, RESEND_MAX));
        self.numbered = number;
        self.multicasts.note_numbered(number);
        self.sent = self.sent.max(number);
        self.again.retain_mut(|(from, to)| {
            *from = (*from).max(number + 1);
            from <= to
        });
        self.resend_at = (self.sent > number).then_some(now + self.resend_after);
        self.waits_since = (self.sent > number).then_some(now);
    }

    /// Notes that this member itself has numbered everything through `number`. That says nothing about the path: as long as
    /// that is not known, the congestion window does not grow.
    pub(crate) fn note_numbered_here(&mut self, now: Time, number: MessageNumber) {
        let window = self.congestion_window;
        self.timed = self.timed.filter(|timed| timed.number > number);
        self.note_numbered(now, number, Duration::ZERO);
        if !self.path.is_known() {
            self.congestion_window = window;
        }
    }

    /// Queues messages that the sequencer lacks to be resent, except those resent less than a round trip ago: the
    /// sequencer may not have seen these yet.
    pub(crate) fn note_wanted(&mut self, now: Time, from: MessageNumber, to: MessageNumber) {
        let (from, to) = (from.max(self.numbered + 1).max(self.first), to.min(self.sent));
        let round_trip = self.round_trip.mean().unwrap_or(RESEND_MIN);
        let mut lost = false;
        for number in from..=to {
            let Some(outgoing) = self.get(number) else { return };
            if outgoing.again_at == Time::ZERO || now.since(outgoing.again_at) >= round_trip {
                lost = true;
                self.repeat(now, number, number);
            }
        }
        if lost && now.since(self.shrunk_at) > self.resend_after {
            self.shrink(now);
        }
    }

    /// Queues messages to be resent.
    fn repeat(&mut self, now: Time, from: MessageNumber, to: MessageNumber) {
        (self.timed, self.disturbed) = (None, self.sent);
        self.multicasts.note_lost(now, from, to);
        let index = |number: MessageNumber| usize::try_from(number - self.first).unwrap_or(usize::MAX);
        let (first, last) = (index(from), index(to));
        for outgoing in self.kept.iter_mut().take(last + 1).skip(first) {
            outgoing.again_at = now;
        }
        let has_capacity = self.again.len() < AGAIN_RANGES_MAX;
        match self.again.back_mut() {
            Some((_, end)) if *end + 1 == from => *end = to,
            _ if has_capacity => self.again.push_back((from, to)),
            _ => {}
        }
    }

    fn shrink(&mut self, now: Time) {
        self.shrunk_at = now;
        self.congestion_window = (self.room() * 7 / 10).max(CONGESTION_WINDOW_MIN);
        self.slow_start_below = self.congestion_window;
    }

    /// Returns since when the sequencer owes a seqno and assigns none.
    pub(crate) fn waits_since(&self) -> Option<Time> {
        self.waits_since
    }

    /// True after a resend was due, until a seqno comes for a message that was sent only once. Perhaps only the
    /// multicast fails, so messages go to the sequencer alone.
    pub(crate) fn is_overdue(&self) -> bool {
        self.again_span > AGAIN_SPAN_FIRST
    }

    pub(crate) fn resend_at(&self) -> Option<Time> {
        self.resend_at
    }

    /// Resends the oldest messages if no seqno came in time. Returns true if there were any.
    pub(crate) fn handle_timeout(&mut self, now: Time) -> bool {
        let Some(at) = self.resend_at else { return false };
        if at > now {
            return false;
        }
        self.resend_at = None;
        if self.sent <= self.numbered {
            return false;
        }
        // It is not known how much was lost. So a few messages are resent, and twice as many each time, until a seqno
        // comes for a message that was sent only once.
        let oldest = self.numbered + 1;
        self.again.clear();
        self.multicasts.note_overdue(now, self.numbered);
        self.repeat(now, oldest, self.sent.min(oldest + self.again_span - 1));
        self.again_span = (self.again_span * 2).min(AGAIN_SPAN_MAX);
        self.resend_after = (self.resend_after * 2).min(RESEND_MAX);
        self.shrink(now);
        self.resend_at = Some(now + self.resend_after);
        true
    }

    /// Queues the oldest message that was sent and has no seqno to be resent. It is not known to be lost, so what is
    /// known of the path stays.
    pub(crate) fn repeat_oldest(&mut self, now: Time) {
        let oldest = self.numbered + 1;
        if self.sent < oldest || !self.again.is_empty() {
            return;
        }
        self.again.push_back((oldest, oldest));
        let index = usize::try_from(oldest - self.first).ok();
        if let Some(outgoing) = index.and_then(|index| self.kept.get_mut(index)) {
            outgoing.again_at = now;
        }
    }

    /// Another sequencer: everything without a seqno goes to it, from the beginning.
    pub(crate) fn restart(&mut self) {
        self.sent = self.numbered;
        self.again.clear();
        self.disturbed = 0;
        self.bytes_in_flight = 0;
        self.timed = None;
        self.multicasts.restart();
        self.path = self.path.afresh();
        self.resend_at = None;
        self.resend_after = RESEND_FIRST;
        self.waits_since = None;
    }

    /// Takes out the oldest message if its number is at most `through`. Returns true if it did.
    pub(crate) fn resolve_through(&mut self, through: MessageNumber) -> bool {
        let resolved = self.first <= through && self.kept.pop_front().is_some();
        self.first += u64::from(resolved);
        resolved
    }

    /// Begins a new epoch: messages left here will never get a seqno. Returns those that fail by that, in order. Their
    /// numbers are not used again, because the new epoch's first one is higher.
    pub(crate) fn fail_rest(&mut self) -> Vec<MessageNumber> {
        let whole = (self.first..).zip(&self.kept).filter(|(_, outgoing)| !outgoing.more);
        let failed = whole.map(|(number, _)| number).collect();
        let next = self.next_number();
        self.kept.clear();
        self.first = next;
        self.base = next;
        self.numbered = next - 1;
        self.restart();
        failed
    }
}

/// Returns the bytes that a message counts for on its way, framing included.
fn cost(bytes: &Bytes) -> u64 {
    bytes.len() as u64 + 32
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Messages 2 to 11 are under way since the beginning; message 1 came back after 40 ms.
    fn under_way() -> Outbox {
        let mut outbox = Outbox::new(4 << 20);
        for number in 1..=11 {
            push(&mut outbox);
            outbox.note_sent(Time::ZERO, number);
        }
        outbox.note_numbered(Time::ZERO + MS * 40, 1, Duration::ZERO);
        outbox
    }

    fn push(outbox: &mut Outbox) {
        let (again_at, bytes) = (Time::ZERO, Bytes::from_static(b"text"));
        outbox.push(
            Outgoing {
                more: false,
                quality: Quality::ORDERED,
                broadcast: true,
                went_to_all: false,
                again_at,
                bytes,
            },
            1000,
        );
    }

    /// Sends what may be sent now, and returns its numbers.
    fn sends(outbox: &mut Outbox, now: Time) -> Vec<MessageNumber> {
        let mut numbers = Vec::new();
        while let Some((number, _)) = outbox.next_to_send(100) {
            outbox.note_sent(now, number);
            numbers.push(number);
        }
        numbers
    }

    #[test]
    fn what_the_sequencer_lacks_it_gets_once_in_a_round_trip() {
        let (mut outbox, now) = (under_way(), Time::ZERO + MS * 50);
        outbox.note_wanted(now, 3, 4);
        outbox.note_wanted(now, 6, 6);
        assert_eq!(sends(&mut outbox, now), [3, 4, 6]);
        outbox.note_wanted(now + MS * 20, 3, 6);
        assert_eq!(sends(&mut outbox, now + MS * 20), [5]);
        outbox.note_wanted(now + MS * 45, 3, 6);
        assert_eq!(sends(&mut outbox, now + MS * 45), [3, 4, 6]);
    }

    #[test]
    fn where_nothing_comes_back_few_go_again_ever_more_patiently_and_less_is_under_way() {
        let mut outbox = under_way();
        let (mut again, mut pauses) = (Vec::new(), Vec::new());
        let window = outbox.room();
        for _ in 0..2 {
            let now = outbox.resend_at().unwrap();
            assert!(outbox.handle_timeout(now));
            pauses.push(outbox.resend_at().unwrap().since(now));
            again.push(sends(&mut outbox, now));
        }
        assert_eq!(again, [Vec::from_iter(2..=5), Vec::from_iter(2..=9)]);
        assert_eq!(pauses[1], pauses[0] * 2);
        assert_eq!(outbox.congestion_window, window * 7 / 10 * 7 / 10);
        let (window, bytes) = (outbox.congestion_window, outbox.bytes_in_flight());
        outbox.note_numbered(Time::ZERO + MS * 900, 11, Duration::ZERO);
        assert_eq!(outbox.congestion_window, window + bytes / 16, "it grows slowly after a loss");
    }

    #[test]
    fn what_has_its_number_is_not_sent_again() {
        let (mut outbox, now) = (under_way(), Time::ZERO + MS * 50);
        outbox.note_wanted(now, 3, 4);
        outbox.note_wanted(now, 6, 8);
        outbox.note_numbered(now, 6, Duration::ZERO);
        assert_eq!(sends(&mut outbox, now), [7, 8]);
    }

    #[test]
    fn what_was_not_sent_yet_is_not_sent_again() {
        let (mut outbox, now) = (under_way(), Time::ZERO + MS * 50);
        push(&mut outbox);
        outbox.note_wanted(now, 10, 100);
        assert_eq!(sends(&mut outbox, now), [10, 11, 12]);
    }

    #[test]
    fn a_bounded_number_of_ranges_waits_to_be_resent() {
        let (mut outbox, now) = (Outbox::new(4 << 20), Time::ZERO);
        for number in 1..=200 {
            push(&mut outbox);
            outbox.note_sent(now, number);
        }
        (1..=100).for_each(|gap| outbox.note_wanted(now, 2 * gap, 2 * gap));
        assert_eq!(sends(&mut outbox, now).len(), AGAIN_RANGES_MAX);
    }
}

//! Transfer of a large request or reply: cut into parts, sent within a window, put together by the receiver.
//!
//! The receiver reports which parts it has ([`Got`]): all parts before some part, and which of those beyond it. The
//! sender takes a part for lost when a part that left 8 or more sendings later has arrived, or when nothing arrives for
//! a while. The window grows with the parts that arrive. It halves when a part is lost, once for parts under way
//! together.

use super::common::{PATIENCE_MAX, patience};
use crate::round_trip::RoundTrip;
use crate::time::Time;
use crate::wire::{Attempt, GOT_PARTS, Got, Part, Payload};
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use bytes::{Bytes, BytesMut};
use core::time::Duration;

/// Maximum bytes of incomplete large messages, for requests and replies each; beyond, senders are pushed back.
pub(super) const RECEIVING_BYTES_MAX: usize = 64 << 20;
const PARTS_WORD_BITS: usize = u64::BITS as usize;
/// Parts that may be under way at the beginning.
const WINDOW_FIRST: usize = 16;
/// A longer message has more than the first window of datagrams of Ethernet's size.
const LONG_BYTES: usize = 24 << 10;
/// Minimum window: with fewer parts under way, the receiver would wait for more before it reports.
const PARTS_WINDOW_MIN: usize = PARTS_TELL_EVERY;
/// Maximum window: a receiver can report on no more parts.
pub(super) const PARTS_WINDOW_MAX: usize = GOT_PARTS;
/// A part is lost when one that left 8 sendings later has arrived; the network may reorder fewer.
const REORDER_PARTS: u64 = 8;
/// A receiver that lacks nothing reports once every 8 parts.
const PARTS_TELL_EVERY: usize = 8;

/// The sender's side.
#[derive(Debug)]
pub(super) struct Outgoing {
    bytes: Bytes,
    part_bytes: usize,
    /// First part that is not known to have arrived.
    base: usize,
    /// State of the parts sent from `base` on.
    under_way: VecDeque<Sent>,
    /// Number of parts under way that are taken for lost; they are sent first.
    lost: usize,
    /// Number of parts under way that have arrived or are taken for lost.
    settled: usize,
    window: usize,
    window_max: usize,
    slow_start_below: usize,
    /// Number of arrivals that count for the next growth of the window.
    arrived: usize,
    /// Serial number of the next sending.
    next_serial: u64,
    /// Sendings with lower serial numbers were under way when the window was last halved.
    halved_before: u64,
    timed: Option<(u64, Time)>,
    round_trip: RoundTrip,
    patience: Duration,
    resend_at: Option<Time>,
    /// When a part was last reported.
    heard_at: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    /// Sent with this serial number.
    UnderWay(u64),
    Lost,
    Arrived,
}

impl Outgoing {
    /// Begins a transfer with at most `parts_max` parts under way.
    pub(super) fn new(now: Time, bytes: Bytes, part_bytes: usize, parts_max: usize) -> Outgoing {
        let window_max = parts_max.clamp(PARTS_WINDOW_MIN, PARTS_WINDOW_MAX);
        let round_trip = RoundTrip::default();
        Outgoing {
            bytes,
            part_bytes,
            base: 0,
            under_way: VecDeque::new(),
            lost: 0,
            settled: 0,
            window: WINDOW_FIRST.min(window_max),
            window_max,
            slow_start_below: PARTS_WINDOW_MAX,
            arrived: 0,
            next_serial: 0,
            halved_before: 0,
            timed: None,
            patience: patience(&round_trip),
            round_trip,
            resend_at: None,
            heard_at: now,
        }
    }

    /// Returns the announcement of the message, which the receiver gets first.
    pub(super) fn announced(&self) -> Payload {
        Payload::Parts { total: self.bytes.len() as u32, part: self.part_bytes as u16 }
    }

    /// True if all parts have arrived.
    pub(super) fn is_over(&self) -> bool {
        self.base == self.parts()
    }

    /// Returns when a part was last reported.
    pub(super) fn heard_at(&self) -> Time {
        self.heard_at
    }

    pub(super) fn resend_at(&self) -> Option<Time> {
        self.resend_at
    }

    fn parts(&self) -> usize {
        self.bytes.len().div_ceil(self.part_bytes)
    }

    /// True if a part can be sent now.
    pub(super) fn is_ready(&self) -> bool {
        let in_flight = self.under_way.len() - self.settled;
        let has_new =
            self.base + self.under_way.len() < self.parts() && self.under_way.len() < PARTS_WINDOW_MAX;
        in_flight < self.window && (self.lost > 0 || has_new)
    }

    /// Returns the next part, to be sent now, and whether it is sent again.
    pub(super) fn next(&mut self, now: Time, attempt: Attempt, reply: bool) -> Option<(Part, bool)> {
        if !self.is_ready() {
            return None;
        }
        let lost = self.lost > 0;
        let place = if lost {
            self.under_way.iter().position(|sent| *sent == Sent::Lost)?
        } else {
            self.under_way.len()
        };
        let serial = self.next_serial;
        self.next_serial += 1;
        if lost {
            self.under_way[place] = Sent::UnderWay(serial);
            (self.lost, self.settled) = (self.lost - 1, self.settled - 1);
        } else {
            self.under_way.push_back(Sent::UnderWay(serial));
            self.timed.get_or_insert((serial, now));
        }
        self.resend_at.get_or_insert(now + self.patience);
        let index = self.base + place;
        let from = index * self.part_bytes;
        let bytes = self.bytes.slice(from..self.bytes.len().min(from + self.part_bytes));
        Some((Part { attempt, reply, index: index as u16, bytes }, lost))
    }

    /// Handles the receiver's report.
    pub(super) fn note_got(&mut self, now: Time, got: &Got) {
        let through = got.through as usize;
        if through > self.parts() {
            return;
        }
        if through > self.base + self.under_way.len() {
            // The receiver has these parts from a sending that was given up.
            self.under_way.clear();
            (self.base, self.lost, self.settled) = (through, 0, 0);
        }
        let (mut news, mut latest) = (0, None);
        for place in 0..self.under_way.len() {
            let index = self.base + place;
            let beyond = index.wrapping_sub(through + 1);
            let is_there = index < through
                || (index > through
                    && beyond < GOT_PARTS
                    && got.beyond[beyond / PARTS_WORD_BITS] >> (beyond % PARTS_WORD_BITS) & 1 == 1);
            if !is_there {
                continue;
            }
            match self.under_way[place] {
                Sent::Arrived => continue,
                Sent::UnderWay(serial) => {
                    latest = latest.max(Some(serial));
                    self.settled += 1;
                }
                Sent::Lost => self.lost -= 1,
            }
            self.under_way[place] = Sent::Arrived;
            news += 1;
        }
        while self.under_way.front() == Some(&Sent::Arrived) {
            self.under_way.pop_front();
            self.settled -= 1;
            self.base += 1;
        }
        if news > 0 {
            self.note_arrivals(now, news, latest);
        }
    }

    fn note_arrivals(&mut self, now: Time, news: usize, latest: Option<u64>) {
        self.heard_at = now;
        if let Some((serial, left)) = self.timed
            && latest.is_some_and(|latest| latest >= serial)
        {
            self.timed = None;
            self.round_trip.note(now.since(left));
        }
        self.patience = patience(&self.round_trip);
        let lost = latest.map_or(0, |latest| self.take_for_lost(latest));
        if lost == 0 {
            self.open(news);
        }
        let waits = self.under_way.len() > self.settled || self.lost > 0;
        self.resend_at = waits.then_some(now + self.patience);
    }

    /// Takes for lost what was sent well before a part that has arrived. Returns the number of parts.
    fn take_for_lost(&mut self, latest: u64) -> usize {
        let mut lost = 0;
        let mut halves = false;
        for sent in &mut self.under_way {
            if let Sent::UnderWay(serial) = *sent
                && serial + REORDER_PARTS <= latest
            {
                *sent = Sent::Lost;
                lost += 1;
                halves |= serial >= self.halved_before;
            }
        }
        (self.lost, self.settled) = (self.lost + lost, self.settled + lost);
        if halves {
            self.window = (self.window / 2).max(PARTS_WINDOW_MIN);
            self.slow_start_below = self.window;
            self.halved_before = self.next_serial;
        }
        lost
    }

    fn open(&mut self, news: usize) {
        self.arrived += news;
        let needed = if self.window < self.slow_start_below { 1 } else { self.window };
        let steps = self.arrived / needed;
        self.arrived %= needed;
        self.window = (self.window + steps).min(self.window_max);
    }

    /// Takes all parts under way for lost if nothing arrived in time.
    pub(super) fn handle_timeout(&mut self, now: Time) {
        if self.resend_at.is_none_or(|at| at > now) {
            return;
        }
        for sent in &mut self.under_way {
            if matches!(sent, Sent::UnderWay(_)) {
                *sent = Sent::Lost;
                self.lost += 1;
                self.settled += 1;
            }
        }
        self.slow_start_below = (self.window / 2).max(PARTS_WINDOW_MIN);
        (self.window, self.halved_before, self.timed) = (PARTS_WINDOW_MIN, self.next_serial, None);
        self.patience = (self.patience * 2).min(PATIENCE_MAX);
        self.resend_at = Some(now + self.patience);
    }
}

/// The receiver's side.
#[derive(Debug)]
pub(super) struct Incoming {
    bytes: BytesMut,
    total: usize,
    part_bytes: usize,
    /// Bit set of the parts that have arrived; bit 0 of the first word is the first part.
    there: Vec<u64>,
    /// Number of parts that have arrived without a gap, from the first on.
    through: usize,
    /// Number of parts that have arrived.
    count: usize,
    /// Number of parts that arrived since the last report.
    untold: usize,
    /// When the last part arrived.
    pub(super) heard_at: Time,
}

impl Incoming {
    /// Returns an empty receiver; `total` and `part_bytes` must be in the ranges that the wire format allows.
    pub(super) fn new(now: Time, total: u32, part_bytes: u16) -> Incoming {
        let (total, part_bytes) = (total as usize, usize::from(part_bytes));
        let parts = total.div_ceil(part_bytes);
        Incoming {
            bytes: BytesMut::new(),
            total,
            part_bytes,
            there: vec![0; parts.div_ceil(PARTS_WORD_BITS)],
            through: 0,
            count: 0,
            untold: 0,
            heard_at: now,
        }
    }

    pub(super) fn total(&self) -> usize {
        self.total
    }

    fn parts(&self) -> usize {
        self.total.div_ceil(self.part_bytes)
    }

    /// Stores a part. Returns true if a report is due now, and `None` if the part does not fit this message, or lies beyond any
    /// sender's window. Memory is taken as parts come: the announcement of a message costs its sender nothing.
    pub(super) fn take(&mut self, now: Time, index: u16, part: &[u8]) -> Option<bool> {
        let index = usize::from(index);
        let from = index * self.part_bytes;
        let to = self.total.min(from + self.part_bytes);
        let is_in_window = index <= self.through + GOT_PARTS;
        if index >= self.parts() || part.len() != to - from || !is_in_window {
            return None;
        }
        if self.has(index) {
            return Some(true);
        }
        if self.bytes.len() < to {
            self.bytes.resize(to, 0);
        }
        self.bytes.get_mut(from..to)?.copy_from_slice(part);
        self.heard_at = now;
        self.there[index / PARTS_WORD_BITS] |= 1 << (index % PARTS_WORD_BITS);
        self.count += 1;
        let in_order = index == self.through;
        while self.through < self.parts() && self.has(self.through) {
            self.through += 1;
        }
        self.untold += 1;
        let has_gap = self.through < self.count;
        Some(!in_order || has_gap || self.untold >= PARTS_TELL_EVERY || self.through == self.parts())
    }

    /// True if this part has arrived.
    pub(super) fn has(&self, index: usize) -> bool {
        self.there.get(index / PARTS_WORD_BITS).is_some_and(|word| word >> (index % PARTS_WORD_BITS) & 1 == 1)
    }

    /// Returns the first part, if it has arrived.
    pub(super) fn beginning(&self) -> Option<Bytes> {
        self.has(0).then(|| Bytes::copy_from_slice(&self.bytes[..self.part_bytes.min(self.total)]))
    }

    /// Returns the memory that the parts take that have arrived.
    pub(super) fn taken_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the bytes that have arrived, the last part taken for a whole one.
    pub(super) fn arrived_bytes(&self) -> usize {
        self.count * self.part_bytes
    }

    /// True if a sender sends this part only when it has heard of the first ones, and the very first has not arrived.
    pub(super) fn is_early(&self, index: u16) -> bool {
        (WINDOW_FIRST..self.parts()).contains(&index.into()) && !self.has(0)
    }

    /// True if this part is further ahead of the first one that lacks than a first window: if nothing is lost, a sender has none such.
    pub(super) fn is_far_ahead(&self, index: u16) -> bool {
        usize::from(index) >= self.through + WINDOW_FIRST
    }

    /// True if no part has come but those of a first window, which the sender sends whatever it hears.
    pub(super) fn has_first_window_alone(&self) -> bool {
        self.bytes.len() <= WINDOW_FIRST * self.part_bytes
    }

    /// True if the sender has more to send than its first window, or than that has with parts of Ethernet's size.
    pub(super) fn is_long(&self) -> bool {
        self.parts() > WINDOW_FIRST || self.total() > LONG_BYTES
    }

    pub(super) fn is_whole(&self) -> bool {
        self.through == self.parts()
    }

    /// Returns the report for the sender.
    pub(super) fn got(&mut self, attempt: Attempt, reply: bool) -> Got {
        self.untold = 0;
        let mut got = Got { attempt, reply, through: self.through as u32, beyond: [0; GOT_PARTS / 64] };
        for place in (0..GOT_PARTS).filter(|place| self.has(self.through + 1 + place)) {
            got.beyond[place / PARTS_WORD_BITS] |= 1 << (place % PARTS_WORD_BITS);
        }
        got
    }

    /// Returns the message, when it is whole. No part is taken after that.
    pub(super) fn take_bytes(&mut self) -> Bytes {
        core::mem::take(&mut self.bytes).freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Uid;

    const ATTEMPT: Attempt = Attempt { to: Uid(1), slot: 0, number: 1 };

    #[test]
    fn a_message_of_few_large_parts_is_long_too() {
        let is_long = |total, part| Incoming::new(Time::ZERO, total, part).is_long();
        assert_eq!([is_long(16 * 1024, 1024), is_long(17 * 1024, 1024)], [false, true], "by its parts");
        assert_eq!(
            [is_long(24 << 10, 61_000), is_long((24 << 10) + 1, 61_000)],
            [false, true],
            "by its length"
        );
    }

    fn transfer(parts: usize) -> Outgoing {
        Outgoing::new(at(0), vec![0; parts * 256].into(), 256, PARTS_WINDOW_MAX)
    }

    fn at(millisecond: u64) -> Time {
        Time::ZERO + Duration::from_millis(millisecond)
    }

    /// Returns the parts that are sent now, and whether each is sent again.
    fn sends(outgoing: &mut Outgoing, now: Time) -> Vec<(u16, bool)> {
        let parts = core::iter::from_fn(|| outgoing.next(now, ATTEMPT, false));
        parts.map(|(part, again)| (part.index, again)).collect()
    }

    /// Returns a report that all parts before `through` have arrived, and `beyond` parts after part `through`.
    fn got(through: u32, beyond: u32) -> Got {
        Got { attempt: ATTEMPT, reply: false, through, beyond: [(1 << beyond) - 1, 0, 0, 0] }
    }

    #[test]
    fn a_part_is_lost_when_one_that_left_so_many_sendings_later_has_arrived() {
        let (mut outgoing, now) = (transfer(100), at(0));
        sends(&mut outgoing, now);
        for (beyond, next) in [(7, (16, false)), (8, (0, true))] {
            outgoing.note_got(now, &got(0, beyond));
            let (part, again) = outgoing.next(now, ATTEMPT, false).unwrap();
            assert_eq!((part.index, again), next);
        }
    }

    #[test]
    fn the_window_opens_by_what_arrives_and_halves_once_for_what_is_lost_together() {
        let (mut outgoing, now) = (transfer(1000), at(0));
        sends(&mut outgoing, now);
        outgoing.note_got(now, &got(16, 0));
        assert_eq!(sends(&mut outgoing, now).len(), 32, "at first by one for each part that arrives");
        // Part 16 is lost; then part 26, which left before that was known.
        for beyond in [0x1ff, 0xf_fdff] {
            outgoing.note_got(now, &Got { beyond: [beyond, 0, 0, 0], ..got(16, 0) });
            assert_eq!(outgoing.window, 16);
        }
        for (through, window) in [(48, 16), (51, 17), (67, 17), (68, 18)] {
            outgoing.note_got(now, &got(through, 0));
            sends(&mut outgoing, now);
            assert_eq!(outgoing.window, window, "then by one for each window of parts");
        }
    }

    #[test]
    fn the_window_opens_no_further_than_the_service_lets_it() {
        let now = at(0);
        let mut outgoing = Outgoing::new(now, vec![0; 256_000].into(), 256, 12);
        for through in [0, 12, 24] {
            outgoing.note_got(now, &got(through, 0));
            assert_eq!(sends(&mut outgoing, now).len(), 12);
        }
    }

    #[test]
    fn what_nothing_comes_back_of_goes_again_ever_more_patiently() {
        let mut outgoing = transfer(100);
        assert_eq!(sends(&mut outgoing, at(0)).len(), WINDOW_FIRST);
        let mut pauses = Vec::new();
        for _ in 0..2 {
            let now = outgoing.resend_at().unwrap();
            outgoing.handle_timeout(now);
            assert_eq!(sends(&mut outgoing, now).len(), PARTS_WINDOW_MIN);
            pauses.push(outgoing.resend_at().unwrap().since(now));
        }
        assert_eq!(pauses[1], pauses[0] * 2);
        outgoing.note_got(at(500), &got(1, 0));
        assert_eq!(outgoing.resend_at().unwrap().since(at(500)) * 2, pauses[0], "until a part arrives");
    }

    #[test]
    fn what_the_receiver_has_of_a_sending_that_was_given_up_does_not_go_again() {
        let (mut outgoing, now) = (transfer(100), at(9));
        sends(&mut outgoing, now);
        outgoing.note_got(now, &got(50, 0));
        assert_eq!(sends(&mut outgoing, now)[0], (50, false));
    }

    #[test]
    fn what_the_receiver_said_long_ago_changes_nothing() {
        let (mut outgoing, now) = (transfer(1000), at(9));
        let mut sent = 0;
        while sends(&mut outgoing, now).len() < PARTS_WINDOW_MAX {
            sent = outgoing.base + outgoing.under_way.len();
            outgoing.note_got(now, &got(sent as u32, 0));
        }
        outgoing.note_got(at(10), &got(0, 0));
        assert_eq!((outgoing.base, outgoing.heard_at()), (sent, now));
    }
}

//! Messages of this member under way, and how fast they go out.
//!
//! The outbox keeps what was sent until it is resolved. What has no number yet is sent within a congestion window
//! of bytes that opens as numbers come back and closes on loss; when nothing comes back for a while, the oldest
//! datagram is sent again, ever more patiently.

use crate::identity::MessageNumber;
use crate::time::Time;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use bytes::Bytes;
use core::time::Duration;

const RESEND_FIRST: Duration = Duration::from_millis(40);
const RESEND_MIN: Duration = Duration::from_millis(15);
const RESEND_MAX: Duration = Duration::from_millis(500);
const AGAIN_SPAN_FIRST: u64 = 4;
const AGAIN_SPAN_MAX: u64 = 1024;
const CONGESTION_WINDOW_FIRST: u64 = 128 << 10;
const CONGESTION_WINDOW_MIN: u64 = 8 << 10;
const CONGESTION_WINDOW_MAX: u64 = 4 << 20;

/// A message (or piece) of this member that is not resolved yet.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    pub(crate) more: bool,
    pub(crate) resilience: u8,
    /// It goes by BB.
    pub(crate) broadcast: bool,
    pub(crate) bytes: Bytes,
}

#[derive(Clone, Debug)]
pub(crate) struct Outbox {
    /// The number of the first message kept.
    first: MessageNumber,
    kept: VecDeque<Outgoing>,
    /// This member's first number of this epoch.
    base: MessageNumber,
    /// Everything through here has a number.
    numbered: MessageNumber,
    /// Everything through here was sent at least once to the present orderer.
    sent: MessageNumber,
    /// What to send again: from here through the second, first of all.
    again: Option<(MessageNumber, MessageNumber)>,
    /// How many messages the next timeout sends again.
    again_span: u64,
    bytes_in_flight: u64,
    congestion_window: u64,
    slow_start_below: u64,
    resend_at: Option<Time>,
    resend_after: Duration,
    round_trip: Option<(Duration, Duration)>,
    /// A message whose round trip is being timed, and when it left.
    timed: Option<(MessageNumber, Time)>,
    shrunk_at: Time,
    /// Since when something is under way and no number has come.
    waits_since: Option<Time>,
}

impl Outbox {
    pub(crate) fn new() -> Outbox {
        Outbox {
            first: 1,
            kept: VecDeque::new(),
            base: 1,
            numbered: 0,
            sent: 0,
            again: None,
            again_span: AGAIN_SPAN_FIRST,
            bytes_in_flight: 0,
            congestion_window: CONGESTION_WINDOW_FIRST,
            slow_start_below: CONGESTION_WINDOW_MAX,
            resend_at: None,
            resend_after: RESEND_FIRST,
            round_trip: None,
            timed: None,
            shrunk_at: Time::ZERO,
            waits_since: None,
        }
    }

    /// This member's first number of this epoch.
    pub(crate) fn base(&self) -> MessageNumber {
        self.base
    }

    /// The number that the next message gets.
    pub(crate) fn next_number(&self) -> MessageNumber {
        self.first + self.kept.len() as u64
    }

    pub(crate) fn len(&self) -> usize {
        self.kept.len()
    }

    /// Everything here has a number.
    pub(crate) fn all_numbered(&self) -> bool {
        self.numbered + 1 >= self.next_number()
    }

    pub(crate) fn get(&self, number: MessageNumber) -> Option<&Outgoing> {
        self.kept.get(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    pub(crate) fn push(&mut self, outgoing: Outgoing) -> MessageNumber {
        self.kept.push_back(outgoing);
        self.next_number() - 1
    }

    /// What was sent and has no number yet, framing included.
    pub(crate) fn bytes_in_flight(&self) -> u64 {
        self.bytes_in_flight
    }

    /// The first message that has no number yet, if there is one.
    pub(crate) fn first_unnumbered(&self) -> Option<(MessageNumber, &Outgoing)> {
        let number = (self.numbered + 1).max(self.base);
        self.get(number).map(|outgoing| (number, outgoing))
    }

    /// The next message to put on the wire: one that was asked for again, or the next new one within the
    /// congestion window and the `window` of messages that others keep for one sender.
    pub(crate) fn next_to_send(&self, window: u64) -> Option<(MessageNumber, &Outgoing)> {
        if let Some((from, _)) = self.again {
            return self.get(from).map(|outgoing| (from, outgoing));
        }
        let number = self.sent + 1;
        let outgoing = self.get(number)?;
        let fits = self.bytes_in_flight == 0
            || self.bytes_in_flight + cost(&outgoing.bytes) <= self.congestion_window;
        (fits && number - self.numbered.max(self.base - 1) <= window).then_some((number, outgoing))
    }

    /// `number` (from [`Outbox::next_to_send`]) went onto the wire.
    pub(crate) fn note_sent(&mut self, now: Time, number: MessageNumber) {
        match &mut self.again {
            Some((from, to)) if *from == number => {
                *from += 1;
                if *from > *to {
                    self.again = None;
                }
                self.timed = None;
            }
            _ => {
                self.bytes_in_flight += self.get(number).map_or(0, |outgoing| cost(&outgoing.bytes));
                self.sent = number;
                self.timed.get_or_insert((number, now));
            }
        }
        self.resend_at.get_or_insert(now + self.resend_after);
        self.waits_since.get_or_insert(now);
    }

    /// Everything through `number` has a place in the order.
    pub(crate) fn note_numbered(&mut self, now: Time, number: MessageNumber) {
        if number <= self.numbered {
            return;
        }
        let mut freed = 0;
        for done in (self.numbered + 1).max(self.first)..=number.min(self.sent) {
            freed += self.get(done).map_or(0, |outgoing| cost(&outgoing.bytes));
        }
        self.bytes_in_flight = self.bytes_in_flight.saturating_sub(freed);
        let growth = if self.congestion_window < self.slow_start_below { freed } else { freed / 16 };
        self.congestion_window = (self.congestion_window + growth).min(CONGESTION_WINDOW_MAX);
        if let Some((timed, left)) = self.timed
            && timed <= number
        {
            self.timed = None;
            self.again_span = AGAIN_SPAN_FIRST;
            self.note_round_trip(now.since(left));
        }
        // Numbers come again: patience that loss has taught is forgotten.
        self.resend_after =
            self.round_trip.map_or(RESEND_FIRST, |(mean, deviation)| patience(mean, deviation));
        self.numbered = number;
        self.sent = self.sent.max(number);
        if let Some((from, to)) = self.again {
            self.again = (to > number).then_some((from.max(number + 1), to));
        }
        self.resend_at = (self.sent > number).then_some(now + self.resend_after);
        self.waits_since = (self.sent > number).then_some(now);
    }

    /// Jacobson's estimate: mean and deviation.
    fn note_round_trip(&mut self, sample: Duration) {
        let (mean, deviation) = match self.round_trip {
            None => (sample, sample / 2),
            Some((mean, deviation)) => ((mean * 7 + sample) / 8, (deviation * 3 + mean.abs_diff(sample)) / 4),
        };
        self.round_trip = Some((mean, deviation));
        self.resend_after = patience(mean, deviation);
    }

    /// The orderer lacks these.
    pub(crate) fn note_wanted(&mut self, now: Time, from: MessageNumber, to: MessageNumber) {
        let (from, to) = (from.max(self.numbered + 1).max(self.first), to.min(self.sent));
        if from <= to {
            self.again = Some((from, to));
            if now.since(self.shrunk_at) > self.resend_after {
                self.shrink(now);
            }
        }
    }

    fn shrink(&mut self, now: Time) {
        self.shrunk_at = now;
        self.congestion_window = (self.congestion_window * 7 / 10).max(CONGESTION_WINDOW_MIN);
        self.slow_start_below = self.congestion_window;
    }

    /// Since when the orderer owes a number, and gives none.
    pub(crate) fn waits_since(&self) -> Option<Time> {
        self.waits_since
    }

    pub(crate) fn resend_at(&self) -> Option<Time> {
        self.resend_at
    }

    /// Nothing came back in time: sends the oldest again. Returns whether there was any.
    pub(crate) fn handle_timeout(&mut self, now: Time) -> bool {
        let Some(at) = self.resend_at else { return false };
        if at > now {
            return false;
        }
        self.resend_at = None;
        if self.sent <= self.numbered {
            return false;
        }
        // How much was lost nobody knows: a little goes again, and twice as much each time until a number comes for
        // something that went but once.
        let oldest = (self.numbered + 1).max(self.base);
        self.again = Some((oldest, self.sent.min(oldest + self.again_span - 1)));
        self.again_span = (self.again_span * 2).min(AGAIN_SPAN_MAX);
        self.timed = None;
        self.resend_after = (self.resend_after * 2).min(RESEND_MAX);
        self.shrink(now);
        self.resend_at = Some(now + self.resend_after);
        true
    }

    /// Another orderer: whatever has no number goes to it, from the beginning.
    pub(crate) fn restart(&mut self) {
        self.sent = self.numbered.max(self.base - 1);
        self.again = None;
        self.bytes_in_flight = 0;
        self.timed = None;
        self.resend_at = None;
        self.resend_after = RESEND_FIRST;
        self.waits_since = None;
    }

    /// The oldest message is resolved if its number is at most `through`: takes it out.
    pub(crate) fn resolve_through(&mut self, through: MessageNumber) -> bool {
        let resolved = self.first <= through && self.kept.pop_front().is_some();
        self.first += u64::from(resolved);
        resolved
    }

    /// A new epoch: what is left here will never have a number. Returns the messages that fail by that, in order.
    /// Their numbers are not used again: this epoch's first lies beyond them.
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

/// How long to wait for a number before sending again.
fn patience(mean: Duration, deviation: Duration) -> Duration {
    (mean + deviation * 4).clamp(RESEND_MIN, RESEND_MAX)
}

/// What a message costs on its way, framing included.
fn cost(bytes: &Bytes) -> u64 {
    bytes.len() as u64 + 32
}

//! Whether other members hear this member's own multicasts, judged by the seqnos of the messages sent by them.
//!
//! A member may hear all others and never be heard by any: a wrong interface or a filter does that. Each multicast then
//! costs the time until a resend. So after a resend was due, a single datagram tries the multicast, and the messages
//! behind it, which go by PB, show the sequencer what it lacks. While trials fail, the pause between them doubles.

use crate::identity::MessageNumber;
use crate::time::Time;
use core::time::Duration;

/// Pause after the first trial that failed; each further failure doubles it.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
/// Maximum pause between two trials.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// What is known of this member's multicasts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnMulticasts {
    state: State,
    /// Number of the last message that was multicast.
    last: MessageNumber,
    /// Time without multicasts if the next trial fails.
    pause: Duration,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Heard,
    /// No multicast is used before that time. The next one is a trial.
    Unheard {
        until: Time,
    },
    /// These messages, of one datagram, are the trial.
    Trial {
        first: MessageNumber,
        last: MessageNumber,
    },
}

impl OwnMulticasts {
    /// Returns the state at the beginning: nothing speaks against multicasts.
    pub(crate) fn new() -> OwnMulticasts {
        OwnMulticasts { state: State::Heard, last: 0, pause: PAUSE_FIRST }
    }

    /// True if the next datagram may be multicast.
    pub(crate) fn may_be_used(&self, now: Time) -> bool {
        match self.state {
            State::Heard => true,
            State::Unheard { until } => now >= until,
            State::Trial { .. } => false,
        }
    }

    /// True if the multicasts are heard, as far as that can be known.
    pub(crate) fn are_heard(&self) -> bool {
        matches!(self.state, State::Heard)
    }

    /// Notes that these messages went out in one multicast, for the first time or again.
    pub(crate) fn note_used(&mut self, first: MessageNumber, last: MessageNumber) {
        self.last = self.last.max(last);
        if let State::Unheard { .. } = self.state {
            self.state = State::Trial { first, last };
        }
    }

    /// Notes that everything through `number` has a seqno.
    pub(crate) fn note_numbered(&mut self, number: MessageNumber) {
        if let State::Trial { last, .. } = self.state
            && last <= number
        {
            (self.state, self.pause) = (State::Heard, PAUSE_FIRST);
        }
    }

    /// Notes that no seqno came in time for what was sent beyond `numbered`.
    pub(crate) fn note_overdue(&mut self, now: Time, numbered: MessageNumber) {
        if self.are_heard() && self.last > numbered {
            self.state = State::Unheard { until: now };
        }
    }

    /// Notes that these messages were lost and are resent.
    pub(crate) fn note_lost(&mut self, now: Time, from: MessageNumber, to: MessageNumber) {
        if let State::Trial { first, last } = self.state
            && from <= last
            && first <= to
        {
            self.state = State::Unheard { until: now + self.pause };
            self.pause = (self.pause * 2).min(PAUSE_MAX);
        }
    }

    /// Notes that everything without a seqno is sent anew, so that a trial under way shows nothing.
    pub(crate) fn restart(&mut self) {
        if let State::Trial { .. } = self.state {
            self.state = State::Unheard { until: Time::ZERO };
        }
        self.last = 0;
    }
}

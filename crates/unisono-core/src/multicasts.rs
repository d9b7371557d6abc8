//! Whether this member's own multicasts are heard, as the numbers of what it sent by them show.
//!
//! It may hear everybody's and be heard by nobody, for good: a wrong interface or a filter does that. Then each use costs the
//! time until something goes again. So after such a time a single datagram tries it, with others behind it that show the
//! sequencer what is lacking; and while trials fail they come ever more rarely.

use crate::identity::MessageNumber;
use crate::time::Time;
use core::time::Duration;

/// After the first trial that failed the next one waits for so long, then for twice as long each time...
const PAUSE_FIRST: Duration = Duration::from_secs(1);
/// ... up to this.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnMulticasts {
    state: State,
    /// The last message that was multicast.
    last: MessageNumber,
    /// For how long none is used when the next trial fails.
    pause: Duration,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Heard,
    /// None is used before that time. The next one is a trial.
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
    /// Nothing speaks against them.
    pub(crate) fn new() -> OwnMulticasts {
        OwnMulticasts { state: State::Heard, last: 0, pause: PAUSE_FIRST }
    }

    /// The next datagram may be multicast.
    pub(crate) fn may_be_used(&self, now: Time) -> bool {
        match self.state {
            State::Heard => true,
            State::Unheard { until } => now >= until,
            State::Trial { .. } => false,
        }
    }

    /// They are known to be heard, as far as that can be known.
    pub(crate) fn are_heard(&self) -> bool {
        matches!(self.state, State::Heard)
    }

    /// These went out in one, for the first time or again.
    pub(crate) fn note_used(&mut self, first: MessageNumber, last: MessageNumber) {
        self.last = self.last.max(last);
        if let State::Unheard { .. } = self.state {
            self.state = State::Trial { first, last };
        }
    }

    /// Everything through here has a number.
    pub(crate) fn note_numbered(&mut self, number: MessageNumber) {
        if let State::Trial { last, .. } = self.state
            && last <= number
        {
            (self.state, self.pause) = (State::Heard, PAUSE_FIRST);
        }
    }

    /// Nothing came back in time of what was sent beyond `numbered`.
    pub(crate) fn note_overdue(&mut self, now: Time, numbered: MessageNumber) {
        if self.are_heard() && self.last > numbered {
            self.state = State::Unheard { until: now };
        }
    }

    /// These go again, since they were lost.
    pub(crate) fn note_lost(&mut self, now: Time, from: MessageNumber, to: MessageNumber) {
        if let State::Trial { first, last } = self.state
            && from <= last
            && first <= to
        {
            self.state = State::Unheard { until: now + self.pause };
            self.pause = (self.pause * 2).min(PAUSE_MAX);
        }
    }

    /// Everything without a number goes out anew, which no trial tells of.
    pub(crate) fn restart(&mut self) {
        if let State::Trial { .. } = self.state {
            self.state = State::Unheard { until: Time::ZERO };
        }
        self.last = 0;
    }
}

//! Whether other members hear this member's own multicasts, judged by the seqnos of the messages sent by them, and in a ring by
//! whether its passes are taken.
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

    /// True if no multicast is to be used at this time.
    pub(crate) fn pauses(&self, now: Time) -> bool {
        matches!(self.state, State::Unheard { until } if now < until)
    }

    /// Notes that another member took the token from this one, which had told all by multicast unless it pauses. Returns
    /// true if that is news.
    pub(crate) fn note_pass_heard(&mut self, now: Time) -> bool {
        let is_news = matches!(self.state, State::Unheard { until } if until <= now);
        if is_news {
            (self.state, self.pause) = (State::Heard, PAUSE_FIRST);
        }
        is_news
    }

    /// Notes that another member took the token only when it was told by name. Returns true if that is news.
    pub(crate) fn note_pass_unheard(&mut self, now: Time) -> bool {
        let is_news = !self.pauses(now);
        if is_news {
            self.state = State::Unheard { until: now + self.pause };
            self.pause = (self.pause * 2).min(PAUSE_MAX);
        }
        is_news
    }

    /// Notes that everything without a seqno is sent anew, so that a trial under way shows nothing.
    pub(crate) fn restart(&mut self) {
        if let State::Trial { .. } = self.state {
            self.state = State::Unheard { until: Time::ZERO };
        }
        self.last = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn the_pause_after_passes_that_no_member_heard_doubles_up_to_a_minute() {
        let (mut own, mut now) = (OwnMulticasts::new(), 10);
        for pause in [1, 2, 4, 8, 16, 32, 60, 60] {
            assert!(!own.pauses(at(now)) && own.may_be_used(at(now)));
            assert!(own.note_pass_unheard(at(now)));
            assert!(own.pauses(at(now + pause - 1)) && !own.may_be_used(at(now + pause - 1)), "{pause} s");
            now += pause;
            assert!(!own.pauses(at(now)), "{pause} s");
        }
    }

    // During a pause passes go by copies, so they say nothing of the multicast.
    #[test]
    fn passes_during_a_pause_change_nothing() {
        let mut own = OwnMulticasts::new();
        assert!(!own.note_pass_heard(at(1)), "it is no news");
        own.note_pass_unheard(at(1));
        for now in [at(1), at(1) + Duration::from_millis(999)] {
            assert!(!own.note_pass_unheard(now) && !own.note_pass_heard(now));
            assert!(own.pauses(now) && !own.are_heard());
        }
        assert!(!own.pauses(at(2)), "the pause has not grown");
    }

    #[test]
    fn a_pass_that_is_heard_after_the_pause_ends_it_for_good() {
        let mut own = OwnMulticasts::new();
        own.note_pass_unheard(at(1));
        own.note_pass_unheard(at(2));
        assert!(own.note_pass_heard(at(4)));
        assert!(own.are_heard() && own.may_be_used(at(4)));
        own.note_pass_unheard(at(5));
        assert!(!own.pauses(at(6)), "the next pause is the first one again");
    }

    // A trial by messages may be under way when a pass shows that the multicasts are lost.
    #[test]
    fn a_pass_that_no_member_heard_ends_a_trial_by_messages() {
        let mut own = OwnMulticasts::new();
        own.note_pass_unheard(at(1));
        own.note_used(1, 1);
        assert!(!own.pauses(at(2)) && !own.may_be_used(at(2)), "one datagram is the trial");
        assert!(own.note_pass_unheard(at(2)));
        assert!(own.pauses(at(3)) && !own.pauses(at(4)));
        own.note_numbered(1);
        assert!(own.pauses(at(3)), "a copy may have brought the number");
    }
}

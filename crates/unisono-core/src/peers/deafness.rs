//! Whether a peer hears this member's own multicasts, judged in a ring by what it requests after this member's terms.
//!
//! A member reports whether it hears multicasts, but not whose. It may hear all others and not this one: a filter, or an
//! interface that receives what another one does not send to, does that. It then requests everything that this member numbers, so
//! each of its turns costs a retransmission. A peer that requested the whole of several terms in a row is sent copies. After a
//! pause, which doubles each time, one term by multicast is the next trial.

use crate::time::Time;
use core::time::Duration;

/// Number of terms in a row of which a deaf peer has requested everything: a lossy path rarely loses as much.
const TERMS: u8 = 4;
/// Time for which a deaf peer is sent copies at first; it doubles with each trial that fails.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// What one peer's requests say of this member's multicasts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deafness {
    /// True if it has requested the whole of this member's last term.
    requested: bool,
    /// Number of terms in a row before that of which it had.
    terms: u8,
    /// It is sent copies until then.
    until: Option<Time>,
    pause: Duration,
}

impl Default for Deafness {
    fn default() -> Deafness {
        Deafness { requested: false, terms: 0, until: None, pause: PAUSE_FIRST }
    }
}

impl Deafness {
    /// True if the peer is sent copies because it does not hear this member's multicasts.
    pub(super) fn is_deaf(&self) -> bool {
        self.until.is_some()
    }

    /// Notes that the peer requests the whole of this member's last term.
    pub(super) fn note_requested(&mut self) {
        self.requested = true;
    }

    /// Judges this member's last term when the next one begins. Returns true if the peer is reached otherwise from now on.
    pub(super) fn judge(&mut self, now: Time) -> bool {
        let requested = core::mem::take(&mut self.requested);
        if let Some(until) = self.until {
            let is_over = until <= now;
            if is_over {
                (self.until, self.terms) = (None, TERMS - 1);
            }
            return is_over;
        }
        if !requested {
            (self.terms, self.pause) = (0, PAUSE_FIRST);
            return false;
        }
        self.terms += 1;
        let is_deaf = self.terms >= TERMS;
        if is_deaf {
            self.until = Some(now + self.pause);
            self.pause = (self.pause * 2).min(PAUSE_MAX);
        }
        is_deaf
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Time {
        Time::ZERO + Duration::from_millis(milliseconds)
    }

    /// Judges a term of which the peer requested everything, or nothing.
    fn judge(deafness: &mut Deafness, milliseconds: u64, requested: bool) -> bool {
        if requested {
            deafness.note_requested();
        }
        deafness.judge(at(milliseconds))
    }

    #[test]
    fn a_peer_is_deaf_after_four_terms_in_a_row() {
        let mut deafness = Deafness::default();
        for requested in [true, true, true, false, true, true, true] {
            assert!(!judge(&mut deafness, 0, requested) && !deafness.is_deaf());
        }
        assert!(judge(&mut deafness, 0, true) && deafness.is_deaf());
    }

    #[test]
    fn each_trial_that_fails_doubles_the_time_of_copies() {
        let mut deafness = Deafness::default();
        for _ in 0..TERMS {
            judge(&mut deafness, 0, true);
        }
        let mut now = 0;
        for pause in [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000] {
            assert!(!judge(&mut deafness, now + pause - 1, false) && deafness.is_deaf(), "{pause} ms");
            assert!(judge(&mut deafness, now + pause, true) && !deafness.is_deaf(), "one term is the trial");
            assert!(judge(&mut deafness, now + pause, true) && deafness.is_deaf());
            now += pause;
        }
        assert!(judge(&mut deafness, now + 60_000, false));
        assert!(!judge(&mut deafness, now + 60_000, false), "the trial was heard");
        (1..TERMS).for_each(|_| assert!(!judge(&mut deafness, 0, true)));
        assert!(judge(&mut deafness, 200_000, true));
        assert!(judge(&mut deafness, 201_000, false), "the next pause is the first one again");
    }
}

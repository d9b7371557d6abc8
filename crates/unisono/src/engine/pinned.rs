//! The rules by which the lease holder **pins** a socket: which socket all datagrams have come from recently, if there
//! is one. There is no socket in this module.
//!
//! A thread that waits for many sockets at once is woken later than a thread that waits in the receive of a single one,
//! by a sixth of the time that a message takes. In the steady state all datagrams come from one socket: at the
//! sequencer from the members' unicast, at the other members from the multicast, at a caller from its server. So the
//! lease holder waits in the receive of that socket, and the fallback thread watches the rest. If datagrams come from
//! other sockets after all, the lease is unpinned, and the next pinning takes more evidence.

/// Minimum number of consecutive lone datagrams from one socket before it is pinned.
const PIN_AFTER_MIN: u32 = 16;
/// Maximum of that number. It doubles each time a pinned socket turns out wrong.
const PIN_AFTER_MAX: u32 = 4096;
/// While a socket is pinned, one datagram in this many may come from elsewhere.
const ELSEWHERE_PART: u32 = 16;
/// A look for more datagrams follows each 64th wait, and each wait during a burst.
const LOOK_EVERY: u32 = 64;
/// Number of consecutive waits with at most one datagram after which coalescing is switched off: enough to include a
/// look for more.
const UNCOALESCED_MIN: u32 = LOOK_EVERY;
/// Number of consecutive looks that found more datagrams after which the socket is unpinned: it is a burst.
const BURST: u32 = 8;

/// The state behind these rules.
#[derive(Debug)]
pub(crate) struct PinnedSocket {
    key: Option<u64>,
    /// The socket of the last datagrams, and the number of consecutive lone datagrams from it. While a socket is
    /// pinned, `lone` is the number of waits since it was.
    last: u64,
    lone: u32,
    /// Number of datagrams from other sockets since this one was pinned.
    elsewhere: u32,
    /// Number of consecutive waits without a second datagram, while pinned.
    alone: u32,
    /// Number of consecutive looks that found more datagrams.
    burst: u32,
    /// The last wait ended without a datagram.
    idle: bool,
    /// Number of consecutive lone datagrams that it takes to pin a socket now.
    pin_after: u32,
}

impl PinnedSocket {
    pub(crate) fn new() -> PinnedSocket {
        PinnedSocket {
            key: None,
            last: 0,
            lone: 0,
            elsewhere: 0,
            alone: 0,
            burst: 0,
            idle: false,
            pin_after: PIN_AFTER_MIN,
        }
    }

    /// Returns the pinned socket.
    pub(crate) fn key(&self) -> Option<u64> {
        self.key
    }

    /// Notes, while no socket is pinned, that a read of `socket` returned this number of datagrams. Every read is
    /// noted.
    pub(crate) fn note(&mut self, socket: u64, datagrams: usize) {
        self.lone = match datagrams {
            0 => self.lone,
            1 if socket == self.last => self.lone.saturating_add(1),
            1 => 1,
            _ => 0,
        };
        if datagrams > 0 {
            self.last = socket;
        }
    }

    /// Returns the socket to pin, if enough consecutive lone datagrams came from it.
    pub(crate) fn candidate(&self) -> Option<u64> {
        (self.key.is_none() && self.lone >= self.pin_after).then_some(self.last)
    }

    /// Notes that `socket` is pinned from now on.
    pub(crate) fn pin(&mut self, socket: u64) {
        *self = PinnedSocket { key: Some(socket), pin_after: self.pin_after, ..PinnedSocket::new() };
    }

    /// Notes, while pinned, that a wait returned this number of datagrams; 0 if it timed out. Returns whether to look
    /// for more.
    pub(crate) fn note_pinned(&mut self, datagrams: usize) -> bool {
        self.idle = datagrams == 0;
        self.alone = if datagrams > 1 { 0 } else { self.alone.saturating_add(1) };
        self.lone = self.lone.saturating_add(1);
        if self.lone > self.pin_after {
            // The pinned socket was the right one.
            self.pin_after = PIN_AFTER_MIN;
        }
        datagrams > 1 || self.burst > 0 || self.lone.is_multiple_of(LOOK_EVERY)
    }

    /// Notes that a look for more found this number of datagrams.
    pub(crate) fn note_look(&mut self, datagrams: usize) {
        if datagrams == 0 {
            self.burst = 0;
        } else {
            (self.burst, self.alone) = (self.burst + 1, 0);
        }
    }

    /// Notes that the process multicast a run, which its own listener, the pinned socket, receives too.
    pub(crate) fn note_run(&mut self) {
        self.alone = 0;
    }

    /// True if datagrams come alone, so that the kernel need not look for others to coalesce them with.
    pub(crate) fn wants_uncoalesced(&self) -> bool {
        self.alone >= UNCOALESCED_MIN
    }

    /// Notes, while pinned, that this number of datagrams came from elsewhere.
    pub(crate) fn note_elsewhere(&mut self, datagrams: usize) {
        self.elsewhere = self.elsewhere.saturating_add(u32::try_from(datagrams).unwrap_or(u32::MAX));
    }

    /// True if not all datagrams come from the pinned socket, or if they do not come one by one.
    pub(crate) fn should_unpin(&self) -> bool {
        self.idle || self.burst >= BURST || self.elsewhere > PIN_AFTER_MIN + self.lone / ELSEWHERE_PART
    }

    /// Notes that no socket is pinned any more. `wrong`: because of [`PinnedSocket::should_unpin`].
    pub(crate) fn unpin(&mut self, wrong: bool) {
        (self.key, self.lone) = (None, 0);
        if wrong {
            self.pin_after = (self.pin_after * 2).min(PIN_AFTER_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn convinced(pinned: &mut PinnedSocket, socket: u64) -> u32 {
        for count in 1.. {
            pinned.note(socket, 1);
            if pinned.candidate() == Some(socket) {
                pinned.pin(socket);
                return count;
            }
            assert!(count <= PIN_AFTER_MAX);
        }
        0
    }

    fn lone(pinned: &mut PinnedSocket, count: u32) {
        for _ in 0..count {
            pinned.note_pinned(1);
        }
    }

    #[test]
    fn lone_datagrams_in_a_row_from_one_socket_make_it_the_candidate() {
        let mut pinned = PinnedSocket::new();
        for _ in 0..100 {
            pinned.note(1, 1);
            pinned.note(2, 1);
        }
        assert_eq!(pinned.candidate(), None);
        for _ in 0..100 {
            (0..PIN_AFTER_MIN - 1).for_each(|_| pinned.note(1, 1));
            pinned.note(1, 2);
        }
        assert_eq!(pinned.candidate(), None);
        // A wake without a datagram changes nothing.
        (0..PIN_AFTER_MIN).for_each(|_| (pinned.note(2, 1), pinned.note(2, 0)).0);
        assert_eq!(pinned.candidate(), Some(2));
        pinned.pin(2);
        assert_eq!((pinned.key(), pinned.candidate()), (Some(2), None));
        pinned.unpin(false);
        (1..PIN_AFTER_MIN).for_each(|_| pinned.note(1, 1));
        pinned.note(2, 0);
        pinned.note(2, 1);
        assert_eq!(pinned.candidate(), None);
    }

    #[test]
    fn bursts_and_what_comes_from_elsewhere_end_it() {
        let mut pinned = PinnedSocket::new();
        convinced(&mut pinned, 1);
        let looks = (0..640).filter(|_| pinned.note_pinned(1)).count();
        assert_eq!(looks, 10);
        assert!(pinned.note_pinned(2));
        for more in [1, 0, 1, 1, 1, 1, 1, 1, 1] {
            pinned.note_look(more);
            assert!(!pinned.should_unpin());
            assert_eq!(pinned.note_pinned(1), more > 0);
        }
        pinned.note_look(1);
        assert!(pinned.should_unpin());

        pinned.unpin(true);
        convinced(&mut pinned, 1);
        pinned.note_pinned(0);
        assert!(pinned.should_unpin());

        pinned.unpin(true);
        convinced(&mut pinned, 1);
        lone(&mut pinned, 160);
        pinned.note_elsewhere(PIN_AFTER_MIN as usize + 10);
        assert!(!pinned.should_unpin());
        pinned.note_elsewhere(1);
        assert!(pinned.should_unpin());
    }

    #[test]
    fn coalescing_stops_once_a_look_has_found_no_more_and_while_datagrams_come_alone() {
        let mut pinned = PinnedSocket::new();
        let begin: fn(&mut PinnedSocket) = |pinned| pinned.pin(1);
        for company in
            [begin, |pinned| pinned.note_look(1), |pinned| _ = pinned.note_pinned(2), PinnedSocket::note_run]
        {
            company(&mut pinned);
            let mut looked = 0;
            for _ in 0..UNCOALESCED_MIN {
                assert!(!pinned.wants_uncoalesced());
                if pinned.note_pinned(1) {
                    pinned.note_look(0);
                    looked += 1;
                }
            }
            assert!(pinned.wants_uncoalesced() && looked > 0);
        }
    }

    #[test]
    fn what_turned_out_wrong_takes_longer_until_it_turns_out_right() {
        let mut pinned = PinnedSocket::new();
        for expected in [16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 4096] {
            assert_eq!(convinced(&mut pinned, 1), expected);
            pinned.unpin(true);
        }
        convinced(&mut pinned, 1);
        lone(&mut pinned, PIN_AFTER_MAX + 1);
        pinned.unpin(false);
        assert_eq!(convinced(&mut pinned, 1), PIN_AFTER_MIN);
    }
}

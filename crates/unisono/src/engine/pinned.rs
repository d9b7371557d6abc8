//! Which socket everything comes from of late, if that is so: the rules by which a lease **pins** on one socket, apart
//! from any socket.
//!
//! A thread that waits for many sockets at once is woken later than one that waits in the receive of a single one, by a
//! sixth of what a message takes. In the steady state everything comes from one: to the sequencer from the others, to the
//! others by multicast, to a caller from its server. So who sits waits in that socket's receive then, and the background
//! thread watches the rest. Where it turns out wrong the I/O lease widens again, and takes longer to be convinced.

/// So many lone datagrams in a row from one socket, at least, are a habit.
const HABIT_MIN: u32 = 16;
/// The most that it takes, after it turned out wrong often.
const HABIT_MAX: u32 = 4096;
/// Out of so many datagrams one may come from elsewhere.
const ELSEWHERE_PART: u32 = 16;
/// After so many datagrams it is looked whether they still come alone; and if not, after each.
const LOOK_EVERY: u32 = 64;
/// After so many that did, they need not be put together. A look was among them.
const APART_MIN: u32 = LOOK_EVERY;
/// So many times in a row there was more: it is a burst.
const BURST: u32 = 8;

/// See the module.
#[derive(Debug)]
pub(crate) struct PinnedSocket {
    on: Option<u64>,
    /// The socket that the last datagrams came from one by one, and how many they were: without a pinned, in a row.
    last: u64,
    lone: u32,
    /// What has come from elsewhere since it is pinned.
    elsewhere: u32,
    /// So many datagrams in a row came alone while it is pinned.
    alone: u32,
    /// How often in a row there was more than one datagram.
    burst: u32,
    /// Nothing comes any more.
    idle: bool,
    /// So many lone datagrams are a habit now.
    habit: u32,
}

impl PinnedSocket {
    pub(crate) fn new() -> PinnedSocket {
        PinnedSocket {
            on: None,
            last: 0,
            lone: 0,
            elsewhere: 0,
            alone: 0,
            burst: 0,
            idle: false,
            habit: HABIT_MIN,
        }
    }

    /// The socket that it is pinned on.
    pub(crate) fn on(&self) -> Option<u64> {
        self.on
    }

    /// Without a pinned, so many datagrams came from this socket, and others only from those that are noted too.
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

    /// Where everything comes from, if that is a habit.
    pub(crate) fn candidate(&self) -> Option<u64> {
        (self.on.is_none() && self.lone >= self.habit).then_some(self.last)
    }

    /// It is pinned on that socket now.
    pub(crate) fn set(&mut self, socket: u64) {
        *self = PinnedSocket { on: Some(socket), habit: self.habit, ..PinnedSocket::new() };
    }

    /// While pinned, so many datagrams came together; none, for as long as a wait may take. Returns whether to look if
    /// there are more.
    pub(crate) fn note_pinned(&mut self, datagrams: usize) -> bool {
        self.idle = datagrams == 0;
        self.alone = if datagrams > 1 { 0 } else { self.alone.saturating_add(1) };
        self.lone = self.lone.saturating_add(1);
        if self.lone > self.habit {
            // It was right.
            self.habit = HABIT_MIN;
        }
        datagrams > 1 || self.burst > 0 || self.lone.is_multiple_of(LOOK_EVERY)
    }

    /// It was looked whether there are more, and so many were there.
    pub(crate) fn note_look(&mut self, datagrams: usize) {
        if datagrams == 0 {
            self.burst = 0;
        } else {
            (self.burst, self.alone) = (self.burst + 1, 0);
        }
    }

    /// Several datagrams went together to where others are received from that it is pinned on.
    pub(crate) fn note_run(&mut self) {
        self.alone = 0;
    }

    /// While pinned, datagrams come alone, so that the kernel need not look for others to put them together with.
    pub(crate) fn is_apart(&self) -> bool {
        self.alone >= APART_MIN
    }

    /// While pinned, so many came from elsewhere.
    pub(crate) fn note_elsewhere(&mut self, datagrams: usize) {
        self.elsewhere = self.elsewhere.saturating_add(u32::try_from(datagrams).unwrap_or(u32::MAX));
    }

    /// What is pinned on is not where everything comes from, one by one.
    pub(crate) fn is_wrong(&self) -> bool {
        self.idle || self.burst >= BURST || self.elsewhere > HABIT_MIN + self.lone / ELSEWHERE_PART
    }

    /// It is pinned no more. `wrong`: since that was not where everything comes from.
    pub(crate) fn clear(&mut self, wrong: bool) {
        (self.on, self.lone) = (None, 0);
        if wrong {
            self.habit = (self.habit * 2).min(HABIT_MAX);
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
                pinned.set(socket);
                return count;
            }
            assert!(count <= HABIT_MAX);
        }
        0
    }

    fn lone(pinned: &mut PinnedSocket, count: u32) {
        for _ in 0..count {
            pinned.note_pinned(1);
        }
    }

    #[test]
    fn lone_datagrams_in_a_row_from_one_socket_are_a_habit() {
        let mut pinned = PinnedSocket::new();
        for _ in 0..100 {
            pinned.note(1, 1);
            pinned.note(2, 1);
        }
        assert_eq!(pinned.candidate(), None);
        for _ in 0..100 {
            (0..HABIT_MIN - 1).for_each(|_| pinned.note(1, 1));
            pinned.note(1, 2);
        }
        assert_eq!(pinned.candidate(), None);
        // A wake for nothing changes nothing.
        (0..HABIT_MIN).for_each(|_| (pinned.note(2, 1), pinned.note(2, 0)).0);
        assert_eq!(pinned.candidate(), Some(2));
        pinned.set(2);
        assert_eq!((pinned.on(), pinned.candidate()), (Some(2), None));
        pinned.clear(false);
        (1..HABIT_MIN).for_each(|_| pinned.note(1, 1));
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
            assert!(!pinned.is_wrong());
            assert_eq!(pinned.note_pinned(1), more > 0);
        }
        pinned.note_look(1);
        assert!(pinned.is_wrong());

        pinned.clear(true);
        convinced(&mut pinned, 1);
        pinned.note_pinned(0);
        assert!(pinned.is_wrong());

        pinned.clear(true);
        convinced(&mut pinned, 1);
        lone(&mut pinned, 160);
        pinned.note_elsewhere(HABIT_MIN as usize + 10);
        assert!(!pinned.is_wrong());
        pinned.note_elsewhere(1);
        assert!(pinned.is_wrong());
    }

    #[test]
    fn datagrams_are_apart_once_a_look_has_found_no_more_and_while_they_come_alone() {
        let mut pinned = PinnedSocket::new();
        let begin: fn(&mut PinnedSocket) = |pinned| pinned.set(1);
        for company in
            [begin, |pinned| pinned.note_look(1), |pinned| _ = pinned.note_pinned(2), PinnedSocket::note_run]
        {
            company(&mut pinned);
            let mut looked = 0;
            for _ in 0..APART_MIN {
                assert!(!pinned.is_apart());
                if pinned.note_pinned(1) {
                    pinned.note_look(0);
                    looked += 1;
                }
            }
            assert!(pinned.is_apart() && looked > 0);
        }
    }

    #[test]
    fn what_turned_out_wrong_takes_longer_until_it_turns_out_right() {
        let mut pinned = PinnedSocket::new();
        for expected in [16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 4096] {
            assert_eq!(convinced(&mut pinned, 1), expected);
            pinned.clear(true);
        }
        convinced(&mut pinned, 1);
        lone(&mut pinned, HABIT_MAX + 1);
        pinned.clear(false);
        assert_eq!(convinced(&mut pinned, 1), HABIT_MIN);
    }
}

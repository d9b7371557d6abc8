//! Which socket everything comes from of late, if that is so: the rules by which a seat **focuses** on one socket, apart
//! from any socket.
//!
//! A thread that waits for many sockets at once is woken later than one that waits in the receive of a single one, by a
//! sixth of what a message takes. In the steady state everything comes from one: to the orderer from the others, to the
//! others by multicast, to a caller from its server. So who sits waits in that socket's receive then, and the background
//! thread watches the rest. Where it turns out wrong the seat widens again, and takes longer to be convinced.

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
pub(crate) struct Focus {
    on: Option<u64>,
    /// The socket that the last datagrams came from one by one, and how many they were: without a focus, in a row.
    last: u64,
    lone: u32,
    /// What has come from elsewhere since it is focused.
    elsewhere: u32,
    /// So many datagrams in a row came alone while it is focused.
    alone: u32,
    /// How often in a row there was more than one datagram.
    burst: u32,
    /// Nothing comes any more.
    idle: bool,
    /// So many lone datagrams are a habit now.
    habit: u32,
}

impl Focus {
    pub(crate) fn new() -> Focus {
        Focus { on: None, last: 0, lone: 0, elsewhere: 0, alone: 0, burst: 0, idle: false, habit: HABIT_MIN }
    }

    /// The socket that it is focused on.
    pub(crate) fn on(&self) -> Option<u64> {
        self.on
    }

    /// Without a focus, so many datagrams came from this socket, and others only from those that are noted too.
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

    /// It is focused on that socket now.
    pub(crate) fn set(&mut self, socket: u64) {
        *self = Focus { on: Some(socket), habit: self.habit, ..Focus::new() };
    }

    /// While focused, so many datagrams came together; none, for as long as a wait may take. Returns whether to look if
    /// there are more.
    pub(crate) fn note_focused(&mut self, datagrams: usize) -> bool {
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

    /// Several datagrams went together to where others are received from that it is focused on.
    pub(crate) fn note_run(&mut self) {
        self.alone = 0;
    }

    /// While focused, datagrams come alone, so that the kernel need not look for others to put them together with.
    pub(crate) fn is_apart(&self) -> bool {
        self.alone >= APART_MIN
    }

    /// While focused, so many came from elsewhere.
    pub(crate) fn note_elsewhere(&mut self, datagrams: usize) {
        self.elsewhere = self.elsewhere.saturating_add(u32::try_from(datagrams).unwrap_or(u32::MAX));
    }

    /// What is focused on is not where everything comes from, one by one.
    pub(crate) fn is_wrong(&self) -> bool {
        self.idle || self.burst >= BURST || self.elsewhere > HABIT_MIN + self.lone / ELSEWHERE_PART
    }

    /// It is focused no more. `wrong`: since that was not where everything comes from.
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

    fn convinced(focus: &mut Focus, socket: u64) -> u32 {
        for count in 1.. {
            focus.note(socket, 1);
            if focus.candidate() == Some(socket) {
                focus.set(socket);
                return count;
            }
            assert!(count <= HABIT_MAX);
        }
        0
    }

    fn lone(focus: &mut Focus, count: u32) {
        for _ in 0..count {
            focus.note_focused(1);
        }
    }

    #[test]
    fn lone_datagrams_in_a_row_from_one_socket_are_a_habit() {
        let mut focus = Focus::new();
        for _ in 0..100 {
            focus.note(1, 1);
            focus.note(2, 1);
        }
        assert_eq!(focus.candidate(), None);
        for _ in 0..100 {
            (0..HABIT_MIN - 1).for_each(|_| focus.note(1, 1));
            focus.note(1, 2);
        }
        assert_eq!(focus.candidate(), None);
        // A wake for nothing changes nothing.
        (0..HABIT_MIN).for_each(|_| (focus.note(2, 1), focus.note(2, 0)).0);
        assert_eq!(focus.candidate(), Some(2));
        focus.set(2);
        assert_eq!((focus.on(), focus.candidate()), (Some(2), None));
        focus.clear(false);
        (1..HABIT_MIN).for_each(|_| focus.note(1, 1));
        focus.note(2, 0);
        focus.note(2, 1);
        assert_eq!(focus.candidate(), None);
    }

    #[test]
    fn bursts_and_what_comes_from_elsewhere_end_it() {
        let mut focus = Focus::new();
        convinced(&mut focus, 1);
        let looks = (0..640).filter(|_| focus.note_focused(1)).count();
        assert_eq!(looks, 10);
        assert!(focus.note_focused(2));
        for more in [1, 0, 1, 1, 1, 1, 1, 1, 1] {
            focus.note_look(more);
            assert!(!focus.is_wrong());
            assert_eq!(focus.note_focused(1), more > 0);
        }
        focus.note_look(1);
        assert!(focus.is_wrong());

        focus.clear(true);
        convinced(&mut focus, 1);
        focus.note_focused(0);
        assert!(focus.is_wrong());

        focus.clear(true);
        convinced(&mut focus, 1);
        lone(&mut focus, 160);
        focus.note_elsewhere(HABIT_MIN as usize + 10);
        assert!(!focus.is_wrong());
        focus.note_elsewhere(1);
        assert!(focus.is_wrong());
    }

    #[test]
    fn datagrams_are_apart_once_a_look_has_found_no_more_and_while_they_come_alone() {
        let mut focus = Focus::new();
        let begin: fn(&mut Focus) = |focus| focus.set(1);
        for company in [begin, |focus| focus.note_look(1), |focus| _ = focus.note_focused(2), Focus::note_run]
        {
            company(&mut focus);
            let mut looked = 0;
            for _ in 0..APART_MIN {
                assert!(!focus.is_apart());
                if focus.note_focused(1) {
                    focus.note_look(0);
                    looked += 1;
                }
            }
            assert!(focus.is_apart() && looked > 0);
        }
    }

    #[test]
    fn what_turned_out_wrong_takes_longer_until_it_turns_out_right() {
        let mut focus = Focus::new();
        for expected in [16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 4096] {
            assert_eq!(convinced(&mut focus, 1), expected);
            focus.clear(true);
        }
        convinced(&mut focus, 1);
        lone(&mut focus, HABIT_MAX + 1);
        focus.clear(false);
        assert_eq!(convinced(&mut focus, 1), HABIT_MIN);
    }
}

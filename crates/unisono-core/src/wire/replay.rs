//! Recognises datagrams that were received before.
//!
//! Every datagram of a sender has a packet number of its own. The window remembers which of the last 1,024 numbers were
//! taken. A number older than that counts as taken, because the window cannot tell.

/// Number of packet numbers that the window remembers, up to the highest taken.
pub const REPLAY_WINDOW: u64 = 1024;

const WORD_BITS: u64 = u64::BITS as u64;
const WORDS: usize = (REPLAY_WINDOW / WORD_BITS) as usize;

/// Which packet numbers of one sender have been taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayWindow {
    /// The highest number taken, plus one.
    end: u64,
    /// A bit for each number. Its position is the number modulo the window's size.
    taken: [u64; WORDS],
}

impl ReplayWindow {
    /// Returns a window that refuses every number below `number`. Packet numbers begin with 1.
    pub fn starting_at(number: u64) -> ReplayWindow {
        ReplayWindow { end: number, taken: [u64::MAX; WORDS] }
    }

    /// Returns the highest number taken; before the first one, the number below the start.
    pub fn highest(&self) -> u64 {
        self.end.saturating_sub(1)
    }

    /// Takes `number`, and returns true if it was not taken before. Call this only for datagrams that have been opened.
    /// Otherwise any process could move the window.
    pub fn fresh(&mut self, number: u64) -> bool {
        if number >= self.end {
            // The highest `u64` has no successor.
            let Some(end) = number.checked_add(1) else { return false };
            let skipped = number - self.end;
            if skipped >= REPLAY_WINDOW {
                self.taken = [0; WORDS];
            } else {
                (self.end..number).for_each(|number| self.forget(number));
            }
            self.end = end;
            self.take(number);
            return true;
        }
        if self.end - number > REPLAY_WINDOW || self.is_taken(number) {
            return false;
        }
        self.take(number);
        true
    }

    fn is_taken(&self, number: u64) -> bool {
        let (word, bit) = place(number);
        self.taken[word] & bit != 0
    }

    fn take(&mut self, number: u64) {
        let (word, bit) = place(number);
        self.taken[word] |= bit;
    }

    fn forget(&mut self, number: u64) {
        let (word, bit) = place(number);
        self.taken[word] &= !bit;
    }
}

/// Returns the index of the word for a number, and its bit in the word.
fn place(number: u64) -> (usize, u64) {
    let place = number % REPLAY_WINDOW;
    ((place / WORD_BITS) as usize, 1 << (place % WORD_BITS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    #[test]
    fn a_number_is_fresh_once() {
        let mut window = ReplayWindow::starting_at(1);
        for number in [1, 2, 5, 3, 4] {
            assert!(window.fresh(number), "{number}");
        }
        for number in 0..=5 {
            assert!(!window.fresh(number), "{number}");
        }
    }

    #[test]
    fn nothing_before_the_start_is_fresh() {
        let mut window = ReplayWindow::starting_at(5000);
        assert!(!window.fresh(4999));
        assert!(!window.fresh(4000));
        assert!(window.fresh(5001));
        assert!(window.fresh(5000));
        assert!(!window.fresh(4999));
    }

    #[test]
    fn the_window_ends_where_it_says() {
        let mut window = ReplayWindow::starting_at(0);
        assert!(window.fresh(10_000));
        assert!(window.fresh(10_001 - REPLAY_WINDOW));
        assert!(!window.fresh(10_000 - REPLAY_WINDOW));
    }

    #[test]
    fn the_highest_number_is_never_fresh() {
        let mut window = ReplayWindow::starting_at(1);
        assert!(!window.fresh(u64::MAX));
        assert!(window.fresh(u64::MAX - 1));
        assert!(!window.fresh(u64::MAX - 1));
    }

    proptest! {
        /// Compares the window with a set of all numbers ever taken, cut off at the window's end.
        #[test]
        fn the_window_agrees_with_a_perfect_memory(
            start in 0_u64..3000,
            steps in prop::collection::vec((0_u64..2500, any::<bool>()), 1..300),
        ) {
            let mut window = ReplayWindow::starting_at(start);
            let mut taken = BTreeSet::new();
            let mut end = start;
            for (step, forward) in steps {
                let number = if forward { end + step % 80 * (step % 40) } else { end.saturating_sub(step) };
                let known = number < start || number + REPLAY_WINDOW < end || !taken.insert(number);
                prop_assert_eq!(window.fresh(number), !known);
                end = end.max(number + 1);
            }
        }
    }
}

//! Salts: random numbers from the system that enter the keys with which this process seals, and change all the time.
//!
//! A uid and a packet number name one datagram for ever, as long as there is one copy of the process's memory. A copied
//! virtual machine has two: both go on with the same uid from the same packet number. The salt parts them, if the system
//! gives each of them other random numbers: at once where the hypervisor tells the kernel of the copy, and otherwise when the
//! kernel reseeds. Until then both may seal with one key and one nonce.

use std::time::{Duration, Instant};

/// How long a salt is used.
const SALT_LIFE: Duration = Duration::from_secs(1);
/// Maximum number of datagrams under one salt.
const SALT_USES: u32 = 1 << 20;

/// The present salt.
#[derive(Debug)]
pub(crate) struct Salt {
    value: u64,
    drawn_at: Instant,
    uses: u32,
}

impl Salt {
    pub(crate) fn new() -> Salt {
        let mut salt = Salt { value: 0, drawn_at: Instant::now(), uses: 0 };
        salt.draw(salt.drawn_at);
        salt
    }

    /// Returns the salt of the next datagram.
    #[inline]
    pub(crate) fn next(&mut self) -> u64 {
        self.next_at(Instant::now())
    }

    #[inline]
    fn next_at(&mut self, now: Instant) -> u64 {
        if self.uses == SALT_USES || now.saturating_duration_since(self.drawn_at) >= SALT_LIFE {
            self.draw(now);
        }
        self.uses += 1;
        self.value
    }

    #[cold]
    fn draw(&mut self, now: Instant) {
        let mut bytes = [0; 8];
        // The system refuses only before its first random numbers, and this process has had some: its uid. A salt that
        // stays is no danger to a process of which there is one copy.
        if getrandom::fill(&mut bytes).is_ok() {
            self.value = u64::from_ne_bytes(bytes);
        }
        (self.drawn_at, self.uses) = (now, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_salt_lasts_a_second_or_a_number_of_datagrams() {
        let mut salt = Salt::new();
        let begin = salt.drawn_at;
        let first = salt.next_at(begin);
        assert_eq!(salt.next_at(begin + SALT_LIFE - Duration::from_nanos(1)), first);
        let second = salt.next_at(begin + SALT_LIFE);
        assert_ne!(second, first);
        assert!((1..SALT_USES).all(|_| salt.next_at(begin + SALT_LIFE) == second));
        assert_ne!(salt.next_at(begin + SALT_LIFE), second);
    }

    #[test]
    fn two_copies_of_a_memory_draw_different_salts() {
        let original = Salt::new();
        let copy = || Salt { ..original };
        let later = original.drawn_at + SALT_LIFE;
        assert_ne!(copy().next_at(later), copy().next_at(later));
    }
}

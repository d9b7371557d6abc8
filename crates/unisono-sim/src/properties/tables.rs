//! Tables that grow on access: by life or epoch ([`Table`]), by seqno or message number ([`NumberTable`]), and sets
//! of lives ([`Lives`]). A lookup is one access to a vector, however long the run.

use crate::record::{Epoch, Life};

/// A key that counts up from 0 over a run.
pub(super) trait Counted {
    fn count(self) -> usize;
}

impl Counted for Life {
    fn count(self) -> usize {
        self.index()
    }
}

impl Counted for Epoch {
    fn count(self) -> usize {
        self.index()
    }
}

/// Values by life or epoch.
#[derive(Clone, Debug)]
pub(super) struct Table<T>(Vec<T>);

impl<T> Default for Table<T> {
    fn default() -> Table<T> {
        Table(Vec::new())
    }
}

impl<T: Default> Table<T> {
    /// Returns the value, and creates it first if needed.
    #[inline]
    pub(super) fn at(&mut self, key: impl Counted) -> &mut T {
        let index = key.count();
        if index < self.0.len() { &mut self.0[index] } else { self.grow(index) }
    }

    #[cold]
    fn grow(&mut self, index: usize) -> &mut T {
        self.0.resize_with(index + 1, T::default);
        &mut self.0[index]
    }

    /// Returns the value, if it was created.
    #[inline]
    pub(super) fn get(&self, key: impl Counted) -> Option<&T> {
        self.0.get(key.count())
    }

    /// Iterates over all values, in the order of their keys.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter()
    }
}

/// Values by seqno or by message number.
#[derive(Clone, Debug)]
pub(super) struct NumberTable<T> {
    first: u64,
    values: Vec<T>,
}

impl<T> Default for NumberTable<T> {
    fn default() -> NumberTable<T> {
        NumberTable { first: 0, values: Vec::new() }
    }
}

impl<T: Clone + Default> NumberTable<T> {
    /// Maximum distance of a number from all known ones. A number farther away is an error and gets no value.
    const LEAP_MAX: u64 = 1 << 20;
    /// Number of values that are created together.
    const AHEAD: usize = 32;

    /// Returns the value of a number, and creates it first if needed; `None` if the number is out of range.
    #[inline]
    pub(super) fn at(&mut self, number: u64) -> Option<&mut T> {
        let offset = number.wrapping_sub(self.first) as usize;
        if offset < self.values.len() {
            return self.values.get_mut(offset);
        }
        self.grow(number)
    }

    #[cold]
    fn grow_first(&mut self, number: u64) -> Option<&mut T> {
        let more = self.first - number;
        if more > Self::LEAP_MAX {
            return None;
        }
        self.values.splice(0..0, std::iter::repeat_n(T::default(), more as usize));
        self.first = number;
        self.values.first_mut()
    }

    #[cold]
    fn grow(&mut self, number: u64) -> Option<&mut T> {
        if self.values.is_empty() {
            self.first = number;
        }
        if number < self.first {
            return self.grow_first(number);
        }
        let offset = number - self.first;
        if offset > self.values.len() as u64 + Self::LEAP_MAX {
            return None;
        }
        // Most often the next number is asked for, then the one after it.
        self.values.resize(offset as usize + Self::AHEAD, T::default());
        self.values.get_mut(offset as usize)
    }

    /// Returns the value of a number, if it was created.
    #[inline]
    pub(super) fn get(&self, number: u64) -> Option<&T> {
        self.values.get(number.checked_sub(self.first)? as usize)
    }
}

/// A set of lives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Lives(Vec<u64>);

impl Lives {
    #[inline]
    pub(super) fn contains(&self, life: Life) -> bool {
        self.0.get(life.index() / 64).is_some_and(|word| word >> (life.index() % 64) & 1 == 1)
    }

    pub(super) fn insert(&mut self, life: Life) {
        let word = life.index() / 64;
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (life.index() % 64);
    }

    pub(super) fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    pub(super) fn remove(&mut self, life: Life) {
        if let Some(word) = self.0.get_mut(life.index() / 64) {
            *word &= !(1 << (life.index() % 64));
        }
    }
}

impl FromIterator<Life> for Lives {
    fn from_iter<I: IntoIterator<Item = Life>>(lives: I) -> Lives {
        let mut set = Lives::default();
        lives.into_iter().for_each(|life| set.insert(life));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_tables_grow_at_both_ends_within_limits() {
        let mut table = NumberTable::default();
        *table.at(100).unwrap() = 'a';
        *table.at(103).unwrap() = 'd';
        *table.at(98).unwrap() = 'y';
        assert_eq!([98, 99, 100, 103].map(|p| *table.get(p).unwrap()), ['y', '\0', 'a', 'd']);
        assert_eq!(table.get(97), None);
        assert_eq!(table.get(103 + 64), None);
        assert!(table.at(u64::MAX).is_none());
        assert!(table.at(103 + (1 << 21)).is_none());
    }

    #[test]
    fn sets_of_lives() {
        let mut lives: Lives = [Life(3), Life(70)].into_iter().collect();
        assert!(lives.contains(Life(3)) && lives.contains(Life(70)));
        assert!(!lives.contains(Life(2)) && !lives.contains(Life(700)));
        lives.remove(Life(70));
        assert!(!lives.contains(Life(70)));
    }
}

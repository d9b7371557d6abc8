//! Tables that grow as they are asked: by life or epoch ([`Table`]), by place or message number ([`Places`]), and
//! sets of lives ([`Lives`]). Lookups cost an index, whatever the run.

use crate::record::{Epoch, Life};

/// What counts up from 0 over a run.
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
    /// The value, made if there is none yet.
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

    /// The value, if there is one.
    #[inline]
    pub(super) fn get(&self, key: impl Counted) -> Option<&T> {
        self.0.get(key.count())
    }

    /// All values, in the order of their keys.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter()
    }
}

/// Values by place in the order, or by message number.
#[derive(Clone, Debug)]
pub(super) struct Places<T> {
    first: u64,
    values: Vec<T>,
}

impl<T> Default for Places<T> {
    fn default() -> Places<T> {
        Places { first: 0, values: Vec::new() }
    }
}

impl<T: Clone + Default> Places<T> {
    /// Farther than this from all known ones, a place is nonsense rather than a place.
    const LEAP_MAX: u64 = 1 << 20;
    /// So many values are made in one go.
    const AHEAD: usize = 32;

    /// The value at a place, made if there is none yet; nothing if the place is beyond all reason.
    #[inline]
    pub(super) fn at(&mut self, place: u64) -> Option<&mut T> {
        let offset = place.wrapping_sub(self.first) as usize;
        if offset < self.values.len() {
            return self.values.get_mut(offset);
        }
        self.grow(place)
    }

    #[cold]
    fn grow_first(&mut self, place: u64) -> Option<&mut T> {
        let more = self.first - place;
        if more > Self::LEAP_MAX {
            return None;
        }
        self.values.splice(0..0, std::iter::repeat_n(T::default(), more as usize));
        self.first = place;
        self.values.first_mut()
    }

    #[cold]
    fn grow(&mut self, place: u64) -> Option<&mut T> {
        if self.values.is_empty() {
            self.first = place;
        }
        if place < self.first {
            return self.grow_first(place);
        }
        let offset = place - self.first;
        if offset > self.values.len() as u64 + Self::LEAP_MAX {
            return None;
        }
        // Mostly the next one, and then the one after that.
        self.values.resize(offset as usize + Self::AHEAD, T::default());
        self.values.get_mut(offset as usize)
    }

    /// The value at a place, if one was made, there or a little farther.
    #[inline]
    pub(super) fn get(&self, place: u64) -> Option<&T> {
        self.values.get(place.checked_sub(self.first)? as usize)
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
    fn places_grow_at_both_ends_and_not_beyond_reason() {
        let mut places = Places::default();
        *places.at(100).unwrap() = 'a';
        *places.at(103).unwrap() = 'd';
        *places.at(98).unwrap() = 'y';
        assert_eq!([98, 99, 100, 103].map(|p| *places.get(p).unwrap()), ['y', '\0', 'a', 'd']);
        assert_eq!(places.get(97), None);
        assert_eq!(places.get(103 + 64), None);
        assert!(places.at(u64::MAX).is_none());
        assert!(places.at(103 + (1 << 21)).is_none());
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

//! A small sorted table in contiguous memory, keyed mostly by uid. It is iterated in the same order on every machine.

use crate::identity::Uid;
use alloc::vec::Vec;

/// Keys and their values, ascending by key. The keys lie apart from the values, so that a search touches as little
/// memory as possible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table<T, K = Uid> {
    keys: Vec<K>,
    values: Vec<T>,
}

impl<T, K> Default for Table<T, K> {
    fn default() -> Table<T, K> {
        Table { keys: Vec::new(), values: Vec::new() }
    }
}

impl<T, K: Copy + Ord> Table<T, K> {
    #[inline]
    fn find(&self, key: K) -> Result<usize, usize> {
        // Groups are small: a scan of a few words is faster than a search.
        if self.keys.len() <= 8 {
            for (index, &known) in self.keys.iter().enumerate() {
                if known >= key {
                    return if known == key { Ok(index) } else { Err(index) };
                }
            }
            return Err(self.keys.len());
        }
        self.keys.binary_search(&key)
    }

    #[inline(never)]
    fn insert_at(&mut self, index: usize, key: K, value: T) {
        self.keys.insert(index, key);
        self.values.insert(index, value);
    }

    #[inline]
    pub(crate) fn get(&self, key: K) -> Option<&T> {
        self.find(key).ok().map(|index| &self.values[index])
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: K) -> Option<&mut T> {
        self.find(key).ok().map(|index| &mut self.values[index])
    }

    #[inline]
    pub(crate) fn contains(&self, key: K) -> bool {
        self.find(key).is_ok()
    }

    #[inline]
    pub(crate) fn insert(&mut self, key: K, value: T) {
        match self.find(key) {
            Ok(index) => self.values[index] = value,
            Err(index) => self.insert_at(index, key, value),
        }
    }

    pub(crate) fn get_or_insert_with(&mut self, key: K, value: impl FnOnce() -> T) -> &mut T {
        let index = match self.find(key) {
            Ok(index) => index,
            Err(index) => {
                self.insert_at(index, key, value());
                index
            }
        };
        &mut self.values[index]
    }

    pub(crate) fn remove(&mut self, key: K) -> Option<T> {
        self.find(key).ok().map(|index| {
            self.keys.remove(index);
            self.values.remove(index)
        })
    }

    pub(crate) fn retain(&mut self, mut keep: impl FnMut(K, &mut T) -> bool) {
        let mut index = 0;
        while index < self.keys.len() {
            if keep(self.keys[index], &mut self.values[index]) {
                index += 1;
            } else {
                self.keys.remove(index);
                self.values.remove(index);
            }
        }
    }

    pub(crate) fn clear(&mut self) {
        self.keys.clear();
        self.values.clear();
    }

    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = (K, &T)> {
        self.keys.iter().copied().zip(&self.values)
    }

    /// Returns all entries once, from the one that follows this key on.
    pub(crate) fn after(&self, key: K) -> impl Iterator<Item = (K, &T)> {
        let next = self.keys.partition_point(|known| *known <= key);
        (next..self.keys.len()).chain(0..next).map(|index| (self.keys[index], &self.values[index]))
    }

    #[inline]
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (K, &mut T)> {
        self.keys.iter().copied().zip(&mut self.values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_was_put_in_and_iterates_in_order() {
        for size in [3u64, 40] {
            let mut table = Table::default();
            for key in (0..size).rev() {
                table.insert(Uid(key * 7 % size.max(1) + key * 100), key);
            }
            let keys: Vec<Uid> = table.iter().map(|(uid, _)| uid).collect();
            assert!(keys.windows(2).all(|pair| pair[0] < pair[1]));
            for &uid in &keys {
                assert!(table.get(uid).is_some());
                assert!(!table.contains(Uid(uid.0 + 50)));
            }
            let after: Vec<Uid> = table.after(keys[1]).map(|(uid, _)| uid).collect();
            assert_eq!(after, [&keys[2..], &keys[..2]].concat());
            assert_eq!(table.remove(keys[1]).map(|_| table.len()), Some(size as usize - 1));
        }
    }
}

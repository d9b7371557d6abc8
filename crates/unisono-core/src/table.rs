//! A small table keyed by uid: sorted, in one piece of memory, iterated in the same order everywhere.

use crate::identity::Uid;
use alloc::vec::Vec;

/// Uids and what belongs to them, ascending by uid. The uids lie apart from what belongs to them, so that looking for
/// one touches no more memory than it must.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table<T> {
    uids: Vec<Uid>,
    values: Vec<T>,
}

impl<T> Default for Table<T> {
    fn default() -> Table<T> {
        Table { uids: Vec::new(), values: Vec::new() }
    }
}

impl<T> Table<T> {
    #[inline]
    fn find(&self, uid: Uid) -> Result<usize, usize> {
        // Groups are small: a scan of a few words beats a search.
        if self.uids.len() <= 8 {
            for (index, &known) in self.uids.iter().enumerate() {
                if known >= uid {
                    return if known == uid { Ok(index) } else { Err(index) };
                }
            }
            return Err(self.uids.len());
        }
        self.uids.binary_search(&uid)
    }

    fn insert_at(&mut self, index: usize, uid: Uid, value: T) {
        self.uids.insert(index, uid);
        self.values.insert(index, value);
    }

    #[inline]
    pub(crate) fn get(&self, uid: Uid) -> Option<&T> {
        self.find(uid).ok().map(|index| &self.values[index])
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, uid: Uid) -> Option<&mut T> {
        self.find(uid).ok().map(|index| &mut self.values[index])
    }

    #[inline]
    pub(crate) fn contains(&self, uid: Uid) -> bool {
        self.find(uid).is_ok()
    }

    #[inline]
    pub(crate) fn insert(&mut self, uid: Uid, value: T) {
        match self.find(uid) {
            Ok(index) => self.values[index] = value,
            Err(index) => self.insert_at(index, uid, value),
        }
    }

    pub(crate) fn get_or_insert_with(&mut self, uid: Uid, value: impl FnOnce() -> T) -> &mut T {
        let index = match self.find(uid) {
            Ok(index) => index,
            Err(index) => {
                self.insert_at(index, uid, value());
                index
            }
        };
        &mut self.values[index]
    }

    pub(crate) fn remove(&mut self, uid: Uid) -> Option<T> {
        self.find(uid).ok().map(|index| {
            self.uids.remove(index);
            self.values.remove(index)
        })
    }

    pub(crate) fn retain(&mut self, mut keep: impl FnMut(Uid, &mut T) -> bool) {
        let mut index = 0;
        while index < self.uids.len() {
            if keep(self.uids[index], &mut self.values[index]) {
                index += 1;
            } else {
                self.uids.remove(index);
                self.values.remove(index);
            }
        }
    }

    pub(crate) fn clear(&mut self) {
        self.uids.clear();
        self.values.clear();
    }

    pub(crate) fn len(&self) -> usize {
        self.uids.len()
    }

    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Uid, &T)> {
        self.uids.iter().copied().zip(&self.values)
    }

    #[inline]
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (Uid, &mut T)> {
        self.uids.iter().copied().zip(&mut self.values)
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
            assert_eq!(table.remove(keys[1]).map(|_| table.len()), Some(size as usize - 1));
        }
    }
}

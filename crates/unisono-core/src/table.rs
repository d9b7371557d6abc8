//! A small table keyed by uid: sorted, in one piece of memory, iterated in the same order everywhere.

use crate::identity::Uid;
use alloc::vec::Vec;

/// Uids and what belongs to them, ascending by uid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table<T> {
    rows: Vec<(Uid, T)>,
}

impl<T> Default for Table<T> {
    fn default() -> Table<T> {
        Table { rows: Vec::new() }
    }
}

impl<T> Table<T> {
    fn find(&self, uid: Uid) -> Result<usize, usize> {
        // Groups are small: a scan of a few words beats a search.
        if self.rows.len() <= 8 {
            for (index, row) in self.rows.iter().enumerate() {
                if row.0 >= uid {
                    return if row.0 == uid { Ok(index) } else { Err(index) };
                }
            }
            return Err(self.rows.len());
        }
        self.rows.binary_search_by(|row| row.0.cmp(&uid))
    }

    pub(crate) fn get(&self, uid: Uid) -> Option<&T> {
        self.find(uid).ok().map(|index| &self.rows[index].1)
    }

    pub(crate) fn get_mut(&mut self, uid: Uid) -> Option<&mut T> {
        self.find(uid).ok().map(|index| &mut self.rows[index].1)
    }

    pub(crate) fn contains(&self, uid: Uid) -> bool {
        self.find(uid).is_ok()
    }

    pub(crate) fn insert(&mut self, uid: Uid, value: T) {
        match self.find(uid) {
            Ok(index) => self.rows[index].1 = value,
            Err(index) => self.rows.insert(index, (uid, value)),
        }
    }

    pub(crate) fn get_or_insert_with(&mut self, uid: Uid, value: impl FnOnce() -> T) -> &mut T {
        let index = match self.find(uid) {
            Ok(index) => index,
            Err(index) => {
                self.rows.insert(index, (uid, value()));
                index
            }
        };
        &mut self.rows[index].1
    }

    pub(crate) fn remove(&mut self, uid: Uid) -> Option<T> {
        self.find(uid).ok().map(|index| self.rows.remove(index).1)
    }

    pub(crate) fn retain(&mut self, mut keep: impl FnMut(Uid, &mut T) -> bool) {
        self.rows.retain_mut(|row| keep(row.0, &mut row.1));
    }

    pub(crate) fn clear(&mut self) {
        self.rows.clear();
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Uid, &T)> {
        self.rows.iter().map(|row| (row.0, &row.1))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (Uid, &mut T)> {
        self.rows.iter_mut().map(|row| (row.0, &mut row.1))
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

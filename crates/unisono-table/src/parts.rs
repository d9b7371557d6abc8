//! Parts of records that a table keeps encoded from one snapshot to the next: a snapshot of millions of rows takes what it
//! takes to encode those that changed.
//!
//! The records are one sequence, cut into parts by a rule that looks at a part's own records and at the one behind them
//! ([`super::snapshot`]). So a part stays as it is until one of its records changes, or the record behind it goes.

use crate::capability::ObjectNumber;
use crate::name::Name;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use bytes::Bytes;
use core::ops::Bound;

/// Where a record is in the sequence: the object's own comes first, then those of its rows by name.
pub(crate) type Key = (ObjectNumber, Option<Name>);

/// The parts of a table's records. It begins empty, and then no change costs anything.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    /// Where parts begin, and their bytes; `None` if a record has changed since.
    starts: BTreeMap<Key, Option<Bytes>>,
    /// Those without bytes.
    changed: BTreeSet<Key>,
}

impl Parts {
    // --- changes of the table ---

    /// Notes that a record is new or has changed.
    pub(crate) fn note_changed(&mut self, key: Key) {
        if let Some((start, part)) = self.starts.range_mut(..=key).next_back()
            && part.take().is_some()
        {
            self.changed.insert(start.clone());
        }
    }

    /// Notes that a record is gone. A part that began with it goes on in the one before.
    pub(crate) fn note_removed(&mut self, key: Key) {
        self.forget(&key);
        self.note_changed(key);
    }

    /// Notes that an object is gone with all its rows.
    pub(crate) fn note_object_removed(&mut self, object: ObjectNumber) {
        let behind = (ObjectNumber(object.0.saturating_add(1)), None);
        let starts: Vec<Key> =
            self.starts.range((object, None)..behind).map(|(key, _)| key.clone()).collect();
        starts.iter().for_each(|key| self.forget(key));
        self.note_changed((object, None));
    }

    // --- encoding ---

    /// Returns the part that begins here, and where the next one begins, if no record of it has changed.
    pub(crate) fn kept(&self, start: &Key) -> Option<(&Bytes, Option<&Key>)> {
        let part = self.starts.get(start)?.as_ref()?;
        Some((part, self.behind(start)))
    }

    /// Returns where a part begins that is to be encoded anew. `first` is where the sequence begins.
    pub(crate) fn next_to_encode(&mut self, first: Key) -> Option<Key> {
        if self.starts.first_key_value().is_none_or(|(start, _)| *start != first) {
            self.begin(first);
        }
        self.changed.first().cloned()
    }

    /// Keeps a part. The next one begins at `next`, if it is not the last.
    pub(crate) fn keep(&mut self, start: Key, part: Bytes, next: Option<Key>) {
        while let Some(inner) = self.behind(&start).filter(|inner| next.as_ref() != Some(inner)).cloned() {
            if next.as_ref().is_some_and(|next| *next < inner) {
                break;
            }
            self.forget(&inner);
        }
        self.changed.remove(&start);
        self.starts.insert(start, Some(part));
        next.into_iter().for_each(|next| self.begin(next));
    }

    /// Forgets all parts: the sequence has no record.
    pub(crate) fn clear(&mut self) {
        *self = Parts::default();
    }

    fn begin(&mut self, start: Key) {
        if !self.starts.contains_key(&start) {
            self.starts.insert(start.clone(), None);
            self.changed.insert(start);
        }
    }

    fn forget(&mut self, start: &Key) {
        self.starts.remove(start);
        self.changed.remove(start);
    }

    /// Returns where the part behind this one begins.
    fn behind(&self, start: &Key) -> Option<&Key> {
        let behind = self.starts.range::<Key, _>((Bound::Excluded(start), Bound::Unbounded)).next();
        behind.map(|(key, _)| key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn key(object: u64) -> Key {
        (ObjectNumber(object), None)
    }

    /// Parts that begin at 1, 5 and 9.
    fn three() -> Parts {
        let mut parts = Parts::default();
        assert_eq!(parts.next_to_encode(key(1)), Some(key(1)));
        parts.keep(key(1), Bytes::from_static(b"1"), Some(key(5)));
        parts.keep(key(5), Bytes::from_static(b"5"), Some(key(9)));
        parts.keep(key(9), Bytes::from_static(b"9"), None);
        assert_eq!(parts.next_to_encode(key(1)), None);
        parts
    }

    fn starts(parts: &Parts) -> Vec<u64> {
        parts.starts.keys().map(|(object, _)| object.0).collect()
    }

    fn changed(parts: &Parts) -> Vec<u64> {
        parts.changed.iter().map(|(object, _)| object.0).collect()
    }

    #[test]
    fn a_change_concerns_the_part_that_has_it() {
        let mut parts = three();
        assert_eq!(parts.kept(&key(5)), Some((&Bytes::from_static(b"5"), Some(&key(9)))));
        parts.note_changed(key(7));
        parts.note_changed(key(8));
        parts.note_changed(key(20));
        assert_eq!((starts(&parts), changed(&parts)), (vec![1, 5, 9], vec![5, 9]));
        assert_eq!(parts.kept(&key(5)), None);
    }

    #[test]
    fn the_part_before_goes_on_where_the_first_record_of_a_part_goes() {
        let mut parts = three();
        parts.note_removed(key(5));
        assert_eq!((starts(&parts), changed(&parts)), (vec![1, 9], vec![1]));
        parts.note_object_removed(ObjectNumber(9));
        assert_eq!((starts(&parts), changed(&parts)), (vec![1], vec![1]));
    }

    #[test]
    fn a_part_that_grows_takes_others_in_and_one_that_shrinks_leaves_another() {
        let mut parts = three();
        parts.keep(key(1), Bytes::from_static(b"1"), Some(key(6)));
        assert_eq!((starts(&parts), changed(&parts)), (vec![1, 6, 9], vec![6]));
        parts.keep(key(6), Bytes::from_static(b"6"), None);
        assert_eq!((starts(&parts), changed(&parts)), (vec![1, 6], vec![]));
    }

    #[test]
    fn the_sequence_may_begin_elsewhere() {
        let mut parts = three();
        parts.note_removed(key(1));
        assert_eq!(parts.next_to_encode(key(2)), Some(key(2)));
    }
}

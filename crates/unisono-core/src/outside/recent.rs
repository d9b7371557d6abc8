//! A map with a maximum size, which forgets the entry that was used longest ago.

use crate::identity::Uid;
use alloc::collections::BTreeMap;

/// The map. Uses are counted: there is no clock.
#[derive(Clone, Debug)]
pub(super) struct Recent<T> {
    entries: BTreeMap<Uid, (u64, T)>,
    /// The use at which each entry was used last.
    by_use: BTreeMap<u64, Uid>,
    uses: u64,
    max: usize,
}

impl<T> Recent<T> {
    pub(super) fn new(max: usize) -> Recent<T> {
        Recent { entries: BTreeMap::new(), by_use: BTreeMap::new(), uses: 0, max }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn get(&self, client: Uid) -> Option<&T> {
        self.entries.get(&client).map(|(_, entry)| entry)
    }

    /// Returns an entry without using it.
    pub(super) fn get_mut(&mut self, client: Uid) -> Option<&mut T> {
        self.entries.get_mut(&client).map(|(_, entry)| entry)
    }

    /// Uses an entry.
    pub(super) fn touch(&mut self, client: Uid) -> Option<&mut T> {
        let (used, entry) = self.entries.get_mut(&client)?;
        self.by_use.remove(used);
        self.uses += 1;
        *used = self.uses;
        self.by_use.insert(self.uses, client);
        Some(entry)
    }

    /// Stores an entry, which is used by that. Returns the entry that is forgotten for it, if any.
    pub(super) fn insert(&mut self, client: Uid, entry: T) -> Option<(Uid, T)> {
        self.remove(client);
        let oldest = self.by_use.first_key_value().map(|(_, &oldest)| oldest);
        let forgotten = oldest
            .filter(|_| self.entries.len() >= self.max)
            .and_then(|oldest| self.remove(oldest).map(|entry| (oldest, entry)));
        self.uses += 1;
        self.entries.insert(client, (self.uses, entry));
        self.by_use.insert(self.uses, client);
        forgotten
    }

    pub(super) fn remove(&mut self, client: Uid) -> Option<T> {
        let (used, entry) = self.entries.remove(&client)?;
        self.by_use.remove(&used);
        Some(entry)
    }

    /// Removes all entries and returns them.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = (Uid, T)> + use<T> {
        self.by_use.clear();
        core::mem::take(&mut self.entries).into_iter().map(|(client, (_, entry))| (client, entry))
    }

    pub(super) fn clients(&self) -> impl Iterator<Item = (Uid, &T)> {
        self.entries.iter().map(|(client, (_, entry))| (*client, entry))
    }
}

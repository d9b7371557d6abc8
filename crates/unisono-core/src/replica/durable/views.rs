//! With durability *one*: which servers' disks count at present (KTV93 §3.2).
//!
//! One disk is enough for an answer, so after a crash of all servers that disk must be there again. Each server writes on
//! its disk whose disks count: the *view*. Servers that come back look for the highest view that any of them has written,
//! and wait for its members. So a view may serve only when all its members have written it, each after the log below it.
//! Until then nothing is applied.
//!
//! A member of the group whose disk lacks the state is not in the view. A view of less than a majority of the servers
//! serves nothing: any two majorities share a server, which knows of the view of the other one.

use super::super::Watched;
use crate::planted::Planted;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use bytes::{Buf, BufMut, Bytes};

/// The present view, and which of its members have written it. See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Views {
    /// Its number in the generation of the log.
    number: u64,
    members: BTreeSet<u8>,
    wrote: BTreeSet<u8>,
}

impl Views {
    /// Begins with the servers that have adopted the state of a generation, and written this view with it.
    pub(super) fn begin(&mut self, members: BTreeSet<u8>) {
        *self = Views { number: 0, wrote: members.clone(), members };
    }

    /// Adds a server whose disk has the state.
    pub(super) fn add(&mut self, server: u8, watched: Watched) {
        if watched.broken(Planted::JoinerCountedEarly) {
            self.members.insert(server);
            self.wrote.insert(server);
            return;
        }
        let mut members = self.members.clone();
        members.insert(server);
        self.change(members, watched);
    }

    /// Removes the servers that are no members of the group any more.
    pub(super) fn keep(&mut self, here: &BTreeSet<u8>, watched: Watched) {
        self.change(self.members.intersection(here).copied().collect(), watched);
    }

    fn change(&mut self, members: BTreeSet<u8>, watched: Watched) {
        if members != self.members {
            let wrote =
                if watched.broken(Planted::ViewUnwritten) { members.clone() } else { BTreeSet::new() };
            *self = Views { number: self.number + 1, members, wrote };
        }
    }

    /// Notes that a server has written the view with this number.
    pub(super) fn note_written(&mut self, server: u8, number: u64) {
        if number == self.number {
            self.wrote.insert(server);
        }
    }

    /// True if the view may serve. `me` is the server that asks.
    pub(super) fn is_installed(&self, servers: u8, me: u8, watched: Watched) -> bool {
        let is_written = match watched.broken(Planted::ViewWrittenByOne) {
            true => self.wrote.contains(&me),
            false => self.members.is_subset(&self.wrote),
        };
        is_written && 2 * self.members.len() > usize::from(servers)
    }

    pub(super) fn members(&self) -> impl Iterator<Item = &u8> {
        self.members.iter()
    }

    /// Returns number and members.
    pub(super) fn present(&self) -> (u64, Vec<u8>) {
        (self.number, self.members.iter().copied().collect())
    }

    // --- for a newcomer ---

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.put_u64(self.number);
        for servers in [&self.members, &self.wrote] {
            out.put_u8(servers.len() as u8);
            servers.iter().for_each(|server| out.put_u8(*server));
        }
    }

    pub(super) fn read(from: &mut Bytes) -> Option<Views> {
        let mut views = Views { number: from.try_get_u64().ok()?, ..Views::default() };
        for servers in [&mut views.members, &mut views.wrote] {
            for _ in 0..from.try_get_u8().ok()? {
                servers.insert(from.try_get_u8().ok()?);
            }
        }
        Some(views)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn installed(views: &Views) -> bool {
        views.is_installed(3, 1, Watched::default())
    }

    #[test]
    fn a_view_serves_when_all_its_members_have_written_it() {
        let (mut views, watched) = (Views::default(), Watched::default());
        views.begin([1, 2, 3].into());
        assert!(installed(&views));
        views.keep(&[1, 2].into(), watched);
        views.note_written(1, 1);
        views.note_written(2, 0);
        assert!(!installed(&views), "2 has written the one before");
        views.note_written(2, 1);
        assert!(installed(&views));
        views.add(3, watched);
        [1, 2].into_iter().for_each(|server| views.note_written(server, 2));
        assert!(!installed(&views), "the joiner has not written it");
        views.note_written(3, 2);
        assert!(installed(&views));
        // The same members are no other view.
        views.keep(&[1, 2, 3].into(), watched);
        assert_eq!((views.present(), installed(&views)), ((2, [1, 2, 3].into()), true));
    }

    #[test]
    fn a_view_without_a_majority_serves_nothing() {
        let (mut views, watched) = (Views::default(), Watched::default());
        views.begin([1, 2, 3].into());
        views.keep(&[1].into(), watched);
        views.note_written(1, 1);
        assert!(!installed(&views));
    }
}

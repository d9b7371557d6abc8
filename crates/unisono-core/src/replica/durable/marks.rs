//! Marks: what each server says of its disk, with durability *majority*.
//!
//! A mark is a fact that only grows: this server's disk has the log of a generation through a place. Accepted entries never
//! change within a generation, and a server that takes over another state does so under a new one. So marks need no place
//! in the order: they are notes of the group, and a server may count any of them at any time or never. One of another
//! generation counts for nothing.
//!
//! A mark may come before this server has opened the generation that it speaks of. The last one of each member is kept until
//! then, since the group does not hand it out twice.

use super::entry::Place;
use crate::identity::Uid;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use bytes::{Buf, BufMut, Bytes};

/// A mark. See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Mark {
    pub(in super::super) generation: u64,
    /// The disk has the log through here.
    pub(in super::super) place: Place,
}

impl Mark {
    pub(in super::super) fn write(self) -> Bytes {
        let mut out = Vec::with_capacity(16);
        out.put_u64(self.generation);
        out.put_u64(self.place);
        out.into()
    }

    /// Returns the mark, or `None` if the bytes are not valid.
    pub(in super::super) fn read(mut from: Bytes) -> Option<Mark> {
        let mark = Mark { generation: from.try_get_u64().ok()?, place: from.try_get_u64().ok()? };
        from.is_empty().then_some(mark)
    }
}

/// The marks of one life. See the module.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct Marks {
    /// The last one of each other member.
    theirs: BTreeMap<Uid, Mark>,
    /// Place of the last entry that another server waits for to answer its caller.
    awaited: Place,
    /// Place of the own mark that went out last.
    said: Place,
}

impl Marks {
    /// Begins a life in a group: its members have said nothing yet.
    pub(super) fn begin_life(&mut self) {
        *self = Marks::default();
    }

    /// Keeps the mark of a member.
    pub(in super::super) fn keep(&mut self, member: Uid, mark: Mark) {
        self.theirs.insert(member, mark);
    }

    /// Forgets those of processes that are no members any more.
    pub(in super::super) fn retain(&mut self, is_member: impl Fn(Uid) -> bool) {
        self.theirs.retain(|member, _| is_member(*member));
    }

    /// Returns the last mark of each other member.
    pub(in super::super) fn theirs(&self) -> Vec<(Uid, Mark)> {
        self.theirs.iter().map(|(member, mark)| (*member, *mark)).collect()
    }

    /// Notes that another server waits for the disks to have the entry at this place.
    pub(in super::super) fn note_awaited(&mut self, place: Place) {
        self.awaited = place.max(self.awaited);
    }

    /// Notes that the own mark goes out. Returns whether another server waits for it, so that it has to go at once.
    pub(super) fn say(&mut self, place: Place) -> bool {
        let before = core::mem::replace(&mut self.said, place);
        self.awaited.min(place) > before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_as_it_was_written_and_nothing_shorter_or_longer_is() {
        let mark = Mark { generation: 3, place: 70 };
        let bytes = mark.write();
        assert_eq!(Mark::read(bytes.clone()), Some(mark));
        assert!((0..bytes.len()).all(|end| Mark::read(bytes.slice(..end)).is_none()));
        assert_eq!(Mark::read([&bytes[..], b"x"].concat().into()), None);
    }

    #[test]
    fn a_mark_goes_at_once_if_another_server_waits_for_it() {
        let mut marks = Marks::default();
        assert!(!marks.say(3), "only this server waits");
        marks.note_awaited(5);
        assert!(marks.say(4), "part of what is awaited may be enough for an answer");
        assert!(marks.say(6));
        assert!(!marks.say(7));
    }
}

//! The watches of clients: each follows a directory from a position on, and goes on at any server after a failure. A program
//! keeps its position and resumes the watch in a later process.

use super::Book;
use crate::draw::Draw;
use bytes::Bytes;
use unisono_core::Random;
use unisono_table::{Capability, Followed, Follower, Lost, Place, Position, Query, Reply, Request};

/// A client that watches a directory.
#[derive(Clone, Debug)]
pub(crate) struct Watcher {
    directory: Capability,
    /// The number from which it asks for changes, and the instance that gave it: that of its first answer.
    from: u64,
    instance: Option<u64>,
    /// Number of the last change that it got.
    last: u64,
    /// True if it does not go on any more.
    is_over: bool,
}

/// What a watcher does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// It asks again.
    Asks,
    /// The server is behind: it asks again a moment later.
    Waits,
    Ends,
    /// Its position is none of the instance that answered: what came does not count, and it ends.
    OtherInstance,
}

impl Watcher {
    /// Draws what a client watches: a directory of which it knows a capability, from a while ago on.
    pub(crate) fn draw(random: &mut Random, book: &Book) -> Watcher {
        let directory = if random.chance(0.5) { book.root } else { book.good(random) };
        let from = (book.number + 1).saturating_sub(random.pick(&[0, 5, 40, 400, 4_000])).max(1);
        Watcher { directory, from, instance: None, last: 0, is_over: false }
    }

    /// True if a later process may resume it.
    pub(crate) fn has_position(&self) -> bool {
        self.instance.is_some() && !self.is_over
    }

    /// Returns what it asks for.
    pub(crate) fn request(&self) -> Bytes {
        let place = Place::of(self.directory);
        Request::LocalQuery(Query::Changes { place, from: self.from }).encode()
    }

    /// Takes a reply of a service of this instance. With `trusts`, as a planted bug does, it takes that for its own.
    pub(crate) fn take(&mut self, instance: Option<u64>, reply: &Bytes, trusts: bool) -> Next {
        let Some((reply, instance)) = Reply::decode(reply).zip(instance) else { return Next::Ends };
        let own = match trusts {
            true => instance,
            false => *self.instance.get_or_insert(instance),
        };
        self.instance.get_or_insert(instance);
        let mut follower = Follower::new(self.directory, Position { instance: own, number: self.from });
        let followed = follower.take(Some(instance), reply.result);
        self.from = follower.position().number;
        self.is_over = followed.is_err();
        match followed {
            Ok(Followed::Changes(changes)) => {
                self.last = changes.last().map_or(self.last, |change| change.number);
                Next::Asks
            }
            Ok(Followed::Behind) => Next::Waits,
            Err(Lost::OtherInstance) => Next::OtherInstance,
            Err(_) => Next::Ends,
        }
    }

    /// Goes back to the last change that it got, as a planted bug does.
    pub(crate) fn go_back(&mut self) {
        if self.last > 0 {
            self.from = self.last;
        }
    }
}

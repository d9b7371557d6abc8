//! The watches of clients: each follows a directory from a number on, and goes on at any server after a failure.

use super::Book;
use crate::draw::Draw;
use bytes::Bytes;
use unisono_core::Random;
use unisono_table::{Answer, Place, Reason, Reply};

/// A client that watches a directory.
#[derive(Clone, Debug)]
pub(crate) struct Watcher {
    pub(crate) place: Place,
    /// The number from which it asks for changes.
    pub(crate) from: u64,
    /// Number of the last change that it got.
    last: u64,
}

/// What a watcher does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// It asks again.
    Asks,
    /// The server is behind: it asks again a moment later.
    Waits,
    Ends,
}

impl Watcher {
    /// Draws what a client watches: a directory of which it knows a capability, from a while ago on.
    pub(crate) fn draw(random: &mut Random, book: &Book) -> Watcher {
        let place = Place::of(if random.chance(0.5) { book.root } else { book.good(random) });
        let from = (book.number + 1).saturating_sub(random.pick(&[0, 5, 40, 400, 4_000])).max(1);
        Watcher { place, from, last: 0 }
    }

    /// Takes a reply.
    pub(crate) fn take(&mut self, reply: &Bytes) -> Next {
        match Reply::decode(reply).map(|reply| reply.result) {
            Some(Ok(Answer::Changes { changes, next })) => {
                self.last = changes.last().map_or(self.last, |change| change.number);
                self.from = self.from.max(next);
                Next::Asks
            }
            Some(Err(refusal)) if matches!(refusal.reason, Reason::Future { .. }) => Next::Waits,
            _ => Next::Ends,
        }
    }

    /// Goes back to the last change that it got, as a planted bug does.
    pub(crate) fn go_back(&mut self) {
        if self.last > 0 {
            self.from = self.last;
        }
    }
}

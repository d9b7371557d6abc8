//! The directories that the last commands changed, so that a change is looked at only by those that watch its directory.

use crate::capability::ObjectNumber;
use alloc::collections::VecDeque;

/// Number of changes that are kept.
const TOUCHED_MAX: usize = 1024;

/// The last changes, each with the number of its command, ascending. No part of the state: a table that was restored has none.
#[derive(Debug, Default)]
pub(crate) struct Touched {
    changes: VecDeque<(u64, ObjectNumber)>,
    /// All changes by commands with higher numbers are here.
    dropped_through: u64,
}

impl Touched {
    /// Returns the list of a table whose changes through this number are not known.
    pub(crate) fn after(number: u64) -> Touched {
        Touched { changes: VecDeque::new(), dropped_through: number }
    }

    pub(crate) fn push(&mut self, number: u64, object: ObjectNumber) {
        if self.changes.back() == Some(&(number, object)) {
            return;
        }
        if self.changes.len() >= TOUCHED_MAX
            && let Some((oldest, _)) = self.changes.pop_front()
        {
            self.dropped_through = oldest;
        }
        self.changes.push_back((number, object));
    }

    /// Returns the changes by commands with higher numbers than this one; `None` if some of them are not kept.
    pub(crate) fn since(&self, number: u64) -> Option<impl Iterator<Item = (u64, ObjectNumber)>> {
        let first = self.changes.partition_point(|(at, _)| *at <= number);
        (number >= self.dropped_through).then(|| self.changes.range(first..).copied())
    }
}

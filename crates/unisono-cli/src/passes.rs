//! Passes of the token, as trials and benchmarks count them.

use serde::{Deserialize, Serialize};
use unisono::Group;

/// Passes of the token by one or several members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Passes {
    /// Number of passes.
    pub(crate) all: u64,
    /// Of these, passes of a term in which the member numbered no message.
    pub(crate) null: u64,
}

impl Passes {
    /// Returns those of this member so far.
    pub(crate) fn of(group: &Group) -> Passes {
        let counters = group.counters();
        Passes { all: counters.passes, null: counters.null_passes }
    }

    /// Adds those of another member, or of another time.
    pub(crate) fn add(&mut self, other: Passes) {
        self.all += other.all;
        self.null += other.null;
    }

    /// Returns those since `earlier`.
    pub(crate) fn since(self, earlier: Passes) -> Passes {
        Passes { all: self.all.saturating_sub(earlier.all), null: self.null.saturating_sub(earlier.null) }
    }
}

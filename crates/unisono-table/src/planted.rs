//! Planted bugs: with them the simulator proves that its checkers work. Each breaks one rule where that rule is written.
//! Without the feature `planted` none can be switched on.

use crate::capability::{Check, ObjectNumber};
use alloc::vec::Vec;

/// A rule of the table that is broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Planted {
    /// A new object gets the lowest number that no object has.
    ObjectNumberScanned,
    /// A lookup returns a row's capability without its masks.
    MaskNotApplied,
    /// A lookup applies the masks of all columns, not only of the open ones.
    MasksOfAllColumns,
    /// A check proves any rights.
    RightsNotInCheck,
    /// Restricted capabilities stay good when their object gets a new secret.
    RevokeForgetsRestricted,
    /// A replacement of several rows that fails at one has changed those before.
    HalfReplaceSet,
    /// A replacement does not look at the expected capabilities.
    ExpectedNotCompared,
    /// A directory that has rows is deleted.
    FullDirectoryDeleted,
    /// A deleted file stays.
    DeletedFileReadable,
    /// A command that is refused has no number.
    RefusedWithoutNumber,
}

impl Planted {
    /// All of them.
    pub const ALL: &'static [Planted] = &[
        Planted::ObjectNumberScanned,
        Planted::MaskNotApplied,
        Planted::MasksOfAllColumns,
        Planted::RightsNotInCheck,
        Planted::RevokeForgetsRestricted,
        Planted::HalfReplaceSet,
        Planted::ExpectedNotCompared,
        Planted::FullDirectoryDeleted,
        Planted::DeletedFileReadable,
        Planted::RefusedWithoutNumber,
    ];
}

/// What the simulator has planted in a table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watched {
    planted: Option<Planted>,
    /// Earlier secrets of objects, if restricted capabilities stay good.
    former: Vec<(ObjectNumber, Check)>,
}

impl Watched {
    pub(crate) fn plant(&mut self, bug: Planted) {
        self.planted = Some(bug);
    }

    /// True if this planted bug is switched on.
    #[inline]
    pub(crate) fn broken(&self, bug: Planted) -> bool {
        cfg!(feature = "planted") && self.planted == Some(bug)
    }

    /// Keeps a secret that an object had, if restricted capabilities stay good.
    pub(crate) fn keep(&mut self, object: ObjectNumber, secret: Check) {
        if self.broken(Planted::RevokeForgetsRestricted) {
            self.former.push((object, secret));
        }
    }

    /// Returns the secrets that an object had.
    pub(crate) fn former(&self, object: ObjectNumber) -> impl Iterator<Item = Check> {
        let of_object = move |(number, _): &&(ObjectNumber, Check)| *number == object;
        self.former.iter().filter(of_object).map(|(_, secret)| *secret)
    }
}

//! The promises of the directory service. The records are those of replicated state and of [`DirectoryRecord`]: what callers
//! asked for and got, and what each copy applied. One file per promise; `model` is what is right, and `history` what
//! happened.
//!
//! [`DirectoryRecord`]: crate::record::DirectoryRecord

mod at_end;
mod changes;
mod files_whole;
#[cfg(test)]
mod fixture;
mod history;
mod linearizable;
mod minority_is_silent;
mod model;
mod no_oracle;
mod no_resurrection;
mod once;
mod protection;
mod restore_equals;
mod rights_first;
mod sets_are_whole;
mod watch_exact;

use super::Property;
use super::replica::wing_gong;
use at_end::AtEnd;
use std::collections::BTreeMap;

/// Returns all properties of directories: those of any replicated state first.
pub fn all() -> Vec<Box<dyn Property>> {
    let mut all = super::replica::of_any_state();
    all.extend(of_directories());
    all
}

fn of_directories() -> Vec<Box<dyn Property>> {
    vec![
        Box::<AtEnd<once::Once>>::default(),
        Box::<AtEnd<no_resurrection::NoResurrection>>::default(),
        Box::<AtEnd<files_whole::FilesWhole>>::default(),
        Box::<AtEnd<no_oracle::NoOracle>>::default(),
        Box::<AtEnd<protection::Protection>>::default(),
        Box::<AtEnd<rights_first::RightsFirst>>::default(),
        Box::<AtEnd<sets_are_whole::SetsAreWhole>>::default(),
        Box::<AtEnd<watch_exact::WatchExact>>::default(),
        Box::<AtEnd<minority_is_silent::MinorityIsSilent>>::default(),
        Box::<AtEnd<restore_equals::RestoreEquals>>::default(),
        Box::<AtEnd<linearizable::Linearizable>>::default(),
    ]
}

/// A map with few lookups per record, in the order of its keys.
type Map<K, V> = BTreeMap<K, V>;

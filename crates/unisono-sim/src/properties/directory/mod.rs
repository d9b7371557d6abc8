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
    let once = AtEnd::<once::Once>::default();
    let mut all: Vec<Box<dyn Property>> = vec![
        Box::new(once.and::<no_resurrection::NoResurrection>()),
        Box::new(once.and::<files_whole::FilesWhole>()),
        Box::new(once.and::<no_oracle::NoOracle>()),
        Box::new(once.and::<protection::Protection>()),
        Box::new(once.and::<rights_first::RightsFirst>()),
        Box::new(once.and::<sets_are_whole::SetsAreWhole>()),
        Box::new(once.and::<watch_exact::WatchExact>()),
        Box::new(once.and::<minority_is_silent::MinorityIsSilent>()),
        Box::new(once.and::<restore_equals::RestoreEquals>()),
        Box::new(once.and::<linearizable::Linearizable>()),
    ];
    all.insert(0, Box::new(once));
    all
}

/// A map with few lookups per record, in the order of its keys.
type Map<K, V> = BTreeMap<K, V>;

#[cfg(test)]
mod tests {
    use super::fixture::{Fixture, make};
    use super::*;
    use unisono_table::{Answer, Place, Query};

    #[test]
    fn all_checkers_judge_the_history_that_the_first_takes() {
        let mut fixture = Fixture::founded();
        let place = fixture.place("d");
        fixture.command(make(&place));
        let list = Query::List { place: Place::of(fixture.root()), after: None };
        fixture.query(list.clone()).ok();
        let checkers = fixture.check_all(of_directories()).expect("a good history");
        let checked: Vec<&str> =
            checkers.checked().filter(|(_, times)| *times > 0).map(|(name, _)| name).collect();
        for name in ["once", "protection", "linearizable"] {
            assert!(checked.contains(&name), "{name} of {checked:?}");
        }
        fixture.query_with(list, Ok(Answer::Done));
        let violation = fixture.check_all(of_directories()).err().expect("a wrong reply");
        assert_ne!(violation.property, "once");
    }
}

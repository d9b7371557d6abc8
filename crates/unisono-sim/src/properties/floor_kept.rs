//! The floors of members: no view goes on that has fewer members than a member of the view before asked for with its join,
//! but by force.

use super::tables::Table;
use super::{Facts, Property, Violation, broken};
use crate::record::{Beside, Kind, Life, Record, Reset, What};
use unisono_core::Floor;

/// The checker of `floor_kept`.
#[derive(Debug, Default)]
pub(super) struct FloorKept {
    floors: Table<Floor>,
    /// Members of which an operator has vouched that they are dead.
    dead: Vec<Life>,
    checked: u64,
}

impl FloorKept {
    fn fault(&self, reset: &Reset, before: &[Life]) -> Option<String> {
        let after = reset.view.members.len();
        let asked = |life: &Life| Some((self.floors.get(*life)?.of(before.len()), *life));
        let (least, life) = before.iter().filter_map(asked).max()?;
        let is_forced = reset.excluded.iter().any(|life| self.dead.contains(life));
        let is_below = after < least && !is_forced;
        is_below.then(|| format!("{after} of {} members go on, and {life:?} asks for {least}", before.len()))
    }
}

impl Property for FloorKept {
    fn name(&self) -> &'static str {
        "floor_kept"
    }

    fn interests(&self) -> u64 {
        Kind::Beside.bit() | Kind::ForceAsked.bit() | Kind::Reset.bit()
    }

    #[inline(always)]
    fn observe(&mut self, record: &Record, facts: &Facts) -> Result<(), Violation> {
        match &record.what {
            What::Beside(beside) => {
                if let Beside::FloorAsked { floor } = **beside {
                    *self.floors.at(record.life) = floor;
                }
            }
            What::ForceAsked { without } => self.dead.extend_from_slice(without),
            What::Reset(reset) => {
                let before = &facts.before().view;
                let is_asked =
                    |life: &Life| self.floors.get(*life).is_some_and(|floor| *floor != Floor::None);
                self.checked += u64::from(before.iter().any(is_asked));
                if let Some(fault) = self.fault(reset, before) {
                    return broken(self, record, || fault);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn checked(&self) -> u64 {
        self.checked
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::properties::fixture::Fixture;

    /// Of five members the second asks for a floor; the group goes on with these.
    fn check(floor: Floor, members: &[Life]) -> Result<u64, Violation> {
        let mut fixture = Fixture::of(5, 1);
        fixture.ask_for_floor(Life(1), floor);
        fixture.reset(members);
        fixture.check(FloorKept::default())
    }

    const FOUR: [Life; 4] = [Life(0), Life(1), Life(2), Life(3)];

    #[test]
    fn accepts_as_many_members_as_one_asked_for() {
        for floor in [Floor::AtLeast(4), Floor::Majority, Floor::AtLeast(1)] {
            assert_eq!(check(floor, &FOUR).unwrap(), 4, "{floor}");
        }
    }

    #[test]
    fn rejects_fewer_members_than_one_asked_for() {
        for floor in [Floor::AtLeast(4), Floor::All] {
            assert!(check(floor, &FOUR[..3]).is_err(), "{floor}");
        }
        assert!(check(Floor::Majority, &FOUR[..2]).is_err());
        assert!(
            check(Floor::AtLeast(4), &[Life(0), Life(2), Life(3)]).is_err(),
            "it holds though it is left out"
        );
    }

    #[test]
    fn a_floor_goes_with_its_member_and_holds_for_all_of_a_smaller_view() {
        let mut fixture = Fixture::of(5, 1);
        fixture.ask_for_floor(Life(1), Floor::AtLeast(5));
        fixture.leave(Life(4));
        let mut few = fixture.clone();
        few.reset(&[Life(0), Life(1), Life(2)]);
        assert!(few.check(FloorKept::default()).is_err());
        fixture.leave(Life(1));
        fixture.reset(&[Life(0), Life(2)]);
        assert_eq!(fixture.check(FloorKept::default()).unwrap(), 0);
    }

    #[test]
    fn an_operator_overrides_it() {
        let mut fixture = Fixture::of(5, 1);
        fixture.ask_for_floor(Life(1), Floor::All);
        fixture.record(Life(0), What::ForceAsked { without: [Life(4)].into() });
        fixture.reset(&FOUR);
        assert!(fixture.check(FloorKept::default()).is_ok());
    }
}

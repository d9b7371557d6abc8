//! The scope of a group: a multicast goes as far as a member of the view asks for with its join, and no further.

use super::tables::Table;
use super::{Facts, Property, Violation, result};
use crate::record::{Beside, Kind, Life, Record, What};
use unisono_core::Member;

/// The checker of `scope`.
#[derive(Debug, Default)]
pub(super) struct Scope {
    asked: Table<Option<u8>>,
    checked: u64,
}

impl Scope {
    fn hops_of(&self, life: Life) -> u8 {
        self.asked.get(life).copied().flatten().unwrap_or(Member::HOPS_DEFAULT)
    }

    /// Returns how far a multicast of a life has to go: as the view asks in which all that it knows to be accepted is. A
    /// process that is no member yet reaches as far as it asks itself. `None` if the view is not known.
    fn due(&self, life: Life, is_member: bool, facts: &Facts) -> Option<u8> {
        let mark = facts.marks.of(life);
        let Some(epoch) = mark.epoch else { return (!is_member).then(|| self.hops_of(life)) };
        let view = facts.entries.views.at(epoch, mark.accepted)?;
        let asked = view.iter().map(|member| self.hops_of(*member)).max()?;
        Some(if is_member { asked } else { asked.max(self.hops_of(life)) })
    }
}

impl Property for Scope {
    fn name(&self) -> &'static str {
        "scope"
    }

    fn interests(&self) -> u64 {
        Kind::Beside.bit()
    }

    fn observe(&mut self, record: &Record, facts: &Facts) -> Result<(), Violation> {
        let What::Beside(beside) = &record.what else { return Ok(()) };
        match **beside {
            Beside::HopsAsked { hops } => *self.asked.at(record.life) = Some(hops),
            Beside::Multicast { hops, is_member } => {
                let due = self.due(record.life, is_member, facts);
                self.checked += u64::from(due.is_some());
                let fault = due.filter(|due| *due != hops);
                return result(self, record, fault.map(|due| format!("it goes {hops} hops, not {due}")));
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

    /// Of four members the third asks for 4 hops; a member sends a multicast.
    fn check(change: impl FnOnce(&mut Fixture), hops: u8) -> Result<u64, Violation> {
        let mut fixture = Fixture::of(4, 1);
        fixture.record(Life(2), What::Beside(Beside::HopsAsked { hops: 4 }.into()));
        change(&mut fixture);
        fixture.record(Life(0), What::Beside(Beside::Multicast { hops, is_member: true }.into()));
        fixture.check(Scope::default())
    }

    #[test]
    fn a_multicast_goes_as_far_as_one_member_asks() {
        assert_eq!(check(|_| {}, 4).unwrap(), 1);
        assert!(check(|_| {}, 1).is_err());
        assert!(check(|_| {}, 5).is_err());
    }

    #[test]
    fn it_ends_with_the_member() {
        let leaves = |fixture: &mut Fixture| fixture.leave(Life(2));
        assert_eq!(check(leaves, 1).unwrap(), 1);
        assert!(check(leaves, 4).is_err());
        let reset = |fixture: &mut Fixture| fixture.reset(&[Life(0), Life(1), Life(3)]);
        assert_eq!(check(reset, 1).unwrap(), 1);
        assert!(check(reset, 4).is_err());
    }

    #[test]
    fn a_process_that_looks_for_the_group_reaches_as_far_as_it_asks() {
        let mut fixture = Fixture::of(2, 1);
        fixture.record(Life(9), What::Beside(Beside::HopsAsked { hops: 7 }.into()));
        fixture.record(Life(9), What::Beside(Beside::Multicast { hops: 7, is_member: false }.into()));
        assert_eq!(fixture.check(Scope::default()).unwrap(), 1);
        fixture.record(Life(9), What::Beside(Beside::Multicast { hops: 1, is_member: false }.into()));
        fixture.bad(Scope::default());
    }
}

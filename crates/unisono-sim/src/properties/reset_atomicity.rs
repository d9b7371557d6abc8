//! G20, reset atomicity: each reset is one event, reported once, whichever members coordinated it and however many.
//! Its view has only members of the view before, in their order. It names exactly the members that are left out. Its
//! epoch is the next in number. If an application asked for the reset, its view has at least as many members as the
//! application asked for.

use super::streams::Stream;
use super::tables::{Lives, Table};
use super::{Facts, GroupTerms, Property, Violation, broken};
use crate::record::{Epoch, Kind, Life, Record, Reset, What};

/// The checker of `reset_atomicity`.
#[derive(Debug)]
pub(super) struct ResetAtomicity {
    /// True if members reset without being asked, with no minimum size.
    automatic: bool,
    counters: Table<u64>,
    /// Lowest minimum that each life's application asked for, in the epoch in which it asked last.
    floors: Table<Option<(Epoch, u32)>>,
    /// Lowest minimum that any application asked for in an epoch. It binds a member that coordinates although its own
    /// application did not ask.
    floors_of_epochs: Table<Option<u32>>,
    /// Lives that asked to leave. Such a life has no application any more, and may reset unasked.
    leavers: Lives,
    checked: u64,
}

impl ResetAtomicity {
    pub(super) fn new(terms: &GroupTerms) -> ResetAtomicity {
        ResetAtomicity {
            automatic: terms.config.automatic,
            counters: Table::default(),
            floors: Table::default(),
            floors_of_epochs: Table::default(),
            leavers: Lives::default(),
            checked: 0,
        }
    }

    /// Returns the minimum number of members that bound the coordinator of an epoch's end.
    fn floor(&mut self, epoch: Epoch, coordinator: Life, before: &[Life]) -> Option<u32> {
        let begun_unasked = before.iter().any(|life| self.leavers.contains(*life));
        let of_epoch = self.floors_of_epochs.at(epoch).filter(|_| !begun_unasked);
        let own = self.floors.at(coordinator).filter(|(when, _)| *when == epoch).map(|(_, floor)| floor);
        own.or(of_epoch).filter(|_| !self.automatic)
    }

    fn ask(&mut self, life: Life, epoch: Epoch, members_min: u32) {
        let lowest = |known: Option<u32>| known.map_or(members_min, |known| known.min(members_min));
        let own = self.floors.at(life);
        *own = Some((epoch, lowest(own.filter(|(when, _)| *when == epoch).map(|(_, floor)| floor))));
        let of_epoch = self.floors_of_epochs.at(epoch);
        *of_epoch = Some(lowest(*of_epoch));
    }

    fn fault(&mut self, reset: &Reset, before: &Stream, counter: u64) -> Option<String> {
        let Stream { epoch, view: before, .. } = before;
        let members = &reset.view.members;
        let kept: Vec<_> = before.iter().copied().filter(|life| members.contains(life)).collect();
        let mut left_out: Vec<_> = before.iter().copied().filter(|life| !members.contains(life)).collect();
        let mut excluded = reset.excluded.clone();
        left_out.sort_unstable();
        excluded.sort_unstable();
        if kept != *members {
            return Some(format!("{members:?} is not a part of {before:?}, in its order"));
        }
        if left_out != excluded {
            return Some(format!("{left_out:?} are left out, and the event names {excluded:?}"));
        }
        if reset.view.counter != counter + 1 {
            return Some(format!("epoch {} follows epoch {counter}", reset.view.counter));
        }
        let floor = epoch.and_then(|epoch| self.floor(epoch, reset.view.coordinator, before));
        let few = floor.filter(|floor| members.len() < *floor as usize);
        few.map(|floor| format!("{} members, and the application asked for {floor}", members.len()))
    }
}

impl Property for ResetAtomicity {
    fn name(&self) -> &'static str {
        "reset_atomicity"
    }

    fn interests(&self) -> u64 {
        Kind::Entered.bit() | Kind::Reset.bit() | Kind::ResetAsked.bit() | Kind::LeaveAsked.bit()
    }

    #[inline(always)]
    fn observe(&mut self, record: &Record, facts: &Facts) -> Result<(), Violation> {
        match &record.what {
            What::ResetAsked { members_min } => {
                if let Some(epoch) = facts.epoch(record.life) {
                    self.ask(record.life, epoch, *members_min);
                }
            }
            What::LeaveAsked => self.leavers.insert(record.life),
            What::Reset(reset) => {
                self.checked += 1;
                let counter = std::mem::replace(self.counters.at(record.life), reset.view.counter);
                if let Some(fault) = self.fault(reset, facts.before(), counter) {
                    return broken(self, record, || fault);
                }
            }
            What::Entered { view, .. } => *self.counters.at(record.life) = view.counter,
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
    use crate::properties::fixture::{Fixture, change_reset, reset_of};

    fn good() -> Fixture {
        let mut fixture = Fixture::of(4, 1);
        fixture.reset(&[Life(1), Life(2), Life(3)]);
        fixture.join();
        fixture.reset(&[Life(1), Life(2), Life(4)]);
        fixture
    }

    fn check(fixture: &Fixture) -> Result<u64, Violation> {
        fixture.check(ResetAtomicity::new(&fixture.terms))
    }

    #[test]
    fn accepts_resets_reported_once() {
        assert_eq!(check(&good()).unwrap(), 6);
    }

    #[test]
    fn rejects_a_reset_reported_twice() {
        let mut fixture = good();
        let again = fixture.last(reset_of(Life(1))).clone();
        fixture.records.push(again);
        assert!(check(&fixture).is_err());
    }

    #[test]
    fn rejects_a_wrong_list_of_the_excluded() {
        let mut fixture = good();
        change_reset(fixture.last(reset_of(Life(4))), |reset| reset.excluded.clear());
        assert!(check(&fixture).is_err());
    }

    #[test]
    fn rejects_strangers_and_other_ranks() {
        let mut fixture = good();
        change_reset(fixture.last(reset_of(Life(4))), |reset| reset.view.members.push(Life(9)));
        assert!(check(&fixture).is_err());
        let mut fixture = good();
        change_reset(fixture.last(reset_of(Life(4))), |reset| reset.view.members.swap(0, 2));
        assert!(check(&fixture).is_err());
    }

    #[test]
    fn rejects_an_epoch_left_out() {
        let mut fixture = good();
        change_reset(fixture.last(reset_of(Life(4))), |reset| reset.view.counter += 1);
        assert!(check(&fixture).is_err());
    }

    #[test]
    fn rejects_fewer_members_than_were_asked_for() {
        let mut fixture = Fixture::of(4, 1);
        fixture.terms.config.automatic = false;
        fixture.record(Life(1), What::ResetAsked { members_min: 3 });
        let mut few = fixture.clone();
        fixture.reset(&[Life(1), Life(2), Life(3)]);
        assert!(check(&fixture).is_ok());
        few.reset(&[Life(0), Life(1)]);
        for life in [Life(0), Life(1)] {
            change_reset(few.last(reset_of(life)), |reset| reset.view.coordinator = Life(1));
        }
        assert!(check(&few).is_err());
    }

    #[test]
    fn rejects_fewer_members_than_another_member_asked_for() {
        let mut fixture = Fixture::of(4, 1);
        fixture.terms.config.automatic = false;
        fixture.record(Life(1), What::ResetAsked { members_min: 3 });
        let of_two = |mut fixture: Fixture| {
            fixture.reset(&[Life(0), Life(1)]);
            for life in [Life(0), Life(1)] {
                change_reset(fixture.last(reset_of(life)), |reset| reset.view.coordinator = Life(0));
            }
            check(&fixture)
        };
        assert!(of_two(fixture.clone()).is_err());
        fixture.record(Life(0), What::LeaveAsked);
        assert!(of_two(fixture).is_ok());
    }

    #[test]
    fn a_minimum_binds_in_the_epoch_for_which_it_was_asked() {
        for (first, second, is_good) in
            [(2, Some(4), false), (4, Some(2), true), (4, Some(3), true), (4, None, true)]
        {
            let mut fixture = Fixture::of(5, 1);
            fixture.terms.config.automatic = false;
            fixture.record(Life(0), What::ResetAsked { members_min: first });
            fixture.reset(&[Life(0), Life(1), Life(2), Life(3)]);
            if let Some(members_min) = second {
                fixture.record(Life(0), What::ResetAsked { members_min });
            }
            fixture.reset(&[Life(0), Life(1), Life(2)]);
            assert_eq!(check(&fixture).is_ok(), is_good, "{first}, then {second:?}");
        }
    }
}

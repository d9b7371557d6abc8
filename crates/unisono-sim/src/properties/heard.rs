//! Who is heard (hazard H67): a sequencer that gets the stamp of a heartbeat back takes the member for one that hears its
//! multicasts. So the member must have received such a heartbeat of this sequencer, and not another one's.

use super::tables::Table;
use super::{Facts, Property, Violation, result};
use crate::record::{Beside, Epoch, Kind, Life, Record, What};
use std::collections::BTreeSet;

/// The checker of `heard`.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// By life, the sequencers that it heard, each with the epoch.
    heard: Table<BTreeSet<(Option<Epoch>, Life)>>,
    checked: u64,
}

impl Property for Heard {
    fn name(&self) -> &'static str {
        "heard"
    }

    fn interests(&self) -> u64 {
        Kind::Beside.bit()
    }

    fn observe(&mut self, record: &Record, facts: &Facts) -> Result<(), Violation> {
        let What::Beside(beside) = &record.what else { return Ok(()) };
        let epoch = facts.marks.of(record.life).epoch;
        match **beside {
            Beside::Heard { sequencer } => {
                self.heard.at(record.life).insert((epoch, sequencer));
                Ok(())
            }
            Beside::TakenForHearing { member } => {
                self.checked += 1;
                let has_heard =
                    self.heard.get(member).is_some_and(|heard| heard.contains(&(epoch, record.life)));
                let fault = (!has_heard).then(|| "that member has heard no heartbeat of it".to_string());
                result(self, record, fault)
            }
            _ => Ok(()),
        }
    }

    fn checked(&self) -> u64 {
        self.checked
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::properties::fixture::Fixture;

    /// Of three members the second heard the first one.
    fn heard() -> Fixture {
        let mut fixture = Fixture::of(3, 1);
        fixture.record(Life(1), What::Beside(Beside::Heard { sequencer: Life(0) }.into()));
        fixture
    }

    fn take(fixture: &mut Fixture, sequencer: Life) {
        fixture.record(sequencer, What::Beside(Beside::TakenForHearing { member: Life(1) }.into()));
    }

    #[test]
    fn a_member_hears_the_sequencer_that_it_heard() {
        let mut fixture = heard();
        take(&mut fixture, Life(0));
        assert_eq!(fixture.check(Heard::default()).unwrap(), 1);
    }

    #[test]
    fn it_does_not_hear_another_one() {
        let mut fixture = heard();
        take(&mut fixture, Life(2));
        fixture.bad(Heard::default());
    }

    #[test]
    fn it_does_not_hear_it_in_the_next_epoch() {
        let mut fixture = heard();
        fixture.reset(&[Life(0), Life(1)]);
        take(&mut fixture, Life(0));
        fixture.bad(Heard::default());
    }
}

//! L7, resources: once the faults are over and nothing new begins, every queue drains. No message is under way, no
//! event waits, and the history is empty. While a group has fewer members than its minimum, its messages stay under way.

use super::healing::Healing;
use super::{Facts, GroupTerms, Property, Violation, final_result};
use crate::record::{End, Kind, Record, Standing};

/// The checker of `resources`.
#[derive(Debug, Default)]
pub(super) struct Resources {
    healing: Healing,
    /// Minimum number of members with which messages are ordered.
    members_min: usize,
    checked: u64,
}

impl Resources {
    pub(super) fn new(terms: &GroupTerms) -> Resources {
        Resources { members_min: terms.config.members_min.into(), ..Resources::default() }
    }
}

fn fault(standing: &Standing, members_min: usize) -> Option<String> {
    let (life, marks) = (standing.life, &standing.marks);
    if standing.under_way > 0 && standing.members.len() >= members_min {
        Some(format!("{} messages of {life:?} are under way", standing.under_way))
    } else if standing.events > 0 {
        Some(format!("{} events wait for the application of {life:?}", standing.events))
    } else if marks.history > 0 || marks.purged != marks.received {
        Some(format!(
            "{life:?} keeps {} entries: purged through {}, received through {}",
            marks.history, marks.purged, marks.received
        ))
    } else {
        None
    }
}

impl Property for Resources {
    fn name(&self) -> &'static str {
        "resources"
    }

    fn interests(&self) -> u64 {
        Kind::Healed.bit()
    }

    #[inline(always)]
    fn observe(&mut self, record: &Record, _: &Facts) -> Result<(), Violation> {
        self.healing.follow(record);
        Ok(())
    }

    fn finish(&mut self, end: &End, _: &Facts) -> Result<(), Violation> {
        self.checked += self.healing.members(end).count() as u64;
        let fault = self.healing.members(end).find_map(|standing| fault(standing, self.members_min));
        final_result(self, end, fault)
    }

    fn checked(&self) -> u64 {
        self.checked
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::properties::fixture::Fixture;
    use crate::record::Life;

    fn good() -> Fixture {
        let mut fixture = Fixture::of(3, 1);
        fixture.message(Life(1));
        fixture.heal();
        fixture.message(Life(1));
        fixture.purge();
        fixture
    }

    #[test]
    fn accepts_queues_that_run_dry() {
        good().good(Resources::default());
    }

    #[test]
    fn rejects_a_history_that_keeps_what_all_hold() {
        let mut fixture = good();
        fixture.message(Life(2));
        fixture.bad(Resources::default());
    }

    #[test]
    fn rejects_messages_and_events_left_over() {
        let fixture = good();
        let mut end = fixture.ending();
        end.standings[1].under_way = 1;
        assert!(fixture.check_with_end(Resources::default(), &end).is_err());
        let mut end = fixture.ending();
        end.standings[2].events = 1;
        assert!(fixture.check_with_end(Resources::default(), &end).is_err());
    }
}

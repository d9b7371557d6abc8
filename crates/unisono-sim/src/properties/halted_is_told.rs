//! A group that stands still says so. A member whose reset finds no quorum, or fewer members than one of them asks for, for
//! 5 s in a network without faults has received `Halted`, and receives `Resumed` after the reset with which it goes on. The two come by turns, and a halted
//! member numbers and acknowledges nothing in that epoch.
//!
//! The 5 s are checked at the end of a run: the faults are over then, so a reset that a quorum could decide has ended.

use super::tables::Table;
use super::{Facts, Property, Violation, broken, final_result};
use crate::record::{End, Epoch, Kind, Record, Standing, What};
use std::time::Duration;
use unisono_core::{Phase, Time};

/// The failure detector's time and a ballot, four times over, with the longest silence and patience that runs use.
const TOLD_AFTER: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, Default)]
struct Member {
    /// When it first promised a ballot of this epoch.
    promised: Option<(Epoch, Time)>,
    /// When it was last paused or resumed; an application that was paused may take the event later.
    paused_at: Option<Time>,
    is_paused: bool,
    is_told: bool,
    /// A reset was delivered since `Halted`.
    goes_on: bool,
    halted_in: Option<Epoch>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct HaltedIsTold {
    members: Table<Member>,
    checked: u64,
}

impl HaltedIsTold {
    fn fault_at_end(&mut self, end: &End, standing: &Standing) -> Option<String> {
        let life = standing.life;
        let member = *self.members.get(life)?;
        let is_awake = !member.is_paused && member.paused_at.is_none_or(|at| end.at.since(at) >= TOLD_AFTER);
        if !is_awake || standing.events > 0 {
            return None;
        }
        let is_stuck = |(epoch, since): (Epoch, Time)| {
            Some(epoch) == standing.epoch
                && standing.phase == Phase::Resetting
                && end.at.since(since) >= TOLD_AFTER
        };
        if member.promised.is_some_and(is_stuck) {
            self.checked += 1;
            return (!member.is_told).then(|| format!("{life:?} was not told that its group stands still"));
        }
        let ended = standing.phase == Phase::Member && member.is_told;
        ended.then(|| format!("{life:?} was not told that its group goes on"))
    }
}

impl Property for HaltedIsTold {
    fn name(&self) -> &'static str {
        "halted_is_told"
    }

    fn interests(&self) -> u64 {
        Kind::Halted.bit()
            | Kind::WentOn.bit()
            | Kind::Reset.bit()
            | Kind::Promised.bit()
            | Kind::Paused.bit()
            | Kind::Resumed.bit()
            | Kind::Numbered.bit()
            | Kind::Acknowledged.bit()
    }

    #[inline(always)]
    fn observe(&mut self, record: &Record, facts: &Facts) -> Result<(), Violation> {
        let member = self.members.at(record.life);
        let fault = match &record.what {
            What::Numbered { epoch, .. } | What::Acknowledged { epoch, .. } => {
                (member.is_told && member.halted_in == Some(*epoch)).then_some("the group orders")
            }
            What::Promised { epoch, .. } => {
                if member.promised.is_none_or(|(known, _)| known != *epoch) {
                    member.promised = Some((*epoch, record.at));
                }
                None
            }
            What::Halted { missing } => {
                let is_first = !std::mem::replace(&mut member.is_told, true);
                (member.goes_on, member.halted_in) = (false, facts.epoch(record.life));
                self.checked += 1;
                match (is_first, missing.is_empty()) {
                    (false, _) => Some("it was told before"),
                    (_, true) => Some("no member is missing"),
                    _ => None,
                }
            }
            What::WentOn => {
                let was_told = std::mem::replace(&mut member.is_told, false);
                (!was_told || !member.goes_on).then_some("no reset came after it halted")
            }
            What::Reset(_) => {
                member.goes_on = true;
                None
            }
            What::Paused | What::Resumed => {
                (member.is_paused, member.paused_at) = (record.what == What::Paused, Some(record.at));
                None
            }
            _ => None,
        };
        fault.map_or(Ok(()), |fault| broken(self, record, || fault.into()))
    }

    fn finish(&mut self, end: &End, _: &Facts) -> Result<(), Violation> {
        let fault = end.standings.iter().find_map(|standing| self.fault_at_end(end, standing));
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
    use unisono_core::{Ballot, Floor, Uid};

    /// Life 1 is left alone of three, asks for votes, and is told after half a second.
    fn good() -> Fixture {
        let mut fixture = Fixture::of(3, 1);
        fixture.crash(Life(0));
        let ballot = Ballot { round: 1, coordinator: Uid(1) };
        fixture.record(Life(1), What::Promised { epoch: Epoch(0), ballot });
        fixture.wait(Duration::from_millis(500));
        fixture.record(Life(1), What::Halted { missing: [Life(0), Life(2)].into() });
        fixture
    }

    /// The end of the run, `later` after the last record: life 1 is still in its reset.
    fn ending(fixture: &Fixture, later: Duration) -> End {
        let mut end = fixture.ending();
        end.at = end.at + later;
        for standing in &mut end.standings {
            if standing.life == Life(1) {
                standing.phase = Phase::Resetting;
            }
        }
        end
    }

    fn check(fixture: &Fixture, later: Duration) -> Result<u64, Violation> {
        fixture.check_with_end(HaltedIsTold::default(), &ending(fixture, later))
    }

    fn without_halted(mut fixture: Fixture) -> Fixture {
        fixture.records.retain(|record| !matches!(record.what, What::Halted { .. }));
        fixture
    }

    #[test]
    fn takes_a_member_that_is_told() {
        assert_eq!(check(&good(), TOLD_AFTER).unwrap(), 2);
    }

    /// Two of three are a quorum, and one of them asks for all: it is told all the same.
    #[test]
    fn rejects_a_member_that_is_not_told_of_a_floor() {
        let mut fixture = Fixture::of(3, 1);
        fixture.ask_for_floor(Life(1), Floor::All);
        fixture.crash(Life(0));
        let ballot = Ballot { round: 1, coordinator: Uid(1) };
        fixture.record(Life(1), What::Promised { epoch: Epoch(0), ballot });
        assert!(check(&fixture, TOLD_AFTER).is_err());
        fixture.record(Life(1), What::Halted { missing: [Life(0)].into() });
        check(&fixture, TOLD_AFTER).unwrap();
    }

    #[test]
    fn rejects_a_member_that_is_not_told() {
        let fixture = without_halted(good());
        check(&fixture, Duration::from_secs(4)).unwrap();
        assert!(check(&fixture, TOLD_AFTER).is_err());
    }

    #[test]
    fn takes_a_paused_member_that_is_not_told() {
        let mut fixture = without_halted(good());
        fixture.record(Life(1), What::Paused);
        check(&fixture, TOLD_AFTER).unwrap();
    }

    #[test]
    fn takes_a_group_that_goes_on_and_says_so() {
        let mut fixture = good();
        fixture.reset(&[Life(1), Life(2)]);
        fixture.record(Life(1), What::WentOn);
        fixture.message(Life(1));
        fixture.good(HaltedIsTold::default());
    }

    #[test]
    fn rejects_a_group_that_goes_on_and_says_nothing() {
        let mut fixture = good();
        fixture.reset(&[Life(1), Life(2)]);
        fixture.bad(HaltedIsTold::default());
    }

    #[test]
    fn rejects_a_halted_member_that_orders() {
        let mut fixture = good();
        fixture.record(Life(1), What::Acknowledged { epoch: Epoch(0), through: 9 });
        fixture.bad(HaltedIsTold::default());
    }

    #[test]
    fn rejects_what_comes_out_of_turn() {
        let mut fixture = good();
        let again = fixture.records.last().unwrap().what.clone();
        fixture.record(Life(1), again);
        fixture.bad(HaltedIsTold::default());
        let mut fixture = good();
        fixture.record(Life(1), What::WentOn);
        fixture.bad(HaltedIsTold::default());
    }
}

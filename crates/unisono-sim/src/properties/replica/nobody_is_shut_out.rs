//! A hostile client shuts out no other caller: each operation of another caller is answered within 1 s, while no fault strikes
//! and enough servers serve. An operation that began before that has 1 s from then on.
//!
//! Runs without a hostile client are not looked at. What is promised there is `goes_on`, also where a server stands in the way
//! of the others for some seconds.

use super::{Map, Property, Violation, broken, content};
use crate::properties::{Facts, final_result};
use crate::record::{End, Kind, Life, OpId, OpOutcome, Record, ReplicaRecord, What};
use std::collections::BTreeSet;
use std::time::Duration;
use unisono_core::Time;

/// Time in which an operation must be answered.
const WITHIN: Duration = Duration::from_secs(1);

/// The checker of `nobody_is_shut_out`.
#[derive(Debug, Default)]
pub(super) struct NobodyIsShutOut {
    hostile: BTreeSet<Life>,
    /// Since when the servers and the network are well.
    since: Option<Time>,
    /// The operations of the others under way, and when they began.
    open: Map<OpId, (Life, Time)>,
    /// Callers that learn of another instance with an operation. Each life does so once at most without faults.
    replaced: BTreeSet<Life>,
    checked: u64,
}

impl NobodyIsShutOut {
    /// Returns how long an operation that began then has waited while all was well.
    fn waited(&self, begun: Time, now: Time) -> Option<Duration> {
        let since = self.since.filter(|_| !self.hostile.is_empty())?;
        Some(now.since(since.max(begun)))
    }
}

impl Property for NobodyIsShutOut {
    fn name(&self) -> &'static str {
        "nobody_is_shut_out"
    }

    fn interests(&self) -> u64 {
        Kind::Replica.bit() | Kind::Crashed.bit()
    }

    fn observe(&mut self, record: &Record, _: &Facts) -> Result<(), Violation> {
        if record.what == What::Crashed {
            self.open.retain(|_, (life, _)| *life != record.life);
        }
        match content(record) {
            // The operations of a server's own process go on in its next life, or not at all.
            Some(ReplicaRecord::Out) => self.open.retain(|_, (life, _)| *life != record.life),
            Some(ReplicaRecord::Hostile) => _ = self.hostile.insert(record.life),
            Some(ReplicaRecord::Calm { serves: true }) => self.since = Some(record.at),
            Some(ReplicaRecord::Begun { id, .. }) if !self.hostile.contains(&record.life) => {
                self.open.insert(*id, (record.life, record.at));
            }
            Some(ReplicaRecord::Replaced) => _ = self.replaced.insert(record.life),
            Some(ReplicaRecord::Ended { id, outcome }) => {
                let Some((life, begun)) = self.open.remove(id) else { return Ok(()) };
                let Some(waited) = self.waited(begun, record.at) else { return Ok(()) };
                if self.replaced.remove(&life) {
                    return Ok(());
                }
                self.checked += 1;
                let is_answered = matches!(outcome, OpOutcome::Replied(_));
                // What began before may have been given up for a deadline that a fault has used up.
                let must_answer = self.since.is_some_and(|since| begun >= since);
                if waited > WITHIN || must_answer && !is_answered {
                    return broken(self, record, || format!("after {waited:?} beside a hostile client"));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn finish(&mut self, end: &End, _: &Facts) -> Result<(), Violation> {
        let is_late = |begun: Time| self.waited(begun, end.at).is_some_and(|waited| waited > WITHIN);
        let late = self.open.values().find(|(_, begun)| is_late(*begun));
        let late = late.map(|(life, begun)| format!("{life:?} still waits for an answer since {begun:?}"));
        final_result(self, end, late)
    }

    fn checked(&self) -> u64 {
        self.checked
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{A, CLIENT, Fixture};
    use super::*;
    use crate::record::Mode;
    use crate::replica::{Op, Reply};

    const OTHER: Life = Life(7);
    const LONG: Duration = Duration::from_millis(1_001);

    fn beside_a_hostile_client() -> Fixture {
        let mut fixture = Fixture::three_copies();
        fixture.record(OTHER, ReplicaRecord::Hostile);
        fixture
    }

    fn calm(fixture: &mut Fixture) {
        fixture.record(Life::WORLD, ReplicaRecord::Calm { serves: true });
    }

    fn answered() -> OpOutcome {
        OpOutcome::Replied(Reply::default())
    }

    #[test]
    fn accepts_an_answer_within_a_second() {
        let mut fixture = beside_a_hostile_client();
        calm(&mut fixture);
        let id = fixture.begin(Mode::Read, Op::GetAll);
        fixture.wait(WITHIN);
        fixture.end(id, answered());
        fixture.good(NobodyIsShutOut::default());
    }

    #[test]
    fn rejects_a_later_answer_and_none() {
        for outcome in [Some(answered()), None] {
            let mut fixture = beside_a_hostile_client();
            calm(&mut fixture);
            let id = fixture.begin(Mode::Read, Op::GetAll);
            fixture.wait(LONG);
            outcome.into_iter().for_each(|outcome| fixture.end(id, outcome));
            fixture.bad(NobodyIsShutOut::default());
        }
    }

    #[test]
    fn rejects_an_operation_that_is_not_carried_out_or_whose_outcome_is_lost() {
        for outcome in [OpOutcome::NotHappened, OpOutcome::Unknown] {
            let mut fixture = beside_a_hostile_client();
            calm(&mut fixture);
            let id = fixture.begin(Mode::Read, Op::GetAll);
            fixture.end(id, outcome);
            fixture.bad(NobodyIsShutOut::default());
        }
    }

    #[test]
    fn time_counts_from_when_all_is_well() {
        for (late, is_good) in [(Duration::from_millis(900), true), (LONG, false)] {
            let mut fixture = beside_a_hostile_client();
            let id = fixture.begin(Mode::Read, Op::GetAll);
            fixture.wait(4 * LONG);
            calm(&mut fixture);
            fixture.wait(late);
            fixture.end(id, answered());
            match is_good {
                true => fixture.good(NobodyIsShutOut::default()),
                false => fixture.bad(NobodyIsShutOut::default()),
            }
        }
    }

    #[test]
    fn nothing_is_promised_to_the_hostile_client_to_the_dead_or_while_faults_strike() {
        let mut fixture = beside_a_hostile_client();
        fixture.record(CLIENT, ReplicaRecord::Hostile);
        calm(&mut fixture);
        fixture.begin(Mode::Read, Op::GetAll);
        fixture.wait(LONG);
        fixture.good(NobodyIsShutOut::default());

        let mut fixture = beside_a_hostile_client();
        calm(&mut fixture);
        fixture.begin(Mode::Read, Op::GetAll);
        fixture.crash(CLIENT);
        fixture.wait(LONG);
        fixture.good(NobodyIsShutOut::default());

        let mut fixture = beside_a_hostile_client();
        fixture.begin(Mode::Read, Op::GetAll);
        fixture.record(CLIENT, ReplicaRecord::Out);
        calm(&mut fixture);
        fixture.wait(LONG);
        fixture.good(NobodyIsShutOut::default());

        for serves in [None, Some(false)] {
            let mut fixture = beside_a_hostile_client();
            let calm = serves.map(|serves| ReplicaRecord::Calm { serves });
            calm.into_iter().for_each(|calm| fixture.record(Life::WORLD, calm));
            fixture.begin(Mode::Read, Op::GetAll);
            fixture.wait(LONG);
            fixture.good(NobodyIsShutOut::default());
        }
    }

    #[test]
    fn a_caller_learns_once_of_another_instance() {
        for (times, is_good) in [(1, true), (2, false)] {
            let mut fixture = beside_a_hostile_client();
            calm(&mut fixture);
            fixture.record(CLIENT, ReplicaRecord::Replaced);
            for _ in 0..times {
                let id = fixture.begin(Mode::Read, Op::GetAll);
                fixture.end(id, OpOutcome::NotHappened);
            }
            match is_good {
                true => fixture.good(NobodyIsShutOut::default()),
                false => fixture.bad(NobodyIsShutOut::default()),
            }
        }
    }

    #[test]
    fn a_run_without_a_hostile_client_is_not_looked_at() {
        let mut fixture = Fixture::three_copies();
        calm(&mut fixture);
        fixture.begin(Mode::Read, Op::GetAll);
        fixture.wait(LONG);
        fixture.record(A, ReplicaRecord::Out);
        fixture.good(NobodyIsShutOut::default());
    }
}

//! Truthful outcome (S8): *not found*, *failed*, *busy* and *refused* mean that the call was not executed and never
//! will be, so the caller may safely call again. *Refused* is reported only where an application refused, with its
//! reason.

use super::Calls;
use crate::properties::{Facts, Property, Violation, broken};
use crate::record::{CallOutcome, Kind, Record, What};

#[derive(Clone, Copy, Debug, Default)]
struct CallState {
    executed: bool,
    /// Hash of the reason for which an application refused it.
    refused: Option<u64>,
    /// Outcome that its client received, if it says that the call was not executed.
    reported_not_executed: Option<CallOutcome>,
}

/// The checker of `truthful_outcome`.
#[derive(Debug, Default)]
pub(super) struct TruthfulOutcome {
    states: Calls<CallState>,
    checked: u64,
}

fn says_not_executed(outcome: CallOutcome) -> bool {
    !matches!(outcome, CallOutcome::Replied { .. } | CallOutcome::Unknown)
}

impl Property for TruthfulOutcome {
    fn name(&self) -> &'static str {
        "truthful_outcome"
    }

    fn interests(&self) -> u64 {
        Kind::Executed.bit() | Kind::RefusedCall.bit() | Kind::CallEnded.bit()
    }

    fn observe(&mut self, record: &Record, _: &Facts) -> Result<(), Violation> {
        match record.what {
            What::Executed { client, call } => {
                let state = self.states.at(client, call);
                state.executed = true;
                if let Some(outcome) = state.reported_not_executed {
                    return broken(self, record, || format!("its client received {outcome:?}"));
                }
            }
            What::RefusedCall { client, call, hash } => {
                self.states.at(client, call).refused = Some(hash);
            }
            What::CallEnded { call, outcome } if says_not_executed(outcome) => {
                self.checked += 1;
                let state = self.states.at(record.life, call);
                state.reported_not_executed = Some(outcome);
                let state = *state;
                if state.executed {
                    return broken(self, record, || "it was executed".into());
                }
                if let CallOutcome::Refused { hash } = outcome
                    && state.refused != Some(hash)
                {
                    return broken(self, record, || "no application refused it for that reason".into());
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
    use super::super::fixture::{Fixture, SERVER, hash_of};
    use super::*;

    const NOT_EXECUTED: [CallOutcome; 4] =
        [CallOutcome::NotFound, CallOutcome::Failed, CallOutcome::Busy, CallOutcome::OtherInstance];

    #[test]
    fn accepts_calls_that_were_not_executed() {
        let mut fixture = Fixture::of_calls();
        for outcome in NOT_EXECUTED {
            let call = fixture.call(0);
            fixture.end(call, outcome);
        }
        fixture.good(TruthfulOutcome::default());
    }

    #[test]
    fn accepts_unknown_whatever_happened() {
        let mut fixture = Fixture::default();
        let (call, other) = (fixture.call(0), fixture.call(0));
        fixture.answer(SERVER, call, 0);
        fixture.end(call, CallOutcome::Unknown);
        fixture.end(other, CallOutcome::Unknown);
        fixture.answer(SERVER, other, 0);
        fixture.good(TruthfulOutcome::default());
    }

    #[test]
    fn rejects_a_call_that_was_executed() {
        for outcome in NOT_EXECUTED {
            let mut fixture = Fixture::default();
            let call = fixture.call(0);
            fixture.answer(SERVER, call, 0);
            fixture.end(call, outcome);
            fixture.bad(TruthfulOutcome::default());
        }
    }

    #[test]
    fn rejects_a_call_that_is_executed_later() {
        for outcome in NOT_EXECUTED {
            let mut fixture = Fixture::default();
            let call = fixture.call(0);
            fixture.end(call, outcome);
            fixture.answer(SERVER, call, 0);
            fixture.bad(TruthfulOutcome::default());
        }
    }

    #[test]
    fn rejects_a_refusal_that_no_application_gave() {
        let mut fixture = Fixture::default();
        let (call, other) = (fixture.call(0), fixture.call(0));
        fixture.hand(SERVER, call, 0);
        fixture.refuse(SERVER, other);
        fixture.end(call, CallOutcome::Refused { hash: hash_of(call) });
        fixture.bad(TruthfulOutcome::default());
    }
}

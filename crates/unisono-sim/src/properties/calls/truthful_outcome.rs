//! Truthful outcome (S8): whoever is told *not found*, *failed*, *busy* or *refused* may call again without fear: the
//! call was not executed, and never will be. *Refused* is told only where an application said so, for that reason.

use super::Calls;
use crate::properties::{Facts, Property, Violation, broken};
use crate::record::{CallOutcome, Kind, Record, What};

#[derive(Clone, Copy, Debug, Default)]
struct Truth {
    executed: bool,
    /// The hash of an application's reason.
    refused: Option<u64>,
    /// What its client was told, if that says that it was not executed.
    denied: Option<CallOutcome>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct TruthfulOutcome {
    truths: Calls<Truth>,
    checked: u64,
}

fn denies(outcome: CallOutcome) -> bool {
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
                let truth = self.truths.at(client, call);
                truth.executed = true;
                if let Some(told) = truth.denied {
                    return broken(self, record, || format!("its client was told {told:?}"));
                }
            }
            What::RefusedCall { client, call, hash } => {
                self.truths.at(client, call).refused = Some(hash);
            }
            What::CallEnded { call, outcome } if denies(outcome) => {
                self.checked += 1;
                let truth = self.truths.at(record.life, call);
                truth.denied = Some(outcome);
                let truth = *truth;
                if truth.executed {
                    return broken(self, record, || "it was executed".into());
                }
                if let CallOutcome::Refused { hash } = outcome
                    && truth.refused != Some(hash)
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

    const DENIALS: [CallOutcome; 3] = [CallOutcome::NotFound, CallOutcome::Failed, CallOutcome::Busy];

    #[test]
    fn takes_calls_that_did_not_happen() {
        let mut fixture = Fixture::of_calls();
        for outcome in DENIALS {
            let call = fixture.call(0);
            fixture.end(call, outcome);
        }
        fixture.good(TruthfulOutcome::default());
    }

    #[test]
    fn takes_unknown_whatever_happened() {
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
        for outcome in DENIALS {
            let mut fixture = Fixture::default();
            let call = fixture.call(0);
            fixture.answer(SERVER, call, 0);
            fixture.end(call, outcome);
            fixture.bad(TruthfulOutcome::default());
        }
    }

    #[test]
    fn rejects_a_call_that_is_executed_later() {
        for outcome in DENIALS {
            let mut fixture = Fixture::default();
            let call = fixture.call(0);
            fixture.end(call, outcome);
            fixture.answer(SERVER, call, 0);
            fixture.bad(TruthfulOutcome::default());
        }
    }

    #[test]
    fn rejects_a_refusal_that_nobody_gave() {
        let mut fixture = Fixture::default();
        let (call, other) = (fixture.call(0), fixture.call(0));
        fixture.hand(SERVER, call, 0);
        fixture.refuse(SERVER, other);
        fixture.end(call, CallOutcome::Refused { hash: hash_of(call) });
        fixture.bad(TruthfulOutcome::default());
    }
}

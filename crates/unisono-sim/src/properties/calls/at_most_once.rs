//! At most once: a call is handed to one application once, whichever processes crash and restart, unless that
//! application has passed it on. Where a service recognises repeats, a call may be handed to it again, but takes
//! effect once.

use super::{Calls, Repeating};
use crate::properties::{Facts, Property, Violation, broken};
use crate::record::{Kind, Life, Record, What};

#[derive(Clone, Copy, Debug, Default)]
struct CallState {
    /// Last life that was handed the call and did not pass it on.
    handed_to: Option<Life>,
    executed: bool,
}

/// The checker of `at_most_once`.
#[derive(Debug, Default)]
pub(super) struct AtMostOnce {
    states: Calls<CallState>,
    repeating: Repeating,
    checked: u64,
}

impl Property for AtMostOnce {
    fn name(&self) -> &'static str {
        "at_most_once"
    }

    fn interests(&self) -> u64 {
        Kind::Serving.bit() | Kind::Handed.bit() | Kind::PassedOn.bit() | Kind::Executed.bit()
    }

    fn observe(&mut self, record: &Record, _: &Facts) -> Result<(), Violation> {
        match record.what {
            What::Handed { client, call, port, .. } => {
                self.checked += 1;
                let before = self.states.at(client, call).handed_to.replace(record.life);
                if let Some(before) = before
                    && !self.repeating.contains(port)
                {
                    return broken(self, record, || format!("it was handed to {before:?} before"));
                }
            }
            What::PassedOn { client, call, .. } => {
                let state = self.states.at(client, call);
                state.handed_to = state.handed_to.filter(|life| *life != record.life);
            }
            What::Executed { client, call } => {
                if std::mem::replace(&mut self.states.at(client, call).executed, true) {
                    return broken(self, record, || "it took effect before".into());
                }
            }
            _ => self.repeating.follow(&record.what),
        }
        Ok(())
    }

    fn checked(&self) -> u64 {
        self.checked
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Fixture, OTHER, REPEATING, SERVER, handing};
    use super::*;

    #[test]
    fn accepts_each_call_once() {
        Fixture::of_calls().good(AtMostOnce::default());
    }

    #[test]
    fn accepts_a_call_that_is_passed_on_and_comes_back() {
        let mut fixture = Fixture::default();
        let call = fixture.call(0);
        fixture.hand(SERVER, call, 0);
        fixture.pass_on(SERVER, call, 0);
        fixture.hand(OTHER, call, 1);
        fixture.pass_on(OTHER, call, 1);
        fixture.answer(SERVER, call, 2);
        fixture.good(AtMostOnce::default());
    }

    #[test]
    fn rejects_a_call_handed_out_again() {
        let mut fixture = Fixture::default();
        fixture.complete();
        let again = fixture.last(handing).clone();
        fixture.records.push(again);
        fixture.bad(AtMostOnce::default());
    }

    #[test]
    fn rejects_a_call_handed_to_another_life_without_being_passed_on() {
        let mut fixture = Fixture::default();
        let call = fixture.call(0);
        fixture.hand(SERVER, call, 0);
        fixture.hand(OTHER, call, 0);
        fixture.bad(AtMostOnce::default());
    }

    #[test]
    fn rejects_a_forwarder_that_runs_it_too() {
        let mut fixture = Fixture::default();
        let call = fixture.call(0);
        fixture.hand(SERVER, call, 0);
        fixture.pass_on(SERVER, call, 0);
        fixture.hand(OTHER, call, 1);
        fixture.hand(SERVER, call, 0);
        fixture.bad(AtMostOnce::default());
    }

    #[test]
    fn a_service_that_recognises_repeats_is_handed_them_and_runs_them_once() {
        let mut fixture = Fixture::default();
        let call = fixture.call(REPEATING);
        fixture.answer(SERVER, call, 0);
        fixture.hand(OTHER, call, 0);
        fixture.reply(OTHER, call);
        fixture.good(AtMostOnce::default());
        fixture.execute(OTHER, call);
        fixture.bad(AtMostOnce::default());
    }
}

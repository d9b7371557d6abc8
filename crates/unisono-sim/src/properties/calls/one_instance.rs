//! One instance: no call is executed by two instances of a service. A client's calls for a port go to one instance, until
//! one of them has ended because only another one was found.

use super::Calls;
use crate::properties::{Facts, Property, Violation, broken};
use crate::record::{CallOutcome, Kind, Life, Record, What};
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, Default)]
struct CallState {
    port: u16,
    /// Instance that executed it.
    executed_by: Option<u64>,
}

/// The checker of `one_instance`.
#[derive(Debug, Default)]
pub(super) struct OneInstance {
    /// Instance of each service that a life serves.
    serving: BTreeMap<(Life, u16), u64>,
    states: Calls<CallState>,
    /// Instance of the service of which a life was handed a call.
    handed: BTreeMap<(Life, Life, u64), u64>,
    /// Instance with which a client stays, by port; `None` once a call of it found only another one.
    stays_with: BTreeMap<(Life, u16), Option<u64>>,
    checked: u64,
}

impl Property for OneInstance {
    fn name(&self) -> &'static str {
        "one_instance"
    }

    fn interests(&self) -> u64 {
        let calls = Kind::Called.bit() | Kind::CallEnded.bit();
        Kind::Serving.bit() | Kind::Handed.bit() | Kind::Executed.bit() | calls
    }

    fn observe(&mut self, record: &Record, _: &Facts) -> Result<(), Violation> {
        match record.what {
            What::Serving { port, instance, .. } => {
                self.serving.insert((record.life, port), instance);
            }
            What::Called { call, port, .. } => self.states.at(record.life, call).port = port,
            What::CallEnded { call, outcome: CallOutcome::OtherInstance } => {
                let port = self.states.at(record.life, call).port;
                self.stays_with.insert((record.life, port), None);
            }
            What::Handed { client, call, port, .. } => {
                self.checked += 1;
                let instance = self.serving.get(&(record.life, port)).copied().unwrap_or_default();
                self.handed.insert((record.life, client, call), instance);
                let known = *self.stays_with.entry((client, port)).or_insert(Some(instance));
                if let Some(known) = known.filter(|known| *known != instance) {
                    return broken(self, record, || format!("its client stays with instance {known}"));
                }
                let executed_by = self.states.at(client, call).executed_by;
                if let Some(other) = executed_by.filter(|other| *other != instance) {
                    return broken(self, record, || format!("instance {other} has executed it"));
                }
            }
            What::Executed { client, call } => {
                let instance = self.handed.get(&(record.life, client, call)).copied().unwrap_or_default();
                let before = self.states.at(client, call).executed_by.replace(instance);
                if let Some(other) = before.filter(|other| *other != instance) {
                    return broken(self, record, || format!("instance {other} has executed it"));
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
    use super::super::fixture::{CLIENT, Fixture, OTHER, REPEATING, SERVER};
    use super::*;

    /// Returns a fixture whose two servers are of different instances.
    fn two_instances() -> Fixture {
        let mut fixture = Fixture::default();
        for (server, instance) in [(SERVER, 1), (OTHER, 2)] {
            fixture.record(server, What::Serving { port: REPEATING, owns: true, repeats: true, instance });
        }
        fixture
    }

    #[test]
    fn accepts_calls_of_one_instance() {
        Fixture::of_calls().good(OneInstance::default());
        let mut fixture = two_instances();
        for _ in 0..2 {
            let call = fixture.call(REPEATING);
            fixture.answer(SERVER, call, 0);
        }
        fixture.good(OneInstance::default());
    }

    #[test]
    fn rejects_calls_of_one_client_at_two_instances() {
        let mut fixture = two_instances();
        for server in [SERVER, OTHER] {
            let call = fixture.call(REPEATING);
            fixture.answer(server, call, 0);
        }
        fixture.bad(OneInstance::default());
    }

    #[test]
    fn a_client_may_accept_another_instance_but_not_for_the_same_call() {
        let mut fixture = two_instances();
        let first = fixture.call(REPEATING);
        fixture.answer(SERVER, first, 0);
        let refused = fixture.call(REPEATING);
        fixture.record(CLIENT, What::CallEnded { call: refused, outcome: CallOutcome::OtherInstance });
        let second = fixture.call(REPEATING);
        fixture.answer(OTHER, second, 0);
        fixture.good(OneInstance::default());
        fixture.hand(OTHER, first, 0);
        fixture.bad(OneInstance::default());
    }
}

//! Liveness: once the faults are over, a call is answered or refused by the application, if its client waits two
//! seconds and another life serves the port all the while. That does not hold for a service with two instances: a client
//! stays with one of them, which may have no servers.

use crate::properties::healing::Healing;
use crate::properties::{Facts, Property, Violation, broken};
use crate::record::{CallOutcome, Kind, Life, Record, What};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Time limit with which a call is sure to be answered.
pub(crate) const ENOUGH: Duration = Duration::from_secs(2);

/// The checker of `calls_succeed`.
#[derive(Debug, Default)]
pub(super) struct CallsSucceed {
    healing: Healing,
    servers: Vec<(Life, u16)>,
    /// The instance of each port, and the ports with two.
    instances: BTreeMap<u16, u64>,
    twins: BTreeSet<u16>,
    /// Calls that must be answered, and their ports.
    expected: Vec<(Life, u64, u16)>,
    checked: u64,
}

impl CallsSucceed {
    /// Drops the calls whose ports no server serves any more.
    fn drop_unserved(&mut self) {
        let (servers, healing) = (&self.servers, &self.healing);
        self.expected.retain(|(client, _, port)| is_served(servers, healing, *port, *client));
    }
}

/// True if a life other than the client serves the port undisturbed.
fn is_served(servers: &[(Life, u16)], healing: &Healing, port: u16, client: Life) -> bool {
    servers.iter().any(|(life, one)| *one == port && *life != client && healing.covers(*life))
}

impl Property for CallsSucceed {
    fn name(&self) -> &'static str {
        "calls_succeed"
    }

    fn interests(&self) -> u64 {
        let servers = Kind::Serving.bit() | Kind::Withdrawn.bit() | Kind::Crashed.bit();
        let calls = Kind::Called.bit() | Kind::CallEnded.bit() | Kind::CallCancelled.bit();
        Kind::Healed.bit() | servers | calls
    }

    fn observe(&mut self, record: &Record, _: &Facts) -> Result<(), Violation> {
        let life = record.life;
        match record.what {
            What::Serving { port, owns: true, instance, .. } => {
                self.servers.push((life, port));
                if *self.instances.entry(port).or_insert(instance) != instance {
                    self.twins.insert(port);
                    self.expected.retain(|(_, _, one)| *one != port);
                }
            }
            What::Withdrawn { port } => {
                self.servers.retain(|server| *server != (life, port));
                self.drop_unserved();
            }
            What::Crashed => {
                self.servers.retain(|(server, _)| *server != life);
                self.expected.retain(|(client, _, _)| *client != life);
                self.drop_unserved();
            }
            What::Called { call, port, limit_us, .. } => {
                let waits = Duration::from_micros(limit_us.into()) >= ENOUGH;
                let waits = waits && !self.twins.contains(&port);
                if waits && self.healing.covers(life) && is_served(&self.servers, &self.healing, port, life) {
                    self.expected.push((life, call, port));
                }
            }
            What::CallCancelled { call } => {
                self.expected.retain(|(client, one, _)| (*client, *one) != (life, call));
            }
            What::CallEnded { call, outcome } => {
                let expected =
                    self.expected.iter().position(|(client, one, _)| (*client, *one) == (life, call));
                if let Some(index) = expected {
                    self.expected.swap_remove(index);
                    self.checked += 1;
                    if !matches!(outcome, CallOutcome::Replied { .. } | CallOutcome::Refused { .. }) {
                        return broken(self, record, || "an undisturbed server serves its port".into());
                    }
                }
            }
            _ => self.healing.follow(record),
        }
        Ok(())
    }

    fn checked(&self) -> u64 {
        self.checked
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{CLIENT, Fixture, OTHER, SERVER};
    use super::*;

    fn healed() -> Fixture {
        let mut fixture = Fixture::default();
        let before = fixture.call(0);
        fixture.heal();
        fixture.end(before, CallOutcome::NotFound);
        fixture.complete();
        fixture
    }

    #[test]
    fn accepts_answers_and_refusals_when_all_is_well() {
        let mut fixture = healed();
        let call = fixture.call(0);
        fixture.hand(SERVER, call, 0);
        fixture.refuse(SERVER, call);
        fixture.good(CallsSucceed::default());
    }

    #[test]
    fn accepts_failures_without_a_server() {
        let mut fixture = healed();
        let call = fixture.call(0);
        fixture.record(SERVER, What::Withdrawn { port: 0 });
        fixture.record(OTHER, What::Crashed);
        fixture.end(call, CallOutcome::Failed);
        fixture.good(CallsSucceed::default());
    }

    #[test]
    fn rejects_failures_when_all_is_well() {
        for outcome in [CallOutcome::NotFound, CallOutcome::Failed, CallOutcome::Busy, CallOutcome::Unknown] {
            let mut fixture = healed();
            let call = fixture.call(0);
            fixture.end(call, outcome);
            fixture.bad(CallsSucceed::default());
        }
    }

    #[test]
    fn one_server_is_enough() {
        let mut fixture = healed();
        fixture.record(OTHER, What::Crashed);
        let call = fixture.call(0);
        fixture.end(call, CallOutcome::NotFound);
        assert_eq!(fixture.records.last().map(|record| record.life), Some(CLIENT));
        fixture.bad(CallsSucceed::default());
    }
}

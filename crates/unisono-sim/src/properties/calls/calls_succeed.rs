//! Liveness: when faults are over, a call to a port that somebody else serves all the while is answered, if its client
//! waits long enough.

use crate::properties::ground::Ground;
use crate::properties::{Facts, Property, Violation, broken};
use crate::record::{CallOutcome, Kind, Life, Record, What};
use std::time::Duration;

/// Who waits so long is answered.
pub(crate) const ENOUGH: Duration = Duration::from_secs(2);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct CallsSucceed {
    ground: Ground,
    servers: Vec<(Life, u16)>,
    /// Calls that must be answered, and their ports.
    owed: Vec<(Life, u64, u16)>,
    checked: u64,
}

impl CallsSucceed {
    /// Who had to wait for a server that is gone now is owed nothing.
    fn forgive(&mut self) {
        let (servers, ground) = (&self.servers, &self.ground);
        self.owed.retain(|(client, _, port)| is_served(servers, ground, *port, *client));
    }
}

/// Somebody else than the client serves the port.
fn is_served(servers: &[(Life, u16)], ground: &Ground, port: u16, client: Life) -> bool {
    servers.iter().any(|(life, one)| *one == port && *life != client && ground.has(*life))
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
            What::Serving { port, owns: true, .. } => self.servers.push((life, port)),
            What::Withdrawn { port } => {
                self.servers.retain(|server| *server != (life, port));
                self.forgive();
            }
            What::Crashed => {
                self.servers.retain(|(server, _)| *server != life);
                self.owed.retain(|(client, _, _)| *client != life);
                self.forgive();
            }
            What::Called { call, port, limit_us, .. } => {
                let waits = Duration::from_micros(limit_us.into()) >= ENOUGH;
                if waits && self.ground.has(life) && is_served(&self.servers, &self.ground, port, life) {
                    self.owed.push((life, call, port));
                }
            }
            What::CallCancelled { call } => {
                self.owed.retain(|(client, one, _)| (*client, *one) != (life, call));
            }
            What::CallEnded { call, outcome } => {
                let owed = self.owed.iter().position(|(client, one, _)| (*client, *one) == (life, call));
                if let Some(place) = owed {
                    self.owed.swap_remove(place);
                    self.checked += 1;
                    if !matches!(outcome, CallOutcome::Replied { .. } | CallOutcome::Refused { .. }) {
                        return broken(self, record, || "somebody serves its port, undisturbed".into());
                    }
                }
            }
            _ => self.ground.follow(record),
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
    fn takes_answers_and_refusals_when_all_is_well() {
        let mut fixture = healed();
        let call = fixture.call(0);
        fixture.hand(SERVER, call, 0);
        fixture.refuse(SERVER, call);
        fixture.good(CallsSucceed::default());
    }

    #[test]
    fn takes_failures_where_nobody_serves() {
        let mut fixture = healed();
        let call = fixture.call(0);
        fixture.tell(SERVER, What::Withdrawn { port: 0 });
        fixture.tell(OTHER, What::Crashed);
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
        fixture.tell(OTHER, What::Crashed);
        let call = fixture.call(0);
        fixture.end(call, CallOutcome::NotFound);
        assert_eq!(fixture.records.last().map(|record| record.life), Some(CLIENT));
        fixture.bad(CallsSucceed::default());
    }
}

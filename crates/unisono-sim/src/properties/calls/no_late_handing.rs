//! No late handing: a server hands no request to an application if it knows that the client's deadline has passed.
//! Where no fault affects client and server, it hands out no request that the client cancelled more than 50 ms ago.

use super::Calls;
use crate::properties::healing::Healing;
use crate::properties::{Facts, Property, Violation, broken};
use crate::record::{Kind, Record, What};
use std::time::Duration;
use unisono_core::Time;

/// Maximum time in which an undisturbed network reports a cancelled call to its server.
const CANCELLED_WITHIN: Duration = Duration::from_millis(50);

/// The checker of `no_late_handing`.
#[derive(Debug, Default)]
pub(super) struct NoLateHanding {
    healing: Healing,
    cancelled: Calls<Option<Time>>,
    checked: u64,
}

impl Property for NoLateHanding {
    fn name(&self) -> &'static str {
        "no_late_handing"
    }

    fn interests(&self) -> u64 {
        Kind::Healed.bit() | Kind::CallCancelled.bit() | Kind::Handed.bit()
    }

    fn observe(&mut self, record: &Record, _: &Facts) -> Result<(), Violation> {
        match record.what {
            What::CallCancelled { call } if self.healing.covers(record.life) => {
                *self.cancelled.at(record.life, call) = Some(record.at);
            }
            What::Handed { client, call, is_late, .. } => {
                self.checked += 1;
                if is_late {
                    return broken(self, record, || "its client's deadline had passed".into());
                }
                let cancelled = self.cancelled.get(client, call).copied().flatten();
                if let Some(at) = cancelled.filter(|at| *at + CANCELLED_WITHIN < record.at) {
                    return broken(self, record, || format!("it was cancelled at {at:?}"));
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
    use super::super::fixture::{CLIENT, Fixture, SERVER, handing};
    use super::*;

    #[test]
    fn accepts_calls_in_time() {
        Fixture::of_calls().good(NoLateHanding::default());
    }

    #[test]
    fn rejects_what_is_late() {
        let mut fixture = Fixture::of_calls();
        if let What::Handed { is_late, .. } = &mut fixture.last(handing).what {
            *is_late = true;
        }
        fixture.bad(NoLateHanding::default());
    }

    #[test]
    fn rejects_a_call_cancelled_a_while_ago_without_faults() {
        let mut fixture = Fixture::of_calls();
        let call = fixture.call(0);
        fixture.record(CLIENT, What::CallCancelled { call });
        fixture.wait(2 * CANCELLED_WITHIN);
        fixture.hand(SERVER, call, 0);
        fixture.good(NoLateHanding::default());
        fixture.heal();
        let call = fixture.call(0);
        fixture.record(CLIENT, What::CallCancelled { call });
        fixture.hand(SERVER, call, 0);
        fixture.good(NoLateHanding::default());
        let call = fixture.call(0);
        fixture.record(CLIENT, What::CallCancelled { call });
        fixture.wait(2 * CANCELLED_WITHIN);
        fixture.hand(SERVER, call, 0);
        fixture.bad(NoLateHanding::default());
    }
}

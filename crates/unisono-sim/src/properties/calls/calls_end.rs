//! Every call ends: it has one outcome, at most 10 ms after its deadline by its client's clock, as long as the client
//! lives and is awake. A cancelled call has none.

use super::Calls;
use crate::properties::tables::Table;
use crate::properties::{Facts, Property, Violation, broken, final_result};
use crate::record::{End, Kind, Life, Record, What};
use std::time::Duration;
use unisono_core::Time;

/// Maximum time from the deadline to the outcome.
const LATE_MAX: Duration = Duration::from_millis(10);
/// A client's clock may run slow by one part in 99.
const DRIFT: u32 = 99;

#[derive(Clone, Copy, Debug, Default)]
struct Client {
    is_paused: bool,
    is_over: bool,
    /// Time at which it last resumed after a pause.
    resumed: Time,
}

/// The checker of `calls_end`.
#[derive(Debug, Default)]
pub(super) struct CallsEnd {
    clients: Table<Client>,
    /// Latest time at which each call under way must have ended.
    due: Calls<Option<Time>>,
    under_way: Vec<(Life, u64)>,
    checked: u64,
}

impl CallsEnd {
    /// Returns the latest time for an outcome that was due at `due`. A client that was paused gets `LATE_MAX` after
    /// it resumed.
    fn latest(&self, client: Client, due: Time) -> Time {
        due.max(client.resumed + LATE_MAX)
    }

    fn close(&mut self, client: Life, call: u64) -> Option<Time> {
        let due = self.due.at(client, call).take();
        self.under_way.retain(|one| *one != (client, call));
        due
    }

    fn overdue(&mut self, at: Time) -> Option<String> {
        let mut left = std::mem::take(&mut self.under_way);
        left.retain(|(life, call)| {
            let client = *self.clients.at(*life);
            let due = self.due.get(*life, *call).copied().flatten();
            !client.is_paused && !client.is_over && due.is_some_and(|due| self.latest(client, due) < at)
        });
        left.first().map(|(life, call)| format!("call {call} of {life:?} has no outcome"))
    }
}

impl Property for CallsEnd {
    fn name(&self) -> &'static str {
        "calls_end"
    }

    fn interests(&self) -> u64 {
        let lives = Kind::Paused.bit() | Kind::Resumed.bit() | Kind::Crashed.bit();
        lives | Kind::Called.bit() | Kind::CallEnded.bit() | Kind::CallCancelled.bit()
    }

    fn observe(&mut self, record: &Record, _: &Facts) -> Result<(), Violation> {
        match record.what {
            What::Paused => self.clients.at(record.life).is_paused = true,
            What::Resumed => {
                *self.clients.at(record.life) =
                    Client { is_paused: false, resumed: record.at, ..Client::default() };
            }
            What::Crashed => self.clients.at(record.life).is_over = true,
            What::Called { call, limit_us, .. } => {
                let limit = Duration::from_micros(limit_us.into());
                *self.due.at(record.life, call) = Some(record.at + limit + limit / DRIFT + LATE_MAX);
                self.under_way.push((record.life, call));
            }
            What::CallCancelled { call } => {
                self.close(record.life, call);
            }
            What::CallEnded { call, .. } => {
                self.checked += 1;
                let client = *self.clients.at(record.life);
                match self.close(record.life, call) {
                    None => {
                        return broken(self, record, || "it had an outcome before, or was never made".into());
                    }
                    Some(due) if self.latest(client, due) < record.at => {
                        return broken(self, record, || format!("it was due by {due:?}"));
                    }
                    Some(_) => {}
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn finish(&mut self, end: &End, _: &Facts) -> Result<(), Violation> {
        let fault = self.overdue(end.at);
        final_result(self, end, fault)
    }

    fn checked(&self) -> u64 {
        self.checked
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{CLIENT, Fixture, LIMIT, SERVER, ending};
    use super::*;
    use crate::record::CallOutcome;

    #[test]
    fn accepts_calls_that_end_in_time() {
        let mut fixture = Fixture::of_calls();
        let call = fixture.call(0);
        fixture.wait(LIMIT);
        fixture.end(call, CallOutcome::Unknown);
        fixture.good(CallsEnd::default());
    }

    #[test]
    fn accepts_clients_that_were_paused_or_crashed() {
        let mut fixture = Fixture::default();
        let call = fixture.call(0);
        fixture.record(CLIENT, What::Paused);
        fixture.wait(2 * LIMIT);
        fixture.good(CallsEnd::default());
        fixture.record(CLIENT, What::Resumed);
        fixture.end(call, CallOutcome::Unknown);
        fixture.call(0);
        fixture.record(CLIENT, What::Crashed);
        fixture.wait(2 * LIMIT);
        fixture.good(CallsEnd::default());
    }

    #[test]
    fn rejects_what_ends_late_or_never() {
        let mut fixture = Fixture::default();
        let call = fixture.call(0);
        fixture.answer(SERVER, call, 0);
        fixture.wait(2 * LIMIT);
        fixture.bad(CallsEnd::default());
        fixture.end(call, CallOutcome::Unknown);
        fixture.bad(CallsEnd::default());
    }

    #[test]
    fn rejects_a_second_outcome_and_one_of_a_cancelled_call() {
        let mut fixture = Fixture::of_calls();
        let again = fixture.last(ending).clone();
        fixture.records.push(again);
        fixture.bad(CallsEnd::default());
        let mut fixture = Fixture::default();
        let call = fixture.call(0);
        fixture.record(CLIENT, What::CallCancelled { call });
        fixture.wait(2 * LIMIT);
        fixture.good(CallsEnd::default());
        fixture.end(call, CallOutcome::Failed);
        fixture.bad(CallsEnd::default());
    }
}

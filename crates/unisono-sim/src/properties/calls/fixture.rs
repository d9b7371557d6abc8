//! Invented histories of calls for the properties' own tests: two servers and a client that make no mistakes. A test
//! takes a correct fixture, which its property must accept, and breaks it, so that the property must reject it.

use crate::properties::{Checkers, Property};
use crate::record::{CallOutcome, End, Life, Record, What};
use std::time::Duration;
use unisono_core::Time;

pub(super) const SERVER: Life = Life(0);
pub(super) const OTHER: Life = Life(1);
pub(super) const CLIENT: Life = Life(2);

/// Port of a service that recognises repeats. The service at port 0 does not.
pub(super) const REPEATING: u16 = 1;

/// Time limit of each call.
pub(super) const LIMIT: Duration = Duration::from_secs(5);

#[derive(Clone, Debug)]
pub(super) struct Fixture {
    pub(super) records: Vec<Record>,
    at: Time,
    /// Ports of the calls made. Calls are numbered from 1.
    calls: Vec<u16>,
}

impl Default for Fixture {
    /// Two servers, each with both ports; no calls yet.
    fn default() -> Fixture {
        let mut fixture = Fixture { records: Vec::new(), at: Time::ZERO, calls: Vec::new() };
        for server in [SERVER, OTHER] {
            fixture.record(server, What::Serving { port: 0, owns: true, repeats: false, instance: 0 });
            fixture.record(server, What::Serving { port: REPEATING, owns: true, repeats: true, instance: 0 });
        }
        fixture
    }
}

/// Returns the hash of a call's request, reply and reason.
pub(super) fn hash_of(call: u64) -> u64 {
    call.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

pub(super) fn handing(what: &What) -> bool {
    matches!(what, What::Handed { .. })
}

pub(super) fn ending(what: &What) -> bool {
    matches!(what, What::CallEnded { .. })
}

impl Fixture {
    /// Three calls: one answered, one refused, one passed on and answered.
    pub(super) fn of_calls() -> Fixture {
        let mut fixture = Fixture::default();
        fixture.complete();
        let call = fixture.call(0);
        fixture.hand(OTHER, call, 0);
        fixture.refuse(OTHER, call);
        let call = fixture.call(REPEATING);
        fixture.hand(OTHER, call, 0);
        fixture.pass_on(OTHER, call, 0);
        fixture.answer(SERVER, call, 1);
        fixture.end(call, CallOutcome::Replied { hash: hash_of(call) });
        fixture
    }

    pub(super) fn record(&mut self, life: Life, what: What) {
        self.at = self.at + Duration::from_micros(1);
        self.records.push(Record { at: self.at, process: life.0, life, what });
    }

    pub(super) fn wait(&mut self, duration: Duration) {
        self.at = self.at + duration;
    }

    pub(super) fn heal(&mut self) {
        self.record(Life::WORLD, What::Healed { core: [SERVER, OTHER, CLIENT].into() });
    }

    /// The client calls.
    pub(super) fn call(&mut self, port: u16) -> u64 {
        self.calls.push(port);
        let call = self.calls.len() as u64;
        let limit_us = LIMIT.as_micros() as u32;
        self.record(CLIENT, What::Called { call, port, limit_us, hash: hash_of(call) });
        call
    }

    pub(super) fn hand(&mut self, server: Life, call: u64, hops: u8) {
        let (port, hash) = (self.calls[call as usize - 1], hash_of(call));
        self.record(server, What::Handed { client: CLIENT, call, port, hops, is_late: false, hash });
    }

    pub(super) fn execute(&mut self, server: Life, call: u64) {
        self.record(server, What::Executed { client: CLIENT, call });
    }

    pub(super) fn reply(&mut self, server: Life, call: u64) {
        self.record(server, What::Replied { client: CLIENT, call, hash: hash_of(call) });
    }

    pub(super) fn pass_on(&mut self, server: Life, call: u64, hops: u8) {
        self.record(server, What::PassedOn { client: CLIENT, call, hops });
    }

    /// The call is handed out, executed, and answered.
    pub(super) fn answer(&mut self, server: Life, call: u64, hops: u8) {
        self.hand(server, call, hops);
        self.execute(server, call);
        self.reply(server, call);
    }

    /// The call is refused, and the client receives the refusal.
    pub(super) fn refuse(&mut self, server: Life, call: u64) {
        let hash = hash_of(call);
        self.record(server, What::RefusedCall { client: CLIENT, call, hash });
        self.end(call, CallOutcome::Refused { hash });
    }

    /// The client receives an outcome.
    pub(super) fn end(&mut self, call: u64, outcome: CallOutcome) {
        self.record(CLIENT, What::CallEnded { call, outcome });
    }

    /// A call from its beginning to its end.
    pub(super) fn complete(&mut self) {
        let call = self.call(0);
        self.answer(SERVER, call, 0);
        self.end(call, CallOutcome::Replied { hash: hash_of(call) });
    }

    /// Returns the last record that `wanted` accepts.
    pub(super) fn last(&mut self, wanted: impl Fn(&What) -> bool) -> &mut Record {
        let index = self
            .records
            .iter()
            .rposition(|record| wanted(&record.what))
            .expect("the fixture has such a record");
        &mut self.records[index]
    }

    fn is_kept(&self, property: impl Property + 'static) -> bool {
        let mut checkers = Checkers::new(vec![Box::new(property)]);
        let kept = self.records.iter().try_for_each(|record| checkers.observe(record.clone()));
        let end = End { at: self.at, ..End::default() };
        kept.and_then(|()| checkers.finish(&end)).is_ok()
    }

    /// Asserts that a property accepts this fixture.
    #[track_caller]
    pub(super) fn good(&self, property: impl Property + 'static) {
        assert!(self.is_kept(property), "a good fixture was rejected\n{}", self.text());
    }

    /// Asserts that a property rejects this fixture.
    #[track_caller]
    pub(super) fn bad(&self, property: impl Property + 'static) {
        assert!(!self.is_kept(property), "a bad fixture was accepted\n{}", self.text());
    }

    fn text(&self) -> String {
        self.records.iter().map(|record| format!("{:?} {:?}\n", record.life, record.what)).collect()
    }
}

mod tests {
    use super::*;

    /// In a fixture with records of every kind that they need, each property tests its promise at least once.
    #[test]
    fn every_property_has_something_to_check() {
        let mut fixture = Fixture::of_calls();
        fixture.heal();
        fixture.complete();
        fixture.record(SERVER, What::Strayed { came: 1, left: 0 });
        fixture.record(SERVER, What::Worked { made: 1, checked: 0 });
        fixture.record(SERVER, What::Held { what: "requests", used: 1, max: 8 });
        let mut checkers = Checkers::new(super::super::all());
        fixture.records.iter().for_each(|record| {
            checkers.observe(record.clone()).expect("a correct fixture keeps all promises")
        });
        checkers
            .finish(&End { at: fixture.at, ..End::default() })
            .expect("a correct fixture keeps all promises");
        let idle: Vec<_> = checkers.checked().filter(|(_, checked)| *checked == 0).collect();
        assert!(idle.is_empty(), "{idle:?}");
    }
}

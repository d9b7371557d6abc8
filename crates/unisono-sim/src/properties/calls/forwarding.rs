//! Forwarding: a call is passed on at most eight times, and the count is correct. An application that passed a call
//! on is handed it again only by a later step of the same path. (Where repeats are recognised, a client that received
//! no answer may ask again.)

use super::{Calls, Repeating};
use crate::properties::{Facts, Property, Violation, broken};
use crate::record::{Kind, Life, Record, What};
use unisono_core::wire::HOPS_MAX;

/// The checker of `forwarding`.
#[derive(Debug, Default)]
pub(super) struct Forwarding {
    /// By call, the lives that passed it on, and how often it had been passed on before.
    passed: Calls<Vec<(Life, u8)>>,
    repeating: Repeating,
    checked: u64,
}

impl Property for Forwarding {
    fn name(&self) -> &'static str {
        "forwarding"
    }

    fn interests(&self) -> u64 {
        Kind::Serving.bit() | Kind::Handed.bit() | Kind::PassedOn.bit()
    }

    fn observe(&mut self, record: &Record, _: &Facts) -> Result<(), Violation> {
        match record.what {
            What::PassedOn { client, call, hops } => {
                self.checked += 1;
                if hops >= HOPS_MAX {
                    return broken(self, record, || format!("it may be passed on at most {HOPS_MAX} times"));
                }
                self.passed.at(client, call).push((record.life, hops));
            }
            What::Handed { client, call, port, hops, .. } => {
                let passed = self.passed.get(client, call).map_or(&[][..], Vec::as_slice);
                if hops > 0 && !passed.iter().any(|(_, before)| before + 1 == hops) {
                    return broken(self, record, || "no server passed it on with this count".into());
                }
                let passed_this = |(life, before): &(Life, u8)| *life == record.life && *before >= hops;
                if !self.repeating.contains(port) && passed.iter().any(passed_this) {
                    return broken(self, record, || "it passed this call on before".into());
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
    use super::super::fixture::{Fixture, OTHER, REPEATING, SERVER};
    use super::*;

    fn forwarded() -> (Fixture, u64) {
        let mut fixture = Fixture::of_calls();
        let call = fixture.call(0);
        fixture.hand(SERVER, call, 0);
        fixture.pass_on(SERVER, call, 0);
        fixture.hand(OTHER, call, 1);
        (fixture, call)
    }

    #[test]
    fn accepts_a_path_that_comes_back_and_ends() {
        let (mut fixture, call) = forwarded();
        for hops in 1..HOPS_MAX {
            let (from, to) = if hops % 2 == 0 { (SERVER, OTHER) } else { (OTHER, SERVER) };
            fixture.pass_on(from, call, hops);
            fixture.hand(to, call, hops + 1);
        }
        fixture.good(Forwarding::default());
        fixture.pass_on(SERVER, call, HOPS_MAX);
        fixture.bad(Forwarding::default());
    }

    #[test]
    fn rejects_a_forwarder_that_is_handed_it_again() {
        let (mut fixture, call) = forwarded();
        fixture.hand(SERVER, call, 0);
        fixture.bad(Forwarding::default());
    }

    #[test]
    fn accepts_a_client_that_asks_again_where_repeats_are_recognised() {
        let mut fixture = Fixture::default();
        let call = fixture.call(REPEATING);
        fixture.hand(SERVER, call, 0);
        fixture.pass_on(SERVER, call, 0);
        fixture.answer(SERVER, call, 0);
        fixture.good(Forwarding::default());
    }

    #[test]
    fn rejects_steps_that_were_never_taken() {
        let (mut fixture, call) = forwarded();
        fixture.pass_on(OTHER, call, 1);
        fixture.hand(SERVER, call, 3);
        fixture.bad(Forwarding::default());
    }
}

//! The promises of calls, as checkers of recorded runs: one file per promise.

mod amplification;
mod at_most_once;
mod call_bounds;
mod call_integrity;
mod calls_end;
mod calls_succeed;
#[cfg(test)]
mod fixture;
mod forwarding;
mod no_late_handing;
mod one_instance;
mod port_ownership;
mod reply_matches;
mod truthful_outcome;
mod work;

pub(crate) use calls_succeed::ENOUGH;

use super::Property;
use crate::record::{Life, What};
use std::collections::BTreeMap;

/// A value for each call: by client and number.
#[derive(Clone, Debug)]
struct Calls<T>(BTreeMap<(Life, u64), T>);

impl<T> Default for Calls<T> {
    fn default() -> Calls<T> {
        Calls(BTreeMap::new())
    }
}

impl<T: Default> Calls<T> {
    /// Returns the value, and creates it first if needed.
    fn at(&mut self, client: Life, call: u64) -> &mut T {
        self.0.entry((client, call)).or_default()
    }

    fn get(&self, client: Life, call: u64) -> Option<&T> {
        self.0.get(&(client, call))
    }
}

/// The ports whose services recognise repeats of a call.
#[derive(Clone, Debug, Default)]
struct Repeating(Vec<u16>);

impl Repeating {
    /// Takes note of a served port; ignores other records.
    fn follow(&mut self, what: &What) {
        if let What::Serving { port, repeats: true, .. } = what
            && !self.0.contains(port)
        {
            self.0.push(*port);
        }
    }

    fn contains(&self, port: u16) -> bool {
        self.0.contains(&port)
    }
}

/// Returns all properties of calls.
pub fn all() -> Vec<Box<dyn Property>> {
    vec![
        Box::<call_integrity::CallIntegrity>::default(),
        Box::<one_instance::OneInstance>::default(),
        Box::<at_most_once::AtMostOnce>::default(),
        Box::<truthful_outcome::TruthfulOutcome>::default(),
        Box::<reply_matches::ReplyMatches>::default(),
        Box::<forwarding::Forwarding>::default(),
        Box::<port_ownership::PortOwnership>::default(),
        Box::<calls_end::CallsEnd>::default(),
        Box::<no_late_handing::NoLateHanding>::default(),
        Box::<calls_succeed::CallsSucceed>::default(),
        Box::<call_bounds::CallBounds>::default(),
        Box::<amplification::Amplification>::default(),
        Box::<work::Work>::default(),
    ]
}

//! Bounds: an endpoint never holds more than its named bounds allow, whatever clients do.

use crate::properties::{Facts, Property, Violation, broken};
use crate::record::{Kind, Record, What};

/// The checker of `call_bounds`.
#[derive(Debug, Default)]
pub(super) struct CallBounds {
    checked: u64,
}

impl Property for CallBounds {
    fn name(&self) -> &'static str {
        "call_bounds"
    }

    fn interests(&self) -> u64 {
        Kind::Held.bit()
    }

    fn observe(&mut self, record: &Record, _: &Facts) -> Result<(), Violation> {
        if let What::Held { used, max, .. } = record.what {
            self.checked += 1;
            if used > max {
                return broken(self, record, || "it holds more than its bound".into());
            }
        }
        Ok(())
    }

    fn checked(&self) -> u64 {
        self.checked
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Fixture, SERVER};
    use super::*;

    #[test]
    fn accepts_what_fits_and_no_more() {
        let mut fixture = Fixture::of_calls();
        fixture.record(SERVER, What::Held { what: "requests", used: 8, max: 8 });
        fixture.good(CallBounds::default());
        fixture.record(SERVER, What::Held { what: "requests", used: 9, max: 8 });
        fixture.bad(CallBounds::default());
    }
}

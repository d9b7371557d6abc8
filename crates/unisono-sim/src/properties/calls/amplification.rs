//! Amplification: a server sends an address no more bytes than it received from there, until a process at that
//! address has shown that it receives.

use crate::properties::{Facts, Property, Violation, broken};
use crate::record::{Kind, Record, What};

/// The checker of `amplification`.
#[derive(Debug, Default)]
pub(super) struct Amplification {
    checked: u64,
}

impl Property for Amplification {
    fn name(&self) -> &'static str {
        "amplification"
    }

    fn interests(&self) -> u64 {
        Kind::Strayed.bit()
    }

    fn observe(&mut self, record: &Record, _: &Facts) -> Result<(), Violation> {
        if let What::Strayed { came, left } = record.what {
            self.checked += 1;
            if left > came {
                return broken(self, record, || "more bytes left than came".into());
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
    fn accepts_as_many_bytes_as_came_and_no_more() {
        let mut fixture = Fixture::of_calls();
        fixture.record(SERVER, What::Strayed { came: 600, left: 0 });
        fixture.record(SERVER, What::Strayed { came: 600, left: 600 });
        fixture.good(Amplification::default());
        fixture.record(SERVER, What::Strayed { came: 600, left: 601 });
        fixture.bad(Amplification::default());
    }
}

//! Amplification: an address from which datagrams seem to come, but where nobody has ever shown that it hears
//! anything, is sent no more bytes than came from it.

use crate::properties::{Facts, Property, Violation, broken};
use crate::record::{Kind, Record, What};

/// See the module.
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
                return broken(self, record, || "more left than came".into());
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
    fn takes_as_much_as_came_and_no_more() {
        let mut fixture = Fixture::of_calls();
        fixture.tell(SERVER, What::Strayed { came: 600, left: 0 });
        fixture.tell(SERVER, What::Strayed { came: 600, left: 600 });
        fixture.good(Amplification::default());
        fixture.tell(SERVER, What::Strayed { came: 600, left: 601 });
        fixture.bad(Amplification::default());
    }
}

//! A life that has ended is silent: no datagram of it is made after that.

use super::{Facts, Property, Violation, broken};
use crate::record::{Kind, Record, What};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct EndedIsSilent {
    checked: u64,
}

impl Property for EndedIsSilent {
    fn name(&self) -> &'static str {
        "ended_is_silent"
    }

    fn interests(&self) -> u64 {
        Kind::Ended.bit() | Kind::SpokeAfterEnd.bit()
    }

    fn observe(&mut self, record: &Record, _: &Facts) -> Result<(), Violation> {
        self.checked += 1;
        match record.what {
            What::SpokeAfterEnd => broken(self, record, || "the life had ended".into()),
            _ => Ok(()),
        }
    }

    fn checked(&self) -> u64 {
        self.checked
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::properties::fixture::Fixture;
    use crate::record::Life;

    #[test]
    fn takes_silence_and_rejects_a_datagram() {
        let mut fixture = Fixture::of(3, 1);
        fixture.record(Life(1), What::Ended);
        fixture.crash(Life(1));
        fixture.good(EndedIsSilent::default());
        fixture.record(Life(1), What::SpokeAfterEnd);
        fixture.bad(EndedIsSilent::default());
    }
}

//! Call integrity: a request that an application is handed was made by that client, under that number, at that port,
//! with these bytes. A number names one call for ever.

use super::Calls;
use crate::properties::{Facts, Property, Violation, broken};
use crate::record::{Kind, Record, What};

/// The checker of `call_integrity`.
#[derive(Debug, Default)]
pub(super) struct CallIntegrity {
    /// Port and hash of each call.
    made: Calls<Option<(u16, u64)>>,
    checked: u64,
}

impl Property for CallIntegrity {
    fn name(&self) -> &'static str {
        "call_integrity"
    }

    fn interests(&self) -> u64 {
        Kind::Called.bit() | Kind::Handed.bit()
    }

    fn observe(&mut self, record: &Record, _: &Facts) -> Result<(), Violation> {
        match record.what {
            What::Called { call, port, hash, .. } => {
                let before = self.made.at(record.life, call).replace((port, hash));
                if let Some(before) = before {
                    return broken(self, record, || {
                        format!("the number also names another call: {before:x?}")
                    });
                }
            }
            What::Handed { client, call, port, hash, .. } => {
                self.checked += 1;
                match self.made.get(client, call).copied().flatten() {
                    None => return broken(self, record, || "no client made this call".into()),
                    Some(made) if made != (port, hash) => {
                        return broken(self, record, || format!("the client made another call: {made:x?}"));
                    }
                    Some(_) => {}
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn checked(&self) -> u64 {
        self.checked
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{CLIENT, Fixture, handing};
    use super::*;

    #[test]
    fn accepts_what_was_called() {
        Fixture::of_calls().good(CallIntegrity::default());
    }

    #[test]
    fn rejects_other_bytes_and_another_port() {
        let mut fixture = Fixture::of_calls();
        if let What::Handed { hash, .. } = &mut fixture.last(handing).what {
            *hash += 1;
        }
        fixture.bad(CallIntegrity::default());
        let mut fixture = Fixture::of_calls();
        if let What::Handed { port, .. } = &mut fixture.last(handing).what {
            *port += 1;
        }
        fixture.bad(CallIntegrity::default());
    }

    #[test]
    fn rejects_a_call_that_was_never_made() {
        let mut fixture = Fixture::of_calls();
        if let What::Handed { call, .. } = &mut fixture.last(handing).what {
            *call += 100;
        }
        fixture.bad(CallIntegrity::default());
    }

    #[test]
    fn rejects_a_number_given_twice() {
        let mut fixture = Fixture::of_calls();
        let again = fixture.last(|what| matches!(what, What::Called { .. })).clone();
        assert_eq!(again.life, CLIENT);
        fixture.records.push(again);
        fixture.bad(CallIntegrity::default());
    }
}

//! Port ownership: requests for a port reach only servers that have its private port and serve it at that moment. To
//! know where requests are sent is not enough.

use crate::properties::tables::Table;
use crate::properties::{Facts, Property, Violation, broken};
use crate::record::{Kind, Record, What};

/// The checker of `port_ownership`.
#[derive(Debug, Default)]
pub(super) struct PortOwnership {
    /// By life, the ports that it serves, and whether it has the private port.
    served: Table<Vec<(u16, bool)>>,
    checked: u64,
}

impl Property for PortOwnership {
    fn name(&self) -> &'static str {
        "port_ownership"
    }

    fn interests(&self) -> u64 {
        Kind::Serving.bit() | Kind::Withdrawn.bit() | Kind::Handed.bit()
    }

    fn observe(&mut self, record: &Record, _: &Facts) -> Result<(), Violation> {
        match record.what {
            What::Serving { port, owns, .. } => self.served.at(record.life).push((port, owns)),
            What::Withdrawn { port } => self.served.at(record.life).retain(|(one, _)| *one != port),
            What::Handed { port, .. } => {
                self.checked += 1;
                let served = self.served.at(record.life).iter().find(|(one, _)| *one == port);
                match served {
                    Some((_, true)) => {}
                    Some((_, false)) => {
                        return broken(self, record, || "it does not have the private port".into());
                    }
                    None => return broken(self, record, || "it does not serve the port".into()),
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
    use super::super::fixture::{Fixture, OTHER, SERVER};
    use super::*;
    use crate::record::Life;

    #[test]
    fn accepts_owners() {
        Fixture::of_calls().good(PortOwnership::default());
    }

    #[test]
    fn rejects_an_impostor() {
        let (mut fixture, impostor) = (Fixture::default(), Life(7));
        fixture.record(impostor, What::Serving { port: 0, owns: false, repeats: false, instance: 0 });
        let call = fixture.call(0);
        fixture.good(PortOwnership::default());
        fixture.hand(impostor, call, 0);
        fixture.bad(PortOwnership::default());
    }

    #[test]
    fn rejects_a_server_that_has_withdrawn_or_never_served() {
        let mut fixture = Fixture::default();
        fixture.record(SERVER, What::Withdrawn { port: 0 });
        let call = fixture.call(0);
        fixture.hand(OTHER, call, 0);
        fixture.good(PortOwnership::default());
        fixture.hand(SERVER, call, 0);
        fixture.bad(PortOwnership::default());
        let mut fixture = Fixture::default();
        let call = fixture.call(0);
        fixture.hand(Life(7), call, 0);
        fixture.bad(PortOwnership::default());
    }
}

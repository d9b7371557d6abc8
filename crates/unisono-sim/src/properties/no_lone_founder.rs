//! Safe founding: no process founds a group alone because it heard no answer. A founding has as many members as the
//! formation of the run asks for, unless an application created the group explicitly.

use super::{Facts, GroupTerms, Property, Violation, broken};
use crate::record::{Epoch, Kind, Record, What};

/// The checker of `no_lone_founder`.
#[derive(Debug)]
pub(super) struct NoLoneFounder {
    founders_min: usize,
    /// Processes that create a group explicitly.
    creating: Vec<u32>,
    /// Epochs with which groups were founded.
    founded: Vec<Epoch>,
    checked: u64,
}

impl NoLoneFounder {
    pub(super) fn new(terms: &GroupTerms) -> NoLoneFounder {
        NoLoneFounder {
            founders_min: terms.founders_min,
            creating: Vec::new(),
            founded: Vec::new(),
            checked: 0,
        }
    }
}

impl Property for NoLoneFounder {
    fn name(&self) -> &'static str {
        "no_lone_founder"
    }

    fn interests(&self) -> u64 {
        Kind::Entered.bit() | Kind::Creating.bit()
    }

    fn observe(&mut self, record: &Record, _: &Facts) -> Result<(), Violation> {
        match &record.what {
            What::Creating => self.creating.push(record.process),
            What::Entered { seqno: 0, view } if !self.founded.contains(&view.epoch) => {
                self.checked += 1;
                self.founded.push(view.epoch);
                let (members, least) = (view.members.len(), self.founders_min);
                let creating = self.creating.iter().position(|process| *process == record.process);
                match creating {
                    Some(index) if members == 1 => _ = self.creating.swap_remove(index),
                    _ if members < least => {
                        return broken(self, record, || {
                            format!("{members} founded a group, and at least {least} may")
                        });
                    }
                    _ => {}
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
    use super::*;
    use crate::properties::fixture::Fixture;
    use crate::record::{Life, View};

    /// A group of three that one process created, and a second founding by these lives.
    fn check(founders_min: usize, second: &[u32]) -> Result<u64, Violation> {
        let mut fixture = Fixture::of(3, 1);
        fixture.terms.founders_min = founders_min;
        let first = Record { what: What::Creating, ..fixture.records[0].clone() };
        fixture.records.insert(0, first);
        let members: Vec<_> = second.iter().map(|life| Life(*life)).collect();
        if let [first, ..] = members[..] {
            let (epoch, sequencer) = (Epoch(7), first);
            let view = View { epoch, counter: 0, coordinator: first, members, sequencer, resilience: 0 };
            fixture.record(first, What::Entered { seqno: 0, view: Box::new(view) });
        }
        fixture.check(NoLoneFounder::new(&fixture.terms))
    }

    #[test]
    fn accepts_one_that_creates_and_those_that_found_together() {
        assert_eq!(check(2, &[]).unwrap(), 1);
        assert_eq!(check(2, &[8, 9]).unwrap(), 2);
        assert!(check(1, &[8]).is_ok());
    }

    #[test]
    fn rejects_a_second_founder_alone() {
        for second in [0, 8] {
            assert!(check(2, &[second]).is_err());
        }
    }
}

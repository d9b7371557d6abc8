//! Safe founding: no process founds a group alone because it heard no answer. Where one process founds the group, any
//! later founding is by all participants of a formation together; where they form it, each founding has the number of
//! members that the formation asks for.

use super::{Facts, Founders, GroupTerms, Property, Violation, broken};
use crate::record::{Epoch, Kind, Record, What};

/// The checker of `no_lone_founder`.
#[derive(Debug)]
pub(super) struct NoLoneFounder {
    founders: Founders,
    /// Epochs with which groups were founded.
    founded: Vec<Epoch>,
    checked: u64,
}

impl NoLoneFounder {
    pub(super) fn new(terms: &GroupTerms) -> NoLoneFounder {
        NoLoneFounder { founders: terms.founders, founded: Vec::new(), checked: 0 }
    }
}

impl Property for NoLoneFounder {
    fn name(&self) -> &'static str {
        "no_lone_founder"
    }

    fn interests(&self) -> u64 {
        Kind::Entered.bit()
    }

    fn observe(&mut self, record: &Record, _: &Facts) -> Result<(), Violation> {
        let What::Entered { seqno: 0, view } = &record.what else { return Ok(()) };
        if self.founded.contains(&view.epoch) {
            return Ok(());
        }
        self.checked += 1;
        self.founded.push(view.epoch);
        let least = match self.founders {
            Founders::Any => 1,
            Founders::One { .. } if self.founded.len() == 1 => 1,
            Founders::One { then } => then,
            Founders::Together(least) => least,
        };
        let members = view.members.len();
        if members < least {
            return broken(self, record, || format!("{members} founded a group, and at least {least} may"));
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

    /// A group of three that one process founded, and a second founding by these lives.
    fn check(founders: Founders, second: &[u32]) -> Result<u64, Violation> {
        let mut fixture = Fixture::of(3, 1);
        fixture.terms.founders = founders;
        let members: Vec<_> = second.iter().map(|life| Life(*life)).collect();
        if let [first, ..] = members[..] {
            let (epoch, sequencer) = (Epoch(7), first);
            let view = View { epoch, counter: 0, coordinator: first, members, sequencer, resilience: 0 };
            fixture.record(first, What::Entered { seqno: 0, view: Box::new(view) });
        }
        fixture.check(NoLoneFounder::new(&fixture.terms))
    }

    #[test]
    fn accepts_one_founder_and_those_that_found_together() {
        assert_eq!(check(Founders::One { then: 2 }, &[]).unwrap(), 1);
        assert_eq!(check(Founders::One { then: 2 }, &[8, 9]).unwrap(), 2);
        assert!(check(Founders::Any, &[8]).is_ok());
    }

    #[test]
    fn rejects_a_second_founder_alone() {
        assert!(check(Founders::One { then: 2 }, &[8]).is_err());
        assert!(check(Founders::Together(2), &[]).is_err());
    }
}

//! The group's minimum: no message gets a seqno while the view has fewer members than `members_min`. So a lone founder
//! or survivor acknowledges nothing.

use super::{Facts, GroupTerms, Property, Violation, broken};
use crate::record::{Kind, Record, What};

/// The checker of `minimum_kept`.
#[derive(Debug)]
pub(super) struct MinimumKept {
    members_min: usize,
    checked: u64,
}

impl MinimumKept {
    pub(super) fn new(terms: &GroupTerms) -> MinimumKept {
        MinimumKept { members_min: terms.config.members_min.into(), checked: 0 }
    }
}

impl Property for MinimumKept {
    fn name(&self) -> &'static str {
        "minimum_kept"
    }

    fn interests(&self) -> u64 {
        // Any group has one member.
        if self.members_min > 1 { Kind::Delivered.bit() } else { 0 }
    }

    #[inline(always)]
    fn observe(&mut self, record: &Record, facts: &Facts) -> Result<(), Violation> {
        self.checked += 1;
        // Events come in the order of their seqnos, so this is the view in which the message got its seqno.
        let (members, least) = (facts.stream(record.life).view.len(), self.members_min);
        if matches!(record.what, What::Delivered { .. }) && members < least {
            return broken(self, record, || format!("{members} members, and the minimum is {least}"));
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

    fn check(members_min: u16, members: usize) -> Result<u64, Violation> {
        let mut fixture = Fixture::of(members, 1);
        fixture.terms.config.members_min = members_min;
        fixture.message(crate::record::Life(0));
        fixture.deliver_all();
        fixture.check(MinimumKept::new(&fixture.terms))
    }

    #[test]
    fn accepts_messages_of_enough_members() {
        assert!(check(3, 3).unwrap() > 0);
        assert_eq!(check(1, 3).unwrap(), 0);
    }

    #[test]
    fn rejects_a_message_below_the_minimum() {
        assert!(check(4, 3).is_err());
    }
}

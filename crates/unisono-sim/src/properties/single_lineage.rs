//! G14, single lineage: an epoch is followed by at most one epoch, whose first view contains a quorum of the view
//! before it. So there is one line of views, and at most one half of a split group goes on. Under a list of names no
//! view has two lives of one name.
//!
//! Under *at least n* only the number of members is checked here, and [`super::separate_lineages`] holds.

use super::quorum::Rule;
use super::streams::VIEW_CHANGES;
use super::{Facts, GroupTerms, Property, Violation, broken};
use crate::record::{Life, Record, What};

/// The checker of `single_lineage`.
#[derive(Debug)]
pub(super) struct SingleLineage {
    rule: Rule,
    checked: u64,
}

impl SingleLineage {
    pub(super) fn new(terms: &GroupTerms) -> SingleLineage {
        SingleLineage { rule: Rule::new(terms.config.quorum.clone()), checked: 0 }
    }

    /// Returns a name of the list that two lives of a view have.
    fn twice(&self, view: &[Life]) -> Option<String> {
        let mut names: Vec<_> = view.iter().filter_map(|life| self.rule.listed_name(*life)).collect();
        names.sort();
        names.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0].to_string())
    }
}

impl Property for SingleLineage {
    fn name(&self) -> &'static str {
        "single_lineage"
    }

    fn interests(&self) -> u64 {
        VIEW_CHANGES | Rule::FOLLOWED
    }

    #[inline(always)]
    fn observe(&mut self, record: &Record, facts: &Facts) -> Result<(), Violation> {
        self.rule.follow(record);
        if let What::Reset(reset) = &record.what {
            self.checked += 1;
            let before = facts.before();
            let members = &reset.view.members;
            if !self.rule.met(members, &before.view) {
                return broken(self, record, || format!("{members:?} are not a quorum of {:?}", before.view));
            }
            let children = before.epoch.map_or(0, |epoch| facts.lineage.children(epoch).len());
            if self.rule.intersects() && children > 1 {
                return broken(self, record, || format!("two epochs follow {:?}", before.epoch));
            }
        }
        match self.twice(&facts.stream(record.life).view) {
            Some(name) => broken(self, record, || format!("two lives of the name {name} are members")),
            None => Ok(()),
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
    use unisono_core::{Name, Quorum};

    fn check(fixture: &Fixture) -> Result<u64, Violation> {
        fixture.check(SingleLineage::new(&fixture.terms))
    }

    fn halves(quorum: Quorum, first: &[u32], second: &[u32]) -> Fixture {
        let mut fixture = Fixture::found(0, quorum);
        (0..3).for_each(|_| _ = fixture.join());
        let mut other = fixture.clone();
        let known = other.records.len();
        let lives = |some: &[u32]| some.iter().map(|life| Life(*life)).collect::<Vec<_>>();
        fixture.reset(&lives(first));
        other.reset(&lives(second));
        let second_only =
            |record: &Record| second.contains(&record.life.0) && !first.contains(&record.life.0);
        let late = other.records.drain(known..).filter(second_only).map(|mut record| {
            if let What::Reset(reset) = &mut record.what {
                reset.view.epoch.0 += 1;
            }
            record
        });
        fixture.records.extend(late);
        fixture
    }

    #[test]
    fn accepts_one_line() {
        let mut fixture = Fixture::of(5, 1);
        fixture.reset(&[Life(1), Life(2), Life(3)]);
        fixture.reset(&[Life(1), Life(2)]);
        assert_eq!(check(&fixture).unwrap(), 5);
    }

    #[test]
    fn accepts_half_with_the_first_member() {
        let mut fixture = Fixture::of(4, 1);
        fixture.reset(&[Life(0), Life(3)]);
        assert!(check(&fixture).is_ok());
    }

    #[test]
    fn rejects_half_without_the_first_member_and_a_minority() {
        for some in [&[Life(1), Life(3)][..], &[Life(0)]] {
            let mut fixture = Fixture::of(4, 1);
            fixture.reset(some);
            assert!(check(&fixture).is_err());
        }
    }

    #[test]
    fn rejects_two_epochs_after_one() {
        assert!(check(&halves(Quorum::MajorityOfView, &[0, 1, 2], &[1, 2, 3])).is_err());
        assert!(check(&halves(Quorum::AtLeast(2), &[0, 1], &[2, 3])).is_ok());
        assert!(check(&halves(Quorum::AtLeast(3), &[0, 1, 2], &[3])).is_err());
    }

    #[test]
    fn rejects_a_reset_without_all_when_all_are_asked_for() {
        let mut fixture = Fixture::found(1, Quorum::All);
        fixture.join();
        fixture.join();
        fixture.reset(&[Life(0), Life(1)]);
        assert!(check(&fixture).is_err());
    }

    #[test]
    fn rejects_two_lives_of_one_name() {
        let names = ["m0", "m1", "m2"].map(|name| Name::new(name).unwrap());
        let mut fixture = Fixture::found(1, Quorum::MajorityOf(names.to_vec()));
        fixture.join();
        let second = fixture.join();
        assert!(check(&fixture).is_ok());
        let started = |r: &Record| r.life == second && matches!(r.what, What::Started { .. });
        fixture.last(started).what = What::Started { name: names[1].clone() };
        assert!(check(&fixture).is_err());
    }
}

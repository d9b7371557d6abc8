//! L1, membership precision: once the faults are over, every life of the core that is not over becomes a member. Each
//! member's view is exactly the living members, in one order; under a majority rule there is one such view. In each
//! line of epochs at most three resets lead to it. Exception, under a list of names: a member that wants to leave
//! stays a member if the others could not go on without it.
//!
//! L5 is the same promise where the core is only a majority and everything else stays broken.

use super::healing::Healing;
use super::quorum::Rule;
use super::streams::Lineage;
use super::{Facts, GroupTerms, Property, Violation, broken, final_result};
use crate::record::{End, Epoch, Kind, Life, Record, Standing, What};
use unisono_core::{Phase, Quorum};

/// Maximum number of resets after the faults are over: one may be under way, one excludes the rest of what was
/// broken, and one more corrects a suspicion that came too early.
const RESETS_MAX: usize = 3;

/// The checker of `membership_precision`.
#[derive(Debug)]
pub(super) struct MembershipPrecision {
    /// True if quorums intersect, so that there is one line of views.
    is_single: bool,
    rule: Rule,
    healing: Healing,
    /// Epochs that began after the faults were over.
    late: Vec<Epoch>,
    checked: u64,
}

impl MembershipPrecision {
    pub(super) fn new(terms: &GroupTerms) -> MembershipPrecision {
        MembershipPrecision {
            is_single: !matches!(terms.config.quorum, Quorum::AtLeast(_)),
            rule: Rule::new(terms.config.quorum.clone()),
            healing: Healing::default(),
            late: Vec::new(),
            checked: 0,
        }
    }

    /// Returns a fault in the final state of a life of the core.
    fn fault(&self, standing: &Standing, members: &[&Standing], lineage: &Lineage) -> Option<String> {
        let life = standing.life;
        if standing.phase == Phase::Gone {
            return None;
        }
        if !self.is_member(standing) {
            return Some(format!("{life:?} is still {:?}", standing.phase));
        }
        let mut together: Vec<_> =
            members.iter().filter(|other| other.epoch == standing.epoch).map(|other| other.life).collect();
        let mut view = standing.members.clone();
        together.sort_unstable();
        view.sort_unstable();
        if view != together {
            return Some(format!("{life:?} has the view {view:?}, and the members are {together:?}"));
        }
        let other = members.iter().find(|other| {
            other.epoch == standing.epoch && other.members != standing.members
                || self.is_single
                    && root(other, lineage) == root(standing, lineage)
                    && other.epoch != standing.epoch
        })?;
        Some(format!("{life:?} and {:?} have different views", other.life))
    }

    /// True for a member, and for a leaver that the others need for a quorum.
    fn is_member(&self, standing: &Standing) -> bool {
        let others: Vec<Life> =
            standing.members.iter().copied().filter(|life| *life != standing.life).collect();
        let has_to_stay = standing.phase == Phase::Leaving
            && others.len() + 1 == standing.members.len()
            && !others.is_empty()
            && !self.rule.could_be_met(&others);
        standing.phase == Phase::Member || has_to_stay
    }
}

/// Returns the epoch with which a member's group was founded.
fn root(standing: &Standing, lineage: &Lineage) -> Option<Epoch> {
    standing.epoch.and_then(|epoch| lineage.line(epoch).last())
}

impl Property for MembershipPrecision {
    fn name(&self) -> &'static str {
        "membership_precision"
    }

    fn interests(&self) -> u64 {
        Kind::Reset.bit() | Kind::Healed.bit() | Kind::Started.bit()
    }

    #[inline(always)]
    fn observe(&mut self, record: &Record, facts: &Facts) -> Result<(), Violation> {
        self.healing.follow(record);
        self.rule.follow(record);
        if let What::Reset(reset) = &record.what
            && self.healing.covers(record.life)
            && !self.late.contains(&reset.view.epoch)
        {
            self.late.push(reset.view.epoch);
            let is_late = |epoch: &Epoch| self.late.contains(epoch);
            let resets = match self.is_single {
                true => self.late.len(),
                false => facts.lineage.line(reset.view.epoch).filter(is_late).count(),
            };
            if resets > RESETS_MAX {
                return broken(self, record, || format!("{resets} resets since the faults ended"));
            }
        }
        Ok(())
    }

    fn finish(&mut self, end: &End, facts: &Facts) -> Result<(), Violation> {
        let members: Vec<_> = self.healing.core(end).filter(|standing| self.is_member(standing)).collect();
        let core: Vec<_> = self.healing.core(end).collect();
        self.checked += core.len() as u64;
        let fault = core.iter().find_map(|standing| self.fault(standing, &members, &facts.lineage));
        final_result(self, end, fault)
    }

    fn checked(&self) -> u64 {
        self.checked
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::properties::fixture::Fixture;
    use unisono_core::Name;

    fn good() -> Fixture {
        let mut fixture = Fixture::of(4, 1);
        fixture.crash(Life(0));
        fixture.heal();
        fixture.reset(&[Life(1), Life(2), Life(3)]);
        fixture.leave(Life(3));
        fixture
    }

    fn check(fixture: &Fixture, end: &End) -> Result<u64, Violation> {
        fixture.check_with_end(MembershipPrecision::new(&fixture.terms), end)
    }

    #[test]
    fn accepts_one_exact_view() {
        let fixture = good();
        assert_eq!(check(&fixture, &fixture.ending()).unwrap(), 3);
    }

    #[test]
    fn accepts_anything_while_faults_go_on() {
        let mut fixture = good();
        fixture.records.retain(|record| !matches!(record.what, What::Healed { .. }));
        let mut end = fixture.ending();
        end.standings[0].phase = Phase::Resetting;
        assert_eq!(check(&fixture, &end).unwrap(), 0);
    }

    #[test]
    fn rejects_a_view_with_a_crashed_member() {
        let mut fixture = Fixture::of(4, 1);
        fixture.crash(Life(0));
        fixture.heal();
        assert!(check(&fixture, &fixture.ending()).is_err());
    }

    #[test]
    fn rejects_members_that_are_stuck() {
        let fixture = good();
        for phase in [Phase::Resetting, Phase::Joining, Phase::Leaving, Phase::Excluded] {
            let mut end = fixture.ending();
            end.standings[0].phase = phase;
            assert!(check(&fixture, &end).is_err());
        }
    }

    #[test]
    fn accepts_a_leaver_only_if_the_others_need_it_for_a_quorum() {
        for (listed, takes) in [(3, true), (2, false)] {
            let names = (0..=listed).map(|life| Name::new(&format!("m{life}")).unwrap()).collect();
            let mut fixture = Fixture::found(0, Quorum::MajorityOf(names));
            for _ in 1..3 {
                fixture.join();
            }
            fixture.heal();
            let mut end = fixture.ending();
            end.standings[1].phase = Phase::Leaving;
            assert_eq!(check(&fixture, &end).is_ok(), takes, "{listed}");
        }
    }

    #[test]
    fn rejects_two_views_and_two_orders() {
        let fixture = good();
        let mut end = fixture.ending();
        end.standings[0].members.reverse();
        assert!(check(&fixture, &end).is_err());
        let mut end = fixture.ending();
        end.standings[0].epoch = Some(Epoch(0));
        assert!(check(&fixture, &end).is_err());
    }

    #[test]
    fn rejects_resets_without_end() {
        let mut fixture = good();
        (0..3).for_each(|_| fixture.reset(&[Life(1), Life(2)]));
        assert!(check(&fixture, &fixture.ending()).is_err());
    }

    #[test]
    fn rejects_many_resets_in_one_line_under_at_least() {
        for (resets, is_good) in [(RESETS_MAX, true), (RESETS_MAX + 1, false)] {
            let mut fixture = Fixture::found(0, Quorum::AtLeast(1));
            (0..3).for_each(|_| _ = fixture.join());
            fixture.heal();
            for _ in 0..resets {
                fixture.reset(&[Life(0), Life(1), Life(2), Life(3)]);
            }
            assert_eq!(check(&fixture, &fixture.ending()).is_ok(), is_good, "{resets} resets");
        }
    }
}

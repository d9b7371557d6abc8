//! Groups of one name that hear each other do not stay unaware of each other. Applications are told of a conflict only
//! where another group was founded, and everybody in the view of an undisturbed member that is told. Since the
//! applications here want one group, and leave the one that is to give way, there is one group in the end.
//!
//! How soon they are told, that those of the other group are told too, and that one of the two is to give way, is not checked
//! here: groups come and go, and a conflict does not say with whom. The core's own tests see to that.

use super::ground::Ground;
use super::streams::Lineage;
use super::tables::Lives;
use super::{Facts, Property, Violation, broken, found_in_the_end};
use crate::record::{End, Epoch, Kind, Record, Standing, What};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct ConflictsEnd {
    ground: Ground,
    /// The epochs with which groups were founded.
    founded: Vec<Epoch>,
    /// Who was told of another group.
    told: Lives,
    /// Who is to be told, since somebody in their view was where nothing disturbed.
    owed: Lives,
    checked: u64,
}

/// The epoch with which a member's group was founded.
fn root(standing: &Standing, lineage: &Lineage) -> Option<Epoch> {
    standing.epoch.and_then(|epoch| lineage.line(epoch).last())
}

impl Property for ConflictsEnd {
    fn name(&self) -> &'static str {
        "conflicts_end"
    }

    fn interests(&self) -> u64 {
        Kind::Entered.bit() | Kind::Conflict.bit() | Kind::Healed.bit()
    }

    #[inline(always)]
    fn observe(&mut self, record: &Record, facts: &Facts) -> Result<(), Violation> {
        self.ground.follow(record);
        match &record.what {
            What::Entered { seqno: 0, view } if !self.founded.contains(&view.epoch) => {
                self.founded.push(view.epoch);
            }
            What::Conflict { .. } => {
                self.checked += 1;
                if self.founded.len() < 2 {
                    return broken(self, record, || "there is no other group".into());
                }
                self.told.insert(record.life);
                if self.ground.has(record.life) {
                    facts.stream(record.life).view.iter().for_each(|member| self.owed.insert(*member));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn finish(&mut self, end: &End, facts: &Facts) -> Result<(), Violation> {
        let members: Vec<_> = self.ground.members(end).collect();
        self.checked += members.len() as u64;
        let untold = |life| self.owed.contains(life) && !self.told.contains(life);
        let first = members.first();
        let root = |standing| root(standing, &facts.lineage);
        let elsewhere = first.and_then(|first| members.iter().find(|other| root(other) != root(first)));
        let fault = match (members.iter().find(|member| untold(member.life)), elsewhere) {
            (Some(member), _) => Some(format!("{:?} was not told of another group", member.life)),
            (None, Some(member)) => Some(format!("{:?} is in a second group of the name", member.life)),
            (None, None) => None,
        };
        found_in_the_end(self, end, fault)
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

    fn good() -> Fixture {
        let mut fixture = Fixture::of(3, 1);
        fixture.heal();
        fixture
    }

    fn check(fixture: &Fixture, end: &End) -> Result<u64, Violation> {
        fixture.check_with_end(ConflictsEnd::default(), end)
    }

    #[test]
    fn takes_one_group() {
        let fixture = good();
        assert_eq!(check(&fixture, &fixture.ending()).unwrap(), 3);
    }

    #[test]
    fn rejects_two_groups_in_the_end() {
        let fixture = good();
        let mut end = fixture.ending();
        end.standings[2].epoch = Some(Epoch(7));
        assert!(check(&fixture, &end).is_err());
    }

    #[test]
    fn rejects_a_conflict_with_nobody() {
        let mut fixture = good();
        fixture.tell(Life(1), What::Conflict { gives_way: true });
        fixture.bad(ConflictsEnd::default());
    }

    #[test]
    fn rejects_a_member_that_is_not_told() {
        let mut fixture = good();
        let alone = Life(9);
        let elsewhere = View {
            epoch: Epoch(7),
            counter: 0,
            coordinator: alone,
            members: vec![alone],
            sequencer: alone,
            resilience: 0,
        };
        fixture.tell(alone, What::Entered { seqno: 0, view: Box::new(elsewhere) });
        for life in [0, 1, 2] {
            fixture.tell(Life(life), What::Conflict { gives_way: false });
        }
        check(&fixture, &fixture.ending()).unwrap();
        fixture.records.pop();
        assert!(check(&fixture, &fixture.ending()).is_err());
    }
}

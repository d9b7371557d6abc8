//! H56: groups of one name that hear each other learn of each other. Members receive a conflict event only where
//! another group was founded. If an undisturbed member receives it, all members of its view do. Members of the group
//! that is to give way leave and join again in these runs, so one group remains at the end.
//!
//! Three promises are not checked here: how soon members receive the event, that the members of the other group
//! receive it too, and that one of the two groups is to give way. Groups come and go in these runs, and a conflict
//! event does not name the other group. The core's own tests check these promises; `fewer_gives_way` checks which of
//! the two is to give way.

use super::healing::Healing;
use super::streams::Lineage;
use super::tables::Lives;
use super::{Facts, Property, Violation, broken, final_result};
use crate::record::{End, Epoch, Kind, Record, Standing, What};

/// The checker of `conflicts_end`.
#[derive(Debug, Default)]
pub(super) struct ConflictsEnd {
    healing: Healing,
    /// Epochs with which groups were founded.
    founded: Vec<Epoch>,
    /// Lives that received a conflict event.
    reported: Lives,
    /// Lives that must receive one, since an undisturbed member of their view did.
    expected: Lives,
    checked: u64,
}

/// Returns the epoch with which a member's group was founded.
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
        self.healing.follow(record);
        match &record.what {
            What::Entered { seqno: 0, view } if !self.founded.contains(&view.epoch) => {
                self.founded.push(view.epoch);
            }
            What::Conflict { .. } => {
                self.checked += 1;
                if self.founded.len() < 2 {
                    return broken(self, record, || "no other group was founded".into());
                }
                self.reported.insert(record.life);
                if self.healing.covers(record.life) {
                    facts.stream(record.life).view.iter().for_each(|member| self.expected.insert(*member));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn finish(&mut self, end: &End, facts: &Facts) -> Result<(), Violation> {
        let members: Vec<_> = self.healing.members(end).collect();
        self.checked += members.len() as u64;
        let unreported = |life| self.expected.contains(life) && !self.reported.contains(life);
        let first = members.first();
        let root = |standing| root(standing, &facts.lineage);
        let elsewhere = first.and_then(|first| members.iter().find(|other| root(other) != root(first)));
        let fault = match (members.iter().find(|member| unreported(member.life)), elsewhere) {
            (Some(member), _) => Some(format!("{:?} received no conflict event", member.life)),
            (None, Some(member)) => Some(format!("{:?} is in a second group of the name", member.life)),
            (None, None) => None,
        };
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
    fn accepts_one_group() {
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
    fn rejects_a_conflict_without_another_group() {
        let mut fixture = good();
        fixture.record(Life(1), What::Conflict { gives_way: true, other_ordered: 0 });
        fixture.bad(ConflictsEnd::default());
    }

    #[test]
    fn rejects_a_member_without_a_conflict_event() {
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
        fixture.record(alone, What::Entered { seqno: 0, view: Box::new(elsewhere) });
        for life in [0, 1, 2] {
            fixture.record(Life(life), What::Conflict { gives_way: false, other_ordered: 0 });
        }
        check(&fixture, &fixture.ending()).unwrap();
        fixture.records.pop();
        assert!(check(&fixture, &fixture.ending()).is_err());
    }
}

//! Of two groups of one name that meet, the one with fewer ordered events gives way, so state never gives way to a group
//! that has none. A member that learns that the other group is to give way is in a group that had ordered at least as
//! much; so some life of its group knows at least as much to be accepted.

use super::{Facts, Property, Violation, broken};
use crate::record::{Epoch, Kind, Record, What};
use unisono_core::Seqno;

/// The checker of `fewer_gives_way`.
#[derive(Debug, Default)]
pub(super) struct FewerGivesWay {
    /// Epochs with which groups were founded.
    founded: Vec<Epoch>,
    checked: u64,
}

impl FewerGivesWay {
    /// Returns the founding from which an epoch descends, as far as applications know.
    fn founding(&self, epoch: Epoch, facts: &Facts) -> Option<Epoch> {
        facts.lineage.line(epoch).last().filter(|first| self.founded.contains(first))
    }

    /// Returns the highest seqno that a life of this group, crashed or not, knows accepted. A life whose group is not
    /// known counts.
    fn ordered(&self, epoch: Epoch, facts: &Facts) -> Seqno {
        let here = self.founding(epoch, facts);
        let marks = facts.marks.all();
        let now = marks.iter().filter_map(|mark| Some((mark.epoch?, mark.accepted)));
        let of_this_group = |(epoch, _): &(Epoch, Seqno)| {
            let there = self.founding(*epoch, facts);
            here.is_none() || there.is_none() || here == there
        };
        now.filter(of_this_group).map(|(_, accepted)| accepted).max().unwrap_or(0)
    }
}

impl Property for FewerGivesWay {
    fn name(&self) -> &'static str {
        "fewer_gives_way"
    }

    fn interests(&self) -> u64 {
        Kind::Entered.bit() | Kind::Conflict.bit()
    }

    fn observe(&mut self, record: &Record, facts: &Facts) -> Result<(), Violation> {
        match &record.what {
            What::Entered { seqno: 0, view } if !self.founded.contains(&view.epoch) => {
                self.founded.push(view.epoch);
            }
            What::Conflict { gives_way: false, other_ordered } => {
                self.checked += 1;
                let Some(epoch) = facts.stream(record.life).epoch else { return Ok(()) };
                let ordered = self.ordered(epoch, facts);
                if *other_ordered > ordered {
                    return broken(self, record, || {
                        format!("this group had ordered {ordered} at most, and the other is to give way")
                    });
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
    use crate::record::Life;

    fn check(gives_way: bool, other_ordered: Seqno) -> Result<u64, Violation> {
        let mut fixture = Fixture::of(3, 1);
        fixture.message(Life(1));
        fixture.deliver_all();
        let end = fixture.end();
        fixture.record(Life(2), What::Conflict { gives_way, other_ordered: end + other_ordered });
        fixture.check(FewerGivesWay::default())
    }

    #[test]
    fn accepts_a_verdict_for_the_group_with_more() {
        assert_eq!(check(false, 0).unwrap(), 1);
        assert!(check(true, 1).is_ok());
    }

    #[test]
    fn rejects_a_verdict_for_the_group_with_fewer() {
        assert!(check(false, 1).is_err());
    }
}

//! G15, separate lineages: lineages that have parted never meet again. An epoch follows one epoch. A life that went
//! on in one line joins no other. No life is excluded by an epoch whose first view contains it, nor by an epoch of a
//! group that was founded separately. All of this holds under a majority rule too, where there is one line.

use super::streams::VIEW_CHANGES;
use super::tables::{Lives, Table};
use super::{Facts, Property, Violation, broken};
use crate::record::{End, Epoch, Kind, Life, Record, What};

/// The checker of `separate_lineages`.
#[derive(Debug, Default)]
pub(super) struct SeparateLineages {
    parents: Table<Option<Epoch>>,
    /// First view of each epoch that a reset began.
    first: Table<Vec<Life>>,
    /// Epochs with which groups were founded.
    founded: Vec<Epoch>,
    /// Each exclusion that a life received: the life, its epoch before, and the epoch that excluded it.
    excluded: Vec<(Life, Option<Epoch>, Epoch)>,
    /// By epoch, the lives that were in any of its views.
    members: Table<Lives>,
    checked: u64,
}

impl SeparateLineages {
    /// Returns the founding epoch from which an epoch descends, as far as any application knows.
    fn founding(&self, epoch: Epoch) -> Option<Epoch> {
        let parent = |epoch: &Epoch| self.parents.get(*epoch).copied().flatten();
        let all = self.parents.iter().count();
        let first = std::iter::successors(Some(epoch), parent).take(all + 1).last();
        first.filter(|first| self.founded.contains(first))
    }
}

impl Property for SeparateLineages {
    fn name(&self) -> &'static str {
        "separate_lineages"
    }

    fn interests(&self) -> u64 {
        VIEW_CHANGES | Kind::Excluded.bit()
    }

    #[inline(always)]
    fn observe(&mut self, record: &Record, facts: &Facts) -> Result<(), Violation> {
        match &record.what {
            What::Excluded { epoch: Some(epoch) } => {
                self.checked += 1;
                let left_behind = facts.stream(record.life).epoch;
                self.excluded.push((record.life, left_behind, *epoch));
            }
            What::Entered { seqno: 0, view } => self.founded.push(view.epoch),
            What::Reset(reset) => {
                self.checked += 1;
                let before = facts.before().epoch;
                let parent = self.parents.at(reset.view.epoch);
                if let (Some(known), Some(before)) = (*parent, before)
                    && known != before
                {
                    return broken(self, record, || format!("it follows both {known:?} and {before:?}"));
                }
                *parent = before;
                if before == Some(reset.view.epoch) {
                    return broken(self, record, || "an epoch follows itself".into());
                }
                self.first.at(reset.view.epoch).clone_from(&reset.view.members);
            }
            What::Joined { member, .. } => {
                self.checked += 1;
                let here = facts.stream(record.life).epoch;
                let there = facts.stream(*member);
                // A founder that is alone and has ordered nothing may give way and join.
                let settled = there.epoch.filter(|_| there.last > 0);
                if let (Some(here), Some(there)) = (here, settled)
                    && !self.members.at(here).contains(*member)
                {
                    return broken(self, record, || {
                        format!("{member:?} joins, and was a member in {there:?}")
                    });
                }
            }
            _ => {}
        }
        let stream = facts.stream(record.life);
        if let Some(epoch) = stream.epoch {
            let members = self.members.at(epoch);
            stream.view.iter().for_each(|member| members.insert(*member));
        }
        Ok(())
    }

    fn finish(&mut self, end: &End, _: &Facts) -> Result<(), Violation> {
        for (life, left_behind, epoch) in &self.excluded {
            let (here, there) = (left_behind.and_then(|epoch| self.founding(epoch)), self.founding(*epoch));
            let what = if self.first.get(*epoch).is_some_and(|first| first.contains(life)) {
                format!("{life:?} was excluded by {epoch:?}, whose first view contains it")
            } else if here.zip(there).is_some_and(|(here, there)| here != there) {
                format!(
                    "{life:?} of the group founded as {here:?} was excluded by {epoch:?} of another group"
                )
            } else {
                continue;
            };
            return Err(Violation { property: self.name(), at: end.at, what });
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
    use crate::properties::fixture::{Fixture, change_reset, reset_of};

    fn good() -> Fixture {
        let mut fixture = Fixture::of(4, 1);
        fixture.reset(&[Life(0), Life(1), Life(2)]);
        fixture.join();
        fixture.reset(&[Life(0), Life(1), Life(4)]);
        fixture
    }

    #[test]
    fn accepts_lines_that_stay_apart() {
        good().good(SeparateLineages::default());
    }

    #[test]
    fn rejects_an_epoch_with_two_parents() {
        let mut fixture = good();
        let first = fixture.records.iter().position(reset_of(Life(1))).unwrap();
        fixture.records.remove(first);
        fixture.bad(SeparateLineages::default());
    }

    #[test]
    fn rejects_a_life_that_comes_back() {
        let mut fixture = good();
        let seqno = fixture.end() + 1;
        fixture.record(Life(0), What::Joined { seqno, member: Life(3), members: 4 });
        fixture.bad(SeparateLineages::default());
    }

    #[test]
    fn rejects_the_exclusion_of_a_member() {
        let mut fixture = good();
        fixture.last(|r| matches!(r.what, What::Excluded { .. })).what =
            What::Excluded { epoch: Some(Epoch(1)) };
        fixture.bad(SeparateLineages::default());
    }

    #[test]
    fn rejects_the_exclusion_by_another_group() {
        let mut fixture = good();
        let mut entering = fixture.last(|r| matches!(r.what, What::Entered { seqno: 0, .. })).what.clone();
        let What::Entered { view, .. } = &mut entering else { unreachable!() };
        view.epoch = Epoch(9);
        fixture.record(Life(7), entering);
        fixture.last(|r| matches!(r.what, What::Excluded { .. })).what =
            What::Excluded { epoch: Some(Epoch(9)) };
        fixture.bad(SeparateLineages::default());
    }

    #[test]
    fn rejects_an_epoch_that_follows_itself() {
        let mut fixture = good();
        change_reset(fixture.last(reset_of(Life(1))), |reset| reset.view.epoch = Epoch(1));
        fixture.bad(SeparateLineages::default());
    }
}

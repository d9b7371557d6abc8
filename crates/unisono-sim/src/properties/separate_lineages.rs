//! G15, separate lineages: once lineages have parted they have nothing to do with each other for ever. An epoch
//! follows one epoch; a life that went on in one line is in no other; nobody is excluded from an epoch whose first
//! view has it. Under a majority rule there is one line, and this holds all the same.

use super::streams::{Streams, VIEW_CHANGES, Views};
use super::tables::Table;
use super::{Property, Violation, broken};
use crate::record::{End, Epoch, Kind, Life, Record, What};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct SeparateLineages {
    parents: Table<Option<Epoch>>,
    /// The first view of each epoch that a reset brought about.
    first: Table<Vec<Life>>,
    /// Who was told to be excluded, and from which epoch.
    excluded: Vec<(Life, Epoch)>,
    streams: Streams,
    views: Views,
    checked: u64,
}

impl Property for SeparateLineages {
    fn name(&self) -> &'static str {
        "separate_lineages"
    }

    fn interests(&self) -> u64 {
        VIEW_CHANGES | Kind::Excluded.bit()
    }

    #[inline(always)]
    fn observe(&mut self, record: &Record) -> Result<(), Violation> {
        match &record.what {
            What::Excluded { epoch: Some(epoch) } => {
                self.checked += 1;
                self.excluded.push((record.life, *epoch));
            }
            What::Reset(reset) => {
                self.checked += 1;
                let before = self.streams.of(record.life).epoch;
                let parent = self.parents.at(reset.view.epoch);
                if let (Some(known), Some(before)) = (*parent, before)
                    && known != before
                {
                    return broken(self, record, || format!("it follows {known:?} and {before:?}"));
                }
                *parent = before;
                if before == Some(reset.view.epoch) {
                    return broken(self, record, || "an epoch follows itself".into());
                }
                self.first.at(reset.view.epoch).clone_from(&reset.view.members);
            }
            What::Joined { member, .. } => {
                self.checked += 1;
                let here = self.streams.of(record.life).epoch;
                let there = self.streams.of(*member);
                // A founder alone that has ordered nothing may give way and join.
                let settled = there.epoch.filter(|_| there.last > 0);
                if let (Some(here), Some(there)) = (here, settled)
                    && !self.views.of(here).any(|view| view.contains(member))
                {
                    return broken(self, record, || format!("{member:?} joins, and was in {there:?}"));
                }
            }
            _ => {}
        }
        self.streams.follow(record);
        self.views.follow(record, &mut self.streams);
        Ok(())
    }

    fn finish(&mut self, end: &End) -> Result<(), Violation> {
        for (life, epoch) in &self.excluded {
            if self.first.get(*epoch).is_some_and(|first| first.contains(life)) {
                let what = format!("{life:?} was excluded by {epoch:?}, whose first view has it");
                return Err(Violation { property: self.name(), at: end.at, what });
            }
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
    use crate::properties::story::{Story, change_reset, reset_of};

    fn good() -> Story {
        let mut story = Story::of(4, 1);
        story.reset(&[Life(0), Life(1), Life(2)]);
        story.join();
        story.reset(&[Life(0), Life(1), Life(4)]);
        story
    }

    #[test]
    fn takes_lines_that_stay_apart() {
        good().good(SeparateLineages::default());
    }

    #[test]
    fn rejects_an_epoch_with_two_parents() {
        let mut story = good();
        let first = story.records.iter().position(reset_of(Life(1))).unwrap();
        story.records.remove(first);
        story.bad(SeparateLineages::default());
    }

    #[test]
    fn rejects_a_life_that_comes_back() {
        let mut story = good();
        let seqno = story.end() + 1;
        story.tell(Life(0), What::Joined { seqno, member: Life(3), members: 4 });
        story.bad(SeparateLineages::default());
    }

    #[test]
    fn rejects_the_exclusion_of_a_member() {
        let mut story = good();
        story.last(|r| matches!(r.what, What::Excluded { .. })).what =
            What::Excluded { epoch: Some(Epoch(1)) };
        story.bad(SeparateLineages::default());
    }

    #[test]
    fn rejects_an_epoch_that_follows_itself() {
        let mut story = good();
        change_reset(story.last(reset_of(Life(1))), |reset| reset.view.epoch = Epoch(1));
        story.bad(SeparateLineages::default());
    }
}

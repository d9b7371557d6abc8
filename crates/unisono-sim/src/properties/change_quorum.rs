//! Changes are held by quorums (what keeps quorums of neighbouring views intersecting, docs/protocol/membership.md):
//! a join or leave is delivered only when a quorum of the members before it and one of those after it have held it, and the joiner;
//! and the next is numbered only by an orderer that knows the last to be accepted. So is an event that hands the role on.
//!
//! Under *at least n* quorums need not meet, and only the second half is checked.

use super::quorum::Rule;
use super::streams::VIEW_CHANGES;
use super::tables::Table;
use super::{Facts, Property, Terms, Violation, broken};
use crate::record::{Epoch, Kind, Life, Record, What};
use unisono_core::Seqno;

/// A run of numbers, and what their orderer knew to be accepted.
#[derive(Clone, Copy, Debug)]
struct Run {
    to: Seqno,
    accepted: Seqno,
}

#[derive(Clone, Debug, Default)]
struct Changes {
    runs: Vec<Run>,
    /// Places of joins and leaves that somebody was told of.
    places: Vec<Seqno>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct ChangeQuorum {
    rule: Rule,
    epochs: Table<Changes>,
    /// What each life knows to be accepted.
    accepted: Table<Seqno>,
    checked: u64,
}

impl ChangeQuorum {
    pub(super) fn new(terms: &Terms) -> ChangeQuorum {
        ChangeQuorum {
            rule: Rule::new(terms.config.quorum.clone()),
            epochs: Table::default(),
            accepted: Table::default(),
            checked: 0,
        }
    }

    /// A change between these views is told for the first time, by a member that still is in its epoch.
    fn too_few(
        &self,
        epoch: Epoch,
        seqno: Seqno,
        joiner: Option<Life>,
        sides: [&[Life]; 2],
        facts: &Facts,
    ) -> Option<String> {
        let holds = |life: Life| facts.marks.held(life, epoch, seqno, &facts.lineage);
        if let Some(joiner) = joiner.filter(|joiner| !holds(*joiner)) {
            return Some(format!("{joiner:?} does not hold its own join"));
        }
        sides.into_iter().filter(|view| !view.is_empty()).find_map(|view| {
            let holders: Vec<_> = view.iter().copied().filter(|life| holds(*life)).collect();
            let few = !self.rule.met(&holders, view);
            few.then(|| format!("of {view:?} only {holders:?} hold it"))
        })
    }

    /// The last change before this one was not accepted when this one was numbered.
    fn too_early(&mut self, epoch: Epoch, seqno: Seqno) -> Option<String> {
        let changes = self.epochs.at(epoch);
        let last = changes.places.iter().copied().filter(|place| *place < seqno).max()?;
        let run = changes.runs.get(changes.runs.partition_point(|run| run.to < seqno))?;
        (run.accepted < last).then(|| {
            format!("its orderer knew {} to be accepted, and the last change is at {last}", run.accepted)
        })
    }
}

impl Property for ChangeQuorum {
    fn name(&self) -> &'static str {
        "change_quorum"
    }

    fn interests(&self) -> u64 {
        VIEW_CHANGES
            | Kind::HandedOver.bit()
            | Kind::Accepted.bit()
            | Kind::Numbered.bit()
            | Kind::Started.bit()
    }

    #[inline(always)]
    fn observe(&mut self, record: &Record, facts: &Facts) -> Result<(), Violation> {
        match record.what {
            What::Started { .. } => self.rule.follow(record),
            What::Accepted { through, .. } => *self.accepted.at(record.life) = through,
            What::Numbered { epoch, to, .. } => {
                let accepted = *self.accepted.at(record.life);
                self.epochs.at(epoch).runs.push(Run { to, accepted });
            }
            What::HandedOver { seqno, .. } => {
                let Some(epoch) = facts.stream(record.life).epoch else { return Ok(()) };
                self.checked += 1;
                if let Some(fault) = self.too_early(epoch, seqno) {
                    return broken(self, record, || fault);
                }
            }
            _ => {
                // Nobody else may have been told yet of what lies just below a joiner's join.
                let before = match &record.what {
                    What::Entered { view, .. } => {
                        view.members.iter().copied().filter(|member| *member != record.life).collect()
                    }
                    _ => facts.before().view.clone(),
                };
                let joiner = match record.what {
                    What::Joined { member, .. } => Some(member),
                    What::Entered { seqno, .. } if seqno > 0 => Some(record.life),
                    What::Left { .. } => None,
                    _ => return Ok(()),
                };
                let stream = facts.stream(record.life);
                let (Some(epoch), seqno) = (stream.epoch, stream.last) else { return Ok(()) };
                let places = &mut self.epochs.at(epoch).places;
                if places.contains(&seqno) {
                    return Ok(());
                }
                places.push(seqno);
                self.checked += 1;
                // Who has gone on got it from the reset, which a quorum holds.
                let decided = facts.marks.of(record.life).epoch != Some(epoch);
                let few = if decided || !self.rule.intersects() {
                    None
                } else {
                    self.too_few(epoch, seqno, joiner, [&before, &stream.view], facts)
                };
                if let Some(fault) = few.or_else(|| self.too_early(epoch, seqno)) {
                    return broken(self, record, || fault);
                }
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
    use crate::properties::story::Story;

    fn good() -> Story {
        let mut story = Story::of(4, 0);
        story.message(Life(1));
        story.leave(Life(3));
        story.join();
        story
    }

    fn judge(story: &Story) -> Result<u64, Violation> {
        story.judge(ChangeQuorum::new(&story.terms))
    }

    /// Without what these lives stored at the last place, and with nothing after it.
    fn forget(story: &mut Story, lives: &[u32]) {
        let end = story.end();
        story.records.retain(|record| {
            let stores = matches!(record.what, What::Stored { through, .. } if through == end);
            !(stores && lives.contains(&record.life.0))
        });
    }

    #[test]
    fn takes_changes_that_quorums_hold() {
        assert!(judge(&good()).unwrap() > 0);
        let mut story = good();
        forget(&mut story, &[2]);
        assert!(judge(&story).is_ok());
    }

    #[test]
    fn rejects_a_join_that_too_few_hold() {
        let mut story = good();
        forget(&mut story, &[1, 2]);
        assert!(judge(&story).is_err());
    }

    #[test]
    fn rejects_a_join_that_the_joiner_does_not_hold() {
        let mut story = good();
        forget(&mut story, &[4]);
        assert!(judge(&story).is_err());
    }

    #[test]
    fn rejects_a_leave_that_only_those_after_it_hold() {
        let mut story = Story::of(4, 0);
        story.leave(Life(0));
        assert!(judge(&story).is_ok());
        // Lives 1 and 2 are a quorum of the three who stay, and not of the four before.
        let mut story = Story::of(4, 0);
        story.leave(Life(0));
        let end = story.end();
        story.records.retain(|record| {
            let stores = matches!(record.what, What::Stored { through, .. } if through == end);
            !(stores && [0, 3].contains(&record.life.0))
        });
        assert!(judge(&story).is_err());
    }

    #[test]
    fn rejects_the_next_change_before_the_last_is_accepted() {
        let mut story = Story::of(3, 0);
        let place = story.end();
        story.join();
        story.join();
        let known = |record: &Record| {
            record.life == Life(0) && matches!(record.what, What::Accepted { through, .. } if through > place)
        };
        story.records.retain(|record| !known(record));
        assert!(judge(&story).is_err());
    }
}

//! G22, stability: what leaves a history was held by every member of the view at that place (of the epoch's first
//! view, for what came before it), and no history has more entries than the group allows.
//!
//! Whoever is leaving is waited for by courtesy only. Changes take no room from messages: n + 2 slots stand beside,
//! and one for each reset that came since anything was freed.

use super::streams::MarkTable;
use super::tables::{Lives, Table};
use super::{Facts, Property, Terms, Violation, broken};
use crate::record::{Kind, Record, What};
use unisono_core::Seqno;

/// See the module.
#[derive(Debug)]
pub(super) struct Stability {
    history_messages: u32,
    lives: u32,
    leavers: Lives,
    marks: MarkTable,
    /// By life, resets since it freed something.
    resets: Table<u32>,
    /// By epoch, everything through here was found to be held by all.
    stable: Table<Seqno>,
    checked: u64,
}

impl Stability {
    pub(super) fn new(terms: &Terms) -> Stability {
        Stability {
            history_messages: terms.config.history_messages,
            lives: 0,
            leavers: Lives::default(),
            marks: MarkTable::default(),
            resets: Table::default(),
            stable: Table::default(),
            checked: 0,
        }
    }
}

impl Property for Stability {
    fn name(&self) -> &'static str {
        "stability"
    }

    fn interests(&self) -> u64 {
        Kind::Stored.bit()
            | Kind::Purged.bit()
            | Kind::EpochBegun.bit()
            | Kind::HistoryUsed.bit()
            | Kind::Started.bit()
            | Kind::LeaveAsked.bit()
    }

    #[inline(always)]
    fn observe(&mut self, record: &Record, facts: &Facts) -> Result<(), Violation> {
        match record.what {
            What::Started { .. } => self.lives += 1,
            What::LeaveAsked => self.leavers.insert(record.life),
            What::Stored { .. } => self.marks.follow(record),
            What::EpochBegun { .. } => *self.resets.at(record.life) += 1,
            What::HistoryUsed { entries } => {
                self.checked += 1;
                let resets = *self.resets.at(record.life);
                let most = self.history_messages + self.lives + 2 + resets;
                if entries > most {
                    return broken(self, record, || format!("{entries} entries, where {most} are allowed"));
                }
            }
            What::Purged { epoch, through } => {
                *self.resets.at(record.life) = 0;
                if self.stable.get(epoch).is_some_and(|stable| through <= *stable) {
                    self.checked += 1;
                    return Ok(());
                }
                let Some(start) = facts.lineage.start(epoch) else { return Ok(()) };
                let Some(view) = facts.views.at(epoch, through.max(start)) else { return Ok(()) };
                self.checked += 1;
                // The reset event itself everybody makes for himself.
                let needed = if through == start { through.saturating_sub(1) } else { through };
                let lacks = |member| {
                    !self.leavers.contains(member) && !self.marks.held(member, epoch, needed, &facts.lineage)
                };
                if let Some(member) = view.iter().copied().find(|member| lacks(*member)) {
                    return broken(self, record, || format!("{member:?} does not hold place {through}"));
                }
                *self.stable.at(epoch) = through;
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
    use crate::properties::story::Story;
    use crate::record::{Epoch, Life};

    fn judge(story: &Story) -> Result<u64, Violation> {
        story.judge(Stability::new(&story.terms))
    }

    /// Everybody but life 2 stores and delivers a message.
    fn behind() -> Story {
        let mut story = Story::of(3, 1);
        story.message(Life(1));
        story.purge();
        let number = story.send(Life(1));
        let place = story.order(Life(1), number);
        story.store(Life(1), place);
        story.accept(Life(0), place);
        story.accept(Life(1), place);
        story
    }

    #[test]
    fn takes_purging_of_what_all_hold() {
        let mut story = behind();
        story.purge();
        assert!(judge(&story).unwrap() > 0);
        story.store(Life(2), 4);
        story.purge();
        assert!(judge(&story).is_ok());
    }

    #[test]
    fn takes_purging_when_the_laggard_is_left_out() {
        let mut story = behind();
        story.crash(Life(2));
        story.reset(&[Life(0), Life(1)]);
        story.purge();
        assert!(judge(&story).is_ok());
    }

    #[test]
    fn takes_purging_of_a_reset_event_that_one_has_not_made_yet() {
        let mut story = behind();
        story.reset(&[Life(0), Life(1), Life(2)]);
        let begins =
            |record: &Record| record.life == Life(2) && matches!(record.what, What::EpochBegun { .. });
        let begins = story.position(begins);
        story.records.truncate(begins);
        let mut more = story.clone();
        story.tell(Life(0), What::Purged { epoch: Epoch(1), through: 5 });
        assert!(judge(&story).is_ok());
        more.tell(Life(0), What::Purged { epoch: Epoch(1), through: 6 });
        assert!(judge(&more).is_err());
    }

    #[test]
    fn rejects_purging_what_one_lacks() {
        let mut story = behind();
        story.tell(Life(0), What::Purged { epoch: Epoch(0), through: 4 });
        assert!(judge(&story).is_err());
    }

    #[test]
    fn rejects_purging_what_a_dead_member_lacks_before_it_is_excluded() {
        let mut story = behind();
        story.crash(Life(2));
        story.tell(Life(1), What::Purged { epoch: Epoch(0), through: 4 });
        assert!(judge(&story).is_err());
    }

    #[test]
    fn rejects_a_history_that_grows_without_bound() {
        let mut story = behind();
        let most = story.terms.config.history_messages + 3 + 2;
        story.tell(Life(1), What::HistoryUsed { entries: most });
        assert!(judge(&story).is_ok());
        story.tell(Life(1), What::HistoryUsed { entries: most + 1 });
        assert!(judge(&story).is_err());
    }
}

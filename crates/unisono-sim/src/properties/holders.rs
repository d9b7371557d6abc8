//! G11, holders: when the first member delivers a message, as many members of the view below it have held it as its
//! quality asks: at least max(r, k) + 1, more than half of the view for *majority*, all for *total*, never more than all.
//! Where a fixed list makes the quorums, a quorum of the view is among the holders of a message of quality *majority*.
//!
//! Exception, for a reset: a message that a decided reset keeps needs no such holders, since a quorum holds the reset.

use super::keeping::{holders_asked, is_kept};
use super::quorum::Rule;
use super::streams::{MarkTable, Messages};
use super::tables::Table;
use super::{Facts, GroupTerms, Property, Violation, broken};
use crate::record::{Kind, Record, What};
use unisono_core::{Quality, Seqno};

/// The checker of `holders`.
#[derive(Debug)]
pub(super) struct Holders {
    resilience: u8,
    asked: Messages<Quality>,
    marks: MarkTable,
    rule: Rule,
    /// By epoch, the last message that was examined. The holders of a message do not become fewer.
    examined: Table<Seqno>,
    checked: u64,
}

impl Holders {
    pub(super) fn new(terms: &GroupTerms) -> Holders {
        Holders {
            resilience: terms.config.resilience,
            asked: Messages::default(),
            marks: MarkTable::default(),
            rule: Rule::new(terms.config.quorum.clone()),
            examined: Table::default(),
            checked: 0,
        }
    }

    fn examine(
        &mut self,
        record: &Record,
        seqno: Seqno,
        quality: Quality,
        facts: &Facts,
    ) -> Result<(), Violation> {
        let Some(epoch) = facts.epoch(record.life) else { return Ok(()) };
        let (lineage, views) = (&facts.entries.lineage, &facts.entries.views);
        // A message below the beginning of the epoch is kept by the reset.
        let Some(view) = views.at(epoch, seqno.saturating_sub(1)) else { return Ok(()) };
        let examined = self.examined.at(epoch);
        if seqno <= *examined {
            return Ok(());
        }
        *examined = seqno;
        self.checked += 1;
        let holds = |life: &&_| self.marks.held(**life, epoch, seqno, lineage);
        let holders: Vec<_> = view.iter().filter(holds).copied().collect();
        let enough = holders.len() >= holders_asked(quality, self.resilience, view.len())
            && (quality != Quality::MAJORITY || !self.rule.is_by_list() || self.rule.met(&holders, view));
        if enough || is_kept(&self.rule, record.life, epoch, seqno, facts) {
            return Ok(());
        }
        broken(self, record, || format!("it is {quality}, and held only by {holders:?} of {view:?}"))
    }
}

impl Property for Holders {
    fn name(&self) -> &'static str {
        "holders"
    }

    fn interests(&self) -> u64 {
        Kind::Sent.bit() | Kind::Delivered.bit() | Kind::Stored.bit() | Rule::FOLLOWED
    }

    fn observe(&mut self, record: &Record, facts: &Facts) -> Result<(), Violation> {
        match &record.what {
            What::Sent { number, quality, .. } => {
                if *quality != Quality::ORDERED
                    && let Some(asked) = self.asked.at(record.life, *number)
                {
                    *asked = *quality;
                }
            }
            What::Delivered { seqno, sender, number, .. } => {
                let quality = self.asked.get(*sender, *number).copied().unwrap_or_default();
                return self.examine(record, *seqno, quality, facts);
            }
            What::Stored { .. } => self.marks.follow(record),
            _ => self.rule.follow(record),
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

    /// Life 0 numbers a message of this quality, `holders` store it too, and life 0 delivers it.
    fn check(quality: Quality, resilience: u8, holders: &[u32]) -> bool {
        let mut fixture = Fixture::of(4, resilience);
        let number = fixture.send_with(Life(0), quality);
        let seqno = fixture.order(Life(0), number);
        holders.iter().for_each(|life| fixture.store(Life(*life), seqno));
        fixture.accept(Life(0), seqno);
        fixture.check(Holders::new(&fixture.terms)).is_ok_and(|checked| checked > 0)
    }

    #[test]
    fn each_quality_needs_its_holders_and_one_less_is_rejected() {
        let all = [1, 2, 3];
        for (quality, resilience, needed) in [
            (Quality::ORDERED, 0, 1),
            (Quality::ORDERED, 2, 3),
            (Quality::resilient(2), 0, 3),
            (Quality::resilient(1), 2, 3),
            (Quality::resilient(9), 0, 4),
            (Quality::MAJORITY, 0, 3),
            (Quality::MAJORITY, 3, 4),
            (Quality::TOTAL, 0, 4),
        ] {
            assert!(check(quality, resilience, &all[..needed - 1]), "{quality}, r = {resilience}");
            let fewer = needed > 1 && check(quality, resilience, &all[..needed.saturating_sub(2)]);
            assert!(!fewer, "{quality}, r = {resilience}");
        }
    }
}

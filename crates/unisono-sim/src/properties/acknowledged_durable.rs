//! G10, acknowledged is durable: a message reported *ok* is at that place, was held by r + 1 members of the view
//! below it when it was reported, and is in every later view's log unless more members are missing than its
//! resilience covers.
//!
//! A message that came through a reset needs no r + 1 holders: the reset itself is held by a quorum. So it is with one
//! whose sender was told that the group went on without it, and where; under *at least n* that binds only those who
//! went on so.

use super::keeping::{Hold, Keeping};
use super::quorum::Rule;
use super::streams::{MarkTable, Messages, Stream, Unaided, Views};
use super::tables::Table;
use super::{Facts, Property, Terms, Violation, broken};
use crate::record::{End, Epoch, Kind, Life, Record, What};
use unisono_core::{Ballot, Outcome, Seqno, Time};

/// A message reported *ok*, for which too few holders were found so far.
#[derive(Clone, Debug)]
struct Doubt {
    record: Record,
    epoch: Epoch,
    seqno: Seqno,
    resilience: u8,
    /// Who held it then.
    holders: Vec<Life>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct AcknowledgedDurable {
    resilience: u8,
    asked: Messages<u8>,
    /// Where each message was reported or delivered; zero for nowhere.
    places: Messages<Seqno>,
    keeping: Keeping,
    marks: MarkTable,
    unaided: Unaided,
    rule: Rule,
    /// By the epoch that is to begin, who prepared it, under which ballot, and when.
    prepared: Table<Vec<(Ballot, Life, Time)>>,
    /// When somebody first was in each epoch.
    begun: Table<Option<Time>>,
    /// Epochs that somebody prepared or entered, and of whose beginning no application was told yet.
    unplaced: Vec<Epoch>,
    lives: u32,
    /// Reports of an epoch of which nobody was told yet.
    early: Vec<(Epoch, Seqno, Record)>,
    /// To be asked again when all joins and leaves are known.
    doubts: Vec<Doubt>,
    checked: u64,
}

impl AcknowledgedDurable {
    pub(super) fn new(terms: &Terms) -> AcknowledgedDurable {
        AcknowledgedDurable {
            resilience: terms.config.resilience,
            asked: Messages::default(),
            places: Messages::default(),
            keeping: Keeping::default(),
            marks: MarkTable::default(),
            unaided: Unaided::default(),
            rule: Rule::new(terms.config.quorum.clone()),
            prepared: Table::default(),
            begun: Table::default(),
            unplaced: Vec::new(),
            lives: 0,
            early: Vec::new(),
            doubts: Vec::new(),
            checked: 0,
        }
    }

    /// Whether so many members of the view below the place are among the holders.
    fn enough(
        views: &Views,
        epoch: Epoch,
        seqno: Seqno,
        resilience: u8,
        held: impl Fn(Life) -> bool,
    ) -> bool {
        let Some(view) = views.at(epoch, seqno.saturating_sub(1)) else { return true };
        let needed = (usize::from(resilience) + 1).min(view.len());
        view.iter().filter(|member| held(**member)).take(needed).count() == needed
    }

    fn report(
        &mut self,
        record: &Record,
        epoch: Epoch,
        seqno: Seqno,
        facts: &Facts,
    ) -> Result<(), Violation> {
        let Some(start) = facts.lineage.start(epoch) else {
            self.early.push((epoch, seqno, record.clone()));
            return Ok(());
        };
        let What::SendResult { number, .. } = record.what else { return Ok(()) };
        if seqno < start {
            return Ok(());
        }
        let asked = self.asked.get(record.life, number).copied().unwrap_or_default();
        let resilience = asked.max(self.resilience);
        let held = |life| self.marks.held(life, epoch, seqno, &facts.lineage);
        if !Self::enough(&facts.views, epoch, seqno, resilience, held) {
            let holders = (0..self.lives).map(Life).filter(|life| held(*life)).collect();
            self.doubts.push(Doubt { record: record.clone(), epoch, seqno, resilience, holders });
        }
        if !self.rule.intersects() && !self.unaided.accepted(record.life, epoch, seqno) {
            return Ok(());
        }
        let members = facts.views.at(epoch, seqno).map_or(1, <[Life]>::len);
        let hold = Hold::Resilience(resilience.min(members.saturating_sub(1) as u8));
        match self.keeping.seen(epoch, seqno, hold) {
            Some(start) => broken(self, record, || format!("a reset at {start} lost it")),
            None => Ok(()),
        }
    }

    /// An epoch may have been decided.
    fn expect(&mut self, epoch: Epoch, facts: &Facts) {
        if facts.lineage.start(epoch).is_none() && !self.unplaced.contains(&epoch) {
            self.unplaced.push(epoch);
        }
    }

    /// An epoch that goes on with this place had been decided by then.
    fn decreed(&self, epoch: Epoch, seqno: Seqno, record: &Record, facts: &Facts) -> bool {
        let keep = |next: &&Epoch| facts.lineage.keeps(**next, epoch, seqno);
        facts.lineage.children(epoch).iter().filter(keep).any(|next| {
            if self.begun.get(*next).copied().flatten().is_some_and(|at| at <= record.at) {
                return true;
            }
            let start = facts.lineage.start(*next).unwrap_or(0);
            let Some(view) = facts.views.at(epoch, start.saturating_sub(1)) else { return true };
            let prepared = self.prepared.get(*next).map_or(&[][..], Vec::as_slice);
            let by_then = |ballot| {
                let same = prepared.iter().filter(move |(b, _, at)| *b == ballot && *at <= record.at);
                // Who decides may prepare within the same input.
                same.map(|(_, life, _)| *life).chain([record.life]).collect::<Vec<_>>()
            };
            prepared.iter().any(|(ballot, ..)| self.rule.met(&by_then(*ballot), view))
        })
    }

    /// Asks the doubts again about places that somebody's stream has passed, so that the view there is known.
    fn settle(&mut self, has_passed: impl Fn(Epoch, Seqno) -> bool, facts: &Facts) -> Result<(), Violation> {
        let doubts = std::mem::take(&mut self.doubts);
        for doubt in doubts {
            let Doubt { record, epoch, seqno, resilience, holders } = &doubt;
            if !has_passed(*epoch, *seqno) {
                self.doubts.push(doubt);
            } else if !Self::enough(&facts.views, *epoch, *seqno, *resilience, |member| {
                holders.contains(&member)
            }) && !self.decreed(*epoch, *seqno, record, facts)
            {
                return broken(self, record, || {
                    format!("place {seqno} was held by {holders:?} alone, with resilience {resilience}")
                });
            }
        }
        Ok(())
    }
}

/// Whether a stream that has come to `last` came from below a place of an epoch, and has passed it.
fn has_passed(stream: &Stream, last: Seqno, epoch: Epoch, seqno: Seqno) -> bool {
    stream.epoch == Some(epoch) && (stream.entered + 1..=last + 1).contains(&seqno)
}

impl Property for AcknowledgedDurable {
    fn name(&self) -> &'static str {
        "acknowledged_durable"
    }

    fn interests(&self) -> u64 {
        Kind::Entered.bit()
            | Kind::Reset.bit()
            | Kind::Sent.bit()
            | Kind::SendResult.bit()
            | Kind::Delivered.bit()
            | Kind::Stored.bit()
            | Kind::EpochBegun.bit()
            | Kind::Prepared.bit()
            | Kind::Started.bit()
            | if self.rule.intersects() { 0 } else { Unaided::KINDS }
    }

    #[inline(always)]
    fn observe(&mut self, record: &Record, facts: &Facts) -> Result<(), Violation> {
        match &record.what {
            What::Sent { number, resilience, .. } => {
                if *resilience > 0
                    && let Some(asked) = self.asked.at(record.life, *number)
                {
                    *asked = *resilience;
                }
            }
            What::SendResult { number, outcome: Outcome::Ok { seqno } } => {
                self.checked += 1;
                if let Some(place) = self.places.at(record.life, *number) {
                    let known = std::mem::replace(place, *seqno);
                    if known != 0 && known != *seqno {
                        return broken(self, record, || format!("it was delivered at {known}"));
                    }
                }
                let epoch = facts.epoch(record.life);
                return epoch.map_or(Ok(()), |epoch| self.report(record, epoch, *seqno, facts));
            }
            What::SendResult { .. } => {}
            What::Delivered { seqno, sender, number, .. } => {
                // The sender's own delivery is enough to compare with: others' are total_order's business.
                if *sender == record.life
                    && let Some(place) = self.places.at(*sender, *number)
                {
                    let known = std::mem::replace(place, *seqno);
                    if known != 0 && known != *seqno {
                        return broken(self, record, || format!("it was reported ok at {known}"));
                    }
                }
                if !self.doubts.is_empty() && self.unplaced.is_empty() {
                    let stream = facts.stream(record.life);
                    return self.settle(|epoch, place| has_passed(stream, *seqno, epoch, place), facts);
                }
            }
            What::Started { .. } => {
                self.lives = self.lives.max(record.life.0 + 1);
                self.rule.follow(record);
            }
            What::Stored { .. } => self.marks.follow(record),
            What::Prepared { preparation, .. } => {
                let prepared = self.prepared.at(preparation.next);
                prepared.push((preparation.ballot, record.life, record.at));
                self.expect(preparation.next, facts);
            }
            What::Accepted { .. } | What::Promised { .. } => self.unaided.follow(record),
            What::EpochBegun { epoch } => {
                self.begun.at(*epoch).get_or_insert(record.at);
                self.expect(*epoch, facts);
            }
            What::Reset(reset) => {
                let stream = facts.before();
                let missing = stream.view.iter().filter(|member| !reset.view.members.contains(member));
                let (parent, missing) = (stream.epoch, missing.count());
                let child = reset.view.epoch;
                let lost = parent.and_then(|e| self.keeping.ended(e, child, reset.seqno, missing));
                if let Some(lost) = lost {
                    return broken(self, record, || {
                        format!("place {lost} was reported ok and is lost with {missing} members")
                    });
                }
                self.unplaced.retain(|epoch| *epoch != child);
                let early = std::mem::take(&mut self.early);
                for (epoch, seqno, report) in early {
                    self.report(&report, epoch, seqno, facts)?;
                }
            }
            What::Entered { seqno: 0, view } => self.unplaced.retain(|epoch| *epoch != view.epoch),
            _ => {}
        }
        Ok(())
    }

    fn finish(&mut self, _: &End, facts: &Facts) -> Result<(), Violation> {
        // What nobody's application was told of may have decided them.
        if !self.unplaced.is_empty() {
            return Ok(());
        }
        let streams: Vec<_> = (0..self.lives).map(|life| facts.stream(Life(life))).collect();
        let any_passed =
            |epoch, place| streams.iter().any(|stream| has_passed(stream, stream.last, epoch, place));
        self.settle(any_passed, facts)
    }

    fn checked(&self) -> u64 {
        self.checked
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::properties::story::{Story, reset_of};
    use crate::properties::streams::PLACED;
    use unisono_core::Quorum;

    fn judge(story: &Story) -> Result<u64, Violation> {
        story.judge(AcknowledgedDurable::new(&story.terms))
    }

    /// Life 1's message is numbered by life 0, stored by `holders`, and reported.
    fn reported(resilience: u8, holders: &[u32]) -> Story {
        let mut story = Story::of(4, resilience);
        let number = story.send(Life(1));
        let place = story.order(Life(1), number);
        holders.iter().for_each(|life| story.store(Life(*life), place));
        story.accept(Life(1), place);
        story
    }

    #[test]
    fn takes_what_enough_hold() {
        assert!(judge(&reported(1, &[1])).unwrap() > 0);
        assert!(judge(&reported(2, &[1, 3])).unwrap() > 0);
        assert!(judge(&reported(0, &[1])).unwrap() > 0);
    }

    #[test]
    fn takes_what_came_through_a_reset() {
        let mut story = Story::of(3, 2);
        let number = story.send(Life(1));
        let place = story.order(Life(1), number);
        story.store(Life(1), place);
        story.crash(Life(0));
        story.reset(&[Life(1), Life(2)]);
        assert!(judge(&story).unwrap() > 0);
    }

    #[test]
    fn takes_what_a_decision_keeps_for_who_is_left_out() {
        let mut story = Story::of(3, 2);
        let number = story.send(Life(2));
        let seqno = story.order(Life(2), number);
        story.store(Life(2), seqno);
        story.reset(&[Life(0), Life(1)]);
        let told = story.last(|record| matches!(record.what, What::SendResult { .. }));
        told.what = What::SendResult { number, outcome: Outcome::Ok { seqno } };
        assert!(judge(&story).is_ok());
        // Before anything was decided this is a lie.
        let told = story.position(|record| matches!(record.what, What::SendResult { .. }));
        let mut told = story.records.remove(told);
        let promise = story.position(|record| matches!(record.what, What::Promised { .. }));
        told.at = story.records[promise].at;
        story.records.insert(promise, told);
        assert!(judge(&story).is_err());
    }

    /// Life 1 learns that a reset without it keeps its message, by a decision that life 0 took within one input.
    fn kept_by_a_decision_of_one() -> Story {
        let mut story = Story::found(2, Quorum::AtLeast(1));
        (0..2).for_each(|_| _ = story.join());
        let number = story.send(Life(1));
        let seqno = story.order(Life(1), number);
        story.store(Life(1), seqno);
        story.reset(&[Life(0)]);
        story.records.retain(|record| record.what.kind() != Kind::Prepared);
        let told =
            story.last(|record| record.life == Life(1) && matches!(record.what, What::SendResult { .. }));
        told.what = What::SendResult { number, outcome: Outcome::Ok { seqno } };
        story
    }

    #[test]
    fn takes_what_an_epoch_keeps_that_somebody_has_entered() {
        let mut story = kept_by_a_decision_of_one();
        assert!(judge(&story).is_ok());
        let begun = |record: &Record| record.what == What::EpochBegun { epoch: Epoch(1) };
        let begun = story.position(begun);
        story.records.remove(begun);
        assert!(judge(&story).is_err());
    }

    #[test]
    fn under_at_least_a_decision_binds_its_own_line_only() {
        let mut story = kept_by_a_decision_of_one();
        let seqno = story.end() - 1;
        let What::Reset(mut reset) = story.last(reset_of(Life(0))).what.clone() else { unreachable!() };
        (reset.seqno, reset.view.epoch, reset.view.members) = (seqno, Epoch(2), vec![Life(2)]);
        story.tell(Life(2), What::Reset(reset));
        assert!(judge(&story).is_ok());
        // Had life 1 known before that it is accepted, life 2 could not go on without it.
        let promise = story.position(|record| matches!(record.what, What::Promised { .. }));
        let accepted = What::Accepted { epoch: Epoch(0), through: seqno };
        let accepted = Record { life: Life(1), what: accepted, ..story.records[promise].clone() };
        story.records.insert(promise, accepted);
        assert!(judge(&story).is_err());
    }

    #[test]
    fn rejects_a_report_with_one_holder_less() {
        let story = reported(2, &[1]);
        assert!(judge(&story).is_err());
    }

    #[test]
    fn rejects_a_report_with_a_holder_from_outside() {
        let mut story = Story::of(3, 1);
        let (one, two) = (story.send(Life(0)), story.send(Life(0)));
        story.order(Life(0), one);
        let joiner = story.join();
        story.order(Life(0), two);
        story.everyone();
        assert!(judge(&story).is_ok());
        // Only the joiner, which is no member below the first message, held it with its orderer then.
        let stored = |record: &Record| {
            matches!(record.what, What::Stored { .. }) && record.life != joiner && record.life != Life(0)
        };
        story.records.retain(|record| !stored(record));
        assert!(judge(&story).is_err());
    }

    #[test]
    fn takes_what_was_left_alone_though_a_joiner_did_not_see_the_leave() {
        let mut story = Story::of(2, 1);
        story.leave(Life(1));
        let number = story.send(Life(0));
        story.order(Life(0), number);
        story.join();
        story.message(Life(0));
        story.everyone();
        // The applications of the two have not come to the leave yet.
        let taken = |record: &Record| record.life < Life(2) && PLACED & record.what.kind().bit() != 0;
        story.records.retain(|record| record.what.kind() == Kind::Entered || !taken(record));
        assert!(judge(&story).is_ok());
    }

    #[test]
    fn rejects_a_reset_that_loses_it() {
        let mut story = reported(1, &[1]);
        story.crash(Life(0));
        story.crash(Life(1));
        let mut told = story.clone();
        told.reset(&[Life(2), Life(3)]);
        assert!(judge(&told).is_ok(), "two are missing: degraded, and it says so");
        let mut story = reported(1, &[1]);
        story.crash(Life(1));
        story.reset(&[Life(2), Life(3), Life(0)]);
        assert!(judge(&story).is_ok(), "life 0 holds it");
        let mut story = reported(1, &[1]);
        story.crash(Life(0));
        story.reset(&[Life(1), Life(2), Life(3)]);
        let first = story.position(|record| matches!(record.what, What::Promised { .. }));
        for record in &mut story.records[first..] {
            if let What::Reset(reset) = &mut record.what {
                reset.seqno -= 1;
            }
        }
        assert!(judge(&story).is_err());
    }

    #[test]
    fn rejects_another_place_than_the_delivered_one() {
        let mut story = reported(1, &[1]);
        if let What::SendResult { outcome, .. } =
            &mut story.last(|record| matches!(record.what, What::SendResult { .. })).what
        {
            *outcome = Outcome::Ok { seqno: 2 };
        }
        assert!(judge(&story).is_err());
    }
}

//! G10, acknowledged is durable: a message reported *ok* is at that place, was held by r + 1 members of the view
//! below it when it was reported, and is in every later view's log unless more members are missing than its
//! resilience covers.
//!
//! A message that came through a reset needs no r + 1 holders: the reset itself is held by a quorum. So it is with one
//! whose sender was told that the group went on without it, and where; under *at least n* that binds only those who
//! went on so.
//!
//! Reports come before events, so a report may be checked only when somebody has been told what the view below it was.

use super::keeping::{Hold, Keeping};
use super::quorum::Rule;
use super::streams::{MarkTable, Messages, Stream, Unaided, Views};
use super::tables::{Lives, Table};
use super::{Facts, Property, Terms, Violation, broken};
use crate::record::{End, Epoch, Kind, Life, Record, What};
use unisono_core::{Ballot, Outcome, Seqno, Time};

/// A message reported *ok*, for which too few holders were found so far, or of which the view is not known yet.
#[derive(Clone, Debug)]
struct Doubt {
    record: Record,
    seqno: Seqno,
    resilience: u8,
    /// Who held it then.
    holders: Lives,
    /// Somebody was told all that came before it: the view below it is known.
    is_passed: bool,
}

/// What happened to an epoch.
#[derive(Clone, Debug, Default)]
struct Course {
    /// Who prepared it, under which ballot, and when.
    prepared: Vec<(Ballot, Life, Time)>,
    /// When somebody first was in it.
    begun: Option<Time>,
    /// Everything through here has been told to somebody, so the views are known.
    known: Seqno,
    /// What somebody prepared or entered to follow it, and when somebody first did.
    may_follow: Vec<(Epoch, Time)>,
    doubts: Vec<Doubt>,
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
    courses: Table<Course>,
    /// The epochs that the marks of lives are of.
    epochs: Table<Option<Epoch>>,
    lives: u32,
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
            courses: Table::default(),
            epochs: Table::default(),
            lives: 0,
            checked: 0,
        }
    }

    /// A message is at this place, as its sender or another was told.
    #[inline(always)]
    fn place(&mut self, record: &Record, sender: Life, number: u64, seqno: Seqno) -> Result<(), Violation> {
        if let Some(place) = self.places.at(sender, number) {
            let known = std::mem::replace(place, seqno);
            if known != 0 && known != seqno {
                return broken(self, record, || format!("it was reported or delivered at {known}"));
            }
        }
        Ok(())
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
        let What::SendResult { number, .. } = record.what else { return Ok(()) };
        let start = facts.lineage.start(epoch);
        if start.is_some_and(|start| seqno < start) {
            return Ok(());
        }
        let asked = self.asked.get(record.life, number).copied().unwrap_or_default();
        let resilience = asked.max(self.resilience);
        let held = |life| self.marks.held(life, epoch, seqno, &facts.lineage);
        let course = self.courses.at(epoch);
        let is_passed = start.is_some() && seqno <= course.known + 1;
        if !is_passed || !Self::enough(&facts.views, epoch, seqno, resilience, held) {
            let holders = (0..self.lives).map(Life).filter(|life| held(*life)).collect();
            course.doubts.push(Doubt { record: record.clone(), seqno, resilience, holders, is_passed });
            if is_passed {
                self.settle(epoch, |_| false, facts)?;
            }
        }
        if start.is_some() { self.keep(record, epoch, seqno, resilience, facts) } else { Ok(()) }
    }

    /// It lies in every later log, as far as the view is known.
    fn keep(
        &mut self,
        record: &Record,
        epoch: Epoch,
        seqno: Seqno,
        resilience: u8,
        facts: &Facts,
    ) -> Result<(), Violation> {
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

    /// Somebody prepared or entered what may follow an epoch.
    fn expect(&mut self, epoch: Epoch, next: Epoch, at: Time) {
        let may_follow = &mut self.courses.at(epoch).may_follow;
        if may_follow.iter().all(|(known, _)| *known != next) {
            may_follow.push((next, at));
        }
    }

    /// An epoch that goes on with this place had been decided by then.
    fn decreed(&self, epoch: Epoch, seqno: Seqno, record: &Record, facts: &Facts) -> bool {
        let keep = |next: &&Epoch| facts.lineage.keeps(**next, epoch, seqno);
        facts.lineage.children(epoch).iter().filter(keep).any(|next| {
            let Some(course) = self.courses.get(*next) else { return false };
            if course.begun.is_some_and(|at| at <= record.at) {
                return true;
            }
            let start = facts.lineage.start(*next).unwrap_or(0);
            let Some(view) = facts.views.at(epoch, start.saturating_sub(1)) else { return true };
            let by_then = |ballot| {
                let same = course.prepared.iter().filter(move |(b, _, at)| *b == ballot && *at <= record.at);
                // Who decides may prepare within the same input.
                same.map(|(_, life, _)| *life).chain([record.life]).collect::<Vec<_>>()
            };
            course.prepared.iter().any(|(ballot, ..)| self.rule.met(&by_then(*ballot), view))
        })
    }

    /// What somebody had prepared or entered by then may have been decided, and no application was told of it yet. Where
    /// quorums meet nothing else was decided once one was told of another.
    fn may_be_decreed(&self, epoch: Epoch, record: &Record, facts: &Facts) -> bool {
        let children = facts.lineage.children(epoch);
        let is_untold = |next| facts.lineage.start(next).is_none();
        let may_follow = self.courses.get(epoch).map_or(&[][..], |course| &course.may_follow);
        (children.is_empty() || !self.rule.intersects())
            && may_follow.iter().any(|(next, since)| *since <= record.at && is_untold(*next))
    }

    /// Asks the doubts of an epoch again, of which somebody has passed some places.
    #[inline(never)]
    fn settle(
        &mut self,
        epoch: Epoch,
        has_passed: impl Fn(Seqno) -> bool,
        facts: &Facts,
    ) -> Result<(), Violation> {
        let Some(start) = facts.lineage.start(epoch) else { return Ok(()) };
        let mut settled = Ok(());
        let mut doubts = std::mem::take(&mut self.courses.at(epoch).doubts);
        doubts.retain_mut(|doubt| {
            doubt.is_passed |= has_passed(doubt.seqno);
            let Doubt { record, seqno, resilience, holders, is_passed } = doubt;
            if *seqno < start || settled.is_err() {
                return false;
            }
            settled = self.keep(record, epoch, *seqno, *resilience, facts);
            let held = |life| holders.contains(life);
            if !*is_passed || Self::enough(&facts.views, epoch, *seqno, *resilience, held) {
                return !*is_passed;
            }
            if self.may_be_decreed(epoch, record, facts) {
                return true;
            }
            if settled.is_ok() && !self.decreed(epoch, *seqno, record, facts) {
                let holders: Vec<_> = (0..self.lives).map(Life).filter(|life| held(*life)).collect();
                settled = broken(self, record, || {
                    format!("place {seqno} was held by {holders:?} alone, with resilience {resilience}")
                });
            }
            false
        });
        self.courses.at(epoch).doubts = doubts;
        settled
    }

    /// A life was told what is at a place: whatever came before it there, as far back as its stream goes, is known.
    #[inline(always)]
    fn pass(&mut self, stream: &Stream, last: Seqno, facts: &Facts) -> Result<(), Violation> {
        let Some(epoch) = stream.epoch else { return Ok(()) };
        let course = self.courses.at(epoch);
        if stream.entered <= course.known + 1 {
            course.known = course.known.max(last);
        }
        if course.doubts.is_empty() {
            return Ok(());
        }
        self.settle(epoch, |seqno| has_passed(stream, last, seqno), facts)
    }
}

/// Whether a stream that has come to `last` came from below a place, and has passed it.
fn has_passed(stream: &Stream, last: Seqno, seqno: Seqno) -> bool {
    (stream.entered + 1..=last + 1).contains(&seqno)
}

impl Property for AcknowledgedDurable {
    fn name(&self) -> &'static str {
        "acknowledged_durable"
    }

    fn interests(&self) -> u64 {
        Kind::Reset.bit()
            | Kind::Sent.bit()
            | Kind::SendResult.bit()
            | Kind::Delivered.bit()
            | Kind::Stored.bit()
            | Kind::EpochBegun.bit()
            | Kind::Prepared.bit()
            | Rule::FOLLOWED
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
                self.place(record, record.life, *number, *seqno)?;
                let epoch = facts.epoch(record.life);
                return epoch.map_or(Ok(()), |epoch| self.report(record, epoch, *seqno, facts));
            }
            What::SendResult { .. } => {}
            What::Delivered { seqno, sender, number, .. } => {
                self.place(record, *sender, *number, *seqno)?;
                return self.pass(facts.stream(record.life), *seqno, facts);
            }
            What::Started { .. } => {
                self.lives = self.lives.max(record.life.0 + 1);
                self.rule.follow(record);
            }
            What::ForceAsked { .. } => self.rule.follow(record),
            What::Stored { .. } => self.marks.follow(record),
            What::Prepared { epoch, preparation } => {
                let prepared = &mut self.courses.at(preparation.next).prepared;
                prepared.push((preparation.ballot, record.life, record.at));
                self.expect(*epoch, preparation.next, record.at);
            }
            What::Accepted { .. } | What::Promised { .. } => self.unaided.follow(record),
            What::EpochBegun { epoch } => {
                self.courses.at(*epoch).begun.get_or_insert(record.at);
                let before = self.epochs.at(record.life).replace(*epoch);
                if let Some(before) = before.filter(|before| before != epoch) {
                    self.expect(before, *epoch, record.at);
                }
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
                self.pass(stream, reset.seqno.saturating_sub(1), facts)?;
                let known = &mut self.courses.at(child).known;
                *known = reset.seqno.max(*known);
                return self.settle(child, |seqno| seqno <= reset.seqno + 1, facts);
            }
            _ => {}
        }
        Ok(())
    }

    fn finish(&mut self, _: &End, facts: &Facts) -> Result<(), Violation> {
        let streams: Vec<_> = (0..self.lives).map(|life| facts.stream(Life(life))).collect();
        let epochs = (0..).map(Epoch).zip(self.courses.iter());
        let doubted: Vec<_> =
            epochs.filter(|(_, course)| !course.doubts.is_empty()).map(|(epoch, _)| epoch).collect();
        doubted.into_iter().try_for_each(|epoch| {
            let there = || streams.iter().filter(|stream| stream.epoch == Some(epoch));
            let any_passed = |seqno| there().any(|stream| has_passed(stream, stream.last, seqno));
            self.settle(epoch, any_passed, facts)
        })
    }

    fn checked(&self) -> u64 {
        self.checked
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::properties::fixture::{Fixture, delivery, reset_of};
    use crate::properties::streams::PLACED;
    use crate::record::Preparation;
    use unisono_core::{Quorum, Uid};

    fn check(fixture: &Fixture) -> Result<u64, Violation> {
        fixture.check(AcknowledgedDurable::new(&fixture.terms))
    }

    /// Life 1's message is numbered by life 0, stored by `holders`, and reported.
    fn reported(resilience: u8, holders: &[u32]) -> Fixture {
        let mut fixture = Fixture::of(4, resilience);
        let number = fixture.send(Life(1));
        let place = fixture.order(Life(1), number);
        holders.iter().for_each(|life| fixture.store(Life(*life), place));
        fixture.accept(Life(1), place);
        fixture
    }

    #[test]
    fn takes_what_enough_hold() {
        assert!(check(&reported(1, &[1])).unwrap() > 0);
        assert!(check(&reported(2, &[1, 3])).unwrap() > 0);
        assert!(check(&reported(0, &[1])).unwrap() > 0);
    }

    #[test]
    fn takes_what_came_through_a_reset() {
        let mut fixture = Fixture::of(3, 2);
        let number = fixture.send(Life(1));
        let place = fixture.order(Life(1), number);
        fixture.store(Life(1), place);
        fixture.crash(Life(0));
        fixture.reset(&[Life(1), Life(2)]);
        assert!(check(&fixture).unwrap() > 0);
    }

    fn is_result(record: &Record) -> bool {
        matches!(record.what, What::SendResult { .. })
    }

    /// The last report comes right after a record, and all that was there already.
    fn report_after(fixture: &mut Fixture, pick: impl Fn(&Record) -> bool) {
        let report = fixture.position(is_result);
        let mut report = fixture.records.remove(report);
        let before = fixture.position(pick);
        report.at = fixture.records[before].at;
        fixture.records.insert(before + 1, report);
    }

    #[test]
    fn takes_what_a_decision_keeps_for_who_is_left_out() {
        let mut fixture = Fixture::of(5, 4);
        fixture.crash(Life(4));
        let number = fixture.send(Life(3));
        let seqno = fixture.order(Life(3), number);
        fixture.store(Life(3), seqno);
        fixture.reset(&[Life(0), Life(1), Life(2)]);
        fixture.last(is_result).what = What::SendResult { number, outcome: Outcome::Ok { seqno } };
        fixture.tell(Life(3), What::Delivered { seqno, sender: Life(3), number, hash: 1_004 });
        let mut untold = fixture.clone();
        untold.records.retain(|record| record.what.kind() != Kind::Reset);
        for mut fixture in [fixture, untold] {
            assert!(check(&fixture).is_ok());
            // Before anything was decided this is a lie, whoever is told of the decision.
            report_after(&mut fixture, |r| {
                r.life == Life(3) && r.what == What::Stored { epoch: Epoch(0), through: seqno }
            });
            assert!(check(&fixture).is_err());
        }
    }

    /// Life 3 prepares a reset alone, which comes to nothing.
    fn abandoned() -> Fixture {
        let mut fixture = Fixture::of(4, 2);
        let ballot = Ballot { round: 0, coordinator: Uid(3) };
        let preparation = Box::new(Preparation { ballot, next: Epoch(9), start: fixture.end() + 1 });
        fixture.tell(Life(3), What::Promised { epoch: Epoch(0), ballot });
        fixture.tell(Life(3), What::Prepared { epoch: Epoch(0), preparation });
        fixture.crash(Life(3));
        fixture
    }

    #[test]
    fn an_abandoned_proposal_excuses_nothing_in_later_epochs() {
        let mut fixture = abandoned();
        fixture.reset(&[Life(0), Life(1), Life(2)]);
        fixture.message(Life(1));
        assert!(check(&fixture).is_ok());
        let place = fixture.end();
        report_after(&mut fixture, |r| matches!(r.what, What::Numbered { to, .. } if to == place));
        assert!(check(&fixture).is_err());
    }

    #[test]
    fn an_abandoned_proposal_excuses_nothing_when_another_was_decided() {
        let mut fixture = abandoned();
        let number = fixture.send(Life(1));
        let place = fixture.order(Life(1), number);
        fixture.reset(&[Life(0), Life(1), Life(2)]);
        assert!(check(&fixture).is_ok());
        report_after(&mut fixture, |r| matches!(r.what, What::Numbered { to, .. } if to == place));
        assert!(check(&fixture).is_err());
    }

    /// Life 1 learns that a reset without it keeps its message, by a decision that life 0 took within one input.
    fn kept_by_a_decision_of_one() -> Fixture {
        let mut fixture = Fixture::found(2, Quorum::AtLeast(1));
        (0..2).for_each(|_| _ = fixture.join());
        let number = fixture.send(Life(1));
        let seqno = fixture.order(Life(1), number);
        fixture.store(Life(1), seqno);
        fixture.reset(&[Life(0)]);
        fixture.records.retain(|record| record.what.kind() != Kind::Prepared);
        let told =
            fixture.last(|record| record.life == Life(1) && matches!(record.what, What::SendResult { .. }));
        told.what = What::SendResult { number, outcome: Outcome::Ok { seqno } };
        fixture
    }

    #[test]
    fn takes_what_an_epoch_keeps_that_somebody_has_entered() {
        let mut fixture = kept_by_a_decision_of_one();
        assert!(check(&fixture).is_ok());
        let begun = |record: &Record| record.what == What::EpochBegun { epoch: Epoch(1) };
        let begun = fixture.position(begun);
        fixture.records.remove(begun);
        assert!(check(&fixture).is_err());
    }

    #[test]
    fn under_at_least_a_decision_binds_its_own_line_only() {
        let mut fixture = kept_by_a_decision_of_one();
        let seqno = fixture.end() - 1;
        let What::Reset(mut reset) = fixture.last(reset_of(Life(0))).what.clone() else { unreachable!() };
        (reset.seqno, reset.view.epoch, reset.view.members) = (seqno, Epoch(2), vec![Life(2)]);
        fixture.tell(Life(2), What::Reset(reset));
        assert!(check(&fixture).is_ok());
        // Had life 1 known before that it is accepted, life 2 could not go on without it.
        let promise = fixture.position(|record| matches!(record.what, What::Promised { .. }));
        let accepted = What::Accepted { epoch: Epoch(0), through: seqno };
        let accepted = Record { life: Life(1), what: accepted, ..fixture.records[promise].clone() };
        fixture.records.insert(promise, accepted);
        assert!(check(&fixture).is_err());
    }

    #[test]
    fn rejects_a_report_with_one_holder_less() {
        let fixture = reported(2, &[1]);
        assert!(check(&fixture).is_err());
    }

    #[test]
    fn rejects_a_report_with_a_holder_from_outside() {
        let mut fixture = Fixture::of(3, 1);
        let (one, two) = (fixture.send(Life(0)), fixture.send(Life(0)));
        fixture.order(Life(0), one);
        let joiner = fixture.join();
        fixture.order(Life(0), two);
        fixture.everyone();
        assert!(check(&fixture).is_ok());
        // Only the joiner, which is no member below the first message, held it with its sequencer then.
        let stored = |record: &Record| {
            matches!(record.what, What::Stored { .. }) && record.life != joiner && record.life != Life(0)
        };
        fixture.records.retain(|record| !stored(record));
        assert!(check(&fixture).is_err());
    }

    /// What applications are told of joins and resets they are told only when life 0 has been told *ok*.
    fn tell_late(fixture: &mut Fixture) {
        let is_late = |record: &Record| match record.what {
            What::Entered { seqno, .. } => seqno > 0,
            _ => matches!(record.what, What::Joined { .. } | What::Reset(_)),
        };
        let (late, others): (Vec<_>, Vec<_>) = fixture.records.drain(..).partition(is_late);
        fixture.records = others;
        let delivered = fixture.position(delivery(Life(0)));
        fixture.records.splice(delivered..delivered, late);
    }

    #[test]
    fn judges_by_what_was_though_applications_are_told_of_it_later() {
        let mut joined = Fixture::found(1, Quorum::MajorityOfView);
        joined.join();
        let mut reset = Fixture::of(3, 1);
        reset.reset(&[Life(0), Life(1), Life(2)]);
        for mut fixture in [joined, reset] {
            let place = fixture.message(Life(0));
            tell_late(&mut fixture);
            assert!(check(&fixture).is_ok());
            report_after(&mut fixture, |r| matches!(r.what, What::Numbered { to, .. } if to == place));
            assert!(check(&fixture).is_err());
        }
    }

    #[test]
    fn takes_what_was_left_alone_though_a_joiner_did_not_see_the_leave() {
        let mut fixture = Fixture::of(2, 1);
        fixture.leave(Life(1));
        let number = fixture.send(Life(0));
        fixture.order(Life(0), number);
        fixture.join();
        fixture.message(Life(0));
        fixture.everyone();
        // The applications of the two have not come to the leave yet.
        let taken = |record: &Record| record.life < Life(2) && PLACED & record.what.kind().bit() != 0;
        fixture.records.retain(|record| record.what.kind() == Kind::Entered || !taken(record));
        assert!(check(&fixture).is_ok());
    }

    #[test]
    fn rejects_a_reset_that_loses_it() {
        let mut fixture = reported(1, &[1]);
        fixture.crash(Life(0));
        fixture.crash(Life(1));
        let mut told = fixture.clone();
        told.reset(&[Life(2), Life(3)]);
        assert!(check(&told).is_ok(), "two are missing: degraded, and it says so");
        let mut fixture = reported(1, &[1]);
        fixture.crash(Life(1));
        fixture.reset(&[Life(2), Life(3), Life(0)]);
        assert!(check(&fixture).is_ok(), "life 0 holds it");
        let mut fixture = reported(1, &[1]);
        fixture.crash(Life(0));
        fixture.reset(&[Life(1), Life(2), Life(3)]);
        let first = fixture.position(|record| matches!(record.what, What::Promised { .. }));
        for record in &mut fixture.records[first..] {
            if let What::Reset(reset) = &mut record.what {
                reset.seqno -= 1;
            }
        }
        assert!(check(&fixture).is_err());
    }

    #[test]
    fn rejects_another_place_than_where_the_others_deliver_it() {
        for (back, is_good) in [(0, true), (1, false)] {
            let mut fixture = Fixture::of(3, 1);
            fixture.message(Life(2));
            let number = fixture.send(Life(1));
            let place = fixture.order(Life(1), number);
            fixture.store(Life(1), place);
            fixture.tell(Life(1), What::SendResult { number, outcome: Outcome::Ok { seqno: place - back } });
            fixture.crash(Life(1));
            fixture.everyone();
            assert_eq!(check(&fixture).is_ok(), is_good);
        }
    }

    #[test]
    fn rejects_another_place_than_the_delivered_one() {
        let mut fixture = reported(1, &[1]);
        if let What::SendResult { outcome, .. } =
            &mut fixture.last(|record| matches!(record.what, What::SendResult { .. })).what
        {
            *outcome = Outcome::Ok { seqno: 2 };
        }
        assert!(check(&fixture).is_err());
    }
}

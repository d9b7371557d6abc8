//! G10, acknowledged is durable: a message reported *ok* with a seqno is delivered at that seqno. At the time of the
//! report, r + 1 members of the view below it have held it. The message is in the log of every later view, unless
//! more members of that view are missing than its resilience covers.
//!
//! Exception, for a reset: a message that a decided reset keeps needs no r + 1 holders, since a quorum holds the
//! reset. This includes a message whose sender learned from the decision that it is excluded and that its message is
//! kept. Under *at least n* this binds only the members that went on by that decision.
//!
//! Reports may precede events. A report can be checked only after some application has received all events below its
//! seqno, so that the view below it is known.

use super::keeping::{Durability, Keeping};
use super::quorum::Rule;
use super::streams::{AcceptedBeforePromise, MarkTable, Messages, Stream, Views};
use super::tables::{Lives, Table};
use super::{Facts, GroupTerms, Property, Violation, broken};
use crate::record::{End, Epoch, Kind, Life, Record, What};
use unisono_core::{Ballot, Outcome, Seqno, Time};

/// A message reported *ok* for which too few holders are known so far, or whose view is not known yet.
#[derive(Clone, Debug)]
struct Undecided {
    record: Record,
    seqno: Seqno,
    resilience: u8,
    /// Lives that held it at that time.
    holders: Lives,
    /// True once an application has received everything below the message, so that the view is known.
    is_passed: bool,
}

/// What is known of an epoch.
#[derive(Clone, Debug, Default)]
struct EpochState {
    /// Preparations of this epoch: the ballot, the life, and the time.
    prepared: Vec<(Ballot, Life, Time)>,
    /// Time at which the first life entered it.
    begun: Option<Time>,
    /// Seqno through which applications have received everything, so that the views are known.
    known: Seqno,
    /// Epochs that a life prepared or entered as its successor, and the time at which the first life did.
    may_follow: Vec<(Epoch, Time)>,
    undecided: Vec<Undecided>,
}

/// The checker of `acknowledged_durable`.
#[derive(Debug)]
pub(super) struct AcknowledgedDurable {
    resilience: u8,
    asked: Messages<u8>,
    /// Seqno at which each message was reported or delivered; 0 for none yet.
    seqnos: Messages<Seqno>,
    keeping: Keeping,
    marks: MarkTable,
    before_promise: AcceptedBeforePromise,
    rule: Rule,
    states: Table<EpochState>,
    /// Epoch of each life's watermarks.
    epochs: Table<Option<Epoch>>,
    lives: u32,
    checked: u64,
}

impl AcknowledgedDurable {
    pub(super) fn new(terms: &GroupTerms) -> AcknowledgedDurable {
        AcknowledgedDurable {
            resilience: terms.config.resilience,
            asked: Messages::default(),
            seqnos: Messages::default(),
            keeping: Keeping::default(),
            marks: MarkTable::default(),
            before_promise: AcceptedBeforePromise::default(),
            rule: Rule::new(terms.config.quorum.clone()),
            states: Table::default(),
            epochs: Table::default(),
            lives: 0,
            checked: 0,
        }
    }

    /// Takes note of a message's seqno, and reports a violation if it was another before.
    #[inline(always)]
    fn check_seqno(
        &mut self,
        record: &Record,
        sender: Life,
        number: u64,
        seqno: Seqno,
    ) -> Result<(), Violation> {
        if let Some(reported) = self.seqnos.at(sender, number) {
            let known = std::mem::replace(reported, seqno);
            if known != 0 && known != seqno {
                return broken(self, record, || format!("it was reported or delivered at {known}"));
            }
        }
        Ok(())
    }

    /// True if r + 1 members of the view below the seqno are among the holders, or if that view is not known.
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
        let state = self.states.at(epoch);
        let is_passed = start.is_some() && seqno <= state.known + 1;
        if !is_passed || !Self::enough(&facts.views, epoch, seqno, resilience, held) {
            let holders = (0..self.lives).map(Life).filter(|life| held(*life)).collect();
            state.undecided.push(Undecided { record: record.clone(), seqno, resilience, holders, is_passed });
            if is_passed {
                self.settle(epoch, |_| false, facts)?;
            }
        }
        if is_passed { self.keep(record, epoch, seqno, resilience, facts) } else { Ok(()) }
    }

    /// Checks that every later log keeps it. The view below it is known, or will not be known better.
    fn keep(
        &mut self,
        record: &Record,
        epoch: Epoch,
        seqno: Seqno,
        resilience: u8,
        facts: &Facts,
    ) -> Result<(), Violation> {
        if !self.rule.intersects() && !self.before_promise.accepted(record.life, epoch, seqno) {
            return Ok(());
        }
        let Some(view) = facts.views.at(epoch, seqno.saturating_sub(1)) else { return Ok(()) };
        match self.keeping.seen(epoch, seqno, Durability::Resilience(resilience), view) {
            Some(start) => broken(self, record, || format!("the reset at {start} lost it")),
            None => Ok(()),
        }
    }

    /// Takes note that a life prepared or entered a possible successor of an epoch.
    fn expect(&mut self, epoch: Epoch, next: Epoch, at: Time) {
        let may_follow = &mut self.states.at(epoch).may_follow;
        if may_follow.iter().all(|(known, _)| *known != next) {
            may_follow.push((next, at));
        }
    }

    /// True if an epoch that keeps this seqno had been decided by the time of `record`.
    fn kept_by_decision(&self, epoch: Epoch, seqno: Seqno, record: &Record, facts: &Facts) -> bool {
        let keep = |next: &&Epoch| facts.lineage.keeps(**next, epoch, seqno);
        facts.lineage.children(epoch).iter().filter(keep).any(|next| {
            let Some(state) = self.states.get(*next) else { return false };
            if state.begun.is_some_and(|at| at <= record.at) {
                return true;
            }
            let start = facts.lineage.start(*next).unwrap_or(0);
            let Some(view) = facts.views.at(epoch, start.saturating_sub(1)) else { return true };
            let by_then = |ballot| {
                let same = state.prepared.iter().filter(move |(b, _, at)| *b == ballot && *at <= record.at);
                // The member that decides may prepare within the same input.
                same.map(|(_, life, _)| *life).chain([record.life]).collect::<Vec<_>>()
            };
            state.prepared.iter().any(|(ballot, ..)| self.rule.met(&by_then(*ballot), view))
        })
    }

    /// True if an epoch that a life had prepared or entered by then may have been decided, although no application
    /// has received its reset. Where quorums intersect, this ends when an application receives another decision.
    fn may_be_kept_by_decision(&self, epoch: Epoch, record: &Record, facts: &Facts) -> bool {
        let children = facts.lineage.children(epoch);
        let is_untold = |next| facts.lineage.start(next).is_none();
        let may_follow = self.states.get(epoch).map_or(&[][..], |state| &state.may_follow);
        (children.is_empty() || !self.rule.intersects())
            && may_follow.iter().any(|(next, since)| *since <= record.at && is_untold(*next))
    }

    /// Checks the undecided reports of an epoch again, after some stream has passed the seqnos for which `has_passed`
    /// is true.
    #[inline(never)]
    fn settle(
        &mut self,
        epoch: Epoch,
        has_passed: impl Fn(Seqno) -> bool,
        facts: &Facts,
    ) -> Result<(), Violation> {
        let Some(start) = facts.lineage.start(epoch) else { return Ok(()) };
        let mut settled = Ok(());
        let mut undecided = std::mem::take(&mut self.states.at(epoch).undecided);
        undecided.retain_mut(|case| {
            case.is_passed |= has_passed(case.seqno);
            let Undecided { record, seqno, resilience, holders, is_passed } = case;
            if *seqno < start || settled.is_err() {
                return false;
            }
            if *is_passed {
                settled = self.keep(record, epoch, *seqno, *resilience, facts);
            }
            let held = |life| holders.contains(life);
            if !*is_passed || Self::enough(&facts.views, epoch, *seqno, *resilience, held) {
                return !*is_passed;
            }
            if self.may_be_kept_by_decision(epoch, record, facts) {
                return true;
            }
            if settled.is_ok() && !self.kept_by_decision(epoch, *seqno, record, facts) {
                let holders: Vec<_> = (0..self.lives).map(Life).filter(|life| held(*life)).collect();
                settled = broken(self, record, || {
                    format!("seqno {seqno} was held only by {holders:?}, with resilience {resilience}")
                });
            }
            false
        });
        self.states.at(epoch).undecided = undecided;
        settled
    }

    /// Takes note that a life received the event at `last`. Everything before it, back to where its stream began, is
    /// known.
    #[inline(always)]
    fn pass(&mut self, stream: &Stream, last: Seqno, facts: &Facts) -> Result<(), Violation> {
        let Some(epoch) = stream.epoch else { return Ok(()) };
        let state = self.states.at(epoch);
        if stream.entered <= state.known + 1 {
            state.known = state.known.max(last);
        }
        if state.undecided.is_empty() {
            return Ok(());
        }
        self.settle(epoch, |seqno| has_passed(stream, last, seqno), facts)
    }
}

/// True if a stream that is at `last` began below a seqno and has passed it.
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
            | if self.rule.intersects() { 0 } else { AcceptedBeforePromise::KINDS }
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
                self.check_seqno(record, record.life, *number, *seqno)?;
                let epoch = facts.epoch(record.life);
                return epoch.map_or(Ok(()), |epoch| self.report(record, epoch, *seqno, facts));
            }
            What::SendResult { .. } => {}
            What::Delivered { seqno, sender, number, .. } => {
                self.check_seqno(record, *sender, *number, *seqno)?;
                return self.pass(facts.stream(record.life), *seqno, facts);
            }
            What::Started { .. } => {
                self.lives = self.lives.max(record.life.0 + 1);
                self.rule.follow(record);
            }
            What::ForceAsked { .. } => self.rule.follow(record),
            What::Stored { .. } => self.marks.follow(record),
            What::Prepared { epoch, preparation } => {
                let prepared = &mut self.states.at(preparation.next).prepared;
                prepared.push((preparation.ballot, record.life, record.at));
                self.expect(*epoch, preparation.next, record.at);
            }
            What::Accepted { .. } | What::Promised { .. } => self.before_promise.follow(record),
            What::EpochBegun { epoch } => {
                self.states.at(*epoch).begun.get_or_insert(record.at);
                let before = self.epochs.at(record.life).replace(*epoch);
                if let Some(before) = before.filter(|before| before != epoch) {
                    self.expect(before, *epoch, record.at);
                }
            }
            What::Reset(reset) => {
                let stream = facts.before();
                let (child, members) = (reset.view.epoch, &reset.view.members);
                let lost =
                    stream.epoch.and_then(|epoch| self.keeping.ended(epoch, child, reset.seqno, members));
                if let Some(lost) = lost {
                    return broken(self, record, || {
                        format!("seqno {lost} was reported ok and is lost, though its resilience covers it")
                    });
                }
                self.pass(stream, reset.seqno.saturating_sub(1), facts)?;
                let known = &mut self.states.at(child).known;
                *known = reset.seqno.max(*known);
                return self.settle(child, |seqno| seqno <= reset.seqno + 1, facts);
            }
            _ => {}
        }
        Ok(())
    }

    fn finish(&mut self, _: &End, facts: &Facts) -> Result<(), Violation> {
        let streams: Vec<_> = (0..self.lives).map(|life| facts.stream(Life(life))).collect();
        let epochs = (0..).map(Epoch).zip(self.states.iter());
        let open: Vec<_> =
            epochs.filter(|(_, state)| !state.undecided.is_empty()).map(|(epoch, _)| epoch).collect();
        open.into_iter().try_for_each(|epoch| {
            let there = || streams.iter().filter(|stream| stream.epoch == Some(epoch));
            let any_passed = |seqno| there().any(|stream| has_passed(stream, stream.last, seqno));
            self.settle(epoch, any_passed, facts)?;
            // No application has received everything below what is left.
            let left = std::mem::take(&mut self.states.at(epoch).undecided);
            left.iter()
                .try_for_each(|case| self.keep(&case.record, epoch, case.seqno, case.resilience, facts))
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
    use crate::properties::streams::SEQUENCED;
    use crate::record::Preparation;
    use unisono_core::{Quorum, Uid};

    fn check(fixture: &Fixture) -> Result<u64, Violation> {
        fixture.check(AcknowledgedDurable::new(&fixture.terms))
    }

    /// Life 0 numbers life 1's message, `holders` store it, and it is reported.
    fn reported(resilience: u8, holders: &[u32]) -> Fixture {
        let mut fixture = Fixture::of(4, resilience);
        let number = fixture.send(Life(1));
        let seqno = fixture.order(Life(1), number);
        holders.iter().for_each(|life| fixture.store(Life(*life), seqno));
        fixture.accept(Life(1), seqno);
        fixture
    }

    #[test]
    fn accepts_a_message_with_enough_holders() {
        assert!(check(&reported(1, &[1])).unwrap() > 0);
        assert!(check(&reported(2, &[1, 3])).unwrap() > 0);
        assert!(check(&reported(0, &[1])).unwrap() > 0);
    }

    #[test]
    fn accepts_a_message_kept_by_a_reset() {
        let mut fixture = Fixture::of(3, 2);
        let number = fixture.send(Life(1));
        let seqno = fixture.order(Life(1), number);
        fixture.store(Life(1), seqno);
        fixture.crash(Life(0));
        fixture.reset(&[Life(1), Life(2)]);
        assert!(check(&fixture).unwrap() > 0);
    }

    fn is_result(record: &Record) -> bool {
        matches!(record.what, What::SendResult { .. })
    }

    /// Moves the last report to just after the last record that `pick` accepts.
    fn report_after(fixture: &mut Fixture, pick: impl Fn(&Record) -> bool) {
        let report = fixture.position(is_result);
        let mut report = fixture.records.remove(report);
        let before = fixture.position(pick);
        report.at = fixture.records[before].at;
        fixture.records.insert(before + 1, report);
    }

    #[test]
    fn accepts_a_message_of_an_excluded_sender_that_a_decision_keeps() {
        let mut fixture = Fixture::of(5, 4);
        fixture.crash(Life(4));
        let number = fixture.send(Life(3));
        let seqno = fixture.order(Life(3), number);
        fixture.store(Life(3), seqno);
        fixture.reset(&[Life(0), Life(1), Life(2)]);
        fixture.last(is_result).what = What::SendResult { number, outcome: Outcome::Ok { seqno } };
        fixture.record(Life(3), What::Delivered { seqno, sender: Life(3), number, hash: 1_004 });
        let mut not_received = fixture.clone();
        not_received.records.retain(|record| record.what.kind() != Kind::Reset);
        for mut fixture in [fixture, not_received] {
            assert!(check(&fixture).is_ok());
            // Before any decision the report is false, even if its sender learns of the decision later.
            report_after(&mut fixture, |r| {
                r.life == Life(3) && r.what == What::Stored { epoch: Epoch(0), through: seqno }
            });
            assert!(check(&fixture).is_err());
        }
    }

    /// Life 3 alone prepares a reset, which is never decided.
    fn abandoned() -> Fixture {
        let mut fixture = Fixture::of(4, 2);
        let ballot = Ballot { round: 0, coordinator: Uid(3) };
        let preparation = Box::new(Preparation { ballot, next: Epoch(9), start: fixture.end() + 1 });
        fixture.record(Life(3), What::Promised { epoch: Epoch(0), ballot });
        fixture.record(Life(3), What::Prepared { epoch: Epoch(0), preparation });
        fixture.crash(Life(3));
        fixture
    }

    #[test]
    fn an_abandoned_proposal_excuses_nothing_in_later_epochs() {
        let mut fixture = abandoned();
        fixture.reset(&[Life(0), Life(1), Life(2)]);
        fixture.message(Life(1));
        assert!(check(&fixture).is_ok());
        let seqno = fixture.end();
        report_after(&mut fixture, |r| matches!(r.what, What::Numbered { to, .. } if to == seqno));
        assert!(check(&fixture).is_err());
    }

    #[test]
    fn an_abandoned_proposal_excuses_nothing_when_another_was_decided() {
        let mut fixture = abandoned();
        let number = fixture.send(Life(1));
        let seqno = fixture.order(Life(1), number);
        fixture.reset(&[Life(0), Life(1), Life(2)]);
        assert!(check(&fixture).is_ok());
        report_after(&mut fixture, |r| matches!(r.what, What::Numbered { to, .. } if to == seqno));
        assert!(check(&fixture).is_err());
    }

    /// Life 1 learns that a reset without it keeps its message. Life 0 decided that reset within one input.
    fn kept_by_a_decision_of_one() -> Fixture {
        let mut fixture = Fixture::found(2, Quorum::AtLeast(1));
        (0..2).for_each(|_| _ = fixture.join());
        let number = fixture.send(Life(1));
        let seqno = fixture.order(Life(1), number);
        fixture.store(Life(1), seqno);
        fixture.reset(&[Life(0)]);
        fixture.records.retain(|record| record.what.kind() != Kind::Prepared);
        let received =
            fixture.last(|record| record.life == Life(1) && matches!(record.what, What::SendResult { .. }));
        received.what = What::SendResult { number, outcome: Outcome::Ok { seqno } };
        fixture
    }

    #[test]
    fn accepts_a_message_kept_by_an_epoch_that_a_member_has_entered() {
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
        fixture.record(Life(2), What::Reset(reset));
        assert!(check(&fixture).is_ok());
        // Had life 1 known before its promise that the message is accepted, life 2 could not go on without it.
        let promise = fixture.position(|record| matches!(record.what, What::Promised { .. }));
        let accepted = What::Accepted { epoch: Epoch(0), through: seqno };
        let accepted = Record { life: Life(1), what: accepted, ..fixture.records[promise].clone() };
        fixture.records.insert(promise, accepted);
        assert!(check(&fixture).is_err());
    }

    /// Life 2 goes on alone. The others, and three joiners that life 2 does not know, hold a message that is reported.
    #[test]
    fn an_earlier_reset_owes_a_message_by_the_view_in_which_it_was_numbered() {
        for (late, asked) in [(false, 3), (true, 3)] {
            let mut fixture = Fixture::found(1, Quorum::AtLeast(1));
            (0..2).for_each(|_| _ = fixture.join());
            let mut apart = fixture.clone();
            apart.split_off(&[Life(2)]);
            if !late {
                fixture = apart.clone();
            }
            (0..3).for_each(|_| _ = fixture.join());
            let number = fixture.send_resilient(Life(0), asked);
            fixture.order(Life(0), number);
            fixture.deliver_all();
            if late {
                let reset =
                    apart.records.into_iter().filter(|r| r.life == Life(2) && r.what.kind() == Kind::Reset);
                fixture.records.extend(reset);
            }
            assert!(check(&fixture).is_ok(), "late: {late}");
        }
    }

    #[test]
    fn rejects_a_report_with_one_holder_less() {
        let fixture = reported(2, &[1]);
        assert!(check(&fixture).is_err());
    }

    #[test]
    fn rejects_a_report_with_a_holder_outside_the_view() {
        let mut fixture = Fixture::of(3, 1);
        let (one, two) = (fixture.send(Life(0)), fixture.send(Life(0)));
        fixture.order(Life(0), one);
        let joiner = fixture.join();
        fixture.order(Life(0), two);
        fixture.deliver_all();
        assert!(check(&fixture).is_ok());
        // Besides the sequencer, only the joiner held the first message then, and it is not in the view below that
        // message.
        let stored = |record: &Record| {
            matches!(record.what, What::Stored { .. }) && record.life != joiner && record.life != Life(0)
        };
        fixture.records.retain(|record| !stored(record));
        assert!(check(&fixture).is_err());
    }

    /// Applications receive joins and resets only after life 0 has received *ok*.
    fn receive_late(fixture: &mut Fixture) {
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
    fn checks_by_what_was_true_though_applications_learn_it_later() {
        let mut joined = Fixture::found(1, Quorum::MajorityOfView);
        joined.join();
        let mut reset = Fixture::of(3, 1);
        reset.reset(&[Life(0), Life(1), Life(2)]);
        for mut fixture in [joined, reset] {
            let seqno = fixture.message(Life(0));
            receive_late(&mut fixture);
            assert!(check(&fixture).is_ok());
            report_after(&mut fixture, |r| matches!(r.what, What::Numbered { to, .. } if to == seqno));
            assert!(check(&fixture).is_err());
        }
    }

    #[test]
    fn accepts_a_message_of_the_last_member_though_a_joiner_did_not_see_the_leave() {
        let mut fixture = Fixture::of(2, 1);
        fixture.leave(Life(1));
        let number = fixture.send(Life(0));
        fixture.order(Life(0), number);
        fixture.join();
        fixture.message(Life(0));
        fixture.deliver_all();
        // The applications of lives 0 and 1 have not received the leave yet.
        let taken = |record: &Record| record.life < Life(2) && SEQUENCED & record.what.kind().bit() != 0;
        fixture.records.retain(|record| record.what.kind() == Kind::Entered || !taken(record));
        assert!(check(&fixture).is_ok());
    }

    #[test]
    fn rejects_a_reset_that_loses_it() {
        let mut fixture = reported(1, &[1]);
        fixture.crash(Life(0));
        fixture.crash(Life(1));
        let mut received = fixture.clone();
        received.reset(&[Life(2), Life(3)]);
        assert!(check(&received).is_ok(), "two members are missing, and the event says degraded");
        let mut fixture = reported(1, &[1]);
        fixture.crash(Life(1));
        fixture.reset(&[Life(2), Life(3), Life(0)]);
        assert!(check(&fixture).is_ok(), "life 0 holds the message");
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
    fn rejects_another_seqno_than_the_others_deliver() {
        for (back, is_good) in [(0, true), (1, false)] {
            let mut fixture = Fixture::of(3, 1);
            fixture.message(Life(2));
            let number = fixture.send(Life(1));
            let seqno = fixture.order(Life(1), number);
            fixture.store(Life(1), seqno);
            fixture
                .record(Life(1), What::SendResult { number, outcome: Outcome::Ok { seqno: seqno - back } });
            fixture.crash(Life(1));
            fixture.deliver_all();
            assert_eq!(check(&fixture).is_ok(), is_good);
        }
    }

    #[test]
    fn rejects_another_seqno_than_the_delivered_one() {
        let mut fixture = reported(1, &[1]);
        if let What::SendResult { outcome, .. } =
            &mut fixture.last(|record| matches!(record.what, What::SendResult { .. })).what
        {
            *outcome = Outcome::Ok { seqno: 2 };
        }
        assert!(check(&fixture).is_err());
    }
}

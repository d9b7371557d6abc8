//! G10, acknowledged is durable: a message reported *ok* with a seqno is stored and delivered at that seqno. At the time
//! of the report, as many members of the view below it have held it as its quality asks. The message is in the log of
//! every later view, unless more members of that view are missing than its quality covers. No two logs of an epoch have
//! different messages at one seqno.
//!
//! Exception, for a reset: a message that a decided reset keeps needs no such holders, since a quorum holds the
//! reset. This includes a message whose sender learned from the decision that it is excluded and that its message is
//! kept. Under *at least n* this binds only the members that went on by that decision.
//!
//! A group whose quorums need not intersect takes no message that a majority, or all, must hold: no quorum keeps it.

use super::keeping::{Keeping, durability, holders_asked, is_kept};
use super::quorum::Rule;
use super::streams::{AcceptedBeforePromise, MarkTable, Messages};
use super::tables::{NumberTable, Table};
use super::{Facts, GroupTerms, Property, Violation, broken};
use crate::record::{Entry, Epoch, Kind, Life, Record, What};
use unisono_core::{Outcome, Quality, Seqno};

/// The checker of `acknowledged_durable`.
#[derive(Debug)]
pub(super) struct AcknowledgedDurable {
    resilience: u8,
    /// False if a majority of a view need not meet the quorum of a later one.
    takes_majorities: bool,
    asked: Messages<Quality>,
    /// By epoch, the message stored at each seqno: its sender and number.
    stored: Table<NumberTable<Option<(Life, u64)>>>,
    keeping: Keeping,
    marks: MarkTable,
    before_promise: AcceptedBeforePromise,
    rule: Rule,
    checked: u64,
}

impl AcknowledgedDurable {
    pub(super) fn new(terms: &GroupTerms) -> AcknowledgedDurable {
        AcknowledgedDurable {
            resilience: terms.config.resilience,
            takes_majorities: terms.config.quorums_intersect(),
            asked: Messages::default(),
            stored: Table::default(),
            keeping: Keeping::default(),
            marks: MarkTable::default(),
            before_promise: AcceptedBeforePromise::default(),
            rule: Rule::new(terms.config.quorum.clone()),
            checked: 0,
        }
    }

    /// Reports a violation if the logs of this epoch have something else than this message at its seqno.
    #[inline(always)]
    fn check_seqno(
        &self,
        record: &Record,
        epoch: Epoch,
        seqno: Seqno,
        message: (Life, u64),
        facts: &Facts,
    ) -> Result<(), Violation> {
        let lineage = &facts.entries.lineage;
        let is_of = |epoch: &Epoch| lineage.first(*epoch).is_none_or(|first| first <= seqno);
        let stored = lineage.line(epoch).find(is_of).and_then(|epoch| self.stored.get(epoch)?.get(seqno));
        if stored == Some(&Some(message)) {
            return Ok(());
        }
        broken(self, record, || format!("{:?} is stored there", stored.copied().flatten()))
    }

    fn report(&mut self, record: &Record, number: u64, seqno: Seqno, facts: &Facts) -> Result<(), Violation> {
        let Some(epoch) = facts.epoch(record.life) else { return Ok(()) };
        self.check_seqno(record, epoch, seqno, (record.life, number), facts)?;
        let (lineage, views) = (&facts.entries.lineage, &facts.entries.views);
        // A message below the beginning of the epoch is kept by the reset.
        let Some(view) = views.at(epoch, seqno.saturating_sub(1)) else { return Ok(()) };
        let quality = self.asked.get(record.life, number).copied().unwrap_or_default();
        let holders = || view.iter().filter(|life| self.marks.held(**life, epoch, seqno, lineage));
        let needed = holders_asked(quality, self.resilience, view.len());
        if holders().take(needed).count() < needed && !is_kept(&self.rule, record.life, epoch, seqno, facts) {
            return broken(self, record, || {
                let holders: Vec<_> = holders().collect();
                format!("it was held only by {holders:?} of {view:?}, and is {quality}")
            });
        }
        if !self.rule.intersects() && !self.before_promise.accepted(record.life, epoch, seqno) {
            return Ok(());
        }
        let durability = durability(quality, self.resilience, view.len(), self.rule.intersects());
        match self.keeping.seen(epoch, seqno, durability, view) {
            Some(start) => broken(self, record, || format!("the reset at {start} lost it")),
            None => Ok(()),
        }
    }
}

impl Property for AcknowledgedDurable {
    fn name(&self) -> &'static str {
        "acknowledged_durable"
    }

    fn interests(&self) -> u64 {
        Kind::Sent.bit()
            | Kind::SendResult.bit()
            | Kind::Delivered.bit()
            | Kind::Stored.bit()
            | Kind::Tail.bit()
            | Rule::FOLLOWED
            | if self.rule.intersects() { 0 } else { AcceptedBeforePromise::KINDS }
    }

    #[inline(always)]
    fn observe(&mut self, record: &Record, facts: &Facts) -> Result<(), Violation> {
        match &record.what {
            What::Sent { quality: quality @ (Quality::MAJORITY | Quality::TOTAL), .. }
                if !self.takes_majorities =>
            {
                return broken(self, record, || format!("no quorum of this group keeps what is {quality}"));
            }
            What::Sent { number, quality, .. } => {
                if *quality != Quality::ORDERED
                    && let Some(asked) = self.asked.at(record.life, *number)
                {
                    *asked = *quality;
                }
            }
            What::SendResult { number, outcome: Outcome::Ok { seqno } } => {
                self.checked += 1;
                return self.report(record, *number, *seqno, facts);
            }
            What::Delivered { seqno, sender, number, .. } => {
                let epoch = facts.place(record.life, *seqno);
                let check = |epoch| self.check_seqno(record, epoch, *seqno, (*sender, *number), facts);
                return epoch.map_or(Ok(()), check);
            }
            What::Stored { epoch, through, entry } => {
                self.marks.follow(record);
                match entry {
                    Entry::Message { sender, number } => {
                        if let Some(stored) = self.stored.at(*epoch).at(*through) {
                            let known = *stored.get_or_insert((*sender, *number));
                            if known != (*sender, *number) {
                                return broken(self, record, || {
                                    format!("{known:?} is stored there elsewhere")
                                });
                            }
                        }
                    }
                    Entry::Reset(view) => {
                        let before = facts.entries.epoch_before(record.life);
                        let first = facts.entries.lineage.first(*epoch).unwrap_or(*through);
                        let lost =
                            before.and_then(|before| self.keeping.ended(before, *epoch, first, &view.0));
                        if let Some(lost) = lost {
                            return broken(self, record, || {
                                format!(
                                    "seqno {lost} was reported ok and is lost, though its quality covers it"
                                )
                            });
                        }
                    }
                    _ => {}
                }
            }
            What::Tail { epoch, seqno, sender, number } => {
                if let Some(stored) = self.stored.at(*epoch).at(*seqno) {
                    let known = *stored.get_or_insert((*sender, *number));
                    if known != (*sender, *number) {
                        return broken(self, record, || format!("{known:?} is kept there elsewhere"));
                    }
                }
            }
            What::Accepted { .. } | What::Promised { .. } => self.before_promise.follow(record),
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
    use crate::properties::fixture::{Fixture, delivery};
    use crate::properties::streams::SEQUENCED;
    use crate::record::{Members, Preparation};
    use unisono_core::{Ballot, Quorum, Uid};

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
    fn rejects_a_majority_where_quorums_need_not_intersect() {
        for (least, is_refused) in [(3, false), (1, true)] {
            let mut fixture = Fixture::of(4, 0);
            (fixture.terms.config.quorum, fixture.terms.config.members_max) = (Quorum::AtLeast(least), 4);
            for quality in [Quality::MAJORITY, Quality::TOTAL] {
                let mut fixture = fixture.clone();
                fixture.send_with(Life(1), quality);
                assert_eq!(check(&fixture).is_err(), is_refused, "at least {least}, {quality}");
            }
        }
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
                r.life == Life(3) && matches!(r.what, What::Stored { through, .. } if through == seqno)
            });
            assert!(check(&fixture).is_err());
        }
    }

    /// Life 3 alone prepares a reset, which is never decided.
    fn abandoned() -> Fixture {
        let mut fixture = Fixture::of(4, 2);
        let ballot = Ballot { round: 0, coordinator: Uid(3) };
        let (keep, start) = (fixture.end(), fixture.end() + 1);
        let preparation = Box::new(Preparation { ballot, next: Epoch(9), keep, start });
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
        let (epoch, entry) = (Epoch(2), Entry::Reset(Box::new(Members(vec![Life(2)]))));
        fixture.record(Life(2), What::EpochBegun { epoch });
        fixture.record(Life(2), What::Stored { epoch, through: seqno, entry });
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
            let common = apart.records.len();
            apart.split_off(&[Life(2)]);
            if !late {
                fixture = apart.clone();
            }
            (0..3).for_each(|_| _ = fixture.join());
            let number = fixture.send_resilient(Life(0), asked);
            fixture.order(Life(0), number);
            fixture.deliver_all();
            if late {
                fixture.records.extend(apart.records.split_off(common));
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
            if let What::Stored { through, entry: Entry::Reset(_), .. } = &mut record.what {
                *through -= 1;
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

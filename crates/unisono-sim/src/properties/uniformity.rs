//! G9, uniformity: every event that any member delivered, crashed and excluded members included, is in the log with
//! which the others go on, as long as no more members are missing than the message's quality covers. If more than
//! r members are missing and r > 0, the reset event says *degraded*; otherwise it does not. Joins and leaves are kept
//! however many members are missing.
//!
//! For *degraded* a member is missing if it is in the view at the end of the log with which the next epoch begins, and
//! not in the next view. For an event it is missing if it is in the view just below the event, and not in the next
//! view. Under *at least n* below a majority, quorums need not intersect. Joins and leaves are then kept under
//! the same conditions as messages. What a decision revealed to a member, a leaver included, binds only the line of
//! that decision.

use super::keeping::{Durability, Keeping, durability, missing};
use super::streams::{AcceptedBeforePromise, Messages, SEQUENCED};
use super::{Facts, GroupTerms, Property, Violation, broken};
use crate::record::{Kind, Record, What};
use unisono_core::{Quality, Quorum};

/// The checker of `uniformity`.
#[derive(Debug)]
pub(super) struct Uniformity {
    resilience: u8,
    changes: Durability,
    /// True if quorums intersect, so that there is one line of views.
    is_single: bool,
    before_promise: AcceptedBeforePromise,
    /// What each message asks for.
    asked: Messages<Quality>,
    keeping: Keeping,
    checked: u64,
}

impl Uniformity {
    pub(super) fn new(terms: &GroupTerms) -> Uniformity {
        let resilience = terms.config.resilience;
        let changes = match terms.config.quorum {
            Quorum::AtLeast(_) => Durability::Resilience(resilience),
            _ => Durability::Quorum,
        };
        Uniformity {
            resilience,
            changes,
            is_single: changes == Durability::Quorum,
            before_promise: AcceptedBeforePromise::default(),
            asked: Messages::default(),
            keeping: Keeping::default(),
            checked: 0,
        }
    }

    fn check_event(&mut self, record: &Record, facts: &Facts) -> Result<(), Violation> {
        let (seqno, durability, stream) = match &record.what {
            What::Delivered { seqno, sender, number, .. } => {
                let asked = self.asked.get(*sender, *number).copied().unwrap_or_default();
                let stream = facts.stream(record.life);
                let members = stream.view.len();
                (*seqno, durability(asked, self.resilience, members, self.is_single), stream)
            }
            What::HandedOver { seqno, .. } => {
                (*seqno, Durability::Resilience(self.resilience), facts.before())
            }
            What::Joined { seqno, .. } | What::Left { seqno, .. } | What::OrderChanged { seqno, .. } => {
                (*seqno, self.changes, facts.before())
            }
            _ => return Ok(()),
        };
        self.checked += 1;
        let epoch = match &record.what {
            What::Delivered { seqno, .. } => facts.place(record.life, *seqno),
            _ => stream.epoch,
        };
        let Some(epoch) = epoch else { return Ok(()) };
        if !self.is_single && !self.before_promise.accepted(record.life, epoch, seqno) {
            return Ok(());
        }
        match self.keeping.seen(epoch, seqno, durability, &stream.view) {
            Some(start) => broken(self, record, || {
                format!("the reset at {start} lost seqno {seqno}, which it had to keep")
            }),
            None => Ok(()),
        }
    }
}

impl Property for Uniformity {
    fn name(&self) -> &'static str {
        "uniformity"
    }

    fn interests(&self) -> u64 {
        SEQUENCED | Kind::Sent.bit() | if self.is_single { 0 } else { AcceptedBeforePromise::KINDS }
    }

    #[inline(always)]
    fn observe(&mut self, record: &Record, facts: &Facts) -> Result<(), Violation> {
        match &record.what {
            What::Accepted { .. } | What::Promised { .. } => self.before_promise.follow(record),
            What::Sent { number, quality, .. } => {
                if *quality != Quality::ORDERED
                    && let Some(asked) = self.asked.at(record.life, *number)
                {
                    *asked = *quality;
                }
            }
            What::Reset(reset) => {
                self.checked += 1;
                let stream = facts.before();
                let missing = missing(&stream.view, &reset.view.members);
                let beyond = self.resilience > 0 && missing > usize::from(self.resilience);
                if beyond != reset.degraded {
                    return broken(self, record, || {
                        format!(
                            "{missing} members are missing, and the event says degraded = {}",
                            reset.degraded
                        )
                    });
                }
                let (child, members) = (reset.view.epoch, &reset.view.members);
                let first = facts.entries.lineage.first(child).unwrap_or(reset.seqno);
                let lost = stream.epoch.and_then(|epoch| self.keeping.ended(epoch, child, first, members));
                if let Some(lost) = lost {
                    return broken(self, record, || {
                        format!("seqno {lost} was delivered and is lost, though its quality covers it")
                    });
                }
            }
            _ => self.check_event(record, facts)?,
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
    use crate::record::{Epoch, Life};
    use unisono_core::{Ballot, Uid};

    /// Life 0 numbers a message, `holders` store it, life 0 delivers it, then the lives `gone` crash.
    fn lost(resilience: u8, holders: &[u32], gone: &[u32]) -> Fixture {
        let mut fixture = Fixture::of(4, resilience);
        let number = fixture.send(Life(0));
        let seqno = fixture.order(Life(0), number);
        holders.iter().for_each(|life| fixture.store(Life(*life), seqno));
        fixture.accept(Life(0), seqno);
        gone.iter().for_each(|life| fixture.crash(Life(*life)));
        let rest = fixture.alive();
        fixture.reset(&rest);
        fixture.message(rest[0]);
        fixture
    }

    fn check(fixture: &Fixture) -> Result<u64, Violation> {
        fixture.check(Uniformity::new(&fixture.terms))
    }

    #[test]
    fn accepts_a_message_kept_by_its_resilience() {
        assert!(check(&lost(1, &[1], &[0])).unwrap() > 0);
        assert!(check(&lost(2, &[1, 2], &[0, 1])).unwrap() > 0);
    }

    #[test]
    fn accepts_reported_loss_beyond_resilience() {
        assert!(check(&lost(1, &[3], &[0, 3])).is_ok());
    }

    #[test]
    fn accepts_loss_without_resilience() {
        assert!(check(&lost(0, &[], &[0])).is_ok());
    }

    #[test]
    fn under_at_least_a_decision_binds_its_own_line_only() {
        for is_accepted_before in [false, true] {
            let mut fixture = Fixture::found(3, Quorum::AtLeast(1));
            (0..3).for_each(|_| _ = fixture.join());
            let number = fixture.send(Life(0));
            let seqno = fixture.order(Life(0), number);
            fixture.reset(&[Life(1), Life(2), Life(3)]);
            // Life 0 goes on without the others, and keeps a message that they lack.
            if is_accepted_before {
                fixture.record(Life(0), What::Accepted { epoch: Epoch(0), through: seqno });
            }
            fixture.record(Life(0), What::EpochBegun { epoch: Epoch(2) });
            fixture.record(Life(0), What::Accepted { epoch: Epoch(2), through: seqno + 1 });
            fixture.record(Life(0), What::Delivered { seqno, sender: Life(0), number, hash: 1 });
            assert_eq!(check(&fixture).is_err(), is_accepted_before);
        }
    }

    #[test]
    fn under_at_least_what_a_leaver_learns_from_a_decision_binds_its_own_line_only() {
        for knows_from_decision in [true, false] {
            let mut fixture = Fixture::found(1, Quorum::AtLeast(1));
            (0..2).for_each(|_| _ = fixture.join());
            let number = fixture.send(Life(0));
            let seqno = fixture.order(Life(0), number);
            let mut apart = fixture.clone();
            fixture.reset(&[Life(1), Life(2)]);
            // Life 0 is leaving in the other line, and has learned from its decision what that line keeps.
            if knows_from_decision {
                let ballot = Ballot { round: 1, coordinator: Uid(0) };
                fixture.record(Life(0), What::Promised { epoch: Epoch(0), ballot });
            }
            let known = apart.records.len();
            apart.accept(Life(0), seqno);
            fixture.records.extend(apart.records.drain(known..));
            assert_eq!(check(&fixture).is_ok(), knows_from_decision);
        }
    }

    /// Life 2 goes on alone. The others, and three joiners that life 2 does not know, deliver a message.
    fn later_view(asked: u8) -> Fixture {
        let mut fixture = Fixture::found(1, Quorum::AtLeast(1));
        (0..2).for_each(|_| _ = fixture.join());
        fixture.split_off(&[Life(2)]);
        (0..3).for_each(|_| _ = fixture.join());
        let number = fixture.send_resilient(Life(0), asked);
        fixture.order(Life(0), number);
        fixture.deliver_all();
        fixture
    }

    // Of six members, four may hold a message with resilience 3, and none of these is life 2.
    #[test]
    fn an_earlier_reset_owes_a_message_by_the_view_in_which_it_was_numbered() {
        assert!(check(&later_view(3)).is_ok());
        assert!(check(&later_view(5)).is_err());
    }

    #[test]
    fn members_that_left_before_a_message_are_not_missing() {
        let mut fixture = Fixture::found(1, Quorum::AtLeast(1));
        (0..4).for_each(|_| _ = fixture.join());
        fixture.split_off(&[Life(2), Life(3)]);
        [4, 1].into_iter().for_each(|life| fixture.leave(Life(life)));
        assert!(check(&fixture).is_ok());
        // Two of lives 0, 2 and 3 hold it, so one of those that went on alone does.
        fixture.message(Life(0));
        assert!(check(&fixture).is_err());
    }

    #[test]
    fn rejects_loss_within_resilience() {
        assert!(check(&lost(1, &[], &[0])).is_err());
        assert!(check(&lost(2, &[], &[0, 3])).is_err());
    }

    #[test]
    fn rejects_loss_within_the_resilience_of_one_message() {
        let mut fixture = lost(0, &[], &[0]);
        if let What::Sent { quality, .. } =
            &mut fixture.last(|r| r.life == Life(0) && matches!(r.what, What::Sent { .. })).what
        {
            *quality = Quality::resilient(1);
        }
        assert!(check(&fixture).is_err());
    }

    #[test]
    fn rejects_unreported_loss_and_a_false_report_of_loss() {
        let mut fixture = lost(1, &[3], &[0, 3]);
        for life in [1, 2] {
            change_reset(fixture.last(reset_of(Life(life))), |reset| reset.degraded = false);
        }
        assert!(check(&fixture).is_err());
        let mut fixture = lost(1, &[1], &[0]);
        for life in [1, 2, 3] {
            change_reset(fixture.last(reset_of(Life(life))), |reset| reset.degraded = true);
        }
        assert!(check(&fixture).is_err());
    }

    #[test]
    fn rejects_a_delivery_by_an_excluded_member_after_the_reset() {
        let mut fixture = Fixture::of(4, 1);
        let number = fixture.send(Life(0));
        let seqno = fixture.order(Life(0), number);
        let mut late = fixture.clone();
        fixture.reset(&[Life(1), Life(2), Life(3)]);
        let known = late.records.len();
        late.accept(Life(0), seqno);
        fixture.records.extend(late.records.drain(known..));
        assert!(check(&fixture).is_err());
    }

    #[test]
    fn rejects_a_join_that_is_lost_even_without_resilience() {
        let mut fixture = Fixture::of(3, 0);
        let mut alone = fixture.clone();
        let known = alone.records.len();
        alone.join();
        let seen = |record: &Record| record.life == Life(0) && matches!(record.what, What::Joined { .. });
        fixture.records.extend(alone.records.drain(known..).filter(seen));
        fixture.crash(Life(0));
        fixture.reset(&[Life(1), Life(2)]);
        assert!(check(&fixture).is_err());
    }
}

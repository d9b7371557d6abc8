//! G19, second half: a leaver serves its log until one of these is true. A quorum of the remaining members knows that
//! the leave is accepted. Or such a quorum holds the next join or leave, which is numbered only by a sequencer that
//! knows it. Or a quorum of a later epoch's first view has entered, and this epoch keeps the leave, or is without the
//! leaver, which is excluded then. Or, where quorums need not intersect and the group has split, a quorum of an epoch of another
//! line has entered, and a member of it has told the leaver that its own line is over. Or the leaver has waited for this for seconds. A leaver that parts sooner may leave
//! the others stuck without any crash.
//!
//! The times that count are those at which the member itself knew its leave to be accepted, or the decision of a reset that
//! excludes it, and parted. Its
//! application may receive both later, at once, or never. A leaver that does not know its leave to be accepted may
//! itself be needed for that, so it gives up only after a minute.

use super::entries::Entries;
use super::quorum::Rule;
use super::tables::Table;
use super::{Facts, GroupTerms, Property, Violation, final_result, result};
use crate::record::{End, Entry, Epoch, Kind, Life, Record, What};
use std::time::Duration;
use unisono_core::{Seqno, Time};

/// A leaver that knows its leave to be accepted may part after 2 s: by then no member needs it any more.
const PATIENCE: Duration = Duration::from_secs(2);
/// A leaver that does not know it may itself be needed. It gives up after a minute by its own clock, which may run
/// fast: at least 55 s.
const PATIENCE_UNKNOWING: Duration = Duration::from_secs(55);

/// What is known of one life's leave.
#[derive(Clone, Debug, Default)]
struct Parting {
    asked: Option<Time>,
    /// Time at which it knew the leave to be accepted, or that a reset excludes it.
    known: Option<Time>,
    /// True if it parted too soon, unless its leave is never numbered.
    is_early: bool,
}

/// The checker of `leaver_serves`.
#[derive(Debug)]
pub(super) struct LeaverServes {
    rule: Rule,
    partings: Table<Parting>,
    /// A life that has parted too soon, unless it is told at the same moment that its line is over; and the fault.
    pending: Option<(Life, String)>,
    checked: u64,
}

impl LeaverServes {
    pub(super) fn new(terms: &GroupTerms) -> LeaverServes {
        let rule = Rule::new(terms.config.quorum.clone());
        LeaverServes { rule, partings: Table::default(), pending: None, checked: 0 }
    }

    /// True if a quorum of a later epoch's first view has begun it, without this life or with its leave in the log.
    fn is_settled(&self, life: Life, epoch: Epoch, leave: Option<Seqno>, facts: &Facts) -> bool {
        let Entries { lineage, views, .. } = &facts.entries;
        let is_out = |later: Epoch| {
            let view = lineage.start(later).and_then(|start| views.at(later, start));
            let keeps_leave = leave.is_some_and(|leave| lineage.keeps(later, epoch, leave));
            view.is_some_and(|view| {
                (keeps_leave || !view.contains(&life)) && self.rule.met(facts.entries.begun(later), view)
            })
        };
        lineage.later(epoch).into_iter().any(is_out)
    }

    /// True if this record says that the life is excluded by an epoch of another line, which a quorum of its first view has
    /// begun.
    fn is_excluded_elsewhere(&self, record: &Record, life: Life, facts: &Facts) -> bool {
        let What::Excluded { epoch: Some(other) } = record.what else { return false };
        let Entries { lineage, views, .. } = &facts.entries;
        let own = facts.entries.epoch(life);
        let is_beside = own.is_some_and(|own| {
            let of_line = |later, earlier| lineage.line(later).any(|epoch| epoch == earlier);
            !of_line(own, other) && !of_line(other, own)
        });
        let view = lineage.start(other).and_then(|start| views.at(other, start));
        let is_begun = |view: &[Life]| self.rule.met(facts.entries.begun(other), view);
        record.life == life && is_beside && view.is_some_and(is_begun)
    }

    /// Returns the fault of the life that parted last, unless this record explains it.
    #[cold]
    fn pending_fault(&mut self, record: &Record, facts: &Facts) -> Option<String> {
        let (life, fault) = self.pending.take()?;
        (!self.is_excluded_elsewhere(record, life, facts)).then_some(fault)
    }

    /// Notes the fault of a life that parts, or returns it at once if no other line can tell that life that its own is over.
    fn hold(&mut self, life: Life, fault: Option<String>) -> Option<String> {
        if self.rule.intersects() {
            return fault;
        }
        self.pending = fault.map(|fault| (life, fault));
        None
    }

    /// A life parts. Returns a fault if that is too soon.
    fn part(&mut self, life: Life, now: Time, facts: &Facts) -> Option<String> {
        let parting = self.partings.at(life);
        let asked = parting.asked?;
        self.checked += 1;
        let known = parting.known.map(|known| known + PATIENCE);
        if known.into_iter().chain([asked + PATIENCE_UNKNOWING]).any(|until| until <= now) {
            return None;
        }
        let lineage = &facts.entries.lineage;
        // Another line may have another leave of the same member.
        let leaves = facts.entries.leaves(life);
        let is_own = |(epoch, seqno): &&(Epoch, Seqno)| facts.marks.held(life, *epoch, *seqno, lineage);
        let own = leaves.iter().rev().find(is_own);
        // A member that was excluded may have numbered one last, in an epoch that the others have left.
        let latest = || leaves.iter().max_by_key(|(epoch, _)| *epoch).filter(|_| self.rule.intersects());
        let Some(&(epoch, leave)) = own.or_else(latest) else {
            let epoch = facts.entries.epoch(life);
            let is_out = epoch.is_some_and(|epoch| self.is_settled(life, epoch, None, facts));
            self.partings.at(life).is_early = self.rule.intersects() && !is_out;
            return None;
        };
        let staying = facts.entries.views.at(epoch, leave)?;
        let those = |has: &dyn Fn(Life) -> bool| -> Vec<Life> {
            staying.iter().copied().filter(|life| has(*life)).collect()
        };
        let knowing = those(&|life| {
            let mark = facts.marks.of(life);
            let is_there = |now| now == epoch || lineage.keeps(now, epoch, leave);
            mark.accepted >= leave && mark.epoch.is_some_and(is_there)
        });
        let next = facts.entries.next_view_change(epoch, leave);
        let is_overtaken = next.is_some_and(|next| {
            self.rule.met(&those(&|life| facts.marks.held(life, epoch, next, lineage)), staying)
        });
        let is_settled = self.is_settled(life, epoch, Some(leave), facts);
        let may_go = staying.is_empty() || self.rule.met(&knowing, staying) || is_overtaken || is_settled;
        (!may_go).then(|| format!("only {knowing:?} of {staying:?} knew its leave at {leave} accepted"))
    }
}

impl Property for LeaverServes {
    fn name(&self) -> &'static str {
        "leaver_serves"
    }

    fn interests(&self) -> u64 {
        let known = Kind::LeaveKnown.bit() | Kind::Excluded.bit();
        let parting = Kind::LeaveAsked.bit() | known | Kind::Parted.bit();
        Kind::Stored.bit() | Kind::Started.bit() | parting
    }

    #[inline(always)]
    fn observe(&mut self, record: &Record, facts: &Facts) -> Result<(), Violation> {
        let Record { at, life, .. } = *record;
        if self.pending.is_some()
            && let Some(fault) = self.pending_fault(record, facts)
        {
            return result(self, record, Some(fault));
        }
        let fault = match record.what {
            What::Stored { entry: Entry::Leave(leaver), .. } => {
                let is_early = self.partings.get(leaver).is_some_and(|parting| parting.is_early);
                is_early.then(|| format!("{leaver:?} had parted before"))
            }
            What::Stored { .. } => None,
            What::Parted => {
                let fault = self.part(life, at, facts);
                self.hold(life, fault)
            }
            What::LeaveAsked => {
                self.partings.at(life).asked = Some(at);
                None
            }
            What::LeaveKnown => {
                self.partings.at(life).known = Some(at);
                None
            }
            // A leaver that knows the decision of a reset without it is not needed for the acceptance of its leave.
            What::Excluded { epoch: Some(_) } => {
                self.partings.at(life).known.get_or_insert(at);
                None
            }
            _ => {
                self.rule.follow(record);
                None
            }
        };
        result(self, record, fault)
    }

    fn finish(&mut self, end: &End, _: &Facts) -> Result<(), Violation> {
        let pending = self.pending.take();
        final_result(self, end, pending.map(|(_, fault)| fault))
    }

    fn checked(&self) -> u64 {
        self.checked
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::properties::fixture::Fixture;
    use crate::record::Members;
    use unisono_core::Quorum;

    fn check(fixture: &Fixture) -> Result<u64, Violation> {
        fixture.check(LeaverServes::new(&fixture.terms))
    }

    /// The last of four members leaves, and the members `ignorant` do not know its leave to be accepted when it
    /// parts.
    fn without(ignorant: &[u32]) -> Fixture {
        let mut fixture = Fixture::of(4, 1);
        fixture.leave(Life(3));
        let end = fixture.end();
        fixture.records.retain(|record| {
            let knows = matches!(record.what, What::Accepted { through, .. } if through == end);
            !(knows && ignorant.contains(&record.life.0))
        });
        fixture
    }

    /// Moves the time at which the leaver parts, and its application receives *gone*, to `at`.
    fn parts_at(fixture: &mut Fixture, at: Time) {
        let (gone, parted) = (fixture.records.pop(), fixture.records.pop());
        fixture.records.extend(parted.into_iter().chain(gone).map(|record| Record { at, ..record }));
    }

    #[test]
    fn accepts_a_leaver_that_waits_for_a_quorum() {
        assert_eq!(check(&without(&[])).unwrap(), 1);
        assert!(check(&without(&[2])).is_ok());
    }

    #[test]
    fn rejects_a_leaver_that_parts_when_it_alone_knows() {
        assert!(check(&without(&[0, 1, 2])).is_err());
    }

    #[test]
    fn rejects_a_leaver_that_parts_when_too_few_know() {
        assert!(check(&without(&[0, 1])).is_err());
    }

    #[test]
    fn accepts_a_leaver_that_has_waited_long() {
        let mut fixture = without(&[0, 1]);
        let known = fixture.last(|record| record.what == What::LeaveKnown).at;
        parts_at(&mut fixture, known + (PATIENCE - Duration::from_nanos(1)));
        assert!(check(&fixture).is_err());
        parts_at(&mut fixture, known + PATIENCE);
        assert!(check(&fixture).is_ok());
    }

    #[test]
    fn accepts_a_leaver_that_has_waited_long_since_a_reset_excluded_it() {
        for epoch in [Some(Epoch(1)), None] {
            let mut fixture = without(&[0, 1]);
            let known = fixture.last(|record| record.what == What::LeaveKnown);
            known.what = What::Excluded { epoch };
            let at = known.at + PATIENCE;
            parts_at(&mut fixture, at);
            assert_eq!(check(&fixture).is_ok(), epoch.is_some());
        }
    }

    #[test]
    fn checks_when_a_leaver_parts_and_not_when_its_application_learns_it() {
        for waits in [false, true] {
            let mut fixture = without(&[0, 1]);
            let known = fixture.last(|record| record.what == What::LeaveKnown).at;
            if waits {
                parts_at(&mut fixture, known + PATIENCE);
            }
            let own = |record: &Record| record.life == Life(3) && matches!(record.what, What::Left { .. });
            let left = fixture.records.remove(fixture.position(own));
            let gone = fixture.records.pop().unwrap();
            let at = known + PATIENCE * 2;
            fixture.records.extend([left, gone].map(|record| Record { at, ..record }));
            assert_eq!(check(&fixture).is_ok(), waits);
        }
    }

    #[test]
    fn rejects_a_leaver_that_parts_before_the_others_know_its_leave() {
        let mut fixture = without(&[]);
        let parted = fixture.position(|record| record.what == What::Parted);
        let parted = fixture.records.remove(parted);
        let known =
            fixture.position(|record| record.life == Life(0) && matches!(record.what, What::Accepted { .. }));
        fixture.records.insert(known, parted);
        let leave_known = fixture.position(|record| record.what == What::LeaveKnown);
        let leave_known = fixture.records.remove(leave_known);
        fixture.records.insert(known, leave_known);
        assert!(check(&fixture).is_err());
    }

    #[test]
    fn accepts_a_leaver_whose_leave_a_reset_keeps_once_a_quorum_has_entered() {
        for members in [1, 2, 3] {
            let mut fixture = without(&[0, 1, 2]);
            let ends = fixture.records.split_off(fixture.records.len() - 2);
            fixture.reset(&[Life(0), Life(1), Life(2)]);
            let enters = |record: &Record| {
                record.life.0 >= members && matches!(record.what, What::EpochBegun { epoch: Epoch(1) })
            };
            fixture.records.retain(|record| !enters(record));
            let first = fixture.position(|record| matches!(record.what, What::Reset(_)));
            let at = fixture.records[first].at;
            fixture.records.retain(|record| !matches!(record.what, What::Accepted { epoch: Epoch(1), .. }));
            fixture.records.extend(ends);
            parts_at(&mut fixture, at);
            assert_eq!(check(&fixture).is_ok(), members >= 2, "{members} have entered");
        }
    }

    /// The last of four members numbers its leave, which no other stores, and parts. Meanwhile `entering` begin the
    /// next epoch with a view of `view`.
    fn unheard(view: &[Life], entering: &[Life]) -> Fixture {
        let mut fixture = Fixture::of(4, 1);
        let through = fixture.end() + 1;
        let before = fixture.records.len();
        fixture.split_off(view);
        let mut split = fixture.records.split_off(before);
        split.retain(|record| entering.contains(&record.life));
        fixture.records.append(&mut split);
        fixture.record(Life(3), What::LeaveAsked);
        stores_leave(&mut fixture, Life(3), Epoch(0), through);
        fixture.record(Life(3), What::Parted);
        fixture
    }

    #[test]
    fn accepts_a_leaver_once_a_quorum_has_entered_a_view_without_it() {
        let [a, b, c, leaver] = [0, 1, 2, 3].map(Life);
        assert_eq!(check(&unheard(&[a, b, c], &[a, b])).unwrap(), 1);
        assert!(check(&unheard(&[a, b, c], &[a])).is_err());
        assert!(check(&unheard(&[a, b, leaver], &[a, b])).is_err());
    }

    #[test]
    fn accepts_a_leaver_of_a_line_of_a_split_group_that_is_told_that_its_line_is_over() {
        let [a, b, c, leaver] = [0, 1, 2, 3].map(Life);
        for (by, entering, is_right) in
            [(1, 2, true), (1, 1, false), (2, 2, false), (0, 2, false), (9, 2, false)]
        {
            let mut fixture = Fixture::of(4, 1);
            fixture.terms.config.quorum = Quorum::AtLeast(2);
            let before = fixture.records.len();
            fixture.split_off(&[a, b]);
            let mut split = fixture.records.split_off(before);
            split.retain(|record| [a, b][..entering].contains(&record.life));
            fixture.records.append(&mut split);
            fixture.begins_another_line();
            fixture.reset(&[c, leaver]);
            fixture.record(leaver, What::LeaveAsked);
            let through = fixture.end() + 1;
            stores_leave(&mut fixture, leaver, Epoch(2), through);
            fixture.record(leaver, What::Parted);
            if by < 9 {
                fixture.record(leaver, What::Excluded { epoch: Some(Epoch(by)) });
            }
            assert_eq!(check(&fixture).is_ok(), is_right, "by epoch {by}, which {entering} entered");
        }
    }

    fn stores_leave(fixture: &mut Fixture, life: Life, epoch: Epoch, through: Seqno) {
        fixture.record(life, What::Stored { epoch, through, entry: Entry::Leave(Life(3)) });
    }

    #[test]
    fn accepts_a_leaver_once_an_epoch_after_the_next_goes_on_without_it() {
        let [a, b, leaver] = [0, 1, 3].map(Life);
        for excludes in [true, false] {
            let mut fixture = unheard(&[a, b, leaver], &[a, b]);
            let parted = fixture.records.pop();
            let epoch = Epoch(2);
            let members = if excludes { vec![a, b] } else { vec![a, b, leaver] };
            for life in [a, b] {
                fixture.record(life, What::EpochBegun { epoch });
                let entry = Entry::Reset(Box::new(Members(members.clone())));
                fixture.record(life, What::Stored { epoch, through: 50, entry });
            }
            fixture.records.extend(parted);
            assert_eq!(check(&fixture).is_ok(), excludes);
        }
    }

    #[test]
    fn judges_a_leaver_by_the_leave_of_its_own_line() {
        for knows in [true, false] {
            let mut fixture = without(if knows { &[] } else { &[0, 1, 2] });
            let ends = fixture.records.split_off(fixture.records.len() - 2);
            // A member that hears of nothing numbers it again, in an epoch that no other begins.
            let epoch = Epoch(1);
            fixture.record(Life(0), What::EpochBegun { epoch });
            let members = [0, 1, 2, 3].map(Life).to_vec();
            let through = fixture.end();
            let entry = Entry::Reset(Box::new(Members(members)));
            fixture.record(Life(0), What::Stored { epoch, through, entry });
            stores_leave(&mut fixture, Life(0), epoch, through + 1);
            let at = fixture.records.last().unwrap().at;
            fixture.records.extend(ends);
            parts_at(&mut fixture, at);
            assert_eq!(check(&fixture).is_ok(), knows);
        }
    }

    #[test]
    fn accepts_a_late_leave_of_a_leaver_that_was_excluded_before_it_parted() {
        let [a, b, c, leaver] = [0, 1, 2, 3].map(Life);
        for view in [[a, b, c], [a, b, leaver]] {
            let mut fixture = unheard(&view, &[a, b]);
            let leave = fixture.end() + 1;
            let parted = fixture.records.pop();
            // It parts before any member has numbered its leave; one that did not hear of the reset does so later.
            fixture.records.pop();
            fixture.records.extend(parted);
            stores_leave(&mut fixture, c, Epoch(0), leave);
            assert_eq!(check(&fixture).is_ok(), !view.contains(&leaver));
        }
    }

    #[test]
    fn accepts_a_leaver_once_a_quorum_of_the_others_holds_the_next_change() {
        for holders in [0, 1, 2] {
            let mut fixture = without(&[0, 1, 2]);
            let ends = fixture.records.split_off(fixture.records.len() - 2);
            let leave = fixture.end();
            fixture.join();
            fixture.records.retain(|record| match record.what {
                What::Stored { through, .. } if through > leave => record.life.0 < holders,
                What::Accepted { through, .. } => through < leave,
                _ => true,
            });
            let at = fixture.records.last().unwrap().at;
            fixture.records.extend(ends);
            parts_at(&mut fixture, at);
            assert_eq!(check(&fixture).is_ok(), holders >= 2, "{holders} of three hold it");
        }
    }

    #[test]
    fn checks_a_leaver_that_crashes_before_gone() {
        for ignorant in [&[0, 1, 2][..], &[]] {
            let mut fixture = without(ignorant);
            fixture.records.pop();
            fixture.record(Life(3), What::Crashed);
            assert_eq!(check(&fixture).is_ok(), ignorant.is_empty());
        }
    }

    #[test]
    fn checks_a_leaver_whose_leave_only_others_received() {
        for quorum in [Quorum::MajorityOfView, Quorum::AtLeast(1)] {
            let mut fixture = without(&[0, 1, 2]);
            fixture.terms.config.quorum = quorum;
            let leave = fixture.end();
            let own = |record: &Record| {
                record.life == Life(3)
                    && matches!(record.what, What::Stored { through, .. } if through == leave)
            };
            fixture.records.remove(fixture.position(own));
            // Another line may have another leave of the same member.
            assert_eq!(check(&fixture).is_err(), fixture.terms.config.quorum == Quorum::MajorityOfView);
        }
    }

    #[test]
    fn judges_a_leaver_by_the_latest_epochs_leave_though_an_excluded_member_numbers_another() {
        for known in [true, false] {
            let mut fixture = Fixture::of(4, 1);
            let left_behind = (Epoch(0), fixture.end() + 1);
            fixture.reset(&[Life(0), Life(1), Life(3)]);
            fixture.leave(Life(3));
            let leave = fixture.end();
            fixture.records.retain(|record| match record.what {
                What::Stored { through, .. } => record.life != Life(3) || through < leave,
                What::Accepted { through, .. } => known || through < leave,
                _ => true,
            });
            let ends = fixture.records.split_off(fixture.records.len() - 2);
            stores_leave(&mut fixture, Life(2), left_behind.0, left_behind.1);
            fixture.records.extend(ends);
            assert_eq!(check(&fixture).is_ok(), known);
        }
    }

    #[test]
    fn rejects_a_leaver_that_parts_before_its_leave_has_a_seqno() {
        let mut fixture = without(&[]);
        let leave = fixture.end();
        let parted = fixture.position(|record| record.what == What::Parted);
        let parted = fixture.records.remove(parted);
        let stores =
            |record: &Record| matches!(record.what, What::Stored { through, .. } if through == leave);
        let first = fixture.records.iter().position(stores).unwrap();
        fixture.records.insert(first, parted);
        assert!(check(&fixture).is_err());
        // Without a seqno it concerns no member.
        fixture.records.truncate(first + 1);
        assert!(check(&fixture).is_ok());
    }

    #[test]
    fn gives_a_leaver_that_does_not_know_its_leave_accepted_a_minute() {
        for seconds in [3, 60] {
            let mut fixture = without(&[0, 1]);
            fixture.records.retain(|record| record.what != What::LeaveKnown);
            let asked = fixture.last(|record| record.what == What::LeaveAsked).at;
            parts_at(&mut fixture, asked + Duration::from_secs(seconds));
            assert_eq!(check(&fixture).is_ok(), seconds == 60);
        }
    }

    #[test]
    fn accepts_the_leave_of_the_last_member() {
        let mut fixture = Fixture::of(1, 0);
        fixture.leave(Life(0));
        assert_eq!(check(&fixture).unwrap(), 1);
    }
}

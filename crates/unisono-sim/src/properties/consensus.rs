//! Consensus, which makes the lineage single, checked inside the members: the next epoch is one decision of the
//! members of the present one, however many coordinators propose.
//!
//! The ballots that a member promises rise. A member prepares only under the ballot that it promised, and only when
//! it holds everything that is kept; a leaver must hold everything through its leave. Under one ballot all members
//! prepare the same. An epoch begins only after a quorum of the view that ends has prepared it under one ballot;
//! under *at least n*, after all members that go on have. Once a quorum has prepared an epoch, no other epoch is
//! prepared under a higher ballot. That last rule holds where quorums intersect.
//!
//! What counts is what had been prepared when the first member entered the epoch. Applications may learn of it later.

use super::quorum::Rule;
use super::streams::Lineage;
use super::tables::Table;
use super::{Facts, GroupTerms, Property, Violation, result};
use crate::record::{End, Epoch, Kind, Life, Preparation, Record, Reset, What};
use unisono_core::{Ballot, Seqno};

/// What was prepared under one ballot, and by which members.
#[derive(Clone, Debug)]
struct Prepared {
    ballot: Ballot,
    next: Epoch,
    start: Seqno,
    by: Vec<Life>,
}

/// An epoch that began.
#[derive(Clone, Debug)]
struct Decided {
    next: Epoch,
    /// The first member that entered it.
    first: Life,
    /// What had been prepared for it by then.
    prepared: Vec<Prepared>,
}

impl Decided {
    fn highest_ballot(&self) -> Option<Ballot> {
        self.prepared.iter().map(|prepared| prepared.ballot).max()
    }
}

/// How an epoch ends.
#[derive(Clone, Debug, Default)]
struct Ending {
    prepared: Vec<Prepared>,
    decided: Vec<Decided>,
    /// True once an application has received a reset event that ends it.
    is_reported: bool,
}

/// A life went on to another epoch before its application had entered. `accepted` is how far it knew its own epoch to
/// be accepted.
#[derive(Clone, Debug)]
struct NotEntered {
    life: Life,
    epoch: Epoch,
    accepted: Seqno,
    next: Epoch,
}

/// The checker of `consensus`.
#[derive(Debug)]
pub(super) struct Consensus {
    rule: Rule,
    promises: Table<Option<(Epoch, Ballot)>>,
    endings: Table<Ending>,
    /// Epoch of each life's watermarks.
    epochs: Table<Option<Epoch>>,
    /// The lives that asked to leave, with the epoch and seqno of their leave once any application has received it.
    leavers: Table<Option<Option<(Epoch, Seqno)>>>,
    /// Leavers that prepared while holding less than is kept.
    short: Vec<(Life, Epoch, Seqno)>,
    /// Epoch and seqno of each life's join, as far as any application has received it.
    joins: Table<Option<(Epoch, Seqno)>>,
    not_entered: Vec<NotEntered>,
    checked: u64,
}

impl Consensus {
    pub(super) fn new(terms: &GroupTerms) -> Consensus {
        Consensus {
            rule: Rule::new(terms.config.quorum.clone()),
            promises: Table::default(),
            endings: Table::default(),
            epochs: Table::default(),
            leavers: Table::default(),
            short: Vec::new(),
            joins: Table::default(),
            not_entered: Vec::new(),
            checked: 0,
        }
    }

    fn promise(&mut self, life: Life, epoch: Epoch, ballot: Ballot) -> Option<String> {
        let last = self.promises.at(life).replace((epoch, ballot));
        let fell = last.is_some_and(|(when, last)| when == epoch && ballot < last);
        fell.then(|| format!("it had promised the higher ballot {last:?}"))
    }

    fn prepare(
        &mut self,
        life: Life,
        epoch: Epoch,
        preparation: &Preparation,
        stored: Seqno,
    ) -> Option<String> {
        let Preparation { ballot, next, start } = *preparation;
        if *self.promises.at(life) != Some((epoch, ballot)) {
            return Some("it had not promised this ballot".into());
        }
        if stored + 1 < start {
            if self.leavers.at(life).is_none() {
                return Some(format!("it holds only through {stored}"));
            }
            self.short.push((life, epoch, stored));
        }
        let meets = self.rule.intersects();
        let ending = self.endings.at(epoch);
        match ending.prepared.iter_mut().find(|known| known.ballot == ballot) {
            Some(known) if known.next != next || known.start != start => {
                return Some(format!("{:?} prepared {:?} under this ballot", known.by, known.next));
            }
            Some(known) => known.by.push(life),
            None => ending.prepared.push(Prepared { ballot, next, start, by: vec![life] }),
        }
        let decided = ending.decided.iter().find(|decided| {
            decided.next != next && decided.highest_ballot().is_some_and(|highest| highest < ballot)
        });
        decided
            .filter(|_| meets)
            .map(|decided| format!("{:?} had been decided under a lower ballot", decided.next))
    }

    /// A member entered another epoch.
    fn enter(&mut self, life: Life, epoch: Epoch, next: Epoch) -> Option<String> {
        let meets = self.rule.intersects();
        let ending = self.endings.at(epoch);
        if ending.decided.iter().any(|decided| decided.next == next) {
            return None;
        }
        let prepared = ending.prepared.iter().filter(|prepared| prepared.next == next).cloned().collect();
        let other = ending.decided.first().map(|decided| decided.next);
        ending.decided.push(Decided { next, first: life, prepared });
        other.filter(|_| meets).map(|other| format!("{other:?} also follows {epoch:?}"))
    }

    /// An application receives a reset event, so the view that ended is known.
    fn reported(&mut self, epoch: Epoch, view: &[Life], reset: &Reset) -> Option<String> {
        let ending = self.endings.at(epoch);
        ending.is_reported = true;
        let next = reset.view.epoch;
        let Decided { first, prepared, .. } = ending.decided.iter().find(|decided| decided.next == next)?;
        let enough = |prepared: &[Life]| {
            // The member that decides may prepare and enter within one input.
            let by = [prepared, &[*first]].concat();
            if self.rule.intersects() {
                self.rule.met(&by, view)
            } else {
                reset.view.members.iter().all(|member| by.contains(member))
            }
        };
        let by: Vec<_> = prepared.iter().map(|prepared| &prepared.by).collect();
        let is_decided = by.iter().any(|by| enough(by)) || enough(&[]);
        (!is_decided)
            .then(|| format!("when {first:?} entered, only {by:?} of the view {view:?} had prepared it"))
    }

    /// Returns a fault if a life in `not_entered` was a member, and an epoch other than its next one follows too. It was
    /// a member if it knew its own join to be accepted.
    fn split(&self, lineage: &Lineage) -> Option<String> {
        let is_member = |case: &NotEntered| {
            self.joins.get(case.life).copied().flatten().is_some_and(|(epoch, join)| {
                let same = epoch == case.epoch && join <= case.accepted;
                same || (epoch != case.epoch && lineage.keeps(case.epoch, epoch, join))
            })
        };
        self.not_entered.iter().filter(|case| is_member(case)).find_map(
            |NotEntered { life, epoch, next, .. }| {
                let decided = &self.endings.get(*epoch)?.decided;
                let other = decided.iter().find(|decided| decided.next != *next)?.next;
                Some(format!("{other:?} follows {epoch:?}, and {life:?} went on to {next:?}"))
            },
        )
    }
}

impl Property for Consensus {
    fn name(&self) -> &'static str {
        "consensus"
    }

    fn interests(&self) -> u64 {
        Kind::Reset.bit()
            | Kind::Joined.bit()
            | Kind::Left.bit()
            | Rule::FOLLOWED
            | Kind::LeaveAsked.bit()
            | Kind::Promised.bit()
            | Kind::Prepared.bit()
            | Kind::EpochBegun.bit()
    }

    #[inline(always)]
    fn observe(&mut self, record: &Record, facts: &Facts) -> Result<(), Violation> {
        let life = record.life;
        let fault = match &record.what {
            What::Started { .. } | What::ForceAsked { .. } => {
                self.rule.follow(record);
                None
            }
            What::Promised { epoch, ballot } => {
                self.checked += 1;
                self.promise(life, *epoch, *ballot)
            }
            What::Prepared { epoch, preparation } => {
                self.checked += 1;
                self.prepare(life, *epoch, preparation, facts.marks.of(life).stored)
            }
            What::EpochBegun { epoch: next } => {
                let before = self.epochs.at(life).replace(*next);
                before.filter(|before| before != next).and_then(|epoch| {
                    if facts.stream(life).epoch.is_some() {
                        return self.enter(life, epoch, *next);
                    }
                    // A process that only listens may go to any epoch.
                    let accepted = facts.marks.of(life).accepted;
                    self.not_entered.push(NotEntered { life, epoch, accepted, next: *next });
                    None
                })
            }
            What::Joined { seqno, member, .. } => {
                if let Some(epoch) = facts.stream(life).epoch {
                    self.joins.at(*member).get_or_insert((epoch, *seqno));
                }
                None
            }
            What::Reset(reset) => {
                let stream = facts.before();
                stream.epoch.and_then(|epoch| self.reported(epoch, &stream.view, reset))
            }
            What::LeaveAsked => {
                *self.leavers.at(life) = Some(None);
                None
            }
            What::Left { seqno, member, .. } => {
                if let Some(epoch) = facts.stream(life).epoch {
                    *self.leavers.at(*member) = Some(Some((epoch, *seqno)));
                }
                None
            }
            _ => None,
        };
        result(self, record, fault)
    }

    fn finish(&mut self, end: &End, facts: &Facts) -> Result<(), Violation> {
        for (life, epoch, stored) in std::mem::take(&mut self.short) {
            let left = self.leavers.at(life).flatten();
            if !left.is_some_and(|(when, leave)| when == epoch && leave <= stored) {
                let what =
                    format!("{life:?} held only through {stored} when it prepared, and left at {left:?}");
                return Err(Violation { property: self.name(), at: end.at, what });
            }
        }
        if !self.rule.intersects() {
            return Ok(());
        }
        if let Some(what) = self.split(&facts.lineage) {
            return Err(Violation { property: self.name(), at: end.at, what });
        }
        for (epoch, ending) in (0..).map(Epoch).zip(self.endings.iter()) {
            if !ending.is_reported {
                continue;
            }
            let chosen = |prepared: &&Prepared| {
                let mut views = facts.views.sides(epoch, prepared.start - 1).peekable();
                views.peek().is_some() && views.all(|view| self.rule.met(&prepared.by, view))
            };
            for prepared in ending.prepared.iter().filter(chosen) {
                let other = |other: &&Prepared| other.ballot > prepared.ballot && other.next != prepared.next;
                if let Some(other) = ending.prepared.iter().find(other) {
                    let what = format!("a quorum prepared {prepared:?}, and then a member {other:?}");
                    return Err(Violation { property: self.name(), at: end.at, what });
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
    use crate::properties::fixture::Fixture;
    use unisono_core::{Quorum, Uid};

    fn good() -> Fixture {
        let mut fixture = Fixture::of(5, 1);
        fixture.message(Life(1));
        fixture.crash(Life(0));
        fixture.reset(&[Life(1), Life(2), Life(3)]);
        fixture.message(Life(1));
        fixture
    }

    fn check(fixture: &Fixture) -> Result<u64, Violation> {
        fixture.check(Consensus::new(&fixture.terms))
    }

    fn preparation(record: &Record) -> bool {
        matches!(record.what, What::Prepared { .. })
    }

    fn ballot(round: u32) -> Ballot {
        Ballot { round, coordinator: Uid(9) }
    }

    /// After the preparations of a correct reset, this life promises another ballot and prepares something under it.
    fn then(life: Life, ballot: Ballot, next: Epoch, start: Seqno) -> Fixture {
        let mut fixture = good();
        let epoch = Epoch(0);
        let index = fixture.position(preparation);
        let preparation = Box::new(Preparation { ballot, next, start });
        for what in [What::Prepared { epoch, preparation }, What::Promised { epoch, ballot }] {
            let record = Record { life, what, ..fixture.records[index].clone() };
            fixture.records.insert(index + 1, record);
        }
        fixture
    }

    #[test]
    fn accepts_one_decision() {
        assert!(check(&good()).unwrap() > 0);
        assert!(
            check(&then(Life(4), ballot(8), Epoch(1), 6)).is_ok(),
            "a proposal adopted under a higher ballot"
        );
    }

    #[test]
    fn rejects_a_lower_promise() {
        assert!(check(&then(Life(1), ballot(0), Epoch(1), 6)).is_err());
    }

    #[test]
    fn rejects_preparing_without_holding_what_is_kept() {
        assert!(check(&then(Life(4), ballot(8), Epoch(1), 8)).is_err());
    }

    #[test]
    fn accepts_a_leaver_that_holds_what_is_kept_through_its_leave() {
        for (seqno, holds_enough) in [(2, true), (3, false)] {
            let mut fixture = Fixture::of(3, 1);
            fixture.record(Life(2), What::LeaveAsked);
            let (epoch, ballot) = (Epoch(0), ballot(1));
            let preparation = Box::new(Preparation { ballot, next: Epoch(1), start: 5 });
            fixture.record(Life(2), What::Promised { epoch, ballot });
            fixture.record(Life(2), What::Prepared { epoch, preparation });
            fixture.record(Life(0), What::Left { seqno, member: Life(2), members: 2, successor: None });
            assert_eq!(check(&fixture).is_ok(), holds_enough);
        }
    }

    #[test]
    fn rejects_another_proposal_after_a_quorum_prepared_one() {
        assert!(check(&then(Life(4), ballot(8), Epoch(7), 6)).is_err());
    }

    #[test]
    fn rejects_two_proposals_under_one_ballot() {
        let known = Ballot { round: 1, coordinator: Uid(1) };
        assert!(check(&then(Life(4), known, Epoch(7), 6)).is_err());
    }

    #[test]
    fn rejects_preparing_without_a_promise() {
        let mut fixture = good();
        let promised = |r: &Record| r.life == Life(2) && matches!(r.what, What::Promised { .. });
        let index = fixture.position(promised);
        fixture.records.remove(index);
        assert!(check(&fixture).is_err());
    }

    #[test]
    fn rejects_an_epoch_that_too_few_prepared() {
        let mut fixture = good();
        fixture.records.retain(|record| !(preparation(record) && record.life != Life(2)));
        assert!(check(&fixture).is_err());
    }

    #[test]
    fn under_at_least_all_members_that_go_on_must_have_prepared() {
        let mut fixture = Fixture::found(1, Quorum::AtLeast(2));
        (0..3).for_each(|_| _ = fixture.join());
        fixture.reset(&[Life(0), Life(1), Life(2)]);
        assert!(check(&fixture).is_ok());
        let index = fixture.position(preparation);
        fixture.records.remove(index);
        assert!(check(&fixture).is_err());
    }

    #[test]
    fn rejects_an_epoch_that_too_few_had_prepared_when_the_first_member_entered() {
        let mut fixture = good();
        let of_others = |record: &Record| preparation(record) && record.life > Life(1);
        let late: Vec<_> = fixture.records.iter().filter(|record| of_others(record)).cloned().collect();
        fixture.records.retain(|record| !of_others(record));
        // Its application receives the reset after the others have prepared, too.
        let received =
            fixture.position(|record| record.life == Life(1) && matches!(record.what, What::Reset(_)));
        fixture.records.splice(received..received, late);
        assert!(check(&fixture).is_err());
    }

    #[test]
    fn rejects_another_epoch_of_a_member_whose_application_has_not_entered_yet() {
        for elsewhere in [false, true] {
            let mut fixture = Fixture::of(4, 1);
            let joiner = fixture.join();
            let ends = |what: &What| matches!(what, What::Entered { .. } | What::Excluded { .. });
            fixture.reset(&[Life(0), Life(1), Life(2), Life(3)]);
            fixture.records.retain(|record| !(record.life == joiner && ends(&record.what)));
            let epoch = if elsewhere { Epoch(5) } else { Epoch(1) };
            fixture.record(joiner, What::EpochBegun { epoch });
            assert_eq!(check(&fixture).is_err(), elsewhere);
        }
    }

    #[test]
    fn accepts_any_next_epoch_of_a_process_that_only_listened() {
        let mut fixture = Fixture::of(4, 1);
        let joiner = fixture.join();
        let join = fixture.end();
        fixture.reset(&[Life(0), Life(1), Life(2), Life(3)]);
        let knows = |what: &What| match what {
            What::Entered { .. } | What::Excluded { .. } => true,
            What::Accepted { through, .. } => *through >= join,
            _ => false,
        };
        fixture.records.retain(|record| !(record.life == joiner && knows(&record.what)));
        fixture.record(joiner, What::EpochBegun { epoch: Epoch(5) });
        assert!(check(&fixture).is_ok());
    }

    #[test]
    fn rejects_another_epoch_of_a_member_without_events_that_joined_in_an_earlier_one() {
        let mut fixture = Fixture::of(4, 1);
        let joiner = fixture.join();
        fixture.reset(&[Life(0), Life(1), Life(2), Life(3), joiner]);
        fixture.reset(&[Life(0), Life(1), Life(2), Life(3)]);
        let received =
            |what: &What| matches!(what, What::Entered { .. } | What::Reset(_) | What::Excluded { .. });
        fixture.records.retain(|record| !(record.life == joiner && received(&record.what)));
        assert!(check(&fixture).is_ok());
        fixture.record(joiner, What::EpochBegun { epoch: Epoch(5) });
        assert!(check(&fixture).is_err());
    }

    #[test]
    fn rejects_two_epochs_after_one() {
        let mut fixture = good();
        let entered = |r: &Record| r.life == Life(3) && r.what == What::EpochBegun { epoch: Epoch(1) };
        fixture.last(entered).what = What::EpochBegun { epoch: Epoch(5) };
        assert!(check(&fixture).is_err());
    }
}

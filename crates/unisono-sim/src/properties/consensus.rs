//! Consensus, which makes the lineage single, checked inside the members: the next epoch is one decision of the
//! members of the present one, however many coordinators propose.
//!
//! The ballots that a member promises rise. A member prepares only under the ballot that it promised, and only when
//! it holds everything that is kept; a leaver must hold everything through its leave. Under one ballot all members
//! prepare the same. An epoch begins only after a quorum of the view that ends has prepared it under one ballot;
//! under *at least n*, after all members that go on have. Once a quorum has prepared an epoch, no other epoch is
//! prepared under a higher ballot, and no member goes on to another. These last rules hold where quorums intersect.

use super::entries::Proposal;
use super::quorum::Rule;
use super::tables::Table;
use super::{Facts, GroupTerms, Property, Violation, result};
use crate::record::{Entry, Epoch, Kind, Life, Preparation, Record, What};
use unisono_core::{Ballot, Seqno};

/// The checker of `consensus`.
#[derive(Debug)]
pub(super) struct Consensus {
    rule: Rule,
    promises: Table<Option<(Epoch, Ballot)>>,
    /// By epoch, the epochs to which its members went on.
    followers: Table<Vec<Epoch>>,
    checked: u64,
}

impl Consensus {
    pub(super) fn new(terms: &GroupTerms) -> Consensus {
        Consensus {
            rule: Rule::new(terms.config.quorum.clone()),
            promises: Table::default(),
            followers: Table::default(),
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
        facts: &Facts,
    ) -> Option<String> {
        let Preparation { ballot, next, keep, start } = *preparation;
        if *self.promises.at(life) != Some((epoch, ballot)) {
            return Some("it had not promised this ballot".into());
        }
        let stored = facts.marks.of(life).stored;
        let holds_leave =
            |leaves: &[(Epoch, Seqno)]| leaves.iter().any(|(e, leave)| *e == epoch && *leave <= stored);
        if stored < keep && !holds_leave(facts.entries.leaves(life)) {
            return Some(format!("it holds only through {stored}"));
        }
        let proposals = facts.entries.proposals(epoch);
        let differs = |other: &&Proposal| {
            other.ballot == ballot && (other.next, other.keep, other.start) != (next, keep, start)
        };
        if let Some(other) = proposals.iter().find(differs) {
            return Some(format!("{:?} prepared {:?} under this ballot", other.by, other.next));
        }
        if !self.rule.intersects() {
            return None;
        }
        let is_decided = |proposal: &Proposal| {
            let mut views = facts.entries.views.sides(epoch, proposal.keep).peekable();
            proposal.is_entered
                || views.peek().is_some() && views.all(|view| self.rule.met(&proposal.by, view))
        };
        proposals.iter().find_map(|low| {
            let contradicts = |high: &&Proposal| high.ballot > low.ballot && high.next != low.next;
            let high = proposals.iter().find(contradicts).filter(|_| is_decided(low))?;
            Some(format!("{low:?} was decided, and then a member prepared {high:?}"))
        })
    }

    /// A life left an epoch for another. Returns a fault if it was a member and another member went elsewhere. A process
    /// that only listens may go to any epoch; it is a member once it knows its own join to be accepted.
    fn go_on(&mut self, life: Life, next: Epoch, facts: &Facts) -> Option<String> {
        let epoch = facts.entries.epoch_before(life).filter(|epoch| *epoch != next)?;
        let view = facts.entries.views.at(epoch, facts.marks.of(life).accepted);
        let is_member = facts.stream(life).epoch.is_some() || view.is_some_and(|view| view.contains(&life));
        let followers = self.followers.at(epoch);
        if !is_member || followers.contains(&next) {
            return None;
        }
        followers.push(next);
        let other = followers[0];
        (other != next && self.rule.intersects()).then(|| format!("{other:?} also follows {epoch:?}"))
    }

    /// The first member stores the reset event that begins an epoch. Returns a fault if too few had prepared the epoch.
    fn enter(
        &self,
        life: Life,
        next: Epoch,
        start: Seqno,
        members: &[Life],
        facts: &Facts,
    ) -> Option<String> {
        if facts.entries.begun(next).len() > 1 {
            return None;
        }
        let epoch = facts.entries.epoch_before(life)?;
        let first = facts.entries.lineage.first(next).unwrap_or(start);
        let view = facts.entries.views.at(epoch, first - 1)?;
        let is_enough = |prepared: &[Life]| {
            // The member that decides may prepare and enter within one input.
            let by = [prepared, &[life]].concat();
            match self.rule.intersects() {
                true => self.rule.met(&by, view),
                false => members.iter().all(|member| by.contains(member)),
            }
        };
        let prepared = facts.entries.proposals(epoch).iter().filter(|proposal| proposal.next == next);
        let by: Vec<_> = prepared.map(|proposal| &proposal.by).collect();
        let is_decided = by.iter().any(|by| is_enough(by)) || is_enough(&[]);
        (!is_decided).then(|| format!("only {by:?} of the view {view:?} had prepared it"))
    }
}

impl Property for Consensus {
    fn name(&self) -> &'static str {
        "consensus"
    }

    fn interests(&self) -> u64 {
        Kind::Stored.bit()
            | Rule::FOLLOWED
            | Kind::Promised.bit()
            | Kind::Prepared.bit()
            | Kind::EpochBegun.bit()
    }

    #[inline(always)]
    fn observe(&mut self, record: &Record, facts: &Facts) -> Result<(), Violation> {
        let life = record.life;
        let fault = match &record.what {
            What::Promised { epoch, ballot } => {
                self.checked += 1;
                self.promise(life, *epoch, *ballot)
            }
            What::Prepared { epoch, preparation } => {
                self.checked += 1;
                self.prepare(life, *epoch, preparation, facts)
            }
            What::EpochBegun { epoch } => self.go_on(life, *epoch, facts),
            What::Stored { epoch, through, entry: Entry::Reset(view) } => {
                self.enter(life, *epoch, *through, &view.0, facts)
            }
            What::Stored { .. } => None,
            _ => {
                self.rule.follow(record);
                None
            }
        };
        result(self, record, fault)
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
        let preparation = Box::new(Preparation { ballot, next, keep: start - 1, start });
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
        for holds_enough in [true, false] {
            let mut fixture = Fixture::of(3, 1);
            let (epoch, ballot, leave) = (Epoch(0), ballot(1), fixture.end() + 1);
            let stored = What::Stored { epoch, through: leave, entry: Entry::Leave(Life(2)) };
            fixture.record(Life(0), stored.clone());
            if holds_enough {
                fixture.record(Life(2), stored);
            }
            let (keep, start) = (leave + 1, leave + 2);
            let preparation = Box::new(Preparation { ballot, next: Epoch(1), keep, start });
            fixture.record(Life(2), What::Promised { epoch, ballot });
            fixture.record(Life(2), What::Prepared { epoch, preparation });
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

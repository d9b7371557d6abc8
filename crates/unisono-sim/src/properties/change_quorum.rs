//! Joins and leaves are held by quorums, which keeps the quorums of neighbouring views intersecting
//! (docs/protocol/membership.md). A join or leave is accepted only after it was held by a quorum of the members
//! before it, by a quorum of the members after it, and by the joiner. Exception, for a reset: a decided reset that
//! keeps the join or leave makes it accepted, since a quorum holds everything that it prepares. The next join or
//! leave is numbered only by a sequencer that knows the last one to be accepted; so is an event that hands the role
//! on.
//!
//! Under *at least n* quorums need not intersect, and only the rule about numbering is checked.

use super::quorum::Rule;
use super::streams::MarkTable;
use super::tables::Table;
use super::{Facts, GroupTerms, Property, Violation, result};
use crate::record::{Entry, Epoch, Kind, Life, Record, What};
use unisono_core::Seqno;

/// The checker of `change_quorum`.
#[derive(Debug)]
pub(super) struct ChangeQuorum {
    rule: Rule,
    marks: MarkTable,
    /// By epoch, how far any life took the log for accepted without learning it from a decision.
    accepted: Table<Seqno>,
    /// Epoch of each life's last promise.
    promised: Table<Option<Epoch>>,
    checked: u64,
}

impl ChangeQuorum {
    pub(super) fn new(terms: &GroupTerms) -> ChangeQuorum {
        ChangeQuorum {
            rule: Rule::new(terms.config.quorum.clone()),
            marks: MarkTable::default(),
            accepted: Table::default(),
            promised: Table::default(),
            checked: 0,
        }
    }

    /// A life takes everything through a seqno for accepted. Returns a fault if it is the first and too few members
    /// hold a change among it.
    fn accept(&mut self, life: Life, epoch: Epoch, through: Seqno, facts: &Facts) -> Option<String> {
        // A life that has promised a ballot accepts only what a decision keeps.
        if *self.promised.at(life) == Some(epoch) {
            return None;
        }
        let accepted = self.accepted.at(epoch);
        let before = std::mem::replace(accepted, through.max(*accepted));
        if !self.rule.intersects() {
            return None;
        }
        let mut changes = facts.entries.changes(epoch, before, through);
        changes.find_map(|(seqno, entry)| self.too_few(epoch, *seqno, entry, facts))
    }

    fn too_few(&self, epoch: Epoch, seqno: Seqno, change: &Entry, facts: &Facts) -> Option<String> {
        let (lineage, views) = (&facts.entries.lineage, &facts.entries.views);
        let is_kept = lineage.children(epoch).iter().any(|next| lineage.keeps(*next, epoch, seqno));
        if is_kept || matches!(change, Entry::Role(_) | Entry::Pass(_)) {
            return None;
        }
        let holds = |life: &Life| self.marks.held(*life, epoch, seqno, lineage);
        if let Entry::Join(joiner) = change
            && !holds(joiner)
        {
            return Some(format!("{joiner:?} does not hold its own join at {seqno}"));
        }
        let sides = [seqno - 1, seqno].into_iter().filter_map(|seqno| views.at(epoch, seqno));
        sides.filter(|view| !view.is_empty()).find_map(|view| {
            let holders: Vec<_> = view.iter().copied().filter(holds).collect();
            let few = !self.rule.met(&holders, view);
            few.then(|| format!("only {holders:?} of {view:?} hold the change at {seqno}"))
        })
    }

    /// A sequencer assigns these seqnos. Returns a fault if there is a change among them and it does not know the last
    /// one to be accepted.
    fn number(
        &mut self,
        life: Life,
        epoch: Epoch,
        (from, to): (Seqno, Seqno),
        facts: &Facts,
    ) -> Option<String> {
        let accepted = self.marks.of(life).accepted;
        facts.entries.changes(epoch, from - 1, to).find_map(|(seqno, _)| {
            self.checked += 1;
            let last = facts.entries.last_view_change(epoch, *seqno)?;
            (accepted < last)
                .then(|| format!("only {accepted} is accepted, and the last change is at {last}"))
        })
    }
}

impl Property for ChangeQuorum {
    fn name(&self) -> &'static str {
        "change_quorum"
    }

    fn interests(&self) -> u64 {
        Kind::Stored.bit()
            | Kind::Accepted.bit()
            | Kind::Numbered.bit()
            | Rule::FOLLOWED
            | Kind::Promised.bit()
    }

    #[inline(always)]
    fn observe(&mut self, record: &Record, facts: &Facts) -> Result<(), Violation> {
        let life = record.life;
        self.marks.follow(record);
        let fault = match record.what {
            What::Accepted { epoch, through } => self.accept(life, epoch, through, facts),
            What::Numbered { epoch, from, to, .. } => self.number(life, epoch, (from, to), facts),
            What::Promised { epoch, .. } => {
                *self.promised.at(life) = Some(epoch);
                None
            }
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

    fn good() -> Fixture {
        let mut fixture = Fixture::of(4, 0);
        fixture.message(Life(1));
        fixture.leave(Life(3));
        fixture.join();
        fixture
    }

    fn check(fixture: &Fixture) -> Result<u64, Violation> {
        fixture.check(ChangeQuorum::new(&fixture.terms))
    }

    /// Removes the records by which these lives stored the last seqno.
    fn forget(fixture: &mut Fixture, lives: &[u32]) {
        let end = fixture.end();
        fixture.records.retain(|record| {
            let stores = matches!(record.what, What::Stored { through, .. } if through == end);
            !(stores && lives.contains(&record.life.0))
        });
    }

    #[test]
    fn accepts_changes_that_quorums_hold() {
        assert!(check(&good()).unwrap() > 0);
        let mut fixture = good();
        forget(&mut fixture, &[2]);
        assert!(check(&fixture).is_ok());
    }

    #[test]
    fn rejects_a_join_that_too_few_hold() {
        let mut fixture = good();
        forget(&mut fixture, &[1, 2]);
        assert!(check(&fixture).is_err());
    }

    #[test]
    fn rejects_a_join_that_the_joiner_does_not_hold() {
        let mut fixture = good();
        forget(&mut fixture, &[4]);
        assert!(check(&fixture).is_err());
    }

    /// Life 0 takes the last change for accepted as soon as it has numbered it, when no other member holds it.
    fn accept_alone(fixture: &mut Fixture) {
        let (epoch, end) = (Epoch(0), fixture.end());
        let accepts =
            |record: &Record| record.life == Life(0) && record.what == What::Accepted { epoch, through: end };
        let numbers = |record: &Record| matches!(record.what, What::Numbered { to, .. } if to == end);
        let accepted = fixture.position(accepts);
        let accepted = fixture.records.remove(accepted);
        let numbered = fixture.position(numbers);
        let at = fixture.records[numbered].at;
        fixture.records.insert(numbered, Record { at, ..accepted });
    }

    #[test]
    fn rejects_a_change_accepted_alone_and_received_when_all_hold_it() {
        let mut fixture = Fixture::of(4, 0);
        fixture.join();
        assert!(check(&fixture).is_ok());
        accept_alone(&mut fixture);
        assert!(check(&fixture).is_err());
        let mut fixture = Fixture::of(4, 0);
        fixture.leave(Life(3));
        assert!(check(&fixture).is_ok());
        accept_alone(&mut fixture);
        assert!(check(&fixture).is_err());
    }

    #[test]
    fn rejects_a_change_accepted_alone_and_received_after_a_reset() {
        let mut fixture = Fixture::of(4, 0);
        let joiner = fixture.join();
        accept_alone(&mut fixture);
        let (received, mut records): (Vec<Record>, Vec<Record>) =
            fixture.records.drain(..).partition(|record| {
                matches!(record.what, What::Joined { member, .. } if member == joiner)
                    || record.life == joiner && matches!(record.what, What::Entered { .. })
            });
        std::mem::swap(&mut fixture.records, &mut records);
        let before = fixture.records.len();
        fixture.reset(&[Life(0), Life(1), Life(2), Life(3), joiner]);
        let reset = before + fixture.records[before..].iter().position(reset_event).unwrap();
        fixture.records.splice(reset..reset, received);
        assert!(check(&fixture).is_err());
    }

    fn reset_event(record: &Record) -> bool {
        matches!(record.what, What::Reset(_))
    }

    #[test]
    fn accepts_a_join_that_a_reset_keeps_and_an_excluded_member_learns_of() {
        let mut fixture = Fixture::of(4, 0);
        let epoch = Epoch(0);
        let common = fixture.records.len();
        let joiner = fixture.join();
        let seqno = fixture.end();
        let mut more = fixture.records.split_off(common);
        // Life 3 holds the join and receives nothing further; the joiner never holds it.
        more.retain(|record| match record.what {
            What::Stored { through, .. } => record.life != joiner || through < seqno,
            What::Accepted { through, .. } => through < seqno,
            What::Joined { .. } | What::Entered { .. } => false,
            _ => true,
        });
        fixture.records.extend(more);
        fixture.reset(&[Life(0), Life(1), Life(2)]);
        let excluded = fixture.position(|record| matches!(record.what, What::Excluded { .. }));
        let is_of_three =
            |record: &Record| record.life == Life(3) && matches!(record.what, What::Excluded { .. });
        let excluded = fixture.records[..=excluded].iter().rposition(is_of_three).unwrap();
        let excluded = fixture.records.remove(excluded);
        for what in [
            What::Accepted { epoch, through: seqno },
            What::Joined { seqno, member: joiner, members: 5 },
            excluded.what,
        ] {
            fixture.record(Life(3), what);
        }
        assert!(check(&fixture).is_ok());
        let begins = |record: &Record| matches!(record.what, What::EpochBegun { epoch } if epoch != Epoch(0));
        let first = fixture.records.iter().position(begins).unwrap();
        let learns =
            fixture.position(|record| record.life == Life(3) && matches!(record.what, What::Accepted { .. }));
        let learns = fixture.records.remove(learns);
        fixture.records.insert(first, learns);
        assert!(check(&fixture).is_err());
    }

    #[test]
    fn rejects_a_leave_that_only_a_quorum_of_the_others_holds() {
        let mut fixture = Fixture::of(4, 0);
        fixture.leave(Life(0));
        assert!(check(&fixture).is_ok());
        // Lives 1 and 2 are a quorum of the three remaining members, but not of the four before.
        let mut fixture = Fixture::of(4, 0);
        fixture.leave(Life(0));
        let end = fixture.end();
        fixture.records.retain(|record| {
            let stores = matches!(record.what, What::Stored { through, .. } if through == end);
            !(stores && [0, 3].contains(&record.life.0))
        });
        assert!(check(&fixture).is_err());
    }

    #[test]
    fn rejects_the_next_change_before_the_last_is_accepted() {
        let mut fixture = Fixture::of(3, 0);
        let before = fixture.end();
        fixture.join();
        fixture.join();
        let known = |record: &Record| {
            record.life == Life(0)
                && matches!(record.what, What::Accepted { through, .. } if through > before)
        };
        fixture.records.retain(|record| !known(record));
        assert!(check(&fixture).is_err());
        // The fault is noticed too if the second joiner's application receives its join first.
        let is_late = |record: &Record| matches!(record.what, What::Joined { seqno, .. } | What::Entered { seqno, .. } if seqno > before);
        let is_second =
            |record: &Record| matches!(record.what, What::Entered { seqno, .. } if seqno > before + 1);
        let (received, mut records): (Vec<Record>, Vec<Record>) =
            fixture.records.drain(..).partition(is_late);
        let (first, then): (Vec<Record>, Vec<Record>) = received.into_iter().partition(is_second);
        records.extend(first.into_iter().chain(then));
        fixture.records = records;
        assert!(check(&fixture).is_err());
    }
}

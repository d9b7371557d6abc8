//! G22, stability: an entry leaves a history only after every member of the view at its seqno has held it. (For
//! entries from before the epoch, that is the epoch's first view.) No history has more entries than the group allows.
//!
//! A leaver counts for the seqnos below its leave until the leave is accepted. After that the others wait for it by
//! courtesy only. An entry may be freed before any application has received the joins and leaves that determine the
//! view. Such cases are checked again at the end, with the watermarks from the time when the entry was freed.
//!
//! Joins and leaves take no capacity from messages: a history may have n + 2 entries more, and one more for each
//! reset since an entry was last freed. Here n counts the members of all views in force at the seqnos that the history
//! holds, and all lives that may have joined since. Views that the application no longer has, or never had, count:
//! the log of a joiner begins below its join, and may have leavers in its view whose leaves come later in it.

use super::streams::MarkTable;
use super::tables::{Lives, Table};
use super::{Facts, GroupTerms, Property, Violation, broken, result};
use crate::record::{End, Epoch, Kind, Life, Record, What};
use unisono_core::Seqno;

/// An entry was freed before everything was known that decides whether it might be.
#[derive(Debug)]
struct Undecided {
    record: Record,
    epoch: Epoch,
    through: Seqno,
    /// Watermarks of all lives at that time.
    marks: MarkTable,
    /// How far any member of the epoch knew it to be accepted at that time.
    accepted: Seqno,
}

/// The checker of `stability`.
#[derive(Debug)]
pub(super) struct Stability {
    history_messages: u32,
    lives: u32,
    leavers: Lives,
    /// Lives whose part in the group is over, as any application has learned.
    over: Lives,
    marks: MarkTable,
    /// By epoch, how far any member knows it to be accepted.
    accepted: Table<Seqno>,
    /// By life, the seqno of its leave in each epoch that has one.
    leaves: Table<Vec<(Epoch, Seqno)>>,
    /// By life, the number of resets since it freed an entry.
    resets: Table<u32>,
    /// By life, how far it has freed its history.
    freed: Table<Seqno>,
    /// By epoch, the seqno through which all members hold everything, or which is checked at the end.
    stable: Table<Seqno>,
    undecided: Vec<Undecided>,
    checked: u64,
}

impl Stability {
    pub(super) fn new(terms: &GroupTerms) -> Stability {
        Stability {
            history_messages: terms.config.history_messages,
            lives: 0,
            leavers: Lives::default(),
            over: Lives::default(),
            marks: MarkTable::default(),
            accepted: Table::default(),
            leaves: Table::default(),
            resets: Table::default(),
            freed: Table::default(),
            stable: Table::default(),
            undecided: Vec::new(),
            checked: 0,
        }
    }

    /// Takes note of a life that comes or goes.
    #[cold]
    fn follow(&mut self, record: &Record, facts: &Facts) {
        match &record.what {
            What::Started { .. } => self.lives += 1,
            What::EpochBegun { .. } => *self.resets.at(record.life) += 1,
            What::LeaveAsked => self.leavers.insert(record.life),
            What::Left { seqno, member, .. } => {
                self.over.insert(*member);
                let epoch = facts.stream(record.life).epoch;
                self.leaves.at(*member).extend(epoch.map(|epoch| (epoch, *seqno)));
            }
            What::Reset(reset) => reset.excluded.iter().for_each(|life| self.over.insert(*life)),
            _ => self.over.insert(record.life),
        }
    }

    /// Returns a fault if this number of entries is too high.
    fn too_many(&mut self, life: Life, entries: u32, facts: &Facts) -> Option<String> {
        let (most, resets) = (self.history_messages, *self.resets.at(life));
        if entries <= most {
            return None;
        }
        let known = self.members_held(life, entries, facts);
        let may_be_there = |life: &Life| !self.over.contains(*life) || known.contains(*life);
        let members = (0..self.lives).map(Life).filter(may_be_there).count() as u32;
        let most = most + members + 2 + resets;
        (entries > most).then(|| format!("{entries} entries, where {most} are allowed"))
    }

    /// Returns the members of the views in force at the seqnos that a life's history of this many entries holds.
    fn members_held(&self, life: Life, entries: u32, facts: &Facts) -> Lives {
        let mut members = facts.stream(life).members.clone();
        let mark = self.marks.of(life);
        let freed = self.freed.get(life).copied().unwrap_or_default();
        let base = freed.max(mark.stored.saturating_sub(entries.into()));
        let mut through = mark.stored;
        for epoch in mark.epoch.into_iter().flat_map(|epoch| facts.lineage.line(epoch)) {
            let start = facts.lineage.start(epoch).unwrap_or(0);
            let views = facts.views.between(epoch, base, through);
            views.flatten().for_each(|member| members.insert(*member));
            if start <= base {
                break;
            }
            through = start - 1;
        }
        members
    }

    /// Everything through a seqno has left the history of `record`'s life.
    fn purge(&mut self, record: &Record, epoch: Epoch, through: Seqno, facts: &Facts) -> Option<String> {
        *self.resets.at(record.life) = 0;
        *self.freed.at(record.life) = through;
        self.checked += 1;
        if self.stable.get(epoch).is_some_and(|stable| through <= *stable) {
            return None;
        }
        let lacking: Vec<Life> = lacking(epoch, through, &self.marks, facts).collect();
        if let Some(member) = lacking.iter().find(|member| !self.leavers.contains(**member)) {
            return Some(format!("{member:?} does not hold seqno {through}"));
        }
        let stream = facts.stream(record.life);
        let is_received = stream.epoch == Some(epoch) && stream.last >= through;
        if !is_received || !lacking.is_empty() {
            let (record, marks, accepted) = (record.clone(), self.marks.clone(), *self.accepted.at(epoch));
            self.undecided.push(Undecided { record, epoch, through, marks, accepted });
        }
        *self.stable.at(epoch) = through;
        None
    }

    /// True if a member counted when the entry was freed, although it had asked to leave.
    fn counted(&self, member: Life, case: &Undecided, facts: &Facts) -> bool {
        let mut leaves = self.leaves.get(member).into_iter().flatten();
        match leaves.find(|(epoch, _)| *epoch == case.epoch) {
            Some((_, leave)) => *leave > case.accepted,
            // Possibly no application lived to receive the leave.
            None => {
                let stream = facts.stream(case.record.life);
                let passed = |epoch| {
                    epoch == case.epoch && stream.last >= case.accepted
                        || facts.lineage.keeps(epoch, case.epoch, case.accepted)
                };
                !self.leavers.contains(member) || stream.epoch.is_some_and(passed)
            }
        }
    }
}

/// Returns the members of the view at a seqno that do not hold everything through it.
fn lacking<'a>(
    epoch: Epoch,
    through: Seqno,
    marks: &'a MarkTable,
    facts: &'a Facts,
) -> impl Iterator<Item = Life> + 'a {
    let start = facts.lineage.start(epoch);
    let view = start.and_then(|start| facts.views.at(epoch, through.max(start))).unwrap_or_default();
    // Each member creates the reset event itself.
    let needed = if start == Some(through) { through.saturating_sub(1) } else { through };
    view.iter().copied().filter(move |member| !marks.held(*member, epoch, needed, &facts.lineage))
}

impl Property for Stability {
    fn name(&self) -> &'static str {
        "stability"
    }

    fn interests(&self) -> u64 {
        Kind::Stored.bit()
            | Kind::Accepted.bit()
            | Kind::Purged.bit()
            | Kind::EpochBegun.bit()
            | Kind::HistoryUsed.bit()
            | Kind::Started.bit()
            | Kind::LeaveAsked.bit()
            | Kind::Left.bit()
            | Kind::Reset.bit()
            | Kind::Parted.bit()
            | Kind::Gone.bit()
            | Kind::Excluded.bit()
            | Kind::JoinFailed.bit()
    }

    #[inline(always)]
    fn observe(&mut self, record: &Record, facts: &Facts) -> Result<(), Violation> {
        let fault = match &record.what {
            What::Stored { .. } => {
                self.marks.follow(record);
                None
            }
            What::Accepted { epoch, through } => {
                let accepted = self.accepted.at(*epoch);
                *accepted = (*accepted).max(*through);
                None
            }
            What::HistoryUsed { entries } => {
                self.checked += 1;
                self.too_many(record.life, *entries, facts)
            }
            What::Purged { epoch, through } => self.purge(record, *epoch, *through, facts),
            _ => {
                self.follow(record, facts);
                None
            }
        };
        result(self, record, fault)
    }

    fn finish(&mut self, _: &End, facts: &Facts) -> Result<(), Violation> {
        for case in &self.undecided {
            let mut lacking = lacking(case.epoch, case.through, &case.marks, facts);
            if let Some(member) = lacking.find(|member| self.counted(*member, case, facts)) {
                return broken(self, &case.record, || {
                    format!("{member:?} did not hold seqno {}", case.through)
                });
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

    fn check(fixture: &Fixture) -> Result<u64, Violation> {
        fixture.check(Stability::new(&fixture.terms))
    }

    /// All members but life 2 store and deliver a message.
    fn behind() -> Fixture {
        let mut fixture = Fixture::of(3, 1);
        fixture.message(Life(1));
        fixture.purge();
        let number = fixture.send(Life(1));
        let seqno = fixture.order(Life(1), number);
        fixture.store(Life(1), seqno);
        fixture.accept(Life(0), seqno);
        fixture.accept(Life(1), seqno);
        fixture
    }

    #[test]
    fn accepts_purging_of_what_all_hold() {
        let mut fixture = behind();
        fixture.purge();
        assert!(check(&fixture).unwrap() > 0);
        fixture.store(Life(2), 4);
        fixture.purge();
        assert!(check(&fixture).is_ok());
    }

    #[test]
    fn accepts_purging_after_the_member_that_lacks_it_is_excluded() {
        let mut fixture = behind();
        fixture.crash(Life(2));
        fixture.reset(&[Life(0), Life(1)]);
        fixture.purge();
        assert!(check(&fixture).is_ok());
    }

    #[test]
    fn accepts_purging_of_a_reset_event_that_a_member_has_not_created_yet() {
        let mut fixture = behind();
        fixture.reset(&[Life(0), Life(1), Life(2)]);
        let begins =
            |record: &Record| record.life == Life(2) && matches!(record.what, What::EpochBegun { .. });
        let begins = fixture.position(begins);
        fixture.records.truncate(begins);
        let mut more = fixture.clone();
        fixture.record(Life(0), What::Purged { epoch: Epoch(1), through: 5 });
        assert!(check(&fixture).is_ok());
        more.record(Life(0), What::Purged { epoch: Epoch(1), through: 6 });
        assert!(check(&more).is_err());
    }

    #[test]
    fn rejects_purging_what_a_member_lacks() {
        let mut fixture = behind();
        fixture.record(Life(0), What::Purged { epoch: Epoch(0), through: 4 });
        assert!(check(&fixture).is_err());
    }

    #[test]
    fn rejects_purging_what_a_crashed_member_lacks_before_its_exclusion() {
        let mut fixture = behind();
        fixture.crash(Life(2));
        fixture.record(Life(1), What::Purged { epoch: Epoch(0), through: 4 });
        assert!(check(&fixture).is_err());
    }

    #[test]
    fn rejects_a_history_that_grows_without_bound() {
        let mut fixture = behind();
        let most = fixture.terms.config.history_messages + 3 + 2;
        fixture.record(Life(1), What::HistoryUsed { entries: most });
        assert!(check(&fixture).is_ok());
        fixture.record(Life(1), What::HistoryUsed { entries: most + 1 });
        assert!(check(&fixture).is_err());
    }

    #[test]
    fn members_that_left_raise_no_limit() {
        let mut fixture = Fixture::of(3, 1);
        for _ in 0..9 {
            let joiner = fixture.join();
            fixture.leave(joiner);
        }
        fixture.purge();
        let most = fixture.terms.config.history_messages + 3 + 2;
        fixture.record(Life(1), What::HistoryUsed { entries: most });
        assert!(check(&fixture).is_ok());
        fixture.record(Life(1), What::HistoryUsed { entries: most + 1 });
        assert!(check(&fixture).is_err());
    }

    // The log of a joiner begins below two leaves. Its application never knew the leavers, but their share is allowed.
    #[test]
    fn members_of_a_view_in_the_log_raise_the_limit() {
        let mut fixture = Fixture::of(5, 1);
        fixture.leave(Life(3));
        fixture.leave(Life(4));
        fixture.purge();
        let joiner = fixture.join();
        let most = fixture.terms.config.history_messages + 4 + 2;
        // The joiner has freed nothing since it began its epoch.
        for (life, more) in [(joiner, 2 + 1), (Life(0), 0)] {
            for (entries, is_good) in [(most + more, true), (most + more + 1, false)] {
                let mut fixture = fixture.clone();
                fixture.record(life, What::HistoryUsed { entries });
                assert_eq!(check(&fixture).is_ok(), is_good, "{life:?}: {entries}");
            }
        }
    }

    /// Only life 0 and life 1 hold the message after the join of life 2.
    fn purged_too_early() -> Fixture {
        let mut fixture = Fixture::of(3, 1);
        let number = fixture.send(Life(0));
        let seqno = fixture.order(Life(0), number);
        fixture.store(Life(1), seqno);
        fixture.record(Life(0), What::Purged { epoch: Epoch(0), through: seqno });
        fixture
    }

    #[test]
    fn rejects_purging_what_a_joiner_lacks_before_any_application_received_its_join() {
        let mut fixture = purged_too_early();
        assert!(check(&fixture).is_err());
        let joiner = Life(2);
        let is_received = |record: &Record| {
            matches!(record.what, What::Joined { member, .. } if member == joiner)
                || record.life == joiner && matches!(record.what, What::Entered { .. })
        };
        let (received, mut records): (Vec<Record>, Vec<Record>) =
            fixture.records.drain(..).partition(is_received);
        records.extend(received);
        fixture.records = records;
        assert!(check(&fixture).is_err());
        // Now the joiner holds it in time.
        let purged = fixture.position(|record| matches!(record.what, What::Purged { .. }));
        let through = fixture.end();
        let what = What::Stored { epoch: Epoch(0), through };
        let stored = Record { life: joiner, what, ..fixture.records[purged].clone() };
        fixture.records.insert(purged, stored);
        assert!(check(&fixture).is_ok());
    }

    /// Life 2 lacks the last message, and has asked to leave.
    fn leaver_behind() -> Fixture {
        let mut fixture = behind();
        fixture.record(Life(2), What::LeaveAsked);
        fixture
    }

    #[test]
    fn accepts_purging_what_a_leaver_lacks_whose_leave_is_accepted() {
        let mut fixture = leaver_behind();
        let before = fixture.clone();
        fixture.leave(Life(2));
        let is_accepted = |record: &Record| matches!(record.what, What::Accepted { through: 5, .. });
        let accepted = fixture.records.iter().position(is_accepted).unwrap();
        let purged = Record {
            life: Life(0),
            what: What::Purged { epoch: Epoch(0), through: 4 },
            ..fixture.records[accepted].clone()
        };
        let behind = |record: &Record| {
            record.life == Life(2) && matches!(record.what, What::Stored { .. } | What::Accepted { .. })
        };
        let late: Vec<_> =
            fixture.records.drain(before.records.len()..).filter(|record| !behind(record)).collect();
        fixture.records.extend(late);
        let accepted = fixture.records.iter().position(is_accepted).unwrap();
        let mut early = fixture.clone();
        fixture.records.insert(accepted + 1, purged.clone());
        assert!(check(&fixture).is_ok());
        early.records.insert(accepted, purged);
        assert!(check(&early).is_err());
    }

    #[test]
    fn rejects_purging_what_a_leaver_lacks_whose_leave_never_comes() {
        let mut fixture = leaver_behind();
        fixture.record(Life(0), What::Purged { epoch: Epoch(0), through: 4 });
        assert!(check(&fixture).is_err());
    }
}

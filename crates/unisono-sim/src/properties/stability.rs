//! G22, stability: an entry leaves a history only after every member of the view at its seqno has held it. (For
//! entries from before the epoch, that is the epoch's first view.) No history has more entries than the group allows.
//!
//! A leaver counts for the seqnos below its leave until the leave is accepted. After that the others wait for it by
//! courtesy only.
//!
//! Joins and leaves take no capacity from messages: a history may have n + 2 entries more, one more for each reset since
//! an entry was last freed, and one more for each message in it that a reset put before its event because it had been
//! delivered early. A reset puts there at most as many as a history has entries. Here n counts the members of all views
//! in force since the seqno after which the history begins.

use super::streams::MarkTable;
use super::tables::{Lives, Table};
use super::{Facts, GroupTerms, Property, Violation, result};
use crate::record::{Entry, Epoch, Kind, Life, Record, What};
use unisono_core::Seqno;

/// The place of a message that a reset put before its event, and the epoch that begins there.
#[derive(Clone, Copy, Debug)]
struct InTail {
    epoch: Epoch,
    seqno: Seqno,
}

/// The checker of `stability`.
#[derive(Debug)]
pub(super) struct Stability {
    history_messages: u32,
    marks: MarkTable,
    /// By epoch, how far any member knows it to be accepted.
    accepted: Table<Seqno>,
    /// By life, the number of resets since it freed an entry.
    resets: Table<u32>,
    /// By life, the messages in its history that resets put before their events.
    tails: Table<Vec<InTail>>,
    /// By life, the seqno after which its history begins.
    base: Table<Seqno>,
    /// By epoch, the seqno through which all members hold everything.
    stable: Table<Seqno>,
    checked: u64,
}

impl Stability {
    pub(super) fn new(terms: &GroupTerms) -> Stability {
        Stability {
            history_messages: terms.config.history_messages,
            marks: MarkTable::default(),
            accepted: Table::default(),
            resets: Table::default(),
            tails: Table::default(),
            base: Table::default(),
            stable: Table::default(),
            checked: 0,
        }
    }

    /// Returns a fault if this number of entries is too high.
    fn too_many(&mut self, life: Life, entries: u32, facts: &Facts) -> Option<String> {
        let most = self.history_messages + 2 + *self.resets.at(life) + self.tails.at(life).len() as u32;
        if entries <= most {
            return None;
        }
        let base = *self.base.at(life);
        let (mut members, mut through) = (Lives::default(), Seqno::MAX);
        for epoch in facts.epoch(life).into_iter().flat_map(|epoch| facts.entries.lineage.line(epoch)) {
            let views = facts.entries.views.between(epoch, base, through);
            views.flatten().for_each(|member| members.insert(*member));
            let start = facts.entries.lineage.start(epoch).unwrap_or(0);
            if start <= base {
                break;
            }
            through = start - 1;
        }
        let most = most + members.count();
        (entries > most).then(|| format!("{entries} entries, where {most} are allowed"))
    }

    /// A reset put a message before its event. Returns a fault if it is one too many.
    fn tail(&mut self, life: Life, epoch: Epoch, seqno: Seqno) -> Option<String> {
        let tails = self.tails.at(life);
        // What an earlier reset had put there, this one has cut off.
        tails.retain(|tail| tail.seqno < seqno);
        tails.push(InTail { epoch, seqno });
        let count = tails.iter().filter(|tail| tail.epoch == epoch).count() as u32;
        (count > self.history_messages)
            .then(|| format!("{count} messages that were delivered early, more than a history has"))
    }

    /// Everything through a seqno has left the history of this life. Returns a fault if a member lacks some of it.
    fn purge(&mut self, life: Life, epoch: Epoch, through: Seqno, facts: &Facts) -> Option<String> {
        *self.resets.at(life) = 0;
        self.tails.at(life).retain(|tail| tail.seqno > through);
        *self.base.at(life) = through;
        self.checked += 1;
        if self.stable.get(epoch).is_some_and(|stable| through <= *stable) {
            return None;
        }
        let entries = &facts.entries;
        let start = entries.lineage.start(epoch)?;
        // Each member creates the reset event itself.
        let needed = if start == through { through.saturating_sub(1) } else { through };
        let accepted = *self.accepted.at(epoch);
        let has_left =
            |member| entries.leaves(member).iter().any(|(e, leave)| *e == epoch && *leave <= accepted);
        let mut view = entries.views.at(epoch, through.max(start))?.iter().copied();
        let lacks = |member: &Life| !self.marks.held(*member, epoch, needed, &entries.lineage);
        let lacking = view.find(|member| lacks(member) && !has_left(*member));
        *self.stable.at(epoch) = through;
        lacking.map(|member| format!("{member:?} does not hold seqno {through}"))
    }
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
            | Kind::Tail.bit()
            | Kind::HistoryUsed.bit()
    }

    #[inline(always)]
    fn observe(&mut self, record: &Record, facts: &Facts) -> Result<(), Violation> {
        let life = record.life;
        let fault = match &record.what {
            What::Stored { through, entry, .. } => {
                self.marks.follow(record);
                match entry {
                    Entry::Base(_) => *self.base.at(life) = *through,
                    // The reset has cut off what lay there.
                    Entry::Reset(_) => self.tails.at(life).retain(|tail| tail.seqno < *through),
                    _ => {}
                }
                None
            }
            What::Accepted { epoch, through } => {
                let accepted = self.accepted.at(*epoch);
                *accepted = (*accepted).max(*through);
                None
            }
            What::EpochBegun { .. } => {
                *self.resets.at(life) += 1;
                None
            }
            What::Tail { epoch, seqno, .. } => self.tail(life, *epoch, *seqno),
            What::HistoryUsed { entries } => {
                self.checked += 1;
                self.too_many(life, *entries, facts)
            }
            What::Purged { epoch, through } => self.purge(life, *epoch, *through, facts),
            _ => None,
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
    fn messages_that_a_reset_kept_raise_the_limit_until_they_are_freed() {
        let mut fixture = Fixture::of(3, 1);
        fixture.message(Life(1));
        let end = fixture.end();
        for seqno in [end + 1, end + 2] {
            fixture.record(Life(1), What::Tail { epoch: Epoch(0), seqno, sender: Life(1), number: seqno });
        }
        fixture.purge();
        let allows = |fixture: &Fixture, more: u32| {
            let mut fixture = fixture.clone();
            let entries = fixture.terms.config.history_messages + 3 + 2 + more;
            fixture.record(Life(1), What::HistoryUsed { entries });
            check(&fixture).is_ok()
        };
        assert!(allows(&fixture, 2) && !allows(&fixture, 3), "they lie above what was freed");
        fixture.message(Life(1));
        fixture.message(Life(1));
        fixture.purge();
        assert!(allows(&fixture, 0) && !allows(&fixture, 1));
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
        let begins = |record: &Record| {
            record.life == joiner && matches!(record.what, What::Stored { entry: Entry::Base(_), .. })
        };
        if let What::Stored { through, .. } = &mut fixture.last(begins).what {
            *through -= 2;
        }
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
        let what = What::Stored { epoch: Epoch(0), through, entry: fixture.entry_at(through) };
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

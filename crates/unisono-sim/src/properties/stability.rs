//! G22, stability: what leaves a history was held by every member of the view at that place (of the epoch's first
//! view, for what came before it), and no history has more entries than the group allows.
//!
//! A leaver counts below the place of its leave until that is accepted; from then on it is waited for by courtesy only.
//! What leaves may go before any application knows of the joins and leaves that matter. In the end it is checked again,
//! by who held what when it went.
//!
//! Changes take no room from messages: n + 2 slots stand beside, and one for each reset that came since anything was
//! freed. As n count the members that the application knows, and whoever may have joined since.

use super::streams::MarkTable;
use super::tables::{Lives, Table};
use super::{Facts, Property, Terms, Violation, broken, found};
use crate::record::{End, Epoch, Kind, Life, Record, What};
use unisono_core::Seqno;

/// Something left a history, and not all is known that it is checked by.
#[derive(Debug)]
struct Doubt {
    record: Record,
    epoch: Epoch,
    through: Seqno,
    /// What lives held then.
    marks: MarkTable,
    /// What anybody in this epoch knew to be accepted then.
    accepted: Seqno,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Stability {
    history_messages: u32,
    lives: u32,
    leavers: Lives,
    /// Whose part in the group is over, as somebody was told.
    over: Lives,
    marks: MarkTable,
    /// By epoch, what anybody knows to be accepted.
    accepted: Table<Seqno>,
    /// By life, the place of its leave, in each epoch in which there is one.
    leaves: Table<Vec<(Epoch, Seqno)>>,
    /// By life, resets since it freed something.
    resets: Table<u32>,
    /// By epoch, everything through here was found to be held by all, or will be checked in the end.
    stable: Table<Seqno>,
    doubts: Vec<Doubt>,
    checked: u64,
}

impl Stability {
    pub(super) fn new(terms: &Terms) -> Stability {
        Stability {
            history_messages: terms.config.history_messages,
            lives: 0,
            leavers: Lives::default(),
            over: Lives::default(),
            marks: MarkTable::default(),
            accepted: Table::default(),
            leaves: Table::default(),
            resets: Table::default(),
            stable: Table::default(),
            doubts: Vec::new(),
            checked: 0,
        }
    }

    /// Takes note of who comes and goes.
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

    /// A history has so many entries, and that is too many.
    fn too_many(&mut self, life: Life, entries: u32, facts: &Facts) -> Option<String> {
        let (most, resets) = (self.history_messages, *self.resets.at(life));
        if entries <= most {
            return None;
        }
        let known = &facts.stream(life).members;
        let may_be_there = |life: &Life| !self.over.contains(*life) || known.contains(*life);
        let members = (0..self.lives).map(Life).filter(may_be_there).count() as u32;
        let most = most + members + 2 + resets;
        (entries > most).then(|| format!("{entries} entries, where {most} are allowed"))
    }

    /// Everything through a place has left the history of `record`'s life.
    fn purge(&mut self, record: &Record, epoch: Epoch, through: Seqno, facts: &Facts) -> Option<String> {
        *self.resets.at(record.life) = 0;
        self.checked += 1;
        if self.stable.get(epoch).is_some_and(|stable| through <= *stable) {
            return None;
        }
        let lacking: Vec<Life> = lacking(epoch, through, &self.marks, facts).collect();
        if let Some(member) = lacking.iter().find(|member| !self.leavers.contains(**member)) {
            return Some(format!("{member:?} does not hold place {through}"));
        }
        let stream = facts.stream(record.life);
        let is_told = stream.epoch == Some(epoch) && stream.last >= through;
        if !is_told || !lacking.is_empty() {
            let (record, marks, accepted) = (record.clone(), self.marks.clone(), *self.accepted.at(epoch));
            self.doubts.push(Doubt { record, epoch, through, marks, accepted });
        }
        *self.stable.at(epoch) = through;
        None
    }

    /// Whether a member counted when something left a history, though it had asked to leave.
    fn counted(&self, member: Life, doubt: &Doubt, facts: &Facts) -> bool {
        let mut leaves = self.leaves.get(member).into_iter().flatten();
        match leaves.find(|(epoch, _)| *epoch == doubt.epoch) {
            Some((_, place)) => *place > doubt.accepted,
            // It may be that nobody lived to be told of its leave.
            None => {
                let stream = facts.stream(doubt.record.life);
                let passed = |epoch| {
                    epoch == doubt.epoch && stream.last >= doubt.accepted
                        || facts.lineage.keeps(epoch, doubt.epoch, doubt.accepted)
                };
                !self.leavers.contains(member) || stream.epoch.is_some_and(passed)
            }
        }
    }
}

/// Members of the view at a place that do not hold everything through there.
fn lacking<'a>(
    epoch: Epoch,
    through: Seqno,
    marks: &'a MarkTable,
    facts: &'a Facts,
) -> impl Iterator<Item = Life> + 'a {
    let start = facts.lineage.start(epoch);
    let view = start.and_then(|start| facts.views.at(epoch, through.max(start))).unwrap_or_default();
    // The reset event itself everybody makes for himself.
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
        found(self, record, fault)
    }

    fn finish(&mut self, _: &End, facts: &Facts) -> Result<(), Violation> {
        for doubt in &self.doubts {
            let mut lacking = lacking(doubt.epoch, doubt.through, &doubt.marks, facts);
            if let Some(member) = lacking.find(|member| self.counted(*member, doubt, facts)) {
                return broken(self, &doubt.record, || {
                    format!("{member:?} did not hold place {}", doubt.through)
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

    /// Everybody but life 2 stores and delivers a message.
    fn behind() -> Fixture {
        let mut fixture = Fixture::of(3, 1);
        fixture.message(Life(1));
        fixture.purge();
        let number = fixture.send(Life(1));
        let place = fixture.order(Life(1), number);
        fixture.store(Life(1), place);
        fixture.accept(Life(0), place);
        fixture.accept(Life(1), place);
        fixture
    }

    #[test]
    fn takes_purging_of_what_all_hold() {
        let mut fixture = behind();
        fixture.purge();
        assert!(check(&fixture).unwrap() > 0);
        fixture.store(Life(2), 4);
        fixture.purge();
        assert!(check(&fixture).is_ok());
    }

    #[test]
    fn takes_purging_when_the_laggard_is_left_out() {
        let mut fixture = behind();
        fixture.crash(Life(2));
        fixture.reset(&[Life(0), Life(1)]);
        fixture.purge();
        assert!(check(&fixture).is_ok());
    }

    #[test]
    fn takes_purging_of_a_reset_event_that_one_has_not_made_yet() {
        let mut fixture = behind();
        fixture.reset(&[Life(0), Life(1), Life(2)]);
        let begins =
            |record: &Record| record.life == Life(2) && matches!(record.what, What::EpochBegun { .. });
        let begins = fixture.position(begins);
        fixture.records.truncate(begins);
        let mut more = fixture.clone();
        fixture.tell(Life(0), What::Purged { epoch: Epoch(1), through: 5 });
        assert!(check(&fixture).is_ok());
        more.tell(Life(0), What::Purged { epoch: Epoch(1), through: 6 });
        assert!(check(&more).is_err());
    }

    #[test]
    fn rejects_purging_what_one_lacks() {
        let mut fixture = behind();
        fixture.tell(Life(0), What::Purged { epoch: Epoch(0), through: 4 });
        assert!(check(&fixture).is_err());
    }

    #[test]
    fn rejects_purging_what_a_dead_member_lacks_before_it_is_excluded() {
        let mut fixture = behind();
        fixture.crash(Life(2));
        fixture.tell(Life(1), What::Purged { epoch: Epoch(0), through: 4 });
        assert!(check(&fixture).is_err());
    }

    #[test]
    fn rejects_a_history_that_grows_without_bound() {
        let mut fixture = behind();
        let most = fixture.terms.config.history_messages + 3 + 2;
        fixture.tell(Life(1), What::HistoryUsed { entries: most });
        assert!(check(&fixture).is_ok());
        fixture.tell(Life(1), What::HistoryUsed { entries: most + 1 });
        assert!(check(&fixture).is_err());
    }

    #[test]
    fn those_who_came_and_went_leave_no_room_behind() {
        let mut fixture = Fixture::of(3, 1);
        for _ in 0..9 {
            let joiner = fixture.join();
            fixture.leave(joiner);
        }
        fixture.purge();
        let most = fixture.terms.config.history_messages + 3 + 2;
        fixture.tell(Life(1), What::HistoryUsed { entries: most });
        assert!(check(&fixture).is_ok());
        fixture.tell(Life(1), What::HistoryUsed { entries: most + 1 });
        assert!(check(&fixture).is_err());
    }

    /// Nobody but life 0 has a place after the join of life 2.
    fn purged_too_early() -> Fixture {
        let mut fixture = Fixture::of(3, 1);
        let number = fixture.send(Life(0));
        let place = fixture.order(Life(0), number);
        fixture.store(Life(1), place);
        fixture.tell(Life(0), What::Purged { epoch: Epoch(0), through: place });
        fixture
    }

    #[test]
    fn rejects_purging_what_a_joiner_lacks_of_whose_join_nobody_was_told_yet() {
        let mut fixture = purged_too_early();
        assert!(check(&fixture).is_err());
        let joiner = Life(2);
        let is_told = |record: &Record| {
            matches!(record.what, What::Joined { member, .. } if member == joiner)
                || record.life == joiner && matches!(record.what, What::Entered { .. })
        };
        let (told, mut records): (Vec<Record>, Vec<Record>) = fixture.records.drain(..).partition(is_told);
        records.extend(told);
        fixture.records = records;
        assert!(check(&fixture).is_err());
        // It holds it in time.
        let purged = fixture.position(|record| matches!(record.what, What::Purged { .. }));
        let through = fixture.end();
        let what = What::Stored { epoch: Epoch(0), through };
        let stored = Record { life: joiner, what, ..fixture.records[purged].clone() };
        fixture.records.insert(purged, stored);
        assert!(check(&fixture).is_ok());
    }

    /// Life 2 lacks the last message, and is leaving.
    fn leaver_behind() -> Fixture {
        let mut fixture = behind();
        fixture.tell(Life(2), What::LeaveAsked);
        fixture
    }

    #[test]
    fn takes_purging_what_a_leaver_lacks_whose_leave_is_accepted() {
        let mut fixture = leaver_behind();
        let told = fixture.clone();
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
            fixture.records.drain(told.records.len()..).filter(|record| !behind(record)).collect();
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
        fixture.tell(Life(0), What::Purged { epoch: Epoch(0), through: 4 });
        assert!(check(&fixture).is_err());
    }
}

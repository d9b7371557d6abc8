//! Joins and leaves are held by quorums, which keeps the quorums of neighbouring views intersecting
//! (docs/protocol/membership.md). A join or leave is accepted only after it was held by a quorum of the members
//! before it, by a quorum of the members after it, and by the joiner. Exception, for a reset: a decided reset that
//! keeps the join or leave makes it accepted, since a quorum holds everything that it prepares. The next join or
//! leave is numbered only by a sequencer that knows the last one to be accepted; so is an event that hands the role
//! on.
//!
//! The checker learns which seqnos are joins and leaves only when an application receives them. So it keeps, for
//! every seqno of an epoch, when each life came to hold it and when the first life took it for accepted.
//!
//! Under *at least n* quorums need not intersect, and only the rule about numbering is checked.

use super::quorum::Rule;
use super::streams::VIEW_CHANGES;
use super::tables::Table;
use super::{Facts, GroupTerms, Property, Violation, broken};
use crate::record::{Epoch, Kind, Life, Record, What};
use unisono_core::Seqno;

/// Seqnos that a sequencer assigned together, through `to`, and how far it knew the log to be accepted then.
#[derive(Clone, Copy, Debug)]
struct Run {
    to: Seqno,
    accepted: Seqno,
}

/// How far a watermark had come, and when: counted in records.
#[derive(Clone, Debug, Default)]
struct Progress(Vec<(Seqno, u64)>);

impl Progress {
    #[inline]
    fn reach(&mut self, through: Seqno, now: u64) {
        if self.0.last().is_none_or(|(last, _)| *last < through) {
            self.0.push((through, now));
        }
    }

    /// Returns when it came to a seqno.
    fn reached(&self, seqno: Seqno) -> Option<u64> {
        let (_, when) = self.0.get(self.0.partition_point(|(through, _)| *through < seqno))?;
        Some(*when)
    }
}

#[derive(Clone, Debug, Default)]
struct Changes {
    runs: Vec<Run>,
    /// Seqnos of joins and leaves that any application has received, ascending.
    seqnos: Vec<Seqno>,
    /// What each life holds.
    stored: Table<Progress>,
    /// How far any life took the log for accepted without learning it from a decision.
    accepted: Progress,
    /// Seqno at which the next epoch begins, and when the first life entered it.
    ended: Option<(Seqno, u64)>,
}

/// The checker of `change_quorum`.
#[derive(Debug)]
pub(super) struct ChangeQuorum {
    rule: Rule,
    epochs: Table<Changes>,
    /// How far each life knows its log to be accepted.
    accepted: Table<Seqno>,
    /// Epoch of each life's last promise.
    promised: Table<Option<Epoch>>,
    /// By prepared epoch, the epoch that it is to follow, and the seqno at which it begins.
    prepared: Table<Option<(Epoch, Seqno)>>,
    /// Number of records so far.
    now: u64,
    checked: u64,
}

impl ChangeQuorum {
    pub(super) fn new(terms: &GroupTerms) -> ChangeQuorum {
        ChangeQuorum {
            rule: Rule::new(terms.config.quorum.clone()),
            epochs: Table::default(),
            accepted: Table::default(),
            promised: Table::default(),
            prepared: Table::default(),
            now: 0,
            checked: 0,
        }
    }

    /// Returns a fault if too few members of these views held a change when the first life took it for accepted.
    fn too_few(
        &self,
        epoch: Epoch,
        seqno: Seqno,
        joiner: Option<Life>,
        sides: [&[Life]; 2],
    ) -> Option<String> {
        let changes = self.epochs.get(epoch)?;
        // If no life accepted it by itself, all that received it learned it from a reset.
        let accepted = changes.accepted.reached(seqno)?;
        if changes.ended.is_some_and(|(start, when)| seqno < start && when < accepted) {
            return None;
        }
        let holds = |life: Life| {
            let stored = changes.stored.get(life).and_then(|stored| stored.reached(seqno));
            stored.is_some_and(|when| when < accepted)
        };
        if let Some(joiner) = joiner.filter(|joiner| !holds(*joiner)) {
            return Some(format!("{joiner:?} did not hold its own join when it was accepted"));
        }
        sides.into_iter().filter(|view| !view.is_empty()).find_map(|view| {
            let holders: Vec<_> = view.iter().copied().filter(|life| holds(*life)).collect();
            let few = !self.rule.met(&holders, view);
            few.then(|| format!("only {holders:?} of {view:?} held it when it was accepted"))
        })
    }

    /// Returns a fault if the change before this event was not known to be accepted when the event was numbered.
    fn too_early(&self, epoch: Epoch, seqno: Seqno) -> Option<String> {
        let changes = self.epochs.get(epoch)?;
        let below = changes.seqnos.partition_point(|other| *other < seqno);
        let last = *changes.seqnos.get(below.checked_sub(1)?)?;
        let run = changes.runs.get(changes.runs.partition_point(|run| run.to < seqno))?;
        let Run { accepted, .. } = *run;
        (accepted < last).then(|| {
            format!(
                "{seqno} was assigned when only {accepted} was accepted, and the last change is at {last}"
            )
        })
    }
}

impl Property for ChangeQuorum {
    fn name(&self) -> &'static str {
        "change_quorum"
    }

    fn interests(&self) -> u64 {
        VIEW_CHANGES
            | Kind::HandedOver.bit()
            | Kind::Stored.bit()
            | Kind::Accepted.bit()
            | Kind::Numbered.bit()
            | Rule::FOLLOWED
            | Kind::Promised.bit()
            | Kind::Prepared.bit()
            | Kind::EpochBegun.bit()
    }

    #[inline(always)]
    fn observe(&mut self, record: &Record, facts: &Facts) -> Result<(), Violation> {
        self.now += 1;
        match record.what {
            What::Started { .. } | What::ForceAsked { .. } => self.rule.follow(record),
            What::Stored { epoch, through } => {
                self.epochs.at(epoch).stored.at(record.life).reach(through, self.now);
            }
            What::Accepted { epoch, through } => {
                *self.accepted.at(record.life) = through;
                // A life that has promised a ballot accepts only what a decision keeps.
                if *self.promised.at(record.life) != Some(epoch) {
                    self.epochs.at(epoch).accepted.reach(through, self.now);
                }
            }
            What::Promised { epoch, .. } => *self.promised.at(record.life) = Some(epoch),
            What::Prepared { epoch, ref preparation } => {
                *self.prepared.at(preparation.next) = Some((epoch, preparation.start));
            }
            What::EpochBegun { epoch } => {
                if let Some((before, start)) = *self.prepared.at(epoch) {
                    self.epochs.at(before).ended.get_or_insert((start, self.now));
                }
            }
            What::Numbered { epoch, to, .. } => {
                let accepted = *self.accepted.at(record.life);
                self.epochs.at(epoch).runs.push(Run { to, accepted });
            }
            What::HandedOver { seqno, .. } => {
                let Some(epoch) = facts.stream(record.life).epoch else { return Ok(()) };
                self.checked += 1;
                if let Some(fault) = self.too_early(epoch, seqno) {
                    return broken(self, record, || fault);
                }
            }
            _ => {
                // Possibly no other application has received the seqno just below a joiner's join.
                let before = match &record.what {
                    What::Entered { view, .. } => {
                        view.members.iter().copied().filter(|member| *member != record.life).collect()
                    }
                    _ => facts.before().view.clone(),
                };
                let joiner = match record.what {
                    What::Joined { member, .. } => Some(member),
                    What::Entered { seqno, .. } if seqno > 0 => Some(record.life),
                    What::Left { .. } => None,
                    _ => return Ok(()),
                };
                let stream = facts.stream(record.life);
                let (Some(epoch), seqno) = (stream.epoch, stream.last) else { return Ok(()) };
                let seqnos = &mut self.epochs.at(epoch).seqnos;
                let Err(rank) = seqnos.binary_search(&seqno) else { return Ok(()) };
                seqnos.insert(rank, seqno);
                let next = seqnos.get(rank + 1).copied();
                self.checked += 1;
                let few = match self.rule.intersects() {
                    true => self.too_few(epoch, seqno, joiner, [&before, &stream.view]),
                    false => None,
                };
                // A joiner may have received the next change first.
                let early = || {
                    [Some(seqno), next].into_iter().flatten().find_map(|seqno| self.too_early(epoch, seqno))
                };
                if let Some(fault) = few.or_else(early) {
                    return broken(self, record, || fault);
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

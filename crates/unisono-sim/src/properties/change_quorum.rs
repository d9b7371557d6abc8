//! Changes are held by quorums (what keeps quorums of neighbouring views intersecting, docs/protocol/membership.md):
//! a join or leave is taken for accepted only when a quorum of the members before it and one of those after it have held it, and
//! the joiner; and the next is numbered only by a sequencer that knows the last to be accepted. So is an event that hands the
//! role on. What a decided reset keeps counts as accepted: a quorum holds it to prepare it.
//!
//! What is a change shows only when an application is told of it. So it is kept when each life came to hold which places
//! of an epoch, and when the first took them for accepted.
//!
//! Under *at least n* quorums need not meet, and only the second half is checked.

use super::quorum::Rule;
use super::streams::VIEW_CHANGES;
use super::tables::Table;
use super::{Facts, Property, Terms, Violation, broken};
use crate::record::{Epoch, Kind, Life, Record, What};
use unisono_core::Seqno;

/// A run of numbers, and what their sequencer knew to be accepted.
#[derive(Clone, Copy, Debug)]
struct Run {
    to: Seqno,
    accepted: Seqno,
}

/// How far something came, and when: after how many records.
#[derive(Clone, Debug, Default)]
struct Course(Vec<(Seqno, u64)>);

impl Course {
    #[inline]
    fn reach(&mut self, through: Seqno, now: u64) {
        if self.0.last().is_none_or(|(last, _)| *last < through) {
            self.0.push((through, now));
        }
    }

    /// When it came to a place.
    fn reached(&self, seqno: Seqno) -> Option<u64> {
        let (_, when) = self.0.get(self.0.partition_point(|(through, _)| *through < seqno))?;
        Some(*when)
    }
}

#[derive(Clone, Debug, Default)]
struct Changes {
    runs: Vec<Run>,
    /// Places of joins and leaves that somebody was told of, ascending.
    places: Vec<Seqno>,
    /// What each life holds.
    stored: Table<Course>,
    /// What anybody takes for accepted without being told by a decision.
    accepted: Course,
    /// Where the next epoch begins, and when the first life was there.
    ended: Option<(Seqno, u64)>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct ChangeQuorum {
    rule: Rule,
    epochs: Table<Changes>,
    /// What each life knows to be accepted.
    accepted: Table<Seqno>,
    /// In which epoch each life promised a ballot last.
    promised: Table<Option<Epoch>>,
    /// Which epoch each is to follow, and from where on, by those who prepared it.
    prepared: Table<Option<(Epoch, Seqno)>>,
    /// So many records were looked at.
    now: u64,
    checked: u64,
}

impl ChangeQuorum {
    pub(super) fn new(terms: &Terms) -> ChangeQuorum {
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

    /// Too few held a change between these views when the first took it for accepted.
    fn too_few(
        &self,
        epoch: Epoch,
        seqno: Seqno,
        joiner: Option<Life>,
        sides: [&[Life]; 2],
    ) -> Option<String> {
        let changes = self.epochs.get(epoch)?;
        // Otherwise all who were told of it got it from a reset.
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
            few.then(|| format!("of {view:?} only {holders:?} held it when it was accepted"))
        })
    }

    /// The last change before this one was not accepted when this one was numbered.
    fn too_early(&self, epoch: Epoch, seqno: Seqno) -> Option<String> {
        let changes = self.epochs.get(epoch)?;
        let below = changes.places.partition_point(|place| *place < seqno);
        let last = *changes.places.get(below.checked_sub(1)?)?;
        let run = changes.runs.get(changes.runs.partition_point(|run| run.to < seqno))?;
        let Run { accepted, .. } = *run;
        (accepted < last).then(|| {
            format!(
                "the sequencer of {seqno} knew {accepted} to be accepted, and the last change is at {last}"
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
                // Who has promised a ballot accepts only what a decision keeps.
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
                // Nobody else may have been told yet of what lies just below a joiner's join.
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
                let places = &mut self.epochs.at(epoch).places;
                let Err(rank) = places.binary_search(&seqno) else { return Ok(()) };
                places.insert(rank, seqno);
                let next = places.get(rank + 1).copied();
                self.checked += 1;
                let few = match self.rule.intersects() {
                    true => self.too_few(epoch, seqno, joiner, [&before, &stream.view]),
                    false => None,
                };
                // A joiner may have been told of the next one first.
                let early = || {
                    [Some(seqno), next].into_iter().flatten().find_map(|place| self.too_early(epoch, place))
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

    /// Without what these lives stored at the last place, and with nothing after it.
    fn forget(fixture: &mut Fixture, lives: &[u32]) {
        let end = fixture.end();
        fixture.records.retain(|record| {
            let stores = matches!(record.what, What::Stored { through, .. } if through == end);
            !(stores && lives.contains(&record.life.0))
        });
    }

    #[test]
    fn takes_changes_that_quorums_hold() {
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

    /// Life 0 takes the last change for accepted when it has numbered it, and nobody else holds it yet.
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
    fn rejects_a_change_accepted_alone_and_told_when_all_hold_it() {
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
    fn rejects_a_change_accepted_alone_by_one_that_goes_on_before_it_tells() {
        let mut fixture = Fixture::of(4, 0);
        let joiner = fixture.join();
        accept_alone(&mut fixture);
        let (told, mut records): (Vec<Record>, Vec<Record>) = fixture.records.drain(..).partition(|record| {
            matches!(record.what, What::Joined { member, .. } if member == joiner)
                || record.life == joiner && matches!(record.what, What::Entered { .. })
        });
        std::mem::swap(&mut fixture.records, &mut records);
        let before = fixture.records.len();
        fixture.reset(&[Life(0), Life(1), Life(2), Life(3), joiner]);
        let reset = before + fixture.records[before..].iter().position(reset_event).unwrap();
        fixture.records.splice(reset..reset, told);
        assert!(check(&fixture).is_err());
    }

    fn reset_event(record: &Record) -> bool {
        matches!(record.what, What::Reset(_))
    }

    #[test]
    fn takes_a_join_that_a_reset_keeps_and_somebody_left_out_learns_of() {
        let mut fixture = Fixture::of(4, 0);
        let epoch = Epoch(0);
        let common = fixture.records.len();
        let joiner = fixture.join();
        let place = fixture.end();
        let mut more = fixture.records.split_off(common);
        // Life 3 holds it and hears of nothing further; the joiner never holds it.
        more.retain(|record| match record.what {
            What::Stored { through, .. } => record.life != joiner || through < place,
            What::Accepted { through, .. } => through < place,
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
            What::Accepted { epoch, through: place },
            What::Joined { seqno: place, member: joiner, members: 5 },
            excluded.what,
        ] {
            fixture.tell(Life(3), what);
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
    fn rejects_a_leave_that_only_those_after_it_hold() {
        let mut fixture = Fixture::of(4, 0);
        fixture.leave(Life(0));
        assert!(check(&fixture).is_ok());
        // Lives 1 and 2 are a quorum of the three who stay, and not of the four before.
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
        let place = fixture.end();
        fixture.join();
        fixture.join();
        let known = |record: &Record| {
            record.life == Life(0) && matches!(record.what, What::Accepted { through, .. } if through > place)
        };
        fixture.records.retain(|record| !known(record));
        assert!(check(&fixture).is_err());
        // So it is where the second joiner's application is told first.
        let is_told = |record: &Record| matches!(record.what, What::Joined { seqno, .. } | What::Entered { seqno, .. } if seqno > place);
        let is_second =
            |record: &Record| matches!(record.what, What::Entered { seqno, .. } if seqno > place + 1);
        let (told, mut records): (Vec<Record>, Vec<Record>) = fixture.records.drain(..).partition(is_told);
        let (first, then): (Vec<Record>, Vec<Record>) = told.into_iter().partition(is_second);
        records.extend(first.into_iter().chain(then));
        fixture.records = records;
        assert!(check(&fixture).is_err());
    }
}

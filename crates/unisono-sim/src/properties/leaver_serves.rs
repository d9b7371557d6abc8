//! A leaver serves (G19's second half): it parts only when a quorum of those who stay knows its leave accepted, or
//! holds the next join or leave (numbered by one who knew), or a quorum of a next view that keeps its leave has
//! entered, or when it has waited long for that. Who parts sooner may leave the others stuck, without a crash.
//!
//! What counts is when the member itself knew its leave accepted, and when it parted: its application may be told of
//! both later, at once, or never. One that does not know its leave accepted may be the one that is needed to bring that
//! about: it parts by itself only after a minute.

use super::quorum::Rule;
use super::streams::{Lineage, Mark, Stream, VIEW_CHANGES};
use super::tables::Table;
use super::{Facts, Property, Terms, Violation};
use crate::record::{End, Epoch, Kind, Life, Record, What};
use std::time::Duration;
use unisono_core::{Seqno, Time};

/// Whoever needed a leaver that knows its leave accepted for longer than this is long gone.
const PATIENCE: Duration = Duration::from_secs(2);
/// A leaver that does not may be the one that is needed: it gives up after a minute, by whatever clock it has.
const PATIENCE_UNKNOWING: Duration = Duration::from_secs(55);

/// What is known of one life's leave.
#[derive(Clone, Debug, Default)]
struct Parting {
    asked: Option<Time>,
    /// When it knew the leave accepted.
    known: Option<Time>,
    parted: Option<Parted>,
    /// As its application was told, or any other.
    leave: Option<Leave>,
}

/// Somebody parted: when, and how far all were then.
#[derive(Clone, Debug)]
struct Parted {
    at: Time,
    marks: Table<Mark>,
}

#[derive(Clone, Debug)]
struct Leave {
    epoch: Epoch,
    seqno: Seqno,
    staying: Vec<Life>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct LeaverServes {
    rule: Rule,
    partings: Table<Parting>,
    /// Joins and leaves of each epoch.
    changes: Table<Vec<Seqno>>,
    /// The first view of each epoch that a reset brought about, and who entered it when.
    first: Table<Vec<Life>>,
    entered: Table<Vec<(Life, Time)>>,
    checked: u64,
}

impl LeaverServes {
    pub(super) fn new(terms: &Terms) -> LeaverServes {
        LeaverServes {
            rule: Rule::new(terms.config.quorum.clone()),
            partings: Table::default(),
            changes: Table::default(),
            first: Table::default(),
            entered: Table::default(),
            checked: 0,
        }
    }

    /// A join or leave: the stream of `life` is at it.
    fn change(&mut self, life: Life, stream: &Stream, change: &What) {
        let Some(epoch) = stream.epoch else { return };
        let (What::Joined { seqno, .. } | What::Left { seqno, .. }) = *change else { return };
        self.changes.at(epoch).push(seqno);
        if let What::Left { member, .. } = *change {
            let leave = &mut self.partings.at(member).leave;
            // Another line may have a leave of its own.
            if member == life || (leave.is_none() && self.rule.intersects()) {
                *leave = Some(Leave { epoch, seqno, staying: stream.view.clone() });
            }
        }
    }

    /// It had waited long enough.
    fn has_waited(parting: &Parting, parted: &Parted) -> bool {
        let asked = parting.asked.map(|asked| asked + PATIENCE_UNKNOWING);
        let known = parting.known.map(|known| known + PATIENCE);
        asked.into_iter().chain(known).any(|until| until <= parted.at)
    }

    /// A quorum of those who stay held the next join or leave.
    fn is_overtaken(&self, leave: &Leave, parted: &Parted) -> bool {
        let changes = self.changes.get(leave.epoch).into_iter().flatten().copied();
        changes.filter(|place| *place > leave.seqno).min().is_some_and(|next| {
            let holds = |life: &Life| {
                let mark = parted.marks.get(*life);
                mark.is_some_and(|mark| mark.epoch == Some(leave.epoch) && mark.stored >= next)
            };
            let holding: Vec<_> = leave.staying.iter().copied().filter(holds).collect();
            self.rule.met(&holding, &leave.staying)
        })
    }

    /// A quorum of a next view that keeps the leave had entered.
    fn is_settled(&self, leave: &Leave, parted: &Parted, lineage: &Lineage) -> bool {
        let Leave { epoch, seqno, .. } = *leave;
        lineage.children(epoch).iter().filter(|next| lineage.keeps(**next, epoch, seqno)).any(|next| {
            let entered = self.entered.get(*next).into_iter().flatten();
            let there: Vec<_> = entered.filter(|(_, at)| *at <= parted.at).map(|(life, _)| *life).collect();
            self.first.get(*next).is_some_and(|view| !view.is_empty() && self.rule.met(&there, view))
        })
    }

    /// What is wrong with how this life parted.
    fn fault(&self, life: usize, parting: &Parting, parted: &Parted, lineage: &Lineage) -> Option<String> {
        let leave = parting.leave.as_ref()?;
        let staying = &leave.staying;
        let knows = |life: &Life| parted.marks.get(*life).is_some_and(|mark| mark.accepted >= leave.seqno);
        let knowing: Vec<_> = staying.iter().copied().filter(knows).collect();
        let may_go = staying.is_empty()
            || self.rule.met(&knowing, staying)
            || LeaverServes::has_waited(parting, parted)
            || self.is_overtaken(leave, parted)
            || self.is_settled(leave, parted, lineage);
        let at = parted.at.as_nanos();
        (!may_go).then(|| {
            format!(
                "Life({life}) parted at {at} ns, when of {staying:?} only {knowing:?} knew its leave accepted"
            )
        })
    }
}

impl Property for LeaverServes {
    fn name(&self) -> &'static str {
        "leaver_serves"
    }

    fn interests(&self) -> u64 {
        let parting = Kind::LeaveAsked.bit() | Kind::LeaveKnown.bit() | Kind::Parted.bit();
        VIEW_CHANGES | Kind::Started.bit() | Kind::EpochBegun.bit() | parting
    }

    #[inline(always)]
    fn observe(&mut self, record: &Record, facts: &Facts) -> Result<(), Violation> {
        let Record { at, life, .. } = *record;
        match &record.what {
            What::Started { .. } => self.rule.follow(record),
            What::EpochBegun { epoch } => self.entered.at(*epoch).push((life, at)),
            What::LeaveAsked => self.partings.at(life).asked = Some(at),
            What::LeaveKnown => self.partings.at(life).known = Some(at),
            What::Parted => {
                self.partings.at(life).parted = Some(Parted { at, marks: facts.marks.all() });
            }
            What::Reset(_) => {
                let stream = facts.stream(life);
                if let Some(epoch) = stream.epoch {
                    self.first.at(epoch).clone_from(&stream.view);
                }
            }
            change => self.change(life, facts.stream(life), change),
        }
        Ok(())
    }

    fn finish(&mut self, end: &End, facts: &Facts) -> Result<(), Violation> {
        for (life, parting) in self.partings.iter().enumerate() {
            if let (Some(_), Some(parted)) = (parting.asked, &parting.parted) {
                self.checked += 1;
                if let Some(what) = self.fault(life, parting, parted, &facts.lineage) {
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
    use unisono_core::Quorum;

    fn check(fixture: &Fixture) -> Result<u64, Violation> {
        fixture.check(LeaverServes::new(&fixture.terms))
    }

    /// The last of four leaves, and these do not know its leave accepted when it parts.
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

    /// The leaver parts, and is told that it is gone, only now.
    fn parts_at(fixture: &mut Fixture, at: Time) {
        let (gone, parted) = (fixture.records.pop(), fixture.records.pop());
        fixture.records.extend(parted.into_iter().chain(gone).map(|record| Record { at, ..record }));
    }

    #[test]
    fn takes_a_leaver_that_waits_for_a_quorum() {
        assert_eq!(check(&without(&[])).unwrap(), 1);
        assert!(check(&without(&[2])).is_ok());
    }

    #[test]
    fn rejects_a_leaver_that_goes_when_it_alone_knows() {
        assert!(check(&without(&[0, 1, 2])).is_err());
    }

    #[test]
    fn rejects_a_leaver_that_goes_when_too_few_know() {
        assert!(check(&without(&[0, 1])).is_err());
    }

    #[test]
    fn takes_a_leaver_that_has_waited_long() {
        let mut fixture = without(&[0, 1]);
        let known = fixture.last(|record| record.what == What::LeaveKnown).at;
        parts_at(&mut fixture, known + (PATIENCE - Duration::from_nanos(1)));
        assert!(check(&fixture).is_err());
        parts_at(&mut fixture, known + PATIENCE);
        assert!(check(&fixture).is_ok());
    }

    #[test]
    fn minds_when_a_leaver_parts_and_not_when_its_application_is_told() {
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
    fn rejects_a_leaver_that_parts_before_the_others_learn_what_they_know_when_it_is_told() {
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
    fn takes_a_leaver_whose_leave_a_reset_keeps_once_a_quorum_has_entered() {
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

    #[test]
    fn takes_a_leaver_once_a_quorum_of_those_who_stay_holds_the_next_change() {
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
    fn minds_a_leaver_that_is_never_told() {
        for ignorant in [&[0, 1, 2][..], &[]] {
            let mut fixture = without(ignorant);
            fixture.records.pop();
            fixture.tell(Life(3), What::Crashed);
            assert_eq!(check(&fixture).is_ok(), ignorant.is_empty());
        }
    }

    #[test]
    fn minds_a_leaver_of_whose_leave_only_others_are_told() {
        for quorum in [Quorum::MajorityOfView, Quorum::AtLeast(1)] {
            let mut fixture = without(&[0, 1, 2]);
            fixture.terms.config.quorum = quorum;
            let own = |record: &Record| record.life == Life(3) && matches!(record.what, What::Left { .. });
            fixture.records.remove(fixture.position(own));
            // Another line may have a leave of its own.
            assert_eq!(check(&fixture).is_err(), fixture.terms.config.quorum == Quorum::MajorityOfView);
        }
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
    fn takes_the_last_one_that_turns_off_the_light() {
        let mut fixture = Fixture::of(1, 0);
        fixture.leave(Life(0));
        assert_eq!(check(&fixture).unwrap(), 1);
    }
}

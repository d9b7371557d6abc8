//! G19, second half: a leaver serves its log until one of these is true. A quorum of the remaining members knows that
//! the leave is accepted. Or such a quorum holds the next join or leave, which is numbered only by a sequencer that
//! knows it. Or a quorum of a next view that keeps the leave has entered. Or the leaver has waited for this for
//! seconds. A leaver that parts sooner may leave the others stuck without any crash.
//!
//! The times that count are those at which the member itself knew its leave to be accepted, and parted. Its
//! application may receive both later, at once, or never. A leaver that does not know its leave to be accepted may
//! itself be needed for that, so it gives up only after a minute.

use super::quorum::Rule;
use super::streams::{Lineage, Mark, Stream, VIEW_CHANGES};
use super::tables::Table;
use super::{Facts, GroupTerms, Property, Violation};
use crate::record::{End, Epoch, Kind, Life, Record, What};
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
    /// Time at which it knew the leave to be accepted.
    known: Option<Time>,
    parted: Option<Parted>,
    /// The leave as its own application received it, or any other.
    leave: Option<Leave>,
}

/// Time at which a life parted, and all watermarks at that time.
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

/// The checker of `leaver_serves`.
#[derive(Debug)]
pub(super) struct LeaverServes {
    rule: Rule,
    partings: Table<Parting>,
    /// By epoch, the seqnos of joins and leaves.
    changes: Table<Vec<Seqno>>,
    /// First view of each epoch that a reset began; below, the lives that entered it, and when.
    first: Table<Vec<Life>>,
    entered: Table<Vec<(Life, Time)>>,
    checked: u64,
}

impl LeaverServes {
    pub(super) fn new(terms: &GroupTerms) -> LeaverServes {
        LeaverServes {
            rule: Rule::new(terms.config.quorum.clone()),
            partings: Table::default(),
            changes: Table::default(),
            first: Table::default(),
            entered: Table::default(),
            checked: 0,
        }
    }

    /// Takes note of a join or leave that `life` received.
    fn change(&mut self, life: Life, stream: &Stream, change: &What) {
        let Some(epoch) = stream.epoch else { return };
        let (What::Joined { seqno, .. } | What::Left { seqno, .. }) = *change else { return };
        self.changes.at(epoch).push(seqno);
        if let What::Left { member, .. } = *change {
            let leave = &mut self.partings.at(member).leave;
            // Another line may have another leave of the same member.
            if member == life || (leave.is_none() && self.rule.intersects()) {
                *leave = Some(Leave { epoch, seqno, staying: stream.view.clone() });
            }
        }
    }

    /// True if the leaver had waited long enough.
    fn has_waited(parting: &Parting, parted: &Parted) -> bool {
        let asked = parting.asked.map(|asked| asked + PATIENCE_UNKNOWING);
        let known = parting.known.map(|known| known + PATIENCE);
        asked.into_iter().chain(known).any(|until| until <= parted.at)
    }

    /// True if a quorum of the remaining members held the next join or leave.
    fn is_overtaken(&self, leave: &Leave, parted: &Parted) -> bool {
        let changes = self.changes.get(leave.epoch).into_iter().flatten().copied();
        changes.filter(|seqno| *seqno > leave.seqno).min().is_some_and(|next| {
            let holds = |life: &Life| {
                let mark = parted.marks.get(*life);
                mark.is_some_and(|mark| mark.epoch == Some(leave.epoch) && mark.stored >= next)
            };
            let holding: Vec<_> = leave.staying.iter().copied().filter(holds).collect();
            self.rule.met(&holding, &leave.staying)
        })
    }

    /// True if a quorum of a next view that keeps the leave had entered.
    fn is_settled(&self, leave: &Leave, parted: &Parted, lineage: &Lineage) -> bool {
        let Leave { epoch, seqno, .. } = *leave;
        lineage.children(epoch).iter().filter(|next| lineage.keeps(**next, epoch, seqno)).any(|next| {
            let entered = self.entered.get(*next).into_iter().flatten();
            let there: Vec<_> = entered.filter(|(_, at)| *at <= parted.at).map(|(life, _)| *life).collect();
            self.first.get(*next).is_some_and(|view| !view.is_empty() && self.rule.met(&there, view))
        })
    }

    /// Returns a fault if this life parted too soon.
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
                "Life({life}) parted at {at} ns, when only {knowing:?} of {staying:?} knew its leave accepted"
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
            let own = |record: &Record| record.life == Life(3) && matches!(record.what, What::Left { .. });
            fixture.records.remove(fixture.position(own));
            // Another line may have another leave of the same member.
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
    fn accepts_the_leave_of_the_last_member() {
        let mut fixture = Fixture::of(1, 0);
        fixture.leave(Life(0));
        assert_eq!(check(&fixture).unwrap(), 1);
    }
}

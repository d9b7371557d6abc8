//! Watermarks, checked inside the members (G6 and G16): within an epoch, neither what a member holds nor what it
//! knows to be accepted falls. A member acknowledges and purges only what it holds, and delivers only what it knows
//! to be accepted. It enters no epoch that keeps less than it knew to be accepted.
//!
//! Exception, for a reset that leaves out a leaver and keeps its leave: the leaver cuts its log at its leave, and its
//! part in the group must then be over. A process that only listens may begin to listen again, with nothing.

use super::streams::{SEQUENCED, seqno_of};
use super::tables::Table;
use super::{Facts, Property, Violation, broken};
use crate::record::{End, Epoch, Kind, Record, What};
use std::fmt;
use unisono_core::{Phase, Seqno};

#[derive(Clone, Copy, Debug, Default)]
struct State {
    epoch: Option<Epoch>,
    stored: Seqno,
    accepted: Seqno,
    entered: bool,
    /// True once its application asked to leave.
    leaves: bool,
    /// True if it dropped entries within an epoch, so its leave must have been kept.
    cut: bool,
}

/// What is wrong with a record.
enum Fault {
    Dropped,
    Kept(Seqno),
    Fell(Seqno),
    Lacks(Seqno),
    Early(Seqno),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Dropped => f.write_str("it had dropped entries that it held"),
            Fault::Kept(through) => {
                write!(f, "the new epoch keeps only through {through}, and more was accepted")
            }
            Fault::Fell(known) => write!(f, "it knew {known} to be accepted"),
            Fault::Lacks(stored) => write!(f, "it holds only through {stored}"),
            Fault::Early(accepted) => write!(f, "it is delivered, and only {accepted} is accepted"),
        }
    }
}

/// The checker of `watermarks`.
#[derive(Debug, Default)]
pub(super) struct Watermarks {
    states: Table<State>,
    checked: u64,
}

impl Property for Watermarks {
    fn name(&self) -> &'static str {
        "watermarks"
    }

    fn interests(&self) -> u64 {
        SEQUENCED
            | Kind::LeaveAsked.bit()
            | Kind::EpochBegun.bit()
            | Kind::Stored.bit()
            | Kind::Accepted.bit()
            | Kind::Purged.bit()
            | Kind::Acknowledged.bit()
            | Kind::Numbered.bit()
    }

    #[inline(always)]
    fn observe(&mut self, record: &Record, _: &Facts) -> Result<(), Violation> {
        self.checked += 1;
        let state = self.states.at(record.life);
        let fault = match record.what {
            What::Stored { epoch, through, .. } => {
                let known = std::mem::replace(&mut state.stored, through);
                let last = state.epoch.replace(epoch);
                if state.cut {
                    Some(Fault::Dropped)
                } else if last == Some(epoch) {
                    state.cut = through < known;
                    (state.cut && !state.leaves).then_some(Fault::Dropped)
                } else {
                    // The last seqno is the reset event. A founder that gives way to another group has accepted
                    // nothing.
                    let kept = through.saturating_sub(1);
                    (state.entered && kept < state.accepted).then_some(Fault::Kept(kept))
                }
            }
            What::EpochBegun { .. } => {
                if !state.entered {
                    *state = State::default();
                }
                None
            }
            What::LeaveAsked => {
                state.leaves = true;
                None
            }
            What::Numbered { .. } => state.cut.then_some(Fault::Dropped),
            What::Accepted { epoch, through } => {
                let known = std::mem::replace(&mut state.accepted, through);
                let last = state.epoch.replace(epoch);
                let fell = through < known && (state.entered || last == Some(epoch));
                fell.then_some(Fault::Fell(known))
            }
            What::Purged { through, .. } | What::Acknowledged { through, .. } => {
                (through > state.stored).then_some(Fault::Lacks(state.stored))
            }
            ref event => {
                state.entered = true;
                let early = seqno_of(event).is_some_and(|seqno| seqno > state.accepted);
                early.then_some(Fault::Early(state.accepted))
            }
        };
        match fault {
            None => Ok(()),
            Some(fault) => broken(self, record, || fault.to_string()),
        }
    }

    fn finish(&mut self, end: &End, _: &Facts) -> Result<(), Violation> {
        let goes_on = |phase| matches!(phase, Phase::Member | Phase::Resetting | Phase::Leaving);
        for standing in end.standings.iter().filter(|standing| goes_on(standing.phase)) {
            if self.states.at(standing.life).cut {
                let what = format!("{:?} dropped entries that it held, and is still a member", standing.life);
                return Err(Violation { property: self.name(), at: end.at, what });
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
    use crate::record::{Entry, Life};

    fn stored(epoch: Epoch, through: Seqno) -> What {
        What::Stored { epoch, through, entry: Entry::Message { sender: Life(0), number: 1 } }
    }

    fn good() -> Fixture {
        let mut fixture = Fixture::of(3, 1);
        fixture.message(Life(1));
        fixture.purge();
        let number = fixture.send(Life(0));
        fixture.order(Life(0), number);
        fixture.crash(Life(0));
        fixture.reset(&[Life(1), Life(2)]);
        fixture.message(Life(1));
        fixture
    }

    #[test]
    fn accepts_marks_that_rise() {
        good().good(Watermarks::default());
    }

    #[test]
    fn rejects_delivery_of_what_is_tentative() {
        let mut fixture = Fixture::of(3, 1);
        let number = fixture.send(Life(1));
        let seqno = fixture.order(Life(1), number);
        fixture.store(Life(1), seqno);
        fixture.record(Life(1), What::Delivered { seqno, sender: Life(1), number, hash: 1 });
        fixture.bad(Watermarks::default());
    }

    #[test]
    fn rejects_marks_that_fall() {
        let epoch = Epoch(1);
        for what in [stored(epoch, 1), What::Accepted { epoch, through: 1 }] {
            let mut fixture = good();
            fixture.record(Life(1), what);
            fixture.bad(Watermarks::default());
        }
    }

    #[test]
    fn accepts_a_leaver_that_cuts_its_log() {
        for leaves in [true, false] {
            let mut fixture = good();
            if leaves {
                fixture.record(Life(2), What::LeaveAsked);
            }
            fixture.reset(&[Life(1)]);
            fixture.record(Life(2), stored(Epoch(1), 2));
            fixture.crash(Life(2));
            assert_eq!(fixture.check(Watermarks::default()).is_ok(), leaves);
            fixture.record(Life(2), stored(Epoch(1), 3));
            fixture.bad(Watermarks::default());
        }
    }

    #[test]
    fn rejects_an_epoch_that_begins_at_a_seqno_that_was_accepted() {
        for more in [0, 1] {
            let mut fixture = Fixture::of(3, 1);
            fixture.message(Life(1));
            let (epoch, through) = (Epoch(0), fixture.end() + more);
            fixture.reset(&[Life(0), Life(1), Life(2)]);
            let promised = |record: &Record| matches!(record.what, What::Promised { .. });
            let index = fixture.position(|record| promised(record) && record.life == Life(0));
            let record = fixture.records[index].clone();
            let held = [stored(epoch, through), What::Accepted { epoch, through }];
            let records = held.map(|what| Record { what, ..record.clone() });
            fixture.records.splice(index..index, records);
            assert_eq!(fixture.check(Watermarks::default()).is_ok(), more == 0);
        }
    }

    #[test]
    fn rejects_an_epoch_that_keeps_less_than_was_accepted() {
        let mut fixture = good();
        fixture.record(Life(1), stored(Epoch(2), 2));
        fixture.bad(Watermarks::default());
    }

    #[test]
    fn rejects_purging_and_acknowledging_what_was_not_held() {
        let (epoch, through) = (Epoch(1), 99);
        for what in [What::Purged { epoch, through }, What::Acknowledged { epoch, through }] {
            let mut fixture = good();
            fixture.record(Life(1), what);
            fixture.bad(Watermarks::default());
        }
    }
}

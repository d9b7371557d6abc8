//! G18, silence of old epochs: a life does nothing further after its stream has ended. A member that has promised a
//! ballot numbers, acknowledges and accepts nothing more in that epoch. No member returns to an epoch that it has
//! left.
//!
//! Exception, for a reset that leaves out a leaver: when the leaver learns that its leave was kept, it accepts
//! everything through its leave. So a leaver may accept after its promise, if all of that is kept and its part in the
//! group is over.

use super::streams::SEQUENCED;
use super::tables::Table;
use super::{Facts, Property, Violation, broken};
use crate::record::{End, Epoch, Kind, Life, Record, What};
use unisono_core::{Phase, Seqno};

#[derive(Clone, Debug, Default)]
struct State {
    /// True once it is excluded, gone, crashed, or its join has failed.
    over: bool,
    /// True once its application asked to leave.
    leaves: bool,
    /// Last epoch in which it promised a ballot.
    promised: Option<Epoch>,
    entered: bool,
    /// Epochs of its watermarks, in order.
    epochs: Vec<Epoch>,
    /// Epoch and seqno through which it accepted after its promise.
    late: Option<(Epoch, Seqno)>,
}

/// The checker of `old_epoch_silence`.
#[derive(Debug, Default)]
pub(super) struct OldEpochSilence {
    states: Table<State>,
    checked: u64,
}

const ENDS: u64 = Kind::Excluded.bit() | Kind::Gone.bit() | Kind::JoinFailed.bit() | Kind::Crashed.bit();

impl Property for OldEpochSilence {
    fn name(&self) -> &'static str {
        "old_epoch_silence"
    }

    fn interests(&self) -> u64 {
        SEQUENCED
            | ENDS
            | Kind::LeaveAsked.bit()
            | Kind::Sent.bit()
            | Kind::Suspected.bit()
            | Kind::Numbered.bit()
            | Kind::Acknowledged.bit()
            | Kind::Accepted.bit()
            | Kind::EpochBegun.bit()
            | Kind::Promised.bit()
    }

    #[inline(always)]
    fn observe(&mut self, record: &Record, _: &Facts) -> Result<(), Violation> {
        self.checked += 1;
        let state = self.states.at(record.life);
        match record.what {
            What::Promised { epoch, .. } => {
                // A life that is over still serves a reset whose end others have not seen.
                state.promised = Some(epoch);
                return Ok(());
            }
            What::Accepted { epoch, through } => {
                if state.promised == Some(epoch) {
                    if !state.leaves {
                        return broken(self, record, || "it had promised a ballot of that epoch".into());
                    }
                    state.late = Some((epoch, through));
                }
                return Ok(());
            }
            What::LeaveAsked => {
                state.leaves = true;
                return Ok(());
            }
            What::EpochBegun { epoch } => {
                if state.entered && state.epochs.contains(&epoch) {
                    return broken(self, record, || format!("it returns to {epoch:?}"));
                }
                if let Some(late) = state.late {
                    return broken(self, record, || format!("it accepted after its promise: {late:?}"));
                }
                state.epochs.push(epoch);
            }
            What::Acknowledged { epoch, .. } if state.promised == Some(epoch) => {
                return broken(self, record, || "it had promised a ballot of that epoch".into());
            }
            What::Numbered { epoch, .. } if state.promised == Some(epoch) || state.late.is_some() => {
                return broken(self, record, || "it had promised a ballot of that epoch".into());
            }
            What::Entered { .. } => state.entered = true,
            _ => {}
        }
        // A life that is over may still serve, and may crash then.
        if state.over && record.what != What::Crashed {
            return broken(self, record, || "its stream had ended".into());
        }
        state.over |= record.what.kind().bit() & ENDS != 0;
        Ok(())
    }

    fn finish(&mut self, end: &End, facts: &Facts) -> Result<(), Violation> {
        let lost = |(epoch, through)| {
            let children = facts.lineage.children(epoch);
            !children.is_empty() && children.iter().all(|next| !facts.lineage.keeps(*next, epoch, through))
        };
        let goes_on = |life| {
            let phase = end.standings.iter().find(|standing| standing.life == life).map(|s| s.phase);
            phase.is_some_and(|phase| matches!(phase, Phase::Member | Phase::Resetting))
        };
        for (life, state) in (0..).map(Life).zip(self.states.iter()) {
            if let Some(late) = state.late
                && (lost(late) || goes_on(life))
            {
                let what = format!("{life:?} accepted after its promise: {late:?}");
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
    use crate::properties::fixture::{Fixture, delivery};
    use unisono_core::{Ballot, Uid};

    fn good() -> Fixture {
        let mut fixture = Fixture::of(4, 1);
        fixture.message(Life(1));
        fixture.crash(Life(0));
        fixture.reset(&[Life(1), Life(2)]);
        fixture.message(Life(1));
        fixture
    }

    #[test]
    fn accepts_silence() {
        good().good(OldEpochSilence::default());
    }

    #[test]
    fn rejects_a_delivery_after_exclusion_or_crash() {
        for life in [Life(0), Life(3)] {
            let mut fixture = good();
            let late = fixture.last(delivery(life)).clone();
            fixture.records.push(late);
            fixture.bad(OldEpochSilence::default());
        }
    }

    /// Inserts a record just after the last promise of this life.
    fn after_promise(life: Life, what: What) -> Fixture {
        let mut fixture = good();
        let promise = fixture.position(|r| r.life == life && matches!(r.what, What::Promised { .. }));
        let record = Record { what, ..fixture.records[promise].clone() };
        fixture.records.insert(promise + 1, record);
        fixture
    }

    #[test]
    fn rejects_numbering_acknowledging_and_accepting_after_a_promise() {
        let epoch = Epoch(0);
        after_promise(Life(1), What::Numbered { epoch, term: 0, from: 6, to: 6 })
            .bad(OldEpochSilence::default());
        after_promise(Life(1), What::Acknowledged { epoch, through: 4 }).bad(OldEpochSilence::default());
        after_promise(Life(1), What::Accepted { epoch, through: 4 }).bad(OldEpochSilence::default());
    }

    #[test]
    fn accepts_acceptance_by_a_decision_that_keeps_it() {
        let epoch = Epoch(0);
        for (leaves, through, is_good) in [(true, 4, true), (true, 9, false), (false, 4, false)] {
            let mut fixture = good();
            let excluded = fixture.position(|r| matches!(r.what, What::Excluded { .. }));
            let ballot = Ballot { round: 9, coordinator: Uid(0) };
            let asked = leaves.then_some(What::LeaveAsked);
            let late = [What::Promised { epoch, ballot }, What::Accepted { epoch, through }];
            let record = fixture.records[excluded].clone();
            let records = asked.into_iter().chain(late).map(|what| Record { what, ..record.clone() });
            fixture.records.splice(excluded..excluded, records);
            assert_eq!(fixture.check(OldEpochSilence::default()).is_ok(), is_good, "{leaves} {through}");
        }
    }

    #[test]
    fn rejects_acceptance_after_a_promise_even_before_a_crash() {
        let mut fixture = good();
        let (epoch, ballot) = (Epoch(1), Ballot { round: 9, coordinator: Uid(0) });
        let through = fixture.end();
        fixture.record(Life(2), What::Promised { epoch, ballot });
        fixture.record(Life(2), What::Accepted { epoch, through });
        fixture.crash(Life(2));
        fixture.bad(OldEpochSilence::default());
    }

    #[test]
    fn rejects_an_acknowledgement_after_exclusion() {
        let mut fixture = good();
        fixture.record(Life(3), What::Acknowledged { epoch: Epoch(0), through: 4 });
        fixture.bad(OldEpochSilence::default());
    }

    #[test]
    fn rejects_going_back_to_an_epoch() {
        let mut fixture = good();
        fixture.record(Life(1), What::EpochBegun { epoch: Epoch(0) });
        fixture.bad(OldEpochSilence::default());
    }

    #[test]
    fn rejects_two_ends() {
        let mut fixture = good();
        fixture.record(Life(3), What::Gone);
        fixture.bad(OldEpochSilence::default());
    }
}

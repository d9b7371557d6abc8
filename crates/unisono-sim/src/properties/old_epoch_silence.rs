//! G18, silence of what is over: a life whose stream has ended does nothing further; a member that promised a ballot
//! numbers and accepts nothing in that epoch any more; nobody returns to an epoch it has left.

use super::streams::PLACED;
use super::tables::Table;
use super::{Property, Violation, broken};
use crate::record::{Epoch, Kind, Record, What};

#[derive(Clone, Debug, Default)]
struct State {
    /// Excluded, gone, crashed, or never let in.
    over: bool,
    /// The last epoch in which it promised a ballot.
    promised: Option<Epoch>,
    /// The epochs of its marks, in the order in which they came.
    epochs: Vec<Epoch>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct OldEpochSilence {
    states: Table<State>,
    checked: u64,
}

const ENDS: u32 = Kind::Excluded.bit() | Kind::Gone.bit() | Kind::JoinFailed.bit() | Kind::Crashed.bit();

impl Property for OldEpochSilence {
    fn name(&self) -> &'static str {
        "old_epoch_silence"
    }

    fn interests(&self) -> u32 {
        PLACED
            | ENDS
            | Kind::Sent.bit()
            | Kind::Suspected.bit()
            | Kind::Numbered.bit()
            | Kind::Accepted.bit()
            | Kind::EpochBegun.bit()
            | Kind::Promised.bit()
    }

    fn observe(&mut self, record: &Record) -> Result<(), Violation> {
        self.checked += 1;
        let state = self.states.at(record.life);
        match record.what {
            What::Promised { epoch } => state.promised = Some(epoch),
            What::Numbered { epoch, .. } | What::Accepted { epoch, .. } if state.promised == Some(epoch) => {
                return broken(self, record, || "it had promised a ballot of that epoch".into());
            }
            What::EpochBegun { epoch } => {
                if state.epochs.contains(&epoch) {
                    return broken(self, record, || format!("it returns to {epoch:?}"));
                }
                state.epochs.push(epoch);
            }
            What::Accepted { .. } => return Ok(()),
            _ => {}
        }
        if state.over {
            return broken(self, record, || "its stream had ended".into());
        }
        state.over = record.what.kind().bit() & ENDS != 0;
        Ok(())
    }

    fn checked(&self) -> u64 {
        self.checked
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::properties::story::{Story, delivery};
    use crate::record::Life;

    fn good() -> Story {
        let mut story = Story::of(4, 1);
        story.message(Life(1));
        story.crash(Life(0));
        story.reset(&[Life(1), Life(2)]);
        story.message(Life(1));
        story
    }

    #[test]
    fn takes_silence() {
        good().good(OldEpochSilence::default());
    }

    #[test]
    fn rejects_a_delivery_after_exclusion_or_crash() {
        for life in [Life(0), Life(3)] {
            let mut story = good();
            let late = story.last(delivery(life)).clone();
            story.records.push(late);
            story.bad(OldEpochSilence::default());
        }
    }

    #[test]
    fn rejects_numbering_and_accepting_after_a_promise() {
        let whats = [
            What::Numbered { epoch: Epoch(0), term: 0, from: 6, to: 6 },
            What::Accepted { epoch: Epoch(0), through: 9 },
        ];
        for what in whats {
            let mut story = good();
            let promise = story.position(|r| r.life == Life(1) && matches!(r.what, What::Promised { .. }));
            let record = Record { what, ..story.records[promise].clone() };
            story.records.insert(promise + 1, record);
            story.bad(OldEpochSilence::default());
        }
    }

    #[test]
    fn rejects_going_back_to_an_epoch() {
        let mut story = good();
        story.tell(Life(1), What::EpochBegun { epoch: Epoch(0) });
        story.bad(OldEpochSilence::default());
    }

    #[test]
    fn rejects_two_ends() {
        let mut story = good();
        story.tell(Life(3), What::Gone);
        story.bad(OldEpochSilence::default());
    }
}

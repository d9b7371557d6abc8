//! Watermarks (the white-box half of G6 and G16): within an epoch what a member holds and what it knows to be
//! accepted never shrinks; it acknowledges and purges only what it holds, delivers only what it knows to be accepted, and enters no
//! epoch that keeps less than it took for accepted.
//!
//! Who is excluded may cut its log to what the others keep: then it must be over with it. Who only listens may begin
//! to listen again, with nothing.

use super::streams::{PLACED, placed_at};
use super::tables::Table;
use super::{Property, Violation, broken};
use crate::record::{End, Epoch, Kind, Record, What};
use unisono_core::{Phase, Seqno};

#[derive(Clone, Copy, Debug, Default)]
struct State {
    epoch: Option<Epoch>,
    stored: Seqno,
    accepted: Seqno,
    entered: bool,
    /// It gave up what it held within an epoch, so it must be excluded.
    cut: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Watermarks {
    states: Table<State>,
    checked: u64,
}

impl Property for Watermarks {
    fn name(&self) -> &'static str {
        "watermarks"
    }

    fn interests(&self) -> u32 {
        PLACED
            | Kind::EpochBegun.bit()
            | Kind::Stored.bit()
            | Kind::Accepted.bit()
            | Kind::Purged.bit()
            | Kind::Acknowledged.bit()
            | Kind::Numbered.bit()
    }

    #[inline(always)]
    fn observe(&mut self, record: &Record) -> Result<(), Violation> {
        self.checked += 1;
        let state = self.states.at(record.life);
        let known = *state;
        match record.what {
            What::Stored { epoch, through } => {
                (state.epoch, state.stored) = (Some(epoch), through);
                if known.cut {
                    return broken(self, record, || "it had given up what it held".into());
                }
                if known.epoch == Some(epoch) {
                    state.cut = through < known.stored;
                } else if known.entered && through < known.accepted {
                    let was = known.accepted;
                    return broken(self, record, || format!("{was} was accepted, and {through} is kept"));
                }
            }
            What::EpochBegun { .. } => {
                if !known.entered {
                    *state = State::default();
                }
            }
            What::Numbered { .. } => {
                if known.cut {
                    return broken(self, record, || "it had given up what it held".into());
                }
            }
            What::Accepted { epoch, through } => {
                (state.epoch, state.accepted) = (Some(epoch), through);
                if through < known.accepted && (known.entered || known.epoch == Some(epoch)) {
                    let was = known.accepted;
                    return broken(self, record, || format!("{was} was accepted, and {through} is"));
                }
            }
            What::Purged { through, .. } | What::Acknowledged { through, .. } => {
                if through > known.stored {
                    return broken(self, record, || format!("it holds through {} only", known.stored));
                }
            }
            ref event => {
                state.entered = true;
                if let Some(seqno) = placed_at(event).filter(|seqno| *seqno > known.accepted) {
                    let accepted = known.accepted;
                    return broken(self, record, || {
                        format!("place {seqno} is delivered, and {accepted} accepted")
                    });
                }
            }
        }
        Ok(())
    }

    fn finish(&mut self, end: &End) -> Result<(), Violation> {
        let goes_on = |phase| matches!(phase, Phase::Member | Phase::Resetting | Phase::Leaving);
        for standing in end.standings.iter().filter(|standing| goes_on(standing.phase)) {
            if self.states.at(standing.life).cut {
                let what = format!("{:?} gave up what it held, and is a member", standing.life);
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
    use crate::properties::story::Story;
    use crate::record::Life;

    fn good() -> Story {
        let mut story = Story::of(3, 1);
        story.message(Life(1));
        story.purge();
        let number = story.send(Life(0));
        story.order(Life(0), number);
        story.crash(Life(0));
        story.reset(&[Life(1), Life(2)]);
        story.message(Life(1));
        story
    }

    #[test]
    fn takes_marks_that_rise() {
        good().good(Watermarks::default());
    }

    #[test]
    fn rejects_delivery_of_what_is_tentative() {
        let mut story = Story::of(3, 1);
        let number = story.send(Life(1));
        let seqno = story.order(Life(1), number);
        story.store(Life(1), seqno);
        story.tell(Life(1), What::Delivered { seqno, sender: Life(1), number, hash: 1 });
        story.bad(Watermarks::default());
    }

    #[test]
    fn rejects_marks_that_fall() {
        let epoch = Epoch(1);
        for what in [What::Stored { epoch, through: 1 }, What::Accepted { epoch, through: 1 }] {
            let mut story = good();
            story.tell(Life(1), what);
            story.bad(Watermarks::default());
        }
    }

    #[test]
    fn takes_an_excluded_member_that_cuts_its_log() {
        let mut story = good();
        story.reset(&[Life(1)]);
        story.tell(Life(2), What::Stored { epoch: Epoch(1), through: 2 });
        story.good(Watermarks::default());
        story.tell(Life(2), What::Stored { epoch: Epoch(1), through: 3 });
        story.bad(Watermarks::default());
    }

    #[test]
    fn rejects_an_epoch_that_keeps_less_than_was_accepted() {
        let mut story = good();
        story.tell(Life(1), What::Stored { epoch: Epoch(2), through: 2 });
        story.bad(Watermarks::default());
    }

    #[test]
    fn rejects_purging_and_acknowledging_what_was_not_held() {
        let (epoch, through) = (Epoch(1), 99);
        for what in [What::Purged { epoch, through }, What::Acknowledged { epoch, through }] {
            let mut story = good();
            story.tell(Life(1), what);
            story.bad(Watermarks::default());
        }
    }
}

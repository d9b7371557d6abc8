//! G19, ordered changes: a member's stream begins with its entering and, if it leaves, ends with its own leave (and
//! *gone*, when nobody needs it). Whoever is said to join had begun, whoever is said to leave had asked to, and each
//! does so at one place, for everybody.

use super::streams::{PLACED, Streams};
use super::tables::Table;
use super::{Property, Violation, broken, found};
use crate::record::{Epoch, Kind, Life, Record, What};
use unisono_core::Seqno;

#[derive(Clone, Copy, Debug, Default)]
struct State {
    started: bool,
    leave_asked: bool,
    entered: bool,
    has_left: bool,
    joined_at: Option<(Epoch, Seqno)>,
    left_at: Option<(Epoch, Seqno)>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct OrderedChanges {
    states: Table<State>,
    streams: Streams,
    checked: u64,
}

impl OrderedChanges {
    /// What is wrong with an event of a stream that stands so.
    fn out_of_turn(&self, what: &What, state: State, founded_alone: bool) -> Option<&'static str> {
        match what {
            What::Entered { .. } if state.entered && !founded_alone => Some("it had entered before"),
            What::Entered { .. } => None,
            What::Gone if !state.has_left => Some("it is gone and never left"),
            What::Gone => None,
            _ if !state.entered => Some("it has not entered"),
            _ if state.has_left => Some("it had left"),
            _ => None,
        }
    }

    /// A join or leave of `member` at a place.
    fn change(&mut self, member: Life, place: (Epoch, Seqno), leave: bool) -> Option<String> {
        let state = self.states.at(member);
        let (begun, known) = match leave {
            true => (state.leave_asked, &mut state.left_at),
            false => (state.started, &mut state.joined_at),
        };
        let known = *known.get_or_insert(place);
        if known != place {
            Some(format!("{member:?} did so at {known:?} already"))
        } else if !begun {
            Some(format!("{member:?} never asked for it"))
        } else {
            None
        }
    }
}

impl Property for OrderedChanges {
    fn name(&self) -> &'static str {
        "ordered_changes"
    }

    fn interests(&self) -> u32 {
        PLACED | Kind::Started.bit() | Kind::LeaveAsked.bit() | Kind::Gone.bit()
    }

    #[inline(always)]
    fn observe(&mut self, record: &Record) -> Result<(), Violation> {
        let state = self.states.at(record.life);
        match record.what {
            What::Started { .. } => {
                state.started = true;
                return Ok(());
            }
            What::LeaveAsked => {
                state.leave_asked = true;
                return Ok(());
            }
            _ => {}
        }
        self.checked += 1;
        let stream = self.streams.of(record.life);
        let founded_alone = stream.entered == 0 && stream.last == 0 && stream.view.len() == 1;
        let epoch = stream.epoch;
        let state = *state;
        if let Some(fault) = self.out_of_turn(&record.what, state, founded_alone) {
            return broken(self, record, || fault.into());
        }
        let change = match (&record.what, epoch) {
            (What::Entered { seqno, view }, _) => {
                self.states.at(record.life).entered = true;
                (*seqno > 0).then_some((record.life, (view.epoch, *seqno), false))
            }
            (What::Joined { seqno, member, .. }, Some(epoch)) => Some((*member, (epoch, *seqno), false)),
            (What::Left { seqno, member, .. }, Some(epoch)) => {
                self.states.at(record.life).has_left |= *member == record.life;
                Some((*member, (epoch, *seqno), true))
            }
            _ => None,
        };
        self.streams.follow(record);
        let fault = change.and_then(|(member, place, leave)| self.change(member, place, leave));
        found(self, record, fault)
    }

    fn checked(&self) -> u64 {
        self.checked
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::properties::story::{Story, delivery};

    fn good() -> Story {
        let mut story = Story::of(3, 1);
        story.message(Life(1));
        story.leave(Life(1));
        story.message(Life(2));
        story
    }

    #[test]
    fn takes_joins_and_leaves_in_their_places() {
        good().good(OrderedChanges::default());
    }

    #[test]
    fn rejects_events_before_entering() {
        let mut story = good();
        story.records.retain(|r| !(r.life == Life(2) && matches!(r.what, What::Entered { .. })));
        story.bad(OrderedChanges::default());
    }

    #[test]
    fn rejects_a_leaver_that_goes_on_delivering() {
        let mut story = good();
        let record = Record { life: Life(1), ..story.last(delivery(Life(2))).clone() };
        let gone = story.position(|r| r.what == What::Gone);
        story.records.insert(gone, record);
        story.bad(OrderedChanges::default());
    }

    #[test]
    fn rejects_leaves_that_nobody_asked_for() {
        let mut story = good();
        story.records.retain(|record| record.what != What::LeaveAsked);
        story.bad(OrderedChanges::default());
    }

    #[test]
    fn rejects_a_joiner_that_enters_elsewhere() {
        let mut story = good();
        let entered = |r: &Record| r.life == Life(2) && matches!(r.what, What::Entered { .. });
        if let What::Entered { seqno, .. } = &mut story.last(entered).what {
            *seqno += 1;
        }
        story.bad(OrderedChanges::default());
    }

    #[test]
    fn rejects_gone_without_a_leave() {
        let mut story = Story::of(3, 1);
        story.message(Life(1));
        story.tell(Life(2), What::Gone);
        story.bad(OrderedChanges::default());
    }
}

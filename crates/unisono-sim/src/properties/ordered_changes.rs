//! G19, ordered changes: a stream begins with the member's own entry. If the member leaves, its stream ends with its
//! own leave, then *gone*. Each life reported as joined had started, and each life reported as left had asked to
//! leave. A life joins at one seqno and leaves at one seqno, the same for all members. Under *at least n* lines may
//! part: a member that goes on in a line without its own leave leaves there once more.

use super::streams::{Lineage, SEQUENCED, Stream};
use super::tables::Table;
use super::{Facts, GroupTerms, Property, Violation, broken, result};
use crate::record::{Epoch, Kind, Life, Record, What};
use unisono_core::{Quorum, Seqno};

#[derive(Clone, Debug, Default)]
struct State {
    started: bool,
    leave_asked: bool,
    entered: bool,
    has_left: bool,
    joined_at: Option<(Epoch, Seqno)>,
    /// Several only if lines have parted.
    left_at: Vec<(Epoch, Seqno)>,
}

/// The checker of `ordered_changes`.
#[derive(Debug)]
pub(super) struct OrderedChanges {
    /// True if quorums intersect, so that there is one line of views.
    is_single: bool,
    states: Table<State>,
    checked: u64,
}

impl OrderedChanges {
    pub(super) fn new(terms: &GroupTerms) -> OrderedChanges {
        OrderedChanges {
            is_single: !matches!(terms.config.quorum, Quorum::AtLeast(_)),
            states: Table::default(),
            checked: 0,
        }
    }

    /// Returns a fault if an event must not come in this state.
    fn out_of_turn(what: &What, state: &State, facts: &Facts) -> Option<&'static str> {
        match what {
            What::Entered { .. } if state.entered && !is_founded_alone(facts.before()) => {
                Some("it had entered before")
            }
            What::Entered { .. } => None,
            What::Gone if !state.has_left => Some("it is gone and has not left"),
            What::Gone => None,
            _ if !state.entered => Some("it has not entered"),
            _ if state.has_left => Some("it had left"),
            _ => None,
        }
    }

    /// Takes note of a join or leave of `member`, at an epoch and seqno.
    fn change(
        &mut self,
        member: Life,
        change: (Epoch, Seqno),
        leave: bool,
        lineage: &Lineage,
    ) -> Option<String> {
        let state = self.states.at(member);
        let (begun, known) = if leave {
            let one_line = |&(epoch, seqno): &(Epoch, Seqno)| {
                self.is_single
                    || lineage.keeps(change.0, epoch, seqno)
                    || lineage.keeps(epoch, change.0, change.1)
            };
            let known = state.left_at.iter().copied().find(one_line);
            if known.is_none() {
                state.left_at.push(change);
            }
            (state.leave_asked, known.unwrap_or(change))
        } else {
            (state.started, *state.joined_at.get_or_insert(change))
        };
        if known != change {
            Some(format!("{member:?} had done so at {known:?}"))
        } else if !begun {
            Some(format!("{member:?} had not started, or had not asked to leave"))
        } else {
            None
        }
    }
}

/// True if the life founded a group in which nothing has happened.
fn is_founded_alone(stream: &Stream) -> bool {
    stream.entered == 0 && stream.last == 0 && stream.view.len() == 1
}

impl Property for OrderedChanges {
    fn name(&self) -> &'static str {
        "ordered_changes"
    }

    fn interests(&self) -> u64 {
        SEQUENCED | Kind::Started.bit() | Kind::LeaveAsked.bit() | Kind::Gone.bit()
    }

    #[inline(always)]
    fn observe(&mut self, record: &Record, facts: &Facts) -> Result<(), Violation> {
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
        if let Some(fault) = Self::out_of_turn(&record.what, state, facts) {
            return broken(self, record, || fault.into());
        }
        let change = match (&record.what, facts.stream(record.life).epoch) {
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
        let fault =
            change.and_then(|(member, change, leave)| self.change(member, change, leave, &facts.lineage));
        result(self, record, fault)
    }

    fn checked(&self) -> u64 {
        self.checked
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::properties::fixture::{Fixture, delivery};

    fn good() -> Fixture {
        let mut fixture = Fixture::of(3, 1);
        fixture.message(Life(1));
        fixture.leave(Life(1));
        fixture.message(Life(2));
        fixture
    }

    #[test]
    fn accepts_ordered_joins_and_leaves() {
        let fixture = good();
        fixture.good(OrderedChanges::new(&fixture.terms));
    }

    /// Life 0 numbers life 1's leave. Life 1 goes on alone without that leave, and leaves there.
    fn left_in_two_lines(quorum: Quorum) -> Fixture {
        let mut fixture = Fixture::found(1, quorum);
        (0..2).for_each(|_| _ = fixture.join());
        let mut other = fixture.clone();
        let common = fixture.records.len();
        fixture.leave(Life(1));
        fixture.records.retain(|record| {
            record.life != Life(1)
                || record.what == What::LeaveAsked
                || record.at <= other.records[common - 1].at
        });
        other.reset(&[Life(1)]);
        other.leave(Life(1));
        let alone = other.records.drain(common..).filter(|record| record.life == Life(1));
        fixture.records.extend(alone.filter(|record| record.what != What::LeaveAsked));
        fixture
    }

    #[test]
    fn under_at_least_a_life_leaves_in_each_line() {
        let fixture = left_in_two_lines(Quorum::AtLeast(1));
        fixture.good(OrderedChanges::new(&fixture.terms));
        let fixture = left_in_two_lines(Quorum::MajorityOfView);
        fixture.bad(OrderedChanges::new(&fixture.terms));
        // Two leaves in one line are a fault.
        let mut fixture = Fixture::found(1, Quorum::AtLeast(1));
        (0..2).for_each(|_| _ = fixture.join());
        fixture.leave(Life(1));
        if let What::Left { seqno, .. } =
            &mut fixture.last(|r| r.life == Life(2) && matches!(r.what, What::Left { .. })).what
        {
            *seqno += 1;
        }
        fixture.bad(OrderedChanges::new(&fixture.terms));
    }

    #[test]
    fn rejects_events_before_entering() {
        let mut fixture = good();
        fixture.records.retain(|r| !(r.life == Life(2) && matches!(r.what, What::Entered { .. })));
        fixture.bad(OrderedChanges::new(&fixture.terms));
    }

    #[test]
    fn rejects_a_leaver_that_goes_on_delivering() {
        let mut fixture = good();
        let record = Record { life: Life(1), ..fixture.last(delivery(Life(2))).clone() };
        let gone = fixture.position(|r| r.what == What::Gone);
        fixture.records.insert(gone, record);
        fixture.bad(OrderedChanges::new(&fixture.terms));
    }

    #[test]
    fn rejects_a_leave_that_the_member_did_not_ask_for() {
        let mut fixture = good();
        fixture.records.retain(|record| record.what != What::LeaveAsked);
        fixture.bad(OrderedChanges::new(&fixture.terms));
    }

    #[test]
    fn rejects_a_joiner_that_enters_at_another_seqno() {
        let mut fixture = good();
        let entered = |r: &Record| r.life == Life(2) && matches!(r.what, What::Entered { .. });
        if let What::Entered { seqno, .. } = &mut fixture.last(entered).what {
            *seqno += 1;
        }
        fixture.bad(OrderedChanges::new(&fixture.terms));
    }

    #[test]
    fn rejects_gone_without_a_leave() {
        let mut fixture = Fixture::of(3, 1);
        fixture.message(Life(1));
        fixture.record(Life(2), What::Gone);
        fixture.bad(OrderedChanges::new(&fixture.terms));
    }
}

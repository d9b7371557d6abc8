//! The role of sequencer moves only as the founder has chosen ([`Migration`]). By load it does not flap: a member
//! that got the role from another keeps it for at least 100 ms, or gives it away by request, by leaving, or by a
//! reset. Where the group excludes slow members after a time, a sequencer also gives the role away when a message has
//! waited for that time: the sequencer may be what the message waits for. A role that never moves stays even then.

use super::tables::Table;
use super::{Facts, GroupTerms, Property, Violation, result};
use crate::record::{Epoch, Kind, Life, Record, What};
use std::time::Duration;
use unisono_core::{MessageNumber, Migration, Order, Seqno, SlowMember, Time};

/// Shortest time between two moves by load: 100 ms, by a clock that runs one percent too fast.
const TENURE_MIN: Duration = Duration::from_millis(99);

/// A message: when it was sent, and when its sender learned its outcome.
#[derive(Clone, Copy, Debug)]
struct Message {
    number: MessageNumber,
    sent: Time,
    ended: Option<Time>,
}

/// A sequencer's application asked for the role to move, and it has not moved yet.
#[derive(Clone, Copy, Debug)]
struct Request {
    epoch: Option<Epoch>,
    sequencer: Life,
    successor: Life,
    at: Time,
}

/// Seqnos assigned in the term of the event at `term`, and when.
#[derive(Clone, Copy, Debug)]
struct Run {
    from: Seqno,
    to: Seqno,
    term: Seqno,
    sequencer: Life,
    at: Time,
}

#[derive(Clone, Debug, Default)]
struct Roles {
    runs: Vec<Run>,
    /// Seqnos of the hand-overs that any application has received.
    seqnos: Vec<Seqno>,
}

/// The checker of `steady_role`.
#[derive(Debug)]
pub(super) struct SteadyRole {
    order: Order,
    /// Time after which slow members are excluded, by a clock that runs one percent too fast; `None` if never.
    patience: Option<Duration>,
    epochs: Table<Roles>,
    requests: Vec<Request>,
    messages: Table<Vec<Message>>,
    checked: u64,
}

impl SteadyRole {
    pub(super) fn new(terms: &GroupTerms) -> SteadyRole {
        let patience = match terms.config.slow_member {
            SlowMember::ExcludeAfter(patience) => Some(patience * 98 / 100),
            _ => None,
        };
        SteadyRole {
            order: terms.config.order,
            patience,
            epochs: Table::default(),
            requests: Vec::new(),
            messages: Table::default(),
            checked: 0,
        }
    }

    /// True if a message had waited at this time for as long as the group waits for a slow member.
    fn message_waited(&self, at: Time) -> bool {
        let Some(patience) = self.patience else { return false };
        let waited = |message: &Message| {
            message.sent + patience <= at && message.ended.is_none_or(|ended| ended >= at)
        };
        self.messages.iter().flatten().any(waited)
    }

    fn note_sent(&mut self, record: &Record, number: MessageNumber) {
        self.messages.at(record.life).push(Message { number, sent: record.at, ended: None });
    }

    fn note_ended(&mut self, record: &Record, number: MessageNumber) {
        let messages = self.messages.at(record.life);
        let index = messages.partition_point(|message| message.number < number);
        if let Some(message) = messages.get_mut(index).filter(|message| message.number == number) {
            message.ended = Some(record.at);
        }
    }

    /// Returns a fault if the role must not move to `successor` by the event at `seqno`, which no application
    /// received before.
    fn moved(&mut self, epoch: Epoch, seqno: Seqno, successor: Life) -> Option<String> {
        if self.order == Order::Sequencer(Migration::Never) {
            return Some("this group's role never moves".into());
        }
        let runs = self.epochs.get(epoch).map_or(&[][..], |roles| &roles.runs);
        let run_of = |seqno: Seqno| {
            let run = runs.get(runs.partition_point(|run| run.to < seqno))?;
            (run.from <= seqno).then_some(*run)
        };
        let run = run_of(seqno)?;
        // A request ends with the term in which it was made. A hand-over that was numbered before the request does
        // not answer it, even if an application receives it only now.
        let named_at = run_of(run.term).map_or(Time::ZERO, |run| run.at);
        let is_answer = |request: &Request| {
            (request.epoch, request.sequencer, request.successor) == (Some(epoch), run.sequencer, successor)
                && (named_at..=run.at).contains(&request.at)
        };
        // Takes the latest request that fits. An earlier one may belong to an earlier hand-over that is received
        // after this one.
        if let Some(index) = self.requests.iter().rposition(is_answer) {
            self.requests.remove(index);
            return None;
        }
        if self.message_waited(run.at) {
            return None;
        }
        if self.order == Order::Sequencer(Migration::OnRequest) {
            return Some(format!("{:?} handed the role on without a request", run.sequencer));
        }
        // A sequencer that got the role by a leave or a reset may pass it on at once.
        let before = run_of(run.term).filter(|_| self.epochs.at(epoch).seqnos.contains(&run.term))?;
        let kept = run.at.since(before.at);
        (kept < TENURE_MIN).then(|| format!("{:?} kept the role for only {kept:?}", run.sequencer))
    }
}

impl Property for SteadyRole {
    fn name(&self) -> &'static str {
        "steady_role"
    }

    fn interests(&self) -> u64 {
        Kind::HandedOver.bit()
            | Kind::HandOverAsked.bit()
            | Kind::Numbered.bit()
            | Kind::Sent.bit()
            | Kind::SendResult.bit()
    }

    #[inline(always)]
    fn observe(&mut self, record: &Record, facts: &Facts) -> Result<(), Violation> {
        match record.what {
            What::Numbered { epoch, term, from, to } => {
                self.epochs.at(epoch).runs.push(Run {
                    from,
                    to,
                    term,
                    sequencer: record.life,
                    at: record.at,
                });
            }
            What::Sent { number, .. } => self.note_sent(record, number),
            What::SendResult { number, .. } => self.note_ended(record, number),
            What::HandOverAsked { successor } => {
                let epoch = facts.epoch(record.life);
                self.requests.push(Request { epoch, sequencer: record.life, successor, at: record.at });
            }
            _ => {}
        }
        let What::HandedOver { seqno, sequencer } = record.what else { return Ok(()) };
        let Some(epoch) = facts.stream(record.life).epoch else { return Ok(()) };
        if self.epochs.at(epoch).seqnos.contains(&seqno) {
            return Ok(());
        }
        self.checked += 1;
        let fault = self.moved(epoch, seqno, sequencer);
        self.epochs.at(epoch).seqnos.push(seqno);
        result(self, record, fault)
    }

    fn checked(&self) -> u64 {
        self.checked
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::properties::fixture::Fixture;
    use unisono_core::GroupConfig;

    /// The role goes to life 1 by request, and `later` from there to life 2 by load.
    fn fixture(migration: Migration, later: Duration) -> Fixture {
        let mut fixture = Fixture::of(3, 1);
        fixture.terms.config =
            GroupConfig { order: Order::Sequencer(migration), ..fixture.terms.config.clone() };
        fixture.hand_over(Life(1));
        fixture.wait(later);
        fixture.migrate(Life(2));
        fixture.message(Life(2));
        fixture
    }

    fn property(fixture: &Fixture) -> SteadyRole {
        SteadyRole::new(&fixture.terms)
    }

    #[test]
    fn accepts_a_requested_move_and_a_late_move_by_load() {
        let fixture = fixture(Migration::ByLoad, Duration::from_millis(100));
        fixture.good(property(&fixture));
    }

    #[test]
    fn a_late_event_does_not_answer_a_later_request() {
        let mut fixture = Fixture::of(3, 1);
        fixture.terms.config.order = Order::Sequencer(Migration::ByLoad);
        fixture.migrate(Life(1));
        let (first, soon) = (fixture.end(), Duration::from_millis(1));
        for to in [0, 1] {
            fixture.wait(soon);
            fixture.hand_over(Life(to));
        }
        let is_received =
            |record: &Record| matches!(record.what, What::HandedOver { seqno, .. } if seqno == first);
        let is_asked = |record: &Record| matches!(record.what, What::HandOverAsked { .. });
        let late: Vec<Record> =
            fixture.records.iter().filter(|record| is_received(record)).cloned().collect();
        fixture.records.retain(|record| !is_received(record));
        let last = fixture.records.iter().rposition(is_asked).unwrap();
        for mut record in late {
            record.at = fixture.records[last].at;
            fixture.records.insert(last + 1, record);
        }
        fixture.good(property(&fixture));
    }

    #[test]
    fn accepts_two_events_for_the_same_request_received_in_reverse() {
        let mut fixture = Fixture::of(3, 1);
        fixture.terms.config.order = Order::Sequencer(Migration::OnRequest);
        fixture.hand_over(Life(1));
        let first = fixture.end();
        for to in [0, 1] {
            fixture.wait(Duration::from_millis(1));
            fixture.hand_over(Life(to));
        }
        let is_received =
            |record: &Record| matches!(record.what, What::HandedOver { seqno, .. } if seqno == first);
        let (late, mut records): (Vec<Record>, Vec<Record>) =
            fixture.records.drain(..).partition(is_received);
        let at = records.last().map(|record| record.at).unwrap_or_default();
        records.extend(late.into_iter().map(|record| Record { at, ..record }));
        fixture.records = records;
        fixture.good(property(&fixture));
    }

    /// The sequencer's application asks for life 1 as successor, and a reset comes before the hand-over.
    fn asked_in_vain() -> Fixture {
        let mut fixture = Fixture::of(3, 1);
        fixture.terms.config.order = Order::Sequencer(Migration::OnRequest);
        fixture.record(Life(0), What::HandOverAsked { successor: Life(1) });
        fixture.reset(&[Life(0), Life(1), Life(2)]);
        fixture.message(Life(1));
        fixture
    }

    #[test]
    fn accepts_a_request_repeated_after_a_reset() {
        let mut fixture = asked_in_vain();
        fixture.hand_over(Life(1));
        fixture.good(property(&fixture));
    }

    #[test]
    fn rejects_an_answer_to_a_request_of_another_epoch() {
        let mut fixture = asked_in_vain();
        fixture.migrate(Life(1));
        fixture.bad(property(&fixture));
    }

    #[test]
    fn rejects_an_answer_to_a_request_of_an_earlier_term() {
        let mut fixture = Fixture::of(3, 1);
        fixture.terms.config.order = Order::Sequencer(Migration::OnRequest);
        let soon = Duration::from_millis(1);
        fixture.record(Life(0), What::HandOverAsked { successor: Life(2) });
        for to in [1, 0] {
            fixture.wait(soon);
            fixture.hand_over(Life(to));
        }
        fixture.good(property(&fixture));
        fixture.wait(soon);
        fixture.migrate(Life(2));
        fixture.bad(property(&fixture));
    }

    /// A message of life 1 waits for 500 ms, and the role moves to life 2 without a request.
    fn waited(slow_member: SlowMember) -> Fixture {
        let mut fixture = Fixture::of(3, 1);
        let order = Order::Sequencer(Migration::OnRequest);
        fixture.terms.config = GroupConfig { order, slow_member, ..fixture.terms.config.clone() };
        fixture.send(Life(1));
        fixture.wait(Duration::from_millis(500));
        fixture.migrate(Life(2));
        fixture
    }

    #[test]
    fn accepts_a_sequencer_that_gives_way_when_a_message_has_waited() {
        let fixture = waited(SlowMember::ExcludeAfter(Duration::from_millis(500)));
        fixture.good(property(&fixture));
    }

    #[test]
    fn rejects_a_sequencer_that_gives_way_early_or_where_slow_members_are_waited_for() {
        for slow_member in [SlowMember::Wait, SlowMember::ExcludeAfter(Duration::from_millis(600))] {
            let fixture = waited(slow_member);
            fixture.bad(property(&fixture));
        }
    }

    #[test]
    fn rejects_a_role_that_moves_too_soon() {
        let fixture = fixture(Migration::ByLoad, Duration::from_millis(98));
        fixture.bad(property(&fixture));
    }

    #[test]
    fn rejects_a_move_by_load_where_only_requests_move_the_role() {
        let fixture = fixture(Migration::OnRequest, Duration::from_millis(100));
        fixture.bad(property(&fixture));
    }

    #[test]
    fn rejects_a_role_that_moves_where_it_never_moves() {
        let mut fixture = Fixture::of(3, 1);
        fixture.terms.config.order = Order::Sequencer(Migration::Never);
        fixture.hand_over(Life(1));
        fixture.bad(property(&fixture));
    }
}

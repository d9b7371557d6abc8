//! The outcomes of messages under way: the senders' side of [`Ticket`](crate::Ticket)s and [`Batch`](crate::Batch)es.

use crate::error::SendFailure;
use crate::ticket::BatchOutcome;
use std::collections::VecDeque;
use std::task::Waker;
use unisono_core::{MessageNumber, Outcome};

/// Messages sent together, until their outcome is taken or forgotten.
#[derive(Debug)]
struct Span {
    first: MessageNumber,
    last: MessageNumber,
    /// The numbers of the messages, if there are other numbers between them: those of pieces of large messages.
    ends: Vec<MessageNumber>,
    outcome: BatchOutcome,
    state: State,
    waker: Option<Waker>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Some outcomes are not known yet.
    UnderWay,
    /// The same, and no handle will ask for them.
    Forgotten,
    /// All outcomes are known.
    Known,
    /// All outcomes are known, and were taken or are not wanted.
    Taken,
}

/// All spans of one member, in the order of their message numbers.
#[derive(Debug, Default)]
pub(crate) struct Outcomes {
    spans: VecDeque<Span>,
    under_way: usize,
}

impl Outcomes {
    /// Notes that a message is under way, by the number that the core gave it.
    pub(crate) fn expect(&mut self, number: MessageNumber) {
        self.expect_between(number, number, Vec::new());
    }

    /// Notes that messages are under way as one span, by the numbers that the core gave them. Returns the last number.
    pub(crate) fn expect_all(&mut self, mut numbers: Vec<MessageNumber>) -> Option<MessageNumber> {
        let (first, last) = (*numbers.first()?, *numbers.last()?);
        if last - first + 1 == numbers.len() as u64 {
            numbers = Vec::new();
        }
        self.expect_between(first, last, numbers);
        Some(last)
    }

    fn expect_between(&mut self, first: MessageNumber, last: MessageNumber, ends: Vec<MessageNumber>) {
        let outcome = BatchOutcome::default();
        self.spans.push_back(Span { first, last, ends, outcome, state: State::UnderWay, waker: None });
        self.under_way += 1;
    }

    /// True if messages are under way.
    pub(crate) fn any_under_way(&self) -> bool {
        self.under_way > 0
    }

    /// True if no outcome is kept.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Notes the outcome of one message. Returns the span's waker if this was its last message.
    pub(crate) fn resolve(&mut self, number: MessageNumber, outcome: Outcome) -> Option<Waker> {
        let index = self.spans.partition_point(|span| span.last < number);
        let span = self.spans.get_mut(index).filter(|span| span.first <= number)?;
        match outcome {
            Outcome::Ok { .. } if !span.ends.is_empty() && span.ends.binary_search(&number).is_err() => {}
            Outcome::Ok { seqno } => {
                span.outcome.accepted += 1;
                span.outcome.last = seqno;
            }
            Outcome::Failed => span.outcome.failure = span.outcome.failure.or(Some(SendFailure::Failed)),
            Outcome::Unknown => span.outcome.failure = span.outcome.failure.or(Some(SendFailure::Unknown)),
        }
        if number < span.last {
            return None;
        }
        let waker = span.waker.take();
        span.state = if span.state == State::UnderWay { State::Known } else { State::Taken };
        self.under_way -= 1;
        self.trim();
        waker
    }

    /// Makes the outcome of all messages under way unknown, because nothing more will be learned. Adds the spans'
    /// wakers to `wakes`.
    pub(crate) fn give_up(&mut self, wakes: &mut Vec<Waker>) {
        for span in &mut self.spans {
            let told = match span.state {
                State::UnderWay => State::Known,
                State::Forgotten => State::Taken,
                State::Known | State::Taken => continue,
            };
            span.state = told;
            span.outcome.failure = span.outcome.failure.or(Some(SendFailure::Unknown));
            wakes.extend(span.waker.take());
        }
        self.under_way = 0;
        self.trim();
    }

    /// Adds all wakers to `wakes`, so that the waiting threads and tasks check again.
    pub(crate) fn wake_all(&mut self, wakes: &mut Vec<Waker>) {
        wakes.extend(self.spans.iter_mut().filter_map(|span| span.waker.take()));
    }

    /// Takes the outcome of the span that ends with `last`, once that is known. It can be taken once.
    pub(crate) fn take(&mut self, last: MessageNumber) -> Option<BatchOutcome> {
        let span = self.find(last)?;
        if span.state != State::Known {
            return None;
        }
        span.state = State::Taken;
        let outcome = span.outcome;
        self.trim();
        Some(outcome)
    }

    /// True if it is known that the span that ends with `last` was not accepted whole. Its outcome must not have been
    /// taken.
    pub(crate) fn has_failed(&mut self, last: MessageNumber) -> bool {
        self.find(last).is_some_and(|span| span.outcome.failure.is_some())
    }

    /// Wakes `waker` when the outcome of the span that ends with `last` is known.
    pub(crate) fn register(&mut self, last: MessageNumber, waker: &Waker) {
        if let Some(span) = self.find(last) {
            match &mut span.waker {
                Some(present) => present.clone_from(waker),
                empty => *empty = Some(waker.clone()),
            }
        }
    }

    /// Drops the outcome of the span that ends with `last`: no handle will ask for it.
    pub(crate) fn forget(&mut self, last: MessageNumber) {
        if let Some(span) = self.find(last) {
            span.waker = None;
            span.state = match span.state {
                State::UnderWay | State::Forgotten => State::Forgotten,
                State::Known | State::Taken => State::Taken,
            };
            self.trim();
        }
    }

    fn find(&mut self, last: MessageNumber) -> Option<&mut Span> {
        let index = self.spans.partition_point(|span| span.last < last);
        self.spans.get_mut(index).filter(|span| span.last == last)
    }

    fn trim(&mut self) {
        while self.spans.front().is_some_and(|span| span.state == State::Taken) {
            self.spans.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OK: Outcome = Outcome::Ok { seqno: 70 };

    fn accepted(count: usize, last: u64) -> BatchOutcome {
        BatchOutcome { accepted: count, last, failure: None }
    }

    #[test]
    fn each_asks_for_its_own() {
        let mut outcomes = Outcomes::default();
        for number in 1..=3 {
            outcomes.expect(number);
        }
        outcomes.resolve(1, Outcome::Ok { seqno: 10 });
        outcomes.resolve(2, Outcome::Failed);
        assert_eq!(outcomes.take(3), None);
        assert_eq!([1, 2, 3].map(|number| outcomes.has_failed(number)), [false, true, false]);
        assert_eq!(outcomes.take(2).unwrap().failure, Some(SendFailure::Failed));
        assert_eq!(outcomes.take(1), Some(accepted(1, 10)));
        assert_eq!(outcomes.take(1), None);
        assert!(outcomes.any_under_way());
        outcomes.resolve(3, Outcome::Unknown);
        assert!(!outcomes.any_under_way());
        assert_eq!(outcomes.take(3).unwrap().failure, Some(SendFailure::Unknown));
        assert!(outcomes.spans.is_empty());
    }

    #[test]
    fn a_batch_is_known_with_its_last_message() {
        let mut outcomes = Outcomes::default();
        outcomes.expect_all(vec![3, 4, 5]);
        outcomes.resolve(3, Outcome::Ok { seqno: 40 });
        outcomes.resolve(4, Outcome::Ok { seqno: 45 });
        assert_eq!(outcomes.take(5), None);
        outcomes.resolve(5, Outcome::Failed);
        let expected = BatchOutcome { accepted: 2, last: 45, failure: Some(SendFailure::Failed) };
        assert_eq!(outcomes.take(5), Some(expected));
        assert_eq!(outcomes.expect_all(Vec::new()), None);
    }

    #[test]
    fn pieces_of_large_messages_count_for_nothing() {
        let mut outcomes = Outcomes::default();
        assert_eq!(outcomes.expect_all(vec![3, 5, 9]), Some(9));
        for number in 1..=9 {
            outcomes.resolve(number, Outcome::Ok { seqno: 40 + number });
        }
        assert_eq!(outcomes.take(9), Some(accepted(3, 49)));
    }

    #[test]
    fn unclaimed_outcomes_are_not_kept() {
        let mut outcomes = Outcomes::default();
        for number in 1..=4 {
            outcomes.expect(number);
        }
        outcomes.forget(1);
        outcomes.resolve(1, OK);
        outcomes.resolve(2, OK);
        outcomes.forget(2);
        assert_eq!(outcomes.spans.len(), 2);
        outcomes.forget(4);
        outcomes.resolve(3, OK);
        outcomes.resolve(4, OK);
        assert_eq!(outcomes.take(3), Some(accepted(1, 70)));
        assert!(outcomes.spans.is_empty());
        assert_eq!(outcomes.resolve(4, OK).map(drop), None);
    }

    #[test]
    fn giving_up_leaves_nothing_under_way() {
        let mut outcomes = Outcomes::default();
        for number in 1..=5 {
            outcomes.expect(number);
        }
        outcomes.resolve(1, OK);
        outcomes.forget(2);
        outcomes.forget(4);
        outcomes.give_up(&mut Vec::new());
        assert!(!outcomes.any_under_way());
        assert_eq!(outcomes.take(1), Some(accepted(1, 70)));
        for number in [3, 5] {
            assert_eq!(outcomes.take(number).unwrap().failure, Some(SendFailure::Unknown));
        }
        assert!(outcomes.spans.is_empty());
        for number in 6..=8 {
            outcomes.expect(number);
            outcomes.forget(number);
        }
        outcomes.give_up(&mut Vec::new());
        assert!(outcomes.spans.is_empty() && !outcomes.any_under_way());
    }
}

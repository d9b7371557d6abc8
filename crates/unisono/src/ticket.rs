//! Receipts for messages that were submitted without waiting for their places.

use crate::commands::{outcome, place};
use crate::engine::{Listed, Shared};
use crate::error::SendFailure;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use unisono_core::{MessageNumber, Seqno};

/// A message under way. Wait for its place with [`Ticket::wait`] or by awaiting it; dropping the ticket
/// changes nothing for the message.
#[derive(Debug)]
#[must_use = "a ticket is how one learns what became of the message; drop it if that does not matter"]
pub struct Ticket(Receipt);

impl Ticket {
    pub(crate) fn new(shared: Arc<Shared>, number: MessageNumber) -> Ticket {
        Ticket(Receipt { shared, number, known: None })
    }

    /// The message's number among those of this member: the `number` of its event.
    pub fn number(&self) -> MessageNumber {
        self.0.number
    }

    /// Blocks until the message has its place and is accepted, or never will be.
    pub fn wait(mut self) -> Result<Seqno, SendFailure> {
        place(self.0.wait())
    }

    /// As [`Ticket::wait`], for at most `timeout`: nothing if the message is under way still.
    pub fn wait_timeout(&mut self, timeout: Duration) -> Option<Result<Seqno, SendFailure>> {
        self.0.wait_timeout(timeout).map(place)
    }

    /// What is known now; nothing while the message is under way.
    pub fn try_wait(&mut self) -> Option<Result<Seqno, SendFailure>> {
        self.0.try_wait().map(place)
    }
}

impl Future for Ticket {
    type Output = Result<Seqno, SendFailure>;
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll(context).map(place)
    }
}

/// Messages under way that were submitted together.
#[derive(Debug)]
#[must_use = "a batch is how one learns what became of the messages; drop it if that does not matter"]
pub struct Batch {
    /// Of messages that the core took together, each to be waited for until it is known.
    receipts: VecDeque<Receipt>,
    known: BatchOutcome,
}

/// What became of a batch. Messages of one sender keep their order, so those accepted are the first ones of
/// the batch, unless a reset fell upon it: then some in its middle may have failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BatchOutcome {
    /// How many of its messages have their places.
    pub accepted: usize,
    /// The place of the last of these; 0 if there is none.
    pub last: Seqno,
    /// What became of the first that has none.
    pub failure: Option<SendFailure>,
}

impl BatchOutcome {
    fn add(&mut self, next: BatchOutcome) {
        self.accepted += next.accepted;
        self.last = self.last.max(next.last);
        self.failure = self.failure.or(next.failure);
    }
}

impl Batch {
    pub(crate) fn new() -> Batch {
        Batch { receipts: VecDeque::new(), known: BatchOutcome::default() }
    }

    /// Adds messages that the core took together, by the number of the last.
    pub(crate) fn expect(&mut self, shared: &Arc<Shared>, number: MessageNumber) {
        self.receipts.push_back(Receipt { shared: shared.clone(), number, known: None });
    }

    /// Blocks until it is known what became of every message of the batch.
    pub fn wait(mut self) -> BatchOutcome {
        for mut receipt in self.receipts.drain(..) {
            self.known.add(receipt.wait());
        }
        self.known
    }
}

impl Future for Batch {
    type Output = BatchOutcome;
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<BatchOutcome> {
        while let Some(receipt) = self.receipts.front_mut() {
            let Poll::Ready(outcome) = receipt.poll(context) else { return Poll::Pending };
            self.receipts.pop_front();
            self.known.add(outcome);
        }
        Poll::Ready(self.known)
    }
}

/// The right to ask what became of messages.
#[derive(Debug)]
struct Receipt {
    shared: Arc<Shared>,
    /// Of the last of them.
    number: MessageNumber,
    /// What the engine said, which says it once.
    known: Option<BatchOutcome>,
}

impl Receipt {
    fn wait(&mut self) -> BatchOutcome {
        let number = self.number;
        if self.known.is_none() {
            self.known = self.shared.take(|_| None, |member| outcome(member, number));
        }
        self.known.unwrap_or_default()
    }

    fn wait_timeout(&mut self, timeout: Duration) -> Option<BatchOutcome> {
        let number = self.number;
        if self.known.is_none() {
            self.known = self.shared.block(Some(timeout), |member, _| outcome(member, number));
        }
        self.known
    }

    fn try_wait(&mut self) -> Option<BatchOutcome> {
        let number = self.number;
        if self.known.is_none() {
            self.known = self.shared.with(|member, _| member.outcomes.take(number));
        }
        self.known
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<BatchOutcome> {
        let number = self.number;
        if let Some(known) = self.known {
            return Poll::Ready(known);
        }
        // Not on a list: an outcome is waited for by one, and the engine is told when nobody does any more.
        let listed = &mut Listed::default();
        let polled = self.shared.poll(context, listed, |member, _| outcome(member, number));
        if let Poll::Ready(known) = polled {
            self.known = Some(known);
        }
        polled
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        if self.known.is_none() {
            self.shared.forget(self.number);
        }
    }
}

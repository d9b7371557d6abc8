//! Receipts for messages that were submitted without waiting for their seqnos.

use crate::commands::{outcome, place};
use crate::engine::{Listed, Shared};
use crate::error::SendFailure;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use unisono_core::{MessageNumber, Seqno};

/// The receipt for a message under way. Get its seqno with [`Ticket::wait`] or by awaiting the ticket. Dropping the
/// ticket does not affect the message.
#[derive(Debug)]
#[must_use = "a ticket tells what became of the message; drop it if that does not matter"]
pub struct Ticket(Receipt);

impl Ticket {
    pub(crate) fn new(shared: Arc<Shared>, number: MessageNumber) -> Ticket {
        // An unreliable message has no number and no outcome to wait for.
        let known = (number == 0).then(BatchOutcome::default);
        Ticket(Receipt { shared, number, known })
    }

    /// Returns the message's number among those of this member: the `number` of its event. 0 for an unreliable message.
    pub fn number(&self) -> MessageNumber {
        self.0.number
    }

    /// Blocks until the outcome is known, and returns the seqno of the accepted message or why it has none. An unreliable
    /// message has no outcome: the result is 0, at once.
    pub fn wait(mut self) -> Result<Seqno, SendFailure> {
        place(self.0.wait())
    }

    /// Like [`Ticket::wait`], for at most `timeout`: `None` if the message is still under way.
    pub fn wait_timeout(&mut self, timeout: Duration) -> Option<Result<Seqno, SendFailure>> {
        self.0.wait_timeout(timeout).map(place)
    }

    /// Returns the outcome if it is known; `None` while the message is under way.
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

/// The receipt for messages that were submitted together.
#[derive(Debug)]
#[must_use = "a batch tells what became of the messages; drop it if that does not matter"]
pub struct Batch {
    /// Receipts for runs of messages that the core took together, as long as their outcomes are not known.
    receipts: VecDeque<Receipt>,
    known: BatchOutcome,
}

/// The outcome of a batch. The messages of one sender keep their order, so the accepted ones are the first of the
/// batch, unless a reset dropped some in its middle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct BatchOutcome {
    /// Number of its messages that have seqnos.
    pub accepted: usize,
    /// Seqno of the last of these; 0 if there is none.
    pub last: Seqno,
    /// Failure of the first message that has no seqno.
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

    /// Adds messages that the core took together; `number` is that of the last.
    pub(crate) fn expect(&mut self, shared: &Arc<Shared>, number: MessageNumber) {
        self.receipts.push_back(Receipt { shared: shared.clone(), number, known: None });
    }

    /// Blocks until the outcomes of all messages of the batch are known.
    pub fn wait(mut self) -> BatchOutcome {
        for mut receipt in self.receipts.drain(..) {
            self.known.add(receipt.wait());
        }
        self.known
    }

    /// Like [`Batch::wait`], for at most `timeout`: `None` if messages of the batch are still under way.
    pub fn wait_timeout(&mut self, timeout: Duration) -> Option<BatchOutcome> {
        let begin = Instant::now();
        while let Some(receipt) = self.receipts.front_mut() {
            self.known.add(receipt.wait_timeout(timeout.saturating_sub(begin.elapsed()))?);
            self.receipts.pop_front();
        }
        Some(self.known)
    }

    /// Returns the outcome of the batch if it is known; `None` while messages of it are under way.
    pub fn try_wait(&mut self) -> Option<BatchOutcome> {
        while let Some(receipt) = self.receipts.front_mut() {
            self.known.add(receipt.try_wait()?);
            self.receipts.pop_front();
        }
        Some(self.known)
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

/// The right to the outcome of messages that the core took together.
#[derive(Debug)]
struct Receipt {
    shared: Arc<Shared>,
    /// Number of the last of them.
    number: MessageNumber,
    /// The outcome that the engine gave; it gives it once.
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
            self.known = self.shared.command(|member, _| member.outcomes.take(number));
        }
        self.known
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<BatchOutcome> {
        let number = self.number;
        if let Some(known) = self.known {
            return Poll::Ready(known);
        }
        // Not on a list: one task waits for an outcome, and dropping the receipt informs the engine.
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

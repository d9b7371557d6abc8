//! Receipts for messages that were submitted without waiting for their places.

use crate::error::{Placed, SendFailure};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use unisono_core::{MessageNumber, Seqno};

/// A message under way. Wait for its place with [`Ticket::wait`] or by awaiting it; dropping the ticket changes
/// nothing for the message.
#[derive(Debug)]
pub struct Ticket {}

impl Ticket {
    /// The message's number among those of this member: the `number` of its event.
    pub fn number(&self) -> MessageNumber {
        unimplemented!()
    }

    /// Blocks until the message has its place and is accepted, or never will be.
    pub fn wait(self) -> Result<Seqno, SendFailure> {
        unimplemented!()
    }

    /// What is known now; nothing while the message is under way.
    pub fn try_wait(&mut self) -> Option<Result<Seqno, SendFailure>> {
        unimplemented!()
    }
}

impl Future for Ticket {
    type Output = Placed;
    fn poll(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<Placed> {
        unimplemented!()
    }
}

/// Messages under way that were submitted together.
#[derive(Debug)]
pub struct Batch {}

/// What became of a batch. Messages of one sender keep their order, so those accepted are the first ones of the
/// batch, as long as it was not cut in two by a reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchOutcome {
    /// How many of its messages have their places.
    pub accepted: usize,
    /// The place of the last of these; 0 if there is none.
    pub last: Seqno,
    /// What became of the first that has none.
    pub failure: Option<SendFailure>,
}

impl Batch {
    /// Blocks until something is known of every message of the batch.
    pub fn wait(self) -> BatchOutcome {
        unimplemented!()
    }
}

impl Future for Batch {
    type Output = BatchOutcome;
    fn poll(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<BatchOutcome> {
        unimplemented!()
    }
}

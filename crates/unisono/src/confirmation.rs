//! Confirmations: whether this member's group went on without it, and how far its state must be to be up to date.

use crate::commands;
use crate::engine::{Listed, Shared};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use unisono_core::{ConfirmError, ConfirmNumber, Seqno};

/// A confirmation under way, from [`Group::begin_confirm`](crate::Group::begin_confirm). Get its result with
/// [`Confirmation::wait`] or by awaiting it. Confirmations that begin while another one is under way share one answer.
#[derive(Debug)]
#[must_use = "a confirmation tells how far the state has to be"]
pub struct Confirmation {
    shared: Arc<Shared>,
    number: ConfirmNumber,
    listed: Listed,
}

impl Confirmation {
    pub(crate) fn new(shared: Arc<Shared>, number: ConfirmNumber) -> Confirmation {
        Confirmation { shared, number, listed: Listed::default() }
    }

    /// Blocks until a quorum has answered. Returns the seqno through which the caller has to apply events before it
    /// reads, or why there is no result.
    pub fn wait(self) -> Result<Seqno, ConfirmError> {
        self.wait_for(None).unwrap_or(Err(ConfirmError::Left))
    }

    /// Like [`Confirmation::wait`], for at most `timeout`: `None` if no quorum has answered by then.
    pub fn wait_timeout(&self, timeout: Duration) -> Option<Result<Seqno, ConfirmError>> {
        self.wait_for(Some(timeout))
    }

    /// Returns the result if it is known; `None` while the confirmation is under way.
    pub fn try_wait(&self) -> Option<Result<Seqno, ConfirmError>> {
        self.wait_for(Some(Duration::ZERO))
    }

    fn wait_for(&self, timeout: Option<Duration>) -> Option<Result<Seqno, ConfirmError>> {
        let mut number = Some(self.number);
        self.shared.block(timeout, |member, now| commands::confirm(member, now, &mut number))
    }
}

impl Future for Confirmation {
    type Output = Result<Seqno, ConfirmError>;
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Confirmation { shared, number, listed } = &mut *self;
        let mut number = Some(*number);
        shared.poll(context, listed, |member, now| commands::confirm(member, now, &mut number))
    }
}

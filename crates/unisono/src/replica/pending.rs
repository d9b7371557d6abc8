//! The handles on what is under way: commands, reads, the state, the end, notices. Each can be waited for by a thread
//! or awaited by a task.

use super::StateMachine;
use super::copy::Copy;
use super::error::{ReadFailure, ReplicaEnd};
use super::waits::block_on;
use crate::engine::Listed;
use futures_core::Stream;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use unisono_core::replica::{CommandFailure, CommandNumber, Done, Notice, ReadNumber};

/// A replica whose state machine does not matter.
pub(super) trait Awaited: Send + Sync {
    fn poll_command(
        &self,
        number: CommandNumber,
        context: &mut Context<'_>,
    ) -> Poll<Result<Done, CommandFailure>>;
    fn forget_command(&self, number: CommandNumber);
    fn poll_read(&self, number: ReadNumber, context: &mut Context<'_>) -> Poll<Result<(), ReadFailure>>;
    fn forget_read(&self, number: ReadNumber);
    fn poll_ready(&self, context: &mut Context<'_>, listed: &mut Listed) -> Poll<Result<(), ReplicaEnd>>;
    fn poll_end(&self, context: &mut Context<'_>, listed: &mut Listed) -> Poll<ReplicaEnd>;
    fn poll_notice(&self, context: &mut Context<'_>, listed: &mut Listed) -> Poll<Option<Notice>>;
}

impl<S: StateMachine + Send> Awaited for Copy<S> {
    fn poll_command(
        &self,
        number: CommandNumber,
        context: &mut Context<'_>,
    ) -> Poll<Result<Done, CommandFailure>> {
        let known = self.lock().commands.poll(number, context);
        known.map(|known| known.unwrap_or(Err(CommandFailure::Unknown)))
    }

    fn forget_command(&self, number: CommandNumber) {
        self.lock().commands.forget(number);
    }

    fn poll_read(&self, number: ReadNumber, context: &mut Context<'_>) -> Poll<Result<(), ReadFailure>> {
        self.lock().reads.poll(number, context).map(|known| known.unwrap_or(Err(ReadFailure::Ended)))
    }

    fn forget_read(&self, number: ReadNumber) {
        self.lock().reads.forget(number);
    }

    fn poll_ready(&self, context: &mut Context<'_>, listed: &mut Listed) -> Poll<Result<(), ReplicaEnd>> {
        let mut state = self.lock();
        match &state.end {
            Some(end) => Poll::Ready(Err(end.clone())),
            None if state.was_ready => Poll::Ready(Ok(())),
            None => {
                state.register(context, listed);
                Poll::Pending
            }
        }
    }

    fn poll_end(&self, context: &mut Context<'_>, listed: &mut Listed) -> Poll<ReplicaEnd> {
        let mut state = self.lock();
        match &state.end {
            Some(end) => Poll::Ready(end.clone()),
            None => {
                state.register(context, listed);
                Poll::Pending
            }
        }
    }

    fn poll_notice(&self, context: &mut Context<'_>, listed: &mut Listed) -> Poll<Option<Notice>> {
        let mut state = self.lock();
        match (state.notices.pop_front(), &state.end) {
            (Some(notice), _) => Poll::Ready(Some(notice)),
            (None, Some(_)) => Poll::Ready(None),
            (None, None) => {
                state.register(context, listed);
                Poll::Pending
            }
        }
    }
}

/// A command under way. Get its outcome with [`PendingCommand::wait`] or by awaiting it. Dropping it does not cancel
/// the command.
#[must_use = "without its outcome it is unknown whether the command took effect"]
pub struct PendingCommand {
    replica: Arc<dyn Awaited>,
    begun: Result<CommandNumber, CommandFailure>,
}

impl PendingCommand {
    pub(super) fn new(
        replica: Arc<dyn Awaited>,
        begun: Result<CommandNumber, CommandFailure>,
    ) -> PendingCommand {
        PendingCommand { replica, begun }
    }

    /// Returns the reply of the state machine, and the command's position. Blocks until the outcome is known, at most
    /// until about a second after [`ReplicaOptions::command_within`](super::ReplicaOptions::command_within).
    pub fn wait(mut self) -> Result<Done, CommandFailure> {
        block_on(None, |context| self.poll_outcome(context)).unwrap_or(Err(CommandFailure::Unknown))
    }

    fn poll_outcome(&mut self, context: &mut Context<'_>) -> Poll<Result<Done, CommandFailure>> {
        match &self.begun {
            Ok(number) => self.replica.poll_command(*number, context),
            Err(failure) => Poll::Ready(Err(failure.clone())),
        }
    }
}

impl Future for PendingCommand {
    type Output = Result<Done, CommandFailure>;
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_outcome(context)
    }
}

impl Drop for PendingCommand {
    fn drop(&mut self) {
        if let Ok(number) = self.begun {
            self.replica.forget_command(number);
        }
    }
}

impl fmt::Debug for PendingCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PendingCommand({:?})", self.begun)
    }
}

/// A wait for the state of this member: until it contains what was answered anywhere before
/// ([`Replica::barrier_start`](super::Replica::barrier_start)), or until a command is applied. Get its end with
/// [`PendingRead::wait`] or by awaiting it.
#[must_use = "it says when to read"]
pub struct PendingRead {
    replica: Arc<dyn Awaited>,
    begun: Result<ReadNumber, ReadFailure>,
}

impl PendingRead {
    pub(super) fn new(replica: Arc<dyn Awaited>, begun: Result<ReadNumber, ReadFailure>) -> PendingRead {
        PendingRead { replica, begun }
    }

    /// Blocks until the local state may be read; at most for `timeout`.
    pub fn wait(mut self, timeout: Duration) -> Result<(), ReadFailure> {
        let until = Instant::now().checked_add(timeout);
        block_on(until, |context| self.poll_end(context)).unwrap_or(Err(ReadFailure::TimedOut))
    }

    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<Result<(), ReadFailure>> {
        match &self.begun {
            Ok(number) => self.replica.poll_read(*number, context),
            Err(failure) => Poll::Ready(Err(failure.clone())),
        }
    }
}

impl Future for PendingRead {
    type Output = Result<(), ReadFailure>;
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_end(context)
    }
}

impl Drop for PendingRead {
    fn drop(&mut self) {
        if let Ok(number) = self.begun {
            self.replica.forget_read(number);
        }
    }
}

impl fmt::Debug for PendingRead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PendingRead({:?})", self.begun)
    }
}

/// The time until a replica has the state, from [`Replica::ready`](super::Replica::ready). Wait for it or await it.
#[must_use = "the replica has no state before"]
pub struct Ready {
    replica: Arc<dyn Awaited>,
    listed: Listed,
}

impl Ready {
    pub(super) fn new(replica: Arc<dyn Awaited>) -> Ready {
        Ready { replica, listed: Listed::default() }
    }

    /// Blocks until the replica has the state, at most for `timeout`. Returns whether it has.
    ///
    /// # Errors
    /// It has ended.
    pub fn wait(mut self, timeout: Duration) -> Result<bool, ReplicaEnd> {
        let until = Instant::now().checked_add(timeout);
        let ready = block_on(until, |context| self.replica.poll_ready(context, &mut self.listed));
        ready.map_or(Ok(false), |ready| ready.map(|()| true))
    }
}

impl Future for Ready {
    type Output = Result<(), ReplicaEnd>;
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Ready { replica, listed } = &mut *self;
        replica.poll_ready(context, listed)
    }
}

impl fmt::Debug for Ready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ready")
    }
}

/// The notices of a replica as a stream, from [`Replica::notices`](super::Replica::notices). It ends with the replica.
pub struct Notices {
    replica: Arc<dyn Awaited>,
    listed: Listed,
}

impl Notices {
    pub(super) fn new(replica: Arc<dyn Awaited>) -> Notices {
        Notices { replica, listed: Listed::default() }
    }
}

impl Stream for Notices {
    type Item = Notice;
    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Notice>> {
        let Notices { replica, listed } = &mut *self;
        replica.poll_notice(context, listed)
    }
}

impl fmt::Debug for Notices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Notices")
    }
}

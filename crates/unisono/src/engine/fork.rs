//! What a forked child may do with its parent's handles: nothing.
//!
//! A child has a copy of the parent's state and the parent's sockets. If it sent anything, two processes would seal with the
//! same packet numbers, which breaks the cipher; if it read a socket, the parent would miss what came; and its end would be
//! the parent's leave. So an engine remembers the process that made it. In any other process it sends and reads nothing,
//! sets no timer, and whatever is attempted with it comes to an error.

use crate::error::{Ended, LeaveFailure, OpenError, SendFailure};
use crate::rpc::{CallFailure, NotDrained, NotSent, Withdrawn};
use crate::ticket::BatchOutcome;
use std::time::Duration;
use unisono_core::rpc::{AnswerError, ForwardError};
use unisono_core::{HandOverError, ResetError, SendError, Time};

/// Minimum interval between two questions for the process id, each a system call. To copy a process takes longer, so the
/// first thing that a child does with a handle is to ask.
const ASK_EVERY: Duration = Duration::from_micros(20);

/// The process that an engine belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Home {
    process: u32,
    asked_at: Time,
    left: bool,
}

impl Home {
    /// The engine belongs to this process.
    pub(super) fn new() -> Home {
        Home { process: std::process::id(), asked_at: Time::ZERO, left: false }
    }

    /// Asks whether this is another process, a forked child.
    pub(super) fn is_elsewhere(&self) -> bool {
        std::process::id() != self.process
    }

    /// Whether this is a forked child. Asks the system, unless it did a moment ago.
    pub(super) fn is_left(&mut self, now: Time) -> bool {
        if now.since(self.asked_at) >= ASK_EVERY {
            self.asked_at = now;
            self.left = self.left || self.is_elsewhere();
        }
        self.left
    }
}

/// What an attempt comes to in a forked child.
pub(crate) trait OfFork {
    fn of_fork() -> Self;
}

impl<T, E: OfFork> OfFork for Result<T, E> {
    fn of_fork() -> Self {
        Err(E::of_fork())
    }
}

impl<T: OfFork> OfFork for Option<T> {
    fn of_fork() -> Self {
        Some(T::of_fork())
    }
}

impl OfFork for () {
    fn of_fork() -> Self {}
}

macro_rules! of_fork {
    ($($error:ty: $value:expr),* $(,)?) => {$(
        impl OfFork for $error {
            fn of_fork() -> Self {
                $value
            }
        }
    )*};
}

of_fork! {
    SendError: SendError::Forked,
    ResetError: ResetError::Forked,
    HandOverError: HandOverError::Forked,
    SendFailure: SendError::Forked.into(),
    Ended: Ended::Forked,
    LeaveFailure: LeaveFailure::Forked,
    OpenError: OpenError::Forked,
    NotSent: NotSent::Forked,
    // What the parent began goes on there: the child learns nothing of it.
    BatchOutcome: BatchOutcome { failure: Some(SendFailure::Unknown), ..BatchOutcome::default() },
    CallFailure: CallFailure::Unknown,
    Withdrawn: Withdrawn,
    NotDrained: NotDrained,
    AnswerError: AnswerError::Over,
    ForwardError: ForwardError::Over,
}

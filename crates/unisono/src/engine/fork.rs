//! Disables a parent's handles in a forked child.
//!
//! A forked child has a copy of the parent's state, and shares the parent's sockets. If it sent, two processes would
//! seal datagrams with the same packet numbers, which breaks the cipher. If it read a socket, the parent would miss
//! what it read. If it dropped a handle, the parent's member would leave. So an engine remembers the process that made
//! it. In any other process it sends nothing, reads no socket and sets no timer, and operations that would need this
//! return errors.

use crate::error::{Ended, LeaveFailure, OpenError, SendFailure};
use crate::rpc::{CallFailure, NotDrained, NotSent, Withdrawn};
use crate::ticket::BatchOutcome;
use std::time::Duration;
use unisono_core::rpc::{AnswerError, ForwardError};
use unisono_core::{
    ChangeOrderError, ConfirmError, ForceError, HandOverError, ResetError, SendError, Standing, Time,
};

/// Minimum interval between two `getpid` system calls: 20 µs. A fork takes longer, so the child's first use of a handle
/// always makes one.
const ASK_EVERY: Duration = Duration::from_micros(20);

/// The process that an engine belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Home {
    process: u32,
    asked_at: Time,
    left: bool,
}

impl Home {
    /// Returns the present process as the owner of an engine.
    pub(super) fn new() -> Home {
        Home { process: std::process::id(), asked_at: Time::ZERO, left: false }
    }

    /// True if the present process is another one: a forked child. Makes a system call.
    pub(super) fn is_elsewhere(&self) -> bool {
        std::process::id() != self.process
    }

    /// True if the present process is a forked child. Makes a system call, unless the last one was within `ASK_EVERY`.
    pub(super) fn is_left(&mut self, now: Time) -> bool {
        // A child in another time namespace may have an earlier clock.
        if now.since(self.asked_at).max(self.asked_at.since(now)) >= ASK_EVERY {
            self.asked_at = now;
            self.left = self.left || self.is_elsewhere();
        }
        self.left
    }
}

/// The result of an operation in a forked child: an error, or nothing.
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
    ForceError: ForceError::Forked,
    Standing: Standing::Out,
    HandOverError: HandOverError::Forked,
    ChangeOrderError: ChangeOrderError::Forked,
    ConfirmError: ConfirmError::Forked,
    SendFailure: SendError::Forked.into(),
    Ended: Ended::Forked,
    LeaveFailure: LeaveFailure::Forked,
    OpenError: OpenError::Forked,
    NotSent: NotSent::Forked,
    // What the parent began goes on in the parent; the child does not learn the outcome.
    BatchOutcome: BatchOutcome { failure: Some(SendFailure::Unknown), ..BatchOutcome::default() },
    CallFailure: CallFailure::Unknown,
    Withdrawn: Withdrawn,
    NotDrained: NotDrained,
    AnswerError: AnswerError::Over,
    ForwardError: ForwardError::Over,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_recognized_whether_its_clock_is_later_or_earlier() {
        let fork = Time::ZERO + Duration::from_secs(1);
        for now in [fork + ASK_EVERY, Time::ZERO] {
            let mut child = Home { process: u32::MAX, asked_at: fork, left: false };
            assert!(child.is_left(now), "{now:?}");
        }
        assert!(!Home::new().is_left(fork));
    }
}

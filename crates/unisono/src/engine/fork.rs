//! Disables a parent's handles in a forked child.
//!
//! A forked child has a copy of the parent's state, and shares the parent's sockets. If it sent, two processes would
//! seal datagrams with the same packet numbers, which breaks the cipher. If it read a socket, the parent would miss
//! what it read. If it dropped a handle, the parent's member would leave. So an engine remembers the process that made
//! it ([`Process`](unisono_fork::Process)). In any other process it sends nothing, reads no socket and sets no timer, and
//! operations that would need this return errors.

use crate::error::{Ended, LeaveFailure, OpenError, SendFailure};
use crate::rpc::{CallFailure, NotDrained, NotSent, Withdrawn};
use crate::ticket::BatchOutcome;
use unisono_core::rpc::{AnswerError, ForwardError};
use unisono_core::{
    ChangeOrderError, ConfirmError, ForceError, HandOverError, ResetError, SendError, Standing,
};

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

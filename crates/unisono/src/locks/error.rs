//! The errors of lock services.

use thiserror::Error;
use unisono_core::debug_as_sentence;
use unisono_core::locks::LockRefusal;

/// Why a lock was not acquired. This process has no claim to it that it did not have before.
#[derive(Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NotAcquired {
    /// The lock service refuses the claim.
    #[error(transparent)]
    Refused(#[from] LockRefusal),
    /// This process did not get the lock in time.
    #[error("this process did not get the lock in time")]
    TimedOut,
    /// The group of the locks carries out no commands at present: it lacks its quorum, or has fewer members with the state
    /// than its minimum. Only [`LockService::try_acquire`](super::LockService::try_acquire) gives up for that.
    #[error("the group of the locks carries out no commands at present")]
    Halted,
    /// Another thread of this process has the lock, or waits for it. A process has one claim to a lock, so its threads
    /// share the [`Held`](super::Held).
    #[error("another thread of this process has this lock, or waits for it")]
    AlreadyAsked,
    /// Too many commands of this process wait for their outcomes. Try again later.
    #[error("too many commands of this process wait for their outcomes: try again later")]
    Busy,
    /// This member has ended.
    #[error("this member of the lock service has ended")]
    Ended,
}

debug_as_sentence!(NotAcquired { TimedOut, Halted, AlreadyAsked, Busy, Ended; of Refused });

/// Why a lock was not released. This process does not have it any more in any case.
#[derive(Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NotReleased {
    /// The claim had ended before: the group excluded this member meanwhile.
    #[error("the lock was lost before: the group excluded this member")]
    Lost,
    /// The release is under way, and its outcome is not known yet.
    #[error("the release is under way: too many commands of this process wait for their outcomes")]
    Busy,
    /// This member has ended, and its claims with it.
    #[error("this member of the lock service has ended, and its claims with it")]
    Ended,
}

debug_as_sentence!(NotReleased { Lost, Busy, Ended });

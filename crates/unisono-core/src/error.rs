//! Why a call was refused. None of these changes any state, unless it says so.

use crate::identity::Uid;
use thiserror::Error;

/// A parameter is out of its range: the caller's mistake, nothing was done.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{parameter} is {value}; it must be {allowed}")]
pub struct ConfigError {
    /// Which parameter.
    pub parameter: &'static str,
    /// What was given.
    pub value: u64,
    /// What is allowed.
    pub allowed: &'static str,
}

/// A message was not taken. Nothing was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SendError {
    /// Larger than the group allows; send less, or found the group with a larger limit.
    #[error("the message has {bytes} bytes; this group takes at most {max}")]
    TooLarge {
        /// What was given.
        bytes: usize,
        /// The group's limit.
        max: usize,
    },
    /// Too much is under way: try again after the next event.
    #[error("the send window is full; try again when messages under way have been ordered")]
    WindowFull,
    /// Too much is under way, and nothing of it gets a place until this member's application takes events: those that
    /// wait for it fill the history, and nobody orders past that. Receive first.
    #[error("the send window is full, and stays so until this member receives the events that wait for it")]
    NotReceiving,
    /// Not a member yet: wait for [`crate::Event::Entered`].
    #[error("not a member of the group yet")]
    NotMember,
    /// The group is being reset: try again after [`crate::Event::Reset`].
    #[error("the group is being reset; try again when it is over")]
    Resetting,
    /// This member leaves, has left or was excluded.
    #[error("this member is no longer in the group")]
    Left,
}

/// A leave was not begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LeaveError {
    /// Not a member yet.
    #[error("not a member of the group yet")]
    NotMember,
    /// Already leaving, gone or excluded.
    #[error("this member is already on its way out")]
    Left,
    /// Longer than a goodbye may be.
    #[error("the goodbye has {bytes} bytes; at most {max} fit")]
    TooLarge {
        /// What was given.
        bytes: usize,
        /// What fits.
        max: usize,
    },
}

/// A reset was not begun, or cannot end at present ([`ResetError::Halted`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ResetError {
    /// Nobody is suspected, and the group has fewer members than were asked for.
    #[error("the group has {members} members, fewer than the {min} asked for")]
    TooFew {
        /// Members now.
        members: usize,
        /// The floor that was asked for.
        min: usize,
    },
    /// Too few members answer. The reset is under way, and ends when enough of the missing members answer again.
    #[error(
        "the group stands still: {missing} of its members do not answer, and no quorum is left without them"
    )]
    Halted {
        /// Number of members that do not answer.
        missing: usize,
    },
    /// Not a member, or no longer.
    #[error("not a member of the group")]
    NotMember,
}

/// A reset was not forced. Nothing was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ForceError {
    /// The group is not halted at this member: a reset without force may be possible.
    #[error("the group does not stand still, or not yet: only a group without a quorum can be forced")]
    NotHalted,
    /// This uid is not in the view.
    #[error("{0} is not a member of the view")]
    NoSuchMember(Uid),
    /// The member was heard within the last second.
    #[error("{0} answers: a group can be forced to go on only without members that are dead")]
    Answers(Uid),
    /// Not a member, or no longer.
    #[error("not a member of the group")]
    NotMember,
}

/// The role of sequencer was not handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HandOverError {
    /// Only the sequencer can hand the role over.
    #[error("this member does not order; {sequencer} does")]
    NotSequencer {
        /// Who does.
        sequencer: Uid,
    },
    /// The successor is not in the view.
    #[error("{0} is not a member of the view")]
    NoSuchMember(Uid),
    /// The group is being reset.
    #[error("the group is being reset")]
    Resetting,
    /// In this group only leaves and resets move the role.
    #[error("in this group only leaves and resets move the role")]
    Never,
}

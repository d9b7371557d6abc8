//! Errors: why a call was refused. A refused call changes no state, unless its error says so.

use crate::debug_as_sentence;
use crate::identity::{Name, Uid};
use thiserror::Error;

/// A parameter is out of its range: the caller's mistake. Nothing was done.
#[derive(Clone, PartialEq, Eq, Error)]
#[error("{parameter} is {value}; it must be {allowed}")]
pub struct ConfigError {
    /// Name of the parameter.
    pub parameter: &'static str,
    /// Value that was given.
    pub value: u64,
    /// Description of the allowed values.
    pub allowed: &'static str,
}

debug_as_sentence!(ConfigError);

/// A text is not a [`Name`]: the caller's mistake.
#[derive(Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NameError {
    /// The text is empty.
    #[error("a name has 1 to {max} bytes, and this one is empty", max = Name::BYTES_MAX)]
    Empty,
    /// The text has more than [`Name::BYTES_MAX`] bytes.
    #[error("a name has 1 to {max} bytes, and this one has {bytes}", max = Name::BYTES_MAX)]
    TooLong {
        /// Size of the text in bytes.
        bytes: usize,
    },
    /// The text has a control character, which could move the cursor of a person who reads it.
    #[error("a name has no control characters, and this one has {character:?} at byte {at}")]
    Control {
        /// The first such character.
        character: char,
        /// Number of bytes before it.
        at: usize,
    },
}

debug_as_sentence!(NameError { Empty, TooLong, Control });

/// A text is not a [`Floor`](crate::Floor): the caller's mistake.
#[derive(Clone, Copy, PartialEq, Eq, Error)]
#[error("a floor is a number of members from 1 to 4,096, majority, all or none")]
pub struct FloorError;

debug_as_sentence!(FloorError);

/// A message was refused. Nothing was sent.
#[derive(Clone, Copy, PartialEq, Eq, Error)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum SendError {
    /// The message is larger than the group allows. Send less, or found the group with a larger limit.
    #[error("the message has {bytes} bytes; this group takes at most {max}")]
    TooLarge {
        /// Size of the message in bytes.
        bytes: usize,
        /// Limit of the group in bytes.
        max: usize,
    },
    /// The message asks for [`Quality::UNRELIABLE`](crate::Quality::UNRELIABLE) and does not fit one datagram of this member
    /// ([`Settings::datagram_bytes_max`](crate::Settings::datagram_bytes_max)). Send less, or ask for another quality.
    #[error(
        "the message has {bytes} bytes; an unreliable one is a single datagram, which takes at most {max}"
    )]
    NotOneDatagram {
        /// Size of the message in bytes.
        bytes: usize,
        /// Most bytes that fit a datagram.
        max: usize,
    },
    /// Too many messages are under way. Try again after the next event.
    #[error("the send window is full; try again when messages under way have been ordered")]
    WindowFull,
    /// Too many messages are under way, and none of them gets a seqno until this member's application takes events: the
    /// events that wait for it fill the history, and the sequencer numbers nothing beyond that. Receive first.
    #[error("the send window is full, and stays so until this member receives the events that wait for it")]
    NotReceiving,
    /// This process is not a member yet. Wait for [`crate::Event::Entered`].
    #[error("not a member of the group yet")]
    NotMember,
    /// The group is being reset. Try again after [`crate::Event::Reset`].
    #[error("the group is being reset; try again when it is over")]
    Resetting,
    /// This member is leaving, has left or was excluded.
    #[error("this member is no longer in the group")]
    Left,
    /// A forked child uses a handle of its parent's, which the library refuses.
    #[error("this handle belongs to the process that forked: open another one here")]
    Forked,
    /// The message asks for [`Quality::MAJORITY`](crate::Quality::MAJORITY) or [`Quality::TOTAL`](crate::Quality::TOTAL),
    /// and the group was founded with [`Quorum::AtLeast`](crate::Quorum::AtLeast) at most half of its maximum number of
    /// members. Send it with [`Quality::resilient`](crate::Quality::resilient), or found the group with another quorum.
    #[error(
        "the message asks for a majority or for all members; this group was founded so that fewer than a majority can go \
         on, and may split into parts of which one would lack the message"
    )]
    QuorumsDoNotIntersect,
}

debug_as_sentence!(SendError {
    TooLarge,
    NotOneDatagram,
    WindowFull,
    NotReceiving,
    NotMember,
    Resetting,
    Left,
    Forked,
    QuorumsDoNotIntersect
});

/// A leave was refused.
#[derive(Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LeaveError {
    /// This process is not a member yet.
    #[error("not a member of the group yet")]
    NotMember,
    /// This member is already leaving, has left or was excluded.
    #[error("this member is already leaving, has left or was excluded")]
    Left,
    /// The goodbye is too long.
    #[error("the goodbye has {bytes} bytes; at most {max} fit")]
    TooLarge {
        /// Size of the goodbye in bytes.
        bytes: usize,
        /// Maximum size in bytes.
        max: usize,
    },
}

debug_as_sentence!(LeaveError { NotMember, Left, TooLarge });

/// A confirmation was refused, or ended without a result. It changed nothing.
#[derive(Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConfirmError {
    /// This process is not a member yet. Wait for [`crate::Event::Entered`].
    #[error("not a member of the group yet")]
    NotMember,
    /// This member is leaving, has left, ended its life or was excluded. What it holds may be out of date.
    #[error("this member is no longer in the group, and what it holds may be out of date")]
    Left,
    /// A forked child uses a handle of its parent's, which the library refuses.
    #[error("this handle belongs to the process that forked: open another one here")]
    Forked,
}

debug_as_sentence!(ConfirmError { NotMember, Left, Forked });

/// Why a reset was not begun, or cannot end at present ([`ResetError::Halted`]).
#[derive(Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ResetError {
    /// No member is suspected, and the group has fewer members than the caller asked for.
    #[error("the group has {members} members, fewer than the {min} asked for")]
    TooFew {
        /// Present number of members.
        members: usize,
        /// Minimum that the caller asked for.
        min: usize,
    },
    /// Too few members answer. The reset is under way, and ends when enough of the missing members answer again.
    #[error("the group is halted: {missing} of its members do not answer, and too few are left without them")]
    Halted {
        /// Number of members that do not answer.
        missing: usize,
    },
    /// This process is not a member, or no longer one.
    #[error("not a member of the group")]
    NotMember,
    /// A forked child uses a handle of its parent's, which the library refuses.
    #[error("this handle belongs to the process that forked: open another one here")]
    Forked,
}

debug_as_sentence!(ResetError { TooFew, Halted, NotMember, Forked });

/// Why a reset was not forced. Nothing was begun.
#[derive(Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ForceError {
    /// The group is not halted at this member: a reset without force may be possible.
    #[error("the group is not halted, or not yet: only a group without a quorum can be forced")]
    NotHalted,
    /// This uid is not in the view.
    #[error("{0} is not a member of the view")]
    NoSuchMember(Uid),
    /// The member sent a datagram within the last second.
    #[error("{0} answers: a group can be forced to go on only without members that are dead")]
    Answers(Uid),
    /// This process is not a member, or no longer one.
    #[error("not a member of the group")]
    NotMember,
    /// A forked child uses a handle of its parent's, which the library refuses.
    #[error("this handle belongs to the process that forked: open another one here")]
    Forked,
}

debug_as_sentence!(ForceError { NotHalted, NoSuchMember, Answers, NotMember, Forked });

/// The role of sequencer was not handed over.
#[derive(Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HandOverError {
    /// Only the sequencer can hand the role over.
    #[error("this member is not the sequencer; {sequencer} is")]
    NotSequencer {
        /// The present sequencer.
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
    /// A forked child uses a handle of its parent's, which the library refuses.
    #[error("this handle belongs to the process that forked: open another one here")]
    Forked,
}

/// The order of the group was not changed.
#[derive(Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ChangeOrderError {
    /// This member has not entered the group.
    #[error("this member has not entered the group")]
    NotMember,
    /// This member leaves, or its part in the group is over.
    #[error("this member leaves the group, or has left it")]
    Left,
    /// The group is being reset.
    #[error("the group is being reset: try again")]
    Resetting,
    /// A member has asked for another order, and that is not in force yet.
    #[error("another change of the order is under way: try again")]
    UnderWay,
    /// The group is ordered so.
    #[error("the group is ordered so already")]
    InForce,
    /// A forked child uses a handle of its parent's, which the library refuses.
    #[error("this handle belongs to the process that forked: open another one here")]
    Forked,
}

debug_as_sentence!(ChangeOrderError { NotMember, Left, Resetting, UnderWay, InForce, Forked });
debug_as_sentence!(HandOverError { NotSequencer, NoSuchMember, Resetting, Never, Forked });

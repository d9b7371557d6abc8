//! Reliable, totally ordered group communication.
#![forbid(unsafe_code)]

mod asynchronous;
mod commands;
mod engine;
mod error;
mod group;
mod key;
mod opening;
mod options;
mod outside;
mod reach;
mod sealed;
mod ticket;

pub use asynchronous::{AsyncGroup, Events};
pub use bytes::Bytes;
pub use error::{Ended, KeyError, LeaveFailure, LookError, OpenError, SendFailure};
pub use group::Group;
pub use key::Key;
pub use options::{DEFAULT_PORT, Options};
pub use outside::look;
pub use ticket::{Batch, BatchOutcome, Ticket};
pub use unisono_core::look::{Counters, MemberReport, Report, WaitReason, Waiting};
pub use unisono_core::{
    ConfigError, EpochId, Event, GroupConfig, HandOverError, Info, JoinFailure, LeaveError, Member,
    MessageNumber, Name, Phase, Port, Quorum, ResetError, SendError, Seqno, Settings, SlowMember, Suspicion,
    Transport, Uid, View,
};

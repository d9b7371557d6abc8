//! The types of a replica's contract with its driver.

use super::durable::{Job, JobNumber};
use super::machine::{NotRestored, Position};
use crate::config::{GroupConfig, Quorum};
use crate::identity::{Member, Name, Uid};
use crate::quality::Quality;
use crate::rpc::RequestId;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use bytes::Bytes;
use core::net::{IpAddr, SocketAddr};
use thiserror::Error;

/// Hash of bytes that no two different contents share: SHA-256 in real programs.
pub type Digest = [u8; 32];

/// Number of a command of this process, counted by its replica.
pub type CommandNumber = u64;

/// Number of a read or wait of this process, counted by its replica.
pub type ReadNumber = u64;

/// Number of a call of a state's transfer.
pub type FetchNumber = u64;

/// What holds a command before its caller gets the answer. Chosen when the service is founded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Durability {
    /// All members hold it. As long as one member that has the state lives, nothing that was answered is lost, and
    /// reads can be linearizable.
    #[default]
    HeldByAll,
    /// More than half of the members hold it. Every reset keeps what was answered, and reads can be linearizable. No answer
    /// waits for the slowest members: one that stands still delays none while it is not suspected yet. If a majority of the
    /// members is lost at once, so may be what was answered last, although others live. Not with
    /// [`Quorum::AtLeast`](crate::Quorum::AtLeast) below a majority.
    HeldByMajority,
    /// The disks of the servers have it, as many of them as [`DiskDurability`](super::disk::DiskDurability) says, which also
    /// says with which resilience the group is founded. Reads can be linearizable.
    OnDisk,
    /// The member that answers has applied it; the crash of that member may lose it. For state that several processes
    /// share to compute faster. Reads are local only.
    Ordered,
}

impl Durability {
    pub(super) fn has_linearizable_reads(self) -> bool {
        self != Durability::Ordered
    }

    /// Returns the resilience degree that the group of such a service is founded with.
    pub fn resilience(self) -> u8 {
        match self {
            Durability::HeldByAll => u8::MAX,
            // A majority of two or more members is never fewer than two.
            Durability::HeldByMajority => 1,
            // What disks have counts.
            Durability::OnDisk | Durability::Ordered => 0,
        }
    }

    /// Returns the quality of the messages in the group of such a service.
    pub fn quality(self) -> Quality {
        match self {
            // The resilience is enough.
            Durability::HeldByAll | Durability::OnDisk | Durability::Ordered => Quality::ORDERED,
            Durability::HeldByMajority => Quality::MAJORITY,
        }
    }

    /// Returns the quality of the message of a command for which a caller asks this quality: it asks for at least as many
    /// holders as the caller and as the service do.
    pub fn quality_for(self, wished: Quality) -> Quality {
        match self {
            // All members hold it anyway.
            Durability::HeldByAll => self.quality(),
            Durability::HeldByMajority if wished == Quality::MAJORITY => wished,
            // Two members are a majority of any view that has two.
            Durability::HeldByMajority if !wished.exceeds(self.resilience()) => self.quality(),
            // No quality asks for the larger of a majority and k + 1.
            Durability::HeldByMajority => Quality::TOTAL,
            // The group's resilience is that of the disks, at least.
            Durability::OnDisk if !wished.exceeds(0) => self.quality(),
            Durability::OnDisk | Durability::Ordered => wished,
        }
    }

    /// Returns the durability of a service in memory whose group has this configuration. That of a service on disk is
    /// [`Durability::OnDisk`], whatever the resilience of its group.
    pub fn of(config: &GroupConfig) -> Durability {
        match config.resilience {
            0 => Durability::Ordered,
            u8::MAX => Durability::HeldByAll,
            _ => Durability::HeldByMajority,
        }
    }
}

/// Settings of one life of a replica.
#[derive(Clone, Debug)]
pub struct ReplicaSettings {
    /// Uid under which the commands of this process are remembered. It stays the same when a member re-enters. No
    /// endpoint may have it: the numbers of an endpoint's calls are its own.
    pub client: Uid,
    /// What holds a command before its caller gets the answer.
    pub durability: Durability,
    /// Maximum size of a message of the group in bytes. A command may have 41 bytes less.
    pub message_bytes_max: usize,
    /// Minimum number of members that have the state with which commands are carried out.
    pub members_min: u16,
    /// The names that count towards this minimum; all members count if there are none.
    pub names: Vec<Name>,
    /// Maximum number of the member's messages under way ([`GroupConfig::window`]).
    pub window: u32,
    /// True if any two quorums of the group have a member in common ([`GroupConfig::quorums_intersect`]): only then a command
    /// can be held by a majority or by all.
    pub quorums_intersect: bool,
    /// Hash function for the parts of snapshots and for the comparison of copies.
    pub digest: fn(&[u8]) -> Digest,
}

impl ReplicaSettings {
    /// Returns the names that count towards the minimum of a group with this configuration; none if all members count.
    pub fn names_of(config: &GroupConfig) -> Vec<Name> {
        match &config.quorum {
            Quorum::MajorityOfNamed(names) => names.clone(),
            _ => Vec::new(),
        }
    }
}

/// What a driver is to do for a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Output {
    /// Send this message to the group, with this quality. The order of messages does not matter.
    Submit(Bytes, Quality),
    /// Answer a request.
    Answer(RequestId, Answer),
    /// Confirm the group's end ([`Group::confirm`](crate::Group::confirm)), and pass the seqno to
    /// [`Replica::handle_confirmed`](super::Replica::handle_confirmed). Asked for again only after that.
    Confirm,
    /// Call the transfer port of the member at this address, and pass the outcome to
    /// [`Replica::handle_fetched`](super::Replica::handle_fetched).
    Fetch {
        /// Number of the call.
        call: FetchNumber,
        /// Address of the member.
        to: SocketAddr,
        /// Bytes of the request.
        request: Bytes,
    },
    /// A command of this process has an outcome.
    Done(CommandNumber, Result<Done, CommandFailure>),
    /// A read or wait of this process is over: the local state contains what it waited for.
    Ready(ReadNumber),
    /// This member has the state from now on: callers may be served.
    Informed,
    /// This member has fetched the state: pass that on to the group ([`Group::note_state`](crate::Group::note_state)).
    StateFetched,
    /// Tell the operator.
    Notice(Notice),
    /// This member must leave the group and not serve any longer.
    Stop(StopReason),
    /// Set this member's note in the group ([`Group::set_note`](crate::Group::set_note)).
    Note {
        /// The note.
        note: Bytes,
        /// True if it has to go at once.
        at_once: bool,
    },
    /// Give this job to the disk, and pass its outcome to [`Replica::handle_stored`](super::Replica::handle_stored).
    Store(JobNumber, Box<Job>),
    /// End this life at once, and begin the next one: it enters the group, or forms it with other servers.
    Reenter,
}

/// What a caller is told if no server can answer.
pub const NO_COPY: &[u8] = b"this server has no copy of the state at present";

/// What is done with a caller's request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Reply with these bytes.
    Reply(Bytes),
    /// Reply with these bytes to a request that showed no right ([`Endpoint::deny`](crate::rpc::Endpoint::deny)).
    Deny(Bytes),
    /// Refuse, for this reason.
    Refuse(Bytes),
    /// Refuse with [`NO_COPY`]: this member has no copy of the state and knows no other server.
    NoCopy,
    /// Pass the request on to the server at this address.
    Forward(SocketAddr),
    /// Let the rest of the request come: its beginning was looked at ([`Endpoint::go_on`](crate::rpc::Endpoint::go_on)).
    GoOn {
        /// The beginning showed a right.
        shows_right: bool,
    },
}

impl Answer {
    /// True if another server has to answer, because this one has no copy of the state.
    pub fn is_for_another_server(&self) -> bool {
        match self {
            Answer::Forward(_) | Answer::NoCopy => true,
            Answer::Reply(_) | Answer::Deny(_) | Answer::Refuse(_) | Answer::GoOn { .. } => false,
        }
    }
}

/// The outcome of a command of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Done {
    /// The reply of the state machine.
    pub reply: Bytes,
    /// Position of the command, or of a later one. A replica that has applied this position has applied the command.
    pub position: Position,
}

/// Why a command of this process failed.
#[derive(Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CommandFailure {
    /// The state machine refuses the command, with this reason.
    #[error("the state machine refuses the command: {}", alloc::string::String::from_utf8_lossy(.0))]
    Refused(Bytes),
    /// No outcome came before the deadline, or this replica ended first: the command took effect once or not at all.
    #[error("no outcome came in time; the command took effect once or not at all")]
    Unknown,
    /// This replica has ended: the command did not take effect.
    #[error("this replica has ended; the command did not take effect")]
    Ended,
    /// The command took effect, and the holder of this handler answers it, which is another member. To get such an answer,
    /// call the service as its callers do.
    #[error("the command took effect at {position}; the holder of handler {handler} answers it, to callers")]
    OfHandler {
        /// Name of the handler.
        handler: String,
        /// Position of the command, or of a later one.
        position: Position,
    },
    /// The command is larger than the group allows: nothing happened.
    #[error("the command has {bytes} bytes; this group takes at most {max}")]
    TooLarge {
        /// Its length.
        bytes: usize,
        /// The maximum.
        max: usize,
    },
    /// Too many bytes of commands wait for their outcomes: nothing happened. Try again later.
    #[error(
        "busy: 64 MiB of commands wait for their outcomes; this one did not take effect, and may be tried again"
    )]
    Busy,
}

crate::debug_as_sentence!(CommandFailure { Refused, Unknown, OfHandler, Ended, TooLarge, Busy });

/// The service was founded with [`Durability::Ordered`], which has local reads only.
#[derive(Clone, Copy, PartialEq, Eq, Error)]
#[error("this service was founded with the durability `ordered`, which has local reads only")]
pub struct OnlyLocalReads;

crate::debug_as_sentence!(OnlyLocalReads);

/// A condition that an operator has to know, because no caller learns it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Notice {
    /// More members were lost at once than the service's durability covers: executed commands may be lost.
    Degraded {
        /// The lost members.
        excluded: Vec<Member>,
    },
    /// Another group of this name exists, with a state of its own. Groups never merge. The one with fewer ordered
    /// events gives way: its members stop serving, and report how many commands only they hold.
    OtherGroup {
        /// Address of one of its members.
        address: SocketAddr,
        /// True if this group gives way.
        gives_way: bool,
    },
    /// The group has lost its quorum: no command gets an outcome until enough of the missing members are back.
    Halted {
        /// The members that do not answer.
        missing: Vec<Member>,
    },
    /// Fewer members have the state than the group's minimum: no command gets an outcome until more have it.
    BelowMinimum {
        /// Number of members that have the state.
        members: usize,
        /// The minimum ([`GroupConfig::members_min`](crate::GroupConfig::members_min)).
        needed: usize,
    },
    /// The group goes on: it has its quorum, and as many members have the state as its minimum.
    Resumed,
    /// This member's life in the group is over: it was excluded, or its group lost its quorum or its state, or gave way. It
    /// enters again.
    Reentering,
    /// This machine's address changed, which ended this member's life, and it found no group that it can enter from the new
    /// address. It goes on looking for one, and stops with [`StopReason::StateLostByMove`] unless it finds another copy.
    LooksForCopy {
        /// The new address, if there is one.
        from: Option<IpAddr>,
        /// True if it found the group, which has no quorum without the members that moved. Then it waits, and an operator can
        /// [force](crate::Group::force) the group to go on.
        is_halted: bool,
    },
}

/// Why a replica ends although its program did not ask for it.
#[derive(Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum StopReason {
    /// The outcomes at this copy differ from those at a majority of the copies: some command between the two positions
    /// had another effect here. The state machine depends on something besides its state and its commands, or memory is
    /// bad.
    #[error("this copy differs from the majority since a command after {since} and no later than {through}")]
    Differs {
        /// The copies agreed through this position.
        since: Position,
        /// They differ here.
        through: Position,
    },
    /// A method of the state machine panicked: `apply`, of the command with this position, or another method before it.
    #[error("the state machine panicked at command {position}, or in a read, snapshot or restore before it")]
    Panicked {
        /// Position of the command.
        position: Position,
    },
    /// The last member that had the state is gone, and no other has it. Found the service anew to begin with an empty
    /// state.
    #[error(
        "the last member that had the state is gone; to begin anew with an empty state, found the service again"
    )]
    StateLost,
    /// This machine's address changed, and no other copy of the service was found from the new one for 30 s. The state was in
    /// memory: if all copies moved at once, none of them can go on with it, because another may have executed more.
    #[error(
        "this machine's address changed, and no other copy of the service was found from the new one: the state, which \
         was in memory, is gone if all copies moved at once; to begin anew with an empty state, found the service again"
    )]
    StateLostByMove,
    /// The state of the other members cannot be restored here.
    #[error(transparent)]
    NotRestored(#[from] NotRestored),
    /// Another group of this name has ordered more, and this one gives way.
    #[error(
        "another group of this name has ordered more; {acknowledged} commands are held by this group only"
    )]
    GivesWay {
        /// Number of commands that this group has applied.
        acknowledged: Position,
    },
    /// The disk did not do what it was told. What it has is read again at the next start.
    #[error("the disk failed: {0}")]
    DiskFailed(String),
    /// The disk has not finished a write for 10 s.
    #[error("the disk has not finished a write for 10 s")]
    DiskHangs,
    /// The service was begun anew from another server's disk; this disk is of the instance that was given up.
    #[error(
        "the service was begun anew from another server's disk, and this disk is of the earlier service; to join, keep its folder aside and start with an empty one and --replace"
    )]
    DiskGivenUp,
    /// The disk is of another service of the same name.
    #[error(
        "this folder is of another service of the same name, perhaps because --begin-anew was given while the others \
         served: keep it aside, and start with an empty folder and --replace"
    )]
    DiskOfOther,
    /// The other servers were started with another number of servers.
    #[error("the service was created with another number of servers")]
    OtherServers,
    /// Another process runs as this server, with another folder.
    #[error(
        "server {server} runs already, at {at}: end that process first, or start this one with another --id"
    )]
    RunsAlready {
        /// Id of the server.
        server: u8,
        /// Address of the other process.
        at: SocketAddr,
    },
    /// The other servers were started with another durability.
    #[error(
        "the other servers were started with another durability; it is fixed when they create the service"
    )]
    OtherDurability,
    /// The service was to begin anew from this disk, and a majority of its disks is there. Nothing changed.
    #[error(
        "a majority of the servers has its disks: start this server without --begin-anew (DiskOptions::begin_anew)"
    )]
    NothingLost,
    /// This server had another disk.
    #[error(
        "this server had another disk, and this one has no whole state: see that its disk is mounted; if it is lost for \
         ever, start with an empty folder and --replace (DiskOptions::replace)"
    )]
    ReplaceNeeded,
}

crate::debug_as_sentence!(StopReason {
    Differs, Panicked, StateLost, StateLostByMove, GivesWay, DiskFailed, DiskHangs, DiskGivenUp, DiskOfOther, OtherServers,
    OtherDurability, NothingLost, ReplaceNeeded, RunsAlready;
    of NotRestored
});

/// How far the transfer of a state is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that are here.
    pub bytes_here: u64,
    /// Bytes of the whole state; 0 while that is not known.
    pub bytes_total: u64,
}

/// Amounts that a replica keeps; each of them has a named bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplicaAccount {
    /// Clients that are remembered.
    pub clients: usize,
    /// Bytes of remembered replies.
    pub reply_bytes: usize,
    /// Executed commands that are remembered.
    pub commands: usize,
    /// Bytes of commands that wait here for their outcomes.
    pub waiting_bytes: usize,
    /// Bytes of events that wait for the state.
    pub backlog_bytes: usize,
    /// Outputs that the driver has not taken.
    pub outputs: usize,
    /// Marks of members that counted for nothing when they came, since this life began: they could not be read, or were of no
    /// member or of another generation.
    pub bad_marks: u64,
}

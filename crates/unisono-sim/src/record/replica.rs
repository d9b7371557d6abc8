//! The records of replicated state: what callers asked for and got, and what each copy applied.

use super::{Epoch, Life};
pub use crate::replica::{Op, Reply};
use std::time::Duration;
use unisono_core::replica::disk::DiskDurability;

/// A caller's operation, numbered in the order in which operations of a run begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpId(pub u32);

impl OpId {
    /// Returns its index in a table of operations.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A replicated service: one founding of its group, numbered in the order in which the run names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Service(pub u16);

/// How an operation asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// As a command, which every copy applies.
    Command,
    /// As a linearizable read, or as a barrier and a look at the local state.
    Read,
    /// As a local read, which may be behind.
    LocalRead,
}

impl Mode {
    /// True unless the answer may be behind.
    pub fn is_ordered(self) -> bool {
        self != Mode::LocalRead
    }
}

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpOutcome {
    /// With a reply.
    Replied(Reply),
    /// It did not take effect, and never will.
    NotHappened,
    /// It took effect once or not at all.
    Unknown,
}

/// Number of calls of a state machine's `apply` and `members` since the service was founded, and a hash of all of them
/// with their arguments and outcomes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trail {
    /// Number of calls.
    pub steps: u64,
    /// Hash of the calls.
    pub hash: u64,
}

/// Where a copy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The service that it belongs to.
    pub service: Service,
    /// Generation of the log on its disk; 0 without a disk.
    pub generation: u64,
    /// Epoch of its view.
    pub epoch: Epoch,
    /// Position of the last command that it applied.
    pub position: u64,
    /// What its state machine was called with so far.
    pub trail: Trail,
}

/// What a record of replicated state says of the life that it is of: a caller, or a copy.
#[derive(Clone, Debug, PartialEq)]
pub enum ReplicaRecord {
    /// What the whole run has: which durability, and how many servers.
    Terms {
        /// True if all members hold what is answered, or a majority of them.
        held_by_all: bool,
        /// True if it is a majority.
        by_majority: bool,
        /// Number of servers, which are told apart by their names.
        servers: usize,
        /// How many disks hold a command before it is answered, if the servers have disks.
        disks: Option<DiskDurability>,
    },

    // --- callers ---
    /// A caller begins an operation.
    Begun {
        /// The operation.
        id: OpId,
        /// The client and the number under which it is remembered.
        name: (Life, u64),
        /// How it asks.
        mode: Mode,
        /// What it asks for.
        op: Op,
    },
    /// A caller gives this command and may wait for its outcome for longer than the service remembers outcomes.
    WaitsTooLong {
        /// The client and the number of the command.
        name: (Life, u64),
    },
    /// An operation ended.
    Ended {
        /// The operation.
        id: OpId,
        /// Its outcome.
        outcome: OpOutcome,
    },

    // --- members ---
    /// A life joined the group of a service: it has to fetch the state.
    Joined {
        /// The service.
        service: Service,
        /// The life that joined.
        life: Life,
    },
    /// A member left by itself.
    Left {
        /// The life that left.
        life: Life,
    },
    /// These members founded a service, and have its state.
    Founded {
        /// The service.
        service: Service,
        /// The members.
        members: Vec<Life>,
    },
    /// A member went on with these by a reset.
    WentOn {
        /// The members of the new view.
        members: Vec<Life>,
        /// An operator forced it.
        forced: bool,
    },

    // --- copies ---
    /// A copy has the state from here on.
    Informed(Place),
    /// A state machine got another copy's state.
    Restored(Place),
    /// A state machine executed a command.
    Applied {
        /// Where the copy is after it.
        at: Place,
        /// The client, and the client's number of the command.
        name: (Life, u64),
        /// The command.
        op: Op,
        /// The reply.
        reply: Reply,
    },
    /// A state machine was shown the members.
    Members(Place),
    /// The locks of a copy after one of these steps, which concerns locks. It comes after the record of the step.
    Locks {
        /// Where the copy is after it.
        at: Place,
        /// What the step was.
        step: LockStep,
        /// The lines of the locks that are held.
        lines: Vec<LockLine>,
    },
    /// A copy answered a caller.
    Answered {
        /// The service of the copy.
        service: Service,
        /// The client, and the client's number of the call.
        name: (Life, u64),
        /// True if the answer was confirmed: it was no local read.
        confirmed: bool,
    },
    /// The holders of handlers that a copy knows after the event with this seqno, if they or the members have changed.
    Handlers {
        /// The service of the copy.
        service: Service,
        /// Epoch of its view.
        epoch: Epoch,
        /// Seqno of the last event that it has applied.
        seqno: u64,
        /// The handlers, by their numbers, each with its holder.
        holders: Vec<(u8, Life)>,
        /// The members.
        members: Vec<Life>,
    },
    /// A copy answered a caller that named this handler.
    AnsweredFor {
        /// Number of the handler.
        handler: u8,
        /// The client, and the client's number of the call.
        name: (Life, u64),
    },
    /// A server's own process looked at its state after a barrier.
    Looked {
        /// The service of the copy.
        service: Service,
        /// Name of the operation.
        name: (Life, u64),
    },
    /// The program of a server ended its life in the group.
    EndedAtOnce,
    /// A member sent a datagram of the group after its life had ended.
    SentAfterEnd,
    /// A copy stopped by itself.
    Stopped {
        /// Where it was.
        at: Option<Place>,
        /// Why.
        reason: Stop,
    },
    /// A copy is no copy any more: its member was excluded, or ends.
    Out,
    /// Memory of this copy is bad from here on: its replies are wrong.
    Corrupted,
    /// What the disk of a server has changed.
    Disk(DiskRecord),
    /// A copy begins to serve, with everything replayed that it got from its disk or from another copy.
    Replayed {
        /// Where it is.
        at: Place,
        /// Hash of the values of all objects.
        values: u64,
        /// Hash of all outcomes of commands.
        outcomes: u64,
    },
    /// A copy holds more of something than before.
    Amount {
        /// Name of the amount.
        what: &'static str,
        /// How much.
        used: usize,
        /// Its maximum.
        max: usize,
    },

    // --- the world ---
    /// The clocks by which processes claim locks differ, so fences need not rise across foundings.
    ClocksDiffer,
    /// This caller is a hostile client, to which nothing is promised.
    Hostile,
    /// A caller learned that the service with which it stayed exists no more, because its call found servers of another
    /// instance only. The operation ends; the next one goes to the other instance.
    Replaced,
    /// An administrator lets the service begin anew from one disk, because too many others are lost for ever.
    BeginsAnew,
    /// No fault strikes from here on. `serves` is true if the service must answer again.
    Calm {
        /// True if enough members lived through the faults.
        serves: bool,
    },
    /// The state of a server process at the end of the run.
    Final {
        /// Where its copy is, if it has the state.
        at: Option<Place>,
    },
}

/// A step of a state machine that concerns locks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockStep {
    /// A command was executed, with this reply.
    Applied(Op, Reply),
    /// These are the members from here on.
    Members(Vec<Life>),
    /// The copy got its state.
    Restored,
}

/// The line of a lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LockLine {
    /// Number of the lock.
    pub name: u8,
    /// The claims, in order.
    pub claims: Vec<ClaimSeen>,
}

/// A claim in the line of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClaimSeen {
    /// Number of the claim.
    pub number: u64,
    /// The life of the member that made it.
    pub member: Life,
    /// The fence, if the claim has the lock.
    pub fence: Option<u64>,
}

/// What the disk of a server has, or has got, all of it synced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskRecord {
    /// Id of the server.
    pub server: u8,
    /// The service on the disk; `None` before its creation.
    pub service: Option<Service>,
    /// Generation of the state.
    pub generation: u64,
    /// What is new.
    pub what: OnDisk,
}

/// What is new on a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OnDisk {
    /// A process has found this at its start: a snapshot as of a place of the log, and the entries after it.
    Found(u64, Vec<LogEntry>),
    /// Everything was replaced by a snapshot as of a place and the entries after it.
    Adopted(u64, Vec<LogEntry>),
    /// Entries were appended, the first of them at this place.
    Appended(u64, Vec<LogEntry>),
    /// The commit block was written.
    Committed,
    /// A snapshot as of this place was written, and the log cut below it.
    Cut(u64),
    /// The disk is lost, or what it has is not what was written last.
    Lost,
}

/// An entry of a log on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// Hash of its bytes.
    pub hash: u64,
    /// Name of the command, if it is one.
    pub command: Option<(Life, u64)>,
}

/// Why a copy stopped by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It differs from the majority: after the first position, and no later than the second.
    Differs(u64, u64),
    /// Another group has ordered more.
    GivesWay,
    /// No member has the state.
    StateLost,
    /// The disk is said to hang.
    DiskHangs {
        /// For how long it had not got on.
        idle: Duration,
    },
    /// The disk has failed.
    DiskFailed,
    /// The storage refused a job, whose words do not fit what is on the disk: why.
    DiskRefused(String),
    /// Its disk is blank and takes the place of another one, which no operator has said.
    ReplaceNeeded,
    /// Its disk is of an instance that was given up.
    GivenUp,
    /// It was to begin anew, and a majority of the disks is there.
    NothingLost,
    /// Another reason, in words.
    Other(&'static str),
}

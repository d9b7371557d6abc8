//! The records of a simulated run: one for each thing that happened, in order.
//!
//! The recorder writes them, and the checkers in [`crate::properties`] read them. There are three kinds of records:
//! what applications did and received (black box), how each member's marks moved after each input (white box), and what
//! the world did to the members (crashes, pauses, faults). The order of records is the simulator's global order, which
//! no member knows.
//!
//! Lives and epochs are numbered from 0 in the order in which the run first names them ([`Names`]), so a checker can
//! keep data about them in a `Vec`. The frequent records are small and own nothing.

mod directory;
mod fingerprint;
mod hash;
mod kind;
mod marks;
mod names;
mod replica;

pub use directory::*;
pub(crate) use fingerprint::Fingerprint;
pub use hash::hash;
pub(crate) use hash::mix;
pub use kind::Kind;
pub(crate) use marks::{Listener, mark_changes};
pub use names::Names;
pub use replica::*;

use unisono_core::outside::Fate;
use unisono_core::{
    Ballot, Floor, JoinFailure, Marks, MessageNumber, Name, Outcome, Phase, Quality, Seqno, Suspicion, Time,
};

/// One life of one member, numbered in the order in which the run names lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Life(pub u32);

impl Life {
    /// No life: used in records that concern the world.
    pub const WORLD: Life = Life(u32::MAX);

    /// Returns its index in a table of lives.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// An epoch, numbered in the order in which the run names epochs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u32);

impl Epoch {
    /// Returns its index in a table of epochs.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// World time.
    pub at: Time,
    /// The process; it may have several lives, one after another.
    pub process: u32,
    /// The life; [`Life::WORLD`] for what the world did.
    pub life: Life,
    /// What happened.
    pub what: What,
}

/// What happened. Records of one life are in the order of its application's calls and events. After each input the
/// recorder receives the changes of the life's marks first, then the outcomes of sends, then the events that the
/// application takes.
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    // --- what applications did ---
    /// A life began: it founds or seeks a group.
    Started {
        /// Name of the member.
        name: Name,
    },
    /// The member took a message for sending.
    Sent {
        /// Message number of its last piece. Its other pieces have the numbers after the previous message's.
        number: MessageNumber,
        /// What its sender asked for.
        quality: Quality,
        /// Hash of the payload.
        hash: u64,
        /// Length of the payload in bytes.
        bytes: u32,
    },
    /// The application requested to leave.
    LeaveAsked,
    /// The application requested a reset.
    ResetAsked {
        /// Minimum number of members of the next view.
        members_min: u32,
    },
    /// The application began to confirm, and was not refused.
    Confirming {
        /// Number of the confirmation; calls that share an answer have the same.
        number: u64,
    },
    /// A confirmation has its result.
    Confirmed {
        /// Number of the confirmation.
        number: u64,
        /// Its result.
        through: Seqno,
    },
    /// The application ended the life. From here on it counts as crashed.
    Ended,
    /// A life made a datagram although it had ended.
    SpokeAfterEnd,
    /// The application requested another order, and was not refused.
    OrderAsked {
        /// True if the token is to go round.
        is_ring: bool,
    },
    /// The application requested a hand-over of the sequencer's role, and was not refused.
    HandOverAsked {
        /// The member that is to become the sequencer.
        successor: Life,
    },

    // --- what applications received ---
    /// The outcome of a message.
    SendResult {
        /// Its message number.
        number: MessageNumber,
        /// The outcome.
        outcome: Outcome,
    },
    /// First event of a member.
    Entered {
        /// Seqno of its join; 0 for a founder.
        seqno: Seqno,
        /// The view that it enters.
        view: Box<View>,
    },
    /// A message was delivered.
    Delivered {
        /// Seqno of its last piece.
        seqno: Seqno,
        /// Its sender.
        sender: Life,
        /// Message number of its last piece.
        number: MessageNumber,
        /// Hash of the payload.
        hash: u64,
    },
    /// A member joined.
    Joined {
        /// Seqno of the join.
        seqno: Seqno,
        /// The new member.
        member: Life,
        /// Number of members from this seqno on.
        members: u32,
    },
    /// A member left.
    Left {
        /// Seqno of the leave.
        seqno: Seqno,
        /// The member that left.
        member: Life,
        /// Number of members from this seqno on.
        members: u32,
        /// The next sequencer, if the leaver was the sequencer and not the last member.
        successor: Option<Life>,
    },
    /// The sequencer's role was handed over.
    HandedOver {
        /// Seqno of the hand-over.
        seqno: Seqno,
        /// The next sequencer.
        sequencer: Life,
    },
    /// The order of the group changed.
    OrderChanged {
        /// Seqno of the change.
        seqno: Seqno,
        /// True if the token goes round from here on.
        is_ring: bool,
        /// The sequencer from here on.
        sequencer: Life,
    },
    /// A reset began a new epoch.
    Reset(Box<Reset>),
    /// Manual policy: a member is suspected.
    Suspected {
        /// The suspected member.
        member: Life,
        /// The reason.
        reason: Suspicion,
    },
    /// This life was excluded by a reset.
    Excluded {
        /// The epoch that excludes it, if the member learned which.
        epoch: Option<Epoch>,
    },
    /// It has left, and no member needs it any more.
    Gone,
    /// Its join failed.
    JoinFailed {
        /// The reason.
        reason: Box<JoinFailure>,
    },
    /// There is another group of the same port.
    Conflict {
        /// True if its own group has to give way.
        gives_way: bool,
        /// Number of events that the other group had ordered.
        other_ordered: Seqno,
    },

    // --- how marks moved (white box), in this order after an input ---
    /// It is in another epoch now, as a member or as a listening joiner: its marks belong to this epoch from here on.
    EpochBegun {
        /// The new epoch.
        epoch: Epoch,
    },
    /// It holds everything through this seqno, data included. There is one record for each entry. The seqno falls only
    /// when an epoch begins, or when a leaver cuts its log.
    Stored {
        /// Its epoch.
        epoch: Epoch,
        /// The last seqno.
        through: Seqno,
        /// What it stored there.
        entry: Entry,
    },
    /// It entered this epoch, and put a message there that was delivered early, between the log that the reset kept and the
    /// reset event. The record comes before that of the reset event.
    Tail {
        /// The epoch that the reset begins.
        epoch: Epoch,
        /// The seqno that the message has got.
        seqno: Seqno,
        /// Its sender.
        sender: Life,
        /// Its message number.
        number: MessageNumber,
    },
    /// It has acknowledged everything through this seqno.
    Acknowledged {
        /// Its epoch.
        epoch: Epoch,
        /// The last seqno.
        through: Seqno,
    },
    /// It knows that everything through this seqno is accepted.
    Accepted {
        /// Its epoch.
        epoch: Epoch,
        /// The last seqno.
        through: Seqno,
    },
    /// A sequencer assigned these seqnos.
    Numbered {
        /// Its epoch.
        epoch: Epoch,
        /// Its term: the seqno of the event that named it sequencer.
        term: Seqno,
        /// First seqno assigned.
        from: Seqno,
        /// Last seqno assigned.
        to: Seqno,
    },
    /// It has freed everything through this seqno. (The beginning of a listening joiner's log is not recorded: the
    /// joiner never held the entries before.)
    Purged {
        /// Its epoch.
        epoch: Epoch,
        /// The last seqno.
        through: Seqno,
    },
    /// Its history has grown: to more entries than ever before in this life, or to more than before and more than
    /// messages may use.
    HistoryUsed {
        /// Number of entries.
        entries: u32,
    },
    /// It promised a ballot of the reset of this epoch.
    Promised {
        /// The epoch that is to end.
        epoch: Epoch,
        /// The ballot.
        ballot: Ballot,
    },
    /// It prepared a proposal.
    Prepared {
        /// The epoch that is to end.
        epoch: Epoch,
        /// The proposal.
        preparation: Box<Preparation>,
    },
    /// It knows that its own leave is accepted, and goes on serving the remaining members.
    LeaveKnown,
    /// It serves no other member any more. Its application may learn this much later.
    Parted,

    // --- calls: what applications did and received ---
    /// The application called a service.
    Called {
        /// Number of the call.
        call: u64,
        /// Number of the service in this run.
        port: u16,
        /// Time until the deadline in microseconds.
        limit_us: u32,
        /// Hash of the request.
        hash: u64,
    },
    /// A call ended.
    CallEnded {
        /// Number of the call.
        call: u64,
        /// Its outcome.
        outcome: CallOutcome,
    },
    /// The application cancelled a call.
    CallCancelled {
        /// Number of the call.
        call: u64,
    },
    /// The application serves a port from here on.
    Serving {
        /// Number of the service in this run.
        port: u16,
        /// True if it has the private port; false for an impostor.
        owns: bool,
        /// True if the service recognises repeats.
        repeats: bool,
        /// Instance of the service; 0: it has none.
        instance: u64,
    },
    /// The application no longer serves a port.
    Withdrawn {
        /// Number of the service in this run.
        port: u16,
    },
    /// An application received a request.
    Handed {
        /// The client.
        client: Life,
        /// Number of the client's call.
        call: u64,
        /// Number of the service to which it was sent.
        port: u16,
        /// Number of times that it was forwarded.
        hops: u8,
        /// True if, as far as the server knows, the client no longer waits for it.
        is_late: bool,
        /// Hash of the request.
        hash: u64,
    },
    /// An application executed a request. In a service that recognises repeats, it was the first to execute this call.
    Executed {
        /// The client.
        client: Life,
        /// Number of the client's call.
        call: u64,
    },
    /// An application answered a request.
    Replied {
        /// The client.
        client: Life,
        /// Number of the client's call.
        call: u64,
        /// Hash of the reply.
        hash: u64,
    },
    /// An application refused a request, and has not executed it.
    RefusedCall {
        /// The client.
        client: Life,
        /// Number of the client's call.
        call: u64,
        /// Hash of the reason.
        hash: u64,
    },
    /// An application forwarded a request, and has not executed it.
    PassedOn {
        /// The client.
        client: Life,
        /// Number of the client's call.
        call: u64,
        /// Number of times that it had been forwarded before.
        hops: u8,
    },

    // --- calls: what endpoints hold and send (white box) ---
    /// An endpoint holds more of a resource than ever before in this life.
    Held {
        /// Name of the resource.
        what: &'static str,
        /// Amount held.
        used: u32,
        /// Maximum amount permitted.
        max: u32,
    },
    /// A life received datagrams from an address at which no process runs, or sent datagrams there. Totals so far.
    Strayed {
        /// Bytes received from there.
        came: u64,
        /// Bytes sent there.
        left: u64,
    },
    /// A life made or checked signatures. Totals so far.
    Worked {
        /// Signatures made.
        made: u64,
        /// Signatures checked.
        checked: u64,
    },

    // --- what the world did ---
    /// This life crashed.
    Crashed,
    /// This life was paused; it does not notice.
    Paused,
    /// This life resumed.
    Resumed,
    /// A fault of the network or of a process began.
    FaultBegin {
        /// Name of the fault.
        fault: &'static str,
    },
    /// A fault of the network or of a process ended.
    FaultEnd {
        /// Name of the fault.
        fault: &'static str,
    },
    /// From here on no fault affects the core: its lives receive each other's datagrams, none crashes or pauses, and
    /// their applications take events. All other lives are disabled for the rest of the run: they receive nothing, or
    /// nothing that they send arrives. The core must converge to one view, and all its sends and calls must end. The
    /// director lets applications begin nothing new in the last part of the run, so that there is time for this.
    Healed {
        /// The lives of the core.
        core: Box<[Life]>,
    },

    // --- what applications received and did in a group that stands still ---
    /// The group has no quorum.
    Halted {
        /// Members that have not answered.
        missing: Box<[Life]>,
    },
    /// The halted group goes on.
    WentOn,
    /// The application forces the halted group to go on.
    ForceAsked {
        /// Members that it vouches are dead.
        without: Box<[Life]>,
    },
    /// The next life of this process founds a group explicitly, whether or not one exists.
    Creating,

    // --- replicated state ---
    /// What a caller asked for or got, or what a copy applied.
    Replica(Box<ReplicaRecord>),
    /// What concerns a directory.
    Directory(Box<DirectoryRecord>),

    // --- messages without a seqno ---
    /// The member took an unreliable message for sending.
    SentUnreliable {
        /// Hash of the payload.
        hash: u64,
    },
    /// The next record of this life says where a message has its place that was delivered early: its application does not
    /// receive it again.
    Passed {
        /// Its sender.
        sender: Life,
        /// Hash of the payload.
        hash: u64,
    },
    /// A message was delivered without a seqno.
    Early {
        /// Its sender.
        sender: Life,
        /// Its message number, which the application does not know; 0 for an unreliable message.
        number: MessageNumber,
        /// What its sender asked for.
        quality: Quality,
        /// Hash of the payload.
        hash: u64,
    },
    /// What a life asks for with its join, how far its multicasts go, and what concerns clients from outside.
    Beside(Box<Beside>),
}

/// What lies beside the order of a group: see [`What::Beside`].
#[derive(Clone, Debug, PartialEq)]
pub enum Beside {
    /// The life asks for a floor, from its join on.
    FloorAsked {
        /// The smallest view that it lets a reset go on with.
        floor: Floor,
    },
    /// The life asks how far multicasts go, from its join on.
    HopsAsked {
        /// The number of hops.
        hops: u8,
    },
    /// The life sent a multicast.
    Multicast {
        /// How far it goes.
        hops: u8,
        /// False while the life looks for the group or joins it.
        is_member: bool,
    },
    /// The life received a heartbeat that this sequencer sent to all.
    Heard {
        /// The sequencer.
        sequencer: Life,
    },
    /// The life, a sequencer, took a member for one that hears it, by the stamp of a heartbeat that the member returned.
    TakenForHearing {
        /// The member.
        member: Life,
    },
    /// A client from outside has a message to send.
    FromOutside {
        /// The client, numbered in the order of the run.
        client: u32,
        /// The client's messages before this one.
        index: u64,
        /// What it asks for.
        quality: Quality,
        /// False if the message counts as accepted as soon as a member has sent it.
        is_confirmed: bool,
        /// Hash of the payload.
        hash: u64,
    },
    /// A client from outside learned what became of a message.
    ToldOutside {
        /// The client.
        client: u32,
        /// The client's messages before this one.
        index: u64,
        /// What became of it.
        fate: Fate,
        /// The member that took the client over and said so, and the first message whose fate was open.
        taken_over: Option<(Life, u64)>,
    },
    /// A client from outside cannot go on.
    GaveUpOutside {
        /// The client.
        client: u32,
        /// False if no member answered it.
        was_refused: bool,
    },
}

/// What a member stored at a seqno.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A message, or a piece of one.
    Message {
        /// Its sender.
        sender: Life,
        /// Its message number.
        number: MessageNumber,
    },
    /// The join of this life.
    Join(Life),
    /// The leave of this life.
    Leave(Life),
    /// The event that makes this life the sequencer.
    Role(Life),
    /// In a ring the same: the token goes to this life. Applications do not receive it.
    Pass(Life),
    /// The event that changes the order of the group, and names the sequencer.
    Order {
        /// True if the token goes round from here on.
        is_ring: bool,
        /// The member that numbered it, which goes on as sequencer.
        sequencer: Life,
    },
    /// The reset event that begins the epoch, with the first view.
    Reset(Box<Members>),
    /// Nothing: the log begins after this seqno, at which this view is in force.
    Base(Box<Members>),
}

/// The members of a view, in rank order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Members(pub Vec<Life>);

/// The outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallOutcome {
    /// Answered.
    Replied {
        /// Hash of the reply.
        hash: u64,
    },
    /// Refused by the application: not executed.
    Refused {
        /// Hash of the reason.
        hash: u64,
    },
    /// No server of the port was found: not executed.
    NotFound,
    /// No server accepted it: not executed.
    Failed,
    /// Pushed back by the servers: not executed.
    Busy,
    /// Only servers of another instance were found.
    OtherInstance,
    /// It may have been executed.
    Unknown,
}

/// The view at a seqno.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// Its epoch.
    pub epoch: Epoch,
    /// Number of resets since the group was founded, from the epoch's id.
    pub counter: u64,
    /// The coordinator of the epoch, from the epoch's id.
    pub coordinator: Life,
    /// Members in rank order.
    pub members: Vec<Life>,
    /// The sequencer.
    pub sequencer: Life,
    /// The group's resilience degree, limited to the number of members minus one.
    pub resilience: u8,
}

/// A reset: see [`What::Reset`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reset {
    /// Seqno of the reset event.
    pub seqno: Seqno,
    /// The new view.
    pub view: View,
    /// Members that are excluded.
    pub excluded: Vec<Life>,
    /// True if messages may have been lost.
    pub degraded: bool,
}

/// A prepared proposal: see [`What::Prepared`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preparation {
    /// The ballot under which it was prepared.
    pub ballot: Ballot,
    /// The epoch that is to begin.
    pub next: Epoch,
    /// Seqno through which the log is kept.
    pub keep: Seqno,
    /// Seqno of the epoch's reset event.
    pub start: Seqno,
}

/// The state of the world at the end of the run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct End {
    /// World time of the end.
    pub at: Time,
    /// The state of each life that has not crashed, including paused ones.
    pub standings: Vec<Standing>,
    /// Number of datagrams that were sent; a multicast counts once.
    pub datagrams: u64,
}

/// The state of one life at the end of the run.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    /// The life.
    pub life: Life,
    /// Phase of its member.
    pub phase: Phase,
    /// Its epoch; `None` if it is in none.
    pub epoch: Option<Epoch>,
    /// Its marks.
    pub marks: Marks,
    /// The members as it knows them, in rank order.
    pub members: Vec<Life>,
    /// Number of its own messages that are under way.
    pub under_way: usize,
    /// Number of events that its application has not taken.
    pub events: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_stay_small() {
        assert!(size_of::<Record>() <= 48, "{}", size_of::<Record>());
    }
}

//! What a simulated run leaves behind: one record for each thing that happened, in the order in which it happened.
//!
//! The runner writes, [`crate::properties`] checkers. Three kinds of things are recorded: what applications did and
//! were told (black box), how far each member's marks moved after each input (white box), and what the world did to
//! them (crashes, pauses, faults). The order of records is the simulator's global order, which no member knows.
//!
//! Lives and epochs are counted from 0 in the order in which the run first names them ([`Names`]), so that a
//! property can keep what it knows of them in a `Vec`. The frequent records are small and own nothing.

mod fingerprint;
mod hash;
mod kind;
mod marks;
mod names;

pub(crate) use fingerprint::Fingerprint;
pub use hash::hash;
pub(crate) use hash::mix;
pub use kind::Kind;
pub(crate) use marks::{Listener, mark_changes};
pub use names::Names;

use unisono_core::{Ballot, JoinFailure, Marks, MessageNumber, Name, Outcome, Phase, Seqno, Suspicion, Time};

/// One life of one member, counted in the order in which the run names them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Life(pub u32);

impl Life {
    /// Nobody: the life of records that concern the world.
    pub const NOBODY: Life = Life(u32::MAX);

    /// Its place in a table of lives.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// An epoch, counted in the order in which the run names them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u32);

impl Epoch {
    /// Its place in a table of epochs.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// When.
    pub at: Time,
    /// At which process; a process may live several lives, one after the other.
    pub process: u32,
    /// In which life of it; [`Life::NOBODY`] for what the world did.
    pub life: Life,
    /// What.
    pub what: What,
}

/// What happened. Records of one life come in the order of its application's calls and events; after each input the
/// runner writes the changes of its marks first, then results of sends, then the events it takes.
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    // --- what applications did ---
    /// A life began: it founds or seeks a group.
    Started {
        /// Under this name.
        name: Name,
    },
    /// A message was taken.
    Sent {
        /// Its number (of its last piece). The pieces before it have the numbers since the last message's.
        number: MessageNumber,
        /// How many crashes it asks to survive; the group's resilience holds if that is more.
        resilience: u8,
        /// Of the payload.
        hash: u64,
        /// Of the payload.
        bytes: u32,
    },
    /// The application asked to leave.
    LeaveAsked,
    /// The application asked for a reset.
    ResetAsked {
        /// Its floor on the size of the next view.
        members_min: u32,
    },
    /// The application asked that the role of sequencer go to another member, and was not refused.
    HandOverAsked {
        /// To whom.
        successor: Life,
    },

    // --- what applications were told ---
    /// What became of a message.
    SendResult {
        /// Its number.
        number: MessageNumber,
        /// What.
        outcome: Outcome,
    },
    /// First event of a member.
    Entered {
        /// Place of its join; 0 for a founder.
        seqno: Seqno,
        /// What it finds.
        view: Box<View>,
    },
    /// A message was delivered.
    Delivered {
        /// Its place (of its last piece).
        seqno: Seqno,
        /// Its sender.
        sender: Life,
        /// Its number (of its last piece).
        number: MessageNumber,
        /// Of the payload.
        hash: u64,
    },
    /// A member joined.
    Joined {
        /// Place.
        seqno: Seqno,
        /// Who.
        member: Life,
        /// Members from here on.
        members: u32,
    },
    /// A member left.
    Left {
        /// Place.
        seqno: Seqno,
        /// Who.
        member: Life,
        /// Members from here on.
        members: u32,
        /// Who orders from here on, if it ordered and is not the last.
        successor: Option<Life>,
    },
    /// The role of sequencer was handed on.
    HandedOver {
        /// Place.
        seqno: Seqno,
        /// To whom.
        sequencer: Life,
    },
    /// A new epoch.
    Reset(Box<Reset>),
    /// Manual policy: a member is suspected.
    Suspected {
        /// Who.
        member: Life,
        /// Why.
        reason: Suspicion,
    },
    /// The group went on without this life.
    Excluded {
        /// In this epoch, if it was told.
        epoch: Option<Epoch>,
    },
    /// It has left, and nobody needs it.
    Gone,
    /// Its join came to nothing.
    JoinFailed {
        /// Why.
        reason: Box<JoinFailure>,
    },
    /// There is another group of the same port.
    Conflict {
        /// Its own is the one to give way.
        gives_way: bool,
    },

    // --- how marks moved (white box), in this order after an input ---
    /// It is in another epoch now, as a member or listening: its marks are of this one from here on.
    EpochBegun {
        /// Which.
        epoch: Epoch,
    },
    /// What it holds without a gap, data included, now ends here. It shrinks only where an epoch begins.
    Stored {
        /// In this epoch.
        epoch: Epoch,
        /// The end.
        through: Seqno,
    },
    /// It has told others that it holds everything through here.
    Acknowledged {
        /// In this epoch.
        epoch: Epoch,
        /// The end.
        through: Seqno,
    },
    /// What it knows to be accepted now ends here.
    Accepted {
        /// In this epoch.
        epoch: Epoch,
        /// The end.
        through: Seqno,
    },
    /// An acting member's end grew: it gave out these numbers.
    Numbered {
        /// In this epoch.
        epoch: Epoch,
        /// The place of the event that named it.
        term: Seqno,
        /// First of them.
        from: Seqno,
        /// Last of them.
        to: Seqno,
    },
    /// Everything through here has left its history. (Where the log of somebody who begins to listen begins is not
    /// told: it never held what lies before.)
    Purged {
        /// In this epoch.
        epoch: Epoch,
        /// The end.
        through: Seqno,
    },
    /// Its history now has more entries than ever in this life; or more than a moment ago, and than messages may
    /// take.
    HistoryUsed {
        /// How many.
        entries: u32,
    },
    /// It promised a ballot of this epoch's reset.
    Promised {
        /// The epoch that is to end.
        epoch: Epoch,
        /// Which.
        ballot: Ballot,
    },
    /// It prepared a proposal.
    Prepared {
        /// The epoch that is to end.
        epoch: Epoch,
        /// What it prepared.
        preparation: Box<Preparation>,
    },
    /// It knows its own leave accepted, and goes on serving those who stay.
    LeaveKnown,
    /// It serves nobody any more. Its application may be told much later.
    Parted,

    // --- calls: what applications did and were told ---
    /// The application called a service.
    Called {
        /// The call's number.
        call: u64,
        /// Which service, as the run counts them.
        port: u16,
        /// It waits for so many microseconds.
        limit_us: u32,
        /// Of the request.
        hash: u64,
    },
    /// What became of a call.
    CallEnded {
        /// Its number.
        call: u64,
        /// What.
        outcome: CallOutcome,
    },
    /// The application does not want to know any more what becomes of a call.
    CallCancelled {
        /// Its number.
        call: u64,
    },
    /// The application serves a port from here on.
    Serving {
        /// Which, as the run counts them.
        port: u16,
        /// It has the private port. Otherwise it only says so.
        owns: bool,
        /// The service recognises repeats.
        repeats: bool,
    },
    /// It serves the port no more.
    Withdrawn {
        /// Which.
        port: u16,
    },
    /// An application was handed a request.
    Handed {
        /// Whose.
        client: Life,
        /// Which call of it.
        call: u64,
        /// The port that it came to.
        port: u16,
        /// How often it was passed on.
        hops: u8,
        /// By what the server knows, the client does not wait for it any more.
        is_late: bool,
        /// Of the request.
        hash: u64,
    },
    /// The application that was handed a request did what it asks for. In a service that recognises repeats, it was
    /// the first to do so.
    Executed {
        /// Whose.
        client: Life,
        /// Which.
        call: u64,
    },
    /// It answered.
    Replied {
        /// Whose call.
        client: Life,
        /// Which.
        call: u64,
        /// Of the reply.
        hash: u64,
    },
    /// It said no, and has not done what was asked for.
    RefusedCall {
        /// Whose call.
        client: Life,
        /// Which.
        call: u64,
        /// Of the reason.
        hash: u64,
    },
    /// It passed the request on, and has not done what was asked for.
    PassedOn {
        /// Whose call.
        client: Life,
        /// Which.
        call: u64,
        /// How often it had been passed on before.
        hops: u8,
    },

    // --- calls: what endpoints hold and send (white box) ---
    /// An endpoint holds more of something than ever in this life.
    Held {
        /// Of what.
        what: &'static str,
        /// How much.
        used: u32,
        /// How much it may be.
        max: u32,
    },
    /// Datagrams came to a life from an address where nobody lives, or left for there: so many bytes in all so far.
    Strayed {
        /// That came.
        came: u64,
        /// That left.
        left: u64,
    },

    // --- what the world did ---
    /// This life ended without a word.
    Crashed,
    /// This life stands still, and knows nothing of it.
    Paused,
    /// It goes on.
    Resumed,
    /// A fault of the network begins.
    FaultBegin {
        /// Its name.
        fault: &'static str,
    },
    /// A fault of the network ends.
    FaultEnd {
        /// Its name.
        fault: &'static str,
    },
    /// From here on nothing disturbs these lives: each hears each, none crashes or pauses, applications take their
    /// events. Whatever else lives cannot take part for good (it hears nobody, or nobody hears it). They must come
    /// to one view, and whatever else they began must end. So the runner lets them begin nothing new for as long as
    /// ending takes before it ends the run.
    Healed {
        /// The lives.
        core: Box<[Life]>,
    },
}

/// What became of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallOutcome {
    /// It was answered.
    Replied {
        /// Of the reply.
        hash: u64,
    },
    /// The application said no: not executed.
    Refused {
        /// Of the reason.
        hash: u64,
    },
    /// Nobody serves the port: not executed.
    NotFound,
    /// Nobody took it: not executed.
    Failed,
    /// It was pushed back: not executed.
    Busy,
    /// It may have been executed.
    Unknown,
}

/// The member list at a place in the order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// Its epoch.
    pub epoch: Epoch,
    /// Resets since the group was founded, as the epoch's name says.
    pub counter: u64,
    /// Who brought the epoch about, as its name says.
    pub coordinator: Life,
    /// In rank order.
    pub members: Vec<Life>,
    /// Who orders.
    pub sequencer: Life,
    /// The group's resilience, held to members − 1.
    pub resilience: u8,
}

/// See [`What::Reset`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reset {
    /// Its place.
    pub seqno: Seqno,
    /// Who goes on.
    pub view: View,
    /// Who does not.
    pub excluded: Vec<Life>,
    /// It says that messages may be lost.
    pub degraded: bool,
}

/// See [`What::Prepared`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preparation {
    /// Under which attempt.
    pub ballot: Ballot,
    /// The epoch that is to begin.
    pub next: Epoch,
    /// The place of its reset event.
    pub start: Seqno,
}

/// What the world knows when the run is over.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct End {
    /// When.
    pub at: Time,
    /// Every life that has not crashed, paused ones included.
    pub standings: Vec<Standing>,
}

/// Where one life stands at the end.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    /// Who.
    pub life: Life,
    /// Where in its life.
    pub phase: Phase,
    /// Its epoch; nothing if it is in none.
    pub epoch: Option<Epoch>,
    /// Its marks.
    pub marks: Marks,
    /// The members as it knows them, in rank order.
    pub members: Vec<Life>,
    /// Messages of its own under way.
    pub under_way: usize,
    /// Events that its application has not taken.
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

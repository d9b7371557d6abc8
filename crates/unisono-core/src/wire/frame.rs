//! What travels: the frames that a datagram carries, one after the other.
//!
//! This file says what there is; `codec` says how each lies in bytes. Frames hold their payloads as slices of the
//! datagram they came in, so that nothing is copied between the wire and the application. What is large and rare has a
//! place of its own: every frame is handed from room to room in the size of the largest.

use super::calls::{Attempt, Got, Grant, Part, PortHere, Rejection, Reply, Request};
use crate::config::GroupConfig;
use crate::identity::{Ballot, EpochId, Instance, Member, MessageNumber, Name, Port, Seqno, Uid};
use alloc::boxed::Box;
use alloc::vec::Vec;
use bytes::Bytes;
use core::net::SocketAddr;

/// One thing said in a datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    // --- ordering ---
    /// Messages of one sender that ask for a place: PB to the sequencer, BB to everybody.
    Data(Data),
    /// Numbered messages with their data: consecutive places, consecutive messages of one sender.
    Ordered(Ordered),
    /// The same without data (BB): whoever holds the data files it under these numbers.
    Numbers(Numbers),
    /// A numbered change: join, leave, or the role handed on.
    Change {
        /// Its place.
        seqno: Seqno,
        /// What changes.
        change: Change,
    },
    /// The sequencer (or its predecessor, until it hears the successor) says how far the order goes.
    Heartbeat(Heartbeat),
    /// A member says how far it is: an acknowledgement, and the answer to a heartbeat.
    Watermarks(Watermarks),
    /// Places that the sender lacks, data included; answered by anyone who holds them.
    Nack {
        /// First and last of each range, ascending; at most [`NACK_RANGES_MAX`].
        ranges: Vec<(Seqno, Seqno)>,
    },
    /// The sequencer lacks messages of the receiver that must be numbered before later ones it has.
    Want {
        /// The first number lacking.
        from: MessageNumber,
        /// The last number lacking.
        to: MessageNumber,
    },
    /// Answer to a NACK for places that nobody keeps any more: everything through here was held by all members.
    Gone {
        /// The last place that is gone.
        through: Seqno,
    },

    // --- liveness ---
    /// Are you there? Do you hear me?
    Probe {
        /// Returned in the answer.
        nonce: u64,
    },
    /// The answer to a probe.
    Alive {
        /// The probe's.
        nonce: u64,
    },

    // --- finding, joining, leaving ---
    /// Where is this group? Outside of any epoch. Padded so that the answer is never longer.
    Locate {
        /// Returned in the answer.
        nonce: u64,
    },
    /// Here. Within an epoch: another group of this port is there.
    HereIs(HereIs),
    /// Let me in.
    JoinRequest {
        /// From [`HereIs`]: shows that the joiner hears what is sent to its address.
        cookie: u64,
        /// What people call the joiner; its uid and address are the datagram's.
        name: Name,
        /// Words of greeting, delivered with its join.
        hello: Bytes,
    },
    /// What a joiner needs in order to listen.
    Welcome(Box<Welcome>),
    /// No.
    Refused {
        /// The request's: another life may have asked at this address.
        cookie: u64,
        /// Why.
        reason: Refusal,
    },
    /// I want to leave.
    LeaveRequest {
        /// Parting words, delivered with the leave.
        goodbye: Bytes,
    },
    /// Nobody needs you any more. Of its own sender: it goes.
    Farewell {
        /// Who may go: another life may have lived at this address.
        uid: Uid,
        /// The place of its leave.
        seqno: Seqno,
    },

    // --- reset (the datagram's epoch tag is that of the epoch that ends) ---
    /// A coordinator asks for promises.
    Invite {
        /// Its attempt.
        ballot: Ballot,
        /// At least so many members, says the application that asked for this reset; 0 if none did.
        members_min: u16,
    },
    /// A promise, and what the voter holds.
    Vote(Vote),
    /// I promised a higher ballot than yours.
    Outbid {
        /// That ballot.
        promised: Ballot,
    },
    /// Send me these places, whatever state you are in. The answer is a datagram that begins with [`Frame::Level`].
    Pull {
        /// The ballot under which they are taken.
        ballot: Ballot,
        /// First place wanted.
        from: Seqno,
        /// Last place wanted.
        to: Seqno,
    },
    /// First frame of a datagram whose numbered frames are taken under this ballot: that is a promise to it, and no
    /// acknowledgement.
    Level {
        /// The ballot.
        ballot: Ballot,
    },
    /// The coordinator proposes the next view.
    Prepare(Box<Prepare>),
    /// I prepared what was proposed under this ballot.
    Prepared {
        /// The ballot.
        ballot: Ballot,
    },
    /// This proposal is decided.
    Decided {
        /// What was decided.
        proposal: Proposal,
        /// A quorum of the new view has entered: an excluded member need not serve its log any longer.
        entered: bool,
    },
    /// What became of the epoch that this datagram's tag names? Padded; the answer is [`Frame::Decided`] or
    /// [`Frame::Excluded`].
    Inquiry,
    /// That epoch is over, and somebody is not in the present one: named, since whoever hears this can have it sent to
    /// others. Of all frames only this one is said under the tag of an epoch that its sender was never in.
    Excluded {
        /// Who is not.
        uid: Uid,
        /// Which founding: to another group of the port every epoch but its own is unknown.
        instance: Instance,
        /// The present one.
        epoch: EpochId,
    },

    // --- looking from outside ---
    /// How are you? Padded so that the answer is never longer.
    Ask {
        /// Returned in the answer.
        nonce: u64,
        /// Bytes of this frame, [`PADDED_BYTES_MIN`](super::PADDED_BYTES_MIN) or more.
        room: u32,
    },
    /// So.
    Tell {
        /// The question's.
        nonce: u64,
        /// An encoded [`crate::look::Report`].
        report: Bytes,
    },

    // --- what is too large for one datagram ---
    /// A piece of one encoded frame.
    Parcel {
        /// Names the frame among its sender's parcels.
        id: u32,
        /// Which piece, from 0.
        index: u16,
        /// How many there are.
        count: u16,
        /// The piece.
        bytes: Bytes,
    },

    // --- forming a group (outside of any epoch) ---
    /// A coordinator asks the participants of a formation for promises. Padded so that no answer is longer.
    Form {
        /// Names the formation: its participants, and how many of them it takes.
        formation: u64,
        /// The coordinator's attempt.
        ballot: Ballot,
        /// Participants that answered the coordinator lately, itself included.
        heard: u16,
        /// Bytes of this frame, [`PADDED_BYTES_MIN`](super::PADDED_BYTES_MIN) or more.
        room: u32,
    },
    /// A promise, and what the participant has prepared.
    FormPromise(Box<FormPromise>),
    /// I promised a higher ballot than yours.
    FormOutbid {
        /// As in [`Frame::Form`].
        formation: u64,
        /// That ballot.
        promised: Ballot,
    },
    /// The coordinator proposes the group.
    FormPrepare {
        /// As in [`Frame::Form`].
        formation: u64,
        /// The attempt.
        ballot: Ballot,
        /// What is proposed.
        founding: Box<Founding>,
    },
    /// I prepared what was proposed under this ballot.
    FormPrepared {
        /// As in [`Frame::Form`].
        formation: u64,
        /// The ballot.
        ballot: Ballot,
    },
    /// This group is formed.
    Formed {
        /// As in [`Frame::Form`].
        formation: u64,
        /// That of the question, or the one under which it was decided.
        ballot: Ballot,
        /// What was decided.
        founding: Box<Founding>,
    },

    // --- calls (outside of any epoch) ---
    /// Who serves this port? Padded so that the answer is never longer.
    LocatePort {
        /// Returned in the answer.
        nonce: u64,
        /// Which one.
        port: Port,
    },
    /// I do.
    PortHere(Box<PortHere>),
    /// I do not; said if asked alone, or by who did once.
    PortNotHere {
        /// The question's.
        nonce: u64,
        /// Which one.
        port: Port,
    },
    /// A client asks.
    Request(Request),
    /// The server answers.
    Reply(Reply),
    /// The server does not execute this, or knows nothing of it.
    Reject {
        /// What.
        attempt: Attempt,
        /// From now on.
        grant: Grant,
        /// Why.
        reason: Rejection,
    },
    /// This life has not executed this, and never will: ask there.
    Forward {
        /// What.
        attempt: Attempt,
        /// From now on.
        grant: Grant,
        /// Where.
        to: SocketAddr,
    },
    /// The server has the whole request, and no answer yet.
    Working {
        /// Which one.
        attempt: Attempt,
        /// From now on.
        grant: Grant,
    },
    /// A part of a large request or reply.
    Part(Part),
    /// Which parts are there.
    Got(Got),
    /// The client has the answers to these: nobody needs them any more.
    Done {
        /// The server's life.
        to: Uid,
        /// The slot and number of each attempt; at most [`DONE_MAX`](super::DONE_MAX).
        attempts: Vec<(u16, u64)>,
    },
    /// The client does not wait for this any longer.
    Cancel {
        /// What.
        attempt: Attempt,
    },
}

/// Most ranges in one [`Frame::Nack`].
pub const NACK_RANGES_MAX: usize = 32;
/// Most bytes of a hello or a goodbye.
pub const GREETING_BYTES_MAX: usize = 512;
/// Most bytes of a frame that travels in parcels.
pub const PARCELLED_BYTES_MAX: usize = 1 << 20;
/// Most bytes of one piece of a message.
pub const PIECE_BYTES_MAX: usize = 0x3fff;

/// See [`Frame::Data`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Data {
    /// Whose messages these are; not always the datagram's sender.
    pub sender: Uid,
    /// The number of the first of them.
    pub first: MessageNumber,
    /// The sender's first number of this epoch: nobody waits for one below it.
    pub base: MessageNumber,
    /// How they travel.
    pub method: Method,
    /// How many crashes they are to survive, if more than the group's resilience.
    pub resilience: u8,
    /// The messages.
    pub pieces: Pieces,
}

/// See [`Frame::Ordered`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ordered {
    /// The place of the first.
    pub seqno: Seqno,
    /// Whose they are.
    pub sender: Uid,
    /// The message number of the first.
    pub first: MessageNumber,
    /// As in [`Data`].
    pub resilience: u8,
    /// The messages.
    pub pieces: Pieces,
}

/// See [`Frame::Numbers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// The place of the first.
    pub seqno: Seqno,
    /// Whose they are.
    pub sender: Uid,
    /// The message number of the first.
    pub first: MessageNumber,
    /// As in [`Data`].
    pub resilience: u8,
    /// How many, at least 1.
    pub count: u16,
}

/// How a message reaches everybody (KT93 §3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// The sender sends it to the sequencer, which numbers it and sends it to everybody.
    Pb,
    /// The sender sends it to everybody, and the sequencer a short accept.
    Bb,
    /// The same, and more of the sender is under way: the accept may wait for theirs.
    BbStream,
}

/// A piece of a message: a whole one, or part of one that is too large for a datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The next message number of the same sender continues this message.
    pub more: bool,
    /// The bytes.
    pub bytes: Bytes,
}

/// At least one [`Piece`], as they lie in a datagram: each two bytes (length, with `more` as the highest bit), then
/// its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pieces {
    pub(super) bytes: Bytes,
    pub(super) count: u16,
}

/// An ordered change of the group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// This one joins.
    Join {
        /// The new member.
        member: Member,
        /// Its greeting.
        hello: Bytes,
    },
    /// This one leaves.
    Leave {
        /// The leaver.
        uid: Uid,
        /// Who orders from here on: another one if the leaver did, unless it is the last.
        sequencer: Uid,
        /// Its parting words.
        goodbye: Bytes,
    },
    /// This one orders from here on.
    Role {
        /// The new sequencer.
        sequencer: Uid,
    },
}

/// See [`Frame::Heartbeat`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// The place of the event that named this sequencer; 0 for the founder.
    pub term: Seqno,
    /// The sender orders in this term; otherwise it is a predecessor or a witness that tells the one who is named.
    pub acting: bool,
    /// The highest number given.
    pub end: Seqno,
    /// Everything through here is accepted.
    pub accepted: Seqno,
    /// Everything through here is held by every member.
    pub stable: Seqno,
    /// Counts heartbeats; members return it, which shows that they hear the group's path.
    pub stamp: u32,
    /// Every member is seen to hear the group's multicast: others may use it too.
    pub multicast: bool,
    /// How late the sender's timers were served of late, in milliseconds; 255 for more.
    pub late_ms: u8,
}

/// See [`Frame::Watermarks`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watermarks {
    /// Held without a gap, data included, through here.
    pub received: Seqno,
    /// Known to be accepted through here.
    pub accepted: Seqno,
    /// Given to the application through here.
    pub delivered: Seqno,
    /// The stamp of the last heartbeat heard; 0 before the first.
    pub stamp: u32,
    /// Multicasts of this group were heard lately.
    pub hears_multicast: bool,
    /// How late the sender's timers were served of late, in milliseconds; 255 for more.
    pub late_ms: u8,
}

/// See [`Frame::HereIs`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HereIs {
    /// The question's.
    pub nonce: u64,
    /// To be shown when asking to join.
    pub cookie: u64,
    /// Which founding.
    pub instance: Instance,
    /// Resets so far: of two answers of one founding the higher counts.
    pub epoch_counter: u64,
    /// Where to ask: the sequencer, as far as the answerer knows.
    pub sequencer: SocketAddr,
    /// Members now.
    pub members: u16,
    /// Whether it pays to ask.
    pub condition: Condition,
}

/// How a group is that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// It orders.
    Open,
    /// A founder alone that has ordered nothing: it gives way to another group of this port.
    Pristine,
    /// It is being reset, or has lost its quorum: nobody is let in for now, and nobody shall found another.
    Halted,
}

/// See [`Frame::Welcome`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The request's: another life may have asked at this address.
    pub cookie: u64,
    /// Which founding.
    pub instance: Instance,
    /// The epoch.
    pub epoch: EpochId,
    /// The place with which the epoch began.
    pub epoch_start: Seqno,
    /// What all have in common.
    pub config: GroupConfig,
    /// Where the joiner's log begins.
    pub base: LogBase,
}

/// What is known at the place before a log's first entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogBase {
    /// The place.
    pub seqno: Seqno,
    /// The members, in rank order.
    pub members: Vec<Member>,
    /// The event that names the sequencer at this place, and whom it names.
    pub term: (Seqno, Uid),
    /// The last numbered message of each sender that has one.
    pub last_numbers: Vec<(Uid, MessageNumber)>,
}

/// Why a joiner is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// As many members as the group allows.
    Full,
    /// The fixed list does not have this name, or a member of this name is in.
    Name,
    /// Not now (as many listen already as there are places): ask again.
    NotNow,
    /// The cookie is stale: locate again.
    Cookie,
}

/// See [`Frame::Vote`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vote {
    /// Promised to this one.
    pub ballot: Ballot,
    /// The end of the log, tentative entries included.
    pub end: Seqno,
    /// Known to be accepted through here.
    pub accepted: Seqno,
    /// What the voter prepared last in this epoch, and under which ballot.
    pub prepared: Option<(Ballot, Proposal)>,
}

/// See [`Frame::Prepare`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prepare {
    /// The attempt.
    pub ballot: Ballot,
    /// At least so many members, as in [`Frame::Invite`]: who was not invited promises by this.
    pub members_min: u16,
    /// What is proposed.
    pub proposal: Proposal,
    /// The view before the last join or leave that is not known to be accepted; the same as `after` if there is none.
    pub before: Vec<Uid>,
    /// The view at the end of the longest log.
    pub after: Vec<Uid>,
}

/// A next epoch, and the view it begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// Its name.
    pub epoch: EpochId,
    /// The place of the reset event: everything below is kept.
    pub start: Seqno,
    /// Who goes on, in rank order; the first orders.
    pub members: Vec<Uid>,
    /// More members are missing than the group's resilience covers.
    pub degraded: bool,
}

/// See [`Frame::FormPromise`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormPromise {
    /// As in [`Frame::Form`].
    pub formation: u64,
    /// Promised to this one.
    pub ballot: Ballot,
    /// Which participant promises; its uid is the datagram's.
    pub name: Name,
    /// Where it is. A datagram that comes from elsewhere is a copy.
    pub address: SocketAddr,
    /// What it prepared last, and under which ballot.
    pub prepared: Option<(Ballot, Founding)>,
}

/// A group to be formed: all that its members begin with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Founding {
    /// Names the group for ever.
    pub instance: Instance,
    /// Its first epoch.
    pub epoch: EpochId,
    /// What all have in common.
    pub config: GroupConfig,
    /// Its first view, in rank order; the first orders.
    pub members: Vec<Member>,
}

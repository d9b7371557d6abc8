//! The frames that a datagram carries, one after the other.
//!
//! This file defines the frames and their fields; `codec` writes them to bytes and reads them. A frame holds its
//! payload as a slice of the datagram that brought it, so nothing is copied between the wire and the application.
//! Frames are passed by value, so each costs as much as the largest variant: large and rare contents are boxed.

use super::calls::{Attempt, Got, Grant, Part, PortHere, PublicKey, Rejection, Reply, Request, Unopened};
use super::envelope::Envelope;
use crate::config::{Floor, GroupConfig, Order};
use crate::identity::{Ballot, EpochId, Instance, Member, MessageNumber, Name, Port, Seqno, Uid};
use crate::quality::Quality;
use alloc::boxed::Box;
use alloc::vec::Vec;
use bytes::Bytes;
use core::net::SocketAddr;

/// A frame: one statement or question of the protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    // --- ordering ---
    /// Messages of one sender that need seqnos: by PB to the sequencer alone, by BB to all members.
    Data(Data),
    /// Messages with their seqnos and their data: consecutive seqnos, consecutive messages of one sender.
    Ordered(Ordered),
    /// The seqnos of messages whose data travelled by BB. Members find the data in their unordered buffers.
    Numbers(Numbers),
    /// A join, a leave or a role event, with its seqno.
    Change {
        /// Seqno of the change.
        seqno: Seqno,
        /// The change.
        change: Change,
    },
    /// Reports the highest seqno, what is accepted, and what is stable. Sent by the sequencer; by its predecessor until
    /// it hears the new term; and by a witness to the successor.
    Heartbeat(Heartbeat),
    /// A member's watermarks: an acknowledgement, and the answer to a heartbeat.
    Watermarks(Watermarks),
    /// A retransmission request: seqnos that the sender lacks, data included. Any process that holds them answers.
    Nack {
        /// First and last seqno of each range, ascending; at most [`NACK_RANGES_MAX`].
        ranges: Vec<(Seqno, Seqno)>,
    },
    /// The sequencer lacks messages of the receiver that precede messages it has. It can number those only afterwards.
    Want {
        /// Number of the first missing message.
        from: MessageNumber,
        /// Number of the last missing message.
        to: MessageNumber,
    },
    /// Answers a NACK for seqnos that have left the histories: every member held everything through here.
    Gone {
        /// The last seqno that is not kept any more.
        through: Seqno,
    },

    /// A message without a seqno. It is in one datagram, never in parcels, and no member asks for it again.
    Unreliable {
        /// Its number among the unreliable messages of the datagram's sender.
        number: u64,
        /// The message.
        payload: Bytes,
    },

    /// The latest note of a member, as it says it itself or as another member relays it.
    Note {
        /// The member.
        member: Uid,
        /// Its number among the notes of that member in this epoch.
        number: u64,
        /// The note; at most [`NOTE_BYTES_MAX`] bytes.
        note: Bytes,
    },

    // --- liveness ---
    /// Asks a silent member for a sign of life. The answer also shows that the member hears the sender.
    Probe {
        /// Echoed in the answer.
        nonce: u64,
    },
    /// Answers a probe.
    Alive {
        /// Nonce of the probe.
        nonce: u64,
    },
    /// Asks whether the receiver still takes part in this epoch, and how far its log goes.
    Confirm {
        /// Echoed in the answer.
        nonce: u64,
    },
    /// Answers [`Frame::Confirm`]: the sender is a member in this epoch and has promised no reset.
    Confirmed {
        /// Nonce of the question.
        nonce: u64,
        /// End of the sender's log: contiguous through here, data included.
        end: Seqno,
    },

    // --- finding, joining, leaving ---
    /// Asks where the group is. Outside of any epoch; padded, so that the answer is never longer.
    Locate {
        /// Echoed in the answer.
        nonce: u64,
    },
    /// Answers [`Frame::Locate`].
    HereIs(HereIs),
    /// Reports that two groups of this port have met, and which is to give way: to the other group outside of any epoch,
    /// to the own members within the epoch.
    Met(Met),
    /// Asks the sequencer to let the sender join.
    JoinRequest {
        /// From [`HereIs`]; proves that the joiner receives at its address.
        cookie: u64,
        /// Name of the joiner. Its uid and address are those of the datagram.
        name: Name,
        /// The floor that it asks for.
        floor: Floor,
        /// The hops that it asks for.
        hops: u8,
        /// Greeting, delivered with the join.
        hello: Bytes,
    },
    /// Answers [`Frame::JoinRequest`] with what the joiner needs to observe the group.
    Welcome(Box<Welcome>),
    /// Answers [`Frame::JoinRequest`]: the joiner is not admitted.
    Refused {
        /// Cookie of the request. It distinguishes the joiner's life from an earlier one at the same address.
        cookie: u64,
        /// Reason of the refusal.
        reason: Refusal,
    },
    /// Asks the sequencer to order the sender's leave.
    LeaveRequest {
        /// Number of the sender's last message (or piece) that has no seqno yet, as far as the sender knows; 0 if all
        /// have one.
        unnumbered_through: MessageNumber,
        /// Goodbye, delivered with the leave.
        goodbye: Bytes,
    },
    /// Asks the sequencer for another order of the group.
    SwitchRequest {
        /// The order that the sender wants.
        order: Order,
        /// Seqno of the event from which on the group is ordered as the sender wants it no longer.
        since: Seqno,
    },
    /// Dismisses a leaver or a joiner: the group does not need it any more. With the uid of its own sender it announces
    /// that the sender goes.
    Farewell {
        /// Uid of the life that may go. It distinguishes that life from an earlier one at the same address.
        uid: Uid,
        /// Seqno of its leave, or of something accepted.
        seqno: Seqno,
    },

    // --- reset (the datagram's epoch tag is that of the epoch that ends) ---
    /// A coordinator asks for promises.
    Invite {
        /// The coordinator's attempt.
        ballot: Ballot,
        /// Minimum number of members after the reset, set by the application that asked for it; 0 if none did.
        members_min: u16,
    },
    /// Promises a ballot, and describes the voter's log.
    Vote(Box<Vote>),
    /// The sender has promised a higher ballot than the receiver's.
    Outbid {
        /// The higher ballot.
        promised: Ballot,
    },
    /// Asks for these seqnos, whatever the receiver's state is. The answer is a datagram that begins with
    /// [`Frame::Level`].
    Pull {
        /// The ballot under which the entries will be taken.
        ballot: Ballot,
        /// First seqno wanted.
        from: Seqno,
        /// Last seqno wanted.
        to: Seqno,
    },
    /// First frame of a datagram whose entries are taken under this ballot. To take them promises the ballot, and
    /// acknowledges nothing.
    Level {
        /// The ballot that is promised by taking the entries.
        ballot: Ballot,
    },
    /// The coordinator proposes the next view.
    Prepare(Box<Prepare>),
    /// The sender has prepared what was proposed under this ballot.
    Prepared {
        /// The ballot of the proposal.
        ballot: Ballot,
    },
    /// This proposal is decided.
    Decided {
        /// The decided proposal.
        proposal: Proposal,
        /// A quorum of the new view has entered, so an excluded member may stop serving its log.
        entered: bool,
    },
    /// Asks what became of the epoch that the datagram's tag names. Padded; the answer is [`Frame::Decided`] or
    /// [`Frame::Excluded`].
    Inquiry,
    /// The epoch of the datagram's tag is over, and the present epoch does not contain `uid`. The uid is named because
    /// any receiver of this frame could have it sent to others. This is the only frame that a process sends under the
    /// tag of an epoch in which it never was.
    Excluded {
        /// The life that is not in the present epoch.
        uid: Uid,
        /// The founding. To a member of another group of this port every epoch of this group is unknown, and it may
        /// answer [`Frame::Inquiry`] too. So a receiver of another founding ignores the frame.
        instance: Instance,
        /// The present epoch.
        epoch: EpochId,
    },

    // --- status queries ---
    /// Asks for a report on the group. Padded, so that the answer is never longer.
    Ask {
        /// Echoed in the answer.
        nonce: u64,
        /// Length of this frame in bytes, [`PADDED_BYTES_MIN`](super::PADDED_BYTES_MIN) or more.
        room: u32,
    },
    /// Answers [`Frame::Ask`].
    Tell {
        /// Nonce of the question.
        nonce: u64,
        /// An encoded [`crate::look::Report`].
        report: Bytes,
    },
    /// Asks a member of a halted group to go on without members. Outside of any epoch; padded.
    Force {
        /// Echoed in the answer.
        nonce: u64,
        /// From the answer to an earlier request; 0 in the first.
        challenge: u64,
        /// The members that the operator vouches are dead: 1 to [`FORCE_MAX`].
        without: Vec<Uid>,
    },
    /// Answers [`Frame::Force`].
    Forcing {
        /// Nonce of the request.
        nonce: u64,
        /// The answer.
        answer: Forcing,
    },

    /// Asks a member for another order of the group. Outside of any epoch; padded.
    Switch {
        /// Echoed in the answer.
        nonce: u64,
        /// From the answer to an earlier request; 0 in the first.
        challenge: u64,
        /// The order that the operator wants.
        order: Order,
    },
    /// Answers [`Frame::Switch`].
    Switching {
        /// Nonce of the request.
        nonce: u64,
        /// The answer.
        answer: Switching,
    },

    // --- frames larger than a datagram ---
    /// A piece of one encoded frame.
    Parcel {
        /// Number of the frame among those that its sender sends in parcels.
        id: u32,
        /// Index of this piece, from 0.
        index: u16,
        /// Number of pieces.
        count: u16,
        /// Bytes of this piece.
        bytes: Bytes,
    },

    // --- forming a group (outside of any epoch) ---
    /// A coordinator asks the participants of a formation for promises. Padded so that no answer is longer.
    Form {
        /// Hash of the participants' names and of the minimum number of members.
        formation: u64,
        /// The coordinator's attempt.
        ballot: Ballot,
        /// Number of participants that answered the coordinator recently, itself included.
        heard: u16,
        /// Length of this frame in bytes, [`PADDED_BYTES_MIN`](super::PADDED_BYTES_MIN) or more.
        room: u32,
    },
    /// Promises a ballot, and reports what the participant has prepared.
    FormPromise(Box<FormPromise>),
    /// The sender does not promise the receiver's ballot: it has promised a higher one, or does not know yet whether the
    /// question is a recording of an earlier start.
    FormRefused {
        /// As in [`Frame::Form`].
        formation: u64,
        /// The receiver's ballot, which the sender refuses.
        ballot: Ballot,
        /// Highest ballot that the sender has promised; round 0 if it has promised none.
        promised: Ballot,
        /// Random bits of the sender's life, which the receiver is to show.
        nonce: u64,
    },
    /// A coordinator shows the nonce of a participant that did not promise, and asks once more for its promise.
    FormEcho {
        /// As in [`Frame::Form`].
        formation: u64,
        /// The coordinator's attempt.
        ballot: Ballot,
        /// As in [`Frame::Form`].
        heard: u16,
        /// The nonce in [`Frame::FormRefused`].
        nonce: u64,
    },
    /// The coordinator proposes the group.
    FormPrepare {
        /// As in [`Frame::Form`].
        formation: u64,
        /// The coordinator's attempt.
        ballot: Ballot,
        /// The nonce in the receiver's promise.
        nonce: u64,
        /// The proposed founding.
        founding: Box<Founding>,
    },
    /// The sender has prepared what was proposed under this ballot.
    FormPrepared {
        /// As in [`Frame::Form`].
        formation: u64,
        /// The ballot of the proposal.
        ballot: Ballot,
    },
    /// The group is formed.
    Formed {
        /// As in [`Frame::Form`].
        formation: u64,
        /// The ballot of the question, or the one under which the founding was decided.
        ballot: Ballot,
        /// The decided founding.
        founding: Box<Founding>,
    },

    // --- calls (outside of any epoch) ---
    /// Asks which servers serve a port. Padded, so that the answer is never longer.
    LocatePort {
        /// Echoed in the answer.
        nonce: u64,
        /// The port.
        port: Port,
        /// Key of the client's life.
        key: PublicKey,
    },
    /// Answers [`Frame::LocatePort`]: the sender serves the port.
    PortHere(Box<PortHere>),
    /// Answers [`Frame::LocatePort`]: the sender does not serve the port. Sent if the question went to this address
    /// alone.
    PortNotHere {
        /// Nonce of the question.
        nonce: u64,
        /// The port.
        port: Port,
        /// The sender's address. An answer that arrives from another one was passed on.
        address: SocketAddr,
    },
    /// A client sends a call to a server.
    Request(Request),
    /// The server answers a call.
    Reply(Reply),
    /// The server does not execute an attempt, or does not know what became of it.
    Reject {
        /// The attempt.
        attempt: Attempt,
        /// Number of calls that the client may have under way from now on.
        grant: Grant,
        /// Reason of the rejection.
        reason: Rejection,
    },
    /// The server passes the call on: its life has not executed the attempt and never will, and the client is to ask
    /// another server.
    Forward {
        /// The attempt.
        attempt: Attempt,
        /// Number of calls that the client may have under way from now on.
        grant: Grant,
        /// Address of the other server.
        to: SocketAddr,
    },
    /// The server has the whole request, and no reply yet.
    Working {
        /// The attempt.
        attempt: Attempt,
        /// Number of calls that the client may have under way from now on.
        grant: Grant,
    },
    /// A part of a large request or reply.
    Part(Part),
    /// Acknowledges parts.
    Got(Got),
    /// Acknowledges replies. The server need not keep them any longer.
    Done {
        /// Uid of the server's life.
        to: Uid,
        /// The client knows the outcomes of all its calls with lower numbers.
        finished_below: u64,
        /// Slot and number of each attempt; at most [`DONE_MAX`](super::DONE_MAX) attempts.
        attempts: Vec<(u16, u64)>,
    },
    /// The client gives up an attempt.
    Cancel {
        /// The attempt.
        attempt: Attempt,
    },
    /// Frames from a client to a server or back, sealed for the receiver alone. Nothing precedes or follows it in its
    /// datagram.
    Envelope(Box<Envelope>),
    /// A server does not take an envelope.
    Unopened(Unopened),
}

/// Maximum number of ranges in one [`Frame::Nack`].
pub const NACK_RANGES_MAX: usize = 32;
/// Maximum number of members in one [`Frame::Force`].
pub const FORCE_MAX: usize = 128;
/// Maximum length of a hello or a goodbye, in bytes.
pub const GREETING_BYTES_MAX: usize = 512;
/// Maximum length of a note, in bytes.
pub const NOTE_BYTES_MAX: usize = 64;
/// Maximum length of a frame that travels in parcels, in bytes of kind and body.
pub const PARCELLED_BYTES_MAX: usize = 1 << 20;
/// Maximum length of one piece of a message, in bytes: what fits the 14 low bits of its length field.
pub const PIECE_BYTES_MAX: usize = 0x3fff;

/// Content of [`Frame::Data`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Data {
    /// Uid of the messages' sender; not always the datagram's sender.
    pub sender: Uid,
    /// Number of the first message.
    pub first: MessageNumber,
    /// The sender's first message number of this epoch. The sequencer does not wait for lower ones, which an earlier
    /// epoch has settled.
    pub base: MessageNumber,
    /// How the messages reach the members.
    pub method: Method,
    /// What the messages ask for.
    pub quality: Quality,
    /// The messages.
    pub pieces: Pieces,
}

/// Content of [`Frame::Ordered`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ordered {
    /// Seqno of the first message.
    pub seqno: Seqno,
    /// Uid of the messages' sender.
    pub sender: Uid,
    /// Number of the first message.
    pub first: MessageNumber,
    /// As in [`Data`].
    pub quality: Quality,
    /// The messages.
    pub pieces: Pieces,
}

/// Content of [`Frame::Numbers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// Seqno of the first message.
    pub seqno: Seqno,
    /// Uid of the messages' sender.
    pub sender: Uid,
    /// Number of the first message.
    pub first: MessageNumber,
    /// As in [`Data`].
    pub quality: Quality,
    /// Number of messages, at least 1.
    pub count: u16,
}

/// How a message reaches all members (KT93 §3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// The sender sends the message to the sequencer, which numbers it and sends it to the group.
    Pb,
    /// The sender sends the message to the group, and the sequencer sends its seqno.
    Bb,
    /// BB in a stream: as BB, and more messages of this sender follow. The sequencer may announce the seqno together
    /// with theirs.
    BbStream,
}

/// A whole message, or a piece of one that is too large for a datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The next message number of the same sender continues this message.
    pub more: bool,
    /// Bytes of the piece.
    pub bytes: Bytes,
}

/// At least one [`Piece`], as in a datagram: two bytes each (length, with `more` as the highest bit), then the piece's
/// bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pieces {
    pub(super) bytes: Bytes,
    pub(super) count: u16,
}

/// A change of the group that has a seqno of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A member joins.
    Join {
        /// The new member.
        member: Member,
        /// Greeting of the new member.
        hello: Bytes,
    },
    /// A member leaves.
    Leave {
        /// Uid of the leaver.
        uid: Uid,
        /// The sequencer from here on. If the leaver was the sequencer, its successor; the leaver itself if it was the
        /// last member.
        sequencer: Uid,
        /// Goodbye of the leaver.
        goodbye: Bytes,
    },
    /// The sequencer's role moves.
    Role {
        /// The sequencer from here on.
        sequencer: Uid,
    },
    /// The group is ordered otherwise.
    Order {
        /// The order from here on.
        order: Order,
        /// The sequencer from here on; in a ring the member that has the token.
        sequencer: Uid,
    },
}

/// Content of [`Frame::Heartbeat`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// Seqno of the event that named this sequencer; 0 for the founder.
    pub term: Seqno,
    /// The sender is the sequencer of this term. Otherwise it is a predecessor or a witness.
    pub acting: bool,
    /// The highest seqno assigned.
    pub end: Seqno,
    /// Everything through here is accepted.
    pub accepted: Seqno,
    /// Every member holds everything through here.
    pub stable: Seqno,
    /// Counts the heartbeats to the whole group. Members return it in their watermarks, which shows that they hear the
    /// path on which the group is addressed. 0 in a heartbeat to one member alone.
    pub stamp: u32,
    /// The sequencer sees that every member hears the group's multicasts, so other members may multicast too.
    pub multicast: bool,
    /// It asks the members for their watermarks. Otherwise it only announces what is accepted.
    pub asks: bool,
    /// How late the sender's timers fired recently, in milliseconds; 255: 255 ms or more.
    pub late_ms: u8,
}

/// Content of [`Frame::Watermarks`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watermarks {
    /// Contiguous through here, data included.
    pub received: Seqno,
    /// Known to be accepted through here.
    pub accepted: Seqno,
    /// Delivered to the application through here.
    pub delivered: Seqno,
    /// Stamp of the last heartbeat received; 0 before the first.
    pub stamp: u32,
    /// The sender has received multicasts of this group recently.
    pub hears_multicast: bool,
    /// How late the sender's timers fired recently, in milliseconds; 255: 255 ms or more.
    pub late_ms: u8,
}

// Frames are moved several times on their way in. The compiler calls a function to move more than 128 bytes.
const _: () = assert!(size_of::<Frame>() <= 128);

/// Content of [`Frame::HereIs`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HereIs {
    /// Nonce of the question.
    pub nonce: u64,
    /// To be returned in [`Frame::JoinRequest`].
    pub cookie: u64,
    /// The founding.
    pub instance: Instance,
    /// Number of resets so far. Of two answers of one founding the one with the higher number counts.
    pub epoch_counter: u64,
    /// Address of the sequencer, as far as the answering member knows it. The joiner sends its request there.
    pub sequencer: SocketAddr,
    /// Present number of members.
    pub members: u16,
    /// Whether the group admits joiners.
    pub condition: Condition,
    /// Number of events that the answering member knows to be ordered: the seqno through which all is accepted.
    pub ordered: Seqno,
}

/// Content of [`Frame::Met`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Met {
    /// To the other group: the cookie of its [`HereIs`], which shows that this follows that answer. Within an epoch: 0.
    pub cookie: u64,
    /// Founding of the group that the receiver's group has met.
    pub instance: Instance,
    /// Number of events that that group had ordered when the verdict was decided.
    pub ordered: Seqno,
    /// Number of events that the receiver's group had ordered then.
    pub ordered_here: Seqno,
    /// True if the receiver's group is the one to give way.
    pub gives_way: bool,
    /// True if that group has said so; always in a frame to the other group.
    pub from_other: bool,
    /// Address of a member of that group.
    pub address: SocketAddr,
}

/// Condition of a group that answers [`Frame::Locate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Its sequencer assigns seqnos.
    Open,
    /// A founder alone that has ordered nothing: it gives way to another group of this port.
    Pristine,
    /// It is being reset, or has lost its quorum. It admits no joiner for now, and no second group may be founded
    /// beside it.
    Halted,
}

/// Content of [`Frame::Welcome`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// Cookie of the request. It distinguishes the joiner's life from an earlier one at the same address.
    pub cookie: u64,
    /// The founding.
    pub instance: Instance,
    /// The present epoch.
    pub epoch: EpochId,
    /// Seqno with which the epoch began.
    pub epoch_start: Seqno,
    /// The settings that all members share.
    pub config: GroupConfig,
    /// State of the group where the joiner's log begins.
    pub base: LogBase,
}

/// State of the group at the seqno before a log's first entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogBase {
    /// The seqno before the first entry.
    pub seqno: Seqno,
    /// Members, in rank order.
    pub members: Vec<Member>,
    /// Seqno of the event that named the sequencer, and the sequencer's uid.
    pub term: (Seqno, Uid),
    /// Seqno of the event from which on the group is ordered so, and the order.
    pub order: (Seqno, Order),
    /// Number of the last message that has a seqno, for each sender that has one.
    pub last_numbers: Vec<(Uid, MessageNumber)>,
}

/// Why a joiner is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The group has its maximum number of members.
    Full,
    /// The fixed list does not contain this name, or a member of this name is in the view.
    Name,
    /// Members and observers together reach the maximum number of members. The joiner asks again.
    NotNow,
    /// The cookie is stale. The joiner locates the group again.
    Cookie,
    /// The joiner's floor is above the group's maximum number of members.
    Floor,
    /// The joiner asks for a floor, and would have no vote.
    FloorWithoutVote,
}

/// Content of [`Frame::Vote`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vote {
    /// The ballot that the voter promises.
    pub ballot: Ballot,
    /// End of the voter's log, tentative entries included.
    pub end: Seqno,
    /// Known to be accepted through here.
    pub accepted: Seqno,
    /// True if the group keeps a state, and the voter has not fetched it yet.
    pub lacks_state: bool,
    /// The proposal that the voter prepared last in this epoch, and its ballot.
    pub prepared: Option<(Ballot, Proposal)>,
    /// The messages that the voter delivered early and that its log lacks, by sender and number.
    pub early: Vec<EarlyMessage>,
}

/// Maximum size of the early messages in a vote, as [`EarlyMessage::cost`] counts them. A proposal carries those of all
/// voters, and each votes for no more than its share, so the tail has about this size, too: a dozen datagrams. As the shares of
/// members that delivered in smaller views are larger, up to eight times as much is read.
pub const TAIL_BYTES_MAX: usize = 16 << 10;

/// A message that was delivered before its seqno was known, in a [`Vote`] or in the tail of a [`Proposal`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EarlyMessage {
    /// Its sender.
    pub sender: Uid,
    /// Its message number.
    pub number: MessageNumber,
    /// What it asks for: unordered or source ordered.
    pub quality: Quality,
    /// Its bytes.
    pub bytes: Bytes,
}

impl EarlyMessage {
    /// Returns the size that a message of this length counts for.
    pub const fn cost(length: usize) -> usize {
        length + 32
    }
}

/// Content of [`Frame::Prepare`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prepare {
    /// The coordinator's attempt.
    pub ballot: Ballot,
    /// Minimum number of members, as in [`Frame::Invite`]. A member that did not receive the invitation promises by
    /// preparing.
    pub members_min: u16,
    /// The proposal.
    pub proposal: Proposal,
    /// The view before the last join or leave that is not known to be accepted; the same as `after` if there is none.
    pub before: Vec<Uid>,
    /// The view at the end of the longest log.
    pub after: Vec<Uid>,
}

/// A next epoch, and the view it begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// Name of the next epoch.
    pub epoch: EpochId,
    /// Seqno of the reset event. The log is kept through [`Proposal::keep`], and the tail is between the two.
    pub start: Seqno,
    /// Members of the next epoch, in rank order; the first is its sequencer.
    pub members: Vec<Uid>,
    /// More members are missing than the group's resilience covers.
    pub degraded: bool,
    /// An operator vouched for the missing members, and the ballot had no quorum. Such a proposal is degraded too.
    pub forced: bool,
    /// Messages that were delivered early and that the kept log lacks, by sender and number. No log has them before the
    /// proposal is decided.
    pub tail: Vec<EarlyMessage>,
}

impl Proposal {
    /// Returns the seqno through which the log is kept.
    pub fn keep(&self) -> Seqno {
        self.start.saturating_sub(self.tail.len() as u64 + 1)
    }
}

/// Answer to [`Frame::Force`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forcing {
    /// The request is taken if it comes again with this challenge, from the same host.
    Challenge(u64),
    /// A forced reset has begun.
    Begun,
    /// The group is not halted at this member.
    NotHalted,
    /// This uid is not in the view.
    NoSuchMember(Uid),
    /// This member answers.
    Answers(Uid),
}

/// Answer to [`Frame::Switch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switching {
    /// The request is taken if it comes again with this challenge, from the same host.
    Challenge(u64),
    /// The member asks the sequencer for the order.
    Begun,
    /// The group is ordered so already.
    InForce,
    /// Another change of the order is under way.
    UnderWay,
    /// The group is being reset.
    Resetting,
    /// The process that was asked is not in the group any more.
    NotMember,
}

/// Content of [`Frame::FormPromise`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormPromise {
    /// As in [`Frame::Form`].
    pub formation: u64,
    /// The ballot that the participant promises.
    pub ballot: Ballot,
    /// Name of the participant. Its uid is the datagram's.
    pub name: Name,
    /// Address of the participant. A promise that arrives from another address does not count: it is a copy.
    pub address: SocketAddr,
    /// The floor that the participant asks for.
    pub floor: Floor,
    /// The hops that the participant asks for.
    pub hops: u8,
    /// 64 random bits of the participant's life. The coordinator returns them in [`Frame::FormPrepare`], which shows that it
    /// has heard this life.
    pub nonce: u64,
    /// The founding that the participant prepared last, and its ballot.
    pub prepared: Option<(Ballot, Founding)>,
}

/// A group to be formed: everything that its members begin with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Founding {
    /// Name of the group for ever.
    pub instance: Instance,
    /// Its first epoch.
    pub epoch: EpochId,
    /// The settings that all members share.
    pub config: GroupConfig,
    /// Its first view, in rank order; the first member is the sequencer.
    pub members: Vec<Member>,
}

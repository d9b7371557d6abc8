//! What a group tells its application: one ordered stream of events.

use crate::identity::{EpochId, Member, MessageNumber, Seqno, Uid};
use alloc::vec::Vec;
use bytes::Bytes;
use core::net::SocketAddr;

/// Something that happened in the group. Those that have a `seqno` happen at the same place at every member.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// This member is in: the first event of its stream, for a founder and a joiner alike.
    ///
    /// It may come once more, directly after the first: a founder that is alone and has ordered nothing gives way when
    /// it meets an older group of the same name, as happens when members are started together, and enters that one.
    /// Nothing was lost, since nothing had been sent; what was made of the first view is to be made of the second.
    Entered {
        /// The place of its join; 0 for a founder.
        seqno: Seqno,
        /// The view it finds, itself included.
        view: View,
    },
    /// A message.
    Message {
        /// Its place in the total order (of its last piece, if it travelled in several).
        seqno: Seqno,
        /// Who sent it: a member of the view at this place, whose name is there.
        sender: Uid,
        /// Its number among those of its sender (of its last piece).
        number: MessageNumber,
        /// What was sent.
        payload: Bytes,
    },
    /// A member joined.
    Joined {
        /// Place.
        seqno: Seqno,
        /// Who.
        member: Member,
        /// Its words of greeting.
        hello: Bytes,
        /// Members from here on.
        members: usize,
    },
    /// A member left; the leaver receives this too, as its last event but [`Event::Gone`].
    Left {
        /// Place.
        seqno: Seqno,
        /// Who.
        member: Member,
        /// Its parting words.
        goodbye: Bytes,
        /// Members from here on.
        members: usize,
        /// Who orders from here on, if the leaver did: the role goes with the leave, without a further event. Nobody if
        /// it was the last member.
        successor: Option<Uid>,
    },
    /// The role of sequencer was handed on by a member that stays.
    HandedOver {
        /// Place.
        seqno: Seqno,
        /// Who orders from here on.
        sequencer: Uid,
    },
    /// A reset was completed: a new epoch begins here.
    Reset {
        /// Place.
        seqno: Seqno,
        /// Who goes on.
        view: View,
        /// Who does not.
        excluded: Vec<Member>,
        /// More members are missing than the group's resilience covers: messages may be lost, and this says so.
        degraded: bool,
        /// An operator forced the group to go on without the excluded members ([`Group::force`](crate::Group::force)).
        forced: bool,
    },
    /// Manual policy only: a member is suspected, and the group stands still until the application calls `reset`.
    Suspected {
        /// Who.
        member: Uid,
        /// Why.
        reason: Suspicion,
    },
    /// The group stands still: a reset is under way, and for about the failure detector's time it has found no quorum.
    /// Nothing is ordered until enough of the missing members answer again. With the manual policy it follows
    /// [`Event::Suspected`] once an application has called `reset`.
    ///
    /// It comes once; [`Event::Resumed`] follows it, or the end of the stream.
    Halted {
        /// Members that have not answered. A quorum needs some of them.
        missing: Vec<Member>,
    },
    /// The halted group goes on. Follows the [`Event::Reset`] with which it does.
    Resumed,
    /// The group went on without this member. Its stream ends here; it may come back as a new member.
    Excluded {
        /// The epoch that began without it, if it was told.
        epoch: Option<EpochId>,
    },
    /// This member has left, and nobody needs it any more. The stream ends here.
    Gone,
    /// A join came to nothing. The stream ends here.
    JoinFailed {
        /// Why.
        reason: JoinFailure,
    },
    /// There is another group of the same name, and both have been used: they never merge by themselves. All members of
    /// both are told, within about twenty seconds of hearing each other. Who wants one group lets the members of one leave
    /// it and join again: newcomers that hear both join the one that stays.
    Conflict {
        /// Where one of its members is.
        address: SocketAddr,
        /// This group is the one to give way, if one is to; otherwise that one is, and is told so. Chance decided it when
        /// they were founded.
        gives_way: bool,
    },
}

impl Event {
    /// Its place in the order, if it has one.
    pub fn seqno(&self) -> Option<Seqno> {
        match self {
            Event::Entered { seqno, .. }
            | Event::Message { seqno, .. }
            | Event::Joined { seqno, .. }
            | Event::Left { seqno, .. }
            | Event::HandedOver { seqno, .. }
            | Event::Reset { seqno, .. } => Some(*seqno),
            Event::Suspected { .. }
            | Event::Halted { .. }
            | Event::Resumed
            | Event::Excluded { .. }
            | Event::Gone
            | Event::JoinFailed { .. }
            | Event::Conflict { .. } => None,
        }
    }
}

/// A list of members at a place in the order. The first event of the stream has one ([`Event::Entered`]), and
/// [`View::follow`] keeps it: whoever folds all events has the same view at each place as everybody else.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct View {
    /// The epoch.
    pub epoch: EpochId,
    /// In rank order.
    pub members: Vec<Member>,
    /// Who orders.
    pub sequencer: Uid,
    /// The group's resilience, held to members − 1.
    pub resilience: u8,
    /// The resilience that the group was founded with.
    pub resilience_founded: u8,
}

impl View {
    /// A view in which the resilience that holds follows from the number of members.
    pub fn new(epoch: EpochId, members: Vec<Member>, sequencer: Uid, resilience_founded: u8) -> View {
        let resilience = resilience_among(resilience_founded, members.len());
        View { epoch, members, sequencer, resilience, resilience_founded }
    }

    /// Takes over what an event changes: members, sequencer, epoch and resilience are those of its place then. True if it
    /// changes anything.
    pub fn follow(&mut self, event: &Event) -> bool {
        match event {
            Event::Entered { view, .. } | Event::Reset { view, .. } => self.clone_from(view),
            Event::Joined { member, .. } => {
                self.members.retain(|known| known.uid != member.uid);
                self.members.push(member.clone());
            }
            Event::Left { member, successor, .. } => {
                self.members.retain(|known| known.uid != member.uid);
                self.sequencer = successor.unwrap_or(self.sequencer);
            }
            Event::HandedOver { sequencer, .. } => self.sequencer = *sequencer,
            Event::Message { .. }
            | Event::Suspected { .. }
            | Event::Halted { .. }
            | Event::Resumed
            | Event::Excluded { .. }
            | Event::Gone
            | Event::JoinFailed { .. }
            | Event::Conflict { .. } => return false,
        }
        self.resilience = resilience_among(self.resilience_founded, self.members.len());
        true
    }
}

/// A group of so many members survives at most the loss of all but one.
pub(crate) fn resilience_among(founded: u8, members: usize) -> u8 {
    founded.min(u8::try_from(members.saturating_sub(1)).unwrap_or(u8::MAX))
}

/// What became of a message. Exhaustive: a message has one of these three outcomes in every version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It has its place in the order and was delivered here too.
    Ok {
        /// The place.
        seqno: Seqno,
    },
    /// A reset fell upon it: nobody who goes on will ever deliver it. Safe to send again.
    Failed,
    /// This member was cut off first: the others may have it or not.
    Unknown,
}

/// Why a member is suspected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Suspicion {
    /// Nothing was heard from it, and it answered no probe.
    Silent,
    /// It is heard, but shows no sign of hearing us.
    Deaf,
    /// A new process answers at its address.
    Replaced,
    /// It holds everybody up, longer than the group allows.
    Slow,
}

/// Why a join came to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum JoinFailure {
    /// Nobody answered: there is no such group within reach.
    NotFound,
    /// The group answered, and then nobody did any more: all its members have crashed or left, or are out of reach.
    Lost,
    /// A member answered, but the group's sequencer does not answer at the address it has told the others.
    Unreachable {
        /// That address.
        sequencer: SocketAddr,
    },
    /// The group is there and stands still: it is being reset for longer than a joiner waits, or has lost its quorum.
    /// Trying again is safe; founding another would split it.
    Halted,
    /// The group has as many members as it allows.
    Full {
        /// The member that said so.
        by: SocketAddr,
    },
    /// The fixed list of names does not have this one.
    NameRefused {
        /// The member that said so.
        by: SocketAddr,
    },
    /// The group was found but took too long to let us in; trying again is safe.
    TimedOut,
    /// A reset came between; trying again is safe.
    Reset,
    /// The group was not formed here: too few participants met in time, or they formed it without this one. Whether
    /// there is one shows when somebody joins.
    NotFormed,
}

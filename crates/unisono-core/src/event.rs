//! The events that a group reports to its application, in one ordered stream.

use crate::config::Order;
use crate::identity::{EpochId, Member, MessageNumber, Seqno, Uid};
use crate::quality::Quality;
use alloc::vec::Vec;
use bytes::Bytes;
use core::net::SocketAddr;

/// Names a message from outside: a process that is no member, and its number of the message. An open member sent it on
/// ([`outside`](crate::outside)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Outside {
    /// One life of the process: the uid of its endpoint of calls.
    pub client: Uid,
    /// Number of the message among those of the client. They rise, with gaps.
    pub number: u64,
}

/// An event of the group. An event with a `seqno` has the same one at every member.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Event {
    /// This member has entered the group: the first event of its stream, for a founder and a joiner alike.
    ///
    /// It may come once more, directly after the first. A founder that is alone and has numbered nothing gives way when
    /// it meets an older group of the same name, and enters that one; this happens when members are started together.
    /// Nothing was lost, because nothing had been sent but [unreliable](crate::Quality::UNRELIABLE) messages, which may
    /// come between the two. The second view replaces the first.
    Entered {
        /// Seqno of its join; 0 for a founder.
        seqno: Seqno,
        /// The view that it enters, itself included.
        view: View,
    },
    /// A message.
    Message {
        /// Its seqno (of its last piece, if it travelled in several).
        seqno: Seqno,
        /// The sender, a member of the view at this seqno, which has its name.
        sender: Uid,
        /// Its message number, counted by the sender (of its last piece).
        number: MessageNumber,
        /// The process that the sender sent it for, if that is no member.
        #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
        outside: Option<Outside>,
        /// The bytes that were sent.
        payload: Bytes,
    },
    /// A message that was delivered before its seqno is known, or that gets none. One of quality
    /// [`UNRELIABLE`](crate::Quality::UNRELIABLE) has no seqno, and other members may not receive it. One of
    /// [`UNORDERED`](crate::Quality::UNORDERED) or [`SOURCE_ORDERED`](crate::Quality::SOURCE_ORDERED) gets a seqno, at which no event
    /// comes here any more, and members that go on keep it. Other members may receive it before or after other events, so a state
    /// that all members are to share must not depend on it.
    Early {
        /// The sender, a member of the view that this application knows.
        sender: Uid,
        /// What the message asked for.
        quality: Quality,
        /// The process that the sender sent it for, if that is no member.
        #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
        outside: Option<Outside>,
        /// The bytes that were sent.
        payload: Bytes,
    },
    /// The latest note of another member ([`Group::set_note`](crate::Group::set_note)). It has no place in the order, and an
    /// earlier one of the same member may have been skipped. Replicas with disks use notes among themselves.
    Note {
        /// The member, which is in the view that this application knows.
        member: Uid,
        /// The note.
        note: Bytes,
    },
    /// A member joined.
    Joined {
        /// Seqno of the join.
        seqno: Seqno,
        /// The new member.
        member: Member,
        /// The greeting that it gave.
        hello: Bytes,
        /// Number of members from here on.
        members: usize,
    },
    /// A member left. The leaver receives this too, as its last event before [`Event::Gone`].
    Left {
        /// Seqno of the leave.
        seqno: Seqno,
        /// The member that left.
        member: Member,
        /// The farewell that it gave.
        goodbye: Bytes,
        /// Number of members from here on.
        members: usize,
        /// The sequencer from here on, if the leaver was sequencer: the role moves with the leave, without a further
        /// event. `None` otherwise, and if the leaver was the last member.
        successor: Option<Uid>,
    },
    /// The sequencer gave its role to another member, and stays in the group.
    HandedOver {
        /// Seqno of the role event.
        seqno: Seqno,
        /// The sequencer from here on.
        sequencer: Uid,
    },
    /// The group is ordered otherwise from here on. See [`Group::change_order`](crate::Group::change_order).
    OrderChanged {
        /// Seqno of the event.
        seqno: Seqno,
        /// The order from here on.
        order: Order,
        /// The sequencer from here on; in a ring the member that has the token.
        sequencer: Uid,
    },
    /// A reset is complete. A new epoch begins here.
    Reset {
        /// Seqno of the reset event.
        seqno: Seqno,
        /// The new view.
        view: View,
        /// The members that it excluded.
        excluded: Vec<Member>,
        /// True if more members are missing than the group's resilience covers: messages may have been lost.
        degraded: bool,
        /// An operator forced the group to go on without the excluded members ([`Group::force`](crate::Group::force)).
        forced: bool,
    },
    /// Manual policy only: a member is suspected, and the group is halted until the application calls `reset`.
    Suspected {
        /// The suspected member.
        member: Uid,
        /// The reason.
        reason: Suspicion,
    },
    /// The group is halted: a reset is under way, and for about the failure detector's time it has found no quorum.
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
    /// Only in groups that [keep a state](crate::GroupConfig::keeps_state): a reset is complete, and messages come before
    /// its event that it may have accepted. As many members hold them as go on, which may be fewer than when they got their
    /// seqnos.
    ResetAhead {
        /// Seqno of the reset's event.
        seqno: Seqno,
    },
    /// A reset excluded this member. Its stream ends here. It may come back as a new member.
    Excluded {
        /// The epoch that began without it, if that is known.
        epoch: Option<EpochId>,
    },
    /// This member has left, and no other member needs it any more. The stream ends here.
    Gone,
    /// A join failed. The stream ends here.
    JoinFailed {
        /// The reason.
        reason: JoinFailure,
    },
    /// Another group of the same name exists, and both have been used: they never merge. All members of both receive
    /// this event, within about twenty seconds after the groups hear each other. To get one group, let the members of
    /// one leave it and join again: joiners that hear both groups join the one that stays. The event may come a second
    /// time for the same group, if each of the groups was to stay: then this one is to give way.
    Conflict {
        /// Address of a member of the other group.
        address: SocketAddr,
        /// True if this group is the one to give way, if one of the two is to; the members of the other group then
        /// receive false. The group with fewer ordered events gives way; of two with as many, the one with the larger
        /// instance, which chance drew. The verdict of the moment when they met stands, however they go on.
        gives_way: bool,
        /// Number of events that the other group had ordered when they met.
        other_ordered: Seqno,
    },
}

impl Event {
    /// True if this is a word between members that send for processes outside ([`outside`](crate::outside)): a driver gives
    /// it to its [`Relay`](crate::outside::Relay) and not to the application.
    pub fn is_between_relays(&self) -> bool {
        matches!(self, Event::Message { outside: Some(Outside { number: 0, .. }), .. })
    }

    /// Returns the seqno of the event, if it has one.
    pub fn seqno(&self) -> Option<Seqno> {
        match self {
            Event::Entered { seqno, .. }
            | Event::Message { seqno, .. }
            | Event::Joined { seqno, .. }
            | Event::Left { seqno, .. }
            | Event::HandedOver { seqno, .. }
            | Event::OrderChanged { seqno, .. }
            | Event::Reset { seqno, .. } => Some(*seqno),
            Event::Early { .. }
            | Event::Note { .. }
            | Event::Suspected { .. }
            | Event::ResetAhead { .. }
            | Event::Halted { .. }
            | Event::Resumed
            | Event::Excluded { .. }
            | Event::Gone
            | Event::JoinFailed { .. }
            | Event::Conflict { .. } => None,
        }
    }
}

/// The members at a seqno, and what they have in common. The first event of the stream carries a view
/// ([`Event::Entered`]), and [`View::follow`] keeps it up to date: every member that applies all events has the same
/// view at each seqno.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct View {
    /// The epoch.
    pub epoch: EpochId,
    /// The members in rank order.
    pub members: Vec<Member>,
    /// The sequencer.
    pub sequencer: Uid,
    /// The group's resilience, at most members − 1.
    pub resilience: u8,
    /// The resilience that the group was founded with.
    pub resilience_founded: u8,
}

impl View {
    /// Returns a view whose present resilience follows from the number of members.
    pub fn new(epoch: EpochId, members: Vec<Member>, sequencer: Uid, resilience_founded: u8) -> View {
        let resilience = resilience_among(resilience_founded, members.len());
        View { epoch, members, sequencer, resilience, resilience_founded }
    }

    /// Returns the member with this uid, or `None` if the view does not contain it.
    ///
    /// ```
    /// # use unisono_core::{EpochId, Member, Uid, View};
    /// # let ann = Member { uid: Uid(7), name: "Ann".parse()?, address: "10.0.0.1:7195".parse()?, floor: Default::default(), hops: 1 };
    /// let view = View::new(EpochId::default(), vec![ann], Uid(7), 0);
    /// assert_eq!(view.get(Uid(7)).map(|member| member.name.as_str()), Some("Ann"));
    /// assert_eq!(view.get(Uid(8)), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn get(&self, uid: Uid) -> Option<&Member> {
        self.members.iter().find(|member| member.uid == uid)
    }

    /// Returns the first member in rank order. A view that a group reports has at least one member; a view without
    /// members returns `None`.
    ///
    /// ```
    /// # use unisono_core::{EpochId, Member, Uid, View};
    /// # let ann = Member { uid: Uid(7), name: "Ann".parse()?, address: "10.0.0.1:7195".parse()?, floor: Default::default(), hops: 1 };
    /// # let bob = Member { uid: Uid(3), name: "Bob".parse()?, address: "10.0.0.2:7195".parse()?, floor: Default::default(), hops: 1 };
    /// let view = View::new(EpochId::default(), vec![ann, bob], Uid(3), 1);
    /// assert_eq!(view.first().map(|member| member.uid), Some(Uid(7)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn first(&self) -> Option<&Member> {
        self.members.first()
    }

    /// True if a member has this uid.
    ///
    /// ```
    /// # use unisono_core::{EpochId, Member, Uid, View};
    /// # let ann = Member { uid: Uid(7), name: "Ann".parse()?, address: "10.0.0.1:7195".parse()?, floor: Default::default(), hops: 1 };
    /// let view = View::new(EpochId::default(), vec![ann], Uid(7), 0);
    /// assert!(view.contains(Uid(7)) && !view.contains(Uid(8)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn contains(&self, uid: Uid) -> bool {
        self.get(uid).is_some()
    }

    /// Applies an event: members, sequencer, epoch and resilience are then those at its seqno. Returns true if it
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
            Event::HandedOver { sequencer, .. } | Event::OrderChanged { sequencer, .. } => {
                self.sequencer = *sequencer;
            }
            Event::Message { .. }
            | Event::Early { .. }
            | Event::Note { .. }
            | Event::Suspected { .. }
            | Event::ResetAhead { .. }
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

/// Returns the resilience of a group of `members`, which survives at most the loss of all but one.
pub(crate) fn resilience_among(founded: u8, members: usize) -> u8 {
    founded.min(u8::try_from(members.saturating_sub(1)).unwrap_or(u8::MAX))
}

/// Outcome of a message that this member sent. Exhaustive: every message has one of these three.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum Outcome {
    /// It is accepted: this member's application receives it at that seqno, unless it has received it early.
    Ok {
        /// Its seqno.
        seqno: Seqno,
    },
    /// A reset cut it off, or this member left while the group had too few members to order it: no member that goes on
    /// will ever deliver it. Sending it again is safe.
    Failed,
    /// This member was cut off first: the others may have the message or not.
    Unknown,
}

/// Why a member is suspected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Suspicion {
    /// Nothing was received from it, and it answered no probe.
    Silent,
    /// Its datagrams arrive, but it shows no sign of receiving ours.
    Deaf,
    /// A new process answers at its address.
    Replaced,
    /// It has kept the others waiting for longer than the group allows.
    Slow,
}

/// Why a join failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum JoinFailure {
    /// No member answered: there is no such group within reach.
    NotFound,
    /// The group answered, and then no member did any more: all have crashed or left, or are out of reach.
    Lost,
    /// A member answered, but the group's sequencer does not answer at the address that the other members have for it.
    Unreachable {
        /// That address.
        sequencer: SocketAddr,
    },
    /// The group exists and is halted: its reset takes longer than a joiner waits, or it has lost its quorum. Trying
    /// again is safe; founding another group would split it.
    Halted,
    /// No member answered, and a process sends datagrams for a group of this name in another version of the wire
    /// format. If that is the group, this process cannot join it, and founding another would split it. Anyone can forge
    /// such a datagram: if a group of this version answers, the process joins that one all the same, and a process with
    /// a key that may found the group does so after three searches.
    OtherVersion {
        /// Address of that process.
        by: SocketAddr,
        /// Version that it uses.
        version: u8,
    },
    /// The group has as many members as it allows.
    Full {
        /// The member that refused.
        by: SocketAddr,
    },
    /// The group's fixed list of names does not contain this one.
    NameRefused {
        /// The member that refused.
        by: SocketAddr,
    },
    /// The group allows fewer members than this process asks for with its [`Floor`](crate::Floor).
    FloorTooHigh {
        /// The member that refused.
        by: SocketAddr,
    },
    /// This process asks for a [`Floor`](crate::Floor), and members of its name have no vote in the group.
    FloorWithoutVote {
        /// The member that refused.
        by: SocketAddr,
    },
    /// The group was found, but admission took too long. Trying again is safe.
    TimedOut,
    /// A reset interrupted the join. Trying again is safe.
    Reset,
    /// The group was not formed here: too few participants met in time, or they formed it without this one. A later
    /// join shows whether it exists.
    NotFormed,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Name;
    use alloc::vec;

    #[test]
    fn a_view_finds_its_members() {
        let member = |uid| Member {
            uid: Uid(uid),
            name: Name::default(),
            address: ([10, 0, 0, 1], 7195).into(),
            floor: Default::default(),
            hops: 1,
        };
        let view = View::new(EpochId::default(), vec![member(9), member(2)], Uid(2), 1);
        assert_eq!(view.first(), Some(&member(9)));
        assert_eq!((view.get(Uid(2)), view.get(Uid(3))), (Some(&member(2)), None));
        assert!(view.contains(Uid(9)) && !view.contains(Uid(3)));
        assert_eq!(View::new(EpochId::default(), Vec::new(), Uid(2), 1).first(), None);
    }
}

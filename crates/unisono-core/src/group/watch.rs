//! What checkers read: the state of a member, the rare states that it met, and rules broken on purpose.
//!
//! The simulator reads it after every input, so it is cheap; applications have no use for it. Whether a bug is planted
//! is checked where its rule is written, and a probe is recorded where its state comes about ([`Planted`], [`Probe`]).

use super::Group;
use crate::config::Order;
use crate::identity::{Ballot, EpochId, EpochTag, Member, MessageNumber, Seqno, Uid};
use crate::log::Entry;
use crate::planted::{Planted, Probe};
use crate::wire::Change;

/// The seqnos that a member assigned in one term.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbered {
    /// Seqno of the event that named it.
    pub term: Seqno,
    /// Last seqno before those that it assigned.
    pub after: Seqno,
    /// Last seqno that it assigned.
    pub through: Seqno,
}

/// A proposal that a member prepared in a reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prepared {
    /// Ballot under which it was prepared.
    pub ballot: Ballot,
    /// The epoch that is to begin.
    pub epoch: EpochId,
    /// Seqno through which it keeps the log. What was delivered early follows, and then the reset event.
    pub keep: Seqno,
    /// Seqno of the reset event.
    pub start: Seqno,
}

/// State of a member (see [`Group::marks`](crate::Group::marks)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// The epoch.
    pub epoch: EpochTag,
    /// Seqno of the event that named the sequencer that this member knows.
    pub term: Seqno,
    /// True if this member assigns seqnos now.
    pub acting: bool,
    /// Seqnos that it assigned when it last had the role in this epoch.
    pub numbered: Numbered,
    /// Everything through here is held, data included: tentative entries too.
    pub received: Seqno,
    /// It has acknowledged, in this epoch, everything through here.
    pub acknowledged: Seqno,
    /// Everything through here is accepted.
    pub accepted: Seqno,
    /// Everything through here was handed to the application.
    pub delivered: Seqno,
    /// Everything through here has left the history.
    pub purged: Seqno,
    /// Number of entries in the history.
    pub history: usize,
    /// Ballot that it promised last, if a reset is under way.
    pub promised: Option<Ballot>,
    /// Proposal that it prepared last.
    pub prepared: Option<Prepared>,
}

/// The latest evidence of who hears whom, for checkers (see [`Group::hearing`](crate::Group::hearing)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hearing {
    /// The sequencer whose heartbeat, sent to all, this member received last.
    pub heard: Option<Uid>,
    /// The member that this sequencer took last for one that hears it, by the stamp of a heartbeat.
    pub hears_us: Option<Uid>,
}

/// What a member's log says of a seqno (see [`Group::logged`](crate::Group::logged)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Logged<'a> {
    /// A message, or a piece of one.
    Message {
        /// Its sender.
        sender: Uid,
        /// Its message number.
        number: MessageNumber,
    },
    /// This member joins.
    Join(Uid),
    /// This member leaves.
    Leave(Uid),
    /// This member becomes the sequencer.
    Role(Uid),
    /// In a ring: the token goes to this member.
    Pass(Uid),
    /// The group is ordered otherwise, and this member is the sequencer.
    Order(Order, Uid),
    /// A reset begins an epoch with this view.
    Reset(&'a [Member]),
    /// The log begins after this seqno, at which this view is in force.
    Base(&'a [Member]),
}

impl Group {
    /// Returns the state of this member, for checkers: cheap enough to read after every input.
    pub fn marks(&self) -> Marks {
        Marks {
            epoch: self.epoch_tag,
            term: self.term(),
            acting: self.may_assign(),
            numbered: self.order.numbered_by_us(),
            received: self.log.received(),
            acknowledged: self.acknowledging.acknowledged(),
            accepted: self.log.accepted(),
            delivered: self.log.delivered(),
            purged: self.log.base(),
            history: self.log.history().len(),
            promised: self.recovery.promised(),
            prepared: self.recovery.prepared(),
        }
    }

    /// Returns who hears whom as far as this member knows by the stamps of heartbeats, for checkers.
    pub fn hearing(&self) -> Hearing {
        self.acknowledging.hearing()
    }

    /// Returns what this member holds at a seqno, for checkers; `None` if it holds nothing there.
    pub fn logged(&self, seqno: Seqno) -> Option<Logged<'_>> {
        let view = || self.log.history().view_at(seqno).as_slice();
        if seqno == self.log.base() {
            return Some(Logged::Base(view()));
        }
        Some(match self.log.history().held(seqno)? {
            Entry::Message(message) => Logged::Message { sender: message.sender, number: message.number },
            Entry::Change(change) => match &**change {
                Change::Join { member, .. } => Logged::Join(member.uid),
                Change::Leave { uid, .. } => Logged::Leave(*uid),
                Change::Order { order, sequencer } => Logged::Order(*order, *sequencer),
                // A role event has an entry of its own.
                _ => return None,
            },
            Entry::Role(uid) if self.is_pass(seqno) => Logged::Pass(*uid),
            Entry::Role(sequencer) => Logged::Role(*sequencer),
            Entry::Reset(_) => Logged::Reset(view()),
        })
    }

    /// Returns the seqno through which the reset with its event at `seqno` kept the log. Between the two it put what had been
    /// delivered early.
    pub fn kept_by_reset(&self, seqno: Seqno) -> Option<Seqno> {
        match self.log.history().get(seqno)? {
            Entry::Reset(reset) => Some(reset.kept),
            _ => None,
        }
    }

    /// Returns the view that this member prepared last in the present reset, which may have been decided; empty if
    /// none.
    pub fn prepared_view(&self) -> &[Uid] {
        self.recovery.prepared_members()
    }

    /// True if [`Group::marks`] may have moved since the last call of [`Group::take_moved`], or [`Group::poll_sent`]
    /// has an outcome. Cheap enough to call at any time.
    #[inline]
    pub fn has_news(&self) -> bool {
        self.moved || !self.sent.is_empty()
    }

    /// True if [`Group::marks`] may have moved since the last call, apart from `delivered`.
    #[inline]
    pub fn take_moved(&mut self) -> bool {
        core::mem::take(&mut self.moved)
    }

    /// Switches a protocol bug on. Without the feature `planted` this does nothing.
    pub fn plant(&mut self, bug: Planted) {
        self.planted = Some(bug);
        self.log.plant();
    }

    /// Returns the planted bug that is switched on.
    pub(crate) fn planted(&self) -> Option<Planted> {
        self.planted
    }

    /// True if this planted bug is switched on.
    #[inline]
    pub(crate) fn broken(&self, bug: Planted) -> bool {
        cfg!(feature = "planted") && self.planted == Some(bug)
    }

    /// Returns the rare states met so far: bit `n` stands for the `n`th of [`Probe::ALL`]. Without the feature
    /// `planted` none is recorded.
    pub fn probes(&self) -> u128 {
        self.probes
    }

    /// Records that a rare state was met.
    #[inline]
    pub(crate) fn probe(&mut self, probe: Probe) {
        if cfg!(feature = "planted") {
            self.probes |= 1 << (probe as u32);
        }
    }
}

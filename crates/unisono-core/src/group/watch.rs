//! What judges look at: where a member stands, which rare states it met, and rules broken on purpose.
//!
//! The simulator reads it after every input, so it is cheap; an application has no use for it. A planted bug is asked
//! about where its rule is written, and a probe noted where its state comes about ([`Planted`], [`Probe`]).

use super::Group;
use crate::identity::{Ballot, EpochId, EpochTag, Seqno, Uid};
use crate::planted::{Planted, Probe};

/// The numbers that a member gave out in one term.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbered {
    /// The place of the event that named it.
    pub term: Seqno,
    /// The numbers beyond this one.
    pub after: Seqno,
    /// Through this one.
    pub through: Seqno,
}

/// What a member prepared in a reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prepared {
    /// Under which attempt.
    pub ballot: Ballot,
    /// The epoch that is to begin.
    pub epoch: EpochId,
    /// The place of the reset event.
    pub start: Seqno,
}

/// Where a member stands (see [`Group::marks`](crate::Group::marks)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// The epoch.
    pub epoch: EpochTag,
    /// The place of the event that named the sequencer under whom this member stands.
    pub term: Seqno,
    /// This member gives out numbers now.
    pub acting: bool,
    /// What it gave out when it last had the role in this epoch.
    pub numbered: Numbered,
    /// The highest number known without a gap, data included: what it has, tentative entries too.
    pub received: Seqno,
    /// It has told others, in this epoch, that it holds everything through here.
    pub acknowledged: Seqno,
    /// Everything through here is accepted.
    pub accepted: Seqno,
    /// Everything through here was given to the application.
    pub delivered: Seqno,
    /// Everything through here has left the history.
    pub purged: Seqno,
    /// Entries in the history.
    pub history: usize,
    /// The ballot that it promised last: a reset is under way.
    pub promised: Option<Ballot>,
    /// What it prepared last.
    pub prepared: Option<Prepared>,
}

impl Group {
    /// Where this member stands, for checkers: cheap enough to read after every input.
    pub fn marks(&self) -> Marks {
        Marks {
            epoch: self.epoch_tag,
            term: self.term(),
            acting: self.order.is_acting(),
            numbered: self.order.numbered_by_us(),
            received: self.history.received(),
            acknowledged: self.acknowledging.acknowledged(),
            accepted: self.accepted,
            delivered: self.delivered,
            purged: self.history.base(),
            history: self.history.len(),
            promised: self.recovery.promised(),
            prepared: self.recovery.prepared(),
        }
    }

    /// The view that this member prepared last in the present reset: it may have been decided. Nobody, if there is none.
    pub fn prepared_view(&self) -> &[Uid] {
        self.recovery.prepared_members()
    }

    /// Whether [`Group::marks`] may have moved since [`Group::take_moved`] was asked last, or [`Group::poll_sent`] has
    /// something. Cheap enough to ask at any time.
    #[inline]
    pub fn has_news(&self) -> bool {
        self.moved || !self.sent.is_empty()
    }

    /// Whether [`Group::marks`] may have moved since this was asked last, aside from what was delivered.
    #[inline]
    pub fn take_moved(&mut self) -> bool {
        core::mem::take(&mut self.moved)
    }

    /// Switches a protocol bug on. Without the feature `planted` this does nothing.
    pub fn plant(&mut self, bug: Planted) {
        self.planted = Some(bug);
    }

    /// A planted bug is switched on.
    #[inline]
    pub(crate) fn broken(&self, bug: Planted) -> bool {
        cfg!(feature = "planted") && self.planted == Some(bug)
    }

    /// The rare states met so far: bit `n` stands for the `n`th of [`Probe::ALL`]. Without the feature `planted` none is noted.
    pub fn probes(&self) -> u128 {
        self.probes
    }

    /// A rare state was met.
    #[inline]
    pub(crate) fn probe(&mut self, probe: Probe) {
        if cfg!(feature = "planted") {
            self.probes |= 1 << (probe as u32);
        }
    }
}

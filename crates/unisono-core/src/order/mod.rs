//! Who numbers, and how: the sequencer, and the handing over of its role (KT93 §3.1; KT96 §5).
//!
//! The sequencer takes messages from hold and appends them to the log, each under the next number. The role changes
//! hands by ordered events: a role event, the sequencer's own leave, a reset. Whoever an event names takes the role as
//! soon as it holds everything through that event; from that event on the old sequencer numbers nothing. Until the
//! successor is heard, everyone who knows the event tells it so.
//!
//! `intake` is what comes to be numbered, `numbering` gives out the numbers while there is `room`; what is `under_way`
//! takes some. `role` is about who does that, `heartbeat` about what a sequencer says of itself, `migration` about where
//! the role goes by load.

mod capacity;
mod heartbeat;
mod intake;
mod migration;
mod numbering;
mod role;
mod under_way;

use crate::group::Numbered;
use crate::identity::{Seqno, Uid};
use crate::time::Time;
use alloc::vec::Vec;
use core::time::Duration;
use heartbeat::HEARTBEAT_IDLE;
use migration::Load;
use under_way::UnderWay;

/// What this member has to do with ordering.
#[derive(Clone, Debug, Default)]
pub(crate) struct Order {
    /// It gives out numbers, by the event at this place.
    acting: Option<Seqno>,
    /// The last event by which it took the role; nothing before the first time in this epoch.
    taken: Option<Seqno>,
    /// The highest term it has heard a sequencer act in, or was told of by who began the epoch.
    heard: Option<Seqno>,
    /// What it numbered was put on the wire through here.
    pub(crate) announced: Seqno,
    /// What it numbered through here is to be told at once; the rest when somebody cannot wait for it.
    tell_through: Seqno,
    /// It numbers what lies beyond this since it last took the role.
    numbered_from: Seqno,
    /// It numbered through here.
    pub(crate) numbered: Seqno,
    /// A heartbeat is to go with the next datagram to everybody, now.
    pub(crate) heartbeat_due: bool,
    heartbeat_at: Option<Time>,
    heartbeat_after: Duration,
    pub(crate) stamp: u32,
    /// When the last heartbeat went out.
    beat_at: Time,
    /// The sequencer says that every member hears the multicast.
    multicast: bool,
    multicast_probe_at: Time,
    /// The highest place that a heartbeat called stable.
    told_stable: Seqno,
    /// Whom the application wants to have the role.
    successor: Option<Uid>,
    /// Who sends, for a role that follows the load.
    pub(crate) load: Load,
    /// What takes room in the sockets of members.
    under_way: UnderWay,
    /// Whose turn it was last.
    turn: Uid,
    /// Whose turns come next: empty between two numberings, kept for its memory.
    turns: Vec<Uid>,
    /// Since when the slowest application has kept the window shut.
    shut_since: Option<(Time, Uid)>,
}

impl Order {
    pub(crate) fn is_acting(&self) -> bool {
        self.acting.is_some()
    }

    /// It has numbered nothing for so long that its heartbeats have grown rare.
    pub(crate) fn is_quiet(&self) -> bool {
        self.is_acting() && self.heartbeat_after >= HEARTBEAT_IDLE
    }

    /// A sequencer was heard acting in this very term, and none in a later one.
    pub(crate) fn is_heard_in(&self, term: Seqno) -> bool {
        self.heard == Some(term)
    }

    /// Somebody is new: whether it hears the multicast is worth knowing.
    pub(crate) fn probe_multicast_soon(&mut self, now: Time) {
        self.multicast_probe_at = self.multicast_probe_at.min(now);
    }

    /// What this member gave out when it last had the role.
    pub(crate) fn numbered_by_us(&self) -> Numbered {
        Numbered { term: self.taken.unwrap_or(0), after: self.numbered_from, through: self.numbered }
    }

    pub(crate) fn heartbeat_at(&self) -> Option<Time> {
        self.heartbeat_at
    }

    pub(crate) fn multicast_heard(&self) -> bool {
        self.multicast
    }

    /// Somebody waits for a number that was not told.
    pub(crate) fn has_to_tell(&self) -> bool {
        self.announced < self.tell_through
    }

    /// A new epoch, or none: this member has no role in it yet.
    pub(crate) fn begin(&mut self, start: Seqno) {
        *self = Order {
            announced: start,
            numbered_from: start,
            numbered: start,
            heard: Some(start),
            stamp: self.stamp,
            told_stable: start,
            multicast: self.multicast,
            ..Order::default()
        };
    }

    /// It comes into an epoch that others have begun, and has heard no sequencer yet.
    pub(crate) fn listen(&mut self) {
        self.heard = None;
    }

    /// Stops numbering: a ballot was promised, or this member is out.
    pub(crate) fn stop(&mut self) {
        self.acting = None;
        self.heartbeat_at = None;
        self.heartbeat_due = false;
    }
}

//! Ordering: the sequencer assigns seqnos, and its role moves (KT93 §3.1; KT96 §5).
//!
//! The sequencer takes messages from the unordered buffer and appends them to the log, each under the next seqno. The
//! role changes hands by ordered events: a role event, a switch of the order, the sequencer's own leave, a reset. The member that an event
//! names takes the role as soon as it holds everything through that event; from that event on the old sequencer numbers
//! nothing. Until the successor is heard, each member that knows the event reports it to the successor.
//!
//! Other parts ask the `questions`, and do not see which member the answer comes from. `intake` keeps messages that ask
//! for a seqno, and `numbering` assigns seqnos while there is `capacity`, which `under_way` reduces. `role` decides which
//! member does that and when the role moves, and `moves` has all that follows from a move. `heartbeat` is what a
//! sequencer announces, `reports` what members report to it, and `acceptance` what follows from that. `early` delivers
//! what need not wait for its seqno. `progress` shows which members keep the others waiting, `migration` where the role
//! goes by load, and `token` where it goes in a ring. `switch` changes the order while the group runs.

mod acceptance;
mod capacity;
mod early;
mod heartbeat;
mod intake;
mod migration;
mod moves;
mod numbering;
mod progress;
mod questions;
mod reports;
mod role;
mod switch;
mod token;
mod under_way;

use crate::group::Numbered;
use crate::identity::{Seqno, Uid};
use crate::time::Time;
pub(crate) use acceptance::{Acceptance, Rule};
use alloc::vec::Vec;
use core::time::Duration;
pub(crate) use early::Early;
pub use early::Passed;
use heartbeat::HEARTBEAT_IDLE;
use migration::Load;
pub(crate) use progress::Awaited;
use progress::{Behind, InTheWay};
pub(crate) use reports::Acknowledging;
use switch::Switch;
use token::Ring;
use under_way::UnderWay;

/// This member's part in ordering.
#[derive(Clone, Debug, Default)]
pub(crate) struct Order {
    /// Number of changes of the role that concern how a datagram for all is sent.
    role_changes: u64,
    /// Seqno of the event by which it is sequencer now; `None` if it is not.
    acting: Option<Seqno>,
    /// Seqno of the last event by which it took the role; `None` before the first time in this epoch.
    taken: Option<Seqno>,
    /// Highest term in which it has heard a sequencer act; at first the term with which the epoch began.
    heard: Option<Seqno>,
    /// Everything through here that it numbered was sent.
    pub(crate) announced: Seqno,
    /// Everything through here that it numbered is to be announced at once; the rest when a member cannot wait for it.
    announce_through: Seqno,
    /// Last seqno before those that it assigned since it last took the role.
    numbered_from: Seqno,
    /// Last seqno that it assigned.
    pub(crate) numbered: Seqno,
    /// True if a heartbeat is to go with the next datagram to all members, now.
    heartbeat_due: bool,
    /// True if the members are to answer it. An accept alone is no question.
    heartbeat_asks: bool,
    heartbeat_at: Option<Time>,
    heartbeat_after: Duration,
    /// The event that names a member which is told so by the next heartbeat, unless it is heard before.
    tells_of: Seqno,
    pub(crate) stamp: u32,
    /// Time of the last heartbeat.
    beat_at: Time,
    /// True if the sequencer reports that every member hears the multicast.
    multicast: bool,
    multicast_probe_at: Time,
    /// Highest seqno that a heartbeat announced as stable.
    announced_stable: Seqno,
    /// Member that is to have the role by the wish of the application.
    successor: Option<Uid>,
    /// What each member sends, for a role that follows the load.
    pub(crate) load: Load,
    /// What this member knows of the token, in a ring.
    ring: Ring,
    /// Another order that members want.
    switch: Switch,
    /// Bytes that take room in the sockets of members.
    under_way: UnderWay,
    /// Sender whose turn was last.
    turn: Uid,
    /// Senders whose turns come next: empty between two numberings, kept to reuse its memory.
    turns: Vec<Uid>,
    /// Since when there is no room, and because of which member.
    shut_since: Option<(Time, Uid)>,
    /// Since when messages wait because the view has too few members.
    below_minimum_since: Option<Time>,
    /// Since when this member, as sequencer, keeps the others waiting.
    in_the_way: InTheWay,
    /// Since when this member's own application gets none of the entries that exist.
    behind: Behind,
}

impl Order {
    /// True if it has numbered nothing for a while, so that its heartbeats have grown rare.
    pub(crate) fn is_quiet(&self) -> bool {
        self.may_assign() && self.heartbeat_after >= HEARTBEAT_IDLE
    }

    /// True if a sequencer was heard acting in this very term, and none in a later one.
    pub(crate) fn is_heard_in(&self, term: Seqno) -> bool {
        self.heard == Some(term)
    }

    /// True if the token rests here and the members were asked what they hold, so that they wait for an answer.
    pub(crate) fn has_asked_at_rest(&self) -> bool {
        self.ring.has_asked()
    }

    /// Notes a message that has this seqno in a ring, and how many members must hold it. The bytes that other members
    /// numbered take room too: the sockets are the same.
    fn note_in_ring(&mut self, now: Time, seqno: Seqno, (needed, bytes): (usize, usize), room: u64) {
        self.ring.note_message(seqno, needed);
        if seqno > self.numbered {
            self.under_way.note_numbered(now, seqno, bytes, room);
        }
    }

    /// Probes the multicast soon, to see whether a new member hears it.
    pub(crate) fn probe_multicast_soon(&mut self, now: Time) {
        self.multicast_probe_at = self.multicast_probe_at.min(now);
    }

    /// Returns the seqnos that this member assigned when it last had the role.
    pub(crate) fn numbered_by_us(&self) -> Numbered {
        Numbered { term: self.taken.unwrap_or(0), after: self.numbered_from, through: self.numbered }
    }

    /// Sends a heartbeat with the next datagram to all members. They answer it if `asks`, or if they have reported
    /// nothing for a while.
    pub(crate) fn beat_now(&mut self, asks: bool) {
        self.heartbeat_due = true;
        self.heartbeat_asks |= asks;
    }

    pub(crate) fn heartbeat_is_due(&self) -> bool {
        self.heartbeat_due
    }

    /// Notes that the heartbeat that was due went out, or is not needed any more.
    pub(crate) fn heartbeat_is_done(&mut self) {
        (self.heartbeat_due, self.heartbeat_asks) = (false, false);
    }

    pub(crate) fn heartbeat_at(&self) -> Option<Time> {
        self.heartbeat_at
    }

    /// Returns the number of changes of the role that concern how a datagram for all is sent.
    pub(crate) fn role_changes(&self) -> u64 {
        self.role_changes
    }

    /// Notes that this member took or gave up the role, or heard otherwise of the sequencer or of the multicast.
    fn note_role_change(&mut self) {
        self.role_changes += 1;
    }

    pub(crate) fn multicast_heard(&self) -> bool {
        self.multicast
    }

    /// Notes that a member has come of which it is not known whether it hears the multicast.
    pub(crate) fn forget_multicast_heard(&mut self) {
        self.multicast = false;
        self.note_role_change();
    }

    /// True if a member waits for a seqno that was not announced yet.
    pub(crate) fn has_to_announce(&self) -> bool {
        self.announced < self.announce_through
    }

    /// Begins a new epoch, or none, in which this member has no role yet.
    pub(crate) fn begin(&mut self, start: Seqno) {
        *self = Order {
            announced: start,
            numbered_from: start,
            numbered: start,
            heard: Some(start),
            stamp: self.stamp,
            announced_stable: start,
            multicast: self.multicast,
            role_changes: self.role_changes + 1,
            ..Order::default()
        };
    }

    /// Notes that others have begun the epoch, and that this member has heard no sequencer in it yet.
    pub(crate) fn listen(&mut self) {
        (self.heard, self.multicast) = (None, false);
    }

    /// Stops numbering: a ballot was promised, or this member is no longer in the group.
    pub(crate) fn stop(&mut self) {
        self.acting = None;
        self.heartbeat_at = None;
        self.heartbeat_is_done();
    }
}

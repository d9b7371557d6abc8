//! Who numbers, and how: the sequencer, and the handing over of its role (KT93 §3.1; KT96 §5).
//!
//! The orderer takes messages from hold and appends them to the log, each under the next number. The role changes
//! hands by ordered events: a role event, the orderer's own leave, a reset. Whoever an event names takes the role as
//! soon as it holds everything through that event; from that event on the old orderer numbers nothing. Until the
//! successor is heard, everyone who knows the event tells it so.
//!
//! Here are the role and what an orderer says of it; `numbering` gives out numbers while there is `room`, `migration` says
//! where the role goes by load.

mod migration;
mod numbering;
mod room;

use crate::group::{Group, Numbered, Phase};
use crate::hold::Held;
use crate::identity::{MessageNumber, Seqno, Uid};
use crate::peers::Standing;
use crate::planted::{Planted, Probe};
use crate::time::Time;
use crate::wire::{Change, Frame, Heartbeat, Method, Piece};
use alloc::vec::Vec;
use core::time::Duration;
use migration::Load;

const HEARTBEAT_FIRST: Duration = Duration::from_millis(10);
const HEARTBEAT_IDLE: Duration = Duration::from_millis(100);
/// A heartbeat goes by multicast, whether or not that is in use, to see who hears it.
const MULTICAST_PROBE_EVERY: Duration = Duration::from_millis(1000);
/// A sender that missed its numbers is told how far they go at most so often.
const REPEAT_EVERY: Duration = Duration::from_millis(5);
/// A sender is asked for what is lacking at most so often...
const WANT_EVERY: Duration = Duration::from_millis(3);
/// ... and for the same once more after this: answers take their time where queues are long.
const WANT_AGAIN: Duration = Duration::from_millis(20);
/// Gaps that a sender is asked to fill at once.
const WANTS_MAX: usize = 16;

/// What this member has to do with ordering.
#[derive(Clone, Debug, Default)]
pub(crate) struct Order {
    /// It gives out numbers, by the event at this place.
    acting: Option<Seqno>,
    /// The last event by which it took the role; nothing before the first time in this epoch.
    taken: Option<Seqno>,
    /// The highest term it has heard an orderer act in.
    heard: Seqno,
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
    /// The orderer says that every member hears the multicast.
    multicast: bool,
    multicast_probe_at: Time,
    /// The highest place that a heartbeat called stable.
    told_stable: Seqno,
    /// Whom the application wants to have the role.
    successor: Option<Uid>,
    /// Who sends, for a role that follows the load.
    pub(crate) load: Load,
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

    /// An orderer was heard acting in this very term, and none in a later one.
    pub(crate) fn is_heard_in(&self, term: Seqno) -> bool {
        self.heard == term
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
            heard: start,
            stamp: self.stamp,
            told_stable: start,
            multicast: self.multicast,
            ..Order::default()
        };
    }

    /// Stops numbering: a ballot was promised, or this member is out.
    pub(crate) fn stop(&mut self) {
        self.acting = None;
        self.heartbeat_at = None;
        self.heartbeat_due = false;
    }
}

impl Group {
    /// Whom the last naming event known names.
    pub(crate) fn named(&self) -> Uid {
        self.history.term().1
    }

    /// The place of the event that named this orderer.
    pub(crate) fn term(&self) -> Seqno {
        self.history.term().0
    }

    /// Takes the role if the log says so (docs/protocol/sequencer.md: once per event, holding everything through it).
    pub(crate) fn take_role(&mut self, now: Time) {
        let (event, named) = self.history.term();
        let promised = self.recovery.has_promised();
        if named != self.me.uid || promised || self.order.taken.is_some_and(|taken| taken >= event) {
            self.watch_for_successor(now, event, named);
            return;
        }
        if !self.lacks() {
            self.enter_role(now, event);
        }
    }

    #[cold]
    fn enter_role(&mut self, now: Time, event: Seqno) {
        if event > self.epoch_start {
            self.probe(Probe::RoleTaken);
        }
        // Places beyond the event would be numbered by somebody else: there are none, or we would not be named.
        let received = self.history.received();
        self.history.cut(received);
        self.order.acting = Some(event);
        self.order.taken = Some(event);
        self.order.heard = self.order.heard.max(event);
        self.order.announced = self.order.announced.max(received);
        (self.order.numbered_from, self.order.numbered) = (received, received);
        self.order.multicast_probe_at = now;
        self.order.load.begin_term(now);
        self.audience_is_stale = true;
        self.outbox.restart();
        self.beat_soon(now);
        self.order.heartbeat_due = true;
    }

    /// Somebody else is named by the log, and shows no sign of it yet.
    pub(crate) fn successor_is_unheard(&self) -> bool {
        let (event, named) = self.history.term();
        named != self.me.uid && event > self.order.heard && self.history.end() <= event
    }

    /// Somebody else is named and not heard yet: arms the timer by which it is told.
    fn watch_for_successor(&mut self, now: Time, event: Seqno, named: Uid) {
        let unheard = named != self.me.uid
            && event > self.order.heard
            && self.history.end() <= event
            && self.phase != Phase::Joining
            && !self.recovery.has_promised();
        if self.order.acting.is_none() {
            if unheard && self.order.heartbeat_at.is_none() {
                let first = if self.order.numbered == event { HEARTBEAT_FIRST } else { HEARTBEAT_IDLE };
                self.order.heartbeat_after = first;
                self.order.heartbeat_at = Some(now + first);
            } else if !unheard {
                self.order.heartbeat_at = None;
            }
        }
    }

    /// The next heartbeat comes soon after the last number; while numbers keep coming, now and then.
    fn beat_soon(&mut self, now: Time) {
        self.order.heartbeat_after = HEARTBEAT_FIRST;
        let at_latest = (self.order.beat_at + self.idle_period()).max(now);
        self.order.heartbeat_at = Some((now + HEARTBEAT_FIRST).min(at_latest));
    }

    /// The role goes to whom the application wants to have it, or to who sends.
    fn number_role(&mut self, now: Time) {
        let asked = self.order.successor.take();
        let Some(successor) = asked.or_else(|| self.successor_by_load(now)) else { return };
        if successor != self.me.uid && self.history.view().iter().any(|member| member.uid == successor) {
            self.append_change(Change::Role { orderer: successor });
            self.resign();
        }
    }

    /// The role goes to somebody else with the event just numbered.
    pub(crate) fn resign(&mut self) {
        self.order.numbered = self.history.received();
        if !self.broken(Planted::OldOrdererGoesOn) {
            self.order.acting = None;
        }
        self.order.heartbeat_at = None;
        self.outbox.restart();
        self.hold.clear();
        // Whoever listens asks the next.
        self.peers.retain(|peer| !peer.is_observer());
        self.audience_is_stale = true;
    }

    /// The application wants somebody else to order.
    pub(crate) fn request_hand_over(&mut self, to: Uid) {
        self.order.successor = Some(to);
    }

    // --- heartbeats ---

    pub(crate) fn heartbeat_timeout(&mut self, now: Time) {
        if self.order.heartbeat_at.is_none_or(|at| at > now) {
            return;
        }
        if self.order.acting.is_some() {
            self.exclude_if_too_slow(now);
            self.push_decision(now);
            if !self.broken(Planted::NoHeartbeat) {
                self.order.heartbeat_due = true;
            }
            let keeps_asking = self.order.shut_since.is_some() || self.somebody_leaves();
            let after = if keeps_asking { HEARTBEAT_FIRST } else { self.order.heartbeat_after };
            self.order.heartbeat_at = Some(now + after);
            self.order.heartbeat_after = (after * 2).min(self.idle_period());
        } else {
            self.tell_successor(now);
        }
    }

    pub(crate) fn idle_period(&self) -> Duration {
        self.stretched(HEARTBEAT_IDLE)
    }

    /// Larger groups ask less often, so that answers stay few.
    pub(crate) fn stretched(&self, period: Duration) -> Duration {
        period * (1 + self.peers.len() as u32 / 32)
    }

    pub(crate) fn somebody_leaves(&self) -> bool {
        self.peers.iter().any(|peer| matches!(peer.standing, Standing::Leaver { .. }))
    }

    /// Whoever knows a naming event and does not hear its term says how far the numbers go: the predecessor to
    /// everybody, anyone else to the one who is named.
    fn tell_successor(&mut self, now: Time) {
        self.order.heartbeat_at = None;
        let (event, named) = self.history.term();
        if event <= self.order.heard || named == self.me.uid || self.recovery.has_promised() {
            return;
        }
        if self.order.numbered == event {
            self.order.heartbeat_due = true;
        } else {
            let heartbeat = self.say_heartbeat(now);
            self.post(named, Frame::Heartbeat(heartbeat));
        }
        let after = (self.order.heartbeat_after * 2).clamp(HEARTBEAT_FIRST, HEARTBEAT_IDLE);
        self.order.heartbeat_after = after;
        self.order.heartbeat_at = Some(now + after);
    }

    /// A heartbeat that goes out.
    pub(crate) fn say_heartbeat(&mut self, now: Time) -> Heartbeat {
        let heartbeat = self.heartbeat(now);
        // Who hears of places that it was not told of asks for them.
        self.order.tell_through = heartbeat.end;
        self.order.told_stable = self.order.told_stable.max(heartbeat.stable);
        // It stays true when the role is elsewhere.
        self.note_stable(heartbeat.stable);
        heartbeat
    }

    /// What a heartbeat says now.
    fn heartbeat(&self, now: Time) -> Heartbeat {
        Heartbeat {
            term: self.term(),
            acting: self.order.acting.is_some(),
            end: self.history.received(),
            accepted: self.accepted,
            stable: self.stable(),
            stamp: self.order.stamp,
            multicast: self.order.acting.is_some() && self.all_hear_multicast(),
            late_ms: self.detector.late_ms(now),
        }
    }

    /// A heartbeat went out to everybody.
    pub(crate) fn note_heartbeat_sent(&mut self, now: Time) {
        self.order.heartbeat_due = false;
        self.order.beat_at = now;
        if self.audience().multicast {
            // It shows who hears the multicast as well as a probe would.
            self.order.multicast_probe_at = now + self.stretched(MULTICAST_PROBE_EVERY);
        }
    }

    /// It is time to see who hears the multicast.
    pub(crate) fn multicast_probe_is_due(&mut self, now: Time) -> bool {
        let due = self.order.acting.is_some()
            && self.settings.transport != crate::config::Transport::Unicast
            && self.peers.len() > 0
            && self.order.multicast_probe_at <= now;
        if due {
            self.order.multicast_probe_at = now + self.stretched(MULTICAST_PROBE_EVERY);
        }
        due
    }

    pub(crate) fn handle_heartbeat(&mut self, now: Time, from: Uid, heartbeat: &Heartbeat) {
        self.detector.note_late(now, heartbeat.late_ms);
        if self.recovery.has_promised() {
            return;
        }
        self.repair.note_end(heartbeat.end, from);
        if heartbeat.acting && heartbeat.term >= self.order.heard {
            self.order.heard = heartbeat.term;
            self.acknowledging.stamp = heartbeat.stamp;
            if self.order.multicast != heartbeat.multicast {
                self.order.multicast = heartbeat.multicast;
                self.audience_is_stale = true;
            }
        }
        if let Some(peer) = self.peers.get_mut(from) {
            peer.received = peer.received.max(heartbeat.end);
        }
        self.note_accept_hint(heartbeat.accepted, heartbeat.stable);
        if self.history.received() < heartbeat.end {
            if self.history.end() < heartbeat.end {
                self.probe(Probe::TailRevealed);
            }
            if !heartbeat.acting && self.named() != self.me.uid && self.term() < heartbeat.term {
                self.probe(Probe::RoleToldByWitness);
            }
        }
    }

    // --- data on its way to a number ---

    /// Messages that ask for a place.
    pub(crate) fn handle_data(&mut self, now: Time, data: crate::wire::Data) {
        if self.recovery.has_promised() || !self.may_send(data.sender) {
            return;
        }
        let last = self.history.sender_mark(data.sender).number;
        let window = self.kept_of_one_sender();
        let broadcast = data.method != Method::Pb;
        let patient = data.method == Method::BbStream;
        let mut fresh = false;
        for (number, piece) in (data.first..).zip(data.pieces) {
            if broadcast && self.history.supply(data.sender, number, piece.more, &piece.bytes) {
                self.probe(Probe::NumberBeforeData);
                continue;
            }
            let duplicates_taken =
                self.broken(Planted::DuplicateNumbered) || self.broken(Planted::SenderOrderForgotten);
            let Piece { more, bytes } = piece;
            let held = Held { more, resilience: data.resilience, broadcast, patient, bytes };
            if duplicates_taken
                && self.order.is_acting()
                && self.number_carelessly(now, data.sender, number, last, &held)
            {
                continue;
            }
            fresh |= self.hold.keep(data.sender, number, data.base, last, window, held);
        }
        if !fresh && self.order.is_acting() {
            self.probe(Probe::DuplicateRefused);
            self.repeat_to(now, data.sender);
        }
        if self.order.is_acting() {
            self.want(now, data.sender, last);
        }
    }

    /// How many messages of one sender are kept beyond the last one in this member's log. The orderer is never behind;
    /// anybody else may lack as many places as a history holds, while the sender goes on a window beyond them. Who drops
    /// then what it needs next has to ask for everything, and never catches up.
    fn kept_of_one_sender(&self) -> u64 {
        let window = u64::from(self.config.window);
        if self.order.is_acting() { window } else { u64::from(self.config.history_messages) + window }
    }

    /// Planted bugs only: numbers a message that must not be numbered.
    fn number_carelessly(
        &mut self,
        now: Time,
        sender: Uid,
        number: MessageNumber,
        last: MessageNumber,
        held: &Held,
    ) -> bool {
        let again = self.broken(Planted::DuplicateNumbered) && number <= last;
        let early = self.broken(Planted::SenderOrderForgotten) && number > last + 1;
        if (!again && !early) || !self.has_room(now) {
            return false;
        }
        self.number_message(sender, number, held.clone());
        self.order.numbered = self.history.received();
        true
    }

    /// `uid` may have messages numbered.
    fn may_send(&self, uid: Uid) -> bool {
        self.history.view().iter().any(|member| member.uid == uid)
    }

    /// The sender shows that it missed its number: a heartbeat lets it see what it lacks.
    pub(crate) fn repeat_to(&mut self, now: Time, to: Uid) {
        if self.peers.get_mut(to).is_some_and(|peer| peer.repeated.take(now, REPEAT_EVERY)) {
            let heartbeat = self.say_heartbeat(now);
            self.post(to, Frame::Heartbeat(heartbeat));
        }
    }

    /// Asks a sender for what is lacking after its message `last`, before something of it that is here.
    fn want(&mut self, now: Time, sender: Uid, last: MessageNumber) {
        let Some(peer) = self.peers.get_mut(sender) else { return };
        if !peer.asked.is_due(now, WANT_EVERY) {
            return;
        }
        let (wanted, since) = peer.wanted;
        let again = now.since(since) >= WANT_AGAIN;
        let gaps = self.hold.gaps(sender, last, WANTS_MAX);
        let news = gaps.last().is_some_and(|&(_, to)| to > wanted || again);
        if !news {
            return;
        }
        peer.asked.note(now);
        peer.wanted = (gaps.last().map_or(wanted, |&(_, to)| to), if again { now } else { since });
        for (from, to) in gaps {
            if again || to > wanted {
                self.probe(Probe::SenderAsked);
                self.post(sender, Frame::Want { from, to });
            }
        }
    }
}

//! Who holds what: acceptance, acknowledgement, purging.
//!
//! A message is accepted when as many members of the view below it as its resilience asks for hold it and all
//! below; a join or leave when a quorum of those before it and one of those after it does, and the joiner. Anybody
//! who can tell may take it for accepted: a member that holds a message knows two holders, itself and the sequencer,
//! so at r ≤ 1 it waits for nobody. The others learn it from the sequencer's heartbeat.
//!
//! An acknowledgement is cumulative: "I hold everything through s, data included".

use crate::config::Quorum;
use crate::group::{Group, Phase};
use crate::history::{Entry, Members, Message};
use crate::identity::{Member, Seqno, Uid};
use crate::peers::Peer;
use crate::planted::{Planted, Probe};
use crate::time::Time;
use crate::wire::{Change, Watermarks};

/// What this member owes the sequencer, and what it told it last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Acknowledging {
    /// An acknowledgement is to go out now.
    pub(crate) due: bool,
    told: Watermarks,
    told_to: Uid,
    told_at: Time,
    /// Bytes received since then.
    untold_bytes: u64,
    /// The stamp of the last heartbeat of the sequencer.
    pub(crate) stamp: u32,
    /// When a multicast of the group was last heard.
    pub(crate) multicast_at: Option<Time>,
    /// When a heartbeat of the sequencer was last heard, or missed.
    pub(crate) beat_at: Time,
    /// Looked at for acknowledgements through here.
    seen: Seqno,
    /// What the sequencer said is accepted, and what it said all hold.
    accepted_hint: Seqno,
    pub(crate) stable_hint: Seqno,
}

impl Acknowledging {
    /// What was acknowledged in this epoch.
    pub(crate) fn acknowledged(&self) -> Seqno {
        self.told.received
    }

    /// Perhaps only the multicast does not come through any more: copies will.
    pub(crate) fn ask_for_copies(&mut self) {
        (self.multicast_at, self.due) = (None, true);
    }
}

/// A member that was silent for so long shows life with its next answer to a heartbeat.
const SHOW_LIFE_AFTER: core::time::Duration = core::time::Duration::from_millis(50);
/// A member says how far it is after such a part of what may be under way to it.
const REPORT_PART: u64 = 4;

impl Group {
    /// How many members of a view of `members` must hold a message before it is accepted.
    fn holders_needed(&self, members: usize, resilience: u8) -> usize {
        let needed = (self.config.resilience.max(resilience) as usize + 1).min(members);
        if self.broken(Planted::AcceptWithOneAckLess) { needed.saturating_sub(1) } else { needed }
    }

    /// Takes for accepted whatever can be (docs/protocol/sequencer.md: ACCEPT).
    pub(crate) fn accept(&mut self, now: Time) {
        if self.accepted < self.history.received()
            && (!self.recovery.has_promised() || self.broken(Planted::AcceptAfterPromise))
        {
            self.accept_more(now);
        }
    }

    #[inline(never)]
    fn accept_more(&mut self, now: Time) {
        let before = self.accepted;
        let hint = self.acknowledging.accepted_hint.min(self.history.received());
        let told = self.acknowledging.accepted_hint;
        while self.accepted < self.history.received() {
            let last = self.history.next_change_after(self.accepted).unwrap_or(Seqno::MAX);
            let (through, is_to_be_told) = self.acceptable_within(last, hint);
            self.accepted = through;
            // Whoever holds a message knows two holders, itself and the sequencer: only more must be told.
            if is_to_be_told && self.order.is_acting() {
                self.order.heartbeat_due = true;
            }
            if through < last {
                break;
            }
        }
        if self.accepted > before {
            if self.accepted > told && !self.order.is_acting() {
                self.probe(Probe::AcceptedByOwnTable);
            }
            if self.order.is_acting() && self.order.announced > before {
                self.probe(Probe::AcceptedByAck);
            }
            self.resolve_own(before);
            self.note_accepted(now, before);
        }
    }

    /// How far entries through `last`, all numbered in one view (only `last` itself may change it), can be accepted,
    /// and whether somebody must be told of one of them.
    #[inline(never)]
    fn acceptable_within(&self, last: Seqno, hint: Seqno) -> (Seqno, bool) {
        let mine = self.history.received();
        let view = self.history.view_at(self.accepted);
        let mut cached: Option<(usize, Seqno)> = None;
        let (mut concerns_others, mut is_to_be_told) = (false, false);
        let mut accepted = self.accepted.max(hint.min(mine.min(last)));
        while accepted < mine.min(last) {
            let seqno = accepted + 1;
            let Some(entry) = self.history.get(seqno) else { break };
            let acceptable = match entry {
                Entry::Message(message) => {
                    let needed = self.holders_needed(view.len(), message.resilience);
                    concerns_others |= needed > 2;
                    let sender = message.sender;
                    let through = match cached {
                        Some((known, through)) if known == needed => through,
                        _ => self.peers.held_by(view, needed, self.me.uid, mine),
                    };
                    cached = Some((needed, through));
                    (through >= seqno && self.changes_are_held_below(seqno, message.resilience))
                        || (self.broken(Planted::SenderCountsAsHolder)
                            && self.holders(view, seqno, Some(sender)) >= needed)
                }
                Entry::Change(change) => {
                    concerns_others = true;
                    self.change_is_held(view, seqno, change)
                }
                Entry::Reset(_) => true,
            };
            if !acceptable {
                break;
            }
            is_to_be_told |= concerns_others;
            accepted = seqno;
        }
        (accepted, is_to_be_told)
    }

    /// What a message of more resilience than the group's rests on is held as firmly. Where quorums need not meet, who lacks a
    /// join counts whom it misses by the view before, and would not know the joiner among those who hold the message.
    fn changes_are_held_below(&self, seqno: Seqno, resilience: u8) -> bool {
        if resilience <= self.config.resilience || !matches!(self.config.quorum, Quorum::AtLeast(_)) {
            return true;
        }
        let mine = self.history.received();
        self.history.view_changes(self.epoch_start, seqno).all(|(before, place)| {
            let needed = self.holders_needed(before.len(), resilience);
            self.peers.held_by(before, needed, self.me.uid, mine) >= place
        })
    }

    fn holders(&self, view: &Members, seqno: Seqno, also: Option<Uid>) -> usize {
        view.iter().filter(|member| Some(member.uid) == also || self.holds(member.uid, seqno)).count()
    }

    /// `uid` is known to hold everything through `seqno`.
    pub(crate) fn holds(&self, uid: Uid, seqno: Seqno) -> bool {
        if uid == self.me.uid {
            self.history.received() >= seqno
        } else {
            self.peers.get(uid).is_some_and(|peer| peer.received >= seqno)
        }
    }

    /// A change of the role is held like a message, and by the successor. A join or leave is held, with all below it, by
    /// quorums of both sides, and by the joiner. Where quorums need not meet, by as many as a message would be too: who
    /// goes on without the others, fewer of them missing than the resilience covers, is to know whom it goes on without.
    #[cold]
    fn change_is_held(&self, before: &Members, seqno: Seqno, change: &Change) -> bool {
        if let Change::Role { sequencer } = change {
            let (needed, mine) = (self.holders_needed(before.len(), 0), self.history.received());
            return self.holds(*sequencer, seqno)
                && self.peers.held_by(before, needed, self.me.uid, mine) >= seqno;
        }
        if self.broken(Planted::ChangeAcceptedAlone) {
            return true;
        }
        let held = |member: &Member| self.holds(member.uid, seqno);
        let after = self.history.view_at(seqno);
        let joiner_holds = match change {
            Change::Join { member, .. } => self.holds(member.uid, seqno),
            _ => true,
        };
        let needed = match self.config.quorum {
            Quorum::AtLeast(_) => self.holders_needed(before.len(), 0),
            _ => 0,
        };
        joiner_holds
            && before.iter().filter(|member| held(member)).count() >= needed
            && self.is_quorum(before, held)
            && (after.is_empty() || self.is_quorum(after, held))
    }

    /// Looks at what newly arrived in the log: what must be acknowledged at once, and own messages that have their
    /// number now.
    pub(crate) fn note_received(&mut self, now: Time) {
        let received = self.history.received();
        let from = self.acknowledging.seen.max(self.history.base());
        if received > from {
            self.look_at_received(now, from, received);
        }
    }

    #[inline(never)]
    fn look_at_received(&mut self, now: Time, from: Seqno, received: Seqno) {
        self.acknowledging.seen = received;
        self.repair.note_progress(received);
        // Whoever listens is let in as soon as it is seen to keep up.
        let mut due = self.joining.is_some();
        let mut own = 0;
        // Mostly many of one sender follow each other, of one resilience.
        let (mut last, mut asked) = (None, None);
        for seqno in from + 1..=received {
            match self.history.get(seqno) {
                Some(Entry::Message(Message { sender, number, resilience, data, .. })) => {
                    self.acknowledging.untold_bytes += data.map_or(0, |data| data.len() as u64);
                    let needed = self.config.resilience.max(*resilience) as usize;
                    if asked != Some(needed) {
                        asked = Some(needed);
                        due = due || self.acknowledges_first(needed);
                    }
                    if *sender == self.me.uid {
                        own = *number;
                    }
                    let before = last.replace((*sender, *number));
                    if let Some((other, number)) = before.filter(|(known, _)| known != sender) {
                        self.unordered.forget_through(other, number);
                    }
                }
                Some(Entry::Change(change)) => {
                    due = true;
                    let own_leave = matches!(&**change, Change::Leave { uid, .. } if *uid == self.me.uid);
                    self.note_change(now, seqno);
                    if own_leave && !self.recovery.has_promised() {
                        // Nothing past it is stored, though it may have come before.
                        self.history.cut(seqno);
                        self.acknowledging.seen = seqno;
                        break;
                    }
                }
                _ => {}
            }
        }
        if let Some((sender, number)) = last {
            self.unordered.forget_through(sender, number);
        }
        let received = self.history.received();
        if own > 0 {
            let lateness = self.detector.lateness(now);
            self.outbox.note_numbered(now, own, lateness);
        }
        // A sequencer holds everything through what it numbers.
        let (_, numberer) = self.history.term_at(received - 1);
        if let Some(peer) = self.peers.get_mut(numberer) {
            peer.received = peer.received.max(received);
        }
        let unsaid = received.saturating_sub(self.acknowledging.told.received);
        let room = self.settings.under_way_bytes_max();
        let is_much = unsaid >= self.report_every() || self.acknowledging.untold_bytes >= room / REPORT_PART;
        // A sequencer owes nobody.
        if (due || is_much) && !self.order.is_acting() {
            self.acknowledging.due = true;
        }
    }

    /// A message gets a number only while the history has room: what lies that far below it all members hold.
    pub(crate) fn note_room_below(&mut self, seqno: Seqno) {
        self.note_shown_stable(seqno.saturating_sub(u64::from(self.config.history_messages)));
    }

    /// A change may get one beyond that, but not beyond the slots that stand beside the history for it. If it is the
    /// next place it was numbered in the view that is known here.
    pub(crate) fn note_room_beside(&mut self, seqno: Seqno) {
        if seqno == self.history.received() + 1 {
            let members = self.history.view().len() as u64;
            self.note_shown_stable(
                (seqno - 1).saturating_sub(u64::from(self.config.history_messages) + members),
            );
        }
    }

    fn note_shown_stable(&mut self, stable: Seqno) {
        if stable > self.acknowledging.stable_hint && !self.order.is_acting() {
            self.acknowledging.stable_hint = stable;
        }
    }

    /// This member is one of so many that acknowledge at once: the first in rank order, the sequencer aside.
    fn acknowledges_first(&self, holders: usize) -> bool {
        let sequencer = self.history.term().1;
        let others = self.history.view().iter().map(|member| member.uid).filter(|uid| *uid != sequencer);
        others.take(holders).any(|uid| uid == self.me.uid)
    }

    /// After how many entries a member says by itself how far it is.
    fn report_every(&self) -> u64 {
        u64::from(self.config.history_messages / 8).max(1)
    }

    fn note_accepted(&mut self, now: Time, before: Seqno) {
        if !self.order.is_acting() && self.history.change_beyond(before).is_some() {
            self.acknowledging.due = true;
        }
        if self.joining.is_some() {
            self.enter_if_joined(now);
        }
        self.note_changes_accepted(before);
        if self.own_leave_is_logged() && self.accepted >= self.history.last_change() {
            self.note_own_leave_accepted(now);
        }
    }

    /// A member says how far it is.
    pub(crate) fn handle_watermarks(&mut self, now: Time, from: Uid, marks: &Watermarks) {
        let end = self.history.end();
        let stamp = self.order.stamp;
        self.detector.note_late(now, marks.late_ms);
        let Some(peer) = self.peers.get_mut(from) else { return };
        // Nobody holds what nobody numbered.
        peer.received = peer.received.max(marks.received.min(end));
        peer.accepted = peer.accepted.max(marks.accepted.min(end));
        peer.delivered = peer.delivered.max(marks.delivered.min(end));
        if peer.hears_multicast != marks.hears_multicast {
            peer.hears_multicast = marks.hears_multicast;
            self.audience_is_stale = true;
        }
        // What anybody knows to be accepted is so, though who orders now may not be able to count it: a leaver tells those
        // whom its log names, and no later ones.
        self.note_accept_hint(marks.accepted, 0);
        let hears_us = marks.stamp != 0 && stamp.wrapping_sub(marks.stamp) <= 2;
        if !self.order.is_acting() {
            self.show_successor(now, from, marks.received);
        } else if hears_us {
            self.note_hears_us(now, from);
        }
        self.say_farewells(now);
    }

    /// The sequencer said so.
    pub(crate) fn note_accept_hint(&mut self, accepted: Seqno, stable: Seqno) {
        let known = &mut self.acknowledging;
        known.accepted_hint = known.accepted_hint.max(accepted);
        if stable > known.stable_hint {
            known.stable_hint = stable;
            for peer in self.peers.iter_mut() {
                if matches!(peer.standing, crate::peers::Standing::Member) {
                    peer.received = peer.received.max(stable);
                }
            }
        }
    }

    /// This member saw it itself.
    pub(crate) fn note_stable(&mut self, stable: Seqno) {
        self.acknowledging.stable_hint = self.acknowledging.stable_hint.max(stable);
    }

    /// A new epoch or a new life: nothing was said yet.
    pub(crate) fn forget_acknowledgements(&mut self, through: Seqno) {
        let old = core::mem::take(&mut self.acknowledging);
        self.acknowledging.multicast_at = old.multicast_at;
        self.acknowledging.seen = through;
        self.acknowledging.accepted_hint = through;
    }

    /// What this member can say of itself.
    pub(crate) fn watermarks(&self, now: Time) -> Watermarks {
        let received =
            if self.broken(Planted::AckBeforeHolding) { self.history.end() } else { self.history.received() };
        Watermarks {
            received,
            accepted: self.accepted,
            delivered: self.delivered,
            stamp: self.acknowledging.stamp,
            hears_multicast: self.hears_multicast(now),
            late_ms: self.detector.late_ms(now),
        }
    }

    /// Whom acknowledgements go to, if there is somebody.
    pub(crate) fn acknowledge_to(&self) -> Option<Uid> {
        let promised = self.recovery.has_promised() && !self.broken(Planted::StoreAfterPromise);
        if promised || !matches!(self.phase, Phase::Member | Phase::Leaving | Phase::Joining) {
            return None;
        }
        let named = self.named();
        (named != self.me.uid && self.peers.get(named).is_some()).then_some(named)
    }

    /// Watermarks went out to `to`.
    pub(crate) fn note_told(&mut self, now: Time, to: Uid, told: Watermarks) {
        self.moved = true;
        let known = &mut self.acknowledging;
        (known.due, known.told, known.told_to, known.told_at) = (false, told, to, now);
        known.untold_bytes = 0;
    }

    /// A heartbeat of the sequencer is to be answered. One that only rides along with entries is not, unless the
    /// sequencer has not heard from this member for a while.
    pub(crate) fn heartbeat_wants_answer(&self, now: Time, end: Seqno, alone: bool) -> bool {
        let known = &self.acknowledging;
        let (said, is) = (&known.told, self.watermarks(now));
        if !alone && known.told_to == self.named() {
            return now.since(known.told_at) >= SHOW_LIFE_AFTER;
        }
        known.told_to != self.named()
            || said.received < end
            || (said.received, said.accepted, said.delivered, said.hears_multicast)
                != (is.received, is.accepted, is.delivered, is.hears_multicast)
            || now.since(known.told_at) >= SHOW_LIFE_AFTER
    }

    /// The application took events: tells the sequencer before its window shuts.
    pub(crate) fn note_delivered(&mut self) {
        let untold = self.delivered.saturating_sub(self.acknowledging.told.delivered);
        if untold >= self.report_every() && !self.order.is_acting() {
            self.acknowledging.due = true;
        }
    }

    /// What every member holds: as the sequencer counts it, or as it said.
    pub(crate) fn stable(&self) -> Seqno {
        self.stable_beyond(0)
    }

    /// What every member of the view holds, those who only listen aside.
    pub(crate) fn held_by_members(&self) -> Seqno {
        if !self.order.is_acting() {
            return self.stable();
        }
        let view = self.history.view();
        self.peers.held_by(view, view.len(), self.me.uid, self.history.received())
    }

    /// What [`Group::stable`] says if it lies beyond `floor`; otherwise any place that does not.
    #[inline]
    fn stable_beyond(&self, floor: Seqno) -> Seqno {
        if self.broken(Planted::PurgeByOwnWatermark) {
            self.history.received()
        } else if self.order.is_acting() {
            self.held_by_all_beyond(floor)
        } else {
            self.acknowledging.stable_hint.min(self.history.received())
        }
    }

    fn held_by_all_beyond(&self, floor: Seqno) -> Seqno {
        let mut stable = self.history.received();
        for member in self.history.view().iter() {
            if member.uid != self.me.uid {
                stable = stable.min(self.peers.get(member.uid).map_or(0, |peer| peer.received));
                if stable <= floor {
                    return stable;
                }
            }
        }
        for peer in self.peers.iter() {
            let awaited = match peer.standing {
                crate::peers::Standing::Leaver { seqno, .. } => peer.received < seqno,
                crate::peers::Standing::Observer { .. } => self.keeps_for(peer),
                crate::peers::Standing::Member => false,
            };
            if awaited {
                stable = stable.min(peer.received);
            }
        }
        stable
    }

    /// What an observer lacks is kept for it, or a busy group would never let it in; but never more than half of what
    /// the history may hold, so that nobody waits long for somebody who is no member.
    pub(crate) fn keeps_for(&self, observer: &Peer) -> bool {
        let lacks = self.history.received().saturating_sub(observer.received);
        lacks <= u64::from(self.config.history_messages) / 2
            && self.history.bytes() <= self.config.history_bytes / 2
            && observer.received >= self.history.base()
    }

    /// Frees what every member holds, and this one has accepted and delivered.
    pub(crate) fn purge(&mut self) {
        let mut through = self.accepted.min(self.delivered);
        if self.order.is_acting() {
            // Observers are to hear of it too.
            through = through.min(self.order.announced);
        }
        // What is stable is asked last: a sequencer has to look at everybody.
        if through > self.history.base() {
            through = through.min(self.stable_beyond(self.history.base()));
            if through > self.history.base() {
                self.history.purge(through);
            }
        }
    }
}

//! Numbering: the sequencer assigns seqnos by appending messages and changes to its log.
//!
//! Messages of other members come from the unordered buffer, the sequencer's own from its outbox. They are numbered as
//! long as the history has capacity. Senders take turns of up to 32 messages, and each sender's messages keep their
//! order. Joins, leaves, switches of the order and role events (the *changes*) are numbered one at a time, each only after the
//! last join, leave or switch is accepted.
//!
//! While the view has fewer members than the group's minimum, no message is numbered; changes are. No message of
//! several pieces is unfinished then: a leave that takes the view below the minimum waits for the last piece, and a
//! reset discards what is unfinished.

use super::capacity::Margin;
use crate::group::Group;
use crate::identity::{MessageNumber, Seqno, Uid};
use crate::log::{Entry, Manner, Slice};
use crate::planted::{Planted, Probe};
use crate::time::Time;
use crate::wire::Change;

/// Maximum number of messages of one sender that are numbered before the next sender's turn.
const TURN: usize = 32;

impl Group {
    /// Frees entries that every member holds. Then, if this member is the sequencer and has promised no ballot, numbers
    /// messages and changes.
    pub(crate) fn purge_and_number(&mut self, now: Time) {
        self.purge();
        if self.may_assign() && (!self.recovery.has_promised() || self.broken(Planted::NumberAfterPromise)) {
            self.number(now);
        }
    }

    /// Numbers what may be numbered now. Acknowledges and accepts it, and schedules the next heartbeat.
    #[inline(never)]
    fn number(&mut self, now: Time) {
        let before = self.log.received();
        let was_waiting = self.order.shut_since.is_some();
        self.number_messages(now);
        self.number_changes(now);
        if self.log.received() > before {
            self.order.numbered = self.log.received();
            self.note_received(now);
            self.accept(now);
            if !self.is_ring() {
                self.beat_soon(now);
            } else if self.may_assign() {
                self.beat_soon(now);
                self.ask_at_rest();
            }
        }
        // After a pass the timer is that of the pass.
        if was_waiting && self.order.shut_since.is_none() && self.may_assign() {
            self.beat_soon(now);
        }
    }

    /// Numbers messages, the senders taking turns, as long as the history has capacity.
    fn number_messages(&mut self, now: Time) {
        if !self.messages_wait_for_a_seqno() {
            self.order.below_minimum_since = None;
        } else if self.is_below_minimum() {
            self.order.below_minimum_since.get_or_insert(now);
        } else {
            self.order.below_minimum_since = None;
            self.number_by_turns(now);
        }
    }

    /// True if the view at the end of the log has fewer members than the group's minimum.
    pub(crate) fn is_below_minimum(&self) -> bool {
        self.members_below_minimum() > 0
            && !self.broken(Planted::ServesBelowMinimum)
            && !self.broken(Planted::QuorumOfView)
    }

    /// Returns the number of members that the group's minimum lacks, of those that count.
    pub(crate) fn members_below_minimum(&self) -> usize {
        usize::from(self.config.members_min).saturating_sub(self.counted())
    }

    /// Returns since when messages wait because the group has too few members; now, if this member does not know it.
    pub(crate) fn waits_for_members_since(&self, now: Time) -> Option<Time> {
        let waits = self.messages_wait_for_a_seqno() && self.is_below_minimum();
        waits.then(|| self.order.below_minimum_since.unwrap_or(now))
    }

    /// True if a leave waits for the last piece of a message: after the leave no message could be numbered.
    fn leave_waits_for_pieces(&self) -> bool {
        self.config.members_min > 1
            && self.counted() == usize::from(self.config.members_min)
            && self.has_leave_requests()
            && self.log.history().inside_a_message()
    }

    fn messages_wait_for_a_seqno(&self) -> bool {
        self.log.unordered().senders().next().is_some() || !self.outbox.all_numbered()
    }

    #[inline(never)]
    fn number_by_turns(&mut self, now: Time) {
        let mut turns = core::mem::take(&mut self.order.turns);
        turns.extend(self.log.unordered().senders());
        if !self.outbox.all_numbered() {
            turns.push(self.me.uid);
            turns.sort_unstable();
        }
        let start = turns.iter().position(|&uid| uid > self.order.turn).unwrap_or(0);
        turns.rotate_left(start);
        self.take_turns(now, &turns);
        turns.clear();
        self.order.turns = turns;
    }

    /// Goes round `senders` until no message can be numbered.
    fn take_turns(&mut self, now: Time, senders: &[Uid]) {
        let (mut progress, mut margin) = (true, Margin::default());
        while progress && self.messages_wait_for_a_seqno() {
            progress = false;
            for &sender in senders {
                for _ in 0..TURN {
                    let Some(number) = self.next_of(now, sender) else { break };
                    if !self.has_capacity(now, &mut margin) {
                        return;
                    }
                    if !self.number_message(now, sender, number) {
                        break;
                    }
                    self.order.turn = sender;
                    progress = true;
                }
            }
        }
    }

    /// Returns the number of the next message of `sender` that may be numbered.
    fn next_of(&mut self, now: Time, sender: Uid) -> Option<MessageNumber> {
        let mark = self.log.history().sender_mark(sender);
        let (number, more) = if sender == self.me.uid {
            self.outbox.first_unnumbered().map(|(number, own)| (number, own.more))?
        } else {
            self.log.unordered().next(sender, mark.number)?
        };
        // A join waits until no message of several pieces is unfinished, and so do some leaves. While one waits, no
        // first piece is numbered.
        if more && !mark.open && (self.join_is_possible() || self.leave_waits_for_pieces()) {
            self.probe(Probe::JoinWaitedForPieces);
            return None;
        }
        if sender == self.me.uid && self.is_ring() && self.fills_path(now, number) {
            self.order.ring.note_path_full();
            return None;
        }
        Some(number)
    }

    /// Numbers the message that [`Group::next_of`] returned; returns false if this member does not hold its data. An
    /// own message stays in the outbox until it is accepted.
    fn number_message(&mut self, now: Time, sender: Uid, number: MessageNumber) -> bool {
        let own = sender == self.me.uid;
        let found = match own {
            true => self.outbox.get(number).map(|own| {
                let manner = Manner { quality: own.quality, broadcast: own.went_to_all, patient: false };
                let data = Slice::alone(own.more, &own.bytes);
                (self.log.append_message(manner.numbered(sender, number), data), manner, own.bytes.len())
            }),
            false => self.log.append_waiting(sender, number),
        };
        let Some((seqno, manner, bytes)) = found else { return false };
        self.note_numbered(now, seqno, manner.patient, bytes);
        self.order.ring.note_numbered();
        if self.is_ring() {
            // A pass may follow at once, before the rest of this member looks at the entry.
            let needed = self.rule().holders_to_show(manner.quality, self.log.history().view().len());
            self.forget_shown(needed);
            self.order.ring.note_message(seqno, needed);
        }
        if own {
            self.outbox.note_numbered_here(now, number);
        }
        true
    }

    /// Notes that a message of `bytes` bytes got this seqno.
    pub(super) fn note_numbered(&mut self, now: Time, seqno: Seqno, patient: bool, bytes: usize) {
        self.order.under_way.note_numbered(now, seqno, bytes, self.settings.under_way_bytes_max());
        if !patient {
            self.order.announce_through = seqno;
        }
    }

    /// Numbers joins, leaves, switches of the order and role events, one at a time.
    fn number_changes(&mut self, now: Time) {
        let last = self.log.history().last_change();
        let waits = last > self.log.accepted() && !self.broken(Planted::NextChangeEarly);
        let is_switch = || last == self.log.history().order_since();
        if waits && !(self.broken(Planted::SwitchBeforeAcceptance) && is_switch()) {
            if self.broken(Planted::RoleMovesOverChange) {
                self.number_role(now);
            }
            return;
        }
        // Changes take no capacity from messages: for them the history may exceed its limit by one entry for each
        // member.
        let members = self.log.history().view().len() as u64;
        let kept = self.log.received() - self.log.base();
        if kept > u64::from(self.config.history_messages) + members {
            return;
        }
        let leave = if self.leave_waits_for_pieces() { None } else { self.next_leave() };
        let change = leave.or_else(|| self.next_join(now)).or_else(|| self.next_switch(now));
        if let Some(change) = change {
            let is_switch = matches!(change, Change::Order { .. });
            let is_my_leave = matches!(&change, Change::Leave { uid, .. } if *uid == self.me.uid);
            self.append_change(change);
            if is_my_leave {
                self.resign(now);
            } else if is_switch {
                self.go_on_after_switch(now);
            }
            return;
        }
        self.number_role(now);
    }

    pub(super) fn append_change(&mut self, change: Change) {
        self.order.announce_through = self.log.append(Entry::of_change(change));
    }
}

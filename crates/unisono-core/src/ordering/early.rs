//! Early delivery: messages that are delivered before their seqno is known.
//!
//! An unordered or source ordered message need not wait for its place. A member delivers it as soon as it has its data, and
//! skips it at its seqno. Until its place is accepted a reset might drop it. So this part keeps what was delivered early,
//! with its data: a vote carries it, and a proposal keeps what any vote carried and the log lacks, as its *tail*, between
//! the kept log and the reset event.
//!
//! A tail travels in votes and proposals, and is filed whatever room the history has. So what one member has delivered early
//! and not at its place is at most its share of [`TAIL_BYTES_MAX`] and of half a history (hazard H100). What comes beyond is
//! delivered at its seqno.
//!
//! Nothing is delivered early once a reset was promised, before this member's join or after the sender's leave is in the
//! log, and nowhere in groups in which a message may never get its place: those that keep a state or have a minimum above
//! one (hazard H101).

use crate::event::Event;
use crate::group::{Group, Phase};
use crate::identity::{MessageNumber, Seqno, Uid};
use crate::log::{Entry, Members, Message, Slice};
use crate::outside::unmark;
use crate::planted::{Planted, Probe};
use crate::quality::Quality;
use crate::wire::{EarlyMessage, TAIL_BYTES_MAX};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use bytes::Bytes;

/// Maximum number of events that the application has not taken at which one more message is early.
const EVENTS_MAX: usize = 1024;
/// Maximum number of undelivered entries of the log that are searched for earlier messages of a sender. Where more wait, a
/// source ordered message comes at its seqno.
const SEARCHED_MAX: u64 = 64;
/// Maximum number of messages behind one that arrived that are looked at, because they may have waited for it.
const BEHIND_MAX: u64 = 64;

/// A message that was delivered early.
#[derive(Clone, Debug)]
struct Kept {
    quality: Quality,
    bytes: Bytes,
}

/// What this member delivered early and has not passed at its seqno yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct Early {
    messages: BTreeMap<(Uid, MessageNumber), Kept>,
    /// Sum of the sizes of these messages, as [`EarlyMessage::cost`] counts them.
    bytes: usize,
    /// For checkers only: the messages that were passed at their seqnos since they were last asked for.
    passed: Vec<Passed>,
    /// For checkers only: the numbers of the messages that were delivered early since they were last asked for.
    told: VecDeque<MessageNumber>,
}

/// A message that was delivered early, and its seqno, which this member has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passed {
    /// Its seqno.
    pub seqno: Seqno,
    /// Its sender.
    pub sender: Uid,
    /// Its message number.
    pub number: MessageNumber,
    /// Its bytes.
    pub payload: Bytes,
}

impl Early {
    /// True if this message was delivered early.
    pub(crate) fn contains(&self, sender: Uid, number: MessageNumber) -> bool {
        self.messages.contains_key(&(sender, number))
    }

    /// True if no message is kept here.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    fn insert(&mut self, (sender, number): (Uid, MessageNumber), quality: Quality, bytes: Bytes) {
        self.bytes += EarlyMessage::cost(bytes.len());
        if cfg!(feature = "planted") {
            self.told.push_back(number);
        }
        self.messages.insert((sender, number), Kept { quality, bytes });
    }

    /// Forgets a message whose seqno this member has come to. True if it was delivered early.
    fn pass(&mut self, seqno: Seqno, sender: Uid, number: MessageNumber) -> bool {
        let Some(kept) = self.messages.remove(&(sender, number)) else { return false };
        self.bytes -= EarlyMessage::cost(kept.bytes.len());
        if cfg!(feature = "planted") {
            let (_, payload) = unmark(kept.bytes);
            self.passed.push(Passed { seqno, sender, number, payload });
        }
        true
    }
}

impl Group {
    /// True if messages of `sender` may be delivered early now.
    fn may_be_early(&self, sender: Uid) -> bool {
        let at_once = self.broken(Planted::EarlyByJoiner);
        (self.phase == Phase::Member
            || (self.phase == Phase::Joining && at_once)
            || (self.phase == Phase::Resetting && self.broken(Planted::EarlyAfterPromise)))
            && (!self.recovery.has_promised() || self.broken(Planted::EarlyAfterPromise))
            && !self.config.keeps_state
            && self.config.members_min <= 1
            && self.is_in_view(sender)
            && (self.application_knows(sender) || at_once)
            && self.notices.len() < EVENTS_MAX
    }

    /// Delivers what may be early of these messages, which arrived without a seqno, and of those that waited for them.
    #[cold]
    pub(crate) fn deliver_early(&mut self, sender: Uid, first: MessageNumber, count: u64) {
        if !self.may_be_early(sender) {
            return;
        }
        let mut number = first.max(self.log.history().sender_mark(sender).number + 1);
        while number < first + count + BEHIND_MAX {
            let Some((quality, bytes)) = self.log.unordered().get(sender, number) else {
                if number >= first + count {
                    return;
                }
                number += 1;
                continue;
            };
            if quality.may_be_early() && !self.early.contains(sender, number) {
                self.deliver_if_early(sender, number, quality, bytes);
            }
            number += 1;
        }
    }

    /// Delivers this member's own message early, if it may be.
    pub(crate) fn deliver_own_early(&mut self, number: MessageNumber, quality: Quality, bytes: Bytes) {
        if quality.may_be_early() && self.may_be_early(self.me.uid) {
            self.deliver_if_early(self.me.uid, number, quality, bytes);
        }
    }

    fn deliver_if_early(&mut self, sender: Uid, number: MessageNumber, quality: Quality, bytes: Bytes) {
        let members = self.log.history().view().len().max(1);
        let fits = self.early.bytes + EarlyMessage::cost(bytes.len()) <= TAIL_BYTES_MAX / members
            && self.early.messages.len() < self.config.history_messages as usize / (2 * members);
        let fits = fits || self.broken(Planted::EarlyUnbounded);
        let careless = self.broken(Planted::SourceOrderOnReceipt);
        let in_turn = quality == Quality::UNORDERED || careless || self.earlier_are_delivered(sender, number);
        if !fits || !in_turn || self.notices.len() >= EVENTS_MAX {
            return;
        }
        self.early.insert((sender, number), quality, bytes.clone());
        self.counters.messages_delivered += 1;
        self.counters.early += 1;
        let (outside, payload) = unmark(bytes);
        self.notices.push_back(Event::Early { sender, quality, outside, payload });
    }

    /// True if all earlier messages of the sender in this epoch are received, and those that are source ordered or better
    /// are delivered.
    fn earlier_are_delivered(&self, sender: Uid, number: MessageNumber) -> bool {
        let (delivered, received) = (self.log.delivered(), self.log.received());
        if received - delivered > SEARCHED_MAX {
            return false;
        }
        let waits = |seqno: Seqno| match self.log.history().get(seqno) {
            Some(Entry::Message(message)) => {
                message.sender == sender
                    && message.quality != Quality::UNORDERED
                    && !self.early.contains(sender, message.number)
            }
            _ => false,
        };
        if (delivered + 1..=received).any(waits) {
            return false;
        }
        let numbered = self.log.history().sender_mark(sender).number;
        let is_mine = sender == self.me.uid;
        let base = if is_mine { self.outbox.base() } else { self.log.unordered().base(sender) };
        (base.max(numbered + 1)..number).all(|earlier| {
            let quality = match is_mine {
                true => self.outbox.get(earlier).map(|outgoing| outgoing.quality),
                false => self.log.unordered().get(sender, earlier).map(|(quality, _)| quality),
            };
            let is_free = quality == Some(Quality::UNORDERED);
            quality.is_some() && (is_free || self.early.contains(sender, earlier))
        })
    }

    /// True if the message at a seqno that this member delivers now was delivered early; it is then forgotten here.
    pub(crate) fn passes_early(&mut self, seqno: Seqno, message: &Message) -> bool {
        let is_again = self.broken(Planted::EarlyDeliveredAgain);
        !self.early.is_empty() && !is_again && self.early.pass(seqno, message.sender, message.number)
    }

    /// Returns the messages that were delivered early and whose seqnos this member has come to since the last call, for
    /// checkers. Without the feature `planted` there are none.
    pub fn take_passed(&mut self) -> Vec<Passed> {
        core::mem::take(&mut self.early.passed)
    }

    /// Returns the number of the message that the application has just received as [`Event::Early`], for checkers; `None` for an
    /// unreliable one, which the caller must not ask for, and without the feature `planted`.
    pub fn take_early_number(&mut self) -> Option<MessageNumber> {
        self.early.told.pop_front()
    }

    // --- over a reset ---

    /// Returns what a vote says: the messages that this member delivered early and that its log lacks.
    pub(crate) fn early_for_vote(&self) -> Vec<EarlyMessage> {
        let all = self.broken(Planted::TailThoughNumbered);
        let lacks = |(sender, number): &(Uid, MessageNumber)| {
            all || *number > self.log.history().sender_mark(*sender).number
        };
        let forgets = self.broken(Planted::EarlyLeftOutOfVotes);
        let kept = self.early.messages.iter().filter(|(name, _)| !forgets && lacks(name));
        kept.map(|((sender, number), kept)| EarlyMessage {
            sender: *sender,
            number: *number,
            quality: kept.quality,
            bytes: kept.bytes.clone(),
        })
        .collect()
    }

    /// Returns the tail of a proposal that keeps this member's whole log: what `voted` names and the log lacks, of senders
    /// in `view`, by sender and number.
    pub(crate) fn tail_of(&self, voted: Vec<EarlyMessage>, view: &Members) -> Vec<EarlyMessage> {
        let mut tail = BTreeMap::new();
        for message in voted {
            let is_known = view.iter().any(|member| member.uid == message.sender);
            let is_numbered = message.number <= self.log.history().sender_mark(message.sender).number;
            if is_known && (!is_numbered || self.broken(Planted::TailThoughNumbered)) {
                tail.insert((message.sender, message.number), message);
            }
        }
        let sorted = tail.into_values();
        if self.broken(Planted::TailUnsorted) { sorted.rev().collect() } else { sorted.collect() }
    }

    /// True if this tail can follow the entry at `keep`: it names members of the view there, and nothing that is numbered.
    pub(crate) fn is_tail_after(&self, keep: Seqno, tail: &[EarlyMessage]) -> bool {
        if self.broken(Planted::TailThoughNumbered) {
            return true;
        }
        let history = self.log.history();
        let last_number = |sender: Uid| {
            let numbers =
                (self.log.base() + 1..=keep).rev().filter_map(|seqno| match history.get(seqno)? {
                    Entry::Message(message) if message.sender == sender => Some(message.number),
                    _ => None,
                });
            numbers.take(1).next().unwrap_or(0)
        };
        tail.iter().all(|message| {
            history.view_at(keep).iter().any(|member| member.uid == message.sender)
                && message.number > last_number(message.sender)
        })
    }

    /// Planted bug only: forgets what was delivered early and has a seqno, which the reset may drop.
    pub(crate) fn forget_numbered_early(&mut self) {
        if self.broken(Planted::EarlyForgottenWhenNumbered) {
            let history = self.log.history();
            self.early.messages.retain(|(sender, number), _| *number > history.sender_mark(*sender).number);
        }
    }

    /// Planted bug only: forgets what was delivered early.
    pub(crate) fn forget_early(&mut self) {
        if self.broken(Planted::EarlyForgottenAtHandOver) {
            self.early.messages.clear();
        }
    }

    /// Planted bug only: puts the tail of a proposal into the log before it is decided.
    pub(crate) fn file_undecided(&mut self, keep: Seqno, tail: &[EarlyMessage]) {
        if !self.broken(Planted::TailFiledBeforeDecided) || self.log.received() != self.log.end() {
            return;
        }
        if self.log.received() == keep {
            for EarlyMessage { sender, number, quality, bytes } in tail {
                let (sender, number, quality) = (*sender, *number, *quality);
                let message = Message { sender, number, quality, broadcast: true, data: None };
                self.log.append_message(message, Slice::alone(false, bytes));
            }
        }
    }

    /// Appends the tail of a decided proposal to the log, which ends where the proposal keeps it. Returns the places of this
    /// member's own messages.
    pub(crate) fn append_tail(&mut self, tail: &[EarlyMessage]) -> Vec<(MessageNumber, Seqno)> {
        let mut own = Vec::new();
        for EarlyMessage { sender, number, quality, bytes } in tail {
            let (sender, number, quality) = (*sender, *number, *quality);
            if number > self.log.history().sender_mark(sender).number + 1 {
                self.probe(Probe::TailWithHole);
            }
            let message = Message { sender, number, quality, broadcast: true, data: None };
            let seqno = self.log.append_message(message, Slice::alone(false, bytes));
            self.log.accept_through(seqno);
            self.probe(Probe::TailKept);
            if sender == self.me.uid {
                own.push((number, seqno));
            }
        }
        own
    }
}

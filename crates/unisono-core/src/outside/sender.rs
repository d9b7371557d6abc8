//! The client's side: it numbers messages, sends them in requests to its relay, and goes on at another member when the relay
//! dies.
//!
//! A pure state machine. One call is under way at a time: [`Sender::poll_call`] returns the next one, and [`Sender::answered`]
//! takes its outcome. The outcomes of messages come from [`Sender::poll_fate`].

use super::words::{Answer, Ask};
use super::{BATCH_BYTES_MAX, BATCH_MAX};
use crate::identity::{Seqno, Uid};
use crate::quality::Quality;
use crate::rpc::CallFailure;
use alloc::collections::VecDeque;
use alloc::string::String;
use bytes::Bytes;
use core::net::SocketAddr;
use thiserror::Error;

/// How many requests in a row to be its relay may fail before a client gives up.
const BEGINS_MAX: u32 = 16;

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It has its place: all members deliver it. An unconfirmed or unreliable message was sent.
    Accepted,
    /// It may have been delivered, once, or not. It will not be delivered after a later message of this client.
    Unknown,
    /// It was not delivered, and will not be.
    NotSent,
}

/// Why a client cannot go on. Messages that wait are not sent.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SenderError {
    /// No open member was found.
    #[error("no member of the group takes messages from outside")]
    NotFound,
    /// Open members were found, and none became this client's relay.
    #[error("no open member of the group answers any more")]
    NoAnswer,
    /// The relay says that the numbers of this client do not go on from its last ones.
    #[error("the member that takes this client's messages expected number {expected}")]
    WrongNumber {
        /// The number that was expected.
        expected: u64,
    },
    /// The relay, or its group, refuses the messages.
    #[error("{0}")]
    Refused(String),
    /// The answer of the relay is none that this version knows.
    #[error("a member answers in another version of the protocol for messages from outside")]
    OtherVersion,
    /// The program gave the messages up.
    #[error("the messages that were not accepted yet were given up")]
    GivenUp,
    /// The client has sent 2⁶⁴ − 1 messages.
    #[error("the numbers of this client's messages are used up")]
    UsedUp,
}

/// A call to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The server to call; `None` for any.
    pub to: Option<SocketAddr>,
    /// The request.
    pub request: Bytes,
    /// True if the last call of its kind found no room or no relay: wait a moment first.
    pub pause: bool,
}

#[derive(Clone, Debug)]
struct Waiting {
    /// How many messages the application had given before.
    index: u64,
    quality: Quality,
    payload: Bytes,
}

/// Messages that were sent together and whose outcome is open.
#[derive(Clone, Debug)]
struct Batch {
    first: u64,
    messages: VecDeque<Waiting>,
}

/// Where a client is in its numbers, so that another [`Sender`] of the same client can go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    next: u64,
    previous: Uid,
}

impl Default for Position {
    fn default() -> Position {
        Position { next: 1, previous: Uid(0) }
    }
}

/// A client's side. See the module.
#[derive(Clone, Debug)]
pub struct Sender {
    unconfirmed: bool,
    waiting: VecDeque<Waiting>,
    waiting_bytes: usize,
    /// Messages that the application has given.
    pushed: u64,
    batch: Option<Batch>,
    /// Number of the next message.
    next: u64,
    /// The relay, and where it is.
    relay: Option<(Uid, SocketAddr)>,
    /// The last relay.
    previous: Uid,
    calls: bool,
    pause: bool,
    /// Requests to be its relay that failed in a row.
    begins: u32,
    last: Seqno,
    fates: VecDeque<(u64, Fate)>,
    error: Option<SenderError>,
}

impl Sender {
    /// Returns a client that goes on from `position`; from the default one, if it has sent nothing. If `unconfirmed`, a
    /// message counts as accepted when its relay has sent it.
    pub fn new(unconfirmed: bool, position: Position) -> Sender {
        Sender {
            unconfirmed,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            pushed: 0,
            batch: None,
            next: position.next,
            relay: None,
            previous: position.previous,
            calls: false,
            pause: false,
            begins: 0,
            last: 0,
            fates: VecDeque::new(),
            error: None,
        }
    }

    /// Returns where the client is in its numbers.
    pub fn position(&self) -> Position {
        Position { next: self.next, previous: self.previous }
    }

    /// Takes a message to send.
    pub fn push(&mut self, payload: Bytes, quality: Quality) {
        self.waiting_bytes += payload.len();
        self.waiting.push_back(Waiting { index: self.pushed, quality, payload });
        self.pushed += 1;
        if self.error.is_some() {
            self.give_up_waiting();
        }
    }

    /// Returns the bytes of the messages that wait to be sent.
    pub fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }

    /// Returns the number of messages whose fate is open.
    pub fn open(&self) -> usize {
        self.waiting.len() + self.batch.as_ref().map_or(0, |batch| batch.messages.len())
    }

    /// Returns the next fate that has become known, and of which message: the first one that was given has the index 0. Fates
    /// come in the order of the messages, except for messages that had to be sent again while later ones were accepted.
    pub fn poll_fate(&mut self) -> Option<(u64, Fate)> {
        self.fates.pop_front()
    }

    /// Returns the highest seqno of the messages that have one, as far as it is known.
    pub fn last(&self) -> Seqno {
        self.last
    }

    /// Returns why this client cannot go on, if it cannot.
    pub fn error(&self) -> Option<&SenderError> {
        self.error.as_ref()
    }

    /// Gives up all messages whose fate is open: those that were sent are unknown, and those that wait are not sent. The
    /// client cannot go on.
    pub fn give_up(&mut self) {
        if self.error.is_none() {
            self.fail(SenderError::GivenUp);
        }
    }

    /// Returns the next call, unless one is under way or there is nothing to send.
    pub fn poll_call(&mut self) -> Option<Call> {
        if self.calls || self.error.is_some() || self.open() == 0 {
            return None;
        }
        let pause = core::mem::take(&mut self.pause);
        let (to, ask) = match self.relay {
            Some((relay, address)) => (Some(address), self.ask_to_send(relay)?),
            None => (None, self.ask_to_begin()),
        };
        self.calls = true;
        Some(Call { to, request: ask.write(), pause })
    }

    fn ask_to_begin(&self) -> Ask {
        let batch = self.batch.as_ref();
        let (first, count) = batch.map_or((self.next, 0), |batch| (batch.first, batch.messages.len() as u8));
        Ask::Begin { previous: self.previous, first, count }
    }

    fn ask_to_send(&mut self, relay: Uid) -> Option<Ask> {
        let mut messages = VecDeque::new();
        let mut bytes = 0;
        while let Some(message) = self.waiting.front()
            && messages.len() < BATCH_MAX
            && (bytes == 0 || bytes + message.payload.len() <= BATCH_BYTES_MAX)
            && messages.front().is_none_or(|first: &Waiting| first.quality == message.quality)
        {
            bytes += message.payload.len();
            messages.extend(self.waiting.pop_front());
        }
        let (first, count) = (self.next, messages.len() as u64);
        let quality = messages.front()?.quality;
        let Some(next) = first.checked_add(count) else {
            self.waiting.extend(messages);
            self.fail(SenderError::UsedUp);
            return None;
        };
        self.waiting_bytes -= bytes;
        self.next = next;
        let payloads = messages.iter().map(|message| message.payload.clone()).collect();
        self.batch = Some(Batch { first, messages });
        let unconfirmed = self.unconfirmed;
        Some(Ask::Send { relay, first, quality, unconfirmed, messages: payloads })
    }

    /// Takes the outcome of the call.
    pub fn answered(&mut self, outcome: Result<Bytes, CallFailure>) {
        self.calls = false;
        let begins = self.relay.is_none();
        match outcome {
            Ok(bytes) => match Answer::read(bytes) {
                Ok(answer) => self.take_answer(begins, answer),
                Err(_) => self.fail(SenderError::OtherVersion),
            },
            Err(failure) if begins => self.begin_failed(match failure {
                CallFailure::NotFound => SenderError::NotFound,
                _ => SenderError::NoAnswer,
            }),
            // The relay may have taken them, so the next one has to say.
            Err(CallFailure::Unknown | CallFailure::Refused(_)) => self.leave_relay(),
            // No relay has them.
            Err(_) => {
                self.take_back(0, 0);
                self.leave_relay();
            }
        }
    }

    fn take_answer(&mut self, begins: bool, answer: Answer) {
        match answer {
            Answer::Begun { relay, address, known, placed } if begins => {
                self.begins = 0;
                (self.relay, self.previous) = (Some((relay, address)), relay);
                // An unreliable message may have come elsewhere.
                let is_told = |batch: &Batch| {
                    known && batch.messages.front().is_some_and(|first| first.quality.has_seqno())
                };
                let unknown = if self.batch.as_ref().is_some_and(is_told) { 0 } else { u64::MAX };
                self.take_back(placed, unknown);
            }
            Answer::Sent { placed, unknown, last } if !begins => {
                self.last = self.last.max(last);
                self.take_back(placed, unknown);
            }
            Answer::NotYours if begins => self.begin_failed(SenderError::NoAnswer),
            Answer::NotYours => {
                self.take_back(0, 0);
                self.leave_relay();
            }
            Answer::Busy if begins => self.begin_failed(SenderError::NoAnswer),
            Answer::Busy => {
                self.pause = true;
                let first = self.batch.as_ref().map(|batch| batch.first);
                self.take_back(0, 0);
                // The relay still expects this number.
                self.next = first.unwrap_or(self.next);
            }
            Answer::WrongNumber { expected } => self.fail(SenderError::WrongNumber { expected }),
            Answer::Refused { placed, reason } => {
                let unsent = !placed;
                self.close_batch(|index| match unsent >> index & 1 {
                    0 => Some(Fate::Accepted),
                    _ => Some(Fate::NotSent),
                });
                self.fail(SenderError::Refused(reason));
            }
            Answer::Begun { .. } | Answer::Sent { .. } => self.fail(SenderError::OtherVersion),
        }
    }

    fn begin_failed(&mut self, reason: SenderError) {
        self.begins += 1;
        self.pause = true;
        let never_found = reason == SenderError::NotFound && self.previous == Uid(0);
        if never_found || self.begins >= BEGINS_MAX {
            self.fail(reason);
        }
    }

    /// Looks for another relay.
    fn leave_relay(&mut self) {
        self.relay = None;
    }

    /// Closes the batch: bits say which messages have their places, and of which that is unknown. The others wait again.
    fn take_back(&mut self, placed: u64, unknown: u64) {
        let overtaken = self.overtaken(placed);
        self.close_batch(|index| match (placed >> index & 1, unknown >> index & 1) {
            (1, _) => Some(Fate::Accepted),
            (_, 1) => Some(Fate::Unknown),
            _ => (overtaken >> index & 1 == 1).then_some(Fate::NotSent),
        });
    }

    /// Returns the messages without a place of which later ones have theirs: sent again they would come out of their order. A
    /// relay sends on behind an unconfirmed message that a reset has dropped.
    fn overtaken(&self, placed: u64) -> u64 {
        let quality = self.batch.as_ref().and_then(|batch| Some(batch.messages.front()?.quality));
        let has_order = quality.is_some_and(|quality| quality.has_seqno() && quality != Quality::UNORDERED);
        placed.checked_ilog2().filter(|_| has_order).map_or(0, |last| !placed & ((1 << last) - 1))
    }

    fn close_batch(&mut self, fate: impl Fn(usize) -> Option<Fate>) {
        let Some(batch) = self.batch.take() else { return };
        let mut again = VecDeque::new();
        for (index, message) in batch.messages.into_iter().enumerate() {
            match fate(index) {
                Some(fate) => self.fates.push_back((message.index, fate)),
                None => again.push_back(message),
            }
        }
        self.waiting_bytes += again.iter().map(|message| message.payload.len()).sum::<usize>();
        again.append(&mut self.waiting);
        self.waiting = again;
    }

    fn fail(&mut self, error: SenderError) {
        self.close_batch(|_| Some(Fate::Unknown));
        self.error = Some(error);
        self.give_up_waiting();
    }

    fn give_up_waiting(&mut self) {
        self.fates.extend(self.waiting.drain(..).map(|message| (message.index, Fate::NotSent)));
        self.waiting_bytes = 0;
    }
}

//! A sender's queue: keeps many messages under way at once and their order through resets.
//!
//! A reset fails some of the messages under way: no member will deliver a failed message, nor any later message that
//! was under way with it. So after a failure the resender waits for the outcome of every message under way, and then
//! sends the failed ones again, in their order, before any later message.

use std::collections::VecDeque;
use std::time::{Duration, Instant};
use thiserror::Error;
use unisono::{Bytes, Group, Quality, SendError, SendFailure, Seqno, Ticket};

/// Interval between two attempts to send while the group is being reset: 2 ms.
pub(crate) const PULSE: Duration = Duration::from_millis(2);

/// Messages on their way into the group.
pub(crate) struct Resender {
    group: Group,
    waiting: VecDeque<Bytes>,
    under_way: VecDeque<(Bytes, Ticket)>,
    accepted: u64,
    sent_again: u64,
    last: Seqno,
    quality: Quality,
    /// How long the group may stand still.
    timeout: Option<Duration>,
    /// When it last accepted a message, or got one to accept.
    moved_at: Instant,
}

/// A message was refused, or its outcome is unknown. The messages that still waited behind it were not sent.
#[derive(Clone, Copy, Debug, Error)]
pub(crate) enum Stuck {
    /// The group refused the message.
    #[error("message {number} was not sent: {reason}")]
    Refused { number: u64, reason: SendError },
    /// This member was cut off from the group.
    #[error(
        "message {number} and {others} after it may or may not have been delivered: this member was cut off from the group"
    )]
    Unknown { number: u64, others: u64 },
    /// The group stands still for longer than it may.
    #[error(
        "the group stands still: {under_way} messages from number {number} on may still be ordered, and {waiting} were not sent"
    )]
    TimedOut { number: u64, under_way: u64, waiting: u64 },
}

impl Resender {
    /// Makes an empty queue, which gives up when the group is halted for `timeout`.
    pub(crate) fn new(group: Group, timeout: Option<Duration>) -> Resender {
        Resender {
            group,
            waiting: VecDeque::new(),
            under_way: VecDeque::new(),
            accepted: 0,
            sent_again: 0,
            last: 0,
            quality: Quality::ORDERED,
            timeout,
            moved_at: Instant::now(),
        }
    }

    /// Sends messages of this quality.
    pub(crate) fn of_quality(self, quality: Quality) -> Resender {
        Resender { quality, ..self }
    }

    /// Appends a message to the queue.
    pub(crate) fn push(&mut self, payload: Bytes) {
        if self.waiting.is_empty() && self.under_way.is_empty() {
            self.moved_at = Instant::now();
        }
        self.waiting.push_back(payload);
    }

    /// Returns the number of messages that the group has not taken yet.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Returns the number of messages under way, whose outcome is not known yet.
    pub(crate) fn under_way(&self) -> usize {
        self.under_way.len()
    }

    /// Returns the number of accepted messages.
    pub(crate) fn accepted(&self) -> u64 {
        self.accepted
    }

    /// Returns the number of messages that a reset failed and that were sent again.
    pub(crate) fn sent_again(&self) -> u64 {
        self.sent_again
    }

    /// Returns the seqno of the last accepted message; 0 before the first.
    pub(crate) fn last(&self) -> Seqno {
        self.last
    }

    /// Collects the outcomes that are known and sends what the group takes now, without waiting.
    pub(crate) fn advance(&mut self) -> Result<(), Stuck> {
        while let Some((payload, mut ticket)) = self.under_way.pop_front() {
            match ticket.try_wait() {
                Some(outcome) => self.settle(payload, outcome)?,
                None => {
                    self.under_way.push_front((payload, ticket));
                    break;
                }
            }
        }
        while let Some(payload) = self.waiting.front() {
            let submitted = match self.under_way.back() {
                // A reset at this moment must not let this message overtake one that the reset fails.
                Some((_, before)) => self.group.try_submit_after_with(before, payload.clone(), self.quality),
                None => self.group.try_submit_with(payload.clone(), self.quality),
            };
            match submitted {
                Ok(ticket) => {
                    if let Some(payload) = self.waiting.pop_front() {
                        self.under_way.push_back((payload, ticket));
                    }
                }
                Err(
                    SendError::WindowFull
                    | SendError::NotReceiving
                    | SendError::Resetting
                    | SendError::NotMember,
                ) => break,
                Err(reason) => {
                    let number = self.accepted + self.under_way.len() as u64 + 1;
                    return Err(Stuck::Refused { number, reason });
                }
            }
        }
        self.patience().map(drop)
    }

    /// Returns for how much longer the group may stand still.
    fn patience(&self) -> Result<Duration, Stuck> {
        let Some(timeout) = self.timeout.filter(|_| self.waiting() + self.under_way() > 0) else {
            return Ok(Duration::MAX);
        };
        let left = timeout.saturating_sub(self.moved_at.elapsed());
        if left.is_zero() {
            let (under_way, waiting) = (self.under_way.len() as u64, self.waiting.len() as u64);
            return Err(Stuck::TimedOut { number: self.accepted + 1, under_way, waiting });
        }
        Ok(left)
    }

    fn accept(&mut self, place: Seqno) {
        (self.accepted, self.last, self.moved_at) = (self.accepted + 1, place, Instant::now());
    }

    /// Waits for the outcome of the oldest message under way, if there is one.
    pub(crate) fn wait(&mut self) -> Result<(), Stuck> {
        let patience = self.patience()?;
        let Some((payload, mut ticket)) = self.under_way.pop_front() else { return Ok(()) };
        let outcome = match patience {
            Duration::MAX => Some(ticket.wait()),
            patience => match ticket.wait_timeout(patience) {
                None => {
                    self.under_way.push_front((payload, ticket));
                    return self.patience().map(drop);
                }
                known => known,
            },
        };
        outcome.map_or(Ok(()), |outcome| self.settle(payload, outcome))
    }

    /// Waits for the outcome of every message under way. Messages that wait in the queue are not sent.
    pub(crate) fn settle_all(&mut self) -> Result<(), Stuck> {
        self.timeout = None;
        while self.under_way() > 0 {
            self.wait()?;
        }
        Ok(())
    }

    /// Sends all messages and waits until every one is accepted.
    pub(crate) fn flush(&mut self) -> Result<(), Stuck> {
        loop {
            self.advance()?;
            if self.under_way() > 0 {
                self.wait()?;
            } else if self.waiting() > 0 {
                std::thread::sleep(PULSE);
            } else {
                return Ok(());
            }
        }
    }

    /// Records the outcome of the oldest message under way.
    fn settle(&mut self, payload: Bytes, outcome: Result<Seqno, SendFailure>) -> Result<(), Stuck> {
        match outcome {
            Ok(seqno) => {
                self.accept(seqno);
                Ok(())
            }
            Err(SendFailure::Failed) => self.fail(payload),
            Err(SendFailure::Refused(reason)) => Err(Stuck::Refused { number: self.accepted + 1, reason }),
            // Unknown or not receiving, or a failure that this version does not know.
            Err(_) => Err(Stuck::Unknown { number: self.accepted + 1, others: self.under_way.len() as u64 }),
        }
    }

    /// Handles the failure of the oldest message under way: puts it and the later failed ones back at the head of the
    /// queue.
    fn fail(&mut self, first: Bytes) -> Result<(), Stuck> {
        let mut failed = vec![first];
        while let Some((payload, ticket)) = self.under_way.pop_front() {
            match ticket.wait() {
                Ok(seqno) => self.accept(seqno),
                Err(SendFailure::Failed) => failed.push(payload),
                Err(_) => {
                    let others = (failed.len() + self.under_way.len()) as u64;
                    return Err(Stuck::Unknown { number: self.accepted + 1, others });
                }
            }
        }
        self.sent_again += failed.len() as u64;
        for payload in failed.into_iter().rev() {
            self.waiting.push_front(payload);
        }
        Ok(())
    }
}

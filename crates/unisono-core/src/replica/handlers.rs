//! Handlers: which member answers a request for which the caller names one.
//!
//! A handler is a name in a table of locks that all copies keep beside the state. Members claim it in the group's order;
//! the first in line holds it, and the event that removes the member makes the next in line the holder, at every copy at
//! the same seqno. A request that names a handler is executed like any other, and the holder alone gives the answer: a
//! member that receives it forwards it to the holder. If the holder dies first, the caller repeats the call at another
//! member, which forwards it to the next holder. So the answer is worked out at most once by each holder.
//!
//! The table belongs to the members of the present group, as the list of copies does. It has no part in what commands do,
//! so a disk need not have it.

use super::parked::{Parked, ParkedRequests};
use super::waiting::Asked;
use super::word::Word;
use super::{Answer, Kind, Outcome, Output, Replica, StateMachine};
use crate::identity::Uid;
use crate::planted::Planted;
use crate::rpc::Request;
use crate::time::Time;
use crate::wire::{HOPS_MAX, Wishes};
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use bytes::Bytes;
use core::time::Duration;
use thiserror::Error;

/// Maximum number of handlers that one member claims.
pub const HANDLERS_MAX: usize = 256;
/// How often a request for a handler is forwarded at once. After that it waits here for the next holder before it is
/// forwarded again: a member that is leaving or dead holds its handlers until it is out, and answers no more.
const FORWARDS_MAX: u8 = 4;
/// How long it waits the first time. Each further forward doubles it. The caller may have spent its forwards on a holder that
/// is dead and come here when the next one holds the handler already: no further change would call for an answer.
const WAITS_FOR_HOLDER: Duration = Duration::from_millis(250);

/// No answer was worked out, and the command took no effect.
const NOT_HELD: &[u8] = b"no member holds this handler; nothing happened";
const HELD_NO_LONGER: &[u8] =
    b"no member holds this handler any longer; a command took effect, and its answer was not worked out";
const HOLDER_IS_SILENT: &[u8] =
    b"the member that holds this handler does not answer; if this was a command, it took effect, and \
    its answer was not worked out";

/// Why a handler was not claimed.
#[derive(Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HandlerError {
    /// The name is empty, longer than [`HANDLER_BYTES_MAX`](crate::rpc::HANDLER_BYTES_MAX), or has control characters.
    #[error("the name of a handler has 1 to 255 bytes and no control characters")]
    BadName,
    /// This member claims [`HANDLERS_MAX`] handlers.
    #[error("a member claims at most {HANDLERS_MAX} handlers")]
    TooMany,
}

crate::debug_as_sentence!(HandlerError { BadName, TooMany });

/// What one member has to do with handlers.
#[derive(Debug, Default)]
pub(super) struct Handlers {
    /// Those that it claims, in this life and the next ones.
    claimed: BTreeSet<Box<str>>,
    /// Requests that wait for another holder.
    parked: ParkedRequests,
}

impl Handlers {
    /// Returns when [`Replica::answer_overdue`] has something to do.
    pub(super) fn wake_at(&self) -> Option<Time> {
        self.parked.wake_at()
    }

    /// Takes out all requests.
    pub(super) fn take_requests(&mut self) -> impl Iterator<Item = Asked> + use<> {
        self.parked.take_all().map(|parked| parked.asked)
    }

    /// Returns what the next life of the member begins with.
    pub(super) fn into_next(self) -> Handlers {
        Handlers { parked: ParkedRequests::default(), ..self }
    }
}

impl<S: StateMachine> Replica<S> {
    /// Claims a handler: this member is in its line from now on, in its next lives too, until
    /// [`Replica::give_up_handler`]. Claiming it twice is one claim.
    ///
    /// # Errors
    /// The name is none, or this member claims too many. Nothing changed.
    pub fn claim_handler(&mut self, name: &str) -> Result<(), HandlerError> {
        if !Wishes::is_handler(name) {
            return Err(HandlerError::BadName);
        }
        if self.handlers.claimed.len() >= HANDLERS_MAX && !self.handlers.claimed.contains(name) {
            return Err(HandlerError::TooMany);
        }
        if self.handlers.claimed.insert(name.into()) && self.replicated.is_some() && !self.is_stopped {
            self.say(Word::Claim(name.into()));
        }
        Ok(())
    }

    /// Ends the claim to a handler. If this member holds it, the next in line has it then.
    pub fn give_up_handler(&mut self, name: &str) {
        if self.handlers.claimed.remove(name) && self.replicated.is_some() && !self.is_stopped {
            self.say(Word::GiveUp(name.into()));
        }
    }

    /// Returns the member that holds a handler, as far as this copy knows.
    pub fn handler_holder(&self, name: &str) -> Option<Uid> {
        Some(self.replicated.as_ref()?.handlers().holder(name)?.member)
    }

    /// Returns the handlers that are held, each with its holder, as far as this copy knows.
    pub fn handler_holders(&self) -> Vec<(&str, Uid)> {
        let table = self.replicated.iter().flat_map(|state| state.handlers().locks());
        table.filter_map(|(name, mut line)| Some((name, line.next()?.member))).collect()
    }

    /// Claims the handlers of this member in the group that it serves from now on.
    pub(super) fn claim_handlers(&mut self) {
        for name in self.handlers.claimed.clone() {
            self.say(Word::Claim(name));
        }
    }

    /// Forwards a request to the holder of its handler, or refuses it if there is none. Returns the request if it is to be
    /// executed here.
    pub(super) fn route(&mut self, request: Request) -> Option<Request> {
        let Some(handler) = request.handler() else { return Some(request) };
        match self.handler_holder(handler) {
            Some(holder) if holder == self.me || self.answers_for_another(request.hops) => Some(request),
            Some(holder) => match self.address_of(holder).filter(|_| request.hops < FORWARDS_MAX) {
                Some(address) => {
                    self.outputs.push_back(Output::Answer(request.id, Answer::Forward(address)));
                    None
                }
                None => Some(request),
            },
            None if S::kind(&request.payload) == Kind::LocalRead => {
                self.refuse_for_want_of_holder(&request);
                None
            }
            // An earlier attempt may have been executed: the call gets that outcome, or is executed now.
            None if request.again => Some(request),
            None if !self.settings.durability.has_linearizable_reads() => {
                self.refuse_for_want_of_holder(&request);
                None
            }
            None => {
                self.tidy_by(self.now);
                self.reads.add_request(request);
                self.ask_for_confirmation();
                None
            }
        }
    }

    /// True if a request names a handler that no member holds. Asked of a confirmed state, in which nothing that was answered
    /// is missing.
    pub(super) fn lacks_holder(&self, request: &Request) -> bool {
        request.handler().is_some_and(|handler| self.handler_holder(handler).is_none())
    }

    pub(super) fn refuse_for_want_of_holder(&mut self, request: &Request) {
        self.answer(Asked::of(request), &Outcome::Refuse(Bytes::from_static(NOT_HELD)));
    }

    /// Answers a request with an outcome that belongs to a handler, as its holder, or forwards it to the holder.
    pub(super) fn answer_by_holder(&mut self, asked: Asked, handler: &str, outcome: &Outcome) {
        let holder = self.handler_holder(handler);
        let answer = match holder {
            None => Answer::Refuse(Bytes::from_static(HELD_NO_LONGER)),
            Some(holder) if holder == self.me || self.answers_for_another(asked.hops) => {
                asked.replied(self.taken_over(outcome.bytes()))
            }
            Some(holder) => match self.address_of(holder) {
                // It cannot be forwarded any further.
                _ if asked.hops >= HOPS_MAX => Answer::Refuse(Bytes::from_static(HOLDER_IS_SILENT)),
                Some(address) if asked.hops < FORWARDS_MAX => Answer::Forward(address),
                _ if self.handlers.parked.has_room_for(asked.source) => {
                    return self.park(asked, handler, outcome.clone(), holder);
                }
                Some(address) => Answer::Forward(address),
                None => Answer::Refuse(Bytes::from_static(HOLDER_IS_SILENT)),
            },
        };
        self.outputs.push_back(Output::Answer(asked.id, answer));
    }

    fn park(&mut self, asked: Asked, handler: &str, outcome: Outcome, held_by: Uid) {
        let waits = WAITS_FOR_HOLDER * (1 << asked.hops.saturating_sub(FORWARDS_MAX));
        let until = asked.deadline.min(self.now + waits);
        self.handlers.parked.add(until, Parked { asked, handler: handler.into(), outcome, held_by });
    }

    /// Answers the requests whose handler has another holder now, if the lines have changed.
    pub(super) fn answer_parked(&mut self) {
        let Some(state) = &mut self.replicated else { return };
        if !state.take_lines_changed() || self.handlers.parked.is_empty() {
            return;
        }
        let table = state.handlers();
        let holder = |handler: &str| Some(table.holder(handler)?.member);
        for parked in self.handlers.parked.take_of_others(holder) {
            self.forward_or_answer(parked);
        }
    }

    /// Forwards the requests that have waited for another holder long enough to the present one, and gives up those that are
    /// past their deadlines.
    pub(super) fn answer_overdue(&mut self, now: Time) {
        while let Some(parked) = self.handlers.parked.take_overdue(now) {
            match parked.asked.deadline > now {
                true => self.forward_or_answer(parked),
                false => self.give_up(parked.asked.id),
            }
        }
    }

    /// A request that waited is forwarded as if it had not been before.
    fn forward_or_answer(&mut self, parked: Parked) {
        let handler = &parked.handler;
        let holder = self.handler_holder(handler).filter(|holder| *holder != self.me);
        match holder.and_then(|holder| self.address_of(holder)) {
            Some(address) => {
                self.outputs.push_back(Output::Answer(parked.asked.id, Answer::Forward(address)))
            }
            None => self.answer_by_holder(parked.asked, handler, &parked.outcome),
        }
    }

    /// Planted bugs.
    fn answers_for_another(&self, hops: u8) -> bool {
        match hops {
            0 => self.watched.broken(Planted::HandlerAnsweredByReceiver),
            _ => self.watched.broken(Planted::HandlerAnsweredByForwarded),
        }
    }

    fn address_of(&self, member: Uid) -> Option<core::net::SocketAddr> {
        Some(self.view.as_ref()?.get(member)?.address)
    }
}

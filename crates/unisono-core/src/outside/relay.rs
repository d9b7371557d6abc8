//! The open member's side: it takes clients, sends their messages in their order, and takes clients over from other members.
//!
//! The relay is a pure state machine beside a [`Group`]. Its input is what the member delivers ([`Relay::note`]), the
//! outcomes of the member's messages ([`Relay::outcome`]) and the requests of clients ([`Relay::request`]). Its output is
//! what it sends to the group ([`Relay::advance`]) and the answers ([`Relay::poll_answer`]).

use super::memory::Memory;
use super::recent::Recent;
use super::words::{Answer, Ask, Word};
use super::{BATCH_MAX, SERVED_MAX};
use crate::error::SendError;
use crate::event::{Event, Outcome, Outside};
use crate::group::Group;
use crate::identity::{Member, MessageNumber, Seqno, Uid, mix};
use crate::planted::Planted;
use crate::quality::Quality;
use crate::time::Time;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use bytes::Bytes;
use core::net::SocketAddr;

/// Names a request until it is answered. The caller chooses it, and uses none twice.
pub type Ticket = u64;

/// Maximum number of clients that are being taken over.
const TAKEN_OVER_MAX: usize = 1_024;
/// Maximum bytes of messages that wait for room in the member's window.
const RELAY_WAITING_BYTES_MAX: usize = 8 << 20;
/// A planted bug: how often a relay forgets its clients, in nanoseconds of its clock.
const FORGETS_EVERY: u64 = 1_000_000_000;
/// Why a client gets no answer to a request while it waits for another one.
const ONE_AT_A_TIME: &str = "a client sends one request at a time";
/// Why a client cannot go on.
const USED_UP: &str = "the client's message numbers are used up: send as another client";

/// An open member's side of all its clients. See the module.
#[derive(Clone, Debug)]
pub struct Relay {
    me: Uid,
    address: SocketAddr,
    /// The members of the view, as delivered.
    view: Vec<Uid>,
    memory: Memory,
    served: Recent<Served>,
    taken_over: Recent<TakenOver>,
    /// Requests to send whose answers are due when their messages have their places.
    batches: BTreeMap<Ticket, Batch>,
    to_send: VecDeque<Outgoing>,
    to_send_bytes: usize,
    /// What the group has and not yet placed, by message number.
    under_way: VecDeque<(MessageNumber, Sent)>,
    answers: VecDeque<(Ticket, Answer)>,
    last_nonce: u64,
    is_over: bool,
    planted: Option<Planted>,
}

/// What a relay gave to its group: see [`Relay::give`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// The member's number of the message.
    pub number: MessageNumber,
    /// The client, and its number of the message; 0 for a word between relays.
    pub outside: Outside,
    /// The message.
    pub payload: Bytes,
    /// Its quality.
    pub quality: Quality,
}

/// A client that sends by this member.
#[derive(Clone, Debug)]
struct Served {
    /// Number of its next message.
    next: u64,
    /// It was taken over, and has sent nothing since.
    is_fresh: bool,
    /// Its request under way.
    busy: Option<Ticket>,
}

/// A client that asks this member to take it over.
#[derive(Clone, Debug)]
struct TakenOver {
    ticket: Ticket,
    nonce: u64,
    previous: Uid,
    first: u64,
    count: u8,
    /// The claim has its place.
    is_claimed: bool,
    /// The former relay has released the client.
    is_released: bool,
}

/// A request to send.
#[derive(Clone, Debug)]
struct Batch {
    client: Uid,
    first: u64,
    unconfirmed: bool,
    /// Number of messages whose outcome is open.
    open: usize,
    placed: u64,
    unknown: u64,
    last: Seqno,
    refused: Option<String>,
}

#[derive(Clone, Debug)]
enum Outgoing {
    Message { ticket: Ticket, outside: Outside, quality: Quality, payload: Bytes },
    Word { client: Uid, word: Word },
}

#[derive(Clone, Copy, Debug)]
enum Sent {
    Message { ticket: Ticket, number: u64 },
    Word { client: Uid, word: Word },
}

impl Relay {
    /// Returns the relay of the member `me`, whose clients send to `address`. `view` is the view that the application knows:
    /// the next event that [`Relay::note`] gets follows it.
    pub fn new(me: Uid, address: SocketAddr, view: &[Member]) -> Relay {
        Relay {
            me,
            address,
            view: view.iter().map(|member| member.uid).collect(),
            memory: Memory::default(),
            served: Recent::new(SERVED_MAX),
            taken_over: Recent::new(TAKEN_OVER_MAX),
            batches: BTreeMap::new(),
            to_send: VecDeque::new(),
            to_send_bytes: 0,
            under_way: VecDeque::new(),
            answers: VecDeque::new(),
            // The claims of two members never have the same nonce, or a release would answer both.
            last_nonce: mix(me.0),
            is_over: false,
            planted: None,
        }
    }

    /// Switches a protocol bug on. Without the feature `planted` this does nothing.
    pub fn plant(&mut self, bug: Planted) {
        self.planted = Some(bug);
    }

    fn broken(&self, bug: Planted) -> bool {
        cfg!(feature = "planted") && self.planted == Some(bug)
    }

    // --- what the member delivers ---

    /// Notes an event that the member delivers.
    pub fn note(&mut self, event: &Event) {
        match event {
            Event::Message { sender, outside: Some(outside), payload, .. } if event.is_between_relays() => {
                if let Ok(word) = Word::read(payload.clone()) {
                    self.note_word(*sender, outside.client, word);
                }
            }
            Event::Message { outside: Some(outside), .. } | Event::Early { outside: Some(outside), .. } => {
                self.memory.note(outside.client, outside.number);
            }
            Event::Entered { view, .. } | Event::Reset { view, .. } => {
                self.view = view.members.iter().map(|member| member.uid).collect();
                self.settle_all();
            }
            Event::Joined { member, .. } => self.view.push(member.uid),
            Event::Left { member, .. } => {
                self.view.retain(|uid| *uid != member.uid);
                self.settle_all();
            }
            Event::Excluded { .. } | Event::Gone | Event::JoinFailed { .. } => self.end(),
            _ => {}
        }
    }

    fn note_word(&mut self, sender: Uid, client: Uid, word: Word) {
        match word {
            Word::Claim { nonce, .. } if sender == self.me => {
                if let Some(taken) = self.taken_over.get_mut(client).filter(|taken| taken.nonce == nonce) {
                    taken.is_claimed = true;
                    self.settle(client);
                }
            }
            // A claim that names another relay is older, or of no concern: the client has gone on since.
            Word::Claim { nonce, previous } if previous == self.me => {
                self.served.remove(client);
                self.drop_unsent(client);
                self.to_send.push_front(Outgoing::Word { client, word: Word::Release { nonce } });
            }
            Word::Claim { .. } => {}
            Word::Release { nonce } => {
                let waits = |taken: &&mut TakenOver| taken.nonce == nonce && taken.previous == sender;
                if let Some(taken) = self.taken_over.get_mut(client).filter(waits) {
                    taken.is_released = true;
                    self.settle(client);
                }
            }
        }
    }

    fn settle_all(&mut self) {
        let clients: Vec<Uid> = self.taken_over.clients().map(|(client, _)| client).collect();
        clients.into_iter().for_each(|client| self.settle(client));
    }

    /// Takes the client over, if nothing of it can come from its former relay any more.
    fn settle(&mut self, client: Uid) {
        let Some(taken) = self.taken_over.get(client) else { return };
        // This member's own claim comes after all that it sent for the client.
        let is_over = taken.previous == self.me || !self.view.contains(&taken.previous);
        if !taken.is_claimed || !(taken.is_released || is_over) {
            return;
        }
        let Some(taken) = self.taken_over.remove(client) else { return };
        let TakenOver { ticket, first, count, .. } = taken;
        self.serve(ticket, client, (first, count), true);
    }

    fn serve(&mut self, ticket: Ticket, client: Uid, (first, count): (u64, u8), is_fresh: bool) {
        let next = first + u64::from(count);
        if let Some(last) = self.memory.last(client)
            && last >= next
        {
            return self.answer(ticket, Answer::WrongNumber { expected: last.saturating_add(1) });
        }
        let (mut known, mut placed) = (true, 0);
        for index in 0..u64::from(count) {
            match self.memory.came(client, first + index) {
                Some(came) => placed |= u64::from(came) << index,
                None => known = false,
            }
        }
        let served = Served { next, is_fresh, busy: None };
        // The client that is forgotten learns from the answer to its next request that it has to begin anew.
        self.served.insert(client, served);
        let (relay, address) = (self.me, self.address);
        self.answer(ticket, Answer::Begun { relay, address, known, placed });
    }

    /// Drops what was not given to the group yet of a client that sends by another member from now on, or begins anew.
    fn drop_unsent(&mut self, client: Uid) {
        let mut dropped = Vec::new();
        let bytes = &mut self.to_send_bytes;
        self.to_send.retain(|outgoing| match outgoing {
            Outgoing::Message { ticket, outside, payload, .. } if outside.client == client => {
                *bytes -= payload.len();
                dropped.push(*ticket);
                false
            }
            _ => true,
        });
        dropped.into_iter().for_each(|ticket| self.close_one(ticket));
    }

    // --- requests ---

    /// Takes a request of a client, whose uid its endpoint of calls has proved. The answer comes from [`Relay::poll_answer`].
    pub fn request(&mut self, ticket: Ticket, client: Uid, bytes: Bytes) {
        if self.is_over {
            return self.answer(ticket, Answer::NotYours);
        }
        match Ask::read(bytes) {
            Ok(Ask::Begin { previous, first, count }) => self.begin(ticket, client, previous, (first, count)),
            Ok(Ask::Send { relay, first, quality, unconfirmed, messages }) => {
                if relay != self.me {
                    return self.answer(ticket, Answer::NotYours);
                }
                self.take(ticket, client, (first, messages), quality, unconfirmed);
            }
            Err(error) => self.refuse(ticket, &error),
        }
    }

    fn begin(&mut self, ticket: Ticket, client: Uid, previous: Uid, (first, count): (u64, u8)) {
        if first == 0 || first.checked_add(count.into()).is_none() {
            return self.refuse(ticket, &USED_UP);
        }
        self.served.remove(client);
        self.drop_unsent(client);
        if let Some(before) = self.taken_over.remove(client) {
            self.answer(before.ticket, Answer::NotYours);
        }
        if previous == Uid(0) || self.broken(Planted::RelayChangedEarly) {
            return self.serve(ticket, client, (first, count), false);
        }
        self.last_nonce = self.last_nonce.wrapping_add(1);
        let nonce = self.last_nonce;
        let taken =
            TakenOver { ticket, nonce, previous, first, count, is_claimed: false, is_released: false };
        if let Some((_, forgotten)) = self.taken_over.insert(client, taken) {
            self.answer(forgotten.ticket, Answer::Busy);
        }
        self.to_send.push_back(Outgoing::Word { client, word: Word::Claim { nonce, previous } });
    }

    fn take(
        &mut self,
        ticket: Ticket,
        client: Uid,
        (first, messages): (u64, Vec<Bytes>),
        quality: Quality,
        unconfirmed: bool,
    ) {
        let bytes: usize = messages.iter().map(Bytes::len).sum();
        let is_full = self.to_send_bytes > 0 && self.to_send_bytes + bytes > RELAY_WAITING_BYTES_MAX;
        let Some(served) = self.served.touch(client) else {
            return self.answer(ticket, Answer::NotYours);
        };
        if served.busy.is_some() {
            return self.refuse(ticket, &ONE_AT_A_TIME);
        }
        if first != served.next {
            let expected = served.next;
            return self.answer(ticket, Answer::WrongNumber { expected });
        }
        let Some(next) = first.checked_add(messages.len() as u64) else {
            return self.refuse(ticket, &USED_UP);
        };
        if is_full {
            return self.answer(ticket, Answer::Busy);
        }
        // What may be early must not overtake, at any member, what the former relay sent: nothing that a member sends after
        // an ordered message does.
        let is_fresh = core::mem::take(&mut served.is_fresh);
        (served.next, served.busy) = (next, Some(ticket));
        let open = messages.len();
        let batch = Batch { client, first, unconfirmed, open, placed: 0, unknown: 0, last: 0, refused: None };
        self.batches.insert(ticket, batch);
        self.to_send_bytes += bytes;
        for (number, payload) in (first..next).zip(messages) {
            let is_first = is_fresh && number == first;
            let quality = if is_first && quality.may_be_early() { Quality::ORDERED } else { quality };
            let outside = Outside { client, number };
            self.to_send.push_back(Outgoing::Message { ticket, outside, quality, payload });
        }
    }

    fn refuse(&mut self, ticket: Ticket, reason: &dyn ToString) {
        self.answer(ticket, Answer::Refused { placed: 0, reason: reason.to_string() });
    }

    fn answer(&mut self, ticket: Ticket, answer: Answer) {
        self.answers.push_back((ticket, answer));
    }

    // --- the group ---

    /// Gives the group what waits, as far as its window has room.
    pub fn advance(&mut self, now: Time, group: &mut Group) {
        while self.give(now, group).is_some() {}
    }

    /// Gives the group the next message that it takes. Returns the message; `None` if none waits or the window has no room.
    pub fn give(&mut self, now: Time, group: &mut Group) -> Option<Given> {
        if self.broken(Planted::ClientForgottenByClock) && now.as_nanos() % FORGETS_EVERY < FORGETS_EVERY / 2
        {
            self.memory = Memory::default();
        }
        loop {
            let (outside, payload, quality) = self.front()?;
            let given = group.send_outside(now, outside, &payload, quality);
            if !self.given(given) {
                return None;
            }
            if let Ok(number) = given {
                return Some(Given { number, outside, payload, quality });
            }
        }
    }

    /// Returns the first message that waits for the group.
    pub(super) fn front(&self) -> Option<(Outside, Bytes, Quality)> {
        Some(match self.to_send.front()? {
            Outgoing::Message { outside, quality, payload, .. } => (*outside, payload.clone(), *quality),
            Outgoing::Word { client, word } => {
                (Outside { client: *client, number: 0 }, word.write(), Quality::ORDERED)
            }
        })
    }

    /// Notes what the group said to the first message that waits. Returns whether it may get the next one.
    pub(super) fn given(&mut self, given: Result<MessageNumber, SendError>) -> bool {
        let number = match given {
            Ok(number) => number,
            Err(
                SendError::WindowFull | SendError::Resetting | SendError::NotReceiving | SendError::NotMember,
            ) => return false,
            Err(SendError::Left | SendError::Forked) => {
                self.end();
                return false;
            }
            Err(error) => {
                self.refuse_first(error);
                return true;
            }
        };
        match self.to_send.pop_front() {
            Some(Outgoing::Message { ticket, outside, quality, payload }) => {
                self.to_send_bytes -= payload.len();
                let is_awaited = quality.has_seqno();
                if let Some(batch) = self.batches.get_mut(&ticket)
                    && (batch.unconfirmed || !is_awaited)
                {
                    batch.placed |= 1 << (outside.number - batch.first);
                    self.close_one(ticket);
                }
                if is_awaited {
                    self.under_way.push_back((number, Sent::Message { ticket, number: outside.number }));
                }
            }
            Some(Outgoing::Word { client, word }) => {
                self.under_way.push_back((number, Sent::Word { client, word }));
            }
            None => {}
        }
        true
    }

    /// Refuses the request whose message the group does not take.
    fn refuse_first(&mut self, error: SendError) {
        let Some(Outgoing::Message { ticket, outside, .. }) = self.to_send.front() else {
            self.to_send.pop_front();
            return;
        };
        let (ticket, client) = (*ticket, outside.client);
        if let Some(batch) = self.batches.get_mut(&ticket) {
            batch.refused = Some(error.to_string());
        }
        self.drop_unsent(client);
    }

    /// Notes the outcome of a message of the member. Returns false if the message is none of this relay. The caller takes all
    /// outcomes from the group before it calls [`Relay::advance`]: behind a message that a reset has dropped nothing more of
    /// its request is sent.
    pub fn outcome(&mut self, number: MessageNumber, outcome: Outcome) -> bool {
        // The pieces of a large message may have outcomes of their own before that of the whole.
        if self.under_way.front().is_none_or(|(first, _)| *first != number) {
            return false;
        }
        let Some((_, sent)) = self.under_way.pop_front() else { return false };
        match (sent, outcome) {
            (Sent::Message { ticket, number }, outcome) => {
                if let Some(batch) = self.batches.get_mut(&ticket)
                    && !batch.unconfirmed
                {
                    let bit = 1_u64.checked_shl((number - batch.first) as u32).unwrap_or(0);
                    match outcome {
                        Outcome::Ok { seqno } => {
                            batch.placed |= bit;
                            batch.last = batch.last.max(seqno);
                        }
                        Outcome::Unknown => batch.unknown |= bit,
                        Outcome::Failed => {}
                    }
                    let client = batch.client;
                    self.close_one(ticket);
                    if !matches!(outcome, Outcome::Ok { .. }) {
                        self.drop_unsent(client);
                    }
                }
            }
            // A reset has dropped the claim.
            (Sent::Word { client, word: word @ Word::Claim { nonce, .. } }, Outcome::Failed) => {
                if self.taken_over.get(client).is_some_and(|taken| taken.nonce == nonce) {
                    self.to_send.push_back(Outgoing::Word { client, word });
                }
            }
            // The member that waits for it is the only one that takes it.
            (Sent::Word { client, word: word @ Word::Release { .. } }, Outcome::Failed) => {
                self.to_send.push_front(Outgoing::Word { client, word });
            }
            (Sent::Word { .. }, _) => {}
        }
        true
    }

    /// Notes that the outcome of one message of a request is known, and answers with the last.
    fn close_one(&mut self, ticket: Ticket) {
        let Some(batch) = self.batches.get_mut(&ticket) else { return };
        batch.open -= 1;
        if batch.open > 0 {
            return;
        }
        let Some(batch) = self.batches.remove(&ticket) else { return };
        if let Some(served) = self.served.get_mut(batch.client)
            && served.busy == Some(ticket)
        {
            served.busy = None;
        }
        let Batch { placed, unknown, last, refused, .. } = batch;
        self.answer(
            ticket,
            match refused {
                None => Answer::Sent { placed, unknown, last },
                Some(reason) => Answer::Refused { placed, reason },
            },
        );
    }

    /// Notes that the member is one no longer: nothing more is learned of what is under way, and nothing more is sent.
    pub fn end(&mut self) {
        self.is_over = true;
        let unsent: Vec<Ticket> = self
            .to_send
            .drain(..)
            .filter_map(|outgoing| match outgoing {
                Outgoing::Message { ticket, .. } => Some(ticket),
                Outgoing::Word { .. } => None,
            })
            .collect();
        self.to_send_bytes = 0;
        unsent.into_iter().for_each(|ticket| self.close_one(ticket));
        let sent: Vec<(MessageNumber, Sent)> = self.under_way.drain(..).collect();
        for (_, sent) in sent {
            if let Sent::Message { ticket, number } = sent
                && let Some(batch) = self.batches.get_mut(&ticket)
                && !batch.unconfirmed
            {
                batch.unknown |= 1 << (number - batch.first);
                self.close_one(ticket);
            }
        }
        for (_, taken) in self.taken_over.drain() {
            self.answers.push_back((taken.ticket, Answer::NotYours));
        }
    }

    // --- output ---

    /// Returns an answer that is due.
    pub fn poll_answer(&mut self) -> Option<(Ticket, Answer)> {
        self.answers.pop_front()
    }

    /// True if an answer is due.
    pub fn has_answers(&self) -> bool {
        !self.answers.is_empty()
    }

    /// True if something waits for room in the member's window.
    pub fn has_to_send(&self) -> bool {
        !self.to_send.is_empty()
    }

    /// Returns the numbers of clients that are remembered and served.
    pub fn clients(&self) -> (usize, usize) {
        (self.memory.clients(), self.served.len())
    }
}

const _: () = assert!(BATCH_MAX <= 64, "an answer has one bit for each message");

//! A session: what a server remembers of one client, with a slot for each call that may be under way.
//!
//! In each slot only the highest attempt counts: a higher one supersedes it, the same one is answered from what is
//! kept, a lower one is dropped. So nothing has to be forgotten within a session, and its slots bound its cost.

use super::budget::Place;
use crate::identity::{Port, Uid};
use crate::rpc::agreement::Pair;
use crate::rpc::transfer::{Incoming, Outgoing};
use crate::rpc::types::CallNumber;
use crate::shares::Source;
use crate::time::Time;
use crate::wire::{Attempt, Rejection, Wishes};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use bytes::Bytes;
use core::net::SocketAddr;
use core::time::Duration;

/// Time in which the first part of a large request comes; its sender sends it with the announcement.
const BEGINNING_WITHIN: Duration = Duration::from_millis(250);
/// An incomplete request is given up when no part of it has come for 4 s.
const RECEIVING_LIFE: Duration = Duration::from_secs(4);
/// A request is slow of which fewer bytes have come in each second, once it is older than this.
const SLOW_PACE: u64 = 64 << 10;
const SLOW_AFTER: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(in crate::rpc) struct Session {
    pub(super) client: Uid,
    /// The address from which it was opened, in whose share it stays.
    pub(super) source: Source,
    /// Seals what goes to and fro.
    pub(super) pair: Box<dyn Pair>,
    /// The client's address, proved by a cookie.
    pub(in crate::rpc) address: SocketAddr,
    pub(in crate::rpc) heard_at: Time,
    /// Highest packet number of the client's datagrams that were opened.
    pub(super) newest: u64,
    /// Unknown attempts below this number must show a good cookie: they may belong to a forgotten session.
    pub(in crate::rpc) floor: u64,
    /// The highest attempt that was rejected because there was no capacity for its slot.
    pub(in crate::rpc) rejected_through: u64,
    pub(in crate::rpc) slots: Vec<Slot>,
    /// The client has said that it knows the outcomes of all its calls below this number.
    pub(super) finished_below: CallNumber,
    /// Number of slots with a request that is here and not answered.
    pub(in crate::rpc) in_progress: u16,
    /// Replies that are kept, the oldest first: slot and number. Some are not kept any more.
    pub(super) kept: VecDeque<(u16, u64)>,
    pub(super) kept_bytes: usize,
    /// Slots with answers to send.
    pub(in crate::rpc) to_tell: VecDeque<u16>,
    /// True if the session is in the queue of sessions with answers to send.
    pub(in crate::rpc) is_due: bool,
}

/// The last attempt of a slot, and what became of it.
#[derive(Debug, Default)]
pub(in crate::rpc) struct Slot {
    pub(in crate::rpc) number: u64,
    pub(in crate::rpc) is_to_tell: bool,
    pub(in crate::rpc) state: State,
}

#[derive(Debug, Default)]
pub(in crate::rpc) enum State {
    /// Nothing is known of it, or its answer has arrived.
    #[default]
    Done,
    /// Parts of the request are missing.
    Receiving(Box<Receiving>),
    /// The request waits for the application.
    Queued(Asked, Bytes),
    /// The application has it.
    InHand,
    /// It was answered; the reply is kept until it is known to have arrived.
    Replied(Kept),
    /// The reply is not kept any more.
    Lost,
    Rejected(Rejection),
    Forwarded(SocketAddr),
}

/// A large request of which parts are missing.
#[derive(Debug)]
pub(in crate::rpc) struct Receiving {
    pub(super) asked: Asked,
    pub(super) incoming: Incoming,
    /// When it was announced.
    since: Time,
    /// The application wants all of it: the beginning shows a right, or it does not look at beginnings.
    pub(super) is_let_on: bool,
    /// The bytes that it counts: those that have come, or all once they are wanted.
    pub(super) counted: usize,
    /// When it is looked at next, whether it still comes.
    pub(super) look_at: Time,
}

impl Receiving {
    pub(super) fn new(now: Time, asked: Asked, incoming: Incoming, is_let_on: bool) -> Receiving {
        let look_at = now + BEGINNING_WITHIN;
        Receiving { asked, incoming, since: now, is_let_on, counted: 0, look_at }
    }

    /// True if its beginning is there, and a part came not long ago: then it is looked at again when that is over.
    pub(super) fn is_heard_of(&mut self, now: Time) -> bool {
        self.look_at = self.incoming.heard_at + RECEIVING_LIFE;
        self.incoming.has(0) && self.look_at > now
    }

    /// Returns the bytes that came in each second, if those are few and it has had time: then it may give way to another.
    pub(super) fn slow_pace(&self, now: Time) -> Option<u64> {
        let pace = self.pace(now);
        (now.since(self.since) > SLOW_AFTER && pace < SLOW_PACE).then_some(pace)
    }

    /// Returns the bytes that came in each second.
    pub(super) fn pace(&self, now: Time) -> u64 {
        let age = now.since(self.since).as_nanos().max(1);
        u64::try_from(self.incoming.arrived_bytes() as u128 * 1_000_000_000 / age).unwrap_or(u64::MAX)
    }
}

/// The head of a request.
#[derive(Clone, Debug)]
pub(in crate::rpc) struct Asked {
    pub(in crate::rpc) port: Port,
    pub(in crate::rpc) call: CallNumber,
    pub(in crate::rpc) finished_below: CallNumber,
    pub(in crate::rpc) hops: u8,
    pub(in crate::rpc) again: bool,
    pub(super) place: Place,
    /// True if its address had lately shown a right when it asked.
    pub(super) is_entitled: bool,
    pub(in crate::rpc) deadline: Time,
    pub(in crate::rpc) wishes: Option<Box<Wishes>>,
}

/// A reply that the client may still ask for.
#[derive(Debug)]
pub(in crate::rpc) struct Kept {
    pub(in crate::rpc) refused: bool,
    pub(in crate::rpc) reply: Bytes,
    pub(in crate::rpc) since: Time,
    /// Maximum number of parts of a large reply under way.
    pub(in crate::rpc) parts_max: u16,
    /// Transfer of a large reply in parts.
    pub(super) transfer: Option<Box<Sending>>,
}

/// A large reply that is being sent.
#[derive(Debug)]
pub(super) struct Sending {
    pub(super) parts: Outgoing,
    /// It is in the queue of replies of which a part may be sent.
    pub(super) is_queued: bool,
    /// When it is looked at next, whether parts of it are lost or its client is silent.
    pub(super) look_at: Time,
}

impl Sending {
    /// Returns when it is to be looked at. A client is silent if nothing has come of it in that time.
    pub(super) fn due_at(&self, silence: Duration) -> Time {
        self.parts.resend_at().unwrap_or(self.parts.heard_at() + silence)
    }
}

impl Session {
    pub(super) fn new(
        now: Time,
        (client, pair): (Uid, Box<dyn Pair>),
        address: SocketAddr,
        (floor, newest): (u64, u64),
    ) -> Session {
        Session {
            client,
            source: address.ip().into(),
            pair,
            address,
            heard_at: now,
            newest,
            floor,
            rejected_through: 0,
            slots: Vec::new(),
            finished_below: 0,
            in_progress: 0,
            kept: VecDeque::new(),
            kept_bytes: 0,
            to_tell: VecDeque::new(),
            is_due: false,
        }
    }

    /// True if this session takes the attempt without a good cookie: the attempt is known here, or it can neither
    /// belong to a forgotten session nor have been rejected when there was no capacity for one. An attempt that was
    /// rejected then has shown a cookie that is not good any more.
    pub(super) fn takes(&self, attempt: Attempt, shows_good: Option<bool>) -> bool {
        let last = self.slots.get(usize::from(attempt.slot)).map_or(0, |slot| slot.number);
        attempt.number <= last || attempt.number >= self.floor && shows_good != Some(false)
    }

    /// Returns this attempt, if it is the last of its slot.
    pub(super) fn attempt(&mut self, slot: u16, number: u64) -> Option<&mut Slot> {
        self.slots.get_mut(usize::from(slot)).filter(|slot| slot.number == number)
    }
}

impl Slot {
    /// True if the reply to this attempt is kept.
    pub(super) fn keeps(&self, number: u64) -> bool {
        self.number == number && matches!(self.state, State::Replied(_))
    }
}

impl State {
    /// True if at least a part of the request is here, and it is not answered.
    pub(super) fn is_in_progress(&self) -> bool {
        matches!(self, State::Receiving(_) | State::Queued(..) | State::InHand)
    }

    /// True if there is an answer that may not have arrived.
    pub(super) fn is_answered(&self) -> bool {
        !self.is_in_progress() && !matches!(self, State::Done)
    }

    /// Returns a request that waits for the application.
    #[inline]
    pub(super) fn queued(&self) -> Option<(&Asked, &Bytes)> {
        match self {
            State::Queued(asked, payload) => Some((asked, payload)),
            _ => None,
        }
    }

    /// Returns the service in whose queue it counts, and its place there.
    pub(super) fn place(&self) -> Option<(Port, Place)> {
        match self {
            State::Receiving(receiving) => Some((receiving.asked.port, receiving.asked.place)),
            State::Queued(asked, _) => Some((asked.port, asked.place)),
            _ => None,
        }
    }

    /// Returns the time at which an incomplete request is looked at: it is given up then if it does not come.
    pub(super) fn incomplete(&self) -> Option<Time> {
        match self {
            State::Receiving(receiving) => Some(receiving.look_at),
            _ => None,
        }
    }

    /// Returns the bytes that an incomplete large request counts.
    pub(super) fn receiving_bytes(&self) -> usize {
        match self {
            State::Receiving(receiving) => receiving.counted,
            _ => 0,
        }
    }

    /// Returns the head and the first part of a large request whose other parts are missing.
    pub(super) fn beginning(&self) -> Option<(&Asked, &Incoming)> {
        match self {
            State::Receiving(receiving) => Some((&receiving.asked, &receiving.incoming)),
            _ => None,
        }
    }

    /// Returns the bytes of a request that waits.
    pub(super) fn waiting_bytes(&self) -> usize {
        match self {
            State::Queued(_, request) => request.len(),
            _ => 0,
        }
    }

    /// Returns the bytes of a reply that it keeps.
    pub(super) fn kept_bytes(&self) -> usize {
        match self {
            State::Replied(kept) => kept.reply.len(),
            _ => 0,
        }
    }
}

//! What a server remembers of one client: a slot for each call that may be under way.
//!
//! In each slot only the highest attempt counts: a higher one supersedes it, the same is answered from what is here, a
//! lower one is dropped. So nothing has to be forgotten within a session, and what it costs is bounded by its slots.

use crate::identity::{Port, Uid};
use crate::rpc::transfer::{Incoming, Outgoing};
use crate::rpc::types::CallNumber;
use crate::time::Time;
use crate::wire::{Attempt, Rejection};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use bytes::Bytes;
use core::net::SocketAddr;

#[derive(Debug)]
pub(in crate::rpc) struct Session {
    pub(super) client: Uid,
    /// Where the client is, as a cookie has proved.
    pub(in crate::rpc) address: SocketAddr,
    pub(in crate::rpc) heard_at: Time,
    /// Attempts below this one that are not known here must show a good cookie: they may belong to a session that was
    /// forgotten.
    pub(in crate::rpc) floor: u64,
    /// The highest attempt that was rejected since there was no room for its slot.
    pub(in crate::rpc) rejected_through: u64,
    pub(in crate::rpc) slots: Vec<Slot>,
    /// Slots whose request is here and not answered.
    pub(in crate::rpc) in_progress: u16,
    /// Slots whose state the client is to be told.
    pub(in crate::rpc) to_tell: VecDeque<u16>,
    /// The session is among those that have something to tell.
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
    /// Parts of the request are lacking.
    Receiving(Box<(Asked, Incoming)>),
    /// The request waits for the application.
    Queued(Asked, Bytes),
    /// The application has it.
    InHand,
    /// It was answered; kept until that is known to have arrived.
    Replied(Kept),
    /// The reply is not kept any more.
    Lost,
    Rejected(Rejection),
    Forwarded(SocketAddr),
}

/// The head of a request.
#[derive(Clone, Copy, Debug)]
pub(in crate::rpc) struct Asked {
    pub(in crate::rpc) port: Port,
    pub(in crate::rpc) call: CallNumber,
    pub(in crate::rpc) finished_below: CallNumber,
    pub(in crate::rpc) hops: u8,
    pub(in crate::rpc) deadline: Time,
}

/// A reply that may still be asked for.
#[derive(Debug)]
pub(in crate::rpc) struct Kept {
    pub(in crate::rpc) refused: bool,
    pub(in crate::rpc) reply: Bytes,
    pub(in crate::rpc) since: Time,
    /// On its way in parts.
    pub(in crate::rpc) transfer: Option<Box<Outgoing>>,
}

impl Session {
    pub(super) fn new(now: Time, client: Uid, address: SocketAddr, floor: u64) -> Session {
        Session {
            client,
            address,
            heard_at: now,
            floor,
            rejected_through: 0,
            slots: Vec::new(),
            in_progress: 0,
            to_tell: VecDeque::new(),
            is_due: false,
        }
    }

    /// The attempt is known here; or it cannot belong to a session that was forgotten, nor have been rejected when there
    /// was no room for one: what was has shown a cookie that is not good any more.
    pub(super) fn takes(&self, attempt: Attempt, shows_good: Option<bool>) -> bool {
        let last = self.slots.get(usize::from(attempt.slot)).map_or(0, |slot| slot.number);
        attempt.number <= last || attempt.number >= self.floor && shows_good != Some(false)
    }

    /// This attempt, if it is the last of its slot.
    pub(super) fn attempt(&mut self, slot: u16, number: u64) -> Option<&mut Slot> {
        self.slots.get_mut(usize::from(slot)).filter(|slot| slot.number == number)
    }
}

impl State {
    /// The request is here, in part at least, and not answered.
    pub(super) fn is_in_progress(&self) -> bool {
        matches!(self, State::Receiving(_) | State::Queued(..) | State::InHand)
    }

    /// The service in whose queue it takes up a place.
    pub(super) fn place(&self) -> Option<Port> {
        match self {
            State::Receiving(receiving) => Some(receiving.0.port),
            State::Queued(asked, _) => Some(asked.port),
            _ => None,
        }
    }

    /// Bytes of a large request that it takes up.
    pub(super) fn receiving_bytes(&self) -> usize {
        match self {
            State::Receiving(receiving) => receiving.1.total(),
            _ => 0,
        }
    }

    /// Bytes of a reply that it takes up.
    pub(super) fn kept_bytes(&self) -> usize {
        match self {
            State::Replied(kept) => kept.reply.len(),
            _ => 0,
        }
    }
}

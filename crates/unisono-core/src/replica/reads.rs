//! Reads that wait: for a confirmation that this member still belongs to the group, for the point in the order that the
//! confirmation names, or for the position of a command.
//!
//! A read is right if the state contains everything that was answered before the read arrived. The group confirms what
//! this member held after that ([`Group::confirm`](crate::Group::confirm)), and the read is answered once that much is
//! applied. One confirmation serves all reads that arrived before it began; those that arrive meanwhile wait for the
//! next one. (KTV93 checks the majority for reads too, but no later than it notices a failure.)
//!
//! Requests that may be answered wait in lanes for their turn: each input answers a few cheap ones, and a timeout the costly
//! ones.

use super::durable::Place;
use super::machine::Position;
use super::types::ReadNumber;
use crate::identity::Seqno;
use crate::lanes::{FavouredFirst, is_costly};
use crate::rpc::{Request, RequestId};
use crate::time::Time;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

#[derive(Debug)]
pub(super) enum Read {
    /// Of a caller.
    Request(Request),
    /// Of this process.
    Own(ReadNumber),
}

/// The reads. See the module.
#[derive(Debug, Default)]
pub(super) struct Reads {
    begun: ReadNumber,
    /// Reads that arrived since the last confirmation began.
    arrived: Vec<Read>,
    /// Reads that the confirmation under way serves.
    asked: Option<Vec<Read>>,
    /// Reads that are answered once this seqno is applied.
    confirmed: BTreeMap<Seqno, VecDeque<Read>>,
    /// Reads that are answered once the entry of the log at this place is applied: what this member held.
    held: BTreeMap<Place, VecDeque<Read>>,
    ready: Ready,
    /// Waits that end once this position is applied.
    positions: BTreeSet<(Position, ReadNumber)>,
}

/// Number of turns of addresses that have shown a right after which a stranger has its turn.
const ENTITLED_IN_A_ROW: u32 = 8;

/// Requests that may be answered, in a lane for each source address: the lanes take turns. Those of strangers have their turn while
/// no other waits, and every ninth; of either kind the cheap ones go first. So a costly request of an address that has shown a
/// right waits for few strangers, however many of them ask.
#[derive(Debug, Default)]
struct Ready {
    entitled: FavouredFirst<Request>,
    strangers: FavouredFirst<Request>,
    /// Number of turns of the others since the last one of a stranger.
    entitled_in_a_row: u32,
}

impl Ready {
    fn len(&self) -> usize {
        self.entitled.len() + self.strangers.len()
    }

    fn push(&mut self, request: Request, is_costly: bool) {
        let lanes = if request.is_stranger { &mut self.strangers } else { &mut self.entitled };
        lanes.push(request.source, request, !is_costly);
    }

    fn pop(&mut self) -> Option<Request> {
        let is_due = self.entitled.len() == 0 || self.entitled_in_a_row >= ENTITLED_IN_A_ROW;
        if is_due && let Some(request) = self.strangers.pop() {
            self.entitled_in_a_row = 0;
            return Some(request);
        }
        self.entitled_in_a_row = self.entitled_in_a_row.saturating_add(1);
        self.entitled.pop()
    }

    fn retain(&mut self, mut keeps: impl FnMut(&Request) -> bool) {
        self.entitled.retain(&mut keeps);
        self.strangers.retain(keeps);
    }
}

impl Reads {
    pub(super) fn add_request(&mut self, request: Request) {
        self.arrived.push(Read::Request(request));
    }

    pub(super) fn add_barrier(&mut self) -> ReadNumber {
        self.begun += 1;
        self.arrived.push(Read::Own(self.begun));
        self.begun
    }

    pub(super) fn add_position(&mut self, position: Position) -> ReadNumber {
        self.begun += 1;
        self.positions.insert((position, self.begun));
        self.begun
    }

    /// True if a confirmation is to begin now, for all reads that have arrived.
    pub(super) fn begin_confirmation(&mut self) -> bool {
        if self.asked.is_some() || self.arrived.is_empty() {
            return false;
        }
        self.asked = Some(core::mem::take(&mut self.arrived));
        true
    }

    /// Notes that the confirmation begins only now: it also serves the reads that arrived since it was asked for.
    pub(super) fn confirmation_begins(&mut self) {
        if let Some(asked) = &mut self.asked {
            asked.append(&mut self.arrived);
        }
    }

    /// Notes what the confirmation under way returned.
    pub(super) fn confirmed(&mut self, seqno: Seqno) {
        let reads = self.asked.take().unwrap_or_default();
        if !reads.is_empty() {
            self.confirmed.entry(seqno).or_default().extend(reads);
        }
    }

    /// Returns a read whose point in the order has been applied.
    pub(super) fn take_ready(&mut self, at: Seqno) -> Option<Read> {
        let mut first = self.confirmed.first_entry().filter(|first| *first.key() <= at)?;
        let read = first.get_mut().pop_front();
        if first.get().is_empty() {
            first.remove();
        }
        read
    }

    /// Has a read wait until this member has applied what it held, through `place`.
    pub(super) fn hold(&mut self, place: Place, read: Read) {
        self.held.entry(place).or_default().push_back(read);
    }

    /// Returns a read that waited for what this member held, and has been applied.
    pub(super) fn take_held(&mut self, applied: Place) -> Option<Read> {
        let mut first = self.held.first_entry().filter(|first| *first.key() <= applied)?;
        let read = first.get_mut().pop_front();
        if first.get().is_empty() {
            first.remove();
        }
        read
    }

    /// Notes that a request may be answered.
    pub(super) fn note_ready(&mut self, request: Request, cost: u32) {
        self.ready.push(request, is_costly(cost));
    }

    /// Returns the request whose turn it is of those that may be answered; only a cheap one of an address that has shown a right if
    /// the others have to wait.
    pub(super) fn take_turn(&mut self, others_wait: bool) -> Option<Request> {
        if others_wait { self.ready.entitled.pop_favoured() } else { self.ready.pop() }
    }

    /// True if a request may be answered.
    pub(super) fn has_ready(&self) -> bool {
        self.ready.len() > 0
    }

    /// Returns a wait whose position has been applied.
    pub(super) fn take_reached(&mut self, position: Position) -> Option<ReadNumber> {
        let reached = self.positions.first().is_some_and(|(first, _)| *first <= position);
        reached.then(|| self.positions.pop_first().map(|(_, number)| number)).flatten()
    }

    pub(super) fn has_confirmed(&self) -> bool {
        let waits = !self.confirmed.is_empty() || !self.held.is_empty() || !self.positions.is_empty();
        waits || self.has_ready()
    }

    /// True if requests of callers wait.
    pub(super) fn has_requests(&self) -> bool {
        self.has_ready() || self.all().any(|read| matches!(read, Read::Request(_)))
    }

    fn all(&self) -> impl Iterator<Item = &Read> {
        let under_way = self.arrived.iter().chain(self.asked.iter().flatten());
        under_way.chain(self.confirmed.values().flatten()).chain(self.held.values().flatten())
    }

    /// Drops the requests of callers that do not wait any longer, and returns them.
    pub(super) fn drop_expired(&mut self, now: Time) -> Vec<RequestId> {
        let mut expired = Vec::new();
        let mut waits = |read: &Read| match read {
            Read::Request(request) if request.deadline <= now => {
                expired.push(request.id);
                false
            }
            _ => true,
        };
        self.arrived.retain(&mut waits);
        self.asked.iter_mut().for_each(|asked| asked.retain(&mut waits));
        self.confirmed.values_mut().for_each(|reads| reads.retain(&mut waits));
        self.confirmed.retain(|_, reads| !reads.is_empty());
        self.held.values_mut().for_each(|reads| reads.retain(&mut waits));
        self.held.retain(|_, reads| !reads.is_empty());
        self.ready.retain(|request| {
            let waits = request.deadline > now;
            if !waits {
                expired.push(request.id);
            }
            waits
        });
        expired
    }

    /// Takes out all requests of callers.
    pub(super) fn take_requests(&mut self) -> Vec<RequestId> {
        self.drop_expired(Time::NEVER)
    }

    /// Takes over the reads of this process from an earlier life; they need a confirmation of this one.
    pub(super) fn take_own(&mut self, earlier: Reads) {
        self.begun = earlier.begun;
        self.positions = earlier.positions;
        let reads = earlier.arrived.into_iter().chain(earlier.asked.into_iter().flatten());
        let reads = reads.chain(earlier.confirmed.into_values().flatten());
        let reads = reads.chain(earlier.held.into_values().flatten());
        self.arrived.extend(reads.filter(|read| matches!(read, Read::Own(_))));
    }
}

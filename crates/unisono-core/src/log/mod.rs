//! The log of one member: its numbered entries, the data that waits for a seqno, and the marks of this member.
//!
//! [`Log`] keeps `received` ≥ `accepted` ≥ `delivered` ≥ `base`. Everything through `received` is held without a gap,
//! everything through `accepted` is official, the application has everything through `delivered`, and everything
//! through `base` was freed. The methods of [`Log`] are the only writers of these marks, and no mark goes back. There
//! is one exception: a [`Log::cut`] drops entries that are not accepted, so `received` goes back with them.
//!
//! [`History`] has the entries with the views and terms that follow from them. The unordered buffer has data without a
//! seqno, and the assembly has the pieces of messages that are not delivered as a whole yet. The log does not decide
//! what is accepted, and it does not know what other members hold.

mod assembly;
mod blocks;
mod history;
#[cfg(test)]
mod tests;
mod unordered;

pub(crate) use blocks::Slice;
pub(crate) use history::{Entry, Filed, History, Members, Message, Reset};
pub(crate) use unordered::{Manner, UnorderedBuffer};

use crate::config::{Floor, Order};
use crate::identity::{Member, MessageNumber, Seqno, Uid};
use crate::wire::{LogBase, Pieces};
use alloc::vec::Vec;
use assembly::Assembly;
use bytes::Bytes;
use core::net::SocketAddr;

/// A member's log, with all marks of this member.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    history: History,
    unordered: UnorderedBuffer,
    assembly: Assembly,
    /// Every entry through this seqno is accepted.
    accepted: Seqno,
    /// Every entry through this seqno was delivered to the application.
    delivered: Seqno,
    /// True if the simulator has planted a bug: then marks may go back, and its checkers have to notice it.
    is_planted: bool,
}

impl Log {
    /// Returns the empty log of a process that has no group yet.
    pub(crate) fn nowhere() -> Log {
        Log::after(&LogBase {
            seqno: 0,
            members: Vec::new(),
            term: (0, Uid(0)),
            order: (0, Order::default()),
            last_numbers: Vec::new(),
        })
    }

    /// Returns an empty log that begins after `base`.
    pub(crate) fn after(base: &LogBase) -> Log {
        Log {
            history: History::new(base),
            unordered: UnorderedBuffer::default(),
            assembly: Assembly::default(),
            accepted: base.seqno,
            delivered: base.seqno,
            is_planted: false,
        }
    }

    /// Begins anew after `base`: nothing before it concerns this member, and nothing after it has arrived yet.
    pub(crate) fn begin(&mut self, base: &LogBase) {
        *self = Log { is_planted: self.is_planted, ..Log::after(base) };
        debug_assert!(self.is_in_order());
    }

    /// Notes that a bug is planted: from here on the marks may break their rules.
    pub(crate) fn plant(&mut self) {
        self.is_planted = cfg!(feature = "planted");
    }

    // --- reading ---

    /// Returns the seqno through which everything was freed. Every member has held it.
    pub(crate) fn base(&self) -> Seqno {
        self.history.base()
    }

    /// Returns the seqno through which everything was delivered to the application.
    pub(crate) fn delivered(&self) -> Seqno {
        self.delivered
    }

    /// Returns the seqno through which everything is accepted.
    pub(crate) fn accepted(&self) -> Seqno {
        self.accepted
    }

    /// Returns the seqno through which every entry is held, data included.
    pub(crate) fn received(&self) -> Seqno {
        self.history.received()
    }

    /// Returns the highest seqno of which this member knows an entry; `base` if there is none.
    pub(crate) fn end(&self) -> Seqno {
        self.history.end()
    }

    /// Returns the entries, and the views and terms that follow from them.
    pub(crate) fn history(&self) -> &History {
        &self.history
    }

    /// Returns the data that waits for a seqno.
    pub(crate) fn unordered(&self) -> &UnorderedBuffer {
        &self.unordered
    }

    /// True if the marks are in their order.
    fn is_in_order(&self) -> bool {
        self.is_planted
            || (self.received() >= self.accepted
                && self.accepted >= self.delivered
                && self.delivered >= self.base())
    }

    // --- storing entries that have a seqno ---

    /// Stores an entry under its seqno, unless it is known or lies beyond `limit`. `data` is the data of a message, if
    /// it has arrived.
    pub(crate) fn file(
        &mut self,
        seqno: Seqno,
        entry: Entry,
        data: Option<Slice<'_>>,
        limit: Seqno,
    ) -> Filed {
        let end = self.end();
        let filed = self.history.file(seqno, entry, data, limit);
        debug_assert!(self.end() == end || self.end() == seqno.max(end));
        filed
    }

    /// Stores a message that came by BB under its seqno. Its data is taken from the unordered buffer, if it is there.
    /// Returns whether it was, too.
    pub(crate) fn file_waiting(&mut self, seqno: Seqno, message: Message, limit: Seqno) -> (Filed, bool) {
        let end = self.end();
        let data = self.unordered.take(message.sender, message.number).map(|(_, data)| data);
        let data_was_here = data.is_some();
        let filed = self.history.file(seqno, Entry::Message(message), data, limit);
        debug_assert!(self.end() == end || self.end() == seqno.max(end));
        (filed, data_was_here)
    }

    /// Stores messages of one sender that arrived together, with consecutive numbers and seqnos. `first` has the seqno
    /// `seqno`.
    pub(crate) fn file_run(&mut self, seqno: Seqno, first: Message, run: Pieces, limit: Seqno) {
        let end = self.end();
        self.history.file_run(seqno, first, run, limit);
        debug_assert!(self.end() >= end && self.end() <= end.max(limit));
    }

    /// Adds the data of a message that has a seqno and no data. Returns true if there was such a message.
    pub(crate) fn supply(&mut self, sender: Uid, number: MessageNumber, data: &Slice<'_>) -> bool {
        self.history.supply(sender, number, data)
    }

    /// Moves `received` forward over all entries that are held now.
    pub(crate) fn advance(&mut self) {
        let received = self.received();
        self.history.advance();
        debug_assert!(self.received() >= received && self.received() <= self.end());
    }

    // --- numbering ---

    /// Appends an entry that is no message under the next seqno; only the sequencer does this. The log must have no
    /// gap.
    pub(crate) fn append(&mut self, entry: Entry) -> Seqno {
        let received = self.received();
        let seqno = self.history.append(entry);
        debug_assert!(seqno == received + 1 && self.end() == seqno);
        seqno
    }

    /// Appends a message in the same way.
    pub(crate) fn append_message(&mut self, message: Message, data: Slice<'_>) -> Seqno {
        let received = self.received();
        let seqno = self.history.append_message(message, data);
        debug_assert!(seqno == received + 1 && self.end() == seqno);
        seqno
    }

    /// Appends a message that waits in the unordered buffer. Returns its seqno, what it asks for and its bytes; `None`
    /// if it is not there.
    pub(crate) fn append_waiting(
        &mut self,
        sender: Uid,
        number: MessageNumber,
    ) -> Option<(Seqno, Manner, usize)> {
        let received = self.received();
        let (manner, data) = self.unordered.take(sender, number)?;
        let bytes = data.len();
        let seqno = self.history.append_message(manner.numbered(sender, number), data);
        debug_assert!(seqno == received + 1 && self.end() == seqno);
        Some((seqno, manner, bytes))
    }

    // --- accepting and delivering ---

    /// Takes everything through `seqno` as accepted.
    pub(crate) fn accept_through(&mut self, seqno: Seqno) {
        debug_assert!(self.is_planted || (self.accepted..=self.received()).contains(&seqno));
        self.accepted = seqno;
    }

    /// Notes that the application gets the next entry, which is accepted.
    pub(crate) fn deliver_next(&mut self) {
        debug_assert!(self.is_planted || self.delivered < self.accepted);
        self.delivered += 1;
    }

    /// Notes that the application gets the next entry although it may not be accepted: this life has ended, and hands
    /// out what it holds.
    pub(crate) fn hand_out_next(&mut self) {
        debug_assert!(self.is_planted || (self.accepted..self.received()).contains(&self.delivered));
        self.delivered += 1;
    }

    /// Skips the entries through `seqno`, which are accepted: the application of a process that was no member there
    /// gets none of them.
    pub(crate) fn skip_through(&mut self, seqno: Seqno) {
        debug_assert!(self.is_planted || (self.delivered..=self.accepted).contains(&seqno));
        self.delivered = seqno;
    }

    /// Takes the next piece of a message of `sender`; returns the message if that was its last piece. A message of more
    /// than `bytes_max` bytes is dropped.
    pub(crate) fn put_together(
        &mut self,
        sender: Uid,
        more: bool,
        piece: Bytes,
        bytes_max: usize,
    ) -> Option<Bytes> {
        self.assembly.take(sender, more, piece, bytes_max)
    }

    /// True if a message of `sender` is delivered in part.
    pub(crate) fn is_put_together(&self, sender: Uid) -> bool {
        self.assembly.is_open(sender)
    }

    /// Drops what was delivered in part: of a leaver, or of all senders at a reset.
    pub(crate) fn give_up_pieces(&mut self, of: Option<Uid>) {
        match of {
            Some(sender) => self.assembly.forget_sender(sender),
            None => self.assembly.clear(),
        }
    }

    // --- going back to what is accepted ---

    /// Drops all entries beyond `keep`, those beyond a gap included. What is accepted stays.
    pub(crate) fn cut(&mut self, keep: Seqno) {
        debug_assert!(self.is_planted || keep >= self.accepted, "an accepted entry is cut");
        self.history.cut(keep);
        debug_assert!(self.is_in_order());
    }

    /// Planted bug: the group is ordered so, although the switch was cut off.
    pub(crate) fn keep_order(&mut self, order: Order) {
        self.history.keep_order(order);
    }

    /// Planted bug: the first member of the view asks for the floor of one that has left.
    pub(crate) fn give_floor_to_first(&mut self, floor: Floor) {
        self.history.give_floor_to_first(floor);
    }

    /// True if a reset may begin its epoch at `start`: this keeps everything that this member has accepted.
    pub(crate) fn allows_reset_at(&self, start: Seqno) -> bool {
        start > self.accepted || self.is_planted
    }

    /// Appends a reset event, which is accepted at once: a new epoch begins with these members, and the first of them
    /// is the sequencer. The log was cut and accepted as the reset decided. Returns the seqno of the event.
    pub(crate) fn install(&mut self, members: Vec<Member>, reset: Reset) -> Seqno {
        debug_assert!(self.is_planted || self.accepted == self.received(), "the log is not settled");
        self.accepted = self.history.append_reset(members, reset);
        debug_assert!(self.is_in_order());
        self.accepted
    }

    /// Gives the only member of the view another address. False, and nothing changes, if the view has other members or
    /// the log has changes of members, which name the former address.
    pub(crate) fn readdress(&mut self, address: SocketAddr) -> bool {
        self.history.readdress(address)
    }

    // --- freeing ---

    /// Returns the seqno through which this member needs nothing any more for itself: it has accepted and delivered it.
    pub(crate) fn needless_through(&self) -> Seqno {
        self.accepted.min(self.delivered)
    }

    /// Frees the entries through `stable`, which every member holds, as far as this member needs none of them itself.
    pub(crate) fn free(&mut self, stable: Seqno) {
        let base = self.base();
        self.history.purge(stable.min(self.needless_through()));
        debug_assert!(self.base() >= base && self.is_in_order());
    }

    // --- data without a seqno ---

    /// Keeps a message until it has a seqno, unless it has one already, is known, or lies beyond the sender's window.
    /// Returns true if it was kept.
    pub(crate) fn keep(
        &mut self,
        named: (Uid, MessageNumber),
        base: MessageNumber,
        window: u64,
        manner: Manner,
        data: Slice<'_>,
    ) -> bool {
        let last = self.history.sender_mark(named.0).number;
        self.unordered.keep(named, base, last, window, manner, data)
    }

    /// Keeps messages that came together in the same way. Returns true if any of them was kept.
    pub(crate) fn keep_run(
        &mut self,
        named: (Uid, MessageNumber),
        base: MessageNumber,
        window: u64,
        manner: Manner,
        run: Pieces,
    ) -> bool {
        let last = self.history.sender_mark(named.0).number;
        self.unordered.keep_run(named, base, last, window, manner, run)
    }

    /// Drops the waiting data of `sender` through its message `last`, which has a seqno.
    pub(crate) fn drop_waiting_through(&mut self, sender: Uid, last: MessageNumber) {
        self.unordered.forget_through(sender, last);
    }

    /// Drops the waiting data of a sender that left.
    pub(crate) fn drop_waiting_of(&mut self, sender: Uid) {
        self.unordered.forget_sender(sender);
    }

    /// Drops all waiting data: another member numbers it, or its epoch or group is over.
    pub(crate) fn drop_waiting(&mut self) {
        self.unordered.clear();
    }
}

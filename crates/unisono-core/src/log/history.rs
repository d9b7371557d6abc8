//! The history: this member's log of numbered entries, each kept until every member holds it.
//!
//! The log begins after `base`: every member has held all entries through `base`. It ends with the highest seqno that
//! this member knows of, and may have gaps. `received` is the seqno through which it has no gap, data included. Members
//! acknowledge this seqno (as in the papers), and in a reset their votes state it as the length of the log. Views,
//! terms and the senders' last numbers follow from the entries through `received`, and change only when `received`
//! moves.

use super::blocks::{Blocks, Part, Slice};
use crate::config::{Floor, Order};
use crate::identity::{EpochId, Member, MessageNumber, Seqno, Uid};
use crate::quality::Quality;
use crate::table::Table;
use crate::wire::{Change, Frame, LogBase, Pieces, run_overhead};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::SocketAddr;

/// The members of a view in rank order. In an `Arc`, because several structures refer to the same view.
pub(crate) type Members = Arc<Vec<Member>>;

/// One numbered entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    Message(Message),
    /// A join, a leave or a switch of the order.
    Change(Box<Change>),
    /// The event that names this member sequencer. It needs no memory of its own: the role may move often.
    Role(Uid),
    /// The reset event that begins an epoch. [`History::view_at`] its seqno returns the new view.
    Reset(Box<Reset>),
}

/// A history holds many entries, so each has to be small.
const _: () = assert!(size_of::<Option<Entry>>() <= 32);

impl Entry {
    /// Returns the entry of a change that has arrived, or is to be numbered.
    pub(crate) fn of_change(change: Change) -> Entry {
        match change {
            Change::Role { sequencer } => Entry::Role(sequencer),
            change => Entry::Change(Box::new(change)),
        }
    }

    /// Returns the change that the entry is, as it is sent; `None` for a message or a reset event.
    pub(crate) fn to_change(&self) -> Option<Change> {
        match self {
            Entry::Change(change) => Some((**change).clone()),
            Entry::Role(sequencer) => Some(Change::Role { sequencer: *sequencer }),
            Entry::Message(_) | Entry::Reset(_) => None,
        }
    }

    /// Returns the sender, if the entry is a message.
    fn sender(&self) -> Option<Uid> {
        match self {
            Entry::Message(message) => Some(message.sender),
            Entry::Change(_) | Entry::Role(_) | Entry::Reset(_) => None,
        }
    }
}

/// A numbered message, or a piece of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) sender: Uid,
    pub(crate) number: MessageNumber,
    pub(crate) quality: Quality,
    /// True if it came by BB: its data went to all members before it had a seqno.
    pub(crate) broadcast: bool,
    /// Position of its data in [`History::blocks`]; `None` while only its seqno is known.
    pub(crate) data: Option<Part>,
}

impl Message {
    /// True if the sender's next piece continues this message.
    pub(crate) fn more(&self) -> bool {
        self.data.is_some_and(|data| data.more)
    }

    fn mark(&self) -> SenderMark {
        SenderMark { number: self.number, open: self.more() }
    }
}

/// What a reset did, for the application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reset {
    pub(crate) epoch: EpochId,
    /// Seqno through which the log was kept.
    pub(crate) kept: Seqno,
    pub(crate) excluded: Vec<Member>,
    pub(crate) degraded: bool,
    pub(crate) forced: bool,
}

/// The last message of a sender, as of some seqno.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SenderMark {
    /// Number of that message.
    pub(crate) number: MessageNumber,
    /// True if the sender's next piece continues that message.
    pub(crate) open: bool,
}

/// Result of filing an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filed {
    /// The entry was not known.
    New,
    /// The entry was known already.
    Known,
    /// The entry lies too far ahead to be kept.
    TooFar,
}

#[derive(Clone, Debug)]
pub(crate) struct History {
    base: Seqno,
    slots: VecDeque<Option<Entry>>,
    /// Data of the messages, by seqno.
    blocks: Blocks,
    received: Seqno,
    /// Payload bytes held.
    bytes: u64,
    /// Number of entries that have a seqno and no data.
    dataless: usize,
    /// Views, each with the first seqno at which it is in force; the first is the view at `base`.
    views: Vec<(Seqno, Members)>,
    /// The last term: the seqno of the last event that names a sequencer, with that sequencer. It lies apart from the
    /// earlier ones because it is read several times for each datagram.
    term: (Seqno, Uid),
    /// The terms before it; the first of all terms is the term at `base`.
    earlier_terms: VecDeque<(Seqno, Uid)>,
    /// How the group is ordered at the end of the log, with the first seqno at which that is in force. It lies apart from
    /// the earlier orders for the reason that the term does.
    order: (Seqno, Order),
    /// The orders before it; the first of all orders is the one at `base`.
    earlier_orders: Vec<(Seqno, Order)>,
    /// Seqnos of joins, leaves, switches of the order and resets beyond `base`, ascending.
    changes: Vec<Seqno>,
    /// Seqno of the last join, leave or switch of the order ever, or of the epoch's beginning.
    last_change: Seqno,
    /// Marks of all senders at `base`.
    at_base: Table<SenderMark>,
    /// Marks of all senders at `received`.
    at_received: Table<SenderMark>,
}

impl History {
    /// Returns an empty log after `base`.
    pub(super) fn new(base: &LogBase) -> History {
        let mut marks = Table::default();
        for &(uid, number) in &base.last_numbers {
            marks.insert(uid, SenderMark { number, open: false });
        }
        History {
            base: base.seqno,
            slots: VecDeque::new(),
            blocks: Blocks::default(),
            received: base.seqno,
            bytes: 0,
            dataless: 0,
            views: Vec::from([(base.seqno, Arc::new(base.members.clone()))]),
            term: base.term,
            earlier_terms: VecDeque::new(),
            order: base.order,
            earlier_orders: Vec::new(),
            changes: Vec::new(),
            last_change: base.seqno,
            at_base: marks.clone(),
            at_received: marks,
        }
    }

    /// Returns what a joiner needs to begin its log after `seqno`, which must lie in this log. A message may be
    /// unfinished at `seqno`. That does no harm: no message is unfinished at the joiner's own join, and the joiner
    /// delivers nothing before that join.
    pub(crate) fn log_base(&self, seqno: Seqno) -> LogBase {
        let mut marks = self.at_base.clone();
        for at in self.base + 1..=seqno {
            self.mark_entry(&mut marks, at);
        }
        LogBase {
            seqno,
            members: self.view_at(seqno).to_vec(),
            term: self.term_at(seqno),
            order: self.switch_at(seqno),
            last_numbers: marks.iter().map(|(uid, mark)| (uid, mark.number)).collect(),
        }
    }

    /// Applies the entry at `seqno` to the marks: a message sets its sender's mark; a leave or a reset removes the
    /// marks of processes that are no longer members.
    fn mark_entry(&self, marks: &mut Table<SenderMark>, seqno: Seqno) {
        match self.get(seqno) {
            Some(Entry::Message(message)) => {
                marks.insert(message.sender, message.mark());
            }
            Some(Entry::Change(change)) => {
                if let Change::Leave { uid, .. } = **change {
                    marks.remove(uid);
                }
            }
            Some(Entry::Reset(_)) => close_messages(marks, Some(self.view_at(seqno))),
            Some(Entry::Role(_)) | None => {}
        }
    }

    pub(super) fn base(&self) -> Seqno {
        self.base
    }

    /// Returns the highest seqno of which this member knows an entry; `base` if there is none.
    pub(super) fn end(&self) -> Seqno {
        self.base + self.slots.len() as u64
    }

    /// Returns the seqno through which every entry is held, data included.
    pub(super) fn received(&self) -> Seqno {
        self.received
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn get(&self, seqno: Seqno) -> Option<&Entry> {
        let index = usize::try_from(seqno.checked_sub(self.base + 1)?).ok()?;
        self.slots.get(index)?.as_ref()
    }

    /// Returns the maximum size of a datagram with the entry at `seqno`; 0 if it is not held, or is a reset event.
    pub(crate) fn entry_bytes(&self, seqno: Seqno) -> usize {
        let entry_bytes = match self.held(seqno) {
            Some(Entry::Message(message)) => message.data.map_or(0, Part::len),
            Some(entry) => {
                let Some(change) = entry.to_change() else { return 0 };
                Frame::Change { seqno, change }.encode_alone().map_or(0, |alone| alone.len())
            }
            None => return 0,
        };
        run_overhead() + entry_bytes
    }

    /// Returns the entry at `seqno` if it is held, data included.
    pub(crate) fn held(&self, seqno: Seqno) -> Option<&Entry> {
        self.get(seqno).filter(|entry| !matches!(entry, Entry::Message(Message { data: None, .. })))
    }

    /// Returns the data of a message of this log; `None` while only its seqno is known.
    pub(crate) fn data(&self, message: &Message) -> Option<Slice<'_>> {
        self.blocks.slice(message.data?)
    }

    /// Returns the view in force after the entry at `seqno`; below `base`, the view at `base`.
    pub(crate) fn view_at(&self, seqno: Seqno) -> &Members {
        let found = self.views.iter().rev().find(|(from, _)| *from <= seqno);
        &found.unwrap_or(&self.views[0]).1
    }

    /// Returns the view at the end of the log.
    pub(crate) fn view(&self) -> &Members {
        &self.views[self.views.len() - 1].1
    }

    /// Returns the seqno of the first change of the view after `seqno`, if there is one.
    pub(crate) fn next_change_after(&self, seqno: Seqno) -> Option<Seqno> {
        let changes = self.views.iter().rev().map(|(from, _)| *from);
        changes.take_while(|&from| from > seqno).last()
    }

    /// Returns the seqno of the last event of the log that names a sequencer, and that sequencer.
    pub(crate) fn term(&self) -> (Seqno, Uid) {
        self.term
    }

    /// Returns how the group is ordered at the end of the log.
    #[inline]
    pub(crate) fn order(&self) -> Order {
        self.order.1
    }

    /// Returns the seqno of the event from which on the group is ordered so.
    pub(crate) fn order_since(&self) -> Seqno {
        self.order.0
    }

    /// Returns how the group is ordered after the entry at `seqno`; below `base`, as at `base`.
    pub(crate) fn order_at(&self, seqno: Seqno) -> Order {
        self.switch_at(seqno).1
    }

    /// Returns the last switch of the order at `seqno` or before: its seqno and the order.
    fn switch_at(&self, seqno: Seqno) -> (Seqno, Order) {
        if self.order.0 <= seqno {
            return self.order;
        }
        let earlier = self.earlier_orders.iter().rev().find(|(from, _)| *from <= seqno);
        *earlier.or(self.earlier_orders.first()).unwrap_or(&self.order)
    }

    /// Returns the seqno of the last event known, gaps below it or not, that names a sequencer, if it names `uid`.
    pub(crate) fn last_pass_to(&self, uid: Uid) -> Option<Seqno> {
        let known = (self.received + 1..=self.end()).rev();
        let named = known.filter_map(|seqno| match self.get(seqno)? {
            Entry::Role(named) => Some((seqno, *named)),
            _ => None,
        });
        named.take(1).find(|(_, named)| *named == uid).map(|(seqno, _)| seqno)
    }

    /// Returns the number of events in the log that name a sequencer.
    pub(crate) fn moves(&self) -> u64 {
        self.earlier_terms.len() as u64
    }

    /// Returns the last such event at `seqno` or before, and the sequencer that it names.
    pub(crate) fn term_at(&self, seqno: Seqno) -> (Seqno, Uid) {
        if self.term.0 <= seqno {
            return self.term;
        }
        let earlier = self.earlier_terms.iter().rev().find(|(from, _)| *from <= seqno);
        *earlier.or(self.earlier_terms.front()).unwrap_or(&self.term)
    }

    /// Returns the member whose datagram carries the first entry that is not received: the sender of a message of which
    /// only the seqno is known, else the member that numbers there.
    pub(crate) fn origin_of_next(&self) -> Uid {
        let sender = self.get(self.received + 1).and_then(Entry::sender);
        sender.unwrap_or(self.term_at(self.received).1)
    }

    /// Returns the members that numbered an entry at `seqno` or above, each once, and the one whose term it is now only if
    /// it has numbered one in it.
    pub(crate) fn numberers_from(&self, seqno: Seqno) -> Vec<Uid> {
        let mut numberers = Vec::new();
        let mut last = self.received;
        for (event, uid) in core::iter::once(self.term).chain(self.earlier_terms.iter().rev().copied()) {
            if last > event && last >= seqno && !numberers.contains(&uid) {
                numberers.push(uid);
            }
            if event < seqno {
                break;
            }
            last = event;
        }
        numberers
    }

    /// Returns the seqno of the last join, leave or switch of the order ever, or of the epoch's beginning.
    pub(crate) fn last_change(&self) -> Seqno {
        self.last_change
    }

    /// Returns the seqno of the log's last join, leave, switch of the order or reset, if it lies beyond `seqno`.
    pub(crate) fn change_beyond(&self, seqno: Seqno) -> Option<Seqno> {
        self.changes.last().copied().filter(|&change| change > seqno)
    }

    /// Returns the seqno of the last change of the view within `seqno + 1..=through`.
    pub(crate) fn last_change_within(&self, seqno: Seqno, through: Seqno) -> Option<Seqno> {
        let changes = self.views.iter().rev().map(|(from, _)| *from);
        changes.take_while(|&from| from > seqno).find(|&from| from <= through)
    }

    /// True if the view changed at one of the seqnos `seqno + 1..=through`.
    pub(crate) fn view_changed_within(&self, seqno: Seqno, through: Seqno) -> bool {
        self.views.iter().any(|(from, _)| *from > seqno && *from <= through)
    }

    /// Returns the changes of the view at the seqnos `seqno + 1..=through`: for each the view before it, and its seqno.
    pub(crate) fn view_changes(
        &self,
        seqno: Seqno,
        through: Seqno,
    ) -> impl Iterator<Item = (&Members, Seqno)> {
        let pairs = self.views.windows(2).map(|pair| (&pair[0].1, pair[1].0));
        pairs.filter(move |(_, at)| *at > seqno && *at <= through)
    }

    /// Returns the last numbered message of `sender`, up to `received`.
    pub(crate) fn sender_mark(&self, sender: Uid) -> SenderMark {
        self.at_received.get(sender).copied().unwrap_or_default()
    }

    /// True if a message of some sender is unfinished at `received`.
    pub(crate) fn inside_a_message(&self) -> bool {
        self.at_received.iter().any(|(_, mark)| mark.open)
    }

    /// Stores an entry under its seqno. `data` is the data of a message, if it has arrived. An entry beyond `limit` is
    /// not stored.
    pub(super) fn file(
        &mut self,
        seqno: Seqno,
        mut entry: Entry,
        data: Option<Slice<'_>>,
        limit: Seqno,
    ) -> Filed {
        let sender = data.as_ref().and_then(|_| entry.sender());
        let index = match self.find_slot(seqno, sender, limit) {
            Ok(index) => index,
            Err(filed) => return filed,
        };
        if let (Entry::Message(message), Some(data)) = (&mut entry, data) {
            message.data = Some(self.blocks.keep(seqno, data));
        }
        self.fill_slot(index, entry);
        Filed::New
    }

    /// Stores messages of one sender that arrived together, with consecutive numbers and seqnos. `first` has the seqno
    /// `seqno`.
    pub(super) fn file_run(&mut self, seqno: Seqno, first: Message, run: Pieces, limit: Seqno) {
        let last = seqno + run.len() as u64 - 1;
        let mut filed = 0;
        for (offset, data) in self.blocks.parts(&run) {
            if let Ok(index) = self.find_slot(seqno + offset, Some(first.sender), limit) {
                let (number, data) = (first.number + offset, Some(data));
                self.fill_slot(index, Entry::Message(Message { number, data, ..first }));
                filed += 1;
            }
        }
        self.blocks.keep_run(last, run, filed);
    }

    /// Returns the slot of `seqno` if the arrived entry adds something: the seqno was not known, or its message lacks
    /// the data that arrived. `sender` is the sender of that data, if data arrived.
    #[inline]
    fn find_slot(&mut self, seqno: Seqno, sender: Option<Uid>, limit: Seqno) -> Result<usize, Filed> {
        if seqno <= self.received {
            return Err(Filed::Known);
        }
        if seqno > limit {
            return Err(Filed::TooFar);
        }
        let index = (seqno - self.base - 1) as usize;
        while self.slots.len() <= index {
            self.slots.push_back(None);
        }
        match &self.slots[index] {
            None => Ok(index),
            Some(Entry::Message(known)) if known.data.is_none() && sender == Some(known.sender) => Ok(index),
            Some(_) => Err(Filed::Known),
        }
    }

    #[inline]
    fn fill_slot(&mut self, index: usize, entry: Entry) {
        let slot = &mut self.slots[index];
        self.dataless -= usize::from(slot.is_some());
        if let Entry::Message(message) = &entry {
            match message.data {
                Some(data) => self.bytes += data.len() as u64,
                None => self.dataless += 1,
            }
        }
        *slot = Some(entry);
    }

    /// True if some message has a seqno and no data.
    pub(crate) fn lacks_data(&self) -> bool {
        self.dataless > 0
    }

    /// Adds the data of a message that has a seqno and no data. Returns true if there was such a message.
    pub(super) fn supply(&mut self, sender: Uid, number: MessageNumber, data: &Slice<'_>) -> bool {
        if !self.lacks_data() {
            return false;
        }
        let first = (self.received - self.base) as usize;
        for (seqno, slot) in (self.received + 1..).zip(self.slots.iter_mut().skip(first)) {
            if let Some(Entry::Message(message)) = slot
                && message.data.is_none()
                && message.sender == sender
                && message.number == number
            {
                message.data = Some(self.blocks.keep(seqno, data.clone()));
                self.bytes += data.len() as u64;
                self.dataless -= 1;
                return true;
            }
        }
        false
    }

    /// Moves `received` forward over all entries that are held now.
    pub(super) fn advance(&mut self) {
        while let Some(entry) = self.held(self.received + 1) {
            match entry {
                Entry::Message(message) => {
                    let (sender, mut mark) = (message.sender, message.mark());
                    self.received += 1;
                    // Usually many messages of one sender follow each other.
                    while let Some(Entry::Message(next)) = self.held(self.received + 1)
                        && next.sender == sender
                    {
                        mark = next.mark();
                        self.received += 1;
                    }
                    self.at_received.insert(sender, mark);
                }
                Entry::Change(change) => {
                    let change = change.clone();
                    self.received += 1;
                    self.enter_change(self.received, &change);
                }
                Entry::Role(sequencer) => {
                    let sequencer = *sequencer;
                    self.received += 1;
                    self.begin_term(self.received, sequencer);
                }
                Entry::Reset(_) => self.received += 1,
            }
        }
    }

    fn begin_term(&mut self, seqno: Seqno, sequencer: Uid) {
        let before = core::mem::replace(&mut self.term, (seqno, sequencer));
        self.earlier_terms.push_back(before);
    }

    #[cold]
    fn enter_change(&mut self, seqno: Seqno, change: &Change) {
        let mut members = self.view().to_vec();
        match change {
            Change::Join { member, .. } => {
                if members.iter().all(|known| known.uid != member.uid) {
                    members.push(member.clone());
                }
            }
            Change::Leave { uid, sequencer, .. } => {
                let before = members.len();
                members.retain(|member| member.uid != *uid);
                if members.len() == before {
                    return;
                }
                if self.term().1 == *uid && !members.is_empty() {
                    self.begin_term(seqno, *sequencer);
                }
                self.at_received.remove(*uid);
            }
            Change::Order { order, sequencer } => {
                self.begin_term(seqno, *sequencer);
                self.begin_order(seqno, *order);
            }
            // It is an entry of another kind ([`Entry::of_change`]).
            Change::Role { .. } => return,
        }
        self.views.push((seqno, Arc::new(members)));
        self.changes.push(seqno);
        self.last_change = seqno;
    }

    /// Appends a message under the next seqno; only the sequencer does this. The log must have no gap.
    #[inline]
    pub(super) fn append_message(&mut self, message: Message, data: Slice<'_>) -> Seqno {
        self.bytes += data.len() as u64;
        let data = Some(self.blocks.keep(self.received + 1, data));
        self.append(Entry::Message(Message { data, ..message }))
    }

    /// Appends any other entry in the same way.
    pub(super) fn append(&mut self, entry: Entry) -> Seqno {
        debug_assert_eq!(self.received, self.end());
        self.slots.push_back(Some(entry));
        self.advance();
        self.received
    }

    /// Frees all entries through `through`, which every member holds.
    #[inline(never)]
    pub(super) fn purge(&mut self, through: Seqno) {
        let through = through.min(self.received);
        while self.base < through {
            let Some(Some(entry)) = self.slots.pop_front() else { return };
            self.base += 1;
            match entry {
                Entry::Message(message) => {
                    let mut last = message;
                    self.bytes -= last.data.map_or(0, Part::len) as u64;
                    while self.base < through
                        && let Some(Some(Entry::Message(next))) = self.slots.front()
                        && next.sender == last.sender
                    {
                        last = *next;
                        self.bytes -= last.data.map_or(0, Part::len) as u64;
                        self.slots.pop_front();
                        self.base += 1;
                    }
                    self.at_base.insert(last.sender, last.mark());
                }
                Entry::Change(change) => {
                    if let Change::Leave { uid, .. } = *change {
                        self.at_base.remove(uid);
                    }
                }
                Entry::Role(_) => {}
                Entry::Reset(_) => {
                    let view = self.views.iter().find(|(seqno, _)| *seqno == self.base);
                    close_messages(&mut self.at_base, view.map(|(_, members)| &***members));
                }
            }
        }
        self.blocks.release_through(self.base);
        while self.views.len() > 1 && self.views[1].0 <= self.base {
            self.views.remove(0);
        }
        while !self.earlier_terms.is_empty() && self.earlier_terms.get(1).unwrap_or(&self.term).0 <= self.base
        {
            self.earlier_terms.pop_front();
        }
        while !self.earlier_orders.is_empty()
            && self.earlier_orders.get(1).unwrap_or(&self.order).0 <= self.base
        {
            self.earlier_orders.remove(0);
        }
        while self.changes.first().is_some_and(|&seqno| seqno <= self.base) {
            self.changes.remove(0);
        }
    }

    /// See [`super::Log::give_floor_to_first`].
    pub(super) fn give_floor_to_first(&mut self, floor: Floor) {
        let Some((_, view)) = self.views.last_mut() else { return };
        let members = view.len();
        if let Some(first) = Arc::make_mut(view).first_mut()
            && first.floor.of(members) < floor.of(members)
        {
            first.floor = floor;
        }
    }

    /// See [`super::Log::keep_order`].
    pub(super) fn keep_order(&mut self, order: Order) {
        if self.order() != order {
            self.begin_order(self.received, order);
        }
    }

    /// Notes that the group is ordered so from `seqno` on.
    fn begin_order(&mut self, seqno: Seqno, order: Order) {
        self.earlier_orders.push(core::mem::replace(&mut self.order, (seqno, order)));
    }

    /// Drops all entries beyond `keep`, those beyond a gap included.
    pub(super) fn cut(&mut self, keep: Seqno) {
        while self.end() > keep.max(self.base) {
            if let Some(Some(Entry::Message(message))) = self.slots.pop_back() {
                match message.data {
                    Some(data) => self.bytes -= data.len() as u64,
                    None => self.dataless -= 1,
                }
            }
        }
        self.blocks.cut(keep.max(self.base));
        if self.received <= keep {
            return;
        }
        self.received = keep.max(self.base);
        self.views.retain(|(seqno, _)| *seqno <= keep);
        while self.term.0 > keep
            && let Some(before) = self.earlier_terms.pop_back()
        {
            self.term = before;
        }
        // A switch that is cut off was never in force.
        while self.order.0 > self.received
            && let Some(before) = self.earlier_orders.pop()
        {
            self.order = before;
        }
        self.changes.retain(|seqno| *seqno <= keep);
        self.last_change = self.last_change.min(self.changes.last().copied().unwrap_or(self.base));
        let mut marks = self.at_base.clone();
        for seqno in self.base + 1..=self.received {
            self.mark_entry(&mut marks, seqno);
        }
        self.at_received = marks;
    }

    /// See [`super::Log::readdress`].
    pub(super) fn readdress(&mut self, address: SocketAddr) -> bool {
        let [(_, view)] = &mut self.views[..] else { return false };
        if view.len() != 1 || !self.changes.is_empty() {
            return false;
        }
        Arc::make_mut(view).iter_mut().for_each(|member| member.address = address);
        true
    }

    /// Appends a reset event: a new epoch begins with these members, and the first of them is the sequencer.
    pub(super) fn append_reset(&mut self, members: Vec<Member>, reset: Reset) -> Seqno {
        let sequencer = members.first().map_or(Uid(0), |member| member.uid);
        close_messages(&mut self.at_received, Some(&members));
        let seqno = self.append(Entry::Reset(Box::new(reset)));
        self.views.push((seqno, Arc::new(members)));
        self.begin_term(seqno, sequencer);
        self.changes.push(seqno);
        self.last_change = seqno;
        seqno
    }

    /// Returns the seqnos that this member lacks, through the log's end or through `target` if that is higher: at most
    /// `limit` ranges, ascending.
    pub(crate) fn gaps(&self, target: Seqno, limit: usize) -> Vec<(Seqno, Seqno)> {
        let mut gaps: Vec<(Seqno, Seqno)> = Vec::new();
        let last = self.end().max(target);
        let mut seqno = self.received + 1;
        while seqno <= last {
            if seqno > self.end() {
                push_gap(&mut gaps, seqno, last, limit);
                break;
            }
            if self.held(seqno).is_none() && !push_gap(&mut gaps, seqno, seqno, limit) {
                break;
            }
            seqno += 1;
        }
        gaps
    }
}

/// Applies a reset event to the marks: unfinished messages are discarded, and only `members` keep a mark.
fn close_messages(marks: &mut Table<SenderMark>, members: Option<&[Member]>) {
    marks.retain(|uid, mark| {
        mark.open = false;
        members.is_none_or(|members| members.iter().any(|member| member.uid == uid))
    });
}

fn push_gap(gaps: &mut Vec<(Seqno, Seqno)>, from: Seqno, to: Seqno, limit: usize) -> bool {
    if let Some(last) = gaps.last_mut()
        && last.1 + 1 == from
    {
        last.1 = to;
        return true;
    }
    let fits = gaps.len() < limit;
    if fits {
        gaps.push((from, to));
    }
    fits
}

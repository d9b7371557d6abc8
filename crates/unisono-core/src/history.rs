//! The history: numbered entries, kept until every member holds them.
//!
//! It is the member's log, from `base` (where everything below has been held by all) to the highest place it has
//! heard of. `received` is how far it goes without a gap, data included: what the papers' members acknowledge, and
//! the length of the log that a vote names. Views, terms and the senders' last numbers are read off the log as
//! `received` moves, and only there.

use crate::blocks::{Blocks, Part, Slice};
use crate::identity::{EpochId, Member, MessageNumber, Seqno, Uid};
use crate::table::Table;
use crate::wire::{Change, Frame, LogBase, Pieces, run_overhead};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Members in rank order, shared by all who look at the same place.
pub(crate) type Members = Arc<Vec<Member>>;

/// One numbered entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    Message(Message),
    Change(Box<Change>),
    /// The reset event with which an epoch begins; its view is that of its place.
    Reset(Box<Reset>),
}

/// There are many of them.
const _: () = assert!(size_of::<Option<Entry>>() <= 32);

impl Entry {
    /// Whose message it is, if it is one.
    fn sender(&self) -> Option<Uid> {
        match self {
            Entry::Message(message) => Some(message.sender),
            Entry::Change(_) | Entry::Reset(_) => None,
        }
    }
}

/// A numbered message, or a piece of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) sender: Uid,
    pub(crate) number: MessageNumber,
    /// How many crashes it is to survive, if more than the group's resilience.
    pub(crate) resilience: u8,
    /// It came by BB: its data went to everybody before it had a number.
    pub(crate) broadcast: bool,
    /// Where its data lies. Nothing as long as only its number is known.
    pub(crate) data: Option<Part>,
}

impl Message {
    /// The sender's next piece continues this message.
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
    pub(crate) excluded: Vec<Member>,
    pub(crate) degraded: bool,
    pub(crate) forced: bool,
}

/// What is known of a sender at some place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SenderMark {
    /// Its last numbered message.
    pub(crate) number: MessageNumber,
    /// That one is to be continued.
    pub(crate) open: bool,
}

/// What became of an entry that was filed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filed {
    /// It was not known.
    New,
    /// It was known already.
    Known,
    /// It lies too far ahead to be kept.
    TooFar,
}

#[derive(Clone, Debug)]
pub(crate) struct History {
    base: Seqno,
    slots: VecDeque<Option<Entry>>,
    /// The data of messages, by their places.
    blocks: Blocks,
    received: Seqno,
    /// Payload bytes held.
    bytes: u64,
    /// Entries with a number whose data has not come.
    dataless: usize,
    /// Views, each from a place on; the first is that of `base`.
    views: Vec<(Seqno, Members)>,
    /// Naming events and whom they name; the first is that of `base`.
    terms: Vec<(Seqno, Uid)>,
    /// Joins, leaves and resets beyond `base`, ascending.
    changes: Vec<Seqno>,
    /// The place of the last join or leave ever, or of the epoch's beginning.
    last_change: Seqno,
    at_base: Table<SenderMark>,
    at_received: Table<SenderMark>,
}

impl History {
    /// An empty log after `base`.
    pub(crate) fn new(base: &LogBase) -> History {
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
            terms: Vec::from([base.term]),
            changes: Vec::new(),
            last_change: base.seqno,
            at_base: marks.clone(),
            at_received: marks,
        }
    }

    /// What a joiner must be told in order to begin its log after `seqno`, which lies in this one. A message may be unfinished
    /// there: none is where its JOIN is, from which on it delivers.
    pub(crate) fn log_base(&self, seqno: Seqno) -> LogBase {
        let mut marks = self.at_base.clone();
        for place in self.base + 1..=seqno {
            self.mark_entry(&mut marks, place);
        }
        LogBase {
            seqno,
            members: self.view_at(seqno).to_vec(),
            term: self.term_at(seqno),
            last_numbers: marks.iter().map(|(uid, mark)| (uid, mark.number)).collect(),
        }
    }

    /// What the entry at `seqno` says of its sender, or of those who are no members any more.
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
            None => {}
        }
    }

    pub(crate) fn base(&self) -> Seqno {
        self.base
    }

    /// The highest place of which anything is known.
    pub(crate) fn end(&self) -> Seqno {
        self.base + self.slots.len() as u64
    }

    /// Everything through here is held, data included.
    pub(crate) fn received(&self) -> Seqno {
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

    /// Bytes of a datagram that gives somebody this place, at the most; none if it is not held.
    pub(crate) fn place_bytes(&self, seqno: Seqno) -> usize {
        let entry_bytes = match self.held(seqno) {
            Some(Entry::Message(message)) => message.data.map_or(0, Part::len),
            Some(Entry::Change(change)) => {
                let frame = Frame::Change { seqno, change: (**change).clone() };
                frame.encode_alone().map_or(0, |alone| alone.len())
            }
            Some(Entry::Reset(_)) | None => return 0,
        };
        run_overhead() + entry_bytes
    }

    /// The entry at a place that is held, data included.
    pub(crate) fn held(&self, seqno: Seqno) -> Option<&Entry> {
        self.get(seqno).filter(|entry| !matches!(entry, Entry::Message(Message { data: None, .. })))
    }

    /// The data of a message of this log; nothing as long as only its number is known.
    pub(crate) fn data(&self, message: &Message) -> Option<Slice<'_>> {
        self.blocks.slice(message.data?)
    }

    /// The view in force after the entry at `seqno`; that of the base for places before it.
    pub(crate) fn view_at(&self, seqno: Seqno) -> &Members {
        let found = self.views.iter().rev().find(|(from, _)| *from <= seqno);
        &found.unwrap_or(&self.views[0]).1
    }

    /// The view at the end of the log.
    pub(crate) fn view(&self) -> &Members {
        &self.views[self.views.len() - 1].1
    }

    /// The place of the first change of the view after `seqno`, if there is one.
    pub(crate) fn next_change_after(&self, seqno: Seqno) -> Option<Seqno> {
        let changes = self.views.iter().rev().map(|(from, _)| *from);
        changes.take_while(|&from| from > seqno).last()
    }

    /// The last naming event of the log, and whom it names.
    pub(crate) fn term(&self) -> (Seqno, Uid) {
        self.terms[self.terms.len() - 1]
    }

    /// The naming event in force after the entry at `seqno`, and whom it names.
    pub(crate) fn term_at(&self, seqno: Seqno) -> (Seqno, Uid) {
        self.terms.iter().rev().find(|(from, _)| *from <= seqno).copied().unwrap_or(self.terms[0])
    }

    /// The last join or leave ever, or the place with which the epoch began.
    pub(crate) fn last_change(&self) -> Seqno {
        self.last_change
    }

    /// The last join or leave that lies beyond `seqno` and in the log.
    pub(crate) fn change_beyond(&self, seqno: Seqno) -> Option<Seqno> {
        self.changes.last().copied().filter(|&place| place > seqno)
    }

    /// The view changed after `seqno`, at `through` or before.
    pub(crate) fn view_changed_within(&self, seqno: Seqno, through: Seqno) -> bool {
        self.views.iter().any(|(from, _)| *from > seqno && *from <= through)
    }

    /// The places after `seqno`, at `through` or before, at which the view changed, each with the view before it.
    pub(crate) fn view_changes(
        &self,
        seqno: Seqno,
        through: Seqno,
    ) -> impl Iterator<Item = (&Members, Seqno)> {
        let pairs = self.views.windows(2).map(|pair| (&pair[0].1, pair[1].0));
        pairs.filter(move |(_, place)| *place > seqno && *place <= through)
    }

    /// The last numbered message of `sender`, as far as this log goes without a gap.
    pub(crate) fn sender_mark(&self, sender: Uid) -> SenderMark {
        self.at_received.get(sender).copied().unwrap_or_default()
    }

    /// Some sender's message is to be continued at the end of the log.
    pub(crate) fn inside_a_message(&self) -> bool {
        self.at_received.iter().any(|(_, mark)| mark.open)
    }

    /// Files an entry that was heard under its number, with its data if it is a message and that is here.
    /// Nothing is kept beyond `limit`.
    pub(crate) fn file(
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

    /// The same of messages of one sender that came together, with consecutive numbers: `first` of them is at `seqno`.
    pub(crate) fn file_run(&mut self, seqno: Seqno, first: Message, run: Pieces, limit: Seqno) {
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

    /// The slot of a place of which something new is told: more than its number, if it is a message with data of this
    /// `sender`.
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

    /// Some message has its number and no data.
    pub(crate) fn lacks_data(&self) -> bool {
        self.dataless > 0
    }

    /// Gives a message that has its number but no data its data. True if some entry took it.
    pub(crate) fn supply(&mut self, sender: Uid, number: MessageNumber, data: &Slice<'_>) -> bool {
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

    /// Moves `received` over everything that is held now.
    pub(crate) fn advance(&mut self) {
        while let Some(entry) = self.held(self.received + 1) {
            match entry {
                Entry::Message(message) => {
                    let (sender, mut mark) = (message.sender, message.mark());
                    self.received += 1;
                    // Mostly many of one sender follow each other.
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
                Entry::Reset(_) => self.received += 1,
            }
        }
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
                    self.terms.push((seqno, *sequencer));
                }
                self.at_received.remove(*uid);
            }
            Change::Role { sequencer } => {
                self.terms.push((seqno, *sequencer));
                return;
            }
        }
        self.views.push((seqno, Arc::new(members)));
        self.changes.push(seqno);
        self.last_change = seqno;
    }

    /// Appends a message under the next number: the sequencer's own act. The log must have no gap.
    pub(crate) fn append_message(&mut self, message: Message, data: Slice<'_>) -> Seqno {
        self.bytes += data.len() as u64;
        let data = Some(self.blocks.keep(self.received + 1, data));
        self.append(Entry::Message(Message { data, ..message }))
    }

    /// The same of any other entry.
    pub(crate) fn append(&mut self, entry: Entry) -> Seqno {
        debug_assert_eq!(self.received, self.end());
        self.slots.push_back(Some(entry));
        self.advance();
        self.received
    }

    /// Forgets everything through `through`, which every member holds.
    #[inline(never)]
    pub(crate) fn purge(&mut self, through: Seqno) {
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
                Entry::Reset(_) => {
                    let view = self.views.iter().find(|(place, _)| *place == self.base);
                    close_messages(&mut self.at_base, view.map(|(_, members)| &***members));
                }
            }
        }
        self.blocks.release_through(self.base);
        while self.views.len() > 1 && self.views[1].0 <= self.base {
            self.views.remove(0);
        }
        while self.terms.len() > 1 && self.terms[1].0 <= self.base {
            self.terms.remove(0);
        }
        while self.changes.first().is_some_and(|&place| place <= self.base) {
            self.changes.remove(0);
        }
    }

    /// Drops everything beyond `keep`, holes and all.
    pub(crate) fn cut(&mut self, keep: Seqno) {
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
        self.views.retain(|(place, _)| *place <= keep);
        self.terms.retain(|(place, _)| *place <= keep);
        self.changes.retain(|place| *place <= keep);
        self.last_change = self.last_change.min(self.changes.last().copied().unwrap_or(self.base));
        let mut marks = self.at_base.clone();
        for place in self.base + 1..=self.received {
            self.mark_entry(&mut marks, place);
        }
        self.at_received = marks;
    }

    /// Ends the log with a reset event: a new epoch begins with these members, the first of whom orders.
    pub(crate) fn append_reset(&mut self, members: Vec<Member>, reset: Reset) -> Seqno {
        let sequencer = members.first().map_or(Uid(0), |member| member.uid);
        close_messages(&mut self.at_received, Some(&members));
        let seqno = self.append(Entry::Reset(Box::new(reset)));
        self.views.push((seqno, Arc::new(members)));
        self.terms.push((seqno, sequencer));
        self.changes.push(seqno);
        self.last_change = seqno;
        seqno
    }

    /// Places lacking through `target`: up to `limit` ranges, ascending.
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

/// At a reset event unfinished messages are given up, and only members have a mark.
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

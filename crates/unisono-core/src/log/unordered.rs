//! The unordered buffer: data that has no seqno yet (the 1989 paper's *hold*).
//!
//! The sequencer takes messages from here to number them. Other members keep data here that came by BB until they
//! receive its seqno. For each sender, only a window of messages after its last numbered one is kept, so a member that
//! floods the group slows down only itself.

use super::blocks::{Blocks, Part, Slice};
use super::history::Message;
use crate::identity::{MessageNumber, Uid};
use crate::quality::Quality;
use crate::table::Table;
use crate::wire::Pieces;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use bytes::Bytes;
use core::ops::Range;

/// What a message asks for together with its seqno.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Manner {
    pub(crate) quality: Quality,
    pub(crate) broadcast: bool,
    /// True if the announcement of its seqno may wait.
    pub(crate) patient: bool,
}

impl Manner {
    /// Returns the entry of such a message; the history adds the position of its data.
    pub(crate) fn numbered(self, sender: Uid, number: MessageNumber) -> Message {
        let Manner { quality, broadcast, .. } = self;
        Message { sender, number, quality, broadcast, data: None }
    }
}

/// A message without a seqno.
#[derive(Clone, Copy, Debug)]
struct Held {
    manner: Manner,
    data: Part,
}

#[derive(Clone, Debug, Default)]
struct Queue {
    /// Message number of the first slot.
    first: MessageNumber,
    slots: VecDeque<Option<Held>>,
    /// Data of the slots, by message number.
    blocks: Blocks,
    /// The sender's first message number of this epoch: lower ones are not waited for.
    base: MessageNumber,
}

impl Queue {
    /// Drops messages that need no seqno any more: through the sender's message `last`, or below its first one of this
    /// epoch. Returns the next message number.
    fn begin_after(&mut self, last: MessageNumber, base: MessageNumber) -> MessageNumber {
        self.base = self.base.max(base);
        let next = (last + 1).max(self.base);
        self.forget_below(next);
        next
    }

    /// Returns the next message that may be numbered after the sender's message `last`, if it is here, and whether it is
    /// to be continued.
    fn next(&self, last: MessageNumber) -> Option<(MessageNumber, bool)> {
        let number = (last + 1).max(self.base);
        let held = self.slots.get(usize::try_from(number.checked_sub(self.first)?).ok()?)?.as_ref()?;
        Some((number, held.data.more))
    }

    fn forget_below(&mut self, number: MessageNumber) {
        while self.first < number && self.slots.pop_front().is_some() {
            self.first += 1;
        }
        if self.slots.is_empty() {
            self.first = self.first.max(number);
        }
        self.blocks.release_through(number.saturating_sub(1));
    }
}

/// Returns the slot of a message that is not here and whose number is in `kept`.
#[inline]
fn find_slot(
    slots: &mut VecDeque<Option<Held>>,
    first: MessageNumber,
    number: MessageNumber,
    kept: Range<MessageNumber>,
) -> Option<&mut Option<Held>> {
    if !kept.contains(&number) {
        return None;
    }
    let index = usize::try_from(number.checked_sub(first)?).ok()?;
    while slots.len() <= index {
        slots.push_back(None);
    }
    slots.get_mut(index).filter(|slot| slot.is_none())
}

/// Data without a seqno, of all senders.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnorderedBuffer {
    queues: Table<Queue>,
}

impl UnorderedBuffer {
    /// Keeps a message, unless it has a seqno already (`last` is the sender's last numbered one), is known, or lies
    /// beyond the sender's window. Returns true if it was kept.
    pub(crate) fn keep(
        &mut self,
        (sender, number): (Uid, MessageNumber),
        base: MessageNumber,
        last: MessageNumber,
        window: u64,
        manner: Manner,
        data: Slice<'_>,
    ) -> bool {
        let queue = self.queues.get_or_insert_with(sender, Queue::default);
        let next = queue.begin_after(last, base);
        let Some(slot) = find_slot(&mut queue.slots, queue.first, number, next..next + window) else {
            return false;
        };
        *slot = Some(Held { manner, data: queue.blocks.keep(number, data) });
        true
    }

    /// Keeps messages that came together, from `number` on, in the same way. Returns true if any of them was kept.
    pub(crate) fn keep_run(
        &mut self,
        (sender, number): (Uid, MessageNumber),
        base: MessageNumber,
        last: MessageNumber,
        window: u64,
        manner: Manner,
        run: Pieces,
    ) -> bool {
        let queue = self.queues.get_or_insert_with(sender, Queue::default);
        let next = queue.begin_after(last, base);
        let through = number + run.len() as u64 - 1;
        let mut kept = 0;
        for (offset, data) in queue.blocks.parts(&run) {
            let wanted = next..next + window;
            if let Some(slot) = find_slot(&mut queue.slots, queue.first, number + offset, wanted) {
                *slot = Some(Held { manner, data });
                kept += 1;
            }
        }
        queue.blocks.keep_run(through, run, kept);
        kept > 0
    }

    /// Returns the next message of `sender` that may be numbered after its message `last`, if it is here, and whether
    /// it is to be continued.
    pub(crate) fn next(&self, sender: Uid, last: MessageNumber) -> Option<(MessageNumber, bool)> {
        self.queues.get(sender)?.next(last)
    }

    /// Returns what a message that is here as a whole asks for, and its bytes.
    pub(crate) fn get(&self, sender: Uid, number: MessageNumber) -> Option<(Quality, Bytes)> {
        let queue = self.queues.get(sender)?;
        let index = usize::try_from(number.checked_sub(queue.first)?).ok()?;
        let held = queue.slots.get(index)?.as_ref().filter(|held| !held.data.more)?;
        Some((held.manner.quality, queue.blocks.slice(held.data)?.share()))
    }

    /// Returns the sender's first message number of this epoch, as far as it is known here.
    pub(crate) fn base(&self, sender: Uid) -> MessageNumber {
        self.queues.get(sender).map_or(0, |queue| queue.base)
    }

    /// Takes a message out.
    pub(crate) fn take(&mut self, sender: Uid, number: MessageNumber) -> Option<(Manner, Slice<'_>)> {
        let queue = self.queues.get_mut(sender)?;
        let index = usize::try_from(number.checked_sub(queue.first)?).ok()?;
        let Held { manner, data } = queue.slots.get_mut(index)?.take()?;
        if index == 0 {
            queue.slots.pop_front();
            queue.first += 1;
        }
        Some((manner, queue.blocks.take(data)?))
    }

    /// Drops the messages of `sender` through `last`, which have a seqno.
    pub(crate) fn forget_through(&mut self, sender: Uid, last: MessageNumber) {
        if let Some(queue) = self.queues.get_mut(sender) {
            queue.forget_below(last + 1);
        }
    }

    /// Returns the numbers that are lacking before messages of `sender` that are here, if the number after `last` is
    /// one of them: at most `limit` ascending ranges.
    pub(crate) fn gaps(
        &self,
        sender: Uid,
        last: MessageNumber,
        limit: usize,
    ) -> Vec<(MessageNumber, MessageNumber)> {
        let Some(queue) = self.queues.get(sender) else { return Vec::new() };
        let mut gaps = Vec::new();
        if queue.next(last).is_some() {
            return gaps;
        }
        let mut next = (last + 1).max(queue.base);
        let here = (queue.first..).zip(&queue.slots).filter(|(_, slot)| slot.is_some());
        for (number, _) in here.skip_while(|(number, _)| *number <= last) {
            if gaps.len() == limit {
                break;
            }
            if number > next {
                gaps.push((next, number - 1));
            }
            next = number + 1;
        }
        gaps
    }

    /// Returns the senders of messages that are here.
    pub(crate) fn senders(&self) -> impl Iterator<Item = Uid> {
        self.queues.iter().filter(|(_, queue)| !queue.slots.is_empty()).map(|(uid, _)| uid)
    }

    pub(crate) fn forget_sender(&mut self, sender: Uid) {
        self.queues.remove(sender);
    }

    pub(crate) fn clear(&mut self) {
        self.queues.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn keep(
        buffer: &mut UnorderedBuffer,
        number: MessageNumber,
        base: MessageNumber,
        last: MessageNumber,
    ) -> bool {
        let manner = Manner { quality: Quality::ORDERED, broadcast: false, patient: false };
        let text = Bytes::from_static(b"text");
        buffer.keep((Uid(1), number), base, last, 8, manner, Slice::alone(false, &text))
    }

    #[test]
    fn gives_messages_out_in_the_senders_order_and_names_the_gap() {
        let (mut buffer, a) = (UnorderedBuffer::default(), Uid(1));
        assert!(keep(&mut buffer, 3, 1, 0));
        assert!(keep(&mut buffer, 1, 1, 0));
        assert!(!keep(&mut buffer, 1, 1, 0));
        assert_eq!(buffer.next(a, 0).map(|(number, _)| number), Some(1));
        assert_eq!(buffer.next(a, 1), None);
        buffer.take(a, 1);
        buffer.forget_through(a, 1);
        assert_eq!(buffer.gaps(a, 1, 9), [(2, 2)]);
        assert!(keep(&mut buffer, 2, 1, 1));
        assert_eq!(buffer.gaps(a, 1, 9), []);
    }

    #[test]
    fn keeps_a_window_only_and_nothing_below_the_base() {
        let (mut buffer, a) = (UnorderedBuffer::default(), Uid(1));
        assert!(!keep(&mut buffer, 9, 1, 0));
        assert!(keep(&mut buffer, 8, 1, 0));
        // A reset failed 1 to 19: the sender goes on at 20.
        assert!(keep(&mut buffer, 20, 20, 0));
        assert_eq!(buffer.next(a, 0).map(|(number, _)| number), Some(20));
        assert_eq!(buffer.senders().count(), 1);
    }
}

//! Hold: data that has no number yet.
//!
//! The orderer takes from here what it numbers; a member keeps here what came by BB until the accept says where it
//! belongs. For each sender a window of messages after its last numbered one is kept, no more, so a member that
//! floods presses on nobody but itself.

use crate::identity::{MessageNumber, Uid};
use crate::table::Table;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use bytes::Bytes;

/// A message without a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) more: bool,
    pub(crate) resilience: u8,
    pub(crate) broadcast: bool,
    /// Its sender can wait for its number.
    pub(crate) patient: bool,
    pub(crate) bytes: Bytes,
}

#[derive(Clone, Debug, Default)]
struct Queue {
    /// The message number of the first slot.
    first: MessageNumber,
    slots: VecDeque<Option<Held>>,
    /// The sender's first number of this epoch: nobody waits for one below it.
    base: MessageNumber,
}

impl Queue {
    fn forget_below(&mut self, number: MessageNumber) {
        while self.first < number && self.slots.pop_front().is_some() {
            self.first += 1;
        }
        if self.slots.is_empty() {
            self.first = self.first.max(number);
        }
    }
}

/// Unnumbered data of all senders.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hold {
    queues: Table<Queue>,
}

impl Hold {
    /// Keeps a message, unless it is already numbered (`last` is the sender's last numbered one), known, or beyond
    /// the sender's window. True if it was kept.
    pub(crate) fn keep(
        &mut self,
        sender: Uid,
        number: MessageNumber,
        base: MessageNumber,
        last: MessageNumber,
        window: u64,
        held: Held,
    ) -> bool {
        let queue = self.queues.get_or_insert_with(sender, Queue::default);
        queue.base = queue.base.max(base);
        let next = (last + 1).max(queue.base);
        queue.forget_below(next);
        if number < next || number - next >= window {
            return false;
        }
        let Some(index) = number.checked_sub(queue.first).and_then(|index| usize::try_from(index).ok())
        else {
            return false;
        };
        while queue.slots.len() <= index {
            queue.slots.push_back(None);
        }
        let slot = &mut queue.slots[index];
        let fresh = slot.is_none();
        if fresh {
            *slot = Some(held);
        }
        fresh
    }

    /// The next message of `sender` that may be numbered after its message `last`, if it is here.
    pub(crate) fn next(&self, sender: Uid, last: MessageNumber) -> Option<(MessageNumber, &Held)> {
        let queue = self.queues.get(sender)?;
        let number = (last + 1).max(queue.base);
        let held = queue.slots.get(usize::try_from(number.checked_sub(queue.first)?).ok()?)?.as_ref()?;
        Some((number, held))
    }

    /// Takes a message out.
    pub(crate) fn take(&mut self, sender: Uid, number: MessageNumber) -> Option<Held> {
        let queue = self.queues.get_mut(sender)?;
        queue.slots.get_mut(usize::try_from(number.checked_sub(queue.first)?).ok()?)?.take()
    }

    /// Drops what `sender` had numbered through `last`.
    pub(crate) fn forget_through(&mut self, sender: Uid, last: MessageNumber) {
        if let Some(queue) = self.queues.get_mut(sender) {
            queue.forget_below(last + 1);
        }
    }

    /// The numbers that are lacking before something of `sender` that is here, if the one after its message `last` is
    /// among them: at most `limit` ranges, ascending.
    pub(crate) fn gaps(
        &self,
        sender: Uid,
        last: MessageNumber,
        limit: usize,
    ) -> Vec<(MessageNumber, MessageNumber)> {
        let Some(queue) = self.queues.get(sender) else { return Vec::new() };
        let mut gaps = Vec::new();
        if self.next(sender, last).is_some() {
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

    /// Who has something here.
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

    fn held(text: &'static str) -> Held {
        let bytes = Bytes::from_static(text.as_bytes());
        Held { more: false, resilience: 0, broadcast: false, patient: false, bytes }
    }

    #[test]
    fn gives_messages_out_in_the_senders_order_and_names_the_gap() {
        let (mut hold, a) = (Hold::default(), Uid(1));
        assert!(hold.keep(a, 3, 1, 0, 8, held("three")));
        assert!(hold.keep(a, 1, 1, 0, 8, held("one")));
        assert!(!hold.keep(a, 1, 1, 0, 8, held("again")));
        assert_eq!(hold.next(a, 0).map(|(number, _)| number), Some(1));
        assert_eq!(hold.next(a, 1), None);
        hold.take(a, 1);
        hold.forget_through(a, 1);
        assert_eq!(hold.gaps(a, 1, 9), [(2, 2)]);
        assert!(hold.keep(a, 2, 1, 1, 8, held("two")));
        assert_eq!(hold.gaps(a, 1, 9), []);
    }

    #[test]
    fn keeps_a_window_only_and_nothing_below_the_base() {
        let (mut hold, a) = (Hold::default(), Uid(1));
        assert!(!hold.keep(a, 9, 1, 0, 8, held("beyond")));
        assert!(hold.keep(a, 8, 1, 0, 8, held("last")));
        // A reset failed 1 to 19: the sender goes on at 20.
        assert!(hold.keep(a, 20, 20, 0, 8, held("twenty")));
        assert_eq!(hold.next(a, 0).map(|(number, _)| number), Some(20));
        assert_eq!(hold.senders().count(), 1);
    }
}

//! Reassembly: the pieces of large messages, put together at the seqno of the last piece.

use crate::identity::Uid;
use crate::table::Table;
use alloc::vec::Vec;
use bytes::{Bytes, BytesMut};

/// Unfinished messages of all senders.
#[derive(Clone, Debug, Default)]
pub(crate) struct Assembly {
    parts: Table<(usize, Vec<Bytes>)>,
}

impl Assembly {
    /// Takes the next piece of `sender`; returns the message if that was its last piece. A message of more than
    /// `bytes_max` bytes is dropped, because its sender broke the rule.
    pub(crate) fn take(&mut self, sender: Uid, more: bool, bytes: Bytes, bytes_max: usize) -> Option<Bytes> {
        if !more && !self.parts.contains(sender) {
            return Some(bytes);
        }
        let (total, parts) = self.parts.get_or_insert_with(sender, || (0, Vec::new()));
        *total += bytes.len();
        if *total <= bytes_max {
            parts.push(bytes);
        } else {
            parts.clear();
        }
        if more {
            return None;
        }
        let (total, parts) = self.parts.remove(sender)?;
        if total > bytes_max {
            return None;
        }
        let mut whole = BytesMut::with_capacity(total);
        parts.iter().for_each(|part| whole.extend_from_slice(part));
        Some(whole.freeze())
    }

    /// True if a message of `sender` is unfinished.
    pub(crate) fn is_open(&self, sender: Uid) -> bool {
        self.parts.contains(sender)
    }

    pub(crate) fn forget_sender(&mut self, sender: Uid) {
        self.parts.remove(sender);
    }

    pub(crate) fn clear(&mut self) {
        self.parts.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fragment::cut;

    #[test]
    fn what_was_cut_comes_together_again() {
        for (size, pieces) in [(0, 1), (1, 1), (10, 1), (11, 2), (35, 4)] {
            let payload: Bytes = (0..size).map(|i| i as u8).collect();
            for room in 0..=10 {
                let cut: Vec<_> = cut(payload.clone(), 10, room).collect();
                assert_eq!(cut.len(), pieces);
                let mut assembly = Assembly::default();
                let mut whole = None;
                for (more, bytes) in cut {
                    assert_eq!(whole, None);
                    whole = assembly.take(Uid(1), more, bytes, 100);
                }
                assert_eq!(whole, Some(payload.clone()));
            }
        }
    }

    #[test]
    fn a_message_over_the_limit_is_given_up_and_the_next_is_not() {
        let mut assembly = Assembly::default();
        for _ in 0..5 {
            assert_eq!(assembly.take(Uid(1), true, Bytes::from_static(b"0123456789"), 30), None);
        }
        assert_eq!(assembly.take(Uid(1), false, Bytes::new(), 30), None);
        let next = Bytes::from_static(b"next");
        assert_eq!(assembly.take(Uid(1), false, next.clone(), 30), Some(next));
    }
}

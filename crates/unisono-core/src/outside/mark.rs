//! The mark of a message from outside: how the payload of a group's message carries the client and its number.
//!
//! A payload that begins with the eight bytes [`MARK`] is marked. The next byte says whether a message from outside
//! follows, with its client and number, or an ordinary message that happens to begin with the same eight bytes: every send
//! puts the mark of the second kind before such a one. So each payload is read back as it was given, and a message without a
//! mark costs no byte.

use crate::event::Outside;
use crate::identity::Uid;
use alloc::vec::Vec;
use bytes::{Buf, BufMut, Bytes};

/// The first bytes of a marked payload: drawn at random, so that hardly any other payload begins with them.
const MARK: [u8; 8] = [0xd7, 0x1c, 0x93, 0x5a, 0xe8, 0x06, 0xb1, 0x4f];
/// Kind of a mark: an ordinary message that begins like a marked one.
const PLAIN: u8 = 0;
/// Kind of a mark: a message from outside.
const FROM_OUTSIDE: u8 = 1;
/// Bytes of the mark of a message from outside.
const OUTSIDE_BYTES: usize = MARK.len() + 1 + 16;

/// Returns the payload of a message from outside with its mark.
pub(crate) fn mark(outside: Outside, payload: &[u8]) -> Bytes {
    let mut marked = Vec::with_capacity(OUTSIDE_BYTES + payload.len());
    marked.put_slice(&MARK);
    marked.put_u8(FROM_OUTSIDE);
    marked.put_u64(outside.client.0);
    marked.put_u64(outside.number);
    marked.put_slice(payload);
    marked.into()
}

/// Returns the payload of an ordinary message as it travels.
#[inline]
pub(crate) fn escape(payload: Bytes) -> Bytes {
    if payload.starts_with(&MARK) { escaped(&payload) } else { payload }
}

#[cold]
fn escaped(payload: &[u8]) -> Bytes {
    let mut marked = Vec::with_capacity(MARK.len() + 1 + payload.len());
    marked.put_slice(&MARK);
    marked.put_u8(PLAIN);
    marked.put_slice(payload);
    marked.into()
}

/// Returns what a payload was before it travelled, and whether it came from outside. A mark that no send writes is part of
/// the payload.
#[inline]
pub(crate) fn unmark(payload: Bytes) -> (Option<Outside>, Bytes) {
    if payload.starts_with(&MARK) { read(payload) } else { (None, payload) }
}

#[inline(never)]
fn read(mut payload: Bytes) -> (Option<Outside>, Bytes) {
    match payload.get(MARK.len()) {
        Some(&PLAIN) => {
            payload.advance(MARK.len() + 1);
            (None, payload)
        }
        Some(&FROM_OUTSIDE) if payload.len() >= OUTSIDE_BYTES => {
            payload.advance(MARK.len() + 1);
            let (client, number) = (Uid(payload.get_u64()), payload.get_u64());
            (Some(Outside { client, number }), payload)
        }
        _ => (None, payload),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_payload_is_read_back_as_it_was_given() {
        let outside = Outside { client: Uid(7), number: u64::MAX };
        let marked = mark(outside, b"hello");
        for payload in [&b""[..], b"hello", &MARK, &marked, &MARK[..7], &escaped(&marked)] {
            let payload = Bytes::copy_from_slice(payload);
            assert_eq!(unmark(escape(payload.clone())), (None, payload.clone()));
            assert_eq!(unmark(mark(outside, &payload)), (Some(outside), payload));
        }
    }

    #[test]
    fn a_mark_that_no_send_writes_is_part_of_the_payload() {
        for tail in [&[][..], &[2], &[FROM_OUTSIDE], &[FROM_OUTSIDE; 16]] {
            let payload = Bytes::from([&MARK[..], tail].concat());
            assert_eq!(unmark(payload.clone()), (None, payload));
        }
    }
}

//! Large messages: cut into pieces when they are sent. `log/assembly` reassembles them when they are delivered.
//!
//! Each piece has its own message number and seqno, so a large message delays no heartbeat, and every bound of the
//! protocol counts pieces. The message is delivered at the seqno of its last piece. A join is never numbered inside a
//! message, and a reset event discards what is unfinished, so all members reassemble the same messages.

use bytes::Bytes;

/// Cuts `payload` into pieces of at most `piece_bytes_max`, without copying; an empty message is one empty piece.
/// Yields each piece with whether more follow. If the first piece may share a datagram in which there is `room`, it is
/// cut to fill that, unless that makes one piece more.
pub(crate) fn cut(
    payload: Bytes,
    piece_bytes_max: usize,
    room: usize,
) -> impl Iterator<Item = (bool, Bytes)> {
    let last = payload.len() % piece_bytes_max.max(1);
    let fills = payload.len() > piece_bytes_max && (last..piece_bytes_max).contains(&room) && last > 0;
    let mut piece_bytes = if fills { room } else { piece_bytes_max };
    let mut rest = Some(payload);
    core::iter::from_fn(move || {
        let mut bytes = rest.take()?;
        if bytes.len() > piece_bytes {
            rest = Some(bytes.split_off(piece_bytes));
        }
        piece_bytes = piece_bytes_max;
        Some((rest.is_some(), bytes))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn the_first_piece_fills_a_datagram_if_there_are_no_more_pieces_by_it() {
        let sizes = |bytes: usize, room| -> Vec<usize> {
            cut(Bytes::from(alloc::vec![0; bytes]), 10, room).map(|(_, piece)| piece.len()).collect()
        };
        assert_eq!(sizes(13, 7), [7, 6]);
        assert_eq!(sizes(13, 3), [3, 10]);
        assert_eq!(sizes(13, 2), [10, 3]);
        assert_eq!(sizes(9, 3), [9]);
        assert_eq!(sizes(23, 5), [5, 10, 8]);
    }
}

//! Frames too large for one datagram, sent in pieces: a [`Frame::Parcel`] each.
//!
//! The sender cuts the encoded frame with [`cut`]. It sends every parcel under the same id, retransmissions too. The
//! receiver has one [`Assembler`] for each sender from which it takes parcels. Parcels may arrive in any order and more
//! than once. The assembler works on one frame at a time; a parcel with a higher id replaces an unfinished frame.

use super::PARCELS_MAX;
use super::frame::{Frame, PARCELLED_BYTES_MAX};
use super::header::HEADER_BYTES;
use super::kind::FrameKind;
use super::writer::FRAME_HEAD_BYTES;
use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;
use alloc::vec::Vec;
use bytes::Bytes;

/// Cuts a frame into parcels, each for a datagram of its own of at most `datagram_bytes_max` bytes, all headers
/// included. `id` must be higher than that of any parcel sent to the same receivers before. `None` if the frame is
/// larger than [`PARCELLED_BYTES_MAX`], or if the datagrams are too small for it.
pub fn cut(frame: &Frame, id: u32, datagram_bytes_max: usize) -> Option<Vec<Frame>> {
    let overhead = HEADER_BYTES + FRAME_HEAD_BYTES + FrameKind::Parcel.body_bytes_min();
    let room = datagram_bytes_max.checked_sub(overhead).filter(|&room| room > 0)?;
    let encoded = Bytes::from(frame.encode_alone()?);
    let count = encoded.len().div_ceil(room);
    if count > PARCELS_MAX {
        return None;
    }
    let parcel = |index: usize| Frame::Parcel {
        id,
        index: index as u16,
        count: count as u16,
        bytes: encoded.slice(index * room..encoded.len().min((index + 1) * room)),
    };
    Some((0..count).map(parcel).collect())
}

/// Assembles the parcels of one sender.
#[derive(Clone, Debug, Default)]
pub struct Assembler {
    /// Id of the present frame, or of the last one. Parcels with lower ids are dropped.
    id: Option<u32>,
    /// Number of parcels of the present frame; 0 when it is complete or given up.
    count: u16,
    parcels: BTreeMap<u16, Bytes>,
    bytes: usize,
}

impl Assembler {
    /// Returns an assembler without parcels.
    pub fn new() -> Assembler {
        Assembler::default()
    }

    /// Takes a parcel: the fields of a [`Frame::Parcel`]. With the parcel that completes the frame it returns the
    /// encoded frame once, for [`Frame::decode_alone`].
    pub fn take(&mut self, id: u32, index: u16, count: u16, bytes: &[u8]) -> Option<Bytes> {
        if self.id.is_none_or(|present| id > present) {
            *self = Assembler { id: Some(id), count, ..Assembler::default() };
        }
        if self.id != Some(id) || self.count != count || index >= count {
            return None;
        }
        if let Entry::Vacant(place) = self.parcels.entry(index) {
            // Copied: a slice would keep its whole datagram, however small the parcel is.
            place.insert(Bytes::copy_from_slice(bytes));
            self.bytes += bytes.len();
        }
        if self.bytes > PARCELLED_BYTES_MAX {
            self.done();
            return None;
        }
        if self.parcels.len() < usize::from(count) {
            return None;
        }
        let mut whole = Vec::with_capacity(self.bytes);
        self.parcels.values().for_each(|parcel| whole.extend_from_slice(parcel));
        self.done();
        Some(whole.into())
    }

    /// Returns the number of bytes held of a frame that is not complete yet.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Keeps only the id, so that late duplicates do not begin the frame again.
    fn done(&mut self) {
        *self = Assembler { id: self.id, ..Assembler::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn large() -> Frame {
        Frame::Tell { nonce: 3, report: (0..3000_u32).map(|i| i as u8).collect() }
    }

    fn feed(assembler: &mut Assembler, parcel: &Frame) -> Option<Bytes> {
        let Frame::Parcel { id, index, count, bytes } = parcel else { panic!("not a parcel") };
        assembler.take(*id, *index, *count, bytes)
    }

    #[test]
    fn parcels_fill_their_datagrams_and_no_more() {
        let parcels = cut(&large(), 1, 576).unwrap();
        assert_eq!(parcels.len(), 6);
        for (index, parcel) in parcels.iter().enumerate() {
            let mut out = vec![0; HEADER_BYTES];
            assert!(super::super::Writer::new(&mut out, 576).frame(parcel));
            assert_eq!(out.len() == 576, index < 5, "{}", out.len());
        }
    }

    #[test]
    fn parcels_in_any_order_and_number_make_the_frame_once() {
        let mut parcels = cut(&large(), 1, 576).unwrap();
        parcels.reverse();
        let last = parcels.pop().unwrap();
        let mut assembler = Assembler::new();
        for parcel in parcels.iter().chain(&parcels) {
            assert_eq!(feed(&mut assembler, parcel), None);
        }
        let whole = feed(&mut assembler, &last).unwrap();
        assert_eq!(Frame::decode_alone(&whole), Ok(large()));
        assert_eq!(assembler.bytes(), 0);
        for parcel in parcels.iter().chain([&last]) {
            assert_eq!(feed(&mut assembler, parcel), None);
        }
        assert_eq!(assembler.bytes(), 0);
    }

    #[test]
    fn a_newer_frame_pushes_an_older_one_out() {
        let older = cut(&large(), 1, 576).unwrap();
        let newer = cut(&Frame::Gone { through: 4 }, 2, 576).unwrap();
        let mut assembler = Assembler::new();
        assert_eq!(feed(&mut assembler, &older[0]), None);
        let whole = feed(&mut assembler, &newer[0]).unwrap();
        assert_eq!(Frame::decode_alone(&whole), Ok(Frame::Gone { through: 4 }));
        for parcel in &older {
            assert_eq!(feed(&mut assembler, parcel), None);
        }
    }

    #[test]
    fn parcels_that_contradict_each_other_are_left_out() {
        let mut assembler = Assembler::new();
        assert_eq!(assembler.take(1, 0, 2, b"ab"), None);
        assert_eq!(assembler.take(1, 1, 3, b"xx"), None);
        assert_eq!(assembler.take(1, 2, 2, b"xx"), None);
        assert_eq!(assembler.take(1, 0, 2, b"xx"), None);
        assert_eq!(assembler.take(1, 1, 2, b"cd").as_deref(), Some(&b"abcd"[..]));
    }

    #[test]
    fn too_much_is_dropped_and_not_begun_again() {
        let mut assembler = Assembler::new();
        let parcel = vec![0; 60_000];
        let fit = PARCELLED_BYTES_MAX / parcel.len();
        for index in 0..fit {
            assert_eq!(assembler.take(7, index as u16, 1000, &parcel), None);
        }
        assert_eq!(assembler.bytes(), fit * parcel.len());
        assert_eq!(assembler.take(7, 999, 1000, &parcel), None);
        assert_eq!(assembler.bytes(), 0);
        assert_eq!(assembler.take(7, 0, 1000, &parcel), None);
        assert_eq!(assembler.bytes(), 0);
    }

    #[test]
    fn a_frame_that_is_too_large_is_not_cut() {
        let frame = Frame::Tell { nonce: 1, report: vec![0; PARCELLED_BYTES_MAX - 8].into() };
        assert_eq!(cut(&frame, 1, 1472), None);
        let frame = Frame::Tell { nonce: 1, report: vec![0; PARCELLED_BYTES_MAX - 9].into() };
        assert!(cut(&frame, 1, 1472).is_some());
        assert_eq!(cut(&frame, 1, HEADER_BYTES), None);
    }
}

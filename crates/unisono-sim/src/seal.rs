//! How simulated datagrams are protected: a sum that finds damage, and costs little.
//!
//! It stands in for the core's checksum, which has tests of its own; here whatever finds the damage will do, and runs
//! are long.

use crate::record::mix;
use unisono_core::wire::{KeyContext, Protection, ProtectionKind, TAG_BYTES};

/// Datagrams look as if they bore the core's checksum.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seal;

impl Seal {
    fn tag(header: &[u8], payload: &[u8]) -> [u8; TAG_BYTES] {
        let mut tag = [0; TAG_BYTES];
        tag[..8].copy_from_slice(&fold(fold(0, header), payload).to_be_bytes());
        tag
    }
}

/// Thirty-two bytes at a time. The last of them may overlap those before; if there are fewer in all, zeros follow.
fn fold(sum: u64, bytes: &[u8]) -> u64 {
    let (chunks, rest) = bytes.as_chunks::<CHUNK>();
    let sum = chunks.iter().fold(sum ^ bytes.len() as u64, fold_chunk);
    match bytes.last_chunk() {
        _ if rest.is_empty() => sum,
        Some(last) => fold_chunk(sum, last),
        None => {
            let mut last = [0; CHUNK];
            last[..rest.len()].copy_from_slice(rest);
            fold_chunk(sum, &last)
        }
    }
}

const CHUNK: usize = 32;

#[inline]
fn fold_chunk(sum: u64, chunk: &[u8; CHUNK]) -> u64 {
    let (words, _) = chunk.as_chunks::<8>();
    let [a, b, c, d] = [0, 1, 2, 3].map(|place| u64::from_le_bytes(words[place]));
    mix(sum ^ a ^ b.rotate_left(23), c ^ d.rotate_left(41))
}

impl Protection for Seal {
    fn kind(&self) -> ProtectionKind {
        ProtectionKind::Checksum
    }

    fn seal(&mut self, _: &KeyContext, _: u64, header: &[u8], payload: &mut [u8]) -> [u8; TAG_BYTES] {
        Seal::tag(header, payload)
    }

    fn open(
        &mut self,
        _: &KeyContext,
        _: u64,
        header: &[u8],
        payload: &mut [u8],
        tag: &[u8; TAG_BYTES],
    ) -> bool {
        Seal::tag(header, payload) == *tag
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_core::Uid;
    use unisono_core::wire::KeyContext;

    #[test]
    fn any_bit_that_turns_is_found() {
        let context = KeyContext { instance: Default::default(), sender: Uid(1) };
        for length in [15, 31, 32, 33, 72] {
            let (mut header, mut payload) = (*b"a header", vec![7; length]);
            let tag = Seal.seal(&context, 1, &header, &mut payload);
            assert!(Seal.open(&context, 1, &header, &mut payload, &tag));
            for bit in 0..8 * length {
                payload[bit / 8] ^= 1 << (bit % 8);
                assert!(!Seal.open(&context, 1, &header, &mut payload, &tag), "bit {bit} of {length} bytes");
                payload[bit / 8] ^= 1 << (bit % 8);
            }
            header[0] ^= 1;
            assert!(!Seal.open(&context, 1, &header, &mut payload, &tag));
        }
    }
}

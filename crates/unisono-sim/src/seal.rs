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

/// Sixteen bytes at a time; the rest as if zeros followed, and so the length.
fn fold(sum: u64, bytes: &[u8]) -> u64 {
    let (chunks, rest) = bytes.as_chunks::<16>();
    let mut last = [0; 16];
    last[..rest.len()].copy_from_slice(rest);
    let chunks = chunks.iter().chain([&last]).map(|chunk| u128::from_le_bytes(*chunk));
    let sum = sum ^ bytes.len() as u64;
    chunks.fold(sum, |sum, chunk| mix(sum ^ chunk as u64, ((chunk >> 64) as u64).rotate_left(32)))
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
        let (mut header, mut payload) = (*b"a header", b"frames and more".to_vec());
        let tag = Seal.seal(&context, 1, &header, &mut payload);
        assert!(Seal.open(&context, 1, &header, &mut payload, &tag));
        for bit in 0..8 * payload.len() {
            payload[bit / 8] ^= 1 << (bit % 8);
            assert!(!Seal.open(&context, 1, &header, &mut payload, &tag), "bit {bit}");
            payload[bit / 8] ^= 1 << (bit % 8);
        }
        header[0] ^= 1;
        assert!(!Seal.open(&context, 1, &header, &mut payload, &tag));
    }
}

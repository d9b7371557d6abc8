//! How simulated datagrams are protected: a sum that finds damage, and costs little.
//!
//! It stands in for the core's checksum, which has tests of its own; here whatever finds the damage will do, and runs
//! are long.

use crate::record::mix;
use std::mem;
use unisono_core::Port;
use unisono_core::rpc::{PortProof, PrivatePort};
use unisono_core::wire::{KeyContext, Proof, Protection, ProtectionKind, TAG_BYTES, parts};

/// Datagrams look as if they bore the core's checksum.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seal;

impl Seal {
    /// The tag of a datagram whose tag is zero.
    fn tag(datagram: &[u8]) -> [u8; TAG_BYTES] {
        let mut tag = [0; TAG_BYTES];
        tag[..8].copy_from_slice(&fold(0, datagram).to_be_bytes());
        tag
    }
}

/// Shows who may serve a port, without cryptography: a proof has the private port in it, and nobody looks there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CheapProof {
    /// Serves a port as if it were its own: what it takes for the private one is the public one.
    pub(crate) forges: bool,
}

impl CheapProof {
    pub(crate) const HONEST: CheapProof = CheapProof { forges: false };

    fn sign(private: u128, claim: &[u8]) -> u64 {
        fold(private as u64 ^ (private >> 64) as u64, claim)
    }
}

impl PortProof for CheapProof {
    fn public(&self, private: &PrivatePort) -> Port {
        if self.forges {
            return Port(private.0);
        }
        let (high, low) = ((private.0 >> 64) as u64, private.0 as u64);
        Port(u128::from(mix(high, low)) << 64 | u128::from(mix(low, !high)))
    }

    fn prove(&self, private: &PrivatePort, claim: &[u8]) -> Proof {
        let mut proof = [0; 96];
        proof[..16].copy_from_slice(&private.0.to_be_bytes());
        proof[16..24].copy_from_slice(&CheapProof::sign(private.0, claim).to_be_bytes());
        Proof(proof)
    }

    fn verify(&self, port: Port, claim: &[u8], proof: &Proof) -> bool {
        let (private, rest) = proof.0.split_at(16);
        let private = private.iter().fold(0, |private, byte| private << 8 | u128::from(*byte));
        CheapProof::HONEST.public(&PrivatePort(private)) == port
            && rest[..8] == CheapProof::sign(private, claim).to_be_bytes()
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
    mix(sum ^ product(a, b), product(c, d).rotate_left(41))
}

/// Of two words: what turns in one is not undone by what turns in the other, as in their sum.
#[inline]
fn product(a: u64, b: u64) -> u64 {
    let product = u128::from(a ^ 0x9e37_79b9_7f4a_7c15) * u128::from(b ^ 0xd6e8_feb8_6659_fd93);
    (product as u64) ^ ((product >> 64) as u64)
}

impl Protection for Seal {
    fn kind(&self) -> ProtectionKind {
        ProtectionKind::Checksum
    }

    fn seal(&mut self, _: &KeyContext, _: u64, datagram: &mut [u8]) {
        let tag = Seal::tag(datagram);
        if let Some(parts) = parts(datagram) {
            *parts.tag = tag;
        }
    }

    fn open(&mut self, _: &KeyContext, _: u64, datagram: &mut [u8]) -> bool {
        let Some(parts) = parts(datagram) else { return false };
        let tag = mem::take(parts.tag);
        tag == Seal::tag(datagram)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_core::Uid;
    use unisono_core::wire::HEADER_BYTES;

    #[test]
    fn only_the_private_port_proves() {
        let (private, honest) = (PrivatePort(77), CheapProof::HONEST);
        let port = honest.public(&private);
        let proof = honest.prove(&private, b"mine");
        assert!(honest.verify(port, b"mine", &proof));
        assert!(!honest.verify(port, b"yours", &proof));
        let forger = CheapProof { forges: true };
        assert_eq!(forger.public(&PrivatePort(port.0)), port);
        assert!(!honest.verify(port, b"mine", &forger.prove(&PrivatePort(port.0), b"mine")));
    }

    #[test]
    fn any_two_bits_that_turn_are_found() {
        let context = KeyContext { instance: Default::default(), sender: Uid(1) };
        let mut sealed = vec![7; HEADER_BYTES + 40];
        *parts(&mut sealed).unwrap().tag = [0; TAG_BYTES];
        Seal.seal(&context, 1, &mut sealed);
        let turn = |datagram: &mut Vec<u8>, bit: usize| datagram[bit / 8] ^= 1 << (bit % 8);
        for first in 0..8 * sealed.len() {
            for second in first + 1..8 * sealed.len() {
                let mut turned = sealed.clone();
                turn(&mut turned, first);
                turn(&mut turned, second);
                assert!(!Seal.open(&context, 1, &mut turned), "bits {first} and {second}");
            }
        }
    }

    #[test]
    fn any_bit_that_turns_is_found() {
        let context = KeyContext { instance: Default::default(), sender: Uid(1) };
        for length in [15, 31, 32, 33, 72] {
            let mut datagram = vec![7; HEADER_BYTES + length];
            *parts(&mut datagram).unwrap().tag = [0; TAG_BYTES];
            Seal.seal(&context, 1, &mut datagram);
            assert!(Seal.open(&context, 1, &mut datagram.clone()));
            for bit in 0..8 * datagram.len() {
                let mut turned = datagram.clone();
                turned[bit / 8] ^= 1 << (bit % 8);
                assert!(!Seal.open(&context, 1, &mut turned), "bit {bit} with {length} bytes");
            }
        }
    }
}

//! Protects simulated datagrams: the tag of a datagram contains its number, and shows whether it was damaged.
//!
//! It stands in for the core's checksum, which has its own tests. In the simulator the code that damages a datagram
//! knows it, and overwrites the tag. A checksum would detect the same damage, but would cost time for each datagram at
//! each receiver.

use crate::record::{hash, mix};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use unisono_core::rpc::{KeyAgreement, Pair, PortProof, PortProver, PrivatePort, PublicKey};
use unisono_core::wire::{KeyContext, Proof, Protection, ProtectionKind, TAG_BYTES, parts};
use unisono_core::{Port, Uid};

/// Produces datagrams that look as if they bore the core's checksum.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seal;

impl Seal {
    /// Returns the tag of the intact datagram with this number.
    fn tag(number: u64) -> [u8; TAG_BYTES] {
        u128::from(mix(0, number)).to_le_bytes()
    }

    /// Overwrites the tag, so that no receiver opens the datagram.
    pub(crate) fn invalidate(datagram: &mut [u8]) {
        if let Some(parts) = parts(datagram) {
            *parts.tag = [u8::MAX; TAG_BYTES];
        }
    }
}

/// Proves that a server may serve a port, without cryptography: the proof contains the private port, and no receiver
/// extracts it.
#[derive(Clone, Debug, Default)]
pub(crate) struct CheapProof {
    /// True for an impostor: it uses the public port in place of the private one.
    pub(crate) forges: bool,
    pub(crate) work: Work,
}

impl CheapProof {
    pub(crate) fn honest() -> CheapProof {
        CheapProof::default()
    }

    /// Returns the port that belongs to a private port.
    pub(crate) fn public(&self, private: &PrivatePort) -> Port {
        if self.forges {
            return Port(private.0);
        }
        let (high, low) = ((private.0 >> 64) as u64, private.0 as u64);
        Port(u128::from(mix(high, low)) << 64 | u128::from(mix(low, !high)))
    }
}

impl PortProof for CheapProof {
    fn prover(&self, private: PrivatePort) -> Box<dyn PortProver> {
        Box::new(CheapProver { private: private.0, port: self.public(&private), work: self.work.clone() })
    }

    fn verify(&self, port: Port, claim: &[u8], proof: &Proof) -> bool {
        self.work.note_checked();
        let (private, rest) = proof.0.split_at(16);
        let private = private.iter().fold(0, |private, byte| private << 8 | u128::from(*byte));
        CheapProof::honest().public(&PrivatePort(private)) == port
            && rest[..8] == sign(private, claim).to_be_bytes()
    }
}

/// Makes proofs for one port.
struct CheapProver {
    private: u128,
    port: Port,
    work: Work,
}

impl PortProver for CheapProver {
    fn port(&self) -> Port {
        self.port
    }

    fn prove(&self, claim: &[u8]) -> Proof {
        self.work.note_made();
        let mut proof = [0; 96];
        proof[..16].copy_from_slice(&self.private.to_be_bytes());
        proof[16..24].copy_from_slice(&sign(self.private, claim).to_be_bytes());
        Proof(proof)
    }
}

fn sign(private: u128, claim: &[u8]) -> u64 {
    mix(private as u64 ^ (private >> 64) as u64, hash(claim))
}

/// Stands in for the key pair of a life: the public key contains the life's uid.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CheapKeys(pub(crate) Uid);

impl KeyAgreement for CheapKeys {
    fn public_key(&self) -> PublicKey {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&self.0.0.to_be_bytes());
        PublicKey(key)
    }

    fn uid_of(&self, key: &PublicKey) -> Uid {
        Uid(key.0[..8].iter().fold(0, |uid, byte| uid << 8 | u64::from(*byte)))
    }

    fn salt(&mut self) -> u64 {
        0
    }

    fn agree(&self, key: &PublicKey) -> Option<Box<dyn Pair>> {
        Some(Box::new(CheapPair { me: self.0, other: self.uid_of(key) }))
    }
}

/// What two lives have agreed on: the tag shows which of them seals for the other.
struct CheapPair {
    me: Uid,
    other: Uid,
}

impl CheapPair {
    fn tag(sender: Uid, receiver: Uid, number: u64) -> [u8; TAG_BYTES] {
        u128::from(mix(mix(sender.0, receiver.0), number)).to_le_bytes()
    }
}

impl Pair for CheapPair {
    fn seal(&mut self, _: u64, number: u64, _: &[u8], _: &mut [u8]) -> Option<[u8; TAG_BYTES]> {
        Some(CheapPair::tag(self.me, self.other, number))
    }

    fn open(&mut self, _: u64, number: u64, _: &[u8], _: &mut [u8], tag: [u8; TAG_BYTES]) -> bool {
        tag == CheapPair::tag(self.other, self.me, number)
    }
}

/// Counts the signatures that a life makes and checks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Work(Arc<[AtomicU64; 2]>);

impl Work {
    fn note_made(&self) {
        self.0[0].fetch_add(1, Ordering::Relaxed);
    }

    fn note_checked(&self) {
        self.0[1].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the numbers of signatures made and checked so far.
    pub(crate) fn done(&self) -> (u64, u64) {
        (self.0[0].load(Ordering::Relaxed), self.0[1].load(Ordering::Relaxed))
    }
}

impl Protection for Seal {
    fn kind(&self) -> ProtectionKind {
        ProtectionKind::Checksum
    }

    fn salt(&mut self) -> u64 {
        0
    }

    fn seal(&mut self, _: &KeyContext, number: u64, datagram: &mut [u8]) -> bool {
        let Some(parts) = parts(datagram) else { return false };
        *parts.tag = Seal::tag(number);
        true
    }

    fn open(&mut self, _: &KeyContext, number: u64, datagram: &mut [u8]) -> bool {
        parts(datagram).is_some_and(|parts| *parts.tag == Seal::tag(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_core::wire::HEADER_BYTES;

    #[test]
    fn only_the_private_port_proves() {
        let (private, honest) = (PrivatePort(77), CheapProof::honest());
        let port = honest.public(&private);
        let proof = honest.prover(private).prove(b"mine");
        assert!(honest.verify(port, b"mine", &proof));
        assert!(!honest.verify(port, b"yours", &proof));
        let forger = CheapProof { forges: true, ..CheapProof::default() }.prover(PrivatePort(port.0));
        assert_eq!(forger.port(), port);
        assert!(!honest.verify(port, b"mine", &forger.prove(b"mine")));
        assert_eq!(honest.work.done(), (1, 3));
    }

    #[test]
    fn a_damaged_or_renumbered_datagram_is_not_opened() {
        let context = KeyContext { instance: Default::default(), sender: Uid(1), salt: 0 };
        let mut sealed = vec![7; HEADER_BYTES + 40];
        assert!(Seal.seal(&context, 1, &mut sealed));
        assert!(Seal.open(&context, 1, &mut sealed));
        assert!(!Seal.open(&context, 2, &mut sealed));
        Seal::invalidate(&mut sealed);
        assert!(!Seal.open(&context, 1, &mut sealed));
        assert!(!Seal.open(&context, 1, &mut sealed[..HEADER_BYTES - 1]));
    }
}

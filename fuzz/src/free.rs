//! Cryptography that lets everything pass: what a process with all keys could send.

use unisono_core::rpc::{KeyAgreement, Pair, PortProof, PortProver, PrivatePort, Proof, PublicKey};
use unisono_core::wire::{KeyContext, Protection, ProtectionKind, TAG_BYTES};
use unisono_core::{Port, Uid};

/// Seals nothing, and opens everything.
pub(crate) struct Free;

impl Protection for Free {
    fn kind(&self) -> ProtectionKind {
        ProtectionKind::Sealed
    }

    fn salt(&mut self) -> u64 {
        1
    }

    fn seal(&mut self, _: &KeyContext, _: u64, _: &mut [u8]) -> bool {
        true
    }

    fn open(&mut self, _: &KeyContext, _: u64, _: &mut [u8]) -> bool {
        true
    }
}

impl PortProof for Free {
    fn prover(&self, private: PrivatePort) -> Box<dyn PortProver> {
        Box::new(Prover(Port(private.0)))
    }

    fn verify(&self, _: Port, _: &[u8], _: &Proof) -> bool {
        true
    }
}

struct Prover(Port);

impl PortProver for Prover {
    fn port(&self) -> Port {
        self.0
    }

    fn prove(&self, _: &[u8]) -> Proof {
        Proof([7; 96])
    }
}

/// The keys of a life: its public key contains the uid.
pub(crate) struct FreeKeys(pub(crate) Uid);

impl KeyAgreement for FreeKeys {
    fn public_key(&self) -> PublicKey {
        let mut key = [7; 32];
        key[..8].copy_from_slice(&self.0.0.to_be_bytes());
        PublicKey(key)
    }

    fn uid_of(&self, key: &PublicKey) -> Uid {
        Uid(key.0.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes)))
    }

    fn salt(&mut self) -> u64 {
        1
    }

    fn agree(&self, _: &PublicKey) -> Option<Box<dyn Pair>> {
        Some(Box::new(FreePair))
    }
}

struct FreePair;

impl Pair for FreePair {
    fn seal(&mut self, _: u64, _: u64, _: &[u8], _: &mut [u8]) -> Option<[u8; TAG_BYTES]> {
        Some([0; TAG_BYTES])
    }

    fn open(&mut self, _: u64, _: u64, _: &[u8], _: &mut [u8], _: [u8; TAG_BYTES]) -> bool {
        true
    }
}

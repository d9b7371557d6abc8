//! Stands in for the keys that clients and servers agree on: nothing is encrypted, but a tag fits only what one life said
//! to another, unchanged.

use unisono_core::Uid;
use unisono_core::rpc::{KeyAgreement, Pair, PublicKey};
use unisono_core::wire::TAG_BYTES;

/// The key pair of a life: its public key contains the uid.
pub(crate) struct PlainAgreement(pub(crate) Uid);

/// Returns the public key of the life with this uid.
pub(crate) fn key_of(uid: Uid) -> PublicKey {
    let mut key = [7; 32];
    key[..8].copy_from_slice(&uid.0.to_be_bytes());
    PublicKey(key)
}

impl KeyAgreement for PlainAgreement {
    fn public_key(&self) -> PublicKey {
        key_of(self.0)
    }

    fn uid_of(&self, key: &PublicKey) -> Uid {
        Uid(u64::from_be_bytes(*key.0.first_chunk().unwrap()))
    }

    fn salt(&mut self) -> u64 {
        self.0.0 ^ 5
    }

    fn agree(&self, key: &PublicKey) -> Option<Box<dyn Pair>> {
        Some(Box::new(PlainPair { me: self.0, other: self.uid_of(key) }))
    }
}

/// What two lives have agreed on, as one of them sees it.
pub(crate) struct PlainPair {
    pub(crate) me: Uid,
    pub(crate) other: Uid,
}

fn tag((sender, receiver): (Uid, Uid), words: [u64; 2], covered: &[u8], contents: &[u8]) -> [u8; TAG_BYTES] {
    let step = |hash: u64, word: u64| (hash ^ word).wrapping_mul(0x0100_0000_01b3).rotate_left(23);
    let hash = [sender.0, receiver.0].into_iter().chain(words).fold(0xcbf2_9ce4_8422_2325, step);
    let bytes = covered.iter().chain(contents);
    let hash = bytes.fold(hash, |hash, byte| step(hash, u64::from(*byte) + 1));
    u128::from(hash).to_be_bytes()
}

impl Pair for PlainPair {
    fn seal(
        &mut self,
        salt: u64,
        number: u64,
        covered: &[u8],
        contents: &mut [u8],
    ) -> Option<[u8; TAG_BYTES]> {
        Some(tag((self.me, self.other), [salt, number], covered, contents))
    }

    fn open(
        &mut self,
        salt: u64,
        number: u64,
        covered: &[u8],
        contents: &mut [u8],
        sealed: [u8; TAG_BYTES],
    ) -> bool {
        sealed == tag((self.other, self.me), [salt, number], covered, contents)
    }
}

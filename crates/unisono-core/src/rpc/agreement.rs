//! Keys that a client and a server agree on, which no other process has.
//!
//! Every life of an endpoint has a key pair. A client states its public key when it asks for a port, and the server's
//! signed answer contains the server's; from the two keys both compute the same secret (X25519). It seals their requests
//! and replies, so that other clients of the same service can neither read nor forge them. The uid of a life is computed
//! from its public key, so that no other life can take its place.
//!
//! The core does no cryptography: the caller passes it a [`KeyAgreement`].

use crate::identity::Uid;
use crate::wire::{PublicKey, TAG_BYTES};
use alloc::boxed::Box;
use core::fmt;

/// The key pair of one life.
pub trait KeyAgreement: Send {
    /// Returns the public key of this life.
    fn public_key(&self) -> PublicKey;

    /// Returns the uid of the life with this public key. Another key with the same uid takes about 2⁶⁴ tries.
    fn uid_of(&self, key: &PublicKey) -> Uid;

    /// Returns the salt for the next envelope: a random number that changes from time to time, so that a copy of this
    /// process's memory seals with other keys as soon as the system gives it other random numbers.
    fn salt(&mut self) -> u64;

    /// Agrees with the life that has this public key. `None` if no secret comes of the key.
    fn agree(&self, key: &PublicKey) -> Option<Box<dyn Pair>>;
}

/// What two lives have agreed on: seals what one sends to the other.
pub trait Pair: Send {
    /// Encrypts the contents in place, and returns the tag, which covers them and `covered`. The caller never passes one
    /// `number` twice. `None` if this failed; the contents must not be sent then.
    fn seal(
        &mut self,
        salt: u64,
        number: u64,
        covered: &[u8],
        contents: &mut [u8],
    ) -> Option<[u8; TAG_BYTES]>;

    /// Decrypts in place what the other life sealed, and returns true if the tag fits. Otherwise the contents have no
    /// meaning afterwards.
    fn open(
        &mut self,
        salt: u64,
        number: u64,
        covered: &[u8],
        contents: &mut [u8],
        tag: [u8; TAG_BYTES],
    ) -> bool;
}

impl fmt::Debug for dyn Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pair(secret)")
    }
}

/// The contents of an envelope that was received, before they are opened.
pub(super) struct Closed<'a> {
    pub(super) salt: u64,
    pub(super) number: u64,
    pub(super) covered: &'a [u8],
    pub(super) contents: &'a mut [u8],
    pub(super) tag: [u8; TAG_BYTES],
}

impl Closed<'_> {
    /// Opens the contents in place. Returns true if the other life of this pair sealed them.
    pub(super) fn open_with(self, pair: &mut dyn Pair) -> bool {
        pair.open(self.salt, self.number, self.covered, self.contents, self.tag)
    }
}

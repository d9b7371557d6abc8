//! Proof that a process may serve a port.
//!
//! A server listens with a private port and clients send to its public image, so knowing where to send is not enough to
//! serve. In Amoeba, trusted kernels computed the image. Here a server signs every `PortHere`, and the client checks
//! the signature. The core does no cryptography: the caller passes it a [`PortProof`].

use crate::identity::{Port, Uid};
use crate::wire::{Cookie, Proof};
use alloc::boxed::Box;
use core::fmt;

/// The secret with which a server listens: 128 bits that no other process should know.
#[derive(Clone, PartialEq, Eq)]
pub struct PrivatePort(pub u128);

impl fmt::Debug for PrivatePort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrivatePort(..)")
    }
}

/// Makes and checks proofs that a server knows a private port.
pub trait PortProof: Send {
    /// Returns what makes proofs for this private port. All that can be computed once is computed here.
    fn prover(&self, private: PrivatePort) -> Box<dyn PortProver>;

    /// True if the maker of this claim knows the private port that belongs to `port`.
    fn verify(&self, port: Port, claim: &[u8], proof: &Proof) -> bool;
}

/// Makes proofs for one port.
pub trait PortProver: Send {
    /// Returns the port that clients send to.
    fn port(&self) -> Port;

    /// Returns a proof that the maker of this claim knows the private port.
    fn prove(&self, claim: &[u8]) -> Proof;
}

/// Length of a claim in bytes.
const CLAIM_BYTES: usize = 81;

/// Returns the claim that a server signs: that this life serves the port, for this client's question with this nonce.
pub(super) fn claim(
    nonce: u64,
    client: Uid,
    server: Uid,
    port: Port,
    cookie: Cookie,
    repeats: bool,
    instance: u64,
) -> [u8; CLAIM_BYTES] {
    let mut claim = [0; CLAIM_BYTES];
    let mut rest = &mut claim[..];
    let mut put = |bytes: &[u8]| {
        let (front, back) = core::mem::take(&mut rest).split_at_mut(bytes.len());
        front.copy_from_slice(bytes);
        rest = back;
    };
    put(b"unisono: I serve");
    put(&port.0.to_be_bytes());
    for word in [nonce, client.0, server.0, cookie.issued, cookie.seal] {
        put(&word.to_be_bytes());
    }
    put(&[u8::from(repeats)]);
    put(&instance.to_be_bytes());
    claim
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_differs_with_everything_in_it() {
        let cookie = Cookie { issued: 5, seal: 6 };
        let base = claim(1, Uid(2), Uid(3), Port(4), cookie, false, 0);
        for other in [
            claim(9, Uid(2), Uid(3), Port(4), cookie, false, 0),
            claim(1, Uid(9), Uid(3), Port(4), cookie, false, 0),
            claim(1, Uid(2), Uid(9), Port(4), cookie, false, 0),
            claim(1, Uid(2), Uid(3), Port(9), cookie, false, 0),
            claim(1, Uid(2), Uid(3), Port(4), Cookie { issued: 9, seal: 6 }, false, 0),
            claim(1, Uid(2), Uid(3), Port(4), Cookie { issued: 5, seal: 9 }, false, 0),
            claim(1, Uid(2), Uid(3), Port(4), cookie, true, 0),
            claim(1, Uid(2), Uid(3), Port(4), cookie, false, 9),
        ] {
            assert_ne!(other, base);
        }
    }
}

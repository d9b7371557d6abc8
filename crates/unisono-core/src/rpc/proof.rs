//! Who may serve a port.
//!
//! A server listens with a private port and clients send to its public image, so that knowing where to send does not
//! let anybody serve. Amoeba's kernels computed the image and were trusted to; here a server signs every answer to a
//! question, and the client looks. The core does no cryptography: it is handed a [`PortProof`].

use crate::identity::{Port, Uid};
use crate::wire::{Cookie, Proof};
use core::fmt;

/// What a server listens with: 128 bits that nobody else should know.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PrivatePort(pub u128);

impl fmt::Debug for PrivatePort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrivatePort(..)")
    }
}

/// Makes public ports of private ones, and shows and sees that a server knows the private one.
pub trait PortProof: Send {
    /// What clients send to.
    fn public(&self, private: &PrivatePort) -> Port;

    /// Shows that whoever makes this claim knows the private port.
    fn prove(&self, private: &PrivatePort, claim: &[u8]) -> Proof;

    /// Whoever made this claim knows the private port that belongs to this one.
    fn verify(&self, port: Port, claim: &[u8], proof: &Proof) -> bool;
}

/// Bytes of a claim.
const CLAIM_BYTES: usize = 73;

/// What a server claims when it answers a question: that this life serves the port, to this client, who asked with this
/// nonce just now.
pub(super) fn claim(
    nonce: u64,
    client: Uid,
    server: Uid,
    port: Port,
    cookie: Cookie,
    repeats: bool,
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
    claim
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_differs_with_everything_in_it() {
        let cookie = Cookie { issued: 5, seal: 6 };
        let base = claim(1, Uid(2), Uid(3), Port(4), cookie, false);
        for other in [
            claim(9, Uid(2), Uid(3), Port(4), cookie, false),
            claim(1, Uid(9), Uid(3), Port(4), cookie, false),
            claim(1, Uid(2), Uid(9), Port(4), cookie, false),
            claim(1, Uid(2), Uid(3), Port(9), cookie, false),
            claim(1, Uid(2), Uid(3), Port(4), Cookie { issued: 9, seal: 6 }, false),
            claim(1, Uid(2), Uid(3), Port(4), Cookie { issued: 5, seal: 9 }, false),
            claim(1, Uid(2), Uid(3), Port(4), cookie, true),
        ] {
            assert_ne!(other, base);
        }
    }
}

//! Proof that a process may serve a port.
//!
//! A server listens with a private port and clients send to its public image, so knowing where to send is not enough to
//! serve. In Amoeba, trusted kernels computed the image. Here a server signs every `PortHere`, and the client checks
//! the signature. The core does no cryptography: the caller passes it a [`PortProof`].

use crate::identity::{Port, Uid};
use crate::wire::{Cookie, Proof, PublicKey};
use alloc::boxed::Box;
use core::fmt;
use core::net::{IpAddr, SocketAddr};

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
const CLAIM_BYTES: usize = 163;

/// What a server signs: that this life serves the port at this address, for this client's question with this nonce.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    pub(super) nonce: u64,
    pub(super) port: Port,
    pub(super) client: (Uid, PublicKey),
    pub(super) server: (Uid, PublicKey),
    pub(super) address: SocketAddr,
    pub(super) cookie: Cookie,
    pub(super) repeats: bool,
    pub(super) instance: u64,
}

impl Claim {
    /// Returns the bytes that are signed.
    pub(super) fn bytes(&self) -> [u8; CLAIM_BYTES] {
        let mut claim = [0; CLAIM_BYTES];
        let mut rest = &mut claim[..];
        let mut put = |bytes: &[u8]| {
            let (front, back) = core::mem::take(&mut rest).split_at_mut(bytes.len());
            front.copy_from_slice(bytes);
            rest = back;
        };
        put(b"unisono: I serve");
        put(&self.port.0.to_be_bytes());
        let Cookie { issued, seal } = self.cookie;
        for word in [self.nonce, self.client.0.0, self.server.0.0, issued, seal] {
            put(&word.to_be_bytes());
        }
        put(&[u8::from(self.repeats)]);
        put(&self.instance.to_be_bytes());
        put(&self.client.1.0);
        put(&self.server.1.0);
        // Both families in one form, IPv4 as IPv6 writes it.
        let ip = match self.address.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        put(&ip.octets());
        put(&self.address.port().to_be_bytes());
        claim
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_differs_with_everything_in_it() {
        let cookie = Cookie { issued: 5, seal: 6 };
        let (mine, yours) = (PublicKey([7; 32]), PublicKey([8; 32]));
        let base = Claim {
            nonce: 1,
            port: Port(4),
            client: (Uid(2), mine),
            server: (Uid(3), yours),
            address: SocketAddr::from(([10, 0, 0, 1], 9)),
            cookie,
            repeats: false,
            instance: 0,
        };
        for other in [
            Claim { nonce: 9, ..base },
            Claim { port: Port(9), ..base },
            Claim { client: (Uid(9), mine), ..base },
            Claim { client: (Uid(2), yours), ..base },
            Claim { server: (Uid(9), yours), ..base },
            Claim { server: (Uid(3), mine), ..base },
            Claim { address: SocketAddr::from(([10, 0, 0, 1], 10)), ..base },
            Claim { address: SocketAddr::from(([10, 0, 0, 2], 9)), ..base },
            Claim { cookie: Cookie { issued: 9, ..cookie }, ..base },
            Claim { cookie: Cookie { seal: 9, ..cookie }, ..base },
            Claim { repeats: true, ..base },
            Claim { instance: 9, ..base },
        ] {
            assert_ne!(other.bytes(), base.bytes(), "{other:?}");
        }
        assert_eq!(
            base.bytes()[CLAIM_BYTES - 2..],
            9_u16.to_be_bytes(),
            "the claim has bytes that nothing fills"
        );
    }
}

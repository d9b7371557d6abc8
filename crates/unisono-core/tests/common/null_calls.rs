//! Two endpoints whose datagrams arrive at once, for measuring the cost of a call. This driver itself costs next to
//! nothing.

use bytes::{Bytes, BytesMut};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::Duration;
use unisono_core::rpc::*;
use unisono_core::wire::{Checksum, TAG_BYTES};
use unisono_core::*;

/// Time from one round to the next.
const PACE: Duration = Duration::from_micros(20);
/// Time from one client to the next: the server proves to each that it has the port, at most 1,000 times per second.
const CLIENT_PACE: Duration = Duration::from_millis(2);
/// Maximum number of exchanges of a round.
const EXCHANGES_MAX: usize = 1_000;

const CLIENT: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 1));
const SERVER: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 2));

/// A proof that every process can make that knows the port.
struct NoProof;

impl PortProof for NoProof {
    fn prover(&self, private: PrivatePort) -> Box<dyn PortProver> {
        Box::new(NoProver(Port(private.0)))
    }

    fn verify(&self, _: Port, _: &[u8], _: &Proof) -> bool {
        true
    }
}

struct NoProver(Port);

impl PortProver for NoProver {
    fn port(&self) -> Port {
        self.0
    }

    fn prove(&self, _: &[u8]) -> Proof {
        Proof([0; 96])
    }
}

/// A key pair that keeps nothing secret, and costs nothing.
struct NoAgreement(u64);

impl KeyAgreement for NoAgreement {
    fn public_key(&self) -> PublicKey {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&self.0.to_be_bytes());
        PublicKey(key)
    }

    fn uid_of(&self, key: &PublicKey) -> Uid {
        Uid(u64::from_be_bytes(*key.0.first_chunk().unwrap()))
    }

    fn salt(&mut self) -> u64 {
        0
    }

    fn agree(&self, _: &PublicKey) -> Option<Box<dyn Pair>> {
        Some(Box::new(NoPair))
    }
}

struct NoPair;

impl Pair for NoPair {
    fn seal(&mut self, _: u64, _: u64, _: &[u8], _: &mut [u8]) -> Option<[u8; TAG_BYTES]> {
        Some([0; TAG_BYTES])
    }

    fn open(&mut self, _: u64, _: u64, _: &[u8], _: &mut [u8], _: [u8; TAG_BYTES]) -> bool {
        true
    }
}

pub(crate) struct NullCalls<R> {
    now: Time,
    client: Endpoint,
    server: Endpoint,
    port: Port,
    out: Vec<u8>,
    /// Copies a datagram into the buffer in which it is received.
    receive: R,
    pub(crate) answered: u64,
    pub(crate) datagrams: u64,
}

impl<R: FnMut(&[u8]) -> BytesMut> NullCalls<R> {
    pub(crate) fn new(receive: R) -> NullCalls<R> {
        let now = Time::from_nanos(1);
        let (client, mut server) = (endpoint(now, CLIENT, 1), endpoint(now, SERVER, 2));
        let port = server.serve(PrivatePort(7), ServeOptions::default()).unwrap();
        let out = Vec::with_capacity(2048);
        NullCalls { now, client, server, port, out, receive, answered: 0, datagrams: 0 }
    }

    /// Replaces the client by another one.
    #[allow(dead_code)]
    pub(crate) fn change_client(&mut self, uid: u64) {
        self.now = self.now + CLIENT_PACE;
        self.client = endpoint(self.now, CLIENT, uid);
    }

    /// Makes `at_once` calls, and runs until they are answered.
    pub(crate) fn round(&mut self, at_once: usize) {
        for _ in 0..at_once {
            self.client.call(self.now, self.port, Bytes::new(), Duration::from_secs(5)).unwrap();
        }
        let until = self.answered + at_once as u64;
        let mut exchanges = 0;
        while self.answered < until {
            assert!(exchanges < EXCHANGES_MAX, "{} of {until} calls are answered", self.answered);
            self.exchange();
            exchanges += 1;
        }
    }

    /// Delivers everything that both sides send, and answers the requests.
    fn exchange(&mut self) {
        while self.client.poll_transmit(self.now, &mut self.out).is_some() {
            self.datagrams += 1;
            self.server.handle_datagram(self.now, CLIENT, (self.receive)(&self.out));
        }
        while let Some(request) = self.server.poll_request(self.now) {
            self.server.reply(self.now, request.id, Bytes::new()).unwrap();
        }
        while self.server.poll_transmit(self.now, &mut self.out).is_some() {
            self.datagrams += 1;
            self.client.handle_datagram(self.now, SERVER, (self.receive)(&self.out));
        }
        while let Some((_, outcome)) = self.client.poll_outcome() {
            outcome.unwrap();
            self.answered += 1;
        }
    }

    /// Lets the time of one round pass, and fires the timers that are due.
    pub(crate) fn pass_time(&mut self) {
        self.now = self.now + PACE;
        for endpoint in [&mut self.client, &mut self.server] {
            if endpoint.poll_timeout().is_some_and(|(at, _)| at <= self.now) {
                endpoint.handle_timeout(self.now);
            }
        }
        self.exchange();
    }
}

fn endpoint(now: Time, address: SocketAddr, uid: u64) -> Endpoint {
    let (settings, random) = (CallSettings::default(), Random::from_u64(uid));
    let keys: (Box<dyn PortProof>, Box<dyn KeyAgreement>) = (Box::new(NoProof), Box::new(NoAgreement(uid)));
    Endpoint::new(now, address, settings, Box::new(Checksum), keys, random).unwrap()
}

//! A server answers its clients beside a flood of datagrams with forged source addresses of its own link.
//!
//! No machine has these addresses, so Linux keeps each answer for about 3 s and counts it in the send buffer of the
//! server's socket. The test starts itself again in a network namespace of its own, on a link without other machines.

#[path = "common/namespace.rs"]
mod namespace;

use namespace::run_inside;
use socket2::{Domain, Socket, Type};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use unisono::Options;
use unisono::rpc::{Client, PrivatePort, ServeOptions, Server};
use unisono_core::rpc::CALLS_TAG;
use unisono_core::wire::{self, Checksum, FrameKind, Header, KeyContext, ProtectionKind};
use unisono_core::{EpochTag, Instance, Uid};
use unisono_udp::{Neighbour, Neighbours};

const LINK: &str = "ip link set lo up && ip link add here type veth peer name there \
                    && ip address add 10.195.0.1/16 dev here && ip address add 10.195.0.2/16 dev here \
                    && ip address add fd00:195::1/64 nodad dev here && ip address add fd00:195::2/64 nodad dev here \
                    && ip link set here up && ip link set there up";
/// Addresses of the server and of the client, and the beginning of the forged ones.
const IPV4: [&str; 3] = ["10.195.0.1", "10.195.0.2", "10.195.100."];
const IPV6: [&str; 3] = ["fd00:195::1", "fd00:195::2", "fd00:195::64:"];
/// Forged addresses: each may have about 270 short answers in the kernel, and a send buffer of 8 MiB holds 10,500.
const FORGED: u8 = 120;
const FLOOD_FOR: Duration = Duration::from_secs(5);
/// Up to 12,000 datagrams a second fill 8 MiB in about 1 s.
const STEADY: Flood = Flood { burst: 60, every: Duration::from_millis(5) };
const BURST_EVERY: Duration = Duration::from_millis(250);
/// The answer to each datagram of a burst takes more than this part of the send buffer: 700 fill what Linux grants by default.
const BYTES_OF_AN_ANSWER: usize = 600;
/// Without answers for 3 s, a call does not end within this time.
const ANSWERED_WITHIN: Duration = Duration::from_secs(2);

#[test]
fn answers_to_silent_neighbours_leave_room_for_others() {
    run_inside(LINK, || {
        let bursts = Flood { burst: send_buffer() / BYTES_OF_AN_ANSWER, every: BURST_EVERY };
        for flood in [STEADY, bursts] {
            [IPV4, IPV6].into_iter().for_each(|addresses| call_beside(addresses, &flood));
        }
    });
}

/// Without a seed nothing opens over IPv6, where there is no multicast.
fn options(address: &str, seed: SocketAddr) -> Options {
    Options { bind: Some(at(address)), insecure: true, seeds: vec![seed.to_string()], ..Options::default() }
}

fn at(address: &str) -> SocketAddr {
    SocketAddr::new(address.parse().unwrap(), 0)
}

/// Returns the size of the send buffer of a socket here.
fn send_buffer() -> usize {
    unisono_udp::Socket::bind(at("127.0.0.1")).unwrap().send_buffer().unwrap().size
}

fn call_beside([server, client, forged]: [&str; 3], flood: &Flood) {
    let (any, none) = (PrivatePort::random().unwrap(), SocketAddr::new(at(server).ip(), 9));
    let server = Server::new(&any, ServeOptions::default(), &options(server, none)).unwrap();
    let (port, address) = (server.port(), server.address());
    thread::spawn(move || server.serve(1, |request| request.payload().clone().into()));
    let client = Client::new(&options(client, address)).unwrap();
    client.call(port, "first").unwrap();

    let forged: Vec<IpAddr> = (1..=FORGED).map(|last| format!("{forged}{last}").parse().unwrap()).collect();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            flood.send(&forged, address);
            over.store(true, Ordering::Relaxed);
        });
        while !over.load(Ordering::Relaxed) {
            client.call_within(port, "beside the flood", ANSWERED_WITHIN).unwrap();
        }
    });
    let neighbours = Neighbours::read();
    assert!(forged.iter().any(|forged| neighbours.at(*forged) == Neighbour::Silent), "{neighbours:?}");
}

/// A flood of datagrams.
struct Flood {
    /// Datagrams that follow each other at once.
    burst: usize,
    every: Duration,
}

impl Flood {
    /// Sends datagrams to the server from addresses that no machine has.
    fn send(&self, forged: &[IpAddr], server: SocketAddr) {
        let (datagram, begin) = (of_an_unknown_life(), Instant::now());
        let sockets: Vec<UdpSocket> = forged.iter().map(|forged| forging(*forged)).collect();
        let mut next = sockets.iter().cycle();
        while begin.elapsed() < FLOOD_FOR {
            for socket in next.by_ref().take(self.burst) {
                socket.send_to(&datagram, server).unwrap();
            }
            thread::sleep(self.every);
        }
    }
}

/// Returns a socket that sends from an address that this machine does not have.
fn forging(source: IpAddr) -> UdpSocket {
    let source = SocketAddr::new(source, 4100);
    let socket = Socket::new(Domain::for_address(source), Type::DGRAM, None).unwrap();
    match source {
        SocketAddr::V4(_) => socket.set_ip_transparent_v4(true).unwrap(),
        SocketAddr::V6(_) => socket.set_ip_transparent_v6(true).unwrap(),
    }
    socket.bind(&source.into()).unwrap();
    socket.into()
}

/// Returns a datagram that a server answers: it claims to belong to a life of a client that the server does not know.
fn of_an_unknown_life() -> Vec<u8> {
    let (protection, group, epoch) = (ProtectionKind::Checksum, CALLS_TAG, EpochTag::OUTSIDE);
    let header = Header { protection, group, epoch, sender: Uid(7), number: 1, salt: 0 };
    let mut datagram = Vec::new();
    header.write(&mut datagram);
    // For life 0, salt 0, from a client that knows the server, and 32 sealed bytes.
    let body = [0; 8 + 8 + 1 + 32];
    datagram.push(FrameKind::Envelope as u8);
    datagram.extend_from_slice(&(body.len() as u16).to_be_bytes());
    datagram.extend_from_slice(&body);
    let context = KeyContext { instance: Instance(0), sender: header.sender, salt: header.salt };
    assert!(wire::seal(&mut datagram, &header, &context, &mut Checksum));
    datagram
}

//! What the kernel tells of a neighbour that does not answer, and of the send buffer that datagrams to it fill.
//!
//! The test starts itself again in a network namespace of its own, on a link without other machines.

#[path = "common/namespace.rs"]
mod namespace;

use namespace::run_inside;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use unisono_udp::{Neighbour, Neighbours, Socket};

/// One neighbour of each family has a hardware address all the same: it is written into the table.
const LINK: &str = "ip link add here type veth peer name there \
                    && ip address add 10.195.0.1/16 dev here && ip address add fd00:195::1/64 nodad dev here \
                    && ip link set here up && ip link set there up \
                    && ip neighbour add 10.195.0.2 lladdr 02:00:00:00:00:02 dev here \
                    && ip neighbour add fd00:195::2 lladdr 02:00:00:00:00:02 dev here";
/// Longer than the kernel takes for anything here.
const PATIENCE: Duration = Duration::from_secs(60);
const DATAGRAMS: usize = 50;

#[test]
fn a_neighbour_that_does_not_answer_is_seen_and_fills_the_send_buffer() {
    run_inside(LINK, send_to_neighbours);
}

fn send_to_neighbours() {
    let addresses = [
        ["10.195.0.1", "10.195.0.2", "10.195.0.9", "10.195.0.10"],
        ["fd00:195::1", "fd00:195::2", "fd00:195::9", "fd00:195::a"],
    ];
    for [own, answering, silent, unasked] in addresses {
        let at = |address: &str| SocketAddr::new(address.parse().unwrap(), 9);
        let socket = Socket::bind(SocketAddr::new(at(own).ip(), 0)).unwrap();
        let send_to = |to| (0..DATAGRAMS).for_each(|_| assert_eq!(socket.send(&[7; 100], 100, &[to]), 0));
        let size = socket.send_buffer().unwrap().size;
        assert!(size >= 100_000, "{size}");
        // The kernel drops what is sent until the link is up.
        until("is silent", || {
            send_to(at(silent));
            Neighbours::read().at(at(silent).ip()) == Neighbour::Silent
        });
        let buffer = socket.send_buffer().unwrap();
        assert!(buffer.size == size && buffer.used >= DATAGRAMS * 100, "{buffer:?}");
        until("is given up", || socket.send_buffer().unwrap().used == 0);
        send_to(at(answering));
        until("leaves the buffer", || socket.send_buffer().unwrap().used == 0);
        let neighbours = Neighbours::read();
        assert_eq!(neighbours.at(at(answering).ip()), Neighbour::Answers);
        assert_eq!(neighbours.at(at(unasked).ip()), Neighbour::Unasked);
    }
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "nothing {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

//! From the core's datagrams to the socket: what goes to one place is collected and sent as one run.

use crate::reach::Seeds;
use std::net::SocketAddr;
use std::sync::Arc;
use unisono_core::{Destination, Group, Time};
use unisono_udp::Socket;

/// Most bytes of a run.
const RUN_BYTES_MAX: usize = 60_000;

/// Where the members of one group are reached.
#[derive(Debug)]
pub(crate) struct Reach {
    /// The group's multicast address, if multicast works here.
    pub(crate) multicast: Option<SocketAddr>,
    /// Whom to ask instead of everybody.
    pub(crate) seeds: Seeds,
}

/// Sends what groups have to send.
#[derive(Debug)]
pub(crate) struct Outbox {
    socket: Arc<Socket>,
    /// The datagram that the core writes.
    datagram: Vec<u8>,
    /// Datagrams for one destination, of one size but for the last, which may be shorter.
    run: Vec<u8>,
    segment_bytes: usize,
    /// The last one was shorter: the run is complete.
    complete: bool,
    addresses: Vec<SocketAddr>,
    /// Datagrams that the system refused to send.
    refused: u64,
}

impl Outbox {
    pub(crate) fn new(socket: Arc<Socket>) -> Outbox {
        Outbox {
            socket,
            datagram: Vec::new(),
            run: Vec::new(),
            segment_bytes: 0,
            complete: false,
            addresses: Vec::new(),
            refused: 0,
        }
    }

    /// Sends everything that `group` has to send now. Returns whether that was anything.
    pub(crate) fn drain(&mut self, group: &mut Group, reach: &Reach, now: Time) -> bool {
        let mut destination = None;
        while let Some(next) = group.poll_transmit(now, &mut self.datagram) {
            if destination != Some(next) || !self.takes() {
                self.send(destination, group, reach);
                destination = Some(next);
                self.segment_bytes = self.datagram.len();
            }
            self.complete = self.datagram.len() < self.segment_bytes;
            self.run.extend_from_slice(&self.datagram);
        }
        self.send(destination, group, reach);
        destination.is_some()
    }

    /// The datagram can be added to the run.
    fn takes(&self) -> bool {
        !self.complete
            && self.datagram.len() <= self.segment_bytes
            && self.run.len() + self.datagram.len() <= RUN_BYTES_MAX
    }

    fn send(&mut self, destination: Option<Destination>, group: &Group, reach: &Reach) {
        self.addresses.clear();
        match destination {
            None => return,
            Some(Destination::Address(address)) => self.addresses.push(address),
            Some(Destination::Everyone) => {
                let audience = group.audience();
                self.addresses.extend(reach.multicast.filter(|_| audience.multicast));
                self.addresses.extend_from_slice(&audience.addresses);
            }
            Some(Destination::Multicast) => self.addresses.extend(reach.multicast),
            Some(Destination::Rendezvous) if reach.seeds.is_empty() => self.addresses.extend(reach.multicast),
            Some(Destination::Rendezvous) => {
                self.addresses.extend(reach.seeds.refresh());
                let own = self.socket.address();
                self.addresses.retain(|address| *address != own);
            }
        }
        self.refused += self.socket.send(&self.run, self.segment_bytes, &self.addresses) as u64;
        self.run.clear();
        self.complete = false;
    }
}

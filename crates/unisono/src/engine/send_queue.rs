//! Sends the cores' datagrams: consecutive datagrams for one destination are collected and sent as one run.
//!
//! No thread waits for the socket's send buffer here, because the engine's lock is held. When the buffer is full, what
//! was taken from the core (a run, and the beginning of another) waits to be sent later, and everything else stays in
//! the cores.

use super::following::Doubt;
use super::silent::SilentFilter;
use crate::seeds::Seeds;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use unisono_core::{GroupTag, Time, wire};
use unisono_udp::{Progress, Socket};

/// Maximum length of a run in bytes.
const RUN_BYTES_MAX: usize = 60_000;

/// Where the members of one group are reached.
#[derive(Debug)]
pub(crate) struct Reach {
    /// The group's multicast address, if multicast works here.
    pub(crate) multicast: Option<SocketAddr>,
    /// The addresses to ask instead of a multicast.
    pub(crate) seeds: Seeds,
}

/// What has datagrams to send, and knows the addresses of their destinations.
pub(crate) trait Source {
    /// The destination of a datagram.
    type Destination: Copy + PartialEq;

    /// True if any process can have datagrams sent to an address of its choice. Then those to addresses that do not answer
    /// are dropped while they crowd the send buffer.
    const TO_STRANGERS: bool = false;

    /// False if no machine has shown that it has the address of this destination.
    fn is_proved(_destination: Self::Destination) -> bool {
        true
    }

    /// Writes the next datagram.
    fn transmit(&mut self, now: Time, datagram: &mut Vec<u8>) -> Option<Self::Destination>;

    /// Appends the addresses to which `own` sends a datagram for this destination.
    fn resolve(&self, destination: Self::Destination, own: SocketAddr, addresses: &mut Vec<SocketAddr>);

    /// Notes that datagrams for this destination were sent, or that the system refused all of them: the first address.
    fn note_sent(&mut self, _destination: Self::Destination, _refused: Option<SocketAddr>) {}
}

/// Sends what the cores have to send.
#[derive(Debug)]
pub(crate) struct SendQueue {
    socket: Arc<Socket>,
    /// The datagram that the core writes.
    datagram: Vec<u8>,
    /// Datagrams for one destination, all of one size except the last, which may be shorter.
    run: Vec<u8>,
    segment_bytes: usize,
    /// The last datagram was shorter: the run is complete.
    complete: bool,
    addresses: Vec<SocketAddr>,
    /// Runs that wait for the send buffer; at most two.
    unsent: VecDeque<Unsent>,
    /// Datagrams may be sent: this machine has an address at which others could answer.
    sends: bool,
    /// Raised when the network of this machine refuses a datagram.
    doubt: Arc<Doubt>,
    silent: SilentFilter,
    /// True while a test drops all datagrams that this engine sends and receives.
    #[cfg(test)]
    pub(super) is_cut_off: bool,
}

/// A run that was not or not completely sent.
#[derive(Debug)]
struct Unsent {
    run: Vec<u8>,
    segment_bytes: usize,
    addresses: Vec<SocketAddr>,
    progress: Progress,
}

impl SendQueue {
    pub(crate) fn new(socket: Arc<Socket>, sends: bool, doubt: Arc<Doubt>) -> SendQueue {
        SendQueue {
            socket,
            datagram: Vec::new(),
            run: Vec::new(),
            segment_bytes: 0,
            complete: false,
            addresses: Vec::new(),
            unsent: VecDeque::new(),
            sends,
            doubt,
            silent: SilentFilter::default(),
            #[cfg(test)]
            is_cut_off: false,
        }
    }

    pub(super) fn socket(&self) -> &Arc<Socket> {
        &self.socket
    }

    /// Sends from another socket from now on, and drops what waited for the one before.
    pub(super) fn replace_socket(&mut self, socket: Arc<Socket>) {
        (self.socket, self.sends) = (socket, true);
        self.unsent.clear();
    }

    /// Sends everything that `source` has to send now, until the send buffer is full.
    pub(crate) fn drain<S: Source>(&mut self, source: &mut S, now: Time) {
        let mut destination = None;
        while self.unsent.is_empty()
            && let Some(next) = source.transmit(now, &mut self.datagram)
        {
            if destination != Some(next) || !self.fits() {
                self.send(now, destination, source);
                destination = Some(next);
                self.segment_bytes = self.datagram.len();
            }
            self.complete = self.datagram.len() < self.segment_bytes;
            self.run.extend_from_slice(&self.datagram);
        }
        self.send(now, destination, source);
    }

    /// True if the send buffer is full.
    pub(crate) fn is_full(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Sends what waits for the send buffer. Returns whether all of it was sent.
    pub(crate) fn send_on(&mut self) -> bool {
        while let Some(Unsent { run, segment_bytes, addresses, progress }) = self.unsent.front_mut() {
            if !self.socket.send_on(run, *segment_bytes, addresses, progress) {
                return false;
            }
            self.unsent.pop_front();
        }
        true
    }

    /// Drops the runs with this tag that wait for the send buffer: the life that sent them has ended. Returns whether
    /// that was all that waited.
    pub(crate) fn drop_unsent(&mut self, tag: GroupTag) -> bool {
        let was_full = self.is_full();
        self.unsent.retain(|unsent| wire::group_tag(&unsent.run) != Some(tag));
        was_full && !self.is_full()
    }

    /// True if the datagram can be added to the run.
    fn fits(&self) -> bool {
        !self.complete
            && self.datagram.len() <= self.segment_bytes
            && self.run.len() + self.datagram.len() <= RUN_BYTES_MAX
    }

    fn send<S: Source>(&mut self, now: Time, destination: Option<S::Destination>, source: &mut S) {
        let Some(destination) = destination else { return };
        self.addresses.clear();
        source.resolve(destination, self.socket.address(), &mut self.addresses);
        if !self.sends {
            self.addresses.clear();
        }
        #[cfg(test)]
        if self.is_cut_off {
            self.addresses.clear();
        }
        if S::TO_STRANGERS {
            self.drop_to_silent(now, S::is_proved(destination));
        }
        let mut progress = Progress::default();
        let segment_bytes = self.segment_bytes;
        if self.is_full() || !self.socket.send_on(&self.run, segment_bytes, &self.addresses, &mut progress) {
            let (run, addresses) = (std::mem::take(&mut self.run), std::mem::take(&mut self.addresses));
            self.unsent.push_back(Unsent { run, segment_bytes, addresses, progress });
        }
        if progress.is_without_network() {
            self.doubt.raise();
        }
        source.note_sent(destination, self.refused_to(progress));
        self.run.clear();
        self.complete = false;
    }

    /// Leaves out addresses that do not answer, while datagrams to them crowd the send buffer.
    fn drop_to_silent(&mut self, now: Time, is_proved: bool) {
        if self.silent.is_wary(now, &self.socket) {
            self.silent.retain_answering(is_proved, &mut self.addresses);
        }
        let runs = self.addresses.len();
        self.silent
            .note_sent(runs * self.run.len(), runs * self.run.len().div_ceil(self.segment_bytes.max(1)));
    }

    /// Returns the first address of the run, if the system refused all of it.
    fn refused_to(&self, progress: Progress) -> Option<SocketAddr> {
        let is_whole = || {
            progress.refused() == self.run.len().div_ceil(self.segment_bytes.max(1)) * self.addresses.len()
        };
        self.addresses.first().copied().filter(|_| progress.refused() > 0 && is_whole())
    }
}

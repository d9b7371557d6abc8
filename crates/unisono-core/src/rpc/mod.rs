//! Calls: a client asks a server by its port, and is answered at most once.
//!
//! An [`Endpoint`] is one process's side of all its calls, client and server at once. `client` is calls and the servers
//! they go to, `server` services and the sessions of their clients, `transfer` what is too large for a datagram.
//! `docs/protocol/rpc.md` tells the protocol.

mod client;
mod common;
mod output;
mod proof;
mod server;
mod slab;
mod transfer;
mod types;
mod watch;

pub use crate::wire::{CALL_BYTES_MAX, Cookie, HOPS_MAX, Proof};
pub use proof::{PortProof, PrivatePort};
pub use types::*;
pub use watch::*;

use crate::error::ConfigError;
use crate::identity::{EpochTag, Instance, Port, Uid};
use crate::random::Random;
use crate::time::Time;
use crate::wire::{Decoder, Frame, Header, KeyContext, Protection, ProtectionKind, open};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use bytes::{Bytes, BytesMut};
use client::Client;
use common::Common;
use core::net::SocketAddr;
use core::time::Duration;
use server::{Sender, Server};

/// One process's side of all its calls: a pure state machine.
///
/// Every method is of one of four kinds, as with [`Group`](crate::Group). `handle_…` takes what came from outside.
/// Commands are what the application wants: [`call`](Endpoint::call), [`serve`](Endpoint::serve),
/// [`reply`](Endpoint::reply) and so on. `poll_…` gives what is to be done: after every input and command drain
/// [`poll_transmit`](Endpoint::poll_transmit) and [`poll_outcome`](Endpoint::poll_outcome), take from
/// [`poll_request`](Endpoint::poll_request) what the application wants, and come back by
/// [`poll_timeout`](Endpoint::poll_timeout). The rest looks and changes nothing.
///
/// Time must never go back from one call to the next.
pub struct Endpoint {
    common: Common,
    client: Client,
    server: Server,
    protection: Box<dyn Protection>,
    packet_number: u64,
}

impl Endpoint {
    /// An endpoint that calls nobody and serves nothing yet. `me` must be fresh: 64 random bits that never named
    /// anybody before. The socket must be bound by now, to this life alone: how long a life has been at an address may
    /// show that another's calls were never executed.
    ///
    /// # Errors
    /// A parameter out of its range.
    pub fn new(
        now: Time,
        me: Uid,
        settings: CallSettings,
        protection: Box<dyn Protection>,
        proof: Box<dyn PortProof>,
        random: Random,
    ) -> Result<Endpoint, ConfigError> {
        settings.check()?;
        let mut common = Common {
            me,
            born: now,
            settings,
            proof,
            random,
            mail: VecDeque::new(),
            counters: CallCounters::default(),
            planted: None,
            probes: 0,
        };
        let server = Server::new(&mut common);
        Ok(Endpoint { common, client: Client::default(), server, protection, packet_number: 0 })
    }

    /// Which life it is.
    pub fn uid(&self) -> Uid {
        self.common.me
    }

    // --- inputs ---

    /// A datagram for this endpoint alone has come.
    pub fn handle_datagram(&mut self, now: Time, from: SocketAddr, datagram: BytesMut) {
        self.receive(now, from, datagram, false);
    }

    /// A datagram has come over a multicast address.
    pub fn handle_multicast(&mut self, now: Time, from: SocketAddr, datagram: BytesMut) {
        self.receive(now, from, datagram, true);
    }

    /// The time that [`Endpoint::poll_timeout`] named has come. Harmless at any other time.
    pub fn handle_timeout(&mut self, now: Time) {
        self.client.handle_timeout(now, &mut self.common);
        self.server.handle_timeout(now, &mut self.common);
    }

    fn receive(&mut self, now: Time, from: SocketAddr, datagram: BytesMut, multicast: bool) {
        let Ok(header) = Header::parse(&datagram) else {
            self.common.counters.malformed += 1;
            return;
        };
        if header.group != CALLS_TAG || header.epoch != EpochTag::OUTSIDE {
            return;
        }
        let context = KeyContext { instance: Instance(0), sender: header.sender };
        let Some(payload) = open(datagram, &header, &context, &mut *self.protection) else {
            let same = header.protection == self.protection.kind();
            match same && header.protection == ProtectionKind::Checksum {
                true => self.common.counters.malformed += 1,
                false => self.common.counters.foreign += 1,
            }
            return;
        };
        self.common.counters.datagrams_received += 1;
        let sender = Sender { uid: header.sender, address: from };
        for frame in Decoder::new(payload) {
            match frame {
                Ok(frame) => self.handle_frame(now, sender, frame, multicast),
                Err(_) => {
                    self.common.counters.malformed += 1;
                    return;
                }
            }
        }
    }

    fn handle_frame(&mut self, now: Time, from: Sender, frame: Frame, multicast: bool) {
        let (client, server, common) = (&mut self.client, &mut self.server, &mut self.common);
        let (uid, address) = (from.uid, from.address);
        match frame {
            Frame::Request(request) => server.handle_request(now, common, from, request),
            Frame::Reply(reply) => client.handle_reply(now, common, uid, reply),
            Frame::Part(part) if part.reply => client.handle_part(now, common, uid, &part),
            Frame::Part(part) => server.handle_part(now, common, uid, &part),
            // What is got of a reply, its server wants to know.
            Frame::Got(got) if got.reply => server.handle_got(now, common, uid, &got),
            Frame::Got(got) => client.handle_got(now, common, uid, &got),
            Frame::Working { attempt, grant } => client.handle_working(now, common, uid, attempt, grant),
            Frame::Reject { attempt, grant, reason } => {
                client.handle_reject(now, common, (uid, address), (attempt, grant), reason);
            }
            Frame::Forward { attempt, grant, to } => {
                client.handle_forward(now, common, uid, (attempt, grant), to);
            }
            Frame::Done { to, attempts } => server.handle_done(now, common, uid, to, &attempts),
            Frame::Cancel { attempt } => server.handle_cancel(now, common, uid, attempt),
            Frame::LocatePort { nonce, port } => {
                server.handle_locate(now, common, from, (nonce, port), multicast);
            }
            Frame::PortHere(here) => client.handle_port_here(now, common, (uid, address), &here),
            Frame::PortNotHere { nonce, port } => {
                client.handle_port_not_here(now, common, (uid, address), (nonce, port));
            }
            _ => common.counters.malformed += 1,
        }
    }

    // --- the client ---

    /// Calls whoever serves the port; the outcome comes from [`Endpoint::poll_outcome`], within `deadline` from now.
    ///
    /// # Errors
    /// The request is too large, or too many calls are under way. Nothing was sent.
    pub fn call(
        &mut self,
        now: Time,
        port: Port,
        request: Bytes,
        deadline: Duration,
    ) -> Result<CallNumber, CallError> {
        self.client.call(now, &mut self.common, port, request, deadline)
    }

    /// Waits for this call no longer: no outcome is reported. It may have happened.
    pub fn cancel(&mut self, now: Time, call: CallNumber) {
        self.client.cancel(now, &mut self.common, call);
    }

    /// What became of a call.
    pub fn poll_outcome(&mut self) -> Option<(CallNumber, Result<Bytes, CallFailure>)> {
        self.client.poll_outcome()
    }

    // --- the server ---

    /// Serves a port from now on.
    ///
    /// # Errors
    /// The port is served here already, or as many as can be are.
    pub fn serve(&mut self, port: PrivatePort, options: ServeOptions) -> Result<Port, ServeError> {
        self.server.serve(&mut self.common, port, options)
    }

    /// Serves a port no longer. Requests that wait are rejected, and clients go elsewhere; those that the application
    /// has may still be answered.
    pub fn withdraw(&mut self, port: Port) {
        self.server.withdraw(&mut self.common, port);
    }

    /// The next request, of all ports in turn. What is not taken presses back on clients.
    pub fn poll_request(&mut self, now: Time) -> Option<Request> {
        self.server.poll_request(now, &mut self.common)
    }

    /// The next request for this port.
    pub fn poll_request_for(&mut self, now: Time, port: Port) -> Option<Request> {
        self.server.poll_request_for(now, &mut self.common, port)
    }

    /// Requests for this port that wait to be taken; some of them may be out of date.
    #[must_use]
    pub fn requests_waiting(&self, port: Port) -> usize {
        self.server.requests_waiting(port)
    }

    /// Requests for this port that the application has and has not answered.
    #[must_use]
    pub fn requests_in_hand(&self, port: Port) -> usize {
        self.server.requests_in_hand(port)
    }

    /// Replies given since then that are not known to have arrived.
    #[must_use]
    pub fn replies_kept_since(&self, since: Time) -> usize {
        self.server.replies_kept_since(since)
    }

    /// No call is under way, no request taken or waiting, and no reply kept for a client that may still ask for it.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.client.calls.len() == 0 && self.server.is_idle()
    }

    /// Answers a request.
    ///
    /// # Errors
    /// Too large: it can still be answered otherwise. Over: nobody waits for it.
    pub fn reply(&mut self, now: Time, id: RequestId, reply: Bytes) -> Result<(), AnswerError> {
        self.server.reply(now, &mut self.common, id, reply, false)
    }

    /// Says no to a request, and why.
    ///
    /// # Errors
    /// As of [`Endpoint::reply`].
    pub fn refuse(&mut self, now: Time, id: RequestId, reason: Bytes) -> Result<(), AnswerError> {
        self.server.reply(now, &mut self.common, id, reason, true)
    }

    /// Passes a request on to the endpoint at that address, if it serves the port; otherwise the client looks for any
    /// that does. The application must not have executed it.
    ///
    /// # Errors
    /// Passed on too often: it must be answered. Over: nobody waits for it.
    pub fn forward(&mut self, id: RequestId, to: SocketAddr) -> Result<(), ForwardError> {
        self.server.forward(&mut self.common, id, to)
    }

    // --- outputs ---

    /// When to call [`Endpoint::handle_timeout`], and what for.
    pub fn poll_timeout(&self) -> Option<(Time, CallReason)> {
        let client = self.client.wake_at().map(|at| (at, CallReason::Client));
        let server = self.server.wake_at().map(|at| (at, CallReason::Server));
        match (client, server) {
            (Some(client), Some(server)) => Some(if server.0 < client.0 { server } else { client }),
            (client, server) => client.or(server),
        }
    }
}

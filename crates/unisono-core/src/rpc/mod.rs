//! Calls: a client sends a request to a server of a port, and the request is executed at most once.
//!
//! An [`Endpoint`] is one process's side of all its calls, as client and as server. The module `client` keeps the calls
//! and the servers to which they go, `server` keeps the services and the sessions of their clients, and `transfer`
//! sends requests and replies that are too large for a datagram. The protocol is described in `docs/protocol/rpc.md`.

mod agreement;
mod client;
mod common;
mod lately;
mod output;
mod proof;
mod server;
mod slab;
mod transfer;
mod types;
mod watch;
mod work;

pub use crate::shares::Source;
pub use crate::wire::{CALL_BYTES_MAX, Cookie, HANDLER_BYTES_MAX, HOPS_MAX, Proof, PublicKey, Wishes};
pub use agreement::{KeyAgreement, Pair};
pub use proof::{PortProof, PortProver, PrivatePort};
pub use types::*;
pub use watch::*;

use crate::error::ConfigError;
use crate::identity::{EpochTag, Instance, Port, Uid};
use crate::planted::Probe;
use crate::random::Random;
use crate::time::Time;
use crate::wire::{
    Decoder, Frame, HEADER_BYTES, Header, KeyContext, Protection, ProtectionKind, TAG_BYTES, Unreadable,
    find, has_envelope, open_in_place, parts,
};
use agreement::Closed;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use bytes::{Buf, Bytes, BytesMut};
use client::Client;
use common::{Common, Sender};
use core::net::SocketAddr;
use core::time::Duration;
use server::{Arrival, Server, Verdict};
use work::WorkBudget;

/// One process's side of all its calls: a pure state machine.
///
/// Every method is of one of four kinds, as with [`Group`](crate::Group). `handle_…` takes input from outside. Commands
/// come from the application: [`call`](Endpoint::call), [`serve`](Endpoint::serve), [`reply`](Endpoint::reply) and so
/// on. `poll_…` returns output. After every input and command, call [`poll_transmit`](Endpoint::poll_transmit) and
/// [`poll_outcome`](Endpoint::poll_outcome) until they return nothing. Take from
/// [`poll_request`](Endpoint::poll_request) as many requests as the application wants. Call
/// [`handle_timeout`](Endpoint::handle_timeout) at the time that [`poll_timeout`](Endpoint::poll_timeout) returns. All
/// other methods only read.
///
/// Time must never go back from one call to the next.
pub struct Endpoint {
    common: Common,
    client: Client,
    server: Server,
    protection: Box<dyn Protection>,
}

impl Endpoint {
    /// Returns an endpoint without calls and services. The key pair of `agreement` must be fresh: it never belonged to a
    /// life before. The socket must already be bound to `address`, and used by this life alone: clients take answers from
    /// there only. A client takes the age of this life as the time that the life has had the address, and may conclude
    /// that an earlier life never executed a call.
    ///
    /// # Errors
    /// A parameter is out of its range.
    pub fn new(
        now: Time,
        address: SocketAddr,
        settings: CallSettings,
        protection: Box<dyn Protection>,
        (proof, agreement): (Box<dyn PortProof>, Box<dyn KeyAgreement>),
        random: Random,
    ) -> Result<Endpoint, ConfigError> {
        settings.check()?;
        let mut common = Common {
            me: agreement.uid_of(&agreement.public_key()),
            address,
            agreement,
            packet_number: 0,
            born: now,
            settings,
            proof,
            checks: WorkBudget::new(now),
            random,
            mail: VecDeque::new(),
            counters: CallCounters::default(),
            planted: None,
            is_hostile: false,
            probes: 0,
        };
        let server = Server::new(now, &mut common);
        Ok(Endpoint { common, client: Client::default(), server, protection })
    }

    /// Returns the uid of this life.
    pub fn uid(&self) -> Uid {
        self.common.me
    }

    // --- inputs ---

    /// Notes that this life has another address from now on; the conditions of [`Endpoint::new`] hold for it. Calls under
    /// way go on: servers ask for a cookie before they answer at the new address. Clients of this server lose it, and find
    /// it again where it is now.
    pub fn move_to(&mut self, now: Time, address: SocketAddr) {
        self.common.address = address;
        // Another life may have had this address until now.
        self.common.born = now;
        self.server.forget_answers();
    }

    /// Handles a datagram that was sent to this endpoint alone.
    pub fn handle_datagram(&mut self, now: Time, from: SocketAddr, datagram: BytesMut) {
        self.receive(now, from, datagram, false);
    }

    /// Handles a datagram that arrived at a multicast address.
    pub fn handle_multicast(&mut self, now: Time, from: SocketAddr, datagram: BytesMut) {
        self.receive(now, from, datagram, true);
    }

    /// Does what is due at the time that [`Endpoint::poll_timeout`] returned. Harmless at any other time.
    pub fn handle_timeout(&mut self, now: Time) {
        self.client.handle_timeout(now, &mut self.common);
        self.server.handle_timeout(now, &mut self.common);
    }

    fn receive(&mut self, now: Time, from: SocketAddr, mut datagram: BytesMut, multicast: bool) {
        let Ok(header) = Header::parse(&datagram) else {
            self.common.counters.malformed += 1;
            return;
        };
        if header.group != CALLS_TAG || header.epoch != EpochTag::OUTSIDE {
            return;
        }
        let context = KeyContext { instance: Instance(0), sender: header.sender, salt: header.salt };
        if !open_in_place(&mut datagram, &header, &context, &mut *self.protection) {
            let same = header.protection == self.protection.kind();
            match same && header.protection == ProtectionKind::Checksum {
                true => self.common.counters.malformed += 1,
                false => self.common.counters.foreign += 1,
            }
            return;
        }
        self.common.counters.datagrams_received += 1;
        let sender = Sender { uid: header.sender, address: from };
        if has_envelope(&datagram) && !multicast {
            return self.receive_envelope(now, sender, header.number, datagram);
        }
        datagram.advance(HEADER_BYTES);
        for frame in Decoder::new(datagram.freeze()) {
            match frame {
                Ok(frame) => self.handle_open(now, sender, frame, multicast),
                Err(_) => {
                    self.common.counters.malformed += 1;
                    return;
                }
            }
        }
    }

    /// Opens the envelope that fills a datagram, and handles the frames in it.
    fn receive_envelope(&mut self, now: Time, from: Sender, number: u64, mut datagram: BytesMut) {
        let (client, server, common) = (&mut self.client, &mut self.server, &mut self.common);
        let Some((head, place)) = find(&datagram) else {
            common.counters.malformed += 1;
            return;
        };
        if head.to != common.me {
            if !head.from_server {
                common.probe(Probe::MeantForAnotherLife);
                let age = now.since(common.born).as_millis();
                let age_ms = u64::try_from(age).unwrap_or(u64::MAX);
                let reason = Unreadable::OtherLife { age_ms };
                common.say_unopened(from, head.to, number, reason);
            }
            common.counters.stale += 1;
            return;
        }
        // The seal was made before the datagram had its tag.
        if let Some(parts) = parts(&mut datagram) {
            *parts.tag = [0; TAG_BYTES];
        }
        let (covered, rest) = datagram.split_at_mut(place.start);
        let Some((contents, &mut tag)) = rest.split_last_chunk_mut() else { return };
        let closed = Closed { salt: head.salt, number, covered, contents, tag };
        let cookie = head.opening.map(|opening| opening.cookie);
        let mut arrival = Arrival { from, number, cookie, pair: None };
        let is_open = match head.from_server {
            true => client.pair(from.uid).is_some_and(|pair| closed.open_with(pair)),
            false => server.open(now, common, &mut arrival, head.opening, closed),
        };
        if !is_open {
            common.counters.stale += 1;
            return;
        }
        datagram.truncate(place.end);
        datagram.advance(place.start);
        for frame in Decoder::new(datagram.freeze()) {
            match frame {
                Ok(frame) if head.from_server => self.handle_answer(now, from, frame),
                Ok(frame) => self.handle_request(now, &mut arrival, frame),
                Err(_) => {
                    self.common.counters.malformed += 1;
                    return;
                }
            }
        }
    }

    /// Handles a frame that any holder of the group key may have sent.
    fn handle_open(&mut self, now: Time, from: Sender, frame: Frame, multicast: bool) {
        let (client, server, common) = (&mut self.client, &mut self.server, &mut self.common);
        match frame {
            Frame::LocatePort { nonce, port, key } => {
                server.handle_locate(now, common, from, (nonce, port, key), multicast);
            }
            Frame::PortHere(here) => client.handle_port_here(now, common, from, &here),
            // Otherwise another process passes it on.
            Frame::PortNotHere { nonce, port, address } if address == from.address => {
                client.handle_port_not_here(now, common, address, (nonce, port));
            }
            Frame::Unopened(unopened) => client.handle_unopened(now, common, from, unopened),
            _ => common.counters.malformed += 1,
        }
    }

    /// Handles a frame of a client to this server alone.
    fn handle_request(&mut self, now: Time, arrival: &mut Arrival, frame: Frame) {
        let (server, common, from) = (&mut self.server, &mut self.common, arrival.from);
        match frame {
            Frame::Request(request) => server.handle_request(now, common, arrival, request),
            Frame::Part(part) if !part.reply => server.handle_part(now, common, from, &part),
            // `Got` for a reply goes to the server that sends the reply.
            Frame::Got(got) if got.reply => server.handle_got(now, common, from, &got),
            Frame::Done { to, finished_below, attempts } => {
                server.handle_done(now, common, from, to, (finished_below, &attempts));
            }
            Frame::Cancel { attempt } => server.handle_cancel(now, common, from, attempt),
            _ => common.counters.malformed += 1,
        }
    }

    /// Handles a frame of a server to this client alone.
    fn handle_answer(&mut self, now: Time, from: Sender, frame: Frame) {
        let (client, common) = (&mut self.client, &mut self.common);
        match frame {
            Frame::Reply(reply) => client.handle_reply(now, common, from, reply),
            Frame::Part(part) if part.reply => client.handle_part(now, common, from, &part),
            Frame::Got(got) if !got.reply => client.handle_got(now, common, from, &got),
            Frame::Working { attempt, grant } => client.handle_working(now, common, from, attempt, grant),
            Frame::Reject { attempt, grant, reason } => {
                client.handle_reject(now, common, from, (attempt, grant), reason);
            }
            Frame::Forward { attempt, grant, to } => {
                client.handle_forward(now, common, from, (attempt, grant), to);
            }
            _ => common.counters.malformed += 1,
        }
    }

    // --- the client ---

    /// Calls a server of the port; the outcome comes from [`Endpoint::poll_outcome`], within `deadline` from now.
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
        self.call_with(now, port, request, deadline, Wishes::default())
    }

    /// Like [`Endpoint::call`], with what the caller asks of a replicated service beside the request.
    ///
    /// # Errors
    /// As for [`Endpoint::call`]; or the name of the handler is none.
    pub fn call_with(
        &mut self,
        now: Time,
        port: Port,
        request: Bytes,
        deadline: Duration,
        wishes: Wishes,
    ) -> Result<CallNumber, CallError> {
        self.client.call(now, &mut self.common, (port, None), (request, wishes), (deadline, None))
    }

    /// Calls the server of the port at this address, and no other one. If the port is not served there, the outcome is
    /// [`CallFailure::NotFound`] or [`CallFailure::Failed`]; if the server falls silent, [`CallFailure::Unknown`].
    ///
    /// # Errors
    /// As for [`Endpoint::call`].
    pub fn call_at(
        &mut self,
        now: Time,
        port: Port,
        address: SocketAddr,
        request: Bytes,
        deadline: Duration,
    ) -> Result<CallNumber, CallError> {
        let request = (request, Wishes::default());
        self.client.call(now, &mut self.common, (port, Some(address)), request, (deadline, None))
    }

    /// Like [`Endpoint::call`], or with an address like [`Endpoint::call_at`], for a caller that finds out by itself what became
    /// of a call. A server that leaves this call unanswered for `silence`, less than [`CallSettings::silence`], is given
    /// up for this call, and is not chosen for its port until it answers a question for the port. Other calls to the server
    /// go on.
    ///
    /// # Errors
    /// As for [`Endpoint::call`].
    pub fn call_with_silence(
        &mut self,
        now: Time,
        to: (Port, Option<SocketAddr>),
        request: Bytes,
        deadline: Duration,
        silence: Duration,
    ) -> Result<CallNumber, CallError> {
        let request = (request, Wishes::default());
        self.client.call(now, &mut self.common, to, request, (deadline, Some(silence)))
    }

    /// Accepts servers of any instance for this port from now on: the one that gets the next call is the instance with
    /// which this client then stays. A call that may have happened still goes to no other instance.
    pub fn forget_instance(&mut self, now: Time, port: Port) {
        self.client.forget_instance(now, &mut self.common, port);
    }

    /// Returns the instance of the service at this port with which this client stays: that of the first server with one
    /// that got a call. `None` before that, and after [`Endpoint::forget_instance`].
    pub fn instance_of(&self, port: Port) -> Option<u64> {
        self.client.instance_of(port)
    }

    /// Ends all calls without an outcome, and informs the servers at once that this client needs none of their replies.
    /// Before an endpoint is dropped, call this and send what [`Endpoint::poll_transmit`] returns.
    pub fn end_calls(&mut self, now: Time) {
        self.client.end(now, &mut self.common);
    }

    /// Ends a call without an outcome. The call may have happened.
    pub fn cancel(&mut self, now: Time, call: CallNumber) {
        self.client.cancel(now, &mut self.common, call);
    }

    /// Returns a call that has ended, and its outcome.
    pub fn poll_outcome(&mut self) -> Option<(CallNumber, Result<Bytes, CallFailure>)> {
        self.client.poll_outcome()
    }

    // --- the server ---

    /// Begins to serve a port.
    ///
    /// # Errors
    /// The port is served here already, or this endpoint serves its maximum number of ports.
    pub fn serve(&mut self, port: PrivatePort, options: ServeOptions) -> Result<Port, ServeError> {
        self.server.serve(&mut self.common, port, options)
    }

    /// Ends a service. Waiting requests are rejected, and their clients go to other servers; the application may still
    /// answer the requests that it has.
    pub fn withdraw(&mut self, port: Port) {
        self.server.withdraw(&mut self.common, port);
    }

    /// Returns the next request, of all ports in turn. While requests are not taken, clients may have fewer calls under
    /// way.
    pub fn poll_request(&mut self, now: Time) -> Option<Request> {
        self.server.poll_request(now, &mut self.common)
    }

    /// Returns the next request for this port.
    pub fn poll_request_for(&mut self, now: Time, port: Port) -> Option<Request> {
        self.server.poll_request_for(now, &mut self.common, port)
    }

    /// Returns a client, and a number below which it knows the outcomes of all its calls, so that their remembered replies
    /// can be dropped. Only for ports served with [`ServeOptions::repeats`]; the client may have called other ports of
    /// this endpoint instead. A client says so 10 ms after an answer if no further call follows, and when it ends; what
    /// its requests say ([`Request::finished_below`]) is not reported here once more. At most 4,096 clients wait to be
    /// reported, and what others say meanwhile is dropped.
    pub fn poll_finished(&mut self, port: Port) -> Option<(Uid, CallNumber)> {
        self.server.poll_finished(port)
    }

    /// Returns the number of requests for this port that wait to be taken; some of them may be past their deadline.
    #[must_use]
    pub fn requests_waiting(&self, port: Port) -> usize {
        self.server.requests_waiting(port)
    }

    /// Returns the number of requests for this port that the application has and has not answered.
    #[must_use]
    pub fn requests_in_hand(&self, port: Port) -> usize {
        self.server.requests_in_hand(port)
    }

    /// Returns the number of replies given since `since` that are not known to have arrived.
    #[must_use]
    pub fn replies_kept_since(&self, since: Time) -> usize {
        self.server.replies_kept_since(since)
    }

    /// True if no call is under way, no request waits or is in hand, and no reply is kept for a client.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.client.calls.len() == 0 && self.server.is_idle()
    }

    /// Answers a request.
    ///
    /// # Errors
    /// The reply is too large (another is still possible), or the request is over: its client does not wait any more.
    pub fn reply(&mut self, now: Time, id: RequestId, reply: Bytes) -> Result<(), AnswerError> {
        self.server.reply(now, &mut self.common, id, reply, Verdict::Replied)
    }

    /// Answers a request like [`Endpoint::reply`], and notes that it showed no right to what it asks for. Requests wait behind those of
    /// addresses that the same service has lately given another reply.
    ///
    /// # Errors
    /// As for [`Endpoint::reply`].
    pub fn deny(&mut self, now: Time, id: RequestId, reply: Bytes) -> Result<(), AnswerError> {
        self.server.reply(now, &mut self.common, id, reply, Verdict::Denied)
    }

    /// Refuses a request, with a reason.
    ///
    /// # Errors
    /// As for [`Endpoint::reply`].
    pub fn refuse(&mut self, now: Time, id: RequestId, reason: Bytes) -> Result<(), AnswerError> {
        self.server.reply(now, &mut self.common, id, reason, Verdict::Refused)
    }

    /// Passes a request on to the endpoint at that address, if it serves the port; otherwise the client looks for any
    /// server that does. The application must not have executed the request.
    ///
    /// # Errors
    /// The request was passed on too often and must be answered, or it is over: its client does not wait any more.
    pub fn forward(&mut self, id: RequestId, to: SocketAddr) -> Result<(), ForwardError> {
        self.server.forward(&mut self.common, id, to)
    }

    /// Lets the rest of a large request come whose beginning was looked at ([`Request::whole_bytes`]). If the beginning
    /// `shows_right`, the address has shown one, as by a reply that is no denial, and room is made for the whole request. Otherwise it
    /// counts as its parts come, and no other gives way to it: clients without a right take no room by announcements.
    pub fn go_on(&mut self, now: Time, id: RequestId, shows_right: bool) {
        self.server.go_on(now, id, shows_right);
    }

    // --- outputs ---

    /// Returns when to call [`Endpoint::handle_timeout`], and the reason.
    pub fn poll_timeout(&self) -> Option<(Time, CallReason)> {
        let client = self.client.wake_at().map(|at| (at, CallReason::Client));
        let server = self.server.wake_at().map(|at| (at, CallReason::Server));
        match (client, server) {
            (Some(client), Some(server)) => Some(if server.0 < client.0 { server } else { client }),
            (client, server) => client.or(server),
        }
    }
}

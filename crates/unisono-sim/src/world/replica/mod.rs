//! The processes of a replicated service: clients with an endpoint, and servers with a group, an endpoint at the same
//! address and a copy of the state. This module drives the three parts of a server as the library does, and records what
//! callers get and what copies apply.

mod backups;
mod birth;
mod context;
mod disks;
mod heard;
mod hostile;
mod lives;
mod member;
mod outputs;
mod programs;
mod requests;
mod server;
mod watching;

pub(crate) use birth::{
    AIMED, Aim, Backup, DiskBirth, Effect, EffectKind, Former, ReplicaBirth, ReplicaCommon, ServerBirth,
};
pub(crate) use context::digest;
pub(crate) use heard::Heard;
pub(crate) use programs::Question;
pub(crate) use server::{Over, Server};
pub(crate) use watching::{Seen, WATCH};

use super::{BirthContext, Side, World};
use crate::bugs::Planted;
use crate::directory::Watcher;
use crate::network::Path;
use crate::record::{OpId, ReplicaRecord};
use crate::seal::{CheapKeys, CheapProof, Seal};
use bytes::BytesMut;
use context::{Context, outcome_of_call};
use hostile::Hostile;
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use unisono_core::rpc::{
    CALLS_TAG, CallDestination, CallFailure, CallNumber, Endpoint, KeyAgreement, PortProof,
};
use unisono_core::wire::Header;
use unisono_core::{ConfigError, Destination, Phase, Random, Time};

/// One process's side.
pub(crate) struct ReplicaSide {
    pub(crate) endpoint: Endpoint,
    /// Calls of the application that have not ended.
    pub(super) calls: BTreeMap<CallNumber, OpId>,
    pub(crate) server: Option<Box<Server>>,
    /// The lives of a hostile client: then the process's own endpoint does nothing.
    pub(super) hostile: Option<Box<Hostile>>,
    pub(super) multicast: bool,
    /// Watches of the application that wait: their numbers, and the requests.
    pub(super) watching: BTreeMap<CallNumber, (u32, Box<Watcher>)>,
    /// Its address, and what all servers have heard.
    pub(super) address: SocketAddr,
    pub(super) heard: Heard,
}

impl ReplicaSide {
    /// Takes the outputs of all parts and passes them on, until there are none.
    fn pump(&mut self, cx: &mut Context<'_>) {
        let mut has_moved = false;
        loop {
            let mut moved = self.take_endpoint(cx);
            if let Some(hostile) = &mut self.hostile {
                moved |= hostile.take_outcomes(cx);
            }
            if let Some(server) = &mut self.server {
                moved |= server.take_events(cx);
                moved |= server.take_outputs(cx, &mut self.endpoint);
                moved |= server.send_waiting(cx);
                moved |= server.answer_watches(cx, &mut self.endpoint);
                server.answer_unconfirmed(cx, &mut self.endpoint);
            }
            if !moved {
                break;
            }
            has_moved = true;
        }
        if let Some(server) = &mut self.server {
            if std::mem::take(&mut server.sent_after_end) {
                cx.note(ReplicaRecord::SentAfterEnd);
            }
            if has_moved {
                server.note_amounts(cx, &self.endpoint);
            }
        }
    }

    fn take_endpoint(&mut self, cx: &mut Context<'_>) -> bool {
        let mut moved = false;
        while let Some((call, result)) = self.endpoint.poll_outcome() {
            moved = true;
            if self.take_watched(cx, call, &result) {
                continue;
            }
            if let Some(id) = self.calls.remove(&call) {
                if result == Err(CallFailure::OtherInstance) {
                    self.endpoint.forget_instance(cx.local, cx.common.service.port);
                    cx.note(ReplicaRecord::Replaced);
                }
                result.iter().for_each(|answer| cx.note_answer(id, answer));
                cx.end_op(id, outcome_of_call(&result));
            } else if let Some(server) = &mut self.server
                && let Some(fetch) = server.fetches.remove(&call)
            {
                server.replica.handle_fetched(cx.local, fetch, result);
                server.note_steps(cx);
            }
        }
        let Some(server) = &mut self.server else { return moved };
        while cx.takes_events
            && server.may_work(cx.local)
            && let Some(request) = self.endpoint.poll_request(cx.local)
        {
            moved = true;
            server.note_work(cx.local, cx.common.request_takes);
            server.take_request(cx, &mut self.endpoint, request);
        }
        while let Some((client, below)) = self.endpoint.poll_finished(cx.common.service.port) {
            moved = true;
            server.replica.handle_finished(cx.local, client, below);
        }
        moved
    }
}

impl Side for ReplicaSide {
    type Common = ReplicaCommon;
    type Birth = ReplicaBirth;

    fn begin(
        common: &ReplicaCommon,
        context: BirthContext,
        birth: ReplicaBirth,
    ) -> Result<ReplicaSide, ConfigError> {
        let mut context = context;
        let random = Random::from_u64(context.random.next_u64());
        let proof: Box<dyn PortProof> = Box::new(CheapProof::honest());
        let keys: (_, Box<dyn KeyAgreement>) = (proof, Box::new(CheapKeys(context.uid)));
        let (now, address) = (context.now, context.address);
        let hostile = match birth.hostile {
            Some(lives) => {
                let random = Random::from_u64(context.random.next_u64());
                Some(Box::new(Hostile::begin(now, address, (lives, birth.calls.clone()), random)?))
            }
            None => None,
        };
        let mut endpoint = Endpoint::new(now, address, birth.calls, Box::new(Seal), keys, random)?;
        let server = match birth.server {
            Some(birth) => {
                common.heard.begin(address);
                _ = endpoint.serve(common.transfer.private.clone(), common.transfer.options);
                Some(Box::new(Server::begin(common, &context, birth)?))
            }
            None => None,
        };
        let (multicast, heard) = (common.multicast, common.heard.clone());
        let (calls, watching) = (BTreeMap::new(), BTreeMap::new());
        Ok(ReplicaSide { endpoint, calls, server, hostile, multicast, watching, address, heard })
    }

    fn plant(&mut self, bug: Planted) {
        let Some(bug) = bug.of_core() else { return };
        self.endpoint.plant(bug);
        if let Some(server) = &mut self.server {
            server.group.plant(bug);
            server.replica.plant(bug);
        }
    }

    fn probes(&self) -> u128 {
        let of_server = |server: &Server| server.group.probes() | server.replica.probes();
        self.endpoint.probes() | self.server.as_deref().map_or(0, of_server)
    }

    fn passes(&self) -> u64 {
        self.server.as_deref().map_or(0, |server| server.group.counters().passes)
    }

    fn handle(&mut self, now: Time, from: SocketAddr, datagram: BytesMut, path: Path) {
        let is_of_calls = Header::parse(&datagram).is_ok_and(|header| header.group == CALLS_TAG);
        if self.server.is_some() && !is_of_calls {
            self.heard.note(self.address, from);
        }
        if let Some(hostile) = &mut self.hostile {
            if is_of_calls && path == Path::Unicast {
                hostile.handle(now, from, &datagram);
            }
            return;
        }
        match (&mut self.server, path) {
            (_, Path::Unicast) if is_of_calls => self.endpoint.handle_datagram(now, from, datagram),
            (_, Path::Multicast) if is_of_calls => self.endpoint.handle_multicast(now, from, datagram),
            (Some(server), Path::Unicast) => server.group.handle_datagram(now, from, datagram),
            (Some(server), Path::Multicast) => server.group.handle_multicast(now, from, datagram),
            (None, _) => {}
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.endpoint.handle_timeout(now);
        if let Some(hostile) = &mut self.hostile {
            hostile.handle_timeout(now);
        }
        let Some(server) = &mut self.server else { return };
        server.end_work(now);
        if server.group.poll_timeout().is_some_and(|(at, _)| at <= now) {
            server.group.handle_timeout(now);
        }
        server.replica.handle_timeout(now);
    }

    fn poll_timeout(&self) -> Option<(Time, impl fmt::Debug)> {
        let calls = self.endpoint.poll_timeout().map(|(at, _)| (at, "endpoint"));
        let server = self.server.as_deref();
        let group = server.and_then(|server| server.group.poll_timeout()).map(|(at, _)| (at, "group"));
        let replica = server.and_then(|server| server.replica.poll_timeout()).map(|at| (at, "replica"));
        let disk = server.and_then(|server| server.disk.as_ref()?.due_at()).map(|at| (at, "disk"));
        let watches = server.and_then(|server| server.watches_due_at()).map(|at| (at, "watches"));
        let work = server.and_then(|server| server.works_until()).map(|at| (at, "work"));
        let hostile = self.hostile.as_ref().and_then(|hostile| hostile.poll_timeout());
        let hostile = hostile.map(|at| (at, "hostile"));
        [calls, group, replica, disk, watches, work, hostile].into_iter().flatten().min()
    }

    fn poll_transmit(&mut self, now: Time, datagram: &mut Vec<u8>) -> Option<Destination> {
        if let Some(server) = &mut self.server
            && let Some(destination) = server.group.poll_transmit(now, datagram)
        {
            server.sent_after_end |= server.group.has_ended();
            return Some(destination);
        }
        let destination = match &mut self.hostile {
            Some(hostile) => hostile.poll_transmit(now, datagram),
            None => self.endpoint.poll_transmit(now, datagram),
        };
        Some(match destination? {
            CallDestination::Address(address) | CallDestination::Unproved(address) => {
                Destination::Address(address)
            }
            CallDestination::Rendezvous(_) if self.multicast => Destination::Multicast,
            CallDestination::Rendezvous(_) => Destination::Rendezvous,
        })
    }

    fn audience(&self) -> (bool, &[SocketAddr]) {
        let Some(server) = &self.server else { return (false, &[]) };
        let audience = server.group.audience();
        (audience.multicast, &audience.addresses)
    }

    fn is_needed(&self) -> bool {
        self.server.as_ref().is_some_and(|server| server.group.phase() != Phase::Gone)
    }

    fn note(world: &mut World<ReplicaSide>, process: usize) {
        world.pump(process);
    }

    /// A server takes events whenever its output is recorded.
    fn hand_out(_: &mut World<ReplicaSide>, _: usize) {}

    fn may_have_more_output(&self) -> bool {
        true
    }
}

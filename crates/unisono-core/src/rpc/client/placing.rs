//! Placing: which server a call goes to, and when.
//!
//! The client draws two servers by lot; the one with less to do takes the call. The load of a server is the number of
//! this client's calls under way there, plus the number of requests that the server last reported as waiting. So slow
//! or busy servers get less, and clients do not all move to one server. A call beyond the grant waits at the client.

use super::Client;
use super::call::{Call, Sent, SoFar, Stage};
use super::locate::Known;
use super::remote::Remote;
use crate::identity::{Port, Uid};
use crate::random::Random;
use crate::rpc::common::{Common, patience};
use crate::rpc::transfer::Outgoing;
use crate::rpc::types::CallNumber;
use crate::table::Table;
use crate::time::Time;
use alloc::boxed::Box;

impl Client {
    /// Queues a call for its port's servers; it is sent at once if one takes it.
    pub(super) fn wait_for_server(&mut self, now: Time, common: &mut Common, number: CallNumber) {
        let Some(call) = self.get_mut(number) else { return };
        (call.stage, call.waits_since) = (Stage::Waiting, now);
        let port = call.port;
        let Some(known) = self.known(now, port) else { return };
        known.waiting.push_back(number);
        let is_stale = known.is_stale(now) && !known.servers.is_empty();
        self.place(now, common, port);
        if is_stale {
            self.refresh(now, common, port);
        }
    }

    /// Sends the calls that wait for this port, as far as servers take them.
    pub(super) fn place(&mut self, now: Time, common: &mut Common, port: Port) {
        let waiting = self.ports.get(port).map_or(0, |known| known.waiting.len());
        if waiting == 0 {
            return;
        }
        for _ in 0..waiting {
            let Some(known) = self.ports.get_mut(port) else { return };
            let Some(number) = known.waiting.pop_front() else { return };
            let call = self.calls.get(super::index(number)).filter(|call| call.waits_as(number));
            let Some(call) = call else { continue };
            let avoided = call.avoids.filter(|(_, until)| *until > now);
            let avoided_server = avoided.map(|(uid, _)| uid);
            let repeats = call.may_have_happened();
            let server =
                choose((now, port), known, &self.remotes, &mut common.random, avoided_server, repeats);
            match (server, avoided) {
                (Some(server), _) => self.start(now, common, number, server),
                // A call that may go to few servers, or avoids one, does not hold up the others.
                (None, _) if repeats => {
                    known.waiting.push_back(number);
                    self.wake_by(avoided.map_or(Time::NEVER, |(_, until)| until));
                }
                (None, Some((_, until))) => {
                    known.waiting.push_back(number);
                    self.wake_by(until);
                }
                (None, None) => {
                    known.waiting.push_front(number);
                    break;
                }
            }
        }
        self.wait_on(now, common, port);
    }

    /// Schedules the next look at the calls that still wait for this port.
    fn wait_on(&mut self, now: Time, common: &mut Common, port: Port) {
        let Some(known) = self.ports.get(port) else { return };
        let first = known.waiting.front().and_then(|number| self.calls.get(super::index(*number)));
        let Some(first) = first else { return };
        let mut at = None;
        for serving in &known.servers {
            let service = self.remotes.get(serving.uid).and_then(|remote| remote.service(port));
            let until = service.map(|service| service.try_at);
            at = crate::time::earlier(at, until.filter(|until| *until > now));
        }
        if known.servers.is_empty() {
            // A call that may have been executed waits until its deadline.
            let until = Some(first.waits_since + common.settings.locate);
            at = crate::time::earlier(at, until.filter(|until| *until > now));
            self.ask_for(now, common, port);
        }
        if let Some(at) = at {
            self.wake_by(at);
        }
    }

    /// True if the server may get this call: a call that may have happened goes only to servers that recognise repeats.
    pub(super) fn may_have(&self, server: Uid, number: CallNumber) -> bool {
        let Some(call) = self.calls.get(super::index(number)) else { return false };
        let servers = self.ports.get(call.port).map_or(&[][..], |known| &known.servers);
        !call.may_have_happened() || servers.iter().any(|serving| serving.uid == server && serving.repeats)
    }

    /// Begins a new attempt at this server.
    pub(super) fn start(&mut self, now: Time, common: &mut Common, number: CallNumber, server: Uid) {
        let Some(remote) = self.remotes.get_mut(server) else { return };
        let Some(call) = self.calls.get_mut(super::index(number)) else { return };
        self.attempts += 1;
        let slot = remote.take_slot(now, call.port, number, self.attempts);
        let is_large = call.request.len() > common.whole_bytes_max();
        let request =
            is_large.then(|| Box::new(Outgoing::new(now, call.request.clone(), common.part_bytes())));
        if is_large {
            self.sending.push_back((number, self.attempts));
        }
        call.stage = Stage::Sent(Sent {
            server,
            slot,
            number: self.attempts,
            first_at: None,
            is_repeated: false,
            has_shown_cookie: false,
            is_there: false,
            ask_at: Time::NEVER,
            ask_again_after: patience(&remote.round_trip),
            request,
            reply: None,
        });
        self.send_slot(server, slot);
    }
}

impl Call {
    /// True if this is the call of this number, and it waits for a server.
    pub(super) fn waits_as(&self, number: CallNumber) -> bool {
        self.number == number && matches!(self.stage, Stage::Waiting)
    }
}

/// Returns the server that takes the next call for a port, if there is one.
fn choose(
    (now, port): (Time, Port),
    known: &Known,
    remotes: &Table<Remote>,
    random: &mut Random,
    avoided: Option<Uid>,
    repeats: bool,
) -> Option<Uid> {
    let servers = &known.servers;
    let load = |index: usize| {
        let uid = servers.get(index).filter(|serving| serving.repeats || !repeats)?.uid;
        let remote =
            remotes.get(uid).filter(|remote| remote.has_capacity(now, port) && avoided != Some(uid))?;
        Some((remote.load(), uid))
    };
    if servers.len() <= 1 {
        return load(0).map(|(_, uid)| uid);
    }
    let count = servers.len() as u64;
    let first = random.below(count);
    let second = (first + 1 + random.below(count - 1)) % count;
    match (load(first as usize), load(second as usize)) {
        // The first was drawn by lot, so it may have the call if both have the same load.
        (Some((load, uid)), Some((other_load, other))) => Some(if load <= other_load { uid } else { other }),
        (Some((_, uid)), None) | (None, Some((_, uid))) => Some(uid),
        (None, None) => (0..servers.len()).find_map(load).map(|(_, uid)| uid),
    }
}

/// Returns why a call still waits although its port has servers: they push back.
pub(super) fn why_it_waits(known: &Known) -> Option<SoFar> {
    (!known.servers.is_empty()).then_some(SoFar::PushedBack)
}

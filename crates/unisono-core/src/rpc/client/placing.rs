//! Which server a call goes to, and when.
//!
//! Of two servers drawn by lot the one with less to do takes the call: what this client has under way there, and what
//! the server said lately that waits there altogether. So servers that are slow or busy get less, and no two clients
//! run after the same one. A call beyond what a server grants waits here.

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
    /// The call waits for a server that takes it, and goes at once if there is one.
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
                // Others are not held up by what this one must not have, or avoids.
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

    /// If nobody takes the calls that wait for this port now: when may that change?
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
            // Who may have been executed once waits on, to its deadline.
            let until = Some(first.waits_since + common.settings.locate);
            at = crate::time::earlier(at, until.filter(|until| *until > now));
            self.ask_for(now, common, port);
        }
        if let Some(at) = at {
            self.wake_by(at);
        }
    }

    /// The server may have this call: one that may have happened goes only to who recognises repeats.
    pub(super) fn may_have(&self, server: Uid, number: CallNumber) -> bool {
        let Some(call) = self.calls.get(super::index(number)) else { return false };
        let servers = self.ports.get(call.port).map_or(&[][..], |known| &known.servers);
        !call.may_have_happened() || servers.iter().any(|serving| serving.uid == server && serving.repeats)
    }

    /// A new attempt, at this server.
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
    /// It is the call of this number, and waits for a server.
    pub(super) fn waits_as(&self, number: CallNumber) -> bool {
        self.number == number && matches!(self.stage, Stage::Waiting)
    }
}

/// The server that takes the next call for a port, if any does.
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
        // The first was drawn by lot: so it may have it if both have as much to do.
        (Some((load, uid)), Some((other_load, other))) => Some(if load <= other_load { uid } else { other }),
        (Some((_, uid)), None) | (None, Some((_, uid))) => Some(uid),
        (None, None) => (0..servers.len()).find_map(load).map(|(_, uid)| uid),
    }
}

/// What keeps a call waiting whose port has servers: they push back.
pub(super) fn why_it_waits(known: &Known) -> Option<SoFar> {
    (!known.servers.is_empty()).then_some(SoFar::PushedBack)
}

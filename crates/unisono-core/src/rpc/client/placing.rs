//! Placing: which server a call goes to, and when.
//!
//! The client draws two servers by lot; the one with less to do takes the call. The load of a server is the number of
//! this client's calls under way there, plus the number of requests that the server last reported as waiting. So slow
//! or busy servers get less, and clients do not all move to one server. A call beyond the grant waits at the client.

use super::Client;
use super::avoids::Avoids;
use super::call::{Call, Sent, SoFar, Stage};
use super::locate::{Known, Serving};
use super::losing::AVOIDS_FOR;
use super::remote::Remote;
use crate::identity::{Port, Uid};
use crate::planted::Planted;
use crate::random::Random;
use crate::rpc::common::{Common, patience};
use crate::rpc::transfer::{Outgoing, PARTS_WINDOW_MAX};
use crate::rpc::types::CallNumber;
use crate::table::Table;
use crate::time::Time;
use alloc::boxed::Box;
use core::net::SocketAddr;

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
            if let Some(address) = call.pinned {
                self.place_pinned(now, common, number, (port, address));
                continue;
            }
            let until = call.avoids.until(now);
            let repeats = call.may_have_happened();
            let of = match common.broken(Planted::RepeatsAtOtherInstance) {
                false => repeats.then_some(call.instance),
                true => (!repeats && known.instance != 0).then_some(known.instance),
            };
            let wanted = Wanted { now, avoids: &call.avoids, repeats, of };
            let server = choose((now, port), known, &self.remotes, &mut common.random, &wanted)
                .or_else(|| choose_quiet((now, port), known, &self.remotes, &wanted));
            match (server, until) {
                (Some(serving), _) => {
                    known.stay_with(serving.instance);
                    self.start(now, common, number, serving);
                }
                // A call that may go to few servers, or avoids some, does not hold up the others.
                (None, _) if repeats => {
                    known.waiting.push_back(number);
                    self.wake_by(until.unwrap_or(Time::NEVER));
                }
                (None, Some(until)) => {
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

    /// Places a call that goes to one address only.
    fn place_pinned(
        &mut self,
        now: Time,
        common: &mut Common,
        number: CallNumber,
        (port, address): (Port, SocketAddr),
    ) {
        let Some((uid, remote)) = self.heard_lately(now, port, address) else {
            return self.follow(now, common, number, (port, address));
        };
        let tries_at = remote.service(port).map_or(Time::NEVER, |service| service.try_at);
        let has_capacity = remote.has_capacity(now, port);
        let Some(call) = self.calls.get(super::index(number)) else { return };
        let avoids = call.avoids.until(now);
        let serving = self.serving(port, uid);
        let Some(known) = self.ports.get_mut(port) else { return };
        match serving {
            Some(serving) if has_capacity && avoids.is_none() => {
                known.stay_with(serving.instance);
                self.start(now, common, number, serving);
            }
            Some(_) => {
                known.waiting.push_back(number);
                // Without a limit of the service it waits until a call there ends.
                let at = if tries_at > now { tries_at } else { now + AVOIDS_FOR };
                self.wake_by(avoids.map_or(at, |until| until.max(at)));
            }
            None => self.follow(now, common, number, (port, address)),
        }
    }

    /// Returns what is known of this server of the port.
    pub(super) fn serving(&self, port: Port, server: Uid) -> Option<Serving> {
        self.ports.get(port)?.servers.iter().find(|serving| serving.uid == server).copied()
    }

    /// True if the server may get this call: a call that may have happened goes only to servers that recognise repeats,
    /// of the same instance.
    pub(super) fn may_have(&self, serving: Serving, number: CallNumber) -> bool {
        let Some(call) = self.calls.get(super::index(number)) else { return false };
        !call.may_have_happened() || serving.repeats && serving.instance == call.instance
    }

    /// Begins a new attempt at this server.
    pub(super) fn start(&mut self, now: Time, common: &mut Common, number: CallNumber, serving: Serving) {
        let Serving { uid: server, repeats, instance } = serving;
        let Some(remote) = self.remotes.get_mut(server) else { return };
        let Some(call) = self.calls.get_mut(super::index(number)) else { return };
        self.attempts += 1;
        let from_end = common.is_hostile();
        let slot = remote.take_slot(now, call.port, (number, self.attempts), from_end);
        let wishes = call.wishes.as_ref().map_or(0, |wishes| wishes.bytes());
        let is_large = call.request.len() + wishes > common.whole_bytes_max();
        let request = is_large.then(|| {
            Box::new(Outgoing::new(now, call.request.clone(), common.part_bytes(), PARTS_WINDOW_MAX))
        });
        if is_large {
            self.sending.push_back((number, self.attempts));
        }
        call.stage = Stage::Sent(Sent {
            server,
            repeats,
            instance,
            slot,
            number: self.attempts,
            first_at: None,
            in_packet: 0,
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

/// What a call demands of its server.
struct Wanted<'a> {
    now: Time,
    avoids: &'a Avoids,
    /// The server must recognise repeats.
    repeats: bool,
    /// The server must be of this instance.
    of: Option<u64>,
}

impl Wanted<'_> {
    fn takes(&self, serving: &Serving) -> bool {
        (serving.repeats || !self.repeats)
            && self.of.is_none_or(|instance| serving.instance == instance)
            && !self.avoids.has(self.now, serving.uid)
    }
}

/// Returns the server that takes the next call for a port, if there is one.
fn choose(
    (now, port): (Time, Port),
    known: &Known,
    remotes: &Table<Remote>,
    random: &mut Random,
    wanted: &Wanted<'_>,
) -> Option<Serving> {
    let servers = &known.servers;
    let load = |index: usize| {
        let serving = servers.get(index).filter(|serving| wanted.takes(serving))?;
        let remote = remotes.get(serving.uid).filter(|remote| remote.has_capacity(now, port))?;
        Some((remote.load(), *serving))
    };
    if servers.len() <= 1 {
        return load(0).map(|(_, serving)| serving);
    }
    let count = servers.len() as u64;
    let first = random.below(count);
    let second = (first + 1 + random.below(count - 1)) % count;
    match (load(first as usize), load(second as usize)) {
        // The first was drawn by lot, so it may have the call if both have the same load.
        (Some((load, first)), Some((other_load, other))) => {
            Some(if load <= other_load { first } else { other })
        }
        (Some((_, serving)), None) | (None, Some((_, serving))) => Some(serving),
        (None, None) => (0..servers.len()).find_map(load).map(|(_, serving)| serving),
    }
}

/// Returns a server that is quiet, for a call that no other server takes.
fn choose_quiet(
    (now, port): (Time, Port),
    known: &Known,
    remotes: &Table<Remote>,
    wanted: &Wanted<'_>,
) -> Option<Serving> {
    let has_capacity = |serving: &Serving| {
        remotes.get(serving.uid).is_some_and(|remote| remote.is_quiet_with_capacity(now, port))
    };
    known.servers.iter().copied().find(|serving| wanted.takes(serving) && has_capacity(serving))
}

/// Returns why a call still waits although its port has servers: they push back, or are of another instance.
pub(super) fn why_it_waits(known: &Known) -> Option<SoFar> {
    match known.servers.is_empty() {
        false => Some(SoFar::PushedBack),
        true => known.others_answered.then_some(SoFar::OtherInstance),
    }
}

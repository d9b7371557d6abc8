//! The servers of each port: asked for, remembered, forgotten.
//!
//! The first good answer starts the calls that wait; later ones widen the choice. The client asks again from time to
//! time, so that later servers get their share. It forgets a server that says that it does not serve the port, that
//! falls silent, or at whose address another life answers.

use super::Client;
use super::call::SoFar;
use super::remote::Remote;
use super::service::Service;
use crate::identity::{Port, Uid};
use crate::planted::{Planted, Probe};
use crate::rpc::common::{Common, Sender};
use crate::rpc::proof::Claim;
use crate::rpc::types::{CallDestination, CallNumber};
use crate::time::Time;
use crate::wire::PortHere;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::time::Duration;

/// Maximum number of ports that are remembered.
pub(in crate::rpc) const PORT_CACHE_MAX: usize = 1024;
/// Maximum number of servers that are remembered for one port.
pub(in crate::rpc) const SERVERS_MAX: usize = 32;
/// Maximum number of servers that are remembered for all ports.
pub(in crate::rpc) const REMOTES_MAX: usize = 1024;
/// Interval between two questions: 50 ms at first, doubled each time, 1 s at most.
const LOCATE_ASK_FIRST: Duration = Duration::from_millis(50);
const ASK_MAX: Duration = Duration::from_secs(1);
/// A call that begins while a question is unanswered lets it be asked again this long after the last time: a service that
/// comes back is found within the time of a short call.
const ASK_FOR_NEW_CALL: Duration = Duration::from_millis(200);
/// Interval at which further servers of a port are asked for, while there are calls for it.
const REFRESH_EVERY: Duration = Duration::from_secs(5);

/// What is known of a port.
#[derive(Debug, Default)]
pub(in crate::rpc) struct Known {
    pub(super) servers: Vec<Serving>,
    /// Calls that wait for a server.
    pub(in crate::rpc) waiting: VecDeque<CallNumber>,
    question: Question,
    pub(super) used_at: Time,
    /// Instance with which this client stays: that of the first server with one that got a call. 0: none yet.
    pub(super) instance: u64,
    /// True if servers of other instances answered the last question.
    pub(super) others_answered: bool,
}

/// A server of a port.
#[derive(Clone, Copy, Debug)]
pub(super) struct Serving {
    pub(super) uid: Uid,
    /// True if it recognises repeated calls.
    pub(super) repeats: bool,
    /// Its instance; 0: it has none.
    pub(super) instance: u64,
}

/// State of the question which servers serve a port.
#[derive(Clone, Copy, Debug, Default)]
struct Question {
    nonce: u64,
    asked_at: Option<Time>,
    /// When it is asked again; `None` if that is not needed.
    again_at: Option<Time>,
    again_after: Duration,
}

impl Known {
    /// True if the last question was long ago and none is under way.
    pub(super) fn is_stale(&self, now: Time) -> bool {
        self.question.again_at.is_none() && !self.was_asked_lately(now)
    }

    /// Notes that a call goes to a server of this instance: if it is the first with one, the client stays with it.
    #[inline]
    pub(super) fn stay_with(&mut self, instance: u64) {
        if self.instance == 0 && instance != 0 {
            self.instance = instance;
            self.servers.retain(|serving| serving.instance == instance);
        }
    }

    /// True if an answer to the last question may still be new.
    fn was_asked_lately(&self, now: Time) -> bool {
        self.question.asked_at.is_some_and(|asked| now.since(asked) < REFRESH_EVERY)
    }
}

impl Client {
    /// Asks for servers, or soon again if that is under way.
    pub(super) fn ask_for(&mut self, now: Time, common: &mut Common, port: Port) {
        let Some(known) = self.ports.get_mut(port) else { return };
        if let (Some(again_at), Some(asked_at)) = (known.question.again_at, known.question.asked_at) {
            let again_at = again_at.min(asked_at + ASK_FOR_NEW_CALL).max(now);
            known.question.again_at = Some(again_at);
            self.wake_by(again_at);
        } else if known.question.again_at.is_none() {
            let nonce = common.random.next_u64();
            known.others_answered = false;
            known.question =
                Question { nonce, asked_at: None, again_at: Some(now), again_after: LOCATE_ASK_FIRST };
            self.question_timeout(now, common, port);
        }
    }

    /// Asks once for further servers of the port.
    pub(super) fn refresh(&mut self, now: Time, common: &mut Common, port: Port) {
        self.ask_for(now, common, port);
        if let Some(known) = self.ports.get_mut(port) {
            known.question.again_at = None;
        }
    }

    /// Asks all servers of the port once more, because one of them is quiet. The last question is repeated as long as its
    /// answers count: they may take long.
    pub(super) fn ask_beside(&mut self, now: Time, common: &mut Common, port: Port) {
        let Some(known) = self.ports.get(port) else { return };
        if known.question.again_at.is_some() {
            return;
        }
        if !known.was_asked_lately(now) {
            return self.refresh(now, common, port);
        }
        let nonce = known.question.nonce;
        common.ask(CallDestination::Rendezvous(port), nonce, port);
    }

    /// Asks again if it is due.
    pub(super) fn question_timeout(&mut self, now: Time, common: &mut Common, port: Port) {
        let Some(known) = self.ports.get_mut(port) else { return };
        let question = &mut known.question;
        if question.again_at.is_some_and(|at| at <= now) {
            let is_answered = !known.servers.is_empty() || known.waiting.is_empty();
            if is_answered && question.asked_at.is_some() {
                question.again_at = None;
                return;
            }
            question.asked_at = Some(now);
            question.again_at = Some(now + question.again_after);
            question.again_after = (question.again_after * 2).min(ASK_MAX);
            let nonce = question.nonce;
            common.ask(CallDestination::Rendezvous(port), nonce, port);
        }
        if let Some(at) = question.again_at {
            self.wake_by(at);
        }
    }

    /// Handles a server's answer that it serves the port.
    pub(in crate::rpc) fn handle_port_here(
        &mut self,
        now: Time,
        common: &mut Common,
        Sender { uid, address: from }: Sender,
        here: &PortHere,
    ) {
        let target = self.targets.get(&(here.port, from)).filter(|target| target.nonce == here.nonce);
        let known = self.ports.get(here.port);
        let is_wanted =
            known.is_some_and(|known| known.was_asked_lately(now) && known.question.nonce == here.nonce);
        if target.is_none() && !is_wanted {
            common.counters.stale += 1;
            return;
        }
        if target.is_none() && self.is_repetition((uid, from), here) && !common.broken(Planted::SignsEachCopy)
        {
            common.counters.stale += 1;
            return;
        }
        if !common.checks.spend(now, from.ip().into(), false) && !common.broken(Planted::SignsEachCopy) {
            common.probe(Probe::ProofBudgetSpent);
            return;
        }
        let claim = Claim {
            nonce: here.nonce,
            port: here.port,
            client: (common.me, common.agreement.public_key()),
            server: (uid, here.key),
            address: from,
            cookie: here.cookie,
            repeats: here.repeats,
            instance: here.instance,
        };
        let is_own_key = common.agreement.uid_of(&here.key) == uid;
        let is_proved = || common.proof.verify(here.port, &claim.bytes(), &here.proof);
        if !is_own_key || !is_proved() && !common.broken(Planted::ProofUnchecked) {
            common.counters.malformed += 1;
            common.probe(Probe::ImpostorRefused);
            return;
        }
        let takes_other = common.broken(Planted::RepeatsAtOtherInstance) && target.is_none();
        if self.is_of_other_instance(here) && !takes_other {
            return self.refuse_instance(now, common, (uid, from), here.port);
        }
        if !self.remember(now, common, (uid, from), here) {
            return;
        }
        let serving = Serving { uid, repeats: here.repeats, instance: here.instance };
        self.start_followers(now, common, here.port, from, serving);
        self.relieve_quiet_servers(now, common);
        self.place(now, common, here.port);
    }

    /// True if all that this answer states is known from an answer that is no older. It need not be checked: an honest
    /// server states nothing new, and an impostor gains nothing.
    fn is_repetition(&self, (uid, from): (Uid, SocketAddr), here: &PortHere) -> bool {
        let is_same = |serving: &Serving| {
            (serving.uid, serving.repeats, serving.instance) == (uid, here.repeats, here.instance)
        };
        self.ports.get(here.port).is_some_and(|known| known.servers.iter().any(is_same))
            && self.remotes.get(uid).is_some_and(|remote| {
                remote.address == from
                    && remote.service(here.port).is_some()
                    && remote.last_answer.is_some_and(|last| here.cookie.issued <= last)
            })
    }

    /// True if this client stays with another instance of the service.
    fn is_of_other_instance(&self, here: &PortHere) -> bool {
        let known = self.ports.get(here.port).map_or(0, |known| known.instance);
        known != 0 && known != here.instance
    }

    /// Ignores a server of another instance; a call that waits for a server learns of it.
    fn refuse_instance(
        &mut self,
        now: Time,
        common: &mut Common,
        (uid, from): (Uid, SocketAddr),
        port: Port,
    ) {
        common.probe(Probe::OtherInstanceMet);
        self.forget_server(uid, port);
        if let Some(known) = self.ports.get_mut(port) {
            known.others_answered = true;
        }
        self.give_up_target(now, common, (port, from), SoFar::OtherInstance);
    }

    /// Returns the instance with which this client stays.
    pub(in crate::rpc) fn instance_of(&self, port: Port) -> Option<u64> {
        self.ports.get(port).map(|known| known.instance).filter(|instance| *instance != 0)
    }

    /// Accepts any instance from now on, and asks at once which there are.
    pub(in crate::rpc) fn forget_instance(&mut self, now: Time, common: &mut Common, port: Port) {
        let Some(known) = self.ports.get_mut(port) else { return };
        (known.instance, known.others_answered) = (0, false);
        // Those that are still there answer again.
        known.servers.clear();
        known.question.again_at = None;
        match known.waiting.is_empty() {
            // The next call asks.
            true => known.question.asked_at = None,
            false => self.ask_for(now, common, port),
        }
    }

    /// Records a server under its port, and agrees on keys with it. Returns false without capacity, if no secret comes of
    /// its key, or if it has calls under way at another address.
    fn remember(
        &mut self,
        now: Time,
        common: &Common,
        (uid, from): (Uid, SocketAddr),
        here: &PortHere,
    ) -> bool {
        if !self.remotes.contains(uid) && self.remotes.len() >= REMOTES_MAX && !self.forget_idlest_remote() {
            return false;
        }
        if !self.remotes.contains(uid) {
            let Some(pair) = common.agreement.agree(&here.key) else { return false };
            self.remotes.insert(uid, Remote::new(now, from, here.cookie, pair));
        }
        let Some(remote) = self.remotes.get_mut(uid) else { return false };
        if remote.address != from && remote.under_way > 0 {
            return false;
        }
        remote.address = from;
        remote.repeats |= here.repeats;
        // An answer that is no newer than the last may be a recording of it, and its server dead since.
        if remote.last_answer.is_none_or(|last| here.cookie.issued > last) {
            remote.last_answer = Some(here.cookie.issued);
            remote.note_heard(now, here.grant);
            if !remote.is_established {
                remote.cookie = here.cookie;
            }
        }
        if remote.service(here.port).is_none() {
            remote.services.push(Service::new(here.port));
        }
        let Some(known) = self.ports.get_mut(here.port) else { return true };
        let serving = Serving { uid, repeats: here.repeats, instance: here.instance };
        let has_capacity = known.servers.len() < SERVERS_MAX;
        match known.servers.iter_mut().find(|known| known.uid == uid) {
            Some(entry) => *entry = serving,
            None if has_capacity => known.servers.push(serving),
            None => {}
        }
        true
    }

    /// Handles `PortNotHere`. It ends a question to one address, because only the process at that address knows the nonce. Every
    /// process on the link hears the nonce of a multicast question and can answer in a server's name, so such an answer is ignored. A
    /// server that has withdrawn the port rejects the next request, sealed.
    pub(in crate::rpc) fn handle_port_not_here(
        &mut self,
        now: Time,
        common: &mut Common,
        from: SocketAddr,
        (nonce, port): (u64, Port),
    ) {
        match self.targets.get(&(port, from)) {
            Some(target) if target.nonce == nonce => {
                self.give_up_target(now, common, (port, from), SoFar::NoServerFound);
            }
            _ => common.counters.stale += 1,
        }
    }

    /// Forgets that this server serves the port.
    pub(super) fn forget_server(&mut self, uid: Uid, port: Port) {
        if let Some(known) = self.ports.get_mut(port) {
            known.servers.retain(|serving| serving.uid != uid);
        }
        if let Some(remote) = self.remotes.get_mut(uid) {
            remote.services.retain(|service| service.port != port);
        }
    }

    /// Forgets, of the servers without calls under way, the one heard least recently. Returns false if there is none.
    fn forget_idlest_remote(&mut self) -> bool {
        let idle = self.remotes.iter().filter(|(_, remote)| remote.under_way == 0);
        let Some((uid, _)) = idle.min_by_key(|(_, remote)| remote.heard_at) else { return false };
        self.forget_remote(uid);
        true
    }

    /// Forgets a server's life, with all its services.
    pub(super) fn forget_remote(&mut self, uid: Uid) -> Option<Remote> {
        let remote = self.remotes.remove(uid)?;
        for service in &remote.services {
            if let Some(known) = self.ports.get_mut(service.port) {
                known.servers.retain(|serving| serving.uid != uid);
            }
        }
        Some(remote)
    }

    /// Forgets that a server serves a port, until it answers so again.
    pub(super) fn forget_service(&mut self, uid: Uid, port: Port) {
        if let Some(known) = self.ports.get_mut(port) {
            known.servers.retain(|serving| serving.uid != uid);
        }
        if let Some(remote) = self.remotes.get_mut(uid) {
            remote.services.retain(|service| service.port != port);
        }
    }

    /// True if the port is known, or there is capacity for another one.
    pub(super) fn has_capacity_for(&self, port: Port) -> bool {
        self.ports.len() < PORT_CACHE_MAX
            || self.ports.contains(port)
            || self.ports.iter().any(|(_, known)| known.waiting.is_empty())
    }

    /// Returns what is known of a port; `None` if there is no capacity for another one.
    pub(super) fn known(&mut self, now: Time, port: Port) -> Option<&mut Known> {
        if self.ports.len() >= PORT_CACHE_MAX && !self.ports.contains(port) {
            let idle = self.ports.iter().filter(|(_, known)| known.waiting.is_empty());
            let oldest = idle.min_by_key(|(_, known)| known.used_at)?.0;
            self.ports.remove(oldest);
            let is_other = |service: &Service| service.port != oldest;
            self.remotes.iter_mut().for_each(|(_, remote)| remote.services.retain(is_other));
        }
        let known = self.ports.get_or_insert_with(port, Known::default);
        known.used_at = now;
        Some(known)
    }
}

//! Calls that a server passes on to another address.
//!
//! The forwarding server has not executed the call and never will. In a service that recognises repeats, however, another
//! server may have executed it, and a server may pass on a call that took effect so that another one answers it: there a
//! call that was passed on may have happened.
//!
//! The client first asks whether the process at the new address serves the port, unless it was heard in the last 50 ms: it
//! may have died, or another process may have its address. If it does not serve the port, the call looks for any server
//! again, and avoids the forwarding server for a while. The call keeps its number and counts its hops.

use super::Client;
use super::call::{Call, SoFar, Stage};
use super::locate::Serving;
use super::losing::AVOIDS_FOR;
use super::remote::Remote;
use crate::identity::{Port, Uid};
use crate::planted::{Planted, Probe};
use crate::rpc::common::{Common, PATIENCE_MAX, Sender};
use crate::rpc::types::{CallDestination, CallNumber};
use crate::time::Time;
use crate::wire::{Attempt, Grant, HOPS_MAX, SLOTS_MAX};
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::time::Duration;

/// A server that was heard within this time need not be asked whether it is there.
const HEARD_LATELY: Duration = Duration::from_millis(50);
/// Interval between the first two questions; it doubles each time.
const FORWARD_ASK_FIRST: Duration = Duration::from_millis(20);
/// How long the question is repeated.
const ASK_FOR: Duration = Duration::from_millis(250);

/// An address that calls were passed on to, until it is known whether it serves the port.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) nonce: u64,
    ask_at: Time,
    ask_again_after: Duration,
    until: Time,
    calls: Vec<CallNumber>,
}

impl Client {
    pub(in crate::rpc) fn handle_forward(
        &mut self,
        now: Time,
        common: &mut Common,
        from: Sender,
        (attempt, grant): (Attempt, Grant),
        to: SocketAddr,
    ) {
        let Some(number) = self.hear(now, common, from, attempt, Some(grant)) else {
            return self.acknowledge_again(common, from, attempt);
        };
        self.note_taken(now, from.uid, number);
        let of =
            self.get_mut(number).and_then(Call::sent).filter(|sent| sent.repeats).map(|sent| sent.instance);
        self.leave_server(now, common, number, true);
        common.counters.forwards += 1;
        let Some(call) = self.get_mut(number) else { return };
        if !common.broken(Planted::HopsUncounted) {
            call.hops = (call.hops + 1).min(HOPS_MAX);
        }
        call.note(if of.is_some() { SoFar::Unclear } else { SoFar::NotTaken });
        call.instance = of.unwrap_or(call.instance);
        call.avoids.note_lost(Some((from.uid, now + ASK_FOR + AVOIDS_FOR)));
        let port = call.port;
        if call.pinned.is_some() {
            let failure = call.so_far.failure();
            return self.finish(now, common, number, Err(failure), true);
        }
        let there = self.heard_lately(now, port, to);
        let there = there.filter(|(_, remote)| usize::from(remote.under_way) < SLOTS_MAX);
        let there = there.and_then(|(uid, _)| self.serving(port, uid));
        match there.filter(|serving| self.may_have(*serving, number)) {
            // It is of this client's instance, because it is known.
            Some(serving) => self.start(now, common, number, serving),
            None => self.follow(now, common, number, (port, to)),
        }
        // Other calls may wait for the slot that became free.
        self.place(now, common, port);
    }

    /// Returns the server of the port at this address, if it was heard so lately that it need not be asked.
    pub(super) fn heard_lately(&self, now: Time, port: Port, at: SocketAddr) -> Option<(Uid, &Remote)> {
        self.remotes.iter().find(|(_, remote)| {
            remote.address == at
                && remote.service(port).is_some()
                && now.since(remote.heard_at) <= HEARD_LATELY
        })
    }

    /// Asks whether the port is served at the address to which the call was passed on, or to which alone it goes.
    pub(super) fn follow(
        &mut self,
        now: Time,
        common: &mut Common,
        number: CallNumber,
        (port, to): (Port, SocketAddr),
    ) {
        let Some(call) = self.get_mut(number) else { return };
        call.stage = Stage::Following(to);
        let locate = common.settings.locate;
        let asks_for = match call.pinned {
            Some(_) => call.silence.map_or(locate, |silence| silence.min(locate)),
            None => ASK_FOR,
        };
        common.probe(Probe::ForwardFollowed);
        let nonce = common.random.next_u64();
        let target = self.targets.entry((port, to)).or_insert_with(|| Target {
            nonce,
            ask_at: now,
            ask_again_after: FORWARD_ASK_FIRST,
            until: now + ASK_FOR,
            calls: Vec::new(),
        });
        target.calls.push(number);
        target.until = target.until.max(now + asks_for);
        self.target_timeout(now, common, port, to);
    }

    /// Asks again if it is due.
    pub(super) fn target_timeout(&mut self, now: Time, common: &mut Common, port: Port, to: SocketAddr) {
        let Some(target) = self.targets.get_mut(&(port, to)) else { return };
        if target.until <= now {
            return self.give_up_target(now, common, (port, to), SoFar::NoServerFound);
        }
        if target.ask_at <= now {
            target.ask_at = now + target.ask_again_after;
            target.ask_again_after = (target.ask_again_after * 2).min(PATIENCE_MAX);
            let nonce = target.nonce;
            common.ask(CallDestination::Address(to), nonce, port);
        }
        let at = target.ask_at.min(target.until);
        self.wake_by(at);
    }

    /// Sends the calls that were passed on to this address: `server` serves the port there.
    pub(super) fn start_followers(
        &mut self,
        now: Time,
        common: &mut Common,
        port: Port,
        to: SocketAddr,
        serving: Serving,
    ) {
        let Some(target) = self.targets.remove(&(port, to)) else { return };
        if let Some(known) = self.ports.get_mut(port) {
            known.stay_with(serving.instance);
        }
        for number in target.calls {
            if !self.follows(number, to) {
                continue;
            }
            let has_slot =
                self.remotes.get(serving.uid).is_some_and(|remote| usize::from(remote.under_way) < SLOTS_MAX);
            match has_slot && self.may_have(serving, number) {
                true => self.start(now, common, number, serving),
                false => self.wait_for_server(now, common, number),
            }
        }
    }

    /// Gives up an address that does not serve the port, or does not answer; its calls go to any other server. Those
    /// that go nowhere else end.
    pub(super) fn give_up_target(
        &mut self,
        now: Time,
        common: &mut Common,
        (port, to): (Port, SocketAddr),
        so_far: SoFar,
    ) {
        let Some(target) = self.targets.remove(&(port, to)) else { return };
        common.probe(Probe::ForwardAstray);
        for number in target.calls {
            if !self.follows(number, to) {
                continue;
            }
            match self.get_mut(number) {
                Some(call) if call.pinned.is_some() => {
                    call.note(so_far);
                    let failure = call.so_far.failure();
                    self.finish(now, common, number, Err(failure), false);
                }
                _ => self.wait_for_server(now, common, number),
            }
        }
        self.ask_for(now, common, port);
    }

    fn follows(&mut self, number: CallNumber, to: SocketAddr) -> bool {
        self.get_mut(number)
            .is_some_and(|call| matches!(call.stage, Stage::Following(address) if address == to))
    }
}

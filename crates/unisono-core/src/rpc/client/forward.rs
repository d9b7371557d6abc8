//! Calls that a server passes on to another address.
//!
//! The forwarding server has not executed the call and never will. The client first asks whether the process at the new
//! address serves the port, unless it was heard in the last 50 ms: it may have died, or another process may have its
//! address. If it does not serve the port, the call looks for any server again, and avoids the forwarding server for a
//! while. The call keeps its number and counts its hops.

use super::Client;
use super::call::{SoFar, Stage};
use super::losing::AVOIDS_FOR;
use crate::identity::{Port, Uid};
use crate::planted::{Planted, Probe};
use crate::rpc::common::Common;
use crate::rpc::types::{CallDestination, CallNumber};
use crate::time::Time;
use crate::wire::{Attempt, Frame, Grant, HOPS_MAX, SLOTS_MAX};
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
        from: Uid,
        (attempt, grant): (Attempt, Grant),
        to: SocketAddr,
    ) {
        let Some(number) = self.hear(now, common, from, attempt, Some(grant)) else {
            return self.acknowledge_again(common, from, attempt);
        };
        self.note_taken(now, from, number);
        self.leave_server(now, common, number, true);
        common.counters.forwards += 1;
        let Some(call) = self.get_mut(number) else { return };
        if !common.broken(Planted::HopsUncounted) {
            call.hops = (call.hops + 1).min(HOPS_MAX);
        }
        call.note(SoFar::NotTaken);
        call.avoids = Some((from, now + ASK_FOR + AVOIDS_FOR));
        let port = call.port;
        let there = self.remotes.iter().find(|(_, remote)| {
            remote.address == to
                && remote.service(port).is_some()
                && now.since(remote.heard_at) <= HEARD_LATELY
                && usize::from(remote.under_way) < SLOTS_MAX
        });
        match there.map(|(uid, _)| uid).filter(|uid| self.may_have(*uid, number)) {
            Some(uid) => self.start(now, common, number, uid),
            None => self.follow(now, common, number, (port, to)),
        }
        // Other calls may wait for the slot that became free.
        self.place(now, common, port);
    }

    /// Asks whether the port is served at the address to which the call was passed on.
    fn follow(&mut self, now: Time, common: &mut Common, number: CallNumber, (port, to): (Port, SocketAddr)) {
        let Some(call) = self.get_mut(number) else { return };
        call.stage = Stage::Following(to);
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
        self.target_timeout(now, common, port, to);
    }

    /// Asks again if it is due.
    pub(super) fn target_timeout(&mut self, now: Time, common: &mut Common, port: Port, to: SocketAddr) {
        let Some(target) = self.targets.get_mut(&(port, to)) else { return };
        if target.until <= now {
            return self.give_up_target(now, common, port, to);
        }
        if target.ask_at <= now {
            target.ask_at = now + target.ask_again_after;
            target.ask_again_after *= 2;
            let nonce = target.nonce;
            common.counters.locates += 1;
            common.post_to(CallDestination::Address(to), Frame::LocatePort { nonce, port });
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
        server: Uid,
    ) {
        let Some(target) = self.targets.remove(&(port, to)) else { return };
        for number in target.calls {
            if !self.follows(number, to) {
                continue;
            }
            let has_slot =
                self.remotes.get(server).is_some_and(|remote| usize::from(remote.under_way) < SLOTS_MAX);
            match has_slot && self.may_have(server, number) {
                true => self.start(now, common, number, server),
                false => self.wait_for_server(now, common, number),
            }
        }
    }

    /// Gives up an address that does not serve the port, or does not answer; its calls go to any other server.
    pub(super) fn give_up_target(&mut self, now: Time, common: &mut Common, port: Port, to: SocketAddr) {
        let Some(target) = self.targets.remove(&(port, to)) else { return };
        common.probe(Probe::ForwardAstray);
        for number in target.calls {
            if self.follows(number, to) {
                self.wait_for_server(now, common, number);
            }
        }
        self.ask_for(now, common, port);
    }

    fn follows(&mut self, number: CallNumber, to: SocketAddr) -> bool {
        self.get_mut(number)
            .is_some_and(|call| matches!(call.stage, Stage::Following(address) if address == to))
    }
}

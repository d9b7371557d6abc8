//! What becomes of a call whose server does not take it, or is lost.
//!
//! Once a request may have arrived at a server's life, the call goes elsewhere only when it is certain that this life
//! has not executed it and never will: on its own word, or when it was dead before. Otherwise the outcome is unknown;
//! except for a service that recognises repeats, which is asked again elsewhere, by the same number.

use super::Client;
use super::call::{Call, SoFar};
use crate::identity::Uid;
use crate::planted::{Planted, Probe};
use crate::rpc::common::Common;
use crate::rpc::types::{CallFailure, CallNumber};
use crate::time::Time;
use crate::wire::{Attempt, Cookie};
use core::net::SocketAddr;
use core::time::Duration;

/// For so long a call is left to others than the server that did not take it, if there are any.
pub(super) const AVOIDS_FOR: Duration = Duration::from_millis(100);
/// By such a part two clocks may differ in what they take for a second, and by so much besides.
const DRIFT_PART: u32 = 40;
const DRIFT_MARGIN: Duration = Duration::from_millis(10);

impl Client {
    /// The attempt was not executed and never will be: another one.
    pub(super) fn go_elsewhere(
        &mut self,
        now: Time,
        common: &mut Common,
        number: CallNumber,
        so_far: SoFar,
        avoids: Option<Uid>,
    ) {
        self.leave_server(now, common, number, true);
        let Some(call) = self.get_mut(number) else { return };
        call.note(so_far);
        call.avoids = avoids.map(|uid| (uid, now + AVOIDS_FOR));
        self.wait_for_server(now, common, number);
    }

    /// Nobody can say any more what became of the attempt.
    pub(super) fn lose_attempt(&mut self, now: Time, common: &mut Common, number: CallNumber, silent: bool) {
        let Some(call) = self.get_mut(number) else { return };
        let (port, server) = (call.port, call.sent().map(|sent| sent.server));
        let serving = self
            .ports
            .get(port)
            .and_then(|known| known.servers.iter().find(|serving| Some(serving.uid) == server));
        let repeats = serving.is_some_and(|serving| serving.repeats);
        if repeats || common.broken(Planted::ElsewhereOnSilence) {
            common.probe(Probe::RepeatedElsewhere);
            let so_far = if repeats { SoFar::Unclear } else { SoFar::NotTaken };
            self.go_elsewhere(now, common, number, so_far, server.filter(|_| silent));
        } else {
            self.finish(now, common, number, Err(CallFailure::Unknown), true);
        }
    }

    /// A server's life is over, or silent for too long. What it cannot have had goes elsewhere: that is what did not
    /// leave yet, and what left after that life was `dead_for` so long.
    pub(super) fn lose_server(
        &mut self,
        now: Time,
        common: &mut Common,
        server: Uid,
        dead_for: Option<Duration>,
    ) {
        let Some(remote) = self.remotes.get(server) else { return };
        common.counters.given_up += 1;
        common.probe(Probe::ServerGivenUp);
        let calls: alloc::vec::Vec<CallNumber> = remote.slots.iter().filter_map(|slot| slot.call).collect();
        // First the calls, which still have to know whether it recognises repeats; none may be placed there again.
        if let Some(remote) = self.remotes.get_mut(server) {
            remote.is_lost = true;
        }
        for number in calls {
            let Some(sent) = self.get_mut(number).and_then(Call::sent) else { continue };
            let believes = common.broken(Planted::OtherLifeBelieved);
            let was_dead =
                |first: Time| dead_for.is_some_and(|age| certainly_before(age, now.since(first)) || believes);
            if sent.first_at.is_none_or(was_dead) {
                common.probe(Probe::DeadBefore);
                self.go_elsewhere(now, common, number, SoFar::NotTaken, Some(server));
            } else {
                self.lose_attempt(now, common, number, true);
            }
        }
        let Some(remote) = self.forget_remote(server) else { return };
        for service in remote.services {
            self.place(now, common, service.port);
        }
    }

    /// Somebody else lives where this attempt went, and has for so long.
    pub(super) fn handle_other_life(
        &mut self,
        now: Time,
        common: &mut Common,
        address: SocketAddr,
        attempt: Attempt,
        age: Duration,
    ) {
        let is_meant = |slot: &super::remote::Slot| slot.number == attempt.number && slot.call.is_some();
        let dead = self.remotes.iter().find(|(_, remote)| {
            attempt.to == common.me
                && remote.address == address
                && remote.slots.get(usize::from(attempt.slot)).is_some_and(is_meant)
        });
        let Some((uid, remote)) = dead else {
            common.counters.stale += 1;
            return;
        };
        // Who is older than the last word from the dead one was not at this address all its life: addresses move.
        let dead_for = (age < now.since(remote.heard_at)).then_some(age);
        self.lose_server(now, common, uid, dead_for);
    }

    /// The server knows no session with us. If it may have had one with this attempt in it, nobody can say what became
    /// of it; otherwise it is shown what it asks for.
    pub(super) fn show_cookie(&mut self, now: Time, common: &mut Common, number: CallNumber, cookie: Cookie) {
        let Some(sent) = self.calls.get_mut(super::index(number)).and_then(Call::sent) else { return };
        let (server, slot) = (sent.server, sent.slot);
        let Some(remote) = self.remotes.get_mut(server) else { return };
        if cookie.issued <= remote.cookie.issued {
            // Overtaken by another that was shown since.
            common.counters.stale += 1;
            return;
        }
        if sent.may_be_forgotten(now) {
            return self.lose_attempt(now, common, number, false);
        }
        (remote.cookie, remote.is_established) = (cookie, false);
        if !core::mem::replace(&mut sent.has_shown_cookie, true) {
            self.send_slot(server, slot);
        }
    }
}

/// Something that is so old by another clock was there before something that happened so long ago by ours.
fn certainly_before(age: Duration, ago: Duration) -> bool {
    age.saturating_sub(age / DRIFT_PART).saturating_sub(DRIFT_MARGIN) > ago
}

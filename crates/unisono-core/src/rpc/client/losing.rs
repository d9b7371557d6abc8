//! Calls whose server does not take them, or is lost.
//!
//! Once a request may have arrived at a server's life, the call goes to another server only when it is certain that
//! this life has not executed it and never will: because the server says so, or because it was dead before. Otherwise
//! the outcome is unknown. The exception is a service that recognises repeats: the client repeats the call at another
//! server, with the same number.

use super::Client;
use super::call::{Call, Sent, SoFar};
use super::remote::Standing;
use crate::identity::Uid;
use crate::planted::{Planted, Probe};
use crate::rpc::common::Common;
use crate::rpc::types::{CallFailure, CallNumber};
use crate::time::Time;
use crate::wire::Cookie;
use core::time::Duration;

/// How long a call avoids a server that is lost, if there are others.
pub(super) const AVOIDS_FOR: Duration = Duration::from_millis(100);
/// Two clocks may differ by a fortieth of a period, plus 10 ms.
const DRIFT_PART: u32 = 40;
const DRIFT_MARGIN: Duration = Duration::from_millis(10);

impl Client {
    /// Makes another attempt, because this one was not executed and never will be.
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
        if call.pinned.is_some() && so_far != SoFar::PushedBack {
            let failure = call.so_far.failure();
            return self.finish(now, common, number, Err(failure), true);
        }
        match avoids {
            Some(server) if so_far == SoFar::PushedBack => call.avoids.note_busy(now, server),
            _ => call.avoids.note_lost(avoids.map(|server| (server, now + AVOIDS_FOR))),
        }
        self.wait_for_server(now, common, number);
    }

    /// Handles an attempt of which no server can say any more whether it was executed.
    pub(super) fn lose_attempt(&mut self, now: Time, common: &mut Common, number: CallNumber, silent: bool) {
        let Some(call) = self.get_mut(number) else { return };
        let pinned = call.pinned.is_some();
        let Some(&mut Sent { server, repeats, instance, .. }) = call.sent() else { return };
        call.instance = instance;
        let repeats = repeats && !pinned;
        if repeats || common.broken(Planted::ElsewhereOnSilence) {
            common.probe(Probe::RepeatedElsewhere);
            let so_far = if repeats { SoFar::Unclear } else { SoFar::NotTaken };
            self.go_elsewhere(now, common, number, so_far, silent.then_some(server));
        } else {
            self.finish(now, common, number, Err(CallFailure::Unknown), true);
        }
    }

    /// Gives up a server whose life is over, or silent for too long. Calls that it cannot have received go to another
    /// server: those not sent yet, and those first sent after that life had ended, which was at least `dead_for` ago.
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
        // The calls need to know whether it recognises repeats, so it is forgotten after them; it gets no new call.
        if let Some(remote) = self.remotes.get_mut(server) {
            remote.standing = Standing::Lost;
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

    /// Handles a server that knows no session with this client. If it may have forgotten one with this attempt, the
    /// outcome is unknown; otherwise the attempt shows the cookie.
    pub(super) fn show_cookie(&mut self, now: Time, common: &mut Common, number: CallNumber, cookie: Cookie) {
        let Some(sent) = self.calls.get_mut(super::index(number)).and_then(Call::sent) else { return };
        let (server, slot) = (sent.server, sent.slot);
        let Some(remote) = self.remotes.get_mut(server) else { return };
        if cookie.issued < remote.cookie.issued {
            // A newer cookie was received since.
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

/// True if something of this `age` by another clock existed before something that happened `ago` by this clock.
fn certainly_before(age: Duration, ago: Duration) -> bool {
    age.saturating_sub(age / DRIFT_PART).saturating_sub(DRIFT_MARGIN) > ago
}

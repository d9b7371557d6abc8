//! Quiet servers: they leave questions unanswered, for much less time than a server that is given up.
//!
//! A call of a service that recognises repeats may be repeated at another server of the same instance at any time: the
//! service executes it once. So the client does not wait until a dead server is given up. When a server becomes quiet,
//! its calls go to the others, and further calls avoid it until it is heard again. Without another server the calls stay
//! where they are. Meanwhile the client asks all servers of the port again, which finds others, and the quiet one if it
//! is alive.

use super::Client;
use super::call::SoFar;
use super::locate::Serving;
use super::remote::Standing;
use crate::identity::{Port, Uid};
use crate::planted::Probe;
use crate::rpc::common::Common;
use crate::rpc::types::CallNumber;
use crate::time::Time;
use alloc::vec::Vec;
use core::time::Duration;

/// Interval at which the servers of a port are asked while one of them is quiet.
const QUIET_ASK_EVERY: Duration = Duration::from_millis(250);

impl Client {
    /// Notes that a server is quiet, and asks all servers of its ports that recognise repeats.
    pub(super) fn ask_quiet_server(&mut self, now: Time, common: &mut Common, server: Uid) {
        let Some(remote) = self.remotes.get_mut(server) else { return };
        remote.standing = Standing::Quiet(now + QUIET_ASK_EVERY);
        let ports: Vec<Port> = remote.services.iter().map(|service| service.port).collect();
        self.wake_by(now + QUIET_ASK_EVERY);
        for port in ports {
            if self.serving(port, server).is_some_and(|serving| serving.repeats) {
                self.ask_beside(now, common, port);
            }
        }
    }

    /// Repeats calls that are at quiet servers at others, as far as there are any.
    pub(super) fn relieve_quiet_servers(&mut self, now: Time, common: &mut Common) {
        let is_quiet = |standing| matches!(standing, Standing::Quiet(_));
        let quiet = self.remotes.iter().filter(|(_, remote)| is_quiet(remote.standing));
        let calls: Vec<(Uid, CallNumber)> = quiet
            .flat_map(|(uid, remote)| remote.slots.iter().filter_map(move |slot| Some((uid, slot.call?))))
            .collect();
        for (server, number) in calls {
            self.repeat_elsewhere(now, common, number, server);
        }
    }

    /// Repeats a call at another server than this one, if its service recognises repeats and there is one.
    fn repeat_elsewhere(&mut self, now: Time, common: &mut Common, number: CallNumber, server: Uid) {
        let Some(call) = self.calls.get(super::index(number)) else { return };
        let Some(sent) = call.sent_ref().filter(|sent| sent.repeats && call.pinned.is_none()) else { return };
        let (port, instance, is_sent) = (call.port, sent.instance, sent.first_at.is_some());
        let is_other = |serving: &&Serving| {
            let remote = self.remotes.get(serving.uid);
            serving.uid != server
                && serving.repeats
                && serving.instance == instance
                && remote.is_some_and(|remote| remote.has_capacity(now, port))
        };
        if !self.ports.get(port).is_some_and(|known| known.servers.iter().any(|serving| is_other(&serving))) {
            return;
        }
        common.probe(Probe::RepeatedElsewhere);
        self.leave_server(now, common, number, false);
        let Some(call) = self.get_mut(number) else { return };
        if is_sent {
            call.instance = instance;
            call.note(SoFar::Unclear);
        } else {
            call.note(SoFar::NotTaken);
        }
        self.wait_for_server(now, common, number);
    }
}

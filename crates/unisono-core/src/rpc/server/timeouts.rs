//! Timeouts of a server: parts are sent again, incomplete requests given up, idle sessions forgotten.
//!
//! `wake` is never later than the first deadline. When it is reached, all deadlines are checked and `wake` is set anew.

use super::Server;
use super::session::Session;
use super::session::State;
use super::sessions::SessionId;
use crate::planted::{Planted, Probe};
use crate::rpc::common::Common;
use crate::time::{Time, earlier};
use crate::wire::Rejection;
use alloc::vec::Vec;
use core::time::Duration;

/// A session is forgotten when nothing was received in it for 60 s and nothing is in progress.
pub(in crate::rpc) const SESSION_IDLE: Duration = Duration::from_secs(60);
/// Interval after which a large reply is looked at again that has nothing due, at least.
const REPLY_LOOK_AGAIN_AFTER: Duration = Duration::from_millis(1);
/// Interval between two searches for idle sessions.
const SWEEP_EVERY: Duration = Duration::from_secs(15);

impl Server {
    pub(in crate::rpc) fn wake_at(&self) -> Option<Time> {
        (self.wake != Time::NEVER).then_some(self.wake)
    }

    pub(super) fn wake_by(&mut self, at: Time) {
        self.wake = self.wake.min(at);
    }

    /// Schedules the search for idle sessions; called when there is a session.
    pub(super) fn expect_sweep(&mut self, now: Time) {
        if self.sweep_at == Time::NEVER {
            self.sweep_at = now + SWEEP_EVERY;
            self.wake_by(self.sweep_at);
        }
    }

    pub(in crate::rpc) fn handle_timeout(&mut self, now: Time, common: &mut Common) {
        if now < self.wake {
            return;
        }
        if now >= self.sweep_at {
            self.forget_entitled(now);
            self.evict_idle(now, common);
            self.sweep_at = if self.sessions.len() == 0 { Time::NEVER } else { now + SWEEP_EVERY };
        }
        let sending = self.sending_timeout(now, common);
        let receiving = self.receiving_timeout(now, common);
        let next = earlier(sending, receiving);
        self.wake = next.map_or(self.sweep_at, |at| at.min(self.sweep_at));
    }

    /// Forgets idle sessions. Cookies issued before this moment open no session any more.
    fn evict_idle(&mut self, now: Time, common: &mut Common) {
        let is_idle =
            |session: &Session| session.in_progress == 0 && now.since(session.heard_at) > SESSION_IDLE;
        let idle: Vec<SessionId> =
            self.sessions.iter().filter(|(_, session)| is_idle(session)).map(|(id, _)| id).collect();
        for &id in &idle {
            let Some(session) = self.sessions.get(id) else { continue };
            let (source, slots) = (session.source, session.slots.len());
            for slot in 0..slots {
                self.change(id, slot as u16, State::Done);
            }
            self.sessions.forget(id);
            self.drop_session(source, slots);
        }
        if !idle.is_empty() {
            common.counters.sessions_evicted += idle.len() as u64;
            common.probe(Probe::SessionForgotten);
            if !common.broken(Planted::HorizonForgotten) {
                self.cookies.raise_horizon(now);
            }
        }
    }

    /// Sends lost parts again, and stops sending to a client that has been silent for too long; the client may ask
    /// again. Returns when to look again.
    fn sending_timeout(&mut self, now: Time, common: &mut Common) -> Option<Time> {
        while let Some(&(look_at, id, slot, number)) = self.look_times.first()
            && look_at <= now
        {
            self.look_times.pop_first();
            let session = self.sessions.get_mut(id);
            let place = session.and_then(|session| session.attempt(slot, number)).map(|slot| &mut slot.state);
            let Some(State::Replied(kept)) = place else { continue };
            let Some(sending) = kept.transfer.as_deref_mut().filter(|sending| sending.look_at == look_at)
            else {
                continue;
            };
            let silence = common.settings.silence;
            let parts = &mut sending.parts;
            if parts.is_over() || now.since(parts.heard_at()) >= silence {
                kept.transfer = None;
                continue;
            }
            parts.handle_timeout(now);
            // Nothing is due at this moment any more.
            sending.look_at = sending.due_at(silence).max(now + REPLY_LOOK_AGAIN_AFTER);
            self.look_times.insert((sending.look_at, id, slot, number));
            self.attend(common, (id, slot, number));
        }
        self.look_times.first().map(|(look_at, ..)| *look_at)
    }

    /// Gives up incomplete requests that do not begin, or of which no part arrives any more. Returns when to look again.
    fn receiving_timeout(&mut self, now: Time, common: &mut Common) -> Option<Time> {
        while let Some(&(until, id, slot)) = self.incomplete.first()
            && until <= now
        {
            self.incomplete.pop_first();
            let session = self.sessions.get_mut(id);
            let place = session.and_then(|session| session.slots.get_mut(usize::from(slot)));
            let Some(State::Receiving(receiving)) = place.map(|place| &mut place.state) else { continue };
            if receiving.is_heard_of(now) {
                self.incomplete.insert((receiving.look_at, id, slot));
            } else {
                // What never began may begin anew.
                let has_begun = receiving.incoming.has(0);
                let reason = if has_begun { Rejection::Expired } else { Rejection::Busy };
                common.counters.rejected += 1;
                self.settle(id, slot, State::Rejected(reason));
            }
        }
        self.incomplete.first().map(|(until, ..)| *until)
    }
}

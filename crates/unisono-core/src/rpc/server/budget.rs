//! Limits on what a server takes and keeps. Every change of a slot's state is accounted for here, and nowhere else.

use super::session::State;
use super::sessions::SessionId;
use super::{Server, Service};
use crate::identity::Port;
use crate::rpc::common::Common;
use crate::time::Time;
use crate::wire::{Grant, SLOTS_MAX};
use core::time::Duration;

/// Maximum number of bytes of replies kept until their arrival is known; beyond, the oldest are dropped.
pub(in crate::rpc) const KEPT_BYTES_MAX: usize = 64 << 20;
/// Maximum number of slots of all sessions.
pub(in crate::rpc) const SLOTS_TOTAL_MAX: usize = 1 << 18;
/// Maximum number of sessions.
pub(in crate::rpc) const SESSIONS_MAX: usize = 1 << 16;

/// Amounts in use.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Budget {
    /// Sum of `queue_max` of all services.
    pub(super) queues_max: usize,
    /// Entries of all queues.
    pub(super) queued: usize,
    /// Requests that wait, are incomplete or are being worked on.
    pub(super) pending: usize,
    /// Sessions with requests in progress.
    pub(super) busy_sessions: usize,
    pub(super) slots: usize,
    pub(super) receiving_bytes: usize,
    /// Bytes of requests that wait or are being worked on.
    pub(super) taken_bytes: usize,
    pub(super) kept_bytes: usize,
}

impl Server {
    /// Changes the state of a slot's attempt.
    pub(super) fn change(&mut self, id: SessionId, slot: u16, state: State) {
        let Some(session) = self.sessions.get_mut(id) else { return };
        let Some(place) = session.slots.get_mut(usize::from(slot)) else { return };
        let (left, taken) = (&place.state, &state);
        let budget = &mut self.budget;
        budget.receiving_bytes = budget.receiving_bytes + taken.receiving_bytes() - left.receiving_bytes();
        budget.taken_bytes = budget.taken_bytes + taken.waiting_bytes() - left.waiting_bytes();
        budget.kept_bytes = budget.kept_bytes + taken.kept_bytes() - left.kept_bytes();
        match (left.is_in_progress(), taken.is_in_progress()) {
            (false, true) => {
                budget.busy_sessions += usize::from(session.in_progress == 0);
                session.in_progress += 1;
            }
            (true, false) => {
                session.in_progress -= 1;
                budget.busy_sessions -= usize::from(session.in_progress == 0);
            }
            _ => {}
        }
        // A request that the application has counts until it is answered, whether or not its client still waits.
        let handed_over = matches!(taken, State::InHand);
        let (left, taken) = (left.place(), taken.place());
        place.state = state;
        if left != taken && !handed_over {
            if let Some(port) = left {
                self.release_place(port);
            }
            if let Some(port) = taken {
                self.take_place(port);
            }
        }
    }

    fn take_place(&mut self, port: Port) {
        self.budget.pending += 1;
        if let Some(service) = self.services.get_mut(port) {
            service.pending += 1;
        }
    }

    /// Notes that a request for this port neither waits nor is worked on any longer.
    pub(super) fn release_place(&mut self, port: Port) {
        self.budget.pending = self.budget.pending.saturating_sub(1);
        if let Some(service) = self.services.get_mut(port) {
            service.pending = service.pending.saturating_sub(1);
        }
    }

    /// Returns a client's grant: its requests in progress plus a fair share of what the queues still take; and the
    /// load.
    pub(super) fn grant(&self, in_progress: u16) -> Grant {
        let left = self.budget.queues_max.saturating_sub(self.budget.pending);
        let share = left / self.budget.busy_sessions.max(1) + usize::from(in_progress);
        Grant {
            slots: share.clamp(1, SLOTS_MAX) as u16,
            load: u16::try_from(self.budget.pending).unwrap_or(u16::MAX),
        }
    }

    /// Drops kept replies while they have too many bytes: each time the older half of the period that they reach back.
    pub(super) fn drop_replies_beyond_bounds(&mut self, now: Time, common: &mut Common) {
        while self.budget.kept_bytes > KEPT_BYTES_MAX {
            let kept = self.sessions.iter().flat_map(|(_, session)| &session.slots);
            let since = kept.filter_map(|slot| match &slot.state {
                State::Replied(kept) => Some(kept.since),
                _ => None,
            });
            let Some(oldest) = since.min() else { return };
            let through = oldest + Duration::from_nanos(now.since(oldest).as_nanos() as u64 / 2);
            for session in self.sessions.iter_mut() {
                for slot in &mut session.slots {
                    if let State::Replied(kept) = &slot.state
                        && kept.since <= through
                    {
                        self.budget.kept_bytes -= kept.reply.len();
                        common.counters.replies_dropped += 1;
                        slot.state = State::Lost;
                    }
                }
            }
        }
    }
}

impl Service {
    pub(super) fn is_full(&self) -> bool {
        self.pending >= self.options.queue_max
    }
}

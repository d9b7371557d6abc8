//! An endpoint's counters and current amounts, for reports and for the simulator's checkers.

use super::Endpoint;
use super::types::CallCounters;
use crate::planted::Planted;

/// Amounts that an endpoint has under way and keeps; each of them has a named bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallAccount {
    /// Calls under way.
    pub calls: usize,
    /// Servers that the client remembers.
    pub servers_known: usize,
    /// Sessions that the server remembers.
    pub sessions: usize,
    /// Slots of all these sessions.
    pub slots: usize,
    /// Requests that are incomplete, wait or are being worked on.
    pub pending: usize,
    /// The most places of one queue that one address has beyond the first half.
    pub share_places: usize,
    /// Requests that wait for the application.
    pub queued: usize,
    /// Requests that the application has.
    pub in_hand: usize,
    /// Bytes of large messages that are incomplete, on both sides.
    pub receiving_bytes: usize,
    /// Bytes of requests that wait for the application, or that it has.
    pub taken_bytes: usize,
    /// Bytes of replies that are kept until their arrival is known.
    pub kept_bytes: usize,
    /// Large replies of which a part may be sent now. Those whose parts are all under way are not looked at.
    pub sending: usize,
}

impl Endpoint {
    /// Returns the counters.
    pub fn counters(&self) -> &CallCounters {
        &self.common.counters
    }

    /// Returns the amounts that are under way and kept.
    pub fn account(&self) -> CallAccount {
        let mut account = self.server.account();
        account.calls = self.client.calls.len();
        account.servers_known = self.client.remotes.len();
        account.receiving_bytes += self.client.receiving_bytes();
        account
    }

    /// Returns the rare states met so far: bit `n` stands for the `n`th of [`Probe::ALL`](crate::Probe::ALL).
    pub fn probes(&self) -> u128 {
        self.common.probes
    }

    /// Switches a protocol bug on. Without the feature `planted` this does nothing.
    pub fn plant(&mut self, bug: Planted) {
        self.common.planted = Some(bug);
    }

    /// Makes the client of this endpoint one that takes what it can get: it acknowledges no reply, takes its slots from their
    /// end, heeds no push-back for long, and claims of any call that it was forwarded or is a repeat. Without the feature
    /// `planted` this does nothing.
    pub fn misbehave(&mut self) {
        self.common.is_hostile = true;
    }
}

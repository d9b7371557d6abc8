//! The audience of this member's datagrams: when it is computed anew, and what else decides about multicast.
//!
//! `peers/audience.rs` computes it.

use super::{Destination, Group};
use crate::identity::Seqno;
use crate::log::Entry;
use crate::peers::{Audience, Means};
use crate::time::Time;
use core::time::Duration;

/// Time for which a multicast shows that its receiver hears the path; longer in larger groups, where they are rarer.
const MULTICAST_FRESH: Duration = Duration::from_millis(5000);

impl Group {
    /// Returns how datagrams to [`Destination::Everyone`](crate::Destination::Everyone) are sent.
    pub fn audience(&self) -> &Audience {
        self.addressing.audience()
    }

    /// True if the peers or the role have changed since the audience was computed.
    #[inline]
    pub(super) fn audience_is_stale(&self) -> bool {
        self.addressing.is_stale(&self.peers, self.order.role_changes())
    }

    #[cold]
    pub(super) fn rebuild_audience(&mut self, now: Time) {
        let means = Means {
            transport: self.settings.transport,
            here: self.me.address.ip(),
            // Members still acknowledge to a predecessor while they do not know that it handed its role on.
            // In a ring each member announces what it numbered, and counts which members hear the multicast.
            announces: self.report_to().is_none() || self.is_predecessor() || self.is_ring(),
            is_ring: self.is_ring(),
            multicast_heard: self.order.multicast_heard(),
            untold_hear: self.untold_hear_multicast(),
            is_unheard: self.is_ring() && !self.outbox.multicasts_are_usable(now),
        };
        self.addressing.compute(&self.peers, self.order.role_changes(), &means);
    }

    /// True if members that have not reported here are taken to hear the multicast.
    pub(crate) fn untold_hear_multicast(&self) -> bool {
        self.is_ring() && self.order.multicast_heard()
    }

    /// True if this member received a multicast of the group not long ago.
    pub(crate) fn hears_multicast(&self, now: Time) -> bool {
        self.acknowledging.heard_multicast_within(now, self.stretched(MULTICAST_FRESH))
    }

    /// Returns the number of datagrams that leave for this destination: one multicast, and a copy for each member that
    /// it does not reach.
    pub(crate) fn copies(&self, to: Destination) -> u64 {
        match to {
            Destination::Everyone => {
                let audience = self.audience();
                u64::from(audience.multicast) + audience.addresses.len() as u64
            }
            Destination::Address(_) | Destination::Multicast | Destination::Rendezvous => 1,
        }
    }

    /// Puts the sender of the message first among the copies, because its application may wait for the outcome.
    pub(super) fn serve_sender_first(&mut self, seqno: Seqno) {
        let Some(Entry::Message(message)) = self.log.history().get(seqno) else { return };
        if let Some(address) = self.peers.address(message.sender) {
            self.addressing.put_first(address);
        }
    }
}

//! The audience: how a datagram for the whole group reaches it, by one multicast or by a copy for each member.
//!
//! Members report whether they hear the multicast, and the sequencer announces whether all do. The sequencer multicasts
//! as soon as that is cheaper, and sends copies to members that do not hear it. The other members multicast only once
//! all hear it.

use super::{Destination, Group};
use crate::config::Transport;
use crate::history::Entry;
use crate::identity::Seqno;
use crate::time::Time;
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::time::Duration;

/// Minimum number of members that hear the multicast: for fewer, copies cost less on the systems measured.
const MULTICAST_FROM: usize = 3;
/// The same if all members are on one machine: there a multicast costs little more than a copy.
const MULTICAST_FROM_ON_ONE_MACHINE: usize = 2;
/// Time for which a multicast shows that its receiver hears the path; longer in larger groups, where they are rarer.
const MULTICAST_FRESH: Duration = Duration::from_millis(5000);

/// How a datagram for the whole group is sent: by multicast if that is set, and as a copy to each of the addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Audience {
    /// True if one copy goes to the group's multicast address.
    pub multicast: bool,
    /// Addresses that get one copy each.
    pub addresses: Vec<SocketAddr>,
}

impl Group {
    /// Returns how datagrams to [`Destination::Everyone`](crate::Destination::Everyone) are sent.
    pub fn audience(&self) -> &Audience {
        &self.audience
    }

    /// Computes the audience anew, after the view has changed or the members that hear the multicast have.
    #[cold]
    pub(super) fn rebuild_audience(&mut self) {
        self.audience_is_stale = false;
        // Members still acknowledge to a predecessor while they do not know that it handed its role on.
        let counts = self.report_to().is_none() || self.is_predecessor();
        let all_hear = if counts { self.all_hear_multicast() } else { self.order.multicast_heard() };
        self.audience.addresses.clear();
        let hearers = self.peers.iter().filter(|peer| peer.hears_multicast).count();
        let enough = match self.settings.transport {
            Transport::Unicast => false,
            Transport::Multicast => hearers > 0 || (!counts && all_hear),
            Transport::Auto => hearers >= self.multicast_from() || (!counts && all_hear),
        };
        self.audience.multicast = enough && (counts || all_hear);
        for peer in self.peers.iter() {
            let reached = self.audience.multicast && (if counts { peer.hears_multicast } else { all_hear });
            if !reached {
                self.audience.addresses.push(peer.member.address);
            }
        }
    }

    /// Returns the number of members that must hear the multicast before it is used.
    fn multicast_from(&self) -> usize {
        let here = self.me.address.ip();
        match self.peers.iter().all(|peer| peer.member.address.ip() == here) {
            true => MULTICAST_FROM_ON_ONE_MACHINE,
            false => MULTICAST_FROM,
        }
    }

    /// True if every member is seen to hear the group's multicast.
    pub(crate) fn all_hear_multicast(&self) -> bool {
        self.peers.len() > 0 && self.peers.iter().all(|peer| peer.hears_multicast)
    }

    /// True if this member received a multicast of the group not long ago.
    pub(crate) fn hears_multicast(&self, now: Time) -> bool {
        self.acknowledging.multicast_at.is_some_and(|at| now.since(at) < self.stretched(MULTICAST_FRESH))
    }

    /// Returns the number of datagrams that leave for this destination: one multicast, and a copy for each member that
    /// it does not reach.
    pub(super) fn copies(&self, to: Destination) -> u64 {
        match to {
            Destination::Everyone => {
                u64::from(self.audience.multicast) + self.audience.addresses.len() as u64
            }
            Destination::Address(_) | Destination::Multicast | Destination::Rendezvous => 1,
        }
    }

    /// Puts the sender of the message first among the copies, because its application may wait for the outcome.
    pub(super) fn serve_sender_first(&mut self, seqno: Seqno) {
        let Some(Entry::Message(message)) = self.history.get(seqno) else { return };
        let Some(sender) = self.peers.address(message.sender) else { return };
        if let Some(place) = self.audience.addresses.iter().position(|address| *address == sender) {
            self.audience.addresses.swap(0, place);
        }
    }
}

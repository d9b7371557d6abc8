//! Who hears what is meant for the whole group: by one multicast, or by a copy each.
//!
//! Members say whether they hear the multicast, and the sequencer whether all do. The sequencer multicasts as soon as it is
//! worth it, and sends copies to those who do not hear it; the others multicast only once everybody hears.

use super::{Destination, Group};
use crate::config::Transport;
use crate::history::Entry;
use crate::identity::Seqno;
use crate::time::Time;
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::time::Duration;

/// Below so many members who hear it, a copy for each costs less than a multicast on the systems measured...
const MULTICAST_FROM: usize = 3;
/// ... or below so many, if all are on one machine: there a multicast costs little more than a copy.
const MULTICAST_FROM_ON_ONE_MACHINE: usize = 2;
/// Multicasts heard within this time count as hearing the path; longer in larger groups, where they are rarer.
const MULTICAST_FRESH: Duration = Duration::from_millis(5000);

/// Who hears a datagram for the whole group: one multicast if that is set, and one copy to each of the addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Audience {
    /// One copy goes to the group's multicast address.
    pub multicast: bool,
    /// One copy goes to each of these.
    pub addresses: Vec<SocketAddr>,
}

impl Group {
    /// Who hears what is sent to [`Destination::Everyone`](crate::Destination::Everyone).
    pub fn audience(&self) -> &Audience {
        &self.audience
    }

    /// Who is to get a copy, anew: after the view, or who hears the multicast, has changed.
    #[cold]
    pub(super) fn rebuild_audience(&mut self) {
        self.audience_is_stale = false;
        // Acknowledgements still come to a predecessor that nobody else knows of.
        let acting = self.order.is_acting() || self.is_predecessor();
        let all_hear = if acting { self.all_hear_multicast() } else { self.order.multicast_heard() };
        self.audience.addresses.clear();
        let hearers = self.peers.iter().filter(|peer| peer.hears_multicast).count();
        let enough = match self.settings.transport {
            Transport::Unicast => false,
            Transport::Multicast => hearers > 0 || (!acting && all_hear),
            Transport::Auto => hearers >= self.multicast_from() || (!acting && all_hear),
        };
        self.audience.multicast = enough && (acting || all_hear);
        for peer in self.peers.iter() {
            let reached = self.audience.multicast && (if acting { peer.hears_multicast } else { all_hear });
            if !reached {
                self.audience.addresses.push(peer.member.address);
            }
        }
    }

    /// So many members have to hear the multicast for it to be worth it.
    fn multicast_from(&self) -> usize {
        let here = self.me.address.ip();
        match self.peers.iter().all(|peer| peer.member.address.ip() == here) {
            true => MULTICAST_FROM_ON_ONE_MACHINE,
            false => MULTICAST_FROM,
        }
    }

    /// Every member is seen to hear the group's multicast.
    pub(crate) fn all_hear_multicast(&self) -> bool {
        self.peers.len() > 0 && self.peers.iter().all(|peer| peer.hears_multicast)
    }

    /// This member heard the group's multicast not long ago.
    pub(crate) fn hears_multicast(&self, now: Time) -> bool {
        self.acknowledging.multicast_at.is_some_and(|at| now.since(at) < self.stretched(MULTICAST_FRESH))
    }

    /// How often a datagram leaves that goes there: by multicast once, and once for each who is not reached by it.
    pub(super) fn copies(&self, to: Destination) -> u64 {
        match to {
            Destination::Everyone => {
                u64::from(self.audience.multicast) + self.audience.addresses.len() as u64
            }
            Destination::Address(_) | Destination::Multicast | Destination::Rendezvous => 1,
        }
    }

    /// Of the copies for everybody that of the message's sender goes first: somebody may wait there.
    pub(super) fn serve_sender_first(&mut self, seqno: Seqno) {
        let Some(Entry::Message(message)) = self.history.get(seqno) else { return };
        let Some(sender) = self.peers.address(message.sender) else { return };
        if let Some(place) = self.audience.addresses.iter().position(|address| *address == sender) {
            self.audience.addresses.swap(0, place);
        }
    }
}

//! The audience: how a datagram for the whole group reaches it, by one multicast or by a copy for each member.
//!
//! Members report whether they hear the multicast, and the sequencer announces whether all do. The sequencer multicasts
//! as soon as that is cheaper, and sends copies to members that do not hear it. The other members multicast only once
//! all hear it. The audience is computed anew when a counter of what it depends on has moved.

use super::{Peer, Peers};
use crate::config::Transport;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

/// Minimum number of members that hear the multicast: for fewer, copies cost less on the systems measured.
const MULTICAST_FROM: usize = 3;
/// The same if all members are on one machine, where a multicast costs little more than a copy, and in a ring, where every
/// member sends to all and with copies a shared network carries everything twice.
const MULTICAST_FROM_SOONER: usize = 2;

/// How a datagram for the whole group is sent: by multicast if that is set, and as a copy to each of the addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Audience {
    /// True if one copy goes to the group's multicast address.
    pub multicast: bool,
    /// Addresses that get one copy each.
    pub addresses: Vec<SocketAddr>,
}

/// What decides, besides the peers, how a datagram reaches them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Means {
    pub(crate) transport: Transport,
    /// This member's own machine.
    pub(crate) here: IpAddr,
    /// True if this member announces seqnos: it is the sequencer, or its predecessor until the successor is heard, or any
    /// member of a ring.
    pub(crate) announces: bool,
    /// True if the order is a ring.
    pub(crate) is_ring: bool,
    /// True if the sequencer reports that every member hears the multicast.
    pub(crate) multicast_heard: bool,
    /// True if members that have not reported to this one count as such that hear the multicast. So it is in a ring in which
    /// the member with the token says that all hear it, since members report to that one.
    pub(crate) untold_hear: bool,
    /// True if no member hears this member's multicasts, as far as it knows.
    pub(crate) is_unheard: bool,
}

/// The audience, and the counters of its inputs when it was computed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Addressing {
    audience: Audience,
    /// Changes of the peers and of the role; `None` before the first computation.
    computed_at: Option<(u64, u64)>,
}

impl Addressing {
    pub(crate) fn audience(&self) -> &Audience {
        &self.audience
    }

    /// True if the peers or the role have changed since the audience was computed.
    #[inline]
    pub(crate) fn is_stale(&self, peers: &Peers, role_changes: u64) -> bool {
        self.computed_at != Some((peers.changes(), role_changes))
    }

    #[cold]
    pub(crate) fn compute(&mut self, peers: &Peers, role_changes: u64, means: &Means) {
        debug_assert!(
            self.computed_at.is_none_or(|(known, role)| known <= peers.changes() && role <= role_changes),
            "a counter goes back"
        );
        self.computed_at = Some((peers.changes(), role_changes));
        let Means { announces, untold_hear, .. } = *means;
        let all_hear = if announces { peers.all_hear_multicast(untold_hear) } else { means.multicast_heard };
        let hearers = peers.iter().filter(|peer| peer.is_reached_by_multicast(untold_hear)).count();
        let enough = match means.transport {
            Transport::Unicast => false,
            Transport::Multicast => hearers > 0 || (!announces && all_hear),
            Transport::Auto => hearers >= multicast_from(peers, means) || (!announces && all_hear),
        };
        let multicast = enough && (announces || all_hear) && !means.is_unheard;
        let is_reached = |peer: &&Peer| {
            multicast && (if announces { peer.is_reached_by_multicast(untold_hear) } else { all_hear })
        };
        self.audience.multicast = multicast;
        self.audience.addresses.clear();
        self.audience.addresses.extend(peers.iter().filter(|peer| !is_reached(peer)).map(Peer::address));
    }

    /// Puts this address first among the copies, if it gets one.
    pub(crate) fn put_first(&mut self, address: SocketAddr) {
        if let Some(place) = self.audience.addresses.iter().position(|known| *known == address) {
            self.audience.addresses.swap(0, place);
        }
    }
}

/// Returns the number of members that must hear the multicast before it is used.
fn multicast_from(peers: &Peers, means: &Means) -> usize {
    match means.is_ring || peers.iter().all(|peer| peer.address().ip() == means.here) {
        true => MULTICAST_FROM_SOONER,
        false => MULTICAST_FROM,
    }
}

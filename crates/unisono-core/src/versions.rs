//! Processes that use another version of the wire format.
//!
//! Normally there are none. A member cannot read a datagram of another version, so nothing proves that the datagram is
//! genuine: anyone can forge it, whether or not the group has a key. It has three effects:
//!
//! - It is counted, and reported as an [`Episode`](crate::Episode).
//! - It keeps a joiner from founding a second group of the name. It never keeps a joiner from a group that answers. So
//!   an attacker without the key can keep a group without a key from being founded for as long as it sends, but cannot
//!   disturb one that exists. A process with a key founds all the same after three searches (`locate`), because a
//!   forged byte must not outweigh a key. A process that founds without looking (`EntryMode::Found`) is not affected.
//! - A member answers it with a bare header of its own version, so that a joiner of the other version learns that the
//!   group exists. The answer is no longer than the datagram. A bare header is never answered, so two members cannot
//!   answer each other for ever.
//!
//! A bit error can change the version byte too. So a single such datagram is only counted and reported; its sender is
//! believed to use another version if the next one, within a second, has the same source and version.

use crate::group::{Group, Phase};
use crate::identity::EpochTag;
use crate::peers::Peer;
use crate::time::{Pace, Time};
use crate::wire::{HEADER_BYTES, group_tag};
use core::net::SocketAddr;
use core::time::Duration;

/// Maximum interval between two datagrams of one version from one address that show a process of that version.
const FOLLOWS_WITHIN: Duration = Duration::from_secs(1);
/// Minimum interval between two answers of 60 bytes each: forged datagrams draw at most 50 answers a second.
const ANSWER_EVERY: Duration = Duration::from_millis(20);

/// Processes that use another version, as far as this member knows.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OtherVersions {
    /// Source address and version of the last such datagram.
    last: Option<(SocketAddr, u8)>,
    last_at: Time,
    /// Address and version of the last process that is believed to use another version.
    believed: Option<(SocketAddr, u8)>,
    answered: Pace,
}

impl OtherVersions {
    /// Notes a datagram. Returns true if it follows one of the same source and version within `FOLLOWS_WITHIN`.
    fn note(&mut self, now: Time, from: SocketAddr, version: u8) -> bool {
        let pause = now.since(core::mem::replace(&mut self.last_at, now));
        let same = self.last.replace((from, version)) == Some((from, version));
        let follows = same && pause <= FOLLOWS_WITHIN;
        if follows {
            self.believed = self.last;
        }
        follows
    }

    /// Returns the source address and the version of the last datagram of another version.
    pub(crate) fn last(&self) -> Option<(SocketAddr, u8)> {
        self.last
    }

    /// Returns the address and the version of a process that is believed to use another version.
    pub(crate) fn believed(&self) -> Option<(SocketAddr, u8)> {
        self.believed
    }

    /// Forgets these processes, because this joiner has found the group.
    pub(crate) fn forget(&mut self) {
        (self.last, self.believed) = (None, None);
    }
}

impl Group {
    /// Handles a datagram of another version, if it is for a group of this port.
    #[cold]
    pub(crate) fn handle_other_version(
        &mut self,
        now: Time,
        from: SocketAddr,
        datagram: &[u8],
        version: u8,
        multicast: bool,
    ) {
        if group_tag(datagram) != Some(self.tag) || self.phase == Phase::Gone {
            return;
        }
        self.counters.other_version += 1;
        self.episodes.note_other_version(now, from, version);
        let follows = self.other_versions.note(now, from, version);
        let is_known = |peer: &Peer| peer.address() == from;
        let is_in = matches!(self.phase, Phase::Member | Phase::Resetting | Phase::Leaving);
        if follows
            && is_in
            && datagram.len() > HEADER_BYTES
            && !self.peers.iter().any(is_known)
            && (!multicast || self.speaks_for_all(1, 1 + self.peers.len()))
            && self.other_versions.answered.take(now, ANSWER_EVERY)
        {
            self.post_bare(from, EpochTag::OUTSIDE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(port: u16) -> SocketAddr {
        ([127, 0, 0, 1], port).into()
    }

    #[test]
    fn a_process_has_another_version_when_two_datagrams_of_it_follow_each_other() {
        let at = |ms| Time::ZERO + Duration::from_millis(ms);
        let mut others = OtherVersions::default();
        for (ms, port, version) in [(0, 1, 2), (10, 1, 3), (20, 2, 3), (30, 1, 3), (1031, 1, 3)] {
            assert!(!others.note(at(ms), address(port), version), "{ms} {port} {version}");
            assert_eq!((others.last(), others.believed()), (Some((address(port), version)), None));
        }
        assert!(others.note(at(2031), address(1), 3));
        assert_eq!(others.believed(), Some((address(1), 3)));
    }
}

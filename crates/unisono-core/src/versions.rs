//! Processes that use another version of the wire format.
//!
//! Normally there are none. A datagram of another version cannot be read, so nothing proves that it is genuine: anyone can
//! forge it, with a group key or without. It is counted and told to the log; it keeps a joiner from founding a second
//! group of the name, but never from joining a group that answers; and a member answers it with a bare header of its own
//! version, so that a joiner of the other version learns that the group is there. A bare header is never answered, so two
//! members cannot answer each other for ever, and it is not longer than what it answers.
//!
//! A bit that turns on the way makes another version, too. So one such datagram is only counted: a process is taken for
//! one of another version when two follow each other.

use crate::group::{Group, Phase};
use crate::identity::EpochTag;
use crate::peers::Peer;
use crate::time::{Pace, Time};
use crate::wire::{HEADER_BYTES, group_tag};
use core::net::SocketAddr;
use core::time::Duration;

/// Two datagrams of one version from one address, no further apart than this, come from a process of that version.
const FOLLOWS_WITHIN: Duration = Duration::from_secs(1);
/// Minimum interval between two answers, of 52 bytes each.
const ANSWER_EVERY: Duration = Duration::from_millis(20);

/// What this member knows of processes that use another version.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OtherVersions {
    /// Who sent the last such datagram, and which version it has.
    last: Option<(SocketAddr, u8)>,
    last_at: Time,
    /// The last process that is taken for one of another version.
    believed: Option<(SocketAddr, u8)>,
    answered: Pace,
}

impl OtherVersions {
    /// Notes a datagram; returns whether it follows another one of its kind.
    fn note(&mut self, now: Time, from: SocketAddr, version: u8) -> bool {
        let pause = now.since(core::mem::replace(&mut self.last_at, now));
        let same = self.last.replace((from, version)) == Some((from, version));
        let follows = same && pause <= FOLLOWS_WITHIN;
        if follows {
            self.believed = self.last;
        }
        follows
    }

    /// The address that sent the last datagram of another version, and that version.
    pub(crate) fn last(&self) -> Option<(SocketAddr, u8)> {
        self.last
    }

    /// A process that uses another version, and that version.
    pub(crate) fn believed(&self) -> Option<(SocketAddr, u8)> {
        self.believed
    }

    /// The group was found: what could not be read does not matter.
    pub(crate) fn forget(&mut self) {
        (self.last, self.believed) = (None, None);
    }
}

impl Group {
    /// A datagram has come that has another version, if it is for a group of this port.
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
        let is_known = |peer: &Peer| peer.member.address == from;
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

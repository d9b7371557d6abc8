//! The name of a formation, the proposals that are valid for it, and the length of its longest answer.

use crate::config::{Floor, Formation, GroupConfig};
use crate::identity::{Ballot, EpochId, Instance, Member, Name, Uid, mix};
use crate::wire::{FormPromise, Founding, Frame};
use alloc::vec::Vec;
use core::net::{Ipv6Addr, SocketAddr};

impl Formation {
    /// Returns the hash that names the formation on the wire: of the names in any order, and of `at_least`.
    pub(super) fn tag(&self) -> u64 {
        let mut names: Vec<&Name> = self.participants.iter().collect();
        names.sort_unstable();
        names.into_iter().fold(mix(self.at_least.into()), |hash, name| {
            let hash = name.as_str().bytes().fold(hash, |hash, byte| mix(hash ^ u64::from(byte)));
            mix(hash ^ 1 << 8)
        })
    }

    pub(super) fn place(&self, name: &Name) -> Option<usize> {
        self.participants.iter().position(|participant| participant == name)
    }

    /// Returns the length of the longest answer, which carries a proposal of all participants, header included.
    pub(super) fn answer_bytes_max(&self, config: &GroupConfig) -> usize {
        let address = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0));
        let (floor, hops) = (Floor::None, Member::HOPS_DEFAULT);
        let member = |name: &Name| Member { uid: Uid(0), name: name.clone(), address, floor, hops };
        let founding = Founding {
            instance: Instance(0),
            epoch: EpochId::default(),
            config: config.clone(),
            members: self.participants.iter().map(member).collect(),
        };
        let name = self.participants.iter().max_by_key(|name| name.as_str().len()).cloned();
        let longest = FormPromise {
            formation: 0,
            ballot: Ballot::default(),
            name: name.unwrap_or_default(),
            address,
            floor,
            hops,
            nonce: 0,
            prepared: Some((Ballot::default(), founding)),
        };
        Frame::FormPromise(longest.into()).datagram_bytes().unwrap_or(usize::MAX)
    }
}

impl Founding {
    /// True if an honest coordinator of this formation could have proposed this.
    pub(super) fn is_of(&self, formation: &Formation) -> bool {
        let members = &self.members;
        let once = |member: &Member| {
            let same = |other: &&Member| other.uid == member.uid || other.name == member.name;
            members.iter().filter(same).count() == 1
        };
        members.len() >= usize::from(formation.at_least)
            && members.len() <= formation.participants.len()
            && members.iter().all(|member| formation.place(&member.name).is_some() && once(member))
            && self.epoch.counter == 0
            && self.config.check().is_ok()
    }

    pub(super) fn names(&self, uid: Uid) -> bool {
        self.members.iter().any(|member| member.uid == uid)
    }
}

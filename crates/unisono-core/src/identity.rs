//! Names of members, groups, epochs, and positions in the order.
//!
//! Every name here is made once and never used again for something else. Most trouble in protocols of this family comes
//! from names that are reused: a slot taken over by another member, a view number that two halves both count to, a
//! sequence number that wraps. So members are 64 random bits, epochs are compared as a whole, and seqnos are 64 bits
//! wide.

use crate::config::Floor;
use crate::error::NameError;
use alloc::sync::Arc;
use core::fmt;
use core::net::SocketAddr;
use core::str::FromStr;

/// A sequence number: a position in the total order of a group, from 1. Zero is the position before the first.
pub type Seqno = u64;

/// A message number: counts the messages of one sender from 1. Together with the sender's [`Uid`] it names a message
/// for ever.
pub type MessageNumber = u64;

/// Number of a confirmation at one member ([`Group::confirm`](crate::Group::confirm)), from 1. All calls that one
/// confirmation answers have the same number.
pub type ConfirmNumber = u64;

/// Names one life of one member: 64 random bits, never used again, not even by the same process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub struct Uid(#[cfg_attr(feature = "serde", serde(with = "crate::serialized::digits_64"))] pub u64);

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The address of a group or service: 128 bits. A process that knows it may try to join.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub struct Port(#[cfg_attr(feature = "serde", serde(with = "crate::serialized::digits_128"))] pub u128);

impl Port {
    /// Returns the port that a group name stands for. A name protects no group: anyone can hash it.
    ///
    /// ```
    /// use unisono_core::Port;
    /// assert_eq!(Port::from_name("orders"), Port::from_name("orders"));
    /// assert_ne!(Port::from_name("orders"), Port::from_name("order"));
    /// ```
    pub fn from_name(name: &str) -> Port {
        // FNV-1a over 128 bits: it spreads names, and keeps nothing secret.
        let mut hash = 0x6c62272e07bb014262b821756295c58d_u128;
        for byte in name.bytes() {
            hash = (hash ^ u128::from(byte)).wrapping_mul(0x0000000001000000000000000000013b);
        }
        Port(hash)
    }

    /// Returns the short form that every datagram carries, which shows the group that it is for.
    pub fn tag(self) -> GroupTag {
        GroupTag(mix(self.0 as u64 ^ mix((self.0 >> 64) as u64)))
    }
}

/// The 64 bits of a [`Port`] that datagrams carry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupTag(pub u64);

/// Names one founding of a group: 128 random bits. Two groups of one port differ in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub struct Instance(#[cfg_attr(feature = "serde", serde(with = "crate::serialized::digits_128"))] pub u128);

/// Names the time between two resets of a group (the papers' incarnation). Compared as a whole: two halves of a
/// partitioned group may count to the same number, but their epochs still differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct EpochId {
    /// Number of resets since the group was founded.
    pub counter: u64,
    /// Coordinator of the reset that began the epoch, or the founder.
    pub coordinator: Uid,
    /// Random, so that two attempts of one coordinator make two epochs.
    #[cfg_attr(feature = "serde", serde(with = "crate::serialized::digits_64"))]
    pub nonce: u64,
}

impl EpochId {
    /// Returns the short form that every datagram of this epoch carries; never zero.
    pub fn tag(&self, instance: Instance) -> EpochTag {
        let mut hash = mix(instance.0 as u64) ^ mix((instance.0 >> 64) as u64 ^ 0x5bd1);
        for word in [self.counter, self.coordinator.0, self.nonce] {
            hash = mix(hash ^ word);
        }
        EpochTag(hash.max(1))
    }
}

impl fmt::Display for EpochId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:08x}", self.counter, (self.coordinator.0 ^ self.nonce) as u32)
    }
}

/// The 64 bits of an [`EpochId`] and its [`Instance`] that datagrams carry; zero outside of any epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EpochTag(pub u64);

impl EpochTag {
    /// The tag of a datagram that belongs to no epoch: locating, asking to join, status queries.
    pub const OUTSIDE: EpochTag = EpochTag(0);
}

/// Names one attempt at a reset. Compared by round, then by coordinator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ballot {
    /// Number of the attempt in its epoch, from 1.
    pub round: u32,
    /// The member that runs it.
    pub coordinator: Uid,
}

/// A member's name for people: at most [`Name::BYTES_MAX`] bytes of text, without control characters.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

impl Name {
    /// Maximum size of a name in bytes.
    pub const BYTES_MAX: usize = 64;

    /// Returns a name; `None` if the text is empty, is longer than [`Name::BYTES_MAX`] bytes or has control characters,
    /// which could move the cursor of a person who reads it. (The default name is empty: it stands for a member whose
    /// name is not known.)
    pub fn new(text: &str) -> Option<Name> {
        text.parse().ok()
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Like [`Name::new`], with an error that says what is wrong with the text.
///
/// ```
/// use unisono_core::{Name, NameError};
/// let name: Name = "left hand".parse()?;
/// assert_eq!(name.as_str(), "left hand");
/// let refused = "left\nhand".parse::<Name>().unwrap_err();
/// assert_eq!(refused, NameError::Control { character: '\n', at: 4 });
/// assert_eq!(refused.to_string(), "a name has no control characters, and this one has '\\n' at byte 4");
/// # Ok::<(), NameError>(())
/// ```
impl FromStr for Name {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Name, NameError> {
        match text.len() {
            0 => return Err(NameError::Empty),
            1..=Name::BYTES_MAX => {}
            bytes => return Err(NameError::TooLong { bytes }),
        }
        match text.char_indices().find(|(_, character)| character.is_control()) {
            Some((at, character)) => Err(NameError::Control { character, at }),
            None => Ok(Name(text.into())),
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A member as others know it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Member {
    /// Names this life of the member.
    pub uid: Uid,
    /// Its name for people.
    pub name: Name,
    /// Address for datagrams to it alone.
    pub address: SocketAddr,
    /// The smallest view that it lets a reset go on with.
    #[cfg_attr(feature = "serde", serde(default))]
    pub floor: Floor,
    /// How far it asks multicasts of the group to go: they pass fewer routers than this.
    #[cfg_attr(feature = "serde", serde(default = "Member::hops_default"))]
    pub hops: u8,
}

impl Member {
    /// Hops of a member that asks for none: multicasts stay on its segment.
    pub const HOPS_DEFAULT: u8 = 1;

    #[cfg(feature = "serde")]
    const fn hops_default() -> u8 {
        Member::HOPS_DEFAULT
    }
}

/// Returns a cheap, well-spread permutation of 64 bits (the finalizer of SplitMix64).
pub(crate) fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d049bb133111eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn names_are_short_and_visible() {
        for name in ["Ann", "left hand", "ünïcode", &"x".repeat(Name::BYTES_MAX)] {
            assert_eq!(Name::new(name).unwrap().as_str(), name);
        }
        for not in ["", "a\nb", "\u{1b}[31m", "\u{9b}2J", "\0", &"x".repeat(Name::BYTES_MAX + 1)] {
            assert_eq!(Name::new(not), None, "{not:?}");
        }
    }

    #[test]
    fn a_refused_name_says_what_is_wrong() {
        let said = |text: &str| text.parse::<Name>().unwrap_err().to_string();
        assert_eq!(said(""), "a name has 1 to 64 bytes, and this one is empty");
        assert_eq!(said(&"ü".repeat(33)), "a name has 1 to 64 bytes, and this one has 66");
        assert_eq!(
            said("ü\u{9b}2J"),
            "a name has no control characters, and this one has '\\u{9b}' at byte 2"
        );
        assert_eq!("Ann".parse::<Name>(), Ok(Name::new("Ann").unwrap()));
    }
}

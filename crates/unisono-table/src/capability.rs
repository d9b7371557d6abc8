//! Capabilities: the name of an object and the proof of what its holder may do with it, in one value.
//!
//! | field | bits | meaning |
//! |---|---|---|
//! | port | 128 | where the service listens |
//! | object | 64 | number of the object at that service |
//! | rights | 8 | what the holder may do |
//! | check | 128 | proof that the service gave out these rights |
//!
//! Each object has a secret of 128 random bits. With all rights the check is that secret. With fewer rights it is a hash
//! of the other fields, keyed by the secret: so the owner restricts a capability without asking the service, and a holder
//! of fewer rights can derive no others.

use crate::codec::{Reader, Writer};
use alloc::string::String;
use core::fmt::{self, Write};
use core::hint::black_box;
use core::str::FromStr;
use thiserror::Error;

/// Length of a capability in bytes.
pub const CAPABILITY_BYTES: usize = 16 + 8 + 1 + 16;
/// Length of a capability's text in characters.
const CAPABILITY_CHARACTERS: usize = 32 + 1 + 16 + 1 + 2 + 1 + 32;
/// Second half of the key of a restricted check; the first half is the object's secret.
const KEY_OF_RESTRICTED: &[u8; 16] = b"unisono check v1";

/// The public port of a service: its address, which is no secret.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Port(pub u128);

/// Number of an object. It is used once; 0 is no object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectNumber(pub u64);

/// What the holder of a capability may do: eight bits, whose meaning depends on the kind of object.
///
/// Of a directory the low four bits are the columns that the capability opens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights(pub u8);

impl Rights {
    /// All rights: those of the owner.
    pub const ALL: Rights = Rights(0xff);
    /// None.
    pub const NONE: Rights = Rights(0);
    /// The columns of a directory.
    pub const COLUMNS: Rights = Rights(0x0f);
    /// Change the rows of a directory.
    pub const MODIFY: Rights = Rights(0x40);
    /// Delete a directory.
    pub const DELETE: Rights = Rights(0x80);
    /// Read a file.
    pub const READ: Rights = Rights(0x02);
    /// Delete a file.
    pub const DESTROY: Rights = Rights(0x08);

    /// True if all of `needed` are among these.
    pub fn include(self, needed: Rights) -> bool {
        self.0 & needed.0 == needed.0
    }

    /// Returns the rights that both have.
    #[must_use]
    pub fn and(self, other: Rights) -> Rights {
        Rights(self.0 & other.0)
    }

    /// Returns the rights that one of them has.
    #[must_use]
    pub fn or(self, other: Rights) -> Rights {
        Rights(self.0 | other.0)
    }
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x}", self.0)
    }
}

/// The text is no rights: it must have two hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("rights are two hexadecimal digits, such as 04")]
pub struct NotRights;

impl FromStr for Rights {
    type Err = NotRights;
    fn from_str(text: &str) -> Result<Rights, NotRights> {
        digits(text, 2).map(|rights| Rights(rights as u8)).ok_or(NotRights)
    }
}

/// 128 secret bits: an object's secret, or the proof of rights that was derived from it. Comparing takes the same time for
/// all values, and `Debug` does not show it.
#[derive(Clone, Copy)]
pub struct Check([u8; 16]);

impl Check {
    /// Returns the check with these bits, which the caller draws at random for a new object.
    pub const fn from_bits(bits: u128) -> Check {
        Check(bits.to_be_bytes())
    }

    /// Returns the bits.
    pub fn to_bits(self) -> u128 {
        u128::from_be_bytes(self.0)
    }
}

impl PartialEq for Check {
    fn eq(&self, other: &Check) -> bool {
        let differing = self.0.iter().zip(&other.0).fold(0, |bits, (a, b)| black_box(bits | (a ^ b)));
        black_box(differing) == 0
    }
}

impl Eq for Check {}

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

/// A capability. See the module. `Debug` hides the check; [`Capability::reveal`] shows it.
///
/// ```
/// use unisono_table::{Capability, Check, ObjectNumber, Port, Rights};
/// let owner = Capability { port: Port(7), object: ObjectNumber(1), rights: Rights::ALL, check: Check::from_bits(99) };
/// let reader = owner.restrict(Rights(0x04)).unwrap();
/// assert_eq!(reader.rights, Rights(0x04));
/// assert_eq!(reader.restrict(Rights(0x04)), Some(reader));
/// assert_eq!(reader.restrict(Rights::NONE), None, "only the service can");
/// assert_eq!(reader.reveal().parse(), Ok(reader));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capability {
    /// Where the service listens.
    pub port: Port,
    /// The object.
    pub object: ObjectNumber,
    /// What the holder may do.
    pub rights: Rights,
    /// The proof.
    pub check: Check,
}

impl Capability {
    /// Returns the capability with all rights for an object with this secret.
    pub fn of_owner(port: Port, object: ObjectNumber, secret: Check) -> Capability {
        Capability { port, object, rights: Rights::ALL, check: secret }
    }

    /// Returns a capability for the rights that this one and `rights` have in common. The owner, who has all rights,
    /// computes it; `None` if these are fewer than this capability's, and it is not the owner's: then the service has to.
    pub fn restrict(&self, rights: Rights) -> Option<Capability> {
        let common = self.rights.and(rights);
        match common == self.rights {
            true => Some(*self),
            false if self.rights == Rights::ALL => Some(self.with_secret(common, self.check)),
            false => None,
        }
    }

    /// Returns the capability for the same object with these rights, as the holder of its secret makes it.
    pub(crate) fn with_secret(&self, rights: Rights, secret: Check) -> Capability {
        let check = check_of(self.port, self.object, rights, secret);
        Capability { rights, check, ..*self }
    }

    /// True if the check proves the rights, for an object with this secret. Takes the same time whatever the check is.
    pub(crate) fn is_proved_by(&self, secret: Check) -> bool {
        let restricted = check_of(self.port, self.object, self.rights, secret);
        restricted == self.check
    }

    /// Returns the text `PORT:OBJECT:RIGHTS:CHECK` in hexadecimal, which holds the secret: for answers that were asked for,
    /// never for logs.
    pub fn reveal(&self) -> String {
        let mut text = String::with_capacity(CAPABILITY_CHARACTERS);
        let (port, object, check) = (self.port.0, self.object.0, self.check.to_bits());
        // Writing to a string does not fail.
        let _ = write!(text, "{port:032x}:{object:016x}:{:02x}:{check:032x}", self.rights.0);
        text
    }

    pub(crate) fn write(&self, out: &mut Writer) {
        out.u128(self.port.0);
        out.u64(self.object.0);
        out.u8(self.rights.0);
        out.u128(self.check.to_bits());
    }

    pub(crate) fn read(from: &mut Reader) -> Option<Capability> {
        Some(Capability {
            port: Port(from.u128()?),
            object: ObjectNumber(from.u64()?),
            rights: Rights(from.u8()?),
            check: Check::from_bits(from.u128()?),
        })
    }
}

/// Returns the check that proves these rights. The hash is computed for all rights too, so that the time tells nothing.
fn check_of(port: Port, object: ObjectNumber, rights: Rights, secret: Check) -> Check {
    let mut key = [0; 32];
    key[..16].copy_from_slice(&secret.0);
    key[16..].copy_from_slice(KEY_OF_RESTRICTED);
    let mut fields = [0; 16 + 8 + 1];
    fields[..16].copy_from_slice(&port.0.to_be_bytes());
    fields[16..24].copy_from_slice(&object.0.to_be_bytes());
    fields[24] = rights.0;
    let hash = black_box(blake3::keyed_hash(&key, &fields));
    match rights == Rights::ALL {
        true => secret,
        false => Check(hash.as_bytes().first_chunk().copied().unwrap_or_default()),
    }
}

/// The text is no capability. The error contains nothing of the text, which may be most of a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NotACapability {
    /// The text has more or fewer characters.
    #[error(
        "a capability is PORT:OBJECT:RIGHTS:CHECK, {CAPABILITY_CHARACTERS} characters, and this text has {characters}"
    )]
    Length {
        /// Number of characters of the text.
        characters: usize,
    },
    /// A field is not what it has to be.
    #[error(
        "a capability is PORT:OBJECT:RIGHTS:CHECK in 32, 16, 2 and 32 hexadecimal digits; its {field} is not"
    )]
    Field {
        /// Name of the field.
        field: &'static str,
    },
}

impl FromStr for Capability {
    type Err = NotACapability;
    fn from_str(text: &str) -> Result<Capability, NotACapability> {
        let characters = text.chars().count();
        if characters != CAPABILITY_CHARACTERS {
            return Err(NotACapability::Length { characters });
        }
        let mut parts = text.split(':');
        let mut field = |name, length| {
            parts.next().and_then(|part| digits(part, length)).ok_or(NotACapability::Field { field: name })
        };
        Ok(Capability {
            port: Port(field("port", 32)?),
            object: ObjectNumber(field("object", 16)? as u64),
            rights: Rights(field("rights", 2)? as u8),
            check: Check::from_bits(field("check", 32)?),
        })
    }
}

/// Returns the value of this number of hexadecimal digits. `from_str_radix` would accept a sign too.
fn digits(text: &str, length: usize) -> Option<u128> {
    let fits = text.len() == length && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    fits.then(|| u128::from_str_radix(text, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    fn owner() -> Capability {
        Capability::of_owner(Port(0xabcd), ObjectNumber(5), Check::from_bits(0x0123_4567_89ab_cdef))
    }

    #[test]
    fn the_owner_restricts_and_the_secret_proves_it() {
        let secret = owner().check;
        for rights in 0..=255 {
            let restricted = owner().restrict(Rights(rights)).expect("the owner may");
            assert!(restricted.is_proved_by(secret));
            assert_eq!(restricted.check == secret, rights == 0xff, "only all rights show the secret");
            for other in (0..=255).filter(|other| *other != rights) {
                assert!(!Capability { rights: Rights(other), ..restricted }.is_proved_by(secret));
            }
        }
    }

    #[test]
    fn every_field_is_in_the_check() {
        let restricted = owner().restrict(Rights(4)).unwrap();
        let secret = owner().check;
        assert!(!Capability { port: Port(1), ..restricted }.is_proved_by(secret));
        assert!(!Capability { object: ObjectNumber(6), ..restricted }.is_proved_by(secret));
        assert!(!restricted.is_proved_by(Check::from_bits(1)));
        for bit in 0..128 {
            let check = Check::from_bits(restricted.check.to_bits() ^ (1 << bit));
            assert!(!Capability { check, ..restricted }.is_proved_by(secret));
        }
    }

    #[test]
    fn a_known_capability_has_a_known_check() {
        let text = "0000000000000000000000000000abcd:0000000000000005:04:";
        let restricted = owner().restrict(Rights(4)).unwrap().reveal();
        assert!(restricted.starts_with(text));
        // First half of BLAKE3 with the key secret ‖ "unisono check v1" over port ‖ object ‖ rights.
        assert_eq!(&restricted[text.len()..], "20ee9df6678b3fd6358e6539e0694ab7");
    }

    #[test]
    fn no_holder_of_fewer_rights_restricts_alone() {
        let restricted = owner().restrict(Rights(0x46)).unwrap();
        assert_eq!(restricted.restrict(Rights(0x02)), None);
        assert_eq!(restricted.restrict(Rights::ALL), Some(restricted));
    }

    #[test]
    fn text_is_read_as_it_is_written_and_in_no_other_way() {
        let text = owner().reveal();
        assert_eq!(text.parse(), Ok(owner()));
        assert_eq!(text.to_uppercase().parse(), Ok(owner()));
        for wrong in ["", "x", &text[1..], &format!("{text}0")] {
            let characters = wrong.chars().count();
            assert_eq!(wrong.parse::<Capability>(), Err(NotACapability::Length { characters }));
        }
        let sign = format!("+{}", &text[1..]);
        assert_eq!(sign.parse::<Capability>(), Err(NotACapability::Field { field: "port" }));
        let object = format!("{}ä{}", &text[..33], &text[34..]);
        assert_eq!(object.parse::<Capability>(), Err(NotACapability::Field { field: "object" }));
        let check = format!("{}x", &text[..84]);
        assert_eq!(check.parse::<Capability>(), Err(NotACapability::Field { field: "check" }));
    }

    #[test]
    fn debug_shows_no_check() {
        let shown = format!("{:?}", owner());
        assert!(!shown.contains("89abcdef"), "{shown}");
        assert!(shown.contains("ObjectNumber(5)"), "{shown}");
    }
}

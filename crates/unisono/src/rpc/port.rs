//! Ports: what a server listens with, what clients send to, and how a server proves that it may serve.
//!
//! HKDF derives the seed of an Ed25519 key pair from the private port. The public port is the beginning of the hash
//! of the public key. A server signs each answer to a client that looks for it, and adds the public key. The client
//! checks both: the key against the port, the signature against the key.

use crate::error::KeyError;
use crate::secret_file::{self, Content};
use ring::digest;
use ring::error::Unspecified;
use ring::hkdf::{HKDF_SHA256, Salt};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use std::fmt;
use std::io;
use std::path::Path;
use std::str::FromStr;
use thiserror::Error;
use unisono_core::debug_as_sentence;
use unisono_core::rpc::{PortProof, PortProver, PrivatePort as CorePrivatePort, Proof};
use zeroize::Zeroizing;

/// Length of a port in bytes, private or public.
const PORT_BYTES: usize = 16;
/// Length of a public key in bytes; a proof begins with it.
const PUBLIC_KEY_BYTES: usize = 32;
/// Length of the seed of a key pair in bytes.
const SEED_BYTES: usize = 32;
/// Binds the derived keys to this use of a private port.
const SALT: &[u8] = b"unisono ports 1";
/// First word of a file with a private port; its number is the version.
const PREFIX: &str = "unisono-port-1 ";
/// Binds the hash of a name to this use.
const NAME: &[u8] = b"unisono service 1: ";

/// The address of a service, to which clients send. It need not be kept secret: knowing it does not suffice to serve.
///
/// Its text form is 32 hexadecimal digits.
///
/// ```
/// use unisono::rpc::{Port, PrivatePort};
/// let mine = PrivatePort::random()?;
/// let public = mine.public();
/// assert_eq!(public.to_string().parse::<Port>()?, public);
/// assert_eq!(Port::from_name("upper"), PrivatePort::from_name("upper").public());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub struct Port(pub(crate) unisono_core::Port);

impl Port {
    /// Returns the port of the service of this name. It gives no protection: any process that knows the name can
    /// serve it.
    pub fn from_name(name: &str) -> Port {
        PrivatePort::from_name(name).public()
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0.0)
    }
}

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Port({self})")
    }
}

/// The text is not a port: it must have 32 hexadecimal digits. The error contains nothing of the text, which may be
/// most of a secret.
#[derive(Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NotAPort {
    /// The text has more or fewer characters.
    #[error(
        "a port has 32 hexadecimal digits, and this text has {characters} characters; `unisono rpc newport` makes one"
    )]
    Length {
        /// Number of characters of the text.
        characters: usize,
    },
    /// A character is not a hexadecimal digit.
    #[error(
        "a port has 32 hexadecimal digits, and character {position} of this text is none; `unisono rpc newport` makes one"
    )]
    Digit {
        /// Position of the first such character, from 1.
        position: usize,
    },
}

debug_as_sentence!(NotAPort { Length, Digit });

impl FromStr for Port {
    type Err = NotAPort;
    fn from_str(text: &str) -> Result<Port, NotAPort> {
        Ok(Port(unisono_core::Port(u128::from_be_bytes(*parse(text)?))))
    }
}

/// The secret with which a server listens: 128 bits. A process that knows them can serve the port. Clients are given
/// [`PrivatePort::public`] instead.
#[derive(Clone)]
pub struct PrivatePort(Zeroizing<[u8; PORT_BYTES]>);

impl PrivatePort {
    /// Returns a new port, from the operating system's random numbers.
    ///
    /// # Errors
    /// The operating system gave none.
    pub fn random() -> io::Result<PrivatePort> {
        let mut secret = Zeroizing::new([0; PORT_BYTES]);
        getrandom::fill(&mut *secret).map_err(io::Error::other)?;
        Ok(PrivatePort(secret))
    }

    /// Returns the port of this name. Any process can make the same one, so it gives no protection: it is for
    /// services that need none, or that a group key protects.
    pub fn from_name(name: &str) -> PrivatePort {
        let hash = digest::digest(&digest::SHA256, &[NAME, name.as_bytes()].concat());
        PrivatePort(Zeroizing::new(beginning(hash.as_ref())))
    }

    /// Returns the port that these 32 hexadecimal digits stand for.
    ///
    /// # Errors
    /// The text has other characters, or another length.
    pub fn parse(text: &str) -> Result<PrivatePort, NotAPort> {
        Ok(PrivatePort(parse(text)?))
    }

    /// Writes the private port to a new file that only its owner can read. Never overwrites a file.
    ///
    /// ```
    /// use unisono::rpc::PrivatePort;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("port");
    /// let mine = PrivatePort::random()?;
    /// mine.write_new(&path)?;
    /// assert_eq!(PrivatePort::load(&path)?.public(), mine.public());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// The file exists already, or cannot be written.
    pub fn write_new(&self, path: impl AsRef<Path>) -> Result<(), KeyError> {
        let digits = self.reveal();
        let mut text = Zeroizing::new(String::with_capacity(PREFIX.len() + digits.len() + 1));
        text.push_str(PREFIX);
        text.push_str(&digits);
        text.push('\n');
        secret_file::write_new(path.as_ref(), &text)
    }

    /// Reads the file of a private port. Refuses a file that other users can read or that belongs to another user, as
    /// [`Key::load`](crate::Key::load) does.
    ///
    /// # Errors
    /// The file cannot be read, is refused, or contains no private port.
    pub fn load(path: impl AsRef<Path>) -> Result<PrivatePort, KeyError> {
        let path = path.as_ref();
        let text = secret_file::read(path, Content::Port)?;
        let digits = text.strip_suffix('\n').unwrap_or(&text).strip_prefix(PREFIX);
        let port = digits.and_then(|digits| PrivatePort::parse(digits).ok());
        let is_constant = |port: &PrivatePort| port.0.iter().all(|byte| *byte == port.0[0]);
        port.filter(|port| !is_constant(port)).ok_or_else(|| Content::Port.missing(path))
    }

    /// Returns the 32 hexadecimal digits. Keep them where only the server can read them.
    pub fn reveal(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(2 * PORT_BYTES));
        for byte in self.0.iter() {
            for digit in [byte >> 4, byte & 15] {
                text.push(char::from_digit(digit.into(), 16).unwrap_or_default());
            }
        }
        text
    }

    /// Returns the public port, to which clients send.
    pub fn public(&self) -> Port {
        Port(port_of(key_pair(&self.0).public_key().as_ref()))
    }

    pub(crate) fn for_core(&self) -> CorePrivatePort {
        CorePrivatePort(u128::from_be_bytes(*self.0))
    }
}

/// The same as [`PrivatePort::parse`].
///
/// ```
/// use unisono::rpc::{NotAPort, PrivatePort};
/// let mine = PrivatePort::random()?;
/// assert_eq!(mine.reveal().parse::<PrivatePort>()?.public(), mine.public());
/// assert_eq!("0123".parse::<PrivatePort>().unwrap_err(), NotAPort::Length { characters: 4 });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl FromStr for PrivatePort {
    type Err = NotAPort;
    fn from_str(text: &str) -> Result<PrivatePort, NotAPort> {
        PrivatePort::parse(text)
    }
}

impl fmt::Debug for PrivatePort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrivatePort(secret)")
    }
}

fn parse(text: &str) -> Result<Zeroizing<[u8; PORT_BYTES]>, NotAPort> {
    let characters = text.chars().count();
    if characters != 2 * PORT_BYTES {
        return Err(NotAPort::Length { characters });
    }
    let mut bytes = Zeroizing::new([0; PORT_BYTES]);
    for (index, character) in text.chars().enumerate() {
        let digit = character.to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        bytes[index / 2] = bytes[index / 2] << 4 | digit.ok_or(NotAPort::Digit { position: index + 1 })?;
    }
    Ok(bytes)
}

/// Signatures by the key pairs that are derived from private ports.
pub(crate) struct Signatures;

impl PortProof for Signatures {
    fn prover(&self, private: CorePrivatePort) -> Box<dyn PortProver> {
        Box::new(Signer(key_pair(&Zeroizing::new(private.0.to_be_bytes()))))
    }

    fn verify(&self, port: unisono_core::Port, claim: &[u8], proof: &Proof) -> bool {
        let (key, signature) = proof.0.split_at(PUBLIC_KEY_BYTES);
        port_of(key) == port && UnparsedPublicKey::new(&ED25519, key).verify(claim, signature).is_ok()
    }
}

/// Signs with the key pair of one private port, which is derived once.
struct Signer(Ed25519KeyPair);

impl PortProver for Signer {
    fn port(&self) -> unisono_core::Port {
        port_of(self.0.public_key().as_ref())
    }

    fn prove(&self, claim: &[u8]) -> Proof {
        let mut proof = [0; 96];
        let (key, signature) = proof.split_at_mut(PUBLIC_KEY_BYTES);
        key.copy_from_slice(self.0.public_key().as_ref());
        signature.copy_from_slice(self.0.sign(claim).as_ref());
        Proof(proof)
    }
}

fn key_pair(secret: &[u8; PORT_BYTES]) -> Ed25519KeyPair {
    let mut seed = Zeroizing::new([0; SEED_BYTES]);
    // Neither call fails: a seed is one hash long, and any 32 bytes are a seed.
    let pair = expand(secret, &mut seed)
        .and_then(|()| Ed25519KeyPair::from_seed_unchecked(&*seed).map_err(|_| Unspecified));
    pair.unwrap_or_else(|_| unreachable!("any 32 bytes are a seed"))
}

fn expand(secret: &[u8; PORT_BYTES], seed: &mut [u8; SEED_BYTES]) -> Result<(), Unspecified> {
    let root = Salt::new(HKDF_SHA256, SALT).extract(secret);
    root.expand(&[b"ed25519"], HKDF_SHA256)?.fill(seed)
}

/// Returns the public port that belongs to a public key.
fn port_of(public_key: &[u8]) -> unisono_core::Port {
    let hash = digest::digest(&digest::SHA256, public_key);
    unisono_core::Port(u128::from_be_bytes(beginning(hash.as_ref())))
}

fn beginning(hash: &[u8]) -> [u8; PORT_BYTES] {
    let mut bytes = [0; PORT_BYTES];
    bytes.copy_from_slice(&hash[..PORT_BYTES]);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_survives_being_written_down_and_a_private_one_shows_itself_nowhere_else() {
        let private = PrivatePort::random().unwrap();
        let text = private.reveal();
        assert_eq!(PrivatePort::parse(&text).unwrap().public(), private.public());
        assert_eq!(private.public().to_string().parse(), Ok(private.public()));
        assert_ne!(PrivatePort::random().unwrap().public(), private.public());
        assert_eq!(format!("{private:?} {:?}", private.for_core()), "PrivatePort(secret) PrivatePort(..)");
    }

    #[test]
    fn the_file_of_a_private_port_is_told_from_any_other_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let private = PrivatePort::random().unwrap();
        private.write_new(path("port")).unwrap();
        assert_eq!(PrivatePort::load(path("port")).unwrap().public(), private.public());
        assert!(matches!(private.write_new(path("port")), Err(KeyError::Exists { .. })));
        crate::Key::generate().unwrap().write_new(path("key")).unwrap();
        let texts = [
            ("bare", format!("{}\n", *private.reveal())),
            ("zeros", format!("{PREFIX}{}\n", "0".repeat(32))),
            ("torn", format!("{PREFIX}{}\n", &private.reveal()[..31])),
            ("long", format!("{PREFIX}{}\n\n", *private.reveal())),
        ];
        for (name, text) in &texts {
            secret_file::write_new(&path(name), text).unwrap();
        }
        for name in ["key", "bare", "zeros", "torn", "long"] {
            let refused = PrivatePort::load(path(name));
            assert!(matches!(refused, Err(KeyError::NotAPort { .. })), "{name}: {refused:?}");
        }
        std::fs::set_permissions(path("port"), std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
        assert!(matches!(PrivatePort::load(path("port")), Err(KeyError::Exposed { .. })));
    }

    #[test]
    fn a_text_that_is_no_port_is_refused_with_the_reason_and_not_shown() {
        let length = |characters| NotAPort::Length { characters };
        let digit = |position| NotAPort::Digit { position };
        let zeros = "0".repeat(30);
        for (bad, reason) in [
            ("", length(0)),
            ("12", length(2)),
            (&"0".repeat(33), length(33)),
            (&"é".repeat(16), length(16)),
            (&"é".repeat(32), digit(1)),
            (&format!("{zeros}0g"), digit(32)),
            (&format!("{zeros}+1"), digit(31)),
        ] {
            assert_eq!(bad.parse::<Port>(), Err(reason), "{bad}");
            assert_eq!(bad.parse::<PrivatePort>().map(drop), Err(reason), "{bad}");
        }
        let refused = format!("{zeros}0g").parse::<PrivatePort>().unwrap_err().to_string();
        assert!(
            refused.contains("character 32 of this text is none") && !refused.contains("000"),
            "{refused}"
        );
    }

    #[test]
    fn names_lead_to_the_same_port_everywhere() {
        assert_eq!(Port::from_name("upper"), PrivatePort::from_name("upper").public());
        assert_ne!(Port::from_name("upper"), Port::from_name("uppe"));
        // Other versions must compute the same port.
        assert_eq!(Port::from_name("upper").to_string(), "b19f98f82d8ff2ef21446568c3780ec7");
    }

    #[test]
    fn only_a_process_with_the_private_port_can_prove_it() {
        let (private, other) = (PrivatePort::random().unwrap(), PrivatePort::random().unwrap());
        let port = private.public().0;
        let prover = Signatures.prover(private.for_core());
        let proof = prover.prove(b"claim");
        assert_eq!(prover.port(), port);
        assert!(Signatures.verify(port, b"claim", &proof));
        assert!(!Signatures.verify(port, b"clain", &proof));
        assert!(!Signatures.verify(other.public().0, b"claim", &proof));
        assert!(!Signatures.verify(port, b"claim", &Signatures.prover(other.for_core()).prove(b"claim")));
        // Every proof contains the public key, which does not help to serve.
        for at in [0, 31, 32, 95] {
            let mut forged = proof;
            forged.0[at] ^= 1;
            assert!(!Signatures.verify(port, b"claim", &forged), "{at}");
        }
    }
}

//! The secret that the members of a group share.

use crate::error::KeyError;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// A group key: 256 secret bits. Everybody who holds it can take part; nobody else can read, forge or disturb.
#[derive(Clone)]
pub struct Key(#[allow(dead_code)] Arc<[u8; 32]>);

impl Key {
    /// A new key, from the operating system's randomness.
    pub fn generate() -> Result<Key, KeyError> {
        unimplemented!()
    }

    /// A key made elsewhere: 32 bytes that nobody can guess.
    pub fn from_bytes(secret: [u8; 32]) -> Key {
        Key(Arc::new(secret))
    }

    /// Writes the key to a new file that only its owner can read.
    pub fn write_new(&self, _path: impl AsRef<Path>) -> Result<(), KeyError> {
        unimplemented!()
    }

    /// Reads a key file; refuses one that others can read.
    pub fn load(_path: impl AsRef<Path>) -> Result<Key, KeyError> {
        unimplemented!()
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(secret)")
    }
}

//! The secret that all members of a group hold, and the file that contains it.
//!
//! A key is 32 random bytes. Its file is one line of text, which only its owner may read. A file that other users of
//! the machine can read is refused.

use crate::error::KeyError;
use crate::sealed::Sealed;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use unisono_core::wire::Protection;
use zeroize::{Zeroize, Zeroizing};

/// Length of a key in bytes.
pub(crate) const KEY_BYTES: usize = 32;
/// First word of a key file; its number is the version.
const PREFIX: &str = "unisono-key-1 ";
/// Maximum length of a key file in bytes.
const FILE_BYTES_MAX: u64 = 256;

/// A group key: 256 secret bits. A process that holds the key can take part in the group; without it a process can
/// neither read, forge nor disturb the group's datagrams.
///
/// ```
/// use unisono::{Key, Options};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("group.key");
/// Key::generate()?.write_new(&path)?; // once; then the file goes to every member's machine
/// let options = Options { key: Some(Key::load(&path)?), ..Options::default() };
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Key(Arc<Secret>);

struct Secret([u8; KEY_BYTES]);

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl Key {
    /// Returns a new key, from the operating system's random numbers.
    pub fn generate() -> Result<Key, KeyError> {
        let mut secret = Zeroizing::new([0; KEY_BYTES]);
        getrandom::fill(&mut *secret).map_err(|error| KeyError::Random(io::Error::other(error)))?;
        Ok(Key::from_bytes(*secret))
    }

    /// Returns the key with these 32 bytes, which must be impossible to guess.
    pub fn from_bytes(secret: [u8; KEY_BYTES]) -> Key {
        Key(Arc::new(Secret(secret)))
    }

    pub(crate) fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0.0
    }

    /// Returns what opens datagrams sealed with this key, for programs that read captures of them.
    pub fn protection(&self) -> Box<dyn Protection> {
        Box::new(Sealed::new(self))
    }

    /// Writes the key to a new file that only its owner can read. Never overwrites a file.
    pub fn write_new(&self, path: impl AsRef<Path>) -> Result<(), KeyError> {
        let path = path.as_ref();
        let mut line = Zeroizing::new(String::with_capacity(PREFIX.len() + 2 * KEY_BYTES + 1));
        line.push_str(PREFIX);
        for byte in self.bytes() {
            for digit in [byte >> 4, byte & 15] {
                line.push(char::from_digit(digit.into(), 16).unwrap_or_default());
            }
        }
        line.push('\n');
        let failed = |cause: io::Error| match cause.kind() {
            io::ErrorKind::AlreadyExists => KeyError::Exists { path: path.into() },
            _ => KeyError::File { path: path.into(), cause },
        };
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(failed)?;
        file.write_all(line.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)
    }

    /// Reads a key file. Refuses a file that other users can read.
    pub fn load(path: impl AsRef<Path>) -> Result<Key, KeyError> {
        let path = path.as_ref();
        let failed = |cause| KeyError::File { path: path.into(), cause };
        let file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        let kind = metadata.file_type();
        if kind.is_dir() {
            return Err(failed(io::ErrorKind::IsADirectory.into()));
        }
        if kind.is_char_device() || kind.is_block_device() {
            return Err(KeyError::NotAKey { path: path.into() });
        }
        let mode = metadata.permissions().mode() & 0o7777;
        if mode & 0o077 != 0 {
            return Err(KeyError::Exposed { path: path.into(), mode });
        }
        // Reserved at once: a string that grew would leave copies of the key in memory.
        let mut text = Zeroizing::new(String::with_capacity(2 * FILE_BYTES_MAX as usize));
        file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(|cause| match cause.kind() {
            io::ErrorKind::InvalidData => KeyError::NotAKey { path: path.into() },
            _ => failed(cause),
        })?;
        let digits = text.trim_end().strip_prefix(PREFIX).unwrap_or_default().as_bytes();
        parse(digits).ok_or_else(|| KeyError::NotAKey { path: path.into() })
    }
}

/// Returns the key with these hexadecimal digits.
fn parse(digits: &[u8]) -> Option<Key> {
    if digits.len() != 2 * KEY_BYTES {
        return None;
    }
    let mut secret = Zeroizing::new([0; KEY_BYTES]);
    for (byte, pair) in secret.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |at: usize| char::from(pair[at]).to_digit(16);
        *byte = u8::try_from(digit(0)? << 4 | digit(1)?).ok()?;
    }
    Some(Key::from_bytes(*secret))
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(secret)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_key_survives_its_file_and_shows_itself_nowhere_else() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        let key = Key::generate().unwrap();
        key.write_new(&path).unwrap();
        assert_eq!(Key::load(&path).unwrap().bytes(), key.bytes());
        assert_ne!(Key::generate().unwrap().bytes(), key.bytes());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let digits = fs::read_to_string(&path).unwrap();
        assert!(!digits.contains(&format!("{key:?}")) && format!("{key:?}") == "Key(secret)");
    }

    #[test]
    fn a_key_file_is_never_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        let first = Key::generate().unwrap();
        first.write_new(&path).unwrap();
        let refused = Key::generate().unwrap().write_new(&path);
        assert!(matches!(refused, Err(KeyError::Exists { .. })), "{refused:?}");
        assert_eq!(Key::load(&path).unwrap().bytes(), first.bytes());
    }

    #[test]
    fn a_file_that_others_can_read_is_refused_with_the_cure() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        Key::generate().unwrap().write_new(&path).unwrap();
        for mode in [0o640, 0o604, 0o602] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let refused = Key::load(&path).unwrap_err();
            assert!(matches!(refused, KeyError::Exposed { .. }));
            assert!(refused.to_string().contains(&format!("chmod 600 '{}'", path.display())), "{refused}");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
        Key::load(&path).unwrap();
    }

    #[test]
    fn what_is_no_key_is_said_to_be_none() {
        let directory = tempfile::tempdir().unwrap();
        let good = format!("{PREFIX}{}\n", "0f".repeat(KEY_BYTES));
        let bad = [
            Vec::new(),
            b"unisono-key-2 0f".to_vec(),
            good.as_bytes()[..good.len() - 2].to_vec(),
            vec![0xff; 200],
            good.replace('f', "g").into_bytes(),
            good.repeat(2).into_bytes(),
        ];
        let device = Key::load("/dev/zero");
        assert!(matches!(device, Err(KeyError::NotAKey { .. })), "{device:?}");
        for (number, text) in bad.iter().enumerate() {
            let path = directory.path().join(number.to_string());
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).unwrap();
            file.write_all(text).unwrap();
            let refused = Key::load(&path);
            assert!(matches!(refused, Err(KeyError::NotAKey { .. })), "{number}: {refused:?}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_read_is_named_with_what_the_system_says() {
        let directory = tempfile::tempdir().unwrap();
        // A folder is refused, whatever its mode.
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let absent = directory.path().join("absent");
        for path in [absent.as_path(), directory.path()] {
            let refused = Key::load(path).unwrap_err();
            assert!(matches!(refused, KeyError::File { .. }), "{refused:?}");
            assert!(refused.to_string().contains(&path.display().to_string()), "{refused}");
        }
        assert!(!absent.exists());
    }
}

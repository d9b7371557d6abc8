//! The secret that all members of a group hold, and the file that contains it.
//!
//! A key is 32 random bytes; its file has a line of text for it. While a group changes from one key to the next, the file
//! has two lines, and a [`Key`] has two secrets: both open, the first seals. A key that was read from a file follows the
//! file ([`reread`](mod@reread)).

mod reread;

use crate::error::KeyError;
use crate::sealed::Sealed;
use crate::secret_file::{self, Content};
use reread::Rereading;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use unisono_core::wire::Protection;
use zeroize::{Zeroize, Zeroizing};

/// Length of a key in bytes.
pub(crate) const KEY_BYTES: usize = 32;
/// Maximum number of secrets of one key.
const SECRETS_MAX: usize = 2;
/// First word of each line of a key file; its number is the version.
const PREFIX: &str = "unisono-key-1 ";

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
///
/// # Changing the key of a running group
/// A key file may contain two keys: both open datagrams, the first seals. Members read the file again within about a
/// second after it changed. [`Key::add_next`] adds a second key to a file. When all members have that file,
/// [`Key::retire`] drops the first key, and the changed file goes to all members once more. A member that dropped a key
/// still opens what is sealed under it for five minutes.
#[derive(Clone)]
pub struct Key(Arc<Keyring>);

/// The secrets of a key, which may change while the key is in use.
pub(crate) struct Keyring {
    /// The file to follow.
    file: Option<PathBuf>,
    /// One or two; the first seals.
    secrets: Mutex<Vec<Arc<Secret>>>,
    /// Counts the changes of the secrets.
    changes: AtomicU64,
    rereading: Rereading,
}

/// The 32 bytes of a key.
#[derive(PartialEq, Eq)]
pub(crate) struct Secret([u8; KEY_BYTES]);

impl Secret {
    pub(crate) fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl Keyring {
    fn new(secrets: Vec<Arc<Secret>>, file: Option<PathBuf>) -> Keyring {
        let (secrets, changes) = (Mutex::new(secrets), AtomicU64::new(0));
        Keyring { file, secrets, changes, rereading: Rereading::default() }
    }

    /// Returns how often the secrets have changed.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Returns the secrets, the one that seals first.
    pub(crate) fn secrets(&self) -> Vec<Arc<Secret>> {
        self.secrets.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes other secrets in place of those that there are. Returns true if they differ.
    fn change(&self, secrets: Vec<Arc<Secret>>) -> bool {
        let mut present = self.secrets.lock().unwrap_or_else(PoisonError::into_inner);
        let differ = *present != secrets;
        if differ {
            *present = secrets;
            self.changes.fetch_add(1, Ordering::Release);
        }
        differ
    }
}

impl Key {
    /// Returns a new key, from the operating system's random numbers.
    pub fn generate() -> Result<Key, KeyError> {
        Ok(Key::of(vec![random()?], None))
    }

    /// Returns the key with these 32 bytes, which must be impossible to guess.
    pub fn from_bytes(secret: [u8; KEY_BYTES]) -> Key {
        let secret = Zeroizing::new(secret);
        Key::of(vec![Arc::new(Secret(*secret))], None)
    }

    fn of(secrets: Vec<Arc<Secret>>, file: Option<PathBuf>) -> Key {
        Key(Arc::new(Keyring::new(secrets, file)))
    }

    /// Returns a key with a secret for each of these bytes.
    #[cfg(test)]
    pub(crate) fn from_bytes_of(bytes: &[u8]) -> Key {
        Key::of(secrets_of_bytes(bytes), None)
    }

    /// Takes a secret for each of these bytes, as if a changed file had been read again.
    #[cfg(test)]
    pub(crate) fn change_to(&self, bytes: &[u8]) {
        self.0.change(secrets_of_bytes(bytes));
    }

    /// True if both have the same secrets now.
    pub(crate) fn is_like(&self, other: &Key) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.secrets() == other.0.secrets()
    }

    /// True if the two have a secret in common now: a holder of one can then do some of what a holder of the other can.
    pub fn overlaps(&self, other: &Key) -> bool {
        let others = other.0.secrets();
        self.0.secrets().iter().any(|secret| others.contains(secret))
    }

    /// Returns the secrets for use in a seal, and follows the file from now on.
    pub(crate) fn keyring(&self) -> Arc<Keyring> {
        reread::begin(&self.0);
        self.0.clone()
    }

    /// Returns what opens datagrams sealed with this key, for programs that read captures of them.
    pub fn protection(&self) -> Box<dyn Protection> {
        Box::new(Sealed::new(self))
    }

    /// Writes the key to a new file that only its owner can read. Never overwrites a file.
    pub fn write_new(&self, path: impl AsRef<Path>) -> Result<(), KeyError> {
        secret_file::write_new(path.as_ref(), &text_of(&self.0.secrets()))
    }

    /// Reads a key file. Refuses a file that other users can read: it must be its owner's alone (mode 0600 or 0400), or
    /// belong to root and be readable by a group of this process (mode 0440), as Kubernetes and systemd provide it.
    /// Refuses a file that belongs to another user than this process's and root.
    ///
    /// The key follows the file: see [the type](Key#changing-the-key-of-a-running-group).
    pub fn load(path: impl AsRef<Path>) -> Result<Key, KeyError> {
        let path = path.as_ref();
        Ok(Key::of(load_secrets(path)?, Some(path.into())))
    }

    /// Adds a new key to a key file with one key. The first one still seals: members that have only the first key can
    /// open it.
    ///
    /// # Errors
    /// The file cannot be read or written, or has two keys already.
    pub fn add_next(path: impl AsRef<Path>) -> Result<(), KeyError> {
        let path = path.as_ref();
        let mut secrets = load_secrets(path)?;
        if secrets.len() >= SECRETS_MAX {
            return Err(KeyError::TwoKeys { path: path.into() });
        }
        secrets.push(random()?);
        secret_file::replace(path, &text_of(&secrets))
    }

    /// Drops the first key of a key file with two keys. Do this when all members have both.
    ///
    /// # Errors
    /// The file cannot be read or written, or has only one key.
    pub fn retire(path: impl AsRef<Path>) -> Result<(), KeyError> {
        let path = path.as_ref();
        match &load_secrets(path)?[..] {
            [_, rest @ ..] if !rest.is_empty() => secret_file::replace(path, &text_of(rest)),
            _ => Err(KeyError::OneKey { path: path.into() }),
        }
    }
}

/// Returns a secret from the operating system's random numbers.
fn random() -> Result<Arc<Secret>, KeyError> {
    let mut secret = Secret([0; KEY_BYTES]);
    getrandom::fill(&mut secret.0).map_err(|error| KeyError::Random(io::Error::other(error)))?;
    Ok(Arc::new(secret))
}

#[cfg(test)]
fn secrets_of_bytes(bytes: &[u8]) -> Vec<Arc<Secret>> {
    bytes.iter().map(|byte| Arc::new(Secret([*byte; KEY_BYTES]))).collect()
}

/// Returns the text of a key file.
fn text_of(secrets: &[Arc<Secret>]) -> Zeroizing<String> {
    let mut text = Zeroizing::new(String::with_capacity(secrets.len() * (PREFIX.len() + 2 * KEY_BYTES + 1)));
    for secret in secrets {
        text.push_str(PREFIX);
        for byte in secret.0 {
            for digit in [byte >> 4, byte & 15] {
                text.push(char::from_digit(digit.into(), 16).unwrap_or_default());
            }
        }
        text.push('\n');
    }
    text
}

fn load_secrets(path: &Path) -> Result<Vec<Arc<Secret>>, KeyError> {
    let text = secret_file::read(path, Content::Key)?;
    secrets_of(&text).ok_or_else(|| Content::Key.missing(path))
}

/// Returns the secrets in the text of a key file. `None` if anything else is in it, or if a secret is no random number.
fn secrets_of(text: &str) -> Option<Vec<Arc<Secret>>> {
    let lines = text.trim_end().split('\n');
    let secrets = lines.map(|line| parse(line.strip_prefix(PREFIX)?.as_bytes()));
    let secrets: Vec<Arc<Secret>> = secrets.collect::<Option<_>>()?;
    let differ = secrets.iter().enumerate().all(|(index, secret)| !secrets[..index].contains(secret));
    (secrets.len() <= SECRETS_MAX && differ).then_some(secrets)
}

/// Returns the secret with these hexadecimal digits.
fn parse(digits: &[u8]) -> Option<Arc<Secret>> {
    if digits.len() != 2 * KEY_BYTES {
        return None;
    }
    let mut secret = Secret([0; KEY_BYTES]);
    for (byte, pair) in secret.0.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |at: usize| char::from(pair[at]).to_digit(16);
        *byte = u8::try_from(digit(0)? << 4 | digit(1)?).ok()?;
    }
    // A disk that lost the contents, or a person who made the file, wrote one byte again and again.
    let is_constant = secret.0.iter().all(|byte| *byte == secret.0[0]);
    (!is_constant).then(|| Arc::new(secret))
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(secret)")
    }
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keyring(secret)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, OpenOptions};
    use std::io::Write;
    use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};

    fn secrets(key: &Key) -> Vec<[u8; KEY_BYTES]> {
        key.0.secrets().iter().map(|secret| secret.0).collect()
    }

    #[test]
    fn a_key_survives_its_file_and_shows_itself_nowhere_else() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        let key = Key::generate().unwrap();
        key.write_new(&path).unwrap();
        assert_eq!(secrets(&Key::load(&path).unwrap()), secrets(&key));
        assert!(Key::load(&path).unwrap().is_like(&key));
        assert!(!Key::generate().unwrap().is_like(&key));
        assert!(!Key::generate().unwrap().overlaps(&key));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let digits = fs::read_to_string(&path).unwrap();
        assert!(!digits.contains(&format!("{key:?}")) && format!("{key:?}") == "Key(secret)");
    }

    #[test]
    fn keys_with_one_secret_in_common_overlap() {
        let [first, both, second] = [&[1][..], &[1, 2], &[2]].map(Key::from_bytes_of);
        assert!(first.overlaps(&both) && both.overlaps(&second) && !first.overlaps(&second));
    }

    #[test]
    fn a_key_file_is_never_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        let first = Key::generate().unwrap();
        first.write_new(&path).unwrap();
        let refused = Key::generate().unwrap().write_new(&path);
        assert!(matches!(refused, Err(KeyError::Exists { .. })), "{refused:?}");
        assert!(Key::load(&path).unwrap().is_like(&first));
    }

    #[test]
    fn a_file_goes_from_one_key_over_two_to_the_next() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        let first = Key::generate().unwrap();
        first.write_new(&path).unwrap();
        assert!(matches!(Key::retire(&path), Err(KeyError::OneKey { .. })));
        Key::add_next(&path).unwrap();
        let both = secrets(&Key::load(&path).unwrap());
        assert_eq!((both.len(), both[0]), (2, secrets(&first)[0]));
        assert!(matches!(Key::add_next(&path), Err(KeyError::TwoKeys { .. })));
        Key::retire(&path).unwrap();
        assert_eq!(secrets(&Key::load(&path).unwrap()), both[1..]);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
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
        let line = |digits: &str| format!("{PREFIX}{}\n", digits.repeat(KEY_BYTES / 2));
        let (good, next) = (line("0f1e"), line("2d3c"));
        let bad = [
            Vec::new(),
            b"unisono-key-2 0f".to_vec(),
            good.as_bytes()[..good.len() - 2].to_vec(),
            vec![0xff; 200],
            good.replace('f', "g").into_bytes(),
            good.repeat(2).into_bytes(),
            format!("{good}\n{next}").into_bytes(),
            format!("{good}{next}{}", line("4b5a")).into_bytes(),
            // Torn in the second line.
            format!("{good}{}", &next[..next.len() - 2]).into_bytes(),
            line("0000").into_bytes(),
            line("ffff").into_bytes(),
            format!("{good}{}", line("0000")).into_bytes(),
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
        assert_eq!(secrets_of(&good).unwrap().len(), 1);
        assert_eq!(secrets_of(&format!("{good}{next}")).unwrap().len(), 2);
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

//! The secret that all members of a group hold, and the file that contains it.
//!
//! A key is 32 random bytes. Its file is one line of text. Either only its owner may read it, or it belongs to root and
//! only root and a group of this process may. A file that other users of the machine can read is refused.

use crate::error::KeyError;
use crate::sealed::Sealed;
use rustix::fs::fgetxattr;
use rustix::io::Errno;
use rustix::process::{getegid, geteuid, getgroups};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use unisono_core::wire::Protection;
use zeroize::{Zeroize, Zeroizing};

/// Length of a key in bytes.
pub(crate) const KEY_BYTES: usize = 32;
/// First word of a key file; its number is the version.
const PREFIX: &str = "unisono-key-1 ";
/// First four bytes of an access control list, as Linux stores it. Entries of eight bytes follow: tag, access, number.
const ACL_VERSION: [u8; 4] = [2, 0, 0, 0];
const ACL_OWNER: u8 = 1;
const ACL_USER: u8 = 2;
const ACL_OWN_GROUP: u8 = 4;
const ACL_GROUP: u8 = 8;
const ACL_MASK: u8 = 16;
/// Maximum length in bytes of a list that is read: 127 entries.
const ACL_BYTES_MAX: usize = 1020;
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

    /// Reads a key file. Refuses a file that other users can read: it must be its owner's alone (mode 0600 or 0400), or
    /// belong to root and be readable by a group of this process (mode 0440), as Kubernetes and systemd provide it.
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
        let mode = metadata.mode() & 0o7777;
        if !Own::new().is_alone_with(mode, metadata.uid(), metadata.gid(), acl_of(&file).as_deref()) {
            let foreign = metadata.uid() != geteuid().as_raw();
            let group = foreign.then(|| getegid().as_raw());
            return Err(KeyError::Exposed { path: path.into(), mode, group });
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

/// User and groups of this process, by number.
struct Own {
    user: u32,
    groups: Vec<u32>,
}

impl Own {
    fn new() -> Own {
        let supplementary = getgroups().unwrap_or_default();
        let groups = std::iter::once(getegid()).chain(supplementary).map(|group| group.as_raw()).collect();
        Own { user: geteuid().as_raw(), groups }
    }

    /// True if only the file's owner may use it, or if it belongs to root and, besides root, only this process's user and
    /// groups may read it. `acl` is the file's access control list, if it has one: systemd passes credentials this way.
    fn is_alone_with(&self, mode: u32, owner: u32, group: u32, acl: Option<&[u8]>) -> bool {
        let read_by_group = mode & 0o377 == 0o040 && owner == 0;
        let own_group = self.groups.contains(&group);
        mode & 0o077 == 0 || read_by_group && acl.map_or(own_group, |acl| self.is_alone_on(acl, own_group))
    }

    /// True if the list, as the system stores it, admits only this process's user and groups. If a file has a list, the
    /// mode's bits for the group are the maximum that any entry grants.
    fn is_alone_on(&self, acl: &[u8], own_group: bool) -> bool {
        let Some((&ACL_VERSION, entries)) = acl.split_first_chunk() else { return false };
        let (entries, rest) = entries.as_chunks::<8>();
        rest.is_empty()
            && entries.iter().all(|&[tag, _, access, _, a, b, c, d]| {
                let id = u32::from_le_bytes([a, b, c, d]);
                match tag {
                    ACL_OWNER | ACL_MASK => true,
                    _ if access == 0 => true,
                    ACL_USER => id == self.user,
                    ACL_OWN_GROUP => own_group,
                    ACL_GROUP => self.groups.contains(&id),
                    _ => false,
                }
            })
    }
}

/// Returns the access control list of a file, if it has one.
fn acl_of(file: &File) -> Option<Vec<u8>> {
    let mut acl = vec![0; ACL_BYTES_MAX];
    // A longer list admits no one.
    match fgetxattr(file, "system.posix_acl_access", &mut acl[..]) {
        Ok(bytes) => acl.truncate(bytes),
        Err(Errno::RANGE) => acl.clear(),
        Err(_) => return None,
    }
    Some(acl)
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
    use rustix::fs::{XattrFlags, setxattr};
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, chown};

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
    fn a_file_of_root_may_be_read_by_a_group_of_this_process_and_no_other() {
        let own = Own { user: 3, groups: vec![5, 7] };
        let accepts = |mode, owner, group| own.is_alone_with(mode, owner, group, None);
        for mode in [0o400, 0o600, 0o700] {
            assert!(accepts(mode, 12, 13), "{mode:o}");
        }
        for group in [5, 7] {
            assert!(accepts(0o440, 0, group) && accepts(0o040, 0, group));
        }
        assert!(!accepts(0o440, 0, 6), "another group");
        assert!(!accepts(0o440, 12, 5), "another owner, which may change the mode");
        for mode in [0o444, 0o404, 0o640, 0o460, 0o450, 0o441, 0o604, 0o004] {
            assert!(!accepts(mode, 0, 5), "{mode:o}");
        }
    }

    fn acl(entries: &[(u8, u8, u32)]) -> Vec<u8> {
        let mut acl = ACL_VERSION.to_vec();
        for (tag, access, id) in entries {
            acl.extend([*tag, 0, *access, 0]);
            acl.extend(id.to_le_bytes());
        }
        acl
    }

    #[test]
    fn a_list_may_let_in_this_process_and_no_other() {
        const NONE: u32 = u32::MAX;
        let own = Own { user: 3, groups: vec![5, 7] };
        let accepts = |named: &[(u8, u8, u32)], owner, group| {
            let base = [(ACL_OWNER, 4, NONE), (ACL_MASK, 4, NONE), (32, 0, NONE)];
            own.is_alone_with(0o440, owner, group, Some(&acl(&[&base, named].concat())))
        };
        // As systemd makes it: root's group has no access.
        assert!(accepts(&[(ACL_USER, 4, 3), (ACL_OWN_GROUP, 0, NONE)], 0, 0));
        assert!(accepts(&[(ACL_GROUP, 4, 7), (ACL_OWN_GROUP, 4, NONE)], 0, 5));
        for bad in [(ACL_USER, 4, 4), (ACL_GROUP, 4, 6), (ACL_OWN_GROUP, 4, NONE), (32, 4, NONE), (64, 4, 3)]
        {
            assert!(!accepts(&[bad], 0, 0), "{bad:?}");
        }
        assert!(!accepts(&[(ACL_USER, 4, 3)], 12, 0), "another owner");
        for broken in [&[][..], &[1, 0, 0, 0], &[2, 0, 0, 0, 2, 0, 4]] {
            assert!(!own.is_alone_with(0o440, 0, 5, Some(broken)), "{broken:?}");
        }
    }

    #[test]
    fn a_key_as_kubernetes_and_systemd_provide_it_is_accepted() {
        if !geteuid().is_root() {
            let _ = writeln!(io::stderr(), "skipped: no right to give files to root");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        Key::generate().unwrap().write_new(&path).unwrap();
        let (mine, other) = (getegid().as_raw(), 54_321);
        let load = |owner, group, mode| {
            chown(&path, Some(owner), Some(group)).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            Key::load(&path)
        };
        load(0, mine, 0o440).unwrap();
        for (owner, group, mode) in [(0, mine, 0o444), (0, other, 0o440), (other, mine, 0o440)] {
            let refused = load(owner, group, mode).unwrap_err();
            let (path, words) = (path.display(), refused.to_string());
            assert!(words.contains(&format!("mode {mode:04o}")), "{words}");
            let cure = match owner {
                0 => format!("`chmod 600 '{path}'`"),
                _ => format!("`chown root:{mine} '{path}' && chmod 440 '{path}'`"),
            };
            assert!(words.contains(&cure), "{words}");
        }
        // Another user in the list of the file, which the mode does not show.
        load(0, mine, 0o440).unwrap();
        let entries = [
            (ACL_OWNER, 4, !0),
            (ACL_USER, 4, other),
            (ACL_OWN_GROUP, 4, !0),
            (ACL_MASK, 4, !0),
            (32, 0, !0),
        ];
        match setxattr(&path, "system.posix_acl_access", &acl(&entries), XattrFlags::empty()) {
            Ok(()) => assert!(matches!(Key::load(&path), Err(KeyError::Exposed { mode: 0o440, .. }))),
            Err(error) => {
                let _ = writeln!(io::stderr(), "skipped: no access control lists here: {error}");
            }
        }
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

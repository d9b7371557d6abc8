//! Files that contain a secret: the group key, a private port.
//!
//! Such a file is one or a few lines of text. It belongs to this process's user or to root. Either only its owner may
//! read it, or it belongs to root and only root and a group of this process may. It appears whole or not at all.

use crate::error::KeyError;
use rustix::fs::{CWD, RenameFlags, fgetxattr, renameat_with};
use rustix::io::Errno;
use rustix::process::{getegid, geteuid, getgroups};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// First four bytes of an access control list, as Linux stores it. Entries of eight bytes follow: tag, access, number.
const ACL_VERSION: [u8; 4] = [2, 0, 0, 0];
const ACL_OWNER: u8 = 1;
const ACL_USER: u8 = 2;
const ACL_OWN_GROUP: u8 = 4;
const ACL_GROUP: u8 = 8;
const ACL_MASK: u8 = 16;
/// Maximum length in bytes of a list that is read: 127 entries.
const ACL_BYTES_MAX: usize = 1020;
/// Maximum length of such a file in bytes.
const FILE_BYTES_MAX: u64 = 256;

/// What a file is to contain, for errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Key,
    Port,
}

impl Content {
    /// Returns the error of a file that contains something else.
    pub(crate) fn missing(self, path: &Path) -> KeyError {
        match self {
            Content::Key => KeyError::NotAKey { path: path.into() },
            Content::Port => KeyError::NotAPort { path: path.into() },
        }
    }
}

/// Reads a file. Refuses one that other users can read, or that belongs to another user.
pub(crate) fn read(path: &Path, content: Content) -> Result<Zeroizing<String>, KeyError> {
    let failed = |cause| KeyError::File { path: path.into(), cause };
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    let kind = metadata.file_type();
    if kind.is_dir() {
        return Err(failed(io::ErrorKind::IsADirectory.into()));
    }
    if kind.is_char_device() || kind.is_block_device() {
        return Err(content.missing(path));
    }
    let (own, owner, mode) = (Own::new(), metadata.uid(), metadata.mode() & 0o7777);
    if !own.is_alone_with(mode, owner, metadata.gid(), acl_of(&file).as_deref()) {
        let group = (owner != own.user).then(|| getegid().as_raw());
        return Err(KeyError::Exposed { path: path.into(), mode, group });
    }
    if !own.trusts(owner) {
        return Err(KeyError::OtherOwner { path: path.into(), owner });
    }
    // Reserved at once: a string that grew would leave copies of the secret in memory.
    let mut text = Zeroizing::new(String::with_capacity(2 * FILE_BYTES_MAX as usize));
    file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(|cause| match cause.kind() {
        io::ErrorKind::InvalidData => content.missing(path),
        _ => failed(cause),
    })?;
    Ok(text)
}

/// Writes a new file that only its owner can read. Never overwrites a file.
pub(crate) fn write_new(path: &Path, text: &str) -> Result<(), KeyError> {
    write(path, text, RenameFlags::NOREPLACE)
}

/// Writes a file that only its owner can read in place of the one that is there.
pub(crate) fn replace(path: &Path, text: &str) -> Result<(), KeyError> {
    write(path, text, RenameFlags::empty())
}

/// Writes the text beside the file and then gives it the file's name, so that no reader finds a part of it.
fn write(path: &Path, text: &str, flags: RenameFlags) -> Result<(), KeyError> {
    let failed = |cause: io::Error| match cause.kind() {
        io::ErrorKind::AlreadyExists => KeyError::Exists { path: path.into() },
        _ => KeyError::File { path: path.into(), cause },
    };
    if flags == RenameFlags::NOREPLACE && path.symlink_metadata().is_ok() {
        return Err(KeyError::Exists { path: path.into() });
    }
    let beside = beside(path).map_err(failed)?;
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&beside)
        .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
        .and_then(|()| match renameat_with(CWD, &beside, CWD, path, flags) {
            // The file system cannot refuse to overwrite; it was looked a moment ago whether there is a file.
            Err(Errno::INVAL) => fs::rename(&beside, path),
            renamed => renamed.map_err(io::Error::from),
        });
    if written.is_err() {
        // It may not even have been created.
        let _ = fs::remove_file(&beside);
    }
    written.map_err(failed)?;
    let folder = path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed)
}

/// Returns a name beside this file that no other process uses.
fn beside(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(io::Error::other)?;
    let mut beside = std::ffi::OsString::from(".");
    beside.push(name);
    beside.push(format!(".{:016x}", u64::from_ne_bytes(random)));
    Ok(path.with_file_name(beside))
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

    /// True if the owner of a file may determine which key this process uses: its own user, or root.
    fn trusts(&self, owner: u32) -> bool {
        owner == 0 || owner == self.user
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

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{XattrFlags, setxattr};
    use std::os::unix::fs::{PermissionsExt, chown};

    #[test]
    fn a_file_appears_whole_and_is_not_overwritten_by_chance() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        write_new(&path, "one").unwrap();
        assert!(matches!(write_new(&path, "two"), Err(KeyError::Exists { .. })));
        assert_eq!(*read(&path, Content::Key).unwrap(), "one");
        replace(&path, "two").unwrap();
        assert_eq!(*read(&path, Content::Key).unwrap(), "two");
        // Nothing is left beside it, also after a failure.
        let nowhere = folder.path().join("nowhere/secret");
        assert!(matches!(write_new(&nowhere, "three"), Err(KeyError::File { .. })));
        let names: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["secret"]);
    }

    #[test]
    fn a_file_of_this_user_or_of_root_is_believed_and_no_other() {
        let own = Own { user: 3, groups: vec![5] };
        assert!(own.trusts(3) && own.trusts(0) && !own.trusts(4));
        if !geteuid().is_root() {
            let _ = writeln!(io::stderr(), "skipped: no right to give files away");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        write_new(&path, "one").unwrap();
        chown(&path, Some(12_345), None).unwrap();
        let refused = read(&path, Content::Key).unwrap_err();
        assert!(matches!(refused, KeyError::OtherOwner { owner: 12_345, .. }), "{refused:?}");
        let cure = format!("chown {} '{}'", geteuid().as_raw(), path.display());
        assert!(refused.to_string().contains(&cure), "{refused}");
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
        write_new(&path, "one").unwrap();
        let (mine, other) = (getegid().as_raw(), 54_321);
        let load = |owner, group, mode| {
            chown(&path, Some(owner), Some(group)).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            read(&path, Content::Key)
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
            Ok(()) => {
                assert!(matches!(read(&path, Content::Key), Err(KeyError::Exposed { mode: 0o440, .. })))
            }
            Err(error) => {
                let _ = writeln!(io::stderr(), "skipped: no access control lists here: {error}");
            }
        }
    }
}

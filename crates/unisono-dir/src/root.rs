//! Files with one capability: `root.cap` in the folder of each server, and the copies that clients use.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use thiserror::Error;
use unisono_table::{Capability, NotACapability};

/// Name of the file in a server's folder that has the root's capability.
pub const ROOT_FILE: &str = "root.cap";
/// Maximum length of such a file in bytes.
const FILE_BYTES_MAX: u64 = 256;

/// Why a file gives no capability. No error contains anything of a capability.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CapabilityFileError {
    /// It is a capability, and no path of a file. The command line or the environment shows it to others.
    #[error(
        "--cap takes a file: write the capability to one with mode 0600, and name that file (--cap FILE, UNISONO_CAP=FILE)"
    )]
    NotAFile,
    /// There is no such file.
    #[error("there is no file {}: copy {ROOT_FILE} from the folder of a server, with mode 0600", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// Other users may read it.
    #[error(
        "other users may read {} (mode {mode:04o}), which opens a directory to its holder: type `chmod 600 {}`",
        path.display(), path.display()
    )]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// It contains something else.
    #[error("{} has no capability: {reason}", path.display())]
    Other {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: NotACapability,
    },
    /// It cannot be read.
    #[error("cannot read {}: {cause}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        cause: io::Error,
    },
}

/// Reads the capability in a file that only its owner may read.
pub fn read_capability(path: impl AsRef<Path>) -> Result<Capability, CapabilityFileError> {
    let path = path.as_ref();
    if path.to_str().is_some_and(looks_like_a_capability) {
        return Err(CapabilityFileError::NotAFile);
    }
    let failed = |cause: io::Error| match cause.kind() {
        io::ErrorKind::NotFound => CapabilityFileError::Missing { path: path.into() },
        _ => CapabilityFileError::Read { path: path.into(), cause },
    };
    // A pipe would keep this process waiting.
    if !fs::metadata(path).map_err(failed)?.is_file() {
        return Err(failed(io::Error::other("it is not a regular file")));
    }
    let file = File::open(path).map_err(failed)?;
    let mode = file.metadata().map_err(failed)?.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(CapabilityFileError::Exposed { path: path.into(), mode });
    }
    let mut text = String::new();
    file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
    text.trim().parse().map_err(|reason| CapabilityFileError::Other { path: path.into(), reason })
}

/// Returns true if a regular file contains this capability. The mode of the file is not checked.
pub(crate) fn has_capability(path: &Path, capability: &Capability) -> bool {
    let Ok(Some(file)) = open_regular(path) else { return false };
    let mut text = String::new();
    let is_read = file.take(FILE_BYTES_MAX).read_to_string(&mut text).is_ok();
    is_read && text.trim().parse() == Ok(*capability)
}

/// Opens a file that this program wrote, to be read; `None` if there is nothing of that name, or something else.
pub(crate) fn open_regular(path: &Path) -> io::Result<Option<File>> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_file() => {}
        Ok(_) => return Ok(None),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    }
    File::open(path).map(Some)
}

/// True for the digits of a capability, also with one too few or too many, so that no error shows the others.
pub fn looks_like_a_capability(text: &str) -> bool {
    let text = text.trim();
    text.split(':').count() == 4 && text.bytes().all(|byte| byte == b':' || byte.is_ascii_hexdigit())
}

/// Writes a capability to a file that only its owner may read, in place of the one that is there.
pub(crate) fn write_capability(path: &Path, capability: &Capability) -> io::Result<()> {
    let beside = path.with_extension("cap-new");
    // One of an earlier process may have another mode.
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
    writeln!(file, "{}", capability.reveal())?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    let folder = path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use unisono_table::{Check, ObjectNumber, Port};

    #[test]
    fn only_the_owner_may_read_what_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(ROOT_FILE);
        let root = Capability::of_owner(Port(7), ObjectNumber(1), Check::from_bits(99));
        write_capability(&path, &root).unwrap();
        write_capability(&path, &root).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(read_capability(&path).unwrap(), root);
        assert!(has_capability(&path, &root) && !has_capability(&folder.path().join("none"), &root));
        let other = Capability::of_owner(Port(8), ObjectNumber(1), Check::from_bits(99));
        assert!(!has_capability(&path, &other));
        for mode in [0o640, 0o604] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let refused = read_capability(&path).unwrap_err();
            assert!(refused.to_string().contains("chmod 600"), "{refused}");
        }
    }

    #[test]
    fn a_capability_in_place_of_a_path_is_refused_and_not_shown() {
        let text = Capability::of_owner(Port(7), ObjectNumber(1), Check::from_bits(99)).reveal();
        for text in [&text[..], &text[..text.len() - 1]] {
            let refused = read_capability(text).unwrap_err();
            assert!(matches!(refused, CapabilityFileError::NotAFile), "{refused}");
        }
    }

    #[test]
    fn a_file_without_a_capability_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let none = folder.path().join("none");
        assert!(read_capability(&none).unwrap_err().to_string().contains("none"));
        assert!(matches!(read_capability(folder.path()), Err(CapabilityFileError::Read { .. })));
        assert!(matches!(read_capability("/dev/zero"), Err(CapabilityFileError::Read { .. })));
        assert!(open_regular(folder.path()).unwrap().is_none());
        let path = folder.path().join("secret");
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).unwrap();
        write!(file, "0123456789abcdef").unwrap();
        let refused = read_capability(&path).unwrap_err().to_string();
        assert!(refused.contains("secret") && !refused.contains("0123456789"), "{refused}");
    }
}

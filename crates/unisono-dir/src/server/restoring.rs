//! Folders that a backup was put into. The first start of a server makes its state of it and begins the service anew.
//!
//! `restore` checks the backup and puts it into an empty folder, as the file `restoring`, with the root's capability beside
//! it: the holder of the folder can ask its server for the status from its first moment. A server that finds it there writes
//! its state, with its own id, and lets the service begin anew from it. The file goes when the server serves. A crash in
//! between is harmless: as long as the disk has the instance of the backup, the service has not begun anew yet.
//!
//! Only an administrator may let a service begin anew. So the file begins with a magic of its own and the identity that the
//! disk is to get: a backup that was saved into the folder of a server is none, and neither is a file for another disk.

use crate::archive::{Backup, NotABackup};
use crate::root::{ROOT_FILE, open_regular, write_capability};
use bytes::Buf;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use thiserror::Error;
use unisono::replica::{DiskError, DiskOptions, check_folder};

/// Name of the file in a folder, and what it begins with: magic and version, then 8 bytes of identity. The backup follows.
const RESTORING_FILE: &str = "restoring";
const MAGIC: &[u8] = b"uniR\0\x01";
const HEAD_BYTES: usize = MAGIC.len() + 8;

/// Why a backup is not restored.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// The file is no backup.
    #[error("{} cannot be restored: {reason}", file.display())]
    NotABackup {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        reason: NotABackup,
    },
    /// The folder is not empty.
    #[error("the folder {} is not empty: name another one, in which a server then begins anew", folder.display())]
    NotEmpty {
        /// The folder.
        folder: PathBuf,
    },
    /// A file cannot be written.
    #[error("cannot write {}: {cause}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The cause.
        cause: io::Error,
    },
    /// The backup is of a service with another name.
    #[error("the backup in {} is of the service {found}: start the server with --service {found}", folder.display())]
    OtherService {
        /// The folder.
        folder: PathBuf,
        /// Name of that service.
        found: String,
    },
    /// The backup is of a service with another number of servers.
    #[error(
        "the backup in {} is of a service with {found} servers: start the server with --replicas {found}",
        folder.display()
    )]
    OtherServers {
        /// The folder.
        folder: PathBuf,
        /// That number.
        found: u8,
    },
    /// The folder cannot be used.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

/// Reads a backup, and checks that a server can go on with the state in it.
///
/// # Errors
/// It cannot be read, or is no backup of a directory service.
pub fn check_backup(from: impl Read) -> Result<Backup, NotABackup> {
    let (_, backup) = Backup::read(from)?;
    backup.root().map(|_| backup)
}

/// Checks a backup, and puts it into an empty folder, in which a server then begins anew.
pub fn restore(file: &Path, folder: &Path) -> Result<Backup, RestoreError> {
    let not_a_backup = |reason| RestoreError::NotABackup { file: file.into(), reason };
    let opened = File::open(file).map_err(|cause| not_a_backup(NotABackup::Read(cause)))?;
    let (bytes, backup) = Backup::read(opened).map_err(not_a_backup)?;
    let root = backup.root().map_err(not_a_backup)?;
    let path = folder.join(RESTORING_FILE);
    let failed = |cause| RestoreError::Write { path: path.clone(), cause };
    let mut head = MAGIC.to_vec();
    let mut identity = [0; 8];
    getrandom::fill(&mut identity).map_err(|error| failed(io::Error::other(error)))?;
    head.extend_from_slice(&identity);
    if fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(RestoreError::NotEmpty { folder: folder.into() });
    }
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
    check_folder(folder)?;
    let beside = folder.join("restoring-new");
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&beside)
        .and_then(|mut out| {
            out.write_all(&head)?;
            out.write_all(&bytes)?;
            out.sync_all()
        })
        .and_then(|()| fs::rename(&beside, &path))
        .and_then(|()| File::open(folder)?.sync_all());
    written.map_err(failed)?;
    let path = folder.join(ROOT_FILE);
    write_capability(&path, &root).map_err(|cause| RestoreError::Write { path, cause })?;
    Ok(backup)
}

/// Opens what `restore` put into a folder: the identity of the disk that is to be, and the file behind it, which has the
/// backup. `None` if there is none.
fn pending(path: &Path) -> io::Result<Option<(u64, File)>> {
    let mut file = match open_regular(path) {
        Ok(Some(file)) => file,
        Ok(None) => return Ok(None),
        // The folder is of another user. Who opens it for the state says so.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut head = [0; HEAD_BYTES];
    if file.read_exact(&mut head).is_err() {
        return Ok(None);
    }
    let identity = head.strip_prefix(MAGIC);
    Ok(identity.map(|mut identity| (identity.get_u64(), file)))
}

/// Makes the state of a server of the backup in its folder, if there is one. Returns whether the service has to begin anew
/// from it.
pub(super) fn prepare(service: &str, disk: &DiskOptions) -> Result<bool, RestoreError> {
    let path = disk.data.join(RESTORING_FILE);
    let not_a_backup = |reason| RestoreError::NotABackup { file: path.clone(), reason };
    let found = pending(&path).map_err(|cause| not_a_backup(NotABackup::Read(cause)))?;
    let Some((identity, file)) = found else { return Ok(false) };
    let (_, backup) = Backup::read(file).map_err(not_a_backup)?;
    let folder = || disk.data.clone();
    if backup.service() != service {
        return Err(RestoreError::OtherService { folder: folder(), found: backup.service().into() });
    }
    if backup.servers() != disk.servers {
        return Err(RestoreError::OtherServers { folder: folder(), found: backup.servers() });
    }
    match disk.block()? {
        None => {
            backup.state.write_to(service, disk, identity)?;
            Ok(true)
        }
        Some(block) => Ok(block.disk == identity && block.service == backup.state.block.service),
    }
}

/// Removes what `restore` put into the folder of a server that serves.
pub(super) fn conclude(disk: &DiskOptions) {
    let path = disk.data.join(RESTORING_FILE);
    if let Ok(Some(_)) = pending(&path) {
        // If this fails, the next start finds that the service has begun anew.
        let _ = fs::remove_file(path);
    }
}

//! The folder of a server with a disk: real files, and the lock that keeps a second process out.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use unisono_core::replica::disk::{FileError, FileErrorKind, Files};

/// Name of the file that the process which uses a folder keeps locked.
const LOCK: &str = "lock";
/// Files whose names begin like this lie in the folder of the log.
const LOG: &str = "log-";

/// A folder. See the module.
#[derive(Debug)]
pub(super) struct Folder {
    data: PathBuf,
    log: PathBuf,
    open: HashMap<String, File>,
    /// Files whose names are not durable yet.
    fresh: Vec<String>,
    /// Locked as long as they are open.
    _locks: Vec<File>,
}

impl Folder {
    /// Opens a folder, and makes it if it does not exist. `log` is that of the log, if it is another one.
    pub(super) fn open(data: &Path, log: Option<&Path>) -> Result<Folder, FileError> {
        let mut locks = vec![claim(data)?];
        if let Some(log) = log.filter(|log| *log != data) {
            locks.push(claim(log)?);
        }
        Ok(Folder {
            data: data.to_owned(),
            log: log.unwrap_or(data).to_owned(),
            open: HashMap::new(),
            fresh: Vec::new(),
            _locks: locks,
        })
    }

    fn folder_of(&self, name: &str) -> &Path {
        if name.starts_with(LOG) { &self.log } else { &self.data }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder_of(name).join(name)
    }

    /// Returns the file, open for writing.
    fn file(&mut self, name: &str, creates: bool) -> io::Result<&File> {
        if !self.open.contains_key(name) {
            let path = self.path(name);
            let is_fresh = !path.exists();
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(creates).truncate(false).mode(0o600);
            let file = options.open(path)?;
            if is_fresh {
                self.fresh.push(name.to_owned());
            }
            self.open.insert(name.to_owned(), file);
        }
        self.open.get(name).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// Makes a folder if necessary, and locks it for this process.
fn claim(folder: &Path) -> Result<File, FileError> {
    let failed = |what| move |error| failure(what, folder, &error);
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed("make"))?;
    let path = folder.join(LOCK);
    let mut options = OpenOptions::new();
    let lock =
        options.write(true).create(true).truncate(false).mode(0o600).open(&path).map_err(failed("write to"))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(FileError {
            what: FileErrorKind::Locked,
            text: format!("another process uses the folder {}", folder.display()),
        }),
        Err(TryLockError::Error(error)) => Err(failure("lock", &path, &error)),
    }
}

fn failure(what: &str, path: &Path, error: &io::Error) -> FileError {
    let kind = match error.kind() {
        io::ErrorKind::NotFound => FileErrorKind::NotFound,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => FileErrorKind::Full,
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => FileErrorKind::Denied,
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => FileErrorKind::NotFolder,
        _ => FileErrorKind::Failed,
    };
    FileError { what: kind, text: format!("cannot {what} {}: {error}", path.display()) }
}

impl Files for Folder {
    fn list(&self) -> Result<Vec<String>, FileError> {
        let mut names = Vec::new();
        let mut folders = vec![&self.data];
        if self.log != self.data {
            folders.push(&self.log);
        }
        for folder in folders {
            let failed = |error| failure("list", folder, &error);
            for entry in fs::read_dir(folder).map_err(failed)? {
                let name = entry.map_err(failed)?.file_name();
                names.extend(name.into_string().ok().filter(|name| name != LOCK));
            }
        }
        Ok(names)
    }

    fn read(&self, name: &str) -> Result<Vec<u8>, FileError> {
        let path = self.path(name);
        let mut bytes = Vec::new();
        let read = File::open(&path).and_then(|mut file| file.read_to_end(&mut bytes));
        read.map_err(|error| failure("read", &path, &error))?;
        Ok(bytes)
    }

    fn write(&mut self, name: &str, at: u64, bytes: &[u8]) -> Result<(), FileError> {
        let written = self.file(name, true).and_then(|file| file.write_all_at(bytes, at));
        written.map_err(|error| failure("write to", &self.path(name), &error))
    }

    fn truncate(&mut self, name: &str, length: u64) -> Result<(), FileError> {
        let cut = self.file(name, false).and_then(|file| file.set_len(length));
        cut.map_err(|error| failure("cut off", &self.path(name), &error))
    }

    fn sync(&mut self, name: &str) -> Result<(), FileError> {
        let synced = self.file(name, false).and_then(File::sync_data);
        synced.map_err(|error| failure("sync", &self.path(name), &error))?;
        if let Some(index) = self.fresh.iter().position(|fresh| fresh == name) {
            let folder = self.folder_of(name).to_owned();
            let synced = File::open(&folder).and_then(|folder| folder.sync_all());
            synced.map_err(|error| failure("sync", &folder, &error))?;
            self.fresh.swap_remove(index);
        }
        Ok(())
    }

    fn remove(&mut self, name: &str) -> Result<(), FileError> {
        self.open.remove(name);
        self.fresh.retain(|fresh| fresh != name);
        let path = self.path(name);
        fs::remove_file(&path).map_err(|error| failure("remove", &path, &error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_keeps_files_and_belongs_to_one_process() {
        let base = std::env::temp_dir().join(format!("unisono-folder-{}", std::process::id()));
        let (data, log) = (base.join("data"), base.join("log"));
        let mut folder = Folder::open(&data, Some(&log)).unwrap();
        assert_eq!(Folder::open(&data, None).unwrap_err().what, FileErrorKind::Locked);
        folder.write("block", 4, b"four").unwrap();
        folder.write("log-1", 0, b"entries").unwrap();
        ["block", "log-1"].iter().for_each(|name| folder.sync(name).unwrap());
        folder.truncate("log-1", 3).unwrap();
        assert!(log.join("log-1").exists());
        drop(folder);
        let mut folder = Folder::open(&data, Some(&log)).unwrap();
        assert_eq!(folder.read("block").unwrap(), b"\0\0\0\0four");
        assert_eq!(folder.read("log-1").unwrap(), b"ent");
        assert_eq!(folder.list().unwrap().len(), 2);
        folder.remove("block").unwrap();
        assert_eq!(folder.read("block").unwrap_err().what, FileErrorKind::NotFound);
        assert_eq!(folder.sync("none").unwrap_err().what, FileErrorKind::NotFound);
        let not_a_folder = Folder::open(&log.join("log-1"), None).unwrap_err();
        assert_eq!(not_a_folder.what, FileErrorKind::NotFolder);
        fs::remove_dir_all(&base).unwrap();
    }
}

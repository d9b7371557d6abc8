//! The folder where a durable replica keeps its state, for the core's [`Store`](unisono_core::replica::disk::Store).
//!
//! The log may be in a folder of its own, on another device: each answer waits for a sync of the log, and for nothing else.
//! Each folder is locked for as long as a process uses it. Files that are reached through a symbolic link are those of another
//! folder, which this lock does not cover, so a folder that has one is refused.

use rustix::fs::OFlags;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read as _};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use unisono_core::replica::disk::{FileError, FileErrorKind, Files};

/// Name of the file that a process locks.
const LOCK_FILE: &str = "lock";
/// Beginning of the names of files that belong into the log's folder.
const LOG_PREFIX: &str = "log-";
/// Name of the file that is written again and again, besides the log.
pub(super) const BLOCK_FILE: &str = "block";

/// Kind of a file system in memory, from statfs(2).
const TMPFS: rustix::fs::FsWord = 0x0102_1994;
/// Number of bytes that one operation of the system reads or writes, 1 MiB: a slow disk gets on with each of them.
const CHUNK_BYTES: usize = 1 << 20;
/// Minimum interval between two reports that the disk gets on.
const REPORTS_EVERY: Duration = if cfg!(test) { Duration::ZERO } else { Duration::from_secs(1) };

/// A folder, or one for the log and one for the rest. See the module.
#[derive(Debug)]
pub(super) struct Folder {
    data: Directory,
    /// The log's folder, if it has one.
    log: Option<Directory>,
    /// Files that are kept open: those with writes that are not synced, and those that are written often.
    open: BTreeMap<String, File>,
    progress: Option<Progress>,
    /// True once nothing more is to be written.
    is_cancelled: Option<Arc<AtomicBool>>,
}

/// Receiver of the progress reports.
struct Progress {
    report: Box<dyn Fn() + Send>,
    reported: Cell<Instant>,
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Progress").field("reported", &self.reported).finish_non_exhaustive()
    }
}

/// A directory that this process has locked.
#[derive(Debug)]
struct Directory {
    path: PathBuf,
    file: File,
    /// True if the names of new files may not be durable: always at first, for an earlier process may have made some.
    has_new_names: bool,
    _lock: File,
}

impl Directory {
    fn open(path: &Path) -> Result<Directory, FileError> {
        create(path)?;
        let is_folder = fs::metadata(path).map_err(failed("look at", path))?.is_dir();
        if !is_folder {
            let text = format!("{} is not a folder", path.display());
            return Err(FileError { what: FileErrorKind::NotFolder, text });
        }
        // The absolute path, so that the process may change its own folder.
        let path = &fs::canonicalize(path).map_err(failed("find", path))?;
        check_alone(path)?;
        let lock_path = path.join(LOCK_FILE);
        let lock = open_file(OpenOptions::new().write(true).create(true).truncate(false), "open", &lock_path)
            .map_err(|error| not_writable(error, path))?;
        lock_file(&lock, &lock_path)?;
        let file = File::open(path).map_err(failed("open", path))?;
        Ok(Directory { path: path.clone(), file, has_new_names: true, _lock: lock })
    }

    /// Returns another access to it. The names of new files that are made with this one are no business of the other.
    fn beside(&self) -> io::Result<Directory> {
        let (file, lock) = (self.file.try_clone()?, self._lock.try_clone()?);
        Ok(Directory { path: self.path.clone(), file, has_new_names: false, _lock: lock })
    }

    /// Calls `take` with the names of the files. Other folders in it are of no interest, such as `lost+found`.
    fn list(&self, mut take: impl FnMut(String)) -> Result<(), FileError> {
        let failed = || failed("list", &self.path);
        for entry in fs::read_dir(&self.path).map_err(failed())? {
            let entry = entry.map_err(failed())?;
            let kind = entry.file_type().map_err(failed())?;
            if !kind.is_dir() && !kind.is_file() {
                return Err(not_own_file(&entry.path(), kind.is_symlink()));
            }
            if let Ok(name) = entry.file_name().into_string()
                && kind.is_file()
                && name != LOCK_FILE
            {
                take(name);
            }
        }
        Ok(())
    }
}

/// Opens a regular file that is in its folder itself. It never waits, as opening a pipe would.
fn open_file(options: &mut OpenOptions, operation: &str, path: &Path) -> Result<File, FileError> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let opened = options.mode(0o600).custom_flags(flags.bits() as i32).open(path);
    match fs::symlink_metadata(path) {
        Ok(found) if !found.is_file() => Err(not_own_file(path, found.is_symlink())),
        _ => {
            let file = opened.map_err(failed(operation, path))?;
            keep_private(&file).map_err(failed("restrict the mode of", path))?;
            Ok(file)
        }
    }
}

/// Takes the rights of other users to a file, which may have come here by a copy that kept no mode.
fn keep_private(file: &File) -> io::Result<()> {
    match file.metadata()?.mode() & 0o077 {
        0 => Ok(()),
        _ => file.set_permissions(fs::Permissions::from_mode(0o600)),
    }
}

/// Refuses a folder in which other users may change files: one of another user, except root, or one that others may write
/// to.
pub(super) fn check_alone(path: &Path) -> Result<(), FileError> {
    let found = fs::metadata(path).map_err(failed("look at", path))?;
    let mode = found.mode() & 0o7777;
    let text = match found.uid() {
        owner if owner != 0 && owner != rustix::process::geteuid().as_raw() => of_another(owner, mode),
        _ if mode & 0o022 != 0 => format!(
            "other users may write to it (mode {mode:04o}): type `chmod go-w {0}`, or name a new folder in it",
            path.display()
        ),
        _ => return Ok(()),
    };
    Err(FileError { what: FileErrorKind::NotOwnFile, text })
}

fn of_another(owner: u32, mode: u32) -> String {
    let me = rustix::process::geteuid().as_raw();
    format!(
        "it belongs to user {owner} (mode {mode:04o}), and this process runs as user {me}: start it as user {owner}, or give \
         it the folder (chown -R)"
    )
}

fn not_own_file(path: &Path, is_link: bool) -> FileError {
    let what = if is_link { "is a symbolic link" } else { "is not a regular file" };
    let text = format!("{} {what}: a server's files lie in its own folder", path.display());
    FileError { what: FileErrorKind::NotOwnFile, text }
}

/// Says whose folder it is, if that is why this process may not write there.
fn not_writable(error: FileError, path: &Path) -> FileError {
    let me = rustix::process::geteuid().as_raw();
    match fs::metadata(path) {
        Ok(found) if error.what == FileErrorKind::Denied && found.uid() != me => {
            FileError { text: of_another(found.uid(), found.mode() & 0o7777), ..error }
        }
        _ => error,
    }
}

/// Locks a file of a folder that this process uses. The lock ends with the file.
fn lock_file(file: &File, path: &Path) -> Result<(), FileError> {
    file.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => FileError {
            what: FileErrorKind::Locked,
            text: format!(
                "another process uses {}; stop that process first, or name another folder",
                path.parent().unwrap_or(path).display()
            ),
        },
        TryLockError::Error(error) => failed("lock", path)(error),
    })
}

/// Creates a folder that only this user may enter, and those above it, if they do not exist. Their names are durable then.
fn create(path: &Path) -> Result<(), FileError> {
    let parent = match path.parent() {
        Some(parent) if parent == Path::new("") => Path::new("."),
        Some(parent) => parent,
        None => return Ok(()),
    };
    if path.exists() {
        return Ok(());
    }
    create(parent)?;
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(failed("create", path)(error)),
        _ => File::open(parent).and_then(|parent| parent.sync_all()).map_err(failed("sync", parent)),
    }
}

impl Folder {
    /// Opens and locks a folder, and another one for the log if there is one. They are created if they do not exist.
    pub(super) fn open(data: &Path, log: Option<&Path>) -> Result<Folder, FileError> {
        let data = Directory::open(data)?;
        let is_same = |path: &&Path| fs::canonicalize(path).is_ok_and(|path| path == data.path);
        let log = log.filter(|path| !is_same(path)).map(Directory::open).transpose()?;
        let mut folder = Folder { data, log, open: BTreeMap::new(), progress: None, is_cancelled: None };
        // Someone may have removed the file that is locked.
        match folder.file(BLOCK_FILE) {
            Err(error) if error.what != FileErrorKind::NotFound => Err(error),
            _ => Ok(folder),
        }
    }

    /// Returns another access to the same folder, for a thread that writes new files there beside this one. The folder stays
    /// locked until both are dropped. Its writes fail once `is_cancelled` is true.
    pub(super) fn beside(&self, is_cancelled: &Arc<AtomicBool>) -> io::Result<Folder> {
        let log = self.log.as_ref().map(Directory::beside).transpose()?;
        let data = self.data.beside()?;
        Ok(Folder {
            data,
            log,
            open: BTreeMap::new(),
            progress: None,
            is_cancelled: Some(is_cancelled.clone()),
        })
    }

    /// Has `report` called when the store gets on, at most once a second.
    pub(super) fn report_progress(&mut self, report: impl Fn() + Send + 'static) {
        self.progress = Some(Progress { report: Box::new(report), reported: Cell::new(Instant::now()) });
    }

    /// True if the log's folder is in memory, where a sync costs nothing.
    pub(super) fn log_is_in_memory(&self) -> bool {
        let found = rustix::fs::fstatfs(&self.directory(LOG_PREFIX).file);
        found.is_ok_and(|found| found.f_type == TMPFS)
    }

    fn directory(&self, name: &str) -> &Directory {
        self.log.as_ref().filter(|_| name.starts_with(LOG_PREFIX)).unwrap_or(&self.data)
    }

    fn directory_mut(&mut self, name: &str) -> &mut Directory {
        self.log.as_mut().filter(|_| name.starts_with(LOG_PREFIX)).unwrap_or(&mut self.data)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory(name).path.join(name)
    }

    /// Returns a file that exists.
    fn file(&mut self, name: &str) -> Result<&File, FileError> {
        if !self.open.contains_key(name) {
            let path = self.path(name);
            let file = open_file(OpenOptions::new().write(true), "open", &path)?;
            self.keep(name, file)?;
        }
        Ok(&self.open[name])
    }

    fn keep(&mut self, name: &str, file: File) -> Result<(), FileError> {
        if name == BLOCK_FILE {
            lock_file(&file, &self.path(name))?;
        }
        self.open.insert(name.into(), file);
        Ok(())
    }

    /// Creates a file if it does not exist.
    fn create_file(&mut self, name: &str) -> Result<(), FileError> {
        match self.file(name) {
            Err(error) if error.what == FileErrorKind::NotFound => {}
            opened => return opened.map(|_| ()),
        }
        let path = self.path(name);
        let file = open_file(OpenOptions::new().write(true).create_new(true), "create", &path)?;
        self.keep(name, file)?;
        self.directory_mut(name).has_new_names = true;
        Ok(())
    }
}

impl Files for Folder {
    fn list(&self) -> Result<Vec<String>, FileError> {
        let mut names = Vec::new();
        // With a folder of its own, a log elsewhere does not count.
        let is_here = |name: &String, is_log: bool| name.starts_with(LOG_PREFIX) == is_log;
        self.data.list(|name| {
            if self.log.is_none() || is_here(&name, false) {
                names.push(name);
            }
        })?;
        if let Some(log) = &self.log {
            log.list(|name| {
                if is_here(&name, true) {
                    names.push(name);
                }
            })?;
        }
        Ok(names)
    }

    fn read(&self, name: &str) -> Result<Vec<u8>, FileError> {
        self.read_first(name, u64::MAX).map(|(bytes, _)| bytes)
    }

    fn read_first(&self, name: &str, most: u64) -> Result<(Vec<u8>, u64), FileError> {
        let path = self.path(name);
        let file = open_file(OpenOptions::new().read(true), "read", &path)?;
        let length = file.metadata().map_err(failed("look at", &path))?.len();
        let mut bytes = Vec::with_capacity(usize::try_from(length.min(most)).unwrap_or_default());
        let mut file = file.take(most);
        while file.by_ref().take(CHUNK_BYTES as u64).read_to_end(&mut bytes).map_err(failed("read", &path))?
            > 0
        {
            self.gets_on();
        }
        Ok((bytes, length))
    }

    fn write(&mut self, name: &str, at: u64, bytes: &[u8]) -> Result<(), FileError> {
        self.create_file(name)?;
        let mut at = at;
        for step in bytes.chunks(CHUNK_BYTES) {
            if self.is_cancelled.as_ref().is_some_and(|is_cancelled| is_cancelled.load(Ordering::Relaxed)) {
                let text = format!("cannot write {}: it is not needed any more", self.path(name).display());
                return Err(FileError { what: FileErrorKind::Failed, text });
            }
            let written = self.file(name)?.write_all_at(step, at);
            written.map_err(failed("write", &self.path(name)))?;
            at += step.len() as u64;
            self.gets_on();
        }
        Ok(())
    }

    fn truncate(&mut self, name: &str, length: u64) -> Result<(), FileError> {
        let truncated = self.file(name)?.set_len(length);
        truncated.map_err(failed("truncate", &self.path(name)))
    }

    fn sync(&mut self, name: &str) -> Result<(), FileError> {
        let synced = self.file(name)?.sync_data();
        synced.map_err(failed("sync", &self.path(name)))?;
        self.gets_on();
        if !name.starts_with(LOG_PREFIX) && name != BLOCK_FILE {
            // The files of a snapshot are written once.
            self.open.remove(name);
        }
        let directory = self.directory_mut(name);
        if directory.has_new_names {
            directory.file.sync_all().map_err(failed("sync", &directory.path))?;
            directory.has_new_names = false;
            self.gets_on();
        }
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<(), FileError> {
        let (old, new) = (self.path(from), self.path(to));
        fs::rename(&old, &new).map_err(failed("rename", &old))?;
        if let Some(file) = self.open.remove(from) {
            self.open.insert(to.into(), file);
        }
        self.directory_mut(to).has_new_names = true;
        self.gets_on();
        Ok(())
    }

    fn remove(&mut self, name: &str) -> Result<(), FileError> {
        self.open.remove(name);
        let path = self.path(name);
        fs::remove_file(&path).map_err(failed("remove", &path))?;
        self.gets_on();
        Ok(())
    }

    fn gets_on(&self) {
        if let Some(Progress { report, reported }) = &self.progress
            && reported.get().elapsed() >= REPORTS_EVERY
        {
            reported.set(Instant::now());
            report();
        }
    }
}

/// Returns what makes the error of an operation.
fn failed(operation: &str, path: &Path) -> impl FnOnce(io::Error) -> FileError {
    let text = format!("cannot {operation} {}", path.display());
    move |error| FileError { what: kind(&error), text: format!("{text}: {error}") }
}

fn kind(error: &io::Error) -> FileErrorKind {
    match error.kind() {
        io::ErrorKind::NotFound => FileErrorKind::NotFound,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => FileErrorKind::Full,
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => FileErrorKind::Denied,
        io::ErrorKind::NotADirectory => FileErrorKind::NotFolder,
        _ => FileErrorKind::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use rustix::fs::{FileType, Mode};
    use rustix::io::Errno;
    use unisono_core::replica::Digest;
    use unisono_core::replica::disk::{Block, Created, DiskDurability, Store};

    fn digest(bytes: &[u8]) -> Digest {
        let mut digest = Digest::default();
        digest.copy_from_slice(ring::digest::digest(&ring::digest::SHA256, bytes).as_ref());
        digest
    }

    fn block() -> Block {
        Block {
            service: 1,
            server: 1,
            servers: 3,
            durability: DiskDurability::Majority,
            disk: 2,
            starts: 1,
            generation: 1,
            promised: 1,
            view: None,
            created: Created::Half(3),
            snapshot: None,
            log: 0,
            anew: vec![],
            name: "kitchen".into(),
        }
    }

    #[test]
    fn a_store_finds_its_state_again() {
        let directory = tempfile::tempdir().unwrap();
        let (data, log) = (directory.path().join("a/data"), directory.path().join("log"));
        for log in [None, Some(&*log)] {
            let data = data.join(if log.is_some() { "two" } else { "one" });
            let (mut store, loaded) = Store::open(Folder::open(&data, log).unwrap(), digest).unwrap();
            assert_eq!(loaded, None);
            let entries = [Bytes::from_static(b"first"), Bytes::from_static(b"second")];
            store.commit(block()).unwrap();
            store.append(1, &entries, &Default::default()).unwrap();
            let writer = store.begin_snapshot(1, vec![Bytes::from_static(b"state")], &entries[1..]).unwrap();
            // Another access to the folder writes the parts, while the log goes on.
            let mut beside = store.files().beside(&Arc::default()).unwrap();
            store.append(3, &[Bytes::from_static(b"third")], &Default::default()).unwrap();
            let written = writer.write(&mut beside).unwrap();
            drop(beside);
            store.name_snapshot(written).unwrap();
            drop(store);
            let (store, loaded) = Store::open(Folder::open(&data, log).unwrap(), digest).unwrap();
            let loaded = loaded.unwrap();
            assert_eq!((loaded.snapshot_at, store.end()), (1, 3));
            assert_eq!(
                (&loaded.parts[..], &loaded.entries[..]),
                (&[Bytes::from("state")][..], &[entries[1].clone(), Bytes::from("third")][..])
            );
            let has_log = |path: &Path| path.join(format!("log-{}", loaded.block.log)).exists();
            assert_eq!((has_log(&data), log.is_some_and(has_log)), (log.is_none(), log.is_some()));
            assert_eq!(store.files().list().unwrap().len(), 4);
        }
    }

    #[test]
    fn a_log_gets_room_and_the_file_of_an_earlier_one() {
        let directory = tempfile::tempdir().unwrap();
        let (data, log) = (directory.path().join("data"), directory.path().join("log"));
        let (mut store, _) = Store::open(Folder::open(&data, Some(&log)).unwrap(), digest).unwrap();
        let length = |number: u64| fs::metadata(log.join(format!("log-{number}"))).unwrap();
        store.commit(block()).unwrap();
        store.make_room().unwrap();
        let roomy = length(1);
        store.append(1, &[Bytes::from_static(b"first")], &Default::default()).unwrap();
        assert!(roomy.len() > store.log_bytes() && length(1).len() == roomy.len());
        for _ in 0..2 {
            let writer = store.begin_snapshot(1, vec![Bytes::from_static(b"state")], &[]).unwrap();
            let mut beside = store.files().beside(&Arc::default()).unwrap();
            let written = writer.write(&mut beside).unwrap();
            store.name_snapshot(written).unwrap();
        }
        assert_eq!((length(3).ino(), length(3).len()), (roomy.ino(), roomy.len()));
        store.append(2, &[Bytes::from_static(b"second")], &Default::default()).unwrap();
        drop(store);
        let (_, loaded) = Store::open(Folder::open(&data, Some(&log)).unwrap(), digest).unwrap();
        assert_eq!(loaded.unwrap().entries, [Bytes::from_static(b"second")]);
    }

    #[test]
    fn a_disk_that_is_full_while_room_is_made_is_named_and_the_log_stays_whole() {
        let directory = tempfile::tempdir().unwrap();
        let (mut store, _) = Store::open(Folder::open(directory.path(), None).unwrap(), digest).unwrap();
        store.commit(block()).unwrap();
        store.append(1, &[Bytes::from_static(b"first")], &Default::default()).unwrap();
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        store.files_mut().open.insert("log-1".into(), full);
        let error = store.make_room().unwrap_err();
        assert!(error.to_string().contains("log-1: No space left"), "{error}");
        assert_eq!(
            store.append(2, &[Bytes::from_static(b"second")], &Default::default()).unwrap_err(),
            unisono_core::replica::disk::StoreError::Unusable
        );
        drop(store);
        let (mut store, loaded) = Store::open(Folder::open(directory.path(), None).unwrap(), digest).unwrap();
        assert_eq!(loaded.unwrap().entries, [Bytes::from_static(b"first")]);
        store.make_room().unwrap();
    }

    #[test]
    fn a_folder_belongs_to_one_process_and_one_user() {
        let directory = tempfile::tempdir().unwrap();
        let (data, log) = (directory.path().join("data"), directory.path().join("log"));
        let mut folder = Folder::open(&data, Some(&log)).unwrap();
        folder.write("block", 0, b"x").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&data), mode(&log), mode(&data.join("block"))), (0o700, 0o700, 0o600));
        let other = directory.path().join("other");
        for (data, log) in [(&data, None), (&log, None), (&other, Some(&*log))] {
            assert_eq!(Folder::open(data, log).unwrap_err().what, FileErrorKind::Locked);
        }
        drop(folder);
        // The same folder for both is no second process.
        Folder::open(&data, Some(&data.join("../data"))).unwrap();
    }

    #[test]
    fn a_folder_that_others_may_write_to_is_refused_and_own_files_become_private() {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("data");
        Folder::open(&data, None).unwrap().write(BLOCK_FILE, 0, b"x").unwrap();
        let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        for mode in [0o770, 0o702, 0o777] {
            set(&data, mode);
            let refused = Folder::open(&data, None).unwrap_err();
            assert!(refused.text.contains("chmod go-w"), "{refused}");
        }
        // Others may look at the names, as a service manager sets it up.
        set(&data, 0o755);
        set(&data.join(BLOCK_FILE), 0o644);
        Folder::open(&data, None).unwrap().read(BLOCK_FILE).unwrap();
        assert_eq!(fs::metadata(data.join(BLOCK_FILE)).unwrap().permissions().mode() & 0o777, 0o600);
        if !rustix::process::geteuid().is_root() {
            return;
        }
        std::os::unix::fs::chown(&data, Some(12), None).unwrap();
        let refused = Folder::open(&data, None).unwrap_err();
        assert!(refused.text.contains("belongs to user 12"), "{refused}");
    }

    #[test]
    fn a_removed_lock_lets_no_second_process_in() {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("data");
        let mut folder = Folder::open(&data, None).unwrap();
        folder.write(BLOCK_FILE, 0, b"x").unwrap();
        fs::remove_file(data.join(LOCK_FILE)).unwrap();
        assert_eq!(Folder::open(&data, None).unwrap_err().what, FileErrorKind::Locked);
        drop(folder);
        let folder = Folder::open(&data, None).unwrap();
        fs::remove_file(data.join(LOCK_FILE)).unwrap();
        assert_eq!(Folder::open(&data, None).unwrap_err().what, FileErrorKind::Locked);
        drop(folder);
    }

    #[test]
    fn links_and_pipes_are_refused_by_name() {
        let directory = tempfile::tempdir().unwrap();
        let own = directory.path().join("own");
        drop(Folder::open(&own, None).unwrap());
        fs::write(own.join("block"), "the real one").unwrap();
        for name in ["block", LOCK_FILE, "log-1"] {
            let other = directory.path().join(name);
            fs::create_dir(&other).unwrap();
            std::os::unix::fs::symlink(own.join("block"), other.join(name)).unwrap();
            for log in [None, Some(&*other)] {
                let data = log.map_or(other.clone(), |_| directory.path().join("data"));
                let error = Folder::open(&data, log).and_then(|folder| folder.list()).unwrap_err();
                assert_eq!(error.what, FileErrorKind::NotOwnFile, "{error}");
                let path = fs::canonicalize(&other).unwrap().join(name);
                let text = "is a symbolic link: a server's files lie in its own folder";
                assert_eq!(error.text, format!("{} {text}", path.display()));
            }
        }
        assert_eq!(fs::read(own.join("block")).unwrap(), b"the real one");
        for name in ["block", LOCK_FILE, "log-1"] {
            let other = directory.path().join(format!("pipe-{name}"));
            fs::create_dir(&other).unwrap();
            let pipe = (FileType::Fifo, Mode::from_raw_mode(0o600));
            rustix::fs::mknodat(rustix::fs::CWD, other.join(name), pipe.0, pipe.1, 0).unwrap();
            let error = Folder::open(&other, None).and_then(|folder| folder.list()).unwrap_err();
            assert_eq!(error.what, FileErrorKind::NotOwnFile, "{error}");
            assert!(error.text.contains("is not a regular file"), "{error}");
        }
    }

    #[test]
    fn a_path_that_is_no_folder_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, "x").unwrap();
        let error = Folder::open(&path, None).unwrap_err();
        assert_eq!(
            (error.what, error.text),
            (FileErrorKind::NotFolder, format!("{} is not a folder", path.display()))
        );
        let error = Folder::open(&path.join("below"), None).unwrap_err();
        assert_eq!(error.what, FileErrorKind::NotFolder, "{error}");
        let error = Folder::open(directory.path(), Some(&path)).unwrap_err();
        assert_eq!(error.what, FileErrorKind::NotFolder, "{error}");
    }

    #[test]
    fn files_are_written_cut_and_removed() {
        let directory = tempfile::tempdir().unwrap();
        let mut folder = Folder::open(directory.path(), None).unwrap();
        let what = |result: Result<(), FileError>| result.map_err(|error| error.what);
        assert_eq!(what(folder.sync("part")), Err(FileErrorKind::NotFound));
        assert_eq!(what(folder.truncate("part", 1)), Err(FileErrorKind::NotFound));
        assert_eq!(what(folder.remove("part")), Err(FileErrorKind::NotFound));
        folder.write("part", 2, b"cde").unwrap();
        folder.write("part", 0, b"ab").unwrap();
        folder.sync("part").unwrap();
        assert!(folder.open.is_empty());
        folder.truncate("part", 4).unwrap();
        assert_eq!(folder.read("part").unwrap(), b"abcd");
        fs::create_dir(directory.path().join("lost+found")).unwrap();
        assert_eq!(folder.list().unwrap(), ["part"]);
        folder.remove("part").unwrap();
        let error = folder.read("part").unwrap_err();
        let path = fs::canonicalize(directory.path()).unwrap().join("part");
        assert!(error.text.starts_with(&format!("cannot read {}: ", path.display())), "{error}");
        assert_eq!(error.what, FileErrorKind::NotFound);
        assert!(folder.list().unwrap().is_empty());
    }

    #[test]
    fn each_step_of_a_large_file_is_reported() {
        use std::sync::atomic::AtomicU32;
        let directory = tempfile::tempdir().unwrap();
        let mut folder = Folder::open(directory.path(), None).unwrap();
        let reports = Arc::new(AtomicU32::new(0));
        let counted = reports.clone();
        folder.report_progress(move || _ = counted.fetch_add(1, Ordering::Relaxed));
        let reported = || reports.swap(0, Ordering::Relaxed);
        folder.write("parts-1", 0, &vec![7; 3 * CHUNK_BYTES + 1]).unwrap();
        assert_eq!(reported(), 4);
        // The file, and its name in the folder.
        folder.sync("parts-1").unwrap();
        assert_eq!(reported(), 2);
        assert_eq!(folder.read("parts-1").unwrap().len(), 3 * CHUNK_BYTES + 1);
        assert_eq!(reported(), 4);
        assert!(folder.sync("parts-2").is_err());
        assert_eq!(reported(), 0);
    }

    #[test]
    fn a_folder_stays_locked_while_a_snapshot_is_written_and_writes_end_once_they_are_cancelled() {
        let directory = tempfile::tempdir().unwrap();
        let folder = Folder::open(directory.path(), None).unwrap();
        let is_cancelled = Arc::new(AtomicBool::new(false));
        let mut beside = folder.beside(&is_cancelled).unwrap();
        drop(folder);
        let opened = Folder::open(directory.path(), None);
        assert_eq!(opened.unwrap_err().what, FileErrorKind::Locked);
        beside.write("parts-1", 0, b"x").unwrap();
        is_cancelled.store(true, Ordering::Relaxed);
        assert!(beside.write("parts-1", 1, b"y").unwrap_err().text.contains("not needed"));
        drop(beside);
        assert_eq!(Folder::open(directory.path(), None).unwrap().read("parts-1").unwrap(), b"x");
    }

    #[test]
    fn a_full_disk_is_told_from_a_failed_one() {
        assert_eq!(kind(&Errno::NOSPC.into()), FileErrorKind::Full);
        assert_eq!(kind(&Errno::DQUOT.into()), FileErrorKind::Full);
        assert_eq!(kind(&Errno::ROFS.into()), FileErrorKind::Denied);
        assert_eq!(kind(&Errno::IO.into()), FileErrorKind::Failed);
        let directory = tempfile::tempdir().unwrap();
        let mut folder = Folder::open(directory.path(), None).unwrap();
        folder.open.insert("block".into(), OpenOptions::new().write(true).open("/dev/full").unwrap());
        assert_eq!(folder.write("block", 0, b"x").unwrap_err().what, FileErrorKind::Full);
    }
}

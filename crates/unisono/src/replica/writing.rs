//! Jobs for the disk: who does them.
//!
//! One thread does the jobs of a server, one after the other, and another one writes the parts of a snapshot beside it. A log in
//! memory is written sooner than a thread is woken, so the thread that has the next entries for such a log appends them itself.
//! Between jobs, the first thread makes room in the file of the log, unless that is in memory.

use super::StateMachine;
use super::copy::Copy;
use super::folder::Folder;
use bytes::Bytes;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use unisono_core::replica::disk::{SnapshotWriter, SnapshotWritten, Store, StoreError};
use unisono_core::replica::{Job, JobNumber};

/// By how much the priority of threads whose work can wait is lower than that of the others.
const YIELDS_BY_NICE: i32 = 10;
/// Maximum length of entries that are appended to a log in memory by the thread that has them, 64 KiB: about 20 µs.
const AT_ONCE_BYTES_MAX: usize = 64 << 10;

/// Where a replica's jobs for the disk go.
#[derive(Debug)]
pub(super) struct Jobs {
    to_thread: Sender<(JobNumber, Box<Job>)>,
    store: Arc<SharedStore>,
    log_is_in_memory: bool,
}

/// The jobs that a thread of its own does: all but those that the thread does that has them.
#[derive(Debug)]
pub(super) struct ToDo {
    jobs: Receiver<(JobNumber, Box<Job>)>,
    store: Arc<SharedStore>,
    log_is_in_memory: bool,
}

/// A job that the thread does that has it.
pub(super) struct AtOnce {
    number: JobNumber,
    job: Job,
    store: Arc<SharedStore>,
}

/// The store, which one thread at a time uses.
#[derive(Debug)]
struct SharedStore {
    /// `None` once the thread that does the jobs has ended.
    store: Mutex<Option<Store<Folder>>>,
    /// Number of the job under way.
    present: Arc<AtomicU64>,
}

/// Returns where jobs for this store go, and what their thread is to be given.
pub(super) fn jobs(store: Store<Folder>) -> (Jobs, ToDo) {
    let (to_thread, jobs) = mpsc::channel();
    let log_is_in_memory = store.files().log_is_in_memory();
    let store = Arc::new(SharedStore { store: Mutex::new(Some(store)), present: Arc::default() });
    (Jobs { to_thread, store: store.clone(), log_is_in_memory }, ToDo { jobs, store, log_is_in_memory })
}

impl Jobs {
    /// Passes a job on to the thread that does them. With `may_append` it is returned if the caller is to do it.
    pub(super) fn give(&self, number: JobNumber, job: Box<Job>, may_append: bool) -> Option<AtOnce> {
        if may_append && self.log_is_in_memory && is_short_append(&job) {
            return Some(AtOnce { number, job: *job, store: self.store.clone() });
        }
        // Without that thread, this replica has ended.
        _ = self.to_thread.send((number, job));
        None
    }
}

fn is_short_append(job: &Job) -> bool {
    match job {
        Job::Append { entries, .. } => entries.iter().map(Bytes::len).sum::<usize>() <= AT_ONCE_BYTES_MAX,
        _ => false,
    }
}

impl AtOnce {
    /// Does the job, unless the disk is not used any longer. Returns its number, and its outcome.
    pub(super) fn carry_out(self) -> Option<(JobNumber, Result<(), String>)> {
        let AtOnce { number, job, store } = self;
        let Job::Append { first, entries, heard } = job else { return None };
        let done = store.begin(number).as_mut()?.append(first, &entries, &heard);
        Some((number, done.map_err(|error| error.to_string())))
    }
}

impl SharedStore {
    fn begin(&self, number: JobNumber) -> MutexGuard<'_, Option<Store<Folder>>> {
        let store = lock(&self.store);
        self.present.store(number, Ordering::Relaxed);
        store
    }
}

impl ToDo {
    /// Makes room for appends if there is little. Returns why the disk has failed.
    fn make_room(&self) -> Option<StoreError> {
        let mut store = lock(&self.store.store);
        let store = store.as_mut().filter(|store| !self.log_is_in_memory && store.lacks_room())?;
        store.make_room().err()
    }
}

/// Does the jobs for the disk, one after the other, until there are no more.
pub(super) fn write<S: StateMachine + Send + 'static>(copy: &Arc<Copy<S>>, to_do: &ToDo) {
    let shared = &to_do.store;
    if let Some(store) = lock(&shared.store).as_mut() {
        report_progress(copy, store.files_mut(), &shared.present);
    }
    let mut snapshots = Snapshots::default();
    for (number, job) in &to_do.jobs {
        let (done, begun) = {
            let mut store = shared.begin(number);
            let Some(store) = store.as_mut() else { break };
            do_job(store, *job, &mut snapshots)
        };
        let report = |done: Result<(), StoreError>| {
            let done = done.map_err(|error| error.to_string());
            let is_done = done.is_ok();
            copy.step(|state, now| {
                if let Some(copy) = state.copy_mut() {
                    copy.handle_stored(now, number, done);
                }
            });
            is_done
        };
        if !report(done) {
            // Nothing is known of what was not synced, so the disk is not used any longer.
            break;
        }
        if let Some((writer, folder)) = begun {
            snapshots.begin(copy, number, writer, folder);
        }
        if let Some(failed) = to_do.make_room() {
            report(Err(failed));
            break;
        }
    }
    snapshots.cancel();
    // It holds the folder's lock, and the copy.
    lock(&shared.store).take();
}

/// A snapshot that has begun, and the folder for its parts.
type Begun = (SnapshotWriter, io::Result<Folder>);

/// Does a job. Returns the snapshot that begins with it.
fn do_job(
    store: &mut Store<Folder>,
    job: Job,
    snapshots: &mut Snapshots,
) -> (Result<(), StoreError>, Option<Begun>) {
    let mut begun = None;
    let done = match job {
        Job::Append { first, entries, heard } => store.append(first, &entries, &heard),
        Job::Commit(block) => store.commit(block),
        Job::Adopt { block, snapshot, entries, heard } => {
            snapshots.cancel();
            let snapshot = snapshot.as_ref().map(|(place, parts)| (*place, &parts[..]));
            store.adopt(block, snapshot, &entries, &heard)
        }
        Job::Snapshot { place, parts, entries } => {
            store.begin_snapshot(place, parts, &entries).map(|writer| {
                begun = Some((writer, snapshots.folder_beside(store.files())));
            })
        }
        Job::Name => snapshots.take_written().map_or(Ok(()), |written| store.name_snapshot(written)),
    };
    (done, begun)
}

/// Reports progress of a job to the replica; the caller sets its number.
fn report_progress<S: StateMachine + Send + 'static>(
    copy: &Arc<Copy<S>>,
    folder: &mut Folder,
    number: &Arc<AtomicU64>,
) {
    let (copy, number) = (copy.clone(), number.clone());
    folder.report_progress(move || {
        copy.step(|state, now| {
            if let Some(copy) = state.copy_mut() {
                copy.handle_progress(now, number.load(Ordering::Relaxed));
            }
        });
    });
}

/// The snapshots whose parts are written, one at a time, by a thread beside the one that does the jobs.
#[derive(Default)]
struct Snapshots {
    thread: Option<JoinHandle<()>>,
    is_cancelled: Arc<AtomicBool>,
    written: Arc<Mutex<Option<SnapshotWritten>>>,
}

impl Snapshots {
    /// Returns another access to the folder, with which the parts of the next snapshot are written.
    fn folder_beside(&mut self, folder: &Folder) -> io::Result<Folder> {
        self.cancel();
        self.is_cancelled = Arc::default();
        folder.beside(&self.is_cancelled)
    }

    /// Writes the parts of a snapshot, and reports to the replica when they are written. `number` is that of the job that
    /// began it.
    fn begin<S: StateMachine + Send + 'static>(
        &mut self,
        copy: &Arc<Copy<S>>,
        number: JobNumber,
        writer: SnapshotWriter,
        folder: io::Result<Folder>,
    ) {
        let (reporter, slot, is_cancelled) = (copy.clone(), self.written.clone(), self.is_cancelled.clone());
        let report = move |result: Result<(), String>| {
            reporter.step(|state, now| {
                if let Some(copy) = state.copy_mut() {
                    copy.handle_snapshot_written(now, number, result);
                }
            });
        };
        let folder = folder.map(|mut folder| {
            report_progress(copy, &mut folder, &Arc::new(AtomicU64::new(number)));
            folder
        });
        let failed = report.clone();
        let thread = folder.and_then(|mut folder| {
            thread::Builder::new().name("snapshot".into()).spawn(move || {
                // Hashing and writing the parts waits for the commands, not they for it.
                yield_to_others();
                let result = writer.write(&mut folder);
                // The folder may be opened again as soon as the end is reported.
                drop((writer, folder));
                if is_cancelled.load(Ordering::Relaxed) {
                    return;
                }
                let result = result.map(|written| *lock(&slot) = Some(written));
                report(result.map_err(|error| error.to_string()));
            })
        });
        match thread {
            Ok(thread) => self.thread = Some(thread),
            Err(error) => failed(Err(format!("cannot write a snapshot: {error}"))),
        }
    }

    /// Returns the snapshot that was written last.
    fn take_written(&self) -> Option<SnapshotWritten> {
        lock(&self.written).take()
    }

    /// Writes no more of a snapshot, and forgets it.
    fn cancel(&mut self) {
        self.is_cancelled.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Its thread has no way to fail but a panic, which is reported elsewhere.
            _ = thread.join();
        }
        *lock(&self.written) = None;
    }
}

/// Lowers the priority of the calling thread. Without the right to that it keeps its own.
pub(super) fn yield_to_others() {
    let usual = rustix::process::getpriority_process(None).unwrap_or_default();
    _ = rustix::process::setpriority_process(None, usual + YIELDS_BY_NICE);
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::super::transfer::sha256;
    use super::*;
    use unisono_core::replica::disk::{Block, Created, DiskDurability};

    fn append(first: u64, bytes: usize) -> Box<Job> {
        Box::new(Job::Append { first, entries: vec![vec![7; bytes].into()], heard: Default::default() })
    }

    #[test]
    fn short_entries_for_a_log_in_memory_are_appended_by_the_thread_that_has_them() {
        let directory = tempfile::tempdir().unwrap();
        let (mut store, _) = Store::open(Folder::open(directory.path(), None).unwrap(), sha256).unwrap();
        let block = Block {
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
        };
        store.commit(block.clone()).unwrap();
        let (mut jobs, to_do) = jobs(store);
        let to_thread = |given: Option<AtOnce>| given.is_none() && to_do.jobs.try_recv().is_ok();
        jobs.log_is_in_memory = false;
        assert!(to_thread(jobs.give(1, append(1, 10), true)));
        jobs.log_is_in_memory = true;
        assert!(to_thread(jobs.give(1, append(1, 10), false)));
        assert!(to_thread(jobs.give(1, append(1, AT_ONCE_BYTES_MAX + 1), true)));
        assert!(to_thread(jobs.give(1, Box::new(Job::Commit(block)), true)));

        let here = |number, job| jobs.give(number, job, true).unwrap();
        assert_eq!(here(1, append(1, AT_ONCE_BYTES_MAX)).carry_out(), Some((1, Ok(()))));
        let (number, failed) = here(2, append(9, 10)).carry_out().unwrap();
        assert_eq!((number, failed.is_err()), (2, true));
        assert_eq!(to_do.store.present.load(Ordering::Relaxed), 2);
        let store = lock(&to_do.store.store).take().unwrap();
        assert_eq!(store.end(), 1);
        assert_eq!(here(3, append(2, 10)).carry_out(), None, "the thread that does the jobs has ended");
    }
}

//! The disks of servers. A disk outlives the processes that use it: a crash leaves what was synced, any part of what was
//! not, and any part of the job that was under way.

use crate::draw::Draw;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use unisono_core::replica::disk::{FileError, Files, Loaded, MemoryFiles, Store, StoreError};
use unisono_core::replica::{Digest, Job};
use unisono_core::{Random, Time};

/// Most writes that a job consists of, about.
const JOB_WRITES: u64 = 12;

/// A disk, shared with the process that uses it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disk(Rc<RefCell<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    files: MemoryFiles,
    /// The job that the process has given, if it is not done.
    under_way: Option<Job>,
}

/// A disk in use.
pub(crate) struct DiskInUse {
    disk: Disk,
    store: Store<Disk>,
    /// Number of the job under way, and when it is done.
    job: Option<(u64, Time)>,
}

impl Files for Disk {
    fn list(&self) -> Result<Vec<String>, FileError> {
        self.0.borrow().files.list()
    }

    fn read(&self, name: &str) -> Result<Vec<u8>, FileError> {
        self.0.borrow().files.read(name)
    }

    fn write(&mut self, name: &str, at: u64, bytes: &[u8]) -> Result<(), FileError> {
        self.0.borrow_mut().files.write(name, at, bytes)
    }

    fn truncate(&mut self, name: &str, length: u64) -> Result<(), FileError> {
        self.0.borrow_mut().files.truncate(name, length)
    }

    fn sync(&mut self, name: &str) -> Result<(), FileError> {
        self.0.borrow_mut().files.sync(name)
    }

    fn remove(&mut self, name: &str) -> Result<(), FileError> {
        self.0.borrow_mut().files.remove(name)
    }
}

impl Disk {
    /// Begins to use the disk in a new process. Without a last process that ended in peace, it is as after a crash of the
    /// process or of its machine.
    pub(crate) fn open(
        &self,
        digest: fn(&[u8]) -> Digest,
        random: &mut Random,
    ) -> Result<(DiskInUse, Option<Loaded>), StoreError> {
        let under_way = self.0.borrow_mut().under_way.take();
        if let Some(job) = under_way
            && random.chance(0.7)
            && let Ok((mut store, _)) = Store::open(self.clone(), digest)
        {
            let writes = random.below(JOB_WRITES);
            self.0.borrow_mut().files.fail_after(writes);
            _ = carry_out(&mut store, job);
            self.0.borrow_mut().files.repair();
        }
        if random.chance(0.6) {
            self.0.borrow_mut().files.crash(&mut || random.chance(0.5));
        }
        let (store, loaded) = Store::open(self.clone(), digest)?;
        Ok((DiskInUse { disk: self.clone(), store, job: None }, loaded))
    }
}

impl DiskInUse {
    /// Takes a job, which is done after a while. `stalls` is the fraction of jobs that take long.
    pub(crate) fn begin(&mut self, now: Time, (number, job): (u64, Job), stalls: f64, random: &mut Random) {
        let takes = match random.chance(stalls) {
            true => random.duration(500, 12_000),
            false => Duration::from_nanos(random.spread(50_000, 8_000_000)),
        };
        self.disk.0.borrow_mut().under_way = Some(job);
        self.job = Some((number, now + takes));
    }

    /// Lets a job that stalls be done soon.
    pub(crate) fn go_on(&mut self, now: Time) {
        if let Some((_, at)) = &mut self.job {
            *at = (*at).min(now + Duration::from_millis(8));
        }
    }

    /// Returns when the job under way is done.
    pub(crate) fn done_at(&self) -> Option<Time> {
        self.job.map(|(_, at)| at)
    }

    /// Does the job under way if it is due, and returns its number and outcome.
    pub(crate) fn finish(&mut self, now: Time) -> Option<(u64, Result<(), String>)> {
        let (number, _) = self.job.take_if(|(_, at)| *at <= now)?;
        let job = self.disk.0.borrow_mut().under_way.take()?;
        let done = carry_out(&mut self.store, job);
        Some((number, done.map_err(|error| error.to_string())))
    }
}

fn carry_out(store: &mut Store<Disk>, job: Job) -> Result<(), StoreError> {
    match job {
        Job::Append { first, entries, heard } => store.append(first, &entries, &heard),
        Job::Commit(block) => store.commit(block),
        Job::Adopt { block, snapshot, entries, heard } => {
            let snapshot = snapshot.as_ref().map(|(place, parts)| (*place, &parts[..]));
            store.adopt(block, snapshot, &entries, &heard)
        }
        Job::Snapshot { place, parts } => store.snapshot(place, &parts),
    }
}

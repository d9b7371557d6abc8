//! The disks of servers. A disk outlives the processes that use it: a crash leaves what was synced, any part of what was
//! not, and any part of the job that was under way, of the room that was being made for the log, and of the snapshot whose parts
//! were being written beside it. Disks stall, fail, lose or change bits, and are put back as they were before.

use crate::draw::Draw;
use bytes::Bytes;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use unisono_core::replica::disk::{
    Block, FileError, Files, Loaded, MemoryFiles, SnapshotWriter, SnapshotWritten, Store, StoreError,
};
use unisono_core::replica::{Digest, Job};
use unisono_core::{Planted, Random, Time};

/// Operations on files that a job without parts consists of, about, at most.
const JOB_OPERATIONS: u64 = 12;
/// Operations on files that making room for the log consists of.
const ROOM_OPERATIONS: u64 = 3;
/// Shortest and longest time that a sync takes, in nanoseconds.
const SYNC_TAKES: (u64, u64) = (50_000, 4_000_000);
/// Minimum interval between two reports that a disk gets on.
const REPORTS_EVERY: Duration = Duration::from_secs(1);
/// Time after which a process gets to know that a job is done, if it is to be stopped between the two.
const TOLD_AFTER: Duration = Duration::from_micros(1);
/// How often a bit is drawn that a process would notice if it were flipped.
const FLIPS_MAX: usize = 20;

/// A disk, shared with the process that uses it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disk(Rc<RefCell<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    files: MemoryFiles,
    /// The job that the process has given, if it is not done, and the number of operations on files that it consists of.
    under_way: Option<(Job, u64)>,
    /// The store of the process as it is before that job: one that is opened after a crash does not know as much.
    store: Option<Store<()>>,
    /// What a job under way lets count.
    naming: Option<SnapshotWritten>,
    /// The snapshot whose parts are being written, and the number of operations on files that they take.
    beside: Option<(SnapshotWriter, u64)>,
    /// What was done with files since the beginning of a rehearsal.
    rehearsed: Option<Vec<Operation>>,
}

/// An operation that takes time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Write,
    Sync,
}

/// What a disk had at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Image(MemoryFiles);

/// Kinds of jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobKind {
    Append,
    Commit,
    Adopt,
    Snapshot,
    Name,
}

impl JobKind {
    pub(crate) fn of(job: &Job) -> JobKind {
        match job {
            Job::Append { .. } => JobKind::Append,
            Job::Commit(_) => JobKind::Commit,
            Job::Adopt { .. } => JobKind::Adopt,
            Job::Snapshot { .. } => JobKind::Snapshot,
            Job::Name => JobKind::Name,
        }
    }
}

/// What befalls jobs of disks: fractions of those that stall for a while, and of those that fail.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct JobFaults {
    pub(crate) stalls: f64,
    pub(crate) fails: f64,
    /// Time that each write takes.
    pub(crate) write_takes: Duration,
}

/// A disk in use.
pub(crate) struct DiskInUse {
    disk: Disk,
    store: Store<Disk>,
    under_way: Option<UnderWay>,
    /// The snapshot whose parts are being written.
    beside: Option<UnderWay>,
    /// The snapshot whose parts are written, and which does not count yet.
    written: Option<SnapshotWritten>,
    /// A job that is done and of which the process does not know yet, and when it gets to know.
    untold: Option<(Time, Finished)>,
    /// True while all its jobs take hundreds of milliseconds.
    is_slow: bool,
    /// The time that each job takes, if it is not drawn.
    steady: Option<Duration>,
    /// True if it refused a job that does not fit what it has.
    has_refused: bool,
    /// When a job last ended, and when the process had last been told before that the disk gets on with it.
    ended: Option<(Time, Time)>,
}

/// A job under way, or a snapshot whose parts are being written.
struct UnderWay {
    number: u64,
    /// When each of its operations ends: the job is done with the last one.
    ends: Vec<Time>,
    /// When it began, or when the process was last told that the disk gets on.
    reported_at: Time,
    begun_at: Time,
    /// Number of writes after which the disk fails.
    fails_after: Option<u64>,
}

impl UnderWay {
    fn done_at(&self) -> Time {
        self.ends.last().copied().unwrap_or(self.begun_at)
    }

    /// Returns for how long the disk has not got on with it.
    fn idle(&self, now: Time) -> Duration {
        let last = self.ends.iter().copied().rfind(|end| *end <= now);
        now.since(last.unwrap_or(self.begun_at))
    }

    fn due_at(&self) -> Time {
        self.progress_at().unwrap_or(self.done_at())
    }

    /// Returns its number if the process is told now that the disk gets on.
    fn gets_on(&mut self, now: Time) -> Option<u64> {
        let told = self.progress_at().is_some_and(|at| at <= now) && self.done_at() > now;
        told.then(|| {
            self.reported_at = now;
            self.number
        })
    }

    /// Returns when the process is told that the disk gets on: with the end of an operation, a second or more after it was
    /// told before.
    fn progress_at(&self) -> Option<Time> {
        let due = self.reported_at + REPORTS_EVERY;
        self.ends.iter().copied().find(|end| *end >= due).filter(|end| *end < self.done_at())
    }
}

/// What a disk did.
pub(crate) enum Did {
    Job(Box<Job>),
    /// It has let the snapshot count that contains everything through this place.
    Named(u64),
    /// It has written the parts of a snapshot.
    Parts,
}

/// A job that has been done, or has failed.
pub(crate) struct Finished {
    pub(crate) number: u64,
    pub(crate) done: Did,
    pub(crate) outcome: Result<(), String>,
    /// The service on the disk, 0 before its creation, and the generation of its log.
    pub(crate) state: (u128, u64),
}

impl Files for Disk {
    fn list(&self) -> Result<Vec<String>, FileError> {
        self.0.borrow().files.list()
    }

    fn read(&self, name: &str) -> Result<Vec<u8>, FileError> {
        self.0.borrow().files.read(name)
    }

    fn read_first(&self, name: &str, most: u64) -> Result<(Vec<u8>, u64), FileError> {
        self.0.borrow().files.read_first(name, most)
    }

    fn write(&mut self, name: &str, at: u64, bytes: &[u8]) -> Result<(), FileError> {
        self.note(Operation::Write);
        self.0.borrow_mut().files.write(name, at, bytes)
    }

    fn truncate(&mut self, name: &str, length: u64) -> Result<(), FileError> {
        self.note(Operation::Write);
        self.0.borrow_mut().files.truncate(name, length)
    }

    fn sync(&mut self, name: &str) -> Result<(), FileError> {
        self.note(Operation::Sync);
        self.0.borrow_mut().files.sync(name)
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<(), FileError> {
        self.note(Operation::Write);
        self.0.borrow_mut().files.rename(from, to)
    }

    fn remove(&mut self, name: &str) -> Result<(), FileError> {
        self.note(Operation::Write);
        self.0.borrow_mut().files.remove(name)
    }
}

impl Disk {
    fn note(&self, operation: Operation) {
        if let Some(rehearsed) = &mut self.0.borrow_mut().rehearsed {
            rehearsed.push(operation);
        }
    }

    /// Returns the operations on files of which a job consists.
    fn operations(&self, store: &Store<Disk>, job: &Job) -> Vec<Operation> {
        let synced_writes = match job {
            Job::Append { .. } => 1,
            Job::Commit(_) | Job::Name if store.block().is_some() => 2,
            _ => return self.rehearse(|| _ = carry_out(&mut store.clone(), job)),
        };
        [Operation::Write, Operation::Sync].repeat(synced_writes)
    }

    /// Returns the operations on files of some work. Nothing on the disk changes.
    fn rehearse(&self, work: impl FnOnce()) -> Vec<Operation> {
        let files = self.0.borrow().files.clone();
        self.0.borrow_mut().rehearsed = Some(Vec::new());
        work();
        let mut inner = self.0.borrow_mut();
        inner.files = files;
        inner.rehearsed.take().unwrap_or_default()
    }

    /// Begins to use the disk in a new process. Without a last process that ended in peace, it is as after a crash of the
    /// process or of its machine.
    pub(crate) fn open(
        &self,
        digest: fn(&[u8]) -> Digest,
        bug: Option<Planted>,
        random: &mut Random,
    ) -> Result<(DiskInUse, Option<Loaded>), StoreError> {
        let (under_way, naming, store) = {
            let mut inner = self.0.borrow_mut();
            (inner.under_way.take(), inner.naming.take(), inner.store.take())
        };
        if let Some(mut store) = store.map(|store| store.with_files(self.clone())) {
            match (under_way, naming) {
                (Some((_, operations)), Some(written)) => {
                    self.do_part(operations, random, |_| _ = store.name_snapshot(written));
                }
                (Some((job, operations)), None) if random.chance(0.7) => {
                    self.do_part(operations, random, |_| _ = carry_out(&mut store, &job));
                }
                (None, _) if random.chance(0.5) => {
                    self.do_first(random.below(ROOM_OPERATIONS + 1), |_| _ = store.make_room());
                }
                _ => {}
            }
        }
        self.write_some_parts(random);
        if random.chance(0.6) {
            self.0.borrow_mut().files.crash(&mut || random.chance(0.5));
        }
        self.open_as_is(digest, bug)
    }

    /// Does any part of some work that has this many operations on files.
    fn do_part(&self, operations: u64, random: &mut Random, work: impl FnOnce(Disk)) {
        self.do_first(random.below(operations.max(JOB_OPERATIONS)), work);
    }

    /// Does this many operations on files of some work.
    fn do_first(&self, writes: u64, work: impl FnOnce(Disk)) {
        self.0.borrow_mut().files.fail_after(writes);
        work(self.clone());
        self.0.borrow_mut().files.repair();
    }

    /// Does any part of the writing of a snapshot that ends before it is done.
    fn write_some_parts(&self, random: &mut Random) {
        let beside = self.0.borrow_mut().beside.take();
        if let Some((writer, operations)) = beside {
            self.do_part(operations, random, |mut disk| _ = writer.write(&mut disk));
        }
    }

    /// Begins to use the disk in a new process. Of a job that was under way it has nothing.
    pub(crate) fn open_as_is(
        &self,
        digest: fn(&[u8]) -> Digest,
        bug: Option<Planted>,
    ) -> Result<(DiskInUse, Option<Loaded>), StoreError> {
        {
            let mut inner = self.0.borrow_mut();
            (inner.under_way, inner.naming, inner.beside, inner.store) = (None, None, None, None);
        }
        let (store, loaded) = Store::open_planted(self.clone(), digest, bug)?;
        self.0.borrow_mut().store = Some(store.with_files(()));
        let disk = self.clone();
        let in_use = DiskInUse {
            disk,
            store,
            under_way: None,
            beside: None,
            written: None,
            untold: None,
            is_slow: false,
            steady: None,
            has_refused: false,
            ended: None,
        };
        Ok((in_use, loaded))
    }

    /// Returns what is synced.
    pub(crate) fn image(&self) -> Image {
        let mut files = self.0.borrow().files.clone();
        files.crash(&mut || false);
        Image(files)
    }

    /// Puts an image in the place of what the disk has. No process uses it.
    pub(crate) fn put_back(&self, image: &Image) {
        *self.0.borrow_mut() = Inner { files: image.0.clone(), ..Inner::default() };
    }

    /// Puts a blank disk in its place. No process uses it.
    pub(crate) fn replace(&self) {
        *self.0.borrow_mut() = Inner::default();
    }

    /// Makes the blank disk of a server that has the state of a backup.
    pub(crate) fn restore(
        &self,
        digest: fn(&[u8]) -> Digest,
        block: Block,
        place: u64,
        parts: &[Bytes],
    ) -> Result<(), StoreError> {
        let (mut store, _) = Store::open(self.clone(), digest)?;
        store.adopt(block, Some((place, parts)), &[], &Default::default())
    }

    /// Flips a bit that the next process notices; a bit of the last record of the log would look like the end of a write
    /// that a crash cut off. Returns true if it has flipped one.
    pub(crate) fn flip(&self, digest: fn(&[u8]) -> Digest, random: &mut Random) -> bool {
        let image = self.image();
        let names = image.0.list().unwrap_or_default();
        for _ in 0..FLIPS_MAX {
            let Some(name) = names.get(random.below(names.len().max(1) as u64) as usize) else {
                return false;
            };
            let bits = 8 * image.0.read(name).map_or(0, |content| content.len() as u64);
            let mut flipped = image.clone();
            flipped.0.flip(name, random.below(bits.max(1)));
            if Store::open(flipped.0.clone(), digest).is_err() {
                self.put_back(&flipped);
                return true;
            }
        }
        false
    }

    /// Flips a bit after three quarters of the records of the log.
    pub(crate) fn flip_log(&self, digest: fn(&[u8]) -> Digest) {
        let Ok((store, _)) = Store::open(self.image().0, digest) else { return };
        let (records, end) = (store.log_records_at(), store.log_bytes());
        if let Some(block) = store.block() {
            let at = records + (end - records) * 3 / 4;
            self.0.borrow_mut().files.flip(&format!("log-{}", block.log), at * 8);
        }
    }
}

impl Image {
    /// Returns what a process would find on it.
    pub(crate) fn load(&self, digest: fn(&[u8]) -> Digest) -> Option<Loaded> {
        Store::open(self.0.clone(), digest).ok().and_then(|(_, loaded)| loaded)
    }
}

impl DiskInUse {
    /// True if it has refused a job that does not fit what it has.
    pub(crate) fn has_refused(&self) -> bool {
        self.has_refused
    }

    /// Takes a job, which is done after a while.
    pub(crate) fn begin(
        &mut self,
        now: Time,
        (number, job): (u64, Job),
        faults: JobFaults,
        random: &mut Random,
    ) {
        if let Job::Adopt { .. } = job {
            // The snapshot is of no use any more.
            self.beside = None;
            self.written = None;
            self.disk.write_some_parts(random);
        }
        let operations = self.disk.operations(&self.store, &job);
        if job == Job::Name {
            self.disk.0.borrow_mut().naming = self.written.clone();
        }
        self.under_way = Some(self.begun(now, number, &operations, faults, random));
        self.disk.0.borrow_mut().under_way = Some((job, operations.len() as u64));
    }

    /// Begins to write the parts of a snapshot that a job has begun.
    fn begin_beside(
        &mut self,
        now: Time,
        number: u64,
        writer: SnapshotWriter,
        faults: JobFaults,
        random: &mut Random,
    ) {
        let operations = self.disk.rehearse(|| _ = writer.write(&mut self.disk.clone()));
        self.beside = Some(self.begun(now, number, &operations, faults, random));
        self.disk.0.borrow_mut().beside = Some((writer, operations.len() as u64));
    }

    /// Returns a job that begins now and consists of these operations.
    fn begun(
        &self,
        now: Time,
        number: u64,
        operations: &[Operation],
        faults: JobFaults,
        random: &mut Random,
    ) -> UnderWay {
        let count = operations.len() as u64;
        let ends = match self.steady {
            Some(takes) => vec![now + takes],
            None if self.is_slow => vec![now + random.duration(200, 3_000)],
            None => {
                let stall =
                    random.chance(faults.stalls).then(|| (random.below(count), random.duration(500, 30_000)));
                ends(now, operations, stall, faults.write_takes, random)
            }
        };
        let most = count.max(JOB_OPERATIONS);
        let fails_after = (faults.fails > 0.0 && random.chance(faults.fails)).then(|| random.below(most));
        UnderWay { number, ends, reported_at: now, begun_at: now, fails_after }
    }

    /// Lets all jobs take hundreds of milliseconds from now on, or no longer.
    pub(crate) fn set_slow(&mut self, is_slow: bool) {
        self.is_slow = is_slow;
    }

    /// Lets a job that stalls be done soon.
    pub(crate) fn go_on(&mut self, now: Time) {
        self.is_slow = false;
        for job in self.under_way.iter_mut().chain(&mut self.beside) {
            let most = now + Duration::from_millis(8);
            job.ends.iter_mut().for_each(|end| *end = (*end).min(most));
        }
    }

    /// Returns for how long the disk has not got on with the job under way, or with the parts of a snapshot. A job that ends at
    /// this very moment counts too: the process may have looked just before.
    pub(crate) fn idle(&self, now: Time) -> Duration {
        let works = self.under_way.iter().chain(&self.beside).map(|work| work.idle(now)).max();
        let ended = self.ended.filter(|(at, _)| *at == now).map(|(_, told)| now.since(told));
        works.max(ended).unwrap_or_default()
    }

    /// Lets each job take this time from now on.
    pub(crate) fn set_steady(&mut self, takes: Duration) {
        self.steady = Some(takes);
    }

    /// Returns the kind of a job that is done and of which the process does not know.
    pub(crate) fn untold(&self) -> Option<JobKind> {
        self.untold.as_ref().and_then(|(_, finished)| finished.kind())
    }

    /// Returns the block on the disk, and the place of the last entry of its log.
    pub(crate) fn content(&self) -> (Option<&Block>, u64) {
        (self.store.block(), self.store.end())
    }

    /// Returns when the job under way is done or the process is told that it gets on, or when the process gets to know that
    /// one is done.
    pub(crate) fn due_at(&self) -> Option<Time> {
        let told_at = self.untold.as_ref().map(|(told_at, _)| *told_at);
        told_at.or(self.under_way.iter().chain(&self.beside).map(UnderWay::due_at).min())
    }

    /// Returns the number of the job under way, or of the snapshot, if the process is told now that it gets on.
    pub(crate) fn gets_on(&mut self, now: Time) -> Option<u64> {
        self.under_way.iter_mut().chain(&mut self.beside).find_map(|work| work.gets_on(now))
    }

    /// Keeps a job that is done for a moment before the process gets to know.
    pub(crate) fn keep_untold(&mut self, now: Time, finished: Finished) {
        self.untold = Some((now + TOLD_AFTER, finished));
    }

    /// Returns the job that is done and of which the process gets to know now.
    pub(crate) fn tell(&mut self, now: Time) -> Option<Finished> {
        self.untold.take_if(|(told_at, _)| *told_at <= now).map(|(_, finished)| finished)
    }

    /// Does the job under way if it is due, or writes the parts of a snapshot.
    pub(crate) fn finish(&mut self, now: Time, faults: JobFaults, random: &mut Random) -> Option<Finished> {
        let is_due = |job: &mut UnderWay| job.done_at() <= now;
        let Some(UnderWay { number, fails_after, reported_at, .. }) = self.under_way.take_if(is_due) else {
            return self.finish_beside(now);
        };
        self.ended = Some((now, reported_at));
        let (job, _) = self.disk.0.borrow_mut().under_way.take()?;
        self.disk.0.borrow_mut().naming = None;
        if let Some(writes) = fails_after {
            self.disk.0.borrow_mut().files.fail_after(writes);
        }
        let named = self.written.as_ref().map_or(0, SnapshotWritten::position);
        let mut begun = None;
        let done = match &job {
            Job::Snapshot { place, parts, entries } => {
                let writer = self.store.begin_snapshot(*place, parts.clone(), entries);
                writer.map(|writer| begun = Some(writer))
            }
            Job::Name => self.written.take().map_or(Ok(()), |written| self.store.name_snapshot(written)),
            job => carry_out(&mut self.store, job),
        };
        let done = done.and_then(|()| match self.store.lacks_room() {
            true => self.store.make_room(),
            false => Ok(()),
        });
        self.disk.0.borrow_mut().files.repair();
        self.disk.0.borrow_mut().store = Some(self.store.with_files(()));
        if let Some(writer) = begun {
            self.begin_beside(now, number, writer, faults, random);
        }
        let did = if job == Job::Name { Did::Named(named) } else { Did::Job(Box::new(job)) };
        Some(self.finished(number, did, done))
    }

    /// Writes the parts of a snapshot if that is due.
    fn finish_beside(&mut self, now: Time) -> Option<Finished> {
        let done = self.beside.take_if(|work| work.done_at() <= now)?;
        let UnderWay { number, fails_after, reported_at, .. } = done;
        self.ended = Some((now, reported_at));
        let (writer, _) = self.disk.0.borrow_mut().beside.take()?;
        if let Some(writes) = fails_after {
            self.disk.0.borrow_mut().files.fail_after(writes);
        }
        let written = writer.write(&mut self.disk);
        self.disk.0.borrow_mut().files.repair();
        let done = written.map(|written| self.written = Some(written));
        Some(self.finished(number, Did::Parts, done))
    }

    fn finished(&mut self, number: u64, done: Did, outcome: Result<(), StoreError>) -> Finished {
        let state = self.store.block().map_or((0, 0), |block| (block.service, block.generation));
        let refuses = |error: &StoreError| {
            matches!(error, StoreError::Blank | StoreError::Misplaced { .. } | StoreError::TooLarge { .. })
        };
        self.has_refused |= outcome.as_ref().is_err_and(refuses);
        Finished { number, done, outcome: outcome.map_err(|error| error.to_string()), state }
    }
}

impl Finished {
    /// Returns the kind of the job, if it is one.
    pub(crate) fn kind(&self) -> Option<JobKind> {
        match &self.done {
            Did::Job(job) => Some(JobKind::of(job)),
            Did::Named(_) => Some(JobKind::Name),
            Did::Parts => None,
        }
    }
}

/// Returns when operations end that begin now, one after the other. One of them may stall for a while.
fn ends(
    now: Time,
    operations: &[Operation],
    stall: Option<(u64, Duration)>,
    write_takes: Duration,
    random: &mut Random,
) -> Vec<Time> {
    let mut at = now;
    let end = |(index, operation): (u64, &Operation)| {
        at = at
            + match operation {
                Operation::Write => write_takes,
                Operation::Sync => Duration::from_nanos(random.spread(SYNC_TAKES.0, SYNC_TAKES.1)),
            };
        if let Some((stalls, lasts)) = stall
            && stalls == index
        {
            at = at + lasts;
        }
        at
    };
    (0..).zip(operations).map(end).collect()
}

fn carry_out(store: &mut Store<Disk>, job: &Job) -> Result<(), StoreError> {
    match job {
        Job::Append { first, entries, heard } => store.append(*first, entries, heard),
        Job::Commit(block) => store.commit(block.clone()),
        Job::Adopt { block, snapshot, entries, heard } => {
            let snapshot = snapshot.as_ref().map(|(place, parts)| (*place, &parts[..]));
            store.adopt(block.clone(), snapshot, entries, heard)
        }
        Job::Snapshot { place, parts, entries } => {
            store.begin_snapshot(*place, parts.clone(), entries).map(|_| ())
        }
        // Only the store that began a snapshot can let it count.
        Job::Name => Ok(()),
    }
}

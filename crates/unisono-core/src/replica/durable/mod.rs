//! A server with a disk: what it writes and in which order, and how far it is on the way to a serving state.
//!
//! The disk belongs to a server id and outlives the server's lives in the group. A server is *closed* until it has found
//! out, with other servers, which state goes on ([`round`]); it is *joining* while it fetches the state of an open
//! service; then it is *open*.
//!
//! | module | subject |
//! |---|---|
//! | `entry` | what stands in the log |
//! | `ledger` | the log as this server sees it: what is durable |
//! | `marks` | with durability *majority*: what each server says of its disk |
//! | `views` | with durability *one*: whose disks count |
//! | `round` | recovery and creation: which state goes on |
//! | `said` | what members say in a round |

mod entry;
mod ledger;
mod marks;
mod round;
mod said;
#[cfg(test)]
mod tests;
mod views;

pub(super) use entry::{Entry, What};
pub(super) use ledger::Ledger;
pub(super) use marks::{Mark, Marks};
pub(super) use round::{Foreign, Plan, Round, Verdict};
pub(super) use said::{RoundWord, Said};

pub use entry::Place;

use super::Watched;
use super::disk::{Block, Created, DiskDurability, Escape, Heard, Loaded};
use crate::identity::Seqno;
use crate::planted::Planted;
use crate::time::Time;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;
use bytes::Bytes;
use core::time::Duration;

/// Time after which a disk that has made no progress with its job counts as hung. A job may take longer.
const DISK_HANGS_AFTER: Duration = Duration::from_secs(10);
/// Time after which a server says that its disk is not done with its job, so that a recovery goes on without it. Progress does
/// not count here: with enough other servers a recovery waits for none whose disk is busy.
const DISK_STALLS_AFTER: Duration = Duration::from_secs(1);
/// Maximum number of times that the state is prepared for a snapshot: commands may change it faster.
const PREPARES_MAX: u32 = 4096;
/// Time for which entries wait for others, at servers whose disks the callers do not wait for.
const WRITES_WITHIN: Duration = Duration::from_millis(2);
/// Maximum bytes of commands in one append, 8 MiB: a disk that gets on slowly must not count as hung.
const APPEND_BYTES_MAX: usize = 8 << 20;
/// Time from one look at the job under way to the next.
const JOB_LOOK_EVERY: Duration = Duration::from_secs(1);
/// Time from the look that finds no progress for too long to the one that decides. In between the process reads what the
/// disk said while the process was stopped.
const DISK_LOOK_AGAIN_AFTER: Duration = Duration::from_millis(100);
/// A look that comes later than this shows that the process itself was stopped.
const LATE: Duration = Duration::from_millis(500);

/// Number of a job for the disk.
pub type JobNumber = u64;

/// What a server with a disk is, at the start of its process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskStart {
    /// Name of the service.
    pub name: String,
    /// Id of this server, from 1.
    pub server: u8,
    /// Number of servers, from 1 to 9.
    pub servers: u8,
    /// How many disks hold a command before it is answered.
    pub durability: DiskDurability,
    /// What the disk has; `None` if it is blank.
    pub loaded: Option<Loaded>,
    /// Identity for a blank disk.
    pub disk: u64,
    /// A random number. Of the servers that create a service, that of one becomes its instance.
    pub nonce: u128,
    /// True if a blank disk takes the place of another one of this server.
    pub replaces: bool,
    /// Present if the service begins anew from this disk alone: the time in milliseconds since 1970.
    pub begins_anew: Option<u64>,
}

/// What the driver is to do with the disk. It does one job at a time, in this order, and reports each
/// ([`Replica::handle_stored`](super::Replica::handle_stored)) when it is synced. While it does a long one, it reports now and
/// then that the disk gets on ([`Replica::handle_progress`](super::Replica::handle_progress)). The parts of a snapshot alone are
/// written beside the jobs that follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Job {
    /// Append to the log.
    Append {
        /// Place of the first entry.
        first: Place,
        /// The entries.
        entries: Vec<Bytes>,
        /// What was heard of other disks.
        heard: BTreeMap<u8, Heard>,
    },
    /// Write the commit block.
    Commit(Block),
    /// Replace everything by another state, which counts from the write of the block.
    Adopt {
        /// The block; the store names snapshot and log in it.
        block: Block,
        /// Last place that the snapshot contains, and its parts. `None` where the log begins at the creation.
        snapshot: Option<(Place, Vec<Bytes>)>,
        /// The entries after the snapshot.
        entries: Vec<Bytes>,
        /// What was heard of other disks.
        heard: BTreeMap<u8, Heard>,
    },
    /// Begin a snapshot ([`Store::begin_snapshot`](super::disk::Store::begin_snapshot)), report that job, and write the parts
    /// beside the jobs that follow ([`Replica::handle_snapshot_written`](super::Replica::handle_snapshot_written)). An
    /// [`Adopt`](Job::Adopt) that follows makes them worthless: the driver stops writing them before it does that.
    Snapshot {
        /// Last place that the snapshot contains.
        place: Place,
        /// Its parts.
        parts: Vec<Bytes>,
        /// The entries after it that the log has.
        entries: Vec<Bytes>,
    },
    /// Let the snapshot count whose parts were written last ([`Store::name_snapshot`](super::disk::Store::name_snapshot)).
    Name,
}

/// What is said once a job is done. A round's words are said in that round only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum After {
    Nothing,
    /// Nothing; the parts of a snapshot are being written.
    SnapshotBegun,
    /// The log is on disk through this place.
    Synced(Place),
    /// The joined state is on disk.
    Joined,
    /// The view with this number of this generation is on disk.
    View(u64, u64),
    Round(Seqno, RoundWord),
}

/// How far a server is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    #[default]
    Closed,
    Joining,
    Open,
}

/// A server's disk and what is to be written to it. See the module.
#[derive(Clone, Debug)]
pub(super) struct Durable {
    /// The block as it is when all jobs are done.
    pub(super) block: Block,
    pub(super) nonce: u128,
    pub(super) replaces: bool,
    /// True if this process took part in creating the service.
    pub(super) has_created: bool,
    /// True if the administrator said that the other disks are lost: a round goes on without a majority of good ones.
    pub(super) is_alone: bool,
    pub(super) stage: Stage,
    /// Place of the first entry of the generation that this server opened, as long as it is not durable.
    pub(super) first: Option<Place>,
    pub(super) round: Round,
    pub(super) marks: Marks,
    /// Number of marks that could not be read, or did not count.
    pub(super) bad_marks: u64,
    /// True if this server has to say what its disk has, once it has nothing to write.
    pub(super) has_to_say: bool,
    /// The round in which this server has said that its disk does not get on.
    said_stalls: Option<Seqno>,
    /// Since when it has been joining without a word of a donor.
    pub(super) joining_since: Option<Time>,
    jobs: VecDeque<(Job, After)>,
    under_way: Option<UnderWay>,
    /// The snapshot whose parts are being written beside the jobs.
    beside: Option<UnderWay>,
    /// Number of times that the state has been prepared for the snapshot that is due, if one is.
    prepared: Option<u32>,
    /// Place after which the present file of the log begins. After a crash during a snapshot, the state that was loaded is an
    /// earlier one, and the next snapshot waits until that place is applied.
    log_after: Place,
    begun: JobNumber,
    /// Entries that are not in a job yet.
    unwritten: Vec<Bytes>,
    /// True if one of them is to be written at once.
    is_urgent: bool,
    /// When they are written at the latest, if none of them is urgent.
    writes_by: Option<Time>,
    /// Place of the last entry, written or not.
    end: Place,
    /// Place through which the log is on disk.
    synced: Place,
    /// Last place of a state that is being adopted.
    adopted: Option<Place>,
    /// With durability *one*: generation and number of the view that is on disk, if this process has written it.
    view_on_disk: Option<(u64, u64)>,
    /// With durability *one*: this process has been up ever since it wrote the view of the block.
    survives: bool,
    /// Generation in which the last entry was written: for a planted bug.
    last_generation: u64,
    /// Place of the last mark of a former life, at most: for a planted bug.
    former: Place,
}

/// A job that the disk does, or a snapshot whose parts are being written.
#[derive(Clone, Debug)]
struct UnderWay {
    number: JobNumber,
    after: After,
    /// True if it lets a snapshot count.
    is_naming: bool,
    begun: Time,
    /// When the disk last got on with it.
    progress: Time,
    /// When this process last looked whether it hangs.
    looked: Time,
    /// Present since a look has found no progress for too long.
    overdue: Option<Time>,
}

impl Durable {
    pub(super) fn new(start: &DiskStart, end: Place) -> Durable {
        let blank = Block {
            service: 0,
            server: start.server,
            servers: start.servers,
            durability: start.durability,
            disk: start.disk,
            starts: 0,
            generation: 0,
            promised: 0,
            view: None,
            created: Created::Blank,
            snapshot: None,
            log: 0,
            anew: Vec::new(),
            name: start.name.clone(),
        };
        let is_blank = start.loaded.is_none();
        let mut durable = Durable {
            block: start.loaded.as_ref().map_or(blank, |loaded| loaded.block.clone()),
            nonce: start.nonce,
            replaces: start.replaces,
            has_created: false,
            is_alone: false,
            stage: Stage::Closed,
            first: None,
            round: Round::new(0),
            marks: Marks::default(),
            bad_marks: 0,
            has_to_say: false,
            said_stalls: None,
            joining_since: None,
            jobs: VecDeque::new(),
            under_way: None,
            beside: None,
            prepared: None,
            log_after: start.loaded.as_ref().map_or(0, |loaded| loaded.log_after),
            begun: 0,
            unwritten: Vec::new(),
            is_urgent: false,
            writes_by: None,
            end,
            synced: end,
            adopted: None,
            view_on_disk: None,
            survives: false,
            last_generation: start.loaded.as_ref().map_or(0, |loaded| loaded.last_generation),
            former: end,
        };
        durable.block.starts += 1;
        // A blank disk stays blank until it has a part in a service. A new instance counts only once it is adopted.
        if !is_blank {
            durable.commit(After::Nothing);
        }
        if let (Some(at_ms), Created::Done(service)) = (start.begins_anew, durable.block.created) {
            let escape = Escape { server: start.server, at_ms, from: end, service };
            durable.block.anew.push(escape);
            durable.block.service = start.nonce.max(1);
            durable.block.created = Created::Done(durable.block.service);
            durable.is_alone = true;
        }
        durable
    }

    pub(super) fn is_blank(&self) -> bool {
        self.block.created == Created::Blank
    }

    /// Returns what this server says of its disk.
    pub(super) fn said(&self, heard: BTreeMap<u8, Heard>, watched: Watched) -> Said {
        let block = &self.block;
        let generation = match watched.broken(Planted::LogsByLastEpoch) {
            true => self.last_generation,
            false => block.generation,
        };
        Said {
            server: block.server,
            servers: block.servers,
            durability: block.durability,
            created: block.created,
            disk: block.disk,
            starts: block.starts,
            generation,
            promised: block.promised.max(block.generation),
            place: self.end,
            view: block.view.clone(),
            survived: self.survives
                && block.view.as_ref().is_some_and(|(_, view)| view.contains(&block.server)),
            nonce: self.nonce,
            alone: self.is_alone,
            former: block.anew.iter().map(|escape| escape.service).collect(),
            heard,
        }
    }

    /// Returns what the others write down of this disk.
    pub(super) fn as_heard(&self) -> Heard {
        let Block { disk, generation, starts, .. } = self.block;
        Heard { disk, generation, starts, position: self.synced }
    }

    pub(super) fn synced(&self) -> Place {
        self.synced
    }

    /// With durability *majority*: returns the mark of an open server whose disk has the state.
    pub(super) fn mark(&self, watched: Watched) -> Option<Mark> {
        let is_open = self.stage == Stage::Open && self.block.durability == DiskDurability::Majority;
        let place = match () {
            () if watched.broken(Planted::AnnouncedUnsynced) => self.end,
            () if self.has_state() => self.synced,
            () if watched.broken(Planted::MarkBeforeState) => self.end,
            () => 0,
        };
        let place = if watched.broken(Planted::MarkOfFormerLife) { place.max(self.former) } else { place };
        (is_open && place > 0).then_some(Mark { generation: self.block.generation, place })
    }

    /// Begins a life as a member of a group.
    pub(super) fn begin_life(&mut self) {
        self.former = self.former.max(self.synced);
        self.is_urgent = true;
        self.marks.begin_life();
    }

    /// Notes that the mark goes out. Returns whether it has to go at once.
    pub(super) fn say_mark(&mut self, mark: Mark) -> bool {
        self.marks.say(mark.place)
    }

    /// Notes that another server waits until disks have the last entry.
    pub(super) fn note_awaited(&mut self) {
        self.marks.note_awaited(self.end);
    }

    /// Notes in the block that this server takes the state of a plan.
    pub(super) fn take_chosen(&mut self, plan: &Plan) {
        self.block.generation = plan.generation;
        self.block.view.clone_from(&plan.view);
        self.survives = plan.view.is_some();
    }

    /// Begins to fetch the state of an open service: what this server has is behind.
    pub(super) fn begin_joining(&mut self, now: Time) {
        (self.stage, self.joining_since, self.has_to_say) = (Stage::Joining, Some(now), false);
        self.first = None;
        self.survives = false;
    }

    /// True if this server logs what its life held when it ended: with durability *one*, others may have answered it.
    pub(super) fn keeps_what_it_held(&self) -> bool {
        self.block.durability == DiskDurability::One && self.stage == Stage::Open
    }

    /// With durability *one*: generation and number of the last view that this process has written.
    pub(super) fn view_on_disk(&self) -> Option<(u64, u64)> {
        self.view_on_disk
    }

    /// With durability *one*: has the present view written, after the log below it.
    pub(super) fn write_view(&mut self, view: (u64, Vec<u8>), heard: &BTreeMap<u8, Heard>, watched: Watched) {
        let after = After::View(self.block.generation, view.0);
        (self.block.view, self.survives) = (Some(view), true);
        if watched.broken(Planted::ViewBeforeLog) {
            return self.jobs.push_front((Job::Commit(self.block.clone()), after));
        }
        self.flush(heard);
        self.commit(after);
    }

    /// Has written down what was heard of other disks, after the entries before.
    pub(super) fn write_heard(&mut self, heard: &BTreeMap<u8, Heard>) {
        self.flush(heard);
        let job = Job::Append { first: self.end + 1, entries: Vec::new(), heard: heard.clone() };
        self.push(job, After::Nothing);
    }

    /// Forgets what is in no job yet, and returns where the log ends then: for a planted bug.
    pub(super) fn forget_unwritten(&mut self) -> Place {
        self.end -= self.unwritten.len() as Place;
        self.unwritten.clear();
        self.end
    }

    // --- jobs ---

    /// Has an entry appended with the next batch. Unless it is urgent, the batch may wait a while for another one that is.
    pub(super) fn append(&mut self, entry: Bytes, is_urgent: bool) {
        self.unwritten.push(entry);
        self.is_urgent |= is_urgent;
        self.end += 1;
        self.last_generation = self.block.generation;
    }

    /// Has the block written.
    pub(super) fn commit(&mut self, after: After) {
        let block = self.block.clone();
        self.push(Job::Commit(block), after);
    }

    /// Has everything replaced by another state, through `end`.
    pub(super) fn adopt(
        &mut self,
        snapshot: Option<(Place, Vec<Bytes>)>,
        entries: Vec<Bytes>,
        heard: BTreeMap<u8, Heard>,
        after: After,
        watched: Watched,
    ) {
        // What was to be appended belongs to the state that is replaced.
        self.unwritten.clear();
        self.writes_by = None;
        self.prepared = None;
        let jobs = self.jobs.iter_mut().map(|(_, after)| after);
        let under_way = self.under_way.iter_mut().map(|job| &mut job.after);
        // Nor does the end of a job say anything of a state that is adopted after it.
        let is_replaced = |after: &&mut After| match after {
            After::Synced(_) | After::SnapshotBegun => true,
            After::Joined | After::Round(_, RoundWord::Adopted) => {
                !watched.broken(Planted::EarlierStateCounts)
            }
            _ => false,
        };
        for after in jobs.chain(under_way).filter(is_replaced) {
            *after = After::Nothing;
        }
        self.beside = None;
        self.log_after = snapshot.as_ref().map_or(0, |(place, _)| *place);
        self.end = self.log_after + entries.len() as Place;
        (self.synced, self.adopted) = (0, Some(self.end));
        self.survives = self.block.view.is_some();
        let block = self.block.clone();
        if watched.broken(Planted::AdoptedInPlace) {
            self.jobs.push_back((Job::Commit(block.clone()), After::Nothing));
        }
        self.jobs.push_back((Job::Adopt { block, snapshot, entries, heard }, after));
    }

    /// True if a snapshot may be written: there is one at a time.
    fn may_write_snapshot(&self) -> bool {
        let is_one = |(job, _): &(Job, After)| matches!(job, Job::Snapshot { .. } | Job::Name);
        let is_begun =
            self.under_way.as_ref().is_some_and(|job| job.after == After::SnapshotBegun || job.is_naming);
        self.beside.is_none() && !is_begun && !self.jobs.iter().any(is_one)
    }

    /// Notes that a snapshot is due. While a slow disk still writes one, it begins no other.
    pub(super) fn note_snapshot_due(&mut self) {
        if self.may_write_snapshot() {
            self.prepared.get_or_insert(0);
        }
    }

    /// True if a snapshot of the state is due that contains everything through `applied`.
    pub(super) fn is_snapshot_due(&self, applied: Place) -> bool {
        self.prepared.is_some() && applied >= self.log_after
    }

    /// Notes that the state was prepared for the snapshot that is due. Returns true if it is to be taken now: `is_ready`, or
    /// commands change the state faster than it is prepared.
    pub(super) fn note_prepared(&mut self, is_ready: bool) -> bool {
        let prepared = self.prepared.unwrap_or(0) + 1;
        let is_due = is_ready || prepared >= PREPARES_MAX;
        self.prepared = (!is_due).then_some(prepared);
        is_due
    }

    /// Has a snapshot written: the state at `place`, and the entries of the log after that.
    pub(super) fn write_snapshot(
        &mut self,
        place: Place,
        parts: Vec<Bytes>,
        entries: Vec<Bytes>,
        heard: &BTreeMap<u8, Heard>,
    ) {
        self.flush(heard);
        self.log_after = place;
        self.jobs.push_back((Job::Snapshot { place, parts, entries }, After::SnapshotBegun));
    }

    /// Notes that the parts of a snapshot are written, so that it can count.
    pub(super) fn snapshot_written(&mut self, number: JobNumber) {
        if self.beside.take_if(|snapshot| snapshot.number == number).is_some() {
            self.push(Job::Name, After::Nothing);
        }
    }

    fn push(&mut self, job: Job, after: After) {
        self.jobs.push_back((job, after));
    }

    /// Makes a job of the entries that have none.
    fn flush(&mut self, heard: &BTreeMap<u8, Heard>) {
        (self.is_urgent, self.writes_by) = (false, None);
        while !self.unwritten.is_empty() {
            let mut bytes = 0;
            let fits = self.unwritten.iter().take_while(|entry| {
                bytes += entry.len();
                bytes <= APPEND_BYTES_MAX
            });
            let fits = fits.count().max(1);
            let entries: Vec<Bytes> = self.unwritten.drain(..fits).collect();
            let last = self.end - self.unwritten.len() as Place;
            let first = last + 1 - entries.len() as Place;
            let job = Job::Append { first, entries, heard: heard.clone() };
            self.jobs.push_back((job, After::Synced(last)));
        }
    }

    /// Returns the next job, if none is under way. One sync covers all entries that came during the one before.
    pub(super) fn next_job(&mut self, now: Time, heard: &BTreeMap<u8, Heard>) -> Option<(JobNumber, Job)> {
        if self.under_way.is_some() {
            return None;
        }
        if self.jobs.is_empty() && self.writes_now(now) {
            self.flush(heard);
        }
        let (job, after) = self.jobs.pop_front()?;
        self.begun += 1;
        let is_naming = job == Job::Name;
        self.under_way = Some(UnderWay { is_naming, ..UnderWay::new(self.begun, after, now) });
        Some((self.begun, job))
    }

    /// True if the entries that are in no job are to be written now.
    fn writes_now(&mut self, now: Time) -> bool {
        let may_wait = !self.unwritten.is_empty() && !self.is_urgent && self.stage == Stage::Open;
        !may_wait || *self.writes_by.get_or_insert(now + WRITES_WITHIN) <= now
    }

    /// Notes that a job is done, and returns what is to be said.
    pub(super) fn done(&mut self, now: Time, number: JobNumber) -> Option<After> {
        let UnderWay { after, .. } = self.under_way.take_if(|job| job.number == number)?;
        match after {
            After::SnapshotBegun => self.beside = Some(UnderWay::new(number, After::Nothing, now)),
            After::Synced(place) => self.synced = place,
            After::View(generation, number) => self.view_on_disk = Some((generation, number)),
            After::Joined | After::Round(_, RoundWord::Adopted) => {
                self.synced = self.adopted.take().unwrap_or(self.synced);
            }
            _ => {}
        }
        Some(after)
    }

    /// Notes that the disk gets on with a job, or with the parts of a snapshot.
    pub(super) fn note_progress(&mut self, now: Time, number: JobNumber, watched: Watched) {
        if watched.broken(Planted::ClockPerJob) {
            return;
        }
        if let Some(job) = self.under_way.as_mut().filter(|job| job.number == number) {
            job.progress = now;
        }
        if let Some(snapshot) = self.beside.as_mut().filter(|snapshot| snapshot.number == number)
            && !watched.broken(Planted::SnapshotProgressForgotten)
        {
            snapshot.progress = now;
        }
    }

    /// True if the disk has all of the state that this server holds, but for entries of the log.
    pub(super) fn has_state(&self) -> bool {
        self.adopted.is_none()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.under_way.is_none() && self.jobs.is_empty() && self.unwritten.is_empty()
    }

    /// True if the disk hangs with a job, or with the parts of a snapshot.
    pub(super) fn hangs(&mut self, now: Time) -> bool {
        let hangs = |job: &mut Option<UnderWay>| job.as_mut().is_some_and(|job| job.hangs(now));
        hangs(&mut self.under_way) | hangs(&mut self.beside)
    }

    /// Returns when this server has to say that its disk does not get on, if it has to.
    pub(super) fn stalls_at(&self) -> Option<Time> {
        let is_awaited = self.stage == Stage::Closed && self.said_stalls != Some(self.round.key);
        self.under_way.as_ref().filter(|_| is_awaited).map(|job| job.begun + DISK_STALLS_AFTER)
    }

    /// True once in a round, if the disk does not get on.
    pub(super) fn begins_to_stall(&mut self, now: Time) -> bool {
        let stalls = self.stalls_at().is_some_and(|at| at <= now);
        if stalls {
            self.said_stalls = Some(self.round.key);
        }
        stalls
    }

    /// Returns when to look next whether the disk hangs.
    pub(super) fn looks_at(&self) -> Option<Time> {
        self.under_way.iter().chain(&self.beside).map(UnderWay::looks_at).min()
    }

    /// Returns when entries are to be written that wait for others, if the disk has no job.
    pub(super) fn writes_at(&self) -> Option<Time> {
        self.writes_by.filter(|_| self.under_way.is_none())
    }
}

impl UnderWay {
    fn new(number: JobNumber, after: After, now: Time) -> UnderWay {
        UnderWay { number, after, is_naming: false, begun: now, progress: now, looked: now, overdue: None }
    }

    /// True if the disk hangs. Time during which this process was stopped does not count, and one look alone decides nothing:
    /// the answer of a good disk may lie unread.
    fn hangs(&mut self, now: Time) -> bool {
        let stopped = now.since(self.looked).saturating_sub(JOB_LOOK_EVERY);
        if stopped > LATE {
            self.progress = (self.progress + stopped).min(now);
        }
        self.looked = now;
        if now.since(self.progress) < DISK_HANGS_AFTER {
            self.overdue = None;
            return false;
        }
        let since = self.overdue.get_or_insert(now);
        if now.since(*since) > DISK_LOOK_AGAIN_AFTER * 2 {
            // It was stopped once more.
            *since = now;
        }
        now.since(*since) >= DISK_LOOK_AGAIN_AFTER
    }

    fn looks_at(&self) -> Time {
        match self.overdue {
            Some(since) => since + DISK_LOOK_AGAIN_AFTER,
            None => (self.progress + DISK_HANGS_AFTER).min(self.looked + JOB_LOOK_EVERY),
        }
    }
}

//! What a replicated service's processes share, and what a new life begins with.

use super::heard::Heard;
use super::watching::Seen;
use crate::bugs::Planted;
use crate::clock::Clock;
use crate::record::{OnDisk, OpId, Service};
use crate::replica::{Copy, Op, Watch};
use crate::world::CallService;
use crate::world::disk::{DiskInUse, JobFaults, JobKind};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;
use unisono_core::replica::disk::Block;
use unisono_core::replica::{CommandNumber, DiskStart, Durability, ReadNumber, Replica};
use unisono_core::rpc::CallSettings;
use unisono_core::{EntryMode, Instance, Name, Port, Settings, Uid};
use unisono_table::Limits;

/// Data that all processes share.
pub(crate) struct ReplicaCommon {
    pub(crate) group: Port,
    /// The port that callers call, and the one at which members ask for the state.
    pub(crate) service: CallService,
    pub(crate) transfer: CallService,
    /// True if services are located by multicast, false if by one copy for each process.
    pub(crate) multicast: bool,
    /// Time that a question about the state may take.
    pub(crate) fetch_limit: Duration,
    /// Fraction of pieces of a state that a donor spoils, and of questions for a piece that it cannot answer any more.
    pub(crate) spoils: f64,
    pub(crate) stumbles: f64,
    /// What befalls the jobs of disks.
    pub(crate) job_faults: JobFaults,
    /// Number of parts that never change, in snapshots of objects.
    pub(crate) ballast: u64,
    /// Step of a disk at which the director acts next.
    pub(crate) aim: Option<Aim>,
    /// Present if the director gets to know each effect: those that it does not know yet.
    pub(crate) effects: Option<VecDeque<Effect>>,
    /// Ids of the servers whose disks are of the service.
    pub(crate) good_disks: BTreeSet<u8>,
    /// Ids of the servers whose disks were lost or put back, and have not got the state since.
    pub(crate) lost_disks: BTreeSet<u8>,
    /// Instances of groups that had a copy, in the order in which the run names them.
    pub(crate) instances: Vec<Instance>,
    pub(crate) ops_begun: u32,
    /// Operations that ended and did not happen.
    pub(crate) not_happened: BTreeSet<u32>,
    /// Bounds of the directory that the servers keep; `None` if they keep small objects.
    pub(crate) directory: Option<Limits>,
    /// Replies of the directory that the director has not taken yet, by operation.
    pub(crate) replies: BTreeMap<u32, Bytes>,
    pub(crate) planted: Option<Planted>,
    /// How long a server works on a request before it takes the next one.
    pub(crate) request_takes: Duration,
    /// The port of watches, if the servers keep a directory.
    pub(crate) watches: Option<CallService>,
    /// What watches came to, as far as the director does not know.
    pub(crate) seen: BTreeMap<u32, Seen>,
    pub(crate) heard: Heard,
    /// The last backup.
    pub(crate) backup: Option<Backup>,
}

/// The state of a server, as a backup has it.
#[derive(Clone, Debug)]
pub(crate) struct Backup {
    /// Number of the last command.
    pub(crate) number: u64,
    /// Number of commands that the server remembered.
    pub(crate) remembered: usize,
    pub(crate) block: Block,
    /// Place of the last entry of the log that is in the state.
    pub(crate) place: u64,
    /// The state in parts: the memory of commands, then those of the copy.
    pub(crate) parts: Vec<Bytes>,
}

impl ReplicaCommon {
    /// Notes what became of a disk. One that was put back is of the service, and is not good before it gets the state.
    pub(super) fn note_disk(&mut self, server: u8, is_of_service: bool, what: &OnDisk) {
        match what {
            OnDisk::Lost => self.lost_disks.insert(server),
            OnDisk::Adopted(..) => self.lost_disks.remove(&server),
            _ => false,
        };
        match is_of_service && !self.lost_disks.contains(&server) {
            true => self.good_disks.insert(server),
            false => self.good_disks.remove(&server),
        };
    }

    pub(super) fn service_of(&mut self, instance: Instance) -> Service {
        let known = self.instances.iter().position(|known| *known == instance);
        Service(known.unwrap_or_else(|| {
            self.instances.push(instance);
            self.instances.len() - 1
        }) as u16)
    }

    /// True if this is the step at which the director has aimed.
    pub(super) fn is_aimed_at(&mut self, kind: JobKind, done: bool) -> bool {
        let Some(aim) = self.aim.as_mut().filter(|aim| aim.done == done && aim.jobs.contains(&kind)) else {
            return false;
        };
        aim.left = aim.left.saturating_sub(1);
        let is_reached = aim.left == 0;
        if is_reached {
            self.aim = None;
        }
        is_reached
    }
}

/// Parameters of a new life.
pub(crate) struct ReplicaBirth {
    pub(crate) calls: CallSettings,
    /// Present for a server.
    pub(crate) server: Option<ServerBirth>,
    /// Number of lives of a hostile client, for one.
    pub(crate) hostile: Option<usize>,
}

/// Parameters of a server's life.
pub(crate) struct ServerBirth {
    pub(crate) entry: EntryMode,
    pub(crate) settings: Settings,
    pub(crate) durability: Durability,
    pub(crate) message_bytes_max: usize,
    pub(crate) members_min: u16,
    /// The names that count towards the minimum.
    pub(crate) names: Vec<Name>,
    /// The group's window.
    pub(crate) window: u32,
    /// The handlers that it claims.
    pub(crate) handlers: Vec<u8>,
    /// Present for a server with a disk, which has no former life or begins anew from it.
    pub(crate) disk: Option<DiskBirth>,
    /// What is left of the last life, if the member was excluded or could not join.
    pub(crate) former: Option<Former>,
}

/// The disk of a server, which has been opened.
pub(crate) struct DiskBirth {
    pub(crate) disk: DiskInUse,
    pub(crate) start: DiskStart,
}

/// A step of any disk at which the director acts: it sends [`AIMED`] when the step comes that often.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Aim {
    pub(crate) jobs: &'static [JobKind],
    /// True if it is when a job is done and its server does not know it yet, false if it is when the job begins.
    pub(crate) done: bool,
    pub(crate) left: u32,
}

/// Something that a server did, at which the director may act: it sends [`AIMED`] for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Effect {
    /// Id of the server.
    pub(crate) server: u8,
    pub(crate) what: EffectKind,
}

/// What a server did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EffectKind {
    /// Its disk begins a job.
    Begins(JobKind),
    /// Its disk has done a job, and the process does not know yet.
    Done(JobKind),
    /// The process knows that a job is done, and has said so.
    Told,
    /// It has applied a command.
    Applies,
    /// It begins to serve.
    Serves,
}

/// The line that is triggered when the step comes at which the director has aimed.
pub(crate) const AIMED: u32 = 2;

/// What a server takes into its next life.
pub(crate) struct Former {
    /// Its process goes on, and so does the process's clock: deadlines and jobs under way are by it.
    pub(super) clock: Clock,
    pub(super) replica: Replica<Copy>,
    pub(super) watch: Rc<Watch>,
    pub(super) client: Uid,
    pub(super) own: Own,
    pub(super) disk: Option<DiskInUse>,
}

impl Former {
    /// Returns the clock of the process.
    pub(crate) fn clock(&self) -> Clock {
        self.clock
    }
}

/// Operations of a server's own process that have not ended.
#[derive(Default)]
pub(super) struct Own {
    pub(super) commands: BTreeMap<CommandNumber, OpId>,
    pub(super) barriers: BTreeMap<ReadNumber, (OpId, Op)>,
    /// Backups that wait for their barrier, and when they were asked for.
    pub(super) backups: BTreeMap<ReadNumber, u64>,
}

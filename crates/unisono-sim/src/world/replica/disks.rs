//! What a server does with its disk, and the records of what the disk has.

use super::context::Context;
use super::server::Server;
use super::{AIMED, EffectKind, ReplicaCommon, ReplicaSide};
use crate::record::{DiskRecord, Life, LogEntry, Names, OnDisk, ReplicaRecord, What, hash};
use crate::world::disk::{Did, Finished, JobKind};
use crate::world::{Trigger, World};
use bytes::Bytes;
use std::time::Duration;
use unisono_core::replica::disk::{Created, Loaded};
use unisono_core::replica::{Job, JobNumber};
use unisono_core::{Instance, Uid};

/// First byte of a command in a log. Its client and number follow eight more bytes.
const COMMAND: u8 = 1;

impl Server {
    /// Gives a job to the disk.
    pub(super) fn begin_job(&mut self, cx: &mut Context<'_>, number: JobNumber, job: Job) {
        let Some(disk) = &mut self.disk else { return };
        let kind = JobKind::of(&job);
        if cx.common.is_aimed_at(kind, false) {
            cx.trigger(Trigger::Line(AIMED));
        }
        cx.note_effect(EffectKind::Begins(kind));
        disk.begin(cx.local, (number, job), cx.common.job_faults, cx.random);
    }

    /// Takes a job that is done. Returns true if there was one.
    pub(super) fn finish_job(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(disk) = &mut self.disk else { return false };
        if let Some(finished) = disk.tell(cx.local) {
            self.learn_of_job(cx, finished);
            return true;
        }
        if let Some(number) = disk.gets_on(cx.local) {
            self.replica.handle_progress(cx.local, number);
            return true;
        }
        let Some(finished) = disk.finish(cx.local, cx.common.job_faults, cx.random) else { return false };
        let Some(kind) = finished.kind() else {
            self.learn_of_job(cx, finished);
            return true;
        };
        if finished.outcome.is_ok()
            && let Some(server) = self.replica.server_id()
            && let Some(what) = written(&finished.done, &mut cx.recorder.names)
        {
            let record = record(cx.common, server, finished.state, what);
            cx.note(record);
        }
        let is_aim = cx.common.is_aimed_at(kind, true);
        if is_aim {
            cx.trigger(Trigger::Line(AIMED));
        }
        cx.note_effect(EffectKind::Done(kind));
        match is_aim || cx.common.effects.is_some() {
            // It may crash before it knows.
            true => disk.keep_untold(cx.local, finished),
            false => self.learn_of_job(cx, finished),
        }
        true
    }

    fn learn_of_job(&mut self, cx: &mut Context<'_>, Finished { number, done, outcome, .. }: Finished) {
        match done {
            Did::Parts => self.replica.handle_snapshot_written(cx.local, number, outcome),
            Did::Job(_) | Did::Named(_) => self.replica.handle_stored(cx.local, number, outcome),
        }
        self.note_steps(cx);
        cx.note_effect(EffectKind::Told);
    }
}

/// Returns what the disk has since then, if that is news.
fn written(done: &Did, names: &mut Names) -> Option<OnDisk> {
    let job = match done {
        Did::Job(job) => job,
        Did::Named(place) => return Some(OnDisk::Cut(*place)),
        Did::Parts => return None,
    };
    match &**job {
        Job::Append { first, entries, .. } => Some(OnDisk::Appended(*first, log(entries, names))),
        Job::Commit(_) => Some(OnDisk::Committed),
        Job::Adopt { snapshot, entries, .. } => {
            let place = snapshot.as_ref().map_or(0, |(place, _)| *place);
            Some(OnDisk::Adopted(place, log(entries, names)))
        }
        Job::Snapshot { .. } | Job::Name => None,
    }
}

fn log(entries: &[Bytes], names: &mut Names) -> Vec<LogEntry> {
    let number = |bytes: &[u8], at: usize| Some(u64::from_be_bytes(*bytes.get(at..)?.first_chunk()?));
    let mut entry = |bytes: &Bytes| {
        let command = match bytes.first() {
            Some(&COMMAND) => number(bytes, 9).zip(number(bytes, 17)),
            _ => None,
        };
        let command = command.map(|(client, call)| (names.life(Uid(client)), call));
        LogEntry { hash: hash(bytes), command }
    };
    entries.iter().map(&mut entry).collect()
}

fn record(
    common: &mut ReplicaCommon,
    server: u8,
    (service, generation): (u128, u64),
    what: OnDisk,
) -> ReplicaRecord {
    let service = (service != 0).then(|| common.service_of(Instance(service)));
    common.note_disk(server, service.is_some(), &what);
    ReplicaRecord::Disk(DiskRecord { server, service, generation, what })
}

impl World<ReplicaSide> {
    /// Records what a process finds on its disk.
    pub(crate) fn note_found(&mut self, server: u8, loaded: Option<&Loaded>) {
        let Some(loaded) = loaded else { return };
        let what = OnDisk::Found(loaded.snapshot_at, log(&loaded.entries, &mut self.recorder.names));
        let service = match loaded.block.created {
            Created::Done(service) => service,
            _ => 0,
        };
        let record = record(&mut self.common, server, (service, loaded.block.generation), what);
        self.note_of_disk(server, record);
    }

    /// Records that a disk is lost, or has not what was written last.
    pub(crate) fn note_lost(&mut self, server: u8) {
        let record = record(&mut self.common, server, (0, 0), OnDisk::Lost);
        self.note_of_disk(server, record);
    }

    fn note_of_disk(&mut self, server: u8, record: ReplicaRecord) {
        let process = usize::from(server).saturating_sub(1);
        self.recorder.note(self.now, process, Life::WORLD, What::Replica(Box::new(record)));
    }

    /// Lets the disk of a server be slow from now on, or no longer.
    pub(crate) fn set_slow(&mut self, process: usize, is_slow: bool) {
        self.with(process, |side, _| {
            if let Some(disk) = side.server.as_mut().and_then(|server| server.disk.as_mut()) {
                disk.set_slow(is_slow);
            }
        });
    }

    /// Lets each job of a server's disk take this time.
    pub(crate) fn set_steady(&mut self, process: usize, takes: Duration) {
        self.with(process, |side, _| {
            if let Some(disk) = side.server.as_mut().and_then(|server| server.disk.as_mut()) {
                disk.set_steady(takes);
            }
        });
    }

    /// Lets the disk of a server do its job, if it stalls.
    pub(crate) fn end_stall(&mut self, process: usize) {
        self.with(process, |side, cx| {
            if let Some(disk) = side.server.as_mut().and_then(|server| server.disk.as_mut()) {
                disk.go_on(cx.local);
            }
        });
        self.drain(process);
    }
}

//! Histories of a replicated service for the tests of the checkers: three copies and one client.

use crate::properties::{Checkers, Property, Violation};
use crate::record::{
    DiskRecord, End, Epoch, Life, LogEntry, Mode, OnDisk, OpId, OpOutcome, Place, Record, ReplicaRecord,
    Service, Trail, What, mix,
};
use crate::replica::{Model, Op, Reply};
use std::time::Duration;
use unisono_core::Time;
use unisono_core::replica::disk::DiskDurability;

pub(super) const A: Life = Life(0);
pub(super) const B: Life = Life(1);
pub(super) const C: Life = Life(2);
pub(super) const CLIENT: Life = Life(3);
const COPIES: [Life; 3] = [A, B, C];
pub(super) const SERVICE: Service = Service(0);
pub(super) const OTHER_SERVICE: Service = Service(1);

/// A history.
pub(super) struct Fixture {
    records: Vec<Record>,
    now: Time,
    place: Place,
    model: Model,
    ops: Vec<(Mode, Op)>,
}

impl Fixture {
    /// Three copies of a service that has just been founded.
    pub(super) fn three_copies() -> Fixture {
        Fixture::new(None)
    }

    /// The same with disks, two of which must have a command; the copies are of generation 1.
    pub(super) fn three_disks() -> Fixture {
        Fixture::new(Some(DiskDurability::Majority))
    }

    fn new(disks: Option<DiskDurability>) -> Fixture {
        let trail = Trail { steps: 1, hash: 9 };
        let generation = disks.map_or(0, |_| 1);
        let place = Place { service: SERVICE, generation, epoch: Epoch(0), position: 0, trail };
        let mut fixture = Fixture {
            records: Vec::new(),
            now: Time::from_nanos(1_000),
            place,
            model: Model::default(),
            ops: Vec::new(),
        };
        fixture.record(
            Life::WORLD,
            ReplicaRecord::Terms { held_by_all: true, by_majority: false, servers: 3, disks },
        );
        for copy in COPIES {
            fixture.record(copy, ReplicaRecord::Members(place));
            fixture.record(copy, ReplicaRecord::Informed(place));
        }
        fixture
    }

    pub(super) fn record(&mut self, life: Life, content: ReplicaRecord) {
        let what = What::Replica(Box::new(content));
        self.records.push(Record { at: self.now, process: life.0, life, what });
    }

    /// Something new on the disk of a server.
    pub(super) fn on_disk(&mut self, server: u8, generation: u64, what: OnDisk) {
        let disk = DiskRecord { server, service: Some(SERVICE), generation, what };
        self.record(Life(u32::from(server) - 1), ReplicaRecord::Disk(disk));
    }

    /// Entries with these hashes, which are no commands.
    pub(super) fn entries(hashes: &[u64]) -> Vec<LogEntry> {
        hashes.iter().map(|hash| LogEntry { hash: *hash, command: None }).collect()
    }

    /// Hash of the values of all objects.
    pub(super) fn values(&self) -> u64 {
        self.model.hash()
    }

    pub(super) fn crash(&mut self, life: Life) {
        self.note(life, What::Crashed);
    }

    pub(super) fn note(&mut self, life: Life, what: What) {
        self.records.push(Record { at: self.now, process: life.0, life, what });
    }

    pub(super) fn wait(&mut self, duration: Duration) {
        self.now = self.now + duration;
    }

    pub(super) fn place(&self, _: Life) -> Place {
        self.place
    }

    /// The client begins an operation.
    pub(super) fn begin(&mut self, mode: Mode, op: Op) -> OpId {
        let id = OpId(self.ops.len() as u32);
        self.ops.push((mode, op));
        self.record(CLIENT, ReplicaRecord::Begun { id, name: (CLIENT, u64::from(id.0)), mode, op });
        if mode != Mode::Command {
            let name = (CLIENT, u64::from(id.0));
            self.record(A, ReplicaRecord::Answered { service: SERVICE, name, confirmed: true });
        }
        id
    }

    /// All copies apply it, if it is a command. Returns the reply.
    pub(super) fn apply(&mut self, id: OpId) -> Reply {
        let (mode, op) = self.ops[id.index()];
        let reply = self.model.apply(op);
        if mode == Mode::Command {
            self.place.position += 1;
            let Trail { steps, hash } = self.place.trail;
            self.place.trail = Trail { steps: steps + 1, hash: mix(hash, u64::from(id.0)) };
            let (at, name) = (self.place, (CLIENT, u64::from(id.0)));
            for copy in COPIES {
                self.record(copy, ReplicaRecord::Applied { at, name, op, reply });
            }
            self.record(A, ReplicaRecord::Answered { service: SERVICE, name, confirmed: true });
        }
        reply
    }

    pub(super) fn end(&mut self, id: OpId, outcome: OpOutcome) {
        self.record(CLIENT, ReplicaRecord::Ended { id, outcome });
    }

    /// A whole command of the client.
    pub(super) fn append(&mut self, word: u64) {
        let id = self.begin(Mode::Command, Op::Append(word));
        let reply = self.apply(id);
        self.end(id, OpOutcome::Replied(reply));
    }

    /// All copies are at the same place at the end.
    pub(super) fn finals(&mut self) {
        COPIES.into_iter().for_each(|copy| self.record(copy, ReplicaRecord::Final { at: Some(self.place) }));
    }

    pub(super) fn last_applied(&self) -> Option<ReplicaRecord> {
        let applied = self.records.iter().rev().filter_map(|record| match &record.what {
            What::Replica(content) => Some(&**content),
            _ => None,
        });
        applied.into_iter().find(|content| matches!(content, ReplicaRecord::Applied { .. })).cloned()
    }

    fn check(&self, property: impl Property + 'static) -> Result<(), Violation> {
        let mut checkers = Checkers::new(vec![Box::new(property)]);
        for record in self.records.iter().cloned() {
            checkers.observe(record)?;
        }
        checkers.finish(&End { at: self.now, ..End::default() })
    }

    pub(super) fn good(&self, property: impl Property + 'static) {
        assert_eq!(self.check(property), Ok(()));
    }

    pub(super) fn bad(&self, property: impl Property + 'static) {
        assert!(self.check(property).is_err());
    }
}

//! Histories of a directory for the tests of the checkers: one server, one client, and the model in the place of a table.

use super::history::History;
use super::model::Model;
use crate::directory::limits;
use crate::properties::{Checkers, Property, Violation};
use crate::record::{
    DirectoryRecord, End, Epoch, Life, Mode, OpId, OpOutcome, Place as At, Record, ReplicaRecord, Service,
    Trail, What,
};
use crate::replica::{Op, Reply as Words};
use bytes::Bytes;
use std::time::Duration;
use unisono_core::Time;
use unisono_table::{Answer, Capability, Check, Command, Place, Port, Query, Refusal, Reply, Request};

const SERVER: Life = Life(0);
const CLIENT: Life = Life(1);
pub(super) const SERVICE: Service = Service(0);
const STEP: Duration = Duration::from_millis(1);
const PORT: Port = Port(7);
const SECRET: Check = Check::from_bits(1);

/// A history.
pub(super) struct Fixture {
    records: Vec<Record>,
    now: Time,
    service: Service,
    model: Model,
    changes: u64,
    requests: Vec<Bytes>,
    secrets: u64,
}

/// Makes a directory.
pub(super) fn make(place: &Place) -> Command {
    let columns = ["owner", "group", "other"].iter().filter_map(|name| name.parse().ok()).collect();
    Command::CreateDirectory { place: place.clone(), columns, masks: None, secret: Check::from_bits(3) }
}

pub(super) fn lookup(place: &Place) -> Query {
    Query::Lookup { places: vec![place.clone()] }
}

impl Fixture {
    /// A service that has been founded.
    pub(super) fn founded() -> Fixture {
        assert!(limits().directories > 20);
        let mut fixture = Fixture {
            records: Vec::new(),
            now: Time::from_nanos(1_000),
            service: SERVICE,
            model: Model::default(),
            changes: 0,
            requests: Vec::new(),
            secrets: 10,
        };
        fixture.of_directory(SERVER, DirectoryRecord::Serves { at: fixture.at(), remembered: 0 });
        fixture.command(Command::Found { port: PORT, secret: SECRET, service: Bytes::new() });
        fixture
    }

    pub(super) fn root(&self) -> Capability {
        Capability::of_owner(PORT, unisono_table::ROOT, SECRET)
    }

    /// Returns a place below the root.
    pub(super) fn place(&self, path: &str) -> Place {
        Place { capability: self.root(), path: path.parse().expect("a path") }
    }

    pub(super) fn model(&self) -> &Model {
        &self.model
    }

    fn at(&self) -> At {
        let trail = Trail { steps: self.model.number, hash: self.model.number };
        At { service: self.service, generation: 1, epoch: Epoch(0), position: self.model.number, trail }
    }

    fn note(&mut self, life: Life, what: What) {
        self.records.push(Record { at: self.now, process: life.0, life, what });
    }

    pub(super) fn of_directory(&mut self, life: Life, record: DirectoryRecord) {
        self.note(life, What::Directory(Box::new(record)));
    }

    fn of_replica(&mut self, life: Life, record: ReplicaRecord) {
        self.note(life, What::Replica(Box::new(record)));
    }

    // --- operations ---

    /// The client is a hostile one.
    pub(super) fn is_hostile(&mut self) {
        self.of_replica(CLIENT, ReplicaRecord::Hostile);
    }

    /// The client begins a command.
    pub(super) fn begin(&mut self, command: Command) -> OpId {
        self.begin_request(Mode::Command, &Request::Command(command))
    }

    fn begin_request(&mut self, mode: Mode, request: &Request) -> OpId {
        self.begin_bytes(mode, request.encode())
    }

    fn begin_bytes(&mut self, mode: Mode, request: Bytes) -> OpId {
        let id = OpId(self.requests.len() as u32);
        self.requests.push(request.clone());
        let name = (CLIENT, u64::from(id.0));
        self.of_replica(CLIENT, ReplicaRecord::Begun { id, name, mode, op: Op::Directory(0) });
        self.of_directory(CLIENT, DirectoryRecord::Asked { id, request });
        self.now = self.now + STEP;
        id
    }

    /// The server applies a command. Returns the right reply.
    pub(super) fn apply(&mut self, id: OpId) -> Reply {
        let command = super::model::command_in(&self.requests[id.index()]);
        let (_, result, _) = self.model.after(command.as_ref());
        self.apply_with(id, result)
    }

    /// Returns the right reply to a command that is refused before it is ordered.
    pub(super) fn refusal(&self, command: &Command) -> Reply {
        let result = self.model.after(Some(command)).1;
        Reply { number: self.model.number, changes: self.changes, result }
    }

    /// A server gets a command. A majority confirms what servers answer.
    pub(super) fn taken(&mut self, id: OpId, again: bool) {
        let name = (CLIENT, u64::from(id.0));
        self.of_replica(
            Life::WORLD,
            ReplicaRecord::Terms { held_by_all: true, by_majority: false, servers: 3, disks: None },
        );
        self.of_directory(SERVER, DirectoryRecord::Taken { name, again });
    }

    /// The same with this result.
    pub(super) fn apply_with(&mut self, id: OpId, result: Result<Answer, Refusal>) -> Reply {
        let command = super::model::command_in(&self.requests[id.index()]);
        let (model, right, _) = self.model.after(command.as_ref());
        self.model = model;
        self.changes += u64::from(right.is_ok());
        let reply = Reply { number: self.model.number, changes: self.changes, result };
        self.applied_again(id, &reply, 0);
        reply
    }

    /// A copy applies a command at a number that is this much above the present one.
    pub(super) fn applied_again(&mut self, id: OpId, reply: &Reply, above: u64) {
        let (request, name) = (self.requests[id.index()].clone(), (CLIENT, u64::from(id.0)));
        let at = At { position: self.model.number + above, ..self.at() };
        self.of_directory(SERVER, DirectoryRecord::Applied { at, name, request, reply: reply.encode() });
    }

    pub(super) fn end(&mut self, id: OpId, reply: &Reply) {
        let name = (CLIENT, u64::from(id.0));
        self.of_replica(SERVER, ReplicaRecord::Answered { service: self.service, name, confirmed: true });
        self.now = self.now + STEP;
        self.of_directory(CLIENT, DirectoryRecord::Got { id, reply: reply.encode() });
        self.of_replica(
            CLIENT,
            ReplicaRecord::Ended { id, outcome: OpOutcome::Replied(Words(reply.number, 0)) },
        );
        self.now = self.now + STEP;
    }

    /// A whole command, with the right reply.
    pub(super) fn command(&mut self, command: Command) -> Reply {
        let id = self.begin(command);
        let reply = self.apply(id);
        self.end(id, &reply);
        reply
    }

    /// Returns the right reply to a query at present.
    pub(super) fn ask(&self, query: &Query) -> Reply {
        let result = match query {
            Query::Changes { from, .. } => self.changes_from(*from),
            query => self.model.ask(query),
        };
        Reply { number: self.model.number, changes: self.changes, result }
    }

    /// Returns all changes of the root from a number on.
    fn changes_from(&self, from: u64) -> Result<Answer, Refusal> {
        let (mut model, mut changes) = (Model::default(), Vec::new());
        for request in &self.requests {
            let Some(command) = super::model::command_in(request) else { continue };
            let (after, _, changed) = model.after(Some(&command));
            model = after;
            let of_root = changed.into_iter().filter(|changed| changed.directory == unisono_table::ROOT.0);
            changes.extend(of_root.map(|changed| unisono_table::Change {
                number: model.number,
                event: changed.event,
                name: changed.name,
            }));
        }
        changes.retain(|change: &unisono_table::Change| change.number >= from);
        Ok(Answer::Changes { changes, next: model.number + 1 })
    }

    /// A whole query, with the right reply. Returns its result.
    pub(super) fn query(&mut self, query: Query) -> Result<Answer, Refusal> {
        let reply = self.ask(&query);
        self.query_with_reply(query, &reply);
        reply.result
    }

    /// The same with this result at the present number.
    pub(super) fn query_with(&mut self, query: Query, result: Result<Answer, Refusal>) {
        let reply = Reply { number: self.model.number, changes: self.changes, result };
        self.query_with_reply(query, &reply);
    }

    pub(super) fn query_with_reply(&mut self, query: Query, reply: &Reply) {
        let id = self.begin_request(Mode::Read, &Request::Query(query));
        self.end(id, reply);
    }

    /// Returns a secret that no object has.
    pub(super) fn secret(&mut self) -> Check {
        self.secrets += 1;
        Check::from_bits(u128::from(self.secrets))
    }

    /// The client asks what cannot be read, and gets this.
    pub(super) fn unreadable(&mut self, result: Result<Answer, Refusal>) {
        let id = self.begin_bytes(Mode::LocalRead, Bytes::from_static(b"?"));
        let reply = Reply { number: self.model.number, changes: self.changes, result };
        self.end(id, &reply);
    }

    // --- watches, servers and backups ---

    /// A watch gets this result at the present number.
    pub(super) fn watched(&mut self, watch: u32, query: Query, result: Result<Answer, Refusal>) {
        self.watched_at(SERVICE, watch, query, result);
    }

    /// A watch gets this result of a service.
    pub(super) fn watched_at(
        &mut self,
        service: Service,
        watch: u32,
        query: Query,
        result: Result<Answer, Refusal>,
    ) {
        let name = (CLIENT, 1_000 + self.records.len() as u64);
        let reply = Reply { number: self.model.number, changes: self.changes, result }.encode();
        let request = Request::LocalQuery(query).encode();
        self.of_directory(SERVER, DirectoryRecord::WatchAnswered { service, name, from: 0 });
        self.of_directory(CLIENT, DirectoryRecord::Watched { watch, name, request, reply });
    }

    /// One of three servers answers a query after it has heard of this many.
    pub(super) fn confirmed(&mut self, heard: usize) {
        self.of_replica(
            Life::WORLD,
            ReplicaRecord::Terms { held_by_all: true, by_majority: false, servers: 3, disks: None },
        );
        self.of_directory(SERVER, DirectoryRecord::Confirmed { name: (CLIENT, 1), heard });
    }

    /// The server makes a backup.
    pub(super) fn backed_up(&mut self, number: u64, parts: Vec<Bytes>) {
        let (at, asked) = (self.at(), self.now);
        self.of_directory(SERVER, DirectoryRecord::BackedUp { at, asked, number, parts });
    }

    /// A backup with this number and four remembered commands is restored. The next service begins with the present state, and
    /// with `remembered` commands in its memory.
    pub(super) fn restored(&mut self, number: u64, remembered: usize) {
        self.of_directory(Life::WORLD, DirectoryRecord::Restored { number, remembered: 4 });
        let at = At { service: Service(SERVICE.0 + 1), ..self.at() };
        self.of_directory(SERVER, DirectoryRecord::Serves { at, remembered });
    }

    /// Returns the present state, and the number of commands that changed something.
    pub(super) fn state(&self) -> (Model, u64) {
        (self.model.clone(), self.changes)
    }

    /// Another service goes on from this state.
    pub(super) fn begin_anew_from(&mut self, (model, changes): (Model, u64)) {
        (self.model, self.changes) = (model, changes);
        self.service = Service(self.service.0 + 1);
        self.of_directory(SERVER, DirectoryRecord::Serves { at: self.at(), remembered: 0 });
    }

    /// Returns the requests of all operations.
    pub(super) fn requests(&self) -> &[Bytes] {
        &self.requests
    }

    // --- checking ---

    pub(super) fn history(&self) -> History {
        let mut history = History::default();
        self.records.iter().for_each(|record| history.observe(record));
        history
    }

    fn check(&self, property: impl Property + 'static) -> Result<(), Violation> {
        let checkers = self.check_all(vec![Box::new(property)])?;
        assert!(checkers.checked().all(|(_, times)| times > 0), "nothing was checked");
        Ok(())
    }

    /// Checks several promises. Returns their checkers.
    ///
    /// # Errors
    /// The first of them that is broken.
    pub(super) fn check_all(&self, properties: Vec<Box<dyn Property>>) -> Result<Checkers, Violation> {
        let mut checkers = Checkers::new(properties);
        for record in self.records.iter().cloned() {
            checkers.observe(record)?;
        }
        checkers.finish(&End { at: self.now, ..End::default() })?;
        Ok(checkers)
    }

    pub(super) fn good(&self, property: impl Property + 'static) {
        assert_eq!(self.check(property), Ok(()));
    }

    pub(super) fn bad(&self, property: impl Property + 'static) {
        assert!(self.check(property).is_err());
    }
}

//! What the checkers of the directory know of a run: the operations of callers with their replies, the commands that
//! copies applied, and from both the state of each service at each number, as the model has it.

use super::Map;
use super::model::{Changed, Model, command_in};
use crate::record::{DirectoryRecord, Life, Mode, OpOutcome, Record, ReplicaRecord, Service, What};
use bytes::Bytes;
use std::cell::OnceCell;
use std::collections::BTreeSet;
use unisono_core::Time;
use unisono_table::{Answer, Command, Query, Reason, Refusal, Reply, Request};

/// Name of an operation: the client, and the client's number.
pub(super) type Name = (Life, u64);

/// An operation of a caller.
#[derive(Clone, Debug)]
pub(super) struct Operation {
    /// The process's life that asked.
    life: Life,
    pub(super) name: Name,
    pub(super) mode: Mode,
    pub(super) begin: Time,
    pub(super) request: Bytes,
    /// The request, read, once a checker has asked for it.
    read: OnceCell<Option<Request>>,
    /// When it ended, with what reply.
    pub(super) end: Option<(Time, Bytes)>,
    pub(super) happened_not: bool,
}

/// An operation that got a reply, read.
pub(super) struct Replied<'a> {
    pub(super) operation: &'a Operation,
    /// `None` if it cannot be read.
    pub(super) request: &'a Option<Request>,
    pub(super) reply: Reply,
    pub(super) end: Time,
}

impl Replied<'_> {
    /// Returns the query, if it is one.
    pub(super) fn query(&self) -> Option<&Query> {
        match &self.request {
            Some(Request::Query(query) | Request::LocalQuery(query)) => Some(query),
            _ => None,
        }
    }
}

/// A command as a copy applied it.
#[derive(Clone, Debug)]
struct Applied {
    name: Name,
    request: Bytes,
    reply: Bytes,
}

/// A reply that a watch got.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) watch: u32,
    name: Name,
    request: Bytes,
    reply: Bytes,
}

/// A backup.
#[derive(Debug)]
pub(super) struct BackedUp {
    pub(super) service: Service,
    /// When it was asked for.
    pub(super) asked: Time,
    /// Number of the last command, as it says.
    pub(super) number: u64,
    pub(super) parts: Vec<Bytes>,
}

/// A backup that was put into the place of a disk.
#[derive(Debug)]
pub(super) struct Restored {
    pub(super) number: u64,
    /// Number of commands that the server remembered which made it.
    pub(super) remembered: usize,
    /// The services before.
    pub(super) before: Vec<Service>,
}

impl Watched {
    /// Returns what it asked for, and the reply.
    pub(super) fn read(&self) -> Option<(Query, Reply)> {
        match Request::decode(&self.request)? {
            Request::LocalQuery(query) => Some((query, Reply::decode(&self.reply)?)),
            _ => None,
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct History {
    operations: Vec<Operation>,
    commands: Map<Service, Map<u64, Applied>>,
    /// Positions from which a copy of a service began to serve: the first of them.
    begun: Map<Service, u64>,
    /// What each copy applied, in the order of time.
    applied: Vec<(Service, u64, Name, Bytes)>,
    /// True if an administrator let a service begin anew.
    began_anew: bool,
    /// Callers that take what they can get.
    hostile: BTreeSet<Life>,
    /// What watches got, in the order of time, and the services that answered them.
    pub(super) watched: Vec<Watched>,
    watches_answered: Map<Name, Service>,
    /// Linearizable queries that were answered, each with the number of servers that its server had heard of.
    pub(super) confirmed: Vec<(Name, usize)>,
    /// Number of servers of the service.
    pub(super) servers: usize,
    pub(super) backups: Vec<BackedUp>,
    pub(super) restored: Vec<Restored>,
    /// Copies as they began to serve: the service, the position, and how many commands they remembered.
    pub(super) serves: Vec<(Service, u64, usize)>,
    answered: Map<Name, Vec<Service>>,
    /// Commands that servers got, and whether an earlier attempt at one of them may have been executed.
    taken: Map<Name, bool>,
    /// True if a majority confirms what a server answers.
    pub(super) is_confirmed: bool,
    /// The states of each service, once a checker has asked for them.
    timelines: OnceCell<Result<Map<Service, Timeline>, String>>,
}

impl History {
    /// Takes a record. Records of other kinds than replicas' and directories' do not matter.
    pub(super) fn observe(&mut self, record: &Record) {
        self.timelines.take();
        match &record.what {
            What::Replica(content) => self.observe_replica(record, content),
            What::Directory(content) => self.observe_directory(content),
            _ => {}
        }
    }

    fn observe_replica(&mut self, record: &Record, content: &ReplicaRecord) {
        match content {
            ReplicaRecord::Begun { name, mode, .. } => self.operations.push(Operation {
                life: record.life,
                name: *name,
                mode: *mode,
                begin: record.at,
                request: Bytes::new(),
                read: OnceCell::new(),
                end: None,
                happened_not: false,
            }),
            ReplicaRecord::Ended { id, outcome } => {
                let Some(operation) = self.operations.get_mut(id.index()) else { return };
                operation.happened_not = *outcome == OpOutcome::NotHappened;
                match &mut operation.end {
                    Some((end, _)) if matches!(outcome, OpOutcome::Replied(_)) => *end = record.at,
                    end => *end = None,
                }
            }
            ReplicaRecord::Answered { service, name, .. } => {
                let services = self.answered.entry(*name).or_default();
                if !services.contains(service) {
                    services.push(*service);
                }
            }
            ReplicaRecord::Terms { servers, held_by_all, .. } => {
                (self.servers, self.is_confirmed) = (*servers, *held_by_all);
            }
            ReplicaRecord::BeginsAnew => self.began_anew = true,
            ReplicaRecord::Hostile => _ = self.hostile.insert(record.life),
            _ => {}
        }
    }

    fn observe_directory(&mut self, content: &DirectoryRecord) {
        match content {
            DirectoryRecord::Asked { id, request } => {
                if let Some(operation) = self.operations.get_mut(id.index()) {
                    operation.request = request.clone();
                }
            }
            DirectoryRecord::Got { id, reply } => {
                if let Some(operation) = self.operations.get_mut(id.index()) {
                    operation.end = Some((Time::NEVER, reply.clone()));
                }
            }
            DirectoryRecord::Applied { at, name, request, reply } => {
                self.applied.push((at.service, at.position, *name, reply.clone()));
                let (name, request, reply) = (*name, request.clone(), reply.clone());
                let commands = self.commands.entry(at.service).or_default();
                commands.entry(at.position).or_insert(Applied { name, request, reply });
            }
            DirectoryRecord::Taken { name, again } => *self.taken.entry(*name).or_default() |= *again,
            DirectoryRecord::Serves { at, remembered } => {
                self.serves.push((at.service, at.position, *remembered));
                self.begun.entry(at.service).or_insert(at.position);
            }
            DirectoryRecord::Watched { watch, name, request, reply } => {
                let (request, reply) = (request.clone(), reply.clone());
                self.watched.push(Watched { watch: *watch, name: *name, request, reply });
            }
            DirectoryRecord::WatchAnswered { service, name, .. } => {
                self.watches_answered.insert(*name, *service);
            }
            DirectoryRecord::Restored { number, remembered } => {
                let before = self.begun.keys().copied().collect();
                self.restored.push(Restored { number: *number, remembered: *remembered, before });
            }
            DirectoryRecord::Confirmed { name, heard } => self.confirmed.push((*name, *heard)),
            DirectoryRecord::BackedUp { at, asked, number, parts } => {
                let (service, parts) = (at.service, parts.clone());
                self.backups.push(BackedUp { service, asked: *asked, number: *number, parts });
            }
        }
    }

    /// Returns the service that answered a watch.
    pub(super) fn service_of(&self, watched: &Watched) -> Option<Service> {
        self.watches_answered.get(&watched.name).copied()
    }

    /// True if an administrator let a service begin anew.
    pub(super) fn began_anew(&self) -> bool {
        self.began_anew
    }

    /// True if a hostile client asked for it.
    pub(super) fn is_hostile(&self, operation: &Operation) -> bool {
        self.hostile.contains(&operation.life)
    }

    /// True if one server refused this command before it was ordered, and another one executed it: a hostile client asked
    /// both, and told each that it had asked no other.
    pub(super) fn was_told_apart(&self, timeline: &Timeline, replied: &Replied<'_>) -> bool {
        let executed = timeline.number_of(replied.operation.name).and_then(|own| timeline.command(own));
        let is_early = replied.reply.result.as_ref().is_err_and(|refusal| refusal.reason.is_of_rights());
        let is_other = executed.is_some_and(|executed| executed.right != replied.reply);
        self.is_hostile(replied.operation) && is_early && is_other
    }

    pub(super) fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// Returns the operations that got a reply, in the order in which they began.
    pub(super) fn replied(&self) -> impl Iterator<Item = Replied<'_>> {
        self.operations.iter().filter_map(|operation| {
            let (end, reply) = operation.end.as_ref()?;
            let request = operation.read.get_or_init(|| Request::decode(&operation.request));
            Some(Replied { operation, request, reply: Reply::decode(reply)?, end: *end })
        })
    }

    /// Returns the operations that got a reply, each with the service that it is of: the one that executed the command, or
    /// whose server answered the query or refused the command before it was ordered.
    pub(super) fn judged<'a>(
        &'a self,
        timelines: &'a Map<Service, Timeline>,
    ) -> impl Iterator<Item = (Replied<'a>, &'a Timeline)> {
        self.replied().filter_map(move |replied| {
            let name = replied.operation.name;
            let executed = timelines.values().find(|timeline| timeline.number_of(name).is_some());
            let timeline = match replied.operation.mode {
                Mode::Command if executed.is_some() => executed,
                _ => match self.answered.get(&name).map(Vec::as_slice) {
                    Some([service]) => timelines.get(service),
                    // A query that servers of two services answered may be of either.
                    _ => None,
                },
            };
            Some((replied, timeline?))
        })
    }

    /// Returns the commands as copies applied them: the service, the number, the client's name of it, and the reply.
    pub(super) fn applied(&self) -> impl Iterator<Item = (Service, u64, Name, &Bytes)> {
        self.applied.iter().map(|(service, number, name, reply)| (*service, *number, *name, reply))
    }

    /// True if servers got a command, and no earlier attempt at it may have been executed.
    pub(super) fn is_first_attempt(&self, name: Name) -> bool {
        self.taken.get(&name) == Some(&false)
    }

    /// Returns the states of each service.
    ///
    /// # Errors
    /// No copy applied a position before one that a copy applied.
    pub(super) fn timelines(&self) -> Result<&Map<Service, Timeline>, String> {
        self.timelines.get_or_init(|| self.all_timelines()).as_ref().map_err(Clone::clone)
    }

    fn all_timelines(&self) -> Result<Map<Service, Timeline>, String> {
        let mut timelines = Map::<Service, Timeline>::new();
        let services: Vec<Service> = self.begun.keys().chain(self.commands.keys()).copied().collect();
        for service in services {
            if timelines.contains_key(&service) {
                continue;
            }
            let none = Map::new();
            let commands = self.commands.get(&service).unwrap_or(&none);
            // A service that begins anew goes on from a state of an earlier one.
            let base = match commands.keys().next() {
                Some(first) => first - 1,
                None => self.begun.get(&service).copied().unwrap_or(0),
            };
            let earlier = timelines.range(..service).rev().find(|(_, earlier)| earlier.has(base));
            // What it replays of that service is the state with which it begins.
            let is_replayed = |at: &u64| {
                let applied = commands.get(at).map(|applied| applied.name);
                earlier.is_some_and(|(_, earlier)| {
                    applied.is_some_and(|name| earlier.number_of(name) == Some(*at))
                })
            };
            let base = base + (base + 1..).take_while(is_replayed).count() as u64;
            let mut timeline = earlier.map_or_else(Timeline::default, |(_, earlier)| earlier.until(base));
            for (position, applied) in commands.range(base + 1..) {
                if *position != timeline.last() + 1 {
                    return Err(format!("no copy of {service:?} applied position {}", timeline.last() + 1));
                }
                timeline.apply(applied);
            }
            timelines.insert(service, timeline);
        }
        Ok(timelines)
    }
}

/// The states of a service, by number: the number of a command is its position.
#[derive(Clone, Debug)]
pub(super) struct Timeline {
    /// Number of the state with which the service began: that of an earlier service if it began anew.
    base: u64,
    /// The state after each number, from 0.
    states: Vec<Model>,
    /// Number of commands through each number that changed something.
    changes: Vec<u64>,
    commands: Vec<Recorded>,
    /// Changed rows of each number.
    log: Vec<(u64, Changed)>,
    positions: Map<Name, u64>,
}

/// A command of a timeline.
#[derive(Clone, Debug)]
pub(super) struct Recorded {
    pub(super) request: Bytes,
    /// What a copy replied, and what the model says.
    pub(super) given: Bytes,
    pub(super) right: Reply,
}

impl Default for Timeline {
    fn default() -> Timeline {
        let states = vec![Model::default()];
        Timeline {
            base: 0,
            states,
            changes: vec![0],
            commands: Vec::new(),
            log: Vec::new(),
            positions: Map::new(),
        }
    }
}

impl Timeline {
    fn apply(&mut self, applied: &Applied) {
        let command = command_in(&applied.request);
        let (state, result, changed) = self.states[self.states.len() - 1].after(command.as_ref());
        let number = state.number;
        let is_effective = match &result {
            Ok(Answer::Deleted { directories, files }) => directories + files > 0,
            result => result.is_ok(),
        };
        let changes = self.changes[self.changes.len() - 1] + u64::from(is_effective);
        self.log.extend(changed.into_iter().map(|changed| (number, changed)));
        self.states.push(state);
        self.changes.push(changes);
        self.positions.insert(applied.name, number);
        let request = applied.request.clone();
        let right = Reply { number, changes, result };
        self.commands.push(Recorded { request, given: applied.reply.clone(), right });
    }

    /// Returns the number of the last command.
    pub(super) fn last(&self) -> u64 {
        self.commands.len() as u64
    }

    /// Returns the number of the state with which the service began.
    pub(super) fn base(&self) -> u64 {
        self.base
    }

    fn has(&self, number: u64) -> bool {
        number <= self.last()
    }

    /// Returns the same through this number only.
    fn until(&self, number: u64) -> Timeline {
        let count = number as usize;
        Timeline {
            base: number,
            states: self.states[..=count].to_vec(),
            changes: self.changes[..=count].to_vec(),
            commands: self.commands[..count].to_vec(),
            log: self.log.iter().filter(|(at, _)| *at <= number).cloned().collect(),
            positions: self
                .positions
                .iter()
                .filter(|(_, at)| **at <= number)
                .map(|(n, p)| (*n, *p))
                .collect(),
        }
    }

    /// Returns the state after this number.
    pub(super) fn state(&self, number: u64) -> Option<&Model> {
        self.states.get(number as usize)
    }

    /// Returns the number of a command.
    pub(super) fn number_of(&self, name: Name) -> Option<u64> {
        self.positions.get(&name).copied()
    }

    /// Returns the commands that this service executed: the number and the client's name of each.
    pub(super) fn names(&self) -> impl Iterator<Item = (u64, Name)> {
        let own = self.positions.iter().filter(|(_, number)| **number > self.base);
        own.map(|(name, number)| (*number, *name))
    }

    /// Returns why a command is refused in the state after this number, if that is a reason for which it is not ordered.
    pub(super) fn refuses(&self, number: u64, command: Option<&Command>) -> Option<Refusal> {
        let refusal = self.state(number)?.after(command).1.err()?;
        refusal.reason.is_of_rights().then_some(refusal)
    }

    /// Says what is wrong with the reply to a command that was refused before it was ordered.
    pub(super) fn fault_of_refusal(&self, command: Option<&Command>, reply: &Reply) -> Option<String> {
        let right = self.refuses(reply.number, command);
        let changes = self.changes.get(reply.number as usize).copied();
        let is_right = right.is_some() && reply.result.as_ref().err() == right.as_ref();
        (!is_right || changes != Some(reply.changes))
            .then(|| format!("without a number, where {right:?} and {changes:?} changes are right"))
    }

    /// Returns the commands by number, the first of which is 1.
    pub(super) fn commands(&self) -> impl Iterator<Item = (u64, &Recorded)> {
        (1..).zip(&self.commands)
    }

    pub(super) fn command(&self, number: u64) -> Option<&Recorded> {
        self.commands.get(number.checked_sub(1)? as usize)
    }

    /// Returns the changes of a directory from a number through another.
    pub(super) fn changes_of(&self, directory: u64, from: u64, through: u64) -> Vec<(u64, &Changed)> {
        let is_meant = |(number, changed): &&(u64, Changed)| {
            (from..=through).contains(number) && changed.directory == directory
        };
        self.log.iter().filter(is_meant).map(|(number, changed)| (*number, changed)).collect()
    }

    /// Returns the length of all changes from a number through another, in bytes as servers keep them.
    pub(super) fn log_bytes(&self, from: u64, through: u64) -> u64 {
        let kept = self.log.iter().filter(|(number, _)| (from..=through).contains(number));
        kept.map(|(_, changed)| 18 + changed.name.as_str().len() as u64).sum()
    }

    /// Says what is wrong with a reply to a query.
    pub(super) fn fault_of(&self, query: &Query, reply: &Reply) -> Option<String> {
        let Some(state) = self.state(reply.number) else {
            return Some(format!("there is no number {}", reply.number));
        };
        let changes = self.changes[reply.number as usize];
        if reply.changes != changes {
            return Some(format!("{changes} commands had changed something, not {}", reply.changes));
        }
        match query {
            Query::Changes { place, from } => match state.watched(place) {
                // A watch waits at a server that is behind, since the place may be there later.
                Err(_) if *from > reply.number + 1 && is_future(reply) => None,
                Err(reason) => differs(&reply.result, &Err(reason.into())),
                Ok(directory) => super::changes::fault_of(self, directory, *from, reply),
            },
            _ => differs(&without_history(&reply.result), &state.ask(query)),
        }
    }
}

/// True if a reply says that its number is not yet the one that was asked for.
fn is_future(reply: &Reply) -> bool {
    reply.result == Err(Reason::Future { number: reply.number }.into())
}

/// Returns the result without what the model does not know.
fn without_history(result: &Result<Answer, Refusal>) -> Result<Answer, Refusal> {
    match result {
        Ok(Answer::Info(info)) => Ok(Answer::Info(unisono_table::Info { kept_from: 0, ..*info })),
        result => result.clone(),
    }
}

fn differs(got: &Result<Answer, Refusal>, right: &Result<Answer, Refusal>) -> Option<String> {
    (got != right).then(|| format!("got {got:?} where {right:?} is right"))
}

/// Returns `Denied` or `NotFound` if the result is one of them.
pub(super) fn refusal_of(result: &Result<Answer, Refusal>) -> Option<Reason> {
    let reason = result.as_ref().err()?.reason;
    matches!(reason, Reason::Denied | Reason::NotFound).then_some(reason)
}

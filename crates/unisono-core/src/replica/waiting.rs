//! Commands that this member submitted and whose outcome it does not know yet: those of callers and its own.

use super::types::CommandNumber;
use super::word::{COMMAND_HEAD_BYTES, Ordered};
use crate::identity::{EpochId, Uid};
use crate::quality::Quality;
use crate::rpc::{CallNumber, Request, RequestId, Source};
use crate::shares::{Bound, Counts};
use crate::time::Time;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use bytes::Bytes;

/// Maximum bytes of the messages of commands that wait. One is taken in any case.
pub(super) const WAITING_BYTES_MAX: usize = 64 << 20;
/// The same of one client: large commands of one client follow each other.
const CLIENT_WAITING_BYTES_MAX: usize = WAITING_BYTES_MAX / 4;
/// The same of all clients, with the share of a source address. The number of commands is bounded by the queue of requests.
const WAITING: Bound = Bound { most: WAITING_BYTES_MAX, part: 2 };

/// The commands, by client and number.
pub(super) struct Waiting {
    /// Uid under which the commands of this process are remembered.
    client: Uid,
    /// Number of commands of this process so far.
    begun: CommandNumber,
    commands: BTreeMap<(Uid, CallNumber), Entry>,
    /// Bytes of their messages.
    bytes: usize,
    /// The same of each client, and of each source address.
    of_clients: Counts<Uid>,
    of_sources: Counts<Source>,
}

struct Entry {
    /// Requests to answer; there are several if a client repeated its call.
    requests: Vec<Asked>,
    own: Option<CommandNumber>,
    /// In whose share it is: the source of its first request.
    source: Option<Source>,
    payload: Bytes,
    quality: Quality,
    finished_below: CallNumber,
    deadline: Time,
    /// Founding epoch of the service that it was submitted to, which may have executed it.
    submitted_in: Option<EpochId>,
}

/// A request, for its answer.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) id: RequestId,
    pub(super) source: Source,
    /// How often it was passed on.
    pub(super) hops: u8,
    pub(super) deadline: Time,
    /// The handler that it names.
    pub(super) handler: Option<Box<str>>,
}

impl Asked {
    pub(super) fn of(request: &Request) -> Asked {
        let handler = request.handler().map(Box::from);
        let Request { id, source, hops, deadline, .. } = *request;
        Asked { id, source, hops, deadline, handler }
    }
}

/// Those that wait for the outcome of one command.
pub(super) struct Waiters {
    /// Requests to answer.
    pub(super) requests: Vec<Asked>,
    pub(super) own: Option<CommandNumber>,
    pub(super) source: Option<Source>,
}

impl Waiting {
    pub(super) fn new(client: Uid) -> Waiting {
        Waiting {
            client,
            begun: 0,
            commands: BTreeMap::new(),
            bytes: 0,
            of_clients: Counts::default(),
            of_sources: Counts::default(),
        }
    }

    /// Returns the bytes of the messages of all commands that wait.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// True if a command of this length may be added.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.is_empty() || self.bytes + bytes + COMMAND_HEAD_BYTES <= WAITING_BYTES_MAX
    }

    /// True if a request may be added: a repeat of one that waits takes no room.
    pub(super) fn has_room_for(&self, request: &Request) -> bool {
        let bytes = request.payload.len() + COMMAND_HEAD_BYTES;
        let of_client = self.of_clients.get(&request.client);
        let of_source = self.of_sources.get(&request.source);
        let has_share = of_client == 0 || of_client + bytes <= CLIENT_WAITING_BYTES_MAX;
        let has_room = self.is_empty() || WAITING.admits(self.bytes, of_source, bytes);
        self.commands.contains_key(&(request.client, request.call)) || has_share && has_room
    }

    pub(super) fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    /// Adds a caller's request, and returns the message to submit.
    pub(super) fn add_request(&mut self, now: Time, request: Request) -> Ordered {
        let key = (request.client, request.call);
        let (asked, deadline) = (Asked::of(&request), request.deadline);
        let (source, length) = (request.source, request.payload.len() + COMMAND_HEAD_BYTES);
        if !self.commands.contains_key(&key) {
            self.count(key.0, Some(source), length);
        }
        let entry = self.commands.entry(key).or_insert_with(|| Entry {
            requests: Vec::new(),
            own: None,
            source: Some(source),
            quality: request.wishes.map_or(Quality::ORDERED, |wishes| wishes.quality),
            payload: request.payload,
            finished_below: request.finished_below,
            deadline: request.deadline,
            submitted_in: None,
        });
        entry.requests.push(asked);
        entry.deadline = entry.deadline.max(deadline);
        entry.ordered(now, key)
    }

    /// Adds a command of this process, and returns its number and the message to submit. `service` is the founding epoch
    /// of the service that it is submitted to; `None` if it waits for one.
    pub(super) fn add_own(
        &mut self,
        now: Time,
        payload: Bytes,
        deadline: Time,
        service: Option<EpochId>,
    ) -> (CommandNumber, Ordered) {
        self.begun += 1;
        let number = self.begun;
        let key = (self.client, number);
        let finished_below = self.first_own().unwrap_or(number);
        let (requests, submitted_in) = (Vec::new(), service);
        let quality = Quality::ORDERED;
        let (own, source) = (Some(number), None);
        let entry = Entry { requests, own, source, payload, quality, finished_below, deadline, submitted_in };
        let ordered = entry.ordered(now, key);
        self.count(key.0, None, entry.bytes());
        self.commands.insert(key, entry);
        (number, ordered)
    }

    /// Returns the number of an own command that is not carried out.
    pub(super) fn skip(&mut self) -> CommandNumber {
        self.begun += 1;
        self.begun
    }

    /// Returns the lowest number of an own command without an outcome.
    fn first_own(&self) -> Option<CommandNumber> {
        let own = (self.client, CallNumber::MIN)..=(self.client, CallNumber::MAX);
        self.commands.range(own).next().map(|((_, number), _)| *number)
    }

    /// Returns the messages of all commands that wait.
    pub(super) fn commands(&self, now: Time) -> Vec<Ordered> {
        let live = self.commands.iter().filter(|(_, entry)| entry.deadline > now);
        live.map(|(key, entry)| entry.ordered(now, *key)).collect()
    }

    /// True if something here waits for this command.
    pub(super) fn has(&self, client: Uid, call: CallNumber) -> bool {
        self.commands.contains_key(&(client, call))
    }

    /// Takes out those that wait for a command, which has an outcome.
    pub(super) fn take(&mut self, client: Uid, call: CallNumber) -> Option<Waiters> {
        if self.commands.is_empty() {
            return None;
        }
        let entry = self.commands.remove(&(client, call))?;
        self.release(client, &entry);
        Some(Waiters { requests: entry.requests, own: entry.own, source: entry.source })
    }

    /// Takes out all requests of callers. Own commands stay.
    pub(super) fn take_requests(&mut self) -> Vec<RequestId> {
        let mut requests = Vec::new();
        self.retain(|entry| {
            requests.extend(entry.requests.drain(..).map(|asked| asked.id));
            entry.own.is_some()
        });
        requests
    }

    /// Takes over the own commands of an earlier life.
    pub(super) fn take_own(&mut self, earlier: Waiting) {
        self.begun = earlier.begun;
        for (key, entry) in earlier.commands.into_iter().filter(|(_, entry)| entry.own.is_some()) {
            self.count(key.0, None, entry.bytes());
            self.commands.insert(key, Entry { requests: Vec::new(), source: None, ..entry });
        }
    }

    /// Begins to submit to the service that was founded in this epoch. Returns the own commands that were submitted to
    /// another service, and gives them up: it may have executed them.
    pub(super) fn begin_service(&mut self, service: EpochId) -> Vec<CommandNumber> {
        let mut elsewhere = Vec::new();
        self.retain(|entry| {
            if entry.own.is_some() && entry.submitted_in.is_some_and(|earlier| earlier != service) {
                elsewhere.extend(entry.own.take());
            }
            entry.submitted_in = Some(service);
            entry.own.is_some() || !entry.requests.is_empty()
        });
        elsewhere
    }

    /// Drops what is past its deadline, and returns the own commands and the requests among it.
    pub(super) fn drop_expired(&mut self, now: Time) -> (Vec<CommandNumber>, Vec<RequestId>) {
        let (mut own, mut requests) = (Vec::new(), Vec::new());
        self.retain(|entry| {
            let expired = entry.requests.extract_if(.., |asked| asked.deadline <= now);
            requests.extend(expired.map(|asked| asked.id));
            if entry.own.is_some() && entry.deadline <= now {
                own.extend(entry.own.take());
            }
            entry.own.is_some() || !entry.requests.is_empty()
        });
        (own, requests)
    }

    /// Takes out all own commands.
    pub(super) fn take_all_own(&mut self) -> Vec<CommandNumber> {
        let own = self.commands.values_mut().filter_map(|entry| entry.own.take()).collect();
        self.retain(|entry| !entry.requests.is_empty());
        own
    }

    /// Notes that a command waits.
    fn count(&mut self, client: Uid, source: Option<Source>, bytes: usize) {
        self.bytes += bytes;
        self.of_clients.add(client, bytes);
        if let Some(source) = source {
            self.of_sources.add(source, bytes);
        }
    }

    /// Notes that a command does not wait any longer.
    fn release(&mut self, client: Uid, entry: &Entry) {
        self.bytes -= entry.bytes();
        self.of_clients.subtract(client, entry.bytes());
        if let Some(source) = entry.source {
            self.of_sources.subtract(source, entry.bytes());
        }
    }

    /// Drops those for which `stays` is false.
    fn retain(&mut self, mut stays: impl FnMut(&mut Entry) -> bool) {
        let mut commands = core::mem::take(&mut self.commands);
        commands.retain(|(client, _), entry| {
            let stays = stays(entry);
            if !stays {
                self.release(*client, entry);
            }
            stays
        });
        self.commands = commands;
    }
}

impl Entry {
    /// Returns the length of its message.
    fn bytes(&self) -> usize {
        self.payload.len() + COMMAND_HEAD_BYTES
    }

    fn ordered(&self, now: Time, (client, call): (Uid, CallNumber)) -> Ordered {
        Ordered {
            client,
            call,
            finished_below: self.finished_below,
            left_ms: self.deadline.since(now).as_millis() as u64,
            stamp_ms: now.as_nanos() / 1_000_000,
            quality: self.quality,
            payload: self.payload.clone(),
        }
    }
}

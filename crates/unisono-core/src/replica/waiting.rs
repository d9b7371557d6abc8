//! Commands whose outcome this member does not know yet: those of callers and its own.
//!
//! A group takes a window of messages at a time, and what waits for that waits in a line. So callers' commands are submitted
//! only while few have no place in the order yet, and while those without an outcome keep the servers busy for little time.
//! The others wait in lanes, one for each source address, which take turns: one with thousands of commands holds up another's
//! first one for a few places of the order alone, and costly commands of any number of addresses hold up a cheap one for those
//! under way and one more.

use super::types::{Answer, CommandNumber};
use super::word::{COMMAND_HEAD_BYTES, Ordered};
use crate::identity::{EpochId, Uid};
use crate::lanes::{FavouredFirst, is_costly};
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

/// Maximum number of commands without a place in the order for which a caller's command is submitted. Where an order takes
/// 10 ms, this many make 25,600 commands a second.
const UNPLACED_MAX: usize = 256;

/// Cost of callers' commands without an outcome, beyond one unit for each of them, for which no other one is submitted: each
/// server works for about 1.3 ms for them. The last one may cost any amount. By the default of [`StateMachine::cost`] that is
/// 512 KiB; where an outcome takes 5 ms, 100 MB a second.
///
/// [`StateMachine::cost`]: super::StateMachine::cost
const UNDER_WAY_COST_MAX: u32 = 128;

/// The commands, by client and number.
pub(super) struct Waiting {
    /// Uid under which the commands of this process are remembered.
    client: Uid,
    /// Number of commands of this process so far.
    begun: CommandNumber,
    commands: BTreeMap<(Uid, CallNumber), Entry>,
    /// The callers' commands that are not submitted yet, and some that wait no longer.
    queued: FavouredFirst<(Uid, CallNumber)>,
    /// Number of commands that are submitted and have no place in the order yet, as far as this member knows.
    unplaced: usize,
    /// Maximum of that number for which a caller's command is submitted.
    unplaced_max: usize,
    /// Cost of the callers' commands that had their turn, beyond one unit for each.
    under_way_cost: u32,
    /// Bytes of the messages of all commands here.
    bytes: usize,
    /// The same of each client, and of each source address.
    of_clients: Counts<Uid>,
    of_sources: Counts<Source>,
}

/// How far a command has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It waits for its turn.
    Queued,
    Submitted,
    /// It is in the order, and waits for its outcome.
    Placed,
}

struct Entry {
    stage: Stage,
    /// Requests to answer; there are several if a client repeated its call.
    requests: Vec<Asked>,
    own: Option<CommandNumber>,
    /// In whose share it is: the source of its first request.
    source: Option<Source>,
    payload: Bytes,
    cost: u32,
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
    /// It showed no right to what it asks for.
    pub(super) is_denied: bool,
}

impl Asked {
    pub(super) fn of(request: &Request) -> Asked {
        let handler = request.handler().map(Box::from);
        let Request { id, source, hops, deadline, .. } = *request;
        Asked { id, source, hops, deadline, handler, is_denied: false }
    }

    /// Returns the answer with this reply.
    pub(super) fn replied(&self, reply: Bytes) -> Answer {
        if self.is_denied { Answer::Deny(reply) } else { Answer::Reply(reply) }
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
    pub(super) fn new(client: Uid, window: u32) -> Waiting {
        Waiting {
            client,
            begun: 0,
            commands: BTreeMap::new(),
            queued: FavouredFirst::default(),
            unplaced: 0,
            unplaced_max: unplaced_max(window),
            under_way_cost: 0,
            bytes: 0,
            of_clients: Counts::default(),
            of_sources: Counts::default(),
        }
    }

    /// Takes the window of the group that was entered.
    pub(super) fn set_window(&mut self, window: u32) {
        self.unplaced_max = unplaced_max(window);
    }

    /// Returns the bytes of the messages of all commands that wait.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    #[cfg(test)]
    pub(super) fn bytes_counted_anew(&self) -> usize {
        self.commands.values().map(Entry::bytes).sum()
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

    /// Adds a caller's request. One whose command waits here waits for the same outcome, and orders nothing, however often a client
    /// repeats its call. What may have dropped the command, such as a reset, submits it again (`Replica::submit_all_commands`).
    pub(super) fn add_request(&mut self, request: Request, cost: u32, is_denied: bool) {
        let key = (request.client, request.call);
        let (asked, deadline) = (Asked { is_denied, ..Asked::of(&request) }, request.deadline);
        let (source, length) = (request.source, request.payload.len() + COMMAND_HEAD_BYTES);
        let (is_new, cost) = (!self.commands.contains_key(&key), cost.max(1));
        if is_new {
            self.count(key.0, Some(source), length);
            self.queued.push(source, key, !is_costly(cost));
        }
        let entry = self.commands.entry(key).or_insert_with(|| Entry {
            stage: Stage::Queued,
            requests: Vec::new(),
            own: None,
            source: Some(source),
            quality: request.wishes.map_or(Quality::ORDERED, |wishes| wishes.quality),
            payload: request.payload,
            cost,
            finished_below: request.finished_below,
            deadline: request.deadline,
            submitted_in: None,
        });
        entry.requests.push(asked);
        entry.deadline = entry.deadline.max(deadline);
    }

    /// Returns the message of the next caller's command to submit, while few have no place, and little work has no outcome.
    pub(super) fn take_turn(&mut self, now: Time) -> Option<Ordered> {
        while self.unplaced < self.unplaced_max && self.under_way_cost < UNDER_WAY_COST_MAX {
            let key = self.queued.pop()?;
            if let Some(entry) = self.commands.get_mut(&key).filter(|entry| entry.stage == Stage::Queued) {
                entry.stage = Stage::Submitted;
                self.unplaced += 1;
                self.under_way_cost += entry.cost - 1;
                return Some(entry.ordered(now, key));
            }
        }
        None
    }

    /// Notes that a command has its place in the order.
    pub(super) fn note_placed(&mut self, client: Uid, call: CallNumber) {
        // One that waits for its turn again, after an earlier attempt was given up here, costs nothing yet.
        let entry = self.commands.get_mut(&(client, call));
        if let Some(entry) = entry.filter(|entry| entry.stage == Stage::Submitted) {
            self.unplaced -= 1;
            entry.stage = Stage::Placed;
        }
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
        let (own, source, cost) = (Some(number), None, 1);
        let stage = Stage::Submitted;
        let entry = Entry {
            stage,
            requests,
            own,
            source,
            payload,
            cost,
            quality,
            finished_below,
            deadline,
            submitted_in,
        };
        self.unplaced += 1;
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

    /// Returns the messages of all commands that were submitted and wait.
    pub(super) fn commands(&self, now: Time) -> Vec<Ordered> {
        let is_live = |entry: &Entry| entry.stage != Stage::Queued && entry.deadline > now;
        let live = self.commands.iter().filter(|(_, entry)| is_live(entry));
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
            self.unplaced += 1;
            let stage = Stage::Submitted;
            self.commands.insert(key, Entry { stage, requests: Vec::new(), source: None, ..entry });
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
        self.unplaced -= usize::from(entry.stage == Stage::Submitted);
        self.of_clients.subtract(client, entry.bytes());
        if let Some(source) = entry.source {
            self.of_sources.subtract(source, entry.bytes());
            self.under_way_cost -= if entry.stage == Stage::Queued { 0 } else { entry.cost - 1 };
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
        self.queued.retain(|key| commands.contains_key(key));
        self.commands = commands;
    }
}

/// Returns the number of commands that may wait for their place in a group with this window.
fn unplaced_max(window: u32) -> usize {
    (window as usize).clamp(1, UNPLACED_MAX)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Port;

    const NOW: Time = Time::from_nanos(1_000_000_000);
    const LATER: Time = Time::from_nanos(9_000_000_000);

    /// A command of a client at this host.
    fn request(host: u8, call: CallNumber) -> Request {
        Request {
            id: RequestId::numbered(u32::from(host) * 100 + call as u32),
            port: Port::default(),
            client: Uid(host.into()),
            source: Source::of_host(host),
            is_stranger: false,
            call,
            finished_below: 0,
            hops: 0,
            again: false,
            deadline: LATER,
            wishes: None,
            whole_bytes: None,
            payload: Bytes::from_static(b"command"),
        }
    }

    /// Returns the client and number of each command whose turn it is.
    fn turns(waiting: &mut Waiting) -> Vec<(u64, CallNumber)> {
        let next = || waiting.take_turn(NOW).map(|ordered| (ordered.client.0, ordered.call));
        core::iter::from_fn(next).collect()
    }

    fn with(window: u32, requests: &[(u8, CallNumber)]) -> Waiting {
        let mut waiting = Waiting::new(Uid(77), window);
        for (host, call) in requests {
            waiting.add_request(request(*host, *call), 1, false);
        }
        waiting
    }

    #[test]
    fn an_address_with_many_commands_holds_up_another_for_one_turn() {
        let mut waiting = with(2, &[(1, 1), (1, 2), (1, 3), (1, 4)]);
        assert_eq!(turns(&mut waiting), [(1, 1), (1, 2)]);
        waiting.add_request(request(2, 1), 1, false);
        assert_eq!(turns(&mut waiting), [], "two have no place");
        waiting.note_placed(Uid(1), 1);
        waiting.note_placed(Uid(1), 1);
        assert_eq!(turns(&mut waiting), [(1, 3)]);
        waiting.note_placed(Uid(1), 2);
        assert_eq!(turns(&mut waiting), [(2, 1)]);
        // An outcome frees a turn too, and once.
        waiting.take(Uid(1), 1).unwrap();
        assert_eq!(turns(&mut waiting), []);
        waiting.take(Uid(1), 3).unwrap();
        assert_eq!(turns(&mut waiting), [(1, 4)]);
    }

    #[test]
    fn large_commands_under_way_are_few_and_let_small_ones_pass() {
        let large =
            |host, call| Request { payload: Bytes::from(alloc::vec![0; 300 << 10]), ..request(host, call) };
        let mut waiting = Waiting::new(Uid(77), 256);
        (1..=5).for_each(|host| waiting.add_request(large(host, 1), 76, false));
        assert_eq!(turns(&mut waiting), [(1, 1), (2, 1)]);
        waiting.add_request(request(9, 1), 1, false);
        waiting.note_placed(Uid(1), 1);
        assert_eq!(turns(&mut waiting), [], "both wait for their outcomes");
        waiting.take(Uid(1), 1).unwrap();
        assert_eq!(turns(&mut waiting), [(9, 1), (3, 1)]);
        let (_, requests) = waiting.drop_expired(LATER);
        assert_eq!((requests.len(), waiting.under_way_cost), (5, 0));
    }

    #[test]
    fn an_earlier_attempt_that_gets_its_place_late_takes_no_turn_from_a_repeat() {
        let mut waiting = with(1, &[(2, 1), (1, 1)]);
        assert_eq!(turns(&mut waiting), [(2, 1)]);
        waiting.add_request(request(1, 2), 50, false);
        waiting.note_placed(Uid(1), 2);
        waiting.take(Uid(1), 2).unwrap();
        assert_eq!((waiting.unplaced, waiting.under_way_cost), (1, 0));
        waiting.note_placed(Uid(2), 1);
        assert_eq!(turns(&mut waiting), [(1, 1)]);
    }

    #[test]
    fn repeats_order_nothing_more_and_are_all_answered() {
        let mut waiting = with(1, &[(1, 1), (1, 2)]);
        assert_eq!(turns(&mut waiting), [(1, 1)]);
        waiting.add_request(request(1, 1), 1, false);
        waiting.add_request(request(1, 2), 1, false);
        assert_eq!(turns(&mut waiting), []);
        let submitted: Vec<CallNumber> = waiting.commands(NOW).iter().map(|ordered| ordered.call).collect();
        assert_eq!(submitted, [1], "after a reset; the other one waits for its turn");
        assert_eq!(waiting.take(Uid(1), 1).unwrap().requests.len(), 2);
        assert_eq!(turns(&mut waiting), [(1, 2)]);
    }

    #[test]
    fn what_is_given_up_takes_no_turn() {
        let mut waiting = with(1, &[(1, 1), (1, 2), (2, 1)]);
        assert_eq!(turns(&mut waiting), [(1, 1)]);
        let (_, requests) = waiting.drop_expired(LATER);
        assert_eq!((requests.len(), waiting.is_empty(), waiting.unplaced), (3, true, 0));
        waiting.add_request(request(3, 1), 1, false);
        assert_eq!(turns(&mut waiting), [(3, 1)]);
        assert_eq!((waiting.take_requests().len(), waiting.unplaced), (1, 0));
        // Own commands wait for no turn, and take part in the number.
        waiting.add_own(NOW, Bytes::new(), LATER, None);
        waiting.add_request(request(1, 1), 1, false);
        assert_eq!(turns(&mut waiting), []);
        waiting.note_placed(Uid(77), 1);
        assert_eq!(turns(&mut waiting), [(1, 1)]);
        let mut next = Waiting::new(Uid(77), 1);
        next.take_own(waiting);
        assert_eq!(next.unplaced, 1, "it is submitted again");
    }
}

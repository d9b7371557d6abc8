//! Everything that is the same at each member after the same event: the user's state, the memory of commands, the
//! members that have the state, and the digest of all outcomes.

use super::Watched;
use super::answering::NOT_WAITED_FOR;
use super::chain::Chain;
use super::disk::{DiskDurability, Escape, Heard};
use super::durable::{Entry, Ledger, Mark, Place, Plan, What};
use super::machine::{Command, NotRestored, Outcome, Position, Server, StateMachine};
use super::memory::{Known, Memory};
use super::minimum::Minimum;
use super::snapshot::Snapshot;
use super::types::{Digest, ReplicaSettings};
use super::word::{Ordered, Word};
use crate::event::{Event, View};
use crate::identity::{EpochId, Name, Seqno, Uid};
use crate::locks::{LockRequest, LockTable};
use crate::planted::Planted;
use crate::rpc::{CallNumber, Request, Source};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use bytes::{Buf, BufMut, Bytes};

/// Version of the first part of a snapshot, which holds all but the user's state.
const HEAD_VERSION: u8 = 2;
/// Bytes of applied entries after which all servers write a snapshot. The simulator's logs are short, and are to be cut
/// too.
const SNAPSHOT_AFTER_BYTES: u64 = if cfg!(feature = "planted") { 4 << 10 } else { 64 << 20 };
pub(super) const NO_ROOM: &[u8] = b"busy: no room: the service has too many clients or commands to remember; try again later; nothing happened";
const OUTCOME_NOT_KEPT: &[u8] = b"the call happened, and its reply is not kept any longer";

/// A copy. See the module.
pub(super) struct Replicated<S> {
    machine: S,
    /// Epoch in which the group was founded: another service of its name has another one.
    founded_in: EpochId,
    memory: Memory,
    chain: Chain,
    /// Members that have the state.
    copies: BTreeSet<Uid>,
    minimum: Minimum,
    /// The members in the lines of handlers.
    handlers: LockTable,
    /// True if they may have changed since [`Replicated::take_lines_changed`].
    lines_changed: bool,
    view: Option<View>,
    /// Seqno of the last event that was applied.
    at: Seqno,
    /// A call of `members` that a planted bug delays.
    members_due: bool,
    /// Present at servers with disks.
    ledger: Option<Ledger>,
    /// Bytes of entries that were applied since the servers last wrote a snapshot.
    logged_bytes: u64,
}

/// What an event did.
pub(super) enum Applied {
    /// Nothing that any waits for.
    Nothing,
    /// It was a command.
    Command {
        client: Uid,
        call: CallNumber,
        /// Position after the command.
        position: Position,
        /// `None` if its client cannot be waiting for it.
        outcome: Option<Outcome>,
    },
    /// It was the digest of a copy.
    Digest { by: Uid, position: Position, digest: Digest },
    /// It is an entry of the log, which is applied later.
    Logged(Bytes),
    /// A server's disk has joined.
    DiskHeard,
}

/// Why a state was not replaced by a snapshot.
pub(super) enum NotReplaced {
    /// The state is as it was.
    AsBefore(NotRestored),
    /// The state machine does not take its own state back either.
    Spoiled(NotRestored),
}

impl<S: StateMachine> Replicated<S> {
    /// Returns the state with which the founders of a group begin.
    pub(super) fn founded(machine: S, view: View, settings: &ReplicaSettings) -> Replicated<S> {
        let mut founded = Replicated {
            machine,
            founded_in: view.epoch,
            memory: Memory::default(),
            chain: Chain::new(settings.digest, 0, Digest::default()),
            copies: view.members.iter().map(|member| member.uid).collect(),
            minimum: Minimum::of(settings),
            handlers: LockTable::default(),
            lines_changed: true,
            view: Some(view),
            at: 0,
            members_due: false,
            ledger: None,
            logged_bytes: 0,
        };
        founded.recount();
        founded.show_members();
        founded
    }

    /// Returns the state of a disk: the parts of its snapshot, if it has one, and the entries of its log after it.
    pub(super) fn of_disk(
        mut machine: S,
        (place, parts): (Place, &[Bytes]),
        entries: Vec<Bytes>,
        (service, settings): ((u8, DiskDurability), &ReplicaSettings),
    ) -> Result<Replicated<S>, NotRestored> {
        if entries.iter().any(|entry| Entry::read(entry.clone()).is_none()) {
            return Err(NotRestored("an entry of the log is not valid"));
        }
        let head = match parts.first() {
            Some(head) => read_head(head.clone()),
            None => Some(Head::default()),
        };
        let head = head.ok_or(NotRestored("the first part of the snapshot is not valid"))?;
        if !parts.is_empty() {
            machine.restore(parts.get(1..).unwrap_or_default())?;
        }
        Ok(Replicated {
            machine,
            founded_in: head.founded_in,
            memory: head.memory,
            chain: Chain::new(settings.digest, head.position, head.digest),
            copies: BTreeSet::new(),
            minimum: Minimum::of(settings),
            handlers: LockTable::default(),
            lines_changed: true,
            view: None,
            at: 0,
            members_due: false,
            ledger: Some(Ledger::new(service, place, entries)),
            logged_bytes: head.logged_bytes,
        })
    }

    /// Returns the state that a snapshot contains. `view` is that at the snapshot's seqno. On failure the state machine
    /// comes back.
    pub(super) fn restored(
        mut machine: S,
        (at, parts): (Seqno, &[Bytes]),
        view: Option<View>,
        settings: &ReplicaSettings,
    ) -> Result<Replicated<S>, (S, NotRestored)> {
        let beginning = match read_beginning(parts) {
            Ok(beginning) => beginning,
            Err(reason) => return Err((machine, reason)),
        };
        match machine.restore(parts.get(2..).unwrap_or_default()) {
            Ok(()) => Ok(Replicated::with(machine, beginning, (at, view), settings)),
            Err(reason) => Err((machine, reason)),
        }
    }

    /// Returns the state of a machine that has been restored, with what else the snapshot contains.
    fn with(
        machine: S,
        (Order { copies, handlers, ledger }, head): Beginning,
        (at, view): (Seqno, Option<View>),
        settings: &ReplicaSettings,
    ) -> Replicated<S> {
        let mut state = Replicated {
            machine,
            founded_in: head.founded_in,
            memory: head.memory,
            chain: Chain::new(settings.digest, head.position, head.digest),
            copies,
            minimum: Minimum::of(settings),
            handlers,
            lines_changed: true,
            view,
            at,
            members_due: false,
            ledger,
            logged_bytes: head.logged_bytes,
        };
        state.forget_former_members();
        state
    }

    /// Like [`Replicated::restored`], in place of this state. Returns the state that is here then, and whether it is the new
    /// one.
    pub(super) fn replaced(
        mut self,
        (at, parts): (Seqno, &[Bytes]),
        view: Option<View>,
        settings: &ReplicaSettings,
    ) -> (Replicated<S>, Result<(), NotReplaced>) {
        let beginning = match read_beginning(parts) {
            Ok(beginning) => beginning,
            Err(reason) => return (self, Err(NotReplaced::AsBefore(reason))),
        };
        let own = self.machine.snapshot();
        match self.machine.restore(parts.get(2..).unwrap_or_default()) {
            Ok(()) => (Replicated::with(self.machine, beginning, (at, view), settings), Ok(())),
            Err(reason) => match self.machine.restore(&own) {
                Ok(()) => (self, Err(NotReplaced::AsBefore(reason))),
                Err(_) => (self, Err(NotReplaced::Spoiled(reason))),
            },
        }
    }

    /// Prepares a part of the next state that is taken. Returns true if nothing is left to prepare.
    pub(super) fn prepare(&mut self) -> bool {
        self.machine.prepare_snapshot()
    }

    /// Returns the present state for a newcomer. The first part holds what belongs to the present group, the second all
    /// of the state but the user's.
    pub(super) fn snapshot(&self, watched: Watched) -> Snapshot {
        let mut order = Vec::new();
        order.put_u32(self.copies.len() as u32);
        self.copies.iter().for_each(|copy| order.put_u64(copy.0));
        let handlers = self.handlers.snapshot();
        order.put_u32(handlers.len() as u32);
        order.put_slice(&handlers);
        if let Some(ledger) = &self.ledger {
            ledger.write(&mut order);
        }
        let parts = core::iter::once(order.into()).chain(self.state_parts(watched)).collect();
        Snapshot { at: self.at, parts }
    }

    /// True if this is a member of the group at this point of the order. Then the state contains everything that the member
    /// has not received.
    pub(super) fn has_member(&self, member: Uid) -> bool {
        self.view.as_ref().is_some_and(|view| view.contains(member))
    }

    /// Returns the parts of the state, the same at all servers that applied the same commands.
    pub(super) fn state_parts(&self, watched: Watched) -> Vec<Bytes> {
        let mut head = Vec::new();
        head.put_u8(HEAD_VERSION);
        head.put_u64(self.founded_in.counter);
        head.put_u64(self.founded_in.coordinator.0);
        head.put_u64(self.founded_in.nonce);
        head.put_u64(self.chain.position);
        head.put_slice(&self.chain.digest);
        head.put_u64(self.logged_bytes);
        match watched.broken(Planted::MemoryNotInSnapshot) {
            true => Memory::default().write(&mut head),
            false => self.memory.write(&mut head),
        }
        core::iter::once(head.into()).chain(self.machine.snapshot()).collect()
    }

    /// Applies an event that has a seqno.
    pub(super) fn apply(&mut self, event: &Event, me: Uid, watched: Watched) -> Applied {
        self.at = event.seqno().unwrap_or(self.at);
        match event {
            Event::Message { sender, payload, .. } => match Word::read(payload.clone()) {
                Some(word) => self.take(*sender, word, me, watched),
                None => Applied::Nothing,
            },
            Event::Joined { .. } | Event::Left { .. } | Event::Reset { .. } => {
                if let Some(view) = &mut self.view {
                    view.follow(event);
                }
                self.forget_former_members();
                if self.ledger.is_some() {
                    self.follow_members(event, watched);
                    let servers = self.servers();
                    return self.log(None, What::Members(servers));
                }
                match watched.broken(Planted::MembersElsewhere) {
                    true => self.members_due = true,
                    false => self.show_members(),
                }
                Applied::Nothing
            }
            _ => {
                if let Some(view) = &mut self.view {
                    view.follow(event);
                }
                Applied::Nothing
            }
        }
    }

    fn take(&mut self, sender: Uid, word: Word, me: Uid, watched: Watched) -> Applied {
        match word {
            Word::Command(command) if self.ledger.is_some() => {
                let Ordered { client, call, finished_below, left_ms, stamp_ms, payload, .. } = command;
                let received_by = self.view.as_ref().and_then(|view| view.get(sender)).map(Server::from);
                let what = What::Command { client, call, finished_below, left_ms, received_by, payload };
                self.log(Some((sender, stamp_ms)), what)
            }
            Word::Finished(clients) if self.ledger.is_some() => self.log(None, What::Finished(clients)),
            Word::Synced { generation, place } => {
                if let (Some(server), Some(ledger)) = (self.id_of(sender), &mut self.ledger) {
                    ledger.note_synced(server, generation, place);
                }
                Applied::Nothing
            }
            Word::OnDisk(disk) => {
                if let (Some(server), Some(ledger)) = (self.id_of(sender), &mut self.ledger) {
                    self.copies.insert(sender);
                    ledger.note_joined(server, disk, watched);
                    return Applied::DiskHeard;
                }
                Applied::Nothing
            }
            Word::ViewWritten { generation, number } => {
                if let (Some(server), Some(ledger)) = (self.id_of(sender), &mut self.ledger) {
                    ledger.note_view_written(server, generation, number);
                }
                Applied::Nothing
            }
            Word::Claim(name) => {
                if watched.broken(Planted::HandlerOfDeadKept) {
                    self.handlers.plant(Planted::LockKeptByExcluded);
                }
                self.lines_changed = true;
                // With its bounds reached, a claim is as if it had not been made.
                if self.has_member(sender) {
                    let request = LockRequest { member: sender, clock_us: 0, waits: true };
                    _ = self.handlers.acquire(&name, request);
                }
                Applied::Nothing
            }
            Word::GiveUp(name) => {
                self.lines_changed = true;
                if let Some(claim) = self.handlers.claim(&name, sender) {
                    _ = self.handlers.release(&name, sender, claim.number);
                }
                Applied::Nothing
            }
            Word::IsOpen | Word::Round { .. } => Applied::Nothing,
            // It takes effect nowhere: each copy sees here that too few members have the state.
            Word::Command(_) if !self.minimum.is_met(watched) => Applied::Nothing,
            Word::Command(command) => {
                let applied = self.execute(sender, command, watched);
                if self.members_due && sender == me {
                    self.members_due = false;
                    self.show_members();
                }
                applied
            }
            Word::HasState => {
                if self.view.as_ref().is_some_and(|view| view.contains(sender)) {
                    self.copies.insert(sender);
                    self.recount();
                }
                Applied::Nothing
            }
            Word::Finished(clients) => {
                self.free(clients);
                Applied::Nothing
            }
            Word::Digest { position, digest } => Applied::Digest { by: sender, position, digest },
        }
    }

    fn free(&mut self, clients: Vec<(Uid, CallNumber)>) {
        for (client, below) in clients {
            match below {
                CallNumber::MAX => self.memory.end(client),
                below => self.memory.finish(client, below),
            }
        }
    }

    fn execute(&mut self, sender: Uid, command: Ordered, watched: Watched) -> Applied {
        let Ordered { client, call, finished_below, left_ms, stamp_ms, payload, .. } = command;
        self.memory.tick(sender, stamp_ms);
        let received_by = self.view.as_ref().and_then(|view| view.get(sender)).map(Server::from);
        self.carry_out((client, call), (finished_below, left_ms), received_by.as_ref(), &payload, watched)
    }

    /// Lets a command take effect, unless it did before.
    fn carry_out(
        &mut self,
        (client, call): (Uid, CallNumber),
        (finished_below, left_ms): (CallNumber, u64),
        received_by: Option<&Server>,
        payload: &Bytes,
        watched: Watched,
    ) -> Applied {
        if watched.broken(Planted::MemoryFreedEarly) {
            self.memory.forget_others(client);
        }
        let outcome = match self.memory.look_up(client, call, finished_below, left_ms) {
            Known::Executed(outcome) => Some(outcome),
            Known::Dropped => Some(Outcome::Refuse(Bytes::from_static(OUTCOME_NOT_KEPT))),
            Known::NoRoom => Some(Outcome::Refuse(Bytes::from_static(NO_ROOM))),
            Known::Finished => None,
            Known::New => {
                let command = Command {
                    payload,
                    client,
                    call,
                    position: self.chain.position + 1,
                    time_ms: self.memory.now_ms(),
                    received_by,
                };
                let outcome = self.machine.apply(&command).checked();
                self.chain.extend(client, call, &outcome);
                self.memory.remember(client, call, self.chain.position, outcome.clone());
                Some(outcome)
            }
        };
        Applied::Command { client, call, position: self.chain.position, outcome }
    }

    // --- servers with disks ---

    /// Puts an entry into the log. Its time comes from the member that submitted it, if it says one.
    fn log(&mut self, stamp: Option<(Uid, u64)>, what: What) -> Applied {
        let Some(ledger) = &mut self.ledger else { return Applied::Nothing };
        let time_ms = match stamp {
            Some((sender, stamp_ms)) => ledger.tick(sender, stamp_ms),
            None => ledger.now_ms(),
        };
        let entry = Entry { time_ms, what }.write();
        ledger.push(entry.clone());
        Applied::Logged(entry)
    }

    /// Notes in the log which servers are members of the group after a change.
    fn follow_members(&mut self, change: &Event, watched: Watched) {
        let mut here = self.ids();
        let Some(ledger) = &mut self.ledger else { return };
        if let Event::Joined { member, .. } = change
            && let Some(joined) = server_id(&member.name)
        {
            // It may have another disk than before.
            ledger.forget(joined);
            here.remove(&joined);
        }
        ledger.note_members(&here, watched);
    }

    /// With durability *majority*: notes the mark of a member, from wherever this server heard it. Returns
    /// false if it counts for nothing.
    pub(super) fn note_mark(&mut self, by: Uid, mark: Mark) -> bool {
        let server = self.id_of(by);
        server.zip(self.ledger.as_mut()).is_some_and(|(server, ledger)| ledger.note_mark(server, mark))
    }

    /// Returns the ids of the members.
    fn ids(&self) -> BTreeSet<u8> {
        let members = self.view.iter().flat_map(|view| &view.members);
        members.filter_map(|member| server_id(&member.name)).collect()
    }

    /// Forgets what is after a place of the log: for a planted bug.
    pub(super) fn forget_after(&mut self, end: Place) {
        self.ledger.iter_mut().for_each(|ledger| ledger.truncate(end));
    }

    /// Returns the place through which entries are applied although they are not durable: for planted bugs.
    fn applied_early(&self, me: u8, reads: bool, watched: Watched) -> Place {
        let Some(ledger) = &self.ledger else { return 0 };
        match () {
            () if watched.broken(Planted::MarksOfView) => ledger.synced_by_most(&self.ids()),
            () if watched.broken(Planted::OwnPlaceUnsynced) => ledger.durable_if_synced(me),
            () if watched.broken(Planted::AnsweredUndurable) => ledger.end(),
            () if reads && watched.broken(Planted::ReadShowsUndurable) => ledger.end(),
            () if watched.broken(Planted::QuorumOfView) => ledger.synced_by_all(&self.ids()),
            () => 0,
        }
    }

    /// Applies the next entry of the log that is durable at server `me`. Returns what it did, and whether a snapshot is due
    /// after it. `reads` is true if a read asks for it.
    pub(super) fn apply_durable(&mut self, me: u8, reads: bool, watched: Watched) -> Option<(Applied, bool)> {
        let early = self.applied_early(me, reads, watched);
        let (Entry { time_ms, what }, bytes) = self.ledger.as_mut()?.take_durable(me, early, watched)?;
        self.memory.advance(time_ms);
        let applied = match what {
            What::Command { client, call, finished_below, left_ms, received_by, payload } => {
                let said = (finished_below, left_ms);
                self.carry_out((client, call), said, received_by.as_ref(), &payload, watched)
            }
            What::Members(servers) => {
                self.machine.members(&servers);
                Applied::Nothing
            }
            What::Finished(clients) => {
                self.free(clients);
                Applied::Nothing
            }
        };
        self.logged_bytes += bytes as u64;
        let is_due = self.logged_bytes >= SNAPSHOT_AFTER_BYTES;
        if is_due {
            self.logged_bytes = 0;
        }
        Some((applied, is_due))
    }

    /// Opens the service with this state, which all servers of the plan have on disk. Returns the first entry of the new
    /// generation, which names the members.
    pub(super) fn open(&mut self, (at, view): (Seqno, View), plan: &Plan, anew: Vec<Escape>) -> Applied {
        (self.at, self.copies) = (at, plan.good.keys().copied().collect());
        (self.handlers, self.lines_changed) = (LockTable::default(), true);
        self.view = Some(view);
        let now_ms = self.memory.now_ms();
        if let Some(ledger) = &mut self.ledger {
            ledger.set_service(plan.service, anew);
            ledger.begin(plan.generation, plan.good.values().copied(), now_ms);
            plan.disks.iter().for_each(|(server, disk)| ledger.note_disk(*server, *disk));
        }
        let servers = self.servers();
        self.log(None, What::Members(servers))
    }

    /// Notes where in the order a state is that is not open. It names no service until it is.
    pub(super) fn stand_at(&mut self, at: Seqno, view: &View) {
        (self.at, self.view) = (at, Some(view.clone()));
        if let Some(ledger) = &mut self.ledger {
            ledger.set_service(0, Vec::new());
        }
    }

    /// True if these are the parts of a state that is open: of one that names its service.
    pub(super) fn is_open(parts: &[Bytes]) -> bool {
        let ledger = parts.first().and_then(|order| read_order(order.clone())).and_then(|order| order.ledger);
        ledger.is_some_and(|ledger| ledger.service().0 != 0)
    }

    pub(super) fn set_heard(&mut self, heard: BTreeMap<u8, Heard>) {
        if let Some(ledger) = &mut self.ledger {
            ledger.set_heard(heard);
        }
    }

    pub(super) fn ledger(&self) -> Option<&Ledger> {
        self.ledger.as_ref()
    }

    fn id_of(&self, member: Uid) -> Option<u8> {
        server_id(&self.view.as_ref()?.get(member)?.name)
    }

    fn servers(&self) -> Vec<Server> {
        self.view.iter().flat_map(|view| &view.members).map(Server::from).collect()
    }

    fn show_members(&mut self) {
        let servers = self.servers();
        self.machine.members(&servers);
    }

    fn recount(&mut self) {
        self.minimum.recount(self.view.as_ref(), |uid| self.copies.contains(&uid));
    }

    fn forget_former_members(&mut self) {
        let Some(view) = &self.view else { return };
        self.copies.retain(|copy| view.contains(*copy));
        self.minimum.recount(Some(view), |uid| self.copies.contains(&uid));
        self.memory.retain_members(|member| view.contains(member));
        self.handlers.members(|member| view.contains(member));
        self.lines_changed = true;
        if let Some(ledger) = &mut self.ledger {
            ledger.retain_members(|member| view.contains(member));
        }
    }

    // --- what it is like now ---

    pub(super) fn machine(&self) -> &S {
        &self.machine
    }

    pub(super) fn into_machine(self) -> S {
        self.machine
    }

    pub(super) fn at(&self) -> Seqno {
        self.at
    }

    pub(super) fn position(&self) -> Position {
        self.chain.position
    }

    /// Returns the epoch in which the group was founded.
    pub(super) fn founded_in(&self) -> EpochId {
        self.founded_in
    }

    pub(super) fn chain(&self) -> Digest {
        self.chain.digest
    }

    /// Returns the members in the lines of handlers.
    pub(super) fn handlers(&self) -> &LockTable {
        &self.handlers
    }

    /// Returns whether the lines of handlers may have changed since the last such look.
    pub(super) fn take_lines_changed(&mut self) -> bool {
        core::mem::take(&mut self.lines_changed)
    }

    pub(super) fn is_copy(&self, member: Uid) -> bool {
        self.copies.contains(&member)
    }

    /// Returns the members that have the state, in rank order.
    pub(super) fn copies(&self) -> impl Iterator<Item = Uid> {
        let members = self.view.iter().flat_map(|view| &view.members).map(|member| member.uid);
        members.filter(|member| self.copies.contains(member))
    }

    /// Returns how many members have to have the state, and how many have it.
    pub(super) fn minimum(&self) -> &Minimum {
        &self.minimum
    }

    /// Returns the number of clients, and the bytes of outcomes that are kept.
    pub(super) fn remembered(&self) -> (usize, usize) {
        self.memory.amounts()
    }

    /// Returns the number of executed commands that are remembered.
    pub(super) fn remembered_commands(&self) -> usize {
        self.memory.commands()
    }

    /// Returns the refusal of a command that this state does not admit.
    pub(super) fn refuses(&self, request: &Request) -> Option<Outcome> {
        match request.whole_bytes {
            Some(bytes) => self.machine.admit_beginning(&request.payload, bytes),
            None => self.machine.admit(&request.payload),
        }
    }

    /// True if an earlier attempt at this command has taken effect, or may yet, as the memory knows or the client says.
    pub(super) fn is_repeat(&self, request: &Request, watched: Watched) -> bool {
        (request.again || self.memory.has_executed(request.client, request.call))
            && !watched.broken(Planted::RepeatRefusedEarly)
    }

    /// Returns the outcome of a command that has taken effect, or the refusal that stands for it; `None` if none is known here.
    pub(super) fn remembered_outcome(&self, client: Uid, call: CallNumber) -> Option<Outcome> {
        match self.memory.find(client, call)? {
            Known::Executed(outcome) => Some(outcome),
            Known::Dropped => Some(Outcome::Refuse(Bytes::from_static(OUTCOME_NOT_KEPT))),
            Known::Finished => Some(Outcome::Refuse(Bytes::from_static(NOT_WAITED_FOR))),
            Known::New | Known::NoRoom => None,
        }
    }

    /// True if this command may be remembered as far as the share of its source goes. A command that was executed takes nothing.
    pub(super) fn has_share_for(&self, request: &Request) -> bool {
        self.memory.has_share_for(request.client, request.source)
            || self.memory.has_executed(request.client, request.call)
    }

    /// Notes from which source this member received a command of a client.
    pub(super) fn note_source(&mut self, client: Uid, source: Source) {
        self.memory.note_source(client, source);
    }

    /// Returns the numbers of clients and commands that are remembered of each source.
    #[cfg(test)]
    pub(super) fn sources(&self) -> Vec<(usize, usize)> {
        self.memory.sources()
    }

    pub(super) fn remembers_below(&self, client: Uid, below: CallNumber) -> bool {
        self.memory.remembers_below(client, below)
    }
}

/// All of the state but the user's.
#[derive(Default)]
struct Head {
    founded_in: EpochId,
    position: Position,
    digest: Digest,
    logged_bytes: u64,
    memory: Memory,
}

/// What the first two parts of a snapshot contain: that of the present group, and that of the copy.
type Beginning = (Order, Head);

/// What belongs to the present group.
struct Order {
    copies: BTreeSet<Uid>,
    handlers: LockTable,
    ledger: Option<Ledger>,
}

fn read_beginning(parts: &[Bytes]) -> Result<Beginning, NotRestored> {
    let part = |index: usize| parts.get(index).cloned().unwrap_or_default();
    let order = read_order(part(0)).ok_or(NotRestored("the first part of the snapshot is not valid"))?;
    let head = read_head(part(1)).ok_or(NotRestored("the second part of the snapshot is not valid"))?;
    Ok((order, head))
}

/// Checks the first part of an [applied state](super::Replica::applied_state), which holds all but the user's state.
///
/// # Errors
/// No server writes such a part.
pub fn check_first_part(part: Bytes) -> Result<(), NotRestored> {
    let head = read_head(part).ok_or(NotRestored("its memory of commands cannot be read"))?;
    match head.memory.is_plausible() {
        true => Ok(()),
        false => Err(NotRestored("its memory of commands is none that a service gets to")),
    }
}

fn read_head(mut from: Bytes) -> Option<Head> {
    if from.try_get_u8().ok()? != HEAD_VERSION {
        return None;
    }
    let founded_in = EpochId {
        counter: from.try_get_u64().ok()?,
        coordinator: Uid(from.try_get_u64().ok()?),
        nonce: from.try_get_u64().ok()?,
    };
    let position = from.try_get_u64().ok()?;
    let mut digest = Digest::default();
    from.try_copy_to_slice(&mut digest).ok()?;
    let logged_bytes = from.try_get_u64().ok()?;
    let memory = Memory::read(&mut from)?;
    from.is_empty().then_some(Head { founded_in, position, digest, logged_bytes, memory })
}

fn read_order(mut from: Bytes) -> Option<Order> {
    let mut copies = BTreeSet::new();
    for _ in 0..from.try_get_u32().ok()? {
        copies.insert(Uid(from.try_get_u64().ok()?));
    }
    let length = from.try_get_u32().ok()? as usize;
    let handlers = (length <= from.remaining()).then(|| from.split_to(length))?;
    let handlers = LockTable::restore(&handlers).ok()?;
    let ledger = if from.is_empty() { None } else { Some(Ledger::read(&mut from)?) };
    from.is_empty().then_some(Order { copies, handlers, ledger })
}

/// Returns the id of the server whose members have this name.
pub(super) fn server_id(name: &Name) -> Option<u8> {
    name.as_str().parse().ok().filter(|id| (1..=9).contains(id))
}

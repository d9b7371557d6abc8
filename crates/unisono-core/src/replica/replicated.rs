//! Everything that is the same at each member after the same event: the user's state, the memory of commands, the
//! members that have the state, and the digest of all outcomes.

use super::Watched;
use super::chain::Chain;
use super::machine::{Command, NotRestored, Outcome, Position, Server, StateMachine};
use super::memory::{Known, Memory};
use super::snapshot::Snapshot;
use super::types::{Digest, ReplicaSettings};
use super::word::{Ordered, Word};
use crate::event::{Event, View};
use crate::identity::{EpochId, Seqno, Uid};
use crate::planted::Planted;
use crate::rpc::CallNumber;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use bytes::{Buf, BufMut, Bytes};

/// Version of the first part of a snapshot, which holds all but the user's state.
const HEAD_VERSION: u8 = 2;
const NO_ROOM: &[u8] = b"the service has too many clients to remember; the call did not happen";
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
    view: Option<View>,
    /// Seqno of the last event that was applied.
    at: Seqno,
    /// A call of `members` that a planted bug delays.
    members_due: bool,
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
            view: Some(view),
            at: 0,
            members_due: false,
        };
        founded.show_members();
        founded
    }

    /// Returns the state that a snapshot contains. `view` is that at the snapshot's seqno. On failure the state machine
    /// comes back.
    pub(super) fn restored(
        mut machine: S,
        (at, parts): (Seqno, &[Bytes]),
        view: Option<View>,
        settings: &ReplicaSettings,
    ) -> Result<Replicated<S>, (S, NotRestored)> {
        let head = parts.first().cloned().unwrap_or_default();
        let Some((founded_in, position, digest, copies, memory)) = read_head(head) else {
            return Err((machine, NotRestored("the first part of the snapshot is not valid")));
        };
        if let Err(reason) = machine.restore(parts.get(1..).unwrap_or_default()) {
            return Err((machine, reason));
        }
        let chain = Chain::new(settings.digest, position, digest);
        let mut state =
            Replicated { machine, founded_in, memory, chain, copies, view, at, members_due: false };
        state.forget_former_members();
        Ok(state)
    }

    /// Returns the present state. The first part holds all but the user's state.
    pub(super) fn snapshot(&self, watched: Watched) -> Snapshot {
        let mut head = Vec::new();
        head.put_u8(HEAD_VERSION);
        head.put_u64(self.founded_in.counter);
        head.put_u64(self.founded_in.coordinator.0);
        head.put_u64(self.founded_in.nonce);
        head.put_u64(self.chain.position);
        head.put_slice(&self.chain.digest);
        head.put_u32(self.copies.len() as u32);
        self.copies.iter().for_each(|copy| head.put_u64(copy.0));
        match watched.broken(Planted::MemoryNotInSnapshot) {
            true => Memory::default().write(&mut head),
            false => self.memory.write(&mut head),
        }
        let members = self.view.iter().flat_map(|view| &view.members).map(|member| member.uid).collect();
        let parts = core::iter::once(head.into()).chain(self.machine.snapshot()).collect();
        Snapshot { at: self.at, members, parts }
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
                }
                Applied::Nothing
            }
            Word::Finished(clients) => {
                for (client, below) in clients {
                    match below {
                        CallNumber::MAX => self.memory.end(client),
                        below => self.memory.finish(client, below),
                    }
                }
                Applied::Nothing
            }
            Word::Digest { position, digest } => Applied::Digest { by: sender, position, digest },
        }
    }

    fn execute(&mut self, sender: Uid, command: Ordered, watched: Watched) -> Applied {
        let Ordered { client, call, finished_below, left_ms, stamp_ms, payload } = command;
        self.memory.tick(sender, stamp_ms);
        if watched.broken(Planted::MemoryFreedEarly) {
            self.memory.forget_others(client);
        }
        let outcome = match self.memory.look_up(client, call, finished_below, left_ms) {
            Known::Executed(outcome) => Some(outcome),
            Known::Dropped => Some(Outcome::Refuse(Bytes::from_static(OUTCOME_NOT_KEPT))),
            Known::NoRoom => Some(Outcome::Refuse(Bytes::from_static(NO_ROOM))),
            Known::Finished => None,
            Known::New => {
                let received_by = self.view.as_ref().and_then(|view| view.get(sender)).map(Server::from);
                let command = Command {
                    payload: &payload,
                    client,
                    call,
                    position: self.chain.position + 1,
                    time_ms: self.memory.now_ms(),
                    received_by: received_by.as_ref(),
                };
                let outcome = self.machine.apply(&command);
                self.chain.extend(client, call, &outcome);
                self.memory.remember(client, call, self.chain.position, outcome.clone());
                Some(outcome)
            }
        };
        Applied::Command { client, call, position: self.chain.position, outcome }
    }

    fn show_members(&mut self) {
        let servers: Vec<Server> =
            self.view.iter().flat_map(|view| &view.members).map(Server::from).collect();
        self.machine.members(&servers);
    }

    fn forget_former_members(&mut self) {
        let Some(view) = &self.view else { return };
        self.copies.retain(|copy| view.contains(*copy));
        self.memory.retain_members(|member| view.contains(member));
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

    pub(super) fn is_copy(&self, member: Uid) -> bool {
        self.copies.contains(&member)
    }

    /// Returns the members that have the state, in rank order.
    pub(super) fn copies(&self) -> impl Iterator<Item = Uid> {
        let members = self.view.iter().flat_map(|view| &view.members).map(|member| member.uid);
        members.filter(|member| self.copies.contains(member))
    }

    /// Returns the number of clients, and the bytes of outcomes that are kept.
    pub(super) fn remembered(&self) -> (usize, usize) {
        self.memory.amounts()
    }

    pub(super) fn remembers_below(&self, client: Uid, below: CallNumber) -> bool {
        self.memory.remembers_below(client, below)
    }
}

type Head = (EpochId, Position, Digest, BTreeSet<Uid>, Memory);

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
    let mut copies = BTreeSet::new();
    for _ in 0..from.try_get_u32().ok()? {
        copies.insert(Uid(from.try_get_u64().ok()?));
    }
    let memory = Memory::read(&mut from)?;
    from.is_empty().then_some((founded_in, position, digest, copies, memory))
}

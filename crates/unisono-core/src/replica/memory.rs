//! What a replicated state remembers of commands, so that each takes effect once. It is the same at every member.
//!
//! For each client it keeps the outcomes that the client may still request again. The client says below which number it
//! knows all outcomes: those are dropped, and no command below that number is executed any more. What a client does not
//! fetch is dropped soon after its deadline; that the command was executed is remembered for a minute more. Replies
//! beyond the bounds are dropped too, the oldest first, so that clients that fetch nothing shut out no others: a repeat
//! of such a command is refused with the reason that it happened. A command that cannot be remembered is refused instead of
//! being executed.
//!
//! Time comes from the order. Each member stamps what it submits by its own clock, and its first stamp counts as the
//! present time. So no clock has to be set, and all members compute the same time.

use super::machine::{Outcome, Position};
use crate::identity::Uid;
use crate::rpc::{CallNumber, Source};
use crate::shares::Bound;
use alloc::collections::btree_map::Entry;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use bytes::{Buf, BufMut, Bytes};

/// Maximum number of clients that are remembered.
pub(super) const REMEMBERED_CLIENTS_MAX: usize = 1 << 18;
/// Maximum number of executed commands of one client that are remembered. A client that says what it knows has no more than
/// it has under way.
const CLIENT_COMMANDS_MAX: usize = 1 << 16;
/// Maximum number of executed commands of all clients that are remembered.
const COMMANDS_MAX: usize = 1 << 20;
/// Share of a source address of the clients and of the commands, at the server that receives them.
const CLIENTS: Bound = Bound { most: REMEMBERED_CLIENTS_MAX, part: 4 };
const COMMANDS: Bound = Bound { most: COMMANDS_MAX, part: 4 };
/// Number of executed commands of a client that are remembered while there is room, however many clients there are.
const CLIENT_SHARE_MIN: usize = 64;
/// Maximum time in milliseconds for which a client may wait for the outcome of a command. It is remembered for longer.
pub(super) const COMMAND_WAITS_MAX_MS: u64 = 3_600_000;
/// Maximum bytes of outcomes that are kept.
pub(super) const REPLY_BYTES_MAX: usize = 64 << 20;
/// Maximum bytes of outcomes that are kept for one client.
const CLIENT_REPLY_BYTES_MAX: usize = 32 << 20;
/// Time in milliseconds beyond its deadline for which a client's outcomes are kept.
const REPLY_MARGIN_MS: u64 = 2_000;
/// Time in milliseconds beyond its deadline for which a client's commands are recognised.
const CLIENT_MARGIN_MS: u64 = 60_000;
/// The same for a client that has ended: only copies of its datagrams can still arrive.
const ENDED_MARGIN_MS: u64 = 5_000;

/// Maximum time of the order in milliseconds, a sanity limit.
const NOW_MAX_MS: u64 = 1 << 62;

/// The memory of commands. See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Memory {
    /// Time of the order in milliseconds.
    now_ms: u64,
    /// Offset of each member's stamps to the time of the order, in milliseconds.
    offsets: BTreeMap<Uid, i64>,
    clients: BTreeMap<Uid, Client>,
    /// Times at which something of a client is dropped.
    due: BTreeSet<(u64, Uid)>,
    /// Outcomes whose bytes are kept, by the position of their commands.
    kept: BTreeMap<Position, (Uid, CallNumber)>,
    reply_bytes: usize,
    /// Number of executed commands of all clients.
    commands: usize,
    /// What is remembered of the clients whose sources are known here. Other members know others, so nothing that all members
    /// must agree on depends on it.
    of_sources: BTreeMap<Source, OfSource>,
}

/// What is remembered of the clients of one source address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct OfSource {
    clients: usize,
    commands: usize,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Client {
    /// The client knows the outcomes of all commands with lower numbers.
    finished_below: CallNumber,
    executed: BTreeMap<CallNumber, Executed>,
    reply_bytes: usize,
    /// The client waits for no outcome after this time.
    waits_until_ms: u64,
    /// The next time at which something of it is dropped; it is in `due`.
    due_ms: u64,
    has_ended: bool,
    /// The source in whose share it is, if this member received a command of it.
    source: Option<Source>,
}

/// A command that was executed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Executed {
    position: Position,
    /// `None` once the outcome was dropped.
    outcome: Option<Outcome>,
}

/// What the memory contains about a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// The command was not seen before.
    New,
    /// The command was executed, with this outcome.
    Executed(Outcome),
    /// The command was executed, and its outcome was dropped.
    Dropped,
    /// The command is finished for its client, which does not wait for an outcome.
    Finished,
    /// There is no room to remember the command: it must not take effect.
    NoRoom,
}

impl Memory {
    /// Returns the time of the order in milliseconds.
    pub(super) fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// Returns the number of clients, and the bytes of outcomes that are kept.
    pub(super) fn amounts(&self) -> (usize, usize) {
        (self.clients.len(), self.reply_bytes)
    }

    /// Returns the number of executed commands that are remembered.
    pub(super) fn commands(&self) -> usize {
        self.commands
    }

    /// True if this command was executed, as far as is remembered.
    pub(super) fn has_executed(&self, client: Uid, call: CallNumber) -> bool {
        let known = self.clients.get(&client);
        known.is_some_and(|known| call < known.finished_below || known.executed.contains_key(&call))
    }

    /// Returns what is known of a command, if it was seen before.
    pub(super) fn find(&self, client: Uid, call: CallNumber) -> Option<Known> {
        let known = self.clients.get(&client)?;
        match known.executed.get(&call) {
            Some(Executed { outcome: Some(outcome), .. }) => Some(Known::Executed(outcome.clone())),
            Some(Executed { outcome: None, .. }) => Some(Known::Dropped),
            None => (call < known.finished_below).then_some(Known::Finished),
        }
    }

    /// True if an outcome of a command of this client with a lower number is kept.
    pub(super) fn remembers_below(&self, client: Uid, below: CallNumber) -> bool {
        self.clients.get(&client).is_some_and(|known| known.executed.range(..below).next().is_some())
    }

    /// Notes that a member submitted something at this time of its own clock.
    pub(super) fn tick(&mut self, member: Uid, stamp_ms: u64) {
        let offset = *self.offsets.entry(member).or_insert(self.now_ms.wrapping_sub(stamp_ms) as i64);
        self.advance(stamp_ms.wrapping_add_signed(offset));
    }

    /// Advances the time of the order, and drops what is due.
    pub(super) fn advance(&mut self, time_ms: u64) {
        self.now_ms = self.now_ms.max(time_ms);
        while let Some((due_ms, client)) = self.due.first().copied()
            && due_ms <= self.now_ms
        {
            self.due.pop_first();
            self.come_due(client);
        }
    }

    /// Forgets the members that have left: they submit nothing more.
    pub(super) fn retain_members(&mut self, stays: impl Fn(Uid) -> bool) {
        self.offsets.retain(|member, _| stays(*member));
    }

    /// Returns what is known of a command, and notes what its client says in it. The client waits for `left_ms` more,
    /// and is remembered for longer.
    pub(super) fn look_up(
        &mut self,
        client: Uid,
        call: CallNumber,
        finished_below: CallNumber,
        left_ms: u64,
    ) -> Known {
        if !self.clients.contains_key(&client) && self.clients.len() >= REMEMBERED_CLIENTS_MAX {
            return Known::NoRoom;
        }
        let until_ms = self.now_ms.saturating_add(left_ms.min(COMMAND_WAITS_MAX_MS));
        let known = self.clients.entry(client).or_default();
        known.waits_until_ms = known.waits_until_ms.max(until_ms);
        known.has_ended = false;
        self.plan(client);
        self.finish(client, finished_below);
        if let Some(known) = self.find(client, call) {
            return known;
        }
        let own = self.clients.get(&client).map_or(0, |known| known.executed.len());
        let is_beyond_share = self.commands >= COMMANDS_MAX / 2 && own >= self.share();
        match own >= CLIENT_COMMANDS_MAX || self.commands >= COMMANDS_MAX || is_beyond_share {
            true => Known::NoRoom,
            false => Known::New,
        }
    }

    /// Returns how many executed commands of one client are remembered once half of the bound is used: an equal part of the
    /// other half.
    fn share(&self) -> usize {
        (COMMANDS_MAX / 2 / self.clients.len().max(1)).max(CLIENT_SHARE_MIN)
    }

    // --- shares, at the member that receives a command ---

    /// True if a new command of this client, from this source, is within the share of the source.
    pub(super) fn has_share_for(&self, client: Uid, source: Source) -> bool {
        let own = self.of_sources.get(&source).copied().unwrap_or_default();
        let has_place =
            self.clients.contains_key(&client) || CLIENTS.admits(self.clients.len(), own.clients, 1);
        has_place && COMMANDS.admits(self.commands, own.commands, 1)
    }

    #[cfg(test)]
    pub(super) fn sources(&self) -> Vec<(usize, usize)> {
        self.of_sources.values().map(|own| (own.clients, own.commands)).collect()
    }

    /// Notes from which source this member received a command of a client. It stays in the share of the first.
    pub(super) fn note_source(&mut self, client: Uid, source: Source) {
        let Some(known) = self.clients.get_mut(&client).filter(|known| known.source.is_none()) else {
            return;
        };
        known.source = Some(source);
        let of_source = self.of_sources.entry(source).or_default();
        of_source.clients += 1;
        of_source.commands += known.executed.len();
    }

    /// Notes that commands of a client from this source are remembered no longer.
    fn release(&mut self, source: Option<Source>, clients: usize, commands: usize) {
        self.commands -= commands;
        if let Some(source) = source
            && let Entry::Occupied(mut entry) = self.of_sources.entry(source)
        {
            let of_source = entry.get_mut();
            of_source.clients -= clients;
            of_source.commands -= commands;
            if of_source.clients == 0 {
                entry.remove();
            }
        }
    }

    /// Stores the outcome of a command that was new.
    pub(super) fn remember(&mut self, client: Uid, call: CallNumber, position: Position, outcome: Outcome) {
        let Some(known) = self.clients.get_mut(&client) else { return };
        let bytes = outcome.len();
        known.reply_bytes += bytes;
        self.reply_bytes += bytes;
        known.executed.insert(call, Executed { position, outcome: Some(outcome) });
        self.commands += 1;
        if let Some(of_source) = known.source.and_then(|source| self.of_sources.get_mut(&source)) {
            of_source.commands += 1;
        }
        self.kept.insert(position, (client, call));
        self.drop_beyond_bounds(client);
    }

    /// Notes that a client needs no outcome of its commands with lower numbers; all of them if it has ended.
    pub(super) fn finish(&mut self, client: Uid, below: CallNumber) {
        let Some(known) = self.clients.get_mut(&client) else { return };
        if below <= known.finished_below {
            return;
        }
        known.finished_below = below;
        let stays = known.executed.split_off(&below);
        let source = known.source;
        let finished = core::mem::replace(&mut known.executed, stays);
        let count = finished.len();
        for executed in finished.into_values() {
            if let Some(outcome) = executed.outcome {
                known.reply_bytes -= outcome.len();
                self.reply_bytes -= outcome.len();
                self.kept.remove(&executed.position);
            }
        }
        self.release(source, 0, count);
    }

    /// Notes that a client has ended.
    pub(super) fn end(&mut self, client: Uid) {
        self.finish(client, CallNumber::MAX);
        if let Some(known) = self.clients.get_mut(&client) {
            known.has_ended = true;
            self.plan(client);
        }
    }

    /// Forgets all other clients: a planted bug.
    pub(super) fn forget_others(&mut self, client: Uid) {
        let others: Vec<Uid> = self.clients.keys().copied().filter(|other| *other != client).collect();
        for other in others {
            self.finish(other, CallNumber::MAX);
            if let Some(known) = self.clients.remove(&other) {
                self.release(known.source, 1, known.executed.len());
                self.due.remove(&(known.due_ms, other));
            }
        }
    }

    /// Drops the oldest outcomes while this client, or all clients together, have too many bytes of them.
    fn drop_beyond_bounds(&mut self, client: Uid) {
        let over = |memory: &Memory| {
            memory.clients.get(&client).is_some_and(|known| known.reply_bytes > CLIENT_REPLY_BYTES_MAX)
        };
        while over(self) {
            let first = self.clients.get(&client).and_then(|known| {
                known.executed.iter().find(|(_, executed)| executed.outcome.is_some()).map(|(call, _)| *call)
            });
            let Some(call) = first else { break };
            self.drop_outcome(client, call);
        }
        while self.reply_bytes > REPLY_BYTES_MAX
            && let Some((_, &(client, call))) = self.kept.first_key_value()
        {
            self.drop_outcome(client, call);
        }
    }

    fn drop_outcome(&mut self, client: Uid, call: CallNumber) {
        let Some(known) = self.clients.get_mut(&client) else { return };
        let Some(executed) = known.executed.get_mut(&call) else { return };
        self.kept.remove(&executed.position);
        if let Some(outcome) = executed.outcome.take() {
            known.reply_bytes -= outcome.len();
            self.reply_bytes -= outcome.len();
        }
    }

    /// Notes when something of a client is to be dropped next.
    fn plan(&mut self, client: Uid) {
        let Some(known) = self.clients.get_mut(&client) else { return };
        self.due.remove(&(known.due_ms, client));
        known.due_ms = match known.has_ended {
            true => self.now_ms.saturating_add(ENDED_MARGIN_MS),
            false => known.waits_until_ms.saturating_add(REPLY_MARGIN_MS),
        };
        self.due.insert((known.due_ms, client));
    }

    /// Drops what is due: first the outcomes of a client, then all that is known of it.
    fn come_due(&mut self, client: Uid) {
        let Some(known) = self.clients.get_mut(&client) else { return };
        let gone_ms = known.waits_until_ms.saturating_add(CLIENT_MARGIN_MS);
        let calls: Vec<CallNumber> = known.executed.keys().copied().collect();
        if known.has_ended || gone_ms <= self.now_ms {
            let source = known.source;
            self.release(source, 1, calls.len());
            calls.into_iter().for_each(|call| self.drop_outcome(client, call));
            self.clients.remove(&client);
            return;
        }
        known.due_ms = gone_ms;
        self.due.insert((gone_ms, client));
        calls.into_iter().for_each(|call| self.drop_outcome(client, call));
    }

    /// Writes everything, for a member that has nothing yet.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.put_u64(self.now_ms);
        out.put_u32(self.offsets.len() as u32);
        for (member, offset) in &self.offsets {
            out.put_u64(member.0);
            out.put_i64(*offset);
        }
        out.put_u32(self.clients.len() as u32);
        for (client, known) in &self.clients {
            out.put_u64(client.0);
            for number in [known.finished_below, known.waits_until_ms, known.due_ms] {
                out.put_u64(number);
            }
            out.put_u8(known.has_ended.into());
            out.put_u32(known.executed.len() as u32);
            for (call, executed) in &known.executed {
                out.put_u64(*call);
                out.put_u64(executed.position);
                match &executed.outcome {
                    Some(outcome) => {
                        out.put_u8(outcome.code());
                        if let Outcome::Handler(name, _) = outcome {
                            out.put_u8(name.len() as u8);
                            out.put_slice(name.as_bytes());
                        }
                        out.put_u32(outcome.bytes().len() as u32);
                        out.put_slice(outcome.bytes());
                    }
                    None => out.put_u8(OUTCOME_DROPPED),
                }
            }
        }
    }

    /// Reads what another member wrote.
    pub(super) fn read(from: &mut Bytes) -> Option<Memory> {
        let mut memory = Memory { now_ms: from.try_get_u64().ok()?, ..Memory::default() };
        for _ in 0..from.try_get_u32().ok()? {
            let member = Uid(from.try_get_u64().ok()?);
            memory.offsets.insert(member, from.try_get_i64().ok()?);
        }
        for _ in 0..from.try_get_u32().ok()? {
            let uid = Uid(from.try_get_u64().ok()?);
            let client = memory.read_client(uid, from)?;
            memory.due.insert((client.due_ms, uid));
            memory.reply_bytes += client.reply_bytes;
            memory.commands += client.executed.len();
            memory.clients.insert(uid, client);
        }
        Some(memory)
    }

    /// True if members that counted and remembered as they do can have got here. Another memory would refuse commands for
    /// ever.
    pub(super) fn is_plausible(&self) -> bool {
        let end_ms = self.now_ms.saturating_add(COMMAND_WAITS_MAX_MS);
        let is_in_time = |client: &Client| {
            client.waits_until_ms <= end_ms && client.due_ms <= end_ms.saturating_add(CLIENT_MARGIN_MS)
        };
        self.now_ms <= NOW_MAX_MS
            && self.clients.len() <= REMEMBERED_CLIENTS_MAX
            && self.commands <= COMMANDS_MAX
            && self.clients.values().all(is_in_time)
    }

    fn read_client(&mut self, uid: Uid, from: &mut Bytes) -> Option<Client> {
        let mut client = Client {
            finished_below: from.try_get_u64().ok()?,
            waits_until_ms: from.try_get_u64().ok()?,
            due_ms: from.try_get_u64().ok()?,
            has_ended: from.try_get_u8().ok()? != 0,
            ..Client::default()
        };
        for _ in 0..from.try_get_u32().ok()? {
            let (call, position) = (from.try_get_u64().ok()?, from.try_get_u64().ok()?);
            let code = from.try_get_u8().ok()?;
            let outcome = match code {
                OUTCOME_DROPPED => None,
                code => {
                    let name = match code {
                        3 => usize::from(from.try_get_u8().ok()?),
                        _ => 0,
                    };
                    let name = (name <= from.remaining()).then(|| from.split_to(name))?;
                    let name = core::str::from_utf8(&name).ok()?;
                    let length = from.try_get_u32().ok()? as usize;
                    let bytes = (length <= from.remaining()).then(|| from.split_to(length))?;
                    client.reply_bytes += length + name.len();
                    self.kept.insert(position, (uid, call));
                    Some(Outcome::from_code(code, name, bytes)?)
                }
            };
            client.executed.insert(call, Executed { position, outcome });
        }
        Some(client)
    }
}

/// Stands for an outcome that was dropped; the other codes are those of [`Outcome::code`].
const OUTCOME_DROPPED: u8 = u8::MAX;

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    const CLIENT: Uid = Uid(7);
    const MEMBER: Uid = Uid(1);

    fn reply(text: &'static str) -> Outcome {
        Outcome::Reply(text.into())
    }

    /// A memory, and the position of the last command.
    #[derive(Default)]
    struct Tried {
        memory: Memory,
        position: Position,
    }

    impl Tried {
        /// Gives a command, which is executed if it is new.
        fn command(&mut self, client: Uid, call: CallNumber, finished_below: CallNumber) -> Known {
            self.command_with(client, call, finished_below, reply("done"))
        }

        fn command_with(
            &mut self,
            client: Uid,
            call: CallNumber,
            finished_below: CallNumber,
            outcome: Outcome,
        ) -> Known {
            let known = self.memory.look_up(client, call, finished_below, 5000);
            if known == Known::New {
                self.position += 1;
                self.memory.remember(client, call, self.position, outcome);
            }
            known
        }
    }

    #[test]
    fn a_memory_that_no_member_writes_is_not_plausible() {
        let mut tried = Tried::default();
        tried.memory.tick(MEMBER, 1);
        tried.command(CLIENT, 1, 1);
        tried.memory.look_up(CLIENT, 2, 1, u64::MAX);
        tried.memory.end(Uid(9));
        assert!(tried.memory.is_plausible());
        let spoilt: [fn(&mut Memory); 4] = [
            |memory| memory.now_ms = u64::MAX,
            |memory| memory.commands = COMMANDS_MAX + 1,
            |memory| memory.clients.get_mut(&CLIENT).unwrap().waits_until_ms = u64::MAX,
            |memory| memory.clients.get_mut(&CLIENT).unwrap().due_ms = u64::MAX,
        ];
        for spoil in spoilt {
            let mut memory = tried.memory.clone();
            spoil(&mut memory);
            assert!(!memory.is_plausible());
        }
    }

    #[test]
    fn a_command_is_new_once() {
        let mut tried = Tried::default();
        assert_eq!(tried.command(CLIENT, 1, 1), Known::New);
        assert_eq!(tried.command(CLIENT, 2, 1), Known::New);
        assert_eq!(tried.command(CLIENT, 1, 1), Known::Executed(reply("done")));
        assert_eq!(tried.command(Uid(8), 1, 1), Known::New);
    }

    #[test]
    fn what_a_client_knows_to_be_finished_is_dropped_and_never_new_again() {
        let mut tried = Tried::default();
        for number in 1..=100 {
            assert_eq!(tried.command(CLIENT, number, number), Known::New);
        }
        assert_eq!(tried.memory.amounts(), (1, 4));
        assert_eq!(tried.command(CLIENT, 50, 1), Known::Finished);
        assert_eq!(tried.command(CLIENT, 100, 1), Known::Executed(reply("done")));
        assert!(tried.memory.remembers_below(CLIENT, 101));
        tried.memory.finish(CLIENT, 101);
        assert!(!tried.memory.remembers_below(CLIENT, 101));
        assert_eq!((tried.memory.amounts(), tried.memory.kept.len()), ((1, 0), 0));
        assert_eq!(tried.command(CLIENT, 100, 1), Known::Finished);
    }

    #[test]
    fn after_its_deadline_a_client_is_recognised_for_a_minute_without_outcomes() {
        let mut tried = Tried::default();
        tried.memory.tick(MEMBER, 1_000_000);
        tried.command(CLIENT, 1, 1);
        tried.memory.tick(MEMBER, 1_000_000 + 5000 + REPLY_MARGIN_MS - 1);
        assert_eq!(tried.memory.amounts(), (1, 4));
        tried.memory.tick(MEMBER, 1_000_000 + 5000 + REPLY_MARGIN_MS);
        assert_eq!(tried.memory.amounts(), (1, 0));
        assert_eq!(tried.memory.look_up(CLIENT, 1, 1, 0), Known::Dropped);
        tried.memory.tick(MEMBER, 1_000_000 + 5000 + 2 * CLIENT_MARGIN_MS);
        assert_eq!((tried.memory.amounts(), tried.memory.due.len()), ((0, 0), 0));
        // Extreme values are no exception.
        tried.memory.look_up(CLIENT, 1, 1, u64::MAX);
        tried.memory.tick(MEMBER, u64::MAX);
    }

    #[test]
    fn a_client_that_has_ended_is_forgotten_soon() {
        let mut tried = Tried::default();
        tried.memory.tick(MEMBER, 0);
        tried.command(CLIENT, 1, 1);
        tried.memory.end(CLIENT);
        assert_eq!(tried.memory.amounts(), (1, 0));
        assert_eq!(tried.memory.look_up(CLIENT, 1, 1, 0), Known::Finished);
        tried.memory.end(CLIENT);
        tried.memory.tick(MEMBER, ENDED_MARGIN_MS);
        assert_eq!(tried.memory.amounts(), (0, 0));
    }

    #[test]
    fn a_member_whose_clock_is_ahead_makes_no_member_forget() {
        let mut tried = Tried::default();
        tried.memory.tick(MEMBER, 5);
        tried.command(CLIENT, 1, 1);
        tried.memory.tick(Uid(2), 10_000_000);
        tried.memory.tick(Uid(3), 1);
        tried.memory.tick(Uid(2), 10_000_001);
        assert_eq!(tried.memory.now_ms, 1);
        assert_eq!(tried.command(CLIENT, 1, 1), Known::Executed(reply("done")));
    }

    #[test]
    fn clients_that_fetch_nothing_shut_out_no_others() {
        let mut tried = Tried::default();
        let large = || Outcome::Reply(vec![0; 1 << 20].into());
        for client in 0..100 {
            assert_eq!(tried.command_with(Uid(100 + client), 1, 1, large()), Known::New);
            assert!(tried.memory.reply_bytes <= REPLY_BYTES_MAX);
        }
        assert_eq!(tried.command(Uid(100), 1, 1), Known::Dropped);
        assert!(matches!(tried.command(Uid(199), 1, 1), Known::Executed(_)));
        // One client loses outcomes of its own first.
        for call in 1..50 {
            assert_eq!(tried.command_with(CLIENT, call, 1, large()), Known::New);
        }
        assert_eq!(tried.memory.clients[&CLIENT].reply_bytes, CLIENT_REPLY_BYTES_MAX);
        assert_eq!(tried.command(CLIENT, 1, 1), Known::Dropped);
    }

    #[test]
    fn without_room_for_a_client_its_command_does_not_take_effect() {
        let mut memory = Memory::default();
        for client in 0..REMEMBERED_CLIENTS_MAX as u64 {
            memory.look_up(Uid(100 + client), 1, 1, 0);
        }
        assert_eq!(memory.look_up(Uid(5), 1, 1, 0), Known::NoRoom);
        assert_eq!(memory.look_up(Uid(100), 1, 1, 0), Known::New);
    }

    #[test]
    fn commands_that_cannot_be_remembered_do_not_take_effect() {
        let mut tried = Tried::default();
        let no_reply = || Outcome::Reply(Bytes::new());
        for call in 1..=CLIENT_COMMANDS_MAX as u64 {
            assert_eq!(tried.command_with(CLIENT, call, 1, no_reply()), Known::New);
        }
        let next = CLIENT_COMMANDS_MAX as u64 + 1;
        assert_eq!(tried.command(CLIENT, next, 1), Known::NoRoom);
        assert_eq!(tried.command(CLIENT, 1, 1), Known::Executed(no_reply()));
        assert_eq!(tried.command(CLIENT, next, 2), Known::New);
        // One client after the other.
        let clients = (COMMANDS_MAX / 2 / CLIENT_COMMANDS_MAX) as u64;
        for client in 1..clients {
            for call in 1..=CLIENT_COMMANDS_MAX as u64 {
                assert_eq!(tried.command_with(Uid(100 + client), call, 1, no_reply()), Known::New);
            }
        }
        assert_eq!(tried.memory.commands(), COMMANDS_MAX / 2);
        // From there on each client has its share.
        let (greedy, share) = (Uid(98), (COMMANDS_MAX / 2) as u64 / (clients + 1));
        for call in 1..=share {
            assert_eq!(tried.command_with(greedy, call, 1, no_reply()), Known::New);
        }
        assert_eq!(tried.command(greedy, share + 1, 1), Known::NoRoom);
        assert_eq!(tried.command(Uid(101), next, 2), Known::NoRoom, "it has more than its share");
        assert_eq!(tried.command(Uid(99), 1, 1), Known::New, "another client");
        tried.memory.end(Uid(101));
        tried.memory.end(Uid(102));
        assert_eq!(tried.command(greedy, share + 1, 1), Known::New, "half is free again");
        let counted: usize = tried.memory.clients.values().map(|client| client.executed.len()).sum();
        assert_eq!(tried.memory.commands(), counted);
        tried.memory.tick(MEMBER, 0);
        tried.memory.tick(MEMBER, 5000 + CLIENT_MARGIN_MS);
        assert_eq!((tried.memory.amounts(), tried.memory.commands()), ((0, 0), 0));
    }

    #[test]
    fn lives_of_one_source_take_no_more_than_its_share_of_what_is_remembered() {
        let mut tried = Tried::default();
        let (greedy, honest) = (Source::of_host(9), Source::of_host(1));
        // Small outcomes, each of a life of its own.
        let mut lives = 0;
        while tried.memory.has_share_for(Uid(1000 + lives), greedy) {
            let client = Uid(1000 + lives);
            assert_eq!(tried.command_with(client, 1, 1, Outcome::Reply(Bytes::new())), Known::New);
            tried.memory.note_source(client, greedy);
            lives += 1;
        }
        assert_eq!(lives as usize, REMEMBERED_CLIENTS_MAX / 2);
        assert!(tried.memory.has_share_for(Uid(1000), greedy), "a client that is known needs no other place");
        assert!(tried.memory.has_share_for(CLIENT, honest));
        // The same number of commands is counted in the end as is there.
        for client in 0..lives {
            match client % 3 {
                0 => tried.memory.end(Uid(1000 + client)),
                1 => tried.memory.finish(Uid(1000 + client), 2),
                _ => {}
            }
        }
        let own = tried.memory.of_sources[&greedy];
        assert_eq!((own.clients, own.commands), (lives as usize, tried.memory.commands()));
        tried.memory.tick(MEMBER, 0);
        tried.memory.tick(MEMBER, 5000 + CLIENT_MARGIN_MS);
        assert!(tried.memory.of_sources.is_empty());
        assert!(tried.memory.has_share_for(Uid(1), greedy));
    }

    #[test]
    fn commands_of_one_source_take_no_more_than_its_share_whatever_their_lives() {
        let mut tried = Tried::default();
        let (greedy, honest) = (Source::of_host(9), Source::of_host(1));
        let (mut client, mut commands) = (Uid(1000), 0);
        while tried.memory.has_share_for(client, greedy) {
            commands += 1;
            tried.command_with(client, commands, 1, Outcome::Reply(Bytes::new()));
            tried.memory.note_source(client, greedy);
            client = Uid(1000 + commands / 50_000);
        }
        assert_eq!(commands as usize, COMMANDS_MAX / 2);
        assert!(tried.memory.has_share_for(CLIENT, honest));
        assert_eq!(tried.command(CLIENT, 1, 1), Known::New);
    }

    #[test]
    fn a_client_that_claims_to_wait_for_weeks_is_forgotten_after_an_hour() {
        let mut memory = Memory::default();
        memory.tick(MEMBER, 0);
        assert_eq!(memory.look_up(CLIENT, 1, 1, u32::MAX.into()), Known::New);
        memory.tick(MEMBER, COMMAND_WAITS_MAX_MS + CLIENT_MARGIN_MS - 1);
        assert_eq!(memory.amounts(), (1, 0));
        memory.tick(MEMBER, COMMAND_WAITS_MAX_MS + CLIENT_MARGIN_MS);
        assert_eq!(memory.amounts(), (0, 0));
    }

    #[test]
    fn what_is_written_is_read_as_it_was_and_nothing_shorter_is() {
        let mut memory = Memory::default();
        memory.tick(MEMBER, 77);
        for (client, outcome) in [
            (1, reply("a")),
            (2, Outcome::Refuse("b".into())),
            (3, Outcome::Pass("".into())),
            (4, reply("d")),
            (5, Outcome::Handler("desk".into(), "e".into())),
        ] {
            memory.look_up(Uid(client), 4, 3, 100);
            memory.remember(Uid(client), 4, client, outcome);
        }
        memory.drop_outcome(Uid(4), 4);
        memory.end(Uid(3));
        let mut bytes = Vec::new();
        memory.write(&mut bytes);
        assert_eq!(Memory::read(&mut bytes.clone().into()), Some(memory));
        for end in 0..bytes.len() {
            assert_eq!(Memory::read(&mut bytes[..end].to_vec().into()), None, "{end}");
        }
    }
}

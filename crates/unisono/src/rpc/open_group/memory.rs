//! What a replicated service remembers of calls, so that each takes effect once. It is the same at every member.
//!
//! For each client it keeps the answers that the client may still request again. The client says below which number
//! it knows all outcomes: those answers are dropped, and no call below that number is executed any more. A client is
//! forgotten with everything once it has been silent until none of its calls can be under way.
//!
//! Time comes from the order. Each member stamps what it submits by its own clock, and its first stamp counts as the
//! present time. So no clock has to be set, and all members compute the same time.

use bytes::{Buf, BufMut, Bytes};
use std::collections::{BTreeMap, BTreeSet};
use unisono_core::Uid;
use unisono_core::rpc::CallNumber;

/// Maximum number of clients that are remembered.
const CLIENTS_MAX: usize = 65_536;
/// Maximum bytes of answers that are kept.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Time in milliseconds for which a client is remembered beyond its deadline.
const MARGIN_MS: u64 = 60_000;

/// What a service answers to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Outcome {
    /// The reply.
    Reply(Bytes),
    /// A refusal with its reason. It may have changed the state all the same.
    Refuse(Bytes),
    /// Another member answers, and gets these bytes ([`Service::take_over`](super::Service::take_over)).
    Pass(Bytes),
}

impl Outcome {
    fn bytes(&self) -> &Bytes {
        match self {
            Outcome::Reply(bytes) | Outcome::Refuse(bytes) | Outcome::Pass(bytes) => bytes,
        }
    }
}

/// The memory of calls. See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Memory {
    /// Time of the order in milliseconds.
    now_ms: u64,
    /// Offset of each member's stamps to the time of the order, in milliseconds.
    offsets: BTreeMap<Uid, i64>,
    clients: BTreeMap<Uid, Client>,
    /// Times at which clients may be forgotten.
    due: BTreeSet<(u64, Uid)>,
    answer_bytes: usize,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Client {
    /// The client knows the outcomes of all calls with lower numbers.
    finished_below: CallNumber,
    answers: BTreeMap<CallNumber, Outcome>,
    forget_at_ms: u64,
}

/// What the memory contains about a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// The call was not seen before.
    New,
    /// The call was executed, with this outcome.
    Answered(Outcome),
    /// The call is finished for its client, which does not wait for an answer.
    Finished,
    /// There is no room to remember the call: it must not take effect.
    NoRoom,
}

impl Memory {
    /// Notes that a member submitted something at this time of its own clock.
    pub(super) fn tick(&mut self, member: Uid, stamp_ms: u64) {
        let offset = *self.offsets.entry(member).or_insert(self.now_ms.wrapping_sub(stamp_ms) as i64);
        self.now_ms = self.now_ms.max(stamp_ms.wrapping_add_signed(offset));
        while let Some((due, client)) = self.due.first().copied()
            && due <= self.now_ms
        {
            self.due.pop_first();
            if let Some(gone) = self.clients.remove(&client) {
                self.answer_bytes -= bytes_of(gone.answers.values());
            }
        }
    }

    /// Forgets the members that have left: they submit nothing more.
    pub(super) fn retain_members(&mut self, stays: impl Fn(Uid) -> bool) {
        self.offsets.retain(|member, _| stays(*member));
    }

    /// Returns what is known of a call, and notes what its client says in it. The client waits for `left_ms` more,
    /// and is remembered for longer.
    pub(super) fn look_up(
        &mut self,
        client: Uid,
        call: CallNumber,
        finished_below: CallNumber,
        left_ms: u64,
    ) -> Known {
        if !self.clients.contains_key(&client) && self.clients.len() >= CLIENTS_MAX {
            return Known::NoRoom;
        }
        let known = self.clients.entry(client).or_default();
        self.due.remove(&(known.forget_at_ms, client));
        known.forget_at_ms =
            known.forget_at_ms.max(self.now_ms.saturating_add(left_ms).saturating_add(MARGIN_MS));
        self.due.insert((known.forget_at_ms, client));
        if finished_below > known.finished_below {
            known.finished_below = finished_below;
            let kept = known.answers.split_off(&finished_below);
            self.answer_bytes -= bytes_of(std::mem::replace(&mut known.answers, kept).values());
        }
        match known.answers.get(&call) {
            Some(outcome) => Known::Answered(outcome.clone()),
            None if call < known.finished_below => Known::Finished,
            None if self.answer_bytes >= ANSWER_BYTES_MAX => Known::NoRoom,
            None => Known::New,
        }
    }

    /// Stores the outcome of a call that was new.
    pub(super) fn remember(&mut self, client: Uid, call: CallNumber, outcome: Outcome) {
        if let Some(known) = self.clients.get_mut(&client) {
            self.answer_bytes += outcome.bytes().len();
            known.answers.insert(call, outcome);
        }
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
            out.put_u64(known.finished_below);
            out.put_u64(known.forget_at_ms);
            out.put_u32(known.answers.len() as u32);
            for (call, outcome) in &known.answers {
                out.put_u64(*call);
                let kind = match outcome {
                    Outcome::Reply(_) => 0,
                    Outcome::Refuse(_) => 1,
                    Outcome::Pass(_) => 2,
                };
                out.put_u8(kind);
                out.put_u32(outcome.bytes().len() as u32);
                out.put_slice(outcome.bytes());
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
            let client = Uid(from.try_get_u64().ok()?);
            let mut known = Client { finished_below: from.try_get_u64().ok()?, ..Client::default() };
            known.forget_at_ms = from.try_get_u64().ok()?;
            memory.due.insert((known.forget_at_ms, client));
            for _ in 0..from.try_get_u32().ok()? {
                let call = from.try_get_u64().ok()?;
                let kind = from.try_get_u8().ok()?;
                let length = from.try_get_u32().ok()? as usize;
                let bytes = (length <= from.remaining()).then(|| from.split_to(length))?;
                memory.answer_bytes += length;
                let outcome = match kind {
                    0 => Outcome::Reply(bytes),
                    1 => Outcome::Refuse(bytes),
                    2 => Outcome::Pass(bytes),
                    _ => return None,
                };
                known.answers.insert(call, outcome);
            }
            memory.clients.insert(client, known);
        }
        Some(memory)
    }
}

fn bytes_of<'a>(answers: impl Iterator<Item = &'a Outcome>) -> usize {
    answers.map(|answer| answer.bytes().len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: Uid = Uid(7);
    const MEMBER: Uid = Uid(1);

    fn reply(text: &'static str) -> Outcome {
        Outcome::Reply(text.into())
    }

    /// Calls, and answers if the call is new.
    fn call(memory: &mut Memory, client: Uid, call: CallNumber, finished_below: CallNumber) -> Known {
        let known = memory.look_up(client, call, finished_below, 5000);
        if known == Known::New {
            memory.remember(client, call, reply("done"));
        }
        known
    }

    #[test]
    fn a_call_is_new_once() {
        let mut memory = Memory::default();
        assert_eq!(call(&mut memory, CLIENT, 1, 1), Known::New);
        assert_eq!(call(&mut memory, CLIENT, 2, 1), Known::New);
        assert_eq!(call(&mut memory, CLIENT, 1, 1), Known::Answered(reply("done")));
        assert_eq!(call(&mut memory, Uid(8), 1, 1), Known::New);
    }

    #[test]
    fn what_a_client_knows_to_be_finished_is_dropped_and_never_new_again() {
        let mut memory = Memory::default();
        for number in 1..=100 {
            assert_eq!(call(&mut memory, CLIENT, number, number), Known::New);
        }
        assert_eq!((memory.clients[&CLIENT].answers.len(), memory.answer_bytes), (1, 4));
        assert_eq!(call(&mut memory, CLIENT, 50, 1), Known::Finished);
        assert_eq!(call(&mut memory, CLIENT, 100, 1), Known::Answered(reply("done")));
    }

    #[test]
    fn a_client_that_is_silent_for_longer_than_anything_of_it_lasts_is_forgotten() {
        let mut memory = Memory::default();
        memory.tick(MEMBER, 1_000_000);
        call(&mut memory, CLIENT, 1, 1);
        memory.tick(MEMBER, 1_000_000 + 5000 + MARGIN_MS - 1);
        assert_eq!(call(&mut memory, CLIENT, 1, 1), Known::Answered(reply("done")));
        memory.tick(MEMBER, 1_000_000 + 2 * (5000 + MARGIN_MS));
        assert!(memory.clients.is_empty() && memory.due.is_empty() && memory.answer_bytes == 0);
        // Extreme values are no exception.
        memory.look_up(CLIENT, 1, 1, u64::MAX);
        memory.tick(MEMBER, u64::MAX);
    }

    #[test]
    fn a_member_whose_clock_is_ahead_makes_no_member_forget() {
        let mut memory = Memory::default();
        memory.tick(MEMBER, 5);
        call(&mut memory, CLIENT, 1, 1);
        memory.tick(Uid(2), 10_000_000);
        memory.tick(Uid(3), 1);
        memory.tick(Uid(2), 10_000_001);
        assert_eq!(memory.now_ms, 1);
        assert_eq!(call(&mut memory, CLIENT, 1, 1), Known::Answered(reply("done")));
    }

    #[test]
    fn without_room_nothing_new_takes_effect_and_what_was_is_known() {
        let mut memory = Memory::default();
        memory.look_up(CLIENT, 1, 1, 0);
        memory.remember(CLIENT, 1, Outcome::Reply(vec![0; ANSWER_BYTES_MAX].into()));
        assert_eq!(memory.look_up(CLIENT, 2, 1, 0), Known::NoRoom);
        assert!(matches!(memory.look_up(CLIENT, 1, 1, 0), Known::Answered(_)));
        assert_eq!(memory.look_up(CLIENT, 2, 2, 0), Known::New);
        for client in 0..CLIENTS_MAX as u64 {
            memory.look_up(Uid(100 + client), 1, 1, 0);
        }
        assert_eq!(memory.look_up(Uid(5), 1, 1, 0), Known::NoRoom);
        assert_eq!(memory.clients.len(), CLIENTS_MAX);
    }

    #[test]
    fn what_is_written_is_read_as_it_was_and_nothing_else_is() {
        let mut memory = Memory::default();
        memory.tick(MEMBER, 77);
        for (client, outcome) in
            [(1, reply("a")), (2, Outcome::Refuse("b".into())), (3, Outcome::Pass("".into()))]
        {
            memory.look_up(Uid(client), 4, 3, 100);
            memory.remember(Uid(client), 4, outcome);
        }
        let mut bytes = Vec::new();
        memory.write(&mut bytes);
        assert_eq!(Memory::read(&mut bytes.clone().into()), Some(memory));
        for end in 0..bytes.len() {
            assert_eq!(Memory::read(&mut bytes[..end].to_vec().into()), None, "{end}");
        }
    }
}

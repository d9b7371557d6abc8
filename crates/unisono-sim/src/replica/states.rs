//! The replicated states of the simulator: a list of words and a map of registers. [`Model`] says what each operation
//! does, for the copies and for the checkers; [`Copy`] is the state machine that a server runs.
//!
//! A copy counts the calls of its state machine and hashes their arguments and outcomes. The count and the hash travel in
//! the snapshots, so that a newcomer's are those of the copies that applied everything themselves.

use crate::record::{Trail, hash, mix};
use bytes::{Buf, BufMut, Bytes};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use unisono_core::Uid;
use unisono_core::replica::{Command, Kind, NotRestored, Outcome, Server, StateMachine};
use unisono_core::rpc::CallNumber;

/// Number of registers.
pub(crate) const REGISTERS: usize = 5;
/// Words in one part of a snapshot. Small, so that states have several parts.
const WORDS_IN_PART: usize = 24;

/// An operation on one object: the list, or a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Appends a word; the reply has the new length and the hash of all words.
    Append(u64),
    /// Gets the length of the list, and the hash of all words.
    GetAll,
    /// Sets a register; the reply has its former value.
    Put(u8, u64),
    /// Gets the value of a register.
    Get(u8),
    /// Sets a register if it has the first value; refused otherwise. The reply has its former value.
    Cas(u8, u64, u64),
    /// Adds to a register; the reply has the new value.
    Add(u8, u64),
}

/// The reply to an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Reply(pub u64, pub u64);

/// Marks replies among other answers of servers.
const REPLY: u8 = 0xa5;

impl Reply {
    pub(crate) fn write(self) -> Bytes {
        let mut out = Vec::with_capacity(17);
        out.put_u8(REPLY);
        out.put_u64(self.0);
        out.put_u64(self.1);
        out.into()
    }

    /// Returns `None` if these bytes are no reply.
    pub(crate) fn read(mut from: &[u8]) -> Option<Reply> {
        let is_reply = from.try_get_u8().ok()? == REPLY;
        let reply = Reply(from.try_get_u64().ok()?, from.try_get_u64().ok()?);
        (is_reply && from.is_empty()).then_some(reply)
    }
}

/// An object of the state: operations on different objects do not affect each other.
pub(crate) type Object = u8;

impl Op {
    /// Returns the object that it is on: 0 for the list, else a register.
    pub(crate) fn object(self) -> Object {
        match self {
            Op::Append(_) | Op::GetAll => 0,
            Op::Put(key, _) | Op::Get(key) | Op::Cas(key, ..) | Op::Add(key, _) => key + 1,
        }
    }

    /// Returns the request's bytes, with `padding` more.
    pub(crate) fn write(self, kind: Kind, padding: usize) -> Bytes {
        let (code, key, first, second) = match self {
            Op::Append(word) => (0, 0, word, 0),
            Op::GetAll => (1, 0, 0, 0),
            Op::Put(key, value) => (2, key, value, 0),
            Op::Get(key) => (3, key, 0, 0),
            Op::Cas(key, from, to) => (4, key, from, to),
            Op::Add(key, delta) => (5, key, delta, 0),
        };
        let mut out = Vec::with_capacity(19 + padding);
        out.put_u8(match kind {
            Kind::Read => 1,
            Kind::LocalRead => 2,
            _ => 0,
        });
        out.put_u8(code);
        out.put_u8(key);
        out.put_u64(first);
        out.put_u64(second);
        out.resize(19 + padding, 0);
        out.into()
    }

    pub(crate) fn read(mut from: &[u8]) -> Option<Op> {
        from.try_get_u8().ok()?;
        let (code, key) = (from.try_get_u8().ok()?, from.try_get_u8().ok()?);
        let (first, second) = (from.try_get_u64().ok()?, from.try_get_u64().ok()?);
        Some(match code {
            0 => Op::Append(first),
            1 => Op::GetAll,
            2 => Op::Put(key, first),
            3 => Op::Get(key),
            4 => Op::Cas(key, first, second),
            5 => Op::Add(key, first),
            _ => return None,
        })
    }
}

/// The value of one object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Value(pub(crate) u64, pub(crate) u64);

impl Value {
    /// Executes an operation on the object that has this value. Returns the reply, and the value after it.
    pub(crate) fn after(self, op: Op) -> (Reply, Value) {
        let Value(first, second) = self;
        match op {
            Op::Append(word) => {
                let (length, words) = (first + 1, mix(second, word));
                (Reply(length, words), Value(length, words))
            }
            Op::GetAll => (Reply(first, second), self),
            Op::Put(_, value) => (Reply(first, 1), Value(value, 0)),
            Op::Get(_) => (Reply(first, 0), self),
            Op::Cas(_, from, to) if from == first => (Reply(first, 1), Value(to, 0)),
            Op::Cas(..) => (Reply(first, 2), self),
            Op::Add(_, delta) => (Reply(first.wrapping_add(delta), 1), Value(first.wrapping_add(delta), 0)),
        }
    }
}

/// The values of all objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Model {
    values: [Value; REGISTERS + 1],
}

impl Model {
    pub(crate) fn apply(&mut self, op: Op) -> Reply {
        let value = &mut self.values[usize::from(op.object())];
        let (reply, after) = value.after(op);
        *value = after;
        reply
    }

    /// Returns a hash of the values of all objects.
    pub(crate) fn hash(&self) -> u64 {
        self.values.iter().fold(3, |hash, value| mix(mix(hash, value.0), value.1))
    }

    pub(crate) fn value(&self, object: Object) -> Value {
        self.values[usize::from(object)]
    }
}

/// What a state machine was called with, for the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) position: u64,
    pub(crate) trail: Trail,
    pub(crate) what: Stepped,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stepped {
    Applied { client: Uid, call: CallNumber, op: Op, reply: Reply },
    Members,
    Restored,
}

/// What the driver and a state machine share.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// Calls that were not recorded yet.
    pub(crate) steps: RefCell<Vec<Step>>,
    /// True if the memory is bad: replies to commands are wrong.
    pub(crate) is_bad: Cell<bool>,
}

/// A copy's state machine.
#[derive(Debug)]
pub(crate) struct Copy {
    model: Model,
    words: Vec<u64>,
    position: u64,
    trail: Trail,
    watch: Rc<Watch>,
}

impl Copy {
    pub(crate) fn new(watch: Rc<Watch>) -> Copy {
        Copy { model: Model::default(), words: Vec::new(), position: 0, trail: Trail::default(), watch }
    }

    pub(crate) fn trail(&self) -> Trail {
        self.trail
    }

    /// Returns a hash of the values of all objects.
    pub(crate) fn values(&self) -> u64 {
        self.model.hash()
    }

    /// Returns the reply to an operation that changes nothing.
    pub(crate) fn look(&self, op: Op) -> Reply {
        self.model.value(op.object()).after(op).0
    }

    fn step(&mut self, hashed: u64, what: Stepped) {
        self.trail = Trail { steps: self.trail.steps + 1, hash: mix(self.trail.hash, hashed) };
        self.watch.steps.borrow_mut().push(Step { position: self.position, trail: self.trail, what });
    }
}

impl StateMachine for Copy {
    fn kind(request: &[u8]) -> Kind {
        match request.first() {
            Some(1) => Kind::Read,
            Some(2) => Kind::LocalRead,
            _ => Kind::Command,
        }
    }

    fn apply(&mut self, command: &Command<'_>) -> Outcome {
        let Some(op) = Op::read(command.payload) else { return Outcome::Refuse(Bytes::new()) };
        self.position = command.position;
        let mut reply = self.model.apply(op);
        if let Op::Append(word) = op {
            self.words.push(word);
        }
        if self.watch.is_bad.get() {
            reply.1 ^= 1 << 40;
        }
        let received_by = command.received_by.map_or(0, |server| server.uid.0);
        let hashed = [command.client.0, command.call, command.position, command.time_ms, received_by]
            .into_iter()
            .chain([hash(command.payload), reply.0, reply.1]);
        let hashed = hashed.fold(1, mix);
        let (client, call) = (command.client, command.call);
        self.step(hashed, Stepped::Applied { client, call, op, reply });
        match op {
            Op::Cas(..) if reply.1 == 2 => Outcome::Refuse(reply.write()),
            // Another server answers, with the same bytes.
            Op::Put(3.., _) => Outcome::Pass(reply.write()),
            _ => Outcome::Reply(reply.write()),
        }
    }

    fn read(&self, query: &Bytes) -> Outcome {
        match Op::read(query) {
            Some(op) => Outcome::Reply(self.look(op).write()),
            None => Outcome::Refuse(Bytes::new()),
        }
    }

    fn members(&mut self, members: &[Server]) {
        let hashed = members
            .iter()
            .map(|server| mix(server.uid.0, hash(server.name.as_str().as_bytes())))
            .fold(2, mix);
        self.step(hashed, Stepped::Members);
    }

    fn snapshot(&self) -> Vec<Bytes> {
        let mut head = Vec::new();
        let numbers = [self.position, self.trail.steps, self.trail.hash, self.words.len() as u64];
        let values = self.model.values.iter().flat_map(|value| [value.0, value.1]);
        numbers.into_iter().chain(values).for_each(|number| head.put_u64(number));
        let words = self.words.chunks(WORDS_IN_PART).map(|words| {
            let mut part = Vec::with_capacity(8 * words.len());
            words.iter().for_each(|word| part.put_u64(*word));
            part.into()
        });
        // The head comes last: with the first pieces of another state it does not fit.
        words.chain([head.into()]).collect()
    }

    fn restore(&mut self, parts: &[Bytes]) -> Result<(), NotRestored> {
        let (head, words) = parts.split_last().ok_or(NotRestored("it has no parts"))?;
        let mut head = head.clone();
        let mut next = || head.try_get_u64().map_err(|_| NotRestored("its head is short"));
        let (position, steps, hash, count) = (next()?, next()?, next()?, next()?);
        let mut model = Model::default();
        for value in &mut model.values {
            *value = Value(next()?, next()?);
        }
        let words: Vec<u64> = words
            .iter()
            .flat_map(|part| part.as_chunks::<8>().0.iter().map(|word| u64::from_be_bytes(*word)))
            .collect();
        // Only a transfer that mixes or spoils pieces makes them differ; the trail then shows it.
        let listed = Value(words.len() as u64, words.iter().fold(0, |hash, word| mix(hash, *word)));
        let is_whole = words.len() as u64 == count && listed == model.values[0];
        model.values[0] = listed;
        let trail = Trail { steps, hash: if is_whole { hash } else { !hash } };
        (self.model, self.words, self.position, self.trail) = (model, words, position, trail);
        self.watch.steps.borrow_mut().push(Step { position, trail, what: Stepped::Restored });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_replies_are_read_as_written() {
        let ops = [Op::Append(7), Op::GetAll, Op::Put(1, 2), Op::Get(4), Op::Cas(2, 3, 4), Op::Add(0, 9)];
        for (op, kind) in
            ops.into_iter().zip([Kind::Command, Kind::Read, Kind::LocalRead].into_iter().cycle())
        {
            let bytes = op.write(kind, 5);
            assert_eq!((Op::read(&bytes), Copy::kind(&bytes)), (Some(op), kind));
        }
        assert_eq!(Reply::read(&Reply(1, 2).write()), Some(Reply(1, 2)));
        assert_eq!(Reply::read(b"the call did not happen"), None);
    }

    #[test]
    fn a_restored_copy_goes_on_as_the_other_does() {
        let (mut one, mut other) = (Copy::new(Rc::default()), Copy::new(Rc::default()));
        let apply = |copy: &mut Copy, word: u64| {
            copy.apply(&Command::for_test(&Op::Append(word).write(Kind::Command, 0)))
        };
        (0..100).for_each(|word| _ = apply(&mut one, word));
        other.restore(&one.snapshot()).unwrap();
        assert_eq!((one.trail, &one.model, &one.words), (other.trail, &other.model, &other.words));
        assert_eq!(apply(&mut one, 5), apply(&mut other, 5));
        assert_eq!(one.trail, other.trail);
        assert!(one.snapshot().len() > 4);
    }
}

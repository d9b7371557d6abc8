//! The small objects that a replicated service of the simulator keeps: a list of words, a map of registers, and locks.
//! [`Model`] says what each operation on the first two does, for the copies and for the checkers; the locks are a real
//! table ([`Locks`]).

use super::locks::Locks;
use crate::directory;
use crate::record::mix;
use bytes::{Buf, BufMut, Bytes};
use unisono_core::Uid;
use unisono_core::replica::{Kind, NotRestored};

/// Number of registers.
pub(crate) const REGISTERS: usize = 5;
/// Number of the first lock among the objects.
const LOCK_OBJECTS: Object = 100;
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
    /// Claims a lock for a member, by the clock of its process. The reply has the number of the claim; refusals have 2.
    Acquire(u8, Uid, u64, bool),
    /// Ends a claim of a member.
    Release(u8, Uid, u64),
    /// Asks a directory. The request has this hash; records of directories have its bytes.
    Directory(u64),
}

/// The reply to an operation. That of a directory is its number and the hash of its bytes.
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
        if let Some(reply) = directory::reply_in(from) {
            return Some(reply);
        }
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
            Op::Acquire(name, ..) | Op::Release(name, ..) => LOCK_OBJECTS + name,
            Op::Directory(_) => u8::MAX,
        }
    }

    /// True if it is on a lock: what it does depends on the members too.
    pub(crate) fn is_of_locks(self) -> bool {
        matches!(self, Op::Acquire(..) | Op::Release(..))
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
            Op::Directory(_) => (6, 0, 0, 0),
            Op::Acquire(name, member, clock_us, false) => (7, name, member.0, clock_us),
            Op::Acquire(name, member, clock_us, true) => (8, name, member.0, clock_us),
            Op::Release(name, member, number) => (9, name, member.0, number),
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
            7 | 8 => Op::Acquire(key, Uid(first), second, code == 8),
            9 => Op::Release(key, Uid(first), second),
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
            Op::Acquire(..) | Op::Release(..) | Op::Directory(_) => (Reply::default(), self),
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
        if op.is_of_locks() {
            return Reply::default();
        }
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

/// The objects as a copy keeps them.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    model: Model,
    words: Vec<u64>,
    locks: Locks,
    /// Number of parts that its snapshots have besides.
    ballast: u64,
}

impl Objects {
    /// Returns the objects of a new service. Their snapshots have a number of parts that never change.
    pub(crate) fn with_ballast(ballast: u64) -> Objects {
        Objects { ballast, ..Objects::default() }
    }

    pub(crate) fn locks(&self) -> &Locks {
        &self.locks
    }

    pub(crate) fn locks_mut(&mut self) -> &mut Locks {
        &mut self.locks
    }

    /// Executes an operation of which this member received the request.
    pub(crate) fn apply(&mut self, op: Op, received_by: Option<Uid>) -> Reply {
        if op.is_of_locks() {
            return self.locks.apply(op, received_by);
        }
        if let Op::Append(word) = op {
            self.words.push(word);
        }
        self.model.apply(op)
    }

    /// Returns the reply to an operation that changes nothing.
    pub(crate) fn look(&self, op: Op) -> Reply {
        self.model.value(op.object()).after(op).0
    }

    /// Returns a hash of the values of all objects.
    pub(crate) fn hash(&self) -> u64 {
        self.model.hash()
    }

    /// Returns the parts of a snapshot, and what its head says of them.
    pub(crate) fn parts(&self) -> (Vec<Bytes>, Vec<u64>) {
        let words = self.words.chunks(WORDS_IN_PART).map(|words| {
            let mut part = Vec::with_capacity(8 * words.len());
            words.iter().for_each(|word| part.put_u64(*word));
            part.into()
        });
        let locks = self.locks.snapshot();
        let has_locks = u64::from(locks.is_some());
        let parts = words.chain((0..self.ballast).map(ballast_part)).chain(locks).collect();
        let values = self.model.values.iter().flat_map(|value| [value.0, value.1]);
        (parts, [self.words.len() as u64, self.ballast, has_locks].into_iter().chain(values).collect())
    }

    /// Returns the objects of a snapshot, and whether its parts are those of which the head says something.
    pub(crate) fn of_parts(parts: &[Bytes], mut head: &[u8]) -> Result<(Objects, bool), NotRestored> {
        let mut next = || head.try_get_u64().map_err(|_| NotRestored("its head is short"));
        let (count, ballast, has_locks) = (next()?, next()?, next()? == 1);
        let mut model = Model::default();
        for value in &mut model.values {
            *value = Value(next()?, next()?);
        }
        let (parts, locks) = parts.split_at(parts.len().saturating_sub(usize::from(has_locks)));
        let (locks, are_whole) = Locks::of_part(locks.first());
        let (parts, others) = parts.split_at(parts.len().saturating_sub(ballast as usize));
        let words: Vec<u64> = parts
            .iter()
            .flat_map(|part| part.as_chunks::<8>().0.iter().map(|word| u64::from_be_bytes(*word)))
            .collect();
        // Only a transfer that mixes or spoils pieces makes them differ.
        let listed = Value(words.len() as u64, words.iter().fold(0, |hash, word| mix(hash, *word)));
        let is_whole = are_whole
            && words.len() as u64 == count
            && listed == model.values[0]
            && (0..ballast).map(ballast_part).eq(others.iter().cloned());
        model.values[0] = listed;
        Ok((Objects { model, words, locks, ballast }, is_whole))
    }
}

/// Returns a part that never changes.
fn ballast_part(number: u64) -> Bytes {
    number.to_be_bytes().repeat(2).into()
}

#[cfg(test)]
mod tests {
    use super::super::machine::Copy;
    use super::*;
    use unisono_core::replica::StateMachine;

    #[test]
    fn requests_and_replies_are_read_as_written() {
        let ops = [Op::Append(7), Op::GetAll, Op::Put(1, 2), Op::Get(4), Op::Cas(2, 3, 4), Op::Add(0, 9)];
        let of_locks =
            [Op::Acquire(2, Uid(7), 8, false), Op::Acquire(2, Uid(7), 8, true), Op::Release(0, Uid(1), 2)];
        let ops = ops.into_iter().chain(of_locks);
        for (op, kind) in ops.zip([Kind::Command, Kind::Read, Kind::LocalRead].into_iter().cycle()) {
            let bytes = op.write(kind, 5);
            assert_eq!((Op::read(&bytes), Copy::kind(&bytes)), (Some(op), kind));
        }
        assert_eq!(Reply::read(&Reply(1, 2).write()), Some(Reply(1, 2)));
        assert_eq!(Reply::read(b"the call did not happen"), None);
    }
}

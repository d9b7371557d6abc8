//! The state machine that a server runs: a state of the simulator, and what is recorded of it.
//!
//! A copy counts the calls of its state machine and hashes their arguments and outcomes. The count and the hash travel in
//! the snapshots, so that a newcomer's are those of the copies that applied everything themselves.

use super::locks::{Line, Locks, REFUSED};
use super::states::{Objects, Op, Reply};
use crate::directory::{self, Directory};
use crate::record::{Trail, hash, mix};
use bytes::{Buf, BufMut, Bytes};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use unisono_core::Uid;
use unisono_core::replica::{Command, Kind, NotRestored, Outcome, Server, StateMachine};
use unisono_core::rpc::CallNumber;

/// What a state machine was called with, for the records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) position: u64,
    pub(crate) trail: Trail,
    pub(crate) what: Stepped,
    /// The locks after it, and the members if it shows them. `None` if it does not concern locks.
    pub(crate) locks: Option<(Vec<Line>, Vec<Uid>)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stepped {
    Applied {
        client: Uid,
        call: CallNumber,
        op: Op,
        reply: Reply,
        /// The bytes of the request and of the reply of a directory.
        content: Option<(Bytes, Bytes)>,
    },
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

/// What a service keeps.
#[derive(Debug)]
pub(crate) enum State {
    Objects(Box<Objects>),
    Directory(Box<Directory>),
}

/// A copy's state machine.
#[derive(Debug)]
pub(crate) struct Copy {
    state: State,
    position: u64,
    trail: Trail,
    watch: Rc<Watch>,
}

impl Copy {
    pub(crate) fn new(state: State, watch: Rc<Watch>) -> Copy {
        Copy { state, position: 0, trail: Trail::default(), watch }
    }

    pub(crate) fn trail(&self) -> Trail {
        self.trail
    }

    /// Returns a hash of the whole state.
    pub(crate) fn values(&self) -> u64 {
        match &self.state {
            State::Objects(objects) => objects.hash(),
            State::Directory(directory) => directory.hash(),
        }
    }

    /// Returns the reply to an operation that changes nothing.
    pub(crate) fn look(&self, op: Op) -> Reply {
        match &self.state {
            State::Objects(objects) => objects.look(op),
            State::Directory(_) => Reply::default(),
        }
    }

    /// Returns the directory, if the service keeps one.
    pub(crate) fn directory(&self) -> Option<&Directory> {
        match &self.state {
            State::Objects(_) => None,
            State::Directory(directory) => Some(directory),
        }
    }

    /// Returns the locks, if the service keeps objects.
    pub(crate) fn locks(&self) -> Option<&Locks> {
        match &self.state {
            State::Objects(objects) => Some(objects.locks()),
            State::Directory(_) => None,
        }
    }

    fn step(&mut self, hashed: u64, what: Stepped, members: Vec<Uid>) {
        self.trail = Trail { steps: self.trail.steps + 1, hash: mix(self.trail.hash, hashed) };
        self.note(what, members);
    }

    fn note(&self, what: Stepped, members: Vec<Uid>) {
        let concerns = match &what {
            Stepped::Applied { op, .. } => op.is_of_locks(),
            Stepped::Members | Stepped::Restored => true,
        };
        let locks = self.locks().filter(|locks| concerns && locks.are_used());
        let locks = locks.map(|locks| (locks.lines(), members));
        let (position, trail) = (self.position, self.trail);
        self.watch.steps.borrow_mut().push(Step { position, trail, what, locks });
    }

    /// Executes a request. Returns what is recorded of it, and the bytes of the reply.
    fn execute(&mut self, command: &Command<'_>) -> Option<(Op, Reply, Bytes)> {
        let payload = command.payload;
        match &mut self.state {
            State::Objects(objects) => {
                let op = Op::read(payload)?;
                let mut reply = objects.apply(op, command.received_by.map(|server| server.uid));
                if self.watch.is_bad.get() {
                    reply.1 ^= 1 << 40;
                }
                Some((op, reply, reply.write()))
            }
            State::Directory(directory) => {
                let request = directory::request_in(payload)?;
                let answer = directory.apply(&request);
                Some((Op::Directory(hash(&request)), Reply::read(&answer)?, answer))
            }
        }
    }

    fn content(&self, payload: &Bytes, answer: &Bytes) -> Option<(Bytes, Bytes)> {
        self.directory()?;
        Some((directory::request_in(payload)?, directory::answer_in(answer)?))
    }
}

impl StateMachine for Copy {
    fn kind(request: &[u8]) -> Kind {
        match request.first() {
            Some(1) => Kind::Read,
            Some(2) => Kind::LocalRead,
            Some(&directory::REQUEST) => directory::kind(&request[1..]),
            _ => Kind::Command,
        }
    }

    fn cost(request: &[u8]) -> u32 {
        match request {
            [directory::REQUEST, request @ ..] => unisono_table::Request::cost(request),
            _ => 1 + (request.len() / 4096) as u32,
        }
    }

    fn admit(&self, request: &Bytes) -> Option<Outcome> {
        let refusal = self.directory()?.admit(&directory::request_in(request)?)?;
        Some(Outcome::Reply(refusal))
    }

    fn admit_beginning(&self, beginning: &Bytes, bytes: usize) -> Option<Outcome> {
        let in_request = directory::request_in(beginning)?;
        let bytes = bytes - (beginning.len() - in_request.len());
        self.directory()?.admit_beginning(&in_request, bytes).map(Outcome::Reply)
    }

    fn apply(&mut self, command: &Command<'_>) -> Outcome {
        let Some((op, reply, answer)) = self.execute(command) else {
            return Outcome::Refuse(Bytes::new());
        };
        self.position = command.position;
        let received_by = command.received_by.map_or(0, |server| server.uid.0);
        let hashed = [command.client.0, command.call, command.position, command.time_ms, received_by]
            .into_iter()
            .chain([hash(command.payload), reply.0, reply.1]);
        let hashed = hashed.fold(1, mix);
        let (client, call, content) = (command.client, command.call, self.content(command.payload, &answer));
        self.step(hashed, Stepped::Applied { client, call, op, reply, content }, Vec::new());
        match op {
            Op::Cas(..) | Op::Acquire(..) | Op::Release(..) if reply.1 == REFUSED => Outcome::Refuse(answer),
            // Another server answers, with the same bytes.
            Op::Put(3.., _) => Outcome::Pass(answer),
            _ => Outcome::Reply(answer),
        }
    }

    fn read(&self, query: &Bytes) -> Outcome {
        let answer = match &self.state {
            State::Objects(objects) => Op::read(query).map(|op| objects.look(op).write()),
            State::Directory(directory) => {
                directory::request_in(query).map(|request| directory.answer(&request))
            }
        };
        match answer {
            Some(answer) => Outcome::Reply(answer),
            None => Outcome::Refuse(Bytes::new()),
        }
    }

    fn members(&mut self, members: &[Server]) {
        let hashed = members
            .iter()
            .map(|server| mix(server.uid.0, hash(server.name.as_str().as_bytes())))
            .fold(2, mix);
        if let State::Objects(objects) = &mut self.state {
            objects.locks_mut().members(members);
        }
        self.step(hashed, Stepped::Members, members.iter().map(|server| server.uid).collect());
    }

    fn prepare_snapshot(&mut self) -> bool {
        match &mut self.state {
            State::Objects(_) => true,
            State::Directory(directory) => directory.prepare_snapshot(),
        }
    }

    fn snapshot(&self) -> Vec<Bytes> {
        let (mut parts, numbers) = match &self.state {
            State::Objects(objects) => objects.parts(),
            State::Directory(directory) => (directory.snapshot(), Vec::new()),
        };
        let mut head = Vec::new();
        let trail = [self.position, self.trail.steps, self.trail.hash];
        trail.into_iter().chain(numbers).for_each(|number| head.put_u64(number));
        // The head comes last: with the first pieces of another state it does not fit.
        parts.push(head.into());
        parts
    }

    fn restore(&mut self, parts: &[Bytes]) -> Result<(), NotRestored> {
        let (head, parts) = parts.split_last().ok_or(NotRestored("it has no parts"))?;
        let mut head = head.clone();
        let mut next = || head.try_get_u64().map_err(|_| NotRestored("its head is short"));
        let (position, steps, hash) = (next()?, next()?, next()?);
        let is_whole = match &mut self.state {
            State::Objects(objects) => {
                let (mut restored, is_whole) = Objects::of_parts(parts, &head)?;
                restored.locks_mut().plant(objects.locks().planted());
                **objects = restored;
                is_whole
            }
            State::Directory(directory) => {
                directory.restore(parts)?;
                true
            }
        };
        // Of a state that is not whole the trail shows it.
        let trail = Trail { steps, hash: if is_whole { hash } else { !hash } };
        (self.position, self.trail) = (position, trail);
        self.note(Stepped::Restored, Vec::new());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restored_copy_goes_on_as_the_other_does() {
        let copy = || Copy::new(State::Objects(Box::new(Objects::with_ballast(3))), Rc::default());
        let (mut one, mut other) = (copy(), copy());
        let apply = |copy: &mut Copy, word: u64| {
            copy.apply(&Command::for_test(&Op::Append(word).write(Kind::Command, 0)))
        };
        (0..100).for_each(|word| _ = apply(&mut one, word));
        other.restore(&one.snapshot()).unwrap();
        assert_eq!(
            (one.trail, one.values(), one.snapshot()),
            (other.trail, other.values(), other.snapshot())
        );
        assert_eq!(apply(&mut one, 5), apply(&mut other, 5));
        assert_eq!(one.trail, other.trail);
        assert!(one.snapshot().len() > 4);
    }
}

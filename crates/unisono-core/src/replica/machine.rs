//! What a user of replicated state writes: a [`StateMachine`].

use crate::identity::{Member, Name, Uid};
use crate::rpc::CallNumber;
use crate::wire::Wishes;
use alloc::string::String;
use alloc::vec::Vec;
use bytes::Bytes;
use core::time::Duration;
use thiserror::Error;

/// Number of commands that were applied since the service was founded: the position of a command is its place among
/// them, from 1. It is the same at every member.
pub type Position = u64;

/// A state that several members keep, each a copy, and commands that change it.
///
/// Every copy applies the same commands in the same order, so what a method does may depend only on its arguments and
/// on the state: on no clock, no random numbers, nothing of its process. Time, random numbers and identifiers that a
/// command needs are part of its payload, or come with it ([`Command::time_ms`]). A command that cannot be executed is
/// refused; a copy whose `apply` panics leaves the group and names the command.
pub trait StateMachine {
    /// Maximum time for which a client may wait for the outcome of a command, an hour at most. The service remembers the
    /// commands of a client for a minute longer, so a client that goes away without a word takes memory for that long. The
    /// default is an hour. A command with a later deadline is refused by the server that receives it.
    const COMMAND_WAITS_MAX: Duration = Duration::from_secs(3600);

    /// Returns how a caller's request is treated. The default is a command, which is always right; a request that
    /// changes nothing is cheaper as a read.
    fn kind(request: &[u8]) -> Kind {
        let _ = request;
        Kind::Command
    }

    /// Returns about how long a server works for a caller's request, in units of 10 µs. Requests of more than 10 units have their
    /// turns after the others, except every ninth turn, and few of them are under way at a time: so no client's costly requests
    /// hold up those of others. The default is one unit, and one for each 4 KiB.
    fn cost(request: &[u8]) -> u32 {
        1 + (request.len() / 4096) as u32
    }

    /// Looks at a command before it is ordered. Returns the refusal if the command would be refused in the present state, or
    /// `None` to have it ordered. The default orders every command.
    ///
    /// The server that received the command asks, and it believes a refusal only of a state that contains everything that
    /// was answered before the command arrived, as for a read. A command that is refused here takes no position and no
    /// place in a log, and no server remembers it. So a client that may do nothing costs the other clients little.
    ///
    /// It may refuse early, and never accepts early: `apply` checks the command again, in a state that may be another one
    /// by then. It must return only what [`StateMachine::apply`] would return in the same state without changing anything.
    /// A command whose earlier attempt may have been executed is not refused so: it is ordered, or the client learns the outcome
    /// of the earlier attempt, or that it is unknown.
    fn admit(&self, request: &Bytes) -> Option<Outcome> {
        let _ = request;
        None
    }

    /// The same with the first bytes of a large request, a read too, while the other ones travel; `bytes` is the length of the whole.
    /// To refuse it here spares server and client the rest. The default lets every request come.
    fn admit_beginning(&self, beginning: &Bytes, bytes: usize) -> Option<Outcome> {
        let _ = (beginning, bytes);
        None
    }

    /// Executes a command at its place in the order.
    fn apply(&mut self, command: &Command<'_>) -> Outcome;

    /// Answers a request that changes nothing. Only requests come here for which [`StateMachine::kind`] returns a read.
    fn read(&self, query: &Bytes) -> Outcome {
        let _ = query;
        Outcome::Refuse(Bytes::from_static(b"this service has no reads"))
    }

    /// True if a caller's request shows in the present state that its client has a right to something, whether or not to what it asks
    /// for. Requests of addresses that have lately shown none wait behind those of the others, and few of them are taken. So a client
    /// with a right is not held up by many addresses without one. It is asked for each read, each repeat of a command,
    /// each command that [`StateMachine::admit`] refuses, and each beginning that is let on, of which it gets the first bytes alone;
    /// so it must be quick. The default says that every request shows a right.
    fn shows_right(&self, request: &Bytes) -> bool {
        let _ = request;
        true
    }

    /// Notes who the members are from here on, at a join, a leave or a reset, at its place between commands. The first
    /// call names the founders.
    fn members(&mut self, members: &[Server]) {
        let _ = members;
    }

    /// Returns the whole state, for a member that has none, in parts of any number; about 1 MiB each travels best. Parts
    /// that did not change since another snapshot need not travel again. The parts may share memory with the state
    /// (`Bytes` does); the copy serves no command until this returns.
    fn snapshot(&self) -> Vec<Bytes>;

    /// Prepares the next snapshot for about a millisecond, and returns true if nothing is left to prepare. Servers call it
    /// between commands before they take a snapshot, since commands wait while a snapshot is taken. A state that keeps its parts
    /// encodes here those that have changed. The default prepares nothing.
    fn prepare_snapshot(&mut self) -> bool {
        true
    }

    /// Replaces the state by the parts of another copy's snapshot.
    ///
    /// # Errors
    /// The parts are no state that this version of the program can restore. The member then ends; it does not serve
    /// with what it has.
    fn restore(&mut self, parts: &[Bytes]) -> Result<(), NotRestored>;

    /// Returns the answer in place of the member that received the request, which returned `word` in
    /// [`Outcome::Pass`], or as the holder of the handler that the caller or [`Outcome::Handler`] names: then `word` is what
    /// [`StateMachine::apply`] or [`StateMachine::read`] returned. Changes nothing. If a holder dies, the next one may answer
    /// the same request.
    fn take_over(&self, word: &Bytes, me: &Server) -> Bytes {
        let _ = me;
        word.clone()
    }
}

/// How a caller's request is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// It is put into the order and applied at every member, once.
    Command,
    /// It is answered by the member that received it, from a state that contains everything that was answered anywhere
    /// before the request arrived. A majority of the members confirms that, for all reads that wait at the same time.
    Read,
    /// It is answered at once by the member that received it, whose state may be behind.
    LocalRead,
}

/// A command at its place in the order, where it takes effect.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Command<'a> {
    /// Bytes of the command.
    pub payload: &'a Bytes,
    /// Uid of the client: the life of a calling process, or of a replica whose own process gave the command.
    pub client: Uid,
    /// Number of the command among those of its client.
    pub call: CallNumber,
    /// Its place among all commands since the service was founded, from 1.
    pub position: Position,
    /// Time of the order in milliseconds since the service was founded. It never goes back and advances only with
    /// commands, by the clocks of the members that submit them.
    pub time_ms: u64,
    /// The member that received the command, unless it has gone meanwhile.
    pub received_by: Option<&'a Server>,
}

impl<'a> Command<'a> {
    /// Returns a command for a test of a state machine: of client 1, with position 1 at time 0.
    pub fn for_test(payload: &'a Bytes) -> Command<'a> {
        Command { payload, client: Uid(1), call: 1, position: 1, time_ms: 0, received_by: None }
    }
}

/// A member as a state machine sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Server {
    /// Uid of the life of the member.
    pub uid: Uid,
    /// Name of the member.
    pub name: Name,
}

impl From<&Member> for Server {
    fn from(member: &Member) -> Server {
        Server { uid: member.uid, name: member.name.clone() }
    }
}

/// What a state machine answers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Outcome {
    /// The reply.
    Reply(Bytes),
    /// A refusal with its reason. It may have changed the state all the same.
    Refuse(Bytes),
    /// Another member answers, and gets these bytes ([`StateMachine::take_over`]).
    Pass(Bytes),
    /// The member that holds this handler answers, and gets these bytes ([`StateMachine::take_over`]). If the handler is no
    /// name of one, the command is refused after it took effect. A reply to a request that names a handler, and a request
    /// that is passed on, are answered so too, whatever the state machine knows of handlers.
    Handler(String, Bytes),
}

impl Outcome {
    pub(super) fn bytes(&self) -> &Bytes {
        match self {
            Outcome::Reply(bytes)
            | Outcome::Refuse(bytes)
            | Outcome::Pass(bytes)
            | Outcome::Handler(_, bytes) => bytes,
        }
    }

    pub(super) fn code(&self) -> u8 {
        match self {
            Outcome::Reply(_) => 0,
            Outcome::Refuse(_) => 1,
            Outcome::Pass(_) => 2,
            Outcome::Handler(..) => 3,
        }
    }

    /// Returns the name of the handler, if it is for one.
    pub(super) fn handler(&self) -> &str {
        match self {
            Outcome::Handler(name, _) => name,
            _ => "",
        }
    }

    /// Returns the length of all that it contains.
    pub(super) fn len(&self) -> usize {
        self.bytes().len() + self.handler().len()
    }

    /// Returns the outcome as it counts: one for a handler that has no name of one is a refusal.
    pub(super) fn checked(self) -> Outcome {
        match self {
            Outcome::Handler(name, _) if !Wishes::is_handler(&name) => {
                Outcome::Refuse(Bytes::from_static(b"the state machine names a handler that is none"))
            }
            outcome => outcome,
        }
    }

    /// Returns the outcome with this code and these bytes. `handler` is the name of one, or empty.
    pub(super) fn from_code(code: u8, handler: &str, bytes: Bytes) -> Option<Outcome> {
        Some(match code {
            0 => Outcome::Reply(bytes),
            1 => Outcome::Refuse(bytes),
            2 => Outcome::Pass(bytes),
            3 if Wishes::is_handler(handler) => Outcome::Handler(handler.into(), bytes),
            _ => return None,
        })
    }
}

impl<T: Into<Bytes>> From<T> for Outcome {
    fn from(reply: T) -> Outcome {
        Outcome::Reply(reply.into())
    }
}

/// The parts of a snapshot are no state that this program can restore.
#[derive(Clone, PartialEq, Eq, Error)]
#[error(
    "the state of the other members cannot be restored here: {0}; does another program use this name, or does this server \
     run an older version?"
)]
pub struct NotRestored(pub &'static str);

crate::debug_as_sentence!(NotRestored);

//! The state machine of a lock service: a [`LockTable`], and commands as text.

use super::{Changes, look};
use crate::replica::{Command, Kind, NotRestored, Outcome, Server, StateMachine};
use bytes::Bytes;
use std::str::FromStr;
use std::sync::Arc;
use unisono_core::Uid;
use unisono_core::locks::{LockRefusal, LockRequest, LockTable};

/// The refusal of a command that a former life of its member gave. The command's clock was read in that life, perhaps
/// under another founding of the group, so its fence might be too low.
pub(super) const FORMER_LIFE: &[u8] = b"the member that asked has entered the group again since";

/// The state that all members of a [lock service](super::LockService) keep.
#[derive(Debug, Default)]
pub struct LockMachine {
    table: LockTable,
    /// Wakes the threads of this process that wait for a change. Not part of the state.
    pub(super) changes: Arc<Changes>,
}

impl LockMachine {
    /// Returns the locks.
    pub fn table(&self) -> &LockTable {
        &self.table
    }

    /// Carries out `acquire UID CLOCK 0|1 NAME`, which returns the claim's number and member, or
    /// `release UID NUMBER NAME`.
    fn execute(&mut self, command: &Command<'_>) -> Result<String, Bytes> {
        let not_understood = || Bytes::from_static(b"not a command of a lock service");
        let text = std::str::from_utf8(command.payload).map_err(|_| not_understood())?;
        let (verb, rest) = text.split_once(' ').ok_or_else(not_understood)?;
        let (member, rest) = number(rest).ok_or_else(not_understood)?;
        let (value, rest) = number(rest).ok_or_else(not_understood)?;
        match verb {
            "acquire" => {
                let (waits, name) = number::<u8>(rest).ok_or_else(not_understood)?;
                if command.received_by.is_none_or(|server| server.uid != Uid(member)) {
                    return Err(Bytes::from_static(FORMER_LIFE));
                }
                let request = LockRequest { member: Uid(member), clock_us: value, waits: waits == 1 };
                let claim = self.table.acquire(name, request).map_err(refusal)?;
                Ok(format!("{} {}", claim.number, claim.member.0))
            }
            "release" => {
                let released = self.table.release(rest, Uid(member), value);
                released.map(|()| String::new()).map_err(|error| error.to_string().into())
            }
            _ => Err(not_understood()),
        }
    }
}

impl StateMachine for LockMachine {
    /// Callers from outside may only look: a claim is of a member.
    fn kind(_request: &[u8]) -> Kind {
        Kind::LocalRead
    }

    fn read(&self, question: &Bytes) -> Outcome {
        look::answer(&self.table, question)
    }

    fn apply(&mut self, command: &Command<'_>) -> Outcome {
        match self.execute(command) {
            Ok(reply) => {
                self.changes.note();
                reply.into()
            }
            Err(reason) => Outcome::Refuse(reason),
        }
    }

    fn members(&mut self, members: &[Server]) {
        self.table.members(|member| members.iter().any(|server| server.uid == member));
        self.changes.note();
    }

    fn snapshot(&self) -> Vec<Bytes> {
        vec![self.table.snapshot()]
    }

    fn restore(&mut self, parts: &[Bytes]) -> Result<(), NotRestored> {
        self.table = LockTable::restore(&parts.concat())?;
        self.changes.note();
        Ok(())
    }
}

/// Splits a number off the text.
fn number<T: FromStr>(text: &str) -> Option<(T, &str)> {
    let (number, rest) = text.split_once(' ')?;
    Some((number.parse().ok()?, rest))
}

fn refusal(refusal: LockRefusal) -> Bytes {
    refusal.to_string().into()
}

/// Returns the command that claims a lock.
pub(super) fn acquire(member: Uid, clock_us: u64, waits: bool, name: &str) -> String {
    format!("acquire {} {clock_us} {} {name}", member.0, u8::from(waits))
}

/// Returns the command that ends a claim.
pub(super) fn release(member: Uid, claim: u64, name: &str) -> String {
    format!("release {} {claim} {name}", member.0)
}

/// Reads the reply to a claim: its number, and its member.
pub(super) fn claim(reply: &[u8]) -> Option<(u64, Uid)> {
    let (number, member) = std::str::from_utf8(reply).ok()?.split_once(' ')?;
    Some((number.parse().ok()?, Uid(member.parse().ok()?)))
}

/// Returns the refusal with these words.
pub(super) fn refused(words: &[u8]) -> Option<LockRefusal> {
    LockRefusal::ALL.into_iter().find(|refusal| refusal.to_string().as_bytes() == words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replica::Server;
    use crate::{Member, Name};

    fn apply(machine: &mut LockMachine, payload: impl Into<Bytes>) -> Outcome {
        let payload = payload.into();
        machine.apply(&Command::for_test(&payload))
    }

    #[test]
    fn what_is_no_command_is_refused() {
        let mut machine = LockMachine::default();
        for payload in
            ["", "acquire", "acquire 1 2 3", "acquire x 2 1 door", "steal 1 2 door", "release 1 -1 x"]
        {
            assert!(matches!(apply(&mut machine, payload), Outcome::Refuse(_)), "{payload}");
        }
        assert!(matches!(apply(&mut machine, &b"\xff \xff"[..]), Outcome::Refuse(_)));
        assert!(machine.table.is_empty());
    }

    #[test]
    fn callers_from_outside_may_only_look() {
        assert_eq!(LockMachine::kind(acquire(Uid(1), 0, true, "door").as_bytes()), Kind::LocalRead);
        let machine = LockMachine::default();
        let claims = machine.read(&acquire(Uid(1), 0, true, "door").into());
        assert!(matches!(claims, Outcome::Refuse(_)));
    }

    #[test]
    fn a_claim_of_a_former_life_is_refused() {
        let payload = Bytes::from(acquire(Uid(1), 0, true, "door"));
        let life = |uid| {
            let (name, address) = (Name::default(), ([127, 0, 0, 1], 7).into());
            Server::from(&Member { uid: Uid(uid), name, address, floor: Default::default(), hops: 1 })
        };
        let (former, present) = (life(2), life(1));
        for (received_by, is_refused) in [(None, true), (Some(&former), true), (Some(&present), false)] {
            let mut command = Command::for_test(&payload);
            command.received_by = received_by;
            let outcome = LockMachine::default().apply(&command);
            assert_eq!(outcome == Outcome::Refuse(FORMER_LIFE.into()), is_refused, "{outcome:?}");
        }
    }

    #[test]
    fn refusals_are_recognized_by_their_words() {
        for known in LockRefusal::ALL {
            assert_eq!(refused(known.to_string().as_bytes()), Some(known));
        }
        assert_eq!(refused(FORMER_LIFE), None);
        assert_eq!(claim(b"7 9"), Some((7, Uid(9))));
        assert_eq!(claim(b"7"), None);
    }
}

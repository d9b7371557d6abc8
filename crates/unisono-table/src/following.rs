//! The client's side of a watch: where it is, what it asks, and what it makes of a reply. Without clock, threads and network.
//!
//! A number says where a watch is only together with the instance of the service that gave the number. A service that began
//! anew from a disk or a backup gives the numbers of its lost commands to others, so a watch from the instance of before
//! would miss changes. It ends instead.

use crate::capability::Capability;
use crate::refusal::{Reason, Refusal};
use crate::reply::{Answer, Change};
use crate::request::{Place, Query, Request};
use alloc::vec::Vec;
use core::fmt;
use core::num::ParseIntError;
use core::str::FromStr;
use thiserror::Error;

/// Digits of an instance in text.
const INSTANCE_DIGITS: usize = 16;

/// From where a watch goes on: a number, and the instance of the service that gives it. As text it is
/// `INSTANCE:NUMBER`, with 16 hexadecimal digits and a decimal number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Position {
    /// The instance: another one after each time that the service began anew.
    pub instance: u64,
    /// Number of the first command of interest.
    pub number: u64,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}:{}", self.instance, self.number)
    }
}

/// The text is no position.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("a position is INSTANCE:NUMBER, with {INSTANCE_DIGITS} hexadecimal digits and a decimal number")]
pub struct NotAPosition;

impl From<ParseIntError> for NotAPosition {
    fn from(_: ParseIntError) -> NotAPosition {
        NotAPosition
    }
}

impl FromStr for Position {
    type Err = NotAPosition;

    fn from_str(text: &str) -> Result<Position, NotAPosition> {
        let (instance, number) = text.split_once(':').ok_or(NotAPosition)?;
        let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if instance.len() != INSTANCE_DIGITS || !is_plain(instance) || !is_plain(number) {
            return Err(NotAPosition);
        }
        Ok(Position { instance: u64::from_str_radix(instance, 16)?, number: number.parse()? })
    }
}

/// A watch of a directory as its client sees it.
#[derive(Clone, Debug)]
pub struct Follower {
    directory: Capability,
    position: Position,
}

/// What a reply to a watch contains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Followed {
    /// The changes from the position on; it is behind them now.
    Changes(Vec<Change>),
    /// The server has not got to the position yet.
    Behind,
}

/// Why a watch does not go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lost {
    /// The service that answered is another instance than that of the position.
    OtherInstance,
    /// The service refuses it.
    Refused(Refusal),
    /// It is no reply to a watch.
    Unreadable,
}

impl Follower {
    /// Returns a watch of this directory from this position on.
    pub fn new(directory: Capability, position: Position) -> Follower {
        Follower { directory, position }
    }

    /// Returns from where it asks for changes.
    pub fn position(&self) -> Position {
        self.position
    }

    /// Returns the directory.
    pub fn directory(&self) -> Capability {
        self.directory
    }

    /// Returns the request to the port of watches.
    pub fn request(&self) -> Request {
        let (place, from) = (Place::of(self.directory), self.position.number);
        Request::LocalQuery(Query::Changes { place, from })
    }

    /// Takes a reply. `instance` is that of the service which gave it.
    ///
    /// # Errors
    /// The watch does not go on. What came with the reply does not count.
    pub fn take(&mut self, instance: Option<u64>, result: Result<Answer, Refusal>) -> Result<Followed, Lost> {
        if instance != Some(self.position.instance) {
            return Err(Lost::OtherInstance);
        }
        match result {
            Ok(Answer::Changes { changes, next }) => {
                self.position.number = self.position.number.max(next);
                Ok(Followed::Changes(changes))
            }
            Ok(_) => Err(Lost::Unreadable),
            Err(refusal) if matches!(refusal.reason, Reason::Future { .. }) => Ok(Followed::Behind),
            Err(refusal) => Err(Lost::Refused(refusal)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capability::{Check, ObjectNumber, Port};
    use alloc::string::ToString;

    #[test]
    fn a_position_is_read_as_it_was_written_and_nothing_else_is_one() {
        for position in
            [Position { instance: 1, number: 0 }, Position { instance: u64::MAX, number: u64::MAX }]
        {
            assert_eq!(position.to_string().parse(), Ok(position));
        }
        let bad = ["", "17", "1f:17", ":", "0123456789abcdef:", "0123456789abcdef:+7", "+123456789abcdef:7"];
        for text in bad {
            assert_eq!(text.parse::<Position>(), Err(NotAPosition), "{text}");
        }
    }

    #[test]
    fn a_reply_of_another_instance_ends_a_watch_and_moves_it_nowhere() {
        let directory = Capability::of_owner(Port(7), ObjectNumber(1), Check::from_bits(2));
        let start = Position { instance: 5, number: 9 };
        let changes = || Ok(Answer::Changes { changes: Vec::new(), next: 14 });
        for other in [Some(6), None] {
            let mut follower = Follower::new(directory, start);
            assert_eq!(follower.take(other, changes()), Err(Lost::OtherInstance));
            assert_eq!(follower.position(), start);
        }
        let mut follower = Follower::new(directory, start);
        assert_eq!(follower.take(Some(5), changes()), Ok(Followed::Changes(Vec::new())));
        assert_eq!(follower.position().number, 14);
        let future = Err(Reason::Future { number: 13 }.into());
        assert_eq!(follower.take(Some(5), future), Ok(Followed::Behind));
        assert_eq!(follower.take(Some(5), Ok(Answer::Done)), Err(Lost::Unreadable));
    }
}

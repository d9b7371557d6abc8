//! The locks of a copy: a real [`LockTable`], used as a state machine uses it. A claim is of a life of the member that
//! received its command, and a claim of a former life is refused.

use super::states::{Op, Reply};
use bytes::Bytes;
use unisono_core::locks::{LockClaim, LockRequest, LockTable};
use unisono_core::replica::Server;
use unisono_core::{Planted, Uid};

/// Number of names of locks.
pub(crate) const LOCKS: u8 = 3;
/// Second number of replies to what was refused.
pub(crate) const REFUSED: u64 = 2;

/// The locks, and who waits for them.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    table: LockTable,
    /// True once there was a command on a lock.
    is_used: bool,
    planted: Option<Planted>,
    /// Members of which the table does not know yet: a planted bug.
    later: Option<Vec<Uid>>,
}

/// The line of a lock: the holder's claim, then those that wait.
pub(crate) type Line = (u8, Vec<LockClaim>);

impl Locks {
    pub(crate) fn plant(&mut self, bug: Option<Planted>) {
        self.planted = bug;
        bug.into_iter().for_each(|bug| self.table.plant(bug));
    }

    pub(super) fn planted(&self) -> Option<Planted> {
        self.planted
    }

    /// True if something is to be recorded of them.
    pub(crate) fn are_used(&self) -> bool {
        self.is_used
    }

    pub(super) fn apply(&mut self, op: Op, received_by: Option<Uid>) -> Reply {
        self.is_used = true;
        self.later.take().into_iter().for_each(|members| self.show(&members));
        let number = match op {
            Op::Acquire(name, member, clock_us, waits) if received_by == Some(member) => {
                let request = LockRequest { member, clock_us, waits };
                self.table.acquire(&word(name), request).ok().map(|claim| claim.number)
            }
            Op::Release(name, member, number) => {
                self.table.release(&word(name), member, number).ok().map(|()| number)
            }
            _ => None,
        };
        number.map_or(Reply(0, REFUSED), |number| Reply(number, 1))
    }

    pub(super) fn members(&mut self, members: &[Server]) {
        let members: Vec<Uid> = members.iter().map(|server| server.uid).collect();
        match self.planted {
            Some(Planted::LockFreedElsewhere) => self.later = Some(members),
            _ => self.show(&members),
        }
    }

    fn show(&mut self, members: &[Uid]) {
        self.table.members(|member| members.contains(&member));
    }

    /// Returns the claim of a member.
    pub(crate) fn claim(&self, name: u8, member: Uid) -> Option<LockClaim> {
        self.table.claim(&word(name), member)
    }

    /// Returns the lines of all locks that are held.
    pub(crate) fn lines(&self) -> Vec<Line> {
        let number = |name: &str| name.bytes().last().unwrap_or_default() - b'a';
        self.table.locks().map(|(name, claims)| (number(name), claims.collect())).collect()
    }

    /// Returns the part of a snapshot; `None` if there was no command on a lock.
    pub(super) fn snapshot(&self) -> Option<Bytes> {
        self.is_used.then(|| self.table.snapshot())
    }

    /// Returns the locks of a snapshot with this part, and whether the part is one.
    pub(super) fn of_part(part: Option<&Bytes>) -> (Locks, bool) {
        let Some(part) = part else { return (Locks::default(), true) };
        let table = LockTable::restore(part);
        let is_whole = table.is_ok();
        (Locks { table: table.unwrap_or_default(), is_used: true, ..Locks::default() }, is_whole)
    }
}

/// Returns the name of a lock. One of them is no name.
fn word(name: u8) -> String {
    if name < LOCKS { format!("lock-{}", char::from(b'a' + name)) } else { String::new() }
}

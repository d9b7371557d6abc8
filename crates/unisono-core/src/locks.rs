//! Locks with lines of waiters: a table that any replicated state can contain.
//!
//! A [`LockTable`] is a plain fold over a group's order. All members apply the same [`acquire`](LockTable::acquire),
//! [`release`](LockTable::release) and [`members`](LockTable::members) in the same order, so all tables are equal, and
//! every member knows the same holder of each lock. A lock ends with its holder's member: the leave, crash or exclusion
//! that removes the member frees the lock at every member by the same event, and the next claim in line has it then.
//!
//! The module has no clock. Each claim carries the clock of the process that asks, so that fences rise across foundings
//! of the group too.

use crate::Uid;
use crate::planted::Planted;
use crate::replica::NotRestored;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;
use bytes::Bytes;
use thiserror::Error;

/// Maximum length of the name of a lock, in bytes.
pub const LOCK_NAME_BYTES_MAX: usize = 255;
/// Maximum number of locks that are held at the same time: a state of at most about 24 MB with [`LOCK_CLAIMS_MAX`] claims.
pub const LOCKS_MAX: usize = 1 << 16;
/// Maximum number of claims, of holders and waiters together. One line has at most one claim of each member.
pub const LOCK_CLAIMS_MAX: usize = 1 << 18;
/// Highest clock of a claim, in microseconds since 1970: about the year 38,500. A higher one would leave no numbers for
/// later fences.
pub const LOCK_CLOCK_US_MAX: u64 = 1 << 60;

/// The first bytes of a snapshot, with its version.
const HEADER: &[u8] = b"unisono locks 1\n";

/// The locks that are held, and the claims that wait for them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockTable {
    /// The line of each lock that is held. No line is empty: its first claim has the lock.
    lines: BTreeMap<String, Line>,
    /// Number of claims in all lines.
    claims: usize,
    /// Number of the last claim.
    last_number: u64,
    fences: Fences,
}

/// The fences that were given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Fences {
    /// That of the last grant of any lock.
    last: u64,
    planted: Option<Planted>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    /// Fence of the first claim.
    fence: u64,
    claims: VecDeque<Waiter>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Waiter {
    number: u64,
    member: Uid,
    clock_us: u64,
}

/// What a member asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockRequest {
    /// The life of the member that asks.
    pub member: Uid,
    /// Clock of its process, in microseconds since 1970, read in this life of the member.
    pub clock_us: u64,
    /// True if the claim may wait in line. Otherwise it is refused if another member has the lock.
    pub waits: bool,
}

/// A place in the line of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct LockClaim {
    /// Number of the claim. No other claim since the group was founded has it.
    pub number: u64,
    /// The life of the member that made it.
    pub member: Uid,
    /// The fence if the claim has the lock; `None` while it waits.
    pub fence: Option<u64>,
}

/// Why a claim was refused. The table did not change.
#[derive(Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LockRefusal {
    /// The name is empty, longer than [`LOCK_NAME_BYTES_MAX`], or has control characters.
    #[error("the name of a lock has 1 to 255 bytes and no control characters")]
    BadName,
    /// Another member has the lock, and the request does not wait.
    #[error("another member has this lock")]
    Held,
    /// [`LOCKS_MAX`] locks are held.
    #[error("too many locks are held: 65536 at the same time are the most")]
    TooManyLocks,
    /// There are [`LOCK_CLAIMS_MAX`] claims.
    #[error("too many claims hold locks or wait for them: 262144 are the most")]
    TooManyClaims,
    /// The clock of the claim is above [`LOCK_CLOCK_US_MAX`].
    #[error("the clock of this process is wrong: it is after the year 38000")]
    BadClock,
}

crate::debug_as_sentence!(LockRefusal { BadName, Held, TooManyLocks, TooManyClaims, BadClock });

impl LockRefusal {
    /// All refusals.
    pub const ALL: [LockRefusal; 5] = [
        LockRefusal::BadName,
        LockRefusal::Held,
        LockRefusal::TooManyLocks,
        LockRefusal::TooManyClaims,
        LockRefusal::BadClock,
    ];
}

/// The member has no such claim. The table did not change.
#[derive(Clone, Copy, PartialEq, Eq, Error)]
#[error("this member does not hold the lock, and does not wait for it")]
pub struct NotClaimed;

crate::debug_as_sentence!(NotClaimed);

impl LockTable {
    /// Returns whether a lock may have this name.
    ///
    /// # Errors
    /// [`LockRefusal::BadName`].
    pub fn check_name(name: &str) -> Result<(), LockRefusal> {
        let is_good = (1..=LOCK_NAME_BYTES_MAX).contains(&name.len()) && !name.contains(char::is_control);
        is_good.then_some(()).ok_or(LockRefusal::BadName)
    }

    /// Claims a lock: grants it if it is free, otherwise adds the claim at the end of its line. A member that asks again
    /// gets the claim that it has.
    pub fn acquire(&mut self, name: &str, request: LockRequest) -> Result<LockClaim, LockRefusal> {
        LockTable::check_name(name)?;
        if request.clock_us > LOCK_CLOCK_US_MAX {
            return Err(LockRefusal::BadClock);
        }
        match self.claim(name, request.member) {
            Some(claim) if claim.fence.is_some() || request.waits => return Ok(claim),
            None if request.waits || !self.lines.contains_key(name) => {}
            _ => return Err(LockRefusal::Held),
        }
        if self.claims >= LOCK_CLAIMS_MAX {
            return Err(LockRefusal::TooManyClaims);
        }
        if !self.lines.contains_key(name) && self.lines.len() >= LOCKS_MAX {
            return Err(LockRefusal::TooManyLocks);
        }
        self.last_number += 1;
        self.claims += 1;
        let LockRequest { member, clock_us, .. } = request;
        let waiter = Waiter { number: self.last_number, member, clock_us };
        let fence = match self.lines.get_mut(name) {
            Some(line) => {
                line.claims.push_back(waiter);
                None
            }
            None => {
                let fence = self.fences.next(&waiter);
                self.lines.insert(name.into(), Line { fence, claims: VecDeque::from([waiter]) });
                Some(fence)
            }
        };
        Ok(LockClaim { number: waiter.number, member, fence })
    }

    /// Ends a claim, whether it has the lock or waits. If it has the lock, the next in line has it then.
    pub fn release(&mut self, name: &str, member: Uid, number: u64) -> Result<(), NotClaimed> {
        let line = self.lines.get_mut(name).ok_or(NotClaimed)?;
        let is_it = |waiter: &Waiter| waiter.number == number && waiter.member == member;
        let at = line.claims.iter().position(is_it).ok_or(NotClaimed)?;
        line.claims.remove(at);
        self.claims -= 1;
        if at == 0 && line.claims.len() > 1 && self.fences.broken(Planted::LockWaiterSkipped) {
            line.claims.swap(0, 1);
        }
        match line.claims.front() {
            None => drop(self.lines.remove(name)),
            Some(first) if at == 0 => line.fence = self.fences.next(first),
            Some(_) => {}
        }
        Ok(())
    }

    /// Ends all claims of members for which `is_member` is false. Call it at every change of the group's members.
    pub fn members(&mut self, is_member: impl Fn(Uid) -> bool) {
        let (fences, mut claims) = (&mut self.fences, 0);
        self.lines.retain(|_, line| {
            let holder = line.claims.front().map(|waiter| waiter.number);
            let keeps =
                |waiter: &Waiter| Some(waiter.number) == holder && fences.broken(Planted::LockKeptByExcluded);
            line.claims.retain(|waiter| is_member(waiter.member) || keeps(waiter));
            claims += line.claims.len();
            match line.claims.front() {
                None => return false,
                Some(first) if Some(first.number) != holder => line.fence = fences.next(first),
                Some(_) => {}
            }
            true
        });
        self.claims = claims;
    }

    /// Returns the claim of the member that has the lock; `None` if the lock is free.
    pub fn holder(&self, name: &str) -> Option<LockClaim> {
        self.line(name).next()
    }

    /// Returns the claim of a member.
    pub fn claim(&self, name: &str, member: Uid) -> Option<LockClaim> {
        self.line(name).find(|claim| claim.member == member)
    }

    /// Returns the claims of a lock: the holder, then the waiters in the order of their claims.
    pub fn line(&self, name: &str) -> impl Iterator<Item = LockClaim> {
        self.lines.get(name).into_iter().flat_map(|line| line.shown(self.holders()))
    }

    /// Returns the locks that are held, by name, each with its claims.
    pub fn locks(&self) -> impl Iterator<Item = (&str, impl Iterator<Item = LockClaim>)> {
        self.lines.iter().map(|(name, line)| (name.as_str(), line.shown(self.holders())))
    }

    /// Returns the number of locks that are held.
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// True if no lock is held.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Returns how many claims of a line have the lock.
    fn holders(&self) -> usize {
        if self.fences.broken(Planted::LockHeldByTwo) { 2 } else { 1 }
    }

    /// Switches a bug on. Without the feature `planted` this does nothing.
    pub fn plant(&mut self, bug: Planted) {
        self.fences.planted = Some(bug);
    }

    /// Returns the table as bytes, for a [snapshot](crate::replica::StateMachine::snapshot). The bytes of equal tables are
    /// equal.
    pub fn snapshot(&self) -> Bytes {
        let mut out = Vec::from(HEADER);
        for number in [self.last_number, self.fences.last, self.lines.len() as u64] {
            out.extend(number.to_be_bytes());
        }
        for (name, line) in &self.lines {
            out.push(name.len() as u8);
            out.extend(name.as_bytes());
            out.extend(line.fence.to_be_bytes());
            out.extend((line.claims.len() as u64).to_be_bytes());
            for Waiter { number, member, clock_us } in &line.claims {
                [*number, member.0, *clock_us].iter().for_each(|number| out.extend(number.to_be_bytes()));
            }
        }
        out.into()
    }

    /// Reads what [`LockTable::snapshot`] returned.
    ///
    /// # Errors
    /// The bytes are no table of locks.
    pub fn restore(bytes: &[u8]) -> Result<LockTable, NotRestored> {
        let wrong = NotRestored("it is no table of locks");
        let mut rest = bytes.strip_prefix(HEADER).ok_or(wrong.clone())?;
        let table = read_table(&mut rest).filter(|_| rest.is_empty());
        table.filter(LockTable::is_consistent).ok_or(wrong)
    }

    /// Checks what every table keeps to, so that a forged snapshot cannot break a later step.
    fn is_consistent(&self) -> bool {
        let lines_hold = self.lines.iter().all(|(name, line)| {
            let known =
                |waiter: &Waiter| waiter.number <= self.last_number && waiter.clock_us <= LOCK_CLOCK_US_MAX;
            let rises = line.claims.iter().zip(line.claims.iter().skip(1)).all(|(a, b)| a.number < b.number);
            LockTable::check_name(name).is_ok()
                && !line.claims.is_empty()
                && line.fence <= self.fences.last
                && line.claims.iter().all(known)
                && rises
        });
        let bounded = self.lines.len() <= LOCKS_MAX && self.claims <= LOCK_CLAIMS_MAX;
        // Each grant of a founding raises the fence by 1 at least, so half of the numbers are left.
        lines_hold && bounded && self.fences.last <= u64::MAX / 2 && self.last_number <= u64::MAX / 2
    }
}

impl Line {
    /// Returns the claims, the first `holders` of which have the lock.
    fn shown(&self, holders: usize) -> impl Iterator<Item = LockClaim> {
        self.claims.iter().enumerate().map(move |(at, waiter)| LockClaim {
            number: waiter.number,
            member: waiter.member,
            fence: (at < holders).then_some(self.fence),
        })
    }
}

impl Fences {
    /// Returns the fence of a grant to this claim: its clock, but more than the fence before.
    fn next(&mut self, granted: &Waiter) -> u64 {
        let after = self.last + u64::from(!self.broken(Planted::FenceRepeats));
        let clock_us = if self.broken(Planted::FenceWithoutClock) { 0 } else { granted.clock_us };
        self.last = clock_us.max(after);
        self.last
    }

    /// True if this planted bug is switched on.
    #[inline]
    fn broken(&self, bug: Planted) -> bool {
        cfg!(feature = "planted") && self.planted == Some(bug)
    }
}

fn read_table(rest: &mut &[u8]) -> Option<LockTable> {
    let last_number = number(rest)?;
    let fences = Fences { last: number(rest)?, ..Fences::default() };
    let mut table = LockTable { last_number, fences, ..LockTable::default() };
    for _ in 0..number(rest)? {
        let (length, after) = rest.split_first()?;
        let (name, after) = after.split_at_checked((*length).into())?;
        *rest = after;
        let name = core::str::from_utf8(name).ok()?;
        let (fence, mut claims) = (number(rest)?, VecDeque::new());
        for _ in 0..number(rest)? {
            let (number, member, clock_us) = (number(rest)?, Uid(number(rest)?), number(rest)?);
            claims.push_back(Waiter { number, member, clock_us });
        }
        table.claims += claims.len();
        if table.lines.insert(name.into(), Line { fence, claims }).is_some() {
            return None;
        }
    }
    Some(table)
}

fn number(rest: &mut &[u8]) -> Option<u64> {
    let (number, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(u64::from_be_bytes(*number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    fn ask(member: u64, clock_us: u64) -> LockRequest {
        LockRequest { member: Uid(member), clock_us, waits: true }
    }

    fn at_once(member: u64) -> LockRequest {
        LockRequest { waits: false, ..ask(member, 0) }
    }

    /// Members 1, 2 and 3 ask for the same lock, in this order, at the times 100, 90 and 80.
    fn line_of_three() -> LockTable {
        let mut table = LockTable::default();
        for (member, clock) in [(1, 100), (2, 90), (3, 80)] {
            table.acquire("door", ask(member, clock)).unwrap();
        }
        table
    }

    fn line(table: &LockTable) -> Vec<(u64, Option<u64>)> {
        table.line("door").map(|claim| (claim.member.0, claim.fence)).collect()
    }

    #[test]
    fn the_first_has_the_lock_and_the_others_wait_in_the_order_of_their_claims() {
        let mut table = line_of_three();
        assert_eq!(line(&table), [(1, Some(100)), (2, None), (3, None)]);
        assert_eq!(table.acquire("window", ask(2, 0)).unwrap().fence, Some(101), "another lock is free");
        table.release("door", Uid(1), 1).unwrap();
        assert_eq!(line(&table), [(2, Some(102)), (3, None)]);
        table.release("door", Uid(2), 2).unwrap();
        assert_eq!(line(&table), [(3, Some(103))]);
        table.release("door", Uid(3), 3).unwrap();
        assert_eq!(table.locks().map(|(name, _)| name).collect::<Vec<_>>(), ["window"]);
    }

    #[test]
    fn a_waiter_that_gives_up_changes_neither_holder_nor_fence() {
        let mut table = line_of_three();
        table.release("door", Uid(2), 2).unwrap();
        assert_eq!(line(&table), [(1, Some(100)), (3, None)]);
        assert_eq!(table.fences.last, 100);
    }

    #[test]
    fn a_lock_ends_with_its_holders_member() {
        let mut table = line_of_three();
        table.members(|member| member != Uid(2));
        assert_eq!(line(&table), [(1, Some(100)), (3, None)], "a waiter has gone");
        table.members(|member| member == Uid(3));
        assert_eq!(line(&table), [(3, Some(101))], "the holder has gone");
        table.members(|_| false);
        assert!(table.is_empty() && table.claims == 0);
        assert_eq!(table.acquire("door", ask(4, 5)).unwrap().fence, Some(102), "fences do not fall");
    }

    #[test]
    fn asking_twice_is_one_claim() {
        let mut table = line_of_three();
        let before = table.clone();
        let again = table.acquire("door", ask(2, 500)).unwrap();
        assert_eq!((again.number, again.fence), (2, None));
        assert_eq!(table.acquire("door", at_once(1)).unwrap().fence, Some(100));
        assert_eq!(table, before);
    }

    #[test]
    fn a_refusal_changes_nothing() {
        let mut table = line_of_three();
        let before = table.clone();
        let long = "x".repeat(LOCK_NAME_BYTES_MAX + 1);
        for name in ["", "a\nb", "\u{1b}", &long] {
            assert_eq!(table.acquire(name, ask(4, 0)), Err(LockRefusal::BadName));
        }
        assert_eq!(table.acquire("door", at_once(4)), Err(LockRefusal::Held));
        assert_eq!(table.acquire("door", at_once(2)), Err(LockRefusal::Held), "it waits");
        let late = ask(4, LOCK_CLOCK_US_MAX + 1);
        assert_eq!(table.acquire("window", late), Err(LockRefusal::BadClock));
        for (member, number) in [(4, 1), (2, 1), (1, 2), (1, 9)] {
            assert_eq!(table.release("door", Uid(member), number), Err(NotClaimed));
        }
        assert_eq!(table.release("window", Uid(1), 1), Err(NotClaimed));
        assert_eq!(table, before);
        assert!(table.acquire(&"x".repeat(LOCK_NAME_BYTES_MAX), ask(4, 0)).is_ok());
    }

    #[test]
    fn fences_rise_with_each_grant_whatever_the_clocks_say() {
        let mut table = LockTable::default();
        let mut last = 0;
        for (round, clock) in [1000, 10, 0, 2000, 2000, LOCK_CLOCK_US_MAX, 5].into_iter().enumerate() {
            let claim = table.acquire("door", ask(1, clock)).unwrap();
            assert!(claim.fence.unwrap() > last, "{round}");
            last = claim.fence.unwrap();
            table.release("door", Uid(1), claim.number).unwrap();
        }
    }

    #[test]
    fn fences_rise_across_foundings_while_clocks_go_on() {
        let mut before = line_of_three();
        before.members(|member| member == Uid(3));
        let last = before.holder("door").unwrap().fence.unwrap();
        let mut anew = LockTable::default();
        assert!(anew.acquire("door", ask(9, 102)).unwrap().fence.unwrap() > last);
    }

    #[test]
    fn an_old_number_releases_no_later_claim() {
        let mut table = LockTable::default();
        let first = table.acquire("door", ask(1, 0)).unwrap();
        table.release("door", Uid(1), first.number).unwrap();
        let second = table.acquire("door", ask(1, 0)).unwrap();
        assert_eq!(table.release("door", Uid(1), first.number), Err(NotClaimed));
        assert_eq!(table.holder("door"), Some(second));
    }

    #[test]
    fn locks_and_claims_have_bounds() {
        let mut table = LockTable::default();
        for name in 0..LOCKS_MAX {
            table.acquire(&format!("{name}"), ask(1, 0)).unwrap();
        }
        assert_eq!(table.acquire("more", ask(1, 0)), Err(LockRefusal::TooManyLocks));
        for member in 2..=(LOCK_CLAIMS_MAX - LOCKS_MAX + 1) as u64 {
            table.acquire("0", ask(member, 0)).unwrap();
            // Its own claim is found at the end of a long line; forget the line, as a test has more than any group.
            if table.lines["0"].claims.len() > 64 {
                table.lines.get_mut("0").unwrap().claims.truncate(1);
            }
        }
        assert_eq!(table.acquire("0", ask(0, 0)), Err(LockRefusal::TooManyClaims));
        table.release("1", Uid(1), 2).unwrap();
        assert!(table.acquire("0", ask(0, 0)).is_ok());
    }

    #[test]
    fn a_snapshot_is_the_whole_table() {
        let mut table = line_of_three();
        table.acquire("window", ask(7, 3)).unwrap();
        table.release("door", Uid(1), 1).unwrap();
        let bytes = table.snapshot();
        assert_eq!(LockTable::restore(&bytes), Ok(table));
        assert_eq!(LockTable::restore(&LockTable::default().snapshot()), Ok(LockTable::default()));
    }

    #[test]
    fn bytes_that_are_no_table_are_refused() {
        let bytes = line_of_three().snapshot();
        for length in 0..bytes.len() {
            assert!(LockTable::restore(&bytes[..length]).is_err(), "{length}");
        }
        assert!(LockTable::restore(&[&bytes[..], b"x"].concat()).is_err());
        assert!(LockTable::restore(&[0; 16]).is_err(), "the state of another service");
        let mut empty_line = line_of_three();
        empty_line.lines.get_mut("door").unwrap().claims.clear();
        let mut high = line_of_three();
        high.fences.last = u64::MAX;
        let mut unknown = line_of_three();
        unknown.last_number = 1;
        let mut bad_name = line_of_three();
        let line = bad_name.lines.remove("door").unwrap();
        bad_name.lines.insert("\n".into(), line);
        for forged in [empty_line, high, unknown, bad_name] {
            assert!(LockTable::restore(&forged.snapshot()).is_err(), "{forged:?}");
        }
    }
}

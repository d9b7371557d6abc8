//! Locks and leader election for the processes of a group.
//!
//! Every process that wants locks opens a [`LockService`]. Together these processes keep one table of locks, as
//! [replicas](crate::replica). A process that wants a lock gets a claim in the lock's line
//! ([`LockService::acquire`]), and has the lock when its claim is the first. The claim ends when the process releases
//! the lock ([`Held::release`]), and when its member leaves the group, crashes or is excluded. The group's order
//! contains these events too, so all members agree on which claim is next. There are no leases and no time-outs: a
//! lock is free again as soon as the group has excluded its holder, about half a second after a crash.
//!
//! ```
//! use std::time::Duration;
//! use unisono::locks::LockService;
//! use unisono::{Formation, Options};
//!
//! # let start = |me: &'static str| {
//! #     std::thread::spawn(move || -> Result<LockService, Box<dyn std::error::Error + Send + Sync>> {
//! // In three processes, one with each of the names. Two suffice to begin.
//! let participants = vec!["ann".parse()?, "bob".parse()?, "cleo".parse()?];
//! let formation = Formation { participants, at_least: 2, within: Duration::from_secs(30) };
//! let options = Options { name: me.parse()?, ..Options::default() };
//! # let group = &format!("locks-docs-{}", std::process::id());
//! let locks = LockService::join_or_form(group, formation, &options)?;
//!
//! let held = locks.acquire("nightly")?;
//! if let Some(fence) = held.standing().fence() {
//!     println!("this process has the lock, with the fence {fence}");
//! }
//! held.release()?;
//! #         // The other one gets nothing without this one.
//! #         Ok(locks)
//! #     })
//! # };
//! # let (ann, bob) = (start("ann"), start("bob"));
//! # let both = [ann.join().unwrap().unwrap(), bob.join().unwrap().unwrap()];
//! # drop(both);
//! ```
//!
//! # Fences
//!
//! A process that is paused, or cut off from the others, does not learn at once that the group excluded it. It may act
//! for a moment although another process has the lock. So each grant has a **fence**, a number above those of all
//! grants before. Send the fence with everything that the lock protects, and let the receiver (a database, a device,
//! another service) refuse a number lower than one that it has received.
//!
//! Fences rise across foundings of the group too: each claim carries its process's clock in microseconds, and the fence
//! of a grant is the greater one of that clock and the previous fence plus one. This rests on two conditions: no clock
//! is set back behind the time at which the previous group ended, and a group grants fewer than a million locks per
//! second. Within one founding fences rise whatever the clocks say.
//!
//! # Halts
//!
//! While the group has no quorum, other processes may go on without this one. A holder whose standing is
//! [`LockStanding::Suspended`] must not act. It may act again if the group goes on with its member; if the group goes
//! on without its member, its standing is [`LockStanding::Lost`].
//!
//! # In a state machine of your own
//!
//! [`LockTable`] is the table alone: a state machine with other state can contain one. It passes its members to
//! [`LockTable::members`], and applies commands to [`LockTable::acquire`] and [`LockTable::release`]. The clock of a
//! claim has to be read in the present life of its member ([`Replica::me`]), and a claim of a former life has to be
//! refused: it may come from another founding of the group, so its fence might be too low.

mod error;
mod look;
mod machine;

pub use error::{NotAcquired, NotReleased};
pub use look::locks_at;
pub use machine::LockMachine;
pub use unisono_core::locks::{
    LOCK_CLAIMS_MAX, LOCK_CLOCK_US_MAX, LOCK_NAME_BYTES_MAX, LOCKS_MAX, LockClaim, LockRefusal, LockRequest,
    LockTable, NotClaimed,
};

use crate::options::Options;
use crate::replica::waits::block_on;
use crate::replica::{
    CommandFailure, Done, Durability, Founding, Notice, PendingCommand, ReadFailure, Replica, ReplicaError,
    ReplicaOptions, ReplicaState,
};
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use unisono_core::{Formation, Uid};

/// Time after which a command of a lock service has an outcome: the longest that replicas take. A claim has no deadline
/// of its own, and a release has to take effect.
const COMMAND_WITHIN: Duration = Duration::from_secs(3600);
/// Time for leaving the group when the last handle is dropped. A member that takes longer is suspected by the others,
/// as if it had crashed.
const LEAVES_WITHIN: Duration = Duration::from_secs(1);
/// Maximum time for a try to get a lock, 10 s, and while the group carries out no commands: 1 s.
const TRIES_WITHIN: Duration = Duration::from_secs(10);
const TRIES_HALTED_WITHIN: Duration = Duration::from_secs(1);
/// Interval at which a thread that waits looks at the replica's state: 100 ms. Nearly all changes wake it sooner.
const LOCK_LOOKS_EVERY: Duration = Duration::from_millis(100);

/// The locks of a group, as one of its processes uses them. Clones are the same member, which leaves the group when the
/// last of them, and the last [`Held`], is dropped.
#[derive(Clone)]
pub struct LockService {
    member: Arc<Member>,
}

struct Member {
    replica: Replica<LockMachine>,
    changes: Arc<Changes>,
    /// The locks that this process has a claim to.
    asked: Arc<Asked>,
    /// To the thread that ends claims which no thread waits for.
    ending: Sender<Ending>,
}

/// Names of the locks that this process asks for or has; true once the claim is being ended.
type Asked = Mutex<BTreeMap<String, bool>>;

/// A claim to be ended.
struct Ending {
    name: String,
    claim: Ended,
}

enum Ended {
    /// The claim of this member with this number.
    Known(Uid, u64),
    /// The claim of this command, if it makes one.
    Asked(PendingCommand),
}

impl Drop for Member {
    fn drop(&mut self) {
        // The threads have handles on the replica too, and end with it.
        self.replica.end(LEAVES_WITHIN);
    }
}

impl LockService {
    /// Joins the locks of this group, or founds them together with the other participants if no member answers. Blocks
    /// until this process has the state. Drops the [notices](Notice) for an operator.
    pub fn join_or_form(
        group: &str,
        formation: Formation,
        options: &Options,
    ) -> Result<LockService, ReplicaError> {
        let founding = Founding::JoinOrForm(formation);
        LockService::open(group, founding, ReplicaOptions::default(), options, |_| ())
    }

    /// Founds the locks of this group or joins them. Blocks until this process has the state, at most for
    /// [`ReplicaOptions::open_within`]. A thread calls `notice` with what an operator should know. The durability and the time
    /// for a command are those of locks, whatever `settings` say: a majority of the members holds each grant.
    pub fn open(
        group: &str,
        founding: Founding,
        settings: ReplicaOptions,
        options: &Options,
        notice: impl Fn(Notice) + Send + 'static,
    ) -> Result<LockService, ReplicaError> {
        let (machine, changes) = machine();
        let replica = Replica::open(group, founding, machine, of_locks(settings), options)?;
        LockService::of(group, replica, changes, notice)
    }

    /// Like [`LockService::open`], but returns at once. [`Replica::ready`] of [`LockService::replica`] waits for the state.
    pub fn begin(
        group: &str,
        founding: Founding,
        settings: ReplicaOptions,
        options: &Options,
        notice: impl Fn(Notice) + Send + 'static,
    ) -> Result<LockService, ReplicaError> {
        let (machine, changes) = machine();
        let replica = Replica::begin(group, founding, machine, of_locks(settings), options)?;
        LockService::of(group, replica, changes, notice)
    }

    fn of(
        group: &str,
        replica: Replica<LockMachine>,
        changes: Arc<Changes>,
        notice: impl Fn(Notice) + Send + 'static,
    ) -> Result<LockService, ReplicaError> {
        // Fails only if it has ended, and then it has no locks to show.
        let _ = replica.serve(&look::port(group));
        let (ending, to_end) = channel();
        let asked = Arc::<Asked>::default();
        let (followed, followed_changes) = (replica.clone(), Arc::clone(&changes));
        let follow = move || {
            while let Some(news) = followed.next_notice() {
                followed_changes.note();
                notice(news);
            }
            // This member has ended.
            followed_changes.note();
        };
        let (ended, ended_asked, ended_changes) = (replica.clone(), Arc::clone(&asked), Arc::clone(&changes));
        let member = Arc::new(Member { replica, changes, asked, ending });
        spawn("lock-notices", follow)?;
        spawn("lock-endings", move || end_claims(&ended, &to_end, &ended_asked, &ended_changes))?;
        Ok(LockService { member })
    }

    /// Waits in line for a lock, and returns when this process has it.
    pub fn acquire(&self, name: &str) -> Result<Held, NotAcquired> {
        self.member.acquire(name, Limit::in_line(None))
    }

    /// Waits in line for a lock, at most for this time.
    pub fn acquire_within(&self, name: &str, within: Duration) -> Result<Held, NotAcquired> {
        // A limit that the clock cannot hold is none.
        self.member.acquire(name, Limit::in_line(Instant::now().checked_add(within)))
    }

    /// Acquires a lock if it is free, and otherwise fails as [`LockRefusal::Held`]. This takes as long as a command of the
    /// group, usually some milliseconds. While the group carries out no commands it fails after 1 s as
    /// [`NotAcquired::Halted`], and after 10 s in any case as [`NotAcquired::TimedOut`]; a claim that comes of it later is
    /// ended.
    pub fn try_acquire(&self, name: &str) -> Result<Held, NotAcquired> {
        self.member.acquire(name, Limit::of_try())
    }

    /// Takes part in the election of a leader, the holder of this lock, until the member ends, and returns why it ended.
    /// Reports each change: the fence from when this process leads, `None` from when it does not.
    pub fn lead(&self, name: &str, mut report: impl FnMut(Option<u64>)) -> NotAcquired {
        let mut leading = None;
        let mut report = |now: Option<u64>| {
            if leading != now {
                leading = now;
                report(now);
            }
        };
        loop {
            let held = match self.acquire(name) {
                Ok(held) => held,
                Err(failure) => return failure,
            };
            let mut standing = held.standing();
            while standing != LockStanding::Lost {
                report(standing.fence());
                standing = held.standing_after(standing);
            }
            report(None);
        }
    }

    /// Returns this process's copy of the locks: for its status, and to look at the [table](LockMachine::table).
    pub fn replica(&self) -> &Replica<LockMachine> {
        &self.member.replica
    }

    /// Leaves the group within `timeout`, which ends all claims of this process.
    pub fn end(&self, timeout: Duration) {
        self.member.replica.end(timeout);
    }
}

impl fmt::Debug for LockService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LockService({:?})", self.member.replica)
    }
}

impl Member {
    fn acquire(self: &Arc<Member>, name: &str, mut limit: Limit) -> Result<Held, NotAcquired> {
        LockTable::check_name(name)?;
        self.enter(name, &mut limit)?;
        let acquired = self.claim(name, &mut limit);
        if !matches!(acquired, Ok(_) | Err(Abandoned { goes_on: true, .. })) {
            lock(&self.asked).remove(name);
        }
        acquired.map_err(|abandoned| abandoned.reason)
    }

    /// Notes that this process asks for a lock. Waits until its former claim has ended, if that is under way.
    fn enter(&self, name: &str, limit: &mut Limit) -> Result<(), NotAcquired> {
        loop {
            let seen = self.changes.count();
            {
                let mut asked = lock(&self.asked);
                match asked.get(name) {
                    None => {
                        asked.insert(name.to_owned(), false);
                        return Ok(());
                    }
                    Some(false) => return Err(NotAcquired::AlreadyAsked),
                    Some(true) if self.has_ended() => return Err(NotAcquired::Ended),
                    Some(true) => {}
                }
            }
            self.wait(seen, limit)?;
        }
    }

    /// Claims a lock until this process has it. If a claim is lost because the group excluded this member, or belongs to a
    /// former life of the member, it is made anew.
    fn claim(self: &Arc<Member>, name: &str, limit: &mut Limit) -> Result<Held, Abandoned> {
        loop {
            let me = self.serving(limit)?;
            let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
            let clock = u64::try_from(clock).unwrap_or(u64::MAX);
            let mut pending = self.replica.start(machine::acquire(me, clock, !limit.is_try, name));
            let outcome = match self.outcome(&mut pending, limit) {
                Ok(outcome) => outcome,
                Err(reason) => {
                    // It may still make a claim.
                    self.end_claim(name, Ended::Asked(pending));
                    return Err(Abandoned { reason, goes_on: true });
                }
            };
            let (number, member) = match outcome {
                Ok(done) => match machine::claim(&done.reply) {
                    Some(claim) => claim,
                    None => continue,
                },
                Err(CommandFailure::Refused(words)) => match machine::refused(&words) {
                    Some(refusal) => return Err(NotAcquired::Refused(refusal).into()),
                    None => continue,
                },
                // To ask twice is one claim.
                Err(CommandFailure::Unknown) if !self.has_ended() => continue,
                Err(CommandFailure::Busy) => return Err(NotAcquired::Busy.into()),
                Err(_) => return Err(NotAcquired::Ended.into()),
            };
            let held =
                Held { member: Arc::clone(self), name: name.to_owned(), number, of: member, is_over: false };
            loop {
                let seen = self.changes.count();
                match held.standing() {
                    LockStanding::Holds(_) => return Ok(held),
                    LockStanding::Lost => break,
                    LockStanding::InLine | LockStanding::Suspended => {}
                }
                if let Err(reason) = self.wait(seen, limit) {
                    // Dropping it ends the claim.
                    return Err(Abandoned { reason, goes_on: true });
                }
            }
            // There is no claim to end.
            held.forget();
        }
    }

    /// Waits for the outcome of a claim.
    fn outcome(
        &self,
        pending: &mut PendingCommand,
        limit: &mut Limit,
    ) -> Result<Result<Done, CommandFailure>, NotAcquired> {
        loop {
            // Nothing wakes this thread when the group halts.
            let look_at = limit.is_try.then(|| Instant::now() + LOCK_LOOKS_EVERY);
            let until = look_at.into_iter().chain(limit.until).min();
            if let Some(outcome) = block_on(until, |context| Pin::new(&mut *pending).poll(context)) {
                return Ok(outcome);
            }
            limit.check(self.replica.status().state)?;
        }
    }

    /// Waits until this member serves, and returns its life.
    fn serving(&self, limit: &mut Limit) -> Result<Uid, NotAcquired> {
        loop {
            let seen = self.changes.count();
            if let (ReplicaState::Serving, Some(me)) = (self.replica.status().state, self.replica.me()) {
                return Ok(me);
            }
            if self.has_ended() {
                return Err(NotAcquired::Ended);
            }
            self.wait(seen, limit)?;
        }
    }

    fn has_ended(&self) -> bool {
        self.replica.status().state == ReplicaState::Ended
    }

    /// Waits for a change after the first `seen`.
    fn wait(&self, seen: u64, limit: &mut Limit) -> Result<(), NotAcquired> {
        limit.check(self.replica.status().state)?;
        self.changes.wait(seen, limit.until);
        Ok(())
    }

    /// Lets the thread for that end a claim. Until then this process does not ask for the lock again: the group could
    /// order the new claim before the release.
    fn end_claim(&self, name: &str, claim: Ended) {
        lock(&self.asked).insert(name.to_owned(), true);
        // Fails only if the thread has ended with the replica, and the claim with its member.
        let _ = self.ending.send(Ending { name: name.to_owned(), claim });
    }
}

/// How long a thread waits for a lock.
struct Limit {
    until: Option<Instant>,
    /// It waits neither in line nor for a group that carries out no commands.
    is_try: bool,
    /// Since when the group has carried out none.
    halted_since: Option<Instant>,
}

impl Limit {
    fn in_line(until: Option<Instant>) -> Limit {
        Limit { until, is_try: false, halted_since: None }
    }

    fn of_try() -> Limit {
        Limit { until: Some(Instant::now() + TRIES_WITHIN), is_try: true, halted_since: None }
    }

    /// Fails if the time is over, for a member in this state.
    fn check(&mut self, state: ReplicaState) -> Result<(), NotAcquired> {
        let now = Instant::now();
        self.halted_since = (state == ReplicaState::Halted).then(|| self.halted_since.unwrap_or(now));
        if self.is_try && self.halted_since.is_some_and(|since| now - since >= TRIES_HALTED_WITHIN) {
            return Err(NotAcquired::Halted);
        }
        match self.until {
            Some(until) if until <= now => Err(NotAcquired::TimedOut),
            _ => Ok(()),
        }
    }
}

/// A claim that did not lead to the lock.
struct Abandoned {
    reason: NotAcquired,
    /// True if a claim is still to be ended.
    goes_on: bool,
}

impl From<NotAcquired> for Abandoned {
    fn from(reason: NotAcquired) -> Abandoned {
        Abandoned { reason, goes_on: false }
    }
}

/// Ends claims, one after the other, until the replica or the last handle has ended.
fn end_claims(replica: &Replica<LockMachine>, to_end: &Receiver<Ending>, asked: &Asked, changes: &Changes) {
    for Ending { name, claim } in to_end {
        let claim = match claim {
            Ended::Known(member, number) => Some((member, number)),
            Ended::Asked(pending) => pending
                .wait()
                .ok()
                .and_then(|done| machine::claim(&done.reply))
                .map(|(number, member)| (member, number)),
        };
        if let Some((member, number)) = claim {
            // Any failure means that the claim has ended, or that this member has. An outcome that is unknown after an
            // hour is asked for again.
            let release = || replica.command(machine::release(member, number, &name));
            while matches!(release(), Err(CommandFailure::Unknown | CommandFailure::Busy))
                && replica.status().state != ReplicaState::Ended
            {
                thread::sleep(LOCK_LOOKS_EVERY);
            }
        }
        lock(asked).remove(&name);
        changes.note();
    }
}

/// Whether a process may do what a lock protects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockStanding {
    /// It may, with this fence.
    Holds(u64),
    /// Other claims are before its claim in the line.
    InLine,
    /// It may not at present: the group is halted.
    Suspended,
    /// It may not: its claim has ended.
    Lost,
}

impl LockStanding {
    /// Returns the fence with which the process may act, if it may.
    pub fn fence(self) -> Option<u64> {
        match self {
            LockStanding::Holds(fence) => Some(fence),
            LockStanding::InLine | LockStanding::Suspended | LockStanding::Lost => None,
        }
    }
}

/// A lock that this process acquired. Dropping it releases the lock; the release is then carried out by another thread.
pub struct Held {
    member: Arc<Member>,
    name: String,
    number: u64,
    /// The life of this process's member that made the claim.
    of: Uid,
    /// True once no claim is left to be ended.
    is_over: bool,
}

impl Held {
    /// Returns the name of the lock.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether this process may act, as far as its member knows at present. A process that is paused after this
    /// may have lost the lock when it goes on: see [Fences](self#fences).
    pub fn standing(&self) -> LockStanding {
        match self.member.replica.status().state {
            ReplicaState::Serving => {
                let claim = self.member.replica.look(|machine| machine.table().claim(&self.name, self.of));
                match claim.filter(|claim| claim.number == self.number).map(|claim| claim.fence) {
                    None => LockStanding::Lost,
                    Some(None) => LockStanding::InLine,
                    Some(Some(fence)) => LockStanding::Holds(fence),
                }
            }
            ReplicaState::Halted => LockStanding::Suspended,
            // The life that made the claim is over.
            _ => LockStanding::Lost,
        }
    }

    /// Blocks until the standing is another than `known`, and returns it.
    pub fn standing_after(&self, known: LockStanding) -> LockStanding {
        loop {
            let seen = self.member.changes.count();
            let standing = self.standing();
            if standing != known {
                return standing;
            }
            self.member.changes.wait(seen, None);
        }
    }

    /// Asks a majority of the members whether this process may act, which takes a round trip. If so, it had the lock at
    /// some time during this call.
    pub fn confirm(&self) -> Result<LockStanding, ReadFailure> {
        self.member.replica.barrier()?;
        Ok(self.standing())
    }

    /// Releases the lock. When this returns, the next in line has it.
    pub fn release(mut self) -> Result<(), NotReleased> {
        match self.member.replica.command(machine::release(self.of, self.number, &self.name)) {
            Ok(_) => {
                self.end();
                Ok(())
            }
            Err(CommandFailure::Refused(_)) => {
                self.end();
                Err(NotReleased::Lost)
            }
            Err(CommandFailure::Busy) => Err(NotReleased::Busy),
            Err(_) => Err(NotReleased::Ended),
        }
    }

    /// Notes that the claim has ended, and that this process may ask for the lock again.
    fn end(&mut self) {
        self.is_over = true;
        lock(&self.member.asked).remove(&self.name);
        self.member.changes.note();
    }

    /// Drops it without an end of the claim, which is lost; this process goes on asking for the lock.
    fn forget(mut self) {
        self.is_over = true;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if !self.is_over {
            self.member.end_claim(&self.name, Ended::Known(self.of, self.number));
        }
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Held({:?}, {:?})", self.name, self.standing())
    }
}

/// Counts changes of the locks or of this member's standing, and wakes threads.
#[derive(Debug, Default)]
struct Changes {
    count: Mutex<u64>,
    changed: Condvar,
}

impl Changes {
    fn note(&self) {
        *lock(&self.count) += 1;
        self.changed.notify_all();
    }

    fn count(&self) -> u64 {
        *lock(&self.count)
    }

    /// Blocks until there was a change after the first `seen`, or until the time to look again.
    fn wait(&self, seen: u64, until: Option<Instant>) {
        let rest = until.map(|until| until.saturating_duration_since(Instant::now()));
        let rest = rest.map_or(LOCK_LOOKS_EVERY, |rest| rest.min(LOCK_LOOKS_EVERY));
        let count = lock(&self.count);
        drop(self.changed.wait_timeout_while(count, rest, |count| *count == seen));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn machine() -> (LockMachine, Arc<Changes>) {
    let machine = LockMachine::default();
    let changes = Arc::clone(&machine.changes);
    (machine, changes)
}

/// Returns the options of a lock service: a majority holds each grant, so no member that stands still delays one.
fn of_locks(settings: ReplicaOptions) -> ReplicaOptions {
    let durability = Durability::HeldByMajority;
    ReplicaOptions { command_within: COMMAND_WITHIN, durability, ..settings }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), ReplicaError> {
    thread::Builder::new().name(name.into()).spawn(work).map(drop).map_err(ReplicaError::Thread)
}

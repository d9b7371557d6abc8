//! Locks and leader election for the processes of a group. Copy this file into your program.
//!
//! Every process opens a [`LockService`]; together they keep the state machine [`Locks`]. A process that wants a lock
//! gets a place in its line ([`LockService::acquire`]), and has the lock when it is the first. Its place ends when it
//! releases the lock ([`Held::release`]), and when its member leaves the group, crashes or is excluded: the group
//! reports that to the state machine in its order, so all members agree on who is next. The lock named `leader` is an
//! election ([`LockService::lead`]).
//!
//! **Fences.** A process that is paused, or cut off from the others, does not learn at once that it was excluded: it
//! may act for a moment although another process has the lock. So each grant has a fence, a number above those of all
//! grants before. Send it with everything that the lock protects, and let the receiver (a database, a device, another
//! service) refuse a number lower than one that it has received. Fences rise across foundings of the group too: each
//! claim carries its process's clock in microseconds, and the fence of a grant is the greater one of that clock and the
//! previous fence plus one. This holds as long as no clock was set back behind the time at which the previous group
//! ended, and a group grants fewer than a million locks per second.
//!
//! **Halts.** While the group has no quorum ([`Notice::Halted`]), or this member is
//! entering it again, other processes may go on without this one. A holder whose standing is [`Standing::Suspended`]
//! does not act.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use unisono::replica::{
    Command, CommandFailure, Founding, NotRestored, Notice, Outcome, PendingCommand, Position, ReadFailure,
    Replica, ReplicaError, ReplicaOptions, ReplicaState, Server, StateMachine,
};
use unisono::{Bytes, Formation, Options, Uid};

/// Time after which a command gives up. A claim waits in line in any case, so it has no deadline of its own: a command
/// that gave up might leave a claim behind that this process does not know.
const CLAIM_WITHIN: Duration = Duration::from_secs(365 * 24 * 3600);

/// Time for leaving the group in order. A member that takes longer is missed by the others as if it had crashed.
const LEAVES_WITHIN: Duration = Duration::from_secs(1);

/// The state that all members keep: for each lock its line of claims. The first claim of a line has the lock.
pub(crate) struct Locks {
    lines: BTreeMap<String, VecDeque<Claim>>,
    /// Fence of the last grant of any lock.
    last_fence: u64,
    /// Wakes the threads of this process that wait for a change. Not part of the state.
    changes: Arc<Changes>,
}

struct Claim {
    /// Position of the command that made it.
    id: Position,
    /// The life of the member that waits.
    member: Uid,
    /// Clock of its process when it asked, in microseconds since 1970.
    clock: u64,
    /// Zero until it is granted.
    fence: u64,
}

impl Locks {
    /// Grants each lock to the first in its line, and ends lines without claims.
    fn grant(&mut self) {
        self.lines.retain(|_, line| !line.is_empty());
        for claim in
            self.lines.values_mut().filter_map(|line| line.front_mut()).filter(|claim| claim.fence == 0)
        {
            self.last_fence = claim.clock.max(self.last_fence + 1);
            claim.fence = self.last_fence;
        }
        self.changes.note();
    }

    /// Returns the fence of a claim, 0 while it waits in line, `None` if it has ended.
    fn fence(&self, name: &str, id: Position) -> Option<u64> {
        self.lines.get(name)?.iter().find(|claim| claim.id == id).map(|claim| claim.fence)
    }
}

impl StateMachine for Locks {
    /// `acquire CLOCK NAME` returns the claim's id; `release ID NAME` returns nothing.
    fn apply(&mut self, command: &Command<'_>) -> Outcome {
        let words = String::from_utf8_lossy(command.payload);
        let mut words = words.splitn(3, ' ');
        let (verb, number, name) = (words.next(), words.next(), words.next());
        let (Some(Ok(number)), Some(name)) = (number.map(str::parse), name) else {
            return Outcome::Refuse("a verb, a number and the name of a lock are needed".into());
        };
        match (verb, command.received_by) {
            (Some("acquire"), Some(server)) => {
                let claim = Claim { id: command.position, member: server.uid, clock: number, fence: 0 };
                self.lines.entry(name.to_owned()).or_default().push_back(claim);
            }
            (Some("release"), _) => {
                self.lines.entry(name.to_owned()).or_default().retain(|claim| claim.id != number);
            }
            _ => return Outcome::Refuse("not a command, or its member has gone".into()),
        }
        self.grant();
        command.position.to_string().into()
    }

    fn members(&mut self, members: &[Server]) {
        for line in self.lines.values_mut() {
            line.retain(|claim| members.iter().any(|member| member.uid == claim.member));
        }
        self.grant();
    }

    fn snapshot(&self) -> Vec<Bytes> {
        let claims = self.lines.iter().flat_map(|(name, line)| line.iter().map(move |claim| (name, claim)));
        let mut text = format!("{}\n", self.last_fence);
        for (name, Claim { id, member, clock, fence }) in claims {
            text += &format!("{id} {} {clock} {fence} {name}\n", member.0);
        }
        vec![text.into()]
    }

    fn restore(&mut self, parts: &[Bytes]) -> Result<(), NotRestored> {
        let read = String::from_utf8(parts.concat()).ok().and_then(|text| read_state(&text));
        (self.last_fence, self.lines) = read.ok_or(NotRestored("this is no state of locks"))?;
        self.changes.note();
        Ok(())
    }
}

fn read_state(text: &str) -> Option<(u64, BTreeMap<String, VecDeque<Claim>>)> {
    let mut text = text.lines();
    let last_fence = text.next()?.parse().ok()?;
    let mut lines: BTreeMap<String, VecDeque<Claim>> = BTreeMap::new();
    for claim in text {
        let mut words = claim.splitn(5, ' ');
        let mut number = || words.next()?.parse().ok();
        let claim = Claim { id: number()?, member: Uid(number()?), clock: number()?, fence: number()? };
        lines.entry(words.next()?.to_owned()).or_default().push_back(claim);
    }
    Some((last_fence, lines))
}

/// Counts changes of the state or of its standing, and wakes threads.
#[derive(Default)]
struct Changes {
    count: Mutex<u64>,
    changed: Condvar,
}

impl Changes {
    fn note(&self) {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.changed.notify_all();
    }

    fn count(&self) -> u64 {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Blocks until there was a change after the first `seen`.
    fn wait(&self, seen: u64) {
        let count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.changed.wait_while(count, |count| *count == seen));
    }
}

/// The locks of a group, as one of its processes uses them. Clones are the same member, which leaves the group when the
/// last of them is dropped.
#[derive(Clone)]
pub(crate) struct LockService {
    member: Arc<Member>,
}

struct Member {
    replica: Replica<Locks>,
    changes: Arc<Changes>,
}

impl Drop for Member {
    fn drop(&mut self) {
        // The thread that follows the notices has a handle too, and gives it up at the end.
        self.replica.end(LEAVES_WITHIN);
    }
}

impl LockService {
    /// Joins the group of this name, or forms it with the other participants. `notice` gets what an operator should
    /// know.
    pub(crate) fn open(
        group: &str,
        formation: Formation,
        options: &Options,
        notice: impl Fn(Notice) + Send + 'static,
    ) -> Result<LockService, ReplicaError> {
        let changes = Arc::<Changes>::default();
        let locks = Locks { lines: BTreeMap::new(), last_fence: 0, changes: Arc::clone(&changes) };
        let own = ReplicaOptions { command_within: CLAIM_WITHIN, ..ReplicaOptions::default() };
        let replica = Replica::open(group, Founding::JoinOrForm(formation), locks, own, options)?;
        let member = Arc::new(Member { replica: replica.clone(), changes: Arc::clone(&changes) });
        let follow = move || {
            while let Some(news) = replica.next_notice() {
                changes.note();
                notice(news);
            }
            // This member has ended.
            changes.note();
        };
        thread::Builder::new().name("lock-notices".into()).spawn(follow).map_err(ReplicaError::Thread)?;
        Ok(LockService { member })
    }

    /// Waits in line for a lock, and returns when this process has it.
    ///
    /// # Errors
    /// The name has a line break, or this member has ended.
    pub(crate) fn acquire(&self, name: &str) -> Result<Held, CommandFailure> {
        if name.contains('\n') {
            return Err(CommandFailure::Refused("the name of a lock has no line breaks".into()));
        }
        loop {
            let clock = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_micros());
            let done = self.member.replica.command(format!("acquire {clock} {name}"))?;
            let claim = String::from_utf8_lossy(&done.reply).parse().expect("the id of a claim");
            let held = Held { member: Arc::clone(&self.member), name: name.to_owned(), claim };
            let mut standing = held.standing();
            while matches!(standing, Standing::InLine | Standing::Suspended) {
                standing = held.standing_after(standing);
            }
            // A claim is lost if this member was excluded meanwhile. Then it is made anew.
            if standing != Standing::Lost {
                return Ok(held);
            }
        }
    }

    /// Takes part in the election of a leader until this member ends, and returns why it ended. Reports each change: the
    /// fence from when this process leads, `None` from when it does not.
    pub(crate) fn lead(&self, mut report: impl FnMut(Option<u64>)) -> CommandFailure {
        let mut leading = None;
        let mut report = |now: Option<u64>| {
            if leading != now {
                leading = now;
                report(now);
            }
        };
        loop {
            let held = match self.acquire("leader") {
                Ok(held) => held,
                Err(failure) => return failure,
            };
            let mut standing = held.standing();
            while standing != Standing::Lost {
                report(standing.fence());
                standing = held.standing_after(standing);
            }
            report(None);
        }
    }

    /// Leaves the group, which ends all claims of this process.
    pub(crate) fn end(&self) {
        self.member.replica.end(LEAVES_WITHIN);
    }
}

/// Whether a process may do what a lock protects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It may, with this fence.
    Holds(u64),
    /// Others are before it in the line.
    InLine,
    /// It may not at present: the group is halted, or this member is entering it again.
    Suspended,
    /// Its claim has ended.
    Lost,
}

impl Standing {
    /// Returns the fence with which the process may act, if it may.
    pub(crate) fn fence(self) -> Option<u64> {
        match self {
            Standing::Holds(fence) => Some(fence),
            Standing::InLine | Standing::Suspended | Standing::Lost => None,
        }
    }
}

/// A lock that this process acquired. Dropping it releases the lock.
pub(crate) struct Held {
    member: Arc<Member>,
    name: String,
    claim: Position,
}

impl Held {
    /// Returns whether this process may act, as far as this member knows at present.
    pub(crate) fn standing(&self) -> Standing {
        match self.member.replica.status().state {
            ReplicaState::Serving => {
                match self.member.replica.look(|locks| locks.fence(&self.name, self.claim)) {
                    None => Standing::Lost,
                    Some(0) => Standing::InLine,
                    Some(fence) => Standing::Holds(fence),
                }
            }
            ReplicaState::Ended => Standing::Lost,
            _ => Standing::Suspended,
        }
    }

    /// Blocks until the standing is another than `known`, and returns it.
    pub(crate) fn standing_after(&self, known: Standing) -> Standing {
        loop {
            let seen = self.member.changes.count();
            let standing = self.standing();
            if standing != known {
                return standing;
            }
            self.member.changes.wait(seen);
        }
    }

    /// Asks a majority of the members whether this process may act, which takes a round trip. If so, it had the lock at
    /// some time during this call.
    #[allow(dead_code, reason = "not every program needs it")]
    pub(crate) fn confirm(&self) -> Result<Standing, ReadFailure> {
        self.member.replica.barrier()?;
        Ok(self.standing())
    }

    /// Releases the lock. When this returns, the next in line has it.
    ///
    /// # Errors
    /// This member has ended, and its claims with it.
    pub(crate) fn release(self) -> Result<(), CommandFailure> {
        self.begin_release().wait().map(drop)
    }

    fn begin_release(&self) -> PendingCommand {
        self.member.replica.start(format!("release {} {}", self.claim, self.name))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // After `release` this finds no claim. The command is carried out without this thread.
        if self.standing() != Standing::Lost {
            drop(self.begin_release());
        }
    }
}

//! The thread that takes all input of a replica, from life to life: it enters the group, gives the core the events and
//! the requests of callers, and enters again if the others exclude this member.

use super::StateMachine;
use super::copy::Copy;
use super::disk::DiskOptions;
use super::errands::Report;
use super::error::ReplicaEnd;
use super::life::{Input, Life};
use super::options::Founding;
use super::status::copy_status;
use super::waits::block_on;
use crate::engine::Listed;
use crate::error::{Ended, OpenError};
use crate::group::Group;
use crate::log;
use crate::opening::by_lot;
use crate::outside::look;
use crate::rpc::{Client, Request, ServiceError};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::task::Poll;
use std::time::{Duration, Instant};
use unisono_core::look::MemberReport;
use unisono_core::replica::{DISK_ENTERS_WITHIN, Notice, Replica, StopReason};
use unisono_core::{EntryMode, Event, JoinFailure};

/// Pause before the group is entered again, the first time and at most.
const REENTRY_PAUSE_FIRST: Duration = Duration::from_millis(50);
const REENTRY_PAUSE_MAX: Duration = Duration::from_secs(2);
/// The same for a server with a disk: it meets the others only while they, too, try to enter.
const DISK_REENTRY_PAUSE_MAX: Duration = Duration::from_millis(200);
/// A server that cannot enter looks for another process that runs as the same server once in this number of attempts.
const LOOKS_FOR_ITSELF_EVERY: u32 = 4;
/// Time for an answer when a server that cannot enter looks for another process that runs as the same server.
const LOOKS_FOR_ITSELF: Duration = Duration::from_millis(500);
/// Time for which a member without a disk looks for another copy of its service after this machine's address changed: 30 s.
/// If only this machine's address changed, the others exclude its former life and admit the new one within seconds.
const FINDS_COPY_WITHIN: Duration = Duration::from_secs(30);
/// Number of events that are applied before their outcomes are passed on.
const EVENTS_PER_STEP: usize = 64;

/// Follows the order until the replica has ended. Questions of newcomers go to `questions`.
pub(super) fn follow<S: StateMachine>(copy: &Copy<S>, questions: &Sender<Request>) {
    let mut entry = copy.entry();
    let (mut pause, mut failures, mut former) = (REENTRY_PAUSE_FIRST, 0, Vec::new());
    let mut search: Option<Search> = None;
    let end = loop {
        // The disk may have failed between two lives.
        if let Some(reason) = copy.lock().stop.take() {
            break ReplicaEnd::Stopped(reason);
        }
        // Each attempt of a server with a disk draws its time anew.
        if copy.disk.is_some() {
            entry = copy.entry();
        }
        let life = match enter(copy, &entry, &former) {
            Ok(Some(life)) => Arc::new(life),
            Ok(None) if copy.lock().is_closing => break ReplicaEnd::Closed,
            Ok(None) if copy.lock().stop.is_some() => continue,
            Ok(None) => {
                failures += 1;
                if let Some(reason) = cannot_enter(copy, failures) {
                    break ReplicaEnd::Stopped(reason);
                }
                rest(copy, &mut pause);
                continue;
            }
            Err(OpenError::StillLeaving { .. }) => {
                // It is a life of this process that has ended, and no other member.
                rest(copy, &mut pause);
                continue;
            }
            Err(error) => {
                let error = Arc::new(error);
                if !tries_again(copy, &error, failures) {
                    break ReplicaEnd::NotEntered(error);
                }
                failures += 1;
                if let Some(reason) = cannot_enter(copy, failures) {
                    break ReplicaEnd::Stopped(reason);
                }
                if let Some(search) = &mut search
                    && let Some(reason) = search.fails(copy, &error)
                {
                    break ReplicaEnd::Stopped(reason);
                }
                if is_without_address(&error) && !waits_for_address(copy) {
                    log::waits_for_address(&copy.name);
                }
                copy.change(|state| state.last_failure = Some(error));
                rest(copy, &mut pause);
                continue;
            }
        };
        (failures, search) = (0, None);
        let since = Instant::now();
        let ended = live(copy, &life, questions);
        let others = others(&life);
        if !others.is_empty() {
            former = others;
        }
        if since.elapsed() > REENTRY_PAUSE_MAX {
            pause = REENTRY_PAUSE_FIRST;
        }
        if ended == Ended::Moved && copy.disk.is_none() {
            search = Some(Search { since: Instant::now(), told: None });
        }
        entry = match next_entry(copy, ended) {
            Ok(entry) => entry,
            Err(end) => break end,
        };
        drop(life);
        copy.change(|state| state.add_notice(Notice::Reentering));
        rest(copy, &mut pause);
    };
    copy.conclude(end);
}

/// Enters the group, for which the members of the last view, at `former`, are asked too. Returns `None` if the replica is ended or stops meanwhile, or if a server with a disk did not enter in time.
fn enter<S: StateMachine>(
    copy: &Copy<S>,
    entry: &EntryMode,
    former: &[SocketAddr],
) -> Result<Option<Life>, OpenError> {
    let begun = Instant::now();
    let gives_up = || {
        let state = copy.lock();
        let is_over = state.is_closing || state.stop.is_some();
        is_over || copy.disk.is_some() && begun.elapsed() > DISK_ENTERS_WITHIN
    };
    if gives_up() {
        return Ok(None);
    }
    let group = Group::open_unless(&copy.name, entry, &copy.options, former, |group| {
        if let Some(address) = group.info().foreign {
            copy.lock().foreign = Some(address);
        }
        gives_up()
    })?;
    if group.is_some() {
        copy.close_desk();
    }
    let error = match group.map(|group| Life::new(&copy.name, group)).transpose() {
        Ok(life) => return Ok(life),
        Err(error) => error,
    };
    copy.change(|state| state.has_group = false);
    match error {
        // Another server of this process answers for its status at this member's address, until it has entered too.
        ServiceError::Refused(_) if copy.disk.is_some() => Ok(None),
        ServiceError::Refused(reason) => Err(OpenError::Socket {
            what: "serve the transfer of the state",
            cause: io::Error::other(reason),
        }),
        ServiceError::Open(error) => Err(error),
    }
}

/// Returns why this process cannot be its server of a service on disk: another process is that one, with another folder or
/// a copy of this one, or the service has another number of servers. The member of that name may also be an earlier life of
/// this server, which does not answer or is of this process.
fn cannot_enter<S: StateMachine>(copy: &Copy<S>, failures: u32) -> Option<StopReason> {
    let DiskOptions { id, servers, .. } =
        *copy.disk.as_ref().filter(|_| failures % LOOKS_FOR_ITSELF_EVERY == 1)?;
    let process = copy.lock().copy().map(Replica::process)?;
    let report = look(&copy.name, &copy.options, LOOKS_FOR_ITSELF).ok()?;
    let client = Client::new(&copy.options).ok()?;
    let is_same = |member: &MemberReport| member.member.name == copy.options.name;
    // Its namesake, or else any other member.
    let asked = report.members.iter().find(|member| is_same(member)).or(report.members.first())?;
    let at = asked.member.address;
    let status = copy_status(&client, &copy.name, at, LOOKS_FOR_ITSELF).ok()?;
    if status.has_state && status.servers != 0 && status.servers != servers {
        return Some(StopReason::OtherServers);
    }
    (status.server == id && status.process != process).then_some(StopReason::RunsAlready { server: id, at })
}

/// The search of a member without a disk for another copy of its service, after this machine's address changed.
struct Search {
    /// When it began, or last found a copy.
    since: Instant,
    /// What the last notice said: whether a halted group was found.
    told: Option<bool>,
}

impl Search {
    /// Notes that an attempt to enter failed, and adds a notice if that is news. Returns why this member stops, if it has
    /// found no copy for too long: it must not go on with its own copy, since others may have executed more.
    fn fails<S: StateMachine>(&mut self, copy: &Copy<S>, error: &OpenError) -> Option<StopReason> {
        let is_halted = matches!(error, OpenError::Join(JoinFailure::Halted));
        let cannot_look = is_without_address(error);
        if is_halted || cannot_look {
            self.since = Instant::now();
        }
        if !cannot_look && self.told.replace(is_halted) != Some(is_halted) {
            let notice = Notice::LooksForCopy { from: copy.options.address().ok(), is_halted };
            copy.change(|state| state.add_notice(notice));
        }
        (self.since.elapsed() > FINDS_COPY_WITHIN).then_some(StopReason::StateLostByMove)
    }
}

/// True if an attempt to enter failed because this machine lacks an address at present.
fn is_without_address(error: &OpenError) -> bool {
    matches!(error, OpenError::NoAddressYet | OpenError::NotOurAddress { .. } | OpenError::Unasked { .. })
}

/// True if the last attempt to enter failed because this machine lacked an address.
fn waits_for_address<S: StateMachine>(copy: &Copy<S>) -> bool {
    copy.lock().last_failure.as_deref().is_some_and(is_without_address)
}

/// True if another attempt to enter may succeed, and no other process has to do anything but run. `failures` counts the
/// attempts before.
pub(super) fn tries_again<S: StateMachine>(copy: &Copy<S>, error: &OpenError, failures: u32) -> bool {
    let was_in = copy.lock().lives > 0;
    match error {
        OpenError::Forked => false,
        _ if was_in => true,
        OpenError::NoAddressYet => true,
        // The network of the machine went down while this server waited.
        OpenError::Unasked { .. } if copy.disk.is_some() => true,
        // At the first attempt the address is a mistake; later the machine has lost it.
        OpenError::NotOurAddress { .. } if copy.disk.is_some() => failures > 0,
        OpenError::Join(_) if copy.disk.is_some() => true,
        OpenError::Join(reason) => {
            let passes = matches!(
                reason,
                JoinFailure::NotFound
                    | JoinFailure::Lost
                    | JoinFailure::Unreachable { .. }
                    | JoinFailure::Halted
                    | JoinFailure::TimedOut
                    | JoinFailure::Reset
            );
            passes && copy.founding == Founding::Join
        }
        _ => false,
    }
}

/// Pauses, and makes the next pause longer. Servers that miss each other must not do so again and again, so the pause is
/// drawn by lot, between half of it and all.
fn rest<S: StateMachine>(copy: &Copy<S>, pause: &mut Duration) {
    let (until, mut listed) = (Instant::now() + by_lot(*pause / 2..*pause), Listed::default());
    let most = if copy.disk.is_some() { DISK_REENTRY_PAUSE_MAX } else { REENTRY_PAUSE_MAX };
    *pause = (2 * *pause).min(most);
    block_on(Some(until), |context| {
        let mut state = copy.lock();
        state.register(context, &mut listed);
        if state.is_closing { Poll::Ready(()) } else { Poll::Pending }
    });
}

/// Gives the core all input of one life. Returns why it ended.
fn live<S: StateMachine>(copy: &Copy<S>, life: &Arc<Life>, questions: &Sender<Request>) -> Ended {
    if !copy.begin_life(life) {
        return Ended::Left;
    }
    let (mut events, mut requests, mut turn) = (Vec::new(), Vec::new(), false);
    let ended = loop {
        match life.wait(&mut turn, &mut events, &mut requests) {
            Ok(Input::Requests) => {
                copy.step(|state, now| state.take_requests(now, requests.drain(..), 0));
            }
            Ok(Input::Events) => apply(copy, &mut events),
            Ok(Input::Confirmed(seqno)) => copy.report(life, Report::Confirmed(seqno)),
            // Its thread ends after this one.
            Ok(Input::Question(question)) => questions.send(question).unwrap_or_default(),
            Err(ended) => break ended,
        }
    };
    copy.end_life(life);
    ended
}

/// Returns the addresses of the other members of the last view.
fn others(life: &Life) -> Vec<SocketAddr> {
    let members = life.group.info().members.into_iter();
    members.filter(|member| member.uid != life.me).map(|member| member.address).collect()
}

fn apply<S: StateMachine>(copy: &Copy<S>, events: &mut Vec<Event>) {
    let mut rest = events.drain(..);
    while rest.len() > 0 {
        let some = rest.by_ref().take(EVENTS_PER_STEP);
        copy.step(|state, now| {
            for event in some {
                if let Some(copy) = state.copy_mut() {
                    copy.handle_event(now, event);
                }
            }
        });
    }
}

/// Returns how the next life enters the group, or why there is none.
fn next_entry<S: StateMachine>(copy: &Copy<S>, ended: Ended) -> Result<EntryMode, ReplicaEnd> {
    let mut state = copy.lock();
    let reenters = std::mem::take(&mut state.reenters);
    match state.stop.take() {
        // Nothing is lost with this group.
        Some(StopReason::GivesWay { acknowledged: 0 }) if !state.is_closing => return Ok(EntryMode::Join),
        Some(reason) => return Err(ReplicaEnd::Stopped(reason)),
        None => {}
    }
    match ended {
        Ended::Forked => Err(ReplicaEnd::Forked),
        _ if state.is_closing => Err(ReplicaEnd::Closed),
        // Its process founded the service, and would found another one beside that of the others.
        _ if reenters && copy.founding == Founding::Create => Err(ReplicaEnd::Stopped(StopReason::StateLost)),
        _ if reenters || copy.disk.is_some() && !matches!(ended, Ended::Left) => {
            drop(state);
            Ok(copy.entry())
        }
        Ended::Left => Err(ReplicaEnd::Closed),
        _ => {
            let config = copy.group_config();
            let entry = state.copy().map(|copy: &Replica<S>| copy.entry_after_exclusion(&config));
            Ok(entry.unwrap_or(EntryMode::Join))
        }
    }
}

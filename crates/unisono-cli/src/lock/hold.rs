//! Runs a command while this process holds a lock, and ends the command when the lock is lost.
//!
//! The main thread reads one channel: signals, the outcome of the claim, the loss of the lock, the end of the command. It
//! also starts the command's [guard](super::guard), because the kernel tells the guard when the thread that started it
//! ends.

use super::claim::{self, Claim};
use super::family::{self, DIES_WITHIN, Strays};
use super::{FAREWELL, Lock, Present, guard};
use crate::connection;
use crate::output::{tell, visible};
use crate::problem::Problem;
use crate::settings::Settings;
use crate::signals;
use crate::threads;
use anyhow::Context;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_process_group, test_kill_process_group, waitid,
};
use signal_hook::iterator::Signals;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};
use unisono::Options;
use unisono::locks::{Held, LockService, LockStanding};

/// Time between SIGTERM and SIGKILL for a command whose lock is lost.
const TERMINATES_WITHIN: Duration = Duration::from_secs(2);
/// Time that the guard has to end after its descendants were killed: it kills for [`DIES_WITHIN`] what they left.
const GUARD_ENDS_WITHIN: Duration = DIES_WITHIN.saturating_add(Duration::from_millis(500));
/// Maximum time for a majority to confirm that the lock was held until the command ended: 2 s.
const CONFIRMS_WITHIN: Duration = Duration::from_secs(2);
/// Interval at which this process looks whether killed processes are gone.
const LOOKS_EVERY: Duration = Duration::from_millis(1);

/// What the main thread waits for.
enum News {
    /// This process received a signal.
    Signal(i32),
    /// The claim has an outcome.
    Acquired(Result<Held, Problem>),
    /// The lock is lost, for this reason.
    Lost(String),
    /// The command has ended.
    Ended,
}

/// Returns the exit status of the command.
pub(super) fn run(
    command: &Lock,
    lock: &str,
    settings: &Settings,
    options: &Options,
) -> Result<i32, Problem> {
    connection::tell_of_no_address(options);
    let group = &*command.group;
    let (to, news) = mpsc::channel();
    pass_signals_on(to.clone())?;
    let service = Present::new(claim::enter(group, options)?);
    let claim = Claim {
        group: group.to_owned(),
        lock: lock.to_owned(),
        waits: !command.no_wait,
        timeout: command.timeout,
        settings: settings.clone(),
        options: options.clone(),
        service: service.clone(),
    };
    let outcome = to.clone();
    threads::start("claim", move || drop(outcome.send(News::Acquired(claim.acquire()))))?;
    let held = loop {
        match news.recv().context("the thread that waits for the lock has ended")? {
            News::Signal(signal) => break Err(Problem::interrupted(signal)),
            News::Acquired(outcome) => break outcome,
            News::Lost(_) | News::Ended => {}
        }
    };
    let service = service.get();
    let status = held.and_then(|held| execute(command, &service, held, &to, &news));
    // The leave ends the claim, by one event of the order.
    service.end(FAREWELL);
    status
}

/// Sends each signal that this process receives to the main thread.
fn pass_signals_on(to: Sender<News>) -> anyhow::Result<()> {
    let mut signals = Signals::new(signals::interrupts()).context("cannot wait for signals")?;
    threads::start("signals", move || {
        for signal in signals.forever() {
            if to.send(News::Signal(signal)).is_err() {
                return;
            }
        }
    })
}

/// Runs the command until it ends, or until the lock is lost. Whatever happens, the lock is released after the command has ended:
/// a group that was halted for a moment gives it to the next in line at once.
fn execute(
    command: &Lock,
    service: &LockService,
    held: Held,
    to: &Sender<News>,
    news: &Receiver<News>,
) -> Result<i32, Problem> {
    let LockStanding::Holds(fence) = held.standing() else {
        return Err(Problem::failed(format!("{} was lost before the command began", visible(held.name()))));
    };
    let held = Arc::new(held);
    let mut child = guard::start(&command.command, fence)?;
    let group = Pid::from_child(&child);
    let lost = watch_standing(service.clone(), Arc::clone(&held), &command.group, to.clone())
        .and_then(|()| watch_end(group, to.clone()))
        .map(|()| supervise(group, news))
        .inspect_err(|_| {
            family::kill(group);
        });
    // What the command left in its group does not outlive the lock.
    signal_group(group, Signal::KILL);
    let status = child.wait().context("cannot wait for the command");
    until_gone(group);
    let lost = lost.map(|lost| lost.or_else(|| lost_unnoticed(service, &held, &command.group)));
    drop(held);
    match lost? {
        Some(reason) => Err(Problem::failed(reason)),
        None => Ok(guard::code(status?)),
    }
}

/// Sends word when the guard has ended.
fn watch_end(guard: Pid, to: Sender<News>) -> anyhow::Result<()> {
    threads::start("ended", move || {
        // It stays a zombie, so that no other process gets the number of its group.
        while waitid(WaitId::Pid(guard), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)
            .is_err_and(|error| error == rustix::io::Errno::INTR)
        {}
        let _ = to.send(News::Ended);
    })
}

/// Waits until the guard of the command has ended, and ends the command when the lock is lost. Returns why the lock was lost,
/// if it was.
fn supervise(group: Pid, news: &Receiver<News>) -> Option<String> {
    let (mut lost, mut kills_at, mut killed) = (None, None::<Instant>, false);
    loop {
        let rest = kills_at.map(|at| at.saturating_duration_since(Instant::now()));
        match news.recv_timeout(rest.unwrap_or(Duration::MAX)) {
            Ok(News::Ended) | Err(RecvTimeoutError::Disconnected) => return lost,
            Ok(News::Signal(number)) => {
                if let Some(signal) = Signal::from_named_raw(number) {
                    signal_command(group, signal);
                }
            }
            Ok(News::Lost(reason)) if lost.is_none() => {
                tell(format_args!("{reason}: the command is ended"));
                lost = Some(reason);
                signal_command(group, Signal::TERM);
                kills_at = Some(Instant::now() + TERMINATES_WITHIN);
            }
            Err(RecvTimeoutError::Timeout) if !killed && family::kill(group) => {
                // The guard, which is left, ends what they started meanwhile.
                killed = true;
                kills_at = Some(Instant::now() + GUARD_ENDS_WITHIN);
            }
            Err(RecvTimeoutError::Timeout) => {
                kill_guard(group);
                kills_at = None;
            }
            Ok(News::Lost(_) | News::Acquired(_)) => {}
        }
    }
}

/// Kills the process group together with the guard: it is stopped, or a part of the command cannot be killed.
fn kill_guard(group: Pid) {
    family::kill(group);
    let left = family::living(group);
    signal_group(group, Signal::KILL);
    until_gone(group);
    family::tell_of(&left.into_iter().filter(family::Process::goes_on).collect::<Vec<_>>());
}

/// Sends a signal to the command: to its process group, and to the processes that left it and have the others for parents.
fn signal_command(group: Pid, signal: Signal) {
    // Found first: when their parents end, they cannot be told from their own children.
    let strays = Strays::of(group);
    // A stopped process gets the first of these when it goes on.
    for signal in [signal, Signal::CONT] {
        signal_group(group, signal);
        strays.signal(signal);
    }
}

fn signal_group(group: Pid, signal: Signal) {
    // Fails only if all processes of the group have ended.
    let _ = kill_process_group(group, signal);
}

/// Waits until no process of a killed group is left, at most for [`DIES_WITHIN`].
fn until_gone(group: Pid) {
    let until = Instant::now() + DIES_WITHIN;
    while test_kill_process_group(group).is_ok() && family::group_lives(group) && Instant::now() < until {
        thread::sleep(LOOKS_EVERY);
    }
}

/// Sends the reason when this process may no longer act under the lock.
fn watch_standing(
    service: LockService,
    held: Arc<Held>,
    group: &str,
    to: Sender<News>,
) -> anyhow::Result<()> {
    let group = group.to_owned();
    threads::start("standing", move || {
        let mut standing = held.standing();
        while let LockStanding::Holds(_) = standing {
            standing = held.standing_after(standing);
        }
        let _ = to.send(News::Lost(words_of_loss(standing, &service, &held, &group)));
    })
}

/// Returns why the lock was, or may have been, lost before the command ended. A process that was stopped learns of the loss
/// afterwards.
fn lost_unnoticed(service: &LockService, held: &Held, group: &str) -> Option<String> {
    let confirmed = service.replica().barrier_start().wait(CONFIRMS_WITHIN);
    let standing = match held.standing() {
        LockStanding::Holds(_) if confirmed.is_ok() => return None,
        LockStanding::Holds(_) => LockStanding::Suspended,
        standing => standing,
    };
    Some(words_of_loss(standing, service, held, group))
}

/// Says why this process may no longer act under the lock.
fn words_of_loss(standing: LockStanding, service: &LockService, held: &Held, group: &str) -> String {
    let (group, lock) = (visible(group), visible(held.name()));
    match standing {
        LockStanding::Suspended => {
            format!("{group} is halted, without the members that it needs: {lock} may be lost")
        }
        _ if claim::gave_way(service) => format!(
            "{lock} is lost: another group called {group} keeps locks too, and this one gave way to it"
        ),
        _ => format!("{lock} is lost: {group} excluded this process, which was paused or cut off"),
    }
}

//! Waits for a lock, runs a command while this process holds it, and ends the command when the lock is lost.
//!
//! The main thread reads one channel: signals, the outcome of the claim, the loss of the lock, the end of the command. It
//! also starts the command's [guard](super::guard), because the kernel tells the guard when the thread that started it
//! ends.

use super::{FAREWELL, Lock, guard};
use crate::connection;
use crate::look;
use crate::opening::{Opening, SHORT_OPENING, WhileHalted};
use crate::output::{tell, visible};
use crate::problem::Problem;
use crate::progress;
use crate::settings::Settings;
use crate::signals;
use crate::threads;
use anyhow::Context;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use signal_hook::iterator::Signals;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};
use unisono::Options;
use unisono::locks::{Held, LockRefusal, LockService, LockStanding, NotAcquired};
use unisono::replica::{Founding, ReplicaEnd, ReplicaOptions, ReplicaState, StopReason};

/// Time between SIGTERM and SIGKILL for a command whose lock is lost.
const TERMINATES_WITHIN: Duration = Duration::from_secs(2);
/// Least time for which a process whose wait has a limit waits for a group that carries out no commands: 2 s.
const HALTED_WITHIN: Duration = Duration::from_secs(2);

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
    let notice = |notice| super::tell_notice(&notice);
    let service = LockService::begin(group, Founding::Join, ReplicaOptions::default(), options, notice)?;
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
    let status = held.and_then(|held| execute(command, &service, held, &to, &news));
    // The leave ends the claim, by one event of the order.
    service.end(FAREWELL);
    status
}

/// What this process asks for.
struct Claim {
    group: String,
    lock: String,
    waits: bool,
    timeout: Option<Duration>,
    settings: Settings,
    options: Options,
    service: LockService,
}

impl Claim {
    /// Joins the processes that keep the locks, and waits in line.
    fn acquire(self) -> Result<Held, Problem> {
        let Claim { group, lock, .. } = &self;
        let while_halted = match self.timeout {
            _ if !self.waits => WhileHalted::Within(HALTED_WITHIN),
            Some(timeout) => WhileHalted::Within(timeout.max(HALTED_WITHIN)),
            None => WhileHalted::Endless(visible(lock).into_owned()),
        };
        let opening = Opening {
            name: group,
            create: false,
            formation: None,
            command: "lock",
            advice: super::advice(group, &self.settings),
            no_state: Some(super::no_locks(group)),
            while_halted,
            settings: &self.settings,
        };
        opening.wait(self.service.replica(), &self.options)?;
        let _waiting = progress::tell_if_long(SHORT_OPENING, self.words_of_line());
        let acquired = match self.timeout {
            _ if !self.waits => self.service.try_acquire(lock),
            Some(timeout) => self.service.acquire_within(lock, timeout),
            None => self.service.acquire(lock),
        };
        let (lock, group) = (visible(lock), visible(group));
        acquired.map_err(|failure| match failure {
            NotAcquired::Refused(LockRefusal::Held) => Problem::failed(format!(
                "{lock} is held{}: nothing was run",
                holder(&self.service, &self.lock).map_or(String::new(), |holder| format!(" by {holder}"))
            )),
            NotAcquired::TimedOut | NotAcquired::Halted if !self.waits || is_halted(&self.service) => {
                let reason = look::no_commands(&self.group, &self.options, &self.settings);
                Problem::not_primary(format!("{reason}: nothing was run"))
            }
            NotAcquired::TimedOut => {
                let within = humantime::format_duration(self.timeout.unwrap_or_default());
                Problem::failed(format!("{lock} was not free within {within}: nothing was run"))
            }
            NotAcquired::Ended => {
                let end = self.service.replica().wait();
                Problem::failed(format!("no lock of {group}: {end}"))
            }
            failure => Problem::failed(failure),
        })
    }

    /// Returns what tells, at the time it is called, what this process waits for.
    fn words_of_line(&self) -> impl FnOnce() -> String + Send + use<> {
        let (group, lock, service) = (self.group.clone(), self.lock.clone(), self.service.clone());
        let (options, settings) = (self.options.clone(), self.settings.clone());
        move || {
            let shown = visible(&lock);
            if is_halted(&service) {
                return format!("waiting for {shown}: {} …", look::no_commands(&group, &options, &settings));
            }
            let claims = service.replica().look(|machine| machine.table().line(&lock).count());
            match holder(&service, &lock) {
                Some(holder) => {
                    format!("waiting for {shown}: {holder} has it, {} in line …", claims.saturating_sub(1))
                }
                None => format!("waiting for {shown}: {} has not answered yet …", visible(&group)),
            }
        }
    }
}

/// True if the group carries out no commands.
fn is_halted(service: &LockService) -> bool {
    service.replica().status().state == ReplicaState::Halted
}

/// Returns the name of the member that has the lock.
fn holder(service: &LockService, lock: &str) -> Option<String> {
    let holder = service.replica().look(|machine| machine.table().holder(lock))?;
    let members = service.replica().status().members;
    let holder = members.into_iter().find(|member| member.uid == holder.member)?;
    Some(visible(holder.name.as_str()).into_owned())
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

/// Runs the command until it ends, or until the lock is lost.
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
    let mut child = guard::start(&command.command, fence)?;
    let group = Pid::from_child(&child);
    watch_standing(service.clone(), held, &command.group, to.clone())?;
    let ended = to.clone();
    threads::start("ended", move || {
        // It stays a zombie, so that no other process gets the number of its group.
        while waitid(WaitId::Pid(group), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)
            .is_err_and(|error| error == rustix::io::Errno::INTR)
        {}
        let _ = ended.send(News::Ended);
    })?;
    let lost = supervise(group, news);
    // What the command left in its group does not outlive the lock.
    signal_group(group, Signal::KILL);
    let status = child.wait().context("cannot wait for the command")?;
    match lost {
        Some(reason) => Err(Problem::failed(reason)),
        None => Ok(guard::code(status)),
    }
}

/// Waits until the command has ended, and ends it when the lock is lost. Returns why the lock was lost, if it was.
fn supervise(group: Pid, news: &Receiver<News>) -> Option<String> {
    let (mut lost, mut kills_at) = (None, None::<Instant>);
    loop {
        let rest = kills_at.map(|at| at.saturating_duration_since(Instant::now()));
        match news.recv_timeout(rest.unwrap_or(Duration::MAX)) {
            Ok(News::Ended) | Err(RecvTimeoutError::Disconnected) => return lost,
            Ok(News::Signal(number)) => {
                if let Some(signal) = Signal::from_named_raw(number) {
                    signal_group(group, signal);
                }
            }
            Ok(News::Lost(reason)) if lost.is_none() => {
                tell(format_args!("{reason}: the command is ended"));
                lost = Some(reason);
                signal_group(group, Signal::TERM);
                kills_at = Some(Instant::now() + TERMINATES_WITHIN);
            }
            Err(RecvTimeoutError::Timeout) => {
                signal_group(group, Signal::KILL);
                kills_at = None;
            }
            Ok(News::Lost(_) | News::Acquired(_)) => {}
        }
    }
}

fn signal_group(group: Pid, signal: Signal) {
    // Fails only if all processes of the group have ended.
    let _ = kill_process_group(group, signal);
}

/// True if this process has ended because its group gave way to another one.
fn gave_way(service: &LockService) -> bool {
    let ended = service.replica().status().state == ReplicaState::Ended;
    ended && matches!(service.replica().wait(), ReplicaEnd::Stopped(StopReason::GivesWay { .. }))
}

/// Sends the reason when this process may no longer act under the lock.
fn watch_standing(service: LockService, held: Held, group: &str, to: Sender<News>) -> anyhow::Result<()> {
    let (group, lock) = (visible(group).into_owned(), visible(held.name()).into_owned());
    threads::start("standing", move || {
        let mut standing = held.standing();
        while let LockStanding::Holds(_) = standing {
            standing = held.standing_after(standing);
        }
        let reason = match standing {
            LockStanding::Suspended => {
                format!("{group} is halted, without the members that it needs: {lock} may be lost")
            }
            _ if gave_way(&service) => {
                format!(
                    "{lock} is lost: another group called {group} keeps locks too, and this one gave way to it"
                )
            }
            _ => format!("{lock} is lost: {group} excluded this process, which was paused or cut off"),
        };
        let _ = to.send(News::Lost(reason));
    })
}

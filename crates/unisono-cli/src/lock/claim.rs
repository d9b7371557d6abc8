//! Waits for a lock, as `unisono lock GROUP NAME` does: joins the processes that keep the locks, and waits in line.
//!
//! A process that waits without a limit goes from a group that carries out no commands to another one of its name. Otherwise it
//! would wait for ever beside a process that kept the locks alone, died, and founded them anew.

use super::Present;
use crate::look;
use crate::opening::{LOOK, LOOKS_EVERY, Opening, SHORT_OPENING, WhileHalted};
use crate::output::visible;
use crate::problem::Problem;
use crate::progress;
use crate::settings::Settings;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};
use unisono::Options;
use unisono::locks::{Held, LockRefusal, LockService, NotAcquired};
use unisono::replica::{Founding, ReplicaEnd, ReplicaError, ReplicaOptions, ReplicaState, StopReason};

/// Least time for which a process whose wait has a limit waits for a group that carries out no commands: 2 s.
const HALTED_WITHIN: Duration = Duration::from_secs(2);

/// A process that waits without a limit leaves a group that has carried out no commands for this long, 10 s.
const LEAVES_AFTER: Duration = Duration::from_secs(10);
/// What this process asks for.
pub(super) struct Claim {
    pub(super) group: String,
    pub(super) lock: String,
    pub(super) waits: bool,
    pub(super) timeout: Option<Duration>,
    pub(super) settings: Settings,
    pub(super) options: Options,
    pub(super) service: Present,
}

impl Claim {
    /// Joins the processes that keep the locks, and waits in line, if need be of one group after another.
    pub(super) fn acquire(self) -> Result<Held, Problem> {
        loop {
            let service = self.service.get();
            if let Some(held) = self.acquire_of(&service)? {
                return Ok(held);
            }
            self.wait_for_group();
            self.service.set(enter(&self.group, &self.options)?);
        }
    }

    /// Waits in line for the lock of this service. `None` if this process has left it and there may be another.
    fn acquire_of(&self, service: &LockService) -> Result<Option<Held>, Problem> {
        let Claim { group, lock, .. } = self;
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
        opening.wait(service.replica(), &self.options)?;
        let _waiting = progress::tell_if_long(SHORT_OPENING, self.words_of_line(service));
        let acquired = match self.timeout {
            _ if !self.waits => service.try_acquire(lock),
            Some(timeout) => service.acquire_within(lock, timeout),
            None => match acquire_or_leave(service, lock) {
                Some(acquired) => acquired,
                None => return Ok(None),
            },
        };
        let (lock, group) = (visible(lock), visible(group));
        acquired.map(Some).map_err(|failure| match failure {
            NotAcquired::Refused(LockRefusal::Held) => Problem::failed(format!(
                "{lock} is held{}: nothing was run",
                holder(service, &self.lock).map_or(String::new(), |holder| format!(" by {holder}"))
            )),
            NotAcquired::TimedOut | NotAcquired::Halted if !self.waits || is_halted(service) => {
                let reason = look::no_commands(&self.group, &self.options, &self.settings);
                Problem::not_primary(format!("{reason}: nothing was run"))
            }
            NotAcquired::TimedOut => {
                let within = humantime::format_duration(self.timeout.unwrap_or_default());
                Problem::failed(format!("{lock} was not free within {within}: nothing was run"))
            }
            NotAcquired::Ended => {
                let end = service.replica().wait();
                Problem::failed(format!("no lock of {group}: {end}"))
            }
            failure => Problem::failed(failure),
        })
    }

    /// Waits until the group carries out commands again, or one of its name does.
    fn wait_for_group(&self) {
        let (shown, lock) = (visible(&self.group).into_owned(), visible(&self.lock).into_owned());
        let advice = super::advice(&self.group, &self.settings);
        let _waiting = progress::tell_if_long(SHORT_OPENING, move || {
            format!("waiting for {lock}: no member of {shown} carries out commands; {advice} …")
        });
        while !unisono::look(&self.group, &self.options, LOOK).is_ok_and(|report| report.primary) {
            thread::sleep(LOOKS_EVERY);
        }
    }

    /// Returns what tells, at the time it is called, what this process waits for.
    fn words_of_line(&self, service: &LockService) -> impl FnOnce() -> String + Send + use<> {
        let (group, lock, service) = (self.group.clone(), self.lock.clone(), service.clone());
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

/// Waits in line for a lock. `None` if this process has left its group, because that carried out no commands for
/// [`LEAVES_AFTER`] or gave way to another one.
fn acquire_or_leave(service: &LockService, lock: &str) -> Option<Result<Held, NotAcquired>> {
    thread::scope(|scope| {
        let (ends, over) = mpsc::channel();
        let watch = scope.spawn(move || leave_if_halted(service, &over));
        let acquired = service.acquire(lock);
        drop::<Sender<()>>(ends);
        let has_left = watch.join().unwrap_or(false) || gave_way(service);
        (!has_left).then_some(acquired)
    })
}

/// Leaves the group once it has carried out no commands for [`LEAVES_AFTER`], and returns true; false if `over` ends before.
fn leave_if_halted(service: &LockService, over: &Receiver<()>) -> bool {
    let mut halted = None;
    while over.recv_timeout(LOOKS_EVERY) == Err(RecvTimeoutError::Timeout) {
        halted = is_halted(service).then(|| halted.unwrap_or_else(Instant::now));
        if halted.is_some_and(|since| since.elapsed() >= LEAVES_AFTER) {
            service.end(Duration::ZERO);
            return true;
        }
    }
    false
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

/// Begins to join the processes that keep the locks.
pub(super) fn enter(group: &str, options: &Options) -> Result<LockService, ReplicaError> {
    let notice = |notice| super::tell_notice(&notice);
    LockService::begin(group, Founding::Join, ReplicaOptions::default(), options, notice)
}

/// True if this process has ended because its group gave way to another one.
pub(super) fn gave_way(service: &LockService) -> bool {
    let ended = service.replica().status().state == ReplicaState::Ended;
    ended && matches!(service.replica().wait(), ReplicaEnd::Stopped(StopReason::GivesWay { .. }))
}

//! Waits for a lock, as `unisono lock GROUP NAME` does: joins the processes that keep the locks, and waits in line.
//!
//! A process that waits goes from a group that carries out no commands to another one of its name. Otherwise it would wait for ever
//! beside a process that kept the locks alone, died, and founded them anew.

use super::{FAREWELL, Present};
use crate::everyone;
use crate::opening::{JOIN_LOOKS_FOR_LOCATES, LOOK, LOOKS_EVERY, Opening, SHORT_OPENING, WhileHalted};
use crate::output::visible;
use crate::problem::Problem;
use crate::progress;
use crate::settings::Settings;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};
use unisono::Options;
use unisono::locks::{Held, LockRefusal, LockService, NotAcquired};
use unisono::replica::{Founding, ReplicaEnd, ReplicaError, ReplicaOptions, ReplicaState, StopReason};

/// Least time for which a process whose wait has a limit waits for a group that carries out no commands: 2 s. A process without a place in
/// line leaves such a group after that.
const HALTED_WITHIN: Duration = Duration::from_secs(2);
/// A process that waits in line leaves a group that has carried out no commands for this long, 10 s.
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
        let mut line = Line { timeout: self.timeout, until: None };
        loop {
            let service = self.service.get();
            let acquired = match self.waits {
                true => self.unless_it_leaves(&service, || self.acquire_of(&service, &mut line)),
                false => Some(self.acquire_of(&service, &mut line)),
            };
            if let Some(acquired) = acquired {
                return acquired;
            }
            line.begin();
            self.wait_for_group(&line)?;
            self.service.set(enter(&self.group, &self.options)?);
        }
    }

    /// Waits in line for the lock of this service.
    fn acquire_of(&self, service: &LockService, line: &mut Line) -> Result<Held, Problem> {
        let Claim { group, lock, .. } = self;
        let while_halted = match line.rest() {
            _ if !self.waits => WhileHalted::Within(HALTED_WITHIN),
            Some(rest) => WhileHalted::Within(rest.max(HALTED_WITHIN)),
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
        line.begin();
        let acquired = match line.rest() {
            _ if !self.waits => service.try_acquire(lock),
            Some(rest) => service.acquire_within(lock, rest),
            None => service.acquire(lock),
        };
        let (lock, group) = (visible(lock), visible(group));
        acquired.map_err(|failure| match failure {
            NotAcquired::Refused(LockRefusal::Held) => Problem::failed(format!(
                "{lock} is held{}: nothing was run",
                holder(service, &self.lock).map_or(String::new(), |holder| format!(" by {holder}"))
            )),
            NotAcquired::TimedOut | NotAcquired::Halted if !self.waits || is_halted(service) => {
                let reason = everyone::no_commands(&self.group, &self.options, &self.settings);
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

    /// Returns what `acquire` does; `None` if this process has [left](Claim::leave_in_vain) the group meanwhile, or has ended because
    /// the group gave way to another one.
    fn unless_it_leaves<T>(&self, service: &LockService, acquire: impl FnOnce() -> T) -> Option<T> {
        thread::scope(|scope| {
            let (ends, over) = mpsc::channel::<()>();
            // Without this thread it waits on.
            let watch =
                thread::Builder::new().spawn_scoped(scope, move || self.leave_in_vain(service, &over));
            let acquired = acquire();
            drop(ends);
            let has_left = watch.is_ok_and(|watch| watch.join().unwrap_or(false)) || gave_way(service);
            (!has_left).then_some(acquired)
        })
    }

    /// Leaves the group once this process waits in vain, and returns true; false if `over` ends before. A member does so when the group
    /// has carried out no commands for [`LEAVES_AFTER`]. One that has seen it carry out none has no place in line to lose.
    fn leave_in_vain(&self, service: &LockService, over: &Receiver<()>) -> bool {
        let (mut halted, mut entering, mut leaves_after) = (None, None, HALTED_WITHIN);
        while over.recv_timeout(LOOKS_EVERY) == Err(RecvTimeoutError::Timeout) {
            let state = service.replica().status().state;
            let since =
                |before: Option<Instant>, is| (state == is).then(|| before.unwrap_or_else(Instant::now));
            halted = since(halted, ReplicaState::Halted);
            entering = since(entering, ReplicaState::Entering);
            if state == ReplicaState::Serving {
                leaves_after = LEAVES_AFTER;
            }
            if halted.is_some_and(|since| since.elapsed() >= leaves_after)
                || entering.is_some_and(|since| self.enters_in_vain(since.elapsed()))
            {
                service.end(FAREWELL);
                return true;
            }
        }
        false
    }

    /// True if this process does not get in, for this time: the group is halted and may have half admitted it, or another one of its
    /// name carries out commands.
    fn enters_in_vain(&self, entering: Duration) -> bool {
        let enters_within = self.options.settings.locate * JOIN_LOOKS_FOR_LOCATES + LEAVES_AFTER;
        entering >= HALTED_WITHIN
            && unisono::look(&self.group, &self.options, LOOK)
                .is_ok_and(|report| !report.primary || entering >= enters_within)
    }

    /// Waits until the group carries out commands again, or one of its name does.
    fn wait_for_group(&self, line: &Line) -> Result<(), Problem> {
        let lock = visible(&self.lock).into_owned();
        let words = self.words_of_search();
        let _waiting =
            progress::tell_if_long(SHORT_OPENING, move || format!("waiting for {lock}: {} …", words()));
        while !unisono::look(&self.group, &self.options, LOOK).is_ok_and(|report| report.primary) {
            if line.rest().is_some_and(|rest| rest.is_zero()) {
                return Err(Problem::not_primary(format!("{}: nothing was run", self.words_of_search()())));
            }
            thread::sleep(LOOKS_EVERY);
        }
        Ok(())
    }

    /// Returns what tells, at the time it is called, why no group carries out commands. It never advises to found the locks: their
    /// processes may only be cut off.
    fn words_of_search(&self) -> impl FnOnce() -> String + Send + use<> {
        let (group, options, settings) = (self.group.clone(), self.options.clone(), self.settings.clone());
        move || match unisono::look(&group, &options, LOOK) {
            Ok(_) => everyone::no_commands(&group, &options, &settings),
            Err(_) => {
                format!(
                    "no member of {} answers; start the processes that keep its locks again",
                    visible(&group)
                )
            }
        }
    }

    /// Returns what tells, at the time it is called, what this process waits for.
    fn words_of_line(&self, service: &LockService) -> impl FnOnce() -> String + Send + use<> {
        let (group, lock, service) = (self.group.clone(), self.lock.clone(), service.clone());
        let (options, settings) = (self.options.clone(), self.settings.clone());
        move || {
            let shown = visible(&lock);
            if is_halted(&service) {
                return format!(
                    "waiting for {shown}: {} …",
                    everyone::no_commands(&group, &options, &settings)
                );
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

/// The time that this process is in line, with all groups.
struct Line {
    timeout: Option<Duration>,
    /// When it ends; `None` before it has begun, and without a limit.
    until: Option<Instant>,
}

impl Line {
    fn begin(&mut self) {
        self.until = self.until.or_else(|| Instant::now().checked_add(self.timeout?));
    }

    /// Returns what is left of the limit.
    fn rest(&self) -> Option<Duration> {
        let rest = self.until.map(|until| until.saturating_duration_since(Instant::now()));
        rest.or(self.timeout)
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

//! The guard of a command that runs under a lock: a process of its own, so that no part of the command outlives its
//! `unisono lock`, however that ends.
//!
//! ```text
//!    unisono lock ── the guard ── the command ── what it starts
//!                    └────── one process group ───────────────┘
//! ```
//!
//! The kernel sends the guard a signal when `unisono lock` dies; the guard then kills the command with all its descendants,
//! and its process group, itself included. The kernel kills the command if the guard dies, and `unisono lock`, which waits
//! for the guard, kills what is left in the group.
//!
//! The command's orphans, such as daemons, become children of the guard (a child subreaper), so a process cannot leave its
//! family as it can leave its process group. When the command has ended, the guard kills these, and ends with the command's
//! exit status. It ignores all other signals, which go to the whole group.

use super::family;
use crate::output;
use crate::problem::Problem;
use anyhow::Context;
use clap::Args;
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpid, getppid, kill_process, kill_process_group,
    set_child_subreaper, set_parent_process_death_signal, wait,
};
use signal_hook::consts::{
    SIGALRM, SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2,
};
use signal_hook::iterator::Signals;
use std::ffi::OsString;
use std::io::{ErrorKind, IsTerminal};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};

/// The name of the hidden command.
const GUARD: &str = "lock-guard";
/// This program, also if its file was replaced while it ran.
const THIS_PROGRAM: &str = "/proc/self/exe";
/// Exit status if there is no such program, as of shells.
const NOT_FOUND: i32 = 127;
/// Exit status if the program cannot be run.
const NOT_RUN: i32 = 126;

/// The signals that `unisono lock` passes on.
const PASSED_ON: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// Guard a command that runs under a lock
#[derive(Args, Debug)]
pub(crate) struct Guard {
    /// Process number of the parent
    parent: u32,

    /// Become the command, instead of guarding it
    #[arg(long)]
    become_it: bool,

    /// The command
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// Starts the command under a guard, whose process number is that of its process group. Must be called from a thread
/// that lives as long as this process.
pub(super) fn start(command: &[OsString], fence: u64) -> anyhow::Result<Child> {
    let mut guard = Command::new(THIS_PROGRAM);
    guard.arg0("unisono").args([GUARD, &std::process::id().to_string(), "--"]).args(command);
    guard.env("UNISONO_FENCE", fence.to_string()).process_group(0);
    if std::io::stdin().is_terminal() {
        // A process group in the background that read from the terminal would be stopped, with the lock.
        guard.stdin(Stdio::null());
    }
    guard.spawn().context("cannot start the command")
}

pub(crate) fn run(guard: &Guard) -> Result<(), Problem> {
    let status = match guard.become_it {
        true => become_command(guard)?,
        false => watch(guard)?,
    };
    output::exit(status)
}

/// Runs the command and waits for its end.
fn watch(guard: &Guard) -> anyhow::Result<i32> {
    // Handled signals are reset to their defaults in the command; ignored ones would stay ignored.
    let mut signals = Signals::new([
        SIGALRM, SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2,
    ])
    .context("cannot wait for signals")?;
    set_parent_process_death_signal(Some(Signal::HUP))?;
    set_child_subreaper(Some(getpid()))?;
    let me = getpid().as_raw_nonzero().to_string();
    let mut command = Command::new(THIS_PROGRAM);
    command.arg0("unisono").args([GUARD, &me, "--become-it", "--"]).args(&guard.command);
    end_without(guard.parent);
    let command = Pid::from_child(&command.spawn().context("cannot start the command")?);
    // A signal that came before the command existed has reached this guard alone. One that came since may reach the command twice.
    for number in signals.pending().filter(|number| PASSED_ON.contains(number)) {
        let _ = Signal::from_named_raw(number).map(|signal| kill_process(command, signal));
    }
    let status = loop {
        end_without(guard.parent);
        match status_of(command)? {
            Some(status) => break status,
            None => signals.wait().for_each(drop),
        }
    };
    family::end_descendants();
    Ok(status)
}

/// Reaps the children that have ended: orphans, and the command. Returns the exit status of the command if it has ended.
fn status_of(command: Pid) -> anyhow::Result<Option<i32>> {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((child, status))) if child == command => return Ok(Some(code_of(status))),
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => return Ok(None),
            Err(error) => return Err(error).context("cannot wait for the command"),
        }
    }
}

/// Kills the command, and the process group of this guard, if its parent has died.
fn end_without(parent: u32) {
    if !has_parent(parent) {
        family::end_descendants();
        // Kills this process too.
        let _ = kill_process_group(getpid(), Signal::KILL);
        output::exit(NOT_RUN);
    }
}

/// Becomes the command. Returns an exit status if that fails.
fn become_command(guard: &Guard) -> anyhow::Result<i32> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    anyhow::ensure!(has_parent(guard.parent), "the guard has ended");
    let (program, arguments) = guard.command.split_first().context("there is no command")?;
    let error = Command::new(program).args(arguments).exec();
    output::tell(format_args!("cannot run {}: {error}", output::visible(&program.to_string_lossy())));
    Ok(if error.kind() == ErrorKind::NotFound { NOT_FOUND } else { NOT_RUN })
}

fn has_parent(parent: u32) -> bool {
    let present = getppid().map(Pid::as_raw_nonzero);
    present.is_some_and(|present| u32::try_from(present.get()) == Ok(parent))
}

fn code_of(status: WaitStatus) -> i32 {
    status.exit_status().or_else(|| status.terminating_signal().map(|signal| 128 + signal)).unwrap_or(1)
}

/// Returns the exit status with which a shell reports this one.
pub(super) fn code(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1)
}

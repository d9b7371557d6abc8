//! Handles ctrl-c, SIGTERM and the end of the terminal (SIGHUP): the member leaves its group. A second signal ends the
//! process at once.
//!
//! Without a leave the other members would suspect this one only after some time, and reset the group.

use crate::output;
use crate::threads;
use anyhow::Context;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc;
use std::time::Duration;
use unisono::Group;

/// Time without progress on standard output, 5 s, after which a process that has left ends without printing the rest.
const READ_WITHIN: Duration = Duration::from_secs(5);

/// The number of the first signal received; 0 before.
static FIRST: AtomicI32 = AtomicI32::new(0);

/// Returns the signal that made this process leave its group, if one did.
pub(crate) fn interrupt() -> Option<i32> {
    Some(FIRST.load(Ordering::Relaxed)).filter(|&signal| signal != 0)
}

/// Turns core dumps of this process off, before it holds a secret: a dump would contain it. Other processes of the same
/// user can no longer trace this one.
pub(crate) fn leave_no_core() {
    // Refused only by kernels that have no core dumps to begin with.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

/// Leaves the group on the first signal, then calls `then`. A thread that receives the group's events sees them end.
/// Ends the process if it prints and standard output is not read.
pub(crate) fn leave_on_interrupt(group: &Group, then: impl FnOnce() + Send + 'static) -> anyhow::Result<()> {
    let group = group.clone();
    on_interrupt(move |signal| {
        crate::listen::leave(&group);
        then();
        end_when_output_stalls(signal);
    })
}

/// Ends the process once its output makes no progress. A process whose output is read ends before that.
fn end_when_output_stalls(signal: i32) {
    loop {
        let taken = output::pieces_taken();
        std::thread::sleep(READ_WITHIN);
        if output::pieces_taken() == taken {
            break;
        }
    }
    output::tell("standard output is not read: the rest of the output is lost");
    output::exit(128 + signal);
}

/// Returns the signals that ask this process to end.
pub(crate) fn interrupts() -> Vec<i32> {
    let mut signals = vec![SIGINT, SIGTERM];
    if !ignores_hangup() {
        signals.push(SIGHUP);
    }
    signals
}

/// True if SIGHUP is ignored: nohup started this process, which is to outlive its terminal.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    ignored & 1 << (SIGHUP - 1) != 0
}

/// Calls `first` on the first signal. The thread for that starts now, because the system may refuse one later.
pub(crate) fn on_interrupt(first: impl FnOnce(i32) + Send + 'static) -> anyhow::Result<()> {
    let mut signals = Signals::new(interrupts()).context("cannot wait for signals")?;
    let (interrupt, interrupted) = mpsc::channel();
    threads::start("interrupted", move || {
        if let Ok(signal) = interrupted.recv() {
            first(signal);
        }
    })?;
    threads::start("signals", move || {
        let mut arrivals = signals.forever();
        if let Some(signal) = arrivals.next() {
            FIRST.store(signal, Ordering::Relaxed);
            let _ = interrupt.send(signal);
        }
        if let Some(second) = arrivals.next() {
            std::process::exit(128 + second);
        }
    })
}

//! Ctrl-c, SIGTERM, and a terminal that is closed: leave the group in good order. A second one ends the process at once.
//!
//! Whoever dies instead of leaving is missed only after a while, and the group is reset for it.

use crate::output;
use crate::threads;
use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc;
use std::time::Duration;
use unisono::Group;

/// Whoever has left and prints waits so long for somebody to read on.
const READ_WITHIN: Duration = Duration::from_secs(5);
/// And so long for somebody to read that nobody did.
const TOLD_WITHIN: Duration = Duration::from_secs(1);

/// The first interrupt that came; 0 before.
static FIRST: AtomicI32 = AtomicI32::new(0);

/// The interrupt for which a group was left, if one was.
pub(crate) fn interrupt() -> Option<i32> {
    Some(FIRST.load(Ordering::Relaxed)).filter(|&signal| signal != 0)
}

/// Lets the group be left on the first interrupt, and does this then; whoever receives the group's events sees them end. The
/// process ends, too, if it prints something and nobody reads.
pub(crate) fn leave_on_interrupt(group: &Group, then: impl FnOnce() + Send + 'static) -> anyhow::Result<()> {
    let group = group.clone();
    on_interrupt(move |signal| {
        crate::listen::leave(&group);
        then();
        end_when_nobody_reads(signal);
    })
}

/// Ends the process, which would have ended by itself if what it prints were read.
fn end_when_nobody_reads(signal: i32) {
    loop {
        let taken = output::pieces_taken();
        std::thread::sleep(READ_WITHIN);
        if output::pieces_taken() == taken {
            break;
        }
    }
    // Nobody may read standard error either.
    let (say, said) = mpsc::channel();
    let _ = threads::start("farewell", move || {
        output::tell("nobody reads standard output; what it does not hold yet is lost");
        let _ = say.send(());
    });
    let _ = said.recv_timeout(TOLD_WITHIN);
    std::process::exit(128 + signal);
}

/// What asks a process to end.
pub(crate) fn interrupts() -> Vec<i32> {
    let mut signals = vec![SIGINT, SIGTERM];
    if !ignores_hangup() {
        signals.push(SIGHUP);
    }
    signals
}

/// Whoever is started by nohup is to outlive its terminal.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    ignored & 1 << (SIGHUP - 1) != 0
}

/// Does this on the first interrupt, in a thread that waits for it: the system may grant none then.
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

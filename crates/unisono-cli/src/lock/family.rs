//! The descendants of a process, also those that left its process group (`timeout`, `setsid`, a daemon), and their end.
//!
//! They are read from `/proc/*/stat` and signalled by pidfds (Linux 5.3). A system without pidfds leaves the caller the process
//! group alone.

use crate::output::tell;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, getpid, pidfd_open, pidfd_send_signal, wait};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

/// Maximum time for killed processes to be gone. It is longer only for a process that waits for a device, or that another
/// user owns.
pub(super) const DIES_WITHIN: Duration = Duration::from_secs(1);
/// First interval at which a process looks whether killed processes are gone. Each later interval is twice the one before.
const LOOKS_AFTER: Duration = Duration::from_millis(1);
/// Maximum of that interval: a look reads a file of each process of the machine.
const LOOKS_AFTER_MAX: Duration = Duration::from_millis(32);

/// Number of processes of which handles are open at a time.
const HANDLES_MAX: usize = 128;

/// A process as `/proc` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Process {
    id: i32,
    parent: i32,
    group: i32,
    /// True unless it is a zombie.
    lives: bool,
    /// Start of the process in clock ticks since the machine's: together with `id` it names one process.
    start: u64,
}

impl Process {
    /// Reads a line of `/proc/N/stat`. The name in it may contain spaces and parentheses.
    fn parse(stat: &str) -> Option<Process> {
        let (id, rest) = stat.split_once(" (")?;
        let (_, rest) = rest.rsplit_once(") ")?;
        let mut fields = rest.split_ascii_whitespace();
        let state = fields.next()?;
        Some(Process {
            id: id.parse().ok()?,
            lives: !matches!(state, "Z" | "X"),
            parent: fields.next()?.parse().ok()?,
            group: fields.next()?.parse().ok()?,
            start: fields.nth(16)?.parse().ok()?,
        })
    }

    fn is(&self, other: &Process) -> bool {
        (self.id, self.start) == (other.id, other.start)
    }

    /// True if it has not ended meanwhile.
    pub(super) fn goes_on(&self) -> bool {
        let stat = fs::read(format!("/proc/{}/stat", self.id)).unwrap_or_default();
        let present = Process::parse(&String::from_utf8_lossy(&stat));
        present.is_some_and(|present| present.is(self) && present.lives)
    }

    fn open(&self) -> Option<OwnedFd> {
        pidfd_open(Pid::from_raw(self.id)?, PidfdFlags::empty()).ok()
    }
}

/// Returns the processes of the machine.
fn all() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let numbered = entries.flatten().map(|entry| entry.path()).filter(|path| {
        path.file_name().is_some_and(|name| name.as_encoded_bytes().iter().all(u8::is_ascii_digit))
    });
    // A process may end after its entry was listed.
    let stats = numbered.filter_map(|path| fs::read(path.join("stat")).ok());
    stats.filter_map(|stat| Process::parse(&String::from_utf8_lossy(&stat))).collect()
}

/// Returns the descendants of `root`, each after its parent.
fn descendants(root: Pid, processes: Vec<Process>) -> Vec<Process> {
    let mut children = BTreeMap::<i32, Vec<Process>>::new();
    for process in processes {
        children.entry(process.parent).or_default().push(process);
    }
    let mut found = children.remove(&root.as_raw_pid()).unwrap_or_default();
    let mut next = 0;
    while let Some(parent) = found.get(next) {
        let more = children.remove(&parent.id);
        found.extend(more.into_iter().flatten());
        next += 1;
    }
    found
}

/// Returns the descendants of `root` that have not ended.
pub(super) fn living(root: Pid) -> Vec<Process> {
    let mut found = descendants(root, all());
    found.retain(|process| process.lives);
    found
}

/// Returns handles of these descendants of `root`.
fn open(root: Pid, wanted: &[Process]) -> Vec<OwnedFd> {
    let opened: Vec<_> = wanted.iter().filter_map(|process| Some((process, process.open()?))).collect();
    if opened.is_empty() {
        return Vec::new();
    }
    // The number of a process that ended before it was opened may be that of a stranger by now.
    let present = descendants(root, all());
    let is_present = |process: &Process| present.iter().any(|other| other.is(process));
    opened.into_iter().filter(|(process, _)| is_present(process)).map(|(_, handle)| handle).collect()
}

/// Kills the present descendants of `root`. Returns false, and kills none, if the system does not tell them or has no pidfds.
pub(super) fn kill(root: Pid) -> bool {
    if !shows_own_processes() || pidfd_open(getpid(), PidfdFlags::empty()).is_err() {
        return false;
    }
    // Zombies too: other threads of such a process may go on.
    for some in descendants(root, all()).chunks(HANDLES_MAX) {
        for process in open(root, some) {
            signal_one(&process, Signal::KILL);
        }
    }
    true
}

/// True if the numbers in `/proc` are those that this process sees: it may be that of another PID namespace.
fn shows_own_processes() -> bool {
    fs::read_link("/proc/self").is_ok_and(|number| number.as_os_str() == &*getpid().to_string())
}

fn signal_one(process: &OwnedFd, signal: Signal) {
    // Fails only if the process has ended, or if another user owns it.
    let _ = pidfd_send_signal(process, signal);
}

/// The descendants of a guard that have left its process group while their parent is in it. Such a process passes signals on
/// to its own children, as `timeout` does, or keeps them from them.
pub(super) struct Strays(Vec<OwnedFd>);

impl Strays {
    pub(super) fn of(guard: Pid) -> Strays {
        let found = if shows_own_processes() { living(guard) } else { Vec::new() };
        let group = guard.as_raw_pid();
        let in_group =
            |id: i32| id == group || found.iter().any(|process| process.id == id && process.group == group);
        let strays: Vec<Process> = found
            .iter()
            .filter(|process| process.group != group && in_group(process.parent))
            .cloned()
            .collect();
        Strays(open(guard, &strays))
    }

    pub(super) fn signal(&self, signal: Signal) {
        self.0.iter().for_each(|stray| signal_one(stray, signal));
    }
}

/// Kills the descendants of this process and waits for their end, at most for [`DIES_WITHIN`]. Says which of them go on then.
/// Orphans must be children of this process (a child subreaper).
pub(super) fn end_descendants() {
    let until = Instant::now() + DIES_WITHIN;
    let mut pause = LOOKS_AFTER;
    while has_children() && kill(getpid()) {
        if Instant::now() >= until {
            return tell_of(&living(getpid()));
        }
        thread::sleep(pause);
        pause = (pause * 2).min(LOOKS_AFTER_MAX);
    }
}

/// Reaps the children that have ended. Returns whether this process has others.
fn has_children() -> bool {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

/// Says that these processes of a command go on, if there are any.
pub(super) fn tell_of(processes: &[Process]) {
    if processes.is_empty() {
        return;
    }
    let mut numbers = String::new();
    for process in processes {
        let _ = write!(numbers, " {}", process.id);
    }
    tell(format_args!("a part of the command cannot be ended and goes on: process{numbers}"));
}

/// True if a process of this group has not ended. Zombies, which process 1 may reap late, do not count.
pub(super) fn group_lives(group: Pid) -> bool {
    all().iter().any(|process| process.lives && process.group == group.as_raw_pid())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(id: i32, parent: i32) -> Process {
        Process { id, parent, group: 1, lives: true, start: 5 }
    }

    fn stat(name: &str, state: char) -> String {
        format!("42 ({name}) {state} 7 40 3 0 -1 4194560 9 9 0 0 1 2 3 4 20 0 1 0 7890 11 12")
    }

    #[test]
    fn a_stat_line_is_read_whatever_the_name_of_the_process_is() {
        for name in ["sh", "two words", "a) Z 1 1 (b", ") ", "", "(sd-pam)", "x\ny", "\u{fffd}"] {
            let read = Process::parse(&stat(name, 'S'));
            let expected = Process { id: 42, parent: 7, group: 40, lives: true, start: 7890 };
            assert_eq!(read, Some(expected), "{name:?}");
        }
        assert!(!Process::parse(&stat("sh", 'Z')).unwrap().lives);
        assert!(!Process::parse(&stat("a) S 1 1", 'X')).unwrap().lives);
    }

    #[test]
    fn a_stat_line_that_is_cut_off_names_no_process() {
        let whole = stat("sh", 'S');
        let end = whole.find("7890").unwrap();
        for length in 0..end {
            assert_eq!(Process::parse(&whole[..length]), None, "{length}");
        }
    }

    #[test]
    fn descendants_are_found_in_any_order_and_strangers_are_not() {
        let processes = vec![process(9, 8), process(3, 1), process(8, 2), process(2, 1), process(1, 0)];
        let two = Pid::from_raw(2).unwrap();
        assert_eq!(descendants(two, processes.clone()), [process(8, 2), process(9, 8)]);
        assert_eq!(descendants(Pid::INIT, processes).len(), 4);
        // A number that was reused while /proc was read may close a circle.
        assert_eq!(descendants(two, vec![process(3, 2), process(2, 3)]).len(), 2);
    }

    #[test]
    fn this_process_is_found_in_proc() {
        let me = getpid().as_raw_pid();
        assert!(all().iter().any(|process| process.id == me && process.lives));
    }
}

//! Lines that this process writes through a queue: notes to standard error, log entries included, and a server's
//! announcements to standard output, each in the order in which they came.
//!
//! Either stream may be a pipe that is not read: a log driver that hangs, a full disk behind it, a pager. A thread that
//! serves must not wait for it. So lines go into a bounded queue, and one thread for each stream writes them. Lines that
//! find the queue full are dropped and counted, and the count is noted once writing works again.

use crate::output::{self, BARS, several, tell};
use crate::threads;
use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Maximum number of lines that wait, and of their bytes: 1 MiB.
const LINES_MAX: usize = 4_096;
const BYTES_MAX: usize = 1 << 20;
/// Time that the end of the process waits for lines to be written: 500 ms.
const END_WITHIN: Duration = Duration::from_millis(500);
/// Time that a line on standard output waits for the notes before it: 100 ms, once; not if they are stuck.
const BEFORE_OUTPUT: Duration = Duration::from_millis(100);

/// The notes of this process.
static NOTES: LazyLock<Notes> = LazyLock::new(|| {
    let is_begun = threads::start("notes", || NOTES.write_on(&mut StandardError)).is_ok();
    Notes { is_begun, ..Notes::default() }
});

/// The announcements of this process.
static ANNOUNCEMENTS: LazyLock<Notes> = LazyLock::new(|| {
    let is_begun =
        threads::start("announcements", || ANNOUNCEMENTS.write_on(&mut StandardOutput::default())).is_ok();
    Notes { is_begun, ..Notes::default() }
});

/// Writes a line to standard output soon.
pub(crate) fn announce(line: Vec<u8>) {
    match ANNOUNCEMENTS.is_begun {
        true => ANNOUNCEMENTS.push(line),
        false => StandardOutput::default().write_line(&line),
    }
}

/// Writes a line, without its newline, to standard error soon, above the progress bars.
pub(crate) fn write(line: &[u8]) {
    let line = [line, b"\n"].concat();
    match NOTES.is_begun {
        true => NOTES.push(line),
        // The system refuses threads: there is no other one that could write.
        false => StandardError.write_line(&line),
    }
}

/// Waits until all lines are written, for a short time at most. To be called before the process ends.
pub(crate) fn finish() {
    // A failed announcement is a note.
    ANNOUNCEMENTS.settle(END_WITHIN);
    NOTES.settle(END_WITHIN);
}

/// Waits a moment for earlier lines, so that standard error and standard output keep their order on a terminal.
pub(crate) fn settle() {
    NOTES.settle(BEFORE_OUTPUT);
}

/// Where lines go.
trait Target {
    /// Writes a line, however long that takes. Errors are ignored: a failure to write must not stop the command.
    fn write_line(&mut self, line: &[u8]);

    /// Reports that this number of lines was dropped.
    fn report(&mut self, dropped: u64);
}

/// Returns what is said of lines that were dropped.
fn words_of_dropped(dropped: u64, stream: &str) -> String {
    let were = if dropped == 1 { "was" } else { "were" };
    format!("{} {were} dropped: {stream} was not read", several(dropped, "line"))
}

struct StandardError;

impl Target for StandardError {
    fn write_line(&mut self, line: &[u8]) {
        BARS.suspend(|| _ = io::stderr().write_all(line));
    }

    fn report(&mut self, dropped: u64) {
        self.write_line(format!("unisono: {}\n", words_of_dropped(dropped, "standard error")).as_bytes());
    }
}

#[derive(Default)]
struct StandardOutput {
    /// True if a failure to write was noted.
    has_failed: bool,
}

impl Target for StandardOutput {
    fn write_line(&mut self, line: &[u8]) {
        if let Err(error) = output::write_bytes(line)
            && !std::mem::replace(&mut self.has_failed, true)
        {
            tell(format_args!("{error}; this server goes on without it"));
        }
    }

    fn report(&mut self, dropped: u64) {
        tell(words_of_dropped(dropped, "standard output"));
    }
}

/// Lines on their way, in order.
#[derive(Default)]
struct Notes {
    is_begun: bool,
    queue: Mutex<Queue>,
    /// Signalled when a line comes, and when all are written.
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    lines: VecDeque<Vec<u8>>,
    /// Bytes of the lines, with that which is being written.
    bytes: usize,
    dropped: u64,
    is_writing: bool,
    /// True if a wait for these lines ended in vain, until one more is written.
    is_stuck: bool,
}

impl Queue {
    fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.dropped == 0 && !self.is_writing
    }

    /// Returns what to write next: the number of lines that were dropped comes once the lines before them are out.
    fn next(&mut self) -> Option<Next> {
        if let Some(line) = self.lines.pop_front() {
            return Some(Next::Line(line));
        }
        let dropped = std::mem::take(&mut self.dropped);
        (dropped > 0).then_some(Next::Dropped(dropped))
    }
}

/// What is written next.
enum Next {
    Line(Vec<u8>),
    /// The number of lines that were dropped.
    Dropped(u64),
}

impl Notes {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a line, or counts it as dropped. While lines were dropped that are not reported yet, none is taken: the
    /// report stands where they are missing.
    fn push(&self, line: Vec<u8>) {
        let mut queue = self.queue();
        let has_room = queue.lines.len() < LINES_MAX && queue.bytes + line.len() <= BYTES_MAX;
        if has_room && queue.dropped == 0 {
            queue.bytes += line.len();
            queue.lines.push_back(line);
        } else {
            queue.dropped += 1;
        }
        self.changed.notify_all();
    }

    /// Writes lines as they come, for ever.
    fn write_on(&self, target: &mut impl Target) {
        loop {
            self.write_next(target);
        }
    }

    /// Waits for a line and writes it.
    fn write_next(&self, target: &mut impl Target) {
        let mut queue = self.queue();
        let next = loop {
            match queue.next() {
                Some(next) => break next,
                None => queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner),
            }
        };
        queue.is_writing = true;
        drop(queue);
        let written = match next {
            Next::Line(line) => {
                target.write_line(&line);
                line.len()
            }
            Next::Dropped(dropped) => {
                target.report(dropped);
                0
            }
        };
        let mut queue = self.queue();
        queue.bytes = queue.bytes.saturating_sub(written);
        (queue.is_writing, queue.is_stuck) = (false, false);
        drop(queue);
        self.changed.notify_all();
    }

    /// Waits until no line waits, for this time at most; not if an earlier wait was in vain.
    fn settle(&self, within: Duration) {
        let until = Instant::now() + within;
        let mut queue = self.queue();
        while !queue.is_empty() && !queue.is_stuck {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                queue.is_stuck = true;
                return;
            }
            queue = self.changed.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::mpsc::{self, Receiver, SyncSender};
    use std::thread;

    /// A target that is read line by line: writing blocks until the reader takes the line.
    struct Pipe(SyncSender<String>);

    impl Target for Pipe {
        fn write_line(&mut self, line: &[u8]) {
            let _ = self.0.send(String::from_utf8_lossy(line).into_owned());
        }

        fn report(&mut self, dropped: u64) {
            self.write_line(words_of_dropped(dropped, "the pipe").as_bytes());
        }
    }

    fn begun() -> (Arc<Notes>, Receiver<String>) {
        let (notes, (taken, reader)) = (Arc::new(Notes::default()), mpsc::sync_channel(0));
        let writing = notes.clone();
        thread::spawn(move || writing.write_on(&mut Pipe(taken)));
        (notes, reader)
    }

    #[test]
    fn lines_that_are_not_read_delay_no_caller_and_are_counted() {
        let (notes, reader) = begun();
        let line = |n: usize| format!("line {n}\n");
        notes.push(line(0).into_bytes());
        while !notes.queue().is_writing {
            thread::yield_now();
        }
        (1..LINES_MAX + 4).for_each(|n| notes.push(line(n).into_bytes()));
        notes.settle(Duration::from_millis(1));
        for n in 0..=LINES_MAX {
            assert_eq!(reader.recv().unwrap(), line(n));
        }
        let report = reader.recv().unwrap();
        assert_eq!(report, "3 lines were dropped: the pipe was not read");
        notes.push(line(7).into_bytes());
        assert_eq!(reader.recv().unwrap(), line(7));
        notes.settle(Duration::from_secs(60));
        assert!(notes.queue().is_empty());
    }

    #[test]
    fn large_lines_are_bounded_by_their_bytes() {
        let (notes, reader) = begun();
        let large = vec![b'x'; BYTES_MAX / 2];
        (0..4).for_each(|_| notes.push(large.clone()));
        notes.push(b"small\n".to_vec());
        assert!([reader.recv(), reader.recv()].iter().flatten().all(|line| line.len() == large.len()));
        assert!(reader.recv().unwrap().contains("3 lines were dropped"));
    }

    #[test]
    fn a_wait_in_vain_is_not_repeated() {
        let (notes, _reader) = begun();
        notes.push(b"stuck\n".to_vec());
        notes.settle(Duration::from_millis(1));
        assert!(notes.queue().is_stuck);
        // It would take an hour.
        notes.settle(Duration::from_secs(3_600));
    }
}

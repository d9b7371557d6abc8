//! Lines read ahead of the group: so many and so many bytes at most, however fast they come and however slow it is.

use crate::threads;
use std::io::{BufRead, Read};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use unisono::Bytes;

/// Lines that wait at most.
const LINES_AHEAD: usize = 4096;
/// No line is read while those that wait have more bytes than this.
const BYTES_AHEAD: usize = 4 << 20;
/// The longest line: as long as a message may be in any group.
const LINE_BYTES_MAX: usize = 16 << 20;

/// What wakes the sender.
pub(crate) enum Input {
    Line(Bytes),
    /// There are no more lines; or the rest cannot be read.
    End(std::io::Result<()>),
}

/// Lines, as the sender takes them.
pub(crate) struct Lines {
    from: Receiver<Input>,
    to: Weak<SyncSender<Input>>,
    ahead: Arc<Ahead>,
}

/// Where the reader puts them.
struct Reader {
    to: Arc<SyncSender<Input>>,
    ahead: Arc<Ahead>,
}

/// Bytes of the lines that wait.
#[derive(Default)]
struct Ahead {
    bytes: AtomicUsize,
    /// The reader waits for fewer of them.
    reader_waits: Mutex<bool>,
    fewer: Condvar,
}

/// The texts given, or the lines of standard input as they come.
pub(crate) fn read(texts: Vec<String>) -> anyhow::Result<Lines> {
    let (reader, lines) = channel();
    threads::start("lines", move || {
        // Nobody listens any more: the sender has given up.
        let _ = match texts.is_empty() {
            true => reader.read_lines(&mut std::io::stdin().lock()),
            false => reader.give(texts),
        };
    })?;
    Ok(lines)
}

fn channel() -> (Reader, Lines) {
    let (to, from) = mpsc::sync_channel(LINES_AHEAD);
    let (to, ahead) = (Arc::new(to), Arc::<Ahead>::default());
    let lines = Lines { from, to: Arc::downgrade(&to), ahead: ahead.clone() };
    (Reader { to, ahead }, lines)
}

impl Lines {
    /// What ends them, for whoever waits for the next one in vain.
    pub(crate) fn ender(&self) -> impl FnOnce() + Send + 'static {
        let to = self.to.clone();
        move || {
            // Where there is no room for it, nobody waits.
            let _ = to.upgrade().map(|to| to.try_send(Input::End(Ok(()))));
        }
    }

    /// The next line, or how they ended, as soon as it is there.
    pub(crate) fn next(&self) -> Input {
        self.next_within(Duration::MAX).unwrap_or(Input::End(Ok(())))
    }

    /// Gives the lines that are there, no more of them than may wait here; waits for the first one. Returns how they
    /// ended, once they have.
    pub(crate) fn take(
        &self,
        patience: Duration,
        mut give: impl FnMut(Bytes),
    ) -> Option<std::io::Result<()>> {
        let (mut patience, mut bytes) = (patience, 0);
        for _ in 0..LINES_AHEAD {
            match self.next_within(patience)? {
                Input::Line(line) => {
                    bytes += line.len();
                    give(line);
                }
                Input::End(end) => return Some(end),
            }
            if bytes > BYTES_AHEAD {
                break;
            }
            patience = Duration::ZERO;
        }
        None
    }

    /// The next line or end; nothing if there is none for so long.
    fn next_within(&self, patience: Duration) -> Option<Input> {
        match self.from.recv_timeout(patience) {
            Ok(input) => {
                if let Input::Line(line) = &input {
                    self.ahead.take(line.len());
                }
                Some(input)
            }
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Input::End(Ok(()))),
        }
    }
}

impl Reader {
    fn give(&self, texts: Vec<String>) -> Option<()> {
        for text in texts {
            self.put(text.into())?;
        }
        self.to.send(Input::End(Ok(()))).ok()
    }

    fn read_lines(&self, input: &mut impl BufRead) -> Option<()> {
        for number in 1_u64.. {
            match read_line(input, number) {
                Ok(Some(line)) => self.put(line.into())?,
                end => return self.to.send(Input::End(end.map(drop))).ok(),
            }
        }
        None
    }

    /// Puts a line, and returns when another one may be read.
    fn put(&self, line: Bytes) -> Option<()> {
        self.ahead.bytes.fetch_add(line.len(), Ordering::SeqCst);
        self.to.send(Input::Line(line)).ok()?;
        self.ahead.wait();
        Some(())
    }
}

impl Ahead {
    fn are_many(&self) -> bool {
        self.bytes.load(Ordering::SeqCst) > BYTES_AHEAD
    }

    fn take(&self, bytes: usize) {
        let before = self.bytes.fetch_sub(bytes, Ordering::SeqCst);
        if before > BYTES_AHEAD && before - bytes <= BYTES_AHEAD {
            // Who has found them many waits by the time that this is free.
            drop(self.reader_waits());
            self.fewer.notify_one();
        }
    }

    fn wait(&self) {
        if !self.are_many() {
            return;
        }
        let mut waits = self.reader_waits();
        while self.are_many() {
            *waits = true;
            waits = self.fewer.wait(waits).unwrap_or_else(PoisonError::into_inner);
        }
        *waits = false;
    }

    fn reader_waits(&self) -> MutexGuard<'_, bool> {
        self.reader_waits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The next line, which has this number, without its end; nothing after the last.
fn read_line(input: &mut impl BufRead, number: u64) -> std::io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    if input.take(LINE_BYTES_MAX as u64 + 1).read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    if line.last() == Some(&b'\n') {
        line.pop();
    }
    match line.len() > LINE_BYTES_MAX {
        // How long it is nobody knows: it was read no further.
        true => Err(std::io::Error::other(format!(
            "line {number} has more than {LINE_BYTES_MAX} bytes, which is the most that a message has; neither it nor what \
             follows was sent"
        ))),
        false => Ok(Some(line)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufReader, Cursor};

    #[test]
    fn a_line_may_be_as_long_as_a_message_and_no_longer() {
        let longest = vec![b'x'; LINE_BYTES_MAX];
        for end in [&b""[..], b"\n", b"\nmore"] {
            let mut input = &[&longest, end].concat()[..];
            assert_eq!(read_line(&mut input, 1).unwrap().map(|line| line.len()), Some(LINE_BYTES_MAX));
        }
        for end in [&b"x"[..], b"x\n", b"xx\nmore"] {
            let mut input = &[&longest, end].concat()[..];
            let said = read_line(&mut input, 7).unwrap_err().to_string();
            assert!(said.starts_with("line 7 has more than 16777216 bytes"), "{said}");
        }
        assert_eq!(read_line(&mut &b""[..], 1).unwrap(), None);
        assert_eq!(read_line(&mut &b"\n"[..], 1).unwrap(), Some(Vec::new()));
    }

    /// Input that counts what was read of it.
    struct Counted(Cursor<Vec<u8>>, Arc<AtomicUsize>);

    impl Read for Counted {
        fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
            let bytes = self.0.read(into)?;
            self.1.fetch_add(bytes, Ordering::SeqCst);
            Ok(bytes)
        }
    }

    #[test]
    fn no_more_is_read_ahead_than_the_bound_and_a_line() {
        const LINE_BYTES: usize = 1 << 20;
        let text = [&[b'x'; LINE_BYTES - 1][..], b"\n"].concat().repeat(64);
        let read = Arc::new(AtomicUsize::new(0));
        let mut input = BufReader::new(Counted(Cursor::new(text), read.clone()));
        let (reader, lines) = channel();
        let reading = std::thread::spawn(move || reader.read_lines(&mut input));
        while !*lines.ahead.reader_waits() {
            assert!(!reading.is_finished(), "all was read, and nothing taken");
            std::thread::yield_now();
        }
        // What is buffered of the next line counts for another one.
        let read = read.load(Ordering::SeqCst);
        assert!(read <= BYTES_AHEAD + 2 * LINE_BYTES, "{read} bytes were read");
        for _ in 0..64 {
            assert!(matches!(lines.next(), Input::Line(line) if line.len() == LINE_BYTES - 1));
        }
        assert!(matches!(lines.next(), Input::End(Ok(()))));
        assert_eq!(reading.join().unwrap(), Some(()));
    }

    #[test]
    fn no_more_is_taken_at_once_than_the_bound_and_a_line() {
        let line = Bytes::from(vec![b'x'; BYTES_AHEAD / 4]);
        let (reader, lines) = channel();
        for _ in 0..12 {
            reader.ahead.bytes.fetch_add(line.len(), Ordering::SeqCst);
            reader.to.send(Input::Line(line.clone())).unwrap();
        }
        drop(reader);
        for expected in [5, 5, 2] {
            let mut taken = 0;
            let end = lines.take(Duration::ZERO, |_| taken += 1);
            assert_eq!(taken, expected);
            assert_eq!(end.is_some(), expected == 2);
        }
    }
}

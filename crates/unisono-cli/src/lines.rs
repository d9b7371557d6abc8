//! Reads lines ahead of the group that they are sent to. The number of lines and bytes that wait is bounded, however
//! fast the input and however slow the group is.

use crate::threads;
use std::io::{BufRead, Read};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use unisono::Bytes;

/// Maximum number of waiting lines.
const LINES_AHEAD: usize = 4096;
/// The reader pauses while the waiting lines have more bytes than this: 4 MiB.
const BYTES_AHEAD: usize = 4 << 20;
/// Maximum length of a line: 16 MiB, the largest message of any group.
const LINE_BYTES_MAX: usize = 16 << 20;

/// What the sender receives from the reader.
pub(crate) enum Input {
    Line(Bytes),
    /// The end of the lines, or the error that prevents reading the rest.
    End(std::io::Result<()>),
}

/// The sender's side: takes the lines.
pub(crate) struct Lines {
    from: Receiver<Input>,
    to: Weak<SyncSender<Input>>,
    ahead: Arc<Ahead>,
}

/// The reader's side: adds the lines.
struct Reader {
    to: Arc<SyncSender<Input>>,
    ahead: Arc<Ahead>,
}

/// The bytes of the waiting lines.
#[derive(Default)]
struct Ahead {
    bytes: AtomicUsize,
    /// True while the reader waits for `bytes` to fall.
    reader_waits: Mutex<bool>,
    fewer: Condvar,
}

/// Starts to read: the texts given, or without any the lines of standard input as they come.
pub(crate) fn read(texts: Vec<String>) -> anyhow::Result<Lines> {
    let (reader, lines) = channel();
    threads::start("lines", move || {
        // Fails if the sender has given up and dropped its side.
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
    /// Returns a function that ends the lines, for a sender that waits for the next one.
    pub(crate) fn ender(&self) -> impl FnOnce() + Send + 'static {
        let to = self.to.clone();
        move || {
            // If the channel is full, the sender does not wait.
            let _ = to.upgrade().map(|to| to.try_send(Input::End(Ok(()))));
        }
    }

    /// Waits for the next line or the end.
    pub(crate) fn next(&self) -> Input {
        self.next_within(Duration::MAX).unwrap_or(Input::End(Ok(())))
    }

    /// Waits for a line for at most `patience`, and gives it and the others that wait to `give`, within the bounds of
    /// this module. Returns the end of the lines once it is reached.
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

    /// Waits for the next line or the end. None after `patience`.
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

    /// Adds a line. Returns when another one may be read.
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
            // A reader that has found too many bytes holds the lock until it waits, so it does not miss the
            // notification.
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

/// Reads the next line, without its line end; none after the last. `number` is its number, for the error.
fn read_line(input: &mut impl BufRead, number: u64) -> std::io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    if input.take(LINE_BYTES_MAX as u64 + 1).read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    if line.last() == Some(&b'\n') {
        line.pop();
    }
    match line.len() > LINE_BYTES_MAX {
        // Its length is unknown: the rest of it was not read.
        true => Err(std::io::Error::other(format!(
            "line {number} has more than {LINE_BYTES_MAX} bytes, the maximum of a message: it and the lines after it were not \
             sent"
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
            let error = read_line(&mut input, 7).unwrap_err().to_string();
            assert!(error.starts_with("line 7 has more than 16777216 bytes"), "{error}");
        }
        assert_eq!(read_line(&mut &b""[..], 1).unwrap(), None);
        assert_eq!(read_line(&mut &b"\n"[..], 1).unwrap(), Some(Vec::new()));
    }

    /// Input that counts the bytes read from it.
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
            assert!(!reading.is_finished(), "the reader read everything while no line was taken");
            std::thread::yield_now();
        }
        // The buffered part of the next line counts as one more line.
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

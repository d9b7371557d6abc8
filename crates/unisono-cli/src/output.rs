//! What commands print: plain text for people, or one JSON object per line for scripts. Standard output carries
//! results only; everything else goes to standard error.

use crate::settings::Settings;
use anstream::stream::RawStream;
use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use indicatif::MultiProgress;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use serde::Serialize;
use std::borrow::Cow;
use std::fmt::Display;
use std::io::{self, Write};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// As much as a pipe holds: who reads at all takes that soon.
const PIECE_BYTES_MAX: usize = 64 << 10;

/// What is drawn on standard error where a person looks.
pub(crate) static BARS: LazyLock<MultiProgress> = LazyLock::new(MultiProgress::new);

static PIECES_TAKEN: AtomicU64 = AtomicU64::new(0);

/// Where results go, and in which shape.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    json: bool,
    colour: bool,
}

/// How a piece of plain text stands out on a terminal.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Tone {
    /// Good news.
    Good,
    /// Bad news.
    Bad,
    /// A name or a heading.
    Strong,
}

impl Output {
    /// As the settings ask. Colour on terminals that show it, and as `NO_COLOR`, `CLICOLOR` and `CLICOLOR_FORCE` say.
    pub(crate) fn new(settings: &Settings) -> Output {
        Output { json: settings.json, colour: !settings.json && shows_colour(&io::stdout()) }
    }

    /// Whether scripts read this.
    pub(crate) fn json(&self) -> bool {
        self.json
    }

    /// Prints a line for people; nothing if scripts read.
    pub(crate) fn say(&self, line: impl Display) -> io::Result<()> {
        if self.json {
            return Ok(());
        }
        write(&format!("{line}\n"))
    }

    /// Prints an object for scripts; nothing if people read.
    pub(crate) fn object(&self, object: &impl Serialize) -> io::Result<()> {
        if !self.json {
            return Ok(());
        }
        let line = serde_json::to_string(object).map_err(io::Error::other)?;
        write(&format!("{}\n", visible_json(&line)))
    }

    /// Prints lines that are in the right shape already.
    pub(crate) fn raw(&self, lines: &str) -> io::Result<()> {
        write(lines)
    }

    /// The text, standing out if it may.
    pub(crate) fn tone(&self, tone: Tone, text: impl Display) -> String {
        if !self.colour {
            return text.to_string();
        }
        let style = match tone {
            Tone::Good => AnsiColor::Green.on_default(),
            Tone::Bad => AnsiColor::Red.on_default(),
            Tone::Strong => Style::new().bold(),
        };
        format!("{style}{text}{style:#}")
    }
}

/// True if what is written there may have colours.
pub(crate) fn shows_colour(stream: &impl RawStream) -> bool {
    AutoStream::choice(stream) != ColorChoice::Never
}

/// How many pieces of what was printed somebody has taken, or a pipe holds.
pub(crate) fn pieces_taken() -> u64 {
    PIECES_TAKEN.load(Ordering::Relaxed)
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let mut write_piece = |piece| {
        out.write_all(piece)?;
        PIECES_TAKEN.fetch_add(1, Ordering::Relaxed);
        Ok(())
    };
    let written = text.as_bytes().chunks(PIECE_BYTES_MAX).try_for_each(&mut write_piece);
    written.and_then(|()| out.flush()).map_err(unwritten)
}

/// What the system says of standard output. A pipe that nobody reads any more is still known as one.
pub(crate) fn unwritten(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot write to standard output: {error}"))
}

/// Waits until whoever reads standard output is gone. False if that cannot be known.
pub(crate) fn wait_until_unread() -> bool {
    let out = io::stdout();
    let gone = PollFlags::ERR | PollFlags::HUP;
    loop {
        // Whatever is polled for, the end is told of.
        let mut fds = [PollFd::new(&out, PollFlags::empty())];
        match poll(&mut fds, None) {
            Ok(_) if fds[0].revents().intersects(gone) => return true,
            Err(Errno::INTR) => {}
            _ => return false,
        }
    }
}

/// Tells people something beside the results, and beside the bars that they see. If nobody reads it, that is no reason to
/// stop.
pub(crate) fn tell(words: impl Display) {
    BARS.suspend(|| {
        let _ = writeln!(io::stderr(), "unisono: {words}");
    });
}

/// A number of milliseconds or microseconds as people and scripts like to read it: three digits after the point.
pub(crate) fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// So many of them, in words: `1 member`, `2 members`, `3 crashes`.
pub(crate) fn several(count: u64, one: &str) -> String {
    let ending = if one.ends_with("sh") { "es" } else { "s" };
    if count == 1 { format!("1 {one}") } else { format!("{count} {one}{ending}") }
}

/// The text without anything that could steer a terminal: it may come from anybody.
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(|c: char| steers(c) && c != '\t') {
        return Cow::Borrowed(text);
    }
    let escape = |c: char| if steers(c) { c.escape_default().collect() } else { c.to_string() };
    Cow::Owned(text.chars().map(escape).collect())
}

/// The same for JSON, where it changes nothing of what is meant: what steers a terminal stands in strings only.
pub(crate) fn visible_json(json: &str) -> Cow<'_, str> {
    if !json.contains(steers) {
        return Cow::Borrowed(json);
    }
    let escape = |c: char| if steers(c) { format!("\\u{:04x}", c as u32) } else { c.to_string() };
    Cow::Owned(json.chars().map(escape).collect())
}

/// Control characters, and those that end a line or turn its direction, so that another text is read than was written.
fn steers(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A word as a shell takes it whole.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./=:,%+@".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.into()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_steers_the_terminal() {
        assert_eq!(visible("plain\ttext, ünïcode"), "plain\ttext, ünïcode");
        assert_eq!(visible("red \u{1b}[31m\r"), "red \\u{1b}[31m\\r");
        assert_eq!(visible("\u{9b}2J \u{202e}bob"), "\\u{9b}2J \\u{202e}bob");
    }

    #[test]
    fn json_means_the_same_and_steers_nothing() {
        let text = "tab\t \u{1b}[31m \u{9b}2J \u{7f}\u{202e}bob";
        let json = serde_json::to_string(text).unwrap();
        let shown = visible_json(&json);
        assert!(!shown.contains(steers), "{shown}");
        assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), text);
        assert_eq!(visible_json("[1]"), "[1]");
    }

    #[test]
    fn numbers_keep_three_digits() {
        assert_eq!(rounded(1.23456), 1.235);
        assert_eq!(hex(&[0, 255]), "00ff");
    }

    #[test]
    fn one_of_something_has_no_ending() {
        let said =
            [(1, "member"), (0, "member"), (1, "crash"), (2, "crash")].map(|(n, word)| several(n, word));
        assert_eq!(said, ["1 member", "0 members", "1 crash", "2 crashes"]);
    }

    #[test]
    fn words_can_be_typed_again() {
        assert_eq!(quoted("--rate=10mbit"), "--rate=10mbit");
        assert_eq!(quoted("a b's"), r"'a b'\''s'");
        assert_eq!(quoted(""), "''");
    }
}

//! Prints for all commands: plain text for people, or one JSON object per line for scripts. Results go to standard
//! output, everything else to standard error.

use crate::notes;
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

/// Largest piece written at once: 64 KiB, the capacity of a pipe, which a reader that still reads takes soon.
const PIECE_BYTES_MAX: usize = 64 << 10;

/// Minimum length of the last number of a capability that errors leave out: some digits may be lacking.
const CHECK_DIGITS_MIN: usize = 16;

/// The progress bars, drawn on standard error if that is a terminal.
pub(crate) static BARS: LazyLock<MultiProgress> = LazyLock::new(MultiProgress::new);

/// Number of pieces written to standard output.
static PIECES_TAKEN: AtomicU64 = AtomicU64::new(0);

/// The format in which a command prints its results.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    json: bool,
    colour: bool,
}

/// How a piece of plain text is highlighted on a terminal.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Tone {
    /// A success: green.
    Good,
    /// A failure: red.
    Bad,
    /// A name or a heading: bold.
    Strong,
}

impl Output {
    /// Follows the settings. Colours are used on terminals that show them; `NO_COLOR`, `CLICOLOR` and `CLICOLOR_FORCE`
    /// override that.
    pub(crate) fn new(settings: &Settings) -> Output {
        Output { json: settings.json, colour: !settings.json && shows_colour(&io::stdout()) }
    }

    /// True if the output is JSON for scripts.
    pub(crate) fn json(&self) -> bool {
        self.json
    }

    /// Prints a line for people. With `--json` prints nothing.
    pub(crate) fn say(&self, line: impl Display) -> io::Result<()> {
        if self.json {
            return Ok(());
        }
        write(&format!("{line}\n"))
    }

    /// Prints an object for scripts. Without `--json` prints nothing.
    pub(crate) fn object(&self, object: &impl Serialize) -> io::Result<()> {
        if !self.json {
            return Ok(());
        }
        let line = serde_json::to_string(object).map_err(io::Error::other)?;
        write(&format!("{}\n", visible_json(&line)))
    }

    /// Prints a line for people, or with `--json` the object for scripts, on behalf of a server: soon, without waiting for a
    /// reader. A server serves whether or not it can print, so a failure is only noted on standard error, once.
    pub(crate) fn announce(&self, line: impl Display, object: &impl Serialize) {
        match self.json {
            false => self.announce_words(line),
            true => {
                let object = serde_json::to_string(object).unwrap_or_default();
                notes::announce(format!("{}\n", visible_json(&object)).into_bytes());
            }
        }
    }

    /// As [`Output::announce`], for people only. With `--json` prints nothing.
    pub(crate) fn announce_words(&self, line: impl Display) {
        if !self.json {
            notes::announce(format!("{line}\n").into_bytes());
        }
    }

    /// Prints lines that are formatted already.
    pub(crate) fn raw(&self, lines: &str) -> io::Result<()> {
        write(lines)
    }

    /// Returns the text, highlighted if colours are used.
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

/// True if text written to this stream may have colours.
pub(crate) fn shows_colour(stream: &impl RawStream) -> bool {
    AutoStream::choice(stream) != ColorChoice::Never
}

/// Returns the number of pieces written to standard output. Each was read, or is held by the pipe.
pub(crate) fn pieces_taken() -> u64 {
    PIECES_TAKEN.load(Ordering::Relaxed)
}

fn write(text: &str) -> io::Result<()> {
    write_bytes(text.as_bytes())
}

/// Writes bytes to standard output, after the notes that came before. Waits as long as that takes.
pub(crate) fn write_bytes(bytes: &[u8]) -> io::Result<()> {
    notes::settle();
    let mut out = io::stdout().lock();
    let mut write_piece = |piece| {
        out.write_all(piece)?;
        PIECES_TAKEN.fetch_add(1, Ordering::Relaxed);
        Ok(())
    };
    let written = bytes.chunks(PIECE_BYTES_MAX).try_for_each(&mut write_piece);
    written.and_then(|()| out.flush()).map_err(unwritten)
}

/// Adds to the error that it concerns standard output. Keeps the error's kind, by which a closed pipe is recognized.
pub(crate) fn unwritten(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot write to standard output: {error}"))
}

/// Waits until the reader of standard output has closed it. False if the system cannot tell.
pub(crate) fn wait_until_unread() -> bool {
    let out = io::stdout();
    let gone = PollFlags::ERR | PollFlags::HUP;
    loop {
        // `poll` reports errors and hang-ups without being asked for them.
        let mut fds = [PollFd::new(&out, PollFlags::empty())];
        match poll(&mut fds, None) {
            Ok(_) if fds[0].revents().intersects(gone) => return true,
            Err(Errno::INTR) => {}
            _ => return false,
        }
    }
}

/// Prints a message for people on standard error, above the progress bars. Does not wait for it to be written.
pub(crate) fn tell(words: impl Display) {
    notes::write(format!("unisono: {words}").as_bytes());
}

/// Ends the process with this status, after a short time for its last lines.
pub(crate) fn exit(status: i32) -> ! {
    notes::finish();
    std::process::exit(status)
}

/// Returns the number rounded to three digits after the point.
pub(crate) fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// Returns a count with its noun: `1 member`, `2 members`, `3 crashes`.
pub(crate) fn several(count: u64, one: &str) -> String {
    let ending = if one.ends_with("sh") { "es" } else { "s" };
    if count == 1 { format!("1 {one}") } else { format!("{count} {one}{ending}") }
}

/// Returns the text with terminal control characters escaped. Use it for every text that another process wrote.
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(|c: char| steers(c) && c != '\t') {
        return Cow::Borrowed(text);
    }
    let escape = |c: char| if steers(c) { c.escape_default().collect() } else { c.to_string() };
    Cow::Owned(text.chars().map(escape).collect())
}

/// Returns the text without the checks of capabilities in it, which errors must not show: where four numbers in hexadecimal
/// are joined by colons, or more, and the last one is long, that one is left out.
pub(crate) fn without_checks(text: &str) -> String {
    let is_of_capability = |c: char| c == ':' || c.is_ascii_hexdigit();
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(begin) = rest.find(is_of_capability) {
        let (before, from) = rest.split_at(begin);
        let (word, after) = from.split_at(from.find(|c| !is_of_capability(c)).unwrap_or(from.len()));
        out.push_str(before);
        match word.rsplit_once(':') {
            Some((shown, check)) if shown.matches(':').count() >= 2 && check.len() >= CHECK_DIGITS_MIN => {
                out.push_str(shown);
                out.push_str(":…");
            }
            _ => out.push_str(word),
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

/// Returns the JSON with terminal control characters escaped. Its meaning stays: these characters occur in strings
/// only.
pub(crate) fn visible_json(json: &str) -> Cow<'_, str> {
    if !json.contains(steers) {
        return Cow::Borrowed(json);
    }
    let escaped =
        |c: char| c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect::<String>();
    let escape = |c: char| if steers(c) { escaped(c) } else { c.to_string() };
    Cow::Owned(json.chars().map(escape).collect())
}

/// True for control characters, for characters that end a line or change its direction, and for those that show nothing,
/// which all make a text look like another. (Unicode: default ignorable, and the blank pattern of Braille.)
fn steers(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}'
        )
}

/// Returns the word quoted for a shell.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./=:,%+@".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.into()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Returns a time in milliseconds since 1970 as date and time in UTC, to the second.
pub(crate) fn utc(ms: u64) -> String {
    let (days, seconds) = (ms / 86_400_000, ms / 1000 % 86_400);
    // Years that begin in March have their leap day at the end. 719,468 days before 1970 such a year began, and with it
    // one of the calendar's cycles of 400 years.
    let (days, cycles) = ((days + 719_468) % 146_097, (days + 719_468) / 146_097);
    let years = (days - days / 1460 + days / 36_524 - days / 146_096) / 365;
    let day_of_year = days - (365 * years + years / 4 - years / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let (year, month) = (400 * cycles + years + month / 10, (month + 2) % 12 + 1);
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    format!("{year:04}-{month:02}-{day:02} {hours:02}:{minutes:02}:{:02} UTC", seconds % 60)
}

/// Returns the bytes as hexadecimal digits.
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
    fn what_shows_nothing_is_seen() {
        for c in [
            '\u{200b}',
            '\u{200f}',
            '\u{ad}',
            '\u{61c}',
            '\u{2060}',
            '\u{feff}',
            '\u{fe0f}',
            '\u{3164}',
            '\u{e0041}',
        ] {
            assert_eq!(visible(&format!("adm{c}in")), format!("adm\\u{{{:x}}}in", c as u32));
        }
        assert_eq!(visible("עברית 日本語　नमस्ते é 🦀"), "עברית 日本語　नमस्ते é 🦀");
    }

    #[test]
    fn json_means_the_same_and_steers_nothing() {
        let text = "tab\t \u{1b}[31m \u{9b}2J \u{7f}\u{202e}bob\u{200b}\u{e0041}";
        let json = serde_json::to_string(text).unwrap();
        let shown = visible_json(&json);
        assert!(!shown.contains(steers), "{shown}");
        assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), text);
        assert_eq!(visible_json("[1]"), "[1]");
    }

    #[test]
    fn checks_are_left_out_and_nothing_else_is() {
        let check = "0123456789abcdef0123456789abcdef";
        for (before, after) in [("no file ./", "x"), ("`file:", "` is"), ("a=", "\n")] {
            for prefix in ["00ff:1:ff:", "000000000000000000000000000000aa:0000000000000001:ff:"] {
                let shown = without_checks(&format!("{before}{prefix}{check}{after} {prefix}{check}"));
                assert_eq!(shown, format!("{before}{prefix}…{after} {prefix}…"));
            }
        }
        for text in
            ["", "é: 10.0.0.1:7195, [fe80::1:2:3:4]:7195", "group 0123456789abcdef0123456789abcdef, 12:30:59"]
        {
            assert_eq!(without_checks(text), text);
        }
    }

    #[test]
    fn numbers_keep_three_digits() {
        assert_eq!(rounded(1.23456), 1.235);
        assert_eq!(hex(&[0, 255]), "00ff");
    }

    #[test]
    fn one_of_something_has_no_ending() {
        let counts =
            [(1, "member"), (0, "member"), (1, "crash"), (2, "crash")].map(|(n, word)| several(n, word));
        assert_eq!(counts, ["1 member", "0 members", "1 crash", "2 crashes"]);
    }

    #[test]
    fn times_are_dates() {
        let seconds = [0, 951_782_399, 951_782_400, 951_868_800, 1_767_225_599, 4_107_542_400];
        let dates = [
            "1970-01-01 00:00:00 UTC",
            "2000-02-28 23:59:59 UTC",
            "2000-02-29 00:00:00 UTC",
            "2000-03-01 00:00:00 UTC",
            "2025-12-31 23:59:59 UTC",
            "2100-03-01 00:00:00 UTC",
        ];
        assert_eq!(seconds.map(|seconds| utc(seconds * 1000)), dates);
    }

    #[test]
    fn words_can_be_typed_again() {
        assert_eq!(quoted("--rate=10mbit"), "--rate=10mbit");
        assert_eq!(quoted("a b's"), r"'a b'\''s'");
        assert_eq!(quoted(""), "''");
    }
}
